//! From a topic to an acknowledgement, and topics themselves.

use super::harness::*;
use wire::message::*;
use wire::*;

#[test]
fn an_event_goes_in_and_comes_out_and_is_acknowledged() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    let produced = world.stored(link, topic, (5, 0), &["a", "b"]);
    assert_eq!(
        (produced.base_offset, produced.duplicate),
        (Offset(0), false)
    );
    let subscription = world.subscribe(link, topic, "c", Start::Cursor);
    world.stored(link, topic, (5, 2), &["c"]);
    assert_eq!(world.texts(link, subscription), ["a", "b", "c"]);
    let moved = world.move_cursor(link, topic, CursorMove::Acknowledge, at(1, 2));
    assert_eq!(world.answered::<Empty>(link, moved).err(), None);
    let mut world = ground.start();
    let link = world.connect();
    assert_eq!(world.cursor(link, topic), Some(at(1, 2)));
    let subscription = world.subscribe(link, topic, "c", Start::Cursor);
    assert_eq!(world.texts(link, subscription), ["c"]);
}

#[test]
fn a_topic_that_cannot_be_made_leaves_nothing_behind() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    *ground.fail_open.lock().unwrap() = Some(1);
    let error = world
        .create(link, "t", "{}", &["disk", "disk", "memory"])
        .unwrap_err();
    assert_eq!(error.code, ErrorCode::StorageFailed);
    assert_eq!(ground.directories(), Vec::<String>::new());
    *ground.fail_open.lock().unwrap() = None;
    for (definition, kinds, code) in [
        ("{", &["disk"][..], ErrorCode::InvalidTopic),
        (r#"{"no_such_key":1}"#, &["disk"], ErrorCode::InvalidTopic),
        ("{}", &["tape"], ErrorCode::InvalidStorage),
        (
            r#"{"durability":"synced"}"#,
            &["disk", "memory"],
            ErrorCode::InvalidStorage,
        ),
    ] {
        let error = world.create(link, "t", definition, kinds).unwrap_err();
        assert_eq!(error.code, code, "{error}");
        assert_eq!(ground.directories(), Vec::<String>::new());
    }
    assert_eq!(
        world.describe(link, "t").unwrap_err().code,
        ErrorCode::UnknownTopic
    );
    world.create(link, "t", "{}", &["disk", "memory"]).unwrap();
    // A memory partition has none.
    assert_eq!(ground.directories().len(), 1);
    let error = world.create(link, "t", "{}", &["disk"]).unwrap_err();
    assert_eq!(error.code, ErrorCode::TopicExists);
}

#[test]
fn a_topic_that_was_made_anew_is_not_deleted_for_the_one_before() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let first = world.topic(link);
    let name = TopicName { name: "t".into() };
    let delete = |world: &mut World, id| world.call::<Empty>(link, Method::DeleteTopic, id, &name);
    delete(&mut world, first).unwrap();
    let second = world.topic(link);
    let refused = delete(&mut world, first).unwrap_err();
    assert_eq!(refused.code, ErrorCode::UnknownTopic);
    assert_eq!(world.describe(link, "t").unwrap().topic, second);
    delete(&mut world, second).unwrap();
    assert!(world.describe(link, "t").is_err());
}

#[test]
fn partitions_of_a_spread_topic_are_added_behind_those_that_there_are_by_then() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let spread = r#"{"spread": {"partitions": [{"storage": "disk", "count": 1}]}}"#;
    let topic = world.create(link, "wide", spread, &[]).unwrap().topic;
    let more = |kinds: &[&str], placement: &str| AddPlacedPartitions {
        partitions: kinds
            .iter()
            .map(|kind| PartitionStorage {
                kind: (*kind).to_owned(),
                config: String::new(),
            })
            .collect(),
        placement: placement.to_owned(),
    };
    let mut add = |topic, more: &AddPlacedPartitions| {
        world.call::<TopicDescription>(link, Method::AddPlacedPartitions, topic, more)
    };
    add(topic, &more(&["memory"], "")).unwrap();
    let grown = add(topic, &more(&["memory", "disk"], "")).unwrap();
    let definition = topic::Definition::from_json(&grown.definition).unwrap();
    let makings = definition.spread().unwrap().makings();
    let kinds: Vec<_> = makings.map(|making| making.storage).collect();
    assert_eq!(kinds, ["disk", "memory", "memory", "disk"]);
    for (more, code) in [
        (more(&["granite"], ""), ErrorCode::InvalidStorage),
        (more(&["disk"], "rank=1"), ErrorCode::InvalidTopic),
        (more(&["disk"], "rank"), ErrorCode::InvalidTopic),
    ] {
        assert_eq!(add(topic, &more).unwrap_err().code, code);
    }
    let plain = world.topic(link);
    let mut add = |topic, more: &AddPlacedPartitions| {
        world.call::<TopicDescription>(link, Method::AddPlacedPartitions, topic, more)
    };
    let refused = add(plain, &more(&["disk"], "")).unwrap_err();
    assert!(refused.message.contains("on one node"), "{refused}");
}

