//! What clients of these tests do.

use client::{
    ConsumerOptions, Definition, Driver, Event, PartitionStorage, ProducerOptions, Start,
    TopicHandle,
};
use std::time::Duration;

/// A hang is noticed after this long; nothing is expected to be fast.
pub const WATCHDOG: Duration = Duration::from_secs(60);

pub fn disk() -> [PartitionStorage; 1] {
    [PartitionStorage {
        kind: "disk".to_owned(),
        config: String::new(),
    }]
}

pub fn create(driver: &Driver, name: &str) -> TopicHandle {
    driver
        .create_topic(name, &Definition::default(), &disk())
        .unwrap()
}

pub fn push(topic: &TopicHandle, texts: &[&str]) {
    let producer = topic.producer(ProducerOptions::default()).unwrap();
    for text in texts {
        producer.push(Event::new(text.as_bytes())).unwrap();
    }
    producer.flush(WATCHDOG).unwrap();
    producer.close(WATCHDOG).unwrap();
}

/// All that a topic has, by a new consumer.
pub fn read(topic: &TopicHandle) -> Vec<String> {
    let options = ConsumerOptions {
        start: Start::Beginning.into(),
        ..ConsumerOptions::default()
    };
    let consumer = topic.consumer("reader", options).unwrap();
    let end = topic.driver_end();
    (0..end)
        .map(|_| {
            let event = consumer.pull(Some(WATCHDOG)).unwrap().unwrap();
            String::from_utf8(event.metadata().to_vec()).unwrap()
        })
        .collect()
}

/// How many events a topic has.
pub trait Ends {
    fn driver_end(&self) -> u64;
}

impl Ends for TopicHandle {
    fn driver_end(&self) -> u64 {
        let described = self.driver().describe_topic(self.name()).unwrap();
        described.partitions[0].watermarks.end.0
    }
}

pub fn names(driver: &Driver) -> Vec<String> {
    let topics = driver.list_topics().unwrap();
    topics.into_iter().map(|topic| topic.name).collect()
}
