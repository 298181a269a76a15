//! A queue's partition against a model that keeps every event by itself.

use super::*;
use crate::coordinator::table::{QueueEntry, Returned};
use crate::queue::OffsetSet;
use std::collections::BTreeMap;
use std::time::Duration;
use wire::message::SettleAs;
use wire::record::Record;
use wire::*;

const DELIVERIES_MAX: u32 = 4;
const LEASE: Duration = Duration::from_secs(30);
const UNIX: u64 = 1_700_000_000_000_000_000;

/// A generator of numbers that are the same every time.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }

    fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }
}

/// An event, kept by itself.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Event {
    Waiting(u32),
    Leased(Leased),
    Delayed(Returned),
    Dead(u32),
    Settled,
}

/// An event's state.
#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    /// Delivered so often.
    Waiting(u32),
    /// By this lease.
    Leased(Leased),
    /// Until then.
    Delayed(Returned),
    /// Delivered so often.
    Dead(u32),
    /// For good, or on the way.
    Settled,
}

impl QueuePartition {
    /// The states that an event is in: one, if all is well.
    fn states_of(&self, at: Offset) -> Vec<State> {
        if self.settled.contains(at) {
            return vec![State::Settled];
        }
        let fresh = (at >= self.next).then_some(0);
        let waiting = fresh.into_iter().chain(self.returned.get(at).copied());
        let mut states: Vec<State> = waiting.map(State::Waiting).collect();
        states.extend(self.leases.get(at).copied().map(State::Leased));
        states.extend(self.delayed.get(at).copied().map(State::Delayed));
        let dead = self.dead.get(&at);
        states.extend(dead.map(|dead| State::Dead(dead.deliveries)));
        states
    }
}

struct Model {
    partition: QueuePartition,
    /// What the records add up to.
    entry: QueueEntry,
    loads: Loads,
    events: Vec<Event>,
    /// Settled or rejected by members, in changes that are under way, and in
    /// those that follow.
    under_way: Vec<(usize, Leased)>,
    gathered: Vec<(usize, Leased)>,
    changes: Option<(Vec<Record>, Changes)>,
    /// Who was told what, first to last.
    given: Vec<(Offset, Offset, Leased)>,
    now: Duration,
    last_lease: u64,
    dead_letters: BTreeMap<Sequence, Offset>,
}

fn whose() -> Whose<'static> {
    Whose {
        topic: TopicId(1),
        consumer: "q",
        consumer_id: ConsumerId(7),
        partition: PartitionIndex(0),
    }
}

impl Model {
    fn new() -> Self {
        let entry = QueueEntry {
            incarnation: Incarnation(1),
            ..QueueEntry::default()
        };
        Self {
            partition: QueuePartition::new(&entry, Incarnation(1), Offset(0)),
            entry,
            loads: Loads::default(),
            events: Vec::new(),
            under_way: Vec::new(),
            gathered: Vec::new(),
            changes: None,
            given: Vec::new(),
            now: Duration::ZERO,
            last_lease: 0,
            dead_letters: BTreeMap::new(),
        }
    }

    fn rules(&self) -> Rules {
        Rules {
            now: self.now,
            unix_ns: UNIX + self.now.as_nanos() as u64,
            deliveries_max: DELIVERIES_MAX,
            expired_too: false,
        }
    }

    fn visible(&self) -> Offset {
        Offset(self.events.len() as u64)
    }

    fn event(&self, at: u64) -> Event {
        let at = Offset(at);
        let found: Vec<Event> = self
            .partition
            .states_of(at)
            .into_iter()
            .map(|state| match state {
                State::Waiting(deliveries) => Event::Waiting(deliveries),
                State::Leased(leased) => Event::Leased(leased),
                State::Delayed(returned) => Event::Delayed(returned),
                State::Dead(deliveries) => Event::Dead(deliveries),
                State::Settled => Event::Settled,
            })
            .collect();
        assert_eq!(found.len(), 1, "{at} is in states {found:?}");
        found[0]
    }

