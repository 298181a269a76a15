//! Messages go to consumers, and what they do with them.

use super::acts::count;
use super::calls::{ClientId, Counted};
use super::faults::{Fault, planted};
use super::queue::{Consumer, Engine, Get, Held, Purge, Ready, Reason};
use super::state::{AmqpListener, Timer};
use amqp::{basic, queue as queues};
use std::sync::Arc;
use vhost::{Delivered, QueueId, Removal, Settlement};
use wire::message::SettleAs;

/// What is to be done with the head of a queue.
enum Head {
    /// Nothing now.
    Stays,
    /// It is dropped for a client that purges.
    Purged(Ready),
    /// It is a dead letter.
    Dead(Ready, Reason),
    /// A client has asked for it.
    Fetched(Ready, Get),
    /// A consumer gets it.
    Delivered(Ready, Consumer),
}

impl AmqpListener {
    /// Gives out what a queue has, as far as somebody may have it.
    pub(super) fn serve(&mut self, namespace: &Arc<str>, id: QueueId) {
        loop {
            let Some(engine) = self.engine(namespace, id) else {
                return;
            };
            if engine.is_going {
                return;
            }
            match self.head(namespace, id) {
                Head::Stays => break,
                Head::Purged(ready) => {
                    if let Some(engine) = self.engine(namespace, id) {
                        engine.settle(&ready.held, SettleAs::Acknowledge);
                    }
                }
                Head::Dead(ready, reason) => self.bury(namespace, id, ready.held, reason),
                Head::Fetched(ready, get) => self.hand_to_get(namespace, id, ready, get),
                Head::Delivered(ready, consumer) => {
                    self.hand_out(namespace, id, ready, &consumer);
                }
            }
        }
        let now = self.now;
        let Some(host) = self.hosts.get_mut(namespace) else {
            return;
        };
        let Some(engine) = host.queues.get_mut(&id) else {
            return;
        };
        engine.ask(now.monotonic, &mut self.calls);
        engine.send_settlements(now.monotonic, &mut self.calls);
        if engine.coming == 0 && std::mem::take(&mut engine.gets_wait) {
            count(engine, host.session, Counted::Get, &mut self.calls);
        }
        if let Some(at) = engine.due(now)
            && engine.timer_at.is_none_or(|armed| at < armed)
        {
            let timer = Timer::Queue(namespace.clone(), id);
            if let Some(armed) = engine.timer_at.replace(at) {
                self.timers.remove(&(armed, timer.clone()));
            }
            self.timers.insert((at, timer));
        }
        self.end_purge(namespace, id);
    }

    pub(super) fn engine(&mut self, namespace: &Arc<str>, id: QueueId) -> Option<&mut Engine> {
        self.hosts.get_mut(namespace)?.queues.get_mut(&id)
    }

    /// What is to be done with the head of a queue.
    fn head(&mut self, namespace: &Arc<str>, id: QueueId) -> Head {
        let unix_ns = self.now.unix_ns;
        let clients = &self.clients;
        let Some(host) = self.hosts.get_mut(namespace) else {
            return Head::Stays;
        };
        let Some(engine) = host.queues.get_mut(&id) else {
            return Head::Stays;
        };
        let Some((offset, first)) = engine.ready.first_key_value() else {
            return Head::Stays;
        };
        let (offset, is_coming, is_for_now) = (*offset, first.is_coming, first.is_for_now);
        let is_over = first.held.expires.is_some_and(|at| at <= unix_ns);
        if let Some(purge) = &mut engine.purge
            && offset < purge.end
        {
            purge.count += 1;
            return engine.pop().map_or(Head::Stays, Head::Purged);
        }
        if is_coming {
            return Head::Stays;
        }
        let expired = (is_over && !is_for_now).then_some(Reason::Expired);
        if let Some(reason) = engine.condemned(offset).or(expired) {
            let ready = engine.pop();
            return ready.map_or(Head::Stays, |ready| Head::Dead(ready, reason));
        }
        let is_there = |get: &Get| clients.contains_key(&get.client);
        while engine.gets.front().is_some_and(|get| !is_there(get)) {
            engine.gets.pop_front();
        }
        // A message that made the queue too long came before the client asked.
        if !engine.gets.is_empty() && engine.drops_head() {
            let ready = engine.pop();
            return ready.map_or(Head::Stays, |ready| Head::Dead(ready, Reason::MaxLength));
        }
        if let Some(get) = engine.gets.pop_front() {
            return engine
                .pop()
                .map_or(Head::Stays, |ready| Head::Fetched(ready, get));
        }
        let consumer = engine.next_consumer(|one| {
            let client = clients.get(&one.client);
            client.is_some_and(|client| client.has_room(one.channel, &one.tag))
        });
        match consumer {
            Some(consumer) => engine
                .pop()
                .map_or(Head::Stays, |ready| Head::Delivered(ready, consumer)),
            None if is_over => {
                let ready = engine.pop();
                ready.map_or(Head::Stays, |ready| Head::Dead(ready, Reason::Expired))
            }
            // What a consumer takes at once does not make a queue longer.
            None if engine.drops_head() => {
                let ready = engine.pop();
                ready.map_or(Head::Stays, |ready| Head::Dead(ready, Reason::MaxLength))
            }
            None => Head::Stays,
        }
    }

