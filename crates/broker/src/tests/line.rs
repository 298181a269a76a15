//! Producers that wait in line for room in a topic that blocks.

use super::harness::*;
use super::produce::{expose, external, produce_external};
use crate::node::{Input, LinkId};
use crate::random::Random;
use std::collections::BTreeMap;
use std::time::Duration;
use wire::message::*;
use wire::*;

/// Longer than anybody waits before it is told why.
const LONG: Duration = Duration::from_secs(6);

/// A topic of ten events, which are all there.
fn full(world: &mut World, link: LinkId) -> TopicId {
    let definition = r#"{"retention":{"count":10},"keep_until_acknowledged":["c"],
        "overflow":{"type":"block"},"durability":"memory"}"#;
    let created = world.create(link, "t", definition, &["memory"]);
    let topic = created.unwrap().topic;
    for at in 0..10 {
        let id = push(world, link, topic, 1, at);
        stored(world, link, id);
    }
    topic
}

/// Sends one event as a batch; its metadata says whose it is, and which.
fn push(world: &mut World, link: LinkId, topic: TopicId, producer: u128, at: u64) -> u64 {
    let text = format!("{producer}:{at}");
    let batch = batch(topic, producer, 0, at, &[&text]);
    world.produce(link, topic, &batch)
}

fn stored(world: &World, link: LinkId, id: u64) -> u64 {
    let produced: Produced = world.answered(link, id).unwrap();
    produced.base_offset.0
}

fn acknowledge(world: &mut World, link: LinkId, topic: TopicId, offset: u64) {
    let id = world.move_cursor(link, topic, CursorMove::Acknowledge, at(1, offset));
    world.answer(link, id).expect("answered").unwrap();
}

fn alter(world: &mut World, link: LinkId, topic: TopicId, overflow: &str) {
    let alter = AlterTopic {
        changes: format!(r#"{{"overflow":{overflow}}}"#),
    };
    let altered: Result<TopicDescription, _> = world.call(link, Method::AlterTopic, topic, &alter);
    altered.unwrap();
}

fn texts(world: &mut World, link: LinkId, topic: TopicId) -> Vec<String> {
    let reader = world.subscribe(link, topic, "reader", Start::Beginning);
    world.texts(link, reader)
}

#[test]
fn each_producer_has_its_turn_when_there_is_room() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = full(&mut world, link);
    // One has many batches, the others came later.
    let mut calls = Vec::new();
    for (producer, at) in [(2, 0), (2, 1), (2, 2), (3, 0), (4, 0), (3, 1)] {
        calls.push(push(&mut world, link, topic, producer, at));
    }
    assert!(calls.iter().all(|id| world.answer(link, *id).is_none()));
    acknowledge(&mut world, link, topic, 3);
    let offsets = |world: &World| -> Vec<Option<u64>> {
        let answered = calls.iter().map(|id| world.answer(link, *id).is_some());
        let offset = |(id, is_there): (&u64, bool)| is_there.then(|| stored(world, link, *id));
        calls.iter().zip(answered).map(offset).collect()
    };
    let none = None;
    let three = vec![Some(10), none, none, Some(11), Some(12), none];
    assert_eq!(offsets(&world), three);
    acknowledge(&mut world, link, topic, 6);
    let all = vec![Some(10), Some(13), Some(15), Some(11), Some(12), Some(14)];
    assert_eq!(offsets(&world), all);
    assert_eq!(texts(&mut world, link, topic).last().unwrap(), "2:2");
}

#[test]
fn who_comes_later_does_not_get_in_before_those_in_line() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = full(&mut world, link);
    let first = batch(topic, 2, 0, 0, &["a", "b", "c"]);
    let first = world.produce(link, topic, &first);
    acknowledge(&mut world, link, topic, 1);
    let later = push(&mut world, link, topic, 3, 0);
    assert!(world.answer(link, later).is_none(), "there is room for one");
    acknowledge(&mut world, link, topic, 4);
    assert_eq!(stored(&world, link, first), 10);
    assert_eq!(stored(&world, link, later), 13);
}

