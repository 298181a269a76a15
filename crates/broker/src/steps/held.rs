//! Parts whose data their writers keep, and reads that wait for it.
//!
//! ```text
//!            a read wants it           its data has come
//!   Kept ──────────────────► Wanted ─────────────────────► Sent: in the server's memory, as any part's
//!    │  │                      │                             ▲
//!    │  └───────── its writer leaves, and sends it unasked ──┘
//!    │                         │
//!    ├── its writer is gone ───┴──────────────────────────► Lost
//!    └── its writer gave it up, or retention took its step ► Left
//! ```
//!
//! Data that is sent is an event of its own, behind the part's. A read of the part is put aside until it
//! is there, and then asked again: it finds where the data is. A writer is gone when it was away for its
//! session timeout, or when another life has its place.

use super::records::Records;
use crate::answer::Answer;
use crate::ctx::Ctx;
use crate::effects::Effect;
use crate::faults::Fault;
use crate::ids::RequestId;
use crate::refusal::{Refused, refuse};
use crate::request::{PartitionRequest, Request, Target};
use std::collections::BTreeMap;
use std::time::Duration;
use wire::message::{HoldParts, PartsWanted, ReadData};
use wire::step::{PartPlace, RecordKind};
use wire::{ErrorCode, Incarnation, Offset, PartitionIndex, ProducerEpoch, ProducerId};
use wire::{Rank, Run, Step};

/// The step of a rank that leaves.
const LEAVES: Step = Step(u64::MAX);

/// Where the data of a part is: see the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Kept,
    Wanted,
    /// In the event at this offset of the part's partition.
    Sent(Offset),
    Lost,
    Left,
}

/// A part of which the server has a table and, at first, no data.
#[derive(Debug)]
struct HeldPart {
    run: Run,
    step: Step,
    rank: Rank,
    bytes: u64,
    incarnation: Incarnation,
    state: State,
}

/// Whether a rank that keeps parts is there.
#[derive(Debug)]
enum Presence {
    Away(Duration),
    Present(RequestId, HoldParts),
}

/// A rank that keeps parts.
#[derive(Debug)]
struct Holder {
    producer: ProducerId,
    epoch: ProducerEpoch,
    session_timeout: Duration,
    presence: Presence,
}

/// Where a part is.
type At = (PartitionIndex, Offset);

/// See the module.
#[derive(Default)]
pub(super) struct Held {
    parts: BTreeMap<At, HeldPart>,
    places: BTreeMap<(Run, Rank, Step), At>,
    holders: BTreeMap<(Run, Rank), Holder>,
    reads: Vec<(RequestId, Target, ReadData)>,
    /// The last step of which a writer gave a part up: it leaves, with those before it.
    left: Option<(Run, Step)>,
}

/// A rank that has written a part, which it keeps.
pub(super) struct KeptBy {
    pub run: Run,
    pub step: Step,
    pub rank: Rank,
    pub producer: ProducerId,
    pub epoch: ProducerEpoch,
    pub session_timeout: Duration,
}

impl Held {
    /// The last step that has left because a writer gave it up.
    pub fn left(&self) -> Option<(Run, Step)> {
        self.left
    }

    /// A step has its record. Its part is kept by a rank that is there, or was a moment ago.
    pub fn committed(&mut self, by: KeptBy, place: &PartPlace, now: Duration) {
        let at = (place.partition, place.offset);
        let part = HeldPart {
            run: by.run,
            step: by.step,
            rank: by.rank,
            bytes: place.bytes,
            incarnation: place.incarnation,
            state: State::Kept,
        };
        self.parts.insert(at, part);
        self.places.insert((by.run, by.rank, by.step), at);
        let holder = self.holders.entry((by.run, by.rank));
        holder.or_insert(Holder {
            producer: by.producer,
            epoch: by.epoch,
            session_timeout: by.session_timeout,
            presence: Presence::Away(now),
        });
    }

    /// Whether it is by this life of a producer that a rank's parts are kept.
    pub fn is_holder(&self, hold: &HoldParts) -> bool {
        let holder = self.holders.get(&(hold.run, hold.rank));
        holder.is_some_and(|holder| (holder.producer, holder.epoch) == (hold.producer, hold.epoch))
    }

