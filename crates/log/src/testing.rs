//! For tests, of this room and of others: storages driven on the calling
//! thread, a disk with faults, and what every storage must do.

mod conformance;
mod drive;
mod faulty;
mod parts;

pub use conformance::{Subject, check_storage};
pub use drive::{Contents, Driven, EventSpec, make_batch};
pub use faulty::{Fault, FaultyDisk, Survival, Traced};
pub use parts::{append_of, open_partition, origin};
