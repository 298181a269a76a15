//! What retention must spare, because a consumer that the topic names has not
//! acknowledged it.

use super::served_topic::{Slot, Topics};
use super::table::{Table, TopicEntry};
use crate::ctx::Ctx;
use crate::effects::{Effect, Keep, PartitionAct};
use crate::faults::Fault;
use crate::ids::{PartitionKey, StorageId};
use std::sync::Arc;
use topic::{Definition, Retention};
use wire::record::Position;
use wire::{PartitionIndex, TopicId};

/// What a partition of a topic keeps. One that is being made counts as soon as the
/// table names it: until then the shares of the others are larger.
pub(crate) fn limits(
    topic: TopicId,
    definition: &Definition,
    table: &Table,
    ctx: &Ctx,
) -> Retention {
    let entry = table.topic(topic);
    let partitions = match ctx.planted(Fault::TotalForEach) {
        true => 1,
        false => entry.map_or(1, |entry| entry.partitions.len()),
    };
    definition.retention().of_partition(partitions)
}

/// A consumer of a topic has moved, or is gone, in these partitions.
pub(crate) fn consumer_moved(
    topic: TopicId,
    consumer: &str,
    partitions: impl IntoIterator<Item = PartitionIndex>,
    topics: &Topics,
    table: &Table,
    ctx: &mut Ctx,
) {
    let Some(served) = topics.get(topic) else {
        return;
    };
    let names = served.definition.keep_until_acknowledged();
    if !names.iter().any(|name| name == consumer) {
        return;
    }
    for partition in partitions {
        let slot = served.slot(partition);
        if let Some(storage) = slot.and_then(Slot::open) {
            let key = PartitionKey { topic, partition };
            keep_partition(storage, key, &served.definition, table, ctx);
        }
    }
}

/// All storages of a topic are to keep what it says now.
pub(crate) fn keep_topic(topic: TopicId, topics: &Topics, table: &Table, ctx: &mut Ctx) {
    let Some(served) = topics.get(topic) else {
        return;
    };
    for (partition, storage) in topics.storages(topic) {
        let key = PartitionKey { topic, partition };
        keep_partition(storage, key, &served.definition, table, ctx);
    }
}

/// A partition is to keep what its topic says.
pub(crate) fn keep_partition(
    storage: StorageId,
    key: PartitionKey,
    definition: &Arc<Definition>,
    table: &Table,
    ctx: &mut Ctx,
) {
    let entry = table.topic(key.topic);
    let names = definition.keep_until_acknowledged().iter();
    let acknowledged =
        names.map(|name| entry.and_then(|entry| position(entry, name, key.partition)));
    let keep = Keep {
        definition: definition.clone(),
        bound: limits(key.topic, definition, table, ctx),
        acknowledged: acknowledged.collect(),
    };
    let act = PartitionAct::Keep(keep);
    ctx.effects.push_back(Effect::Partition(storage, act));
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
