//! Servers within this process, and clients of theirs.

use client::{
    ConsumerOptions, Definition, Driver, DriverOptions, Durability, Endpoint, Event,
    PartitionStorage, ProducerOptions, Start, TopicHandle,
};
use server::{Config, Server, ServerError};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A hang is noticed after this long; nothing is expected to be fast.
const WATCHDOG: Duration = Duration::from_secs(60);

fn config(directory: &Path) -> Config {
    Config {
        directory: directory.join("data"),
        group_file: None,
        ..Config::default()
    }
}

fn embedded(directory: &Path) -> Server {
    Server::embedded(config(directory), Arc::new(|_: &str| {})).unwrap()
}

fn connect(server: &Server) -> Driver {
    let endpoint = Endpoint::address(&server.endpoints()[0]);
    Driver::connect(endpoint, DriverOptions::default()).unwrap()
}

fn create(driver: &Driver, name: &str, durability: Durability) -> TopicHandle {
    let kind = match durability {
        Durability::Memory => "memory",
        _ => "disk",
    };
    let storage = PartitionStorage {
        kind: kind.to_owned(),
        config: String::new(),
    };
    let definition = Definition::builder()
        .durability(durability)
        .build()
        .unwrap();
    driver.create_topic(name, &definition, &[storage]).unwrap()
}

fn push(topic: &TopicHandle, metadata: &[&str]) {
    let producer = topic.producer(ProducerOptions::default()).unwrap();
    for metadata in metadata {
        producer.push(Event::new(metadata.as_bytes())).unwrap();
    }
    producer.flush(WATCHDOG).unwrap();
    producer.close(WATCHDOG).unwrap();
}

fn read(driver: &Driver, name: &str, count: usize) -> Vec<String> {
    let topic = driver.open_topic(name).unwrap();
    let options = ConsumerOptions {
        start: Start::Beginning.into(),
        ..ConsumerOptions::default()
    };
    let consumer = topic.consumer("reader", options).unwrap();
    let mut found = Vec::new();
    while found.len() < count {
        let event = consumer
            .pull(Some(WATCHDOG))
            .unwrap()
            .expect("an event comes");
        found.push(String::from_utf8(event.metadata().to_vec()).unwrap());
    }
    assert!(consumer.pull(Some(Duration::ZERO)).unwrap().is_none());
    found
}

#[test]
fn an_embedded_server_keeps_events_across_its_lives() {
    let directory = tempfile::tempdir().unwrap();
    let server = embedded(directory.path());
    assert!(server.endpoints()[0].starts_with("inproc://"));
    let (id, instance) = (server.directory(), server.instance());
    let driver = connect(&server);
    for durability in [Durability::Written, Durability::Synced] {
        push(
            &create(&driver, &durability.to_string(), durability),
            &["1", "2"],
        );
    }
    driver.close(WATCHDOG).unwrap();
    server.drain(WATCHDOG).unwrap();

    let server = embedded(directory.path());
    assert_eq!(server.directory(), id);
    assert_ne!(server.instance(), instance);
    let driver = connect(&server);
    assert_eq!(read(&driver, "written", 2), ["1", "2"]);
    push(&driver.open_topic("synced").unwrap(), &["3"]);
    // No clean end this time.
    server.kill();

    let server = embedded(directory.path());
    let driver = connect(&server);
    assert_eq!(read(&driver, "synced", 3), ["1", "2", "3"]);
    assert_eq!(read(&driver, "written", 2), ["1", "2"]);
}

#[test]
fn several_embedded_servers_live_side_by_side_but_not_on_one_directory() {
    let [one, two] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let (first, second) = (embedded(one.path()), embedded(two.path()));
    create(&connect(&first), "here", Durability::Memory);
    assert!(!connect(&second).topic_exists("here").unwrap());
    let refused = Server::embedded(config(one.path()), Arc::new(|_: &str| {}));
    assert!(
        matches!(refused, Err(ServerError::Locked { .. })),
        "{refused:?}"
    );
    first.drain(WATCHDOG).unwrap();
    embedded(one.path());
}

