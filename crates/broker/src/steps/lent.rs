//! What a stream is lent of the node, and what is often asked of that.

use crate::coordinator::commands::Commands;
use crate::coordinator::served_topic::Topics;
use crate::ctx::Ctx;
use crate::effects::{ReadFor, StepsRead};
use crate::faults::Fault;
use crate::ids::StorageId;
use crate::partition::Partitions;
use crate::partition::store::Reading;
use crate::refusal::{Refused, unknown_topic};
use log::ReadBatches;
use std::collections::BTreeMap;
use wire::record::Position;
use wire::{Incarnation, Offset, PartitionIndex, TopicId};

/// What streams are lent of the node for an act.
pub(crate) struct Lent<'a> {
    pub ctx: &'a mut Ctx,
    pub partitions: &'a mut Partitions,
    pub commands: &'a Commands,
    pub topics: &'a Topics,
    /// Of which stream each record on its way is.
    pub appends: &'a mut BTreeMap<u64, TopicId>,
    /// Whether the node is to end: no run is opened any more.
    pub is_draining: bool,
}

impl Lent<'_> {
    /// The storage of a partition, if it was opened.
    pub fn storage(&self, topic: TopicId, index: PartitionIndex) -> Result<StorageId, Refused> {
        let served = self.topics.get(topic).ok_or_else(|| unknown_topic(topic))?;
        let storage = served.storage_of(index)?;
        match self.partitions.contains_key(&storage) {
            true => Ok(storage),
            false => Err(served.closed(index)),
        }
    }

    /// The visible end of a partition.
    pub fn visible(&self, storage: StorageId) -> Offset {
        let partition = self.partitions.get(&storage);
        partition.map_or(Offset(0), |partition| {
            match self.ctx.planted(Fault::StepsEarly) {
                true => partition.store.state().end,
                false => partition.store.visible,
            }
        })
    }

    /// The life in which offsets of records count.
    pub fn incarnation(&self, topic: TopicId) -> Incarnation {
        let storage = self.storage(topic, PartitionIndex(0));
        let partition = storage
            .ok()
            .and_then(|storage| self.partitions.get(&storage));
        partition.map_or(Incarnation(0), |partition| {
            partition.store.state().incarnation
        })
    }

    /// Where what was behind a record goes on in the present life: `at`, or earlier if a power loss,
    /// or the memory that it was in, took what was there.
    pub fn behind(&self, topic: TopicId, at: Position) -> Offset {
        let storage = self.storage(topic, PartitionIndex(0)).ok();
        let partition = storage.and_then(|storage| self.partitions.get(&storage));
        partition.map_or(at.offset, |partition| {
            let store = &partition.store;
            store.translate(at, store.state().incarnation).offset
        })
    }

    pub fn read(&mut self, storage: StorageId, topic: TopicId, what: StepsRead, read: ReadBatches) {
        let reading = Reading::For(ReadFor::Steps { topic, what });
        if let Some(partition) = self.partitions.get_mut(&storage) {
            partition.store.read_batches(reading, read, self.ctx);
        }
    }
}
