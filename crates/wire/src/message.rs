//! What client and server say to each other, apart from batches. Each struct
//! is the head of one kind of frame; `docs/format/wire.md` says when it is sent.

use crate::codec::{Appended, Codec, DecodeError, Reader, Write, record};
use crate::error::ErrorReply;
use crate::id::*;
use crate::record::{Gap, Position};
use crate::view::{Segment, StridedSegment};
use bytes::Bytes;

mod access;
mod mirror;
mod moves;
mod nodes;
mod sharing;
mod steps;

pub use access::*;
pub use mirror::*;
pub use moves::*;
pub use nodes::*;
pub use sharing::*;
pub use steps::*;

/// The version of the protocol that this code speaks. Batches travel in it, so that it goes up
/// with [`crate::batch::FORMAT_VERSION`].
pub const PROTOCOL_VERSION: u16 = 2;

/// A bit of the features of `Hello` and `Welcome`: `ReadData` may have strided selections.
pub const FEATURE_STRIDES: u64 = 1 << 0;
/// A bit of the features of `Hello` and `Welcome`: a session may have several connections, which carry its bytes
/// in chunks from behind `Welcome` on.
pub const FEATURE_STRIPES: u64 = 1 << 1;
/// The features that this code knows.
pub const FEATURES: u64 = FEATURE_STRIDES | FEATURE_STRIPES;
/// The most connections of one session.
pub const STRIPES_MAX: u8 = 16;
/// The mechanism of a Hello of the role [`Role::BulkStripe`]: its proof is the `stripe_key` of the session's Welcome.
pub const STRIPE: &str = "stripe";

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Role {
    /// Calls, deliveries and bulk transfers.
    Control = 0,
    /// Carries chunks of a session that has a control connection.
    BulkStripe = 1,
}

impl Codec for Role {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(*self as u8);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match from.u8()? {
            0 => Ok(Self::Control),
            1 => Ok(Self::BulkStripe),
            other => Err(from.refuse("role", u64::from(other))),
        }
    }
}

record! {
    /// The first frame of a connection.
    pub struct Hello {
        /// Least protocol version that the client speaks.
        pub version_min: u16,
        /// Greatest protocol version that the client speaks.
        pub version_max: u16,
        /// Features without which the client cannot work.
        pub features_required: u64,
        /// Features that the client would use.
        pub features_optional: u64,
        /// The namespace of all names that follow; empty is the default one.
        pub namespace: String,
        /// How the client proves who it is: `token`, [`ACCESS_TOKEN`], [`CERTIFICATE`], [`ISSUED`], [`PAIRING`],
        /// [`STRIPE`], or empty where the transport has proved it (in-process, unix socket). Others are reserved.
        pub mechanism: String,
        /// The mechanism's first message: for `token`, its 32 bytes; for `access-token` and `issued`, its
        /// text; for `certificate`, nothing: TLS has it; for `pairing`, a [`Pair`]; for `stripe`, the session's
        /// `stripe_key`.
        pub proof: Bytes,
        /// The client's session, the same on all of its connections.
        pub session: SessionId,
        /// What this connection is for.
        pub role: Role,
        /// The server that the client expects, by its directory; 0 is any.
        pub directory: DirectoryId,
        /// For tracing; 0 is none.
        pub trace: u128,
        /// A name for logs and `thalweg status`: program and process id.
        pub client_name: String,
        /// With [`FEATURE_STRIPES`]: how many connections the session would have at most.
        pub stripes: Appended<u8>,
    }
}

record! {
    /// The server's answer to [`Hello`].
    pub struct Welcome {
        /// The protocol version in use.
        pub version: u16,
        /// The features in use.
        pub features: u64,
        /// The data directory that the server owns.
        pub directory: DirectoryId,
        /// This run of the server.
        pub instance: ServerInstance,
        /// Bytes of `Produce` payload that may be under way on this
        /// connection at once; one call larger than this is let in alone.
        pub produce_credit: u64,
        /// The longest payload of one frame.
        pub payload_bytes_max: u64,
        /// Silence after which either side asks for a sign of life, and twice
        /// which the other is taken for dead, milliseconds.
        pub heartbeat_ms: u32,
        /// The server's version, for people.
        pub server_version: String,
        /// With [`FEATURE_STRIPES`]: how many connections the session may have at most, this one included.
        pub stripes: Appended<u8>,
        /// What lets further connections join this session: a secret of its own.
        pub stripe_key: Appended<Secret>,
    }
}