#[test]
fn a_deleted_topic_is_gone_with_its_files_and_its_readers_are_told() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    let subscription = world.subscribe(link, topic, "c", Start::Beginning);
    let name = TopicName { name: "t".into() };
    world
        .call::<Empty>(link, Method::DeleteTopic, TopicId(0), &name)
        .unwrap();
    assert_eq!(ground.directories(), Vec::<String>::new());
    let ended = world.links[&link]
        .inbox
        .iter()
        .find(|m| m.kind == wire::frame::FrameKind::Ended);
    let ended = ended.unwrap();
    let error = ErrorReply::from_bytes("error", &ended.head).unwrap();
    assert_eq!(
        (ended.id, error.code),
        (subscription, ErrorCode::UnknownTopic)
    );
    let mut world = ground.start();
    let link = world.connect();
    assert_eq!(
        world.describe(link, "t").unwrap_err().code,
        ErrorCode::UnknownTopic
    );
    // A new topic of the same name is another one.
    assert_ne!(world.topic(link), topic);
}

#[test]
fn partitions_are_added_to_a_live_topic() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.create(link, "t", "{}", &[]).unwrap().topic;
    let batch = batch(topic, 5, 0, 0, &["a"]);
    let id = world.produce(link, topic, &batch);
    assert_eq!(world.error(link, id).unwrap().code, ErrorCode::NoPartitions);
    let add = AddPartitions {
        partitions: vec![storage("disk"), storage("memory")],
    };
    let described: TopicDescription = world
        .call(link, Method::AddPartitions, topic, &add)
        .unwrap();
    let kinds: Vec<_> = described
        .partitions
        .iter()
        .map(|p| p.storage.kind.as_str())
        .collect();
    assert_eq!(kinds, ["disk", "memory"]);
    assert_eq!(described.partitions[0].durability, Durability::Synced);
    assert_eq!(described.partitions[1].durability, Durability::Memory);
    world.stored(link, topic, (5, 0), &["a"]);
    let mut world = ground.start();
    let link = world.connect();
    assert_eq!(world.describe(link, "t").unwrap().partitions.len(), 2);
}

/// Names and lists of any length: an answer that does not fit a head is a payload.
#[test]
fn long_answers_and_long_names_fit_their_frames() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let name = "\u{1}".repeat(200_000);
    let error = world.describe(link, &name).unwrap_err();
    assert_eq!(error.code, ErrorCode::UnknownTopic);
    let kinds = vec!["memory"; 4000];
    for index in 0..4 {
        let name = format!("t{index}");
        world.create(link, &name, "{}", &kinds).unwrap();
    }
    let list: TopicList = world
        .call(link, Method::ListTopics, TopicId(0), &Empty)
        .unwrap();
    assert_eq!(list.topics.len(), 4);
    let heads = world.links[&link].inbox.iter().map(|m| m.head.len());
    assert!(heads.max() <= Some(wire::frame::HEAD_BYTES_MAX as usize));
    let payloads = world.links[&link].inbox.iter().map(|m| m.payload_bytes());
    assert!(payloads.max() > Some(1 << 20), "nothing was long");
}

#[test]
fn a_topic_in_the_making_does_not_exist_yet() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    world.hold_disk = true;
    assert_eq!(world.try_create(link, "t", &["disk"]), None);
    let early = world.try_create(link, "t", &["disk"]);
    let error = early.expect("it is answered at once").unwrap_err();
    assert_eq!(
        (error.code, error.retryable),
        (ErrorCode::TopicExists, true)
    );
    world.release_disk();
    let late = world.try_create(link, "t", &["disk"]);
    let error = late.expect("it is answered at once").unwrap_err();
    assert_eq!(
        (error.code, error.retryable),
        (ErrorCode::TopicExists, false)
    );
}

pub(super) fn alter(
    world: &mut World,
    link: crate::node::LinkId,
    topic: TopicId,
    changes: &str,
) -> Result<TopicDescription, ErrorReply> {
    let changes = AlterTopic {
        changes: changes.into(),
    };
    world.call(link, Method::AlterTopic, topic, &changes)
}

