//! Tests of a virtual host.

mod chance;
mod channel;
mod claims;
mod model;
mod records;
mod refusals;
mod rig;
mod routing;
mod sequences;
mod stories;

pub(crate) use chance::{Chance, seeds};
