//! Between the core and a consumer: batches of subscribed partitions that have
//! arrived, and acknowledgements that are to be sent.

use crate::error::ClientError;
use crate::faults::{Fault, planted};
use crate::feed::{Delivery, Feed, OnReady, Origin, Wanted};
use crate::mailbox::{Command, Mailbox};
use crate::merge::{Head, Merge, Turn};
use crate::options::ConsumerOptions;
use crate::promise::Promise;
use crate::topic_state::TopicState;
use bytes::Bytes;
use memory::Reservation;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use wire::record::{Gap, Position};
use wire::{Incarnation, PartitionIndex};

/// What has arrived for one partition, in order.
pub(crate) enum Arrival {
    Batch {
        incarnation: Incarnation,
        /// When the server took it.
        append_time: u64,
        /// How much memory data takes that did not come along.
        data_bytes: u64,
        /// The batch; its headers are verified, its sections are not.
        bytes: Bytes,
    },
    Gap {
        gap: Gap,
        /// Where reading goes on.
        next: Position,
    },
}

impl Arrival {
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Batch { bytes, .. } => bytes.len() as u64,
            // Gaps come without taking credit.
            Self::Gap { .. } => 0,
        }
    }

    fn append_time(&self) -> u64 {
        match self {
            Self::Batch { append_time, .. } => *append_time,
            Self::Gap { .. } => 0,
        }
    }

    /// Whether it brings events whose data did not come along.
    pub fn lacks_data(&self) -> bool {
        matches!(self, Self::Batch { data_bytes, .. } if *data_bytes > 0)
    }

    fn suits(&self, wanted: Wanted) -> bool {
        match self {
            Self::Batch { data_bytes, .. } => *data_bytes <= wanted.data_bytes_max,
            Self::Gap { .. } => wanted.gap,
        }
    }
}

/// One partition's arrivals.
#[derive(Default)]
struct Arrived {
    /// Counts up with every seek: what was meant for an older one is dropped.
    generation: u64,
    arrivals: VecDeque<Arrival>,
    /// Of each arrival, the tick in which it came, where partitions are merged.
    ticks: VecDeque<u64>,
    queued_bytes: u64,
    /// Taken by the puller and not yet reported to the core.
    unreported: u64,
    /// Where the subscription began, until the puller has taken it.
    begins_at: Option<Position>,
    /// The subscription has ended for good.
    failure: Option<ClientError>,
}

/// What happened to partitions of a group's member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    Assigned(Vec<PartitionIndex>),
    Revoking(Vec<PartitionIndex>),
    Lost(Vec<PartitionIndex>),
}

#[derive(Default)]
pub(crate) struct Partitions {
    arrived: BTreeMap<u32, Arrived>,
    /// The partition that comes next, for fairness.
    turn: u32,
    /// How partitions are merged, if they do not take turns.
    merge: Option<Merge>,
    /// Of a group's member: the partitions that it owns, and may acknowledge.
    owned: BTreeSet<u32>,
    /// What is to be reported to the puller before it takes anything more.
    changes: VecDeque<Change>,
}

/// Acknowledgements that were not sent yet.
#[derive(Default)]
pub(crate) struct Acknowledgements {
    pub positions: BTreeMap<u32, Position>,
    /// The core knows that there are some.
    pub scheduled: bool,
    /// Partitions that were sent elsewhere since acknowledgements were last
    /// sent: those that are under way do not count there any more.
    pub sought: BTreeSet<u32>,
    /// How many seeks of a partition are not answered. Until they are, its
    /// acknowledgements are held: a seek that is tried again would undo them.
    pub seeks: BTreeMap<u32, u32>,
    /// Why the last ones were refused.
    pub failure: Option<ClientError>,
    /// Of a group's member: partitions that were not its any more when their
    /// acknowledgements came, until it is reported.
    pub fenced: BTreeMap<u32, ClientError>,
}

impl Acknowledgements {
    /// A seek begins: what was acknowledged before is not to follow it, and
    /// what is acknowledged from now on waits for its answer.
    pub fn begin_seek(&mut self, partition: u32) {
        self.positions.remove(&partition);
        self.sought.insert(partition);
        *self.seeks.entry(partition).or_default() += 1;
    }

