//! `thalweg.Event`: one consumed event.

use crate::ahead::Group;
use crate::consumer::Consumer;
use crate::future::{EventId, Future};
use crate::reply::Reply;
use crate::{error, json, lend};
use client::{ConsumedEvent, EventDataRef};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use std::sync::Arc;

/// One event of a topic, as a consumer got it.
///
/// Nothing of it is copied or parsed before it is asked for. It keeps what
/// came with it in memory, so do not gather events for long: take from them
/// what is needed.
#[pyclass(frozen, subclass, module = "thalweg._thalweg", name = "Event")]
pub struct Event {
    source: Source,
    /// Who got it; `None` for a point read and of a queue, where there is no cursor.
    consumer: Option<Py<Consumer>>,
    raw: bool,
    metadata: PyOnceLock<Py<PyAny>>,
    data: PyOnceLock<Py<PyAny>>,
    /// What the allocator gave, now filled.
    buffer: Option<Py<PyAny>>,
    /// Whether a selector or an allocator was asked what is wanted of its data.
    was_asked: bool,
}

/// Where an event's bytes are.
enum Source {
    /// Among those that came with it, at this place.
    Group(Py<Group>, u32),
    /// With its lease: alone.
    Queue(Arc<client::QueueEvent>),
}

impl Event {
    /// The event of a group at this place; `consumer` is who got it.
    pub fn new(group: Py<Group>, index: u32, consumer: Option<Py<Consumer>>, raw: bool) -> Self {
        Self::of(Source::Group(group, index), consumer, raw)
    }

    /// The event of a queue.
    pub fn leased(event: Arc<client::QueueEvent>, raw: bool) -> Self {
        Self::of(Source::Queue(event), None, raw)
    }

    fn of(source: Source, consumer: Option<Py<Consumer>>, raw: bool) -> Self {
        Self {
            source,
            consumer,
            raw,
            metadata: PyOnceLock::new(),
            data: PyOnceLock::new(),
            buffer: None,
            was_asked: false,
        }
    }

    /// The same with what callbacks of the user left: metadata that is parsed
    /// already, and memory that the data was received in.
    pub fn with_leavings(
        mut self,
        py: Python<'_>,
        parsed: Option<Py<PyAny>>,
        buffer: Option<Py<PyAny>>,
    ) -> Self {
        if let Some(parsed) = parsed {
            self.was_asked = true;
            // A new event: nobody has set it.
            let _ = self.metadata.set(py, parsed);
        }
        self.buffer = buffer;
        self
    }

    fn inner(&self) -> &ConsumedEvent {
        match &self.source {
            Source::Group(group, index) => &group.get().0[*index as usize],
            Source::Queue(event) => event,
        }
    }

    /// Where it is, and the length of its whole data.
    pub fn place(&self) -> (wire::EventId, u64) {
        (self.inner().id(), self.inner().data_bytes_total())
    }

    /// Whether it has data, and nobody has asked for it.
    fn is_unread(&self) -> bool {
        !self.was_asked && self.data_size() > 0
    }

    fn describe(&self) -> String {
        format!("metadata of event {}", self.inner().id())
    }
}

#[pymethods]
impl Event {
    /// Where it is. Within one partition and incarnation, offsets grow.
    #[getter]
    fn id(&self) -> EventId {
        EventId(self.inner().id())
    }