    fn hand_out(&mut self, namespace: &Arc<str>, id: QueueId, ready: Ready, consumer: &Consumer) {
        let Some(host) = self.hosts.get_mut(namespace) else {
            return;
        };
        let (Some(engine), Some(client)) = (
            host.queues.get_mut(&id),
            self.clients.get_mut(&consumer.client),
        ) else {
            return;
        };
        let (Some(open), Some(message)) = (
            client.channels.get_mut(&consumer.channel),
            ready.held.message.clone(),
        ) else {
            return engine.requeue(ready.held);
        };
        let redelivered = ready.held.redelivered;
        let held = engine.handed_out(ready.held, consumer.no_ack);
        match open.channel.deliver(&consumer.tag, held) {
            Ok(delivery_tag) => {
                let deliver = basic::Deliver {
                    consumer_tag: consumer.tag.clone(),
                    delivery_tag,
                    redelivered,
                    exchange: message.exchange.clone(),
                    routing_key: message.routing_key.clone(),
                };
                client
                    .amqp
                    .deliver(consumer.channel, deliver, &message.content);
            }
            // It was asked before whether there is room.
            Err(held) if !consumer.no_ack => {
                engine.handed_in(&held);
                engine.requeue(held);
            }
            Err(_) => {}
        }
        self.dirty.clients.insert(consumer.client);
    }

    fn hand_to_get(&mut self, namespace: &Arc<str>, id: QueueId, ready: Ready, get: Get) {
        let Some(host) = self.hosts.get_mut(namespace) else {
            return;
        };
        let (Some(engine), Some(client)) =
            (host.queues.get_mut(&id), self.clients.get_mut(&get.client))
        else {
            return;
        };
        let (Some(open), Some(message)) = (
            client.channels.get_mut(&get.channel),
            ready.held.message.clone(),
        ) else {
            return engine.requeue(ready.held);
        };
        let redelivered = ready.held.redelivered;
        let held = engine.handed_out(ready.held, get.no_ack);
        let delivery_tag = open.channel.fetch(id, held, get.no_ack);
        let got = basic::GetOk {
            delivery_tag,
            redelivered,
            exchange: message.exchange.clone(),
            routing_key: message.routing_key.clone(),
            message_count: u32::try_from(engine.count()).unwrap_or(u32::MAX),
        };
        client.amqp.answer_get(get.channel, got, &message.content);
        client.getting = None;
        self.unblock(get.client);
    }

    /// The node says how much a queue has: a `basic.get` for which there is nothing has its answer.
    pub(super) fn get_counted(&mut self, namespace: &Arc<str>, id: QueueId, waiting: u64) {
        let Some(engine) = self.engine(namespace, id) else {
            return;
        };
        // What is on its way may be for them: a dead letter of what their client has just rejected.
        engine.gets_wait = engine.coming > 0;
        // It is asked again when it has joined.
        if !engine.joined || waiting > 0 || !engine.ready.is_empty() || engine.gets_wait {
            self.dirty.queues.insert((namespace.clone(), id));
            return;
        }
        for get in std::mem::take(&mut engine.gets) {
            if let Some(client) = self.clients.get_mut(&get.client) {
                client.getting = None;
                client.amqp.answer(get.channel, basic::GetEmpty {});
            }
            self.unblock(get.client);
        }
    }

