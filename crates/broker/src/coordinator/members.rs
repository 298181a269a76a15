//! Groups and queues, and who is a member of which.

pub(crate) mod group;
mod join;
pub(crate) mod presence;
pub(crate) mod shared;

use super::commands::JoinUnderWay;
use super::controller::{ControlError, undecided};
use super::lent::Lent;
use super::overlay::Key;
use super::served_topic::Topics;
use super::table::{SharedEntry, Table};
use crate::ctx::Ctx;
use crate::ids::{LinkId, Membership, RequestId, SharedId};
use crate::refusal::{Refused, refuse, unknown_topic};
use crate::request::{Prefetch, QueueRequest};
use presence::Member;
use shared::Shared;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use wire::message::{Join, Lease, Leave, Release};
use wire::record::{ConsumerKind, ConsumerRecord};
use wire::{ConsumerId, ErrorCode, ErrorReply, MemberId, TopicId};

/// All groups and queues.
#[derive(Debug, Default)]
pub(crate) struct Members {
    all: BTreeMap<SharedId, Shared>,
    names: BTreeMap<TopicId, BTreeMap<String, SharedId>>,
}

impl Members {
    pub fn get(&self, id: SharedId) -> Option<&Shared> {
        self.all.get(&id)
    }

    pub fn member(&self, id: SharedId, member: MemberId) -> Option<&Member> {
        self.all.get(&id)?.members.get(&member)
    }

    /// The group or queue of this name.
    pub fn named(&self, topic: TopicId, consumer: &str) -> Option<SharedId> {
        self.names.get(&topic)?.get(consumer).copied()
    }

    /// The id of the group or queue of this name; 0 if there is none, for then it is that of an
    /// independent consumer.
    pub fn id_of(&self, topic: TopicId, consumer: &str) -> ConsumerId {
        let shared = self.named(topic, consumer).and_then(|id| self.get(id));
        shared.map_or(ConsumerId(0), |shared| shared.record.id)
    }

