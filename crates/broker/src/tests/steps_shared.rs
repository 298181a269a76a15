//! Steps that groups of readers share, and groups that lose or are left by a rank.

use super::harness::*;
use super::steps_harness::{Queue, Reader, plain};
use std::time::Duration;
use wire::message::Distribution::{self, OnDemand, RoundRobin};
use wire::message::*;
use wire::step::RecordKind::{Closed, Step as Whole};
use wire::*;

const SECOND: Duration = Duration::from_secs(1);

/// A stream with so many steps of a run that is open.
fn steps(world: &mut World, count: u64) -> (TopicId, super::steps_harness::Writer) {
    let topic = plain(world);
    let mut writer = world.writer(topic, 0, 1);
    for step in 0..count {
        world.step(topic, &mut writer, step);
    }
    (topic, writer)
}

fn sharers<const N: usize>(world: &mut World, topic: TopicId, how: Distribution) -> [Reader; N] {
    std::array::from_fn(|index| world.sharer(topic, &format!("g{index}"), (0, 1), how))
}

/// The step of a reader's turn, which it holds.
fn hold(world: &mut World, topic: TopicId, reader: &mut Reader) -> Option<u64> {
    let id = world.ask(topic, reader);
    let (given, tables) = world.turn_given(reader, id)?;
    reader.turns.push(given.position);
    Some(tables.last().unwrap().step.0)
}

#[test]
fn a_step_on_demand_is_of_the_group_that_asks() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let (topic, writer) = steps(&mut world, 4);
    let [mut slow, mut fast] = sharers(&mut world, topic, OnDemand);
    assert_eq!(hold(&mut world, topic, &mut slow), Some(0));
    for step in 1..4 {
        assert_eq!(world.next_turn(topic, &mut fast), Some((Whole, 1, step)));
    }
    world.close_run(topic, &writer, 4);
    // Step 0 may have to be given to somebody else: nobody is at the end yet.
    let end = world.ask(topic, &fast);
    assert!(world.answer(fast.link, end).is_none());
    assert_eq!(world.stands(topic, "r"), Some(1));
    world.release_turn(topic, &mut slow);
    let (head, tables) = world.turn_given(&fast, end).unwrap();
    assert_eq!((head.turn, tables[0].kind), (4, Closed));
    world.release_turn(topic, &mut fast);
    assert_eq!(world.next_turn(topic, &mut slow), Some((Closed, 1, 4)));
    assert_eq!(world.stands(topic, "r"), Some(6));
}

#[test]
fn steps_in_turns_are_each_group_s_in_order() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let (topic, writer) = steps(&mut world, 7);
    let [mut a, mut b, mut c] = sharers(&mut world, topic, RoundRobin);
    // Who asks first changes nothing.
    for step in [1, 4] {
        assert_eq!(world.next_turn(topic, &mut b), Some((Whole, 1, step)));
    }
    for step in [0, 3, 6] {
        assert_eq!(world.next_turn(topic, &mut a), Some((Whole, 1, step)));
    }
    world.close_run(topic, &writer, 7);
    assert_eq!(world.next_turn(topic, &mut a), None);
    for step in [2, 5] {
        assert_eq!(world.next_turn(topic, &mut c), Some((Whole, 1, step)));
    }
    for reader in [&mut a, &mut b, &mut c] {
        assert!(
            world
                .next_turn(topic, reader)
                .is_none_or(|turn| turn.0 == Closed)
        );
    }
    assert_eq!(world.stands(topic, "r"), Some(9));
}

