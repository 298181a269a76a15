//! Producers against a scripted server, in one thread, under a virtual
//! clock: order, retries, failures, budgets, batches.

use crate::fake;
use crate::world;

use client::*;
use std::collections::BTreeMap;
use std::time::Duration;
use wire::message::Method;
use wire::{ErrorCode, ErrorReply};
use world::World;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

fn small_batches() -> ProducerOptions {
    ProducerOptions {
        batch: BatchPolicy {
            count_max: Some(3),
            ..BatchPolicy::default()
        },
        ..ProducerOptions::default()
    }
}

fn until_full() -> ProducerOptions {
    ProducerOptions {
        batch: BatchPolicy {
            linger: Linger::UntilFull,
            ..BatchPolicy::default()
        },
        ..ProducerOptions::default()
    }
}

fn open(world: &mut World, topic: &TopicHandle, options: ProducerOptions) -> Producer {
    let pending = topic.begin_producer(options);
    world.wait(pending).unwrap()
}

fn push_all(producer: &Producer, range: std::ops::Range<usize>) -> Vec<PushFuture> {
    range
        .map(|index| {
            producer
                .push_metadata(index.to_string().as_bytes())
                .unwrap()
        })
        .collect()
}

fn resolve(world: &mut World, limit: Duration, futures: &[PushFuture]) -> bool {
    world.run_until(limit, |_| {
        futures.iter().all(|future| future.try_get().is_some())
    })
}

fn stored(world: &mut World) -> Vec<String> {
    let events = &world.server.partition("events", 0).events;
    let text = |event: &fake::StoredEvent| String::from_utf8(event.metadata.clone()).unwrap();
    events.iter().map(text).collect()
}

fn numbers(count: usize) -> Vec<String> {
    (0..count).map(|index| index.to_string()).collect()
}

#[test]
fn a_connection_lost_at_any_message_neither_loses_nor_doubles_nor_reorders() {
    const EVENTS: usize = 30;
    // Messages of an undisturbed run: hello, topic, producer, ten batches.
    for cut_at in 3..=16 {
        for behind in [false, true] {
            let mut world = World::new();
            let topic = world.topic(1);
            let cuts = match behind {
                true => &mut world.server.cut_behind,
                false => &mut world.server.cut_before,
            };
            cuts.insert(cut_at);
            // And once more, while everything is sent again.
            cuts.insert(cut_at + 5);
            let producer = open(&mut world, &topic, small_batches());
            let futures = push_all(&producer, 0..EVENTS);
            let case = format!("cut at message {cut_at}, behind: {behind}");
            assert!(resolve(&mut world, MINUTE, &futures), "{case}");
            for (index, future) in futures.iter().enumerate() {
                let id = future.try_get().unwrap().unwrap();
                assert_eq!(id.offset.0, index as u64, "{case}");
            }
            assert_eq!(stored(&mut world), numbers(EVENTS), "{case}");
            assert_eq!(producer.held_bytes(), 0, "{case}");
        }
    }
}

#[test]
fn batches_are_retained_and_flow_while_the_server_is_away() {
    let mut world = World::new();
    let topic = world.topic(1);
    let producer = open(&mut world, &topic, small_batches());
    world.server.cut();
    let futures = push_all(&producer, 0..100);
    assert!(resolve(&mut world, MINUTE, &futures));
    assert_eq!(stored(&mut world), numbers(100));
}

#[test]
fn opening_a_producer_takes_no_longer_than_an_ack_may() {
    let mut world = World::new();
    let topic = world.topic(1);
    world.server.is_silent = true;
    world.server.cut();
    let begun = world.now();
    let options = ProducerOptions {
        ack_timeout: 3 * SECOND,
        ..small_batches()
    };
    let opening = topic.begin_producer(options);
    let error = world.wait(opening).unwrap_err();
    assert!(error.is_timeout(), "{error}");
    let text = error.to_string();
    for part in [
        "producer of events",
        "(3.0 s)",
        "sim://server",
        "last sign of life 3.",
    ] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(world.now() - begun, 3 * SECOND);
}

