//! A queue that serves: a member of its topic's consumer, the messages at its head, and who gets them.
//!
//! ```text
//!   node: waits ──leased──► ready ──delivered──► unacked (a channel has it)
//!           ▲                │ ▲                    │
//!           │   nobody wants │ └──── requeued ──────┤
//!           └────────────────┘                      └──acknowledged──► settled in the node
//! ```

use super::calls::{Calls, ClientId, Then};
use super::faults::{Fault, planted};
use super::message::{Event, Message};
use super::shares::Share;
use amqp::{ChannelKey, ShortString};
use broker::node::{LinkId, Now};
use broker::request::{ClientInput, CoordinatorRequest, Prefetch, QueueRequest, Request};
use bytes::{Bytes, BytesMut};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use topic::QueueOptions;
use vhost::{Overflow, Queue};
use wire::batch::{Batch, Verify};
use wire::message::*;
use wire::record::ConsumerKind;
use wire::{ErrorReply, Incarnation, LeaseId, MemberId, Offset, PartitionIndex, TopicId};

/// The consumer of a queue's topic, whose members get its messages.
pub(super) const CONSUMER: &str = "amqp";
/// Messages that are ready here, beside those that channels have.
const WINDOW_EVENTS: u64 = 512;
/// A queue of which nothing has come for so long may have a message at its head that is larger than its window.
const WIDEN: Duration = Duration::from_millis(50);
/// Settlements of one request.
const SETTLEMENTS_MAX: usize = 4096;
/// How long a lease lasts: as long as a queue may say. It ends with its channel.
const LEASE_MS: u64 = 31 * 24 * 3600 * 1000;
/// How often leases are made to last longer.
pub(super) const EXTEND: Duration = Duration::from_secs(10 * 24 * 3600);
/// How long a member may be away that comes back with the next start of the server.
const SESSION_TIMEOUT_MS: u32 = 60_000;
/// When a queue that could not join, or settlements that were not recorded, are tried again.
const RETRY: Duration = Duration::from_secs(1);
/// How long messages that nobody wants are kept here.
const LINGER: Duration = Duration::from_secs(1);

/// A message at the head of a queue.
#[derive(Debug)]
pub(super) struct Ready {
    pub held: Held,
    /// It is to be delivered at once or never.
    pub is_for_now: bool,
    /// Its data has not come yet.
    pub is_coming: bool,
}

/// A message that a channel has, or that is about to be settled.
#[derive(Debug, Clone)]
pub(super) struct Held {
    pub offset: Offset,
    pub lease: LeaseId,
    pub incarnation: Incarnation,
    pub redelivered: bool,
    pub bytes: u64,
    /// When it is over, nanoseconds since 1970.
    pub expires: Option<u64>,
    /// Not there if too much would be kept.
    pub message: Option<Arc<Message>>,
}

impl PartialEq for Held {
    fn eq(&self, other: &Self) -> bool {
        self.offset == other.offset && self.lease == other.lease
    }
}

/// A consumer of the queue.
#[derive(Debug, Clone)]
pub(super) struct Consumer {
    pub client: ClientId,
    pub channel: ChannelKey,
    pub tag: ShortString,
    pub priority: i64,
    pub no_ack: bool,
}

/// A `basic.get` that waits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Get {
    pub client: ClientId,
    pub channel: ChannelKey,
    pub no_ack: bool,
}

/// Ready messages are dropped, up to where the queue ended when that was asked for.
#[derive(Debug)]
pub(super) struct Purge {
    pub client: ClientId,
    pub channel: ChannelKey,
    pub end: Offset,
    pub count: u64,
    pub left: i64,
}

/// Why a message is a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    Rejected,
    Expired,
    MaxLength,
}

