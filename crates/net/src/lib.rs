//! The transport contract and the transports of one host and one network:
//! in-process, unix socket, TCP. On top of it: calls and the reactor.
//!
//! Knows nothing of topics, logs or who plays server.

#![forbid(unsafe_code)]

mod contract;

pub use contract::*;
