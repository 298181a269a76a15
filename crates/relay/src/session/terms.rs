//! What a session and who carries it say to each other.

use crate::frame::{Frame, Reason, StreamId};
use bytes::Bytes;
use std::fmt;
use std::time::Instant;

/// Which side of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// It joined: its streams have even numbers.
    Joined,
    /// It offered: odd ones.
    Offered,
}

/// A connection of a session, by its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stripe(pub u8);

/// What a connection sends next.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// This.
    Frame(Frame),
    /// Nothing until then, or until it is woken.
    At(Instant),
    /// Nothing until it is woken.
    Idle,
}

/// What a reader of a stream finds.
#[derive(Debug, PartialEq, Eq)]
pub enum Read {
    /// These bytes.
    Bytes(Bytes),
    /// Nothing until it is woken.
    Nothing,
    /// The other side has ended its direction in order.
    End,
    /// The stream has ended without an order.
    Reset(Reason),
}

/// Who has something to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wake {
    /// A connection may send.
    Stripe(Stripe),
    /// A connection is silent or not wanted: it is to be closed.
    Drop(Stripe),
    /// Bytes, an end or a reset can be read of a stream.
    Readable(StreamId),
    /// Bytes of a stream can be written.
    Writable(StreamId),
    /// The other side opens a stream to a target.
    Opened(StreamId, String),
    /// The stream ended so.
    Failed(StreamId, Reason),
    /// The session is over.
    Over(Reason),
}

/// How the other side breaks the protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken(pub &'static str);

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the other side does not keep to the protocol: {}",
            self.0
        )
    }
}

impl std::error::Error for Broken {}