impl Reason {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rejected => "rejected",
            Self::Expired => "expired",
            Self::MaxLength => "maxlen",
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Engine {
    pub queue: Arc<Queue>,
    pub topic: TopicId,
    session: LinkId,
    member: MemberId,
    /// The call by which it joined, under which events come.
    pub join: u64,
    pub joined: bool,
    /// When it joins again, after it could not or was put out.
    join_at: Option<Duration>,
    pub ready: BTreeMap<Offset, Ready>,
    ready_bytes: u64,
    unacked: u64,
    unacked_bytes: u64,
    share: Share,
    largest: u64,
    /// When messages came last.
    came: Duration,
    /// It asks for one message, of any size.
    is_wide: bool,
    /// Messages that are dead letters, and come once more with what their letters are made of.
    condemned: BTreeMap<Offset, Reason>,
    pub consumers: Vec<Consumer>,
    /// No consumer has a greater priority.
    priority_max: i64,
    /// The consumer that has its turn next.
    turn: usize,
    pub gets: VecDeque<Get>,
    /// They wait for what is on its way to the node.
    pub gets_wait: bool,
    pub purge: Option<Purge>,
    /// Messages that the node has for this queue, and nobody else has.
    pub waiting: i64,
    /// Messages that are on their way to the node.
    pub coming: u64,
    settlements: Vec<Settlement>,
    /// Those of the request that is not answered.
    settling: Vec<Settlement>,
    /// When they are sent again that were not recorded.
    settle_at: Duration,
    sequence: u64,
    prefetch: Option<Prefetch>,
    /// When somebody wanted something last.
    pub wanted: Duration,
    /// When it was used last, for `x-expires`.
    pub used: Duration,
    pub extend_at: Duration,
    pub timer_at: Option<Duration>,
    pub is_going: bool,
}

/// The name of a queue's topic: the queue's, as far as a topic may have it, and its id.
pub(super) fn topic_name(queue: &Queue) -> String {
    let is_good = |one: char| !one.is_control() && one != '/';
    let name = queue.name.chars().map(|one| match is_good(one) {
        true => one,
        false => '_',
    });
    let mut name: String = name.collect();
    while name.len() > 200 {
        name.pop();
    }
    let name = match name.starts_with(topic::RESERVED_PREFIX) {
        true => format!("amqp{name}"),
        false => name,
    };
    format!("{name}{SUFFIX}{}", queue.id.0)
}

const SUFFIX: &str = ".amqp-";

/// Whether a topic of this name may be that of a queue.
pub(super) fn is_of_queue(topic: &str) -> bool {
    topic.rsplit_once(SUFFIX).is_some_and(|(_, id)| {
        let is_plain = id.bytes().all(|one| one.is_ascii_digit()) && !id.starts_with('0');
        is_plain && id.parse::<u64>().is_ok()
    })
}

/// What makes the topic of a queue.
pub(super) fn create(queue: &Queue) -> CreateTopic {
    let (kind, durability) = match queue.durable {
        true => ("disk", "written"),
        false => ("memory", "memory"),
    };
    let definition = serde_json::json!({
        "durability": durability,
        "keep_until_acknowledged": [CONSUMER],
        "metadata_bytes_max": 4 << 20,
        "version": topic::DEFINITION_VERSION,
    });
    CreateTopic {
        name: topic_name(queue),
        definition: definition.to_string(),
        partitions: vec![PartitionStorage {
            kind: kind.to_owned(),
            config: String::new(),
        }],
    }
}

impl Engine {
    /// The queue of a topic that there is. It joins at once.
    pub fn new(
        queue: Arc<Queue>,
        topic: TopicId,
        session: LinkId,
        now: Now,
        calls: &mut Calls,
    ) -> Self {
        // The same after a restart, so that nobody waits for the member of before.
        let member = MemberId(u128::from(queue.id.0) << 32 | 0xa39b);
        let mut engine = Self {
            queue,
            topic,
            session,
            member,
            join: 0,
            joined: false,
            join_at: None,
            ready: BTreeMap::new(),
            ready_bytes: 0,
            unacked: 0,
            unacked_bytes: 0,
            share: calls.shares.share(),
            largest: 0,
            came: now.monotonic,
            is_wide: false,
            condemned: BTreeMap::new(),
            consumers: Vec::new(),
            priority_max: i64::MIN,
            turn: 0,
            gets: VecDeque::new(),
            gets_wait: false,
            purge: None,
            waiting: 0,
            coming: 0,
            settlements: Vec::new(),
            settling: Vec::new(),
            settle_at: Duration::ZERO,
            // The node remembers answers to the member, also those that it had before a virtual host began anew.
            sequence: now.unix_ns,
            prefetch: None,
            wanted: now.monotonic,
            used: now.monotonic,
            extend_at: now.monotonic + EXTEND,
            timer_at: None,
            is_going: false,
        };
        engine.send_join(calls);
        engine
    }

