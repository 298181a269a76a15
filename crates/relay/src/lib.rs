//! Tunnels between two sites: one outgoing TLS connection, targets by name, a one-time code.
//!
//! What decides is plain state, and is given the time: [`Code`], [`Frame`], `Admission`, and
//! [`Session`], which has the streams. Tasks of tokio only carry bytes.
//!
//! The README has the states of a session and what holds in it; the frames are
//! `docs/format/relay.md`.

#![forbid(unsafe_code)]

mod account;
mod admission;
mod dial;
mod error;
mod faults;
mod frame;
mod hub;
mod join;
mod memory;
mod offer;
mod proof;
mod rates;
mod receiving;
mod relay;
mod sending;
mod session;
mod strangers;
mod tcp_info;
mod tls;
mod tunnel;

pub use access::{CODE_BYTES, CODE_LASTS, CODE_WRONG_MAX, Code, CodeError};
pub use account::Account;
pub use admission::{Admission, Admitted};
pub use dial::Destination;
pub use error::RelayError;
pub use frame::{
    DATA_BYTES_MAX, Frame, FrameError, HELLO_BYTES_MAX, Hello, NAME_BYTES_MAX, PAYLOAD_BYTES_MAX,
    Purpose, Reason, Refusal, StreamId, TARGETS_MAX, Terms, VERSION, Welcome, is_name,
};
pub use hub::{Hub, HubOffer};
pub use join::{JoinOptions, join, join_in_turn};
pub use memory::Memory;
pub use offer::{Offer, OfferOptions, Way, random_code};
pub use proof::{Binding, Credential, EXPORTER, PROOF_BYTES};
pub use rates::Rates;
pub use relay::{Bind, Event, Relay, Stopper, Target};
pub use session::{
    Broken, Next, PING_EVERY, Read, SILENT_MAX, STREAMS_MAX, STRIPES_MAX, Session, Side, Stripe,
    Wake,
};
pub use strangers::{Stranger, Strangers};
pub use tls::serving;
