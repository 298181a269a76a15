//! What memberships tell the queues. Nobody is given anything before it is
//! said to be present.

use crate::membership::SharedId;
use crate::node::Node;
use wire::message::{ConsumerPartition, Lease};
use wire::record::Position;
use wire::{Incarnation, MemberId, Offset, PartitionIndex};

impl Node {
    /// There is a queue: it was made, or is known from before the start. Its
    /// record may not be durable yet.
    pub(crate) fn queue_made(&mut self, _id: SharedId) {}

    /// The queue was deleted, or its topic, or its record was refused.
    pub(crate) fn queue_deleted(&mut self, _id: SharedId) {}

    /// A member has joined, durably, and names the leases that it holds: which
    /// of them are settled, and which are not its any more. It is present when
    /// [`Node::queue_member_present`] follows, behind the answer.
    pub(crate) fn queue_joined(
        &mut self,
        _id: SharedId,
        _member: MemberId,
        held: &[Lease],
    ) -> (Vec<Lease>, Vec<Lease>) {
        (Vec::new(), held.to_vec())
    }

    /// A member is there to be given events: it has joined, or was heard of again.
    pub(crate) fn queue_member_present(&mut self, _id: SharedId, _member: MemberId) {}

    /// A member is not there to be given anything, but keeps what it has.
    pub(crate) fn queue_member_away(&mut self, _id: SharedId, _member: MemberId) {}

    /// A member is gone: what it had waits again. `counted` says whether that
    /// counts as a delivery.
    pub(crate) fn queue_member_gone(&mut self, _id: SharedId, _member: MemberId, _counted: bool) {}

    /// More partitions of the queue's topic serve.
    pub(crate) fn queue_partitions_added(&mut self, _id: SharedId) {}

    /// Where a queue stands in a partition.
    pub(crate) fn queue_partition(
        &self,
        _id: SharedId,
        partition: PartitionIndex,
    ) -> ConsumerPartition {
        ConsumerPartition {
            partition,
            position: Position {
                incarnation: Incarnation(0),
                offset: Offset(0),
            },
            end: Offset(0),
            settled: 0,
            leased: 0,
            returned: 0,
            delayed: 0,
            dead: 0,
        }
    }

    /// Events that a member of a queue has unsettled, and their bytes.
    pub(crate) fn queue_leased(&self, _id: SharedId, _member: MemberId) -> (u64, u64) {
        (0, 0)
    }
}