    /// The metadata, parsed from JSON when it is first asked for. None if the
    /// event has none; bytes on a topic whose serializer is `raw`.
    ///
    /// Raises `InvalidArgument` (a `ValueError`) if it is not JSON;
    /// `metadata_bytes` has it in any case.
    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let parsed = self.metadata.get_or_try_init(py, || {
            parse(py, self.inner().metadata(), self.raw, || self.describe()).map(Bound::unbind)
        })?;
        Ok(parsed.bind(py).clone())
    }

    /// The metadata as its producer wrote it.
    #[getter]
    fn metadata_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.inner().metadata())
    }

    /// The data that was selected, as a `memoryview` of bytes without a copy:
    /// of `buffer` if an allocator gave one, else read-only. Empty if a function
    /// `data` selected nothing.
    ///
    /// Raises `InvalidArgument` (a `ValueError`) if it was not read: the event is
    /// of `Topic.fetch`, or of a consumer with `data=False`. `Topic.read_data`
    /// reads it.
    #[getter]
    fn data<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let view = self.data.get_or_try_init(py, || {
            if let Some(buffer) = &self.buffer {
                let view = lend::view_of(buffer.bind(py))?;
                return view.call_method1("cast", ("B",)).map(Bound::unbind);
            }
            let bytes = match self.inner().data() {
                EventDataRef::Inline(bytes) => bytes,
                EventDataRef::None if self.is_unread() => {
                    let message = format!(
                        "the {} bytes of data of event {} were not read: Topic.fetch and a consumer \
                         with data=False leave them where they are; topic.read_data(event) reads them",
                        self.data_size(),
                        self.inner().id()
                    );
                    return Err(error::new(py, "InvalidArgument", message));
                }
                EventDataRef::Allocated(_) | EventDataRef::None => bytes::Bytes::new(),
            };
            lend::memoryview(py, bytes).map(Bound::unbind)
        })?;
        Ok(view.bind(py).clone())
    }

    /// The object that the allocator returned for this event, now filled; None
    /// without an allocator.
    #[getter]
    fn buffer(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.buffer.as_ref().map(|buffer| buffer.clone_ref(py))
    }

    /// Length of the event's whole data in bytes, selected or not.
    #[getter]
    fn data_size(&self) -> u64 {
        self.inner().data_bytes_total()
    }

    /// The selected data as a numpy array, without a copy.
    ///
    /// `dtype` and `shape` are those of numpy; what is left out is taken from
    /// the metadata's `dtype`, and `shape` and `order`, if it is an object that has them.
    /// Without either: bytes, in one dimension. The array is read-only unless
    /// an allocator gave the memory, and keeps that memory alive.
    ///
    /// Raises `ValueError` if the data has another length or the dtype holds Python
    /// objects, and as `data` does.
    #[pyo3(signature = (dtype = None, shape = None))]
    fn numpy<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<Bound<'py, PyAny>>,
        shape: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let said = |key| self.said_by_metadata(py, key);
        let dtype = match dtype {
            Some(dtype) => Some(dtype),
            None => said("dtype")?,
        };
        let (shape, order) = match shape {
            Some(shape) => (Some(shape), None),
            None => (said("shape")?, said("order")?),
        };
        let make = py.import("thalweg._arrays")?;
        make.call_method1("array", (self.data(py)?, dtype, shape, order))
    }

    /// The array that `Producer.push_array` made this event of: its dtype, its shape and
    /// its order are those that the metadata says. Without a copy, as by `numpy`.
    ///
    /// Raises `InvalidArgument` if the metadata has no `dtype` and `shape`, `ValueError` if
    /// not all of the data is here, and as `data` does.
    fn array<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let make = py.import("thalweg._arrays")?;
        make.call_method1("stored", (self.data(py)?, self.metadata(py)?))
    }

    /// The key as bytes, or None; an empty key is a key.
    #[getter]
    fn key<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.inner().key().map(|key| PyBytes::new(py, key))
    }

    /// The headers as a tuple of pairs of a str and bytes.
    #[getter]
    fn headers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let headers = self.inner().headers();
        PyTuple::new(
            py,
            headers
                .iter()
                .map(|(name, value)| (name, PyBytes::new(py, value))),
        )
    }

    /// The producer's own time, nanoseconds since 1970, or None.
    #[getter]
    fn time(&self) -> Option<u64> {
        self.inner().producer_time()
    }

    /// When the server took the event, nanoseconds since 1970.
    #[getter]
    fn append_time(&self) -> u64 {
        self.inner().append_time()
    }

    /// Whether the event deletes its key.
    #[getter]
    fn tombstone(&self) -> bool {
        self.inner().tombstone()
    }

    /// Says that this event and all before it in its partition are done with:
    /// a consumer of the same name will begin behind it.
    ///
    /// Does not block. Acknowledgements are sent together, at least every 50
    /// ms, and become durable then; `Consumer.flush` and `close` wait for that.
    /// Never moves the consumer's position back.
    fn acknowledge(&self, py: Python<'_>) -> PyResult<()> {
        match &self.consumer {
            Some(consumer) => consumer.get().acknowledge_id(py, self.inner().id()),
            None => Err(PyValueError::new_err(
                "this event was read without a consumer, so there is no cursor to move",
            )),
        }
    }

    /// Replies to a request that reached a consumer, as
    /// `Requester.broadcast` sends it; `QueueEvent.reply` is that of a queue.
    /// `metadata`, `data` and `borrow` are as for `Producer.push`.
    ///
    /// The future is the reply's id in the topic `TOPIC.replies`, when it is
    /// durable. Does not block, but for a consumer's first reply, which opens
    /// that topic, and while too much is not stored yet.
    ///
    /// Raises `InvalidEvent` if the event is no request or the reply is
    /// refused, `Timeout`; `ValueError` for an event that was read without a
    /// consumer.
    #[pyo3(signature = (metadata = None, data = None, *, borrow = false))]
    fn reply(
        &self,
        py: Python<'_>,
        metadata: Option<&Bound<'_, PyAny>>,
        data: Option<&Bound<'_, PyAny>>,
        borrow: bool,
    ) -> PyResult<Future> {
        let Some(consumer) = &self.consumer else {
            return Err(PyValueError::new_err(
                "this event was read without a consumer, so nobody can reply for it",
            ));
        };
        let reply = Reply::new(metadata, data, borrow)?;
        consumer.get().reply(py, self.inner(), &reply)
    }

    fn __repr__(&self) -> String {
        format!(
            "Event({}, {} bytes of metadata, {} of data)",
            self.inner().id(),
            self.inner().metadata().len(),
            self.inner().data_bytes_total()
        )
    }
}

impl Event {
    /// What the metadata says under `key`, where it is an object.
    fn said_by_metadata<'py>(
        &self,
        py: Python<'py>,
        key: &str,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        if self.raw || self.inner().metadata().is_empty() {
            return Ok(None);
        }
        match self.metadata(py)?.cast::<PyDict>() {
            Ok(metadata) => metadata.get_item(key),
            Err(_) => Ok(None),
        }
    }
}

/// Metadata as Python sees it.
pub fn parse<'py>(
    py: Python<'py>,
    metadata: &[u8],
    raw: bool,
    what: impl FnOnce() -> String,
) -> PyResult<Bound<'py, PyAny>> {
    if raw {
        return Ok(PyBytes::new(py, metadata).into_any());
    }
    if metadata.is_empty() {
        return Ok(py.None().into_bound(py));
    }
    json::loads(py, metadata, what)
}
