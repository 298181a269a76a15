//! Between the core and whoever pulls from a queue: events that have arrived
//! under leases, and what is to become of them.
//!
//! An event is *held* from its arrival until it is settled, its lease is known
//! to have expired, or it was given back. What is held is *unseen* until it is
//! handed out. Settlements of events that are held no more are refused here.

use super::QueueConsumerOptions;
use super::settlement::{SettleBatch, SettleFuture};
use crate::error::ClientError;
use crate::mailbox::{Command, Mailbox};
use crate::options::DataMode;
use crate::promise::{Pending, Promise};
use crate::topic_handle::TopicState;
use crate::visits::Visits;
use crate::watch::call_back;
use bytes::Bytes;
use memory::{Deadline, Reservation, Signal};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use wire::message::{Lease, SettleAs, Settlement};
use wire::record::Gap;
use wire::{EventId, Incarnation, LeaseId, Offset, PartitionIndex};

/// The most of a reason that travels.
const REASON_BYTES_MAX: usize = 1024;
/// A request is closed at so many bytes of settlements: it is to fit in a head.
const REQUEST_BYTES_MAX: usize = 256 << 10;
/// What a settlement takes of it, apart from its reason.
const SETTLEMENT_BYTES: usize = 64;

/// A batch that has arrived; its headers are verified, its sections are not.
pub(crate) struct LeasedBatch {
    pub partition: PartitionIndex,
    pub incarnation: Incarnation,
    pub bytes: Bytes,
    /// What is leased of it: all of its events.
    pub leases: Vec<Lease>,
}

/// An event that is this member's, under a lease.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Held {
    pub lease: LeaseId,
    pub deliveries: u32,
    /// When the lease ends, on the core's clock.
    until: Duration,
    /// Whether it was handed out.
    is_seen: bool,
}

/// Settlements that go in one request.
pub(crate) struct Gathered {
    pub settlements: Vec<Settlement>,
    pub batch: Arc<SettleBatch>,
    /// Whether nobody hurries for it to be durable.
    pub is_quiet: bool,
    /// How long the program had events in hand since the request before.
    pub worked_us: u32,
    bytes: usize,
}

/// What is to be done with leases that come to their end.
#[derive(Default)]
pub(crate) struct Due {
    /// Of events that are handled: to be extended.
    pub extend: Vec<Lease>,
    /// Whether there is something to look after.
    pub is_busy: bool,
}

#[derive(Default)]
struct State {
    arrivals: VecDeque<LeasedBatch>,
    gaps: Vec<(PartitionIndex, Gap)>,
    held: BTreeMap<EventId, Held>,
    work: Work,
    /// Requests of settlements that were not sent; the last one gathers more.
    gathered: VecDeque<Gathered>,
    /// The core knows that there are some.
    scheduled: bool,
    /// The core knows that there are some that may wait a little.
    quietly: bool,
    /// Events that are settled when their replies are stored.
    replying: usize,
    /// Whether the core is to hear when the last of them is.
    is_awaited: bool,
    /// Nothing is handed out any more, for the program is about to end.
    stopped: bool,
    /// Nothing is handed out or settled any more.
    closed: bool,
    /// Nothing will come any more.
    failure: Option<ClientError>,
    /// Counts up with everything that a waiting puller should look at.
    news: u64,
}

impl State {
    /// Drops batches of which nothing is held: a program that stays busy would
    /// have them pile up, for what was given back comes again.
    fn drop_arrivals(&mut self) {
        let held = &self.held;
        let is_held = |lease: &Lease| {
            let at = |offset| EventId {
                partition: lease.partition,
                incarnation: lease.incarnation,
                offset,
            };
            let mut events = held.range(at(lease.first)..at(lease.end));
            events.any(|(_, held)| held.lease == lease.lease)
        };
        self.arrivals
            .retain(|batch| batch.leases.iter().any(is_held));
    }
}

/// How long the program has had events in hand.
#[derive(Debug, Default)]
struct Work {
    /// Events that were handed out and are held.
    in_hand: usize,
    /// Since when there are any, as far as it was not told.
    since: Duration,
    /// What was not told.
    worked: Duration,
}

impl Work {
    fn take_in_hand(&mut self, clock: impl Fn() -> Duration) {
        if self.in_hand == 0 {
            self.since = clock();
        }
        self.in_hand += 1;
    }

