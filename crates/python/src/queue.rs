//! `thalweg.QueueConsumer` and `thalweg.QueueEvent`: events under leases.

use crate::drain::Drain;
use crate::event::Event;
use crate::future::{EventId, Future};
use crate::gaps::Gaps;
use crate::ready::Ready;
use crate::recipe::Recipe;
use crate::reply::Reply;
use crate::select::Parsed;
use crate::topic::Topic;
use crate::wait::EventWait;
use crate::{coroutines, error, wait};
use client::{ClientError, Pulled, QueueOptions, ReplyData};
use memory::Deadline;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use pyo3::{PyTraverseError, PyVisit};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// Gets single events of a topic, each under a lease: while it lasts, no other
/// member of the queue gets the event.
///
/// Made by `Topic.queue`. Iterate over it, for ever; over `drain()`, until nothing
/// is left; or call `pull`. In a coroutine, `async for` does the same. Each event is to be settled by
/// itself: acknowledged, returned, or rejected; use it in a `with` block. May be used by several
/// threads, which share the events.
///
/// Every event is handled at least once: one whose settlement is durable is
/// never delivered again; one whose lease expires, whose member dies, or that
/// is dropped without being settled, is. Events come in the order of their
/// offsets, what came back first. Lost connections and restarts of the server
/// are survived; a member that was away for longer than its session timeout
/// joins afresh by itself, and settling what it had raises `LeaseExpired`.
///
/// What lies ready here and is not pulled for two thirds of a lease is given
/// back by itself. In a child after `os.fork()` it is another member; events
/// that the parent pulled are the parent's.
#[pyclass(frozen, weakref, module = "thalweg._thalweg", name = "QueueConsumer")]
pub struct QueueConsumer {
    /// `None` once closed. Taken with the GIL held and let go before it is, so
    /// that no fork finds it taken.
    client: Mutex<Option<Arc<client::QueueConsumer>>>,
    /// Seen by other threads between two slices of their waits.
    closed: AtomicBool,
    topic: Py<Topic>,
    /// For other processes.
    recipe: Recipe,
    name: String,
    options: QueueOptions,
    raw: bool,
    gaps: Gaps,
    /// What a selector or allocator left behind; `None` if there is neither.
    parsed: Option<Arc<Parsed>>,
    ready: Arc<Ready>,
    /// The process in which `ready` was filled.
    generation: AtomicU64,
}

/// What one look at the client gave.
enum News<T> {
    Gaps(Vec<(wire::PartitionIndex, wire::record::Gap)>),
    Pulled(T),
}

impl QueueConsumer {
    pub fn new(
        py: Python<'_>,
        client: Arc<client::QueueConsumer>,
        options: QueueOptions,
        topic: Py<Topic>,
        on_gap: Option<Py<PyAny>>,
        parsed: Option<Arc<Parsed>>,
        recipe: Recipe,
    ) -> Self {
        let raw = topic.bind(py).get().is_raw();
        Self {
            name: client.name().to_owned(),
            client: Mutex::new(Some(client)),
            closed: AtomicBool::new(false),
            topic,
            options,
            raw,
            recipe,
            gaps: Gaps::new(on_gap),
            parsed,
            ready: Arc::default(),
            generation: AtomicU64::new(memory::fork::generation()),
        }
    }