#[test]
fn steps_of_a_group_that_is_gone_are_given_to_others() {
    for how in [OnDemand, RoundRobin] {
        let mut ground = Ground::new();
        let mut world = ground.start();
        let (topic, writer) = steps(&mut world, 4);
        let [mut lost, mut other] = sharers(&mut world, topic, how);
        assert_eq!(hold(&mut world, topic, &mut lost), Some(0));
        world.disconnect(lost.link);
        world.pass(6 * SECOND);
        let mut had = Vec::new();
        while let Some((Whole, _, step)) = world.next_turn(topic, &mut other) {
            had.push(step);
        }
        had.sort_unstable();
        assert_eq!(had, [0, 1, 2, 3], "{how:?}");
        world.close_run(topic, &writer, 4);
        assert_eq!(world.next_turn(topic, &mut other), Some((Closed, 1, 4)));
        assert_eq!(world.stands(topic, "r"), Some(6));
    }
}

#[test]
fn all_ranks_of_a_group_that_shares_have_the_same_steps() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let (topic, _writer) = steps(&mut world, 4);
    let mut a = [0, 1].map(|rank| world.sharer(topic, "a", (rank, 2), OnDemand));
    let mut b = world.sharer(topic, "b", (0, 1), OnDemand);
    assert_eq!(world.next_turn(topic, &mut a[0]), Some((Whole, 1, 0)));
    assert_eq!(world.next_turn(topic, &mut b), Some((Whole, 1, 1)));
    assert_eq!(world.next_turn(topic, &mut a[0]), Some((Whole, 1, 2)));
    assert_eq!(
        world.stands(topic, "r"),
        Some(1),
        "rank 1 has not had step 0"
    );
    assert_eq!(world.next_turn(topic, &mut a[1]), Some((Whole, 1, 0)));
    assert_eq!(world.stands(topic, "r"), Some(3));
    assert_eq!(world.next_turn(topic, &mut a[1]), Some((Whole, 1, 2)));
}

#[test]
fn groups_that_share_go_on_over_a_restart_of_the_server() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let (topic, _writer) = steps(&mut world, 6);
    let [mut slow, mut fast] = sharers(&mut world, topic, OnDemand);
    assert_eq!(hold(&mut world, topic, &mut slow), Some(0));
    for step in 1..3 {
        assert_eq!(world.next_turn(topic, &mut fast), Some((Whole, 1, step)));
    }
    ground.kill();
    let mut world = ground.start();
    // It holds step 0 yet; the other one has had 1 and 2.
    slow.turn += 1;
    let (mut slow, id) = world.try_again(topic, &slow, 0);
    world.attached(topic, &mut slow, id);
    let mut fast = world.again(topic, &fast);
    assert_eq!(world.next_turn(topic, &mut fast), Some((Whole, 1, 3)));
    assert_eq!(world.stands(topic, "r"), Some(1));
    assert_eq!(world.next_turn(topic, &mut slow), Some((Whole, 1, 4)));
    assert_eq!(world.stands(topic, "r"), Some(6));
}

/// The others may be at the end before it has come back.
#[test]
fn a_group_that_comes_back_late_is_told_of_the_end_that_the_others_had() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let (topic, writer) = steps(&mut world, 3);
    let [mut slow, mut fast, idle] = sharers(&mut world, topic, OnDemand);
    assert_eq!(hold(&mut world, topic, &mut slow), Some(0));
    for step in 1..3 {
        assert_eq!(world.next_turn(topic, &mut fast), Some((Whole, 1, step)));
    }
    world.close_run(topic, &writer, 3);
    ground.kill();
    let mut world = ground.start();
    let mut fast = world.again(topic, &fast);
    // Nobody else is there: it is given what they may have held.
    assert_eq!(world.next_turn(topic, &mut fast), Some((Whole, 1, 0)));
    assert_eq!(world.next_turn(topic, &mut fast), Some((Closed, 1, 3)));
    slow.turn += 1;
    for late in [&slow, &idle] {
        let mut late = world.again(topic, late);
        assert_eq!(world.next_turn(topic, &mut late), Some((Closed, 1, 3)));
        assert_eq!(world.next_turn(topic, &mut late), None);
    }
}

