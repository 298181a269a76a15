//! Consumers against a scripted server, in one thread, under a virtual
//! clock: order, reconnects, gaps, cursors, credit.

use crate::fake;
use crate::reading;
use crate::world;

use bytes::Bytes;
use client::*;
use reading::*;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use wire::ErrorCode;
use world::World;

#[test]
fn a_connection_lost_at_any_message_neither_loses_nor_doubles_events() {
    const EVENTS: usize = 40;
    for cut_at in 1..=8 {
        for behind in [false, true] {
            let mut world = World::new();
            let topic = world.topic(2);
            fill(&mut world, &topic, 0..EVENTS, 7, 0);
            let from = world.server.messages + cut_at;
            let cuts = match behind {
                true => &mut world.server.cut_behind,
                false => &mut world.server.cut_before,
            };
            cuts.insert(from);
            cuts.insert(from + 3);
            let options = ConsumerOptions {
                acknowledge_interval: Duration::from_millis(1),
                ..ConsumerOptions::default()
            };
            let consumer = open(&mut world, &topic, options);
            let mut seen = Vec::new();
            let mut offsets = [0; 2];
            for _ in 0..EVENTS {
                let event = pull(&mut world, &consumer).unwrap().expect("an event");
                let partition = event.id().partition.0 as usize;
                assert_eq!(event.id().offset.0, offsets[partition]);
                offsets[partition] += 1;
                seen.push(number(&event));
                consumer.acknowledge(event.id()).unwrap();
            }
            seen.sort_unstable();
            assert_eq!(seen, (0..EVENTS).collect::<Vec<_>>());
            assert!(consumer.pull(Some(Duration::ZERO)).unwrap().is_none());
            let flush = consumer.begin_flush_acknowledgements(MINUTE);
            world.wait(flush).unwrap();
            let cursors: Vec<u64> = world.server.topics["events"]
                .cursors
                .values()
                .map(|cursor| cursor.offset.0)
                .collect();
            assert_eq!(cursors, offsets, "cut at {cut_at}, behind: {behind}");
        }
    }
}

#[test]
fn it_begins_at_the_cursor_the_beginning_the_end_or_a_position() {
    let mut world = World::new();
    let topic = world.topic(1);
    fill(&mut world, &topic, 0..10, 4, 0);
    let consumer = open(&mut world, &topic, ConsumerOptions::default());
    assert_eq!(pull_all(&mut world, &consumer, 3), [0, 1, 2]);
    assert_eq!(consumer.position(P0), Some(at(1, 3)));
    let id = EventId {
        partition: P0,
        incarnation: Incarnation(1),
        offset: Offset(2),
    };
    consumer.acknowledge(id).unwrap();
    let flush = consumer.begin_flush_acknowledgements(SECOND);
    world.wait(flush).unwrap();
    drop(consumer);
    let mut first = |start: Start| {
        let options = ConsumerOptions {
            start: start.into(),
            ..ConsumerOptions::default()
        };
        let consumer = open(&mut world, &topic, options);
        let event = pull(&mut world, &consumer).unwrap();
        (event.map(|event| number(&event)), consumer.position(P0))
    };
    assert_eq!(first(Start::Cursor), (Some(3), Some(at(1, 4))));
    assert_eq!(first(Start::Beginning), (Some(0), Some(at(1, 1))));
    assert_eq!(first(Start::At(at(1, 6))), (Some(6), Some(at(1, 7))));
    assert_eq!(first(Start::Latest), (None, Some(at(1, 10))));
}

#[test]
fn a_seek_goes_back_durably_and_drops_what_has_arrived() {
    let mut world = World::new();
    let topic = world.topic(1);
    fill(&mut world, &topic, 0..10, 3, 0);
    let consumer = open(&mut world, &topic, ConsumerOptions::default());
    assert_eq!(
        pull_all(&mut world, &consumer, 8),
        (0..8).collect::<Vec<_>>()
    );
    let seek = consumer.begin_seek(P0, at(1, 4)).unwrap();
    world.wait(seek).unwrap();
    assert_eq!(consumer.position(P0), Some(at(1, 4)));
    assert_eq!(
        pull_all(&mut world, &consumer, 6),
        (4..10).collect::<Vec<_>>()
    );
    let cursor = world.server.topics["events"].cursors[&("reader".into(), 0)];
    assert_eq!(cursor, at(1, 4));
    let error = consumer
        .begin_seek(PartitionIndex(7), at(1, 0))
        .err()
        .unwrap();
    assert!(matches!(error, ClientError::UnknownPartition(_)), "{error}");
    assert_eq!(
        error.to_string(),
        "partition 7 is out of range: events has 1, counted from 0"
    );
}

