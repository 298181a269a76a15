//! Members of groups and queues: present, away, gone. Every arrow of the
//! diagram in `docs/concept/sharing.md`.

use super::harness::*;
use crate::node::LinkId;
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

    #[allow(dead_code)]
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
