//! `thalweg topic`.

use crate::cli::{AddPartitionsArgs, Storage, TopicAlterArgs, TopicCommand, TopicCreateArgs};
use crate::commands::nodes;
use crate::failure::{About, Failure};
use crate::output::{Output, table};
use serde_json::{Value, json};
use std::io::{self, IsTerminal, Write};
use topic::{Definition, TopicKind, part_name, part_of_name};
use wire::message::{PartitionDescription, PartitionStorage, TopicDescription};

pub fn run(command: TopicCommand) -> Result<(), Failure> {
    match command {
        TopicCommand::Create(args) => create(&args),
        TopicCommand::List(args) => {
            let driver = args.client.connection.driver()?;
            let topics = driver
                .list_topics()
                .about(args.client.connection.subject())?;
            let mut output = Output::new(args.client.json);
            for topic in &topics {
                if !args.all && is_companion(&topic.name, &topics) {
                    continue;
                }
                output.either(&to_json(topic), &topic.name)?;
            }
            output.flush()
        }
        TopicCommand::Describe(args) => {
            let driver = args.client.connection.driver()?;
            let topic = driver.describe_topic(&args.name).about(&args.name)?;
            let mut output = Output::new(args.client.json);
            let overflow = overflow(&driver, &topic)?;
            if output.is_json() {
                let mut json = to_json(&topic);
                for (partition, overflow) in overflow {
                    json["partitions"][partition]["overflow"] = overflow;
                }
                output.json(&json)?;
                return output.flush();
            }
            print(&mut output, &topic)?;
            if !overflow.is_empty() {
                let header = [
                    "partition",
                    "waiting",
                    "bytes",
                    "refused",
                    "dropped",
                    "discarded",
                ];
                output.line(&table(&header, &overflow_rows(&overflow)))?;
            }
            output.flush()
        }
        TopicCommand::Delete(args) => {
            let driver = args.client.connection.driver()?;
            if !args.yes {
                confirm_deletion(&driver.describe_topic(&args.name).about(&args.name)?)?;
            }
            driver.delete_topic(&args.name).about(&args.name)?;
            let mut output = Output::new(args.client.json);
            output.either(
                &json!({"deleted": args.name}),
                &format!("deleted {}", args.name),
            )?;
            output.flush()
        }
        TopicCommand::AddPartitions(args) => add_partitions(&args),
        TopicCommand::Alter(args) => alter(&args),
        TopicCommand::Place(args) => nodes::place(&args),
    }
}

/// Asks at the terminal; without one, `--yes` is needed.
fn confirm_deletion(topic: &TopicDescription) -> Result<(), Failure> {
    let events: u64 = topic
        .partitions
        .iter()
        .map(|one| one.watermarks.end.0.saturating_sub(one.first.0))
        .sum();
    let bytes: u64 = topic.partitions.iter().map(|one| one.bytes).sum();
    let what = format!("deletes {events} events ({bytes} bytes) and all cursors for good");
    if !io::stdin().is_terminal() {
        return Err(Failure::usage(
            &topic.name,
            format!("this {what}: --yes is needed where nobody can be asked"),
        ));
    }
    let question = format!("This {what}. Delete topic {}? [y/N] ", topic.name);
    io::stderr()
        .write_all(question.as_bytes())
        .about("standard error")?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).about("standard input")?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Failure::usage(&topic.name, "nothing was deleted")),
    }
}

/// What the partitions of a topic with a policy have refused and dropped.
fn overflow(
    driver: &client::Driver,
    topic: &TopicDescription,
) -> Result<Vec<(usize, Value)>, Failure> {
    let definition = Definition::from_json(&topic.definition);
    if definition.is_ok_and(|definition| definition.overflow() == topic::Overflow::Grow) {
        return Ok(Vec::new());
    }
    let status = driver.status().about(&topic.name)?;
    let status: Value = serde_json::from_str(&status).unwrap_or_default();
    let id = Value::from(topic.topic.to_string());
    let topics = status["topics"].as_array().into_iter().flatten();
    let parts: Vec<String> = (0..topic.partitions.len() as u32)
        .map(|index| part_name(&topic.name, index))
        .collect();
    let is_part = |known: &Value| {
        known["name"]
            .as_str()
            .is_some_and(|name| parts.iter().any(|part| part == name))
    };
    let partitions = topics
        .filter(|known| known["topic"] == id || is_part(known))
        .flat_map(|known| known["partitions"].as_array().into_iter().flatten());
    let overflow = partitions.filter_map(|partition| {
        let overflow = partition.get("overflow")?;
        Some((partition["partition"].as_u64()? as usize, overflow.clone()))
    });
    let mut overflow: Vec<_> = overflow.collect();
    overflow.sort_by_key(|(index, _)| *index);
    Ok(overflow)
}

fn overflow_rows(overflow: &[(usize, Value)]) -> Vec<Vec<String>> {
    let keys = [
        "waiting_events",
        "waiting_bytes",
        "refused_events",
        "dropped_events",
        "discarded_events",
    ];
    let row = |(index, overflow): &(usize, Value)| {
        let cells = keys.iter().map(|key| overflow[*key].to_string());
        std::iter::once(index.to_string()).chain(cells).collect()
    };
    overflow.iter().map(row).collect()
}

