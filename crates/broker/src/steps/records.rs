//! The records of a stream: those that are there, and those on their way into partition 0.
//!
//! ```text
//!  push --> Waiting --append--> UnderWay --as durable as the topic promises--> an entry
//!              ^                   |
//!              +----- refused -----+   with all behind it; tried again in their order
//! ```

use super::run::RunOptions;
use crate::answer::Answer;
use crate::ctx::Ctx;
use crate::faults::Fault;
use crate::ids::{OWN_LINK, RequestId};
use crate::partition::Partition;
use crate::partition::incoming::ValidBatch;
use crate::partition::store::Store;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use topic::Retention;
use wire::batch::{BatchBuilder, EventParts, Origin};
use wire::message::StepDecided;
use wire::record::{GapReason, Position};
use wire::step::{Attribute, RecordKind, StepTable, TableEntry};
use wire::{
    Codec, Incarnation, Offset, PartitionIndex, ProducerEpoch, ProducerId, Rank, Run, Step, TopicId,
};

/// How long what has failed is not tried again.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Every so many records, one has all attributes of its run.
const FULL_EVERY: u64 = 64;
/// Attributes of no more bytes than this are in every record.
const FULL_BYTES: usize = 4 << 10;
/// Where a number of steps is kept, records of at least so many dropped ones are kept beside them.
const DROPPED_KEPT: u64 = 1024;
/// Of a step with more variables than this, the metadata has the number alone.
const VARIABLES_MAX: usize = 256;
/// So many records may wait to be written, ...
const DRAFTS_MAX: usize = 64;
/// ... and so many bytes of their tables; then no step is taken for complete.
const DRAFT_BYTES_MAX: usize = 256 << 20;
/// A reason is in records, in answers, and in memory: a longer one is cut.
const REASON_BYTES_MAX: usize = 4 << 10;

/// A record that is there, or is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub offset: Offset,
    pub kind: RecordKind,
    pub run: Run,
    pub step: Step,
    /// Of its parts' data.
    pub bytes: u64,
    /// When it was appended, nanoseconds since 1970.
    pub time: u64,
    pub reason: String,
    pub is_full: bool,
    /// Of each partition of parts.
    pub done: Vec<Done>,
    /// Of the record itself.
    pub own_bytes: u64,
    /// Of a step that is pinned: retention leaves it.
    pub pin: Option<Pin>,
}

/// Where a pinned step is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pin {
    /// Before its first part, in the partition of pinned parts.
    pub parts_from: Offset,
    /// Its record's copy, in the partition of pinned records, as soon as there is one.
    pub copy: Option<Offset>,
}

/// How far the parts of a partition are done with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Done {
    pub partition: PartitionIndex,
    /// The life in which the offset counts; 0 is not known.
    pub incarnation: Incarnation,
    /// Parts before are of this record, an earlier one, or no use.
    pub offset: Offset,
}

/// A record that is to be.
pub(super) struct NewRecord {
    pub table: StepTable,
    pub done: Vec<Done>,
    /// Attributes of its run that are new.
    pub changed: Vec<Attribute>,
    /// What the ranks want of their run, if no record says it yet.
    pub options: Option<RunOptions>,
    /// Ranks that have closed the run, and how many steps each has written.
    pub closed: Vec<(Rank, u64)>,
    pub waiters: Vec<Waiter>,
    /// Before the first part of a step that is pinned.
    pub pinned: Option<Offset>,
}

/// What a start reads of a record.
pub(super) struct Recalled {
    pub entry: Entry,
    pub writer: String,
    pub ranks: u32,
    pub options: Option<RunOptions>,
    pub closed: Vec<(Rank, u64)>,
}

/// Who waits for a record, and for what.
pub(super) enum Waiter {
    /// Who opened or closed a run.
    Of(RequestId, Answer),
    /// What has become of a step.
    Step(RequestId),
}

enum Stage {
    Waiting,
    UnderWay(u64),
}

