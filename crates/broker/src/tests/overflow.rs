//! What a full topic does with events, policy by policy.

use super::harness::*;
use crate::node::LinkId;
use std::time::Duration;
use wire::message::*;
use wire::record::{Gap, GapReason};
use wire::*;

/// A topic that keeps ten events of the consumer `c` in memory.
fn full(world: &mut World, link: LinkId, overflow: &str) -> TopicId {
    topic_of(world, link, overflow, r#"{"count":10}"#)
}

fn topic_of(world: &mut World, link: LinkId, overflow: &str, retention: &str) -> TopicId {
    let definition = format!(
        r#"{{"retention":{retention},"keep_until_acknowledged":["c"],"overflow":{overflow}}}"#
    );
    let created = world.create(link, "t", &definition, &["memory"]);
    created.unwrap().topic
}

/// Pushes one event as a batch; its sequence number is its metadata.
fn push(world: &mut World, link: LinkId, topic: TopicId, at: u64) -> Result<u64, ErrorReply> {
    push_as(world, link, topic, (5, 0), at)
}

fn push_as(
    world: &mut World,
    link: LinkId,
    topic: TopicId,
    (producer, epoch): (u128, u32),
    at: u64,
) -> Result<u64, ErrorReply> {
    let batch = batch(topic, producer, epoch, at, &[&at.to_string()]);
    let id = world.produce(link, topic, &batch);
    let produced: Result<Produced, _> = world.answered(link, id);
    produced.map(|produced| produced.base_offset.0)
}

fn acknowledge(world: &mut World, link: LinkId, topic: TopicId, offset: u64) {
    let id = world.move_cursor(link, topic, CursorMove::Acknowledge, at(1, offset));
    world.answer(link, id).expect("answered").unwrap();
}

fn drops(world: &World) -> (u64, u64, u64) {
    let status = world.node.status();
    let overflow = &status["topics"][0]["partitions"][0]["overflow"];
    let [refused, dropped, discarded] = ["refused_events", "dropped_events", "discarded_events"]
        .map(|key| overflow[key].as_u64().unwrap());
    (refused, dropped, discarded)
}

fn gaps(world: &mut World, link: LinkId) -> Vec<Gap> {
    let name = TopicName { name: "t".into() };
    let list: GapList = world
        .call(link, Method::ListGaps, TopicId(0), &name)
        .unwrap();
    list.gaps.into_iter().map(|(_, gap)| gap).collect()
}

/// Events and bytes that the status says are waited for.
fn waiting(world: &World) -> (u64, u64) {
    let status = world.node.status();
    let overflow = &status["topics"][0]["partitions"][0]["overflow"];
    let [events, bytes] =
        ["waiting_events", "waiting_bytes"].map(|key| overflow[key].as_u64().unwrap());
    (events, bytes)
}

#[test]
fn what_waits_in_a_topic_that_grows_is_what_its_consumers_have_not_acknowledged() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = full(&mut world, link, r#"{"type":"grow"}"#);
    for at in 0..8 {
        push(&mut world, link, topic, at).unwrap();
    }
    let (events, bytes) = waiting(&world);
    assert!(events == 8 && bytes > 0, "{events} {bytes}");
    acknowledge(&mut world, link, topic, 6);
    let (events, left) = waiting(&world);
    assert!(events == 2 && left <= bytes / 4, "{events} {left}");
    acknowledge(&mut world, link, topic, 8);
    assert_eq!(waiting(&world), (0, 0));
}

#[test]
fn nothing_waits_in_a_topic_that_waits_for_nobody() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let created = world.create(link, "t", "{}", &["memory"]);
    let topic = created.unwrap().topic;
    for at in 0..7 {
        push(&mut world, link, topic, at).unwrap();
    }
    assert_eq!(waiting(&world), (0, 0));
}

#[test]
fn a_topic_grows_unless_it_says_otherwise() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = full(&mut world, link, r#"{"type":"grow"}"#);
    for at in 0..50 {
        assert_eq!(push(&mut world, link, topic, at), Ok(at));
    }
    assert_eq!(drops(&world), (0, 0, 0));
    assert!(gaps(&mut world, link).is_empty());
}

