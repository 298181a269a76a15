//! Streams of steps, message by message: what is seen of a step, when, by whom, and what of it
//! outlives whom. Each promise has a fault that is planted against it.

use super::harness::*;
use super::steps_harness::*;
use crate::Fault;
use bytes::Bytes;
use std::time::Duration;
use wire::message::*;
use wire::step::*;
use wire::*;

const SECOND: Duration = Duration::from_secs(1);

use RecordKind::{Broken, Closed, Discarded, Opened, Step as Whole};

#[test]
fn a_step_is_there_when_all_ranks_have_written_it() {
    holds(
        |mut ground| {
            let mut world = ground.start();
            let topic = plain(&mut world);
            let [mut a, mut b] = [0, 1].map(|rank| world.writer(topic, rank, 2));
            world.step(topic, &mut a, 0);
            expect(world.kinds(topic), vec![(Opened, 1, 0)])?;
            world.step(topic, &mut b, 0);
            expect(world.kinds(topic), vec![(Opened, 1, 0), (Whole, 1, 0)])?;
            // A rank may be ahead; steps come in their order.
            world.step(topic, &mut b, 1);
            world.step(topic, &mut b, 2);
            world.step(topic, &mut a, 1);
            world.step(topic, &mut a, 2);
            let records = world.records(topic);
            expect(records.len(), 4)?;
            expect(
                who(&records[3]),
                vec!["1:0:2:1".to_owned(), "1:1:2:1".to_owned()],
            )?;
            expect(records[3].parts.len(), 2)
        },
        Fault::StepsShort,
    );
}

#[test]
fn a_record_is_behind_parts_that_are_as_durable_as_the_topic_promises() {
    holds(
        |mut ground| {
            let mut world = ground.start();
            let topic = plain(&mut world);
            let mut a = world.writer(topic, 0, 1);
            world.hold_disk = true;
            world.part(topic, &mut a, 0, |_| {});
            // It is written, but not synced.
            world.release_all_but_syncs();
            world.await_step(topic, &a, 0, 0);
            world.release_all_but_syncs();
            // The part is appended, and its sync has not come: no record is on its way.
            let described = world.describe(a.link, "s").unwrap();
            expect(described.partitions[1].watermarks.end, Offset(1))?;
            expect(described.partitions[0].watermarks.end, Offset(1))?;
            world.release_disk();
            expect(world.kinds(topic), vec![(Opened, 1, 0), (Whole, 1, 0)])
        },
        Fault::StepsEarly,
    );
}

#[test]
fn a_step_has_one_record_whatever_is_killed() {
    holds(
        |mut ground| {
            let mut world = ground.start();
            let topic = plain(&mut world);
            let [mut a, mut b] = [0, 1].map(|rank| world.writer(topic, rank, 2));
            world.step(topic, &mut a, 0);
            world.step(topic, &mut b, 0);
            world.step(topic, &mut a, 1);
            ground.kill();
            let mut world = ground.start();
            // What rank 0 has written of step 1 is not lost with the server.
            let mut b = world.writer(topic, 1, 2);
            expect(b.next, Step(1))?;
            a.link = world.connect();
            world.attend(topic, &mut a);
            world.step(topic, &mut b, 1);
            expect(
                world.kinds(topic),
                vec![(Opened, 1, 0), (Whole, 1, 0), (Whole, 1, 1)],
            )
        },
        Fault::StepsForgotten,
    );
}

#[test]
fn parts_of_a_life_that_has_ended_make_no_step() {
    holds(
        |mut ground| {
            let mut world = ground.start();
            let topic = plain(&mut world);
            let [mut a, mut b] = [0, 1].map(|rank| world.writer(topic, rank, 2));
            world.step(topic, &mut a, 0);
            // Rank 0 is restarted, and writes the step again.
            let mut again = world.writer(topic, 0, 2);
            expect(again.next, Step(0))?;
            let ended: RunEnded = world.answered(a.link, a.attends).unwrap();
            assert!(ended.reason.contains("another life"), "{}", ended.reason);
            world.step(topic, &mut b, 0);
            expect(world.kinds(topic), vec![(Opened, 1, 0)])?;
            world.step(topic, &mut again, 0);
            let records = world.records(topic);
            expect(
                who(&records[1]),
                vec!["1:0:0:2".to_owned(), "1:1:0:1".to_owned()],
            )?;
            // The one that was replaced writes no more.
            let id = world.part(topic, &mut a, 1, |_| {});
            expect(
                world.error(a.link, id).map(|error| error.code),
                Some(ErrorCode::ProducerFenced),
            )
        },
        Fault::FencedPart,
    );
}

