//! Queues: every arrow of the diagram in `docs/concept/sharing.md`, through
//! the node.

use super::farm::*;
use super::harness::*;
use crate::Fault;
use crate::node::{Input, LINK_QUEUED_BYTES_HIGH, LinkId};
use log::testing::Survival;
use std::collections::BTreeSet;
use std::time::Duration;
use wire::message::*;
use wire::*;

#[test]
fn an_event_is_leased_once_and_settled_for_good() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.farm(link);
    let id = world.joined(link, topic, &member(1));
    world.fill(link, topic, 0, 3, 3);
    let given = world.given(link, id);
    assert_eq!(world.numbers(link, id), [0, 1, 2]);
    assert!(given.iter().all(|given| given.lease.deliveries == 1));
    let refused = world.settled(link, topic, (1, 1), vec![done(given[1].lease)]);
    assert!(refused.is_empty());
    let queue = world.queue(link, topic);
    assert_eq!((queue.settled, queue.leased), (1, 2));
    let all = given.iter().map(|given| done(given.lease)).collect();
    // What is settled already is not its any more.
    assert_eq!(world.settled(link, topic, (1, 2), all), [1]);
    assert_eq!(world.queue(link, topic).position.offset, Offset(3));
    world.live(&[link], LEASE * 2);
    assert_eq!(world.given(link, id).len(), 3);
    ground.power_loss(Survival::Nothing);
    let mut world = ground.start();
    let link = world.connect();
    let id = world.joined(link, topic, &member(1));
    assert!(world.given(link, id).is_empty());
    assert_eq!(world.queue(link, topic).position.offset, Offset(3));
}

#[test]
fn a_settlement_survives_what_its_event_does() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    world.create(link, "t.dead", "{}", &["disk"]).unwrap();
    let written = r#"{"durability":"written"}"#;
    let topic = world.create(link, "t", written, &["disk"]).unwrap().topic;
    let id = world.joined(link, topic, &member(1));
    world.fill(link, topic, 0, 3, 1);
    let given = world.given(link, id);
    // The first record of all has a file to be made for it.
    world.settled(link, topic, (1, 9), vec![done(given[2].lease)]);
    world.hold_disk = true;
    let first = world.send_settle(link, topic, (1, 1), vec![done(given[0].lease)]);
    // It is written; nobody waits for the disk to be done with it.
    assert_eq!(world.held_operation_count(), 1);
    world.release_operation(0);
    world
        .answered::<wire::message::Settled>(link, first)
        .unwrap();
    // That an event is dead is synced.
    let dead = world.send_settle(link, topic, (1, 2), vec![reject(given[1].lease, "bad")]);
    world.release_operation(0);
    assert!(world.answer(link, dead).is_none());
    world.release_disk();
    world
        .answered::<wire::message::Settled>(link, dead)
        .unwrap();
    ground.kill();
    let mut world = ground.start();
    let link = world.connect();
    let id = world.joined(link, topic, &member(1));
    assert!(world.given(link, id).is_empty());
    assert_eq!(world.dead_letters(link).len(), 1);
}

#[test]
fn a_settlement_is_answered_when_it_is_durable() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.farm(link);
    let id = world.joined(link, topic, &member(1));
    world.fill(link, topic, 0, 12, 12);
    assert_eq!(world.numbers(link, id), (0..10).collect::<Vec<_>>());
    let given = world.given(link, id);
    world.hold_disk = true;
    let ten = given.iter().map(|given| done(given.lease)).collect();
    let first = world.send_settle(link, topic, (1, 1), ten);
    assert!(world.answer(link, first).is_none());
    // The prefetch is free at once.
    assert_eq!(world.queue(link, topic).leased, 2);
    world.release_disk();
    assert!(world.answer(link, first).is_some());
    assert_eq!(world.numbers(link, id), (0..12).collect::<Vec<_>>());
}

