//! A stream: the topic of its steps, and what is stored there.

use crate::error::StepError;
use crate::preload::Layouts;
use crate::reader::{Reader, ReaderOptions};
use crate::records::{
    PINNED_RECORDS, RECORDS, Span, attributes_at, for_each_record, gone, table_of,
};
use crate::view::{StepView, ViewParts};
use crate::writer::Writer;
use crate::writer_options::WriterOptions;
use client::{
    ConsumedEvent, Definition, Driver, Durability, FetchRequest, PartitionStorage, Position,
    TopicHandle,
};
use memory::Pool;
use serde_json::Value;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use topic::{METADATA_BYTES_MAX_LIMIT, Retention, TopicKind};
use wire::message::Distribution;
use wire::step::RecordKind;
use wire::{Incarnation, Offset, Run, Step};

/// Memory that is kept for what is read.
const KEPT_BYTES_MAX: usize = 256 << 20;
/// So often records are looked for anew that retention was faster with.
const FIND_TRIES_MAX: usize = 8;

/// How a stream is made.
#[derive(Debug, Clone)]
pub struct StreamOptions {
    /// Partitions of parts, beside the one of records: as many as disks shall share. Rank r writes
    /// to the one of r modulo this. Default 1.
    pub parts: u32,
    /// Where partitions are stored: `disk`, `memory`, or a name registered by a user. Default
    /// `disk`.
    pub storage: String,
    /// Its configuration, as JSON; empty is the default.
    pub storage_config: String,
    /// What a part survives when it is accepted, and a record when its step is committed. Default:
    /// the topic's default, or memory where that is the storage.
    pub durability: Option<Durability>,
    /// What is kept. Default: all.
    pub retention: Retention,
    /// Whether steps can be pinned ([`Writer::pin_step`]): that takes two more partitions. Default:
    /// yes.
    pub pins: bool,
}

impl Default for StreamOptions {
    fn default() -> Self {
        Self {
            parts: 1,
            storage: "disk".to_owned(),
            storage_config: String::new(),
            durability: None,
            retention: Retention::default(),
            pins: true,
        }
    }
}

/// How a run is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunState {
    /// Its writers write, or may come back yet.
    Open,
    /// All of its ranks have closed it.
    Closed,
    /// It has ended without that: why.
    Broken(String),
}

/// A run of which something is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunInfo {
    /// Its number.
    pub run: Run,
    /// Name of the writing program.
    pub writer: String,
    /// How many ranks write.
    pub ranks: u32,
    /// How its writers ask that steps are given to readers; all of them to each, if the record that
    /// says it is gone.
    pub distribution: Distribution,
    /// How it is.
    pub state: RunState,
    /// First and last step that are stored; `None` if there are none.
    pub steps: Option<(Step, Step)>,
    /// How many are stored. Less than those from the first to the last if some were dropped.
    pub step_count: u64,
    /// How many of these are pinned.
    pub pinned: u64,
    /// How many of those between were dropped because the queue was full.
    pub discarded: u64,
    /// Bytes of the steps' parts.
    pub bytes: u64,
    /// When its first record that is stored was appended, nanoseconds since 1970: its beginning,
    /// unless retention took that.
    pub first_time: u64,
    /// When its last record was.
    pub last_time: u64,
}

/// A step that is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepInfo {
    /// The run that it is of.
    pub run: Run,
    /// Its number there.
    pub step: Step,
    /// Where its record is, in partition 0.
    pub position: Position,
    /// Bytes of its parts.
    pub bytes: u64,
    /// When it was committed, nanoseconds since 1970.
    pub time: u64,
    /// Whether retention leaves it.
    pub pinned: bool,
}

/// A stream of steps. Cheap to clone; what was found of it is shared.
#[derive(Clone)]
pub struct Stream {
    topic: TopicHandle,
    found: Arc<Mutex<Found>>,
    pool: Pool,
}

/// What the records said that were read so far.
#[derive(Default)]
struct Found {
    /// Of partition 0.
    records: Vec<Record>,
    end: Option<Position>,
    /// Copies of pinned ones, and before what record those have to do.
    pinned: Vec<Record>,
    pinned_end: Option<Position>,
    first: Offset,
}

/// What a record's metadata says.
struct Record {
    kind: RecordKind,
    run: Run,
    step: Step,
    writer: String,
    ranks: u32,
    distribution: Distribution,
    reason: String,
    bytes: u64,
    position: Position,
    time: u64,
    is_pinned: bool,
    /// Where the copy is, in its partition, if this is of one.
    copy: Option<Position>,
}

