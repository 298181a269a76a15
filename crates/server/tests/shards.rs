//! A server with several shards, and clients that know of the first one alone.

mod support;

use client::{
    ConsumerOptions, Definition, Driver, DriverOptions, Endpoint, QueueConsumerOptions, Start,
};
use server::{Config, Server, ServerError, Shards};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use support::{WATCHDOG, create, disk, names, push, read};

fn group_file(directory: &Path) -> PathBuf {
    directory.join("group.json")
}

fn start(directory: &Path, shards: Shards) -> Result<Server, ServerError> {
    let config = Config {
        directory: directory.join("data"),
        group_file: Some(group_file(directory)),
        listen: vec!["tcp://127.0.0.1:0".to_owned()],
        shards,
        ..Config::default()
    };
    Server::start(config, Arc::new(|_: &str| {}))
}

fn connect(directory: &Path) -> Driver {
    let endpoint = Endpoint::GroupFile(group_file(directory));
    Driver::connect(endpoint, DriverOptions::default()).unwrap()
}

const COUNT: usize = 24;

fn name(number: usize) -> String {
    format!("run.{number:02}")
}

/// Which shards have partitions of topics in their directory.
fn used(directory: &Path) -> BTreeSet<usize> {
    let of = |shard: usize| match shard {
        0 => directory.join("data/partitions"),
        shard => directory.join(format!("data/shards/{shard}/partitions")),
    };
    let has_some =
        |shard: &usize| std::fs::read_dir(of(*shard)).is_ok_and(|mut it| it.next().is_some());
    (0..8).filter(has_some).collect()
}

#[test]
fn a_client_of_the_first_shard_has_the_topics_of_all() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let server = start(directory, Shards::Count(3)).unwrap();
    assert_eq!(server.shards().count(), 3);
    let driver = connect(directory);
    let all: Vec<String> = (0..COUNT).map(name).collect();
    for name in &all {
        push(&create(&driver, name), &[name, "second"]);
    }
    // Each shard has some of them.
    assert_eq!(used(directory), BTreeSet::from([0, 1, 2]));
    let check = |driver: &Driver| {
        assert_eq!(names(driver), all);
        for name in &all {
            let topic = driver.open_topic(name).unwrap();
            assert_eq!(read(&topic), [name, "second"]);
        }
    };
    // Who has made a topic, and who has not.
    check(&driver);
    let status: serde_json::Value = serde_json::from_str(&driver.status().unwrap()).unwrap();
    let rows = |list: &str| status[list].as_array().unwrap().len();
    assert_eq!((rows("topics"), rows("nodes")), (COUNT, 2));
    assert!(rows("sessions") >= 3, "{status}");
    check(&connect(directory));
    driver.delete_topic(&all[0]).unwrap();
    create(&driver, &all[0]);
    assert_eq!(names(&driver), all);
    driver.delete_topic(&all[0]).unwrap();
    push(&create(&driver, &all[0]), &[&all[0], "second"]);
    driver.close(WATCHDOG).unwrap();

    // All of it is there again, also where nothing says how many shards there are.
    server.drain(WATCHDOG).unwrap();
    assert!(!group_file(directory).exists());
    let server = start(directory, Shards::Kept).unwrap();
    assert_eq!(server.shards().count(), 3);
    check(&connect(directory));
    server.kill();
    let server = start(directory, Shards::Count(5)).unwrap();
    let driver = connect(directory);
    check(&driver);
    // The new ones get their share of what is new.
    for number in COUNT..2 * COUNT {
        create(&driver, &name(number));
    }
    assert_eq!(used(directory), BTreeSet::from([0, 1, 2, 3, 4]));
    drop(driver);
    server.drain(WATCHDOG).unwrap();
    let refused = start(directory, Shards::Count(4)).unwrap_err().to_string();
    assert!(refused.contains("has 5 shards"), "{refused}");
}

#[test]
fn groups_and_queues_with_dead_letters_work_on_each_shard() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let _server = start(directory, Shards::Count(3)).unwrap();
    let driver = connect(directory);
    for number in 0..8 {
        let topic = create(&driver, &name(number));
        push(&topic, &["a", "b", "c"]);
        // Its dead letters are where it is.
        let worker = topic
            .queue("work", QueueConsumerOptions::default())
            .unwrap();
        for text in ["a", "b", "c"] {
            let event = worker.pull(Some(WATCHDOG)).unwrap().unwrap();
            assert_eq!(event.metadata(), text.as_bytes());
            let settled = match text {
                "b" => event.reject("no good"),
                _ => event.acknowledge(),
            };
            settled.wait(Some(WATCHDOG)).unwrap();
        }
        worker.close().unwrap();
        let dead = driver
            .open_topic(&format!("{}.dead", topic.name()))
            .unwrap();
        let options = ConsumerOptions {
            start: Start::Beginning.into(),
            ..ConsumerOptions::default()
        };
        let letters = dead.consumer("reader", options).unwrap();
        assert!(letters.pull(Some(WATCHDOG)).unwrap().is_some());
    }
    assert_eq!(names(&driver).len(), 16);
}

