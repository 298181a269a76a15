//! Consumers of a topic: who reads, and how far, as clients and people are told of them.

use super::View;
use crate::coordinator::members::group::Group;
use crate::coordinator::members::shared::{Presence, Shared};
use crate::coordinator::served_topic::Slot;
use crate::coordinator::table::TopicEntry;
use crate::ids::{LinkId, SharedId};
use crate::partition::subscription::Subscription;
use crate::session::{Session, Stage};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use wire::message::*;
use wire::record::{ConsumerKind, Position};
use wire::{Incarnation, MemberId, Offset, PartitionIndex, TopicId};

impl<'a> View<'a> {
    /// The consumers of a topic, or the one of this name.
    pub fn consumers(&self, topic: TopicId, only: &str) -> Vec<ConsumerDescription> {
        let Some(entry) = self.commands.table().topic(topic) else {
            return Vec::new();
        };
        let mut readers = self.readers(topic);
        let cursors = entry.cursors.keys().map(String::as_str);
        let shared = self.shared.of(topic).filter_map(|id| self.shared.get(id));
        let shared = shared.map(|shared| shared.record.consumer.as_str());
        let read = readers.keys().copied();
        let names: BTreeSet<&str> = cursors.chain(shared).chain(read).collect();
        let names: Vec<String> = names
            .into_iter()
            .filter(|name| only.is_empty() || *name == only)
            .map(str::to_owned)
            .collect();
        let describe = |name: String| match self.shared.named(topic, &name) {
            Some(id) => self.describe_shared(id, entry),
            None => Some(ConsumerDescription {
                kind: ConsumerKind::Independent,
                options: String::new(),
                members: readers.remove(name.as_str()).unwrap_or_default(),
                partitions: self.cursors_of(entry, &name, false),
                consumer: name,
            }),
        };
        names.into_iter().filter_map(describe).collect()
    }

    /// Who reads a topic as an independent consumer, by the consumer's name.
    fn readers(&self, topic: TopicId) -> BTreeMap<&'a str, Vec<MemberDescription>> {
        let mut read: BTreeMap<(&'a str, LinkId), BTreeSet<PartitionIndex>> = BTreeMap::new();
        for (link, partition, subscription) in self.subscriptions_of(topic) {
            if !subscription.consumer.is_empty() && subscription.scope.member.is_none() {
                let read = read.entry((&subscription.consumer, link)).or_default();
                read.insert(partition);
            }
        }
        let mut readers: BTreeMap<&'a str, Vec<MemberDescription>> = BTreeMap::new();
        for ((consumer, link), partitions) in read {
            let reader = self.sessions.get(link).and_then(|session| {
                self.describe_reader(session, partitions.into_iter().collect())
            });
            if let Some(reader) = reader {
                readers.entry(consumer).or_default().push(reader);
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
        let Stage::Open {
            client_name, id, ..
        } = &session.stage
        else {
            return None;
        };
        Some(MemberDescription {
            member: MemberId(id.0),
            instance: String::new(),
            client_name: client_name.clone(),
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
        let shared = self.shared.get(id)?;
        let record = &shared.record;
        let partitions = match shared.is_queue() {
            true => (0..self.topics.get(record.topic)?.partitions.len())
                .map(|index| self.queue_partition(id, PartitionIndex(index as u32)))
                .collect(),
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
                    .map_or((0, 0), |queue| queue.leased(*member)),
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
        let Some(topic) = self.topics.get(entry.record.topic) else {
            return Vec::new();
        };
        let cursors = entry.cursors.get(consumer);
        let mut partitions = Vec::new();
        for (index, slot) in topic.partitions.iter().enumerate() {
            let partition = PartitionIndex(index as u32);
            let cursor = cursors.and_then(|cursors| cursors.get(&partition)).copied();
            if cursor.is_none() && !all {
                continue;
            }
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
            partitions.push(ConsumerPartition {
                partition,
                position,
                end: open.map_or(position.offset, |open| open.store.visible),
                settled: 0,
                leased: 0,
                returned: 0,
                delayed: 0,
                dead: 0,
            });
        }
        partitions
    }

    /// Where a queue stands in a partition.
    fn queue_partition(&self, id: SharedId, partition: PartitionIndex) -> ConsumerPartition {
        match self.queues.get(&id) {
            Some(queue) => queue.describe(partition, self.partitions),
            None => crate::queue::nowhere(partition),
        }
    }

    /// The consumers of a topic, for people and monitors.
    pub(super) fn consumer_status(&self, topic: TopicId) -> Vec<Value> {
        let consumers = self.consumers(topic, "").into_iter();
        let consumers = consumers.map(|consumer| {
            let lag = |partition: &ConsumerPartition| {
                let behind = partition.end.0.saturating_sub(partition.position.offset.0);
                behind.saturating_sub(partition.settled)
            };
            let is_queue = consumer.kind == ConsumerKind::Queue;
            let cursors = consumer.partitions.iter().map(|partition| {
                let mut status = json!({
                    "partition": partition.partition.0,
                    "incarnation": partition.position.incarnation.0,
                    "offset": partition.position.offset.0,
                    "lag": self.is_open(topic, partition.partition).then(|| lag(partition)),
                });
                if is_queue {
                    status["settled"] = json!(partition.settled);
                    status["leased"] = json!(partition.leased);
                    status["returned"] = json!(partition.returned);
                    status["delayed"] = json!(partition.delayed);
                    status["dead"] = json!(partition.dead);
                }
                status
            });
            json!({
                "name": consumer.consumer,
                "kind": consumer.kind.name(),
                "lag": consumer.partitions.iter().map(lag).sum::<u64>(),
                "cursors": cursors.collect::<Vec<_>>(),
                "members": consumer.members.iter().map(member_status).collect::<Vec<_>>(),
            })
        });
        consumers.collect()
    }

    fn is_open(&self, topic: TopicId, partition: PartitionIndex) -> bool {
        let topic = self.topics.get(topic);
        let slot = topic.and_then(|topic| topic.partitions.get(partition.0 as usize));
        matches!(slot, Some(Slot::Open(_)))
    }
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
