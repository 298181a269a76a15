//! What events cost, in counts that do not jitter: allocations, copies of
//! data, frames and disk operations, of produce and of consume. In one thread,
//! on the virtual clock, so that every run counts the same.

use crate::counted::{Rig, SECOND, make_topic};
use crate::model::data_of;
use crate::plan::TOPIC;
use bytes::Bytes;
use client::{ConsumerOptions, Event, ProducerOptions, PushFuture};
use net::testing::counted::{Counters, Direction};
use std::time::Duration;

/// Which events are produced, and then consumed.
#[derive(Debug, Clone)]
pub struct Costs {
    /// How many.
    pub events: u64,
    /// Bytes of metadata of each.
    pub metadata_bytes: usize,
    /// Bytes of data of each.
    pub data_bytes: usize,
}

/// What they cost, one way.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cost {
    /// Allocations by the calls of the caller: pushes, pulls.
    pub calls_allocations: u64,
    /// Allocations by the clients' runtimes.
    pub client_allocations: u64,
    /// Allocations by the server.
    pub server_allocations: u64,
    /// Bytes of data copied by anybody.
    pub copied_bytes: u64,
    /// Frames that the clients sent and received.
    pub frames: u64,
    /// Operations of the server's disk.
    pub disk_operations: u64,
    /// Bytes that they wrote or read.
    pub disk_bytes: u64,
}

impl Costs {
    /// Produces and consumes; tells what each cost. Allocations are counted
    /// only where the counting allocator is installed. Nothing else in the
    /// process may copy data meanwhile.
    ///
    /// # Panics
    /// If anything fails: the weather is calm.
    pub fn run(&self) -> [Cost; 2] {
        let counters = Counters::default();
        let mut rig = Rig::counting_both(counters.clone(), Duration::from_secs(10));
        let topic = make_topic(&mut rig);
        let producer = rig.wait(topic.begin_producer(ProducerOptions::default()));

        let mark = Mark::set(&mut rig, &counters);
        let metadata = vec![b'x'; self.metadata_bytes];
        let data = Bytes::from(data_of(7, self.data_bytes));
        let mut cost = Cost::default();
        let before = memory::testing::allocations().0;
        let mut last: Option<PushFuture> = None;
        for _ in 0..self.events {
            let pushed = match data.is_empty() {
                true => producer.push_metadata(&metadata),
                false => producer.push(Event::new(&metadata).with_data(data.clone())),
            };
            last = Some(pushed.expect("there is space"));
        }
        cost.calls_allocations = memory::testing::allocations().0 - before;
        drop(producer.flush_future());
        let last = last.expect("there are events");
        while last.try_get().is_none() {
            rig.producer.wake();
            assert!(rig.step(rig.now + 60 * SECOND), "an ack does not come");
        }
        mark.read(&rig, &counters, &mut cost);
        let produced = cost;

        let driver = rig.consumer.driver.clone();
        let topic = rig.wait(driver.begin_open_topic(TOPIC));
        let mark = Mark::set(&mut rig, &counters);
        let mut cost = Cost::default();
        let consumer = rig.wait(topic.begin_consumer("consumer", ConsumerOptions::default()));
        let mut seen = 0;
        let deadline = rig.now + 60 * SECOND;
        while seen < self.events {
            let before = memory::testing::allocations().0;
            let nothing = Some(Duration::ZERO);
            let events = consumer.pull_batch(1000, nothing).expect("no failure");
            let mut bytes = 0;
            for mut event in events {
                seen += 1;
                bytes += event.metadata().len();
                assert_eq!(event.take_data().len(), self.data_bytes);
            }
            cost.calls_allocations += memory::testing::allocations().0 - before;
            if bytes == 0 {
                rig.consumer.wake();
                assert!(rig.step(deadline), "only {seen} events came");
            }
        }
        mark.read(&rig, &counters, &mut cost);
        [produced, cost]
    }
}

/// Bytes of memory that pushes ask for whose data of 20 kB is copied, an event
/// on average, when as many were stored before: of the data itself nothing,
/// for buffers are used again.
///
/// # Panics
/// If anything fails: the weather is calm.
pub fn memory_of_copied_data() -> u64 {
    const EVENTS: u64 = 100;
    let mut rig = Rig::counting_both(Counters::default(), Duration::from_secs(10));
    let topic = make_topic(&mut rig);
    let producer = rig.wait(topic.begin_producer(ProducerOptions {
        copied_bytes_max: u32::MAX,
        ..ProducerOptions::default()
    }));
    let data = Bytes::from(data_of(7, 20_000));
    let mut asked = 0;
    for _ in 0..2 {
        let before = memory::testing::allocations().1;
        let mut last: Option<PushFuture> = None;
        for _ in 0..EVENTS {
            let pushed = producer.push(Event::new(b"{}").with_data(data.clone()));
            last = Some(pushed.expect("there is space"));
        }
        asked = memory::testing::allocations().1 - before;
        drop(producer.flush_future());
        let last = last.expect("there are events");
        while last.try_get().is_none() {
            rig.producer.wake();
            assert!(rig.step(rig.now + 60 * SECOND), "an ack does not come");
        }
    }
    asked / EVENTS
}

/// Where counts stood.
pub(crate) struct Mark {
    copied: u64,
    operations: usize,
}

impl Mark {
    pub(crate) fn set(rig: &mut Rig, counters: &Counters) -> Self {
        counters.reset();
        rig.allocated = [0; 2];
        Self {
            copied: memory::copies::bytes(),
            operations: rig.machine.disk.trace().len(),
        }
    }

    pub(crate) fn read(self, rig: &Rig, counters: &Counters, cost: &mut Cost) {
        [cost.server_allocations, cost.client_allocations] = rig.allocated;
        cost.copied_bytes = memory::copies::bytes() - self.copied;
        let count = |direction| counters.all(direction).frames;
        cost.frames = count(Direction::Sent) + count(Direction::Received);
        let trace = rig.machine.disk.trace();
        let operations = &trace[self.operations..];
        cost.disk_operations = operations.len() as u64;
        // Making space moves no bytes.
        let moving = |what: &str| what.starts_with("write") || what.starts_with("read");
        let moved = operations.iter().filter(|traced| moving(traced.what));
        cost.disk_bytes = moved.map(|traced| traced.bytes).sum();
    }
}
