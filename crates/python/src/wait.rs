//! Waiting without the GIL, and with Ctrl-C.
//!
//! Python runs signal handlers in its main thread only, and only when that
//! thread asks. So a wait is cut into slices, between which it asks.

use crate::{error, lend};
use client::ClientError;
use memory::Deadline;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

/// The longest that Ctrl-C waits.
const SLICE: Duration = Duration::from_millis(50);

/// No call ends that late: [`Deadline`] takes it for never.
pub const FOREVER: Duration = Duration::MAX;

/// Seconds as users give them; `None` is for ever.
pub fn seconds(name: &str, value: Option<f64>) -> PyResult<Option<Duration>> {
    value.map(|value| number(name, value)).transpose()
}

/// Seconds where there must be a number; infinity is for ever.
pub fn number(name: &str, value: f64) -> PyResult<Duration> {
    if value.is_nan() || value < 0.0 {
        let reason = format!("{name} is a number of seconds from 0, not {value}");
        return Err(PyValueError::new_err(reason));
    }
    // What is too much for a `Duration` is so for any program.
    Ok(Duration::try_from_secs_f64(value).unwrap_or(FOREVER))
}

/// Calls `wait` with ever new slices of time until it returns a value or an
/// error, `deadline` has passed (`None`), or a signal handler raises.
///
/// `wait` runs without the GIL and says `None` when its slice has passed.
pub fn until<T: Send>(
    py: Python<'_>,
    deadline: Deadline,
    mut wait: impl FnMut(Duration) -> Result<Option<T>, ClientError> + Send,
) -> PyResult<Option<T>> {
    loop {
        let slice = deadline.left().min(SLICE);
        let outcome = py.detach(|| wait(slice));
        lend::release_returned(py);
        match outcome {
            Ok(Some(value)) => return Ok(Some(value)),
            Ok(None) => {}
            Err(error) => return Err(error::raise(py, error)),
        }
        py.check_signals()?;
        if deadline.has_passed() {
            return Ok(None);
        }
    }
}

/// Waits for an outcome: `wait` waits for it for a slice of time, and
/// `outcome` looks at it.
///
/// Either may say [`ClientError::Timeout`]. From `outcome` that is what became
/// of the thing waited for; from `wait` alone it is raised when `timeout` has passed.
pub fn until_done<T: Send>(
    py: Python<'_>,
    timeout: Option<Duration>,
    wait: impl Fn(Duration) -> Result<T, ClientError> + Sync,
    outcome: impl Fn() -> Option<Result<T, ClientError>> + Sync,
) -> PyResult<T> {
    let mut last = None;
    let done = until(py, Deadline::within(timeout), |slice| match wait(slice) {
        Err(error) if error.is_timeout() => match outcome() {
            Some(outcome) => outcome.map(Some),
            None => {
                last = Some(error);
                Ok(None)
            }
        },
        known => known.map(Some),
    })?;
    match (done, last) {
        (Some(value), _) => Ok(value),
        (None, Some(error)) => Err(error::raise(py, error)),
        (None, None) => Err(PyRuntimeError::new_err("a wait ended without an outcome")),
    }
}

/// Makes a call that has a deadline of its own but knows nothing of signals.
///
/// In the main thread it runs on another one, and is left to its deadline
/// there if a signal handler raises.
pub fn interruptible<T: Send + 'static>(
    py: Python<'_>,
    call: impl FnOnce() -> Result<T, ClientError> + Send + 'static,
) -> PyResult<T> {
    let main_thread = rustix::thread::gettid() == rustix::process::getpid();
    let outcome = if main_thread {
        on_another_thread(py, call)?
    } else {
        py.detach(call)
    };
    lend::release_returned(py);
    outcome.map_err(|error| error::raise(py, error))
}

fn on_another_thread<T: Send + 'static>(
    py: Python<'_>,
    call: impl FnOnce() -> Result<T, ClientError> + Send + 'static,
) -> PyResult<Result<T, ClientError>> {
    let (send, mut receive) = sync_channel(1);
    std::thread::Builder::new()
        .name("thalweg-call".into())
        // Whoever was interrupted does not receive any more, which is no error.
        .spawn(move || drop(send.send(call())))?;
    loop {
        let receive = &mut receive;
        match py.detach(move || receive.recv_timeout(SLICE)) {
            Ok(outcome) => return Ok(outcome),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(PyRuntimeError::new_err(
                    "the call panicked; its message is on standard error",
                ));
            }
        }
    }
}
