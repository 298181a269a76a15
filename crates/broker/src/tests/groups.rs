//! What groups share out: free, granted, revoking. Every arrow of the diagram
//! in `docs/concept/sharing.md`.

use super::harness::*;
use super::members::{after_kill, group};
use crate::node::LinkId;
use std::time::Duration;
use wire::batch::{BatchBuilder, EventParts};
use wire::codec::Appended;
use wire::frame::FrameKind;
use wire::message::*;
use wire::record::Position;
use wire::*;

const SECOND: Duration = Duration::from_secs(1);

impl World {
    pub fn topic_of(&mut self, link: LinkId, partitions: usize) -> TopicId {
        let kinds = vec!["disk"; partitions];
        self.create(link, "t", "{}", &kinds).unwrap().topic
    }

    /// What a membership was told last: what it owns, and what of it is revoked.
    pub fn assigned(&self, link: LinkId, membership: u64) -> (Vec<u32>, Vec<u32>) {
        let inbox = self.links[&link].inbox.iter();
        let mut told = inbox.filter(|m| m.id == membership && m.kind == FrameKind::Assigned);
        let Some(last) = told.next_back() else {
            return (Vec::new(), Vec::new());
        };
        let assigned = Assigned::from_bytes("assigned", &last.head).unwrap();
        let indices = |list: Vec<PartitionIndex>| list.iter().map(|index| index.0).collect();
        (indices(assigned.partitions), indices(assigned.revoking))
    }

    pub fn release(
        &mut self,
        link: LinkId,
        topic: TopicId,
        member: u128,
        partitions: &[u32],
    ) -> Result<(), ErrorReply> {
        let release = Release {
            consumer: "g".into(),
            member: MemberId(member),
            partitions: partitions.iter().copied().map(PartitionIndex).collect(),
        };
        self.call::<Empty>(link, Method::Release, topic, &release)
            .map(|_| ())
    }

    /// A member moves the group's cursor of a partition.
    fn member_moves(
        &mut self,
        link: LinkId,
        topic: TopicId,
        member: u128,
        how: CursorMove,
        to: (u32, Position),
    ) -> Result<(), ErrorReply> {
        let request = MoveMemberCursors {
            member: MemberId(member),
            moves: MoveCursors {
                consumer: "g".into(),
                how,
                positions: vec![(PartitionIndex(to.0), to.1)],
            },
        };
        self.call::<Empty>(link, Method::MoveMemberCursors, topic, &request)
            .map(|_| ())
    }

    pub fn acknowledges(
        &mut self,
        link: LinkId,
        topic: TopicId,
        member: u128,
        to: (u32, u64),
    ) -> Result<(), ErrorReply> {
        let how = CursorMove::Acknowledge;
        self.member_moves(link, topic, member, how, (to.0, at(1, to.1)))
    }

    /// A member reads a partition; returns the subscription's id.
    fn member_reads(
        &mut self,
        link: LinkId,
        topic: TopicId,
        member: u128,
        partition: u32,
        start: Start,
    ) -> u64 {
        let request = SubscribeScoped {
            member: MemberId(member),
            key: None,
            subscribe: Subscribe {
                consumer: "g".into(),
                partition: PartitionIndex(partition),
                start,
                credit: 1 << 20,
                inline_data: true,
                latest: Appended(false),
            },
        };
        self.request(link, Method::SubscribeScoped, topic, &request, &[])
    }

    /// Stores events in a partition, as a batch of a producer of its own.
    pub fn stored_in(&mut self, link: LinkId, topic: TopicId, partition: u32, events: &[&str]) {
        let produce = Produce {
            partition: PartitionIndex(partition),
            durability: Durability::Memory,
            regions: Vec::new(),
        };
        let producer = 1000 + self.now.monotonic.as_nanos() + self.links[&link].inbox.len() as u128;
        let batch = batch(topic, producer, 0, 0, events);
        let id = self.request(link, Method::Produce, topic, &produce, &batch);
        self.answered::<Produced>(link, id).unwrap();
    }

    pub fn cursors(&mut self, link: LinkId, topic: TopicId) -> Vec<(u32, u64)> {
        let request = ReadCursors {
            consumer: "g".into(),
        };
        let list: CursorList = self
            .call(link, Method::ReadCursors, topic, &request)
            .unwrap();
        let cursors = list.cursors.iter();
        cursors
            .map(|c| (c.partition.0, c.position.offset.0))
            .collect()
    }
}

