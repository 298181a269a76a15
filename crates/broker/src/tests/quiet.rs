//! Answers that nobody hurries for.

use super::farm::*;
use super::harness::*;
use crate::node::{Input, LinkId};
use std::time::Duration;
use wire::frame::FrameKind;
use wire::message::*;
use wire::*;

const LONG_ENOUGH: Duration = Duration::from_millis(1);

/// Stores an event quietly; the id of the request.
fn store(world: &mut World, link: LinkId, topic: TopicId, sequence: u64) -> u64 {
    let batch = batch(topic, 5, 0, sequence, &["x"]);
    world.is_quiet = true;
    let id = world.produce(link, topic, &batch);
    world.is_quiet = false;
    id
}

fn answers(world: &World, link: LinkId) -> Vec<u64> {
    let inbox = world.links[&link].inbox.iter();
    let replies = inbox.filter(|message| message.kind == FrameKind::Reply);
    replies.map(|message| message.id).collect()
}

#[test]
fn a_quiet_answer_goes_before_whatever_comes_next() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let (link, other) = (world.connect(), world.connect());
    let topic = world.topic(link);
    let before = answers(&world, link).len();
    let quiet = [0, 1, 2].map(|sequence| store(&mut world, link, topic, sequence));
    // They are stored; what others are sent is no company.
    assert_eq!(answers(&world, link).len(), before);
    world.describe(other, "t").unwrap();
    assert_eq!(answers(&world, link).len(), before);
    let name = TopicName { name: "t".into() };
    let described = world.request(link, Method::DescribeTopic, TopicId(0), &name, &[]);
    let all = answers(&world, link);
    assert_eq!(all[before..], [&quiet[..], &[described]].concat());
    for id in quiet {
        world.answered::<Produced>(link, id).unwrap();
    }
}

#[test]
fn events_go_ahead_of_quiet_answers() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.farm(link);
    let id = world.joined(link, topic, &member(1));
    let before = world.links[&link].inbox.len();
    let stored = store(&mut world, link, topic, 0);
    let come = world.links[&link].inbox.iter().skip(before);
    let come: Vec<(FrameKind, u64)> = come.map(|one| (one.kind, one.id)).collect();
    assert_eq!(
        come,
        [(FrameKind::Leased, id), (FrameKind::Reply, stored)],
        "who waits for events has them first"
    );
}

#[test]
fn a_quiet_answer_comes_by_itself_after_a_while() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    let first = store(&mut world, link, topic, 0);
    world.pass(LONG_ENOUGH / 2);
    let second = store(&mut world, link, topic, 1);
    assert!(world.answer(link, first).is_none());
    world.pass(LONG_ENOUGH / 2);
    for id in [first, second] {
        world.answered::<Produced>(link, id).unwrap();
    }
    // A connection that ends takes what waited with it.
    store(&mut world, link, topic, 2);
    world.disconnect(link);
    world.pass(LONG_ENOUGH);
}

#[test]
fn refusals_are_never_quiet() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    let gap = store(&mut world, link, topic, 7);
    store(&mut world, link, topic, 1000);
    let refused = store(&mut world, link, TopicId(99), 0);
    assert_eq!(
        world.error(link, refused).unwrap().code,
        ErrorCode::UnknownTopic
    );
    // And bring along what had waited.
    assert!(world.answer(link, gap).is_some());
}

#[test]
fn at_the_end_nothing_waits() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    let stored = store(&mut world, link, topic, 0);
    assert!(world.answer(link, stored).is_none());
    world.input(Input::Drain);
    world.answered::<Produced>(link, stored).unwrap();
}

#[test]
fn a_quiet_settlement_waits_until_nothing_else_is_to_be_done() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.farm(link);
    let id = world.joined(link, topic, &member(1));
    world.fill(link, topic, 0, 1, 1);
    let settle = |world: &mut World, number: usize| {
        let lease = world.given(link, id)[number].lease;
        world.is_quiet = true;
        let settlements = vec![done(lease)];
        let settle = world.send_settle(link, topic, (1, 1 + number as u64), settlements);
        world.is_quiet = false;
        settle
    };
    let first = settle(&mut world, 0);
    // Events go ahead of it, to whoever waits for them.
    world.fill(link, topic, 1, 2, 1);
    assert_eq!(world.numbers(link, id), [0, 1]);
    assert!(world.node.is_behind());
    // Nothing else does.
    assert_eq!(world.queue(link, topic).leased, 1);
    assert!(!world.node.is_behind());
    // It is wanted at once when there is nothing else.
    let second = settle(&mut world, 1);
    assert!(world.node.next_timer() <= Some(world.now.monotonic));
    world.input(Input::Timer);
    assert!(!world.node.is_behind());
    assert_eq!(world.queue(link, topic).leased, 0);
    world.pass(LONG_ENOUGH * 2);
    for id in [first, second] {
        assert!(
            world
                .answered::<Settled>(link, id)
                .unwrap()
                .expired
                .is_empty()
        );
    }
}

#[test]
fn a_quiet_settlement_does_not_wait_for_the_end_of_all_events() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.farm(link);
    let id = world.joined(link, topic, &member(1));
    world.fill(link, topic, 0, 1, 1);
    let lease = world.given(link, id)[0].lease;
    world.is_quiet = true;
    let settle = world.send_settle(link, topic, (1, 1), vec![done(lease)]);
    world.is_quiet = false;
    world.fill(link, topic, 1, 2, 1);
    assert!(world.node.is_behind());
    world.now.monotonic += Duration::from_millis(1);
    world.fill(link, topic, 2, 3, 1);
    assert!(!world.node.is_behind());
    world.pass(LONG_ENOUGH * 2);
    world.answered::<Settled>(link, settle).unwrap();
}

#[test]
fn long_settlements_are_not_kept_in_memory() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.farm(link);
    let id = world.joined(link, topic, &member(1));
    world.fill(link, topic, 0, 5, 1);
    let reason = "r".repeat(1000);
    let given = world.given(link, id).into_iter();
    let settlements = given.map(|one| Settlement {
        reason: reason.clone(),
        ..back(one.lease, 0)
    });
    let settlements = settlements.collect();
    world.is_quiet = true;
    world.send_settle(link, topic, (1, 1), settlements);
    assert!(!world.node.is_behind());
}