    /// A rank says what it keeps, and waits for what is wanted of it. Gives who is answered at once.
    pub fn attend(&mut self, caller: RequestId, hold: HoldParts) -> Vec<RequestId> {
        let key = (hold.run, hold.rank);
        self.renewed(hold.producer, hold.epoch);
        self.leave(key, hold.from, true);
        let before = self.holders.remove(&key);
        let mut answered = match before.map(|before| before.presence) {
            Some(Presence::Present(other, _)) if other != caller => vec![other],
            _ => Vec::new(),
        };
        if hold.from == LEAVES {
            answered.push(caller);
            return answered;
        }
        self.holders.insert(
            key,
            Holder {
                producer: hold.producer,
                epoch: hold.epoch,
                session_timeout: Duration::from_millis(hold.session_timeout_ms.into()),
                presence: Presence::Present(caller, hold),
            },
        );
        answered
    }

    /// A producer has a new life: what an earlier one kept is lost.
    pub fn renewed(&mut self, producer: ProducerId, epoch: ProducerEpoch) {
        let earlier = |holder: &Holder| holder.producer == producer && holder.epoch != epoch;
        let holders = self.holders.iter();
        let gone: Vec<_> = holders
            .filter(|(_, holder)| earlier(holder))
            .map(|(key, _)| *key)
            .collect();
        gone.into_iter().for_each(|key| self.lose(key));
    }

    /// A rank that kept parts is gone.
    fn lose(&mut self, key: (Run, Rank)) {
        self.holders.remove(&key);
        self.settle(key, LEAVES, State::Lost);
    }

    /// A rank keeps nothing of the steps before one.
    fn leave(&mut self, key: (Run, Rank), before: Step, by_writer: bool) {
        let last = self.settle(key, before, State::Left);
        if by_writer {
            self.left = self.left.max(last.map(|step| (key.0, step)));
        }
    }

    /// What becomes of a rank's parts before a step that are at their writer. Says which was the last.
    fn settle(&mut self, (run, rank): (Run, Rank), before: Step, state: State) -> Option<Step> {
        let mut last = None;
        let places = self.places.range((run, rank, Step(0))..(run, rank, before));
        for ((_, _, step), at) in places {
            if let Some(part) = self.parts.get_mut(at)
                && matches!(part.state, State::Kept | State::Wanted)
            {
                part.state = state;
                last = Some(*step);
            }
        }
        last
    }

    /// Data has come of a part that was kept.
    pub fn sent(
        &mut self,
        (run, step, rank): (Run, Step, Rank),
        by: (ProducerId, ProducerEpoch),
        (offset, bytes): (Offset, u64),
    ) {
        let holder = self.holders.get(&(run, rank));
        if holder.is_none_or(|holder| (holder.producer, holder.epoch) != by) {
            return;
        }
        let at = self.places.get(&(run, rank, step));
        if let Some(part) = at.and_then(|at| self.parts.get_mut(at))
            && part.bytes == bytes
            && matches!(part.state, State::Kept | State::Wanted)
        {
            part.state = State::Sent(offset);
        }
    }

    /// Says of a read where its data is that writers kept. Of one whose data is at a writer it keeps
    /// the request, and gives nothing: it is asked again when the data is there.
    ///
    /// # Errors
    /// Data that is there no more, which names run, step and rank.
    pub fn look_up(
        &mut self,
        (caller, target): (RequestId, Target),
        mut read: ReadData,
        name: &str,
    ) -> Result<Option<ReadData>, Refused> {
        let mut waits = false;
        for wanted in &read.events {
            let part = self.parts.get_mut(&(wanted.partition, wanted.offset));
            let Some(part) = part.filter(|part| part.incarnation == wanted.incarnation) else {
                continue;
            };
            match part.state {
                State::Kept | State::Wanted => {
                    part.state = State::Wanted;
                    waits = true;
                }
                State::Sent(_) => {}
                State::Lost => return Err(part.is_gone(name, "and is gone: memory lost")),
                State::Left => return Err(part.is_gone(name, "and has given it up")),
            }
        }
        if waits {
            self.reads.push((caller, target, read));
            return Ok(None);
        }
        for wanted in &mut read.events {
            let part = self.parts.get(&(wanted.partition, wanted.offset));
            let part = part.filter(|part| part.incarnation == wanted.incarnation);
            if let Some(State::Sent(offset)) = part.map(|part| part.state) {
                wanted.offset = offset;
            }
        }
        Ok(Some(read))
    }

