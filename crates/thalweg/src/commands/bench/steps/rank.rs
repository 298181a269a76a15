//! The ranks of a process: each writes or reads a run of steps.

use super::super::clients::connect;
use super::super::meter::Usage;
use super::job::{Awaited, Done, Job, Load, Marks, Piece, PutMode, Side, now};
use crate::failure::{About, Code, Failure};
use clap::Args;
use client::{Driver, Endpoint, Target};
use memory::Buffer;
use std::io::BufRead;
use std::sync::atomic::Ordering;
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::Duration;
use step::{
    Along, DType, GetTarget, Next, Place, Put, Range, Reader, ReaderOptions, Selection, StepView,
    Stream, Wait, Writer, WriterOptions,
};

/// How long anything may take before the benchmark gives up.
const WAIT: Duration = Duration::from_secs(120);

/// A process of ranks; started by a benchmark.
#[derive(Debug, Args)]
pub struct RanksArgs {
    /// What it does, as JSON
    job: String,
}

/// Is ranks for one run: says `ready`, begins with a line from standard input, and prints what it
/// did.
pub fn run(args: &RanksArgs) -> Result<(), Failure> {
    let job: Job =
        serde_json::from_str(&args.job).map_err(|error| Failure::usage("the job", error))?;
    let driver = connect(Endpoint::GroupFile(job.group_file.clone()))?;
    let stream = Stream::open(&driver, &job.stream).about(&job.stream)?;
    let done = match job.side {
        Side::Read => {
            let open = |rank| ReadRank::open(&stream, &job, rank);
            let ranks: Result<Vec<ReadRank>, Failure> = ranks(&job).map(open).collect();
            all(
                ranks?,
                &driver,
                wait_for_the_word,
                ReadRank::step,
                ReadRank::end,
            )?
        }
        Side::Write => {
            // The first step waits for a reader: they are there before the word comes.
            wait_for_the_word()?;
            let open = |rank| WriteRank::open(&stream, &job, rank);
            let ranks: Result<Vec<WriteRank>, Failure> = ranks(&job).map(open).collect();
            all(ranks?, &driver, || Ok(()), WriteRank::step, WriteRank::end)?
        }
    };
    println!(
        "{}",
        serde_json::to_string(&done).expect("numbers become text")
    );
    Ok(())
}

fn ranks(job: &Job) -> std::ops::Range<u32> {
    job.first..job.first + job.count
}

fn wait_for_the_word() -> Result<(), Failure> {
    println!("ready");
    let mut line = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut line)
        .about("the benchmark")?;
    match line.is_empty() {
        true => Err(Failure::new(Code::Failure, "the benchmark", "is gone")),
        false => Ok(()),
    }
}

/// What a rank is for.
trait Rank: Send {
    fn load(&self) -> &Load;
    fn asked_bytes(&self) -> u64 {
        0
    }
}

/// Has each rank do its steps, in a thread of its own.
fn all<R: Rank>(
    ranks: Vec<R>,
    driver: &Driver,
    ready: impl FnOnce() -> Result<(), Failure>,
    step: impl Fn(&mut R, usize) -> Result<Marks, Failure> + Sync,
    end: impl Fn(&mut R) -> Result<(), Failure> + Sync,
) -> Result<Done, Failure> {
    let usage = || {
        let counters = driver.counters();
        let frames = counters.frames_sent.load(Ordering::Relaxed)
            + counters.frames_received.load(Ordering::Relaxed);
        Usage::own(frames).about("the usage")
    };
    let count = ranks[0].load().all_steps();
    let barrier = Barrier::new(ranks.len());
    // Read when all ranks have done their steps, and none has gone on.
    let after = Mutex::new(None);
    ready()?;
    let before = usage()?;
    let work = |mut rank: R| {
        let mut marks = Vec::with_capacity(count);
        let done = (0..count).try_for_each(|index| {
            marks.push(step(&mut rank, index)?);
            Ok(())
        });
        if barrier.wait().is_leader() {
            *after.lock().unwrap_or_else(PoisonError::into_inner) = Some(usage());
        }
        barrier.wait();
        done?;
        end(&mut rank)?;
        Ok::<_, Failure>((marks, rank.asked_bytes()))
    };
    let done: Result<Vec<(Vec<Marks>, u64)>, Failure> = std::thread::scope(|scope| {
        let threads: Vec<_> = ranks
            .into_iter()
            .map(|rank| scope.spawn(|| work(rank)))
            .collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| match thread.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        threads.into_iter().map(join).collect()
    });
    let after = after.into_inner().unwrap_or_else(PoisonError::into_inner);
    let asked: Vec<(Vec<Marks>, u64)> = done?;
    Ok(Done {
        usage: after.expect("one of them was the leader")? - before,
        asked_bytes: asked.iter().map(|(_, bytes)| bytes).sum(),
        ranks: asked.into_iter().map(|(marks, _)| marks).collect(),
    })
}

