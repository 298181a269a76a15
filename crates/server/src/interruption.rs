//! The end of a start that waits for other servers, asked for from another thread.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Ends a start that waits for other servers of its cluster. Copies are the same one.
#[derive(Debug, Clone, Default)]
pub struct Interruption(Arc<State>);

/// How long a start waits for other servers, and what ends that.
#[derive(Debug, Clone)]
pub(crate) struct Patience {
    pub time: Duration,
    pub interruption: Interruption,
}

#[derive(Debug, Default)]
struct State {
    /// Set once, and never back.
    is_asked: Mutex<bool>,
    asked: Condvar,
}

impl Interruption {
    /// Asks for the end, from any thread. A start that waits for nobody goes on.
    pub fn interrupt(&self) {
        *self.is_asked() = true;
        self.0.asked.notify_all();
    }

    /// Waits for that long, and no longer when the end is asked for. Gives whether it is.
    pub(crate) fn wait(&self, time: Duration) -> bool {
        let waited = self
            .0
            .asked
            .wait_timeout_while(self.is_asked(), time, |asked| !*asked);
        *waited.expect("no holder panics here").0
    }

    fn is_asked(&self) -> MutexGuard<'_, bool> {
        self.0.is_asked.lock().expect("no holder panics here")
    }
}
