//! Consumers of a queue: single events under leases, settled one by one. What
//! happens to them is on the page `docs/concept/sharing.md`.

mod arrivals;
mod drain;
mod event;
mod held;
mod job_end;
mod lease_set;
mod leases;
mod options;
mod settlement;
mod work;

pub use drain::{Drain, Drained};
pub use event::QueueEvent;
use held::Held;
pub use job_end::JobEnd;
pub(crate) use lease_set::LeaseSet;
pub(crate) use leases::{LeasedBatch, Leases, QueueFeed};
pub use options::QueueConsumerOptions;
pub(crate) use settlement::SettleBatch;
pub use settlement::SettleFuture;

use crate::core::Opening;
use crate::error::ClientError;
use crate::event::ConsumedEvent;
use crate::following::release;
use crate::handle::{BeginAdded, Handle, Many, Pull};
use crate::mailbox::Command;
use crate::promise::{Pending, Promise, Reply};
use crate::replier::Replier;
use crate::standing::{Patience, Pulled};
use crate::topic_handle::TopicHandle;
use arrivals::Leased;
use memory::fork::ForkSlot;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use topic::QueueOptions;
use wire::codec::Codec;
use wire::message::{ConsumerDescription, Joined};
use wire::record::{ConsumerKind, Gap};
use wire::{ErrorCode, PartitionIndex};

/// One member of a queue: gets single events under leases, which others do
/// not get meanwhile. Can be used from several threads, which share the events.
///
/// It keeps its events through lost connections and restarts of the server,
/// for up to its session timeout. A member that was expelled (it was away for
/// longer) joins afresh by itself: settling what it had before gives
/// [`wire::ErrorCode::LeaseExpired`]. One with an instance name whose
/// successor took over does not: pulls fail with
/// [`wire::ErrorCode::MemberFenced`].
///
/// Events that wait here and are not pulled for two thirds of a lease are
/// given back, uncounted: a program that is busy keeps nothing from others.
///
/// In a forked child it joins anew, as another member; events that the parent
/// pulled are the parent's.
pub struct QueueConsumer {
    topic: TopicHandle,
    name: String,
    options: QueueConsumerOptions,
    slot: ForkSlot<Open>,
}

impl TopicHandle {
    /// Joins the queue `name`, which is made if it is not known: its members
    /// share the topic's events, each under a lease. The dead-letter topic
    /// is made if it is missing: with one partition, stored like this topic's first.
    ///
    /// # Errors
    /// As any call; [`ErrorCode::InvalidConsumer`] if the name is that of a
    /// group or an independent consumer, or the options are refused.
    pub fn queue(
        &self,
        name: &str,
        options: QueueConsumerOptions,
    ) -> Result<QueueConsumer, ClientError> {
        self.begin_queue(name, options).wait()
    }

    /// [`TopicHandle::queue`], not waited for.
    pub fn begin_queue(&self, name: &str, options: QueueConsumerOptions) -> Pending<QueueConsumer> {
        QueueConsumer::begin(self, name, options)
    }
}

/// A queue's consumer in the process that opened it.
type Open = Many<Leases>;

/// One handle of it: of its topic, or of one partition of a spread topic.
type One = Handle<Leases>;

/// What a handle has besides.
pub(crate) struct Own {
    /// The queue's options as they are.
    queue: QueueOptions,
    /// Replies to what was pulled; it ends with the consumer.
    replier: Arc<Replier>,
}

impl Pull for Leases {
    type Arrivals = Leased;
    type Event = QueueEvent;
    type Own = Own;

    fn came(open: &One) -> Result<(), ClientError> {
        open.feed.visit()
    }

    fn event(open: &One, (event, held): (ConsumedEvent, Held)) -> QueueEvent {
        let replier = Arc::downgrade(&open.own.replier);
        QueueEvent::new(event, open.feed.clone(), replier, held)
    }

    fn end(open: &One) {
        open.feed.close();
        open.feed.mailbox.send(Command::CloseQueue {
            queue: open.feed.key,
            timeout: open.feed.options.session_timeout,
            promise: None,
        });
    }
}

impl QueueConsumer {
    pub(crate) fn begin(
        topic: &TopicHandle,
        name: &str,
        options: QueueConsumerOptions,
    ) -> Pending<Self> {
        if let Err(error) = check(topic, name, &options) {
            return Pending::failed(error);
        }
        let session = match topic.driver.session() {
            Ok(session) => session,
            Err(error) => return Pending::failed(error),
        };
        let mailbox = session.mailbox.clone();
        let timeout = topic.driver.request_timeout();
        let (topic, name) = (topic.clone(), name.to_owned());
        // A queue that is known has its options, and its dead-letter topic, already.
        let known = topic.begin_describe_consumers(&name);
        let made = known.and_then(&mailbox, timeout, {
            let (topic, queue) = (topic.clone(), options.queue.clone());
            move |known| begin_dead_letters(&topic, known, queue)
        });
        made.and_then(&mailbox, timeout, move |made| {
            match made.and_then(|()| begin_all(&topic, &name, &options)) {
                Err(error) => Pending::failed(error),
                Ok(opened) => opened.then(move |open| {
                    let slot = ForkSlot::new();
                    release(Open::put(&slot, || Ok(open))?);
                    Ok(Self {
                        topic,
                        name,
                        options,
                        slot,
                    })
                }),
            }
        })
    }

