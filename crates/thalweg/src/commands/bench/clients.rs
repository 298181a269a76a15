//! The clients of a benchmark: processes, or threads beside an embedded server.

use super::control::{Answer, Chair, Order, Seat};
use super::instructions::Counter;
use super::job::{Done, Job};
use super::launcher::Place;
use super::meter::Usage;
use super::peer::{Cores, Server};
use super::work::Ready;
use crate::failure::{About, Code, Failure};
use clap::Args;
use client::{Driver, DriverOptions, Endpoint};
use std::ops::Range;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;

/// A client process of a benchmark; started by it.
#[derive(Debug, Args)]
pub struct ClientArgs {
    /// The group file of the server
    #[arg(long)]
    pub group_file: PathBuf,
    /// The name of the benchmark's run
    #[arg(long)]
    pub run: String,
    /// Which client it is
    #[arg(long)]
    pub rank: usize,
}

/// Is a client until the benchmark is over.
pub fn run(args: &ClientArgs) -> Result<(), Failure> {
    let control = connect(Endpoint::GroupFile(args.group_file.clone()))?;
    let driver = connect(Endpoint::GroupFile(args.group_file.clone()))?;
    let (mut seat, mut order) = {
        // A benchmark that was killed may have left its topic, which the next
        // one removes under whoever has found it.
        let first = || {
            let seat = Seat::take(&control, &args.run, args.rank)?;
            let order = seat.hear()?;
            Ok::<_, Failure>((seat, order))
        };
        first().or_else(|_| first())?
    };
    while let Order::Prepare(job) = order {
        if let Err(failure) = one(&mut seat, &driver, &job) {
            seat.send(Answer::Failed(failure.to_string()))?;
            return Err(failure);
        }
        order = seat.hear()?;
    }
    seat.send(Answer::Ready)
}

fn one(seat: &mut Seat, driver: &Driver, job: &Job) -> Result<(), Failure> {
    let ready = Ready::prepare(driver, job)?;
    seat.send(Answer::Ready)?;
    match seat.hear()? {
        Order::Begin => seat.send(Answer::Done(Box::new(ready.run()?))),
        other => {
            let what = format!("told {other:?} when it was ready to begin");
            Err(Failure::new(Code::Failure, "a client", what))
        }
    }
}

/// A driver of a benchmark.
pub fn connect(endpoint: Endpoint) -> Result<Driver, Failure> {
    let options = DriverOptions {
        client_name: format!("thalweg bench {}", std::process::id()),
        ..crate::connection::driver_options()
    };
    Driver::connect(endpoint, options).about("the server")
}

/// What a round of jobs gave.
#[derive(Debug)]
pub struct Round {
    /// Of each client, in the order of the jobs.
    pub done: Vec<Done>,
    /// Of all clients together.
    pub clients: Usage,
    /// Of the server, where it is a process that can be looked at.
    pub server: Option<Usage>,
}

/// All clients.
pub enum Clients {
    /// Threads of this process, in which the server runs too.
    Threads(Driver),
    /// Processes of their own.
    Processes {
        chair: Box<Chair>,
        children: Vec<Child>,
        /// Whether instructions are counted.
        instructions: bool,
    },
}

impl Clients {
    /// Starts `count` processes, or as many as a launcher has not started already.
    pub fn start(
        server: &Server,
        driver: &Driver,
        count: usize,
        run: &str,
        place: Option<Place>,
        cores: &Cores,
    ) -> Result<Self, Failure> {
        let Some(group_file) = server.group_file() else {
            return Ok(Self::Threads(driver.clone()));
        };
        let chair = Box::new(Chair::open(driver, run, count)?);
        let own = match place {
            // The others were launched; the first has the chair, and its
            // client is a process of its own like theirs.
            Some(_) => 1,
            None => count,
        };
        let mut children = Vec::new();
        for rank in 0..own {
            let program = std::env::current_exe().about("a client")?;
            let mut command = Command::new(program);
            command
                .args(["bench", "client", "--group-file"])
                .arg(group_file)
                .args(["--run", run, "--rank", &rank.to_string()])
                .stdin(Stdio::null())
                .stdout(Stdio::null());
            children.push(cores.spawn_client(&mut command, rank).about("a client")?);
        }
        let mut clients = Self::Processes {
            chair,
            children,
            instructions: false,
        };
        clients.hear(count)?;
        Ok(clients)
    }

    /// Has instructions counted from the next round on.
    pub fn count_instructions(&mut self) -> Result<(), Failure> {
        match self {
            Self::Processes { instructions, .. } => {
                *instructions = true;
                Ok(())
            }
            Self::Threads(_) => {
                let what = "counted of processes alone: not with --transport inproc";
                Err(Failure::usage("--instructions", what))
            }
        }
    }