    fn send_join(&mut self, calls: &mut Calls) {
        let options = QueueOptions {
            lease_ms: LEASE_MS,
            deliveries_max: 0,
            ..QueueOptions::default()
        };
        let join = Join {
            consumer: CONSUMER.to_owned(),
            kind: ConsumerKind::Queue,
            options: options.to_json(),
            start: Start::Beginning,
            member: self.member,
            before: MemberId(0),
            instance: String::new(),
            session_timeout_ms: SESSION_TIMEOUT_MS,
            prefetch_events: 0,
            prefetch_bytes: 0,
            inline_data: true,
            held: Vec::new(),
        };
        let request = CoordinatorRequest::Join(self.topic, join);
        self.join = calls.call(self.session, request, Then::Joined(self.queue.id));
    }

    /// It could not join, or is a member no more, though its topic is there: what it had ready is others', and it
    /// joins again in a while.
    pub fn put_out(&mut self, now: Duration) {
        self.joined = false;
        self.join_at = Some(now + RETRY);
        self.prefetch = None;
        while self.pop().is_some() {}
    }

    /// Joins again if it is time to. Whether it does.
    pub fn join_again(&mut self, now: Duration, calls: &mut Calls) -> bool {
        let is_due = self.join_at.is_some_and(|at| at <= now);
        if is_due {
            self.join_at = None;
            self.send_join(calls);
        }
        is_due
    }

    /// Ready messages, here and in the node.
    pub fn count(&self) -> u64 {
        u64::try_from(self.waiting).unwrap_or(0) + self.ready.len() as u64
    }

    /// By how many messages it is longer than it may be.
    pub fn excess(&self) -> u64 {
        let options = &self.queue.options;
        let by_count = options
            .length_max
            .map(|max| self.count().saturating_sub(max));
        let is_heavy = options
            .length_bytes_max
            .is_some_and(|max| self.ready_bytes > max);
        by_count.unwrap_or(0).max(u64::from(is_heavy))
    }

    /// So many messages that were on their way are in the node, or were refused.
    pub fn arrived(&mut self, count: u64, is_stored: bool) {
        self.coming = self.coming.saturating_sub(count);
        if is_stored {
            self.waiting += i64::try_from(count).unwrap_or(0);
        }
    }

    /// Whether the head is to be dropped.
    pub fn drops_head(&self) -> bool {
        self.queue.options.overflow == Overflow::DropHead && self.excess() > 0
    }

    /// Whether a message more is refused.
    pub fn is_full(&self, bytes: u64) -> bool {
        let options = &self.queue.options;
        let is_long = options
            .length_max
            .is_some_and(|max| self.count() + self.coming >= max);
        let is_heavy = options
            .length_bytes_max
            .is_some_and(|max| self.ready_bytes + bytes > max);
        options.overflow != Overflow::DropHead && (is_long || is_heavy)
    }

    /// Whether it always has to have the head of the queue here.
    fn watches(&self) -> bool {
        let options = &self.queue.options;
        options.message_ttl.is_some()
            || options.length_max.is_some()
            || options.length_bytes_max.is_some()
    }

    fn is_wanted(&self, now: Duration) -> bool {
        let is_used = !self.consumers.is_empty() || !self.gets.is_empty() || self.purge.is_some();
        let is_used = is_used || !self.condemned.is_empty();
        is_used || self.watches() || now < self.wanted + LINGER
    }

