//! Consumers of the newest events alone: against a scripted server that delivers everything, as
//! one of an earlier version does, and against the real one.

use crate::live;
use crate::reading;
use crate::world;

use bytes::Bytes;
use client::*;
use live::{WATCHDOG, connect, push, start};
use reading::{MINUTE, P0, fill, number, open, pull};
use std::collections::BTreeMap;
use std::time::Duration;
use world::World;

fn latest(start: When) -> ConsumerOptions {
    ConsumerOptions {
        latest: true,
        start,
        ..ConsumerOptions::default()
    }
}

fn data_of(event: &ConsumedEvent) -> Vec<u8> {
    match event.data() {
        EventDataRef::Inline(bytes) => bytes.to_vec(),
        _ => Vec::new(),
    }
}

fn settle(world: &mut World) {
    world.run_until(Duration::from_secs(1), |_| false);
}

#[test]
fn of_what_arrived_the_newest_is_handed_out_and_the_rest_counted() {
    let mut world = World::new();
    let topic = world.topic(1);
    fill(&mut world, &topic, 0..10, 3, 5);
    let consumer = open(&mut world, &topic, latest(Start::Beginning.into()));
    settle(&mut world);
    assert_eq!(number(&pull(&mut world, &consumer).unwrap().unwrap()), 9);
    assert_eq!(consumer.skipped(), 9);
    // However long the program is away, one event waits for it.
    for round in 1..20 {
        fill(&mut world, &topic, 10 * round..10 * (round + 1), 3, 5);
        settle(&mut world);
    }
    let event = pull(&mut world, &consumer).unwrap().unwrap();
    assert_eq!(number(&event), 199);
    assert_eq!(data_of(&event), [199; 5]);
    assert_eq!(consumer.skipped() + 2, 200, "skipped, and two handed out");
    assert!(consumer.pull(Some(Duration::ZERO)).unwrap().is_none());
    consumer.acknowledge(event.id()).unwrap();
    let flush = consumer.begin_flush_acknowledgements(MINUTE);
    world.wait(flush).unwrap();
    let cursors = &world.server.topics["events"].cursors;
    assert_eq!(cursors.values().next().unwrap().offset.0, 200);
}

/// Lost connections and restarts: nothing comes twice, the last event comes, the count is right.
#[test]
fn a_connection_lost_at_any_message_leaves_the_newest_event() {
    for cut_at in 1..=10 {
        let mut world = World::new();
        let topic = world.topic(2);
        let from = world.server.messages + cut_at;
        world.server.cut_before.insert(from);
        world.server.cut_behind.insert(from + 4);
        let consumer = open(&mut world, &topic, latest(Start::Beginning.into()));
        let (mut last, mut count) = (BTreeMap::new(), 0);
        for round in 0..10 {
            fill(&mut world, &topic, 10 * round..10 * (round + 1), 2, 5);
            settle(&mut world);
            while let Ok(Some(event)) = consumer.pull(Some(Duration::ZERO)) {
                let (partition, offset) = (event.id().partition, event.id().offset.0);
                let before = last.insert(partition, offset);
                assert!(before.is_none_or(|before| before < offset), "cut {cut_at}");
                count += 1;
            }
        }
        let mut ended = 0;
        for (partition, stored) in world.server.topics["events"].partitions.iter().enumerate() {
            let index = PartitionIndex(partition as u32);
            assert_eq!(last[&index] + 1, stored.events.len() as u64, "cut {cut_at}");
            ended += stored.events.len() as u64;
        }
        assert_eq!(consumer.skipped() + count, ended, "cut {cut_at}");
    }
}

/// A gap takes no credit, and gives none back: the fake server holds consumers to that.
#[test]
fn a_loss_makes_no_more_room_for_what_comes() {
    for of_memory in [false, true] {
        let mut world = World::new();
        let topic = world.topic(1);
        fill(&mut world, &topic, 0..10, 3, 5);
        let consumer = open(&mut world, &topic, latest(Start::Beginning.into()));
        settle(&mut world);
        pull(&mut world, &consumer).unwrap().unwrap();
        match of_memory {
            true => world.server.lose_memory("events", 0),
            false => world.server.lose_power("events", 0, 10),
        }
        settle(&mut world);
        fill(&mut world, &topic, 10..20, 3, 5);
        settle(&mut world);
        let event = pull(&mut world, &consumer).unwrap().unwrap();
        assert_eq!(number(&event), 19);
        assert_eq!(consumer.skipped() + 2, 20, "of memory: {of_memory}");
    }
}

