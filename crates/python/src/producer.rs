//! `thalweg.Producer`: events on their way out.

use crate::future::Future;
use crate::json::Metadata;
use crate::labels::Labels;
use crate::lend::{Held, Payload};
use crate::recipe::Recipe;
use crate::topic::Topic;
use crate::{coroutines, error, lend, over, wait};
use bytes::Bytes;
use client::{ClientError, Event, PushFuture};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyMapping, PyString, PyTuple};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Metadata and data of one event longer than this are copied without the GIL.
const COPY_BYTES_WITH_GIL_MAX: usize = 64 << 10;
/// Events of `push_many` between two looks for Ctrl-C.
const PUSHES_WITHOUT_GIL_MAX: usize = 4096;

/// Sends events to one topic.
///
/// Made by `Topic.producer`. May be used by several threads; events of one
/// thread keep their order within a partition. Use it in a `with` block, or
/// call `close`: both wait until everything is acknowledged. Usable in a
/// child after `os.fork()`, where it is another producer to the server.
#[pyclass(frozen, weakref, module = "thalweg._thalweg", name = "Producer")]
pub struct Producer {
    /// Taken when this is dropped.
    client: Option<Arc<client::Producer>>,
    topic: Py<Topic>,
    /// For other processes.
    recipe: Recipe,
    closed: AtomicBool,
    /// The process in which the client's producer is open.
    generation: AtomicU64,
    /// How long `push` waits for space in the budget; `None` does not wait.
    room_timeout: Option<Duration>,
    /// Whether batches are sent without anybody asking.
    sends_by_itself: bool,
    /// Whether the client calls Python with its queue locked, so that nobody
    /// may wait for the queue with the GIL.
    selects_in_python: bool,
    /// Whether a schema judges what is pushed, which may take long enough that other
    /// threads should have the GIL meanwhile.
    judges_by_schema: bool,
}

/// What is chosen of a producer that is not the client's to know.
pub struct Policy {
    pub room_timeout: Option<Duration>,
    pub sends_by_itself: bool,
    pub selects_in_python: bool,
    pub judges_by_schema: bool,
}

impl Producer {
    pub fn new(client: client::Producer, topic: Py<Topic>, policy: Policy, recipe: Recipe) -> Self {
        Self {
            client: Some(Arc::new(client)),
            topic,
            closed: AtomicBool::new(false),
            generation: AtomicU64::new(memory::fork::generation()),
            room_timeout: policy.room_timeout,
            sends_by_itself: policy.sends_by_itself,
            selects_in_python: policy.selects_in_python,
            judges_by_schema: policy.judges_by_schema,
            recipe,
        }
    }

    /// Makes a short call that takes the client's queue.
    fn client_call<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&client::Producer) -> T + Send,
    ) -> T {
        let client = self.client();
        match self.calls_without_gil() {
            true => py.detach(|| call(client)),
            false => call(client),
        }
    }

    fn calls_without_gil(&self) -> bool {
        self.selects_in_python || self.judges_by_schema
    }

    fn client(&self) -> &Arc<client::Producer> {
        self.client.as_ref().expect("taken only when dropped")
    }

    fn open(&self, py: Python<'_>) -> PyResult<&client::Producer> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(error::new(py, "Closed", "the producer is closed".into()));
        }
        let generation = memory::fork::generation();
        if self.generation.load(Ordering::Relaxed) != generation {
            self.begin_in_child(py, generation)?;
        }
        Ok(self.client())
    }

    /// Opens the client's producer anew in a child of a fork.
    #[cold]
    fn begin_in_child(&self, py: Python<'_>, generation: u64) -> PyResult<()> {
        let client = Arc::clone(self.client());
        wait::interruptible(py, move || client.id().map(drop))?;
        self.generation.store(generation, Ordering::Relaxed);
        Ok(())
    }

    /// Has batches sent that wait for more events, because somebody waits for them.
    pub fn send_soon(&self, py: Python<'_>) {
        if !self.sends_by_itself {
            drop(self.client_call(py, client::Producer::flush_future));
        }
    }

    /// Pushes once there is space: to be called when there was none.
    fn push_when_space(
        &self,
        py: Python<'_>,
        event: &Event<'_>,
        full: ClientError,
    ) -> PyResult<PushFuture> {
        let Some(timeout) = self.room_timeout else {
            return Err(error::raise(py, full));
        };
        self.send_soon(py);
        wait::for_space(py, timeout, full, || self.client().push(event.clone()))
    }

    fn push_event(&self, py: Python<'_>, event: Event<'_>) -> PyResult<PushFuture> {
        let client = self.open(py)?;
        let data = event.data.iter().map(|piece| &piece[..]);
        let data = data.chain(event.copied.iter().copied()).map(<[u8]>::len);
        let copied = event.metadata.len() + data.sum::<usize>();
        let again = self.room_timeout.is_some().then(|| event.clone());
        let outcome = if copied > COPY_BYTES_WITH_GIL_MAX || self.calls_without_gil() {
            py.detach(|| client.push(event))
        } else {
            lend::giving_back_at_once(py, || client.push(event))
        };
        match (outcome, again) {
            (Ok(push), _) => Ok(push),
            (Err(full @ ClientError::Budget(_)), Some(event)) => {
                self.push_when_space(py, &event, full)
            }
            (Err(error), _) => Err(refused(py, error)),
        }
    }
}

