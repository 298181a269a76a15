//! One partition's storage, as the broker sees it.
//!
//! A storage is a plain state machine. Calls change its state at once and may
//! leave [`Operation`]s to be carried out: whoever drives it takes them with
//! [`Storage::poll_operation`], carries them out in any order and on any
//! thread, and hands the results to [`Storage::complete`]. What became of
//! calls is told by [`Storage::poll_event`]. After each call or completion
//! both are to be polled until empty.

use crate::disk::{DiskError, Operation, Outcome};
use crate::producers::Verdict;
use ::memory::Buffer;
use bytes::Bytes;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use wire::batch::{ExternalLayout, Header};
use wire::record::{Gap, ProducerState};
use wire::view::Segment;
use wire::{
    Durability, Incarnation, Offset, PartitionIndex, ProducerEpoch, ProducerId, Sequence, TopicId,
};

/// Names an operation between [`Storage::poll_operation`] and [`Storage::complete`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationToken(pub u64);

/// Names a reading between the call and its [`StorageEvent`]; chosen by the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadToken(pub u64);

/// A reserved place for the external data of one batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DataPlace(pub u64);

/// How far a storage has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageState {
    /// Which life the partition is in.
    pub incarnation: Incarnation,
    /// The first offset that is still there.
    pub first: Offset,
    /// The next offset to be assigned.
    pub end: Offset,
    /// Below this, events survive the death of the process.
    pub written: Offset,
    /// Below this, events survive a power loss.
    pub synced: Offset,
    /// Bytes stored, metadata and data.
    pub bytes: u64,
    /// Why it takes nothing more, if it failed.
    pub failure: Option<String>,
}

impl StorageState {
    /// Below this offset, events survive what `level` promises.
    pub fn reached(&self, level: Durability) -> Offset {
        match level {
            Durability::Memory => self.end,
            Durability::Written => self.written,
            Durability::Synced => self.synced,
        }
    }
}

/// What the broker knows when it appends.
#[derive(Debug)]
pub struct Append {
    /// The batch, verified; the storage writes the stamp into it.
    pub batch: Buffer,
    /// Its decoded header.
    pub header: Header,
    /// The header's checksum.
    pub header_crc: u32,
    /// Where its external data is, if it has any; the place must be ready.
    pub place: Option<DataPlace>,
    /// What its ack must mean. The storage syncs as soon as it can (in
    /// groups) for `Synced`, by bytes in the background for `Written`.
    pub durability: Durability,
    /// When the event's first copy was appended, nanoseconds since 1970; the same on every copy.
    pub append_time: u64,
    /// Now, of this server, likewise: what retention by age and the memory of producers count from.
    pub now: u64,
    /// The leader's epoch.
    pub leader_epoch: u32,
}

/// The batches that a reading found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// Verified batches, in order, at least one; the first may begin before
    /// the offset asked for. Batches without events are left out.
    Batches {
        /// Each batch whole, or without its inline data if that was not wanted.
        batches: Vec<Bytes>,
        /// The offset behind the last.
        next: Offset,
    },
    /// The offset asked for is lost: go on at `gap.end`.
    Gap(Gap),
    /// Nothing is there below the end that was given.
    Nothing,
}

/// An event's data, opened for reading. Keeps its segment from being removed.
#[derive(Debug, Clone)]
pub struct EventData {
    /// Names it to its storage.
    pub handle: Arc<dyn std::any::Any + Send + Sync>,
    /// Length of the data.
    pub bytes: u64,
    /// Checksum of all of it, derived from its blocks.
    pub crc: u32,
}

/// What became of an earlier call.
#[derive(Debug)]
#[allow(
    missing_docs,
    reason = "each variant has its line; the names of its fields say the rest"
)]
pub enum StorageEvent {
    /// [`StorageState`] has moved on: written, synced, first or failure.
    Progress,
    /// A `write_data` of this place is done; its memory is free again.
    DataWritten { place: DataPlace, bytes: u64 },
    /// A sealed place holds all of its data, as durably as was asked: append may follow.
    DataReady { place: DataPlace },
    /// Data could not be stored; the place is abandoned.
    DataFailed {
        place: DataPlace,
        error: StorageError,
    },
    /// There was no space for batches that `append` had taken: every append
    /// from this offset on is undone, and `StorageState::end` is back there.
    /// None of them had reached more than `Durability::Memory`. They may be
    /// tried again, their producers' sequence numbers are free.
    Refused {
        /// The offset of the first event that is undone.
        from: Offset,
        error: StorageError,
    },
    /// A `read` is done.
    Read {
        token: ReadToken,
        found: Result<Found, StorageError>,
    },
    /// An `open_event` is done.
    EventOpened {
        token: ReadToken,
        data: Result<EventData, StorageError>,
    },
    /// A `read_data` is done.
    DataRead {
        token: ReadToken,
        /// The verified bytes, in order; as many pieces as the storage likes.
        pieces: Result<Vec<Bytes>, StorageError>,
    },
    /// There is no space for events: appends are refused until [`StorageEvent::HasSpace`].
    /// The storage looks for space by itself. For operators.
    Full(String),
    /// There is space again.
    HasSpace,
    /// Events were removed or found damaged; the broker records it.
    Lost(Gap),
    /// A `close` is done: all is as durable as the storage can make it.
    Closed,
}