    /// A seek is answered. True if it was the last of its partition, and
    /// acknowledgements have waited for it.
    pub fn end_seek(&mut self, partition: u32) -> bool {
        let Some(count) = self.seeks.get_mut(&partition) else {
            return false;
        };
        *count -= 1;
        if *count > 0 {
            return false;
        }
        self.seeks.remove(&partition);
        self.positions.contains_key(&partition)
    }

    /// Takes what may be sent now; what is held by seeks stays.
    pub fn take(&mut self) -> BTreeMap<u32, Position> {
        self.scheduled = false;
        self.sought.clear();
        if self.seeks.is_empty() || planted(Fault::NoHold) {
            return std::mem::take(&mut self.positions);
        }
        let (held, free) = std::mem::take(&mut self.positions)
            .into_iter()
            .partition(|(partition, _)| self.seeks.contains_key(partition));
        self.positions = held;
        free
    }
}

/// The kind of consumer that reads partitions in their order, from standing
/// subscriptions.
pub(crate) struct Subscriptions {
    /// Bytes of each partition's batches that may wait here.
    window: u64,
    acknowledgements: Mutex<Acknowledgements>,
    /// Of the client's own: begins to read data of what has arrived.
    begin_reading: OnceLock<OnReady>,
    /// Events that were passed over, because there were newer ones. Counts up when the newer one
    /// is taken, with the puller held; read by anybody, so that no order is needed.
    skipped: AtomicU64,
}

/// What the handle of such a consumer and the core share.
pub(crate) type ConsumerFeed = Feed<Subscriptions>;

impl Delivery for Subscriptions {
    type Options = ConsumerOptions;
    type State = Partitions;

    fn rejoin(key: u64) -> Command {
        Command::RejoinGroup(key)
    }

    fn failure_of_part(partitions: &Partitions) -> Option<ClientError> {
        let mut partitions = partitions.arrived.values();
        partitions.find_map(|partition| partition.failure.clone())
    }
}

impl Feed<Subscriptions> {
    pub fn of_subscriptions(
        name: &str,
        topic: Arc<TopicState>,
        options: &ConsumerOptions,
        mailbox: Arc<Mailbox>,
        share: Reservation,
        partition_count: usize,
    ) -> Self {
        let window = options
            .credit_bytes
            .min(share.bytes() / partition_count.max(1) as u64)
            .max(1);
        let delivery = Subscriptions {
            window: match options.latest {
                // The next batch is chosen when this one has arrived: more of them under way
                // would only get old.
                true => 1,
                false => window,
            },
            acknowledgements: Mutex::default(),
            begin_reading: OnceLock::new(),
            skipped: AtomicU64::new(0),
        };
        let partitions = Partitions {
            merge: options.merge_wait.map(Merge::new),
            ..Partitions::default()
        };
        let origin = Origin {
            name,
            topic,
            mailbox,
            share,
            wants_inline_data: options.data.brings_inline_data(options.inline_along),
        };
        Self::new(origin, options.without_callbacks(), partitions, delivery)
    }

