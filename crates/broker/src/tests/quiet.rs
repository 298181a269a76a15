//! Answers that nobody hurries for.

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
