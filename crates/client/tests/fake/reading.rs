//! What tests of consumers do: store numbered events, and read them.

#![allow(dead_code)]

use super::world::World;
use bytes::Bytes;
use client::*;
use std::time::Duration;

pub const SECOND: Duration = Duration::from_secs(1);
pub const MINUTE: Duration = Duration::from_secs(60);
pub const P0: PartitionIndex = PartitionIndex(0);

/// Stores `count` events in batches of `batch`, with `data` bytes each.
pub fn fill(
    world: &mut World,
    topic: &TopicHandle,
    range: std::ops::Range<usize>,
    batch: u32,
    data: usize,
) {
    let options = ProducerOptions {
        batch: BatchPolicy {
            count_max: Some(batch),
            linger: Linger::UntilFull,
            ..BatchPolicy::default()
        },
        ..ProducerOptions::default()
    };
    let pending = topic.begin_producer(options);
    let producer = world.wait(pending).unwrap();
    for index in range {
        let text = index.to_string();
        let mut event = Event::new(text.as_bytes());
        if data > 0 {
            event.data = vec![Bytes::from(vec![index as u8; data])];
        }
        producer.push(event).unwrap();
    }
    let flush = producer.flush_future();
    assert!(world.run_until(MINUTE, |_| flush.try_get().is_some()));
    flush.try_get().unwrap().unwrap();
}

pub fn open(world: &mut World, topic: &TopicHandle, options: ConsumerOptions) -> Consumer {
    let pending = topic.begin_consumer("reader", options);
    world.wait(pending).unwrap()
}

pub fn pull(world: &mut World, consumer: &Consumer) -> Result<Option<ConsumedEvent>, ClientError> {
    let mut outcome = Ok(None);
    let patience = Patience::within(None);
    world.run_until(MINUTE, |_| {
        outcome = match consumer.pull_look(1, &patience, Duration::ZERO) {
            Ok(Pulled::Events(mut events)) => Ok(events.pop()),
            Ok(Pulled::Nothing | Pulled::NotYet) => Ok(None),
            Err(error) => Err(error),
        };
        !matches!(outcome, Ok(None))
    });
    outcome
}

pub fn pull_all(world: &mut World, consumer: &Consumer, count: usize) -> Vec<usize> {
    let mut numbers = Vec::new();
    while numbers.len() < count {
        let event = pull(world, consumer).unwrap().expect("an event");
        numbers.push(number(&event));
    }
    numbers
}

pub fn number(event: &ConsumedEvent) -> usize {
    std::str::from_utf8(event.metadata())
        .unwrap()
        .parse()
        .unwrap()
}

pub fn at(incarnation: u64, offset: u64) -> Position {
    Position {
        incarnation: Incarnation(incarnation),
        offset: Offset(offset),
    }
}