    fn check(&self) {
        for (at, event) in self.events.iter().enumerate() {
            assert_eq!(self.event(at as u64), *event, "event {at}");
        }
        let mut loads: BTreeMap<MemberId, (u64, u64)> = BTreeMap::new();
        for event in &self.events {
            if let Event::Leased(leased) = event {
                let load = loads.entry(leased.member).or_default();
                load.0 += 1;
                load.1 += leased.bytes;
            }
        }
        for member in 1..5 {
            let load = self.loads.of(MemberId(member));
            let expected = loads.get(&MemberId(member)).copied().unwrap_or_default();
            assert_eq!((load.events, load.bytes), expected, "member {member}");
        }
    }

    fn give(&mut self, numbers: &mut Numbers) {
        let member = MemberId(1 + u128::from(numbers.below(4)));
        let Some(waiting) = self.partition.waiting(self.visible()) else {
            let waits = |event: &Event| matches!(event, Event::Waiting(_));
            assert!(!self.events.iter().any(waits), "something waits");
            return;
        };
        // What came back first, in order, and then what is new.
        let next = self.partition.next().0 as usize;
        let waits = |event: &Event| matches!(event, Event::Waiting(_));
        let again = self.events[..next.min(self.events.len())].iter();
        let first = again.clone().position(waits);
        let first = first.or_else(|| {
            let fresh = self.events.iter().skip(next).position(waits);
            fresh.map(|at| at + next)
        });
        assert_eq!(first, Some(waiting.first.0 as usize));
        self.last_lease += 1;
        let leased = Leased {
            member,
            lease: LeaseId(self.last_lease),
            deadline: self.now + LEASE,
            deliveries: waiting.deliveries + 1,
            bytes: numbers.below(100),
        };
        let most = 1 + numbers.below(12);
        let end = waiting.end.min(waiting.first.plus(most));
        for at in waiting.first.0..end.0 {
            match self.events[at as usize] {
                Event::Waiting(deliveries) => assert_eq!(deliveries, waiting.deliveries),
                Event::Settled => continue,
                other => panic!("{at} is given to two: {other:?}"),
            }
            self.events[at as usize] = Event::Leased(leased);
        }
        self.partition
            .lease(Waiting { end, ..waiting }, leased, &mut self.loads);
        self.given.push((waiting.first, end, leased));
    }

    fn come_back(&mut self, at: usize, deliveries: u32, not_before: u64) {
        self.events[at] = if deliveries >= DELIVERIES_MAX {
            Event::Dead(deliveries)
        } else if not_before > 0 {
            Event::Delayed(Returned {
                deliveries,
                not_before,
            })
        } else {
            Event::Waiting(deliveries)
        };
    }

    fn settle(&mut self, numbers: &mut Numbers) {
        if self.given.is_empty() {
            return;
        }
        let (first, end, leased) = self.given[numbers.below(self.given.len() as u64) as usize];
        let first = first.plus(numbers.below(3)).min(end);
        let end = Offset(end.0.saturating_sub(numbers.below(3))).max(first);
        let how = match numbers.below(8) {
            0 | 1 => SettleAs::Return,
            2 => SettleAs::Reject,
            3 => SettleAs::GiveBack,
            _ => SettleAs::Acknowledge,
        };
        let rules = self.rules();
        let not_before = match numbers.below(2) {
            0 => 0,
            _ => rules.unix_ns + numbers.below(20) * 1_000_000_000,
        };
        let doing = Doing {
            member: leased.member,
            lease: leased.lease,
            how,
            not_before,
            reason: "why",
        };
        let expired = self
            .partition
            .settle(first, end, &doing, &rules, &mut self.loads);
        let not_before = if not_before > rules.unix_ns {
            not_before
        } else {
            0
        };
        for at in first.0..end.0 {
            let refused = expired.iter().any(|(a, b)| (a.0..b.0).contains(&at));
            let at = at as usize;
            let holds = match self.events[at] {
                Event::Leased(held) if held.lease == leased.lease => {
                    (self.now < held.deadline).then_some(held)
                }
                _ => None,
            };
            assert_eq!(refused, holds.is_none(), "event {at}");
            let Some(held) = holds else {
                continue;
            };
            match how {
                SettleAs::Acknowledge => {
                    self.events[at] = Event::Settled;
                    self.gathered.push((at, held));
                }
                SettleAs::Return => self.come_back(at, held.deliveries, not_before),
                SettleAs::GiveBack => self.events[at] = Event::Waiting(held.deliveries - 1),
                SettleAs::Reject => {
                    self.events[at] = Event::Dead(held.deliveries);
                    self.gathered.push((at, held));
                }
            }
        }
    }

