//! The names of things in a node.

use std::time::Duration;
use wire::{MemberId, NodeId, PartitionIndex, TopicId};

/// A connection, as its executor names it. Never used again for another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u64);

/// An open storage of the node. Never used again for another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StorageId(pub u64);

/// A blocking job that the executor does elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

/// A group or queue in this run of the server. Never used again for another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SharedId(pub u64);

/// A partition's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PartitionKey {
    pub topic: TopicId,
    pub partition: PartitionIndex,
}

/// Names the fetching of one batch's external data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TransferId(pub u64);

/// Who asked: a connection, and its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RequestId {
    pub link: LinkId,
    pub id: u64,
}

impl RequestId {
    /// Of what follows from a request of a connection and is answered to nobody. Ids of requests
    /// count from below and do not come as far.
    pub fn unasked(link: LinkId) -> Self {
        Self { link, id: u64::MAX }
    }
}

/// A member of a group or queue that has joined on a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Membership {
    pub shared: SharedId,
    pub member: MemberId,
    pub session_timeout: Duration,
}

/// What a link has sent with this number, on this connection, is of its present session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Opening {
    pub link: LinkId,
    pub number: u64,
}

/// The caller of what the server appends itself: no connection has this id.
pub(crate) const OWN_LINK: LinkId = LinkId(u64::MAX);

/// The node that leads the table.
pub const LEADER: NodeId = NodeId(0);

/// The storage of the table's log.
pub(crate) const TABLE_STORAGE: StorageId = StorageId(0);
/// The storage of the ledger.
pub(crate) const LEDGER_STORAGE: StorageId = StorageId(u64::MAX);

/// What a bulk operation is for.
pub(crate) enum Bulk {
    /// A chunk of external data comes in.
    Transfer(StorageId, TransferId),
    /// Selected data goes out.
    ReadData(u64),
}

/// The time, as the executor sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Since some fixed moment; for deadlines.
    pub monotonic: Duration,
    /// Nanoseconds since 1970; for stamps and retention.
    pub unix_ns: u64,
}

/// What a blocking job is for.
pub(crate) enum Purpose {
    /// A partition of a topic in the making.
    Open(u64, StorageId),
    /// The end of a partition, and what that is for the operator, who hears of it if it fails.
    Remove(PartitionKey, String),
    /// A topic's file is as the table is.
    KeepTopic(TopicId),
    /// How far table and ledger came.
    KeepStart,
    /// Something of the sessions'.
    Session(SessionJob),
}

/// What a blocking job of the sessions is for.
pub(crate) enum SessionJob {
    /// Which tokens for one session were presented.
    KeepUsed,
    /// Who the client of a connection is.
    Examine(LinkId),
}
