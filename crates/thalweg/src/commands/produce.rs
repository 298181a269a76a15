//! `thalweg produce`.

use crate::cli::{Input, ProduceArgs};
use crate::event_json::{self, InputEvent};
use crate::failure::{About, Code, Failure};
use crate::output::Output;
use crate::progress::{Beside, Progress};
use bytes::Bytes;
use client::{BatchPolicy, ClientError, Event, Linger, Producer, ProducerOptions, PushFuture};
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, Read};
use std::path::Path;
use std::time::Duration;
use wire::{Durability, EventId, Incarnation, Offset, PartitionIndex};

pub fn run(args: &ProduceArgs) -> Result<(), Failure> {
    let durability = args
        .durability
        .as_deref()
        .map(str::parse::<Durability>)
        .transpose();
    let durability = durability.map_err(|why| Failure::usage("--durability", why))?;
    if !matches!(args.metadata.len(), 0 | 1) && args.metadata.len() != args.data.len() {
        let why = format!(
            "{} for {} files; give one, or one each",
            args.metadata.len(),
            args.data.len()
        );
        return Err(Failure::usage("--metadata", why));
    }
    let driver = args.client.connection.driver()?;
    let topic = driver.open_topic(&args.topic).about(&args.topic)?;
    let options = ProducerOptions {
        name: args.name.clone(),
        batch: BatchPolicy {
            count_max: args.batch_count,
            bytes_max: args.batch_bytes,
            linger: match args.linger_ms {
                None => Linger::Adaptive,
                Some(ms) => Linger::Wait(Duration::from_millis(ms.into())),
            },
        },
        durability,
        journal: args.journal.clone(),
        ack_timeout: args.client.connection.timeout(),
        ..ProducerOptions::default()
    };
    let producer = topic.producer(options).about(&args.topic)?;
    let mut run = Run {
        args,
        producer,
        output: Output::new(args.client.json),
        pending: VecDeque::new(),
        acknowledged: Acknowledged::default(),
        progress: Progress::events(
            &args.topic,
            (!args.data.is_empty()).then_some(args.data.len() as u64),
            match args.ids {
                true => Beside::Lines,
                false => Beside::Nothing,
            },
        ),
    };
    let pushed = match args.data.is_empty() {
        true => run.push_standard_input(),
        false => run.push_files(),
    };
    run.finish(pushed)
}

struct Run<'a> {
    args: &'a ProduceArgs,
    producer: Producer,
    output: Output,
    /// What was pushed and not yet accounted for, oldest first. Bounded by
    /// the producer's budget: what is acknowledged is taken off.
    pending: VecDeque<PushFuture>,
    acknowledged: Acknowledged,
    progress: Progress,
}

/// What the server has acknowledged.
#[derive(Debug, Default)]
struct Acknowledged {
    count: u64,
    /// For each partition and life: events, first and last offset.
    partitions: BTreeMap<(PartitionIndex, Incarnation), (u64, Offset, Offset)>,
}

impl Acknowledged {
    fn add(&mut self, id: EventId) {
        self.count += 1;
        let entry = self
            .partitions
            .entry((id.partition, id.incarnation))
            .or_insert((0, id.offset, id.offset));
        *entry = (entry.0 + 1, entry.1.min(id.offset), entry.2.max(id.offset));
    }

    fn to_json(&self, topic: &str) -> Value {
        let partitions: Vec<Value> = self
            .partitions
            .iter()
            .map(|((partition, incarnation), (count, first, last))| {
                json!({
                    "partition": partition.0,
                    "incarnation": incarnation.0,
                    "count": count,
                    "first": first.0,
                    "last": last.0,
                })
            })
            .collect();
        json!({
            "type": "summary",
            "topic": topic,
            "acknowledged": self.count,
            "partitions": partitions,
        })
    }
}