    /// This process's membership.
    fn open(&self) -> Result<Arc<Open>, ClientError> {
        if let Some(open) = self.slot.get() {
            return Ok(open);
        }
        Open::put(&self.slot, || {
            begin_all(&self.topic, &self.name, &self.options)?.wait()
        })
    }

    /// The next event.
    ///
    /// Waits up to `timeout` (`None`: for ever; 0 only looks). `None` means one
    /// thing: the consumer was connected and a member, the queue gave out events,
    /// and none was ready for it within that time. (Others may have some, or
    /// have them returned with a delay.) While the server is away or the queue
    /// recovers a pull waits; only at its end is that an error. Nothing is lost
    /// by either, and the next pull goes on. A program that is about to end
    /// ([`QueueConsumer::wind_down`]) is given `None` at once.
    ///
    /// A pull without a timeout reports every 10 s what it waits for, if the
    /// driver has an [`crate::DriverOptions::on_waiting`].
    ///
    /// # Errors
    /// - [`ClientError::Unreachable`] when `timeout` has passed and the server is
    ///   away, or was until just before, or has not let the member in again; or,
    ///   whatever `timeout` is, when the server has been away for longer than the
    ///   driver's reconnect timeout;
    /// - [`ClientError::Recovering`] when `timeout` has passed and the queue waits
    ///   for members of before the server's start: it gives out nothing then;
    /// - [`ClientError::Invalid`] from the selector or the allocator, which
    ///   are asked again with the next pull; and when it is called within them;
    /// - [`ClientError::Damaged`] for bytes that fail their checksum; they are
    ///   delivered again;
    /// - [`ClientError::Server`] with [`wire::ErrorCode::MemberFenced`] once after
    ///   the processing timeout, and for good when a successor took over; with
    ///   other codes when the membership has ended for good.
    pub fn pull(&self, timeout: Option<Duration>) -> Result<Option<QueueEvent>, ClientError> {
        self.open()?.pull(timeout)
    }

    /// Events that are there, at least one and at most `max`; waits for the
    /// first as [`QueueConsumer::pull`] does. Empty when `timeout` has passed.
    ///
    /// # Errors
    /// As [`QueueConsumer::pull`].
    pub fn pull_batch(
        &self,
        max: usize,
        timeout: Option<Duration>,
    ) -> Result<Vec<QueueEvent>, ClientError> {
        if max == 0 {
            return Ok(Vec::new());
        }
        self.open()?.pull_batch(max, timeout)
    }

    /// One look of a [`QueueConsumer::pull_batch`] that its caller cuts into
    /// several, as one does that has other things to look at: waits for `look`
    /// at most, and not longer than `patience` lasts.
    ///
    /// # Errors
    /// As [`QueueConsumer::pull`].
    pub fn pull_look(
        &self,
        max: usize,
        patience: &Patience,
        look: Duration,
    ) -> Result<Pulled<QueueEvent>, ClientError> {
        self.open()?.pull_look(max, patience, look)
    }

    /// The program is about to end: nothing new is handed out from now on, and
    /// pulls give `None` at once. What lies here is given back, what was pulled
    /// can be settled for `within`: then the member leaves, and what is still
    /// unsettled goes to others, without counting as a delivery.
    ///
    /// Called by the consumer itself in time before a known [`JobEnd`]. Never
    /// waits, and may be called again: the earlier end counts.
    pub fn wind_down(&self, within: Duration) {
        if let Some(open) = self.slot.get() {
            for one in open.closed().iter() {
                one.feed.stop();
                wind_down(one, Duration::ZERO, within);
            }
        }
    }

    /// Whether nothing new is handed out any more, for the program is about to end.
    pub fn is_winding_down(&self) -> bool {
        let open = self.slot.get();
        open.is_some_and(|open| open.is_stopped())
    }

    /// Events for ever, until a pull fails or the program is about to end. An
    /// outage of any length ends it only if the driver has a reconnect timeout.
    pub fn events(&self) -> impl Iterator<Item = Result<QueueEvent, ClientError>> {
        std::iter::from_fn(|| self.pull(None).transpose())
    }

