//! How long a program has had events of its queue in hand: the server gives it
//! more at once the faster it is.

use std::time::Duration;

/// How long the program has had events in hand.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// Events that were handed out and are held.
    in_hand: usize,
    /// Since when there are any, as far as it was not told.
    since: Duration,
    /// What was not told.
    worked: Duration,
}

impl Work {
    pub fn take_in_hand(&mut self, clock: impl Fn() -> Duration) {
        if self.in_hand == 0 {
            self.since = clock();
        }
        self.in_hand += 1;
    }

    pub fn let_go(&mut self, clock: impl Fn() -> Duration) {
        self.in_hand -= 1;
        if self.in_hand == 0 {
            self.worked += clock().saturating_sub(self.since);
        }
    }

    /// Tells it, in microseconds, and begins anew.
    pub fn take(&mut self, now: Duration) -> u32 {
        let mut worked = std::mem::take(&mut self.worked);
        if self.in_hand > 0 {
            worked += now.saturating_sub(self.since);
            self.since = self.since.max(now);
        }
        u32::try_from(worked.as_micros()).unwrap_or(u32::MAX)
    }
}