fn code<T>(result: Result<T, ErrorReply>) -> ErrorCode {
    result.map(|_| ()).unwrap_err().code
}

/// A server to which some are connected, and a topic of so many partitions.
fn shared<const LINKS: usize>(partitions: usize) -> (Ground, World, [LinkId; LINKS], TopicId) {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let links = [(); LINKS].map(|()| world.connect());
    let topic = world.topic_of(links[0], partitions);
    (ground, world, links, topic)
}

/// free → granted, and durable before it is told.
#[test]
fn a_grant_is_durable_before_it_is_told() {
    let (mut ground, mut world, [link], topic) = shared(3);
    let told = |world: &World| {
        let inbox = world.links[&link].inbox.iter();
        inbox.filter(|m| m.kind == FrameKind::Assigned).count()
    };
    world.hold_disk = true;
    let id = world.request(link, Method::Join, topic, &group(5), &[]);
    while world.answer(link, id).is_none() {
        world.release_operation(0);
    }
    // It is a member, and owns nothing that it could lose in a crash.
    assert_eq!(world.assigned(link, id), (vec![], vec![]));
    assert_eq!(told(&world), 1);
    assert_eq!(
        code(world.acknowledges_later(link, topic, 5)),
        ErrorCode::MemberFenced
    );
    world.release_disk();
    assert_eq!(world.assigned(link, id), (vec![0, 1, 2], vec![]));
    assert_eq!(told(&world), 2);
    let mut world = after_kill(&mut ground, world);
    let link = world.connect();
    let id = world.joined(link, topic, &group(5));
    assert_eq!(world.assigned(link, id), (vec![0, 1, 2], vec![]));
}

impl World {
    fn acknowledges_later(
        &mut self,
        link: LinkId,
        topic: TopicId,
        member: u128,
    ) -> Result<(), ErrorReply> {
        self.acknowledges(link, topic, member, (0, 0))
    }
}

/// granted → revoking → free → granted: the other goes on where the first
/// has acknowledged.
#[test]
fn a_partition_moves_when_it_is_released() {
    let (_ground, mut world, [link, other], topic) = shared(2);
    for partition in [0, 1] {
        world.stored_in(link, topic, partition, &["a", "b", "c"]);
    }
    let first = world.joined(link, topic, &group(5));
    let reading = world.member_reads(link, topic, 5, 1, Start::Latest);
    // The start is the group's: it has none yet, and begins with all.
    assert_eq!(world.texts(link, reading), ["a", "b", "c"]);
    world.acknowledges(link, topic, 5, (1, 1)).unwrap();
    let second = world.joined(other, topic, &group(6));
    assert_eq!(world.assigned(link, first), (vec![0, 1], vec![1]));
    assert_eq!(world.assigned(other, second), (vec![], vec![]));
    let refused = world.member_reads(other, topic, 6, 1, Start::Cursor);
    assert_eq!(
        code(world.answered::<Subscribed>(other, refused)),
        ErrorCode::MemberFenced
    );
    // It finishes what it is at.
    world.acknowledges(link, topic, 5, (1, 2)).unwrap();
    assert_eq!(world.ended(link, reading), None);
    world.release(link, topic, 5, &[1]).unwrap();
    assert_eq!(world.assigned(link, first), (vec![0], vec![]));
    assert_eq!(world.assigned(other, second), (vec![1], vec![]));
    let error = world.ended(link, reading).unwrap();
    assert_eq!(error.code, ErrorCode::MemberFenced);
    assert_eq!(
        code(world.acknowledges(link, topic, 5, (1, 3))),
        ErrorCode::MemberFenced
    );
    let reading = world.member_reads(other, topic, 6, 1, Start::Beginning);
    let subscribed: Subscribed = world.answered(other, reading).unwrap();
    assert_eq!(subscribed.position, at(1, 2));
    // Said again, it is answered again, and changes nothing.
    world.release(link, topic, 5, &[1]).unwrap();
    assert_eq!(world.assigned(other, second), (vec![1], vec![]));
    assert_eq!(world.ended(other, reading), None);
}

