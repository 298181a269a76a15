//! Bounded reads, against a scripted server under a virtual clock and against
//! the real one: they end at what was there, whatever becomes of it meanwhile.

use crate::live;
use crate::reading;
use crate::world;

use client::*;
use live::{WATCHDOG, connect, push, start};
use reading::{MINUTE, P0, at, fill};
use std::path::Path;
use std::time::Duration;
use wire::message::Start;
use world::World;

const P1: PartitionIndex = PartitionIndex(1);

fn begin(world: &mut World, topic: &TopicHandle, options: ReadOptions) -> Reader {
    let pending = topic.begin_read(options);
    world.wait(pending).unwrap()
}

/// Events of one step of the read; `None` when it has ended.
fn step(world: &mut World, reader: &Reader, max: usize) -> Option<Vec<usize>> {
    let mut outcome = Read::Waiting;
    let done = world.run_until(MINUTE, |_| {
        outcome = reader.next_batch(max, Some(Duration::ZERO)).unwrap();
        !matches!(outcome, Read::Waiting)
    });
    assert!(done, "the read neither goes on nor ends");
    match outcome {
        Read::Events(events) => Some(events.iter().map(reading::number).collect()),
        _ => None,
    }
}

fn rest(world: &mut World, reader: &Reader) -> Vec<usize> {
    let mut numbers = Vec::new();
    while let Some(some) = step(world, reader, 100) {
        numbers.extend(some);
    }
    numbers
}

#[test]
fn it_gives_what_was_there_and_ends() {
    let mut world = World::new();
    let topic = world.topic(3);
    let empty = begin(&mut world, &topic, ReadOptions::default());
    assert_eq!(rest(&mut world, &empty), [0usize; 0]);
    fill(&mut world, &topic, 0..20, 3, 5);
    let reader = begin(&mut world, &topic, ReadOptions::default());
    // What comes later is another read's.
    fill(&mut world, &topic, 20..40, 3, 5);
    let mut numbers = rest(&mut world, &reader);
    numbers.sort_unstable();
    assert_eq!(numbers, (0..20).collect::<Vec<_>>());
    assert_eq!(rest(&mut world, &reader), [0usize; 0], "it has ended");
    // It left no cursor.
    assert!(world.server.topics["events"].cursors.is_empty());
}

#[test]
fn it_begins_and_ends_where_the_program_says() {
    let mut world = World::new();
    let topic = world.topic(1);
    fill(&mut world, &topic, 0..10, 4, 0);
    let mut read = |start: When, end| {
        let options = ReadOptions {
            start,
            end,
            ..ReadOptions::default()
        };
        let reader = begin(&mut world, &topic, options);
        rest(&mut world, &reader)
    };
    let before = |position| ReadEnd::Before(vec![(P0, position)]);
    let all = Start::Beginning.into();
    let from = |offset| When::Start(Start::At(at(0, offset)));
    assert_eq!(read(all, before(at(0, 3))), [0, 1, 2]);
    assert_eq!(read(all, before(at(1, 5))), [0, 1, 2, 3, 4]);
    assert_eq!(read(all, before(at(0, 0))), [0usize; 0]);
    // Never behind what is there.
    assert_eq!(read(all, before(at(0, 99))).len(), 10);
    assert_eq!(read(from(8), ReadEnd::Now), [8, 9]);
    assert_eq!(read(from(3), before(at(0, 5))), [3, 4]);
    assert_eq!(read(from(10), ReadEnd::Now), [0usize; 0]);
    assert_eq!(read(from(500), ReadEnd::Now), [0usize; 0]);
    assert_eq!(read(Start::Latest.into(), ReadEnd::Now), [0usize; 0]);
    assert_eq!(read(When::Last(3), ReadEnd::Now), [7, 8, 9]);
    assert_eq!(read(When::Last(3), before(at(0, 8))), [7]);
    assert_eq!(read(When::Last(3), before(at(0, 7))), [0usize; 0]);
    assert_eq!(read(When::Last(0), ReadEnd::Now), [0usize; 0]);
    assert_eq!(read(When::Last(99), ReadEnd::Now).len(), 10);
    assert_eq!(read(all, ReadEnd::Time(0)), [0usize; 0]);
    assert_eq!(read(all, ReadEnd::Time(u64::MAX)).len(), 10);
    for (partitions, end) in [
        (Some(vec![1]), ReadEnd::Now),
        (None, ReadEnd::Before(vec![(P1, at(0, 1))])),
    ] {
        let options = ReadOptions {
            partitions,
            end,
            ..ReadOptions::default()
        };
        let refused = world.wait(topic.begin_read(options)).map(drop);
        assert!(
            matches!(refused, Err(ClientError::UnknownPartition(_))),
            "{refused:?}"
        );
    }
    let options = ReadOptions {
        start: Start::Cursor.into(),
        ..ReadOptions::default()
    };
    let refused = world.wait(topic.begin_read(options)).map(drop);
    assert!(
        matches!(refused, Err(ClientError::Invalid(_))),
        "{refused:?}"
    );
}

