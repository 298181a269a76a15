//! What a request and its reply cost, in counts that do not jitter: one at a
//! time, in one thread, on the virtual clock.

use crate::costs::{Cost, Mark};
use crate::counted::{Rig, SECOND, make_topic};
use crate::plan::TOPIC;
use client::{
    Data, Event, QueueConsumer, QueueConsumerOptions, QueueOptions, Requester, RequesterOptions,
};
use net::testing::counted::Counters;
use std::time::Duration;

/// Requests to one worker, each after the reply to the one before.
#[derive(Debug, Clone)]
pub struct Asking {
    /// How many.
    pub requests: u64,
    /// Bytes of metadata of a request, and of its reply.
    pub metadata_bytes: usize,
}

/// Until the first ones are over, which make what the others use.
const WARMUP: u64 = 20;

impl Asking {
    /// Asks, and tells what it cost. Allocations are counted only where the
    /// counting allocator is installed.
    ///
    /// # Panics
    /// If anything fails: the weather is calm.
    pub fn run(&self) -> Cost {
        let counters = Counters::default();
        let (mut rig, requester, worker) = self.begin(&counters, QueueOptions::default());
        let mark = Mark::set(&mut rig, &counters);
        let mut cost = Cost::default();
        for _ in 0..self.requests {
            cost.calls_allocations += self.ask(&mut rig, &requester, &worker);
        }
        mark.read(&rig, &counters, &mut cost);
        cost
    }

    /// How long it takes by the virtual clock, where only the network and the
    /// disk's syncs take time. All requests have the same key.
    ///
    /// # Panics
    /// If anything fails: the weather is calm.
    pub fn takes(&self, queue: QueueOptions) -> Duration {
        let counters = Counters::default();
        let (mut rig, requester, worker) = self.begin(&counters, queue);
        let begin = rig.now;
        for _ in 0..self.requests {
            self.ask(&mut rig, &requester, &worker);
        }
        Duration::from_nanos(rig.now - begin)
    }

    fn begin(&self, counters: &Counters, queue: QueueOptions) -> (Rig, Requester, QueueConsumer) {
        let mut rig = Rig::counting_both(counters.clone(), Duration::from_secs(10));
        let topic = make_topic(&mut rig);
        let requester = rig.wait(topic.begin_requester(RequesterOptions::default()));
        let driver = rig.consumer.driver.clone();
        let topic = rig.wait(driver.begin_open_topic(TOPIC));
        let options = QueueConsumerOptions {
            queue,
            ..QueueConsumerOptions::default()
        };
        let worker = rig.wait(topic.begin_queue("workers", options));
        for _ in 0..WARMUP {
            self.ask(&mut rig, &requester, &worker);
        }
        (rig, requester, worker)
    }

    /// One round trip. Returns what the calls of both programs allocated.
    fn ask(&self, rig: &mut Rig, requester: &Requester, worker: &QueueConsumer) -> u64 {
        let metadata = vec![b'x'; self.metadata_bytes];
        let deadline = rig.now + 60 * SECOND;
        let mut calls = 0;
        let mut counted = Counting::begin();
        let request = Event {
            key: Some(b"key"),
            ..Event::new(&metadata)
        };
        let mut answer = requester
            .request(request, Duration::from_secs(50))
            .expect("there is space");
        calls += counted.end();
        rig.producer.wake();
        let mut replying = None;
        loop {
            assert!(rig.step(deadline), "a request is not answered");
            // What has arrived is seen before the clock goes on.
            rig.settle();
            counted = Counting::begin();
            if let Some(reply) = answer.try_get() {
                let reply = reply.expect("it is answered in time");
                assert_eq!(reply.metadata().len(), self.metadata_bytes);
                return calls + counted.end();
            }
            calls += counted.end();
            counted = Counting::begin();
            let nothing = Some(Duration::ZERO);
            if replying.is_none()
                && let Some(event) = worker.pull(nothing).expect("no failure")
            {
                // The first reply waits for its producer.
                if event.begin_replying().is_none() {
                    let reply = event.try_reply(&metadata, Data::default());
                    replying = Some(reply.expect("there is space"));
                    rig.consumer.wake();
                } else {
                    drop(event);
                    rig.consumer.wake();
                }
            }
            calls += counted.end();
        }
    }
}

/// Allocations of calls.
struct Counting(u64);

impl Counting {
    fn begin() -> Self {
        Self(memory::testing::allocations().0)
    }

    fn end(&self) -> u64 {
        memory::testing::allocations().0 - self.0
    }
}