fn name(variable: usize) -> String {
    format!("v{variable}")
}

struct WriteRank<'a> {
    writer: Writer,
    load: &'a Load,
    names: Vec<String>,
    dtype: DType,
    start: Vec<u64>,
    count: Vec<u64>,
    /// What the program has: a block, which it puts as each of its variables.
    block: Vec<u8>,
    /// When its first step began.
    began: Option<u64>,
}

impl<'a> WriteRank<'a> {
    fn open(stream: &Stream, job: &'a Job, rank: u32) -> Result<Self, Failure> {
        let load = &job.load;
        let options = WriterOptions {
            rank,
            ranks: load.writers,
            queue_steps: load.queue,
            readers_min: 1,
            open_timeout: WAIT,
            timeout: WAIT,
            ..WriterOptions::default()
        };
        let rows = load.rows(rank);
        let mut start = vec![0; load.shape.len()];
        let mut count = load.shape.clone();
        (start[0], count[0]) = (rows.start, rows.count);
        let bytes = 8 * count.iter().product::<u64>() as usize;
        Ok(Self {
            writer: stream.writer(options).about(&job.stream)?,
            load,
            names: (0..load.variables).map(name).collect(),
            dtype: DType::parse("<f8").map_err(|error| Failure::usage("<f8", error))?,
            start,
            count,
            // Written, so that its pages are there.
            block: vec![1; bytes],
            began: None,
        })
    }

    fn step(&mut self, index: usize) -> Result<Marks, Failure> {
        let about = "a writer";
        // So much of it is read again by whom it comes to.
        if let Some(first) = self.block.first_chunk_mut() {
            *first = (index as f64).to_le_bytes();
        }
        if self.load.every_us > 0 {
            let began = *self.began.get_or_insert_with(now);
            let due = began + index as u64 * self.load.every_us * 1000;
            std::thread::sleep(Duration::from_nanos(due.saturating_sub(now())));
        }
        let began = now();
        self.writer.begin_step().about(about)?;
        for name in &self.names {
            let put = Put {
                name,
                dtype: &self.dtype,
                place: Place::Array {
                    shape: &self.load.shape,
                    start: &self.start,
                },
                count: &self.count,
                with_extremes: self.load.extremes,
            };
            match self.load.put {
                PutMode::Copy => self.writer.put(&put, &self.block).about(about)?,
                PutMode::Span => {
                    let span = self.writer.span(&put).about(about)?;
                    let memory = self.writer.span_mut(span).about(about)?;
                    if let Some(first) = memory.first_chunk_mut() {
                        *first = (index as f64).to_le_bytes();
                    }
                }
            }
        }
        let put = now();
        let wait = match self.load.wait {
            Awaited::Begun => Wait::Begun,
            Awaited::Accepted | Awaited::Committed => Wait::Accepted,
        };
        self.writer.end_step(wait).about(about)?;
        let ended = now();
        let mut committed = ended;
        if self.load.wait == Awaited::Committed {
            self.writer.wait(Wait::Committed, WAIT).about(about)?;
            committed = now();
        }
        Ok([began, put, ended, committed])
    }

    fn end(&mut self) -> Result<(), Failure> {
        self.writer.close_run(WAIT).about("a writer")
    }
}

impl Rank for WriteRank<'_> {
    fn load(&self) -> &Load {
        self.load
    }
}

struct ReadRank<'a> {
    reader: Reader,
    load: &'a Load,
    names: Vec<String>,
    pieces: Vec<Piece>,
    selection: Selection,
    /// Memory of each variable's selection, the same for all steps.
    memory: Vec<Buffer>,
    asked_bytes: u64,
}

