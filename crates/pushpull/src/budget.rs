//! Bytes of messages that were read and not taken, of all connections together.

use std::sync::{Condvar, Mutex, MutexGuard};

/// See the module.
pub(crate) struct Budget {
    bytes_max: u64,
    /// Guards the counts; held for a comparison and an addition.
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    held: u64,
    /// The one message that goes beyond the bound, so that those of several parts never wait for
    /// one another.
    beyond: Option<u64>,
    last: u64,
    is_closed: bool,
}

impl Budget {
    pub fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max,
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics here")
    }

    /// Names a message that is about to be read.
    pub fn next(&self) -> u64 {
        let mut state = self.state();
        state.last += 1;
        state.last
    }

    /// Waits for so many bytes, of message `who`. False if they are not there and nobody waits any more.
    pub fn take(&self, who: u64, bytes: u64) -> bool {
        let is_short = |state: &State| {
            let fits = state.held.saturating_add(bytes) <= self.bytes_max;
            let may_exceed = state.beyond.is_none_or(|one| one == who);
            !fits && !may_exceed
        };
        let waits = |state: &mut State| !state.is_closed && is_short(state);
        let state = self.changed.wait_while(self.state(), waits);
        let mut state = state.expect("no holder panics here");
        if is_short(&state) {
            return false;
        }
        if state.held.saturating_add(bytes) > self.bytes_max {
            state.beyond = Some(who);
        }
        state.held += bytes;
        true
    }

    /// Gives back what message `who` had.
    pub fn give_back(&self, who: u64, bytes: u64) {
        let mut state = self.state();
        state.held -= bytes;
        if state.beyond == Some(who) {
            state.beyond = None;
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Nobody waits any more.
    pub fn close(&self) {
        self.state().is_closed = true;
        self.changed.notify_all();
    }

    #[cfg(test)]
    pub fn held(&self) -> u64 {
        self.state().held
    }
}
