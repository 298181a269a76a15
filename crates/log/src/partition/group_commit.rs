//! One sync at a time, and what it covers.

use std::collections::BTreeSet;
use wire::Offset;

/// The sync under way, and what it is for.
#[derive(Default)]
pub(super) struct Commit {
    /// Syncing is wanted up to this offset.
    pub(super) wanted: Offset,
    /// Syncing is wanted of all that is written, until the next append: the files are idle.
    pub(super) sync_all: bool,
    /// Bytes written, of log and data, and not covered by a sync.
    pub(super) unsynced_bytes: u64,
    /// Data files that hold appended data which no sync has covered.
    pub(super) data_unsynced: BTreeSet<Offset>,
    /// Data files of which sealed places wait for a sync.
    pub(super) data_waiting: BTreeSet<Offset>,
    pub(super) running: Option<Running>,
}

/// One group commit: data, then names, then the log.
pub(super) struct Running {
    pub(super) segment: Offset,
    /// What was written when it began; only this is claimed to be durable.
    pub(super) position: u64,
    pub(super) offset: Offset,
    pub(super) bytes: u64,
    pub(super) data: Vec<Offset>,
    /// Whether an operation of it is under way.
    pub(super) waiting: bool,
}

impl Commit {
    /// Whether a sync of this segment is under way.
    pub(super) fn is_at(&self, segment: Offset) -> bool {
        let running = self.running.as_ref();
        running.is_some_and(|running| running.segment == segment)
    }
}
