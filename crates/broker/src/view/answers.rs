//! Answers to requests that change nothing.

use super::View;
use crate::answer::Answer;
use crate::coordinator::served_topic::Slot;
use crate::coordinator::table::TopicEntry;
use crate::identity::Identity;
use crate::ids::{LEADER, Now};
use crate::refusal::{Refused, no_topic, refuse, unknown_topic};
use crate::request::DescribeRequest;
use std::collections::BTreeMap;
use wire::message::{
    ConsumerList, GapList, NodeDescription, NodeList, TopicDescription, TopicList,
};
use wire::{ErrorCode, NodeId, TopicId};

impl View<'_> {
    /// Answers this client.
    pub fn answer(
        &self,
        identity: &Identity,
        now: Now,
        request: &DescribeRequest,
    ) -> Result<Answer, Refused> {
        let namespace = identity.namespace.as_str();
        Ok(match request {
            DescribeRequest::ListTopics(about) => {
                Answer::Topics(self.topic_list(*about, identity, now)?)
            }
            DescribeRequest::CheckAccess(check) => {
                Answer::AccessChecked(identity.check_access(check, now)?)
            }
            DescribeRequest::ListNodes(list) => Answer::Nodes(self.node_list(list.topics_of)),
            DescribeRequest::DescribeTopic(topic) => {
                Answer::Topic(self.topic_description(namespace, &topic.name)?)
            }
            DescribeRequest::ListGaps(topic) => {
                Answer::Gaps(self.gap_list(namespace, &topic.name)?)
            }
            DescribeRequest::DescribeConsumers(topic, only) => {
                Answer::Consumers(self.consumer_list(namespace, *topic, &only.consumer)?)
            }
        })
    }

    /// The topics of a client's namespace that it may know of: those of this node, one of each other node that has some, and
    /// those of nodes that are away, as the table has them. Who asks about a topic of one that is away gets that one's alone.
    fn topic_list(
        &self,
        about: TopicId,
        identity: &Identity,
        now: Now,
    ) -> Result<TopicList, Refused> {
        let nodes = &self.ctx.options.nodes;
        let mut only = None;
        if about != TopicId(0) {
            let entry = self.commands.table().topic(about);
            let home = entry.map(TopicEntry::home);
            only = home.filter(|home| nodes.is_away(*home));
            let name = match (only, entry) {
                (Some(_), Some(entry)) if entry.record.namespace == identity.namespace => {
                    entry.record.name.as_str()
                }
                _ => &self.topics.of(&identity.namespace, about)?.name,
            };
            if !identity.may_know(name, now) {
                return Err(unknown_topic(about));
            }
        }
        let entries = self.commands.table().namespace(&identity.namespace);
        let entries = entries.filter(|entry| identity.may_know(&entry.record.name, now));
        let mut topics = Vec::new();
        let mut others = BTreeMap::new();
        for entry in entries {
            let (home, topic) = (entry.home(), entry.record.topic);
            if only.is_some_and(|only| only != home) {
                continue;
            }
            if home == self.ctx.node() {
                topics.extend(self.description(topic));
            } else if nodes.is_away(home) {
                let why = format!("node {home}, which has it, is away");
                topics.push(self.description_by_table(entry, &why));
            } else {
                others.entry(home).or_insert(topic);
            }
        }
        Ok(TopicList {
            topics,
            others: others.into_values().collect(),
        })
    }

    /// The nodes of the table, how many topics are on each, and the topics of one.
    fn node_list(&self, of: NodeId) -> NodeList {
        let table = self.commands.table();
        let (mut topics, mut listed) = (BTreeMap::new(), Vec::new());
        for (_, entry) in table.topics() {
            *topics.entry(entry.home()).or_insert(0) += 1;
            if entry.home() == of && of != LEADER {
                let record = &entry.record;
                listed.push((record.namespace.clone(), record.name.clone()));
            }
        }
        listed.sort();
        let nodes = table.nodes().present().map(|record| NodeDescription {
            node: record.node,
            directory: record.directory,
            epoch: record.epoch,
            shard: record.shard,
            state: record.state,
            endpoints: record.endpoints.clone(),
            labels: record.labels.clone(),
            topics: topics.get(&record.node).copied().unwrap_or(0),
        });
        NodeList {
            nodes: nodes.collect(),
            topics: listed,
        }
    }

    /// The topic of a name.
    fn topic_description(&self, namespace: &str, name: &str) -> Result<TopicDescription, Refused> {
        let id = self.topic_named(namespace, name)?;
        self.description(id).ok_or_else(|| unknown_topic(id))
    }

    /// What a topic has lost.
    fn gap_list(&self, namespace: &str, name: &str) -> Result<GapList, Refused> {
        let id = self.topic_named(namespace, name)?;
        let entry = self.commands.table().topic(id);
        let gaps = entry.ok_or_else(|| unknown_topic(id))?.gaps.iter();
        let gaps = gaps.map(|((partition, _, _), gap)| (*partition, *gap));
        Ok(GapList {
            gaps: gaps.collect(),
        })
    }

    /// The consumers of a topic, or the one of this name.
    fn consumer_list(
        &self,
        namespace: &str,
        topic: TopicId,
        only: &str,
    ) -> Result<ConsumerList, Refused> {
        self.topics.of(namespace, topic)?;
        let consumers = self.consumers(topic, only);
        if consumers.is_empty() && !only.is_empty() {
            return Err(refuse(
                ErrorCode::UnknownConsumer,
                format!("the topic has no consumer {only:?}"),
            ));
        }
        Ok(ConsumerList { consumers })
    }

    fn topic_named(&self, namespace: &str, name: &str) -> Result<TopicId, Refused> {
        let entry = self.commands.table().named(namespace, name);
        entry
            .map(|entry| entry.record.topic)
            .filter(|id| self.topics.get(*id).is_some())
            .ok_or_else(|| no_topic(name))
    }

    /// Which log or partition serves no more until the node
    /// is opened again, and why.
    pub fn failure(&self) -> Option<String> {
        if let Some(failure) = self.commands.failure() {
            return Some(failure);
        }
        let slots = self.topics.values().flat_map(|topic| &topic.partitions);
        slots.into_iter().find_map(|slot| match slot {
            Slot::Failed(reason) => Some(reason.clone()),
            Slot::Open(id) => self.partitions.get(id)?.store.state().failure,
        })
    }
}
