//! What the node asks of queues: requests of members, and what memberships tell.

use crate::coordinator::controller::ControlError;
use crate::ids::{RequestId, SharedId};
use crate::node::Node;
use crate::queue::{Lent, Queue};
use crate::refusal::Refused;
use wire::message::*;
use wire::record::ConsumerKind;
use wire::{MemberId, TopicId};

impl Node {
    /// Calls a queue, and routes what the act asks of others. `None` if it is not there.
    pub(crate) fn at_queue<R>(
        &mut self,
        id: SharedId,
        act: impl FnOnce(&mut Queue, &mut Lent<'_>) -> R,
    ) -> Option<R> {
        let queue = self.queues.get_mut(&id)?;
        let mut lent = Lent {
            ctx: &mut self.ctx,
            partitions: &mut self.partitions,
            commands: &mut self.coordinator.commands,
            topics: &self.coordinator.topics,
            shared: self.coordinator.members.get(id)?,
            leases: &mut self.leases,
            letters: &mut self.letters,
            is_draining: self.drain.is_begun(),
        };
        let done = act(queue, &mut lent);
        self.route();
        Some(done)
    }

    /// The queues of a topic.
    pub(crate) fn queues_of(&self, topic: TopicId) -> Vec<SharedId> {
        self.coordinator.members.queues_of(topic).collect()
    }

    /// Something has happened to a partition of the topic.
    pub(crate) fn touch_queues(&mut self, topic: TopicId) {
        self.ctx
            .dirty
            .queues
            .extend(self.coordinator.members.queues_of(topic));
    }

    /// Lets everything take effect that has happened to a queue.
    pub(crate) fn advance_queue(&mut self, id: SharedId) {
        // At the end nothing changes any more; the next run goes on from here.
        if self.drain.refuse_closing().is_err() {
            return;
        }
        if let Some(lapsed) = self.at_queue(id, Queue::expire) {
            self.at_members(|members, lent| members.leases_lapsed(id, lapsed, lent));
            self.at_queue(id, Queue::advance);
        }
    }

    pub(crate) fn settle_leases(
        &mut self,
        caller: RequestId,
        topic: TopicId,
        settle: Settle,
    ) -> Result<(), Refused> {
        self.drain.refuse_closing()?;
        let is_quiet = self.sessions.is_quiet(caller) && !self.drain.is_begun();
        let member = settle.member;
        let id = self.check_settler(caller, topic, &settle.consumer, member)?;
        let settled = self.at_queue(id, |queue, lent| {
            queue.settle_leases(caller, settle, is_quiet, lent.ctx)
        });
        settled.unwrap_or(Ok(()))
    }

    pub(crate) fn extend_leases(
        &mut self,
        caller: RequestId,
        topic: TopicId,
        extend: &ExtendLeases,
    ) -> Result<(), Refused> {
        let id = self.check_settler(caller, topic, &extend.consumer, extend.member)?;
        self.at_queue(id, |queue, lent| {
            queue.extend_leases(caller, extend, lent.ctx);
        });
        Ok(())
    }

    /// The queue, if the caller is the member that it says it is.
    fn check_settler(
        &self,
        caller: RequestId,
        topic: TopicId,
        consumer: &str,
        member: MemberId,
    ) -> Result<SharedId, Refused> {
        let namespace = self.sessions.namespace(caller.link);
        let kind = ConsumerKind::Queue;
        let members = &self.coordinator.members;
        let shared = members.of_kind(&self.coordinator.topics, namespace, topic, consumer, kind)?;
        let state = shared.members.get(&member);
        let own = state.and_then(|state| state.presence.caller());
        match own {
            Some(own) if own.link == caller.link => Ok(shared.id),
            _ => Err(shared.fenced(member)),
        }
    }

    /// A queue's command is durable, or was refused.
    pub(crate) fn queue_recorded(&mut self, id: SharedId, result: Result<(), ControlError>) {
        let moved = self.at_queue(id, |queue, lent| {
            let moved = queue.recorded(result, lent.commands.table(), lent.ctx);
            (queue.core.topic, queue.core.consumer.clone(), moved)
        });
        if let Some((topic, consumer, moved)) = moved {
            self.coordinate(|coordinator, around| {
                coordinator.consumer_moved(topic, &consumer, moved, around);
            });
        }
    }
}
