//! Queues of the fake server: members, leases, settlements. Time does not
//! pass here: tests say when leases expire and members are expelled.

use super::{Asked, Conn, FakeServer, FakeTopic, reply, send_error, unknown};
use bytes::Bytes;
use net::{Lane, Message};
use std::collections::{BTreeMap, BTreeSet};
use wire::batch::{Batch, Verify};
use wire::codec::{Appended, Reader};
use wire::frame::FrameKind;
use wire::message::*;
use wire::record::ConsumerKind;
use wire::*;

/// A group whose assignment the test says.
#[derive(Debug, Default)]
pub struct FakeGroup {
    /// The member that joined last, and where: connection and request.
    pub member: MemberId,
    pub at: Option<(u64, u64)>,
    /// Members so far.
    pub joins: Vec<MemberId>,
    owned: Vec<PartitionIndex>,
    revoking: Vec<PartitionIndex>,
    told: bool,
    pub left: Vec<MemberId>,
}

impl FakeGroup {
    /// The member owns these, and is to release some of them.
    pub fn assign(&mut self, partitions: &[u32], revoking: &[u32]) {
        let indices = |list: &[u32]| list.iter().copied().map(PartitionIndex).collect();
        self.owned = indices(partitions);
        self.revoking = indices(revoking);
        self.told = false;
    }

    pub fn owned(&self) -> Vec<u32> {
        self.owned.iter().map(|one| one.0).collect()
    }

    /// The member is gone, and is told so if it is connected.
    pub fn expel(&mut self) {
        self.member = MemberId(0);
        self.told = false;
        self.owned.clear();
        self.revoking.clear();
    }

    pub fn owns(&self, member: MemberId, partition: PartitionIndex) -> bool {
        member == self.member && self.owned.contains(&partition)
    }
}

/// What became of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Waiting,
    Leased(MemberId, LeaseId),
    Settled,
    Dead,
}

#[derive(Debug, Clone)]
pub struct FakeEvent {
    pub fate: Fate,
    pub deliveries: u32,
    /// The last delay and reason with which it came back, or died.
    pub delay_ms: u32,
    pub reason: String,
}

#[derive(Debug)]
pub struct FakeMember {
    pub join: Join,
    /// The connection and the request of its membership.
    pub at: Option<(u64, u64)>,
    answers: BTreeMap<u64, Settled>,
}

#[derive(Debug, Default)]
pub struct FakeQueue {
    pub options: String,
    pub members: BTreeMap<MemberId, FakeMember>,
    pub events: BTreeMap<(u32, u64), FakeEvent>,
    last_lease: u64,
    pub lease_ms: u32,
    /// How often settlements were done again.
    pub doubled: u64,
    /// Most settle requests answered with one sequence after the other.
    pub settles: Vec<Settle>,
    pub extended: Vec<Lease>,
    /// Members to be told that they are none any more, when it is their turn.
    expelled: Vec<(u64, u64)>,
    /// While it is not 0 nothing is given out, and the answer to a join says so.
    pub recovering_ms: u32,
    /// Members to be told that the queue has recovered.
    recovered: Vec<MemberId>,
}

impl FakeQueue {
    pub fn fate(&self, offset: u64) -> Fate {
        self.events[&(0, offset)].fate
    }

    pub fn count(&self, is_it: impl Fn(Fate) -> bool) -> usize {
        self.events.values().filter(|one| is_it(one.fate)).count()
    }

    /// All leases expire; the deliveries count.
    pub fn expire(&mut self) {
        for event in self.events.values_mut() {
            if matches!(event.fate, Fate::Leased(..)) {
                event.fate = Fate::Waiting;
            }
        }
    }

    /// All members are gone, and what they held is free.
    pub fn expel(&mut self) {
        for (_, member) in std::mem::take(&mut self.members) {
            self.expelled.extend(member.at);
        }
        self.expire();
    }

    /// The awaited members are back, or gone.
    pub fn recover(&mut self) {
        self.recovering_ms = 0;
        self.recovered = self.members.keys().copied().collect();
    }

    /// The server was restarted: answers are forgotten.
    pub fn restart(&mut self) {
        for member in self.members.values_mut() {
            member.answers.clear();
        }
    }

    fn covered(lease: &Lease) -> impl Iterator<Item = (u32, u64)> + use<> {
        let partition = lease.partition.0;
        (lease.first.0..lease.end.0).map(move |offset| (partition, offset))
    }

