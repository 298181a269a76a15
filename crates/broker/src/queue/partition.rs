//! One partition's events in one queue: who has which, and what became of them.

mod changes;
mod records;
mod rejoin;
#[cfg(test)]
mod tests;

pub use changes::{Changes, Leased, Whose};
pub use rejoin::Named;

use super::keys::{KeyOrder, Turn};
use super::{OffsetSet, RangeMap};
use crate::coordinator::table::Returned;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use wire::message::SettleAs;
use wire::{Incarnation, LeaseId, MemberId, Offset, Sequence};

/// While so many events of a partition are on their way to the dead-letter
/// topic, no others are given out: it is missing or full.
pub const DEAD_MAX: usize = 10_000;
/// Why an event comes back whose lease is over.
const EXPIRED: &str = "the lease expired";
/// The longest reason of a return or rejection that is kept.
pub const REASON_BYTES_MAX: usize = 1024;

/// One partition's events in one queue.
///
/// Each is in one of the states of `docs/concept/sharing.md`: *settled* if it
/// is in `settled`; else *leased*, *delayed* or *dead* if it is in the map of
/// that name; else *waiting*: for another delivery if it is in `returned`, for
/// a turn of its key in `keys`, for its first one from `next` on. The maps do
/// not overlap. Their ranges may have settled events in them, which are not
/// meant: so a range with every second event settled is still one entry.
#[derive(Debug, Clone)]
pub struct QueuePartition {
    incarnation: Incarnation,
    settled: OffsetSet,
    /// The first event that was never given out, nor is in a map.
    next: Offset,
    leases: RangeMap<Leased>,
    /// With how often each was delivered so far.
    returned: RangeMap<u32>,
    /// Of those before `next`, what was passed over and never delivered.
    passed: RangeMap<()>,
    delayed: RangeMap<Returned>,
    dead: BTreeMap<Offset, Dead>,
    /// Those of them whose intention is durable, by their places.
    letters: BTreeMap<Sequence, Offset>,
    next_rejected: Sequence,
    /// Whenever a lease ends; some may have ended before by other ways.
    deadlines: BTreeSet<Duration>,
    /// Where delays pass, and when.
    due: BTreeSet<(u64, Offset)>,
    /// What is not recorded yet.
    changes: Changes,
    /// Present if the queue is ordered by key.
    keys: Option<KeyOrder>,
}

/// An event that goes to the dead-letter topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dead {
    /// How often it was delivered.
    pub deliveries: u32,
    /// Why.
    pub reason: String,
    /// When, nanoseconds since 1970.
    pub time: u64,
    /// Its place among the dead letters, once that is recorded or about to be.
    pub sequence: Option<Sequence>,
    /// Whether the intention is durable.
    pub recorded: bool,
    /// Who rejected it and has it again if that can't be recorded.
    rejected_by: Option<Leased>,
}

/// What a member has unsettled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Load {
    /// Events.
    pub events: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What each member of a queue has unsettled, in all of its partitions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Loads {
    members: BTreeMap<MemberId, Load>,
    /// Those who have less than before, until somebody takes note of it.
    freed: BTreeSet<MemberId>,
    /// Whose leases have expired, and when the last one did, until somebody takes note of it.
    lapsed: BTreeMap<MemberId, Duration>,
}

impl Loads {
    /// What a member has unsettled.
    pub fn of(&self, member: MemberId) -> Load {
        self.members.get(&member).copied().unwrap_or_default()
    }

    /// What all of them have unsettled.
    pub fn bytes(&self) -> u64 {
        self.members.values().map(|load| load.bytes).sum()
    }

    /// Who has got rid of something since the last time.
    pub fn take_freed(&mut self) -> BTreeSet<MemberId> {
        std::mem::take(&mut self.freed)
    }

    /// Whose leases have expired since the last time, and when the last one did.
    pub fn take_lapsed(&mut self) -> BTreeMap<MemberId, Duration> {
        std::mem::take(&mut self.lapsed)
    }

    fn lapse(&mut self, leased: &Leased) {
        let at = self.lapsed.entry(leased.member).or_default();
        *at = leased.deadline.max(*at);
    }

