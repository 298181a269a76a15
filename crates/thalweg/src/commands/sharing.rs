//! `thalweg group` and `thalweg queue`.

use crate::cli::{GroupCommand, QueueCommand, RedriveArgs, SharedArgs, SharedListArgs};
use crate::event_json::event_line;
use crate::failure::{About, Failure};
use crate::output::{Output, table};
use client::{
    ConsumedEvent, Driver, Event, Lag, ProducerOptions, QueueConsumerOptions, TopicHandle,
};
use serde_json::{Value, json};
use std::time::Duration;
use topic::QueueOptions;
use wire::message::{ConsumerDescription, ConsumerPartition};
use wire::record::{ConsumerKind, Position};

/// How long a letter that is stored anew may take.
const STORE_TIMEOUT: Duration = Duration::from_secs(120);
/// How long nothing more has to come for a dead-letter queue to be through.
const QUIET: Duration = Duration::from_secs(1);
/// How many are stored again at once.
const TURN_MAX: usize = 256;
/// Bytes of dead letters that are read at once.
const READ_BYTES: u64 = 4 << 20;

pub fn group(command: GroupCommand) -> Result<(), Failure> {
    match command {
        GroupCommand::List(args) => list(ConsumerKind::Group, &args),
        GroupCommand::Describe(args) => describe(ConsumerKind::Group, &args),
        GroupCommand::Delete(args) => delete(ConsumerKind::Group, &args),
    }
}

pub fn queue(command: QueueCommand) -> Result<(), Failure> {
    match command {
        QueueCommand::List(args) => list(ConsumerKind::Queue, &args),
        QueueCommand::Describe(args) => describe(ConsumerKind::Queue, &args),
        QueueCommand::Delete(args) => delete(ConsumerKind::Queue, &args),
        QueueCommand::Drain(args) => super::drain::run(&args),
        QueueCommand::Dead(args) => dead(&args),
        QueueCommand::Redrive(args) => redrive(&args),
    }
}

fn list(kind: ConsumerKind, args: &SharedListArgs) -> Result<(), Failure> {
    let driver = args.client.connection.driver()?;
    let topic = driver.open_topic(&args.topic).about(&args.topic)?;
    let consumers = topic.describe_consumers("").about(&args.topic)?;
    let partitions = topic.refresh().about(&args.topic)?.partitions;
    let mut output = Output::new(args.client.json);
    let mut rows = Vec::new();
    for consumer in consumers.iter().filter(|consumer| consumer.kind == kind) {
        let lag = Lag::of(consumer, &partitions);
        if output.is_json() {
            output.json(&to_json(consumer, &lag))?;
        }
        let sum = |of: fn(&ConsumerPartition) -> u64| {
            let all: u64 = consumer.partitions.iter().map(of).sum();
            all.to_string()
        };
        let present = consumer.members.iter().filter(|member| member.present);
        rows.push(vec![
            consumer.consumer.clone(),
            format!("{} of {}", present.count(), consumer.members.len()),
            lag.events.to_string(),
            sum(|partition| partition.leased),
            sum(|partition| partition.dead),
        ]);
    }
    if !output.is_json() {
        let header = [kind.name(), "members", "lag", "leased", "dead"];
        output.line(&table(&header, &rows))?;
    }
    output.flush()
}

fn described(
    kind: ConsumerKind,
    topic: &TopicHandle,
    name: &str,
) -> Result<ConsumerDescription, Failure> {
    let subject = format!("{}/{name}", topic.name());
    let consumers = topic.describe_consumers(name).about(&subject)?;
    let consumer = consumers.into_iter().find(|found| found.consumer == name);
    match consumer {
        Some(consumer) if consumer.kind == kind => Ok(consumer),
        Some(consumer) => {
            let why = format!(
                "the consumer is of the kind {}, not a {kind}",
                consumer.kind
            );
            Err(Failure::usage(&subject, why))
        }
        None => Err(Failure::usage(&subject, format!("there is no such {kind}"))),
    }
}

