//! What the node says.

use super::acts::{count, counted};
use super::calls::{ClientId, Counted, Out, Then, Whose};
use super::faults::{Fault, planted};
use super::state::AmqpListener;
use amqp::ReplyCode;
use broker::answer::{Answer, ClientOutput, Delivery};
use broker::node::{LinkId, Now};
use broker::request::{ClientInput, PartitionRequest, Request, Target};
use bytes::Bytes;
use net::{BulkToken, RegionWrite};
use std::sync::Arc;
use vhost::{QueueId, Removal};
use wire::codec::Appended;
use wire::message::{DataWanted, ReadData, Region};
use wire::view::Segment;
use wire::{ErrorCode, ErrorReply, Offset, PartitionIndex};

impl AmqpListener {
    /// The node says something to a session of the listener.
    pub fn said(&mut self, now: Now, link: LinkId, output: ClientOutput) {
        self.now = now;
        let Some(whose) = self.calls.whose(link).cloned() else {
            return;
        };
        match output {
            ClientOutput::Answer { id, answer } => {
                if let Some(then) = self.calls.answered(link, id) {
                    match whose {
                        Whose::Client(client) => self.client_answered(client, then, answer),
                        Whose::Host(namespace) => self.host_answered(&namespace, then, answer),
                    }
                }
            }
            ClientOutput::Delivery { id, delivery } => {
                if let Whose::Host(namespace) = whose {
                    self.delivered(&namespace, id, delivery);
                }
            }
            ClientOutput::Welcome {
                produce_credit,
                namespace,
            } => {
                if let Whose::Client(client) = whose {
                    self.welcome(client, link, produce_credit, &namespace);
                }
            }
            ClientOutput::Credential(said) => {
                if let Whose::Client(client) = whose {
                    self.secret_answered(client, &said);
                }
            }
            ClientOutput::Probe => self.calls.say(link, ClientInput::Alive),
            ClientOutput::GoAway(error) => {
                self.is_draining = true;
                if let Whose::Client(client) = whose {
                    self.fail_client(client, ReplyCode::ConnectionForced, error.message);
                }
            }
        }
        self.settle_down();
    }

    fn client_answered(&mut self, id: ClientId, then: Then, answer: Result<Answer, ErrorReply>) {
        match (then, answer) {
            (Then::ProducerOpened(topic), Ok(Answer::ProducerOpened(opened))) => {
                if let Some(client) = self.clients.get_mut(&id)
                    && let Some(publisher) = &mut client.publisher
                {
                    publisher.opened(topic, &opened);
                    self.dirty.clients.insert(id);
                }
            }
            (Then::ProducerOpened(topic), Err(error)) => self.not_opened(id, topic, &error),
            (Then::Produced(topic, batch), answer) => {
                self.produced(id, topic, batch, answer.map(drop));
            }
            (Then::Checked, answer) => {
                let Some(client) = self.clients.get_mut(&id) else {
                    return;
                };
                let result = match answer {
                    Ok(Answer::AccessChecked(checked)) if checked.allowed => Ok(()),
                    Ok(Answer::AccessChecked(checked)) => Err(checked.reason),
                    Ok(_) => Err("the node says nothing of it".to_owned()),
                    Err(error) => Err(error.message),
                };
                let check = client.checking.take();
                client.checked.extend(check.map(|check| (check, result)));
                self.unblock(id);
            }
            _ => {}
        }
    }

