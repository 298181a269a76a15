//! The backend of AMQP 0-9-1: exchanges, queues and replies as the published simulator has them, on any server.
//!
//! ```text
//!  work sharing     producer ──► default exchange ──► workload-RUN-queue-I ──► its consumers
//!  broadcast        producer ──► fanout workload-RUN-all ──► workload-RUN-all-C, exclusive ──► consumer C
//!  reply, one       consumer ──► direct workload-RUN-replies ──► workload-RUN-replies-P, exclusive ──► producer P
//!  reply, gathered  consumer ──► default exchange ──► workload-RUN-replies-P ──► producer P
//! ```

mod connection;
mod stream;
pub mod url;

use super::backend::{Backend, Delivery, Outgoing, Settled, Sink, Source};
use crate::failure::Failure;
use ::amqp::{
    Properties, RawProperties, ShortBytes, Table, Value, basic, confirm, exchange, queue,
};
use bytes::Bytes;
use connection::{Connection, Event, Route, short};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use url::AmqpUrl;
use workload::{
    Acks, Common, Confirms, Member, Overflow, Pattern, QueueKind, Replies, STAMP_BYTES, Stamp, Task,
};

/// Where a member consumes, and a producer publishes.
const DATA: u16 = 1;
/// Where a consumer publishes replies, so that they do not wait for acknowledgements.
const ANSWERS: u16 = 2;
/// Messages that are taken at once.
const BATCH_MAX: usize = 256;
/// What a negative confirm means, which says no more.
const NACK: &str = "the server refuses the message (basic.nack): its queue is full, or storage is";
/// Of a message that survives a restart, and of one that does not.
const PERSISTENT: u8 = 2;
const TRANSIENT: u8 = 1;

/// A server. Each member has a connection of its own, as published, and a producer another one for replies.
pub struct Amqp {
    url: AmqpUrl,
    common: Common,
    /// Whether anything may have been made: where no server is, nothing is to be removed. Relaxed: it guards nothing.
    is_reached: AtomicBool,
}

impl Amqp {
    pub fn new(common: &Common) -> Result<Self, Failure> {
        let Some(url) = &common.url else {
            return Err(Failure::usage("url", "there is none"));
        };
        let url = AmqpUrl::parse(&url.0).map_err(|why| Failure::usage("url", why))?;
        Ok(Self {
            url,
            common: common.clone(),
            is_reached: AtomicBool::new(false),
        })
    }

    fn name(&self, what: &str) -> String {
        format!("workload-{:016x}-{what}", self.common.run)
    }

    fn queue(&self, index: u64) -> String {
        self.name(&format!("queue-{index}"))
    }

    /// Where dead letters of a queue go, if they go anywhere.
    fn dead_letters(&self, queue: &str) -> Option<String> {
        let is_kept = self.common.settings.overflow == Overflow::DeadLetter;
        is_kept.then(|| format!("{queue}-dead"))
    }

    fn open(&self) -> Result<Connection, Failure> {
        let mut connection = Connection::connect(&self.url)?;
        connection.open_channel(DATA)?;
        Ok(connection)
    }

    /// The bound of a queue of data, and what happens at it.
    fn arguments(&self, name: &str) -> Table {
        let settings = &self.common.settings;
        let kind = match settings.queue {
            QueueKind::Classic => "classic",
            QueueKind::Quorum => "quorum",
            QueueKind::Stream => unreachable!("scenarios with AMQP have none"),
        };
        let most = i64::try_from(settings.queue_messages_max).unwrap_or(i64::MAX);
        let overflow = match settings.overflow {
            Overflow::DropHead | Overflow::DeadLetter => "drop-head",
            Overflow::RejectPublish => "reject-publish",
        };
        let mut arguments = vec![
            ("x-queue-type", Value::text(kind)),
            ("x-max-length", Value::I64(most)),
            ("x-overflow", Value::text(overflow)),
        ];
        if let Some(dead) = self.dead_letters(name) {
            arguments.push(("x-dead-letter-exchange", Value::text("")));
            arguments.push(("x-dead-letter-routing-key", Value::text(&dead)));
        }
        Table::of(arguments)
    }

    /// A queue of data.
    fn data_queue(&self, name: &str, is_exclusive: bool) -> queue::Declare {
        queue::Declare {
            queue: short(name),
            durable: self.common.settings.durable_queues,
            exclusive: is_exclusive,
            auto_delete: is_exclusive,
            arguments: self.arguments(name),
            ..queue::Declare::default()
        }
    }