/// What a power loss spared is read in the next incarnation, and counted there alone.
#[test]
fn unread_events_that_a_power_loss_spared_are_skipped_once() {
    let mut world = World::new();
    let topic = world.topic(1);
    fill(&mut world, &topic, 0..10, 3, 5);
    let consumer = open(&mut world, &topic, latest(Start::Cursor.into()));
    settle(&mut world);
    let event = pull(&mut world, &consumer).unwrap().unwrap();
    consumer.acknowledge(event.id()).unwrap();
    let flush = consumer.begin_flush_acknowledgements(MINUTE);
    world.wait(flush).unwrap();
    drop(consumer);
    fill(&mut world, &topic, 10..20, 3, 5);
    world.server.lose_power("events", 0, 10);
    let consumer = open(&mut world, &topic, latest(Start::Cursor.into()));
    settle(&mut world);
    let event = pull(&mut world, &consumer).unwrap().unwrap();
    assert_eq!(number(&event), 19);
    assert_eq!(consumer.skipped() + 1, 10);
}

fn create(driver: &Driver) -> TopicHandle {
    let definition = Definition::builder().validator(topic::ValidatorKind::None);
    let storage = PartitionStorage {
        kind: "disk".into(),
        config: "".into(),
    };
    driver
        .create_topic("frames", &definition.build().unwrap(), &[storage])
        .unwrap()
}

#[test]
fn a_viewer_of_a_server_gets_the_newest_event() {
    for size in [0, 100, 300_000] {
        let directory = tempfile::tempdir().unwrap();
        let server = start(directory.path());
        let driver = connect(directory.path());
        let topic = create(&driver);
        let producer = topic.producer(ProducerOptions::default()).unwrap();
        let push = |range: std::ops::Range<u64>| {
            for index in range {
                let metadata = index.to_le_bytes();
                let mut event = Event::new(&metadata);
                if size > 0 {
                    event.data = vec![Bytes::from(vec![index as u8; size])];
                }
                producer.push(event).unwrap();
            }
            producer.flush(WATCHDOG).unwrap();
        };
        push(0..50);
        // Where it has acknowledged all, too, it begins with the event that is the newest.
        for _ in 0..2 {
            let viewer = topic.consumer("viewer", latest(When::Last(1))).unwrap();
            let event = viewer.pull(Some(WATCHDOG)).unwrap().unwrap();
            assert_eq!(event.id().offset.0, 49);
            assert_eq!(viewer.skipped(), 0);
            viewer.acknowledge(event.id()).unwrap();
            viewer.close().unwrap();
        }
        let viewer = topic.consumer("viewer", latest(When::Last(1))).unwrap();
        let mut offsets = vec![viewer.pull(Some(WATCHDOG)).unwrap().unwrap().id().offset.0];
        // Others' pushes go on while it looks; it is shown ever newer ones, and the last.
        std::thread::scope(|scope| {
            scope.spawn(|| push(50..300));
            while *offsets.last().unwrap() < 299 {
                let event = viewer.pull(Some(WATCHDOG)).unwrap().unwrap();
                let index = live::number(&event);
                assert_eq!(event.id().offset.0, index);
                let data = data_of(&event);
                assert_eq!(data, vec![index as u8; size]);
                offsets.push(index);
            }
        });
        assert!(offsets.is_sorted_by(|one, next| one < next), "{offsets:?}");
        let between = 299 - 49 + 1;
        assert_eq!(viewer.skipped() + offsets.len() as u64, between);
        drop((viewer, producer, topic, driver));
        drop(server);
    }
}

/// The server is started again while the viewer is open: it goes on behind what it had.
#[test]
fn a_restarted_server_shows_the_newest_event() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path());
    let driver = connect(directory.path());
    let topic = create(&driver);
    push(&topic, 0..20);
    let viewer = topic
        .consumer("viewer", latest(Start::Beginning.into()))
        .unwrap();
    assert_eq!(
        live::number(&viewer.pull(Some(WATCHDOG)).unwrap().unwrap()),
        19
    );
    server.kill();
    let server = start(directory.path());
    push(&topic, 20..40);
    let mut had = 1;
    loop {
        let event = match viewer.pull(Some(WATCHDOG)) {
            Err(ClientError::Unreachable { .. }) => continue,
            event => event.unwrap().unwrap(),
        };
        had += 1;
        if live::number(&event) == 39 {
            break;
        }
    }
    assert_eq!(viewer.position(P0).unwrap().offset.0, 40);
    assert_eq!(viewer.skipped() + had, 40);
    drop((viewer, topic, driver));
    drop(server);
}
