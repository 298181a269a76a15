//! A consumer: events pulled one by one or by the batch, and acknowledged.

mod arrivals;
mod choices;
mod subscriptions;

pub(crate) use subscriptions::{Acknowledgements, Arrival, Change, ConsumerFeed, Subscriptions};

use crate::core::Opening;
use crate::error::ClientError;
use crate::event::{ConsumedEvent, ReplyData};
use crate::exclusive::{Having, Refused};
use crate::explain::Explanation;
use crate::following::release;
use crate::future::PushFuture;
use crate::handle::{BeginAdded, Handle, Many, Of, Pull};
use crate::mailbox::{CallRequest, Command, Seek};
use crate::options::{ConsumerOptions, GapCallback, GroupMember, PartitionsCallback};
use crate::promise::{Answered, Pending, Promise};
use crate::puller::{Arrivals, Puller};
use crate::replier::Replier;
use crate::standing::{Patience, Pulled};
use crate::topic_handle::TopicHandle;
use crate::when::When;
use arrivals::Subscribed;
use choices::Choices;
use memory::Deadline;
use memory::fork::ForkSlot;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use wire::codec::Codec;
use wire::message::{CursorMove, Method, MoveCursors, PartitionDescription, Start};
use wire::record::{Gap, Position};
use wire::{ErrorCode, ErrorReply, EventId, Offset, PartitionIndex};

/// Reads a topic's events in the order of each partition, from standing
/// subscriptions. Can be used from several threads, which share the events.
///
/// In a forked child it subscribes anew, as its options say.
pub struct Consumer {
    topic: TopicHandle,
    name: String,
    options: ConsumerOptions,
    /// What the data selector chose; of one that has none, nothing.
    choices: Arc<Choices>,
    slot: ForkSlot<Open>,
}

impl TopicHandle {
    /// Opens a consumer under `name`, which its cursors are kept under.
    ///
    /// # Errors
    /// As any call; [`ClientError::Invalid`] for a name that cannot be, or a
    /// partition out of range.
    pub fn consumer(&self, name: &str, options: ConsumerOptions) -> Result<Consumer, ClientError> {
        self.begin_consumer(name, options).wait()
    }

    /// [`TopicHandle::consumer`], not waited for.
    pub fn begin_consumer(&self, name: &str, options: ConsumerOptions) -> Pending<Consumer> {
        Consumer::begin(self, name, options)
    }

    /// Joins the group `name`, which is made if it is not known: its members
    /// share the topic's partitions, and each reads those that it is assigned.
    ///
    /// # Errors
    /// As any call; [`ErrorCode::InvalidConsumer`] if the name is that of a
    /// queue or an independent consumer, or the options are refused.
    pub fn group(
        &self,
        name: &str,
        member: GroupMember,
        options: ConsumerOptions,
    ) -> Result<Consumer, ClientError> {
        let options = ConsumerOptions {
            group: Some(member),
            ..options
        };
        self.consumer(name, options)
    }
}

/// A consumer in the process that opened it.
type Open = Many<Subscriptions>;

/// One handle of it: of all partitions of its topic, or of one of a spread topic.
type One = Handle<Subscriptions>;

/// What a handle has besides.
pub(crate) struct Own {
    /// With its callbacks, if the consumer is a group's member.
    member: Option<GroupMember>,
    replier: Arc<Replier>,
}

impl Pull for Subscriptions {
    type Arrivals = Subscribed;
    type Event = ConsumedEvent;
    type Own = Own;

    fn came(open: &One) -> Result<(), ClientError> {
        follow_changes(open)
    }

    fn event(_open: &One, event: ConsumedEvent) -> ConsumedEvent {
        event
    }

    fn end(open: &One) {
        let consumer = open.feed.key;
        open.feed.mailbox.send(Command::CloseConsumer(consumer));
    }
}

impl Consumer {
    pub(crate) fn begin(
        topic: &TopicHandle,
        name: &str,
        options: ConsumerOptions,
    ) -> Pending<Self> {
        if let Err(error) = topic::check_consumer_name(name) {
            return Pending::failed(ClientError::invalid(error));
        }
        Self::begin_checked(topic, name, options, begin)
    }