fn create(args: &TopicCreateArgs) -> Result<(), Failure> {
    let definition = definition(args)?;
    let driver = args.client.connection.driver()?;
    let storage = storage(&args.storage)?;
    let created = match &args.beside {
        Some(name) => {
            let beside = driver.open_topic(name).about(name)?;
            driver.create_topic_beside(&beside, &args.name, &definition, &storage)
        }
        None if args.spread => driver.create_spread_topic(&args.name, &definition, &storage),
        None => driver.create_topic(&args.name, &definition, &storage),
    };
    match created {
        Err(error) if args.if_missing && error.code() == Some(wire::ErrorCode::TopicExists) => {}
        other => drop(other.about(&args.name)?),
    }
    let topic = driver.describe_topic(&args.name).about(&args.name)?;
    print(&mut Output::new(args.client.json), &topic)
}

fn definition(args: &TopicCreateArgs) -> Result<Definition, Failure> {
    let (subject, text) = match (&args.definition, &args.definition_file) {
        (Some(text), _) => ("--definition".to_owned(), text.clone()),
        (None, Some(path)) => {
            let subject = path.display().to_string();
            let text = std::fs::read_to_string(path).about(&subject)?;
            (subject, text)
        }
        (None, None) => (String::new(), "{}".to_owned()),
    };
    let refuse = |subject: &str, why: String| Failure::usage(subject, why);
    let given = Definition::from_json(&text);
    let kept = kept(args.retention.as_deref(), args.keep.as_deref())?;
    let mut whole = given.map_err(|error| refuse(&subject, error.to_string()))?;
    for (option, key, value) in [
        ("--validator", "validator", &args.validator),
        (
            "--partition-selector",
            "partition_selector",
            &args.partition_selector,
        ),
        ("--serializer", "serializer", &args.serializer),
        ("--durability", "durability", &args.durability),
        ("--retention", "retention", &kept),
    ] {
        let Some(value) = value else { continue };
        let part = match key {
            "durability" => Value::from(value.as_str()),
            "retention" => retention(value)?,
            _ => part(option, value)?,
        };
        let mut document: Value =
            serde_json::from_str(&whole.to_json()).expect("a definition is JSON");
        document[key] = part;
        whole = Definition::from_json(&document.to_string())
            .map_err(|error| refuse(option, error.to_string()))?;
    }
    Ok(match &args.on {
        Some(placement) => whole.with_placement(placement.clone()),
        None => whole,
    })
}

/// Whether a topic came with another one, of dead letters or of replies. One whose topic is gone, and
/// one that only has such a name, is like any other.
fn is_companion(name: &str, topics: &[TopicDescription]) -> bool {
    companion_of(name).is_some_and(|whose| topics.iter().any(|topic| topic.name == whose))
}

/// The topic with which one of this name comes, if it is there: that of dead letters, or of replies. Of a partition of a spread
/// topic it is a partition, too.
pub fn companion_of(name: &str) -> Option<String> {
    if let Some((topic, index)) = part_of_name(name) {
        return Some(part_name(&companion_of(topic)?, index));
    }
    let mut endings = COMPANIONS.iter();
    let whose = endings.find_map(|ending| name.strip_suffix(ending));
    whose.map(str::to_owned)
}

/// How topics may be called that come with this one.
pub fn companions(name: &str) -> impl Iterator<Item = String> {
    COMPANIONS
        .iter()
        .map(move |ending| match part_of_name(name) {
            Some((topic, index)) => part_name(&format!("{topic}{ending}"), index),
            None => format!("{name}{ending}"),
        })
}

const COMPANIONS: [&str; 2] = [".dead", ".replies"];

/// A part of a definition: its type, or JSON.
fn part(option: &str, value: &str) -> Result<Value, Failure> {
    if !value.trim_start().starts_with('{') {
        return Ok(json!({"type": value}));
    }
    let part = serde_json::from_str(value);
    part.map_err(|error| Failure::usage(option, format!("not JSON: {error}")))
}

/// `--retention` and `--keep` as one text.
pub(super) fn kept(retention: Option<&str>, keep: Option<&str>) -> Result<Option<String>, Failure> {
    Ok(match (retention, keep) {
        (Some(retention), Some(_)) if retention.trim_start().starts_with('{') => {
            let why = "JSON in --retention has the age itself, as \"age\"";
            return Err(Failure::usage("--keep", why));
        }
        (Some(retention), Some(keep)) => Some(format!("{retention},{keep}")),
        (one, other) => one.or(other).map(str::to_owned),
    })
}

/// What is kept: in words, which the definition's reader understands, or JSON.
pub(super) fn retention(text: &str) -> Result<Value, Failure> {
    if !text.trim_start().starts_with('{') {
        return Ok(Value::from(text));
    }
    serde_json::from_str(text)
        .map_err(|error| Failure::usage("--retention", format!("not JSON: {error}")))
}

