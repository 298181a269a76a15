//! Which requests were applied lately: a part of what is applied.
//!
//! A request that is tried again must be known, for as long as it may be tried. So each command
//! says when it was taken, by the time of the cluster ([`ClusterTime`]), and a request is forgotten
//! when a command comes that was taken a retry deadline later. All voters forget alike.

use super::id::RequestId;
use super::settings::REQUESTS_MAX;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use wire::codec::{Codec, DecodeError, Reader, Write};

/// How many requests are remembered at most, and for how long a request is tried again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) requests_max: usize,
    pub(crate) deadline: Duration,
}

impl Memory {
    /// For how much time of the cluster a request is remembered, ms. A quarter more than the
    /// deadline, as clocks differ.
    fn kept_ms(&self) -> u64 {
        self.deadline.as_millis() as u64 * 5 / 4
    }
}

/// The last requests.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Requests {
    /// In the order in which they were applied, and when they were taken.
    order: VecDeque<(RequestId, u64)>,
    index: BTreeMap<RequestId, u64>,
    /// The latest time that a command was taken at.
    latest: u64,
}

/// Bytes of a request in a snapshot.
const REQUEST_BYTES: usize = 16 + 8 + 8;

impl Requests {
    /// Where it was applied.
    pub(crate) fn index_of(&self, request: RequestId) -> Option<u64> {
        self.index.get(&request).copied()
    }

    /// The latest time that a command was taken at.
    pub(crate) fn latest(&self) -> u64 {
        self.latest
    }

    /// It was taken then, and applied there. Forgets those that are tried no more.
    pub(crate) fn record(&mut self, request: RequestId, taken: u64, index: u64, memory: Memory) {
        self.latest = self.latest.max(taken);
        while let Some(&(oldest, taken)) = self.order.front()
            && (taken + memory.kept_ms() < self.latest || self.order.len() >= memory.requests_max)
        {
            self.order.pop_front();
            self.index.remove(&oldest);
        }
        if let Entry::Vacant(vacant) = self.index.entry(request) {
            vacant.insert(index);
            self.order.push_back((request, taken));
        }
    }

    /// How many would still be remembered behind a command that is taken now.
    pub(crate) fn recent(&self, now: u64, memory: Memory) -> usize {
        let forgotten = self.order.iter();
        let forgotten = forgotten.take_while(|(_, taken)| taken + memory.kept_ms() < now);
        self.order.len() - forgotten.count()
    }
}

impl Codec for Requests {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.latest);
        out.put_u32(self.order.len() as u32);
        for (request, taken) in &self.order {
            out.put_u128(request.0);
            out.put_u64(*taken);
            out.put_u64(self.index[request]);
        }
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let latest = from.u64()?;
        let count = from.count(REQUEST_BYTES)?;
        if count > REQUESTS_MAX {
            return Err(from.refuse("requests", count as u64));
        }
        let mut requests = Self {
            latest,
            ..Self::default()
        };
        for _ in 0..count {
            let request = RequestId(from.u128()?);
            let taken = from.u64()?;
            let index = from.u64()?;
            if taken > latest || requests.index.insert(request, index).is_some() {
                return Err(from.refuse("request index", index));
            }
            requests.order.push_back((request, taken));
        }
        Ok(requests)
    }
}

/// The time of the cluster, ms: it goes on as long as commands do, from leader to leader.
///
/// A leader counts on by its own clock from the last command that it knew of when it was elected;
/// everybody else holds its clock against each command. So between two commands the time grows by
/// no more than the fastest clock has run between them, and stands still while nobody leads.
#[derive(Debug, Default)]
pub(crate) struct ClusterTime {
    known: u64,
    at: Duration,
}

impl ClusterTime {
    pub(crate) fn now(&self, clock: Duration) -> u64 {
        self.known + clock.saturating_sub(self.at).as_millis() as u64
    }

    /// A command was applied that was taken then.
    pub(crate) fn applied(&mut self, taken: u64, clock: Duration, leads: bool) {
        if !leads || taken > self.now(clock) {
            (self.known, self.at) = (taken, clock);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMORY: Memory = Memory {
        requests_max: 100,
        deadline: Duration::from_millis(800),
    };

    #[test]
    fn a_request_is_forgotten_when_it_is_tried_no_more() {
        let mut requests = Requests::default();
        for id in 1..=5 {
            requests.record(RequestId(id), 500 * id as u64, id as u64, MEMORY);
        }
        assert_eq!(requests.index_of(RequestId(2)), None);
        assert_eq!(requests.index_of(RequestId(3)), Some(3));
        assert_eq!(requests.recent(2500, MEMORY), 3);
        assert_eq!(requests.recent(3001, MEMORY), 1);
        requests.record(RequestId(5), 2500, 9, MEMORY);
        assert_eq!(requests.index_of(RequestId(5)), Some(5));
        let bytes = requests.to_bytes();
        assert_eq!(Requests::from_bytes("requests", &bytes).unwrap(), requests);
        let mut twice = bytes;
        twice.copy_within(12..28, 12 + REQUEST_BYTES);
        assert!(Requests::from_bytes("requests", &twice).is_err());
    }

    #[test]
    fn there_are_never_more_than_are_to_be_remembered() {
        let mut requests = Requests::default();
        for id in 1..=500 {
            requests.record(RequestId(id), 1, id as u64, MEMORY);
        }
        assert_eq!(requests.recent(1, MEMORY), 100);
    }

    #[test]
    fn time_goes_on_from_leader_to_leader_and_never_runs_ahead() {
        let ms = Duration::from_millis;
        let (mut leader, mut follower) = (ClusterTime::default(), ClusterTime::default());
        // A follower whose clock began elsewhere and ran far ahead while nothing was applied.
        follower.applied(leader.now(ms(1000)), ms(900_000), false);
        leader.applied(1000, ms(1050), true);
        assert_eq!(leader.now(ms(1100)), 1100);
        follower.applied(1100, ms(990_000), false);
        assert_eq!(follower.now(ms(990_500)), 1600);
    }
}