    /// A queue without a bound: of replies, or of dead letters.
    fn plain_queue(&self, name: &str, is_exclusive: bool) -> queue::Declare {
        queue::Declare {
            queue: short(name),
            // What is neither durable nor exclusive is refused by RabbitMQ from 4.3 on: it is as the others are.
            durable: self.common.settings.durable_queues && !is_exclusive,
            exclusive: is_exclusive,
            auto_delete: is_exclusive,
            ..queue::Declare::default()
        }
    }

    /// An exchange of the run, if its pattern has one: its name and its type.
    fn exchange(&self) -> Option<(String, &'static str)> {
        match self.common.pattern {
            Pattern::WorkSharing => None,
            Pattern::WorkSharingFeedback => Some((self.name("replies"), "direct")),
            Pattern::Broadcast | Pattern::BroadcastGather => Some((self.name("all"), "fanout")),
        }
    }

    /// The queues that members share, and those of dead letters.
    fn shared_queues(&self) -> Vec<queue::Declare> {
        let common = &self.common;
        let data: Vec<String> = match common.pattern.is_broadcast() {
            true => (0..common.consumers)
                .map(|index| self.own_queue(index))
                .collect(),
            false => (0..common.settings.queues)
                .map(|index| self.queue(index))
                .collect(),
        };
        let dead = data.iter().filter_map(|name| self.dead_letters(name));
        let mut queues: Vec<queue::Declare> =
            dead.map(|name| self.plain_queue(&name, false)).collect();
        if !common.pattern.is_broadcast() {
            queues.extend(data.iter().map(|name| self.data_queue(name, false)));
        }
        if common.pattern == Pattern::BroadcastGather {
            let replies = (0..common.producers).map(|index| self.reply_queue(index));
            queues.extend(replies.map(|name| self.plain_queue(&name, false)));
        }
        queues
    }

    /// The queue of a consumer of a broadcast.
    fn own_queue(&self, consumer: u64) -> String {
        self.name(&format!("all-{consumer}"))
    }

    /// The queue of a producer's replies.
    fn reply_queue(&self, producer: u64) -> String {
        self.name(&format!("replies-{producer}"))
    }

    /// Where messages of a task go.
    fn route(&self, task: &Task) -> Route {
        match task.queue {
            Some(index) => Route {
                exchange: short(""),
                key: short(&self.queue(index)),
            },
            None => Route {
                exchange: short(&self.name("all")),
                key: short(""),
            },
        }
    }

    /// Where replies of each producer go.
    fn answers(&self, replies: Replies) -> Vec<Route> {
        let exchange = match replies {
            Replies::None => return Vec::new(),
            Replies::Own => self.name("replies"),
            Replies::Shared => String::new(),
        };
        let producers = 0..self.common.producers;
        producers
            .map(|producer| Route {
                exchange: short(&exchange),
                key: short(&self.reply_queue(producer)),
            })
            .collect()
    }

    fn bind(&self, connection: &mut Connection, name: &str) -> Result<(), Failure> {
        let (exchange, _) = self.exchange().expect("only queues of exchanges are bound");
        let bind = queue::Bind {
            queue: short(name),
            exchange: short(&exchange),
            routing_key: short(name),
            ..queue::Bind::default()
        };
        connection.call(DATA, bind).map(|_| ())
    }

    /// Consumes the replies to a producer, on a connection of their own: a thread of its own waits for them.
    fn replies(&self, producer: u64, replies: Replies) -> Result<Option<Box<dyn Source>>, Failure> {
        let name = self.reply_queue(producer);
        if replies == Replies::None {
            return Ok(None);
        }
        let mut connection = self.open()?;
        if replies == Replies::Own {
            connection.call(DATA, self.plain_queue(&name, true))?;
            self.bind(&mut connection, &name)?;
        }
        let consume = basic::Consume {
            queue: short(&name),
            no_ack: true,
            exclusive: true,
            ..basic::Consume::default()
        };
        connection.call(DATA, consume)?;
        Ok(Some(Box::new(Incoming {
            connection,
            is_automatic: true,
            answers: Vec::new(),
            handled: VecDeque::new(),
        })))
    }
}

impl Backend for Amqp {
    fn prepare(&self) -> Result<(), Failure> {
        let mut connection = self.open()?;
        self.is_reached.store(true, Ordering::Relaxed);
        if let Some((name, kind)) = self.exchange() {
            let declare = exchange::Declare {
                exchange: short(&name),
                kind: short(kind),
                durable: true,
                ..exchange::Declare::default()
            };
            connection.call(DATA, declare)?;
        }
        for declare in self.shared_queues() {
            connection.call(DATA, declare)?;
        }
        connection.close()
    }

