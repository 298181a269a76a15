//! Topics: made, deleted, listed, described, and given more partitions.

use crate::answer::Answer;
use crate::coordinator::commands::Decided;
use crate::coordinator::controller::{ControlError, undecided};
use crate::coordinator::served_topic::{
    PendingTopic, Slot, Topic, durability_of, partition_directory,
};
use crate::ids::{PartitionKey, Purpose, RequestId, StorageId};
use crate::io::Job;
use crate::node::Node;
use crate::partition::{LEADER_EPOCH_FIRST, Opened, Partition};
use crate::refusal::{Refused, no_topic, refuse, unknown_topic};
use log::{OpenPartition, Recovery, Storage, StorageError};
use std::sync::Arc;
use topic::Definition;
use wire::message::*;
use wire::record::{PartitionRecord, Record, TopicRecord};
use wire::{Durability, ErrorCode, ErrorReply, Incarnation, PartitionIndex, TopicId};

impl Node {
    pub(crate) fn create_topic(
        &mut self,
        caller: RequestId,
        create: CreateTopic,
    ) -> Result<(), Refused> {
        self.drain.refuse_begun()?;
        topic::check_topic_name(&create.name)
            .map_err(|error| refuse(ErrorCode::InvalidTopic, error.to_string()))?;
        let definition = Definition::from_json(&create.definition)
            .and_then(|definition| definition.validator().check_work().map(|()| definition))
            .map_err(|error| refuse(ErrorCode::InvalidTopic, error.to_string()))?;
        let namespace = self.sessions.namespace(caller.link).to_owned();
        let is_made = |making: &PendingTopic| {
            let record = making.record.as_ref();
            record.is_some_and(|record| record.namespace == namespace && record.name == create.name)
        };
        if self.topics.pending.values().any(is_made) {
            // Whether it will be there is known when it is asked again.
            return Err(ErrorReply::retryable(
                ErrorCode::TopicExists,
                20,
                format!("topic {:?} is being made", create.name),
            ));
        }
        if self
            .commands
            .table()
            .named(&namespace, &create.name)
            .is_some()
        {
            return Err(refuse(
                ErrorCode::TopicExists,
                format!("topic {:?} exists", create.name),
            ));
        }
        let limit = self.ctx.options.limits.topics_max;
        if self.commands.table().topic_count() + self.topics.pending.len() >= limit {
            return Err(refuse(
                ErrorCode::LimitExceeded,
                format!("there are {limit} topics (topics_max)"),
            ));
        }
        let topic = TopicId(self.ctx.random.id());
        let record = TopicRecord {
            namespace,
            name: create.name,
            topic,
            definition: definition.to_json(),
        };
        self.make(
            caller,
            Some(record),
            topic,
            Arc::new(definition),
            create.partitions,
        )
    }

    pub(crate) fn add_partitions(
        &mut self,
        caller: RequestId,
        id: TopicId,
        add: AddPartitions,
    ) -> Result<(), Refused> {
        self.drain.refuse_begun()?;
        let topic = self.topics.of(self.sessions.namespace(caller.link), id)?;
        if let Some(busy) = topic.busy {
            return Err(ErrorReply::retryable(ErrorCode::UnknownTopic, 50, busy));
        }
        let definition = topic.definition.clone();
        self.make(caller, None, id, definition, add.partitions)
    }