#[test]
fn partitions_take_turns() {
    let mut world = World::new();
    let topic = world.topic(3);
    fill(&mut world, &topic, 0..90, 5, 0);
    let consumer = open(&mut world, &topic, ConsumerOptions::default());
    world.run_until(SECOND, |_| false);
    let mut order = Vec::new();
    for _ in 0..90 {
        let event = pull(&mut world, &consumer).unwrap().unwrap();
        order.push(event.id().partition.0);
    }
    // Batches of five, one of each partition in turn.
    let turns: Vec<u32> = order.chunks(5).map(|turn| turn[0]).collect();
    for three in turns.chunks(3) {
        let mut three = three.to_vec();
        three.sort_unstable();
        assert_eq!(three, [0, 1, 2]);
    }
    let chosen = ConsumerOptions {
        partitions: Some(vec![2]),
        ..ConsumerOptions::default()
    };
    let consumer = open(&mut world, &topic, chosen);
    let event = pull(&mut world, &consumer).unwrap().unwrap();
    assert_eq!(event.id().partition.0, 2);
}

#[test]
fn a_lost_memory_partition_is_a_gap_and_not_a_mix_up() {
    let mut world = World::new();
    let topic = world.topic(1);
    fill(&mut world, &topic, 0..6, 3, 0);
    let consumer = open(&mut world, &topic, ConsumerOptions::default());
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = told.clone();
    consumer.on_gap(Arc::new(move |partition, gap| {
        tell.lock().unwrap().push((partition, *gap));
    }));
    assert_eq!(pull_all(&mut world, &consumer, 6).len(), 6);
    world.server.cut();
    world.server.lose_memory("events", 0);
    fill(&mut world, &topic, 100..104, 2, 0);
    let event = pull(&mut world, &consumer).unwrap().unwrap();
    assert_eq!(
        (
            number(&event),
            event.id().incarnation.0,
            event.id().offset.0
        ),
        (100, 2, 0)
    );
    let gaps = consumer.take_gaps();
    assert_eq!(gaps.len(), 1);
    assert_eq!(gaps[0].1.reason, GapReason::MemoryLost);
    assert_eq!(gaps[0].1.first, Offset(6));
    assert_eq!(*told.lock().unwrap(), gaps);
    assert!(consumer.take_gaps().is_empty());
    // The next loss of the connection does not bring the gap again.
    world.server.cut();
    assert_eq!(pull_all(&mut world, &consumer, 3), [101, 102, 103]);
    assert!(consumer.take_gaps().is_empty());
}

#[test]
fn a_gap_is_told_when_the_events_before_it_were_given() {
    let mut world = World::new();
    let topic = world.topic(1);
    fill(&mut world, &topic, 0..10, 5, 0);
    let consumer = open(&mut world, &topic, ConsumerOptions::default());
    world.run_until(SECOND, |_| false);
    world.server.lose_memory("events", 0);
    fill(&mut world, &topic, 100..101, 1, 0);
    world.run_until(SECOND, |_| false);
    // All of it has arrived.
    for number in 0..10 {
        assert_eq!(pull_all(&mut world, &consumer, 1), [number]);
        assert!(consumer.take_gaps().is_empty(), "before event {number}");
    }
    assert_eq!(pull_all(&mut world, &consumer, 1), [100]);
    assert_eq!(consumer.take_gaps().len(), 1);
}

