//! `thalweg.Drain`: the events of a queue, until nothing of it is left.

use crate::coroutines;
use crate::queue::{QueueConsumer, QueueEvent};
use client::Drained;
use memory::Deadline;
use pyo3::exceptions::PyStopAsyncIteration;
use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// The events of a queue until nothing of it is left: what `QueueConsumer.drain`
/// gives, which says when that is. To be iterated over once, in a coroutine with
/// `async for`. Threads that share one share the events.
#[pyclass(frozen, module = "thalweg._thalweg", name = "Drain")]
pub struct Drain {
    queue: Py<QueueConsumer>,
    idle: Duration,
    /// Taken out by whoever looks, and given back then. Who finds none begins
    /// anew: that is later at its end, never too early. Locked with the GIL held.
    state: Mutex<Option<State>>,
    /// Nothing comes any more.
    is_done: AtomicBool,
}

struct State {
    drain: client::Drain,
    /// The process whose server was asked.
    generation: u64,
}

impl Drain {
    pub fn new(queue: Py<QueueConsumer>, idle: Duration) -> Self {
        Self {
            queue,
            idle,
            state: Mutex::default(),
            is_done: AtomicBool::new(false),
        }
    }

    fn state(&self) -> MutexGuard<'_, Option<State>> {
        self.state.lock().expect("no holder panics here")
    }

    /// What there is before `deadline`, and when to look again if nothing was.
    fn next(
        &self,
        py: Python<'_>,
        deadline: Deadline,
    ) -> PyResult<(Option<Py<QueueEvent>>, Option<Duration>)> {
        let queue = self.queue.bind(py).get();
        if self.is_done.load(Ordering::Relaxed) || queue.closed() {
            return Ok((None, None));
        }
        let generation = memory::fork::generation();
        let kept = self.state().take();
        let kept = kept.filter(|state| state.generation == generation);
        let mut state = kept.unwrap_or_else(|| State {
            drain: client::Drain::new(self.idle),
            generation,
        });
        let mut due = None;
        let drained = queue.pulled(py, deadline, |client, slice| {
            match state.drain.next(client, Some(slice))? {
                Drained::Waiting => {
                    due = state.drain.due_in(client);
                    Ok(None)
                }
                drained => Ok(Some(drained)),
            }
        });
        let before = self.state().replace(state);
        drop(before);
        match drained {
            Ok(Some(Drained::Event(event))) => Ok((Some(queue.event(py, event)?), None)),
            Ok(Some(Drained::Done)) => {
                self.is_done.store(true, Ordering::Relaxed);
                Ok((None, None))
            }
            Ok(Some(Drained::Waiting) | None) => Ok((None, due)),
            // Another thread closed it while this one waited.
            Err(_) if queue.closed() => Ok((None, None)),
            Err(error) => Err(error),
        }
    }
}

#[pymethods]
impl Drain {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<QueueEvent>>> {
        Ok(self.next(py, Deadline::within(None))?.0)
    }

    fn __aiter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __anext__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        coroutines::next_of_bounded(slf)
    }

    /// Calls `function()` once, when there may be an event, or the end.
    #[pyo3(signature = (function, /))]
    fn _call_when_ready(&self, py: Python<'_>, function: Py<PyAny>) -> PyResult<()> {
        self.queue.bind(py).get()._call_when_ready(py, function)
    }

    /// An event if there is one, and in how many seconds to look again if no
    /// function is called before; raises `StopAsyncIteration` at the end.
    fn _look(&self, py: Python<'_>) -> PyResult<(Option<Py<QueueEvent>>, Option<f64>)> {
        let (event, due) = self.next(py, Deadline::after(Duration::ZERO))?;
        let queue = self.queue.bind(py).get();
        if event.is_none() && (self.is_done.load(Ordering::Relaxed) || queue.closed()) {
            return Err(PyStopAsyncIteration::new_err(()));
        }
        Ok((event, due.map(|due| due.as_secs_f64())))
    }

    /// For Python's collector.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.queue)
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let name = self.queue.bind(py).get().name();
        format!("Drain({name:?}, idle={})", self.idle.as_secs_f64())
    }
}
