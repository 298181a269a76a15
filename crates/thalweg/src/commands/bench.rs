//! `thalweg bench`: how fast the event path is, beside what the machine can
//! do, measured in the same run.
//!
//! Every repetition measures the limits first and Thalweg right after them,
//! so that a machine whose speed drifts drifts for both; what is reported is
//! the median of the ratios, with their spread. Clients are processes of
//! their own, which are told what to do over a topic of the measured server.

mod case;
mod clients;
mod control;
mod document;
mod instructions;
mod job;
mod kept;
mod launcher;
pub mod limits;
mod meter;
pub mod peer;
mod report;
pub mod rpc;
mod runs;
mod sharing;
pub mod steps;
mod work;

use crate::failure::{About, Failure};
use crate::output::Output;
use case::{Case, LoadArgs, Work};
use clap::{Args, Subcommand};
use clients::{ClientArgs, Clients};
use kept::Kept;
use launcher::Place;
use limits::{Limits, LimitsArgs, ReceiverArgs};
use peer::{Cores, Server, Way};
use rpc::{ResponderArgs, RpcArgs};
use runs::Rig;
use serde_json::{Map, json};
use std::path::{Path, PathBuf};
use steps::StepsArgs;
use steps::rank::RanksArgs;
use wire::Durability;

#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Produce events and wait for the last acknowledgement
    Produce(BenchArgs),
    /// Consume the history of topics
    Consume(BenchArgs),
    /// Produce and consume at once: consumers tail live producers
    Pipeline(BenchArgs),
    /// Send one event at a time from one process through the server to another
    Latency(BenchArgs),
    /// Share the events of a topic among the members of a queue, which acknowledge each
    Queue(BenchArgs),
    /// Send requests to the members of a queue, and await their replies
    Request(BenchArgs),
    /// Send to all consumers of a topic at once, and gather their replies
    Broadcast(BenchArgs),
    /// Produce to memory, produce with `written`, and consume: 1 KB events over TCP
    Floors(BenchArgs),
    /// Make small calls over a transport, without topics
    Rpc(RpcArgs),
    /// Write and read steps of arrays
    Steps(StepsArgs),
    /// Measure what the machine can do: memory, loopback, files
    Limits(LimitsArgs),
    /// A client of a benchmark
    #[command(hide = true)]
    Client(ClientArgs),
    /// The other end of the raw stream
    #[command(hide = true)]
    RawReceiver(ReceiverArgs),
    /// Memory that another process reads
    #[command(hide = true)]
    RawMemory,
    /// Ranks of steps
    #[command(hide = true)]
    StepRanks(RanksArgs),
    /// The other side of calls
    #[command(hide = true)]
    RpcResponder(ResponderArgs),
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Benchmark")]
pub struct BenchArgs {
    #[command(flatten)]
    pub load: LoadArgs,
    /// How clients and server reach each other
    #[arg(long, value_enum, default_value_t = Way::Tcp)]
    pub transport: Way,
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
    /// The group file of a server that runs already, in place of one of the benchmark's own; needed
    /// where mpiexec or srun launch the clients
    #[arg(long, value_name = "FILE", conflicts_with = "directory")]
    pub group_file: Option<PathBuf>,
    /// A name for this run, where several share a server
    #[arg(long, value_name = "NAME", default_value = "1")]
    pub run: String,
    /// Let the kernel place the processes, instead of one core for the server and the others for the
    /// clients
    #[arg(long)]
    pub no_pin: bool,
    /// Count instructions in user space, of clients and of the server, by the program `perf`
    #[arg(long, conflicts_with = "group_file")]
    pub instructions: bool,
    /// Count the first repetition, too
    #[arg(long)]
    pub count_first: bool,
    /// Leave the topics in place at the end
    #[arg(long)]
    pub leave_topics: bool,
    /// Do not measure the limits beside each repetition
    #[arg(long)]
    pub no_limits: bool,
    /// Print JSON, one case a line
    #[arg(long)]
    pub json: bool,
}

pub fn run(command: BenchCommand) -> Result<(), Failure> {
    let one = |args: &BenchArgs, work| run_cases(args, work, |load| Case::all(work, load));
    match command {
        BenchCommand::RawReceiver(args) => limits::receive(&args),
        BenchCommand::RawMemory => limits::foreign::hold(),
        BenchCommand::RpcResponder(args) => rpc::respond(&args),
        BenchCommand::StepRanks(args) => steps::rank::run(&args),
        BenchCommand::Steps(args) => steps::run(&args),
        BenchCommand::Client(args) => clients::run(&args),
        BenchCommand::Rpc(args) => rpc::run(&args),
        BenchCommand::Limits(args) => limits::run(&args),
        BenchCommand::Produce(args) => one(&args, Work::Produce),
        BenchCommand::Consume(args) => one(&args, Work::Consume),
        BenchCommand::Pipeline(args) => one(&args, Work::Pipeline),
        BenchCommand::Latency(args) => one(&args, Work::Latency),
        BenchCommand::Queue(args) => one(&args, Work::Queue),
        BenchCommand::Request(args) => one(&args, Work::Request),
        BenchCommand::Broadcast(args) => one(&args, Work::Broadcast),
        BenchCommand::Floors(args) => run_cases(&args, Work::Produce, floors),
    }
}

/// What a topic keeps that is measured in its steady state: a segment of the
/// default size.
const STEADY_BYTES: u64 = 256 << 20;

