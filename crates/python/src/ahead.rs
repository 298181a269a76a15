//! Events that were taken from the client and not yet by the user.
//!
//! A mutex would cost a fifth of what an event costs. So the queue is guarded
//! by what guards Python objects: the GIL, or where there is none, the
//! critical section of the consumer that owns it.

use crate::consumer::Consumer;
use client::ConsumedEvent;
use pyo3::prelude::*;
use pyo3::sync::critical_section::with_critical_section;
use std::cell::UnsafeCell;
use std::collections::VecDeque;

/// The queue of one consumer.
#[derive(Default)]
pub struct Ahead(UnsafeCell<VecDeque<ConsumedEvent>>);

// SAFETY: the queue is reached through `with` alone, which lets one thread in
// at a time.
unsafe impl Sync for Ahead {}

impl Ahead {
    /// Looks at the queue. `look` must run no Python code, so it drops no
    /// event: an event can own memory of a Python object.
    fn with<T>(
        &self,
        owner: &Bound<'_, Consumer>,
        look: impl FnOnce(&mut VecDeque<ConsumedEvent>) -> T,
    ) -> T {
        with_critical_section(owner.as_any(), || {
            // SAFETY: the critical section lets in one thread, and `look`
            // can't come back here because it runs no Python code.
            look(unsafe { &mut *self.0.get() })
        })
    }

    /// The next event.
    #[inline]
    pub fn pop(&self, owner: &Bound<'_, Consumer>) -> Option<ConsumedEvent> {
        self.with(owner, VecDeque::pop_front)
    }

    /// Puts events behind the others.
    pub fn extend(&self, owner: &Bound<'_, Consumer>, events: Vec<ConsumedEvent>) {
        self.with(owner, |ahead| ahead.extend(events));
    }

    /// Where the next event of a partition is.
    pub fn first_of(
        &self,
        owner: &Bound<'_, Consumer>,
        partition: wire::PartitionIndex,
    ) -> Option<wire::EventId> {
        self.with(owner, |ahead| {
            let mut ids = ahead.iter().map(ConsumedEvent::id);
            ids.find(|id| id.partition == partition)
        })
    }

    /// Forgets all events.
    pub fn clear(&self, owner: &Bound<'_, Consumer>) {
        drop(self.with(owner, std::mem::take));
    }

    /// Forgets the events of a partition.
    pub fn forget(&self, owner: &Bound<'_, Consumer>, partition: wire::PartitionIndex) {
        let all = self.with(owner, std::mem::take);
        let (forgotten, kept): (VecDeque<_>, VecDeque<_>) = all
            .into_iter()
            .partition(|event| event.id().partition == partition);
        self.with(owner, |ahead| ahead.extend(kept));
        drop(forgotten);
    }
}
