//! What a forked child can do with its parent's handles. In a file of its
//! own, so that no other test's threads are forked away.

use client::*;
use memory::fork::testing::fork_and_run;
use std::sync::Arc;
use std::time::Duration;

/// Against hangs only.
const WATCHDOG: Duration = Duration::from_secs(60);

#[test]
fn a_child_connects_anew_and_leaves_its_parents_work_alone() {
    let directory = tempfile::tempdir().unwrap();
    let config = server::Config {
        directory: directory.path().join("data"),
        group_file: Some(directory.path().join("group.json")),
        ..server::Config::default()
    };
    let _server = server::Server::start(config, Arc::new(|_: &str| {})).unwrap();
    let endpoint = Endpoint::GroupFile(directory.path().join("group.json"));
    let driver = Driver::connect(endpoint, DriverOptions::default()).unwrap();
    let definition = Definition::builder()
        .validator(topic::ValidatorKind::None)
        .build()
        .unwrap();
    let memory = PartitionStorage {
        kind: "memory".into(),
        config: String::new(),
    };
    let topic = driver
        .create_topic("events", &definition, &[memory])
        .unwrap();
    let options = ProducerOptions {
        batch: BatchPolicy {
            linger: Linger::UntilFull,
            ..BatchPolicy::default()
        },
        ..ProducerOptions::default()
    };
    let producer = topic.producer(options).unwrap();
    let consumer = topic
        .consumer("reader", ConsumerOptions::default())
        .unwrap();
    let stored = producer.push_metadata(b"before").unwrap();
    producer.flush(WATCHDOG).unwrap();
    const FORKS: u64 = 20;
    for round in 0..FORKS {
        // Neither sent nor acknowledged when the process forks.
        let gathering = producer.push_metadata(b"parent").unwrap();
        let parent_id = producer.id().unwrap();
        let status = fork_and_run(|| {
            let pending = matches!(gathering.wait(Some(WATCHDOG)), Err(ClientError::Forked))
                && matches!(gathering.try_get(), Some(Err(ClientError::Forked)));
            // What was known before the fork stays known.
            let known = stored.try_get().is_some_and(|result| result.is_ok());
            let future = producer.push_metadata(b"child").unwrap();
            producer.flush(WATCHDOG).unwrap();
            let pushed = future.wait(Some(WATCHDOG)).is_ok();
            let own = producer.id().unwrap() != parent_id;
            let event = consumer.pull(Some(WATCHDOG)).unwrap().unwrap();
            let first = event.metadata() == b"before";
            let status = driver.status().is_ok();
            let checks = [pending, known, pushed, own, first, status];
            match checks.iter().position(|check| !check) {
                None => 0,
                Some(failed) => failed as u8 + 1,
            }
        });
        assert_eq!(status, Some(0), "the number of the check that failed");
        producer.flush(WATCHDOG).unwrap();
        assert_eq!(
            gathering.try_get().unwrap().unwrap().offset.0,
            2 * round + 2
        );
    }
    // The parent's connection was never touched, and nothing was sent twice.
    let connections = &driver.counters().connections;
    assert_eq!(connections.load(std::sync::atomic::Ordering::Relaxed), 1);
    let mut texts = Vec::new();
    for _ in 0..2 * FORKS + 1 {
        let event = consumer.pull(Some(WATCHDOG)).unwrap().unwrap();
        texts.push(String::from_utf8(event.metadata().to_vec()).unwrap());
    }
    assert_eq!(texts[0], "before");
    for pair in texts[1..].chunks(2) {
        assert_eq!(pair, ["child", "parent"]);
    }
    assert!(consumer.pull(Some(Duration::ZERO)).unwrap().is_none());
}
