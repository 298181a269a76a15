//! `thalweg.Consumer`: events on their way in.

use crate::ahead::{self, Ahead};
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
use client::{ClientError, ConsumedEvent, Pulled, ReplyData};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use pyo3::{PyTraverseError, PyVisit};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use wire::record::Position;

/// Receives the events of a topic, partition by partition in their order.
///
/// Made by `Topic.consumer`. Iterate over it, for ever; or call `pull`. In a
/// coroutine, `async for` does the same. Events arrive by themselves while the
/// consumer is open; where it begins and what of the data it gets is said when
/// it is made. Usable in a child after `os.fork()`, where it begins again at
/// its cursor.
#[pyclass(frozen, weakref, module = "thalweg._thalweg", name = "Consumer")]
pub struct Consumer {
    /// `None` once closed. This lock and those below are taken with the GIL
    /// held and let go before it is, so that no fork finds one taken.
    client: Mutex<Option<Arc<client::Consumer>>>,
    /// Seen by other threads between two slices of their waits.
    closed: AtomicBool,
    topic: Py<Topic>,
    /// For other processes.
    recipe: Recipe,
    name: String,
    raw: bool,
    /// Taken from the client and not yet by the user.
    ahead: Ahead,
    /// How many events to take next, by the size of the last ones.
    ahead_max: AtomicUsize,
    kind: Kind,
    /// How many events had been passed over when it was closed.
    skipped_at_close: AtomicU64,
    gaps: Gaps,
    /// What a selector or allocator left behind; `None` if there is neither.
    parsed: Option<Arc<Parsed>>,
    ready: Arc<Ready>,
    /// The process in which `ahead` was filled.
    generation: AtomicU64,
}

/// What a consumer is besides one that reads for itself alone.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Reads for itself; `latest`: the newest events alone.
    Independent { latest: bool },
    /// A group's member.
    Member,
}

impl Kind {
    /// Whether events are taken from the client before they are asked for: not for a group's
    /// member, of whom a partition may be taken away, which is to hear of that with the next
    /// pull; nor where a newer event may take the place of one that waits.
    fn takes_ahead(self) -> bool {
        self == Self::Independent { latest: false }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no holder panics here")
}

impl Consumer {
    pub fn new(
        py: Python<'_>,
        client: Arc<client::Consumer>,
        topic: Py<Topic>,
        on_gap: Option<Py<PyAny>>,
        parsed: Option<Arc<Parsed>>,
        kind: Kind,
        recipe: Recipe,
    ) -> Self {
        let raw = topic.bind(py).get().is_raw();
        Self {
            kind,
            skipped_at_close: AtomicU64::new(0),
            recipe,
            name: client.name().to_owned(),
            client: Mutex::new(Some(client)),
            closed: AtomicBool::new(false),
            topic,
            raw,
            ahead: Ahead::default(),
            ahead_max: AtomicUsize::new(1),
            gaps: Gaps::new(on_gap),
            parsed,
            ready: Arc::default(),
            generation: AtomicU64::new(memory::fork::generation()),
        }
    }

    fn open(&self, py: Python<'_>) -> PyResult<Arc<client::Consumer>> {
        let client = lock(&self.client).clone();
        client.ok_or_else(|| error::new(py, "Closed", "the consumer is closed".into()))
    }

    pub fn acknowledge_id(&self, py: Python<'_>, id: wire::EventId) -> PyResult<()> {
        let client = self.open(py)?;
        client
            .acknowledge(id)
            .map_err(|reason| error::raise(py, reason))
    }

    /// Replies to a request that it got.
    pub fn reply(
        &self,
        py: Python<'_>,
        request: &ConsumedEvent,
        reply: &Reply<'_, '_>,
    ) -> PyResult<Future> {
        let client = self.open(py)?;
        let opening = client.begin_replying();
        let opening = opening.map_err(|reason| error::raise(py, reason))?;
        let push = |metadata: &[u8], data: ReplyData<'_>| client.try_reply(request, metadata, data);
        let pushed = reply.push(py, opening, push);
        // The last handle may be this one, if the consumer was closed meanwhile.
        py.detach(|| drop(client));
        Ok(Future::of_push(pushed?, None))
    }

