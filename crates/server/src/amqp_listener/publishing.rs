//! Messages that clients publish.

use super::acts::count;
use super::batch::{Batch, Done};
use super::calls::{ClientId, Counted, Then};
use super::client::{Blocked, Client};
use super::faults::{Fault, planted};
use super::message::{Message, without};
use super::queue::Reason;
use super::state::{AmqpListener, Next, Timer};
use amqp::{Failure, Properties, Publish, ReplyCode, ShortBytes, basic};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use vhost::{NO_ROUTE, Overflow, Publishing};
use wire::{ErrorCode, ErrorReply, TopicId};

/// What the name of a consumer of direct replies begins with, before its address.
const REPLY_TO: &str = "amq.rabbitmq.reply-to";

/// How long a publisher is blocked whose message was refused for want of storage.
const BLOCKED: Duration = Duration::from_secs(5);

fn refuse(code: ReplyCode, text: impl Into<String>) -> Failure {
    Failure::new(code, text).of(basic::Publish::ID)
}

impl AmqpListener {
    /// A client publishes a message.
    pub(super) fn publish(&mut self, id: ClientId, publish: Publish) {
        let key = publish.channel;
        match self.try_publish(id, &publish) {
            Ok(Next::Go | Next::Answer) => {}
            Ok(Next::Again) => {
                if let Some(client) = self.clients.get_mut(&id) {
                    client.blocked = Some(Blocked::Publish(Box::new(publish)));
                }
            }
            Err(failure) => self.fail(id, key, failure),
        }
    }

    fn try_publish(&mut self, id: ClientId, publish: &Publish) -> Result<Next, Failure> {
        let key = publish.channel;
        let Some(at) = self.at(id) else {
            return Ok(Next::Go);
        };
        // Without a session nothing is stored, and the connection is about to end.
        if at.client.session.is_none() {
            return Ok(Next::Go);
        }
        let Some(open) = at.client.channels.get_mut(&key) else {
            return Ok(Next::Go);
        };
        let fields = publish.content.properties.fields();
        check(&fields, &at.client.user)?;
        let mut message = Message {
            exchange: publish.publish.exchange.clone(),
            routing_key: publish.publish.routing_key.clone(),
            content: publish.content.clone(),
        };
        let mut changed = None;
        if fields.reply_to.as_deref() == Some(REPLY_TO.as_bytes()) {
            open.channel.check_replies()?;
            let address = open.replies.as_deref().unwrap_or_default();
            let reply_to = format!("{REPLY_TO}.{address}");
            let reply_to = ShortBytes::try_from(reply_to.as_bytes()).ok();
            changed = Some(Properties {
                reply_to,
                ..fields.clone()
            });
        }
        let routed = at.host.vhost.route(&vhost::Message {
            exchange: &message.exchange,
            routing_key: &message.routing_key,
            headers: fields.headers.as_ref(),
        })?;
        if let Some(headers) = &fields.headers
            && headers.get("BCC").is_some()
        {
            let kept = without(headers, "BCC");
            let changed = changed.get_or_insert_with(|| fields.clone());
            changed.headers = Some(kept);
        }
        if let Some(changed) = changed {
            message.content.properties = changed.encode();
        }
        let mandatory = publish.publish.mandatory && routed.replies.is_empty();
        let targets = routed.queues.len() + routed.replies.len();
        let next = open.channel.publish(publish.number, targets, mandatory);
        if publish.number.is_some() {
            at.client.confirming.insert(key);
        }
        if next == Publishing::SendBack {
            let (reply_code, text) = NO_ROUTE;
            let back = basic::Return {
                reply_code,
                reply_text: amqp::ShortString::truncated(text),
                exchange: message.exchange.clone(),
                routing_key: message.routing_key.clone(),
            };
            at.client.amqp.send_back(key, back, &message.content);
        }
        let namespace = at.client.namespace.clone();
        let mut refused = Vec::new();
        let mut encoded = None;
        for queue in routed.queues {
            let engine = at.host.queues.get_mut(&queue);
            let engine = engine.filter(|engine| !engine.is_going);
            let publisher = at.client.publisher.as_mut();
            let (Some(engine), Some(publisher)) = (engine, publisher) else {
                // It is being deleted, and counts as having kept it.
                answered(at.client, key, publish.number, true);
                continue;
            };
            if engine.is_full(message.bytes()) {
                answered(at.client, key, publish.number, false);
                // Letters of what is refused hold nobody up, and are dropped where the server cannot store them as fast.
                let has_letter = engine.queue.options.overflow == Overflow::RejectPublishDeadLetter;
                if has_letter && !at.host.publisher.is_overfull() {
                    refused.push(queue);
                }
                continue;
            }
            engine.coming += 1;
            let done = Done::Published(key, publish.number);
            let event = encoded.get_or_insert_with(|| message.encode());
            publisher.push((engine.topic, queue), event, done, at.calls);
            if planted(Fault::Early) {
                answered(at.client, key, publish.number, true);
            }
        }
        for queue in refused {
            let message = Arc::new(message.clone());
            self.send_letter(&namespace, (queue, None), message, Reason::MaxLength);
        }
        for address in routed.replies {
            self.reply(&namespace, &address, &message);
            // It is sent, or there is nobody to send it to.
            if let Some(client) = self.clients.get_mut(&id) {
                answered(client, key, publish.number, true);
            }
        }
        Ok(Next::Go)
    }

