//! Consumers of the fake server: subscriptions, what is delivered to them, cursors.

use super::partition::{FakePartition, marks};
use super::sharing::fenced;
use super::{Asked, Conn, FakeServer, reply, send_error, unknown};
use bytes::Bytes;
use net::{Lane, Message};
use wire::batch::{Batch, SECTIONS_START, Stamp, Verify};
use wire::codec::Reader;
use wire::frame::FrameKind;
use wire::message::*;
use wire::record::{GapReason, Position};
use wire::*;

pub(super) struct Subscription {
    topic: String,
    partition: u32,
    position: u64,
    incarnation: u64,
    pub(super) credit: i64,
    /// Of one of the newest events alone, whose batches take no credit while they wait: the
    /// credit with which it began. More is never given back than was taken.
    pub(super) granted: Option<i64>,
    inline_data: bool,
}

impl Conn {
    /// Ends what is read of a topic; gives the requests that began it.
    pub(super) fn end_subscriptions(&mut self, topic: &str) -> Vec<u64> {
        let of_topic = self
            .subscriptions
            .iter()
            .filter(|(_, one)| one.topic == topic);
        let ended: Vec<u64> = of_topic.map(|(id, _)| *id).collect();
        ended
            .iter()
            .for_each(|id| drop(self.subscriptions.remove(id)));
        ended
    }
}

impl FakeServer {
    pub(super) fn answer_consumer(&mut self, conn: &mut Conn, asked: Asked, from: &mut Reader<'_>) {
        let Asked {
            id, method, by_id, ..
        } = asked;
        match method {
            Method::Subscribe | Method::SubscribeScoped => {
                let scoped = match method {
                    Method::Subscribe => SubscribeScoped {
                        member: MemberId(0),
                        key: None,
                        subscribe: Subscribe::decode(from).unwrap(),
                    },
                    _ => SubscribeScoped::decode(from).unwrap(),
                };
                let (member, subscribe) = (scoped.member, scoped.subscribe);
                if let Some(name) = &by_id
                    && let Some(group) = self.topics[name].groups.get(&subscribe.consumer)
                    && !group.owns(member, subscribe.partition)
                {
                    return send_error(conn, id, fenced());
                }
                let Some(name) = by_id else {
                    return send_error(conn, id, unknown("by id"));
                };
                let topic = &self.topics[&name];
                let partition = &topic.partitions[subscribe.partition.0 as usize];
                let present = |offset| Position {
                    incarnation: Incarnation(partition.incarnation),
                    offset: Offset(offset),
                };
                let end = partition.events.len() as u64;
                let key = (subscribe.consumer.clone(), subscribe.partition.0);
                let cursor = topic.cursors.get(&key).copied();
                let position = match (subscribe.start, cursor) {
                    (Start::At(at), _) if at.incarnation.0 == 0 => present(at.offset.0),
                    (Start::At(position), _) => position,
                    (Start::Cursor | Start::CursorOrLatest, Some(cursor)) => cursor,
                    (Start::Latest, _) | (Start::CursorOrLatest, None) => present(end),
                    // The fake server has no clock.
                    (Start::Beginning | Start::Cursor | Start::Time(_), _) => present(0),
                };
                let subscribed = Subscribed {
                    position,
                    watermarks: marks(partition),
                };
                let subscription = Subscription {
                    topic: name.clone(),
                    partition: subscribe.partition.0,
                    position: position.offset.0,
                    incarnation: position.incarnation.0,
                    credit: subscribe.credit as i64,
                    granted: subscribe.latest.0.then_some(subscribe.credit as i64),
                    inline_data: subscribe.inline_data,
                };
                conn.subscriptions.insert(id, subscription);
                reply(conn, id, subscribed.to_bytes());
            }
            Method::Unsubscribe => {
                let unsubscribe = Unsubscribe::decode(from).unwrap();
                conn.subscriptions.remove(&unsubscribe.subscription);
                reply(conn, id, Vec::new());
            }
            Method::MoveCursors | Method::MoveMemberCursors => {
                let member = match method {
                    Method::MoveMemberCursors => MemberId::decode(from).unwrap(),
                    _ => MemberId(0),
                };
                let moves = MoveCursors::decode(from).unwrap();
                let topic = self.topics.get_mut(&by_id.unwrap()).unwrap();
                if let Some(group) = topic.groups.get(&moves.consumer)
                    && !moves
                        .positions
                        .iter()
                        .all(|(one, _)| group.owns(member, *one))
                {
                    return send_error(conn, id, fenced());
                }
                for (partition, position) in moves.positions {
                    let cursor = topic
                        .cursors
                        .entry((moves.consumer.clone(), partition.0))
                        .or_insert(position);
                    *cursor = match moves.how {
                        CursorMove::Seek => position,
                        CursorMove::Acknowledge => position.max(*cursor),
                    };
                }
                reply(conn, id, Vec::new());
            }
            Method::ReadCursors => {
                let topic = &self.topics[&by_id.unwrap()];
                let cursors = topic
                    .cursors
                    .iter()
                    .map(|((consumer, partition), position)| Cursor {
                        consumer: consumer.clone(),
                        partition: PartitionIndex(*partition),
                        position: *position,
                    });
                let list = CursorList {
                    cursors: cursors.collect(),
                };
                reply(conn, id, list.to_bytes());
            }
            other => unreachable!("{other:?} is somebody else's"),
        }
    }

