//! The files of the published simulator, StreamSim, as a scenario.

use crate::architecture::Architecture;
use crate::document::{Fields, ScenarioError, Text, one_of};
use crate::pace::{Loop, Rate};
use crate::pattern::Pattern;
use crate::payload::STAMP_BYTES;
use crate::scenario::{
    Amount, Backend, Conflict, IDLE_SECONDS, MEMBERS_MAX, MESSAGES_MAX, Part, Producers, Scenario,
    UpTo, Url,
};
use crate::settings::{Acks, COUNT_MAX, Confirms, Overflow, QUEUES_MAX, QueueKind, Settings};
use crate::shape::{MESSAGE_BYTES_MAX, Shape};
use std::fmt;

/// The files of one experiment: one of each role, and three that the roles share.
#[derive(Debug, Clone, Copy)]
pub struct Files<'a> {
    /// Of the producers.
    pub producer: Text<'a>,
    /// Of the consumers.
    pub consumer: Text<'a>,
    /// Of the coordinator.
    pub coordinator: Text<'a>,
    /// Sizes, rates and numbers.
    pub workload: Text<'a>,
    /// Confirms, acknowledgements and queues.
    pub tunables: Text<'a>,
    /// Where the server is.
    pub framework: Text<'a>,
}

/// Which of the files one is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Of the producers.
    Producer,
    /// Of the consumers.
    Consumer,
    /// Of the coordinator.
    Coordinator,
    /// Sizes, rates and numbers.
    Workload,
    /// Confirms, acknowledgements and queues.
    Tunables,
    /// Where the server is.
    Framework,
}

/// All of them.
pub const ROLES: [Role; 6] = [
    Role::Producer,
    Role::Consumer,
    Role::Coordinator,
    Role::Workload,
    Role::Tunables,
    Role::Framework,
];

impl Role {
    /// What a file is, by a field that no other has.
    ///
    /// # Errors
    /// If it is none of them.
    pub fn of(text: Text<'_>) -> Result<Self, ScenarioError> {
        let mut fields = Fields::of_json(text)?;
        let experiments = [
            ("producer", Self::Producer),
            ("consumer", Self::Consumer),
            ("coordinator", Self::Coordinator),
        ];
        if let Some(role) = fields.word("role", &experiments)? {
            return Ok(role);
        }
        let others = [
            ("WorkloadName", Self::Workload),
            ("Acknowledgements", Self::Tunables),
            ("toolkit", Self::Framework),
        ];
        let found = others.iter().find(|(key, _)| fields.value(key).is_some());
        found.map(|&(_, role)| role).ok_or_else(|| {
            fields.missing("role", "role, WorkloadName, Acknowledgements or toolkit: a file of the published simulator")
        })
    }

    /// How it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Producer => "an experiment with the role producer",
            Self::Consumer => "an experiment with the role consumer",
            Self::Coordinator => "an experiment with the role coordinator",
            Self::Workload => "a workload",
            Self::Tunables => "tunables",
            Self::Framework => "a framework",
        }
    }
}

/// A field that has no effect here, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ignored {
    /// The file.
    pub file: String,
    /// The field.
    pub key: String,
    /// Its value, unless it may be a secret.
    pub value: String,
    /// Why.
    pub why: &'static str,
}

impl fmt::Display for Ignored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            file,
            key,
            value,
            why,
        } = self;
        write!(f, "{file}: {key} = {value} is ignored: {why}")
    }
}

/// A scenario from published files.
#[derive(Debug, Clone, PartialEq)]
pub struct Published {
    /// The scenario.
    pub scenario: Scenario,
    /// Fields without effect.
    pub ignored: Vec<Ignored>,
    /// What the published program would do otherwise than these files suggest.
    pub concerns: Vec<String>,
}

/// Why the fields that the published program itself never looks at have no effect.
const UNUSED: &str = "the published program reads it and does not use it";

/// What no program reads.
const UNKNOWN: &str = "the published program does not know it";

/// One role's file.
struct Experiment {
    pattern: Pattern,
    amount: Events,
}

/// How much one process sends or takes.
#[derive(PartialEq, Eq, Clone, Copy)]
enum Events {
    Count(u64),
    Seconds(u64),
}

/// The workload's file.
struct Workload {
    shape: Shape,
    producers: u64,
    consumers: u64,
}

