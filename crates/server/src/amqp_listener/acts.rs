//! Acts: a claim's plan is carried out, in the order that `vhost` says, and settled.

use super::calls::{Calls, ClientId, Counted, Then};
use super::host::{Act, Asker, Waiter};
use super::queue::{self, CONSUMER, Engine};
use super::start::delete;
use super::state::{AmqpListener, At, Next, Timer};
use amqp::{ChannelKey, Failure, Request as Asked, ShortString, basic, exchange, queue as queues};
use broker::node::LinkId;
use broker::request::{CoordinatorRequest, DescribeRequest};
use std::sync::Arc;
use std::time::Duration;
use vhost::{ActId, Answer, Claimed, Effect, Outcome, Plan, QueueId, Removal};
use wire::TopicId;
use wire::message::{ConsumerList, ConsumerName, TopicDescription};

/// When a removal that failed is tried again.
const LATER: Duration = Duration::from_secs(1);

/// Asks how many messages a queue has.
pub(super) fn count(engine: &Engine, session: LinkId, why: Counted, calls: &mut Calls) {
    let name = ConsumerName {
        consumer: CONSUMER.to_owned(),
    };
    let request = DescribeRequest::DescribeConsumers(engine.topic, name);
    let then = Then::Counted(engine.queue.id, why, engine.going_back());
    calls.call(session, request, then);
}

/// How many messages wait in the node, and where the queue ends.
pub(super) fn counted(list: &ConsumerList) -> Option<(u64, wire::Offset)> {
    let consumer = list.consumers.iter().find(|one| one.consumer == CONSUMER)?;
    let partition = consumer.partitions.first()?;
    let waiting = partition.lag();
    let waiting = waiting.saturating_sub(partition.leased + partition.dead);
    Some((waiting, partition.end))
}

impl AmqpListener {
    /// Has a plan carried out.
    pub(super) fn begin_act(&mut self, namespace: &Arc<str>, plan: Plan, asker: Option<Asker>) {
        let Some(host) = self.hosts.get_mut(namespace) else {
            return;
        };
        let id = plan.act;
        let only_if_empty = plan.only_if_empty;
        host.acts.insert(id, Act { plan, asker });
        let engine = only_if_empty.and_then(|queue| host.queues.get(&queue));
        match engine {
            Some(engine) => count(engine, host.session, Counted::IfEmpty(id), &mut self.calls),
            None => self.make_topic(namespace, id),
        }
    }

    /// The queue of an act is empty, or is not.
    pub(super) fn checked_empty(&mut self, namespace: &Arc<str>, id: ActId, is_empty: bool) {
        match is_empty {
            true => self.make_topic(namespace, id),
            false => self.settle_act(namespace, id, Outcome::NotEmpty),
        }
    }

    fn make_topic(&mut self, namespace: &Arc<str>, id: ActId) {
        let Some(host) = self.hosts.get_mut(namespace) else {
            return;
        };
        let act = host.acts.get(&id);
        match act.and_then(|act| act.plan.create.as_ref()) {
            Some(queue) => {
                let request = CoordinatorRequest::CreateTopic(TopicId(0), queue::create(queue));
                let session = host.session;
                self.calls.call(session, request, Then::TopicMade(id));
            }
            None => self.record_act(namespace, id),
        }
    }

    /// The topic of an act's queue is made, or is not.
    pub(super) fn topic_made(
        &mut self,
        namespace: &Arc<str>,
        id: ActId,
        made: Result<TopicDescription, String>,
    ) {
        let Some(host) = self.hosts.get_mut(namespace) else {
            return;
        };
        let queue = host.acts.get(&id).and_then(|act| act.plan.create.clone());
        let Some(queue) = queue else {
            return;
        };
        match made {
            Ok(topic) => {
                let (now, session) = (self.now, host.session);
                let engine = Engine::new(queue, topic.topic, session, now, &mut self.calls);
                host.insert(engine);
                self.record_act(namespace, id);
            }
            Err(why) => self.settle_act(namespace, id, Outcome::Failed(why)),
        }
    }

    fn record_act(&mut self, namespace: &Arc<str>, id: ActId) {
        let Some(host) = self.hosts.get_mut(namespace) else {
            return;
        };
        let Some(act) = host.acts.get(&id) else {
            return;
        };
        if act.plan.records.is_empty() {
            return self.settle_act(namespace, id, Outcome::Done);
        }
        match host.records {
            Some(topic) => {
                let records = &act.plan.records;
                let publisher = &mut host.publisher;
                publisher.push_records(topic, records, id, &mut self.calls);
                self.dirty.hosts.insert(namespace.clone());
            }
            None => {
                host.unrecorded.push(id);
                Self::make_records(host, &mut self.calls);
            }
        }
    }

