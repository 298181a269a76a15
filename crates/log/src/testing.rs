//! For tests, of this room and of others: storages driven on the calling
//! thread, a disk with faults, and what every storage must do.

mod drive;
mod faulty;

pub use drive::{Contents, Driven, EventSpec, make_batch};
pub use faulty::{Fault, FaultyDisk, Survival, Traced};