/// The whole program is restarted: its new ranks come one behind the other.
#[test]
fn a_step_is_of_one_life_of_its_program() {
    let mut world = Ground::new().start();
    let topic = plain(&mut world);
    let [a, mut b] = [0, 1].map(|rank| world.writer(topic, rank, 2));
    world.step(topic, &mut b, 0);
    for link in [a.link, b.link] {
        world.disconnect(link);
    }
    let mut a = world.writer(topic, 0, 2);
    world.step(topic, &mut a, 0);
    assert_eq!(world.kinds(topic), [(Opened, 1, 0)]);
    let mut b = world.writer(topic, 1, 2);
    assert_eq!(b.next, Step(0));
    world.step(topic, &mut b, 0);
    let records = world.records(topic);
    assert_eq!(who(&records[1]), ["1:0:0:2", "1:1:0:2"]);
}

#[test]
fn a_discarded_step_has_a_record_and_its_attributes_stay() {
    holds(
        |mut ground| {
            let mut world = ground.start();
            let topic = plain(&mut world);
            let mut reader = world.reader(topic, "r", 0, 1);
            let queue = Queue {
                steps: 1,
                when_full: WhenFull::Discard,
                ..Queue::default()
            };
            let mut a = world.writer_with(topic, 0, 1, queue);
            let attribute = |name: &str| Attribute {
                name: name.into(),
                dtype: "<f8".into(),
                is_list: false,
                value: Bytes::copy_from_slice(&1.5f64.to_le_bytes()),
            };
            for step in 0..2 {
                let id = world.admit(topic, &a, step);
                let admitted: StepAdmitted = world.answered(a.link, id).unwrap();
                expect(admitted.discarded, step == 1)?;
                world.part(topic, &mut a, step, |part| {
                    part.data = match step {
                        1 => PartData::Dropped,
                        _ => PartData::Here,
                    };
                    part.attributes = vec![attribute(&format!("a{step}"))];
                });
            }
            let id = world.await_step(topic, &a, 1, 0);
            let decided: StepDecided = world.answered(a.link, id).unwrap();
            assert!(
                decided.discarded.contains("\"r\" have not released"),
                "{}",
                decided.discarded
            );
            expect(world.next_turn(topic, &mut reader), Some((Whole, 1, 0)))?;
            let id = world.admit(topic, &a, 2);
            let admitted: StepAdmitted = world.answered(a.link, id).unwrap();
            expect(admitted.discarded, false)?;
            world.step(topic, &mut a, 2);
            let id = world.ask(topic, &reader);
            let (_, tables) = world.turn_given(&reader, id).unwrap();
            let kinds: Vec<_> = tables
                .iter()
                .map(|table| (table.kind, table.step.0))
                .collect();
            expect(kinds, vec![(Discarded, 1), (Whole, 2)])?;
            let names = tables[1].attributes.iter().map(|one| one.name.clone());
            expect(names.collect(), vec!["a0".to_owned(), "a1".to_owned()])
        },
        Fault::DiscardAttributes,
    );
}

#[test]
fn all_ranks_of_a_group_have_the_same_step_and_the_last_moves_the_cursor() {
    holds(
        |mut ground| {
            let mut world = ground.start();
            let topic = plain(&mut world);
            let mut a = world.writer(topic, 0, 1);
            let [mut r0, mut r1] = [0, 1].map(|rank| world.reader(topic, "r", rank, 2));
            let early = world.ask(topic, &r1);
            world.step(topic, &mut a, 0);
            world.step(topic, &mut a, 1);
            let (given, _) = world.turn_given(&r1, early).unwrap();
            let id = world.ask(topic, &r0);
            let (same, _) = world.turn_given(&r0, id).unwrap();
            expect(given.position, same.position)?;
            world.release_turn(topic, &mut r0);
            expect(world.next_turn(topic, &mut r0), Some((Whole, 1, 1)))?;
            expect(world.stands(topic, "r"), None)?;
            world.release_turn(topic, &mut r1);
            expect(world.stands(topic, "r"), Some(given.position.offset.0 + 1))?;
            expect(world.next_turn(topic, &mut r1), Some((Whole, 1, 1)))?;
            // Another program of that name goes on behind it, with one rank.
            world.disconnect(r0.link);
            world.disconnect(r1.link);
            world.step(topic, &mut a, 2);
            let mut later = world.reader(topic, "r", 0, 1);
            expect(world.next_turn(topic, &mut later), Some((Whole, 1, 2)))
        },
        Fault::CursorAtFirstRelease,
    );
}

