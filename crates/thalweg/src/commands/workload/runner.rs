//! One run: its processes, its barrier, its end.

use super::client::now_ns;
use super::connect::connect;
use super::cpu::seconds_of;
use super::interrupted::interrupted;
use super::means::Means;
use super::processes::{Heard, Processes};
use super::route::Route;
use crate::failure::{Code, Failure};
use crate::progress::{Beside, Progress};
use rustix::process::Signal;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use workload::{
    Absent, Act, Barrier, Common, Cpu, Disruption, Done, Ending, FromProcess, Input, Journal,
    Member, Output, Plan, Report, Target, ToProcess, member_of,
};

/// How often time passes for the barrier.
const TICK: Duration = Duration::from_millis(100);

/// How a plan is run.
pub struct Course<'a> {
    /// After so long without a message a run is over.
    pub idle_seconds: u64,
    /// What is done to it on purpose.
    pub disruptions: &'a [Disruption],
    /// Whether the user wants an end.
    pub is_interrupted: &'a AtomicBool,
    /// What that is done with. The command's own server is among it: it goes with all that it has when a run fails.
    pub means: &'a RefCell<Means>,
    /// What stands between clients and server.
    pub route: &'a Route,
}

/// How long the place of a member of a queue is kept that is gone, and its leases with it, with time to deliver again.
const REDELIVERY_SECONDS: u64 = 15;

impl Course<'_> {
    /// After so long without a message a run is over. What stands still is waited for, and so is what a member that is
    /// killed, or away for as long, did not acknowledge.
    fn idle(&self) -> u64 {
        let waited_for = |one: &Disruption| {
            let lasting = one.lasting_ms.div_ceil(1000);
            match (one.act, one.target) {
                // A producer takes nothing along, and nobody comes back whose token is over for good.
                (Act::Kill, Target::Producer(_)) => 0,
                (Act::ExpireToken, _) if lasting == 0 => 0,
                (Act::Slow, _) => lasting,
                _ => REDELIVERY_SECONDS + lasting,
            }
        };
        let longest = self.disruptions.iter().map(waited_for).max();
        self.idle_seconds.max(longest.unwrap_or(0))
    }

    /// Whether the user wants an end.
    pub fn is_interrupted(&self) -> bool {
        // Relaxed: it guards nothing.
        self.is_interrupted.load(Ordering::Relaxed)
    }
}

/// What a run gave.
pub struct Ran {
    /// Of all but those who are missing.
    pub reports: Vec<Report>,
    /// Who is missing, and why.
    pub missing: Vec<Absent>,
    /// What was used of processors.
    pub cpu: Option<Cpu>,
    /// What was done on purpose.
    pub done: Vec<Done>,
    /// Whose messages were refused, and why.
    pub refusals: Vec<(Member, String)>,
    /// How the server was reached.
    pub transport: String,
    /// Why what was made for it is still there.
    pub left_behind: Option<Failure>,
}

/// Runs a plan from its topics to its reports. Whatever happens, its processes have ended, and its topics are gone if the
/// server is there.
pub fn run(plan: &Plan, course: &Course<'_>) -> Result<Ran, Failure> {
    let first = plan.assignments.first();
    let common = &first.expect("a run has members").common;
    let backend = connect(common)?;
    let transport = course.means.borrow().transport();
    let transport = transport.map_or_else(|| backend.transport(), str::to_owned);
    if common.tls && !["tls", "amqps"].contains(&&*transport) {
        let what = format!(
            "the server was reached by {transport}://; tls = \"yes\" needs a tls:// or an amqps:// address"
        );
        return Err(Failure::usage("url", what));
    }
    // A proxy that has died does not keep the command from what is to be removed.
    let past_proxies = Common {
        url: Some(course.route.control().clone()),
        ..common.clone()
    };
    let backend = match past_proxies.url == common.url {
        true => backend,
        false => {
            // It would stand beside the clients.
            drop(backend);
            connect(&past_proxies)?
        }
    };
    let ran = backend
        .prepare()
        .and_then(|()| Running::new(plan, course).run());
    // What is made before a failure is there too. A server of one's own is about to end with all that it has, and may
    // have ended already: Ctrl-C reaches it too.
    let ended = course.means.borrow_mut().end();
    let has_own = course.means.borrow().has_own() || course.route.server().is_some();
    let removed = match ran.is_err() && has_own {
        true => Ok(()),
        false => backend.remove(),
    };
    match ran {
        Ok(reported) => ended.map(|()| Ran {
            refusals: reported.refusals,
            reports: reported.reports,
            missing: reported.missing,
            cpu: Some(reported.cpu),
            done: reported.done,
            transport,
            left_behind: removed.err(),
        }),
        // Everybody is gone then, and somebody is heard of first.
        Err(_) if course.is_interrupted() => Err(interrupted()),
        // What the run itself failed with says more than that its topics are still there.
        Err(failure) => Err(failure),
    }
}

/// What members and the operating system say of a run.
struct Reported {
    reports: Vec<Report>,
    missing: Vec<Absent>,
    cpu: Cpu,
    done: Vec<Done>,
    refusals: Vec<(Member, String)>,
}

