//! Who waits for events without blocking.

use crate::callbacks::Callbacks;
use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Functions that one consumer calls, once each, when there may be an event.
#[derive(Default)]
pub struct Ready {
    /// Whether anybody waits. Swapped by whoever tells them.
    awaited: AtomicBool,
    /// Locked with the GIL held.
    callbacks: Mutex<Vec<Py<PyAny>>>,
}

impl Ready {
    fn lock(&self) -> MutexGuard<'_, Vec<Py<PyAny>>> {
        self.callbacks.lock().expect("no holder panics here")
    }

    /// Has `function` called. What is returned is for the client to call when
    /// it has news, on its own thread.
    pub fn add(
        self: &Arc<Self>,
        py: Python<'_>,
        function: Py<PyAny>,
    ) -> PyResult<Box<dyn Fn() + Send + Sync>> {
        self.lock().push(function);
        self.awaited.store(true, Ordering::SeqCst);
        let ready = Arc::clone(self);
        let callbacks = Callbacks::get(py)?;
        Ok(Box::new(move || {
            if ready.awaited.swap(false, Ordering::SeqCst) {
                let ready = Arc::clone(&ready);
                callbacks.call(Box::new(move |py| ready.notify(py)));
            }
        }))
    }

    /// Calls all of them, from a thread with the GIL.
    pub fn wake_all(&self, py: Python<'_>) {
        self.awaited.store(false, Ordering::Relaxed);
        self.notify(py);
    }

    /// Forgets all of them: they are the parent's of this forked process.
    pub fn forget(&self) {
        drop(std::mem::take(&mut *self.lock()));
    }

    /// For Python's collector.
    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        let Ok(callbacks) = self.callbacks.try_lock() else {
            return Ok(());
        };
        callbacks.iter().try_for_each(|one| visit.call(one))
    }

    fn notify(&self, py: Python<'_>) {
        let callbacks = std::mem::take(&mut *self.lock());
        for callback in callbacks {
            if let Err(error) = callback.bind(py).call0() {
                error.write_unraisable(py, Some(callback.bind(py)));
            }
        }
    }
}