fn alter(args: &TopicAlterArgs) -> Result<(), Failure> {
    let mut changes = serde_json::Map::new();
    let mut keep_age = None;
    let mut change = |key: &str, value| changes.insert(key.to_owned(), value);
    if let Some(validator) = &args.validator {
        change("validator", part("--validator", validator)?);
    }
    match (&args.retention, &args.keep) {
        (None, Some(age)) => keep_age = Some(age),
        (given, keep) => {
            if let Some(text) = kept(given.as_deref(), keep.as_deref())? {
                change("retention", retention(&text)?);
            }
        }
    }
    if let Some(names) = &args.keep_until_acknowledged {
        let names: Vec<_> = names.iter().filter(|name| !name.is_empty()).collect();
        change("keep_until_acknowledged", json!(names));
    }
    if let Some(overflow) = &args.overflow {
        change("overflow", part("--overflow", overflow)?);
    }
    if let Some(bytes) = args.metadata_bytes_max {
        change("metadata_bytes_max", bytes.into());
    }
    let driver = args.client.connection.driver()?;
    if let Some(age) = keep_age {
        // The other limits stay.
        let topic = driver.describe_topic(&args.name).about(&args.name)?;
        let definition: Value = serde_json::from_str(&topic.definition).unwrap_or_default();
        let mut limits = definition["retention"]
            .as_object()
            .cloned()
            .unwrap_or_default();
        limits.remove("age_ms");
        limits.insert("age".to_owned(), age.as_str().into());
        changes.insert("retention".to_owned(), Value::Object(limits));
    }
    let changes = Value::Object(changes).to_string();
    let topic = driver.alter_topic(&args.name, &changes).about(&args.name)?;
    print(&mut Output::new(args.client.json), &topic)
}

fn storage(args: &Storage) -> Result<Vec<PartitionStorage>, Failure> {
    client::check_partition_count(args.partitions as usize)
        .map_err(|error| Failure::usage("--partitions", error.reason().to_owned()))?;
    let one = PartitionStorage {
        kind: args.storage.clone(),
        config: args.storage_config.clone(),
    };
    Ok(vec![one; args.partitions as usize])
}

fn add_partitions(args: &AddPartitionsArgs) -> Result<(), Failure> {
    let storage = storage(&args.storage)?;
    let driver = args.client.connection.driver()?;
    let topic = driver
        .add_placed_partitions(&args.name, &storage, &args.on.clone().unwrap_or_default())
        .about(&args.name)?;
    print(&mut Output::new(args.client.json), &topic)
}

pub(super) fn print(output: &mut Output, topic: &TopicDescription) -> Result<(), Failure> {
    if output.is_json() {
        output.json(&to_json(topic))?;
        return output.flush();
    }
    output.line(&format!("name        {}", topic.name))?;
    output.line(&format!("id          {}", topic.topic))?;
    let definition = Definition::from_json(&topic.definition);
    if definition.is_ok_and(|definition| definition.kind() == TopicKind::Steps) {
        output.line("kind        steps: thalweg steps shows its runs")?;
    }
    output.line(&format!("definition  {}", topic.definition))?;
    let rows: Vec<Vec<String>> = topic.partitions.iter().map(row).collect();
    let header = [
        "partition",
        "storage",
        "durability",
        "incarnation",
        "first",
        "end",
        "visible",
        "bytes",
        "failure",
    ];
    output.line(&table(&header, &rows))?;
    output.flush()
}

fn row(partition: &PartitionDescription) -> Vec<String> {
    vec![
        partition.partition.to_string(),
        partition.storage.kind.clone(),
        partition.durability.to_string(),
        partition.incarnation.to_string(),
        partition.first.to_string(),
        partition.watermarks.end.to_string(),
        partition.watermarks.committed.to_string(),
        partition.bytes.to_string(),
        partition.failure.clone(),
    ]
}

/// A topic as documented JSON.
pub fn to_json(topic: &TopicDescription) -> Value {
    let partitions: Vec<Value> = topic
        .partitions
        .iter()
        .map(|partition| {
            let ended: Vec<Value> = partition
                .ended
                .iter()
                .map(|(incarnation, end)| json!({"incarnation": incarnation.0, "end": end.0}))
                .collect();
            json!({
                "partition": partition.partition.0,
                "storage": {"kind": partition.storage.kind, "config": partition.storage.config},
                "durability": partition.durability.to_string(),
                "incarnation": partition.incarnation.0,
                "ended": ended,
                "first": partition.first.0,
                "end": partition.watermarks.end.0,
                "durable": partition.watermarks.durable.0,
                "visible": partition.watermarks.committed.0,
                "bytes": partition.bytes,
                "failure": match partition.failure.as_str() {
                    "" => Value::Null,
                    why => why.into(),
                },
            })
        })
        .collect();
    let definition = serde_json::from_str(&topic.definition).unwrap_or(Value::Null);
    json!({
        "name": topic.name,
        "id": topic.topic.to_string(),
        "definition": definition,
        "partitions": partitions,
    })
}
