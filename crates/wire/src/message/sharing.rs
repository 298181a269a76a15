//! What members of groups and queues say, and what is sent to them. The states
//! that this is about are on the page `docs/concept/sharing.md`.

use super::{Start, Subscribe};
use crate::codec::{Appended, Codec, DecodeError, Reader, Write, record};
use crate::id::*;
use crate::message::MoveCursors;
use crate::record::{ConsumerKind, Gap, Position};
use bytes::Bytes;

record! {
    /// Makes the asker a member of a group or queue (the topic is in the
    /// request's head). The request's id is the membership's on this connection.
    pub struct Join {
        pub consumer: String,
        /// Group or queue; a name that is known has its kind already.
        pub kind: ConsumerKind,
        /// Its options, as JSON, for a name that is not known yet; empty is
        /// the default ones.
        pub options: String,
        /// Where a group or queue that is not known yet begins; `At` and
        /// `Time` are refused.
        pub start: Start,
        /// Who the asker is: a number that it chose at random, and says again
        /// when it joins anew after a lost connection.
        pub member: MemberId,
        /// Who it was when it joined last; 0 is nobody. One that was a member
        /// before does not take its instance name back from a successor.
        pub before: MemberId,
        /// Name of a static member; empty is none.
        pub instance: String,
        /// How long the member may be away before it is gone, milliseconds.
        pub session_timeout_ms: u32,
        /// Most events of a queue that the member has unsettled; 0 gets nothing more.
        pub prefetch_events: u32,
        /// Most bytes of a queue's events that it has unsettled; one larger
        /// event comes alone.
        pub prefetch_bytes: u64,
        /// Whether inline data travels with the batches of a queue.
        pub inline_data: bool,
        /// Leases that it holds from before, or has settled without an answer.
        /// What was given to this member and is not named was never seen: it
        /// is given back.
        pub held: Vec<Lease>,
    }
}

record! {
    /// The asker is a member.
    pub struct Joined {
        /// The consumer's options as they are, as JSON.
        pub options: String,
        /// Of the leases that it named, those whose events are settled already.
        /// Sent to members of before the server's start alone: what others
        /// settled in this run has its answer.
        pub settled: Vec<Lease>,
        /// Of the leases that it named, those that are not its any more; of a
        /// member of this run, settled ones as well.
        pub expired: Vec<Lease>,
        /// How long a queue may still give out nothing, because it waits for
        /// members of before the server's start, milliseconds. 0 if it does not
        /// wait, or the sender does not know this field.
        pub recovering_ms: Appended<u32>,
    }
}

record! {
    /// Ends a membership: what the member held is free at once, uncounted.
    pub struct Leave {
        pub consumer: String,
        pub member: MemberId,
    }
}

record! {
    /// All of what a group's member owns now: the head of a `FrameKind::Assigned`.
    pub struct Assigned {
        /// The partitions that it owns, revoked ones included, in order.
        pub partitions: Vec<PartitionIndex>,
        /// Those of them that it is to finish and release.
        pub revoking: Vec<PartitionIndex>,
        /// How long partitions may still be kept for members of before the
        /// server's start, milliseconds. 0 if none are, or the sender does not
        /// know this field.
        pub recovering_ms: Appended<u32>,
    }
}

record! {
    /// A group's member has done with partitions that are revoked, or does
    /// not want them.
    pub struct Release {
        pub consumer: String,
        pub member: MemberId,
        pub partitions: Vec<PartitionIndex>,
    }
}

record! {
    /// A subscription that is more than a consumer's name: of a group's
    /// member, or of one key. Answered like `Subscribe`.
    pub struct SubscribeScoped {
        /// The group's member, who owns the partition; 0 is none.
        pub member: MemberId,
        /// Only events with this key.
        pub key: Option<Bytes>,
        pub subscribe: Subscribe,
    }
}

record! {
    /// Moves cursors of a group, whose partitions the member owns.
    pub struct MoveMemberCursors {
        pub member: MemberId,
        /// How, and where to.
        pub moves: MoveCursors,
    }
}

record! {
    /// Events of a queue under one lease.
    #[derive(Copy)]
    pub struct Lease {
        pub partition: PartitionIndex,
        /// The partition's life in which the offsets count.
        pub incarnation: Incarnation,
        pub first: Offset,
        /// Behind the last one.
        pub end: Offset,
        pub lease: LeaseId,
        /// How often the events were delivered, with this time.
        pub deliveries: u32,
    }
}