#[test]
fn an_ack_that_does_not_come_fails_the_producer_and_says_what_is_not_known() {
    let mut world = World::new();
    let topic = world.topic(1);
    let options = ProducerOptions {
        ack_timeout: 5 * SECOND,
        ..small_batches()
    };
    let producer = open(&mut world, &topic, options);
    world.server.is_silent = true;
    let futures = push_all(&producer, 0..7);
    assert!(!resolve(&mut world, Duration::from_millis(4_900), &futures));
    assert!(resolve(&mut world, SECOND, &futures));
    for future in &futures {
        let error = future.try_get().unwrap().unwrap_err();
        let text = error.to_string();
        assert!(error.is_timeout(), "{text}");
        assert!(text.contains("events/0"), "{text}");
        assert!(text.contains("last sign of life"), "{text}");
        assert!(text.contains("is not known"), "{text}");
    }
    // Nothing may be stored behind what was given up.
    world.server.is_silent = false;
    let error = producer.push_metadata(b"later").unwrap_err();
    assert!(error.is_timeout());
    world.run_until(MINUTE, |_| false);
    assert_eq!(stored(&mut world), Vec::<String>::new());
    // A new producer goes on.
    let producer = open(&mut world, &topic, small_batches());
    let futures = push_all(&producer, 0..2);
    assert!(resolve(&mut world, SECOND, &futures));
}

#[test]
fn a_refusal_that_may_pass_is_tried_again_in_order() {
    let mut world = World::new();
    let topic = world.topic(1);
    let producer = open(&mut world, &topic, small_batches());
    for code in [ErrorCode::StorageFull, ErrorCode::DeadlinePassed] {
        let error = ErrorReply::retryable(code, 50, "try again");
        world.server.refuse(Method::Produce, error);
    }
    let futures = push_all(&producer, 0..30);
    assert!(resolve(&mut world, MINUTE, &futures));
    assert_eq!(stored(&mut world), numbers(30));
}

#[test]
fn a_full_topic_is_asked_by_one_batch_and_ever_more_seldom() {
    let mut world = World::new();
    let topic = world.topic(1);
    let producer = open(&mut world, &topic, small_batches());
    let first = push_all(&producer, 0..3);
    assert!(resolve(&mut world, MINUTE, &first));
    for _ in 0..100 {
        let error = ErrorReply::retryable(ErrorCode::StorageFull, 100, "no space");
        world.server.refuse(Method::Produce, error);
    }
    let futures = push_all(&producer, 3..30);
    world.run_until(Duration::from_millis(50), |_| false);
    let before = world.server.requests(Method::Produce);
    assert!(before > 2, "several were under way");
    // After 0.1, 0.2, 0.4, 0.8 s, and then each second.
    world.run_until(5 * SECOND, |_| false);
    assert_eq!(world.server.requests(Method::Produce) - before, 7);
    world.server.refusals.clear();
    assert!(resolve(&mut world, 2 * SECOND, &futures));
    assert_eq!(stored(&mut world), numbers(30));
}