    fn extend(&mut self, numbers: &mut Numbers) {
        if self.given.is_empty() {
            return;
        }
        let (first, end, leased) = self.given[numbers.below(self.given.len() as u64) as usize];
        let doing = Doing {
            member: leased.member,
            lease: leased.lease,
            how: SettleAs::Acknowledge,
            not_before: 0,
            reason: "",
        };
        let rules = self.rules();
        let deadline = self.now + LEASE;
        let expired = self.partition.extend(first, end, &doing, deadline, &rules);
        for at in first.0..end.0 {
            let refused = expired.iter().any(|(a, b)| (a.0..b.0).contains(&at));
            match &mut self.events[at as usize] {
                Event::Leased(held) if held.lease == leased.lease && self.now < held.deadline => {
                    assert!(!refused);
                    held.deadline = held.deadline.max(deadline);
                }
                _ => assert!(refused),
            }
        }
    }

    fn pass(&mut self, numbers: &mut Numbers) {
        self.now += Duration::from_secs(numbers.below(12));
        // The timer may come late.
        if numbers.one_in(3) {
            return;
        }
        let rules = self.rules();
        self.partition.expire(&rules, &mut self.loads);
        for at in 0..self.events.len() {
            match self.events[at] {
                Event::Leased(held) if held.deadline <= self.now => {
                    self.come_back(at, held.deliveries, 0);
                }
                Event::Delayed(returned) if returned.not_before <= rules.unix_ns => {
                    self.events[at] = Event::Waiting(returned.deliveries);
                }
                _ => {}
            }
        }
        let (lease, due) = self.partition.next_expiry();
        for event in &self.events {
            match event {
                Event::Leased(held) => assert!(lease.is_some_and(|at| at <= held.deadline)),
                Event::Delayed(returned) => {
                    assert!(due.is_some_and(|at| at <= returned.not_before));
                }
                _ => {}
            }
        }
    }

    fn gone(&mut self, numbers: &mut Numbers) {
        let member = MemberId(1 + u128::from(numbers.below(4)));
        let counted = numbers.one_in(2);
        let rules = self.rules();
        self.partition
            .member_gone(member, counted, &rules, &mut self.loads);
        for at in 0..self.events.len() {
            match self.events[at] {
                Event::Leased(held) if held.member == member && counted => {
                    self.come_back(at, held.deliveries, 0);
                }
                Event::Leased(held) if held.member == member => {
                    self.events[at] = Event::Waiting(held.deliveries - 1);
                }
                _ => {}
            }
        }
    }

    fn lose(&mut self, numbers: &mut Numbers) {
        let end = numbers.below(self.events.len() as u64 / 2 + 1);
        self.partition.lost(Offset(0), Offset(end), &mut self.loads);
        // What a member has settled may still be undone, and is lost again then.
        let kept = |at: usize, events: &[Event]| at >= end as usize || events[at] == Event::Settled;
        let events = &self.events;
        self.gathered.retain(|(at, _)| kept(*at, events));
        self.under_way.retain(|(at, _)| kept(*at, events));
        self.events[..end as usize].fill(Event::Settled);
    }

    fn record(&mut self, numbers: &mut Numbers) {
        let Some((records, changes)) = self.changes.take() else {
            self.changes = self.partition.take_changes(whose());
            self.under_way = std::mem::take(&mut self.gathered);
            return;
        };
        if numbers.one_in(4) {
            let rules = self.rules();
            let durable = self.entry.settled.clone();
            self.partition
                .not_recorded(changes, &durable, &rules, &mut self.loads);
            for (at, held) in std::mem::take(&mut self.under_way) {
                match self.now < held.deadline {
                    true => self.events[at] = Event::Leased(held),
                    false => self.come_back(at, held.deliveries, 0),
                }
            }
            return;
        }
        self.partition.recorded(changes);
        self.under_way.clear();
        for record in records {
            self.apply(record);
        }
    }

    fn apply(&mut self, record: Record) {
        match record {
            Record::Settled(record) => self.entry.apply_settled(record),
            Record::Returned(record) => self.entry.apply_returned(&record),
            Record::Rejected(record) => {
                // A place is never taken twice.
                let before = self.dead_letters.insert(record.sequence, record.offset);
                assert_eq!(before.unwrap_or(record.offset), record.offset);
                self.entry.apply_rejected(record);
            }
            other => panic!("{other:?}"),
        }
    }