#[test]
fn connections_lost_at_any_message_neither_lose_nor_double_events() {
    for cut_at in 1..=8 {
        let mut world = World::new();
        let topic = world.topic(2);
        fill(&mut world, &topic, 0..40, 7, 0);
        let from = world.server.messages + cut_at;
        world.server.cut_behind.extend([from, from + 2]);
        let pending = topic.begin_read(ReadOptions::default());
        // Whether a call that begins it is lost, it says.
        let Ok(reader) = world.wait(pending) else {
            continue;
        };
        let mut numbers = rest(&mut world, &reader);
        numbers.sort_unstable();
        assert_eq!(numbers, (0..40).collect::<Vec<_>>(), "cut at {cut_at}");
    }
}

#[test]
fn a_server_that_is_long_away_does_not_end_it() {
    let mut world = World::new();
    let topic = world.topic(1);
    fill(&mut world, &topic, 0..10, 5, 0);
    let reader = begin(&mut world, &topic, ReadOptions::default());
    assert_eq!(step(&mut world, &reader, 2), Some(vec![0, 1]));
    world.server.is_silent = true;
    world.server.cut();
    let silent = world.run_until(MINUTE * 10, |_| {
        let read = reader.next_batch(10, Some(Duration::ZERO)).unwrap();
        matches!(read, Read::End)
    });
    assert!(!silent, "an outage is no end");
}

#[test]
fn a_memory_partition_that_is_lost_ends_it_with_a_gap() {
    let mut world = World::new();
    let topic = world.topic(1);
    fill(&mut world, &topic, 0..10, 2, 0);
    let options = ReadOptions {
        credit_bytes: 1,
        ..ReadOptions::default()
    };
    let reader = begin(&mut world, &topic, options);
    assert_eq!(step(&mut world, &reader, 1), Some(vec![0]));
    world.server.cut();
    world.server.lose_memory("events", 0);
    fill(&mut world, &topic, 100..110, 2, 0);
    let had = rest(&mut world, &reader);
    assert!(had.iter().all(|number| *number < 10), "{had:?}");
    let gaps = reader.take_gaps();
    assert_eq!(gaps.len(), 1, "{gaps:?}");
    assert_eq!(gaps[0].1.reason, GapReason::MemoryLost);
}

/// Power goes in the middle: the next life has the first half under the same
/// offsets, and goes on with other events. What is read of the first half.
fn read_through_a_power_loss() -> Vec<usize> {
    let mut world = World::new();
    let topic = world.topic(1);
    fill(&mut world, &topic, 0..10, 1, 0);
    let options = ReadOptions {
        credit_bytes: 1,
        ..ReadOptions::default()
    };
    let reader = begin(&mut world, &topic, options);
    let mut had = step(&mut world, &reader, 1).unwrap();
    world.server.cut();
    world.server.lose_power("events", 0, 7);
    fill(&mut world, &topic, 100..110, 1, 0);
    had.extend(rest(&mut world, &reader));
    let gaps = reader.take_gaps();
    assert_eq!(gaps.len(), 1, "{gaps:?}");
    assert_eq!(gaps[0].1.reason, GapReason::PowerLoss);
    had
}

#[test]
fn what_a_power_loss_spared_is_read_and_nothing_that_came_later() {
    assert_eq!(read_through_a_power_loss(), (0..7).collect::<Vec<_>>());
}