/// The record of it is written, and its sync fails: a restart may find it.
#[test]
fn what_may_have_gone_to_another_is_nobodys_until_a_restart() {
    let (mut ground, mut world, [link, other], topic) = shared(2);
    let first = world.joined(link, topic, &group(5));
    let second = world.joined(other, topic, &group(6));
    assert_eq!(world.assigned(link, first), (vec![0, 1], vec![1]));
    world.hold_disk = true;
    let release = Release {
        consumer: "g".into(),
        member: MemberId(5),
        partitions: vec![PartitionIndex(1)],
    };
    let id = world.request(link, Method::Release, topic, &release, &[]);
    world.release_operation(0);
    let next = ground.disk.operation_count();
    ground.disk.fail_at(next, log::testing::Fault::Error);
    world.release_disk();
    let error = world
        .error(link, id)
        .expect("it is not known to be recorded");
    assert_eq!(error.code, ErrorCode::StorageFailed);
    for _ in 0..5 {
        world.pass(SECOND);
        world.breathe(link);
        world.breathe(other);
        assert_eq!(world.assigned(link, first), (vec![0], vec![]));
        assert_eq!(world.assigned(other, second), (vec![], vec![]));
    }
    let mut world = after_kill(&mut ground, world);
    let (link, other) = (world.connect(), world.connect());
    let first = world.joined(link, topic, &group(5));
    let second = world.joined(other, topic, &group(6));
    world.pass(SECOND);
    assert_eq!(world.assigned(link, first), (vec![0], vec![]));
    assert_eq!(world.assigned(other, second), (vec![1], vec![]));
}

/// revoking → free: the revoke timeout passes.
#[test]
fn a_partition_that_is_not_released_is_lost() {
    let (_ground, mut world, [link, other], topic) = shared(2);
    world.stored_in(link, topic, 1, &["a", "b", "c"]);
    let first = world.joined(link, topic, &group(5));
    let reading = world.member_reads(link, topic, 5, 1, Start::Cursor);
    let second = world.joined(other, topic, &group(6));
    let breathe = |world: &mut World| {
        world.breathe(link);
        world.breathe(other);
    };
    for _ in 0..29 {
        world.pass(SECOND);
        breathe(&mut world);
    }
    world.acknowledges(link, topic, 5, (1, 2)).unwrap();
    assert_eq!(world.assigned(other, second), (vec![], vec![]));
    world.pass(SECOND);
    assert_eq!(world.assigned(link, first), (vec![0], vec![]));
    assert_eq!(world.assigned(other, second), (vec![1], vec![]));
    let error = world.ended(link, reading).unwrap();
    assert_eq!(error.code, ErrorCode::MemberFenced);
    assert!(error.message.contains("30000 ms"), "{error}");
    // It is still a member, and keeps the rest.
    let late = world.acknowledges(link, topic, 5, (1, 3));
    assert_eq!(code(late), ErrorCode::MemberFenced);
    world.acknowledges(link, topic, 5, (0, 0)).unwrap();
    assert_eq!(world.cursors(other, topic), [(0, 0), (1, 2)]);
}

/// granted → free, and revoking → free: the owner is gone.
#[test]
fn what_a_member_owned_goes_to_others_when_it_is_gone() {
    let (_ground, mut world, [link, other], topic) = shared(4);
    world.joined(link, topic, &group(5));
    let second = world.joined(other, topic, &group(6));
    // Two are revoked, two granted.
    world.disconnect(link);
    world.pass(SECOND * 9);
    world.breathe(other);
    // As long as it is away it keeps everything.
    assert_eq!(world.assigned(other, second), (vec![], vec![]));
    world.acknowledges(other, topic, 5, (0, 0)).unwrap();
    world.pass(SECOND);
    assert_eq!(world.assigned(other, second), (vec![0, 1, 2, 3], vec![]));
    // It comes back late, and is another one.
    let late = world.acknowledges(other, topic, 5, (0, 0));
    assert_eq!(code(late), ErrorCode::MemberFenced);
    let link = world.connect();
    let first = world.joined(link, topic, &group(5));
    assert_eq!(world.assigned(link, first), (vec![], vec![]));
    let late = world.acknowledges(link, topic, 5, (0, 0));
    assert_eq!(code(late), ErrorCode::MemberFenced);
    // One that leaves hands over at once.
    world.leave(other, topic, 6).unwrap();
    assert_eq!(world.assigned(link, first), (vec![0, 1, 2, 3], vec![]));
}

