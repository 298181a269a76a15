//! `thalweg.Future` and `thalweg.EventId`.

use crate::callbacks::{Callbacks, call_reporting};
use crate::producer::Producer;
use crate::{coroutines, error, over, wait};
use client::{Answered, ClientError, FlushFuture, Pending, PushFuture, SettleFuture};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

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

/// What becomes of something that was begun: its result, once that is there,
/// or an error.
///
/// Of a push it is the event's id, once the event is as durable as the topic
/// promises; until then data that was borrowed must not be changed. Of a flush
/// (`begin_flush`) it is None, once all events before it are. Of a settlement
/// (`acknowledge`, `return_to_queue`, `reject`) it is None, once that is
/// durable; of a request the reply.
///
/// Wait for it with `result`, in a coroutine with `await`, or not at all:
/// `close` of a producer or consumer waits for what it has under way. May be
/// used by several threads and tasks.
#[pyclass(frozen, generic, module = "thalweg", name = "Future")]
pub struct Future(Work);

/// What is waited for.
enum Work {
    Push {
        push: PushFuture,
        /// To have its batch sent when somebody waits for it.
        producer: Option<Py<Producer>>,
    },
    Flush(FlushFuture),
    Settlement(SettleFuture),
    Call(Box<dyn Outcome>),
}

/// What becomes of a call, whatever its result is.
trait Outcome: Send + Sync {
    fn answered(&self) -> &Answered;

    /// Whether the outcome is known.
    fn is_known(&self) -> bool;

    /// The outcome; `None` while it is not known.
    fn get(&self, py: Python<'_>) -> Option<PyResult<Py<PyAny>>>;

    fn timeout(&self) -> ClientError;
}

/// A call under way, and its result as Python has it.
struct Call<T> {
    answered: Answered,
    /// Never locked while Python code runs: that may let the GIL go, to a
    /// thread that waits for this lock with it.
    state: Mutex<State<T>>,
    make: Make<T>,
    made: PyOnceLock<Py<PyAny>>,
    /// What is waited for, in words.
    what: String,
}

/// Makes Python's result.
type Make<T> = Box<dyn Fn(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + Sync>;

struct State<T> {
    pending: Pending<T>,
    outcome: Option<Result<T, ClientError>>,
    /// The value was taken from there to make Python's, on whichever thread.
    is_taken: bool,
}

impl<T: Send> Call<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().expect("no holder panics here")
    }

    fn look(state: &mut State<T>) -> Option<&mut Result<T, ClientError>> {
        if let Some(outcome) = state.pending.try_get() {
            state.outcome = Some(outcome);
        }
        state.outcome.as_mut()
    }
}

impl<T: Send> Outcome for Call<T> {
    fn answered(&self) -> &Answered {
        &self.answered
    }

    fn is_known(&self) -> bool {
        Self::look(&mut self.state()).is_some()
    }

    fn get(&self, py: Python<'_>) -> Option<PyResult<Py<PyAny>>> {
        if let Some(made) = self.made.get(py) {
            return Some(Ok(made.clone_ref(py)));
        }
        let failure = {
            let mut state = self.state();
            let failure = Self::look(&mut state)?.as_ref().err().cloned();
            failure.filter(|_| !state.is_taken)
        };
        if let Some(error) = failure {
            return Some(Err(error::raise(py, error)));
        }
        // Who comes meanwhile waits for it here, without the GIL.
        let made = self.made.get_or_try_init(py, || {
            let taken = {
                let mut state = self.state();
                state.is_taken = true;
                state.outcome.replace(Err(ClientError::Closed))
            };
            let value = taken.unwrap_or(Err(ClientError::Closed));
            let value = value.map_err(|reason| error::raise(py, reason))?;
            (self.make)(py, value)
        });
        Some(made.map(|made| made.clone_ref(py)))
    }

    fn timeout(&self) -> ClientError {
        ClientError::Timeout {
            what: self.what.clone(),
        }
    }
}

impl Future {
    /// Of a push; its batch is sent when somebody waits, if it would not be
    /// without `producer`.
    pub fn of_push(push: PushFuture, producer: Option<Py<Producer>>) -> Self {
        Self(Work::Push { push, producer })
    }

    /// Of all that was pushed before.
    pub fn of_flush(flush: FlushFuture) -> Self {
        Self(Work::Flush(flush))
    }

    /// Of an event of a queue that was settled.
    pub fn of_settlement(settlement: SettleFuture) -> Self {
        Self(Work::Settlement(settlement))
    }