#[test]
fn settlements_that_wait_share_a_record() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.farm(link);
    let id = world.joined(link, topic, &member(1));
    world.fill(link, topic, 0, 9, 9);
    let given = world.given(link, id);
    // The first record of all has a file to be made for it.
    world.settled(link, topic, (1, 100), vec![done(given[8].lease)]);
    world.hold_disk = true;
    let mut ids = Vec::new();
    for (index, given) in given.iter().take(8).enumerate() {
        let sequence = (1, index as u64 + 1);
        ids.push(world.send_settle(link, topic, sequence, vec![done(given.lease)]));
    }
    let one_more = world.send_settle(link, topic, (1, 9), Vec::new());
    let refused = world.error(link, one_more).unwrap();
    assert_eq!(refused.code, ErrorCode::LimitExceeded);
    let before = ground.disk.operation_count();
    world.release_disk();
    assert!(ids.iter().all(|id| world.answer(link, *id).is_some()));
    // The first, and all that came meanwhile: a write and a sync each.
    let operations = ground.disk.operation_count() - before;
    assert!(operations <= 5, "{operations} operations");
}

#[test]
fn a_lease_expires_and_its_settlement_is_refused() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let (link, other) = (world.connect(), world.connect());
    let topic = world.farm(link);
    let id = world.joined(link, topic, &member(1));
    world.fill(link, topic, 0, 1, 1);
    let first = world.given(link, id)[0].lease;
    world.live(&[link, other], LEASE - SECOND);
    let id_2 = world.joined(other, topic, &member(2));
    assert!(world.given(other, id_2).is_empty());
    world.live(&[link, other], SECOND * 2);
    let again: Vec<Given> = [world.given(link, id), world.given(other, id_2)].concat();
    let again = again.last().unwrap().lease;
    assert_ne!(first.lease, again.lease);
    assert_eq!(again.deliveries, 2);
    for member in [1, 2] {
        let from = if member == 1 { link } else { other };
        let refused = world.settled(from, topic, (member, 1), vec![done(first)]);
        assert_eq!(refused, [0], "member {member}");
    }
    let owner = match world.given(other, id_2).is_empty() {
        true => (link, 1),
        false => (other, 2),
    };
    let refused = world.settled(owner.0, topic, (owner.1, 2), vec![done(again)]);
    assert!(refused.is_empty());
}

#[test]
fn a_lease_that_is_extended_goes_on() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.farm(link);
    let id = world.joined(link, topic, &member(1));
    world.fill(link, topic, 0, 2, 2);
    let given = world.given(link, id);
    for _ in 0..5 {
        world.live(&[link], LEASE / 2);
        let extend = ExtendLeases {
            consumer: "q".into(),
            member: MemberId(1),
            leases: vec![given[0].lease],
        };
        let extended: LeasesExtended = world
            .call(link, Method::ExtendLeases, topic, &extend)
            .unwrap();
        assert_eq!(extended.lease_ms, 30_000);
        assert!(extended.expired.is_empty());
    }
    // The other one has expired, twice.
    let last = world.given(link, id).pop().unwrap();
    assert_eq!((last.text.as_str(), last.lease.deliveries), ("1", 3));
    let extend = ExtendLeases {
        consumer: "q".into(),
        member: MemberId(1),
        leases: vec![given[1].lease],
    };
    let extended: LeasesExtended = world
        .call(link, Method::ExtendLeases, topic, &extend)
        .unwrap();
    assert_eq!(offsets(&extended.expired), [1]);
    let all = vec![done(given[0].lease), done(last.lease)];
    assert!(world.settled(link, topic, (1, 1), all).is_empty());
}

