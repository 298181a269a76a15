//! A producer: events pushed into batches, futures that resolve to their ids.

use crate::batch_queue::{Identity, ProducerShared};
use crate::core::Opening;
use crate::error::ClientError;
use crate::event::Event;
use crate::following::{Following, Follows, release};
use crate::future::{FlushFuture, PushFuture};
use crate::handle::Of;
use crate::journal::Journal;
use crate::mailbox::{Command, Mailbox};
use crate::options::{AtBudget, ProducerOptions};
use crate::promise::{Pending, Promise};
use crate::threads::Threads;
use crate::topic_handle::TopicHandle;
use memory::fork::ForkSlot;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use topic::{PartitionSelector, SelectorInput};
use wire::{ProducerEpoch, ProducerId};

/// Of a producer's budget, each partition of a spread topic has an equal part, but at least this.
const PART_BUDGET_BYTES_MIN: u64 = 1 << 20;

/// Appends events to a topic, in the order of each thread's pushes, each
/// stored once. Can be used from several threads.
///
/// It has failed for good when the server refuses a batch in a way that
/// another try does not help, or does not acknowledge one within the
/// `ack_timeout`: then all futures that are not resolved fail with that error
/// (after a timeout it is not known whether their events were stored), and so
/// does every push from then on. So nothing is ever stored behind a batch that
/// was given up. Open another producer to go on.
///
/// In a forked child it opens anew, with another producer id; the parent's
/// futures fail with [`ClientError::Forked`] there.
///
/// Of a spread topic each partition fails by itself, and its node knows a producer of its own. Partitions that are added are used soon,
/// and when a [`TopicHandle::refresh`] has returned; a producer with a name appends to those that there were when it was opened, for
/// another one of the name may have come.
pub struct Producer {
    topic: TopicHandle,
    options: ProducerOptions,
    slot: ForkSlot<Open>,
}

impl TopicHandle {
    /// Opens a producer.
    ///
    /// # Errors
    /// As any call; [`ClientError::Io`] if the journal can't be opened.
    pub fn producer(&self, options: ProducerOptions) -> Result<Producer, ClientError> {
        self.begin_producer(options).wait()
    }

    /// [`TopicHandle::producer`], not waited for.
    pub fn begin_producer(&self, options: ProducerOptions) -> Pending<Producer> {
        Producer::begin(self, options)
    }
}

/// A producer in the process that opened it.
enum Open {
    /// Of one topic.
    Only(Lane),
    /// Of the partitions of a spread topic.
    Each(Box<Each>),
}

/// A lane for each partition of a spread topic.
struct Each {
    /// Held to choose, and to add.
    chosen: Mutex<Chosen>,
    mailbox: Arc<Mailbox>,
    options: ProducerOptions,
    journal: Option<Arc<Journal>>,
    /// How it gets partitions that are added, if it does.
    following: Option<Following>,
}

struct Chosen {
    /// Chooses the lane.
    selector: Box<dyn PartitionSelector>,
    lanes: Arc<Vec<Arc<Lane>>>,
}

/// All lanes, in the order of their partitions.
enum Lanes<'a> {
    Only(&'a Lane),
    Each(Arc<Vec<Arc<Lane>>>),
}

impl Lanes<'_> {
    fn iter(&self) -> impl Iterator<Item = &Lane> {
        let (only, each) = match self {
            Self::Only(one) => (Some(*one), &[][..]),
            Self::Each(each) => (None, &each[..]),
        };
        only.into_iter().chain(each.iter().map(|one| &**one))
    }
}

/// What appends to one topic: to all of its partitions, or as one partition of a spread topic.
struct Lane {
    shared: Arc<ProducerShared>,
    threads: Option<Arc<Threads>>,
}

impl Drop for Lane {
    fn drop(&mut self) {
        if let Some(threads) = &self.threads {
            threads.close();
        }
        let producer = self.shared.key;
        self.shared.mailbox.send(Command::CloseProducer(producer));
    }
}

