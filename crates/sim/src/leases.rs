//! Which leases hold, as whoever listens to the server can know: an event is
//! under one at a time, deliveries are counted, what was confirmed stays, and
//! dead letters have a reason.

#[cfg(test)]
mod tests;
mod turns;

pub use turns::Turns;

use crate::handed::Handed;
use crate::trace::Violation;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use wire::message::{Lease, SettleAs, Settlement};
use wire::{EventId, LeaseId, MemberId, Offset};

const MILLISECOND: u64 = 1_000_000;
/// A server's leases end together: so many steps are in a lease.
const STEPS: u64 = 32;

/// Why events come back that nobody returns.
const WHYS: [&str; 4] = [
    "",
    "the lease expired",
    "the member is gone",
    "the server was restarted",
];

/// How far an event is from the hands of the member that was given it last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// It has it, at least until the first time, and no longer than the second.
    Held { until: u64, latest: u64 },
    /// Whether it still has it cannot be known here.
    Loose,
    /// It has given it up, or lost it.
    Ended,
    /// It has acknowledged or rejected it.
    Settled,
}

/// What is known of an event in a queue.
#[derive(Debug, Clone)]
struct Known {
    lease: LeaseId,
    member: MemberId,
    deliveries: u32,
    state: State,
    /// What the count is to be with the next delivery.
    next: RangeInclusive<u32>,
    /// It is not to be given out before.
    not_before: u64,
    /// From this delivery it came back, durably.
    recorded: u32,
    /// Its settlement was confirmed.
    is_settled: bool,
    /// Somebody has settled it, for good if that is not refused.
    may_be_done: bool,
    /// The run of the server in which somebody did so last. That this was
    /// refused, and the event was given out again, says nothing of what the
    /// next run finds in the records.
    asked_in: u64,
    /// What it takes of its member's prefetch, as the server counts.
    bytes: u64,
}

/// What was asked of an event, and whether the lease held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Holds,
    Either,
    Over,
}

/// What one request of settlements asks for.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    events: Vec<(EventId, LeaseId, SettleAs, Verdict)>,
}

impl Asked {
    /// The same, asked for once more: what was done may be forgotten by now.
    pub fn again(&self) -> Self {
        let mut again = self.clone();
        for (_, _, _, verdict) in &mut again.events {
            if *verdict == Verdict::Holds {
                *verdict = Verdict::Either;
            }
        }
        again
    }
}

/// A rejection that somebody asked for.
#[derive(Debug, Clone)]
struct Rejection {
    reason: String,
    deliveries: u32,
}

/// How an event may have ended.
#[derive(Debug, Clone, Default)]
struct Ends {
    /// Somebody acknowledged it under a lease that held.
    acknowledged: bool,
    /// That was confirmed.
    is_confirmed: bool,
    rejections: Vec<Rejection>,
    /// A rejection was confirmed.
    is_rejected: bool,
    /// Reasons of returns.
    returns: BTreeSet<String>,
    /// How often it was delivered, each time.
    deliveries: BTreeSet<u32>,
    /// When programs had it for sure: from the pull to a settlement that
    /// was confirmed.
    held: Vec<(u64, u64, String)>,
}

/// A dead letter.
#[derive(Debug, Clone)]
pub struct Letter {
    pub queue: String,
    pub origin: EventId,
    pub deliveries: u32,
    pub reason: String,
}

/// Who is given what, and when.
#[derive(Debug, Clone, Copy)]
pub struct Given<'a> {
    pub queue: &'a str,
    pub member: MemberId,
    pub lease_ms: u32,
    /// What the member may have unsettled: events, and their bytes.
    pub prefetch: (u32, u64),
    pub now: u64,
}

type Key = (String, EventId);

