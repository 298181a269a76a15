//! A stream: the topic of its steps, and what is stored there.

use crate::error::StepError;
use crate::preload::Layouts;
use crate::reader::{Reader, ReaderOptions};
use crate::records::{RECORDS, Span, attributes_at, for_each_record, gone, table_of};
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
use wire::{Run, Step};

/// Memory that is kept for what is read.
const KEPT_BYTES_MAX: usize = 256 << 20;

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
}

impl Default for StreamOptions {
    fn default() -> Self {
        Self {
            parts: 1,
            storage: "disk".to_owned(),
            storage_config: String::new(),
            durability: None,
            retention: Retention::default(),
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
    records: Vec<Record>,
    end: Option<Position>,
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
            .retention(options.retention);
        let durability = match options.storage.as_str() {
            "memory" => options.durability.or(Some(Durability::Memory)),
            _ => options.durability,
        };
        if let Some(durability) = durability {
            definition = definition.durability(durability);
        }
        let definition = definition.build().map_err(StepError::invalid)?;
        let partitions = vec![storage; options.parts as usize + 1];
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
        for record in &found.records {
            if runs.last().is_none_or(|last| last.run != record.run) {
                runs.push(RunInfo {
                    run: record.run,
                    writer: record.writer.clone(),
                    ranks: record.ranks,
                    distribution: record.distribution,
                    state: RunState::Open,
                    steps: None,
                    step_count: 0,
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
        let steps = found.records.iter().filter(is_step).map(Record::info);
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
        let at = known.position;
        let fetched = self.topic.begin_fetch(FetchRequest {
            partition: RECORDS,
            from: at,
            bytes_max: 1,
            wait_max: Duration::ZERO,
            inline_data: true,
        });
        let fetched = fetched.wait().map_err(|error| gone(error, title))?;
        let mut own = None;
        for mut event in fetched.events() {
            if event.id().offset == at.offset && event.id().incarnation == at.incarnation {
                own = Some((table_of(&mut event)?, event.append_time()));
            }
        }
        let (table, time) = own.ok_or_else(|| {
            StepError::Gone(format!(
                "{} is there no more: retention has taken it",
                title()
            ))
        })?;
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
        let description = self.topic.refresh()?;
        let Some(records) = description.partitions.first() else {
            return Ok(());
        };
        let incarnation = records.incarnation;
        if found.end.is_some_and(|end| end.incarnation != incarnation) {
            *found = Found::default();
        }
        found
            .records
            .retain(|record| record.position.offset >= records.first);
        let from = found
            .end
            .map_or(records.first, |end| end.offset.max(records.first));
        let span = Span {
            incarnation,
            from,
            end: records.watermarks.committed,
        };
        let read = &mut found.records;
        for_each_record(&self.topic, span, false, |event| {
            read.push(Record::of(&event)?);
            Ok(())
        })?;
        found.end = Some(Position {
            incarnation,
            offset: span.end.max(from),
        });
        Ok(())
    }
}

impl Found {
    fn step(&self, run: Run, step: Step) -> Option<StepInfo> {
        // Runs follow one another, and so do steps in them.
        let index = self
            .records
            .partition_point(|record| (record.run, record.step) < (run, step));
        let here = self.records[index..].iter();
        let mut here = here.take_while(|record| (record.run, record.step) == (run, step));
        here.find(|record| record.kind == RecordKind::Step)
            .map(Record::info)
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
        })
    }

    fn info(&self) -> StepInfo {
        StepInfo {
            run: self.run,
            step: self.step,
            position: self.position,
            bytes: self.bytes,
            time: self.time,
        }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({})", self.name())
    }
}
