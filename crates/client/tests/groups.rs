//! Members of groups against a scripted server, in one thread, under a
//! virtual clock: assignment, revocation, acknowledgements, expulsion.

use crate::fake;
use crate::reading;
use crate::world;

use client::*;
use fake::FakeGroup;
use reading::{MINUTE, SECOND, fill, pull};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use wire::ErrorCode;
use wire::message::Method;
use world::World;

/// What a member's callbacks were told, in order.
type Log = Arc<Mutex<Vec<(&'static str, Vec<u32>)>>>;

fn member(log: &Log) -> GroupMember {
    let note = |what: &'static str| -> Option<Arc<PartitionsCallback>> {
        let log = log.clone();
        Some(Arc::new(move |partitions: &[PartitionIndex]| {
            let partitions = partitions.iter().map(|one| one.0).collect();
            log.lock().unwrap().push((what, partitions));
        }))
    };
    GroupMember {
        on_assigned: note("assigned"),
        on_revoking: note("revoking"),
        on_lost: note("lost"),
        ..GroupMember::default()
    }
}

fn join(world: &mut World, topic: &TopicHandle, member: GroupMember) -> Consumer {
    let options = ConsumerOptions {
        group: Some(member),
        acknowledge_interval: Duration::from_millis(1),
        ..ConsumerOptions::default()
    };
    let pending = topic.begin_consumer("share", options);
    world.wait(pending).unwrap()
}

fn group(world: &mut World) -> &mut FakeGroup {
    let topic = world.server.topics.get_mut("events").unwrap();
    topic.groups.get_mut("share").unwrap()
}

fn cursor(world: &World, partition: u32) -> u64 {
    let cursors = &world.server.topics["events"].cursors;
    let cursor = cursors.get(&("share".into(), partition));
    cursor.map_or(0, |cursor| cursor.offset.0)
}

fn flush(world: &mut World, consumer: &Consumer) -> Result<(), ClientError> {
    let pending = consumer.begin_flush_acknowledgements(MINUTE);
    world.wait(pending)
}

#[test]
fn callbacks_end_where_the_member_is_dropped_and_not_in_the_core() {
    let mut world = World::new();
    let topic = world.topic(1);
    let log = Log::default();
    let consumer = join(&mut world, &topic, member(&log));
    drop(consumer);
    // The core has not run since.
    assert_eq!(Arc::strong_count(&log), 1);
}

#[test]
fn a_connection_lost_at_any_message_loses_nothing_of_what_is_assigned() {
    const EVENTS: usize = 40;
    for cut_at in 1..=12 {
        for behind in [false, true] {
            let mut world = World::new();
            let topic = world.topic(4);
            fill(&mut world, &topic, 0..EVENTS, 3, 0);
            let from = world.server.messages + cut_at;
            let cuts = match behind {
                true => &mut world.server.cut_behind,
                false => &mut world.server.cut_before,
            };
            cuts.insert(from);
            cuts.insert(from + 4);
            let log = Log::default();
            let consumer = join(&mut world, &topic, member(&log));
            group(&mut world).assign(&[0, 2], &[]);
            let ends: Vec<u64> = [0, 2]
                .map(|one| world.server.partition("events", one).events.len() as u64)
                .into();
            let count = ends.iter().sum();
            let mut seen = std::collections::BTreeSet::new();
            for _ in 0u64..count {
                let event = pull(&mut world, &consumer).unwrap().expect("an event");
                assert!(seen.insert(event.id()), "cut at {cut_at}, behind {behind}");
                consumer.acknowledge(event.id()).unwrap();
            }
            flush(&mut world, &consumer).unwrap();
            assert_eq!([cursor(&world, 0), cursor(&world, 2)], [ends[0], ends[1]]);
            assert_eq!(consumer.partitions(), [0, 2]);
            assert_eq!(*log.lock().unwrap(), [("assigned", vec![0, 2])]);
            // A cut that is still to come is not to hit the last messages.
            world.server.cut_before.clear();
            world.server.cut_behind.clear();
            let id = group(&mut world).member;
            drop(consumer);
            world.run_until(SECOND, |_| false);
            assert_eq!(group(&mut world).left, [id]);
        }
    }
}

