//! What clients ask of channels.

use super::acts::count;
use super::calls::{ClientId, Counted, Then};
use super::client::{Blocked, Check};
use super::faults::{Fault, planted};
use super::host::Waiter;
use super::queue::{Consumer, Get, Held, Purge, topic_name};
use super::state::{AmqpListener, At, Next};
use amqp::{
    ChannelKey, Failure, MethodId, ReplyCode, Request as Asked, ShortString, basic, channel,
    confirm, exchange, queue as queues,
};
use broker::request::DescribeRequest;
use std::collections::BTreeSet;
use std::sync::Arc;
use vhost::{Act, Answer, Claimed, DirectReply, QueueId, Released};
use wire::message::CheckAccess;

/// Whether a request is looked at when what its client has published before is in its queues: its answer says what is
/// there, or that nothing is to come.
const fn follows_messages(request: &Asked) -> bool {
    matches!(
        request,
        Asked::DeclareQueue(_)
            | Asked::DeleteQueue(_)
            | Asked::PurgeQueue(_)
            | Asked::Get(_)
            | Asked::CloseChannel(_)
    )
}

impl AmqpListener {
    /// A client asks something of a channel.
    pub(super) fn request(&mut self, id: ClientId, key: ChannelKey, request: Asked) {
        if follows_messages(&request)
            && let Some(client) = self.clients.get_mut(&id)
            && client.is_storing()
        {
            client.blocked = Some(Blocked::Stored(key, Box::new(request)));
            return;
        }
        let kept = request.clone();
        let next = self.try_request(id, key, request);
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        match next {
            Ok(Next::Go) => client.checked.clear(),
            Ok(Next::Again) => {
                client.blocked = Some(Blocked::Request(key, Box::new(kept)));
            }
            Ok(Next::Answer) => {
                client.checked.clear();
                client.blocked = Some(Blocked::Answer);
            }
            Err(failure) => self.fail(id, key, failure),
        }
    }

