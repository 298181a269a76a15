//! Standing subscriptions: batches are pushed as they become visible, within
//! the credit that the consumer gave.

use super::scope::{self, Scope};
use crate::controller::Controller;
use crate::faults::Fault;
use crate::ids::{Asker, StorageId};
use crate::node::Node;
use crate::partition::time_search::TimeSearch;
use crate::partition::{Partition, Reading, storage_error};
use crate::refusal::{Refused, malformed, refuse};
use bytes::Bytes;
use log::{Found, ReadBatches, ReadToken, StorageError};
use net::{Lane, Message};
use wire::batch::{Batch, Stamp, Verify, gap_batch};
use wire::codec::Reader;
use wire::frame::FrameKind;
use wire::message::*;
use wire::record::{Gap, GapReason, Position};
use wire::{
    Codec, Durability, ErrorCode, ErrorReply, Incarnation, Offset, PartitionIndex, TopicId,
};

/// A standing subscription to one partition.
pub(crate) struct Subscription {
    pub storage: StorageId,
    pub topic: TopicId,
    pub partition: PartitionIndex,
    pub consumer: String,
    pub scope: Scope,
    /// The next event to be delivered.
    pub position: Position,
    /// What the consumer gave at first, and what is left of all that it gave;
    /// below 0 after a batch that was let out although it was larger.
    window: u64,
    credit: i64,
    inline_data: bool,
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
}

impl Subscription {
    /// Whether `bytes` may be delivered now. One batch that is larger than
    /// what is left goes out when half of the window is free, so that a
    /// consumer that gives credit back in halves of it never waits for ever.
    fn may_deliver(&self, bytes: u64) -> bool {
        let left = u64::try_from(self.credit).unwrap_or(0);
        left >= bytes || (left > 0 && left >= self.window / 2)
    }
}

impl Node {
    pub(super) fn open_subscription(
        &mut self,
        asker: Asker,
        topic: TopicId,
        subscribe: Subscribe,
        scope: Scope,
    ) -> Result<(), Refused> {
        self.refuse_if_closing()?;
        let storage = self.storage_of(asker, topic, subscribe.partition)?;
        if !subscribe.consumer.is_empty() {
            topic::check_consumer_name(&subscribe.consumer)
                .map_err(|error| refuse(ErrorCode::LimitExceeded, error.to_string()))?;
        }
        if scope.member.is_none() {
            self.refuse_shared_name(topic, &subscribe.consumer)?;
        }
        self.refuse_too_many(asker)?;
        let position = self.start_position(topic, storage, &subscribe)?;
        let Some(partition) = self.partitions.get_mut(&storage) else {
            return Err(refuse(ErrorCode::UnknownPartition, "the partition is gone"));
        };
        let search = match subscribe.start {
            Start::Time(time) => Some(TimeSearch::new(position.offset, partition.visible, time)),
            _ => None,
        };
        partition.subscriptions.insert(asker);
        let subscription = Subscription {
            storage,
            topic,
            partition: subscribe.partition,
            consumer: subscribe.consumer,
            scope,
            position,
            window: subscribe.credit,
            credit: i64::try_from(subscribe.credit).unwrap_or(i64::MAX),
            inline_data: subscribe.inline_data,
            reading: false,
            staged: None,
            search,
            told: position.offset,
            delivered_bytes: 0,
        };
        if subscription.search.is_none() {
            let watermarks = partition.watermarks(&partition.storage.state());
            self.reply_subscribed(asker, position, watermarks);
        }
        if let Some(session) = self.sessions.get_mut(&asker.link) {
            session.subscriptions.insert(asker.id, subscription);
        }
        self.advance_subscription(asker);
        Ok(())
    }

