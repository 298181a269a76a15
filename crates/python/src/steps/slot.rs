//! What one thread uses at a time, and calls of it that wait.

use super::raise;
use crate::{error, lend};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use step::StepError;

/// The longest that Ctrl-C waits.
const SLICE: Duration = Duration::from_millis(50);

/// Holds a writer or reader between calls. During a call the thread that makes it has it; other
/// threads wait for their turn. A call that is interrupted by a signal goes on by itself, and then
/// puts back what it has.
pub struct Slot<T> {
    inner: Arc<Inner<T>>,
    /// The process that it belongs to.
    generation: u64,
}

struct Inner<T> {
    /// Held for a look, so that no fork finds it taken.
    state: Mutex<State<T>>,
    /// Seen by calls between two slices of their waits.
    is_closed: AtomicBool,
}

enum State<T> {
    Idle(T),
    Busy,
    Closed,
}

/// What a call has; it goes back with the end of the call, however that comes.
struct Taken<T> {
    value: Option<T>,
    home: Arc<Inner<T>>,
}

impl<T> Inner<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().expect("no holder panics here")
    }
}

impl<T> Drop for Taken<T> {
    fn drop(&mut self) {
        let Some(value) = self.value.take() else {
            return;
        };
        let mut state = self.home.state();
        if self.home.is_closed.load(Ordering::Relaxed) {
            *state = State::Closed;
            drop(state);
            drop(value);
        } else {
            *state = State::Idle(value);
        }
    }
}

impl<T: Send + 'static> Slot<T> {
    pub fn new(value: T) -> Self {
        Self {
            inner: Arc::new(Inner {
                state: Mutex::new(State::Idle(value)),
                is_closed: AtomicBool::new(false),
            }),
            generation: memory::fork::generation(),
        }
    }

    pub fn is_closed(&self) -> bool {
        self.inner.is_closed.load(Ordering::Relaxed)
    }

    /// Closes it: what is there now is given out, and what a call has is dropped at its end.
    pub fn close(&self) -> Option<T> {
        if self.generation != memory::fork::generation() {
            return None;
        }
        let mut state = self.inner.state();
        self.inner.is_closed.store(true, Ordering::Relaxed);
        if matches!(*state, State::Busy) {
            return None;
        }
        match std::mem::replace(&mut *state, State::Closed) {
            State::Idle(value) => Some(value),
            State::Busy | State::Closed => None,
        }
    }

    /// Waits until no other call has it.
    fn take(&self, py: Python<'_>) -> PyResult<Taken<T>> {
        if self.generation != memory::fork::generation() {
            return Err(error::raise(py, client::ClientError::Forked));
        }
        loop {
            {
                let mut state = self.inner.state();
                if self.is_closed() {
                    drop(state);
                    return Err(error::new(py, "Closed", "it was closed before".into()));
                }
                if matches!(*state, State::Idle(_))
                    && let State::Idle(value) = std::mem::replace(&mut *state, State::Busy)
                {
                    return Ok(Taken {
                        value: Some(value),
                        home: Arc::clone(&self.inner),
                    });
                }
            }
            py.detach(|| std::thread::sleep(Duration::from_millis(1)));
            py.check_signals()?;
        }
    }

    /// A call that waits for nothing; without the GIL, for it may copy much.
    pub fn with<R: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut T) -> Result<R, StepError> + Send,
    ) -> PyResult<R>
    where
        T: Send,
    {
        let mut taken = self.take(py)?;
        let outcome = py.detach(move || call(taken.value.as_mut().expect("just taken")));
        lend::release_returned(py);
        outcome.map_err(|failed| raise(py, failed))
    }

    /// A call that waits. In the main thread it runs on another one, and is left to its end there
    /// if a signal handler raises. The flag says that it was closed meanwhile, or interrupted.
    pub fn call<R: Send + 'static>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut T, &AtomicBool) -> Result<R, StepError> + Send + 'static,
    ) -> PyResult<R> {
        let mut taken = self.take(py)?;
        let work = move |is_stopped: &AtomicBool| {
            let outcome = call(taken.value.as_mut().expect("just taken"), is_stopped);
            drop(taken);
            outcome
        };
        let outcome = waiting(py, &self.inner, work)?;
        outcome.map_err(|failed| raise(py, failed))
    }
}

/// Runs `work` without the GIL, where a signal handler can end the wait for it.
fn waiting<T: Send + 'static, R: Send + 'static>(
    py: Python<'_>,
    inner: &Arc<Inner<T>>,
    work: impl FnOnce(&AtomicBool) -> R + Send + 'static,
) -> PyResult<R> {
    let inner = Arc::clone(inner);
    if !is_main_thread() {
        let outcome = py.detach(|| work(&inner.is_closed));
        lend::release_returned(py);
        return Ok(outcome);
    }
    let is_stopped = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&is_stopped);
    let outcome = on_another_thread(py, &inner.is_closed, &stop, move || work(&is_stopped));
    lend::release_returned(py);
    outcome
}

/// Runs what waits and knows nothing of signals.
pub fn interruptible<R: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<R, StepError> + Send + 'static,
) -> PyResult<R> {
    let outcome = if is_main_thread() {
        let never = AtomicBool::new(false);
        on_another_thread(py, &never, &AtomicBool::new(false), work)?
    } else {
        py.detach(work)
    };
    lend::release_returned(py);
    outcome.map_err(|failed| raise(py, failed))
}

fn is_main_thread() -> bool {
    rustix::thread::gettid() == rustix::process::getpid()
}

fn on_another_thread<R: Send + 'static>(
    py: Python<'_>,
    is_closed: &AtomicBool,
    stop: &AtomicBool,
    work: impl FnOnce() -> R + Send + 'static,
) -> PyResult<R> {
    let (send, mut receive) = sync_channel(1);
    // A caller that was interrupted does not receive any more, which is no error.
    memory::thread::spawn("thalweg-call", move || drop(send.send(work())))?;
    loop {
        let receive = &mut receive;
        match py.detach(move || receive.recv_timeout(SLICE)) {
            Ok(outcome) => return Ok(outcome),
            Err(RecvTimeoutError::Timeout) => {
                if let Err(raised) = py.check_signals() {
                    stop.store(true, Ordering::Relaxed);
                    return Err(raised);
                }
                if is_closed.load(Ordering::Relaxed) {
                    stop.store(true, Ordering::Relaxed);
                    return Err(error::new(py, "Closed", "it was closed meanwhile".into()));
                }
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(PyRuntimeError::new_err(
                    "the call panicked; its message is on standard error",
                ));
            }
        }
    }
}

impl<T> Drop for Slot<T> {
    fn drop(&mut self) {
        if self.generation == memory::fork::generation() {
            self.inner.is_closed.store(true, Ordering::Relaxed);
        } else {
            // It is the parent's: here nothing of it is ended.
            std::mem::forget(Arc::clone(&self.inner));
        }
    }
}
