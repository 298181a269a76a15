//! Standing subscriptions: batches are pushed as they become visible, within
//! the credit that the consumer gave.

use super::scope::{self, Scope};
use super::store::{Reading, Store, storage_error};
use super::time_search::TimeSearch;
use crate::answer::{Answer, Batches, Delivery};
use crate::ctx::Ctx;
use crate::effects::Effect;
use crate::faults::Fault;
use crate::ids::RequestId;
use bytes::Bytes;
use log::{Found, ReadBatches, StorageError};
use std::collections::BTreeMap;
use wire::batch::{Batch, Stamp, Verify, gap_batch};
use wire::message::*;
use wire::record::{Gap, Position};
use wire::{ErrorReply, Incarnation, Offset};

/// A standing subscription to one partition.
pub(crate) struct Subscription {
    pub consumer: String,
    pub scope: Scope,
    /// The next event to be delivered.
    pub position: Position,
    /// What the consumer gave at first, and what is left of all that it gave;
    /// below 0 after a batch that was let out although it was larger.
    window: u64,
    credit: i64,
    inline_data: bool,
    /// Whether it goes on at the last visible event, whenever it can deliver.
    latest: bool,
    /// Whether a reading is under way.
    reading: bool,
    /// What was read and did not fit the credit.
    staged: Option<Staged>,
    /// Where to begin is being looked for; the request is not answered yet.
    search: Option<TimeSearch>,
    /// How far the consumer knows that it has come.
    told: Offset,
    pub delivered_bytes: u64,
}

/// Batches that wait for credit.
struct Staged {
    batches: Vec<Bytes>,
    next: Offset,
    /// They were not delivered at once: there may be newer ones.
    have_waited: bool,
}

impl Subscription {
    /// Whether `bytes` may be delivered now. One batch that is larger than
    /// what is left goes out when half of the window is free, so that a
    /// consumer that gives credit back in halves of it never waits for ever.
    fn may_deliver(&self, bytes: u64) -> bool {
        let left = u64::try_from(self.credit).unwrap_or(0);
        left >= bytes || (left > 0 && left >= self.window / 2)
    }

    /// A subscription that begins at `position`, and at the time that `subscribe` may name.
    fn new(subscribe: Subscribe, scope: Scope, position: Position, store: &Store) -> Self {
        let search = match subscribe.start {
            Start::Time(time) => Some(TimeSearch::new(position.offset, store.visible, time)),
            _ => None,
        };
        Self {
            consumer: subscribe.consumer,
            scope,
            position,
            window: subscribe.credit,
            credit: i64::try_from(subscribe.credit).unwrap_or(i64::MAX),
            inline_data: subscribe.inline_data,
            latest: subscribe.latest.0,
            reading: false,
            staged: None,
            search,
            told: position.offset,
            delivered_bytes: 0,
        }
    }

    /// Delivers and reads on, as far as that goes now.
    fn advance(&mut self, caller: RequestId, store: &mut Store, ctx: &mut Ctx) {
        if ctx.paused.contains(caller.link) {
            if let Some(staged) = &mut self.staged {
                staged.have_waited = true;
            }
            return;
        }
        self.drop_outdated(store.visible);
        // Batches in memory are delivered without a read, and a pause begins behind the turn.
        let (turn, before) = (ctx.paces.turn(caller.link), self.delivered_bytes);
        loop {
            if self.delivered_bytes - before >= turn {
                return;
            }
            if let Some(staged) = &mut self.staged {
                let bytes = staged.batches.iter().map(|batch| batch.len() as u64).sum();
                staged.have_waited = true;
                if !self.may_deliver(bytes) {
                    return;
                }
                if let Some(staged) = self.staged.take() {
                    trace::passes!("delivered to a subscription, within its credit");
                    let events = self.deliver(staged, store.watermarks());
                    ctx.deliver(caller, Delivery::Events(events));
                }
                continue;
            }
            if self.reading {
                return;
            }
            if let Some(search) = &self.search {
                if let Some(read) = search.next_read() {
                    self.reading = true;
                    let reading = Reading::Subscription(caller, read.end);
                    store.read_batches(reading, read, ctx);
                    return;
                }
                self.position.offset = search.found();
                self.search = None;
                reply_subscribed(caller, self.position, store, ctx);
                continue;
            }
            let present = store.state().incarnation;
            if self.position.incarnation < present {
                // What was lost with the life that has ended; the next one goes on behind it.
                let (gap, next) = store.lost_with_life(self.position);
                self.deliver_gap(caller, gap, next, store, ctx);
                continue;
            }
            let end = store.visible;
            if self.position.offset >= end || !self.may_deliver(1) {
                return;
            }
            if self.latest {
                // Each offset below the end is of an event, or of a gap.
                let last = Offset(end.0 - 1);
                self.position.offset = self.position.offset.max(last);
            }
            let credit = u64::try_from(self.credit).unwrap_or(0);
            let limits = &ctx.options.limits;
            let bytes_max = limits.read_bytes_max.min(ctx.paces.portion(caller.link));
            let read = ReadBatches {
                from: self.position.offset,
                end,
                bytes_max: bytes_max.min(credit).max(1),
                inline_data: self.inline_data,
            };
            let Some(found) = store.storage.read_at_hand(&read) else {
                self.reading = true;
                store.read_batches(Reading::Subscription(caller, end), read, ctx);
                return;
            };
            self.found(caller, present, end, found, store, ctx);
        }
    }

