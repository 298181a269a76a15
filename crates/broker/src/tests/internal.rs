//! The table's log and the ledger: compaction, and crashes amid it.

use super::harness::*;
use log::testing::{Fault, Survival};
use std::sync::Arc;
use wire::message::*;
use wire::*;

fn small(mut ground: Ground) -> Ground {
    ground.limits.internal_bytes_max = 16 * 1024;
    ground
}

fn ledger_segments(ground: &Ground) -> u64 {
    let paths = ground.disk.paths().into_iter();
    let logs = paths.filter(|path| {
        path.starts_with("/data/ledgers") && path.extension().is_some_and(|e| e == "log")
    });
    logs.count() as u64
}

/// Moves a cursor many times: the log stays bounded, and a restart at any
/// time finds the last position.
#[test]
fn the_ledger_is_bounded() {
    let mut ground = small(Ground::new());
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    let events = vec!["e"; 400];
    world.stored(link, topic, (5, 0), &events);
    for offset in 1..=400 {
        let id = world.move_cursor(link, topic, CursorMove::Acknowledge, at(1, offset));
        assert_eq!(world.error(link, id), None);
        if offset % 50 == 0 {
            let count = ledger_segments(&ground);
            assert!(count <= 16, "{count} segments after {offset} moves");
            drop(world);
            ground.kill();
            world = ground.start();
            assert_eq!(world.connect(), link);
            assert_eq!(world.cursor(link, topic), Some(at(1, offset)));
            assert_eq!(world.describe(link, "t").unwrap().partitions.len(), 1);
        }
    }
}

/// The machine stops at every operation while the tables are written anew;
/// what was acknowledged is found.
#[test]
fn a_crash_amid_compaction_loses_nothing() {
    let mut ground = small(Ground::new());
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    let events = vec!["e"; 200];
    world.stored(link, topic, (5, 0), &events);
    drop(world);
    ground.kill();
    let begun = ground.disk.clone();
    let run = |stop: Option<u64>| {
        let mut ground = small(Ground::on(Arc::new(begun.fork())));
        let mut world = ground.start();
        let first = ground.disk.operation_count();
        if let Some(stop) = stop {
            ground.disk.fail_at(first + stop, Fault::Stop(0));
        }
        let link = world.connect();
        let mut reached = 0;
        for offset in 1..=120 {
            let id = world.move_cursor(link, topic, CursorMove::Acknowledge, at(1, offset));
            match world.answer(link, id) {
                Some(Ok(_)) => reached = offset,
                _ => break,
            }
        }
        (ground.disk.operation_count() - first, reached, ground)
    };
    let (count, reached, ground) = run(None);
    assert_eq!(reached, 120);
    let removed = ground.disk.trace().into_iter();
    let removed = removed.filter(|traced| traced.path.starts_with("/data/ledgers"));
    let purged = removed
        .filter(|traced| ["remove", "rename"].contains(&traced.what))
        .count();
    assert!(purged > 0, "nothing was compacted");
    for stop in (0..count).step_by(3) {
        for survival in [None, Some(Survival::Nothing), Some(Survival::Some(stop))] {
            let (_, reached, mut ground) = run(Some(stop));
            match survival {
                None => ground.kill(),
                Some(survival) => ground.power_loss(survival),
            }
            let mut world = ground.start();
            let link = world.connect();
            let found = world
                .cursor(link, topic)
                .map_or(0, |cursor| cursor.offset.0);
            assert!(
                (reached..=reached + 1).contains(&found),
                "stop {stop}, {survival:?}: acknowledged {reached}, found {found}"
            );
            assert!(world.describe(link, "t").is_ok());
        }
    }
}

#[test]
fn a_first_start_that_dies_anywhere_can_be_repeated() {
    let count = {
        let mut ground = Ground::new();
        let before = ground.disk.operation_count();
        drop(ground.start());
        ground.disk.operation_count() - before
    };
    for stop in 0..count {
        let mut ground = Ground::new();
        let before = ground.disk.operation_count();
        ground.disk.fail_at(before + stop, Fault::Stop(0));
        let started = ground.try_start();
        // The last look, at what lies in lost+found, hinders nothing.
        assert_eq!(started.is_ok(), stop + 1 == count, "stop {stop} of {count}");
        drop(started);
        match stop % 2 {
            0 => ground.kill(),
            _ => ground.power_loss(Survival::Some(stop)),
        }
        let mut world = ground.start();
        let link = world.connect();
        world.topic(link);
    }
}

