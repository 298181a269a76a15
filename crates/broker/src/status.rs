//! The node's state as JSON; the fields are in `docs/reference/status.md`.

use crate::ids::{LinkId, RequestId};
use crate::node::Node;
use crate::refusal::Refused;
use crate::served_topic::{Slot, Topic};
use crate::session::{Session, Stage};
use crate::table::TopicEntry;
use serde_json::{Value, json};
use wire::Codec;
use wire::message::StatusReply;

impl Node {
    pub(crate) fn status_reply(&mut self, caller: RequestId) -> Result<(), Refused> {
        let json = self.status().to_string();
        self.reply_long(caller, StatusReply { json }.to_bytes());
        Ok(())
    }

    /// Bytes that are on their way to storage, and how many there may be.
    pub fn data_bytes(&self) -> (u64, u64) {
        (self.ctx.data.held(), self.ctx.data.limit())
    }

    /// Which partition, the internal one first, serves no more until the node
    /// is opened again, and why.
    pub fn failure(&self) -> Option<String> {
        if let Some(failure) = self.commands.controller.failure() {
            return Some(format!("the internal partition failed: {failure}"));
        }
        let slots = self.topics.values().flat_map(|topic| &topic.partitions);
        slots.into_iter().find_map(|slot| match slot {
            Slot::Failed(reason) => Some(reason.clone()),
            Slot::Open(id) => self.partitions.get(id)?.store.state().failure,
        })
    }

    /// The node's state, for people and monitors.
    pub fn status(&self) -> Value {
        let table = self.commands.table();
        let topics = table
            .topics()
            .filter_map(|(id, entry)| Some(self.topic_status(entry, self.topics.get(*id)?)));
        json!({
            "directory": self.ctx.options.directory_id.to_string(),
            "instance": self.ctx.options.instance.to_string(),
            "version": self.ctx.options.server_version,
            "draining": self.drain.is_begun(),
            "losses": self.losses_status(),
            "file_system": self.below.status(),
            "copied_bytes": memory::copies::bytes(),
            "data_budget": {
                "limit_bytes": self.ctx.data.limit(),
                "held_bytes": self.ctx.data.held(),
                "transfers": self.partitions.values().map(|it| it.appends.transfer_count()).sum::<usize>(),
                "transfers_waiting": self.ctx.incoming.waiting(),
            },
            "sessions": self.sessions.iter()
                .map(|(link, session)| self.session_status(link, session))
                .collect::<Vec<_>>(),
            "topics": topics.collect::<Vec<_>>(),
        })
    }

    /// For the status: what was lost, what was set aside, and which topics were deleted.
    fn losses_status(&self) -> Value {
        json!({
            "damage": self.start.open_damage().map(|damage| json!({
                "time": damage.time,
                "what": damage.what,
            })).collect::<Vec<_>>(),
            "lost_and_found": self.set_aside,
            "deleted_topics": self.commands.table().deleted()
                .map(ToString::to_string)
                .collect::<Vec<_>>(),
        })
    }

    fn topic_status(&self, entry: &TopicEntry, topic: &Topic) -> Value {
        let partitions = topic.partitions.iter().zip(entry.partitions.values());
        let partitions = partitions.map(|(slot, record)| {
            let mut status = json!({
                "partition": record.partition.0,
                "storage": record.storage,
            });
            match slot {
                Slot::Failed(reason) => status["failure"] = json!(reason),
                Slot::Open(id) => {
                    if let Some(partition) = self.partitions.get(id) {
                        let state = partition.store.state();
                        status["durability"] = json!(partition.store.durability.to_string());
                        status["incarnation"] = json!(state.incarnation.0);
                        status["first"] = json!(state.first.0);
                        status["visible"] = json!(partition.store.visible.0);
                        status["written"] = json!(state.written.0);
                        status["synced"] = json!(state.synced.0);
                        status["end"] = json!(state.end.0);
                        status["bytes"] = json!(state.bytes);
                        status["subscriptions"] = json!(partition.subscriptions.len());
                        status["failure"] = json!(state.failure);
                        status["full"] = partition.space.status();
                        let capacity = &partition.appends.capacity;
                        let (events, bytes) = capacity.waiting(&state);
                        let drops = capacity.drops;
                        status["overflow"] = json!({
                            "policy": capacity.policy().name(),
                            "waiting_events": events,
                            "waiting_bytes": bytes,
                            "refused_events": drops.refused,
                            "dropped_events": drops.dropped,
                            "discarded_events": drops.discarded,
                        });
                    }
                }
            }
            status
        });
        json!({
            "name": topic.name,
            "namespace": topic.namespace,
            "topic": entry.record.topic.to_string(),
            "partitions": partitions.collect::<Vec<_>>(),
            "consumers": self.consumer_status(entry.record.topic),
            "producers": entry.producers.values().map(|producer| json!({
                "name": producer.name,
                "producer": producer.producer.to_string(),
                "epoch": producer.epoch.0,
            })).collect::<Vec<_>>(),
            "gap_count": entry.gaps.len(),
        })
    }

    fn session_status(&self, link: LinkId, session: &Session) -> Value {
        let (stage, client) = match &session.stage {
            Stage::New => ("new", ""),
            Stage::Open { client_name, .. } => ("open", client_name.as_str()),
            Stage::Closing => ("closing", ""),
        };
        let subscriptions = session.subscriptions.iter().filter_map(|(id, storage)| {
            let partition = self.partitions.get(storage)?;
            let subscription = partition.subscriptions.get(RequestId { link, id: *id })?;
            let key = partition.store.key;
            Some(json!({
                "topic": key.topic.to_string(),
                "partition": key.partition.0,
                "consumer": subscription.consumer,
                "incarnation": subscription.position.incarnation.0,
                "offset": subscription.position.offset.0,
                "delivered_bytes": subscription.delivered_bytes,
            }))
        });
        json!({
            "address": session.peer.address,
            "stage": stage,
            "client": client,
            "requests": session.requests.len(),
            "produce_credit_bytes": session.credit,
            "unanswered_bytes": session.requests.unanswered_bytes,
            "crowded": self.ctx.backpressured.contains(&link),
            "memberships": session.memberships.len(),
            "subscriptions": subscriptions.collect::<Vec<_>>(),
        })
    }
}
