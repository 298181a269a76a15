//! What consumers may rely on, besides the promises.

use super::harness::*;
use crate::node::{Input, LinkId};
use log::testing::Survival;
use std::time::Duration;
use wire::codec::Appended;
use wire::frame::FrameKind;
use wire::message::*;
use wire::record::{Gap, GapReason};
use wire::*;

fn credit(world: &mut World, link: LinkId, subscription: u64, bytes: u64) {
    let credit = Credit { bytes };
    world.message(
        link,
        FrameKind::Credit,
        subscription,
        credit.to_bytes(),
        &[],
    );
}

fn subscribe_with(world: &mut World, link: LinkId, topic: TopicId, bytes: u64) -> u64 {
    let subscribe = Subscribe {
        consumer: "c".into(),
        partition: PartitionIndex(0),
        start: Start::Beginning,
        credit: bytes,
        inline_data: true,
        latest: Appended(false),
    };
    world.request(link, Method::Subscribe, topic, &subscribe, &[])
}

fn delivered_bytes(world: &World, link: LinkId) -> u64 {
    let inbox = world.links[&link].inbox.iter();
    inbox
        .filter(|m| m.kind == FrameKind::Deliver)
        .map(net::Message::payload_bytes)
        .sum()
}

fn gaps(delivered: &[Delivered]) -> Vec<Gap> {
    let gap = |delivered: &Delivered| match delivered {
        Delivered::Gap(gap) => Some(*gap),
        Delivered::Event(..) => None,
    };
    delivered.iter().filter_map(gap).collect()
}

#[test]
fn no_more_is_delivered_than_there_is_credit_for() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    let text = "x".repeat(1000);
    for sequence in 0..20 {
        world.stored(link, topic, (5, sequence), &[&text]);
    }
    let window = 5000;
    let subscription = subscribe_with(&mut world, link, topic, window);
    let mut given = window;
    // The consumer gives back the half of its window that it has consumed.
    while world.texts(link, subscription).len() < 20 {
        let bytes = delivered_bytes(&world, link);
        assert!(bytes <= given, "{bytes} delivered, credit for {given}");
        assert!(
            bytes > given - window,
            "nothing moves at {bytes} of {given}"
        );
        credit(&mut world, link, subscription, window / 2);
        given += window / 2;
    }
    let id = world.request(
        link,
        Method::Unsubscribe,
        topic,
        &Unsubscribe { subscription },
        &[],
    );
    world.answered::<Empty>(link, id).unwrap();
    world.stored(link, topic, (5, 20), &["late"]);
    assert_eq!(
        world.texts(link, subscription).len(),
        20,
        "delivered after the end"
    );
}

#[test]
fn a_batch_larger_than_the_window_is_let_out_alone() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    let text = "x".repeat(10_000);
    for sequence in 0..3 {
        world.stored(link, topic, (5, sequence), &[&text]);
    }
    let subscription = subscribe_with(&mut world, link, topic, 1000);
    for count in 1..=3 {
        assert_eq!(world.texts(link, subscription).len(), count);
        let bytes = delivered_bytes(&world, link) / count as u64;
        credit(&mut world, link, subscription, bytes);
    }
}

/// A connection that does not take what was sent gets no more.
#[test]
fn a_connection_above_the_high_watermark_is_given_time() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    let subscription = subscribe_with(&mut world, link, topic, 1 << 20);
    let bytes = 100 << 20;
    world.input(Input::LinkQueued { link, bytes });
    world.stored(link, topic, (5, 0), &["a"]);
    let bytes = 3 << 20;
    world.input(Input::LinkQueued { link, bytes });
    assert!(world.texts(link, subscription).is_empty());
    world.input(Input::LinkQueued { link, bytes: 0 });
    assert_eq!(world.texts(link, subscription), ["a"]);
}

#[test]
fn starts_and_their_bounds() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    for sequence in 0..3 {
        world.stored(link, topic, (5, sequence), &[&sequence.to_string()]);
    }
    for (start, texts) in [
        (Start::Beginning, &["0", "1", "2"][..]),
        (Start::Cursor, &["0", "1", "2"]),
        (Start::Latest, &[]),
        (Start::CursorOrLatest, &[]),
        (Start::At(at(1, 2)), &["2"]),
        (Start::At(at(0, 1)), &["1", "2"]),
        (Start::At(at(1, 3)), &[]),
    ] {
        let id = world.subscribe(link, topic, "c", start);
        assert_eq!(world.texts(link, id), texts, "{start:?}");
    }
    for (start, code) in [
        (Start::At(at(1, 4)), ErrorCode::OffsetOutOfRange),
        (Start::At(at(2, 0)), ErrorCode::WrongIncarnation),
    ] {
        let id = world.subscribe(link, topic, "c", start);
        assert_eq!(world.error(link, id).unwrap().code, code);
    }
}

