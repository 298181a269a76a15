//! Consumers of a topic: who reads, and how far, as clients and people are told of them.

use super::View;
use crate::coordinator::members::group::Group;
use crate::coordinator::members::presence::Presence;
use crate::coordinator::members::shared::Shared;
use crate::coordinator::served_topic::{Slot, Topic};
use crate::coordinator::table::TopicEntry;
use crate::ids::{LinkId, SharedId};
use crate::partition::subscription::Subscription;
use crate::session::Session;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use wire::message::*;
use wire::record::{ConsumerKind, Position};
use wire::{Incarnation, MemberId, Offset, PartitionIndex, TopicId};

/// Who reads a topic, by the name of an independent consumer.
pub(crate) type Readers = BTreeMap<String, Vec<MemberDescription>>;

impl<'a> View<'a> {
    /// The consumers of a topic, or the one of this name.
    pub fn consumers(&self, topic: TopicId, only: &str) -> Vec<ConsumerDescription> {
        let Some(entry) = self.commands.table().topic(topic) else {
            return Vec::new();
        };
        let mut readers = self.readers(topic);
        let mut names = self.consumer_names(topic, &readers);
        names.retain(|name| only.is_empty() || name == only);
        let describe = |name: String| match self.members.named(topic, &name) {
            Some(id) => self.describe_shared(id, entry),
            None => Some(ConsumerDescription {
                kind: ConsumerKind::Independent,
                options: String::new(),
                members: readers.remove(&name).unwrap_or_default(),
                partitions: self.cursors_of(entry, &name, false),
                consumer: name,
            }),
        };
        names.into_iter().filter_map(describe).collect()
    }

    /// Those with a cursor or a live subscription, groups and queues.
    pub fn consumer_names(&self, topic: TopicId, readers: &Readers) -> BTreeSet<String> {
        let entry = self.commands.table().topic(topic);
        let cursors = entry.into_iter().flat_map(|entry| entry.cursors.keys());
        let shared = self.members.of(topic).filter_map(|id| self.members.get(id));
        let shared = shared.map(|shared| &shared.record.consumer);
        let names = cursors.chain(shared).chain(readers.keys());
        names.cloned().collect()
    }