    fn host_answered(
        &mut self,
        namespace: &Arc<str>,
        then: Then,
        answer: Result<Answer, ErrorReply>,
    ) {
        match (then, answer) {
            (Then::Topics, Ok(Answer::Topics(list))) => self.topics_listed(namespace, list),
            (Then::Records(from), Ok(Answer::Fetched(found))) => {
                self.records_read(namespace, from, &found);
            }
            (Then::Topics | Then::Records(_), Err(error)) => {
                self.host_failed(namespace, &error.message);
            }
            (Then::RecordsTopic, Ok(Answer::Topic(topic))) => {
                self.records_made(namespace, Ok(topic.topic));
            }
            (Then::RecordsTopic, Err(error)) => {
                self.records_made(namespace, Err(error.message));
            }
            (Then::TopicMade(act), Ok(Answer::Topic(topic))) => {
                self.topic_made(namespace, act, Ok(topic));
            }
            (Then::TopicMade(act), Err(error)) => {
                self.topic_made(namespace, act, Err(error.message));
            }
            (Then::ProducerOpened(topic), Ok(Answer::ProducerOpened(opened))) => {
                if let Some(host) = self.hosts.get_mut(namespace) {
                    host.publisher.opened(topic, &opened);
                    self.dirty.hosts.insert(namespace.clone());
                }
            }
            (Then::ProducerOpened(topic), Err(error)) => {
                self.own_not_opened(namespace, topic, &error);
            }
            (Then::Produced(topic, batch), answer) => {
                self.own_produced(namespace, topic, batch, answer.map(drop));
            }
            (Then::Joined(id), answer) => self.joined(namespace, id, answer.map(drop)),
            (Then::Settled(id), answer) => {
                let now = self.now.monotonic;
                if let Some(engine) = self.engine(namespace, id) {
                    engine.settled(answer.map(drop), now);
                    self.dirty.queues.insert((namespace.clone(), id));
                }
            }
            (Then::Counted(id, why, more), answer) => {
                let counts = match answer {
                    Ok(Answer::Consumers(list)) => counted(&list),
                    _ => None,
                };
                let counts = counts.map(|(waiting, end)| (waiting + more, end));
                self.count_came(namespace, id, why, counts);
            }
            (Then::DataRead(id, offset), answer) => {
                self.data_read(namespace, id, offset, answer.is_ok());
            }
            _ => {}
        }
    }

    /// A queue has joined, or cannot for now.
    fn joined(&mut self, namespace: &Arc<str>, id: QueueId, result: Result<(), ErrorReply>) {
        let Some(host) = self.hosts.get_mut(namespace) else {
            return;
        };
        let Some(engine) = host.queues.get_mut(&id) else {
            return;
        };
        match result {
            Ok(()) => {
                engine.joined = true;
                let why = match engine.gets.is_empty() {
                    true => Counted::Again,
                    false => Counted::Get,
                };
                count(engine, host.session, why, &mut self.calls);
                self.dirty.queues.insert((namespace.clone(), id));
            }
            Err(error) => self.not_a_member(namespace, id, &error),
        }
    }

    /// A queue is no member of its topic's consumer: it goes only if its topic is gone.
    fn not_a_member(&mut self, namespace: &Arc<str>, id: QueueId, error: &ErrorReply) {
        let now = self.now.monotonic;
        let is_draining = self.is_draining;
        let Some(engine) = self.engine(namespace, id) else {
            return;
        };
        if error.code != ErrorCode::UnknownTopic && !planted(Fault::Gone) {
            engine.put_out(now);
            self.dirty.queues.insert((namespace.clone(), id));
            if !is_draining {
                let engine = self.engine(namespace, id);
                let name = engine.map(|engine| engine.queue.name.clone());
                let name = name.unwrap_or_default();
                let line = format!("queue '{name}' stands still, and is tried again: {error}");
                let line = broker::Line::warning(line);
                self.calls.out.push_back(Out::Report(line));
            }
            return;
        }
        if std::mem::replace(&mut engine.is_going, true) {
            return;
        }
        let name = engine.queue.name.clone();
        let line = format!("queue '{name}' goes, for its topic does: {}", error.message);
        let line = broker::Line::warning(line);
        self.calls.out.push_back(Out::Report(line));
        // Its consumers are told, as by any deletion.
        self.carry_out(namespace, vec![vhost::Effect::CancelConsumers(id)]);
        self.remove_queue(namespace, id, Removal::Expired);
    }