    fn write_dead_letter(&mut self) {
        let Some((at, dead)) = self.partition.next_dead_letter() else {
            return;
        };
        // Durably recorded first.
        let recorded = &self.entry.rejected[&at];
        assert_eq!(Some(recorded.sequence), dead.sequence);
        self.partition.dead_letter_written(at);
        self.events[at.0 as usize] = Event::Settled;
    }

    /// The server is killed: what was recorded is what there is, and members
    /// say what they hold.
    fn restart(&mut self, numbers: &mut Numbers) {
        self.changes = None;
        self.under_way.clear();
        self.gathered.clear();
        self.loads = Loads::default();
        let before = std::mem::take(&mut self.events);
        self.partition = QueuePartition::new(&self.entry, Incarnation(1), Offset(0));
        for at in 0..before.len() {
            self.events.push(self.event(at as u64));
            let durable = self.entry.settled.contains(Offset(at as u64));
            assert_eq!(self.events[at] == Event::Settled, durable, "event {at}");
        }
        let rules = self.rules();
        for (first, end, leased) in std::mem::take(&mut self.given) {
            if numbers.one_in(2) {
                continue;
            }
            // Nobody waits for members with these.
            if numbers.one_in(3) {
                self.write_dead_letter();
            }
            let doing = Doing {
                member: leased.member,
                lease: leased.lease,
                how: SettleAs::Acknowledge,
                not_before: 0,
                reason: "",
            };
            let named = Waiting {
                first,
                end,
                deliveries: leased.deliveries,
            };
            let deadline = self.now + LEASE;
            let entry = self.entry.clone();
            let found = self.partition.joined(
                named,
                &doing,
                Some(deadline),
                &entry,
                &rules,
                &mut self.loads,
            );
            let within = |list: &[(Offset, Offset)], at: u64| {
                list.iter().any(|(a, b)| (a.0..b.0).contains(&at))
            };
            let came_back = |at: u64| {
                let returned = entry.returned.get(Offset(at));
                returned.map_or(0, |returned| returned.deliveries)
            };
            for at in first.0..end.0 {
                let told = [&found.held, &found.settled, &found.expired];
                let told = told.map(|list| within(list, at));
                assert_eq!(told.iter().filter(|is| **is).count(), 1, "event {at}");
                match self.events[at as usize] {
                    Event::Settled | Event::Dead(_) => assert!(told[1], "event {at}"),
                    // Of two who name it the later one has it.
                    Event::Leased(Leased { deliveries, .. }) if deliveries >= leased.deliveries => {
                        assert!(told[2], "event {at}");
                    }
                    Event::Leased(_) | Event::Waiting(_) if came_back(at) < leased.deliveries => {
                        assert!(told[0], "event {at}");
                        self.events[at as usize] = Event::Leased(Leased {
                            deadline,
                            bytes: 0,
                            ..leased
                        });
                    }
                    _ => assert!(told[2], "event {at}"),
                }
            }
            let adopted = Leased {
                deadline,
                bytes: 0,
                ..leased
            };
            self.given.push((first, end, adopted));
        }
    }
}

#[test]
fn it_is_the_model() {
    let seeds = match std::env::var("THALWEG_SEED") {
        Ok(seed) => {
            let seed: u64 = seed.parse().unwrap();
            seed..seed + 1
        }
        Err(_) => 1..400,
    };
    for seed in seeds {
        let mut numbers = Numbers(seed * 0x9e37_79b9);
        let mut model = Model::new();
        let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..150 {
                match numbers.below(20) {
                    0..3 => model
                        .events
                        .extend(vec![Event::Waiting(0); numbers.below(10) as usize]),
                    3..7 => model.give(&mut numbers),
                    7..12 => model.settle(&mut numbers),
                    12 => model.extend(&mut numbers),
                    13 => model.pass(&mut numbers),
                    14 if numbers.one_in(3) => model.gone(&mut numbers),
                    15 if numbers.one_in(5) => model.lose(&mut numbers),
                    16 if numbers.one_in(5) => model.restart(&mut numbers),
                    17 => model.write_dead_letter(),
                    _ => model.record(&mut numbers),
                }
                model.check();
            }
        }));
        assert!(run.is_ok(), "run again with THALWEG_SEED={seed}");
    }
}