#[test]
fn what_is_returned_comes_again_first_or_after_its_delay() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.farm(link);
    let join = Join {
        prefetch_events: 2,
        ..member(1)
    };
    let id = world.joined(link, topic, &join);
    world.fill(link, topic, 0, 6, 3);
    let given = world.given(link, id);
    assert_eq!(world.numbers(link, id), [0, 1]);
    let both = vec![back(given[0].lease, 5_000), back(given[1].lease, 0)];
    assert!(world.settled(link, topic, (1, 1), both).is_empty());
    assert_eq!(world.numbers(link, id), [0, 1, 1, 2]);
    let queue = world.queue(link, topic);
    assert_eq!((queue.delayed, queue.leased), (1, 2));
    let given = world.given(link, id);
    assert_eq!(given[2].lease.deliveries, 2);
    world.pass(SECOND * 5);
    let one = vec![done(given[2].lease)];
    assert!(world.settled(link, topic, (1, 2), one).is_empty());
    assert_eq!(world.numbers(link, id), [0, 1, 1, 2, 0]);
    // The counts survive a crash, and what a delay had left of it.
    let zero = world.given(link, id).pop().unwrap();
    let later = vec![back(zero.lease, 20_000)];
    assert!(world.settled(link, topic, (1, 3), later).is_empty());
    ground.power_loss(Survival::Nothing);
    let mut world = ground.start();
    let link = world.connect();
    let id = world.joined(
        link,
        topic,
        &Join {
            prefetch_events: 9,
            ..member(1)
        },
    );
    assert_eq!(world.numbers(link, id), [2, 3, 4, 5]);
    world.live(&[link], SECOND * 26);
    let zero = world.given(link, id).pop().unwrap();
    assert_eq!((zero.text.as_str(), zero.lease.deliveries), ("0", 3));
}

#[test]
fn a_member_that_wants_nothing_more_finishes_what_it_has() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.farm(link);
    let join = Join {
        prefetch_events: 2,
        ..member(1)
    };
    let id = world.joined(link, topic, &join);
    world.fill(link, topic, 0, 4, 4);
    let given = world.given(link, id);
    assert_eq!(world.numbers(link, id), [0, 1]);
    // It names one of what it holds: the other goes back, uncounted.
    let nothing = Join {
        prefetch_events: 0,
        held: vec![given[0].lease],
        ..join.clone()
    };
    let id = world.joined(link, topic, &nothing);
    assert_eq!(world.numbers(link, id), [0u64; 0]);
    let done = vec![done(given[0].lease)];
    assert!(world.settled(link, topic, (1, 1), done).is_empty());
    assert_eq!(world.numbers(link, id), [0u64; 0]);
    let other = world.connect();
    let second = world.joined(other, topic, &member(2));
    assert_eq!(world.numbers(other, second), [1, 2, 3]);
    let deliveries = world.given(other, second);
    assert!(deliveries.iter().all(|one| one.lease.deliveries == 1));
}

#[test]
fn what_was_never_looked_at_is_not_counted() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let (link, other) = (world.connect(), world.connect());
    let topic = world.farm(link);
    let id = world.joined(link, topic, &member(1));
    world.fill(link, topic, 0, 2, 2);
    let given = world.given(link, id);
    let give_back = Settlement {
        how: SettleAs::GiveBack,
        ..done(given[0].lease)
    };
    world.settled(link, topic, (1, 1), vec![give_back]);
    let leave = Leave {
        consumer: "q".into(),
        member: MemberId(1),
    };
    world
        .call::<Empty>(link, Method::Leave, topic, &leave)
        .unwrap();
    let id = world.joined(other, topic, &member(2));
    let given = world.given(other, id);
    assert_eq!(given.len(), 2);
    assert!(given.iter().all(|given| given.lease.deliveries == 1));
}

#[test]
fn a_member_that_is_gone_loses_what_it_had() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let (link, other) = (world.connect(), world.connect());
    let topic = world.farm(link);
    let short = Join {
        session_timeout_ms: 10_000,
        ..member(1)
    };
    let id = world.joined(link, topic, &short);
    world.fill(link, topic, 0, 2, 2);
    let held = world.given(link, id)[0].lease;
    let id_2 = world.joined(other, topic, &member(2));
    world.disconnect(link);
    world.live(&[other], SECOND * 9);
    assert!(world.given(other, id_2).is_empty());
    world.live(&[other], SECOND * 2);
    let given = world.given(other, id_2);
    assert_eq!(given.len(), 2);
    assert!(given.iter().all(|given| given.lease.deliveries == 2));
    let link = world.connect();
    let id = world.send_settle(link, topic, (1, 1), vec![done(held)]);
    let error = world.error(link, id).unwrap();
    assert_eq!(error.code, ErrorCode::MemberFenced);
}

