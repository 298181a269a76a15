//! SciStream's face: the four calls of its control servers. What its clients set up with them are tunnels of the
//! relay: outgoing, encrypted, at one port.
//!
//! [`Scistream::start`] serves them; the README has the way of a session and what holds in it.

#![forbid(unsafe_code)]

mod caller;
mod calls;
mod face;
mod faults;
mod message;
mod options;
mod place;
mod plain;
mod session;
mod way;

pub use face::Scistream;
pub use options::{Inbound, Line, Options, ScistreamError, SiteHolder, SiteTokens, TrustNow};
pub use place::{Allowed, Place};
