//! `thalweg.Reader`: what a topic has, and then the end.

use crate::ahead::{self, Ahead};
use crate::event::Event;
use crate::gaps::Gaps;
use crate::ready::Ready;
use crate::select::Parsed;
use crate::topic::Topic;
use crate::{coroutines, error, wait};
use client::{ClientError, Read};
use memory::Deadline;
use pyo3::exceptions::PyStopAsyncIteration;
use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// Reads what a topic had when the read began, and ends. It has no name and no
/// cursor: nothing is acknowledged, and nobody else is concerned.
///
/// Made by `Topic.read`. Iterate over it, once; in a coroutine, `async for` does
/// the same. Events of one partition come in their order; partitions take turns.
/// `close`, the end of a `with` block, or letting go of it ends the read early.
/// Lost connections and restarts of the server are survived. Threads that share
/// one share the events. Not usable in a child after `os.fork()`, which raises
/// `Forked`: read anew there.
///
/// Iterating raises `Damaged`, `Closed` when the driver is closed, `ServerError`;
/// and what a selector or allocator raises: the next step asks again.
#[pyclass(frozen, weakref, module = "thalweg._thalweg", name = "Reader")]
pub struct Reader {
    /// `None` once closed. Taken with the GIL held and let go before it is, so
    /// that no fork finds it taken.
    client: Mutex<Option<Arc<client::Reader>>>,
    /// Seen by other threads between two slices of their waits.
    closed: AtomicBool,
    /// Whether every partition has come to its end.
    is_done: AtomicBool,
    topic: Py<Topic>,
    raw: bool,
    /// Whether data of events was asked for.
    with_data: bool,
    /// Taken from the client and not yet by the user.
    ahead: Ahead,
    /// How many events to take next. A number that only guides.
    ahead_max: AtomicUsize,
    gaps: Gaps,
    /// What a selector or allocator left behind; `None` if there is neither.
    parsed: Option<Arc<Parsed>>,
    ready: Arc<Ready>,
    /// The process that it belongs to.
    generation: u64,
}

impl Reader {
    pub fn new(
        py: Python<'_>,
        client: client::Reader,
        topic: Py<Topic>,
        on_gap: Option<Py<PyAny>>,
        parsed: Option<Arc<Parsed>>,
        with_data: bool,
    ) -> Self {
        let raw = topic.bind(py).get().is_raw();
        Self {
            client: Mutex::new(Some(Arc::new(client))),
            closed: AtomicBool::new(false),
            is_done: AtomicBool::new(false),
            topic,
            raw,
            with_data,
            ahead: Ahead::default(),
            ahead_max: AtomicUsize::new(1),
            gaps: Gaps::new(on_gap),
            parsed,
            ready: Arc::default(),
            generation: memory::fork::generation(),
        }
    }