#[test]
fn a_rank_that_asks_for_a_step_may_release_the_one_before() {
    holds(
        |mut ground| {
            let mut world = ground.start();
            let topic = plain(&mut world);
            let mut a = world.writer(topic, 0, 1);
            let [mut r0, mut r1] = [0, 1].map(|rank| world.reader(topic, "r", rank, 2));
            world.step(topic, &mut a, 0);
            let firsts = [&mut r0, &mut r1].map(|reader| {
                let id = world.ask(topic, reader);
                let given = world.turn_given(reader, id).unwrap().0;
                reader.turns.push(given.position);
                reader.turn += 1;
                given
            });
            let waiting = world.ask_and_release(topic, &r0, 1);
            expect(world.stands(topic, "r"), None)?;
            let behind = firsts[0].position.offset.0 + 1;
            let other = world.ask_and_release(topic, &r1, 1);
            expect(world.stands(topic, "r"), Some(behind))?;
            // They were answered with nothing but their steps.
            expect(world.turn_given(&r0, waiting).is_none(), true)?;
            world.step(topic, &mut a, 1);
            let (second, _) = world.turn_given(&r0, waiting).unwrap();
            expect(world.turn_given(&r1, other).unwrap().0, second.clone())?;
            // A turn that nobody has had is not released by it, and one that was stays so.
            for released in [u64::MAX, 1] {
                world.ask_and_release(topic, &r0, released);
                world.ask_and_release(topic, &r1, 1);
            }
            expect(world.stands(topic, "r"), Some(behind))
        },
        Fault::ForgetReleaseWithNext,
    );
}

#[test]
fn a_rank_that_dies_breaks_the_run_behind_its_last_whole_step() {
    let mut world = Ground::new().start();
    let topic = plain(&mut world);
    let [mut a, mut b] = [0, 1].map(|rank| world.writer(topic, rank, 2));
    let mut reader = world.reader(topic, "r", 0, 1);
    for writer in [&mut a, &mut b] {
        world.step(topic, writer, 0);
    }
    world.step(topic, &mut a, 1);
    let waits = world.await_step(topic, &a, 1, 0);
    world.disconnect(b.link);
    world.pass(4 * SECOND);
    assert!(world.answer(a.link, waits).is_none());
    world.pass(2 * SECOND);
    let error = world.error(a.link, waits).unwrap();
    assert_eq!(error.code, ErrorCode::RunEnded);
    assert!(
        error.message.contains("rank 1 of 2 is gone for 5 s"),
        "{}",
        error.message
    );
    assert!(
        error.message.contains("not ended step 1"),
        "{}",
        error.message
    );
    let ended: RunEnded = world.answered(a.link, a.attends).unwrap();
    assert!(ended.reason.contains("rank 1"), "{}", ended.reason);
    // What is whole comes first, then the end.
    assert_eq!(world.next_turn(topic, &mut reader), Some((Whole, 1, 0)));
    assert_eq!(world.next_turn(topic, &mut reader), Some((Broken, 1, 1)));
    // The next run goes on; parts of the broken one count for nothing in it.
    let [mut a, mut b] = [0, 1].map(|rank| world.writer(topic, rank, 2));
    assert_eq!((a.run, a.next), (Run(2), Step(0)));
    for writer in [&mut a, &mut b] {
        world.step(topic, writer, 0);
    }
    assert_eq!(world.next_turn(topic, &mut reader), Some((Whole, 2, 0)));
    assert_eq!(who(world.records(topic).last().unwrap())[0], "2:0:0:2");
}

#[test]
fn a_rank_that_comes_back_in_time_goes_on() {
    let mut world = Ground::new().start();
    let topic = plain(&mut world);
    let [mut a, mut b] = [0, 1].map(|rank| world.writer(topic, rank, 2));
    for writer in [&mut a, &mut b] {
        world.step(topic, writer, 0);
    }
    world.disconnect(b.link);
    world.pass(4 * SECOND);
    let mut b = world.writer(topic, 1, 2);
    assert_eq!((b.run, b.next), (Run(1), Step(1)));
    world.pass(2 * SECOND);
    world.step(topic, &mut a, 1);
    world.step(topic, &mut b, 1);
    assert_eq!(world.kinds(topic).last(), Some(&(Whole, 1, 1)));
}

