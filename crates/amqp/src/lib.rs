//! AMQP 0-9-1 without I/O: a codec, and a server's side of one connection as plain state.
//!
//! [`Connection`] takes bytes and the time, and gives [`Event`]s and bytes to send. The events are what
//! a broker answers: who logs in, which queue is declared, what is published. No socket, clock or task
//! is in here, and none of our other crates.
//!
//! ```
//! use amqp::{Connection, Event, PROTOCOL_HEADER, Settings};
//! use std::{sync::Arc, time::Duration};
//!
//! let now = Duration::ZERO;
//! let mut connection = Connection::new(now, Arc::new(Settings::default()));
//! assert_eq!(connection.input(now, &PROTOCOL_HEADER), 8);
//! // connection.start goes out; the first event is the client's login.
//! assert!(connection.poll_output(now).is_some());
//! match connection.poll_event() {
//!     Some(Event::Authenticate { .. }) => connection.accept_login(),
//!     Some(_) => {}
//!     None => assert!(!connection.is_ended()),
//! }
//! ```
//!
//! The README has the states of a connection and of a channel, and what holds in them.

#![forbid(unsafe_code)]

mod connection;
mod content;
mod decode;
mod error;
mod event;
mod faults;
mod field;
mod frame;
mod id;
mod method;
mod output;
mod properties;
mod reader;
mod sasl;
mod settings;
mod table;

pub use connection::{CLOSE_WAIT, Connection, EVENTS_MAX, HANDSHAKE_WAIT, LINGER, PENDING_MAX};
pub use content::Content;
pub use decode::DecodeError;
pub use error::{Failure, ReplyCode};
pub use event::{Ended, Event, Publish, Request};
pub use field::{ShortBytes, ShortString, TooLong};
pub use frame::{
    ContentHeader, FRAME_END, FRAME_MIN, FRAME_OVERHEAD, Frame, FrameKind, PROTOCOL_HEADER,
};
pub use id::{ChannelKey, MethodId};
pub use method::{
    Method, basic, channel, confirm, connection as connection_methods, exchange, queue, tx,
};
pub use output::OUTPUT_BYTES_MAX;
pub use properties::{Properties, RawProperties};
pub use sasl::{Credentials, Mechanism};
pub use settings::{Settings, Tuned};
pub use table::{Array, Fields, TABLE_BYTES_MAX, TABLE_DEPTH_MAX, Table, Value, Values};

#[cfg(test)]
mod tests;