    fn try_request(
        &mut self,
        id: ClientId,
        key: ChannelKey,
        request: Asked,
    ) -> Result<Next, Failure> {
        let Some(mut at) = self.at(id) else {
            return Ok(Next::Go);
        };
        match &request {
            Asked::DeclareExchange(declare) => {
                let method = exchange::Declare::ID;
                if !declare.passive && !at.may_with_exchange("manage", &declare.exchange, method)? {
                    return Ok(Next::Again);
                }
                let act = Act::DeclareExchange(declare.clone());
                self.claim(id, &act, (key, request, 0))
            }
            Asked::DeleteExchange(delete) => {
                let method = exchange::Delete::ID;
                if !at.may_with_exchange("manage", &delete.exchange, method)? {
                    return Ok(Next::Again);
                }
                let act = Act::DeleteExchange(delete.clone());
                self.claim(id, &act, (key, request, 0))
            }
            Asked::BindExchange(bind) => {
                let method = exchange::Bind::ID;
                if !at.may_with_exchange("manage", &bind.destination, method)?
                    || !at.may_with_exchange("read", &bind.source, method)?
                {
                    return Ok(Next::Again);
                }
                let act = Act::BindExchange(bind.clone());
                self.claim(id, &act, (key, request, 0))
            }
            Asked::UnbindExchange(unbind) => {
                let method = exchange::Unbind::ID;
                if !at.may_with_exchange("manage", &unbind.destination, method)? {
                    return Ok(Next::Again);
                }
                let act = Act::UnbindExchange(unbind.clone());
                self.claim(id, &act, (key, request, 0))
            }
            Asked::DeclareQueue(declare) => self.declare_queue(id, key, declare.clone()),
            Asked::DeleteQueue(delete) => self.delete_queue(id, key, delete.clone()),
            Asked::BindQueue(bind) => {
                let method = queues::Bind::ID;
                let open = at.channel(key)?;
                let name = open.queue_name(&bind.queue, method)?;
                let routing_key = open.binding_key(&bind.queue, &bind.routing_key, method)?;
                if !at.may_with_queue("manage", &name, method)?
                    || !at.may_with_exchange("read", &bind.exchange, method)?
                {
                    return Ok(Next::Again);
                }
                let act = Act::BindQueue(queues::Bind {
                    queue: ShortString::truncated(&name),
                    routing_key: ShortString::truncated(&routing_key),
                    ..bind.clone()
                });
                self.claim(id, &act, (key, request, 0))
            }
            Asked::UnbindQueue(unbind) => {
                let method = queues::Unbind::ID;
                let open = at.channel(key)?;
                let name = open.queue_name(&unbind.queue, method)?;
                let routing_key = open.binding_key(&unbind.queue, &unbind.routing_key, method)?;
                // What is not there is not bound.
                if at.is_there(&name) && !at.may_with_queue("manage", &name, method)? {
                    return Ok(Next::Again);
                }
                let act = Act::UnbindQueue(queues::Unbind {
                    queue: ShortString::truncated(&name),
                    routing_key: ShortString::truncated(&routing_key),
                    ..unbind.clone()
                });
                self.claim(id, &act, (key, request, 0))
            }
            Asked::PurgeQueue(purge) => {
                let method = queues::Purge::ID;
                let name = at.channel(key)?.queue_name(&purge.queue, method)?;
                let queue = at.find(&name, method)?;
                if !at.may_with_queue("read", &name, method)? {
                    return Ok(Next::Again);
                }
                match at.host.queues.get(&queue) {
                    Some(engine) if engine.purge.is_some() => {
                        let why = "the queue is being purged by another client";
                        Err(Failure::new(ReplyCode::PreconditionFailed, why).of(method))
                    }
                    Some(engine) => {
                        let why = Counted::Purge(id, key);
                        count(engine, at.host.session, why, at.calls);
                        Ok(Next::Answer)
                    }
                    None => Ok(Next::Go),
                }
            }
            Asked::Qos(qos) => {
                at.channel(key)?.qos(qos);
                at.answer(key, basic::QosOk {});
                self.serve_consumers_of(id);
                Ok(Next::Go)
            }
            Asked::Consume(consume) => self.consume(id, key, consume.clone()),
            Asked::Cancel(cancel) => {
                let tag = cancel.consumer_tag.clone();
                let answer = basic::CancelOk {
                    consumer_tag: tag.clone(),
                };
                let consumer = at.channel(key)?.cancel(&tag);
                at.answer(key, answer);
                if let Some(consumer) = consumer {
                    let (queue, now) = (consumer.queue(), at.now.monotonic);
                    if let Some(engine) = at.host.queues.get_mut(&queue) {
                        engine.remove(id, key, &tag, now);
                    }
                    at.client.consuming.remove(&(key, tag, queue));
                    at.serve(queue);
                    let effect = at.host.vhost.end_consumer(consumer);
                    let namespace = at.client.namespace.clone();
                    self.carry_out(&namespace, effect.into_iter().collect());
                }
                Ok(Next::Go)
            }
            Asked::Get(get) => {
                let method = basic::Get::ID;
                let name = at.channel(key)?.queue_name(&get.queue, method)?;
                let queue = at.find(&name, method)?;
                at.channel(key)?.check_fetch(get)?;
                if !at.may_with_queue("read", &name, method)? {
                    return Ok(Next::Again);
                }
                let Some(engine) = at.host.queues.get_mut(&queue) else {
                    return Ok(Next::Go);
                };
                engine.used = at.now.monotonic;
                engine.wanted = at.now.monotonic;
                at.client.getting = Some(queue);
                engine.gets.push_back(Get {
                    client: id,
                    channel: key,
                    no_ack: get.no_ack,
                });
                // What is ready comes first; that there is nothing, the node says.
                engine.ask(at.now.monotonic, at.calls);
                count(engine, at.host.session, Counted::Get, at.calls);
                at.serve(queue);
                Ok(Next::Answer)
            }
            Asked::Ack(ack) => {
                let released = at.channel(key)?.acknowledge(ack)?;
                self.release(id, key, released);
                Ok(Next::Go)
            }
            Asked::Nack(nack) => {
                let released = at.channel(key)?.negate(nack)?;
                self.release(id, key, released);
                Ok(Next::Go)
            }
            Asked::Reject(reject) => {
                let released = at.channel(key)?.reject(reject)?;
                self.release(id, key, released);
                Ok(Next::Go)
            }
            Asked::Recover(_) => {
                let released = at.channel(key)?.recover();
                at.answer(key, basic::RecoverOk {});
                self.release(id, key, released);
                Ok(Next::Go)
            }
            Asked::RecoverAsync(_) => {
                let released = at.channel(key)?.recover();
                self.release(id, key, released);
                Ok(Next::Go)
            }
            Asked::SelectConfirm(_) => {
                at.answer(key, confirm::SelectOk {});
                Ok(Next::Go)
            }
            Asked::SelectTransaction(_) | Asked::Commit(_) | Asked::Rollback(_) => {
                Err(vhost::no_transactions())
            }
            Asked::CloseChannel(_) => {
                self.close_channel(id, key);
                if let Some(mut at) = self.at(id) {
                    at.answer(key, channel::CloseOk {});
                }
                Ok(Next::Go)
            }
        }
    }

