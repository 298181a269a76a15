//! `thalweg steps tail`.

use super::choice::{open, time};
use crate::cli::StepsTailArgs;
use crate::failure::{About, Code, Failure};
use crate::interrupt;
use crate::output::Output;
use client::TopicHandle;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use step::{Next, Reader, ReaderOptions, Run, StepStart, StepView};

/// How often an idle reader looks whether the user wants an end.
const LOOK: Duration = Duration::from_millis(250);

pub fn run(args: &StepsTailArgs) -> Result<(), Failure> {
    let driver = args.client.connection.driver()?;
    let stream = open(&driver, &args.stream)?;
    let name = args.name.clone();
    let options = ReaderOptions {
        name: name.unwrap_or_else(|| format!("tail-{}", std::process::id())),
        start: match (args.run, &args.name) {
            (Some(run), _) => StepStart::Run(Run(run)),
            (None, Some(_)) => StepStart::Cursor,
            (None, None) => StepStart::OpenRun,
        },
        open_timeout: args.client.connection.timeout(),
        ..ReaderOptions::default()
    };
    let reader_name = options.name.clone();
    let interrupted = Arc::new(AtomicBool::new(false));
    let asked = interrupted.clone();
    interrupt::on_interrupt(move || asked.store(true, Ordering::Relaxed))?;
    let mut reader = stream.reader(options).about(&args.stream)?;
    let followed = follow(args, &mut reader, &interrupted);
    let released = reader.release(args.client.connection.timeout());
    // The server takes requests in their order: with an answer to this one, it also has the release
    // of a run's end, for which nobody waits.
    let settled = stream.topic().refresh();
    drop(reader);
    if args.name.is_none() {
        forget(stream.topic(), &reader_name);
    }
    followed?;
    released.about(&args.stream)?;
    settled.map(drop).about(&args.stream)
}

fn follow(
    args: &StepsTailArgs,
    reader: &mut Reader,
    interrupted: &AtomicBool,
) -> Result<(), Failure> {
    let mut output = Output::new(args.client.json);
    while !interrupted.load(Ordering::Relaxed) {
        match reader.next(LOOK).about(&args.stream)? {
            Next::NotReady(_) => {}
            Next::Step(view) => {
                write(&mut output, &view)?;
                output.flush()?;
            }
            Next::End { run, broken } => {
                let text = match &broken {
                    None => format!("run {run} closed"),
                    Some(why) => format!("run {run} broken: {why}"),
                };
                let state = if broken.is_some() { "broken" } else { "closed" };
                output.either(
                    &json!({"type": "end", "run": run.0, "state": state, "reason": broken}),
                    &text,
                )?;
                output.flush()?;
                return match broken {
                    None => Ok(()),
                    Some(why) => {
                        let what = format!("run {run} is broken: {why}");
                        Err(Failure::new(Code::Failure, &args.stream, what))
                    }
                };
            }
        }
    }
    Ok(())
}

fn write(output: &mut Output, view: &StepView) -> Result<(), Failure> {
    let variables: Vec<&str> = view.names().collect();
    let json = json!({
        "type": "step",
        "run": view.run().0,
        "step": view.number().0,
        "writer": view.writer(),
        "ranks": view.writer_ranks(),
        "time": view.time(),
        "bytes": view.bytes(),
        "variables": variables,
        "lost": view.lost(),
    });
    let lost = match view.lost() {
        0 => String::new(),
        lost => format!("  ({lost} before it are gone)"),
    };
    let text = format!(
        "run {}  step {}  {}  {} bytes  {}{lost}",
        view.run(),
        view.number(),
        time(view.time()),
        view.bytes(),
        variables.join(" ")
    );
    output.either(&json, &text)
}

/// Leaves no position under a name that nobody will use again. If that fails, one is left.
fn forget(topic: &TopicHandle, name: &str) {
    drop(topic.driver().delete_consumer(topic, name));
}
