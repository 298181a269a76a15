//! Consumers of a topic: described, and forgotten.

use crate::commands::Decided;
use crate::controller::ControlError;
use crate::controller::undecided;
use crate::group::Group;
use crate::ids::SharedId;
use crate::ids::{LinkId, RequestId};
use crate::node::Node;
use crate::partition::subscription::Subscription;
use crate::refusal::{Refused, malformed, refuse, unknown_topic};
use crate::served_topic::Slot;
use crate::session::{Session, Stage};
use crate::shared::{Presence, Shared};
use crate::table::TopicEntry;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use wire::codec::Reader;
use wire::message::*;
use wire::record::{ConsumerDeletedRecord, ConsumerKind, Position, Record};
use wire::{Codec, ErrorCode, ErrorReply, Incarnation, MemberId, Offset, PartitionIndex, TopicId};

impl Node {
    pub(crate) fn describe_consumers(
        &mut self,
        caller: RequestId,
        head: &RequestHead,
        from: &mut Reader<'_>,
    ) -> Result<(), Refused> {
        let ConsumerName { consumer } = ConsumerName::decode(from).map_err(malformed)?;
        self.topics
            .of(self.sessions.namespace(caller.link), head.topic)?;
        let consumers = self.consumers(head.topic, &consumer);
        if consumers.is_empty() && !consumer.is_empty() {
            return Err(refuse(
                ErrorCode::UnknownConsumer,
                format!("the topic has no consumer {consumer:?}"),
            ));
        }
        self.reply_long(caller, ConsumerList { consumers }.to_bytes());
        Ok(())
    }

    /// The consumers of a topic, or the one of this name.
    fn consumers(&self, topic: TopicId, only: &str) -> Vec<ConsumerDescription> {
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
    fn readers(&self, topic: TopicId) -> BTreeMap<&str, Vec<MemberDescription>> {
        let mut read: BTreeMap<(&str, LinkId), BTreeSet<PartitionIndex>> = BTreeMap::new();
        for (link, partition, subscription) in self.subscriptions_of(topic) {
            if !subscription.consumer.is_empty() && subscription.scope.member.is_none() {
                let read = read.entry((&subscription.consumer, link)).or_default();
                read.insert(partition);
            }
        }
        let mut readers: BTreeMap<&str, Vec<MemberDescription>> = BTreeMap::new();
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
    pub(super) fn subscriptions_of(
        &self,
        topic: TopicId,
    ) -> impl Iterator<Item = (LinkId, PartitionIndex, &Subscription)> {
        let storages = self.topics.storages(topic);
        let partitions = storages.filter_map(|(_, storage)| self.partitions.get(&storage));
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

    /// The consumers of a topic, for people and monitors.
    pub(crate) fn consumer_status(&self, topic: TopicId) -> Vec<Value> {
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
