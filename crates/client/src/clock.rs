//! What time it is for a client, wherever in it somebody asks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The clock of the core's times: time since a fixed moment.
/// Callers' threads read it as well, so that deadlines are of one time.
pub(crate) enum Clock {
    /// The machine's, counted from this moment.
    Machine(Instant),
    /// What was said last, nanoseconds, by what runs the core. A
    /// simulation's one thread writes it and reads it.
    Said(AtomicU64),
}

impl Clock {
    /// The machine's, counted from `epoch`.
    pub fn since(epoch: Instant) -> Self {
        Self::Machine(epoch)
    }

    /// One that stands still until [`Clock::set`] moves it.
    pub fn simulated() -> Self {
        Self::Said(AtomicU64::new(0))
    }

    /// What time it is.
    pub fn now(&self) -> Duration {
        match self {
            Self::Machine(epoch) => epoch.elapsed(),
            Self::Said(ns) => Duration::from_nanos(ns.load(Ordering::Relaxed)),
        }
    }

    /// Says what time it is, to a simulated one.
    pub fn set(&self, now: Duration) {
        if let Self::Said(ns) = self {
            let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
            ns.store(now, Ordering::Relaxed);
        }
    }
}