#[test]
fn a_member_that_was_silent_for_too_long_reads_no_more() {
    let (_ground, mut world, [link, other], topic) = shared(1);
    world.stored_in(link, topic, 0, &["a"]);
    let first = world.joined(link, topic, &group(5));
    let reading = world.member_reads(link, topic, 5, 0, Start::Cursor);
    let second = world.joined(other, topic, &group(6));
    world.pass(SECOND * 6);
    world.breathe(other);
    world.pass(SECOND * 4);
    for id in [first, reading] {
        let error = world.ended(link, id).unwrap();
        assert_eq!(error.code, ErrorCode::MemberFenced);
    }
    assert_eq!(world.assigned(other, second), (vec![0], vec![]));
    world.stored_in(other, topic, 0, &["b"]);
    assert_eq!(world.texts(link, reading), ["a"]);
    let late = world.acknowledges(link, topic, 5, (0, 1));
    assert_eq!(code(late), ErrorCode::MemberFenced);
}

/// What was granted before a kill is granted after it; members that come back
/// go on, and nothing moves before the session timeout of the others.
#[test]
fn assignments_survive_the_server() {
    let (mut ground, mut world, [link, other], topic) = shared(4);
    world.joined(link, topic, &group(5));
    world.joined(other, topic, &group(6));
    world.release(link, topic, 5, &[2, 3]).unwrap();
    let mut world = after_kill(&mut ground, world);
    let (link, other) = (world.connect(), world.connect());
    let second = world.joined(other, topic, &group(6));
    assert_eq!(world.assigned(other, second), (vec![2, 3], vec![]));
    let third = world.joined(link, topic, &group(7));
    // The third gets its share of what the second has; the first keeps its own.
    assert_eq!(world.assigned(other, second), (vec![2, 3], vec![3]));
    assert_eq!(world.assigned(link, third), (vec![], vec![]));
    let reading = world.member_reads(other, topic, 6, 2, Start::Cursor);
    world.answered::<Subscribed>(other, reading).unwrap();
    for _ in 0..3 {
        world.pass(SECOND * 3);
        world.breathe(link);
        world.breathe(other);
    }
    let first = world.connect();
    let membership = world.joined(first, topic, &group(5));
    assert_eq!(world.assigned(first, membership), (vec![0, 1], vec![]));
    // Granted while one was away, it is as even as it can be.
    world.release(other, topic, 6, &[3]).unwrap();
    assert_eq!(world.assigned(link, third), (vec![3], vec![]));
}

/// What is revoked when the server is killed is granted again, and revoked anew.
#[test]
fn a_restart_amid_a_move_moves_nothing_twice() {
    let (mut ground, mut world, [link, other], topic) = shared(2);
    world.joined(link, topic, &group(5));
    world.joined(other, topic, &group(6));
    let mut world = after_kill(&mut ground, world);
    let (link, other) = (world.connect(), world.connect());
    let second = world.joined(other, topic, &group(6));
    assert_eq!(world.assigned(other, second), (vec![], vec![]));
    let first = world.joined(link, topic, &group(5));
    assert_eq!(world.assigned(link, first), (vec![0, 1], vec![1]));
    // The release is durable before the grant is told.
    world.hold_disk = true;
    let release = Release {
        consumer: "g".into(),
        member: MemberId(5),
        partitions: vec![PartitionIndex(1)],
    };
    world.request(link, Method::Release, topic, &release, &[]);
    assert_eq!(world.assigned(other, second), (vec![], vec![]));
    let mut world = after_kill(&mut ground, world);
    let link = world.connect();
    let first = world.joined(link, topic, &group(5));
    assert_eq!(world.assigned(link, first), (vec![0, 1], vec![]));
}

#[test]
fn a_static_member_keeps_its_partitions_through_its_restart() {
    let (mut ground, mut world, [link, other], topic) = shared(4);
    let named = |member, instance: &str| Join {
        instance: instance.into(),
        ..group(member)
    };
    world.joined(link, topic, &named(5, "a"));
    let second = world.joined(other, topic, &named(6, "b"));
    world.release(link, topic, 5, &[2, 3]).unwrap();
    let reading = world.member_reads(link, topic, 5, 0, Start::Cursor);
    // The program ends and is there again, on another connection.
    let again = world.connect();
    world.hold_disk = true;
    let id = world.request(again, Method::Join, topic, &named(7, "a"), &[]);
    // From now on the predecessor is fenced; the successor owns nothing yet.
    let late = world.acknowledges(link, topic, 5, (0, 0));
    assert_eq!(code(late), ErrorCode::MemberFenced);
    assert_eq!(
        world.ended(link, reading).unwrap().code,
        ErrorCode::MemberFenced
    );
    let early = world.acknowledges(again, topic, 7, (0, 0));
    assert_eq!(code(early), ErrorCode::MemberFenced);
    world.release_disk();
    assert_eq!(world.assigned(again, id), (vec![0, 1], vec![]));
    assert_eq!(world.assigned(other, second), (vec![2, 3], vec![]));
    world.acknowledges(again, topic, 7, (0, 0)).unwrap();
    // Also after the server was killed.
    let mut world = after_kill(&mut ground, world);
    let link = world.connect();
    let id = world.joined(link, topic, &named(8, "a"));
    assert_eq!(world.assigned(link, id), (vec![0, 1], vec![]));
}

