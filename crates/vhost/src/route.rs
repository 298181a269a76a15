//! Where a message goes.

use crate::exchange::DEFAULT;
use crate::faults::{Fault, planted};
use crate::id::{Destination, ExchangeId, QueueId};
use crate::name::DirectReply;
use crate::state::State;
use amqp::{Table, Value};
use std::collections::HashSet;
use std::sync::Arc;

/// What a message says of where it goes.
#[derive(Debug, Clone, Copy)]
pub struct Message<'a> {
    /// The exchange's name, as the client says it.
    pub exchange: &'a str,
    /// Its routing key.
    pub routing_key: &'a str,
    /// Its headers, if it has them. CC and BCC are read here, and BCC is the caller's to remove.
    pub headers: Option<&'a Table>,
}

/// Where a message goes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Routed {
    /// Queues, each once, in the order of their ids.
    pub queues: Vec<QueueId>,
    /// Addresses of consumers of direct replies.
    pub replies: Vec<Arc<str>>,
}

impl Routed {
    /// Whether it goes nowhere: a message that is mandatory is returned then.
    pub fn is_unroutable(&self) -> bool {
        self.queues.is_empty() && self.replies.is_empty()
    }
}

/// Why CC or BCC of a message cannot be followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BadCopies(pub String);

/// The routing keys of a message.
pub(crate) struct Keys<'a> {
    own: &'a str,
    copies: Vec<Value>,
}

impl<'a> Keys<'a> {
    /// One key alone.
    pub const fn of(own: &'a str) -> Self {
        let copies = Vec::new();
        Self { own, copies }
    }

    /// The key of a message, and those of its CC and BCC.
    pub fn of_message(message: &Message<'a>, max: usize) -> Result<Self, BadCopies> {
        let mut keys = Self::of(message.routing_key);
        for name in ["CC", "BCC"] {
            let header = message.headers.and_then(|headers| headers.get(name));
            let values = match header {
                None => continue,
                Some(Value::Array(values)) => values.values(),
                Some(other) => {
                    let found = crate::arguments::type_name(&other);
                    return Err(BadCopies(format!(
                        "invalid message: {{unacceptable_type_in_header,\"{name}\",{found}}}"
                    )));
                }
            };
            for value in values.filter(|value| matches!(value, Value::String(_))) {
                keys.add(value, name, max)?;
            }
        }
        Ok(keys)
    }

    fn add(&mut self, key: Value, name: &str, max: usize) -> Result<(), BadCopies> {
        let Some(text) = key.as_str() else {
            // No key that is bound is like it.
            return Ok(());
        };
        if text.len() > 255 {
            let bytes = text.len();
            return Err(BadCopies(format!(
                "invalid message: a key of {name} has {bytes} bytes, and 255 are the most"
            )));
        }
        if self.copies.len() + 1 >= max {
            return Err(BadCopies(format!(
                "invalid message: it has more than {max} routing keys, its own and those of CC and BCC"
            )));
        }
        self.copies.push(key);
        Ok(())
    }

    /// All of them, each once.
    fn texts(&self) -> Vec<&str> {
        let mut texts = vec![self.own];
        if !planted(Fault::NoCopies) && !self.copies.is_empty() {
            texts.extend(self.copies.iter().filter_map(Value::as_str));
            texts.sort_unstable();
            texts.dedup();
        }
        texts
    }
}

/// Where a message of these keys and headers goes from an exchange.
///
/// An exchange is looked at once, however often it is reached: bindings of exchanges may form a cycle.
pub(crate) fn route(
    state: &State,
    exchange: ExchangeId,
    keys: &Keys<'_>,
    headers: Option<&Table>,
) -> Routed {
    let keys = keys.texts();
    let mut routed = Routed::default();
    // Made when a binding leads to an exchange: most do not.
    let mut seen = HashSet::new();
    let start = exchange;
    let mut waiting = vec![exchange];
    let mut reached = Vec::new();
    while let Some(exchange) = waiting.pop() {
        if exchange == DEFAULT {
            by_name(state, &keys, &mut routed);
            continue;
        }
        let Some((routes, alternate)) = state.routes(exchange) else {
            continue;
        };
        reached.clear();
        routes.route(&keys, headers, &mut reached);
        if reached.is_empty() || planted(Fault::AlternateAlways) {
            let alternate = alternate.and_then(|name| state.exchange_named(name));
            reached.extend(alternate.map(|exchange| Destination::Exchange(exchange.id)));
        }
        for destination in &reached {
            match destination {
                Destination::Queue(id) => routed.queues.push(*id),
                Destination::Exchange(id) => {
                    if *id != start && seen.insert(*id) {
                        waiting.push(*id);
                    }
                }
            }
        }
    }
    if !planted(Fault::Twice) {
        routed.queues.sort_unstable();
        routed.queues.dedup();
    }
    routed
}

/// The default exchange: a key is a queue's name.
fn by_name(state: &State, keys: &[&str], routed: &mut Routed) {
    for key in keys {
        match DirectReply::of(key) {
            Some(DirectReply::Address(address)) => routed.replies.push(address),
            _ => routed.queues.extend(state.queue_id(key)),
        }
    }
}
