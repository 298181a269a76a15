//! Somebody who gets requests: a worker of the queue, or an independent
//! consumer, which replies to broadcasts. Dies, forgets, comes back.

use crate::asked::{Asked, reply_to};
use crate::plan::AnswererPlan;
use crate::program::Program;
use crate::random::Random;
use crate::requester::ASKS;
use crate::trace::{Trace, Violation};
use client::{
    ClientError, ConsumedEvent, Consumer, ConsumerOptions, Pending, PushFuture, QueueConsumer,
    QueueEvent, Start, TopicHandle,
};
use net::testing::sim::SimNet;
use std::time::Duration;
use wire::{ErrorCode, EventId, SessionId};

/// How long a program that was refused thinks before it tries again.
const RETRY_NS: u64 = 200_000_000;

enum Stage {
    Begin,
    Finding(Pending<TopicHandle>),
    Joining(Pending<QueueConsumer>),
    Opening(Pending<Consumer>),
    Works(Box<QueueConsumer>),
    Listens(Box<Consumer>),
    Closing(Pending<()>),
}

enum Event {
    Leased(QueueEvent),
    Consumed(ConsumedEvent),
}

/// A request in its hands.
struct Held {
    event: Event,
    number: usize,
    /// When it does something about it.
    due: u64,
}

/// The program and what it remembers.
pub struct AnswererActor {
    pub program: Program,
    plan: AnswererPlan,
    /// How it names itself.
    name: String,
    stage: Stage,
    random: Random,
    trace: Trace,
    net: SimNet,
    /// When it does something by itself.
    pub wake_at: u64,
    held: Vec<Held>,
    settling: Vec<(usize, Pending<EventId>)>,
    stored: Vec<PushFuture>,
    /// It replies to everything from now on.
    is_diligent: bool,
}

fn name_of(plan: &AnswererPlan, session: u128) -> String {
    match &plan.queue {
        Some(queue) => queue.name.clone(),
        None => format!("{}/{}", plan.consumer, SessionId(session)),
    }
}

impl AnswererActor {
    /// Starts the program.
    pub fn new(net: &SimNet, plan: AnswererPlan, mut random: Random, trace: Trace) -> Self {
        let session = u128::from(random.number());
        Self {
            program: Program::start(net, plan.name.clone(), session, trace.clone()),
            name: name_of(&plan, session),
            plan,
            stage: Stage::Begin,
            random,
            trace,
            net: net.clone(),
            wake_at: 0,
            held: Vec::new(),
            settling: Vec::new(),
            stored: Vec::new(),
            is_diligent: false,
        }
    }

    /// From now on it replies as it should, and does not go away.
    pub fn is_to_be_diligent(&mut self) {
        self.is_diligent = true;
    }

    /// It leaves as it should, if it is a worker.
    pub fn leave(&mut self) {
        if let Stage::Works(consumer) = &self.stage {
            self.stage = Stage::Closing(consumer.begin_close());
            self.program.wake();
        }
    }

    /// The process is killed and comes back.
    pub fn die(&mut self, now: u64, asked: &mut Asked) {
        if !self.program.ended {
            self.program.kill(now);
        }
        if self.plan.queue.is_none() {
            asked.listens(&self.name, None);
        }
        self.held.clear();
        self.settling.clear();
        self.stored.clear();
        self.stage = Stage::Begin;
        let session = u128::from(self.random.number());
        self.name = name_of(&self.plan, session);
        let name = self.program.name.clone();
        self.program = Program::start(&self.net, name, session, self.trace.clone());
        self.wake_at = now + self.random.below(RETRY_NS);
    }

    /// Looks at what was answered.
    pub fn observe(&mut self, now: u64, asked: &mut Asked) {
        if self.program.is_stopped(now) {
            return;
        }
        let name = &self.program.name;
        self.settling.retain_mut(|(number, pending)| {
            let Some(result) = pending.try_get() else {
                return true;
            };
            let number = *number;
            self.trace
                .say(now, || format!("{name}: reply to {number}: {result:?}"));
            if result.is_ok() {
                asked.settled(number);
            }
            false
        });
        self.stored.retain(|future| future.try_get().is_none());
        if self.program.ended {
            self.die(now, asked);
            return;
        }
        self.advance(now, asked);
    }

    fn failed(&mut self, now: u64, what: &str, error: &ClientError) {
        let name = &self.program.name;
        self.trace.say(now, || format!("{name}: {what}: {error}"));
        self.stage = Stage::Begin;
        self.wake_at = now + RETRY_NS;
    }

