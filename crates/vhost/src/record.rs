//! Records: the changes of what is durable, as bytes. The page is `docs/format/vhost.md`.

use crate::arguments::Arguments;
use crate::binding::Binding;
use crate::change::Change;
use crate::exchange::{Exchange, ExchangeKind, FIRST_ID};
use crate::faults::{Fault, planted};
use crate::id::{Destination, ExchangeId, ID_MAX, QueueId};
use crate::queue::{Queue, QueueOptions};
use std::fmt;
use std::sync::Arc;
use wire::codec::{DecodeError, Reader, Write};

/// The version that is written.
const VERSION: u8 = 1;

const WHAT: &str = "record of a virtual host";

/// The kinds of records, by their numbers.
mod kind {
    pub const IDS_RESERVED: u8 = 1;
    pub const EXCHANGE_DECLARED: u8 = 2;
    pub const EXCHANGE_DELETED: u8 = 3;
    pub const QUEUE_DECLARED: u8 = 4;
    pub const QUEUE_DELETED: u8 = 5;
    pub const BOUND: u8 = 6;
    pub const UNBOUND: u8 = 7;
}

/// Flags of an exchange or a queue.
mod flag {
    pub const AUTO_DELETE: u8 = 1;
    pub const INTERNAL: u8 = 2;
}

/// One change of what is durable. The caller appends them to a log in the order in which it gets them, and brings them
/// back after a restart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record(Change);

/// Why bytes are no record.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the fields say it")]
pub enum RecordError {
    /// They are damaged, or end too early.
    Bytes(DecodeError),
    /// Another version wrote them.
    Version { found: u8 },
    /// They are of a kind that this version does not have.
    Kind { found: u8 },
    /// They have arguments that this version does not have.
    Arguments { why: String },
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(error) => write!(f, "{error}"),
            Self::Version { found } => write!(
                f,
                "{WHAT} has version {found}, and this server reads version {VERSION}: start the server that wrote it"
            ),
            Self::Kind { found } => write!(
                f,
                "{WHAT} has kind {found}, which this server does not know: start the later one that wrote it"
            ),
            Self::Arguments { why } => {
                write!(
                    f,
                    "{WHAT} has arguments that this server does not take: {why}"
                )
            }
        }
    }
}

impl std::error::Error for RecordError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Bytes(error) => Some(error),
            _ => None,
        }
    }
}

impl From<DecodeError> for RecordError {
    fn from(error: DecodeError) -> Self {
        Self::Bytes(error)
    }
}

impl Record {
    /// Of a change that is durable; who makes it has looked.
    pub(crate) const fn of(change: Change) -> Self {
        Self(change)
    }

    pub(crate) const fn change(&self) -> &Change {
        &self.0
    }

    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        match &self.0 {
            Change::IdsReserved { below } => {
                out.put_u8(kind::IDS_RESERVED);
                out.put_u64(*below);
            }
            Change::ExchangeDeclared(exchange) => write_exchange(exchange, &mut out),
            Change::ExchangeDeleted(id) => {
                out.put_u8(kind::EXCHANGE_DELETED);
                out.put_u64(id.0);
            }
            Change::QueueDeclared(queue) => {
                out.put_u8(kind::QUEUE_DECLARED);
                out.put_u64(queue.id.0);
                out.put_u8(if queue.auto_delete {
                    flag::AUTO_DELETE
                } else {
                    0
                });
                out.put_sized(queue.name.as_bytes());
                out.put_sized(queue.arguments.as_bytes());
            }
            Change::QueueDeleted(id) => {
                out.put_u8(kind::QUEUE_DELETED);
                out.put_u64(id.0);
            }
            Change::Bound(binding) => write_binding(kind::BOUND, binding, &mut out),
            Change::Unbound(binding) => write_binding(kind::UNBOUND, binding, &mut out),
        }
        out
    }

    /// The record of these bytes, and of no others.
    ///
    /// # Errors
    /// If they are none of this version.
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        let mut reader = Reader::new(WHAT, bytes);
        let version = reader.u8()?;
        if version != VERSION && !planted(Fault::AnyVersion) {
            return Err(RecordError::Version { found: version });
        }
        let change = match reader.u8()? {
            kind::IDS_RESERVED => Change::IdsReserved {
                below: id(&mut reader)?,
            },
            kind::EXCHANGE_DECLARED => Change::ExchangeDeclared(read_exchange(&mut reader)?),
            kind::EXCHANGE_DELETED => Change::ExchangeDeleted(ExchangeId(own_id(&mut reader)?)),
            kind::QUEUE_DECLARED => Change::QueueDeclared(read_queue(&mut reader)?),
            kind::QUEUE_DELETED => Change::QueueDeleted(QueueId(own_id(&mut reader)?)),
            kind::BOUND => Change::Bound(read_binding(&mut reader)?),
            kind::UNBOUND => Change::Unbound(read_binding(&mut reader)?),
            found => return Err(RecordError::Kind { found }),
        };
        match reader.rest().len() {
            0 => Ok(Self(change)),
            extra => Err(reader.refuse("bytes after the record", extra as u64).into()),
        }
    }
}