    /// Calls `callback` whenever [`QueueConsumer::pull`] may have something
    /// new to say, on the runtime's thread: for bridges to other ways of waiting.
    pub fn on_ready(&self, callback: Box<dyn Fn() + Send + Sync>) {
        if let Ok(open) = self.open() {
            open.set_on_ready(&Arc::from(callback));
        }
    }

    /// Takes the gaps that were met so far: events that retention removed, or
    /// that were lost, before they were settled.
    pub fn take_gaps(&self) -> Vec<(PartitionIndex, Gap)> {
        match self.slot.get() {
            Some(open) => open.take_gaps(),
            None => Vec::new(),
        }
    }

    /// The queue's options, as they were set when its name was first used.
    ///
    /// # Errors
    /// In a forked child it may have to join anew.
    pub fn queue_options(&self) -> Result<QueueOptions, ClientError> {
        let open = self.open()?;
        let one = open.first().ok_or_else(|| no_partition(&self.topic))?;
        Ok(one.own.queue.clone())
    }

    /// The name of the queue.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What is consumed.
    pub fn topic(&self) -> &TopicHandle {
        &self.topic
    }

    /// Leaves: gives back what was not pulled, waits until everything that
    /// was settled is durable, and ends the membership. Events that were
    /// pulled and are not settled by then go to others.
    ///
    /// # Errors
    /// [`ClientError::Timeout`] if the server does not answer within the
    /// request timeout.
    pub fn close(self) -> Result<(), ClientError> {
        self.begin_close().wait()
    }

    /// [`QueueConsumer::close`], not waited for. Nothing is handed out from now on.
    pub fn begin_close(&self) -> Pending<()> {
        let Some(open) = self.slot.get() else {
            return Pending::ready(());
        };
        begin_close(&open, self.topic.driver.request_timeout())
    }
}

impl Drop for QueueConsumer {
    /// Leaves, and waits for it up to the session timeout; not in a callback,
    /// which runs on the thread that would be waited for.
    fn drop(&mut self) {
        if let Some(open) = self.slot.get()
            && open.mailbox().can_wait()
        {
            // A program that cares for the outcome calls `close`.
            let _ = begin_close(&open, self.options.session_timeout).wait();
        }
    }
}

/// Makes the dead-letter topic, if the queue needs one and it is missing.
fn begin_dead_letters(
    topic: &TopicHandle,
    known: Result<Vec<ConsumerDescription>, ClientError>,
    queue: QueueOptions,
) -> Pending<()> {
    match dead_letter_topic(topic, known, queue) {
        Err(error) => Pending::failed(error),
        Ok(None) => Pending::ready(()),
        Ok(Some(name)) => topic.begin_companion(&name, &topic.definition_now()),
    }
}

/// The dead-letter topic that the queue needs, if it needs one.
fn dead_letter_topic(
    topic: &TopicHandle,
    known: Result<Vec<ConsumerDescription>, ClientError>,
    queue: QueueOptions,
) -> Result<Option<String>, ClientError> {
    let known = match known {
        Err(error) if error.code() == Some(ErrorCode::UnknownConsumer) => Vec::new(),
        known => known?,
    };
    let is_queue = |one: &&ConsumerDescription| one.kind == ConsumerKind::Queue;
    let queue = match known.iter().find(is_queue) {
        Some(known) => QueueOptions::from_json(&known.options).map_err(ClientError::damaged)?,
        None => queue,
    };
    let needs_one = queue.deliveries_max > 0;
    Ok(needs_one.then(|| queue.dead_letter_topic_of(topic.name())))
}

fn check(
    topic: &TopicHandle,
    name: &str,
    options: &QueueConsumerOptions,
) -> Result<(), ClientError> {
    topic::check_consumer_name(name).map_err(ClientError::invalid)?;
    options.check()?;
    // Without it no event could be read.
    topic.state.serializer().map(drop)
}

/// Joins the queue; that of a spread topic at each partition, as a topic by itself. What may be here unsettled is divided among
/// those.
fn begin_all(
    topic: &TopicHandle,
    name: &str,
    options: &QueueConsumerOptions,
) -> Result<Pending<Open>, ClientError> {
    let session = topic.driver.session()?;
    let seed = session.member_seed();
    let Some(parts) = topic.parts() else {
        let begun = begin(topic, name, options, seed)?;
        return Ok(begun.then(|one| Ok(Open::only_one(one))));
    };
    // Without one it is not known how its dead letters are stored, nor what the queue's options are.
    if parts.is_empty() {
        return Err(no_partition(topic));
    }
    let one_of = share_of(options, parts.len());
    let begun = parts.iter().map(|part| begin(part, name, &one_of, seed));
    let begun = begun.collect::<Result<Vec<_>, _>>()?;
    let what = format!("the membership of queue {name} of {}", topic.name());
    let added = begin_added(name, options, seed);
    Open::begin(topic, begun, Some(added), what)
}