record! {
    /// Events that a member of a queue has now: the head of a
    /// `FrameKind::Leased`, the batches are the payload.
    pub struct Leased {
        /// Length of each batch in the payload.
        pub batch_bytes: Vec<u64>,
        /// What of them is leased, in the order of the payload.
        pub leases: Vec<Lease>,
        /// How long the leases last, from when this was sent, milliseconds.
        pub lease_ms: u32,
        /// What is lost of events that nobody had settled, by retention or damage: reported to
        /// each member that is there, to the first one that comes if none is; at most once a
        /// second, in a frame without batches.
        pub gaps: Appended<Vec<(PartitionIndex, Gap)>>,
    }
}

/// How a member is done with events of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum SettleAs {
    /// They are settled.
    Acknowledge = 0,
    /// They are to be delivered again, after a delay; the delivery counts.
    Return = 1,
    /// They go to the dead-letter topic.
    Reject = 2,
    /// They were never looked at: as if they had not been delivered.
    GiveBack = 3,
}

impl Codec for SettleAs {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(*self as u8);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match from.u8()? {
            0 => Ok(Self::Acknowledge),
            1 => Ok(Self::Return),
            2 => Ok(Self::Reject),
            3 => Ok(Self::GiveBack),
            other => Err(from.refuse("settlement", u64::from(other))),
        }
    }
}

record! {
    /// What becomes of some events under one lease.
    pub struct Settlement {
        /// Which events, under which lease; `deliveries` is not looked at.
        pub lease: Lease,
        pub how: SettleAs,
        /// After what time they may be delivered again, for `Return`, milliseconds.
        pub delay_ms: u32,
        /// Why, for `Return` and `Reject`; at most 1 KiB is kept.
        pub reason: String,
    }
}

record! {
    /// Settles events of a queue.
    pub struct Settle {
        pub consumer: String,
        pub member: MemberId,
        /// The member's own count of these requests, from 1: one that is sent
        /// again gets the answer that it had. At most 8 may be unanswered.
        pub sequence: u64,
        /// How long the program was at its events since the request before, from
        /// the first one until it found no more and had settled all,
        /// microseconds: the server goes by it when it gives out more.
        pub worked_us: u32,
        /// What, in this order.
        pub settlements: Vec<Settlement>,
    }
}

record! {
    /// All that was not refused is settled, durably.
    pub struct Settled {
        /// What was refused: its lease had expired.
        pub expired: Vec<Lease>,
    }
}

record! {
    /// Lets leases last as long as new ones, from now.
    pub struct ExtendLeases {
        pub consumer: String,
        pub member: MemberId,
        pub leases: Vec<Lease>,
    }
}

record! {
    /// All leases last longer that are not named here.
    pub struct LeasesExtended {
        /// How long they last from now, milliseconds.
        pub lease_ms: u32,
        /// What was refused: its lease had expired.
        pub expired: Vec<Lease>,
    }
}

record! {
    /// The consumers of a topic, in the order of their names.
    pub struct ConsumerList {
        /// All consumers that have a cursor, a record, or a live subscription.
        pub consumers: Vec<ConsumerDescription>,
    }
}

record! {
    /// One consumer's name, as a client sees it.
    pub struct ConsumerDescription {
        pub consumer: String,
        /// Of which kind it is.
        pub kind: ConsumerKind,
        /// Its options, as JSON; empty for an independent one.
        pub options: String,
        pub members: Vec<MemberDescription>,
        /// Where it stands.
        pub partitions: Vec<ConsumerPartition>,
    }
}

record! {
    /// One member of a group or queue, or one client of an independent consumer.
    pub struct MemberDescription {
        /// Who it is; of an independent consumer, the client's session id.
        pub member: MemberId,
        /// Its instance name, if it is a static one.
        pub instance: String,
        /// The client's own name: program and process id.
        pub client_name: String,
        /// Whether it is present; else away.
        pub present: bool,
        /// How long nothing was heard of it, milliseconds.
        pub silent_ms: u64,
        /// The partitions that it owns or subscribes to.
        pub partitions: Vec<PartitionIndex>,
        /// Events of a queue that it has unsettled.
        pub leased_events: u64,
        /// Their bytes.
        pub leased_bytes: u64,
    }
}

record! {
    /// Where a consumer stands in one partition.
    pub struct ConsumerPartition {
        pub partition: PartitionIndex,
        /// Everything before is acknowledged or settled.
        pub position: Position,
        /// The visible end.
        pub end: Offset,
        /// Of a queue: events settled above `position`.
        pub settled: u64,
        /// Of a queue: events under a lease.
        pub leased: u64,
        /// Of a queue: events that wait for another delivery.
        pub returned: u64,
        /// Of a queue: events that wait for their delay to pass.
        pub delayed: u64,
        /// Of a queue: events on their way to the dead-letter topic.
        pub dead: u64,
    }
}

impl ConsumerPartition {
    /// Events that are not acknowledged, or not settled.
    pub fn lag(&self) -> u64 {
        let behind = self.end.0.saturating_sub(self.position.offset.0);
        behind.saturating_sub(self.settled)
    }
}
