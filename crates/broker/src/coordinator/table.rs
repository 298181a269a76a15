//! The state that the records of the table's log and of the ledger add up to.

mod lineage;
mod nodes;
mod sharing;

use lineage::Lineage;
pub use nodes::{NODE_IDS_MAX, NODES_MAX, TableNodes};
pub use sharing::{QueueEntry, Returned, SharedEntry};

use crate::ids::LEADER;
use std::collections::{BTreeMap, VecDeque};
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
                self.of(record.topic, |entry| {
                    entry.placed.insert(record.partition, record.node);
                });
            }
            Record::Node(record) => self.nodes.apply(record),
        }
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
        lineage.chain(self.topics.values().flat_map(TopicEntry::records))
    }

    /// Records of the topics of one node. Where a group of another one begins is in every copy of the
    /// table, and in no other node's ledger.
    pub fn records_at(&self, node: NodeId) -> impl Iterator<Item = Record> + '_ {
        let own = self.topics.values();
        let own = own.filter(move |entry| entry.home() == node);
        own.flat_map(TopicEntry::records)
    }

    /// Whether these records may be applied: two nodes decide on a name at once, and do not know of
    /// each other. All else about a topic comes of one node. What is said of nodes has to go with what the table
    /// says of them ([`TableNodes`]).
    ///
    /// # Errors
    /// What the node is refused with that has submitted them.
    pub fn admits(&self, records: &[Record]) -> Result<(), ErrorReply> {
        let mut nodes = self.nodes.clone();
        for record in records {
            if let Record::Node(new) = record {
                nodes.admits(new)?;
                nodes.apply(new.clone());
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
        if record.kind != ConsumerKind::Queue {
            let starts = record.starts.iter().copied().collect();
            self.set_cursors(&record.consumer, starts);
        }
        let entry = SharedEntry::new(record);
        self.shared.insert(entry.record.consumer.clone(), entry);
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
mod tests {
    use super::*;
    use crate::coordinator::controller::Home;
    use wire::{DirectoryId, MemberId, Sequence};

    const QUEUE: ConsumerId = ConsumerId(7);

    fn gap(first: u64, end: u64) -> Record {
        Record::Gap(GapRecord {
            topic: TopicId(1),
            partition: PartitionIndex(0),
            gap: Gap {
                incarnation: Incarnation(1),
                first: Offset(first),
                end: Offset(end),
                reason: GapReason::Retention,
                time: 0,
            },
        })
    }

    fn cursor(consumer: &str, offset: Option<u64>) -> Record {
        Record::Cursor(CursorRecord {
            namespace: String::new(),
            consumer: consumer.into(),
            topic: TopicId(1),
            partition: PartitionIndex(0),
            position: offset.map(|offset| Position {
                incarnation: Incarnation(1),
                offset: Offset(offset),
            }),
            consumer_id: ConsumerId(0),
        })
    }

    fn queue(consumer: &str) -> Record {
        Record::Consumer(ConsumerRecord {
            namespace: String::new(),
            consumer: consumer.into(),
            topic: TopicId(1),
            kind: ConsumerKind::Queue,
            options: "{}".into(),
            id: QUEUE,
            starts: Vec::new(),
        })
    }

    fn settled(incarnation: u64, ranges: &[(u64, u64)]) -> Record {
        let ranges = ranges.iter();
        Record::Settled(SettledRecord {
            topic: TopicId(1),
            consumer: "q".into(),
            partition: PartitionIndex(0),
            incarnation: Incarnation(incarnation),
            ranges: ranges.map(|(a, b)| (Offset(*a), Offset(*b))).collect(),
            delivered: Offset(50),
            next_rejected: Sequence(0),
            consumer_id: QUEUE,
        })
    }

    fn returned(first: u64, end: u64, deliveries: u32) -> Record {
        Record::Returned(ReturnedRecord {
            topic: TopicId(1),
            consumer: "q".into(),
            partition: PartitionIndex(0),
            incarnation: Incarnation(1),
            first: Offset(first),
            end: Offset(end),
            deliveries,
            not_before: 0,
            consumer_id: QUEUE,
        })
    }

    fn rejected(offset: u64, sequence: u64) -> Record {
        Record::Rejected(RejectedRecord {
            topic: TopicId(1),
            consumer: "q".into(),
            partition: PartitionIndex(0),
            incarnation: Incarnation(1),
            offset: Offset(offset),
            deliveries: 3,
            reason: "no such file".into(),
            time: 7,
            sequence: Sequence(sequence),
            consumer_id: QUEUE,
        })
    }

    fn member(id: u128, is_member: bool) -> Record {
        Record::Member(MemberRecord {
            topic: TopicId(1),
            consumer: "q".into(),
            member: MemberId(id),
            instance: String::new(),
            client_name: "worker 1".into(),
            session_timeout_ms: 10_000,
            is_member,
        })
    }

    fn assignment(partition: u32, owner: u128) -> Record {
        Record::Assignment(AssignmentRecord {
            topic: TopicId(1),
            consumer: "q".into(),
            partition: PartitionIndex(partition),
            owner: MemberId(owner),
        })
    }

    fn topic(id: u128, name: &str) -> Record {
        Record::Topic(TopicRecord {
            namespace: String::new(),
            name: name.into(),
            topic: TopicId(id),
            definition: "{}".into(),
        })
    }

    fn node(node: u32, epoch: u64, state: NodeState) -> Record {
        Record::Node(NodeRecord {
            node: NodeId(node),
            directory: DirectoryId(node.into()),
            epoch,
            shard: 0,
            endpoints: Endpoints(vec![format!("tcp://h:{epoch}")]),
            labels: Labels::default(),
            state,
        })
    }

    /// It says that a life ends there, and only because it is empty.
    #[test]
    fn damage_of_unknown_extent_is_no_part_of_the_damage_before_it() {
        let damage = |first, end| match gap(first, end) {
            Record::Gap(record) => Record::Gap(GapRecord {
                gap: Gap {
                    reason: GapReason::Damaged,
                    ..record.gap
                },
                ..record
            }),
            _ => unreachable!("it is a gap"),
        };
        for records in [
            [damage(40, 50), damage(50, 50)],
            [damage(50, 50), damage(40, 50)],
        ] {
            let mut table = Table::default();
            table.apply(topic(1, "a"));
            records.into_iter().for_each(|record| table.apply(record));
            let entry = table.topic(TopicId(1)).unwrap();
            let lengths: Vec<u64> = entry
                .gaps
                .values()
                .map(|gap| gap.end.0 - gap.first.0)
                .collect();
            assert_eq!(lengths, [10, 0]);
            let end = entry.ends_of_lives(PartitionIndex(0))[&Incarnation(1)];
            assert_eq!((end.first, end.end), (Offset(50), Offset(50)));
        }
    }

    #[test]
    fn gaps_that_touch_are_one() {
        let mut table = Table::default();
        table.apply(topic(1, "a"));
        for record in [gap(0, 10), gap(20, 30), gap(40, 50), gap(10, 20)] {
            table.apply(record);
        }
        let gaps: Vec<_> = table.topic(TopicId(1)).unwrap().gaps.values().collect();
        let ranges: Vec<_> = gaps.iter().map(|gap| (gap.first.0, gap.end.0)).collect();
        assert_eq!(ranges, [(0, 30), (40, 50)]);
    }

    #[test]
    fn what_is_settled_is_not_returned_and_a_new_life_begins_afresh() {
        let mut table = Table::default();
        for record in [
            topic(1, "a"),
            queue("q"),
            returned(0, 10, 1),
            rejected(3, 0),
            returned(2, 5, 2),
            settled(1, &[(4, 6)]),
        ] {
            table.apply(record);
        }
        let entry = |table: &Table| {
            let queue = &table.topic(TopicId(1)).unwrap().shared("q").unwrap().queue;
            queue[&PartitionIndex(0)].clone()
        };
        let ranges: Vec<_> = entry(&table)
            .returned
            .iter()
            .map(|(first, end, value)| (first.0, end.0, value.deliveries))
            .collect();
        assert_eq!(ranges, [(0, 2, 1), (2, 3, 2), (6, 10, 1)]);
        assert_eq!(entry(&table).next_rejected, Sequence(1));
        table.apply(settled(2, &[(0, 1)]));
        // Late news of the life that ended is of no matter.
        table.apply(settled(1, &[(1, 2)]));
        let now = entry(&table);
        assert_eq!(now.settled.first_missing(), Offset(1));
        assert!(now.returned.is_empty() && now.rejected.is_empty());
        assert_eq!(now.next_rejected, Sequence(1));
    }

    fn of(record: Record, id: u64) -> Record {
        let id = ConsumerId(id);
        match record {
            Record::Cursor(record) => Record::Cursor(CursorRecord {
                consumer_id: id,
                ..record
            }),
            Record::Consumer(record) => Record::Consumer(ConsumerRecord { id, ..record }),
            Record::Settled(record) => Record::Settled(SettledRecord {
                consumer_id: id,
                ..record
            }),
            other => other,
        }
    }

    fn deleted(consumer: &str) -> Record {
        Record::ConsumerDeleted(ConsumerDeletedRecord {
            topic: TopicId(1),
            consumer: consumer.into(),
        })
    }

    fn replayed<'a>(records: impl IntoIterator<Item = &'a Record>) -> Table {
        let mut table = Table::default();
        let records = records.into_iter().cloned();
        records.for_each(|record| table.apply(record));
        table
    }

    /// The ledger is replayed behind the whole table, in which the name is another consumer's by
    /// then: what it says of those before counts for nobody.
    #[test]
    fn what_the_ledger_says_counts_for_the_consumer_that_it_is_about() {
        let group = |id| match of(queue("c"), id) {
            Record::Consumer(record) => Record::Consumer(ConsumerRecord {
                kind: ConsumerKind::Group,
                starts: vec![(
                    PartitionIndex(0),
                    Position {
                        incarnation: Incarnation(1),
                        offset: Offset(3),
                    },
                )],
                ..record
            }),
            other => other,
        };
        let offset = |table: &Table| {
            let cursors = table.topic(TopicId(1)).unwrap().cursors.get("c").cloned();
            cursors.map(|cursors| cursors[&PartitionIndex(0)].offset.0)
        };
        let moved = |offset, id| of(cursor("c", Some(offset)), id);
        let begun = [topic(1, "a"), group(1)];
        assert_eq!(offset(&replayed(&begun)), Some(3));
        let own = [topic(1, "a"), group(1), moved(7, 1)];
        assert_eq!(offset(&replayed(&own)), Some(7));
        let another = [topic(1, "a"), group(2), moved(7, 1)];
        assert_eq!(offset(&replayed(&another)), Some(3));
        let independent = [topic(1, "a"), group(1), deleted("c"), moved(7, 1)];
        assert_eq!(offset(&replayed(&independent)), None);
        let independent = [topic(1, "a"), group(1), deleted("c"), moved(5, 0)];
        assert_eq!(offset(&replayed(&independent)), Some(5));
        let before = [topic(1, "a"), group(1), moved(5, 0)];
        assert_eq!(offset(&replayed(&before)), Some(3));

        let queues = [topic(1, "a"), of(queue("q"), 2), settled(1, &[(0, 10)])];
        let table = replayed(&queues);
        let entry = table.topic(TopicId(1)).unwrap().shared("q").unwrap();
        assert!(entry.queue.is_empty());
    }

    /// Much that may happen to a table.
    fn history() -> Vec<Record> {
        vec![
            topic(1, "a"),
            cursor("c", Some(5)),
            gap(0, 10),
            topic(2, "b"),
            cursor("d", Some(6)),
            cursor("d", None),
            gap(20, 30),
            gap(10, 20),
            cursor("c", Some(9)),
            Record::TopicDeleted(TopicId(2)),
            topic(3, "b"),
            of(queue("p"), 3),
            of(settled(1, &[(0, 10)]), 3),
            deleted("p"),
            of(queue("p"), 4),
            node(1, 1, NodeState::Serving),
            node(2, 1, NodeState::Serving),
            queue("q"),
            member(5, true),
            member(6, true),
            settled(1, &[(0, 10), (20, 30)]),
            returned(5, 25, 1),
            returned(12, 14, 2),
            rejected(13, 0),
            assignment(0, 5),
            assignment(1, 6),
            node(2, 1, NodeState::Removed),
            node(1, 2, NodeState::Serving),
            node(1, 2, NodeState::Draining),
            member(5, false),
            assignment(0, 0),
            rejected(15, 1),
            settled(1, &[(13, 14)]),
            returned(15, 17, 9),
            deleted("p"),
        ]
    }

    /// The property that compaction stands on: any tail of each log, followed by the records of the
    /// table that belong there, gives the table.
    #[test]
    fn snapshots_behind_any_tails_of_the_logs_are_the_table() {
        let log = history();
        let table = replayed(&log);
        let records: Vec<Record> = table.records().collect();
        let [internal, ledger] = Home::ALL.map(|home| {
            let is_own = |record: &&Record| Home::of(record) == home;
            let log: Vec<&Record> = log.iter().filter(is_own).collect();
            let snapshot: Vec<&Record> = records.iter().filter(is_own).collect();
            (log, snapshot)
        });
        for from in 0..=internal.0.len() {
            for behind in 0..=ledger.0.len() {
                let internal = internal.0[from..].iter().chain(&internal.1);
                let ledger = ledger.0[behind..].iter().chain(&ledger.1);
                let found = replayed(internal.chain(ledger).copied());
                assert_eq!(found, table, "tails from {from} and {behind}");
            }
        }
    }

    /// What a copy of the table goes by that was away for long: from any state on it comes to the
    /// present one, and what its own ledger said stays.
    #[test]
    fn from_any_state_a_copy_comes_to_a_later_one() {
        let of_table = |record: &Record| Home::of(record) == Home::Table;
        let content = |table: &Table| -> Vec<Record> { table.records().filter(of_table).collect() };
        let log = history();
        for end in 0..=log.len() {
            // As it is sent: without what the ledger says.
            let later = replayed(content(&replayed(&log[..end])).iter());
            for begin in 0..=end {
                let mut table = replayed(&log[..begin]);
                let cursors = |table: &Table| {
                    let entry = table.topic(TopicId(1));
                    entry.map(|entry| entry.cursors.get("c").cloned())
                };
                let before = cursors(&table);
                for record in table.records_to(&later).into_iter().filter(of_table) {
                    table.apply(record);
                }
                assert_eq!(content(&table), content(&later), "from {begin} to {end}");
                assert!(before.is_none() || cursors(&table) == before);
            }
        }
    }
}