    fn let_go(&mut self, clock: impl Fn() -> Duration) {
        self.in_hand -= 1;
        if self.in_hand == 0 {
            self.worked += clock().saturating_sub(self.since);
        }
    }

    /// Tells it, in microseconds, and begins anew.
    fn take(&mut self, now: Duration) -> u32 {
        let mut worked = std::mem::take(&mut self.worked);
        if self.in_hand > 0 {
            worked += now.saturating_sub(self.since);
            self.since = self.since.max(now);
        }
        u32::try_from(worked.as_micros()).unwrap_or(u32::MAX)
    }
}

type OnReady = Arc<dyn Fn() + Send + Sync>;

/// What a queue's consumer and the core share.
pub(crate) struct QueueShared {
    /// Names it to the core.
    pub key: u64,
    pub name: String,
    pub topic: Arc<TopicState>,
    pub options: QueueConsumerOptions,
    pub mailbox: Arc<Mailbox>,
    /// The consumer and its topic, for errors.
    pub title: Arc<str>,
    /// A part of the driver's memory, held for as long as the consumer lives.
    share: Reservation,
    /// Guards what has arrived and what is held; held for a push or a pop.
    /// `arrived` is told whenever `news` has changed.
    state: Mutex<State>,
    arrived: Signal,
    on_ready: Mutex<Option<OnReady>>,
    pub visits: Visits,
}

