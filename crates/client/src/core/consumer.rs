//! Subscriptions of a consumer: opened, opened again from the first event
//! that did not arrive, given credit. Its cursors are in `cursors`.

use super::Timer;
use super::cursors::Cursors;
use super::wire_session::{Request, Route, Wire};
use crate::error::ClientError;
use crate::feed::{Arrival, ConsumerShared};
use crate::mailbox::Counters;
use crate::promise::{Promise, Reply};
use net::{Message, Received};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use wire::batch::{Batch, BatchKind, Verify};
use wire::codec::Codec;
use wire::frame::FrameKind;
use wire::message::{Credit, Deliver, Method, Start, Subscribe, Subscribed, Unsubscribe};
use wire::record::{Gap, Position};
use wire::{ErrorCode, ErrorReply, Offset, PartitionIndex, TopicId};

/// Waits before a subscription is opened again, when the server gave no hint.
const RETRY_AFTER_MIN: Duration = Duration::from_millis(50);
/// How long the server may take over a subscription.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(120);

/// The subscription to one partition.
struct Subscription {
    /// The request's id on the present connection, once it was sent.
    id: Option<u64>,
    start: Start,
    /// The first event that did not arrive, once that is known.
    next: Option<Position>,
    generation: u64,
    retry_at: Option<Duration>,
    /// Told when the subscription stands.
    promise: Option<Arc<Promise>>,
    stands: bool,
}

pub(super) struct ConsumerCore {
    shared: Arc<ConsumerShared>,
    subscriptions: BTreeMap<u32, Subscription>,
    /// Resolved when all subscriptions stand for the first time.
    promise: Option<Arc<Promise>>,
    open_deadline: Duration,
    pub cursors: Cursors,
}

impl ConsumerCore {
    pub fn new(
        wire: &mut Wire<'_>,
        shared: Arc<ConsumerShared>,
        timeout: Duration,
        promise: Arc<Promise>,
    ) -> Self {
        let open_deadline = wire.now().saturating_add(timeout);
        wire.context.arm(open_deadline, Timer::Consumer(shared.key));
        Self {
            cursors: Cursors::new(shared.clone()),
            shared,
            subscriptions: BTreeMap::new(),
            promise: Some(promise),
            open_deadline,
        }
    }

    pub fn notify(&self) {
        self.shared.notify();
    }

    fn arm(&self, wire: &mut Wire<'_>, at: Duration) {
        wire.context.arm(at, Timer::Consumer(self.shared.key));
    }

    /// Subscribes to these partitions.
    pub fn open(&mut self, wire: &mut Wire<'_>, partitions: &[u32], start: Start) {
        for partition in partitions {
            let subscription = Subscription {
                id: None,
                start,
                next: None,
                generation: 0,
                retry_at: None,
                promise: None,
                stands: false,
            };
            self.subscriptions.insert(*partition, subscription);
            // Known from now on, though nothing has arrived.
            self.shared.begin_subscription(*partition);
            self.subscribe(wire, *partition);
        }
        self.tell_if_open();
    }

    /// The topic may have more partitions: if all are to be read, the new ones
    /// are, from their first event on.
    pub fn grow(&mut self, wire: &mut Wire<'_>, topic: TopicId) {
        if self.shared.topic.id != topic || self.shared.options.partitions.is_some() {
            return;
        }
        let new: Vec<u32> = (0..self.shared.topic.partition_count())
            .filter(|partition| !self.subscriptions.contains_key(partition))
            .collect();
        self.open(wire, &new, Start::Cursor);
    }

    fn subscribe(&mut self, wire: &mut Wire<'_>, partition: u32) {
        let Some(subscription) = self.subscriptions.get_mut(&partition) else {
            return;
        };
        if !wire.is_up() || subscription.id.is_some() {
            return;
        }
        let (generation, credit) = self.shared.begin_subscription(partition);
        subscription.generation = generation;
        subscription.retry_at = None;
        let subscribe = Subscribe {
            consumer: self.shared.name.clone(),
            partition: PartitionIndex(partition),
            start: subscription.next.map_or(subscription.start, Start::At),
            credit,
            inline_data: self.shared.wants_inline_data(),
        };
        let request = Request {
            method: Method::Subscribe,
            topic: self.shared.topic.id,
            remaining: REQUEST_TIMEOUT,
            body: &subscribe.to_bytes(),
            payload: Vec::new(),
        };
        let route = Route::Subscription {
            consumer: self.shared.key,
            partition,
        };
        subscription.id = Some(wire.request(route, request));
    }