    /// Whether a read waits for data that is at a writer.
    fn awaits<'a>(&'a self, read: &'a ReadData) -> Option<&'a HeldPart> {
        let mut parts = read.events.iter().filter_map(|wanted| {
            let part = self.parts.get(&(wanted.partition, wanted.offset))?;
            (part.incarnation == wanted.incarnation).then_some(part)
        });
        parts.find(|part| matches!(part.state, State::Kept | State::Wanted))
    }

    /// Whether no writer keeps anything, or kept anything that is known of.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty() && self.holders.is_empty()
    }

    /// Tells writers what is wanted of them, and has reads go on whose data is there, or lost. Each
    /// of the readers that are attached has released the records before one.
    pub fn advance(&mut self, unreleased: &[Offset], records: &Records, ctx: &mut Ctx) {
        let now = ctx.now.monotonic;
        let overdue = self.holders.iter().filter(|(_, one)| one.is_gone(now));
        let overdue: Vec<_> = overdue.map(|(key, _)| *key).collect();
        for key in overdue {
            match ctx.planted(Fault::HeldForgotten) {
                true => drop(self.holders.remove(&key)),
                false => self.lose(key),
            }
        }
        let runs: Vec<(Run, Rank)> = self.holders.keys().copied().collect();
        let mut of_run: Option<(Run, Step, Step)> = None;
        for key in runs {
            let (run, released_before, left_before) = match of_run {
                Some(known @ (run, ..)) if run == key.0 => known,
                _ => (
                    key.0,
                    released_before(key.0, unreleased, records),
                    left_before(key.0, records),
                ),
            };
            of_run = Some((run, released_before, left_before));
            self.leave(key, left_before, false);
            self.tell(key, (released_before, left_before), ctx);
        }
        let (waiting, ready): (Vec<_>, Vec<_>) = std::mem::take(&mut self.reads)
            .into_iter()
            .partition(|(_, _, read)| self.awaits(read).is_some());
        self.reads = waiting;
        for (caller, target, read) in ready {
            let request = Request::Partition(target, PartitionRequest::ReadData(read));
            ctx.effects
                .push_back(Effect::Ask(caller, Box::new(request)));
        }
    }

    /// Answers a rank that is there, if there is something that it does not know.
    fn tell(
        &mut self,
        (run, rank): (Run, Rank),
        (released_before, left_before): (Step, Step),
        ctx: &mut Ctx,
    ) {
        let Some(holder) = self.holders.get_mut(&(run, rank)) else {
            return;
        };
        let Presence::Present(caller, hold) = &holder.presence else {
            return;
        };
        let places = self
            .places
            .range((run, rank, Step(0))..=(run, rank, LEAVES));
        let steps = places.filter(|(_, at)| {
            let part = self.parts.get(at);
            part.is_some_and(|part| part.state == State::Wanted)
        });
        let steps = steps.map(|((_, _, step), _)| *step);
        let steps: Vec<Step> = steps.filter(|step| !hold.sending.contains(step)).collect();
        let known = (hold.released_before, hold.left_before);
        if steps.is_empty() && known == (released_before, left_before) {
            return;
        }
        let caller = *caller;
        holder.presence = Presence::Away(ctx.now.monotonic);
        let wanted = PartsWanted {
            steps,
            released_before,
            left_before,
        };
        ctx.answer(caller, Answer::PartsWanted(wanted));
    }

    /// Forgets parts that are before the first event of their partition.
    pub fn prune(&mut self, partition: PartitionIndex, first: Offset) {
        let gone = self.parts.range((partition, Offset(0))..(partition, first));
        let gone: Vec<At> = gone.map(|(at, _)| *at).collect();
        for at in gone {
            if let Some(part) = self.parts.remove(&at) {
                let key = (part.run, part.rank, part.step);
                if self.places.get(&key) == Some(&at) {
                    self.places.remove(&key);
                }
            }
        }
    }

    /// What a read waits for, for people; `None` if it does not wait here.
    pub fn why(&self, caller: RequestId, name: &str, now: Duration) -> Option<String> {
        let (_, _, read) = self.reads.iter().find(|(one, ..)| *one == caller)?;
        let part = self.awaits(read)?;
        let is_there = match self.holders.get(&(part.run, part.rank)) {
            Some(Holder {
                presence: Presence::Away(since),
                ..
            }) => format!("is away for {} s", now.saturating_sub(*since).as_secs()),
            Some(_) => "has not sent it yet".to_owned(),
            None => "is gone".to_owned(),
        };
        Some(format!("{} and {is_there}", part.describe(name)))
    }

    /// When a rank will have been away for too long.
    pub fn next_overdue(&self) -> Option<Duration> {
        let times = self.holders.values().filter_map(Holder::overdue_at);
        times.min()
    }

    /// A caller is gone, or waits no more.
    pub fn forget(&mut self, caller: RequestId, now: Duration) {
        self.reads.retain(|(one, ..)| *one != caller);
        for holder in self.holders.values_mut() {
            if matches!(holder.presence, Presence::Present(one, _) if one == caller) {
                holder.presence = Presence::Away(now);
            }
        }
    }

    /// Everybody who waits or attends.
    pub fn take_callers(&mut self) -> Vec<RequestId> {
        let reads = self.reads.drain(..).map(|(caller, ..)| caller);
        let mut callers: Vec<RequestId> = reads.collect();
        for holder in std::mem::take(&mut self.holders).into_values() {
            if let Presence::Present(caller, _) = holder.presence {
                callers.push(caller);
            }
        }
        callers
    }
}

