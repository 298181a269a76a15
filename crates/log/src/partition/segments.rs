//! The files of a partition, as far as its parts all know them.

use super::purpose::FileNumber;
use crate::index::SparseIndex;
use crate::segment::SegmentHeader;
use crate::storage::DataPlace;
use wire::Offset;

/// One segment of the log.
pub(super) struct Segment {
    pub(super) base: Offset,
    pub(super) header: Option<SegmentHeader>,
    pub(super) salt: u64,
    pub(super) log: FileNumber,
    /// Where its header and the producers' state end, and the first batch begins.
    pub(super) start: u64,
    /// Where the next batch goes, or where the last one ended.
    pub(super) end: u64,
    pub(super) written: u64,
    pub(super) synced: u64,
    /// How long the file has been made.
    pub(super) allocated: u64,
    pub(super) allocating: bool,
    /// Sealed, and synced whole, and the next one's start is written.
    pub(super) durable: bool,
    pub(super) index: SparseIndex,
    /// Whether its index file was looked at, or need not be.
    pub(super) index_known: bool,
    /// When its first event was appended; of one that was found, when it was begun.
    pub(super) first_append_time: u64,
    pub(super) last_append_time: u64,
}

impl Segment {
    /// When it was begun; 0 if that is not known.
    pub(super) fn created(&self) -> u64 {
        self.header.map_or(0, |header| header.created)
    }

    /// How long its log's file is, as far as is known.
    pub(super) fn length(&self) -> u64 {
        match self.allocated {
            u64::MAX => self.end,
            allocated => self.end.max(allocated),
        }
    }

    pub(super) fn data_since(&self) -> Offset {
        self.header.map_or(Offset(0), |header| header.data_since)
    }
}

/// A data file. It outlives its segment while later ones refer to it.
pub(super) struct DataFile {
    pub(super) file: FileNumber,
    /// Where the next data goes.
    pub(super) end: u64,
    /// How long the file is or will be: at least up to there, and more of one
    /// that was written before.
    pub(super) length: u64,
    /// Which change of the directory made it.
    pub(super) made: u64,
    pub(super) sync_waiting: Vec<DataPlace>,
    pub(super) sync_running: bool,
}
