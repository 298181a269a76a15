//! Topics whose definition changes while they are in use.

use crate::answer::Answer;
use crate::coordinator::commands::{Altering, Decided};
use crate::coordinator::controller::ControlError;
use crate::coordinator::controller::undecided;
use crate::ids::RequestId;
use crate::metadata_check::MetadataCheck;
use crate::node::Node;
use crate::refusal::{Refused, refuse, unknown_topic};
use std::sync::Arc;
use wire::message::AlterTopic;
use wire::record::{Record, TopicRecord};
use wire::{ErrorCode, ErrorReply, TopicId};

impl Node {
    pub(crate) fn alter_topic(
        &mut self,
        caller: RequestId,
        id: TopicId,
        AlterTopic { changes }: AlterTopic,
    ) -> Result<(), Refused> {
        self.drain.refuse_begun()?;
        let topic = self.topics.of(self.sessions.namespace(caller.link), id)?;
        if let Some(busy) = topic.busy {
            return Err(ErrorReply::retryable(ErrorCode::UnknownTopic, 50, busy));
        }
        let definition = topic
            .definition
            .altered(&changes)
            .and_then(
                |new| match new.validator() == topic.definition.validator() {
                    true => Ok(new),
                    false => new.validator().check_work().map(|()| new),
                },
            )
            .map_err(|error| refuse(ErrorCode::InvalidTopic, error.to_string()))?;
        let record = TopicRecord {
            namespace: topic.namespace.clone(),
            name: topic.name.clone(),
            topic: id,
            definition: definition.to_json(),
        };
        if let Some(topic) = self.topics.get_mut(id) {
            topic.busy = Some("the topic is being altered");
        }
        let altering = Altering {
            caller,
            topic: id,
            definition: Arc::new(definition),
        };
        self.submit(vec![Record::Topic(record)], Decided::TopicAltered(altering));
        Ok(())
    }

    /// The new definition is durable: it holds from now on.
    pub(crate) fn topic_altered(&mut self, altering: Altering, result: Result<(), ControlError>) {
        let Altering {
            caller,
            topic: id,
            definition,
        } = altering;
        if let Some(topic) = self.topics.get_mut(id) {
            topic.busy = None;
            if result.is_ok() {
                topic.metadata_check = MetadataCheck::of(&definition);
                topic.definition = definition;
            }
        }
        if let Err(error) = result {
            self.refuse_request(caller, undecided(&error));
            return;
        }
        self.keep_topic(id);
        self.topic_files
            .keep(id, self.commands.table(), &mut self.ctx);
        match self.view().description(id) {
            Some(description) => self.answer(caller, Answer::Topic(description)),
            None => self.refuse_request(caller, unknown_topic(id)),
        }
    }
}