#[pymethods]
impl Producer {
    /// Sends one event and returns its future at once.
    ///
    /// `metadata` is a dict (or anything else that has a JSON form), a str of
    /// JSON, bytes as they are, or None for none; that a str or bytes are JSON is
    /// checked only by a topic with a validator, such as `validator="json"`; an array or a table is data, and
    /// a NaN or an infinity, which JSON has not, is refused. `data` is anything with the
    /// buffer protocol, such as bytes or a numpy array in C order, or a list
    /// of such: then the event's data is their concatenation. Data is copied
    /// before `push` returns, without the GIL where it is large, and is yours to
    /// change or use again at once; `bytes`, which can't change, are kept in place
    /// of that. With `borrow`, data above 64 KiB is not copied: it is sent from
    /// where it lies and kept alive, and you promise not to change it until the
    /// future is resolved; `check_borrowed` of `Topic.producer` finds who does.
    ///
    /// `key` is bytes or str, `headers` a dict or a list of pairs of a str and
    /// bytes or str, `time` the producer's own time: nanoseconds since 1970 or
    /// an aware datetime. `partition` overrules the topic's selector;
    /// `tombstone` says that the event deletes its key.
    ///
    /// Does not block unless the producer's budget is full, see
    /// `Topic.producer`. Raises `InvalidEvent` if the event is refused,
    /// `UnknownPartition`, `BudgetExceeded`, `Closed`, and what the producer has
    /// failed with.
    #[pyo3(signature = (metadata = None, data = None, *, key = None, headers = None, time = None,
                        partition = None, tombstone = false, borrow = false))]
    #[allow(clippy::too_many_arguments)]
    fn push(
        slf: &Bound<'_, Self>,
        metadata: Option<&Bound<'_, PyAny>>,
        data: Option<&Bound<'_, PyAny>>,
        key: Option<&Bound<'_, PyAny>>,
        headers: Option<&Bound<'_, PyAny>>,
        time: Option<&Bound<'_, PyAny>>,
        partition: Option<u32>,
        tombstone: bool,
        borrow: bool,
    ) -> PyResult<Future> {
        let py = slf.py();
        let this = slf.get();
        let metadata = Metadata::new(metadata)?;
        let bytes = metadata.bytes()?;
        let plain = data.is_none()
            && key.is_none()
            && headers.is_none()
            && time.is_none()
            && partition.is_none()
            && !tombstone;
        let push = if plain && bytes.len() <= COPY_BYTES_WITH_GIL_MAX {
            this.open(py)?;
            match this.client_call(py, |client| client.push_metadata(bytes)) {
                Ok(push) => push,
                Err(full @ ClientError::Budget(_)) => {
                    this.push_when_space(py, &Event::new(bytes), full)?
                }
                Err(error) => return Err(refused(py, error)),
            }
        } else {
            let labels = Labels::new(key, headers)?;
            let payload = Payload::new(data, borrow)?;
            let event = Event {
                metadata: bytes,
                data: payload.lent(),
                copied: &payload.copied(),
                key: labels.key(),
                headers: &labels.headers(),
                producer_time: time.map(nanoseconds).transpose()?,
                partition,
                tombstone,
            };
            let pushed = this.push_event(py, event);
            lend::giving_back_at_once(py, || drop(payload));
            pushed?
        };
        lend::release_returned(py);
        Ok(Future::of_push(push, Some(slf.clone().unbind())))
    }

    /// Sends an array as one event, which `Event.array` gives back, and returns its
    /// future at once.
    ///
    /// `array` is a numpy array, or what numpy makes one of, of any shape and of any
    /// dtype without Python objects, structured ones and Fortran's order too; one whose
    /// memory is not in one piece is copied. The event's metadata is `metadata`, a
    /// mapping or None, and `fields`, to which `dtype` and `shape` are added (and `order`
    /// `"F"`, if the first index changes fastest); its data is the array's bytes.
    /// `key`, `headers`, `time`, `partition` and `borrow` are as for `push`; a field of
    /// one of these names goes into `metadata`.
    ///
    /// Raises `InvalidArgument` for an array that bytes alone do not make again, and for
    /// a field that is there twice; and what `push` does.
    #[pyo3(signature = (array, metadata = None, /, *, key = None, headers = None, time = None,
                        partition = None, borrow = false, **fields))]
    #[allow(clippy::too_many_arguments)]
    fn push_array(
        slf: &Bound<'_, Self>,
        array: &Bound<'_, PyAny>,
        metadata: Option<&Bound<'_, PyAny>>,
        key: Option<&Bound<'_, PyAny>>,
        headers: Option<&Bound<'_, PyAny>>,
        time: Option<&Bound<'_, PyAny>>,
        partition: Option<u32>,
        borrow: bool,
        fields: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Future> {
        let py = slf.py();
        let none = PyDict::new(py);
        let make = py.import("thalweg._arrays")?;
        let event = make.call_method1("event_of", (array, metadata, fields.unwrap_or(&none)))?;
        let (metadata, data) = event.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>()?;
        let (metadata, data) = (Some(&metadata), Some(&data));
        Self::push(
            slf, metadata, data, key, headers, time, partition, false, borrow,
        )
    }

    /// Sends many events, in order, and returns their futures.
    ///
    /// `metadata` is a list with one entry an event, each as for `push`, or
    /// one dict, str or bytes (or None) for all of them. `data` is a list with
    /// one entry an event, each as for `push`, or an array of two or more
    /// dimensions in C order, whose first axis counts the events: event i has
    /// the data `data[i]`. Lists and arrays must agree in length. Data is copied
    /// before it returns, or borrowed with `borrow`, as by `push`.
    ///
    /// If an event is refused, those before it were sent; the error says so.
    #[pyo3(signature = (metadata = None, data = None, *, partition = None, borrow = false))]
    fn push_many<'py>(
        slf: &Bound<'py, Self>,
        metadata: Option<&Bound<'py, PyAny>>,
        data: Option<&Bound<'py, PyAny>>,
        partition: Option<u32>,
        borrow: bool,
    ) -> PyResult<Vec<Future>> {
        let py = slf.py();
        let this = slf.get();
        this.open(py)?;
        let entries = metadata.map(entries).transpose()?.flatten();
        let rows = data.map(|data| Rows::new(data, borrow)).transpose()?;
        let count = match (&entries, &rows) {
            (Some(entries), Some(rows)) if entries.len() != rows.len() => {
                let message = format!(
                    "{} entries of metadata for {} of data",
                    entries.len(),
                    rows.len()
                );
                return Err(error::new(py, "InvalidArgument", message));
            }
            (Some(entries), _) => entries.len(),
            (None, Some(rows)) => rows.len(),
            (None, None) => {
                return Err(PyTypeError::new_err(
                    "push_many needs a list of metadata, or data, to know how many events",
                ));
            }
        };
        let metadata: Vec<Metadata<'_, '_>> = match &entries {
            Some(entries) => entries
                .iter()
                .map(|entry| Metadata::new(Some(entry)))
                .collect::<PyResult<_>>()?,
            None => vec![Metadata::new(metadata)?],
        };
        let metadata: Vec<&[u8]> = metadata
            .iter()
            .map(Metadata::bytes)
            .collect::<PyResult<_>>()?;
        let rows = rows.unwrap_or_default();
        let copied: Vec<Vec<&[u8]>> = (0..rows.len()).map(|index| rows.copied(index)).collect();
        let event_at = |index: usize| Event {
            metadata: if entries_given(&metadata, count) {
                metadata[index]
            } else {
                metadata[0]
            },
            data: rows.lent(index),
            copied: copied.get(index).map_or(&[], Vec::as_slice),
            partition,
            ..Event::default()
        };
        let pushes = this.push_in_order(py, count, &event_at);
        drop(copied);
        lend::giving_back_at_once(py, || drop(rows));
        let pushes = pushes?;
        let futures = pushes
            .into_iter()
            .map(|push| Future::of_push(push, Some(slf.clone().unbind())));
        Ok(futures.collect())
    }

    /// Waits until everything that was pushed before is acknowledged, up to
    /// `timeout` seconds; None waits for ever.
    ///
    /// Raises `Timeout`, which says what is outstanding, or what became of a push.
    #[pyo3(signature = (timeout = 120.0))]
    fn flush(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        self.open(py)?;
        self.drain(py, wait::seconds("timeout", timeout)?)
    }

    /// Returns at once, with the future of what `flush` waits for. What
    /// waits for its batch to be full is sent.
    fn begin_flush(&self, py: Python<'_>) -> PyResult<Future> {
        self.open(py)?;
        Ok(Future::of_flush(
            self.client_call(py, client::Producer::begin_flush),
        ))
    }

    /// Flushes, and takes no more events. A second call does nothing.
    #[pyo3(signature = (timeout = 120.0))]
    fn close(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let timeout = wait::seconds("timeout", timeout)?;
        if self.closed.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        self.drain(py, timeout)
    }

    /// Whether `close` was called.
    #[getter]
    fn closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Its name, or None.
    #[getter]
    fn name(&self) -> Option<String> {
        self.client().name().map(str::to_owned)
    }

    /// Its id, 32 hexadecimal digits; a named producer keeps it across restarts.
    #[getter]
    fn id(&self, py: Python<'_>) -> PyResult<String> {
        let id = self.open(py)?.id();
        id.map(|id| id.to_string())
            .map_err(|reason| error::raise(py, reason))
    }

    /// Which life of the producer this is; a newer one fences it.
    #[getter]
    fn epoch(&self, py: Python<'_>) -> PyResult<u32> {
        let epoch = self.open(py)?.epoch();
        epoch
            .map(|epoch| epoch.0)
            .map_err(|reason| error::raise(py, reason))
    }

    /// The topic that it sends to.
    #[getter]
    fn topic(&self, py: Python<'_>) -> Py<Topic> {
        self.topic.clone_ref(py)
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (exc_type = None, exc_value = None, traceback = None, /))]
    fn __exit__(
        &self,
        py: Python<'_>,
        exc_type: Option<&Bound<'_, PyAny>>,
        exc_value: Option<&Bound<'_, PyAny>>,
        traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let _ = (exc_type, exc_value, traceback);
        self.close(py, Some(120.0))
    }

    fn __aenter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        coroutines::enter(slf)
    }

    #[pyo3(signature = (exc_type = None, exc_value = None, traceback = None, /))]
    fn __aexit__<'py>(
        slf: &Bound<'py, Self>,
        exc_type: Option<&Bound<'_, PyAny>>,
        exc_value: Option<&Bound<'_, PyAny>>,
        traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _ = (exc_type, exc_value, traceback);
        coroutines::leave(slf)
    }

    /// How it was opened: each process where this is unpickled opens its like, once.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let alone = [
            ("name", "its name is one program's at a time"),
            ("journal", "its journal is one program's"),
        ];
        self.recipe.reduce(py, &self.topic, &alone)
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let state = if self.closed() { ", closed" } else { "" };
        let name = self
            .name()
            .map_or_else(String::new, |name| format!(", name={name:?}"));
        format!(
            "Producer(topic={:?}{name}{state})",
            self.topic.bind(py).get().name()
        )
    }
}

