//! A client without a thread: whoever waits drives it, one thread at a time.

use crate::driving::{Bystander, Driving, Post};
use crate::error::ClientError;
use crate::runtime::Runtime;
use memory::Deadline;
use std::os::fd::RawFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::ThreadId;
use std::time::Duration;

/// The longest turn: a bound for waits that have none of their own.
const TURN_MAX: Duration = Duration::from_secs(3600);

/// Whose turn it is to drive a client.
pub(crate) struct Turns {
    /// Guards whose turn it is, never held while driving. `turned` is
    /// signalled after each turn, so that others look at what they wait for.
    state: Mutex<State>,
    turned: Condvar,
    descriptor: RawFd,
}

struct State {
    /// Whoever drives has it.
    runtime: Option<Box<Runtime>>,
    driving: Option<ThreadId>,
}

/// What came of a turn.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Something may have changed.
    Taken,
    /// The client has ended: nothing will change any more.
    Ended,
    /// This thread drives already, and called from a callback.
    InCallback,
}

impl Turns {
    pub fn new(runtime: Runtime) -> Self {
        Self {
            descriptor: runtime.descriptor(),
            state: Mutex::new(State {
                runtime: Some(Box::new(runtime)),
                driving: None,
            }),
            turned: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics here")
    }

    /// What is readable when a turn has something to do.
    pub fn descriptor(&self) -> RawFd {
        self.descriptor
    }

    /// Drives, waiting up to `wait` if there is nothing to do; or waits until
    /// another thread has driven.
    pub fn take(&self, wait: Duration) -> Turn {
        let me = std::thread::current().id();
        let wait = wait.min(TURN_MAX);
        let mut state = self.lock();
        if state.driving == Some(me) {
            return Turn::InCallback;
        }
        if state.driving.is_some() {
            let _ = self.turned.wait_timeout(state, wait);
            return Turn::Taken;
        }
        let Some(mut runtime) = state.runtime.take() else {
            return Turn::Ended;
        };
        state.driving = Some(me);
        drop(state);
        let ended = runtime.turn(wait);
        let mut state = self.lock();
        state.driving = None;
        if !ended {
            state.runtime = Some(runtime);
        }
        drop(state);
        self.turned.notify_all();
        match ended {
            true => Turn::Ended,
            false => Turn::Taken,
        }
    }

    /// Drives until the client, which was told to, has ended. Not in a
    /// callback: the turn that it is called from ends the client then.
    pub fn finish(&self) {
        while self.take(TURN_MAX) == Turn::Taken {}
    }

    /// One turn, for a caller with a loop of its own.
    pub fn progress(&self, wait: Duration) -> Result<(), ClientError> {
        match self.take(wait) {
            Turn::Taken => Ok(()),
            Turn::Ended => Err(ClientError::Closed),
            Turn::InCallback => Err(ClientError::Invalid(
                "a callback must not drive the driver that it was called by".to_owned(),
            )),
        }
    }
}

impl Driving for Turns {
    fn is_by_callers(&self) -> bool {
        true
    }

    fn can_wait(&self) -> bool {
        self.lock().driving != Some(std::thread::current().id())
    }

    /// False also when there is no way that it could come to be.
    fn drive(
        self: Arc<Self>,
        deadline: Deadline,
        done: &mut dyn FnMut() -> bool,
    ) -> Result<bool, Bystander> {
        loop {
            if done() {
                return Ok(true);
            }
            if deadline.has_passed() {
                return Ok(false);
            }
            match self.take(deadline.left()) {
                Turn::Taken => {}
                Turn::Ended | Turn::InCallback => return Ok(done()),
            }
        }
    }

    fn post(self: Arc<Self>, _what: Post) -> bool {
        false
    }

    fn heed(&self) {}

    fn leave(&self) {}
}