    fn remove(&self) -> Result<(), Failure> {
        if !self.is_reached.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut connection = self.open()?;
        for declared in self.shared_queues() {
            let delete = queue::Delete {
                queue: declared.queue,
                ..queue::Delete::default()
            };
            connection.call(DATA, delete)?;
        }
        if let Some((name, _)) = self.exchange() {
            let delete = exchange::Delete {
                exchange: short(&name),
                ..exchange::Delete::default()
            };
            connection.call(DATA, delete)?;
        }
        connection.close()
    }

    fn transport(&self) -> String {
        self.url.scheme().to_owned()
    }

    fn source(&self, task: &Task) -> Result<Box<dyn Source>, Failure> {
        let Member::Consumer(index) = task.member else {
            unreachable!("producers have sinks");
        };
        let settings = &self.common.settings;
        let mut connection = self.open()?;
        if task.replies != Replies::None {
            connection.open_channel(ANSWERS)?;
        }
        let name = match task.queue {
            Some(queue) => self.queue(queue),
            None => {
                let name = self.own_queue(index);
                connection.call(DATA, self.data_queue(&name, true))?;
                self.bind(&mut connection, &name)?;
                name
            }
        };
        let qos = basic::Qos {
            prefetch_count: u16::try_from(settings.prefetch)
                .expect("scenarios with AMQP have a prefetch of 16 bits"),
            ..basic::Qos::default()
        };
        connection.call(DATA, qos)?;
        let is_automatic = settings.acks == Acks::Automatic;
        let consume = basic::Consume {
            queue: short(&name),
            no_ack: is_automatic,
            ..basic::Consume::default()
        };
        connection.call(DATA, consume)?;
        Ok(Box::new(Incoming {
            connection,
            is_automatic,
            answers: self.answers(task.replies),
            handled: VecDeque::new(),
        }))
    }

    fn sink(&self, task: &Task) -> Result<Outgoing, Failure> {
        let Member::Producer(index) = task.member else {
            unreachable!("consumers have sources");
        };
        let replies = self.replies(index, task.replies)?;
        let mut connection = self.open()?;
        let is_confirmed = self.common.settings.confirms != Confirms::None;
        if is_confirmed {
            connection.call(DATA, confirm::Select::default())?;
        }
        let properties = Properties {
            delivery_mode: Some(match self.common.settings.durable_messages {
                true => PERSISTENT,
                false => TRANSIENT,
            }),
            reply_to: match task.replies {
                Replies::None => None,
                Replies::Own | Replies::Shared => Some(bytes_of(&self.reply_queue(index))),
            },
            ..Properties::default()
        };
        Ok(Outgoing {
            sink: Box::new(Published {
                connection,
                route: self.route(task),
                encoded: properties.encode(),
                properties,
                producer: index,
                is_confirmed,
                unconfirmed: Unconfirmed::default(),
            }),
            replies,
        })
    }
}

fn bytes_of(text: &str) -> ShortBytes {
    ShortBytes::try_from(text.as_bytes()).expect("names of a run have less than 255 bytes")
}

/// What joins a reply to its message: 32 characters, as published.
fn correlation(producer: u64, sequence: u64) -> ShortBytes {
    bytes_of(&format!("{producer:016x}{sequence:016x}"))
}

/// What comes to a consumer, or the replies that come to a producer.
struct Incoming {
    connection: Connection,
    /// Whether what was received is acknowledged by that.
    is_automatic: bool,
    /// Where replies go, by producer.
    answers: Vec<Route>,
    /// The tags of what came and is not acknowledged, in order.
    handled: VecDeque<u64>,
}

impl Source for Incoming {
    fn receive(&mut self, wait: Duration) -> Result<Vec<Delivery>, Failure> {
        let mut came = Vec::new();
        let mut next = self.connection.next(wait)?;
        while let Some(event) = next {
            // Of replies nobody asks for confirms.
            if let Event::Delivery(delivery) = event {
                if !self.is_automatic {
                    self.handled.push_back(delivery.tag);
                }
                came.push(Delivery {
                    message: delivery.body,
                    is_flagged: delivery.is_redelivered,
                });
            }
            if came.len() >= BATCH_MAX {
                break;
            }
            next = self.connection.read_next()?;
        }
        Ok(came)
    }

    fn reply(&mut self, stamp: Stamp, message: Bytes) -> Result<(), Failure> {
        let Some(route) = self.answers.get(stamp.producer as usize) else {
            return Ok(());
        };
        let properties = Properties {
            delivery_mode: Some(TRANSIENT),
            correlation_id: Some(correlation(stamp.producer.into(), stamp.sequence)),
            ..Properties::default()
        };
        let pieces: [&[u8]; 3] = [&stamp.to_bytes(), &message[STAMP_BYTES..], &[]];
        self.connection
            .publish(ANSWERS, route, &properties.encode(), pieces)
    }

