//! What becomes of pushed events: one shared promise a batch, an index an event.

use crate::callbacks::{Callback, call_back};
use crate::completion::{Completion, Waiters};
use crate::error::ClientError;
use crate::losses::is_drop;
use crate::mailbox::Mailbox;
use crate::refusals::Refusals;
use crate::topic_state::TopicState;
use memory::Deadline;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;
use wire::{EventId, Incarnation, Offset, PartitionIndex};

/// Where a batch was stored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stored {
    pub partition: PartitionIndex,
    pub incarnation: Incarnation,
    pub base_offset: Offset,
}

impl Stored {
    /// For promises that are of no event.
    pub fn nowhere() -> Self {
        Self {
            partition: PartitionIndex(0),
            incarnation: Incarnation(0),
            base_offset: Offset(0),
        }
    }
}

/// What becomes of an event before it is in a batch.
pub(crate) struct Deferred {
    /// Of the producer that has it.
    pub producer: u64,
    /// [`WAITING`], then one of the others. Who sets it has the event.
    step: AtomicU8,
    /// What became of it in its batch.
    pub put: OnceLock<PushFuture>,
}

const WAITING: u8 = 0;
pub(crate) const PUTTING: u8 = 1;
pub(crate) const CANCELLED: u8 = 2;

impl Deferred {
    pub fn new(producer: u64) -> Self {
        Self {
            producer,
            step: AtomicU8::new(WAITING),
            put: OnceLock::new(),
        }
    }

    /// Whether the event is the caller's from now on.
    pub fn take(&self, step: u8) -> bool {
        // Relaxed: it guards nothing but who goes on.
        let taken = self
            .step
            .compare_exchange(WAITING, step, Ordering::Relaxed, Ordering::Relaxed);
        taken.is_ok()
    }
}

/// What all futures of one batch share.
pub(crate) struct BatchPromise {
    /// Written once; reading it takes no lock, so a forked child may too.
    outcome: OnceLock<Result<Stored, ClientError>>,
    /// Complete when `outcome` is written. Its lock guards which events were
    /// taken back.
    completion: Completion<TakenBack>,
    /// Whether any was taken back. Set under the lock; read without, which is
    /// how a future that nobody touched stays without a lock.
    has_cancelled: AtomicBool,
    /// Where the batch goes; `None` where that is still to be chosen.
    partition: Option<PartitionIndex>,
    deferred: Option<Deferred>,
    topic: Arc<TopicState>,
    mailbox: Arc<Mailbox>,
    refusals: Arc<Refusals>,
}

/// Events that were taken back before the batch was sent, in order: those
/// behind them move up.
#[derive(Default)]
struct TakenBack {
    events: Vec<u32>,
}

impl TakenBack {
    fn has(&self, index: u32) -> bool {
        self.events.binary_search(&index).is_ok()
    }
}

/// In place of an event's index: who asks is asked about none of them.
const WHOLE_BATCH: u32 = u32::MAX;

impl BatchPromise {
    pub fn new(
        partition: PartitionIndex,
        topic: Arc<TopicState>,
        mailbox: Arc<Mailbox>,
        refusals: Arc<Refusals>,
    ) -> Arc<Self> {
        Self::with(Some(partition), None, topic, mailbox, refusals)
    }

    /// A promise of one event that a producer's threads have, or, without
    /// `deferred`, of all that they were given.
    pub fn of_threads(
        deferred: Option<Deferred>,
        topic: Arc<TopicState>,
        mailbox: Arc<Mailbox>,
        refusals: Arc<Refusals>,
    ) -> Arc<Self> {
        Self::with(None, deferred, topic, mailbox, refusals)
    }

    fn with(
        partition: Option<PartitionIndex>,
        deferred: Option<Deferred>,
        topic: Arc<TopicState>,
        mailbox: Arc<Mailbox>,
        refusals: Arc<Refusals>,
    ) -> Arc<Self> {
        Arc::new(Self {
            outcome: OnceLock::new(),
            completion: Completion::new(TakenBack::default()),
            has_cancelled: AtomicBool::new(false),
            partition,
            deferred,
            topic,
            mailbox,
            refusals,
        })
    }

    /// Notifies all futures of the batch, with one wake-up.
    pub fn resolve(&self, outcome: Result<Stored, ClientError>) {
        trace::passes!("its future is resolved");
        if self.outcome.set(outcome).is_err() {
            return;
        }
        let waiters = self.completion.lock().take_waiters();
        self.completion.notify(waiters, Some(&*self.mailbox));
    }

    /// Where the batch goes; `None` for what is in no batch yet.
    pub fn partition(&self) -> Option<PartitionIndex> {
        self.partition
    }

    /// What a producer's threads know of the event, if it is one of theirs.
    pub fn deferred(&self) -> Option<&Deferred> {
        self.deferred.as_ref()
    }

