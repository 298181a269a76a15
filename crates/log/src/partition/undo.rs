//! Taking back appends that found no space.

use super::space::{Step, Undo};
use super::*;

/// So much has to be there for external data to be taken for possible again.
const DATA_PROBE_BYTES: u64 = 1 << 20;

impl DiskLog {
    /// The error for an append, if there is no space. Asks for some, so that
    /// one of the next appends is let through when there is.
    pub(super) fn no_space(&mut self, batch_bytes: u64) -> Option<StorageError> {
        if let Some(undo) = &self.undo {
            return Some(undo.error.clone());
        }
        let none = self.space.none.clone()?;
        self.space.needed = self.space.needed.max(batch_bytes);
        self.probe();
        Some(none)
    }

    /// Looks for space if there was none, and nobody has looked for a while.
    pub(super) fn probe_if_due(&mut self) {
        let due = self.space.next_probe().is_some_and(|at| at <= self.now);
        if !due || self.undo.is_some() || self.refusal().is_some() {
            return;
        }
        // A limit was lowered while appends were taken back, or the next segment found no
        // space then: what this one gives back may still be all there is to get.
        match self.roll_if_too_long() {
            true => self.space.probed_at = self.now,
            false => self.probe(),
        }
    }

    fn probe(&mut self) {
        if self.space.probing {
            return;
        }
        self.space.probing = true;
        self.space.probed_at = self.now;
        let needed = self.space.needed;
        let active = self.active();
        let (log, bytes) = (active.log, active.end + needed);
        let allocate = Operation::Allocate {
            file: THIS_FILE,
            bytes,
        };
        self.files.submit_to(log, allocate, Purpose::Probed);
    }

    pub(super) fn probed(&mut self, result: Result<Outcome, DiskError>) {
        self.space.probing = false;
        if result.is_ok() {
            self.space.none = None;
            self.space.none_for_data = false;
            self.space.needed = 0;
            self.events.push_back(StorageEvent::HasSpace);
        }
    }

    /// External data was written, or found no space.
    pub(super) fn data_found_space(&mut self, space: Result<(), &DiskError>) {
        match space {
            Err(error) => {
                self.space.none_for_data = true;
                self.space.needed = self.space.needed.max(DATA_PROBE_BYTES);
                self.space.probed_at = self.now;
                let text = error.to_string();
                self.events.push_back(StorageEvent::Full(text));
                self.give_back_allocated();
            }
            Ok(()) if self.space.none_for_data => {
                self.space.none_for_data = false;
                if !self.space.is_none() {
                    self.space.needed = 0;
                    self.events.push_back(StorageEvent::HasSpace);
                }
            }
            Ok(()) => {}
        }
    }

    /// Gives back what was allocated for batches to come: the next segment, whose
    /// beginning lets retention drop this one, needs less.
    fn give_back_allocated(&mut self) {
        let active = self.active();
        if active.allocated <= active.end || active.allocating {
            return;
        }
        active.allocated = active.end;
        let (log, bytes) = (active.log, active.end);
        let set_length = Operation::SetLength {
            file: THIS_FILE,
            bytes,
        };
        self.files.submit_to(log, set_length, Purpose::Ignored);
    }

    pub(super) fn begin_undo(&mut self, number: u64, error: &DiskError) {
        self.remove_spares(0);
        match &mut self.undo {
            Some(undo) => undo.number = undo.number.min(number),
            None => {
                self.undo = Some(Undo {
                    number,
                    error: StorageError::Full(error.to_string()),
                    step: Step::Waiting,
                });
            }
        }
    }

    pub(super) fn advance_undo(&mut self) {
        let Some(undo) = &self.undo else {
            return;
        };
        if undo.step == Step::Removing && self.retain.removing == 0 {
            self.undo = None;
            return;
        }
        if undo.step != Step::Waiting || self.failure.is_some() {
            return;
        }
        // What is before the first refused write has been popped.
        let Some(refused) = self.in_flight.first_refused(undo.number) else {
            return;
        };
        let (segment, position, from) = (refused.segment, refused.start, refused.first);
        let needed = refused.bytes;
        self.take_back(segment, position, from, needed);
    }

