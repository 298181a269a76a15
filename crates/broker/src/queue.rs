//! Queues: competing consumers share single events under leases. The states
//! of an event are on the page `docs/concept/sharing.md`.

mod answers;
mod awaited;
mod core;
mod dead_letter;
mod keys;
mod letter_data;
mod live;
mod offset_set;
pub mod partition;
mod range_map;
mod serve;
mod service_rate;
mod settle;
mod staging;
mod unreported;

pub(crate) use self::core::{Leases, Lent, nowhere};
pub(crate) use letter_data::Letters;
pub(crate) use live::Queue;
pub use offset_set::OffsetSet;
pub use partition::QueuePartition;
pub use range_map::RangeMap;

/// Ranges of one record.
pub(crate) const RANGES_PER_RECORD: usize = 4096;