    pub(super) fn deliver(&mut self, conn: &mut Conn) -> bool {
        let mut busy = false;
        if self.is_silent {
            return false;
        }
        let mut messages = Vec::new();
        for (id, subscription) in &mut conn.subscriptions {
            let Some(topic) = self.topics.get(&subscription.topic) else {
                continue;
            };
            let partition = &topic.partitions[subscription.partition as usize];
            if subscription.incarnation < partition.incarnation {
                let gap = partition.gap.unwrap();
                let mut bytes = wire::batch::gap_batch(topic.id, &gap).to_vec();
                let header_crc = Batch::read(&bytes[..], Verify::Headers).unwrap().header_crc;
                // After a power loss the next life has what was spared.
                let (life, next) = match gap.reason {
                    GapReason::PowerLoss => {
                        let next = subscription.position.min(gap.first.0);
                        (partition.incarnation, next)
                    }
                    _ => (gap.incarnation.0, 0),
                };
                Stamp {
                    batch_bytes: bytes.len() as u64,
                    base_offset: match gap.reason {
                        GapReason::PowerLoss => Offset(next),
                        _ => gap.end,
                    },
                    header_crc,
                    ..Stamp::default()
                }
                .write(&mut bytes);
                subscription.incarnation = partition.incarnation;
                subscription.position = next;
                messages.push(delivery(*id, life, vec![bytes.into()], partition));
                busy = true;
            }
            for (base, batch) in &partition.batches {
                let read = Batch::read(batch.clone(), Verify::Headers).unwrap();
                let end = base + read.header.offset_count();
                if end <= subscription.position || subscription.credit <= 0 {
                    continue;
                }
                let sent = match subscription.inline_data {
                    true => batch.clone(),
                    false => batch.slice(..read.header.prefix_bytes() as usize),
                };
                subscription.position = end;
                subscription.credit -= sent.len() as i64;
                let mut sent = sent;
                if std::mem::take(&mut self.damage_next) {
                    let mut bytes = sent.to_vec();
                    bytes[SECTIONS_START + 1] ^= 1;
                    sent = bytes.into();
                }
                messages.push(delivery(*id, partition.incarnation, vec![sent], partition));
                busy = true;
            }
        }
        for message in messages {
            conn.link.send(message);
        }
        busy
    }
}

fn delivery(id: u64, incarnation: u64, batches: Vec<Bytes>, partition: &FakePartition) -> Message {
    let deliver = Deliver {
        incarnation: Incarnation(incarnation),
        batch_bytes: batches.iter().map(|batch| batch.len() as u64).collect(),
        watermarks: marks(partition),
    };
    Message {
        payload: batches,
        lane: Lane::Bulk,
        ..Message::control(FrameKind::Deliver, id, deliver.to_bytes())
    }
}
