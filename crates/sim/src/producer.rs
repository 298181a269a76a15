//! A producer's program: pushes events now and then, dies, comes back.

use crate::looks::Looks;
use crate::model::{Model, key_of};
use crate::plan::ProducerPlan;
use crate::program::{Entrance, Program};
use crate::random::Random;
use crate::trace::{Trace, Violation};
use client::{
    ClientError, Definition, Event, PartitionStorage, Pending, Producer, PushFuture, TopicHandle,
};
use std::collections::VecDeque;
use wire::ErrorCode;

/// How long a program that was refused thinks before it tries again.
const RETRY_NS: u64 = 200_000_000;

enum Stage {
    /// About to make or open the topic.
    Begin,
    Making(Pending<TopicHandle>),
    Finding(Pending<TopicHandle>),
    Opening(Pending<Producer>),
    Open(Producer),
}

/// The program and what it remembers.
pub struct ProducerActor {
    pub program: Program,
    plan: ProducerPlan,
    stage: Stage,
    random: Random,
    trace: Trace,
    entrance: Entrance,
    /// When it does something by itself.
    pub wake_at: u64,
    /// Events that it has still to push.
    left: u64,
    outstanding: VecDeque<(usize, PushFuture)>,
    life: usize,
    /// Which lives the one that is asked for fences: see the model.
    fences: Option<usize>,
    looks: Looks,
    /// Whether another process of its name may have taken over.
    pub may_be_fenced: bool,
}

impl ProducerActor {
    /// Starts the program.
    pub fn new(
        entrance: impl Into<Entrance>,
        name: String,
        plan: ProducerPlan,
        mut random: Random,
        trace: Trace,
    ) -> Self {
        let session = u128::from(random.number());
        let entrance = entrance.into();
        Self {
            program: Program::start(&entrance, name, session, trace.clone()),
            left: plan.event_count,
            looks: Looks::new(plan.looks_one_in, session as u64),
            plan,
            stage: Stage::Begin,
            random,
            trace,
            entrance,
            wake_at: 0,
            outstanding: VecDeque::new(),
            life: 0,
            fences: None,
            may_be_fenced: false,
        }
    }

    /// What it waits for, if it is not done.
    pub fn unfinished(&self) -> Option<String> {
        let what = match &self.stage {
            Stage::Begin => "about to find its topic",
            Stage::Making(_) => "making its topic",
            Stage::Finding(_) => "finding its topic",
            Stage::Opening(_) => "opening its producer",
            Stage::Open(_) if self.left == 0 && self.outstanding.is_empty() => return None,
            Stage::Open(_) => "open",
        };
        Some(format!(
            "{} is {what}, has {} events to push and {} unanswered; {}",
            self.program.name,
            self.left,
            self.outstanding.len(),
            self.program.driver.liveness()
        ))
    }

    /// A process that takes over the name of this one, which goes on.
    pub fn successor(&mut self) -> Option<Self> {
        self.plan.options.name.as_ref()?;
        self.may_be_fenced = true;
        let mut plan = self.plan.clone();
        plan.event_count = self.left / 2;
        self.left -= plan.event_count;
        let name = format!("{}'", self.program.name);
        let random = self.random.fork();
        let mut successor = Self::new(&self.entrance, name, plan, random, self.trace.clone());
        successor.may_be_fenced = true;
        Some(successor)
    }

    /// The process is stopped until then, and looks at its topic before it goes on.
    pub fn sleep(&mut self, until: u64) {
        self.program.stop(until);
        self.looks.is_to_look();
    }

    /// The process is killed and comes back.
    pub fn die(&mut self, now: u64) {
        self.program.kill(now);
        self.restart(now);
    }

    fn restart(&mut self, now: u64) {
        if !self.program.ended {
            self.program.kill(now);
        }
        self.stage = Stage::Begin;
        self.outstanding.clear();
        self.looks.forget();
        let session = u128::from(self.random.number());
        let name = self.program.name.clone();
        self.program = Program::start(&self.entrance, name, session, self.trace.clone());
        self.wake_at = now + self.random.below(RETRY_NS);
    }

