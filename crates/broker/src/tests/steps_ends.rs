//! How runs of steps end, message by message: after a power loss, when ranks close and others never
//! come, over starts of the server in between.

use super::harness::*;
use super::steps_harness::{Queue, Writer, expect, holds, plain, stream};
use crate::Fault;
use log::testing::Survival;
use std::time::Duration;
use wire::message::*;
use wire::step::PartData;
use wire::step::RecordKind::{Broken, Closed, Closing, Discarded, Opened, Step as Whole};
use wire::*;

const SECOND: Duration = Duration::from_secs(1);

/// A stream that promises `written`.
fn written(world: &mut World) -> TopicId {
    let link = world.connect();
    stream(world, link, r#"{"kind":"steps","durability":"written"}"#, 3)
}

/// The same rank on a new connection, as a client that reconnects.
fn attends_again(world: &mut World, topic: TopicId, writer: &mut Writer) {
    writer.link = world.connect();
    world.attend(topic, writer);
}

/// Why the run is over for a rank that attends, if it is.
fn end_of(world: &World, writer: &Writer) -> Option<String> {
    let answer = world.answer(writer.link, writer.attends)?;
    let head = &answer.unwrap().head;
    Some(RunEnded::from_bytes("ended", head).unwrap().reason)
}

#[test]
fn a_power_loss_that_may_have_taken_parts_breaks_the_run() {
    holds(
        |mut ground| {
            let mut world = ground.start();
            let topic = written(&mut world);
            let [mut a, mut b] = [0, 1].map(|rank| world.writer(topic, rank, 2));
            world.step(topic, &mut a, 0);
            world.step(topic, &mut b, 0);
            // Acknowledged; nobody can tell what of it the power loss took, or what behind it.
            world.step(topic, &mut a, 1);
            ground.power_loss(Survival::All);
            let mut world = ground.start();
            attends_again(&mut world, topic, &mut a);
            let Some(reason) = end_of(&world, &a) else {
                return Err("the run goes on without what was lost".to_owned());
            };
            expect(reason.contains("may be lost"), true)?;
            // The program begins another one.
            expect(world.writer(topic, 0, 2).run, Run(2))
        },
        Fault::LostParts,
    );
}

#[test]
fn a_power_loss_takes_nothing_of_a_stream_that_is_synced() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let topic = plain(&mut world);
    let [mut a, mut b] = [0, 1].map(|rank| world.writer(topic, rank, 2));
    world.step(topic, &mut a, 0);
    world.step(topic, &mut b, 0);
    world.step(topic, &mut a, 1);
    ground.power_loss(Survival::Nothing);
    let mut world = ground.start();
    attends_again(&mut world, topic, &mut a);
    attends_again(&mut world, topic, &mut b);
    assert_eq!(end_of(&world, &a), None);
    world.step(topic, &mut b, 1);
    let wanted = [(Opened, 1, 0), (Whole, 1, 0), (Whole, 1, 1)];
    assert_eq!(world.kinds(topic), wanted);
}

#[test]
fn readers_are_given_what_comes_in_place_of_records_that_were_lost() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let topic = written(&mut world);
    let mut a = world.writer(topic, 0, 1);
    world.step(topic, &mut a, 0);
    let mut reader = world.reader(topic, "r", 0, 1);
    assert_eq!(world.next_turn(topic, &mut reader), Some((Whole, 1, 0)));
    world.step(topic, &mut a, 1);
    world.step(topic, &mut a, 2);
    assert_eq!(world.next_turn(topic, &mut reader), Some((Whole, 1, 1)));
    ground.power_loss(Survival::Nothing);
    let mut world = ground.start();
    // Another program writes where records of the first one were.
    let mut a = world.writer(topic, 0, 1);
    world.step(topic, &mut a, 0);
    let mut reader = world.again(topic, &reader);
    let (kind, _, step) = world.next_turn(topic, &mut reader).unwrap();
    assert_eq!((kind, step), (Whole, 0));
}

#[test]
fn a_run_is_closed_when_all_have_closed_it() {
    let mut world = Ground::new().start();
    let topic = plain(&mut world);
    let [mut a, mut b] = [0, 1].map(|rank| world.writer(topic, rank, 2));
    for writer in [&mut a, &mut b] {
        world.step(topic, writer, 0);
    }
    let id = world.close_run(topic, &a, 1);
    world.answered::<Empty>(a.link, id).unwrap();
    // A start would know it too.
    assert_eq!(world.kinds(topic).last(), Some(&(Closing, 1, 1)));
    // Rank 0 opens the next run, and waits for this one to end.
    let (again, opens) = world.try_writer(topic, 0, 2, Queue::default());
    assert!(world.answer(again.link, opens).is_none());
    let id = world.close_run(topic, &b, 1);
    world.answered::<Empty>(b.link, id).unwrap();
    assert_eq!(
        world.kinds(topic),
        [
            (Opened, 1, 0),
            (Whole, 1, 0),
            (Closing, 1, 1),
            (Closed, 1, 1),
            (Opened, 2, 0)
        ]
    );
    let opened: RunOpened = world.answered(again.link, opens).unwrap();
    assert_eq!((opened.run, opened.before), (Run(2), Run(1)));
    // What is asked again is answered again.
    let id = world.close_run(topic, &b, 1);
    world.answered::<Empty>(b.link, id).unwrap();
    let ended: RunEnded = world.answered(b.link, b.attends).unwrap();
    assert_eq!(ended.reason, "");
}