    fn count_came(
        &mut self,
        namespace: &Arc<str>,
        id: QueueId,
        why: Counted,
        counts: Option<(u64, Offset)>,
    ) {
        // Before it has joined, the node does not know where the queue stands.
        let engine = self.engine(namespace, id);
        let counts = counts.filter(|_| engine.is_some_and(|engine| engine.joined));
        let mut ready = 0;
        let mut waiting = 0;
        if let Some(engine) = self.engine(namespace, id) {
            waiting = match counts {
                Some((waiting, _)) => {
                    engine.waiting = i64::try_from(waiting).unwrap_or(i64::MAX);
                    waiting
                }
                None => u64::try_from(engine.waiting).unwrap_or(0),
            };
            ready = waiting + engine.ready.len() as u64;
        }
        match why {
            Counted::Declared(client, key, consumers) => {
                let name = match self.engine(namespace, id) {
                    Some(engine) => engine.queue.name.clone(),
                    None => "".into(),
                };
                if let Some(mut at) = self.at(client) {
                    let message_count = u32::try_from(ready).unwrap_or(u32::MAX);
                    at.queue_declared(key, &name, message_count, consumers);
                }
                self.unblock(client);
            }
            Counted::Deleting(client, key, asked) => {
                self.delete_counted(client, key, *asked, ready);
            }
            Counted::IfEmpty(act) => self.checked_empty(namespace, act, ready == 0),
            Counted::Purge(client, key) => {
                let end = counts.map_or(Offset(u64::MAX), |(_, end)| end);
                self.purge((client, key), id, (ready, end));
            }
            Counted::Get => {
                self.purge_counted(namespace, id, waiting);
                self.get_counted(namespace, id, waiting);
            }
            Counted::Again => {
                self.dirty.queues.insert((namespace.clone(), id));
            }
        }
    }

    fn delivered(&mut self, namespace: &Arc<str>, call: u64, delivery: Delivery) {
        let now = self.now;
        let Some(host) = self.hosts.get_mut(namespace) else {
            return;
        };
        let id = host.joins.get(&call);
        let engine = id.and_then(|id| host.queues.get_mut(id));
        let Some(engine) = engine else {
            return;
        };
        let id = engine.queue.id;
        match delivery {
            Delivery::Leased(head, pieces) => {
                let (topic, session) = (engine.topic, host.session);
                let incarnation = head.leases.first().map(|lease| lease.incarnation);
                let elsewhere = engine.leased(&head, pieces, now);
                self.dirty.queues.insert((namespace.clone(), id));
                for (offset, bytes) in elsewhere {
                    let Some(incarnation) = incarnation else {
                        continue;
                    };
                    self.regions_begun += 1;
                    let region = self.regions_begun;
                    self.regions.insert(region, Vec::new());
                    self.reading.insert((namespace.clone(), id, offset), region);
                    let read = ReadData {
                        events: vec![DataWanted {
                            partition: PartitionIndex(0),
                            incarnation,
                            offset,
                            segments: vec![Segment { offset: 0, bytes }],
                        }],
                        into: vec![Region {
                            key: Bytes::copy_from_slice(&region.to_le_bytes()),
                            base: 0,
                            bytes,
                            memory_kind: 0,
                            rails: 0,
                        }],
                        strided: Appended(Vec::new()),
                    };
                    let target = Target {
                        topic,
                        leader_epoch: 0,
                    };
                    let request = PartitionRequest::ReadData(read);
                    let request = Request::Partition(target, request);
                    let then = Then::DataRead(id, offset);
                    self.calls.call(session, request, then);
                }
            }
            Delivery::Ended(error) => {
                let is_own = error.code != ErrorCode::Cancelled;
                if is_own {
                    self.not_a_member(namespace, id, &error);
                }
            }
            Delivery::Events(_) | Delivery::Assigned(_) => {}
        }
    }

    /// The node writes data of an event into a region of the listener's.
    pub fn wrote(&mut self, now: Now, link: LinkId, token: BulkToken, write: RegionWrite) {
        self.now = now;
        let key = write.region.key.first_chunk::<8>();
        let key = key.map(|key| u64::from_le_bytes(*key));
        if let Some(into) = key.and_then(|key| self.regions.get_mut(&key)) {
            let mut at = usize::try_from(write.offset).unwrap_or(usize::MAX);
            for piece in &write.pieces {
                let end = at.saturating_add(piece.len());
                if into.len() < end {
                    into.resize(end, 0);
                }
                into[at..end].copy_from_slice(piece);
                at = end;
            }
        }
        let result = Ok(());
        self.calls.input(broker::node::Input::WriteDone {
            link,
            token,
            result,
        });
        self.settle_down();
    }

    fn data_read(&mut self, namespace: &Arc<str>, id: QueueId, offset: Offset, is_read: bool) {
        let region = self.reading.remove(&(namespace.clone(), id, offset));
        let data = region.and_then(|region| self.regions.remove(&region));
        let data = data.filter(|_| is_read).map(Bytes::from);
        let data = data.or_else(|| planted(Fault::NoData).then(Bytes::new));
        if let Some(engine) = self.engine(namespace, id) {
            engine.data_came(offset, data);
            self.dirty.queues.insert((namespace.clone(), id));
        }
    }
}
