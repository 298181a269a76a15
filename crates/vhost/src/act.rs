//! Acts: what clients ask of a virtual host, what has to be done for it, and what becomes of it.

use crate::id::{ActId, ExchangeId, QueueId};
use crate::name::DirectReply;
use crate::queue::Queue;
use crate::record::Record;
use amqp::{Failure, MethodId, basic, exchange, queue};
use std::sync::Arc;

/// What a client asks for. Names of queues are said: which one was declared last is known to its channel.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the method that it holds")]
pub enum Act {
    DeclareExchange(exchange::Declare),
    DeleteExchange(exchange::Delete),
    BindExchange(exchange::Bind),
    UnbindExchange(exchange::Unbind),
    DeclareQueue {
        declare: queue::Declare,
        /// For the name of a queue that has none: bits that nobody guesses.
        chance: u128,
    },
    DeleteQueue(queue::Delete),
    BindQueue(queue::Bind),
    UnbindQueue(queue::Unbind),
    /// Ends with [`Answer::Consuming`], and with [`crate::Vhost::end_consumer`] at last.
    Consume(basic::Consume),
}

impl Act {
    pub(crate) const fn method(&self) -> MethodId {
        match self {
            Self::DeclareExchange(_) => exchange::Declare::ID,
            Self::DeleteExchange(_) => exchange::Delete::ID,
            Self::BindExchange(_) => exchange::Bind::ID,
            Self::UnbindExchange(_) => exchange::Unbind::ID,
            Self::DeclareQueue { .. } => queue::Declare::ID,
            Self::DeleteQueue(_) => queue::Delete::ID,
            Self::BindQueue(_) => queue::Bind::ID,
            Self::UnbindQueue(_) => queue::Unbind::ID,
            Self::Consume(_) => basic::Consume::ID,
        }
    }
}

/// Why the server removes a queue by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    /// Its last consumer has gone, and it is an auto-delete queue.
    Unused,
    /// Nobody has used it for as long as it says.
    Expired,
    /// It was the queue of a connection that has ended.
    Disconnected,
}

/// What a claim comes to.
#[derive(Debug)]
#[must_use]
pub enum Claimed {
    /// Nothing is to be carried out: this is the answer.
    Done(Answer),
    /// Another act has the name for now. The same is to be claimed again when that one is settled.
    Wait(ActId),
    /// The names are held for this act until it is settled.
    Begun(Plan),
}

/// What is to be carried out for an act, in this order: make the topic, append the records, settle.
#[derive(Debug, Clone)]
pub struct Plan {
    /// To settle it by.
    pub act: ActId,
    /// The queue whose topic is to be made.
    pub create: Option<Arc<Queue>>,
    /// The queue that is to have no message, else the act ends with [`Outcome::NotEmpty`].
    pub only_if_empty: Option<QueueId>,
    /// To be appended together, all or none. There are none for what is not durable.
    pub records: Vec<Record>,
}

/// How carrying out an act ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The topic is there and the records are appended.
    Done,
    /// Something failed, and no record was appended. The text is for the client. Where it is not known whether the records
    /// are in the log, no act can be settled: the virtual host is to be recovered from it.
    Failed(String),
    /// The queue that was to be empty has messages.
    NotEmpty,
}

/// What becomes of an act that is settled.
#[derive(Debug)]
#[must_use]
pub struct Settled {
    /// What the client gets. A client that has gone gets nothing.
    pub answer: Result<Answer, Failure>,
    /// What is to be done now. It may be done again after a crash, and fails no act.
    pub effects: Vec<Effect>,
}

/// What the owner of a virtual host does when something has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Nobody refers to the topic of this queue any more, if it was made: it is to be deleted.
    DeleteTopic(QueueId),
    /// The consumers of this queue are to be cancelled, and their clients notified.
    CancelConsumers(QueueId),
    /// This queue is to be removed by [`crate::Vhost::remove_queue`]. It comes again, to be tried later, when that fails.
    RemoveQueue(QueueId, Removal),
}

/// The answer to an act. The counts of messages are the caller's.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// The exchange is there.
    ExchangeDeclared(ExchangeId),
    /// The exchange is not there.
    ExchangeDeleted,
    /// The binding is there.
    Bound,
    /// The binding is not there.
    Unbound,
    /// The queue is there, with its name, which the server may have chosen.
    QueueDeclared {
        /// The queue.
        queue: Arc<Queue>,
        /// How many consumers it has.
        consumers: u32,
    },
    /// The queue is not there; this was it, if there was one.
    QueueDeleted(Option<QueueId>),
    /// A consumer may begin.
    Consuming(Consumer),
    /// It is about the pseudo-queue of direct replies, whose consumers the caller knows.
    DirectReply(DirectReply),
}

/// A consumer that a queue counts. It is given back by [`crate::Vhost::end_consumer`].
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct Consumer {
    pub(crate) queue: QueueId,
}

impl Consumer {
    /// Which queue it consumes.
    pub const fn queue(&self) -> QueueId {
        self.queue
    }
}
