//! What clients ask for, decoded.
//!
//! A request is the same whichever protocol it came by: the listener of a protocol makes it, the
//! node routes it to the object that it is about, and that object answers. The parts are the
//! records of `wire`, which are plain values; bytes, frames and readers are not to be found here.

use crate::verified::{Verified, VerifiedCopy};
use std::time::Duration;
use wire::message::*;
use wire::{DirectoryId, TopicId};

/// What comes of a client of another protocol than Thalweg's own, whose listener decodes it.
#[derive(Debug)]
pub enum ClientInput {
    /// It asks for something.
    Call(Box<Call>),
    /// It does not wait any more for the answer to the call of this id.
    Cancel {
        /// The call's.
        id: u64,
    },
    /// A subscription may be delivered so many bytes more.
    Credit {
        /// Of the call that opened the subscription.
        id: u64,
        /// Beside those that it had.
        bytes: u64,
    },
    /// A member of a queue may have so much unsettled from now on.
    Prefetch {
        /// Of the call by which it joined.
        id: u64,
        /// How much.
        prefetch: Prefetch,
    },
    /// It presents another credential. Answered by [`ClientOutput::Credential`].
    ///
    /// [`ClientOutput::Credential`]: crate::answer::ClientOutput::Credential
    Authenticate(Authenticate),
    /// It was heard of.
    Alive,
}

/// How much a member of a queue may have unsettled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefetch {
    /// Events; 0 gets nothing more.
    pub events: u32,
    /// Their bytes; one larger event comes alone.
    pub bytes: u64,
    /// It is given something when so many are free, or when fewer have been for a while: with every settlement
    /// one event would make a delivery an event.
    pub step_events: u32,
    /// The same of bytes.
    pub step_bytes: u64,
}

/// A request, and what its caller wants of the answer.
#[derive(Debug)]
pub struct Call {
    /// Chosen by the listener; not the id of a call, a subscription or a membership of the same
    /// connection that is there still.
    pub id: u64,
    /// What is asked for.
    pub request: Request,
    /// How long the caller waits; for ever if `None`.
    pub patience: Option<Duration>,
    /// Whether nobody hurries for the answer.
    pub is_quiet: bool,
}

/// What is asked for, by whom it is done.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "a batch goes by value: in a box it would cost each produce request an allocation"
)]
pub enum Request {
    /// By a partition, or by some of a topic.
    Partition(Target, PartitionRequest),
    /// By whatever keeps topics, consumers and producers.
    Coordinator(CoordinatorRequest),
    /// By a queue of a topic.
    Queue(TopicId, QueueRequest),
    /// By a stream of steps, which is a topic.
    Steps(TopicId, StepsRequest),
    /// Answered by the view of the whole node, which changes nothing.
    Describe(DescribeRequest),
    /// The state of the server, for people and monitors: of the node that has this data directory, 0 being the one that is asked.
    Status(DirectoryId),
    /// The server drains and ends.
    Shutdown,
    /// A code for pairing is given out.
    OfferPairing(OfferPairing),
    /// By those who know which topics go from node to node.
    Move(TopicId, MoveRequest),
}

/// The topic of a request, as its caller knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// Its id, which a name is looked up for.
    pub topic: TopicId,
    /// The leader epoch that the caller knows; 0 is any.
    pub leader_epoch: u32,
}

/// A request to a partition.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "a batch goes by value: in a box it would cost each produce request an allocation"
)]
pub enum PartitionRequest {
    /// Appends a batch.
    Produce(Produce, Verified),
    /// Begins to write a mirror: all of its partitions.
    OpenMirror(OpenMirror),
    /// Appends a batch of a mirror's source.
    AppendMirrored(AppendMirrored, VerifiedCopy),
    /// Opens a subscription: of a consumer, a group's member, or one key.
    Subscribe(SubscribeScoped),
    /// Ends one.
    Unsubscribe(Unsubscribe),
    /// Reads batches, without a subscription.
    Fetch(Fetch),
    /// Reads data of events into memory of the caller.
    ReadData(ReadData),
}