/// The leases of all queues.
#[derive(Debug, Default)]
pub struct Leases {
    events: BTreeMap<Key, Known>,
    ends: BTreeMap<Key, Ends>,
    used: BTreeSet<LeaseId>,
    /// What a restarted server said to be settled: it does not know by whom.
    vouched: BTreeSet<(String, EventId, LeaseId)>,
    /// What goes on under a lease that was over before a crash, which lost
    /// that: another had the event meanwhile.
    revived: BTreeSet<(String, EventId, LeaseId)>,
    lease_ns: BTreeMap<String, u64>,
    turns: Turns,
    /// Runs of the server so far.
    run: u64,
    /// How often an event is delivered at most; 0 is without limit.
    deliveries_max: u32,
    /// Events that were given out.
    pub given_count: u64,
    /// Those that were given out before.
    pub again_count: u64,
    /// Settlements that were refused.
    pub refused_count: u64,
}

/// The events of a lease.
fn events(lease: &Lease) -> impl Iterator<Item = EventId> + use<> {
    let (partition, incarnation) = (lease.partition, lease.incarnation);
    (lease.first.0..lease.end.0).map(move |offset| EventId {
        partition,
        incarnation,
        offset: Offset(offset),
    })
}

fn covers(leases: &[Lease], id: EventId, lease: LeaseId) -> bool {
    leases.iter().any(|one| {
        (one.lease, one.partition, one.incarnation) == (lease, id.partition, id.incarnation)
            && (one.first..one.end).contains(&id.offset)
    })
}

impl Leases {
    pub fn new(deliveries_max: u32, turns: Turns) -> Self {
        Self {
            deliveries_max,
            turns,
            run: 1,
            ..Self::default()
        }
    }

    fn held(&self, queue: &str, now: u64) -> State {
        let lease = self.lease_ns.get(queue).copied().unwrap_or(0);
        let step = (lease / STEPS).max(MILLISECOND);
        State::Held {
            until: now + lease,
            latest: (now + lease).div_ceil(step) * step,
        }
    }

    /// A member is given events. `is_gone` says who of a queue is none any more.
    pub fn given(
        &mut self,
        given: Given<'_>,
        handed: &[Handed],
        is_gone: impl Fn(MemberId) -> bool,
    ) -> Result<(), Violation> {
        let queue = given.queue;
        let lease_ns = u64::from(given.lease_ms) * MILLISECOND;
        self.lease_ns.insert(queue.to_owned(), lease_ns);
        let fresh: BTreeSet<LeaseId> = handed.iter().map(|one| one.lease.lease).collect();
        for lease in &fresh {
            if !self.used.insert(*lease) {
                return Violation::because(format!("lease {lease} is given a second time"));
            }
        }
        // The server counts the average of those that it gives at once.
        let bytes: u64 = handed.iter().map(|one| one.bytes).sum();
        let bytes = bytes.div_ceil((handed.len() as u64).max(1));
        for one in handed {
            self.has_turn(given, one, &is_gone)?;
            self.given_one(given, one.id, &one.lease, &is_gone)?;
            if let Some(known) = self.events.get_mut(&(queue.to_owned(), one.id)) {
                known.bytes = bytes;
            }
        }
        // A frame without leases says that the queue has recovered.
        if handed.is_empty() {
            return Ok(());
        }
        self.check_prefetch(given, handed.len() as u64)
    }

    /// What a member has for sure is within its prefetch, or one event.
    fn check_prefetch(&mut self, given: Given<'_>, count: u64) -> Result<(), Violation> {
        let Given {
            queue, member, now, ..
        } = given;
        let (events_max, bytes_max) = given.prefetch;
        let is_held = |known: &&mut Known| match known.state {
            State::Held { until, .. } => now < until,
            _ => false,
        };
        let held = self.of_member(queue, member).map(|(_, known)| known);
        let held = held.filter(is_held);
        let (events, bytes) = held.fold((0, 0), |(events, bytes), known| {
            (events + 1, bytes + known.bytes)
        });
        // Averages are rounded up.
        let is_within = bytes <= bytes_max + count || events == 1;
        if events <= u64::from(events_max) && is_within {
            return Ok(());
        }
        Violation::because(format!(
            "{member} of {queue} has {events} events, {bytes} bytes, unsettled: more than its \
             prefetch of {events_max} and {bytes_max}"
        ))
    }

