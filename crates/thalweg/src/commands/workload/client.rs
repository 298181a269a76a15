//! A process of a run: it takes its work from standard input, and reports on standard output.

use super::connect::connect;
use super::members::{Ended, consume, produce};
use crate::failure::{About, Code, Failure};
use clap::Args;
use rustix::time::{ClockId, clock_gettime};
use std::io::{self, BufRead, Write};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use workload::{
    Assignment, FromProcess, Member, Payload, SLOW_PAUSE_MS, Task, ToProcess, from_line, member_of,
    to_line,
};

#[derive(Debug, Args)]
pub struct ClientArgs {
    /// Its number in the plan
    process: u64,
}

const SUBJECT: &str = "a client of a workload";
/// How long a member that is slow waits before each message.
const SLOW_PAUSE: Duration = Duration::from_millis(SLOW_PAUSE_MS);

/// Nanoseconds by the clock that all processes of this host have.
pub fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// What this process has used of processors so far.
fn used_ns() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// What the runner has said.
#[derive(Debug, Clone, Copy, Default)]
pub struct Orders {
    /// When schedules begin, once producers may send.
    pub go_ns: Option<u64>,
    /// Producers send no more.
    pub is_stopped: bool,
    /// All report.
    pub is_over: bool,
    /// Who waits before each message, and until when. With faults a process has one member.
    pub slow: Option<(Member, Instant)>,
}

/// The way to the runner, for all members of this process.
#[derive(Default)]
pub struct Line {
    orders: Mutex<Orders>,
    changed: Condvar,
}

impl Line {
    /// What was said so far.
    pub fn orders(&self) -> Orders {
        *self.lock()
    }

    /// Waits until producers may send, or all is over.
    pub fn wait_for_go(&self) -> Orders {
        let is_waiting = |orders: &mut Orders| orders.go_ns.is_none() && !orders.is_over;
        // The runner's deadlines end it: its end closes standard input, which ends this process.
        let waited = self.changed.wait_while(self.lock(), is_waiting);
        *waited.unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until all report.
    pub fn wait_for_end(&self) {
        let waited = self
            .changed
            .wait_while(self.lock(), |orders| !orders.is_over);
        drop(waited);
    }

    /// Waits for so long, or until all report.
    pub fn rest(&self, longest: Duration) {
        let waited = self
            .changed
            .wait_timeout_while(self.lock(), longest, |orders| !orders.is_over);
        drop(waited);
    }

    /// Waits before a message, if this member is to be slow now.
    pub fn pause(&self, member: Member) {
        let slow = self.orders().slow;
        if slow.is_some_and(|(slow, until)| slow == member && Instant::now() < until) {
            self.rest(SLOW_PAUSE);
        }
    }

    /// Says something to the runner.
    pub fn say(&self, what: &FromProcess) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        let said = out.write_all(to_line(what).as_bytes());
        said.and_then(|()| out.flush()).about(SUBJECT)
    }

    fn change(&self, change: impl FnOnce(&mut Orders)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Orders> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows the runner until it is gone, which ends this process.
    fn listen(&self) {
        let mut used_before_ns = 0;
        for line in io::stdin().lock().lines() {
            match line.map(|line| from_line::<ToProcess>(&line)) {
                Ok(Ok(ToProcess::Go(ns))) => {
                    used_before_ns = used_ns();
                    self.change(|orders| orders.go_ns = Some(ns));
                }
                Ok(Ok(ToProcess::StopProducers)) => self.change(|orders| orders.is_stopped = true),
                Ok(Ok(ToProcess::Finish)) => {
                    let used = FromProcess::Used(used_ns().saturating_sub(used_before_ns));
                    // A runner that is gone ends this process with the next line.
                    let _ = self.say(&used);
                    self.change(|orders| orders.is_over = true);
                }
                Ok(Ok(ToProcess::Abort(_)) | Err(_)) | Err(_) => break,
                Ok(Ok(ToProcess::Slow(fault))) => {
                    let until = Instant::now() + Duration::from_millis(fault.lasting_ms);
                    let member = member_of(fault.target);
                    self.change(|orders| orders.slow = member.map(|member| (member, until)));
                }
                // No other is sent to a process that has its work.
                Ok(Ok(ToProcess::Assign(_))) => {}
            }
        }
        std::process::exit(Code::Failure as i32);
    }
}

/// What a test plants, as `skip consumer 0`. A release looks for nothing.
#[cfg(debug_assertions)]
pub fn planted(what: &str, member: Member) -> bool {
    std::env::var("THALWEG_WORKLOAD_FAULT").is_ok_and(|fault| fault == format!("{what} {member}"))
}

/// Nothing is planted in a release.
#[cfg(not(debug_assertions))]
pub fn planted(_: &str, _: Member) -> bool {
    false
}

pub fn run(args: &ClientArgs) -> Result<(), Failure> {
    let line: &'static Line = Box::leak(Box::default());
    line.say(&FromProcess::Hello {
        process: args.process,
        pid: std::process::id(),
    })?;
    if cfg!(debug_assertions)
        && std::env::var("THALWEG_WORKLOAD_FAULT").is_ok_and(|fault| fault == "deaf")
    {
        loop {
            std::thread::park();
        }
    }
    let mut first = String::new();
    io::stdin().lock().read_line(&mut first).about(SUBJECT)?;
    let assignment = match from_line::<ToProcess>(&first) {
        Ok(ToProcess::Assign(assignment)) => assignment,
        Ok(other) => {
            let what = format!("was given {other:?} before its work");
            return Err(Failure::new(Code::Failure, SUBJECT, what));
        }
        Err(error) => return Err(Failure::usage(SUBJECT, error)),
    };
    let listener = std::thread::Builder::new().name("runner".to_owned());
    listener.spawn(|| line.listen()).about(SUBJECT)?;
    work(line, &assignment)
}

/// Does the work of all members, a thread each.
fn work(line: &Line, assignment: &Assignment) -> Result<(), Failure> {
    let common = &assignment.common;
    let all = |task: &Task| (task.member, connect(common));
    let connected = match assignment.tasks.first().map(all) {
        Some((member, Err(failure))) => {
            let why = failure.to_string();
            return line.say(&FromProcess::Failed {
                member,
                why,
                report: None,
            });
        }
        Some((_, Ok(backend))) => backend,
        None => return Ok(()),
    };
    let payload = Payload::new(common.seed, common.message_bytes as usize);
    let one = |task: &Task| {
        let member = task.member;
        if planted("die", member) {
            std::process::exit(3);
        }
        let done = match member {
            Member::Consumer(_) => consume(line, common, task, &*connected, &payload),
            Member::Producer(_) => produce(line, common, task, &*connected, &payload),
        };
        let Ended { report, failure } = done;
        match (failure, report) {
            (Some(failure), report) => line.say(&FromProcess::Failed {
                member,
                why: failure.to_string(),
                report,
            }),
            (None, Some(report)) => line.say(&FromProcess::Report(report)),
            (None, None) => Ok(()),
        }
    };
    let results = std::thread::scope(|scope| {
        let threads: Vec<_> = assignment
            .tasks
            .iter()
            .map(|task| scope.spawn(|| one(task)))
            .collect();
        let joined = threads.into_iter().map(|thread| {
            let gone = |_| {
                Err(Failure::new(
                    Code::Failure,
                    SUBJECT,
                    "a member has panicked",
                ))
            };
            thread.join().unwrap_or_else(gone)
        });
        joined.collect::<Vec<Result<(), Failure>>>()
    });
    results.into_iter().collect()
}