#[test]
fn few_frames_are_sent_while_consuming_and_none_while_idle() {
    let mut world = World::new();
    let topic = world.topic(1);
    fill(&mut world, &topic, 0..400, 1, 2000);
    let options = ConsumerOptions {
        credit_bytes: 100_000,
        ..ConsumerOptions::default()
    };
    let consumer = open(&mut world, &topic, options);
    let sent = |world: &World| {
        let counters = world.driver.counters();
        counters
            .frames_sent
            .load(std::sync::atomic::Ordering::Relaxed)
    };
    let before = sent(&world);
    for index in 0..400 {
        let event = pull(&mut world, &consumer).unwrap().unwrap();
        assert_eq!(number(&event), index);
        consumer.acknowledge(event.id()).unwrap();
    }
    let frames = sent(&world) - before;
    assert!(frames * 8 <= 400, "{frames} frames for 400 batches");
    let flush = consumer.begin_flush_acknowledgements(SECOND);
    world.wait(flush).unwrap();
    world.run_until(SECOND, |_| false);
    let before = sent(&world);
    world.run_until(8 * SECOND, |_| false);
    assert_eq!(sent(&world), before);
    // One frame in ten seconds keeps an idle connection.
    world.run_until(10 * MINUTE, |_| false);
    let counters = world.driver.counters();
    let frames = sent(&world) - before;
    assert!(frames <= 60, "{frames} frames in ten minutes");
    assert_eq!(
        counters
            .connections
            .load(std::sync::atomic::Ordering::Relaxed),
        1
    );
}

#[test]
fn what_waits_here_is_bounded_by_the_credit() {
    let mut world = World::new();
    let topic = world.topic(1);
    fill(&mut world, &topic, 0..200, 1, 5000);
    let options = ConsumerOptions {
        credit_bytes: 50_000,
        ..ConsumerOptions::default()
    };
    let before = world.net.stats().bytes;
    let consumer = open(&mut world, &topic, options);
    world.run_until(SECOND, |_| false);
    let arrived = world.net.stats().bytes - before;
    assert!(arrived < 60_000, "{arrived} bytes came for 50000 of credit");
    // Over a reconnect what waits here counts as well.
    world.server.cut();
    world.run_until(SECOND, |_| false);
    let arrived = world.net.stats().bytes - before;
    assert!(arrived < 70_000, "{arrived} bytes came for 50000 of credit");
    assert_eq!(
        pull_all(&mut world, &consumer, 200),
        (0..200).collect::<Vec<_>>()
    );
}

#[test]
fn a_server_that_stays_away_is_reported_and_found_again() {
    let mut world = World::with(DriverOptions {
        reconnect_timeout: Some(10 * SECOND),
        ..world::options()
    });
    let topic = world.topic(1);
    let consumer = open(&mut world, &topic, ConsumerOptions::default());
    world.server.is_silent = true;
    let error = pull(&mut world, &consumer).unwrap_err();
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains("sim://server"), "{error}");
    world.server.is_silent = false;
    world.run_until(MINUTE, |_| false);
    fill(&mut world, &topic, 0..1, 1, 0);
    assert_eq!(pull_all(&mut world, &consumer, 1), [0]);
}

#[test]
fn partitions_that_are_added_are_read_and_written() {
    let mut world = World::new();
    let topic = world.topic(0);
    let consumer = open(&mut world, &topic, ConsumerOptions::default());
    let producer = topic.begin_producer(ProducerOptions::default());
    let producer = world.wait(producer).unwrap();
    assert!(producer.push_metadata(b"0").is_err());
    let add = |world: &mut World| {
        let partition = fake::FakePartition {
            incarnation: 1,
            ..fake::FakePartition::default()
        };
        let topic = world.server.topics.get_mut("events").unwrap();
        topic.partitions.push(partition);
    };
    add(&mut world);
    // Found by itself, and nothing else needs to happen for it.
    assert!(world.run_until(MINUTE, |_| producer.push_metadata(b"0").is_ok()));
    assert_eq!(pull_all(&mut world, &consumer, 1), [0]);
    assert_eq!(consumer.partitions(), [0]);
    // Found at once when somebody asks.
    add(&mut world);
    let refresh = topic.begin_refresh();
    world.wait(refresh).unwrap();
    let event = Event {
        partition: Some(1),
        ..Event::new(b"1")
    };
    producer.push(event).unwrap();
    assert_eq!(pull_all(&mut world, &consumer, 1), [1]);
    assert_eq!(consumer.partitions(), [0, 1]);
}

