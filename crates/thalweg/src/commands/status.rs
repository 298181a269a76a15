//! `thalweg status`.
//!
//! What moves is told by two looks at the server, an interval apart: the
//! server itself keeps counts and no averages.

use crate::cli::StatusArgs;
use crate::failure::{About, Code, Failure};
use crate::output::{Output, table};
use client::{Driver, Incarnation, Offset, PartitionIndex, Position};
use serde_json::{Value, json};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub fn run(args: &StatusArgs) -> Result<(), Failure> {
    let connection = &args.client.connection;
    let driver = connection.driver()?;
    let look = || -> Result<(Instant, Value), Failure> {
        let text = driver.status().about(connection.subject())?;
        let status = serde_json::from_str(&text).map_err(|error| {
            Failure::new(
                Code::Failure,
                connection.subject(),
                format!("its status is no JSON: {error}"),
            )
        })?;
        Ok((Instant::now(), status))
    };
    let mut output = Output::new(args.client.json);
    let interval = args.interval.unwrap_or(match output.is_json() {
        true => 0.0,
        false => 1.0,
    });
    let Ok(interval) = Duration::try_from_secs_f64(interval) else {
        return Err(Failure::usage("--interval", "seconds, 0 or more"));
    };
    let (at, mut status) = look()?;
    if !interval.is_zero() {
        std::thread::sleep(interval);
        let (later_at, mut later) = look()?;
        let seconds = later_at.duration_since(at).as_secs_f64();
        add_rates(&mut later, &status, seconds);
        status = later;
    }
    add_ages(&mut status, &driver);
    if output.is_json() {
        output.json(&status)?;
    } else {
        output.line(&head(&status))?;
        for text in losses(&status).into_iter().chain(space(&status)) {
            output.line(&text)?;
        }
        let nodes = nodes(&status);
        if !nodes.is_empty() {
            output.line(&table(&["node", "state", "host", "rank", "at"], &nodes))?;
            output.line("")?;
        }
        // Whoever needs the ids has them in the JSON.
        let deleted = items(&status["losses"], "deleted_topics").count();
        status["losses"]["deleted_topics"] = json!(deleted);
        for text in summary(&status) {
            output.line(&text)?;
            output.line("")?;
        }
        if args.verbose {
            write_tree(&mut output, &status, 0)?;
        }
    }
    output.flush()
}

fn items<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value[key].as_array().into_iter().flatten()
}

fn each<'a>(value: &'a mut Value, key: &str) -> impl Iterator<Item = &'a mut Value> {
    let list = value.get_mut(key).and_then(Value::as_array_mut);
    list.into_iter().flatten()
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or(0)
}

/// Events that a topic has taken, of all lives that are still going on.
fn taken(topic: &Value) -> u64 {
    items(topic, "partitions")
        .map(|one| number(one, "end"))
        .sum()
}

/// Events that a consumer is done with.
fn done(consumer: &Value) -> u64 {
    let cursors = items(consumer, "cursors");
    cursors
        .map(|one| number(one, "offset") + number(one, "settled"))
        .sum()
}

/// What has moved between two looks, events a second: new for whom there was
/// nothing before, and nothing for whom a life has begun anew.
fn add_rates(later: &mut Value, before: &Value, seconds: f64) {
    let rate = |now: u64, then: u64| json!(now.saturating_sub(then) as f64 / seconds);
    for topic in each(later, "topics") {
        let id = topic["topic"].clone();
        let known = items(before, "topics").find(|one| one["topic"] == id);
        topic["in_per_s"] = rate(taken(topic), known.map_or(0, taken));
        for consumer in each(topic, "consumers") {
            let name = consumer["name"].clone();
            let known =
                known.and_then(|topic| items(topic, "consumers").find(|one| one["name"] == name));
            // A cursor that is new may begin anywhere.
            consumer["out_per_s"] = match known {
                Some(known) => rate(done(consumer), done(known)),
                None => Value::Null,
            };
        }
    }
}

