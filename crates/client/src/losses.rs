//! What a full topic has refused since somebody was notified of it.

use crate::error::ClientError;
use std::sync::{Mutex, MutexGuard};
use wire::{ErrorCode, ErrorReply};

/// Of one producer. Written by the core, taken by the next flush.
#[derive(Default)]
pub(crate) struct Losses {
    refused: Mutex<Option<(u64, ErrorReply)>>,
}

impl Losses {
    fn lock(&self) -> MutexGuard<'_, Option<(u64, ErrorReply)>> {
        self.refused.lock().expect("no holder panics here")
    }

    /// A batch was refused. What a topic drops by its own policy is no failure
    /// of the producer: its futures say so.
    pub fn note(&self, events: u32, error: &ErrorReply) {
        if error.code == ErrorCode::TopicFull {
            let mut refused = self.lock();
            let before = refused.as_ref().map_or(0, |(count, _)| *count);
            *refused = Some((before + u64::from(events), error.clone()));
        }
    }

    /// Reports once.
    pub fn take(&self) -> Result<(), ClientError> {
        match self.lock().take() {
            None => Ok(()),
            Some((count, error)) => {
                let message = format!("{count} events were refused: {}", error.message);
                Err(ClientError::Server(ErrorReply { message, ..error }))
            }
        }
    }
}

/// Whether a batch was dropped by a full topic, and the producer goes on.
pub(crate) fn is_drop(error: &ClientError) -> bool {
    matches!(
        error.code(),
        Some(ErrorCode::TopicFull | ErrorCode::EventDropped)
    )
}