struct Draft {
    entry: Entry,
    table: StepTable,
    options: Option<RunOptions>,
    closed: Vec<(Rank, u64)>,
    stage: Stage,
    waiters: Vec<Waiter>,
}

/// See the module.
#[derive(Default)]
pub(super) struct Records {
    /// In order; retention takes them from the front, but for pinned ones.
    pub entries: VecDeque<Entry>,
    /// How many of the first are pinned ones that retention has passed.
    passed: usize,
    /// Pinned ones of which there is no copy yet.
    uncopied: BTreeSet<Offset>,
    drafts: VecDeque<Draft>,
    pub retry_at: Option<Duration>,
    /// Of all entries and their parts.
    bytes: u64,
    /// How many of them are steps, and how many are steps that were dropped.
    steps: u64,
    dropped: u64,
    /// Since the last record with all attributes.
    since_full: u64,
    /// Why records can't be appended; the operator was told then.
    failure: Option<String>,
}

impl Records {
    /// A record that a start found.
    pub fn found(&mut self, entry: Entry) {
        self.since_full = match entry.is_full {
            true => 0,
            false => self.since_full + 1,
        };
        self.keep(entry);
    }

    fn keep(&mut self, entry: Entry) {
        // Data that is held is as long as its writer says.
        self.bytes = self.bytes.saturating_add(entry.bytes + entry.own_bytes);
        self.steps += u64::from(entry.kind == RecordKind::Step);
        self.dropped += u64::from(entry.kind == RecordKind::Discarded);
        if entry.pin.is_some_and(|pin| pin.copy.is_none()) {
            self.uncopied.insert(entry.offset);
        }
        self.entries.push_back(entry);
    }

    /// A pinned record that is there as its copy alone, before all that are kept. Those that are
    /// known are passed over.
    pub fn found_pinned(&mut self, entry: Entry) {
        let at = self
            .entries
            .partition_point(|known| known.offset < entry.offset);
        let is_known = self
            .entries
            .get(at)
            .is_some_and(|known| known.offset == entry.offset);
        match is_known {
            true => {
                self.uncopied.remove(&entry.offset);
                self.entries[at].pin = entry.pin;
            }
            false if at <= self.passed => {
                self.entries.insert(at, entry);
                self.passed += 1;
            }
            // It is damaged where it was, in between of what is kept.
            false => {}
        }
    }

    /// The oldest record that retention has left, but for pinned ones before it.
    pub fn oldest_kept(&self) -> Option<&Entry> {
        self.entries.get(self.passed)
    }

    /// Where the copy of a record is that retention has passed, if it is a pinned one.
    pub fn copy_of(&self, offset: Offset) -> Option<Offset> {
        let passed = self.entries.range(..self.passed);
        let mut passed = passed.filter(|entry| entry.offset == offset);
        passed.next()?.pin?.copy
    }

    /// The first pinned record of which there is no copy yet.
    pub fn first_uncopied(&self) -> Option<Offset> {
        self.uncopied.first().copied()
    }

    /// The record at an offset was copied there.
    pub fn copied(&mut self, offset: Offset, copy: Offset) {
        self.uncopied.remove(&offset);
        let entry = self.entries.iter_mut().find(|entry| entry.offset == offset);
        if let Some(pin) = entry.and_then(|entry| entry.pin.as_mut()) {
            pin.copy = Some(copy);
        }
    }

    /// The record at an offset can't be pinned any more.
    pub fn unpin(&mut self, offset: Offset) {
        self.uncopied.remove(&offset);
        let entry = self.entries.iter_mut().find(|entry| entry.offset == offset);
        if let Some(entry) = entry {
            entry.pin = None;
        }
    }

    /// Steps that are pinned, be their records on their way.
    pub fn pinned(&self) -> impl Iterator<Item = (&Entry, Pin)> {
        let drafts = self.drafts.iter().map(|draft| &draft.entry);
        let entries = self.entries.iter().chain(drafts);
        entries.filter_map(|entry| Some((entry, entry.pin?)))
    }

