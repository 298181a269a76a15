//! MUNGE: a credential that says which user of a cluster has made it.
//!
//! The daemon `munged` of each host makes credentials, and reads those of all hosts that have the same key. It is
//! reached by the C library `libmunge.so.2`, which is loaded where it is installed: nothing is linked with it.
//! [`Realm`] is what the rest of the product sees of it, so that tests have one of their own.

mod error;
mod library;
mod patient;
mod realm;
mod sys;

pub use error::Error;
pub use library::Library;
pub use patient::{DAEMON, Patient};
pub use realm::{PAYLOAD_BYTES_MAX, Realm, TEXT_BYTES_MAX, Vouched, bound_to};
