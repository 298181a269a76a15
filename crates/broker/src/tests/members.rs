//! Members of groups and queues: present, away, gone. Every arrow of the
//! diagram in `docs/concept/sharing.md`.

use super::harness::*;
use super::topics::alter;
use crate::node::{Input, LinkId};
use memory::Buffer;
use net::{Peer, Received};
use std::time::Duration;
use wire::frame::FrameKind;
use wire::message::*;
use wire::record::ConsumerKind;
use wire::*;

/// A request to join with usual values.
pub fn join(consumer: &str, kind: ConsumerKind, member: u128) -> Join {
    Join {
        consumer: consumer.into(),
        kind,
        options: String::new(),
        start: Start::Cursor,
        member: MemberId(member),
        before: MemberId(0),
        instance: String::new(),
        session_timeout_ms: 10_000,
        prefetch_events: 10,
        prefetch_bytes: 1 << 20,
        inline_data: true,
        held: Vec::new(),
    }
}

pub fn group(member: u128) -> Join {
    join("g", ConsumerKind::Group, member)
}

impl World {
    /// Joins, and expects to be let in; returns the membership's id.
    pub fn joined(&mut self, link: LinkId, topic: TopicId, join: &Join) -> u64 {
        let id = self.request(link, Method::Join, topic, join, &[]);
        self.answered::<Joined>(link, id).unwrap();
        id
    }

    pub fn refused(&mut self, link: LinkId, topic: TopicId, join: &Join) -> ErrorReply {
        let id = self.request(link, Method::Join, topic, join, &[]);
        self.answered::<Joined>(link, id).unwrap_err()
    }

    pub fn consumers(&mut self, link: LinkId, topic: TopicId) -> Vec<ConsumerDescription> {
        let all = ConsumerName {
            consumer: String::new(),
        };
        let list: ConsumerList = self
            .call(link, Method::DescribeConsumers, topic, &all)
            .unwrap();
        list.consumers
    }

    /// The members of the only consumer: who, and whether present.
    pub fn members(&mut self, link: LinkId, topic: TopicId) -> Vec<(u128, bool)> {
        let consumers = self.consumers(link, topic);
        assert_eq!(consumers.len(), 1);
        let members = consumers[0].members.iter();
        members.map(|m| (m.member.0, m.present)).collect()
    }

    /// The error with which a membership or subscription was ended.
    pub fn ended(&self, link: LinkId, id: u64) -> Option<ErrorReply> {
        let inbox = self.links[&link].inbox.iter();
        let mut ended = inbox.filter(|m| m.id == id && m.kind == FrameKind::Ended);
        let message = ended.next()?;
        assert!(ended.next().is_none(), "{id} has ended twice");
        Some(ErrorReply::from_bytes("ended", &message.head).unwrap())
    }

    /// A sign of life.
    pub fn breathe(&mut self, link: LinkId) {
        self.message(link, FrameKind::Heartbeat, 0, vec![], &[]);
    }

    pub fn leave(&mut self, link: LinkId, topic: TopicId, member: u128) -> Result<(), ErrorReply> {
        let leave = Leave {
            consumer: "g".into(),
            member: MemberId(member),
        };
        self.call::<Empty>(link, Method::Leave, topic, &leave)
            .map(|_| ())
    }
}

const SECOND: Duration = Duration::from_secs(1);

pub fn after_kill(ground: &mut Ground, world: World) -> World {
    drop(world);
    ground.kill();
    ground.start()
}

#[test]
fn a_member_joins_and_leaves() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    let membership = world.joined(link, topic, &group(5));
    assert_eq!(world.members(link, topic), [(5, true)]);
    world.leave(link, topic, 5).unwrap();
    assert_eq!(world.members(link, topic), []);
    assert_eq!(world.ended(link, membership), None);
    // Asked again, it is answered again.
    world.leave(link, topic, 5).unwrap();
    // Somebody else can make it leave; then it is told.
    let membership = world.joined(link, topic, &group(6));
    let other = world.connect();
    world.leave(other, topic, 6).unwrap();
    let error = world.ended(link, membership).unwrap();
    assert_eq!(error.code, ErrorCode::MemberFenced);
}