    /// Begins anew in a child of a fork: what the parent took is the parent's.
    #[cold]
    fn begin_in_child(slf: &Bound<'_, Self>, generation: u64) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        this.ahead.clear(slf);
        this.ready.forget();
        this.generation.store(generation, Ordering::Relaxed);
        let client = this.open(py)?;
        // Nothing is to be acknowledged yet; it waits for the subscriptions.
        wait::interruptible(py, move || client.flush_acknowledgements(wait::FOREVER))
    }

    fn take_ahead(slf: &Bound<'_, Self>) -> Option<Event> {
        let this = slf.get();
        if this.generation.load(Ordering::Relaxed) != memory::fork::generation() {
            return None;
        }
        let (group, index) = this.ahead.pop(slf)?;
        let Some(parsed) = &this.parsed else {
            return Some(Event::new(
                group,
                index,
                Some(slf.clone().unbind()),
                this.raw,
            ));
        };
        let id = group.get().0[index as usize].id();
        let (metadata, buffer) = parsed.take(id);
        let event = Event::new(group, index, Some(slf.clone().unbind()), this.raw);
        Some(event.with_leavings(slf.py(), metadata, buffer))
    }

    /// The next event; `None` if there was none for as long as is waited.
    fn next(slf: &Bound<'_, Self>, wait: &EventWait) -> PyResult<Option<Event>> {
        if let Some(event) = Self::take_ahead(slf) {
            return Ok(Some(event));
        }
        loop {
            if !Self::fetch_ahead(slf, wait)? {
                return Ok(None);
            }
            // Another thread may have been faster.
            if let Some(event) = Self::take_ahead(slf) {
                return Ok(Some(event));
            }
        }
    }

    /// Takes events and gaps from the client; `false` if there are none in time.
    fn fetch_ahead(slf: &Bound<'_, Self>, wait: &EventWait) -> PyResult<bool> {
        let (py, this) = (slf.py(), slf.get());
        let generation = memory::fork::generation();
        if this.generation.load(Ordering::Relaxed) != generation {
            Self::begin_in_child(slf, generation)?;
        }
        let client = this.open(py)?;
        // A number that only guides: nothing is ordered by it.
        let max = this.ahead_max.load(Ordering::Relaxed);
        let pulled = wait::until(py, wait.deadline(), |slice| {
            if this.closed.load(Ordering::Relaxed) {
                return Err(ClientError::Closed);
            }
            let (events, is_over) = match client.pull_look(max, &wait.patience(), slice)? {
                Pulled::Events(events) => (events, true),
                Pulled::Nothing => (Vec::new(), true),
                Pulled::NotYet => (Vec::new(), false),
            };
            let gaps = client.take_gaps();
            let raised = || {
                let parsed = this.parsed.as_ref().filter(|_| this.kind == Kind::Member);
                parsed.is_some_and(|parsed| parsed.has_raised())
            };
            let is_news = is_over || !gaps.is_empty() || raised();
            Ok(is_news.then_some((events, gaps)))
        });
        // The last handle may be this one, if the consumer was closed meanwhile.
        py.detach(|| drop(client));
        let (mut events, gaps) = match pulled {
            Ok(Some(pulled)) => pulled,
            Ok(None) => return Ok(false),
            Err(error) => {
                let raised = this.parsed.as_ref().and_then(|parsed| parsed.take_raised());
                return Err(raised.unwrap_or(error));
            }
        };
        let is_nothing = events.is_empty() && gaps.is_empty();
        if this.kind.takes_ahead()
            && let Some(next) = ahead::fitting(&events)
        {
            this.ahead_max.store(next, Ordering::Relaxed);
        }
        if let Some(parsed) = &this.parsed {
            for event in &mut events {
                parsed.take_received(py, event);
            }
        }
        // What callbacks chose can be large: keeping one must not keep others.
        this.ahead.extend(slf, events, this.parsed.is_some())?;
        // What a group's callbacks raise does not fail the client's pull.
        if this.kind == Kind::Member
            && let Some(raised) = this.parsed.as_ref().and_then(|parsed| parsed.take_raised())
        {
            return Err(raised);
        }
        for (partition, gap) in gaps {
            let topic = this.topic.bind(py).get();
            this.gaps.report(py, topic.name(), partition, gap)?;
        }
        Ok(!is_nothing)
    }
}

#[pymethods]
impl Consumer {
    /// The next event. None means one thing: the consumer was connected and
    /// subscribed for `timeout` seconds, and nothing was there for it.
    ///
    /// While the server is away the pull waits. If its time passes meanwhile,
    /// or just after the server came back, it raises `Unreachable`, and
    /// `Recovering` in a group that waits for members of before the server's
    /// start; both are `retryable`, lose nothing, and the next pull goes on. A timeout
    /// of 0 looks at what has arrived, and raises in the same way; None waits
    /// for ever. What a selector or allocator raises is raised here,
    /// and the event stays where it is: the next pull asks again.
    ///
    /// Raises `Closed`, `Unreachable`, `Recovering`, `Damaged`; in
    /// a group what a callback raises, and `MemberFenced` once when the program
    /// stayed away for longer than its processing timeout (the next pull joins
    /// again), and for good when a successor of the same instance name took over.
    #[pyo3(signature = (timeout = None))]
    fn pull(slf: &Bound<'_, Self>, timeout: Option<f64>) -> PyResult<Option<Event>> {
        let timeout = wait::seconds("timeout", timeout)?;
        Self::next(slf, &EventWait::within(timeout))
    }