impl QueueShared {
    pub fn new(
        name: &str,
        topic: Arc<TopicState>,
        options: QueueConsumerOptions,
        mailbox: Arc<Mailbox>,
        share: Reservation,
    ) -> Self {
        Self {
            key: mailbox.next_key(),
            title: format!("consumer {name} of {}", topic.name).into(),
            name: name.to_owned(),
            topic,
            options,
            mailbox,
            share,
            state: Mutex::default(),
            arrived: Signal::new(),
            on_ready: Mutex::default(),
            visits: Visits::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics here")
    }

    /// The time for callers, on the core's clock.
    fn clock(&self) -> Duration {
        self.mailbox.clock().now()
    }

    /// Bytes of unsettled events that the member may have.
    pub fn prefetch_bytes(&self) -> u64 {
        self.options.prefetch_bytes.min(self.share.bytes()).max(1)
    }

    /// Whether batches bring their inline data along.
    pub fn wants_inline_data(&self) -> bool {
        matches!(self.options.data, DataMode::All)
    }

    /// Tells whoever waits that there is something to look at.
    pub fn notify(&self) {
        self.lock().news += 1;
        self.arrived.tell();
        self.mailbox.nudge();
        let on_ready = self.on_ready.lock().expect("no holder panics here").clone();
        if let Some(on_ready) = on_ready {
            call_back(move || on_ready());
        }
    }

    pub fn set_on_ready(&self, on_ready: OnReady) {
        *self.on_ready.lock().expect("no holder panics here") = Some(on_ready);
    }

    /// The count of news, to be given to [`QueueShared::wait`].
    pub fn news(&self) -> u64 {
        self.lock().news
    }

    /// Waits for news after `seen`; false when `deadline` has passed.
    pub fn wait(&self, seen: u64, deadline: Deadline) -> bool {
        self.visits.stay(|| self.wait_here(seen, deadline))
    }

    fn wait_here(&self, seen: u64, deadline: Deadline) -> bool {
        let driven = self.mailbox.drive(deadline, || self.lock().news != seen);
        if let Some(done) = driven {
            return done;
        }
        let mut state = self.lock();
        while state.news == seen {
            state = match self.arrived.wait(state, deadline) {
                Ok(state) => state,
                Err(_) => return false,
            };
        }
        true
    }

    /// For the puller: the program came for events. Fails once after it was
    /// away for too long, and from then on if nothing can come any more.
    pub fn visit(&self) -> Result<(), ClientError> {
        let Some(absence) = self.visits.visit() else {
            return Ok(());
        };
        self.mailbox.send(Command::RejoinQueue(self.key));
        Err(absence)
    }

    /// For the puller: why nothing more comes, if that is so.
    pub fn failure(&self) -> Option<ClientError> {
        self.lock().failure.clone()
    }

    /// For the puller: the next batch that has arrived.
    pub fn take(&self) -> Option<LeasedBatch> {
        self.lock().arrivals.pop_front()
    }

    pub fn take_gaps(&self) -> Vec<(PartitionIndex, Gap)> {
        std::mem::take(&mut self.lock().gaps)
    }

    /// For the puller: the event is handed out now. `None` if it is not to be:
    /// it is not held any more.
    pub fn see(&self, id: EventId) -> Option<Held> {
        let mut state = self.lock();
        if state.closed || state.stopped {
            return None;
        }
        let held = state.held.get_mut(&id)?;
        if held.is_seen {
            // The same event came again, under another lease, and was taken
            // from the batch that came first.
            return None;
        }
        held.is_seen = true;
        let held = *held;
        state.work.take_in_hand(|| self.clock());
        Some(held)
    }

    /// What is to become of an event.
    pub fn settle(&self, id: EventId, lease: LeaseId, how: How<'_>) -> SettleFuture {
        let mut state = self.lock();
        let is_held = state.held.get(&id).is_some_and(|held| held.lease == lease);
        if !is_held {
            drop(state);
            return SettleFuture::expired(id, lease, self.title.clone());
        }
        let batch = self.gather(&mut state, id, how);
        let is_known = match how.is_quiet {
            true => state.scheduled || std::mem::replace(&mut state.quietly, true),
            false => std::mem::replace(&mut state.scheduled, true),
        };
        drop(state);
        if !is_known {
            self.mailbox.send(match how.is_quiet {
                true => Command::SettleQuietly(self.key),
                false => Command::Settle(self.key),
            });
        }
        SettleFuture::new(batch, id, lease, self.title.clone())
    }

    /// Whether the member has so much before it that it misses nothing if what
    /// it settles is heard of a little later.
    pub fn has_plenty(&self) -> bool {
        self.lock().held.len() < self.options.prefetch_events as usize / 2
    }

    /// An event's reply is on its way: it will be settled, and a consumer that
    /// closes waits for it.
    pub fn begin_reply(&self) {
        self.lock().replying += 1;
    }

    /// Begins to wait for all that was settled to be durable.
    pub fn begin_flush(&self, timeout: Duration) -> Pending<()> {
        self.lock().is_awaited = true;
        let promise = Promise::new(&self.mailbox);
        self.mailbox.send(Command::FlushQueue {
            queue: self.key,
            promise: promise.clone(),
        });
        let what = format!("the settlements of {}", self.title);
        Pending::new(promise, what, timeout, |_| Ok(()))
    }

    /// What became of a reply is known, and the event settled.
    pub fn end_reply(&self) {
        let mut state = self.lock();
        state.replying -= 1;
        let wake = (state.closed || state.is_awaited) && state.replying == 0;
        drop(state);
        if wake {
            self.mailbox.send(Command::Settle(self.key));
        }
    }

    /// For the puller: events that cannot be handed out.
    pub fn settle_unseen(&self, ids: impl Iterator<Item = EventId>, how: How<'_>) {
        let mut state = self.lock();
        for id in ids {
            if state.held.get(&id).is_some_and(|held| !held.is_seen) {
                self.gather(&mut state, id, how);
            }
        }
        let wake = !state.gathered.is_empty() && !std::mem::replace(&mut state.scheduled, true);
        drop(state);
        if wake {
            self.mailbox.send(Command::Settle(self.key));
        }
    }

    /// Moves a held event to the settlements that are to be sent.
    fn gather(&self, state: &mut State, id: EventId, how: How<'_>) -> Arc<SettleBatch> {
        let held = state.held.remove(&id).expect("looked up by the caller");
        if held.is_seen {
            state.work.let_go(|| self.clock());
        }
        let lease = one(id, &held);
        let reason = clip(how.reason);
        let bytes = SETTLEMENT_BYTES + reason.len();
        let is_full = |last: &Gathered| last.bytes + bytes > REQUEST_BYTES_MAX;
        if state.gathered.back().is_none_or(is_full) {
            state.gathered.push_back(Gathered {
                settlements: Vec::new(),
                batch: SettleBatch::new(&self.mailbox),
                is_quiet: true,
                worked_us: 0,
                bytes: 0,
            });
        }
        let gathered = state
            .gathered
            .back_mut()
            .expect("pushed if it was not there");
        let settlement = Settlement {
            lease,
            how: how.how,
            delay_ms: how.delay_ms,
            reason: reason.to_owned(),
        };
        gathered.is_quiet &= how.is_quiet;
        match gathered.settlements.last_mut() {
            Some(last) if continues(last, &settlement) => last.lease.end = lease.end,
            _ => {
                gathered.bytes += bytes;
                gathered.settlements.push(settlement);
            }
        }
        gathered.batch.clone()
    }

    /// For the core: the next request of settlements, joined into ranges.
    pub fn take_gathered(&self, now: Duration) -> Option<Gathered> {
        let mut state = self.lock();
        let Some(mut gathered) = state.gathered.pop_front() else {
            state.scheduled = false;
            state.quietly = false;
            return None;
        };
        gathered.worked_us = state.work.take(now);
        drop(state);
        join(&mut gathered.settlements);
        Some(gathered)
    }

    /// For the core: whether settlements wait to be sent, or are still to come.
    pub fn is_settling(&self) -> bool {
        let state = self.lock();
        !state.gathered.is_empty() || state.replying > 0
    }

    /// For the core: batches arrived, whose leases last until then.
    pub fn arrive(
        &self,
        batches: Vec<LeasedBatch>,
        gaps: Vec<(PartitionIndex, Gap)>,
        until: Duration,
    ) {
        let mut state = self.lock();
        if state.closed || state.stopped {
            // The server takes for its own again what is not named in the next Join.
            return;
        }
        for lease in batches.iter().flat_map(|batch| &batch.leases) {
            for offset in lease.first.0..lease.end.0 {
                let id = EventId {
                    partition: lease.partition,
                    incarnation: lease.incarnation,
                    offset: Offset(offset),
                };
                let held = Held {
                    lease: lease.lease,
                    deliveries: lease.deliveries,
                    until,
                    is_seen: false,
                };
                let before = state.held.insert(id, held);
                if before.is_some_and(|before| before.is_seen) {
                    state.work.let_go(|| self.clock());
                }
            }
        }
        state.arrivals.extend(batches);
        state.gaps.extend(gaps);
        drop(state);
        self.notify();
    }

    /// For the core: all that is held or waits to be settled, as ranges.
    pub fn held(&self) -> Vec<Lease> {
        let state = self.lock();
        let mut leases = Vec::new();
        for (id, held) in &state.held {
            push_joined(&mut leases, one(*id, held));
        }
        let gathered = state.gathered.iter();
        leases.extend(gathered.flat_map(|one| one.settlements.iter().map(|one| one.lease)));
        leases
    }

    /// For the core: these leases are the member's no more, or need nothing any more.
    pub fn forget(&self, leases: &[Lease]) {
        let mut state = self.lock();
        for lease in leases {
            let at = |offset| EventId {
                partition: lease.partition,
                incarnation: lease.incarnation,
                offset,
            };
            if lease.first >= lease.end {
                continue;
            }
            let ids: Vec<EventId> = state
                .held
                .range(at(lease.first)..at(lease.end))
                .filter(|(_, held)| held.lease == lease.lease)
                .map(|(id, _)| *id)
                .collect();
            for id in ids {
                let before = state.held.remove(&id);
                if before.is_some_and(|before| before.is_seen) {
                    state.work.let_go(|| self.clock());
                }
            }
        }
    }

    /// For the core: these leases last until then now.
    pub fn extended(&self, leases: &[Lease], until: Duration) {
        let mut state = self.lock();
        for lease in leases {
            let at = |offset| EventId {
                partition: lease.partition,
                incarnation: lease.incarnation,
                offset,
            };
            if lease.first >= lease.end {
                continue;
            }
            for (_, held) in state.held.range_mut(at(lease.first)..at(lease.end)) {
                if held.lease == lease.lease {
                    held.until = held.until.max(until);
                }
            }
        }
    }

    /// For the core: looks after leases, a third of a lease before their ends
    /// and earlier. What the program did not look at by then is given back:
    /// it waits for somebody else, and does not count as delivered.
    pub fn look_after(&self, now: Duration, lease: Duration) -> Due {
        let mut state = self.lock();
        let mut due = Due {
            is_busy: !state.held.is_empty(),
            ..Due::default()
        };
        let mut give_back = Vec::new();
        for (id, held) in &state.held {
            let left = held.until.saturating_sub(now);
            if !held.is_seen && left <= lease / 3 {
                give_back.push(*id);
            } else if held.is_seen && self.options.renew && left <= lease * 2 / 3 {
                push_joined(&mut due.extend, one(*id, held));
            }
        }
        if give_back.is_empty() {
            return due;
        }
        for id in give_back {
            self.gather(&mut state, id, How::give_back());
        }
        state.drop_arrivals();
        due
    }

    /// For the core: the member is a new one, or none. What was held is gone,
    /// and what waits to be settled will not be.
    pub fn lose_all(&self) {
        let mut state = self.lock();
        state.held.clear();
        state.work = Work::default();
        state.arrivals.clear();
        let gathered = std::mem::take(&mut state.gathered);
        drop(state);
        for one in gathered {
            let leases = one.settlements.iter().map(|one| one.lease);
            one.batch.resolve(Ok(leases.collect()));
        }
    }

    /// For the core: the program was away for too long, and the next pull says so.
    pub fn absent(&self, error: ClientError) {
        self.visits.miss(error);
        self.notify();
    }

    /// For the core: nothing will come any more.
    pub fn fail(&self, error: ClientError) {
        let mut state = self.lock();
        state.failure.get_or_insert(error);
        drop(state);
        self.notify();
    }

    /// Nothing is handed out from now on; what was not is given back, when the
    /// core hears of it. What was handed out can still be settled.
    pub fn stop(&self) {
        let mut state = self.lock();
        if std::mem::replace(&mut state.stopped, true) || state.closed {
            return;
        }
        self.give_back_unseen(&mut state);
        drop(state);
        self.notify();
    }

    /// Whether the program is to end, and nothing more comes.
    pub fn is_stopped(&self) -> bool {
        self.lock().stopped
    }

    fn give_back_unseen(&self, state: &mut State) {
        state.arrivals.clear();
        let unseen = state.held.iter().filter(|(_, held)| !held.is_seen);
        let unseen: Vec<EventId> = unseen.map(|(id, _)| *id).collect();
        for id in unseen {
            self.gather(state, id, How::give_back());
        }
    }

    /// Nothing is handed out from now on; what was not is given back.
    pub fn close(&self) {
        let mut state = self.lock();
        if std::mem::replace(&mut state.closed, true) {
            return;
        }
        self.give_back_unseen(&mut state);
        state.failure.get_or_insert(ClientError::Closed);
        drop(state);
        self.notify();
    }

    /// The lease of an event that is held, as one of its own.
    pub fn lease_of(&self, id: EventId, lease: LeaseId) -> Option<Lease> {
        let state = self.lock();
        let held = state.held.get(&id).filter(|held| held.lease == lease)?;
        Some(one(id, held))
    }
}

/// How an event is settled.
#[derive(Debug, Clone, Copy)]
pub(crate) struct How<'a> {
    pub how: SettleAs,
    pub delay_ms: u32,
    pub reason: &'a str,
    /// Whether nobody hurries for it.
    is_quiet: bool,
}