    /// The answer to Subscribe.
    pub fn subscribed(
        &mut self,
        wire: &mut Wire<'_>,
        partition: u32,
        outcome: Result<Reply, ErrorReply>,
    ) {
        let Some(subscription) = self.subscriptions.get_mut(&partition) else {
            return;
        };
        let subscribed = match outcome {
            Ok(reply) => Subscribed::from_bytes("subscribed", &reply.head)
                .map_err(|error| ErrorReply::fatal(ErrorCode::Malformed, error.to_string())),
            Err(error) => Err(error),
        };
        match subscribed {
            Ok(subscribed) => {
                subscription.stands = true;
                if subscription.next.is_none() {
                    subscription.next = Some(subscribed.position);
                    self.shared
                        .begins_at(partition, subscription.generation, subscribed.position);
                }
                if let Some(promise) = subscription.promise.take() {
                    promise.resolve(Ok(Reply::default()));
                }
                self.tell_if_open();
            }
            Err(error) => self.ended(wire, partition, error),
        }
    }

    fn tell_if_open(&mut self) {
        if self.subscriptions.values().all(|one| one.stands)
            && let Some(promise) = self.promise.take()
        {
            promise.resolve(Ok(Reply::default()));
        }
    }

    /// The subscription is over, or was refused.
    pub fn ended(&mut self, wire: &mut Wire<'_>, partition: u32, error: ErrorReply) {
        let Some(subscription) = self.subscriptions.get_mut(&partition) else {
            return;
        };
        subscription.id = None;
        if error.retryable || error.code == ErrorCode::Draining {
            let wait = Duration::from_millis(u64::from(error.retry_after_ms)).max(RETRY_AFTER_MIN);
            let at = wire.now() + wait;
            subscription.retry_at = Some(at);
            return self.arm(wire, at);
        }
        let error = ClientError::Server(error);
        if let Some(promise) = subscription.promise.take() {
            promise.resolve(Err(error.clone()));
        }
        if let Some(promise) = self.promise.take() {
            promise.resolve(Err(error.clone()));
        }
        self.shared.fail(partition, error);
    }

    /// Batches arrived. An error is the other side's: the connection is of no use.
    pub fn deliver(
        &mut self,
        wire: &mut Wire<'_>,
        partition: u32,
        message: Received,
    ) -> Result<(), String> {
        let Some(subscription) = self.subscriptions.get_mut(&partition) else {
            return Ok(());
        };
        if subscription.id != Some(message.id) {
            return Ok(());
        }
        let place = |reason: &dyn std::fmt::Display| {
            format!(
                "a delivery of {}/{partition}: {reason}",
                self.shared.topic.name
            )
        };
        let deliver =
            Deliver::from_bytes("delivery", &message.head).map_err(|error| place(&error))?;
        let payload = message.payload.freeze();
        let mut at = 0usize;
        for bytes in deliver.batch_bytes {
            let end = usize::try_from(bytes)
                .ok()
                .and_then(|bytes| at.checked_add(bytes))
                .filter(|end| *end <= payload.len())
                .ok_or_else(|| place(&"its batches are longer than its payload"))?;
            let batch = payload.slice(at..end);
            at = end;
            let (arrival, next) =
                arrival(deliver.incarnation, batch).map_err(|error| place(&error))?;
            if let Some(arrival) = arrival {
                self.shared
                    .arrive(partition, subscription.generation, arrival);
            }
            subscription.next = Some(next);
            Counters::add(&wire.context.mailbox.counters.batches_delivered);
        }
        self.shared.notify();
        Ok(())
    }

    /// That much was taken by the consumer: there is room for as much.
    pub fn consumed(&mut self, wire: &mut Wire<'_>, partition: PartitionIndex, bytes: u64) {
        let Some(subscription) = self.subscriptions.get(&partition.0) else {
            return;
        };
        if let Some(id) = subscription.id
            && wire.is_up()
        {
            let credit = Credit { bytes };
            wire.send(Message::control(FrameKind::Credit, id, credit.to_bytes()));
        }
    }

    /// Reads a partition again from `position`.
    pub fn resubscribe(
        &mut self,
        wire: &mut Wire<'_>,
        partition: PartitionIndex,
        position: Position,
        promise: Option<Arc<Promise>>,
    ) {
        let Some(subscription) = self.subscriptions.get_mut(&partition.0) else {
            if let Some(promise) = promise {
                promise.resolve(Err(ClientError::Invalid(format!(
                    "the consumer does not read partition {partition}"
                ))));
            }
            return;
        };
        if let Some(old) = std::mem::replace(&mut subscription.promise, promise) {
            old.resolve(Err(ClientError::Closed));
        }
        subscription.start = Start::At(position);
        subscription.next = None;
        subscription.stands = false;
        if let Some(id) = subscription.id.take() {
            unsubscribe(wire, id);
        }
        self.subscribe(wire, partition.0);
    }

