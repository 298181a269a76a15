//! The typed records of the table's log and of ledgers, and of gap batches.
//!
//! An internal record is an event whose metadata is a [`Record`]. State is
//! the replay of its records: a later one replaces an earlier one about the same
//! topic, partition, cursor, named producer, consumer, member or assignment;
//! gaps and what is settled add up.

use crate::codec::{Codec, DecodeError, Reader, Write, record};
use crate::id::*;
use std::fmt;

mod nodes;
mod sharing;

pub use nodes::*;
pub use sharing::*;

/// Why offsets hold no event any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum GapReason {
    /// Retention by bytes, age or count.
    Retention = 1,
    /// A memory partition was lost with its server.
    MemoryLost = 2,
    /// A `written` partition met a power loss.
    PowerLoss = 3,
    /// Stored bytes fail their checksum.
    Damaged = 4,
    /// A full topic's policy, although a consumer had not acknowledged them.
    Discarded = 5,
}

impl GapReason {
    /// The word for it, as used in output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Retention => "retention",
            Self::MemoryLost => "memory lost",
            Self::PowerLoss => "power loss",
            Self::Damaged => "damaged",
            Self::Discarded => "discarded",
        }
    }
}

impl fmt::Display for GapReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Codec for GapReason {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(*self as u8);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match from.u8()? {
            1 => Self::Retention,
            2 => Self::MemoryLost,
            3 => Self::PowerLoss,
            4 => Self::Damaged,
            5 => Self::Discarded,
            other => return Err(from.refuse("gap reason", u64::from(other))),
        })
    }
}

record! {
    /// Offsets of one incarnation that hold no event any more.
    #[derive(Copy)]
    pub struct Gap {
        /// The partition's life in which the offsets count.
        pub incarnation: Incarnation,
        /// The first lost offset.
        pub first: Offset,
        /// The offset behind the last lost one; how many were lost may be
        /// unknown (`MemoryLost`, `PowerLoss`, `Damaged`), then it equals `first`.
        pub end: Offset,
        pub reason: GapReason,
        /// When it was noticed, nanoseconds since 1970.
        pub time: u64,
    }
}

impl Gap {
    /// Whether it is the end of its life: all that came from `first` on is gone, however much
    /// that was.
    pub fn ends_life(&self) -> bool {
        match self.reason {
            GapReason::MemoryLost | GapReason::PowerLoss => true,
            GapReason::Damaged => self.first == self.end,
            GapReason::Retention | GapReason::Discarded => false,
        }
    }

    /// Whether it may be one with a neighbour of the same reason. Empty damage is not: that it is
    /// empty says that a life ends there.
    pub fn may_join(&self) -> bool {
        self.reason != GapReason::Damaged || self.first < self.end
    }

    /// Takes in `next` if that goes on where this one ends, in the same life and for the same
    /// reason. Says whether.
    pub fn join(&mut self, next: &Self) -> bool {
        let goes_on = (self.incarnation, self.reason, self.end)
            == (next.incarnation, next.reason, next.first);
        let joins = goes_on && self.may_join() && next.may_join();
        if joins {
            self.end = next.end;
            self.time = next.time;
        }
        joins
    }

    /// Whether the next life kept what came before it.
    pub fn keeps_what_came_before(&self) -> bool {
        self.ends_life() && self.reason != GapReason::MemoryLost
    }
}

record! {
    /// A position in one partition: the next event to read.
    #[derive(Copy, PartialOrd, Ord, Hash)]
    pub struct Position {
        /// The partition's life in which the offset counts.
        pub incarnation: Incarnation,
        /// The next event's offset.
        pub offset: Offset,
    }
}

record! {
    /// What the table knows of a topic.
    pub struct TopicRecord {
        /// The namespace; empty is the default one.
        pub namespace: String,
        pub name: String,
        pub topic: TopicId,
        /// The definition, as the JSON that `topic` reads and writes.
        pub definition: String,
    }
}