#[test]
fn a_drain_under_load_keeps_what_was_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(directory.path());
    let group_file = directory.path().join("group.json");
    config.group_file = Some(group_file.clone());
    let start = || Server::start(config.clone(), Arc::new(|_: &str| {})).unwrap();
    let mut server = start();
    let driver = Driver::connect(
        Endpoint::GroupFile(group_file.clone()),
        DriverOptions::default(),
    )
    .unwrap();
    let topic = create(&driver, "t", Durability::Synced);
    let stop = Arc::new(AtomicBool::new(false));
    let (stopped, producer_topic) = (stop.clone(), topic.clone());
    let acknowledged = Arc::new(Mutex::new(0u64));
    let counter = acknowledged.clone();
    let producer = std::thread::spawn(move || {
        let producer = producer_topic.producer(ProducerOptions::default()).unwrap();
        let mut pushed = 0u64;
        while !stopped.load(Ordering::Relaxed) {
            let pushes: Vec<_> = (0..16)
                .map(|offset| {
                    let metadata = (pushed + offset).to_string();
                    producer.push(Event::new(metadata.as_bytes())).unwrap()
                })
                .collect();
            pushed += 16;
            for push in pushes {
                push.wait(Some(WATCHDOG)).unwrap();
                *counter.lock().unwrap() += 1;
            }
        }
        producer.close(WATCHDOG).unwrap();
        pushed
    });
    for _ in 0..5 {
        let goal = *acknowledged.lock().unwrap() + 100;
        let began = std::time::Instant::now();
        while *acknowledged.lock().unwrap() < goal {
            assert!(began.elapsed() < WATCHDOG, "nothing is acknowledged");
            std::thread::yield_now();
        }
        server.drain(WATCHDOG).unwrap();
        assert!(!group_file.exists(), "a clean end removes the group file");
        // The client finds the next life by the group file.
        server = start();
    }
    stop.store(true, Ordering::Relaxed);
    let pushed = producer.join().unwrap();
    let expected: Vec<String> = (0..pushed).map(|number| number.to_string()).collect();
    assert_eq!(read(&driver, "t", pushed as usize), expected);
    driver.close(WATCHDOG).unwrap();
    server.drain(WATCHDOG).unwrap();
}

#[test]
fn a_client_can_ask_for_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let server = embedded(directory.path());
    let driver = connect(&server);
    push(&create(&driver, "t", Durability::Written), &["1"]);
    driver.shutdown_server().unwrap();
    server.wait_for_drain();
    server.wait().unwrap();
    assert_eq!(read(&connect(&embedded(directory.path())), "t", 1), ["1"]);
}

#[test]
fn an_address_that_is_taken_is_named_and_the_directory_given_back() {
    let directory = tempfile::tempdir().unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tcp://{}", listener.local_addr().unwrap());
    let mut config = config(directory.path());
    config.listen = vec![address.clone()];
    let refused = Server::start(config, Arc::new(|_: &str| {})).unwrap_err();
    assert!(refused.to_string().contains(&address), "{refused}");
    embedded(directory.path());
}

#[test]
fn a_server_with_tcp_has_its_unix_socket_and_shared_memory_too() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(directory.path());
    config.listen = vec!["tcp://127.0.0.1:0".to_owned()];
    let server = Server::start(config.clone(), Arc::new(|_: &str| {})).unwrap();
    let schemes: Vec<&str> = server
        .endpoints()
        .iter()
        .map(|endpoint| endpoint.split_once("://").unwrap().0)
        .collect();
    assert_eq!(schemes, ["tcp", "unix", "shm"]);
    let topic = "t";
    for (at, scheme) in schemes.iter().enumerate().take(2) {
        let endpoint = Endpoint::Address {
            address: server.endpoints()[at].clone(),
            token: Some(server.token().to_vec().into()),
            directory: Some(server.directory()),
        };
        let driver = Driver::connect(endpoint, DriverOptions::default()).unwrap();
        match at {
            0 => push(&create(&driver, topic, Durability::Written), &[scheme]),
            _ => push(&driver.open_topic(topic).unwrap(), &[scheme]),
        }
        driver.close(WATCHDOG).unwrap();
    }
    server.drain(WATCHDOG).unwrap();
    assert!(!directory.path().join("data/thalweg.sock").exists());

    // Who wants none has none, and a socket that was named stands for it.
    config.no_unix_socket = true;
    let server = Server::start(config.clone(), Arc::new(|_: &str| {})).unwrap();
    assert_eq!(server.endpoints().len(), 1);
    server.drain(WATCHDOG).unwrap();
    config.no_unix_socket = false;
    let named = format!("unix://{}", directory.path().join("s").display());
    config.listen.push(named.clone());
    let server = Server::start(config, Arc::new(|_: &str| {})).unwrap();
    assert_eq!(server.endpoints()[1], named);
    assert_eq!(server.endpoints().len(), 3, "{:?}", server.endpoints());
    server.drain(WATCHDOG).unwrap();
}