impl Run<'_> {
    fn push_standard_input(&mut self) -> Result<(), Failure> {
        let mut input = std::io::stdin().lock();
        match self.args.input {
            Input::Whole => {
                let mut bytes = Vec::new();
                input.read_to_end(&mut bytes).about("standard input")?;
                self.push(
                    &InputEvent {
                        metadata: bytes.into(),
                        ..InputEvent::default()
                    },
                    "standard input",
                )
            }
            kind => {
                let mut line = Vec::new();
                for number in 1.. {
                    line.clear();
                    if input.read_until(b'\n', &mut line).about("standard input")? == 0 {
                        break;
                    }
                    let text = line.strip_suffix(b"\n").unwrap_or(&line);
                    self.push_line(kind, text, number)?;
                }
                Ok(())
            }
        }
    }

    fn push_line(&mut self, kind: Input, text: &[u8], number: u64) -> Result<(), Failure> {
        let subject = || format!("line {number} of standard input");
        if kind == Input::Lines {
            let event = Event {
                metadata: text,
                key: self.args.key.as_deref().map(str::as_bytes),
                partition: self.args.partition,
                ..Event::default()
            };
            return self.push_event(event, subject);
        }
        let text = std::str::from_utf8(text).map_err(|error| Failure::usage(subject(), error))?;
        if text.trim().is_empty() {
            return Ok(());
        }
        match event_json::read_line(text) {
            Ok(None) => Ok(()),
            Ok(Some(event)) => self.push(&event, &subject()),
            Err(why) => Err(Failure::usage(subject(), why)),
        }
    }

    fn push_files(&mut self) -> Result<(), Failure> {
        for (index, path) in self.args.data.iter().enumerate() {
            let data = read_data(path)?;
            let subject = path.display().to_string();
            let metadata = match self.args.metadata.as_slice() {
                [] => {
                    let name = path.file_name().unwrap_or_default().to_string_lossy();
                    json!({"file": name, "bytes": data.len()}).to_string()
                }
                [one] => one.clone(),
                each => each[index].clone(),
            };
            self.push(
                &InputEvent {
                    metadata: metadata.into(),
                    data,
                    ..InputEvent::default()
                },
                &subject,
            )?;
        }
        Ok(())
    }

    fn push(&mut self, event: &InputEvent, subject: &str) -> Result<(), Failure> {
        let headers: Vec<(&str, &[u8])> = event
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), &value[..]))
            .collect();
        let key = event
            .key
            .as_deref()
            .or(self.args.key.as_deref().map(str::as_bytes));
        let data = match event.data.is_empty() {
            true => Vec::new(),
            false => vec![event.data.clone()],
        };
        let pushed = Event {
            metadata: &event.metadata,
            data,
            copied: &[],
            key,
            headers: &headers,
            producer_time: event.producer_time,
            partition: event.partition.or(self.args.partition),
            tombstone: event.tombstone,
        };
        self.push_event(pushed, || subject.to_owned())
    }

    fn push_event(
        &mut self,
        event: Event<'_>,
        subject: impl Fn() -> String,
    ) -> Result<(), Failure> {
        let future = self.producer.push(event).about(subject())?;
        self.pending.push_back(future);
        self.reap()
    }

    /// Accounts for what is acknowledged by now.
    fn reap(&mut self) -> Result<(), Failure> {
        while let Some(result) = self.pending.front().and_then(PushFuture::try_get) {
            self.pending.pop_front();
            self.account(result)?;
        }
        Ok(())
    }

    fn account(&mut self, result: Result<EventId, ClientError>) -> Result<(), Failure> {
        let id = result.about(&self.args.topic)?;
        self.acknowledged.add(id);
        self.progress.add(1);
        if !self.args.ids {
            return Ok(());
        }
        let (partition, incarnation, offset) = (id.partition, id.incarnation, id.offset);
        let line = format!(
            r#"{{"type":"acknowledged","partition":{partition},"incarnation":{incarnation},"offset":{offset}}}"#
        );
        self.output.line(&line)
    }

    /// Waits for the rest, whatever became of pushing, and tells.
    fn finish(mut self, pushed: Result<(), Failure>) -> Result<(), Failure> {
        let timeout = self.args.client.connection.timeout();
        let flushed = self.producer.flush(timeout).about(&self.args.topic);
        let mut outcome = pushed;
        while outcome.is_ok() || flushed.is_ok() {
            let Some(future) = self.pending.pop_front() else {
                break;
            };
            // After a flush every future is resolved; this does not wait.
            let result = future.wait(Some(Duration::ZERO));
            outcome = outcome.and(self.account(result));
        }
        let outcome = outcome.and(flushed);
        drop(self.progress);
        let count = self.acknowledged.count;
        self.output.either(
            &self.acknowledged.to_json(&self.args.topic),
            &format!("{count} events acknowledged"),
        )?;
        self.output.flush()?;
        outcome
    }
}

fn read_data(path: &Path) -> Result<Bytes, Failure> {
    if path == Path::new("-") {
        let mut bytes = Vec::new();
        std::io::stdin()
            .lock()
            .read_to_end(&mut bytes)
            .about("standard input")?;
        return Ok(bytes.into());
    }
    let read = std::fs::read(path);
    read.map(Bytes::from)
        .map_err(|error| Failure::new(Code::Failure, path.display().to_string(), error))
}
