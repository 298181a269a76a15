//! Members are told that a queue or group waits for members of before the
//! server's start, and when it waits no more.

use super::farm::*;
use super::harness::*;
use super::members::group;
use crate::node::LinkId;
use wire::codec::Appended;
use wire::frame::FrameKind;
use wire::message::*;
use wire::*;

impl World {
    /// Joins, and says what the answer says of the time that the queue waits.
    fn joins(&mut self, link: LinkId, topic: TopicId, join: &Join) -> (u64, u32) {
        let id = self.request(link, Method::Join, topic, join, &[]);
        let joined = self.answered::<Joined>(link, id).unwrap();
        (id, joined.recovering_ms.0)
    }

    /// The last that a group's member was told of it.
    fn group_waits(&self, link: LinkId, membership: u64) -> u32 {
        let inbox = self.links[&link].inbox.iter();
        let mut told = inbox.filter(|m| m.id == membership && m.kind == FrameKind::Assigned);
        let last = told.next_back().expect("an assignment was sent");
        let Assigned { recovering_ms, .. } = Assigned::from_bytes("assigned", &last.head).unwrap();
        let Appended(recovering_ms) = recovering_ms;
        recovering_ms
    }
}

#[test]
fn a_member_of_a_restarted_queue_hears_that_it_waits_and_when_it_waits_no_more() {
    for comes_back in [true, false] {
        let mut ground = Ground::new();
        let mut world = ground.start();
        let (link, other) = (world.connect(), world.connect());
        let topic = world.farm(link);
        let (_, waits) = world.joins(link, topic, &member(1));
        assert_eq!(waits, 0, "nobody was there before");
        world.joins(other, topic, &member(2));
        ground.kill();
        let mut world = ground.start();
        let (link, other) = (world.connect(), world.connect());
        world.fill(link, topic, 0, 1, 1);
        world.pass(SECOND);
        let (id, waits) = world.joins(link, topic, &member(1));
        assert!((598_000..=599_000).contains(&waits), "{waits}");
        // So is one that is new.
        let new = world.connect();
        let (_, waits) = world.joins(new, topic, &member(3));
        assert!((598_000..=599_000).contains(&waits), "{waits}");
        assert!(world.frames(link, id).is_empty());
        match comes_back {
            true => {
                let (_, waits) = world.joins(other, topic, &member(2));
                assert_eq!(waits, 0, "all are back");
            }
            false => world.live(&[link, new], SECOND * 600),
        }
        let frames = world.frames(link, id);
        assert!(!frames.is_empty(), "the end was not reported");
    }
}

#[test]
fn a_member_of_a_restarted_group_hears_that_partitions_are_kept_for_others() {
    for comes_back in [true, false] {
        let mut ground = Ground::new();
        let mut world = ground.start();
        let (link, other) = (world.connect(), world.connect());
        let topic = world.topic_of(link, 2);
        let first = world.joined(link, topic, &group(5));
        assert_eq!(world.group_waits(link, first), 0);
        world.joined(other, topic, &group(6));
        world.release(link, topic, 5, &[1]).unwrap();
        ground.kill();
        let mut world = ground.start();
        let (link, other) = (world.connect(), world.connect());
        let first = world.joined(link, topic, &group(5));
        let waits = world.group_waits(link, first);
        assert!((9_000..=10_000).contains(&waits), "{waits}");
        match comes_back {
            true => {
                world.joined(other, topic, &group(6));
            }
            false => world.live(&[link], SECOND * 12),
        }
        assert_eq!(world.group_waits(link, first), 0);
    }
}
