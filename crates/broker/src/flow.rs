//! Data on its way in one direction, of all connections together: so little of
//! it at once that it stays in the processor's cache, and in turn.
//!
//! More under way moves nothing faster, for one thread moves it all; it only
//! spreads it over memory that is cold when its turn comes. Whoever has nothing
//! under way may always begin: a peer that has stopped keeps nobody from it.

use crate::ids::LinkId;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// What is under way, and who waits.
#[derive(Debug)]
pub(crate) struct Flow<T> {
    bytes_max: u64,
    bytes: u64,
    /// Of each connection that has something under way.
    links: BTreeMap<LinkId, u64>,
    /// What waits, the oldest first.
    waiting: BTreeMap<LinkId, BTreeSet<T>>,
    /// Connections that had their last byte back, and may have something that waits.
    idle: BTreeSet<LinkId>,
    /// Whose turn it was last.
    last: LinkId,
}

/// Whether something is asked for when its turn has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asks {
    InTurn,
    /// Others that wait come first.
    Now,
}

impl<T: Copy + Ord> Flow<T> {
    pub fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max,
            bytes: 0,
            links: BTreeMap::new(),
            waiting: BTreeMap::new(),
            idle: BTreeSet::new(),
            last: LinkId(0),
        }
    }

    /// Whether so much more may be under way for a connection.
    pub fn admits(&self, link: LinkId, bytes: u64, asks: Asks) -> bool {
        let has_turn = asks == Asks::InTurn || self.waiting.is_empty();
        !self.links.contains_key(&link) || has_turn && self.bytes + bytes <= self.bytes_max
    }

    pub fn take(&mut self, link: LinkId, bytes: u64) {
        if bytes > 0 {
            self.bytes += bytes;
            *self.links.entry(link).or_default() += bytes;
        }
    }

    /// So much has come to its end.
    pub fn give_back(&mut self, link: LinkId, bytes: u64) {
        let Some(own) = self.links.get_mut(&link) else {
            return;
        };
        *own -= bytes;
        self.bytes -= bytes;
        if *own == 0 {
            self.links.remove(&link);
            self.idle.insert(link);
        }
    }

    /// Has something wait for its turn.
    pub fn wait(&mut self, link: LinkId, id: T) {
        self.waiting.entry(link).or_default().insert(id);
        if !self.links.contains_key(&link) {
            self.idle.insert(link);
        }
    }

    /// Something waits no more.
    pub fn leave(&mut self, link: LinkId, id: T) {
        if let Some(waiting) = self.waiting.get_mut(&link) {
            waiting.remove(&id);
            if waiting.is_empty() {
                self.waiting.remove(&link);
            }
        }
    }

    /// What may go on now; it waits no more. First come connections that have
    /// nothing under way, then, while there is room, each in turn.
    pub fn next(&mut self, bytes: u64) -> Option<T> {
        while let Some(link) = self.idle.pop_first() {
            if let Some(id) = self.first_of(link) {
                return Some(id);
            }
        }
        if self.waiting.is_empty() || self.bytes + bytes > self.bytes_max {
            return None;
        }
        let behind = (Bound::Excluded(self.last), Bound::Unbounded);
        let mut behind = self.waiting.range(behind).map(|(link, _)| *link);
        let link = behind
            .next()
            .or_else(|| self.waiting.keys().next().copied())?;
        self.last = link;
        self.first_of(link)
    }

    fn first_of(&mut self, link: LinkId) -> Option<T> {
        let id = *self.waiting.get(&link)?.first()?;
        self.leave(link, id);
        Some(id)
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.waiting.values().map(BTreeSet::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: LinkId = LinkId(1);
    const B: LinkId = LinkId(2);
    const C: LinkId = LinkId(3);

    #[test]
    fn the_bound_holds_but_for_the_first_of_each() {
        let mut flow = Flow::<u64>::new(100);
        assert!(flow.admits(A, 1000, Asks::Now));
        flow.take(A, 80);
        assert!(!flow.admits(A, 30, Asks::Now));
        assert!(flow.admits(A, 20, Asks::Now));
        flow.take(A, 20);
        assert!(flow.admits(B, 30, Asks::Now), "it has nothing under way");
        flow.take(B, 30);
        assert!(!flow.admits(B, 1, Asks::InTurn));
        flow.give_back(A, 100);
        assert!(flow.admits(B, 70, Asks::InTurn));
    }

    #[test]
    fn those_who_wait_have_turns() {
        let mut flow = Flow::new(100);
        for link in [A, B, C] {
            flow.take(link, 40);
            flow.wait(link, link.0 * 10 + 1);
            flow.wait(link, link.0 * 10);
        }
        assert_eq!((flow.next(40), flow.waiting()), (None, 6));
        for link in [A, B, C] {
            flow.take(link, 1);
            flow.give_back(link, 40);
        }
        assert!(!flow.admits(A, 1, Asks::Now), "others wait");
        let turns: Vec<u64> = std::iter::from_fn(|| flow.next(40)).collect();
        assert_eq!(turns, [10, 20, 30, 11, 21, 31]);
        assert!(flow.admits(A, 40, Asks::Now));
    }

    #[test]
    fn who_has_stopped_keeps_nobody_from_it() {
        let mut flow = Flow::new(100);
        flow.take(A, 100);
        flow.wait(A, 1);
        flow.take(B, 10);
        flow.wait(B, 2);
        flow.wait(B, 3);
        assert_eq!(flow.next(10), None);
        for id in [2, 3] {
            flow.give_back(B, 10);
            assert_eq!(flow.next(10), Some(id));
            flow.take(B, 10);
            assert_eq!(flow.next(10), None);
        }
        flow.leave(A, 1);
        assert_eq!(flow.waiting(), 0);
    }
}