/// Why a storage refuses or fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StorageError {
    /// No space left. Nothing acknowledged is lost; it may be tried again.
    Full(String),
    /// No space left, and nothing will make room by itself. Nothing
    /// acknowledged is lost; trying again is of no use.
    Exhausted(String),
    /// An operation failed so that the state on disk is unknown: nothing is
    /// taken until the partition is reopened.
    Failed(String),
    /// The offset is not there (and no gap says why).
    OutOfRange {
        /// What was asked for.
        offset: Offset,
        /// The first offset there is.
        first: Offset,
        /// The offset behind the last.
        end: Offset,
    },
    /// Stored bytes fail their checksum.
    Damaged(String),
    /// What is stored is not this partition's, or a later version wrote it. It stays as it is.
    Refused(String),
    /// The request cannot be right: a bad configuration, a range outside the
    /// data, a place that is not ready.
    Invalid(String),
}

impl fmt::Display for StorageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(text)
            | Self::Exhausted(text)
            | Self::Failed(text)
            | Self::Damaged(text)
            | Self::Refused(text)
            | Self::Invalid(text) => f.write_str(text),
            Self::OutOfRange { offset, first, end } => {
                write!(f, "offset {offset} is outside {first} to {end}")
            }
        }
    }
}

impl std::error::Error for StorageError {}

/// One partition's storage. See the module for how it is driven.
pub trait Storage: Send {
    /// The strongest durability that this storage can give.
    fn durability_max(&self) -> Durability;

    /// How far it has come.
    fn state(&self) -> StorageState;

    /// Whether a batch of this header is new, a retry, or not allowed. The
    /// storage learns producers from what is appended, and recovers them with it.
    fn check(&self, header: &Header) -> Verdict;

    /// The sequence number with which [`Storage::check`] would take the next batch of a
    /// producer in this epoch for new. `None` if a greater epoch of it has appended.
    fn next_sequence(&self, producer: ProducerId, epoch: ProducerEpoch) -> Option<Sequence>;

    /// What is remembered of its producers, ascending. Nothing, by a storage that cannot say it.
    fn producers(&self) -> Vec<ProducerState> {
        Vec::new()
    }

    /// Remembers of these producers what is said here: what another storage has said that had all batches that are in this one, and
    /// others before them. It need not survive more than an orderly end.
    fn adopt_producers(&mut self, states: Vec<ProducerState>) {
        let _ = states;
    }

    /// Reserves room for external data. Chunks follow by `write_data`, then
    /// one `seal_data` or `abandon`.
    fn reserve(&mut self, layout: &ExternalLayout) -> Result<DataPlace, StorageError>;

    /// Writes a chunk of external data at `position` of the place. Answered
    /// by `DataWritten` or `DataFailed`.
    fn write_data(&mut self, place: DataPlace, position: u64, bytes: Bytes);

    /// All chunks were given; `checksums` are those of all blocks of all
    /// events, in order. Answered by `DataReady` (when the data is as durable
    /// as `durability` says) or `DataFailed`.
    fn seal_data(&mut self, place: DataPlace, checksums: Vec<u32>, durability: Durability);

    /// Gives a place up; the hole is counted.
    fn abandon(&mut self, place: DataPlace);

    /// Appends a batch and returns the offset of its first event. How durable
    /// it has become is seen in [`Storage::state`] after `Progress`; that it
    /// found no space, by [`StorageEvent::Refused`].
    fn append(&mut self, append: Append) -> Result<Offset, StorageError>;

    /// Reads batches from `from` on, none that begin at or above `end` (the
    /// visible end), at most `bytes_max` unless the first is larger.
    /// Answered by `Read`.
    fn read(&mut self, token: ReadToken, read: ReadBatches);

    /// What [`Storage::read`] would answer, if that is at hand: then nothing is
    /// answered later. `None` says nothing, and is what a storage says that
    /// has to look first; it spares those who read along two turns an event.
    fn read_at_hand(&mut self, read: &ReadBatches) -> Option<Found> {
        let _ = read;
        None
    }

