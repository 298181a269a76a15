//! Messages that are stored together, and what is to be done when they are.

use amqp::ChannelKey;
use vhost::{ActId, QueueId};

/// What is to be done when a message is stored, or is not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Done {
    /// Its client published it on this channel, under that number if it has confirms.
    Published(ChannelKey, Option<u64>),
    /// It is a dead letter.
    Letter(u64),
    /// It has the records of an act.
    Records(ActId),
}

/// Messages that are stored together.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// One a message.
    pub done: Vec<Done>,
    pub queue: Option<QueueId>,
    pub bytes: u64,
}
