//! The course of a run, as a state machine of the runner's: who is ready, when to go, when it is over.
//!
//! ```text
//!  Consumers ──all ready──► Producers ──all ready──► Running ──seconds over──► Draining
//!      │                        │                       │ all received, or idle    │
//!      │ too late, somebody left│                       ▼                          │
//!      └────────────────────────┴──► Over(failed)    Finishing ◄───────────────────┘
//!                                                       │ all reports, or too late
//!                                                       ▼
//!                                                     Over(ended)
//! ```
//!
//! Somebody who leaves while messages flow does not end the run: that is what disruptions are for. It is said at the
//! end who is missing.

use crate::disruption::{Disruption, Moment};
use crate::faults::{Fault, planted};
use crate::plan::{Member, Plan, member_of};
use std::collections::{BTreeMap, BTreeSet};

/// The most milliseconds until all consumers, or all producers, are ready.
pub const READY_MS_MAX: u64 = 120_000;

/// The most milliseconds until all reports are there.
pub const REPORTS_MS_MAX: u64 = 60_000;

/// So long nothing may come before a run is over that was disturbed, or in which something was delivered again: that
/// counts more than once, so that a count alone does not show the end.
pub const QUIET_MS: u64 = 2_000;

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// A member is ready.
    Ready(Member),
    /// A consumer has so many messages.
    Received {
        /// Which.
        consumer: u64,
        /// How many so far.
        messages: u64,
        /// Deliveries of what had come before, here or elsewhere.
        repeats: u64,
    },
    /// A producer has sent all.
    Sent {
        /// Which.
        producer: u64,
        /// How many were taken.
        messages: u64,
    },
    /// A member's report is there.
    Reported(Member),
    /// A member's process is gone.
    Left(Member),
    /// A member says that it cannot go on.
    Failed(Member, String),
    /// Time has passed.
    Tick,
}

/// What the runner is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Start the processes of consumers.
    StartConsumers,
    /// Start the processes of producers.
    StartProducers,
    /// Tell all to go.
    Go,
    /// Do this to the run.
    Disrupt(Disruption),
    /// Tell producers to stop.
    StopProducers,
    /// Tell all to report.
    Finish,
    /// Nothing more is done.
    Over(Ending),
}

/// How a run is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// There are figures, of all but some.
    Ended(Vec<Absent>),
    /// There are none.
    Failed(String),
}

/// Somebody of whom there is no report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Absent {
    /// Who.
    pub member: Member,
    /// Why.
    pub why: String,
}

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Consumers connect, until then.
    Consumers { until_ms: u64 },
    /// Producers connect, until then.
    Producers { until_ms: u64 },
    /// Messages flow since then.
    Running { since_ms: u64 },
    /// Producers were asked to stop.
    Draining,
    /// Reports come, until then.
    Finishing { until_ms: u64 },
    /// Nothing comes any more.
    Over,
}

/// The course of one run. [`Barrier::start`] first, then [`Barrier::handle`] with all that happens and, about ten
/// times a second, a [`Input::Tick`]. Times are milliseconds of any clock that does not go back.
#[derive(Debug)]
pub struct Barrier {
    stage: Stage,
    members: BTreeSet<Member>,
    ready: BTreeSet<Member>,
    reported: BTreeSet<Member>,
    missing: BTreeMap<Member, String>,
    received: BTreeMap<u64, u64>,
    sent: BTreeMap<u64, u64>,
    copies: u64,
    deliveries: Option<u64>,
    seconds: Option<u64>,
    disruptions: Vec<Disruption>,
    is_disturbed: bool,
    last_ms: u64,
    idle_ms: u64,
}

impl Barrier {
    /// For a plan's members.
    pub fn new(plan: &Plan, disruptions: &[Disruption], idle_seconds: u64) -> Self {
        let copies = plan.assignments.first().map_or(1, |assignment| {
            let common = &assignment.common;
            common.pattern.copies(common.consumers)
        });
        Self {
            stage: Stage::Consumers {
                until_ms: READY_MS_MAX,
            },
            members: plan.members().collect(),
            ready: BTreeSet::new(),
            reported: BTreeSet::new(),
            missing: BTreeMap::new(),
            received: BTreeMap::new(),
            sent: BTreeMap::new(),
            copies,
            deliveries: plan.deliveries,
            seconds: plan.seconds,
            disruptions: disruptions.to_vec(),
            is_disturbed: false,
            last_ms: 0,
            idle_ms: idle_seconds * 1000,
        }
    }