    fn given_one(
        &mut self,
        given: Given<'_>,
        id: EventId,
        lease: &Lease,
        is_gone: &impl Fn(MemberId) -> bool,
    ) -> Result<(), Violation> {
        let Given {
            queue, member, now, ..
        } = given;
        let what = format!(
            "{queue} gives event {id} to {member} under {}, delivery {}",
            lease.lease, lease.deliveries
        );
        let key = (queue.to_owned(), id);
        self.given_count += 1;
        let (mut recorded, mut asked_in) = (0, 0);
        if let Some(known) = self.events.get(&key) {
            self.again_count += 1;
            (recorded, asked_in) = (known.recorded, known.asked_in);
            if known.is_settled {
                return Violation::because(format!("{what}: its settlement was confirmed"));
            }
            let gone = is_gone(known.member);
            let next = match known.state {
                State::Held { until, .. } if now < until && !gone => {
                    return Violation::because(format!(
                        "{what}: {} still has it under {}, for {} ms more",
                        known.member,
                        known.lease,
                        (until - now) / MILLISECOND
                    ));
                }
                State::Loose => {
                    let least = *known.next.start().min(&known.deliveries);
                    least..=known.deliveries + 1
                }
                // If it expired, or its member is gone, that counts.
                State::Held { .. } | State::Ended | State::Settled => known.next.clone(),
            };
            if !next.contains(&lease.deliveries) {
                return Violation::because(format!(
                    "{what}: the count is to be in {next:?} after {known:?}"
                ));
            }
            if now < known.not_before {
                return Violation::because(format!(
                    "{what}: it is delayed for {} ms more",
                    (known.not_before - now) / MILLISECOND
                ));
            }
        } else if lease.deliveries != 1 {
            return Violation::because(format!("{what}: it was never given out before"));
        }
        if self.deliveries_max > 0 && lease.deliveries > self.deliveries_max {
            return Violation::because(format!("{what}: the limit is {}", self.deliveries_max));
        }
        let ends = self.ends.entry(key.clone()).or_default();
        ends.deliveries.insert(lease.deliveries);
        let known = Known {
            lease: lease.lease,
            member,
            deliveries: lease.deliveries,
            state: self.held(queue, now),
            next: lease.deliveries + 1..=lease.deliveries + 1,
            not_before: 0,
            recorded,
            is_settled: false,
            may_be_done: false,
            asked_in,
            bytes: 0,
        };
        self.events.insert(key, known);
        Ok(())
    }

    fn verdict(&self, key: &Key, lease: LeaseId, member: MemberId, now: u64) -> Verdict {
        match self.events.get(key) {
            Some(known) if known.lease == lease && known.member == member => match known.state {
                State::Held { until, .. } if now < until => Verdict::Holds,
                State::Held { latest, .. } if now < latest => Verdict::Either,
                State::Loose => Verdict::Either,
                State::Held { .. } | State::Ended | State::Settled => Verdict::Over,
            },
            _ => Verdict::Over,
        }
    }

    /// Settlements have arrived, for the first time in this run of the server.
    pub fn settle(
        &mut self,
        queue: &str,
        member: MemberId,
        settlements: &[Settlement],
        now: u64,
    ) -> Asked {
        let mut asked = Asked::default();
        for settlement in settlements {
            let lease = settlement.lease.lease;
            for id in events(&settlement.lease) {
                let key = (queue.to_owned(), id);
                let verdict = self.verdict(&key, lease, member, now);
                asked.events.push((id, lease, settlement.how, verdict));
                if verdict != Verdict::Over {
                    self.settle_one(&key, settlement, verdict, now);
                }
            }
        }
        asked
    }