/// A schema that takes all, in three times the work for each level.
pub(super) fn nested(levels: usize) -> String {
    let mut defs = format!(r#""l{levels}": {{}}"#);
    for level in 0..levels {
        let next = format!(r##"{{"$ref": "#/$defs/l{}"}}"##, level + 1);
        defs += &format!(
            r#", "l{level}": {{"anyOf": [{{"not": {next}}}, {{"not": {next}}}, {next}]}}"#
        );
    }
    format!(r##"{{"$ref": "#/$defs/l0", "$defs": {{{defs}}}}}"##)
}

/// The work for `{}` multiplies by three with each level, and the node answers others.
#[test]
fn a_schema_of_boundless_work_is_refused_when_a_topic_is_made_or_altered() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let validator = |levels| {
        let schema = nested(levels);
        format!(r#"{{"validator": {{"type": "schema", "schema": {schema}}}}}"#)
    };
    let few = world.create(link, "few", &validator(3), &["disk"]).unwrap();
    for levels in [15, 20] {
        let created = world.create(link, "t", &validator(levels), &["disk"]);
        let altered = alter(&mut world, link, few.topic, &validator(levels));
        for error in [created.unwrap_err(), altered.unwrap_err()] {
            assert_eq!(error.code, ErrorCode::InvalidTopic);
            for words in [
                "key \"validator.schema\"",
                "validation budget",
                "metadata {}",
            ] {
                assert!(error.message.contains(words), "{error}");
            }
        }
    }
    alter(&mut world, link, few.topic, &validator(4)).unwrap();
}

#[test]
fn a_topic_is_altered_while_it_is_in_use() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let definition = r#"{"retention":{"count":1000},"validate_on_server":true}"#;
    let made = world.create(link, "t", definition, &["memory"]).unwrap();
    let subscription = world.subscribe(link, made.topic, "c", Start::Beginning);
    for sequence in 0..10 {
        world.stored(link, made.topic, (5, sequence), &["{}"]);
    }
    let changes = r#"{"retention":{"count":3},"validator":{"type":"json"}}"#;
    let altered = alter(&mut world, link, made.topic, changes).unwrap();
    assert_eq!(altered.partitions[0].first, Offset(7));
    let bad = batch(made.topic, 5, 0, 10, &["no json"]);
    let refused = world.produce(link, made.topic, &bad);
    let error = world.error(link, refused).expect("the server checks now");
    assert_eq!(error.code, ErrorCode::InvalidEvent);
    world.stored(link, made.topic, (6, 0), &["{}"]);
    assert_eq!(world.texts(link, subscription).len(), 11);
    for (changes, said) in [
        (r#"{"durability":"memory"}"#, "durability"),
        (r#"{"retention":{"count":0}}"#, "retention.count"),
        ("[]", "object"),
    ] {
        let error = alter(&mut world, link, made.topic, changes).unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidTopic);
        assert!(error.message.contains(said), "{error}");
    }
    // What was not named stays; it is the same after a restart.
    let mut world = ground.start();
    let link = world.connect();
    let known = world.describe(link, "t").unwrap();
    assert_eq!(known.definition, altered.definition);
    let plain = alter(&mut world, link, made.topic, r#"{"retention":null}"#).unwrap();
    assert!(plain.definition.contains(r#""retention":{}"#));
    assert!(plain.definition.contains(r#""validator":{"type":"json"}"#));
}

#[test]
fn what_a_named_consumer_has_not_acknowledged_is_kept() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    for (name, retention) in [("counted", r#"{"count":2}"#), ("plain", "{}")] {
        let definition =
            format!(r#"{{"retention":{retention},"keep_until_acknowledged":["c","archive"]}}"#);
        let made = world.create(link, name, &definition, &["memory"]).unwrap();
        for sequence in 0..10 {
            world.stored(link, made.topic, (5, sequence), &["a"]);
        }
        let mut first = |consumer: &str, offset| {
            let request = MoveCursors {
                consumer: consumer.into(),
                how: CursorMove::Acknowledge,
                positions: vec![(PartitionIndex(0), at(1, offset))],
            };
            let moved = world.request(link, Method::MoveCursors, made.topic, &request, &[]);
            assert_eq!(world.answered::<Empty>(link, moved).err(), None);
            world.describe(link, name).unwrap().partitions[0].first
        };
        assert_eq!(first("c", 5), Offset(0), "the archive has seen nothing");
        assert_eq!(first("archive", 4), Offset(4));
        assert_eq!(first("other", 9), Offset(4));
        assert_eq!(first("c", 10), Offset(4));
        let all = if name == "counted" { 8 } else { 10 };
        assert_eq!(first("archive", 10), Offset(all));
    }
}

/// A topic whose deletion could not be recorded is as it was, and can be
/// altered and deleted once there is space again.
#[test]
fn a_topic_whose_deletion_finds_no_space_can_be_asked_for_again() {
    let mut ground = Ground::new();
    ground.limits.internal_bytes_max = 16 * 1024;
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    ground.disk.set_space(Some(0));
    let is_full = |world: &mut World| alter(world, link, topic, "{}").is_err();
    let tries = (0..1000).find(|_| is_full(&mut world));
    assert!(tries.is_some(), "the disk is not full");
    let name = TopicName { name: "t".into() };
    let delete =
        |world: &mut World| world.call::<Empty>(link, Method::DeleteTopic, TopicId(0), &name);
    let error = delete(&mut world).expect_err("there is no space");
    assert_eq!(
        (error.code, error.retryable),
        (ErrorCode::StorageFull, true)
    );
    ground.disk.set_space(None);
    // Whoever asks next is refused as well, and has the disk asked for space.
    let error = alter(&mut world, link, topic, "{}").unwrap_err();
    assert_eq!(
        (error.code, error.retryable),
        (ErrorCode::StorageFull, true)
    );
    alter(&mut world, link, topic, "{}").unwrap();
    assert_eq!(delete(&mut world).err(), None);
    assert_eq!(ground.directories(), Vec::<String>::new());
}
