//! What the node asks of queues: requests of members, and what memberships tell.

use crate::coordinator::controller::ControlError;
use crate::coordinator::members::shared::SharedKind;
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
            commands: &mut self.commands,
            topics: &self.topics,
            shared: self.shared.get(id)?,
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
        let shared = self.shared.of(topic);
        shared.filter(|id| self.queues.contains_key(id)).collect()
    }

    /// Something has happened to a partition of the topic.
    pub(crate) fn touch_queues(&mut self, topic: TopicId) {
        for id in self.shared.of(topic) {
            if self.queues.contains_key(&id) {
                self.ctx.dirty.queues.insert(id);
            }
        }
    }

    /// Lets everything take effect that has happened to a queue.
    pub(crate) fn advance_queue(&mut self, id: SharedId) {
        // At the end nothing changes any more; the next run goes on from here.
        if self.drain.refuse_closing().is_err() {
            return;
        }
        if let Some(lapsed) = self.at_queue(id, Queue::expire) {
            self.leases_lapsed(id, lapsed);
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
        settled.unwrap_or_else(|| Err(self.shared.fenced(id, member)))
    }

    pub(crate) fn extend_leases(
        &mut self,
        caller: RequestId,
        topic: TopicId,
        extend: &ExtendLeases,
    ) -> Result<(), Refused> {
        let id = self.check_settler(caller, topic, &extend.consumer, extend.member)?;
        let extended = self.at_queue(id, |queue, lent| {
            queue.extend_leases(caller, extend, lent.ctx);
        });
        extended.ok_or_else(|| self.shared.fenced(id, extend.member))
    }

    /// The queue, if the caller is the member that it says it is.
    fn check_settler(
        &self,
        caller: RequestId,
        topic: TopicId,
        consumer: &str,
        member: MemberId,
    ) -> Result<SharedId, Refused> {
        let id = self.shared_named(caller, topic, consumer, ConsumerKind::Queue)?;
        let state = self.shared.member(id, member);
        let own = state.and_then(|state| state.presence.caller());
        match own {
            Some(own) if own.link == caller.link => Ok(id),
            _ => Err(self.shared.fenced(id, member)),
        }
    }

    /// A queue's command is durable, or was refused.
    pub(crate) fn queue_recorded(&mut self, id: SharedId, result: Result<(), ControlError>) {
        let moved = self.at_queue(id, |queue, lent| {
            let moved = queue.recorded(result, lent.commands.table(), lent.ctx);
            (queue.topic, queue.consumer.clone(), moved)
        });
        if let Some((topic, consumer, moved)) = moved {
            self.consumer_moved(topic, &consumer, moved);
        }
    }

    /// There is a queue: it was made, or is known from before the start.
    pub(crate) fn queue_made(&mut self, id: SharedId) {
        if let Some(shared) = self.shared.get(id)
            && let SharedKind::Queue(options) = &shared.kind
        {
            let queue = Queue::new(id, shared, options.clone(), &mut self.ctx);
            self.queues.insert(id, queue);
        }
    }

    /// The queue was deleted, or its topic, or its record was refused.
    pub(crate) fn queue_deleted(&mut self, id: SharedId) {
        if let Some(queue) = self.queues.remove(&id) {
            queue.delete(&mut self.ctx);
            self.route();
        }
    }

    /// A member has joined, durably, and names the leases that it holds: which
    /// of them are settled, and which are not its any more.
    pub(crate) fn queue_joined(
        &mut self,
        id: SharedId,
        member: MemberId,
        held: &[Lease],
    ) -> (Vec<Lease>, Vec<Lease>) {
        self.advance_queue(id);
        let joined = self.at_queue(id, |queue, lent| queue.member_joined(member, held, lent));
        joined.unwrap_or_else(|| (Vec::new(), held.to_vec()))
    }

    pub(crate) fn queue_member_present(&mut self, id: SharedId, member: MemberId) {
        self.at_queue(id, |queue, lent| queue.member_present(member, lent.ctx));
    }

    pub(crate) fn queue_member_has_room(&mut self, id: SharedId, member: MemberId) {
        self.at_queue(id, |queue, lent| queue.member_has_room(member, lent.ctx));
    }

    pub(crate) fn queue_member_away(&mut self, id: SharedId, member: MemberId) {
        self.at_queue(id, |queue, lent| queue.member_away(member, lent.ctx));
    }

    pub(crate) fn queue_member_gone(&mut self, id: SharedId, member: MemberId, counted: bool) {
        let error = self.shared.fenced(id, member);
        self.at_queue(id, |queue, lent| {
            queue.member_gone(member, counted, &error, lent.ctx);
        });
    }
}
