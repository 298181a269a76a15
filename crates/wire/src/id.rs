//! The names of things, each its own type, so that two cannot be swapped.

use crate::codec::{Codec, DecodeError, Reader, Write};
use std::fmt;

macro_rules! id {
    ($(#[$meta:meta])* $name:ident($type:ident), $format:literal) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $type);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, $format, self.0)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "(", $format, ")"), self.0)
            }
        }
        impl Codec for $name {
            fn encode(&self, out: &mut Vec<u8>) {
                self.0.encode(out);
            }
            fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
                Ok(Self($type::decode(from)?))
            }
        }
    };
}

id!(
    /// A topic for as long as it exists; a new topic of the same name has another.
    TopicId(u128), "{:032x}"
);
id!(
    /// A producer across its connections; a named one across restarts of its program too.
    ProducerId(u128), "{:032x}"
);
id!(
    /// Which life of a producer: a greater epoch fences the smaller ones.
    ProducerEpoch(u32), "{}"
);
id!(
    /// A producer's own count of the events it sent to one partition, from 0.
    Sequence(u64), "{}"
);
id!(
    /// A partition's place in its topic, from 0.
    PartitionIndex(u32), "{}"
);
id!(
    /// Which life of a partition: offsets mean something only within one. From 1.
    Incarnation(u64), "{}"
);
id!(
    /// An event's place in its partition, from 0.
    Offset(u64), "{}"
);
id!(
    /// A set of batches that become visible together: a transaction or a step. 0 is none.
    GroupId(u128), "{:032x}"
);
id!(
    /// A data directory, for ever.
    DirectoryId(u128), "{:032x}"
);
id!(
    /// One run of a server process.
    ServerInstance(u128), "{:032x}"
);
id!(
    /// A client's session, spanning its connections.
    SessionId(u128), "{:032x}"
);

id!(
    /// One life of a writer program of a stream of steps, from its opening to its end. From 1; 0 is none.
    Run(u64), "{}"
);
id!(
    /// A step's place in its run, from 0.
    Step(u64), "{}"
);
id!(
    /// A process or thread of a program that works in parallel, from 0.
    Rank(u32), "{}"
);
id!(
    /// One member of a group or queue; chosen by its client at random. 0 is none.
    MemberId(u128), "{:032x}"
);
id!(
    /// A group or queue for as long as it exists; a new one of the same name has another.
    /// 0 is an independent consumer.
    ConsumerId(u64), "{:016x}"
);
id!(
    /// One lease of a queue, never given twice. 0 is none.
    LeaseId(u64), "{:016x}"
);

id!(
    /// One of the nodes that have a table together; never used again for another one. 0 is the one that leads, and is given to
    /// no node that registers.
    NodeId(u32), "{}"
);
id!(
    /// A table of topics, from the first record of its log on; one whose records were lost goes on under another id.
    /// 0 is none: a node that is alone gives its table no id.
    TableId(u128), "{:032x}"
);

impl Offset {
    /// The offset `count` events later.
    ///
    /// # Panics
    /// On overflow: a partition of 2^64 events is a bug.
    pub fn plus(self, count: u64) -> Self {
        Self(self.0.checked_add(count).expect("offsets stay below 2^64"))
    }
}

/// Where an event is: what a push resolves to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId {
    /// The partition in its topic.
    pub partition: PartitionIndex,
    /// The partition's life in which the offset counts.
    pub incarnation: Incarnation,
    /// The event's place in the partition.
    pub offset: Offset,
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}@{}", self.partition, self.offset, self.incarnation)
    }
}

impl Codec for EventId {
    fn encode(&self, out: &mut Vec<u8>) {
        self.partition.encode(out);
        self.incarnation.encode(out);
        self.offset.encode(out);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            partition: Codec::decode(from)?,
            incarnation: Codec::decode(from)?,
            offset: Codec::decode(from)?,
        })
    }
}

/// What an acknowledgement of the server survives.
///
/// The order is that of strength: a producer may ask for more than its topic
/// promises, never for less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Durability {
    /// Survives nothing: the event is in the server's memory.
    Memory = 0,
    /// Survives the death of the server process: the event was handed to the
    /// operating system, which writes it back in the background.
    Written = 1,
    /// Survives power loss: covered by a completed fdatasync.
    Synced = 2,
}

impl Codec for Durability {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(*self as u8);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match from.u8()? {
            0 => Ok(Self::Memory),
            1 => Ok(Self::Written),
            2 => Ok(Self::Synced),
            other => Err(from.refuse("durability", u64::from(other))),
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory => "memory",
            Self::Written => "written",
            Self::Synced => "synced",
        })
    }
}

impl std::str::FromStr for Durability {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "memory" => Ok(Self::Memory),
            "written" => Ok(Self::Written),
            "synced" => Ok(Self::Synced),
            other => Err(format!(
                "durability is memory, written or synced, not {other:?}"
            )),
        }
    }
}