    fn settle_one(&mut self, key: &Key, settlement: &Settlement, verdict: Verdict, now: u64) {
        let run = self.run;
        let known = self.events.get_mut(key).expect("it has a verdict");
        let ends = self.ends.entry(key.clone()).or_default();
        let count = known.deliveries;
        let is_final = matches!(settlement.how, SettleAs::Acknowledge | SettleAs::Reject);
        if is_final {
            (known.may_be_done, known.asked_in) = (true, run);
        }
        known.state = match settlement.how {
            SettleAs::Acknowledge | SettleAs::Reject => State::Settled,
            SettleAs::Return | SettleAs::GiveBack => State::Ended,
        };
        let least = match verdict {
            Verdict::Holds => count + 1,
            _ => *known.next.start(),
        };
        known.next = least..=count + 1;
        match settlement.how {
            SettleAs::Acknowledge => ends.acknowledged = true,
            SettleAs::Return => {
                known.not_before = match verdict {
                    Verdict::Holds => now + u64::from(settlement.delay_ms) * MILLISECOND,
                    _ => 0,
                };
                ends.returns.insert(settlement.reason.clone());
            }
            SettleAs::GiveBack => {
                let most = count + u32::from(verdict != Verdict::Holds);
                known.next = least.min(count)..=most;
            }
            SettleAs::Reject => ends.rejections.push(Rejection {
                reason: settlement.reason.clone(),
                deliveries: count,
            }),
        }
    }

    /// Settlements are answered: all but `expired` are durable.
    pub fn settled(
        &mut self,
        queue: &str,
        asked: &Asked,
        expired: &[Lease],
    ) -> Result<(), Violation> {
        for (id, lease, how, verdict) in &asked.events {
            let (id, lease) = (*id, *lease);
            let key = (queue.to_owned(), id);
            let is_refused = covers(expired, id, lease);
            if is_refused {
                self.refused_count += 1;
                let known = self.events.get_mut(&key);
                if let Some(known) = known.filter(|known| known.lease == lease)
                    && *verdict == Verdict::Either
                {
                    known.state = State::Loose;
                }
                if *verdict == Verdict::Holds {
                    return Violation::because(format!(
                        "{queue}: {how:?} of event {id} is refused, and lease {lease} held"
                    ));
                }
                continue;
            }
            if *verdict == Verdict::Over {
                return Violation::because(format!(
                    "{queue}: {how:?} of event {id} is accepted, and lease {lease} was over: {:?}",
                    self.events.get(&key)
                ));
            }
            let ends = self.ends.entry(key.clone()).or_default();
            let Some(known) = self.events.get_mut(&key) else {
                continue;
            };
            match how {
                SettleAs::Acknowledge => {
                    ends.is_confirmed = true;
                    known.is_settled = true;
                }
                SettleAs::Reject => {
                    ends.is_rejected = true;
                    known.is_settled = true;
                }
                SettleAs::Return if known.lease == lease => known.recorded = known.deliveries,
                SettleAs::Return | SettleAs::GiveBack => {}
            }
        }
        Ok(())
    }

    /// Settlements are refused as a whole: whoever had the events may have
    /// them again.
    pub fn not_settled(&mut self, queue: &str, asked: &Asked) {
        for (id, lease, _, verdict) in &asked.events {
            let known = self.events.get_mut(&(queue.to_owned(), *id));
            if let Some(known) = known.filter(|known| known.lease == *lease)
                && *verdict != Verdict::Over
            {
                known.state = State::Loose;
                known.not_before = 0;
            }
        }
    }

    /// Leases were extended, all but `expired`.
    pub fn extended(
        &mut self,
        given: Given<'_>,
        leases: &[Lease],
        expired: &[Lease],
    ) -> Result<(), Violation> {
        let Given {
            queue, member, now, ..
        } = given;
        let held = self.held(queue, now);
        for lease in leases {
            for id in events(lease).filter(|id| !covers(expired, *id, lease.lease)) {
                let key = (queue.to_owned(), id);
                let verdict = self.verdict(&key, lease.lease, member, now);
                if verdict == Verdict::Over {
                    return Violation::because(format!(
                        "{queue}: lease {} of event {id} is extended, and was over",
                        lease.lease
                    ));
                }
                if let Some(known) = self.events.get_mut(&key) {
                    known.state = held;
                }
            }
        }
        Ok(())
    }