    /// Where an event of the batch is now that others may have been taken
    /// back; `None` if it was itself.
    pub fn place(&self, index: u32) -> Option<u32> {
        // Acquire: a thread that knows that an event was taken back sees it here.
        if !self.has_cancelled.load(Ordering::Acquire) {
            return Some(index);
        }
        match self.completion.lock().events.binary_search(&index) {
            Ok(_) => None,
            Err(before) => Some(index - before as u32),
        }
    }

    /// Notes that an event was taken back. Who is to hear of it is returned,
    /// for [`BatchPromise::notify_cancelled`].
    pub fn cancel(&self, index: u32) -> Waiters {
        let mut taken_back = self.completion.lock();
        if let Err(place) = taken_back.events.binary_search(&index) {
            taken_back.events.insert(place, index);
        }
        self.has_cancelled.store(true, Ordering::Release);
        taken_back.take_waiters_of(index)
    }

    /// Notifies those who wait for an event that it was taken back.
    pub fn notify_cancelled(&self, who: Waiters) {
        self.completion.notify(who, Some(&*self.mailbox));
    }

    /// Calls `callback` when the batch has an outcome, at once if it has.
    pub fn on_outcome(self: &Arc<Self>, callback: Box<dyn FnOnce() + Send>) {
        self.on_done(WHOLE_BATCH, callback);
    }

    /// Calls `callback`, which is one of ours, on whichever thread notifies, when
    /// there is something to say about an event; at once if there is.
    pub fn on_done(&self, index: u32, callback: Callback) {
        let is_done = |taken_back: &TakenBack| taken_back.has(index) || self.outcome().is_some();
        if let Err(callback) = self.completion.on_done(index, callback, is_done) {
            callback();
        }
    }

    /// Whether there is something to say about an event.
    fn is_done(&self, index: u32) -> bool {
        self.outcome.get().is_some() || self.place(index).is_none()
    }

    pub fn outcome(&self) -> Option<&Result<Stored, ClientError>> {
        self.outcome.get()
    }

    fn is_foreign(&self) -> bool {
        self.completion.is_foreign()
    }

    /// Waits until there is something to say about an event; `false` if
    /// `deadline` passes before.
    fn wait(&self, index: u32, deadline: Deadline) -> Result<bool, ClientError> {
        if self.outcome.get().is_some() {
            return Ok(true);
        }
        if self.is_foreign() {
            return Err(ClientError::Forked);
        }
        // Without the lock as long as no event was taken back.
        let looks = || self.is_done(index);
        let is_done = |taken_back: &TakenBack| self.outcome().is_some() || taken_back.has(index);
        Ok(self
            .completion
            .wait(deadline, Some(&*self.mailbox), looks, is_done))
    }

    fn timeout_error(&self) -> ClientError {
        let liveness = self.topic.liveness(&self.mailbox).describe_now();
        let topic = &self.topic.name;
        ClientError::Timeout {
            what: match self.partition {
                Some(partition) => format!(
                    "the acknowledgement of a batch in {topic}/{partition}; {liveness}{}",
                    self.refusals.describe(partition.0)
                ),
                None => format!(
                    "events of {topic} that the producer's threads were given to be \
                     acknowledged; {liveness}{}",
                    self.refusals.describe_any()
                ),
            },
        }
    }

    fn poll(&self, index: u32, context: &Context<'_>) -> Poll<()> {
        if self.outcome.get().is_some() {
            return Poll::Ready(());
        }
        // Looked at again under the lock: `resolve` takes it after writing.
        self.completion.poll(context, |taken_back| {
            self.outcome().is_some() || taken_back.has(index)
        })
    }
}

/// What becomes of one pushed event: its id, or why there is none. Cheap to clone.
#[derive(Clone)]
pub struct PushFuture {
    pub(crate) batch: Arc<BatchPromise>,
    pub(crate) index: u32,
}

impl PushFuture {
    fn result(&self) -> Option<Result<EventId, ClientError>> {
        let outcome = self.batch.outcome();
        // In a child nobody resolves it, and its lock may be held for ever.
        if (outcome.is_none() || self.batch.has_cancelled.load(Ordering::Acquire))
            && self.batch.is_foreign()
        {
            return Some(Err(ClientError::Forked));
        }
        let Some(place) = self.batch.place(self.index) else {
            return Some(Err(ClientError::Cancelled));
        };
        match outcome? {
            Ok(stored) => Some(Ok(EventId {
                partition: stored.partition,
                incarnation: stored.incarnation,
                offset: stored.base_offset.plus(u64::from(place)),
            })),
            Err(error) => Some(Err(error.clone())),
        }
    }

    /// The result, if it is there.
    pub fn try_get(&self) -> Option<Result<EventId, ClientError>> {
        self.result()
    }

