//! The status of a large node, made in slices between inputs.

use super::harness::*;
use crate::node::{Input, LinkId};
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;
use wire::message::*;
use wire::*;

/// Topics of so many partitions, 10,000 in all.
const PARTITIONS: [usize; 3] = [4096, 4096, 1808];

fn large(world: &mut World, link: LinkId) -> Vec<TopicId> {
    let topics = PARTITIONS.iter().zip(["a", "b", "c"]);
    let made = topics.map(|(count, name)| {
        let kinds = vec!["memory"; *count];
        world.create(link, name, "{}", &kinds).unwrap().topic
    });
    made.collect()
}

fn ask(world: &mut World, link: LinkId) -> u64 {
    world.request(link, Method::Status, TopicId(0), &Empty, &[])
}

fn status(world: &World, link: LinkId, asked: u64) -> Option<Value> {
    let message = world.answer(link, asked)?.unwrap();
    let reply = match message.payload.is_empty() {
        true => StatusReply::from_bytes("status", &message.head),
        false => StatusReply::from_bytes("status", &message.payload.concat()),
    };
    Some(serde_json::from_str(&reply.unwrap().json).unwrap())
}

fn partition_count(status: &Value) -> usize {
    let topics = status["topics"].as_array().unwrap().iter();
    topics
        .map(|topic| topic["partitions"].as_array().unwrap().len())
        .sum()
}

#[test]
fn who_produces_beside_a_status_of_ten_thousand_partitions_is_answered_in_between() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let monitor = world.connect();
    let producer = world.connect();
    let topics = large(&mut world, producer);
    let asked = ask(&mut world, monitor);
    let mut stored = 0;
    while status(&world, monitor, asked).is_none() {
        // It is answered at once, and the status is not complete.
        world.stored(producer, topics[2], (5, stored), &["event"]);
        stored += 1;
        assert_eq!(status(&world, monitor, asked), None);
        world.input(Input::Timer);
    }
    // 10,000 rows in slices of 128.
    assert!(stored > 70, "{stored} slices");
    let status = status(&world, monitor, asked).unwrap();
    assert_eq!(partition_count(&status), 10_000);
}

/// What goes while a status is made is left out of it, and what it says of the rest is whole.
#[test]
fn a_status_is_complete_though_topics_and_connections_go_meanwhile() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let monitor = world.connect();
    let other = world.connect();
    let topics = large(&mut world, other);
    let late = world.connect();
    for link in [monitor, other, late] {
        world.subscribe(link, topics[0], "c", Start::Beginning);
    }
    let asked = [monitor, late].map(|link| ask(&mut world, link));
    let name = TopicName { name: "b".into() };
    world.request(other, Method::DeleteTopic, TopicId(0), &name, &[]);
    world.disconnect(other);
    world.disconnect(late);
    assert!(world.answer(monitor, asked[0]).is_none());
    let again = ask(&mut world, monitor);
    world.pass(Duration::ZERO);
    let first = status(&world, monitor, asked[0]).unwrap();
    let second = status(&world, monitor, again).unwrap();
    assert_eq!(partition_count(&second), 4096 + 1808);
    assert!(partition_count(&first) >= 4096 + 1808);
    assert_eq!(second["sessions"].as_array().unwrap().len(), 1);
    assert_eq!(
        second["sessions"][0]["subscriptions"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    let mut topics = second["topics"].as_array().unwrap().iter();
    let read = topics.find(|topic| topic["name"] == "a").unwrap();
    assert_eq!(read["consumers"][0]["name"], "c");
    let timer = world.node.next_timer();
    assert!(
        timer.is_some_and(|at| at > world.now.monotonic),
        "{timer:?}"
    );
}

/// Who asks while a status is made shares the next one, and who is gone gets none.
#[test]
fn so_many_who_ask_at_once_share_a_status() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let owner = world.connect();
    large(&mut world, owner);
    let links: Vec<_> = (0..8).map(|_| world.connect()).collect();
    let asked: Vec<_> = links.iter().map(|link| ask(&mut world, *link)).collect();
    world.disconnect(links[0]);
    let mut answered = BTreeSet::new();
    let mut rounds = Vec::new();
    while answered.len() < links.len() - 1 {
        world.input(Input::Timer);
        let all = links.iter().zip(&asked).skip(1);
        let here = all.filter(|(link, asked)| status(&world, **link, **asked).is_some());
        let here: BTreeSet<_> = here.map(|(link, _)| *link).collect();
        rounds.extend((here.len() > answered.len()).then_some(here.len()));
        answered = here;
    }
    // The one that was begun was for the first alone, who is gone.
    assert_eq!(rounds, [7]);
}
