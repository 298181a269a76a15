//! When a wait ends.

use std::sync::{Condvar, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// When a wait ends: at a moment, or never.
///
/// It is made from any timeout: one that ends beyond what the clock can tell
/// is for ever, and no panic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadline {
    at: Option<Instant>,
}

impl Deadline {
    /// It never passes.
    pub const NEVER: Self = Self { at: None };

    /// `timeout` from now.
    pub fn after(timeout: Duration) -> Self {
        Self {
            at: now().checked_add(timeout),
        }
    }

    /// `timeout` from now; `None` is never.
    pub fn within(timeout: Option<Duration>) -> Self {
        timeout.map_or(Self::NEVER, Self::after)
    }

    /// The one of both that passes first.
    pub fn earlier(self, other: Self) -> Self {
        match (self.at, other.at) {
            (Some(at), Some(others)) => Self {
                at: Some(at.min(others)),
            },
            (at, others) => Self { at: at.or(others) },
        }
    }

    /// How long one may still wait: zero once it has passed, and
    /// [`Duration::MAX`] if it never does.
    pub fn left(self) -> Duration {
        match self.at {
            None => Duration::MAX,
            Some(at) => at.saturating_duration_since(now()),
        }
    }

    /// Whether it has passed.
    pub fn has_passed(self) -> bool {
        self.left().is_zero()
    }

    /// Waits on `condition`, once: the caller looks again at what it waits
    /// for. The guard comes back as an error when the deadline has passed.
    pub fn wait<'a, T>(
        self,
        condition: &Condvar,
        held: MutexGuard<'a, T>,
    ) -> Result<MutexGuard<'a, T>, MutexGuard<'a, T>> {
        // Who panicked while holding the lock is the next user's concern.
        let Some(at) = self.at else {
            let held = condition.wait(held);
            return Ok(held.unwrap_or_else(PoisonError::into_inner));
        };
        let left = at.saturating_duration_since(now());
        if left.is_zero() {
            return Err(held);
        }
        let waited = condition.wait_timeout(held, left);
        Ok(waited.unwrap_or_else(PoisonError::into_inner).0)
    }
}

/// The machine's time, or what a simulation says to this thread.
fn now() -> Instant {
    #[cfg(feature = "testing")]
    if let Some(now) = testing::said() {
        return now;
    }
    Instant::now()
}

/// Deadlines of simulated time.
#[cfg(feature = "testing")]
pub(crate) mod testing {
    use std::cell::Cell;
    use std::sync::LazyLock;
    use std::time::{Duration, Instant};

    thread_local! {
        static SAID: Cell<Option<Duration>> = const { Cell::new(None) };
    }

    /// What simulated time counts from.
    static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

    /// From now on it is `now` for the deadlines of this thread, counted from any moment that stays.
    pub fn say(now: Duration) {
        SAID.set(Some(now));
    }

    pub(super) fn said() -> Option<Instant> {
        SAID.get().map(|now| *EPOCH + now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn a_timeout_beyond_the_clock_never_passes() {
        for deadline in [
            Deadline::after(Duration::MAX),
            Deadline::within(Some(Duration::MAX)),
            Deadline::within(None),
        ] {
            assert_eq!(deadline, Deadline::NEVER);
            assert_eq!(deadline.left(), Duration::MAX);
            assert!(!deadline.has_passed());
        }
        let far = Deadline::after(Duration::from_secs(1 << 40));
        assert!(far.left() > Duration::from_secs(1 << 39));
    }

    #[test]
    fn no_time_has_passed_at_once() {
        let deadline = Deadline::after(Duration::ZERO);
        assert!(deadline.has_passed());
        let (number, condition) = (Mutex::new(7), Condvar::new());
        let held = deadline.wait(&condition, number.lock().unwrap());
        assert_eq!(*held.unwrap_err(), 7);
    }

    #[test]
    fn one_who_waits_for_ever_is_woken() {
        let (done, condition) = (Mutex::new(false), Condvar::new());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                *done.lock().unwrap() = true;
                condition.notify_all();
            });
            for timeout in [Duration::MAX, Duration::from_secs(1 << 40)] {
                let deadline = Deadline::after(timeout);
                let mut held = done.lock().unwrap();
                while !*held {
                    held = deadline.wait(&condition, held).unwrap();
                }
            }
        });
    }
}
