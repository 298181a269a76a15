//! Calls: small requests with empty bodies and their answers, some of them
//! under way at once, over a transport and nothing else: no topic, no log.

use super::job::Delays;
use super::meter::Usage;
use super::peer::{Cores, Way};
use super::report::Spread;
use crate::connection::{SPIN_VARIABLE, spin};
use crate::failure::{About, Code, Failure};
use crate::output::Output;
use bytes::Bytes;
use clap::Args;
use net::{
    Calls, Inproc, LinkEvent, LinkId, LinkOptions, Message, NetError, Reactor, ReactorEvent, Tcp,
    Transports, Unix,
};
use serde_json::json;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use wire::frame::FrameKind;

const SUBJECT: &str = "the other side";
const WAIT: Duration = Duration::from_secs(60);
/// One in so many calls is timed.
const SAMPLED: u64 = 16;

#[derive(Debug, Clone, Args)]
pub struct RpcArgs {
    /// How the two sides reach each other
    #[arg(long, value_enum, default_value_t = Way::Tcp)]
    pub transport: Way,
    /// Calls that are under way at once
    #[arg(long, value_name = "COUNT", default_value_t = 32)]
    pub in_flight: usize,
    /// Calls in a repetition
    #[arg(long, value_name = "COUNT", default_value_t = 1_000_000)]
    pub calls: u64,
    /// Counted repetitions; one more comes first and is not counted
    #[arg(long, value_name = "COUNT", default_value_t = 5)]
    pub repetitions: usize,
    /// Let the kernel place the processes, instead of one core a side
    #[arg(long)]
    pub no_pin: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The other side of calls; started by a benchmark.
#[derive(Debug, Args)]
pub struct ResponderArgs {
    address: String,
}

fn transports() -> Transports {
    let options = LinkOptions::default();
    let transports = Transports::new()
        .with(Unix::new(options.clone()))
        .with(Tcp::new(options.clone()))
        .with(Inproc::new(options));
    crate::connection::with_shared_memory(&transports)
}

fn reactor(spin: Duration) -> Result<Reactor, Failure> {
    let mut reactor = net(Reactor::new())?;
    reactor.set_spin(spin);
    Ok(reactor)
}

fn net<T>(result: Result<T, NetError>) -> Result<T, Failure> {
    result.map_err(|error| Failure::new(Code::Failure, SUBJECT, error))
}

/// Answers calls of one link until it ends.
pub fn respond(args: &ResponderArgs) -> Result<(), Failure> {
    answer(&args.address, |address| println!("{address}"))
}

fn answer(address: &str, tell: impl FnOnce(&str)) -> Result<(), Failure> {
    let listener = net(transports().listen(address))?;
    tell(&listener.address());
    let mut reactor = reactor(spin())?;
    net(reactor.add_listener(listener))?;
    loop {
        while let Some(event) = reactor.next() {
            let ReactorEvent::Link { link, event } = event else {
                continue;
            };
            match event {
                LinkEvent::Message(call) => {
                    let reply = Message::control(FrameKind::Reply, call.id, Bytes::new());
                    if let Some(link) = reactor.link(link) {
                        link.send(reply);
                    }
                }
                LinkEvent::Down(_) => return Ok(()),
                _ => {}
            }
        }
        net(reactor.wait(None))?;
    }
}

/// The side that asks.
struct Asker {
    reactor: Reactor,
    link: LinkId,
    calls: Calls<Instant>,
}

impl Asker {
    fn connect(address: &str, spin: Duration) -> Result<Self, Failure> {
        let mut reactor = reactor(spin)?;
        let link = net(transports().connect(address))?;
        let link = net(reactor.add_link(link))?;
        let mut asker = Self {
            reactor,
            link,
            calls: Calls::new(),
        };
        loop {
            match asker.next()? {
                Some(LinkEvent::Up) => return Ok(asker),
                _ => net(asker.reactor.wait(Some(WAIT)))?,
            }
        }
    }