    /// One without a name, and so without a cursor: nothing can be acknowledged.
    /// In a partition that `starts` names it begins there.
    pub(crate) fn begin_anonymous(
        topic: &TopicHandle,
        options: ConsumerOptions,
        start: Start,
        starts: Vec<(PartitionIndex, Position)>,
    ) -> Pending<Self> {
        Self::begin_checked(topic, "", options, |topic, name, options| {
            begin_all(topic, name, options, |topic, name, options, seed| {
                begin_at(topic, name, options, start, starts.clone(), seed)
            })
        })
    }

    fn begin_checked(
        topic: &TopicHandle,
        name: &str,
        options: ConsumerOptions,
        begin: impl FnOnce(&TopicHandle, &str, &ConsumerOptions) -> Result<Pending<Open>, ClientError>,
    ) -> Pending<Self> {
        if let Err(error) = options.check() {
            return Pending::failed(error);
        }
        let (topic, name) = (topic.clone(), name.to_owned());
        let choices = Arc::new(Choices::default());
        let options = ConsumerOptions {
            data: choices.counted(options.data),
            ..options
        };
        // Without it no event could be read.
        let serializer = topic.state.serializer().map(drop);
        match serializer.and_then(|()| begin(&topic, &name, &options)) {
            Err(error) => Pending::failed(error),
            Ok(opened) => opened.then(move |open| {
                let slot = ForkSlot::new();
                release(Open::put(&slot, || Ok(open))?);
                Ok(Self {
                    topic,
                    name,
                    options,
                    choices,
                    slot,
                })
            }),
        }
    }

    /// This process's subscriptions.
    fn open(&self) -> Result<Arc<Open>, ClientError> {
        if let Some(open) = self.slot.get() {
            return Ok(open);
        }
        Open::put(&self.slot, || {
            begin(&self.topic, &self.name, &self.options)?.wait()
        })
    }

    /// The next event.
    ///
    /// Waits up to `timeout` (`None`: for ever; 0 only looks). `None` means one
    /// thing: the consumer was connected and subscribed, and nothing was there
    /// for it within that time. While the server is away a pull waits; only at
    /// its end is that an error. Nothing is lost by either, and the next pull
    /// goes on.
    ///
    /// A pull without a timeout reports every 10 s what it waits for, if the
    /// driver has an [`crate::DriverOptions::on_waiting`].
    ///
    /// # Errors
    /// - [`ClientError::Unreachable`] when `timeout` has passed and the server is
    ///   away, or was until just before, or the subscription does not stand again;
    ///   or, whatever `timeout` is, when the server has been away for longer than
    ///   the driver's reconnect timeout;
    /// - [`ClientError::Recovering`] when `timeout` has passed and the group waits
    ///   for members of before the server's start;
    /// - [`ClientError::Invalid`] from the selector or the allocator, which
    ///   are asked again with the next pull; and when it is called within them;
    /// - [`ClientError::Damaged`] for bytes that fail their checksum; they are
    ///   read again with the next pull;
    /// - [`ClientError::Server`] when a subscription has ended for good.
    pub fn pull(&self, timeout: Option<Duration>) -> Result<Option<ConsumedEvent>, ClientError> {
        trace::passes!("pulled by the program");
        self.open()?.pull(timeout)
    }

    /// Events that are there, at least one and at most `max`; waits for the
    /// first as [`Consumer::pull`] does. Empty when `timeout` has passed.
    ///
    /// # Errors
    /// As [`Consumer::pull`].
    pub fn pull_batch(
        &self,
        max: usize,
        timeout: Option<Duration>,
    ) -> Result<Vec<ConsumedEvent>, ClientError> {
        trace::passes!("pulled by the program");
        if max == 0 {
            return Ok(Vec::new());
        }
        self.open()?.pull_batch(max, timeout)
    }

