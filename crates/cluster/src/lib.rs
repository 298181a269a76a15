//! What lets several nodes act as one: the controller quorum, a few voters that agree on one log of commands; the table that
//! those commands make; and the links by which servers talk to each other. See the README.

#![forbid(unsafe_code)]
#![allow(
    clippy::field_reassign_with_default,
    reason = "the library's messages are filled field by field"
)]

#[cfg(test)]
mod chaos;
mod faults;
pub mod links;
pub mod member;
pub mod quorum;
mod random;
pub mod service;
pub mod table;

#[cfg(feature = "testing")]
pub use faults::{Fault, plant};
pub use quorum::{
    Change, ClusterId, DirectoryId, Identity, Input, Member, Output, Quorum, Recovered,
    RecoveryError, Refused, RequestId, Role, Settings, VoterId,
};