impl<'a> ReadRank<'a> {
    fn open(stream: &Stream, job: &'a Job, rank: u32) -> Result<Self, Failure> {
        let load = &job.load;
        let options = ReaderOptions {
            rank,
            ranks: load.readers,
            ..ReaderOptions::default()
        };
        let pieces = load.selected(rank);
        let along = |piece: &Piece| {
            Along::Range(Range {
                start: piece.start,
                count: piece.count,
                step: 1,
            })
        };
        let bytes = 8 * pieces.iter().map(|piece| piece.count).product::<u64>() as usize;
        let memory = |_| {
            let mut buffer = Buffer::zeroed(bytes);
            // Written, so that its pages are there.
            buffer.fill(1);
            buffer
        };
        Ok(Self {
            reader: stream.reader(options).about(&job.stream)?,
            load,
            names: (0..load.variables).map(name).collect(),
            selection: Selection::Box(pieces.iter().map(along).collect()),
            memory: (0..load.variables).map(memory).collect(),
            pieces,
            asked_bytes: 0,
        })
    }

    fn step(&mut self, index: usize) -> Result<Marks, Failure> {
        let about = "a reader";
        let asked = now();
        let view = match self.reader.next(WAIT).about(about)? {
            Next::Step(view) => view,
            other => {
                let what = format!("step {index} was to come, and there was {other:?}");
                return Err(Failure::new(Code::Failure, about, what));
            }
        };
        let given = now();
        if self.pieces.iter().all(|piece| piece.count > 0) {
            self.get(&view)?;
        }
        let got = now();
        if index == 0 {
            self.asked_bytes = self.bytes_asked_for(&view)?;
        }
        self.check(&view, index)?;
        drop(view);
        Ok([asked, given, got, now()])
    }

    fn get(&mut self, view: &StepView) -> Result<(), Failure> {
        let batch = match self.load.batch {
            0 => self.names.len(),
            batch => batch,
        };
        for first in (0..self.names.len()).step_by(batch) {
            let last = (first + batch).min(self.names.len());
            let gets = (first..last).map(|index| GetTarget {
                name: self.names[index].clone(),
                selection: self.selection.clone(),
                into: Target::from(std::mem::replace(&mut self.memory[index], Buffer::empty())),
            });
            let read = view.get_targets(gets.collect()).about("a reader")?;
            for (memory, (target, coverage)) in self.memory[first..].iter_mut().zip(read) {
                *memory = target.into_owner();
                if coverage.uncovered > 0 {
                    let what = format!("{} elements are missing", coverage.uncovered);
                    return Err(Failure::new(Code::Failure, "a reader", what));
                }
            }
        }
        Ok(())
    }

    fn bytes_asked_for(&self, view: &StepView) -> Result<u64, Failure> {
        let of = |name: &String| {
            let plan = view.layout(name).about("a reader")?;
            let plan = plan.plan(&self.selection);
            let plan = plan.map_err(|error| Failure::new(Code::Failure, "a reader", error))?;
            Ok(plan.reads().iter().map(|read| read.bytes).sum::<u64>())
        };
        self.names.iter().map(of).sum()
    }

    /// What came is of this step, where its first element tells that.
    fn check(&self, view: &StepView, index: usize) -> Result<(), Failure> {
        let is_first = self.pieces.iter().all(|piece| piece.start == 0);
        let wanted = (index as f64).to_le_bytes();
        let mut firsts = self.memory.iter().filter_map(|memory| memory.first_chunk());
        let is_right = !is_first || firsts.all(|first| *first == wanted);
        if is_right && view.number().0 == index as u64 {
            return Ok(());
        }
        let what = format!("step {index} was to come, and {view:?} has other values");
        Err(Failure::new(Code::Failure, "a reader", what))
    }

    fn end(&mut self) -> Result<(), Failure> {
        match self.reader.next(WAIT).about("a reader")? {
            Next::End { broken: None, .. } => Ok(()),
            other => {
                let what = format!("the run was to end, and there was {other:?}");
                Err(Failure::new(Code::Failure, "a reader", what))
            }
        }
    }
}

impl Rank for ReadRank<'_> {
    fn load(&self) -> &Load {
        self.load
    }
    fn asked_bytes(&self) -> u64 {
        self.asked_bytes
    }
}
