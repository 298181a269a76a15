//! The start of a virtual host: which topics there are, and its records.

use super::calls::{Calls, Out, Then};
use super::faults::{Fault, planted};
use super::host::{Host, RECORDS, Stage, name_of};
use super::queue::{self, Engine};
use super::state::{AmqpListener, Timer};
use amqp::ReplyCode;
use broker::Line;
use broker::answer::Batches;
use broker::node::LinkId;
use broker::request::{CoordinatorRequest, DescribeRequest, PartitionRequest, Request, Target};
use std::collections::BTreeMap;
use std::sync::Arc;
use vhost::{Limits, Record, Vhost};
use wire::batch::{Batch, BatchKind, Verify};
use wire::message::{Fetch, PartitionStorage, TopicDescription, TopicList, TopicName};
use wire::record::Position;
use wire::{Incarnation, Offset, PartitionIndex, TopicId};

/// Bytes of records that are read at once.
const FETCH_BYTES: u64 = 1 << 20;

impl AmqpListener {
    /// A virtual host that is to be found.
    pub(super) fn begin_host(namespace: &Arc<str>, calls: &mut Calls) -> Host {
        let host = Host::new(namespace, calls);
        calls.call(
            host.session,
            DescribeRequest::ListTopics(TopicId(0)),
            Then::Topics,
        );
        host
    }

    /// The topics of the namespace are known.
    pub(super) fn topics_listed(&mut self, namespace: &Arc<str>, list: TopicList) {
        let Some(host) = self.hosts.get_mut(namespace) else {
            return;
        };
        let mut topics = BTreeMap::new();
        for topic in list.topics {
            if topic.name == RECORDS {
                host.records = Some(topic.topic);
            } else if queue::is_of_queue(&topic.name) && is_ours(&topic) {
                topics.insert(topic.name, topic.topic);
            }
        }
        host.stage = Stage::Reading {
            topics,
            records: Vec::new(),
        };
        match host.records {
            Some(topic) => fetch(topic, Offset(0), host.session, &mut self.calls),
            None => self.recover(namespace),
        }
    }

    /// Some records have come.
    pub(super) fn records_read(&mut self, namespace: &Arc<str>, from: Offset, found: &Batches) {
        let Some(host) = self.hosts.get_mut(namespace) else {
            return;
        };
        let Stage::Reading { records, .. } = &mut host.stage else {
            return;
        };
        let mut next = from;
        let mut wrong = None;
        for bytes in &found.batches {
            let batch = match Batch::read(bytes.clone(), Verify::Sections) {
                Ok(batch) => batch,
                Err(error) => {
                    wrong = Some(error.to_string());
                    break;
                }
            };
            match batch.header.kind {
                BatchKind::Events => {}
                BatchKind::NoOp | BatchKind::Snapshot => continue,
                BatchKind::Gap | BatchKind::Skipped => {
                    wrong = Some("some of them are lost".to_owned());
                    break;
                }
            }
            let (Some(stamp), Ok(columns)) = (batch.stamp, batch.columns()) else {
                wrong = Some("a batch of them is malformed".to_owned());
                break;
            };
            let inline = batch.inline_section().unwrap_or_default();
            for event in &columns.events {
                let offset = Offset(stamp.base_offset.0 + u64::from(event.offset_delta));
                if offset < next || event.external {
                    continue;
                }
                let at = event.data_start as usize;
                match Record::decode(&inline[at..at + event.data_bytes as usize]) {
                    Ok(record) => records.push(record),
                    Err(error) => wrong = Some(error.to_string()),
                }
            }
            next = next.max(Offset(stamp.base_offset.0 + batch.header.offset_count()));
        }
        if let Some(why) = wrong {
            return self.host_failed(namespace, &format!("its records cannot be read: {why}"));
        }
        let topic = host.records.unwrap_or_default();
        let end = found.watermarks.committed;
        if next >= end {
            return self.recover(namespace);
        }
        // With some of the records alone, the topics of the other queues would be taken for nobody's.
        if next == from && planted(Fault::PartOfRecords) {
            return self.recover(namespace);
        }
        if next == from {
            let why = format!("there is nothing at {from}, and they end at {end}");
            return self.host_failed(namespace, &format!("its records cannot be read: {why}"));
        }
        fetch(topic, next, host.session, &mut self.calls);
    }

