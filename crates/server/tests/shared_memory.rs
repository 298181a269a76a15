//! A server and its clients over shared memory and the socket beneath it.

use client::{
    ConsumerOptions, Definition, Driver, DriverOptions, Durability, Endpoint, Event, EventDataRef,
    PartitionStorage, ProducerOptions, Start,
};
use fabric::{Shm, ShmOptions};
use server::{Config, Server};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A hang is noticed after this long; nothing is expected to be fast.
const WATCHDOG: Duration = Duration::from_secs(60);

type Lines = Arc<Mutex<Vec<String>>>;

fn start(directory: &Path, no_shared_memory: bool) -> Server {
    let config = Config {
        directory: directory.join("data"),
        group_file: None,
        no_shared_memory,
        ..Config::default()
    };
    Server::start(config, Arc::new(|_: &str| {})).unwrap()
}

fn connect(address: &str) -> (Driver, Lines) {
    let lines = Lines::default();
    let kept = lines.clone();
    let shm = Shm::new(ShmOptions {
        report: Arc::new(move |line| kept.lock().unwrap().push(line.to_owned())),
        ..ShmOptions::default()
    });
    let options = DriverOptions::default();
    let transports = (*options.transports).clone().with(shm);
    let options = DriverOptions {
        transports: Arc::new(transports),
        ..options
    };
    let driver = Driver::connect(Endpoint::address(address), options).unwrap();
    (driver, lines)
}

/// Small and large events, written through one driver and read through the other.
fn exchange(producing: &Driver, consuming: &Driver, name: &str) {
    let storage = PartitionStorage {
        kind: "memory".to_owned(),
        config: String::new(),
    };
    let definition = Definition::builder()
        .durability(Durability::Memory)
        .build()
        .unwrap();
    let topic = producing
        .create_topic(name, &definition, &[storage])
        .unwrap();
    let producer = topic.producer(ProducerOptions::default()).unwrap();
    let data = |index: usize| -> Vec<u8> {
        let bytes = [0, 1, 100, 70_000, 3_000_000][index % 5];
        (0..bytes).map(|at| (at * 31 + index) as u8).collect()
    };
    const COUNT: usize = 60;
    for index in 0..COUNT {
        let metadata = index.to_string();
        let mut buffer = producing.alloc_buffer(data(index).len());
        buffer.copy_from_slice(&data(index));
        // Every other one in ordinary memory.
        let data = match index % 2 {
            0 => buffer.freeze(),
            _ => data(index).into(),
        };
        let event = Event::new(metadata.as_bytes()).with_data(data);
        producer.push(event).unwrap();
    }
    producer.close(WATCHDOG).unwrap();
    let options = ConsumerOptions {
        start: Start::Beginning.into(),
        ..ConsumerOptions::default()
    };
    let topic = consuming.open_topic(name).unwrap();
    let consumer = topic.consumer("reader", options).unwrap();
    for index in 0..COUNT {
        let event = consumer.pull(Some(WATCHDOG)).unwrap().expect("it comes");
        assert_eq!(event.metadata(), index.to_string().as_bytes());
        let bytes = match event.data() {
            EventDataRef::Inline(bytes) => bytes,
            EventDataRef::None => Default::default(),
            EventDataRef::Allocated(target) => panic!("nobody gave {target:?}"),
        };
        assert!(bytes[..] == data(index)[..], "{index}");
    }
}

#[test]
fn clients_of_the_socket_and_of_shared_memory_share_one_server() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path(), false);
    let [socket, memory] = server.endpoints() else {
        panic!("{:?}", server.endpoints());
    };
    assert!(socket.starts_with("unix://") && memory.starts_with("shm://"));
    let (plain, _) = connect(socket);
    let (shared, lines) = connect(memory);
    exchange(&plain, &shared, "out-by-memory");
    exchange(&shared, &plain, "in-by-memory");
    exchange(&shared, &shared, "both");
    assert!(lines.lock().unwrap().is_empty(), "{lines:?}");
    drop((plain, shared));
    server.drain(WATCHDOG).unwrap();
}

#[test]
fn without_shared_memory_there_is_no_address_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path(), true);
    let [socket] = server.endpoints() else {
        panic!("{:?}", server.endpoints());
    };
    let (plain, _) = connect(socket);
    exchange(&plain, &plain, "plain");
    server.drain(WATCHDOG).unwrap();
}
