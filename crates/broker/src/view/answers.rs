//! Answers to requests that change nothing.

use super::View;
use crate::answer::Answer;
use crate::coordinator::served_topic::Slot;
use crate::identity::Identity;
use crate::ids::Now;
use crate::refusal::{Refused, no_topic, refuse, unknown_topic};
use crate::request::DescribeRequest;
use std::collections::BTreeMap;
use wire::message::{ConsumerList, GapList, TopicDescription, TopicList};
use wire::{ErrorCode, TopicId};

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

    /// The topics of a client's namespace that it may know of: those of this node, and one of each other
    /// node that has some.
    fn topic_list(
        &self,
        about: TopicId,
        identity: &Identity,
        now: Now,
    ) -> Result<TopicList, Refused> {
        if about != TopicId(0) {
            let found = self.topics.of(&identity.namespace, about)?;
            if !identity.may_know(&found.name, now) {
                return Err(unknown_topic(about));
            }
        }
        let entries = self.commands.table().namespace(&identity.namespace);
        let entries = entries.filter(|entry| identity.may_know(&entry.record.name, now));
        let mut topics = Vec::new();
        let mut others = BTreeMap::new();
        for entry in entries {
            let (home, topic) = (entry.home(), entry.record.topic);
            match home == self.ctx.node() {
                true => topics.extend(self.description(topic)),
                false => drop(others.entry(home).or_insert(topic)),
            }
        }
        Ok(TopicList {
            topics,
            others: others.into_values().collect(),
        })
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
