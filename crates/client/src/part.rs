//! Partitions of a spread topic: each is a topic by itself, on a node of its own.
//!
//! The spread topic is in the table first: `T`, whose definition says how its partitions are stored. Then its partitions are made, `T/0`
//! on. Who opens the topic makes what is missing, so that nothing is left half made; and a partition of a topic
//! that was deleted and made anew under its name is known by the id in its definition, and deleted.

use crate::driver::Driver;
use crate::error::ClientError;
use crate::faults::{Fault, planted};
use crate::promise::Pending;
use topic::{Definition, spread_name};
use wire::message::{PartitionStorage, TopicDescription};
use wire::{ErrorCode, ErrorReply, TopicId};

/// How often a partition is tried to be opened that others make, or delete, at the same time.
const TRIES: u32 = 5;

/// One partition, as it is to be.
pub(crate) struct Part {
    pub driver: Driver,
    pub name: String,
    pub definition: Definition,
    /// The topic whose node is to have it; 0 is the node of its name.
    pub beside: TopicId,
    pub storage: PartitionStorage,
}

impl Part {
    /// Opens it; makes it, if it is missing, and deletes one of an earlier topic of the name.
    pub fn open(self) -> Pending<TopicDescription> {
        self.try_to_open(TRIES)
    }

    fn try_to_open(self, tries: u32) -> Pending<TopicDescription> {
        let session = match self.driver.session() {
            Ok(session) => session,
            Err(error) => return Pending::failed(error),
        };
        let (mailbox, timeout) = (session.mailbox.clone(), self.driver.request_timeout());
        let known = self.driver.begin_describe_itself(&self.name);
        known.and_then(&mailbox.clone(), timeout, move |known| {
            let is_its = |known: &TopicDescription| {
                let known = Definition::from_json(&known.definition);
                let of = self.definition.part_of();
                known.is_ok_and(|known| known.part_of() == of || planted(Fault::EarlierPart))
            };
            match known {
                Ok(known) if is_its(&known) => Pending::ready(known),
                Ok(known) if tries > 1 => self.replace(known.topic, tries),
                Ok(_) => Pending::failed(ClientError::Invalid(format!(
                    "{} is a partition of an earlier topic of the name, and does not go",
                    self.name
                ))),
                Err(error) if error.code() == Some(ErrorCode::UnknownTopic) && tries > 1 => {
                    let storage = std::slice::from_ref(&self.storage);
                    let (beside, definition) = (self.beside, &self.definition);
                    let made = self
                        .driver
                        .begin_create(beside, &self.name, definition, storage);
                    made.and_then(&mailbox, timeout, move |made| match made {
                        Ok(made) => Pending::ready(made),
                        // Others were faster, or the connection was lost: it is looked for again.
                        Err(error)
                            if error.code() == Some(ErrorCode::TopicExists)
                                || matches!(error, ClientError::Unreachable { .. }) =>
                        {
                            self.try_to_open(tries - 1)
                        }
                        Err(error) => Pending::failed(self.not_made_yet(error)),
                    })
                }
                Err(error) => Pending::failed(error),
            }
        })
    }

    /// Deletes what is there of another topic of the name, if that is the earlier one, and opens this one.
    ///
    /// It is deleted by its id: what others make in its place meanwhile stays.
    fn replace(self, other: TopicId, tries: u32) -> Pending<TopicDescription> {
        let session = match self.driver.session() {
            Ok(session) => session,
            Err(error) => return Pending::failed(error),
        };
        let (mailbox, timeout) = (session.mailbox.clone(), self.driver.request_timeout());
        let whole = self.driver.begin_describe_itself(spread_name(&self.name));
        whole.and_then(&mailbox.clone(), timeout, move |whole| {
            let own = self.definition.part_of().map(|of| of.topic.as_str());
            match whole {
                Ok(whole) if own == Some(whole.topic.to_string().as_str()) => {}
                Ok(whole) => {
                    return Pending::failed(ClientError::Invalid(format!(
                        "topic {} was deleted and made anew: open it again",
                        whole.name
                    )));
                }
                Err(error) => return Pending::failed(error),
            }
            let deleted = self.driver.begin_delete_itself(&self.name, other);
            deleted.and_then(&mailbox, timeout, move |deleted| match deleted {
                // Others were faster.
                Err(error) if error.code() != Some(ErrorCode::UnknownTopic) => {
                    Pending::failed(self.not_made_yet(error))
                }
                _ => self.try_to_open(tries - 1),
            })
        })
    }

    /// The error for a client that may not make partitions, and came before the one that makes this one.
    fn not_made_yet(&self, error: ClientError) -> ClientError {
        if error.code() != Some(ErrorCode::NotAuthorized) {
            return error;
        }
        let why = format!("partition {} is not made yet", self.name);
        ClientError::Server(ErrorReply::retryable(ErrorCode::UnknownTopic, 100, why))
    }
}
