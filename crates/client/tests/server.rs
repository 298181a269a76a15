//! The client against the real server, over every transport, across a
//! restart and a fork.

use bytes::Bytes;
use client::*;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use wire::ErrorCode;

/// Against hangs only.
const WATCHDOG: Duration = Duration::from_secs(60);

fn start(directory: &Path, listen: &[&str]) -> server::Server {
    let config = server::Config {
        directory: directory.join("data"),
        listen: listen.iter().map(|text| text.to_string()).collect(),
        no_unix_socket: !listen.is_empty(),
        group_file: Some(directory.join("group.json")),
        ..server::Config::default()
    };
    server::Server::start(config, Arc::new(|_: &str| {})).unwrap()
}

fn connect(directory: &Path) -> Driver {
    let endpoint = Endpoint::GroupFile(directory.join("group.json"));
    Driver::connect(endpoint, DriverOptions::default()).unwrap()
}

fn disk() -> PartitionStorage {
    PartitionStorage {
        kind: "disk".into(),
        config: String::new(),
    }
}

fn written() -> Definition {
    Definition::builder()
        .validator(topic::ValidatorKind::None)
        .durability(Durability::Written)
        .build()
        .unwrap()
}

/// Pushes and pulls small, inline and large events.
fn exercise(driver: &Driver) {
    let topic = driver
        .create_topic("events", &written(), &[disk(), disk()])
        .unwrap();
    assert!(driver.topic_exists("events").unwrap());
    let producer = topic.producer(ProducerOptions::default()).unwrap();
    let large: Vec<u8> = (0..2_000_000u32).map(|index| (index / 5) as u8).collect();
    let large = Bytes::from(large);
    let sizes = [0, 10, 60_000, 70_000, 2_000_000];
    let mut ids = Vec::new();
    for (index, size) in sizes.iter().enumerate() {
        let text = format!("{{\"index\":{index}}}");
        let event = Event {
            metadata: text.as_bytes(),
            data: vec![large.slice(..size / 3), large.slice(size / 3..*size)],
            key: Some(b"key"),
            headers: &[("kind", b"frame")],
            producer_time: Some(77),
            partition: Some(1),
            ..Event::default()
        };
        ids.push(producer.push(event).unwrap());
    }
    let ids: Vec<EventId> = ids
        .iter()
        .map(|future| future.wait(Some(WATCHDOG)).unwrap())
        .collect();
    let consumer = topic
        .consumer("reader", ConsumerOptions::default())
        .unwrap();
    for (size, id) in sizes.iter().zip(&ids) {
        let mut event = consumer.pull(Some(WATCHDOG)).unwrap().expect("an event");
        assert_eq!(event.id(), *id);
        assert_eq!(event.key(), Some(&b"key"[..]));
        assert_eq!(
            event.headers(),
            [("kind".to_owned(), Bytes::from_static(b"frame"))]
        );
        assert_eq!(event.producer_time(), Some(77));
        assert!(event.append_time() > 0);
        assert_eq!(event.data_bytes_total(), *size as u64);
        assert_eq!(event.take_data(), large.slice(..*size));
        consumer.acknowledge(event.id()).unwrap();
    }
    consumer.flush_acknowledgements(WATCHDOG).unwrap();
    let cursors = driver.cursors(&topic, "reader").unwrap();
    assert_eq!(cursors.len(), 1);
    assert_eq!(cursors[0].position.offset.0, sizes.len() as u64);
    driver.close(WATCHDOG).unwrap();
    assert!(matches!(
        producer.push_metadata(b"x"),
        Err(ClientError::Closed)
    ));
}

#[test]
fn events_go_through_a_unix_socket() {
    let directory = tempfile::tempdir().unwrap();
    let _server = start(directory.path(), &[]);
    exercise(&connect(directory.path()));
}

#[test]
fn events_go_through_tcp() {
    let directory = tempfile::tempdir().unwrap();
    let _server = start(directory.path(), &["tcp://127.0.0.1:0"]);
    exercise(&connect(directory.path()));
}

