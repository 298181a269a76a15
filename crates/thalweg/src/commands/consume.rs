//! `thalweg consume`.

use crate::cli::{ConsumeArgs, DataRange};
use crate::event_json;
use crate::failure::{About, Failure};
use crate::interrupt;
use crate::output::Output;
use crate::progress::{Beside, Progress};
use bytes::Bytes;
use client::{
    Bounds, ConsumedEvent, Consumer, ConsumerOptions, DataMode, DataWanted, EventDataRef,
    EventInfo, Patience, Pulled, Target, TopicHandle, When,
};
use memory::Buffer;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use topic::TopicKind;
use wire::message::{PartitionDescription, Start};
use wire::record::Gap;
use wire::view::DataView;
use wire::{EventId, PartitionIndex};

/// How often an idle consumer looks whether the user wants an end.
const LOOK: Duration = Duration::from_millis(100);
/// How many events are taken at once.
const EVENTS_MAX: usize = 1024;
/// As many, where each may bring a piece of data along.
const EVENTS_WITH_DATA_MAX: usize = 4;
/// Data longer than this is written to a file in pieces of this length.
const PIECE_BYTES: u64 = 16 << 20;

pub fn run(args: &ConsumeArgs) -> Result<(), Failure> {
    let driver = (args.client.connection).driver_that_waits(args.reconnect_timeout)?;
    let topic = driver.open_topic(&args.topic).about(&args.topic)?;
    let chosen = chosen(args, &topic)?;
    let is_stream = topic.definition().kind() == TopicKind::Steps;
    if is_stream && chosen.iter().any(|one| one.partition.0 > 0) {
        let name = &args.topic;
        let what = format!(
            "is a stream of steps, not of events: thalweg steps tail {name} follows it; its records \
             are the events of partition 0"
        );
        return Err(Failure::usage(name, what));
    }
    if let Some(directory) = &args.data_dir {
        std::fs::create_dir_all(directory).about(directory.display().to_string())?;
    }
    let subject = format!("{}/{}", args.topic, args.name);
    let interrupted = Arc::new(AtomicBool::new(false));
    let asked = interrupted.clone();
    interrupt::on_interrupt(move || asked.store(true, Ordering::Relaxed))?;
    let bounds = (!args.follow).then(|| Bounds::now(&chosen));
    let consumer = open(args, &topic, &chosen)?;
    let mut run = Run {
        args,
        topic: topic.clone(),
        progress: Progress::events(&subject, args.max, Beside::Lines),
        subject,
        consumer,
        output: Output::new(args.client.json),
        left: args.max.unwrap_or(u64::MAX),
        bounds,
        gaps: Vec::new(),
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

fn open(
    args: &ConsumeArgs,
    topic: &TopicHandle,
    chosen: &[PartitionDescription],
) -> Result<Consumer, Failure> {
    let start = match args.start.as_deref() {
        None => Start::Cursor.into(),
        Some(text) => match When::parse(text).map_err(|why| Failure::usage("--start", why))? {
            When::Start(Start::At(_)) if chosen.len() != 1 => {
                let why = "an offset counts in one partition; choose it with --partition";
                return Err(Failure::usage("--start", why));
            }
            when => when,
        },
    };
    let wants_data = args.data_dir.is_some() || args.data_base64;
    let options = ConsumerOptions {
        partitions: (!args.partition.is_empty()).then(|| args.partition.clone()),
        start,
        data: match wants_data {
            false => DataMode::None,
            true => {
                let (range, in_parts) = (args.data_range, args.data_dir.is_some());
                DataMode::Select(Arc::new(move |event: &EventInfo<'_>| {
                    let view = wanted(event.data_bytes_total(), range);
                    // What is long goes from the server to its file piece by piece.
                    Ok(match in_parts && view.bytes() > PIECE_BYTES {
                        true => DataView::none(),
                        false => view,
                    })
                }))
            }
        },
        ..ConsumerOptions::default()
    };
    topic
        .consumer(&args.name, options)
        .about(format!("{}/{}", args.topic, args.name))
}

/// The part of an event's data that lies in `range`; shorter data has less of it.
fn wanted(total: u64, range: Option<DataRange>) -> DataView {
    let Some(range) = range else {
        return DataView::whole(total);
    };
    let offset = range.offset.min(total);
    let bytes = range.bytes.min(total - offset);
    let view = DataView::whole(total).range(offset, bytes);
    view.expect("the range ends with the data at the latest")
}

struct Run<'a> {
    args: &'a ConsumeArgs,
    topic: TopicHandle,
    progress: Progress,
    subject: String,
    consumer: Consumer,
    output: Output,
    /// How many events may still be written.
    left: u64,
    /// Where each partition ended at the start, unless it goes on from there.
    bounds: Option<Bounds>,
    /// Gaps that were met and not written.
    gaps: Vec<(PartitionIndex, Gap)>,
    /// The last event written of each partition.
    to_acknowledge: BTreeMap<PartitionIndex, EventId>,
}

