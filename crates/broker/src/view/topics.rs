//! Topics, as clients are told of them.

use super::View;
use crate::coordinator::served_topic::Slot;
use crate::coordinator::table::TopicEntry;
use topic::Definition;
use wire::message::*;
use wire::record::PartitionRecord;
use wire::{Durability, Offset, ProducerEpoch, ProducerId, TopicId};

impl View<'_> {
    /// What a producer hears that was opened: what each partition expects of it.
    pub fn producer_opened(
        &self,
        topic: TopicId,
        producer: ProducerId,
        epoch: ProducerEpoch,
    ) -> ProducerOpened {
        let storages = self.topics.storages(topic);
        let next = storages.filter_map(|(index, storage)| {
            let partition = self.partitions.get(&storage)?;
            let (appends, store) = (&partition.appends, &partition.store);
            Some((index, appends.next_sequence(producer, epoch, store)?))
        });
        ProducerOpened {
            producer,
            epoch,
            next: next.collect(),
        }
    }

    pub fn description(&self, id: TopicId) -> Option<TopicDescription> {
        let entry = self.commands.table().topic(id)?;
        let topic = self.topics.get(id)?;
        let partitions = entry.partitions.values().zip(&topic.partitions);
        let partitions =
            partitions.map(|(record, slot)| self.describe_partition(entry, record, slot));
        Some(TopicDescription {
            name: entry.record.name.clone(),
            topic: id,
            definition: entry.record.definition.clone(),
            partitions: partitions.collect(),
        })
    }

    /// A topic of a node that cannot be asked, as the table has it: its partitions say why nothing more is known.
    pub fn description_by_table(&self, entry: &TopicEntry, why: &str) -> TopicDescription {
        let slot = Slot::Failed(why.to_owned());
        let partitions = entry.partitions.values();
        let partitions = partitions.map(|record| self.describe_partition(entry, record, &slot));
        TopicDescription {
            name: entry.record.name.clone(),
            topic: entry.record.topic,
            definition: entry.record.definition.clone(),
            partitions: partitions.collect(),
        }
    }

    fn describe_partition(
        &self,
        entry: &TopicEntry,
        record: &PartitionRecord,
        slot: &Slot,
    ) -> PartitionDescription {
        let mut description = PartitionDescription {
            partition: record.partition,
            storage: PartitionStorage {
                kind: record.storage.clone(),
                config: record.config.clone(),
            },
            durability: Durability::Memory,
            incarnation: record.incarnation,
            leader_epoch: record.leader_epoch,
            ended: record.ended.clone(),
            first: Offset(0),
            watermarks: Watermarks {
                end: Offset(0),
                durable: Offset(0),
                committed: Offset(0),
            },
            bytes: 0,
            failure: String::new(),
        };
        match slot {
            Slot::Open(storage) => {
                if let Some(partition) = self.partitions.get(storage) {
                    let state = partition.store.state();
                    description.durability = partition.store.durability;
                    // The table may not have heard yet of a life that a start has begun.
                    description.incarnation = state.incarnation;
                    description.leader_epoch = partition.store.leader_epoch;
                    description.first = state.first;
                    description.watermarks = partition.store.watermarks();
                    description.bytes = state.bytes;
                    description.failure = state.failure.unwrap_or_default();
                }
            }
            Slot::Failed(reason) => {
                let definition = Definition::from_json(&entry.record.definition).ok();
                let kind = self.ctx.kind(&record.storage);
                if let (Some(definition), Some(kind)) = (definition, kind) {
                    let max = kind.durability_max();
                    description.durability = definition.durability().unwrap_or(max);
                }
                description.failure.clone_from(reason);
            }
        }
        description
    }
}