    /// Checks everything, then begins to open the partitions.
    fn make(
        &mut self,
        caller: RequestId,
        record: Option<TopicRecord>,
        topic: TopicId,
        definition: Arc<Definition>,
        storages: Vec<PartitionStorage>,
    ) -> Result<(), Refused> {
        let first = self
            .topics
            .get(topic)
            .map_or(0, |topic| topic.partitions.len());
        definition
            .check_partition_count(u32::try_from(first + storages.len()).unwrap_or(u32::MAX))
            .map_err(|error| refuse(error.code(), error.to_string()))?;
        let limit = self.ctx.options.limits.partitions_max;
        if first + storages.len() > limit {
            return Err(refuse(
                ErrorCode::LimitExceeded,
                format!(
                    "{} partitions, at most {limit} (partitions_max)",
                    first + storages.len()
                ),
            ));
        }
        let mut kinds = Vec::new();
        for storage in &storages {
            let Some(kind) = self.ctx.kind(&storage.kind) else {
                let known: Vec<_> = self
                    .ctx
                    .options
                    .kinds
                    .iter()
                    .map(|kind| kind.name())
                    .collect();
                return Err(refuse(
                    ErrorCode::InvalidStorage,
                    format!(
                        "storage {:?} is not known; {} are",
                        storage.kind,
                        known.join(", ")
                    ),
                ));
            };
            kind.check(&storage.config).map_err(|reason| {
                let message = format!("configuration of storage {:?}: {reason}", storage.kind);
                refuse(ErrorCode::InvalidStorage, message)
            })?;
            let durability = durability_of(&definition, kind.as_ref())?;
            kinds.push((kind, durability));
        }
        let making = self.ctx.next_id();
        let mut partitions = Vec::new();
        let mut opens = Vec::new();
        for (index, (storage, (kind, durability))) in storages.into_iter().zip(kinds).enumerate() {
            let record = PartitionRecord {
                topic,
                partition: PartitionIndex((first + index) as u32),
                storage: storage.kind,
                config: storage.config,
                incarnation: Incarnation(1),
                leader_epoch: LEADER_EPOCH_FIRST,
                ended: Vec::new(),
            };
            let mut open = self.open_partition(&record, &definition, durability);
            open.create = true;
            let id = StorageId(self.ctx.next_id());
            partitions.push((id, record));
            opens.push((id, kind, open));
        }
        if let Some(topic) = self.topics.get_mut(topic) {
            topic.busy = Some("the topic is getting partitions");
        }
        let pending = PendingTopic {
            caller,
            topic,
            record,
            definition,
            waiting: opens.len(),
            partitions,
            failure: None,
        };
        self.topics.pending.insert(making, pending);
        if opens.is_empty() {
            self.propose(making);
        }
        for (storage, kind, open) in opens {
            let work = Job::Open { kind, open };
            self.ctx.start_job(Purpose::Open(making, storage), work);
        }
        Ok(())
    }

    pub(crate) fn open_partition(
        &self,
        record: &PartitionRecord,
        definition: &Definition,
        durability: Durability,
    ) -> OpenPartition {
        OpenPartition {
            directory: partition_directory(&self.ctx.options.directory, record),
            topic: record.topic,
            partition: record.partition,
            incarnation: record.incarnation,
            durability,
            config: record.config.clone(),
            retention: self.storage_limits(record.topic, definition),
            boot_id: self.ctx.options.boot_id.clone(),
            unix_ns: self.ctx.now.unix_ns,
            create: false,
        }
    }

    pub(crate) fn partition_opened(
        &mut self,
        id: u64,
        storage: StorageId,
        result: Result<(Box<dyn Storage>, Recovery), StorageError>,
    ) {
        let making = self.topics.pending.get(&id);
        let served = making.and_then(|making| self.topics.get(making.topic));
        let known = served.map(|topic| topic.name.clone());
        let Some(making) = self.topics.pending.get_mut(&id) else {
            return;
        };
        making.waiting -= 1;
        let record = making.partitions.iter().find(|(id, _)| *id == storage);
        let record = record.map(|(_, record)| record.clone());
        match (result, record) {
            (Ok((opened, _)), Some(record)) => {
                let definition = making.definition.clone();
                let new = making.record.as_ref().map(|topic| topic.name.clone());
                let name = new.or(known).unwrap_or_default();
                self.install_partition(storage, opened, &record, (&name, &definition));
            }
            (Err(error), Some(record)) => {
                let code = match error {
                    StorageError::Full(_) | StorageError::Exhausted(_) => ErrorCode::StorageFull,
                    StorageError::Invalid(_) => ErrorCode::InvalidStorage,
                    _ => ErrorCode::StorageFailed,
                };
                let message = format!("making partition {}: {error}", record.partition);
                making.failure.get_or_insert(refuse(code, message));
            }
            (_, None) => {}
        }
        let Some(making) = self.topics.pending.get(&id) else {
            return;
        };
        if making.waiting > 0 {
            return;
        }
        if making.failure.is_some() {
            self.give_up_making(id);
        } else {
            self.propose(id);
        }
    }

    /// Ties an opened storage to the node. `record` tells the life it is in.
    pub(crate) fn install_partition(
        &mut self,
        id: StorageId,
        storage: Box<dyn Storage>,
        record: &PartitionRecord,
        (topic_name, definition): (&str, &Definition),
    ) {
        let Some(kind) = self.ctx.kind(&record.storage) else {
            return;
        };
        let max = kind.durability_max();
        // A storage with files may find no space for what it has in memory.
        // Waiting until it is written costs little, and nothing that was
        // acknowledged or seen is ever taken back.
        let least = Durability::Written.min(max);
        let opened = Opened {
            id,
            key: PartitionKey {
                topic: record.topic,
                partition: record.partition,
            },
            topic_name: topic_name.to_owned(),
            storage,
            kind,
            durability: definition.durability().unwrap_or(max).max(least),
            directory: partition_directory(&self.ctx.options.directory, record),
            leader_epoch: record.leader_epoch,
            ended: record.ended.clone(),
        };
        let partition = Partition::new(opened, &self.ctx);
        self.partitions.insert(id, partition);
        self.keep_partition(id, definition);
    }