/// What was used of processors.
#[derive(Default)]
struct Used {
    /// By process, from go to the end.
    clients_ns: BTreeMap<usize, u64>,
    server_before: Option<f64>,
    server_after: Option<f64>,
    proxies_before: Option<f64>,
    proxies_after: Option<f64>,
}

struct Running<'a> {
    plan: &'a Plan,
    course: &'a Course<'a>,
    heard: Receiver<Heard>,
    tell: Sender<Heard>,
    processes: Processes,
    barrier: Barrier,
    reports: Vec<Report>,
    /// What those say who are to be killed.
    journal: Journal,
    /// What is done and has an end, and when that is.
    lasting: Vec<(Instant, Disruption)>,
    done: Vec<Done>,
    /// Whose messages were refused, and why: once for each.
    refusals: BTreeMap<Member, String>,
    /// When all went.
    went: Instant,
    progress: Progress,
    /// What each consumer has, and how much of all was shown.
    received: BTreeMap<u64, u64>,
    shown: u64,
    used: Used,
    began: Instant,
}

impl<'a> Running<'a> {
    fn new(plan: &'a Plan, course: &'a Course<'a>) -> Self {
        // Of this run alone: what its processes say when they are killed is nothing to the next one.
        let (tell, heard) = channel();
        Self {
            plan,
            course,
            heard,
            tell,
            processes: Processes::default(),
            barrier: Barrier::new(plan, course.disruptions, course.idle()),
            reports: Vec::new(),
            journal: Journal::new(plan),
            lasting: Vec::new(),
            done: Vec::new(),
            refusals: BTreeMap::new(),
            went: Instant::now(),
            progress: Progress::events("messages", plan.deliveries, Beside::Nothing),
            received: BTreeMap::new(),
            shown: 0,
            used: Used::default(),
            began: Instant::now(),
        }
    }

    fn run(mut self) -> Result<Reported, Failure> {
        self.course.means.borrow_mut().begin()?;
        let mut outputs = self.barrier.start(0);
        loop {
            for output in outputs {
                if let Some(ending) = self.act(output)? {
                    return self.end(ending);
                }
            }
            if self.course.is_interrupted() {
                return Err(interrupted());
            }
            self.go_on()?;
            outputs = match self.heard.recv_timeout(TICK) {
                Ok(heard) => self.hear(heard),
                Err(RecvTimeoutError::Timeout) => {
                    self.course.route.check()?;
                    self.take(Input::Tick)
                }
                Err(RecvTimeoutError::Disconnected) => unreachable!("the runner has a sender"),
            };
        }
    }

    fn take(&mut self, input: Input) -> Vec<Output> {
        let now_ms = self.began.elapsed().as_millis() as u64;
        self.barrier.handle(now_ms, input)
    }

    fn hear(&mut self, heard: Heard) -> Vec<Output> {
        let (process, what) = match heard {
            Heard::Said { process, what } => (process, what),
            Heard::Garbled { process, why } => return self.lose(process, &why),
            Heard::Ended { process } => {
                let why = self.processes.end_of(process);
                return self.lose(process, &why);
            }
        };
        let input = match what {
            FromProcess::Hello { .. } => Input::Tick,
            FromProcess::Had { consumer, had } => Input::Received {
                consumer,
                messages: self.journal.had(consumer, &had),
                repeats: 0,
            },
            FromProcess::Did { producer, did } => {
                self.journal.did(producer, &did);
                Input::Tick
            }
            FromProcess::Used(ns) => {
                self.used.clients_ns.insert(process, ns);
                Input::Tick
            }
            FromProcess::Refused { member, why } => {
                if self.processes.members(process).contains(&member) {
                    self.refusals.entry(member).or_insert(why);
                }
                Input::Tick
            }
            FromProcess::Ready(member) => Input::Ready(member),
            FromProcess::Received {
                consumer,
                messages,
                repeats,
            } => {
                self.show(consumer, messages);
                // What one who is killed has not acknowledged comes again, to another: only what it has said counts.
                match self.journal.is_kept_by(Member::Consumer(consumer)) {
                    true => Input::Tick,
                    false => Input::Received {
                        consumer,
                        messages,
                        repeats,
                    },
                }
            }
            FromProcess::Sent { producer, messages } => Input::Sent { producer, messages },
            FromProcess::Report(report) => {
                let member = report.member();
                if !self.processes.members(process).contains(&member) {
                    return self.lose(process, "it reports for somebody else");
                }
                self.reports.push(report);
                Input::Reported(member)
            }
            FromProcess::Failed {
                member,
                why,
                report,
            } => {
                let reports = report.into_iter();
                self.reports
                    .extend(reports.filter(|report| report.member() == member));
                Input::Failed(member, why)
            }
        };
        self.take(input)
    }

    /// The members of a process are gone. The barrier knows who has reported.
    fn lose(&mut self, process: usize, why: &str) -> Vec<Output> {
        let members: Vec<Member> = self.processes.members(process).to_vec();
        let mut outputs = Vec::new();
        for member in members {
            outputs.extend(self.take(Input::Failed(member, why.to_owned())));
        }
        outputs
    }

