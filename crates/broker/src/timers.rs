//! What is to be looked at when.

use crate::ids::{LinkId, RequestId, SharedId, StorageId};
use std::collections::BTreeSet;
use std::time::Duration;
use wire::TopicId;

/// What a timer is for. Whoever handles one looks whether it is still due:
/// timers are hints and may come too early, never too late.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// A connection's signs of life.
    Session(LinkId),
    /// Deadlines of a connection's requests.
    Requests(LinkId),
    /// Answers of a connection that wait for company.
    Delayed(LinkId),
    /// When what a connection has moved is paid for.
    Pace(LinkId),
    /// How long a fetch waits for its first event.
    Fetch(StorageId, RequestId),
    /// A storage's retention and background syncs.
    Storage(StorageId),
    /// Batches that wait for room in a partition.
    Waiting(StorageId),
    /// Members and revoked partitions of a group or queue.
    Shared(SharedId),
    /// Leases, delays and retries of a queue.
    Queue(SharedId),
    /// Ranks, retries and limits of a stream of steps.
    Steps(TopicId),
    /// The controller of the table.
    Controller,
    /// What the start has found is to be recorded again.
    Found,
    /// The end of a drain's patience.
    Drain,
}

/// All timers, by time.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    set: BTreeSet<(Duration, Timer)>,
}

impl Timers {
    pub fn insert(&mut self, at: Duration, timer: Timer) {
        self.set.insert((at, timer));
    }

    pub fn remove(&mut self, at: Duration, timer: Timer) {
        self.set.remove(&(at, timer));
    }

    pub fn next(&self) -> Option<Duration> {
        self.set.first().map(|(at, _)| *at)
    }

    /// The next timer that is due.
    pub fn pop(&mut self, now: Duration) -> Option<Timer> {
        if self.next()? > now {
            return None;
        }
        self.set.pop_first().map(|(_, timer)| timer)
    }
}