/// A request about topics, consumers and producers.
#[derive(Debug)]
#[allow(
    missing_docs,
    reason = "each is the method of its name in `wire::message::Method`"
)]
pub enum CoordinatorRequest {
    /// On the node of the topic named first; 0 leaves that to the name.
    CreateTopic(TopicId, CreateTopic),
    DeleteTopic(TopicId, TopicName),
    AddPartitions(TopicId, AddPartitions),
    AddPlacedPartitions(TopicId, AddPlacedPartitions),
    AlterTopic(TopicId, AlterTopic),
    OpenProducer(TopicId, OpenProducer),
    MoveCursors(TopicId, MoveCursors),
    MoveMemberCursors(TopicId, MoveMemberCursors),
    ReadCursors(TopicId, ReadCursors),
    DeleteConsumer(TopicId, ConsumerName),
    Join(TopicId, Join),
    Leave(TopicId, Leave),
    Release(TopicId, Release),
    SetNode(SetNode),
}

/// A question what there is.
#[derive(Debug)]
#[allow(
    missing_docs,
    reason = "each is the method of its name in `wire::message::Method`"
)]
pub enum DescribeRequest {
    /// Those of the node that this topic is on; 0 is the one that is asked.
    ListTopics(TopicId),
    DescribeTopic(TopicName),
    ListGaps(TopicName),
    DescribeConsumers(TopicId, ConsumerName),
    CheckAccess(CheckAccess),
    /// Those of the table.
    ListNodes(ListNodes),
}

/// A request of a queue's member.
#[derive(Debug)]
pub enum QueueRequest {
    /// Settles leased events.
    Settle(Settle),
    /// Makes leases last longer.
    ExtendLeases(ExtendLeases),
}

/// A request of who moves a topic from one node to another.
#[derive(Debug)]
pub enum MoveRequest {
    /// Of the node that has it: it is to go, or to stay.
    Begin(MoveTopic),
    /// Of the node that it goes to: copies come.
    Receive(ReceiveTopic),
    /// Of the node that has it: it is served no more.
    Yield(YieldTopic),
    /// Of the node that it goes to: what the other one's ledger has said.
    Adopt(AdoptLedger),
    /// Of the node that has it: the other one has it.
    HandOver,
}

impl MoveRequest {
    /// The method by which Thalweg's own protocol asks for it.
    pub fn method(&self) -> Method {
        match self {
            Self::Begin(_) => Method::MoveTopic,
            Self::Receive(_) => Method::ReceiveTopic,
            Self::Yield(_) => Method::YieldTopic,
            Self::Adopt(_) => Method::AdoptLedger,
            Self::HandOver => Method::HandOverTopic,
        }
    }
}

/// A request of a rank that writes or reads steps.
#[derive(Debug)]
#[allow(
    missing_docs,
    reason = "each is the method of its name in `wire::message::Method`"
)]
pub enum StepsRequest {
    OpenRun(OpenRun),
    AttendRun(AttendRun),
    AdmitStep(AdmitStep),
    AwaitStep(AwaitStep),
    CloseRun(CloseRun),
    JoinReaders(JoinReaders),
    AttendReaders(AttendReaders),
    NextStep(NextStep),
    ReleaseStep(ReleaseStep),
    AwaitReaders(AwaitReaders),
    LeaveReaders(LeaveReaders),
    HoldParts(HoldParts),
}

impl StepsRequest {
    /// The method by which Thalweg's own protocol asks for it.
    pub fn method(&self) -> Method {
        match self {
            Self::OpenRun(_) => Method::OpenRun,
            Self::AttendRun(_) => Method::AttendRun,
            Self::AdmitStep(_) => Method::AdmitStep,
            Self::AwaitStep(_) => Method::AwaitStep,
            Self::CloseRun(_) => Method::CloseRun,
            Self::JoinReaders(_) => Method::JoinReaders,
            Self::AttendReaders(_) => Method::AttendReaders,
            Self::NextStep(_) => Method::NextStep,
            Self::ReleaseStep(_) => Method::ReleaseStep,
            Self::AwaitReaders(_) => Method::AwaitReaders,
            Self::LeaveReaders(_) => Method::LeaveReaders,
            Self::HoldParts(_) => Method::HoldParts,
        }
    }
}

