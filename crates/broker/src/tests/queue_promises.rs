//! What a queue promises, each with the planted fault that its test catches.

use super::farm::{done, member, reject};
use super::harness::*;
use super::produce::{expose, external, pattern, produce_external};
use crate::Fault;
use crate::node::{Input, LinkId};
use log::Disk;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;
use wire::frame::FrameKind;
use wire::message::*;
use wire::record::GapReason;
use wire::{Codec, Offset};

type Promise = fn(Ground) -> Result<(), String>;

const PROMISES: [(Promise, Fault); 7] = [
    (members_are_given_what_is_safe, Fault::PastVisibleEnd),
    (an_event_is_under_one_lease_at_a_time, Fault::LeaseTwice),
    (a_lease_that_is_over_settles_nothing, Fault::ExpiredLease),
    (a_rejected_event_is_a_dead_letter, Fault::DropDeadLetter),
    (members_hear_what_was_lost, Fault::NoQueueGap),
    (
        an_event_whose_data_is_damaged_comes_to_an_end,
        Fault::LetterNeedsData,
    ),
    (
        a_suspended_member_uses_up_one_delivery,
        Fault::ServeSuspended,
    ),
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

/// Nothing is given out that a power loss could take away again.
fn members_are_given_what_is_safe(mut ground: Ground) -> Result<(), String> {
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.farm(link);
    let id = world.joined(link, topic, &member(1));
    world.fill(link, topic, 0, 1, 1);
    check(world.given(link, id).len() == 1, "nothing is given out")?;
    world.hold_disk = true;
    let batch = batch(topic, 5, 0, 1, &["1"]);
    world.produce(link, topic, &batch);
    // Written, and not synced: the one operation is the write, and the sync follows it.
    world.release_operation(0);
    // A settlement has the queue look for more to give out.
    let lease = world.given(link, id)[0].lease;
    world.send_settle(link, topic, (1, 0), vec![done(lease)]);
    check(
        world.given(link, id).len() == 1,
        "an event is given out that is not synced",
    )?;
    world.release_disk();
    check(world.given(link, id).len() == 2, "an event stays behind")
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

/// What a member of the queue was told of losses.
fn told(world: &World, link: LinkId, id: u64) -> Vec<(Offset, Offset, GapReason)> {
    let frames = world.links[&link].inbox.iter();
    let frames = frames.filter(|m| m.id == id && m.kind == FrameKind::Leased);
    let gaps = frames.flat_map(|m| Leased::from_bytes("leased", &m.head).unwrap().gaps.0);
    gaps.map(|(_, gap)| (gap.first, gap.end, gap.reason))
        .collect()
}

fn members_hear_what_was_lost(mut ground: Ground) -> Result<(), String> {
    const EVENTS: u64 = 40;
    let join = |number| Join {
        prefetch_events: EVENTS as u32,
        ..member(number)
    };
    let mut world = ground.start();
    let link = world.connect();
    world.create(link, "t.dead", "{}", &["disk"]).unwrap();
    let topic = world.create_segmented(link, "t");
    world.joined(link, topic, &join(1));
    world.fill(link, topic, 0, EVENTS, 1);
    world.input(Input::Drain);
    // A segment in the middle is gone.
    let directory = format!("/data/partitions/{topic}-0-disk");
    let paths = ground.disk.paths().into_iter();
    let mut logs: Vec<_> = paths
        .filter(|path| path.starts_with(&directory))
        .filter(|path| path.extension().is_some_and(|name| name == "log"))
        .collect();
    logs.sort();
    let base = |path: &Path| path.file_stem()?.to_str()?.parse().ok().map(Offset);
    let (first, end) = (base(&logs[1]).unwrap(), base(&logs[2]).unwrap());
    let path = logs.swap_remove(1);
    ground
        .disk
        .execute(log::Operation::Remove { path })
        .unwrap();
    let mut world = ground.start();
    let (link, other) = (world.connect(), world.connect());
    let id = world.joined(link, topic, &join(1));
    let second = world.joined(other, topic, &join(2));
    world.live(&[link, other], Duration::from_secs(60));
    let given = [world.given(link, id), world.given(other, second)].concat();
    let offsets: BTreeSet<Offset> = given.iter().map(|given| given.lease.first).collect();
    check(
        offsets.len() as u64 == EVENTS - (end.0 - first.0),
        "not all that is there was given",
    )?;
    let lost = [(first, end, GapReason::Damaged)];
    check(told(&world, link, id) == lost, "a member is not told")?;
    // What retention takes of what nobody has settled.
    let changes = r#"{"retention":{"count":1}}"#.into();
    let alter = AlterTopic { changes };
    let _: TopicDescription = world.call(link, Method::AlterTopic, topic, &alter).unwrap();
    world.live(&[link, other], Duration::from_secs(60));
    for (link, id) in [(link, id), (other, second)] {
        let told = told(&world, link, id);
        let from = told.last().map(|(at, _, why)| (at.0, *why));
        check(
            from == Some((0, GapReason::Retention)),
            "a member is not told of what retention took",
        )?;
    }
    Ok(())
}

fn an_event_whose_data_is_damaged_comes_to_an_end(mut ground: Ground) -> Result<(), String> {
    let data = pattern(200_000, 3);
    let join = Join {
        prefetch_bytes: 1 << 30,
        ..member(1)
    };
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.farm(link);
    world.joined(link, topic, &join);
    let region = expose(&mut world, link, "r", data.clone());
    let events = [external("0", &data)];
    produce_external(&mut world, link, topic, 0, &events, vec![region]);
    ground.kill();
    // Nothing of it is in memory any more.
    let mut world = ground.start();
    let paths = ground.disk.paths().into_iter();
    let mut paths = paths.filter(|path| path.extension().is_some_and(|name| name == "data"));
    let path = paths.next().expect("large data has a file");
    ground.disk.flip_bit(&path, 80_000);
    let link = world.connect();
    let id = world.joined(link, topic, &join);
    let lease = world.given(link, id)[0].lease;
    world.settled(link, topic, (1, 1), vec![reject(lease, "damaged")]);
    world.live(&[link], Duration::from_secs(5));
    let queue = world.queue(link, topic);
    check(queue.dead == 0, "the event stays dead for ever")?;
    check(
        queue.position.offset == Offset(1),
        "the position stands still",
    )?;
    let letters = world.dead_letters(link);
    check(letters.len() == 1, "there is no dead letter")?;
    let (text, headers) = &letters[0];
    check(text == "0", "its metadata is lost")?;
    check(headers["thalweg.reason"] == "damaged", "its reason is lost")?;
    let why = headers.get("thalweg.data_lost");
    check(
        why.is_some_and(|why| why.contains("crc")),
        "nothing says that its data is lost",
    )
}

fn a_suspended_member_uses_up_one_delivery(mut ground: Ground) -> Result<(), String> {
    const SECOND: Duration = Duration::from_secs(1);
    let mut world = ground.start();
    let (link, other) = (world.connect(), world.connect());
    let topic = world.farm(link);
    let join = |number| Join {
        options: r#"{"lease_ms":1000,"deliveries_max":5}"#.into(),
        session_timeout_ms: 120_000,
        ..member(number)
    };
    let id = world.joined(link, topic, &join(1));
    world.fill(link, topic, 0, 3, 3);
    check(
        world.numbers(link, id) == [0, 1, 2],
        "it is given them once",
    )?;
    // Nothing is heard of it any more.
    world.live(&[other], SECOND * 10);
    check(
        world.given(link, id).len() == 3,
        "it is given events again though nothing was heard of it",
    )?;
    check(world.queue(other, topic).dead == 0, "some are dead letters")?;
    // Whoever comes later finds all of them.
    let second = world.joined(other, topic, &join(2));
    let given = world.given(other, second);
    check(given.len() == 3, "another one does not get them all")?;
    check(
        given.iter().all(|given| given.lease.deliveries == 2),
        "more than one delivery was used up",
    )?;
    let all = given.iter().map(|given| done(given.lease)).collect();
    world.settled(other, topic, (2, 1), all);
    // It goes on, and is served again at once.
    world.breathe(link);
    world.fill(other, topic, 3, 5, 2);
    let served = world.given(link, id).len() + world.given(other, second).len();
    check(
        served == 8 && world.given(link, id).len() > 3,
        "it is given nothing though it is heard of again",
    )
}

/// A retention that drops something with every batch does not cost each member a frame a batch.
#[test]
fn members_are_notified_of_losses_once_a_second() {
    const EVENTS: u64 = 50;
    const KEPT: u64 = 5;
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    world.create(link, "t.dead", "{}", &["disk"]).unwrap();
    let definition = format!("{{\"retention\":{{\"count\":{KEPT}}}}}");
    let created = world.create(link, "t", &definition, &["memory"]).unwrap();
    let topic = created.topic;
    let join = Join {
        prefetch_events: 0,
        ..member(1)
    };
    let id = world.joined(link, topic, &join);
    world.fill(link, topic, 0, EVENTS, 1);
    let first = told(&world, link, id);
    assert_eq!(first.len(), 1, "{first:?}");
    world.live(&[link], Duration::from_secs(3));
    let all = told(&world, link, id);
    assert_eq!(all.len(), 2, "{all:?}");
    assert!(all[0].0 == Offset(0) && all[0].1 == all[1].0, "{all:?}");
    assert_eq!(all[1].1, Offset(EVENTS - KEPT));
}
