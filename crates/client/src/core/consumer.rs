//! Subscriptions of a consumer: opened, opened again from the first event
//! that did not arrive, given credit. Its cursors are in `cursors`.

use super::cursors::Cursors;
use super::group::Group;
use super::membership::End;
use super::retry;
use super::wire_session::{Request, Route, Timer, Wire};
use crate::consumer::{Arrival, ConsumerFeed};
use crate::error::ClientError;
use crate::faults::{Fault, planted};
use crate::mailbox::Counters;
use crate::promise::{Promise, Reply};
use crate::standing::Hindrance;
use crate::topic_state::TopicState;
use net::{Message, Received};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use wire::batch::{Batch, BatchKind, Verify};
use wire::codec::{Appended, Codec};
use wire::frame::FrameKind;
use wire::message::{
    Assigned, Credit, Deliver, Method, Start, Subscribe, SubscribeScoped, Subscribed, Unsubscribe,
};
use wire::record::{Gap, Position};
use wire::{ErrorCode, ErrorReply, MemberId, Offset, PartitionIndex, TopicId};

/// The subscription to one partition.
struct Subscription {
    /// The request's id on the present connection, once it was sent.
    id: Option<u64>,
    start: Start,
    /// The first event that did not arrive, once that is known.
    next: Option<Position>,
    generation: u64,
    retry_at: Option<Duration>,
    /// Notified when the subscription stands.
    promise: Option<Promise>,
    stands: bool,
    /// It was lost with its connection, or ended by the server: until it stands
    /// again, nobody here knows what there is.
    is_lost: bool,
    /// Why the server ended or refused it, if it is to be tried again.
    refusal: Option<ErrorReply>,
}

pub(super) struct ConsumerCore {
    feed: Arc<ConsumerFeed>,
    subscriptions: BTreeMap<u32, Subscription>,
    /// Resolved when all subscriptions stand for the first time.
    promise: Option<Promise>,
    open_deadline: Duration,
    pub cursors: Cursors,
    /// What says which partitions are to be read, if it is a group's member.
    group: Option<Group>,
}

impl ConsumerCore {
    pub fn new(
        wire: &mut Wire<'_>,
        feed: Arc<ConsumerFeed>,
        start: Start,
        seed: u128,
        timeout: Duration,
        promise: Promise,
    ) -> Self {
        let open_deadline = wire.now().saturating_add(timeout);
        wire.context.arm(open_deadline, Timer::Consumer(feed.key));
        let member = feed.options.group.as_ref();
        let group = member.map(|member| Group::new(wire, feed.clone(), member, start, seed));
        Self {
            cursors: Cursors::new(feed.clone()),
            group,
            feed,
            subscriptions: BTreeMap::new(),
            promise: Some(promise),
            open_deadline,
        }
    }

    /// The topic that it is of.
    pub fn topic(&self) -> &TopicState {
        &self.feed.topic
    }

    pub fn notify(&self) {
        self.feed.notify();
    }

    /// Notes what keeps events from the consumer, for those who pull.
    pub fn note(&self, wire: &Wire<'_>) {
        let of_group = self.group.as_ref().map(|group| group.hindrance(wire));
        let hindrance = of_group.unwrap_or_else(|| wire.hindrance());
        let lost = || self.subscriptions.values().find(|one| one.is_lost);
        let hindrance = hindrance.or_else(|| {
            Some(match &lost()?.refusal {
                Some(refusal) => Hindrance::of_refusal(refusal),
                None => Hindrance::Unanswered,
            })
        });
        self.feed.note(wire.now(), hindrance);
    }

    fn arm(&self, wire: &mut Wire<'_>, at: Duration) {
        wire.context.arm(at, Timer::Consumer(self.feed.key));
    }

    /// Joins the group, if that can be now.
    pub fn join(&mut self, wire: &mut Wire<'_>) {
        let Some(group) = &mut self.group else {
            return;
        };
        if group.membership.is_forgotten(wire.now()) {
            // Its Join may be under way, and would make somebody a member who
            // reads nothing of what it is given.
            group.membership.leave(wire, Route::Ignored);
            group.membership.begin_anew(wire);
            self.lose_all(wire);
        }
        if let Some(group) = &mut self.group {
            group.membership.join(wire, Vec::new);
        }
    }

