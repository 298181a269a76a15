//! What retention must spare, because a consumer that the topic names has not
//! acknowledged it.

use crate::coordinator::served_topic::{Slot, Topic};
use crate::coordinator::table::TopicEntry;
use crate::faults::Fault;
use crate::ids::{PartitionKey, StorageId};
use crate::node::Node;
use crate::partition::storage_retention;
use topic::{Definition, Retention};
use wire::record::Position;
use wire::{PartitionIndex, TopicId};

impl Node {
    /// What a partition of a topic keeps. One that is being made counts as soon as the
    /// table names it: until then the shares of the others are larger.
    fn limits(&self, topic: TopicId, definition: &Definition) -> Retention {
        let entry = self.commands.table().topic(topic);
        let partitions = match self.ctx.planted(Fault::TotalForEach) {
            true => 1,
            false => entry.map_or(1, |entry| entry.partitions.len()),
        };
        definition.retention().of_partition(partitions)
    }

    /// The same, as its storage knows it.
    pub(crate) fn storage_limits(&self, topic: TopicId, definition: &Definition) -> log::Retention {
        storage_retention(definition, self.limits(topic, definition))
    }

    /// A topic has got partitions: who shares with them has less.
    pub(crate) fn share_total(&mut self, topic: TopicId) {
        let shares = |topic: &Topic| topic.definition.retention().total_bytes.is_some();
        if self.topics.get(topic).is_some_and(shares) {
            self.keep_topic(topic);
        }
    }

    /// A consumer of a topic has moved, or is gone, in these partitions.
    pub(crate) fn consumer_moved(
        &mut self,
        topic: TopicId,
        consumer: &str,
        partitions: impl IntoIterator<Item = PartitionIndex>,
    ) {
        let Some(topic) = self.topics.get(topic) else {
            return;
        };
        let names = topic.definition.keep_until_acknowledged();
        if !names.iter().any(|name| name == consumer) {
            return;
        }
        let definition = topic.definition.clone();
        let slots = partitions.into_iter();
        let slots = slots.filter_map(|index| topic.partitions.get(index.0 as usize));
        let open: Vec<StorageId> = slots.filter_map(Slot::open).collect();
        for storage in open {
            self.keep_partition(storage, &definition);
        }
    }

    /// Tells all storages of a topic what is to be kept.
    pub(crate) fn keep_topic(&mut self, id: TopicId) {
        let Some(topic) = self.topics.get(id) else {
            return;
        };
        let definition = topic.definition.clone();
        for (_, storage) in self.topics.storages(id) {
            self.keep_partition(storage, &definition);
        }
    }

    /// Tells a partition what is to be kept.
    pub(crate) fn keep_partition(&mut self, id: StorageId, definition: &Definition) {
        let Some(partition) = self.partitions.get(&id) else {
            return;
        };
        let PartitionKey {
            topic,
            partition: index,
        } = partition.store.key;
        let bound = self.limits(topic, definition);
        let entry = self.commands.table().topic(topic);
        let names = definition.keep_until_acknowledged().iter();
        let acknowledged = names.map(|name| entry.and_then(|entry| position(entry, name, index)));
        if let Some(partition) = self.partitions.get_mut(&id) {
            partition.keep(definition, bound, acknowledged, &mut self.ctx);
        }
    }
}

/// Where a consumer of any kind stands in a partition.
fn position(entry: &TopicEntry, consumer: &str, partition: PartitionIndex) -> Option<Position> {
    let queue = entry.shared(consumer);
    let queue = queue.and_then(|shared| shared.queue.get(&partition));
    let settled = queue.map(|queue| Position {
        incarnation: queue.incarnation,
        offset: queue.settled.first_missing(),
    });
    let cursors = entry.cursors.get(consumer);
    settled.or_else(|| cursors?.get(&partition).copied())
}