    /// How many records between two offsets retention has taken.
    pub fn lost_between(&self, from: Offset, end: Offset) -> u64 {
        let kept = self.oldest_kept().map_or(Offset(0), |entry| entry.offset);
        let end = end.min(kept);
        let taken = end.0.saturating_sub(from.0);
        taken.saturating_sub(self.between(from, end).count() as u64)
    }

    /// The last record, be it on its way.
    pub fn last(&self) -> Option<&Entry> {
        let draft = self.drafts.back().map(|draft| &draft.entry);
        draft.or(self.entries.back())
    }

    /// Where the next record will be at the earliest of those that are there.
    pub fn end(&self) -> Offset {
        self.entries
            .back()
            .map_or(Offset(0), |entry| entry.offset.plus(1))
    }

    /// Records that are there, from and to before these offsets.
    pub fn between(
        &self,
        from: Offset,
        end: Offset,
    ) -> impl DoubleEndedIterator<Item = &Entry> + Clone {
        let first = self.entries.partition_point(|entry| entry.offset < from);
        let end = self.entries.partition_point(|entry| entry.offset < end);
        self.entries.range(first..end.max(first))
    }

    /// The record that is there at an offset.
    pub fn at(&self, offset: Offset) -> Option<&Entry> {
        self.between(offset, offset.plus(1)).next()
    }

    /// How many steps are between two offsets, and their bytes.
    pub fn steps_between(&self, from: Offset, end: Offset) -> (u64, u64) {
        let steps = self.between(from, end);
        let steps = steps.filter(|entry| entry.kind == RecordKind::Step);
        steps.fold((0, 0), |(steps, bytes), entry| {
            (steps + 1, bytes + entry.bytes)
        })
    }

    /// The record at an offset, or the first behind it, for people.
    pub fn place(&self, at: Offset) -> String {
        match self.between(at, self.end()).next() {
            Some(entry) => format!("step {} of run {}", entry.step, entry.run),
            None => "the end".to_owned(),
        }
    }

    /// The entry of a step that is there.
    pub fn of_step(&self, run: Run, step: Step) -> Option<&Entry> {
        // Runs follow one another, and so do the steps of each.
        let before = |entry: &Entry| (entry.run, entry.step) < (run, step);
        let first = self.entries.partition_point(before);
        let of_it = self.entries.range(first..);
        let mut of_it = of_it.take_while(|entry| (entry.run, entry.step) == (run, step));
        of_it.find(|entry| entry.kind.is_of_step())
    }

    /// The record that ends a run, be it on its way.
    pub fn end_of(&self, run: Run) -> Option<&Entry> {
        let mut drafts = self.drafts.iter().map(|draft| &draft.entry);
        if let Some(entry) = drafts.rfind(|entry| entry.run == run) {
            return Some(entry).filter(|entry| entry.kind.is_end());
        }
        let behind = self.entries.partition_point(|entry| entry.run <= run);
        let last = self.entries.get(behind.checked_sub(1)?)?;
        (last.run == run && last.kind.is_end()).then_some(last)
    }

    /// Whether the record that says that ranks have closed is on its way.
    pub fn is_closing(&self) -> bool {
        let drafts = self.drafts.iter();
        drafts
            .map(|draft| draft.entry.kind)
            .any(|kind| kind == RecordKind::Closing)
    }

    /// The record of a step that is on its way gets one more who waits for it.
    pub fn wait_for(&mut self, run: Run, step: Step, caller: RequestId) -> bool {
        let draft = self.drafts.iter_mut().find(|draft| {
            let entry = &draft.entry;
            (entry.run, entry.step) == (run, step) && entry.kind.is_of_step()
        });
        match draft {
            Some(draft) => {
                draft.waiters.push(Waiter::Step(caller));
                true
            }
            None => false,
        }
    }

