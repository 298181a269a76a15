//! Topics that go with another one, beside it: of dead letters, and of replies. Those of a spread topic are spread alike, each partition beside the
//! same one.

use crate::error::ClientError;
use crate::part::Part;
use crate::promise::Pending;
use crate::spread::definition_of;
use crate::topic_handle::TopicHandle;
use topic::{Definition, Spread, part_name};
use wire::ErrorCode;
use wire::message::TopicDescription;

/// How often a topic that goes with another one is tried to be made, when
/// connections are lost over it.
const COMPANION_TRIES: u32 = 3;

impl TopicHandle {
    /// Makes the topic `name`, if there is none, beside this one and with one partition that is
    /// stored like this topic's first.
    pub(crate) fn begin_companion(&self, name: &str, definition: &Definition) -> Pending<()> {
        // A label of this topic's may be gone.
        let definition = definition.anywhere();
        if definition.spread().is_some() {
            return self.begin_spread_companion(name, &definition);
        }
        self.try_companion(name, &definition, COMPANION_TRIES)
    }

    fn try_companion(&self, name: &str, definition: &Definition, tries: u32) -> Pending<()> {
        let session = match self.driver.session() {
            Ok(session) => session,
            Err(error) => return Pending::failed(error),
        };
        let Some(first) = self.partitions().into_iter().next() else {
            let text = format!(
                "topic {} has no partition yet, after whose storage that of {name} is made",
                self.name()
            );
            return Pending::failed(ClientError::UnknownPartition(text));
        };
        let (driver, definition) = (self.driver.clone(), definition.clone());
        let timeout = self.driver.request_timeout();
        let mailbox = session.mailbox.clone();
        let known = self.driver.begin_describe_itself(name);
        let name = name.to_owned();
        let beside = self.id();
        let made = known.and_then(&mailbox, timeout, {
            let (name, definition) = (name.clone(), definition.clone());
            move |known| match known {
                Ok(_) => Pending::ready(()),
                Err(error) if error.code() == Some(ErrorCode::UnknownTopic) => driver
                    .begin_create_topic_at(beside, &name, &definition, &[first.storage])
                    .then(|_| Ok(())),
                Err(error) => Pending::failed(error),
            }
        });
        let topic = self.clone();
        made.and_then(&mailbox, timeout, move |made| match made {
            Ok(()) => Pending::ready(()),
            // Somebody else was faster.
            Err(error) if error.code() == Some(ErrorCode::TopicExists) => Pending::ready(()),
            // The connection was lost: whether it was made is to be asked.
            Err(ClientError::Unreachable { .. }) if tries > 1 => {
                topic.try_companion(&name, &definition, tries - 1)
            }
            Err(error) => Pending::failed(error),
        })
    }

    /// Makes the spread topic `name`, if there is none, with each partition beside the same one of this topic.
    pub(crate) fn begin_spread_companion(
        &self,
        name: &str,
        definition: &Definition,
    ) -> Pending<()> {
        let session = match self.driver.session() {
            Ok(session) => session,
            Err(error) => return Pending::failed(error),
        };
        let (mailbox, timeout) = (session.mailbox.clone(), self.driver.request_timeout());
        let (topic, name) = (self.clone(), name.to_owned());
        let definition = definition.clone();
        let known = self.driver.begin_describe_itself(&name);
        let itself = known.and_then(&mailbox, timeout, {
            let (driver, mailbox) = (self.driver.clone(), mailbox.clone());
            let (name, definition) = (name.clone(), definition.clone());
            move |known| match known {
                Err(error) if error.code() == Some(ErrorCode::UnknownTopic) => {
                    let made = driver.begin_create_itself(&name, &definition);
                    made.and_then(&mailbox, timeout, move |made| match made {
                        Err(error) if error.code() == Some(ErrorCode::TopicExists) => {
                            driver.begin_describe_itself(&name)
                        }
                        made => made.map_or_else(Pending::failed, Pending::ready),
                    })
                }
                known => known.map_or_else(Pending::failed, Pending::ready),
            }
        });
        // One that was made when this topic had fewer partitions gets those that were added.
        let grown = itself.and_then(&mailbox, timeout, {
            let (topic, name) = (self.clone(), name.clone());
            move |itself| match itself {
                Ok(itself) => topic.begin_growing_companion(itself, &name),
                Err(error) => Pending::failed(error),
            }
        });
        grown.and_then(&mailbox, timeout, move |itself| {
            let itself = match itself {
                Ok(itself) => itself,
                Err(error) => return Pending::failed(error),
            };
            let definition = match Definition::from_json(&itself.definition) {
                Ok(definition) => definition,
                Err(error) => return Pending::failed(ClientError::invalid(error)),
            };
            let parts = topic.parts().unwrap_or_default();
            let made = parts
                .iter()
                .zip(topic.partitions())
                .map(|(part, partition)| {
                    let index = part.state.first;
                    let companion = Part {
                        driver: topic.driver.clone(),
                        name: part_name(&name, index),
                        definition: definition.of_part(itself.topic, index),
                        beside: part.id(),
                        storage: partition.storage,
                    };
                    companion.open().then(|_| Ok(()))
                });
            topic.all_done(made.collect(), "topics beside the partitions")
        })
    }

    /// The spread topic beside this one with as many partitions as this one has.
    fn begin_growing_companion(
        &self,
        companion: TopicDescription,
        name: &str,
    ) -> Pending<TopicDescription> {
        let known = definition_of(&companion).ok();
        let known = known.and_then(|definition| Some(definition.spread()?.count()));
        let (own, count) = (self.definition_now(), self.partition_count());
        let own = own.spread().map(Spread::anywhere);
        let own = own.filter(|_| known.is_some_and(|known| known < count));
        let (Some(own), Ok(session)) = (own, self.driver.session()) else {
            return Pending::ready(companion);
        };
        let changes = serde_json::json!({ "spread": own }).to_string();
        let driver = &self.driver;
        let grown = driver.begin_alter_itself(companion.topic, name, &changes);
        let timeout = driver.request_timeout();
        grown.and_then(&session.mailbox, timeout, move |grown| match grown {
            Ok(grown) => Pending::ready(grown),
            // Somebody has made it otherwise: it stays as it is.
            Err(error) if error.code() == Some(ErrorCode::InvalidTopic) => {
                Pending::ready(companion)
            }
            Err(error) => Pending::failed(error),
        })
    }
}