    fn of_member(
        &mut self,
        queue: &str,
        member: MemberId,
    ) -> impl Iterator<Item = (&Key, &mut Known)> {
        let events = self.events.iter_mut();
        events.filter(move |((name, _), known)| name == queue && known.member == member)
    }

    /// A member may be gone, or not; or may have been let go of what it had.
    pub fn loosen(&mut self, queue: &str, member: MemberId) {
        for (_, known) in self.of_member(queue, member) {
            if matches!(known.state, State::Held { .. }) {
                known.state = State::Loose;
            }
        }
    }

    /// A member is one again: what it did not name waits again, uncounted. `is_adopted` says that the server was restarted
    /// since: what the member named goes on, as if it were leased now.
    pub fn joined(
        &mut self,
        given: Given<'_>,
        named: &[Lease],
        answer: (&[Lease], &[Lease]),
        is_adopted: bool,
    ) {
        let Given {
            queue, member, now, ..
        } = given;
        let (settled, expired) = answer;
        let held = self.held(queue, now);
        if is_adopted {
            self.adopt(given, named, answer);
        }
        for ((_, id), known) in self.of_member(queue, member) {
            if !covers(named, *id, known.lease) {
                if let State::Held { until, .. } = known.state {
                    // After a crash it may have been over before.
                    let is_late = now >= until || until == u64::MAX;
                    let most = known.deliveries + u32::from(is_late);
                    known.next = *known.next.start().min(&known.deliveries)..=most;
                    known.state = State::Ended;
                }
                continue;
            }
            if covers(settled, *id, known.lease) {
                known.state = State::Settled;
                known.is_settled = true;
                known.may_be_done = true;
            } else if covers(expired, *id, known.lease) {
                if matches!(known.state, State::Held { .. }) {
                    known.state = State::Loose;
                }
            } else if is_adopted && known.state != State::Settled {
                known.state = held;
                known.next = known.deliveries + 1..=known.deliveries + 1;
            }
        }
        for lease in settled {
            for id in events(lease) {
                self.vouched.insert((queue.to_owned(), id, lease.lease));
                let ends = self.ends.entry((queue.to_owned(), id)).or_default();
                // By whom cannot be known: it may be a dead letter.
                ends.acknowledged |= ends.rejections.is_empty();
            }
        }
    }

    /// That an event came back and was given out again may be lost with a
    /// crash: whoever had it before then is let keep it.
    fn adopt(&mut self, given: Given<'_>, named: &[Lease], answer: (&[Lease], &[Lease])) {
        let (settled, expired) = answer;
        for lease in named {
            for id in events(lease) {
                let is_over = covers(settled, id, lease.lease) || covers(expired, id, lease.lease);
                let key = (given.queue.to_owned(), id);
                if let Some(known) = self.events.get_mut(&key)
                    && known.lease != lease.lease
                    && !known.is_settled
                    && known.state != State::Settled
                    && !is_over
                {
                    if lease.deliveries < known.deliveries {
                        self.revived.insert((key.0, id, lease.lease));
                    }
                    known.lease = lease.lease;
                    known.member = given.member;
                    known.deliveries = lease.deliveries;
                }
            }
        }
    }

    /// The server has crashed. What was not confirmed may have happened or not.
    pub fn crashed(&mut self) {
        for known in self.events.values_mut() {
            // The server does not know what those take that it finds.
            known.bytes = 0;
            known.may_be_done |= known.asked_in == self.run;
            if known.recorded < known.deliveries {
                known.not_before = 0;
            }
            if known.is_settled {
                continue;
            }
            let least = (known.recorded + 1).min(*known.next.start());
            known.next = least..=known.deliveries + 1;
            known.state = match known.state {
                // As long as its member comes back in time.
                State::Held { .. } => State::Held {
                    until: u64::MAX,
                    latest: u64::MAX,
                },
                State::Ended | State::Settled | State::Loose => State::Loose,
            };
        }
        self.run += 1;
    }