/// Gives out everything that waits, as one range.
fn lease_all(partition: &mut QueuePartition, visible: Offset, loads: &mut Loads) -> Leased {
    let leased = Leased {
        member: MemberId(1),
        lease: LeaseId(1),
        deadline: LEASE,
        deliveries: 1,
        bytes: 1000,
    };
    while let Some(waiting) = partition.waiting(visible) {
        let deliveries = waiting.deliveries + 1;
        partition.lease(
            waiting,
            Leased {
                deliveries,
                ..leased
            },
            loads,
        );
    }
    leased
}

#[test]
fn ten_million_unsettled_events_are_ranges_and_bits() {
    let (mut loads, entry) = (Loads::default(), QueueEntry::default());
    let mut partition = QueuePartition::new(&entry, Incarnation(1), Offset(0));
    let visible = Offset(10_000_000);
    let leased = lease_all(&mut partition, visible, &mut loads);
    assert_eq!(partition.range_count(), 1);
    let rules = Rules {
        now: Duration::ZERO,
        unix_ns: UNIX,
        deliveries_max: 20,
        expired_too: false,
    };
    let doing = Doing {
        member: leased.member,
        lease: leased.lease,
        how: SettleAs::Acknowledge,
        not_before: 0,
        reason: "",
    };
    for at in 0..5_000_000 {
        let first = Offset(at * 2 + 1);
        let expired = partition.settle(first, first.plus(1), &doing, &rules, &mut loads);
        assert!(expired.is_empty());
        if at % 1000 == 0 {
            let (_, changes) = partition.take_changes(whose()).unwrap();
            partition.recorded(changes);
        }
    }
    // One range, and a bit an event: 1.3 MB, as `OffsetSet` is tested to take.
    assert_eq!(partition.range_count(), 1);
    assert_eq!(partition.counts().leased, 5_000_000);
    assert_eq!(loads.of(leased.member).events, 5_000_000);
    let over = Rules {
        now: LEASE,
        ..rules
    };
    assert!(partition.expire(&over, &mut loads));
    assert_eq!(partition.range_count(), 1);
    assert_eq!(partition.counts().returned, 5_000_000);
    lease_all(&mut partition, visible, &mut loads);
    assert_eq!(partition.range_count(), 1);
    // Returned one by one they are joined again over what is settled.
    for at in 0..100_000 {
        let first = Offset(at * 2);
        let back = Doing {
            how: SettleAs::Return,
            ..doing
        };
        partition.settle(first, first.plus(1), &back, &rules, &mut loads);
    }
    assert_eq!(partition.range_count(), 2);
}