#[test]
fn the_end_of_one_shard_is_the_end_of_all() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let server = start(directory, Shards::Count(2)).unwrap();
    let driver = connect(directory);
    let all: Vec<String> = (0..8).map(name).collect();
    for name in &all {
        push(&create(&driver, name), &["kept"]);
    }
    // A client asks the first one.
    driver.shutdown_server().unwrap();
    server.wait_for_drain();
    server.wait().unwrap();
    let server = start(directory, Shards::Kept).unwrap();
    let driver = connect(directory);
    for name in &all {
        assert_eq!(read(&driver.open_topic(name).unwrap()), ["kept"]);
    }
    // Nobody else has it meanwhile.
    let refused = start(directory, Shards::Kept);
    assert!(
        matches!(refused, Err(ServerError::Locked { .. })),
        "{refused:?}"
    );
    drop(driver);
    server.drain(WATCHDOG).unwrap();
}

#[test]
fn a_server_within_a_program_has_shards_as_well() {
    let directory = tempfile::tempdir().unwrap();
    let config = Config {
        directory: directory.path().join("data"),
        group_file: None,
        shards: Shards::Count(2),
        ..Config::default()
    };
    let server = Server::embedded(config, Arc::new(|_: &str| {})).unwrap();
    let endpoint = Endpoint::address(&server.endpoints()[0]);
    let driver = Driver::connect(endpoint, DriverOptions::default()).unwrap();
    for number in 0..8 {
        let topic = create(&driver, &name(number));
        push(&topic, &["a"]);
        assert_eq!(read(&topic), ["a"]);
    }
}

#[test]
fn a_start_that_fails_leaves_nobody_running_and_another_one_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let socket = directory.join("s");
    let config = |shards| Config {
        directory: directory.join("data"),
        group_file: Some(group_file(directory)),
        listen: vec![format!("unix://{}", socket.display())],
        shards: Shards::Count(shards),
        ..Config::default()
    };
    let start = |shards| Server::start(config(shards), Arc::new(|_: &str| {}));
    // What is no socket is in the way of the third shard.
    let blocked = directory.join("s.2");
    std::fs::write(&blocked, "a file").unwrap();
    let error = start(4).unwrap_err().to_string();
    assert!(error.contains("s.2"), "{error}");
    assert!(!group_file(directory).exists());
    std::fs::remove_file(&blocked).unwrap();
    let server = start(4).unwrap();
    let driver = connect(directory);
    for number in 0..8 {
        push(&create(&driver, &name(number)), &["a"]);
    }
    drop(driver);
    // Many drain at once, while topics are made.
    let driver = connect(directory);
    std::thread::scope(|scope| {
        let making = scope.spawn(|| {
            let made = (8..500).take_while(|number| {
                let made = driver.create_topic(&name(*number), &Definition::default(), &disk());
                made.is_ok()
            });
            made.count()
        });
        while driver.list_topics().is_ok_and(|topics| topics.len() < 20) {}
        server.drain_handle().drain(WATCHDOG);
        server.wait_for_drain();
        driver.close(Duration::ZERO).ok();
        // The answer about the twelfth may have met the drain.
        assert!(making.join().unwrap() >= 11);
    });
    server.wait().unwrap();
    // None is half made: each topic that is listed takes events.
    let server = start(4).unwrap();
    let driver = connect(directory);
    for topic in driver.list_topics().unwrap() {
        let topic = driver.open_topic(&topic.name).unwrap();
        push(&topic, &["b"]);
    }
    drop(driver);
    server.drain(WATCHDOG).unwrap();
}

#[test]
fn a_shard_whose_directory_is_gone_is_not_overlooked() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let server = start(directory, Shards::Count(3)).unwrap();
    let driver = connect(directory);
    for number in 0..12 {
        create(&driver, &name(number));
    }
    drop(driver);
    server.drain(WATCHDOG).unwrap();
    let (last, aside) = (directory.join("data/shards/2"), directory.join("aside"));
    std::fs::rename(&last, &aside).unwrap();
    for (shards, said) in [
        (Shards::Kept, "is on shard 2"),
        (Shards::Count(3), "new data directory"),
    ] {
        let error = start(directory, shards).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
    std::fs::remove_dir_all(&last).unwrap();
    std::fs::rename(&aside, &last).unwrap();
    let server = start(directory, Shards::Kept).unwrap();
    assert_eq!(names(&connect(directory)).len(), 12);
    server.drain(WATCHDOG).unwrap();
}
