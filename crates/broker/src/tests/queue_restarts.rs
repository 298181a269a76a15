//! Leases of members that come back, also after a restart, and how often an
//! event is delivered then.

use super::farm::*;
use super::harness::*;
use std::time::Duration;
use wire::message::*;
use wire::*;

const SECOND: Duration = Duration::from_secs(1);

/// What was given anew to a member, and is not named when it joins again, was
/// never seen, also where it names another lease of the same event.
#[test]
fn a_new_lease_of_an_event_whose_old_one_is_named_is_given_back() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.farm(link);
    let id = world.joined(link, topic, &member(1));
    world.fill(link, topic, 0, 1, 1);
    let old = world.given(link, id)[0].lease;
    world.live(&[link], SECOND * 31);
    let new = world.given(link, id)[1].lease;
    assert_eq!((new.first, new.deliveries), (old.first, 2));
    world.disconnect(link);
    let link = world.connect();
    let again = Join {
        held: vec![old],
        ..member(1)
    };
    let id = world.joined(link, topic, &again);
    let given = world.given(link, id);
    assert_eq!(given.len(), 1, "it waits for a lease that nobody has");
    assert_eq!(given[0].lease.deliveries, 2, "it was not delivered");
}

/// That an event came back may be lost with a crash. Then two members name it.
#[test]
fn after_a_restart_the_later_lease_of_an_event_goes_on() {
    for newer_first in [false, true] {
        let mut ground = Ground::new();
        let mut world = ground.start();
        let (link, other) = (world.connect(), world.connect());
        let topic = world.farm(link);
        let id = world.joined(link, topic, &member(1));
        world.fill(link, topic, 0, 1, 1);
        let old = world.given(link, id)[0].lease;
        world.joined(other, topic, &member(2));
        let new = Lease {
            lease: LeaseId(old.lease.0 + 1),
            deliveries: 2,
            ..old
        };
        ground.kill();
        let mut world = ground.start();
        let (link, other) = (world.connect(), world.connect());
        let first = Join {
            held: vec![old],
            ..member(1)
        };
        let second = Join {
            held: vec![new],
            ..member(2)
        };
        if newer_first {
            world.joined(other, topic, &second);
            world.joined(link, topic, &first);
        } else {
            world.joined(link, topic, &first);
            world.joined(other, topic, &second);
        }
        let late = world.settled(link, topic, (1, 1), vec![done(old)]);
        assert_eq!(late, [old.first.0], "newer first: {newer_first}");
        let done = world.settled(other, topic, (2, 1), vec![done(new)]);
        assert!(done.is_empty(), "newer first: {newer_first}");
    }
}

/// An acknowledgement that finds no space, after its lease is over.
#[test]
fn what_cannot_be_settled_comes_back_no_oftener_than_allowed() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.farm(link);
    let once = Join {
        options: r#"{"deliveries_max":1,"lease_ms":1000}"#.into(),
        ..member(1)
    };
    let id = world.joined(link, topic, &once);
    world.fill(link, topic, 0, 1, 1);
    let lease = world.given(link, id)[0].lease;
    world.hold_disk = true;
    let settle = world.send_settle(link, topic, (1, 1), vec![done(lease)]);
    world.live(&[link], SECOND * 2);
    let next = ground.disk.operation_count();
    ground.disk.fail_at(next, log::testing::Fault::Full(0));
    world.release_disk();
    let error = world.error(link, settle).expect("there is no space");
    assert_eq!(error.code, ErrorCode::StorageFull);
    world.live(&[link], SECOND * 5);
    assert_eq!(world.given(link, id).len(), 1, "it was delivered once");
    assert_eq!(world.dead_letters(link).len(), 1);
}

/// Also where once is as often as is allowed, and nothing else is recorded.
#[test]
fn what_was_delivered_before_a_restart_is_not_delivered_too_often() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.farm(link);
    let once = Join {
        options: r#"{"deliveries_max":1}"#.into(),
        ..member(1)
    };
    let id = world.joined(link, topic, &once);
    world.fill(link, topic, 0, 3, 3);
    let given = world.given(link, id);
    world.settled(link, topic, (1, 1), vec![done(given[2].lease)]);
    ground.kill();
    let mut world = ground.start();
    let link = world.connect();
    let again = Join {
        held: vec![given[0].lease],
        ..once
    };
    let id = world.joined(link, topic, &again);
    world.live(&[link], SECOND);
    assert!(world.given(link, id).is_empty(), "it was delivered once");
    let letters = world.dead_letters(link);
    assert_eq!(letters.len(), 1, "the second has come back");
    // The first goes on.
    let late = world.settled(link, topic, (1, 2), vec![done(given[0].lease)]);
    assert!(late.is_empty());
    assert_eq!(world.queue(link, topic).position.offset, Offset(3));
}

/// What waited for a turn of its key when the server was killed, and what was
/// settled behind it: it was not delivered, and is not read for ever.
#[test]
fn what_waited_for_its_turn_at_a_crash_waits_again() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.farm(link);
    let join = Join {
        options: r#"{"ordered_by_key":true,"deliveries_max":1}"#.into(),
        prefetch_events: 2,
        ..member(1)
    };
    let id = world.joined(link, topic, &join);
    let first = keyed(topic, 0, &[("0", "a"), ("1", "a")]);
    world.produce(link, topic, &first);
    world.produce(link, topic, &keyed(topic, 2, &[("2", "b")]));
    let given = world.given(link, id);
    assert_eq!(world.numbers(link, id), [0, 2]);
    assert!(
        world
            .settled(link, topic, (1, 1), vec![done(given[1].lease)])
            .is_empty()
    );
    ground.kill();
    let mut world = ground.start();
    let link = world.connect();
    let again = Join {
        held: vec![given[0].lease],
        prefetch_events: 1,
        ..join
    };
    let id = world.joined(link, topic, &again);
    let settled = world.settled(link, topic, (1, 2), vec![done(given[0].lease)]);
    assert!(settled.is_empty());
    let one = world.given(link, id).pop().expect("it has its turn");
    assert_eq!((one.text.as_str(), one.lease.deliveries), ("1", 1));
    assert!(world.dead_letters(link).is_empty());
}
