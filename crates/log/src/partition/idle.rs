//! Closing the files of a partition that nobody uses, those of the last segment too: a server
//! may have more partitions than it may have files open.
//!
//! ```text
//!        unused, all synced
//!    ┌─────────────────────────────────────────────────┐
//!    │                                                 ▼
//!  in use ── unused, not all synced ─► syncing ──► closed ── operation: its file is opened ─► in use
//!    ▲                                    │
//!    └────────────── append ──────────────┘
//! ```

use super::*;

/// Files that were not used for so long are closed, or for up to twice as long: the closing
/// of many partitions whose streams end together is spread over that time.
const UNUSED_NS: u64 = 60_000_000_000;

impl DiskLog {
    /// Closes the files if they have not been used for a while. What is not synced is synced
    /// first: a descriptor that was open when writing back failed says so, one that is opened
    /// later may not.
    pub(super) fn close_files_if_idle(&mut self) {
        let Some(at) = self.next_idle() else {
            return;
        };
        let was_used = self.were_files_used();
        if !was_used && self.now < at {
            return;
        }
        // What cannot be closed now is looked at again after as long.
        self.idle = Idle {
            uses: self.files.uses(),
            since: self.now,
        };
        if was_used {
            return;
        }
        // A storage that has failed syncs nothing any more.
        let has_failed = self.failure.is_some();
        if !has_failed && self.has_unsynced_log() {
            self.commit.sync_all = true;
        } else if has_failed || self.is_at_rest() {
            self.commit.sync_all = false;
            self.files.close_all_idle();
        }
    }

    /// When [`DiskLog::close_files_if_idle`] may have something to do: never while no file is open.
    pub(super) fn next_idle(&self) -> Option<u64> {
        if self.files.open_count() == 0 || self.closing {
            return None;
        }
        let since = match self.were_files_used() {
            true => self.now,
            false => self.idle.since,
        };
        // The salt is a random number that stays for as long as the segment takes appends.
        let spread = self.segments.back().map_or(0, |active| active.salt) % UNUSED_NS;
        Some(since.saturating_add(UNUSED_NS + spread))
    }

    /// Whether the files were used since the last look, by other than the sync that was begun then.
    fn were_files_used(&self) -> bool {
        self.idle.uses != self.files.uses() && !self.commit.sync_all
    }

    fn has_unsynced_log(&self) -> bool {
        let newer = self.segments.iter().rev();
        let mut newer = newer.take_while(|segment| !segment.durable);
        newer.any(|segment| segment.synced != segment.end)
    }

    /// Whether nothing is under way, and no data is in a file that no batch names yet. Data that
    /// a batch names is synced before the log that has the batch.
    fn is_at_rest(&self) -> bool {
        self.in_flight.is_empty()
            && self.commit.running.is_none()
            && self.undo.is_none()
            && self.places.is_empty()
            && !self.checkpoint.is_running()
    }
}