    pub fn acknowledgements(&self) -> MutexGuard<'_, Acknowledgements> {
        let acknowledgements = self.delivery.acknowledgements.lock();
        acknowledgements.expect("no holder panics here")
    }

    /// What is called must neither wait nor call anything of the user's.
    pub fn set_begin_reading(&self, begin: OnReady) {
        // There is one.
        let _ = self.delivery.begin_reading.set(begin);
    }

    /// For the core: something arrived whose data did not come along.
    pub fn begin_reading(&self) {
        if let Some(begin) = self.delivery.begin_reading.get() {
            begin();
        }
    }

    /// For the core: a subscription begins. Returns its generation and the
    /// bytes that may come before more are allowed.
    pub fn begin_subscription(&self, partition: u32) -> (u64, u64) {
        let mut feeds = self.lock();
        let feed = feeds.arrived.entry(partition).or_default();
        feed.unreported = 0;
        feed.failure = None;
        let credit = match self.options.latest {
            // What waits here takes none: a newer one takes its place.
            true => self.delivery.window,
            false => self.delivery.window.saturating_sub(feed.queued_bytes),
        };
        (feed.generation, credit)
    }

    /// For the puller: so many events were passed over.
    pub fn skip(&self, count: u64) {
        self.delivery.skipped.fetch_add(count, Ordering::Relaxed);
    }

    /// How many events were passed over.
    pub fn skipped(&self) -> u64 {
        self.delivery.skipped.load(Ordering::Relaxed)
    }

    /// For the core: where the subscription begins.
    pub fn begins_at(&self, partition: u32, generation: u64, position: Position) {
        let mut feeds = self.lock();
        let feed = feeds.arrived.entry(partition).or_default();
        if feed.generation == generation {
            feed.begins_at = Some(position);
        }
    }

    /// For the core: something arrived. Does not notify.
    pub fn arrive(&self, partition: u32, generation: u64, arrival: Arrival) {
        trace::passes!("waits for the program, within its credit");
        let mut feeds = self.lock();
        let tick = feeds.merge.as_ref().map(Merge::now);
        let feed = feeds.arrived.entry(partition).or_default();
        if feed.generation == generation {
            if self.options.latest && matches!(arrival, Arrival::Batch { .. }) {
                feed.keep_gaps();
            }
            feed.queued_bytes += arrival.bytes();
            feed.arrivals.push_back(arrival);
            feed.ticks.extend(tick);
        }
    }

    /// For the core: the subscription has ended for good.
    pub fn fail_partition(&self, partition: u32, error: ClientError) {
        let mut feeds = self.lock();
        let feed = feeds.arrived.entry(partition).or_default();
        feed.failure = Some(error);
        drop(feeds);
        self.notify();
    }

    /// For the puller: the next arrival of the partition whose turn it is,
    /// with the partition, and where its subscription began if that is news.
    /// None if that is not what is wanted now.
    pub fn take(self: &Arc<Self>, wanted: Wanted) -> Option<(u32, Option<Position>, Arrival)> {
        if self.options.latest && !wanted.gap {
            // It may be outdated by the time at which what was taken before has been handed out.
            return None;
        }
        let mut feeds = self.lock();
        if !feeds.changes.is_empty() {
            // What comes behind them may be of another time of the same partition.
            return None;
        }
        let partition = match feeds.whose_turn() {
            Turn::Of(partition) => partition,
            Turn::Nobody => return None,
            Turn::Held { begin } => {
                drop(feeds);
                if begin {
                    self.begin_tick();
                }
                return None;
            }
        };
        let front = feeds.arrived[&partition].arrivals.front();
        if front.is_some_and(|front| !front.suits(wanted)) {
            return None;
        }
        feeds.turn = partition.wrapping_add(1);
        let feed = feeds.arrived.get_mut(&partition).expect("found above");
        let arrival = feed.arrivals.pop_front().expect("found above");
        feed.ticks.pop_front();
        let bytes = arrival.bytes();
        feed.queued_bytes -= bytes;
        if !self.options.latest {
            feed.unreported += bytes;
        }
        let begins_at = feed.begins_at.take();
        // Half the window, so that the server never runs dry while the answer
        // travels, and few frames are sent.
        let report = feed.unreported * 2 >= self.delivery.window;
        let bytes = match report {
            true => std::mem::take(&mut feed.unreported),
            false => 0,
        };
        drop(feeds);
        if report {
            self.mailbox.send(Command::Consumed {
                consumer: self.key,
                partition: PartitionIndex(partition),
                bytes,
            });
        }
        Some((partition, begins_at, arrival))
    }

    /// Something is held back: after a tick it is looked at again.
    fn begin_tick(self: &Arc<Self>) {
        let Some(length) = self.lock().merge.as_ref().map(Merge::tick_length) else {
            return;
        };
        let promise = Promise::new(&self.mailbox);
        let (shared, alarm) = (Arc::downgrade(self), promise.clone());
        promise.on_done(Box::new(move || {
            // An error says that the client has ended.
            let is_due = matches!(alarm.try_take(), Some(Ok(_)));
            let Some(shared) = shared.upgrade().filter(|_| is_due) else {
                return;
            };
            if let Some(merge) = &mut shared.lock().merge {
                merge.ticked();
            }
            shared.notify();
        }));
        self.mailbox.send(Command::Alarm {
            after: length,
            promise,
        });
    }

    /// For the puller: where a partition's subscription began, if the puller
    /// has not been notified.
    pub fn begun(&self, partition: u32) -> Option<Position> {
        self.lock().arrived.get(&partition)?.begins_at
    }

    /// Drops what has arrived for a partition: it is read again from elsewhere.
    pub fn restart(&self, partition: u32) {
        self.lock().restart(partition);
    }

    /// Whether the consumer reads this partition. One that was lost and has
    /// come back is a group's member's again when it was notified of both: what he
    /// has in hand is from before.
    pub fn reads(&self, partition: u32) -> bool {
        let feeds = self.lock();
        if self.options.group.is_none() {
            return feeds.arrived.contains_key(&partition);
        }
        let is_lost = |change: &Change| match change {
            Change::Lost(partitions) => partitions.contains(&PartitionIndex(partition)),
            Change::Assigned(_) | Change::Revoking(_) => false,
        };
        feeds.owned.contains(&partition) && !feeds.changes.iter().any(is_lost)
    }

    /// The partitions that it reads.
    pub fn partitions(&self) -> Vec<u32> {
        let feeds = self.lock();
        match self.options.group {
            None => feeds.arrived.keys().copied().collect(),
            Some(_) => feeds.owned.iter().copied().collect(),
        }
    }

    /// For the core: what the group's member owns has changed. What has
    /// arrived of partitions that are to go, or are gone, is dropped.
    pub fn change(&self, change: Change) {
        if let Change::Assigned(partitions) = &change {
            let mut waiting = self.acknowledgements();
            for partition in partitions {
                waiting.fenced.remove(&partition.0);
            }
        }
        let mut feeds = self.lock();
        match &change {
            Change::Assigned(partitions) => {
                feeds.owned.extend(partitions.iter().map(|one| one.0));
            }
            // Still its own, until it is released.
            Change::Revoking(partitions) => {
                partitions.iter().for_each(|one| feeds.restart(one.0));
            }
            Change::Lost(partitions) => {
                for partition in partitions {
                    feeds.restart(partition.0);
                    feeds.owned.remove(&partition.0);
                }
            }
        }
        feeds.changes.push_back(change);
        drop(feeds);
        self.notify();
    }

    /// For the core: partitions were released, at the program's will.
    pub fn disown(&self, partitions: impl Iterator<Item = u32>) {
        let mut feeds = self.lock();
        for partition in partitions {
            feeds.owned.remove(&partition);
        }
    }

    /// For the puller: the next change that is to be reported to it.
    pub fn take_change(&self) -> Option<Change> {
        self.lock().changes.pop_front()
    }
}