#[test]
fn a_member_that_comes_back_keeps_what_it_names() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.farm(link);
    let id = world.joined(link, topic, &member(1));
    world.fill(link, topic, 0, 3, 3);
    let given = world.given(link, id);
    world.settled(link, topic, (1, 1), vec![done(given[0].lease)]);
    world.disconnect(link);
    let link = world.connect();
    let again = Join {
        held: vec![given[0].lease, given[1].lease],
        ..member(1)
    };
    let id = world.request(link, Method::Join, topic, &again, &[]);
    let joined: Joined = world.answered(link, id).unwrap();
    // It is settled, and no more this member's than anybody's.
    assert_eq!(offsets(&joined.expired), [0]);
    assert!(joined.settled.is_empty());
    // The third was never seen.
    let third = world.given(link, id);
    assert_eq!(world.numbers(link, id), [2]);
    assert_eq!(third[0].lease.deliveries, 1);
    // A settlement that is sent again gets its first answer.
    let again = world.settled(link, topic, (1, 1), vec![done(given[0].lease)]);
    assert!(again.is_empty());
    let second = world.settled(link, topic, (1, 2), vec![done(given[1].lease)]);
    assert!(second.is_empty());
}

#[test]
fn a_settlement_on_its_way_is_answered_on_the_new_connection() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.farm(link);
    let id = world.joined(link, topic, &member(1));
    world.fill(link, topic, 0, 1, 1);
    let lease = world.given(link, id)[0].lease;
    world.hold_disk = true;
    world.send_settle(link, topic, (1, 1), vec![done(lease)]);
    world.disconnect(link);
    let link = world.connect();
    let again = Join {
        held: vec![lease],
        ..member(1)
    };
    let join = world.request(link, Method::Join, topic, &again, &[]);
    let settle = world.send_settle(link, topic, (1, 1), vec![done(lease)]);
    world.release_disk();
    assert!(world.answered::<Joined>(link, join).is_ok());
    let settled: wire::message::Settled = world.answered(link, settle).unwrap();
    assert!(settled.expired.is_empty());
    assert_eq!(world.queue(link, topic).position.offset, Offset(1));
}

#[test]
fn a_restarted_server_waits_for_its_members() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let (link, other) = (world.connect(), world.connect());
    let topic = world.farm(link);
    let id = world.joined(
        link,
        topic,
        &Join {
            prefetch_events: 2,
            ..member(1)
        },
    );
    let short = Join {
        session_timeout_ms: 10_000,
        prefetch_events: 2,
        ..member(2)
    };
    let id_2 = world.joined(other, topic, &short);
    world.fill(link, topic, 0, 6, 6);
    let mine = world.given(link, id);
    let theirs = world.given(other, id_2);
    assert_eq!((mine.len(), theirs.len()), (2, 2));
    world.settled(link, topic, (1, 1), vec![done(mine[0].lease)]);
    ground.power_loss(Survival::Nothing);
    let mut world = ground.start();
    let (link, third) = (world.connect(), world.connect());
    let again = Join {
        held: mine.iter().map(|given| given.lease).collect(),
        prefetch_events: 9,
        ..member(1)
    };
    let id = world.request(link, Method::Join, topic, &again, &[]);
    let joined: Joined = world.answered(link, id).unwrap();
    assert_eq!(offsets(&joined.settled), [mine[0].lease.first.0]);
    assert!(joined.expired.is_empty());
    let id_3 = world.joined(third, topic, &member(3));
    // Nobody is given anything: member 2 may be at it.
    world.live(&[link, third], SECOND * 9);
    assert!(world.given(link, id).is_empty() && world.given(third, id_3).is_empty());
    // Its own goes on under its lease.
    let refused = world.settled(link, topic, (1, 2), vec![done(mine[1].lease)]);
    assert!(refused.is_empty());
    // Member 2 is gone.
    world.live(&[link, third], SECOND * 2);
    let mut rest = world.numbers(link, id);
    rest.extend(world.numbers(third, id_3));
    rest.sort_unstable();
    let left: BTreeSet<u64> = (0..6).collect();
    let settled = mine
        .iter()
        .map(|given| given.text.parse().unwrap())
        .collect();
    let left: Vec<u64> = left.difference(&settled).copied().collect();
    assert_eq!(rest, left);
    // No lease was given before.
    let before: BTreeSet<_> = mine.iter().chain(&theirs).map(|g| g.lease.lease).collect();
    let fresh = [world.given(link, id), world.given(third, id_3)].concat();
    assert!(
        fresh
            .iter()
            .all(|given| !before.contains(&given.lease.lease))
    );
}

