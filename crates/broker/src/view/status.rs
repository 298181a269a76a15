//! Rows of the status; the fields are in `docs/reference/status.md`.

use super::View;
use crate::coordinator::served_topic::{Slot, Topic};
use crate::coordinator::table::TopicEntry;
use crate::ids::{LinkId, RequestId, StorageId};
use crate::partition::Partition;
use crate::paused::Pause;
use crate::session::{Session, Stage};
use serde_json::{Value, json};
use wire::record::{PartitionRecord, ProducerRecord};

impl View<'_> {
    pub fn partition_status(&self, record: &PartitionRecord, slot: &Slot) -> Value {
        let mut status = json!({
            "partition": record.partition.0,
            "storage": record.storage,
        });
        match slot {
            Slot::Failed(reason) => status["failure"] = json!(reason),
            Slot::Open(id) => {
                if let Some(partition) = self.partitions.get(id) {
                    open_partition(partition, &mut status);
                }
            }
        }
        status
    }

    /// A connection, without its subscriptions.
    pub fn session_status(&self, link: LinkId, session: &Session) -> Value {
        let (stage, client) = match &session.stage {
            Stage::New => ("new", ""),
            Stage::Open(identity) => ("open", identity.client_name.as_str()),
            Stage::Closing => ("closing", ""),
        };
        json!({
            "address": session.peer.address,
            "stage": stage,
            "client": client,
            "requests": session.requests.len(),
            "produce_credit_bytes": session.credit,
            "unanswered_bytes": session.requests.unanswered_bytes,
            "above_high_watermark": self.ctx.paused.is_for(link, Pause::Queued),
            "memberships": session.memberships.len(),
        })
    }

    /// `None` if it has not begun yet.
    pub fn subscription_status(&self, caller: RequestId, storage: StorageId) -> Option<Value> {
        let partition = self.partitions.get(&storage)?;
        let subscription = partition.subscriptions.get(caller)?;
        let key = partition.store.key;
        Some(json!({
            "topic": key.topic.to_string(),
            "partition": key.partition.0,
            "consumer": subscription.consumer,
            "incarnation": subscription.position.incarnation.0,
            "offset": subscription.position.offset.0,
            "delivered_bytes": subscription.delivered_bytes,
        }))
    }
}

/// A topic, without its partitions, producers and consumers.
pub(crate) fn topic_status(entry: &TopicEntry, topic: &Topic) -> Value {
    json!({
        "name": topic.name,
        "namespace": topic.namespace,
        "topic": entry.record.topic.to_string(),
        "gap_count": entry.gaps.len(),
    })
}

pub(crate) fn producer_status(producer: &ProducerRecord) -> Value {
    json!({
        "name": producer.name,
        "producer": producer.producer.to_string(),
        "epoch": producer.epoch.0,
    })
}

fn open_partition(partition: &Partition, status: &mut Value) {
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
