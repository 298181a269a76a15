//! What an act changes.

use crate::binding::Binding;
use crate::exchange::Exchange;
use crate::id::{ExchangeId, QueueId};
use crate::queue::Queue;
use std::sync::Arc;

/// One change of a virtual host. A deletion takes the bindings at both ends along; exchanges that go with the last of
/// their bindings are changes of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    /// Ids below are given out, or may be.
    IdsReserved {
        below: u64,
    },
    ExchangeDeclared(Arc<Exchange>),
    ExchangeDeleted(ExchangeId),
    QueueDeclared(Arc<Queue>),
    QueueDeleted(QueueId),
    Bound(Arc<Binding>),
    Unbound(Arc<Binding>),
}

impl Change {
    /// The id that it is the first to use.
    pub fn new_id(&self) -> Option<u64> {
        match self {
            Self::ExchangeDeclared(exchange) => Some(exchange.id.0),
            Self::QueueDeclared(queue) => Some(queue.id.0),
            _ => None,
        }
    }
}
