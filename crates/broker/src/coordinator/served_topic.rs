//! A topic that serves: what of it is asked with every batch.

use crate::ids::StorageId;
use crate::metadata_check::MetadataCheck;
use crate::refusal::{Refused, refuse, unknown_topic};
use log::StorageKind;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use topic::{Definition, MirrorOf, TopicKind};
use wire::record::{PartitionRecord, TopicRecord};
use wire::{Durability, ErrorCode, PartitionIndex, TopicId};

/// A topic that serves.
pub(crate) struct Topic {
    pub namespace: String,
    pub name: String,
    pub definition: Arc<Definition>,
    /// Present if this server is to check metadata.
    pub metadata_check: Option<MetadataCheck>,
    /// The index of the first one: of a partition of a spread topic it is the partition's.
    pub first: u32,
    /// In the order of their indices, without a hole.
    pub partitions: Vec<Slot>,
}

/// One partition's place in a topic.
#[derive(Debug, Clone)]
pub(crate) enum Slot {
    /// It serves, or has failed since.
    Open(StorageId),
    /// It could not be opened.
    Failed(String),
}

impl Topic {
    /// The storage of a partition, if there is one that was opened.
    pub fn storage_of(&self, partition: PartitionIndex) -> Result<StorageId, Refused> {
        match self.slot(partition) {
            Some(Slot::Open(storage)) => Ok(*storage),
            Some(Slot::Failed(reason)) => Err(refuse(
                ErrorCode::StorageFailed,
                format!(
                    "partition {partition} of {:?} could not be opened: {reason}",
                    self.name
                ),
            )),
            None if self.partitions.is_empty() => Err(refuse(
                ErrorCode::NoPartitions,
                format!("topic {:?} has no partition yet", self.name),
            )),
            None => Err(refuse(
                ErrorCode::UnknownPartition,
                format!(
                    "topic {:?} has partitions {} to {}, not {partition}",
                    self.name,
                    self.first,
                    self.next_index() - 1
                ),
            )),
        }
    }

    /// Its partitions, each with its index.
    pub fn slots(&self) -> impl Iterator<Item = (PartitionIndex, &Slot)> {
        (self.first..).map(PartitionIndex).zip(&self.partitions)
    }

    /// So many partitions behind the first one, with its index.
    pub fn at(&self, place: usize) -> Option<(PartitionIndex, &Slot)> {
        let index = PartitionIndex(self.first + place as u32);
        Some((index, self.partitions.get(place)?))
    }

    /// A partition, if there is one of this index.
    pub fn slot(&self, partition: PartitionIndex) -> Option<&Slot> {
        let place = partition.0.checked_sub(self.first)?;
        self.partitions.get(place as usize)
    }

    /// The index that one more partition would have.
    pub fn next_index(&self) -> u32 {
        self.first + self.partitions.len() as u32
    }

    /// Refuses events of clients where the server writes records.
    pub fn check_takes_events(&self, partition: PartitionIndex) -> Result<(), Refused> {
        match self.definition.kind() == TopicKind::Steps && self.has_records(partition) {
            false => Ok(()),
            true => Err(refuse(
                ErrorCode::InvalidEvent,
                format!(
                    "partition {partition} of {:?} has the records of steps, which the server writes: write steps by their API",
                    self.name
                ),
            )),
        }
    }

    /// What the topic is a mirror of, and the id of that, if it is one.
    pub fn mirror_of(&self) -> Result<(&MirrorOf, TopicId), Refused> {
        let of = self.definition.mirror_of();
        let id = of.and_then(|of| u128::from_str_radix(&of.id, 16).ok());
        of.zip(id.map(TopicId)).ok_or_else(|| {
            refuse(
                ErrorCode::InvalidTopic,
                format!("{:?} is no mirror, or was promoted", self.name),
            )
        })
    }

    /// Refuses to give parts of steps as events: nobody is to see a part without its step.
    pub fn check_gives_events(&self, partition: PartitionIndex) -> Result<(), Refused> {
        match self.definition.kind() == TopicKind::Steps && !self.has_records(partition) {
            false => Ok(()),
            true => Err(refuse(
                ErrorCode::InvalidConsumer,
                format!(
                    "partition {partition} of {:?} has parts of steps: read steps by their API, or the records in partition 0",
                    self.name
                ),
            )),
        }
    }

    /// Of a topic of steps: whether a partition has records, and no parts.
    fn has_records(&self, partition: PartitionIndex) -> bool {
        partition == PartitionIndex(0)
            || self.definition.pins() && partition == PartitionIndex(topic::PINNED_RECORDS)
    }