    fn client(&self) -> MutexGuard<'_, Option<Arc<client::QueueConsumer>>> {
        self.client.lock().expect("no holder panics here")
    }

    fn open(&self, py: Python<'_>) -> PyResult<Arc<client::QueueConsumer>> {
        let client = self.client().clone();
        client.ok_or_else(|| error::new(py, "Closed", "the consumer is closed".into()))
    }

    /// Up to `max` events, as they lie ready; none if there were none for as long
    /// as is waited.
    fn take(&self, py: Python<'_>, max: usize, wait: &EventWait) -> PyResult<Vec<Py<QueueEvent>>> {
        let pulled = self.pulled(py, wait.deadline(), |client, slice| {
            Ok(match client.pull_look(max, &wait.patience(), slice)? {
                Pulled::Events(events) => Some(events),
                Pulled::Nothing => Some(Vec::new()),
                Pulled::NotYet => None,
            })
        });
        let events = pulled?.unwrap_or_default();
        events
            .into_iter()
            .map(|event| self.event(py, event))
            .collect()
    }

    /// Calls `pull` with slices of time, without the GIL, until it gives something
    /// or `deadline` passes (`None`). Gaps are reported before each.
    pub fn pulled<T: Send>(
        &self,
        py: Python<'_>,
        deadline: Deadline,
        mut pull: impl FnMut(&client::QueueConsumer, Duration) -> Result<Option<T>, ClientError> + Send,
    ) -> PyResult<Option<T>> {
        let generation = memory::fork::generation();
        if self.generation.swap(generation, Ordering::Relaxed) != generation {
            self.ready.forget();
        }
        loop {
            let client = self.open(py)?;
            let news = wait::until(py, deadline, |slice| {
                if self.closed.load(Ordering::Relaxed) {
                    return Err(ClientError::Closed);
                }
                // Gaps first: one that raises must not cost an event.
                let gaps = client.take_gaps();
                if !gaps.is_empty() {
                    return Ok(Some(News::Gaps(gaps)));
                }
                Ok(pull(&client, slice)?.map(News::Pulled))
            });
            // The last handle may be this one, if the consumer was closed meanwhile.
            // Only then: whoever lets the GIL go may wait long to have it again.
            if let Some(client) = Arc::into_inner(client) {
                py.detach(|| drop(client));
            }
            match news {
                Ok(Some(News::Pulled(pulled))) => return Ok(Some(pulled)),
                Ok(Some(News::Gaps(gaps))) => {
                    let topic = self.topic.bind(py).get();
                    for (partition, gap) in gaps {
                        self.gaps.report(py, topic.name(), partition, gap)?;
                    }
                }
                Ok(None) => return Ok(None),
                Err(error) => {
                    let raised = self.parsed.as_ref().and_then(|parsed| parsed.take_raised());
                    return Err(raised.unwrap_or(error));
                }
            }
        }
    }

    /// What was pulled, as Python sees it.
    pub fn event(&self, py: Python<'_>, mut event: client::QueueEvent) -> PyResult<Py<QueueEvent>> {
        let mut leavings = (None, None);
        if let Some(parsed) = &self.parsed {
            parsed.take_received(py, &mut event);
            leavings = parsed.take(event.id());
        }
        let (metadata, buffer) = leavings;
        let event = Arc::new(event);
        let base = Event::leased(Arc::clone(&event), self.raw);
        let base = base.with_leavings(py, metadata, buffer);
        let made = PyClassInitializer::from(base).add_subclass(QueueEvent { event });
        Py::new(py, made)
    }
}