impl Run<'_> {
    fn consume(&mut self, interrupted: &AtomicBool) -> Result<(), Failure> {
        while self.left > 0 && !interrupted.load(Ordering::Relaxed) {
            self.write_gaps()?;
            if self.is_at_end() {
                break;
            }
            let most = match self.args.data_dir {
                Some(_) => EVENTS_WITH_DATA_MAX,
                None => EVENTS_MAX,
            };
            let max = most.min(self.left.try_into().unwrap_or(most));
            // An outage is waited out, and reported.
            let patience = Patience::within(None);
            let look = self.consumer.pull_look(max, &patience, LOOK);
            let events = match look.about(&self.subject)? {
                Pulled::Events(events) => events,
                Pulled::Nothing | Pulled::NotYet => Vec::new(),
            };
            // What was lost among them may move the end.
            self.note_gaps();
            for event in events {
                let bounds = self.bounds.as_mut();
                if bounds.is_none_or(|bounds| bounds.admits(&event)) {
                    self.write_event(event)?;
                }
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
        let position = |partition| consumer.position(partition);
        let bounds = self.bounds.as_mut();
        bounds.is_some_and(|bounds| bounds.is_reached(position))
    }

    fn note_gaps(&mut self) {
        for (partition, gap) in self.consumer.take_gaps() {
            if let Some(bounds) = &mut self.bounds {
                bounds.note_gap(partition, &gap);
            }
            self.gaps.push((partition, gap));
        }
    }

    fn write_gaps(&mut self) -> Result<(), Failure> {
        self.note_gaps();
        for (partition, gap) in std::mem::take(&mut self.gaps) {
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
        let mut file = File::create(&temporary).about(&subject)?;
        let view = wanted(event.data_bytes_total(), self.args.data_range);
        match view.bytes() > PIECE_BYTES {
            true => self.copy_data(id, &view, &mut file, &subject)?,
            false => file.write_all(&data).about(&subject)?,
        }
        // Whoever sees the name sees all of the data.
        std::fs::rename(&temporary, &path).about(&subject)?;
        Ok(event_json::data_file(&subject))
    }

    /// Reads long data piece by piece.
    fn copy_data(
        &self,
        id: EventId,
        view: &DataView,
        file: &mut File,
        subject: &str,
    ) -> Result<(), Failure> {
        let mut at = 0;
        while at < view.bytes() {
            let bytes = PIECE_BYTES.min(view.bytes() - at);
            let piece = view
                .range(at, bytes)
                .expect("it ends with the view at the latest");
            let wanted = DataWanted {
                partition: id.partition,
                incarnation: id.incarnation,
                offset: id.offset,
                segments: piece.segments().to_vec(),
            };
            let into = Target::from(Buffer::zeroed(bytes as usize));
            let read = self
                .topic
                .read_data(&[wanted], vec![into])
                .about(&self.subject)?;
            for mut target in read {
                file.write_all(target.as_mut()).about(subject)?;
            }
            at += bytes;
        }
        Ok(())
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
