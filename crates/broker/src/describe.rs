//! Topics: found, listed, described.

use crate::ids::RequestId;
use crate::node::Node;
use crate::refusal::{Refused, malformed, no_topic, unknown_topic};
use crate::served_topic::Slot;
use crate::table::TopicEntry;
use topic::Definition;
use wire::codec::Reader;
use wire::message::*;
use wire::record::PartitionRecord;
use wire::{Codec, Durability, Offset, TopicId};

impl Node {
    pub(crate) fn list_topics(&mut self, caller: RequestId) -> Result<(), Refused> {
        let namespace = self.sessions.namespace(caller.link).to_owned();
        let entries = self.commands.table().namespace(&namespace);
        let ids: Vec<TopicId> = entries.map(|entry| entry.record.topic).collect();
        let topics = ids
            .into_iter()
            .filter_map(|id| self.description(id))
            .collect();
        // A list of topics may be longer than a head; then it is the payload.
        self.reply_long(caller, TopicList { topics }.to_bytes());
        Ok(())
    }

    pub(crate) fn describe_topic(
        &mut self,
        caller: RequestId,
        from: &mut Reader<'_>,
    ) -> Result<(), Refused> {
        let id = self.topic_named(caller, from)?;
        let description = self.description(id).ok_or_else(|| unknown_topic(id))?;
        self.reply_long(caller, description.to_bytes());
        Ok(())
    }

    pub(crate) fn list_gaps(
        &mut self,
        caller: RequestId,
        from: &mut Reader<'_>,
    ) -> Result<(), Refused> {
        let id = self.topic_named(caller, from)?;
        let entry = self
            .commands
            .table()
            .topic(id)
            .ok_or_else(|| unknown_topic(id))?;
        let gaps = entry
            .gaps
            .iter()
            .map(|((partition, _, _), gap)| (*partition, *gap));
        let list = GapList {
            gaps: gaps.collect(),
        };
        self.reply_long(caller, list.to_bytes());
        Ok(())
    }

    /// The topic that a request names, if there is one.
    fn topic_named(&self, caller: RequestId, from: &mut Reader<'_>) -> Result<TopicId, Refused> {
        let TopicName { name } = TopicName::decode(from).map_err(malformed)?;
        let entry = self
            .commands
            .table()
            .named(self.sessions.namespace(caller.link), &name);
        entry
            .map(|entry| entry.record.topic)
            .filter(|id| self.topics.get(*id).is_some())
            .ok_or_else(|| no_topic(&name))
    }

    pub(crate) fn description(&self, id: TopicId) -> Option<TopicDescription> {
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
                    description.incarnation = state.incarnation;
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