    /// A group's or queue's name is for its members.
    fn refuse_shared_name(&self, topic: TopicId, consumer: &str) -> Result<(), Refused> {
        let shared = self.shared.named(topic, consumer);
        let Some(shared) = shared.and_then(|id| self.shared.get(id)) else {
            return Ok(());
        };
        let kind = shared.record.kind;
        Err(refuse(
            ErrorCode::InvalidConsumer,
            format!("consumer {consumer:?} is a {kind}: its members alone read"),
        ))
    }

    /// Subscriptions and memberships of one connection are bounded together.
    pub(crate) fn refuse_too_many(&self, asker: Asker) -> Result<(), Refused> {
        let limit = self.ctx.options.limits.subscriptions_max;
        let session = self.sessions.get(&asker.link);
        if session.is_some_and(|s| s.subscriptions.len() + s.memberships.len() >= limit) {
            return Err(refuse(
                ErrorCode::LimitExceeded,
                format!("{limit} subscriptions and memberships stand already (subscriptions_max)"),
            ));
        }
        Ok(())
    }

    fn reply_subscribed(&mut self, asker: Asker, position: Position, watermarks: Watermarks) {
        let subscribed = Subscribed {
            position,
            watermarks,
        };
        self.reply(asker, subscribed.to_bytes());
    }

    fn start_position(
        &self,
        topic: TopicId,
        storage: StorageId,
        subscribe: &Subscribe,
    ) -> Result<Position, Refused> {
        let Some(partition) = self.partitions.get(&storage) else {
            return Err(refuse(ErrorCode::UnknownPartition, "the partition is gone"));
        };
        let state = partition.storage.state();
        let present = |offset| Position {
            incarnation: state.incarnation,
            offset,
        };
        // What is acknowledged and on its way to the disk counts: whoever opens
        // the name again behind it is not to get those events once more.
        let cursor = self.cursor(&(topic, subscribe.consumer.clone(), subscribe.partition));
        match (subscribe.start, cursor) {
            // Only a disk that lied can have lost what a cursor has passed.
            (Start::Cursor | Start::CursorOrLatest, Some(cursor))
                if cursor.incarnation == state.incarnation =>
            {
                Ok(present(cursor.offset.min(partition.visible)))
            }
            (Start::Cursor | Start::CursorOrLatest, Some(cursor)) => Ok(cursor),
            // A new name begins at the very first event: what of it is lost
            // comes as gaps.
            (Start::Cursor, None) => Ok(Position {
                incarnation: partition
                    .ended
                    .first()
                    .map_or(state.incarnation, |(life, _)| *life),
                offset: Offset(0),
            }),
            // A search by time begins there.
            (Start::Beginning, _) => {
                let lost = (topic, subscribe.partition);
                Ok(present(self.beginning(lost, state.first)))
            }
            (Start::Time(_), _) => Ok(present(state.first)),
            (Start::Latest, _) | (Start::CursorOrLatest, None) => Ok(present(partition.visible)),
            (Start::At(position), _) => partition.check_position(position),
        }
    }

    pub(crate) fn more_credit(&mut self, asker: Asker, bytes: u64) {
        // Credit for a subscription that has just ended is no mistake.
        if let Some(subscription) = self.subscription(asker) {
            let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
            subscription.credit = subscription.credit.saturating_add(bytes);
            self.advance_subscription(asker);
        }
    }

    fn subscription(&mut self, asker: Asker) -> Option<&mut Subscription> {
        let session = self.sessions.get_mut(&asker.link)?;
        session.subscriptions.get_mut(&asker.id)
    }