#[test]
fn who_waits_in_vain_is_told_what_the_server_refuses() {
    let mut world = World::new();
    let topic = world.topic(1);
    let options = ProducerOptions {
        ack_timeout: 5 * SECOND,
        at_budget: AtBudget::Block(Duration::ZERO),
        budget_bytes: 2_000,
        ..small_batches()
    };
    let producer = open(&mut world, &topic, options);
    let reason = "events/0: 100 bytes asked of a memory partition: 990 of 1000 bytes (bytes_max)";
    for _ in 0..10 {
        let error = ErrorReply::retryable(ErrorCode::StorageFull, 1000, reason);
        world.server.refuse(Method::Produce, error);
    }
    let futures = push_all(&producer, 0..3);
    world.run_until(2 * SECOND, |_| false);
    // Who gives up before the ack timeout, and who has no space.
    let flush = producer.flush_future().wait(Duration::ZERO).unwrap_err();
    let push = futures[0].wait(Some(Duration::ZERO)).unwrap_err();
    let space = loop {
        match producer.push_metadata(&[b'x'; 500]) {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    // And the producer, at the ack timeout.
    assert!(resolve(&mut world, MINUTE, &futures));
    let ack = futures[0].try_get().unwrap().unwrap_err();
    assert_eq!(ack.code(), Some(ErrorCode::StorageFull));
    assert!(ack.is_retryable());
    assert!(ack.to_string().contains("for 5.0 s"), "{ack}");
    for error in [&flush, &push, &space] {
        assert!(error.is_timeout(), "{error}");
    }
    for error in [flush, push, space, ack] {
        assert!(error.to_string().contains(reason), "{error}");
    }
}

#[test]
fn a_refusal_that_has_passed_is_not_told() {
    let mut world = World::new();
    let topic = world.topic(1);
    let producer = open(&mut world, &topic, small_batches());
    let error = ErrorReply::retryable(ErrorCode::StorageFull, 100, "no space");
    world.server.refuse(Method::Produce, error);
    let futures = push_all(&producer, 0..3);
    assert!(resolve(&mut world, MINUTE, &futures));
    world.server.is_silent = true;
    let futures = push_all(&producer, 3..4);
    world.run_until(SECOND, |_| false);
    let error = futures[0].wait(Some(Duration::ZERO)).unwrap_err();
    assert!(!error.to_string().contains("no space"), "{error}");
}

#[test]
fn a_refusal_for_good_fails_everything_behind_it() {
    let mut world = World::new();
    let topic = world.topic(1);
    let producer = open(&mut world, &topic, small_batches());
    let error = ErrorReply::fatal(ErrorCode::StorageFailed, "the disk is gone");
    world.server.refuse(Method::Produce, error);
    let futures = push_all(&producer, 0..9);
    assert!(resolve(&mut world, SECOND, &futures));
    for future in &futures {
        let error = future.try_get().unwrap().unwrap_err();
        assert_eq!(error.code(), Some(ErrorCode::StorageFailed));
    }
    assert_eq!(
        producer.push_metadata(b"x").unwrap_err().code(),
        Some(ErrorCode::StorageFailed)
    );
    let flush = producer.flush_future();
    assert!(flush.try_get().unwrap().is_err());
    assert_eq!(producer.held_bytes(), 0);
}

#[test]
fn a_named_producer_goes_on_where_its_last_life_ended_and_fences_it() {
    let mut world = World::new();
    let topic = world.topic(1);
    let options = ProducerOptions {
        name: Some("camera".into()),
        ..small_batches()
    };
    let first = open(&mut world, &topic, options.clone());
    let futures = push_all(&first, 0..6);
    assert!(resolve(&mut world, SECOND, &futures));
    let second = open(&mut world, &topic, options);
    assert_eq!(first.id().unwrap(), second.id().unwrap());
    assert!(second.epoch().unwrap() > first.epoch().unwrap());
    let futures = push_all(&second, 6..9);
    assert!(resolve(&mut world, SECOND, &futures));
    assert_eq!(stored(&mut world), numbers(9));
    let sequences: Vec<u64> = world
        .server
        .partition("events", 0)
        .events
        .iter()
        .map(|event| event.sequence)
        .collect();
    assert_eq!(sequences, (0..9).collect::<Vec<u64>>());
    // The first life learns of it when it comes back.
    world.server.cut();
    let late = first.push_metadata(b"late").unwrap();
    assert!(resolve(&mut world, MINUTE, std::slice::from_ref(&late)));
    let error = late.try_get().unwrap().unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::ProducerFenced));
}

