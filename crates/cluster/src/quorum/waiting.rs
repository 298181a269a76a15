//! Requests that a leader has taken and not answered.

use super::id::RequestId;
use std::collections::BTreeMap;

/// Requests, and how many times each is to be answered.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    requests: BTreeMap<RequestId, u32>,
}

impl Waiting {
    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    /// The request is under way.
    pub(crate) fn add(&mut self, request: RequestId) {
        *self.requests.entry(request).or_default() += 1;
    }

    /// Whether it is under way; then it is answered once more.
    pub(crate) fn join(&mut self, request: RequestId) -> bool {
        let times = self.requests.get_mut(&request);
        times.map(|times| *times += 1).is_some()
    }

    /// How often it is to be answered now.
    pub(crate) fn take(&mut self, request: RequestId) -> u32 {
        self.requests.remove(&request).unwrap_or(0)
    }

    /// All of them.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = (RequestId, u32)> + use<> {
        std::mem::take(&mut self.requests).into_iter()
    }
}
