//! Requests that a leader has taken and not answered.

use super::id::RequestId;
use super::wal::Part;
use std::collections::BTreeMap;

/// Requests, and how many times each is to be answered.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    requests: BTreeMap<RequestId, u32>,
    made: Vec<Made>,
}

/// A change of members that is applied. Its caller is answered when most of those who vote behind it
/// know durably that it is decided.
///
/// The library counts votes by the members of the applied entries. Those who have the change in
/// their log and do not know that it is decided ask the members before it: if one of these has gone
/// for good, as its removal was answered, there may be no majority of them any more. One who knows is
/// enough: candidates and those who refuse them tell each other up to where the log is decided.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Made {
    pub(crate) request: RequestId,
    /// Where it was applied.
    pub(crate) index: u64,
    /// Once this part of the own log is durable, this voter knows it after a restart.
    pub(crate) part: Part,
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
        self.made.retain(|one| one.request != request);
        self.requests.remove(&request).unwrap_or(0)
    }

    /// The change of members that was asked for is made. Nothing, if nobody here asked for it.
    pub(crate) fn is_made(&mut self, made: Made) {
        if self.requests.contains_key(&made.request) {
            self.made.push(made);
        }
    }

    /// Changes that are made and not answered.
    pub(crate) fn made(&self) -> impl Iterator<Item = &Made> {
        self.made.iter()
    }

    /// All of them.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = (RequestId, u32)> + use<> {
        self.made.clear();
        std::mem::take(&mut self.requests).into_iter()
    }
}
