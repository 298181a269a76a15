//! What goes into a node and comes out of it.

use crate::ids::{JobId, LinkId, StorageId};
use log::{Disk, DiskError, OpenPartition, Operation, OperationToken, Outcome, Recovery, Storage};
use log::{StorageError, StorageKind};
use memory::Buffer;
use net::{BulkToken, Message, NetError, Peer, Received, RegionRead, RegionWrite};
use std::path::PathBuf;
use std::sync::Arc;

/// See [`Input::LinkQueued`].
pub const LINK_QUEUED_BYTES_HIGH: u64 = 8 << 20;
/// See [`Input::LinkQueued`].
pub const LINK_QUEUED_BYTES_LOW: u64 = 2 << 20;

const _: () = assert!(LINK_QUEUED_BYTES_LOW < LINK_QUEUED_BYTES_HIGH);

/// What there is of bytes where a data directory lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSystemSpace {
    /// That the server may still take.
    pub free_bytes: u64,
    /// Of all, free or not, without what only the system's administrator may take.
    pub total_bytes: u64,
}

/// Something happened.
pub enum Input {
    /// A connection stands.
    LinkUp {
        /// Which.
        link: LinkId,
        /// Who is at the other end.
        peer: Peer,
        /// What its transport can do.
        capabilities: net::Capabilities,
    },
    /// A connection is gone.
    LinkDown {
        /// Which.
        link: LinkId,
        /// Why.
        reason: NetError,
    },
    /// How many bytes wait to be handed to the network. To be told when they
    /// pass [`LINK_QUEUED_BYTES_HIGH`], and again when they have fallen to
    /// [`LINK_QUEUED_BYTES_LOW`]: in between nothing is delivered to
    /// subscriptions of the connection.
    LinkQueued {
        /// Of which connection.
        link: LinkId,
        /// How many.
        bytes: u64,
    },
    /// A message arrived.
    Message {
        /// Where from.
        link: LinkId,
        /// What.
        message: Received,
    },
    /// A read of a client's memory is done.
    ReadDone {
        /// Of which connection.
        link: LinkId,
        /// Which.
        token: BulkToken,
        /// The bytes and their blocks' checksums.
        result: Result<(Buffer, Vec<u32>), NetError>,
    },
    /// A write into a client's memory was handed to the network.
    WriteDone {
        /// Of which connection.
        link: LinkId,
        /// Which.
        token: BulkToken,
        /// Whether.
        result: Result<(), NetError>,
    },
    /// A disk operation was carried out.
    DiskDone {
        /// For which storage.
        storage: StorageId,
        /// Which.
        token: OperationToken,
        /// How it went.
        result: Result<Outcome, DiskError>,
    },
    /// A blocking job was done.
    JobDone {
        /// Which.
        job: JobId,
        /// How it went.
        result: JobResult,
    },
    /// What there is of bytes where the data directory lies, looked at now and then.
    FileSystem(FileSystemSpace),
    /// Time has passed, or nothing else: a timer may be due.
    Timer,
    /// The operator wants the node to end: finish what was taken, refuse the rest.
    Drain,
}

/// Work that blocks, in an [`Output::Job`].
pub enum Job {
    /// Opens or makes a partition.
    Open {
        /// The kind of storage.
        kind: Arc<dyn StorageKind>,
        /// What.
        open: OpenPartition,
    },
    /// Removes a closed partition.
    Remove {
        /// The kind of storage.
        kind: Arc<dyn StorageKind>,
        /// Where it is.
        directory: PathBuf,
    },
    /// Keeps a small file whole.
    Keep {
        /// What it lies on.
        disk: Arc<dyn Disk>,
        /// Where.
        path: PathBuf,
        /// What it is to hold; `None` removes it.
        bytes: Option<Vec<u8>>,
    },
}

impl Job {
    /// Does it. Blocks.
    pub fn run(self) -> JobResult {
        match self {
            Self::Open { kind, open } => JobResult::Opened(kind.open(open)),
            Self::Remove { kind, directory } => JobResult::Removed(kind.remove(&directory)),
            Self::Keep { disk, path, bytes } => {
                JobResult::Kept(crate::small_file::keep(disk.as_ref(), &path, bytes))
            }
        }
    }
}

/// What became of a [`Job`].
pub enum JobResult {
    /// The opened partition.
    Opened(Result<(Box<dyn Storage>, Recovery), StorageError>),
    /// Whether it was removed.
    Removed(Result<(), StorageError>),
    /// Whether the file is as it was to be.
    Kept(Result<(), DiskError>),
}

/// Something to do for the executor.
pub enum Output {
    /// Send a message.
    Send {
        /// Where to. A dead link is no error: the message is dropped.
        link: LinkId,
        /// What.
        message: Message,
    },
    /// Read a client's memory; answered by [`Input::ReadDone`].
    Read {
        /// Of which connection.
        link: LinkId,
        /// Which.
        token: BulkToken,
        /// What.
        read: RegionRead,
    },
    /// Write into a client's memory; answered by [`Input::WriteDone`].
    Write {
        /// Of which connection.
        link: LinkId,
        /// Which.
        token: BulkToken,
        /// What.
        write: RegionWrite,
    },
    /// End a connection; answered by [`Input::LinkDown`].
    Close {
        /// Which.
        link: LinkId,
        /// Why.
        reason: String,
    },
    /// Carry out a disk operation; answered by [`Input::DiskDone`]. What does
    /// not block may be done at once, on the calling thread.
    Disk {
        /// For which storage.
        storage: StorageId,
        /// Which.
        token: OperationToken,
        /// What.
        operation: Operation,
    },
    /// Do a blocking job; answered by [`Input::JobDone`].
    Job {
        /// Which.
        job: JobId,
        /// What.
        work: Job,
    },
    /// A line for the server's log: what an operator should know.
    Report(String),
    /// After [`Input::Drain`]: everything is closed cleanly, the executor may end.
    Drained,
}
