//! `thalweg.Future` and `thalweg.EventId`.

use crate::callbacks::{Callbacks, call_reporting};
use crate::producer::Producer;
use crate::{error, wait};
use client::PushFuture;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Where an event is: its partition, the partition's life, and its offset.
///
/// Ids are compared, hashed and pickled as the triple of numbers that they are.
#[pyclass(frozen, eq, ord, module = "thalweg", name = "EventId")]
#[derive(PartialEq, PartialOrd, Clone, Copy)]
pub struct EventId(pub wire::EventId);

#[pymethods]
impl EventId {
    #[new]
    #[pyo3(signature = (partition, incarnation, offset))]
    fn new(partition: u32, incarnation: u64, offset: u64) -> Self {
        Self(wire::EventId {
            partition: wire::PartitionIndex(partition),
            incarnation: wire::Incarnation(incarnation),
            offset: wire::Offset(offset),
        })
    }

    /// The partition's place in its topic, from 0.
    #[getter]
    fn partition(&self) -> u32 {
        self.0.partition.0
    }

    /// Which life of the partition, from 1: offsets mean something only within one.
    #[getter]
    fn incarnation(&self) -> u64 {
        self.0.incarnation.0
    }

    /// The event's place in the partition, from 0.
    #[getter]
    fn offset(&self) -> u64 {
        self.0.offset.0
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.0.hash(&mut hasher);
        hasher.finish()
    }

    fn __getnewargs__(&self) -> (u32, u64, u64) {
        (self.partition(), self.incarnation(), self.offset())
    }

    /// `partition/offset@incarnation`.
    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        let wire::EventId {
            partition,
            incarnation,
            offset,
        } = self.0;
        format!("EventId(partition={partition}, incarnation={incarnation}, offset={offset})")
    }
}

/// What becomes of one pushed event: an `EventId` once it is as durable as
/// the topic promises, or an error.
///
/// Wait for it with `result`, in a coroutine with `await`, or not at all:
/// `Producer.flush` and `close` wait for everything. Until it is resolved,
/// the event's data must not be changed.
#[pyclass(frozen, module = "thalweg", name = "Future")]
pub struct Future {
    push: PushFuture,
    /// To have its batch sent when somebody waits for it.
    producer: Py<Producer>,
}

impl Future {
    pub fn new(push: PushFuture, producer: Py<Producer>) -> Self {
        Self { push, producer }
    }
}

#[pymethods]
impl Future {
    /// The event's id, when it has one. Waits up to `timeout` seconds; None
    /// waits as long as the producer's own deadline lets it.
    ///
    /// Raises `Timeout` if it is still unknown then (which may be tried
    /// again), or what became of the push.
    #[pyo3(signature = (timeout = None))]
    fn result(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<EventId> {
        if let Some(outcome) = self.push.try_get() {
            return outcome
                .map(EventId)
                .map_err(|reason| error::raise(py, reason));
        }
        self.producer.get().send_soon(py);
        let timeout = wait::seconds("timeout", timeout)?;
        let wait = |slice| self.push.wait(Some(slice));
        wait::until_done(py, timeout, wait, || self.push.try_get()).map(EventId)
    }

    /// The error of the push, or None if the event has its id. Waits as
    /// `result` does, and raises `Timeout` as it does.
    #[pyo3(signature = (timeout = None))]
    fn exception(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<PyErr>> {
        match self.result(py, timeout) {
            Ok(_) => Ok(None),
            Err(error) if self.done() => Ok(Some(error)),
            Err(error) => Err(error),
        }
    }

    /// Whether the outcome is known. Does not block.
    fn done(&self) -> bool {
        self.push.try_get().is_some()
    }

    /// Calls `function(future)` once the outcome is known: now, if it is, or
    /// later on a thread of Thalweg's. What it raises is reported, not raised.
    #[pyo3(signature = (function, /))]
    fn add_done_callback(slf: &Bound<'_, Self>, function: Py<PyAny>) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
        let future = slf.clone().into_any().unbind();
        if this.done() {
            call_reporting(py, &function, || future);
            return Ok(());
        }
        this.producer.get().send_soon(py);
        let callbacks = Callbacks::get(py)?;
        this.push.on_done(Box::new(move || {
            callbacks.call(Box::new(move |py| call_reporting(py, &function, || future)));
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
        match self.push.try_get() {
            None => "Future(pending)".into(),
            Some(Ok(id)) => format!("Future({id})"),
            Some(Err(error)) => format!("Future(failed: {error})"),
        }
    }
}