    /// Delivers and reads on, as far as that goes now.
    pub(crate) fn advance_subscription(&mut self, asker: Asker) {
        loop {
            let Some(session) = self.sessions.get_mut(&asker.link) else {
                return;
            };
            let crowded = session.crowded;
            let Some(subscription) = session.subscriptions.get_mut(&asker.id) else {
                return;
            };
            let Some(partition) = self.partitions.get_mut(&subscription.storage) else {
                return;
            };
            if crowded {
                return;
            }
            if let Some(staged) = &subscription.staged {
                let bytes = staged.batches.iter().map(|batch| batch.len() as u64).sum();
                if !subscription.may_deliver(bytes) {
                    return;
                }
                if let Some(staged) = subscription.staged.take() {
                    let watermarks = partition.watermarks(&partition.storage.state());
                    let message = subscription.deliver(asker.id, staged, watermarks);
                    self.send(asker.link, message);
                }
                continue;
            }
            if subscription.reading {
                return;
            }
            if let Some(search) = &subscription.search {
                if let Some(read) = search.next_read() {
                    subscription.reading = true;
                    let (storage, end) = (subscription.storage, read.end);
                    self.read_batches(storage, Reading::Subscription(asker, end), read);
                    return;
                }
                subscription.position.offset = search.found();
                subscription.search = None;
                let position = subscription.position;
                let watermarks = partition.watermarks(&partition.storage.state());
                self.reply_subscribed(asker, position, watermarks);
                continue;
            }
            let state = partition.storage.state();
            if subscription.position.incarnation < state.incarnation {
                self.cross_incarnation(asker, state.incarnation);
                continue;
            }
            let end = partition.visible;
            if subscription.position.offset >= end || !subscription.may_deliver(1) {
                return;
            }
            let credit = u64::try_from(subscription.credit).unwrap_or(0);
            let read = ReadBatches {
                from: subscription.position.offset,
                end,
                bytes_max: self.ctx.options.limits.read_bytes_max.min(credit).max(1),
                inline_data: subscription.inline_data,
            };
            let Some(found) = partition.storage.read_at_hand(&read) else {
                subscription.reading = true;
                let storage = subscription.storage;
                self.read_batches(storage, Reading::Subscription(asker, end), read);
                return;
            };
            let incarnation = state.incarnation;
            self.subscription_found(asker, incarnation, end, found);
        }
    }

    pub(crate) fn read_batches(&mut self, storage: StorageId, reading: Reading, read: ReadBatches) {
        let token = ReadToken(self.ctx.next_id());
        if let Some(partition) = self.partitions.get_mut(&storage) {
            partition.readings.insert(token, reading);
            partition.storage.read(token, read);
            self.ctx.dirty.partitions.insert(storage);
        }
    }

    pub(crate) fn subscription_read(
        &mut self,
        storage: StorageId,
        asker: Asker,
        end: Offset,
        found: Result<Found, StorageError>,
    ) {
        let incarnation = self
            .partitions
            .get(&storage)
            .map_or(Incarnation(0), |partition| {
                partition.storage.state().incarnation
            });
        let Some(subscription) = self.subscription(asker) else {
            return;
        };
        subscription.reading = false;
        if let Some(search) = &mut subscription.search {
            if let Err(error) = search.read(found) {
                self.end_subscription(asker, storage_error(&error));
                return;
            }
            self.advance_subscription(asker);
            return;
        }
        match found {
            Ok(found) => self.subscription_found(asker, incarnation, end, found),
            Err(error) => {
                self.end_subscription(asker, storage_error(&error));
                return;
            }
        }
        self.advance_subscription(asker);
    }

    /// Takes what a reading up to `end` found, in the storage's present life.
    fn subscription_found(
        &mut self,
        asker: Asker,
        incarnation: Incarnation,
        end: Offset,
        found: Found,
    ) {
        let Some(subscription) = self.subscription(asker) else {
            return;
        };
        match found {
            Found::Batches { batches, next } => subscription.stage(batches, next),
            Found::Gap(gap) => {
                let read = subscription.position;
                let gap = gap_for_reader(gap, read);
                let position = Position {
                    incarnation,
                    offset: gap.end,
                };
                self.deliver_gap(asker, gap, position);
            }
            // Only batches without events are there.
            Found::Nothing => subscription.position.offset = end,
        }
    }