    /// How much of the head is to be here, as the node knows it.
    pub fn ask(&mut self, now: Duration, calls: &mut Calls) {
        if !self.joined || self.is_going {
            return;
        }
        if !self.is_wanted(now) {
            self.give_back();
        }
        let is_wanted = self.is_wanted(now);
        let share = self.share.window(is_wanted);
        let asked = match is_wanted {
            true if self.is_wide => Prefetch {
                events: u32::try_from(self.unacked + 1).unwrap_or(u32::MAX),
                bytes: u64::MAX / 2,
                step_events: 1,
                step_bytes: 1,
            },
            true => {
                let window = share.max((2 * self.largest).min(8 * share));
                Prefetch {
                    events: u32::try_from(self.unacked + WINDOW_EVENTS).unwrap_or(u32::MAX),
                    bytes: self.unacked_bytes + window,
                    step_events: 1,
                    step_bytes: 1,
                }
            }
            false => Prefetch {
                events: 0,
                bytes: 0,
                step_events: 0,
                step_bytes: 0,
            },
        };
        let is_near = |known: &Prefetch| {
            let events = u64::from(known.events.abs_diff(asked.events));
            (known.events == 0) == (asked.events == 0)
                && events < WINDOW_EVENTS / 4
                && known.bytes.abs_diff(asked.bytes) < share / 4
        };
        if self.prefetch.as_ref().is_some_and(is_near) {
            return;
        }
        self.prefetch = Some(asked);
        let input = ClientInput::Prefetch {
            id: self.join,
            prefetch: asked,
        };
        calls.say(self.session, input);
    }

    /// Events have come. Gives the offsets of those whose data is elsewhere, and how much it is.
    pub fn leased(&mut self, head: &Leased, pieces: Vec<Bytes>, now: Now) -> Vec<(Offset, u64)> {
        self.came = now.monotonic;
        self.is_wide = false;
        let mut elsewhere = Vec::new();
        let mut pieces = pieces.into_iter();
        let mut leases = head.leases.iter().peekable();
        for bytes in &head.batch_bytes {
            let Some(bytes) = whole(&mut pieces, *bytes) else {
                return elsewhere;
            };
            let Ok(batch) = Batch::read(bytes.clone(), Verify::Sections) else {
                continue;
            };
            let (Ok(columns), Some(stamp)) = (batch.columns(), batch.stamp) else {
                continue;
            };
            for event in &columns.events {
                let offset = Offset(stamp.base_offset.0 + u64::from(event.offset_delta));
                while leases.next_if(|lease| lease.end <= offset).is_some() {}
                let Some(lease) = leases.peek().filter(|lease| lease.first <= offset) else {
                    continue;
                };
                let metadata = batch.metadata_section();
                let from = event.metadata_start as usize;
                let columns = batch.columns_section();
                let data = match (event.external, batch.inline_range()) {
                    (false, Some(range)) => {
                        let from = range.start + event.data_start as usize;
                        bytes.slice(from..from + event.data_bytes as usize)
                    }
                    _ => Bytes::new(),
                };
                let message = Event {
                    metadata: &metadata[from..from + event.metadata_bytes as usize],
                    data,
                    headers: event
                        .headers
                        .map(|(at, bytes)| &columns[at as usize..(at + bytes) as usize]),
                    time: stamp.append_time,
                    queue: &self.queue.name,
                };
                let message = message.message();
                let is_elsewhere = event.external && event.data_bytes > 0;
                if is_elsewhere {
                    elsewhere.push((offset, event.data_bytes));
                }
                self.waiting -= 1;
                let bytes = message.bytes().max(event.data_bytes);
                let ttl = self.ttl(&message);
                let expires = ttl.map(|ttl| {
                    let ttl = u64::try_from(ttl.as_nanos()).unwrap_or(u64::MAX);
                    stamp.append_time.saturating_add(ttl)
                });
                let ready = Ready {
                    is_for_now: ttl == Some(Duration::ZERO),
                    is_coming: is_elsewhere,
                    held: Held {
                        expires,
                        offset,
                        lease: lease.lease,
                        incarnation: lease.incarnation,
                        redelivered: lease.deliveries > 1,
                        bytes,
                        message: Some(Arc::new(message)),
                    },
                };
                self.put(ready);
            }
        }
        self.wanted = self.wanted.max(now.monotonic.saturating_sub(LINGER));
        elsewhere
    }