impl Published {
    /// Reads all files of an experiment.
    ///
    /// # Errors
    /// If a field is missing or has a value with which the published program would not run or never end.
    pub fn read(files: Files<'_>) -> Result<Self, ScenarioError> {
        let mut ignored = Vec::new();
        let mut producer = Fields::of_json(files.producer)?;
        let sent = experiment(&mut producer, "producer", &mut ignored)?;
        let mut consumer = Fields::of_json(files.consumer)?;
        let taken = experiment(&mut consumer, "consumer", &mut ignored)?;
        let mut coordinator = Fields::of_json(files.coordinator)?;
        let told = experiment(&mut coordinator, "coordinator", &mut ignored)?;
        for (fields, other) in [(&consumer, &taken), (&coordinator, &told)] {
            if other.pattern != sent.pattern {
                return Err(fields.error(
                    "testPattern",
                    &format!("another pattern than in {}", files.producer.file),
                    "the same in all roles",
                ));
            }
        }
        let mut workload = Fields::of_json(files.workload)?;
        let made = read_workload(&mut workload, &mut ignored)?;
        let mut tunables = Fields::of_json(files.tunables)?;
        let settings = read_tunables(&mut tunables, &mut ignored)?;
        let mut framework = Fields::of_json(files.framework)?;
        let (url, tls, architecture) = read_framework(&mut framework, &mut ignored)?;
        let batch = made.shape.events_per_message;
        let amount = match sent.amount {
            Events::Seconds(seconds) => Amount::Seconds(seconds),
            Events::Count(events) => Amount::Messages(vec![UpTo {
                consumers: u64::MAX,
                messages: events / batch * made.producers,
            }]),
        };
        let scenario = Scenario {
            name: made.shape.name.clone(),
            backend: Backend::Amqp,
            url: Some(Url(url)),
            tls,
            architecture,
            pattern: sent.pattern,
            consumers: vec![made.consumers],
            producers: Producers::Count(made.producers),
            amount,
            rate: Rate::Published,
            pacing: Loop::Open,
            settings,
            disruptions: Vec::new(),
            repeat: 1,
            seed: 1,
            pack: 1,
            idle_seconds: IDLE_SECONDS,
            shape: made.shape,
        };
        scenario.check().map_err(
            |Conflict {
                 part,
                 found,
                 expected,
             }| match part {
                Part::Queues => tunables.error("TotalQueues", &found, &expected),
                Part::Prefetch => tunables.error("PrefetchCount.PerConsumer", &found, &expected),
                Part::QueueKind => {
                    tunables.error("QueueProperties.QueueStructure", &found, &expected)
                }
                Part::WorkloadRate => workload.error("DataRate", &found, &expected),
                Part::Messages | Part::Loop | Part::Faults => {
                    producer.error("msgCount", &found, &expected)
                }
            },
        )?;
        for (file, fields) in [
            (files.producer.file, producer),
            (files.consumer.file, consumer),
            (files.coordinator.file, coordinator),
            (files.workload.file, workload),
            (files.tunables.file, tunables),
            (files.framework.file, framework),
        ] {
            leave_rest(file, fields, &mut ignored);
        }
        let concerns = concerns(&scenario, sent.amount, taken.amount);
        Ok(Self {
            scenario,
            ignored,
            concerns,
        })
    }
}

fn leave_rest(file: &str, fields: Fields, ignored: &mut Vec<Ignored>) {
    ignored.extend(fields.rest().into_iter().map(|(key, value)| Ignored {
        file: file.to_owned(),
        key,
        value,
        why: UNKNOWN,
    }));
}

/// Takes a field that has no effect, if it is there.
fn ignore(fields: &mut Fields, key: &str, why: &'static str, ignored: &mut Vec<Ignored>) {
    if let Some(value) = fields.value(key) {
        let at = fields.wrong(key, &value, "");
        ignored.push(Ignored {
            file: at.file,
            key: at.key,
            value: at.found,
            why,
        });
    }
}

/// Takes a field that has no effect and may hold a secret.
fn ignore_secret(fields: &mut Fields, key: &str, why: &'static str, ignored: &mut Vec<Ignored>) {
    if fields.value(key).is_some() {
        let at = fields.missing(key, "");
        ignored.push(Ignored {
            file: at.file,
            key: at.key,
            value: "…".to_owned(),
            why,
        });
    }
}

