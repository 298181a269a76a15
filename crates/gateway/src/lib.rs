//! The way into a site: connections by name, servers on demand, and the interface that makes them.
//!
//! [`Gateway::start`] runs one; the README has its parts, its states and what must hold in it.

#![forbid(unsafe_code)]

mod api;
mod certificate;
#[cfg(test)]
mod chance;
mod client_hello;
mod clock;
mod directory;
mod error;
mod faults;
mod files;
mod gateway;
mod half_open;
mod hook;
mod ingress;
mod instances;
mod introspection;
mod keeper;
mod keys;
mod life;
mod meeting;
mod names;
mod options;
mod pairing;
mod passing;
mod process;
mod record;
mod report;
mod url;
mod way;

pub use certificate::SiteFiles;
pub use clock::Clock;
pub use error::GatewayError;
pub use gateway::Gateway;
pub use ingress::Counters;
pub use introspection::{Holder, Introspection};
pub use keys::Keys;
pub use options::{Launch, Limits, Meetings, Mode, Options};
pub use report::Report;