    fn ttl(&self, message: &Message) -> Option<Duration> {
        let own = message.content.properties.fields().expiration;
        let own = own.and_then(|text| text.as_str()?.parse().ok());
        let own = own.map(Duration::from_millis);
        own.into_iter().chain(self.queue.options.message_ttl).min()
    }

    fn put(&mut self, ready: Ready) {
        self.largest = self.largest.max(ready.held.bytes);
        self.ready_bytes += ready.held.bytes;
        self.ready.insert(ready.held.offset, ready);
    }

    /// The data of an event has come, or cannot be read for now.
    pub fn data_came(&mut self, offset: Offset, data: Option<Bytes>) {
        let Some(data) = data else {
            if let Some(ready) = self.ready.remove(&offset) {
                self.ready_bytes -= ready.held.bytes;
                self.put_off(&ready.held);
            }
            return;
        };
        if let Some(ready) = self.ready.get_mut(&offset)
            && let Some(message) = ready.held.message.take()
        {
            let mut message = Arc::unwrap_or_clone(message);
            message.content.body = data;
            ready.held.message = Some(Arc::new(message));
            ready.is_coming = false;
        }
    }

    /// Takes the first ready message.
    pub fn pop(&mut self) -> Option<Ready> {
        let (_, ready) = self.ready.pop_first()?;
        self.ready_bytes -= ready.held.bytes;
        Some(ready)
    }

    /// A channel has it from now on, or has it acknowledged by that. Gives what it is to know of it.
    pub fn handed_out(&mut self, mut held: Held, no_ack: bool) -> Held {
        if no_ack {
            self.settle(&held, SettleAs::Acknowledge);
            return held;
        }
        self.unacked += 1;
        self.unacked_bytes += held.bytes;
        if !self.share.keep(held.bytes) {
            held.message = None;
        }
        held
    }

    /// A channel has it no more.
    pub fn handed_in(&mut self, held: &Held) {
        self.unacked = self.unacked.saturating_sub(1);
        self.unacked_bytes = self.unacked_bytes.saturating_sub(held.bytes);
        if held.message.is_some() {
            self.share.give_up(held.bytes);
        }
    }

    /// A message that was handed in goes to its old place.
    pub fn requeue(&mut self, held: Held) {
        if held.message.is_none() {
            self.settle(&held, SettleAs::Return);
            self.waiting += 1;
            return;
        }
        let mut held = Held {
            redelivered: !planted(Fault::Unmarked),
            ..held
        };
        if planted(Fault::Behind) {
            held.offset = Offset(u64::MAX / 2);
        }
        self.put(Ready {
            held,
            is_for_now: false,
            is_coming: false,
        });
    }

    /// A dead letter's message is not here: it comes once more, and then is one.
    pub fn condemn(&mut self, held: &Held, reason: Reason) {
        self.condemned.insert(held.offset, reason);
        self.settle(held, SettleAs::Return);
        self.waiting += 1;
    }

    /// Why a message that has come is a dead letter, if that was known before.
    pub fn condemned(&mut self, offset: Offset) -> Option<Reason> {
        self.condemned.remove(&offset)
    }

    /// A message can have no letter for now: it comes once more, in a while.
    pub fn put_off(&mut self, held: &Held) {
        self.settle(held, SettleAs::Return);
        if let Some(last) = self.settlements.last_mut() {
            last.delay_ms = u32::try_from(RETRY.as_millis()).unwrap_or(u32::MAX);
        }
        self.waiting += 1;
    }

