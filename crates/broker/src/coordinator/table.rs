//! The state that the records of the table's log and of the ledger add up to.

mod lineage;
mod nodes;
mod sharing;

use lineage::Lineage;
pub use nodes::{NODE_IDS_MAX, NODES_MAX, TableNodes};
pub use sharing::{QueueEntry, Returned, SharedEntry};

use crate::ids::LEADER;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use wire::record::*;
use wire::{
    ConsumerId, ErrorCode, ErrorReply, Incarnation, MemberId, NodeId, Offset, PartitionIndex,
    ProducerEpoch, ProducerId, TableId, TopicId,
};

/// All topics, and what is remembered of each. Changed by [`Table::apply`]
/// alone, and so the same wherever the same records were applied.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Table {
    topics: BTreeMap<TopicId, TopicEntry>,
    /// By namespace, then name.
    names: BTreeMap<String, BTreeMap<String, TopicId>>,
    /// Topics that were deleted, the latest last: what is left of their partitions may be removed.
    deleted: VecDeque<TopicId>,
    /// Of a table that several nodes have.
    lineage: Lineage,
    /// The nodes that have registered.
    nodes: TableNodes,
    /// Topics on their way to another node, and to which.
    moving: BTreeMap<TopicId, NodeId>,
}

/// Deleted topics that are remembered. What a removal of an older one should have left is kept.
pub const DELETED_MAX: usize = 4096;

/// What is remembered of one topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicEntry {
    /// Its name and definition.
    pub record: TopicRecord,
    /// Its partitions.
    pub partitions: BTreeMap<PartitionIndex, PartitionRecord>,
    /// On which nodes they are, but for those on the one that leads.
    pub placed: BTreeMap<PartitionIndex, NodeId>,
    /// Where consumers stand, by name and partition.
    pub cursors: BTreeMap<String, BTreeMap<PartitionIndex, Position>>,
    /// Producers with a name.
    pub producers: BTreeMap<String, ProducerRecord>,
    /// The current life of each producer with a name.
    pub epochs: BTreeMap<ProducerId, ProducerEpoch>,
    /// What was lost, by partition, life and first offset.
    pub gaps: BTreeMap<(PartitionIndex, Incarnation, Offset), Gap>,
    /// Groups and queues, by name.
    pub shared: BTreeMap<String, SharedEntry>,
}

impl Table {
    /// The topic of this id.
    pub fn topic(&self, topic: TopicId) -> Option<&TopicEntry> {
        self.topics.get(&topic)
    }

    /// The topic of this name.
    pub fn named(&self, namespace: &str, name: &str) -> Option<&TopicEntry> {
        self.topics.get(self.names.get(namespace)?.get(name)?)
    }

    /// The topics of a namespace, in the order of their names.
    pub fn namespace(&self, namespace: &str) -> impl Iterator<Item = &TopicEntry> {
        let names = self.names.get(namespace);
        names
            .into_iter()
            .flat_map(|names| names.values())
            .filter_map(|topic| self.topics.get(topic))
    }

    /// All topics.
    pub fn topics(&self) -> impl Iterator<Item = (&TopicId, &TopicEntry)> {
        self.topics.iter()
    }