    /// One look of a [`Consumer::pull_batch`] that its caller cuts into several,
    /// as one does that has other things to look at: waits for `look` at most,
    /// and not longer than `patience` lasts.
    ///
    /// # Errors
    /// As [`Consumer::pull`].
    pub fn pull_look(
        &self,
        max: usize,
        patience: &Patience,
        look: Duration,
    ) -> Result<Pulled<ConsumedEvent>, ClientError> {
        trace::passes!("pulled by the program");
        self.open()?.pull_look(max, patience, look)
    }

    /// Events up to and including `id` are done with, in its partition.
    ///
    /// Sent after the acknowledge interval, together with others, and durable
    /// a little later; [`Consumer::flush_acknowledgements`] waits for that.
    ///
    /// # Errors
    /// [`ClientError::UnknownPartition`] for a partition that is not there,
    /// [`ClientError::Invalid`] for one that is not read, and whatever
    /// the server had against acknowledgements sent before.
    pub fn acknowledge(&self, id: EventId) -> Result<(), ClientError> {
        let all = self.open()?;
        let position = Position {
            incarnation: id.incarnation,
            offset: id.offset.plus(1),
        };
        let partition = id.partition.0;
        let open = self.one(&all, id.partition)?;
        let mut waiting = open.feed.acknowledgements();
        let fenced = waiting.fenced.remove(&partition);
        if let Some(failure) = fenced.or_else(|| waiting.failure.take()) {
            return Err(failure);
        }
        if self.options.group.is_some() && !open.feed.reads(partition) {
            return Err(not_owned(&self.name, &self.topic, id.partition));
        }
        if let Some(newest) = waiting.positions.get_mut(&partition) {
            *newest = (*newest).max(position);
        } else {
            if !open.feed.reads(partition) {
                return Err(not_read(&self.name, &self.topic, id.partition));
            }
            waiting.positions.insert(partition, position);
        }
        if std::mem::replace(&mut waiting.scheduled, true) {
            return Ok(());
        }
        drop(waiting);
        let consumer = open.feed.key;
        open.feed.mailbox.send(Command::Acknowledge { consumer });
        Ok(())
    }

