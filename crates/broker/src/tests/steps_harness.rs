//! Ranks that write and read steps, message by message.

use super::harness::*;
use crate::Fault;
use crate::node::LinkId;
use bytes::Bytes;
use std::sync::atomic::{AtomicU64, Ordering};
use wire::batch::{Batch, BatchBuilder, EventParts, Verify};
use wire::message::*;
use wire::record::Position;
use wire::step::*;
use wire::*;

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
    pub who: ReaderMember,
    /// How many ranks it is one of.
    pub ranks: u32,
    pub distribution: Distribution,
    pub latest: bool,
    pub life: MemberId,
    pub turn: u64,
    pub began: Option<Position>,
    /// Where the records of the turns before are.
    pub turns: Vec<Position>,
}

/// A number that no other rank has, be it of an earlier life of the server.
fn new_member() -> MemberId {
    static LAST: AtomicU64 = AtomicU64::new(0);
    // Relaxed: nothing else is ordered by it.
    MemberId(u128::from(LAST.fetch_add(1, Ordering::Relaxed)) + 100)
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
            distribution: Distribution::All,
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
        let partition = PartitionIndex(1 + writer.rank % 2);
        self.part_in(partition, topic, writer, step, change)
    }

    /// A part in a partition.
    pub fn part_in(
        &mut self,
        partition: PartitionIndex,
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
            data: PartData::Here,
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
            partition,
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
            pinned: false,
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
        name: &str,
        rank: u32,
        ranks: u32,
        start: StepStart,
        latest: bool,
    ) -> (Reader, u64) {
        let link = self.connect();
        let who = ReaderMember {
            reader: name.into(),
            group: String::new(),
            rank: Rank(rank),
            member: new_member(),
        };
        let join = JoinReaders {
            who: who.clone(),
            ranks,
            distribution: Distribution::All,
            start,
            latest,
            session_timeout_ms: 5_000,
            life: MemberId(0),
            turn: 0,
            released: 0,
            turns: Vec::new(),
        };
        let id = self.request(link, Method::JoinReaders, topic, &join, &[]);
        let reader = Reader {
            link,
            who,
            ranks,
            distribution: Distribution::All,
            latest,
            life: MemberId(0),
            turn: 1,
            began: None,
            turns: Vec::new(),
        };
        (reader, id)
    }

    /// A rank is attached, and attends.
    pub fn attached(&mut self, topic: TopicId, reader: &mut Reader, id: u64) {
        let joined: ReadersJoined = self.answered(reader.link, id).unwrap();
        (reader.turn, reader.life) = (joined.turn, joined.life);
        reader.began.get_or_insert(joined.began);
        let who = reader.who.clone();
        let attend = AttendReaders { who };
        self.request(reader.link, Method::AttendReaders, topic, &attend, &[]);
    }

    pub fn reader_at(
        &mut self,
        topic: TopicId,
        name: &str,
        (rank, ranks): (u32, u32),
        start: StepStart,
        latest: bool,
    ) -> Reader {
        let (mut reader, id) = self.try_reader(topic, name, rank, ranks, start, latest);
        self.attached(topic, &mut reader, id);
        reader
    }

    /// A rank of a group attaches that shares the steps of a name with others.
    pub fn sharer(
        &mut self,
        topic: TopicId,
        group: &str,
        (rank, ranks): (u32, u32),
        distribution: Distribution,
    ) -> Reader {
        let link = self.connect();
        let who = ReaderMember {
            reader: "r".into(),
            group: group.into(),
            rank: Rank(rank),
            member: new_member(),
        };
        let mut reader = Reader {
            link,
            who,
            ranks,
            distribution,
            latest: false,
            life: MemberId(0),
            turn: 0,
            began: None,
            turns: Vec::new(),
        };
        let join = join_of(&reader, 0);
        let id = self.request(link, Method::JoinReaders, topic, &join, &[]);
        self.attached(topic, &mut reader, id);
        reader
    }

    /// A rank attaches again, on a new connection; it has released the turns up to `released`.
    pub fn try_again(&mut self, topic: TopicId, reader: &Reader, released: u64) -> (Reader, u64) {
        let link = self.connect();
        let join = join_of(reader, released);
        let id = self.request(link, Method::JoinReaders, topic, &join, &[]);
        let again = Reader {
            link,
            who: reader.who.clone(),
            turns: reader.turns.clone(),
            ..*reader
        };
        (again, id)
    }

    /// The same, with all turns released, and it attends.
    pub fn again(&mut self, topic: TopicId, reader: &Reader) -> Reader {
        let (mut again, id) = self.try_again(topic, reader, reader.turn - 1);
        self.attached(topic, &mut again, id);
        assert_eq!(again.turn, reader.turn);
        again
    }

    pub fn leave_readers(&mut self, topic: TopicId, reader: &Reader) {
        let who = reader.who.clone();
        let left: Result<Empty, ErrorReply> = self.call(
            reader.link,
            Method::LeaveReaders,
            topic,
            &LeaveReaders { who },
        );
        left.unwrap();
    }

    pub fn reader(&mut self, topic: TopicId, name: &str, rank: u32, ranks: u32) -> Reader {
        self.reader_at(topic, name, (rank, ranks), StepStart::Cursor, false)
    }

    pub fn ask(&mut self, topic: TopicId, reader: &Reader) -> u64 {
        self.ask_and_release(topic, reader, 0)
    }

    /// Asks for a rank's turn, and says that it has done with the turns up to `released`.
    pub fn ask_and_release(&mut self, topic: TopicId, reader: &Reader, released: u64) -> u64 {
        let next = NextStep {
            who: reader.who.clone(),
            turn: reader.turn,
            released,
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
        reader.turns.push(head.position);
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
            who: reader.who.clone(),
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

/// What a rank says that attaches; of turn 0 it is a new life.
fn join_of(reader: &Reader, released: u64) -> JoinReaders {
    JoinReaders {
        who: reader.who.clone(),
        ranks: reader.ranks,
        distribution: reader.distribution,
        start: match reader.began.filter(|_| reader.turns.is_empty()) {
            Some(began) => StepStart::At(began),
            None => StepStart::Cursor,
        },
        latest: reader.latest,
        session_timeout_ms: 5_000,
        life: reader.life,
        turn: reader.turn,
        released,
        turns: reader.turns.clone(),
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
