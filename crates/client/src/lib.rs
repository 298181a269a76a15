//! The client: [`Driver`], [`Producer`], [`Consumer`], and what is asked of
//! topics and servers.
//!
//! The logic is [`core`], a plain state machine; `runtime` drives it, and everything
//! else is what callers' threads do. The crate's README has the map. Every
//! wait has a deadline, and its error says what was waited for.

#![forbid(unsafe_code)]

mod batch_queue;
mod callbacks;
mod check;
mod clock;
mod companion;
mod completion;
mod consumer;
mod copies;
pub mod core;
pub mod credential_file;
mod data_reader;
mod deferred_drop;
mod driver;
mod driving;
mod error;
mod event;
mod exclusive;
mod explain;
mod faults;
mod feed;
mod fetched;
mod following;
mod free_list;
mod future;
pub mod group_file;
mod handle;
pub mod journal;
mod lag;
mod last_events;
mod losses;
mod mailbox;
mod merge;
mod mirror;
mod moving;
mod options;
mod part;
mod presented;
mod processing_limit;
mod producer;
mod promise;
mod puller;
mod queue;
mod reader;
mod received_checksums;
mod refusals;
mod replier;
mod requester;
mod runtime;
mod session;
mod split_read;
mod spread;
mod standing;
mod status;
mod steps;
mod strided;
mod threads;
mod topic_handle;
mod topic_state;
pub mod url;
mod vouched;
mod when;

pub use callbacks::call_back;
pub use consumer::Consumer;
pub use deferred_drop::deferred_drop;
pub use driver::Driver;
pub use driving::SimulatedWait;
pub use error::ClientError;
pub use event::{ConsumedEvent, Data, Event, EventDataRef, EventInfo, ReplyData};
pub use explain::Explanation;
#[cfg(feature = "testing")]
pub use faults::{Fault, plant, plant_panic};
pub use fetched::FetchedBatches;
pub use future::{FlushFuture, PushFuture};
pub use lag::Lag;
pub use last_events::last_position;
pub use mailbox::Counters;
pub use mirror::CopiedBatch;
pub use options::{
    AtBudget, BatchPolicy, ConsumerOptions, CredentialEnds, DataAllocator, DataMode, DataSelector,
    DriverOptions, Endpoint, GapCallback, GroupMember, Linger, OnCredential, OnWaiting, Ordering,
    PartitionsCallback, ProducerOptions, Progress, Waiting,
};
pub use producer::Producer;
pub use promise::{Answered, Pending};
pub use queue::{
    Drain, Drained, JobEnd, QueueConsumer, QueueConsumerOptions, QueueEvent, SettleFuture,
};
pub use reader::{Bounds, Read, ReadEnd, ReadOptions, Reader};
pub use replier::{CORRELATION_HEADER, REPLIER_HEADER, REPLY_HEADER};
pub use requester::{Gather, Gathered, Requester, RequesterOptions};
pub use standing::{Patience, Pulled};
pub use steps::{STANDING_TIMEOUT, StepsFetched};
pub use strided::StridedWanted;
pub use topic_handle::{FetchRequest, TopicHandle};
pub use when::When;

// What callers of this crate need of the others.
pub use memory::Target;
pub use topic::{Definition, GroupOptions, MirrorOf, QueueOptions, check_partition_count};
pub use vouched::names_munge;
pub use wire::message::{
    AdoptLedger, Cursor, DataWanted, MirrorOpened, MirrorPosition, NodeDescription,
    PartitionDescription, PartitionStorage, Start, TopicDescription, TopicYielded, Watermarks,
};
pub use wire::record::{Gap, GapReason, NodeState, Position, ProducerState};
pub use wire::view::{DataView, Repeat, Segment, Stride, StridedSegment};
pub use wire::{
    Durability, EventId, Incarnation, NodeId, Offset, PartitionIndex, ProducerEpoch, ProducerId,
    TopicId,
};