record! {
    /// One partition of a topic.
    pub struct PartitionRecord {
        pub topic: TopicId,
        /// The place in the topic.
        pub partition: PartitionIndex,
        /// Storage kind: `disk`, `memory`, or a name registered by a user.
        pub storage: String,
        /// The storage's configuration, as JSON.
        pub config: String,
        /// Which life it is in.
        pub incarnation: Incarnation,
        /// Epoch of its leader: from 1, and greater with each new leader and each new life.
        pub leader_epoch: u32,
        /// Lives that ended: (incarnation, end when it ended).
        pub ended: Vec<(Incarnation, Offset)>,
    }
}

record! {
    /// Where a consumer of a name stands in one partition.
    pub struct CursorRecord {
        /// The namespace of the consumer's name.
        pub namespace: String,
        pub consumer: String,
        pub topic: TopicId,
        pub partition: PartitionIndex,
        /// The next event to read; `None` forgets the cursor.
        pub position: Option<Position>,
        /// The group, among those that have had its name; 0 is an independent consumer.
        pub consumer_id: ConsumerId,
    }
}

record! {
    /// A producer with a name, and its current life.
    pub struct ProducerRecord {
        /// The namespace of the producer's name.
        pub namespace: String,
        pub name: String,
        /// The topic: a producer's name counts within it.
        pub topic: TopicId,
        /// Its id, kept across restarts of its program.
        pub producer: ProducerId,
        /// Its life: smaller ones are fenced.
        pub epoch: ProducerEpoch,
    }
}

record! {
    /// A gap in one partition of a topic.
    pub struct GapRecord {
        pub topic: TopicId,
        pub partition: PartitionIndex,
        /// What is missing, and why.
        pub gap: Gap,
    }
}

record! {
    /// What a partition remembers of one producer, to know a retry.
    pub struct ProducerState {
        pub producer: ProducerId,
        /// Its greatest epoch seen.
        pub epoch: ProducerEpoch,
        /// When it last appended, nanoseconds since 1970.
        pub last_time: u64,
        /// Its last batches: first sequence, event count, base offset. The newest is last.
        pub batches: Vec<SequenceRange>,
    }
}

record! {
    /// Which offsets a producer's sequence numbers got.
    #[derive(Copy)]
    pub struct SequenceRange {
        /// The first event's sequence number.
        pub first: Sequence,
        /// How many events.
        pub count: u32,
        /// The first event's offset.
        pub base_offset: Offset,
    }
}

/// A record of the table's log or of a ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// A topic exists.
    Topic(TopicRecord),
    /// A topic was deleted, with its partitions, cursors, producers and gaps.
    TopicDeleted(TopicId),
    /// A partition exists.
    Partition(PartitionRecord),
    /// A cursor moved.
    Cursor(CursorRecord),
    /// A named producer opened.
    Producer(ProducerRecord),
    /// Offsets were lost.
    Gap(GapRecord),
    /// A group or queue exists.
    Consumer(ConsumerRecord),
    /// A group or queue was deleted.
    ConsumerDeleted(ConsumerDeletedRecord),
    /// A member came or went.
    Member(MemberRecord),
    /// A partition of a group changed its owner.
    Assignment(AssignmentRecord),
    /// Events of a queue are settled.
    Settled(SettledRecord),
    /// Events of a queue came back.
    Returned(ReturnedRecord),
    /// An event of a queue is to be a dead letter.
    Rejected(RejectedRecord),
    /// The table has this id from here on.
    Table(TableId),
    /// So far a copy of the table has come.
    Followed(FollowedRecord),
    /// What a node has proposed was decided, so far.
    Proposed(ProposedRecord),
    /// A partition is on a node.
    Placed(PlacedRecord),
    /// A node is known, has come back at other addresses, or has another state.
    Node(NodeRecord),
    /// A topic is on its way to another node.
    Moving(MovingRecord),
    /// What follows about this topic is all that the ledger of another node has said of it: nothing that was said before counts.
    Adopted(TopicId),
}

