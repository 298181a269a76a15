//! `thalweg queue drain`.

use crate::cli::DrainArgs;
use crate::event_json;
use crate::failure::{About, Failure};
use crate::interrupt;
use crate::output::Output;
use crate::progress::{Beside, Progress};
use bytes::Bytes;
use client::{DataMode, Drain, Drained, EventDataRef, QueueConsumerOptions, QueueEvent};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often it is looked whether the user wants an end.
const LOOK: Duration = Duration::from_millis(100);
/// So many lines are written before their events are acknowledged.
const WRITTEN_MAX: usize = 64;

pub fn run(args: &DrainArgs) -> Result<(), Failure> {
    let idle = Duration::try_from_secs_f64(args.idle).map_err(|_| {
        let why = format!("a number of seconds from 0 is wanted, not {}", args.idle);
        Failure::usage("--idle", why)
    })?;
    let driver = args.client.connection.driver()?;
    let topic = driver.open_topic(&args.topic).about(&args.topic)?;
    let subject = format!("{}/{}", args.topic, args.name);
    let interrupted = Arc::new(AtomicBool::new(false));
    let asked = interrupted.clone();
    interrupt::on_interrupt(move || asked.store(true, Ordering::Relaxed))?;
    let options = QueueConsumerOptions {
        data: match args.data_base64 {
            true => DataMode::All,
            false => DataMode::None,
        },
        ..QueueConsumerOptions::default()
    };
    let consumer = topic.queue(&args.name, options).about(&subject)?;
    let progress = Progress::events(&subject, args.max, Beside::Lines);
    let mut output = Output::new(args.client.json);
    let mut written: Vec<QueueEvent> = Vec::new();
    let mut left = args.max.unwrap_or(u64::MAX);
    let mut drain = Drain::new(idle);
    while left > 0 && !interrupted.load(Ordering::Relaxed) {
        let drained = drain.next(&consumer, Some(LOOK)).about(&subject)?;
        for (partition, gap) in consumer.take_gaps() {
            let line = event_json::gap_line(partition, &gap);
            match args.plain {
                // Not in the way of the events, but never unsaid.
                true => eprintln!("thalweg: {subject}: {line}"),
                false => output.line(&line)?,
            }
        }
        let is_done = matches!(drained, Drained::Done);
        if let Drained::Event(event) = drained {
            write(args, &event, &mut output)?;
            written.push(event);
            progress.add(1);
            left -= 1;
            if written.len() < WRITTEN_MAX && left > 0 {
                continue;
            }
        }
        // What was handed to the reader of the output is done with.
        output.flush()?;
        written
            .drain(..)
            .for_each(|event| drop(event.acknowledge()));
        if is_done {
            break;
        }
    }
    output.flush()?;
    written
        .drain(..)
        .for_each(|event| drop(event.acknowledge()));
    consumer.close().about(&subject)
}

fn write(args: &DrainArgs, event: &QueueEvent, output: &mut Output) -> Result<(), Failure> {
    if args.plain {
        output.bytes(event.metadata())?;
        return output.bytes(b"\n");
    }
    let data = match event.data() {
        EventDataRef::Inline(data) => data,
        // There is no allocator here.
        EventDataRef::Allocated(_) | EventDataRef::None => Bytes::new(),
    };
    let data = match args.data_base64 {
        true => event_json::data_base64(&data),
        false => String::new(),
    };
    output.line(&event_json::event_line(event, &data))
}
