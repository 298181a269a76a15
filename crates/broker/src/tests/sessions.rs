//! Who gets in, signs of life, and the end.

use super::harness::*;
use crate::Limits;
use crate::node::Input;
use net::Peer;
use std::time::Duration;
use wire::codec::Appended;
use wire::frame::FrameKind;
use wire::message::*;
use wire::*;

#[test]
fn only_the_owner_and_who_has_the_token_get_in() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let nobody = || Hello {
        mechanism: String::new(),
        proof: Default::default(),
        ..hello()
    };
    let wrong = || Hello {
        proof: bytes::Bytes::from_static(&[8; 32]),
        ..hello()
    };
    let short = || Hello {
        proof: bytes::Bytes::from_static(&[7; 31]),
        ..hello()
    };
    let uid = |uid| Peer {
        uid: Some(uid),
        ..Peer::default()
    };
    let in_process = Peer {
        in_process: true,
        ..Peer::default()
    };
    for (peer, hello, lets_in) in [
        (Peer::default(), hello(), true),
        (Peer::default(), nobody(), false),
        (Peer::default(), wrong(), false),
        (Peer::default(), short(), false),
        (uid(1000), nobody(), true),
        (uid(1001), nobody(), false),
        (uid(1001), hello(), true),
        (in_process, nobody(), true),
    ] {
        let link = world.connect_as(peer.clone(), hello);
        let end = &world.links[&link];
        assert_eq!(end.inbox[0].kind == FrameKind::Welcome, lets_in, "{peer:?}");
        assert_eq!(end.closed.is_none(), lets_in);
        if !lets_in {
            assert_eq!(
                world.error(link, 0).unwrap().code,
                ErrorCode::NotAuthenticated
            );
        }
    }
}

#[test]
fn a_foreign_server_names_itself_and_the_one_expected() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect_as(
        Peer::default(),
        Hello {
            directory: DirectoryId(0xee),
            ..hello()
        },
    );
    let error = world.error(link, 0).unwrap();
    assert_eq!(error.code, ErrorCode::WrongServer);
    for id in [DirectoryId(0xee), DIRECTORY] {
        assert!(error.message.contains(&id.to_string()), "{error}");
    }
    let own = PROTOCOL_VERSION;
    for (least, greatest, features, words) in [
        (
            own + 1,
            own + 2,
            0,
            "speaks protocol 3 to 4, this server 2; the server is older: update it to the client's",
        ),
        (
            1,
            1,
            0,
            "speaks protocol 1 to 1, this server 2; the client is older: update it to Thalweg",
        ),
        (0, 0, 0, "the client is older"),
        (own, own, 1 << 63, "required features"),
    ] {
        let hello = Hello {
            version_min: least,
            version_max: greatest,
            features_required: features,
            ..hello()
        };
        let link = world.connect_as(Peer::default(), hello);
        let error = world.error(link, 0).unwrap();
        assert_eq!(error.code, ErrorCode::Unsupported);
        assert!(error.message.contains(words), "{error}");
    }
}

#[test]
fn nonsense_gets_an_error_and_an_end_and_harms_nobody_else() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let bystander = world.connect();
    for (kind, head) in [
        (FrameKind::Request, vec![1]),
        (FrameKind::Request, vec![1, 0, 9]),
        (FrameKind::Welcome, vec![]),
        (FrameKind::Hello, hello().to_bytes()),
        (FrameKind::Credit, vec![1]),
        (FrameKind::BulkData, vec![]),
    ] {
        let link = world.connect();
        world.message(link, kind, 99, head, &[]);
        assert_eq!(
            world.error(link, 99).unwrap().code,
            ErrorCode::Malformed,
            "{kind:?}"
        );
        assert!(world.links[&link].closed.is_some());
    }
    // Before the Hello nothing else is said.
    let early = world.connect_as(Peer::default(), hello());
    assert!(world.links[&early].closed.is_none());
    // A method of a later version is refused, and the connection goes on.
    let mut head = 999u16.to_le_bytes().to_vec();
    head.extend([0; 64]);
    world.message(bystander, FrameKind::Request, 5, head, &[]);
    assert_eq!(
        world.error(bystander, 5).unwrap().code,
        ErrorCode::Unsupported
    );
    assert!(world.links[&bystander].closed.is_none());
    world.topic(bystander);
}