    fn advance(&mut self, now: u64, asked: &mut Asked) {
        match &mut self.stage {
            Stage::Finding(pending) => match pending.try_get() {
                Some(Ok(topic)) => {
                    asked.will_listen(&self.name);
                    self.stage = match &self.plan.queue {
                        Some(queue) => {
                            Stage::Joining(topic.begin_queue(&queue.name, queue.options.clone()))
                        }
                        None => {
                            let options = ConsumerOptions {
                                start: Start::CursorOrLatest.into(),
                                ..ConsumerOptions::default()
                            };
                            Stage::Opening(topic.begin_consumer(&self.plan.consumer, options))
                        }
                    };
                    self.program.wake();
                }
                Some(Err(error)) => self.failed(now, "finding the topic", &error),
                None => {}
            },
            Stage::Joining(pending) => match pending.try_get() {
                Some(Ok(consumer)) => {
                    self.stage = Stage::Works(Box::new(consumer));
                    asked.listens(&self.name, Some(true));
                    self.wake_at = now;
                }
                Some(Err(error)) => self.failed(now, "joining the queue", &error),
                None => {}
            },
            Stage::Opening(pending) => match pending.try_get() {
                Some(Ok(consumer)) => {
                    self.stage = Stage::Listens(Box::new(consumer));
                    asked.listens(&self.name, Some(!self.plan.is_silent));
                    self.wake_at = now;
                }
                Some(Err(error)) => self.failed(now, "opening a consumer", &error),
                None => {}
            },
            Stage::Closing(pending) => {
                if pending.try_get().is_some() {
                    self.held.clear();
                    self.stage = Stage::Begin;
                    self.wake_at = now + RETRY_NS;
                }
            }
            Stage::Begin | Stage::Works(_) | Stage::Listens(_) => {}
        }
    }

    /// Does something by itself.
    pub fn act(&mut self, now: u64, asked: &mut Asked) -> Result<(), Violation> {
        self.wake_at = now + self.random.within(self.plan.pause_ns.clone());
        self.program.wake();
        match &self.stage {
            Stage::Begin => {
                self.stage = Stage::Finding(self.program.driver.begin_open_topic(ASKS));
                return Ok(());
            }
            Stage::Works(_) | Stage::Listens(_) => {}
            _ => return Ok(()),
        }
        for _ in 0..self.random.within(1..8) {
            if !self.pull(now, asked)? {
                break;
            }
        }
        for held in std::mem::take(&mut self.held) {
            match held.due <= now {
                true => self.handle(now, held, asked),
                false => self.held.push(held),
            }
        }
        Ok(())
    }

    fn pull(&mut self, now: u64, asked: &mut Asked) -> Result<bool, Violation> {
        let pulled = match &self.stage {
            Stage::Works(consumer) => {
                let pulled = consumer.pull(Some(Duration::ZERO));
                pulled.map(|event| event.map(Event::Leased))
            }
            Stage::Listens(consumer) => {
                let pulled = consumer.pull(Some(Duration::ZERO));
                pulled.map(|event| event.map(Event::Consumed))
            }
            _ => return Ok(false),
        };
        let name = &self.program.name;
        let event = match pulled {
            Ok(Some(event)) => event,
            Ok(None) => return Ok(false),
            Err(error) if error.is_retryable() => return Ok(false),
            Err(error) => {
                if error.code() != Some(ErrorCode::StorageFailed) || !self.plan.disk_fails {
                    return Violation::because(format!("{name} cannot pull: {error}"));
                }
                self.die(now, asked);
                return Ok(false);
            }
        };
        let read = match &event {
            Event::Leased(event) => asked.read(name, event)?,
            Event::Consumed(event) => asked.read(name, event)?,
        };
        let number = read.number;
        self.trace.say(now, || format!("{name}: is given {number}"));
        match &event {
            Event::Leased(_) => asked.given(name, number)?,
            Event::Consumed(event) => {
                if let Stage::Listens(consumer) = &self.stage {
                    drop(consumer.acknowledge(event.id()));
                }
                if !read.is_broadcast || self.plan.is_silent {
                    return Ok(true);
                }
            }
        }
        // Who works longer than his leases last, and does not renew them, has
        // no end: not after everything is well.
        let think = match self.is_diligent {
            true => 0,
            false => self.random.within(self.plan.think_ns.clone()),
        };
        self.held.push(Held {
            event,
            number,
            due: now + think,
        });
        Ok(true)
    }

    fn handle(&mut self, now: u64, held: Held, asked: &mut Asked) {
        let number = held.number;
        let (metadata, data) = reply_to(number);
        let data = if data.is_empty() {
            Vec::new()
        } else {
            vec![data]
        };
        let forgets = !self.is_diligent && !asked.is_calm && self.random.one_in(8);
        let result = match (&held.event, &self.stage) {
            // Forgotten: it is returned, or nobody replies to it.
            _ if forgets => return,
            (Event::Leased(event), _) => {
                if event.begin_replying().is_some() {
                    return self.later(now, held);
                }
                let replied = event.try_reply(&metadata, data);
                replied.map(|pending| self.settling.push((number, pending)))
            }
            (Event::Consumed(event), Stage::Listens(consumer)) => {
                if !matches!(consumer.begin_replying(), Ok(None)) {
                    return self.later(now, held);
                }
                let replied = consumer.try_reply(event, &metadata, data);
                replied.map(|future| self.stored.push(future))
            }
            (Event::Consumed(_), _) => return,
        };
        let name = &self.program.name;
        self.trace
            .say(now, || format!("{name}: replies to {number}: {result:?}"));
        match result {
            Ok(()) => asked.replies(number, &self.name),
            Err(_) => self.later(now, held),
        }
        self.program.wake();
    }

    fn later(&mut self, now: u64, held: Held) {
        let due = now + RETRY_NS / 4;
        self.held.push(Held { due, ..held });
        self.wake_at = self.wake_at.min(due);
        self.program.wake();
    }
}
