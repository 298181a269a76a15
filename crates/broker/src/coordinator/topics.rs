//! Topics: made, deleted, and given more partitions.

use super::commands::{Commands, Decided};
use super::controller::{ControlError, LEADER, undecided};
use super::keep::{keep_partition, limits};
use super::lent::Lent;
use super::overlay::Key;
use super::served_topic::{Slot, Topic, Topics, durability_of, first_index, partition_directory};
use super::table::Table;
use crate::ctx::Ctx;
use crate::effects::{Effect, NewPartition, PartitionAct};
use crate::elsewhere::at_node;
use crate::ids::{PartitionKey, Purpose, RequestId, StorageId};
use crate::io::Job;
use crate::nodes::Nodes;
use crate::partition::{LEADER_EPOCH_FIRST, storage_retention};
use crate::refusal::{Refused, no_topic, refuse, unknown_topic};
use log::{OpenPartition, Recovery, Storage, StorageError, StorageKind};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use topic::{Definition, PartOf, Placement, Spread, part_of_name};
use wire::message::{AddPartitions, CreateTopic, PartitionStorage};
use wire::record::{PartitionRecord, PlacedRecord, Record, TopicRecord};
use wire::{Durability, ErrorCode, ErrorReply, Incarnation, NodeId, PartitionIndex, TopicId};

/// Topics that are being made or get more partitions, whose storages are being opened or whose
/// records are under way.
#[derive(Default)]
pub(crate) struct TopicChanges {
    pending: BTreeMap<u64, PendingTopic>,
}

/// A topic, or more partitions of one, in the making.
struct PendingTopic {
    caller: RequestId,
    topic: TopicId,
    /// The topic's record, if the topic is new.
    record: Option<TopicRecord>,
    definition: Arc<Definition>,
    partitions: Vec<(StorageId, PartitionRecord)>,
    /// Partitions that are not open yet.
    waiting: usize,
    failure: Option<ErrorReply>,
    /// What the overlay says because of it, until it is over.
    claim: Key,
}

impl TopicChanges {
    pub fn len(&self) -> usize {
        self.pending.len()
    }

    /// Makes a topic: on the node that `beside` is on, or that its name says. Its caller is answered when that is
    /// durable.
    pub fn create(
        &mut self,
        caller: RequestId,
        beside: TopicId,
        create: CreateTopic,
        lent: &mut Lent<'_>,
    ) -> Result<(), Refused> {
        lent.drain.refuse_begun()?;
        let definition = Definition::from_json(&create.definition)
            .and_then(|definition| definition.validator().check_work().map(|()| definition))
            .map_err(|error| refuse(ErrorCode::InvalidTopic, error.to_string()))?;
        check_name(&create.name, &definition)?;
        let namespace = lent.sessions.namespace(caller.link).to_owned();
        let (table, ahead) = (lent.commands.table(), &lent.commands.ahead);
        if let Some(of) = definition.part_of() {
            check_part(&namespace, &create.name, of, table)?;
        }
        check_spread(&create.name, &definition, 0, lent.ctx)?;
        if ahead.is_being_made(&namespace, &create.name) {
            // Whether it will be there is known when it is asked again.
            return Err(ErrorReply::retryable(
                ErrorCode::TopicExists,
                20,
                format!("topic {:?} is being made", create.name),
            ));
        }
        if table.named(&namespace, &create.name).is_some() {
            return Err(refuse(
                ErrorCode::TopicExists,
                format!("topic {:?} exists", create.name),
            ));
        }
        if beside != TopicId(0) {
            let found = lent.topics.of(&namespace, beside)?;
            let identity = lent.sessions.identity(caller.link);
            if !identity.is_some_and(|it| it.may_know(&found.name, lent.ctx.now)) {
                return Err(unknown_topic(beside));
            }
        } else {
            refuse_elsewhere(caller, &namespace, &create.name, &definition, lent)?;
        }
        let limit = lent.ctx.options.limits.topics_max;
        if table.topic_count() + ahead.made_count() >= limit {
            return Err(refuse(
                ErrorCode::LimitExceeded,
                format!("there are {limit} topics (topics_max)"),
            ));
        }
        let topic = TopicId(lent.ctx.random.id());
        let record = TopicRecord {
            namespace,
            name: create.name,
            topic,
            definition: definition.to_json(),
        };
        let definition = Arc::new(definition);
        let new = (topic, Some(record));
        self.make(caller, new, definition, create.partitions, lent)
    }

