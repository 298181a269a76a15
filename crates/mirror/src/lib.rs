//! Mirrors: topics of one server, copied to another one byte for byte and under the same offsets,
//! by a process beside either of them that dials both. See the crate's README.

#![forbid(unsafe_code)]

mod faults;
mod flow;
mod lane;
mod link;
mod progress;
mod setup;
mod trouble;

pub use link::{Link, LinkOptions, MirroredTopic, Side, Stop};
pub use progress::{Lag, LinkState, Progress};
pub use setup::promote;
pub use trouble::LinkError;