    /// Has who waits for a run's record of this kind told when it is there. Gives the answer back
    /// if it is, or there is none.
    pub fn wait_for_kind(
        &mut self,
        (run, kind): (Run, RecordKind),
        caller: RequestId,
        answer: Answer,
    ) -> Option<Answer> {
        let draft = self
            .drafts
            .iter_mut()
            .find(|draft| draft.entry.run == run && draft.entry.kind == kind);
        match draft {
            Some(draft) => {
                draft.waiters.push(Waiter::Of(caller, answer));
                None
            }
            None => Some(answer),
        }
    }

    /// Whether one more record may wait to be written.
    pub fn has_room(&self) -> bool {
        let bytes = self.drafts.iter().map(|draft| draft.table.columns.len());
        self.drafts.len() < DRAFTS_MAX && bytes.sum::<usize>() < DRAFT_BYTES_MAX
    }

    /// Why nothing more is taken, for people.
    pub fn why_full(&self) -> String {
        let count = self.drafts.len();
        format!("{count} records are not written yet{}", self.why_failed())
    }

    fn why_failed(&self) -> String {
        let failure = self.failure.as_ref();
        failure.map_or_else(String::new, |error| {
            format!(", which is tried again: {error}")
        })
    }

    /// What a caller waits for, for people, if that is a record on its way.
    pub fn why(&self, caller: RequestId) -> Option<String> {
        let is_waited_for = |draft: &&Draft| {
            draft.waiters.iter().any(|waiter| match waiter {
                Waiter::Of(one, _) | Waiter::Step(one) => *one == caller,
            })
        };
        let entry = &self.drafts.iter().find(is_waited_for)?.entry;
        let what = match entry.kind {
            kind if kind.is_of_step() => format!("of step {}", entry.step),
            kind => format!("{:?}", kind.name()),
        };
        Some(format!(
            "the record {what} of run {} is not written yet{}",
            entry.run,
            self.why_failed()
        ))
    }

    /// Steps whose records are on their way.
    pub fn step_drafts(&self) -> u64 {
        let drafts = self.drafts.iter();
        drafts
            .filter(|draft| draft.entry.kind == RecordKind::Step)
            .count() as u64
    }

    /// A caller waits no more.
    pub fn forget(&mut self, caller: RequestId) {
        for draft in &mut self.drafts {
            draft.waiters.retain(|waiter| match waiter {
                Waiter::Of(one, _) | Waiter::Step(one) => *one != caller,
            });
        }
    }

    /// Everybody who waits, for nothing more will be appended.
    pub fn take_waiters(&mut self) -> Vec<RequestId> {
        let waiters = self
            .drafts
            .iter_mut()
            .flat_map(|draft| draft.waiters.drain(..));
        let callers = waiters.map(|waiter| match waiter {
            Waiter::Of(caller, _) | Waiter::Step(caller) => caller,
        });
        callers.collect()
    }

    /// A new record of a run with these attributes. It is appended when [`Records::advance`] is
    /// called.
    pub fn push(&mut self, record: NewRecord, all: &BTreeMap<String, Attribute>) {
        let NewRecord {
            mut table,
            done,
            changed,
            options,
            closed,
            waiters,
            pinned,
        } = record;
        if table.reason.len() > REASON_BYTES_MAX {
            let mut ends = (0..=REASON_BYTES_MAX).rev();
            let end = ends.find(|end| table.reason.is_char_boundary(*end));
            table.reason.truncate(end.unwrap_or(0));
            table.reason.push('…');
        }
        let length = |attribute: &Attribute| attribute.name.len() + attribute.value.len() + 16;
        let is_small = all.values().map(length).sum::<usize>() <= FULL_BYTES;
        let was_discarded = self
            .last()
            .is_some_and(|last| last.kind == RecordKind::Discarded);
        let is_first = table.kind == RecordKind::Opened;
        table.is_full = is_small
            || is_first
            || was_discarded
            || pinned.is_some()
            || self.since_full + 1 >= FULL_EVERY;
        self.since_full = match table.is_full {
            true => 0,
            false => self.since_full + 1,
        };
        table.attributes = match table.is_full {
            true => all.values().cloned().collect(),
            false => changed,
        };
        let entry = Entry {
            offset: Offset(0),
            kind: table.kind,
            run: table.run,
            step: table.step,
            bytes: table.parts.iter().map(|part| part.bytes).sum(),
            time: 0,
            reason: table.reason.clone(),
            is_full: table.is_full,
            done,
            own_bytes: 0,
            pin: pinned.map(|parts_from| Pin {
                parts_from,
                copy: None,
            }),
        };
        self.drafts.push_back(Draft {
            entry,
            table,
            options,
            closed,
            stage: Stage::Waiting,
            waiters,
        });
    }