impl<'a> How<'a> {
    pub fn acknowledge() -> Self {
        Self::of(SettleAs::Acknowledge, "")
    }

    /// Handled, and nobody hurries for that to be durable.
    pub fn acknowledge_quietly() -> Self {
        Self {
            is_quiet: true,
            ..Self::acknowledge()
        }
    }

    pub fn give_back() -> Self {
        Self::of(SettleAs::GiveBack, "")
    }

    pub fn reject(reason: &'a str) -> Self {
        Self::of(SettleAs::Reject, reason)
    }

    pub fn return_after(delay: Duration, reason: &'a str) -> Self {
        Self {
            delay_ms: delay.as_millis().min(u128::from(u32::MAX)) as u32,
            ..Self::of(SettleAs::Return, reason)
        }
    }

    fn of(how: SettleAs, reason: &'a str) -> Self {
        Self {
            how,
            delay_ms: 0,
            reason,
            is_quiet: false,
        }
    }
}

/// The lease of one event.
fn one(id: EventId, held: &Held) -> Lease {
    Lease {
        partition: id.partition,
        incarnation: id.incarnation,
        first: id.offset,
        end: id.offset.plus(1),
        lease: held.lease,
        deliveries: held.deliveries,
    }
}

/// Adds a lease to others; to the last one, if it goes on where that ends.
fn push_joined(leases: &mut Vec<Lease>, lease: Lease) {
    match leases.last_mut() {
        Some(last) if is_next(last, &lease) => last.end = lease.end,
        _ => leases.push(lease),
    }
}