    /// The topic of records is there, or cannot be made.
    pub(super) fn records_made(&mut self, namespace: &Arc<str>, made: Result<TopicId, String>) {
        let Some(host) = self.hosts.get_mut(namespace) else {
            return;
        };
        host.is_making_records = false;
        host.records = made.as_ref().ok().copied();
        for id in std::mem::take(&mut host.unrecorded) {
            match &made {
                Ok(_) => self.record_act(namespace, id),
                Err(why) => self.settle_act(namespace, id, Outcome::Failed(why.clone())),
            }
        }
    }

    /// An act was carried out, or was not.
    pub(super) fn settle_act(&mut self, namespace: &Arc<str>, id: ActId, outcome: Outcome) {
        let Some(host) = self.hosts.get_mut(namespace) else {
            return;
        };
        let Some(act) = host.acts.remove(&id) else {
            return;
        };
        let has_failed = outcome != Outcome::Done;
        let settled = host.vhost.settle(id, outcome);
        let waiters = host.waiters.remove(&id).unwrap_or_default();
        // Who deletes a queue has its answer before its consumers hear of it, which may be its own.
        if let Some(asker) = act.asker {
            self.answer_act(asker, settled.answer);
        }
        for effect in settled.effects {
            match (&effect, has_failed) {
                (Effect::RemoveQueue(queue, removal), true) => {
                    self.later(namespace, *queue, *removal);
                }
                _ => self.carry_out(namespace, vec![effect]),
            }
        }
        for waiter in waiters {
            match waiter {
                Waiter::Client(client) => self.unblock(client),
                Waiter::Removal(queue, removal) => self.remove_queue(namespace, queue, removal),
            }
        }
        self.drop_unused(namespace);
    }

    /// Tells a client what came of its act, and lets it go on.
    fn answer_act(&mut self, asker: Asker, answer: Result<Answer, Failure>) {
        let Asker {
            client: id,
            channel,
            request,
            count,
        } = asker;
        match answer {
            Ok(answer) => {
                if let Some(mut at) = self.at(id) {
                    at.answer_act(channel, &request, answer, count);
                }
            }
            Err(failure) => self.fail(id, channel, failure),
        }
        self.unblock(id);
    }

