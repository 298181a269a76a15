//! Steps that several groups of readers share: each is given to one of them.
//!
//! ```text
//!  a step:  ahead --its group asks, or it is its turn--> given --released--> gone
//!             ^                                            |
//!             +-- returned: its group has ended -----------+
//! ```
//!
//! The end of a run is told to every group, when all steps before it are released: until then one
//! of them may have to be given to somebody else. The cursor of the name is before the first step
//! that is not released; what was released behind it comes again after a restart of the server,
//! unless the groups that come back say that they have had it.

use super::readers::{CursorMoved, Had, Turn};
use super::records::Records;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use wire::Offset;
use wire::message::Distribution;
use wire::step::RecordKind;

/// The most steps that wait for one group, where each has its turn.
const QUEUED_MAX: usize = 64;

/// A group that shares.
#[derive(Debug)]
struct Sharer {
    /// Ends of runs before are told of.
    told: Offset,
    /// Steps that are its own, where each group has its turn.
    queued: VecDeque<Offset>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Share {
    pub distribution: Distribution,
    /// Records before are given, or nobody's.
    next_from: Offset,
    /// Steps before that one whose groups have ended.
    returned: BTreeSet<Offset>,
    /// Steps from that one on which groups have had that were there before a start.
    had: BTreeSet<Offset>,
    /// Ends of runs before that one of which not all groups are told.
    ends: VecDeque<Offset>,
    /// By the id of the group.
    sharers: BTreeMap<u64, Sharer>,
    /// Which of them was given a step last.
    last: u64,
    /// Records that retention had taken, and told of by no turn yet.
    lost: u64,
    /// Where the cursor is to be.
    cursor: Offset,
    /// What it was moved from and to the last time.
    pub moved: Option<CursorMoved>,
}

/// What the groups of a share have under way.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct UnderWay {
    /// Whether a step is not released that was given.
    pub is_open: bool,
    /// The first record that is not.
    pub first: Option<Offset>,
}

/// What comes next of a share.
enum Ahead {
    Step(Offset),
    End(Offset),
    Nothing,
}

impl Share {
    pub fn new(distribution: Distribution, from: Offset) -> Self {
        Self {
            distribution,
            next_from: from,
            returned: BTreeSet::new(),
            had: BTreeSet::new(),
            ends: VecDeque::new(),
            sharers: BTreeMap::new(),
            last: 0,
            lost: 0,
            cursor: from,
            moved: None,
        }
    }

    /// A group joins: it is told of an end that others are not all told of yet. One that was there
    /// before has had its turns, and is told of the end of its run even if the others were told, and
    /// all forgotten, before it came back.
    pub fn join(&mut self, id: u64, had: Option<&Had>, records: &Records) {
        let told = match (had, self.ends.back()) {
            (Some(had), _) => self.told_to(had),
            (None, Some(end)) if end.plus(1) == self.next_from => *end,
            (None, _) => self.next_from,
        };
        let passed = records.between(told, self.next_from);
        for end in passed.filter(|entry| entry.kind.is_end()) {
            if let Err(index) = self.ends.binary_search(&end.offset) {
                self.ends.insert(index, end.offset);
            }
        }
        let sharer = self.sharers.entry(id).or_insert(Sharer {
            told,
            queued: VecDeque::new(),
        });
        for turn in had.into_iter().flat_map(|had| &had.turns) {
            sharer.told = sharer.told.max(turn.at.plus(1));
            self.returned.remove(&turn.at);
            if turn.is_step && turn.at >= self.next_from {
                self.had.insert(turn.at);
            }
        }
        self.forget_told();
    }

    /// Up to where a group was told of ends that has had these turns. One that has had none is told
    /// of those behind where it began.
    fn told_to(&self, had: &Had) -> Offset {
        let last = had.turns.iter().map(|turn| turn.at.plus(1)).max();
        last.unwrap_or(had.behind).min(self.next_from)
    }

    /// Up to where a group was told of ends.
    pub fn told(&self, id: u64) -> Option<Offset> {
        self.sharers.get(&id).map(|sharer| sharer.told)
    }