    /// Replies to a request that this consumer got, for
    /// [`crate::Requester::broadcast`]; resolves when the reply is stored. The
    /// first reply waits for the producer that writes them, and any one for
    /// space, while too much is not stored yet. A callback cannot wait: see
    /// [`Consumer::begin_replying`].
    ///
    /// # Errors
    /// [`ClientError::Invalid`] if the event is no request, and those of
    /// [`crate::Producer::push`].
    pub fn reply<'a>(
        &self,
        request: &ConsumedEvent,
        metadata: &[u8],
        data: impl Into<ReplyData<'a>>,
    ) -> Result<PushFuture, ClientError> {
        let open = self.open()?;
        let one = self.first(&open)?;
        let replier = &one.own.replier;
        replier.reply(request, metadata, data.into(), true, false)
    }

    /// [`Consumer::reply`], which does not wait for space.
    ///
    /// # Errors
    /// [`ClientError::Budget`] where that would.
    pub fn try_reply<'a>(
        &self,
        request: &ConsumedEvent,
        metadata: &[u8],
        data: impl Into<ReplyData<'a>>,
    ) -> Result<PushFuture, ClientError> {
        let open = self.open()?;
        let one = self.first(&open)?;
        let replier = &one.own.replier;
        replier.reply(request, metadata, data.into(), false, false)
    }

    /// Has made what the first reply waits for: gives a future of when that is
    /// over, or `None` if no reply waits for it any more.
    ///
    /// # Errors
    /// In a forked child it may have to subscribe anew.
    pub fn begin_replying(&self) -> Result<Option<Answered>, ClientError> {
        let open = self.open()?;
        Ok(self.first(&open)?.own.replier.begin())
    }

    /// What all that is read has in common.
    fn first<'a>(&self, open: &'a Open) -> Result<Of<'a, One>, ClientError> {
        open.first().ok_or_else(|| {
            let why = format!("topic {} has no partition yet", self.topic.name());
            ClientError::UnknownPartition(why)
        })
    }

    /// Waits until everything that was acknowledged is durable. What was
    /// acknowledged behind a seek waits for that seek's answer first.
    ///
    /// # Errors
    /// As any call.
    pub fn flush_acknowledgements(&self, timeout: Duration) -> Result<(), ClientError> {
        self.begin_flush_acknowledgements(timeout).wait()
    }

    /// [`Consumer::flush_acknowledgements`], not waited for.
    pub fn begin_flush_acknowledgements(&self, timeout: Duration) -> Pending<()> {
        let open = match self.open() {
            Ok(open) => open,
            Err(error) => return Pending::failed(error),
        };
        let what = format!("the cursors of consumer {}", self.name);
        let mailbox = open.mailbox();
        let all = open.all();
        let flushes = all.iter().map(|one| {
            let promise = Promise::new(mailbox);
            mailbox.send(Command::FlushAcknowledgements {
                consumer: one.feed.key,
                timeout,
                promise: promise.clone(),
            });
            Pending::new(promise, what.clone(), timeout, |_| Ok(()))
        });
        Pending::<()>::all_done(flushes.collect(), mailbox, what.clone(), timeout)
    }

    /// Goes to `position`, be it backwards; the cursor moves there, durably.
    ///
    /// # Errors
    /// As any call; [`ClientError::UnknownPartition`] for a partition that is
    /// not there, [`ClientError::Invalid`] for one that is not read, and within
    /// this consumer's selector or allocator.
    pub fn seek(&self, partition: PartitionIndex, position: Position) -> Result<(), ClientError> {
        let all = self.open()?;
        let open = self.one(&all, partition)?;
        // Before anything is moved.
        drop(self.puller_for_seek(&open)?);
        self.move_cursor(&open, partition, position)?.wait()?;
        let promise = Promise::new(&open.feed.mailbox);
        let puller = self.puller_for_seek(&open)?;
        resubscribe(&open, puller, partition, position, Some(promise.clone()));
        let what = format!("the subscription to {}/{partition}", self.topic.name());
        let timeout = self.topic.driver.request_timeout();
        Pending::new(promise, what, timeout, |_| Ok(())).wait()
    }

    /// [`Consumer::seek`], not waited for: reading goes on at `position` at
    /// once, and the answer comes when the cursor is durable.
    ///
    /// What is acknowledged in the partition meanwhile is sent behind the
    /// answer, and never undone by the seek, however often it had to be tried;
    /// a consumer that is dropped before the answer, without
    /// [`Consumer::close`], does not send it. A seek that is begun before the
    /// answer to another one follows it in the same way.
    ///
    /// # Errors
    /// [`ClientError::UnknownPartition`] for a partition that is not there,
    /// [`ClientError::Invalid`] for one that is not read, and within this
    /// consumer's selector or allocator.
    pub fn begin_seek(
        &self,
        partition: PartitionIndex,
        position: Position,
    ) -> Result<Pending<()>, ClientError> {
        let all = self.open()?;
        let open = self.one(&all, partition)?;
        let puller = self.puller_for_seek(&open)?;
        let moved = self.move_cursor(&open, partition, position)?;
        resubscribe(&open, puller, partition, position, None);
        Ok(moved)
    }

    /// What reads a partition.
    fn one<'a>(
        &self,
        open: &'a Open,
        partition: PartitionIndex,
    ) -> Result<Of<'a, One>, ClientError> {
        let one = open.of(partition);
        one.ok_or_else(|| not_read(&self.name, &self.topic, partition))
    }

    fn puller_for_seek<'a>(
        &self,
        open: &'a One,
    ) -> Result<Having<'a, Puller<Subscribed>>, ClientError> {
        let deadline = Deadline::after(self.topic.driver.request_timeout());
        let had = open.puller.have(deadline);
        had.map_err(|refused| refused.error("a seek", &self.name))
    }

    fn move_cursor(
        &self,
        open: &One,
        partition: PartitionIndex,
        position: Position,
    ) -> Result<Pending<()>, ClientError> {
        if !open.feed.reads(partition.0) {
            return Err(not_read(&self.name, &self.topic, partition));
        }
        open.feed.acknowledgements().begin_seek(partition.0);
        let body = MoveCursors {
            consumer: self.name.clone(),
            how: CursorMove::Seek,
            positions: vec![(partition, position)],
        };
        let promise = Promise::new(&open.feed.mailbox);
        let timeout = self.topic.driver.request_timeout();
        let what = format!(
            "the cursor of consumer {} of {}/{partition}",
            self.name,
            self.topic.name()
        );
        let pending = Pending::new(promise.clone(), what.clone(), timeout, |_| Ok(()));
        let seek = Seek {
            consumer: open.feed.key,
            partition,
        };
        let call = CallRequest {
            method: Method::MoveCursors,
            topic: open.feed.topic.id,
            body: body.to_bytes(),
            targets: Vec::new(),
            behind: Vec::new(),
            payload: Vec::new(),
            exposed: Vec::new(),
            timeout,
            grace: Duration::ZERO,
            what,
            promise,
        };
        open.feed.mailbox.send(Command::Seek { seek, call });
        Ok(pending)
    }

    /// Takes the gaps that were met so far.
    pub fn take_gaps(&self) -> Vec<(PartitionIndex, Gap)> {
        match self.slot.get() {
            Some(open) => open.take_gaps(),
            None => Vec::new(),
        }
    }

    /// How many events this consumer passed over since it was opened, of all partitions
    /// together, because there were newer ones: see [`ConsumerOptions::latest`], without which it
    /// is 0. In each partition they are, together with the events that were handed out and those
    /// that were lost, all from where it began to the last one that was handed out.
    pub fn skipped(&self) -> u64 {
        let open = self.slot.get();
        open.map_or(0, |open| {
            open.all().iter().map(|one| one.feed.skipped()).sum()
        })
    }

    /// Why this consumer gets no event now, or events without data: as [`crate::Driver::explain`], which
    /// knows what the server knows, and what the data selector has chosen here.
    ///
    /// # Errors
    /// As any call.
    pub fn explain(&self) -> Result<Explanation, ClientError> {
        let driver = self.topic.driver();
        driver.explain_to(
            self.topic.name(),
            Some(&self.name),
            self.choices.all_nothing(),
        )
    }

    /// Calls `callback` for each gap, on the thread that pulls past it.
    pub fn on_gap(&self, callback: Arc<GapCallback>) {
        if let Ok(open) = self.open() {
            open.set_on_gap(&callback);
        }
    }

    /// Calls `callback` where and when something arrives: it must neither wait
    /// nor call anything of the user's.
    pub(crate) fn on_arrival(&self, callback: Arc<dyn Fn() + Send + Sync>) {
        if let Some(open) = self.slot.get() {
            open.set_on_arrival(callback);
        }
    }

    /// The next event, if it is there.
    pub(crate) fn look(&self) -> Result<Option<ConsumedEvent>, ClientError> {
        match self.slot.get() {
            Some(open) => open.try_pull(Deadline::NEVER),
            None => Ok(None),
        }
    }

    /// For a reader with a way of waiting of its own: the count of news, to be
    /// given to [`Consumer::wait_for_news`].
    pub(crate) fn news(&self) -> Result<u64, ClientError> {
        Ok(self.open()?.news())
    }

    /// Waits for news after `seen`; false when `deadline` has passed.
    pub(crate) fn wait_for_news(&self, seen: u64, deadline: Deadline) -> Result<bool, ClientError> {
        Ok(self.open()?.wait(seen, deadline))
    }

    /// Events that are there, at most `max`; does not wait. `on_gap` is called for
    /// each gap that was met among or behind them.
    pub(crate) fn take_ready(
        &self,
        max: usize,
        mut on_gap: impl FnMut(PartitionIndex, &Gap),
    ) -> Result<Vec<ConsumedEvent>, ClientError> {
        let open = self.open()?;
        let mut events = Vec::new();
        let mut failure = None;
        for one in open.all().iter() {
            let Some(mut puller) = one.puller(Deadline::after(Duration::ZERO))? else {
                continue;
            };
            while events.len() < max && failure.is_none() {
                match puller.next() {
                    Ok(Some(event)) => events.push(event),
                    Ok(None) => break,
                    Err(error) => failure = Some(error),
                }
            }
            let gaps = puller.arrivals.take_gaps();
            drop(puller);
            gaps.iter()
                .for_each(|(partition, gap)| on_gap(*partition, gap));
            one.feed.report_gaps(gaps);
        }
        match failure {
            // It comes again with the next one.
            Some(error) if events.is_empty() => Err(error),
            _ => Ok(events),
        }
    }

    /// Fails if nothing will come any more, however long it is waited for.
    pub(crate) fn standing(&self) -> Result<(), ClientError> {
        self.open()?.health()
    }

    /// Why nothing will come any more of a partition, or of all, if so.
    pub(crate) fn failure(&self) -> Option<ClientError> {
        let open = self.slot.get()?;
        open.all().iter().find_map(|one| one.feed.failure())
    }

    /// Calls `callback` whenever [`Consumer::pull`] may have something new to
    /// say, on the runtime's thread: for bridges to other ways of waiting.
    pub fn on_ready(&self, callback: Box<dyn Fn() + Send + Sync>) {
        if let Ok(open) = self.open() {
            open.set_on_ready(&Arc::from(callback));
        }
    }

    /// Whether this thread is in a pull of this consumer, and so within its
    /// selector or allocator, where a pull or a seek of it is refused.
    pub fn is_pulling_here(&self) -> bool {
        let open = self.slot.get();
        open.is_some_and(|open| open.all().iter().any(|one| one.puller.is_had_here()))
    }

    /// The next event of a partition that a pull gives, if that is known: not
    /// within this consumer's selector or allocator.
    pub fn position(&self, partition: PartitionIndex) -> Option<Position> {
        let open = self.slot.get()?;
        let deadline = Deadline::after(self.topic.driver.request_timeout());
        let one = open.of(partition)?;
        let puller = one.puller.have(deadline).ok()?;
        puller.position(partition.0)
    }

    /// The partitions that are read.
    pub fn partitions(&self) -> Vec<u32> {
        match self.slot.get() {
            Some(open) => {
                let all = open.all();
                all.iter().flat_map(|one| one.feed.partitions()).collect()
            }
            None => Vec::new(),
        }
    }

    /// The name, under which cursors are kept.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What is read.
    pub fn topic(&self) -> &TopicHandle {
        &self.topic
    }

    /// Sends what was acknowledged and ends the subscriptions.
    ///
    /// # Errors
    /// As [`Consumer::flush_acknowledgements`].
    pub fn close(self) -> Result<(), ClientError> {
        if self.slot.get().is_none() {
            return Ok(());
        }
        self.flush_acknowledgements(self.topic.driver.request_timeout())
    }
}

