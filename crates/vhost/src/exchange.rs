//! What an exchange is.

use crate::arguments::{ArgumentError, Arguments, differing, quoted, type_name};
use crate::id::ExchangeId;
use crate::name::Name;
use crate::refusal::Refusal;
use amqp::{Failure, Value};
use std::sync::Arc;

/// The argument that names where messages go that match no binding.
pub(crate) const ALTERNATE: &str = "alternate-exchange";

/// How an exchange routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the README says what each does")]
pub enum ExchangeKind {
    Direct,
    Fanout,
    Topic,
    Headers,
}

impl ExchangeKind {
    /// All of them, in the order of their numbers in records.
    pub const ALL: [Self; 4] = [Self::Direct, Self::Fanout, Self::Topic, Self::Headers];

    /// Its name, as clients say it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Fanout => "fanout",
            Self::Topic => "topic",
            Self::Headers => "headers",
        }
    }

    pub(crate) fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// An exchange as it was declared.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the fields say it")]
pub struct Exchange {
    pub id: ExchangeId,
    pub name: Arc<str>,
    pub kind: ExchangeKind,
    pub durable: bool,
    /// It goes when the last of its bindings goes.
    pub auto_delete: bool,
    /// Clients may not publish to it.
    pub internal: bool,
    pub arguments: Arguments,
}

/// The exchanges that are always there, by their ids: the default one has no name.
pub(crate) const PREDECLARED: [(&str, ExchangeKind); 7] = [
    ("", ExchangeKind::Direct),
    ("amq.direct", ExchangeKind::Direct),
    ("amq.fanout", ExchangeKind::Fanout),
    ("amq.topic", ExchangeKind::Topic),
    ("amq.headers", ExchangeKind::Headers),
    ("amq.match", ExchangeKind::Headers),
    ("amq.rabbitmq.trace", ExchangeKind::Topic),
];

/// The first id that is free for others.
pub(crate) const FIRST_ID: u64 = 16;

/// The default exchange.
pub(crate) const DEFAULT: ExchangeId = ExchangeId(0);

impl Exchange {
    /// Those that are always there.
    pub(crate) fn predeclared() -> impl Iterator<Item = Self> {
        PREDECLARED.iter().zip(0..).map(|((name, kind), id)| Self {
            id: ExchangeId(id),
            name: (*name).into(),
            kind: *kind,
            durable: true,
            auto_delete: false,
            internal: *name == "amq.rabbitmq.trace",
            arguments: Arguments::default(),
        })
    }

    /// Whether it is always there, and has no record.
    pub(crate) const fn is_predeclared(&self) -> bool {
        self.id.0 < FIRST_ID
    }

    /// Where messages go that match no binding of it.
    pub(crate) fn alternate(&self) -> Option<Arc<str>> {
        Some(self.arguments.get(ALTERNATE)?.as_str()?.into())
    }

    /// Whether it can have its arguments.
    pub(crate) fn check(&self) -> Result<(), ArgumentError> {
        match self.arguments.get(ALTERNATE) {
            None | Some(Value::String(_)) => Ok(()),
            Some(other) => Err(ArgumentError::Type {
                argument: ALTERNATE,
                found: type_name(&other),
            }),
        }
    }

    /// Bytes of what a client chose of it.
    pub(crate) fn bytes(&self) -> usize {
        self.name.len() + self.arguments.as_bytes().len()
    }

    pub(crate) fn as_name(&self) -> Name {
        Name::Exchange(self.name.clone())
    }

    /// Whether a second declaration says the same.
    pub(crate) fn check_same(&self, again: &Self, refusal: Refusal<'_>) -> Result<(), Failure> {
        let name = self.as_name();
        let differs = |field: &str, received: String, current: String| {
            Err(refusal.inequivalent(&name, field, &received, &current))
        };
        if self.kind != again.kind {
            return differs("type", quoted(again.kind.name()), quoted(self.kind.name()));
        }
        let flags = [
            ("durable", self.durable, again.durable),
            ("auto_delete", self.auto_delete, again.auto_delete),
            ("internal", self.internal, again.internal),
        ];
        for (field, current, received) in flags {
            if current != received {
                return differs(field, quoted(received), quoted(current));
            }
        }
        check_argument(&name, ALTERNATE, &again.arguments, &self.arguments, refusal)
    }
}

/// Whether an argument of a second declaration has the value of the first.
pub(crate) fn check_argument(
    name: &Name,
    argument: &str,
    received: &Arguments,
    current: &Arguments,
    refusal: Refusal<'_>,
) -> Result<(), Failure> {
    let (received, current) = (received.get(argument), current.get(argument));
    let is_same = match (&received, &current) {
        (None, None) => true,
        (Some(received), Some(current)) => crate::arguments::is_same(received, current),
        _ => false,
    };
    if is_same {
        return Ok(());
    }
    let (received, current) = differing(received.as_ref(), current.as_ref());
    Err(refusal.inequivalent(name, argument, &received, &current))
}
