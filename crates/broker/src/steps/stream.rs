//! One stream of steps: its records, the run that is open, the groups that read it.
//!
//! ```text
//!  Scanning --all records are known--> RecallingPins --so are pinned ones that retention has passed--+
//!                                                                                                    |
//!     +--------------------------------------- a run is open ----------------------------------------+
//!     v                                                                                              v
//!  Recalling --so are its attributes------------------------------------------------------------> Serving
//! ```
//!
//! What comes before it serves waits. Parts are read as they become visible, so that a record is
//! never appended before all of its parts are as durable as the topic promises.

use super::core::{Core, PINNED_RECORDS, READ_BYTES_MAX, RECORDS};
use super::event::events_of;
use super::groups::Groups;
use super::held::Held;
use super::intake::Intakes;
use super::lent::Lent;
use super::pins::{self, Pins};
use super::records::{self, Records, recalled};
use super::releases::Releases;
use super::writers::Writers;
use crate::coordinator::served_topic::Topic;
use crate::effects::StepsRead;
use crate::ids::RequestId;
use crate::refusal::Refused;
use crate::request::{StepsRequest, Target};
use crate::timers::Timer;
use bytes::Bytes;
use log::{Found, ReadBatches, StorageError};
use std::time::Duration;
use wire::message::ReadData;
use wire::step::StepTable;
use wire::{ErrorReply, Offset, PartitionIndex, TopicId};

/// How often the age of records is looked at, at most.
const AGE_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// What the records say is read, from here on.
    Scanning(Offset),
    /// Copies of records that are pinned are read, from here on.
    RecallingPins(Offset),
    /// The attributes of the run that is open are read, from here on.
    Recalling(Offset),
    Serving,
}

/// See the module. Its parts are lent its core for an act.
pub(crate) struct Stream {
    core: Core,
    phase: Phase,
    /// Whether records are being read for a start.
    is_reading: bool,
    /// What was asked for before it serves.
    waiting: Vec<(RequestId, StepsRequest)>,
    writers: Writers,
    intakes: Intakes,
    groups: Groups,
    releases: Releases,
    pins: Pins,
    timer_at: Option<Duration>,
}

impl Stream {
    pub fn new(topic: TopicId, served: &Topic) -> Self {
        Self {
            core: Core {
                topic,
                name: served.name.clone(),
                has_pins: served.definition.pins(),
                records: Records::default(),
                held: Held::default(),
                retry_at: None,
            },
            phase: Phase::Scanning(Offset(0)),
            is_reading: false,
            waiting: Vec::new(),
            writers: Writers::default(),
            intakes: Intakes::default(),
            groups: Groups::default(),
            releases: Releases::default(),
            pins: Pins::default(),
            timer_at: None,
        }
    }

    /// Takes a request; it is answered at once or when what it waits for has come.
    pub fn ask(&mut self, caller: RequestId, request: StepsRequest, lent: &mut Lent<'_>) {
        self.core.touch(lent);
        if self.phase != Phase::Serving {
            self.waiting.push((caller, request));
            return;
        }
        let (core, writers, groups) = (&mut self.core, &mut self.writers, &mut self.groups);
        let done = match request {
            StepsRequest::OpenRun(open) => {
                writers.open_run(caller, open, (core, &self.intakes), lent)
            }
            StepsRequest::AttendRun(attend) => writers.attend_run(caller, &attend, core, lent),
            StepsRequest::AdmitStep(admit) => writers.admit(caller, &admit, core, lent),
            StepsRequest::AwaitStep(wait) => writers.await_step(caller, &wait, core, lent),
            StepsRequest::CloseRun(close) => writers.close_run(caller, &close, core, lent),
            StepsRequest::JoinReaders(join) => {
                groups.join(caller, join, (writers.open(), core), lent)
            }
            StepsRequest::AttendReaders(attend) => groups.attend(caller, &attend, core, lent),
            StepsRequest::NextStep(next) => groups.next_step(caller, &next, core, lent),
            StepsRequest::ReleaseStep(release) => groups.release(caller, &release, core, lent),
            StepsRequest::AwaitReaders(wait) => {
                self.releases.ask(caller, wait);
                Ok(())
            }
            StepsRequest::LeaveReaders(leave) => groups.leave(caller, &leave, core, lent),
            StepsRequest::HoldParts(hold) => writers.hold_parts(caller, hold, core, lent),
        };
        if let Err(error) = done {
            lent.ctx.refuse(caller, error);
        }
    }

