//! The work that is measured.

use super::peer::cpu_ns;
use crate::failure::{About, Code, Failure};
use client::{BatchPolicy, ConsumerOptions, Driver, ProducerOptions, TopicHandle};
use std::time::{Duration, Instant};
use topic::{Definition, SerializerKind};
use wire::Durability;
use wire::message::PartitionStorage;

/// Which way events go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// From the client to the server, to the last acknowledgement.
    Produce,
    /// From the server's history to the client.
    Consume,
}

/// What is measured.
#[derive(Debug, Clone)]
pub struct Case {
    pub work: Work,
    pub storage: String,
    pub durability: Option<Durability>,
    pub event_bytes: usize,
    pub events: u64,
    pub batch_bytes: u32,
}

impl Case {
    /// Bytes of metadata in a repetition.
    pub fn bytes(&self) -> u64 {
        self.events * self.event_bytes as u64
    }
}

/// One repetition.
#[derive(Debug, Clone, Copy)]
pub struct Measured {
    pub seconds: f64,
    pub client_cpu_ns: u64,
    pub server_cpu_ns: u64,
}

/// What failures of a repetition are about.
const SUBJECT: &str = "the repetition";
const WAIT: Duration = Duration::from_secs(120);

/// Runs one repetition on a topic of its own, which is left in place.
pub fn run(case: &Case, topic: &str, driver: &Driver, server: u32) -> Result<Measured, Failure> {
    let topic = make_topic(case, topic, driver)?;
    match case.work {
        Work::Produce => timed(server, || produce(case, &topic)),
        Work::Consume => {
            produce(case, &topic)?;
            timed(server, || consume(case, &topic))
        }
    }
}

fn timed(server: u32, work: impl FnOnce() -> Result<(), Failure>) -> Result<Measured, Failure> {
    let client = std::process::id();
    let cpu = |process| cpu_ns(process).about("processor time");
    let before = (cpu(client)?, cpu(server)?);
    let began = Instant::now();
    work()?;
    let seconds = began.elapsed().as_secs_f64();
    Ok(Measured {
        seconds,
        client_cpu_ns: cpu(client)? - before.0,
        server_cpu_ns: cpu(server)? - before.1,
    })
}

fn make_topic(case: &Case, name: &str, driver: &Driver) -> Result<TopicHandle, Failure> {
    let mut definition = Definition::builder().serializer(SerializerKind::Raw);
    if let Some(level) = case.durability {
        definition = definition.durability(level);
    }
    let definition = definition
        .build()
        .map_err(|error| Failure::usage(name, error))?;
    let storage = PartitionStorage {
        kind: case.storage.clone(),
        config: String::new(),
    };
    driver
        .create_topic(name, &definition, &[storage])
        .about(name)
}

fn produce(case: &Case, topic: &TopicHandle) -> Result<(), Failure> {
    let batch = BatchPolicy {
        bytes_max: case.batch_bytes,
        ..BatchPolicy::default()
    };
    let options = ProducerOptions {
        batch,
        ..ProducerOptions::default()
    };
    let producer = topic.producer(options).about(SUBJECT)?;
    // Random enough that nothing on the way can profit from its content.
    let mut event: Vec<u8> = (0..case.event_bytes)
        .map(|at| (at * 167 + 13) as u8)
        .collect();
    for index in 0..case.events {
        let bytes = index.to_le_bytes();
        let stamp = bytes.len().min(event.len());
        event[..stamp].copy_from_slice(&bytes[..stamp]);
        producer.push_metadata(&event).about(SUBJECT)?;
    }
    producer.flush(WAIT).about(SUBJECT)?;
    producer.close(WAIT).about(SUBJECT)
}

fn consume(case: &Case, topic: &TopicHandle) -> Result<(), Failure> {
    let consumer = topic
        .consumer("bench", ConsumerOptions::default())
        .about(SUBJECT)?;
    let (mut seen, mut bytes) = (0, 0);
    while seen < case.events {
        let events = consumer.pull_batch(4096, Some(WAIT)).about(SUBJECT)?;
        if events.is_empty() {
            let what = format!(
                "{seen} of {} events came, then none for {WAIT:?}",
                case.events
            );
            return Err(Failure::new(Code::Timeout, SUBJECT, what));
        }
        seen += events.len() as u64;
        bytes += events
            .iter()
            .map(|event| event.metadata().len() as u64)
            .sum::<u64>();
    }
    match bytes == case.bytes() {
        true => consumer.close().about(SUBJECT),
        false => Err(Failure::new(
            Code::Failure,
            SUBJECT,
            format!("{bytes} bytes came, not {}", case.bytes()),
        )),
    }
}