    fn show(&mut self, consumer: u64, messages: u64) {
        self.received.insert(consumer, messages);
        let all = self.received.values().sum::<u64>();
        self.progress.add(all.saturating_sub(self.shown));
        self.shown = self.shown.max(all);
    }

    /// Does what the barrier says, until it says that the run is over.
    fn act(&mut self, output: Output) -> Result<Option<Ending>, Failure> {
        match output {
            Output::StartConsumers => self.start(|member| matches!(member, Member::Consumer(_)))?,
            Output::StartProducers => self.start(|member| matches!(member, Member::Producer(_)))?,
            Output::Go => {
                self.used.server_before = self.server_seconds();
                self.used.proxies_before = self.course.route.cpu_seconds();
                self.course.means.borrow_mut().go()?;
                self.went = Instant::now();
                self.processes.say_to_all(&ToProcess::Go(now_ns()));
            }
            Output::StopProducers => self.processes.say_to_all(&ToProcess::StopProducers),
            Output::Finish => {
                self.used.server_after = self.server_seconds();
                self.used.proxies_after = self.course.route.cpu_seconds();
                self.processes.say_to_all(&ToProcess::Finish);
            }
            Output::Disrupt(disruption) => self.disrupt(&disruption)?,
            Output::Over(ending) => return Ok(Some(ending)),
        }
        Ok(None)
    }

    /// Does what is to be done on purpose.
    fn disrupt(&mut self, disruption: &Disruption) -> Result<(), Failure> {
        match (member_of(disruption.target), disruption.act) {
            (Some(member), Act::Kill) => self.processes.signal(member, Signal::KILL)?,
            (Some(member), Act::Stop) => self.processes.signal(member, Signal::STOP)?,
            (Some(member), _) => self.processes.say_to(member, &ToProcess::Slow(*disruption)),
            (None, _) => self.course.means.borrow_mut().disrupt(disruption)?,
        }
        if disruption.lasting_ms > 0 {
            let lasting = Duration::from_millis(disruption.lasting_ms);
            self.lasting.push((Instant::now() + lasting, *disruption));
        }
        self.done.push(Done {
            fault: disruption.to_string(),
            after_ms: self.went.elapsed().as_millis() as u64,
            received: self.shown,
        });
        Ok(())
    }

    /// Ends what has lasted for long enough.
    fn go_on(&mut self) -> Result<(), Failure> {
        self.course.means.borrow_mut().tick()?;
        let now = Instant::now();
        let is_due = |one: &mut (Instant, Disruption)| one.0 <= now;
        let due: Vec<(Instant, Disruption)> = self.lasting.extract_if(.., is_due).collect();
        for (_, disruption) in due {
            match (member_of(disruption.target), disruption.act) {
                (Some(member), Act::Stop) => self.processes.signal(member, Signal::CONT)?,
                // One that is slow knows itself until when.
                (Some(_), _) => {}
                (None, _) => self.course.means.borrow_mut().relieve(&disruption)?,
            }
        }
        Ok(())
    }

    /// What the server has used of processors so far, if it is known.
    fn server_seconds(&self) -> Option<f64> {
        let server = self.course.means.borrow().server();
        seconds_of(server.or(self.course.route.server())?)
    }

    /// CPU seconds from go to the end.
    fn cpu(&self) -> Cpu {
        let used = &self.used;
        let clients = used.clients_ns.values().sum::<u64>() as f64 / 1e9;
        let has_all = used.clients_ns.len() == self.plan.assignments.len();
        let between = |before: Option<f64>, after: Option<f64>| {
            before.zip(after).map(|(before, after)| after - before)
        };
        Cpu {
            server: between(used.server_before, used.server_after),
            proxies: between(used.proxies_before, used.proxies_after),
            clients: has_all.then_some(clients),
        }
    }

    fn start(&mut self, is_wanted: impl Fn(&Member) -> bool) -> Result<(), Failure> {
        for work in &self.plan.assignments {
            if work.tasks.iter().any(|task| is_wanted(&task.member)) {
                let mut work = work.clone();
                self.course.means.borrow().lead(&mut work.common);
                self.processes.start(&work, &self.tell)?;
            }
        }
        Ok(())
    }

    fn end(self, ending: Ending) -> Result<Reported, Failure> {
        let cpu = self.cpu();
        match ending {
            // That this command is to end, too, it may hear a moment later.
            Ending::Failed(_) if self.processes.user_ended() => Err(interrupted()),
            Ending::Failed(why) => Err(Failure::new(Code::Failure, "the run", why)),
            Ending::Ended(missing) => {
                let Self {
                    mut reports,
                    journal,
                    processes,
                    ..
                } = self;
                if missing.is_empty() {
                    processes.end();
                }
                let has_reported: Vec<Member> = reports.iter().map(Report::member).collect();
                let silent = missing.iter().map(|one| one.member);
                let silent = silent.filter(|member| !has_reported.contains(member));
                reports.extend(journal.reports_of(silent));
                Ok(Reported {
                    reports,
                    missing,
                    cpu,
                    done: self.done,
                    refusals: self.refusals.into_iter().collect(),
                })
            }
        }
    }
}