#[test]
fn joining_and_leaving_are_durable_when_answered() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    world.hold_disk = true;
    let id = world.request(link, Method::Join, topic, &group(5), &[]);
    assert!(world.answer(link, id).is_none());
    world.release_disk();
    world.answered::<Joined>(link, id).unwrap();
    let mut world = after_kill(&mut ground, world);
    let link = world.connect();
    assert_eq!(world.members(link, topic), [(5, false)]);
    world.hold_disk = true;
    let leave = Leave {
        consumer: "g".into(),
        member: MemberId(5),
    };
    let id = world.request(link, Method::Leave, topic, &leave, &[]);
    let again = world.request(link, Method::Leave, topic, &leave, &[]);
    assert!(world.answer(link, id).is_none() && world.answer(link, again).is_none());
    // Never heard of again, it has not left.
    let mut world = after_kill(&mut ground, world);
    let link = world.connect();
    assert_eq!(world.members(link, topic), [(5, false)]);
    world.leave(link, topic, 5).unwrap();
    let mut world = after_kill(&mut ground, world);
    let link = world.connect();
    assert_eq!(world.members(link, topic), []);
}

#[test]
fn a_member_whose_connection_breaks_is_away_and_then_gone() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let (link, watcher) = (world.connect(), world.connect());
    let topic = world.topic(link);
    world.joined(link, topic, &group(5));
    world.disconnect(link);
    assert_eq!(world.members(watcher, topic), [(5, false)]);
    world.pass(SECOND * 9);
    world.breathe(watcher);
    assert_eq!(world.members(watcher, topic), [(5, false)]);
    world.pass(SECOND);
    assert_eq!(world.members(watcher, topic), []);
}

#[test]
fn a_member_comes_back_on_another_connection() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let (link, watcher) = (world.connect(), world.connect());
    let topic = world.topic(link);
    let old = world.joined(link, topic, &group(5));
    world.disconnect(link);
    world.pass(SECOND * 8);
    world.breathe(watcher);
    let link = world.connect();
    world.joined(link, topic, &group(5));
    assert_eq!(world.members(watcher, topic), [(5, true)]);
    world.pass(SECOND * 4);
    assert_eq!(world.members(watcher, topic), [(5, true)]);
    // The older one of two that stand is over.
    let newer = world.connect();
    world.joined(newer, topic, &group(5));
    let before = world.links[&link].inbox.iter();
    let ended: Vec<_> = before.filter(|m| m.kind == FrameKind::Ended).collect();
    let error = ErrorReply::from_bytes("ended", &ended[0].head).unwrap();
    assert_eq!((ended.len(), error.code), (1, ErrorCode::Cancelled));
    assert_ne!(ended[0].id, old);
    world.disconnect(link);
    assert_eq!(world.members(newer, topic), [(5, true)]);
}

/// The session timeout may be shorter than the time after which connections
/// are asked for a sign of life.
#[test]
fn a_silent_member_is_asked_then_away_then_gone() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let (link, watcher) = (world.connect(), world.connect());
    let topic = world.topic(link);
    let short = Join {
        session_timeout_ms: 900,
        ..group(5)
    };
    let membership = world.joined(link, topic, &short);
    let asked = |world: &World| {
        let inbox = world.links[&link].inbox.iter();
        inbox.filter(|m| m.kind == FrameKind::Heartbeat).count()
    };
    let ms = Duration::from_millis;
    // As long as it answers it is present.
    for round in 0..20 {
        world.pass(ms(299));
        assert_eq!(asked(&world), round);
        world.pass(ms(1));
        assert_eq!(asked(&world), round + 1, "after {round} answers");
        world.breathe(link);
    }
    world.pass(ms(440));
    assert_eq!(world.members(watcher, topic), [(5, true)]);
    world.pass(ms(20));
    assert_eq!(world.members(watcher, topic), [(5, false)]);
    // Heard of again, it is there without more ado.
    world.breathe(link);
    assert_eq!(world.members(watcher, topic), [(5, true)]);
    world.pass(ms(890));
    assert_eq!(world.members(watcher, topic), [(5, false)]);
    world.pass(ms(20));
    assert_eq!(world.members(watcher, topic), []);
    let error = world.ended(link, membership).unwrap();
    assert_eq!(error.code, ErrorCode::MemberFenced);
    assert!(error.message.contains("900 ms"), "{error}");
    assert_eq!(world.links[&link].closed, None);
    // It can be one again, as if it had never been.
    world.joined(link, topic, &short);
    assert_eq!(world.members(watcher, topic), [(5, true)]);
}

