//! Whether the disk has space, and what becomes of appends that found none.

use crate::storage::StorageError;

/// Appends that are being taken back. Until that is done nothing is appended.
pub(super) struct Undo {
    /// The first write that found no space.
    pub(super) number: u64,
    pub(super) error: StorageError,
    pub(super) step: Step,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Writes behind the first are still under way.
    Waiting,
    /// The log is being cut back to where it is whole.
    Cutting,
    /// That is being made durable: a batch left behind the cut could follow
    /// a new one of the same length and be taken for its successor.
    Syncing,
    /// Names of segments that are taken back may still be there.
    Removing,
}

/// How often a partition without space looks for some while nothing is appended.
const PROBE_EVERY_NS: u64 = 1_000_000_000;

/// Whether there is space.
#[derive(Default)]
pub(super) struct Space {
    /// A write found none; asking for some has not succeeded since.
    pub(super) none: Option<StorageError>,
    /// How much the batch needs that found none.
    pub(super) needed: u64,
    pub(super) probing: bool,
    /// When it was asked for last.
    pub(super) probed_at: u64,
    /// Data found none. A place is no promise of space, so that the next data decides.
    pub(super) none_for_data: bool,
    pub(super) last_allocation: u64,
}

impl Space {
    /// Whether a write has found none, and none has been found since.
    pub(super) fn is_none(&self) -> bool {
        self.none.is_some()
    }

    /// When space is looked for next without an append.
    pub(super) fn next_probe(&self) -> Option<u64> {
        let wanted = (self.is_none() || self.none_for_data) && !self.probing;
        wanted.then(|| self.probed_at.saturating_add(PROBE_EVERY_NS))
    }
}