    fn declare_queue(
        &mut self,
        id: ClientId,
        key: ChannelKey,
        declare: queues::Declare,
    ) -> Result<Next, Failure> {
        let chance = (self.random)();
        let Some(mut at) = self.at(id) else {
            return Ok(Next::Go);
        };
        if let Some(DirectReply::Address(address)) = DirectReply::of(&declare.queue)
            && !at.host.replies.contains_key(&address)
        {
            let text = format!("no queue '{}' in vhost", declare.queue);
            return Err(Failure::new(ReplyCode::NotFound, text).of(queues::Declare::ID));
        }
        // A queue that is there is made known to who may know it; one that is not is the maker's.
        let is_new = at.find(&declare.queue, queues::Declare::ID).is_err();
        if is_new && !declare.passive {
            let name = match &*declare.queue {
                "" => "amq.gen-",
                name => name,
            };
            let method = queues::Declare::ID;
            if !at.may("manage", new_name(name), method)? {
                return Ok(Next::Again);
            }
            // The server publishes the dead letters: who declares where they go could publish there.
            if let Some(exchange) = declare.arguments.get("x-dead-letter-exchange")
                && let Some(exchange) = exchange.as_str()
                && !at.may_with_exchange("write", exchange, method)?
            {
                return Ok(Next::Again);
            }
        }
        let act = Act::DeclareQueue {
            declare: declare.clone(),
            chance,
        };
        self.claim(id, &act, (key, Asked::DeclareQueue(declare), 0))
    }

    fn delete_queue(
        &mut self,
        id: ClientId,
        key: ChannelKey,
        delete: queues::Delete,
    ) -> Result<Next, Failure> {
        let Some(mut at) = self.at(id) else {
            return Ok(Next::Go);
        };
        let method = queues::Delete::ID;
        let name = at.channel(key)?.queue_name(&delete.queue, method)?;
        let delete = queues::Delete {
            queue: ShortString::truncated(&name),
            ..delete
        };
        if at.is_there(&name) && !at.may_with_queue("manage", &name, method)? {
            return Ok(Next::Again);
        }
        let asked = Asked::DeleteQueue(delete.clone());
        let queue = at.find(&name, method).ok();
        let engine = queue.and_then(|queue| at.host.queues.get(&queue));
        match engine {
            Some(engine) => {
                let why = Counted::Deleting(id, key, Box::new(asked));
                count(engine, at.host.session, why, at.calls);
                Ok(Next::Answer)
            }
            None => self.claim(id, &Act::DeleteQueue(delete), (key, asked, 0)),
        }
    }

    /// A queue is to be deleted that has so many messages.
    pub(super) fn delete_counted(
        &mut self,
        id: ClientId,
        key: ChannelKey,
        asked: Asked,
        count: u64,
    ) {
        let Asked::DeleteQueue(delete) = &asked else {
            return;
        };
        let act = Act::DeleteQueue(delete.clone());
        let kept = asked.clone();
        if let Some(client) = self.clients.get_mut(&id) {
            client.blocked = None;
        }
        let next = self.claim(id, &act, (key, asked, count));
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        match next {
            Ok(Next::Go) => self.unblock(id),
            Ok(Next::Again) => {
                client.blocked = Some(Blocked::Request(key, Box::new(kept)));
            }
            Ok(Next::Answer) => {
                client.blocked = Some(Blocked::Answer);
            }
            Err(failure) => {
                self.fail(id, key, failure);
                self.unblock(id);
            }
        }
    }