    fn settle(&mut self, member: MemberId, settlement: &Settlement) -> Vec<Lease> {
        let mut expired = Vec::new();
        for key in Self::covered(&settlement.lease) {
            let event = self.events.get_mut(&key).unwrap();
            if event.fate != Fate::Leased(member, settlement.lease.lease) {
                expired.push(Lease {
                    first: Offset(key.1),
                    end: Offset(key.1 + 1),
                    ..settlement.lease
                });
                continue;
            }
            event.delay_ms = settlement.delay_ms;
            event.reason = settlement.reason.clone();
            event.fate = match settlement.how {
                SettleAs::Acknowledge => Fate::Settled,
                SettleAs::Reject => Fate::Dead,
                SettleAs::Return => Fate::Waiting,
                SettleAs::GiveBack => {
                    event.deliveries -= 1;
                    Fate::Waiting
                }
            };
        }
        expired
    }

    /// Whether somebody else has the instance name of a former member.
    fn has_successor(&self, join: &Join) -> bool {
        let was_one = join.before != MemberId(0) && !join.instance.is_empty();
        let mut others = self.members.iter();
        others.any(|(id, known)| {
            was_one
                && known.join.instance == join.instance
                && ![join.member, join.before].contains(id)
        })
    }

    fn join(&mut self, join: Join, at: (u64, u64)) -> Joined {
        let (mut settled, mut expired) = (Vec::new(), Vec::new());
        let mut kept = BTreeSet::new();
        for lease in &join.held {
            for key in Self::covered(lease) {
                let one = Lease {
                    first: Offset(key.1),
                    end: Offset(key.1 + 1),
                    ..*lease
                };
                match self.events[&key].fate {
                    Fate::Settled => settled.push(one),
                    Fate::Leased(member, id) if member == join.member && id == lease.lease => {
                        kept.insert(key);
                    }
                    _ => expired.push(one),
                }
            }
        }
        for (key, event) in &mut self.events {
            if matches!(event.fate, Fate::Leased(member, _) if member == join.member)
                && !kept.contains(key)
            {
                event.fate = Fate::Waiting;
                event.deliveries -= 1;
            }
        }
        let options = self.options.clone();
        let member = join.member;
        if let Some(known) = self.members.get_mut(&member) {
            known.at = Some(at);
            known.join = join;
        } else {
            let instance = join.instance.clone();
            let is_before =
                |known: &FakeMember| !instance.is_empty() && known.join.instance == instance;
            let before: Vec<MemberId> = self
                .members
                .iter()
                .filter(|(_, known)| is_before(known))
                .map(|(id, _)| *id)
                .collect();
            for id in before {
                self.expelled.extend(self.members.remove(&id).unwrap().at);
            }
            let known = FakeMember {
                join,
                at: Some(at),
                answers: BTreeMap::new(),
            };
            self.members.insert(member, known);
        }
        Joined {
            options,
            settled,
            expired,
            recovering_ms: Appended(self.recovering_ms),
        }
    }
}

impl FakeTopic {
    pub fn queue(&mut self, name: &str) -> &mut FakeQueue {
        self.queues.get_mut(name).unwrap()
    }
}

pub(super) fn fenced() -> ErrorReply {
    ErrorReply::fatal(ErrorCode::MemberFenced, "no member any more")
}