    /// The first topic, or the one behind this one, in the order of ids.
    pub fn behind(&self, after: Option<TopicId>) -> Option<(TopicId, &TopicEntry)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut left = self.topics.range((from, Bound::Unbounded));
        left.next().map(|(id, entry)| (*id, entry))
    }

    /// How many topics there are.
    pub fn topic_count(&self) -> usize {
        self.topics.len()
    }

    /// The last [`DELETED_MAX`] topics that were deleted, the latest last.
    pub fn deleted(&self) -> impl Iterator<Item = &TopicId> {
        self.deleted.iter()
    }

    /// Which table it is; 0 if it has no id.
    pub fn id(&self) -> TableId {
        self.lineage.id
    }

    /// Of a copy: the index that the table had at its leader. Else 0.
    pub fn followed(&self) -> u64 {
        self.lineage.followed.map_or(0, |record| record.index)
    }

    /// Of a copy: the node whose copy it is.
    pub fn follower(&self) -> Option<NodeId> {
        self.lineage.followed.map(|record| record.node)
    }

    /// The nodes that it says there are. Those of a single server are in no table.
    pub fn nodes(&self) -> &TableNodes {
        &self.nodes
    }

    /// The last proposal of a node that was carried out.
    pub fn proposed(&self, node: NodeId) -> u64 {
        self.lineage.proposed.get(&node).copied().unwrap_or(0)
    }

    /// Whether no record was ever applied to it.
    pub fn is_blank(&self) -> bool {
        *self == Self::default()
    }

    /// Applies one record. One that is about a topic that is gone changes
    /// nothing: the topic's end was recorded while this was under way.
    pub fn apply(&mut self, record: Record) {
        match record {
            Record::Topic(record) => self.apply_topic(record),
            Record::TopicDeleted(topic) => {
                self.moving.remove(&topic);
                if let Some(entry) = self.topics.remove(&topic)
                    && let Some(names) = self.names.get_mut(&entry.record.namespace)
                {
                    names.remove(&entry.record.name);
                    if names.is_empty() {
                        self.names.remove(&entry.record.namespace);
                    }
                }
                self.deleted.retain(|deleted| *deleted != topic);
                self.deleted.push_back(topic);
                if self.deleted.len() > DELETED_MAX {
                    self.deleted.pop_front();
                }
            }
            Record::Partition(record) => {
                self.of(record.topic, |entry| {
                    entry.partitions.insert(record.partition, record);
                });
            }
            Record::Cursor(record) => self.of(record.topic, |entry| entry.apply_cursor(record)),
            Record::Producer(record) => {
                self.of(record.topic, |entry| {
                    entry.epochs.insert(record.producer, record.epoch);
                    entry.producers.insert(record.name.clone(), record);
                });
            }
            Record::Gap(record) => {
                self.of(record.topic, |entry| {
                    entry.apply_gap(record.partition, record.gap);
                });
            }
            Record::Consumer(record) => {
                self.of(record.topic, |entry| entry.apply_consumer(record));
            }
            Record::ConsumerDeleted(record) => {
                self.of(record.topic, |entry| entry.apply_consumer_deleted(&record));
            }
            Record::Member(record) => self.of(record.topic, |entry| entry.apply_member(record)),
            Record::Assignment(record) => {
                self.of(record.topic, |entry| entry.apply_assignment(&record));
            }
            Record::Settled(record) => self.of(record.topic, |entry| entry.apply_settled(record)),
            Record::Returned(record) => {
                self.of(record.topic, |entry| entry.apply_returned(&record));
            }
            Record::Rejected(record) => {
                self.of(record.topic, |entry| entry.apply_rejected(record));
            }
            Record::Table(id) => self.lineage.id = id,
            Record::Followed(record) => self.lineage.followed = Some(record),
            Record::Proposed(record) => {
                self.lineage.proposed.insert(record.node, record.number);
            }
            Record::Placed(record) => {
                if record.partition == PartitionIndex(0) {
                    self.moving.remove(&record.topic);
                }
                self.of(record.topic, |entry| {
                    entry.placed.insert(record.partition, record.node);
                });
            }
            Record::Node(record) => {
                let known = self.nodes.get(record.node);
                let is_new = known.is_none_or(|known| known.epoch < record.epoch);
                if is_new || record.state == NodeState::Removed {
                    self.end_moves(record.node);
                }
                self.nodes.apply(record);
            }
            Record::Moving(record) => {
                if self.topics.contains_key(&record.topic) {
                    self.moving.insert(record.topic, record.to);
                }
            }
            Record::Adopted(topic) => self.of(topic, TopicEntry::forget_ledger),
        }
    }

    /// A node has begun anew: what it was about to give or to get is not under way any more.
    fn end_moves(&mut self, node: NodeId) {
        let topics = &self.topics;
        self.moving.retain(|topic, to| {
            let home = topics.get(topic).map(TopicEntry::home);
            *to != node && home != Some(node)
        });
    }

    /// Where a topic is on its way to, if it is.
    pub fn moving(&self, topic: TopicId) -> Option<NodeId> {
        self.moving.get(&topic).copied()
    }

    fn of(&mut self, topic: TopicId, change: impl FnOnce(&mut TopicEntry)) {
        if let Some(entry) = self.topics.get_mut(&topic) {
            change(entry);
        }
    }

    fn apply_topic(&mut self, record: TopicRecord) {
        let names = self.names.entry(record.namespace.clone()).or_default();
        names.insert(record.name.clone(), record.topic);
        if let Some(entry) = self.topics.get_mut(&record.topic) {
            entry.record = record;
            return;
        }
        let entry = TopicEntry {
            record,
            partitions: BTreeMap::new(),
            placed: BTreeMap::new(),
            cursors: BTreeMap::new(),
            producers: BTreeMap::new(),
            epochs: BTreeMap::new(),
            gaps: BTreeMap::new(),
            shared: BTreeMap::new(),
        };
        self.topics.insert(entry.record.topic, entry);
    }

    /// Records that make this table out of an empty one, or out of any
    /// earlier state of it.
    pub fn records(&self) -> impl Iterator<Item = Record> + '_ {
        let deleted = self.deleted.iter().copied().map(Record::TopicDeleted);
        let lineage = self.lineage.records().chain(self.nodes.records());
        let lineage = lineage.chain(deleted);
        let topics = lineage.chain(self.topics.values().flat_map(TopicEntry::records));
        // Behind that they are placed, which would end them.
        let moving = self.moving.iter().map(|(topic, to)| MovingRecord {
            topic: *topic,
            to: *to,
        });
        topics.chain(moving.map(Record::Moving))
    }

    /// Records of the topics of one node, and of those on their way to it. Where a group of another one begins is in every
    /// copy of the table, and in no other node's ledger.
    pub fn records_at(&self, node: NodeId) -> impl Iterator<Item = Record> + '_ {
        let own = self.topics.iter();
        let own = own.filter(move |(topic, entry)| {
            entry.home() == node || self.moving(**topic) == Some(node)
        });
        own.flat_map(|(_, entry)| entry.records())
    }

    /// All records of a topic, in an order in which they can be said again.
    pub fn records_of(&self, topic: TopicId) -> impl Iterator<Item = Record> + '_ {
        let entry = self.topics.get(&topic).into_iter();
        entry.flat_map(TopicEntry::records)
    }

    /// Whether these records may be applied: two nodes decide on a name at once, and do not know of
    /// each other. All else about a topic comes of one node. What is said of nodes has to go with what the table
    /// says of them ([`TableNodes`]): no topic is on one that is removed.
    ///
    /// # Errors
    /// What the node is refused with that has submitted them.
    pub fn admits(&self, records: &[Record]) -> Result<(), ErrorReply> {
        let mut nodes = self.nodes.clone();
        for record in records {
            if let Record::Node(new) = record {
                nodes.admits(new)?;
                nodes.apply(new.clone());
                if new.state == NodeState::Removed {
                    self.admits_removal(new.node, records)?;
                }
            }
            if let Record::Placed(PlacedRecord { topic, node, .. })
            | Record::Moving(MovingRecord { topic, to: node }) = record
            {
                self.admits_place(record, (*topic, *node), &nodes)?;
            }
            if let Record::Topic(new) = record
                && let Some(entry) = self.named(&new.namespace, &new.name)
                && entry.record.topic != new.topic
            {
                let message = format!("topic {:?} exists", new.name);
                return Err(ErrorReply::fatal(ErrorCode::TopicExists, message));
            }
        }
        Ok(())
    }

    /// Whether a node may be removed: each topic on it is deleted by the same command.
    fn admits_removal(&self, node: NodeId, records: &[Record]) -> Result<(), ErrorReply> {
        let deleted = records.iter().filter_map(|record| match record {
            Record::TopicDeleted(topic) => Some(*topic),
            _ => None,
        });
        let deleted: BTreeSet<TopicId> = deleted.collect();
        let mut topics = self.topics.iter();
        // All of them go, and none of another node.
        let other = topics.find(|(id, entry)| (entry.home() == node) != deleted.contains(id));
        other.map_or(Ok(()), |(_, entry)| {
            let (name, home) = (&entry.record.name, entry.home());
            let message = format!("topic {name:?} is on node {home} since");
            Err(ErrorReply::retryable(ErrorCode::WrongServer, 100, message))
        })
    }

    /// Whether a topic may be on a node, or go there: one that is there already stays where it is, unless it is on its way. So
    /// what a node has proposed before it began anew moves nothing.
    fn admits_place(
        &self,
        record: &Record,
        (topic, node): (TopicId, NodeId),
        nodes: &TableNodes,
    ) -> Result<(), ErrorReply> {
        let wrong = |why| Err(ErrorReply::fatal(ErrorCode::WrongServer, why));
        let known = nodes.get(node).map(|known| known.state);
        if known == Some(NodeState::Removed) {
            return wrong(format!("node {node} was removed, and has no topics"));
        }
        let entry = self.topics.get(&topic);
        match (record, entry) {
            (Record::Moving(_), None) => wrong(format!("there is no topic {topic}")),
            (Record::Moving(_), Some(_)) if known.is_none() => {
                wrong(format!("there is no node {node}"))
            }
            (Record::Placed(_), Some(entry))
                if entry.home() != node && self.moving(topic) != Some(node) =>
            {
                let (name, home) = (&entry.record.name, entry.home());
                wrong(format!(
                    "topic {name:?} is on node {home}, and not on its way to node {node}"
                ))
            }
            _ => Ok(()),
        }
    }

    /// Records that make this table say what a later one of the same history says, as far as
    /// those of the table's log go: what the ledger says of topics that are in both is kept if the
    /// others are left out.
    pub fn records_to(&self, later: &Self) -> Vec<Record> {
        let mut records = Vec::new();
        for (id, entry) in &self.topics {
            match later.topics.get(id) {
                None => records.push(Record::TopicDeleted(*id)),
                Some(then) => entry.endings_until(then, &mut records),
            }
        }
        records.extend(later.records());
        records
    }
}

