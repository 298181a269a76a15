//! Who is a member of which group or queue: present, away, or gone. The
//! states are on the page `docs/concept/sharing.md`.
//!
//! What is here runs ahead of the table: a member counts as one, or as gone,
//! from the moment that its record is submitted. Commands take effect in the
//! order of their submission, so whatever follows builds on it; nobody is told
//! before it is durable. A command that is refused takes all others with it
//! that are under way, and then the table says how things are
//! ([`Node::return_to_table`]).

pub(crate) mod group;
mod join;
mod presence;
mod recovering;
pub(crate) mod shared;

use crate::coordinator::commands::Decided;
use crate::coordinator::controller::{ControlError, undecided};
use crate::coordinator::members::shared::{Member, Prefetch, Presence, Shared};
use crate::ids::{RequestId, SharedId};
use crate::node::Node;
use crate::refusal::{Refused, refuse, unknown_topic};
use std::collections::BTreeMap;
use std::time::Duration;
use wire::record::{ConsumerDeletedRecord, ConsumerKind, Record};
use wire::{ErrorCode, ErrorReply, PartitionIndex, TopicId};

/// How long a command that was refused is not tried again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

impl Node {
    /// Groups and queues as they were recorded. Each member is away, and has
    /// its session timeout to come back.
    pub(crate) fn open_shared(&mut self) {
        let entries: Vec<_> = self
            .commands
            .table()
            .topics()
            .filter(|(id, _)| self.topics.get(**id).is_some())
            .flat_map(|(_, entry)| entry.shared.values())
            .map(|entry| {
                (
                    entry.record.clone(),
                    entry.members.clone(),
                    entry.owners.clone(),
                )
            })
            .collect();
        for (record, members, owners) in entries {
            let id = SharedId(self.ctx.next_id());
            let mut shared = Shared::new(record);
            for (member, record) in members {
                let timeout = Duration::from_millis(record.session_timeout_ms.into());
                let until = self.ctx.now.monotonic + timeout;
                shared.members.insert(
                    member,
                    Member {
                        record,
                        presence: Presence::Away { until },
                        prefetch: Prefetch::default(),
                    },
                );
            }
            if let Some(group) = shared.group_mut() {
                group.restore(&owners);
                group.await_owners();
            }
            let is_queue = shared.is_queue();
            self.shared.insert(id, shared);
            if is_queue {
                self.queue_made(id);
            }
            self.arm_shared(id);
        }
    }

    /// The group or queue that a request names.
    pub(crate) fn shared_named(
        &self,
        caller: RequestId,
        topic: TopicId,
        consumer: &str,
        kind: ConsumerKind,
    ) -> Result<SharedId, Refused> {
        let name = &self
            .topics
            .of(self.sessions.namespace(caller.link), topic)?
            .name;
        let Some(id) = self.shared.named(topic, consumer) else {
            return Err(refuse(
                ErrorCode::UnknownConsumer,
                format!("topic {name:?} has no {kind} {consumer:?}"),
            ));
        };
        match self.shared.get(id) {
            Some(shared) if shared.record.kind == kind => Ok(id),
            _ => Err(refuse(
                ErrorCode::InvalidConsumer,
                format!("consumer {consumer:?} of topic {name:?} is no {kind}"),
            )),
        }
    }

    /// A change of a group or queue that nobody waits for is durable, or was refused.
    pub(crate) fn shared_changed(&mut self, id: SharedId, result: Result<(), ControlError>) {
        if let Err(error) = result {
            self.return_to_table(id, &error);
        }
    }

    /// A change of a group or queue is durable, or was refused; somebody waits for it.
    pub(crate) fn shared_answer(
        &mut self,
        caller: RequestId,
        id: SharedId,
        result: Result<(), ControlError>,
    ) {
        match result {
            Ok(()) => self.reply(caller, Vec::new()),
            Err(error) => {
                self.refuse_request(caller, crate::coordinator::controller::undecided(&error));
                self.return_to_table(id, &error);
            }
        }
    }

