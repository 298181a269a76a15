//! `thalweg.Settlement`: what becomes of an event of a queue.

use crate::callbacks::{Callbacks, call_reporting};
use crate::{error, wait};
use client::SettleFuture;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// Resolves when what was said of a queue's event (`acknowledge`,
/// `return_to_queue`, `reject`) is durable, or says why it is not.
///
/// Wait for it with `result`, in a coroutine with `await`, or not at all:
/// `QueueConsumer.close` waits for everything. An event that was settled is
/// out of this program's hands at once; one whose settlement fails may be
/// delivered again.
#[pyclass(frozen, module = "thalweg", name = "Settlement")]
pub struct Settlement(pub SettleFuture);

#[pymethods]
impl Settlement {
    /// Waits until it is durable, up to `timeout` seconds; None waits for ever.
    ///
    /// Raises `LeaseExpired` if the event was not this consumer's any more:
    /// another member has it, or will. `Timeout` if it is still unknown (which
    /// may be tried again), `StorageError` if the server could not record it.
    #[pyo3(signature = (timeout = None))]
    fn result(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        if let Some(outcome) = self.0.try_get() {
            return outcome.map_err(|reason| error::raise(py, reason));
        }
        let timeout = wait::seconds("timeout", timeout)?;
        let wait = |slice| self.0.wait(Some(slice));
        wait::until_done(py, timeout, wait, || self.0.try_get())
    }

    /// The error of the settlement, or None if it is durable. Waits as
    /// `result` does, and raises `Timeout` as it does.
    #[pyo3(signature = (timeout = None))]
    fn exception(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<PyErr>> {
        match self.result(py, timeout) {
            Ok(()) => Ok(None),
            Err(error) if self.done() => Ok(Some(error)),
            Err(error) => Err(error),
        }
    }

    /// Whether the outcome is known. Does not block.
    fn done(&self) -> bool {
        self.0.try_get().is_some()
    }

    /// Calls `function(settlement)` once the outcome is known: now, if it is,
    /// or later on a thread of Thalweg's. What it raises is reported, not raised.
    #[pyo3(signature = (function, /))]
    fn add_done_callback(slf: &Bound<'_, Self>, function: Py<PyAny>) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
        let settlement = slf.clone().into_any().unbind();
        if this.done() {
            call_reporting(py, &function, || settlement);
            return Ok(());
        }
        let callbacks = Callbacks::get(py)?;
        this.0.on_done(Box::new(move || {
            callbacks.call(Box::new(move |py| {
                call_reporting(py, &function, || settlement);
            }));
        }));
        Ok(())
    }

    /// Waits without blocking the event loop.
    fn __await__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        static AWAIT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        AWAIT
            .import(slf.py(), "thalweg._asyncio", "await_outcome")?
            .call1((slf,))
    }

    fn __repr__(&self) -> String {
        match self.0.try_get() {
            None => "Settlement(pending)".into(),
            Some(Ok(())) => "Settlement(durable)".into(),
            Some(Err(error)) => format!("Settlement(failed: {error})"),
        }
    }
}
