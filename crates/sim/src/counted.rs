//! One producer and one consumer in calm weather, with the frames counted
//! that the consumer's program sends.

use crate::machine::{Machine, MachinePlan};
use crate::model::data_of;
use crate::plan::TOPIC;
use crate::program::Program;
use crate::random::Random;
use crate::trace::Trace;
use broker::Limits;
use bytes::Bytes;
use client::{BatchPolicy, Consumer, ConsumerOptions, Event, Linger, PartitionStorage, Producer};
use client::{Pending, ProducerOptions, PushFuture, TopicHandle};
use net::testing::counted::{Counters, Direction};
use net::testing::sim::{SimFaults, SimNet};
use std::time::Duration;
use topic::Definition;
use wire::Durability;
use wire::frame::FrameKind;

pub(crate) const SECOND: u64 = 1_000_000_000;

/// What is consumed, and how.
#[derive(Debug, Clone)]
pub struct Consuming {
    /// Batches, of one event each.
    pub batches: u64,
    /// Bytes of each.
    pub bytes: usize,
    /// Space for batches that wait at the consumer.
    pub credit_bytes: u64,
    /// Silence after which a sign of life is asked for.
    pub heartbeat: Duration,
}

impl Default for Consuming {
    fn default() -> Self {
        Self {
            batches: 400,
            bytes: 1000,
            credit_bytes: 64 << 10,
            heartbeat: Duration::from_secs(4),
        }
    }
}

/// What was counted.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counted {
    /// Batches that were consumed.
    pub batches: u64,
    /// Frames that the consumer's program sent meanwhile.
    pub frames_while_consuming: u64,
    /// Heartbeats that it sent while there was nothing to consume.
    pub heartbeats_while_idle: u64,
    /// Frames that it sent in the second after one of them.
    pub frames_after_heartbeat: u64,
}

pub(crate) struct Rig {
    net: SimNet,
    pub(crate) machine: Machine,
    pub(crate) producer: Program,
    pub(crate) consumer: Program,
    pub(crate) now: u64,
    /// Bytes that were copied while the server had its turns, and the clients.
    copied: [u64; 2],
    /// Allocations likewise, where they are counted.
    pub(crate) allocated: [u64; 2],
}

/// What this process has made so far.
struct Made {
    copied: u64,
    allocations: u64,
}

impl Made {
    fn now() -> Self {
        Self {
            copied: memory::copies::bytes(),
            allocations: memory::testing::allocations().0,
        }
    }
}

impl Rig {
    /// With the frames of the consumer's program counted.
    fn new(counters: Counters, heartbeat: Duration) -> Self {
        Self::with([Counters::default(), counters], heartbeat)
    }

    /// With the frames of both programs counted together.
    pub(crate) fn counting_both(counters: Counters, heartbeat: Duration) -> Self {
        Self::with([counters.clone(), counters], heartbeat)
    }

    fn with([producing, consuming]: [Counters; 2], heartbeat: Duration) -> Self {
        let net = SimNet::new(1, SimFaults::none());
        let plan = MachinePlan {
            limits: Limits {
                heartbeat,
                ..Limits::default()
            },
            internal_config: String::new(),
            sync_ns: 100_000..200_000,
            operation_ns: 1..2,
            inline_one_in: 1,
            turn_ends_one_in: 0,
            fault: None,
            planted: None,
        };
        let mut machine = Machine::new(&net, plan, Random::new(1), Trace::default());
        assert!(machine.start(0), "an empty disk lets a server start");
        let program = |name: &str, session, counters: Counters| {
            Program::counted(&net, name.to_owned(), session, Trace::default(), counters)
        };
        Self {
            producer: program("producer", 1, producing),
            consumer: program("consumer", 2, consuming),
            net,
            machine,
            now: 0,
            copied: [0; 2],
            allocated: [0; 2],
        }
    }