impl Open {
    fn begin(topic: &TopicHandle, options: &ProducerOptions) -> Result<Pending<Self>, ClientError> {
        let session = topic.driver.session()?;
        let journal = match &options.journal {
            Some(path) => Some(Arc::new(Journal::open(path)?)),
            None => None,
        };
        let Some(parts) = topic.parts() else {
            let lane = Lane::begin(topic, options, journal)?;
            return Ok(lane.then(|lane| Ok(Self::Only(lane))));
        };
        let is_named = options.name.is_some();
        if is_named && parts.is_empty() {
            let why = format!("topic {} has no partition yet", topic.name());
            return Err(ClientError::UnknownPartition(why));
        }
        let selector = topic.state.definition.partition_selector();
        let selector = selector.build(&*topic.state.plugins, session.seed())?;
        let lanes = begin_lanes(topic, &parts, options, &journal)?;
        let mailbox = session.mailbox.clone();
        let (topic, options) = (topic.clone(), options.clone());
        Ok(lanes.then(move |lanes| {
            Ok(Self::Each(Box::new(Each {
                chosen: Mutex::new(Chosen {
                    selector,
                    lanes: Arc::new(lanes.into_iter().map(Arc::new).collect()),
                }),
                mailbox,
                options,
                journal,
                following: (!is_named).then(|| Following::new(topic)),
            })))
        }))
    }

    /// Puts it in its place, in this process; from now on it follows its topic.
    fn put(
        slot: &ForkSlot<Self>,
        make: impl FnOnce() -> Result<Self, ClientError>,
    ) -> Result<(), ClientError> {
        let open = slot.get_or_make(make)?;
        Following::start(&open);
        release(open);
        Ok(())
    }

    /// What an event with this input is to be appended by.
    #[inline]
    fn lane(&self, input: SelectorInput<'_>) -> Result<Of<'_, Lane>, ClientError> {
        match self {
            Self::Only(lane) => Ok(Of::Only(lane)),
            Self::Each(each) => {
                let mut chosen = each.lock();
                let count = chosen.lanes.len() as u32;
                let place = chosen.selector.select(input, count)?;
                Ok(Of::Shared(chosen.lanes[place as usize].clone()))
            }
        }
    }

    fn lanes(&self) -> Lanes<'_> {
        match self {
            Self::Only(lane) => Lanes::Only(lane),
            Self::Each(each) => Lanes::Each(each.lock().lanes.clone()),
        }
    }

    fn mailbox(&self) -> &Arc<Mailbox> {
        match self {
            Self::Only(lane) => &lane.shared.mailbox,
            Self::Each(each) => &each.mailbox,
        }
    }

    /// As the server knows it, or as the node of the first partition does.
    fn identity(&self) -> Result<Identity, ClientError> {
        let lanes = self.lanes();
        let first = lanes.iter().next();
        first.map(|lane| lane.shared.identity()).ok_or_else(|| {
            let why = "a producer of a topic that has no partition yet has no id";
            ClientError::UnknownPartition(why.to_owned())
        })
    }

    fn flush(&self) -> FlushFuture {
        match self {
            Self::Only(lane) => lane.flush(),
            Self::Each(_) => FlushFuture::all(self.lanes().iter().map(Lane::flush)),
        }
    }

    fn begin_flush(&self) -> FlushFuture {
        match self {
            Self::Only(lane) => lane.begin_flush(),
            Self::Each(_) => FlushFuture::all(self.lanes().iter().map(Lane::begin_flush)),
        }
    }
}

impl Each {
    fn lock(&self) -> MutexGuard<'_, Chosen> {
        self.chosen.lock().expect("no holder panics here")
    }
}

impl Follows for Open {
    fn following(&self) -> Option<&Following> {
        match self {
            Self::Only(_) => None,
            Self::Each(each) => each.following.as_ref(),
        }
    }

    fn known(&self) -> usize {
        self.lanes().iter().count()
    }