/// Bytes that nobody else is to know, and that are not shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(pub Bytes);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} secret bytes", self.0.len())
    }
}

impl Codec for Secret {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Bytes::decode(from).map(Self)
    }
}

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Method {
    /// [`CreateTopic`] → [`TopicDescription`]. With a topic in the request's head: on the node of that one; else on
    /// that of its name.
    CreateTopic = 1,
    /// [`TopicName`] → nothing.
    DeleteTopic = 2,
    /// nothing → [`TopicList`]. With a topic in the request's head: those of the node of that one.
    ListTopics = 3,
    /// [`TopicName`] → [`TopicDescription`].
    DescribeTopic = 4,
    /// [`AddPartitions`] → [`TopicDescription`].
    AddPartitions = 5,
    /// [`AlterTopic`] → [`TopicDescription`].
    AlterTopic = 6,
    /// [`OpenProducer`] → [`ProducerOpened`].
    OpenProducer = 16,
    /// [`Produce`], the batch as payload → [`Produced`].
    Produce = 17,
    /// [`OpenMirror`] → [`MirrorOpened`].
    OpenMirror = 18,
    /// [`AppendMirrored`], the stamped batch as payload → [`Produced`].
    AppendMirrored = 19,
    /// [`Subscribe`] → [`Subscribed`], then deliveries.
    Subscribe = 32,
    /// [`Unsubscribe`] → nothing; no delivery follows the answer.
    Unsubscribe = 33,
    /// [`Fetch`] → [`Fetched`], batches as payload.
    Fetch = 34,
    /// [`ReadData`] → [`DataRead`], after the data was written into the region.
    ReadData = 35,
    /// [`SubscribeScoped`] → [`Subscribed`], then deliveries.
    SubscribeScoped = 36,
    /// [`MoveCursors`] → nothing; durable when answered.
    MoveCursors = 48,
    /// [`ReadCursors`] → [`CursorList`].
    ReadCursors = 49,
    /// [`ConsumerName`] → nothing; forgets all its cursors, and all of a group
    /// or queue, which must have no members.
    DeleteConsumer = 50,
    /// [`Join`] → [`Joined`], then assignments or leased events.
    Join = 51,
    /// [`Leave`] → nothing.
    Leave = 52,
    /// [`Release`] → nothing.
    Release = 53,
    /// [`MoveMemberCursors`] → nothing; durable when answered.
    MoveMemberCursors = 54,
    /// [`Settle`] → [`Settled`]; durable when answered.
    Settle = 55,
    /// [`ExtendLeases`] → [`LeasesExtended`].
    ExtendLeases = 56,
    /// [`ConsumerName`] → [`ConsumerList`]; an empty name is all.
    DescribeConsumers = 57,
    /// nothing → [`StatusReply`]. With a topic in the request's head: of the node whose data directory has that id.
    Status = 64,
    /// [`TopicName`] → [`GapList`]: every gap recorded for a topic.
    ListGaps = 65,
    /// nothing → nothing; the server drains and ends.
    Shutdown = 66,
    /// [`CheckAccess`] → [`AccessChecked`].
    CheckAccess = 67,
    /// [`OfferPairing`] → [`PairingOffered`].
    OfferPairing = 68,
    /// [`ListNodes`] → [`NodeList`].
    ListNodes = 69,
    /// [`SetNode`] → nothing; in the table when answered.
    SetNode = 70,
    /// [`MoveTopic`] → nothing; in the table when answered.
    MoveTopic = 71,
    /// [`ReceiveTopic`] → [`MirrorOpened`]: how far the copy has come.
    ReceiveTopic = 72,
    /// [`YieldTopic`] → [`TopicYielded`].
    YieldTopic = 73,
    /// [`AdoptLedger`] → nothing; durable when answered.
    AdoptLedger = 74,
    /// nothing → nothing; another node has the topic when answered.
    HandOverTopic = 75,
    /// [`AddPlacedPartitions`] → [`TopicDescription`], without the new partitions, when the topic's definition has them durably.
    AddPlacedPartitions = 76,
    /// [`OpenRun`] → [`RunOpened`]; its record is durable when answered.
    OpenRun = 80,
    /// [`AttendRun`] → [`RunEnded`], when the run is over for the asker.
    AttendRun = 81,
    /// [`AdmitStep`] → [`StepAdmitted`], when there is room for the step.
    AdmitStep = 82,
    /// [`AwaitStep`] → [`StepDecided`], when the step's record is durable.
    AwaitStep = 83,
    /// [`CloseRun`] → nothing.
    CloseRun = 84,
    /// [`JoinReaders`] → [`ReadersJoined`].
    JoinReaders = 85,
    /// [`AttendReaders`] → nothing, when somebody else has the asker's place.
    AttendReaders = 86,
    /// [`NextStep`] → [`StepGiven`], records as payload.
    NextStep = 87,
    /// [`ReleaseStep`] → nothing; the cursor is durable when the last rank has its answer.
    ReleaseStep = 88,
    /// [`AwaitReaders`] → nothing, when no group of readers that is attached is behind.
    AwaitReaders = 89,
    /// [`LeaveReaders`] → nothing; what the group's cursor becomes is durable then.
    LeaveReaders = 90,
    /// [`HoldParts`] → [`PartsWanted`], when there is something that the asker does not know.
    HoldParts = 93,
}