#[test]
fn a_fetch_waits_for_its_first_event_and_no_longer_than_it_said() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    let early = world.request(link, Method::Fetch, topic, &fetch(at(1, 0), 100), &[]);
    let late = world.request(link, Method::Fetch, topic, &fetch(at(1, 0), 50), &[]);
    world.pass(Duration::from_millis(50));
    assert_eq!(world.fetched(link, late), []);
    assert!(world.answer(link, early).is_none());
    world.stored(link, topic, (5, 0), &["a"]);
    assert_eq!(
        world.fetched(link, early),
        [Delivered::Event(at(1, 0), "a".into())]
    );
    world.pass(Duration::from_secs(1));
}

/// What retention drops is a gap: to readers that are behind, and in the list.
#[test]
fn what_retention_drops_is_told() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let create = CreateTopic {
        name: "t".into(),
        definition: r#"{"retention":{"count":10}}"#.into(),
        partitions: vec![PartitionStorage {
            kind: "disk".into(),
            config: r#"{"segment_bytes":4096}"#.into(),
        }],
    };
    let topic: TopicDescription = world
        .call(link, Method::CreateTopic, TopicId(0), &create)
        .unwrap();
    let topic = topic.topic;
    let behind = subscribe_with(&mut world, link, topic, 0);
    let slow = MoveCursors {
        consumer: "slow".into(),
        how: CursorMove::Acknowledge,
        positions: vec![(PartitionIndex(0), at(1, 0))],
    };
    world
        .call::<Empty>(link, Method::MoveCursors, topic, &slow)
        .unwrap();
    let text = "x".repeat(400);
    for sequence in 0..100 {
        world.stored(link, topic, (5, sequence), &[&text]);
        world.pass(Duration::from_secs(1));
        world.message(link, FrameKind::Heartbeat, 0, vec![], &[]);
    }
    let first = world.describe(link, "t").unwrap().partitions[0].first;
    assert!(first.0 > 50, "nothing was dropped before {first}");
    // Nobody is behind by events that are gone.
    let status = world.node.status();
    let consumers = status["topics"][0]["consumers"].as_array().unwrap();
    let slow = consumers.iter().find(|one| one["name"] == "slow").unwrap();
    assert_eq!(slow["lag"], 100 - first.0, "{slow}");
    assert_eq!(slow["cursors"][0]["lag"], 100 - first.0, "{slow}");
    let lost = |list: &[Gap]| -> Vec<(u64, u64, GapReason)> {
        list.iter()
            .map(|gap| (gap.first.0, gap.end.0, gap.reason))
            .collect()
    };
    let expected = [(0, first.0, GapReason::Retention)];
    credit(&mut world, link, behind, 1 << 20);
    let delivered = world.delivered(link, behind);
    assert_eq!(lost(&gaps(&delivered)), expected);
    assert_eq!(world.texts(link, behind).len() as u64, 100 - first.0);
    for round in 0..2 {
        let name = TopicName { name: "t".into() };
        let list: GapList = world
            .call(link, Method::ListGaps, TopicId(0), &name)
            .unwrap();
        let listed: Vec<Gap> = list.gaps.iter().map(|(_, gap)| *gap).collect();
        assert_eq!(lost(&listed), expected, "round {round}");
        if round == 0 {
            drop(world);
            ground.kill();
            world = ground.start();
            let again = world.connect();
            assert_eq!(again, link);
        }
    }
}

/// A slow reader has had some of the events that retention drops next: the gap
/// that it is told begins behind them.
#[test]
fn a_gap_names_only_what_its_reader_did_not_get() {
    for kind in ["disk", "memory"] {
        let mut ground = Ground::new();
        let mut world = ground.start();
        let link = world.connect();
        let create = CreateTopic {
            name: "t".into(),
            definition: "{}".into(),
            partitions: vec![PartitionStorage {
                kind: kind.into(),
                config: match kind {
                    "disk" => r#"{"segment_bytes":4096}"#.into(),
                    _ => String::new(),
                },
            }],
        };
        let topic: TopicDescription = world
            .call(link, Method::CreateTopic, TopicId(0), &create)
            .unwrap();
        let topic = topic.topic;
        let slow = subscribe_with(&mut world, link, topic, 3000);
        let text = "x".repeat(400);
        for sequence in 0..100 {
            world.stored(link, topic, (5, sequence), &[&text]);
        }
        let changes = r#"{"retention":{"count":10}}"#.into();
        let alter = AlterTopic { changes };
        let _: TopicDescription = world.call(link, Method::AlterTopic, topic, &alter).unwrap();
        let first = world.describe(link, "t").unwrap().partitions[0].first;
        credit(&mut world, link, slow, 1 << 20);
        let delivered = world.delivered(link, slow);
        let is_event = |delivered: &&Delivered| matches!(delivered, Delivered::Event(..));
        let had = delivered.iter().take_while(is_event).count() as u64;
        assert!(had > 0 && had < first.0, "{had} of {first}");
        let told = gaps(&delivered);
        let range = |gap: &Gap| (gap.first.0, gap.end.0);
        assert_eq!(told.iter().map(range).collect::<Vec<_>>(), [(had, first.0)]);
        // A fetch is told what it asked for, and no more.
        let from = at(1, had + 1);
        let fetched = world.request(link, Method::Fetch, topic, &fetch(from, 0), &[]);
        let told = gaps(&world.fetched(link, fetched));
        assert_eq!(range(&told[0]), (had + 1, first.0), "{kind}");
    }
}

