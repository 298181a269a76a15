//! A condition that is notified without a system call when nobody waits for it.

use crate::Deadline;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, MutexGuard};

/// A condition variable that knows whether somebody waits.
///
/// What is waited for is changed under the mutex that goes with it, as for a
/// [`Condvar`], and notified after that.
#[derive(Debug, Default)]
pub struct Signal {
    condition: Condvar,
    /// Threads that wait. Counted up under the mutex, so that a thread that has
    /// changed something under it since sees them.
    waiting: AtomicUsize,
}

impl Signal {
    /// Nobody waits for it yet.
    pub const fn new() -> Self {
        Self {
            condition: Condvar::new(),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Waits, once: the caller looks again at what it waits for. The guard
    /// comes back as an error when `deadline` has passed.
    pub fn wait<'a, T>(
        &self,
        held: MutexGuard<'a, T>,
        deadline: Deadline,
    ) -> Result<MutexGuard<'a, T>, MutexGuard<'a, T>> {
        // Relaxed: the mutex orders it.
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let waited = deadline.wait(&self.condition, held);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        waited
    }

    /// Wakes all who wait.
    pub fn notify(&self) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.condition.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::time::Duration;

    #[test]
    fn whoever_waits_is_woken() {
        const ROUNDS: u32 = 10_000;
        let (count, signal) = (Mutex::new(0), Signal::new());
        let wait_for = |even: bool| {
            let mut held = count.lock().unwrap();
            while (*held % 2 == 0) != even {
                held = signal
                    .wait(held, Deadline::after(Duration::from_secs(60)))
                    .expect("the other thread goes on");
            }
            *held += 1;
            drop(held);
            signal.notify();
        };
        std::thread::scope(|scope| {
            for even in [true, false] {
                let wait_for = &wait_for;
                scope.spawn(move || (0..ROUNDS).for_each(|_| wait_for(even)));
            }
        });
        assert_eq!(*count.lock().unwrap(), 2 * ROUNDS);
    }

    #[test]
    fn a_wait_ends_with_its_deadline() {
        let (nothing, signal) = (Mutex::new(()), Signal::new());
        let mut held = nothing.lock().unwrap();
        let deadline = Deadline::after(Duration::from_millis(1));
        while let Ok(again) = signal.wait(held, deadline) {
            held = again;
        }
        assert_eq!(signal.waiting.load(Ordering::Relaxed), 0);
    }
}