impl Method {
    /// All methods that this version knows.
    pub const ALL: [Self; 50] = [
        Self::CreateTopic,
        Self::DeleteTopic,
        Self::ListTopics,
        Self::DescribeTopic,
        Self::AddPartitions,
        Self::AlterTopic,
        Self::OpenProducer,
        Self::Produce,
        Self::OpenMirror,
        Self::AppendMirrored,
        Self::Subscribe,
        Self::Unsubscribe,
        Self::Fetch,
        Self::ReadData,
        Self::SubscribeScoped,
        Self::MoveCursors,
        Self::ReadCursors,
        Self::DeleteConsumer,
        Self::Join,
        Self::Leave,
        Self::Release,
        Self::MoveMemberCursors,
        Self::Settle,
        Self::ExtendLeases,
        Self::DescribeConsumers,
        Self::Status,
        Self::ListGaps,
        Self::Shutdown,
        Self::CheckAccess,
        Self::OfferPairing,
        Self::ListNodes,
        Self::SetNode,
        Self::MoveTopic,
        Self::ReceiveTopic,
        Self::YieldTopic,
        Self::AdoptLedger,
        Self::HandOverTopic,
        Self::AddPlacedPartitions,
        Self::OpenRun,
        Self::AttendRun,
        Self::AdmitStep,
        Self::AwaitStep,
        Self::CloseRun,
        Self::JoinReaders,
        Self::AttendReaders,
        Self::NextStep,
        Self::ReleaseStep,
        Self::AwaitReaders,
        Self::LeaveReaders,
        Self::HoldParts,
    ];
}

impl Codec for Method {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_u16(*self as u16);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let code = from.u16()?;
        Self::ALL
            .into_iter()
            .find(|method| *method as u16 == code)
            .ok_or_else(|| from.refuse("method", u64::from(code)))
    }
}

record! {
    /// What every request begins with; the request's own fields follow.
    pub struct RequestHead {
        /// What is asked for.
        pub method: Method,
        /// How long the asker will wait from now, milliseconds; 0 is for ever.
        pub remaining_ms: u32,
        /// The topic, where the request is about one; 0 is none.
        pub topic: TopicId,
        /// Epoch of the partition's leader, as the asker was told; 0 is not known, or not of one
        /// partition. One that is over is refused as not leader.
        pub leader_epoch: u32,
        /// For tracing; 0 is none.
        pub trace: u128,
    }
}

record! {
    /// A place in the other side's memory.
    pub struct Region {
        /// What the transport needs to reach it, up to 256 bytes, opaque.
        pub key: Bytes,
        /// Start within what the key opens.
        pub base: u64,
        /// Length, bytes.
        pub bytes: u64,
        /// Kind of memory: 0 is host. Others are reserved.
        pub memory_kind: u16,
        /// Which rails may be used; 0 is any. Reserved.
        pub rails: u32,
    }
}

record! {
    /// How a partition is stored.
    pub struct PartitionStorage {
        /// `disk`, `memory`, or a name registered by a user.
        pub kind: String,
        /// Its configuration, as JSON; empty is the default.
        pub config: String,
    }
}

