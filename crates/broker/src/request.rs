//! What clients ask for, decoded.
//!
//! A request is the same whichever protocol it came by: the listener of a protocol makes it, the
//! node routes it to the object that it is about, and that object answers. The parts are the
//! records of `wire`, which are plain values; bytes, frames and readers are not to be found here.

use memory::Buffer;
use wire::TopicId;
use wire::message::*;

/// What is asked for, by whom it is done.
#[derive(Debug)]
pub enum Request {
    /// By a partition, or by some of a topic.
    Partition(Target, PartitionRequest),
    /// By whatever keeps topics, consumers and producers.
    Coordinator(CoordinatorRequest),
    /// By a queue of a topic.
    Queue(TopicId, QueueRequest),
    /// The state of the server, for people and monitors.
    Status,
    /// The server drains and ends.
    Shutdown,
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
pub enum PartitionRequest {
    /// Appends a batch.
    Produce(Produce, Buffer),
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
    CreateTopic(CreateTopic),
    DeleteTopic(TopicName),
    ListTopics,
    DescribeTopic(TopicName),
    ListGaps(TopicName),
    AddPartitions(TopicId, AddPartitions),
    AlterTopic(TopicId, AlterTopic),
    OpenProducer(TopicId, OpenProducer),
    MoveCursors(TopicId, MoveCursors),
    MoveMemberCursors(TopicId, MoveMemberCursors),
    ReadCursors(TopicId, ReadCursors),
    DeleteConsumer(TopicId, ConsumerName),
    DescribeConsumers(TopicId, ConsumerName),
    Join(TopicId, Join),
    Leave(TopicId, Leave),
    Release(TopicId, Release),
}

/// A request of a queue's member.
#[derive(Debug)]
pub enum QueueRequest {
    /// Settles leased events.
    Settle(Settle),
    /// Makes leases last longer.
    ExtendLeases(ExtendLeases),
}

impl From<CoordinatorRequest> for Request {
    fn from(request: CoordinatorRequest) -> Self {
        Self::Coordinator(request)
    }
}