#[test]
fn a_revoked_partition_is_acknowledged_and_then_released() {
    for cut in [false, true] {
        let mut world = World::new();
        let topic = world.topic(2);
        fill(&mut world, &topic, 0..40, 5, 0);
        let log = Log::default();
        let consumer = join(&mut world, &topic, member(&log));
        group(&mut world).assign(&[0, 1], &[]);
        let mut last: Option<EventId> = None;
        while last.is_none_or(|last| last.offset.0 < 2) {
            let event = pull(&mut world, &consumer).unwrap().expect("an event");
            if event.id().partition == PartitionIndex(1) {
                last = Some(event.id());
            }
        }
        let last = last.expect("it was waited for");
        group(&mut world).assign(&[0, 1], &[1]);
        // Nothing happens before the program comes.
        world.run_until(SECOND, |_| false);
        assert_eq!(group(&mut world).owned(), [0, 1]);
        // It is still its own until then.
        consumer.acknowledge(last).unwrap();
        if cut {
            world.server.cut();
        }
        // Until a second after it stands again a pull reports the cut.
        world.run_until(2 * SECOND, |_| false);
        let event = consumer.pull(Some(Duration::ZERO)).unwrap();
        assert!(event.is_none_or(|event| event.id().partition == PartitionIndex(0)));
        world.run_until(SECOND, |_| false);
        assert_eq!(group(&mut world).owned(), [0]);
        assert_eq!(
            cursor(&world, 1),
            last.offset.0 + 1,
            "before it was released"
        );
        assert_eq!(
            *log.lock().unwrap(),
            [("assigned", vec![0, 1]), ("revoking", vec![1])]
        );
        // Released is released.
        let error = consumer.acknowledge(last).unwrap_err();
        assert_eq!(error.code(), Some(ErrorCode::MemberFenced));
        assert_eq!(consumer.partitions(), [0]);
        // It may come back, and goes on at the cursor.
        group(&mut world).assign(&[0, 1], &[]);
        let mut next = None;
        world.run_until(MINUTE, |_| {
            let event = consumer.pull(Some(Duration::ZERO)).unwrap();
            next = event.map(|event| event.id());
            next.is_some_and(|id| id.partition == PartitionIndex(1))
        });
        assert_eq!(next.map(|id| id.offset.0), Some(last.offset.0 + 1));
    }
}

#[test]
fn an_acknowledgement_of_a_partition_that_went_fails_alone() {
    let mut world = World::new();
    let topic = world.topic(3);
    fill(&mut world, &topic, 0..30, 2, 0);
    let log = Log::default();
    let consumer = join(&mut world, &topic, member(&log));
    group(&mut world).assign(&[0, 1, 2], &[]);
    let mut ids = std::collections::BTreeMap::new();
    while ids.len() < 3 {
        let event = pull(&mut world, &consumer).unwrap().expect("an event");
        ids.insert(event.id().partition.0, event.id());
    }
    for id in ids.values() {
        consumer.acknowledge(*id).unwrap();
    }
    // It goes while the acknowledgements are on their way.
    world.server.is_late = true;
    world.run_until(SECOND, |_| false);
    group(&mut world).assign(&[0, 2], &[]);
    let moves = world.server.requests(Method::MoveMemberCursors);
    world.server.is_late = false;
    world.run_until(SECOND, |_| false);
    assert!(world.server.requests(Method::MoveMemberCursors) >= moves + 3);
    assert_eq!(cursor(&world, 0), ids[&0].offset.0 + 1);
    assert_eq!(cursor(&world, 1), 0);
    assert_eq!(cursor(&world, 2), ids[&2].offset.0 + 1);
    consumer.acknowledge(ids[&2]).unwrap();
    let error = consumer.acknowledge(ids[&1]).unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::MemberFenced));
    flush(&mut world, &consumer).unwrap();
    consumer.pull(Some(Duration::ZERO)).unwrap();
    assert_eq!(log.lock().unwrap()[1], ("lost", vec![1]));
}

