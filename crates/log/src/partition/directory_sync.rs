//! Syncs of the partition's directory: names of files are durable before what they hold counts.

use super::files::Files;
use super::purpose::Purpose;
use crate::disk::Operation;
use std::path::Path;

/// Which changes of the directory are durable.
#[derive(Default)]
pub(super) struct DirectorySync {
    /// Counts files made, and cuts of the log.
    changes: u64,
    synced: u64,
    running: bool,
}

impl DirectorySync {
    /// The directory has changed. Returns the number of the change.
    pub(super) fn changed(&mut self) -> u64 {
        self.changes += 1;
        self.changes
    }

    /// Whether all up to this change is durable; if not, that is being done.
    pub(super) fn is_synced(&mut self, change: u64, directory: &Path, files: &mut Files) -> bool {
        if self.synced >= change.min(self.changes) {
            return true;
        }
        if !self.running {
            self.running = true;
            let path = directory.to_owned();
            let purpose = Purpose::DirectorySynced(self.changes);
            files.submit(Operation::SyncDirectory { path }, purpose);
        }
        false
    }

    /// A sync of all up to `changes` has ended.
    pub(super) fn finished(&mut self, changes: u64, is_done: bool) {
        self.running = false;
        if is_done {
            self.synced = self.synced.max(changes);
        }
    }
}
