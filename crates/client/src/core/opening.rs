//! What the API opens: producers and consumers, as the core gets to know them.

use crate::batch_queue::ProducerShared;
use crate::consumer::ConsumerFeed;
use crate::queue::QueueFeed;
use std::sync::Arc;
use wire::message::Start;

/// Carried by [`crate::mailbox::Command::Open`].
pub(crate) enum Opening {
    Producer(Arc<ProducerShared>),
    Consumer {
        consumer: Arc<ConsumerFeed>,
        partitions: Vec<u32>,
        start: Start,
        /// Chance, of which a group's member's ids are made.
        seed: u128,
    },
    Queue {
        queue: Arc<QueueFeed>,
        /// Chance, of which the member's ids are made.
        seed: u128,
    },
}
