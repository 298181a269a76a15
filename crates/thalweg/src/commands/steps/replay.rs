//! `thalweg steps replay`.

use super::choice::{chosen_run, open};
use crate::cli::{Rate, StepsReplayArgs};
use crate::failure::{About, Code, Failure};
use crate::interrupt;
use crate::output::Output;
use crate::progress::Progress;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use step::{
    DType, Place, Put, Selection, ShapeKind, StepError, StepView, Stream, Wait, Writer,
    WriterOptions,
};

/// How often the user is heard between two steps.
const LOOK: Duration = Duration::from_millis(100);
/// So many ranks may a run have that one process acts for: each has a connection's state, and a
/// thread while the run is closed.
const RANKS_MAX: u32 = 4096;

pub fn run(args: &StepsReplayArgs) -> Result<(), Failure> {
    let driver = args.client.connection.driver()?;
    let from = open(&driver, &args.stream)?;
    let into = open(&driver, &args.into)?;
    let source = chosen_run(&from, args.run)?;
    let steps = from.steps(source.run).about(&args.stream)?;
    if source.ranks > RANKS_MAX {
        let what = format!(
            "run {} was written by {} ranks; the limit of a replay is {RANKS_MAX}",
            source.run, source.ranks
        );
        return Err(Failure::usage(&args.stream, what));
    }
    let interrupted = Arc::new(AtomicBool::new(false));
    let asked = interrupted.clone();
    interrupt::on_interrupt(move || asked.store(true, Ordering::Relaxed))?;

    let writer = args.writer.clone();
    let writer = writer.unwrap_or_else(|| format!("replay-{}", std::process::id()));
    let timeout = args.client.connection.timeout();
    let mut writers = open_writers(&into, &writer, source.ranks, timeout).about(&args.into)?;
    let run = writers[0].run();
    if writers[0].step().0 > 0 {
        let what = format!(
            "run {run} of writer {writer:?} is open and has steps; choose another name with --writer"
        );
        return Err(Failure::usage(&args.into, what));
    }
    let bar = Progress::steps(
        &format!("{} -> {}", args.stream, args.into),
        steps.len() as u64,
    );
    let lines = (args.rate == Rate::Step).then(lines_of_input);
    let began = Instant::now();
    let mut written = 0u64;
    for step in &steps {
        let first = steps[0].time;
        if let Rate::Times(times) = args.rate {
            let recorded = Duration::from_nanos(step.time.saturating_sub(first));
            // A pace beyond all time is no pace to wait for.
            let due = Duration::try_from_secs_f64(recorded.as_secs_f64() / times);
            sleep_until(began, due.unwrap_or(Duration::MAX), &interrupted);
        }
        let is_input_over = lines
            .as_ref()
            .is_some_and(|lines| !wait_for_line(lines, &interrupted));
        if is_input_over || interrupted.load(Ordering::Relaxed) {
            let by = match interrupted.load(Ordering::Relaxed) {
                true => "by a signal",
                false => "with its input",
            };
            let what = format!(
                "ended {by} behind {written} of {} steps; run {run} is left unclosed",
                steps.len()
            );
            return Err(Failure::new(Code::Failure, &args.into, what));
        }
        let view = from.step(source.run, step.step).about(&args.stream)?;
        for writer in &mut writers {
            writer.begin_step().about(&args.into)?;
        }
        copy(&view, &mut writers).about(&args.stream)?;
        for writer in &mut writers {
            writer.end_step(Wait::Begun).about(&args.into)?;
        }
        written += 1;
        bar.add(1);
    }
    close(&mut writers, timeout).about(&args.into)?;
    drop(bar);
    let mut output = Output::new(args.client.json);
    output.either(
        &json!({
            "stream": args.stream,
            "from_run": source.run.0,
            "into": args.into,
            "run": run.0,
            "writer": writer,
            "ranks": source.ranks,
            "steps": written,
        }),
        &format!(
            "run {} of {} is run {run} of {}: {written} steps of {} ranks",
            source.run, args.stream, args.into, source.ranks
        ),
    )?;
    output.flush()
}

