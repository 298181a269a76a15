//! Making appended batches durable: one sync at a time covers all that was
//! written before it; segments become durable in order; a checkpoint says how far.

use super::*;
use crate::disk::DiskErrorKind;
use std::collections::BTreeSet;

/// The sync under way, and what it is for.
#[derive(Default)]
pub(super) struct Commit {
    /// Syncing is wanted up to this offset.
    pub(super) wanted: Offset,
    /// Bytes written, of log and data, and not covered by a sync.
    pub(super) unsynced_bytes: u64,
    /// Data files that hold appended data which no sync has covered.
    pub(super) data_unsynced: BTreeSet<Offset>,
    /// Data files of which sealed places wait for a sync.
    pub(super) data_waiting: BTreeSet<Offset>,
    running: Option<Running>,
}

/// One group commit: data, then names, then the log.
struct Running {
    segment: Offset,
    /// What was written when it began; only this is claimed to be durable.
    position: u64,
    offset: Offset,
    bytes: u64,
    data: Vec<Offset>,
    /// Whether an operation of it is under way.
    waiting: bool,
}

/// Syncs of the partition's directory.
#[derive(Default)]
pub(super) struct DirectorySync {
    /// Counts files made.
    pub(super) changes: u64,
    synced: u64,
    running: bool,
}

/// After how long a checkpoint that found no space is written again.
const AGAIN_AFTER_NS: u64 = 1_000_000_000;

/// The checkpoint file.
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
    pub(super) durable_first: Offset,
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
}

impl Commit {
    /// Whether a sync of this segment is under way.
    fn is_at(&self, segment: Offset) -> bool {
        let running = self.running.as_ref();
        running.is_some_and(|running| running.segment == segment)
    }
}

impl DiskLog {
    /// Whether the oldest segment may go: it is durable, or nobody was promised
    /// that it would be; and appends have begun to go to the next one.
    pub(super) fn oldest_may_go(&self) -> bool {
        let (Some(oldest), Some(next)) = (self.segments.front(), self.segments.get(1)) else {
            return false;
        };
        let is_promised = self.open.durability >= Durability::Synced
            || self.commit.wanted > self.synced.max(oldest.base);
        let is_under_way = self.commit.is_at(oldest.base);
        oldest.durable || next.written > 0 && !is_promised && !is_under_way
    }

    /// What is gone need not be synced any more.
    pub(super) fn forget_unsynced(&mut self) {
        let logs = self.segments.iter();
        let logs = logs.map(|segment| segment.written.saturating_sub(segment.synced));
        let data = self.data_files.range(self.data_referred()..);
        let most = logs.chain(data.map(|(_, data)| data.end)).sum();
        self.commit.unsynced_bytes = self.commit.unsynced_bytes.min(most);
    }

    pub(super) fn advance_commit(&mut self) {
        if self.failure.is_some() {
            return;
        }
        if self.commit.running.is_none() {
            self.begin_commit();
        }
        self.continue_commit();
    }

    fn begin_commit(&mut self) {
        let Some(at) = self.segments.iter().rposition(|segment| segment.durable) else {
            return self.begin_commit_of(0);
        };
        self.begin_commit_of(at + 1);
    }

    fn begin_commit_of(&mut self, at: usize) {
        let last = at + 1 == self.segments.len();
        // One whose start finds no space is taken back, and then this one takes
        // appends again.
        let followed = self
            .segments
            .get(at + 1)
            .is_some_and(|next| next.written > 0);
        let Some(segment) = self.segments.get_mut(at) else {
            return;
        };
        if followed && segment.synced == segment.end {
            segment.durable = true;
            self.checkpoint.want();
            self.segment_sealed(at);
            // A stream may fill several segments between two ticks.
            self.apply_retention();
            return self.begin_commit();
        }
        let wanted = self.commit.wanted > self.synced
            || self.closing
            || self.commit.unsynced_bytes >= self.settings.background_sync_bytes;
        if segment.written == segment.synced {
            return;
        }
        let checkpoint_comes = self.checkpoint.wanted || self.checkpoint.running;
        if self.retain.leaves_unsynced() && checkpoint_comes {
            // What is synced tells that all before it is. A checkpoint has to begin
            // behind those that leave first; the start of what follows is enough for it.
            return self.commit_start(at);
        }
        if !wanted {
            // All that was synced has left, and the checkpoint that is to say so
            // needs a segment to begin in.
            if checkpoint_comes && at == 0 {
                self.commit_start(at);
            }
            return;
        }
        let offset = match last {
            true => self.written,
            // The written end may be in a later segment already.
            false => self.segments[at + 1].base.min(self.written),
        };
        let staying = self.data_referred();
        let unsynced = std::mem::take(&mut self.commit.data_unsynced);
        let segment = &self.segments[at];
        self.commit.running = Some(Running {
            segment: segment.base,
            position: segment.written,
            offset,
            bytes: self.commit.unsynced_bytes,
            data: unsynced.range(staying..).copied().collect(),
            waiting: false,
        });
    }

    /// Syncs the start of a segment of which nothing is synced.
    fn commit_start(&mut self, at: usize) {
        let segment = &self.segments[at];
        if segment.synced == 0 {
            self.commit.running = Some(Running {
                segment: segment.base,
                position: segment.start,
                offset: segment.base,
                bytes: 0,
                data: Vec::new(),
                waiting: false,
            });
        }
    }

