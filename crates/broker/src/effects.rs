//! What an act of one object asks of the others. The object notes it in the context; the node
//! routes it right behind the act, in the order in which it was noted.

use crate::answer::{Answer, Delivery};
use crate::coordinator::controller::ControlError;
use crate::ids::{LinkId, Membership, Opening, PartitionKey, RequestId, SharedId, StorageId};
use crate::request::Request;
use bytes::Bytes;
use log::{DataPlace, EventData, Found, Storage, StorageError};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use topic::{Definition, QueueOptions, Retention};
use wire::message::Lease;
use wire::record::{Gap, PartitionRecord, Position, ProducerState};
use wire::{
    ErrorReply, Incarnation, MemberId, Offset, PartitionIndex, ProducerEpoch, ProducerId, TopicId,
};

/// Effects that are noted and not carried out yet, in order. Carrying one out calls another
/// object, which may note more: those come next, before what was noted earlier, so that an act
/// is over with all that it asked for before anything else happens.
#[derive(Default)]
pub(crate) struct Effects {
    noted: VecDeque<Effect>,
    /// So many in front were noted by acts that wait for the present one to be over.
    outer: usize,
}

impl Effects {
    pub fn push_back(&mut self, effect: Effect) {
        self.noted.push_back(effect);
    }

    /// The next effect of the present act.
    pub fn pop(&mut self) -> Option<Effect> {
        match self.outer {
            0 => self.noted.pop_front(),
            outer => self.noted.remove(outer),
        }
    }

    /// An effect is carried out: what is noted from now on is of an act inside of it. Returns
    /// what [`Effects::leave`] is told when it is over.
    pub fn enter(&mut self) -> usize {
        std::mem::replace(&mut self.outer, self.noted.len())
    }

    pub fn leave(&mut self, outer: usize) {
        debug_assert_eq!(
            self.noted.len(),
            self.outer,
            "acts are over with their effects"
        );
        self.outer = outer;
    }
}

/// See the module.
pub(crate) enum Effect {
    /// A request is answered.
    Answer(RequestId, Answer),
    Refuse(RequestId, ErrorReply),
    /// Something comes to a subscription or a membership, which this request began.
    Deliver(RequestId, Delivery),
    /// A subscription has ended by itself: its session forgets it.
    SubscriptionEnded(RequestId),
    /// An append of the server itself is stored, or was refused.
    OwnAppend(u64, Result<(), ErrorReply>),
    /// The visible end of a partition of this topic has moved.
    Visible(TopicId),
    /// A partition, now in this incarnation, has lost events.
    Lost(PartitionKey, Incarnation, Gap),
    /// The data of a dead letter is damaged where it is stored: the letter goes without it.
    LetterDataLost(u64, String),
    /// Something was read for another object.
    Read(ReadFor, WasRead),
    /// External data that another object writes has come so far.
    Copy(StorageId, DataPlace, Copied),
    /// A partition takes nothing more, or is gone.
    Failed(StorageId, ErrorReply),
    /// A member of a group or queue joins by this request, on its connection.
    MembershipBegun(RequestId, Membership),
    /// The membership that this request began has ended. With an error its client is notified,
    /// unless it waits for the answer.
    MembershipEnded(RequestId, Option<ErrorReply>),
    /// A member of this connection has fallen silent: it is to be noticed when something is heard.
    MemberSilent(LinkId),
    /// A connection is asked for a sign of life.
    AskForLife(LinkId),
    /// What a member reads on a connection ends: all, or one partition.
    EndReading {
        link: LinkId,
        of: ((SharedId, MemberId), Option<PartitionIndex>),
        error: ErrorReply,
    },
    /// Something has happened that a queue is to know.
    Queue(SharedId, QueueNotice),
    /// A partition of a topic in the making is open.
    Install(StorageId, Box<NewPartition>),
    /// A partition is to do something.
    Partition(StorageId, PartitionAct),
    /// A request to open a producer is answered with what each partition expects of it.
    ProducerOpened(RequestId, TopicId, ProducerId, ProducerEpoch),
    /// A request is to be done as if its caller had asked for it now: for the cursor of readers of
    /// steps that have done with one, for a read whose data has come, for what waited until the table here had all that
    /// was decided.
    Ask(RequestId, Box<Request>),
    /// A request is answered with the description of a topic.
    Describe(RequestId, TopicId),
}