fn not_owned(consumer: &str, topic: &TopicHandle, partition: PartitionIndex) -> ClientError {
    ClientError::Server(ErrorReply::fatal(
        ErrorCode::MemberFenced,
        format!(
            "partition {partition} of {} is not this member's of group {consumer} now",
            topic.name()
        ),
    ))
}

fn not_read(consumer: &str, topic: &TopicHandle, partition: PartitionIndex) -> ClientError {
    let count = topic.partition_count();
    if partition.0 >= count {
        return ClientError::UnknownPartition(format!(
            "partition {partition} is out of range: {} has {count}, counted from 0",
            topic.name()
        ));
    }
    ClientError::Invalid(format!(
        "consumer {consumer} does not read partition {partition}"
    ))
}

fn begin(
    topic: &TopicHandle,
    name: &str,
    options: &ConsumerOptions,
) -> Result<Pending<Open>, ClientError> {
    begin_all(topic, name, options, begin_one)
}

/// Begins what `begin` does for the topic; of a spread topic for each partition that is read, as a topic by itself.
fn begin_all(
    topic: &TopicHandle,
    name: &str,
    options: &ConsumerOptions,
    begin: impl Fn(&TopicHandle, &str, &ConsumerOptions, u128) -> Result<Pending<One>, ClientError>,
) -> Result<Pending<Open>, ClientError> {
    let session = topic.driver.session()?;
    // The same for all partitions, so that all nodes have the members of a group in one order.
    let seed = session.member_seed();
    let Some(parts) = topic.parts() else {
        let begun = begin(topic, name, options, seed)?;
        return Ok(begun.then(|one| Ok(Open::only_one(one))));
    };
    if options.merge_wait.is_some() {
        let why = "partitions of a spread topic cannot be merged: they are read from their nodes one by one";
        return Err(ClientError::Invalid(why.to_owned()));
    }
    let chosen = options.partitions.as_ref();
    let count = parts.len() as u32;
    if let Some(wrong) = chosen.and_then(|all| all.iter().find(|one| **one >= count)) {
        return Err(not_read(name, topic, PartitionIndex(*wrong)));
    }
    let is_read = |part: &&TopicHandle| chosen.is_none_or(|all| all.contains(&part.state.first));
    let read: Vec<&TopicHandle> = parts.iter().filter(is_read).collect();
    // One that reads none stands at one of them, which it does not read.
    let read = match read.is_empty() {
        true => parts.iter().take(1).collect(),
        false => read,
    };
    let begun = read.into_iter().map(|part| {
        let own = |chosen: &Vec<u32>| {
            let own = chosen.iter().copied();
            own.filter(|one| *one == part.state.first).collect()
        };
        let options = ConsumerOptions {
            partitions: chosen.map(own),
            ..options.clone()
        };
        begin(part, name, &options, seed)
    });
    let begun = begun.collect::<Result<Vec<_>, _>>()?;
    let what = format!("the subscriptions of consumer {name} to {}", topic.name());
    let added = chosen.is_none().then(|| begin_added(name, options, seed));
    Open::begin(topic, begun, added, what)
}

