//! What a consumer of a queue can choose.

use super::job_end::JobEnd;
use crate::options::{DataAllocator, DataMode};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use topic::QueueOptions;
use wire::message::Start;

/// What a consumer of a queue can choose.
#[derive(Clone)]
pub struct QueueConsumerOptions {
    /// Options of the queue, if its name is new; else they are as they were set then.
    pub queue: QueueOptions,
    /// Where a new queue begins. Default: at the first event.
    pub start: Start,
    /// An instance name: a program that comes back under the same one within
    /// the session timeout takes over what its predecessor held, which is
    /// fenced. Default none.
    pub instance: Option<String>,
    /// How long the server may hear nothing of this client before its events
    /// go to others. Default 10 s.
    pub session_timeout: Duration,
    /// How long the program may stay away from its consumer; then the
    /// consumer leaves, and the next pull fails once with
    /// [`wire::ErrorCode::MemberFenced`]. Noticed within a quarter more than
    /// that. Default: for ever.
    pub processing_timeout: Option<Duration>,
    /// Most events that are here and not settled. Default 256.
    pub prefetch_events: u32,
    /// Most bytes of events that are here and not settled; one larger event
    /// comes alone. Default 16 MiB, less if the driver's memory is used up.
    pub prefetch_bytes: u64,
    /// Which data is wanted. Default all.
    pub data: DataMode,
    /// Where data goes; memory of the client's, if none is given.
    pub allocator: Option<Arc<DataAllocator>>,
    /// When the program ends, if that is known: in time before, the consumer
    /// winds down by itself ([`super::QueueConsumer::wind_down`]). Default: the batch
    /// job's end, where the environment has it ([`JobEnd::from_environment`]).
    pub job_end: Option<JobEnd>,
    /// Whether leases of events that were pulled and not settled are extended
    /// in the background, for as long as the program takes. Default no.
    pub renew: bool,
}

impl QueueConsumerOptions {
    /// As [`crate::ConsumerOptions::without_callbacks`].
    pub(super) fn without_callbacks(&self) -> Self {
        Self {
            data: DataMode::None,
            allocator: None,
            ..self.clone()
        }
    }
}

impl Default for QueueConsumerOptions {
    fn default() -> Self {
        Self {
            queue: QueueOptions::default(),
            start: Start::Beginning,
            instance: None,
            session_timeout: Duration::from_secs(10),
            processing_timeout: None,
            prefetch_events: 256,
            prefetch_bytes: 16 << 20,
            data: DataMode::All,
            allocator: None,
            job_end: JobEnd::from_environment(),
            renew: false,
        }
    }
}

impl fmt::Debug for QueueConsumerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueConsumerOptions")
            .field("queue", &self.queue)
            .field("start", &self.start)
            .field("instance", &self.instance)
            .field("session_timeout", &self.session_timeout)
            .field("processing_timeout", &self.processing_timeout)
            .field("prefetch_events", &self.prefetch_events)
            .field("prefetch_bytes", &self.prefetch_bytes)
            .field("data", &self.data)
            .field("allocator", &self.allocator.is_some())
            .field("job_end", &self.job_end)
            .field("renew", &self.renew)
            .finish()
    }
}
