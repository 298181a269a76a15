//! A bug that panics where a driver is driven: every wait ends with an error that
//! says so, and other drivers go on. One test, for the panic is any driver's.

#![cfg(feature = "testing")]

use client::*;
use std::sync::Arc;
use std::time::Duration;

/// Against hangs only.
const WATCHDOG: Duration = Duration::from_secs(60);

/// Whether it says what has happened.
fn tells(error: &ClientError) -> bool {
    error.to_string().contains("panicked")
}

fn panics(driver: &Driver, other: &Driver, name: &str) {
    let memory = PartitionStorage {
        kind: "memory".into(),
        config: String::new(),
    };
    let definition = Definition::builder().build().unwrap();
    let topic = driver.create_topic(name, &definition, &[memory]).unwrap();
    let batch = BatchPolicy {
        linger: Linger::UntilFull,
        ..BatchPolicy::default()
    };
    let options = ProducerOptions {
        batch,
        ..ProducerOptions::default()
    };
    let producer = topic.producer(options).unwrap();
    let pushed = producer.push_metadata(b"{}").unwrap();
    let reader = topic
        .consumer("reader", ConsumerOptions::default())
        .unwrap();
    std::thread::scope(|scope| {
        let pull = scope.spawn(|| reader.pull(Some(WATCHDOG)));
        plant_panic();
        let caused = driver.status().expect_err("its driving panicked");
        assert!(tells(&caused), "{caused}");
        let pulled = pull.join().unwrap().expect_err("nobody drives any more");
        assert!(tells(&pulled), "{pulled}");
    });
    let stored = pushed.wait(Some(WATCHDOG)).expect_err("it was not sent");
    assert!(tells(&stored), "{stored}");
    let next = producer.push_metadata(b"{}").err();
    assert!(next.is_some_and(|error| tells(&error)));
    let later = driver.list_topics().expect_err("the driver has ended");
    assert!(tells(&later), "{later}");
    // They wait for nobody.
    drop((producer, reader, topic));
    // Other drivers, and the server, notice nothing.
    other.describe_topic(name).unwrap();
}

#[test]
fn a_panic_in_a_driver_ends_its_waits_and_nobody_elses() {
    let directory = tempfile::tempdir().unwrap();
    let config = server::Config {
        directory: directory.path().join("data"),
        ..server::Config::default()
    };
    let server = server::Server::embedded(config, Arc::new(|_: &str| {})).unwrap();
    let connect = |progress| {
        let options = DriverOptions {
            progress,
            ..DriverOptions::default()
        };
        Driver::connect(Endpoint::address(&server.endpoints()[0]), options).unwrap()
    };
    let other = connect(Progress::Thread);
    for (number, progress) in [Progress::Thread, Progress::Caller].into_iter().enumerate() {
        let driver = connect(progress);
        panics(&driver, &other, &format!("events-{number}"));
    }
}
