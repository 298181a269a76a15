//! A topic that serves: what of it is asked with every batch.

use crate::ids::{Asker, StorageId};
use crate::judge::Judge;
use crate::refusal::{Refused, refuse};
use log::StorageKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use topic::Definition;
use wire::record::{PartitionRecord, TopicRecord};
use wire::{Durability, ErrorCode, ErrorReply, TopicId};

/// A topic that serves.
pub(crate) struct Topic {
    pub namespace: String,
    pub name: String,
    pub definition: Arc<Definition>,
    /// Present if this server is to check metadata.
    pub judge: Option<Judge>,
    pub partitions: Vec<Slot>,
    /// Its end is being recorded, or it is getting more partitions.
    pub busy: Option<&'static str>,
}

/// One partition's place in a topic.
#[derive(Debug, Clone)]
pub(crate) enum Slot {
    /// It serves, or has failed since.
    Open(StorageId),
    /// It could not be opened.
    Failed(String),
}

/// A topic, or more partitions of one, in the making.
pub(crate) struct Making {
    pub asker: Asker,
    pub topic: TopicId,
    /// The topic's record, if the topic is new.
    pub record: Option<TopicRecord>,
    pub definition: Arc<Definition>,
    pub partitions: Vec<(StorageId, PartitionRecord)>,
    /// Partitions that are not open yet.
    pub waiting: usize,
    pub failure: Option<ErrorReply>,
}

impl Topic {
    pub fn new(record: &TopicRecord, definition: Arc<Definition>) -> Self {
        Self {
            namespace: record.namespace.clone(),
            name: record.name.clone(),
            judge: Judge::of(&definition),
            definition,
            partitions: Vec::new(),
            busy: None,
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