/// Reads partitions that are added from their beginning, or from the cursor, if there is one.
fn begin_added(name: &str, options: &ConsumerOptions, seed: u128) -> BeginAdded<Subscriptions> {
    let (name, options) = (name.to_owned(), options.clone());
    let start = match &*name {
        "" => Start::Beginning,
        _ => Start::Cursor,
    };
    Box::new(move |topic, parts| {
        let begin = |part| begin_at(part, &name, &options, start, Vec::new(), seed);
        let begun = parts.iter().map(begin).collect::<Result<Vec<_>, _>>();
        begun.map_or_else(Pending::failed, |begun| {
            topic.opened(begun, "subscriptions to partitions that were added")
        })
    })
}

fn begin_one(
    topic: &TopicHandle,
    name: &str,
    options: &ConsumerOptions,
    seed: u128,
) -> Result<Pending<One>, ClientError> {
    let count = match options.start {
        When::Start(start) => return begin_at(topic, name, options, start, Vec::new(), seed),
        When::Last(count) => count,
    };
    let session = topic.driver.session()?;
    let timeout = topic.driver.request_timeout();
    let described = topic.begin_refresh();
    let (topic, name, options) = (topic.clone(), name.to_owned(), options.clone());
    Ok(
        described.and_then(&session.mailbox, timeout, move |described| {
            let begun = described.and_then(|described| {
                let starts = last_of(&described.partitions, count);
                begin_at(&topic, &name, &options, Start::Beginning, starts, seed)
            });
            begun.unwrap_or_else(Pending::failed)
        }),
    )
}