#[cfg(feature = "testing")]
#[test]
fn a_read_that_does_not_follow_its_end_into_the_next_life_is_noticed() {
    plant(Some(Fault::LostEnd));
    let had = read_through_a_power_loss();
    plant(None);
    assert_ne!(had, (0..7).collect::<Vec<_>>());
}

fn live_topic(path: &Path, kind: &str, config: &str) -> TopicHandle {
    let definition = Definition::builder().validator(topic::ValidatorKind::None);
    let storage = PartitionStorage {
        kind: kind.into(),
        config: config.into(),
    };
    connect(path)
        .create_topic("events", &definition.build().unwrap(), &[storage])
        .unwrap()
}

#[test]
fn retention_that_removes_the_rest_ends_it_with_a_gap() {
    let directory = tempfile::tempdir().unwrap();
    let _server = start(directory.path());
    let topic = live_topic(directory.path(), "disk", r#"{"segment_bytes":4096}"#);
    for first in (0..4000).step_by(100) {
        push(&topic, first..first + 100);
    }
    let options = ReadOptions {
        credit_bytes: 1,
        ..ReadOptions::default()
    };
    let reader = topic.read(options).unwrap();
    let mut events = reader.events();
    let mut had = vec![live::number(&events.next().unwrap().unwrap())];
    let driver = connect(directory.path());
    driver
        .alter_topic("events", r#"{"retention":{"count":1}}"#)
        .unwrap();
    // So that all that the read wants is gone.
    for first in (4000..5000).step_by(100) {
        push(&topic, first..first + 100);
    }
    had.extend(events.map(|event| live::number(&event.unwrap())));
    assert!(had.len() < 4000 && had.iter().all(|one| *one < 4000));
    assert_eq!(had, (0..had.len() as u64).collect::<Vec<_>>());
    let gaps = reader.take_gaps();
    assert!(
        gaps.iter()
            .any(|(_, gap)| gap.reason == GapReason::Retention),
        "{gaps:?}"
    );
}

#[test]
fn a_killed_server_in_the_middle_costs_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Some(start(directory.path()));
    let topic = live_topic(directory.path(), "disk", "");
    push(&topic, 0..3000);
    let options = ReadOptions {
        credit_bytes: 1,
        ..ReadOptions::default()
    };
    let reader = topic.read(options).unwrap();
    let mut had = Vec::new();
    for event in reader.events() {
        had.push(live::number(&event.unwrap()));
        if had.len() == 1000 {
            server.take().unwrap().kill();
            server = Some(start(directory.path()));
            push(&topic, 3000..3100);
        }
    }
    assert_eq!(had, (0..3000).collect::<Vec<_>>());
    drop(server);
}

#[test]
fn a_lost_memory_partition_of_the_real_server_ends_it_too() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Some(start(directory.path()));
    let topic = live_topic(directory.path(), "memory", "");
    for first in (0..1000).step_by(100) {
        push(&topic, first..first + 100);
    }
    let options = ReadOptions {
        credit_bytes: 1,
        ..ReadOptions::default()
    };
    let reader = topic.read(options).unwrap();
    let mut events = reader.events();
    let mut had = vec![live::number(&events.next().unwrap().unwrap())];
    server.take().unwrap().kill();
    server = Some(start(directory.path()));
    had.extend(events.map(|event| live::number(&event.unwrap())));
    assert!(had.len() < 1000, "it was lost");
    let gaps = reader.take_gaps();
    assert_eq!(gaps.len(), 1, "{gaps:?}");
    assert_eq!(gaps[0].1.reason, GapReason::MemoryLost);
    drop(server);
}

#[test]
fn a_read_that_is_dropped_early_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let _server = start(directory.path());
    let topic = live_topic(directory.path(), "disk", "");
    push(&topic, 0..100);
    let reader = topic.read(ReadOptions::default()).unwrap();
    assert!(reader.events().next().is_some());
    drop(reader);
    assert!(topic.describe_consumers("").unwrap().is_empty());
    let read = topic.read(ReadOptions::default()).unwrap();
    assert!(matches!(
        read.next_batch(10, Some(WATCHDOG)),
        Ok(Read::Events(_))
    ));
    assert!(topic.describe_consumers("").unwrap().is_empty());
}