#[test]
fn a_full_queue_blocks_and_says_who_is_behind() {
    let mut world = Ground::new().start();
    let topic = plain(&mut world);
    let queue = Queue {
        steps: 1,
        readers_min: 1,
        ..Queue::default()
    };
    let mut a = world.writer_with(topic, 0, 1, queue);
    let first = world.admit(topic, &a, 0);
    assert!(world.answer(a.link, first).is_none(), "no reader has come");
    let mut reader = world.reader(topic, "slow", 0, 1);
    assert!(
        !world
            .answered::<StepAdmitted>(a.link, first)
            .unwrap()
            .discarded
    );
    world.step(topic, &mut a, 0);
    let second = world.admit(topic, &a, 1);
    assert!(world.answer(a.link, second).is_none());
    world.pass(4 * SECOND);
    let error = world.error(a.link, second).unwrap();
    assert_eq!(error.code, ErrorCode::DeadlinePassed);
    assert!(
        error
            .message
            .contains("readers \"slow\" have not released step 0"),
        "{}",
        error.message
    );
    let third = world.admit(topic, &a, 1);
    assert_eq!(world.next_turn(topic, &mut reader), Some((Whole, 1, 0)));
    assert!(
        !world
            .answered::<StepAdmitted>(a.link, third)
            .unwrap()
            .discarded
    );
    world.step(topic, &mut a, 1);
    // A reader that is gone holds nobody.
    let fourth = world.admit(topic, &a, 2);
    assert!(world.answer(a.link, fourth).is_none());
    world.disconnect(reader.link);
    world.pass(4 * SECOND);
    let fifth = world.admit(topic, &a, 2);
    world.pass(2 * SECOND);
    assert!(
        !world
            .answered::<StepAdmitted>(a.link, fifth)
            .unwrap()
            .discarded
    );
}

#[test]
fn a_wait_names_the_rank_that_has_not_ended_its_step() {
    let mut world = Ground::new().start();
    let topic = plain(&mut world);
    let [mut a, mut c] = [0, 2].map(|rank| world.writer(topic, rank, 4));
    world.step(topic, &mut a, 0);
    world.step(topic, &mut c, 0);
    let id = world.await_step(topic, &a, 0, 4_000);
    world.pass(5 * SECOND);
    let error = world.error(a.link, id).unwrap();
    assert_eq!(error.code, ErrorCode::DeadlinePassed);
    let wanted = "ranks 1, 3 of 4 have not ended step 0";
    assert!(error.message.contains(wanted), "{}", error.message);
    assert!(
        error.message.contains("rank 1 has not opened the run"),
        "{}",
        error.message
    );
}

#[test]
fn latest_passes_over_and_counts() {
    let mut world = Ground::new().start();
    let topic = plain(&mut world);
    let mut a = world.writer(topic, 0, 1);
    let [mut r0, mut r1] =
        [0, 1].map(|rank| world.reader_at(topic, "l", (rank, 2), StepStart::Cursor, true));
    for step in 0..3 {
        world.step(topic, &mut a, step);
    }
    let id = world.ask(topic, &r0);
    let (given, _) = world.turn_given(&r0, id).unwrap();
    assert_eq!(given.skipped, 2);
    world.step(topic, &mut a, 3);
    // The turn is decided: the other rank has no newer step.
    assert_eq!(world.next_turn(topic, &mut r1), Some((Whole, 1, 2)));
    world.release_turn(topic, &mut r0);
    assert_eq!(world.next_turn(topic, &mut r0), Some((Whole, 1, 3)));
    let id = world.close_run(topic, &a, 4);
    world.answered::<Empty>(a.link, id).unwrap();
    assert_eq!(world.next_turn(topic, &mut r1), Some((Whole, 1, 3)));
    assert_eq!(world.next_turn(topic, &mut r1), Some((Closed, 1, 4)));
}

#[test]
fn readers_of_another_life_fence_those_before() {
    let mut world = Ground::new().start();
    let topic = plain(&mut world);
    let mut a = world.writer(topic, 0, 1);
    world.step(topic, &mut a, 0);
    let [r0, r1] = [0, 1].map(|rank| world.reader(topic, "r", rank, 2));
    let waits = world.ask(topic, &r1);
    world.turn_given(&r1, waits).unwrap();
    let _again = world.reader(topic, "r", 0, 2);
    for reader in [&r0, &r1] {
        let id = world.ask(topic, reader);
        assert_eq!(
            world.error(reader.link, id).unwrap().code,
            ErrorCode::MemberFenced
        );
    }
    // One of another size waits until nobody is there.
    let (other, id) = world.try_reader(topic, "r", 0, 3, StepStart::Cursor, false);
    assert_eq!(
        world.error(other.link, id).unwrap().code,
        ErrorCode::InvalidConsumer
    );
}