fn describe(kind: ConsumerKind, args: &SharedArgs) -> Result<(), Failure> {
    let driver = args.client.connection.driver()?;
    let topic = driver.open_topic(&args.topic).about(&args.topic)?;
    let consumer = described(kind, &topic, &args.name)?;
    let partitions = topic.refresh().about(&args.topic)?.partitions;
    let lag = Lag::of(&consumer, &partitions);
    let mut output = Output::new(args.client.json);
    if output.is_json() {
        output.json(&to_json(&consumer, &lag))?;
        return output.flush();
    }
    output.line(&format!("name     {}", consumer.consumer))?;
    output.line(&format!("kind     {}", consumer.kind))?;
    output.line(&format!("options  {}", consumer.options))?;
    let owner = |partition: &ConsumerPartition| {
        let owns = consumer
            .members
            .iter()
            .find(|member| member.partitions.contains(&partition.partition));
        owns.map_or("-".to_owned(), |member| member.client_name.clone())
    };
    let partitions: Vec<_> = consumer
        .partitions
        .iter()
        .map(|partition| {
            let mut row = vec![
                partition.partition.to_string(),
                partition.position.offset.to_string(),
                partition.end.to_string(),
                lag_of(&lag, partition).to_string(),
            ];
            row.extend(match kind {
                ConsumerKind::Queue => [
                    partition.leased,
                    partition.returned,
                    partition.delayed,
                    partition.dead,
                ]
                .map(|count| count.to_string())
                .to_vec(),
                _ => vec![owner(partition)],
            });
            row
        })
        .collect();
    let mut header = vec!["partition", "position", "end", "lag"];
    header.extend(match kind {
        ConsumerKind::Queue => &["leased", "returned", "delayed", "dead"][..],
        _ => &["owner"],
    });
    output.line(&table(&header, &partitions))?;
    let members: Vec<_> = consumer
        .members
        .iter()
        .map(|member| {
            let presence = if member.present { "present" } else { "away" };
            vec![
                member.member.to_string(),
                member.instance.clone(),
                member.client_name.clone(),
                presence.to_owned(),
                format!("{:.1}", member.silent_ms as f64 / 1000.0),
                member.leased_events.to_string(),
                member.leased_bytes.to_string(),
            ]
        })
        .collect();
    let header = [
        "member",
        "instance",
        "client",
        "state",
        "silent s",
        "leased",
        "leased bytes",
    ];
    output.line(&table(&header, &members))?;
    output.flush()
}

/// How far it is behind in a partition: no further than there are events.
fn lag_of(lag: &Lag, partition: &ConsumerPartition) -> u64 {
    let mut partitions = lag.partitions.iter();
    let found = partitions.find(|(index, _)| *index == partition.partition);
    // One that was added since the topic was looked at.
    found.map_or_else(|| partition.lag(), |(_, lag)| *lag)
}

fn to_json(consumer: &ConsumerDescription, lag: &Lag) -> Value {
    let members = consumer.members.iter().map(|member| {
        let partitions: Vec<u32> = member.partitions.iter().map(|index| index.0).collect();
        json!({
            "member": member.member.to_string(),
            "instance": member.instance,
            "client": member.client_name,
            "present": member.present,
            "silent_ms": member.silent_ms,
            "partitions": partitions,
            "leased_events": member.leased_events,
            "leased_bytes": member.leased_bytes,
        })
    });
    let partitions = consumer.partitions.iter().map(|partition| {
        json!({
            "partition": partition.partition.0,
            "incarnation": partition.position.incarnation.0,
            "position": partition.position.offset.0,
            "end": partition.end.0,
            "lag": lag_of(lag, partition),
            "settled": partition.settled,
            "leased": partition.leased,
            "returned": partition.returned,
            "delayed": partition.delayed,
            "dead": partition.dead,
        })
    });
    let options: Value = serde_json::from_str(&consumer.options).unwrap_or_default();
    json!({
        "name": consumer.consumer,
        "kind": consumer.kind.name(),
        "options": options,
        "members": members.collect::<Vec<_>>(),
        "partitions": partitions.collect::<Vec<_>>(),
    })
}

fn delete(kind: ConsumerKind, args: &SharedArgs) -> Result<(), Failure> {
    let driver = args.client.connection.driver()?;
    let topic = driver.open_topic(&args.topic).about(&args.topic)?;
    described(kind, &topic, &args.name)?;
    driver
        .delete_consumer(&topic, &args.name)
        .about(format!("{}/{}", args.topic, args.name))?;
    let mut output = Output::new(args.client.json);
    let value = json!({"topic": args.topic, "deleted": args.name});
    output.either(&value, &format!("deleted {kind} {}", args.name))?;
    output.flush()
}

/// The topic where a queue's dead letters are.
fn dead_letters(driver: &Driver, topic: &TopicHandle, name: &str) -> Result<TopicHandle, Failure> {
    let queue = described(ConsumerKind::Queue, topic, name)?;
    let subject = format!("{}/{name}", topic.name());
    let options = QueueOptions::from_json(&queue.options)
        .map_err(|error| Failure::usage(&subject, error.to_string()))?;
    let dead = options.dead_letter_topic_of(topic.name());
    driver.open_topic(&dead).about(&dead)
}

/// An event's header as text.
fn header(event: &ConsumedEvent, name: &str) -> Option<String> {
    let headers = event.headers();
    let value = headers.iter().find(|(found, _)| found == name)?;
    Some(String::from_utf8_lossy(&value.1).into_owned())
}