    /// Up to `count` events: those that lie ready, or else the first ones that
    /// come within `timeout` seconds; an empty list where `pull` gives None.
    #[pyo3(signature = (count, timeout = None))]
    fn pull_batch(
        slf: &Bound<'_, Self>,
        count: usize,
        timeout: Option<f64>,
    ) -> PyResult<Vec<Event>> {
        let mut events = Vec::new();
        let mut wait = EventWait::within(wait::seconds("timeout", timeout)?);
        while events.len() < count {
            match Self::next(slf, &wait)? {
                Some(event) => events.push(event),
                None => break,
            }
            // What lies behind the first one, whatever became of the server.
            wait = EventWait::Look;
        }
        Ok(events)
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(slf: &Bound<'_, Self>) -> PyResult<Option<Event>> {
        if let Some(event) = Self::take_ahead(slf) {
            return Ok(Some(event));
        }
        if slf.get().closed() {
            return Ok(None);
        }
        match Self::next(slf, &EventWait::within(None)) {
            // Another thread closed it while this one waited.
            Err(_) if slf.get().closed() => Ok(None),
            outcome => outcome,
        }
    }

    fn __aiter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __anext__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        coroutines::next_event(slf)
    }

    /// The next event, if it is here. None says nothing of what there is: the
    /// server may be away.
    fn _look(slf: &Bound<'_, Self>) -> PyResult<Option<Event>> {
        Self::next(slf, &EventWait::Look)
    }

    /// Calls `function()` once, when there is an event or the consumer is closed.
    #[pyo3(signature = (function, /))]
    fn _call_when_ready(&self, py: Python<'_>, function: Py<PyAny>) -> PyResult<()> {
        let Some(client) = lock(&self.client).clone() else {
            return Ok(());
        };
        // Set anew each time: in a forked child the thread is another one.
        client.on_ready(self.ready.add(py, function)?);
        Ok(())
    }

    /// Does what `Event.acknowledge` does, for an id that was kept.
    #[pyo3(signature = (id, /))]
    fn acknowledge(&self, py: Python<'_>, id: &EventId) -> PyResult<()> {
        self.acknowledge_id(py, id.0)
    }

    /// Waits until all acknowledgements are durable, up to `timeout` seconds.
    #[pyo3(signature = (timeout = 120.0))]
    fn flush(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let timeout = wait::seconds("timeout", timeout)?.unwrap_or(wait::FOREVER);
        let client = self.open(py)?;
        wait::interruptible(py, move || client.flush_acknowledgements(timeout))
    }

    /// Moves the consumer's durable cursor in one partition, backwards if need
    /// be, and goes on there: `position` is the offset or the `EventId` of the
    /// event that comes next. Durable when it returns.
    ///
    /// To be called when no other thread is pulling. Within a function `data` or
    /// `allocator` of this consumer it raises `InvalidArgument`, as `pull` does.
    #[pyo3(signature = (partition, position))]
    fn seek(slf: &Bound<'_, Self>, partition: u32, position: &Bound<'_, PyAny>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        let client = this.open(py)?;
        let index = wire::PartitionIndex(partition);
        let position = this.topic.bind(py).get().position(index, position)?;
        // It waits on another thread, which is not the one that a pull calls from.
        if client.is_pulling_here() {
            let begun = client.begin_seek(index, position).map(drop);
            return begun.map_err(|reason| error::raise(py, reason));
        }
        wait::interruptible(py, move || client.seek(index, position))?;
        this.ahead.forget(slf, index);
        Ok(())
    }