    /// Gives a topic more partitions.
    pub fn add_partitions(
        &mut self,
        caller: RequestId,
        topic: TopicId,
        add: AddPartitions,
        lent: &mut Lent<'_>,
    ) -> Result<(), Refused> {
        lent.drain.refuse_begun()?;
        let namespace = lent.sessions.namespace(caller.link);
        let served = lent.topics.of(namespace, topic)?;
        refuse_busy(topic, lent.commands)?;
        if let Some(to) = lent.commands.table().moving(topic) {
            let why = format!("topic {:?} is on its way to node {to}", served.name);
            return Err(ErrorReply::retryable(ErrorCode::NotLeader, 500, why));
        }
        let definition = served.definition.clone();
        self.make(caller, (topic, None), definition, add.partitions, lent)
    }

    /// Checks everything, then begins to open the partitions.
    fn make(
        &mut self,
        caller: RequestId,
        (topic, record): (TopicId, Option<TopicRecord>),
        definition: Arc<Definition>,
        storages: Vec<PartitionStorage>,
        lent: &mut Lent<'_>,
    ) -> Result<(), Refused> {
        let served = lent.topics.get(topic);
        let known = served.map_or(0, |topic| topic.partitions.len());
        let first = served.map_or_else(|| first_index(&definition), Topic::next_index);
        definition
            .check_partition_count(u32::try_from(known + storages.len()).unwrap_or(u32::MAX))
            .map_err(|error| refuse(error.code(), error.to_string()))?;
        let limit = lent.ctx.options.limits.partitions_max;
        let spread = definition
            .spread()
            .map_or(0, |spread| spread.count() as usize);
        let count = known + storages.len() + spread;
        if count > limit {
            return Err(refuse(
                ErrorCode::LimitExceeded,
                format!("{count} partitions, at most {limit} (partitions_max)"),
            ));
        }
        let mut kinds = Vec::new();
        for storage in &storages {
            let kind = kind_of(&storage.kind, &storage.config, lent.ctx)?;
            let durability = durability_of(&definition, kind.as_ref())?;
            kinds.push((kind, durability));
        }
        let making = lent.ctx.next_id();
        let mut partitions = Vec::new();
        let mut opens = Vec::new();
        let new = (first..)
            .map(PartitionIndex)
            .zip(storages.into_iter().zip(kinds));
        for (index, (storage, (kind, durability))) in new {
            let record = PartitionRecord {
                topic,
                partition: index,
                storage: storage.kind,
                config: storage.config,
                incarnation: Incarnation(1),
                leader_epoch: LEADER_EPOCH_FIRST,
                ended: Vec::new(),
            };
            let table = lent.commands.table();
            let mut open = open_partition(&record, &definition, durability, table, lent.ctx);
            open.create = true;
            let id = StorageId(lent.ctx.next_id());
            partitions.push((id, record));
            opens.push((id, kind, open));
        }
        let claim = match &record {
            Some(record) => Key::Name(record.namespace.clone(), record.name.clone()),
            None => Key::Topic(topic),
        };
        lent.commands.ahead.claim(claim.clone());
        let pending = PendingTopic {
            caller,
            topic,
            record,
            definition,
            waiting: opens.len(),
            partitions,
            failure: None,
            claim,
        };
        self.pending.insert(making, pending);
        if opens.is_empty() {
            self.propose(making, lent);
        }
        for (storage, kind, open) in opens {
            let work = Job::Open { kind, open };
            lent.ctx.start_job(Purpose::Open(making, storage), work);
        }
        Ok(())
    }

