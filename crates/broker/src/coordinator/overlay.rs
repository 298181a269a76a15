//! What the table will say when the commands under way are carried out.
//!
//! Commands take effect in the order of their submission, so whatever follows one builds on it:
//! its answers are given from the moment that it is submitted, and end with it, when the table
//! gives them itself. One that is refused takes all with it that are under way, and with them
//! their answers: then the table says again how things are. No client hears of an answer before
//! it is durable.

use std::collections::BTreeMap;
use wire::record::{Position, ProducerRecord, Record};
use wire::{PartitionIndex, TopicId};

/// A consumer's cursor in a partition.
pub(crate) type CursorKey = (TopicId, String, PartitionIndex);

/// What there is an answer to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    /// Where a consumer stands.
    Cursor(CursorKey),
    /// Which life a named producer is in.
    Producer(TopicId, String),
    /// Whether a topic of this namespace and name is being made.
    Name(String, String),
    /// Why a topic is not to be changed now.
    Topic(TopicId),
    /// Who is a member of a group or queue, and owns what. The answer itself is with the group
    /// or queue, which returns to the table when this one is rolled back.
    Shared(TopicId, String),
}

/// Answers of one kind: each is the latest, and stands until all are over that gave one.
#[derive(Debug)]
struct Ahead<K, V>(BTreeMap<K, (V, usize)>);

impl<K: Ord, V> Default for Ahead<K, V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord, V> Ahead<K, V> {
    fn get(&self, key: &K) -> Option<&V> {
        self.0.get(key).map(|(value, _)| value)
    }

    fn begin(&mut self, key: K, value: V) {
        match self.0.entry(key) {
            std::collections::btree_map::Entry::Vacant(entry) => {
                entry.insert((value, 1));
            }
            std::collections::btree_map::Entry::Occupied(mut entry) => {
                let (latest, count) = entry.get_mut();
                *latest = value;
                *count += 1;
            }
        }
    }

    fn end(&mut self, key: &K) {
        if let Some((_, count)) = self.0.get_mut(key) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(key);
            }
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Overlay {
    cursors: Ahead<CursorKey, Option<Position>>,
    producers: Ahead<(TopicId, String), ProducerRecord>,
    names: Ahead<(String, String), ()>,
    topics: Ahead<TopicId, &'static str>,
}

impl Overlay {
    /// Where a consumer stands: `None` if nothing is under way, else the position, or that it
    /// has none.
    pub fn cursor(&self, key: &CursorKey) -> Option<Option<Position>> {
        self.cursors.get(key).copied()
    }

    /// Whether any cursor is on its way.
    pub fn has_cursors(&self) -> bool {
        !self.cursors.0.is_empty()
    }

    /// The partitions in which a cursor of this name is on its way.
    pub fn cursor_partitions(&self, topic: TopicId, consumer: &str) -> Vec<PartitionIndex> {
        let from = (topic, consumer.to_owned(), PartitionIndex(0));
        let behind = self.cursors.0.range(from..).map(|(key, _)| key);
        let named = behind.take_while(|(id, name, _)| *id == topic && name == consumer);
        named.map(|(_, _, partition)| *partition).collect()
    }

    /// A named producer in the life that is on its way.
    pub fn producer(&self, topic: TopicId, name: &str) -> Option<&ProducerRecord> {
        self.producers.get(&(topic, name.to_owned()))
    }

    /// Whether a topic of this name is being made.
    pub fn is_being_made(&self, namespace: &str, name: &str) -> bool {
        self.names
            .get(&(namespace.to_owned(), name.to_owned()))
            .is_some()
    }

    /// How many topics are being made.
    pub fn made_count(&self) -> usize {
        self.names.0.len()
    }

    /// How many topics of a namespace are being made.
    pub fn made_in(&self, namespace: &str) -> usize {
        let names = self.names.0.keys();
        names.filter(|(of, _)| of == namespace).count()
    }

    /// Why a topic is not to be changed now, if so.
    pub fn busy(&self, topic: TopicId) -> Option<&'static str> {
        self.topics.get(&topic).copied()
    }

    /// A topic is being made, or gets partitions: its name, or the topic, is taken before there
    /// are records to submit. Ends with [`Overlay::end`].
    pub fn claim(&mut self, key: Key) {
        match key {
            Key::Name(namespace, name) => self.names.begin((namespace, name), ()),
            Key::Topic(topic) => self.topics.begin(topic, "the topic is being changed"),
            Key::Cursor(_) | Key::Producer(..) | Key::Shared(..) => {}
        }
    }