/// It may have come when the run was over already.
#[test]
fn a_group_that_waits_for_the_next_run_is_not_told_of_the_last_one_s_end() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let (topic, writer) = steps(&mut world, 1);
    let [mut reads] = sharers(&mut world, topic, OnDemand);
    assert_eq!(world.next_turn(topic, &mut reads), Some((Whole, 1, 0)));
    world.close_run(topic, &writer, 1);
    assert_eq!(world.next_turn(topic, &mut reads), Some((Closed, 1, 1)));
    assert_eq!(world.next_turn(topic, &mut reads), None);
    let waits = world.sharer(topic, "waits", (0, 1), OnDemand);
    ground.kill();
    let mut world = ground.start();
    let mut waits = world.again(topic, &waits);
    assert_eq!(world.next_turn(topic, &mut waits), None);
}

/// The same where the group was away for too long, and the server was not started anew.
#[test]
fn a_group_that_was_away_for_long_is_not_told_of_ends_before_it_joined() {
    let mut world = Ground::new().start();
    let (topic, writer) = steps(&mut world, 1);
    let [mut reads] = sharers(&mut world, topic, OnDemand);
    assert_eq!(world.next_turn(topic, &mut reads), Some((Whole, 1, 0)));
    world.close_run(topic, &writer, 1);
    assert_eq!(world.next_turn(topic, &mut reads), Some((Closed, 1, 1)));
    let waits = world.sharer(topic, "waits", (0, 1), OnDemand);
    world.disconnect(waits.link);
    world.pass(10 * SECOND);
    let mut waits = world.again(topic, &waits);
    assert_eq!(world.next_turn(topic, &mut waits), None);
}

#[test]
fn a_queue_counts_what_the_groups_of_a_share_have_not_released_together() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let topic = plain(&mut world);
    let queue = Queue {
        steps: 2,
        ..Queue::default()
    };
    let mut writer = world.writer_with(topic, 0, 1, queue);
    let [mut slow, mut fast] = sharers(&mut world, topic, OnDemand);
    world.step(topic, &mut writer, 0);
    world.step(topic, &mut writer, 1);
    assert_eq!(hold(&mut world, topic, &mut slow), Some(0));
    let id = world.admit(topic, &writer, 2);
    assert!(world.answer(writer.link, id).is_none());
    assert_eq!(world.next_turn(topic, &mut fast), Some((Whole, 1, 1)));
    assert!(world.answer(writer.link, id).is_some());
}

#[test]
fn who_shares_does_so_in_one_way() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let (topic, _writer) = steps(&mut world, 2);
    let shared = world.sharer(topic, "a", (0, 1), OnDemand);
    let (alone, id) = world.try_reader(topic, "r", 0, 1, StepStart::Cursor, false);
    let refused = world.error(alone.link, id).unwrap();
    assert_eq!(refused.code, ErrorCode::InvalidConsumer);
    assert!(
        refused.message.contains("another way"),
        "{}",
        refused.message
    );
    let mut otherwise = Reader {
        link: shared.link,
        who: shared.who.clone(),
        turns: Vec::new(),
        distribution: RoundRobin,
        ..shared
    };
    otherwise.who.group = "b".into();
    (otherwise.life, otherwise.turn) = (MemberId(0), 0);
    let (refused, id) = world.try_again(topic, &otherwise, 0);
    let refused = world.error(refused.link, id).unwrap();
    assert_eq!(refused.code, ErrorCode::InvalidConsumer);
}

/// Others have shared in another way while it was away, and have gone.
#[test]
fn a_group_whose_share_is_no_more_is_answered() {
    let mut world = Ground::new().start();
    let (topic, _writer) = steps(&mut world, 1);
    let shared = world.sharer(topic, "a", (0, 1), OnDemand);
    world.disconnect(shared.link);
    let other = world.sharer(topic, "b", (0, 1), RoundRobin);
    world.leave_readers(topic, &other);
    let back = Reader {
        link: world.connect(),
        ..shared
    };
    world.leave_readers(topic, &back);
}