    /// The answer to Join.
    pub fn joined(&mut self, wire: &mut Wire<'_>, id: u64, outcome: Result<Reply, ErrorReply>) {
        let Some(group) = &mut self.group else {
            return;
        };
        let outcome = outcome.map(|reply| reply.head);
        match group.membership.answered(wire, id, outcome) {
            Err(end) => self.over(wire, end),
            Ok(None) => {}
            Ok(Some(_)) => {
                let member = group.member();
                group.untold();
                self.cursors.set_mover(wire, member);
                if let Some(promise) = self.promise.take() {
                    promise.resolve(Ok(Reply::default()));
                }
            }
        }
        self.note(wire);
    }

    /// The server says what the member owns.
    pub fn assigned(&mut self, wire: &mut Wire<'_>, id: u64, head: &[u8]) -> Result<(), String> {
        let Some(group) = &mut self.group else {
            return Ok(());
        };
        if !group.membership.is_its(id) {
            return Ok(());
        }
        let assigned = Assigned::from_bytes("assigned", head)
            .map_err(|error| format!("an assignment of {}: {error}", self.feed.name))?;
        let news = group.assigned(wire.now(), &assigned);
        let granted = group.granted();
        self.cursors.lost(&news.lost);
        self.unread(wire, &news.ended);
        self.open(wire, &news.granted, Start::Cursor);
        for partition in granted {
            self.subscribe(wire, partition);
        }
        self.release(wire);
        self.note(wire);
        Ok(())
    }

    /// Reads these no more.
    fn unread(&mut self, wire: &mut Wire<'_>, partitions: &[u32]) {
        for partition in partitions {
            let Some(subscription) = self.subscriptions.remove(partition) else {
                continue;
            };
            if let Some(promise) = subscription.promise {
                promise.resolve(Err(ClientError::Invalid(format!(
                    "partition {partition} is not this member's any more"
                ))));
            }
            if let Some(id) = subscription.id {
                unsubscribe(wire, id);
            }
        }
    }

    /// The program has finished with partitions that are to go.
    pub fn finished(&mut self, wire: &mut Wire<'_>, partitions: &[PartitionIndex]) {
        if let Some(group) = &mut self.group {
            group.finished(partitions);
        }
        self.cursors.hurry(wire);
        self.release(wire);
    }

    fn release(&self, wire: &mut Wire<'_>) {
        if let Some(group) = &self.group {
            group.release(wire, |partition| self.cursors.is_under_way(partition));
        }
    }

    /// The answer to cursors that were moved.
    pub fn moved(&mut self, wire: &mut Wire<'_>, outcome: Result<Reply, ErrorReply>) {
        self.cursors.moved(wire, outcome);
        self.release(wire);
    }

    /// The membership was ended by the server.
    pub fn expelled(&mut self, wire: &mut Wire<'_>, id: u64, error: ErrorReply) {
        if let Some(group) = &mut self.group
            && group.membership.is_its(id)
        {
            let end = group.membership.ended(wire, error);
            self.over(wire, end);
            self.note(wire);
        }
    }

    fn over(&mut self, wire: &mut Wire<'_>, end: End) {
        match end {
            End::Interrupted => self.cursors.set_mover(wire, None),
            End::Expelled => {
                self.lose_all(wire);
                self.join(wire);
            }
            End::Refused(error) => {
                self.lose_all(wire);
                let error = ClientError::Server(error);
                if let Some(promise) = self.promise.take() {
                    promise.resolve(Err(error.clone()));
                }
                self.cursors.refuse(wire, &error);
                self.feed.fail(error);
            }
        }
    }

    /// What the member owned is not its any more.
    fn lose_all(&mut self, wire: &mut Wire<'_>) {
        let Some(group) = &mut self.group else {
            return;
        };
        let lost = group.lose_all();
        self.unread(wire, &lost);
        self.cursors.set_mover(wire, None);
        let error = ErrorReply::fatal(
            ErrorCode::MemberFenced,
            format!(
                "this member of group {} was away for too long: its partitions went to others",
                self.feed.name
            ),
        );
        self.cursors.fenced(wire, &ClientError::Server(error));
    }

    /// The program is back, and was notified that its member had left.
    pub fn rejoin(&mut self, wire: &mut Wire<'_>) {
        if let Some(group) = &mut self.group
            && group.membership.is_over()
        {
            group.membership.begin_anew(wire);
            self.join(wire);
            self.note(wire);
        }
    }

    /// Who asks, for requests that only a group's member may make: none of a
    /// consumer that is none.
    pub fn member(&self) -> Option<MemberId> {
        Some(self.group.as_ref()?.membership.member)
    }