/// What was done with events need not survive what these do not. Where a seek
/// goes somebody has decided, which is kept for good.
#[test]
fn an_acknowledgement_survives_what_its_events_do() {
    for (definition, kind) in [(r#"{"durability":"written"}"#, "disk"), ("{}", "memory")] {
        let mut ground = Ground::new();
        let mut world = ground.start();
        let link = world.connect();
        let topic = world.create(link, "t", definition, &[kind]).unwrap().topic;
        world.stored(link, topic, (5, 0), &["a", "b", "c"]);
        // The first record of all has a file to be made for it.
        let begun = world.move_cursor(link, topic, CursorMove::Acknowledge, at(1, 1));
        world.answered::<Empty>(link, begun).unwrap();
        world.hold_disk = true;
        let moved = world.move_cursor(link, topic, CursorMove::Acknowledge, at(1, 2));
        assert!(world.answer(link, moved).is_none(), "{kind}");
        // It is written; nobody waits for the disk to be done with it.
        assert_eq!(world.held_operation_count(), 1, "{kind}");
        world.release_operation(0);
        world.answered::<Empty>(link, moved).unwrap();
        ground.kill();
        let mut world = ground.start();
        let link = world.connect();
        assert_eq!(world.cursor(link, topic), Some(at(1, 2)), "{kind}");
        if kind == "memory" {
            continue;
        }
        world.hold_disk = true;
        let sought = world.move_cursor(link, topic, CursorMove::Seek, at(1, 1));
        world.release_operation(0);
        assert!(world.answer(link, sought).is_none());
        world.release_disk();
        world.answered::<Empty>(link, sought).unwrap();
        ground.power_loss(Survival::Nothing);
        let mut world = ground.start();
        let link = world.connect();
        assert_eq!(world.cursor(link, topic), Some(at(1, 1)));
    }
}

/// A `written` partition that meets a power loss begins another life behind
/// what survived; nothing is delivered twice under one position.
#[test]
fn a_power_loss_begins_another_life() {
    for survival in [Survival::Nothing, Survival::All, Survival::Some(3)] {
        let mut ground = Ground::new();
        let mut world = ground.start();
        let link = world.connect();
        let definition = r#"{"durability":"written"}"#;
        let topic = world
            .create(link, "t", definition, &["disk"])
            .unwrap()
            .topic;
        for sequence in 0..3 {
            world.stored(link, topic, (5, sequence), &[&sequence.to_string()]);
        }
        let moved = world.move_cursor(link, topic, CursorMove::Acknowledge, at(1, 3));
        world.answered::<Empty>(link, moved).unwrap();
        ground.power_loss(survival);
        let mut world = ground.start();
        let link = world.connect();
        let description = world.describe(link, "t").unwrap();
        let kept = description.partitions[0].watermarks.committed;
        assert_eq!(description.partitions[0].incarnation, Incarnation(2));
        assert_eq!(description.partitions[0].ended, [(Incarnation(1), kept)]);
        world.stored(link, topic, (6, 0), &["new"]);
        // One that had not come so far gets what survived of the old life.
        let mut events: Vec<_> = (0..kept.0)
            .map(|n| Delivered::Event(at(2, n), n.to_string()))
            .collect();
        events.push(Delivered::Event(at(2, kept.0), "new".into()));
        let id = world.subscribe(link, topic, "d", Start::At(at(1, 0)));
        assert_eq!(world.delivered(link, id)[1..], events);
        // So does one whose cursor did not survive, which was written like the events.
        if world.cursor(link, topic).is_some() {
            events.drain(..events.len() - 1);
        }
        let subscription = world.subscribe(link, topic, "c", Start::Cursor);
        let delivered = world.delivered(link, subscription);
        let gap = gaps(&delivered)[0];
        assert_eq!(
            (gap.incarnation, gap.reason),
            (Incarnation(1), GapReason::PowerLoss)
        );
        assert_eq!(delivered[1..], events);
        // The same, when the start that found it dies before it is recorded.
        ground.kill();
        let world = ground.start();
        assert_eq!(world.report.lines, Vec::<String>::new());
    }
}

/// Stored bytes that fail their checksum are a gap, and reading goes on behind it.
#[test]
fn damage_is_a_gap_and_reading_goes_on() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    for sequence in 0..5 {
        world.stored(
            link,
            topic,
            (5, sequence),
            &[&format!("event number {sequence}")],
        );
    }
    let path = ground.disk.paths().into_iter().find(|path| {
        path.starts_with("/data/partitions") && path.extension().is_some_and(|e| e == "log")
    });
    let path = path.unwrap();
    let content = ground.disk.content(&path).unwrap();
    let found = content
        .windows(14)
        .position(|bytes| bytes == b"event number 2")
        .unwrap();
    ground.disk.flip_bit(&path, found as u64 * 8);
    let subscription = world.subscribe(link, topic, "c", Start::Beginning);
    let texts = world.texts(link, subscription);
    assert_eq!(texts, [0, 1, 3, 4].map(|n| format!("event number {n}")));
    let gap = gaps(&world.delivered(link, subscription));
    assert_eq!(gap.len(), 1);
    assert_eq!(
        (gap[0].first, gap[0].end, gap[0].reason),
        (Offset(2), Offset(3), GapReason::Damaged)
    );
}