    /// Every partition is open: the records are written last.
    fn propose(&mut self, id: u64) {
        let Some(making) = self.topics.pending.get(&id) else {
            return;
        };
        let mut records: Vec<Record> = making
            .record
            .clone()
            .map(Record::Topic)
            .into_iter()
            .collect();
        records.extend(
            making
                .partitions
                .iter()
                .map(|(_, record)| Record::Partition(record.clone())),
        );
        if records.is_empty() {
            self.made(id, Ok(()));
        } else {
            self.submit(records, Decided::Made(id));
        }
    }

    /// A partition could not be made: nothing is left behind.
    fn give_up_making(&mut self, id: u64) {
        let Some(making) = self.topics.pending.remove(&id) else {
            return;
        };
        for (storage, _) in &making.partitions {
            self.at(*storage, |partition, ctx| partition.leave(true, ctx));
        }
        if let Some(topic) = self.topics.get_mut(making.topic) {
            topic.busy = None;
        }
        if let Some(failure) = making.failure {
            self.refuse_request(making.caller, failure);
        }
    }

    /// The records are durable, or will perhaps never be.
    pub(crate) fn made(&mut self, id: u64, result: Result<(), ControlError>) {
        if let Err(error) = result {
            // Whether the records survive is unknown, so the directories stay:
            // the next start sets aside what nothing refers to.
            if let Some(making) = self.topics.pending.remove(&id) {
                if let Some(topic) = self.topics.get_mut(making.topic) {
                    topic.busy = None;
                }
                self.refuse_request(making.caller, undecided(&error));
            }
            return;
        }
        let Some(making) = self.topics.pending.remove(&id) else {
            return;
        };
        if let Some(record) = &making.record {
            let topic = Topic::new(record, making.definition.clone());
            self.topics.insert(making.topic, topic);
        }
        if let Some(topic) = self.topics.get_mut(making.topic) {
            topic.busy = None;
            let slots = making
                .partitions
                .iter()
                .map(|(storage, _)| Slot::Open(*storage));
            topic.partitions.extend(slots);
        }
        self.share_partitions(making.topic);
        self.share_total(making.topic);
        self.topic_files
            .keep(making.topic, self.commands.table(), &mut self.ctx);
        match self.view().description(making.topic) {
            Some(description) => self.answer(making.caller, Answer::Topic(description)),
            None => self.refuse_request(making.caller, unknown_topic(making.topic)),
        }
    }

    pub(crate) fn delete_topic(
        &mut self,
        caller: RequestId,
        TopicName { name }: TopicName,
    ) -> Result<(), Refused> {
        self.drain.refuse_begun()?;
        // From the table: one that this version cannot serve can be deleted too.
        let entry = self
            .commands
            .table()
            .named(self.sessions.namespace(caller.link), &name);
        let id = entry
            .map(|entry| entry.record.topic)
            .ok_or_else(|| no_topic(&name))?;
        if let Some(topic) = self.topics.get_mut(id) {
            if let Some(busy) = topic.busy {
                return Err(ErrorReply::retryable(ErrorCode::UnknownTopic, 50, busy));
            }
            topic.busy = Some("the topic is being deleted");
        }
        self.submit(
            vec![Record::TopicDeleted(id)],
            Decided::TopicDeleted(caller, id),
        );
        Ok(())
    }

    /// The record comes first, then the directories go.
    pub(crate) fn topic_deleted(
        &mut self,
        caller: RequestId,
        id: TopicId,
        result: Result<(), ControlError>,
    ) {
        if let Err(error) = result {
            // It may be asked again.
            if let Some(topic) = self.topics.get_mut(id) {
                topic.busy = None;
            }
            self.refuse_request(caller, undecided(&error));
            return;
        }
        self.forget_shared(id);
        self.topic_files
            .keep(id, self.commands.table(), &mut self.ctx);
        if let Some(topic) = self.topics.remove(id) {
            for slot in topic.partitions {
                if let Slot::Open(storage) = slot {
                    let error = refuse(
                        ErrorCode::UnknownTopic,
                        format!("topic {:?} was deleted", topic.name),
                    );
                    self.at(storage, |partition, ctx| {
                        partition.end_readers(&error, ctx);
                        partition.fail(&error, ctx);
                        partition.leave(true, ctx);
                    });
                }
            }
        }
        self.answer(caller, Answer::Done);
    }
}
