//! A queue that serves: a member of its topic's consumer, the messages at its head, and who gets them.
//!
//! ```text
//!   node: waits ──leased──► ready ──delivered──► unacked (a channel has it)
//!           ▲                │ ▲                    │
//!           │   nobody wants │ └──── requeued ──────┤
//!           └────────────────┘                      └──acknowledged──► settled in the node
//! ```

use super::calls::{Calls, ClientId, Then};
use super::message::{Event, Message};
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
use wire::{Incarnation, LeaseId, MemberId, Offset, PartitionIndex, TopicId};

/// The consumer of a queue's topic, whose members get its messages.
pub(super) const CONSUMER: &str = "amqp";
/// Messages that are ready here, beside those that channels have.
const WINDOW_EVENTS: u64 = 512;
/// Their bytes.
const WINDOW_BYTES: u64 = 8 << 20;
/// Bytes of messages that channels have and that are kept here, so that a requeue costs nothing.
const KEPT_BYTES_MAX: u64 = 32 << 20;
/// Settlements of one request.
const SETTLEMENTS_MAX: usize = 4096;
/// How long a lease lasts: as long as a queue may say. It ends with its channel.
const LEASE_MS: u64 = 31 * 24 * 3600 * 1000;
/// How often leases are made to last longer.
pub(super) const EXTEND: Duration = Duration::from_secs(10 * 24 * 3600);
/// How long a member may be away that comes back with the next start of the server.
const SESSION_TIMEOUT_MS: u32 = 60_000;
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
    pub ready: BTreeMap<Offset, Ready>,
    ready_bytes: u64,
    unacked: u64,
    unacked_bytes: u64,
    kept_bytes: u64,
    largest: u64,
    pub consumers: Vec<Consumer>,
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
    is_settling: bool,
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

/// The id of the queue whose topic has this name.
pub(super) fn queue_of(topic: &str) -> Option<vhost::QueueId> {
    let (_, id) = topic.rsplit_once(SUFFIX)?;
    let is_plain = id.bytes().all(|one| one.is_ascii_digit()) && !id.starts_with('0');
    is_plain.then(|| id.parse().ok().map(vhost::QueueId))?
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
            member,
            before: MemberId(0),
            instance: String::new(),
            session_timeout_ms: SESSION_TIMEOUT_MS,
            prefetch_events: 0,
            prefetch_bytes: 0,
            inline_data: true,
            held: Vec::new(),
        };
        let request = CoordinatorRequest::Join(topic, join);
        let join = calls.call(session, request, Then::Joined(queue.id));
        Self {
            queue,
            topic,
            session,
            member,
            join,
            joined: false,
            ready: BTreeMap::new(),
            ready_bytes: 0,
            unacked: 0,
            unacked_bytes: 0,
            kept_bytes: 0,
            largest: 0,
            consumers: Vec::new(),
            turn: 0,
            gets: VecDeque::new(),
            gets_wait: false,
            purge: None,
            waiting: 0,
            coming: 0,
            settlements: Vec::new(),
            is_settling: false,
            sequence: 0,
            prefetch: None,
            wanted: now.monotonic,
            used: now.monotonic,
            extend_at: now.monotonic + EXTEND,
            timer_at: None,
            is_going: false,
        }
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
        let asked = match self.is_wanted(now) {
            true => {
                let window = WINDOW_BYTES.max(2 * self.largest);
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
                && known.bytes.abs_diff(asked.bytes) < WINDOW_BYTES / 4
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

    /// The data of an event has come.
    pub fn data_came(&mut self, offset: Offset, data: Bytes) {
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

    /// A channel has it from now on. Gives what it is to know of it.
    pub fn handed_out(&mut self, mut held: Held) -> Held {
        self.unacked += 1;
        self.unacked_bytes += held.bytes;
        // A dead letter has its message again.
        let has_letters = self.queue.options.dead_letter_exchange.is_some();
        match self.kept_bytes + held.bytes > KEPT_BYTES_MAX && !has_letters {
            true => held.message = None,
            false => self.kept_bytes += held.bytes,
        }
        held
    }

    /// A channel has it no more.
    pub fn handed_in(&mut self, held: &Held) {
        self.unacked = self.unacked.saturating_sub(1);
        self.unacked_bytes = self.unacked_bytes.saturating_sub(held.bytes);
        if held.message.is_some() {
            self.kept_bytes = self.kept_bytes.saturating_sub(held.bytes);
        }
    }

    /// A message that was handed in goes to its old place.
    pub fn requeue(&mut self, held: Held) {
        if held.message.is_none() {
            self.settle(&held, SettleAs::Return);
            self.waiting += 1;
            return;
        }
        let held = Held {
            redelivered: true,
            ..held
        };
        self.put(Ready {
            held,
            is_for_now: false,
            is_coming: false,
        });
    }

    /// Tells the node, with the next request, what became of a message.
    pub fn settle(&mut self, held: &Held, how: SettleAs) {
        let end = Offset(held.offset.0 + 1);
        if let Some(last) = self.settlements.last_mut()
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
    pub fn send_settlements(&mut self, calls: &mut Calls) {
        if self.is_settling || self.settlements.is_empty() {
            return;
        }
        let count = self.settlements.len().min(SETTLEMENTS_MAX);
        let settlements = self.settlements.drain(..count).collect();
        self.sequence += 1;
        self.is_settling = true;
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

    /// The request was answered.
    pub fn settled(&mut self) {
        self.is_settling = false;
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
            }
        }
        let best = best?;
        self.turn = best + 1;
        Some(self.consumers[best].clone())
    }

    /// When it is to be looked at again, at the latest.
    pub fn due(&self, now: Now) -> Option<Duration> {
        let at = |unix_ns: u64| {
            now.monotonic + Duration::from_nanos(unix_ns.saturating_sub(now.unix_ns))
        };
        let head = self.ready.values().next();
        let expiry = head.and_then(|head| head.held.expires).map(at);
        let is_idle = self.consumers.is_empty();
        let unused = self.queue.options.expires.filter(|_| is_idle);
        let unused = unused.map(|expires| self.used + expires);
        let has_any = !self.ready.is_empty() || self.prefetch.is_some_and(|one| one.events > 0);
        let linger = (is_idle && has_any && !self.watches()).then(|| self.wanted + LINGER);
        let linger = linger.filter(|at| *at > now.monotonic);
        [expiry, unused, linger, Some(self.extend_at)]
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
