//! Parts that stay with their writers, message by message: who is asked for them and when, and what
//! becomes of reads whose writer, or whose reader, is gone.

use super::harness::*;
use super::steps_harness::*;
use crate::Fault;
use crate::node::LinkId;
use bytes::Bytes;
use std::time::Duration;
use wire::batch::{BatchBuilder, EventParts};
use wire::codec::Appended;
use wire::message::*;
use wire::step::*;
use wire::view::Segment;
use wire::*;

const SECOND: Duration = Duration::from_secs(1);
const DATA: &[u8] = b"the data of a part";

fn in_memory(world: &mut World) -> TopicId {
    let link = world.connect();
    let kinds = ["memory"; 3];
    let definition = r#"{"kind":"steps"}"#;
    world.create(link, "s", definition, &kinds).unwrap().topic
}

/// What a rank says that keeps its parts, at first.
fn keeping(writer: &Writer) -> HoldParts {
    HoldParts {
        run: writer.run,
        rank: Rank(writer.rank),
        producer: writer.producer,
        epoch: writer.epoch,
        session_timeout_ms: 5_000,
        from: Step(0),
        sending: Vec::new(),
        released_before: Step(0),
        left_before: Step(0),
    }
}

impl World {
    fn hold(&mut self, topic: TopicId, link: LinkId, hold: &HoldParts) -> u64 {
        self.request(link, Method::HoldParts, topic, hold, &[])
    }

    /// A rank ends a step whose data it keeps.
    fn kept_step(&mut self, topic: TopicId, writer: &mut Writer, step: u64) {
        let id = self.part(topic, writer, step, |part| {
            part.data = PartData::Held(DATA.len() as u64);
        });
        self.answered::<Produced>(writer.link, id).unwrap();
    }