    /// Waits for the result.
    ///
    /// # Errors
    /// [`ClientError::Timeout`] when `timeout` has passed (`None`: as long as
    /// the producer's `ack_timeout` lasts); the event is still under way then
    /// and one may wait again.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<EventId, ClientError> {
        if !self.batch.wait(self.index, Deadline::within(timeout))? {
            return Err(self.batch.timeout_error());
        }
        self.result().expect("waited for")
    }

    /// Calls `callback` once there is a result: on the runtime's thread, or
    /// at once if there is one. All callbacks of a batch come together. It may
    /// push; it must not wait for anything of the same driver.
    pub fn on_done(&self, callback: Box<dyn FnOnce() + Send>) {
        let callback = Box::new(move || call_back(callback));
        self.batch.on_done(self.index, callback);
    }

    /// [`PushFuture::on_done`] for a callback of ours, on whichever thread notifies.
    pub(crate) fn on_done_here(&self, callback: Box<dyn FnOnce() + Send>) {
        self.batch.on_done(self.index, callback);
    }
}

impl Future for PushFuture {
    type Output = Result<EventId, ClientError>;

    fn poll(self: std::pin::Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.batch
            .poll(self.index, context)
            .map(|()| self.result().expect("polled to be ready"))
    }
}

/// Resolves when everything that was pushed before it is acknowledged.
pub struct FlushFuture {
    /// The last batch of each partition: a partition's batches resolve in order.
    pub(crate) last: Vec<Arc<BatchPromise>>,
    /// What is left to do when all are acknowledged: the journal's sync.
    pub(crate) finish: Arc<dyn Fn() -> Result<(), ClientError> + Send + Sync>,
}

impl FlushFuture {
    fn result(&self) -> Option<Result<(), ClientError>> {
        for batch in &self.last {
            match batch.outcome() {
                Some(Ok(_)) => {}
                Some(Err(error)) if is_drop(error) => {}
                Some(Err(error)) => return Some(Err(error.clone())),
                None if batch.is_foreign() => return Some(Err(ClientError::Forked)),
                None => return None,
            }
        }
        Some((self.finish)())
    }

    /// What is over when all of these are. The first error of what is left to do then is its own.
    pub(crate) fn all(all: impl Iterator<Item = Self>) -> Self {
        let (mut last, mut finishes) = (Vec::new(), Vec::new());
        for one in all {
            last.extend(one.last);
            finishes.push(one.finish);
        }
        let finish = move || {
            let finished = finishes.iter().map(|finish| finish());
            finished.fold(Ok(()), Result::and)
        };
        Self {
            last,
            finish: Arc::new(finish),
        }
    }

    /// The result, if everything is acknowledged.
    pub fn try_get(&self) -> Option<Result<(), ClientError>> {
        self.result()
    }

    /// Waits for it. After a timeout one may wait again.
    pub fn wait(&self, timeout: Duration) -> Result<(), ClientError> {
        let deadline = Deadline::after(timeout);
        for batch in &self.last {
            if !batch.wait(WHOLE_BATCH, deadline)? {
                return Err(batch.timeout_error());
            }
        }
        self.result().expect("waited for")
    }
}

impl FlushFuture {
    /// Calls `callback` once there is a result: as [`PushFuture::on_done`].
    pub fn on_done(&self, callback: Box<dyn FnOnce() + Send>) {
        when_all(&self.last, Box::new(move || call_back(callback)));
    }
}

/// Calls `callback`, which is one of ours, when all batches have an outcome: on
/// whichever thread reports the last one.
pub(crate) fn when_all(batches: &[Arc<BatchPromise>], callback: Callback) {
    // One for this function, so that nothing is called before all are asked.
    let left = AtomicUsize::new(batches.len() + 1);
    let callback = Mutex::new(Some(callback));
    let step = Arc::new(move || {
        // AcqRel: the last step sees what was done before the others.
        if left.fetch_sub(1, Ordering::AcqRel) == 1
            && let Some(callback) = callback.lock().expect("no holder panics here").take()
        {
            callback();
        }
    });
    for batch in batches {
        let step = step.clone();
        batch.on_outcome(Box::new(move || step()));
    }
    step();
}

impl Future for FlushFuture {
    type Output = Result<(), ClientError>;

    fn poll(self: std::pin::Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        for batch in &self.last {
            if batch.poll(WHOLE_BATCH, context).is_pending() {
                return Poll::Pending;
            }
        }
        Poll::Ready(self.result().expect("polled to be ready"))
    }
}

impl fmt::Debug for PushFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("PushFuture");
        debug.field("partition", &self.batch.partition);
        debug.field("index", &self.index);
        debug.field("result", &self.result()).finish()
    }
}

impl fmt::Debug for FlushFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FlushFuture({} batches)", self.last.len())
    }
}
