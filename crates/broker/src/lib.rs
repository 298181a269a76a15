//! Topics, partitions, consumers and producers as plain state machines, and
//! the [`node`] that ties them to links and disks.
//!
//! Knows no sockets, threads, clocks or files: see [`node::Input`] and
//! [`node::Output`].

#![forbid(unsafe_code)]

mod alter;
mod blocking;
mod budget;
mod commands;
pub mod controller;
mod ctx;
mod cursor_proposals;
mod cursors;
mod describe;
mod drain;
mod drain_stage;
mod effects;
mod faults;
mod flow;
mod gaps;
mod group;
mod ids;
mod io;
mod keep;
mod membership;
mod metadata_check;
pub mod node;
mod options;
mod partition;
mod partition_requests;
mod producer_epochs;
mod producers;
pub mod queue;
mod queue_requests;
mod random;
mod read_data;
mod refusal;
mod requests;
mod selection;
mod served_topic;
mod session;
mod shared;
mod small_file;
mod space;
mod start;
pub mod table;
mod timers;
mod topic_file;
mod topics;
mod view;

#[cfg(any(test, feature = "testing"))]
pub use faults::Fault;
pub use io::FileSystemSpace;
pub use node::Node;
pub use options::open_in_turn;
pub use options::{Limits, NodeError, NodeOptions, OpenPartitions, OpenedPartition, StartReport};

#[cfg(test)]
mod tests;