record! {
    /// Makes a topic.
    pub struct CreateTopic {
        pub name: String,
        /// The definition, as the JSON that `topic` reads and writes.
        pub definition: String,
        /// Its first partitions; may be none.
        pub partitions: Vec<PartitionStorage>,
    }
}

record! {
    /// Adds partitions to a live topic (named by the request's head).
    pub struct AddPartitions {
        /// How each new one is stored.
        pub partitions: Vec<PartitionStorage>,
    }
}

record! {
    /// Adds partitions to a live topic that is spread (named by the request's head), behind those that it has by then.
    pub struct AddPlacedPartitions {
        /// How each new one is stored.
        pub partitions: Vec<PartitionStorage>,
        /// On nodes with these labels, `rank=1,disk=fast`; empty is any.
        pub placement: String,
    }
}

record! {
    /// Changes the definition of a live topic (named by the request's head).
    pub struct AlterTopic {
        /// What is to change, as JSON: the keys of a definition that may.
        pub changes: String,
    }
}

record! {
    /// A topic's name.
    pub struct TopicName {
        pub name: String,
    }
}

record! {
    /// One partition, as a client sees it.
    pub struct PartitionDescription {
        /// The place in the topic.
        pub partition: PartitionIndex,
        /// How it is stored.
        pub storage: PartitionStorage,
        /// What an ack of it means.
        pub durability: Durability,
        /// Which life it is in.
        pub incarnation: Incarnation,
        /// Epoch of its leader, for requests to it.
        pub leader_epoch: u32,
        /// Lives that ended, oldest first: (incarnation, end then).
        pub ended: Vec<(Incarnation, Offset)>,
        /// The first offset that is still there.
        pub first: Offset,
        pub watermarks: Watermarks,
        /// Bytes stored.
        pub bytes: u64,
        /// Why it takes nothing, if its storage failed; empty if all is well.
        pub failure: String,
    }
}

record! {
    /// How far a partition has come.
    #[derive(Copy)]
    pub struct Watermarks {
        /// The next offset to be assigned.
        pub end: Offset,
        /// Below this, events survive what the topic's durability promises.
        pub durable: Offset,
        /// Below this, events are visible.
        pub committed: Offset,
    }
}

record! {
    /// A topic, as a client sees it.
    pub struct TopicDescription {
        pub name: String,
        pub topic: TopicId,
        /// The definition, as JSON.
        pub definition: String,
        /// Its partitions, in order.
        pub partitions: Vec<PartitionDescription>,
    }
}

record! {
    /// Topics of the namespace.
    pub struct TopicList {
        /// Those that the node serves, in the order of their names.
        pub topics: Vec<TopicDescription>,
        /// Of each other node that serves some of the namespace, one topic: asked about that, it lists its own.
        pub others: Vec<TopicId>,
    }
}

record! {
    /// Asks for a producer's identity (the topic is in the request's head).
    pub struct OpenProducer {
        /// Its name; empty is a producer without one, which fences nobody.
        pub name: String,
        /// The id and epoch it had, to take them up again after a reconnect; 0 is none.
        pub resume: ProducerId,
        /// The epoch that goes with `resume`.
        pub resume_epoch: ProducerEpoch,
    }
}

record! {
    /// A producer's identity.
    pub struct ProducerOpened {
        pub producer: ProducerId,
        /// Its life; every older one is fenced.
        pub epoch: ProducerEpoch,
        /// For each partition where it is known: the next sequence number expected.
        pub next: Vec<(PartitionIndex, Sequence)>,
    }
}

record! {
    /// Appends the batch that is the payload.
    pub struct Produce {
        pub partition: PartitionIndex,
        /// What the ack must mean; at least the topic's own.
        pub durability: Durability,
        /// Where the external data of each event lies, in the order of the events.
        pub regions: Vec<Region>,
    }
}

record! {
    /// The batch is stored, as durably as was asked.
    pub struct Produced {
        pub incarnation: Incarnation,
        /// The offset of the batch's first event; the others follow it.
        pub base_offset: Offset,
        /// When the broker took it, nanoseconds since 1970; 0 for a retry,
        /// whose time is that of its first try, in the stored batch.
        pub append_time: u64,
        /// Whether it had been stored before: this was a retry.
        pub duplicate: bool,
    }
}

