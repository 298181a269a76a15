//! Data selectors and allocators of users.

use crate::event::parse;
use crate::lend::ReceiveBuffer;
use crate::view::DataView;
use crate::{error, lend};
use client::{ConsumedEvent, DataAllocator, DataMode, DataSelector, EventInfo, PartitionsCallback};
use memory::Target;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBool;
use pyo3::{PyTraverseError, PyVisit};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use wire::{EventId, PartitionIndex};

/// The callbacks of one consumer, and what they leave for its events: parsed
/// metadata, and what they raised.
///
/// The client's closures share it with the consumer, in place of owning the
/// callables, so that Python's collector sees these: a callable often refers to
/// the consumer that calls it.
#[derive(Default)]
pub struct Parsed {
    state: Mutex<State>,
    raw: bool,
}

/// Locked with the GIL held, and never while Python code runs.
#[derive(Default)]
struct State {
    /// By the number that [`Parsed::keep`] gave; emptied by the collector.
    callables: Vec<Py<PyAny>>,
    metadata: HashMap<EventId, Py<PyAny>>,
    /// What the allocator gave, filled.
    buffers: HashMap<EventId, Py<PyAny>>,
    raised: Option<PyErr>,
}

impl Parsed {
    pub fn new(raw: bool) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            raw,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics here")
    }

    /// Keeps a callable, and gives the number by which it is called.
    fn keep(&self, callable: Py<PyAny>) -> usize {
        let callables = &mut self.lock().callables;
        callables.push(callable);
        callables.len() - 1
    }

    fn callable<'py>(&self, py: Python<'py>, number: usize) -> PyResult<Bound<'py, PyAny>> {
        let kept = self
            .lock()
            .callables
            .get(number)
            .map(|one| one.clone_ref(py));
        match kept {
            Some(callable) => Ok(callable.into_bound(py)),
            None => Err(error::new(py, "Closed", "the consumer is gone".into())),
        }
    }

    /// For the collector: what is owned here. Whoever has the lock is running,
    /// so that nothing of it is to be collected.
    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        let Ok(state) = self.state.try_lock() else {
            return Ok(());
        };
        for callable in &state.callables {
            visit.call(callable)?;
        }
        for object in state.metadata.values().chain(state.buffers.values()) {
            visit.call(object)?;
        }
        Ok(())
    }

    /// For the collector: lets go of all that it found.
    pub fn clear(&self) {
        let state = std::mem::take(&mut *self.lock());
        drop(state);
    }

    /// Takes the memory that data of the event was received in, if it was.
    pub fn take_received(&self, py: Python<'_>, event: &mut ConsumedEvent) {
        if let Some(target) = event.take_target() {
            let buffer = target.into_owner::<ReceiveBuffer>().into_object(py);
            let before = self.lock().buffers.insert(event.id(), buffer);
            drop(before);
        }
    }

    /// The metadata of an event, if a callback has looked at it, and the
    /// object that its data was received in, if there is one.
    pub fn take(&self, id: EventId) -> (Option<Py<PyAny>>, Option<Py<PyAny>>) {
        let mut state = self.lock();
        (state.metadata.remove(&id), state.buffers.remove(&id))
    }

    /// Whether a callback raised.
    pub fn has_raised(&self) -> bool {
        Python::attach(|_| self.lock().raised.is_some())
    }

    /// What a callback raised last.
    pub fn take_raised(&self) -> Option<PyErr> {
        self.lock().raised.take()
    }

    fn metadata<'py>(&self, py: Python<'py>, info: &EventInfo<'_>) -> PyResult<Bound<'py, PyAny>> {
        let id = info.id();
        let known = self
            .lock()
            .metadata
            .get(&id)
            .map(|known| known.clone_ref(py));
        if let Some(known) = known {
            return Ok(known.into_bound(py));
        }
        let what = || format!("metadata of event {id}");
        let parsed = parse(py, info.metadata(), self.raw, what)?;
        let before = self.lock().metadata.insert(id, parsed.clone().unbind());
        drop(before);
        Ok(parsed)
    }

    /// Runs `callback` with the GIL, and keeps what it raises for the pull.
    fn run<T>(&self, callback: impl FnOnce(Python<'_>) -> PyResult<T>) -> Result<T, String> {
        Python::attach(|py| {
            callback(py).map_err(|raised| {
                let text = raised.to_string();
                let before = self.lock().raised.replace(raised);
                drop(before);
                text
            })
        })
    }
}