    /// Tells the node, with the next request, what became of a message.
    pub fn settle(&mut self, held: &Held, how: SettleAs) {
        let end = Offset(held.offset.0 + 1);
        if let Some(last) = self.settlements.last_mut()
            && how != SettleAs::Return
            && last.how == how
            && last.lease.lease == held.lease
            && last.lease.end == held.offset
        {
            last.lease.end = end;
            return;
        }
        self.settlements.push(Settlement {
            lease: Lease {
                partition: PartitionIndex(0),
                incarnation: held.incarnation,
                first: held.offset,
                end,
                lease: held.lease,
                deliveries: 0,
            },
            how,
            delay_ms: 0,
            reason: String::new(),
        });
    }

    /// Messages that nobody wants here are others'.
    fn give_back(&mut self) {
        while let Some(ready) = self.pop() {
            let how = match ready.held.redelivered {
                true => SettleAs::Return,
                false => SettleAs::GiveBack,
            };
            self.settle(&ready.held, how);
            self.waiting += 1;
        }
    }

    /// How many messages go back to the node with the next requests: it counts them as given out.
    pub fn going_back(&self) -> u64 {
        let goes_back =
            |one: &&Settlement| matches!(one.how, SettleAs::Return | SettleAs::GiveBack);
        let them = self.settlements.iter().filter(goes_back);
        them.map(|one| one.lease.end.0 - one.lease.first.0).sum()
    }

    /// Sends what is to be settled, one request at a time.
    pub fn send_settlements(&mut self, now: Duration, calls: &mut Calls) {
        if !self.settling.is_empty() || self.settlements.is_empty() || now < self.settle_at {
            return;
        }
        let count = self.settlements.len().min(SETTLEMENTS_MAX);
        let settlements: Vec<_> = self.settlements.drain(..count).collect();
        self.settling.clone_from(&settlements);
        self.sequence += 1;
        let settle = Settle {
            consumer: CONSUMER.to_owned(),
            member: self.member,
            sequence: self.sequence,
            worked_us: 0,
            settlements,
        };
        let request = Request::Queue(self.topic, QueueRequest::Settle(settle));
        calls.call(self.session, request, Then::Settled(self.queue.id));
    }

    /// The request was answered. What was not recorded, and may be later, is sent again.
    pub fn settled(&mut self, result: Result<(), ErrorReply>, now: Duration) {
        let mut sent = std::mem::take(&mut self.settling);
        if result.is_err_and(|error| error.retryable) && !planted(Fault::Unsettled) {
            self.settle_at = now + RETRY;
            sent.append(&mut self.settlements);
            self.settlements = sent;
        }
    }

    /// Makes what it has last longer. `held` are the messages that channels have.
    pub fn extend(&mut self, held: impl Iterator<Item = Held>, now: Duration, calls: &mut Calls) {
        self.extend_at = now + EXTEND;
        let ready = self.ready.values().map(|ready| ready.held.clone());
        let leases = ready.chain(held).map(|held| Lease {
            partition: PartitionIndex(0),
            incarnation: held.incarnation,
            first: held.offset,
            end: Offset(held.offset.0 + 1),
            lease: held.lease,
            deliveries: 0,
        });
        let leases: Vec<_> = leases.collect();
        for leases in leases.chunks(SETTLEMENTS_MAX) {
            let extend = ExtendLeases {
                consumer: CONSUMER.to_owned(),
                member: self.member,
                leases: leases.to_vec(),
            };
            let request = Request::Queue(self.topic, QueueRequest::ExtendLeases(extend));
            calls.call(self.session, request, Then::Extended);
        }
    }

    /// Adds a consumer, behind those that are there.
    pub fn add(&mut self, consumer: Consumer) {
        self.priority_max = self.priority_max.max(consumer.priority);
        self.consumers.push(consumer);
    }

