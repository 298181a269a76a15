//! What clients are answered, and what comes to them unasked.
//!
//! Typed, as requests are: a session makes frames of Thalweg's own protocol of it
//! (`session/answers.rs`), the listener of another protocol whatever that one says.

use bytes::Bytes;
use wire::message::*;
use wire::{ErrorReply, Incarnation};

/// What goes to a client of another protocol than Thalweg's own, whose listener says it.
#[derive(Debug)]
pub enum ClientOutput {
    /// The answer to a call.
    Answer {
        /// The call's.
        id: u64,
        /// What was done, or why not.
        answer: Result<Answer, ErrorReply>,
    },
    /// What comes to a subscription or a membership.
    Delivery {
        /// Of the call that began it.
        id: u64,
        /// What comes.
        delivery: Delivery,
    },
    /// The client is let in, as [`Input::ClientHello`] asked.
    ///
    /// [`Input::ClientHello`]: crate::node::Input::ClientHello
    Welcome {
        /// Bytes of `Produce` payload that may be unanswered at once; one call larger than this is let in alone.
        produce_credit: u64,
        /// The namespace of its names.
        namespace: String,
    },
    /// How long the client's credential is good, or why another one is not taken in its place.
    Credential(Authenticated),
    /// Whether the client is there still is to be found out: [`ClientInput::Alive`], or anything
    /// else of it, says so.
    ///
    /// [`ClientInput::Alive`]: crate::request::ClientInput::Alive
    Probe,
    /// The server is to end: nothing new is taken.
    GoAway(ErrorReply),
}

/// The answer to a request that was done; one that was not is refused with an [`ErrorReply`].
#[derive(Debug)]
pub enum Answer {
    /// It is done, and there is nothing to be said of it.
    Done,
    /// To `Produce` and `AppendMirrored`.
    Produced(Produced),
    /// To `OpenMirror` and `ReceiveTopic`.
    MirrorOpened(MirrorOpened),
    /// To `Subscribe`. Deliveries follow, under the request's id.
    Subscribed(Subscribed),
    /// To `Unsubscribe`. It stays behind the deliveries that were sent before.
    Unsubscribed,
    /// To `Fetch`.
    Fetched(Batches),
    /// To `ReadData`. It stays behind the data.
    DataRead(DataRead),
    /// To `CreateTopic`, `DescribeTopic`, `AddPartitions`, `AddPlacedPartitions` and `AlterTopic`.
    Topic(TopicDescription),
    /// To `ListTopics`.
    Topics(TopicList),
    /// To `ListGaps`.
    Gaps(GapList),
    /// To `CheckAccess`.
    AccessChecked(AccessChecked),
    /// To `ListNodes`.
    Nodes(NodeList),
    /// To `YieldTopic`.
    TopicYielded(TopicYielded),
    /// To `OfferPairing`.
    PairingOffered(PairingOffered),
    /// To `OpenProducer`.
    ProducerOpened(ProducerOpened),
    /// To `ReadCursors`.
    Cursors(CursorList),
    /// To `DescribeConsumers`.
    Consumers(ConsumerList),
    /// To `Join`. What the member gets follows, under the request's id.
    Joined(Joined),
    /// To `Settle`.
    Settled(Settled),
    /// To `ExtendLeases`.
    LeasesExtended(LeasesExtended),
    /// To `OpenRun`.
    RunOpened(RunOpened),
    /// To `AttendRun`.
    RunEnded(RunEnded),
    /// To `AdmitStep`.
    StepAdmitted(StepAdmitted),
    /// To `AwaitStep`.
    StepDecided(StepDecided),
    /// To `HoldParts`.
    PartsWanted(PartsWanted),
    /// To `JoinReaders`.
    ReadersJoined(ReadersJoined),
    /// To `NextStep`, and the batches of records as they are stored.
    StepGiven(StepGiven, Vec<Bytes>),
    /// To `Status`: JSON, the same text for all who asked at once.
    Status(Bytes),
}

impl Answer {
    /// Bytes of events in it.
    pub(crate) fn events_bytes(&self) -> u64 {
        match self {
            Self::Fetched(batches) => length(&batches.batches),
            Self::StepGiven(_, records) => length(records),
            _ => 0,
        }
    }
}

impl Delivery {
    /// Bytes of events in it.
    pub(crate) fn events_bytes(&self) -> u64 {
        match self {
            Self::Events(batches) => length(&batches.batches),
            Self::Leased(_, pieces) => length(pieces),
            Self::Assigned(_) | Self::Ended(_) => 0,
        }
    }
}

fn length(pieces: &[Bytes]) -> u64 {
    pieces.iter().map(|piece| piece.len() as u64).sum()
}

/// Batches as they are stored, one behind the other. The stamp of each has the offset of its
/// first event; the first may begin before the position that was asked for.
#[derive(Debug)]
pub struct Batches {
    /// The life of the partition in which their offsets count.
    pub incarnation: Incarnation,
    /// Each in the memory that it came in.
    pub batches: Vec<Bytes>,
    /// How far the partition has come.
    pub watermarks: Watermarks,
}

/// What comes to a subscription or a member, under the id of the request that began it.
#[derive(Debug)]
pub enum Delivery {
    /// Events of a subscription.
    Events(Batches),
    /// Events of a queue under leases. A batch may be in several pieces: the head says how long
    /// each is.
    Leased(Leased, Vec<Bytes>),
    /// What a member of a group owns now.
    Assigned(Assigned),
    /// The subscription or membership has ended, and why.
    Ended(ErrorReply),
}
