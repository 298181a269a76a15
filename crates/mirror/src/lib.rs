//! Mirrors: topics of one server, copied to another one byte for byte and under the same offsets,
//! by a process beside either of them that dials both. And topics that go from one node of a cluster to another, which are copied
//! likewise. See the crate's README.

#![forbid(unsafe_code)]

mod faults;
mod flow;
mod lane;
mod link;
mod mover;
mod progress;
mod setup;
mod trouble;

pub use link::{Link, LinkOptions, MirroredTopic, Side, Stop};
pub use mover::{MOVE_HELD_BYTES, Moved, move_topic};
#[cfg(feature = "testing")]
pub use mover::{Time, move_topic_by};
pub use progress::{Lag, LinkState, Progress};
pub use setup::promote;
pub use trouble::LinkError;
