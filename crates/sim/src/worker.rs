//! A queue's worker: pulls, acknowledges, returns, rejects, extends, forgets,
//! leaves, dies, comes back.

use crate::model::Model;
use crate::plan::{TOPIC, WorkerPlan};
use crate::program::Program;
use crate::random::Random;
use crate::trace::{Trace, Violation};
use crate::witness::Witness;
use client::{ClientError, Pending, QueueConsumer, QueueEvent, SettleFuture, TopicHandle};
use net::testing::sim::SimNet;
use std::time::Duration;
use wire::message::SettleAs;
use wire::{ErrorCode, EventId, LeaseId};

/// How long a program that was refused thinks before it tries again.
const RETRY_NS: u64 = 200_000_000;
const MILLISECOND: u64 = 1_000_000;

enum Stage {
    Begin,
    Finding(Pending<TopicHandle>),
    Opening(Pending<QueueConsumer>),
    Open(Box<QueueConsumer>),
    /// It leaves; what it holds goes to others.
    Closing(Pending<()>),
    /// Its successor goes on in its place.
    Over,
}

/// An event in its hands.
struct Held {
    event: QueueEvent,
    number: usize,
    pulled_at: u64,
    /// When it does something about it.
    due: u64,
}

/// A settlement whose answer is not there yet.
struct Unanswered {
    id: EventId,
    lease: LeaseId,
    number: usize,
    how: SettleAs,
    span: (u64, u64),
    future: SettleFuture,
}

/// The program and what it remembers.
pub struct WorkerActor {
    pub program: Program,
    plan: WorkerPlan,
    stage: Stage,
    random: Random,
    trace: Trace,
    net: SimNet,
    /// When it does something by itself.
    pub wake_at: u64,
    held: Vec<Held>,
    unanswered: Vec<Unanswered>,
    /// Whether another process of its instance name may have taken over.
    may_be_fenced: bool,
    /// It works as it should from now on.
    is_diligent: bool,
}

impl WorkerActor {
    /// Starts the program.
    pub fn new(net: &SimNet, plan: WorkerPlan, mut random: Random, trace: Trace) -> Self {
        let session = u128::from(random.number());
        Self {
            program: Program::start(net, plan.name.clone(), session, trace.clone()),
            plan,
            stage: Stage::Begin,
            random,
            trace,
            net: net.clone(),
            wake_at: 0,
            held: Vec::new(),
            unanswered: Vec::new(),
            may_be_fenced: false,
            is_diligent: false,
        }
    }

    /// What it is at.
    pub fn describe(&self) -> String {
        let what = match &self.stage {
            Stage::Begin => "about to find its topic",
            Stage::Finding(_) => "finding its topic",
            Stage::Opening(_) => "opening its queue",
            Stage::Open(_) => "open",
            Stage::Closing(..) => "closing",
            Stage::Over => "over",
        };
        format!(
            "{} is {what}, has {} events and {} settlements unanswered; {}",
            self.program.name,
            self.held.len(),
            self.unanswered.len(),
            self.program.driver.liveness()
        )
    }

    /// A process of the same instance name, which takes over; this one goes on.
    pub fn successor(&mut self) -> Option<Self> {
        self.plan.instance.as_ref()?;
        // Whoever joins last goes on.
        if self.may_be_fenced || !matches!(self.stage, Stage::Open(_)) {
            return None;
        }
        self.may_be_fenced = true;
        let plan = WorkerPlan {
            name: format!("{}'", self.plan.name),
            ..self.plan.clone()
        };
        let random = self.random.fork();
        Some(Self::new(&self.net, plan, random, self.trace.clone()))
    }

    /// From now on it handles what it is given, and does not go away.
    pub fn is_to_be_diligent(&mut self) {
        self.is_diligent = true;
    }