    /// Appends what waits. Gives the appends that were begun.
    pub fn advance(
        &mut self,
        topic: TopicId,
        partition: &mut Partition,
        ctx: &mut Ctx,
    ) -> Vec<u64> {
        let mut begun = Vec::new();
        if self.retry_at.is_some_and(|at| at > ctx.now.monotonic) {
            return begun;
        }
        self.retry_at = None;
        let full_at = |entries: &VecDeque<Entry>, drafts: &[&Draft]| {
            let drafts = drafts.iter().rev().map(|draft| &draft.entry);
            let mut earlier = drafts.chain(entries.iter().rev());
            earlier
                .find(|entry| entry.is_full)
                .map_or(Offset(0), |entry| entry.offset)
        };
        for index in 0..self.drafts.len() {
            if !matches!(self.drafts[index].stage, Stage::Waiting) {
                continue;
            }
            let before: Vec<&Draft> = self.drafts.iter().take(index).collect();
            let full_at = full_at(&self.entries, &before);
            let state = partition.store.state();
            let draft = &mut self.drafts[index];
            draft.entry.offset = state.end;
            draft.entry.time = ctx.now.unix_ns;
            draft.table.full_at = match draft.table.is_full {
                true => state.end,
                false => full_at,
            };
            let producer = producer_of(topic);
            let epoch = ProducerEpoch(0);
            let first_sequence = partition.store.storage.next_sequence(producer, epoch);
            let origin = Origin {
                topic,
                producer,
                epoch,
                first_sequence: first_sequence.unwrap_or_default(),
            };
            let metadata = metadata(draft).to_string();
            let table = draft.table.to_bytes();
            draft.entry.own_bytes = (metadata.len() + table.len()) as u64;
            let mut builder = BatchBuilder::default();
            builder.push(EventParts {
                metadata: metadata.as_bytes(),
                inline: &[&table],
                ..EventParts::default()
            });
            let sealed = builder
                .seal(origin, wire::batch::BLOCK_BYTES_DEFAULT)
                .to_vec();
            let (batch, _) = ValidBatch::own(&sealed, partition.store.durability);
            let append = ctx.next_id();
            let caller = RequestId {
                link: OWN_LINK,
                id: append,
            };
            match partition.append(caller, batch, None, ctx) {
                Ok(()) => {
                    self.drafts[index].stage = Stage::UnderWay(append);
                    begun.push(append);
                }
                Err(error) => {
                    self.failed_now(&partition.store.name, &error.message, ctx);
                    break;
                }
            }
        }
        begun
    }

    /// A record is as durable as the topic promises. Tells who waited for it.
    pub fn stored(&mut self, append: u64, incarnation: Incarnation, ctx: &mut Ctx) {
        let is_it = |draft: &Draft| matches!(draft.stage, Stage::UnderWay(own) if own == append);
        // They are stored in their order.
        while self.drafts.iter().any(is_it) {
            let Some(draft) = self.drafts.pop_front() else {
                return;
            };
            let was_it = is_it(&draft);
            self.failure = None;
            for waiter in draft.waiters {
                match waiter {
                    Waiter::Of(caller, answer) => ctx.answer(caller, answer),
                    Waiter::Step(caller) => {
                        ctx.answer(caller, decided(&draft.entry, incarnation));
                    }
                }
            }
            self.keep(draft.entry);
            if was_it {
                return;
            }
        }
    }

