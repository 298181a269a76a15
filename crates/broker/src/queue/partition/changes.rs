//! What became of events, until it is recorded.

use crate::coordinator::table::Returned;
use crate::queue::RangeMap;
use std::collections::BTreeSet;
use std::time::Duration;
use wire::record::RejectedRecord;
use wire::{ConsumerId, LeaseId, MemberId, Offset, PartitionIndex, Sequence, TopicId};

/// Who has an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leased {
    /// Who.
    pub member: MemberId,
    /// Under which lease.
    pub lease: LeaseId,
    /// When the lease ends, on the monotonic clock.
    pub deadline: Duration,
    /// How often the event was delivered, with this time.
    pub deliveries: u32,
    /// What the event takes of the member's prefetch: the average of those
    /// that were given out with it.
    pub bytes: u64,
}

/// What became of events and is to be recorded.
#[derive(Debug, Clone, Default)]
pub struct Changes {
    /// Settled by members, who have them again if that can't be recorded.
    pub(super) settled: Vec<(Offset, Offset, Leased)>,
    /// Settled for good: lost, or durable as dead letters.
    pub(super) closed: Vec<(Offset, Offset)>,
    pub(super) returned: RangeMap<Returned>,
    pub(super) rejected: Vec<(Offset, RejectedRecord)>,
    /// Dead events that have no record yet.
    pub(super) unrecorded: BTreeSet<Offset>,
    pub(super) first_rejected: Sequence,
}

impl Changes {
    pub(super) fn is_empty(&self) -> bool {
        self.settled.is_empty()
            && self.closed.is_empty()
            && self.returned.is_empty()
            && self.unrecorded.is_empty()
    }
}

/// Whose changes: for records.
#[derive(Debug, Clone, Copy)]
pub struct Whose<'a> {
    /// The topic.
    pub topic: TopicId,
    /// The queue's name.
    pub consumer: &'a str,
    /// Which queue of that name.
    pub consumer_id: ConsumerId,
    /// The partition.
    pub partition: PartitionIndex,
}
