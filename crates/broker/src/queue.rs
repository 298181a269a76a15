//! Queues: competing consumers share single events under leases. The states
//! of an event are on the page `docs/concept/sharing.md`.

mod answers;
mod dead_letter;
mod keys;
mod letter_data;
mod live;
mod members;
mod offset_set;
pub mod partition;
mod range_map;
mod serve;
mod service_rate;
mod settle;
mod staging;
mod unreported;

pub(crate) use letter_data::Letters;
pub(crate) use live::{Leases, Lent, Queue};
pub(crate) use members::nowhere;
pub use offset_set::OffsetSet;
pub use partition::QueuePartition;
pub use range_map::RangeMap;

/// Ranges of one record.
pub(crate) const RANGES_PER_RECORD: usize = 4096;
