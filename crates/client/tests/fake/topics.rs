//! What the fake server says about topics.

use super::partition::{FakePartition, marks};
use super::{Asked, Conn, FakeServer, FakeTopic, reply, send_error, unknown};
use std::collections::BTreeMap;
use wire::codec::Reader;
use wire::message::*;
use wire::*;

impl FakeServer {
    pub(super) fn answer_about_topics(
        &mut self,
        conn: &mut Conn,
        asked: Asked,
        from: &mut Reader<'_>,
    ) {
        let Asked {
            id, method, by_id, ..
        } = asked;
        match method {
            Method::CreateTopic => {
                let create = CreateTopic::decode(from).unwrap();
                if self.topics.contains_key(&create.name) {
                    let error = ErrorReply::fatal(ErrorCode::TopicExists, create.name);
                    return send_error(conn, id, error);
                }
                self.last_id += 1;
                let partitions = create.partitions.iter().map(|_| FakePartition {
                    incarnation: 1,
                    ..FakePartition::default()
                });
                let topic = FakeTopic {
                    id: TopicId(self.last_id),
                    definition: create.definition,
                    partitions: partitions.collect(),
                    cursors: BTreeMap::new(),
                    names: BTreeMap::new(),
                    queues: BTreeMap::new(),
                    groups: BTreeMap::new(),
                };
                self.topics.insert(create.name.clone(), topic);
                let description = self.describe(&create.name).unwrap();
                reply(conn, id, description.to_bytes());
            }
            Method::DescribeTopic => {
                let name = TopicName::decode(from).unwrap().name;
                match self.describe(&name) {
                    Some(description) => reply(conn, id, description.to_bytes()),
                    None => send_error(conn, id, unknown(&name)),
                }
            }
            Method::AddPartitions => {
                let add = AddPartitions::decode(from).unwrap();
                let name = by_id.unwrap();
                let topic = self.topics.get_mut(&name).unwrap();
                for _ in add.partitions {
                    topic.partitions.push(FakePartition {
                        incarnation: 1,
                        ..FakePartition::default()
                    });
                }
                let description = self.describe(&name).unwrap();
                reply(conn, id, description.to_bytes());
            }
            Method::ListTopics => {
                let topics = self.topics.keys().map(|name| self.describe(name).unwrap());
                let list = TopicList {
                    topics: topics.collect(),
                    others: Vec::new(),
                };
                reply(conn, id, list.to_bytes());
            }
            Method::DeleteTopic => {
                let name = TopicName::decode(from).unwrap().name;
                match self.topics.remove(&name) {
                    Some(_) => reply(conn, id, Vec::new()),
                    None => send_error(conn, id, unknown(&name)),
                }
            }
            other => unreachable!("{other:?} is somebody else's"),
        }
    }

    pub(super) fn topic_of(&self, id: TopicId) -> Option<String> {
        let found = self.topics.iter().find(|(_, topic)| topic.id == id);
        found.map(|(name, _)| name.clone())
    }

    pub(super) fn describe(&self, name: &str) -> Option<TopicDescription> {
        let topic = self.topics.get(name)?;
        let partitions = topic.partitions.iter().enumerate();
        Some(TopicDescription {
            name: name.to_owned(),
            topic: topic.id,
            definition: topic.definition.clone(),
            partitions: partitions
                .map(|(index, partition)| PartitionDescription {
                    partition: PartitionIndex(index as u32),
                    storage: PartitionStorage {
                        kind: "memory".into(),
                        config: String::new(),
                    },
                    durability: Durability::Memory,
                    incarnation: Incarnation(partition.incarnation),
                    leader_epoch: partition.incarnation as u32,
                    ended: Vec::new(),
                    first: Offset(0),
                    watermarks: marks(partition),
                    bytes: 0,
                    failure: String::new(),
                })
                .collect(),
        })
    }
}