    /// The position is in a life that has ended: says what was lost with it,
    /// and goes on in the next.
    fn cross_incarnation(&mut self, asker: Asker, present: Incarnation) {
        let Some(subscription) = self.subscription(asker) else {
            return;
        };
        let (position, storage) = (subscription.position, subscription.storage);
        let (topic, index) = (subscription.topic, subscription.partition);
        let Some(partition) = self.partitions.get(&storage) else {
            return;
        };
        let (gap, next) = self.lost_with_life(partition, topic, index, position, present);
        self.deliver_gap(asker, gap, next);
    }

    /// What a position of an ended life lost, and where it goes on.
    pub(crate) fn lost_with_life(
        &self,
        partition: &Partition,
        topic: TopicId,
        index: PartitionIndex,
        position: Position,
        present: Incarnation,
    ) -> (Gap, Position) {
        let later = partition
            .ended
            .iter()
            .find(|(life, _)| *life > position.incarnation);
        let ended = partition
            .ended
            .iter()
            .find(|(life, _)| *life == position.incarnation);
        let next = Position {
            incarnation: later.map_or(present, |(life, _)| *life),
            offset: ended.map_or(Offset(0), |(_, end)| position.offset.min(*end)),
        };
        let recorded = self
            .controller
            .table()
            .topic(topic)
            .and_then(|entry| entry.end_of_life(index, position.incarnation));
        let mut gap = recorded.unwrap_or(Gap {
            incarnation: position.incarnation,
            first: position.offset,
            end: position.offset,
            reason: match partition.durability {
                Durability::Memory => GapReason::MemoryLost,
                _ => GapReason::Damaged,
            },
            time: 0,
        });
        // After a power loss or damage its beginning says how much the next life kept,
        // also to who has read beyond it; otherwise nothing was.
        if !gap.keeps_what_came_before() {
            gap.first = gap.first.max(position.offset);
            gap.end = gap.end.max(gap.first);
        }
        (gap, next)
    }

    /// Tells a consumer what it will never see, and where it goes on.
    fn deliver_gap(&mut self, asker: Asker, gap: Gap, next: Position) {
        let planted = self.ctx.planted(Fault::NoGap);
        let Some(subscription) = self
            .sessions
            .get_mut(&asker.link)
            .and_then(|session| session.subscriptions.get_mut(&asker.id))
        else {
            return;
        };
        subscription.position = next;
        subscription.told = next.offset;
        if planted {
            return;
        }
        let Some(partition) = self.partitions.get(&subscription.storage) else {
            return;
        };
        let watermarks = partition.watermarks(&partition.storage.state());
        let batch = stamped_gap(subscription.topic, &gap, next.offset);
        let message = deliver(asker.id, next.incarnation, vec![batch], watermarks);
        self.send(asker.link, message);
    }

    /// Ends a subscription, telling its consumer why.
    pub(crate) fn end_subscription(&mut self, asker: Asker, error: ErrorReply) {
        let session = self.sessions.get_mut(&asker.link);
        let Some(subscription) = session.and_then(|s| s.subscriptions.remove(&asker.id)) else {
            return;
        };
        self.forget_subscription(asker, &subscription);
        if subscription.search.is_some() {
            self.refuse_request(asker, error);
            return;
        }
        let message = Message {
            lane: Lane::Bulk,
            ..Message::control(FrameKind::Ended, asker.id, error.to_bytes())
        };
        self.send(asker.link, message);
    }

    /// Nobody waits for the answer any more of a subscription whose beginning
    /// is being looked for.
    pub(crate) fn forget_search(&mut self, asker: Asker) {
        let session = self.sessions.get_mut(&asker.link);
        let Some(session) = session else {
            return;
        };
        let searching = session.subscriptions.get(&asker.id);
        if searching.is_some_and(|subscription| subscription.search.is_some())
            && let Some(subscription) = session.subscriptions.remove(&asker.id)
        {
            self.forget_subscription(asker, &subscription);
        }
    }

