//! The log in memory, as the library reads it.

use super::frame::HardState;
use super::id::VoterId;
use super::membership::Membership;
use super::snapshot::Stored;
use raft::eraftpb::{self, Entry, EntryType};
use raft::{Error, GetEntriesContext, RaftState, StorageError};
use std::cell::Cell;
use std::collections::VecDeque;

/// What of the log is in memory: the last snapshot, all entries behind it, and some before.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) hard_state: HardState,
    snapshot: Option<Stored>,
    /// Index and term of what is before the first entry.
    base: (u64, u64),
    entries: VecDeque<Entry>,
    /// The library asked for a snapshot that this member is in, and there is none.
    wanted: Cell<bool>,
}

impl Store {
    pub(crate) fn new(
        hard_state: HardState,
        snapshot: Option<Stored>,
        entries: VecDeque<Entry>,
    ) -> Self {
        Self {
            hard_state,
            base: snapshot
                .as_ref()
                .map_or((0, 0), |one| (one.index, one.term)),
            snapshot,
            entries,
            wanted: Cell::new(false),
        }
    }

    pub(crate) fn snapshot_stored(&self) -> Option<&Stored> {
        self.snapshot.as_ref()
    }

    pub(crate) fn snapshot_index(&self) -> u64 {
        self.snapshot.as_ref().map_or(0, |one| one.index)
    }

    /// The index of the last entry, or of what is before the first.
    pub(crate) fn end(&self) -> u64 {
        self.base.0 + self.entries.len() as u64
    }

    /// The entries behind an index.
    pub(crate) fn behind(&self, index: u64) -> impl Iterator<Item = &Entry> {
        let skip = index.saturating_sub(self.base.0) as usize;
        self.entries.iter().skip(skip)
    }

    /// Whether there is a change of members behind `low`, up to `high`.
    pub(crate) fn has_change(&self, low: u64, high: u64) -> bool {
        let mut entries = self.behind(low).take_while(|entry| entry.index <= high);
        entries.any(|entry| entry.get_entry_type() != EntryType::EntryNormal)
    }

    /// Replaces what is at the first entry's index and behind it.
    pub(crate) fn append(&mut self, entries: &[Entry]) {
        let Some(first) = entries.first() else {
            return;
        };
        debug_assert!(first.index > self.base.0 && first.index <= self.end() + 1);
        self.entries
            .truncate((first.index - 1 - self.base.0) as usize);
        self.entries.extend(entries.iter().cloned());
    }

    /// Replaces everything by a snapshot that came.
    pub(crate) fn restore(&mut self, snapshot: Stored) {
        self.base = (snapshot.index, snapshot.term);
        self.entries.clear();
        self.snapshot = Some(snapshot);
    }

    /// A snapshot was taken here. Forgets entries that it has, but for the last `trailing`.
    pub(crate) fn compact(&mut self, snapshot: Stored, trailing: u64) {
        let until = snapshot.index.saturating_sub(trailing);
        while self.base.0 < until
            && let Some(entry) = self.entries.pop_front()
        {
            self.base = (entry.index, entry.term);
        }
        self.snapshot = Some(snapshot);
    }

    /// Whether the library asked for a snapshot that there was not; asking forgets it.
    pub(crate) fn take_wanted(&self) -> bool {
        self.wanted.take()
    }
}

impl raft::Storage for Store {
    fn initial_state(&self) -> raft::Result<RaftState> {
        let mut state = eraftpb::HardState::default();
        state.term = self.hard_state.term;
        state.vote = self.hard_state.vote;
        state.commit = self.hard_state.commit;
        let members = self.snapshot.as_ref().map(|one| one.members.conf_state());
        let members = members.unwrap_or_default();
        Ok(RaftState::new(state, members))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        if low <= self.base.0 {
            return Err(Error::Store(StorageError::Compacted));
        }
        if high > self.end() + 1 {
            return Err(Error::Store(StorageError::Unavailable));
        }
        // One at a time up to the size: a long log is not copied for a short message.
        let max = max_size.into().unwrap_or(raft::NO_LIMIT);
        let (mut bytes, mut entries) = (0, Vec::new());
        let skip = (low - self.base.0 - 1) as usize;
        for entry in self.entries.iter().skip(skip).take((high - low) as usize) {
            bytes += (entry.data.len() + entry.context.len()) as u64 + 32;
            if bytes > max && !entries.is_empty() {
                break;
            }
            entries.push(entry.clone());
        }
        Ok(entries)
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        if index == self.base.0 {
            return Ok(self.base.1);
        }
        if index < self.base.0 {
            return Err(Error::Store(StorageError::Compacted));
        }
        let entry = self.entries.get((index - self.base.0 - 1) as usize);
        entry
            .map(|entry| entry.term)
            .ok_or(Error::Store(StorageError::Unavailable))
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.base.0 + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.end())
    }

    /// A member that came after the last snapshot would refuse it, as it is not in it: then another
    /// is to be taken first.
    fn snapshot(&self, request_index: u64, to: u64) -> raft::Result<eraftpb::Snapshot> {
        let known = |members: &Membership| members.get(VoterId(to)).is_some();
        match &self.snapshot {
            Some(one) if one.index >= request_index && known(&one.members) => Ok(one.to_raft()),
            _ => {
                self.wanted.set(true);
                Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quorum::entry::Content;
    use crate::quorum::id::DirectoryId;
    use raft::Storage;

    fn entry(index: u64, term: u64) -> Entry {
        let content = Content::Blank;
        let entry = crate::quorum::entry::Entry {
            index,
            term,
            content,
        };
        entry.to_raft()
    }

    fn snapshot(index: u64, term: u64) -> Stored {
        Stored {
            index,
            term,
            members: Membership::founders(&[(VoterId(1), DirectoryId(1))]),
            bytes: bytes::Bytes::new(),
        }
    }

    #[test]
    fn a_snapshot_leaves_some_entries_and_a_suffix_is_replaced() {
        let mut store = Store::new(HardState::default(), None, VecDeque::new());
        store.append(&(1..=10).map(|index| entry(index, 1)).collect::<Vec<_>>());
        store.append(&[entry(8, 2)]);
        assert_eq!((store.end(), store.term(8).unwrap()), (8, 2));
        store.compact(snapshot(6, 1), 2);
        assert_eq!(store.first_index().unwrap(), 5);
        assert_eq!(store.term(4).unwrap(), 1);
        assert!(store.term(3).is_err() && store.term(9).is_err());
        assert_eq!(store.behind(6).count(), 2);
        let some = |low| store.entries(low, 9, 1, GetEntriesContext::empty(false));
        assert_eq!(some(5).unwrap().len(), 1);
        assert!(some(4).is_err());
        assert!(store.snapshot(0, 1).is_ok() && !store.take_wanted());
        assert!(store.snapshot(0, 2).is_err() && store.take_wanted());
        store.restore(snapshot(20, 3));
        assert_eq!((store.end(), store.term(20).unwrap()), (20, 3));
    }
}