    fn acknowledge(&mut self, count: usize) -> Result<(), Failure> {
        let count = count.min(self.handled.len());
        let Some(delivery_tag) = self.handled.drain(..count).next_back() else {
            return Ok(());
        };
        let multiple = count > 1;
        self.connection.send(
            DATA,
            basic::Ack {
                delivery_tag,
                multiple,
            },
        )
    }

    fn finish(&mut self) -> Result<(), Failure> {
        self.acknowledge(usize::MAX)?;
        self.connection.close()
    }
}

/// A producer, and what the server has not confirmed yet.
struct Published {
    connection: Connection,
    route: Route,
    properties: Properties,
    /// The same, as they are sent where they are those of each message.
    encoded: RawProperties,
    producer: u64,
    is_confirmed: bool,
    unconfirmed: Unconfirmed,
}

/// What a server has not confirmed: tags and sequences, in order.
#[derive(Debug, Default)]
struct Unconfirmed {
    /// Of the last message. Tags count from 1.
    tag: u64,
    messages: VecDeque<(u64, u64)>,
}

impl Unconfirmed {
    fn push(&mut self, sequence: u64) {
        self.tag += 1;
        self.messages.push_back((self.tag, sequence));
    }

    /// Takes what the server says of a tag, or of all up to it. Tag 0 means all then.
    fn settle(&mut self, tag: u64, multiple: bool, is_taken: bool, settled: &mut Vec<Settled>) {
        let refused = (!is_taken).then_some(NACK);
        let tag = match (tag, multiple) {
            (0, true) => self.tag,
            _ => tag,
        };
        let end = self.messages.partition_point(|(one, _)| *one <= tag);
        let is_there = end > 0 && self.messages[end - 1].0 == tag;
        let begin = match (multiple, is_there) {
            (true, _) => 0,
            (false, true) => end - 1,
            (false, false) => end,
        };
        let settle = |(_, sequence)| Settled {
            sequence,
            refused: refused.map(str::to_owned),
        };
        settled.extend(self.messages.drain(begin..end).map(settle));
    }
}

impl Sink for Published {
    fn send(&mut self, sequence: u64, pieces: [&[u8]; 3]) -> Result<(), Failure> {
        let own;
        let properties = match self.properties.reply_to {
            None => &self.encoded,
            Some(_) => {
                self.properties.correlation_id = Some(correlation(self.producer, sequence));
                own = self.properties.encode();
                &own
            }
        };
        self.connection
            .publish(DATA, &self.route, properties, pieces)?;
        self.unconfirmed.push(sequence);
        Ok(())
    }

    fn settled(&mut self, wait: Duration) -> Result<Vec<Settled>, Failure> {
        let mut settled = Vec::new();
        if !self.is_confirmed {
            // What is written counts as taken: nobody says more. Nor is there anything to wait for then.
            self.unconfirmed.settle(0, true, true, &mut settled);
        }
        let wait = match settled.is_empty() {
            true => wait,
            false => Duration::ZERO,
        };
        let mut next = self.connection.next(wait)?;
        while let Some(event) = next {
            if let Event::Confirm {
                tag,
                multiple,
                is_taken,
            } = event
            {
                self.unconfirmed
                    .settle(tag, multiple, is_taken, &mut settled);
            }
            next = self.connection.read_next()?;
        }
        Ok(settled)
    }

    fn unanswered(&self) -> Failure {
        self.connection.unconfirmed(self.unconfirmed.messages.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sequences that are settled by what a server says.
    fn settle(unconfirmed: &mut Unconfirmed, tag: u64, multiple: bool) -> Vec<u64> {
        let mut settled = Vec::new();
        unconfirmed.settle(tag, multiple, true, &mut settled);
        settled.iter().map(|one| one.sequence).collect()
    }

    #[test]
    fn confirms_come_alone_together_and_in_any_order() {
        let mut unconfirmed = Unconfirmed::default();
        for sequence in 10..18 {
            unconfirmed.push(sequence);
        }
        assert_eq!(settle(&mut unconfirmed, 3, false), [12]);
        assert_eq!(settle(&mut unconfirmed, 3, false), [0; 0]);
        assert_eq!(settle(&mut unconfirmed, 5, true), [10, 11, 13, 14]);
        assert_eq!(settle(&mut unconfirmed, 7, false), [16]);
        assert_eq!(settle(&mut unconfirmed, 9, false), [0; 0]);
        assert_eq!(settle(&mut unconfirmed, 0, true), [15, 17]);
        unconfirmed.push(18);
        assert_eq!(settle(&mut unconfirmed, 9, true), [18]);
    }
}