/// Whoever could not be heard, for the server itself did not run, is not gone.
#[test]
fn a_server_that_was_stopped_hears_what_waits_before_it_judges() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let links = [world.connect(), world.connect(), world.connect()];
    let topic = world.topic(links[0]);
    for (link, member) in links.into_iter().zip([5, 6, 7]) {
        world.joined(link, topic, &group(member));
    }
    world.now.monotonic += SECOND * 15;
    // What waited is read piece by piece.
    world.breathe(links[0]);
    world.breathe(links[1]);
    let members = world.members(links[0], topic);
    assert_eq!(members.len(), 3);
    world.pass(SECOND);
    assert_eq!(world.members(links[0], topic), [(5, true), (6, true)]);
}

#[test]
fn after_a_restart_each_member_has_its_session_timeout() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    for (member, seconds) in [(5, 3), (6, 10), (7, 10)] {
        let join = Join {
            session_timeout_ms: seconds * 1000,
            ..group(member)
        };
        world.joined(link, topic, &join);
    }
    let mut world = after_kill(&mut ground, world);
    let link = world.connect();
    let away = [(5, false), (6, false), (7, false)];
    assert_eq!(world.members(link, topic), away);
    world.joined(link, topic, &group(7));
    world.pass(SECOND * 4);
    assert_eq!(world.members(link, topic), [(6, false), (7, true)]);
    world.pass(SECOND * 5);
    world.breathe(link);
    world.pass(SECOND * 2);
    assert_eq!(world.members(link, topic), [(7, true)]);
    // So it is recorded.
    let mut world = after_kill(&mut ground, world);
    let link = world.connect();
    assert_eq!(world.members(link, topic), [(7, false)]);
}

#[test]
fn a_static_member_takes_the_place_of_its_predecessor() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let (link, other) = (world.connect(), world.connect());
    let topic = world.topic(link);
    let named = |member| Join {
        instance: "beamline 3".into(),
        ..group(member)
    };
    let first = world.joined(link, topic, &named(5));
    world.joined(other, topic, &named(6));
    let error = world.ended(link, first).unwrap();
    assert_eq!(error.code, ErrorCode::MemberFenced);
    assert!(error.message.contains("beamline 3"), "{error}");
    assert_eq!(world.members(link, topic), [(6, true)]);
    // It does not get its place back, whoever it says that it is now; its
    // successor does.
    for member in [5, 9] {
        let zombie = Join {
            before: MemberId(5),
            ..named(member)
        };
        let id = world.request(link, Method::Join, topic, &zombie, &[]);
        let error = world.error(link, id).unwrap();
        assert_eq!(error.code, ErrorCode::MemberFenced);
    }
    assert_eq!(world.members(link, topic), [(6, true)]);
    let again = Join {
        before: MemberId(6),
        ..named(10)
    };
    world.joined(other, topic, &again);
    assert_eq!(world.members(link, topic), [(10, true)]);
    // Also of one that is away, and of one from before a restart.
    world.disconnect(other);
    world.joined(link, topic, &named(7));
    assert_eq!(world.members(link, topic), [(7, true)]);
    let mut world = after_kill(&mut ground, world);
    let link = world.connect();
    world.joined(link, topic, &named(8));
    assert_eq!(world.members(link, topic), [(8, true)]);
    let mut world = after_kill(&mut ground, world);
    let link = world.connect();
    let consumers = world.consumers(link, topic);
    assert_eq!(consumers[0].members[0].instance, "beamline 3");
    assert_eq!(world.members(link, topic), [(8, false)]);
}