    /// A command was refused, and with it whatever was under way: members and
    /// owners are again those of the table, but for partitions whose change of
    /// hands may be recorded after all. Nothing is submitted now: what the
    /// table lacks is tried again after a while.
    fn return_to_table(&mut self, id: SharedId, error: &ControlError) {
        let Some(shared) = self.shared.get_mut(id) else {
            return;
        };
        let entry = self
            .commands
            .table()
            .topic(shared.record.topic)
            .and_then(|entry| entry.shared(&shared.record.consumer));
        let Some(entry) = entry else {
            // Those that were joining are told by their own commands.
            if shared.is_queue() {
                self.queue_deleted(id);
            }
            let members = self.shared.remove(id).map(|shared| shared.members);
            for member in members.into_iter().flat_map(BTreeMap::into_values) {
                self.forget_membership(member.presence);
            }
            return;
        };
        shared.deleting = false;
        shared.retry_at = Some(self.ctx.now.monotonic + RETRY_AFTER);
        let mut unknown = Vec::new();
        shared.members.retain(|member, state| {
            let known = entry.members.contains_key(member);
            if !known {
                unknown.push((*member, state.presence));
            }
            known
        });
        for (member, record) in &entry.members {
            let until = self.ctx.now.monotonic + RETRY_AFTER;
            shared.members.entry(*member).or_insert_with(|| Member {
                record: record.clone(),
                presence: Presence::Away { until },
                prefetch: Prefetch::default(),
            });
        }
        let owners = entry.owners.clone();
        if let Some(group) = shared.group_mut() {
            match error {
                ControlError::Failed(_) => group.restore_certain(&owners),
                ControlError::Full(_) | ControlError::NotLeader { .. } => group.restore(&owners),
            }
        }
        let is_queue = shared.is_queue();
        for (member, presence) in unknown {
            self.forget_membership(presence);
            if is_queue {
                self.queue_member_gone(id, member, false);
            }
        }
        self.arm_shared(id);
    }

    /// A connection has a membership no more; nothing is said.
    pub(crate) fn forget_membership(&mut self, presence: Presence) {
        if let Some(caller) = presence.caller()
            && let Some(session) = self.sessions.get_mut(caller.link)
        {
            session.memberships.remove(&caller.id);
        }
    }

    /// Submits a change of a group or queue that nobody waits for.
    pub(crate) fn submit_shared(&mut self, id: SharedId, records: Vec<Record>) {
        if !records.is_empty() {
            self.submit(records, Decided::SharedChanged(id));
        }
    }

    /// Ends a group or queue that nobody is a member of.
    pub(crate) fn delete_shared(&mut self, caller: RequestId, id: SharedId) -> Result<(), Refused> {
        let Some(shared) = self.shared.get_mut(id) else {
            return Ok(());
        };
        let (kind, consumer) = (shared.record.kind, &shared.record.consumer);
        let count = shared.members.len();
        if count > 0 {
            return Err(refuse(
                ErrorCode::InvalidConsumer,
                format!("{kind} {consumer:?} has {count} members, present or away"),
            ));
        }
        if shared.deleting {
            return Err(ErrorReply::retryable(
                ErrorCode::UnknownConsumer,
                50,
                format!("{kind} {consumer:?} is being deleted"),
            ));
        }
        shared.deleting = true;
        let record = ConsumerDeletedRecord {
            topic: shared.record.topic,
            consumer: shared.record.consumer.clone(),
        };
        let records = vec![Record::ConsumerDeleted(record)];
        self.submit(records, Decided::ConsumerDeleted(caller, id));
        Ok(())
    }

    pub(crate) fn consumer_deleted(
        &mut self,
        caller: RequestId,
        id: SharedId,
        result: Result<(), ControlError>,
    ) {
        match result {
            Ok(()) => {
                if self.shared.get(id).is_some_and(Shared::is_queue) {
                    self.queue_deleted(id);
                }
                let record = self.shared.remove(id).map(|shared| shared.record);
                if let Some(record) = record {
                    let all =
                        (0..self.ctx.options.limits.partitions_max as u32).map(PartitionIndex);
                    self.consumer_moved(record.topic, &record.consumer, all);
                }
                self.reply(caller, Vec::new());
            }
            Err(error) => {
                self.refuse_request(caller, undecided(&error));
                self.return_to_table(id, &error);
            }
        }
    }

    /// A topic is gone, and with it its groups and queues.
    pub(crate) fn forget_shared(&mut self, topic: TopicId) {
        let ids: Vec<SharedId> = self.shared.of(topic).collect();
        for id in ids {
            if self.shared.get(id).is_some_and(Shared::is_queue) {
                self.queue_deleted(id);
            }
            let members = self.shared.remove(id).map(|shared| shared.members);
            for member in members.into_iter().flat_map(BTreeMap::into_values) {
                self.end_membership(member.presence, &unknown_topic(topic));
            }
        }
    }

    /// More partitions of a topic serve: they are shared out as well.
    pub(crate) fn share_partitions(&mut self, topic: TopicId) {
        let ids: Vec<SharedId> = self.shared.of(topic).collect();
        for id in ids {
            match self.shared.get(id).map(Shared::is_queue) {
                Some(true) => {
                    self.ctx.dirty.queues.insert(id);
                }
                Some(false) => self.balance_group(id),
                None => {}
            }
        }
    }
}