#[test]
fn what_is_refused_says_when_to_come_again_and_leaves_no_hole() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = full(
        &mut world,
        link,
        r#"{"type":"reject","retry_after_ms":250}"#,
    );
    for at in 0..10 {
        push(&mut world, link, topic, at).unwrap();
    }
    for at in 10..40 {
        let error = push(&mut world, link, topic, at).unwrap_err();
        assert_eq!(
            (error.code, error.retry_after_ms),
            (ErrorCode::TopicFull, 250)
        );
        assert!(error.retryable);
    }
    assert_eq!(drops(&world), (30, 0, 0));
    // Sent again by a client that has not heard: the same answer, counted once,
    // also when there is room by now.
    acknowledge(&mut world, link, topic, 5);
    let again = push(&mut world, link, topic, 39).unwrap_err();
    assert_eq!(again.code, ErrorCode::TopicFull);
    assert_eq!(drops(&world), (30, 0, 0));
    // The producer's next are taken, and known when they come again.
    assert_eq!(push(&mut world, link, topic, 40), Ok(10));
    assert_eq!(push(&mut world, link, topic, 40), Ok(10));
    assert!(push(&mut world, link, topic, 20).is_err());
    // A hole that nobody refused is a hole.
    let hole = push(&mut world, link, topic, 42).unwrap_err();
    assert_eq!(hole.code, ErrorCode::OutOfSequence);
    // They had no offsets; what was acknowledged left by retention.
    let gaps = gaps(&mut world, link);
    assert!(
        gaps.iter().all(|gap| gap.reason == GapReason::Retention),
        "{gaps:?}"
    );
}

#[test]
fn a_producer_that_comes_back_goes_on_behind_what_was_refused() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = full(&mut world, link, r#"{"type":"reject"}"#);
    let open = |world: &mut World, resume| -> ProducerOpened {
        let open = OpenProducer {
            name: String::new(),
            resume,
            resume_epoch: ProducerEpoch(0),
        };
        world
            .call(link, Method::OpenProducer, topic, &open)
            .unwrap()
    };
    let opened = open(&mut world, ProducerId(0));
    let producer = (opened.producer.0, opened.epoch.0);
    for at in 0..15 {
        let pushed = push_as(&mut world, link, topic, producer, at);
        assert_eq!(pushed.is_ok(), at < 10, "{at}");
    }
    let next = open(&mut world, opened.producer).next;
    assert_eq!(next, [(PartitionIndex(0), Sequence(15))]);
}

#[test]
fn the_oldest_are_dropped_with_a_gap_that_says_so() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = full(&mut world, link, r#"{"type":"drop_oldest"}"#);
    for at in 0..5 {
        push(&mut world, link, topic, at).unwrap();
    }
    acknowledge(&mut world, link, topic, 3);
    for at in 5..100 {
        assert_eq!(push(&mut world, link, topic, at), Ok(at));
    }
    world.pass(Duration::from_secs(2));
    let gaps = gaps(&mut world, link);
    // What was acknowledged left by retention, the rest was discarded.
    assert_eq!(gaps[0].reason, GapReason::Retention);
    assert_eq!((gaps[0].first, gaps[0].end), (Offset(0), Offset(3)));
    let discarded = gaps[1..]
        .iter()
        .all(|gap| gap.reason == GapReason::Discarded);
    assert!(discarded, "{gaps:?}");
    assert_eq!(drops(&world), (0, 0, 87));
    // A consumer sees it.
    let reader = world.subscribe(link, topic, "c", Start::Cursor);
    let delivered = world.delivered(link, reader);
    let Some(Delivered::Gap(gap)) = delivered.first() else {
        panic!("{delivered:?} does not begin with a gap");
    };
    assert_eq!((gap.reason, gap.end), (GapReason::Discarded, Offset(90)));
    assert_eq!(world.texts(link, reader).len(), 10);
}

#[test]
fn the_newest_are_dropped_and_their_producer_is_told() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = full(&mut world, link, r#"{"type":"drop_newest"}"#);
    for at in 0..30 {
        let pushed = push(&mut world, link, topic, at);
        match at < 10 {
            true => assert_eq!(pushed, Ok(at)),
            false => {
                let error = pushed.unwrap_err();
                assert_eq!(error.code, ErrorCode::EventDropped);
                assert!(!error.retryable);
            }
        }
    }
    assert_eq!(drops(&world), (0, 20, 0));
    acknowledge(&mut world, link, topic, 10);
    assert_eq!(push(&mut world, link, topic, 30), Ok(10));
}