/// The version of a type of record that this code writes and reads.
fn version_of(kind: u16) -> u16 {
    match kind {
        // 2 has the leader epoch; of the others, which consumer of a name it is.
        3 | 4 | 7 | 11..=13 => 2,
        _ => 1,
    }
}

impl Codec for Record {
    fn encode(&self, out: &mut Vec<u8>) {
        // Type and version, two bytes each; a later version appends fields.
        let mut tag = |kind: u16| {
            out.put_u16(kind);
            out.put_u16(version_of(kind));
        };
        match self {
            Self::Topic(_) => tag(1),
            Self::TopicDeleted(_) => tag(2),
            Self::Partition(_) => tag(3),
            Self::Cursor(_) => tag(4),
            Self::Producer(_) => tag(5),
            Self::Gap(_) => tag(6),
            Self::Consumer(_) => tag(7),
            Self::ConsumerDeleted(_) => tag(8),
            Self::Member(_) => tag(9),
            Self::Assignment(_) => tag(10),
            Self::Settled(_) => tag(11),
            Self::Returned(_) => tag(12),
            Self::Rejected(_) => tag(13),
            Self::Table(_) => tag(14),
            Self::Followed(_) => tag(15),
            Self::Proposed(_) => tag(16),
            Self::Placed(_) => tag(17),
            Self::Node(_) => tag(18),
            Self::Moving(_) => tag(19),
            Self::Adopted(_) => tag(20),
        }
        match self {
            Self::Topic(record) => record.encode(out),
            Self::TopicDeleted(topic) => topic.encode(out),
            Self::Partition(record) => record.encode(out),
            Self::Cursor(record) => record.encode(out),
            Self::Producer(record) => record.encode(out),
            Self::Gap(record) => record.encode(out),
            Self::Consumer(record) => record.encode(out),
            Self::ConsumerDeleted(record) => record.encode(out),
            Self::Member(record) => record.encode(out),
            Self::Assignment(record) => record.encode(out),
            Self::Settled(record) => record.encode(out),
            Self::Returned(record) => record.encode(out),
            Self::Rejected(record) => record.encode(out),
            Self::Table(table) => table.encode(out),
            Self::Followed(record) => record.encode(out),
            Self::Proposed(record) => record.encode(out),
            Self::Placed(record) => record.encode(out),
            Self::Node(record) => record.encode(out),
            Self::Moving(record) => record.encode(out),
            Self::Adopted(topic) => topic.encode(out),
        }
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        const WHAT: &str = "internal record";
        let kind = from.u16()?;
        let version = from.u16()?;
        if version != version_of(kind) {
            let (found, own) = (version.into(), version_of(kind).into());
            return Err(DecodeError::version(WHAT, 2, "record version", found, own));
        }
        Ok(match kind {
            1 => Self::Topic(Codec::decode(from)?),
            2 => Self::TopicDeleted(Codec::decode(from)?),
            3 => Self::Partition(Codec::decode(from)?),
            4 => Self::Cursor(Codec::decode(from)?),
            5 => Self::Producer(Codec::decode(from)?),
            6 => Self::Gap(Codec::decode(from)?),
            7 => Self::Consumer(Codec::decode(from)?),
            8 => Self::ConsumerDeleted(Codec::decode(from)?),
            9 => Self::Member(Codec::decode(from)?),
            10 => Self::Assignment(Codec::decode(from)?),
            11 => Self::Settled(Codec::decode(from)?),
            12 => Self::Returned(Codec::decode(from)?),
            13 => Self::Rejected(Codec::decode(from)?),
            14 => Self::Table(Codec::decode(from)?),
            15 => Self::Followed(Codec::decode(from)?),
            16 => Self::Proposed(Codec::decode(from)?),
            17 => Self::Placed(Codec::decode(from)?),
            18 => Self::Node(Codec::decode(from)?),
            19 => Self::Moving(Codec::decode(from)?),
            20 => Self::Adopted(Codec::decode(from)?),
            other => return Err(DecodeError::newer(WHAT, 0, "record type", other.into())),
        })
    }
}