#[test]
fn members_are_served_in_turn_within_their_prefetch() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.farm(link);
    let links: Vec<LinkId> = (0..4).map(|_| world.connect()).collect();
    let ids: Vec<u64> = (0..4)
        .map(|index| {
            let join = Join {
                prefetch_events: 100,
                ..member(index as u128 + 1)
            };
            world.joined(links[index], topic, &join)
        })
        .collect();
    world.fill(link, topic, 0, 200, 200);
    for index in 0..4 {
        assert_eq!(world.given(links[index], ids[index]).len(), 50);
        assert_eq!(world.frames(links[index], ids[index]).len(), 1);
    }
    // One at a time they go round.
    world.fill(link, topic, 200, 208, 1);
    for index in 0..4 {
        assert_eq!(world.given(links[index], ids[index]).len(), 52);
    }
    world.fill(link, topic, 208, 1000, 100);
    for index in 0..4 {
        assert_eq!(world.given(links[index], ids[index]).len(), 100);
    }
    // One above the high watermark gets nothing until it is below the low one.
    let bytes = LINK_QUEUED_BYTES_HIGH + 1;
    world.input(Input::LinkQueued {
        link: links[0],
        bytes,
    });
    let all: Vec<_> = world.given(links[0], ids[0]);
    let all = all.iter().map(|given| done(given.lease)).collect();
    world.settled(links[0], topic, (1, 1), all);
    assert_eq!(world.given(links[0], ids[0]).len(), 100);
    world.input(Input::LinkQueued {
        link: links[0],
        bytes: 0,
    });
    assert_eq!(world.given(links[0], ids[0]).len(), 200);
    let mut seen: Vec<u64> = (0..4)
        .flat_map(|i| world.numbers(links[i], ids[i]))
        .collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..500).collect::<Vec<_>>());
}

/// A program may settle nothing before it has all that it may have.
fn a_member_gets_all_of_its_prefetch(mut ground: Ground) -> usize {
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.farm(link);
    let join = Join {
        prefetch_events: 64,
        ..member(1)
    };
    let id = world.joined(link, topic, &join);
    world.fill(link, topic, 0, 60, 60);
    assert_eq!(world.given(link, id).len(), 60);
    // Less than an eighth is free: an event a frame would cost too much.
    world.fill(link, topic, 60, 100, 1);
    assert_eq!(world.given(link, id).len(), 60);
    world.pass(Duration::from_millis(10));
    let given = world.given(link, id).len();
    // Nothing more comes than it may have, and nothing in vain.
    world.pass(Duration::from_millis(100));
    assert_eq!(world.given(link, id).len(), given);
    given
}

#[test]
fn a_member_that_settles_nothing_before_it_has_all_is_given_all() {
    assert_eq!(a_member_gets_all_of_its_prefetch(Ground::new()), 64);
    let caught = a_member_gets_all_of_its_prefetch(Ground::with_fault(Fault::NoTopUp));
    assert_eq!(caught, 60, "it is not missed");
}

#[test]
fn prefetch_bounds_bytes_and_one_larger_event_comes_alone() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.farm(link);
    let join = Join {
        prefetch_bytes: 100,
        ..member(1)
    };
    let id = world.joined(link, topic, &join);
    let large = "x".repeat(300);
    let texts = ["small", &large, &"y".repeat(60), &"z".repeat(60)];
    world.stored(link, topic, (5, 0), &texts);
    let lengths = |world: &World| -> Vec<usize> {
        let given = world.given(link, id).into_iter();
        given.map(|given| given.text.len()).collect()
    };
    let mut expected = vec![5];
    assert_eq!(lengths(&world), expected);
    for (index, length) in [300, 60, 60].into_iter().enumerate() {
        let last = world.given(link, id).pop().unwrap();
        world.settled(link, topic, (1, index as u64 + 1), vec![done(last.lease)]);
        expected.push(length);
        assert_eq!(lengths(&world), expected);
    }
}