    /// A record could not be stored: it is tried again, and all behind it.
    pub fn refused(&mut self, append: u64, error: &str, name: &str, ctx: &mut Ctx) {
        let is_it = |draft: &Draft| matches!(draft.stage, Stage::UnderWay(own) if own == append);
        let Some(index) = self.drafts.iter().position(is_it) else {
            return;
        };
        for draft in self.drafts.iter_mut().skip(index) {
            draft.stage = Stage::Waiting;
        }
        self.failed_now(name, error, ctx);
    }

    pub fn failed_now(&mut self, name: &str, error: &str, ctx: &mut Ctx) {
        self.retry_at = Some(ctx.now.monotonic + RETRY_AFTER);
        if self.failure.replace(error.to_owned()).is_none() {
            ctx.report(format!(
                "{name}: records of steps cannot be written, and are tried again: {error}"
            ));
        }
    }

    /// Lets go of the oldest steps that exceed what the stream keeps: what readers may begin with
    /// has all attributes. Pinned ones stay. Says from where on the records stay, and what is before
    /// each partition's parts that do, which is the last record that is let go of. A step `left` with
    /// those before it, whatever is to be kept.
    pub fn retain(
        &mut self,
        keep: Retention,
        left: Option<(Run, Step)>,
        now: u64,
    ) -> Option<Entry> {
        let has_left = left;
        let limit = keep.bytes.into_iter().chain(keep.total_bytes).min();
        let (mut steps, mut dropped, mut bytes) = (self.steps, self.dropped, self.bytes);
        let mut left = (steps, dropped, bytes);
        let mut cut = self.passed;
        for (index, entry) in self.entries.iter().enumerate().skip(self.passed) {
            let too_old = keep
                .age_ms
                .is_some_and(|ms| entry.time.saturating_add(ms.saturating_mul(1_000_000)) <= now);
            let exceeds = limit.is_some_and(|limit| bytes > limit)
                || keep
                    .count
                    .is_some_and(|most| steps > most || dropped > most.max(DROPPED_KEPT))
                || has_left.is_some_and(|last| (entry.run, entry.step) <= last)
                || too_old;
            if index > self.passed && entry.is_full {
                cut = index;
                left = (steps, dropped, bytes);
            }
            // The last one says how far parts are done, and what the next run is.
            if !exceeds || index + 1 == self.entries.len() {
                break;
            }
            // A pinned one stays where it is until there is a copy of its record.
            if entry.pin.is_some_and(|pin| pin.copy.is_none()) {
                break;
            }
            bytes = bytes.saturating_sub(entry.bytes + entry.own_bytes);
            steps -= u64::from(entry.kind == RecordKind::Step);
            dropped -= u64::from(entry.kind == RecordKind::Discarded);
        }
        if cut == self.passed {
            return None;
        }
        (self.steps, self.dropped, self.bytes) = left;
        let rest = self.entries.split_off(cut);
        let gone = self.entries.split_off(self.passed);
        let last = gone.back().cloned();
        let pinned = gone.into_iter().filter(|entry| entry.pin.is_some());
        self.entries.extend(pinned);
        self.passed = self.entries.len();
        self.entries.extend(rest);
        last
    }
}

/// Before where the parts of a partition are done with, in the partition's present life: where an
/// earlier life ended before that, parts of this one stand in the same places.
pub(super) fn done_before(done: Done, store: &Store) -> Offset {
    let at = Position {
        incarnation: done.incarnation,
        offset: done.offset,
    };
    store.translate(at, store.state().incarnation).offset
}

/// Removes what [`Records::retain`] has let go of, records first: what names a part goes before it.
pub(super) fn remove_before(offset: Offset, partition: &mut Partition, ctx: &mut Ctx) {
    let store = &mut partition.store;
    if offset > store.state().first {
        store.storage.remove_before(offset, GapReason::Retention);
        store.touch(ctx);
    }
}

