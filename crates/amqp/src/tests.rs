//! Tests of the codec and of the connection.

mod chance;
mod codec;
mod connection;
mod contents;
mod fuzz;
mod oracle;
mod rig;

pub(crate) use chance::{Chance, Generated, seeds};
