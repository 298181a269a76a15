//! What the applied entries have made, besides the state machine. The same on every voter that
//! has applied as much.

use super::entry::{Command, Content, Entry};
use super::id::RequestId;
use super::membership::{Change, Membership};
use super::requests::{Memory, Requests};
use super::snapshot::Snapshot;
use crate::faults::{Fault, planted};
use bytes::Bytes;

/// Members, requests, and how far.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    index: u64,
    members: Membership,
    requests: Requests,
    /// Entries and bytes since the last snapshot.
    entries: u64,
    bytes: usize,
}

/// What an entry does.
#[derive(Debug, PartialEq)]
pub(crate) enum Effect {
    Nothing,
    /// The state machine applies it, and its caller is answered.
    Apply(Command),
    /// The members have changed.
    Changed(RequestId, Change),
    /// A change of members that cannot be made.
    Refused(RequestId, &'static str),
    /// It was applied at that index before.
    Again(RequestId, u64),
}

impl Applied {
    /// As a snapshot has it.
    pub(crate) fn restore(&mut self, snapshot: Snapshot) {
        self.index = snapshot.index;
        self.members = snapshot.members;
        self.requests = snapshot.requests;
        (self.entries, self.bytes) = (0, 0);
    }

    pub(crate) fn index(&self) -> u64 {
        self.index
    }

    pub(crate) fn members(&self) -> &Membership {
        &self.members
    }

    /// The latest time of the cluster that a command was taken at.
    pub(crate) fn latest(&self) -> u64 {
        self.requests.latest()
    }

    /// Where a request was applied.
    pub(crate) fn index_of(&self, request: RequestId) -> Option<u64> {
        let index = self.requests.index_of(request);
        index.filter(|_| !planted(Fault::NoDeduplication))
    }

    /// Applies the next entry.
    pub(crate) fn apply(&mut self, entry: Entry, memory: Memory) -> Effect {
        self.index = entry.index;
        self.entries += 1;
        let mut taken = self.requests.latest();
        let (request, effect) = match entry.content {
            Content::Blank => return Effect::Nothing,
            Content::Command(command) => {
                self.bytes += command.payload.len();
                taken = command.taken;
                (command.request, Effect::Apply(command))
            }
            Content::Change { request, change } => {
                let effect = match self.members.check(&change) {
                    Ok(()) => Effect::Changed(request, change),
                    Err(why) => Effect::Refused(request, why),
                };
                (request, effect)
            }
        };
        if let Some(first) = self.index_of(request) {
            return Effect::Again(request, first);
        }
        if let Effect::Changed(_, change) = &effect {
            self.members.apply(change);
        }
        if !matches!(effect, Effect::Refused(..)) {
            self.requests.record(request, taken, entry.index, memory);
        }
        effect
    }

    /// Whether one more request, taken now, could make one forgotten that is tried again;
    /// `unapplied` are in the log already.
    pub(crate) fn is_full(&self, now: u64, unapplied: u64, memory: Memory) -> bool {
        self.requests.recent(now, memory) as u64 + unapplied >= memory.requests_max as u64
    }

    /// Entries and bytes since the last snapshot.
    pub(crate) fn since_snapshot(&self) -> (u64, usize) {
        (self.entries, self.bytes)
    }

    /// All but the state machine's own, for a snapshot. Counting begins again.
    pub(crate) fn snapshot(&mut self, term: u64) -> Snapshot {
        (self.entries, self.bytes) = (0, 0);
        let requests = match planted(Fault::SnapshotForgetsRequests) {
            true => Requests::default(),
            false => self.requests.clone(),
        };
        Snapshot {
            index: self.index,
            term,
            members: self.members.clone(),
            requests,
            state: Bytes::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quorum::id::{DirectoryId, VoterId};
    use std::time::Duration;

    const MEMORY: Memory = Memory {
        requests_max: 3,
        deadline: Duration::from_secs(10),
    };

    fn command(index: u64, request: u128) -> Entry {
        let command = Command {
            request: RequestId(request),
            taken: 1000,
            payload: Bytes::from_static(b"x"),
        };
        Entry {
            index,
            term: 1,
            content: Content::Command(command),
        }
    }

    #[test]
    fn a_request_is_applied_once_and_no_more_are_taken_than_are_remembered() {
        let mut applied = Applied::default();
        let first = applied.apply(command(1, 7), MEMORY);
        assert!(matches!(first, Effect::Apply(one) if one.request == RequestId(7)));
        let second = applied.apply(command(2, 7), MEMORY);
        assert_eq!(second, Effect::Again(RequestId(7), 1));
        assert!(!applied.is_full(2000, 1, MEMORY));
        assert!(applied.is_full(2000, 2, MEMORY));
        assert!(!applied.is_full(20_000, 2, MEMORY));
    }

    #[test]
    fn a_change_that_cannot_be_made_is_refused_by_all_alike() {
        let mut applied = Applied::default();
        let change = Change::Promote { voter: VoterId(4) };
        let request = RequestId(1);
        let entry = |index, change| Entry {
            index,
            term: 1,
            content: Content::Change { request, change },
        };
        let refused = applied.apply(entry(1, change), MEMORY);
        assert!(matches!(refused, Effect::Refused(..)));
        let change = Change::Add {
            voter: VoterId(4),
            directory: DirectoryId(4),
        };
        let changed = applied.apply(entry(2, change), MEMORY);
        assert_eq!(changed, Effect::Changed(request, change));
    }
}
