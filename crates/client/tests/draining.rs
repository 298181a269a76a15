//! Draining a queue of the real server: a loop ends when nothing of the queue is
//! left to anybody, and never because of an outage.

use crate::live;

use client::*;
use live::{WATCHDOG, connect, number, push, start};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const IDLE: Duration = Duration::from_millis(200);
/// How long an event stays with somebody who does nothing with it.
const LEASE: Duration = Duration::from_secs(3);

fn topic(driver: &Driver, partitions: usize) -> TopicHandle {
    let definition = Definition::builder()
        .validator(topic::ValidatorKind::None)
        .durability(Durability::Written)
        .build()
        .unwrap();
    let disk = PartitionStorage {
        kind: "disk".into(),
        config: String::new(),
    };
    driver
        .create_topic("events", &definition, &vec![disk; partitions])
        .unwrap()
}

fn options() -> QueueConsumerOptions {
    QueueConsumerOptions {
        queue: QueueOptions {
            lease_ms: LEASE.as_millis() as u64,
            ..QueueOptions::default()
        },
        prefetch_events: 40,
        ..QueueConsumerOptions::default()
    }
}

fn join(directory: &Path) -> QueueConsumer {
    let topic = connect(directory).open_topic("events").unwrap();
    topic.queue("work", options()).unwrap()
}

/// What was done, by the workers' own account.
type Done = Arc<Mutex<BTreeSet<u64>>>;

/// Drains the queue; returns how much was done by everybody when its loop ended.
fn work(directory: &Path, done: &Done, plant: fn()) -> usize {
    plant();
    let consumer = join(directory);
    for event in consumer.drain(IDLE) {
        let event = event.unwrap();
        if number(&event).is_multiple_of(10) && event.deliveries() == 1 {
            drop(event.return_to_queue(IDLE * 6));
            continue;
        }
        done.lock().unwrap().insert(number(&event));
        drop(event.acknowledge());
    }
    let count = done.lock().unwrap().len();
    consumer.close().unwrap();
    count
}

/// Several workers with leases, events that are returned for later, a member that
/// does nothing with what it has, and a server that is killed and stays away for
/// a while. Returns what was done when each worker's loop ended.
fn storm(events: u64, plant: fn()) -> Vec<usize> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let mut server = Some(start(path));
    let driver = connect(path);
    let handle = topic(&driver, 2);
    push(&handle, 0..events);
    let stuck = handle.queue("work", options()).unwrap();
    let kept = stuck.pull_batch(30, Some(WATCHDOG)).unwrap();
    let done = Done::default();
    let counts = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| work(path, &done, plant)))
            .collect();
        while done.lock().unwrap().len() < events as usize / 2 {
            std::thread::sleep(Duration::from_millis(1));
        }
        server.take().unwrap().kill();
        // Longer than a loop that takes silence for the end waits.
        std::thread::sleep(IDLE * 6);
        server = Some(start(path));
        let counts = workers.into_iter().map(|worker| worker.join().unwrap());
        counts.collect::<Vec<_>>()
    });
    drop((kept, stuck, server));
    counts
}

#[test]
fn no_worker_ends_before_every_task_is_done_whatever_happens() {
    let counts = storm(3000, || ());
    assert!(counts.iter().all(|count| *count == 3000), "{counts:?}");
}

#[cfg(feature = "testing")]
#[test]
fn a_drain_that_takes_silence_for_the_end_is_noticed() {
    let counts = storm(3000, || client::plant(Some(Fault::NoneIsDrained)));
    assert!(counts.iter().any(|count| *count < 3000), "{counts:?}");
}

#[test]
fn a_drain_waits_for_what_others_hold_and_for_what_is_delayed() {
    let directory = tempfile::tempdir().unwrap();
    let _server = start(directory.path());
    let driver = connect(directory.path());
    let handle = topic(&driver, 1);
    push(&handle, 0..2);
    let other = join(directory.path());
    let held = other.pull_batch(1, Some(WATCHDOG)).unwrap();
    // What it has here and was not asked for goes to the other one.
    let delayed = other.pull(Some(WATCHDOG)).unwrap().expect("an event");
    delayed
        .return_to_queue(IDLE * 3)
        .wait(Some(WATCHDOG))
        .unwrap();
    other.wind_down(WATCHDOG);
    let consumer = join(directory.path());
    let mut drain = Drain::new(IDLE);
    let mut seen = Vec::new();
    loop {
        match drain.next(&consumer, Some(IDLE)).unwrap() {
            Drained::Event(event) => {
                seen.push(number(&event));
                event.acknowledge();
                // Nothing is left but what the other one holds.
            }
            Drained::Waiting if seen == [1] => {
                held[0].return_to_queue(Duration::ZERO);
                seen.push(u64::MAX);
            }
            Drained::Waiting => {}
            Drained::Done => break,
        }
    }
    assert_eq!(seen, [1, u64::MAX, 0]);
}

#[test]
fn an_empty_queue_is_drained_at_once_and_again_when_there_is_more() {
    let directory = tempfile::tempdir().unwrap();
    let _server = start(directory.path());
    let driver = connect(directory.path());
    let handle = topic(&driver, 1);
    let consumer = join(directory.path());
    let drain = || {
        let events = consumer.drain(Duration::ZERO);
        events
            .map(|event| {
                let event = event.unwrap();
                event.acknowledge();
                number(&event)
            })
            .collect::<Vec<_>>()
    };
    assert!(drain().is_empty());
    push(&handle, 0..3);
    assert_eq!(drain(), [0, 1, 2]);
    consumer.wind_down(WATCHDOG);
    push(&handle, 3..4);
    assert!(drain().is_empty(), "the program is about to end");
}

#[test]
fn an_event_that_a_loop_never_settles_comes_again_until_it_is_a_dead_letter() {
    let directory = tempfile::tempdir().unwrap();
    let _server = start(directory.path());
    let driver = connect(directory.path());
    let handle = topic(&driver, 1);
    push(&handle, 0..1);
    let options = QueueConsumerOptions {
        queue: QueueOptions {
            lease_ms: 1000,
            deliveries_max: 2,
            ..QueueOptions::default()
        },
        ..QueueConsumerOptions::default()
    };
    let consumer = handle.queue("work", options).unwrap();
    let kept: Vec<_> = consumer.drain(IDLE).map(Result::unwrap).collect();
    let deliveries: Vec<_> = kept.iter().map(QueueEvent::deliveries).collect();
    assert_eq!(deliveries, [1, 2]);
    let dead = driver.open_topic("events.dead").unwrap();
    assert_eq!(dead.partitions()[0].watermarks.committed.0, 1);
}
