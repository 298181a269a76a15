//! One partition's storage: segments, index, recovery, retention, typed
//! records, over a [`Disk`]. The format is `docs/format/log.md`.
//!
//! No async, no network, no clock: time is given, operations are taken out
//! with [`Storage::poll_operation`] and handed back when done.

#![forbid(unsafe_code)]

pub mod disk;
pub mod producers;
mod storage;

pub use disk::{Disk, DiskError, DiskErrorKind, FileId, Operation, Outcome};
pub use storage::*;
