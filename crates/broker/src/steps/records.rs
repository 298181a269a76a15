//! The records of a stream: those that are there, and those on their way into partition 0.
//!
//! ```text
//!  push --> Waiting --append--> UnderWay --as durable as the topic promises--> an entry
//!              ^                   |
//!              +----- refused -----+   with all behind it; tried again in their order
//! ```

use crate::answer::Answer;
use crate::ctx::Ctx;
use crate::faults::Fault;
use crate::ids::{OWN_LINK, RequestId};
use crate::partition::Partition;
use crate::partition::incoming::ValidBatch;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::time::Duration;
use topic::Retention;
use wire::batch::{BatchBuilder, EventParts, Origin};
use wire::message::StepDecided;
use wire::record::{GapReason, Position};
use wire::step::{Attribute, RecordKind, StepTable, TableEntry};
use wire::{
    Codec, Incarnation, Offset, PartitionIndex, ProducerEpoch, ProducerId, Run, Step, TopicId,
};

/// How long what has failed is not tried again.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Every so many records, one has all attributes of its run.
const FULL_EVERY: u64 = 64;
/// Attributes of no more bytes than this are in every record.
const FULL_BYTES: usize = 4 << 10;
/// Of a step with more variables than this, the metadata has the number alone.
const VARIABLES_MAX: usize = 256;

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
    /// Before this, each partition's parts are of this record, an earlier one, or no use.
    pub done: Vec<(PartitionIndex, Offset)>,
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
    stage: Stage,
    waiters: Vec<Waiter>,
}

/// See the module.
#[derive(Default)]
pub(super) struct Records {
    /// In order; retention takes them from the front.
    pub entries: VecDeque<Entry>,
    drafts: VecDeque<Draft>,
    pub retry_at: Option<Duration>,
    /// Of the parts of all entries.
    bytes: u64,
    /// Since the last record with all attributes.
    since_full: u64,
    /// Whether the operator was told that records can't be appended.
    failed: bool,
}

