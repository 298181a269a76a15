//! Records of groups and queues. The states that they keep are on the page
//! `docs/concept/sharing.md`.

use crate::codec::{Codec, DecodeError, Reader, Write, record};
use crate::id::*;
use crate::record::Position;

/// How consumers of one name share a topic's events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ConsumerKind {
    /// They do not: each gets every event.
    Independent = 0,
    /// The partitions are shared out among them.
    Group = 1,
    /// Each event goes to one of them, under a lease.
    Queue = 2,
}

impl ConsumerKind {
    /// The word for it, as used in output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Independent => "independent",
            Self::Group => "group",
            Self::Queue => "queue",
        }
    }
}

impl std::fmt::Display for ConsumerKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl Codec for ConsumerKind {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(*self as u8);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match from.u8()? {
            0 => Ok(Self::Independent),
            1 => Ok(Self::Group),
            2 => Ok(Self::Queue),
            other => Err(from.refuse("consumer kind", u64::from(other))),
        }
    }
}

record! {
    /// A group or queue exists.
    pub struct ConsumerRecord {
        /// The namespace of its name.
        pub namespace: String,
        pub consumer: String,
        pub topic: TopicId,
        /// Group or queue.
        pub kind: ConsumerKind,
        /// Its options, as JSON.
        pub options: String,
        /// Which of those that have had its name it is; random, never 0.
        pub id: ConsumerId,
        /// Where it begins: the next event of each partition that does not begin with the
        /// first event that ever was.
        pub starts: Vec<(PartitionIndex, Position)>,
    }
}

record! {
    /// A group or queue was deleted, with all that is known of it, cursors included.
    pub struct ConsumerDeletedRecord {
        pub topic: TopicId,
        pub consumer: String,
    }
}

record! {
    /// A member of a group or queue.
    pub struct MemberRecord {
        pub topic: TopicId,
        pub consumer: String,
        pub member: MemberId,
        /// Its instance name, if it is a static one.
        pub instance: String,
        /// The client's own name: program and process id.
        pub client_name: String,
        /// How long it may be away before it is gone, milliseconds.
        pub session_timeout_ms: u32,
        /// Whether it is one; else it is gone.
        pub is_member: bool,
    }
}

record! {
    /// Who owns a partition in a group.
    pub struct AssignmentRecord {
        pub topic: TopicId,
        pub consumer: String,
        pub partition: PartitionIndex,
        /// The owner; 0 is nobody.
        pub owner: MemberId,
    }
}

record! {
    /// Events of a queue that are settled.
    pub struct SettledRecord {
        pub topic: TopicId,
        pub consumer: String,
        pub partition: PartitionIndex,
        /// The partition's life in which the offsets count; settlements of
        /// an older one are forgotten.
        pub incarnation: Incarnation,
        /// First, and behind the last one; ranges in any order.
        pub ranges: Vec<(Offset, Offset)>,
        /// Events before this were delivered once at least.
        pub delivered: Offset,
        /// The sequence number of the next dead letter of the partition's events.
        pub next_rejected: Sequence,
        /// The queue, among those that have had its name.
        pub consumer_id: ConsumerId,
    }
}

record! {
    /// Events of a queue that were delivered and came back.
    pub struct ReturnedRecord {
        pub topic: TopicId,
        pub consumer: String,
        pub partition: PartitionIndex,
        /// The partition's life in which the offsets count.
        pub incarnation: Incarnation,
        pub first: Offset,
        /// Behind the last one.
        pub end: Offset,
        /// How often each was delivered so far.
        pub deliveries: u32,
        /// Not to be delivered before, nanoseconds since 1970; 0 is at once.
        pub not_before: u64,
        /// The queue, among those that have had its name.
        pub consumer_id: ConsumerId,
    }
}

record! {
    /// An event of a queue that is to go to the dead-letter topic.
    pub struct RejectedRecord {
        pub topic: TopicId,
        pub consumer: String,
        pub partition: PartitionIndex,
        /// The partition's life in which the offset counts.
        pub incarnation: Incarnation,
        pub offset: Offset,
        /// How often it was delivered.
        pub deliveries: u32,
        pub reason: String,
        /// When, nanoseconds since 1970.
        pub time: u64,
        /// The place among the dead letters of this queue's partition, from
        /// 0: the sequence number under which it is written.
        pub sequence: Sequence,
        /// The queue, among those that have had its name.
        pub consumer_id: ConsumerId,
    }
}
