//! Streams of steps, message by message: what is seen of a step, when, by whom, and what of it
//! outlives whom. Each promise has a fault that is planted against it.

use super::harness::*;
use crate::Fault;
use crate::node::LinkId;
use bytes::Bytes;
use std::time::Duration;
use wire::batch::{Batch, BatchBuilder, EventParts, Verify};
use wire::message::*;
use wire::step::*;
use wire::*;

const SECOND: Duration = Duration::from_secs(1);

/// A rank of a writing program, on a connection of its own.
pub struct Writer {
    pub link: LinkId,
    pub rank: u32,
    pub producer: ProducerId,
    pub epoch: ProducerEpoch,
    pub sequence: u64,
    pub run: Run,
    pub next: Step,
    pub attends: u64,
}

/// What a rank wants of its run, beside the defaults.
#[derive(Clone, Copy, Default)]
pub struct Queue {
    pub steps: u32,
    pub when_full: WhenFull,
    pub readers_min: u32,
}

/// A rank of a group of readers, on a connection of its own.
pub struct Reader {
    pub link: LinkId,
    pub name: &'static str,
    pub rank: u32,
    pub member: u128,
    pub turn: u64,
}

pub fn stream(world: &mut World, link: LinkId, definition: &str, partitions: usize) -> TopicId {
    let kinds = vec!["disk"; partitions];
    world.create(link, "s", definition, &kinds).unwrap().topic
}

