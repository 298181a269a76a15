//! Arguments of queues, exchanges and bindings.

use amqp::{Table, Value};
use bytes::Bytes;
use std::cmp::Ordering;
use std::fmt::Display;

/// A field table that is kept: its fields in the order of their names, in bytes of its own. Two that say the same are
/// equal, in whatever order a client wrote the fields.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Arguments(Table);

impl Arguments {
    /// What a client sent, copied out of its frame.
    pub(crate) fn of(table: &Table) -> Self {
        let mut fields: Vec<_> = table.fields().collect();
        // Of two fields of a name the first counts, so that they keep their order.
        fields.sort_by(|(one, _), (other, _)| one.cmp(other));
        let named = fields
            .iter()
            .map(|(name, value)| Some((name.as_str()?, value.clone())));
        match named.collect::<Option<Vec<_>>>() {
            Some(named) => Self(Table::of(named)),
            // A name that is no text stays where it is.
            None => Self::kept(Bytes::copy_from_slice(table.as_bytes())),
        }
    }

    fn kept(bytes: Bytes) -> Self {
        Self(Table::decode(bytes).expect("a copy of a table is one"))
    }

    /// Of the bytes of a record.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, amqp::DecodeError> {
        Table::decode(Bytes::copy_from_slice(bytes)).map(Self)
    }

    /// The table.
    pub fn table(&self) -> &Table {
        &self.0
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    pub(crate) fn get(&self, name: &str) -> Option<Value> {
        self.0.get(name)
    }
}

impl PartialOrd for Arguments {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Arguments {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

/// An argument that a queue, an exchange or a consumer cannot have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ArgumentError {
    /// Its value is none of those that it may have; `why` is as RabbitMQ prints it.
    Invalid { argument: &'static str, why: String },
    /// A name is no text.
    Type {
        argument: &'static str,
        found: &'static str,
    },
    /// It is of another type of queue.
    Foreign { argument: &'static str },
}

impl ArgumentError {
    /// What is wrong with the argument of `named`.
    pub fn text(&self, named: &str) -> String {
        match self {
            Self::Invalid { argument, why } => {
                format!("invalid arg '{argument}' for {named}: {why}")
            }
            Self::Type { argument, found } => {
                format!("invalid type '{found}' for arg '{argument}' in {named}")
            }
            Self::Foreign { argument } => {
                format!("invalid arg '{argument}' for {named} of queue type rabbit_classic_queue")
            }
        }
    }
}

/// Whether two values are the same for RabbitMQ: integers of any width are, and texts and bytes.
pub(crate) fn is_same(one: &Value, other: &Value) -> bool {
    match (one.as_integer(), other.as_integer()) {
        (Some(one), Some(other)) => return one == other,
        (None, None) => {}
        _ => return false,
    }
    match (one, other) {
        (Value::String(one) | Value::Bytes(one), Value::String(other) | Value::Bytes(other)) => {
            one == other
        }
        (Value::F32(one), Value::F64(other)) | (Value::F64(other), Value::F32(one)) => {
            f64::from(*one) == *other
        }
        _ => one == other,
    }
}

/// The two ways in which RabbitMQ's texts write what differs: with the type where one of both has no value.
pub(crate) fn differing(received: Option<&Value>, current: Option<&Value>) -> (String, String) {
    match (received, current) {
        (Some(received), Some(current)) => (quoted(plain(received)), quoted(plain(current))),
        _ => (typed(received), typed(current)),
    }
}

fn typed(value: Option<&Value>) -> String {
    match value {
        None => "none".to_owned(),
        Some(value) => format!(
            "the value '{}' of type '{}'",
            plain(value),
            type_name(value)
        ),
    }
}

/// A value in a text, of which nothing is longer than a name.
pub(crate) fn plain(value: &Value) -> String {
    match value {
        Value::Bool(value) => value.to_string(),
        Value::F32(value) => value.to_string(),
        Value::F64(value) => value.to_string(),
        Value::String(bytes) | Value::Bytes(bytes) => {
            String::from_utf8_lossy(&bytes[..bytes.len().min(255)]).into_owned()
        }
        Value::Timestamp(value) => value.to_string(),
        other => match other.as_integer() {
            Some(value) => value.to_string(),
            None => type_name(other).to_owned(),
        },
    }
}

/// The type of a value by RabbitMQ's word for it.
pub(crate) const fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Bool(_) => "bool",
        Value::I8(_) => "byte",
        Value::U8(_) => "unsignedbyte",
        Value::I16(_) => "short",
        Value::U16(_) => "unsignedshort",
        Value::I32(_) => "signedint",
        Value::U32(_) => "unsignedint",
        Value::I64(_) => "long",
        Value::F32(_) => "float",
        Value::F64(_) => "double",
        Value::Decimal { .. } => "decimal",
        Value::String(_) => "longstr",
        Value::Array(_) => "array",
        Value::Timestamp(_) => "timestamp",
        Value::Table(_) => "table",
        Value::Void => "void",
        Value::Bytes(_) => "binary",
    }
}

/// A value in a text.
pub(crate) fn quoted(value: impl Display) -> String {
    format!("'{value}'")
}