/// How long ago the oldest event came that a consumer is not done with.
fn add_ages(status: &mut Value, driver: &Driver) {
    for topic in each(status, "topics") {
        let handle = match (topic["namespace"].as_str(), topic["name"].as_str()) {
            (Some(""), Some(name)) => driver.open_topic(name).ok(),
            _ => None,
        };
        for consumer in each(topic, "consumers") {
            let age = |cursor: &Value| {
                let partition = PartitionIndex(number(cursor, "partition") as u32);
                let from = Position {
                    incarnation: Incarnation(number(cursor, "incarnation")),
                    offset: Offset(number(cursor, "offset")),
                };
                // What has gone meanwhile has no age.
                let handle = handle.as_ref()?;
                let fetched = handle
                    .fetch(partition, from, 1, Duration::ZERO, false)
                    .ok()?;
                let came = fetched.events().next()?.append_time();
                let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
                Some((now.as_nanos() as u64).saturating_sub(came) / 1_000_000)
            };
            let behind = items(consumer, "cursors").filter(|one| number(one, "lag") > 0);
            let oldest = behind.filter_map(age).max();
            consumer["oldest_unacknowledged_ms"] = json!(oldest);
        }
    }
}

/// What was lost and what was set aside, a line each; and which shards do not say so.
pub fn losses(status: &Value) -> Vec<String> {
    let of_others = items(status, "nodes").flat_map(|node| {
        let shard = &node["node"];
        let failure = node["failure"].as_str();
        let failure = failure.map(|why| format!("DOES NOT ANSWER: {why}"));
        let lines = losses_of(node).into_iter().chain(failure);
        let what = word_of(node);
        lines.map(move |line| format!("{what} {shard}: {line}"))
    });
    losses_of(status).into_iter().chain(of_others).collect()
}

/// The other nodes of a cluster, a row each.
fn nodes(status: &Value) -> Vec<Vec<String>> {
    let nodes = items(status, "nodes").filter(|node| node["state"].is_string());
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let rows = nodes.map(|node| {
        vec![
            node["node"].to_string(),
            text(&node["state"]),
            text(&node["labels"]["host"]),
            text(&node["labels"]["rank"]),
            text(&node["endpoints"][0]),
        ]
    });
    rows.collect()
}

/// What a node is: a shard of the server, or of one of a cluster's servers, which have states.
fn word_of(node: &Value) -> &'static str {
    match node["state"].is_string() {
        true => "node",
        false => "shard",
    }
}

fn losses_of(status: &Value) -> Vec<String> {
    let losses = &status["losses"];
    let damage = items(losses, "damage").filter_map(|damage| damage["what"].as_str());
    let aside = items(losses, "lost_and_found").filter_map(Value::as_str);
    let damage = damage.map(|what| format!("LOST: {what}"));
    damage
        .chain(aside.map(|name| format!("SET ASIDE: lost+found/{name}")))
        .collect()
}

/// The server, in a line.
fn head(status: &Value) -> String {
    let count = |key: &str, what: &str| {
        let count = items(status, key).count();
        format!("{count} {what}{}", if count == 1 { "" } else { "s" })
    };
    let draining = status["draining"].as_bool().unwrap_or(false);
    let shards = match items(status, "nodes").next() {
        None => String::new(),
        Some(other) => format!(
            "{} {}s, ",
            1 + items(status, "nodes").count(),
            word_of(other)
        ),
    };
    format!(
        "thalweg {}: {shards}{}, {}{}",
        status["version"]
            .as_str()
            .unwrap_or("of an unknown version"),
        count("topics", "topic"),
        count("sessions", "connection"),
        if draining {
            ", draining: new work is refused"
        } else {
            ""
        }
    )
}

