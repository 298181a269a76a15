//! How often a program comes to its consumer: what a processing timeout watches.

use crate::error::ClientError;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

/// Of one consumer that is a member of a group or queue. Counts are hints
/// that a timer looks at now and then: nothing is ordered by them.
#[derive(Default)]
pub(crate) struct ProcessingLimit {
    count: AtomicU64,
    waiting: AtomicU32,
    /// To be said once by the next pull, after which the member joins anew.
    absence: Mutex<Option<ClientError>>,
}

impl ProcessingLimit {
    fn absence(&self) -> MutexGuard<'_, Option<ClientError>> {
        self.absence.lock().expect("no holder panics here")
    }

    /// The program is here. Says whether it was away for too long.
    pub fn visit(&self) -> Option<ClientError> {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.absence().take()
    }

    /// The program stays for as long as `wait` takes.
    pub fn stay<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let waited = wait();
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
        waited
    }

    /// How often it came, and whether it is here now.
    pub fn count(&self) -> (u64, bool) {
        let is_here = self.waiting.load(Ordering::Relaxed) > 0;
        (self.count.load(Ordering::Relaxed), is_here)
    }

    /// It was away for too long, and its member has left.
    pub fn miss(&self, error: ClientError) {
        *self.absence() = Some(error);
    }
}