    /// Who reads a topic as an independent consumer, by the consumer's name.
    pub fn readers(&self, topic: TopicId) -> Readers {
        let mut read: BTreeMap<(&'a str, LinkId), BTreeSet<PartitionIndex>> = BTreeMap::new();
        for (link, partition, subscription) in self.subscriptions_of(topic) {
            if !subscription.consumer.is_empty() && subscription.scope.member.is_none() {
                let read = read.entry((&subscription.consumer, link)).or_default();
                read.insert(partition);
            }
        }
        let mut readers = Readers::new();
        for ((consumer, link), partitions) in read {
            let reader = self.sessions.get(link).and_then(|session| {
                self.describe_reader(session, partitions.into_iter().collect())
            });
            if let Some(reader) = reader {
                readers.entry(consumer.to_owned()).or_default().push(reader);
            }
        }
        readers
    }

    /// The live subscriptions of a topic.
    pub fn subscriptions_of(
        &self,
        topic: TopicId,
    ) -> impl Iterator<Item = (LinkId, PartitionIndex, &'a Subscription)> + use<'a> {
        let (storages, partitions) = (self.topics.storages(topic), self.partitions);
        let partitions = storages.filter_map(|(_, storage)| partitions.get(&storage));
        partitions.flat_map(|partition| {
            let index = partition.store.key.partition;
            let subscriptions = partition.subscriptions.iter();
            subscriptions.map(move |(caller, subscription)| (caller.link, index, subscription))
        })
    }

    /// `None` if its connection is being closed: it is not there any more.
    fn describe_reader(
        &self,
        session: &Session,
        partitions: Vec<PartitionIndex>,
    ) -> Option<MemberDescription> {
        let identity = session.identity()?;
        Some(MemberDescription {
            member: MemberId(identity.session.0),
            instance: String::new(),
            client_name: identity.client_name.clone(),
            present: true,
            silent_ms: self.silent_ms(session),
            partitions,
            leased_events: 0,
            leased_bytes: 0,
        })
    }

    fn silent_ms(&self, session: &Session) -> u64 {
        let silence = self.ctx.now.monotonic.saturating_sub(session.last_heard);
        u64::try_from(silence.as_millis()).unwrap_or(u64::MAX)
    }

    fn describe_shared(&self, id: SharedId, entry: &TopicEntry) -> Option<ConsumerDescription> {
        let shared = self.members.get(id)?;
        let record = &shared.record;
        let partitions = match shared.is_queue() {
            true => {
                let slots = self.topics.get(record.topic)?.slots();
                slots
                    .map(|(index, _)| self.queue_partition(id, index))
                    .collect()
            }
            false => self.cursors_of(entry, &record.consumer, true),
        };
        Some(ConsumerDescription {
            consumer: record.consumer.clone(),
            kind: record.kind,
            options: record.options.clone(),
            members: self.describe_members(id, shared),
            partitions,
        })
    }

    fn describe_members(&self, id: SharedId, shared: &Shared) -> Vec<MemberDescription> {
        let mut owned = shared.group().map(Group::assigned).unwrap_or_default();
        let members = shared.members.iter().map(|(member, state)| {
            let caller = state.presence.caller();
            let session = caller.and_then(|caller| self.sessions.get(caller.link));
            let timeout = state.session_timeout();
            let silent_ms = match (state.presence, session) {
                (Presence::Away { until }, _) => {
                    let since = until.saturating_sub(timeout);
                    let silence = self.ctx.now.monotonic.saturating_sub(since);
                    u64::try_from(silence.as_millis()).unwrap_or(u64::MAX)
                }
                (_, Some(session)) => self.silent_ms(session),
                (_, None) => 0,
            };
            let (leased_events, leased_bytes) = match shared.is_queue() {
                true => self
                    .queues
                    .get(&id)
                    .map_or((0, 0), |queue| queue.core.leased(*member)),
                false => (0, 0),
            };
            MemberDescription {
                member: *member,
                instance: state.record.instance.clone(),
                client_name: state.record.client_name.clone(),
                present: state.present().is_some(),
                silent_ms,
                partitions: owned
                    .remove(member)
                    .map_or_else(Vec::new, |own| own.partitions),
                leased_events,
                leased_bytes,
            }
        });
        members.collect()
    }

    /// Where a name's cursors are: in all partitions, or in those where it has one.
    fn cursors_of(&self, entry: &TopicEntry, consumer: &str, all: bool) -> Vec<ConsumerPartition> {
        let topic = self.topics.get(entry.record.topic);
        let slots = topic.into_iter().flat_map(Topic::slots);
        let cursors = entry.cursors.get(consumer);
        let cursors = slots.filter_map(|(partition, slot)| {
            let cursor = cursors.and_then(|cursors| cursors.get(&partition)).copied();
            (all || cursor.is_some()).then(|| self.cursor_in(partition, slot, cursor))
        });
        cursors.collect()
    }

    /// Where a name goes on in a partition.
    fn cursor_in(
        &self,
        partition: PartitionIndex,
        slot: &Slot,
        cursor: Option<Position>,
    ) -> ConsumerPartition {
        let open = slot.open();
        let open = open.and_then(|storage| self.partitions.get(&storage));
        let position = match (cursor, open) {
            // A cursor in a life that has ended counts from where it goes on.
            (Some(cursor), Some(open)) => {
                open.store.translate(cursor, open.store.state().incarnation)
            }
            (Some(cursor), None) => cursor,
            (None, open) => Position {
                incarnation: open.map_or(Incarnation(0), |open| open.store.state().incarnation),
                offset: Offset(0),
            },
        };
        ConsumerPartition {
            partition,
            position,
            end: open.map_or(position.offset, |open| open.store.visible),
            settled: 0,
            leased: 0,
            returned: 0,
            delayed: 0,
            dead: 0,
        }
    }

    /// Where a queue stands in a partition.
    fn queue_partition(&self, id: SharedId, partition: PartitionIndex) -> ConsumerPartition {
        match self.queues.get(&id) {
            Some(queue) => queue.core.describe(partition, self.partitions),
            None => crate::queue::nowhere(partition),
        }
    }

    /// A consumer, for people and monitors, without its cursors.
    pub fn consumer_status(
        &self,
        topic: TopicId,
        consumer: &str,
        readers: Vec<MemberDescription>,
    ) -> Value {
        let shared = self.members.named(topic, consumer);
        let shared = shared.and_then(|id| Some((id, self.members.get(id)?)));
        let (kind, members) = match shared {
            Some((id, shared)) => (shared.record.kind, self.describe_members(id, shared)),
            None => (ConsumerKind::Independent, readers),
        };
        json!({
            "name": consumer,
            "kind": kind.name(),
            "members": members.iter().map(member_status).collect::<Vec<_>>(),
            "recovering_ms": shared.map_or(0, |(id, shared)| self.recovering_ms(id, shared)),
        })
    }

    /// How long a group or queue still waits for members of before the start, at most,
    /// milliseconds; 0 if it waits for none.
    fn recovering_ms(&self, id: SharedId, shared: &Shared) -> u32 {
        let awaited = match (shared.group(), self.queues.get(&id)) {
            (Some(group), _) => group.awaited(),
            (None, Some(queue)) => queue.awaited(),
            (None, None) => return 0,
        };
        shared.recovering_ms(awaited, self.ctx.now.monotonic)
    }

    /// How many events of a partition a consumer has still to finish: no more than are there.
    /// `None` if the partition is not open.
    pub fn lag(&self, slot: &Slot, cursor: &ConsumerPartition) -> Option<u64> {
        let store = &self.partitions.get(&slot.open()?)?.store;
        let there = store.visible.0.saturating_sub(store.state().first.0);
        Some(cursor.lag().min(there))
    }

    /// Where a consumer goes on in a partition, and its kind. `None` if it has no cursor there.
    pub fn cursor(
        &self,
        topic: TopicId,
        consumer: &str,
        partition: PartitionIndex,
    ) -> Option<(ConsumerKind, ConsumerPartition)> {
        let slot = self.topics.get(topic)?.slot(partition)?;
        let cursors = self.commands.table().topic(topic)?.cursors.get(consumer);
        let cursor = cursors.and_then(|cursors| cursors.get(&partition)).copied();
        let shared = self.members.named(topic, consumer);
        let Some((id, shared)) = shared.and_then(|id| Some((id, self.members.get(id)?))) else {
            let cursor = self.cursor_in(partition, slot, Some(cursor?));
            return Some((ConsumerKind::Independent, cursor));
        };
        let cursor = match shared.is_queue() {
            true => self.queue_partition(id, partition),
            false => self.cursor_in(partition, slot, cursor),
        };
        Some((shared.record.kind, cursor))
    }
}

pub(crate) fn cursor_status(
    kind: ConsumerKind,
    cursor: &ConsumerPartition,
    lag: Option<u64>,
) -> Value {
    let mut status = json!({
        "partition": cursor.partition.0,
        "incarnation": cursor.position.incarnation.0,
        "offset": cursor.position.offset.0,
        "lag": lag,
    });
    if kind == ConsumerKind::Queue {
        status["settled"] = json!(cursor.settled);
        status["leased"] = json!(cursor.leased);
        status["returned"] = json!(cursor.returned);
        status["delayed"] = json!(cursor.delayed);
        status["dead"] = json!(cursor.dead);
    }
    status
}

fn member_status(member: &MemberDescription) -> Value {
    let partitions: Vec<u32> = member.partitions.iter().map(|index| index.0).collect();
    json!({
        "member": member.member.to_string(),
        "instance": member.instance,
        "client": member.client_name,
        "present": member.present,
        "silent_ms": member.silent_ms,
        "partitions": partitions,
        "leased_events": member.leased_events,
        "leased_bytes": member.leased_bytes,
    })
}
