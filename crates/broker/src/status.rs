//! Answers to `Status`, made in slices between inputs.
//!
//! The status has a row for each connection, subscription, partition, consumer and cursor: tens
//! of thousands on a large server. The node writes a slice of them, and the next one when the
//! executor calls again, so that no input waits longer than for one slice.
//!
//! ```text
//! Connections ──► Topics ──► Partitions ──► Producers ──► Consumers ──► Topics … ──► End
//!   └► Subscriptions ┘                                      └► Cursors ┘
//! ```
//!
//! Each step looks its objects up anew, by the ids behind the last ones that were written: between
//! two slices a connection, a topic or a consumer may have gone.

use crate::ids::{LinkId, RequestId};
use crate::space::Below;
use crate::start::Remembered;
use crate::view::{Readers, View, cursor_status, producer_status, topic_status};
use serde_json::{Value, json};
use std::collections::btree_set;
use std::ops::Bound;
use wire::TopicId;

/// Rows of a slice: well below a millisecond, and the whole of a small server, whose figures so
/// are of one moment.
const SLICE_ROWS: usize = 128;

/// Who waits for a status, and the one that is being made.
#[derive(Default)]
pub(crate) struct StatusAnswers {
    under_way: Option<(Vec<RequestId>, StatusText)>,
    /// Those who asked after it was begun: they share the next one, so that many who ask at
    /// once cost no more than one.
    waiting: Vec<RequestId>,
}

impl StatusAnswers {
    pub fn ask(&mut self, caller: RequestId) {
        self.waiting.push(caller);
    }

    /// Whether there is another slice to write.
    pub fn is_under_way(&self) -> bool {
        self.under_way.is_some() || !self.waiting.is_empty()
    }

    /// Writes a slice. The status and who asked for it, when it is complete. `begin` is what
    /// the status of the whole node says beside the lists.
    pub fn advance(
        &mut self,
        view: View<'_>,
        begin: impl FnOnce() -> Value,
    ) -> Option<(Vec<RequestId>, String)> {
        let waits = |caller: &RequestId| view.sessions.waits(*caller);
        // Nobody may be left: a deadline has passed, or a connection is gone.
        self.under_way = self.under_way.take().and_then(|(mut callers, text)| {
            callers.retain(waits);
            (!callers.is_empty()).then_some((callers, text))
        });
        if self.under_way.is_none() {
            self.waiting.retain(waits);
            if self.waiting.is_empty() {
                return None;
            }
            let callers = std::mem::take(&mut self.waiting);
            self.under_way = Some((callers, StatusText::begin(&begin())));
        }
        let (_, text) = self.under_way.as_mut()?;
        if !text.advance(view) {
            return None;
        }
        let (callers, text) = self.under_way.take()?;
        Some((callers, text.json))
    }
}

/// The status as far as it is written.
pub(crate) struct StatusText {
    json: String,
    at: At,
}

/// Behind what it is to go on.
enum At {
    Connections {
        after: Option<LinkId>,
    },
    Subscriptions {
        link: LinkId,
        after: Option<u64>,
    },
    Topics {
        after: Option<TopicId>,
    },
    Partitions {
        topic: TopicId,
        next: usize,
    },
    Producers {
        topic: TopicId,
        after: Option<String>,
    },
    Consumers(Consumers),
    Cursors {
        consumer: String,
        next: usize,
        lag: u64,
        others: Consumers,
    },
    End,
}

/// Consumers of a topic that are not written yet.
struct Consumers {
    topic: TopicId,
    names: btree_set::IntoIter<String>,
    readers: Readers,
}

/// What the status says of the node itself, beside its lists.
pub(crate) struct NodeStatus<'a> {
    pub view: View<'a>,
    pub is_draining: bool,
    pub start: &'a Remembered,
    /// What lay in `lost+found` at the start.
    pub set_aside: &'a [String],
    pub below: &'a Below,
}

impl NodeStatus<'_> {
    pub fn json(&self) -> Value {
        let (ctx, partitions) = (self.view.ctx, self.view.partitions);
        json!({
            "directory": ctx.options.directory_id.to_string(),
            "instance": ctx.options.instance.to_string(),
            "version": ctx.options.server_version,
            "node": ctx.node().0,
            "nodes": ctx.options.nodes.status_of_others(ctx.node()),
            "draining": self.is_draining,
            "losses": self.losses(),
            "file_system": self.below.status(),
            "counters": ctx.options.counters.status(),
            "copied_bytes": memory::copies::bytes(),
            "data_budget": {
                "limit_bytes": ctx.data.limit(),
                "held_bytes": ctx.data.held(),
                "transfers": partitions.values().map(|it| it.appends.transfer_count()).sum::<usize>(),
                "transfers_waiting": ctx.incoming.waiting(),
            },
        })
    }

    /// What was lost, what was set aside, and which topics were deleted.
    fn losses(&self) -> Value {
        json!({
            "damage": self.start.open_damage().map(|damage| json!({
                "time": damage.time,
                "what": damage.what,
            })).collect::<Vec<_>>(),
            "lost_and_found": self.set_aside,
            "deleted_topics": self.view.commands.table().deleted()
                .map(ToString::to_string)
                .collect::<Vec<_>>(),
        })
    }
}

impl StatusText {
    fn begin(head: &Value) -> Self {
        let mut text = Self {
            json: String::new(),
            at: At::Connections { after: None },
        };
        text.object(head, "sessions");
        text
    }