#[test]
fn silence_is_asked_and_then_ended() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let beats = |world: &World| {
        let inbox = &world.links[&link].inbox;
        inbox
            .iter()
            .filter(|m| m.kind == FrameKind::Heartbeat)
            .count()
    };
    // One that answers lives for ever.
    for round in 1..5 {
        world.pass(Duration::from_secs(10));
        assert_eq!(beats(&world), round);
        world.message(link, FrameKind::Heartbeat, 0, vec![], &[]);
        assert_eq!(beats(&world), round, "an answer is not answered");
    }
    world.message(link, FrameKind::Heartbeat, 0, vec![], &[]);
    assert_eq!(beats(&world), 5, "a question is");
    world.pass(Duration::from_secs(19));
    assert!(world.links[&link].closed.is_none());
    world.pass(Duration::from_secs(1));
    assert!(world.links[&link].closed.is_some());
}

#[test]
fn who_says_nothing_at_all_is_shown_out() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = crate::node::LinkId(77);
    world.links.insert(link, End::default());
    world.input(Input::LinkUp {
        link,
        peer: Peer::default(),
        capabilities: net::Capabilities {
            payload_bytes_max: 1,
            one_sided: false,
            ordered: true,
            memory_kinds: vec![0],
            stripes: None,
            bytes_alone: false,
        },
    });
    world.pass(Duration::from_secs(10));
    assert!(world.links[&link].closed.is_some());
}

#[test]
fn a_drain_finishes_what_was_taken_and_refuses_the_rest() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    world.stored(link, topic, (5, 0), &["a"]);
    world.hold_disk = true;
    let second = batch(topic, 5, 0, 1, &["b"]);
    let taken = world.produce(link, topic, &second);
    world.input(Input::Drain);
    assert!(
        world.links[&link]
            .inbox
            .iter()
            .any(|m| m.kind == FrameKind::GoAway)
    );
    let third = batch(topic, 5, 0, 2, &["c"]);
    let refused = world.produce(link, topic, &third);
    let error = world.error(link, refused).unwrap();
    assert_eq!((error.code, error.retryable), (ErrorCode::Draining, true));
    assert!(!world.drained && world.answer(link, taken).is_none());
    world.release_disk();
    world.answered::<Produced>(link, taken).unwrap();
    assert!(world.drained);
    assert!(world.links[&link].closed.is_some());
    ground.kill();
    let world = ground.start();
    assert_eq!((world.report.cut_bytes, world.report.lines.len()), (0, 0));
}

/// A drain that gives up says what it waited for.
#[test]
fn a_drain_that_takes_too_long_reports_what_is_left() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    world.hold_disk = true;
    world.produce(link, topic, &batch(topic, 5, 0, 0, &["a"]));
    world.input(Input::Drain);
    world.pass(Limits::default().drain_timeout);
    let left = "1 batches to acknowledge, 1 requests to answer";
    let lines = world.lines.join("\n");
    assert!(lines.contains(left), "{lines}");
    world.release_disk();
    assert!(world.drained);
}

/// A reader that comes while partitions close is to come again, not told that
/// they are gone.
#[test]
fn while_partitions_close_readers_are_told_to_come_again() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    world.stored(link, topic, (5, 0), &["a"]);
    world.hold_disk = true;
    world.input(Input::Drain);
    assert!(!world.drained, "nothing is left to be done");
    let subscribed = world.subscribe(link, topic, "c", Start::Beginning);
    let fetched = world.request(link, Method::Fetch, topic, &fetch(at(1, 0), 0), &[]);
    let wanted = ReadData {
        events: Vec::new(),
        into: Vec::new(),
        strided: Appended::default(),
    };
    let read = world.request(link, Method::ReadData, topic, &wanted, &[]);
    for id in [subscribed, fetched, read] {
        let error = world.error(link, id).expect("it is refused");
        assert_eq!((error.code, error.retryable), (ErrorCode::Draining, true));
    }
}

