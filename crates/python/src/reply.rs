//! Replies to requests, on their way out.

use crate::json::Metadata;
use crate::lend::Payload;
use crate::{error, lend, wait};
use client::{Answered, ClientError, ReplyData};
use memory::Deadline;
use pyo3::prelude::*;
use std::time::Duration;

/// How long a reply waits for space among those that are not stored yet.
const SPACE_TIMEOUT: Duration = Duration::from_secs(120);

/// A reply, as users give it.
pub struct Reply<'a, 'py> {
    metadata: Metadata<'a, 'py>,
    payload: Payload,
}

impl<'a, 'py> Reply<'a, 'py> {
    pub fn new(
        metadata: Option<&'a Bound<'py, PyAny>>,
        data: Option<&Bound<'py, PyAny>>,
        borrow: bool,
    ) -> PyResult<Self> {
        Ok(Self {
            metadata: Metadata::new(metadata)?,
            payload: Payload::new(data, borrow)?,
        })
    }

    /// Waits for `opening`, a consumer's first reply, then pushes.
    pub fn push<T: Send>(
        &self,
        py: Python<'_>,
        opening: Option<Answered>,
        push: impl Fn(&[u8], ReplyData<'_>) -> Result<T, ClientError> + Sync,
    ) -> PyResult<T> {
        if let Some(opening) = opening {
            // Each of the calls that this is made of has its deadline.
            let deadline = Deadline::within(None);
            wait::until(py, deadline, |slice| Ok(opening.wait(slice).then_some(())))?;
        }
        let metadata = self.metadata.bytes()?;
        let (data, copied) = (self.payload.lent(), self.payload.copied());
        let push = || {
            let (data, copied) = (data.clone(), &copied[..]);
            push(metadata, ReplyData { data, copied })
        };
        let pushed = match py.detach(push) {
            Err(full @ ClientError::Budget(_)) => wait::for_space(py, SPACE_TIMEOUT, full, push),
            outcome => outcome.map_err(|reason| error::raise_push(py, reason)),
        };
        lend::release_returned(py);
        pushed
    }
}
