//! A caller-runs runtime: a client without a thread, which a thread that waits drives,
//! one thread at a time.

use super::Runtime;
use crate::driving::{Driving, InlineSend, PassiveWaiter};
use crate::error::ClientError;
use memory::Deadline;
use std::os::fd::RawFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::ThreadId;
use std::time::Duration;

/// The longest turn: a bound for waits that have none of their own.
const TURN_MAX: Duration = Duration::from_secs(3600);

/// Who drives a client without a thread.
pub(crate) struct CallerRuns {
    /// Never held while driving. `turned` is signalled after each turn, so that
    /// others look at what they wait for.
    driver: Mutex<Driver>,
    turned: Condvar,
    descriptor: RawFd,
}

/// Who drives.
enum Driver {
    /// Nobody: the first to come takes the runtime.
    Idle(Box<Runtime>),
    Driven(ThreadId),
    Ended,
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

impl CallerRuns {
    pub fn new(runtime: Runtime) -> Self {
        Self {
            descriptor: runtime.descriptor(),
            driver: Mutex::new(Driver::Idle(Box::new(runtime))),
            turned: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Driver> {
        self.driver.lock().expect("no holder panics here")
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
        let mut driver = self.lock();
        let mut runtime = match std::mem::replace(&mut *driver, Driver::Driven(me)) {
            Driver::Idle(runtime) => runtime,
            Driver::Driven(by) if by == me => return Turn::InCallback,
            Driver::Driven(by) => {
                *driver = Driver::Driven(by);
                let _ = self.turned.wait_timeout(driver, wait);
                return Turn::Taken;
            }
            Driver::Ended => {
                *driver = Driver::Ended;
                return Turn::Ended;
            }
        };
        drop(driver);
        let has_ended = runtime.turn(wait);
        *self.lock() = match has_ended {
            true => Driver::Ended,
            false => Driver::Idle(runtime),
        };
        self.turned.notify_all();
        match has_ended {
            true => Turn::Ended,
            false => Turn::Taken,
        }
    }

    /// Drives until the client, which was asked to, has ended. Not in a
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

impl Driving for CallerRuns {
    fn is_by_callers(&self) -> bool {
        true
    }

    fn can_wait(&self) -> bool {
        !matches!(&*self.lock(), Driver::Driven(by) if *by == std::thread::current().id())
    }

    /// False also when there is no way that it could come to be.
    fn drive(
        self: Arc<Self>,
        deadline: Deadline,
        done: &mut dyn FnMut() -> bool,
    ) -> Result<bool, PassiveWaiter> {
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

    fn send_inline(self: Arc<Self>, _what: InlineSend) -> bool {
        false
    }

    fn wake(&self) {}

    fn leave(&self) {}
}