#[test]
fn a_group_that_loses_a_rank_is_no_more_and_the_others_hear_of_it() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let (topic, _writer) = steps(&mut world, 2);
    let mut ranks = [0, 1].map(|rank| world.reader(topic, "r", rank, 2));
    for reader in &mut ranks {
        assert_eq!(world.next_turn(topic, reader), Some((Whole, 1, 0)));
    }
    let [r0, r1] = ranks;
    let mut r0 = r0;
    assert_eq!(world.next_turn(topic, &mut r0), Some((Whole, 1, 1)));
    let id = world.ask(topic, &r0);
    world.disconnect(r1.link);
    // What it waits for has an end of its own; the group has it before.
    let asked = world.request_within(
        r0.link,
        Method::NextStep,
        topic,
        &NextStep {
            who: r0.who.clone(),
            turn: r0.turn,
            released: 0,
        },
        &[],
        60_000,
    );
    world.pass(6 * SECOND);
    let error = world.error(r0.link, asked).unwrap();
    assert_eq!(error.code, ErrorCode::GroupIncomplete);
    assert!(error.message.contains("rank 1 of 2"), "{}", error.message);
    assert!(world.error(r0.link, id).is_some());
    // Its program begins anew, from the cursor.
    let mut anew = [0, 1].map(|rank| world.reader(topic, "r", rank, 2));
    for reader in &mut anew {
        assert_eq!(world.next_turn(topic, reader), Some((Whole, 1, 1)));
    }
}

#[test]
fn a_rank_that_has_left_holds_nobody() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let (topic, _writer) = steps(&mut world, 3);
    let mut ranks = [0, 1].map(|rank| world.reader(topic, "r", rank, 2));
    for reader in &mut ranks {
        assert_eq!(world.next_turn(topic, reader), Some((Whole, 1, 0)));
    }
    world.leave_readers(topic, &ranks[0]);
    world.disconnect(ranks[0].link);
    world.pass(6 * SECOND);
    let [_, mut r1] = ranks;
    for step in 1..3 {
        assert_eq!(world.next_turn(topic, &mut r1), Some((Whole, 1, step)));
        assert_eq!(world.stands(topic, "r"), Some(step + 2));
    }
    // When all have left, the next program goes on at the cursor at once, be it of another size.
    world.leave_readers(topic, &r1);
    let reader = world.reader(topic, "r", 0, 1);
    assert_eq!(reader.turn, 1);
}

/// Which step a turn of the newest was given is not to be guessed from what lies between others.
#[test]
fn ranks_of_the_newest_have_the_same_steps_over_a_restart_of_the_server() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let (topic, mut writer) = steps(&mut world, 1);
    let mut ranks =
        [0, 1].map(|rank| world.reader_at(topic, "r", (rank, 2), StepStart::Oldest, true));
    for reader in &mut ranks {
        assert_eq!(world.next_turn(topic, reader), Some((Whole, 1, 0)));
    }
    let [mut ahead, behind] = ranks;
    for step in 1..3 {
        world.step(topic, &mut writer, step);
    }
    assert_eq!(world.next_turn(topic, &mut ahead), Some((Whole, 1, 2)));
    for step in 3..5 {
        world.step(topic, &mut writer, step);
    }
    assert_eq!(world.next_turn(topic, &mut ahead), Some((Whole, 1, 4)));
    ground.kill();
    let mut world = ground.start();
    let mut behind = world.again(topic, &behind);
    let mut ahead = world.again(topic, &ahead);
    assert_eq!(world.next_turn(topic, &mut behind), Some((Whole, 1, 2)));
    assert_eq!(world.next_turn(topic, &mut behind), Some((Whole, 1, 4)));
    assert_eq!(world.next_turn(topic, &mut ahead), None);
}