    /// Of a call for `what`, whose result `make` makes, once. What `make` owns
    /// lives as long as the future.
    pub fn of_call<T: Send + 'static>(
        pending: Pending<T>,
        what: String,
        make: impl Fn(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + Sync + 'static,
    ) -> Self {
        Self(Work::Call(Box::new(Call {
            answered: pending.answered(),
            state: Mutex::new(State {
                pending,
                outcome: None,
                is_taken: false,
            }),
            make: Box::new(make),
            made: PyOnceLock::new(),
            what,
        })))
    }

    fn outcome(&self, py: Python<'_>) -> Option<PyResult<Py<PyAny>>> {
        let outcome = match &self.0 {
            Work::Push { push, .. } => match push.try_get()? {
                Ok(id) => Ok(Py::new(py, EventId(id)).map(Py::into_any)),
                Err(error) => Err(error),
            },
            Work::Flush(flush) => flush.try_get()?.map(|()| Ok(py.None())),
            Work::Settlement(settlement) => settlement.try_get()?.map(|()| Ok(py.None())),
            Work::Call(call) => return call.get(py),
        };
        Some(match outcome {
            Ok(value) => value,
            Err(reason) => {
                over::note_told(py, &reason);
                Err(error::raise(py, reason))
            }
        })
    }

    fn is_known(&self) -> bool {
        match &self.0 {
            Work::Push { push, .. } => push.try_get().is_some(),
            Work::Flush(flush) => flush.try_get().is_some(),
            Work::Settlement(settlement) => settlement.try_get().is_some(),
            Work::Call(call) => call.is_known(),
        }
    }

    /// Waits for a slice of time, without the GIL.
    fn wait(&self, slice: Duration) -> Result<(), ClientError> {
        match &self.0 {
            Work::Push { push, .. } => push.wait(Some(slice)).map(drop),
            Work::Flush(flush) => flush.wait(slice),
            Work::Settlement(settlement) => settlement.wait(Some(slice)),
            Work::Call(call) => match call.answered().wait(slice) {
                true => Ok(()),
                false => Err(call.timeout()),
            },
        }
    }

    /// Somebody waits: what gathers is to be sent.
    fn hurry(&self, py: Python<'_>) {
        if let Work::Push {
            producer: Some(producer),
            ..
        } = &self.0
        {
            producer.get().send_soon(py);
        }
    }
}

#[pymethods]
impl Future {
    /// The result, when it is there. Waits up to `timeout` seconds; None waits
    /// as long as the deadline lets it that the thing itself has: that of a
    /// push, for example, is its producer's.
    ///
    /// Raises `Timeout` if it is still unknown then (which may be tried
    /// again), or what went wrong: `LeaseExpired`, for example, if a settled
    /// event was not this consumer's any more.
    #[pyo3(signature = (timeout = None))]
    fn result(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        if let Some(outcome) = self.outcome(py) {
            return outcome;
        }
        self.hurry(py);
        let timeout = wait::seconds("timeout", timeout)?;
        // What is known is looked at with the GIL: see `Call`.
        wait::until_known(py, timeout, |slice| self.wait(slice), || self.is_known())?;
        let unknown = || Err(PyRuntimeError::new_err("a wait ended without an outcome"));
        self.outcome(py).unwrap_or_else(unknown)
    }

    /// The error, or None if there is a result. Waits as `result` does, and
    /// raises `Timeout` as it does.
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
        self.is_known()
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
        this.hurry(py);
        let callbacks = Callbacks::get(py)?;
        let tell = Box::new(move || {
            callbacks.call(Box::new(move |py| call_reporting(py, &function, || future)));
        });
        match &this.0 {
            Work::Push { push, .. } => push.on_done(tell),
            Work::Flush(flush) => flush.on_done(tell),
            Work::Settlement(settlement) => settlement.on_done(tell),
            Work::Call(call) => call.answered().on_done(tell),
        }
        Ok(())
    }

    /// Waits without blocking the event loop.
    fn __await__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        coroutines::await_outcome(slf)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(match self.outcome(py) {
            None => "Future(pending)".into(),
            Some(Ok(value)) => match value.cast_bound::<EventId>(py) {
                Ok(id) => format!("Future({})", id.get().0),
                Err(_) => format!("Future({})", value.bind(py).repr()?),
            },
            Some(Err(error)) => format!("Future(failed: {})", error.value(py)),
        })
    }
}
