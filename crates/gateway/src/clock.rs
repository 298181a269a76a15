//! The time, of two kinds: since the start, and of the day.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The clock of a gateway. Copies are the same.
#[derive(Debug, Clone)]
pub struct Clock {
    start: Instant,
    /// The second of the day at which a test's clock stands.
    stands: Option<u64>,
    /// Seconds that a test has let pass; 0 otherwise.
    passed: Arc<AtomicU64>,
}

impl Clock {
    /// From now on.
    pub fn start() -> Self {
        Self {
            start: Instant::now(),
            stands: None,
            passed: Arc::default(),
        }
    }

    /// A clock by which no second of the day passes but those of [`Clock::pass`].
    #[cfg(test)]
    pub fn standing() -> Self {
        let mut clock = Self::start();
        clock.stands = Some(clock.unix());
        clock
    }

    /// The time since the start.
    pub fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Seconds since 1970.
    pub fn unix(&self) -> u64 {
        let day = self.stands.unwrap_or_else(|| {
            let since = SystemTime::now().duration_since(UNIX_EPOCH);
            since.unwrap_or_default().as_secs()
        });
        day + self.passed.load(Ordering::Relaxed)
    }

    /// Lets so many seconds of the day pass.
    pub fn pass(&self, seconds: u64) {
        self.passed.fetch_add(seconds, Ordering::Relaxed);
    }
}