    fn consume(
        &mut self,
        id: ClientId,
        key: ChannelKey,
        consume: basic::Consume,
    ) -> Result<Next, Failure> {
        let (chance, address) = ((self.random)(), (self.random)());
        let Some(mut at) = self.at(id) else {
            return Ok(Next::Go);
        };
        let method = basic::Consume::ID;
        let name = at.channel(key)?.queue_name(&consume.queue, method)?;
        let consume = basic::Consume {
            queue: ShortString::truncated(&name),
            ..consume
        };
        let new = at.channel(key)?.check_consumer(&consume, chance)?;
        if DirectReply::of(&name).is_none() {
            at.find(&name, method)?;
            if !at.may_with_queue("read", &name, method)? {
                return Ok(Next::Again);
            }
        }
        let Some(connection) = at.client.connection else {
            return Ok(Next::Go);
        };
        let act = Act::Consume(consume.clone());
        match at.host.vhost.claim(connection, &act)? {
            Claimed::Wait(act) => {
                let waiters = at.host.waiters.entry(act).or_default();
                waiters.push(Waiter::Client(id));
                Ok(Next::Again)
            }
            Claimed::Done(Answer::Consuming(consumer)) => {
                let queue = consumer.queue();
                let open = at.channel(key)?;
                let tag = open.begin_consumer(new, consumer);
                let priority = open.priority(&tag).unwrap_or(0);
                if let Some(engine) = at.host.queues.get_mut(&queue) {
                    engine.add(Consumer {
                        client: id,
                        channel: key,
                        tag: tag.clone(),
                        priority,
                        no_ack: consume.no_ack,
                    });
                }
                at.client.consuming.insert((key, tag.clone(), queue));
                at.answer(key, basic::ConsumeOk { consumer_tag: tag });
                at.serve(queue);
                Ok(Next::Go)
            }
            Claimed::Done(_) => {
                let tag = at.channel(key)?.begin_replies(new)?;
                let address: Arc<str> = format!("{address:032x}").into();
                at.host.replies.insert(address.clone(), (id, key));
                if let Some(open) = at.client.channels.get_mut(&key) {
                    open.replies = Some(address);
                }
                at.answer(key, basic::ConsumeOk { consumer_tag: tag });
                Ok(Next::Go)
            }
            Claimed::Begun(_) => unreachable!("a consumer is no act that is settled"),
        }
    }

    /// Deliveries are settled.
    pub(super) fn release(&mut self, id: ClientId, key: ChannelKey, released: Released<Held>) {
        let Some(client) = self.clients.get(&id) else {
            return;
        };
        let namespace = client.namespace.clone();
        let room_of_all = client.channels.get(&key);
        let room_of_all = room_of_all
            .is_some_and(|open| open.channel.made_room_for_all(released.deliveries.len()));
        let others: BTreeSet<_> = match room_of_all {
            // There is room for more, of any queue of the channel.
            true => client.queues_of(key).collect(),
            false => BTreeSet::new(),
        };
        self.settle_deliveries(&namespace, released.settlement, released.deliveries);
        let others = others.into_iter().map(|queue| (namespace.clone(), queue));
        self.dirty.queues.extend(others);
    }

    /// A channel ends.
    pub(super) fn close_channel(&mut self, id: ClientId, key: ChannelKey) {
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        let namespace = client.namespace.clone();
        let Some(open) = client.channels.remove(&key) else {
            return;
        };
        client.confirming.remove(&key);
        let Some(host) = self.hosts.get_mut(&namespace) else {
            return;
        };
        if let Some(address) = &open.replies {
            host.replies.remove(address);
        }
        let first = (key, ShortString::default(), QueueId(0));
        let mut of_channel = client.consuming.split_off(&first);
        let next = of_channel.iter().find(|(channel, ..)| *channel != key);
        if let Some(next) = next.cloned() {
            client.consuming.append(&mut of_channel.split_off(&next));
        }
        for (_, tag, queue) in of_channel {
            if let Some(engine) = host.queues.get_mut(&queue) {
                engine.remove(id, key, &tag, self.now.monotonic);
                self.dirty.queues.insert((namespace.clone(), queue));
            }
        }
        if let Some(engine) = client.getting.and_then(|queue| host.queues.get_mut(&queue)) {
            let is_its = |one: &Get| one.client == id && one.channel == key;
            engine.gets.retain(|one| !is_its(one));
        }
        let mut closed = open.channel.close();
        if planted(Fault::Leaked) {
            closed.deliveries.clear();
        }
        self.settle_deliveries(&namespace, vhost::Settlement::Requeue, closed.deliveries);
        let Some(host) = self.hosts.get_mut(&namespace) else {
            return;
        };
        let ended = closed.consumers.into_iter();
        let effects: Vec<_> = ended
            .filter_map(|consumer| host.vhost.end_consumer(consumer))
            .collect();
        self.carry_out(&namespace, effects);
    }