    fn add(&mut self, leased: &Leased, events: u64) {
        let load = self.members.entry(leased.member).or_default();
        load.events += events;
        load.bytes += events * leased.bytes;
    }

    fn take(&mut self, leased: &Leased, events: u64) {
        let load = self.members.entry(leased.member).or_default();
        load.events -= events;
        load.bytes -= events * leased.bytes;
        if load.events == 0 {
            self.members.remove(&leased.member);
        }
        self.freed.insert(leased.member);
    }
}

/// The time, and what the queue's options say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// On the monotonic clock.
    pub now: Duration,
    /// Nanoseconds since 1970.
    pub unix_ns: u64,
    /// How often an event is delivered at most; 0 is without limit.
    pub deliveries_max: u32,
    /// Whether leases hold beyond their end: a fault that tests plant.
    pub expired_too: bool,
}

/// What a member does with events of its.
#[derive(Debug, Clone, Copy)]
pub struct Doing<'a> {
    /// Who.
    pub member: MemberId,
    /// Under which lease.
    pub lease: LeaseId,
    /// How.
    pub how: SettleAs,
    /// Not to be delivered before, nanoseconds since 1970, for `Return`.
    pub not_before: u64,
    /// Why, for `Return` and `Reject`.
    pub reason: &'a str,
}

/// Events that wait and may be given out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiting {
    /// The first.
    pub first: Offset,
    /// Behind the last one. Settled ones may be in between.
    pub end: Offset,
    /// How often they were delivered so far.
    pub deliveries: u32,
}

/// How many events of each state there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Settled, above the first that is not.
    pub settled: u64,
    /// Under a lease.
    pub leased: u64,
    /// Waiting for another delivery, or for a turn of their key.
    pub returned: u64,
    /// Waiting for their delay to pass.
    pub delayed: u64,
    /// On their way to the dead-letter topic.
    pub dead: u64,
}

impl QueuePartition {
    /// Gives out events of one key one at a time, in order.
    pub fn order_by_key(&mut self) {
        let mut keys = KeyOrder::default();
        let delayed = self.delayed.iter();
        delayed.for_each(|(first, end, _)| keys.unknown(first, end));
        let dead = self.dead.keys();
        dead.for_each(|at| keys.unknown(*at, at.plus(1)));
        self.keys = Some(keys);
    }

    /// Whether events of one key are given out one at a time.
    pub fn is_ordered(&self) -> bool {
        self.keys.is_some()
    }

    /// The life in which the offsets count.
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Everything before is settled.
    pub fn position(&self) -> Offset {
        self.settled.first_missing()
    }

    /// Where events begin that were never given out.
    pub fn next(&self) -> Offset {
        self.next
    }

    /// The first event from `from` on that is not settled.
    pub fn next_unsettled(&self, from: Offset) -> Offset {
        self.settled.next_missing(from)
    }

    /// Everything before was delivered once at least, or is settled.
    pub fn delivered(&mut self) -> Offset {
        while let Some((first, end, ())) = self.passed.first() {
            let start = self.settled.next_missing(first).min(end);
            if start < end {
                return start;
            }
            self.passed.remove(first, end);
        }
        self.next
    }

    /// How many events of each state there are.
    pub fn counts(&self) -> Counts {
        let count = |first, end| self.count(first, end);
        let parked = self.keys.as_ref().map_or(0, KeyOrder::parked_count);
        Counts {
            settled: self.settled.count_above(),
            leased: self.leases.iter().map(|(a, b, _)| count(a, b)).sum(),
            returned: parked
                + self
                    .returned
                    .iter()
                    .map(|(a, b, _)| count(a, b))
                    .sum::<u64>(),
            delayed: self.delayed.iter().map(|(a, b, _)| count(a, b)).sum(),
            dead: self.dead.len() as u64,
        }
    }

    /// How many ranges the state takes, besides the set of what is settled.
    pub fn range_count(&self) -> usize {
        self.leases.len() + self.returned.len() + self.delayed.len() + self.dead.len()
    }

    fn count(&self, first: Offset, end: Offset) -> u64 {
        let missing = self.settled.missing(first, end);
        missing.map(|(first, end)| end.0 - first.0).sum()
    }

