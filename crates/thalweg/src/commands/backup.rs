//! `thalweg backup`.

use crate::cli::BackupArgs;
use crate::failure::{About, Code, Failure};
use crate::output::{Output, table};
use crate::progress::Progress;
use client::{Driver, DriverOptions, Endpoint};
use serde_json::{Value, json};
use server::{Config, Server};
use std::sync::Arc;
use std::time::Duration;

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
    let failed: Vec<&str> = topics
        .iter()
        .flat_map(|topic| topic["failed"].as_array().into_iter().flatten())
        .filter_map(Value::as_str)
        .collect();
    match failed.as_slice() {
        [] => Ok(()),
        failed => Err(Failure::new(
            Code::Findings,
            subject,
            format!(
                "the backup is there, but these partitions cannot be opened in it: {}",
                failed.join("; ")
            ),
        )),
    }
}

/// Starts a server on the copy, in this process, which recovers it as any start does, and says what
/// it holds: of each topic its name, how many partitions and events, and which partitions failed.
fn look(args: &BackupArgs, subject: &str) -> Result<Vec<Value>, Failure> {
    let config = Config {
        directory: args.to.clone(),
        group_file: None,
        ..Config::default()
    };
    // That the copy ends the life of each partition is no news to anybody, and failures are told below.
    let server = Server::embedded(config, Arc::new(|_: &str| {})).about(subject)?;
    let endpoint = Endpoint::address(&server.endpoints()[0]);
    let driver = Driver::connect(endpoint, DriverOptions::default()).about(subject)?;
    let status = driver.status().about(subject)?;
    let status: Value = serde_json::from_str(&status)
        .map_err(|error| Failure::new(Code::Failure, subject, format!("its status: {error}")))?;
    let topics = status["topics"].as_array().into_iter().flatten();
    let topics = topics.map(summary).collect();
    driver.close(DRAIN_TIMEOUT).about(subject)?;
    server.drain(DRAIN_TIMEOUT).about(subject)?;
    Ok(topics)
}

fn summary(topic: &Value) -> Value {
    let (mut events, mut failed) = (0, Vec::new());
    let partitions: Vec<&Value> = topic["partitions"]
        .as_array()
        .into_iter()
        .flatten()
        .collect();
    for (index, partition) in partitions.iter().enumerate() {
        let at = |key: &str| partition[key].as_u64().unwrap_or(0);
        events += at("end").saturating_sub(at("first"));
        if let Some(why) = partition["failure"].as_str() {
            let name = topic["name"].as_str().unwrap_or_default();
            failed.push(format!("{name}/{index}: {why}"));
        }
    }
    json!({
        "topic": topic["name"],
        "namespace": topic["namespace"],
        "partitions": partitions.len(),
        "events": events,
        "failed": failed,
    })
}