#[test]
fn events_go_through_an_embedded_server() {
    let directory = tempfile::tempdir().unwrap();
    let config = server::Config {
        directory: directory.path().join("data"),
        ..server::Config::default()
    };
    let server = server::Server::embedded(config, Arc::new(|_: &str| {})).unwrap();
    let endpoint = Endpoint::address(&server.endpoints()[0]);
    exercise(&Driver::connect(endpoint, DriverOptions::default()).unwrap());
}

#[test]
fn a_killed_server_that_comes_back_loses_and_doubles_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Some(start(directory.path(), &[]));
    let driver = connect(directory.path());
    let topic = driver
        .create_topic("events", &written(), &[disk()])
        .unwrap();
    let producer = topic.producer(ProducerOptions::default()).unwrap();
    let consumer = topic
        .consumer("reader", ConsumerOptions::default())
        .unwrap();
    const EVENTS: u64 = 30_000;
    let mut futures = Vec::new();
    for index in 0..EVENTS {
        futures.push(producer.push_metadata(&index.to_le_bytes()).unwrap());
        if index % 10_000 == 5_000 {
            // Something is under way now, in whatever state.
            server.take().unwrap().kill();
            server = Some(start(directory.path(), &[]));
        }
    }
    producer.flush(WATCHDOG).unwrap();
    for (index, future) in futures.iter().enumerate() {
        assert_eq!(future.try_get().unwrap().unwrap().offset.0, index as u64);
    }
    for index in 0..EVENTS {
        let event = consumer.pull(Some(WATCHDOG)).unwrap().expect("an event");
        assert_eq!(event.metadata(), index.to_le_bytes());
    }
    assert!(
        consumer
            .pull(Some(Duration::from_secs(2)))
            .unwrap()
            .is_none()
    );
}

#[test]
fn a_stale_group_file_is_an_error_that_names_the_address() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path(), &["tcp://127.0.0.1:0"]);
    let path = directory.path().join("group.json");
    let text = std::fs::read_to_string(&path).unwrap();
    let address = server.endpoints()[0].clone();
    let mut file = group_file::GroupFile::parse(&text).unwrap();
    drop(server);
    let options = DriverOptions {
        connect_timeout: Some(Duration::from_millis(300)),
        ..DriverOptions::default()
    };
    // Its server is gone.
    std::fs::write(&path, &text).unwrap();
    let endpoint = Endpoint::GroupFile(path.clone());
    let error = Driver::connect(endpoint.clone(), options.clone()).unwrap_err();
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains(&address), "{error}");
    // Another server is in its place.
    let other = tempfile::tempdir().unwrap();
    let server = start(other.path(), &["tcp://127.0.0.1:0"]);
    file.endpoints = server.endpoints().to_vec();
    std::fs::write(&path, file.to_json()).unwrap();
    let error = Driver::connect(endpoint, options).unwrap_err();
    assert!(matches!(error, ClientError::WrongServer { .. }), "{error}");
    assert!(
        error.to_string().contains(&server.endpoints()[0]),
        "{error}"
    );
}

#[test]
fn a_group_file_with_another_token_is_not_allowed() {
    let directory = tempfile::tempdir().unwrap();
    let _server = start(directory.path(), &["tcp://127.0.0.1:0"]);
    let path = directory.path().join("group.json");
    let text = std::fs::read_to_string(&path).unwrap();
    let mut file = group_file::GroupFile::parse(&text).unwrap();
    file.endpoints.retain(|address| address.starts_with("tcp"));
    file.token = Bytes::from_static(b"another");
    let stale = directory.path().join("stale.json");
    std::fs::write(&stale, file.to_json()).unwrap();
    let error = Driver::connect(Endpoint::GroupFile(stale), DriverOptions::default()).unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::NotAuthenticated), "{error}");
    assert!(error.to_string().contains(&file.endpoints[0]), "{error}");
}
