//! `thalweg.Requester`: requests and broadcasts, and their replies.

use crate::ahead::Group;
use crate::event::Event;
use crate::future::Future;
use crate::json::Metadata;
use crate::labels::Labels;
use crate::lend::Payload;
use crate::recipe::Recipe;
use crate::topic::Topic;
use crate::{coroutines, error, lend, wait};
use client::{ClientError, ConsumedEvent, Gather, Gathered};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// Sends requests to a topic, and gets the replies.
///
/// Made by `Topic.requester`. Whoever handles the requests is a member of a
/// queue of the topic, and calls `QueueEvent.reply`. Any number of requests
/// may be under way; may be used by several threads. Requests and replies are
/// events, and as durable as the topic: a request survives its worker, a
/// reply a lost connection.
///
/// Use it in a `with` block, or call `close`. Not usable in a child after
/// `os.fork()`, where it raises `Forked`: open another one there.
#[pyclass(frozen, weakref, module = "thalweg._thalweg", name = "Requester")]
pub struct Requester {
    /// `None` once closed. Taken with the GIL held and let go before it is, so
    /// that no fork finds it taken.
    client: Mutex<Option<Arc<client::Requester>>>,
    topic: Py<Topic>,
    /// For other processes.
    recipe: Recipe,
    raw: bool,
    room_timeout: Duration,
}

impl Requester {
    pub fn new(
        py: Python<'_>,
        client: client::Requester,
        topic: Py<Topic>,
        room_timeout: Duration,
        recipe: Recipe,
    ) -> Self {
        Self {
            client: Mutex::new(Some(Arc::new(client))),
            raw: topic.bind(py).get().is_raw(),
            topic,
            room_timeout,
            recipe,
        }
    }

    fn client(&self) -> MutexGuard<'_, Option<Arc<client::Requester>>> {
        self.client.lock().expect("no holder panics here")
    }

    fn open(&self, py: Python<'_>) -> PyResult<Arc<client::Requester>> {
        let client = self.client().clone();
        client.ok_or_else(|| error::new(py, "Closed", "the requester is closed".into()))
    }

    /// Sends what a user gives, by `send`; waits while there is no space.
    fn send<T: Send>(
        &self,
        py: Python<'_>,
        request: &Request<'_, '_>,
        send: impl Fn(&client::Requester, client::Event<'_>) -> Result<T, ClientError> + Sync,
    ) -> PyResult<T> {
        let client = self.open(py)?;
        let headers = request.labels.headers();
        let payload = Payload::new(request.data, request.borrow)?;
        let event = client::Event {
            metadata: request.metadata.bytes()?,
            data: payload.lent(),
            copied: &payload.copied(),
            key: request.labels.key(),
            headers: &headers,
            ..client::Event::default()
        };
        // Without the GIL: a selector in Python takes it.
        let push = || send(&client, event.clone());
        let sent = match py.detach(push) {
            Err(full @ ClientError::Budget(_)) => {
                wait::for_space(py, self.room_timeout, full, push)
            }
            outcome => outcome.map_err(|reason| error::raise_push(py, reason)),
        };
        drop(event);
        lend::giving_back_at_once(py, || drop(payload));
        // The last handle may be this one, if it was closed meanwhile.
        py.detach(|| drop(client));
        lend::release_returned(py);
        sent
    }
}

/// A request as users give it.
struct Request<'a, 'py> {
    metadata: Metadata<'a, 'py>,
    data: Option<&'a Bound<'py, PyAny>>,
    borrow: bool,
    labels: Labels,
}

/// An event of the replies, as Python has it.
fn event_of(py: Python<'_>, reply: ConsumedEvent, raw: bool) -> PyResult<Py<Event>> {
    let group = Py::new(py, Group(vec![reply]))?;
    Py::new(py, Event::new(group, 0, None, raw))
}

fn gathered_of(py: Python<'_>, gathered: Gathered, raw: bool) -> PyResult<Py<PyAny>> {
    static GATHERED: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let replies = PyDict::new(py);
    for (replier, reply) in gathered.replies {
        replies.set_item(replier, event_of(py, reply, raw)?)?;
    }
    let missing = PyTuple::new(py, gathered.missing)?;
    let class = GATHERED.import(py, "thalweg.descriptions", "Gathered")?;
    class.call1((replies, missing)).map(Bound::unbind)
}