    /// Looks up an event's data. Answered by `EventOpened`.
    fn open_event(&mut self, token: ReadToken, offset: Offset);

    /// Reads the given part of an event's data, verifying every block that it
    /// touches. Answered by `DataRead`.
    fn read_data(&mut self, token: ReadToken, data: &EventData, segments: Vec<Segment>);

    /// As [`Storage::read_data`], for somebody who reads all of the data, in
    /// whatever parts, and compares it with [`EventData::crc`] at its end:
    /// blocks that lie in memory since they were verified need not be verified
    /// again. What comes from a disk is.
    fn read_data_to_compare(&mut self, token: ReadToken, data: &EventData, segments: Vec<Segment>) {
        self.read_data(token, data, segments);
    }

    /// Drops events before `offset`, as retention does. Whole segments only.
    fn remove_before(&mut self, offset: Offset, gap: wire::record::GapReason);

    /// What is to be kept from now on, in place of what it was opened with.
    /// Nothing at or above `keep_from` is dropped for it, whatever the limits
    /// say; `Offset(u64::MAX)` spares nothing.
    fn set_retention(&mut self, retention: Retention, keep_from: Offset);

    /// Time has passed: applies retention and background syncs, closes files that nobody uses.
    fn tick(&mut self, unix_ns: u64);

    /// When `tick` wants to be called next, nanoseconds since 1970.
    fn next_tick(&self) -> Option<u64>;

    /// Makes everything durable and closes cleanly. Answered by `Closed`.
    fn close(&mut self);

    /// The next operation to carry out.
    fn poll_operation(&mut self) -> Option<(OperationToken, Operation)>;

    /// An operation was carried out.
    fn complete(&mut self, token: OperationToken, result: Result<Outcome, DiskError>);

    /// The next thing that became of a call.
    fn poll_event(&mut self) -> Option<StorageEvent>;
}

/// What [`Storage::read`] is to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadBatches {
    /// The first offset wanted.
    pub from: Offset,
    /// The visible end.
    pub end: Offset,
    /// The most bytes.
    pub bytes_max: u64,
    /// Whether inline data is wanted.
    pub inline_data: bool,
}

/// What a partition is to be opened with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenPartition {
    /// The partition's own directory. Its parent exists.
    pub directory: PathBuf,
    /// The topic whose partition it is: segments of another one are refused.
    pub topic: TopicId,
    /// Which partition of the topic.
    pub partition: PartitionIndex,
    /// The life that the partition was last known to be in.
    pub incarnation: Incarnation,
    /// What the topic promises, for the choice of background syncs.
    pub durability: Durability,
    /// Configuration of the storage kind, as JSON; empty is the default.
    pub config: String,
    /// What is to be kept.
    pub retention: Retention,
    /// Identity of this boot of the machine: another one than the last time
    /// means that what was not synced may be gone.
    pub boot_id: String,
    /// Now, nanoseconds since 1970.
    pub unix_ns: u64,
    /// Whether the partition is new: its directory must not exist.
    pub create: bool,
}

/// What is kept of a partition; the oldest segments go first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retention {
    /// At most about this many bytes.
    pub bytes: Option<u64>,
    /// Nothing that was appended longer ago than this, nanoseconds.
    pub age_ns: Option<u64>,
    /// At most about this many events.
    pub count: Option<u64>,
    /// Whether the limits by bytes and count hold for what is to be kept as
    /// well: what they drop of that is a gap of the reason `Discarded`.
    pub discards: bool,
}

/// What opening a partition found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recovery {
    /// Events that are there.
    pub event_count: u64,
    /// Bytes that were verified.
    pub verified_bytes: u64,
    /// Bytes of an unsynced tail that were cut off.
    pub cut_bytes: u64,
    /// What was lost, each named.
    pub gaps: Vec<Gap>,
    /// The life that ended, with its end, if the partition begins another.
    pub ended: Option<(Incarnation, Offset)>,
}

/// A kind of storage, by the name that topics use.
pub trait StorageKind: Send + Sync {
    /// The name, for example `disk`.
    fn name(&self) -> &'static str;

    /// Checks a configuration, before anything is made; says why not.
    fn check(&self, config: &str) -> Result<(), String>;

    /// The strongest durability that partitions of this kind can give.
    fn durability_max(&self) -> Durability;

    /// Opens or makes a partition. Blocks.
    fn open(&self, open: OpenPartition) -> Result<(Box<dyn Storage>, Recovery), StorageError>;

    /// Removes a partition that is not open. Blocks. A missing one is no error.
    fn remove(&self, directory: &std::path::Path) -> Result<(), StorageError>;
}