    fn add(this: &Arc<Self>, parts: &[TopicHandle]) -> Pending<()> {
        let (each, following) = match &**this {
            Self::Each(each) if !parts.is_empty() => (each, &each.following),
            _ => return Pending::ready(()),
        };
        let Some(following) = following else {
            return Pending::ready(());
        };
        let open = Arc::downgrade(this);
        let lanes = begin_lanes(&following.topic, parts, &each.options, &each.journal);
        let added = lanes.map(|lanes| {
            lanes.then(move |lanes| {
                let lanes = lanes.into_iter().map(Arc::new);
                let Some(open) = open.upgrade() else {
                    lanes.for_each(release);
                    return Ok(());
                };
                if let Self::Each(each) = &*open {
                    let mut chosen = each.lock();
                    let all = chosen.lanes.iter().cloned();
                    let all = all.chain(lanes);
                    chosen.lanes = Arc::new(all.collect());
                }
                release(open);
                Ok(())
            })
        });
        added.unwrap_or_else(Pending::failed)
    }
}

/// A lane for each of these partitions of a spread topic, whose partitions share the budget and the threads.
fn begin_lanes(
    topic: &TopicHandle,
    parts: &[TopicHandle],
    options: &ProducerOptions,
    journal: &Option<Arc<Journal>>,
) -> Result<Pending<Vec<Lane>>, ClientError> {
    let session = topic.driver.session()?;
    let count = topic.partition_count().max(1) as usize;
    let options = ProducerOptions {
        budget_bytes: (options.budget_bytes / count as u64).max(PART_BUDGET_BYTES_MIN),
        threads: options.threads.div_ceil(count),
        ..options.clone()
    };
    let lanes = parts
        .iter()
        .map(|part| Lane::begin(part, &options, journal.clone()));
    let lanes = lanes.collect::<Result<Vec<_>, _>>()?;
    let what = format!("a producer of {} to be opened", topic.name());
    let timeout = topic.driver.request_timeout().min(options.ack_timeout);
    Ok(Pending::all(lanes, &session.mailbox, what, timeout))
}

impl Lane {
    fn begin(
        topic: &TopicHandle,
        options: &ProducerOptions,
        journal: Option<Arc<Journal>>,
    ) -> Result<Pending<Self>, ClientError> {
        let session = topic.driver.session()?;
        let share = session.share(options.budget_bytes);
        let share_bytes = share.bytes();
        let mut shared_options = options.clone();
        if options.threads > 0 {
            if session.mailbox.is_driven_by_callers() {
                let reason = "a driver that its caller drives has no producers with threads";
                return Err(ClientError::Invalid(reason.to_owned()));
            }
            // Pushing is over when a thread finds the budget full: it waits.
            shared_options.at_budget = AtBudget::Block(options.ack_timeout);
        }
        let shared = Arc::new(ProducerShared::new(
            topic.state.clone(),
            shared_options,
            session.mailbox.clone(),
            journal,
            share,
            session.seed(),
            session.copies.clone(),
        )?);
        let threads = match options.threads {
            0 => None,
            _ => Some(Threads::start(&shared, share_bytes / 4)?),
        };
        session.register(&shared, threads.as_ref());
        let promise = Promise::new(&session.mailbox);
        // A program that gives an event up after so long does not wait longer to push one.
        let timeout = topic.driver.request_timeout().min(options.ack_timeout);
        session.mailbox.send(Command::Open {
            opening: Box::new(Opening::Producer(shared.clone())),
            timeout,
            promise: promise.clone(),
        });
        let lane = Self { shared, threads };
        let what = format!("a producer of {} to be opened", topic.name());
        Ok(Pending::new(promise, what, timeout, move |_| Ok(lane)))
    }

    fn push(&self, event: Event<'_>, at_budget: AtBudget) -> Result<PushFuture, ClientError> {
        match &self.threads {
            None => self.shared.push(event, at_budget),
            Some(threads) => threads.push(&self.shared, &event, at_budget),
        }
    }

    fn begin_flush(&self) -> FlushFuture {
        match &self.threads {
            None => self.shared.begin_flush(),
            Some(_) => self.flush(),
        }
    }

    fn flush(&self) -> FlushFuture {
        match &self.threads {
            None => self.shared.flush(),
            Some(threads) => threads.flush(&self.shared),
        }
    }