#[pymethods]
impl Requester {
    /// Sends one request and returns the future of its reply at once: an
    /// `Event` of the topic `TOPIC.replies`, with metadata and data.
    ///
    /// `metadata`, `data`, `key`, `headers` and `borrow` are as for
    /// `Producer.push`. After `timeout` seconds without a reply the future raises `Timeout`. Whether the
    /// request was handled is not known then: a worker may still have it, and
    /// a reply that comes later is dropped.
    ///
    /// Does not block unless the budget is full, see `Topic.requester`. Raises
    /// `InvalidEvent` if the request is refused, `BudgetExceeded`, `Closed`,
    /// `Forked`.
    #[pyo3(signature = (metadata = None, data = None, *, key = None, headers = None,
                        timeout = 120.0, borrow = false))]
    #[allow(clippy::too_many_arguments)]
    fn request(
        slf: &Bound<'_, Self>,
        metadata: Option<&Bound<'_, PyAny>>,
        data: Option<&Bound<'_, PyAny>>,
        key: Option<&Bound<'_, PyAny>>,
        headers: Option<&Bound<'_, PyAny>>,
        timeout: f64,
        borrow: bool,
    ) -> PyResult<Future> {
        let (py, this) = (slf.py(), slf.get());
        let timeout = wait::number("timeout", timeout)?;
        let request = Request {
            metadata: Metadata::new(metadata)?,
            data,
            borrow,
            labels: Labels::new(key, headers)?,
        };
        let pending = this.send(py, &request, |client, event| client.request(event, timeout))?;
        let what = format!("the reply to a request to {}", this.topic.get().name());
        // A requester that is let go of would end its requests.
        let (owner, raw) = (slf.clone().unbind(), this.raw);
        Ok(Future::of_call(pending, what, move |py, reply| {
            let _ = &owner;
            event_of(py, reply, raw).map(Py::into_any)
        }))
    }

    /// Asks everybody who is live on the topic, and returns the future of
    /// their replies at once, a `Gathered`.
    ///
    /// Each program that reads the topic as an independent consumer is asked
    /// once, a group or queue once; they reply with `Event.reply` or
    /// `QueueEvent.reply`. The future is resolved when all have replied, or
    /// `at_least` have, or after `timeout` seconds; then it says who is
    /// missing. It raises `Timeout` only if the server did not say in time who
    /// is there. The other arguments are as for `request`.
    #[pyo3(signature = (metadata = None, data = None, *, at_least = None, key = None,
                        headers = None, timeout = 120.0, borrow = false))]
    #[allow(clippy::too_many_arguments)]
    fn broadcast(
        slf: &Bound<'_, Self>,
        metadata: Option<&Bound<'_, PyAny>>,
        data: Option<&Bound<'_, PyAny>>,
        at_least: Option<usize>,
        key: Option<&Bound<'_, PyAny>>,
        headers: Option<&Bound<'_, PyAny>>,
        timeout: f64,
        borrow: bool,
    ) -> PyResult<Future> {
        let (py, this) = (slf.py(), slf.get());
        let timeout = wait::number("timeout", timeout)?;
        let gather = at_least.map_or(Gather::All, Gather::AtLeast);
        let request = Request {
            metadata: Metadata::new(metadata)?,
            data,
            borrow,
            labels: Labels::new(key, headers)?,
        };
        let pending = this.send(py, &request, |client, event| {
            client.broadcast(event, gather, timeout)
        })?;
        let what = format!("replies to a broadcast to {}", this.topic.get().name());
        let (owner, raw) = (slf.clone().unbind(), this.raw);
        Ok(Future::of_call(pending, what, move |py, gathered| {
            let _ = &owner;
            gathered_of(py, gathered, raw)
        }))
    }

    /// How many requests and broadcasts are under way.
    #[getter]
    fn waiting(&self) -> usize {
        let client = self.client().clone();
        client.map_or(0, |client| client.waiting())
    }

    /// Ends it: futures of requests that are under way raise `Closed`, at once.
    /// What was asked may be handled all the same: waits up to `timeout` seconds
    /// until it is stored. Raises `Timeout` if it is not by then, and may never
    /// be. A second call does nothing.
    #[pyo3(signature = (timeout = 120.0))]
    fn close(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let timeout = wait::seconds("timeout", timeout)?.unwrap_or(wait::FOREVER);
        let Some(client) = self.client().take() else {
            return Ok(());
        };
        wait::interruptible(py, move || client.close(timeout))
    }

    /// Whether `close` was called.
    #[getter]
    fn closed(&self) -> bool {
        self.client().is_none()
    }

    /// The topic that it asks.
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
        let alone = [];
        self.recipe.reduce(py, &self.topic, &alone)
    }

    fn __repr__(&self) -> String {
        let state = if self.closed() { ", closed" } else { "" };
        format!("Requester(topic={:?}{state})", self.topic.get().name())
    }
}

impl Drop for Requester {
    fn drop(&mut self) {
        if let Some(client) = self.client().take() {
            client.end_requests();
            wait::drop_elsewhere(client);
        }
    }
}
