//! Queues: competing consumers share single events under leases. The states
//! of an event are on the page `docs/concept/sharing.md`.

mod keys;
mod members;
mod offset_set;
pub mod partition;
mod range_map;

pub use offset_set::OffsetSet;
pub use partition::QueuePartition;
pub use range_map::RangeMap;

/// Ranges of one record.
pub(crate) const RANGES_PER_RECORD: usize = 4096;