/// Partitions that are full, and how full the file system is, a line each.
fn space(status: &Value) -> Vec<String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_ms = now.map_or(0, |now| now.as_millis() as u64);
    let mut lines = Vec::new();
    for topic in items(status, "topics") {
        for partition in items(topic, "partitions") {
            let full = &partition["full"];
            if let Some(since) = full["since_ms"].as_u64() {
                lines.push(format!(
                    "STORAGE IS FULL: {}/{} for {} s: {}",
                    topic["name"].as_str().unwrap_or("-"),
                    partition["partition"],
                    now_ms.saturating_sub(since) / 1000,
                    full["reason"].as_str().unwrap_or("no reason is known")
                ));
            }
        }
    }
    let below = &status["file_system"];
    if let (Some(free), Some(total)) = (below["free_bytes"].as_u64(), below["total_bytes"].as_u64())
    {
        lines.push(format!("file system: {free} of {total} bytes are free"));
    }
    lines
}

/// The topics and who reads them, a line each.
fn summary(status: &Value) -> Vec<String> {
    let per_s = |value: &Value| {
        value
            .as_f64()
            .map_or("-".to_owned(), |rate| format!("{rate:.0}"))
    };
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let topics: Vec<Vec<String>> = items(status, "topics")
        .map(|topic| {
            let sum = |key: &str| -> u64 {
                let partitions = items(topic, "partitions");
                partitions.map(|one| number(one, key)).sum()
            };
            let lost = |key: &str| -> u64 {
                let partitions = items(topic, "partitions");
                partitions.map(|one| number(&one["overflow"], key)).sum()
            };
            vec![
                text(&topic["name"]),
                items(topic, "partitions").count().to_string(),
                (sum("end").saturating_sub(sum("first"))).to_string(),
                sum("bytes").to_string(),
                per_s(&topic["in_per_s"]),
                lost("refused_events").to_string(),
                (lost("dropped_events") + lost("discarded_events")).to_string(),
            ]
        })
        .collect();
    let consumers: Vec<Vec<String>> = items(status, "topics")
        .flat_map(|topic| items(topic, "consumers").map(move |one| (topic, one)))
        .map(|(topic, consumer)| {
            let age = consumer["oldest_unacknowledged_ms"].as_u64();
            vec![
                text(&topic["name"]),
                text(&consumer["name"]),
                text(&consumer["kind"]),
                items(consumer, "members").count().to_string(),
                number(consumer, "lag").to_string(),
                per_s(&consumer["out_per_s"]),
                age.map_or("-".to_owned(), |ms| format!("{:.1} s", ms as f64 / 1000.0)),
            ]
        })
        .collect();
    let mut tables = Vec::new();
    if !topics.is_empty() {
        let header = [
            "topic",
            "partitions",
            "events",
            "bytes",
            "in/s",
            "refused",
            "dropped",
        ];
        tables.push(table(&header, &topics));
    }
    if !consumers.is_empty() {
        let header = [
            "topic", "consumer", "kind", "members", "lag", "out/s", "oldest",
        ];
        tables.push(table(&header, &consumers));
    }
    tables
}

/// Names and values, indented.
fn write_tree(output: &mut Output, value: &Value, depth: usize) -> Result<(), Failure> {
    let indent = "  ".repeat(depth);
    let entries: Vec<(String, &Value)> = match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| (key.clone(), value))
            .collect(),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .map(|(index, value)| (index.to_string(), value))
            .collect(),
        other => return output.line(&format!("{indent}{other}")),
    };
    for (key, value) in entries {
        match value {
            Value::Object(fields) if !fields.is_empty() => {
                output.line(&format!("{indent}{key}:"))?;
                write_tree(output, value, depth + 1)?;
            }
            Value::Array(items) if !items.is_empty() => {
                output.line(&format!("{indent}{key}:"))?;
                write_tree(output, value, depth + 1)?;
            }
            Value::String(text) => output.line(&format!("{indent}{key}: {text}"))?,
            other => output.line(&format!("{indent}{key}: {other}"))?,
        }
    }
    Ok(())
}
