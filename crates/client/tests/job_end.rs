//! A consumer of a queue whose program is about to end, against the real server.

use crate::live;

use client::*;
use live::{WATCHDOG, connect, number, push, start};
use std::time::{Duration, Instant, SystemTime};
use wire::ErrorCode;

fn topic(driver: &Driver, events: u64) -> TopicHandle {
    let definition = Definition::builder()
        .serializer(topic::SerializerKind::Raw)
        .build()
        .unwrap();
    let memory = PartitionStorage {
        kind: "memory".into(),
        config: String::new(),
    };
    let topic = driver
        .create_topic("events", &definition, &[memory])
        .unwrap();
    push(&topic, 0..events);
    topic
}

fn pull(queue: &QueueConsumer) -> QueueEvent {
    queue.pull(Some(WATCHDOG)).unwrap().expect("an event")
}

/// What comes to a member within the watchdog, acknowledged.
fn take(queue: &QueueConsumer, count: usize) -> Vec<(u64, u32)> {
    let mut taken = Vec::new();
    while taken.len() < count {
        let event = pull(queue);
        taken.push((number(&event), event.deliveries()));
        event.acknowledge().wait(Some(WATCHDOG)).unwrap();
    }
    taken.sort_unstable();
    taken
}

#[test]
fn what_was_pulled_can_be_settled_and_the_rest_goes_to_others_uncounted() {
    let directory = tempfile::tempdir().unwrap();
    let _server = start(directory.path());
    let drivers = [connect(directory.path()), connect(directory.path())];
    let topic = topic(&drivers[0], 100);
    let ending = topic
        .queue("farm", QueueConsumerOptions::default())
        .unwrap();
    let (first, second) = (pull(&ending), pull(&ending));
    ending.wind_down(WATCHDOG);
    // For ever would be too long to wait.
    assert!(ending.pull(None).unwrap().is_none());
    assert!(ending.is_winding_down());
    assert_eq!(ending.events().count(), 0);
    let other = drivers[1].open_topic("events").unwrap();
    let other = other
        .queue("farm", QueueConsumerOptions::default())
        .unwrap();
    let rest = take(&other, 98);
    assert_eq!(rest, (2..100).map(|number| (number, 1)).collect::<Vec<_>>());
    first.acknowledge().wait(Some(WATCHDOG)).unwrap();
    // Not settled in time: it goes on elsewhere, and does not count either.
    ending.close().unwrap();
    assert_eq!(take(&other, 1), [(1, 1)]);
    let late = second.acknowledge().wait(Some(WATCHDOG)).unwrap_err();
    assert_eq!(late.code(), Some(ErrorCode::LeaseExpired));
}

#[test]
fn a_known_end_gives_back_what_a_program_is_still_at() {
    let directory = tempfile::tempdir().unwrap();
    let _server = start(directory.path());
    let drivers = [connect(directory.path()), connect(directory.path())];
    let topic = topic(&drivers[0], 10);
    let options = QueueConsumerOptions {
        prefetch_events: 1,
        job_end: Some(JobEnd {
            at: SystemTime::now() + Duration::from_secs(3),
            wind_down: Duration::from_secs(2),
        }),
        ..QueueConsumerOptions::default()
    };
    let ending = topic.queue("farm", options).unwrap();
    let held = ending.pull(Some(WATCHDOG)).unwrap();
    // Nobody comes to the consumer any more: it leaves by itself.
    let other = drivers[1].open_topic("events").unwrap();
    let other = other
        .queue("farm", QueueConsumerOptions::default())
        .unwrap();
    let all = take(&other, 10);
    assert_eq!(all, (0..10).map(|number| (number, 1)).collect::<Vec<_>>());
    if let Some(held) = held {
        assert!(held.acknowledge().wait(Some(WATCHDOG)).is_err());
    }
    assert!(ending.is_winding_down());
    assert!(ending.pull(None).unwrap().is_none());
    ending.close().unwrap();
}

#[test]
fn after_the_end_a_consumer_is_let_in_and_gets_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let _server = start(directory.path());
    let driver = connect(directory.path());
    let topic = topic(&driver, 3);
    let options = QueueConsumerOptions {
        job_end: Some(JobEnd::at(SystemTime::UNIX_EPOCH)),
        ..QueueConsumerOptions::default()
    };
    let late = topic.queue("farm", options).unwrap();
    while !late.is_winding_down() {
        assert!(late.pull(Some(Duration::ZERO)).unwrap().is_none());
    }
    assert!(late.pull(None).unwrap().is_none());
    late.close().unwrap();
    let other = topic
        .queue("farm", QueueConsumerOptions::default())
        .unwrap();
    assert_eq!(take(&other, 3), [(0, 1), (1, 1), (2, 1)]);
}

#[test]
fn a_lost_connection_does_not_bring_new_events() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path());
    let driver = connect(directory.path());
    let topic = topic(&driver, 5);
    let ending = topic
        .queue("farm", QueueConsumerOptions::default())
        .unwrap();
    let first = pull(&ending);
    ending.wind_down(WATCHDOG);
    assert!(ending.pull(None).unwrap().is_none());
    server.drain(WATCHDOG).unwrap();
    let _server = start(directory.path());
    // The partition was in memory: the event is gone, the membership is not.
    let until = Instant::now() + WATCHDOG;
    loop {
        let known = topic.describe_consumers("farm").unwrap_or_default();
        if known
            .iter()
            .any(|one| one.members.iter().any(|member| member.present))
        {
            break;
        }
        assert!(Instant::now() < until, "the member does not come back");
    }
    assert!(ending.pull(None).unwrap().is_none());
    drop(first);
    ending.close().unwrap();
}