    /// Does what follows from changes.
    pub(super) fn carry_out(&mut self, namespace: &Arc<str>, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::DeleteTopic(id) => self.drop_queue(namespace, id),
                Effect::CancelConsumers(id) => self.cancel_consumers(namespace, id),
                Effect::RemoveQueue(id, removal) => self.remove_queue(namespace, id, removal),
            }
        }
    }

    /// Nobody refers to a queue any more.
    fn drop_queue(&mut self, namespace: &Arc<str>, id: QueueId) {
        let Some(host) = self.hosts.get_mut(namespace) else {
            return;
        };
        let Some(engine) = host.remove(id) else {
            return;
        };
        let name = queue::topic_name(&engine.queue);
        delete(&name, host.session, &mut self.calls);
        host.publisher.forget(engine.topic);
        for id in &host.clients {
            let client = self.clients.get_mut(id);
            if let Some(publisher) = client.and_then(|client| client.publisher.as_mut()) {
                publisher.forget(engine.topic);
            }
        }
        if let Some(at) = engine.timer_at {
            let timer = Timer::Queue(namespace.clone(), id);
            self.timers.remove(&(at, timer));
        }
        for get in engine.gets {
            if let Some(client) = self.clients.get_mut(&get.client) {
                client.amqp.answer(get.channel, basic::GetEmpty {});
            }
            self.unblock(get.client);
        }
        if let Some(purge) = engine.purge {
            let message_count = u32::try_from(purge.count).unwrap_or(u32::MAX);
            if let Some(client) = self.clients.get_mut(&purge.client) {
                let answer = queues::PurgeOk { message_count };
                client.amqp.answer(purge.channel, answer);
            }
            self.unblock(purge.client);
        }
    }

    fn cancel_consumers(&mut self, namespace: &Arc<str>, id: QueueId) {
        let Some(host) = self.hosts.get_mut(namespace) else {
            return;
        };
        let Some(engine) = host.queues.get_mut(&id) else {
            return;
        };
        let mut effects = Vec::new();
        for one in std::mem::take(&mut engine.consumers) {
            let Some(client) = self.clients.get_mut(&one.client) else {
                continue;
            };
            let Some(open) = client.channels.get_mut(&one.channel) else {
                continue;
            };
            for (tag, consumer) in open.channel.cancel_all_of(id) {
                client.consuming.remove(&(one.channel, tag.clone(), id));
                client.amqp.cancel_consumer(one.channel, tag);
                effects.extend(host.vhost.end_consumer(consumer));
            }
            self.dirty.clients.insert(one.client);
        }
        self.carry_out(namespace, effects);
    }

    /// The server removes a queue.
    pub(super) fn remove_queue(&mut self, namespace: &Arc<str>, id: QueueId, removal: Removal) {
        let Some(host) = self.hosts.get_mut(namespace) else {
            return;
        };
        match host.vhost.remove_queue(id, removal) {
            Claimed::Done(_) => {}
            Claimed::Wait(act) => {
                let waiters = host.waiters.entry(act).or_default();
                waiters.push(Waiter::Removal(id, removal));
            }
            Claimed::Begun(plan) => self.begin_act(namespace, plan, None),
        }
    }

    /// A removal has failed: it is tried again in a while.
    pub(super) fn later(&mut self, namespace: &Arc<str>, id: QueueId, removal: Removal) {
        let at = self.now.monotonic + LATER;
        if let Some(host) = self.hosts.get_mut(namespace) {
            host.later.push((id, removal));
            if host.timer_at.is_none() {
                host.timer_at = Some(at);
                self.timers.insert((at, Timer::Host(namespace.clone())));
            }
        }
    }

    pub(super) fn host_timer(&mut self, namespace: &Arc<str>) {
        let Some(host) = self.hosts.get_mut(namespace) else {
            return;
        };
        host.timer_at = None;
        for (id, removal) in std::mem::take(&mut host.later) {
            self.remove_queue(namespace, id, removal);
        }
    }

    /// Claims something for a client, and says what is next for it.
    pub(super) fn claim(
        &mut self,
        id: ClientId,
        act: &vhost::Act,
        (channel, request, messages): (ChannelKey, Asked, u64),
    ) -> Result<Next, Failure> {
        let Some(mut at) = self.at(id) else {
            return Ok(Next::Go);
        };
        let Some(connection) = at.client.connection else {
            return Ok(Next::Go);
        };
        match at.host.vhost.claim(connection, act)? {
            Claimed::Done(answer) => {
                if let Answer::QueueDeclared { queue, consumers } = &answer
                    && let Some(engine) = at.host.queues.get_mut(&queue.id)
                {
                    // What is in it by now, others may have brought.
                    engine.used = at.now.monotonic;
                    let why = Counted::Declared(id, channel, *consumers);
                    count(engine, at.host.session, why, at.calls);
                    return Ok(Next::Answer);
                }
                at.answer_act(channel, &request, answer, messages);
                Ok(Next::Go)
            }
            Claimed::Wait(act) => {
                let waiters = at.host.waiters.entry(act).or_default();
                waiters.push(Waiter::Client(id));
                Ok(Next::Again)
            }
            Claimed::Begun(plan) => {
                let namespace = at.client.namespace.clone();
                let asker = Asker {
                    client: id,
                    channel,
                    request,
                    count: messages,
                };
                let act = plan.act;
                self.begin_act(&namespace, plan, Some(asker));
                // What needs neither a topic nor records is settled by now.
                let host = self.hosts.get(&namespace);
                Ok(
                    match host.is_some_and(|host| host.acts.contains_key(&act)) {
                        true => Next::Answer,
                        false => Next::Go,
                    },
                )
            }
        }
    }
}

impl At<'_> {
    /// The answer to an act, as its method has it.
    pub(super) fn answer_act(
        &mut self,
        key: ChannelKey,
        request: &Asked,
        answer: Answer,
        count: u64,
    ) {
        let message_count = u32::try_from(count).unwrap_or(u32::MAX);
        match answer {
            Answer::ExchangeDeclared(_) => self.answer(key, exchange::DeclareOk {}),
            Answer::ExchangeDeleted => self.answer(key, exchange::DeleteOk {}),
            Answer::Bound => match request {
                Asked::BindExchange(_) => self.answer(key, exchange::BindOk {}),
                _ => self.answer(key, queues::BindOk {}),
            },
            Answer::Unbound => match request {
                Asked::UnbindExchange(_) => self.answer(key, exchange::UnbindOk {}),
                _ => self.answer(key, queues::UnbindOk {}),
            },
            Answer::QueueDeclared { queue, consumers } => {
                self.queue_declared(key, &queue.name, message_count, consumers);
            }
            Answer::QueueDeleted(_) => self.answer(key, queues::DeleteOk { message_count }),
            Answer::DirectReply(_) => {
                let name = match request {
                    Asked::DeclareQueue(declare) => declare.queue.clone(),
                    _ => ShortString::default(),
                };
                self.queue_declared(key, &name, 0, 1);
            }
            // It is not an act that is settled.
            Answer::Consuming(consumer) => {
                drop(self.host.vhost.end_consumer(consumer));
            }
        }
    }

    pub(super) fn queue_declared(
        &mut self,
        key: ChannelKey,
        name: &str,
        message_count: u32,
        consumer_count: u32,
    ) {
        if let Some(open) = self.client.channels.get_mut(&key) {
            open.channel.declared(name);
        }
        let answer = queues::DeclareOk {
            queue: ShortString::truncated(name),
            message_count,
            consumer_count,
        };
        self.answer(key, answer);
    }
}
