//! Events whose data is damaged where it is stored, against a scripted server
//! under a virtual clock: what lies behind them comes once, and in order.

use crate::fake;
use crate::reading;
use crate::world;

use client::*;
use fake::Fate;
use reading::*;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use wire::record::GapReason;
use world::World;

/// More than what travels in the batch itself.
const DATA: usize = 100_000;
/// Events in a batch.
const BATCH: usize = 20;

/// The first so many damaged events of the batch that begins at [`BATCH`].
fn damaged(count: usize) -> BTreeSet<u64> {
    // Single ones, then neighbours, then both ends of the batch.
    let places = [10, 3, 4, 17, 18, 7, 19, 0, 12, 13, 14, 1, 6, 9];
    let places = places.iter().take(count);
    places.map(|place| (BATCH + place) as u64).collect()
}

/// A topic of `events` events in batches of `batch`, with some that cannot be read.
fn stored(events: usize, batch: usize, damaged: &BTreeSet<u64>) -> (World, TopicHandle) {
    let mut world = World::new();
    let topic = world.topic(1);
    fill(&mut world, &topic, 0..events, batch as u32, DATA);
    world.server.damaged_data = damaged.clone();
    (world, topic)
}

/// How data is asked for, and whether damage is met then.
fn modes() -> [(&'static str, DataMode, bool); 3] {
    let some = |info: &EventInfo<'_>| {
        let whole = DataView::whole(info.data_bytes_total());
        whole.range(5, 50).map_err(|error| error.to_string())
    };
    [
        ("all", DataMode::All, true),
        ("a part", DataMode::Select(Arc::new(some)), true),
        ("none", DataMode::None, false),
    ]
}

/// What a consumer gave: events in their order, and gaps.
#[derive(Debug, PartialEq)]
struct Given {
    events: Vec<usize>,
    gaps: Vec<Range<u64>>,
}

impl Given {
    /// What is right: each event that is whole, in order, and a gap for each other.
    fn expected(events: usize, damaged: &BTreeSet<u64>) -> Self {
        let whole = |event: &usize| !damaged.contains(&(*event as u64));
        Self {
            events: (0..events).filter(whole).collect(),
            gaps: damaged.iter().map(|one| *one..one + 1).collect(),
        }
    }
}

/// What `pull` gives, `None` once nothing comes any more. A pull may begin
/// reads, which the client does when it has its turn again.
fn pull_soon<T>(world: &mut World, mut pull: impl FnMut() -> Option<T>) -> Option<T> {
    (0..10).find_map(|_| {
        let pulled = pull();
        world.run_until(SECOND / 10, |_| false);
        pulled
    })
}

/// Takes all that comes. `pull` gives what is there; none if nothing is.
fn take_all(
    world: &mut World,
    consumer: &Consumer,
    pull: impl Fn(&Consumer) -> Vec<ConsumedEvent>,
) -> Given {
    let mut given = Given {
        events: Vec::new(),
        gaps: Vec::new(),
    };
    // A fault that multiplies events would do so for ever.
    while given.events.len() < 1000 {
        let came = pull_soon(world, || {
            let events = pull(consumer);
            let gaps = consumer.take_gaps();
            Some((events, gaps)).filter(|(events, gaps)| !events.is_empty() || !gaps.is_empty())
        });
        let Some((events, gaps)) = came else { break };
        given.events.extend(events.iter().map(number));
        for (_, gap) in gaps {
            assert_eq!(gap.reason, GapReason::Damaged);
            given.gaps.push(gap.first.0..gap.end.0);
        }
    }
    given
}

fn one(consumer: &Consumer) -> Vec<ConsumedEvent> {
    lately_away(consumer.pull_batch(1, Some(Duration::ZERO)))
}

fn seven(consumer: &Consumer) -> Vec<ConsumedEvent> {
    lately_away(consumer.pull_batch(7, Some(Duration::ZERO)))
}

/// No events yet, if the connection was lost and what there is may be on its way.
fn lately_away(pulled: Result<Vec<ConsumedEvent>, ClientError>) -> Vec<ConsumedEvent> {
    match pulled {
        Err(ClientError::Unreachable { .. }) => Vec::new(),
        pulled => pulled.unwrap(),
    }
}