fn write_exchange(exchange: &Exchange, out: &mut Vec<u8>) {
    out.put_u8(kind::EXCHANGE_DECLARED);
    out.put_u64(exchange.id.0);
    let mut flags = 0;
    if exchange.auto_delete {
        flags |= flag::AUTO_DELETE;
    }
    if exchange.internal {
        flags |= flag::INTERNAL;
    }
    out.put_u8(flags);
    let number = ExchangeKind::ALL
        .iter()
        .position(|kind| *kind == exchange.kind);
    let number = number.expect("the list has all kinds");
    out.put_u8(u8::try_from(number).expect("there are four"));
    out.put_sized(exchange.name.as_bytes());
    out.put_sized(exchange.arguments.as_bytes());
}

fn write_binding(kind: u8, binding: &Binding, out: &mut Vec<u8>) {
    out.put_u8(kind);
    out.put_u64(binding.source.0);
    let (number, id) = match binding.destination {
        Destination::Queue(id) => (0, id.0),
        Destination::Exchange(id) => (1, id.0),
    };
    out.put_u8(number);
    out.put_u64(id);
    out.put_sized(binding.key.as_bytes());
    out.put_sized(binding.arguments.as_bytes());
}

/// Any id.
fn id(reader: &mut Reader<'_>) -> Result<u64, DecodeError> {
    let id = reader.u64()?;
    match id {
        0..=ID_MAX => Ok(id),
        _ => Err(reader.refuse("id", id)),
    }
}

/// An id of what is not always there.
fn own_id(reader: &mut Reader<'_>) -> Result<u64, DecodeError> {
    let id = id(reader)?;
    match id {
        0..FIRST_ID => Err(reader.refuse("id", id)),
        _ => Ok(id),
    }
}

fn flags(reader: &mut Reader<'_>, known: u8) -> Result<u8, DecodeError> {
    let flags = reader.u8()?;
    match flags & !known {
        0 => Ok(flags),
        _ => Err(reader.refuse("flags", flags.into())),
    }
}

/// A name or a key.
fn short(reader: &mut Reader<'_>) -> Result<Arc<str>, DecodeError> {
    let text = reader.text()?;
    match text.len() {
        0..=255 => Ok(text.into()),
        bytes => Err(reader.refuse("length of a name", bytes as u64)),
    }
}

/// A name of what is not always there.
fn name(reader: &mut Reader<'_>) -> Result<Arc<str>, DecodeError> {
    let name = short(reader)?;
    match name.is_empty() {
        true => Err(reader.refuse("length of a name", 0)),
        false => Ok(name),
    }
}

fn arguments(reader: &mut Reader<'_>, named: &str) -> Result<Arguments, RecordError> {
    let bytes = reader.sized()?;
    Arguments::decode(bytes).map_err(|error| RecordError::Arguments {
        why: format!("{error}, in those of {named}"),
    })
}

fn read_exchange(reader: &mut Reader<'_>) -> Result<Arc<Exchange>, RecordError> {
    let id = ExchangeId(own_id(reader)?);
    let flags = flags(reader, flag::AUTO_DELETE | flag::INTERNAL)?;
    let number = reader.u8()?;
    let Some(kind) = ExchangeKind::ALL.get(usize::from(number)).copied() else {
        return Err(reader.refuse("kind of exchange", number.into()).into());
    };
    let name = name(reader)?;
    Ok(Arc::new(Exchange {
        id,
        kind,
        durable: true,
        auto_delete: flags & flag::AUTO_DELETE != 0,
        internal: flags & flag::INTERNAL != 0,
        arguments: arguments(reader, &format!("exchange '{name}'"))?,
        name,
    }))
}

fn read_queue(reader: &mut Reader<'_>) -> Result<Arc<Queue>, RecordError> {
    let id = QueueId(own_id(reader)?);
    let flags = flags(reader, flag::AUTO_DELETE)?;
    let name = name(reader)?;
    let named = format!("queue '{name}'");
    let arguments = arguments(reader, &named)?;
    let options = QueueOptions::parse(&arguments).map_err(|error| RecordError::Arguments {
        why: error.text(&named),
    })?;
    Ok(Arc::new(Queue {
        id,
        name,
        durable: true,
        auto_delete: flags & flag::AUTO_DELETE != 0,
        owner: None,
        arguments,
        options,
    }))
}

fn read_binding(reader: &mut Reader<'_>) -> Result<Arc<Binding>, RecordError> {
    let source = ExchangeId(id(reader)?);
    let number = reader.u8()?;
    let destination = id(reader)?;
    let destination = match number {
        0 => Destination::Queue(QueueId(destination)),
        1 => Destination::Exchange(ExchangeId(destination)),
        _ => return Err(reader.refuse("kind of destination", number.into()).into()),
    };
    let key = short(reader)?;
    Ok(Arc::new(Binding {
        source,
        destination,
        arguments: arguments(reader, "a binding")?,
        key,
    }))
}
