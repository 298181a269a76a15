//! What time it is for a client, wherever in it somebody asks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The clock that the core's times are told by: time since a fixed moment.
/// Callers' threads read it as well, so that deadlines are of one time.
pub(crate) struct Clock {
    /// When it began; none if whoever runs the core says what time it is.
    epoch: Option<Instant>,
    /// What was said, nanoseconds. A simulation's one thread writes it and reads it.
    said_ns: AtomicU64,
}

impl Clock {
    /// The machine's, counted from `epoch`.
    pub fn since(epoch: Instant) -> Self {
        Self {
            epoch: Some(epoch),
            said_ns: AtomicU64::new(0),
        }
    }

    /// One that stands still until [`Clock::set`] moves it.
    pub fn simulated() -> Self {
        Self {
            epoch: None,
            said_ns: AtomicU64::new(0),
        }
    }

    /// What time it is.
    pub fn now(&self) -> Duration {
        match self.epoch {
            Some(epoch) => epoch.elapsed(),
            None => Duration::from_nanos(self.said_ns.load(Ordering::Relaxed)),
        }
    }

    /// Says what time it is, to a simulated one.
    pub fn set(&self, now: Duration) {
        if self.epoch.is_none() {
            let ns = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
            self.said_ns.store(ns, Ordering::Relaxed);
        }
    }
}