#[test]
fn a_partition_that_lost_acknowledged_events_is_written_on_without_a_hole() {
    let mut world = World::new();
    let topic = world.topic(1);
    let producer = open(&mut world, &topic, small_batches());
    let futures = push_all(&producer, 0..9);
    assert!(resolve(&mut world, SECOND, &futures));
    // Power is lost, and with it the last batch.
    world.server.cut();
    let partition = world.server.partition("events", 0);
    partition.events.truncate(6);
    partition.batches.pop();
    for (next, batches) in partition.producers.values_mut() {
        *next = 6;
        batches.pop();
    }
    let futures = push_all(&producer, 9..12);
    assert!(resolve(&mut world, MINUTE, &futures));
    let sequences: Vec<u64> = world
        .server
        .partition("events", 0)
        .events
        .iter()
        .map(|event| event.sequence)
        .collect();
    assert_eq!(sequences, (0..9).collect::<Vec<u64>>());
    assert_eq!(stored(&mut world)[6..], ["9", "10", "11"]);
}

#[test]
fn batches_form_by_count_bytes_time_and_flush() {
    let mut world = World::new();
    let topic = world.topic(1);
    let batches = |world: &mut World| world.server.partition("events", 0).batches.len();
    let counted = ProducerOptions {
        batch: BatchPolicy {
            count_max: Some(10),
            linger: Linger::UntilFull,
            ..BatchPolicy::default()
        },
        ..ProducerOptions::default()
    };
    let producer = open(&mut world, &topic, counted);
    let futures = push_all(&producer, 0..25);
    assert!(!resolve(&mut world, MINUTE, &futures));
    assert_eq!(batches(&mut world), 2);
    let flush = producer.flush_future();
    assert!(world.run_until(SECOND, |_| flush.try_get().is_some()));
    assert_eq!(batches(&mut world), 3);

    let sized = ProducerOptions {
        batch: BatchPolicy {
            bytes_max: 1000,
            linger: Linger::UntilFull,
            ..BatchPolicy::default()
        },
        ..ProducerOptions::default()
    };
    let producer = open(&mut world, &topic, sized);
    for _ in 0..9 {
        producer.push_metadata(&[7; 300]).unwrap();
    }
    world.run_until(MINUTE, |_| false);
    // Three fit into a batch, a fourth would exceed it.
    assert_eq!(batches(&mut world), 5);

    let lingering = ProducerOptions {
        batch: BatchPolicy {
            linger: Linger::Wait(Duration::from_millis(200)),
            ..BatchPolicy::default()
        },
        ..ProducerOptions::default()
    };
    let producer = open(&mut world, &topic, lingering);
    let futures = push_all(&producer, 0..5);
    assert!(!resolve(&mut world, Duration::from_millis(199), &futures));
    assert!(resolve(&mut world, Duration::from_millis(10), &futures));
    assert_eq!(batches(&mut world), 6);
}

#[test]
fn adaptive_batches_do_not_wait_while_idle_and_grow_under_load() {
    let mut world = World::new();
    let topic = world.topic(1);
    let producer = open(&mut world, &topic, ProducerOptions::default());
    let wakeups = || {
        let counters = world.driver.counters();
        counters.wakeups.load(std::sync::atomic::Ordering::Relaxed)
    };
    let before = wakeups();
    let futures = push_all(&producer, 0..10_000);
    assert!(wakeups() - before <= 1, "one wake-up for what gathers");
    assert!(resolve(&mut world, SECOND, &futures));
    // Nothing was taken before the core ran: all of it is one batch.
    assert_eq!(world.server.partition("events", 0).batches.len(), 1);
    let one = push_all(&producer, 0..1);
    assert!(resolve(&mut world, Duration::from_millis(1), &one));
}

#[test]
fn the_budget_bounds_what_is_held_and_one_larger_event_passes_alone() {
    let mut world = World::new();
    let topic = world.topic(1);
    let options = ProducerOptions {
        budget_bytes: 100_000,
        at_budget: AtBudget::Fail,
        ..until_full()
    };
    let producer = open(&mut world, &topic, options);
    let error = (0..1000)
        .find_map(|_| producer.push_metadata(&[1; 1000]).err())
        .expect("the budget ends");
    let ClientError::Budget(full) = &error else {
        panic!("{error}");
    };
    assert_eq!((full.limit, full.asked), (100_000, 1016));
    assert!(error.to_string().contains("budget_bytes"), "{error}");
    assert!(producer.held_bytes() <= 100_000);
    // What gathered was sent at the bound; there is space again.
    assert!(world.run_until(SECOND, |_| producer.held_bytes() == 0));
    let large = bytes::Bytes::from(vec![3; 500_000]);
    let future = producer
        .push(Event::new(b"large").with_data(large))
        .unwrap();
    assert!(producer.push_metadata(b"more").is_err());
    assert!(resolve(&mut world, SECOND, std::slice::from_ref(&future)));
    assert_eq!(producer.held_bytes(), 0);
    producer.push_metadata(b"more").unwrap();
}

