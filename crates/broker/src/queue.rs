//! Queues: competing consumers share single events under leases. The states
//! of an event are on the page `docs/concept/sharing.md`.

mod members;
mod offset_set;
mod range_map;

pub use offset_set::OffsetSet;
pub use range_map::RangeMap;
