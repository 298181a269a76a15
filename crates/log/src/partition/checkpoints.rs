//! The checkpoint file: written, then synced, one checkpoint at a time.

use super::files::{Files, THIS_FILE};
use super::purpose::{FileNumber, Purpose};
use crate::checkpoint::Checkpoint;
use crate::disk::{DiskError, DiskErrorKind, Operation, Outcome};
use bytes::Bytes;
use wire::Offset;

/// After how long a checkpoint that found no space is written again.
const AGAIN_AFTER_NS: u64 = 1_000_000_000;

/// See the module.
pub(super) struct Checkpoints {
    file: FileNumber,
    /// The last one written, or being written.
    last: Checkpoint,
    running: bool,
    wanted: bool,
    /// When one that found no space is written again.
    again_at: Option<u64>,
    /// Bytes that were synced since the last one.
    synced_bytes: u64,
    /// `first` of the last one that is durable.
    durable_first: Offset,
}

impl Checkpoints {
    /// `last` is durable already.
    pub(super) fn new(file: FileNumber, last: Checkpoint) -> Self {
        Self {
            file,
            durable_first: last.first,
            last,
            running: false,
            wanted: false,
            again_at: None,
            synced_bytes: 0,
        }
    }

    pub(super) fn want(&mut self) {
        self.wanted = true;
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.wanted
    }

    pub(super) fn is_running(&self) -> bool {
        self.running
    }

    /// `first` of the last one that is durable: what is before it may go.
    pub(super) fn durable_first(&self) -> Offset {
        self.durable_first
    }

    /// When [`Checkpoints::want_again`] has something to do.
    pub(super) fn next_try(&self) -> Option<u64> {
        self.again_at
    }

    /// One that found no space is wanted again after a while: files wait for it to be
    /// removed, and these may be all the space that there is.
    pub(super) fn want_again(&mut self, now: u64) {
        if self.again_at.is_some_and(|at| at <= now) {
            self.again_at = None;
            self.wanted = true;
        }
    }

    /// Whether the last one is durable and says that all is well.
    pub(super) fn closed_cleanly(&self) -> bool {
        self.last.clean && !self.running
    }

    /// So much more was synced; after `every` bytes one is wanted.
    pub(super) fn synced(&mut self, bytes: u64, every: u64) {
        self.synced_bytes += bytes;
        self.wanted |= self.synced_bytes >= every;
    }

    /// Writes `next`, whose sequence is given here.
    pub(super) fn write(&mut self, next: Checkpoint, files: &mut Files) {
        self.wanted = false;
        self.again_at = None;
        self.running = true;
        self.synced_bytes = 0;
        self.last = Checkpoint {
            sequence: self.last.sequence + 1,
            ..next
        };
        let write = Operation::Write {
            file: THIS_FILE,
            position: self.last.slot_position(),
            bytes: vec![Bytes::copy_from_slice(&self.last.to_bytes())],
        };
        files.submit_to(self.file, write, Purpose::CheckpointWritten);
    }

    /// One was written; it is synced next.
    ///
    /// # Errors
    /// If it was not, and the partition is not to wait for space.
    pub(super) fn written(
        &mut self,
        result: Result<Outcome, DiskError>,
        (now, closing): (u64, bool),
        files: &mut Files,
    ) -> Result<(), DiskError> {
        match result {
            Ok(_) => {
                let sync = Operation::SyncData { file: THIS_FILE };
                files.submit_to(self.file, sync, Purpose::CheckpointSynced);
                Ok(())
            }
            // The slot that was not being written still counts, and this one
            // is written again by the next checkpoint.
            Err(error) if error.kind == DiskErrorKind::Full && !closing => {
                self.running = false;
                self.last.sequence -= 1;
                self.again_at = Some(now.saturating_add(AGAIN_AFTER_NS));
                Ok(())
            }
            Err(error) => {
                self.running = false;
                Err(error)
            }
        }
    }

    /// One is durable.
    ///
    /// # Errors
    /// If it is not.
    pub(super) fn finished(&mut self, result: Result<Outcome, DiskError>) -> Result<(), DiskError> {
        self.running = false;
        result.map(|_| self.durable_first = self.last.first)
    }
}