impl Stream {
    /// Makes a stream: a topic of kind `steps`.
    ///
    /// # Errors
    /// [`StepError::Client`], as of a topic that exists; nothing is left behind then.
    pub fn create(driver: &Driver, name: &str, options: &StreamOptions) -> Result<Self, StepError> {
        if options.parts == 0 {
            return Err(StepError::invalid(
                "a stream has one partition of parts or more",
            ));
        }
        let storage = PartitionStorage {
            kind: options.storage.clone(),
            config: options.storage_config.clone(),
        };
        let mut definition = Definition::builder()
            .kind(TopicKind::Steps)
            .metadata_bytes_max(METADATA_BYTES_MAX_LIMIT)
            .retention(options.retention)
            .pins(options.pins);
        let durability = match options.storage.as_str() {
            "memory" => options.durability.or(Some(Durability::Memory)),
            _ => options.durability,
        };
        if let Some(durability) = durability {
            definition = definition.durability(durability);
        }
        let definition = definition.build().map_err(StepError::invalid)?;
        let partitions = definition.first_parts() + options.parts;
        let partitions = vec![storage; partitions as usize];
        Self::of(driver.create_topic(name, &definition, &partitions)?)
    }

    /// Opens a stream that exists.
    ///
    /// # Errors
    /// [`StepError::Client`] if there is no such topic; [`StepError::Invalid`] of a topic of
    /// events.
    pub fn open(driver: &Driver, name: &str) -> Result<Self, StepError> {
        Self::of(driver.open_topic(name)?)
    }

    /// The stream that a topic is.
    ///
    /// # Errors
    /// [`StepError::Invalid`] of a topic of events.
    pub fn of(topic: TopicHandle) -> Result<Self, StepError> {
        if topic.definition().kind() != TopicKind::Steps {
            let name = topic.name();
            return Err(StepError::Invalid(format!("topic {name} has no steps")));
        }
        Ok(Self {
            topic,
            found: Arc::default(),
            pool: Pool::new(KEPT_BYTES_MAX),
        })
    }

    /// Its topic.
    pub fn topic(&self) -> &TopicHandle {
        &self.topic
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.topic.name()
    }

    /// A rank that writes: see [`Writer::open`].
    ///
    /// # Errors
    /// As that.
    pub fn writer(&self, options: WriterOptions) -> Result<Writer, StepError> {
        Writer::open(&self.topic, options)
    }

    /// A rank that reads: see [`Reader::open`].
    ///
    /// # Errors
    /// As that.
    pub fn reader(&self, options: ReaderOptions) -> Result<Reader, StepError> {
        Reader::open(&self.topic, options)
    }

    /// The runs of which something is stored now, in order. What was read before is not read
    /// again, nor is data.
    ///
    /// # Errors
    /// [`StepError::Client`]; [`StepError::Damaged`].
    pub fn runs(&self) -> Result<Vec<RunInfo>, StepError> {
        let found = &mut *self.found.lock().unwrap_or_else(PoisonError::into_inner);
        self.find(found)?;
        let mut runs: Vec<RunInfo> = Vec::new();
        for record in found.all() {
            if runs.last().is_none_or(|last| last.run != record.run) {
                runs.push(RunInfo {
                    run: record.run,
                    writer: record.writer.clone(),
                    ranks: record.ranks,
                    distribution: record.distribution,
                    state: RunState::Open,
                    steps: None,
                    step_count: 0,
                    pinned: 0,
                    discarded: 0,
                    bytes: 0,
                    first_time: record.time,
                    last_time: record.time,
                });
            }
            let run = runs.last_mut().expect("pushed, if there was none");
            if record.distribution != Distribution::All {
                run.distribution = record.distribution;
            }
            run.last_time = record.time;
            match record.kind {
                RecordKind::Opened | RecordKind::Closing => {}
                RecordKind::Step => {
                    let first = run.steps.map_or(record.step, |(first, _)| first);
                    run.steps = Some((first, record.step));
                    run.step_count += 1;
                    run.pinned += u64::from(record.is_pinned);
                    run.bytes += record.bytes;
                }
                RecordKind::Discarded => run.discarded += 1,
                RecordKind::Closed => run.state = RunState::Closed,
                RecordKind::Broken => run.state = RunState::Broken(record.reason.clone()),
            }
        }
        Ok(runs)
    }