#[test]
fn a_socket_that_cannot_be_is_a_warning_beside_tcp_and_an_error_without() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(directory.path());
    embedded(directory.path()).drain(WATCHDOG).unwrap();
    let socket = directory.path().join("data/thalweg.sock");
    std::fs::write(&socket, "no socket").unwrap();
    let refused = Server::start(config.clone(), Arc::new(|_: &str| {})).unwrap_err();
    assert!(refused.to_string().contains("thalweg.sock"), "{refused}");
    config.listen = vec!["tcp://127.0.0.1:0".to_owned()];
    let lines = Arc::new(Mutex::new(Vec::new()));
    let kept = lines.clone();
    let report = Arc::new(move |line: &str| kept.lock().unwrap().push(line.to_owned()));
    let server = Server::start(config, report).unwrap();
    assert_eq!(server.endpoints().len(), 1);
    server.drain(WATCHDOG).unwrap();
    let lines = lines.lock().unwrap();
    let told = |line: &String| line.contains("no unix socket") && line.contains("thalweg.sock");
    assert!(lines.iter().any(told), "{lines:?}");
    assert_eq!(std::fs::read_to_string(&socket).unwrap(), "no socket");
}

#[test]
fn a_directory_whose_path_is_too_long_for_a_socket_has_it_elsewhere() {
    let directory = tempfile::tempdir().unwrap();
    let deep = directory.path().join("d".repeat(120));
    let server = Server::start(config(&deep), Arc::new(|_: &str| {})).unwrap();
    // Elsewhere the name is a hash in hexadecimal, in which there may be some `d` in a row.
    assert!(
        !server.endpoints()[0].contains(deep.to_str().unwrap()),
        "{:?}",
        server.endpoints()
    );
    let driver = connect(&server);
    push(&create(&driver, "t", Durability::Memory), &["1"]);
    assert_eq!(read(&driver, "t", 1), ["1"]);
    let socket = server.endpoints()[0]
        .strip_prefix("unix://")
        .unwrap()
        .to_owned();
    server.drain(WATCHDOG).unwrap();
    assert!(!Path::new(&socket).exists(), "{socket} is left behind");
    std::fs::remove_dir(Path::new(&socket).parent().unwrap()).unwrap();
}

#[test]
fn the_operator_reads_where_events_lie_and_what_a_sync_costs() {
    let directory = tempfile::tempdir().unwrap();
    let lines = Arc::new(Mutex::new(Vec::new()));
    let kept = lines.clone();
    let report = Arc::new(move |line: &str| kept.lock().unwrap().push(line.to_owned()));
    let server = Server::start(config(directory.path()), report).unwrap();
    server.drain(WATCHDOG).unwrap();
    let lines = lines.lock().unwrap();
    assert!(lines[0].contains("a sync of 4 KiB takes"), "{lines:?}");
    assert!(
        lines.iter().any(|line| line.contains("0 topics")),
        "{lines:?}"
    );
}

#[test]
fn a_server_listens_at_the_interface_that_it_is_to_use() {
    let directory = tempfile::tempdir().unwrap();
    let of = |nic: &str| Config {
        nic: nic.to_owned(),
        listen: vec!["tls://0.0.0.0:0".to_owned()],
        no_unix_socket: true,
        ..config(directory.path())
    };
    let server = Server::start(of("lo"), Arc::new(|_: &str| {})).unwrap();
    let [endpoint] = server.endpoints() else {
        panic!("one address: {:?}", server.endpoints());
    };
    assert!(endpoint.starts_with("tls://127.0.0.1:"), "{endpoint}");
    server.drain(WATCHDOG).unwrap();
    let refused = Server::start(of("none7"), Arc::new(|_: &str| {}))
        .err()
        .unwrap();
    assert!(
        refused
            .to_string()
            .contains("none7: no interface of that name")
            || refused
                .to_string()
                .contains("none7: no interface of hardware"),
        "{refused}"
    );
}