    /// Where only the newest events are wanted, those that waited for credit are not delivered
    /// if there are newer ones now. Those that were just read are, or a reader whose events come
    /// from the disk would get none while others are appended.
    fn drop_outdated(&mut self, visible: Offset) {
        let is_outdated = |staged: &mut Staged| staged.have_waited && staged.next < visible;
        if self.latest {
            self.staged.take_if(is_outdated);
        }
    }

    /// Takes what a reading up to `end` found, in the storage's present life.
    fn found(
        &mut self,
        caller: RequestId,
        incarnation: Incarnation,
        end: Offset,
        found: Found,
        store: &Store,
        ctx: &mut Ctx,
    ) {
        match found {
            Found::Batches { batches, next } => self.stage(batches, next),
            Found::Gap(gap) => {
                let gap = gap_for_reader(gap, self.position);
                let position = Position {
                    incarnation,
                    offset: gap.end,
                };
                self.deliver_gap(caller, gap, position, store, ctx);
            }
            // Only batches without events are there.
            Found::Nothing => self.position.offset = end,
        }
    }

    /// Tells a consumer what it will never see, and where it goes on.
    fn deliver_gap(
        &mut self,
        caller: RequestId,
        gap: Gap,
        next: Position,
        store: &Store,
        ctx: &mut Ctx,
    ) {
        self.position = next;
        self.told = next.offset;
        if ctx.planted(Fault::NoGap) {
            return;
        }
        let batch = stamped_gap(store, &gap, next.offset);
        let gap = Batches {
            incarnation: next.incarnation,
            batches: vec![batch],
            watermarks: store.watermarks(),
        };
        ctx.deliver(caller, Delivery::Events(gap));
    }

    /// Takes what was read: what of it is wanted waits to be delivered.
    fn stage(&mut self, batches: Vec<Bytes>, next: Offset) {
        let batches = match &self.scope.key {
            Some(key) => scope::of_key(batches, key),
            None => batches,
        };
        // A reader of one key that gets nothing for long is told how far it is.
        let passed = next.0.saturating_sub(self.told.0) >= scope::PASSED_EVENTS_MAX;
        if batches.is_empty() && !passed {
            self.position.offset = next;
        } else {
            self.staged = Some(Staged {
                batches,
                next,
                have_waited: false,
            });
        }
    }

    fn deliver(&mut self, staged: Staged, mut watermarks: Watermarks) -> Batches {
        if self.scope.key.is_some() {
            watermarks.committed = staged.next;
        }
        self.told = staged.next;
        let bytes: u64 = staged.batches.iter().map(|batch| batch.len() as u64).sum();
        self.credit = self.credit.saturating_sub_unsigned(bytes);
        self.delivered_bytes += bytes;
        self.position.offset = staged.next;
        Batches {
            incarnation: self.position.incarnation,
            batches: staged.batches,
            watermarks,
        }
    }
}

/// The subscriptions of one partition, by the requests that opened them.
#[derive(Default)]
pub(crate) struct Subscriptions(BTreeMap<RequestId, Subscription>);

