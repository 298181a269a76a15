//! The core against a scripted server, in one thread, under a virtual clock.

use crate::world;

use client::*;
use std::time::Duration;
use world::World;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn an_event_goes_through_and_comes_back() {
    let mut world = World::new();
    let topic = world.topic(1);
    let producer = topic.begin_producer(ProducerOptions::default());
    let producer = world.wait(producer).unwrap();
    let future = producer.push_metadata(b"hello").unwrap();
    assert!(future.try_get().is_none());
    assert!(world.run_until(SECOND, |_| future.try_get().is_some()));
    let id = future.try_get().unwrap().unwrap();
    assert_eq!(id.to_string(), "0/0@1");
    let consumer = topic.begin_consumer("reader", ConsumerOptions::default());
    let consumer = world.wait(consumer).unwrap();
    let mut event = None;
    world.run_until(SECOND, |_| {
        event = consumer.pull(Some(Duration::ZERO)).unwrap();
        event.is_some()
    });
    let event = event.unwrap();
    assert_eq!((event.metadata(), event.id()), (&b"hello"[..], id));
    consumer.acknowledge(id).unwrap();
    let flush = consumer.begin_flush_acknowledgements(SECOND);
    world.wait(flush).unwrap();
    let cursor = world.server.topics["events"].cursors[&("reader".into(), 0)];
    assert_eq!(cursor.offset.0, 1);
}