    /// The steps of a run that are stored now, in order.
    ///
    /// # Errors
    /// As [`Self::runs`].
    pub fn steps(&self, run: Run) -> Result<Vec<StepInfo>, StepError> {
        let found = &mut *self.found.lock().unwrap_or_else(PoisonError::into_inner);
        self.find(found)?;
        let is_step = |record: &&Record| record.run == run && record.kind == RecordKind::Step;
        let steps = found.all().filter(is_step).map(Record::info);
        Ok(steps.collect())
    }

    /// A stored step by its number. No reader's position moves; nobody waits for it.
    ///
    /// # Errors
    /// [`StepError::Gone`] if it is not there, or no more.
    pub fn step(&self, run: Run, step: Step) -> Result<StepView, StepError> {
        let known = {
            let found = &mut *self.found.lock().unwrap_or_else(PoisonError::into_inner);
            match found.step(run, step) {
                Some(known) => Some(known),
                None => {
                    self.find(found)?;
                    found.step(run, step)
                }
            }
        };
        let title = || format!("step {step} of run {run} of {}", self.name());
        let known = known.ok_or_else(|| {
            StepError::Gone(format!(
                "{} is not there: it was not committed, or was dropped, or retention has taken it",
                title()
            ))
        })?;
        let (at, copy) = (known.info.position, known.copy);
        let (partition, from) = match copy {
            Some(copy) => (PINNED_RECORDS, copy),
            None => (RECORDS, at),
        };
        let fetched = self.topic.begin_fetch(FetchRequest {
            partition,
            from,
            bytes_max: 1,
            wait_max: Duration::ZERO,
            inline_data: true,
        });
        let fetched = fetched.wait().map_err(|error| gone(error, title))?;
        let mut own = None;
        for mut event in fetched.events() {
            let id = event.id();
            if (id.incarnation, id.offset) == (from.incarnation, from.offset) {
                own = Some((table_of(&mut event)?, event.append_time()));
            }
        }
        let (table, mut time) = own.ok_or_else(|| {
            StepError::Gone(format!(
                "{} is there no more: retention has taken it",
                title()
            ))
        })?;
        if copy.is_some() {
            time = known.info.time;
        }
        let attributes = Arc::new(attributes_at(&self.topic, &table, at)?);
        Ok(StepView::new(ViewParts {
            topic: self.topic.clone(),
            table: Arc::new(table),
            position: at,
            time,
            attributes,
            skipped: 0,
            lost: 0,
            pool: self.pool.clone(),
            layouts: Layouts::new(),
            preloaded: None,
            turn: None,
        }))
    }

    /// Reads the records that came since, and forgets those that retention took.
    fn find(&self, found: &mut Found) -> Result<(), StepError> {
        for _ in 0..FIND_TRIES_MAX {
            if self.find_once(found)? {
                break;
            }
        }
        Ok(())
    }

    /// Says whether all were read: not so where retention was faster, and took what was to be read
    /// next.
    fn find_once(&self, found: &mut Found) -> Result<bool, StepError> {
        let description = self.topic.refresh()?;
        let Some(records) = description.partitions.first() else {
            return Ok(true);
        };
        let incarnation = records.incarnation;
        if found.end.is_some_and(|end| end.incarnation != incarnation) {
            *found = Found::default();
        }
        let is_there = |record: &Record| record.position.offset >= records.first;
        found.records.retain(is_there);
        let from = found
            .end
            .map_or(records.first, |end| end.offset.max(records.first));
        let span = Span {
            partition: RECORDS,
            incarnation,
            from,
            end: records.watermarks.committed,
        };
        let (known, mut reached) = (&mut found.records, from);
        let ended = for_each_record(&self.topic, span, false, |event| {
            // One that cannot be read is told of once.
            reached = event.id().offset.plus(1);
            known.push(Record::of(&event)?);
            Ok(())
        });
        if let Ok(ended) = &ended
            && ended.at.incarnation == incarnation
        {
            // What was fetched may go beyond the span: that is read the next time.
            reached = reached.max(ended.at.offset.min(span.end));
        }
        found.end = Some(Position {
            incarnation,
            offset: reached,
        });
        // Where retention took records in between, those before are gone too.
        found.first = records.first.max(ended?.first);
        let first = found.first;
        found
            .records
            .retain(|record| record.position.offset >= first);
        self.find_pinned(found, incarnation)?;
        Ok(reached >= span.end)
    }