    /// Lets everything take effect that has happened to the stream.
    pub fn advance(&mut self, lent: &mut Lent<'_>) {
        let now = lent.ctx.now.monotonic;
        self.core.retry_at = self.core.retry_at.filter(|at| *at > now);
        match self.phase {
            Phase::Scanning(from) | Phase::RecallingPins(from) => self.scan(from, false, lent),
            Phase::Recalling(from) => self.scan(from, true, lent),
            Phase::Serving => self.serve(lent),
        }
        self.arm(lent);
    }

    fn serve(&mut self, lent: &mut Lent<'_>) {
        let core = &mut self.core;
        let found = self.intakes.look(core, lent);
        self.writers.take_parts(found, (core, &self.intakes), lent);
        // What was asked for before, when it is known how far parts are.
        for (caller, request) in std::mem::take(&mut self.waiting) {
            self.ask(caller, request, lent);
        }
        let core = &mut self.core;
        self.writers.commit((core, &self.intakes), lent);
        self.writers.say_closing((core, &self.intakes));
        self.writers.end_overdue((core, &self.intakes), lent);
        self.groups.end_overdue(core, lent);
        append(core, lent);
        self.writers.decide_admissions(&self.groups, core, lent);
        self.groups.give_turns(core, lent);
        retain(core, lent);
        self.pins.copy(core, lent);
        self.releases.answer(&self.groups, &core.records, lent.ctx);
        if !core.held.is_empty() {
            let backlogs = self.groups.backlogs(&core.records, lent.ctx.now.monotonic);
            let unreleased: Vec<_> = backlogs.iter().map(|backlog| backlog.first).collect();
            core.held.advance(&unreleased, &core.records, lent.ctx);
        }
    }

    /// Says of a read where data is that writers kept, or has it wait.
    pub fn look_up(
        &mut self,
        caller: (RequestId, Target),
        read: ReadData,
    ) -> Result<Option<ReadData>, Refused> {
        let Core { held, name, .. } = &mut self.core;
        held.look_up(caller, read, name)
    }

    /// The partition that a start reads.
    fn scanned_index(&self) -> PartitionIndex {
        match self.phase {
            Phase::RecallingPins(_) => PINNED_RECORDS,
            Phase::Scanning(_) | Phase::Recalling(_) | Phase::Serving => RECORDS,
        }
    }

    /// Reads records for a start.
    fn scan(&mut self, from: Offset, with_tables: bool, lent: &mut Lent<'_>) {
        if self.is_reading || self.core.retry_at.is_some() {
            return;
        }
        let records = match lent.storage(self.core.topic, self.scanned_index()) {
            Ok(records) => records,
            Err(error) => return self.refuse_all(&error, lent),
        };
        let end = lent.visible(records);
        if from >= end {
            self.scanned(lent);
            return;
        }
        self.is_reading = true;
        let read = ReadBatches {
            from,
            end,
            bytes_max: READ_BYTES_MAX,
            inline_data: with_tables,
        };
        lent.read(records, self.core.topic, StepsRead::Records, read);
    }

    /// Records were read for a start.
    pub fn records_read(&mut self, found: Result<Found, StorageError>, lent: &mut Lent<'_>) {
        self.is_reading = false;
        self.core.touch(lent);
        let next = match found {
            Ok(Found::Batches { batches, next }) => {
                for bytes in batches {
                    self.record_read(bytes, lent);
                }
                next
            }
            Ok(Found::Gap(gap)) => gap.end,
            Ok(Found::Nothing) => lent
                .storage(self.core.topic, self.scanned_index())
                .map_or(Offset(0), |storage| lent.visible(storage)),
            Err(error) => {
                self.core.retry(&error.to_string(), lent);
                return;
            }
        };
        match &mut self.phase {
            Phase::Scanning(at) | Phase::RecallingPins(at) | Phase::Recalling(at) => {
                *at = (*at).max(next)
            }
            Phase::Serving => {}
        }
    }