#[test]
fn a_drain_does_not_wait_for_ever() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    world.hold_reads = true;
    let data = vec![1; 10_000];
    let region = Region {
        key: bytes::Bytes::from_static(b"r"),
        base: 0,
        bytes: 10_000,
        memory_kind: 0,
        rails: 0,
    };
    let event = log::testing::EventSpec {
        metadata: b"m".to_vec(),
        data,
        external: true,
    };
    let batch = log::testing::make_batch(origin(topic, 5, 0, 0), &[event], 4096);
    let produce = Produce {
        partition: PartitionIndex(0),
        durability: Durability::Synced,
        regions: vec![region],
    };
    let id = world.request(link, Method::Produce, topic, &produce, &batch);
    world
        .call::<Empty>(link, Method::Shutdown, TopicId(0), &Empty)
        .unwrap();
    world.pass(Duration::from_secs(9));
    assert!(!world.drained);
    world.message(link, FrameKind::Heartbeat, 0, vec![], &[]);
    world.pass(Duration::from_secs(1));
    assert!(world.drained);
    assert_eq!(world.error(link, id).unwrap().code, ErrorCode::Draining);
}

/// What a client asked on a connection that it has given up is not done behind
/// what it asks on the next one.
#[test]
fn a_new_connection_of_a_session_ends_the_older_one() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let of = |session| Hello {
        session: SessionId(session),
        ..hello()
    };
    let old = world.connect_as(Peer::default(), of(7));
    let other = world.connect_as(Peer::default(), of(8));
    let topic = world.topic(old);
    world.stored(old, topic, (5, 0), &["a", "b", "c"]);
    let new = world.connect_as(Peer::default(), of(7));
    let moved = world.move_cursor(new, topic, CursorMove::Seek, at(1, 1));
    world.answered::<Empty>(new, moved).unwrap();
    let moved = world.move_cursor(new, topic, CursorMove::Acknowledge, at(1, 3));
    world.answered::<Empty>(new, moved).unwrap();
    // The seek that was under way arrives at last.
    let late = world.move_cursor(old, topic, CursorMove::Seek, at(1, 1));
    assert!(world.answer(old, late).is_none());
    assert_eq!(world.error(old, 0).unwrap().code, ErrorCode::Cancelled);
    assert_eq!(world.cursor(new, topic), Some(at(1, 3)));
    // Another client's connection stands.
    assert_eq!(world.cursor(other, topic), Some(at(1, 3)));
}

/// One acknowledgement that names a partition twice, the greater position first.
#[test]
fn an_acknowledgement_moves_no_cursor_back_by_its_own_order() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    world.stored(link, topic, (5, 0), &["a", "b", "c"]);
    let request = MoveCursors {
        consumer: "c".into(),
        how: CursorMove::Acknowledge,
        positions: vec![(PartitionIndex(0), at(1, 3)), (PartitionIndex(0), at(1, 1))],
    };
    world
        .call::<Empty>(link, Method::MoveCursors, topic, &request)
        .unwrap();
    assert_eq!(world.cursor(link, topic), Some(at(1, 3)));
}

/// Who a connection was that the server has closed is forgotten with it.
#[test]
fn sessions_whose_connections_were_closed_are_not_kept() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    for session in 1..=5 {
        let link = world.connect_as(
            Peer::default(),
            Hello {
                session: SessionId(session),
                ..hello()
            },
        );
        assert_eq!(world.node.sessions.latest_count(), 1);
        // No request can be this.
        world.message(link, FrameKind::Request, 99, vec![1], &[]);
        assert!(world.links[&link].closed.is_some());
        world.disconnect(link);
        assert_eq!(world.node.sessions.latest_count(), 0);
    }
}

