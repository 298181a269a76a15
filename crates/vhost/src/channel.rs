//! A channel of a client: the queue that it declared last, its consumers, what they have not settled, and the confirms of
//! what it publishes.

use crate::act::Consumer;
use crate::arguments::{ArgumentError, type_name};
use crate::confirms::Confirms;
use crate::faults::{Fault, planted};
use crate::id::QueueId;
use crate::name::{Name, generated_tag};
use crate::refusal::Refusal;
use crate::unacked::{ConsumerKey, Delivered, Delivery, Unacked, UnknownTag};
use amqp::{Failure, Method, MethodId, ReplyCode, ShortString, basic, tx};
use std::collections::HashMap;
use std::sync::Arc;

/// Bounds of one channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChannelLimits {
    /// Consumers: 1,024. A further one is refused.
    pub consumers_max: usize,
    /// Deliveries without an acknowledgement, whatever the client's prefetch counts are: 1,048,576. Then nothing more is
    /// delivered, and what is fetched is refused.
    pub unacked_max: usize,
    /// Published messages without a confirm: 65,536. Then the channel [`Channel::is_full`].
    pub unconfirmed_max: usize,
}

impl Default for ChannelLimits {
    fn default() -> Self {
        Self {
            consumers_max: 1024,
            unacked_max: 1 << 20,
            unconfirmed_max: 1 << 16,
        }
    }
}

/// A consumer that a client asks for and may have, as far as its channel knows.
#[derive(Debug, Clone)]
#[must_use]
pub struct NewConsumer {
    tag: ShortString,
    no_ack: bool,
    priority: i64,
}

/// A consumer that has begun.
#[derive(Debug)]
struct Entry {
    key: ConsumerKey,
    consumer: Consumer,
    no_ack: bool,
    priority: i64,
    /// The prefetch count that it began with; 0 is without.
    prefetch: u16,
    /// What it has not settled.
    unacked: usize,
}

/// What becomes of deliveries that a client settles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settlement {
    /// They are done.
    Acknowledge,
    /// They go back to their places in their queues, to be delivered again.
    Requeue,
    /// They are dead letters.
    Discard,
}

/// Deliveries that a client settles, in the order of their tags.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct Released<M> {
    /// What becomes of them.
    pub settlement: Settlement,
    /// Which ones. Their queues may be gone.
    pub deliveries: Vec<Delivered<M>>,
}

/// What a channel leaves when it ends.
#[derive(Debug)]
#[must_use]
pub struct Closed<M> {
    /// To be given back by [`crate::Vhost::end_consumer`].
    pub consumers: Vec<Consumer>,
    /// To be requeued.
    pub deliveries: Vec<Delivered<M>>,
}

/// What is to be done for a published message before its confirm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Publishing {
    /// It is appended to its queues, and [`Channel::answered`] says what each of them did.
    Append,
    /// It goes nowhere, and is sent back with [`NO_ROUTE`].
    SendBack,
    /// It goes nowhere, and that is no matter.
    Drop,
}

/// Code and text of `basic.return` for a mandatory message without a queue.
pub const NO_ROUTE: (u16, &str) = (ReplyCode::NoRoute.number(), ReplyCode::NoRoute.name());

/// A channel that is open. `M` is how its owner knows a message that is delivered: where it lies, and its lease.
///
/// It ends by [`Channel::close`]. What a client sends on a channel that has failed is dropped by [`amqp::Connection`] until
/// the client agrees, so that none of it comes here.
#[derive(Debug)]
pub struct Channel<M> {
    vhost: Arc<str>,
    limits: ChannelLimits,
    last_queue: Option<Arc<str>>,
    consumers: HashMap<ShortString, Entry>,
    /// The consumer of direct replies, which has no queue.
    reply_consumer: Option<ShortString>,
    /// The tags of consumers by their keys, for deliveries that are settled: a tag may be another consumer's by then.
    tags: HashMap<ConsumerKey, ShortString>,
    consumers_begun: u64,
    /// The prefetch count of consumers that begin from now on; 0 is without.
    prefetch: u16,
    /// That of all consumers together.
    prefetch_of_all: u16,
    /// Deliveries to consumers, also to those that have ended, that are not settled.
    unacked_of_consumers: usize,
    unacked: Unacked<M>,
    confirms: Confirms,
}

impl<M> Channel<M> {
    /// One that has just been opened, of a connection to this virtual host.
    pub fn new(vhost: &str, limits: ChannelLimits) -> Self {
        Self {
            vhost: vhost.into(),
            limits,
            last_queue: None,
            consumers: HashMap::new(),
            reply_consumer: None,
            tags: HashMap::new(),
            consumers_begun: 0,
            prefetch: 0,
            prefetch_of_all: 0,
            unacked_of_consumers: 0,
            unacked: Unacked::new(),
            confirms: Confirms::default(),
        }
    }