    fn client(&self) -> MutexGuard<'_, Option<Arc<client::Reader>>> {
        self.client.lock().expect("no holder panics here")
    }

    fn table<'py>(slf: &Bound<'py, Self>, make: &str) -> PyResult<Bound<'py, PyAny>> {
        let tables = slf.py().import("thalweg._tables")?;
        tables.call_method1(make, (slf, slf.get().with_data))
    }

    fn has_ended(&self) -> bool {
        self.is_done.load(Ordering::Relaxed) || self.closed()
    }

    fn take_ahead(slf: &Bound<'_, Self>) -> Option<Event> {
        let this = slf.get();
        let (group, index) = this.ahead.pop(slf)?;
        let Some(parsed) = &this.parsed else {
            return Some(Event::new(group, index, None, this.raw));
        };
        let id = group.get().0[index as usize].id();
        let (metadata, buffer) = parsed.take(id);
        let event = Event::new(group, index, None, this.raw);
        Some(event.with_leavings(slf.py(), metadata, buffer))
    }

    /// The next event; `None` at the end, or if there is none before `deadline`.
    fn next(slf: &Bound<'_, Self>, deadline: Deadline) -> PyResult<Option<Event>> {
        let (py, this) = (slf.py(), slf.get());
        if this.generation != memory::fork::generation() {
            return Err(error::raise(py, ClientError::Forked));
        }
        loop {
            if let Some(event) = Self::take_ahead(slf) {
                return Ok(Some(event));
            }
            if this.has_ended() {
                return Ok(None);
            }
            match Self::fetch_ahead(slf, deadline) {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                // Another thread closed it while this one waited.
                Err(_) if this.closed() => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes events and gaps from the client; `false` if there are none in time.
    fn fetch_ahead(slf: &Bound<'_, Self>, deadline: Deadline) -> PyResult<bool> {
        let (py, this) = (slf.py(), slf.get());
        let Some(client) = this.client().clone() else {
            return Ok(false);
        };
        let max = this.ahead_max.load(Ordering::Relaxed);
        let read = wait::until(py, deadline, |slice| {
            if this.closed.load(Ordering::Relaxed) {
                return Err(ClientError::Closed);
            }
            let read = client.next_batch(max, Some(slice))?;
            let gaps = client.take_gaps();
            let is_news = !matches!(read, Read::Waiting) || !gaps.is_empty();
            Ok(is_news.then_some((read, gaps)))
        });
        // The last handle may be this one, if the reader was closed meanwhile.
        py.detach(|| drop(client));
        let (read, gaps) = match read {
            Ok(Some(read)) => read,
            Ok(None) => return Ok(false),
            Err(error) => {
                let raised = this.parsed.as_ref().and_then(|parsed| parsed.take_raised());
                return Err(raised.unwrap_or(error));
            }
        };
        match read {
            Read::Events(mut events) => {
                if let Some(next) = ahead::fitting(&events) {
                    this.ahead_max.store(next, Ordering::Relaxed);
                }
                if let Some(parsed) = &this.parsed {
                    for event in &mut events {
                        parsed.take_received(py, event);
                    }
                }
                // What callbacks chose can be large: keeping one must not keep others.
                this.ahead.extend(slf, events, this.parsed.is_some())?;
            }
            Read::Waiting => {}
            Read::End => this.is_done.store(true, Ordering::Relaxed),
        }
        for (partition, gap) in gaps {
            let topic = this.topic.bind(py).get();
            this.gaps.report(py, topic.name(), partition, gap)?;
        }
        Ok(true)
    }
}

#[pymethods]
impl Reader {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(slf: &Bound<'_, Self>) -> PyResult<Option<Event>> {
        Self::next(slf, Deadline::within(None))
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
        let client = self.client().clone();
        if let Some(client) = client {
            client.on_ready(self.ready.add(py, function)?);
        }
        Ok(())
    }

    /// An event if there is one, and in how many seconds to look again if no
    /// function is called before; raises `StopAsyncIteration` at the end.
    fn _look(slf: &Bound<'_, Self>) -> PyResult<(Option<Event>, Option<f64>)> {
        let event = Self::next(slf, Deadline::after(Duration::ZERO))?;
        if event.is_none() && slf.get().has_ended() {
            return Err(PyStopAsyncIteration::new_err(()));
        }
        Ok((event, None))
    }

    /// Reads to the end, and returns a `pyarrow.Table` with a row for each event.
    ///
    /// A column for each field of the metadata, null where an event has none, objects as
    /// structs (`_metadata` for metadata that is no object); then `_partition`, `_offset`
    /// and `_append_time`; and `_time`, `_key` and `_data` (bytes), if an event has one.
    /// All of it is in memory at once: `Topic.read(data=False)` leaves the data where it is.
    ///
    /// Raises `InvalidArgument` if a field has not one type in all events, `ImportError`
    /// without pyarrow, and what iterating raises.
    fn to_arrow<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Self::table(slf, "to_arrow")
    }

    /// Reads to the end, and returns a `pandas.DataFrame` with a row for each event.
    ///
    /// The columns are those of `to_arrow`, but fields of fields are columns of their own,
    /// `outer.inner`; `_data` holds arrays of events that `Producer.push_array` made, bytes of
    /// others. Raises `ImportError` without pandas, and what iterating raises.
    fn to_pandas<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Self::table(slf, "to_pandas")
    }

    /// Reads to the end, and returns an `xarray.Dataset` with a dimension `event`.
    ///
    /// Its variable `data` has the arrays of events that `Producer.push_array` made, behind
    /// each other, with the dimensions `event`, `dim_0`, …; what `to_pandas` has as columns are
    /// coordinates along `event`. The arrays are in memory twice while it is made.
    ///
    /// Raises `InvalidArgument` if the arrays are not of one shape and dtype or only some
    /// events have one, `ImportError` without xarray, and what iterating raises.
    fn to_xarray<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Self::table(slf, "to_xarray")
    }

    /// What was lost of that which was to be read, as it was met: a list of
    /// `Gap`. Without `on_gap` each is a `GapWarning`, too.
    #[getter]
    fn gaps(&self, py: Python<'_>) -> Vec<Py<PyAny>> {
        self.gaps.list(py)
    }

    /// Ends the read. Iteration ends. Does not wait for the server; a second call
    /// does nothing.
    fn close(slf: &Bound<'_, Self>) {
        let (py, this) = (slf.py(), slf.get());
        let client = this.client().take();
        this.closed.store(true, Ordering::Relaxed);
        this.ready.wake_all(py);
        this.ahead.clear(slf);
        py.detach(|| drop(client));
    }

    /// Whether `close` was called.
    #[getter]
    fn closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// The topic that it reads.
    #[getter]
    fn topic(&self, py: Python<'_>) -> Py<Topic> {
        self.topic.clone_ref(py)
    }

    /// What Python's collector has to know: callables that the user gave often
    /// refer to the reader.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.topic)?;
        self.gaps.traverse(&visit)?;
        self.ready.traverse(&visit)?;
        match &self.parsed {
            Some(parsed) => parsed.traverse(&visit),
            None => Ok(()),
        }
    }

    fn __clear__(&self) {
        self.ready.forget();
        if let Some(parsed) = &self.parsed {
            parsed.clear();
        }
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (exc_type = None, exc_value = None, traceback = None, /))]
    fn __exit__(
        slf: &Bound<'_, Self>,
        exc_type: Option<&Bound<'_, PyAny>>,
        exc_value: Option<&Bound<'_, PyAny>>,
        traceback: Option<&Bound<'_, PyAny>>,
    ) {
        let _ = (exc_type, exc_value, traceback);
        Self::close(slf);
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let state = if self.closed() { ", closed" } else { "" };
        let topic = self.topic.bind(py).get().name().to_owned();
        format!("Reader(topic={topic:?}{state})")
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let client = self.client().take();
        if client.is_some() {
            Python::attach(|py| py.detach(|| drop(client)));
        }
    }
}