    /// Whether everything that was pushed was taken and acknowledged.
    fn is_drained(&self) -> bool {
        let threads = self.threads.as_ref();
        threads.is_none_or(|threads| threads.is_drained()) && self.shared.is_drained()
    }
}

impl Producer {
    pub(crate) fn begin(topic: &TopicHandle, options: ProducerOptions) -> Pending<Self> {
        if let Err(error) = options.check(&topic.state) {
            return Pending::failed(error);
        }
        let topic = topic.clone();
        match Open::begin(&topic, &options) {
            Err(error) => Pending::failed(error),
            Ok(opened) => opened.then(move |open| {
                let slot = ForkSlot::new();
                Open::put(&slot, || Ok(open))?;
                Ok(Self {
                    topic,
                    options,
                    slot,
                })
            }),
        }
    }

    /// This process's producer.
    #[inline]
    fn open(&self) -> Result<&Open, ClientError> {
        match self.slot.get_ref() {
            Some(open) => Ok(open),
            None => self.open_anew(),
        }
    }

    #[cold]
    fn open_anew(&self) -> Result<&Open, ClientError> {
        Open::put(&self.slot, || {
            Open::begin(&self.topic, &self.options)?.wait()
        })?;
        Ok(self.slot.get_ref().expect("the slot was just filled"))
    }

    /// Pushes an event; the future resolves when it is as durable as was asked.
    ///
    /// Never blocks below the budget. At the budget it does what
    /// [`ProducerOptions::at_budget`] says, after sending what gathers.
    ///
    /// # Errors
    /// - [`ClientError::Invalid`] when the topic's validator, limit or
    ///   partition selector refuses the event; with
    ///   [`ProducerOptions::threads`] the future has it;
    /// - [`ClientError::UnknownPartition`] when the topic has no such
    ///   partition, or none yet;
    /// - [`ClientError::Budget`] or [`ClientError::Timeout`] at the budget;
    /// - what the producer has failed with, if it has.
    pub fn push(&self, event: Event<'_>) -> Result<PushFuture, ClientError> {
        self.push_or(event, self.options.at_budget)
    }

    /// [`Producer::push`], which at the budget does what `at_budget` says. With
    /// [`AtBudget::Fail`] it never blocks.
    ///
    /// # Errors
    /// As [`Producer::push`].
    pub fn push_or(
        &self,
        event: Event<'_>,
        at_budget: AtBudget,
    ) -> Result<PushFuture, ClientError> {
        trace::passes!("pushed by the program");
        let open = self.open()?;
        let input = SelectorInput {
            key: event.key,
            requested: event.partition,
            metadata: event.metadata,
        };
        open.lane(input)?.push(event, at_budget)
    }

    /// Pushes an event of metadata alone: the fastest way.
    ///
    /// # Errors
    /// As [`Producer::push`].
    #[inline]
    pub fn push_metadata(&self, metadata: &[u8]) -> Result<PushFuture, ClientError> {
        trace::passes!("pushed by the program");
        let input = SelectorInput {
            metadata,
            ..SelectorInput::default()
        };
        let lane = self.open()?.lane(input)?;
        match &lane.threads {
            None => lane.shared.push_metadata(metadata),
            Some(_) => lane.push(Event::new(metadata), self.options.at_budget),
        }
    }

    /// Takes an event back. True if its batch was not closed and handed to
    /// the network yet: its future resolves to [`ClientError::Cancelled`], its
    /// data is not used any more, and the event is never stored. False if it
    /// was, or if the event is not of this producer: nothing changes, and the
    /// future resolves to what becomes of the event. Never blocks.
    pub fn cancel(&self, future: &PushFuture) -> bool {
        match self.slot.get() {
            Some(open) => open.lanes().iter().any(|lane| match &lane.threads {
                None => lane.shared.cancel(future),
                Some(threads) => threads.cancel(&lane.shared, future),
            }),
            None => false,
        }
    }

    /// Waits until everything that was pushed is acknowledged, and the
    /// journal, if there is one, is synced.
    ///
    /// # Errors
    /// [`ClientError::Timeout`], after which one may wait again, or what the
    /// producer has failed with.
    pub fn flush(&self, timeout: Duration) -> Result<(), ClientError> {
        self.flush_future().wait(timeout)
    }