    fn next(&mut self) -> Result<Option<LinkEvent>, Failure> {
        for event in self.reactor.by_ref() {
            match event {
                ReactorEvent::Link {
                    event: LinkEvent::Down(error),
                    ..
                } => return net(Err(error)),
                ReactorEvent::Link { event, .. } => return Ok(Some(event)),
                _ => {}
            }
        }
        Ok(None)
    }

    fn ask(&mut self) {
        let id = self.calls.begin(Instant::now(), None);
        if let Some(link) = self.reactor.link(self.link) {
            link.send(Message::control(FrameKind::Request, id, Bytes::new()));
        }
    }

    /// Makes so many calls; returns the delays of some.
    fn run(&mut self, calls: u64, in_flight: usize) -> Result<Vec<u64>, Failure> {
        let mut delays = Vec::new();
        let (mut asked, mut answered) = (0, 0);
        while answered < calls {
            while asked < calls && self.calls.len() < in_flight {
                self.ask();
                asked += 1;
            }
            let mut moved = false;
            while let Some(event) = self.next()? {
                let LinkEvent::Message(reply) = event else {
                    continue;
                };
                let Some(began) = self.calls.end(reply.id) else {
                    let what = format!("answers {} to no call", reply.id);
                    return Err(Failure::new(Code::Failure, SUBJECT, what));
                };
                if answered % SAMPLED == 0 {
                    delays.push(began.elapsed().as_nanos() as u64);
                }
                answered += 1;
                moved = true;
            }
            if !moved {
                net(self.reactor.wait(Some(WAIT)))?;
            }
        }
        Ok(delays)
    }
}

/// Whoever answers.
enum Responder {
    Process(Child),
    Thread(std::thread::JoinHandle<Result<(), Failure>>),
}

impl Responder {
    fn start(
        way: Way,
        scratch: &Path,
        cores: &Cores,
        spin: Duration,
    ) -> Result<(Self, String), Failure> {
        let address = match way {
            Way::Tcp => "tcp://127.0.0.1:0".to_owned(),
            Way::Unix | Way::Shm => {
                format!("{}://{}", way.name(), scratch.join("rpc").display())
            }
            Way::Inproc => {
                let address = format!("inproc://rpc-{}", std::process::id());
                let (told, heard) = std::sync::mpsc::channel();
                let own = address.clone();
                let work = move || answer(&own, |_| told.send(()).unwrap_or(()));
                let thread = cores
                    .on_server(|| std::thread::spawn(work))
                    .about(SUBJECT)?;
                if heard.recv_timeout(WAIT).is_err() {
                    return Err(Failure::new(Code::Failure, SUBJECT, "does not listen"));
                }
                return Ok((Self::Thread(thread), address));
            }
        };
        let mut command = Command::new(std::env::current_exe().about(SUBJECT)?);
        command
            .args(["bench", "rpc-responder", &address])
            .env(SPIN_VARIABLE, spin.as_micros().to_string())
            .stdout(Stdio::piped());
        let mut child = cores.spawn_server(&mut command).about(SUBJECT)?;
        let stdout = child.stdout.take().expect("its output is piped");
        let mut address = String::new();
        BufReader::new(stdout)
            .read_line(&mut address)
            .about(SUBJECT)?;
        Ok((Self::Process(child), address.trim().to_owned()))
    }

    fn usage(&self) -> Result<Option<Usage>, Failure> {
        match self {
            Self::Process(child) => Usage::of_process(child.id()).about(SUBJECT).map(Some),
            Self::Thread(_) => Ok(None),
        }
    }

