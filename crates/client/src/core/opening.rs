//! What the API opens: producers and consumers, as the core gets to know them.

use crate::batch_queue::ProducerShared;
use crate::consumer::ConsumerFeed;
use crate::queue::QueueFeed;
use std::sync::Arc;
use wire::PartitionIndex;
use wire::message::Start;
use wire::record::Position;

/// Carried by [`crate::mailbox::Command::Open`].
pub(crate) enum Opening {
    Producer(Arc<ProducerShared>),
    Consumer {
        consumer: Arc<ConsumerFeed>,
        partitions: Vec<u32>,
        /// Where to begin in partitions that `starts` does not name.
        start: Start,
        starts: Vec<(PartitionIndex, Position)>,
        /// Chance, of which a group's member's ids are made.
        seed: u128,
    },
    Queue {
        queue: Arc<QueueFeed>,
        /// Chance, of which the member's ids are made.
        seed: u128,
    },
}
