//! One run: its processes, its barrier, its end.

use super::backend;
use super::client::now_ns;
use super::processes::{Heard, Processes};
use crate::failure::{Code, Failure};
use crate::progress::{Beside, Progress};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use workload::{
    Absent, Barrier, Ending, FromProcess, Input, Member, Output, Plan, Report, ToProcess,
};

/// How often time passes for the barrier.
const TICK: Duration = Duration::from_millis(100);

/// What a run gave.
pub struct Ran {
    /// Of all but those who are missing.
    pub reports: Vec<Report>,
    /// Who is missing, and why.
    pub missing: Vec<Absent>,
}

/// Runs a plan from its topics to its reports. Whatever happens, its processes have ended and its topics are gone.
pub fn run(plan: &Plan, idle_seconds: u64, is_interrupted: &AtomicBool) -> Result<Ran, Failure> {
    let first = plan.assignments.first();
    let common = &first.expect("a run has members").common;
    let backend = backend::connect(common)?;
    backend.prepare()?;
    let ran = Running::new(plan, idle_seconds, is_interrupted).run();
    // What the run itself failed with says more.
    let removed = backend.remove();
    let ran = ran?;
    removed?;
    Ok(ran)
}

struct Running<'a> {
    plan: &'a Plan,
    is_interrupted: &'a AtomicBool,
    heard: Receiver<Heard>,
    tell: Sender<Heard>,
    processes: Processes,
    barrier: Barrier,
    reports: Vec<Report>,
    progress: Progress,
    /// What each consumer has, and how much of all was shown.
    received: BTreeMap<u64, u64>,
    shown: u64,
    began: Instant,
}

impl<'a> Running<'a> {
    fn new(plan: &'a Plan, idle_seconds: u64, is_interrupted: &'a AtomicBool) -> Self {
        // Of this run alone: what its processes say when they are killed is nothing to the next one.
        let (tell, heard) = channel();
        Self {
            plan,
            is_interrupted,
            heard,
            tell,
            processes: Processes::default(),
            barrier: Barrier::new(plan, &[], idle_seconds),
            reports: Vec::new(),
            progress: Progress::events("messages", plan.deliveries, Beside::Nothing),
            received: BTreeMap::new(),
            shown: 0,
            began: Instant::now(),
        }
    }

    fn run(mut self) -> Result<Ran, Failure> {
        let mut outputs = self.barrier.start(0);
        loop {
            for output in outputs {
                if let Some(ending) = self.act(output)? {
                    return self.end(ending);
                }
            }
            // Relaxed: it guards nothing.
            if self.is_interrupted.load(Ordering::Relaxed) {
                return Err(interrupted());
            }
            outputs = match self.heard.recv_timeout(TICK) {
                Ok(heard) => self.hear(heard),
                Err(RecvTimeoutError::Timeout) => self.take(Input::Tick),
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
            FromProcess::Ready(member) => Input::Ready(member),
            FromProcess::Received {
                consumer,
                messages,
                repeats,
            } => {
                self.show(consumer, messages);
                Input::Received {
                    consumer,
                    messages,
                    repeats,
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
            Output::Go => self.processes.say_to_all(&ToProcess::Go(now_ns())),
            Output::StopProducers => self.processes.say_to_all(&ToProcess::StopProducers),
            Output::Finish => self.processes.say_to_all(&ToProcess::Finish),
            Output::Disrupt(_) => unreachable!("scenarios with faults are refused"),
            Output::Over(ending) => return Ok(Some(ending)),
        }
        Ok(None)
    }

    fn start(&mut self, is_wanted: impl Fn(&Member) -> bool) -> Result<(), Failure> {
        for work in &self.plan.assignments {
            if work.tasks.iter().any(|task| is_wanted(&task.member)) {
                self.processes.start(work, &self.tell)?;
            }
        }
        Ok(())
    }

    fn end(self, ending: Ending) -> Result<Ran, Failure> {
        match ending {
            Ending::Failed(why) => Err(Failure::new(Code::Failure, "the run", why)),
            Ending::Ended(missing) => {
                if missing.is_empty() {
                    self.processes.end();
                }
                Ok(Ran {
                    reports: self.reports,
                    missing,
                })
            }
        }
    }
}

/// The user wanted an end.
pub fn interrupted() -> Failure {
    Failure::new(Code::Failure, "the run", "was ended by a signal")
}
