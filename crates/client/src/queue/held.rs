//! The events that are a member's, under leases: ranges, for what is leased
//! together arrives together, and is mostly settled in its order.

use super::lease_set::push_joined;
use std::collections::BTreeMap;
use std::time::Duration;
use wire::message::Lease;
use wire::{EventId, LeaseId};

/// An event that is this member's, under a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Held {
    pub lease: LeaseId,
    pub deliveries: u32,
}

/// What an event of a range is to the member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// It was not handed out.
    Unseen,
    Seen,
    /// It is the member's no more.
    Gone,
}

/// Events one behind the other, under one lease.
struct Range {
    lease: LeaseId,
    deliveries: u32,
    /// When the lease ends, on the core's clock.
    until: Duration,
    phases: Vec<Phase>,
    /// How many of them are not gone.
    left: usize,
}

/// All that is held. Ranges do not overlap, and something is left of each.
#[derive(Default)]
pub(super) struct HeldEvents {
    /// By their first events.
    ranges: BTreeMap<EventId, Range>,
    len: usize,
}

impl HeldEvents {
    /// How many events are held.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Events have arrived, whose lease lasts until then. Returns how many of
    /// them were held under another lease, and handed out.
    pub fn insert(&mut self, lease: &Lease, until: Duration) -> usize {
        if lease.first >= lease.end {
            return 0;
        }
        let seen = self.remove(lease, |_| true);
        let count = (lease.end.0 - lease.first.0) as usize;
        let range = Range {
            lease: lease.lease,
            deliveries: lease.deliveries,
            until,
            phases: vec![Phase::Unseen; count],
            left: count,
        };
        self.len += count;
        self.ranges.insert(first_of(lease), range);
        seen
    }

    /// Takes these events out, where they are held under this lease. Returns
    /// how many of them were handed out.
    pub fn forget(&mut self, lease: &Lease) -> usize {
        self.remove(lease, |held| held == lease.lease)
    }

    /// Lets these events be held until then at least, where they are under this lease.
    pub fn extend(&mut self, lease: &Lease, until: Duration) {
        for first in self.within(lease) {
            if let Some(range) = self.ranges.get_mut(&first)
                && range.lease == lease.lease
            {
                range.until = range.until.max(until);
            }
        }
    }

    /// Whether any of these events is held under this lease.
    pub fn has_any(&self, lease: &Lease) -> bool {
        if lease.first >= lease.end {
            return false;
        }
        let id = |offset| EventId {
            offset,
            ..first_of(lease)
        };
        let mut at = id(lease.first);
        if let Some((first, range)) = self.ranges.range(..at).next_back()
            && place(first, at).is_some_and(|place| place < range.phases.len())
        {
            at = *first;
        }
        self.ranges.range(at..id(lease.end)).any(|(first, range)| {
            let from = lease.first.0.saturating_sub(first.offset.0) as usize;
            let to = range
                .phases
                .len()
                .min((lease.end.0 - first.offset.0) as usize);
            let mut within = range.phases[from..to].iter();
            range.lease == lease.lease && within.any(|one| *one != Phase::Gone)
        })
    }

    /// Hands out an event, if it is held and was not handed out.
    #[inline]
    pub fn see(&mut self, id: EventId) -> Option<Held> {
        let (_, range, at) = self.find_mut(id)?;
        let phase = &mut range.phases[at];
        if *phase != Phase::Unseen {
            return None;
        }
        *phase = Phase::Seen;
        Some(Held {
            lease: range.lease,
            deliveries: range.deliveries,
        })
    }

    /// Takes an event out that is held under this lease; returns whether it was
    /// handed out.
    #[inline]
    pub fn take(&mut self, id: EventId, lease: LeaseId) -> Option<(Lease, bool)> {
        self.take_if(id, |range, phase| {
            range.lease == lease && phase != Phase::Gone
        })
    }

    /// Takes an event out that was not handed out.
    pub fn take_unseen(&mut self, id: EventId) -> Option<Lease> {
        let taken = self.take_if(id, |_, phase| phase == Phase::Unseen);
        taken.map(|(lease, _)| lease)
    }

