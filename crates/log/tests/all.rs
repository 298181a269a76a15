//! One partition: one program, so that it is linked once. Tests that need a process of their own
//! stand beside it.

mod conformance;
mod direct;
mod failures;
mod faults;
mod full_memory;
mod golden;
mod idle;
mod later_version;
mod live_copy;
mod lost_end;
mod memory_retention;
mod opening;
mod os_disk;
mod recycling;
mod removal;
mod retention_limits;
mod tail;