fn is_next(last: &Lease, next: &Lease) -> bool {
    last.end == next.first
        && Lease {
            first: last.first,
            end: last.end,
            ..*next
        } == *last
}

fn continues(last: &Settlement, next: &Settlement) -> bool {
    is_next(&last.lease, &next.lease)
        && last.how == next.how
        && last.delay_ms == next.delay_ms
        && is_same(&last.reason, &next.reason)
}

/// Whether two reasons are the same. Nearly all are empty, and to compare no
/// bytes by `memcmp` costs 300 ns on processors that read them under a mask:
/// their address is none, and the fault has to be suppressed.
fn is_same(last: &str, next: &str) -> bool {
    last.len() == next.len() && (last.is_empty() || last == next)
}

/// Puts settlements of different events in order, and joins what is one range.
fn join(settlements: &mut Vec<Settlement>) {
    let place = |one: &Settlement| (one.lease.partition, one.lease.incarnation, one.lease.first);
    if !settlements.is_sorted_by_key(place) {
        settlements.sort_by_key(place);
    }
    settlements.dedup_by(|next, last| {
        let joined = continues(last, next);
        if joined {
            last.lease.end = next.lease.end;
        }
        joined
    });
}

fn clip(reason: &str) -> &str {
    let mut end = reason.len().min(REASON_BYTES_MAX);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    &reason[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settlement(offset: u64, lease: u64, how: SettleAs) -> Settlement {
        let id = EventId {
            partition: PartitionIndex(0),
            incarnation: Incarnation(1),
            offset: Offset(offset),
        };
        let held = Held {
            lease: LeaseId(lease),
            deliveries: 1,
            until: Duration::ZERO,
            is_seen: true,
        };
        Settlement {
            lease: one(id, &held),
            how,
            delay_ms: 0,
            reason: String::new(),
        }
    }

    #[test]
    fn settlements_in_any_order_become_ranges_of_one_lease_and_one_kind() {
        use SettleAs::*;
        let mut settlements: Vec<_> = [4, 2, 3, 1, 0]
            .map(|at| settlement(at, 7, Acknowledge))
            .into();
        settlements.push(settlement(5, 8, Acknowledge));
        settlements.push(settlement(6, 8, Reject));
        settlements.push(settlement(8, 8, Reject));
        join(&mut settlements);
        let ranges: Vec<_> = settlements
            .iter()
            .map(|one| (one.lease.first.0, one.lease.end.0, one.how))
            .collect();
        assert_eq!(
            ranges,
            [
                (0, 5, Acknowledge),
                (5, 6, Acknowledge),
                (6, 7, Reject),
                (8, 9, Reject)
            ]
        );
    }

    #[test]
    fn batches_of_which_nothing_is_held_do_not_pile_up() {
        let mut state = State::default();
        for lease in 1..=100 {
            let id = |offset| EventId {
                partition: PartitionIndex(0),
                incarnation: Incarnation(1),
                offset: Offset(offset),
            };
            // The same three events, under another lease each time.
            let held = Held {
                lease: LeaseId(lease),
                deliveries: 1,
                until: Duration::ZERO,
                is_seen: false,
            };
            let first = one(id(0), &held);
            state.held.extend((0..3).map(|offset| (id(offset), held)));
            state.arrivals.push_back(LeasedBatch {
                partition: first.partition,
                incarnation: first.incarnation,
                bytes: Bytes::new(),
                leases: vec![Lease {
                    end: Offset(3),
                    ..first
                }],
            });
            state.held.remove(&id(1));
            state.drop_arrivals();
            assert_eq!(state.arrivals.len(), 1);
        }
        state.held.clear();
        state.drop_arrivals();
        assert!(state.arrivals.is_empty());
    }

    #[test]
    fn a_long_reason_is_cut_between_characters() {
        let reason = "é".repeat(600);
        assert_eq!(clip(&reason).len(), 1024);
        assert_eq!(clip("short"), "short");
    }
}