#[test]
fn retention_lets_go_of_whole_steps() {
    let mut world = Ground::new().start();
    let link = world.connect();
    let definition = r#"{"kind":"steps","retention":{"count":2}}"#;
    let topic = stream(&mut world, link, definition, 2);
    let mut a = world.writer(topic, 0, 1);
    for step in 0..5 {
        world.step(topic, &mut a, step);
    }
    let reader = world.reader_at(topic, "r", (0, 1), StepStart::Oldest, false);
    let id = world.ask(topic, &reader);
    let (_, tables) = world.turn_given(&reader, id).unwrap();
    assert_eq!(tables.last().map(|table| table.step), Some(Step(3)));
}

#[test]
fn parts_are_not_to_be_had_as_events_nor_records_pushed() {
    let mut world = Ground::new().start();
    let topic = plain(&mut world);
    let link = world.connect();
    let subscribe = Subscribe {
        consumer: "c".into(),
        partition: PartitionIndex(1),
        start: Start::Beginning,
        credit: 1 << 20,
        inline_data: true,
        latest: wire::codec::Appended(false),
    };
    let id = world.request(link, Method::Subscribe, topic, &subscribe, &[]);
    let error = world.error(link, id).unwrap();
    assert!(
        error.message.contains("parts of steps"),
        "{}",
        error.message
    );
    let parts = Fetch {
        partition: PartitionIndex(2),
        ..fetch(at(0, 0), 0)
    };
    let id = world.request(link, Method::Fetch, topic, &parts, &[]);
    assert_eq!(
        world.error(link, id).unwrap().code,
        ErrorCode::InvalidConsumer
    );
    let id = world.produce(link, topic, &batch(topic, 5, 0, 0, &["{}"]));
    assert_eq!(world.error(link, id).unwrap().code, ErrorCode::InvalidEvent);
    // And a topic of events takes no ranks.
    let events = world.topic(link);
    let who = ReaderMember {
        reader: "r".into(),
        group: String::new(),
        rank: Rank(0),
        member: MemberId(1),
    };
    let attend = AttendReaders { who };
    let id = world.request(link, Method::AttendReaders, events, &attend, &[]);
    assert_eq!(world.error(link, id).unwrap().code, ErrorCode::InvalidTopic);
}

#[test]
fn ranks_that_differ_on_a_variable_lose_the_step_and_hear_why() {
    let mut world = Ground::new().start();
    let topic = plain(&mut world);
    let [mut a, mut b] = [0, 1].map(|rank| world.writer(topic, rank, 2));
    world.step(topic, &mut a, 0);
    world.part(topic, &mut b, 0, |part| {
        part.variables[0].dtype = "<f8".into()
    });
    let id = world.await_step(topic, &a, 0, 0);
    let decided: StepDecided = world.answered(a.link, id).unwrap();
    let wanted = "variable \"who\" has type str on rank 0 and <f8 on rank 1";
    assert_eq!(decided.discarded, wanted);
    assert_eq!(world.kinds(topic), [(Opened, 1, 0), (Discarded, 1, 0)]);
}

#[test]
fn what_is_no_part_is_refused() {
    let mut world = Ground::new().start();
    let topic = plain(&mut world);
    let mut a = world.writer(topic, 0, 1);
    let batch = batch(topic, a.producer.0, a.epoch.0, 0, &["no part at all"]);
    let produce = Produce {
        partition: PartitionIndex(1),
        durability: Durability::Memory,
        regions: Vec::new(),
    };
    let id = world.request(a.link, Method::Produce, topic, &produce, &batch);
    let error = world.error(a.link, id).unwrap();
    assert_eq!(error.code, ErrorCode::InvalidEvent);
    assert!(error.message.contains("no part of a step"), "{error:?}");
    world.step(topic, &mut a, 0);
    assert_eq!(world.kinds(topic), [(Opened, 1, 0), (Whole, 1, 0)]);
}

#[test]
fn a_stream_that_is_deleted_tells_everybody() {
    let mut world = Ground::new().start();
    let topic = plain(&mut world);
    let a = world.writer(topic, 0, 1);
    let reader = world.reader(topic, "r", 0, 1);
    let waits = world.ask(topic, &reader);
    let name = TopicName { name: "s".into() };
    world
        .call::<Empty>(a.link, Method::DeleteTopic, TopicId(0), &name)
        .unwrap();
    assert_eq!(
        world.error(reader.link, waits).unwrap().code,
        ErrorCode::UnknownTopic
    );
    assert_eq!(
        world.error(a.link, a.attends).unwrap().code,
        ErrorCode::UnknownTopic
    );
}
