//! How a run fails that its user has ended.

use crate::failure::{Code, Failure};

/// The user wanted an end.
pub fn interrupted() -> Failure {
    Failure::new(Code::Failure, "the run", "was ended by a signal")
}