#[pymethods]
impl QueueConsumer {
    /// The next event. None means one thing: the consumer was connected and a
    /// member, the queue gave out events, and for `timeout` seconds none was
    /// ready for it. Others may still have some, or have returned some with a
    /// delay: an empty queue is not a finished one.
    ///
    /// While the server is away, or the queue recovers, the pull waits. If its time
    /// passes meanwhile, or just after the server came back, it raises
    /// `Unreachable` or `Recovering`; both are `retryable`, lose nothing, and
    /// the next pull goes on. A timeout of 0 looks at what has arrived, and
    /// raises in the same way; None waits for ever. A consumer that winds down
    /// gives None at once. What a selector or allocator raises is raised here,
    /// and the event stays where it is: the next pull asks again.
    ///
    /// Raises `Closed`, `Unreachable`, `Recovering`, `Damaged`;
    /// `MemberFenced` once when the program stayed away for longer than its
    /// processing timeout (the next pull joins again), and for good when a
    /// successor of the same instance name took over.
    #[pyo3(signature = (timeout = None))]
    fn pull(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Py<QueueEvent>>> {
        let timeout = wait::seconds("timeout", timeout)?;
        Ok(self.take(py, 1, &EventWait::within(timeout))?.pop())
    }

    /// Up to `count` events: those that lie ready, or else the first ones that
    /// come within `timeout` seconds; an empty list where `pull` gives None. The leases of
    /// all of them run from now on.
    #[pyo3(signature = (count, timeout = None))]
    fn pull_batch(
        &self,
        py: Python<'_>,
        count: usize,
        timeout: Option<f64>,
    ) -> PyResult<Vec<Py<QueueEvent>>> {
        let timeout = wait::seconds("timeout", timeout)?;
        if count == 0 {
            return Ok(Vec::new());
        }
        self.take(py, count, &EventWait::within(timeout))
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<QueueEvent>>> {
        if self.closed() {
            return Ok(None);
        }
        match self.take(py, 1, &EventWait::within(None)) {
            Ok(mut events) => Ok(events.pop()),
            // Another thread closed it while this one waited.
            Err(_) if self.closed() => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn __aiter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __anext__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        coroutines::next_event(slf)
    }

    /// Its events until nothing of the queue is left: what a worker loops over
    /// that is to end when the work is done, as in `for event in queue.drain()`. In a
    /// coroutine, `async for` does the same.
    ///
    /// It ends when the server says that nothing is ready, leased (to anybody,
    /// this consumer included), delayed or on its way to the dead-letter topic,
    /// and that held for `idle` seconds; or when the consumer is closed or winds
    /// down. Lost connections and restarts of the server do not end it, however
    /// long they take. Settle each event before the next one is asked for: what
    /// this consumer holds keeps every worker's loop from its end, until its lease
    /// expires. What is pushed after the end is not waited for: call `drain` again.
    ///
    /// Raises what `pull` does, but not for a server that is away; and
    /// `StorageError` if a partition failed, in which nobody knows what is left.
    #[pyo3(signature = (idle = 1.0))]
    fn drain(slf: &Bound<'_, Self>, idle: f64) -> PyResult<Drain> {
        let idle = wait::number("idle", idle)?;
        slf.get().open(slf.py())?;
        Ok(Drain::new(slf.clone().unbind(), idle))
    }

    /// The next event, if it is here. None says nothing of what there is: the
    /// server may be away.
    fn _look(&self, py: Python<'_>) -> PyResult<Option<Py<QueueEvent>>> {
        Ok(self.take(py, 1, &EventWait::Look)?.pop())
    }

    /// Calls `function()` once, when there is an event or the consumer is closed.
    #[pyo3(signature = (function, /))]
    pub fn _call_when_ready(&self, py: Python<'_>, function: Py<PyAny>) -> PyResult<()> {
        let Some(client) = self.client().clone() else {
            return Ok(());
        };
        // Set anew each time: in a forked child the thread is another one.
        client.on_ready(self.ready.add(py, function)?);
        Ok(())
    }

    /// What was lost before it was settled, by retention or damage: a list of
    /// `Gap`. Without `on_gap` each is a `GapWarning`, too.
    #[getter]
    fn gaps(&self, py: Python<'_>) -> Vec<Py<PyAny>> {
        self.gaps.list(py)
    }

    /// The queue's options as they were set when its name was first used, a
    /// dict: `lease` in seconds, `deliveries_max`, `dead_letter_topic` and
    /// `ordered_by_key`.
    #[getter]
    fn options<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let options = PyDict::new(py);
        let topic = self.topic.bind(py).get();
        options.set_item("lease", self.options.lease_ms as f64 / 1e3)?;
        options.set_item("deliveries_max", self.options.deliveries_max)?;
        let dead_letters = self.options.dead_letter_topic_of(topic.name());
        options.set_item("dead_letter_topic", dead_letters)?;
        options.set_item("ordered_by_key", self.options.ordered_by_key)?;
        Ok(options)
    }

    /// The program is about to end: nothing new is handed out from now on, and
    /// iteration ends. What lies here is given back; what was pulled can be
    /// settled for `within` seconds, then it goes to others, without counting
    /// as a delivery. Does not block, and may be called again: the earlier end counts.
    #[pyo3(signature = (within = 20.0))]
    fn wind_down(&self, within: f64) -> PyResult<()> {
        let within = wait::number("within", within)?;
        if let Some(client) = self.client().clone() {
            client.wind_down(within);
        }
        Ok(())
    }

    /// Whether nothing new is handed out any more, because the program is about
    /// to end: `wind_down` was called, or the job's end is near.
    #[getter]
    fn winding_down(&self) -> bool {
        let client = self.client().clone();
        client.is_some_and(|client| client.is_winding_down())
    }

    /// Leaves the queue: gives back what was not pulled, and waits until
    /// everything that was settled is durable, up to `timeout` seconds.
    ///
    /// Events that were pulled and are not settled go to others. Iteration
    /// ends. A second call does nothing. Raises `Timeout` if the server does
    /// not answer.
    #[pyo3(signature = (timeout = 120.0))]
    fn close(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let timeout = wait::seconds("timeout", timeout)?;
        let Some(client) = self.client().take() else {
            return Ok(());
        };
        self.closed.store(true, Ordering::Relaxed);
        self.ready.wake_all(py);
        let mut leaving = client.begin_close();
        let left = wait::until(py, Deadline::within(timeout), |slice| {
            leaving.wait_for(Some(slice)).transpose()
        });
        if matches!(left, Ok(Some(()))) {
            py.detach(|| drop(client));
        } else {
            // Dropping it waits for the server once more, up to the session
            // timeout: not here, where a signal may have ended the wait.
            wait::drop_elsewhere(client);
        }
        match left? {
            Some(()) => Ok(()),
            None => {
                let message = format!("{} to leave its queue", self.__repr__(py));
                Err(error::new(py, "Timeout", message))
            }
        }
    }

    /// Whether `close` was called.
    #[getter]
    pub fn closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// The queue's name.
    #[getter]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Why this queue gets no event now: one sentence, and in a second line the command that
    /// looks further, as `thalweg why` says it. Asks the server. Raises `Unreachable`.
    fn explain(&self, py: Python<'_>) -> PyResult<String> {
        let topic = self.topic.bind(py).get();
        topic.explain(py, Some(self.name.clone()))
    }

    /// The topic whose events it gets.
    #[getter]
    fn topic(&self, py: Python<'_>) -> Py<Topic> {
        self.topic.clone_ref(py)
    }

    /// What Python's collector has to know: callables that the user gave often
    /// refer to the consumer.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.recipe.traverse(&visit)?;
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
        let alone = [("instance", "it names one member")];
        self.recipe.reduce(py, &self.topic, &alone)
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let state = if self.closed() { ", closed" } else { "" };
        let topic = self.topic.bind(py).get().name().to_owned();
        format!("QueueConsumer({:?}, topic={topic:?}{state})", self.name)
    }
}

impl Drop for QueueConsumer {
    fn drop(&mut self) {
        let client = self.client().take();
        if client.is_some() {
            Python::attach(|py| py.detach(|| drop(client)));
        }
    }
}

/// An event of a queue: this program's alone while its lease lasts.
///
/// It is to be settled once: by `acknowledge`, `return_to_queue` or `reject`.
/// In a `with` block it is acknowledged at the end, and returned, with the
/// exception as the reason, if the block raises; the exception goes on. An event that
/// is let go of without being settled is returned at once, and the delivery counts.
#[pyclass(frozen, extends = Event, module = "thalweg._thalweg", name = "QueueEvent")]
pub struct QueueEvent {
    event: Arc<client::QueueEvent>,
}

#[pymethods]
impl QueueEvent {
    /// How often the event was delivered, this time included, from 1. A crash
    /// of the server may lose the count of deliveries that were under way.
    #[getter]
    fn deliveries(&self) -> u32 {
        self.event.deliveries()
    }