#[test]
fn who_waits_long_is_told_why_and_asks_again() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = full(&mut world, link);
    let front = push(&mut world, link, topic, 2, 0);
    let behind = push(&mut world, link, topic, 2, 1);
    world.pass(LONG);
    let error = world.error(link, front).expect("told");
    assert_eq!(error.code, ErrorCode::StorageFull);
    assert!(error.retryable && error.retry_after_ms > 0, "{error}");
    assert!(error.message.starts_with("t/0: 10 events"), "{error}");
    let error = world.error(link, behind).expect("told");
    assert_eq!(
        (error.code, error.retryable),
        (ErrorCode::OutOfSequence, true)
    );
    let front = push(&mut world, link, topic, 2, 0);
    acknowledge(&mut world, link, topic, 1);
    assert_eq!(stored(&world, link, front), 10);
}

#[test]
fn a_batch_that_is_sent_again_keeps_its_place() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = full(&mut world, link);
    let old = world.connect();
    push(&mut world, old, topic, 2, 0);
    let other = push(&mut world, link, topic, 3, 0);
    let again = push(&mut world, link, topic, 2, 0);
    world.disconnect(old);
    acknowledge(&mut world, link, topic, 2);
    assert_eq!(stored(&world, link, again), 10);
    assert_eq!(stored(&world, link, other), 11);
}

#[test]
fn what_nobody_waits_for_any_more_leaves_the_line() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = full(&mut world, link);
    let gone = world.connect();
    push(&mut world, gone, topic, 2, 0);
    let late = batch(topic, 3, 0, 0, &["late"]);
    let produce = Produce {
        partition: PartitionIndex(0),
        durability: Durability::Memory,
        regions: Vec::new(),
    };
    world.request_within(link, Method::Produce, topic, &produce, &late, 1000);
    let stays = push(&mut world, link, topic, 4, 0);
    world.disconnect(gone);
    world.pass(Duration::from_secs(2));
    acknowledge(&mut world, link, topic, 1);
    assert_eq!(stored(&world, link, stays), 10);
    // A producer whose batch was given up goes on with it.
    let again = push(&mut world, link, topic, 3, 0);
    acknowledge(&mut world, link, topic, 2);
    assert_eq!(stored(&world, link, again), 11);
}

#[test]
fn a_policy_that_is_altered_holds_for_those_in_line() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = full(&mut world, link);
    let [a, b] = [2, 3].map(|producer| push(&mut world, link, topic, producer, 0));
    alter(&mut world, link, topic, r#"{"type":"reject"}"#);
    for id in [a, b] {
        let error = world.error(link, id).expect("refused");
        assert_eq!(error.code, ErrorCode::TopicFull);
    }
    alter(&mut world, link, topic, r#"{"type":"block"}"#);
    let [a, b] = [2, 3].map(|producer| push(&mut world, link, topic, producer, 1));
    alter(&mut world, link, topic, r#"{"type":"grow"}"#);
    assert_eq!((stored(&world, link, a), stored(&world, link, b)), (10, 11));
}

#[test]
fn a_server_that_drains_lets_nobody_wait() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = full(&mut world, link);
    let waits = push(&mut world, link, topic, 2, 0);
    world.input(Input::Drain);
    let error = world.error(link, waits).expect("told");
    assert_eq!((error.code, error.retryable), (ErrorCode::Draining, true));
    assert!(world.drained, "nothing is left to finish");
}

#[test]
fn large_data_is_not_fetched_before_there_is_room() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = full(&mut world, link);
    let region = expose(&mut world, link, "r", vec![7; 100_000]);
    world.hold_reads = true;
    let event = external("large", &vec![7; 100_000]);
    let id = produce_external(&mut world, link, topic, 0, &[event], vec![region]);
    assert_eq!(world.held_read_count(), 0);
    acknowledge(&mut world, link, topic, 1);
    assert!(world.held_read_count() > 0);
    // What is let in counts before it is stored.
    let other = push(&mut world, link, topic, 3, 0);
    assert!(world.answer(link, other).is_none());
    world.hold_reads = false;
    world.release_reads();
    assert_eq!(stored(&world, link, id), 10);
    acknowledge(&mut world, link, topic, 2);
    assert_eq!(stored(&world, link, other), 11);
}