    /// Looks at what was answered.
    pub fn observe(&mut self, now: u64, model: &mut Model) -> Result<(), Violation> {
        while let Some((event, future)) = self.outstanding.front() {
            let Some(result) = future.try_get() else {
                break;
            };
            let event = *event;
            self.outstanding.pop_front();
            match result {
                Ok(id) => {
                    let name = &self.program.name;
                    self.trace.say(now, || {
                        format!("{name}: event {event} is acknowledged as {id}")
                    });
                    model.acked(event, id)?;
                }
                Err(error) => return self.failed(now, &error),
            }
        }
        if self.program.ended {
            self.restart(now);
            return Ok(());
        }
        if let Stage::Open(producer) = &self.stage {
            self.looks.observe(&self.program.name, producer.topic())?;
        }
        self.advance(now, model)
    }

    /// The producer has failed: whatever is unanswered has an unknown fate.
    fn failed(&mut self, now: u64, error: &ClientError) -> Result<(), Violation> {
        let name = &self.program.name;
        self.trace
            .say(now, || format!("{name}: has failed: {error}"));
        let is_legitimate = match error.code() {
            Some(ErrorCode::ProducerFenced) => self.may_be_fenced,
            Some(ErrorCode::StorageFailed) => self.plan.disk_fails,
            Some(ErrorCode::NotLeader) => self.plan.may_lack_leader && error.is_retryable(),
            // A timeout that says why: a topic that blocks was full all the while. What is
            // refused for good is another matter.
            Some(ErrorCode::StorageFull) => error.is_retryable(),
            Some(_) => false,
            None => matches!(
                error,
                ClientError::Timeout { .. } | ClientError::Closed | ClientError::Unreachable { .. }
            ),
        };
        if !is_legitimate || self.plan.is_calm {
            return Violation::because(format!("{name} fails for no good reason: {error}"));
        }
        if error.code() == Some(ErrorCode::ProducerFenced) {
            // Its successor goes on in its place.
            self.left = 0;
        }
        self.restart(now);
        Ok(())
    }

    fn advance(&mut self, now: u64, model: &mut Model) -> Result<(), Violation> {
        let driver = self.program.driver.clone();
        match &mut self.stage {
            Stage::Making(pending) => match pending.try_get() {
                Some(Ok(topic)) => self.open(&topic, model),
                Some(Err(error)) => {
                    let name = &self.program.name;
                    self.trace
                        .say(now, || format!("{name}: making the topic: {error}"));
                    self.stage = Stage::Finding(driver.begin_open_topic(&self.plan.topic));
                    self.program.wake();
                }
                None => {}
            },
            Stage::Finding(pending) => match pending.try_get() {
                Some(Ok(topic)) => self.open(&topic, model),
                Some(Err(error)) => {
                    let name = &self.program.name;
                    self.trace
                        .say(now, || format!("{name}: finding the topic: {error}"));
                    self.stage = Stage::Begin;
                    self.wake_at = now + RETRY_NS;
                }
                None => {}
            },
            Stage::Opening(pending) => match pending.try_get() {
                Some(Ok(producer)) => {
                    let epoch = producer.epoch().map_or(0, |epoch| epoch.0);
                    self.life =
                        model.begin_life(self.plan.options.name.clone(), epoch, self.fences);
                    let name = &self.program.name;
                    self.trace
                        .say(now, || format!("{name}: has a producer of epoch {epoch}"));
                    self.stage = Stage::Open(producer);
                    // A successor takes its time, while its predecessor goes on.
                    let pause = if self.may_be_fenced { RETRY_NS * 2 } else { 1 };
                    self.wake_at = now + self.random.below(pause);
                }
                Some(Err(error)) => return self.failed(now, &error),
                None => {}
            },
            Stage::Begin | Stage::Open(_) => {}
        }
        Ok(())
    }

