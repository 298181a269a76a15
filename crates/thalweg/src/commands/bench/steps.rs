//! `thalweg bench steps`: steps of arrays from the ranks of a writer to those of a reader.

mod figures;
mod job;
pub mod rank;
mod report;

use super::clients;
use super::meter::Usage;
use super::peer::{Cores, Server, Way};
use crate::failure::{About, Code, Failure};
use crate::output::Output;
use clap::Args;
use client::{Driver, Durability};
use figures::Figures;
use job::{Awaited, Done, Job, Load, PutMode, Side};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use step::{Retention, Stream, StreamOptions};

#[derive(Debug, Clone, Args)]
pub struct StepsArgs {
    /// Bytes of a step, all ranks' and variables' together: each variable is a row of numbers of 8
    /// bytes. Of several lengths a line is drawn through the times
    #[arg(long, value_name = "BYTES", value_delimiter = ',', default_values_t = [25_000_000])]
    pub bytes: Vec<u64>,
    /// Shape of each variable, instead of --bytes
    #[arg(
        long,
        value_name = "LENGTH,...",
        value_delimiter = ',',
        conflicts_with = "bytes"
    )]
    pub shape: Vec<u64>,
    /// What readers take of each dimension, from its middle; whole where nothing is said
    #[arg(long = "box", value_name = "FRACTION,...", value_delimiter = ',')]
    pub fractions: Vec<f64>,
    /// Variables of a step
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    pub variables: usize,
    /// Variables that are read with one request [default: all]
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = 0,
        hide_default_value = true
    )]
    pub batch: usize,
    /// Ranks that write: each has its share of the first dimension
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    pub writers: u32,
    /// Ranks that read: each takes its share of the first dimension of what is selected
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    pub readers: u32,
    /// Processes of readers: their ranks are threads of these, which share a connection
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    pub reader_processes: u32,
    /// Steps of a repetition
    #[arg(long, value_name = "COUNT", default_value_t = 24)]
    pub steps: usize,
    /// Steps that come before them and are not counted
    #[arg(long, value_name = "COUNT", default_value_t = 4)]
    pub warmup: usize,
    /// From the beginning of a step to that of the next, microseconds [default: as fast as it goes]
    #[arg(
        long,
        value_name = "TIME",
        default_value_t = 0,
        hide_default_value = true
    )]
    pub every_us: u64,
    /// How blocks are put
    #[arg(long, value_enum, default_value_t = PutMode::Copy)]
    pub put: PutMode,
    /// What ending a step waits for
    #[arg(long, value_enum, default_value_t = Awaited::Accepted)]
    pub wait: Awaited,
    /// Steps that readers have not released and writers wait for; 0 is without a limit
    #[arg(long, value_name = "COUNT", default_value_t = 2)]
    pub queue: u32,
    /// Look for the least and greatest element of each block
    #[arg(long)]
    pub extremes: bool,
    /// How a partition is stored: disk or memory
    #[arg(long, value_name = "KIND", default_value = "disk")]
    pub storage: String,
    /// What a part and a record survive [default: the strongest that the storage can give]
    #[arg(long, value_name = "LEVEL")]
    pub durability: Option<Durability>,
    /// Steps that the stream keeps [default: 8 in memory, all on disk]
    #[arg(long, value_name = "COUNT")]
    pub keep: Option<u64>,
    /// How ranks and server reach each other
    #[arg(long, value_enum, default_value_t = Way::Tcp)]
    pub transport: Way,
    /// Repetitions: each has a stream, and processes of ranks, of its own
    #[arg(long, value_name = "COUNT", default_value_t = 5)]
    pub repetitions: usize,
    /// Where the server keeps its data [default: a temporary directory]
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Print JSON: a line for each length, and one for the line through them
    #[arg(long)]
    pub json: bool,
}

/// What a memory partition keeps, if nothing is said: more than a queue holds.
const KEPT_IN_MEMORY: u64 = 8;

impl StepsArgs {
    fn check(&self) -> Result<(), Failure> {
        let wrong = |what: &str| Err(Failure::usage("bench", what));
        let counts = [
            self.variables as u64,
            self.writers.into(),
            self.readers.into(),
            self.reader_processes.into(),
            self.repetitions as u64,
        ];
        if counts.contains(&0) || self.shape.contains(&0) {
            return wrong("counts begin at 1");
        }
        if self.steps < 2 {
            return wrong("it takes two steps to tell how far they are apart");
        }
        if self.reader_processes > self.readers {
            return wrong("each process of readers has a rank at least");
        }
        if self.transport == Way::Inproc {
            return wrong("the ranks of steps are processes of their own: not with inproc");
        }
        if !self.fractions.iter().all(|one| *one > 0.0 && *one <= 1.0) {
            return wrong("a box has more than 0 and at most 1 of each dimension");
        }
        let dimensions = self.shape.len().max(1);
        if self.fractions.len() > dimensions {
            return wrong("the box has more dimensions than the variables");
        }
        if self.keep.is_some_and(|keep| keep <= u64::from(self.queue)) {
            return wrong("a stream that keeps no more steps than the queue loses some");
        }
        for load in self.loads() {
            let least = u64::from(self.writers.max(self.readers));
            if load.shape[0] < least {
                return wrong("the first dimension has less elements than there are ranks");
            }
        }
        Ok(())
    }

    /// A case for each length.
    fn loads(&self) -> Vec<Load> {
        let shapes: Vec<Vec<u64>> = match self.shape.is_empty() {
            false => vec![self.shape.clone()],
            true => {
                let length = |bytes: &u64| vec![bytes / 8 / self.variables as u64];
                self.bytes.iter().map(length).collect()
            }
        };
        let load = |shape| Load {
            shape,
            variables: self.variables,
            writers: self.writers,
            readers: self.readers,
            warmup: self.warmup,
            steps: self.steps,
            put: self.put,
            wait: self.wait,
            queue: self.queue,
            every_us: self.every_us,
            extremes: self.extremes,
            fractions: self.fractions.clone(),
            batch: self.batch,
        };
        shapes.into_iter().map(load).collect()
    }