/// Where the last `count` events of each partition begin.
pub(crate) fn last_of(
    partitions: &[PartitionDescription],
    count: u64,
) -> Vec<(PartitionIndex, Position)> {
    let last = partitions.iter().map(|partition| {
        let end = partition.watermarks.committed;
        let offset = Offset(end.0.saturating_sub(count)).max(partition.first);
        let position = Position {
            incarnation: partition.incarnation,
            offset: offset.min(end),
        };
        (partition.partition, position)
    });
    last.collect()
}

fn begin_at(
    topic: &TopicHandle,
    name: &str,
    options: &ConsumerOptions,
    start: Start,
    starts: Vec<(PartitionIndex, Position)>,
    seed: u128,
) -> Result<Pending<One>, ClientError> {
    let session = topic.driver.session()?;
    let (indices, count) = (topic.state.indices(), topic.state.partition_count());
    let partitions = match &options.partitions {
        // The group says which.
        None if options.group.is_some() => Vec::new(),
        None => indices.clone().collect(),
        Some(partitions) => partitions.clone(),
    };
    if let Some(wrong) = partitions.iter().find(|one| !indices.contains(one)) {
        return Err(ClientError::UnknownPartition(format!(
            "partition {wrong} is out of range: {} has {count}, counted from 0",
            topic.name()
        )));
    }
    // A group's member may come to read all of them.
    let windows = match options.group {
        None => partitions.len(),
        Some(_) => count as usize,
    };
    let wanted = options.credit_bytes.saturating_mul(windows.max(1) as u64);
    let share = session.share(wanted);
    let feed = Arc::new(ConsumerFeed::of_subscriptions(
        name,
        topic.state.clone(),
        options,
        session.mailbox.clone(),
        share,
        windows,
    ));
    let promise = Promise::new(&session.mailbox);
    let timeout = topic.driver.request_timeout();
    session.mailbox.send(Command::Open {
        opening: Box::new(Opening::Consumer {
            consumer: feed.clone(),
            partitions,
            start,
            starts,
            seed,
        }),
        timeout,
        promise: promise.clone(),
    });
    let replier = match options.group {
        Some(_) => name.to_owned(),
        None => format!("{name}/{}", session.id()),
    };
    let own = Own {
        member: options.group.clone(),
        replier: Replier::new(topic, replier),
    };
    let wanted = (options.data.clone(), options.allocator.clone());
    let arrivals = Subscribed::new(feed.clone());
    let open = One::new(topic, feed, wanted, arrivals, own);
    let early = Arc::downgrade(&open.puller);
    open.feed.set_begin_reading(Arc::new(move || {
        let Some(puller) = early.upgrade() else {
            return;
        };
        // If somebody has it, that one begins it.
        puller.try_with(Puller::begin_early);
    }));
    let what = match name {
        "" => format!("the subscriptions of a read of {}", topic.name()),
        _ => format!("the subscriptions of consumer {name} to {}", topic.name()),
    };
    Ok(Pending::new(promise, what, timeout, move |_| Ok(open)))
}