    /// A group is no more; `open` are steps that it was given and has not released.
    pub fn leave(&mut self, id: u64, open: impl Iterator<Item = Offset>) {
        let queued = self.sharers.remove(&id).into_iter();
        for at in queued.flat_map(|sharer| sharer.queued).chain(open) {
            self.had.remove(&at);
            if at < self.next_from {
                self.returned.insert(at);
            }
        }
        self.forget_told();
    }

    /// Whether nothing of it is to be remembered.
    pub fn is_idle(&self) -> bool {
        self.sharers.is_empty() && self.returned.is_empty()
    }

    /// Ends that everybody is told of.
    fn forget_told(&mut self) {
        let sharers = &self.sharers;
        self.ends
            .retain(|end| sharers.values().any(|sharer| sharer.told <= *end));
    }

    /// What is next of the records; the share is behind all before it then.
    fn ahead(&mut self, records: &Records, visible: Offset) -> Ahead {
        for entry in records.between(self.next_from, visible) {
            self.lost += records.lost_between(self.next_from, entry.offset);
            self.next_from = entry.offset;
            self.had = self.had.split_off(&self.next_from);
            match entry.kind {
                RecordKind::Step if !self.had.remove(&entry.offset) => {
                    return Ahead::Step(entry.offset);
                }
                kind if kind.is_end() => return Ahead::End(entry.offset),
                _ => self.next_from = entry.offset.plus(1),
            }
        }
        Ahead::Nothing
    }

    /// Takes the next step out: not behind the end of a run.
    fn take(&mut self, (records, visible): (&Records, Offset)) -> Option<Offset> {
        if let Some(returned) = self.returned.pop_first() {
            return Some(returned);
        }
        match self.ahead(records, visible) {
            Ahead::Step(at) => {
                self.next_from = at.plus(1);
                Some(at)
            }
            Ahead::End(_) | Ahead::Nothing => None,
        }
    }

    /// Goes behind the end of a run, if that is next and all steps before are released. Says
    /// whether it did.
    fn pass_end(&mut self, (records, visible): (&Records, Offset), under_way: UnderWay) -> bool {
        let is_queued = self.sharers.values().any(|one| !one.queued.is_empty());
        if under_way.is_open || is_queued || !self.returned.is_empty() {
            return false;
        }
        let Ahead::End(at) = self.ahead(records, visible) else {
            return false;
        };
        self.ends.push_back(at);
        self.next_from = at.plus(1);
        self.forget_told();
        true
    }

    /// Gives steps to groups in their turns, as far as these have room; of those that are
    /// complete, `ready`.
    pub fn deal(&mut self, ready: &BTreeSet<u64>, seen: (&Records, Offset), under_way: UnderWay) {
        if self.distribution != Distribution::RoundRobin {
            return;
        }
        while let Some(id) = self.whose_turn(ready) {
            let has_room = |sharer: &Sharer| sharer.queued.len() < QUEUED_MAX;
            if !self.sharers.get(&id).is_some_and(has_room) {
                return;
            }
            match self.take(seen) {
                Some(at) => {
                    let sharer = self.sharers.get_mut(&id);
                    sharer.into_iter().for_each(|one| one.queued.push_back(at));
                    self.last = id;
                }
                None if self.pass_end(seen, under_way) => {}
                None => return,
            }
        }
    }

    /// The group behind the one that was given a step last.
    fn whose_turn(&self, ready: &BTreeSet<u64>) -> Option<u64> {
        let mut behind = self.sharers.range(self.last + 1..);
        let next = behind.find(|(id, _)| ready.contains(id));
        let first = || self.sharers.iter().find(|(id, _)| ready.contains(id));
        next.or_else(first).map(|(id, _)| *id)
    }

