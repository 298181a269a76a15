//! What tests against the real server have in common: one in a directory of its
//! own, a driver, events that are numbered.

use client::*;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Against hangs only.
pub const WATCHDOG: Duration = Duration::from_secs(60);

pub fn start(directory: &Path) -> server::Server {
    let config = server::Config {
        directory: directory.join("data"),
        group_file: Some(directory.join("group.json")),
        ..server::Config::default()
    };
    server::Server::start(config, Arc::new(|_: &str| {})).unwrap()
}

pub fn connect(directory: &Path) -> Driver {
    let endpoint = Endpoint::GroupFile(directory.join("group.json"));
    Driver::connect(endpoint, DriverOptions::default()).unwrap()
}

pub fn push(topic: &TopicHandle, range: std::ops::Range<u64>) {
    let producer = topic.producer(ProducerOptions::default()).unwrap();
    for index in range {
        producer.push_metadata(&index.to_le_bytes()).unwrap();
    }
    producer.flush(WATCHDOG).unwrap();
}

pub fn number(event: &ConsumedEvent) -> u64 {
    u64::from_le_bytes(event.metadata().try_into().unwrap())
}