    /// Ready messages of a queue are to be dropped: so many there are.
    pub(super) fn purge(
        &mut self,
        (id, key): (ClientId, ChannelKey),
        queue: QueueId,
        (waiting, end): (u64, wire::Offset),
    ) {
        let Some(mut at) = self.at(id) else {
            return;
        };
        let Some(engine) = at.host.queues.get_mut(&queue) else {
            // It was deleted meanwhile, with all that it had.
            at.answer(key, queues::PurgeOk { message_count: 0 });
            return self.unblock(id);
        };
        engine.wanted = at.now.monotonic;
        engine.purge = Some(Purge {
            client: id,
            channel: key,
            end,
            count: 0,
            left: i64::try_from(waiting).unwrap_or(i64::MAX),
        });
        let namespace = at.client.namespace.clone();
        at.dirty.queues.insert((namespace, queue));
    }
}

/// The name by which it is asked whether a queue that is not there may be made: as its topic's will begin, and with an id.
fn new_name(queue: &str) -> String {
    let queue: String = queue
        .chars()
        .map(|one| match one.is_control() || one == '/' {
            true => '_',
            false => one,
        })
        .collect();
    format!("{queue}.amqp-0")
}

impl At<'_> {
    pub(super) fn channel(
        &mut self,
        key: ChannelKey,
    ) -> Result<&mut vhost::Channel<Held>, Failure> {
        let open = self.client.channels.get_mut(&key);
        open.map(|open| &mut open.channel)
            .ok_or_else(|| Failure::new(ReplyCode::ChannelError, format!("{key} is not open")))
    }

    /// The queue of a name that the client may use.
    pub(super) fn find(&self, name: &str, method: MethodId) -> Result<QueueId, Failure> {
        let connection = self
            .client
            .connection
            .ok_or_else(|| Failure::new(ReplyCode::ChannelError, "the connection is not open"))?;
        let queue = self.host.vhost.find_queue(connection, name, method)?;
        Ok(queue.id)
    }

    fn is_there(&self, name: &str) -> bool {
        self.find(name, queues::Delete::ID).is_ok()
    }

    /// Whether the client may do something with a queue that is there. `false`: the node is asked.
    pub(super) fn may_with_queue(
        &mut self,
        verb: &'static str,
        name: &str,
        method: MethodId,
    ) -> Result<bool, Failure> {
        let queue = self.find(name, method)?;
        let Some(queue) = self.host.vhost.queue(queue) else {
            return Ok(true);
        };
        let topic = topic_name(queue);
        self.may(verb, topic, method)
    }

    /// Whether the client may do something with an exchange. The default one is called as RabbitMQ calls it where
    /// it asks for permissions.
    fn may_with_exchange(
        &mut self,
        verb: &'static str,
        name: &str,
        method: MethodId,
    ) -> Result<bool, Failure> {
        if planted(Fault::Unasked) {
            return Ok(true);
        }
        let name = match name {
            "" => "amq.default",
            name => name,
        };
        let name: String = name
            .chars()
            .map(|one| match one.is_control() || one == '/' {
                true => '_',
                false => one,
            })
            .collect();
        self.may(verb, format!("{name}.amqp-exchange"), method)
    }

    /// Whether the client may do something with a name: the node says so, by the rule that holds for all requests.
    pub(super) fn may(
        &mut self,
        verb: &'static str,
        topic: String,
        method: MethodId,
    ) -> Result<bool, Failure> {
        let check = Check { verb, topic };
        let mut known = self.client.checked.iter();
        if let Some((_, result)) = known.find(|(known, _)| *known == check) {
            return match result {
                Ok(()) => Ok(true),
                Err(why) => Err(Failure::new(ReplyCode::AccessRefused, why.clone()).of(method)),
            };
        }
        let Some(session) = self.client.session else {
            return Ok(false);
        };
        let request = DescribeRequest::CheckAccess(CheckAccess {
            verb: verb.to_owned(),
            topic: check.topic.clone(),
        });
        self.client.checking = Some(check);
        self.calls.call(session, request, Then::Checked);
        Ok(false)
    }
}