#[test]
fn partitions_that_are_added_are_shared_out() {
    let (_ground, mut world, [link, other], topic) = shared(1);
    let first = world.joined(link, topic, &group(5));
    let second = world.joined(other, topic, &group(6));
    assert_eq!(world.assigned(other, second), (vec![], vec![]));
    let add = AddPartitions {
        partitions: vec![storage("disk"), storage("memory"), storage("disk")],
    };
    world
        .call::<TopicDescription>(link, Method::AddPartitions, topic, &add)
        .unwrap();
    assert_eq!(world.assigned(link, first), (vec![0, 1], vec![]));
    assert_eq!(world.assigned(other, second), (vec![2, 3], vec![]));
}

/// A group that begins with what comes from now on does so in each partition,
/// whoever reads it first.
#[test]
fn a_group_begins_where_it_was_told_to() {
    let (_ground, mut world, [link], topic) = shared(2);
    world.stored_in(link, topic, 1, &["a", "b"]);
    let join = Join {
        start: Start::CursorOrLatest,
        ..group(5)
    };
    world.joined(link, topic, &join);
    world.stored_in(link, topic, 1, &["c"]);
    world.leave(link, topic, 5).unwrap();
    world.joined(link, topic, &group(6));
    let reading = world.member_reads(link, topic, 6, 1, Start::Beginning);
    assert_eq!(world.texts(link, reading), ["c"]);
    // A member that has lost its connection goes on behind what it has seen.
    let reading = world.member_reads(link, topic, 6, 1, Start::At(at(1, 3)));
    assert!(world.texts(link, reading).is_empty());
}

#[test]
fn a_groups_name_is_its_members() {
    let (_ground, mut world, [link, other], topic) = shared(1);
    world.stored_in(link, topic, 0, &["a", "b"]);
    world.joined(link, topic, &group(5));
    let refused = world.subscribe(other, topic, "g", Start::Cursor);
    let error = world.error(other, refused).unwrap();
    assert_eq!(error.code, ErrorCode::InvalidConsumer);
    let moves = |world: &mut World, how| {
        let request = MoveCursors {
            consumer: "g".into(),
            how,
            positions: vec![(PartitionIndex(0), at(1, 1))],
        };
        world
            .call::<Empty>(other, Method::MoveCursors, topic, &request)
            .map(|_| ())
    };
    for how in [CursorMove::Seek, CursorMove::Acknowledge] {
        assert_eq!(code(moves(&mut world, how)), ErrorCode::InvalidConsumer);
    }
    // A member that has not joined on this connection reads nothing here.
    let elsewhere = world.member_reads(other, topic, 5, 0, Start::Cursor);
    assert_eq!(
        world.error(other, elsewhere).unwrap().code,
        ErrorCode::MemberFenced
    );
    // The owner may go back, others may not.
    world.acknowledges(link, topic, 5, (0, 2)).unwrap();
    let back = (0, at(1, 0));
    world
        .member_moves(link, topic, 5, CursorMove::Seek, back)
        .unwrap();
    assert_eq!(world.cursors(other, topic), [(0, 0)]);
    // An operator moves the cursors of a group that has no members.
    world.leave(link, topic, 5).unwrap();
    moves(&mut world, CursorMove::Seek).unwrap();
    let acknowledged = moves(&mut world, CursorMove::Acknowledge);
    assert_eq!(code(acknowledged), ErrorCode::InvalidConsumer);
    assert_eq!(world.cursors(other, topic), [(0, 1)]);
}