    fn take_if(
        &mut self,
        id: EventId,
        wanted: impl FnOnce(&Range, Phase) -> bool,
    ) -> Option<(Lease, bool)> {
        let (first, range, at) = self.find_mut(id)?;
        let phase = range.phases[at];
        if !wanted(range, phase) {
            return None;
        }
        let lease = range.of(id, 1);
        range.phases[at] = Phase::Gone;
        range.left -= 1;
        if range.left == 0 {
            self.ranges.remove(&first);
        }
        self.len -= 1;
        Some((lease, phase == Phase::Seen))
    }

    /// The lease of an event that is held under it, as one of its own.
    pub fn lease_of(&self, id: EventId, lease: LeaseId) -> Option<Lease> {
        let (first, range) = self.ranges.range(..=id).next_back()?;
        let phase = *range.phases.get(place(first, id)?)?;
        let is_held = range.lease == lease && phase != Phase::Gone;
        is_held.then(|| range.of(id, 1))
    }

    /// What is held and `wanted` of the lease's end, and of whether it is seen.
    pub fn leases(&self, mut wanted: impl FnMut(Duration, Phase) -> bool) -> Vec<Lease> {
        let mut leases = Vec::new();
        for (first, range) in &self.ranges {
            let mut at = 0;
            for run in range.phases.chunk_by(|one, next| one == next) {
                if run[0] != Phase::Gone && wanted(range.until, run[0]) {
                    let id = EventId {
                        offset: first.offset.plus(at as u64),
                        ..*first
                    };
                    push_joined(&mut leases, range.of(id, run.len()));
                }
                at += run.len();
            }
        }
        leases
    }

    #[inline]
    fn find_mut(&mut self, id: EventId) -> Option<(EventId, &mut Range, usize)> {
        let (first, range) = self.ranges.range_mut(..=id).next_back()?;
        let at = place(first, id)?;
        (at < range.phases.len()).then_some((*first, range, at))
    }

    /// Takes events out, where their lease is `wanted`. Returns how many of
    /// them were handed out.
    fn remove(&mut self, lease: &Lease, wanted: impl Fn(LeaseId) -> bool) -> usize {
        let mut seen = 0;
        for first in self.within(lease) {
            if self.ranges.get(&first).is_some_and(|one| wanted(one.lease))
                && let Some(range) = self.ranges.remove(&first)
            {
                self.len -= range.left;
                let phases = range.phases.iter();
                seen += phases.filter(|phase| **phase == Phase::Seen).count();
            }
        }
        seen
    }

    /// The ranges of these events and of no others: what reaches beyond them
    /// is divided.
    fn within(&mut self, lease: &Lease) -> Vec<EventId> {
        let first = first_of(lease);
        let end = EventId {
            offset: lease.end,
            ..first
        };
        if first >= end {
            return Vec::new();
        }
        self.divide(first);
        self.divide(end);
        self.ranges.range(first..end).map(|(id, _)| *id).collect()
    }

    /// Has a range begin here, if one lies across.
    fn divide(&mut self, id: EventId) {
        let Some((first, range, at)) = self.find_mut(id) else {
            return;
        };
        if at == 0 {
            return;
        }
        let phases = range.phases.split_off(at);
        let left = phases.iter().filter(|one| **one != Phase::Gone).count();
        range.left -= left;
        let behind = Range {
            phases,
            left,
            ..*range
        };
        if range.left == 0 {
            self.ranges.remove(&first);
        }
        if left > 0 {
            self.ranges.insert(id, behind);
        }
    }
}

impl Range {
    /// The lease of some of its events.
    fn of(&self, first: EventId, count: usize) -> Lease {
        Lease {
            partition: first.partition,
            incarnation: first.incarnation,
            first: first.offset,
            end: first.offset.plus(count as u64),
            lease: self.lease,
            deliveries: self.deliveries,
        }
    }
}

/// The place of an event in a range, if it is of the same partition.
#[inline]
fn place(first: &EventId, id: EventId) -> Option<usize> {
    let is_same = (first.partition, first.incarnation) == (id.partition, id.incarnation);
    let at = id.offset.0.checked_sub(first.offset.0)?;
    is_same.then_some(at as usize)
}