#[test]
fn who_may_not_join() {
    let mut ground = Ground::new();
    ground.limits.members_max = 2;
    ground.limits.consumers_max = 3;
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    world.stored(link, topic, (5, 0), &["a"]);
    let moved = world.move_cursor(link, topic, CursorMove::Acknowledge, at(1, 1));
    world.answered::<Empty>(link, moved).unwrap();
    world.subscribe(link, topic, "reader", Start::Latest);
    world.joined(link, topic, &group(5));
    world.joined(link, topic, &group(6));
    let named = |name: &str| join(name, ConsumerKind::Group, 9);
    let queue = |name: &str| join(name, ConsumerKind::Queue, 9);
    let invalid = ErrorCode::InvalidConsumer;
    let cases = [
        (named(""), invalid, "is empty"),
        (named("c"), invalid, "independent"),
        (named("reader"), invalid, "independent"),
        (queue("g"), invalid, "is a group, not a queue"),
        (
            join("x", ConsumerKind::Independent, 9),
            invalid,
            "has no members to join",
        ),
        (join("x", ConsumerKind::Group, 0), invalid, "not 0"),
        (
            Join {
                options: r#"{"dead_letter_topic":"t"}"#.into(),
                ..queue("x")
            },
            invalid,
            "its own topic",
        ),
        (
            Join {
                session_timeout_ms: 99,
                ..named("x")
            },
            invalid,
            "session_timeout_ms is 99",
        ),
        (
            Join {
                session_timeout_ms: 86_400_001,
                ..named("x")
            },
            invalid,
            "session_timeout_ms",
        ),
        (
            Join {
                start: Start::At(at(1, 0)),
                ..named("x")
            },
            invalid,
            "cannot begin at a position",
        ),
        (
            Join {
                options: "{\"lease\":1}".into(),
                ..named("x")
            },
            invalid,
            "unknown field",
        ),
        (
            Join {
                instance: "a\nb".into(),
                ..named("x")
            },
            invalid,
            "instance name",
        ),
        (queue("x"), invalid, "\"t.dead\""),
        (group(7), ErrorCode::LimitExceeded, "members_max"),
    ];
    for (join, code, said) in cases {
        let error = world.refused(link, topic, &join);
        assert_eq!(error.code, code, "{join:?}: {error}");
        assert!(error.message.contains(said), "{said:?}: {error}");
    }
    let error = world.refused(link, TopicId(77), &named("x"));
    assert_eq!(error.code, ErrorCode::UnknownTopic);
    // One that is a member is let in however many there are, and whoever
    // takes its place.
    world.joined(link, topic, &group(6));
    let patient = r#"{"deliveries_max":0}"#;
    let queue = Join {
        options: patient.into(),
        ..queue("q")
    };
    world.joined(link, topic, &queue);
    let error = world.refused(link, topic, &named("x"));
    assert_eq!(error.code, ErrorCode::LimitExceeded);
    assert!(error.message.contains("consumers_max"), "{error}");
    // Nothing of what was refused is left.
    let names: Vec<_> = world.consumers(link, topic);
    let names: Vec<_> = names
        .iter()
        .map(|c| (c.consumer.as_str(), c.kind))
        .collect();
    let kinds = [
        ConsumerKind::Independent,
        ConsumerKind::Group,
        ConsumerKind::Queue,
    ];
    let [independent, a_group, a_queue] = kinds;
    let expected = [
        ("c", independent),
        ("g", a_group),
        ("q", a_queue),
        ("reader", independent),
    ];
    assert_eq!(names, expected);
}

#[test]
fn options_are_those_of_the_first_who_joined() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    let first = Join {
        options: r#"{"revoke_timeout_ms":500}"#.into(),
        ..group(5)
    };
    let joined: Joined = world.call(link, Method::Join, topic, &first).unwrap();
    let mut world = after_kill(&mut ground, world);
    let link = world.connect();
    let later = Join {
        options: "nonsense".into(),
        ..group(6)
    };
    let again: Joined = world.call(link, Method::Join, topic, &later).unwrap();
    assert_eq!(joined.options, r#"{"revoke_timeout_ms":500}"#);
    assert_eq!(again.options, joined.options);
}

#[test]
fn a_new_queue_begins_where_it_was_told_to() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    world.create(link, "t.dead", "{}", &["disk"]).unwrap();
    world.stored(link, topic, (5, 0), &["a", "b"]);
    for (start, first) in [
        (Start::Cursor, 0),
        (Start::Beginning, 0),
        (Start::Latest, 2),
        (Start::CursorOrLatest, 2),
    ] {
        let join = Join {
            start,
            ..join(&format!("{start:?}"), ConsumerKind::Queue, 5)
        };
        world.joined(link, topic, &join);
        let name = join.consumer;
        let entry = world.settled_below(topic, &name);
        assert_eq!(entry, first, "{name}");
    }
    let world = after_kill(&mut ground, world);
    assert_eq!(world.settled_below(topic, "Latest"), 2);
}