#[test]
fn a_group_is_described() {
    let (_ground, mut world, [link, other], topic) = shared(2);
    world.stored_in(link, topic, 1, &["a", "b", "c"]);
    world.joined(link, topic, &group(5));
    world.acknowledges(link, topic, 5, (1, 1)).unwrap();
    world.pass(SECOND * 2);
    let consumers = world.consumers(other, topic);
    let consumer = &consumers[0];
    assert_eq!(consumer.options, r#"{"revoke_timeout_ms":30000}"#);
    let member = &consumer.members[0];
    assert_eq!(member.partitions, [PartitionIndex(0), PartitionIndex(1)]);
    assert_eq!(
        (member.silent_ms, member.client_name.as_str()),
        (2000, "test")
    );
    let partitions = consumer.partitions.iter();
    let stands: Vec<_> = partitions
        .map(|p| (p.partition.0, p.position.offset.0, p.end.0))
        .collect();
    assert_eq!(stands, [(0, 0, 0), (1, 1, 3)]);
    let status = world.node.status();
    let consumer = &status["topics"][0]["consumers"][0];
    assert_eq!(
        (&consumer["kind"], &consumer["lag"]),
        (&"group".into(), &2.into())
    );
    assert_eq!(consumer["members"][0]["partitions"][1], 1);
    let unknown = ConsumerName {
        consumer: "h".into(),
    };
    let unknown = world.call::<ConsumerList>(other, Method::DescribeConsumers, topic, &unknown);
    assert_eq!(code(unknown), ErrorCode::UnknownConsumer);
}

/// Only events of one key come, wherever the batches have others, and the
/// reader is told how far it is.
#[test]
fn a_reader_of_one_key_gets_those_events_alone() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    let keyed = |sequence: u64, events: &[(&str, Option<&str>)]| {
        let mut builder = BatchBuilder::default();
        for (text, key) in events {
            builder.push(EventParts {
                metadata: text.as_bytes(),
                key: key.map(str::as_bytes),
                ..EventParts::default()
            });
        }
        builder.seal(origin(topic, 5, 0, sequence), 4096).to_vec()
    };
    let request = |start| SubscribeScoped {
        member: MemberId(0),
        key: Some(bytes::Bytes::from_static(b"k")),
        subscribe: Subscribe {
            consumer: String::new(),
            partition: PartitionIndex(0),
            start,
            credit: 1 << 20,
            inline_data: true,
            latest: Appended(false),
        },
    };
    let early = request(Start::Beginning);
    let early = world.request(link, Method::SubscribeScoped, topic, &early, &[]);
    let batches = [
        keyed(
            0,
            &[
                ("0", Some("k")),
                ("1", None),
                ("2", Some("k")),
                ("3", Some("kk")),
            ],
        ),
        keyed(4, &[("4", Some("other")), ("5", Some(""))]),
        keyed(6, &[("6", Some("k"))]),
    ];
    for batch in &batches {
        let id = world.produce(link, topic, batch);
        world.answered::<Produced>(link, id).unwrap();
    }
    let late = request(Start::At(at(1, 1)));
    let late = world.request(link, Method::SubscribeScoped, topic, &late, &[]);
    let places = |world: &World, id| {
        let delivered = world.delivered(link, id).into_iter();
        delivered
            .map(|delivered| match delivered {
                Delivered::Event(position, text) => (position.offset.0, text),
                Delivered::Gap(gap) => panic!("{gap:?}"),
            })
            .collect::<Vec<_>>()
    };
    let expected = [(0, "0".to_owned()), (2, "2".into()), (6, "6".into())];
    assert_eq!(places(&world, early), expected);
    assert_eq!(places(&world, late), expected);
    // Many others lie between.
    let others = vec![("x", None); 1500];
    let id = world.produce(link, topic, &keyed(7, &others));
    world.answered::<Produced>(link, id).unwrap();
    let id = world.produce(link, topic, &keyed(1507, &[("y", None)]));
    world.answered::<Produced>(link, id).unwrap();
    let inbox = world.links[&link].inbox.iter();
    let heads = inbox.filter(|m| m.id == early && m.kind == FrameKind::Deliver);
    let heads = heads.map(|m| Deliver::from_bytes("deliver", &m.head).unwrap());
    let heads: Vec<_> = heads
        .map(|head| (head.batch_bytes.len(), head.watermarks.committed.0))
        .collect();
    assert_eq!(heads, [(1, 4), (1, 7), (0, 1507)]);
    assert_eq!(places(&world, early), expected);
}