#[test]
fn a_run_ends_when_others_never_come() {
    let mut world = Ground::new().start();
    let topic = plain(&mut world);
    let mut a = world.writer(topic, 0, 2);
    world.step(topic, &mut a, 0);
    // As long as a rank is there, the other one may come.
    world.pass(SECOND * 6);
    assert_eq!(end_of(&world, &a), None);
    let closing = world.close_run(topic, &a, 1);
    world.answered::<Empty>(a.link, closing).unwrap();
    world.pass(SECOND * 6);
    let records = world.records(topic);
    let last = records.last().unwrap();
    assert_eq!(last.kind, Broken);
    assert!(
        last.reason.contains("rank 1 has not opened"),
        "{}",
        last.reason
    );
    // The next program need not wait.
    let next = world.writer(topic, 0, 1);
    assert_eq!(next.run, Run(2));
}

#[test]
fn a_run_ends_that_was_closed_with_steps_that_nobody_wrote() {
    let mut world = Ground::new().start();
    let topic = plain(&mut world);
    let mut a = world.writer(topic, 0, 1);
    world.step(topic, &mut a, 0);
    let closing = world.close_run(topic, &a, 3);
    world.pass(SECOND * 6);
    assert_eq!(
        world.error(a.link, closing).unwrap().code,
        ErrorCode::RunEnded
    );
    assert_eq!(world.kinds(topic).last(), Some(&(Broken, 1, 1)));
}

#[test]
fn a_rank_that_has_closed_is_missed_by_nobody_after_a_start() {
    holds(
        |mut ground| {
            let mut world = ground.start();
            let topic = plain(&mut world);
            let [mut a, mut b] = [0, 1].map(|rank| world.writer(topic, rank, 2));
            world.step(topic, &mut a, 0);
            world.step(topic, &mut b, 0);
            let closing = world.close_run(topic, &a, 1);
            world.answered::<Empty>(a.link, closing).unwrap();
            ground.kill();
            let mut world = ground.start();
            attends_again(&mut world, topic, &mut b);
            world.pass(SECOND * 6);
            let closing = world.close_run(topic, &b, 1);
            let closed = world.answered::<Empty>(b.link, closing);
            expect(closed.map(|_| ()).map_err(|error| error.message), Ok(()))?;
            let kinds = world.kinds(topic);
            let wanted = vec![
                (Opened, 1, 0),
                (Whole, 1, 0),
                (Closing, 1, 1),
                (Closed, 1, 1),
            ];
            expect(kinds, wanted)
        },
        Fault::CloseUnrecorded,
    );
}

/// A rank writes its last step and closes, and its program begins anew: that waits for the next run. What it wrote
/// of this one counts, also when the server has read it again.
#[test]
fn parts_of_a_rank_that_has_closed_outlive_its_program() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let topic = plain(&mut world);
    let [mut a, mut b] = [0, 1].map(|rank| world.writer(topic, rank, 2));
    world.step(topic, &mut b, 0);
    let closed = world.close_run(topic, &b, 1);
    world.answered::<Empty>(b.link, closed).unwrap();
    let (next, opening) = world.try_writer(topic, 1, 2, Queue::default());
    assert!(world.answer(next.link, opening).is_none());
    ground.kill();
    let mut world = ground.start();
    attends_again(&mut world, topic, &mut a);
    world.step(topic, &mut a, 0);
    let closed = world.close_run(topic, &a, 1);
    world.answered::<Empty>(a.link, closed).unwrap();
    let ended = [
        (Opened, 1, 0),
        (Closing, 1, 0),
        (Whole, 1, 0),
        (Closed, 1, 1),
    ];
    assert_eq!(world.kinds(topic), ended);
}

#[test]
fn the_queue_of_a_run_outlives_the_server() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let topic = plain(&mut world);
    let queue = Queue {
        steps: 1,
        when_full: WhenFull::Discard,
        ..Queue::default()
    };
    let mut a = world.writer_with(topic, 0, 1, queue);
    world.step(topic, &mut a, 0);
    ground.kill();
    let mut world = ground.start();
    attends_again(&mut world, topic, &mut a);
    // It reads nothing, so the queue is full of the step that is there.
    world.reader(topic, "r", 0, 1);
    let admit = world.admit(topic, &a, 1);
    let admitted: StepAdmitted = world.answered(a.link, admit).unwrap();
    assert!(admitted.discarded);
    world.part_discarded(topic, &mut a, 1);
    assert_eq!(world.kinds(topic).last(), Some(&(Discarded, 1, 1)));
}

impl World {
    /// A part that says that its step is dropped.
    fn part_discarded(&mut self, topic: TopicId, writer: &mut Writer, step: u64) {
        let id = self.part(topic, writer, step, |part| {
            part.data = PartData::Dropped;
            part.variables.clear();
        });
        self.answered::<Produced>(writer.link, id).unwrap();
    }
}