#[test]
fn what_was_acknowledged_of_a_partition_that_was_lost_does_not_count_when_it_is_back() {
    let mut world = World::new();
    let topic = world.topic(2);
    fill(&mut world, &topic, 0..40, 2, 0);
    let log = Log::default();
    let consumer = join(&mut world, &topic, member(&log));
    group(&mut world).assign(&[0, 1], &[]);
    let mut last = std::collections::BTreeMap::new();
    while last.len() < 2 {
        let event = pull(&mut world, &consumer).unwrap().expect("an event");
        last.insert(event.id().partition.0, event.id());
    }
    // The acknowledgements come when one partition is gone, and their refusal
    // when it is back.
    world.server.is_late = true;
    for id in last.values() {
        consumer.acknowledge(*id).unwrap();
    }
    world.run_until(SECOND, |_| false);
    group(&mut world).assign(&[0], &[]);
    world.run_until(SECOND, |_| false);
    group(&mut world).assign(&[0, 1], &[]);
    world.run_until(SECOND, |_| false);
    // Nor what is acknowledged before the program was told.
    let error = consumer.acknowledge(last[&1]).unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::MemberFenced));
    let fenced = wire::ErrorReply::fatal(ErrorCode::MemberFenced, "no member any more");
    world.server.refuse(Method::MoveMemberCursors, fenced);
    world.server.is_late = false;
    world.run_until(SECOND, |_| false);
    assert_eq!(cursor(&world, 0), last[&0].offset.0 + 1);
    assert_eq!(cursor(&world, 1), 0, "it is read from there");
    let mut again = None;
    while again.is_none() {
        let event = pull(&mut world, &consumer).unwrap().expect("an event");
        again = Some(event.id()).filter(|id| id.partition == PartitionIndex(1));
    }
    let again = again.expect("it was waited for");
    assert_eq!(again.offset.0, 0);
    consumer.acknowledge(again).unwrap();
    flush(&mut world, &consumer).unwrap();
    assert_eq!(cursor(&world, 1), 1);
    let told = [
        ("assigned", vec![0, 1]),
        ("lost", vec![1]),
        ("assigned", vec![1]),
    ];
    assert_eq!(*log.lock().unwrap(), told);
}

#[test]
fn a_member_that_was_expelled_joins_afresh_and_reads_from_the_cursor() {
    for cut in [false, true] {
        let mut world = World::new();
        let topic = world.topic(1);
        fill(&mut world, &topic, 0..10, 2, 0);
        let log = Log::default();
        let consumer = join(&mut world, &topic, member(&log));
        group(&mut world).assign(&[0], &[]);
        for _ in 0..4 {
            pull(&mut world, &consumer).unwrap().expect("an event");
        }
        let id = EventId {
            partition: PartitionIndex(0),
            incarnation: Incarnation(1),
            offset: Offset(1),
        };
        consumer.acknowledge(id).unwrap();
        flush(&mut world, &consumer).unwrap();
        if cut {
            // Away for longer than the session timeout, it knows by itself.
            world.server.is_silent = true;
            world.server.cut();
            world.run_until(Duration::from_secs(60), |_| false);
            world.server.is_silent = false;
        }
        group(&mut world).expel();
        let joined = |world: &mut World| group(world).joins.len() == 2;
        assert!(world.run_until(MINUTE, joined));
        group(&mut world).assign(&[0], &[]);
        let event = pull(&mut world, &consumer).unwrap().expect("an event");
        assert_eq!(event.id().offset.0, 2, "cut: {cut}");
        let told: Vec<_> = log.lock().unwrap().iter().map(|(what, _)| *what).collect();
        assert_eq!(told, ["assigned", "lost", "assigned"]);
        let joins = &group(&mut world).joins;
        assert_ne!(joins[0], joins[1]);
    }
}