#[test]
fn a_partition_that_cannot_be_opened_is_described_and_the_rest_serves() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world
        .create(link, "t", "{}", &["disk", "disk"])
        .unwrap()
        .topic;
    drop(world);
    ground.kill();
    *ground.fail_open.lock().unwrap() = Some(1);
    let mut world = ground.start();
    assert_eq!(world.report.failed.len(), 1);
    let link = world.connect();
    let partitions = world.describe(link, "t").unwrap().partitions;
    assert_eq!(partitions[0].failure, "");
    assert!(partitions[1].failure.contains("told to fail"));
    world.stored(link, topic, (5, 0), &["a"]);
    let produce = Produce {
        partition: PartitionIndex(1),
        durability: Durability::Synced,
        regions: Vec::new(),
    };
    let batch = batch(topic, 5, 0, 0, &["a"]);
    let id = world.request(link, Method::Produce, topic, &produce, &batch);
    assert_eq!(
        world.error(link, id).unwrap().code,
        ErrorCode::StorageFailed
    );
}

/// A ledger whose storage fails answers everybody, and keeps nothing else from going on.
#[test]
fn a_failed_ledger_leaves_nobody_waiting() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    world.stored(link, topic, (5, 0), &["a"]);
    world.hold_disk = true;
    let moved = world.move_cursor(link, topic, CursorMove::Acknowledge, at(1, 1));
    let count = ground.disk.operation_count();
    ground.disk.fail_at(count + 1, Fault::Error);
    world.release_disk();
    assert_eq!(
        world.error(link, moved).unwrap().code,
        ErrorCode::StorageFailed
    );
    let again = world.move_cursor(link, topic, CursorMove::Acknowledge, at(1, 1));
    assert_eq!(
        world.error(link, again).unwrap().code,
        ErrorCode::StorageFailed
    );
    assert!(
        world
            .lines
            .iter()
            .any(|line| line.contains("the ledger (`ledgers/0`) failed"))
    );
    assert!(world.create(link, "another", "{}", &["disk"]).is_ok());
    // Events still go in and out: their partition is well.
    world.stored(link, topic, (5, 1), &["b"]);
    let subscription = world.subscribe(link, topic, "c", Start::Beginning);
    assert_eq!(world.texts(link, subscription), ["a", "b"]);
}

/// The machine stops at every operation while partitions are added and the
/// topic is deleted: what is found is a whole topic, or nothing.
#[test]
fn a_crash_amid_growth_and_deletion_leaves_whole_topics() {
    let mut started = Ground::new();
    let mut world = started.start();
    let link = world.connect();
    let topic = world.topic(link);
    world.stored(link, topic, (5, 0), &["a"]);
    drop(world);
    started.kill();
    let run = |stop: Option<u64>| {
        let mut ground = Ground::on(Arc::new(started.disk.fork()));
        let mut world = ground.start();
        let first = ground.disk.operation_count();
        if let Some(stop) = stop {
            ground.disk.fail_at(first + stop, Fault::Stop(0));
        }
        let link = world.connect();
        let add = AddPartitions {
            partitions: vec![storage("disk"), storage("disk")],
        };
        let added = world.request(link, Method::AddPartitions, topic, &add, &[]);
        let added = matches!(world.answer(link, added), Some(Ok(_)));
        let name = TopicName { name: "t".into() };
        let deleted = world.request(link, Method::DeleteTopic, TopicId(0), &name, &[]);
        let deleted = matches!(world.answer(link, deleted), Some(Ok(_)));
        let count = ground.disk.operation_count() - first;
        (count, added, deleted, ground)
    };
    let (count, added, deleted, ground) = run(None);
    assert!(added && deleted && ground.directories().is_empty());
    for stop in 0..count {
        for survival in [None, Some(Survival::Nothing), Some(Survival::Some(stop))] {
            let (_, added, deleted, mut ground) = run(Some(stop));
            match survival {
                None => ground.kill(),
                Some(survival) => ground.power_loss(survival),
            }
            let mut world = ground.start();
            let link = world.connect();
            let context = format!("stop {stop}, {survival:?}");
            match world.describe(link, "t") {
                Ok(description) => {
                    assert!(!deleted, "{context}: a deleted topic is back");
                    let partitions = description.partitions;
                    assert!([1, 3].contains(&partitions.len()), "{context}");
                    assert!(partitions.len() == 3 || !added, "{context}");
                    assert_eq!(ground.directories().len(), partitions.len(), "{context}");
                    assert!(
                        partitions
                            .iter()
                            .all(|partition| partition.failure.is_empty())
                    );
                    let subscription = world.subscribe(link, topic, "c", Start::Beginning);
                    assert_eq!(world.texts(link, subscription), ["a"], "{context}");
                }
                Err(_) => assert_eq!(ground.directories(), Vec::<String>::new(), "{context}"),
            }
        }
    }
}
