//! Readings under way: what each looks for, and what it has found so far.

use super::openings::{Openings, Wanted};
use crate::look::DiskStamp;
use crate::partition::log_position::LogPosition;
use crate::partition::purpose::FileNumber;
use crate::storage::{ReadBatches, ReadToken, StorageError};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use wire::Offset;
use wire::batch::{Batch, Columns, Header};

/// All readings under way, and what helps the next ones.
#[derive(Default)]
pub(crate) struct Reads {
    pub(super) jobs: BTreeMap<u64, Job>,
    pub(super) next: u64,
    pub(super) hints: VecDeque<LogPosition>,
    pub(super) damage: BTreeSet<(Offset, Offset)>,
    /// The batch of which an event was opened last.
    pub(super) opened: Option<OpenedBatch>,
    pub(super) openings: Openings,
}

pub(super) enum Job {
    Batches(BatchesJob),
    Open(OpenJob),
    Data(DataJob),
}

/// Bytes of a log, and where they begin.
#[derive(Debug, Clone, Default)]
pub(super) struct Window {
    pub(super) start: u64,
    pub(super) bytes: Bytes,
}

impl Window {
    pub(super) fn from(&self, position: u64) -> &[u8] {
        let at = position.saturating_sub(self.start);
        match position >= self.start && at < self.bytes.len() as u64 {
            true => &self.bytes[at as usize..],
            false => &[],
        }
    }

    pub(super) fn slice(&self, position: u64, bytes: u64) -> Option<Bytes> {
        let at = position.checked_sub(self.start)?;
        let end = at.checked_add(bytes)?;
        (end <= self.bytes.len() as u64).then(|| self.bytes.slice(at as usize..end as usize))
    }
}

/// The way to a batch: from a known place, header by header.
pub(super) struct Finder {
    /// The offset wanted.
    pub(super) offset: Offset,
    pub(super) at: LogPosition,
    pub(super) window: Window,
    /// Set while the next good batch behind damage is searched.
    pub(super) scanning: bool,
    pub(super) scan_from: u64,
    /// Bytes to be read from the window's start on.
    pub(super) needed: u64,
    /// Bytes to be read at once.
    pub(super) window_bytes: u64,
    /// Where the segment's file was seen to end.
    pub(super) file_end: u64,
}

impl Finder {
    /// What was needed has been read; less means that the file ends there.
    pub(super) fn take(&mut self, bytes: Bytes) {
        if (bytes.len() as u64) < self.needed {
            self.file_end = self.window.start + bytes.len() as u64;
        }
        self.window.bytes = bytes;
    }

    pub(super) fn need(&mut self, position: u64, bytes: u64) {
        self.window = Window {
            start: position,
            bytes: Bytes::new(),
        };
        self.needed = bytes;
    }
}

/// What a step of a [`Finder`] came to.
pub(super) enum Find {
    /// This batch contains the offset; its headers are good and in the window.
    Here(DiskStamp, Header),
    /// So many bytes from there are needed.
    Need { position: u64, bytes: u64 },
    /// The offset is lost.
    Lost { first: Offset, end: Offset },
    /// There is no such offset.
    Beyond,
    /// Another version wrote the batch that is next.
    OtherVersion(StorageError),
}

/// Batches that are being read in order.
pub(super) struct BatchesJob {
    pub(super) token: ReadToken,
    pub(super) read: ReadBatches,
    pub(super) finder: Finder,
    pub(super) batches: Vec<Bytes>,
    pub(super) bytes: u64,
}

/// Whether somebody else compares what is read with its checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compared {
    No,
    /// Whoever gets it, when he has all of it.
    ByReader,
}

/// A verified batch and what its events' data needs.
#[derive(Clone)]
pub(super) struct OpenedBatch {
    pub(super) stamp: DiskStamp,
    pub(super) batch: Arc<Batch>,
    pub(super) columns: Arc<Columns>,
    /// Block checksums of all its external data.
    pub(super) table: Option<Arc<Vec<u32>>>,
}

impl OpenedBatch {
    pub(super) fn contains(&self, offset: Offset) -> bool {
        let base = self.stamp.shared.base_offset;
        let end = base.plus(self.batch.header.offset_count());
        (base..end).contains(&offset)
    }
}

/// What [`crate::storage::EventData::handle`] holds.
pub(super) struct OpenedEvent {
    pub(super) place: DataAt,
}

pub(super) enum DataAt {
    /// In the batch.
    Inline(Bytes),
    /// In a data file, which the pin keeps open.
    External {
        /// Base offset of the segment whose data file it is.
        base: Offset,
        file: FileNumber,
        _pin: Arc<()>,
        position: u64,
        bytes: u64,
        block_bytes: u32,
        /// The batch's block checksums, and which of them is this event's first.
        table: Arc<Vec<u32>>,
        first_block: usize,
    },
}

pub(super) struct OpenJob {
    pub(super) token: ReadToken,
    pub(super) finder: Finder,
    /// The batch, once it is found, while its table is read.
    pub(super) batch: Option<OpenedBatch>,
}

impl OpenJob {
    pub(super) fn event(&self) -> Wanted {
        (self.token, self.finder.offset)
    }
}

pub(super) struct DataJob {
    pub(super) token: ReadToken,
    pub(super) handle: Arc<OpenedEvent>,
    pub(super) reads: VecDeque<PlannedRead>,
    /// How many of them are under way.
    pub(super) reading: usize,
    pub(super) pieces: Vec<Bytes>,
}

/// Whole blocks to be read at once, and the parts wanted of them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PlannedRead {
    pub(super) first_block: u64,
    /// Within the event's data.
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) parts: Vec<(u64, u64)>,
}