impl Producer {
    fn drain(&self, py: Python<'_>, timeout: Option<Duration>) -> PyResult<()> {
        let flush = py.detach(|| self.client().flush_future());
        let is_known = || flush.try_get().is_some();
        wait::until_known(py, timeout, |slice| flush.wait(slice), is_known)?;
        let outcome = py.detach(|| flush.try_get());
        outcome.map_or(Ok(()), |outcome| {
            outcome.map_err(|reason| {
                over::note_told(py, &reason);
                error::raise(py, reason)
            })
        })
    }

    /// Pushes `count` events without the GIL, in pieces.
    fn push_in_order<'e>(
        &self,
        py: Python<'_>,
        count: usize,
        event_at: &(impl Fn(usize) -> Event<'e> + Sync),
    ) -> PyResult<Vec<PushFuture>> {
        let mut pushes = Vec::with_capacity(count);
        while pushes.len() < count {
            let begin = pushes.len();
            let end = count.min(begin + PUSHES_WITHOUT_GIL_MAX);
            let (done, refusal) = py.detach(|| {
                let mut done = Vec::with_capacity(end - begin);
                for index in begin..end {
                    match self.client().push(event_at(index)) {
                        Ok(push) => done.push(push),
                        Err(error) => return (done, Some(error)),
                    }
                }
                (done, None)
            });
            pushes.extend(done);
            let sent = pushes.len();
            let outcome = match refusal {
                None => Ok(None),
                Some(full @ ClientError::Budget(_)) => {
                    self.push_when_space(py, &event_at(sent), full).map(Some)
                }
                Some(error) => Err(refused(py, error)),
            };
            match outcome {
                Ok(push) => pushes.extend(push),
                Err(error) => {
                    let note = format!("event {sent} of {count}; those before it were sent");
                    error.value(py).call_method1("add_note", (note,))?;
                    return Err(error);
                }
            }
            py.check_signals()?;
        }
        Ok(pushes)
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        let Some(client) = self.client.take() else {
            return;
        };
        if self.closed.load(Ordering::Relaxed) {
            Python::attach(|py| py.detach(|| drop(client)));
            return;
        }
        // Nobody closed it. What it still holds is sent on another thread, for
        // this one may be anywhere in Python, and closing the driver waits for it.
        wait::drop_elsewhere(client);
    }
}