/// Where a consumer begins to read a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// At its cursor, or at the first event if it has none.
    Cursor,
    /// At the first event that is still there.
    Beginning,
    /// Behind the last event that is visible now.
    Latest,
    /// At this position.
    At(Position),
    /// At its cursor, or behind the last visible event if it has none.
    CursorOrLatest,
    /// At the first batch that the broker took at this time or later,
    /// nanoseconds since 1970.
    Time(u64),
}

impl Codec for Start {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Cursor => out.put_u8(0),
            Self::Beginning => out.put_u8(1),
            Self::Latest => out.put_u8(2),
            Self::At(position) => {
                out.put_u8(3);
                position.encode(out);
            }
            Self::CursorOrLatest => out.put_u8(4),
            Self::Time(time) => {
                out.put_u8(5);
                out.put_u64(*time);
            }
        }
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match from.u8()? {
            0 => Self::Cursor,
            1 => Self::Beginning,
            2 => Self::Latest,
            3 => Self::At(Codec::decode(from)?),
            4 => Self::CursorOrLatest,
            5 => Self::Time(from.u64()?),
            other => return Err(from.refuse("start", u64::from(other))),
        })
    }
}

record! {
    /// Opens a standing subscription to one partition (the topic is in the
    /// request's head). The request's id is the subscription's.
    pub struct Subscribe {
        /// The consumer's name, for its cursor.
        pub consumer: String,
        pub partition: PartitionIndex,
        /// Where to begin.
        pub start: Start,
        /// Bytes that may be delivered before more credit comes; one batch
        /// larger than this is let out alone.
        pub credit: u64,
        /// Whether inline data travels with the batches.
        pub inline_data: bool,
        /// Whether only the newest events are wanted: when there is credit, it goes on at the
        /// last visible event, and what is before that is passed over.
        pub latest: Appended<bool>,
    }
}

record! {
    /// The subscription stands.
    pub struct Subscribed {
        /// Where it begins.
        pub position: Position,
        /// How far the partition has come.
        pub watermarks: Watermarks,
    }
}

record! {
    /// Ends a subscription.
    pub struct Unsubscribe {
        /// The id of the request that opened it.
        pub subscription: u64,
    }
}

record! {
    /// Batches of a subscription, as the payload, one behind the other.
    ///
    /// The first may begin before the wanted position: earlier events are skipped.
    pub struct Deliver {
        pub incarnation: Incarnation,
        /// Length of each batch in the payload.
        pub batch_bytes: Vec<u64>,
        /// How far the partition has come.
        pub watermarks: Watermarks,
    }
}

record! {
    /// Space for this many more bytes of payload of the subscription.
    pub struct Credit {
        pub bytes: u64,
    }
}

record! {
    /// A point read: batches from an offset on, without a subscription.
    pub struct Fetch {
        pub partition: PartitionIndex,
        /// Where to begin; incarnation 0 is the present one.
        pub from: Position,
        /// The most bytes of payload; one batch larger than this comes alone.
        pub bytes_max: u64,
        /// How long to wait for the first event, milliseconds.
        pub wait_max_ms: u32,
        /// Whether inline data travels with the batches.
        pub inline_data: bool,
    }
}

record! {
    /// What was fetched; the batches are the payload.
    pub struct Fetched {
        pub incarnation: Incarnation,
        /// Length of each batch in the payload.
        pub batch_bytes: Vec<u64>,
        /// How far the partition has come.
        pub watermarks: Watermarks,
    }
}

record! {
    /// The wanted part of one event's data.
    pub struct DataWanted {
        pub partition: PartitionIndex,
        pub incarnation: Incarnation,
        pub offset: Offset,
        /// Which bytes of its data, in the order wanted.
        pub segments: Vec<Segment>,
    }
}

record! {
    /// Reads selected data of events into a region of the asker.
    pub struct ReadData {
        /// What is wanted; the selections follow one another in `into`.
        pub events: Vec<DataWanted>,
        /// Where to; its length is that of all selections together. The parts
        /// of a list of regions are filled in order.
        pub into: Vec<Region>,
        /// What is wanted of events whose list of segments is empty, in the order of the events;
        /// for servers with the feature *strides*.
        pub strided: Appended<Vec<StridedSelection>>,
    }
}