#[test]
fn many_large_events_go_within_the_external_bound_of_a_batch() {
    let mut world = World::new();
    let topic = world.topic(1);
    let producer = open(&mut world, &topic, until_full());
    let piece = bytes::Bytes::from(vec![9; 6 << 20]);
    let copied = memory::copies::bytes();
    let push = |_| {
        producer
            .push(Event::new(b"frame").with_data(piece.clone()))
            .unwrap()
    };
    let futures: Vec<_> = (0..5).map(push).collect();
    let flush = producer.flush_future();
    assert!(world.run_until(MINUTE, |_| flush.try_get().is_some()));
    for future in &futures {
        future.try_get().unwrap().unwrap();
    }
    // The receiving side copies what shares a read with a frame's header, and
    // other tests run beside this one; a copy of the data would be 30 MiB.
    assert!(memory::copies::bytes() - copied < 6 << 20);
    // A batch that overtook the one before it waited for it: it was sent twice.
    assert!(world.server.requests(Method::Produce) <= 4);
    // 16 MiB hold two of them.
    let partition = world.server.partition("events", 0);
    assert_eq!(partition.batches.len(), 3);
    assert!(partition.events.iter().all(|event| event.data == piece));
}

#[test]
fn produce_credit_is_never_exceeded() {
    let mut world = World::new();
    world.server.produce_credit = 2_000;
    let topic = world.topic(2);
    let producer = open(&mut world, &topic, small_batches());
    let futures = push_all(&producer, 0..600);
    assert!(resolve(&mut world, MINUTE, &futures));
    let total: usize = (0..2)
        .map(|index| world.server.partition("events", index).events.len())
        .sum();
    assert_eq!(total, 600);
    // Unanswered, nothing more comes than was granted, but one batch that is
    // larger than all of it goes alone.
    world.server.is_silent = true;
    push_all(&producer, 0..600);
    world.run_until(SECOND, |_| false);
    let bytes = world.server.unanswered_bytes;
    assert!(
        (1500..=2000).contains(&bytes),
        "{bytes} bytes for 2000 of credit"
    );
}

#[test]
fn producers_that_wait_for_credit_all_get_their_turn() {
    let mut world = World::new();
    // One batch of three events at a time, of whichever producer.
    world.server.produce_credit = 1;
    let topic = world.topic(1);
    let options = ProducerOptions {
        budget_bytes: 1 << 20,
        ..small_batches()
    };
    let producers: Vec<Producer> = (0..20)
        .map(|_| open(&mut world, &topic, options.clone()))
        .collect();
    let futures: Vec<PushFuture> = producers
        .iter()
        .flat_map(|producer| push_all(producer, 0..30))
        .collect();
    // Also across a connection that is lost while they wait.
    let half = world.run_until(MINUTE, |world| {
        world.server.partition("events", 0).events.len() >= 300
    });
    assert!(half);
    world.server.cut();
    assert!(resolve(&mut world, MINUTE, &futures));
    let mut first_half: BTreeMap<String, usize> = BTreeMap::new();
    let stored = stored(&mut world);
    assert_eq!(stored.len(), 600);
    for text in &stored[..300] {
        *first_half.entry(text.clone()).or_default() += 1;
    }
    // The first batches of all have come before the last one of anybody.
    assert_eq!(first_half["0"], 20, "{first_half:?}");
    assert!(!first_half.contains_key("29"), "{first_half:?}");
}