impl TopicEntry {
    fn apply_cursor(&mut self, record: CursorRecord) {
        if !self.is_of(&record.consumer, record.consumer_id) {
            return;
        }
        let Some(position) = record.position else {
            if let Some(cursors) = self.cursors.get_mut(&record.consumer) {
                cursors.remove(&record.partition);
                if cursors.is_empty() {
                    self.cursors.remove(&record.consumer);
                }
            }
            return;
        };
        // A known consumer's name is not allocated again for every move.
        match self.cursors.get_mut(&record.consumer) {
            Some(cursors) => {
                cursors.insert(record.partition, position);
            }
            None => {
                let cursors = BTreeMap::from([(record.partition, position)]);
                self.cursors.insert(record.consumer, cursors);
            }
        }
    }

    /// Adds a gap, joined with those of the same reason that it touches: what
    /// retention drops day by day stays one gap.
    fn apply_gap(&mut self, partition: PartitionIndex, mut gap: Gap) {
        let from = (partition, gap.incarnation, Offset(0));
        let to = (partition, gap.incarnation, gap.end);
        let joined: Vec<_> = self
            .gaps
            .range(from..=to)
            .filter(|(_, other)| other.reason == gap.reason && other.end >= gap.first)
            .filter(|(_, other)| gap.may_join() && other.may_join())
            .map(|(key, other)| (*key, *other))
            .collect();
        for (key, other) in joined {
            gap.first = gap.first.min(other.first);
            gap.end = gap.end.max(other.end);
            gap.time = gap.time.max(other.time);
            self.gaps.remove(&key);
        }
        self.gaps
            .insert((partition, gap.incarnation, gap.first), gap);
    }