impl World {
    /// Below which offset all is settled in a queue.
    fn settled_below(&self, topic: TopicId, consumer: &str) -> u64 {
        let entry = self.node.coordinator.commands.table().topic(topic).unwrap();
        let queue = &entry.shared(consumer).unwrap().queue;
        let partition = queue.get(&PartitionIndex(0));
        partition.map_or(0, |queue| queue.settled.first_missing().0)
    }
}

#[test]
fn a_membership_ends_with_its_topic() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    let membership = world.joined(link, topic, &group(5));
    let name = TopicName { name: "t".into() };
    world
        .call::<Empty>(link, Method::DeleteTopic, TopicId(0), &name)
        .unwrap();
    let error = world.ended(link, membership).unwrap();
    assert_eq!(error.code, ErrorCode::UnknownTopic);
    world.pass(SECOND * 60);
}

#[test]
fn a_group_is_forgotten_once_nobody_is_a_member() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    world.joined(link, topic, &group(5));
    let name = ConsumerName {
        consumer: "g".into(),
    };
    let delete = |world: &mut World, link| {
        world
            .call::<Empty>(link, Method::DeleteConsumer, topic, &name)
            .map(|_| ())
    };
    let error = delete(&mut world, link).unwrap_err();
    assert_eq!(error.code, ErrorCode::InvalidConsumer);
    assert!(error.message.contains("1 members"), "{error}");
    world.leave(link, topic, 5).unwrap();
    delete(&mut world, link).unwrap();
    let error = delete(&mut world, link).unwrap_err();
    assert_eq!(error.code, ErrorCode::UnknownConsumer);
    // The name may be of another kind from now on.
    let mut world = after_kill(&mut ground, world);
    let link = world.connect();
    assert_eq!(world.consumers(link, topic), []);
    let queue = Join {
        options: r#"{"deliveries_max":0}"#.into(),
        ..join("g", ConsumerKind::Queue, 5)
    };
    world.joined(link, topic, &queue);
}

/// A full disk makes nobody a member, and keeps nobody from being gone later.
#[test]
fn a_refused_record_changes_nothing() {
    let mut ground = Ground::new();
    ground.limits.internal_bytes_max = 16 * 1024;
    let mut world = ground.start();
    let (link, other) = (world.connect(), world.connect());
    let topic = world.topic(link);
    world.joined(link, topic, &group(5));
    let moved = world.move_cursor(link, topic, CursorMove::Seek, at(1, 0));
    assert_eq!(world.error(link, moved), None);
    ground.disk.set_space(Some(0));
    // There is some room that was taken before.
    let is_full = |world: &mut World| alter(world, link, topic, "{}").is_err();
    let tries = (0..1000).find(|_| is_full(&mut world));
    assert!(tries.is_some(), "the disk is not full");
    let error = world.refused(other, topic, &group(6));
    assert_eq!(error.code, ErrorCode::StorageFull);
    let error = world.refused(other, topic, &join("new", ConsumerKind::Group, 6));
    assert_eq!(error.code, ErrorCode::StorageFull);
    let group_members = |world: &mut World| {
        let consumers = world.consumers(other, topic);
        let names: Vec<_> = consumers.iter().map(|c| c.consumer.clone()).collect();
        assert_eq!(names, ["c", "g"]);
        let members = consumers[1].members.iter();
        members.map(|m| (m.member.0, m.present)).collect::<Vec<_>>()
    };
    assert_eq!(group_members(&mut world), [(5, true)]);
    assert_eq!(
        world.leave(link, topic, 5).unwrap_err().code,
        ErrorCode::StorageFull
    );
    // It has said good-bye on its connection, and is not heard of there.
    assert_eq!(group_members(&mut world), [(5, false)]);
    world.pass(SECOND * 5);
    assert_eq!(group_members(&mut world), [(5, false)]);
    ground.disk.set_space(None);
    world.pass(SECOND * 3);
    assert_eq!(group_members(&mut world), []);
    world.joined(other, topic, &group(6));
}