    fn continue_commit(&mut self) {
        let Some(running) = &mut self.commit.running else {
            return;
        };
        if running.waiting {
            return;
        }
        let data = loop {
            match running.data.pop() {
                Some(base) => match self.data_files.get(&base) {
                    Some(data) => break Some(data.file),
                    None => continue,
                },
                None => break None,
            }
        };
        if let Some(file) = data {
            running.waiting = true;
            let sync = Operation::SyncData { file: THIS_FILE };
            self.files.submit_to(file, sync, Purpose::CommitData);
            return;
        }
        let segment = running.segment;
        if !self.directory_is_synced(u64::MAX) {
            return;
        }
        let log = self.segment(segment).map(|segment| segment.log);
        let log = log.expect("a segment is not removed while it is synced");
        if let Some(running) = &mut self.commit.running {
            running.waiting = true;
        }
        let sync = Operation::SyncData { file: THIS_FILE };
        self.files.submit_to(log, sync, Purpose::CommitLog);
    }

    pub(super) fn commit_data_synced(&mut self, result: Result<Outcome, DiskError>) {
        match result {
            Err(error) => self.fail(&error),
            Ok(_) => {
                if let Some(running) = &mut self.commit.running {
                    running.waiting = false;
                }
            }
        }
    }

    pub(super) fn commit_log_synced(&mut self, result: Result<Outcome, DiskError>) {
        if let Err(error) = result {
            return self.fail(&error);
        }
        let Some(done) = self.commit.running.take() else {
            return;
        };
        if let Some(segment) = self.segment(done.segment) {
            segment.synced = segment.synced.max(done.position);
        }
        self.commit.unsynced_bytes = self.commit.unsynced_bytes.saturating_sub(done.bytes);
        self.checkpoint.synced_bytes += done.bytes;
        if self.checkpoint.synced_bytes >= self.settings.checkpoint_bytes {
            self.checkpoint.want();
        }
        if done.offset > self.synced {
            self.synced = done.offset;
            self.progress();
        }
    }

    /// Whether the names of files made up to this change are durable; if not,
    /// that is being done.
    pub(super) fn directory_is_synced(&mut self, change: u64) -> bool {
        let directory = &mut self.directory;
        if directory.synced >= change.min(directory.changes) {
            return true;
        }
        if !directory.running {
            directory.running = true;
            let path = self.open.directory.clone();
            let purpose = Purpose::DirectorySynced(directory.changes);
            self.files
                .submit(Operation::SyncDirectory { path }, purpose);
        }
        false
    }

    pub(super) fn directory_synced(&mut self, changes: u64, result: Result<Outcome, DiskError>) {
        self.directory.running = false;
        match result {
            Ok(_) => self.directory.synced = self.directory.synced.max(changes),
            Err(error) => self.fail(&error),
        }
    }

    pub(super) fn advance_checkpoint(&mut self) {
        if self.checkpoint.wanted && (!self.closing || self.retain.leaves_unsynced()) {
            self.write_checkpoint();
        }
    }

    /// Writes down how far all is durable.
    pub(super) fn write_checkpoint(&mut self) {
        if self.checkpoint.running || self.failure.is_some() {
            return;
        }
        // The last segment of which something is durable; a fresh one does
        // not count before its own first sync.
        let Some(segment) = self
            .segments
            .iter()
            .rev()
            .find(|segment| segment.synced > 0)
        else {
            return;
        };
        self.checkpoint.wanted = false;
        self.checkpoint.again_at = None;
        self.checkpoint.running = true;
        self.checkpoint.synced_bytes = 0;
        let next = Checkpoint {
            sequence: self.checkpoint.last.sequence + 1,
            clean: self.closing && segment.synced == segment.end,
            durability: self.open.durability,
            incarnation: self.incarnation,
            first: self.first,
            removed_from: self.retain.removed_from,
            removed_reason: self.retain.removed_reason,
            segment: segment.base,
            salt: segment.salt,
            position: segment.synced,
            end: self.synced,
            time: self.now,
            boot_id: self.open.boot_id.clone(),
        };
        let write = Operation::Write {
            file: THIS_FILE,
            position: next.slot_position(),
            bytes: vec![Bytes::copy_from_slice(&next.to_bytes())],
        };
        self.checkpoint.last = next;
        let file = self.checkpoint.file;
        self.files
            .submit_to(file, write, Purpose::CheckpointWritten);
    }

    pub(super) fn checkpoint_written(&mut self, result: Result<Outcome, DiskError>) {
        match result {
            Ok(_) => {
                let sync = Operation::SyncData { file: THIS_FILE };
                let file = self.checkpoint.file;
                self.files.submit_to(file, sync, Purpose::CheckpointSynced);
            }
            // The slot that was not being written still counts, and this one
            // is written again by the next checkpoint.
            Err(error) if error.kind == DiskErrorKind::Full && !self.closing => {
                self.checkpoint.running = false;
                self.checkpoint.last.sequence -= 1;
                self.checkpoint.again_at = Some(self.now.saturating_add(AGAIN_AFTER_NS));
            }
            Err(error) => {
                self.checkpoint.running = false;
                self.fail(&error);
            }
        }
    }

    pub(super) fn checkpoint_synced(&mut self, result: Result<Outcome, DiskError>) {
        self.checkpoint.running = false;
        match result {
            Ok(_) => self.checkpoint.durable_first = self.checkpoint.last.first,
            Err(error) => self.fail(&error),
        }
    }
}
