//! `thalweg consume`.

use crate::cli::{ConsumeArgs, DataRange};
use crate::event_json;
use crate::failure::{About, Failure};
use crate::interrupt;
use crate::output::Output;
use crate::progress::{Beside, Progress};
use bytes::Bytes;
use client::{
    ConsumedEvent, Consumer, ConsumerOptions, DataMode, EventDataRef, EventInfo, TopicHandle,
};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use wire::message::{PartitionDescription, Start};
use wire::record::Position;
use wire::view::DataView;
use wire::{EventId, Offset, PartitionIndex};

/// How often an idle consumer looks whether the user wants an end.
const LOOK: Duration = Duration::from_millis(100);
/// How many events are taken at once.
const EVENTS_MAX: usize = 1024;

pub fn run(args: &ConsumeArgs) -> Result<(), Failure> {
    let driver = args.client.connection.driver()?;
    let topic = driver.open_topic(&args.topic).about(&args.topic)?;
    let chosen = chosen(args, &topic)?;
    if let Some(directory) = &args.data_dir {
        std::fs::create_dir_all(directory).about(directory.display().to_string())?;
    }
    let subject = format!("{}/{}", args.topic, args.name);
    let interrupted = Arc::new(AtomicBool::new(false));
    let asked = interrupted.clone();
    interrupt::on_interrupt(move || asked.store(true, Ordering::Relaxed))?;
    let ends = match args.follow {
        true => BTreeMap::new(),
        false => ends(&chosen),
    };
    let consumer = open(args, &topic, &chosen)?;
    let mut run = Run {
        args,
        progress: Progress::events(&subject, args.max, Beside::Lines),
        subject,
        consumer,
        output: Output::new(args.client.json),
        left: args.max.unwrap_or(u64::MAX),
        ends,
        to_acknowledge: BTreeMap::new(),
    };
    let consumed = run.consume(&interrupted);
    let flushed = run.finish();
    consumed.and(flushed)
}

/// The partitions that are wanted, as they are now.
fn chosen(args: &ConsumeArgs, topic: &TopicHandle) -> Result<Vec<PartitionDescription>, Failure> {
    let known = topic.partitions();
    if args.partition.is_empty() {
        return Ok(known);
    }
    let find = |index: &u32| {
        known
            .iter()
            .find(|partition| partition.partition.0 == *index)
            .cloned()
            .ok_or_else(|| {
                let count = known.len();
                Failure::usage(
                    &args.topic,
                    format!("partition {index} is out of range: the topic has {count}"),
                )
            })
    };
    args.partition.iter().map(find).collect()
}

/// Where each partition ends now, if there is anything to read in it.
fn ends(chosen: &[PartitionDescription]) -> BTreeMap<PartitionIndex, Position> {
    chosen
        .iter()
        .map(|partition| {
            let end = Position {
                incarnation: partition.incarnation,
                offset: partition.watermarks.committed,
            };
            (partition.partition, end)
        })
        .collect()
}

fn open(
    args: &ConsumeArgs,
    topic: &TopicHandle,
    chosen: &[PartitionDescription],
) -> Result<Consumer, Failure> {
    let start = match args.start.as_deref() {
        None => Start::Cursor,
        Some("beginning") => Start::Beginning,
        Some("latest") => Start::Latest,
        Some(text) => {
            let offset = text.parse().map(Offset).map_err(|_| {
                Failure::usage(
                    "--start",
                    format!("{text:?} is neither beginning, latest nor an offset"),
                )
            })?;
            let [partition] = chosen else {
                let why = "an offset counts in one partition; choose it with --partition";
                return Err(Failure::usage("--start", why));
            };
            Start::At(Position {
                incarnation: partition.incarnation,
                offset,
            })
        }
    };
    let wants_data = args.data_dir.is_some() || args.data_base64;
    let options = ConsumerOptions {
        partitions: (!args.partition.is_empty()).then(|| args.partition.clone()),
        start,
        data: match (wants_data, args.data_range) {
            (false, _) => DataMode::None,
            (true, None) => DataMode::All,
            (true, Some(range)) => DataMode::Select(Arc::new(move |event| select(event, range))),
        },
        ..ConsumerOptions::default()
    };
    topic
        .consumer(&args.name, options)
        .about(format!("{}/{}", args.topic, args.name))
}

