//! `thalweg backup`.

use crate::cli::BackupArgs;
use crate::connection::driver_options;
use crate::failure::{About, Code, Failure};
use crate::output::{Output, table};
use crate::progress::Progress;
use client::{Driver, DriverOptions, Endpoint};
use serde_json::{Value, json};
use server::{Config, Server};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use wire::PartitionIndex;
use wire::record::{Gap, GapReason};

/// How long the server on the copy may take for its end.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(600);

pub fn run(args: &BackupArgs) -> Result<(), Failure> {
    let subject = args.to.display().to_string();
    let progress = Progress::partitions("copying");
    let backup = server::back_up(&args.from, &args.to, |partitions, bytes| {
        progress.at(partitions as u64, bytes);
    });
    drop(progress);
    let backup = backup.about(args.from.display().to_string())?;
    let topics = look(args, &subject)?;
    let mut output = Output::new(args.json);
    let counted =
        |key: &str| -> u64 { topics.iter().filter_map(|topic| topic[key].as_u64()).sum() };
    let (partitions, events) = (counted("partitions"), counted("events"));
    if args.json {
        for topic in &topics {
            output.json(topic)?;
        }
    } else if !topics.is_empty() {
        let text = |value: &Value| match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let columns = ["topic", "partitions", "events"];
        let row = |topic: &Value| columns.iter().map(|column| text(&topic[column])).collect();
        let rows: Vec<Vec<String>> = topics.iter().map(row).collect();
        output.line(&table(&["TOPIC", "PARTITIONS", "EVENTS"], &rows))?;
    }
    output.either(
        &json!({
            "backup": subject,
            "directory": backup.id.to_string(),
            "topics": topics.len(),
            "partitions": partitions,
            "events": events,
            "copied_bytes": backup.bytes,
            "left_out": backup.left_out,
        }),
        &format!(
            "{subject}: {} topics, {partitions} partitions, {events} events; {} bytes were copied; its id is {}",
            topics.len(),
            backup.bytes,
            backup.id
        ),
    )?;
    output.flush()?;
    for what in &backup.left_out {
        eprintln!("thalweg: warning: not in the backup: {what}");
    }
    let of_all = |key: &str| -> Vec<&str> {
        let lists = topics.iter().flat_map(|topic| topic[key].as_array());
        lists.flatten().filter_map(Value::as_str).collect()
    };
    let mut findings = Vec::new();
    for (key, what) in [
        ("failed", "these partitions cannot be opened in it"),
        ("lost", "the start on it found that events are missing"),
    ] {
        let found = of_all(key);
        if !found.is_empty() {
            findings.push(format!("{what}: {}", found.join("; ")));
        }
    }
    match findings.is_empty() {
        true => Ok(()),
        false => Err(Failure::new(
            Code::Findings,
            subject,
            format!("the backup is there, but {}", findings.join("; and ")),
        )),
    }
}

/// Starts a server on the copy, in this process, which recovers it as any start does, and says what
/// it holds: of each topic its name, how many partitions and events, which partitions failed, and what
/// the start found lost.
fn look(args: &BackupArgs, subject: &str) -> Result<Vec<Value>, Failure> {
    let config = Config {
        directory: args.to.clone(),
        group_file: None,
        ..Config::default()
    };
    let started = SystemTime::now();
    // That the copy ends the life of each partition is no news to anybody, and failures are told below.
    let server = Server::embedded(config, Arc::new(|_: &str| {})).about(subject)?;
    let endpoint = Endpoint::address(&server.endpoints()[0]);
    let driver = Driver::connect(endpoint.clone(), driver_options()).about(subject)?;
    let status = driver.status().about(subject)?;
    let status: Value = serde_json::from_str(&status)
        .map_err(|error| Failure::new(Code::Failure, subject, format!("its status: {error}")))?;
    let topics = status["topics"].as_array().into_iter().flatten();
    let mut summaries = Vec::new();
    for topic in topics {
        let text = |key: &str| topic[key].as_str().unwrap_or_default().to_owned();
        let options = DriverOptions {
            namespace: text("namespace"),
            ..driver_options()
        };
        let of_namespace = Driver::connect(endpoint.clone(), options).about(subject)?;
        let gaps = of_namespace.gaps(&text("name")).about(subject)?;
        of_namespace.close(DRAIN_TIMEOUT).about(subject)?;
        summaries.push(summary(topic, &gaps, started));
    }
    driver.close(DRAIN_TIMEOUT).about(subject)?;
    server.drain(DRAIN_TIMEOUT).about(subject)?;
    Ok(summaries)
}

fn summary(topic: &Value, gaps: &[(PartitionIndex, Gap)], started: SystemTime) -> Value {
    let name = topic["name"].as_str().unwrap_or_default();
    let (mut events, mut failed) = (0, Vec::new());
    let partitions: Vec<&Value> = topic["partitions"]
        .as_array()
        .into_iter()
        .flatten()
        .collect();
    for (index, partition) in partitions.iter().enumerate() {
        let at = |key: &str| partition[key].as_u64().unwrap_or(0);
        let there = at("first")..at("end");
        let of_this = gaps.iter().filter(|(of, _)| of.0 as usize == index);
        events += (there.end.saturating_sub(there.start))
            .saturating_sub(damaged(of_this.map(|(_, gap)| gap), there));
        if let Some(why) = partition["failure"].as_str() {
            failed.push(format!("{name}/{index}: {why}"));
        }
    }
    let lost = losses(name, gaps, started);
    json!({
        "topic": topic["name"],
        "namespace": topic["namespace"],
        "partitions": partitions.len(),
        "events": events,
        "failed": failed,
        "lost": lost,
    })
}

/// How many of these offsets hold no event because of damage.
fn damaged<'a>(gaps: impl Iterator<Item = &'a Gap>, there: Range<u64>) -> u64 {
    let damage = gaps.filter(|gap| gap.reason == GapReason::Damaged);
    let within = damage.map(|gap| gap.first.0.max(there.start)..gap.end.0.min(there.end));
    let mut within: Vec<Range<u64>> = within.collect();
    within.sort_by_key(|gap| gap.start);
    let (mut count, mut counted) = (0, there.start);
    for gap in within {
        count += gap.end.saturating_sub(gap.start.max(counted));
        counted = counted.max(gap.end);
    }
    count
}

/// What was noticed since then and is a loss. That a life has ended where the copy ends is none, and what
/// retention removes has left in order.
fn losses(name: &str, gaps: &[(PartitionIndex, Gap)], since: SystemTime) -> Vec<String> {
    let since = since.duration_since(UNIX_EPOCH).unwrap_or_default();
    let is_loss = |gap: &Gap| match gap.reason {
        // Empty, it is of an unknown number of events.
        GapReason::Damaged => true,
        GapReason::PowerLoss | GapReason::MemoryLost => gap.first < gap.end,
        GapReason::Retention | GapReason::Discarded => false,
    };
    let found = gaps
        .iter()
        .filter(|(_, gap)| u128::from(gap.time) >= since.as_nanos() && is_loss(gap));
    let sentence = |(partition, gap): &(PartitionIndex, Gap)| {
        let (first, reason) = (gap.first, gap.reason.name());
        match gap.end.0.saturating_sub(gap.first.0) {
            0 => format!("{name}/{partition}: all that came from offset {first} on ({reason})"),
            count => format!("{name}/{partition}: {count} from offset {first} on ({reason})"),
        }
    };
    found.map(sentence).collect()
}