    /// The gaps that ended lives of a partition.
    pub fn ends_of_lives(&self, partition: PartitionIndex) -> BTreeMap<Incarnation, Gap> {
        let from = (partition, Incarnation(0), Offset(0));
        let gaps = self.gaps.range(from..);
        let gaps = gaps.take_while(|((of, _, _), _)| *of == partition);
        let mut ends = BTreeMap::new();
        for ((_, incarnation, _), gap) in gaps.filter(|(_, gap)| gap.ends_life()) {
            ends.entry(*incarnation).or_insert(*gap);
        }
        ends
    }

    fn records(&self) -> impl Iterator<Item = Record> + '_ {
        let topic = self.record.topic;
        let namespace = &self.record.namespace;
        let cursors = self.cursors.iter().flat_map(move |(consumer, cursors)| {
            let shared = self.shared.get(consumer);
            let consumer_id = shared.map_or(ConsumerId(0), |entry| entry.record.id);
            cursors.iter().map(move |(partition, position)| {
                Record::Cursor(CursorRecord {
                    namespace: namespace.clone(),
                    consumer: consumer.clone(),
                    topic,
                    partition: *partition,
                    position: Some(*position),
                    consumer_id,
                })
            })
        });
        let gaps = self.gaps.iter().map(move |((partition, _, _), gap)| {
            Record::Gap(GapRecord {
                topic,
                partition: *partition,
                gap: *gap,
            })
        });
        let placed = self.placed.iter().map(move |(partition, node)| {
            Record::Placed(PlacedRecord {
                topic,
                partition: *partition,
                node: *node,
            })
        });
        std::iter::once(Record::Topic(self.record.clone()))
            .chain(placed)
            .chain(self.partitions.values().cloned().map(Record::Partition))
            .chain(self.producers.values().cloned().map(Record::Producer))
            .chain(cursors)
            .chain(gaps)
            .chain(self.shared_records())
    }

    /// What ended between this state of the topic and a later one: what the records of the later
    /// one do not say.
    fn endings_until(&self, later: &Self, records: &mut Vec<Record>) {
        let topic = self.record.topic;
        for (consumer, entry) in &self.shared {
            match later.shared.get(consumer) {
                None => records.push(Record::ConsumerDeleted(ConsumerDeletedRecord {
                    topic,
                    consumer: consumer.clone(),
                })),
                // Another one of the name begins without members.
                Some(then) if then.record.id != entry.record.id => {}
                Some(then) => entry.endings_until(then, records),
            }
        }
    }

    /// The node that serves it: all of its partitions are there.
    pub fn home(&self) -> NodeId {
        let placed = self.placed.get(&PartitionIndex(0)).copied();
        placed.unwrap_or(LEADER)
    }

    /// The consumer of this name, if it is a group or queue.
    pub fn shared(&self, consumer: &str) -> Option<&SharedEntry> {
        self.shared.get(consumer)
    }

    /// How many names of consumers are known.
    pub fn consumer_count(&self) -> usize {
        let shared = self.shared.keys();
        self.cursors.len()
            + shared
                .filter(|name| !self.cursors.contains_key(*name))
                .count()
    }

    /// Whether a record of the ledger is about the consumer that has the name now. The ledger
    /// does not hear when a group or queue ends, or begins: its id says which it was.
    fn is_of(&self, consumer: &str, id: ConsumerId) -> bool {
        let present = self.shared.get(consumer);
        present.map_or(ConsumerId(0), |entry| entry.record.id) == id
    }

    fn apply_consumer(&mut self, record: ConsumerRecord) {
        if let Some(entry) = self.shared.get_mut(&record.consumer)
            && entry.record.id == record.id
        {
            entry.record = record;
            return;
        }
        let entry = SharedEntry::new(record);
        if let Some(starts) = entry.begins() {
            self.set_cursors(&entry.record.consumer, starts);
        }
        self.shared.insert(entry.record.consumer.clone(), entry);
    }

    /// Nothing of what the ledger has said counts: groups are where they have begun, as the table says.
    fn forget_ledger(&mut self) {
        self.cursors.clear();
        self.gaps.clear();
        let mut begun = Vec::new();
        for (name, shared) in &mut self.shared {
            shared.queue.clear();
            begun.extend(shared.begins().map(|starts| (name.clone(), starts)));
        }
        for (consumer, starts) in begun {
            self.set_cursors(&consumer, starts);
        }
    }

    fn set_cursors(&mut self, consumer: &str, cursors: BTreeMap<PartitionIndex, Position>) {
        match cursors.is_empty() {
            true => self.cursors.remove(consumer),
            false => self.cursors.insert(consumer.to_owned(), cursors),
        };
    }

    fn apply_consumer_deleted(&mut self, record: &ConsumerDeletedRecord) {
        self.shared.remove(&record.consumer);
        self.cursors.remove(&record.consumer);
    }

    fn apply_member(&mut self, record: MemberRecord) {
        let Some(entry) = self.shared.get_mut(&record.consumer) else {
            return;
        };
        if record.is_member {
            entry.members.insert(record.member, record);
        } else {
            entry.members.remove(&record.member);
        }
    }

    fn apply_assignment(&mut self, record: &AssignmentRecord) {
        let Some(entry) = self.shared.get_mut(&record.consumer) else {
            return;
        };
        if record.owner == MemberId(0) {
            entry.owners.remove(&record.partition);
        } else {
            entry.owners.insert(record.partition, record.owner);
        }
    }

    fn apply_settled(&mut self, record: SettledRecord) {
        let whose = (&*record.consumer, record.consumer_id);
        let entry = self.queue_in(whose, record.partition, record.incarnation);
        if let Some(entry) = entry {
            entry.apply_settled(record);
        }
    }

    fn apply_returned(&mut self, record: &ReturnedRecord) {
        let whose = (&*record.consumer, record.consumer_id);
        let entry = self.queue_in(whose, record.partition, record.incarnation);
        if let Some(entry) = entry {
            entry.apply_returned(record);
        }
    }

    fn apply_rejected(&mut self, record: RejectedRecord) {
        let whose = (&*record.consumer, record.consumer_id);
        let entry = self.queue_in(whose, record.partition, record.incarnation);
        if let Some(entry) = entry {
            entry.apply_rejected(record);
        }
    }

    /// A queue's entry of a partition in this life; `None` if the life is over, or the queue is
    /// another one.
    fn queue_in(
        &mut self,
        (consumer, id): (&str, ConsumerId),
        partition: PartitionIndex,
        incarnation: Incarnation,
    ) -> Option<&mut QueueEntry> {
        let shared = self.shared.get_mut(consumer);
        let shared = shared.filter(|shared| shared.record.id == id)?;
        let entry = shared.queue.entry(partition).or_default();
        if entry.incarnation < incarnation {
            *entry = QueueEntry {
                incarnation,
                // Dead letters go on being counted: they are another topic's.
                next_rejected: entry.next_rejected,
                ..QueueEntry::default()
            };
        }
        (entry.incarnation == incarnation).then_some(entry)
    }

    fn shared_records(&self) -> impl Iterator<Item = Record> + '_ {
        self.shared.values().flat_map(SharedEntry::records)
    }
}

#[cfg(test)]
mod tests;
