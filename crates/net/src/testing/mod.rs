//! For tests of this and other crates: what every transport has to do, and
//! a network with faults.

pub mod conformance;
pub mod counted;
pub mod faults;
pub mod sim;
pub mod striped;