    /// The next events to be given out, of those before `visible`: what came
    /// back first, then new ones.
    pub fn waiting(&mut self, visible: Offset) -> Option<Waiting> {
        if self.dead.len() >= DEAD_MAX {
            return None;
        }
        while let Some((first, end, deliveries)) = self.returned.first() {
            let deliveries = *deliveries;
            let start = self.settled.next_missing(first).min(end);
            if start < end {
                let end = end.min(visible);
                return (start < end).then_some(Waiting {
                    first: start,
                    end,
                    deliveries,
                });
            }
            self.returned.remove(first, end);
        }
        if self.keys.as_ref().is_some_and(KeyOrder::is_full) {
            return None;
        }
        self.next = self.settled.next_missing(self.next);
        (self.next < visible).then_some(Waiting {
            first: self.next,
            end: visible,
            deliveries: 0,
        })
    }

    /// What waits in `first..end`, in order, without settled ones.
    pub fn waiting_within(&self, first: Offset, end: Offset) -> Vec<Waiting> {
        let again = self.returned.within(first, end);
        let again = again.map(|(first, end, deliveries)| (first, end, *deliveries));
        let fresh = (first.max(self.next), end, 0);
        let fresh = (fresh.0 < end).then_some(fresh);
        let parts = again.chain(fresh).flat_map(|(first, end, deliveries)| {
            let missing = self.settled.missing(first, end);
            missing.map(move |(first, end)| Waiting {
                first,
                end,
                deliveries,
            })
        });
        parts.collect()
    }

    /// Whether anything waits in `first..end`.
    pub fn waits_within(&self, first: Offset, end: Offset) -> bool {
        let again = self.returned.within(first, end);
        let again = again.map(|(first, end, _)| (first, end));
        let fresh = (first.max(self.next), end);
        again
            .chain(std::iter::once(fresh))
            .any(|(first, end)| self.settled.next_missing(first) < end)
    }

    /// Whether an event that waits may be given out now, by its key. If not
    /// it is put aside until its turn comes.
    pub fn has_turn(&mut self, offset: Offset, deliveries: u32, key: Option<u64>) -> bool {
        let Some(mut keys) = self.keys.take() else {
            return true;
        };
        let turn = keys.offer(offset, deliveries, key);
        self.keys = Some(keys);
        if turn == Turn::Parked {
            let end = offset.plus(1);
            self.skip_to(offset);
            self.next = self.next.max(end);
            self.returned.remove(offset, end);
            if deliveries == 0 {
                self.passed.insert(offset, end, ());
            }
        }
        turn == Turn::Now
    }

    /// Pieces that wait, joined where only settled events are in between.
    pub fn joined_pieces(&self, pieces: &[Waiting]) -> Vec<Waiting> {
        let mut joined: Vec<Waiting> = Vec::new();
        for piece in pieces {
            match joined.last_mut() {
                Some(last)
                    if last.deliveries == piece.deliveries
                        && self.settled.next_missing(last.end) >= piece.first =>
                {
                    last.end = piece.end;
                }
                _ => joined.push(*piece),
            }
        }
        joined
    }

    /// Gives out events that wait, all of `waiting` that is not settled.
    pub fn lease(&mut self, waiting: Waiting, leased: Leased, loads: &mut Loads) {
        let Waiting { first, end, .. } = waiting;
        self.skip_to(first);
        self.returned.remove(first, end);
        self.passed.remove(first, end);
        self.next = self.next.max(end);
        loads.add(&leased, self.count(first, end));
        self.deadlines.insert(leased.deadline);
        self.leases.insert(first, end, leased);
    }

    /// New events before `first` that are not given out wait as those do
    /// that came back.
    fn skip_to(&mut self, first: Offset) {
        if self.next < first {
            self.come_to_wait(self.next, first, 0);
            self.next = first;
        }
    }

    /// Puts events among those that wait for another delivery. Neighbours are
    /// joined also over settled ones.
    fn come_to_wait(&mut self, first: Offset, end: Offset, deliveries: u32) {
        let (mut from, mut to) = (self.settled.next_missing(first).min(end), end);
        if from >= to {
            return;
        }
        if deliveries == 0 {
            self.passed.insert(from, to, ());
        }
        if let Some((_, until, value)) = self.returned.before(from)
            && *value == deliveries
            && until < from
            && self.settled.next_missing(until) >= from
        {
            from = until;
        }
        if let Some((start, _, value)) = self.returned.from(to)
            && *value == deliveries
            && self.settled.next_missing(to) >= start
        {
            to = start;
        }
        self.returned.insert(from, to, deliveries);
    }