impl FakeServer {
    pub(super) fn answer_member(&mut self, conn: &mut Conn, asked: Asked, from: &mut Reader<'_>) {
        let Asked {
            id, method, by_id, ..
        } = asked;
        let name = by_id.unwrap();
        let dead_exists = self.topics.contains_key(&format!("{name}.dead"));
        let topic = self.topics.get_mut(&name).unwrap();
        match method {
            Method::Join => {
                let join = Join::decode(from).unwrap();
                if join.kind == ConsumerKind::Group {
                    let group = topic.groups.entry(join.consumer).or_default();
                    if group.member != join.member {
                        group.joins.push(join.member);
                    }
                    group.member = join.member;
                    group.at = Some((conn.serial, id));
                    group.told = false;
                    let joined = Joined {
                        options: join.options,
                        settled: Vec::new(),
                        expired: Vec::new(),
                        recovering_ms: Appended(0),
                    };
                    return reply(conn, id, joined.to_bytes());
                }
                assert!(dead_exists, "the dead-letter topic is made before");
                let queue = topic
                    .queues
                    .entry(join.consumer.clone())
                    .or_insert_with(|| FakeQueue {
                        options: join.options.clone(),
                        lease_ms: 30_000,
                        ..FakeQueue::default()
                    });
                if queue.has_successor(&join) {
                    return send_error(conn, id, fenced());
                }
                let joined = queue.join(join, (conn.serial, id));
                reply(conn, id, joined.to_bytes());
            }
            Method::Leave => {
                let leave = Leave::decode(from).unwrap();
                if let Some(group) = topic.groups.get_mut(&leave.consumer) {
                    group.left.push(leave.member);
                    group.member = MemberId(0);
                    group.at = None;
                    return reply(conn, id, Vec::new());
                }
                let queue = topic.queue(&leave.consumer);
                queue.members.remove(&leave.member);
                for event in queue.events.values_mut() {
                    if matches!(event.fate, Fate::Leased(member, _) if member == leave.member) {
                        event.fate = Fate::Waiting;
                        event.deliveries -= 1;
                    }
                }
                reply(conn, id, Vec::new());
            }
            Method::Release => {
                let release = Release::decode(from).unwrap();
                let group = topic.groups.get_mut(&release.consumer).unwrap();
                if group.member != release.member {
                    return send_error(conn, id, fenced());
                }
                let is_released = |one: &PartitionIndex| release.partitions.contains(one);
                group.owned.retain(|one| !is_released(one));
                group.revoking.retain(|one| !is_released(one));
                group.told = false;
                reply(conn, id, Vec::new());
            }
            Method::Settle => {
                let settle = Settle::decode(from).unwrap();
                let queue = topic.queue(&settle.consumer);
                let Some(member) = queue.members.get(&settle.member) else {
                    return send_error(conn, id, fenced());
                };
                if let Some(settled) = member.answers.get(&settle.sequence) {
                    queue.doubled += 1;
                    let again = queue.settles.iter().rfind(|one| {
                        (one.member, one.sequence) == (settle.member, settle.sequence)
                    });
                    assert_eq!(again, Some(&settle), "it is sent again unchanged");
                    return reply(conn, id, settled.to_bytes());
                }
                let expired = settle
                    .settlements
                    .iter()
                    .flat_map(|one| queue.settle(settle.member, one))
                    .collect();
                let settled = Settled { expired };
                let member = queue.members.get_mut(&settle.member).unwrap();
                member.answers.insert(settle.sequence, settled.clone());
                if member.answers.len() > 8 {
                    member.answers.pop_first();
                }
                queue.settles.push(settle);
                reply(conn, id, settled.to_bytes());
            }
            Method::ExtendLeases => {
                let extend = ExtendLeases::decode(from).unwrap();
                let queue = topic.queue(&extend.consumer);
                let mut expired = Vec::new();
                for lease in &extend.leases {
                    let is_held = FakeQueue::covered(lease).all(|key| {
                        queue.events[&key].fate == Fate::Leased(extend.member, lease.lease)
                    });
                    match is_held {
                        true => queue.extended.push(*lease),
                        false => expired.push(*lease),
                    }
                }
                let lease_ms = queue.lease_ms;
                reply(conn, id, LeasesExtended { lease_ms, expired }.to_bytes());
            }
            Method::DescribeConsumers => {
                let consumer = ConsumerName::decode(from).unwrap().consumer;
                let Some(queue) = topic.queues.get(&consumer) else {
                    let error = ErrorReply::fatal(ErrorCode::UnknownConsumer, consumer);
                    return send_error(conn, id, error);
                };
                let description = ConsumerDescription {
                    consumer,
                    kind: ConsumerKind::Queue,
                    options: queue.options.clone(),
                    members: Vec::new(),
                    partitions: Vec::new(),
                };
                let list = ConsumerList {
                    consumers: vec![description],
                };
                reply(conn, id, list.to_bytes());
            }
            other => unreachable!("{other:?} is somebody else's"),
        }
    }

