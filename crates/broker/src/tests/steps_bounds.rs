//! What is bounded of streams of steps, and what is said at the bound, message by message: reasons
//! that clients make long, records that find no space, parts of a life of a partition that has ended.

use super::harness::*;
use super::steps_harness::{Writer, expect, holds, plain, stream};
use crate::Fault;
use bytes::Bytes;
use log::testing::Survival;
use std::time::Duration;
use wire::message::*;
use wire::step::RecordKind::{Broken, Discarded, Step as Whole};
use wire::step::{Blocks, Part, ShapeKind, Variable};
use wire::*;

const SECOND: Duration = Duration::from_secs(1);

/// A stream whose records are on the disk, and its parts in memory.
fn parts_in_memory(world: &mut World, definition: &str) -> TopicId {
    let link = world.connect();
    let kinds = ["disk", "memory", "memory"];
    world.create(link, "s", definition, &kinds).unwrap().topic
}

/// A variable with one value.
fn value(name: &str, dtype: &str) -> Variable {
    Variable {
        name: name.into(),
        kind: ShapeKind::LocalValue,
        dtype: dtype.into(),
        item_bytes: 0,
        joined: 0,
        shape: Vec::new(),
        blocks: Blocks {
            values: vec![Bytes::new()],
            ..Blocks::none()
        },
    }
}

/// Why the run is over for a rank that attends, if it is.
fn end_of(world: &World, writer: &Writer) -> Option<String> {
    let answer = world.answer(writer.link, writer.attends)?;
    let head = &answer.unwrap().head;
    Some(RunEnded::from_bytes("ended", head).unwrap().reason)
}

#[test]
fn a_type_is_not_of_any_length() {
    let mut world = Ground::new().start();
    let topic = plain(&mut world);
    let mut a = world.writer(topic, 0, 1);
    let long = "x".repeat(wire::step::DTYPE_BYTES_MAX + 1);
    let id = world.part(topic, &mut a, 0, |part| {
        part.variables = vec![value("v", &long)];
    });
    let error = world.error(a.link, id).unwrap();
    assert_eq!(error.code, ErrorCode::InvalidEvent);
    assert!(error.message.contains("type"), "{}", error.message);
}

#[test]
fn a_reason_is_short_whatever_ranks_do_not_agree_on() {
    let mut world = Ground::new().start();
    let topic = plain(&mut world);
    let [mut a, mut b] = [0, 1].map(|rank| world.writer(topic, rank, 2));
    // Quoted, a character of this name takes five.
    let name = "\u{1}".repeat(1024);
    let mut put = |writer: &mut Writer, dtype: &str| {
        let id = world.part(topic, writer, 0, |part: &mut Part| {
            part.variables = vec![value(&name, dtype)];
        });
        world.answered::<Produced>(writer.link, id).unwrap();
    };
    put(&mut a, &"a".repeat(60_000));
    put(&mut b, &"b".repeat(60_000));
    let waits = world.await_step(topic, &a, 0, 2_000);
    let decided: StepDecided = world.answered(a.link, waits).unwrap();
    assert!(decided.discarded.contains("variable"), "{decided:?}");
    assert!(decided.discarded.len() < 5_000);
    let last = world.records(topic).pop().unwrap();
    assert_eq!(last.kind, Discarded);
    assert_eq!(last.reason, decided.discarded);
}

#[test]
fn retention_takes_no_part_of_a_later_life_of_its_partition() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let topic = parts_in_memory(
        &mut world,
        r#"{"kind":"steps","durability":"memory","retention":{"count":3}}"#,
    );
    let mut a = world.writer(topic, 0, 1);
    for step in 0..6 {
        world.step(topic, &mut a, step);
    }
    ground.kill();
    let mut world = ground.start();
    // The parts are gone, and the next ones stand where those were.
    let mut a = world.writer(topic, 0, 1);
    assert_eq!(a.run, Run(2));
    for step in 0..3 {
        world.step(topic, &mut a, step);
    }
    let kept = world.records(topic);
    let kept: Vec<_> = kept.iter().filter(|one| one.run == Run(2)).collect();
    let steps = kept.iter().filter(|one| one.kind == Whole);
    assert_eq!(steps.count(), 3);
    let link = world.connect();
    let description = world.describe(link, "s").unwrap();
    let parts = &description.partitions[1];
    for table in kept.iter().filter(|one| one.kind == Whole) {
        let place = &table.parts[0];
        assert_eq!(place.incarnation, parts.incarnation);
        assert!(
            place.offset >= parts.first,
            "the part of step {} at {} is gone, {} is the first",
            table.step,
            place.offset,
            parts.first
        );
    }
}

