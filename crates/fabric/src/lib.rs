//! Native transports behind the contract of `net`: shared memory, `shm://`.
//!
//! Two processes of one host exchange sealed memory over a unix socket; each
//! writes into its own and reads the other's. What is shared is laid out in
//! `docs/format/shm.md`. Nothing that the other side can change is believed:
//! it is read once, checked, and copied before it is used.

mod copying;
mod examine;
mod handshake;
mod pool;
mod remote;
mod ring;
mod segment;
mod shm;
mod stream;

pub use examine::{Agreement, agree, read_process, sealed_memory};
pub use shm::{Report, Shm, ShmOptions};
