//! Between the core and whoever pulls: batches that have arrived, and
//! acknowledgements that are to be sent.

use crate::callbacks::call_back;
use crate::error::ClientError;
use crate::faults::{Fault, planted};
use crate::mailbox::{Command, Mailbox};
use crate::merge::{Head, Merge, Turn};
use crate::options::ConsumerOptions;
use crate::promise::Promise;
use crate::standing::{Hindrance, Standing};
use crate::topic_state::TopicState;
use crate::visits::Visits;
use bytes::Bytes;
use memory::{Deadline, Reservation, Signal};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;
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
    fn bytes(&self) -> u64 {
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

/// What the puller takes next.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    /// Whether it is to be told of a gap now.
    pub gap: bool,
    /// A batch of more data is left for later.
    pub data_bytes_max: u64,
}

/// One partition's arrivals.
#[derive(Default)]
struct Feed {
    /// Counts up with every seek: what was meant for an older one is dropped.
    generation: u64,
    arrivals: VecDeque<Arrival>,
    /// Of each arrival, the tick in which it came, where partitions are merged.
    ticks: VecDeque<u64>,
    queued_bytes: u64,
    /// Taken by the puller and not yet told to the core.
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
pub(crate) struct Feeds {
    partitions: BTreeMap<u32, Feed>,
    /// The partition that comes next, for fairness.
    turn: u32,
    /// How partitions are merged, if they do not take turns.
    merge: Option<Merge>,
    /// Counts up with everything that a waiting puller should look at.
    news: u64,
    /// Of a group's member: the partitions that it owns, and may acknowledge.
    owned: BTreeSet<u32>,
    /// What the puller is to be told before it takes anything more.
    changes: VecDeque<Change>,
    /// Nothing will come of any partition.
    failure: Option<ClientError>,
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
    /// acknowledgements came, until it is told.
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

type OnReady = Arc<dyn Fn() + Send + Sync>;

/// What a consumer's handle and the core share.
pub(crate) struct ConsumerShared {
    /// Names it to the core.
    pub key: u64,
    pub name: String,
    pub topic: Arc<TopicState>,
    /// Without callbacks, and so without [`ConsumerOptions::data`].
    pub options: ConsumerOptions,
    /// Whether batches bring their inline data along.
    pub wants_inline_data: bool,
    pub mailbox: Arc<Mailbox>,
    /// Bytes of each partition's batches that may wait here.
    pub window: u64,
    /// A part of the driver's memory, held for as long as the consumer lives.
    _share: Reservation,
    /// Guards the arrivals; held for a push or a pop. `arrived` is told
    /// whenever `news` has changed.
    feeds: Mutex<Feeds>,
    arrived: Signal,
    pub acknowledgements: Mutex<Acknowledgements>,
    on_ready: Mutex<Option<OnReady>>,
    /// Of the client's own: called where the news came to be, at once.
    on_arrival: OnceLock<OnReady>,
    /// Of the client's own: begins to read data of what has arrived.
    begin_reading: OnceLock<OnReady>,
    pub visits: Visits,
    pub standing: Standing,
}

impl ConsumerShared {
    pub fn new(
        name: String,
        topic: Arc<TopicState>,
        options: &ConsumerOptions,
        mailbox: Arc<Mailbox>,
        share: Reservation,
        partition_count: usize,
    ) -> Self {
        Self {
            key: mailbox.next_key(),
            standing: Standing::new(format!("consumer {name} of {}", topic.name)),
            name,
            topic,
            mailbox,
            feeds: Mutex::new(Feeds {
                merge: options.merge_wait.map(Merge::new),
                ..Feeds::default()
            }),
            window: options
                .credit_bytes
                .min(share.bytes() / partition_count.max(1) as u64)
                .max(1),
            wants_inline_data: options.data.brings_inline_data(options.inline_along),
            options: options.without_callbacks(),
            _share: share,
            arrived: Signal::new(),
            acknowledgements: Mutex::default(),
            on_ready: Mutex::default(),
            on_arrival: OnceLock::new(),
            begin_reading: OnceLock::new(),
            visits: Visits::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Feeds> {
        self.feeds.lock().expect("no holder panics here")
    }

    /// Tells whoever waits that there is something to look at.
    pub fn notify(&self) {
        self.lock().news += 1;
        self.arrived.tell();
        self.mailbox.nudge();
        if let Some(on_arrival) = self.on_arrival.get() {
            on_arrival();
        }
        let on_ready = self.on_ready.lock().expect("no holder panics here").clone();
        if let Some(on_ready) = on_ready {
            call_back(move || on_ready());
        }
    }

    /// For the core: what keeps events from the consumer now, if something does.
    pub fn note(&self, now: Duration, hindrance: Option<Hindrance>) {
        if self.standing.note(now, hindrance) {
            self.notify();
        }
    }

    /// What is called must neither wait nor call anything of the user's.
    pub fn set_on_arrival(&self, on_arrival: OnReady) {
        // There is one.
        let _ = self.on_arrival.set(on_arrival);
    }

    /// What is called must neither wait nor call anything of the user's.
    pub fn set_begin_reading(&self, begin: OnReady) {
        // There is one.
        let _ = self.begin_reading.set(begin);
    }

    /// For the core: something arrived whose data did not come along.
    pub fn begin_reading(&self) {
        if let Some(begin) = self.begin_reading.get() {
            begin();
        }
    }

    pub fn set_on_ready(&self, on_ready: Option<OnReady>) {
        let mut held = self.on_ready.lock().expect("no holder panics here");
        let before = std::mem::replace(&mut *held, on_ready);
        drop(held);
        drop(before);
    }

    /// The count of news, to be given to [`ConsumerShared::wait`].
    pub fn news(&self) -> u64 {
        self.lock().news
    }

    /// Waits for news after `seen`; false when `deadline` has passed.
    pub fn wait(&self, seen: u64, deadline: Deadline) -> bool {
        self.visits.stay(|| self.wait_here(seen, deadline))
    }

    fn wait_here(&self, seen: u64, deadline: Deadline) -> bool {
        let driven = self.mailbox.drive(deadline, || self.lock().news != seen);
        let _bystander = match driven {
            Ok(done) => return done,
            Err(bystander) => bystander,
        };
        let mut feeds = self.lock();
        while feeds.news == seen {
            feeds = match self.arrived.wait(feeds, deadline) {
                Ok(feeds) => feeds,
                Err(_) => return false,
            };
        }
        true
    }

    /// For the core: a subscription begins. Returns its generation and the
    /// bytes that may come before more are allowed.
    pub fn begin_subscription(&self, partition: u32) -> (u64, u64) {
        let mut feeds = self.lock();
        let feed = feeds.partitions.entry(partition).or_default();
        feed.unreported = 0;
        feed.failure = None;
        (
            feed.generation,
            self.window.saturating_sub(feed.queued_bytes),
        )
    }

    /// For the core: where the subscription begins.
    pub fn begins_at(&self, partition: u32, generation: u64, position: Position) {
        let mut feeds = self.lock();
        let feed = feeds.partitions.entry(partition).or_default();
        if feed.generation == generation {
            feed.begins_at = Some(position);
        }
    }

    /// For the core: something arrived. Does not notify.
    pub fn arrive(&self, partition: u32, generation: u64, arrival: Arrival) {
        let mut feeds = self.lock();
        let tick = feeds.merge.as_ref().map(Merge::now);
        let feed = feeds.partitions.entry(partition).or_default();
        if feed.generation == generation {
            feed.queued_bytes += arrival.bytes();
            feed.arrivals.push_back(arrival);
            feed.ticks.extend(tick);
        }
    }

    /// For the core: the subscription has ended for good.
    pub fn fail(&self, partition: u32, error: ClientError) {
        let mut feeds = self.lock();
        let feed = feeds.partitions.entry(partition).or_default();
        feed.failure = Some(error);
        drop(feeds);
        self.notify();
    }

    /// For the puller: the next arrival of the partition whose turn it is,
    /// with the partition, and where its subscription began if that is news.
    /// None if that is not what is wanted now.
    pub fn take(self: &Arc<Self>, wanted: Wanted) -> Option<(u32, Option<Position>, Arrival)> {
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
        let front = feeds.partitions[&partition].arrivals.front();
        if front.is_some_and(|front| !front.suits(wanted)) {
            return None;
        }
        feeds.turn = partition.wrapping_add(1);
        let feed = feeds.partitions.get_mut(&partition).expect("found above");
        let arrival = feed.arrivals.pop_front().expect("found above");
        feed.ticks.pop_front();
        let bytes = arrival.bytes();
        feed.queued_bytes -= bytes;
        feed.unreported += bytes;
        let begins_at = feed.begins_at.take();
        // Half the window, so that the server never runs dry while the answer
        // travels, and few frames are sent.
        let report = feed.unreported * 2 >= self.window;
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
        let (shared, rung) = (Arc::downgrade(self), promise.clone());
        promise.on_done(Box::new(move || {
            // An error says that the client has ended.
            let has_rung = matches!(rung.try_take(), Some(Ok(_)));
            let Some(shared) = shared.upgrade().filter(|_| has_rung) else {
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
    /// has not been told.
    pub fn begun(&self, partition: u32) -> Option<Position> {
        self.lock().partitions.get(&partition)?.begins_at
    }

    /// Why a partition gives nothing more, if one does.
    pub fn failure(&self) -> Option<ClientError> {
        let feeds = self.lock();
        let of_one = feeds
            .partitions
            .values()
            .find_map(|feed| feed.failure.clone());
        of_one.or_else(|| feeds.failure.clone())
    }

    /// Drops what has arrived for a partition: it is read again from elsewhere.
    pub fn restart(&self, partition: u32) {
        self.lock().restart(partition);
    }

    /// Whether the consumer reads this partition. One that was lost and has
    /// come back is a group's member's again when he was told of both: what he
    /// has in hand is from before.
    pub fn reads(&self, partition: u32) -> bool {
        let feeds = self.lock();
        if self.options.group.is_none() {
            return feeds.partitions.contains_key(&partition);
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
            None => feeds.partitions.keys().copied().collect(),
            Some(_) => feeds.owned.iter().copied().collect(),
        }
    }

    /// For the core: what the group's member owns has changed. What has
    /// arrived of partitions that are to go, or are gone, is dropped.
    pub fn change(&self, change: Change) {
        if let Change::Assigned(partitions) = &change {
            let waiting = self.acknowledgements.lock();
            let mut waiting = waiting.expect("no holder panics here");
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

    /// For the puller: the next change that it is to be told.
    pub fn take_change(&self) -> Option<Change> {
        self.lock().changes.pop_front()
    }

    /// For the core: nothing will come of any partition.
    pub fn fail_all(&self, error: ClientError) {
        self.lock().failure.get_or_insert(error);
        self.notify();
    }
}

impl Feeds {
    /// The partition whose arrival comes next.
    fn whose_turn(&mut self) -> Turn {
        let has_arrivals = |(_, feed): &(&u32, &Feed)| !feed.arrivals.is_empty();
        let Some(merge) = &mut self.merge else {
            let mut behind = self.partitions.range(self.turn..);
            let mut before = self.partitions.range(..self.turn);
            let found = behind
                .find(has_arrivals)
                .or_else(|| before.find(has_arrivals));
            return found.map_or(Turn::Nobody, |(partition, _)| Turn::Of(*partition));
        };
        let is_silent = |feed: &Feed| feed.arrivals.is_empty() && feed.failure.is_none();
        let is_awaited = self.partitions.values().any(is_silent);
        let heads = self.partitions.iter().filter_map(|(partition, feed)| {
            Some(Head {
                append_time: feed.arrivals.front()?.append_time(),
                partition: *partition,
                tick: *feed.ticks.front()?,
            })
        });
        merge.turn(heads, is_awaited)
    }

    fn restart(&mut self, partition: u32) {
        let feed = self.partitions.entry(partition).or_default();
        feed.generation += 1;
        feed.arrivals.clear();
        feed.ticks.clear();
        feed.queued_bytes = 0;
        feed.unreported = 0;
        feed.begins_at = None;
        feed.failure = None;
    }
}