#[test]
fn events_behind_damaged_ones_come_once_and_in_order() {
    for count in [1, 2, 4, 8, 14] {
        let damaged = damaged(count);
        for (mode, data, meets_damage) in modes() {
            for pull in [one, seven] {
                let (mut world, topic) = stored(3 * BATCH, BATCH, &damaged);
                let options = ConsumerOptions {
                    data: data.clone(),
                    ..ConsumerOptions::default()
                };
                let consumer = open(&mut world, &topic, options);
                let given = take_all(&mut world, &consumer, pull);
                let nothing = BTreeSet::new();
                let met = if meets_damage { &damaged } else { &nothing };
                let expected = Given::expected(3 * BATCH, met);
                assert_eq!(given, expected, "{count} damaged events, data: {mode}");
            }
        }
    }
}

#[test]
fn a_batch_whose_data_is_lost_costs_its_events_and_no_others() {
    let lost: BTreeSet<u64> = (40..80).collect();
    let (mut world, topic) = stored(120, 40, &lost);
    let consumer = open(&mut world, &topic, ConsumerOptions::default());
    let given = take_all(&mut world, &consumer, one);
    assert_eq!(given, Given::expected(120, &lost));
}

#[test]
fn a_member_of_a_group_gets_events_behind_damaged_ones_once() {
    for count in [1, 2, 4, 8, 14] {
        let damaged = damaged(count);
        let (mut world, topic) = stored(3 * BATCH, BATCH, &damaged);
        let options = ConsumerOptions {
            group: Some(GroupMember::default()),
            ..ConsumerOptions::default()
        };
        let consumer = open(&mut world, &topic, options);
        let groups = &mut world.server.topics.get_mut("events").unwrap().groups;
        groups.get_mut("reader").unwrap().assign(&[0], &[]);
        let given = take_all(&mut world, &consumer, one);
        assert_eq!(given, Given::expected(3 * BATCH, &damaged));
    }
}

#[test]
fn a_queue_gives_events_behind_damaged_ones_once_and_rejects_those() {
    for count in [1, 2, 4, 8, 14] {
        let damaged = damaged(count);
        for (mode, data, meets_damage) in modes() {
            let (mut world, topic) = stored(3 * BATCH, BATCH, &damaged);
            let options = QueueConsumerOptions {
                data,
                ..QueueConsumerOptions::default()
            };
            let pending = topic.begin_queue("work", options);
            let consumer = world.wait(pending).unwrap();
            let mut events = Vec::new();
            let pull = || consumer.pull(Some(Duration::ZERO)).unwrap();
            while let Some(event) = pull_soon(&mut world, pull) {
                assert_eq!(event.deliveries(), 1);
                events.push(number(&event));
                drop(event.acknowledge());
            }
            let nothing = BTreeSet::new();
            let met = if meets_damage { &damaged } else { &nothing };
            let expected = Given::expected(3 * BATCH, met);
            let what = format!("{count} damaged events, data: {mode}");
            assert_eq!(events, expected.events, "{what}");
            let queue = world.server.topics.get_mut("events").unwrap().queue("work");
            for (offset, fate) in (0..).map(|offset| (offset, queue.fate(offset))).take(60) {
                let expected = match met.contains(&offset) {
                    true => Fate::Dead,
                    false => Fate::Settled,
                };
                assert_eq!(fate, expected, "event {offset} of {what}");
            }
            let pending = consumer.begin_close();
            world.wait(pending).unwrap();
        }
    }
}

#[test]
fn a_lost_connection_amid_damage_doubles_nothing() {
    let damaged = damaged(8);
    for cut_at in 1..30 {
        let (mut world, topic) = stored(3 * BATCH, BATCH, &damaged);
        let consumer = open(&mut world, &topic, ConsumerOptions::default());
        let from = world.server.messages + cut_at;
        world.server.cut_before.insert(from);
        world.server.cut_behind.insert(from + 4);
        let given = take_all(&mut world, &consumer, one);
        let expected = Given::expected(3 * BATCH, &damaged);
        assert_eq!(given, expected, "cut at {cut_at}");
    }
}

#[cfg(feature = "testing")]
/// Reads three batches, with damage in the middle one.
fn read_around(count: usize) -> (Given, Given) {
    let damaged = damaged(count);
    let (mut world, topic) = stored(3 * BATCH, BATCH, &damaged);
    let consumer = open(&mut world, &topic, ConsumerOptions::default());
    let given = take_all(&mut world, &consumer, one);
    (given, Given::expected(3 * BATCH, &damaged))
}

#[cfg(feature = "testing")]
#[test]
fn a_planted_rest_that_is_read_twice_is_noticed() {
    plant(Some(Fault::TwiceBehindDamage));
    let outcomes = [1, 2, 4].map(read_around);
    plant(None);
    for (given, expected) in outcomes {
        assert_ne!(given, expected);
    }
    let (given, expected) = read_around(4);
    assert_eq!(given, expected);
}