    /// The groups and queues of a topic, in the order of their names.
    pub fn of(&self, topic: TopicId) -> impl Iterator<Item = SharedId> + '_ {
        let names = self.names.get(&topic);
        names.into_iter().flat_map(|names| names.values().copied())
    }

    /// The queues of a topic.
    pub fn queues_of(&self, topic: TopicId) -> impl Iterator<Item = SharedId> + '_ {
        let is_queue = |id: &SharedId| self.all.get(id).is_some_and(Shared::is_queue);
        self.of(topic).filter(is_queue)
    }

    /// The group or queue that a request names, which is to be of this kind.
    pub fn of_kind(
        &self,
        topics: &Topics,
        namespace: &str,
        topic: TopicId,
        consumer: &str,
        kind: ConsumerKind,
    ) -> Result<&Shared, Refused> {
        let name = &topics.of(namespace, topic)?.name;
        let id = self.named(topic, consumer);
        let Some(shared) = id.and_then(|id| self.all.get(&id)) else {
            return Err(refuse(
                ErrorCode::UnknownConsumer,
                format!("topic {name:?} has no {kind} {consumer:?}"),
            ));
        };
        match shared.record.kind == kind {
            true => Ok(shared),
            false => Err(refuse(
                ErrorCode::InvalidConsumer,
                format!("consumer {consumer:?} of topic {name:?} is no {kind}"),
            )),
        }
    }

    /// The queue that a request names, if the caller is the member that it says it is.
    pub fn settler(
        &self,
        caller: RequestId,
        topic: TopicId,
        request: &QueueRequest,
        (topics, namespace): (&Topics, &str),
    ) -> Result<SharedId, Refused> {
        let (consumer, member) = match request {
            QueueRequest::Settle(settle) => (&settle.consumer, settle.member),
            QueueRequest::ExtendLeases(extend) => (&extend.consumer, extend.member),
        };
        let queue = self.of_kind(topics, namespace, topic, consumer, ConsumerKind::Queue)?;
        let state = queue.members.get(&member);
        let own = state.and_then(|state| state.presence.caller());
        match own {
            Some(own) if own.link == caller.link => Ok(queue.id),
            _ => Err(queue.fenced(member)),
        }
    }

    fn insert(&mut self, shared: Shared) {
        let names = self.names.entry(shared.record.topic).or_default();
        names.insert(shared.record.consumer.clone(), shared.id);
        self.all.insert(shared.id, shared);
    }

    fn remove(&mut self, id: SharedId, ctx: &mut Ctx) -> Option<Shared> {
        let shared = self.take_out(id)?;
        let why = format!("queue {:?} was deleted", shared.record.consumer);
        shared.queue_ended(refuse(ErrorCode::UnknownConsumer, why), ctx);
        Some(shared)
    }

    fn take_out(&mut self, id: SharedId) -> Option<Shared> {
        let shared = self.all.remove(&id)?;
        if let Some(names) = self.names.get_mut(&shared.record.topic) {
            names.remove(&shared.record.consumer);
            if names.is_empty() {
                self.names.remove(&shared.record.topic);
            }
        }
        Some(shared)
    }

    /// Calls a group or queue. `None` if it is not there any more.
    pub fn at<R>(
        &mut self,
        id: SharedId,
        lent: &mut Lent<'_>,
        act: impl FnOnce(&mut Shared, &mut Lent<'_>) -> R,
    ) -> Option<R> {
        let shared = self.all.get_mut(&id)?;
        Some(act(shared, lent))
    }

    /// Groups and queues as they were recorded, of all topics that serve.
    pub fn open(&mut self, lent: &mut Lent<'_>) {
        let topics = lent.commands.table().topics();
        let served = topics.filter(|(id, _)| lent.topics.get(**id).is_some());
        let served: Vec<TopicId> = served.map(|(id, _)| *id).collect();
        for topic in served {
            self.open_topic(topic, lent);
        }
    }

    /// The groups and queues of a topic that serves from now on, as they were recorded.
    pub fn open_topic(&mut self, topic: TopicId, lent: &mut Lent<'_>) {
        let mut opened = Vec::new();
        let entry = lent.commands.table().topic(topic);
        for entry in entry.into_iter().flat_map(|entry| entry.shared.values()) {
            let id = SharedId(lent.ctx.next_id());
            opened.push(Shared::restored(id, entry, lent.ctx));
        }
        for mut shared in opened {
            let awaited = shared.members.keys().copied().collect();
            shared.queue_made(awaited, lent.ctx);
            shared.arm(lent);
            self.insert(shared);
        }
    }

    /// A member of a queue may have so much unsettled from now on.
    pub fn set_prefetch(&mut self, caller: RequestId, prefetch: &Prefetch, lent: &mut Lent<'_>) {
        if let Some(Membership { shared, member, .. }) = lent.sessions.membership(caller)
            && let Some(shared) = self.all.get_mut(&shared)
        {
            shared.set_prefetch(member, prefetch, lent.ctx);
        }
    }

    /// A client wants to be a member. Answered when that is durable.
    pub fn join(
        &mut self,
        caller: RequestId,
        topic: TopicId,
        join: Join,
        lent: &mut Lent<'_>,
    ) -> Result<(), Refused> {
        lent.drain.refuse_begun()?;
        lent.topics
            .of(lent.sessions.namespace(caller.link), topic)?;
        join::check(&join)?;
        lent.sessions.refuse_too_many(caller, lent.ctx)?;
        let known = self.named(topic, &join.consumer);
        let (id, records) = match known {
            Some(id) => {
                let members_max = lent.ctx.options.limits.members_max;
                if let Some(shared) = self.all.get(&id) {
                    shared.check_join(&join, members_max)?;
                }
                (id, Vec::new())
            }
            None => {
                let (record, records) = join::new_consumer(caller, topic, &join, lent)?;
                let shared = Shared::new(SharedId(lent.ctx.next_id()), record);
                let id = shared.id;
                shared.queue_made(Default::default(), lent.ctx);
                self.insert(shared);
                (id, records)
            }
        };
        if let Some(shared) = self.all.get_mut(&id) {
            shared.join(caller, join, records, lent);
        }
        Ok(())
    }

    /// A member's records are durable, or were refused.
    pub fn joined(
        &mut self,
        under_way: JoinUnderWay,
        result: Result<(), ControlError>,
        lent: &mut Lent<'_>,
    ) {
        let JoinUnderWay {
            caller,
            topic,
            id,
            member,
            ..
        } = under_way;
        if let Err(error) = result {
            presence::Presence::Joining(caller).forget(lent.ctx);
            lent.ctx.refuse(caller, undecided(&error));
            self.at(id, lent, |shared, lent| {
                shared.join_refused(caller, member, lent);
            });
            return;
        }
        let joined = self.at(id, lent, |shared, lent| shared.joined(under_way, lent));
        if joined.is_none() {
            // Its topic may go to another node, where the member is known.
            let moves = lent.commands.table().topic(topic).is_some_and(|entry| {
                lent.commands.table().moving(topic).is_some() || entry.home() != lent.ctx.node()
            });
            let error = match moves {
                true => ErrorReply::retryable(
                    ErrorCode::NotLeader,
                    0,
                    format!("topic {topic} goes to another node"),
                ),
                false => gone(member),
            };
            lent.ctx.refuse(caller, error);
        }
    }

    /// A queue has sorted the leases of a member that has joined.
    pub fn queue_joined(
        &mut self,
        id: SharedId,
        (caller, member): (RequestId, MemberId),
        leases: (Vec<Lease>, Vec<Lease>),
        recovering_ms: u32,
        lent: &mut Lent<'_>,
    ) {
        self.at(id, lent, |shared, lent| {
            shared.answer_join(caller, member, leases, recovering_ms, lent);
        });
    }

    pub fn leave(
        &mut self,
        caller: RequestId,
        topic: TopicId,
        leave: &Leave,
        lent: &mut Lent<'_>,
    ) -> Result<(), Refused> {
        let Leave { consumer, member } = leave;
        lent.drain.refuse_closing()?;
        let namespace = lent.sessions.namespace(caller.link);
        lent.topics.of(namespace, topic)?;
        let known = self.named(topic, consumer);
        let known = known.and_then(|id| self.all.get(&id));
        let kind = known.map_or(ConsumerKind::Group, |shared| shared.record.kind);
        let id = self
            .of_kind(lent.topics, namespace, topic, consumer, kind)?
            .id;
        self.at(id, lent, |shared, lent| shared.leave(caller, *member, lent));
        Ok(())
    }

    pub fn release(
        &mut self,
        caller: RequestId,
        topic: TopicId,
        release: &Release,
        lent: &mut Lent<'_>,
    ) -> Result<(), Refused> {
        lent.drain.refuse_closing()?;
        let namespace = lent.sessions.namespace(caller.link);
        let (consumer, kind) = (&release.consumer, ConsumerKind::Group);
        let id = self
            .of_kind(lent.topics, namespace, topic, consumer, kind)?
            .id;
        let released = self.at(id, lent, |shared, lent| {
            shared.release(caller, release, lent)
        });
        released.unwrap_or(Ok(()))
    }

    /// A grant is durable, or was refused.
    pub fn granted(&mut self, id: SharedId, grant: u64, durable: bool, lent: &mut Lent<'_>) {
        if durable {
            self.at(id, lent, |shared, lent| shared.granted(grant, lent));
        }
    }

    /// A command was refused, and with it whatever was under way: the groups and queues of which
    /// the overlay has no answer any more are again what the table says.
    pub fn return_to_table(&mut self, ended: &[Key], error: &ControlError, lent: &mut Lent<'_>) {
        let changed = ended.iter().filter_map(|key| match key {
            Key::Shared(topic, consumer) => self.named(*topic, consumer),
            _ => None,
        });
        let changed: BTreeSet<SharedId> = changed.collect();
        for id in changed {
            self.return_one(id, error, lent);
        }
    }

    fn return_one(&mut self, id: SharedId, error: &ControlError, lent: &mut Lent<'_>) {
        let Some(shared) = self.all.get_mut(&id) else {
            return;
        };
        match entry_of(lent.commands.table(), &shared.record) {
            Some(entry) => {
                shared.return_to_table(entry, error, lent.ctx);
                shared.arm(lent);
            }
            // Those that were joining are told by their own commands.
            None => {
                let members = self.remove(id, lent.ctx).map(|shared| shared.members);
                for member in members.into_iter().flat_map(BTreeMap::into_values) {
                    member.presence.forget(lent.ctx);
                }
            }
        }
    }

    /// Ends a group or queue that has no members. Answered when that is durable.
    pub fn delete(
        &mut self,
        caller: RequestId,
        id: SharedId,
        lent: &mut Lent<'_>,
    ) -> Result<(), Refused> {
        let deleted = self.at(id, lent, |shared, lent| shared.delete(caller, lent));
        deleted.unwrap_or(Ok(()))
    }

    /// The end of a group or queue is durable. Returns what it was.
    pub fn deleted(&mut self, id: SharedId, ctx: &mut Ctx) -> Option<ConsumerRecord> {
        self.remove(id, ctx).map(|shared| shared.record)
    }

    /// A topic is gone, and with it its groups and queues.
    pub fn forget(&mut self, topic: TopicId, ctx: &mut Ctx) {
        let ids: Vec<SharedId> = self.of(topic).collect();
        for id in ids {
            let members = self.remove(id, ctx).map(|shared| shared.members);
            for member in members.into_iter().flat_map(BTreeMap::into_values) {
                member.presence.end(&unknown_topic(topic), ctx);
            }
        }
    }

    /// A topic is served here no more: its groups and queues are where that is.
    pub fn leave_topic(&mut self, topic: TopicId, error: &Refused, ctx: &mut Ctx) {
        let ids: Vec<SharedId> = self.of(topic).collect();
        for shared in ids.into_iter().filter_map(|id| self.take_out(id)) {
            shared.queue_ended(error.clone(), ctx);
            for member in shared.members.into_values() {
                member.presence.end(error, ctx);
            }
        }
    }

    /// More partitions of a topic serve: they are shared out as well.
    pub fn share_partitions(&mut self, topic: TopicId, lent: &mut Lent<'_>) {
        let ids: Vec<SharedId> = self.of(topic).collect();
        for id in ids {
            self.at(id, lent, |shared, lent| match shared.is_queue() {
                true => {
                    lent.ctx.dirty.queues.insert(id);
                }
                false => shared.balance(lent),
            });
        }
    }

    /// A connection is gone, and with it a membership.
    pub fn membership_lost(
        &mut self,
        caller: RequestId,
        membership: Membership,
        lent: &mut Lent<'_>,
    ) {
        self.at(membership.shared, lent, |shared, lent| {
            shared.membership_lost(caller, membership.member, lent);
        });
    }

    /// Something was heard on a connection on which members had fallen silent.
    pub fn heard(&mut self, link: LinkId, memberships: &[Membership], lent: &mut Lent<'_>) {
        for membership in memberships {
            self.at(membership.shared, lent, |shared, lent| {
                shared.member_heard(link, membership.member, lent);
            });
        }
    }

    /// Leases of these members of a queue have expired, the last one of each at that time.
    pub fn leases_lapsed(
        &mut self,
        id: SharedId,
        lapsed: BTreeMap<MemberId, Duration>,
        lent: &mut Lent<'_>,
    ) {
        self.at(id, lent, |shared, lent| shared.leases_lapsed(lapsed, lent));
    }

    pub fn timer_came(&mut self, id: SharedId, lent: &mut Lent<'_>) {
        self.at(id, lent, Shared::timer_came);
    }
}

/// What the table has of a group or queue.
fn entry_of<'a>(table: &'a Table, record: &ConsumerRecord) -> Option<&'a SharedEntry> {
    table.topic(record.topic)?.shared(&record.consumer)
}

/// What the caller is refused with whose group or queue is gone.
fn gone(member: MemberId) -> Refused {
    refuse(
        ErrorCode::MemberFenced,
        format!("{member} is no member any more: its group or queue is gone"),
    )
}