    fn take_back(&mut self, segment: Offset, position: u64, from: Offset, needed: u64) {
        // A segment whose very start found no space is not there at all.
        let first_removed = match position {
            0 => segment,
            _ => segment.plus(1),
        };
        let newer = self
            .segments
            .partition_point(|segment| segment.base < first_removed);
        let mut busy = false;
        for removed in self.segments.iter().skip(newer) {
            busy |= self.files.in_use(removed.log);
            busy |= self
                .data_files
                .get(&removed.base)
                .is_some_and(|data| self.files.in_use(data.file));
        }
        if busy {
            return;
        }
        self.in_flight.clear();
        for removed in self.segments.drain(newer..).collect::<Vec<_>>() {
            self.remove_file(removed.log);
            if let Some(data) = self.data_files.remove(&removed.base) {
                self.data_tail.forget(removed.base, 0, u64::MAX);
                self.fail_places_in(removed.base);
                self.commit.data_unsynced.remove(&removed.base);
                self.remove_file(data.file);
            }
        }
        // The names that are gone must not come back under new segments.
        self.directory.changed();
        self.producers.retract(from);
        self.tail.retract(from);
        self.end = from;
        self.commit.wanted = self.commit.wanted.min(from);
        let active = self.active();
        if position > 0 {
            active.end = position;
        }
        active.durable = false;
        active.allocated = active.end;
        active.index.truncate(from);
        let set_length = Operation::SetLength {
            file: THIS_FILE,
            bytes: active.end,
        };
        let log = active.log;
        self.files.submit_to(log, set_length, Purpose::UndoStep);
        self.recount_bytes();
        let undo = self.undo.as_mut().expect("this is the undoing");
        undo.step = Step::Cutting;
        let error = undo.error.clone();
        self.space.none = Some(error.clone());
        self.space.needed = self.space.needed.max(needed);
        self.space.probed_at = self.now;
        self.events.push_back(StorageEvent::Full(error.to_string()));
        self.events.push_back(StorageEvent::Refused { from, error });
        self.progress();
    }

    fn remove_file(&mut self, file: FileNumber) {
        if self.files.exists(file)
            && let Some(entry) = self.files.get(file)
        {
            let path = entry.path.clone();
            self.retain.removing += 1;
            self.files
                .submit(Operation::Remove { path }, Purpose::Removed);
        }
        self.files.retire(file);
    }

    fn fail_places_in(&mut self, base: Offset) {
        let lost: Vec<DataPlace> = self
            .places
            .iter()
            .filter(|(_, place)| place.base == base)
            .map(|(place, _)| *place)
            .collect();
        for place in lost {
            let gone = self
                .places
                .remove(&place)
                .is_none_or(|place| place.is_gone());
            if gone {
                continue;
            }
            let error = self.undo.as_ref().map(|undo| undo.error.clone());
            let error = error.expect("places are lost by undoing");
            self.events
                .push_back(StorageEvent::DataFailed { place, error });
        }
    }

    pub(super) fn undo_step_done(&mut self, result: Result<Outcome, DiskError>) {
        if let Err(error) = result {
            return self.fail(&error);
        }
        let Some(undo) = &mut self.undo else {
            return;
        };
        match undo.step {
            Step::Waiting | Step::Removing => unreachable!("nothing of it is under way"),
            Step::Cutting => {
                undo.step = Step::Syncing;
                let log = self.active().log;
                let sync = Operation::SyncData { file: THIS_FILE };
                self.files.submit_to(log, sync, Purpose::UndoStep);
            }
            Step::Syncing => undo.step = Step::Removing,
        }
    }
}