/// What may be here unsettled of one of so many partitions.
fn share_of(options: &QueueConsumerOptions, count: usize) -> QueueConsumerOptions {
    QueueConsumerOptions {
        prefetch_events: (options.prefetch_events / count as u32).max(1),
        prefetch_bytes: (options.prefetch_bytes / count as u64).max(1),
        ..options.clone()
    }
}

/// Joins the queue at partitions that are added, when they have where their dead letters go.
fn begin_added(name: &str, options: &QueueConsumerOptions, seed: u128) -> BeginAdded<Leases> {
    let (name, options) = (name.to_owned(), options.clone());
    Box::new(move |topic, parts| {
        let session = match topic.driver.session() {
            Ok(session) => session,
            Err(error) => return Pending::failed(error),
        };
        let (mailbox, timeout) = (session.mailbox.clone(), topic.driver.request_timeout());
        let (topic, parts) = (topic.clone(), parts.to_vec());
        let (name, options) = (name.clone(), options.clone());
        let known = topic.begin_describe_consumers(&name);
        let made = known.and_then(&mailbox, timeout, {
            let (topic, queue) = (topic.clone(), options.queue.clone());
            move |known| begin_dead_letters(&topic, known, queue)
        });
        made.and_then(&mailbox, timeout, move |made| {
            let options = share_of(&options, topic.partition_count().max(1) as usize);
            let begin = |part| begin(part, &name, &options, seed);
            let begun = made.and_then(|()| parts.iter().map(begin).collect::<Result<Vec<_>, _>>());
            begun.map_or_else(Pending::failed, |begun| {
                topic.opened(begun, "a queue's partitions that were added")
            })
        })
    })
}

fn no_partition(topic: &TopicHandle) -> ClientError {
    ClientError::UnknownPartition(format!("topic {} has no partition yet", topic.name()))
}

fn begin(
    topic: &TopicHandle,
    name: &str,
    options: &QueueConsumerOptions,
    seed: u128,
) -> Result<Pending<One>, ClientError> {
    let session = topic.driver.session()?;
    let share = session.share(options.prefetch_bytes);
    let state = topic.state.clone();
    let mailbox = session.mailbox.clone();
    let feed = Arc::new(QueueFeed::of_leases(name, state, options, mailbox, share));
    session.register_queue(&feed);
    let promise = Promise::new(&session.mailbox);
    let timeout = topic.driver.request_timeout();
    session.mailbox.send(Command::Open {
        opening: Box::new(Opening::Queue {
            queue: feed.clone(),
            seed,
        }),
        timeout,
        promise: promise.clone(),
    });
    if let Some(end) = options.job_end {
        let (stop_after, leave_after) = end.from(SystemTime::now());
        session.mailbox.send(Command::WindDownQueue {
            queue: feed.key,
            stop_after,
            leave_after,
        });
    }
    let own = Own {
        queue: QueueOptions::default(),
        replier: Replier::new(topic, name.to_owned()),
    };
    let wanted = (options.data.clone(), options.allocator.clone());
    let arrivals = Leased::new(feed.clone());
    let mut open = One::new(topic, feed, wanted, arrivals, own);
    let what = format!("the membership of {}", open.feed.title);
    Ok(Pending::new(promise, what, timeout, move |reply: Reply| {
        let joined = Joined::from_bytes("joined", &reply.head).map_err(ClientError::damaged)?;
        open.own.queue = QueueOptions::from_json(&joined.options).map_err(ClientError::damaged)?;
        Ok(open)
    }))
}

fn wind_down(open: &One, stop_after: Duration, leave_after: Duration) {
    open.feed.mailbox.send(Command::WindDownQueue {
        queue: open.feed.key,
        stop_after,
        leave_after,
    });
}

fn begin_close(open: &Open, timeout: Duration) -> Pending<()> {
    let mailbox = open.mailbox();
    let mut closed: Vec<Pending<()>> = Vec::new();
    let mut name = "";
    let all = open.closed();
    for One { feed, .. } in all.iter() {
        name = &feed.name;
        feed.close();
        let promise = Promise::new(mailbox);
        mailbox.send(Command::CloseQueue {
            queue: feed.key,
            timeout,
            promise: Some(promise.clone()),
        });
        let what = format!("{} to leave", feed.title);
        closed.push(Pending::new(promise, what, timeout, |_| Ok(())));
    }
    let what = format!("all of {name} to leave");
    Pending::<()>::all_done(closed, mailbox, what, timeout)
}

impl fmt::Debug for QueueConsumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QueueConsumer({} of {})", self.name, self.topic.name())
    }
}