/// The options `data` and `allocator` of consumers.
pub struct Wanted {
    pub data: DataMode,
    pub allocator: Option<Arc<DataAllocator>>,
    /// Where the callbacks leave what they make; `None` if there are none.
    pub parsed: Option<Arc<Parsed>>,
}

impl Wanted {
    pub fn new(
        raw: bool,
        data: Option<&Bound<'_, PyAny>>,
        allocator: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let parsed = Parsed::new(raw);
        let mut wanted = Self {
            data: DataMode::All,
            allocator: None,
            parsed: None,
        };
        if let Some(data) = data {
            wanted.data = match data.cast::<PyBool>() {
                Ok(all) if all.is_true() => DataMode::All,
                Ok(_) => DataMode::None,
                Err(_) if data.is_callable() => {
                    wanted.parsed = Some(parsed.clone());
                    DataMode::Select(selector(data.clone().unbind(), parsed.clone()))
                }
                Err(_) => {
                    let message = format!("data is True, False or a function, not {data}");
                    return Err(error::new(data.py(), "InvalidArgument", message));
                }
            };
        }
        if let Some(function) = allocator {
            wanted.parsed = Some(parsed.clone());
            wanted.allocator = Some(self::allocator(function, parsed));
        }
        Ok(wanted)
    }
}

/// What a group's member calls for partitions that came or went.
pub fn on_partitions(callable: Py<PyAny>, parsed: Arc<Parsed>) -> Arc<PartitionsCallback> {
    let number = parsed.keep(callable);
    Arc::new(move |partitions: &[PartitionIndex]| {
        let indices: Vec<u32> = partitions.iter().map(|partition| partition.0).collect();
        // What it raises is kept for the pull, which has it from there.
        let _ = parsed.run(|py| parsed.callable(py, number)?.call1((indices,)).map(drop));
    })
}

/// The client's selector for a callable.
fn selector(callable: Py<PyAny>, parsed: Arc<Parsed>) -> Arc<DataSelector> {
    let number = parsed.keep(callable);
    Arc::new(move |info: &EventInfo<'_>| {
        parsed.run(|py| {
            let whole = DataView(wire::view::DataView::whole(info.data_bytes_total()));
            // No selector can judge what is not JSON, now or later: the event is
            // given out without data, and its `metadata` raises.
            let metadata = match parsed.metadata(py, info) {
                Err(refusal) if refusal.is_instance_of::<PyValueError>(py) => {
                    return Ok(wire::view::DataView::none());
                }
                other => other?,
            };
            let chosen = parsed.callable(py, number)?.call1((metadata, whole))?;
            if chosen.is_none() {
                return Ok(wire::view::DataView::none());
            }
            match chosen.cast::<DataView>() {
                Ok(view) => Ok(view.get().0.clone()),
                Err(_) => {
                    let kind = chosen.get_type().name()?;
                    let message = format!("a selector returns a DataView or None, not {kind}");
                    Err(error::new(py, "InvalidArgument", message))
                }
            }
        })
    })
}

/// The client's allocator for a callable.
fn allocator(callable: Py<PyAny>, parsed: Arc<Parsed>) -> Arc<DataAllocator> {
    let number = parsed.keep(callable);
    Arc::new(move |info: &EventInfo<'_>, view: &wire::view::DataView| {
        parsed.run(|py| {
            let metadata = parsed.metadata(py, info)?;
            let buffer = parsed
                .callable(py, number)?
                .call1((metadata, DataView(view.clone())))?;
            let received = ReceiveBuffer::new(&buffer, view.bytes());
            lend::release_returned(py);
            Ok(Target::from(received?))
        })
    })
}