/// The type of a test beside its pattern.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TestType {
    Throughput,
    Latency,
}

fn experiment(
    fields: &mut Fields,
    role: &str,
    ignored: &mut Vec<Ignored>,
) -> Result<Experiment, ScenarioError> {
    fields
        .word("role", &[(role, ())])?
        .ok_or_else(|| fields.missing("role", &format!("{role:?}")))?;
    let types = [
        ("throughput", TestType::Throughput),
        ("latency", TestType::Latency),
    ];
    let test = fields
        .word("testType", &types)?
        .ok_or_else(|| fields.missing("testType", "\"throughput\" or \"latency\""))?;
    let patterns = [
        ("work-sharing", Pattern::WorkSharing),
        ("work-sharing-fb", Pattern::WorkSharingFeedback),
        ("broadcast", Pattern::Broadcast),
        ("broadcast-gather", Pattern::BroadcastGather),
    ];
    let pattern = fields
        .word("testPattern", &patterns)?
        .ok_or_else(|| fields.missing("testPattern", &one_of(patterns.iter().map(|one| one.0))))?;
    let fitting = match pattern.has_replies() {
        true => TestType::Latency,
        false => TestType::Throughput,
    };
    if test != fitting {
        return Err(fields.error(
            "testType",
            "one that its testPattern has not",
            "throughput with work-sharing and broadcast, latency with work-sharing-fb and broadcast-gather",
        ));
    }
    let amount = match fields.word("testMode", &[("msgCount", true), ("duration", false)])? {
        None => return Err(fields.missing("testMode", "\"msgCount\" or \"duration\"")),
        Some(true) => {
            ignore(fields, "duration", "testMode is msgCount", ignored);
            let count = fields.number("msgCount", 1..=MESSAGES_MAX)?;
            Events::Count(count.ok_or_else(|| fields.missing("msgCount", "events a process"))?)
        }
        Some(false) => {
            ignore(fields, "msgCount", "testMode is duration", ignored);
            let seconds = fields.number("duration", 1..=86_400)?;
            Events::Seconds(seconds.ok_or_else(|| fields.missing("duration", "seconds"))?)
        }
    };
    ignore(fields, "numPhases", UNUSED, ignored);
    ignore(fields, "concurrency", UNUSED, ignored);
    ignore(
        fields,
        "RunnerID",
        "the published program makes one by chance in its place",
        ignored,
    );
    Ok(Experiment { pattern, amount })
}

/// How a published payload is made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Plain,
    Json,
    Binary,
    Hdf5,
}

fn read_workload(
    fields: &mut Fields,
    ignored: &mut Vec<Ignored>,
) -> Result<Workload, ScenarioError> {
    let name = fields
        .text("WorkloadName")?
        .ok_or_else(|| fields.missing("WorkloadName", "a name"))?;
    let size = fields
        .number("PayloadSize", 1..=MESSAGE_BYTES_MAX)?
        .ok_or_else(|| fields.missing("PayloadSize", "bytes of an event"))?;
    let formats = [
        ("plaintext", Format::Plain),
        ("json", Format::Json),
        ("binary", Format::Binary),
        ("hdf5", Format::Hdf5),
    ];
    let format = fields
        .word("PayloadFormat", &formats)?
        .ok_or_else(|| fields.missing("PayloadFormat", &one_of(formats.iter().map(|one| one.0))))?;
    let element = fields.text("PayloadElement")?.unwrap_or_default();
    let (batch, has_batches) = packaging(fields)?;
    let event_bytes = size + added_bytes(format, &element);
    let message_bytes = event_bytes * batch;
    if !(STAMP_BYTES as u64..=MESSAGE_BYTES_MAX).contains(&message_bytes) {
        return Err(fields.error(
            "PayloadSize",
            &format!("{size}, and messages of {message_bytes} bytes"),
            &format!("messages of {STAMP_BYTES} to {MESSAGE_BYTES_MAX} bytes"),
        ));
    }
    let kilobytes = fields.number("DataRate", 0..=u64::MAX / 1000)?;
    let members = 1..=MEMBERS_MAX;
    let producers = fields
        .number("NumProducers", members.clone())?
        .ok_or_else(|| fields.missing("NumProducers", "a number"))?;
    let consumers = fields
        .number("NumConsumers", members)?
        .ok_or_else(|| fields.missing("NumConsumers", "a number"))?;
    for key in [
        "ProducerParallelism",
        "ConsumerParallelism",
        "Variability",
        "ConsumptionMode",
        "ConsPayloadDistribution",
    ] {
        ignore(fields, key, UNUSED, ignored);
    }
    Ok(Workload {
        shape: Shape {
            name,
            message_bytes,
            events_per_message: if has_batches { batch } else { 1 },
            rate_bytes_per_second: kilobytes.filter(|rate| *rate > 0).map(|rate| rate * 1000),
        },
        producers,
        consumers,
    })
}

