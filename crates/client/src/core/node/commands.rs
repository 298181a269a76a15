//! What the API asks for: which part of the core does it.

use super::{NodeCore, reborrow};
use crate::core::consumer::ConsumerCore;
use crate::core::opening::Opening;
use crate::core::producer::ProducerCore;
use crate::core::queue::QueueCore;
use crate::core::wire_session::{Timer, Wire};
use crate::error::ClientError;
use crate::mailbox::Command;
use crate::promise::{Promise, Reply};
use net::Link;
use std::time::Duration;
use wire::TopicId;
use wire::codec::Codec;
use wire::message::Method;

impl NodeCore {
    /// Does what the API asked for, one command behind the other.
    pub(super) fn do_commands(
        &mut self,
        commands: &mut Vec<Command>,
        link: &mut Option<&mut dyn Link>,
    ) {
        for command in commands.drain(..) {
            if self.ended {
                break;
            }
            self.command(command, link);
        }
    }

    fn command(&mut self, command: Command, link: &mut Option<&mut dyn Link>) {
        let mut wire = Wire::new(&mut self.context, reborrow(link));
        match command {
            Command::Call(call) => self.calls.begin(&mut wire, call, None),
            Command::Cancel(slot) => self.calls.cancel(&mut wire, &slot),
            Command::Open {
                opening,
                timeout,
                promise,
            } => self.open(Opening::of(opening), timeout, promise, link),
            Command::LookAtTopics => self.topics.suspect(&mut wire),
            Command::ProducerReady(key) => {
                if let Some(producer) = self.producers.get_mut(&key) {
                    producer.notified();
                    self.awake.insert(key);
                }
            }
            Command::CloseProducer(key) => {
                if let Some(mut producer) = self.producers.remove(&key) {
                    producer.fail(&mut wire, &ClientError::Closed);
                }
            }
            Command::Consumed {
                consumer,
                partition,
                bytes,
            } => {
                if let Some(core) = self.consumers.get_mut(&consumer) {
                    core.consumed(&mut wire, partition, bytes);
                }
            }
            Command::Resubscribe {
                consumer,
                partition,
                position,
                promise,
            } => match self.consumers.get_mut(&consumer) {
                Some(core) => core.resubscribe(&mut wire, partition, position, promise),
                None => refuse(promise),
            },
            Command::Acknowledge { consumer } => {
                if let Some(core) = self.consumers.get_mut(&consumer) {
                    core.cursors.acknowledge(&mut wire);
                }
            }
            Command::FlushAcknowledgements {
                consumer,
                timeout,
                promise,
            } => match self.consumers.get_mut(&consumer) {
                Some(core) => core.cursors.flush(&mut wire, timeout, promise),
                None => refuse(Some(promise)),
            },
            Command::Seek { seek, mut call } => {
                let core = self.consumers.get(&seek.consumer);
                if let Some(member) = core.and_then(ConsumerCore::member) {
                    // The same, with who asks in front.
                    let mut body = member.to_bytes();
                    body.append(&mut call.body);
                    call.body = body;
                    call.method = Method::MoveMemberCursors;
                }
                self.calls.begin(&mut wire, call, Some(seek));
            }
            Command::Release {
                consumer,
                partitions,
            } => {
                if let Some(core) = self.consumers.get_mut(&consumer) {
                    core.finished(&mut wire, &partitions);
                }
            }
            Command::RejoinGroup(key) => {
                if let Some(core) = self.consumers.get_mut(&key) {
                    core.rejoin(&mut wire);
                }
            }
            Command::Alarm { after, promise } => {
                let key = self.alarms.last_key_value().map_or(0, |(key, _)| key + 1);
                let at = wire.now().saturating_add(after);
                wire.context.arm(at, Timer::Alarm(key));
                self.alarms.insert(key, promise);
            }
            Command::TopicGrew(topic) => self.grow(topic, link),
            Command::CloseConsumer(key) => {
                if let Some(mut consumer) = self.consumers.remove(&key) {
                    consumer.close(&mut wire);
                }
            }
            Command::Settle(key) => {
                if let Some(queue) = self.queues.get_mut(&key) {
                    queue.news(&mut wire);
                }
            }
            Command::WatchSettlements(key) => {
                if let Some(queue) = self.queues.get_mut(&key) {
                    queue.watch(&mut wire);
                    self.quiet.insert(key);
                }
            }
            Command::ExtendLease {
                queue,
                lease,
                promise,
            } => match self.queues.get_mut(&queue) {
                Some(queue) => queue.extend(&mut wire, vec![lease], Some(promise)),
                None => refuse(Some(promise)),
            },
            Command::RejoinQueue(key) => {
                if let Some(queue) = self.queues.get_mut(&key) {
                    queue.rejoin(&mut wire);
                }
            }
            Command::WindDownQueue {
                queue,
                stop_after,
                leave_after,
            } => {
                if let Some(queue) = self.queues.get_mut(&queue) {
                    queue.wind_down(&mut wire, stop_after, leave_after);
                }
            }
            Command::CloseQueue {
                queue,
                timeout,
                promise,
            } => match self.queues.get_mut(&queue) {
                Some(queue) => queue.close(&mut wire, timeout, promise),
                // It has left already.
                None => {
                    if let Some(promise) = promise {
                        promise.resolve(Ok(Reply::default()));
                    }
                }
            },
            Command::FlushQueue { queue, promise } => match self.queues.get_mut(&queue) {
                Some(queue) => queue.flush(&mut wire, promise),
                None => promise.resolve(Ok(Reply::default())),
            },
            Command::Close => unreachable!("it is for all nodes"),
        }
    }

    fn open(
        &mut self,
        opening: Opening,
        timeout: Duration,
        promise: Promise,
        link: &mut Option<&mut dyn Link>,
    ) {
        let mut wire = Wire::new(&mut self.context, reborrow(link));
        opening.topic().is_at(wire.context.place());
        match opening {
            Opening::Producer(producer) => {
                let key = producer.key;
                self.topics.add(&mut wire, &producer.topic);
                let core = ProducerCore::new(&mut wire, producer, timeout, promise);
                self.producers.insert(key, core);
                self.awake.insert(key);
            }
            Opening::Consumer {
                consumer,
                partitions,
                start,
                starts,
                seed,
            } => {
                let key = consumer.key;
                self.topics.add(&mut wire, &consumer.topic);
                let is_member = consumer.options.group.is_some();
                let mut core =
                    ConsumerCore::new(&mut wire, consumer, start, seed, timeout, promise);
                match is_member {
                    true => core.join(&mut wire),
                    false => core.open_at(&mut wire, &partitions, start, &starts),
                }
                self.consumers.insert(key, core);
            }
            Opening::Topic { topic, .. } => {
                self.topics.add(&mut wire, &topic);
                promise.resolve(Ok(Reply::default()));
            }
            Opening::Queue { queue, seed } => {
                let key = queue.key;
                let core = QueueCore::new(&mut wire, queue, seed, timeout, promise);
                self.queues.insert(key, core);
            }
        }
    }

    /// A topic has more partitions: consumers of all of them read the new ones too.
    pub(super) fn grow(&mut self, topic: TopicId, link: &mut Option<&mut dyn Link>) {
        let mut wire = Wire::new(&mut self.context, reborrow(link));
        for consumer in self.consumers.values_mut() {
            consumer.grow(&mut wire, topic);
        }
    }
}

fn refuse(promise: Option<Promise>) {
    if let Some(promise) = promise {
        promise.resolve(Err(ClientError::Closed));
    }
}