    /// Lets everybody do what there is to do now.
    pub(crate) fn settle(&mut self) {
        loop {
            let before = Made::now();
            let mut moved = self.machine.turn(self.now).expect("nothing is wrong here");
            let between = Made::now();
            moved |= self.producer.turn(self.now);
            moved |= self.consumer.turn(self.now);
            let after = Made::now();
            for (side, (from, to)) in [(&before, &between), (&between, &after)]
                .into_iter()
                .enumerate()
            {
                self.copied[side] += to.copied - from.copied;
                self.allocated[side] += to.allocations - from.allocations;
            }
            if !moved {
                return;
            }
        }
    }

    /// Lets the next thing happen; false when `until` has come.
    pub(crate) fn step(&mut self, until: u64) -> bool {
        self.settle();
        let programs = [self.producer.next_event(), self.consumer.next_event()];
        let others = [self.net.next_event(), self.machine.next_event(self.now)];
        let next = programs.into_iter().chain(others).flatten().min();
        let next = next.unwrap_or(until).max(self.now);
        self.now = next.min(until);
        self.net.advance(self.now);
        next < until
    }

    pub(crate) fn wait<T>(&mut self, mut pending: Pending<T>) -> T {
        loop {
            if let Some(result) = pending.try_get() {
                return result.expect("in calm weather every call succeeds");
            }
            self.producer.wake();
            self.consumer.wake();
            assert!(self.step(self.now + 60 * SECOND), "a call has no end");
        }
    }
}

impl Consuming {
    /// Produces, consumes and counts.
    ///
    /// # Panics
    /// If anything fails: the weather is calm.
    pub fn run(&self) -> Counted {
        let counters = Counters::default();
        let mut rig = Rig::new(counters.clone(), self.heartbeat);
        let topic = make_topic(&mut rig);
        let futures = self.produce(&mut rig, &topic);
        let driver = rig.consumer.driver.clone();
        let found = driver.begin_open_topic(TOPIC);
        let topic = rig.wait(found);
        let options = ConsumerOptions {
            credit_bytes: self.credit_bytes,
            ..ConsumerOptions::default()
        };
        let consumer = rig.wait(topic.begin_consumer("consumer", options));
        counters.reset();
        let consumed = self.consume(&mut rig, &consumer);
        assert_eq!(consumed as usize, futures.len());
        let mut counted = Counted {
            batches: consumed,
            frames_while_consuming: counters.all(Direction::Sent).frames,
            ..Counted::default()
        };
        self.idle(&mut rig, &counters, &mut counted);
        counted
    }

    fn produce(&self, rig: &mut Rig, topic: &TopicHandle) -> Vec<PushFuture> {
        let options = ProducerOptions {
            batch: BatchPolicy {
                count_max: Some(1),
                linger: Linger::UntilFull,
                ..BatchPolicy::default()
            },
            ..ProducerOptions::default()
        };
        let producer: Producer = rig.wait(topic.begin_producer(options));
        let metadata = vec![b'x'; self.bytes];
        let futures: Vec<PushFuture> = (0..self.batches)
            .map(|_| producer.push_metadata(&metadata).expect("there is space"))
            .collect();
        while futures.iter().any(|future| future.try_get().is_none()) {
            rig.producer.wake();
            assert!(rig.step(rig.now + 60 * SECOND), "an ack does not come");
        }
        futures
    }

    fn consume(&self, rig: &mut Rig, consumer: &Consumer) -> u64 {
        let mut consumed = 0;
        let deadline = rig.now + 60 * SECOND;
        while consumed < self.batches {
            while let Some(event) = consumer.pull(Some(Duration::ZERO)).expect("no failure") {
                consumed += 1;
                consumer.acknowledge(event.id()).expect("it is read");
                rig.consumer.wake();
            }
            assert!(rig.step(deadline), "only {consumed} batches came");
        }
        consumed
    }

