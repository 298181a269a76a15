//! Between the core and the threads that pull from a queue: events that have arrived
//! under leases, and what is to become of them.
//!
//! An event is *held* (`held.rs`) from its arrival until it is settled, its lease
//! is known to have expired, or it was given back. What is held is *unseen* until it is
//! handed out. Settlements of events that are held no more are refused here.

use super::QueueConsumerOptions;
use super::held::{Held, HeldEvents, Phase};
use super::settlement::{Gathered, How, SettleBatch, SettleFuture};
use super::work::Work;
use crate::error::ClientError;
use crate::feed::{Delivery, Feed, Guarded, Origin};
use crate::mailbox::{Command, Mailbox};
use crate::promise::{Pending, Promise};
use crate::topic_state::TopicState;
use bytes::Bytes;
use memory::Reservation;
use std::collections::VecDeque;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;
use wire::message::Lease;
use wire::record::Gap;
use wire::{EventId, Incarnation, LeaseId, PartitionIndex};

/// So many times while a prefetch is worked off the core is notified of what is settled.
const PORTIONS: usize = 4;
/// As often, with something else that is sent, what nobody hurries for.
const QUIET_PORTIONS: usize = 8;

/// A batch that has arrived; its headers are verified, its sections are not.
pub(crate) struct LeasedBatch {
    pub partition: PartitionIndex,
    pub incarnation: Incarnation,
    pub bytes: Bytes,
    /// What is leased of it: all of its events.
    pub leases: Vec<Lease>,
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
pub(crate) struct State {
    arrivals: VecDeque<LeasedBatch>,
    held: HeldEvents,
    work: Work,
    /// Requests of settlements that were not sent; the last one gathers more.
    gathered: VecDeque<Gathered>,
    /// Events that were settled since a request was sent.
    unsent: usize,
    /// The core knows that there are some to be sent.
    scheduled: bool,
    /// The core looks now and then whether there are some.
    watched: bool,
    /// There were some since it looked.
    has_settled: bool,
    /// The queue is ordered by key.
    is_ordered: bool,
    /// Events that are settled when their replies are stored.
    replying: usize,
    /// Whether the core is to hear when the last of them is.
    is_awaited: bool,
    /// Nothing is handed out any more, for the program is about to end.
    stopped: bool,
    /// Nothing is handed out or settled any more.
    closed: bool,
}

impl State {
    /// Drops batches of which nothing is held: a program that stays busy would
    /// have them pile up, for what was given back comes again.
    fn drop_arrivals(&mut self) {
        let held = &self.held;
        self.arrivals
            .retain(|batch| batch.leases.iter().any(|lease| held.has_any(lease)));
    }
}

/// The kind of consumer that is a queue's member: single events, under leases.
pub(crate) struct Leases;

/// What the handle of a queue's consumer and the core share.
pub(crate) type QueueFeed = Feed<Leases>;

impl Delivery for Leases {
    type Options = QueueConsumerOptions;
    type State = State;

    fn rejoin(key: u64) -> Command {
        Command::RejoinQueue(key)
    }

    /// What was settled is sent, so that there is news; a few settlements that
    /// nobody hurries for keep none back.
    fn about_to_wait(feed: &QueueFeed) {
        let mut state = feed.lock();
        let wake = feed.has_portion(&state) && !std::mem::replace(&mut state.scheduled, true);
        drop(state);
        if wake {
            feed.mailbox.send(Command::Settle(feed.key));
        }
    }

    fn is_stopped(state: &State) -> bool {
        state.stopped
    }
}

impl Feed<Leases> {
    pub fn of_leases(
        name: &str,
        topic: Arc<TopicState>,
        options: &QueueConsumerOptions,
        mailbox: Arc<Mailbox>,
        share: Reservation,
    ) -> Self {
        let origin = Origin {
            name,
            topic,
            mailbox,
            share,
            wants_inline_data: options.data.brings_inline_data(false),
        };
        Self::new(
            origin,
            options.without_callbacks(),
            State::default(),
            Leases,
        )
    }

    /// The time for callers, on the core's clock.
    fn clock(&self) -> Duration {
        self.mailbox.clock().now()
    }

    /// Bytes of unsettled events that the member may have.
    pub fn prefetch_bytes(&self) -> u64 {
        self.options.prefetch_bytes.min(self.share.bytes()).max(1)
    }

    /// For the puller: the next batch that has arrived.
    pub fn take(&self) -> Option<LeasedBatch> {
        self.lock().arrivals.pop_front()
    }

    /// For the puller: events are handed out now.
    pub fn see(&self) -> Seeing<'_> {
        Seeing {
            state: self.lock(),
            feed: self,
        }
    }