    /// What a group is given next, if there is something; which turn that is, the group says.
    pub fn next(&mut self, id: u64, seen: (&Records, Offset), under_way: UnderWay) -> Option<Turn> {
        let at = self.next_at(id, seen, under_way)?;
        // What retention took meanwhile is found to be gone when it is read.
        let entry = seen.0.at(at);
        let turn = entry.map_or(Turn::gone(0, at), |entry| Turn::alone(0, entry));
        Some(Turn {
            lost: std::mem::take(&mut self.lost),
            ..turn
        })
    }

    fn next_at(
        &mut self,
        id: u64,
        seen: (&Records, Offset),
        under_way: UnderWay,
    ) -> Option<Offset> {
        loop {
            if let Some(end) = self.end_for(id) {
                return Some(end);
            }
            if let Some(queued) = self.sharers.get_mut(&id)?.queued.pop_front() {
                return Some(queued);
            }
            if self.pass_end(seen, under_way) {
                continue;
            }
            return match self.distribution {
                Distribution::RoundRobin => None,
                Distribution::All | Distribution::OnDemand => self.take(seen),
            };
        }
    }

    /// The end of a run of which a group is to be told; it is then.
    fn end_for(&mut self, id: u64) -> Option<Offset> {
        let sharer = self.sharers.get_mut(&id)?;
        let end = self.ends.iter().find(|end| sharer.told <= **end).copied()?;
        sharer.told = end.plus(1);
        self.forget_told();
        Some(end)
    }

    /// Where the cursor is to be, if that is behind where it was.
    pub fn cursor_moved(&mut self, under_way: UnderWay) -> Option<Offset> {
        let queued = self.sharers.values().filter_map(|one| one.queued.front());
        let firsts = queued.chain(self.returned.first()).chain(self.ends.front());
        let firsts = firsts.copied().chain(under_way.first);
        let cursor = firsts
            .min()
            .map_or(self.next_from, |first| first.min(self.next_from));
        let has_moved = cursor > self.cursor;
        self.cursor = self.cursor.max(cursor);
        has_moved.then_some(cursor)
    }

    /// Steps that are not released, and their bytes; `open` were given.
    pub fn backlog(&self, open: impl Iterator<Item = Offset>, records: &Records) -> (u64, u64) {
        let queued = self.sharers.values().flat_map(|one| &one.queued);
        let given = queued.chain(&self.returned).copied().chain(open);
        let given = given.fold((0, 0), |(steps, bytes), at| {
            (
                steps + 1,
                bytes + records.at(at).map_or(0, |entry| entry.bytes),
            )
        });
        let (steps, bytes) = records.steps_between(self.next_from, records.end());
        let had = self.had.len() as u64;
        (given.0 + steps.saturating_sub(had), given.1 + bytes)
    }

    /// The first step that is not released.
    pub fn first_unreleased(&self, under_way: UnderWay) -> Offset {
        let returned = self.returned.first().copied();
        let first = under_way.first.into_iter().chain(returned).min();
        first.map_or(self.next_from, |first| first.min(self.next_from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::records::Entry;
    use wire::{Run, Step};

    fn step(at: u64) -> Entry {
        Entry {
            offset: Offset(at),
            kind: RecordKind::Step,
            run: Run(1),
            step: Step(at),
            bytes: 10,
            time: 0,
            reason: String::new(),
            is_full: true,
            done: Vec::new(),
            own_bytes: 0,
            pin: None,
        }
    }

    /// What a group has had counts for nothing any more when retention has taken it.
    #[test]
    fn steps_that_are_gone_are_not_taken_from_the_backlog() {
        let mut records = Records::default();
        records.entries.extend((5..8).map(step));
        let mut share = Share::new(Distribution::OnDemand, Offset(0));
        let had = [2, 3].map(|at| Turn::alone(at, &step(at)));
        let had = Had {
            last: 2,
            behind: Offset(4),
            turns: had.to_vec(),
        };
        share.join(1, Some(&had), &records);
        let seen = (&records, Offset(8));
        let next = share.next(1, seen, UnderWay::default()).unwrap();
        assert_eq!((next.at, next.lost), (Offset(5), 5));
        assert_eq!(share.backlog(std::iter::empty(), &records), (2, 20));
    }
}