/// A member that joins anew with another session timeout has it recorded before that is
/// acknowledged, also where the first try was refused.
#[test]
fn a_refused_rejoin_is_recorded_when_it_is_tried_again() {
    let mut ground = Ground::new();
    ground.limits.internal_bytes_max = 16 * 1024;
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    world.joined(link, topic, &group(5));
    ground.disk.set_space(Some(0));
    let is_full = |world: &mut World| alter(world, link, topic, "{}").is_err();
    assert!(
        (0..1000).any(|_| is_full(&mut world)),
        "the disk is not full"
    );
    let longer = Join {
        session_timeout_ms: 60_000,
        ..group(5)
    };
    let error = world.refused(link, topic, &longer);
    assert_eq!(error.code, ErrorCode::StorageFull);
    ground.disk.set_space(None);
    // The first that is refused has the disk looked at again.
    world.refused(link, topic, &longer);
    world.pass(SECOND);
    world.joined(link, topic, &longer);
    // Nobody is there after the start: how long it is awaited is what was recorded.
    let mut world = after_kill(&mut ground, world);
    world.pass(SECOND * 30);
    let other = world.connect();
    let consumers = world.consumers(other, topic);
    let members: Vec<_> = consumers.iter().flat_map(|one| &one.members).collect();
    assert_eq!(members.len(), 1, "{consumers:?}");
}

/// Whoever does not wait for the answer has its session timeout to ask again.
#[test]
fn a_join_that_was_given_up_is_away() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let (link, watcher) = (world.connect(), world.connect());
    let topic = world.topic(link);
    world.hold_disk = true;
    let id = world.request(link, Method::Join, topic, &group(5), &[]);
    world.message(link, FrameKind::Cancel, id, vec![], &[]);
    world.release_disk();
    assert_eq!(world.members(watcher, topic), [(5, false)]);
    // Its id is free for another request, that of a membership is not.
    let membership = world.joined(link, topic, &group(5));
    let head = RequestHead {
        method: Method::ListTopics,
        remaining_ms: 0,
        topic: TopicId(0),
        leader_epoch: 0,
        trace: 0,
    };
    world.message(link, FrameKind::Request, id, head.to_bytes(), &[]);
    assert!(world.answer(link, id).unwrap().is_ok());
    world.message(link, FrameKind::Request, membership, head.to_bytes(), &[]);
    assert!(world.links[&link].closed.is_some());
    assert_eq!(world.members(watcher, topic), [(5, false)]);
}

#[test]
fn a_draining_server_takes_no_members_and_keeps_those_it_has() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    world.joined(link, topic, &group(5));
    world.hold_disk = true;
    let leave = Leave {
        consumer: "g".into(),
        member: MemberId(5),
    };
    world.joined_later(link, topic, &group(6));
    let left = world.request(link, Method::Leave, topic, &leave, &[]);
    world.input(Input::Drain);
    let error = world.refused(link, topic, &group(7));
    assert_eq!(error.code, ErrorCode::Draining);
    world.release_disk();
    // What was taken is finished.
    world.answered::<Empty>(link, left).unwrap();
    assert!(world.drained);
    let mut world = ground.start();
    let link = world.connect();
    assert_eq!(world.members(link, topic), [(6, false)]);
}

impl World {
    /// Asks to join, and does not wait.
    fn joined_later(&mut self, link: LinkId, topic: TopicId, join: &Join) {
        self.request(link, Method::Join, topic, join, &[]);
    }
}

/// Broadcasts ask who is there, under his session's id.
#[test]
fn who_is_being_closed_is_not_there() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let session = SessionId(7);
    let reader = world.connect_as(Peer::default(), Hello { session, ..hello() });
    let other = world.connect();
    let topic = world.topic(other);
    world.subscribe(reader, topic, "c", Start::Beginning);
    assert_eq!(world.members(other, topic), [(7, true)]);
    // A second hello is an error. The connection stands until it is down.
    let message = Received {
        kind: FrameKind::Hello,
        flags: 0,
        id: 0,
        head: hello().to_bytes().into(),
        payload: Buffer::copy_of(&[]),
    };
    let link = reader;
    world
        .node
        .handle(world.now, Input::Message { link, message });
    let consumers = world.consumers(other, topic);
    assert!(consumers.is_empty(), "{consumers:?}");
}
