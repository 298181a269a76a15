//! Memory that events live in: reusable buffers, destinations owned by
//! others, byte budgets and how long one waits for them, what survives a
//! `fork`, and how long a thread runs.
//!
//! Shared immutable memory is [`bytes::Bytes`]; memory of a user enters as
//! `Bytes::from_owner`, which keeps its owner alive.

#![deny(unsafe_op_in_unsafe_fn)]

mod allocation;
mod arena;
mod budget;
mod buffer;
pub mod copies;
mod deadline;
pub mod fork;
mod locked_file;
mod packed;
mod signal;
mod slice;
mod target;
#[cfg(feature = "testing")]
pub mod testing;
pub mod thread;

pub use allocation::Allocation;
pub use budget::{Budget, BudgetError, Reservation};
pub use buffer::{Buffer, Pool};
pub use deadline::Deadline;
pub use locked_file::LockedFile;
pub use packed::Packer;
pub use signal::Signal;
pub use slice::set_time_slice;
pub use target::{Split, Target};
