//! Consumers against a scripted server, in one thread, under a virtual
//! clock: order, reconnects, gaps, data, cursors, credit.

mod fake;
#[path = "fake/reading.rs"]
mod reading;
#[path = "fake/world.rs"]
mod world;

use bytes::Bytes;
use client::*;
use reading::*;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use wire::ErrorCode;
use wire::message::Method;
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
    let mut first = |start| {
        let options = ConsumerOptions {
            start,
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
fn data_is_read_when_it_arrives_and_no_more_of_it_than_two_batches() {
    let mut world = World::new();
    let topic = world.topic(1);
    let consumer = open(&mut world, &topic, ConsumerOptions::default());
    let reads = |world: &mut World| {
        world.run_until(SECOND, |_| false);
        world.server.requests(Method::ReadData)
    };
    fill(&mut world, &topic, 0..2, 2, 100_000);
    assert_eq!(reads(&mut world), 1, "nobody has asked for an event");
    fill(&mut world, &topic, 2..8, 2, 100_000);
    assert_eq!(reads(&mut world), 2);
    for index in 0..8 {
        let mut event = pull(&mut world, &consumer).unwrap().unwrap();
        assert_eq!(number(&event), index);
        assert_eq!(event.take_data(), vec![index as u8; 100_000]);
    }
    assert_eq!(reads(&mut world), 4, "each is read once");
    // In the middle of a batch that is handed out, too.
    fill(&mut world, &topic, 8..12, 4, 100_000);
    assert_eq!(pull_all(&mut world, &consumer, 1), [8]);
    let before = reads(&mut world);
    fill(&mut world, &topic, 12..14, 2, 100_000);
    assert_eq!(reads(&mut world), before + 1);
    assert_eq!(pull_all(&mut world, &consumer, 5), [9, 10, 11, 12, 13]);
}

#[test]
fn what_nobody_asked_for_is_small() {
    let mut world = World::new();
    let topic = world.topic(1);
    let consumer = open(&mut world, &topic, ConsumerOptions::default());
    fill(&mut world, &topic, 0..1, 1, 50 << 20);
    fill(&mut world, &topic, 1..2, 1, 50 << 20);
    world.run_until(SECOND, |_| false);
    assert_eq!(world.server.requests(Method::ReadData), 1);
    assert_eq!(pull_all(&mut world, &consumer, 2), [0, 1]);
}

#[test]
fn selectors_and_allocators_are_called_by_those_who_pull_alone() {
    let mut world = World::new();
    let topic = world.topic(1);
    let asked = Arc::new(Mutex::new(0));
    let (selected, allocated) = (asked.clone(), asked.clone());
    let selector = move |info: &EventInfo<'_>| {
        *selected.lock().unwrap() += 1;
        Ok(DataView::whole(info.data_bytes_total()))
    };
    let with_selector = ConsumerOptions {
        data: DataMode::Select(Arc::new(selector)),
        ..ConsumerOptions::default()
    };
    let with_allocator = ConsumerOptions {
        allocator: Some(Arc::new(move |_, view| {
            *allocated.lock().unwrap() += 1;
            Ok(Target::new(vec![0u8; view.bytes() as usize]))
        })),
        ..ConsumerOptions::default()
    };
    for options in [with_selector, with_allocator] {
        let first = topic_end(&mut world, &topic);
        let options = ConsumerOptions {
            start: Start::Latest,
            ..options
        };
        let consumer = open(&mut world, &topic, options);
        fill(&mut world, &topic, first..first + 2, 1, 100_000);
        world.run_until(SECOND, |_| false);
        assert_eq!(*asked.lock().unwrap(), 0);
        assert_eq!(pull_all(&mut world, &consumer, 2), [first, first + 1]);
        assert_eq!(std::mem::take(&mut *asked.lock().unwrap()), 2);
    }
}

fn topic_end(world: &mut World, topic: &TopicHandle) -> usize {
    world.server.topics[topic.name()].partitions[0].events.len()
}

#[test]
fn damage_that_nobody_asked_for_is_told_by_the_next_pull() {
    let mut world = World::new();
    let topic = world.topic(1);
    let consumer = open(&mut world, &topic, ConsumerOptions::default());
    world.server.damage_next = true;
    fill(&mut world, &topic, 0..3, 3, 100_000);
    world.run_until(SECOND, |_| false);
    assert!(!world.server.damage_next, "it has arrived");
    let error = pull(&mut world, &consumer).unwrap_err();
    assert!(matches!(error, ClientError::Damaged { .. }), "{error}");
    assert_eq!(pull_all(&mut world, &consumer, 3), [0, 1, 2]);
    // A seek forgets what was read.
    fill(&mut world, &topic, 3..6, 3, 100_000);
    world.run_until(SECOND, |_| false);
    let seek = consumer.begin_seek(P0, at(1, 1)).unwrap();
    world.wait(seek).unwrap();
    assert_eq!(pull_all(&mut world, &consumer, 5), [1, 2, 3, 4, 5]);
}

#[test]
fn damage_on_the_way_is_an_error_once_and_then_read_again() {
    let mut world = World::new();
    let topic = world.topic(1);
    fill(&mut world, &topic, 0..6, 3, 100_000);
    world.server.damage_next = true;
    let consumer = open(&mut world, &topic, ConsumerOptions::default());
    let error = pull(&mut world, &consumer).unwrap_err();
    assert!(matches!(error, ClientError::Damaged { .. }), "{error}");
    assert!(error.to_string().contains("events/0"), "{error}");
    assert_eq!(pull_all(&mut world, &consumer, 3), [0, 1, 2]);
    // Damaged data likewise. That of the next batch was read ahead, intact.
    fill(&mut world, &topic, 6..9, 3, 100_000);
    assert_eq!(pull_all(&mut world, &consumer, 2), [3, 4]);
    world.server.damage_next = true;
    fill(&mut world, &topic, 9..12, 3, 0);
    let mut numbers = Vec::new();
    let mut errors = 0;
    while numbers.len() < 7 {
        match pull(&mut world, &consumer) {
            Ok(event) => numbers.push(number(&event.unwrap())),
            Err(ClientError::Damaged { .. }) => errors += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!((numbers, errors), ((5..12).collect(), 1));
}

#[test]
fn only_selected_bytes_travel_with_one_request_a_batch() {
    let mut world = World::new();
    let topic = world.topic(1);
    fill(&mut world, &topic, 0..20, 10, 100_000);
    let before = world.net.stats().bytes;
    let selector = |info: &EventInfo<'_>| {
        let whole = DataView::whole(info.data_bytes_total());
        match info.id().offset.0 % 2 {
            0 => whole.range(10, 90).map_err(|error| error.to_string()),
            _ => Ok(DataView::none()),
        }
    };
    let options = ConsumerOptions {
        data: DataMode::Select(Arc::new(selector)),
        ..ConsumerOptions::default()
    };
    let consumer = open(&mut world, &topic, options);
    for index in 0..20 {
        let mut event = pull(&mut world, &consumer).unwrap().unwrap();
        let data = event.take_data();
        assert_eq!(data.len(), if index % 2 == 0 { 90 } else { 0 });
        assert!(data.iter().all(|byte| usize::from(*byte) == index));
        assert_eq!(event.data_bytes_total(), 100_000);
    }
    assert_eq!(world.server.requests(Method::ReadData), 2);
    assert!(world.net.stats().bytes - before < 20_000);
}

#[test]
fn inline_data_comes_along_for_all_and_stays_behind_for_none() {
    let mut world = World::new();
    let topic = world.topic(1);
    fill(&mut world, &topic, 0..10, 5, 1000);
    let consumer = open(&mut world, &topic, ConsumerOptions::default());
    for index in 0..10 {
        let mut event = pull(&mut world, &consumer).unwrap().unwrap();
        assert_eq!(event.take_data(), vec![index; 1000]);
    }
    assert_eq!(world.server.requests(Method::ReadData), 0);
    let before = world.net.stats().bytes;
    let options = ConsumerOptions {
        start: Start::Beginning,
        data: DataMode::None,
        ..ConsumerOptions::default()
    };
    let consumer = open(&mut world, &topic, options);
    for _ in 0..10 {
        let event = pull(&mut world, &consumer).unwrap().unwrap();
        assert!(matches!(event.data(), EventDataRef::None));
    }
    assert!(world.net.stats().bytes - before < 5_000);
    // With an allocator, inline data lands in its memory as well.
    let options = ConsumerOptions {
        start: Start::Beginning,
        allocator: Some(Arc::new(|_, view| {
            Ok(Target::new(vec![0u8; view.bytes() as usize]))
        })),
        ..ConsumerOptions::default()
    };
    let consumer = open(&mut world, &topic, options);
    let mut event = pull(&mut world, &consumer).unwrap().unwrap();
    let memory: Vec<u8> = event.take_target().unwrap().into_owner();
    assert_eq!(memory, vec![0; 1000]);
}

#[test]
fn a_selector_picks_here_from_what_comes_along() {
    let mut world = World::new();
    let topic = world.topic(1);
    // Inline data, and longer data, which is asked for as ever.
    let data = |index: usize| -> Vec<u8> {
        let bytes = if index < 4 { 1000 } else { 100_000 };
        (0..bytes).map(|at| (at / 3 + index * 7) as u8).collect()
    };
    let pending = topic.begin_producer(ProducerOptions::default());
    let producer = world.wait(pending).unwrap();
    for index in 0..6 {
        let event = Event::new(b"e").with_data(data(index));
        producer.push(event).unwrap();
    }
    let part = |offset, bytes| Segment { offset, bytes };
    let selector = move |info: &EventInfo<'_>| {
        let whole = DataView::whole(info.data_bytes_total());
        let view = match info.id().offset.0 % 4 {
            0 => Ok(whole),
            1 => whole.range(10, 90),
            2 => Ok(DataView::none()),
            _ => whole.unstructured(&[part(5, 20), part(900, 50)]),
        };
        view.map_err(|error| error.to_string())
    };
    let expected = |index: usize| {
        let whole = data(index);
        match index % 4 {
            0 => whole,
            1 => whole[10..100].to_vec(),
            2 => Vec::new(),
            _ => [&whole[5..25], &whole[900..950]].concat(),
        }
    };
    let options = ConsumerOptions {
        data: DataMode::Select(Arc::new(selector)),
        inline_along: true,
        ..ConsumerOptions::default()
    };
    let consumer = open(&mut world, &topic, options.clone());
    for index in 0..6 {
        let mut event = pull(&mut world, &consumer).unwrap().unwrap();
        assert_eq!(event.take_data(), expected(index), "{index}");
    }
    let asked = world.server.requests(Method::ReadData);
    assert!((1..=2).contains(&asked), "for the longer ones: {asked}");
    let options = ConsumerOptions {
        start: Start::Beginning,
        allocator: Some(Arc::new(|_, view| {
            Ok(Target::new(vec![0u8; view.bytes() as usize]))
        })),
        ..options
    };
    let consumer = open(&mut world, &topic, options);
    for index in 0..6 {
        let mut event = pull(&mut world, &consumer).unwrap().unwrap();
        let memory = event.take_target().map(Target::into_owner::<Vec<u8>>);
        assert_eq!(memory.unwrap_or_default(), expected(index), "{index}");
    }
}

#[test]
fn a_selector_or_allocator_that_is_wrong_is_asked_again() {
    let mut world = World::new();
    let topic = world.topic(1);
    fill(&mut world, &topic, 0..2, 2, 100_000);
    let step = Arc::new(Mutex::new(0));
    let count = step.clone();
    let selector = move |info: &EventInfo<'_>| {
        let mut step = count.lock().unwrap();
        *step += 1;
        match *step {
            1 => Err("not today".to_owned()),
            2 => Ok(DataView::whole(info.data_bytes_total() + 1)),
            _ => Ok(DataView::whole(info.data_bytes_total())),
        }
    };
    let count = step.clone();
    let allocator = move |_: &EventInfo<'_>, view: &DataView| {
        let short = *count.lock().unwrap() == 3;
        let bytes = view.bytes() as usize - usize::from(short);
        Ok(Target::new(vec![0u8; bytes]))
    };
    let options = ConsumerOptions {
        data: DataMode::Select(Arc::new(selector)),
        allocator: Some(Arc::new(allocator)),
        ..ConsumerOptions::default()
    };
    let consumer = open(&mut world, &topic, options);
    for reason in [
        "not today",
        "byte 100001 of 100000",
        "gave 99999 bytes for 100000",
    ] {
        let error = pull(&mut world, &consumer).unwrap_err();
        assert!(error.to_string().contains(reason), "{error}");
    }
    assert_eq!(pull_all(&mut world, &consumer, 2), [0, 1]);
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
    let mut world = World::new();
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