    /// Begins.
    pub fn start(&mut self, now_ms: u64) -> Vec<Output> {
        self.stage = Stage::Consumers {
            until_ms: now_ms.saturating_add(READY_MS_MAX),
        };
        vec![Output::StartConsumers]
    }

    /// Takes what happened, and says what is to be done.
    pub fn handle(&mut self, now_ms: u64, input: Input) -> Vec<Output> {
        if self.stage == Stage::Over {
            return Vec::new();
        }
        match input {
            Input::Ready(member) => {
                self.ready.insert(member);
            }
            Input::Received {
                consumer,
                messages,
                repeats,
            } => {
                self.is_disturbed |= repeats > 0 && !planted(Fault::RepeatsAreNews);
                let before = self.received.insert(consumer, messages);
                if before != Some(messages) {
                    self.last_ms = now_ms;
                }
            }
            Input::Sent { producer, messages } => {
                self.sent.insert(producer, messages);
                self.last_ms = now_ms;
            }
            Input::Reported(member) => {
                self.reported.insert(member);
            }
            Input::Left(member) => {
                if let Some(outputs) = self.lose(member, "its process has ended".to_owned()) {
                    return outputs;
                }
            }
            Input::Failed(member, why) => {
                if let Some(outputs) = self.lose(member, why) {
                    return outputs;
                }
            }
            Input::Tick => {}
        }
        self.go_on(now_ms)
    }

    /// Somebody is gone. Before messages flow that is the end.
    fn lose(&mut self, member: Member, why: String) -> Option<Vec<Output>> {
        if self.reported.contains(&member) || !self.members.contains(&member) {
            return None;
        }
        match self.stage {
            Stage::Consumers { .. } | Stage::Producers { .. } => {
                Some(self.fail(format!("{member} is gone before all were ready: {why}")))
            }
            Stage::Running { .. } | Stage::Draining | Stage::Finishing { .. } => {
                self.is_disturbed = true;
                self.missing.entry(member).or_insert(why);
                None
            }
            Stage::Over => None,
        }
    }

    fn fail(&mut self, why: String) -> Vec<Output> {
        self.stage = Stage::Over;
        vec![Output::Over(Ending::Failed(why))]
    }

    fn go_on(&mut self, now_ms: u64) -> Vec<Output> {
        match self.stage {
            Stage::Consumers { until_ms } => {
                let late = self.late(|member| matches!(member, Member::Consumer(_)));
                if late.is_empty() {
                    return self.connect_producers(now_ms);
                }
                self.wait(now_ms, until_ms, &late)
            }
            Stage::Producers { until_ms } => {
                let late = self.late(|member| matches!(member, Member::Producer(_)));
                if late.is_empty() {
                    return self.go(now_ms);
                }
                self.wait(now_ms, until_ms, &late)
            }
            Stage::Running { since_ms } => self.run(now_ms, since_ms),
            Stage::Draining => self.drain(now_ms),
            Stage::Finishing { until_ms } => self.gather(now_ms, until_ms),
            Stage::Over => Vec::new(),
        }
    }

    /// Those of a role that are not ready.
    fn late(&self, is_of_role: impl Fn(&Member) -> bool) -> Vec<Member> {
        let of_role = self.members.iter().filter(|member| is_of_role(member));
        of_role
            .filter(|member| !self.ready.contains(member))
            .copied()
            .collect()
    }

    fn wait(&mut self, now_ms: u64, until_ms: u64, late: &[Member]) -> Vec<Output> {
        if now_ms < until_ms {
            return Vec::new();
        }
        let seconds = READY_MS_MAX / 1000;
        let names: Vec<String> = late.iter().map(Member::to_string).collect();
        self.fail(format!(
            "not ready within {seconds} s: {}",
            names.join(", ")
        ))
    }

    fn connect_producers(&mut self, now_ms: u64) -> Vec<Output> {
        self.stage = Stage::Producers {
            until_ms: now_ms.saturating_add(READY_MS_MAX),
        };
        if planted(Fault::GoEarly) {
            return self.go(now_ms);
        }
        vec![Output::StartProducers]
    }

    fn go(&mut self, now_ms: u64) -> Vec<Output> {
        self.last_ms = now_ms;
        self.stage = Stage::Running { since_ms: now_ms };
        let mut outputs = vec![Output::Go];
        outputs.extend(self.disrupt(now_ms, now_ms));
        outputs
    }

