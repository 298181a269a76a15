//! Making appended batches durable: one sync at a time covers all that was
//! written before it; segments become durable in order; a checkpoint says how far.

use super::group_commit::Running;
use super::*;

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
        trace::passes!("whether it is to be synced");
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
            || self.commit.sync_all
            || self.commit.unsynced_bytes >= self.settings.background_sync_bytes;
        if segment.written == segment.synced {
            return;
        }
        let checkpoint_comes = self.checkpoint.is_wanted() || self.checkpoint.is_running();
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
        let every = self.settings.checkpoint_bytes;
        self.checkpoint.synced(done.bytes, every);
        if done.offset > self.synced {
            self.synced = done.offset;
            self.progress();
        }
    }

    /// Whether the names of files made up to this change are durable; if not,
    /// that is being done.
    pub(super) fn directory_is_synced(&mut self, change: u64) -> bool {
        let directory = &self.open.directory;
        self.directory.is_synced(change, directory, &mut self.files)
    }

    pub(super) fn directory_synced(&mut self, changes: u64, result: Result<Outcome, DiskError>) {
        self.directory.finished(changes, result.is_ok());
        if let Err(error) = result {
            self.fail(&error);
        }
    }

    pub(super) fn advance_checkpoint(&mut self) {
        if self.checkpoint.is_wanted() && (!self.closing || self.retain.leaves_unsynced()) {
            self.write_checkpoint();
        }
    }

    /// Writes down how far all is durable.
    pub(super) fn write_checkpoint(&mut self) {
        if self.checkpoint.is_running() || self.failure.is_some() {
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
        let next = Checkpoint {
            sequence: 0,
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
        self.checkpoint.write(next, &mut self.files);
    }

    pub(super) fn checkpoint_written(&mut self, result: Result<Outcome, DiskError>) {
        let when = (self.now, self.closing);
        let written = self.checkpoint.written(result, when, &mut self.files);
        if let Err(error) = written {
            self.fail(&error);
        }
    }

    pub(super) fn checkpoint_synced(&mut self, result: Result<Outcome, DiskError>) {
        if let Err(error) = self.checkpoint.finished(result) {
            self.fail(&error);
        }
    }
}
