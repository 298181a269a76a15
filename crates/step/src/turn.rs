//! Turns of a reader's rank, and their release.

use crate::error::StepError;
use client::{Pending, TopicHandle};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use wire::message::ReleaseStep;

/// How long a release may be under way that nobody waits for.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(120);

/// A turn of a reader's rank, which is to be released once.
#[derive(Debug, Clone)]
pub(crate) struct Turn {
    pub topic: TopicHandle,
    pub release: ReleaseStep,
    /// Shared by the view and its reader: the first of them releases it.
    pub is_released: Arc<AtomicBool>,
}

impl Turn {
    /// Releases it, if it is not; waits for nothing. What comes of that the reader finds out.
    pub fn release(&self) {
        drop(self.begin(RELEASE_TIMEOUT));
    }

    /// It is released by nobody any more.
    pub fn leave(&self) {
        // Relaxed: nothing else is ordered by it.
        self.is_released.store(true, Ordering::Relaxed);
    }

    pub fn release_and_wait(&self, timeout: Duration) -> Result<(), StepError> {
        match self.begin(timeout) {
            Some(released) => Ok(released.wait()?),
            None => Ok(()),
        }
    }

    fn begin(&self, timeout: Duration) -> Option<Pending<()>> {
        // Relaxed: nothing else is ordered by it.
        let was = self.is_released.swap(true, Ordering::Relaxed);
        (!was).then(|| self.topic.begin_release_step(&self.release, timeout))
    }
}
