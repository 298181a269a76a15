//! A requester's program: asks, waits for replies, dies, comes back.

use crate::asked::{Asked, When};
use crate::plan::RequesterPlan;
use crate::program::Program;
use crate::random::Random;
use crate::trace::{Trace, Violation};
use client::{
    ClientError, ConsumedEvent, Definition, Event, Gather, Gathered, PartitionStorage, Pending,
    Requester, RequesterOptions, TopicHandle,
};
use net::testing::sim::SimNet;
use std::time::Duration;
use wire::ErrorCode;

/// Where requests go.
pub const ASKS: &str = "asks";
/// How long a program that was refused thinks before it tries again.
const RETRY_NS: u64 = 200_000_000;
/// Whoever gives it so long is to get his reply whatever happens.
pub const LONG: Duration = Duration::from_secs(300);

enum Stage {
    Begin,
    Making(Pending<TopicHandle>),
    Finding(Pending<TopicHandle>),
    Opening(Pending<Requester>),
    Open(Box<Requester>),
}

enum Answer {
    One(Pending<ConsumedEvent>),
    Many(Gather, Pending<Gathered>),
}

/// A request that is under way.
struct Waiting {
    number: usize,
    deadline: u64,
    is_long: bool,
    answer: Answer,
}

/// The program and what it remembers.
pub struct RequesterActor {
    pub program: Program,
    plan: RequesterPlan,
    stage: Stage,
    random: Random,
    trace: Trace,
    net: SimNet,
    /// When it does something by itself.
    pub wake_at: u64,
    left: u64,
    waiting: Vec<Waiting>,
    /// When it went on after it was stopped last.
    resumed_at: u64,
    was_stopped: bool,
}

impl RequesterActor {
    /// Starts the program.
    pub fn new(net: &SimNet, plan: RequesterPlan, mut random: Random, trace: Trace) -> Self {
        let session = u128::from(random.number());
        Self {
            program: Program::start(net, plan.name.clone(), session, trace.clone()),
            stage: Stage::Begin,
            random,
            trace,
            net: net.clone(),
            wake_at: 0,
            left: plan.request_count,
            waiting: Vec::new(),
            resumed_at: 0,
            was_stopped: false,
            plan,
        }
    }

    /// What it waits for, if it is not done.
    pub fn unfinished(&self) -> Option<String> {
        let what = match &self.stage {
            Stage::Open(_) if self.left == 0 && self.waiting.is_empty() => return None,
            Stage::Begin => "about to find its topic",
            Stage::Making(_) | Stage::Finding(_) => "finding its topic",
            Stage::Opening(_) => "opening its requester",
            Stage::Open(_) => "open",
        };
        let numbers: Vec<usize> = self.waiting.iter().map(|one| one.number).collect();
        Some(format!(
            "{} is {what}, has {} requests to send and waits for {numbers:?}; {}",
            self.program.name,
            self.left,
            self.program.driver.liveness()
        ))
    }

    /// The process is killed and comes back; what it waited for is nobody's.
    pub fn die(&mut self, now: u64) {
        if !self.program.ended {
            self.program.kill(now);
        }
        self.stage = Stage::Begin;
        self.waiting.clear();
        let session = u128::from(self.random.number());
        let name = self.program.name.clone();
        self.program = Program::start(&self.net, name, session, self.trace.clone());
        self.wake_at = now + self.random.below(RETRY_NS);
    }

    /// Looks at what was answered.
    pub fn observe(&mut self, now: u64, asked: &mut Asked) -> Result<(), Violation> {
        if self.program.is_stopped(now) {
            self.was_stopped = true;
            return Ok(());
        }
        if std::mem::take(&mut self.was_stopped) {
            self.resumed_at = now;
        }
        if self.program.ended {
            self.die(now);
            return Ok(());
        }
        let mut waiting = std::mem::take(&mut self.waiting);
        let mut result = Ok(());
        waiting.retain_mut(|one| {
            if result.is_err() {
                return true;
            }
            match self.look(now, one, asked) {
                Ok(is_over) => !is_over,
                Err(violation) => {
                    result = Err(violation);
                    true
                }
            }
        });
        self.waiting = waiting;
        result?;
        self.advance(now);
        Ok(())
    }

    /// Looks at one request. Whether it is over.
    fn look(&self, now: u64, one: &mut Waiting, asked: &mut Asked) -> Result<bool, Violation> {
        let when = When {
            now,
            deadline: one.deadline,
        };
        let (name, number) = (&self.program.name, one.number);
        let failed = match &mut one.answer {
            Answer::One(pending) => match pending.try_get() {
                Some(Ok(reply)) => {
                    self.trace.say(now, || {
                        format!("{name}: request {number} is replied to by {}", reply.id())
                    });
                    asked.replied(number, &reply, when)?;
                    return Ok(true);
                }
                Some(Err(error)) => error,
                None => return self.is_late(one, when),
            },
            Answer::Many(gather, pending) => match pending.try_get() {
                Some(Ok(gathered)) => {
                    self.trace.say(now, || {
                        let replies = gathered.replies.iter().map(|(name, _)| name);
                        let replies: Vec<&String> = replies.collect();
                        let missing = &gathered.missing;
                        format!("{name}: broadcast {number}: {replies:?}, missing {missing:?}")
                    });
                    asked.gathered(number, *gather, &gathered, self.at_last(when))?;
                    return Ok(true);
                }
                Some(Err(error)) => error,
                None => return self.is_late(one, when),
            },
        };
        self.trace
            .say(now, || format!("{name}: request {number}: {failed}"));
        let is_timeout = matches!(failed, ClientError::Timeout { .. });
        let failing = failed.code() == Some(ErrorCode::StorageFailed) && self.plan.disk_fails;
        let is_known = match is_timeout {
            true => now >= one.deadline && !one.is_long,
            false => failing || matches!(failed, ClientError::Unreachable { .. }),
        };
        let is_broadcast = matches!(one.answer, Answer::Many(..));
        if !is_known || (asked.is_calm && is_broadcast) {
            return Violation::because(format!(
                "request {number} of {name} fails for no good reason: {failed}"
            ));
        }
        asked.late_count += u64::from(is_timeout);
        Ok(true)
    }

