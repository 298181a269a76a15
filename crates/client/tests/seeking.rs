//! Seeks that are not waited for: what is acknowledged behind them, and
//! other seeks, however often the server asks for them to be tried again.

use crate::reading;
use crate::world;

use client::*;
use reading::*;
use wire::message::Method;
use wire::{ErrorCode, ErrorReply};
use world::World;

const P1: PartitionIndex = PartitionIndex(1);

/// A consumer that has read all ten events of each partition.
fn read_up(partitions: usize) -> (World, Consumer) {
    let mut world = World::new();
    let topic = world.topic(partitions);
    fill(&mut world, &topic, 0..10 * partitions, 10, 0);
    let consumer = open(&mut world, &topic, ConsumerOptions::default());
    assert_eq!(
        pull_all(&mut world, &consumer, 10 * partitions).len(),
        10 * partitions
    );
    (world, consumer)
}

fn event(partition: PartitionIndex, offset: u64) -> EventId {
    EventId {
        partition,
        incarnation: Incarnation(1),
        offset: Offset(offset),
    }
}

/// The next cursor is to be tried again, in a while.
fn refuse(world: &mut World, after_ms: u32) {
    let error = ErrorReply::retryable(ErrorCode::StorageFull, after_ms, "the disk is full");
    world.server.refuse(Method::MoveCursors, error);
}

fn cursor(world: &World, partition: PartitionIndex) -> Option<Position> {
    let key = ("reader".to_owned(), partition.0);
    world.server.topics["events"].cursors.get(&key).copied()
}

#[test]
fn what_is_acknowledged_behind_a_seek_is_not_undone_by_it() {
    let (mut world, consumer) = read_up(1);
    for _ in 0..3 {
        refuse(&mut world, 500);
    }
    let mut seek = consumer.begin_seek(P0, at(1, 4)).unwrap();
    assert_eq!(pull_all(&mut world, &consumer, 3), [4, 5, 6]);
    consumer.acknowledge(event(P0, 6)).unwrap();
    let flush = consumer.begin_flush_acknowledgements(MINUTE);
    assert!(!world.run_until(SECOND, |world| cursor(world, P0).is_some()));
    world.wait(flush).unwrap();
    seek.try_get().expect("answered before the flush").unwrap();
    assert_eq!(cursor(&world, P0), Some(at(1, 7)));
    world.run_until(MINUTE, |_| false);
    assert_eq!(cursor(&world, P0), Some(at(1, 7)));
}

#[test]
fn what_was_held_is_sent_without_being_asked_for() {
    let (mut world, consumer) = read_up(1);
    refuse(&mut world, 5_000);
    let seek = consumer.begin_seek(P0, at(1, 4)).unwrap();
    world.run_until(SECOND, |_| false);
    consumer.acknowledge(event(P0, 8)).unwrap();
    world.wait(seek).unwrap();
    assert_eq!(cursor(&world, P0), Some(at(1, 4)));
    assert!(world.run_until(SECOND, |world| cursor(world, P0) == Some(at(1, 9))));
}

#[test]
fn other_partitions_do_not_wait_for_a_seek() {
    let (mut world, consumer) = read_up(2);
    refuse(&mut world, 30_000);
    let seek = consumer.begin_seek(P0, at(1, 4)).unwrap();
    world.settle();
    consumer.acknowledge(event(P0, 6)).unwrap();
    consumer.acknowledge(event(P1, 8)).unwrap();
    let mut flush = consumer.begin_flush_acknowledgements(MINUTE);
    assert!(world.run_until(SECOND, |world| cursor(world, P1) == Some(at(1, 9))));
    assert!(flush.try_get().is_none(), "one acknowledgement is held");
    world.wait(seek).unwrap();
    world.wait(flush).unwrap();
    assert_eq!(cursor(&world, P0), Some(at(1, 7)));
}

#[test]
fn a_seek_is_not_undone_by_the_one_before_it() {
    let (mut world, consumer) = read_up(1);
    refuse(&mut world, 2_000);
    let mut first = consumer.begin_seek(P0, at(1, 8)).unwrap();
    world.run_until(SECOND, |_| false);
    let second = consumer.begin_seek(P0, at(1, 2)).unwrap();
    world.wait(second).unwrap();
    first.try_get().expect("answered first").unwrap();
    assert_eq!(cursor(&world, P0), Some(at(1, 2)));
    assert_eq!(pull_all(&mut world, &consumer, 2), [2, 3]);
}

#[test]
fn a_lost_connection_keeps_seeks_and_acknowledgements_in_order() {
    for cut_at in 1..=8 {
        for behind in [false, true] {
            let (mut world, consumer) = read_up(1);
            refuse(&mut world, 100);
            let from = world.server.messages + cut_at;
            let cuts = match behind {
                true => &mut world.server.cut_behind,
                false => &mut world.server.cut_before,
            };
            cuts.insert(from);
            cuts.insert(from + 3);
            let seek = consumer.begin_seek(P0, at(1, 3)).unwrap();
            let again = consumer.begin_seek(P0, at(1, 5)).unwrap();
            consumer.acknowledge(event(P0, 7)).unwrap();
            let flush = consumer.begin_flush_acknowledgements(MINUTE);
            world.wait(flush).unwrap();
            world.wait(seek).unwrap();
            world.wait(again).unwrap();
            let cursor = cursor(&world, P0);
            assert_eq!(cursor, Some(at(1, 8)), "cut at {cut_at}, behind: {behind}");
        }
    }
}

#[test]
fn a_flush_says_what_it_waited_for() {
    let (mut world, consumer) = read_up(1);
    refuse(&mut world, 20_000);
    let seek = consumer.begin_seek(P0, at(1, 4)).unwrap();
    world.settle();
    consumer.acknowledge(event(P0, 6)).unwrap();
    let begun = world.now();
    let flush = consumer.begin_flush_acknowledgements(10 * SECOND);
    let error = world.wait(flush).unwrap_err();
    assert_eq!(world.now() - begun, 10 * SECOND);
    let text = error.to_string();
    assert!(error.is_timeout(), "{text}");
    assert!(
        text.contains("behind seeks of partitions [0] that are not answered (10.0 s)"),
        "{text}"
    );
    assert!(text.contains("last sign of life"), "{text}");
    // Nothing is lost by it.
    world.wait(seek).unwrap();
    assert!(world.run_until(SECOND, |world| cursor(world, P0) == Some(at(1, 7))));
}

#[test]
fn a_seek_that_fails_lets_go_of_what_it_held() {
    let (mut world, consumer) = read_up(1);
    let error = ErrorReply::fatal(ErrorCode::StorageFailed, "the disk is broken");
    world.server.refuse(Method::MoveCursors, error);
    let seek = consumer.begin_seek(P0, at(1, 4)).unwrap();
    consumer.acknowledge(event(P0, 6)).unwrap();
    let flush = consumer.begin_flush_acknowledgements(MINUTE);
    assert!(world.wait(seek).is_err());
    world.wait(flush).unwrap();
    assert_eq!(cursor(&world, P0), Some(at(1, 7)));
}