    fn run(&mut self, now_ms: u64, since_ms: u64) -> Vec<Output> {
        let mut outputs = self.disrupt(now_ms, since_ms);
        let is_time_over = self
            .seconds
            .is_some_and(|seconds| now_ms.saturating_sub(since_ms) >= seconds * 1000);
        if is_time_over {
            self.stage = Stage::Draining;
            self.last_ms = now_ms;
            outputs.push(Output::StopProducers);
        } else {
            outputs.extend(self.drain(now_ms));
        }
        outputs
    }

    /// What is due to be done on purpose.
    fn disrupt(&mut self, now_ms: u64, since_ms: u64) -> Vec<Output> {
        let passed_ms = now_ms.saturating_sub(since_ms);
        let received = sum(&self.received);
        let whole = match (self.deliveries, self.seconds) {
            (Some(deliveries), _) => (received, u128::from(deliveries)),
            (None, Some(seconds)) => (u128::from(passed_ms), u128::from(seconds) * 1000),
            (None, None) => (0, 1),
        };
        let is_due = |one: &Disruption| match one.moment {
            Moment::Percent(percent) => whole.0 * 100 >= u128::from(percent) * whole.1,
            Moment::After(milliseconds) => passed_ms >= milliseconds,
        };
        let (due, later): (Vec<_>, Vec<_>) = self.disruptions.drain(..).partition(is_due);
        self.disruptions = later;
        for one in due.iter().filter(|one| one.ends_member()) {
            let Some(member) = member_of(one.target) else {
                continue;
            };
            if !planted(Fault::WaitForKilled) {
                self.missing.insert(member, format!("{one}"));
            }
        }
        self.is_disturbed |= !due.is_empty();
        due.into_iter().map(Output::Disrupt).collect()
    }

    fn drain(&mut self, now_ms: u64) -> Vec<Output> {
        let quiet_ms = now_ms.saturating_sub(self.last_ms);
        let is_over = match (self.has_all(), self.is_disturbed) {
            (true, false) => true,
            (true, true) => quiet_ms >= QUIET_MS.min(self.idle_ms),
            (false, _) => quiet_ms >= self.idle_ms,
        };
        if !is_over {
            return Vec::new();
        }
        self.stage = Stage::Finishing {
            until_ms: now_ms.saturating_add(REPORTS_MS_MAX),
        };
        let mut outputs = vec![Output::Finish];
        outputs.extend(self.gather(now_ms, u64::MAX));
        outputs
    }

    /// Whether all that producers sent has come. What a producer that is gone has sent is not known, and what a
    /// consumer of a broadcast that is gone would have received does not come.
    fn has_all(&self) -> bool {
        let is_there = |member: &&Member| !self.missing.contains_key(member);
        let is_producer = |member: &Member| matches!(member, Member::Producer(_));
        let mut producers = self.members.iter().filter(|member| is_producer(member));
        let have_sent = producers.all(|member| match member {
            Member::Producer(index) => is_there(&member) && self.sent.contains_key(index),
            Member::Consumer(_) => true,
        });
        let consumers = self.members.iter().filter(|member| !is_producer(member));
        let copies = match self.copies {
            1 => 1,
            _ => consumers.filter(is_there).count() as u64,
        };
        let of_those_there = |&(consumer, _): &(&u64, &u64)| {
            self.copies == 1 || is_there(&&Member::Consumer(*consumer))
        };
        let received = self.received.iter().filter(of_those_there);
        let received: u128 = received.map(|(_, &messages)| u128::from(messages)).sum();
        have_sent && received >= sum(&self.sent) * u128::from(copies)
    }

    fn gather(&mut self, now_ms: u64, until_ms: u64) -> Vec<Output> {
        let missing = &self.missing;
        let reported = &self.reported;
        let awaited =
            |member: &&Member| !reported.contains(member) && !missing.contains_key(member);
        let late: Vec<Member> = self.members.iter().filter(awaited).copied().collect();
        if !late.is_empty() && now_ms < until_ms {
            return Vec::new();
        }
        for member in late {
            let seconds = REPORTS_MS_MAX / 1000;
            self.missing
                .insert(member, format!("no report within {seconds} s"));
        }
        self.stage = Stage::Over;
        let missing = self.missing.iter().map(|(&member, why)| Absent {
            member,
            why: why.clone(),
        });
        vec![Output::Over(Ending::Ended(missing.collect()))]
    }
}

/// Messages of all members. A process that counts wrong does no more than end a run early.
fn sum(messages: &BTreeMap<u64, u64>) -> u128 {
    messages
        .values()
        .map(|&messages| u128::from(messages))
        .sum()
}