    /// A program that was stopped at a deadline sees it when it goes on.
    fn at_last(&self, when: When) -> When {
        When {
            deadline: when.deadline.max(self.resumed_at),
            ..when
        }
    }

    fn is_late(&self, one: &Waiting, when: When) -> Result<bool, Violation> {
        let when = self.at_last(when);
        match when.now > when.deadline {
            false => Ok(false),
            true => Violation::because(format!(
                "request {} of {} is not over after its deadline",
                one.number, self.program.name
            )),
        }
    }

    fn failed(&mut self, now: u64, what: &str, error: &ClientError) {
        let name = &self.program.name;
        self.trace.say(now, || format!("{name}: {what}: {error}"));
        self.stage = Stage::Begin;
        self.wake_at = now + RETRY_NS;
    }

    fn advance(&mut self, now: u64) {
        match &mut self.stage {
            Stage::Making(pending) => match pending.try_get() {
                Some(Ok(topic)) => self.open(&topic),
                Some(Err(_)) => {
                    self.stage = Stage::Finding(self.program.driver.begin_open_topic(ASKS));
                    self.program.wake();
                }
                None => {}
            },
            Stage::Finding(pending) => match pending.try_get() {
                Some(Ok(topic)) => self.open(&topic),
                Some(Err(error)) => self.failed(now, "finding the topic", &error),
                None => {}
            },
            Stage::Opening(pending) => match pending.try_get() {
                Some(Ok(requester)) => {
                    self.stage = Stage::Open(Box::new(requester));
                    self.wake_at = now;
                }
                Some(Err(error)) => self.failed(now, "opening a requester", &error),
                None => {}
            },
            Stage::Begin | Stage::Open(_) => {}
        }
    }

    fn open(&mut self, topic: &TopicHandle) {
        let options = RequesterOptions {
            producer: self.plan.producer.clone(),
            ..RequesterOptions::default()
        };
        self.stage = Stage::Opening(topic.begin_requester(options));
        self.program.wake();
    }

    /// Does something by itself.
    pub fn act(
        &mut self,
        now: u64,
        asked: &mut Asked,
        topic: (&Definition, &[PartitionStorage]),
    ) -> Result<(), Violation> {
        self.wake_at = now + self.random.within(self.plan.pause_ns.clone());
        self.program.wake();
        let requester = match &self.stage {
            Stage::Begin => {
                let (definition, partitions) = topic;
                let driver = &self.program.driver;
                let made = driver.begin_create_topic(ASKS, definition, partitions);
                self.stage = Stage::Making(made);
                return Ok(());
            }
            Stage::Open(_) if now < self.plan.starts_at => {
                self.wake_at = self.plan.starts_at;
                return Ok(());
            }
            Stage::Open(requester) => requester,
            Stage::Making(_) | Stage::Finding(_) | Stage::Opening(_) => return Ok(()),
        };
        for _ in 0..self.random.within(1..4).min(self.left) {
            let is_broadcast = self.random.one_in(4);
            let data_bytes = self.random.pick(&[0, 20, 2_000]);
            let (number, metadata, data) = asked.draft(is_broadcast, data_bytes);
            let is_long = !is_broadcast && self.random.one_in(2);
            let deadline = match is_long {
                true => LONG,
                false => Duration::from_millis(self.random.within(self.plan.deadline_ms.clone())),
            };
            let event = Event {
                data: if data.is_empty() {
                    Vec::new()
                } else {
                    vec![data]
                },
                ..Event::new(&metadata)
            };
            let sent = match is_broadcast {
                true => {
                    let gather = match self.random.below(3) {
                        0 => Gather::All,
                        count => Gather::AtLeast(count as usize),
                    };
                    let pending = requester.broadcast(event, gather, deadline);
                    pending.map(|pending| Answer::Many(gather, pending))
                }
                false => requester.request(event, deadline).map(Answer::One),
            };
            let name = &self.program.name;
            match sent {
                Ok(answer) => {
                    asked.sent(is_broadcast, data_bytes);
                    self.trace.say(now, || {
                        format!("{name}: sends {number}, broadcast {is_broadcast}, {deadline:?}")
                    });
                    self.left -= 1;
                    self.waiting.push(Waiting {
                        number,
                        deadline: now + deadline.as_nanos() as u64,
                        is_long,
                        answer,
                    });
                }
                Err(ClientError::Budget(_)) => break,
                Err(error) => {
                    self.trace
                        .say(now, || format!("{name}: cannot send: {error}"));
                    let failing = error.code() == Some(ErrorCode::StorageFailed);
                    if !(failing && self.plan.disk_fails) {
                        return Violation::because(format!("{name} cannot ask: {error}"));
                    }
                    self.die(now);
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}