    fn open(&mut self, topic: &TopicHandle, model: &Model) {
        let is_spread = topic.definition().spread().is_some();
        self.fences = is_spread.then(|| model.life_count());
        self.stage = Stage::Opening(topic.begin_producer(self.plan.options.clone()));
        self.program.wake();
    }

    /// Does something by itself.
    pub fn act(
        &mut self,
        now: u64,
        model: &mut Model,
        topic: (&Definition, &[PartitionStorage]),
    ) -> Result<(), Violation> {
        self.wake_at = now + self.random.within(self.plan.pause_ns.clone());
        let producer = match &self.stage {
            Stage::Begin => {
                let made =
                    self.program
                        .driver
                        .begin_create_topic(&self.plan.topic, topic.0, topic.1);
                self.stage = Stage::Making(made);
                self.program.wake();
                return Ok(());
            }
            Stage::Open(producer) => producer,
            Stage::Making(_) | Stage::Finding(_) | Stage::Opening(_) => return Ok(()),
        };
        self.program.wake();
        if self.looks.act(&self.program.name, producer.topic())? {
            return Ok(());
        }
        if self.left == 0 {
            // What gathers is sent; the futures tell the rest.
            drop(producer.flush_future());
            self.wake_at = now + RETRY_NS;
            return Ok(());
        }
        let mut partitions = model.partitions.len() as u64;
        if self.plan.looks_one_in > 0 {
            // Those that were added are there for who knows of them.
            partitions = partitions.min(producer.topic().partitions().len() as u64);
        }
        for _ in 0..self.random.within(1..8).min(self.left) {
            let partition = self.random.below(partitions) as u32;
            let metadata_bytes = self.random.within(8..200) as usize;
            let data_bytes = match self.random.below(4) {
                0 => 0,
                1 => self.random.below(200),
                2 => self.random.below(self.plan.data_bytes_max.min(5_000)),
                _ => self.random.below(self.plan.data_bytes_max),
            } as usize;
            let sizes = (metadata_bytes, data_bytes);
            let level = self.plan.options.durability;
            let key = match self.plan.keys {
                0 => None,
                keys => self.random.below(keys + 1).checked_sub(1),
            };
            let to = (partition, key);
            let (event, metadata, data) = model.draft(self.life, to, sizes, level);
            let key = key.map(key_of);
            let mut push = Event {
                partition: Some(partition),
                key: key.as_deref(),
                ..Event::new(&metadata)
            };
            // One buffer or several, it is the same data.
            let cut = self.random.below(data.len() as u64 + 1) as usize;
            if !data.is_empty() {
                push.data = match self.random.one_in(3) {
                    true => vec![data.slice(..cut), data.slice(cut..)],
                    false => vec![data],
                };
            }
            match producer.push(push) {
                Ok(future) => {
                    let event = model.pushed(event);
                    let name = &self.program.name;
                    self.trace.say(now, || {
                        format!("{name}: pushes event {event} to {partition}, data {data_bytes}")
                    });
                    self.outstanding.push_back((event, future));
                    self.left -= 1;
                    let unanswered = self.outstanding.iter();
                    let unanswered = unanswered.filter(|(_, future)| future.try_get().is_none());
                    let sizes = unanswered.map(|(event, _)| model.events[*event].bytes());
                    let (count, held) = sizes.fold((0, 0), |(n, sum), bytes| (n + 1, sum + bytes));
                    let limit = self.plan.options.budget_bytes;
                    let held = held.max(producer.held_bytes());
                    if held > limit && count > 1 {
                        return Violation::because(format!(
                            "{name} holds {held} bytes, its budget is {limit}"
                        ));
                    }
                }
                Err(ClientError::Budget(_)) => break,
                Err(error) => {
                    // Futures tell why, if there are any.
                    if self.outstanding.is_empty() {
                        return self.failed(now, &error);
                    }
                    break;
                }
            }
        }
        if self.random.one_in(4) {
            drop(producer.flush_future());
        }
        Ok(())
    }
}