    /// Subscribes to these partitions.
    pub fn open(&mut self, wire: &mut Wire<'_>, partitions: &[u32], start: Start) {
        self.open_at(wire, partitions, start, &[]);
    }

    /// The same, but where `starts` says begins there.
    pub fn open_at(
        &mut self,
        wire: &mut Wire<'_>,
        partitions: &[u32],
        start: Start,
        starts: &[(PartitionIndex, Position)],
    ) {
        for partition in partitions {
            let own = starts.iter().find(|(index, _)| index.0 == *partition);
            let subscription = Subscription {
                id: None,
                start: own.map_or(start, |(_, position)| Start::At(*position)),
                next: None,
                generation: 0,
                retry_at: None,
                promise: None,
                stands: false,
                is_lost: false,
                refusal: None,
            };
            self.subscriptions.insert(*partition, subscription);
            // Known from now on, though nothing has arrived.
            self.feed.begin_subscription(*partition);
            self.subscribe(wire, *partition);
        }
        self.notify_if_open();
    }

    /// The topic may have more partitions: if all are to be read, the new ones
    /// are, from their first event on.
    pub fn grow(&mut self, wire: &mut Wire<'_>, topic: TopicId) {
        let options = &self.feed.options;
        let is_fixed = options.partitions.is_some() || self.group.is_some();
        if self.feed.topic.id != topic || is_fixed {
            return;
        }
        let new: Vec<u32> = (self.feed.topic.indices())
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
        let member = match &self.group {
            None => MemberId(0),
            Some(group) => match group.member() {
                Some(member) => member,
                // When it is one again, it is notified of what it owns.
                None => return,
            },
        };
        let (generation, credit) = self.feed.begin_subscription(partition);
        subscription.generation = generation;
        subscription.retry_at = None;
        let subscribe = Subscribe {
            consumer: self.feed.name.clone(),
            partition: PartitionIndex(partition),
            start: match subscription.next {
                Some(_) if planted(Fault::SkipMissed) => Start::Latest,
                next => next.map_or(subscription.start, Start::At),
            },
            credit,
            inline_data: self.feed.wants_inline_data,
            latest: Appended(self.feed.options.latest),
        };
        let (method, body) = match (member, &self.feed.options.key) {
            (MemberId(0), None) => (Method::Subscribe, subscribe.to_bytes()),
            (member, key) => {
                let scoped = SubscribeScoped {
                    member,
                    key: key.clone(),
                    subscribe,
                };
                (Method::SubscribeScoped, scoped.to_bytes())
            }
        };
        let (_, leader_epoch) = self.feed.topic.leadership(partition);
        let request = Request {
            method,
            topic: self.feed.topic.id,
            leader_epoch,
            remaining: retry::REQUEST_TIMEOUT,
            body: &body,
            payload: Vec::new(),
            is_quiet: false,
        };
        let route = Route::Subscription {
            consumer: self.feed.key,
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
                subscription.is_lost = false;
                subscription.refusal = None;
                if subscription.next.is_none() {
                    subscription.next = Some(subscribed.position);
                    self.feed
                        .begins_at(partition, subscription.generation, subscribed.position);
                }
                if let Some(promise) = subscription.promise.take() {
                    promise.resolve(Ok(Reply::default()));
                }
                self.notify_if_open();
                self.note(wire);
            }
            Err(error) => self.ended(wire, partition, error),
        }
    }

    fn notify_if_open(&mut self) {
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
        subscription.is_lost = true;
        if self.group.is_some() && error.code == ErrorCode::MemberFenced {
            // It is another member's: of what this one owns, it is notified.
            return self.note(wire);
        }
        wire.context.is_stale |= error.code == ErrorCode::NotLeader;
        if retry::is_for_now(&error) {
            let at = wire.now() + retry::STANDING.after(&error);
            subscription.retry_at = Some(at);
            subscription.refusal = Some(error);
            self.note(wire);
            return self.arm(wire, at);
        }
        let error = ClientError::Server(error);
        if let Some(promise) = subscription.promise.take() {
            promise.resolve(Err(error.clone()));
        }
        if let Some(promise) = self.promise.take() {
            promise.resolve(Err(error.clone()));
        }
        self.feed.fail_partition(partition, error);
    }

    /// Batches arrived. An error is the other side's: the connection is of no use.
    pub fn deliver(
        &mut self,
        wire: &mut Wire<'_>,
        partition: u32,
        message: Received,
    ) -> Result<(), String> {
        trace::passes!("delivered: its batch is cut out, and its place checked");
        let Some(subscription) = self.subscriptions.get_mut(&partition) else {
            return Ok(());
        };
        if subscription.id != Some(message.id) {
            return Ok(());
        }
        let place = |reason: &dyn std::fmt::Display| {
            format!(
                "a delivery of {}/{partition}: {reason}",
                self.feed.topic.name
            )
        };
        let deliver =
            Deliver::from_bytes("delivery", &message.head).map_err(|error| place(&error))?;
        let payload = message.payload.freeze();
        let mut at = 0usize;
        let mut lacks_data = false;
        let mut charged = 0;
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
            // Gaps come without taking credit.
            charged += arrival.as_ref().map_or(bytes, Arrival::bytes);
            if let Some(arrival) = arrival {
                lacks_data |= arrival.lacks_data();
                self.feed
                    .arrive(partition, subscription.generation, arrival);
            }
            subscription.next = Some(next);
            Counters::add(&wire.context.mailbox.counters.batches_delivered);
        }
        if self.feed.options.latest {
            // What has arrived waits for a newer one, not for the program: that is to be on its
            // way. Data of it is read when it is pulled.
            self.consumed(wire, PartitionIndex(partition), charged);
        } else if lacks_data {
            self.feed.begin_reading();
        }
        self.feed.notify();
        Ok(())
    }

    /// That much was taken by the consumer: there is space for as much.
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
        promise: Option<Promise>,
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
        if self.group.is_some() {
            // Everything else when it is a member again.
            self.join(wire);
            return self.note(wire);
        }
        let partitions: Vec<u32> = self.subscriptions.keys().copied().collect();
        for partition in partitions {
            self.subscribe(wire, partition);
        }
        self.cursors.connected(wire);
        self.note(wire);
    }

    /// The connection is lost: [`Wire::is_up`] says so already.
    pub fn disconnected(&mut self, wire: &mut Wire<'_>) {
        for subscription in self.subscriptions.values_mut() {
            subscription.id = None;
            subscription.retry_at = None;
            subscription.is_lost = true;
            subscription.refusal = None;
        }
        self.cursors.disconnected();
        if let Some(group) = &mut self.group {
            group.membership.disconnected(wire.now());
            self.cursors.set_mover(wire, None);
        }
        self.note(wire);
    }

    /// Time has passed.
    pub fn timer(&mut self, wire: &mut Wire<'_>) {
        let now = wire.now();
        if now >= self.open_deadline
            && let Some(promise) = self.promise.take()
        {
            let waiting = self.subscriptions.values().filter(|one| !one.stands);
            let what = match &self.group {
                None => format!("{} subscriptions", waiting.count()),
                Some(_) => "the membership".to_owned(),
            };
            let what = format!(
                "{what} of consumer {} to {}; {}",
                self.feed.name,
                self.feed.topic.name,
                wire.context.liveness.describe(now)
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
        self.group_timer(wire);
    }

    fn group_timer(&mut self, wire: &mut Wire<'_>) {
        let Some(group) = &mut self.group else {
            return;
        };
        let visits = self.feed.processing.count();
        if let Some(reason) = group.membership.timer(wire, visits) {
            group.membership.leave(wire, Route::Ignored);
            self.lose_all(wire);
            self.note(wire);
            self.feed.absent(ClientError::Server(reason));
        }
        self.join(wire);
    }

    /// The consumer's handle is gone.
    pub fn close(&mut self, wire: &mut Wire<'_>) {
        self.cursors.close(wire);
        if let Some(group) = &mut self.group {
            // Behind the cursors, on the same connection.
            group.membership.leave(wire, Route::Ignored);
        }
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
            self.feed.fail_partition(*partition, error.clone());
        }
        if self.group.is_some() {
            self.feed.fail(error.clone());
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
        leader_epoch: 0,
        remaining: retry::REQUEST_TIMEOUT,
        body: &unsubscribe.to_bytes(),
        payload: Vec::new(),
        is_quiet: false,
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
            let unstamped = wire::DecodeError::value("batch stamp", 0, "magic", 0);
            let stamp = batch.stamp.ok_or(unstamped)?;
            let next = Position {
                incarnation,
                offset: stamp.base_offset.plus(batch.header.offset_count()),
            };
            let arrival = (kind == BatchKind::Events).then_some(Arrival::Batch {
                incarnation,
                append_time: stamp.append_time,
                data_bytes: stamp.data_bytes,
                bytes,
            });
            Ok((arrival, next))
        }
    }
}