    /// A rank sends what it kept.
    fn send(&mut self, topic: TopicId, writer: &mut Writer, step: u64, data: &[u8]) {
        let part = Part {
            version: STEP_VERSION,
            run: writer.run,
            step: Step(step),
            rank: Rank(writer.rank),
            data: PartData::Sent,
            attributes: Vec::new(),
            variables: Vec::new(),
        };
        let mut builder = BatchBuilder::default();
        builder.push(EventParts {
            metadata: &part.to_bytes(),
            inline: &[data],
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
        let id = self.request(writer.link, Method::Produce, topic, &produce, &batch);
        self.answered::<Produced>(writer.link, id).unwrap();
    }

    /// Asks for the data of the part at an offset of partition 1.
    fn read_part(&mut self, topic: TopicId, link: LinkId, offset: u64) -> u64 {
        let bytes = DATA.len() as u64;
        let key = Bytes::from_static(b"into");
        let end = self.links.get_mut(&link).unwrap();
        end.lent.insert(key.clone(), vec![0; bytes as usize]);
        let read = ReadData {
            events: vec![DataWanted {
                partition: PartitionIndex(1),
                incarnation: Incarnation(1),
                offset: Offset(offset),
                segments: vec![Segment { offset: 0, bytes }],
            }],
            into: vec![Region {
                key,
                base: 0,
                bytes,
                memory_kind: 0,
                rails: 0,
            }],
            strided: Appended::default(),
        };
        self.request_within(link, Method::ReadData, topic, &read, &[], 20_000)
    }

    fn was_read(&self, link: LinkId, id: u64) -> bool {
        self.answered::<DataRead>(link, id).is_ok() && self.links[&link].lent[&b"into"[..]] == DATA
    }
}

/// A rank that keeps a step's part and attends, and who reads that.
fn kept(world: &mut World) -> (TopicId, Writer, HoldParts, u64, LinkId) {
    let topic = in_memory(world);
    let mut a = world.writer(topic, 0, 1);
    let mut hold = keeping(&a);
    let asked = world.hold(topic, a.link, &hold);
    world.kept_step(topic, &mut a, 0);
    // Nobody is attached who needs it.
    let told: PartsWanted = world.answered(a.link, asked).unwrap();
    assert_eq!(told.released_before, Step(1));
    hold.released_before = Step(1);
    let asked = world.hold(topic, a.link, &hold);
    let reader = world.connect();
    (topic, a, hold, asked, reader)
}

#[test]
fn a_part_is_asked_for_once_however_many_want_it() {
    let mut world = Ground::new().start();
    let (topic, mut a, mut hold, asked, first) = kept(&mut world);
    assert!(world.answer(a.link, asked).is_none());
    let second = world.connect();
    let one = world.read_part(topic, first, 0);
    let told: PartsWanted = world.answered(a.link, asked).unwrap();
    assert_eq!(told.steps, [Step(0)]);
    hold.sending = told.steps;
    let asked = world.hold(topic, a.link, &hold);
    let two = world.read_part(topic, second, 0);
    assert!(world.answer(a.link, asked).is_none());
    assert!(world.answer(first, one).is_none());
    // Of another length it is not the part's.
    world.send(topic, &mut a, 0, b"something else");
    assert!(world.answer(first, one).is_none());
    world.send(topic, &mut a, 0, DATA);
    assert!(world.was_read(first, one) && world.was_read(second, two));
    let later = world.read_part(topic, first, 0);
    assert!(world.was_read(first, later));
    assert_eq!(world.kinds(topic).len(), 2);
}

#[test]
fn a_writer_that_comes_back_is_asked_again() {
    let mut world = Ground::new().start();
    let (topic, mut a, hold, asked, reader) = kept(&mut world);
    let read = world.read_part(topic, reader, 0);
    world.answered::<PartsWanted>(a.link, asked).unwrap();
    world.disconnect(a.link);
    world.pass(4 * SECOND);
    a.link = world.connect();
    world.attend(topic, &mut a);
    let asked = world.hold(topic, a.link, &hold);
    let told: PartsWanted = world.answered(a.link, asked).unwrap();
    assert_eq!(told.steps, [Step(0)]);
    world.send(topic, &mut a, 0, DATA);
    assert!(world.was_read(reader, read));
}

#[test]
fn a_reader_that_is_gone_is_forgotten_and_what_it_wanted_is_there_for_others() {
    let mut world = Ground::new().start();
    let (topic, mut a, _, _, reader) = kept(&mut world);
    world.read_part(topic, reader, 0);
    world.disconnect(reader);
    world.send(topic, &mut a, 0, DATA);
    let other = world.connect();
    let read = world.read_part(topic, other, 0);
    assert!(world.was_read(other, read));
}

#[test]
fn a_deadline_names_the_rank_that_is_waited_for() {
    let mut world = Ground::new().start();
    let (topic, a, hold, asked, reader) = kept(&mut world);
    let read = world.read_part(topic, reader, 0);
    world.answered::<PartsWanted>(a.link, asked).unwrap();
    let mut hold = hold;
    hold.sending = vec![Step(0)];
    world.hold(topic, a.link, &hold);
    world.pass(25 * SECOND);
    let error = world.error(reader, read).unwrap();
    assert_eq!(error.code, ErrorCode::DeadlinePassed);
    for part in ["step 0 of run 1 of s", "rank 0", "has not sent it yet"] {
        assert!(error.message.contains(part), "{}", error.message);
    }
}

/// What a read of a part is told whose writer stays away.
fn after_the_writer(fault: Option<Fault>) -> Option<ErrorReply> {
    let mut ground = match fault {
        Some(fault) => Ground::with_fault(fault),
        None => Ground::new(),
    };
    let mut world = ground.start();
    let (topic, a, _, _, reader) = kept(&mut world);
    let read = world.read_part(topic, reader, 0);
    world.disconnect(a.link);
    world.pass(6 * SECOND);
    world.error(reader, read)
}

#[test]
fn a_part_goes_with_its_writer() {
    let error = after_the_writer(None).expect("nobody has it");
    assert_eq!(error.code, ErrorCode::OffsetOutOfRange);
    for part in ["step 0 of run 1 of s", "rank 0", "memory lost"] {
        assert!(error.message.contains(part), "{}", error.message);
    }
    assert_eq!(after_the_writer(Some(Fault::HeldForgotten)), None);
}

#[test]
fn another_life_of_a_writer_has_nothing_of_the_one_before() {
    let mut world = Ground::new().start();
    let (topic, old, _, _, reader) = kept(&mut world);
    let read = world.read_part(topic, reader, 0);
    let mut new = world.writer(topic, 0, 1);
    assert!(new.epoch > old.epoch);
    let error = world.error(reader, read).unwrap();
    assert!(error.message.contains("memory lost"), "{}", error.message);
    world.send(topic, &mut new, 0, DATA);
    let again = world.read_part(topic, reader, 0);
    assert_eq!(
        world.error(reader, again).map(|error| error.code),
        Some(ErrorCode::OffsetOutOfRange)
    );
}

#[test]
fn readers_that_are_attached_keep_what_they_have_not_released() {
    let mut world = Ground::new().start();
    let topic = in_memory(&mut world);
    let mut a = world.writer(topic, 0, 1);
    let mut reader = world.reader(topic, "r", 0, 1);
    let mut hold = keeping(&a);
    let asked = world.hold(topic, a.link, &hold);
    for step in 0..2 {
        world.kept_step(topic, &mut a, step);
    }
    assert!(world.answer(a.link, asked).is_none());
    assert_eq!(
        world.next_turn(topic, &mut reader),
        Some((RecordKind::Step, 1, 0))
    );
    let told: PartsWanted = world.answered(a.link, asked).unwrap();
    assert_eq!(told.released_before, Step(1));
    assert!(told.steps.is_empty());
    // It gives the first one up: the step leaves the stream.
    (hold.released_before, hold.from) = (Step(1), Step(1));
    let asked = world.hold(topic, a.link, &hold);
    let told: PartsWanted = world.answered(a.link, asked).unwrap();
    assert_eq!(told.left_before, Step(1));
    let described = world.describe(a.link, "s").unwrap();
    assert_eq!(described.partitions[0].first, Offset(2));
    // It leaves, and all goes but the last record.
    let leaves = HoldParts {
        from: Step(u64::MAX),
        ..hold
    };
    let left = world.hold(topic, a.link, &leaves);
    world.answered::<PartsWanted>(a.link, left).unwrap();
    let link = world.connect();
    let read = world.read_part(topic, link, 1);
    let error = world.error(link, read).unwrap();
    assert!(error.message.contains("given it up"), "{}", error.message);
}

#[test]
fn a_step_that_is_dropped_by_one_rank_is_held_by_none() {
    let mut world = Ground::new().start();
    let topic = in_memory(&mut world);
    let [mut a, mut b] = [0, 1].map(|rank| world.writer(topic, rank, 2));
    world.kept_step(topic, &mut a, 0);
    let id = world.part(topic, &mut b, 0, |part| part.data = PartData::Dropped);
    world.answered::<Produced>(b.link, id).unwrap();
    let wait = world.await_step(topic, &a, 0, 1_000);
    let decided: StepDecided = world.answered(a.link, wait).unwrap();
    assert!(!decided.discarded.is_empty());
    let link = world.connect();
    let read = world.read_part(topic, link, 0);
    // Nobody is waited for.
    assert_eq!(
        world.error(link, read).map(|error| error.code),
        Some(ErrorCode::InvalidSelection)
    );
}

#[test]
fn what_survives_its_writer_cannot_be_left_there() {
    let mut world = Ground::new().start();
    let topic = plain(&mut world);
    let mut a = world.writer(topic, 0, 1);
    let id = world.part(topic, &mut a, 0, |part| part.data = PartData::Held(5));
    let error = world.error(a.link, id).unwrap();
    assert_eq!(error.code, ErrorCode::InvalidDurability);
    // And nobody's parts are anybody else's to give up.
    let mut hold = keeping(&a);
    hold.epoch = ProducerEpoch(77);
    let asked = world.hold(topic, a.link, &hold);
    assert!(world.error(a.link, asked).is_some());
}
