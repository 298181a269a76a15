//! What goes into a node and comes out of it.

use crate::answer::ClientOutput;
use crate::audit::AuditRecord;
use crate::examine::{Awaited, Examiner, Look, Presented};
use crate::identity::Identity;
use crate::ids::{JobId, LinkId, StorageId};
use crate::report::Line;
use crate::request::ClientInput;
use log::{Disk, DiskError, OpenPartition, Operation, OperationToken, Outcome, Recovery, Storage};
use log::{StorageError, StorageKind};
use memory::Buffer;
use net::{BulkToken, Message, NetError, Peer, Received, RegionRead, RegionWrite};
use std::path::PathBuf;
use std::sync::Arc;
use wire::NodeId;
use wire::message::Hello;
use wire::table::{Register, TableMessage};

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
#[allow(missing_docs)] // Fields whose names say it.
#[allow(
    clippy::large_enum_variant,
    reason = "a client that was let in elsewhere comes seldom; in a box it would be no cheaper"
)]
pub enum Input {
    /// A connection stands.
    LinkUp {
        link: LinkId,
        /// Who is at the other end.
        peer: Peer,
        /// What its transport can do.
        capabilities: net::Capabilities,
    },
    /// A connection is gone.
    LinkDown { link: LinkId, reason: NetError },
    /// How many bytes of a connection wait to be handed to the network. The executor reports
    /// it when they pass [`LINK_QUEUED_BYTES_HIGH`], and again when they have fallen to
    /// [`LINK_QUEUED_BYTES_LOW`]: in between nothing is delivered on the connection.
    LinkQueued { link: LinkId, bytes: u64 },
    /// A message of Thalweg's own protocol arrived.
    Message { link: LinkId, message: Received },
    /// A connection stands whose listener speaks another protocol, and has let its client in.
    /// It sees to it that a client that is gone is gone here: [`Input::LinkDown`].
    ClientUp {
        link: LinkId,
        /// Who is at the other end.
        peer: Peer,
        /// What its client has proved.
        identity: Identity,
    },
    /// A connection stands whose listener speaks another protocol, and whose client presents this, as a client of
    /// Thalweg's own protocol does. [`ClientOutput::Welcome`] lets it in; else the connection is ended.
    ClientHello {
        link: LinkId,
        /// Who is at the other end.
        peer: Peer,
        /// Who the client says to be, and by what it proves that.
        hello: Box<Hello>,
    },
    /// Something came on such a connection.
    Client { link: LinkId, input: ClientInput },
    /// A read of a client's memory is done.
    ReadDone {
        link: LinkId,
        token: BulkToken,
        /// The bytes, and the checksums of their blocks.
        result: Result<(Buffer, Vec<u32>), NetError>,
    },
    /// A write into a client's memory was handed to the network.
    WriteDone {
        link: LinkId,
        token: BulkToken,
        result: Result<(), NetError>,
    },
    /// A disk operation was carried out.
    DiskDone {
        storage: StorageId,
        token: OperationToken,
        result: Result<Outcome, DiskError>,
    },
    /// A blocking job was done.
    JobDone { job: JobId, result: JobResult },
    /// What there is of bytes where the data directory lies, looked at now and then.
    FileSystem(FileSystemSpace),
    /// Something has come of another node of the table.
    Peer(PeerInput),
    /// Whom the node believes, or what they may do, has changed.
    Access(AccessChange),
    /// Time has passed, or nothing else: a timer may be due.
    Timer,
    /// The operator wants the node to end: finish what was taken, refuse the rest.
    Drain,
}

/// What comes of another node of the table, whose link the executor keeps: it lets in nobody else.
#[derive(Debug)]
pub enum PeerInput {
    /// A link to it stands, new.
    Up(NodeId),
    /// Its link is gone, and all that was on its way.
    Down(NodeId),
    /// A message came. Messages come in the order in which they were sent.
    Message(NodeId, TableMessage),
    /// A server asks which node it is, on a link that has no node yet; answered by [`Output::Registered`].
    Register(LinkId, Register),
}

/// Something has changed of whom a node believes, or of what they may do.
pub enum AccessChange {
    /// Whose tokens of projects are taken, and which are not.
    Trust(Arc<access::Trust>),
    /// Who may do what, and how much.
    Rules(Arc<access::Rules>),
    /// Whose credentials are taken besides, which the node's examiner knows by now.
    Issuers(IssuersChange),
}