    /// Whether it was settled through this object.
    #[getter]
    fn settled(&self) -> bool {
        self.event.is_settled()
    }

    /// The event is handled: once this is durable it is never delivered again.
    ///
    /// Does not block; what is settled at about the same time travels
    /// together. The future says when it is durable.
    fn acknowledge(&self) -> Future {
        Future::of_settlement(self.event.acknowledge())
    }

    /// The event is to be delivered again after `delay` seconds, here or
    /// elsewhere. Does not block.
    ///
    /// Once it was delivered as often as the queue allows, it goes to the
    /// dead-letter topic instead, with `reason` (its first 1024 bytes).
    #[pyo3(signature = (delay = 0.0, reason = ""))]
    fn return_to_queue(&self, delay: f64, reason: &str) -> PyResult<Future> {
        let delay = wait::number("delay", delay)?;
        Ok(Future::of_settlement(
            self.event.return_because(delay, reason),
        ))
    }

    /// The event can't be handled: it goes to the dead-letter topic, with
    /// `reason` (its first 1024 bytes), and is delivered no more. Does not block.
    #[pyo3(signature = (reason))]
    fn reject(&self, reason: &str) -> Future {
        Future::of_settlement(self.event.reject(reason))
    }

    /// Replies to a request (see `Topic.requester`), and acknowledges it once
    /// the reply is stored. `metadata`, `data` and `borrow` are as for
    /// `Producer.push`.
    ///
    /// The future is the reply's id in the topic `TOPIC.replies`, when both
    /// are durable. Does not block, but for a consumer's first reply, which
    /// opens that topic, and while too much is not stored yet. If the reply
    /// can't be stored, the event is returned to the queue.
    ///
    /// Raises `InvalidEvent` if the event is no request or the reply is
    /// refused, `Timeout`: it is not settled then.
    #[pyo3(signature = (metadata = None, data = None, *, borrow = false))]
    fn reply(
        slf: &Bound<'_, Self>,
        metadata: Option<&Bound<'_, PyAny>>,
        data: Option<&Bound<'_, PyAny>>,
        borrow: bool,
    ) -> PyResult<Future> {
        let event = &slf.get().event;
        let reply = Reply::new(metadata, data, borrow)?;
        let push = |metadata: &[u8], data: ReplyData<'_>| event.try_reply(metadata, data);
        let pending = reply.push(slf.py(), event.begin_replying(), push)?;
        let what = format!("the reply to event {}", event.id());
        Ok(Future::of_call(pending, what, |py, id| {
            Py::new(py, EventId(id)).map(Py::into_any)
        }))
    }

