//! Ranks that read steps, and a server that is restarted.

use super::harness::*;
use super::steps_harness::plain;
use wire::step::RecordKind::Step as Whole;
use wire::*;

#[test]
fn ranks_that_read_go_on_over_a_restart_of_the_server() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let topic = plain(&mut world);
    let mut a = world.writer(topic, 0, 1);
    let [mut r0, r1] = [0, 1].map(|rank| world.reader(topic, "r", rank, 2));
    for step in 0..4 {
        world.step(topic, &mut a, step);
    }
    for step in 0..2 {
        assert_eq!(world.next_turn(topic, &mut r0), Some((Whole, 1, step)));
    }
    ground.kill();
    let mut world = ground.start();
    // Rank 0 is two turns ahead, and comes back first.
    let mut r0 = world.again(topic, &r0);
    let early = world.ask(topic, &r0);
    assert!(
        world.answer(r0.link, early).is_none(),
        "rank 1 may know of turns"
    );
    let mut r1 = world.again(topic, &r1);
    for step in 0..2 {
        assert_eq!(world.next_turn(topic, &mut r1), Some((Whole, 1, step)));
    }
    assert_eq!(world.next_turn(topic, &mut r0), Some((Whole, 1, 2)));
    assert_eq!(world.next_turn(topic, &mut r1), Some((Whole, 1, 2)));
}

/// The server and a rank are killed together: what that rank had not released is not passed over because the other one had.
#[test]
fn a_rank_that_comes_anew_after_a_restart_has_all_from_the_cursor_on() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let topic = plain(&mut world);
    let mut a = world.writer(topic, 0, 1);
    let [mut r0, mut r1] = [0, 1].map(|rank| world.reader(topic, "r", rank, 2));
    for step in 0..4 {
        world.step(topic, &mut a, step);
    }
    assert_eq!(world.next_turn(topic, &mut r0), Some((Whole, 1, 0)));
    assert_eq!(world.next_turn(topic, &mut r1), Some((Whole, 1, 0)));
    assert_eq!(world.next_turn(topic, &mut r0), Some((Whole, 1, 1)));
    ground.kill();
    let mut world = ground.start();
    let r0 = world.again(topic, &r0);
    let mut anew = [1, 0].map(|rank| world.reader(topic, "r", rank, 2));
    let id = world.ask(topic, &r0);
    assert_eq!(
        world.error(r0.link, id).unwrap().code,
        ErrorCode::MemberFenced
    );
    for step in 1..4 {
        for reader in &mut anew {
            assert_eq!(world.next_turn(topic, reader), Some((Whole, 1, step)));
        }
    }
}
