//! Events that were taken from the client and not yet by the user.
//!
//! What one event costs is moving it about and counting references with
//! atomics. So events stay in the group in which they came, and what is handed
//! out is the group and an index. For the same reason the queue has no mutex:
//! it is guarded by what guards Python objects, the GIL, or where there is
//! none, the critical section of the consumer that owns it.

use crate::consumer::Consumer;
use client::ConsumedEvent;
use pyo3::prelude::*;
use pyo3::sync::critical_section::with_critical_section;
use std::cell::UnsafeCell;
use std::collections::VecDeque;

/// Events that were taken from the client at once. Whoever keeps one of them
/// keeps all, so a group is small or its events are.
#[pyclass(frozen, module = "thalweg._thalweg", name = "_Group")]
pub struct Group(pub Vec<ConsumedEvent>);

/// Events that are taken from the client at once, so that one costs little.
const AHEAD_MAX: usize = 512;
/// Bytes of data that these may hold.
const AHEAD_BYTES_MAX: u64 = 4 << 20;

/// How many events to take next, by the size of the last ones.
pub fn fitting(events: &[ConsumedEvent]) -> Option<usize> {
    let bytes: u64 = events.iter().map(held_bytes).sum();
    let mean = bytes.checked_div(events.len() as u64)?;
    let fitting = AHEAD_BYTES_MAX / mean.max(1);
    Some(fitting.clamp(1, AHEAD_MAX as u64) as usize)
}

/// Bytes that an event in hand keeps, beyond its share of a batch.
fn held_bytes(event: &ConsumedEvent) -> u64 {
    let data = match event.data() {
        client::EventDataRef::None => 0,
        client::EventDataRef::Inline(bytes) => bytes.len(),
        client::EventDataRef::Allocated(target) => target.len(),
    };
    (data + event.metadata().len()) as u64
}

/// A group, and which of its events comes next.
struct Rest {
    group: Py<Group>,
    next: u32,
    end: u32,
}

/// The queue of one consumer or reader.
#[derive(Default)]
pub struct Ahead(UnsafeCell<VecDeque<Rest>>);

// SAFETY: the queue is reached through `with` alone, which lets one thread in
// at a time.
unsafe impl Sync for Ahead {}

impl Ahead {
    /// Looks at the queue. `look` must run no Python code, so it drops no
    /// group: an event can own memory of a Python object.
    fn with<T, O>(&self, owner: &Bound<'_, O>, look: impl FnOnce(&mut VecDeque<Rest>) -> T) -> T {
        with_critical_section(owner.as_any(), || {
            // SAFETY: the critical section lets in one thread, and `look`
            // can't come back here because it runs no Python code.
            look(unsafe { &mut *self.0.get() })
        })
    }

    /// The next event: its group and its place there.
    #[inline]
    pub fn pop<O>(&self, owner: &Bound<'_, O>) -> Option<(Py<Group>, u32)> {
        self.with(owner, |ahead| {
            let first = ahead.front_mut()?;
            let index = first.next;
            first.next += 1;
            if first.next < first.end {
                return Some((first.group.clone_ref(owner.py()), index));
            }
            ahead.pop_front().map(|last| (last.group, index))
        })
    }

    /// Puts events behind the others, one group or, if they are to be kept
    /// apart, a group each.
    pub fn extend<O>(
        &self,
        owner: &Bound<'_, O>,
        events: Vec<ConsumedEvent>,
        apart: bool,
    ) -> PyResult<()> {
        if !apart {
            return self.push(owner, events);
        }
        for event in events {
            self.push(owner, vec![event])?;
        }
        Ok(())
    }

    fn push<O>(&self, owner: &Bound<'_, O>, events: Vec<ConsumedEvent>) -> PyResult<()> {
        let end = events.len() as u32;
        if end == 0 {
            return Ok(());
        }
        let group = Py::new(owner.py(), Group(events))?;
        let rest = Rest {
            group,
            next: 0,
            end,
        };
        self.with(owner, |ahead| ahead.push_back(rest));
        Ok(())
    }

    /// Where the next event of a partition is.
    pub fn first_of(
        &self,
        owner: &Bound<'_, Consumer>,
        partition: wire::PartitionIndex,
    ) -> Option<wire::EventId> {
        self.with(owner, |ahead| {
            let mut ids = ahead.iter().flat_map(Rest::ids);
            ids.find(|id| id.partition == partition)
        })
    }

    /// Forgets all events.
    pub fn clear<O>(&self, owner: &Bound<'_, O>) {
        drop(self.with(owner, std::mem::take));
    }

    /// Forgets the events of a partition. The others keep their order.
    pub fn forget(&self, owner: &Bound<'_, Consumer>, partition: wire::PartitionIndex) {
        let all = self.with(owner, std::mem::take);
        let mut kept = VecDeque::new();
        for rest in &all {
            for (index, id) in (rest.next..).zip(rest.ids()) {
                if id.partition != partition {
                    kept.push_back(Rest {
                        group: rest.group.clone_ref(owner.py()),
                        next: index,
                        end: index + 1,
                    });
                }
            }
        }
        self.with(owner, |ahead| ahead.extend(kept));
        drop(all);
    }
}

impl Rest {
    fn ids(&self) -> impl Iterator<Item = wire::EventId> + '_ {
        let events = &self.group.get().0;
        let rest = &events[self.next as usize..self.end as usize];
        rest.iter().map(ConsumedEvent::id)
    }
}