impl Subscriptions {
    pub fn get(&self, caller: RequestId) -> Option<&Subscription> {
        self.0.get(&caller)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&RequestId, &Subscription)> {
        self.0.iter()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Opens a subscription that begins at `position`, and answers the request for it as soon
    /// as it is known where that is.
    pub fn open(
        &mut self,
        caller: RequestId,
        (subscribe, scope): (Subscribe, Scope),
        position: Position,
        store: &mut Store,
        ctx: &mut Ctx,
    ) {
        let mut subscription = Subscription::new(subscribe, scope, position, store);
        if subscription.search.is_none() {
            reply_subscribed(caller, position, store, ctx);
        }
        subscription.advance(caller, store, ctx);
        self.0.insert(caller, subscription);
    }

    pub fn more_credit(&mut self, caller: RequestId, bytes: u64, store: &mut Store, ctx: &mut Ctx) {
        // Credit for a subscription that has just ended is no mistake.
        if let Some(subscription) = self.0.get_mut(&caller) {
            let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
            subscription.credit = subscription.credit.saturating_add(bytes);
            subscription.advance(caller, store, ctx);
        }
    }

    /// The connection takes deliveries again.
    pub fn advance(&mut self, caller: RequestId, store: &mut Store, ctx: &mut Ctx) {
        if let Some(subscription) = self.0.get_mut(&caller) {
            subscription.advance(caller, store, ctx);
        }
    }

    /// More of the partition is visible.
    pub fn advance_all(&mut self, store: &mut Store, ctx: &mut Ctx) {
        for (caller, subscription) in &mut self.0 {
            subscription.advance(*caller, store, ctx);
        }
    }

    /// What a subscription's reading up to `end` found.
    pub fn was_read(
        &mut self,
        caller: RequestId,
        end: Offset,
        found: Result<Found, StorageError>,
        store: &mut Store,
        ctx: &mut Ctx,
    ) {
        let Some(subscription) = self.0.get_mut(&caller) else {
            return;
        };
        subscription.reading = false;
        let taken = match (&mut subscription.search, found) {
            (Some(search), found) => search.read(found),
            (None, Ok(found)) => {
                let present = store.state().incarnation;
                subscription.found(caller, present, end, found, store, ctx);
                Ok(())
            }
            (None, Err(error)) => Err(error),
        };
        match taken {
            Ok(()) => subscription.advance(caller, store, ctx),
            Err(error) => self.end(caller, storage_error(&error), ctx),
        }
    }

    /// Ends a subscription, telling its consumer why.
    pub fn end(&mut self, caller: RequestId, error: ErrorReply, ctx: &mut Ctx) {
        let Some(subscription) = self.0.remove(&caller) else {
            return;
        };
        ctx.effects.push_back(Effect::SubscriptionEnded(caller));
        if subscription.search.is_some() {
            ctx.refuse(caller, error);
            return;
        }
        ctx.deliver(caller, Delivery::Ended(error));
    }

    pub fn end_all(&mut self, error: &ErrorReply, ctx: &mut Ctx) {
        while let Some((caller, _)) = self.0.first_key_value() {
            self.end(*caller, error.clone(), ctx);
        }
    }

    /// Nobody is there any more who subscribed.
    pub fn forget(&mut self, caller: RequestId) {
        self.0.remove(&caller);
    }

    /// Nobody waits for the answer any more of a subscription whose beginning
    /// is being looked for. Whether it was one, and is forgotten.
    pub fn forget_search(&mut self, caller: RequestId) -> bool {
        let searching = self.0.get(&caller);
        let searching = searching.is_some_and(|subscription| subscription.search.is_some());
        searching && self.0.remove(&caller).is_some()
    }
}

fn reply_subscribed(caller: RequestId, position: Position, store: &Store, ctx: &mut Ctx) {
    let subscribed = Subscribed {
        position,
        watermarks: store.watermarks(),
    };
    ctx.answer(caller, Answer::Subscribed(subscribed));
}

/// A storage's gap as a reader at `position` is told it: only what the reader
/// has not had. The storage names all that went at once, in the life that lost
/// it; the reader is in the present life, in which the offsets count as well.
pub(crate) fn gap_for_reader(gap: Gap, position: Position) -> Gap {
    let first = gap.first.max(position.offset);
    Gap {
        incarnation: position.incarnation,
        first,
        end: gap.end.max(first),
        ..gap
    }
}

/// A gap as a batch, stamped like any other that a consumer gets: with the
/// offset at which reading goes on, in the life that the message names.
pub(crate) fn stamped_gap(store: &Store, gap: &Gap, next: Offset) -> Bytes {
    let mut bytes = gap_batch(store.key.topic, gap).to_vec();
    let batch = Batch::read(bytes.as_slice(), Verify::Headers).expect("it was sealed just now");
    let stamp = Stamp {
        batch_bytes: batch.header.batch_bytes(),
        header_crc: batch.header_crc,
        base_offset: next,
        append_time: gap.time,
        leader_epoch: store.leader_epoch,
        ..Stamp::default()
    };
    stamp.write(&mut bytes);
    bytes.into()
}