/// Calls the program back for what happened to partitions of its group.
fn follow_changes(open: &One) -> Result<(), ClientError> {
    let Some(member) = &open.own.member else {
        return Ok(());
    };
    // What it forgets for the program is not to be held here.
    if open.puller.is_had_here() {
        return Err(Refused::InCallback.error("a pull", &open.feed.name));
    }
    open.feed.visit()?;
    let call = |callback: &Option<Arc<PartitionsCallback>>, partitions: &[PartitionIndex]| {
        if let Some(callback) = callback {
            callback(partitions);
        }
    };
    while let Some(change) = open.feed.take_change() {
        match change {
            Change::Assigned(partitions) => call(&member.on_assigned, &partitions),
            Change::Lost(partitions) => {
                forget(open, &partitions);
                call(&member.on_lost, &partitions);
            }
            Change::Revoking(partitions) => {
                forget(open, &partitions);
                call(&member.on_revoking, &partitions);
                open.feed.mailbox.send(Command::Release {
                    consumer: open.feed.key,
                    partitions,
                });
            }
        }
    }
    Ok(())
}

fn forget(open: &One, partitions: &[PartitionIndex]) {
    if let Ok(mut puller) = open.puller.have(Deadline::NEVER) {
        for partition in partitions {
            puller.forget(*partition);
        }
    }
}

fn resubscribe(
    open: &One,
    mut puller: Having<'_, Puller<Subscribed>>,
    partition: PartitionIndex,
    position: Position,
    promise: Option<Promise>,
) {
    puller.restart(partition.0, position);
    open.feed.mailbox.send(Command::Resubscribe {
        consumer: open.feed.key,
        partition,
        position,
        promise,
    });
}

impl fmt::Debug for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Consumer({} of {})", self.name, self.topic.name())
    }
}