pub fn plain(world: &mut World) -> TopicId {
    let link = world.connect();
    stream(world, link, r#"{"kind":"steps"}"#, 3)
}

impl World {
    pub fn try_writer(
        &mut self,
        topic: TopicId,
        rank: u32,
        ranks: u32,
        queue: Queue,
    ) -> (Writer, u64) {
        let link = self.connect();
        let open = OpenProducer {
            name: format!("sim/{rank}"),
            resume: ProducerId(0),
            resume_epoch: ProducerEpoch(0),
        };
        let opened: ProducerOpened = self.call(link, Method::OpenProducer, topic, &open).unwrap();
        let open = OpenRun {
            writer: "sim".into(),
            ranks,
            rank: Rank(rank),
            producer: opened.producer,
            epoch: opened.epoch,
            session_timeout_ms: 5_000,
            readers_min: queue.readers_min,
            queue_steps: queue.steps,
            queue_bytes: 0,
            when_full: queue.when_full,
        };
        let id = self.request(link, Method::OpenRun, topic, &open, &[]);
        let writer = Writer {
            link,
            rank,
            producer: opened.producer,
            epoch: opened.epoch,
            sequence: 0,
            run: Run(0),
            next: Step(0),
            attends: 0,
        };
        (writer, id)
    }

    /// A rank that has opened the run and attends.
    pub fn writer_with(&mut self, topic: TopicId, rank: u32, ranks: u32, queue: Queue) -> Writer {
        let (mut writer, id) = self.try_writer(topic, rank, ranks, queue);
        let opened: RunOpened = self.answered(writer.link, id).unwrap();
        (writer.run, writer.next) = (opened.run, opened.next);
        self.attend(topic, &mut writer);
        writer
    }

    /// A rank says that it is there, on the connection that it has now.
    pub fn attend(&mut self, topic: TopicId, writer: &mut Writer) {
        let attend = AttendRun {
            run: writer.run,
            rank: Rank(writer.rank),
            producer: writer.producer,
            epoch: writer.epoch,
        };
        writer.attends = self.request(writer.link, Method::AttendRun, topic, &attend, &[]);
    }

    pub fn writer(&mut self, topic: TopicId, rank: u32, ranks: u32) -> Writer {
        self.writer_with(topic, rank, ranks, Queue::default())
    }

    /// Pushes a rank's part of a step, with one value that says whose it is.
    pub fn part(
        &mut self,
        topic: TopicId,
        writer: &mut Writer,
        step: u64,
        change: impl FnOnce(&mut Part),
    ) -> u64 {
        let value = Bytes::from(format!(
            "{}:{}:{step}:{}",
            writer.run, writer.rank, writer.epoch
        ));
        let mut part = Part {
            version: STEP_VERSION,
            run: writer.run,
            step: Step(step),
            rank: Rank(writer.rank),
            discarded: false,
            attributes: Vec::new(),
            variables: vec![Variable {
                name: "who".into(),
                kind: ShapeKind::LocalValue,
                dtype: "str".into(),
                item_bytes: 0,
                joined: 0,
                shape: Vec::new(),
                blocks: Blocks {
                    values: vec![value],
                    ..Blocks::none()
                },
            }],
        };
        change(&mut part);
        let mut builder = BatchBuilder::default();
        builder.push(EventParts {
            metadata: &part.to_bytes(),
            ..EventParts::default()
        });
        let origin = origin(topic, writer.producer.0, writer.epoch.0, writer.sequence);
        writer.sequence += 1;
        let produce = Produce {
            partition: PartitionIndex(1 + writer.rank % 2),
            durability: Durability::Memory,
            regions: Vec::new(),
        };
        let batch = builder.seal(origin, 4096).to_vec();
        self.request(writer.link, Method::Produce, topic, &produce, &batch)
    }

    pub fn step(&mut self, topic: TopicId, writer: &mut Writer, step: u64) {
        let id = self.part(topic, writer, step, |_| {});
        self.answered::<Produced>(writer.link, id).unwrap();
    }

    pub fn close_run(&mut self, topic: TopicId, writer: &Writer, steps: u64) -> u64 {
        let close = CloseRun {
            run: writer.run,
            rank: Rank(writer.rank),
            producer: writer.producer,
            epoch: writer.epoch,
            steps,
        };
        self.request(writer.link, Method::CloseRun, topic, &close, &[])
    }

    pub fn await_step(
        &mut self,
        topic: TopicId,
        writer: &Writer,
        step: u64,
        within_ms: u32,
    ) -> u64 {
        let wait = AwaitStep {
            run: writer.run,
            step: Step(step),
        };
        self.request_within(writer.link, Method::AwaitStep, topic, &wait, &[], within_ms)
    }

    pub fn admit(&mut self, topic: TopicId, writer: &Writer, step: u64) -> u64 {
        let admit = AdmitStep {
            run: writer.run,
            rank: Rank(writer.rank),
            step: Step(step),
        };
        self.request_within(writer.link, Method::AdmitStep, topic, &admit, &[], 3_000)
    }

    /// All records, as they are there.
    pub fn records(&mut self, topic: TopicId) -> Vec<StepTable> {
        let link = self.connect();
        let fetch = fetch(at(0, 0), 0);
        let id = self.request(link, Method::Fetch, topic, &fetch, &[]);
        let message = match self.answer(link, id) {
            Some(Ok(message)) => message,
            _ => return Vec::new(),
        };
        let head = Fetched::from_bytes("fetched", &message.head).unwrap();
        tables(&head.batch_bytes, &message.payload.concat())
    }

    /// A record each: its kind, run, step.
    pub fn kinds(&mut self, topic: TopicId) -> Vec<(RecordKind, u64, u64)> {
        let records = self.records(topic).into_iter();
        records
            .map(|one| (one.kind, one.run.0, one.step.0))
            .collect()
    }

    pub fn try_reader(
        &mut self,
        topic: TopicId,
        name: &'static str,
        rank: u32,
        ranks: u32,
        start: StepStart,
        latest: bool,
    ) -> (Reader, u64) {
        let link = self.connect();
        let member = 100 + u128::from(link.0);
        let join = JoinReaders {
            reader: name.into(),
            ranks,
            rank: Rank(rank),
            member: MemberId(member),
            start,
            latest,
            session_timeout_ms: 5_000,
            turn: 0,
            seen: None,
        };
        let id = self.request(link, Method::JoinReaders, topic, &join, &[]);
        let reader = Reader {
            link,
            name,
            rank,
            member,
            turn: 1,
        };
        (reader, id)
    }

    pub fn reader_at(
        &mut self,
        topic: TopicId,
        name: &'static str,
        (rank, ranks): (u32, u32),
        start: StepStart,
        latest: bool,
    ) -> Reader {
        let (mut reader, id) = self.try_reader(topic, name, rank, ranks, start, latest);
        let joined: ReadersJoined = self.answered(reader.link, id).unwrap();
        reader.turn = joined.turn;
        let attend = AttendReaders {
            reader: name.into(),
            rank: Rank(rank),
            member: MemberId(reader.member),
        };
        self.request(reader.link, Method::AttendReaders, topic, &attend, &[]);
        reader
    }

    pub fn reader(&mut self, topic: TopicId, name: &'static str, rank: u32, ranks: u32) -> Reader {
        self.reader_at(topic, name, (rank, ranks), StepStart::Cursor, false)
    }

    pub fn ask(&mut self, topic: TopicId, reader: &Reader) -> u64 {
        let next = NextStep {
            reader: reader.name.into(),
            rank: Rank(reader.rank),
            member: MemberId(reader.member),
            turn: reader.turn,
        };
        self.request_within(reader.link, Method::NextStep, topic, &next, &[], 2_000)
    }

    /// What a rank was given, if it was: the head, and the records that came along.
    pub fn turn_given(&self, reader: &Reader, id: u64) -> Option<(StepGiven, Vec<StepTable>)> {
        let message = self.answer(reader.link, id)?.unwrap();
        let head = StepGiven::from_bytes("given", &message.head).unwrap();
        let tables = tables(&head.batch_bytes, &message.payload.concat());
        Some((head, tables))
    }

    /// The record of the next turn, which is released.
    pub fn next_turn(
        &mut self,
        topic: TopicId,
        reader: &mut Reader,
    ) -> Option<(RecordKind, u64, u64)> {
        let id = self.ask(topic, reader);
        let (head, tables) = self.turn_given(reader, id)?;
        assert_eq!(head.turn, reader.turn);
        self.release_turn(topic, reader);
        let last = tables.last().unwrap();
        Some((last.kind, last.run.0, last.step.0))
    }

    pub fn release_turn(&mut self, topic: TopicId, reader: &mut Reader) {
        let id = self.release_turn_unheard(topic, reader);
        self.answered::<Empty>(reader.link, id).unwrap();
    }

    /// Releases a turn; the answer may come later.
    pub fn release_turn_unheard(&mut self, topic: TopicId, reader: &mut Reader) -> u64 {
        let release = ReleaseStep {
            reader: reader.name.into(),
            rank: Rank(reader.rank),
            member: MemberId(reader.member),
            turn: reader.turn,
        };
        reader.turn += 1;
        self.request(reader.link, Method::ReleaseStep, topic, &release, &[])
    }

    /// Where a group of readers stands.
    pub fn stands(&mut self, topic: TopicId, name: &str) -> Option<u64> {
        let link = self.connect();
        let read = ReadCursors {
            consumer: name.into(),
        };
        let cursors: CursorList = self.call(link, Method::ReadCursors, topic, &read).unwrap();
        cursors
            .cursors
            .first()
            .map(|cursor| cursor.position.offset.0)
    }
}

fn tables(lengths: &[u64], payload: &[u8]) -> Vec<StepTable> {
    let mut tables = Vec::new();
    let mut start = 0usize;
    for bytes in lengths {
        let end = start + *bytes as usize;
        let batch = Batch::read(&payload[start..end], Verify::Sections).unwrap();
        let columns = batch.columns().unwrap();
        for event in &columns.events {
            let inline = batch.inline_section().unwrap();
            let at = event.data_start as usize;
            tables.push(StepTable::read(&inline[at..at + event.data_bytes as usize]).unwrap());
        }
        start = end;
    }
    tables
}

/// Whose values a step has, by its table.
pub fn who(table: &StepTable) -> Vec<String> {
    let entry = table
        .variables
        .iter()
        .find(|entry| entry.name == "who")
        .unwrap();
    let blocks = table.blocks(entry).unwrap();
    let values = blocks.values.iter();
    values
        .map(|value| String::from_utf8(value.to_vec()).unwrap())
        .collect()
}

use RecordKind::{Broken, Closed, Discarded, Opened, Step as Whole};

/// Holds without a fault, and must not with it.
pub fn holds(test: impl Fn(Ground) -> Result<(), String>, fault: Fault) {
    test(Ground::new()).unwrap();
    assert!(
        test(Ground::with_fault(fault)).is_err(),
        "{fault:?} is not noticed"
    );
}

pub fn expect<T: PartialEq + std::fmt::Debug>(found: T, wanted: T) -> Result<(), String> {
    match found == wanted {
        true => Ok(()),
        false => Err(format!("{found:?}, not {wanted:?}")),
    }
}

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
                    part.discarded = step == 1;
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
    let attend = AttendReaders {
        reader: "r".into(),
        rank: Rank(0),
        member: MemberId(1),
    };
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