    /// The next event to be pulled from `partition`, as the pair of the
    /// partition's incarnation and an offset; None if it is not known yet.
    #[pyo3(signature = (partition))]
    fn position(slf: &Bound<'_, Self>, partition: u32) -> PyResult<Option<(u64, u64)>> {
        let (py, this) = (slf.py(), slf.get());
        let index = wire::PartitionIndex(partition);
        let position = match this.ahead.first_of(slf, index) {
            Some(id) => Some(Position {
                incarnation: id.incarnation,
                offset: id.offset,
            }),
            None => {
                // Whoever pulls may wait for the GIL, in a selector.
                let client = this.open(py)?;
                py.detach(|| client.position(index))
            }
        };
        Ok(position.map(|position| (position.incarnation.0, position.offset.0)))
    }

    /// The partitions that it reads now, a tuple of their indices: for a member
    /// of a group, those that it is assigned.
    #[getter]
    fn partitions<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let client = self.open(py)?;
        let mut partitions = py.detach(|| client.partitions());
        partitions.sort_unstable();
        PyTuple::new(py, partitions)
    }

    /// What was lost of that which this consumer would have got, as it met it:
    /// a list of `Gap`. Without `on_gap` each is a `GapWarning`, too.
    #[getter]
    fn gaps(&self, py: Python<'_>) -> Vec<Py<PyAny>> {
        self.gaps.list(py)
    }

    /// How many events it passed over because there were newer ones, an int, of all partitions
    /// together since it was opened: with `latest`; without it 0. In each partition these, the
    /// events that were pulled and those that were lost are all from where it began to the last
    /// one that was pulled.
    #[getter]
    fn skipped(&self) -> u64 {
        match &*lock(&self.client) {
            Some(client) => client.skipped(),
            None => self.skipped_at_close.load(Ordering::Relaxed),
        }
    }

    /// Waits until all acknowledgements are durable, up to `timeout` seconds,
    /// and ends the subscription. Iteration ends. A second call does nothing.
    #[pyo3(signature = (timeout = 120.0))]
    fn close(slf: &Bound<'_, Self>, timeout: Option<f64>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        let timeout = wait::seconds("timeout", timeout)?.unwrap_or(wait::FOREVER);
        let Some(client) = lock(&this.client).take() else {
            return Ok(());
        };
        this.skipped_at_close
            .store(client.skipped(), Ordering::Relaxed);
        this.closed.store(true, Ordering::Relaxed);
        this.ready.wake_all(py);
        this.ahead.clear(slf);
        wait::interruptible(py, move || client.flush_acknowledgements(timeout))
    }

    /// Whether `close` was called.
    #[getter]
    fn closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Its name, under which its cursors are kept.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// Why this consumer gets no event now, or events without data: one sentence, and in a second
    /// line the command that looks further, as `thalweg why` says it. Asks the server. Raises
    /// `Unreachable`.
    fn explain(&self, py: Python<'_>) -> PyResult<String> {
        let client = lock(&self.client).clone();
        let Some(client) = client else {
            let topic = self.topic.bind(py).get();
            return topic.explain(py, Some(self.name.clone()));
        };
        wait::interruptible(py, move || {
            client.explain().map(|explained| explained.to_string())
        })
    }

    /// The topic that it reads.
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
        slf: &Bound<'_, Self>,
        exc_type: Option<&Bound<'_, PyAny>>,
        exc_value: Option<&Bound<'_, PyAny>>,
        traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let _ = (exc_type, exc_value, traceback);
        Self::close(slf, Some(120.0))
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
        format!("Consumer({:?}, topic={topic:?}{state})", self.name)
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        let client = lock(&self.client).take();
        if client.is_some() {
            Python::attach(|py| py.detach(|| drop(client)));
        }
    }
}