#[test]
fn who_waits_for_a_record_is_told_that_the_disk_is_full() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let topic = parts_in_memory(&mut world, r#"{"kind":"steps","durability":"memory"}"#);
    let mut a = world.writer(topic, 0, 1);
    ground.disk.set_space(Some(0));
    // Some records find space that the file has already.
    let waiting = (0..1_000).find_map(|step| {
        world.step(topic, &mut a, step);
        let waits = world.await_step(topic, &a, step, 2_000);
        let answer = world.answer(a.link, waits);
        answer.is_none().then_some((step, waits))
    });
    let (step, waits) = waiting.unwrap();
    let closes = world.close_run(topic, &a, step + 1);
    world.pass(SECOND * 3);
    let error = world.error(a.link, waits).unwrap();
    assert_eq!(error.code, ErrorCode::DeadlinePassed);
    for said in [format!("record of step {step}").as_str(), "no space"] {
        assert!(error.message.contains(said), "{}", error.message);
    }
    // Nothing is lost.
    ground.disk.set_space(None);
    world.pass(SECOND * 3);
    world.answered::<Empty>(a.link, closes).unwrap();
    let waits = world.await_step(topic, &a, step, 2_000);
    world.answered::<StepDecided>(a.link, waits).unwrap();
}

#[test]
fn steps_whose_records_find_no_space_have_a_bound() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let topic = parts_in_memory(&mut world, r#"{"kind":"steps","durability":"memory"}"#);
    let mut a = world.writer(topic, 0, 1);
    ground.disk.set_space(Some(0));
    let mut pushed = 0;
    while pushed < 1_000 && end_of(&world, &a).is_none() {
        world.step(topic, &mut a, pushed);
        pushed += 1;
    }
    let reason = end_of(&world, &a).expect("nothing bounds what waits");
    assert!(reason.contains("can't be written"), "{reason}");
    // Nor does another run begin before there is space.
    let (next, opens) = world.try_writer(topic, 0, 1, Default::default());
    let error = world.error(next.link, opens).unwrap();
    assert_eq!(error.code, ErrorCode::LimitExceeded);
    assert!(error.message.contains("no space"), "{}", error.message);
    ground.disk.set_space(None);
    world.pass(SECOND * 3);
    // What was complete in time is there, each step once and in order, and then the end.
    let kinds = world.kinds(topic);
    let (end, steps) = kinds.split_last().unwrap();
    let whole = steps.iter().skip(1).zip(0..);
    whole.for_each(|(one, step)| assert_eq!(*one, (Whole, 1, step)));
    assert_eq!(*end, (Broken, 1, steps.len() as u64 - 1));
    assert_eq!(world.writer(topic, 0, 1).run, Run(2));
}

#[test]
fn a_rank_is_in_no_run_that_was_begun_without_it() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = stream(
        &mut world,
        link,
        r#"{"kind":"steps","durability":"written"}"#,
        3,
    );
    let [mut a, mut b] = [0, 1].map(|rank| world.writer(topic, rank, 2));
    for step in 0..3 {
        world.step(topic, &mut a, step);
        world.step(topic, &mut b, step);
    }
    // Of the run nothing is left, but ranks that go on with it.
    ground.power_loss(Survival::Nothing);
    let mut world = ground.start();
    let again = world.writer(topic, 0, 2);
    assert_eq!(again.run, b.run);
    b.link = world.connect();
    world.attend(topic, &mut b);
    let reason = end_of(&world, &b).expect("it is taken for a rank of the new run");
    assert!(reason.contains("lost"), "{reason}");
    // It may open the new one.
    let b = world.writer(topic, 1, 2);
    assert_eq!((b.run, b.next), (again.run, Step(0)));
    assert_eq!(end_of(&world, &again), None);
}

/// Many steps are written on disks with short segments, the first one pinned, and the server is
/// killed. A late reader is given it, and its part is there.
fn pinned_step_outlives(mut ground: Ground) -> Result<(), String> {
    let mut world = ground.start();
    let link = world.connect();
    let short = PartitionStorage {
        kind: "disk".into(),
        config: r#"{"segment_bytes":1024}"#.into(),
    };
    let create = CreateTopic {
        name: "s".into(),
        definition: r#"{"kind":"steps","pins":true,"retention":{"count":3}}"#.into(),
        partitions: vec![short; 4],
    };
    let created: TopicDescription = world
        .call(link, Method::CreateTopic, TopicId(0), &create)
        .unwrap();
    let topic = created.topic;
    let mut a = world.writer(topic, 0, 1);
    for step in 0..80 {
        // Parts that are of no use follow it in its partition.
        let is_discarded = (1..30).contains(&step);
        let index = if step < 30 { 2 } else { 3 };
        if step == 30 {
            // Each partition has sequences of its own.
            a.sequence = 0;
        }
        let id = world.part_in(PartitionIndex(index), topic, &mut a, step, |part| {
            if is_discarded {
                part.data = wire::step::PartData::Dropped;
                part.variables.clear();
            }
        });
        world.answered::<Produced>(a.link, id).unwrap();
        world.pass(SECOND / 10);
    }
    ground.kill();
    let mut world = ground.start();
    let reader = world.reader_at(topic, "late", (0, 1), StepStart::Oldest, false);
    let id = world.ask(topic, &reader);
    world.pass(SECOND * 3);
    let (given, tables) = world
        .turn_given(&reader, id)
        .ok_or("nothing is given".to_owned())?;
    let table = tables.last().unwrap();
    expect((table.step, given.pinned, given.lost), (Step(0), true, 0))?;
    let link = world.connect();
    let description = world.describe(link, "s").unwrap();
    // Its record itself is gone.
    assert!(description.partitions[0].first > Offset(10));
    let first = description.partitions[2].first;
    expect(table.parts[0].offset >= first, true)
}