#[test]
fn a_member_that_gives_up_coming_back_leaves_nobody_behind() {
    let mut world = World::new();
    let topic = world.topic(1);
    fill(&mut world, &topic, 0..10, 2, 0);
    let log = Log::default();
    let consumer = join(&mut world, &topic, member(&log));
    group(&mut world).assign(&[0], &[]);
    pull(&mut world, &consumer).unwrap().expect("an event");
    // It is connected again at once, and its request to come back is done
    // only when it has begun anew.
    world.server.cut();
    world.server.is_late = true;
    world.run_until(Duration::from_secs(20), |_| false);
    world.server.is_late = false;
    let joined = |world: &mut World| group(world).joins.len() == 2;
    assert!(world.run_until(MINUTE, joined));
    world.run_until(SECOND, |_| false);
    let group = group(&mut world);
    assert_eq!(
        group.left,
        group.joins[..1],
        "who does not read is no member"
    );
    assert_eq!(group.member, group.joins[1]);
    group.assign(&[0], &[]);
    let event = pull(&mut world, &consumer).unwrap().expect("an event");
    assert_eq!(event.id().offset.0, 0);
    let told: Vec<_> = log.lock().unwrap().iter().map(|(what, _)| *what).collect();
    assert_eq!(told, ["assigned", "lost", "assigned"]);
}

#[test]
fn a_program_that_stays_away_is_told_and_joins_again() {
    let mut world = World::new();
    let topic = world.topic(1);
    fill(&mut world, &topic, 0..10, 2, 0);
    let log = Log::default();
    let options = GroupMember {
        processing_timeout: Some(Duration::from_secs(4)),
        ..member(&log)
    };
    let consumer = join(&mut world, &topic, options);
    group(&mut world).assign(&[0], &[]);
    let event = pull(&mut world, &consumer).unwrap().expect("an event");
    world.run_until(Duration::from_secs(6), |_| false);
    assert_eq!(group(&mut world).left.len(), 1);
    let late = consumer.acknowledge(event.id()).unwrap_err();
    assert_eq!(late.code(), Some(ErrorCode::MemberFenced));
    let error = consumer.pull(Some(Duration::ZERO)).unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::MemberFenced));
    assert!(error.to_string().contains("processing timeout"), "{error}");
    world.run_until(SECOND, |_| false);
    group(&mut world).assign(&[0], &[]);
    let event = pull(&mut world, &consumer).unwrap().expect("an event");
    assert_eq!(event.id().offset.0, 0);
    // It is watched again.
    world.run_until(Duration::from_secs(6), |_| false);
    assert_eq!(group(&mut world).left.len(), 2);
}

#[test]
fn a_seek_of_an_own_partition_moves_the_group() {
    let mut world = World::new();
    let topic = world.topic(1);
    fill(&mut world, &topic, 0..10, 2, 0);
    let log = Log::default();
    let consumer = join(&mut world, &topic, member(&log));
    group(&mut world).assign(&[0], &[]);
    pull(&mut world, &consumer).unwrap().expect("an event");
    let seek = consumer
        .begin_seek(PartitionIndex(0), reading::at(1, 7))
        .unwrap();
    world.wait(seek).unwrap();
    assert_eq!(cursor(&world, 0), 7);
    let event = pull(&mut world, &consumer).unwrap().expect("an event");
    assert_eq!(event.id().offset.0, 7);
    let error = consumer
        .begin_seek(PartitionIndex(1), reading::at(1, 0))
        .err()
        .unwrap();
    assert!(matches!(error, ClientError::UnknownPartition(_)), "{error}");
}