    /// For the puller: the program came, and there is nothing to be handed out.
    pub fn see_none(&self) {
        self.lock().work.find_none(|| self.clock());
    }

    /// What is to become of an event.
    pub fn settle(&self, id: EventId, lease: LeaseId, how: How<'_>) -> SettleFuture {
        let mut state = self.lock();
        let Some((held, is_seen)) = state.held.take(id, lease) else {
            drop(state);
            return SettleFuture::expired(id, lease, &self.title);
        };
        if is_seen {
            state.work.settled(1, || self.clock());
        }
        let batch = self.gather(&mut state, held, how);
        // The server is to have work while the program has.
        let portion = (self.options.prefetch_events as usize / PORTIONS).max(1);
        let is_due = how.is_urgent || (!how.is_quiet && state.unsent >= portion);
        let is_known = match is_due {
            true => std::mem::replace(&mut state.scheduled, true),
            false => state.scheduled || std::mem::replace(&mut state.watched, true),
        };
        drop(state);
        match is_due {
            _ if is_known => {}
            true => self.mailbox.send_settlements(self.key),
            false => self.mailbox.send(Command::WatchSettlements(self.key)),
        }
        SettleFuture::new(batch, id, lease)
    }

    /// Whether the member has so much before it that it misses nothing if what
    /// it settles is heard of a little later. In a queue that is ordered by key
    /// each settlement may let go the next event.
    pub fn has_plenty(&self) -> bool {
        let state = self.lock();
        !state.is_ordered && state.held.len() < self.options.prefetch_events as usize / 2
    }

    /// For the core: whether the queue is ordered by key, as the server says.
    pub fn set_ordered(&self, is_ordered: bool) {
        self.lock().is_ordered = is_ordered;
    }

    /// An event's reply is on its way: it will be settled, and a consumer that
    /// closes waits for it.
    pub fn begin_reply(&self) {
        self.lock().replying += 1;
    }