/// Which connection of a session is the latest is known in whatever order older ones end.
#[test]
fn an_older_connection_that_ends_late_does_not_hide_the_latest() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let of_seven = || Hello {
        session: SessionId(7),
        ..hello()
    };
    let first = world.connect_as(Peer::default(), of_seven());
    let second = world.connect_as(Peer::default(), of_seven());
    assert_eq!(world.error(first, 0).unwrap().code, ErrorCode::Cancelled);
    world.disconnect(first);
    let third = world.connect_as(Peer::default(), of_seven());
    assert_eq!(world.error(second, 0).unwrap().code, ErrorCode::Cancelled);
    world.disconnect(third);
    // Nobody is there to be ended any more.
    let fourth = world.connect_as(Peer::default(), of_seven());
    assert!(world.error(fourth, 0).is_none());
}

/// A producer without a name is its session's: another one that knows its id does not get to
/// go on as it. Nor does anybody without the name of one that has one.
#[test]
fn a_producer_is_taken_up_again_by_its_own_session_alone() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let of = |session| Hello {
        session: SessionId(session),
        ..hello()
    };
    let open = |name: &str, resume| OpenProducer {
        name: name.into(),
        resume,
        resume_epoch: ProducerEpoch(0),
    };
    let link = world.connect_as(Peer::default(), of(7));
    let topic = world.topic(link);
    let opened = |world: &mut World, link, name: &str, resume| {
        let open = open(name, resume);
        world.call::<ProducerOpened>(link, Method::OpenProducer, topic, &open)
    };
    let own = opened(&mut world, link, "", ProducerId(0))
        .unwrap()
        .producer;
    let named = opened(&mut world, link, "p", ProducerId(0))
        .unwrap()
        .producer;
    let again = world.connect_as(Peer::default(), of(7));
    let other = world.connect_as(Peer::default(), of(8));
    assert_eq!(opened(&mut world, again, "", own).unwrap().producer, own);
    for (link, producer) in [(other, own), (other, named), (again, named)] {
        let refused = opened(&mut world, link, "", producer).unwrap_err();
        assert_eq!(refused.code, ErrorCode::ProducerFenced, "{refused}");
    }
    // Of before a restart nothing is known.
    drop(world);
    ground.kill();
    let mut world = ground.start();
    let link = world.connect_as(Peer::default(), of(7));
    assert_eq!(opened(&mut world, link, "", own).unwrap().producer, own);
}

/// Every field of the status is on its page.
#[test]
fn the_status_is_as_its_page_says() {
    let page = include_str!("../../../../docs/reference/status.md");
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    world.stored(link, topic, (5, 0), &["a", "b"]);
    world.subscribe(link, topic, "c", Start::Beginning);
    let moved = world.move_cursor(link, topic, CursorMove::Acknowledge, at(1, 1));
    world.answered::<Empty>(link, moved).unwrap();
    let open = OpenProducer {
        name: "p".into(),
        resume: ProducerId(0),
        resume_epoch: ProducerEpoch(0),
    };
    world
        .call::<ProducerOpened>(link, Method::OpenProducer, topic, &open)
        .unwrap();
    let reply: StatusReply = world
        .call(link, Method::Status, TopicId(0), &Empty)
        .unwrap();
    let status: serde_json::Value = serde_json::from_str(&reply.json).unwrap();
    assert_eq!(status["topics"][0]["partitions"][0]["visible"], 2);
    assert_eq!(status["topics"][0]["consumers"][0]["lag"], 1);
    let mut names = Vec::new();
    fields(&status, &mut names);
    for name in &names {
        assert!(
            page.contains(&format!("`{name}`")),
            "{name} is not on the page"
        );
    }
}

fn fields(value: &serde_json::Value, names: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(members) => {
            for (name, member) in members {
                names.push(name.clone());
                fields(member, names);
            }
        }
        serde_json::Value::Array(items) => items.iter().for_each(|item| fields(item, names)),
        _ => {}
    }
}