    /// [`Producer::flush`] as a future. What gathers is sent at once.
    pub fn flush_future(&self) -> FlushFuture {
        match self.slot.get() {
            Some(open) => open.flush(),
            None => nothing_to_flush(),
        }
    }

    /// [`Producer::flush_future`] for somebody who goes on: batches that are
    /// sent by themselves, as soon as those before them are acknowledged, are
    /// not hurried. It takes about a microsecond, and wakes nobody.
    pub fn begin_flush(&self) -> FlushFuture {
        match self.slot.get() {
            Some(open) => open.begin_flush(),
            None => nothing_to_flush(),
        }
    }

    /// Flushes and ends the producer.
    ///
    /// # Errors
    /// As [`Producer::flush`]; what is not acknowledged by then has failed.
    pub fn close(self, timeout: Duration) -> Result<(), ClientError> {
        self.end(timeout)
    }

    /// Whether nobody waits for what is pushed from now on to be stored, because
    /// something else comes of it: acknowledgements may come a little later then,
    /// with other messages.
    pub(crate) fn set_quiet(&self, is_quiet: bool) {
        if let Some(open) = self.slot.get() {
            for lane in open.lanes().iter() {
                lane.shared.set_quiet(is_quiet);
            }
        }
    }

    /// [`Producer::close`], for those who cannot give it away.
    pub(crate) fn end(&self, timeout: Duration) -> Result<(), ClientError> {
        let result = self.flush(timeout);
        // Nothing is left for Drop to wait for.
        if let Some(open) = self.slot.get() {
            let error = ClientError::Closed;
            let lanes = open.lanes();
            let promises = lanes.iter().flat_map(|lane| lane.shared.fail(&error));
            for promise in promises {
                promise.resolve(Err(error.clone()));
            }
        }
        result
    }

    /// The name, if it has one.
    pub fn name(&self) -> Option<&str> {
        self.options.name.as_deref()
    }

    /// Its id, as the server knows it; of a spread topic, as that of the first partition knows it.
    ///
    /// # Errors
    /// In a forked child it may have to be opened anew; [`ClientError::UnknownPartition`] of a spread topic without partitions.
    pub fn id(&self) -> Result<ProducerId, ClientError> {
        Ok(self.open()?.identity()?.producer)
    }

    /// Its life: a greater one of the same name fences it.
    ///
    /// # Errors
    /// As [`Producer::id`].
    pub fn epoch(&self) -> Result<ProducerEpoch, ClientError> {
        Ok(self.open()?.identity()?.epoch)
    }

    /// Where it appends to.
    pub fn topic(&self) -> &TopicHandle {
        &self.topic
    }

    /// Bytes held for events that are not acknowledged.
    pub fn held_bytes(&self) -> u64 {
        let held = |open: Arc<Open>| {
            let lanes = open.lanes();
            lanes.iter().map(|lane| lane.shared.budget.held()).sum()
        };
        self.slot.get().map_or(0, held)
    }
}

impl Drop for Producer {
    /// Waits, up to the `ack_timeout`, until everything that was pushed in
    /// this process is acknowledged; not in a callback of a future, which
    /// runs on the thread that would be waited for.
    fn drop(&mut self) {
        if let Some(open) = self.slot.get()
            && open.mailbox().can_wait()
        {
            let lanes = open.lanes();
            // What was closed, or has failed, was given up; of a spread topic each partition by itself.
            let waits = |lane: &&Lane| lane.shared.failure().is_none() && !lane.is_drained();
            let flushes = lanes.iter().filter(waits).map(Lane::flush);
            // A program that cares for the outcome holds futures, or calls `close`.
            let _ = FlushFuture::all(flushes).wait(self.options.ack_timeout);
        }
    }
}

/// A flush where nothing was pushed in this process.
fn nothing_to_flush() -> FlushFuture {
    FlushFuture {
        last: Vec::new(),
        finish: Arc::new(|| Ok(())),
    }
}

impl fmt::Debug for Producer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Producer({:?} of {})", self.name(), self.topic.name())
    }
}
