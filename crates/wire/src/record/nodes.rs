//! Records of a table that several nodes have.

use crate::codec::{Codec, DecodeError, Reader, Write, record};
use crate::id::*;
use std::collections::BTreeMap;
use std::fmt;

/// Endpoints of one node.
pub const ENDPOINTS_MAX: usize = 32;
/// Labels of one node.
pub const LABELS_MAX: usize = 32;
/// Bytes of an endpoint, and of the key and of the value of a label.
pub const NODE_TEXT_BYTES_MAX: usize = 256;

record! {
    /// How far a copy of the table has come: in the log of a node that follows, behind what it has copied.
    #[derive(Copy)]
    pub struct FollowedRecord {
        /// The node that has the copy, and in its ledger the cursors of its own topics.
        pub node: NodeId,
        /// The index that the table had at its leader.
        pub index: u64,
    }
}

record! {
    /// What a node has proposed was decided: in the same batch as the records that it proposed.
    #[derive(Copy)]
    pub struct ProposedRecord {
        /// Who has proposed it.
        pub node: NodeId,
        /// That node's count of its proposals. Those before it are decided too.
        pub number: u64,
    }
}

record! {
    /// On which node a partition is. One without is on the node that leads; that of partition 0 is
    /// there before the partition, and says where the topic is served.
    #[derive(Copy)]
    pub struct PlacedRecord {
        pub topic: TopicId,
        pub partition: PartitionIndex,
        pub node: NodeId,
    }
}

record! {
    /// A topic is on its way to another node, which is to have it when the table says that it is placed there. That it is placed
    /// anywhere ends this, and so does a registration of either node.
    #[derive(Copy)]
    pub struct MovingRecord {
        pub topic: TopicId,
        /// Where to.
        pub to: NodeId,
    }
}

/// Whether a node has topics, and gets more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum NodeState {
    /// It has topics, and new ones are made on it.
    Serving = 1,
    /// It has topics, and no new ones are made on it.
    Draining = 2,
    /// It is no node of the table any more. Its id stays known, so that no other node gets it.
    Removed = 3,
    /// It has topics, has not been reached for a while, and no new ones are made on it until it is.
    Away = 4,
}

impl NodeState {
    /// The word for it, as used in output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Serving => "serving",
            Self::Draining => "draining",
            Self::Removed => "removed",
            Self::Away => "away",
        }
    }
}

impl fmt::Display for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Codec for NodeState {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(*self as u8);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match from.u8()? {
            1 => Self::Serving,
            2 => Self::Draining,
            3 => Self::Removed,
            4 => Self::Away,
            other => return Err(from.refuse("node state", u64::from(other))),
        })
    }
}

/// A bound of what is recorded of a node that is exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Excess {
    /// What there is too much of.
    pub what: &'static str,
    /// How much there is.
    pub found: usize,
    /// How much is allowed.
    pub max: usize,
}

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, found, max } = self;
        write!(f, "{found} {what} of a node, of which {max} are allowed")
    }
}

impl Excess {
    /// Whether a list of these texts exceeds a bound: their number, or the bytes of one of them.
    fn of<'a>(
        (count, what, max): (usize, &'static str, usize),
        texts: impl Iterator<Item = &'a String>,
    ) -> Option<Self> {
        let excess = |what, found, max| (found > max).then_some(Self { what, found, max });
        let bytes = texts.map(String::len).max().unwrap_or(0);
        excess(what, count, max).or_else(|| excess("bytes of a text", bytes, NODE_TEXT_BYTES_MAX))
    }
}

/// Addresses at which clients reach a node, the preferred one first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Endpoints(pub Vec<String>);

impl Endpoints {
    /// The bound that they exceed. What was decoded exceeds none.
    pub fn excess(&self) -> Option<Excess> {
        Excess::of((self.0.len(), "endpoints", ENDPOINTS_MAX), self.0.iter())
    }
}

impl Codec for Endpoints {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let endpoints = Self(Codec::decode(from)?);
        match endpoints.excess() {
            None => Ok(endpoints),
            Some(excess) => Err(from.refuse(excess.what, excess.found as u64)),
        }
    }
}

/// What is known of where a node is, for placement: `host`, `rank`, `rack`, `zone`, `nic` and others, each
/// with its value. As bytes a list of (text, text), ascending by key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Labels(pub BTreeMap<String, String>);

impl Labels {
    /// The bound that they exceed. What was decoded exceeds none.
    pub fn excess(&self) -> Option<Excess> {
        let texts = self.0.iter().flat_map(|(key, value)| [key, value]);
        Excess::of((self.0.len(), "labels", LABELS_MAX), texts)
    }
}

impl Codec for Labels {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(u32::try_from(self.0.len()).expect("labels are far below 2^32"));
        for (key, value) in &self.0 {
            key.encode(out);
            value.encode(out);
        }
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let labels: Vec<(String, String)> = Codec::decode(from)?;
        let count = labels.len();
        if !labels.is_sorted_by(|(one, _), (next, _)| one < next) {
            return Err(from.refuse("labels that do not ascend", count as u64));
        }
        let labels = Self(labels.into_iter().collect());
        match labels.excess() {
            None => Ok(labels),
            Some(excess) => Err(from.refuse(excess.what, excess.found as u64)),
        }
    }
}

record! {
    /// A node of the table: a later record about the same node replaces this one.
    pub struct NodeRecord {
        /// Given once, and to no other data directory.
        pub node: NodeId,
        /// Its data directory, by which the node is known when it comes back.
        pub directory: DirectoryId,
        /// Which of its registrations this is: from 1, and greater with each of them.
        pub epoch: u64,
        /// Which shard of its server it is.
        pub shard: u32,
        pub endpoints: Endpoints,
        pub labels: Labels,
        pub state: NodeState,
    }
}

impl NodeRecord {
    /// The bound that it exceeds. What was decoded exceeds none.
    pub fn excess(&self) -> Option<Excess> {
        self.endpoints.excess().or_else(|| self.labels.excess())
    }
}
