//! Memory of copies goes back to the system when it lies idle.

mod fake;
#[path = "fake/world.rs"]
mod world;

use client::*;
use std::time::Duration;
use world::World;

const MINUTE: Duration = Duration::from_secs(60);
const DATA_BYTES: usize = 48 << 20;

/// What of this process lies in memory.
fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = status.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[test]
fn memory_of_copies_goes_back_when_it_lies_idle() {
    let mut world = World::new();
    let topic = world.topic(1);
    let pending = topic.begin_producer(ProducerOptions::default());
    let producer = world.wait(pending).unwrap();
    let data = vec![7; DATA_BYTES];
    let before = resident_bytes();
    // What the program may change is copied.
    let push = || {
        let event = Event {
            copied: &[&data],
            ..Event::new(b"{}")
        };
        producer.push(event).unwrap()
    };
    let future = push();
    world.run_until(MINUTE, |_| future.try_get().is_some());
    future.try_get().unwrap().unwrap();
    *world.server.partition("events", 0) = fake::FakePartition::default();
    let copied = resident_bytes().saturating_sub(before);
    assert!(
        copied > DATA_BYTES / 2,
        "{copied} bytes are kept for the next copy"
    );
    // Heartbeats alone.
    world.run_until(MINUTE, |_| false);
    let left = resident_bytes().saturating_sub(before);
    assert!(left < DATA_BYTES / 4, "{left} of {copied} bytes are left");
    let future = push();
    world.run_until(MINUTE, |_| future.try_get().is_some());
    future.try_get().unwrap().unwrap();
}