    fn record_read(&mut self, bytes: Bytes, lent: &mut Lent<'_>) {
        let events = match events_of(bytes) {
            Ok(events) => events,
            Err(error) => {
                lent.ctx.report(format!(
                    "{}: a record of steps cannot be read: {error}",
                    self.core.name
                ));
                return;
            }
        };
        for event in events {
            match self.phase {
                Phase::Scanning(_) => {
                    let own_bytes = event.metadata.len() as u64 + event.data_bytes;
                    let at = (event.offset, event.time, own_bytes);
                    let Some(recalled) = recalled(&event.metadata, at) else {
                        lent.ctx.report(format!(
                            "{}: what is at offset {} is no record of steps",
                            self.core.name, event.offset
                        ));
                        continue;
                    };
                    self.writers.recall(&recalled, self.core.topic, lent);
                    self.core.records.found(recalled.entry);
                }
                Phase::RecallingPins(_) => pins::recall(&event, &mut self.core, lent),
                Phase::Recalling(_) => {
                    let Ok(table) = StepTable::read(&event.inline) else {
                        continue;
                    };
                    self.writers.recall_attributes(table.run, table.attributes);
                }
                Phase::Serving => {}
            }
        }
    }

    /// All records are known, or all attributes.
    fn scanned(&mut self, lent: &mut Lent<'_>) {
        let is_scanned = matches!(self.phase, Phase::Scanning(_));
        let is_known = is_scanned || matches!(self.phase, Phase::RecallingPins(_));
        if is_scanned && self.core.has_pins {
            self.phase = Phase::RecallingPins(Offset(0));
        } else if is_known && self.writers.open().is_some() {
            let full = self
                .core
                .records
                .entries
                .iter()
                .rev()
                .find(|entry| entry.is_full);
            self.phase = Phase::Recalling(full.map_or(Offset(0), |entry| entry.offset));
        } else {
            self.phase = Phase::Serving;
        }
        self.core.touch(lent);
    }

    /// Parts were read.
    pub fn parts_read(
        &mut self,
        index: PartitionIndex,
        found: Result<Found, StorageError>,
        lent: &mut Lent<'_>,
    ) {
        let core = &mut self.core;
        let found = self.intakes.was_read(index, found, core, lent);
        self.writers.take_parts(found, (core, &self.intakes), lent);
    }

    /// The records of a turn were read.
    pub fn turn_read(
        &mut self,
        turn: (u64, u64, bool),
        found: Result<Found, StorageError>,
        lent: &mut Lent<'_>,
    ) {
        self.groups.turn_read(turn, found, &mut self.core, lent);
    }

    /// A pinned record was read that is to be copied.
    pub fn pin_read(&mut self, found: Result<Found, StorageError>, lent: &mut Lent<'_>) {
        self.pins.was_read(found, &mut self.core, lent);
    }

    /// A record is stored, or was refused.
    pub fn appended(&mut self, append: u64, result: &Result<(), ErrorReply>, lent: &mut Lent<'_>) {
        self.core.touch(lent);
        if self.pins.appended(append, result, &mut self.core, lent) {
            return;
        }
        let incarnation = lent.incarnation(self.core.topic);
        let Core { records, name, .. } = &mut self.core;
        match result {
            Ok(()) => records.stored(append, incarnation, lent.ctx),
            Err(error) => records.refused(append, &error.message, name, lent.ctx),
        }
    }

    /// What a request waits for, for people; `None` if it is not known here.
    pub fn why(&self, caller: RequestId, now: Duration) -> Option<String> {
        if self.waiting.iter().any(|(one, _)| *one == caller) {
            return Some(match self.core.retry_at {
                None => "the stream's records are being read".to_owned(),
                Some(_) => "the stream's records can't be read, and are tried again".to_owned(),
            });
        }
        let of_readers = self
            .releases
            .why(caller, (&self.groups, now), &self.core.records);
        let of_held = || self.core.held.why(caller, &self.core.name, now);
        let of_readers = of_readers.or_else(|| self.groups.why(caller));
        let of_readers = of_readers.or_else(of_held);
        of_readers.or_else(|| self.writers.why(caller, (&self.groups, &self.core), now))
    }