#[test]
fn a_queue_begins_where_it_is_told_and_ends_with_its_topic() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.farm(link);
    world.fill(link, topic, 0, 5, 5);
    let join = Join {
        start: Start::Latest,
        ..member(1)
    };
    let id = world.joined(link, topic, &join);
    world.fill(link, topic, 5, 7, 2);
    assert_eq!(world.numbers(link, id), [5, 6]);
    let given = world.given(link, id);
    world.hold_disk = true;
    let settle = world.send_settle(link, topic, (1, 1), vec![done(given[0].lease)]);
    let name = TopicName { name: "t".into() };
    let deleted = world.request(link, Method::DeleteTopic, TopicId(0), &name, &[]);
    world.release_disk();
    assert!(world.answer(link, deleted).is_some());
    assert!(world.answer(link, settle).is_some());
    assert!(world.ended(link, id).is_some());
    // A topic of the same name has no queue.
    let topic = world.topic(link);
    assert!(world.consumers(link, topic).is_empty());
    world.pass(LEASE);
}

#[test]
fn a_deleted_queue_begins_afresh() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.farm(link);
    let id = world.joined(link, topic, &member(1));
    world.fill(link, topic, 0, 2, 2);
    let given = world.given(link, id);
    world.settled(link, topic, (1, 1), vec![done(given[0].lease)]);
    world.end_queue(link, topic, 1);
    let id = world.joined(link, topic, &member(1));
    assert_eq!(world.numbers(link, id), [0, 1]);
}

#[test]
fn partitions_that_are_added_are_shared_too() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.farm(link);
    let id = world.joined(link, topic, &member(1));
    let add = AddPartitions {
        partitions: vec![storage("disk")],
    };
    world
        .call::<TopicDescription>(link, Method::AddPartitions, topic, &add)
        .unwrap();
    let produce = Produce {
        partition: PartitionIndex(1),
        durability: Durability::Memory,
        regions: Vec::new(),
    };
    let bytes = batch(topic, 9, 0, 0, &["7"]);
    world.request(link, Method::Produce, topic, &produce, &bytes);
    let given = world.given(link, id);
    assert_eq!(given.len(), 1);
    assert_eq!(given[0].lease.partition, PartitionIndex(1));
}

#[test]
fn a_full_internal_partition_undoes_settlements() {
    let mut ground = Ground::new();
    ground.limits.internal_bytes_max = 16 << 10;
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.farm(link);
    let join = Join {
        prefetch_events: 100,
        ..member(1)
    };
    let id = world.joined(link, topic, &join);
    world.fill(link, topic, 0, 100, 100);
    let given = world.given(link, id);
    ground.disk.set_space(Some(0));
    let refused = (0..100).find_map(|index| {
        let one = vec![done(given[index].lease)];
        let id = world.send_settle(link, topic, (1, index as u64 + 1), one);
        Some((index, world.error(link, id)?))
    });
    let (index, error) = refused.expect("space ends");
    assert_eq!(error.code, ErrorCode::StorageFull);
    assert_eq!(world.queue(link, topic).leased, 100 - index as u64);
    ground.disk.set_space(None);
    world.live(&[link], SECOND * 2);
    // Sent again, it is done.
    let sequence = (1, index as u64 + 1);
    let one = vec![done(given[index].lease)];
    let again = world.send_settle(link, topic, sequence, one.clone());
    if world.error(link, again).is_some() {
        world.live(&[link], SECOND * 2);
        assert!(world.settled(link, topic, sequence, one).is_empty());
    }
    let position = world.queue(link, topic).position.offset;
    assert_eq!(position, Offset(index as u64 + 1));
}