    /// The node says how much a queue has: what a purge waits for may have gone to others.
    pub(super) fn purge_counted(&mut self, namespace: &Arc<str>, id: QueueId, waiting: u64) {
        if let Some(engine) = self.engine(namespace, id)
            && let Some(purge) = &mut engine.purge
            && waiting == 0
            && !planted(Fault::CountedOnce)
            && engine.ready.range(..purge.end).next().is_none()
        {
            purge.left = 0;
            self.dirty.queues.insert((namespace.clone(), id));
        }
    }

    /// A purge is over when nothing is left of what there was.
    fn end_purge(&mut self, namespace: &Arc<str>, id: QueueId) {
        let Some(engine) = self.engine(namespace, id) else {
            return;
        };
        let is_over = |purge: &Purge| purge.left <= i64::try_from(purge.count).unwrap_or(i64::MAX);
        if !engine.purge.as_ref().is_some_and(is_over) {
            return;
        }
        let Some(purge) = engine.purge.take() else {
            return;
        };
        let message_count = u32::try_from(purge.count).unwrap_or(u32::MAX);
        if let Some(client) = self.clients.get_mut(&purge.client) {
            let answer = queues::PurgeOk { message_count };
            client.amqp.answer(purge.channel, answer);
        }
        self.unblock(purge.client);
    }

    /// What becomes of deliveries that a client has settled, or that it leaves.
    pub(super) fn settle_deliveries(
        &mut self,
        namespace: &Arc<str>,
        settlement: Settlement,
        deliveries: Vec<Delivered<Held>>,
    ) {
        for delivered in deliveries {
            let (id, held) = (delivered.queue, delivered.message);
            let Some(engine) = self.engine(namespace, id) else {
                continue;
            };
            engine.handed_in(&held);
            match settlement {
                Settlement::Acknowledge => engine.settle(&held, SettleAs::Acknowledge),
                Settlement::Requeue => engine.requeue(held),
                Settlement::Discard => self.bury(namespace, id, held, Reason::Rejected),
            }
            self.dirty.queues.insert((namespace.clone(), id));
        }
    }

    /// Queues of a client's consumers may have something for them.
    pub(super) fn serve_consumers_of(&mut self, id: ClientId) {
        if let Some(client) = self.clients.get(&id) {
            for (_, _, queue) in &client.consuming {
                let namespace = client.namespace.clone();
                self.dirty.queues.insert((namespace, *queue));
            }
        }
    }

    /// Something of a queue is due.
    pub(super) fn queue_timer(&mut self, namespace: Arc<str>, id: QueueId) {
        let now = self.now.monotonic;
        let Some(host) = self.hosts.get_mut(&namespace) else {
            return;
        };
        let Some(engine) = host.queues.get_mut(&id) else {
            return;
        };
        engine.timer_at = None;
        engine.widen(now);
        let join = engine.join;
        if engine.join_again(now, &mut self.calls) {
            host.joins.remove(&join);
            host.joins.insert(engine.join, id);
        }
        if now >= engine.extend_at {
            let namespace = &namespace;
            let of_host = self
                .clients
                .values()
                .filter(|one| one.namespace == *namespace);
            let channels = of_host.flat_map(|client| client.channels.values());
            let held = channels.flat_map(|open| open.channel.held_of(id).cloned());
            engine.extend(held, now, &mut self.calls);
        }
        let is_unused = engine.consumers.is_empty();
        let expires = engine.queue.options.expires.filter(|_| is_unused);
        let is_over = expires.is_some_and(|expires| now >= engine.used + expires);
        if engine.purge.is_some() || !engine.gets.is_empty() {
            count(engine, host.session, Counted::Get, &mut self.calls);
        }
        self.dirty.queues.insert((namespace.clone(), id));
        if is_over {
            self.remove_queue(&namespace, id, Removal::Expired);
        }
    }
}