fn floors(load: &LoadArgs) -> Result<Vec<Case>, Failure> {
    let case = |work, storage: &str, durability, steady| {
        let mut load = LoadArgs {
            storage: storage.to_owned(),
            durability: Some(durability),
            ..load.clone()
        };
        if steady {
            load.retention_bytes.get_or_insert(STEADY_BYTES);
            load.warmup = load.warmup.max(load.events.unwrap_or(1_000_000));
        }
        Case::new(work, load)
    };
    Ok(vec![
        case(Work::Produce, "memory", Durability::Memory, true)?,
        case(Work::Produce, "memory", Durability::Memory, false)?,
        case(Work::Produce, "disk", Durability::Written, true)?,
        case(Work::Produce, "disk", Durability::Written, false)?,
        case(Work::Consume, "disk", Durability::Written, false)?,
    ])
}

fn run_cases(
    args: &BenchArgs,
    work: Work,
    cases: impl FnOnce(&LoadArgs) -> Result<Vec<Case>, Failure>,
) -> Result<(), Failure> {
    if args.repetitions == 0 {
        return Err(Failure::usage("bench", "counts begin at 1"));
    }
    let place = Place::find(|name| std::env::var(name).ok());
    let mut load = args.load.clone();
    if let Some(place) = place {
        let Some(group_file) = &args.group_file else {
            let what = "clients that were launched together need --group-file of a running server";
            return Err(Failure::usage("bench", what));
        };
        if place.rank > 0 {
            return clients::run(&ClientArgs {
                group_file: group_file.clone(),
                run: args.run.clone(),
                rank: place.rank,
            });
        }
        load.clients = clients_of(place, work)?;
    }
    measure(args, cases(&load)?, place)
}

/// How many clients a side has, where a launcher says how many there are.
fn clients_of(place: Place, work: Work) -> Result<usize, Failure> {
    let size = place.size;
    match work {
        Work::Produce | Work::Consume => Ok(size),
        Work::Queue | Work::Request | Work::Pipeline if size.is_multiple_of(2) => Ok(size / 2),
        Work::Broadcast if size > 1 => Ok(size - 1),
        Work::Latency if size == 2 => Ok(1),
        Work::Queue | Work::Request | Work::Pipeline => {
            let what = "there are as many consumers as producers: launch an even number";
            Err(Failure::usage("bench", what))
        }
        Work::Broadcast => {
            let what = "a broadcast has one sender and others who hear it: launch two or more";
            Err(Failure::usage("bench", what))
        }
        Work::Latency => {
            let what = "latency has one sender and one receiver: launch two, on one host";
            Err(Failure::usage("bench", what))
        }
    }
}

fn measure(args: &BenchArgs, cases: Vec<Case>, place: Option<Place>) -> Result<(), Failure> {
    let cores = Cores::choose(args.no_pin || place.is_some())?;
    let scratch = tempfile::tempdir().about("a temporary directory")?;
    let directory = match &args.directory {
        Some(directory) => directory.clone(),
        None => scratch.path().join("data"),
    };
    let server = match &args.group_file {
        Some(group_file) => Server::Running(group_file.clone()),
        None => Server::start(&directory, scratch.path(), args.transport, &cores)?,
    };
    let driver = clients::connect(server.endpoint())?;
    // The directory of somebody else's server is not looked at.
    let directory = match &server {
        Server::Running(_) => scratch.path(),
        _ => &directory,
    };
    let count = cases.iter().map(Case::processes).max().unwrap_or(0);
    let mut clients = Clients::start(&server, &driver, count, &args.run, place, &cores)?;
    if args.instructions {
        clients.count_instructions()?;
    }
    let mut kept = Kept::new(directory, args.keep_bytes)?;
    let mut rig = Rig {
        server: &server,
        driver: &driver,
        clients: &mut clients,
        kept: &mut kept,
        scratch: scratch.path(),
    };
    let mut output = Output::new(args.json);
    if !args.json {
        output.line(&heading(args, &cores))?;
    }
    for case in cases {
        let mut repetitions = Vec::new();
        // The first warms caches, pools and the page tables.
        let uncounted = usize::from(!args.count_first);
        for index in 0..args.repetitions + uncounted {
            let limits = limits_beside(args, &case, &cores, scratch.path())?;
            let repetition = rig.repeat(&case, limits)?;
            if index >= uncounted {
                repetitions.push(repetition);
            }
        }
        let mut settings = Map::new();
        settings.insert("transport".to_owned(), json!(args.transport.name()));
        output.either(
            &report::json(&case, &repetitions, &settings),
            &report::text(&case, &repetitions),
        )?;
        output.flush()?;
    }
    if !args.leave_topics {
        kept.delete_all(&driver)?;
    }
    clients.end(&driver)?;
    drop(driver);
    server.stop()
}

fn limits_beside(
    args: &BenchArgs,
    case: &Case,
    cores: &Cores,
    scratch: &Path,
) -> Result<Limits, Failure> {
    match args.no_limits || case.work.is_about_delays() {
        true => Ok(Limits::default()),
        false => Limits::of(case, args.transport, cores, scratch),
    }
}

/// The lines above all cases.
fn heading(args: &BenchArgs, cores: &Cores) -> String {
    let way = match (&args.group_file, args.transport) {
        (Some(_), _) => "a running server",
        (None, Way::Tcp) => "TCP over loopback",
        (None, Way::Unix) => "unix socket",
        (None, Way::Shm) => "shared memory",
        (None, Way::Inproc) => "within one process",
    };
    format!(
        "{way}, {}; median [min to max] of {} repetitions, each beside its limits",
        cores.describe(),
        args.repetitions
    )
}
