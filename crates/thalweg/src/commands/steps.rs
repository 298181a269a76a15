//! `thalweg steps`: streams of steps.

mod cat;
mod choice;
mod elements;
mod record;
mod replay;
mod show;
mod tail;
mod zarr;

use super::topic::{kept, print, retention};
use crate::cli::{StepsCommand, StepsCreateArgs, StepsListArgs};
use crate::failure::{About, Failure};
use crate::output::{Output, table};
use choice::{open, time};
use serde_json::json;
use step::{RunInfo, RunState, Stream, StreamOptions};
use topic::Definition;
use wire::ErrorCode;

pub fn run(command: StepsCommand) -> Result<(), Failure> {
    match command {
        StepsCommand::Create(args) => create(&args),
        StepsCommand::List(args) => list(&args),
        StepsCommand::Show(args) => show::run(&args),
        StepsCommand::Cat(args) => cat::run(&args),
        StepsCommand::Tail(args) => tail::run(&args),
        StepsCommand::Record(args) => record::run(&args),
        StepsCommand::Replay(args) => replay::run(&args),
    }
}

fn create(args: &StepsCreateArgs) -> Result<(), Failure> {
    // Records have one, what is pinned has two.
    client::check_partition_count((args.parts as usize).saturating_add(3))
        .map_err(|error| Failure::usage("--parts", error.reason().to_owned()))?;
    let mut options = StreamOptions {
        parts: args.parts,
        storage: args.storage.clone(),
        storage_config: args.storage_config.clone(),
        durability: args.durability,
        ..StreamOptions::default()
    };
    if let Some(text) = kept(args.retention.as_deref(), args.keep.as_deref())? {
        let definition = json!({"retention": retention(&text)?}).to_string();
        let definition = Definition::from_json(&definition)
            .map_err(|error| Failure::usage("--retention", error))?;
        options.retention = definition.retention();
    }
    let driver = args.client.connection.driver()?;
    match Stream::create(&driver, &args.name, &options) {
        Err(error) if args.if_missing && error.code() == Some(ErrorCode::TopicExists) => {
            open(&driver, &args.name)?;
        }
        other => drop(other.about(&args.name)?),
    }
    let topic = driver.describe_topic(&args.name).about(&args.name)?;
    print(&mut Output::new(args.client.json), &topic)
}

fn list(args: &StepsListArgs) -> Result<(), Failure> {
    let driver = args.client.connection.driver()?;
    let stream = open(&driver, &args.stream)?;
    let runs = stream.runs().about(&args.stream)?;
    let mut output = Output::new(args.client.json);
    let mut rows = Vec::new();
    for run in &runs {
        let (state, why) = state(run);
        if output.is_json() {
            output.json(&json!({
                "run": run.run.0,
                "writer": run.writer,
                "ranks": run.ranks,
                "state": state,
                "reason": why,
                "steps": run.step_count,
                "pinned": run.pinned,
                "first_step": run.steps.map(|(first, _)| first.0),
                "last_step": run.steps.map(|(_, last)| last.0),
                "discarded": run.discarded,
                "bytes": run.bytes,
                "first_time": run.first_time,
                "last_time": run.last_time,
            }))?;
        }
        let of_them = [(run.discarded, "discarded"), (run.pinned, "pinned")];
        let of_them = of_them.iter().filter(|(count, _)| *count > 0);
        let of_them: Vec<String> = of_them
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        let steps = match of_them.is_empty() {
            true => run.step_count.to_string(),
            false => format!("{} ({})", run.step_count, of_them.join(", ")),
        };
        rows.push(vec![
            run.run.to_string(),
            run.writer.clone(),
            run.ranks.to_string(),
            steps,
            run.bytes.to_string(),
            time(run.first_time),
            time(run.last_time),
            match why {
                None => state.to_owned(),
                Some(why) => format!("{state}: {why}"),
            },
        ]);
    }
    if !output.is_json() {
        match rows.is_empty() {
            true => output.line(&format!("{}: no runs yet", args.stream))?,
            false => {
                let header = [
                    "run", "writer", "ranks", "steps", "bytes", "began", "last", "state",
                ];
                output.line(&table(&header, &rows))?;
            }
        }
    }
    output.flush()
}

/// How a run is, in a word, and why.
fn state(run: &RunInfo) -> (&'static str, Option<&str>) {
    match &run.state {
        RunState::Open => ("open", None),
        RunState::Closed => ("closed", None),
        RunState::Broken(why) => ("broken", Some(why)),
    }
}
