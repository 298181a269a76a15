//! Ids. None of them is ever used a second time.

use crate::faults::{Fault, planted};
use std::fmt;

/// Declares ids that are numbers.
macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident, $word:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($word, " {}"), self.0)
            }
        }
    )*};
}

ids! {
    /// A queue. A queue that is deleted and declared again under its name is another one. Ids go on after a restart.
    QueueId, "queue";
    /// An exchange, likewise.
    ExchangeId, "exchange";
    /// A client's connection to the virtual host, until it ends.
    ConnectionId, "connection";
    /// An act that was claimed and is to be settled.
    ActId, "act";
}

/// Where a binding leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "each is the id that it holds")]
pub enum Destination {
    Queue(QueueId),
    Exchange(ExchangeId),
}

/// How many ids one record reserves.
const RESERVED_AT_ONCE: u64 = 1024;

/// The greatest id that there is, so that there is always a next one.
pub(crate) const ID_MAX: u64 = u64::MAX >> 1;

/// Which ids are next. An id is given out when no record reserves it yet, and then the act that has it writes that
/// record: what is not durable itself gets no id twice either.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ids {
    next: u64,
    /// Ids below are on record: after a restart they are not given out.
    reserved: u64,
}

impl Ids {
    pub const fn from(first: u64) -> Self {
        Self {
            next: first,
            reserved: first,
        }
    }

    /// The next id and, if it is not reserved, below which ids are to be with it.
    pub fn take(&mut self) -> (u64, Option<u64>) {
        let id = self.next;
        self.next += 1;
        (id, (id >= self.reserved).then_some(id + RESERVED_AT_ONCE))
    }

    /// Ids below are on record now.
    pub fn reserve(&mut self, below: u64) {
        self.reserved = self.reserved.max(below);
    }

    /// Whether an id is on record.
    pub fn has(&self, id: u64) -> bool {
        id < self.reserved
    }

    /// After a restart: none of what is on record is given out again.
    pub fn skip_reserved(&mut self) {
        if !planted(Fault::IdsAgain) {
            self.next = self.next.max(self.reserved);
        }
    }

    /// What a snapshot has to reserve.
    pub fn below(&self) -> u64 {
        self.next.max(self.reserved)
    }
}