/// What has become of a step.
pub(super) fn decided(entry: &Entry, incarnation: Incarnation) -> Answer {
    Answer::StepDecided(StepDecided {
        position: Position {
            incarnation,
            offset: entry.offset,
        },
        discarded: match entry.kind {
            RecordKind::Discarded => entry.reason.clone(),
            _ => String::new(),
        },
    })
}

/// Who writes the records of a stream.
pub(super) fn producer_of(topic: TopicId) -> ProducerId {
    ProducerId(topic.0 ^ u128::from_le_bytes(*b"records of steps")).max(ProducerId(1))
}

/// A record's metadata: for people and filters, and for a start, which so need not read tables.
fn metadata(draft: &Draft) -> Value {
    let Draft { entry, table, .. } = draft;
    let done = |done: &Done| (done.partition.0, done.offset.0, done.incarnation.0);
    let mut said = json!({
        "kind": entry.kind.name(),
        "writer": table.writer,
        "run": entry.run.0,
        "step": entry.step.0,
        "ranks": table.ranks,
        "bytes": entry.bytes,
        "full": entry.is_full,
        "done": entry.done.iter().map(done).collect::<Vec<_>>(),
    });
    if let Some(pin) = entry.pin {
        said["pinned"] = pin.parts_from.0.into();
    }
    if let Some(options) = &draft.options {
        said["options"] = options.to_json();
    }
    if !draft.closed.is_empty() {
        let closed = draft.closed.iter().map(|(rank, steps)| (rank.0, *steps));
        said["closed"] = closed
            .collect::<Vec<_>>()
            .into_iter()
            .map(|pair| json!(pair))
            .collect();
    }
    if !entry.reason.is_empty() {
        said["reason"] = entry.reason.clone().into();
    }
    if entry.kind == RecordKind::Step {
        said["variables"] = match table.variables.len() {
            few if few <= VARIABLES_MAX => {
                let described = |one: &TableEntry| {
                    (
                        one.name.clone(),
                        json!({"dtype": one.dtype, "shape": one.shape}),
                    )
                };
                Value::Object(table.variables.iter().map(described).collect())
            }
            many => many.into(),
        };
    }
    said
}

/// What a record's metadata says, read again.
pub(super) fn recalled(metadata: &[u8], at: (Offset, u64, u64)) -> Option<Recalled> {
    let (offset, time, own_bytes) = at;
    let said: Value = serde_json::from_slice(metadata).ok()?;
    let done = said["done"].as_array()?.iter().map(|of| {
        Some(Done {
            partition: PartitionIndex(u32::try_from(of[0].as_u64()?).ok()?),
            offset: Offset(of[1].as_u64()?),
            incarnation: Incarnation(of[2].as_u64().unwrap_or_default()),
        })
    });
    let closed = said["closed"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|of| Some((Rank(u32::try_from(of[0].as_u64()?).ok()?), of[1].as_u64()?)));
    let entry = Entry {
        offset,
        kind: RecordKind::named(said["kind"].as_str()?)?,
        run: Run(said["run"].as_u64()?),
        step: Step(said["step"].as_u64()?),
        bytes: said["bytes"].as_u64()?,
        time,
        reason: said["reason"].as_str().unwrap_or_default().to_owned(),
        is_full: said["full"].as_bool()?,
        done: done.collect::<Option<Vec<_>>>()?,
        own_bytes,
        pin: said["pinned"].as_u64().map(|first| Pin {
            parts_from: Offset(first),
            copy: None,
        }),
    };
    Some(Recalled {
        entry,
        writer: said["writer"].as_str()?.to_owned(),
        ranks: u32::try_from(said["ranks"].as_u64()?).ok()?,
        options: RunOptions::from_json(&said["options"]),
        closed: closed.collect::<Option<Vec<_>>>()?,
    })
}

/// Whether a start is to forget how far parts were done.
pub(super) fn forgets_done(ctx: &Ctx) -> bool {
    ctx.planted(Fault::StepsForgotten)
}
