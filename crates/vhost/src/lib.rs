//! What an AMQP virtual host is, as plain state: exchanges, queues and bindings, the routing of messages, and the records
//! that make the durable part of it persistent; and a client's [`Channel`]. No I/O, no clock, no chance: their owner brings them.
//!
//! What a client asks for is an [`Act`] in three phases, because a queue is a topic, and topics are made and deleted
//! elsewhere: [`Vhost::claim`] checks it and holds the names, the caller carries out its [`Plan`], and [`Vhost::settle`]
//! makes the change or leaves everything as it was.
//!
//! ```
//! use vhost::{Act, Answer, Claimed, Limits, Message, Outcome, Vhost};
//!
//! let mut vhost = Vhost::new("/", Limits::default());
//! let connection = vhost.connect();
//! let declare = amqp::queue::Declare {
//!     queue: amqp::ShortString::truncated("jobs"),
//!     durable: true,
//!     ..amqp::queue::Declare::default()
//! };
//! let act = Act::DeclareQueue { declare, chance: 0 };
//! let Claimed::Begun(plan) = vhost.claim(connection, &act)? else {
//!     unreachable!("nobody else declares it");
//! };
//! // Here the topic of `plan.create` is made, and `plan.records` are appended to a log.
//! let bytes: Vec<_> = plan.records.iter().map(vhost::Record::encode).collect();
//! let settled = vhost.settle(plan.act, Outcome::Done);
//! assert!(matches!(settled.answer, Ok(Answer::QueueDeclared { .. })));
//!
//! let message = Message { exchange: "", routing_key: "jobs", headers: None };
//! assert_eq!(vhost.route(&message)?.queues.len(), 1);
//!
//! // After a restart.
//! let records = bytes.iter().map(|bytes| vhost::Record::decode(bytes).unwrap());
//! let again = Vhost::recover("/", Limits::default(), records).unwrap();
//! assert_eq!(again.route(&message)?, vhost.route(&message)?);
//! # Ok::<(), amqp::Failure>(())
//! ```
//!
//! The README has the states of an act and of a name, and what holds in them.

#![forbid(unsafe_code)]

mod act;
mod arguments;
mod binding;
mod change;
mod channel;
mod confirms;
mod exchange;
mod faults;
mod headers;
mod id;
mod limits;
mod name;
mod planner;
mod queue;
mod record;
mod refusal;
mod reservation;
mod route;
mod routes;
mod shrink;
mod state;
mod targets;
mod trie;
mod unacked;
mod vhost;

pub use act::{Act, Answer, Claimed, Consumer, Effect, Outcome, Plan, Removal, Settled};
pub use arguments::Arguments;
pub use channel::{
    Channel, ChannelLimits, Closed, NO_ROUTE, NewConsumer, Publishing, Released, Settlement,
    no_transactions,
};
pub use exchange::{Exchange, ExchangeKind};
pub use id::{ActId, ConnectionId, ExchangeId, QueueId};
pub use limits::Limits;
pub use name::DirectReply;
pub use queue::{Overflow, Queue, QueueOptions};
pub use record::{Record, RecordError};
pub use route::{Message, Routed};
pub use unacked::Delivered;
pub use vhost::{RecoverError, Vhost};

#[cfg(test)]
mod tests;