    /// Reads the copies of pinned records that came since. Of records that are there themselves
    /// they are of no use yet.
    fn find_pinned(&self, found: &mut Found, incarnation: Incarnation) -> Result<(), StepError> {
        // The copy is there before its record leaves: those are read that came until now.
        let description = self.topic.refresh()?;
        let pinned = description.partitions.get(PINNED_RECORDS.0 as usize);
        let Some(pinned) = pinned.filter(|_| self.topic.definition().pins()) else {
            return Ok(());
        };
        let present = pinned.incarnation;
        if found
            .pinned_end
            .is_some_and(|end| end.incarnation != present)
        {
            found.pinned.clear();
            found.pinned_end = None;
        }
        let from = found.pinned_end.map_or(pinned.first, |end| end.offset);
        let span = Span {
            partition: PINNED_RECORDS,
            incarnation: present,
            from,
            end: pinned.watermarks.committed,
        };
        let copies = &mut found.pinned;
        for_each_record(&self.topic, span, false, |event| {
            copies.push(Record::of_copy(&event, incarnation)?);
            Ok(())
        })?;
        // A crash may have left two of one record.
        copies.sort_by_key(|record| record.position.offset);
        copies.dedup_by_key(|record| record.position.offset);
        found.pinned_end = Some(Position {
            incarnation: present,
            offset: span.end.max(from),
        });
        Ok(())
    }
}

/// A step that is known, and where its record is.
struct Known {
    info: StepInfo,
    /// The copy of its record, which is no more.
    copy: Option<Position>,
}

impl Found {
    /// All records that are there, in order; of those that retention took and that are pinned,
    /// their copies.
    fn all(&self) -> impl Iterator<Item = &Record> {
        self.copies().iter().chain(&self.records)
    }

    fn copies(&self) -> &[Record] {
        let is_taken = |record: &Record| record.position.offset < self.first;
        &self.pinned[..self.pinned.partition_point(is_taken)]
    }

    fn step(&self, run: Run, step: Step) -> Option<Known> {
        [self.copies(), &self.records]
            .into_iter()
            .find_map(|records| {
                // Runs follow one another, and so do steps in them.
                let index =
                    records.partition_point(|record| (record.run, record.step) < (run, step));
                let here = records[index..].iter();
                let mut here = here.take_while(|record| (record.run, record.step) == (run, step));
                let record = here.find(|record| record.kind == RecordKind::Step)?;
                Some(Known {
                    info: record.info(),
                    copy: record.copy,
                })
            })
    }
}

impl Record {
    fn of(event: &ConsumedEvent) -> Result<Self, StepError> {
        let id = event.id();
        let damaged = |reason: &str| StepError::Damaged(format!("record {id}: {reason}"));
        let said: Value = serde_json::from_slice(event.metadata())
            .map_err(|error| damaged(&error.to_string()))?;
        let number = |key: &str| {
            said[key]
                .as_u64()
                .ok_or_else(|| damaged(&format!("its metadata has no {key:?}")))
        };
        let text = |key: &str| said[key].as_str().unwrap_or_default().to_owned();
        let kind = RecordKind::named(&text("kind"));
        Ok(Self {
            kind: kind.ok_or_else(|| damaged("its kind is not known"))?,
            run: Run(number("run")?),
            step: Step(number("step")?),
            writer: text("writer"),
            ranks: u32::try_from(number("ranks")?).map_err(|_| damaged("too many ranks"))?,
            distribution: match said["options"]["distribution"].as_str() {
                Some("round robin") => Distribution::RoundRobin,
                Some("on demand") => Distribution::OnDemand,
                _ => Distribution::All,
            },
            reason: text("reason"),
            bytes: number("bytes")?,
            position: Position {
                incarnation: id.incarnation,
                offset: id.offset,
            },
            time: event.append_time(),
            is_pinned: said["pinned"].is_u64(),
            copy: None,
        })
    }

    /// What a copy says of the record that it is a copy of.
    fn of_copy(event: &ConsumedEvent, incarnation: Incarnation) -> Result<Self, StepError> {
        let copy = event.id();
        let said: Value = serde_json::from_slice(event.metadata()).unwrap_or_default();
        let (Some(offset), Some(time)) = (said["at"][0].as_u64(), said["time"].as_u64()) else {
            let reason = "its metadata does not say of which record it is a copy";
            return Err(StepError::Damaged(format!("record {copy}: {reason}")));
        };
        Ok(Self {
            position: Position {
                incarnation,
                offset: Offset(offset),
            },
            time,
            copy: Some(Position {
                incarnation: copy.incarnation,
                offset: copy.offset,
            }),
            ..Self::of(event)?
        })
    }

    fn info(&self) -> StepInfo {
        StepInfo {
            run: self.run,
            step: self.step,
            position: self.position,
            bytes: self.bytes,
            time: self.time,
            pinned: self.is_pinned,
        }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({})", self.name())
    }
}
