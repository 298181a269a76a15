//! Subscriptions to the newest events alone: what is passed over, and what never is.

use super::harness::*;
use crate::node::LinkId;
use crate::random::Random;
use wire::codec::{Appended, Codec};
use wire::frame::FrameKind;
use wire::message::*;
use wire::*;

fn newest(credit: u64, start: Start) -> Subscribe {
    Subscribe {
        consumer: "viewer".into(),
        partition: PartitionIndex(0),
        start,
        credit,
        inline_data: true,
        latest: Appended(true),
    }
}

fn subscribe(world: &mut World, link: LinkId, topic: TopicId, credit: u64, start: Start) -> u64 {
    let subscribe = newest(credit, start);
    world.request(link, Method::Subscribe, topic, &subscribe, &[])
}

/// Gives back all that was delivered since `given`.
fn credit(world: &mut World, link: LinkId, id: u64, given: &mut u64) {
    let inbox = world.links[&link].inbox.iter();
    let delivered = inbox.filter(|m| m.id == id && m.kind == FrameKind::Deliver);
    let bytes: u64 = delivered.map(net::Message::payload_bytes).sum();
    let credit = Credit {
        bytes: bytes - *given,
    };
    *given = bytes;
    world.message(link, FrameKind::Credit, id, credit.to_bytes(), &[]);
}

/// The last event of each batch that was delivered: their reader takes no other.
fn taken(world: &World, link: LinkId, id: u64) -> Vec<u64> {
    let inbox = world.links[&link].inbox.iter();
    let delivered = inbox.filter(|m| m.id == id && m.kind == FrameKind::Deliver);
    let count = delivered.count();
    let offsets: Vec<u64> = world
        .delivered(link, id)
        .into_iter()
        .map(|delivered| match delivered {
            Delivered::Event(position, _) => position.offset.0,
            Delivered::Gap(gap) => panic!("{gap:?}: nothing was lost"),
        })
        .collect();
    assert!(offsets.is_sorted(), "{offsets:?}");
    // Batches here have three events each.
    let taken: Vec<u64> = offsets.chunks(3).map(|batch| batch[2]).collect();
    assert_eq!(taken.len(), count, "one batch a delivery: the newest");
    taken
}

#[test]
fn with_credit_it_goes_on_at_the_newest_event() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    let store = |world: &mut World, batches: std::ops::Range<u64>| {
        for batch in batches {
            world.stored(link, topic, (5, 3 * batch), &["a", "b", "c"]);
        }
    };
    store(&mut world, 0..10);
    let mut given = 0;
    let id = subscribe(&mut world, link, topic, 1, Start::Beginning);
    let subscribed: Subscribed = world.answered(link, id).unwrap();
    assert_eq!(subscribed.position, at(1, 0), "where the count begins");
    assert_eq!(taken(&world, link, id), [29]);
    // Without credit nothing comes, however much there is.
    store(&mut world, 10..20);
    assert_eq!(taken(&world, link, id), [29]);
    credit(&mut world, link, id, &mut given);
    assert_eq!(taken(&world, link, id), [29, 59]);
    // The topic is quiet: nothing comes twice.
    credit(&mut world, link, id, &mut given);
    assert_eq!(taken(&world, link, id), [29, 59]);
    store(&mut world, 20..21);
    assert_eq!(taken(&world, link, id), [29, 59, 62]);
}

/// Whatever comes when: positions increase, and when the topic is quiet and there is credit, its
/// last event was delivered.
#[test]
fn the_last_event_of_a_quiet_topic_is_always_delivered() {
    for seed in 0..40 {
        let mut random = Random::new(seed + 1);
        let mut ground = Ground::new();
        let mut world = ground.start();
        let link = world.connect();
        let topic = world.topic(link);
        let window = [1, 100, 1 << 20][seed as usize % 3];
        world.stored(link, topic, (5, 0), &["a", "b", "c"]);
        let id = subscribe(&mut world, link, topic, window, Start::Beginning);
        let (mut stored, mut given) = (1, 0);
        for _ in 0..60 {
            match random.id() % 3 {
                0 => credit(&mut world, link, id, &mut given),
                _ => {
                    world.stored(link, topic, (5, 3 * stored), &["a", "b", "c"]);
                    stored += 1;
                }
            }
        }
        credit(&mut world, link, id, &mut given);
        let taken = taken(&world, link, id);
        assert!(
            taken.windows(2).all(|two| two[0] < two[1]),
            "seed {seed}: {taken:?}"
        );
        assert_eq!(taken.last(), Some(&(3 * stored - 1)), "seed {seed}");
    }
}

/// A batch that was read, and then had to wait for credit, is not delivered if there are newer ones.
#[test]
fn what_waited_for_credit_is_outdated() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    let text = "x".repeat(1000);
    let batch: [&str; 3] = [&text; 3];
    world.stored(link, topic, (5, 0), &batch);
    // The window is larger than one batch, and smaller than two.
    let id = subscribe(&mut world, link, topic, 5000, Start::Beginning);
    assert_eq!(taken(&world, link, id), [2]);
    for sequence in 1..5 {
        world.stored(link, topic, (5, 3 * sequence), &batch);
    }
    assert_eq!(taken(&world, link, id), [2]);
    credit(&mut world, link, id, &mut 0);
    assert_eq!(taken(&world, link, id), [2, 14]);
}

#[test]
fn members_and_keys_get_every_event() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    for (member, key) in [(MemberId(7), None), (MemberId(0), Some("camera".into()))] {
        let scoped = SubscribeScoped {
            member,
            key,
            subscribe: newest(1, Start::Beginning),
        };
        let id = world.request(link, Method::SubscribeScoped, topic, &scoped, &[]);
        let error = world.error(link, id).expect("it is refused");
        assert_eq!(error.code, ErrorCode::InvalidConsumer);
        assert!(error.message.contains("the newest"), "{}", error.message);
    }
}
