//! What retention must spare, because a consumer that the topic names has not
//! acknowledged it.

use crate::controller::Controller;
use crate::faults::Fault;
use crate::ids::StorageId;
use crate::node::Node;
use crate::partition::Partition;
use crate::table::TopicEntry;
use crate::topics::{Slot, Topic};
use topic::{Definition, Retention};
use wire::record::{GapReason, Position};
use wire::{Offset, PartitionIndex, TopicId};

/// A definition's retention, as the storage of one of so many partitions knows it.
fn retention_of(definition: &Definition, retention: Retention) -> log::Retention {
    log::Retention {
        bytes: retention.bytes,
        age_ns: retention.age_ms.map(|ms| ms.saturating_mul(1_000_000)),
        count: retention.count,
        discards: definition.overflow().drops_oldest(),
    }
}

impl Node {
    /// What a partition of a topic keeps. One that is being made counts as soon as the
    /// table names it: until then the shares of the others are larger.
    fn limits(&self, topic: TopicId, definition: &Definition) -> Retention {
        let entry = self.controller.table().topic(topic);
        let partitions = match self.ctx.planted(Fault::TotalForEach) {
            true => 1,
            false => entry.map_or(1, |entry| entry.partitions.len()),
        };
        definition.retention().of_partition(partitions)
    }

    /// The same, as its storage knows it.
    pub(crate) fn storage_limits(&self, topic: TopicId, definition: &Definition) -> log::Retention {
        retention_of(definition, self.limits(topic, definition))
    }

    /// A topic has got partitions: who shares with them has less.
    pub(crate) fn share_total(&mut self, topic: TopicId) {
        let shares = |topic: &Topic| topic.definition.retention().total_bytes.is_some();
        if self.topics.get(&topic).is_some_and(shares) {
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
        let Some(topic) = self.topics.get(&topic) else {
            return;
        };
        let names = topic.definition.keep_until_acknowledged();
        if !names.iter().any(|name| name == consumer) {
            return;
        }
        let definition = topic.definition.clone();
        let slots = partitions.into_iter();
        let slots = slots.filter_map(|index| topic.partitions.get(index.0 as usize));
        let open: Vec<StorageId> = slots
            .filter_map(|slot| match slot {
                Slot::Open(storage) => Some(*storage),
                Slot::Failed(_) => None,
            })
            .collect();
        for storage in open {
            self.keep_partition(storage, &definition);
        }
    }

    /// Tells all storages of a topic what is to be kept.
    pub(crate) fn keep_topic(&mut self, id: TopicId) {
        let Some(topic) = self.topics.get(&id) else {
            return;
        };
        let definition = topic.definition.clone();
        for slot in topic.partitions.clone() {
            if let Slot::Open(storage) = slot {
                self.keep_partition(storage, &definition);
            }
        }
    }

    /// Tells a storage what is to be kept.
    pub(crate) fn keep_partition(&mut self, id: StorageId, definition: &Definition) {
        let drops = self.ctx.planted(Fault::DropUnacknowledged);
        let faults = (drops, self.ctx.planted(Fault::KeepAcknowledged));
        let Some(key) = self.partitions.get(&id).map(|partition| partition.key) else {
            return;
        };
        let bound = self.limits(key.topic, definition);
        let Some(partition) = self.partitions.get_mut(&id) else {
            return;
        };
        let names = definition.keep_until_acknowledged();
        let entry = self.controller.table().topic(partition.key.topic);
        let acknowledged = |name: &String| {
            entry
                .and_then(|entry| position(entry, name, partition.key.partition))
                .map_or(Offset(0), |position| offset_now(partition, position))
        };
        let keep_from = names.iter().map(acknowledged).min();
        let keep_from = match faults {
            (true, _) => keep_from.map(|_| partition.storage.state().end),
            (_, true) => keep_from.map(|_| Offset(0)),
            _ => keep_from,
        };
        let state = partition.storage.state();
        let policy = definition.overflow();
        partition.room.set(policy, bound, keep_from, &state);
        partition.storage.set_retention(
            retention_of(definition, bound),
            keep_from.unwrap_or(Offset(u64::MAX)),
        );
        // Without a limit nobody wants more than what is not acknowledged.
        if let Some(offset) = keep_from
            && definition.retention().keeps_all()
            && offset > partition.storage.state().first
        {
            partition
                .storage
                .remove_before(offset, GapReason::Retention);
        }
        self.ctx.dirty.partitions.insert(id);
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

/// The offset that a position is in the partition's present life.
fn offset_now(partition: &Partition, position: Position) -> Offset {
    let present = partition.storage.state().incarnation;
    if position.incarnation == present {
        position.offset
    } else {
        partition.translate(position, present).offset
    }
}