    /// It leaves as it should, if it is open.
    pub fn leave(&mut self) {
        if matches!(self.stage, Stage::Open(_)) {
            let Stage::Open(consumer) = std::mem::replace(&mut self.stage, Stage::Begin) else {
                return;
            };
            let closing = consumer.begin_close();
            self.stage = Stage::Closing(closing);
            self.program.wake();
        }
    }

    /// The process is killed and comes back.
    pub fn die(&mut self, now: u64) {
        if !self.program.ended {
            self.program.kill(now);
        }
        self.held.clear();
        self.unanswered.clear();
        if self.may_be_fenced {
            self.stage = Stage::Over;
            self.wake_at = u64::MAX;
            return;
        }
        self.stage = Stage::Begin;
        let session = u128::from(self.random.number());
        let name = self.program.name.clone();
        self.program = Program::start(&self.net, name, session, self.trace.clone());
        self.wake_at = now + self.random.below(RETRY_NS);
    }

    /// Looks at what was answered.
    pub fn observe(&mut self, now: u64, witness: &mut Witness) -> Result<(), Violation> {
        if self.program.is_stopped(now) {
            return Ok(());
        }
        let name = &self.program.name;
        let queue = &self.plan.queue;
        let mut result = Ok(());
        self.unanswered.retain(|one| {
            let Some(answer) = one.future.try_get() else {
                return true;
            };
            let (number, how) = (one.number, one.how);
            self.trace.say(now, || {
                format!("{name}: {how:?} of event {number}: {answer:?}")
            });
            if answer.is_ok() && result.is_ok() {
                let leases = &mut witness.leases;
                result = leases.confirmed(queue, (one.id, one.lease), name, one.span, how);
            }
            false
        });
        result?;
        if self.program.ended && !matches!(self.stage, Stage::Over) {
            self.die(now);
            return Ok(());
        }
        self.advance(now);
        Ok(())
    }

    fn failed(&mut self, now: u64, what: &str, error: &ClientError) {
        let name = &self.program.name;
        self.trace.say(now, || format!("{name}: {what}: {error}"));
        self.stage = Stage::Begin;
        self.wake_at = now + RETRY_NS;
    }

    fn advance(&mut self, now: u64) {
        match &mut self.stage {
            Stage::Finding(pending) => match pending.try_get() {
                Some(Ok(topic)) => {
                    let options = self.plan.options.clone();
                    self.stage = Stage::Opening(topic.begin_queue(&self.plan.queue, options));
                    self.program.wake();
                }
                Some(Err(error)) => self.failed(now, "finding the topic", &error),
                None => {}
            },
            Stage::Opening(pending) => match pending.try_get() {
                Some(Ok(consumer)) => {
                    self.stage = Stage::Open(Box::new(consumer));
                    self.wake_at = now;
                }
                Some(Err(error)) => self.failed(now, "joining the queue", &error),
                None => {}
            },
            Stage::Closing(pending) => {
                if let Some(result) = pending.try_get() {
                    let name = &self.program.name;
                    self.trace
                        .say(now, || format!("{name}: closed: {result:?}"));
                    self.held.clear();
                    self.stage = Stage::Begin;
                    self.wake_at = now + RETRY_NS;
                }
            }
            Stage::Begin | Stage::Open(_) | Stage::Over => {}
        }
    }

    /// Does something by itself.
    pub fn act(&mut self, now: u64, model: &mut Model) -> Result<(), Violation> {
        self.wake_at = now + self.random.within(self.plan.pause_ns.clone());
        self.program.wake();
        match &self.stage {
            Stage::Begin => {
                self.stage = Stage::Finding(self.program.driver.begin_open_topic(TOPIC));
                return Ok(());
            }
            Stage::Open(_) => {}
            Stage::Over => {
                self.wake_at = u64::MAX;
                return Ok(());
            }
            Stage::Finding(_) | Stage::Opening(_) | Stage::Closing(..) => return Ok(()),
        }
        for _ in 0..self.random.within(1..12) {
            if !self.pull(now, model)? {
                break;
            }
        }
        for held in std::mem::take(&mut self.held) {
            match held.due <= now {
                true => self.handle(now, held),
                false => self.held.push(held),
            }
        }
        Ok(())
    }

