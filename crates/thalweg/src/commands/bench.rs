//! `thalweg bench`: how fast the event path is, beside what the machine can
//! do, measured in the same run.
//!
//! Every repetition measures the raw stream first and Thalweg right after it,
//! so that a machine whose speed drifts drifts for both; what is reported is
//! the median of the ratios, with their spread.

mod kept;
mod load;
mod peer;
mod raw;
mod report;

use crate::failure::{About, Failure};
use crate::output::Output;
use clap::{Args, Subcommand, ValueEnum};
use kept::Kept;
use load::{Case, Work};
use peer::{Cores, ServerProcess};
use report::Repetition;
use std::path::PathBuf;
use wire::Durability;

#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Produce events and wait for the last acknowledgement
    Produce(BenchArgs),
    /// Consume the history of a topic
    Consume(BenchArgs),
    /// Produce to memory, produce with `written`, and consume: 1 KB events over TCP
    Floors(BenchArgs),
    /// The other end of the raw stream
    #[command(hide = true)]
    RawReceiver,
}

/// How client and server reach each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Way {
    /// TCP over the loopback interface
    Tcp,
    /// A unix socket
    Unix,
}

#[derive(Debug, Clone, Args)]
pub struct BenchArgs {
    /// Bytes of metadata of an event; it has no data
    #[arg(long, value_name = "BYTES", default_value_t = 1000)]
    pub event_bytes: usize,
    /// Events in a repetition
    #[arg(long, value_name = "COUNT", default_value_t = 1_000_000)]
    pub events: u64,
    /// How the partition is stored: disk or memory
    #[arg(long, value_name = "KIND", default_value = "disk")]
    pub storage: String,
    /// What an acknowledgement survives [default: the strongest that the storage can give]
    #[arg(long, value_name = "LEVEL")]
    pub durability: Option<Durability>,
    /// How client and server reach each other
    #[arg(long, value_enum, default_value_t = Way::Tcp)]
    pub transport: Way,
    /// The most bytes in a batch
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 20)]
    pub batch_bytes: u32,
    /// Counted repetitions; one more comes first and is not counted
    #[arg(long, value_name = "COUNT", default_value_t = 5)]
    pub repetitions: usize,
    /// Where the server keeps its data [default: a temporary directory]
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Bytes of measured events to keep until the end, lest their removal disturbs what is measured
    /// next; beyond it all are removed between two repetitions [default: a quarter of the available
    /// memory]
    #[arg(long, value_name = "BYTES")]
    pub keep_bytes: Option<u64>,
    /// Let the kernel place the processes, instead of one core a side
    #[arg(long)]
    pub no_pin: bool,
    /// Print JSON, one case a line
    #[arg(long)]
    pub json: bool,
}

impl BenchArgs {
    fn case(&self, work: Work) -> Case {
        Case {
            work,
            storage: self.storage.clone(),
            durability: self.durability,
            event_bytes: self.event_bytes,
            events: self.events,
            batch_bytes: self.batch_bytes,
        }
    }
}

pub fn run(command: BenchCommand) -> Result<(), Failure> {
    match command {
        BenchCommand::RawReceiver => raw::receive(),
        BenchCommand::Produce(args) => run_cases(&args, vec![args.case(Work::Produce)]),
        BenchCommand::Consume(args) => run_cases(&args, vec![args.case(Work::Consume)]),
        BenchCommand::Floors(args) => {
            let case = |work, storage: &str, durability| Case {
                storage: storage.to_owned(),
                durability: Some(durability),
                ..args.case(work)
            };
            let cases = vec![
                case(Work::Produce, "memory", Durability::Memory),
                case(Work::Produce, "disk", Durability::Written),
                case(Work::Consume, "disk", Durability::Written),
            ];
            run_cases(&args, cases)
        }
    }
}

fn run_cases(args: &BenchArgs, cases: Vec<Case>) -> Result<(), Failure> {
    if args.event_bytes == 0 || args.events == 0 || args.repetitions == 0 {
        return Err(Failure::usage("bench", "sizes and counts begin at 1"));
    }
    let cores = Cores::choose(args.no_pin)?;
    let scratch = tempfile::tempdir().about("a temporary directory")?;
    let directory = args
        .directory
        .clone()
        .unwrap_or_else(|| scratch.path().join("data"));
    let server = ServerProcess::start(&directory, scratch.path(), args.transport, &cores)?;
    let driver = server.connect()?;
    let mut kept = Kept::new(&directory, args.keep_bytes)?;
    let mut output = Output::new(args.json);
    if !args.json {
        output.line(&report::heading(&cores, args.transport, args.repetitions))?;
        output.flush()?;
    }
    for case in cases {
        let mut repetitions = Vec::new();
        for index in 0..=args.repetitions {
            let topic = kept.next(&driver, case.bytes())?;
            let raw_bytes_per_s = raw::measure(&cores, case.bytes())?;
            let measured = load::run(&case, &topic, &driver, server.process())?;
            // The first warms caches, pools and the page tables.
            if index > 0 {
                repetitions.push(Repetition {
                    raw_bytes_per_s,
                    measured,
                });
            }
        }
        output.either(
            &report::json(&case, &repetitions),
            &report::text(&case, &repetitions),
        )?;
        output.flush()?;
    }
    kept.delete_all(&driver)?;
    drop(driver);
    server.stop()
}