/// Events in a message, and whether it says so.
fn packaging(fields: &mut Fields) -> Result<(u64, bool), ScenarioError> {
    const KEY: &str = "DataPackaging";
    let mut table = fields
        .table(KEY)?
        .ok_or_else(|| fields.missing(KEY, "a table with type"))?;
    let has_batches = table
        .word("type", &[("batched", true), ("individual", false)])?
        .ok_or_else(|| table.missing("type", "\"batched\" or \"individual\""))?;
    let count = table.number("batchMessageCount", 0..=1_000_000)?;
    match (has_batches, count.filter(|count| *count > 0)) {
        (true, Some(count)) => Ok((count, true)),
        (false, None) => Ok((1, false)),
        (true, None) => Err(table.missing("batchMessageCount", "a count, for type is batched")),
        (false, Some(count)) => Err(table.error(
            "batchMessageCount",
            &count.to_string(),
            "nothing, for type is individual",
        )),
    }
}

/// What the published program puts beside the bytes of an "hdf5" payload: a line that names its element. The
/// signature is within the size.
fn added_bytes(format: Format, element: &str) -> u64 {
    match (format, element) {
        (Format::Hdf5, "file" | "image") => 21,
        (Format::Hdf5, "variable") => 17,
        _ => 0,
    }
}

fn read_tunables(
    fields: &mut Fields,
    ignored: &mut Vec<Ignored>,
) -> Result<Settings, ScenarioError> {
    let mut acknowledgements = needed(fields, "Acknowledgements")?;
    let confirms = confirms(&mut needed(&mut acknowledgements, "PublisherConfirms")?)?;
    let acks = acks(&mut needed(&mut acknowledgements, "ConsumerAcks")?, ignored)?;
    let mut durability = needed(fields, "Durability")?;
    let mut is_durable = |key: &str| {
        durability
            .word(key, &[("none", false), ("persistent", true)])?
            .ok_or_else(|| durability.missing(key, "\"none\" or \"persistent\""))
    };
    let durable_messages = is_durable("MessageDurability")?;
    let durable_queues = is_durable("QueueDurability")?;
    let mut prefetch = needed(fields, "PrefetchCount")?;
    let mut queue = needed(fields, "QueueProperties")?;
    let settings = Settings {
        confirms,
        acks,
        prefetch: prefetch
            .number("PerConsumer", 0..=COUNT_MAX)?
            .ok_or_else(|| prefetch.missing("PerConsumer", "messages"))?,
        queues: fields
            .number("TotalQueues", 1..=QUEUES_MAX)?
            .ok_or_else(|| fields.missing("TotalQueues", "a number"))?,
        durable_messages,
        durable_queues,
        queue: queue
            .word("QueueStructure", &QueueKind::WORDS)?
            .ok_or_else(|| queue.missing("QueueStructure", "a kind of queue"))?,
        queue_messages_max: queue
            .number("QueueSizeMessages", 1..=u64::MAX)?
            .ok_or_else(|| queue.missing("QueueSizeMessages", "messages"))?,
        overflow: queue
            .word("QueueOverflow", &Overflow::WORDS)?
            .ok_or_else(|| queue.missing("QueueOverflow", "what happens at the bound"))?,
    };
    ignore(fields, "BindingDurability", UNUSED, ignored);
    ignore(fields, "StreamUseCase", UNUSED, ignored);
    Ok(settings)
}

fn needed(fields: &mut Fields, key: &str) -> Result<Fields, ScenarioError> {
    fields
        .table(key)?
        .ok_or_else(|| fields.missing(key, "a table"))
}