    fn refusal(&self, method: MethodId) -> Refusal<'_> {
        Refusal {
            vhost: &self.vhost,
            method,
        }
    }

    /// A queue was declared on it, also passively.
    pub fn declared(&mut self, queue: &str) {
        self.last_queue = Some(queue.into());
    }

    /// The queue that a method names: the one declared last, if it has no name.
    ///
    /// # Errors
    /// If none was declared.
    pub fn queue_name(&self, named: &str, method: MethodId) -> Result<Arc<str>, Failure> {
        match (&self.last_queue, named) {
            (Some(last), "") => Ok(last.clone()),
            (None, "") => {
                let refusal = self.refusal(method);
                Err(refusal.with(ReplyCode::NotFound, "no previously declared queue"))
            }
            (_, named) => Ok(named.into()),
        }
    }

    /// The key by which a method binds a queue: without a queue's name and a key it is the name of the one declared last.
    ///
    /// # Errors
    /// As [`Channel::queue_name`].
    pub fn binding_key(
        &self,
        named: &str,
        key: &str,
        method: MethodId,
    ) -> Result<Arc<str>, Failure> {
        match (named, key) {
            ("", "") => self.queue_name("", method),
            (_, key) => Ok(key.into()),
        }
    }

    /// The client limits what it has not settled: of each consumer that begins from now on, or of all together. The first
    /// takes a limit of all away, as with RabbitMQ.
    pub fn qos(&mut self, qos: &basic::Qos) {
        match qos.global {
            true => self.prefetch_of_all = qos.prefetch_count,
            false => {
                self.prefetch = qos.prefetch_count;
                self.prefetch_of_all = 0;
            }
        }
    }

    /// Checks a consumer that a client asks for, before its queue is. `chance` is for the tag of one without.
    ///
    /// # Errors
    /// If its tag is in use, it has a priority that is none, or there are too many.
    pub fn check_consumer(
        &self,
        consume: &basic::Consume,
        chance: u128,
    ) -> Result<NewConsumer, Failure> {
        let refusal = self.refusal(basic::Consume::ID);
        let tag = match &*consume.consumer_tag {
            "" => generated_tag(chance),
            _ => consume.consumer_tag.clone(),
        };
        if self.consumers.contains_key(&tag) || self.reply_consumer.as_ref() == Some(&tag) {
            let text = format!("attempt to reuse consumer tag '{}'", &*tag);
            return Err(refusal.with(ReplyCode::NotAllowed, text));
        }
        let max = self.limits.consumers_max;
        if self.consumers.len() >= max {
            let text = format!("reached maximum ({max}) of consumers per channel");
            return Err(refusal.with(ReplyCode::NotAllowed, text));
        }
        let priority = match consume.arguments.get("x-priority") {
            None => 0,
            Some(value) => value.as_integer().ok_or_else(|| {
                let queue = Name::Queue((&*consume.queue).into());
                let why = format!("\"expected integer, got {}\"", type_name(&value));
                refusal.argument(
                    &queue,
                    &ArgumentError::Invalid {
                        argument: "x-priority",
                        why,
                    },
                )
            })?,
        };
        Ok(NewConsumer {
            tag,
            no_ack: consume.no_ack,
            priority,
        })
    }

    /// A consumer that was checked has its queue, and begins. Gives its tag.
    pub fn begin_consumer(&mut self, new: NewConsumer, consumer: Consumer) -> ShortString {
        let key = ConsumerKey(self.consumers_begun);
        self.consumers_begun += 1;
        let entry = Entry {
            key,
            consumer,
            no_ack: new.no_ack,
            priority: new.priority,
            prefetch: self.prefetch,
            unacked: 0,
        };
        self.tags.insert(key, new.tag.clone());
        self.consumers.insert(new.tag.clone(), entry);
        new.tag
    }

    /// A consumer that was checked is that of direct replies: [`crate::Answer::DirectReply`] was the answer to it. Gives its
    /// tag.
    ///
    /// # Errors
    /// If it wants to acknowledge, or there is one.
    pub fn begin_replies(&mut self, new: NewConsumer) -> Result<ShortString, Failure> {
        let refusal = self.refusal(basic::Consume::ID);
        let why = match &self.reply_consumer {
            _ if !new.no_ack => "reply consumer cannot acknowledge",
            Some(_) => "reply consumer already set",
            None => {
                self.reply_consumer = Some(new.tag.clone());
                return Ok(new.tag);
            }
        };
        Err(refusal.precondition(why))
    }

    /// The consumer of direct replies, and the tag of a delivery to it. Nothing if there is none: the reply is dropped.
    pub fn deliver_reply(&mut self) -> Option<(ShortString, u64)> {
        let consumer = self.reply_consumer.clone()?;
        Some((consumer, self.unacked.pass()))
    }

    /// Whether a message may ask for a direct reply.
    ///
    /// # Errors
    /// If nothing consumes such replies on this channel.
    pub fn check_replies(&self) -> Result<(), Failure> {
        let refusal = self.refusal(basic::Publish::ID);
        match self.reply_consumer {
            Some(_) => Ok(()),
            None => {
                let why = "fast reply consumer does not exist";
                Err(refusal.precondition(why))
            }
        }
    }

    /// A client ends a consumer. What it has not settled it still may. Nothing if there is none: that is no error.
    pub fn cancel(&mut self, tag: &ShortString) -> Option<Consumer> {
        self.reply_consumer.take_if(|consumer| consumer == tag);
        let entry = self.consumers.remove(tag)?;
        self.tags.remove(&entry.key);
        Some(entry.consumer)
    }

    /// A queue is gone: the consumers that had it, by their tags. Their clients are notified, if they can be.
    pub fn cancel_all_of(&mut self, queue: QueueId) -> Vec<(ShortString, Consumer)> {
        let of_queue = |(tag, entry): (&ShortString, &Entry)| {
            (entry.consumer.queue() == queue).then(|| tag.clone())
        };
        let mut tags: Vec<_> = self.consumers.iter().filter_map(of_queue).collect();
        tags.sort();
        let cancelled = tags.into_iter().map(|tag| {
            let consumer = self.cancel(&tag).expect("it was just there");
            (tag, consumer)
        });
        cancelled.collect()
    }

    /// The priority of a consumer: those with a greater one get messages first, while they may have more.
    pub fn priority(&self, tag: &ShortString) -> Option<i64> {
        self.consumers.get(tag).map(|entry| entry.priority)
    }

    /// How many messages more a consumer may have: by its own prefetch count, that of the channel, and the channel's bound.
    /// One that acknowledges nothing may have any number.
    pub fn capacity(&self, tag: &ShortString) -> usize {
        let Some(entry) = self.consumers.get(tag) else {
            return 0;
        };
        if entry.no_ack || planted(Fault::NoPrefetch) {
            return usize::MAX;
        }
        let left = |max: u16, count: usize| match max {
            0 => usize::MAX,
            max => usize::from(max).saturating_sub(count),
        };
        let own = left(entry.prefetch, entry.unacked);
        let of_all = left(self.prefetch_of_all, self.unacked_of_consumers);
        let bound = self.limits.unacked_max.saturating_sub(self.unacked.len());
        own.min(of_all).min(bound)
    }

    /// Whether so many deliveries, which were just released, are room for other consumers than theirs: by the channel's
    /// own bounds.
    pub fn made_room_for_all(&self, released: usize) -> bool {
        self.prefetch_of_all > 0 || self.unacked.len() + released >= self.limits.unacked_max
    }

    /// A message is delivered to a consumer. Gives the tag of the delivery.
    ///
    /// # Errors
    /// The message, if the consumer has ended or may have no more: it goes back to its place.
    pub fn deliver(&mut self, tag: &ShortString, message: M) -> Result<u64, M> {
        if self.capacity(tag) == 0 {
            return Err(message);
        }
        let Some(entry) = self.consumers.get_mut(tag) else {
            return Err(message);
        };
        if entry.no_ack {
            return Ok(self.unacked.pass());
        }
        entry.unacked += 1;
        self.unacked_of_consumers += 1;
        let queue = entry.consumer.queue();
        Ok(self.unacked.keep(Delivery {
            delivered: Delivered { queue, message },
            consumer: Some(entry.key),
        }))
    }

    /// Whether a client may fetch a message, before there is one: what it has not settled is bounded in all.
    ///
    /// # Errors
    /// If it has to acknowledge some first.
    pub fn check_fetch(&self, get: &basic::Get) -> Result<(), Failure> {
        let (max, count) = (self.limits.unacked_max, self.unacked.len());
        match get.no_ack || count < max {
            true => Ok(()),
            false => {
                let text = format!(
                    "{count} deliveries of the channel are not acknowledged, and {max} are the most"
                );
                Err(self.refusal(basic::Get::ID).precondition(text))
            }
        }
    }

    /// A message is fetched by `basic.get`, which no prefetch count limits. Gives the tag of the delivery.
    pub fn fetch(&mut self, queue: QueueId, message: M, no_ack: bool) -> u64 {
        if no_ack {
            return self.unacked.pass();
        }
        self.unacked_of_consumers += usize::from(planted(Fault::FetchedCounts));
        let consumer = None;
        let delivered = Delivered { queue, message };
        self.unacked.keep(Delivery {
            delivered,
            consumer,
        })
    }

    /// The client acknowledges deliveries.
    ///
    /// # Errors
    /// If the tag settles nothing.
    pub fn acknowledge(&mut self, ack: &basic::Ack) -> Result<Released<M>, Failure> {
        let settled = self.unacked.settle(ack.delivery_tag, ack.multiple);
        self.release(settled, Settlement::Acknowledge, basic::Ack::ID)
    }

    /// The client gives deliveries back, or refuses them.
    ///
    /// # Errors
    /// If the tag settles nothing.
    pub fn negate(&mut self, nack: &basic::Nack) -> Result<Released<M>, Failure> {
        let settled = self.unacked.settle(nack.delivery_tag, nack.multiple);
        self.release(settled, negative(nack.requeue), basic::Nack::ID)
    }

    /// The same of one delivery.
    ///
    /// # Errors
    /// If the tag settles nothing.
    pub fn reject(&mut self, reject: &basic::Reject) -> Result<Released<M>, Failure> {
        let settled = self.unacked.settle(reject.delivery_tag, false);
        self.release(settled, negative(reject.requeue), basic::Reject::ID)
    }

    /// The client gives all deliveries back.
    pub fn recover(&mut self) -> Released<M> {
        let all = self.unacked.take_all();
        self.released(all, Settlement::Requeue)
    }

    fn release(
        &mut self,
        settled: Result<Vec<Delivery<M>>, UnknownTag>,
        settlement: Settlement,
        method: MethodId,
    ) -> Result<Released<M>, Failure> {
        match settled {
            Ok(deliveries) => Ok(self.released(deliveries, settlement)),
            Err(UnknownTag(tag)) => {
                let text = format!("unknown delivery tag {tag}");
                Err(self
                    .refusal(method)
                    .with(ReplyCode::PreconditionFailed, text))
            }
        }
    }

    fn released(&mut self, deliveries: Vec<Delivery<M>>, settlement: Settlement) -> Released<M> {
        for delivery in &deliveries {
            let Some(key) = delivery.consumer else {
                self.unacked_of_consumers -= usize::from(planted(Fault::FetchedCounts));
                continue;
            };
            self.unacked_of_consumers -= 1;
            let tag = self.tags.get(&key);
            if let Some(entry) = tag.and_then(|tag| self.consumers.get_mut(tag)) {
                entry.unacked -= 1;
            }
        }
        let deliveries = deliveries
            .into_iter()
            .map(|delivery| delivery.delivered)
            .collect();
        Released {
            settlement,
            deliveries,
        }
    }

    /// A message is published, with its number if the channel has confirms, and is routed to so many queues. Addresses of
    /// direct replies count as queues, which answer once the reply is sent or there is nobody to send it to.
    ///
    /// What is said is to be done before [`Channel::confirms`] is asked for: a message that comes back does so before its confirm.
    pub fn publish(&mut self, number: Option<u64>, queues: usize, mandatory: bool) -> Publishing {
        if let Some(number) = number {
            self.confirms.publish(number, queues);
        }
        match (queues, mandatory) {
            (0, true) => Publishing::SendBack,
            (0, false) => Publishing::Drop,
            _ => Publishing::Append,
        }
    }

    /// One of the queues of a message with a number has kept it, or has refused it.
    pub fn answered(&mut self, number: u64, kept: bool) {
        self.confirms.answer(number, kept);
    }

    /// The confirms of all that is decided, to be sent in this order: [`basic::Ack`] and [`basic::Nack`].
    pub fn confirms(&mut self) -> Vec<Method> {
        self.confirms.take()
    }

    /// What of a queue is delivered on it, and not settled.
    pub fn held_of(&self, queue: QueueId) -> impl Iterator<Item = &M> {
        self.unacked.of(queue)
    }

    /// Whether so many messages have no confirm that its client is read no further.
    pub fn is_full(&self) -> bool {
        self.confirms.count() >= self.limits.unconfirmed_max
    }

    /// The channel ends: by its client, by a failure, or with its connection. Published messages go their way, without confirms.
    pub fn close(mut self) -> Closed<M> {
        let deliveries = self.recover().deliveries;
        let consumers = self.consumers.into_values().map(|entry| entry.consumer);
        Closed {
            consumers: consumers.collect(),
            deliveries,
        }
    }

    /// Checks what always holds.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        for entry in self.consumers.values() {
            assert_eq!(self.unacked.count_of(Some(entry.key)), entry.unacked);
        }
        let fetched = self.unacked.count_of(None);
        assert_eq!(self.unacked.len() - fetched, self.unacked_of_consumers);
        assert_eq!(self.tags.len(), self.consumers.len());
    }
}

const fn negative(requeue: bool) -> Settlement {
    match requeue {
        true => Settlement::Requeue,
        false => Settlement::Discard,
    }
}

/// What a client gets that asks for a transaction.
pub fn no_transactions() -> Failure {
    Failure::new(ReplyCode::NotImplemented, "transactions").of(tx::Select::ID)
}