    /// Events wait, at once or after a delay.
    fn wait(&mut self, first: Offset, end: Offset, returned: Returned) {
        if first >= end {
            return;
        }
        if returned.not_before == 0 {
            self.come_to_wait(first, end, returned.deliveries);
        } else {
            self.delayed.insert(first, end, returned);
            self.due.insert((returned.not_before, first));
        }
    }

    /// The parts of `first..end` that a member has under a lease that holds.
    fn held(&self, first: Offset, end: Offset, doing: &Doing<'_>, rules: &Rules) -> Parts {
        let (member, lease) = (doing.member, doing.lease);
        let holds = |leased: &Leased| {
            leased.member == member
                && leased.lease == lease
                && (rules.now < leased.deadline || rules.expired_too)
        };
        let mine = self.leases.within(first, end);
        let mine = mine.filter(|(_, _, leased)| holds(leased));
        mine.flat_map(|(first, end, leased)| {
            let missing = self.settled.missing(first, end);
            missing.map(move |(first, end)| (first, end, *leased))
        })
        .collect()
    }

    /// Settles `first..end`, as far as the member has it under the lease.
    /// Returns the rest: its lease had expired, or never was.
    pub fn settle(
        &mut self,
        first: Offset,
        end: Offset,
        doing: &Doing<'_>,
        rules: &Rules,
        loads: &mut Loads,
    ) -> Vec<(Offset, Offset)> {
        let held = self.held(first, end, doing, rules);
        for (first, end, leased) in &held {
            let (first, end) = (*first, *end);
            match doing.how {
                SettleAs::Acknowledge => {
                    loads.take(leased, end.0 - first.0);
                    self.settled.insert(first, end);
                    self.changes.settled.push((first, end, *leased));
                    self.trim_lease(first);
                    self.free_keys(first, end);
                }
                SettleAs::Return => {
                    self.end_lease(first, end);
                    loads.take(leased, end.0 - first.0);
                    let returned = Returned {
                        deliveries: leased.deliveries,
                        not_before: match doing.not_before {
                            later if later > rules.unix_ns => later,
                            _ => 0,
                        },
                    };
                    self.come_back(first, end, returned, rules, doing.reason);
                }
                SettleAs::GiveBack => {
                    self.end_lease(first, end);
                    loads.take(leased, end.0 - first.0);
                    self.come_to_wait(first, end, leased.deliveries.saturating_sub(1));
                }
                SettleAs::Reject => {
                    self.end_lease(first, end);
                    loads.take(leased, end.0 - first.0);
                    let mut dead = Dead::new(leased.deliveries, doing.reason, rules.unix_ns);
                    dead.rejected_by = Some(*leased);
                    self.bury(first, end, &dead);
                }
            }
        }
        rest(first, end, &held)
    }

    /// Takes events out of their lease, without leaving entries of settled
    /// events alone.
    fn end_lease(&mut self, first: Offset, end: Offset) {
        self.leases.remove(first, end);
        if let Some((start, until, _)) = self.leases.before(first)
            && self.settled.next_missing(start) >= until
        {
            self.leases.remove(start, until);
        }
        self.trim_lease(end);
    }

    /// A lease's entry begins with an event that is under it.
    fn trim_lease(&mut self, at: Offset) {
        if let Some((first, end, _)) = self.leases.around(at) {
            let start = self.settled.next_missing(first).min(end);
            if start > first {
                self.leases.remove(first, start);
            }
        }
    }

    /// Events come back after a delivery that counts.
    fn come_back(
        &mut self,
        first: Offset,
        end: Offset,
        returned: Returned,
        rules: &Rules,
        reason: &str,
    ) {
        let Returned { deliveries, .. } = returned;
        if rules.deliveries_max > 0 && deliveries >= rules.deliveries_max {
            let reason = match reason {
                "" => format!("came back from delivery {deliveries}"),
                reason => format!("came back from delivery {deliveries}: {reason}"),
            };
            let dead = Dead::new(deliveries, &reason, rules.unix_ns);
            self.bury(first, end, &dead);
            return;
        }
        self.changes.returned.insert(first, end, returned);
        self.wait(first, end, returned);
    }

