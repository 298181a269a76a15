//! What the API opens: producers and consumers, as the core gets to know them.

use crate::batch_queue::ProducerShared;
use crate::consumer::ConsumerFeed;
use crate::queue::QueueFeed;
use crate::topic_state::TopicState;
use std::any::Any;
use std::sync::Arc;
use wire::message::Start;
use wire::record::Position;
use wire::{PartitionIndex, TopicId};

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
    /// A spread topic, which is looked at as long as its state is held.
    Topic {
        topic: Arc<TopicState>,
        key: u64,
    },
    Queue {
        queue: Arc<QueueFeed>,
        /// Chance, of which the member's ids are made.
        seed: u128,
    },
}

impl Opening {
    /// What the mailbox carries without knowing it.
    pub fn of(carried: Box<dyn Any + Send>) -> Self {
        *carried
            .downcast()
            .expect("the API opens what the core knows")
    }

    /// Of one that is carried: the topic that it is of, and its key.
    pub fn place_of(carried: &(dyn Any + Send)) -> (TopicId, u64) {
        let opening: Option<&Self> = carried.downcast_ref();
        let opening = opening.expect("the API opens what the core knows");
        let key = match opening {
            Self::Producer(producer) => producer.key,
            Self::Consumer { consumer, .. } => consumer.key,
            Self::Queue { queue, .. } => queue.key,
            Self::Topic { key, .. } => *key,
        };
        (opening.topic().id, key)
    }

    /// The topic that it is of.
    pub fn topic(&self) -> &TopicState {
        match self {
            Self::Producer(producer) => &producer.topic,
            Self::Consumer { consumer, .. } => &consumer.topic,
            Self::Queue { queue, .. } => &queue.topic,
            Self::Topic { topic, .. } => topic,
        }
    }
}