    /// A caller is gone, or waits no more.
    pub fn forget(&mut self, caller: RequestId, lent: &mut Lent<'_>) {
        let now = lent.ctx.now.monotonic;
        self.waiting.retain(|(one, _)| *one != caller);
        self.core.records.forget(caller);
        self.core.held.forget(caller, now);
        self.writers.forget(caller, now);
        self.releases.forget(caller);
        self.groups.forget(caller, now);
        self.core.touch(lent);
    }

    /// Refuses everybody: the topic is gone, or its records are.
    pub fn refuse_all(&mut self, error: &ErrorReply, lent: &mut Lent<'_>) {
        let mut callers = self.core.records.take_waiters();
        callers.extend(self.waiting.drain(..).map(|(caller, _)| caller));
        callers.extend(self.writers.take_callers());
        callers.extend(self.releases.take_callers());
        callers.extend(self.groups.take_callers());
        callers.extend(self.core.held.take_callers());
        let refused = callers.into_iter();
        refused.for_each(|caller| lent.ctx.refuse(caller, error.clone()));
    }

    pub fn timer_came(&mut self, lent: &mut Lent<'_>) {
        self.timer_at = None;
        self.core.touch(lent);
    }

    /// When the stream is to be looked at again.
    fn arm(&mut self, lent: &mut Lent<'_>) {
        let now = lent.ctx.now;
        let run = self.writers.next_overdue();
        let groups = self.groups.next_overdue(now.monotonic);
        let keep = lent
            .topics
            .get(self.core.topic)
            .and_then(|topic| topic.definition.retention().age_ms);
        let oldest = self
            .core
            .records
            .oldest_kept()
            .filter(|_| self.core.records.entries.len() > 1);
        let age = keep.zip(oldest).map(|(ms, entry)| {
            let due = entry.time.saturating_add(ms.saturating_mul(1_000_000));
            now.monotonic + Duration::from_nanos(due.saturating_sub(now.unix_ns)).max(AGE_INTERVAL)
        });
        let held = self.core.held.next_overdue();
        let times = [
            run,
            held,
            self.core.records.retry_at,
            self.core.retry_at,
            self.pins.retry_at,
            age,
        ];
        let Some(at) = times.into_iter().flatten().chain(groups).min() else {
            return;
        };
        match self.timer_at {
            // It comes early at worst, and then is armed again.
            Some(armed) if armed <= at => return,
            Some(armed) => lent.ctx.timers.remove(armed, Timer::Steps(self.core.topic)),
            None => {}
        }
        self.timer_at = Some(at);
        lent.ctx.timers.insert(at, Timer::Steps(self.core.topic));
    }
}

/// Appends records that wait.
fn append(core: &mut Core, lent: &mut Lent<'_>) {
    let Ok(storage) = lent.storage(core.topic, RECORDS) else {
        return;
    };
    if let Some(partition) = lent.partitions.get_mut(&storage) {
        let begun = core.records.advance(core.topic, partition, lent.ctx);
        let topic = core.topic;
        lent.appends
            .extend(begun.into_iter().map(|append| (append, topic)));
    }
}

/// Lets go of what exceeds the topic's limits: a step's record first, then its parts.
fn retain(core: &mut Core, lent: &mut Lent<'_>) {
    let Some(served) = lent.topics.get(core.topic) else {
        return;
    };
    let keep = served.definition.retention();
    let left = core.held.left();
    let now = lent.ctx.now.unix_ns;
    let Some(last) = core.records.retain(keep, left, now) else {
        return;
    };
    for (index, storage) in lent.topics.storages(core.topic) {
        let Some(partition) = lent.partitions.get_mut(&storage) else {
            continue;
        };
        let before = match index {
            RECORDS => Some(last.offset.plus(1)),
            _ if !core.has_parts(index) => None,
            _ => last
                .done
                .iter()
                .find(|done| done.partition == index)
                .map(|done| records::done_before(*done, &partition.store)),
        };
        let before = before.map(|before| pins::spare(index, before, core, lent.ctx));
        if let Some(before) = before {
            records::remove_before(before, partition, lent.ctx);
            core.held.prune(index, before);
        }
    }
}
