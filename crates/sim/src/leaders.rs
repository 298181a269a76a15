//! Listens to what is produced under which leader epoch.
//!
//! An epoch is of one leader, in one life of the partition. So no two lives
//! acknowledge batches whose producers named the same one: whoever knows a
//! leader that is gone has to look for the present one.

use crate::trace::Violation;
use broker::node::LinkId;
use net::{Message, Received};
use std::collections::BTreeMap;
use wire::codec::Reader;
use wire::frame::FrameKind;
use wire::message::{Method, Produce, Produced, RequestHead};
use wire::{Codec, Incarnation, PartitionIndex, TopicId};

/// A partition, and the epoch of its leader that a request names.
type Named = (TopicId, PartitionIndex, u32);

/// Who listens.
#[derive(Default)]
pub struct Leaders {
    /// What is not answered, by connection and request.
    asked: BTreeMap<(LinkId, u64), Named>,
    /// The life in which batches were acknowledged under an epoch.
    lives: BTreeMap<Named, Incarnation>,
    violation: Option<Violation>,
}

impl Leaders {
    /// The server is about to be handed a message.
    pub fn received(&mut self, link: LinkId, message: &Received) {
        if message.kind != FrameKind::Request {
            return;
        }
        let mut from = Reader::new("a request", &message.head);
        if let Ok(head) = RequestHead::decode(&mut from)
            && head.method == Method::Produce
            && head.leader_epoch > 0
            && let Ok(produce) = Produce::decode(&mut from)
        {
            let named = (head.topic, produce.partition, head.leader_epoch);
            self.asked.insert((link, message.id), named);
        }
    }

    /// The server has sent a message.
    pub fn sent(&mut self, link: LinkId, message: &Message) {
        if !matches!(message.kind, FrameKind::Reply | FrameKind::ErrorReply) {
            return;
        }
        let Some(named) = self.asked.remove(&(link, message.id)) else {
            return;
        };
        if message.kind == FrameKind::Reply
            && let Ok(produced) = Produced::from_bytes("produced", &message.head)
        {
            let life = *self.lives.entry(named).or_insert(produced.incarnation);
            if life != produced.incarnation {
                let (_, partition, epoch) = named;
                self.violation.get_or_insert_with(|| {
                    Violation(format!(
                        "partition {partition} acknowledges batches under leader epoch {epoch} in \
                         life {}, which was life {life}'s",
                        produced.incarnation
                    ))
                });
            }
        }
    }

    /// The server's process has ended.
    pub fn crashed(&mut self) {
        self.asked.clear();
    }

    /// What was noticed that must not be.
    pub fn violation(&mut self) -> Result<(), Violation> {
        self.violation.take().map_or(Ok(()), Err)
    }
}