fn first_of(lease: &Lease) -> EventId {
    EventId {
        partition: lease.partition,
        incarnation: lease.incarnation,
        offset: lease.first,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::{Incarnation, Offset, PartitionIndex};

    fn lease(partition: u32, first: u64, end: u64, lease: u64) -> Lease {
        Lease {
            partition: PartitionIndex(partition),
            incarnation: Incarnation(1),
            first: Offset(first),
            end: Offset(end),
            lease: LeaseId(lease),
            deliveries: lease as u32,
        }
    }

    fn id(partition: u32, offset: u64) -> EventId {
        first_of(&lease(partition, offset, offset + 1, 0))
    }

    /// Each event by itself.
    type Singly = BTreeMap<EventId, (LeaseId, Duration, bool)>;

    fn singly(held: &HeldEvents) -> Singly {
        let mut singly = Singly::new();
        for (first, range) in &held.ranges {
            assert!(range.left > 0, "a range of which nothing is left");
            for (at, phase) in range.phases.iter().enumerate() {
                let id = EventId {
                    offset: first.offset.plus(at as u64),
                    ..*first
                };
                if *phase != Phase::Gone {
                    let one = (range.lease, range.until, *phase == Phase::Seen);
                    assert_eq!(singly.insert(id, one), None, "twice");
                }
            }
        }
        assert_eq!(singly.len(), held.len());
        singly
    }

    #[test]
    fn ranges_hold_what_single_events_would() {
        // A plain generator, for a plain model.
        let mut chance = 0x9e37_79b9_7f4a_7c15_u64;
        let mut pick = move |below: u64| {
            chance ^= chance << 13;
            chance ^= chance >> 7;
            chance ^= chance << 17;
            chance % below
        };
        let (mut held, mut model) = (HeldEvents::default(), Singly::new());
        for step in 0..20_000 {
            let first = pick(40);
            let some = lease(pick(2) as u32, first, first + pick(9), 1 + pick(5));
            let until = Duration::from_secs(pick(100));
            let one = id(some.partition.0, first);
            let ids = (some.first.0..some.end.0).map(|at| id(some.partition.0, at));
            let is_its =
                |model: &Singly, id: &EventId| model.get(id).is_some_and(|one| one.0 == some.lease);
            let own: Vec<EventId> = ids.clone().filter(|id| is_its(&model, id)).collect();
            assert_eq!(held.has_any(&some), !own.is_empty(), "{step}");
            match pick(6) {
                0 => {
                    let before = ids.filter_map(|id| model.insert(id, (some.lease, until, false)));
                    let seen = before.filter(|one| one.2).count();
                    assert_eq!(held.insert(&some, until), seen, "{step}");
                }
                1 => {
                    let gone = own.iter().filter_map(|id| model.remove(id));
                    let seen = gone.filter(|one| one.2).count();
                    assert_eq!(held.forget(&some), seen, "{step}");
                }
                2 => {
                    for id in own {
                        model.entry(id).and_modify(|one| one.1 = one.1.max(until));
                    }
                    held.extend(&some, until);
                }
                3 => {
                    let unseen = model.get_mut(&one).filter(|one| !one.2);
                    let seen = unseen.map(|one| {
                        one.2 = true;
                        one.0
                    });
                    assert_eq!(held.see(one).map(|held| held.lease), seen, "{step}");
                }
                4 => {
                    let known = held.lease_of(one, some.lease);
                    let taken = held.take(one, some.lease);
                    let gone = is_its(&model, &one).then(|| model.remove(&one)).flatten();
                    assert_eq!(taken.map(|(_, seen)| seen), gone.map(|one| one.2), "{step}");
                    assert_eq!(known, taken.map(|(lease, _)| lease), "{step}");
                }
                _ => {
                    let is_unseen = model.get(&one).is_some_and(|one| !one.2);
                    assert_eq!(held.take_unseen(one).is_some(), is_unseen, "{step}");
                    if is_unseen {
                        model.remove(&one);
                    }
                }
            }
            assert_eq!(singly(&held), model, "{step}");
            let ranges = held.leases(|_, phase| phase == Phase::Unseen);
            let count: u64 = ranges.iter().map(|one| one.end.0 - one.first.0).sum();
            let unseen = model.values().filter(|one| !one.2).count();
            assert_eq!(count, unseen as u64, "{step}");
        }
    }
}