    /// Gives a reply to who asked for it, if they are there.
    pub(super) fn reply(&mut self, namespace: &Arc<str>, address: &str, message: &Message) {
        let host = self.hosts.get(namespace);
        let Some((id, key)) = host.and_then(|host| host.replies.get(address)).copied() else {
            return;
        };
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        // A reply is delivered at most once: who does not read has none.
        if client.is_congested() {
            return;
        }
        let open = client.channels.get_mut(&key);
        if let Some((consumer_tag, delivery_tag)) =
            open.and_then(|open| open.channel.deliver_reply())
        {
            let deliver = basic::Deliver {
                consumer_tag,
                delivery_tag,
                redelivered: false,
                exchange: message.exchange.clone(),
                routing_key: message.routing_key.clone(),
            };
            client.amqp.deliver(key, deliver, &message.content);
            self.dirty.clients.insert(id);
        }
    }

    /// A batch of a client is stored, or is not.
    pub(super) fn produced(
        &mut self,
        id: ClientId,
        topic: TopicId,
        batch: Batch,
        result: Result<(), ErrorReply>,
    ) {
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        let namespace = client.namespace.clone();
        let batches = match &mut client.publisher {
            Some(publisher) => publisher.answered(topic, batch, result.is_ok()),
            None => vec![batch],
        };
        self.dirty.clients.insert(id);
        for batch in batches {
            self.stored(id, &namespace, batch, &result);
        }
    }

    fn stored(
        &mut self,
        id: ClientId,
        namespace: &Arc<str>,
        batch: Batch,
        result: &Result<(), ErrorReply>,
    ) {
        let count = batch.done.len() as u64;
        if let Some(queue) = batch.queue
            && let Some(engine) = self.engine(namespace, queue)
        {
            engine.arrived(count, result.is_ok());
            self.dirty.queues.insert((namespace.clone(), queue));
        }
        // A queue that is gone counts as having kept it.
        let is_kept = match result {
            Ok(()) => true,
            Err(error) => error.code == ErrorCode::UnknownTopic,
        };
        if let Err(error) = result
            && error.code == ErrorCode::StorageFull
        {
            self.storage_is_full(id);
        }
        let mut denied = None;
        for done in batch.done {
            let Done::Published(key, number) = done else {
                continue;
            };
            if let Some(client) = self.clients.get_mut(&id) {
                answered(client, key, number, is_kept);
                if let Err(error) = result
                    && error.code == ErrorCode::NotAuthorized
                {
                    denied = Some((key, error.message.clone()));
                }
            }
        }
        if let Some((key, why)) = denied {
            self.fail(id, key, refuse(ReplyCode::AccessRefused, why));
        }
    }

    /// A message of a client was refused for want of storage: it had better not publish for a while.
    fn storage_is_full(&mut self, id: ClientId) {
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        let is_first = self.blocked.is_empty();
        if self.blocked.insert(id) {
            client.amqp.block("the server's storage is full");
            self.dirty.clients.insert(id);
        }
        if is_first {
            let at = self.now.monotonic + BLOCKED;
            self.timers.insert((at, Timer::Storage));
        }
    }

    /// Whether there is room again, those find out who publish.
    pub(super) fn let_publish(&mut self) {
        for id in std::mem::take(&mut self.blocked) {
            if let Some(client) = self.clients.get_mut(&id) {
                client.amqp.unblock();
                self.dirty.clients.insert(id);
            }
        }
    }

    /// Batches have no answer any more, for their session has ended: what queues have is counted anew.
    pub(super) fn abandoned(
        &mut self,
        namespace: &Arc<str>,
        unanswered: Vec<Then>,
        unsent: Vec<Batch>,
    ) {
        let sent = unanswered.into_iter().filter_map(|then| match then {
            Then::Produced(_, batch) => Some(batch),
            _ => None,
        });
        let mut queues = BTreeSet::new();
        for batch in sent.chain(unsent) {
            if let Some(id) = batch.queue
                && let Some(engine) = self.engine(namespace, id)
            {
                let count = match planted(Fault::StaysComing) {
                    true => 0,
                    false => batch.done.len() as u64,
                };
                engine.arrived(count, false);
                queues.insert(id);
            }
        }
        let Some(host) = self.hosts.get(namespace) else {
            return;
        };
        for engine in queues.iter().filter_map(|id| host.queues.get(id)) {
            count(engine, host.session, Counted::Again, &mut self.calls);
        }
    }

    /// A client may not write to a topic, or it is gone.
    pub(super) fn not_opened(&mut self, id: ClientId, topic: TopicId, error: &ErrorReply) {
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        let namespace = client.namespace.clone();
        let publisher = client.publisher.as_mut();
        let batches = publisher.map_or_else(Vec::new, |one| one.refused(topic));
        self.dirty.clients.insert(id);
        let result = Err(error.clone());
        for batch in batches {
            self.stored(id, &namespace, batch, &result);
        }
    }
}

/// A queue of a message has kept it, or has not.
fn answered(client: &mut Client, key: amqp::ChannelKey, number: Option<u64>, is_kept: bool) {
    if let Some(number) = number
        && let Some(open) = client.channels.get_mut(&key)
    {
        open.channel.answered(number, is_kept);
        client.confirming.insert(key);
    }
}

/// What RabbitMQ checks of properties.
fn check(fields: &Properties, user: &str) -> Result<(), Failure> {
    if let Some(expiration) = &fields.expiration {
        let text = String::from_utf8_lossy(expiration);
        if text.is_empty() || text.parse::<u32>().is_err() {
            let why = format!("invalid expiration '{text}': it is a number of milliseconds");
            return Err(refuse(ReplyCode::PreconditionFailed, why));
        }
    }
    if let Some(said) = &fields.user_id
        && **said != *user.as_bytes()
    {
        let said = String::from_utf8_lossy(said);
        let why = format!("user_id property set to '{said}' but authenticated user was '{user}'");
        return Err(refuse(ReplyCode::PreconditionFailed, why));
    }
    Ok(())
}