    /// Gives out what members of this connection have space for.
    pub(super) fn lease(&mut self, conn: &mut Conn) -> bool {
        if self.is_silent {
            return false;
        }
        let mut messages = Vec::new();
        for topic in self.topics.values_mut() {
            for group in topic.groups.values_mut() {
                let Some((serial, id)) = group.at.filter(|_| !group.told) else {
                    continue;
                };
                if serial != conn.serial {
                    continue;
                }
                group.told = true;
                messages.push(match group.member {
                    MemberId(0) => {
                        group.at = None;
                        Message::control(FrameKind::Ended, id, fenced().to_bytes())
                    }
                    _ => {
                        let assigned = Assigned {
                            partitions: group.owned.clone(),
                            revoking: group.revoking.clone(),
                            recovering_ms: Appended(0),
                        };
                        Message::control(FrameKind::Assigned, id, assigned.to_bytes())
                    }
                });
            }
            let (queues, partitions) = (&mut topic.queues, &topic.partitions);
            for queue in queues.values_mut() {
                for (index, partition) in partitions.iter().enumerate() {
                    let index = index as u32;
                    let known = queue.events.range((index, 0)..=(index, u64::MAX));
                    let next = known.last().map_or(0, |((_, offset), _)| offset + 1);
                    for offset in next..partition.events.len() as u64 {
                        let event = FakeEvent {
                            fate: Fate::Waiting,
                            deliveries: 0,
                            delay_ms: 0,
                            reason: String::new(),
                        };
                        queue.events.insert((index, offset), event);
                    }
                }
                queue.expelled.retain(|(serial, id)| {
                    if *serial == conn.serial {
                        let error = fenced().to_bytes();
                        messages.push(Message::control(FrameKind::Ended, *id, error));
                    }
                    *serial != conn.serial
                });
                let members: Vec<MemberId> = queue.members.keys().copied().collect();
                for member in members {
                    let Some((serial, id)) = queue.members[&member].at else {
                        continue;
                    };
                    if serial != conn.serial {
                        continue;
                    }
                    messages.extend(lease_to(queue, partitions, member, id));
                }
            }
        }
        let busy = !messages.is_empty();
        for message in messages {
            conn.link.send(message);
        }
        busy
    }
}

fn lease_to(
    queue: &mut FakeQueue,
    partitions: &[super::FakePartition],
    member: MemberId,
    id: u64,
) -> Option<Message> {
    let join = &queue.members[&member].join;
    let (most, inline_data) = (join.prefetch_events as usize, join.inline_data);
    if queue.recovering_ms > 0 {
        return None;
    }
    let has_recovered = queue.recovered.contains(&member);
    queue.recovered.retain(|one| *one != member);
    let held = queue.count(|fate| matches!(fate, Fate::Leased(who, _) if who == member));
    let mut space = most.saturating_sub(held);
    if space == 0 || queue.count(|fate| fate == Fate::Waiting) == 0 {
        return None;
    }
    let mut batches = Vec::new();
    let mut leases: Vec<Lease> = Vec::new();
    for (index, partition) in partitions.iter().enumerate() {
        for (base, stored) in &partition.batches {
            let batch = Batch::read(stored.clone(), Verify::Sections).unwrap();
            let count = batch.header.event_count;
            let mut keep = Vec::new();
            for at in 0..count {
                let event = queue
                    .events
                    .get_mut(&(index as u32, base + u64::from(at)))
                    .unwrap();
                if space == 0 || event.fate != Fate::Waiting {
                    continue;
                }
                space -= 1;
                queue.last_lease += 1;
                event.fate = Fate::Leased(member, LeaseId(queue.last_lease));
                event.deliveries += 1;
                keep.push(at);
                leases.push(Lease {
                    partition: PartitionIndex(index as u32),
                    incarnation: Incarnation(partition.incarnation),
                    first: Offset(base + u64::from(at)),
                    end: Offset(base + u64::from(at) + 1),
                    lease: LeaseId(queue.last_lease),
                    deliveries: event.deliveries,
                });
            }
            if keep.is_empty() {
                continue;
            }
            let columns = batch.columns().unwrap();
            let mut bytes = match keep.len() == count as usize {
                true => stored.to_vec(),
                false => batch.cut(&columns, &keep),
            };
            if !inline_data {
                let prefix = Batch::read(&bytes[..], Verify::Headers).unwrap();
                let prefix = prefix.header.prefix_bytes() as usize;
                bytes.truncate(prefix);
            }
            batches.push(Bytes::from(bytes));
        }
    }
    if batches.is_empty() && !has_recovered {
        return None;
    }
    let leased = Leased {
        batch_bytes: batches.iter().map(|batch| batch.len() as u64).collect(),
        leases,
        lease_ms: queue.lease_ms,
        gaps: Appended::default(),
    };
    Some(Message {
        payload: batches,
        lane: Lane::Bulk,
        ..Message::control(FrameKind::Leased, id, leased.to_bytes())
    })
}