#[test]
fn those_in_line_leave_credit_for_other_topics() {
    let mut ground = Ground::new();
    ground.limits.produce_credit_bytes_max = 4096;
    let mut world = ground.start();
    let link = world.connect();
    let topic = full(&mut world, link);
    let text = "x".repeat(700);
    let mut outcomes = Vec::new();
    for producer in 2..6 {
        let batch = batch(topic, producer, 0, 0, &[&text]);
        let id = world.produce(link, topic, &batch);
        outcomes.push(world.error(link, id).map(|error| error.code));
    }
    let full = Some(ErrorCode::StorageFull);
    assert_eq!(outcomes, [None, None, full, full]);
    // Behind one's own batch there is nothing to be asked again before it.
    let behind = batch(topic, 2, 0, 1, &[&text]);
    let behind = world.produce(link, topic, &behind);
    let error = world.error(link, behind).unwrap();
    assert_eq!(error.code, ErrorCode::OutOfSequence);
}

/// Whatever comes in whichever order: no more than the bound is there at any
/// time, and in the end everything is, once, in the order of each producer.
#[test]
fn everything_gets_in_once_and_in_order() {
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let mut below = move |most: u64| (random.id() % u128::from(most)) as u64;
        let mut ground = Ground::new();
        let mut world = ground.start();
        let mut link = world.connect();
        let topic = full(&mut world, link);
        let mut next = BTreeMap::from([(2u128, 0u64), (3, 0), (4, 0)]);
        let mut under_way: Vec<(u128, u64, u64)> = Vec::new();
        let (mut acknowledged, mut end) = (0, 10);
        let goal = 12;
        for step in 0..10_000 {
            // What was answered counts, or is sent again.
            let mut again = Vec::new();
            under_way.retain(|(producer, at, id)| match world.answer(link, *id) {
                None => true,
                Some(Ok(reply)) => {
                    let produced = Produced::from_bytes("produced", &reply.head).unwrap();
                    end = end.max(produced.base_offset.0 + 1);
                    false
                }
                Some(Err(error)) => {
                    assert!(error.retryable, "seed {seed}: {error}");
                    again.push((*producer, *at));
                    false
                }
            });
            again.sort_unstable();
            for (producer, at) in again {
                let id = push(&mut world, link, topic, producer, at);
                under_way.push((producer, at, id));
            }
            assert!(end - acknowledged <= 10, "seed {seed}: the bound holds");
            let is_sent = next.values().all(|next| *next == goal);
            if is_sent && under_way.is_empty() {
                break;
            }
            assert!(step < 9_999, "seed {seed}: {under_way:?} wait for ever");
            match below(if is_sent { 3 } else { 10 }) {
                0 if acknowledged < end => {
                    acknowledged += 1 + below(end - acknowledged);
                    acknowledge(&mut world, link, topic, acknowledged);
                }
                1 => world.pass(Duration::from_millis(below(3000))),
                2 => {
                    world.disconnect(link);
                    link = world.connect();
                    let mut lost: Vec<(u128, u64)> =
                        under_way.drain(..).map(|(who, at, _)| (who, at)).collect();
                    lost.sort_unstable();
                    for (producer, at) in lost {
                        let id = push(&mut world, link, topic, producer, at);
                        under_way.push((producer, at, id));
                    }
                }
                _ => {
                    let producer = 2 + u128::from(below(3));
                    let at = next.get_mut(&producer).unwrap();
                    if *at < goal {
                        let id = push(&mut world, link, topic, producer, *at);
                        under_way.push((producer, *at, id));
                        *at += 1;
                    }
                }
            }
        }
        let position = world.cursor(link, topic).map_or(0, |one| one.offset.0);
        let kept = texts(&mut world, link, topic);
        let all = kept.iter().filter(|text| !text.starts_with("1:"));
        let mut seen: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        for (producer, at) in all.filter_map(|text| text.split_once(':')) {
            seen.entry(producer).or_default().push(at.parse().unwrap());
        }
        for (producer, seen) in seen {
            let is_dense = seen.windows(2).all(|pair| pair[0] + 1 == pair[1]);
            assert!(
                is_dense,
                "seed {seed}: {producer} of {seen:?} from {position}"
            );
            assert_eq!(*seen.last().unwrap(), goal - 1, "seed {seed}: {producer}");
        }
        assert_eq!(end, 10 + 3 * goal, "seed {seed}");
    }
}