    pub(crate) fn forget_subscription(&mut self, asker: Asker, subscription: &Subscription) {
        if let Some(partition) = self.partitions.get_mut(&subscription.storage) {
            partition.subscriptions.remove(&asker);
        }
    }

    /// Ends everything that reads a partition.
    pub(crate) fn end_readers(&mut self, storage: StorageId, error: &ErrorReply) {
        let Some(partition) = self.partitions.get_mut(&storage) else {
            return;
        };
        let subscriptions = std::mem::take(&mut partition.subscriptions);
        let fetches = std::mem::take(&mut partition.fetches);
        for asker in subscriptions {
            self.end_subscription(asker, error.clone());
        }
        for asker in fetches {
            self.end_fetch(asker, error.clone());
        }
    }

    pub(crate) fn unsubscribe(
        &mut self,
        asker: Asker,
        from: &mut Reader<'_>,
    ) -> Result<(), Refused> {
        let Unsubscribe { subscription } = Unsubscribe::decode(from).map_err(malformed)?;
        let ended = Asker {
            link: asker.link,
            id: subscription,
        };
        let session = self.sessions.get_mut(&asker.link);
        if let Some(subscription) = session.and_then(|s| s.subscriptions.remove(&ended.id)) {
            self.forget_subscription(ended, &subscription);
        }
        // Behind the deliveries that were sent before.
        self.reply_in_bulk(asker, Vec::new(), Vec::new());
        Ok(())
    }
}

impl Subscription {
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
            self.staged = Some(Staged { batches, next });
        }
    }

    fn deliver(&mut self, id: u64, staged: Staged, mut watermarks: Watermarks) -> Message {
        if self.scope.key.is_some() {
            watermarks.committed = staged.next;
        }
        self.told = staged.next;
        let bytes: u64 = staged.batches.iter().map(|batch| batch.len() as u64).sum();
        self.credit = self.credit.saturating_sub_unsigned(bytes);
        self.delivered_bytes += bytes;
        self.position.offset = staged.next;
        deliver(id, self.position.incarnation, staged.batches, watermarks)
    }
}

impl Partition {
    /// A position that a client named, if there is such a place.
    pub fn check_position(&self, position: Position) -> Result<Position, Refused> {
        let state = self.storage.state();
        let present = state.incarnation;
        if position.incarnation > present {
            return Err(refuse(
                ErrorCode::WrongIncarnation,
                format!(
                    "incarnation {} is not known, {present} is the present one",
                    position.incarnation
                ),
            ));
        }
        let own = position.incarnation == Incarnation(0) || position.incarnation == present;
        if own && position.offset > self.visible {
            return Err(refuse(
                ErrorCode::OffsetOutOfRange,
                format!(
                    "offset {} is beyond the visible end {}",
                    position.offset, self.visible
                ),
            ));
        }
        Ok(Position {
            incarnation: if own { present } else { position.incarnation },
            ..position
        })
    }
}

fn deliver(
    id: u64,
    incarnation: Incarnation,
    batches: Vec<Bytes>,
    watermarks: Watermarks,
) -> Message {
    let head = Deliver {
        incarnation,
        batch_bytes: batches.iter().map(|batch| batch.len() as u64).collect(),
        watermarks,
    };
    Message {
        kind: FrameKind::Deliver,
        flags: 0,
        id,
        head: head.to_bytes().into(),
        payload: batches,
        lane: Lane::Bulk,
    }
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
pub(crate) fn stamped_gap(topic: TopicId, gap: &Gap, next: Offset) -> Bytes {
    let mut bytes = gap_batch(topic, gap).to_vec();
    let batch = Batch::read(bytes.as_slice(), Verify::Headers).expect("it was sealed just now");
    let stamp = Stamp {
        batch_bytes: batch.header.batch_bytes(),
        header_crc: batch.header_crc,
        base_offset: next,
        append_time: gap.time,
        leader_epoch: 1,
        ..Stamp::default()
    };
    stamp.write(&mut bytes);
    bytes.into()
}