#[test]
fn what_the_topic_refuses_is_raised_by_push() {
    let mut world = World::new();
    let topic = world.topic(2);
    let producer = open(&mut world, &topic, small_batches());
    let error = producer
        .push(Event {
            partition: Some(2),
            ..Event::new(b"x")
        })
        .err()
        .unwrap();
    assert!(matches!(error, ClientError::UnknownPartition(_)));
    assert!(error.to_string().contains("partition 2"), "{error}");
    let long = vec![0; topic.definition().metadata_bytes_max() as usize + 1];
    let error = producer.push_metadata(&long).err().unwrap();
    assert!(matches!(error, ClientError::Invalid(_)), "{error}");
}

#[test]
fn the_journal_has_every_acknowledged_batch_before_its_futures_resolve() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let mut world = World::new();
    let topic = world.topic(1);
    let options = ProducerOptions {
        journal: Some(path.clone()),
        ..small_batches()
    };
    let producer = open(&mut world, &topic, options);
    let large = bytes::Bytes::from(vec![3; 200_000]);
    let mut futures = push_all(&producer, 0..6);
    futures.push(
        producer
            .push(Event::new(b"large").with_data(large.clone()))
            .unwrap(),
    );
    world.server.cut_behind.insert(world.server.messages + 2);
    let in_time = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    for (future, records) in futures.iter().zip([1, 1, 1, 2, 2, 2, 3]) {
        let (path, in_time) = (path.clone(), in_time.clone());
        future.on_done(Box::new(move || {
            let content = client::journal::read_journal(&path).unwrap();
            let is_there = content.records.len() >= records;
            in_time.fetch_add(is_there.into(), std::sync::atomic::Ordering::SeqCst);
        }));
    }
    let flush = producer.flush_future();
    assert!(world.run_until(MINUTE, |_| flush.try_get().is_some()));
    assert!(resolve(&mut world, MINUTE, &futures));
    assert_eq!(in_time.load(std::sync::atomic::Ordering::SeqCst), 7);
    let content = client::journal::read_journal(&path).unwrap();
    let firsts: Vec<_> = content
        .records
        .iter()
        .map(|one| (one.first.0, one.count))
        .collect();
    assert_eq!(firsts, [(0, 3), (3, 3), (6, 1)]);
    assert!(content.records.iter().any(|one| one.duplicate));
    let crc = wire::checksum::crc32c_append(wire::checksum::crc32c(b"large"), &large);
    assert_eq!(content.records[2].checksum, crc);
    assert_eq!(content.records[0].checksum, wire::checksum::crc32c(b"012"));
}

#[test]
fn a_topic_without_partitions_takes_events_once_it_has_one() {
    let mut world = World::new();
    let topic = world.topic(0);
    let producer = open(&mut world, &topic, small_batches());
    let error = producer.push_metadata(b"x").err().unwrap();
    assert!(error.to_string().contains("no partitions"), "{error}");
    world
        .server
        .topics
        .get_mut("events")
        .unwrap()
        .partitions
        .push(fake::FakePartition {
            incarnation: 1,
            ..fake::FakePartition::default()
        });
    let refresh = topic.begin_refresh();
    world.wait(refresh).unwrap();
    let futures = push_all(&producer, 0..1);
    assert!(resolve(&mut world, SECOND, &futures));
}

#[test]
fn a_memory_partition_that_was_lost_takes_what_was_not_acknowledged() {
    let mut world = World::new();
    let topic = world.topic(1);
    let producer = open(&mut world, &topic, small_batches());
    let futures = push_all(&producer, 0..6);
    assert!(resolve(&mut world, SECOND, &futures));
    world.server.cut();
    world.server.lose_memory("events", 0);
    let futures = push_all(&producer, 6..12);
    assert!(resolve(&mut world, MINUTE, &futures));
    let ids: Vec<_> = futures
        .iter()
        .map(|future| future.try_get().unwrap().unwrap())
        .map(|id| (id.incarnation.0, id.offset.0))
        .collect();
    assert_eq!(ids, (0..6).map(|offset| (2, offset)).collect::<Vec<_>>());
}