    /// All of it at once.
    pub fn whole(view: View<'_>, head: &Value) -> String {
        let mut text = Self::begin(head);
        while !text.advance(view) {}
        text.json
    }

    /// Writes a slice. Whether it was the last one.
    fn advance(&mut self, view: View<'_>) -> bool {
        for _ in 0..SLICE_ROWS {
            match std::mem::replace(&mut self.at, At::End) {
                At::End => return true,
                at => self.at = self.step(at, view),
            }
        }
        false
    }

    /// Writes a row at most.
    fn step(&mut self, at: At, view: View<'_>) -> At {
        match at {
            At::Connections { after } => match view.sessions.behind(after) {
                Some((link, session)) => {
                    self.object(&view.session_status(link, session), "subscriptions");
                    At::Subscriptions { link, after: None }
                }
                None => {
                    self.list("topics");
                    At::Topics { after: None }
                }
            },
            At::Subscriptions { link, after } => {
                let session = view.sessions.get(link);
                let subscriptions = session.map(|session| &session.subscriptions);
                let mut left = subscriptions
                    .into_iter()
                    .flat_map(|it| it.range((behind(after), Bound::Unbounded)));
                match left.next() {
                    Some((id, storage)) => {
                        let caller = RequestId { link, id: *id };
                        if let Some(row) = view.subscription_status(caller, *storage) {
                            self.row(&row);
                        }
                        let after = Some(*id);
                        At::Subscriptions { link, after }
                    }
                    None => {
                        self.json.push_str("]}");
                        At::Connections { after: Some(link) }
                    }
                }
            }
            At::Topics { after } => match view.commands.table().behind(after) {
                Some((id, entry)) => match view.topics.get(id) {
                    Some(topic) => {
                        self.object(&topic_status(entry, topic), "partitions");
                        At::Partitions { topic: id, next: 0 }
                    }
                    // It is being made.
                    None => At::Topics { after: Some(id) },
                },
                None => {
                    self.json.push_str("]}");
                    At::End
                }
            },
            At::Partitions { topic, next } => {
                let slot = view.topics.get(topic).and_then(|it| it.at(next));
                let entry = view.commands.table().topic(topic);
                let found = slot
                    .zip(entry)
                    .and_then(|((index, slot), entry)| Some((slot, entry.partitions.get(&index)?)));
                match found {
                    Some((slot, record)) => {
                        self.row(&view.partition_status(record, slot));
                        let next = next + 1;
                        At::Partitions { topic, next }
                    }
                    None => {
                        self.list("producers");
                        At::Producers { topic, after: None }
                    }
                }
            }
            At::Producers { topic, after } => {
                let after = after.as_deref();
                let producers = view.commands.table().topic(topic).map(|it| &it.producers);
                let mut left = producers
                    .into_iter()
                    .flat_map(|it| it.range::<str, _>((behind(after), Bound::Unbounded)));
                match left.next() {
                    Some((name, producer)) => {
                        self.row(&producer_status(producer));
                        let after = Some(name.clone());
                        At::Producers { topic, after }
                    }
                    None => {
                        self.list("consumers");
                        let readers = view.readers(topic);
                        let names = view.consumer_names(topic, &readers).into_iter();
                        At::Consumers(Consumers {
                            topic,
                            names,
                            readers,
                        })
                    }
                }
            }
            At::Consumers(mut consumers) => match consumers.names.next() {
                Some(consumer) => {
                    let readers = consumers.readers.remove(&consumer).unwrap_or_default();
                    let head = view.consumer_status(consumers.topic, &consumer, readers);
                    self.object(&head, "cursors");
                    At::Cursors {
                        consumer,
                        next: 0,
                        lag: 0,
                        others: consumers,
                    }
                }
                None => {
                    self.json.push_str("]}");
                    let after = Some(consumers.topic);
                    At::Topics { after }
                }
            },
            At::Cursors {
                consumer,
                next,
                lag: before,
                others,
            } => {
                let topic = others.topic;
                match view.topics.get(topic).and_then(|it| it.at(next)) {
                    Some((index, slot)) => {
                        let cursor = view.cursor(topic, &consumer, index);
                        let mut behind = 0;
                        if let Some((kind, cursor)) = &cursor {
                            let lag = view.lag(slot, cursor);
                            behind = lag.unwrap_or_else(|| cursor.lag());
                            self.row(&cursor_status(*kind, cursor, lag));
                        }
                        At::Cursors {
                            consumer,
                            next: next + 1,
                            lag: before + behind,
                            others,
                        }
                    }
                    None => {
                        self.json.push_str(&format!("],\"lag\":{before}}}"));
                        At::Consumers(others)
                    }
                }
            }
            At::End => At::End,
        }
    }

    /// Another row of the list that is open.
    fn row(&mut self, row: &Value) {
        if !self.json.is_empty() && !self.json.ends_with('[') {
            self.json.push(',');
        }
        self.json.push_str(&row.to_string());
    }

    /// Another row, whose list of this name is open then.
    fn object(&mut self, head: &Value, list: &str) {
        self.row(head);
        self.json.pop();
        self.json.push_str(&format!(",\"{list}\":["));
    }

    /// The list that is open ends, and the next one of its object is open.
    fn list(&mut self, list: &str) {
        self.json.push_str(&format!("],\"{list}\":["));
    }
}

fn behind<T>(after: Option<T>) -> Bound<T> {
    after.map_or(Bound::Unbounded, Bound::Excluded)
}
