//! A farm: a topic, its queue "q" and that queue's members, as the tests of
//! queues speak of them.

use super::harness::*;
use super::members::join;
use crate::node::LinkId;
use std::collections::BTreeMap;
use std::time::Duration;
use wire::batch::{Batch, Headers, Verify};
use wire::frame::FrameKind;
use wire::message::*;
use wire::record::ConsumerKind;
use wire::*;

pub const SECOND: Duration = Duration::from_secs(1);
pub const LEASE: Duration = Duration::from_secs(30);

/// A member of the queue "q" that has room for ten events.
pub fn member(member: u128) -> Join {
    Join {
        session_timeout_ms: 600_000,
        ..join("q", ConsumerKind::Queue, member)
    }
}

/// What a member was given, event by event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    /// The lease of this event alone.
    pub lease: Lease,
    pub text: String,
}

impl World {
    /// A topic with its dead-letter topic.
    pub fn farm(&mut self, link: LinkId) -> TopicId {
        self.create(link, "t.dead", "{}", &["disk"]).unwrap();
        self.topic(link)
    }

    /// Fills the topic with the numbers from `first` to before `end`, in
    /// batches of `each`.
    pub fn fill(&mut self, link: LinkId, topic: TopicId, first: u64, end: u64, each: u64) {
        let mut at = first;
        while at < end {
            let until = end.min(at + each);
            let texts: Vec<String> = (at..until).map(|number| number.to_string()).collect();
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            self.stored(link, topic, (5, at), &texts);
            at = until;
        }
    }

    /// The queue's last member leaves, and the queue is deleted.
    pub fn end_queue(&mut self, link: LinkId, topic: TopicId, member: u128) {
        let leave = Leave {
            consumer: "q".into(),
            member: MemberId(member),
        };
        self.call::<Empty>(link, Method::Leave, topic, &leave)
            .unwrap();
        let name = ConsumerName {
            consumer: "q".into(),
        };
        self.call::<Empty>(link, Method::DeleteConsumer, topic, &name)
            .unwrap();
    }

    /// All that a membership was given so far, in order.
    pub fn given(&self, link: LinkId, id: u64) -> Vec<Given> {
        let frames = self.frames(link, id);
        frames.into_iter().flatten().collect()
    }

    /// Likewise, frame by frame.
    pub fn frames(&self, link: LinkId, id: u64) -> Vec<Vec<Given>> {
        let inbox = self.links[&link].inbox.iter();
        let frames = inbox.filter(|m| m.id == id && m.kind == FrameKind::Leased);
        frames
            .map(|message| {
                let head = Leased::from_bytes("leased", &message.head).unwrap();
                let mut texts = BTreeMap::new();
                let mut at = 0;
                let payload = message.payload.concat();
                for bytes in &head.batch_bytes {
                    let bytes = &payload[at..at + *bytes as usize];
                    at += bytes.len();
                    let batch = Batch::read(bytes, Verify::Sections).unwrap();
                    let base = batch.stamp.unwrap().base_offset;
                    for event in batch.columns().unwrap().events {
                        let start = event.metadata_start as usize;
                        let text = &batch.metadata_section()[start..];
                        let text = &text[..event.metadata_bytes as usize];
                        let offset = base.plus(event.offset_delta.into());
                        let text = String::from_utf8(text.to_vec()).unwrap();
                        assert!(texts.insert(offset, text).is_none());
                    }
                }
                assert_eq!(at, payload.len());
                let mut given = Vec::new();
                for lease in head.leases {
                    for at in lease.first.0..lease.end.0 {
                        given.push(Given {
                            lease: Lease {
                                first: Offset(at),
                                end: Offset(at + 1),
                                ..lease
                            },
                            text: texts.remove(&Offset(at)).expect("a leased event is there"),
                        });
                    }
                }
                assert!(texts.is_empty(), "events without a lease");
                given
            })
            .collect()
    }

    pub fn numbers(&self, link: LinkId, id: u64) -> Vec<u64> {
        let given = self.given(link, id).into_iter();
        given.map(|given| given.text.parse().unwrap()).collect()
    }