#[test]
fn a_deleted_topic_ends_the_subscription_with_the_servers_reason() {
    let mut world = World::new();
    let topic = world.topic(1);
    let consumer = open(&mut world, &topic, ConsumerOptions::default());
    world.server.topics.clear();
    world.server.cut();
    let error = pull(&mut world, &consumer).unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::UnknownTopic));
}

#[test]
fn batches_can_be_fetched_and_data_read_without_a_subscription() {
    let mut world = World::new();
    let topic = world.topic(1);
    fill(&mut world, &topic, 0..10, 4, 100_000);
    let request = FetchRequest {
        partition: P0,
        from: at(0, 5),
        bytes_max: 1 << 20,
        wait_max: Duration::ZERO,
        inline_data: true,
    };
    let fetch = topic.begin_fetch(request);
    let found = world.wait(fetch).unwrap().starting_at(Offset(5));
    let numbers: Vec<usize> = found.events().map(|event| number(&event)).collect();
    assert_eq!(numbers, (5..10).collect::<Vec<_>>());
    assert_eq!(found.next, Some(at(1, 10)));
    let wanted: Vec<DataWanted> = [6, 8]
        .map(|offset| DataWanted {
            partition: P0,
            incarnation: Incarnation(1),
            offset: Offset(offset),
            segments: vec![Segment {
                offset: 7,
                bytes: 50,
            }],
        })
        .into();
    let into = vec![Target::new(vec![0u8; 30]), Target::new(vec![0u8; 70])];
    let read = topic.begin_read_data(&wanted, into);
    let parts = world.wait(read).unwrap();
    let bytes: Vec<u8> = parts
        .into_iter()
        .flat_map(Target::into_owner::<Vec<u8>>)
        .collect();
    assert_eq!(bytes, [[6u8; 50], [8u8; 50]].concat());
    let read = topic.begin_read_data(&wanted, vec![Target::new(vec![0u8; 99])]);
    assert!(matches!(world.wait(read), Err(ClientError::Invalid(_))));
    world.server.damage_next = true;
    let read = topic.begin_read_data(&wanted, vec![Target::new(vec![0u8; 100])]);
    assert!(matches!(world.wait(read), Err(ClientError::Damaged { .. })));
}

/// Stores an event in each of these partitions, one after the other.
fn store_in(world: &mut World, topic: &TopicHandle, partitions: &[u32], first: usize) {
    let pending = topic.begin_producer(ProducerOptions::default());
    let producer = world.wait(pending).unwrap();
    for (index, partition) in partitions.iter().enumerate() {
        let text = (first + index).to_string();
        let event = Event {
            partition: Some(*partition),
            ..Event::new(text.as_bytes())
        };
        let pushed = producer.push(event).unwrap();
        assert!(world.run_until(MINUTE, |_| pushed.try_get().is_some()));
    }
}

/// Pulls as a program does that does not sleep: the client does what a pull asks
/// of it soon after.
fn pull_soon(world: &mut World, consumer: &Consumer) -> usize {
    loop {
        if let Some(event) = consumer.pull(Some(Duration::ZERO)).unwrap() {
            return number(&event);
        }
        world.run_until(SECOND / 100, |_| false);
    }
}

#[test]
fn merged_partitions_come_in_the_order_of_appending() {
    let mut world = World::new();
    let topic = world.topic(3);
    let order = [0, 0, 2, 1, 2, 0, 1, 1, 1, 2, 0, 2];
    store_in(&mut world, &topic, &order, 0);
    let options = ConsumerOptions {
        merge_wait: Some(SECOND),
        ..ConsumerOptions::default()
    };
    let consumer = open(&mut world, &topic, options);
    let numbers: Vec<_> = order
        .iter()
        .map(|_| pull_soon(&mut world, &consumer))
        .collect();
    assert_eq!(numbers, (0..order.len()).collect::<Vec<_>>());
    // And what is stored while it reads.
    store_in(&mut world, &topic, &order, order.len());
    let numbers: Vec<_> = order
        .iter()
        .map(|_| pull_soon(&mut world, &consumer))
        .collect();
    assert_eq!(numbers, (order.len()..2 * order.len()).collect::<Vec<_>>());
}

