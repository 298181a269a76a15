//! A member comes back, and says what it holds.

use super::changes::Leased;
use super::{Doing, Loads, Parts, QueuePartition, Rules, Waiting, rest};
use crate::coordinator::table::QueueEntry;
use crate::queue::RangeMap;
use std::time::Duration;
use wire::{LeaseId, MemberId, Offset};

/// What a member named when it joined again, sorted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Named {
    /// What goes on under its lease.
    pub held: Vec<(Offset, Offset)>,
    /// What is settled already, durably.
    pub settled: Vec<(Offset, Offset)>,
    /// What is not its any more.
    pub expired: Vec<(Offset, Offset)>,
}

impl QueuePartition {
    /// What a member says it holds, when it joins again. If `adopt` names a
    /// deadline, what is waiting is its: the server was restarted. `entry` is
    /// what the records say of this life.
    pub fn joined(
        &mut self,
        named: Waiting,
        doing: &Doing<'_>,
        adopt: Option<Duration>,
        entry: &QueueEntry,
        rules: &Rules,
        loads: &mut Loads,
    ) -> Named {
        let durable = &entry.settled;
        let Waiting { first, end, .. } = named;
        let mut found = Named::default();
        if let Some(deadline) = adopt {
            self.give_up_older(first, end, named.deliveries, loads);
            let leased = Leased {
                member: doing.member,
                lease: doing.lease,
                deadline,
                deliveries: named.deliveries.max(1),
                bytes: 0,
            };
            let waiting = self.waiting_within(first, end).into_iter();
            let parts: Vec<_> = waiting.flat_map(|part| entry.split(part)).collect();
            for (part, came_back) in parts {
                // One that came back from this delivery was given up.
                if came_back < leased.deliveries {
                    self.lease(part, leased, loads);
                    if let Some(keys) = &mut self.keys {
                        keys.unknown(part.first, part.end);
                    }
                }
            }
        }
        let mut held = self.held(first, end, doing, rules);
        // On its way to be settled: the member will be told.
        held.extend(self.unanswered(first, end, entry));
        let rejected = entry.rejected.range(first..end.max(first));
        let mut settled = RangeMap::default();
        for (first, end, _) in rest_of(first, end, &held) {
            let mut at = first;
            for (a, b) in durable.missing(first, end) {
                settled.insert(at, a, ());
                at = b;
            }
            settled.insert(at, end, ());
        }
        // Its letter may be written by now, and that not recorded.
        rejected.for_each(|(at, _)| settled.insert(*at, at.plus(1), ()));
        found.settled = settled.iter().map(|(a, b, ())| (a, b)).collect();
        let mut known: RangeMap<()> = settled;
        held.iter().for_each(|(a, b, _)| known.insert(*a, *b, ()));
        found.held = held.iter().map(|(a, b, _)| (*a, *b)).collect();
        let known: Vec<_> = known.iter().collect();
        found.expired = rest(first, end, &known);
        found
    }

    /// Takes back what others came back with from a delivery before this one:
    /// that it had come back from that was lost with the restart.
    fn give_up_older(&mut self, first: Offset, end: Offset, deliveries: u32, loads: &mut Loads) {
        let leases = self.leases.within(first, end);
        let older = leases.filter(|(_, _, leased)| leased.deliveries < deliveries);
        let older: Parts = older.map(|(a, b, leased)| (a, b, *leased)).collect();
        for (first, end, leased) in older {
            self.leases.remove(first, end);
            loads.take(&leased, self.count(first, end));
            self.come_to_wait(first, end, leased.deliveries);
        }
    }

    /// What of `first..end` is settled here and not in the records, which do
    /// not say either that it is to be a dead letter.
    fn unanswered(&self, first: Offset, end: Offset, entry: &QueueEntry) -> Parts {
        let durable = &entry.settled;
        let under_way = Leased {
            member: MemberId(0),
            lease: LeaseId(0),
            deadline: Duration::ZERO,
            deliveries: 0,
            bytes: 0,
        };
        let mut parts = Vec::new();
        for (first, end) in durable.missing(first, end) {
            let mut at = first;
            for (a, b) in self.settled.missing(first, end) {
                parts.push((at, a, under_way));
                at = b;
            }
            parts.push((at, end, under_way));
        }
        let rejected = |(first, end, _): &(Offset, Offset, Leased)| {
            let rejected = entry.rejected.range(*first..*end);
            let rejected: Vec<_> = rejected.map(|(at, _)| (*at, at.plus(1), ())).collect();
            rest(*first, *end, &rejected)
        };
        parts.retain(|(a, b, _)| a < b);
        let parts = parts.iter().flat_map(rejected);
        parts.map(|(a, b)| (a, b, under_way)).collect()
    }

    /// What a member has and did not name when it joined again was never
    /// seen: it waits again, uncounted.
    pub fn give_back_unnamed(
        &mut self,
        member: MemberId,
        named: &RangeMap<()>,
        rules: &Rules,
        loads: &mut Loads,
    ) {
        let mine = self.leases.iter();
        let mine = mine.filter(|(_, _, leased)| leased.member == member);
        let unnamed: Parts = mine
            .flat_map(|(first, end, leased)| {
                let known: Vec<_> = named.within(first, end).collect();
                let known: Vec<_> = known.iter().map(|(a, b, ())| (*a, *b, ())).collect();
                let rest = rest(first, end, &known);
                rest.into_iter().map(|(a, b)| (a, b, *leased))
            })
            .collect();
        self.take_back(unnamed, false, "", rules, loads);
    }
}

impl QueueEntry {
    /// The parts of `part`, each with the delivery from which it came back
    /// last, as far as that was recorded.
    fn split(&self, part: Waiting) -> Vec<(Waiting, u32)> {
        let recorded = self.returned.within(part.first, part.end);
        let recorded: Vec<_> = recorded.map(|(a, b, r)| (a, b, r.deliveries)).collect();
        let never = rest(part.first, part.end, &recorded);
        let never = never.into_iter().map(|(a, b)| (a, b, 0));
        let parts = recorded.iter().copied().chain(never);
        let of = |(first, end, deliveries)| (Waiting { first, end, ..part }, deliveries);
        parts.map(of).collect()
    }
}

/// Likewise of parts in any order.
fn rest_of(first: Offset, end: Offset, parts: &Parts) -> Vec<(Offset, Offset, ())> {
    let mut sorted: Vec<_> = parts.iter().map(|(a, b, _)| (*a, *b, ())).collect();
    sorted.sort_unstable_by_key(|(first, _, ())| *first);
    let rest = rest(first, end, &sorted);
    rest.into_iter().map(|(a, b)| (a, b, ())).collect()
}