impl HeldPart {
    /// For people.
    fn describe(&self, name: &str) -> String {
        let Self {
            run, step, rank, ..
        } = self;
        let bytes = self.bytes;
        format!("step {step} of run {run} of {name}: rank {rank} keeps its part of {bytes} bytes")
    }

    fn is_gone(&self, name: &str, why: &str) -> Refused {
        refuse(
            ErrorCode::OffsetOutOfRange,
            format!("{}, {why}", self.describe(name).replace("keeps", "kept")),
        )
    }
}

impl Holder {
    fn overdue_at(&self) -> Option<Duration> {
        match self.presence {
            Presence::Away(since) => Some(since + self.session_timeout),
            Presence::Present(..) => None,
        }
    }

    fn is_gone(&self, now: Duration) -> bool {
        self.overdue_at().is_some_and(|at| at <= now)
    }
}

/// Before which step of a run all have records, and no reader that is attached is behind.
fn released_before(run: Run, unreleased: &[Offset], records: &Records) -> Step {
    let mut entries = records.entries.iter().rev();
    let last = entries.find(|entry| entry.run == run && entry.kind.is_of_step());
    let recorded = last.map_or(Step(0), |entry| Step(entry.step.0 + 1));
    // Pinned steps that retention has passed are not kept by anybody.
    let oldest = records
        .oldest_kept()
        .map_or(records.end(), |entry| entry.offset);
    let needed = unreleased.iter().filter_map(|first| {
        let mut unread = records.between((*first).max(oldest), records.end());
        let first = unread.find(|entry| entry.kind == RecordKind::Step && entry.run <= run)?;
        Some(match first.run == run {
            true => first.step,
            false => Step(0),
        })
    });
    needed.min().unwrap_or(recorded).min(recorded)
}

/// Before which step of a run all have left with their records.
fn left_before(run: Run, records: &Records) -> Step {
    match records.oldest_kept() {
        Some(first) if first.run == run => first.step,
        Some(first) if first.run > run => LEAVES,
        _ => Step(0),
    }
}
