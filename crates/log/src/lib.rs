//! One partition's storage: segments, index, recovery, retention, typed
//! records, over a [`Disk`]. The format is `docs/format/log.md`.
//!
//! No async, no network, no clock: time is given, operations are taken out
//! with [`Storage::poll_operation`] and handed back when done.

#![forbid(unsafe_code)]

mod blocking;
mod checkpoint;
pub mod disk;
mod dry_run;
mod external;
mod fixed;
mod index;
mod kind;
mod live_copy;
mod look;
mod memory;
mod os_disk;
mod partition;
pub mod producers;
mod recovery;
mod salts;
mod segment;
mod settings;
mod storage;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod traces;

pub use disk::{Disk, DiskError, DiskErrorKind, FileId, Operation, Outcome};
pub use dry_run::DryRun;
pub use kind::DiskKind;
pub use live_copy::{CopyFor, copy_live, removed_from};
pub use memory::{MemoryKind, MemoryLog, MemorySettings};
pub use os_disk::OsDisk;
pub use partition::DiskLog;
pub use settings::DiskSettings;
pub use storage::*;
pub use traces::Traces;