impl Arrived {
    /// A newer batch takes the place of those that wait; what was lost is still reported.
    fn keep_gaps(&mut self) {
        self.arrivals
            .retain(|arrival| matches!(arrival, Arrival::Gap { .. }));
        self.queued_bytes = 0;
    }
}

impl Partitions {
    /// The partition whose arrival comes next.
    fn whose_turn(&mut self) -> Turn {
        let has_arrivals = |(_, feed): &(&u32, &Arrived)| !feed.arrivals.is_empty();
        let Some(merge) = &mut self.merge else {
            let mut behind = self.arrived.range(self.turn..);
            let mut before = self.arrived.range(..self.turn);
            let found = behind
                .find(has_arrivals)
                .or_else(|| before.find(has_arrivals));
            return found.map_or(Turn::Nobody, |(partition, _)| Turn::Of(*partition));
        };
        let is_silent = |feed: &Arrived| feed.arrivals.is_empty() && feed.failure.is_none();
        let is_awaited = self.arrived.values().any(is_silent);
        let heads = self.arrived.iter().filter_map(|(partition, feed)| {
            Some(Head {
                append_time: feed.arrivals.front()?.append_time(),
                partition: *partition,
                tick: *feed.ticks.front()?,
            })
        });
        merge.turn(heads, is_awaited)
    }

    fn restart(&mut self, partition: u32) {
        let feed = self.arrived.entry(partition).or_default();
        feed.generation += 1;
        feed.arrivals.clear();
        feed.ticks.clear();
        feed.queued_bytes = 0;
        feed.unreported = 0;
        feed.begins_at = None;
        feed.failure = None;
    }
}