    fn wait(self) -> Result<(), Failure> {
        match self {
            Self::Process(mut child) => child.wait().about(SUBJECT).map(|_| ()),
            Self::Thread(thread) => thread.join().expect("it fails, it does not panic"),
        }
    }
}

/// How long empty calls take, one at a time, over a transport and nothing else.
pub fn round_trips(way: Way, spin_us: u64, calls: u64, cores: &Cores) -> Result<Delays, Failure> {
    let spin = Duration::from_micros(spin_us);
    let scratch = tempfile::tempdir().about("a temporary directory")?;
    let (responder, address) = Responder::start(way, scratch.path(), cores, spin)?;
    let mut asker = Asker::connect(&address, spin)?;
    asker.run(calls / 10 + 1, 1)?;
    let delays = asker.run(calls, 1)?;
    drop(asker);
    responder.wait()?;
    Ok(Delays::of(delays).expect("one call at least is timed"))
}

/// One repetition.
struct Repetition {
    calls_per_s: f64,
    delays: Delays,
    asker: Usage,
    responder: Option<Usage>,
}

/// `thalweg bench rpc`.
pub fn run(args: &RpcArgs) -> Result<(), Failure> {
    if args.in_flight == 0 || args.calls == 0 || args.repetitions == 0 {
        return Err(Failure::usage("bench", "counts begin at 1"));
    }
    let cores = Cores::choose(args.no_pin)?;
    let scratch = tempfile::tempdir().about("a temporary directory")?;
    let (responder, address) = Responder::start(args.transport, scratch.path(), &cores, spin())?;
    let mut asker = Asker::connect(&address, spin())?;
    let mut repetitions = Vec::new();
    for index in 0..=args.repetitions {
        let before = (Usage::own(0).about("the usage")?, responder.usage()?);
        let began = Instant::now();
        let delays = asker.run(args.calls, args.in_flight)?;
        let seconds = began.elapsed().as_secs_f64();
        let after = (Usage::own(0).about("the usage")?, responder.usage()?);
        // The first warms caches and the page tables.
        if index > 0 {
            repetitions.push(Repetition {
                calls_per_s: args.calls as f64 / seconds,
                delays: Delays::of(delays).expect("one call at least is timed"),
                asker: after.0 - before.0,
                responder: after.1.zip(before.1).map(|(after, before)| after - before),
            });
        }
    }
    drop(asker);
    responder.wait()?;
    print(args, &cores, &repetitions)
}

fn print(args: &RpcArgs, cores: &Cores, repetitions: &[Repetition]) -> Result<(), Failure> {
    let spread = |value: &dyn Fn(&Repetition) -> f64| Spread::of(repetitions.iter().map(value));
    let per_call = |value: fn(&Usage) -> u64, side: fn(&Repetition) -> Option<&Usage>| {
        let all = repetitions.iter().all(|one| side(one).is_some());
        all.then(|| {
            spread(&|one| side(one).map_or(0.0, |usage| value(usage) as f64 / args.calls as f64))
        })
    };
    let rate = spread(&|one| one.calls_per_s);
    let (p50, p99) = (spread(&|one| one.delays.p50), spread(&|one| one.delays.p99));
    let asker: fn(&Repetition) -> Option<&Usage> = |one| Some(&one.asker);
    let responder: fn(&Repetition) -> Option<&Usage> = |one| one.responder.as_ref();
    let side = |side| {
        json!({
            "cpu_ns": per_call(|usage| usage.cpu_ns, side).map(|spread| spread.json()),
            "reads_and_writes": per_call(|usage| usage.reads_and_writes, side).map(|spread| spread.json()),
            "wakeups": per_call(|usage| usage.wakeups, side).map(|spread| spread.json()),
        })
    };
    let line = json!({
        "work": "rpc",
        "transport": args.transport.name(),
        "in_flight": args.in_flight,
        "calls": args.calls,
        "repetitions": repetitions.len(),
        "calls_per_s": rate.json(),
        "delay_ns": { "p50": p50.json(), "p99": p99.json() },
        "asker_per_call": side(asker),
        "responder_per_call": side(responder),
    });
    let mut text = format!(
        "rpc over {}, {} in flight, {}; median [min to max] of {} repetitions\n  calls      {}\n  delay p50  {}\n  delay p99  {}",
        args.transport.name(),
        args.in_flight,
        cores.describe(),
        repetitions.len(),
        rate.text(1e-6, "million/s"),
        p50.text(1e-3, "us"),
        p99.text(1e-3, "us"),
    );
    for (name, side) in [("asker", asker), ("responder", responder)] {
        if let Some(cpu) = per_call(|usage| usage.cpu_ns, side) {
            text.push_str(&format!(
                "\n  {name:<11}{}",
                cpu.text(1.0, "ns of processor per call")
            ));
        }
    }
    let mut output = Output::new(args.json);
    output.either(&line, &text)?;
    output.flush()
}
