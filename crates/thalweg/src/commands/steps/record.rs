//! `thalweg steps record`.

use super::choice::{failure, open};
use super::zarr::{Group, Problem};
use crate::cli::StepsRecordArgs;
use crate::failure::{About, Code, Failure};
use crate::interrupt;
use crate::output::Output;
use crate::progress::Progress;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use step::{Next, Reader, ReaderOptions, Run, RunState, StepStart, Stream};

/// How often an idle recorder looks whether the user wants an end.
const LOOK: Duration = Duration::from_millis(250);

/// How a recording has ended.
enum End {
    Closed,
    Broken(String),
    Interrupted,
}

pub fn run(args: &StepsRecordArgs) -> Result<(), Failure> {
    let driver = args.client.connection.driver()?;
    let stream = open(&driver, &args.stream)?;
    let (start, total) = start(&stream, args.run)?;
    let out = args.out.display().to_string();
    let mut group = Group::create(&args.out).about(&*out)?;
    let interrupted = Arc::new(AtomicBool::new(false));
    let asked = interrupted.clone();
    interrupt::on_interrupt(move || asked.store(true, Ordering::Relaxed))?;
    let options = ReaderOptions {
        name: format!("record-{}", std::process::id()),
        start,
        open_timeout: args.client.connection.timeout(),
        ..ReaderOptions::default()
    };
    let name = options.name.clone();
    let mut reader = stream.reader(options).about(&args.stream)?;
    let recorded = record(args, &mut reader, &mut group, total, &interrupted);
    drop(reader);
    // Its position is of use to nobody. If that fails, one is left.
    drop(driver.delete_consumer(stream.topic(), &name));
    let (end, about) = recorded?;

    for (variable, why) in group.left_out() {
        eprintln!("note: {variable} is left out: {why}");
    }
    let mut output = Output::new(args.client.json);
    let mut told = about;
    told.insert("out".to_owned(), json!(out));
    told.insert("bytes".to_owned(), json!(group.bytes()));
    told.insert("left_out".to_owned(), json!(group.left_out()));
    let steps = group.steps();
    let how = match &end {
        End::Closed => String::new(),
        End::Broken(why) => format!("; the run is broken: {why}"),
        End::Interrupted => "; ended by a signal".to_owned(),
    };
    let text = format!(
        "{steps} steps of {}, {} bytes, are in {out}{how}",
        args.stream,
        group.bytes()
    );
    output.either(&Value::Object(told), &text)?;
    output.flush()?;
    match end {
        End::Closed | End::Interrupted => Ok(()),
        End::Broken(why) => Err(Failure::new(
            Code::Failure,
            &args.stream,
            format!("the run is broken: {why}"),
        )),
    }
}

/// Where to begin, and how many steps there are if they are all there.
fn start(stream: &Stream, wanted: Option<u64>) -> Result<(StepStart, Option<u64>), Failure> {
    let runs = stream.runs().about(stream.name())?;
    let run = match wanted {
        None => runs
            .iter()
            .rfind(|run| run.steps.is_some() || run.state == RunState::Open),
        Some(wanted) => Some(super::choice::chosen_run(stream, Some(wanted))?)
            .and_then(|chosen| runs.iter().find(|run| run.run == chosen.run)),
    };
    Ok(match run {
        // The next one that is opened.
        None => (StepStart::OpenRun, None),
        Some(run) => {
            let total = (run.state != RunState::Open).then_some(run.step_count);
            (StepStart::Run(Run(run.run.0)), total)
        }
    })
}

fn record(
    args: &StepsRecordArgs,
    reader: &mut Reader,
    group: &mut Group,
    total: Option<u64>,
    interrupted: &AtomicBool,
) -> Result<(End, Map<String, Value>), Failure> {
    let name = format!("{} -> {}", args.stream, args.out.display());
    let bar = Progress::recorded(&name, total);
    let told = |problem: Problem| match problem {
        Problem::Read(error) => failure(error, &args.stream),
        Problem::Write(path, error) => {
            Failure::new(Code::Failure, path.display().to_string(), error)
        }
    };
    let mut about = Map::new();
    about.insert("stream".to_owned(), json!(args.stream));
    about.insert("state".to_owned(), json!("recording"));
    let mut attributes = step::Attributes::default();
    let end = loop {
        if interrupted.load(Ordering::Relaxed) {
            break End::Interrupted;
        }
        match reader.next(LOOK).about(&args.stream)? {
            Next::NotReady(_) => {}
            Next::Step(view) => {
                about.insert("run".to_owned(), json!(view.run().0));
                about.insert("writer".to_owned(), json!(view.writer()));
                about.insert("ranks".to_owned(), json!(view.writer_ranks()));
                about.insert("steps".to_owned(), json!(group.steps() + 1));
                group.append(&view, &about).map_err(told)?;
                attributes = view.attributes().clone();
                bar.add(1);
            }
            Next::End { broken: None, .. } => break End::Closed,
            Next::End {
                broken: Some(why), ..
            } => break End::Broken(why),
        }
    };
    let state = match &end {
        End::Closed => "closed",
        End::Broken(_) => "broken",
        End::Interrupted => "interrupted",
    };
    about.insert("steps".to_owned(), json!(group.steps()));
    about.insert("state".to_owned(), json!(state));
    group.finish(&attributes, &about).map_err(told)?;
    Ok((end, about))
}