impl Request {
    /// The method by which Thalweg's own protocol asks for it.
    pub fn method(&self) -> Method {
        use CoordinatorRequest as Coordinator;
        match self {
            Self::Partition(_, request) => match request {
                PartitionRequest::Produce(..) => Method::Produce,
                PartitionRequest::OpenMirror(_) => Method::OpenMirror,
                PartitionRequest::AppendMirrored(..) => Method::AppendMirrored,
                PartitionRequest::Subscribe(_) => Method::SubscribeScoped,
                PartitionRequest::Unsubscribe(_) => Method::Unsubscribe,
                PartitionRequest::Fetch(_) => Method::Fetch,
                PartitionRequest::ReadData(_) => Method::ReadData,
            },
            Self::Steps(_, request) => request.method(),
            Self::Queue(_, QueueRequest::Settle(_)) => Method::Settle,
            Self::Queue(_, QueueRequest::ExtendLeases(_)) => Method::ExtendLeases,
            Self::Describe(DescribeRequest::ListTopics(_)) => Method::ListTopics,
            Self::Describe(DescribeRequest::DescribeTopic(_)) => Method::DescribeTopic,
            Self::Describe(DescribeRequest::ListGaps(_)) => Method::ListGaps,
            Self::Describe(DescribeRequest::DescribeConsumers(..)) => Method::DescribeConsumers,
            Self::Describe(DescribeRequest::CheckAccess(_)) => Method::CheckAccess,
            Self::Describe(DescribeRequest::ListNodes(_)) => Method::ListNodes,
            Self::Status(_) => Method::Status,
            Self::Shutdown => Method::Shutdown,
            Self::OfferPairing(_) => Method::OfferPairing,
            Self::Move(_, request) => request.method(),
            Self::Coordinator(request) => match request {
                Coordinator::CreateTopic(..) => Method::CreateTopic,
                Coordinator::DeleteTopic(..) => Method::DeleteTopic,
                Coordinator::AddPartitions(..) => Method::AddPartitions,
                Coordinator::AddPlacedPartitions(..) => Method::AddPlacedPartitions,
                Coordinator::AlterTopic(..) => Method::AlterTopic,
                Coordinator::OpenProducer(..) => Method::OpenProducer,
                Coordinator::MoveCursors(..) => Method::MoveCursors,
                Coordinator::MoveMemberCursors(..) => Method::MoveMemberCursors,
                Coordinator::ReadCursors(..) => Method::ReadCursors,
                Coordinator::DeleteConsumer(..) => Method::DeleteConsumer,
                Coordinator::Join(..) => Method::Join,
                Coordinator::Leave(..) => Method::Leave,
                Coordinator::Release(..) => Method::Release,
                Coordinator::SetNode(_) => Method::SetNode,
            },
        }
    }

    /// Whether it gives back what its client was given before, or keeps its place: no event is
    /// taken or handed out for it.
    pub(crate) fn gives_back(&self) -> bool {
        use CoordinatorRequest as Coordinator;
        match self {
            Self::Partition(_, PartitionRequest::Unsubscribe(_)) | Self::Queue(..) => true,
            Self::Coordinator(Coordinator::MoveCursors(_, moved)) => {
                moved.how == CursorMove::Acknowledge
            }
            Self::Coordinator(request) => matches!(
                request,
                Coordinator::MoveMemberCursors(..)
                    | Coordinator::Leave(..)
                    | Coordinator::Release(..)
            ),
            Self::Steps(_, request) => matches!(
                request,
                StepsRequest::AttendRun(_)
                    | StepsRequest::CloseRun(_)
                    | StepsRequest::AttendReaders(_)
                    | StepsRequest::ReleaseStep(_)
                    | StepsRequest::LeaveReaders(_)
            ),
            Self::Partition(..)
            | Self::Describe(_)
            | Self::Status(_)
            | Self::Shutdown
            | Self::Move(..)
            | Self::OfferPairing(_) => false,
        }
    }

    /// Bytes of events that it brings.
    pub(crate) fn payload_bytes(&self) -> u64 {
        match self {
            Self::Partition(_, PartitionRequest::Produce(_, batch)) => batch.bytes(),
            Self::Partition(_, PartitionRequest::AppendMirrored(_, batch)) => batch.bytes(),
            _ => 0,
        }
    }
}

impl From<DescribeRequest> for Request {
    fn from(request: DescribeRequest) -> Self {
        Self::Describe(request)
    }
}

impl From<CoordinatorRequest> for Request {
    fn from(request: CoordinatorRequest) -> Self {
        Self::Coordinator(request)
    }
}
