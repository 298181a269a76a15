//! Turns of a reader's rank, and their release.

use crate::error::StepError;
use client::{Pending, TopicHandle};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use wire::message::ReleaseStep;

/// How long a release may be under way that nobody waits for.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(120);

/// What has become of a turn that a rank was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holding {
    Held,
    /// It was released, be it that the server has not heard of it yet.
    Released,
    /// It is to be given again: nobody releases it any more.
    Left,
}

/// A turn of a reader's rank, which is to be released once. Clones are of the same turn.
#[derive(Debug, Clone)]
pub(crate) struct Turn {
    pub topic: TopicHandle,
    pub release: Arc<ReleaseStep>,
    /// Shared by the view and its reader: the first of them releases it.
    holding: Arc<Mutex<Holding>>,
}

impl Turn {
    pub fn new(topic: TopicHandle, release: ReleaseStep) -> Self {
        Self {
            topic,
            release: Arc::new(release),
            holding: Arc::new(Mutex::new(Holding::Held)),
        }
    }

    pub fn holding(&self) -> Holding {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, Holding> {
        self.holding.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It is released, of which its reader tells the server. Says whether it was held.
    pub fn release_unsaid(&self) -> bool {
        let mut holding = self.lock();
        let was_held = *holding == Holding::Held;
        if was_held {
            *holding = Holding::Released;
        }
        was_held
    }

    /// Tells the server that it is released; waits for nothing.
    pub fn say_released(&self) {
        drop(
            self.topic
                .begin_release_step(&self.release, RELEASE_TIMEOUT),
        );
    }

    /// Releases it, if it is held; waits for nothing. What comes of that the reader finds out.
    pub fn release(&self) {
        drop(self.begin(RELEASE_TIMEOUT));
    }

    /// It is released by nobody any more.
    pub fn leave(&self) {
        let mut holding = self.lock();
        if *holding == Holding::Held {
            *holding = Holding::Left;
        }
    }

    pub fn release_and_wait(&self, timeout: Duration) -> Result<(), StepError> {
        match self.begin(timeout) {
            Some(released) => Ok(released.wait()?),
            None => Ok(()),
        }
    }

    fn begin(&self, timeout: Duration) -> Option<Pending<()>> {
        let mut holding = self.lock();
        if *holding != Holding::Held {
            return None;
        }
        *holding = Holding::Released;
        Some(self.topic.begin_release_step(&self.release, timeout))
    }
}