    /// What is said of a partition that was opened and has closed.
    pub fn closed(&self, partition: PartitionIndex) -> Refused {
        refuse(
            ErrorCode::UnknownPartition,
            format!("partition {partition} of topic {:?} is closed", self.name),
        )
    }

    /// The same, as the table says that it is now. What this version does not understand of that stays as it was.
    pub fn into_recorded(self, record: &TopicRecord) -> Self {
        match Definition::from_json(&record.definition) {
            Err(_) => self,
            Ok(definition) => Self {
                partitions: self.partitions,
                ..Self::new(record, Arc::new(definition))
            },
        }
    }

    pub fn new(record: &TopicRecord, definition: Arc<Definition>) -> Self {
        Self {
            namespace: record.namespace.clone(),
            name: record.name.clone(),
            metadata_check: MetadataCheck::of(&definition),
            first: first_index(&definition),
            definition,
            partitions: Vec::new(),
        }
    }
}

/// The index of the first partition of a topic of this definition.
pub(crate) fn first_index(definition: &Definition) -> u32 {
    definition.part_of().map_or(0, |of| of.index)
}

/// The topics that serve.
#[derive(Default)]
pub(crate) struct Topics {
    all: BTreeMap<TopicId, Topic>,
}

impl Topics {
    pub fn get(&self, id: TopicId) -> Option<&Topic> {
        self.all.get(&id)
    }

    pub fn get_mut(&mut self, id: TopicId) -> Option<&mut Topic> {
        self.all.get_mut(&id)
    }

    pub fn insert(&mut self, id: TopicId, topic: Topic) {
        self.all.insert(id, topic);
    }

    pub fn remove(&mut self, id: TopicId) -> Option<Topic> {
        self.all.remove(&id)
    }

    /// The topics that are there.
    #[cfg(feature = "testing")]
    pub fn ids(&self) -> impl Iterator<Item = TopicId> {
        self.all.keys().copied()
    }

    /// Whether a topic is there that is of steps.
    pub fn is_of_steps(&self, id: TopicId) -> bool {
        let topic = self.all.get(&id);
        topic.is_some_and(|topic| topic.definition.kind() == TopicKind::Steps)
    }

    /// The topics of steps.
    pub fn of_steps(&self) -> impl Iterator<Item = TopicId> {
        let ids = self.all.keys().copied();
        ids.filter(|id| self.is_of_steps(*id))
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn values(&self) -> impl Iterator<Item = &Topic> {
        self.all.values()
    }

    /// The topic of this id, if it is in the namespace.
    pub fn of(&self, namespace: &str, id: TopicId) -> Result<&Topic, Refused> {
        self.all
            .get(&id)
            .filter(|topic| topic.namespace == namespace)
            .ok_or_else(|| unknown_topic(id))
    }

    /// A topic in the namespace, and the storage of its partition, if that was opened.
    pub fn partition(
        &self,
        namespace: &str,
        id: TopicId,
        partition: PartitionIndex,
    ) -> Result<(&Topic, StorageId), Refused> {
        let topic = self.of(namespace, id)?;
        topic.storage_of(partition).map(|storage| (topic, storage))
    }

    /// The partitions of a topic that were opened.
    pub fn storages(
        &self,
        id: TopicId,
    ) -> impl Iterator<Item = (PartitionIndex, StorageId)> + use<> {
        let slots = self.all.get(&id).map(Topic::slots).into_iter().flatten();
        let open = slots.filter_map(|(index, slot)| Some((index, slot.open()?)));
        open.collect::<Vec<_>>().into_iter()
    }
}

impl Slot {
    /// The storage, if it was opened.
    pub fn open(&self) -> Option<StorageId> {
        match self {
            Self::Open(storage) => Some(*storage),
            Self::Failed(_) => None,
        }
    }
}

/// What an ack of a partition means, or why its storage cannot be used.
pub(crate) fn durability_of(
    definition: &Definition,
    kind: &dyn StorageKind,
) -> Result<Durability, Refused> {
    let max = kind.durability_max();
    match definition.durability() {
        Some(named) if named > max => Err(refuse(
            ErrorCode::InvalidStorage,
            format!(
                "the topic promises {named}, storage {:?} can give {max} at most",
                kind.name()
            ),
        )),
        named => Ok(named.unwrap_or(max)),
    }
}

/// Where a partition lies. The name says what it is, so that one that nothing
/// refers to is known.
pub(crate) fn partition_directory(directory: &Path, record: &PartitionRecord) -> PathBuf {
    directory.join("partitions").join(format!(
        "{}-{}-{}",
        record.topic, record.partition, record.storage
    ))
}
