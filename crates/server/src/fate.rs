//! What the nodes of a server share: when one of them ends, all do.

use crate::system::ShutdownRequest;
use net::Waker;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Longer than anybody waits.
const LONG: Duration = Duration::from_secs(365 * 24 * 3600);

/// Asks one node to end.
#[derive(Debug, Clone)]
pub(crate) struct PartHandle {
    pub shutdown: Arc<ShutdownRequest>,
    pub waker: Waker,
}

/// The nodes of a server, and whether it has begun to end.
#[derive(Debug)]
pub(crate) struct Fate {
    /// How long the others may take when one of them ends.
    drain_timeout: Duration,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    has_begun: bool,
    /// The first leads the table of the others.
    parts: Vec<PartHandle>,
    /// How many behind the first have not ended.
    followers: usize,
    /// Until when the first is to have drained, which begins once the others have ended.
    first_until: Option<Instant>,
}

impl State {
    /// Asks the others to drain, and the first as soon as none of them is left: until then it decides what they have
    /// under way.
    fn drain(&mut self, timeout: Duration, is_asked_anew: bool) {
        let now = Instant::now();
        // One beyond what the clock can say is a long time.
        self.first_until = Some(now.checked_add(timeout).unwrap_or(now + LONG));
        for other in self.parts.iter().skip(1) {
            if is_asked_anew || !other.shutdown.is_asked() {
                other.drain(timeout);
            }
        }
        self.drain_first();
    }

    fn drain_first(&mut self) {
        if self.followers == 0
            && let Some(until) = self.first_until.take()
            && let Some(first) = self.parts.first()
        {
            first.drain(until.saturating_duration_since(Instant::now()));
        }
    }
}

impl PartHandle {
    fn drain(&self, timeout: Duration) {
        self.shutdown.drain(timeout);
        self.waker.wake();
    }
}

impl Fate {
    pub fn new(drain_timeout: Duration) -> Arc<Self> {
        Arc::new(Self {
            drain_timeout,
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics here")
    }

    /// One more node runs, or is about to. The first one is that which leads.
    pub fn joined(self: &Arc<Self>, part: PartHandle) -> Ends {
        let mut state = self.state();
        let place = state.parts.len();
        state.followers += usize::from(place > 0);
        state.parts.push(part);
        if state.has_begun {
            let timeout = self.drain_timeout;
            state.drain(timeout, false);
        }
        drop(state);
        Ends {
            fate: self.clone(),
            place,
        }
    }

    /// Finish what was taken, within `timeout`, and end: all of them.
    pub fn drain(&self, timeout: Duration) {
        self.state().drain(timeout, true);
    }

    /// End at once: all of them.
    pub fn kill(&self) {
        for part in &self.state().parts {
            part.shutdown.kill();
            part.waker.wake();
        }
    }

    /// Waits until one of them has begun to end.
    pub fn wait(&self) {
        let state = self.changed.wait_while(self.state(), |it| !it.has_begun);
        drop(state.expect("no holder panics here"));
    }
}

/// A node reports by this that it begins to end; by dropping it, that it has ended, however its thread did.
#[derive(Debug)]
pub(crate) struct Ends {
    fate: Arc<Fate>,
    /// Which of the nodes.
    place: usize,
}

impl Ends {
    /// The others end as well, unless they were asked already.
    pub fn begin(&self) {
        let mut state = self.fate.state();
        if std::mem::replace(&mut state.has_begun, true) {
            return;
        }
        if state.first_until.is_none() && (self.place > 0 || state.followers > 0) {
            state.drain(self.fate.drain_timeout, false);
        }
        self.fate.changed.notify_all();
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        self.begin();
        let mut state = self.fate.state();
        if self.place > 0 {
            state.followers -= 1;
            state.drain_first();
        }
    }
}