/// Retention needs no space for it, which a full disk does not have.
#[test]
fn a_pinned_record_is_copied_as_soon_as_it_is_there() {
    let mut world = Ground::new().start();
    let link = world.connect();
    let topic = stream(&mut world, link, r#"{"kind":"steps","pins":true}"#, 4);
    let mut a = world.writer(topic, 0, 1);
    world.part_in(PartitionIndex(2), topic, &mut a, 0, |_| {});
    world.pass(SECOND);
    let partitions = world.describe(link, "s").unwrap().partitions;
    let committed = partitions.iter().map(|one| one.watermarks.committed);
    assert_eq!(committed.collect::<Vec<_>>()[1..3], [Offset(1), Offset(1)]);
}

/// The cursor that a release moves is refused on a full disk. Whoever releases again, or leaves,
/// moves it, or is told.
#[test]
fn a_cursor_that_was_refused_is_moved_by_the_next_release() {
    let mut ground = Ground::new();
    ground.limits.internal_bytes_max = 16 * 1024;
    let mut world = ground.start();
    let link = world.connect();
    let created = world.create(link, "s", r#"{"kind":"steps"}"#, &["memory"; 3]);
    let topic = created.unwrap().topic;
    let mut a = world.writer(topic, 0, 1);
    // Its cursor's record is longer than those that fill what is left of the disk.
    let name = "r".repeat(200);
    let mut reader = world.reader(topic, &name, 0, 1);
    world.step(topic, &mut a, 0);
    let id = world.ask(topic, &reader);
    assert!(world.turn_given(&reader, id).is_some());
    ground.disk.set_space(Some(0));
    let link = world.connect();
    let is_full = |world: &mut World| {
        let moved = world.move_cursor(link, topic, CursorMove::Seek, at(1, 0));
        let error = world.error(link, moved);
        error
            .inspect(|error| assert_eq!(error.code, ErrorCode::StorageFull))
            .is_some()
    };
    assert!(
        (0..10_000).any(|_| is_full(&mut world)),
        "the disk is not full"
    );
    // Who asks for the next step waits for that alone.
    reader.turn = 2;
    let waiting = world.ask_and_release(topic, &reader, 1);
    assert_eq!(world.error(reader.link, waiting), None);
    assert_eq!(world.stands(topic, &name), None);
    for _ in 0..2 {
        reader.turn = 1;
        let released = world.release_turn_unheard(topic, &mut reader);
        let error = world.error(reader.link, released).unwrap();
        assert_eq!(error.code, ErrorCode::StorageFull);
    }
    ground.disk.set_space(None);
    // Clients try again by themselves.
    let moved = (0..5).any(|_| {
        world.pass(SECOND);
        reader.turn = 1;
        let released = world.release_turn_unheard(topic, &mut reader);
        world.error(reader.link, released).is_none()
    });
    assert!(moved);
    assert_eq!(world.stands(topic, &name), Some(2));
}

/// Who has moved it by hand, meant it.
#[test]
fn a_cursor_that_was_sought_back_stays_there_when_readers_leave() {
    let mut world = Ground::new().start();
    let link = world.connect();
    let topic = stream(&mut world, link, r#"{"kind":"steps"}"#, 3);
    let mut a = world.writer(topic, 0, 1);
    let mut reader = world.reader(topic, "c", 0, 1);
    world.step(topic, &mut a, 0);
    assert_eq!(world.next_turn(topic, &mut reader), Some((Whole, 1, 0)));
    assert_eq!(world.stands(topic, "c"), Some(2));
    let moved = world.move_cursor(link, topic, CursorMove::Seek, at(1, 0));
    assert_eq!(world.error(link, moved), None);
    world.leave_readers(topic, &reader);
    assert_eq!(world.stands(topic, "c"), Some(0));
}

/// A group that waits for its first step goes on from where it began, whatever has been committed
/// before it is back.
#[test]
fn a_group_without_a_turn_goes_on_where_it_began() {
    for start in [StepStart::Next, StepStart::OpenRun, StepStart::Newest] {
        let mut ground = Ground::new();
        let mut world = ground.start();
        let link = world.connect();
        let topic = stream(&mut world, link, r#"{"kind":"steps"}"#, 3);
        let mut a = world.writer(topic, 0, 1);
        let reader = world.reader_at(topic, "r", (0, 1), start, false);
        ground.kill();
        let mut world = ground.start();
        a.link = world.connect();
        world.attend(topic, &mut a);
        for step in 0..2 {
            world.step(topic, &mut a, step);
        }
        let mut reader = world.again(topic, &reader);
        assert_eq!(world.next_turn(topic, &mut reader), Some((Whole, 1, 0)));
    }
}

#[test]
fn a_pinned_step_outlives_retention_and_a_kill() {
    for fault in [Fault::PinsForgotten, Fault::PinnedParts, Fault::PinUncopied] {
        holds(pinned_step_outlives, fault);
    }
}
