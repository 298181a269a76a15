//! A kind of storage that a program brings: the example's, with what every
//! storage must do, and behind a server.

#[path = "../examples/own_storage/journaled.rs"]
mod journaled;

use client::{
    ClientError, ConsumerOptions, Definition, Driver, DriverOptions, Endpoint, Event,
    PartitionStorage, ProducerOptions, Start, TopicHandle,
};
use journaled::JournaledKind;
use log::testing::{FaultyDisk, Subject, check_storage};
use log::{Disk, OsDisk};
use server::{Config, Server, ServerError, Storages};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Against hangs only.
const WATCHDOG: Duration = Duration::from_secs(60);

fn check(disk: Arc<dyn Disk>, directory: &Path) {
    check_storage(&Subject {
        kind: &JournaledKind::new(disk.clone()),
        disk: Some(disk),
        directory: directory.to_owned(),
        config: String::new(),
    });
}

#[test]
fn it_is_a_storage_on_the_disk_of_the_operating_system() {
    let directory = tempfile::tempdir().unwrap();
    check(Arc::new(OsDisk::new()), directory.path());
}

#[test]
fn it_is_a_storage_on_the_disk_of_the_tests() {
    check(Arc::new(FaultyDisk::new()), Path::new("/"));
}

fn config(directory: &Path) -> Config {
    Config {
        directory: directory.to_owned(),
        ..Config::default()
    }
}

fn storages() -> Storages {
    Storages::new().with(|disk| Arc::new(JournaledKind::new(disk)))
}

fn start(directory: &Path) -> Server {
    Server::embedded_with(config(directory), storages(), Arc::new(|_: &str| {})).unwrap()
}

fn connect(server: &Server) -> Driver {
    let endpoint = Endpoint::address(server.endpoints()[0].clone());
    Driver::connect(endpoint, DriverOptions::default()).unwrap()
}

fn named(kind: &str) -> PartitionStorage {
    PartitionStorage {
        kind: kind.into(),
        config: String::new(),
    }
}

/// Events with and without large data, from this number on.
fn push(topic: &TopicHandle, numbers: std::ops::Range<u32>) {
    let producer = topic.producer(ProducerOptions::default()).unwrap();
    for number in numbers {
        let text = number.to_string();
        let data = vec![number as u8; (number as usize % 3) * 100_000];
        let event = Event::new(text.as_bytes()).with_data(data);
        producer.push(event).unwrap();
    }
    producer.flush(WATCHDOG).unwrap();
}

fn check_events(topic: &TopicHandle, count: u32) {
    let options = ConsumerOptions {
        start: Start::Beginning.into(),
        ..ConsumerOptions::default()
    };
    let consumer = topic.consumer("reader", options).unwrap();
    for number in 0..count {
        let mut event = consumer.pull(Some(WATCHDOG)).unwrap().expect("an event");
        assert_eq!(event.metadata(), number.to_string().as_bytes());
        let data = vec![number as u8; (number as usize % 3) * 100_000];
        assert!(event.take_data() == data, "data of event {number}");
    }
}

#[test]
fn topics_name_it_and_a_server_that_was_killed_finds_it_again() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path());
    let driver = connect(&server);
    let definition = Definition::default();
    // Beside a partition on disk, in one topic.
    let both = [named("journaled"), named("disk")];
    let topic = driver.create_topic("both", &definition, &both).unwrap();
    push(&topic, 0..10);
    let topic = driver.create_topic("own", &definition, &both[..1]).unwrap();
    let durability = topic.partitions()[0].durability;
    assert_eq!(durability, client::Durability::Synced);
    push(&topic, 0..20);
    server.kill();
    // A write that a crash has torn.
    let mut torn = 0;
    for partition in std::fs::read_dir(directory.path().join("partitions")).unwrap() {
        let journal = partition.unwrap().path().join("journal");
        if let Ok(mut journal) = std::fs::File::options().append(true).open(journal) {
            std::io::Write::write_all(&mut journal, &[7; 100]).unwrap();
            torn += 1;
        }
    }
    assert_eq!(torn, 2);

    let server = start(directory.path());
    let topic = connect(&server).open_topic("own").unwrap();
    push(&topic, 20..40);
    check_events(&topic, 40);
    server.drain(WATCHDOG).unwrap();

    let server = start(directory.path());
    let driver = connect(&server);
    check_events(&driver.open_topic("own").unwrap(), 40);
    driver.delete_topic("own").unwrap();
}

#[test]
fn a_server_without_it_says_so_and_serves_the_rest() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path());
    let driver = connect(&server);
    let definition = Definition::default();
    let own = driver.create_topic("own", &definition, &[named("journaled")]);
    push(&own.unwrap(), 0..3);
    let disk = driver.create_topic("disk", &definition, &[named("disk")]);
    push(&disk.unwrap(), 0..3);
    server.drain(WATCHDOG).unwrap();

    let lines = Arc::new(Mutex::new(Vec::new()));
    let kept = lines.clone();
    let report = Arc::new(move |line: &str| kept.lock().unwrap().push(line.to_owned()));
    let server = Server::embedded(config(directory.path()), report).unwrap();
    let lines = lines.lock().unwrap().join("\n");
    assert!(lines.contains("journaled"), "{lines}");
    let driver = connect(&server);
    check_events(&driver.open_topic("disk").unwrap(), 3);
    let described = driver.describe_topic("own").unwrap();
    let failure = &described.partitions[0].failure;
    assert!(failure.contains("journaled"), "{failure:?}");
    let refused = driver.create_topic("new", &definition, &[named("journaled")]);
    match refused {
        Err(ClientError::Server(reply)) => {
            assert_eq!(reply.code, wire::ErrorCode::InvalidStorage);
            let said = "storage \"journaled\" is not known; disk, memory are";
            assert!(reply.message.contains(said), "{reply}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_name_that_is_taken_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    for storages in [
        storages().with(|disk| Arc::new(JournaledKind::new(disk))),
        Storages::new().with(|_| Arc::new(log::MemoryKind)),
    ] {
        let config = config(directory.path());
        let refused = Server::embedded_with(config, storages, Arc::new(|_: &str| {}));
        assert!(
            matches!(refused, Err(ServerError::StorageName(_))),
            "{refused:?}"
        );
    }
}