fn confirms(fields: &mut Fields) -> Result<Confirms, ScenarioError> {
    let words = [
        ("no_acks", Confirms::None),
        ("individual_sync", Confirms::Each),
        ("individual_async", Confirms::Async),
        ("batch_sync", Confirms::Batch(0)),
    ];
    let kind = fields
        .word("type", &words)?
        .ok_or_else(|| fields.missing("type", &one_of(words.iter().map(|one| one.0))))?;
    let size = fields.number("batchSize", 1..=COUNT_MAX)?;
    match (kind, size) {
        (Confirms::Batch(_), Some(size)) => Ok(Confirms::Batch(size)),
        (Confirms::Batch(_), None) => Err(fields.missing("batchSize", "a count, for batch_sync")),
        (other, None) => Ok(other),
        (_, Some(size)) => Err(fields.error(
            "batchSize",
            &size.to_string(),
            "nothing, for type is not batch_sync",
        )),
    }
}

fn acks(fields: &mut Fields, ignored: &mut Vec<Ignored>) -> Result<Acks, ScenarioError> {
    let is_manual = fields
        .word("mode", &[("automatic", false), ("manual", true)])?
        .ok_or_else(|| fields.missing("mode", "\"automatic\" or \"manual\""))?;
    if !is_manual {
        ignore(fields, "manualAckType", "mode is automatic", ignored);
        ignore(
            fields,
            "manualAckMultipleCount",
            "mode is automatic",
            ignored,
        );
        return Ok(Acks::Automatic);
    }
    let is_multiple = fields
        .word("manualAckType", &[("single", false), ("multiple", true)])?
        .ok_or_else(|| fields.missing("manualAckType", "\"single\" or \"multiple\""))?;
    if !is_multiple {
        ignore(
            fields,
            "manualAckMultipleCount",
            "manualAckType is single",
            ignored,
        );
        return Ok(Acks::Each);
    }
    fields
        .number("manualAckMultipleCount", 1..=COUNT_MAX)?
        .map(Acks::Every)
        .ok_or_else(|| fields.missing("manualAckMultipleCount", "a count"))
}

fn read_framework(
    fields: &mut Fields,
    ignored: &mut Vec<Ignored>,
) -> Result<(String, bool, Architecture), ScenarioError> {
    let architectures = [
        ("none", "direct"),
        ("ds2hpc", "direct"),
        ("scistream", "proxied"),
    ];
    let toolkit = fields
        .word("toolkit", &architectures)?
        .ok_or_else(|| fields.missing("toolkit", &one_of(architectures.iter().map(|one| one.0))))?;
    let tls = fields
        .word("tlsEncryption", &[("Tls", true), ("NoTls", false)])?
        .ok_or_else(|| fields.missing("tlsEncryption", "\"Tls\" or \"NoTls\""))?;
    let url = fields
        .text("amqpsUrl")?
        .ok_or_else(|| fields.missing("amqpsUrl", "a URL"))?;
    let elsewhere = "it must be there, and amqpsUrl says it";
    ignore(fields, "hostname", elsewhere, ignored);
    ignore(fields, "port", elsewhere, ignored);
    ignore_secret(fields, "authentication", elsewhere, ignored);
    let architecture = Architecture::named(toolkit).expect("the table has names of architectures");
    Ok((url, tls, architecture))
}

/// What surprises people in the published files.
fn concerns(scenario: &Scenario, sent: Events, taken: Events) -> Vec<String> {
    let mut concerns = Vec::new();
    let batch = scenario.shape.events_per_message;
    let consumers = scenario.consumers[0];
    let producers = scenario.producers_of(consumers);
    if let Events::Count(events) = sent {
        let least = scenario.least_each();
        let messages = events / batch;
        if !messages.is_multiple_of(least) || !events.is_multiple_of(batch) {
            concerns.push(format!(
                "{events} events of a producer are {} messages in whole batches of {least}; the rest is never sent",
                messages - messages % least
            ));
        }
    }
    if let (Events::Count(sent), Events::Count(taken)) = (sent, taken) {
        let delivered = u128::from(sent / batch) * u128::from(scenario.pattern.copies(consumers));
        let delivered = delivered * u128::from(producers);
        let expected = u128::from(taken / batch) * u128::from(consumers);
        if delivered != expected {
            concerns.push(format!(
                "producers send for {delivered} deliveries and consumers wait for {expected}: the published consumers \
                 would end early, or by idling for {IDLE_SECONDS} s"
            ));
        }
    }
    if scenario.tls {
        concerns.push("the published program does not verify the server's certificate".to_owned());
    }
    concerns
}