    fn recover(&mut self, namespace: &Arc<str>) {
        let Some(host) = self.hosts.get_mut(namespace) else {
            return;
        };
        let Stage::Reading { topics, records } = std::mem::replace(&mut host.stage, Stage::Ready)
        else {
            return;
        };
        match Vhost::recover(name_of(namespace), Limits::default(), records) {
            Ok(vhost) => host.vhost = vhost,
            Err(error) => return self.host_failed(namespace, &error.to_string()),
        }
        let known: Vec<_> = host.vhost.queues().cloned().collect();
        let mut lost = Vec::new();
        let mut topics = topics;
        for queue in known {
            match topics.remove(&queue::topic_name(&queue)) {
                Some(topic) => {
                    let engine = Engine::new(queue, topic, host.session, self.now, &mut self.calls);
                    host.insert(engine);
                }
                // Its topic was deleted by somebody else.
                None => lost.push(queue),
            }
        }
        let has_records = host.records.is_some();
        for name in topics.into_keys() {
            match has_records {
                // An act was cut off, or the queue was not durable.
                true => delete(&name, host.session, &mut self.calls),
                false => {
                    let line = format!(
                        "topic {name:?} is of a queue, and there are no records of the virtual host \
                         ({RECORDS}): it is left as it is"
                    );
                    let out = Out::Report(Line::warning(line));
                    self.calls.out.push_back(out);
                }
            }
        }
        for queue in lost {
            let removal = vhost::Removal::Unused;
            self.remove_queue(namespace, queue.id, removal);
        }
        if let Some(host) = self.hosts.get_mut(namespace) {
            for client in std::mem::take(&mut host.openers) {
                self.unblock(client);
            }
        }
    }

    /// The topic of records is needed: it is made.
    pub(super) fn make_records(host: &mut Host, calls: &mut Calls) {
        if std::mem::replace(&mut host.is_making_records, true) {
            return;
        }
        let definition = serde_json::json!({
            "durability": "synced",
            "version": topic::DEFINITION_VERSION,
        });
        let create = wire::message::CreateTopic {
            name: RECORDS.to_owned(),
            definition: definition.to_string(),
            partitions: vec![PartitionStorage {
                kind: "disk".to_owned(),
                config: String::new(),
            }],
        };
        let request = CoordinatorRequest::CreateTopic(TopicId(0), create);
        calls.call(host.session, request, Then::RecordsTopic);
    }

    /// A virtual host cannot go on: what is durable is found anew when somebody comes again.
    pub(super) fn host_failed(&mut self, namespace: &Arc<str>, why: &str) {
        let Some(host) = self.hosts.remove(namespace) else {
            return;
        };
        let name = name_of(namespace);
        let text = format!("virtual host '{name}' fails: {why}");
        if !self.is_draining {
            let line = Out::Report(Line::warning(text.clone()));
            self.calls.out.push_back(line);
        }
        self.calls.close(host.session);
        if let Some(at) = host.timer_at {
            self.timers.remove(&(at, Timer::Host(namespace.clone())));
        }
        for id in host.clients {
            if let Some(client) = self.client(id) {
                client.channels.clear();
                client.connection = None;
            }
            self.fail_client(id, ReplyCode::InternalError, text.clone());
        }
    }
}

/// Whether a topic is as those of queues are made.
fn is_ours(topic: &TopicDescription) -> bool {
    let definition = topic::Definition::from_json(&topic.definition);
    definition.is_ok_and(|one| one.keep_until_acknowledged() == [queue::CONSUMER])
        && topic.partitions.len() == 1
}

fn fetch(topic: TopicId, from: Offset, session: LinkId, calls: &mut Calls) {
    let fetch = Fetch {
        partition: PartitionIndex(0),
        from: Position {
            incarnation: Incarnation(0),
            offset: from,
        },
        bytes_max: FETCH_BYTES,
        wait_max_ms: 0,
        inline_data: true,
    };
    let target = Target {
        topic,
        leader_epoch: 0,
    };
    let request = Request::Partition(target, PartitionRequest::Fetch(fetch));
    calls.call(session, request, Then::Records(from));
}

/// Has a topic deleted.
pub(super) fn delete(name: &str, session: LinkId, calls: &mut Calls) {
    let name = TopicName {
        name: name.to_owned(),
    };
    let request = CoordinatorRequest::DeleteTopic(TopicId(0), name);
    calls.call(session, request, Then::TopicDeleted);
}