/// Whether a dead letter comes from this queue.
fn is_of(letter: &ConsumedEvent, topic: &str, queue: &str) -> bool {
    header(letter, "thalweg.topic").as_deref() == Some(topic)
        && header(letter, "thalweg.queue").as_deref() == Some(queue)
}

fn dead(args: &SharedArgs) -> Result<(), Failure> {
    let driver = args.client.connection.driver()?;
    let topic = driver.open_topic(&args.topic).about(&args.topic)?;
    let letters = dead_letters(&driver, &topic, &args.name)?;
    let mut output = Output::new(args.client.json);
    let mut rows = Vec::new();
    for partition in letters.partitions() {
        let end = partition.watermarks.committed;
        let mut at = Position {
            incarnation: partition.incarnation,
            offset: partition.first,
        };
        while at.offset < end {
            let fetched = letters
                .fetch(partition.partition, at, READ_BYTES, Duration::ZERO, false)
                .about(letters.name())?;
            for letter in fetched.events() {
                if !is_of(&letter, &args.topic, &args.name) {
                    continue;
                }
                if output.is_json() {
                    output.line(&event_line(&letter, ""))?;
                }
                let said = |name: &str| header(&letter, name).unwrap_or_default();
                rows.push(vec![
                    format!("{}/{}", letter.id().partition, letter.id().offset),
                    format!("{}/{}", said("thalweg.partition"), said("thalweg.offset")),
                    said("thalweg.deliveries"),
                    said("thalweg.reason"),
                ]);
            }
            let Some(next) = fetched.next.filter(|next| *next > at) else {
                break;
            };
            at = next;
        }
    }
    if !output.is_json() {
        let header = ["dead letter", "event", "deliveries", "reason"];
        output.line(&table(&header, &rows))?;
    }
    output.flush()
}

/// Puts dead letters of a queue into its topic again, each settled in the
/// dead-letter topic once it is stored.
fn redrive(args: &RedriveArgs) -> Result<(), Failure> {
    let driver = args.client.connection.driver()?;
    let topic = driver.open_topic(&args.topic).about(&args.topic)?;
    let letters = dead_letters(&driver, &topic, &args.name)?;
    // Where several topics have their dead letters together, each passes over
    // those of the others for itself.
    let name = match letters.name() == QueueOptions::default().dead_letter_topic_of(&args.topic) {
        true => format!("redrive.{}", args.name),
        false => format!("redrive.{}.{}", args.topic, args.name),
    };
    let options = QueueConsumerOptions {
        queue: QueueOptions {
            deliveries_max: 0,
            ..QueueOptions::default()
        },
        renew: true,
        job_end: None,
        ..QueueConsumerOptions::default()
    };
    let queue = letters.queue(&name, options).about(letters.name())?;
    let producer = topic
        .producer(ProducerOptions::default())
        .about(&args.topic)?;
    let mut redriven = 0u64;
    loop {
        let left = args.max.map_or(u64::MAX, |max| max - redriven);
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(TURN_MAX);
        let turn = match most {
            0 => Vec::new(),
            most => queue.pull_batch(most, Some(QUIET)).about(letters.name())?,
        };
        if turn.is_empty() {
            break;
        }
        let turn: Vec<_> = turn
            .into_iter()
            .map(|mut letter| {
                let ours = is_of(&letter, &args.topic, &args.name);
                if ours {
                    push_again(&producer, &mut letter).about(&args.topic)?;
                    redriven += 1;
                }
                Ok(letter)
            })
            .collect::<Result<_, Failure>>()?;
        producer.flush(STORE_TIMEOUT).about(&args.topic)?;
        let settled: Vec<_> = turn.iter().map(|letter| letter.acknowledge()).collect();
        for settled in settled {
            settled.wait(Some(STORE_TIMEOUT)).about(letters.name())?;
        }
    }
    queue.close().about(letters.name())?;
    let mut output = Output::new(args.client.json);
    output.either(
        &json!({"topic": args.topic, "queue": args.name, "redriven": redriven}),
        &format!("{redriven} dead letters are in {} again", args.topic),
    )?;
    output.flush()
}

/// Stores a dead letter as the event that it was.
fn push_again(
    producer: &client::Producer,
    letter: &mut client::QueueEvent,
) -> Result<(), client::ClientError> {
    let data = letter.take_data();
    let headers = letter.headers();
    let headers: Vec<(&str, &[u8])> = headers
        .iter()
        .filter(|(name, _)| !name.starts_with("thalweg."))
        .map(|(name, value)| (name.as_str(), value.as_ref()))
        .collect();
    let event = Event {
        key: letter.key(),
        headers: &headers,
        producer_time: letter.producer_time(),
        tombstone: letter.tombstone(),
        ..Event::new(letter.metadata())
    };
    producer.push(event.with_data(data)).map(drop)
}