/// Whose credentials are taken besides the server's own has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuersChange {
    /// All that are known.
    pub known: Vec<String>,
    /// Those that were known, and for whose credentials something is not so any more.
    pub changed: Vec<String>,
}

/// Work that blocks, in an [`Output::Job`].
#[allow(missing_docs)] // Fields whose names say it.
pub enum Job {
    /// Opens or makes a partition.
    Open {
        kind: Arc<dyn StorageKind>,
        open: OpenPartition,
    },
    /// Makes a partition in place of what may have been left there.
    OpenAnew {
        kind: Arc<dyn StorageKind>,
        open: OpenPartition,
    },
    /// Removes a closed partition.
    Remove {
        kind: Arc<dyn StorageKind>,
        directory: PathBuf,
    },
    /// Keeps a small file whole.
    Keep {
        disk: Arc<dyn Disk>,
        path: PathBuf,
        /// What it is to hold; `None` removes it.
        bytes: Option<Vec<u8>>,
    },
    /// Finds out who a client is. It must not hold up other jobs, nor a look of another kind. What nobody awaits any
    /// more may have any result, but is to have one.
    Examine {
        by: Arc<dyn Examiner>,
        presented: Presented,
        look: Look,
        awaited: Awaited,
    },
}

impl Job {
    /// Does it. Blocks.
    pub fn run(self) -> JobResult {
        match self {
            Self::Open { kind, open } => JobResult::Opened(kind.open(open)),
            Self::OpenAnew { kind, open } => {
                let removed = kind.remove(&open.directory);
                JobResult::Opened(removed.and_then(|()| kind.open(open)))
            }
            Self::Remove { kind, directory } => JobResult::Removed(kind.remove(&directory)),
            Self::Keep { disk, path, bytes } => {
                JobResult::Kept(crate::small_file::keep(disk.as_ref(), &path, bytes))
            }
            Self::Examine { by, presented, .. } => JobResult::Examined(Box::new(Examined {
                result: by.examine(&presented),
                presented,
            })),
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
    /// Who a client is.
    Examined(Box<Examined>),
}

/// What was found of what a client presented.
pub struct Examined {
    /// What it was.
    pub presented: Presented,
    /// Who that makes it, or why it does not count.
    pub result: Result<access::Verified, wire::ErrorReply>,
}

/// Something to do for the executor.
#[allow(missing_docs)] // Fields whose names say it.
pub enum Output {
    /// Send a message.
    Send {
        /// A dead link is no error: the message is dropped.
        link: LinkId,
        message: Message,
    },
    /// Say something to a client that came by [`Input::ClientUp`].
    Client {
        link: LinkId,
        output: Box<ClientOutput>,
    },
    /// Read a client's memory; answered by [`Input::ReadDone`].
    Read {
        link: LinkId,
        token: BulkToken,
        read: RegionRead,
    },
    /// Write into a client's memory; answered by [`Input::WriteDone`].
    Write {
        link: LinkId,
        token: BulkToken,
        write: RegionWrite,
    },
    /// Send in chunks what is for this connection from here on ([`net::Link::striped`]).
    Stripe { link: LinkId },
    /// Send a last message on a connection, and have it carry chunks of another one ([`net::Link::join`]): the node
    /// knows it no more. Carried out before anything else happens.
    Join {
        link: LinkId,
        stripe: LinkId,
        welcome: Message,
    },
    /// Send this to another node of the table, whose link stands, in this order.
    Peer { node: NodeId, message: TableMessage },
    /// Send this on the link of a server that has asked which node it is, unless that link is gone: a
    /// [`TableMessage::Registered`], or a [`TableMessage::Refused`].
    Registered { link: LinkId, message: TableMessage },
    /// End a connection; answered by [`Input::LinkDown`].
    Close { link: LinkId, reason: String },
    /// Carry out a disk operation; answered by [`Input::DiskDone`]. What does
    /// not block may be done at once, on the calling thread.
    Disk {
        storage: StorageId,
        token: OperationToken,
        operation: Operation,
    },
    /// Do a blocking job; answered by [`Input::JobDone`].
    Job { job: JobId, work: Job },
    /// A line for the server's log.
    Report(Line),
    /// A record for the audit trail.
    Audit(Box<AuditRecord>),
    /// A drain has begun, by [`Input::Drain`] or because a client asked for it.
    Draining,
    /// After [`Input::Drain`]: everything is closed cleanly, the executor may end.
    Drained,
}
