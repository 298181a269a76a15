//! What a queue promises, each with the planted fault that its test catches.

use super::farm::{done, member, reject};
use super::harness::*;
use crate::Fault;
use std::collections::BTreeSet;
use std::time::Duration;
use wire::Offset;

type Promise = fn(Ground) -> Result<(), String>;

const PROMISES: [(Promise, Fault); 3] = [
    (an_event_is_under_one_lease_at_a_time, Fault::LeaseTwice),
    (a_lease_that_is_over_settles_nothing, Fault::ExpiredLease),
    (a_rejected_event_is_a_dead_letter, Fault::DropDeadLetter),
];

#[test]
fn promises_hold() {
    for (index, (promise, _)) in PROMISES.iter().enumerate() {
        assert_eq!(promise(Ground::new()), Ok(()), "promise {index}");
    }
}

#[test]
fn planted_faults_are_caught() {
    for (promise, fault) in PROMISES {
        let caught = promise(Ground::with_fault(fault));
        assert!(caught.is_err(), "{fault:?} is not noticed");
    }
}

fn check(holds: bool, what: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what.to_owned()) }
}

fn an_event_is_under_one_lease_at_a_time(mut ground: Ground) -> Result<(), String> {
    let mut world = ground.start();
    let (link, other) = (world.connect(), world.connect());
    let topic = world.farm(link);
    let id = world.joined(link, topic, &member(1));
    let id_2 = world.joined(other, topic, &member(2));
    world.fill(link, topic, 0, 8, 2);
    let given = [world.given(link, id), world.given(other, id_2)].concat();
    let events: BTreeSet<Offset> = given.iter().map(|given| given.lease.first).collect();
    check(events.len() == 8, "something was not given out")?;
    check(given.len() == 8, "an event was given to two")
}

fn a_lease_that_is_over_settles_nothing(mut ground: Ground) -> Result<(), String> {
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.farm(link);
    let id = world.joined(link, topic, &member(1));
    world.fill(link, topic, 0, 1, 1);
    let lease = world.given(link, id)[0].lease;
    world.live(&[link], Duration::from_secs(28));
    // The settlement comes before the timer that would end the lease.
    world.now.monotonic += Duration::from_secs(3);
    let refused = world.settled(link, topic, (1, 1), vec![done(lease)]);
    check(refused == [0], "a lease that was over has settled an event")
}

fn a_rejected_event_is_a_dead_letter(mut ground: Ground) -> Result<(), String> {
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.farm(link);
    let id = world.joined(link, topic, &member(1));
    world.fill(link, topic, 0, 1, 1);
    let lease = world.given(link, id)[0].lease;
    let refused = world.settled(link, topic, (1, 1), vec![reject(lease, "bad")]);
    check(refused.is_empty(), "the rejection was refused")?;
    let position = world.queue(link, topic).position.offset;
    check(position == Offset(1), "the event is not settled")?;
    let letters = world.dead_letters(link);
    check(letters.len() == 1, "the dead letter was dropped")
}