    /// Takes one event. False if there was none.
    fn pull(&mut self, now: u64, model: &mut Model) -> Result<bool, Violation> {
        let Stage::Open(consumer) = &self.stage else {
            return Ok(false);
        };
        let pulled = consumer.pull(Some(Duration::ZERO));
        if let Some((partition, gap)) = consumer.take_gaps().pop() {
            return Violation::because(format!(
                "{} is told of {gap:?} in partition {partition}: its queue was to be spared",
                self.program.name
            ));
        }
        let event = match pulled {
            Ok(Some(event)) => event,
            Ok(None) => return Ok(false),
            Err(error) if error.is_retryable() => return Ok(false),
            Err(error) => {
                let code = error.code();
                let fenced = code == Some(ErrorCode::MemberFenced);
                let is_static = self.plan.instance.is_some();
                let fenced =
                    fenced && (is_static || self.plan.options.processing_timeout.is_some());
                let failed = code == Some(ErrorCode::StorageFailed) && self.plan.disk_fails;
                let name = &self.program.name;
                if !fenced && !failed {
                    return Violation::because(format!("{name} cannot pull: {error}"));
                }
                self.trace.say(now, || format!("{name}: {error}"));
                if is_static || failed {
                    self.die(now);
                }
                return Ok(false);
            }
        };
        let name = &self.program.name;
        let number = model.recognised(name, &event, |_| None)?;
        self.trace.say(now, || {
            let (id, lease, deliveries) = (event.id(), event.lease(), event.deliveries());
            format!("{name}: is given event {number} as {id} under {lease}, delivery {deliveries}")
        });
        let think = match self.is_diligent {
            true => 0,
            false => self.random.within(self.plan.think_ns.clone()),
        };
        self.held.push(Held {
            event,
            number,
            pulled_at: now,
            due: now + think,
        });
        Ok(true)
    }

    /// Does something about an event that it has.
    fn handle(&mut self, now: u64, mut held: Held) {
        let id = held.event.id();
        let number = held.number;
        let chance = self.random.below(100);
        let chance = if self.is_diligent { chance / 2 } else { chance };
        let (how, future) = match chance {
            0..48 => (SettleAs::Acknowledge, held.event.acknowledge()),
            48..50 => {
                let reason = format!("event {number} is bad");
                (SettleAs::Reject, held.event.reject(&reason))
            }
            50..72 => (SettleAs::Acknowledge, held.event.acknowledge()),
            72..78 => (SettleAs::Return, held.event.return_to_queue(Duration::ZERO)),
            78..82 => {
                let delay = Duration::from_millis(self.random.below(3000));
                let reason = format!("not now, {}", self.random.below(4));
                let future = held.event.return_because(delay, &reason);
                (SettleAs::Return, future)
            }
            82..86 => {
                let reason = format!("event {number} is bad");
                (SettleAs::Reject, held.event.reject(&reason))
            }
            86..92 => {
                // It takes longer, and says so.
                drop(held.event.extend());
                held.due = now + self.random.within(self.plan.think_ns.clone());
                self.held.push(held);
                return;
            }
            92..98 => {
                // Left to its lease's end, and a little longer.
                let lease = self.plan.options.queue.lease_ms * MILLISECOND;
                held.due = now + lease + self.random.below(lease / 2);
                self.held.push(held);
                return;
            }
            // Dropped: it is returned.
            _ => return,
        };
        let name = &self.program.name;
        self.trace
            .say(now, || format!("{name}: {how:?} of event {number}, {id}"));
        self.unanswered.push(Unanswered {
            id,
            lease: held.event.lease(),
            number,
            how,
            span: (held.pulled_at, now),
            future,
        });
        self.program.wake();
    }
}