    fn idle(&self, rig: &mut Rig, counters: &Counters, counted: &mut Counted) {
        // What is left of acknowledging.
        let quiet = rig.now + 2 * SECOND;
        while rig.step(quiet) {}
        counters.reset();
        let until = rig.now + 4 * self.heartbeat.as_nanos() as u64;
        let heartbeats = |counters: &Counters| {
            let sent = counters.of(Direction::Sent, FrameKind::Heartbeat);
            sent.frames
        };
        // Now and then it asks what has become of the topic, which is no heartbeat.
        while heartbeats(counters) == 0 {
            if !rig.step(until) {
                return;
            }
        }
        counted.heartbeats_while_idle = heartbeats(counters);
        let before = counters.all(Direction::Sent).frames;
        let second = rig.now + SECOND;
        while rig.step(second) {}
        counted.frames_after_heartbeat = counters.all(Direction::Sent).frames - before;
    }
}

pub(crate) fn make_topic(rig: &mut Rig) -> TopicHandle {
    let definition = Definition::builder().durability(Durability::Written);
    let definition = definition.build().expect("a good definition");
    let storage = PartitionStorage {
        kind: "disk".to_owned(),
        config: String::new(),
    };
    let driver = rig.producer.driver.clone();
    let made = driver.begin_create_topic(TOPIC, &definition, &[storage]);
    rig.wait(made)
}

/// Large data that goes through: in, and out again.
#[derive(Debug, Clone)]
pub struct Moving {
    /// How many events.
    pub events: u64,
    /// Bytes of data of each.
    pub bytes: usize,
}

impl Default for Moving {
    fn default() -> Self {
        Self {
            events: 8,
            bytes: 2 << 20,
        }
    }
}

/// Bytes that were copied from buffer to buffer on the way of data.
#[derive(Debug, Clone, Copy, Default)]
pub struct Copied {
    /// Bytes of data that went in, and came out again.
    pub data_bytes: u64,
    /// Copied by the server while it came in.
    pub server_in: u64,
    /// Copied by the clients meanwhile.
    pub client_in: u64,
    /// Copied by the server while it went out.
    pub server_out: u64,
    /// Copied by the clients meanwhile.
    pub client_out: u64,
    /// Chunks in which data travelled, one way.
    pub chunks: u64,
}

impl Moving {
    /// Moves the data and counts. Nothing else in the process may copy.
    ///
    /// # Panics
    /// If anything fails: the weather is calm.
    pub fn run(&self) -> Copied {
        let mut rig = Rig::new(Counters::default(), Duration::from_secs(10));
        let topic = make_topic(&mut rig);
        let producer = rig.wait(topic.begin_producer(ProducerOptions::default()));
        rig.copied = [0; 2];
        let data = Bytes::from(data_of(7, self.bytes));
        let push = |_| {
            let event = Event::new(b"large").with_data(data.clone());
            producer.push(event).expect("there is space")
        };
        let futures: Vec<PushFuture> = (0..self.events).map(push).collect();
        drop(producer.flush_future());
        while futures.iter().any(|future| future.try_get().is_none()) {
            rig.producer.wake();
            assert!(rig.step(rig.now + 60 * SECOND), "an ack does not come");
        }
        let [server_in, client_in] = std::mem::take(&mut rig.copied);
        let driver = rig.consumer.driver.clone();
        let found = driver.begin_open_topic(TOPIC);
        let topic = rig.wait(found);
        let consumer = rig.wait(topic.begin_consumer("consumer", ConsumerOptions::default()));
        let mut consumed = 0;
        let deadline = rig.now + 60 * SECOND;
        while consumed < self.events {
            let before = memory::copies::bytes();
            while let Some(mut event) = consumer.pull(Some(Duration::ZERO)).expect("no failure") {
                consumed += 1;
                assert!(event.take_data() == data, "the data is what was pushed");
            }
            rig.copied[1] += memory::copies::bytes() - before;
            rig.consumer.wake();
            assert!(rig.step(deadline), "only {consumed} events came");
        }
        let [server_out, client_out] = rig.copied;
        let chunk = wire::frame::BULK_CHUNK_BYTES as u64;
        Copied {
            data_bytes: self.events * self.bytes as u64,
            server_in,
            client_in,
            server_out,
            client_out,
            chunks: self.events * (self.bytes as u64).div_ceil(chunk),
        }
    }
}