    /// A program is told that its settlement of an event is durable: it had
    /// the event from the pull on until it settled it.
    pub fn confirmed(
        &mut self,
        queue: &str,
        leased: (EventId, LeaseId),
        who: &str,
        span: (u64, u64),
        how: SettleAs,
    ) -> Result<(), Violation> {
        let (id, lease) = leased;
        if self.vouched.contains(&(queue.to_owned(), id, lease)) {
            return Ok(());
        }
        let key = (queue.to_owned(), id);
        if !self.revived.contains(&(queue.to_owned(), id, lease)) {
            let ends = self.ends.entry(key.clone()).or_default();
            let (from, to) = span;
            let mut others = ends.held.iter();
            let other = others.find(|(first, last, _)| from <= *last && *first <= to);
            if let Some((first, last, other)) = other {
                return Violation::because(format!(
                    "{who} had event {id} of {queue} from {from} to {to}, and {other} from {first} to {last}"
                ));
            }
            ends.held.push((from, to, who.to_owned()));
        }
        let is_settled = self.events.get(&key).is_some_and(|known| known.is_settled);
        let is_final = matches!(how, SettleAs::Acknowledge | SettleAs::Reject);
        if is_final && !is_settled {
            return Violation::because(format!(
                "{who} is told that its {how:?} of event {id} of {queue} is durable, and the \
                 server never said so: {:?}",
                self.events.get(&key)
            ));
        }
        Ok(())
    }

    /// At the end: each event that a queue had was acknowledged, or is a dead
    /// letter with its reason; none is both for sure.
    pub fn check_ends(
        &self,
        queue: &str,
        all: &[EventId],
        letters: &[Letter],
    ) -> Result<(), Violation> {
        let mut found: BTreeMap<EventId, &Letter> = BTreeMap::new();
        for letter in letters.iter().filter(|letter| letter.queue == queue) {
            if found.insert(letter.origin, letter).is_some() {
                return Violation::because(format!("{letter:?}: there are two of it"));
            }
        }
        let nothing = Ends::default();
        for id in all {
            let ends = self.ends.get(&(queue.to_owned(), *id)).unwrap_or(&nothing);
            let what = format!("event {id} of {queue}");
            match found.remove(id) {
                None if ends.is_rejected => {
                    return Violation::because(format!(
                        "{what} was rejected, which was confirmed, and there is no dead letter"
                    ));
                }
                None if !ends.acknowledged => {
                    return Violation::because(format!(
                        "{what} is settled; nobody acknowledged it, and there is no dead letter: \
                         {ends:?}"
                    ));
                }
                Some(_) if ends.is_confirmed => {
                    return Violation::because(format!(
                        "{what} was acknowledged, which was confirmed, and there is a dead letter"
                    ));
                }
                Some(letter) => self.check_letter(letter, ends)?,
                None => {}
            }
        }
        match found.into_values().next() {
            Some(letter) => Violation::because(format!("{letter:?}: of no event")),
            None => Ok(()),
        }
    }

    fn check_letter(&self, letter: &Letter, ends: &Ends) -> Result<(), Violation> {
        if !ends.deliveries.contains(&letter.deliveries) {
            return Violation::because(format!(
                "{letter:?}: it was delivered as {:?}",
                ends.deliveries
            ));
        }
        let is_rejected = ends.rejections.iter().any(|rejection| {
            rejection.reason == letter.reason && rejection.deliveries == letter.deliveries
        });
        let came_back = format!("came back from delivery {}", letter.deliveries);
        let why = letter.reason.strip_prefix(&came_back);
        let is_known = why.is_some_and(|why| {
            let why = why.strip_prefix(": ").unwrap_or(why);
            WHYS.contains(&why) || ends.returns.contains(why)
        });
        let is_over = self.deliveries_max > 0 && letter.deliveries == self.deliveries_max;
        match is_rejected || (is_known && is_over) {
            true => Ok(()),
            false => Violation::because(format!("{letter:?}: nothing explains it: {ends:?}")),
        }
    }
}
