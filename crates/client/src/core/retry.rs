//! When something is tried again that the server refused for now, or that found
//! no server: one policy for everything that the core sends.

use std::time::Duration;
use wire::{ErrorCode, ErrorReply};

/// How long the server may take over a request that no caller gave a time for.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(120);

/// A refused batch. Events behind it wait, so it begins soon; a partition
/// that stays full is asked less and less often.
pub(super) const BATCH: Retry = Retry {
    after_min: Duration::from_millis(10),
    after_max: Duration::from_secs(1),
};

/// A refused call, for which a caller waits.
pub(super) const CALL: Retry = Retry::every(Duration::from_millis(20));

/// What stands for as long as its consumer: a subscription, a membership, and
/// cursors and settlements that are sent under it.
pub(super) const STANDING: Retry = Retry::every(Duration::from_millis(50));

/// Addresses of the server, all of which were tried.
pub(super) const CONNECTION: Retry = Retry {
    after_min: Duration::from_millis(10),
    after_max: Duration::from_secs(1),
};

/// The least wait before another try of a batch that a server refused because it
/// ends: it gives no hint.
const ENDING_MIN: Duration = Duration::from_millis(100);

/// How long to wait before something is tried again.
#[derive(Debug, Clone, Copy)]
pub(super) struct Retry {
    after_min: Duration,
    /// Each time that it is refused again the wait is twice as long, up to this.
    after_max: Duration,
}

impl Retry {
    const fn every(after: Duration) -> Self {
        Self {
            after_min: after,
            after_max: after,
        }
    }

    /// As long as the server says, or a little if it says nothing.
    pub fn after(self, error: &ErrorReply) -> Duration {
        Duration::from_millis(u64::from(error.retry_after_ms)).max(self.after_min)
    }

    /// As [`Retry::after`], where it was refused `times` before on end.
    pub fn after_refusals(self, error: &ErrorReply, times: u32) -> Duration {
        let mut wait = self.after(error);
        if error.code == ErrorCode::Draining {
            wait = wait.max(ENDING_MIN);
        }
        let longer = wait.saturating_mul(1 << times.min(10));
        wait.max(longer.min(self.after_max))
    }

    /// The wait behind `failures` failures on end of what has no answer.
    pub fn after_failures(self, failures: u32) -> Duration {
        let longer = self.after_min.saturating_mul(1 << failures.min(10));
        longer.min(self.after_max)
    }
}

/// Whether the server refuses for now, or because it ends and another one follows.
pub(super) fn is_for_now(error: &ErrorReply) -> bool {
    error.retryable || error.code == ErrorCode::Draining
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_counts_and_a_batch_that_is_refused_again_waits_longer() {
        let mut error = ErrorReply::fatal(ErrorCode::TopicFull, String::new());
        assert_eq!(STANDING.after(&error), Duration::from_millis(50));
        error.retry_after_ms = 70;
        assert_eq!(STANDING.after(&error), Duration::from_millis(70));
        error.retry_after_ms = 0;
        let waits =
            [0, 1, 2, 6, 7, 40].map(|times| BATCH.after_refusals(&error, times).as_millis());
        assert_eq!(waits, [10, 20, 40, 640, 1000, 1000]);
        // Never less than the server asks for.
        error.retry_after_ms = 3000;
        assert_eq!(BATCH.after_refusals(&error, 3), Duration::from_secs(3));
        error = ErrorReply::fatal(ErrorCode::Draining, String::new());
        assert_eq!(BATCH.after_refusals(&error, 0), Duration::from_millis(100));
    }

    #[test]
    fn connections_are_tried_less_and_less_often() {
        let waits = [0, 1, 6, 7, 100].map(|failures| CONNECTION.after_failures(failures));
        assert_eq!(
            waits.map(|wait| wait.as_millis()),
            [10, 20, 640, 1000, 1000]
        );
    }
}
