//! Waiting without the GIL, and with Ctrl-C.
//!
//! Python runs signal handlers in its main thread only, and only when that
//! thread asks. So a wait is cut into slices, between which it asks.

use crate::{error, lend, over};
use client::{ClientError, Patience};
use memory::Deadline;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

/// The longest that Ctrl-C waits.
const SLICE: Duration = Duration::from_millis(50);

/// How long a push that waits for space sleeps between its tries.
const ROOM_SLEEP: Duration = Duration::from_millis(1);

/// No call ends that late: [`Deadline`] takes it for never.
pub const FOREVER: Duration = Duration::MAX;

/// Seconds as users give them; `None` is for ever.
pub fn seconds(name: &str, value: Option<f64>) -> PyResult<Option<Duration>> {
    value.map(|value| number(name, value)).transpose()
}

/// Seconds where there must be a number; infinity is for ever.
pub fn number(name: &str, value: f64) -> PyResult<Duration> {
    if value.is_nan() || value < 0.0 {
        return Err(no_time(name, "seconds", value));
    }
    // What is too much for a `Duration` is so for any program.
    Ok(Duration::try_from_secs_f64(value).unwrap_or(FOREVER))
}

/// Milliseconds as users give them; infinity is for ever.
pub fn milliseconds(name: &str, value: Option<f64>) -> PyResult<Option<Duration>> {
    value
        .map(|value| match value >= 0.0 {
            true => number(name, value / 1e3),
            false => Err(no_time(name, "milliseconds", value)),
        })
        .transpose()
}

fn no_time(name: &str, unit: &str, value: f64) -> PyErr {
    let reason = format!("{name} is a number of {unit} from 0, not {value}");
    Python::attach(|py| error::new(py, "InvalidArgument", reason))
}

/// How long a caller waits for events.
pub enum EventWait {
    /// Takes what is here, and says nothing of what else there is.
    Look,
    /// As a pull does.
    For(Patience),
}

impl EventWait {
    /// As a pull with this timeout.
    pub fn within(timeout: Option<Duration>) -> Self {
        Self::For(Patience::within(timeout))
    }

    /// The same, for the client.
    pub fn patience(&self) -> Patience {
        match self {
            Self::Look => Patience::within(None),
            Self::For(patience) => *patience,
        }
    }

    /// For [`until`]: the client itself ends a pull, after it has judged what
    /// it means that nothing was there.
    pub fn deadline(&self) -> Deadline {
        match self {
            Self::Look => Deadline::after(Duration::ZERO),
            Self::For(_) => Deadline::NEVER,
        }
    }
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
            Err(error) => {
                over::park_if_over(py, &error);
                return Err(error::raise(py, error));
            }
        }
        py.check_signals()?;
        if deadline.has_passed() {
            return Ok(None);
        }
    }
}

/// Waits for an outcome: `wait` waits for it for a slice of time, and
/// `is_known` says whether it is there, be it an error.
///
/// `wait` says [`ClientError::Timeout`] when its slice has passed; that is
/// raised when `timeout` has.
pub fn until_known(
    py: Python<'_>,
    timeout: Option<Duration>,
    wait: impl Fn(Duration) -> Result<(), ClientError> + Sync,
    is_known: impl Fn() -> bool + Sync,
) -> PyResult<()> {
    let mut last = None;
    let known = until(py, Deadline::within(timeout), |slice| match wait(slice) {
        Err(error) if error.is_timeout() && !is_known() => {
            last = Some(error);
            Ok(None)
        }
        _ => Ok(Some(())),
    })?;
    match (known, last) {
        (None, Some(error)) => Err(error::raise(py, error)),
        _ => Ok(()),
    }
}

/// Pushes again and again until there is space, or `timeout` has passed: to be
/// called when there was none. `full` says so, and is raised if none comes.
pub fn for_space<T: Send>(
    py: Python<'_>,
    timeout: Duration,
    full: ClientError,
    push: impl Fn() -> Result<T, ClientError> + Sync,
) -> PyResult<T> {
    let mut last = full;
    let pushed = until(py, Deadline::after(timeout), |slice| {
        let deadline = Deadline::after(slice);
        loop {
            std::thread::sleep(ROOM_SLEEP.min(slice));
            match push() {
                Err(error @ ClientError::Budget(_)) => last = error,
                // Of a push it is another exception than of a wait.
                outcome => return Ok(Some(outcome)),
            }
            if deadline.has_passed() {
                return Ok(None);
            }
        }
    })?;
    match pushed {
        Some(outcome) => outcome.map_err(|reason| error::raise_push(py, reason)),
        None => Err(error::raise(py, last)),
    }
}

/// Drops what waits for the server once more when it is dropped, on a thread
/// of its own.
pub fn drop_elsewhere<T: Send + 'static>(value: T) {
    // Without a thread the closure, and so the value, is dropped here.
    let spawned = memory::thread::spawn("thalweg-drain", move || drop(value));
    drop(spawned);
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
    outcome.map_err(|error| {
        over::park_if_over(py, &error);
        error::raise(py, error)
    })
}

fn on_another_thread<T: Send + 'static>(
    py: Python<'_>,
    call: impl FnOnce() -> Result<T, ClientError> + Send + 'static,
) -> PyResult<Result<T, ClientError>> {
    let (send, mut receive) = sync_channel(1);
    // Whoever was interrupted does not receive any more, which is no error.
    memory::thread::spawn("thalweg-call", move || drop(send.send(call())))?;
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