#[test]
fn a_new_life_keeps_what_was_settled_of_what_survived() {
    let mut entry = QueueEntry {
        incarnation: Incarnation(1),
        settled: OffsetSet::until(Offset(5)),
        delivered: Offset(20),
        ..QueueEntry::default()
    };
    entry.settled.insert(Offset(7), Offset(15));
    let mut partition = QueuePartition::new(&entry, Incarnation(2), Offset(10));
    assert_eq!(partition.position(), Offset(5));
    let waiting = partition.waiting_within(Offset(0), Offset(12));
    let waiting: Vec<_> = waiting
        .iter()
        .map(|w| (w.first.0, w.end.0, w.deliveries))
        .collect();
    assert_eq!(waiting, [(5, 7, 1), (10, 12, 0)]);
    let (records, _) = partition.take_changes(whose()).unwrap();
    let mut again = QueueEntry {
        incarnation: Incarnation(2),
        ..QueueEntry::default()
    };
    for record in records {
        match record {
            Record::Settled(record) => again.apply_settled(record),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(again.settled.first_missing(), Offset(5));
    assert!(again.settled.contains(Offset(9)) && !again.settled.contains(Offset(10)));
}

#[test]
fn keys_take_turns() {
    let (mut loads, entry) = (Loads::default(), QueueEntry::default());
    let mut partition = QueuePartition::new(&entry, Incarnation(1), Offset(0));
    partition.order_by_key();
    let keys = [Some(1), Some(1), Some(2), None, Some(1), Some(2)];
    let rules = Rules {
        now: Duration::ZERO,
        unix_ns: UNIX,
        deliveries_max: 20,
        expired_too: false,
    };
    let give = |partition: &mut QueuePartition, loads: &mut Loads| {
        let mut given = Vec::new();
        while let Some(waiting) = partition.waiting(Offset(6)) {
            let at = waiting.first;
            if !partition.has_turn(at, waiting.deliveries, keys[at.0 as usize]) {
                continue;
            }
            let leased = Leased {
                member: MemberId(1),
                lease: LeaseId(1),
                deadline: LEASE,
                deliveries: waiting.deliveries + 1,
                bytes: 0,
            };
            let end = at.plus(1);
            partition.lease(Waiting { end, ..waiting }, leased, loads);
            given.push(at.0);
        }
        given
    };
    let doing = |how, not_before| Doing {
        member: MemberId(1),
        lease: LeaseId(1),
        how,
        not_before,
        reason: "",
    };
    assert_eq!(give(&mut partition, &mut loads), [0, 2, 3]);
    let later = doing(SettleAs::Return, UNIX + 1_000_000_000);
    partition.settle(Offset(0), Offset(1), &later, &rules, &mut loads);
    let done = doing(SettleAs::Acknowledge, 0);
    partition.settle(Offset(2), Offset(3), &done, &rules, &mut loads);
    // Key 1 waits for its delayed first event, key 2 goes on.
    assert_eq!(give(&mut partition, &mut loads), [5]);
    let rules = Rules {
        unix_ns: UNIX + 1_000_000_000,
        ..rules
    };
    partition.expire(&rules, &mut loads);
    assert_eq!(give(&mut partition, &mut loads), [0]);
    partition.settle(Offset(0), Offset(1), &done, &rules, &mut loads);
    assert_eq!(give(&mut partition, &mut loads), [1]);
    // Rejected: those behind it wait until it is a dead letter.
    let reject = doing(SettleAs::Reject, 0);
    partition.settle(Offset(1), Offset(2), &reject, &rules, &mut loads);
    assert!(give(&mut partition, &mut loads).is_empty());
    let (_, changes) = partition.take_changes(whose()).unwrap();
    partition.recorded(changes);
    partition.dead_letter_written(Offset(1));
    assert_eq!(give(&mut partition, &mut loads), [4]);
}

#[test]
fn who_waits_for_a_turn_of_his_key_was_not_delivered() {
    let (mut loads, mut entry) = (Loads::default(), QueueEntry::default());
    let mut partition = QueuePartition::new(&entry, Incarnation(1), Offset(0));
    partition.order_by_key();
    let leased = Leased {
        member: MemberId(1),
        lease: LeaseId(1),
        deadline: LEASE,
        deliveries: 1,
        bytes: 0,
    };
    let rules = Rules {
        now: Duration::ZERO,
        unix_ns: UNIX,
        deliveries_max: 1,
        expired_too: false,
    };
    for (at, key) in [(0, 1), (1, 1), (2, 2)] {
        if partition.has_turn(Offset(at), 0, Some(key)) {
            let waiting = Waiting {
                first: Offset(at),
                end: Offset(at + 1),
                deliveries: 0,
            };
            partition.lease(waiting, leased, &mut loads);
        }
    }
    let doing = Doing {
        member: MemberId(1),
        lease: LeaseId(1),
        how: SettleAs::Acknowledge,
        not_before: 0,
        reason: "",
    };
    partition.settle(Offset(2), Offset(3), &doing, &rules, &mut loads);
    let (records, _) = partition.take_changes(whose()).unwrap();
    for record in records {
        match record {
            Record::Settled(record) => {
                entry.incarnation = Incarnation(1);
                entry.apply_settled(record);
            }
            other => panic!("{other:?}"),
        }
    }
    // After a restart: the second event of key 1 is no dead letter.
    let mut again = QueuePartition::new(&entry, Incarnation(1), Offset(0));
    again.bury_spent(&rules);
    assert!(again.dead(Offset(0)).is_some() && again.dead(Offset(1)).is_none());
    let waiting = again.waiting(Offset(3)).expect("it waits");
    assert_eq!((waiting.first, waiting.deliveries), (Offset(1), 0));
}