/// What a push says when it takes no event.
fn refused(py: Python<'_>, reason: ClientError) -> PyErr {
    over::note_told(py, &reason);
    error::raise_push(py, reason)
}

fn entries_given(metadata: &[&[u8]], count: usize) -> bool {
    metadata.len() == count
}

/// The entries of a list of metadata; `None` if it is one for all.
fn entries<'py>(metadata: &Bound<'py, PyAny>) -> PyResult<Option<Vec<Bound<'py, PyAny>>>> {
    let one_for_all = metadata.is_instance_of::<PyDict>()
        || metadata.is_instance_of::<PyString>()
        || metadata.is_instance_of::<PyBytes>()
        || metadata.cast::<PyMapping>().is_ok();
    if one_for_all {
        return Ok(None);
    }
    metadata.try_iter()?.collect::<PyResult<_>>().map(Some)
}

/// The data of each of many events.
enum Rows {
    /// Entries of a list.
    Entries(Vec<Payload>),
    /// Rows of an array, of which there are so many.
    Lent(Bytes, usize),
    Held(Held, usize),
}

impl Rows {
    fn new(data: &Bound<'_, PyAny>, borrow: bool) -> PyResult<Self> {
        if data.is_instance_of::<PyList>() || data.is_instance_of::<PyTuple>() {
            let payload = |entry: PyResult<Bound<'_, PyAny>>| {
                let entry = entry?;
                Payload::new((!entry.is_none()).then_some(&entry), borrow)
            };
            let entries: PyResult<_> = data.try_iter()?.map(payload).collect();
            return Ok(Self::Entries(entries?));
        }
        let (whole, count) = lend::array(data)?;
        Ok(match borrow || lend::is_immutable(data) {
            true => Self::Lent(whole.lend(), count),
            false => Self::Held(whole, count),
        })
    }

    fn len(&self) -> usize {
        match self {
            Self::Entries(entries) => entries.len(),
            Self::Lent(_, count) | Self::Held(_, count) => *count,
        }
    }

    /// Which bytes of the array an event has.
    fn range(&self, bytes: usize, index: usize) -> Range<usize> {
        let each = bytes.checked_div(self.len()).unwrap_or(0);
        index * each..(index + 1) * each
    }

    /// What the client may keep of an event's data.
    fn lent(&self, index: usize) -> Vec<Bytes> {
        match self {
            Self::Entries(entries) => entries.get(index).map_or_else(Vec::new, Payload::lent),
            Self::Lent(whole, _) => vec![whole.slice(self.range(whole.len(), index))],
            Self::Held(..) => Vec::new(),
        }
    }

    /// What the client has to copy of it.
    fn copied(&self, index: usize) -> Vec<&[u8]> {
        match self {
            Self::Entries(entries) => entries[index].copied(),
            Self::Lent(..) => Vec::new(),
            Self::Held(whole, _) => {
                let whole = whole.as_slice();
                vec![&whole[self.range(whole.len(), index)]]
            }
        }
    }
}

impl Default for Rows {
    fn default() -> Self {
        Self::Entries(Vec::new())
    }
}

/// Nanoseconds since 1970, of an int or an aware datetime.
pub fn nanoseconds(time: &Bound<'_, PyAny>) -> PyResult<u64> {
    if let Ok(nanoseconds) = time.extract::<u64>() {
        return Ok(nanoseconds);
    }
    let converter = time.py().import("thalweg._time")?;
    converter.call_method1("nanoseconds", (time,))?.extract()
}