/// The part of an event's data that lies in `range`; shorter data has less of it.
fn select(event: &EventInfo<'_>, range: DataRange) -> Result<DataView, String> {
    let total = event.data_bytes_total();
    let offset = range.offset.min(total);
    let bytes = range.bytes.min(total - offset);
    DataView::whole(total)
        .range(offset, bytes)
        .map_err(|error| error.to_string())
}

struct Run<'a> {
    args: &'a ConsumeArgs,
    progress: Progress,
    subject: String,
    consumer: Consumer,
    output: Output,
    /// How many events may still be written.
    left: u64,
    /// Partitions whose end as it was at the start has not been reached.
    ends: BTreeMap<PartitionIndex, Position>,
    /// The last event written of each partition.
    to_acknowledge: BTreeMap<PartitionIndex, EventId>,
}

impl Run<'_> {
    fn consume(&mut self, interrupted: &AtomicBool) -> Result<(), Failure> {
        while self.left > 0 && !interrupted.load(Ordering::Relaxed) {
            self.write_gaps()?;
            if !self.args.follow && self.is_at_end() {
                break;
            }
            let max = EVENTS_MAX.min(self.left.try_into().unwrap_or(EVENTS_MAX));
            let events = self
                .consumer
                .pull_batch(max, Some(LOOK))
                .about(&self.subject)?;
            for event in events {
                self.write_event(event)?;
            }
            self.output.flush()?;
            self.acknowledge()?;
        }
        self.write_gaps()?;
        self.output.flush()
    }

    /// Whether every partition has come to where it ended at the start.
    fn is_at_end(&mut self) -> bool {
        let consumer = &self.consumer;
        self.ends.retain(|partition, end| {
            consumer
                .position(*partition)
                .is_none_or(|position| position < *end)
        });
        self.ends.is_empty()
    }

    fn write_gaps(&mut self) -> Result<(), Failure> {
        for (partition, gap) in self.consumer.take_gaps() {
            let line = event_json::gap_line(partition, &gap);
            match self.args.plain {
                // Not in the way of the events, but never unsaid.
                true => eprintln!("thalweg: {}: {line}", self.subject),
                false => self.output.line(&line)?,
            }
        }
        Ok(())
    }

    fn write_event(&mut self, mut event: ConsumedEvent) -> Result<(), Failure> {
        let id = event.id();
        self.left -= 1;
        let data = self.write_data(&mut event)?;
        if self.args.plain {
            self.output.bytes(event.metadata())?;
            self.output.bytes(b"\n")?;
        } else {
            self.output.line(&event_json::event_line(&event, &data))?;
        }
        self.to_acknowledge.insert(id.partition, id);
        self.progress.add(1);
        Ok(())
    }

    /// Puts the event's data where it is wanted; returns the fields that tell.
    fn write_data(&self, event: &mut ConsumedEvent) -> Result<String, Failure> {
        let data = match event.data() {
            EventDataRef::Inline(data) => data,
            // There is no allocator here.
            EventDataRef::Allocated(_) | EventDataRef::None => Bytes::new(),
        };
        if self.args.data_base64 {
            return Ok(event_json::data_base64(&data));
        }
        let Some(directory) = &self.args.data_dir else {
            return Ok(String::new());
        };
        let id = event.id();
        let name = format!("{}-{}-{}.data", id.partition, id.incarnation, id.offset);
        let path: PathBuf = directory.join(&name);
        let temporary = directory.join(format!(".{name}.tmp"));
        let subject = path.display().to_string();
        // Whoever sees the name sees all of the data.
        std::fs::write(&temporary, &data)
            .and_then(|()| std::fs::rename(&temporary, &path))
            .about(&subject)?;
        Ok(event_json::data_file(&subject))
    }

    /// What was handed to the reader of the output is done with.
    fn acknowledge(&mut self) -> Result<(), Failure> {
        for (_, id) in std::mem::take(&mut self.to_acknowledge) {
            if !self.args.no_ack {
                self.consumer.acknowledge(id).about(&self.subject)?;
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Failure> {
        let timeout = self.args.client.connection.timeout();
        self.consumer
            .flush_acknowledgements(timeout)
            .about(&self.subject)
    }
}