    /// The storage of a partition of a topic in the making was opened, or could not be.
    pub fn opened(
        &mut self,
        id: u64,
        storage: StorageId,
        result: Result<(Box<dyn Storage>, Recovery), StorageError>,
        lent: &mut Lent<'_>,
    ) {
        let Some(making) = self.pending.get_mut(&id) else {
            return;
        };
        making.waiting -= 1;
        let record = making.partitions.iter().find(|(id, _)| *id == storage);
        let record = record.map(|(_, record)| record.clone());
        match (result, record) {
            (Ok((opened, _)), Some(record)) => {
                let served = lent.topics.get(making.topic);
                let name = match &making.record {
                    Some(new) => new.name.clone(),
                    None => served.map_or_else(String::new, |topic| topic.name.clone()),
                };
                let key = PartitionKey {
                    topic: record.topic,
                    partition: record.partition,
                };
                let definition = making.definition.clone();
                let new = NewPartition {
                    topic_name: name,
                    definition: definition.clone(),
                    storage: opened,
                    record,
                };
                let install = Effect::Install(storage, Box::new(new));
                lent.ctx.effects.push_back(install);
                let table = lent.commands.table();
                keep_partition(storage, key, &definition, table, lent.ctx);
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
        if making.waiting > 0 {
            return;
        }
        if making.failure.is_some() {
            self.give_up(id, lent);
        } else {
            self.propose(id, lent);
        }
    }

    /// Every partition is open: the records are written last.
    fn propose(&mut self, id: u64, lent: &mut Lent<'_>) {
        let Some(making) = self.pending.get(&id) else {
            return;
        };
        let topic = making.record.clone().map(Record::Topic);
        let partitions = making.partitions.iter().map(|(_, record)| record);
        let node = lent.ctx.node();
        let placed = placed_at(node, making.topic, topic.is_some(), partitions.clone());
        let partitions = partitions.map(|record| Record::Partition(record.clone()));
        let records = topic.into_iter().chain(placed).chain(partitions).collect();
        lent.commands.submit(records, Decided::Made(id), lent.ctx);
    }

    /// A partition could not be made: nothing is left behind.
    fn give_up(&mut self, id: u64, lent: &mut Lent<'_>) {
        let Some(making) = self.pending.remove(&id) else {
            return;
        };
        lent.commands.ahead.end(&making.claim);
        for (storage, _) in &making.partitions {
            let leave = Effect::Partition(*storage, PartitionAct::Remove(None));
            lent.ctx.effects.push_back(leave);
        }
        if let Some(failure) = making.failure {
            lent.ctx.refuse(making.caller, failure);
        }
    }

    /// The records are durable, or will perhaps never be. Returns the caller and the topic, if
    /// that has them now.
    pub fn made(
        &mut self,
        id: u64,
        result: Result<(), ControlError>,
        topics: &mut Topics,
        commands: &mut Commands,
        ctx: &mut Ctx,
    ) -> Option<(RequestId, TopicId)> {
        let making = self.pending.remove(&id)?;
        commands.ahead.end(&making.claim);
        if let Err(error) = result {
            match &error {
                // Whether the records survive is unknown, so the directories stay:
                // the next start sets aside what nothing refers to.
                ControlError::Full(..) | ControlError::Failed(..) | ControlError::Unknown(_) => {}
                // Another node has not carried it out, nor will it.
                ControlError::NotLeader { .. }
                | ControlError::Apart(_)
                | ControlError::Refused(_) => {
                    for (storage, _) in &making.partitions {
                        let leave = Effect::Partition(*storage, PartitionAct::Remove(None));
                        ctx.effects.push_back(leave);
                    }
                }
            }
            ctx.refuse(making.caller, undecided(&error));
            return None;
        }
        if let Some(record) = &making.record {
            let topic = Topic::new(record, making.definition.clone());
            topics.insert(making.topic, topic);
        }
        if let Some(topic) = topics.get_mut(making.topic) {
            let slots = making.partitions.iter();
            let slots = slots.map(|(storage, _)| Slot::Open(*storage));
            topic.partitions.extend(slots);
        }
        Some((making.caller, making.topic))
    }
}

/// What the table is to say of where partitions are: nothing of the node that leads, for there
/// they are unless it says otherwise. Of a whole topic, that of the first partition says where
/// the topic is, also if there is none yet.
pub(super) fn placed_at<'a>(
    node: NodeId,
    topic: TopicId,
    is_whole: bool,
    partitions: impl Iterator<Item = &'a PartitionRecord>,
) -> Vec<Record> {
    if node == LEADER {
        return Vec::new();
    }
    let first = is_whole.then_some(PartitionIndex(0));
    let indices = partitions.map(|record| record.partition);
    let indices: BTreeSet<PartitionIndex> = first.into_iter().chain(indices).collect();
    let placed = |partition| {
        Record::Placed(PlacedRecord {
            topic,
            partition,
            node,
        })
    };
    indices.into_iter().map(placed).collect()
}

/// Refuses a name that a topic of this definition cannot have: that of a partition of a spread topic says so, and no other does.
fn check_name(name: &str, definition: &Definition) -> Result<(), Refused> {
    let own = match definition.part_of() {
        None => name,
        Some(of) => match part_of_name(name) {
            Some((topic, index)) if index == of.index => topic,
            _ => {
                let why = format!("{name:?} is no name of partition {} of a topic", of.index);
                return Err(refuse(ErrorCode::InvalidTopic, why));
            }
        },
    };
    topic::check_topic_name(own).map_err(|error| refuse(ErrorCode::InvalidTopic, error.to_string()))
}

/// Refuses a partition of a spread topic that is not there, or has been made anew. One that was only just made may not be
/// known here yet.
fn check_part(namespace: &str, name: &str, of: &PartOf, table: &Table) -> Result<(), Refused> {
    let entry = table.named(namespace, topic::spread_name(name));
    match entry.map(|entry| entry.record.topic.to_string()) {
        Some(id) if id == of.topic => Ok(()),
        _ => Err(ErrorReply::retryable(
            ErrorCode::UnknownTopic,
            50,
            format!("{name:?} is a partition of a topic that is not known here"),
        )),
    }
}

/// Refuses partitions of a spread topic, behind those that are known, for which there is no node, or which this node could not
/// store.
pub(super) fn check_spread(
    name: &str,
    definition: &Definition,
    known: u32,
    ctx: &Ctx,
) -> Result<(), Refused> {
    let nodes = &ctx.options.nodes;
    let makings = definition.spread().into_iter().flat_map(Spread::makings);
    let mut before = None;
    for making in makings.skip(known as usize) {
        if before == Some(making) {
            continue;
        }
        if !nodes.has_labelled(making.placement) {
            return Err(nowhere(name, making.placement, nodes));
        }
        let kind = kind_of(making.storage, making.config, ctx)?;
        durability_of(definition, kind.as_ref())?;
        before = Some(making);
    }
    Ok(())
}

/// The kind of storage of this name, if the configuration suits it.
fn kind_of(name: &str, config: &str, ctx: &Ctx) -> Result<Arc<dyn StorageKind>, Refused> {
    let Some(kind) = ctx.kind(name) else {
        let known = ctx.options.kinds.iter();
        let known: Vec<_> = known.map(|kind| kind.name()).collect();
        let why = format!("storage {name:?} is not known; {} are", known.join(", "));
        return Err(refuse(ErrorCode::InvalidStorage, why));
    };
    match kind.check(config) {
        Ok(()) => Ok(kind),
        Err(reason) => {
            let message = format!("configuration of storage {name:?}: {reason}");
            Err(refuse(ErrorCode::InvalidStorage, message))
        }
    }
}

fn nowhere(name: &str, placement: &Placement, nodes: &Nodes) -> Refused {
    let why = match nodes.are_of_table() {
        true => "no node has that",
        false => "this server is alone: servers of a cluster have labels",
    };
    refuse(
        ErrorCode::InvalidTopic,
        format!("topic {name:?} is to be made at {placement}, and {why}"),
    )
}

/// Refuses to make a topic that another node is to make.
fn refuse_elsewhere(
    caller: RequestId,
    namespace: &str,
    name: &str,
    definition: &Definition,
    lent: &Lent<'_>,
) -> Result<(), Refused> {
    let (nodes, node) = (&lent.ctx.options.nodes, lent.ctx.node());
    let (wanted, anywhere) = (definition.placement(), Placement::default());
    let placement = match nodes.has_labelled(wanted) {
        true => wanted,
        // Its node was there when the spread topic was made, and is removed.
        false if definition.part_of().is_some() => &anywhere,
        false => return Err(nowhere(name, wanted, nodes)),
    };
    // A client of another protocol knows no other nodes.
    let is_foreign = lent.sessions.is_foreign(caller.link);
    let is_alone = nodes.count() == 1 && !nodes.are_of_table();
    if is_alone || is_foreign && nodes.takes_topics(node) {
        return Ok(());
    }
    let home = nodes.home_among(namespace, name, placement);
    let Some(home) = home.filter(|home| nodes.takes_topics(*home)) else {
        if placement.is_anywhere() {
            let message =
                "no node of the table takes new topics: none has registered, or all are draining";
            return Err(ErrorReply::retryable(ErrorCode::NotLeader, 1000, message));
        }
        let message = format!("no node at {placement} takes new topics: all are away or draining");
        return Err(ErrorReply::retryable(ErrorCode::NotLeader, 1000, message));
    };
    if home != node {
        let what = format!("topic {name:?} is to be made by node {home}");
        return Err(at_node(home, what, caller, lent.sessions, lent.ctx));
    }
    Ok(())
}

/// Refuses to change a topic that is being changed.
pub(super) fn refuse_busy(topic: TopicId, commands: &Commands) -> Result<(), Refused> {
    match commands.ahead.busy(topic) {
        Some(busy) => Err(ErrorReply::retryable(ErrorCode::UnknownTopic, 50, busy)),
        None => Ok(()),
    }
}

/// How the storage of a partition is opened.
pub(crate) fn open_partition(
    record: &PartitionRecord,
    definition: &Definition,
    durability: Durability,
    table: &Table,
    ctx: &Ctx,
) -> OpenPartition {
    let bound = limits(record.topic, definition, table, ctx);
    OpenPartition {
        directory: partition_directory(&ctx.options.directory, record),
        topic: record.topic,
        partition: record.partition,
        incarnation: record.incarnation,
        durability,
        config: record.config.clone(),
        retention: storage_retention(definition, bound),
        boot_id: ctx.options.boot_id.clone(),
        unix_ns: ctx.now.unix_ns,
        create: false,
    }
}

/// Deletes a topic, with all that is in it: the one of this id alone, if that is not 0. Its caller is answered when that is durable.
pub(super) fn delete(
    caller: RequestId,
    wanted: TopicId,
    name: &str,
    lent: &mut Lent<'_>,
) -> Result<(), Refused> {
    lent.drain.refuse_begun()?;
    let namespace = lent.sessions.namespace(caller.link);
    // From the table: one that this version cannot serve can be deleted too.
    let entry = lent.commands.table().named(namespace, name);
    let entry = entry.filter(|entry| entry.home() == lent.ctx.node());
    let id = entry.map(|entry| entry.record.topic);
    let id = id
        .filter(|id| wanted == TopicId(0) || *id == wanted)
        .ok_or_else(|| no_topic(name))?;
    refuse_busy(id, lent.commands)?;
    let records = vec![Record::TopicDeleted(id)];
    let decided = Decided::TopicDeleted(caller, id);
    lent.commands.submit(records, decided, lent.ctx);
    Ok(())
}

/// The record comes first, then the directories go.
pub(super) fn deleted(topic: Topic, ctx: &mut Ctx) {
    for slot in topic.partitions {
        if let Slot::Open(storage) = slot {
            let error = refuse(
                ErrorCode::UnknownTopic,
                format!("topic {:?} was deleted", topic.name),
            );
            let leave = PartitionAct::Remove(Some(error));
            ctx.effects.push_back(Effect::Partition(storage, leave));
        }
    }
}