#[test]
fn a_silent_partition_is_waited_for_no_longer_than_the_program_says() {
    let mut world = World::new();
    let topic = world.topic(2);
    let merged = ConsumerOptions {
        merge_wait: Some(SECOND),
        ..ConsumerOptions::default()
    };
    let consumer = open(&mut world, &topic, merged.clone());
    store_in(&mut world, &topic, &[0], 0);
    let begin = world.now();
    assert_eq!(pull_soon(&mut world, &consumer), 0);
    let held = world.now() - begin;
    let bounds = SECOND * 9 / 10..SECOND * 13 / 10;
    assert!(bounds.contains(&held), "{held:?}");
    // With an event of the other one nothing is waited for.
    store_in(&mut world, &topic, &[1, 0], 1);
    let begin = world.now();
    assert_eq!(pull_soon(&mut world, &consumer), 1);
    assert!(world.now() - begin < SECOND / 10);
    assert_eq!(pull_soon(&mut world, &consumer), 2);
    // Nothing is held back and no time runs when all was read.
    assert!(consumer.pull(Some(Duration::ZERO)).unwrap().is_none());
    let none = ConsumerOptions {
        merge_wait: Some(Duration::ZERO),
        ..merged.clone()
    };
    let pending = topic.begin_consumer("at once", none);
    let consumer = world.wait(pending).unwrap();
    let begin = world.now();
    let mut numbers: Vec<_> = (0..3).map(|_| pull_soon(&mut world, &consumer)).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [0, 1, 2]);
    assert!(world.now() - begin < SECOND / 10);
    let member = ConsumerOptions {
        group: Some(GroupMember::default()),
        ..merged
    };
    let refused = topic.begin_consumer("group", member);
    let error = world.wait(refused).expect_err("a group is not merged");
    assert!(matches!(error, ClientError::Invalid(_)), "{error}");
}

/// A selector, an allocator and `on_ready` that keep `held`.
fn keeping(held: &Arc<()>) -> (ConsumerOptions, Box<dyn Fn() + Send + Sync>) {
    let (by_selector, by_allocator, by_news) = (held.clone(), held.clone(), held.clone());
    let options = ConsumerOptions {
        data: DataMode::Select(Arc::new(move |info| {
            let _ = &by_selector;
            Ok(DataView::whole(info.data_bytes_total()))
        })),
        allocator: Some(Arc::new(move |_, view| {
            let _ = &by_allocator;
            Ok(Target::new(vec![0; view.bytes() as usize]))
        })),
        ..ConsumerOptions::default()
    };
    let on_ready = move || {
        let _ = &by_news;
    };
    (options, Box::new(on_ready))
}

#[test]
fn callbacks_end_where_the_consumer_is_dropped_and_not_in_the_core() {
    let mut world = World::new();
    let topic = world.topic(1);
    fill(&mut world, &topic, 0..4, 2, 10);
    let held = Arc::new(());
    let (options, on_ready) = keeping(&held);
    let consumer = open(&mut world, &topic, options);
    consumer.on_ready(on_ready);
    let event = pull(&mut world, &consumer).unwrap().expect("an event");
    drop(consumer);
    // The core has not run since.
    assert_eq!(Arc::strong_count(&held), 1);
    assert_eq!(number(&event), 0, "the event is the program's still");
}

#[test]
fn many_producers_and_consumers_live_beside_each_other() {
    const PAIRS: usize = 100;
    let mut world = World::new();
    let topic = world.topic(1);
    let mut pairs = Vec::new();
    for _ in 0..PAIRS {
        let producer = topic.begin_producer(ProducerOptions::default());
        let producer = world.wait(producer).unwrap();
        let consumer = open(&mut world, &topic, ConsumerOptions::default());
        pairs.push((producer, consumer));
    }
    // More than the share that the last ones have.
    let data = Bytes::from(vec![7; 3 << 20]);
    for (index, (producer, _)) in pairs.iter().enumerate().skip(PAIRS - 3) {
        let text = index.to_string();
        let mut event = Event::new(text.as_bytes());
        event.data = vec![data.clone()];
        let future = producer.push(event).unwrap();
        assert!(world.run_until(MINUTE, |_| future.try_get().is_some()));
        future.try_get().unwrap().unwrap();
    }
    for (_, consumer) in &pairs {
        assert_eq!(
            pull_all(&mut world, consumer, 3),
            [PAIRS - 3, PAIRS - 2, PAIRS - 1]
        );
    }
}
