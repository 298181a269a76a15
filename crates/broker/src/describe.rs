//! What there is, for clients and people: nothing here changes anything.

use crate::answer::Answer;
use crate::coordinator::served_topic::Slot;
use crate::ids::RequestId;
use crate::node::Node;
use crate::refusal::{Refused, no_topic, refuse, unknown_topic};
use crate::status::StatusText;
use crate::view::View;
use bytes::Bytes;
use serde_json::{Value, json};
use wire::message::*;
use wire::{ErrorCode, TopicId};

impl Node {
    /// The node, as it is described.
    pub(crate) fn view(&self) -> View<'_> {
        View {
            ctx: &self.ctx,
            sessions: &self.sessions,
            commands: &self.commands,
            topics: &self.topics,
            shared: &self.shared,
            queues: &self.queues,
            partitions: &self.partitions,
        }
    }

    pub(crate) fn list_topics(&mut self, caller: RequestId) -> Result<(), Refused> {
        let namespace = self.sessions.namespace(caller.link).to_owned();
        let entries = self.commands.table().namespace(&namespace);
        let ids: Vec<TopicId> = entries.map(|entry| entry.record.topic).collect();
        let topics = ids
            .into_iter()
            .filter_map(|id| self.view().description(id))
            .collect();
        // A list of topics may be longer than a head; then it is the payload.
        self.answer(caller, Answer::Topics(TopicList { topics }));
        Ok(())
    }

    pub(crate) fn describe_topic(
        &mut self,
        caller: RequestId,
        TopicName { name }: TopicName,
    ) -> Result<(), Refused> {
        let id = self.topic_named(caller, &name)?;
        let description = self
            .view()
            .description(id)
            .ok_or_else(|| unknown_topic(id))?;
        self.answer(caller, Answer::Topic(description));
        Ok(())
    }

    pub(crate) fn list_gaps(
        &mut self,
        caller: RequestId,
        TopicName { name }: TopicName,
    ) -> Result<(), Refused> {
        let id = self.topic_named(caller, &name)?;
        let entry = self
            .commands
            .table()
            .topic(id)
            .ok_or_else(|| unknown_topic(id))?;
        let gaps = entry
            .gaps
            .iter()
            .map(|((partition, _, _), gap)| (*partition, *gap));
        let list = GapList {
            gaps: gaps.collect(),
        };
        self.answer(caller, Answer::Gaps(list));
        Ok(())
    }

    pub(crate) fn describe_consumers(
        &mut self,
        caller: RequestId,
        topic: TopicId,
        ConsumerName { consumer }: ConsumerName,
    ) -> Result<(), Refused> {
        self.topics
            .of(self.sessions.namespace(caller.link), topic)?;
        let consumers = self.view().consumers(topic, &consumer);
        if consumers.is_empty() && !consumer.is_empty() {
            return Err(refuse(
                ErrorCode::UnknownConsumer,
                format!("the topic has no consumer {consumer:?}"),
            ));
        }
        self.answer(caller, Answer::Consumers(ConsumerList { consumers }));
        Ok(())
    }

    /// The topic that a request names, if there is one.
    fn topic_named(&self, caller: RequestId, name: &str) -> Result<TopicId, Refused> {
        let entry = self
            .commands
            .table()
            .named(self.sessions.namespace(caller.link), name);
        entry
            .map(|entry| entry.record.topic)
            .filter(|id| self.topics.get(*id).is_some())
            .ok_or_else(|| no_topic(name))
    }

    /// Has the status made for a caller.
    pub(crate) fn status_reply(&mut self, caller: RequestId) -> Result<(), Refused> {
        self.statuses.ask(caller);
        self.advance_status();
        Ok(())
    }

    /// Writes a slice of the status that is being made, and answers those who asked for it when
    /// it is complete.
    pub(crate) fn advance_status(&mut self) {
        let mut statuses = std::mem::take(&mut self.statuses);
        let complete = statuses.advance(self.view(), || self.status_head());
        self.statuses = statuses;
        let Some((callers, json)) = complete else {
            return;
        };
        let json = Bytes::from(json);
        for caller in callers {
            self.ctx.answer(caller, Answer::Status(json.clone()));
        }
    }

    /// Bytes that are on their way to storage, and how many there may be.
    pub fn data_bytes(&self) -> (u64, u64) {
        (self.ctx.data.held(), self.ctx.data.limit())
    }

    /// Which partition, the internal one first, serves no more until the node
    /// is opened again, and why.
    pub fn failure(&self) -> Option<String> {
        if let Some(failure) = self.commands.controller.failure() {
            return Some(format!("the internal partition failed: {failure}"));
        }
        let slots = self.topics.values().flat_map(|topic| &topic.partitions);
        slots.into_iter().find_map(|slot| match slot {
            Slot::Failed(reason) => Some(reason.clone()),
            Slot::Open(id) => self.partitions.get(id)?.store.state().failure,
        })
    }

    /// The node's state, for people and monitors: all of it at once, which takes long on a large
    /// node. A client's request has it made in slices.
    pub fn status(&self) -> Value {
        let text = StatusText::whole(self.view(), &self.status_head());
        serde_json::from_str(&text).expect("the status is JSON")
    }

    /// The status of the node itself, without its lists.
    fn status_head(&self) -> Value {
        json!({
            "directory": self.ctx.options.directory_id.to_string(),
            "instance": self.ctx.options.instance.to_string(),
            "version": self.ctx.options.server_version,
            "draining": self.drain.is_begun(),
            "losses": self.losses_status(),
            "file_system": self.below.status(),
            "copied_bytes": memory::copies::bytes(),
            "data_budget": {
                "limit_bytes": self.ctx.data.limit(),
                "held_bytes": self.ctx.data.held(),
                "transfers": self.partitions.values().map(|it| it.appends.transfer_count()).sum::<usize>(),
                "transfers_waiting": self.ctx.incoming.waiting(),
            },
        })
    }

    /// For the status: what was lost, what was set aside, and which topics were deleted.
    fn losses_status(&self) -> Value {
        json!({
            "damage": self.start.open_damage().map(|damage| json!({
                "time": damage.time,
                "what": damage.what,
            })).collect::<Vec<_>>(),
            "lost_and_found": self.set_aside,
            "deleted_topics": self.commands.table().deleted()
                .map(ToString::to_string)
                .collect::<Vec<_>>(),
        })
    }
}