#[test]
fn what_was_dropped_stays_so_when_the_topic_is_altered_to_block() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = full(&mut world, link, r#"{"type":"drop_newest"}"#);
    for at in 0..10 {
        push(&mut world, link, topic, at).unwrap();
    }
    push(&mut world, link, topic, 10).unwrap_err();
    let alter = AlterTopic {
        changes: r#"{"overflow":{"type":"block"}}"#.into(),
    };
    world
        .call::<TopicDescription>(link, Method::AlterTopic, topic, &alter)
        .unwrap();
    // Told to come again, it would for ever.
    let error = push(&mut world, link, topic, 10).unwrap_err();
    assert_eq!(
        (error.code, error.retryable),
        (ErrorCode::EventDropped, false)
    );
    let waits = batch(topic, 5, 0, 11, &["11"]);
    let waits = world.produce(link, topic, &waits);
    assert!(world.answer(link, waits).is_none());
    acknowledge(&mut world, link, topic, 1);
    assert!(world.answered::<Produced>(link, waits).is_ok());
}

#[test]
fn one_in_so_many_is_sampled_and_the_bound_holds() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = full(&mut world, link, r#"{"type":"sample","one_in":5}"#);
    let mut taken = 0;
    for at in 0..110 {
        taken += u64::from(push(&mut world, link, topic, at).is_ok());
    }
    assert_eq!(taken, 10 + 100 / 5);
    world.pass(Duration::from_secs(2));
    let (refused, dropped, discarded) = drops(&world);
    assert_eq!((refused, dropped, discarded), (0, 80, 20));
    let reader = world.subscribe(link, topic, "c", Start::Beginning);
    let kept = world.texts(link, reader);
    assert_eq!(kept.len(), 10, "{kept:?}");
    let strides = kept.windows(2).map(|pair| {
        let [a, b] = [&pair[0], &pair[1]].map(|text| text.parse::<u64>().unwrap());
        b - a
    });
    assert!(strides.into_iter().all(|stride| stride == 5), "{kept:?}");
}

#[test]
fn a_bound_in_bytes_is_of_what_is_not_acknowledged_and_one_larger_event_is_let_in() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = topic_of(
        &mut world,
        link,
        r#"{"type":"reject"}"#,
        r#"{"bytes":10000}"#,
    );
    let large = "x".repeat(20_000);
    let events = [large.as_str()];
    let id = world.produce(link, topic, &batch(topic, 7, 0, 0, &events));
    world.answered::<Produced>(link, id).unwrap();
    assert!(push(&mut world, link, topic, 0).is_err());
    acknowledge(&mut world, link, topic, 1);
    let mut taken = 0;
    while push(&mut world, link, topic, taken + 1).is_ok() {
        taken += 1;
        assert!(taken < 1000, "the bound holds");
    }
    // Some 300 bytes a batch of one event.
    assert!((20..80).contains(&taken), "{taken} were taken");
    // Altered while it is full: nothing is lost, and now there is room.
    let alter = AlterTopic {
        changes: r#"{"overflow":{"type":"grow"}}"#.into(),
    };
    world
        .call::<TopicDescription>(link, Method::AlterTopic, topic, &alter)
        .unwrap();
    assert_eq!(push(&mut world, link, topic, taken + 2), Ok(taken + 1));
}

#[test]
fn after_a_restart_the_backlog_counts_what_was_there() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let definition = r#"{"retention":{"count":10},"keep_until_acknowledged":["c"],
        "overflow":{"type":"reject"},"durability":"written"}"#;
    let topic = world
        .create(link, "t", definition, &["disk"])
        .unwrap()
        .topic;
    for at in 0..8 {
        push(&mut world, link, topic, at).unwrap();
    }
    acknowledge(&mut world, link, topic, 2);
    drop(world);
    ground.kill();
    let mut world = ground.start();
    let link = world.connect();
    for at in 8..20 {
        let pushed = push(&mut world, link, topic, at);
        assert_eq!(pushed.is_ok(), at < 12, "{at}: {pushed:?}");
    }
}