impl Records {
    /// A record that a start found.
    pub fn found(&mut self, entry: Entry) {
        self.since_full = match entry.is_full {
            true => 0,
            false => self.since_full + 1,
        };
        self.bytes += entry.bytes;
        self.entries.push_back(entry);
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

    /// The entry of a step that is there.
    pub fn of_step(&self, run: Run, step: Step) -> Option<&Entry> {
        let is_it = |entry: &&Entry| {
            (entry.run, entry.step) == (run, step)
                && matches!(entry.kind, RecordKind::Step | RecordKind::Discarded)
        };
        self.entries.iter().rev().find(is_it)
    }

    /// The record of a step that is on its way gets one more who waits for it.
    pub fn wait_for(&mut self, run: Run, step: Step, caller: RequestId) -> bool {
        let draft = self.drafts.iter_mut().find(|draft| {
            let entry = &draft.entry;
            (entry.run, entry.step) == (run, step)
                && matches!(entry.kind, RecordKind::Step | RecordKind::Discarded)
        });
        match draft {
            Some(draft) => {
                draft.waiters.push(Waiter::Step(caller));
                true
            }
            None => false,
        }
    }

    /// Has who waits for a run's beginning told when its record is there.
    pub fn wait_for_opening(
        &mut self,
        run: Run,
        caller: RequestId,
        answer: Answer,
    ) -> Option<Answer> {
        let draft = self
            .drafts
            .iter_mut()
            .find(|draft| draft.entry.run == run && draft.entry.kind == RecordKind::Opened);
        match draft {
            Some(draft) => {
                draft.waiters.push(Waiter::Of(caller, answer));
                None
            }
            None => Some(answer),
        }
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

    /// A new record: `all` are its run's attributes, of which `changed` are new. It is appended
    /// when [`Records::advance`] is called.
    pub fn push(
        &mut self,
        mut table: StepTable,
        (all, changed): (Vec<Attribute>, Vec<Attribute>),
        waiters: Vec<Waiter>,
    ) {
        let length = |attribute: &Attribute| attribute.name.len() + attribute.value.len() + 16;
        let is_small = all.iter().map(length).sum::<usize>() <= FULL_BYTES;
        let was_discarded = self
            .last()
            .is_some_and(|last| last.kind == RecordKind::Discarded);
        let is_first = table.kind == RecordKind::Opened;
        table.is_full = is_small || is_first || was_discarded || self.since_full + 1 >= FULL_EVERY;
        self.since_full = match table.is_full {
            true => 0,
            false => self.since_full + 1,
        };
        table.attributes = if table.is_full { all } else { changed };
        let entry = Entry {
            offset: Offset(0),
            kind: table.kind,
            run: table.run,
            step: table.step,
            bytes: table.parts.iter().map(|part| part.bytes).sum(),
            time: 0,
            reason: table.reason.clone(),
            is_full: table.is_full,
            done: table.done.clone(),
        };
        self.drafts.push_back(Draft {
            entry,
            table,
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
            let metadata = metadata(&draft.entry, &draft.table).to_string();
            let table = draft.table.to_bytes();
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
            self.failed = false;
            for waiter in draft.waiters {
                match waiter {
                    Waiter::Of(caller, answer) => ctx.answer(caller, answer),
                    Waiter::Step(caller) => {
                        ctx.answer(caller, decided(&draft.entry, incarnation));
                    }
                }
            }
            self.bytes += draft.entry.bytes;
            self.entries.push_back(draft.entry);
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

    fn failed_now(&mut self, name: &str, error: &str, ctx: &mut Ctx) {
        self.retry_at = Some(ctx.now.monotonic + RETRY_AFTER);
        if !std::mem::replace(&mut self.failed, true) {
            ctx.report(format!(
                "{name}: records of steps cannot be written, and are tried again: {error}"
            ));
        }
    }

    /// Lets go of the oldest steps that exceed what the stream keeps: what readers may begin with
    /// has all attributes. Says from where on the records stay, and what is before each partition's
    /// parts that do.
    pub fn retain(&mut self, keep: Retention, now: u64) -> Option<Entry> {
        let limit = keep.bytes.into_iter().chain(keep.total_bytes).min();
        let mut count = self
            .entries
            .iter()
            .filter(|entry| entry.kind == RecordKind::Step)
            .count();
        let mut bytes = self.bytes;
        let mut left = 0;
        let mut cut = 0;
        for (index, entry) in self.entries.iter().enumerate() {
            let too_old = keep
                .age_ms
                .is_some_and(|ms| entry.time.saturating_add(ms.saturating_mul(1_000_000)) <= now);
            let exceeds = limit.is_some_and(|limit| bytes > limit)
                || keep.count.is_some_and(|most| count as u64 > most)
                || too_old;
            if index > 0 && entry.is_full {
                cut = index;
                left = bytes;
            }
            // The last one says how far parts are done, and what the next run is.
            if !exceeds || index + 1 == self.entries.len() {
                break;
            }
            bytes -= entry.bytes;
            count -= usize::from(entry.kind == RecordKind::Step);
        }
        if cut == 0 {
            return None;
        }
        self.bytes = left;
        let gone: VecDeque<Entry> = {
            let rest = self.entries.split_off(cut);
            std::mem::replace(&mut self.entries, rest)
        };
        gone.into_iter().next_back()
    }
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
fn producer_of(topic: TopicId) -> ProducerId {
    ProducerId(topic.0 ^ u128::from_le_bytes(*b"records of steps")).max(ProducerId(1))
}

/// A record's metadata: for people and filters, and for a start, which so need not read tables.
fn metadata(entry: &Entry, table: &StepTable) -> Value {
    let mut said = json!({
        "kind": entry.kind.name(),
        "writer": table.writer,
        "run": entry.run.0,
        "step": entry.step.0,
        "ranks": table.ranks,
        "bytes": entry.bytes,
        "full": entry.is_full,
        "done": entry.done.iter().map(|(index, offset)| (index.0, offset.0)).collect::<Vec<_>>(),
    });
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
pub(super) fn entry_of(metadata: &[u8], offset: Offset, time: u64) -> Option<(Entry, String, u32)> {
    let said: Value = serde_json::from_slice(metadata).ok()?;
    let kinds = [
        RecordKind::Opened,
        RecordKind::Step,
        RecordKind::Discarded,
        RecordKind::Closed,
        RecordKind::Broken,
    ];
    let kind = said["kind"].as_str()?;
    let kind = kinds.into_iter().find(|known| known.name() == kind)?;
    let done = said["done"].as_array()?.iter().map(|pair| {
        let index = u32::try_from(pair[0].as_u64()?).ok()?;
        Some((PartitionIndex(index), Offset(pair[1].as_u64()?)))
    });
    let entry = Entry {
        offset,
        kind,
        run: Run(said["run"].as_u64()?),
        step: Step(said["step"].as_u64()?),
        bytes: said["bytes"].as_u64()?,
        time,
        reason: said["reason"].as_str().unwrap_or_default().to_owned(),
        is_full: said["full"].as_bool()?,
        done: done.collect::<Option<Vec<_>>>()?,
    };
    let writer = said["writer"].as_str()?.to_owned();
    let ranks = u32::try_from(said["ranks"].as_u64()?).ok()?;
    Some((entry, writer, ranks))
}

/// Whether a start is to forget how far parts were done.
pub(super) fn forgets_done(ctx: &Ctx) -> bool {
    ctx.planted(Fault::StepsForgotten)
}