    /// Begins to wait for all that was settled to be durable.
    pub fn begin_flush(&self, timeout: Duration) -> Pending<()> {
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
            if let Some(held) = state.held.take_unseen(id) {
                self.gather(&mut state, held, how);
            }
        }
        let wake = !state.gathered.is_empty() && !std::mem::replace(&mut state.scheduled, true);
        drop(state);
        if wake {
            self.mailbox.send(Command::Settle(self.key));
        }
    }

    /// Adds what was held to the settlements that are to be sent.
    fn gather(&self, state: &mut State, lease: Lease, how: How<'_>) -> Arc<SettleBatch> {
        if state.gathered.back().is_none_or(|last| last.is_full(&how)) {
            state.gathered.push_back(Gathered::new(
                &self.mailbox,
                &self.topic,
                (self.key, &self.title),
            ));
        }
        state.unsent += (lease.end.0 - lease.first.0) as usize;
        state.has_settled = true;
        let last = state.gathered.back_mut();
        let last = last.expect("pushed if it was not there");
        last.push(lease, how);
        last.batch.clone()
    }

    /// Whether what was settled is to go with whatever is sent: somebody hurries
    /// for it, or there is so much of it that the server would want for space.
    fn has_portion(&self, state: &State) -> bool {
        let portion = (self.options.prefetch_events as usize / QUIET_PORTIONS).max(1);
        state.unsent >= portion || state.gathered.iter().any(|one| !one.is_quiet)
    }

    /// For the core: whether what was settled goes with what is sent now; if
    /// not it goes with something later, or by itself after a while.
    pub fn goes_along(&self) -> bool {
        self.has_portion(&self.lock())
    }

    /// For the core: the next request of settlements, joined into ranges.
    pub fn take_gathered(&self, now: Duration) -> Option<Gathered> {
        let mut state = self.lock();
        let Some(mut gathered) = state.gathered.pop_front() else {
            state.scheduled = false;
            return None;
        };
        state.unsent = 0;
        gathered.worked_us = state.work.take(now);
        drop(state);
        gathered.batch.note_sent();
        gathered.join();
        Some(gathered)
    }

    /// For the core: whether it is to look again at what nobody hurries for,
    /// as there was something since it did.
    pub fn is_watched(&self) -> bool {
        let mut state = self.lock();
        state.watched = std::mem::take(&mut state.has_settled);
        state.watched
    }

    /// For the core: whether somebody waits for all that was settled to be durable.
    pub fn set_awaited(&self, is_awaited: bool) {
        self.lock().is_awaited = is_awaited;
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
            let seen = state.held.insert(lease, until);
            state.work.settled(seen, || self.clock());
        }
        state.arrivals.extend(batches);
        drop(state);
        self.join_gaps(gaps);
        self.notify();
    }

    /// For the core: all that is held or waits to be settled, as ranges.
    pub fn held(&self) -> Vec<Lease> {
        let state = self.lock();
        let mut leases = state.held.leases(|_, _| true);
        let gathered = state.gathered.iter();
        leases.extend(gathered.flat_map(|one| one.settlements.iter().map(|one| one.lease)));
        leases
    }

    /// For the core: these leases are the member's no more, or need nothing any more.
    pub fn forget(&self, leases: &[Lease]) {
        let mut state = self.lock();
        for lease in leases {
            let seen = state.held.forget(lease);
            state.work.settled(seen, || self.clock());
        }
    }

    /// For the core: these leases last until then now.
    pub fn extended(&self, leases: &[Lease], until: Duration) {
        let mut state = self.lock();
        for lease in leases {
            state.held.extend(lease, until);
        }
    }

    /// For the core: looks after leases, a third of a lease before their ends
    /// and earlier. What the program did not look at by then is given back:
    /// it waits for somebody else, and does not count as delivered.
    pub fn look_after(&self, now: Duration, lease: Duration) -> Due {
        let mut state = self.lock();
        let left = |until: Duration| until.saturating_sub(now);
        let is_unseen = |until, phase| phase == Phase::Unseen && left(until) <= lease / 3;
        let is_handled = |until, phase| phase == Phase::Seen && left(until) <= lease * 2 / 3;
        let due = Due {
            is_busy: !state.held.is_empty(),
            extend: match self.options.renew {
                true => state.held.leases(is_handled),
                false => Vec::new(),
            },
        };
        let give_back = state.held.leases(is_unseen);
        if !give_back.is_empty() {
            self.give_back(&mut state, give_back);
            state.drop_arrivals();
        }
        due
    }

    fn give_back(&self, state: &mut State, leases: Vec<Lease>) {
        for lease in leases {
            state.held.forget(&lease);
            self.gather(state, lease, How::give_back());
        }
    }

    /// For the core: the member is a new one, or none. What was held is gone,
    /// and what waits to be settled will not be.
    pub fn lose_all(&self) {
        let mut state = self.lock();
        state.held = HeldEvents::default();
        state.work = Work::default();
        state.arrivals.clear();
        let gathered = std::mem::take(&mut state.gathered);
        drop(state);
        for one in gathered {
            let leases = one.settlements.iter().map(|one| one.lease);
            one.batch.resolve(Ok(leases.collect()));
        }
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

    fn give_back_unseen(&self, state: &mut State) {
        state.arrivals.clear();
        let unseen = state.held.leases(|_, phase| phase == Phase::Unseen);
        self.give_back(state, unseen);
    }

    /// Nothing is handed out from now on; what was not is given back.
    pub fn close(&self) {
        let mut state = self.lock();
        if std::mem::replace(&mut state.closed, true) {
            return;
        }
        self.give_back_unseen(&mut state);
        state.fail(ClientError::Closed);
        drop(state);
        self.notify();
    }

    /// The lease of an event that is held, as one of its own.
    pub fn lease_of(&self, id: EventId, lease: LeaseId) -> Option<Lease> {
        self.lock().held.lease_of(id, lease)
    }
}

/// While it lives, events are handed out.
pub(crate) struct Seeing<'a> {
    state: MutexGuard<'a, Guarded<State>>,
    feed: &'a QueueFeed,
}

impl Seeing<'_> {
    /// The event is handed out now. `None` if it is not to be: it is not held
    /// any more, or the same event came again, under another lease, and was
    /// taken from the batch that came first.
    #[inline]
    pub fn see(&mut self, id: EventId) -> Option<Held> {
        let state = &mut **self.state;
        if state.closed || state.stopped {
            return None;
        }
        let held = state.held.see(id)?;
        state.work.take_in_hand(|| self.feed.clock());
        Some(held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Offset;

    #[test]
    fn batches_of_which_nothing_is_held_do_not_pile_up() {
        let mut state = State::default();
        for lease in 1..=100 {
            // The same three events, under another lease each time.
            let three = Lease {
                partition: PartitionIndex(0),
                incarnation: Incarnation(1),
                first: Offset(0),
                end: Offset(3),
                lease: LeaseId(lease),
                deliveries: 1,
            };
            state.held.insert(&three, Duration::ZERO);
            state.arrivals.push_back(LeasedBatch {
                partition: three.partition,
                incarnation: three.incarnation,
                bytes: Bytes::new(),
                leases: vec![three],
            });
            let second = EventId {
                partition: three.partition,
                incarnation: three.incarnation,
                offset: Offset(1),
            };
            state.held.take_unseen(second);
            state.drop_arrivals();
            assert_eq!(state.arrivals.len(), 1);
        }
        state.held = HeldEvents::default();
        state.drop_arrivals();
        assert!(state.arrivals.is_empty());
    }
}