#[test]
fn a_queue_ordered_by_key_gives_out_one_of_a_key_at_a_time() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.farm(link);
    let join = Join {
        options: r#"{"ordered_by_key":true}"#.into(),
        ..member(1)
    };
    let id = world.joined(link, topic, &join);
    let events = [
        ("0", "a"),
        ("1", "a"),
        ("2", "b"),
        ("3", ""),
        ("4", "a"),
        ("5", "b"),
    ];
    let bytes = keyed(topic, 0, &events);
    world.produce(link, topic, &bytes);
    assert_eq!(world.numbers(link, id), [0, 2, 3]);
    let given = world.given(link, id);
    let settlements = vec![back(given[0].lease, 5_000), done(given[1].lease)];
    assert!(world.settled(link, topic, (1, 1), settlements).is_empty());
    assert_eq!(world.numbers(link, id), [0, 2, 3, 5]);
    // The key waits for its delay, also across a crash.
    world.settled(
        link,
        topic,
        (1, 2),
        vec![done(world.given(link, id)[3].lease)],
    );
    ground.kill();
    let mut world = ground.start();
    let link = world.connect();
    let id = world.joined(link, topic, &join);
    world.live(&[link], SECOND * 4);
    assert!(!world.numbers(link, id).contains(&1));
    world.live(&[link], SECOND * 2);
    let zero = world.given(link, id).into_iter().find(|g| g.text == "0");
    let zero = zero.expect("its delay has passed");
    world.settled(link, topic, (1, 3), vec![done(zero.lease)]);
    let one = world.given(link, id).pop().unwrap();
    assert_eq!(one.text, "1");
    world.settled(link, topic, (1, 4), vec![done(one.lease)]);
    assert_eq!(world.given(link, id).pop().unwrap().text, "4");
}

#[test]
fn what_retention_removes_counts_as_settled() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    world.create(link, "t.dead", "{}", &["disk"]).unwrap();
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
    let id = world.joined(link, topic, &member(1));
    let text = "x".repeat(400);
    for sequence in 0..100 {
        world.stored(link, topic, (5, sequence), &[&text]);
        world.live(&[link], SECOND);
    }
    let first = world.describe(link, "t").unwrap().partitions[0].first;
    assert!(first.0 > 50, "nothing was dropped before {first}");
    let queue = world.queue(link, topic);
    assert!(queue.position.offset >= first);
    // What it had of them is not its any more.
    let lost = world.given(link, id)[0].lease;
    assert_eq!(world.settled(link, topic, (1, 1), vec![done(lost)]), [0]);
    // And the rest is given out: the prefetch is free.
    let mut sequence = 1;
    while world.queue(link, topic).position.offset < Offset(100) {
        let given = world.given(link, id);
        let last = &given[given.len().saturating_sub(10)..];
        let last = last.iter().map(|given| done(given.lease)).collect();
        sequence += 1;
        world.settled(link, topic, (1, sequence), last);
        assert!(sequence < 50, "{:?}", world.queue(link, topic));
    }
}

#[test]
fn a_lost_memory_partition_begins_afresh() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    world.create(link, "t.dead", "{}", &["disk"]).unwrap();
    let made = world.create(link, "t", "{}", &["memory"]).unwrap();
    let topic = made.topic;
    let id = world.joined(link, topic, &member(1));
    world.fill(link, topic, 0, 3, 3);
    let given = world.given(link, id);
    world.settled(link, topic, (1, 1), vec![done(given[0].lease)]);
    ground.kill();
    let mut world = ground.start();
    let link = world.connect();
    let again = Join {
        held: given.iter().map(|given| given.lease).collect(),
        ..member(1)
    };
    let id = world.request(link, Method::Join, topic, &again, &[]);
    let joined: Joined = world.answered(link, id).unwrap();
    assert_eq!(offsets(&joined.expired), [0, 1, 2]);
    world.stored(link, topic, (6, 0), &["7"]);
    let fresh = world.given(link, id);
    assert_eq!(world.numbers(link, id), [7]);
    assert!(fresh[0].lease.incarnation > given[0].lease.incarnation);
    let one = vec![done(fresh[0].lease)];
    assert!(world.settled(link, topic, (1, 2), one).is_empty());
    ground.kill();
    let mut world = ground.start();
    let link = world.connect();
    assert_eq!(world.queue(link, topic).position.offset, Offset(0));
}