    /// Lets the lease last as long as a new one, from when the server hears of
    /// it: then the future is resolved. Does not block. A consumer with
    /// `renew` does so by itself.
    ///
    /// The future raises `LeaseExpired` if the event was not this consumer's
    /// any more.
    fn extend(&self) -> Future {
        let what = format!("the lease of event {} to be extended", self.event.id());
        Future::of_call(self.event.extend(), what, |py, ()| Ok(py.None()))
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (exc_type = None, exc_value = None, traceback = None, /))]
    fn __exit__(
        &self,
        exc_type: Option<&Bound<'_, PyAny>>,
        exc_value: Option<&Bound<'_, PyAny>>,
        traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let _ = traceback;
        if self.event.is_settled() {
            return Ok(());
        }
        let Some(kind) = exc_type else {
            drop(self.event.acknowledge());
            return Ok(());
        };
        let name = kind.getattr("__name__")?.to_string();
        // What can't say what it is must not keep the event.
        let text = exc_value.and_then(|value| value.str().ok());
        let reason = match text {
            Some(text) if text.len().unwrap_or(0) > 0 => format!("{name}: {text}"),
            _ => name,
        };
        drop(self.event.return_because(Duration::ZERO, &reason));
        Ok(())
    }

    fn __repr__(&self) -> String {
        format!(
            "QueueEvent({}, delivery {}, {} bytes of metadata, {} of data)",
            self.event.id(),
            self.event.deliveries(),
            self.event.metadata().len(),
            self.event.data_bytes_total()
        )
    }
}