    fn bury(&mut self, first: Offset, end: Offset, dead: &Dead) {
        let missing: Vec<_> = self.settled.missing(first, end).collect();
        for at in missing.into_iter().flat_map(|(a, b)| a.0..b.0).map(Offset) {
            self.dead.insert(at, dead.clone());
            self.changes.unrecorded.insert(at);
        }
    }

    /// Lets a lease last until `deadline`. Returns what is not under it.
    pub fn extend(
        &mut self,
        first: Offset,
        end: Offset,
        doing: &Doing<'_>,
        deadline: Duration,
        rules: &Rules,
    ) -> Vec<(Offset, Offset)> {
        let held = self.held(first, end, doing, rules);
        // As one range, with the settled ones in between.
        let parts = self.leases.within(first, end);
        let parts: Vec<_> = parts
            .filter(|(_, _, leased)| leased.member == doing.member && leased.lease == doing.lease)
            .filter(|(_, _, leased)| rules.now < leased.deadline || rules.expired_too)
            .map(|(first, end, leased)| (first, end, *leased))
            .collect();
        for (first, end, leased) in parts {
            let deadline = deadline.max(leased.deadline);
            self.leases
                .insert(first, end, Leased { deadline, ..leased });
            self.deadlines.insert(deadline);
        }
        rest(first, end, &held)
    }

    /// Ends the leases that are over, and the delays that have passed.
    /// Returns whether anything did.
    pub fn expire(&mut self, rules: &Rules, loads: &mut Loads) -> bool {
        let mut changed = false;
        if self.deadlines.first().is_some_and(|at| *at <= rules.now) {
            while self.deadlines.first().is_some_and(|at| *at <= rules.now) {
                self.deadlines.pop_first();
            }
            let over = self.leases.iter();
            let over = over.filter(|(_, _, leased)| leased.deadline <= rules.now);
            let over: Parts = over.map(|(a, b, leased)| (a, b, *leased)).collect();
            changed |= !over.is_empty();
            over.iter().for_each(|(_, _, leased)| loads.lapse(leased));
            self.take_back(over, true, EXPIRED, rules, loads);
        }
        while let Some((at, first)) = self.due.first().copied()
            && at <= rules.unix_ns
        {
            self.due.pop_first();
            if let Some((start, end, returned)) = self.delayed.around(first)
                && returned.not_before <= rules.unix_ns
            {
                let deliveries = returned.deliveries;
                self.delayed.remove(start, end);
                self.come_to_wait(start, end, deliveries);
                changed = true;
            }
        }
        changed
    }

    /// After a restart, when whoever may have something has come back: events
    /// that were delivered as often as is allowed do not wait any more.
    pub fn bury_spent(&mut self, rules: &Rules) {
        let is_spent =
            |deliveries: u32| rules.deliveries_max > 0 && deliveries >= rules.deliveries_max;
        let waiting = self.returned.iter();
        let spent = waiting.filter(|(_, _, deliveries)| is_spent(**deliveries));
        let spent: Vec<_> = spent
            .map(|(a, b, deliveries)| (a, b, *deliveries))
            .collect();
        for (first, end, deliveries) in spent {
            self.returned.remove(first, end);
            let returned = Returned {
                deliveries,
                not_before: 0,
            };
            self.come_back(first, end, returned, rules, "the server was restarted");
        }
    }

    /// When [`QueuePartition::expire`] has something to do: on the monotonic
    /// clock, and in nanoseconds since 1970.
    pub fn next_expiry(&self) -> (Option<Duration>, Option<u64>) {
        let due = self.due.first().map(|(at, _)| *at);
        (self.deadlines.first().copied(), due)
    }

    /// A member is gone: all that it had waits again.
    pub fn member_gone(
        &mut self,
        member: MemberId,
        counted: bool,
        rules: &Rules,
        loads: &mut Loads,
    ) {
        let parts = self.leases.iter();
        let parts = parts.filter(|(_, _, leased)| leased.member == member);
        let parts: Parts = parts.map(|(a, b, leased)| (a, b, *leased)).collect();
        self.take_back(parts, counted, "the member is gone", rules, loads);
    }