record! {
    /// The wanted part of one event's data, by pieces at distances that repeat.
    pub struct StridedSelection {
        /// Which one of the events.
        pub event: u32,
        /// Which bytes of its data, in the order wanted.
        pub segments: Vec<StridedSegment>,
    }
}

record! {
    /// The data is in the region. Checksums are those of the gathered bytes,
    /// an event each; where a whole event was wanted it is derived from the
    /// block checksums that its producer made.
    pub struct DataRead {
        /// One an event.
        pub checksums: Vec<u32>,
    }
}

record! {
    /// A consumer's name (the topic is in the request's head).
    pub struct ConsumerName {
        pub consumer: String,
    }
}

/// How cursors are to be moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum CursorMove {
    /// Events before the position are done with. Never moves back: a smaller
    /// position than the cursor's is ignored.
    Acknowledge = 0,
    /// The consumer wants to be there, be it backwards.
    Seek = 1,
}

impl Codec for CursorMove {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(*self as u8);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match from.u8()? {
            0 => Ok(Self::Acknowledge),
            1 => Ok(Self::Seek),
            other => Err(from.refuse("cursor move", u64::from(other))),
        }
    }
}

record! {
    /// Moves cursors of one consumer (the topic is in the request's head).
    pub struct MoveCursors {
        pub consumer: String,
        pub how: CursorMove,
        /// Where to, a partition each.
        pub positions: Vec<(PartitionIndex, Position)>,
    }
}

record! {
    /// Asks for cursors of the topic in the request's head.
    pub struct ReadCursors {
        /// Whose; empty is everybody's.
        pub consumer: String,
    }
}

record! {
    /// A cursor.
    pub struct Cursor {
        pub consumer: String,
        pub partition: PartitionIndex,
        /// The next event to read.
        pub position: Position,
    }
}

record! {
    /// Cursors, in the order of consumer and partition.
    pub struct CursorList {
        pub cursors: Vec<Cursor>,
    }
}

record! {
    /// Gaps, in the order of partition, incarnation and offset.
    pub struct GapList {
        pub gaps: Vec<(PartitionIndex, Gap)>,
    }
}

record! {
    /// The server's state, for people and monitors.
    pub struct StatusReply {
        /// As JSON; its fields are in `docs/reference/status.md`.
        pub json: String,
    }
}

record! {
    /// Wants bytes of a region: the head of a [`crate::frame::FrameKind::BulkRead`].
    pub struct BulkRead {
        pub key: Bytes,
        /// Where to begin in it.
        pub offset: u64,
        /// How many bytes; at most [`crate::frame::BULK_CHUNK_BYTES`].
        pub bytes: u32,
        /// Bytes that one checksum covers; 0 wants none.
        pub block_bytes: u32,
    }
}

record! {
    /// The head of a [`crate::frame::FrameKind::BulkData`]: the bytes are the payload.
    pub struct BulkData {
        /// Checksums of the payload's blocks, as made by the memory's owner.
        pub checksums: Vec<u32>,
    }
}

record! {
    /// Bytes for a region: the head of a [`crate::frame::FrameKind::BulkWrite`],
    /// the bytes are the payload.
    pub struct BulkWrite {
        pub key: Bytes,
        /// Where to begin in it.
        pub offset: u64,
    }
}

record! {
    /// How a bulk operation ended that carries no data back.
    pub struct BulkStatus {
        /// `None` if it is done.
        pub error: Option<ErrorReply>,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_round_trip_and_every_prefix_is_an_error() {
        let produce = Produce {
            partition: PartitionIndex(3),
            durability: Durability::Synced,
            regions: vec![Region {
                key: Bytes::from_static(b"key"),
                base: 7,
                bytes: 1 << 33,
                memory_kind: 0,
                rails: 0,
            }],
        };
        let bytes = produce.to_bytes();
        assert_eq!(Produce::from_bytes("produce", &bytes), Ok(produce));
        for end in 0..bytes.len() {
            assert!(Produce::from_bytes("produce", &bytes[..end]).is_err());
        }
    }

    #[test]
    fn lists_do_not_allocate_from_unchecked_lengths() {
        let bytes = u32::MAX.to_le_bytes();
        assert!(CursorList::from_bytes("cursors", &bytes).is_err());
    }
}
