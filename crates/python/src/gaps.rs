//! What was lost of that which a consumer would have got.

use crate::describe;
use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

/// Gaps that a consumer remembers.
const GAPS_MAX: usize = 10_000;

/// The gaps that one consumer has met, and who is told of them.
pub struct Gaps {
    /// Locked with the GIL held, and let go before it is.
    met: Mutex<VecDeque<Py<PyAny>>>,
    on_gap: Option<Py<PyAny>>,
}

impl Gaps {
    /// Whoever gave no `on_gap` is warned.
    pub fn new(on_gap: Option<Py<PyAny>>) -> Self {
        Self {
            met: Mutex::default(),
            on_gap,
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Py<PyAny>>> {
        self.met.lock().expect("no holder panics here")
    }

    /// Remembers a gap of a topic, and tells of it.
    pub fn report(
        &self,
        py: Python<'_>,
        topic: &str,
        partition: wire::PartitionIndex,
        gap: wire::record::Gap,
    ) -> PyResult<()> {
        let gap = describe::gap(py, partition, gap)?;
        let forgotten = {
            let mut met = self.lock();
            met.push_back(gap.clone().unbind());
            if met.len() > GAPS_MAX {
                met.pop_front()
            } else {
                None
            }
        };
        drop(forgotten);
        match &self.on_gap {
            Some(callback) => callback.bind(py).call1((gap,)).map(drop),
            None => describe::warn_of(py, topic, &gap),
        }
    }

    /// For Python's collector: who is told. What was met refers to nothing.
    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.on_gap)
    }

    /// All of them, as a list of `Gap`.
    pub fn list(&self, py: Python<'_>) -> Vec<Py<PyAny>> {
        self.lock().iter().map(|gap| gap.clone_ref(py)).collect()
    }
}