#[test]
fn consumers_are_listed_and_forgotten() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    world.stored(link, topic, (5, 0), &["a", "b", "c"]);
    for consumer in ["c", "d"] {
        let request = MoveCursors {
            consumer: consumer.into(),
            how: CursorMove::Acknowledge,
            positions: vec![(PartitionIndex(0), at(1, 1))],
        };
        world
            .call::<Empty>(link, Method::MoveCursors, topic, &request)
            .unwrap();
    }
    let status = world.node.status();
    assert_eq!(status["topics"][0]["consumers"][1]["lag"], 2);
    let all = ReadCursors {
        consumer: String::new(),
    };
    let list: CursorList = world.call(link, Method::ReadCursors, topic, &all).unwrap();
    assert_eq!(list.cursors.len(), 2);
    let name = ConsumerName {
        consumer: "c".into(),
    };
    world
        .call::<Empty>(link, Method::DeleteConsumer, topic, &name)
        .unwrap();
    let error = world
        .call::<Empty>(link, Method::DeleteConsumer, topic, &name)
        .err()
        .unwrap();
    assert_eq!(error.code, ErrorCode::UnknownConsumer);
    ground.kill();
    let mut world = ground.start();
    let link = world.connect();
    let list: CursorList = world.call(link, Method::ReadCursors, topic, &all).unwrap();
    let names: Vec<_> = list
        .cursors
        .iter()
        .map(|cursor| cursor.consumer.as_str())
        .collect();
    assert_eq!(names, ["d"]);
}

#[test]
fn a_subscription_begins_at_a_time() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    let mut times = Vec::new();
    for sequence in 0..20 {
        let text = sequence.to_string();
        times.push(
            world
                .stored(link, topic, (5, sequence), &[&text])
                .append_time,
        );
        world.pass(Duration::from_secs(1));
    }
    let after = times[19] + 1;
    for (index, time) in [0].iter().chain(&times).chain([&after]).enumerate() {
        let subscription = world.subscribe(link, topic, "c", Start::Time(*time));
        let subscribed: Subscribed = world.answered(link, subscription).unwrap();
        let first = index.saturating_sub(1);
        assert_eq!(subscribed.position.offset, Offset(first as u64));
        let expected: Vec<_> = (first..20).map(|number| number.to_string()).collect();
        assert_eq!(world.texts(link, subscription), expected);
    }
}

#[test]
fn a_search_by_time_ends_with_its_request() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    let time = world.stored(link, topic, (5, 0), &["a"]).append_time;
    world.hold_disk = true;
    let subscribe = Subscribe {
        consumer: "c".into(),
        partition: PartitionIndex(0),
        start: Start::Time(time),
        credit: 1 << 20,
        inline_data: true,
        latest: Appended(false),
    };
    let late = world.request_within(link, Method::Subscribe, topic, &subscribe, &[], 500);
    assert!(world.held_operation_count() > 0, "the search has begun");
    world.pass(Duration::from_secs(1));
    let error = world.error(link, late).expect("its time has passed");
    assert_eq!(error.code, ErrorCode::DeadlinePassed);
    world.release_disk();
    assert!(world.delivered(link, late).is_empty());
}
