//! Tests through the public API, against a server.

mod closing;
mod discarding;
mod failing;
mod held;
mod pinning;
mod preloading;
mod reading;
mod rig;
mod sharing;
mod storing;
mod writing;