    /// There is a connection: everything is subscribed to again.
    pub fn connected(&mut self, wire: &mut Wire<'_>) {
        let partitions: Vec<u32> = self.subscriptions.keys().copied().collect();
        for partition in partitions {
            self.subscribe(wire, partition);
        }
        self.cursors.connected(wire);
    }

    pub fn disconnected(&mut self) {
        for subscription in self.subscriptions.values_mut() {
            subscription.id = None;
            subscription.retry_at = None;
        }
        self.cursors.disconnected();
    }

    /// Time has passed.
    pub fn timer(&mut self, wire: &mut Wire<'_>) {
        let now = wire.now();
        if now >= self.open_deadline
            && let Some(promise) = self.promise.take()
        {
            let waiting = self.subscriptions.values().filter(|one| !one.stands);
            let what = format!(
                "{} subscriptions of consumer {} to {}; {}",
                waiting.count(),
                self.shared.name,
                self.shared.topic.name,
                wire.context.mailbox.liveness.describe(now)
            );
            promise.resolve(Err(ClientError::Timeout { what }));
        }
        let due: Vec<u32> = self
            .subscriptions
            .iter()
            .filter(|(_, one)| one.retry_at.is_some_and(|at| at <= now))
            .map(|(partition, _)| *partition)
            .collect();
        for partition in due {
            self.subscribe(wire, partition);
        }
        self.cursors.timer(wire);
    }

    /// The consumer's handle is gone.
    pub fn close(&mut self, wire: &mut Wire<'_>) {
        self.cursors.close(wire);
        for subscription in self.subscriptions.values_mut() {
            if let Some(id) = subscription.id.take() {
                unsubscribe(wire, id);
            }
        }
        self.fail(wire, &ClientError::Closed);
    }

    /// The consumer ends.
    pub fn fail(&mut self, wire: &mut Wire<'_>, error: &ClientError) {
        if let Some(promise) = self.promise.take() {
            promise.resolve(Err(error.clone()));
        }
        self.cursors.fail(wire, error);
        for (partition, subscription) in &mut self.subscriptions {
            if let Some(promise) = subscription.promise.take() {
                promise.resolve(Err(error.clone()));
            }
            self.shared.fail(*partition, error.clone());
        }
    }
}

/// Ends a subscription; what still comes for it finds nobody.
fn unsubscribe(wire: &mut Wire<'_>, id: u64) {
    if wire.end_route(id).is_none() || !wire.is_up() {
        return;
    }
    let unsubscribe = Unsubscribe { subscription: id };
    let request = Request {
        method: Method::Unsubscribe,
        topic: TopicId(0),
        remaining: REQUEST_TIMEOUT,
        body: &unsubscribe.to_bytes(),
        payload: Vec::new(),
    };
    wire.request(Route::Ignored, request);
}

/// What a delivered batch is to the consumer, and where reading goes on behind it.
fn arrival(
    incarnation: wire::Incarnation,
    bytes: bytes::Bytes,
) -> Result<(Option<Arrival>, Position), wire::DecodeError> {
    let batch = Batch::read(bytes.clone(), Verify::Headers)?;
    let base = batch.stamp.map(|stamp| stamp.base_offset);
    match batch.header.kind {
        BatchKind::Gap => {
            let batch = Batch::read(bytes, Verify::Sections)?;
            let gap = Gap::from_bytes("gap", batch.metadata_section())?;
            let offset = match gap.incarnation == incarnation {
                true => gap.end,
                // The life that lost them is over: the next one is read from
                // where the batch says, or from its beginning.
                false => base.unwrap_or(Offset(0)),
            };
            let next = Position {
                incarnation,
                offset,
            };
            Ok((Some(Arrival::Gap { gap, next }), next))
        }
        kind => {
            let base = base.ok_or(wire::DecodeError::value("batch stamp", 0, "magic", 0))?;
            let next = Position {
                incarnation,
                offset: base.plus(batch.header.offset_count()),
            };
            let arrival =
                (kind == BatchKind::Events).then_some(Arrival::Batch { incarnation, bytes });
            Ok((arrival, next))
        }
    }
}