    /// Those that count, of the clients and of the server.
    fn counters(&self, server: &Server) -> Result<Option<[Counter; 2]>, Failure> {
        match (self, server.process()) {
            (
                Self::Processes {
                    children,
                    instructions: true,
                    ..
                },
                Some(server),
            ) => {
                let clients: Vec<u32> = children.iter().map(Child::id).collect();
                Ok(Some([
                    Counter::attach(&clients)?,
                    Counter::attach(&[server])?,
                ]))
            }
            _ => Ok(None),
        }
    }

    fn hear(&mut self, count: usize) -> Result<Vec<Answer>, Failure> {
        let Self::Processes {
            chair, children, ..
        } = self
        else {
            return Ok(Vec::new());
        };
        chair.hear(count, || {
            for (rank, child) in children.iter_mut().enumerate() {
                if let Some(status) = child.try_wait().about("a client")? {
                    let what = format!("ended before its work: {status}");
                    return Err(Failure::new(Code::Failure, format!("client {rank}"), what));
                }
            }
            Ok(())
        })
    }

    /// Gives each of the first clients a job; returns when all are done.
    pub fn round(
        &mut self,
        jobs: Vec<Job>,
        server: &Server,
        driver: &Driver,
    ) -> Result<Round, Failure> {
        match self {
            Self::Threads(driver) => in_threads(driver, &jobs),
            Self::Processes { .. } => self.in_processes(jobs, server, driver),
        }
    }

    fn in_processes(
        &mut self,
        jobs: Vec<Job>,
        server: &Server,
        driver: &Driver,
    ) -> Result<Round, Failure> {
        let count = jobs.len();
        for (rank, job) in jobs.into_iter().enumerate() {
            self.send(rank..rank + 1, Order::Prepare(Box::new(job)))?;
        }
        self.hear(count)?;
        let mut counters = self.counters(server)?;
        let before = server.usage(driver)?;
        if let Some(counters) = &mut counters {
            counters.iter_mut().try_for_each(Counter::begin)?;
        }
        self.send(0..count, Order::Begin)?;
        let answers = self.hear(count)?;
        let [of_clients, of_server] = match counters {
            Some([clients, server]) => [clients.end()?, server.end()?],
            None => [0, 0],
        };
        let after = server.usage(driver)?;
        let done: Vec<Done> = answers
            .into_iter()
            .filter_map(|answer| match answer {
                Answer::Done(done) => Some(*done),
                _ => None,
            })
            .collect();
        if done.len() != count {
            let what = format!("{} of {count} clients told what they did", done.len());
            return Err(Failure::new(Code::Failure, "the clients", what));
        }
        Ok(Round {
            clients: Usage {
                instructions: of_clients,
                ..sum(&done)
            },
            server: after.zip(before).map(|(after, before)| Usage {
                instructions: of_server,
                ..after - before
            }),
            done,
        })
    }

    fn send(&self, ranks: Range<usize>, order: Order) -> Result<(), Failure> {
        match self {
            Self::Processes { chair, .. } => chair.send(ranks, order),
            Self::Threads(_) => Ok(()),
        }
    }

    /// Ends them.
    pub fn end(self, driver: &Driver) -> Result<(), Failure> {
        if let Self::Processes {
            chair,
            mut children,
            ..
        } = self
        {
            chair.end(driver)?;
            for child in &mut children {
                child.wait().about("a client")?;
            }
        }
        Ok(())
    }
}

fn in_threads(driver: &Driver, jobs: &[Job]) -> Result<Round, Failure> {
    let ready = jobs
        .iter()
        .map(|job| Ready::prepare(driver, job))
        .collect::<Result<Vec<_>, _>>()?;
    let start = Barrier::new(ready.len() + 1);
    let (done, clients) = std::thread::scope(|scope| {
        let threads: Vec<_> = ready
            .into_iter()
            .map(|ready| {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    ready.run()
                })
            })
            .collect();
        let before = Usage::own(0);
        start.wait();
        let done: Result<Vec<Done>, Failure> = threads
            .into_iter()
            .map(|thread| thread.join().expect("a client that fails does not panic"))
            .collect();
        let used = Usage::own(0).and_then(|after| Ok(after - before?));
        (done, used.about("the usage"))
    });
    let done = done?;
    let frames = done.iter().map(|done| done.usage.frames).max();
    Ok(Round {
        // Each thread has seen the whole process: it is counted once. Its
        // time is that of clients and server together.
        clients: Usage {
            frames: frames.unwrap_or(0),
            ..clients?
        },
        server: None,
        done,
    })
}

fn sum(done: &[Done]) -> Usage {
    done.iter()
        .fold(Usage::default(), |sum, done| sum + done.usage)
}