/// What a partition is asked to do by those who decide of its topic.
pub(crate) enum PartitionAct {
    /// Keeps other events than before.
    Keep(Keep),
    /// Goes, and its files. With an error its topic was deleted, and those that read it
    /// or wait for it are notified.
    Remove(Option<ErrorReply>),
    /// A producer's new life has begun: what waits of an older one is refused.
    Fence(ProducerId, ProducerEpoch),
    /// Takes batches from this mover alone.
    OpenForLink(Opening),
    /// Remembers what is said of producers.
    Adopt(Vec<ProducerState>),
    /// Is served no more: those that read it or wait for it hear of that, and nobody writes it.
    Yield(ErrorReply),
    /// Is served here from now on, or again.
    Lead {
        definition: Arc<Definition>,
        leader_epoch: u32,
        /// Lives that ended, oldest first, and where each ended.
        ended: Vec<(Incarnation, Offset)>,
        /// What is recorded as lost at the ends of lives.
        ends: BTreeMap<Incarnation, Gap>,
    },
}

/// A partition that was opened.
pub(crate) struct NewPartition {
    pub topic_name: String,
    pub definition: Arc<Definition>,
    pub storage: Box<dyn Storage>,
    /// Tells the life it is in.
    pub record: PartitionRecord,
}

/// What a partition keeps.
pub(crate) struct Keep {
    pub definition: Arc<Definition>,
    pub bound: Retention,
    /// Where those stand, if anywhere, whose acknowledgement events wait for.
    pub acknowledged: Vec<Option<Position>>,
}

/// What a queue hears of its members, and of the table.
pub(crate) enum QueueNotice {
    /// It was made, or is known from before the start; then these members are awaited, who may
    /// hold what looks free.
    Made {
        options: QueueOptions,
        awaited: BTreeSet<MemberId>,
    },
    /// It is here no more: it was deleted, or its topic, its record was refused, or its topic has
    /// gone to another node. What those hear who wait for it.
    Ended(ErrorReply),
    /// A member has joined, durably, and names the leases that it holds. Its caller waits for
    /// the answer; it is present when that is sent.
    Joined {
        member: MemberId,
        caller: RequestId,
        held: Vec<Lease>,
    },
    /// A member is there to be given events.
    Present(MemberId),
    /// A member is not there to be given anything, but keeps what it has.
    Away(MemberId),
    /// A member is gone. `counted` says whether that counts as a delivery of what it had;
    /// `error` is for those of its settlements that are not answered.
    Gone {
        member: MemberId,
        counted: bool,
        error: ErrorReply,
    },
    /// Its command is durable, or was refused.
    Recorded(Result<(), ControlError>),
}

/// Who outside of a partition reads it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ReadFor {
    /// A queue, from where on and up to where.
    Queue {
        id: SharedId,
        partition: PartitionIndex,
        /// From this event to before that one.
        at: (Offset, Offset),
    },
    /// The event of a queue's dead letter.
    DeadLetter {
        id: SharedId,
        partition: PartitionIndex,
    },
    /// Where the data of a dead letter is.
    LetterOpen { append: u64 },
    /// A chunk of a dead letter's data.
    LetterData { append: u64 },
    /// Records or parts of a stream of steps.
    Steps { topic: TopicId, what: StepsRead },
    /// Where the data of an event of a `ReadData` call is.
    Open { call: u64, event: usize },
    /// A part of a chunk of a `ReadData` call.
    Data {
        call: u64,
        chunk: usize,
        part: usize,
    },
}

/// What a stream of steps reads.
#[derive(Debug, Clone, Copy)]
pub(crate) enum StepsRead {
    /// Records, at a start.
    Records,
    /// Parts of this partition.
    Parts(PartitionIndex),
    /// The records of a turn of a group of readers; of one that is pinned, its copy.
    Turn {
        group: u64,
        turn: u64,
        is_pinned: bool,
    },
    /// A pinned record that is to be copied, as retention is to take it.
    Pin,
}

/// What a reading found.
pub(crate) enum WasRead {
    Batches(Result<Found, StorageError>),
    Event(Result<EventData, StorageError>),
    Data(Result<Vec<Bytes>, StorageError>),
}

/// How far external data has come that is written for another object.
pub(crate) enum Copied {
    /// A chunk is written.
    Written,
    /// All of it is stored.
    Ready,
    Failed(ErrorReply),
}
