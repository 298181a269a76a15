//! Times and words of calls that wait.

use client::{ClientError, STANDING_TIMEOUT};
use memory::Deadline;
use std::time::Duration;

/// The server's words, without the code's.
pub(crate) fn words(error: &ClientError) -> String {
    match error {
        ClientError::Server(reply) => reply.message.clone(),
        other => other.to_string(),
    }
}

/// As a request says a time.
pub(crate) fn milliseconds(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

/// How long one may wait yet: a call has an end.
pub(crate) fn left(deadline: Deadline) -> Duration {
    deadline.left().min(STANDING_TIMEOUT)
}