    /// A consumer has gone.
    pub fn remove(
        &mut self,
        client: ClientId,
        channel: ChannelKey,
        tag: &ShortString,
        now: Duration,
    ) {
        self.consumers
            .retain(|one| !(one.client == client && one.channel == channel && one.tag == *tag));
        let priorities = self.consumers.iter().map(|one| one.priority);
        self.priority_max = priorities.max().unwrap_or(i64::MIN);
        self.used = now;
        self.wanted = now;
    }

    /// Who is next of those that may have something, by priority and in turn.
    pub fn next_consumer(&mut self, has_room: impl Fn(&Consumer) -> bool) -> Option<Consumer> {
        let count = self.consumers.len();
        if self.queue.options.single_active_consumer {
            return self.consumers.first().filter(|one| has_room(one)).cloned();
        }
        let mut best: Option<usize> = None;
        for step in 0..count {
            let at = (self.turn + step) % count;
            let one = &self.consumers[at];
            let is_better = best.is_none_or(|best| self.consumers[best].priority < one.priority);
            if is_better && has_room(one) {
                best = Some(at);
                if one.priority >= self.priority_max {
                    break;
                }
            }
        }
        let best = best?;
        self.turn = best + 1;
        Some(self.consumers[best].clone())
    }

    /// Whether nothing is ready though it is wanted, and channels have messages: then the node may have one that is
    /// larger than the window, which it gives by itself only to who has nothing.
    fn may_be_stuck(&self, now: Duration) -> bool {
        let is_dry = self.ready.is_empty() && self.unacked > 0 && !self.is_wide;
        is_dry && self.joined && self.is_wanted(now)
    }

    /// Asks for one message of any size, if nothing has come for a while.
    pub fn widen(&mut self, now: Duration) {
        self.is_wide |=
            !planted(Fault::Narrow) && self.may_be_stuck(now) && now >= self.came + WIDEN;
    }

    /// When it is to be looked at again, at the latest.
    pub fn due(&self, now: Now) -> Option<Duration> {
        let at = |unix_ns: u64| {
            now.monotonic + Duration::from_nanos(unix_ns.saturating_sub(now.unix_ns))
        };
        let head = self.ready.values().next();
        // What has not come whole is no letter yet.
        let head = head.filter(|head| !head.is_coming);
        let expiry = head.and_then(|head| head.held.expires).map(at);
        let is_idle = self.consumers.is_empty();
        let unused = self.queue.options.expires.filter(|_| is_idle);
        let unused = unused.map(|expires| self.used + expires);
        let has_any = !self.ready.is_empty() || self.prefetch.is_some_and(|one| one.events > 0);
        let linger = (is_idle && has_any && !self.watches()).then(|| self.wanted + LINGER);
        let linger = linger.filter(|at| *at > now.monotonic);
        // What a purge or a fetch waits for may have gone to somebody else.
        let stuck = self.may_be_stuck(now.monotonic);
        let stuck = stuck.then(|| (self.came + WIDEN).max(now.monotonic));
        let is_asked = self.purge.is_some() || !self.gets.is_empty();
        let asked = is_asked.then(|| now.monotonic + RETRY);
        let again = Some(self.settle_at).filter(|_| !self.settlements.is_empty());
        let again = again.filter(|at| *at > now.monotonic);
        [
            expiry,
            unused,
            linger,
            stuck,
            asked,
            again,
            self.join_at,
            Some(self.extend_at),
        ]
        .into_iter()
        .flatten()
        .min()
    }
}

/// The next bytes of pieces, in one.
fn whole(pieces: &mut impl Iterator<Item = Bytes>, bytes: u64) -> Option<Bytes> {
    let bytes = usize::try_from(bytes).ok()?;
    let first = pieces.next()?;
    if first.len() == bytes {
        return Some(first);
    }
    let mut all = BytesMut::with_capacity(bytes);
    all.extend_from_slice(&first);
    while all.len() < bytes {
        all.extend_from_slice(&pieces.next()?);
    }
    (all.len() == bytes).then(|| all.freeze())
}