    /// How the stream is made.
    fn stream(&self) -> StreamOptions {
        let keep = match (self.keep, self.storage.as_str()) {
            (Some(keep), _) => Some(keep),
            (None, "memory") => Some(KEPT_IN_MEMORY.max(2 * u64::from(self.queue))),
            (None, _) => None,
        };
        StreamOptions {
            storage: self.storage.clone(),
            durability: self.durability,
            retention: Retention {
                // What is not released is kept by nothing else, and without a queue all may be.
                count: keep.filter(|_| self.queue > 0),
                ..Retention::default()
            },
            ..StreamOptions::default()
        }
    }
}

/// `thalweg bench steps`.
pub fn run(args: &StepsArgs) -> Result<(), Failure> {
    args.check()?;
    // There are three processes at least: the kernel places them.
    let cores = Cores::choose(true)?;
    let scratch = tempfile::tempdir().about("a temporary directory")?;
    let directory = match &args.directory {
        Some(directory) => directory.clone(),
        None => scratch.path().join("data"),
    };
    let server = Server::start(&directory, scratch.path(), args.transport, &cores)?;
    let driver = clients::connect(server.endpoint())?;
    let mut output = Output::new(args.json);
    if !args.json {
        output.line(&report::heading(args))?;
    }
    let mut cases = Vec::new();
    for (index, load) in args.loads().into_iter().enumerate() {
        let mut repetitions = Vec::new();
        for repetition in 0..args.repetitions {
            let name = format!("steps-{index}-{repetition}");
            repetitions.push(repeat(args, &load, &server, &driver, &name)?);
        }
        output.either(
            &report::json(args, &load, &repetitions),
            &report::text(&load, &repetitions),
        )?;
        output.flush()?;
        cases.push((load, repetitions));
    }
    if cases.len() > 1 {
        output.either(&report::fit_json(args, &cases), &report::fit_text(&cases))?;
        output.flush()?;
    }
    drop(driver);
    server.stop()
}

/// A run of steps, with processes of its own.
fn repeat(
    args: &StepsArgs,
    load: &Load,
    server: &Server,
    driver: &Driver,
    name: &str,
) -> Result<Figures, Failure> {
    let group_file = server.group_file().expect("it is a process");
    let stream = Stream::create(driver, name, &args.stream()).about(name)?;
    let job = |side, first, count| Job {
        load: load.clone(),
        group_file: group_file.to_owned(),
        stream: name.to_owned(),
        side,
        first,
        count,
    };
    let of_reader = |process| {
        let at = |process| {
            let ranks = u64::from(args.readers) * u64::from(process);
            (ranks / u64::from(args.reader_processes)) as u32
        };
        job(Side::Read, at(process), at(process + 1) - at(process))
    };
    let mut readers = Vec::new();
    for process in 0..args.reader_processes {
        readers.push(Ranks::start(&of_reader(process))?);
    }
    let mut writers = vec![Ranks::start(&job(Side::Write, 0, args.writers))?];
    for process in readers.iter_mut().chain(&mut writers) {
        process.hear()?;
    }
    let before = usage(server, driver)?;
    for process in readers.iter_mut().chain(&mut writers) {
        process.begin()?;
    }
    let done = |processes: Vec<Ranks>| processes.into_iter().map(Ranks::end).collect();
    let (writers, readers): (Result<Vec<Done>, _>, Result<Vec<Done>, _>) =
        (done(writers), done(readers));
    let (writers, readers) = (writers?, readers?);
    let server = before
        .zip(usage(server, driver)?)
        .map(|(before, after)| after - before);
    drop(stream);
    driver.delete_topic(name).about(name)?;
    Ok(Figures::of(load, &writers, &readers, server))
}

fn usage(server: &Server, driver: &Driver) -> Result<Option<Usage>, Failure> {
    server.usage(driver)
}

/// A process of ranks. Killed if it has not ended.
struct Ranks {
    child: Child,
    output: BufReader<ChildStdout>,
    side: Side,
}

impl Ranks {
    fn start(job: &Job) -> Result<Self, Failure> {
        let program = std::env::current_exe().about("ranks")?;
        let job_text = serde_json::to_string(job).expect("a job becomes text");
        let mut child = command(&program, &job_text).spawn().about("ranks")?;
        let output = child.stdout.take().expect("its output is piped");
        Ok(Self {
            child,
            output: BufReader::new(output),
            side: job.side,
        })
    }

    fn subject(&self) -> &'static str {
        match self.side {
            Side::Write => "writers",
            Side::Read => "readers",
        }
    }

    /// The next line that it prints.
    fn hear(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        self.output.read_line(&mut line).about(self.subject())?;
        match line.is_empty() {
            // It has said why, on standard error.
            true => Err(Failure::new(Code::Failure, self.subject(), "have failed")),
            false => Ok(line),
        }
    }

    fn begin(&mut self) -> Result<(), Failure> {
        let input = self.child.stdin.as_mut().expect("its input is piped");
        input.write_all(b"begin\n").about(self.subject())
    }

    fn end(mut self) -> Result<Done, Failure> {
        let line = self.hear()?;
        serde_json::from_str(&line)
            .map_err(|error| Failure::new(Code::Failure, self.subject(), error))
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        // It has ended, unless something failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(program: &Path, job: &str) -> Command {
    let mut command = Command::new(program);
    command
        .args(["bench", "step-ranks", job])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    command
}