/// A message for each line of standard input. Its thread ends with the input, or with the process.
fn lines_of_input() -> Receiver<()> {
    let (send, receive) = channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines() {
            if line.is_err() || send.send(()).is_err() {
                return;
            }
        }
    });
    receive
}

/// Whether there was another line, up to an interrupt.
fn wait_for_line(lines: &Receiver<()>, interrupted: &AtomicBool) -> bool {
    while !interrupted.load(Ordering::Relaxed) {
        match lines.recv_timeout(LOOK) {
            Ok(()) => return true,
            Err(RecvTimeoutError::Disconnected) => return false,
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
    false
}

fn open_writers(
    into: &Stream,
    name: &str,
    ranks: u32,
    timeout: Duration,
) -> Result<Vec<Writer>, StepError> {
    let open = |rank| {
        into.writer(WriterOptions {
            name: name.to_owned(),
            rank,
            ranks,
            open_timeout: timeout,
            timeout,
            // Blocks of one process: what an idle rank keeps is of use to nobody.
            kept_bytes_max: (512 << 20) / ranks as usize,
            ..WriterOptions::default()
        })
    };
    (0..ranks).map(open).collect()
}

fn sleep_until(began: Instant, due: Duration, interrupted: &AtomicBool) {
    loop {
        let left = due.saturating_sub(began.elapsed());
        if left.is_zero() || interrupted.load(Ordering::Relaxed) {
            return;
        }
        std::thread::sleep(left.min(LOOK));
    }
}

/// Puts what a step holds, by the ranks that had put it.
fn copy(view: &StepView, writers: &mut [Writer]) -> Result<(), StepError> {
    for (name, value) in view.attributes().iter() {
        // Those that are as before are not sent again.
        writers[0].set_attribute(name, value.clone())?;
    }
    for entry in &view.table().variables {
        let dtype = DType::of_items(&entry.dtype, entry.item_bytes)?;
        let damaged = |what: String| StepError::Damaged(format!("{:?}: {what}", entry.name));
        let blocks = view.table().blocks(entry);
        let blocks = blocks.map_err(|error| damaged(error.to_string()))?;
        let layout = view.layout(&entry.name)?;
        for (index, rank) in blocks.ranks.iter().enumerate() {
            let writer = writers.get_mut(*rank as usize);
            let writer = writer.ok_or_else(|| damaged(format!("a block of rank {rank}")))?;
            if matches!(entry.kind, ShapeKind::Value | ShapeKind::LocalValue) {
                let value = blocks.values.get(index);
                let value = value.ok_or_else(|| damaged("a value is missing".to_owned()))?;
                writer.put_value(&entry.name, entry.kind, &dtype, value)?;
                continue;
            }
            let block = layout.block(index);
            let block = block.ok_or_else(|| damaged("a block is missing".to_owned()))?;
            let array = view.get(&entry.name, &Selection::Block(index as u64))?;
            let put = Put {
                name: &entry.name,
                dtype: &dtype,
                place: match entry.kind {
                    ShapeKind::Joined => Place::Joined(entry.joined),
                    ShapeKind::LocalArray => Place::Local,
                    _ => Place::Array {
                        shape: &entry.shape,
                        start: block.start,
                    },
                },
                count: block.count,
                with_extremes: !blocks.mins.is_empty(),
            };
            writer.put(&put, &array.data)?;
        }
    }
    Ok(())
}

/// Each rank waits for the others.
fn close(writers: &mut [Writer], timeout: Duration) -> Result<(), StepError> {
    std::thread::scope(|scope| {
        let closing: Vec<_> = writers
            .iter_mut()
            .map(|writer| scope.spawn(move || writer.close_run(timeout)))
            .collect();
        closing
            .into_iter()
            .try_for_each(|one| one.join().expect("closing does not panic"))
    })
}