    fn take_back(
        &mut self,
        parts: Parts,
        counted: bool,
        reason: &str,
        rules: &Rules,
        loads: &mut Loads,
    ) {
        for (first, end, leased) in parts {
            self.leases.remove(first, end);
            loads.take(&leased, self.count(first, end));
            if counted {
                let returned = Returned {
                    deliveries: leased.deliveries,
                    not_before: 0,
                };
                self.come_back(first, end, returned, rules, reason);
            } else {
                self.come_to_wait(first, end, leased.deliveries.saturating_sub(1));
            }
        }
    }

    /// Events are not there any more: they count as settled. Gives those that nobody had settled.
    pub fn lost(&mut self, first: Offset, end: Offset, loads: &mut Loads) -> Vec<(Offset, Offset)> {
        let first = first.max(self.position());
        if first >= end {
            return Vec::new();
        }
        let missing: Vec<_> = self.settled.missing(first, end).collect();
        if missing.is_empty() {
            return missing;
        }
        for (first, end, leased) in self.leases.remove(first, end) {
            loads.take(&leased, self.count(first, end));
        }
        self.returned.remove(first, end);
        for (_, until, returned) in self.delayed.remove(first, end) {
            if until == end {
                // What is left of the range has no entry of its own yet.
                self.due.insert((returned.not_before, end));
            }
        }
        let gone: Vec<Offset> = self.dead.range(first..end).map(|(at, _)| *at).collect();
        for at in gone {
            self.exhume(at);
            self.changes.unrecorded.remove(&at);
        }
        self.settled.insert(first, end);
        self.changes.closed.extend_from_slice(&missing);
        self.free_keys(first, end);
        missing
    }

    /// The next dead letter to be written: the first whose intention is durable.
    pub fn next_dead_letter(&self) -> Option<(Offset, &Dead)> {
        let (_, at) = self.letters.first_key_value()?;
        Some((*at, self.dead.get(at)?))
    }

    /// An event is not dead any more.
    fn exhume(&mut self, at: Offset) -> Option<Dead> {
        let dead = self.dead.remove(&at)?;
        if let Some(place) = dead.sequence {
            self.letters.remove(&place);
        }
        Some(dead)
    }

    /// An event that goes to the dead-letter topic.
    pub fn dead(&self, at: Offset) -> Option<&Dead> {
        self.dead.get(&at)
    }

    /// A dead letter is durable: its event is settled.
    pub fn dead_letter_written(&mut self, at: Offset) {
        if self.exhume(at).is_some() {
            let end = at.plus(1);
            self.settled.insert(at, end);
            self.changes.closed.push((at, end));
            self.free_keys(at, end);
        }
    }

    /// Nobody has these events any more: later ones of their keys may follow.
    fn free_keys(&mut self, first: Offset, end: Offset) {
        let Some(mut keys) = self.keys.take() else {
            return;
        };
        for (at, deliveries) in keys.settled(first, end) {
            self.come_to_wait(at, at.plus(1), deliveries);
        }
        self.keys = Some(keys);
    }
}

impl Dead {
    fn new(deliveries: u32, reason: &str, time: u64) -> Self {
        let end = (0..=REASON_BYTES_MAX.min(reason.len())).rev();
        let end = end.into_iter().find(|end| reason.is_char_boundary(*end));
        Self {
            deliveries,
            reason: reason[..end.unwrap_or(0)].to_owned(),
            time,
            sequence: None,
            recorded: false,
            rejected_by: None,
        }
    }
}

/// Ranges in order, each with who had it.
type Parts = Vec<(Offset, Offset, Leased)>;

/// What of `first..end` is not in `parts`, which are in order.
fn rest<V>(first: Offset, end: Offset, parts: &[(Offset, Offset, V)]) -> Vec<(Offset, Offset)> {
    let mut rest = Vec::new();
    let mut at = first;
    for (start, until, _) in parts {
        if at < *start {
            rest.push((at, *start));
        }
        at = at.max(*until);
    }
    if at < end {
        rest.push((at, end));
    }
    rest
}