    /// A command is submitted: what its records say holds from now on. Returns what it is that
    /// they say something of.
    pub fn apply(&mut self, records: &[Record]) -> Vec<Key> {
        records
            .iter()
            .filter_map(|record| self.apply_one(record))
            .collect()
    }

    fn apply_one(&mut self, record: &Record) -> Option<Key> {
        Some(match record {
            Record::Cursor(record) => {
                let key = (record.topic, record.consumer.clone(), record.partition);
                self.cursors.begin(key.clone(), record.position);
                Key::Cursor(key)
            }
            Record::Producer(record) => {
                let key = (record.topic, record.name.clone());
                self.producers.begin(key.clone(), record.clone());
                Key::Producer(key.0, key.1)
            }
            Record::Topic(record) => {
                self.topics
                    .begin(record.topic, "the topic is being altered");
                Key::Topic(record.topic)
            }
            Record::TopicDeleted(topic) => {
                self.topics.begin(*topic, "the topic is being deleted");
                Key::Topic(*topic)
            }
            Record::Consumer(record) => Key::Shared(record.topic, record.consumer.clone()),
            Record::ConsumerDeleted(record) => Key::Shared(record.topic, record.consumer.clone()),
            Record::Member(record) => Key::Shared(record.topic, record.consumer.clone()),
            Record::Assignment(record) => Key::Shared(record.topic, record.consumer.clone()),
            // Nothing is built on these before they are durable; of a queue's, the queue
            // itself knows what is under way.
            Record::Partition(_)
            | Record::Gap(_)
            | Record::Settled(_)
            | Record::Returned(_)
            | Record::Rejected(_)
            | Record::Table(_)
            | Record::Followed(_)
            | Record::Proposed(_)
            | Record::Placed(_)
            | Record::Node(_)
            | Record::Moving(_)
            | Record::Adopted(_) => return None,
        })
    }

    /// The command, or the making of a topic, is over that gave this answer.
    pub fn end(&mut self, key: &Key) {
        match key {
            Key::Cursor(key) => self.cursors.end(key),
            Key::Producer(topic, name) => self.producers.end(&(*topic, name.clone())),
            Key::Name(namespace, name) => self.names.end(&(namespace.clone(), name.clone())),
            Key::Topic(topic) => self.topics.end(topic),
            Key::Shared(..) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::record::CursorRecord;
    use wire::{ConsumerId, Incarnation, Offset};

    const TOPIC: TopicId = TopicId(1);

    fn cursor(offset: Option<u64>) -> Record {
        Record::Cursor(CursorRecord {
            namespace: String::new(),
            consumer: "c".into(),
            topic: TOPIC,
            partition: PartitionIndex(2),
            position: offset.map(|offset| Position {
                incarnation: Incarnation(1),
                offset: Offset(offset),
            }),
            consumer_id: ConsumerId(0),
        })
    }

    #[test]
    fn an_answer_is_the_latest_until_all_are_over_that_gave_one() {
        let mut overlay = Overlay::default();
        let key = (TOPIC, "c".to_owned(), PartitionIndex(2));
        assert_eq!(overlay.cursor(&key), None);
        let first = overlay.apply(&[cursor(Some(5))]);
        let second = overlay.apply(&[cursor(Some(9)), cursor(None)]);
        assert_eq!(overlay.cursor(&key), Some(None));
        first.iter().for_each(|key| overlay.end(key));
        assert_eq!(overlay.cursor(&key), Some(None));
        assert_eq!(overlay.cursor_partitions(TOPIC, "c"), [PartitionIndex(2)]);
        second.iter().for_each(|key| overlay.end(key));
        assert_eq!(overlay.cursor(&key), None);
        assert!(!overlay.has_cursors());
    }

    #[test]
    fn a_name_is_taken_before_there_is_a_record() {
        let mut overlay = Overlay::default();
        let claim = Key::Name("n".into(), "t".into());
        overlay.claim(claim.clone());
        assert!(overlay.is_being_made("n", "t"));
        assert!(!overlay.is_being_made("", "t"));
        assert_eq!(overlay.made_count(), 1);
        overlay.end(&claim);
        assert_eq!(overlay.made_count(), 0);
        let keys = overlay.apply(&[Record::TopicDeleted(TOPIC)]);
        assert_eq!(overlay.busy(TOPIC), Some("the topic is being deleted"));
        keys.iter().for_each(|key| overlay.end(key));
        assert_eq!(overlay.busy(TOPIC), None);
    }
}