    /// Sends a settlement; the answer may not have come.
    pub fn send_settle(
        &mut self,
        link: LinkId,
        topic: TopicId,
        sequence: (u128, u64),
        settlements: Vec<Settlement>,
    ) -> u64 {
        let settle = Settle {
            consumer: "q".into(),
            member: MemberId(sequence.0),
            sequence: sequence.1,
            worked_us: 1_000_000,
            settlements,
        };
        self.request(link, Method::Settle, topic, &settle, &[])
    }

    /// Settles, and returns what was refused.
    pub fn settled(
        &mut self,
        link: LinkId,
        topic: TopicId,
        sequence: (u128, u64),
        settlements: Vec<Settlement>,
    ) -> Vec<u64> {
        let id = self.send_settle(link, topic, sequence, settlements);
        let settled: wire::message::Settled = self.answered(link, id).unwrap();
        offsets(&settled.expired)
    }

    /// Lets time pass, in which the clients give signs of life.
    pub fn live(&mut self, links: &[LinkId], time: Duration) {
        let mut left = time;
        while left > Duration::ZERO {
            let step = left.min(SECOND * 4);
            left -= step;
            self.pass(step);
            links.iter().for_each(|link| self.breathe(*link));
        }
    }

    /// What a queue's only partition holds.
    pub fn queue(&mut self, link: LinkId, topic: TopicId) -> ConsumerPartition {
        let consumers = self.consumers(link, topic);
        let queue = consumers.into_iter().find(|c| c.consumer == "q").unwrap();
        queue.partitions.into_iter().next().unwrap()
    }

    /// The dead letters, with their headers.
    pub fn dead_letters(&mut self, link: LinkId) -> Vec<(String, BTreeMap<String, String>)> {
        let topic = self.describe(link, "t.dead").unwrap().topic;
        let id = self.request(link, Method::Fetch, topic, &fetch(at(1, 0), 0), &[]);
        let message = self.answer(link, id).unwrap().unwrap();
        let head = Fetched::from_bytes("fetched", &message.head).unwrap();
        let payload = message.payload.concat();
        let mut letters = Vec::new();
        let mut start = 0;
        for bytes in head.batch_bytes {
            let bytes = &payload[start..start + bytes as usize];
            start += bytes.len();
            let batch = Batch::read(bytes, Verify::Sections).unwrap();
            for event in batch.columns().unwrap().events {
                let (from, length) = event.headers.unwrap();
                let headers = &batch.columns_section()[from as usize..][..length as usize];
                let headers = Headers::from_bytes("headers", headers).unwrap();
                let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
                let headers = headers.0.iter();
                let headers = headers.map(|(name, value)| (name.clone(), text(value)));
                let from = event.metadata_start as usize;
                let metadata = &batch.metadata_section()[from..][..event.metadata_bytes as usize];
                letters.push((text(metadata), headers.collect()));
            }
        }
        letters
    }
}

pub fn offsets(leases: &[Lease]) -> Vec<u64> {
    let ranges = leases.iter().map(|lease| lease.first.0..lease.end.0);
    ranges.flatten().collect()
}

pub fn done(lease: Lease) -> Settlement {
    Settlement {
        lease,
        how: SettleAs::Acknowledge,
        delay_ms: 0,
        reason: String::new(),
    }
}

pub fn back(lease: Lease, delay_ms: u32) -> Settlement {
    Settlement {
        how: SettleAs::Return,
        delay_ms,
        ..done(lease)
    }
}

pub fn reject(lease: Lease, reason: &str) -> Settlement {
    Settlement {
        how: SettleAs::Reject,
        reason: reason.into(),
        ..done(lease)
    }
}

/// A batch of events with keys.
pub fn keyed(topic: TopicId, sequence: u64, events: &[(&str, &str)]) -> Vec<u8> {
    let mut builder = wire::batch::BatchBuilder::default();
    for (text, key) in events {
        builder.push(wire::batch::EventParts {
            metadata: text.as_bytes(),
            key: (!key.is_empty()).then_some(key.as_bytes()),
            ..Default::default()
        });
    }
    builder.seal(origin(topic, 5, 0, sequence), 4096).to_vec()
}
