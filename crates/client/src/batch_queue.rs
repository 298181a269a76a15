//! The callers' side of a producer: events gather into batches here, under
//! one short lock, until the core takes them.

mod cancel;

use crate::copies::CopyMemory;
use crate::driving::InlineSend;
use crate::error::ClientError;
use crate::event::{Event, Lent, Piece};
use crate::faults::{Fault, planted};
use crate::free_list::FreeList;
use crate::future::{BatchPromise, Deferred, FlushFuture, PushFuture};
use crate::journal::Journal;
use crate::losses::Losses;
use crate::mailbox::{Command, Mailbox};
use crate::options::{AtBudget, Linger, ProducerOptions};
use crate::refusals::Refusals;
use crate::topic_state::TopicState;
use bytes::Bytes;
use memory::{Budget, Deadline, Reservation};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, RwLock};
use std::time::Duration;
use topic::{
    BATCH_STEPS_MAX, Definition, PartitionSelector, SelectorError, SelectorInput, Serializer,
    Steps, Validator,
};
use wire::batch::{BatchBuilder, EventParts, Headers};
use wire::{PartitionIndex, ProducerEpoch, ProducerId};

/// Large data of one batch, together; one event may exceed it.
pub(crate) const EXTERNAL_BYTES_MAX: u64 = 16 << 20;
/// Pieces of large data in one batch: their regions must fit into a frame's
/// head, at up to 300 bytes each.
const PIECES_MAX: usize = 1024;
/// What an event costs besides its bytes: its place in the columns.
const EVENT_OVERHEAD_BYTES: u64 = 16;
/// The budget is taken in steps of this, so that not every push locks it.
const RESERVE_STEP_BYTES: u64 = 64 << 10;
/// Batches of a partition under way above which, with adaptive linger, only
/// full batches follow: one on its way to the server while the other's
/// acknowledgement is on its way back.
const ADAPTIVE_IN_FLIGHT: usize = 2;
/// Full batches of a partition that wait above which the thread that fills another
/// one lets others run first: where the runtime thread has no core of its own,
/// a batch is then sent while it is in the cache.
const BACKLOG: usize = 2;

/// A batch of up to this is sealed and sent by the thread that pushed into it, if
/// little is under way: that takes less time than to wake another thread.
const INLINE_SEND_BYTES_MAX: usize = 16 << 10;
/// Batches that may be under way then: an event for each of a few partitions
/// wakes no thread. Where there are more, the thread sends while others are pushed.
const INLINE_SEND_BEHIND_MAX: usize = 3;

const _: () = assert!(PIECES_MAX * 300 < wire::frame::HEAD_BYTES_MAX as usize);

/// A batch that gathers events, or waits to be sealed.
pub(crate) struct Gathering {
    pub builder: BatchBuilder,
    pub promise: Arc<BatchPromise>,
    /// Large data, in the order of the events.
    pub pieces: Vec<Piece>,
    pub reservation: Reservation,
    /// What of the reservation is not used up.
    space: u64,
    /// What judging its events takes, where the server does so too.
    steps: u64,
    /// When the core first saw it, for [`Linger::Wait`].
    pub seen: Option<Duration>,
}

/// An event's metadata as it is sent.
#[derive(Clone, Copy)]
pub(crate) struct Checked<'a> {
    /// Serialized.
    pub metadata: &'a [u8],
    /// What judging it took, where the server does so too: it judges a batch
    /// within a budget. Otherwise 0.
    pub steps: u64,
}

impl Gathering {
    /// Bytes of the budget that are really used.
    pub fn used_bytes(&self) -> u64 {
        self.reservation.bytes() - self.space
    }

    fn is_full(&self, options: &ProducerOptions) -> bool {
        self.builder.bytes() >= options.batch.bytes_max as usize
            || options
                .batch
                .count_max
                .is_some_and(|max| self.builder.event_count() >= max)
            || self.builder.external_bytes() >= EXTERNAL_BYTES_MAX
            || self.pieces.len() >= PIECES_MAX
    }

    fn fits(
        &self,
        options: &ProducerOptions,
        inline: usize,
        external: u64,
        pieces: usize,
        steps: u64,
    ) -> bool {
        self.steps + steps <= BATCH_STEPS_MAX
            && self.builder.bytes() + inline <= options.batch.bytes_max as usize
            && (external == 0
                || self.builder.external_bytes() + external <= EXTERNAL_BYTES_MAX
                    && self.pieces.len() + pieces <= PIECES_MAX)
    }
}

/// Batches of one partition, before the core has them.
#[derive(Default)]
struct PartitionQueue {
    open: Option<Gathering>,
    closed: VecDeque<Gathering>,
    /// Batches that the core has taken and that are not acknowledged.
    in_flight: usize,
    /// The promise of the newest batch.
    last: Option<Arc<BatchPromise>>,
    /// The last batch that the core has taken.
    last_taken: Option<Arc<BatchPromise>>,
}

impl PartitionQueue {
    fn close_open(&mut self) {
        if let Some(open) = self.open.take() {
            self.closed.push_back(open);
        }
    }

    /// The newest batch's promise, unless it is acknowledged: those before it
    /// resolve earlier.
    fn unacknowledged(&mut self) -> Option<Arc<BatchPromise>> {
        if matches!(self.last.as_ref()?.outcome(), Some(Ok(_))) {
            self.last = None;
        }
        self.last.clone()
    }
}

struct Queue {
    /// From the topic's first partition on.
    partitions: Vec<PartitionQueue>,
    selector: Box<dyn PartitionSelector>,
    /// Whether the core was notified and has not looked yet.
    notified: bool,
    /// Batches of all partitions that the core has taken and that are not acknowledged.
    in_flight: usize,
    /// Why nothing is taken any more.
    failure: Option<ClientError>,
}

/// What a topic that was altered asks of events.
struct Altered {
    /// How often it had been altered by then.
    alterations: u32,
    validator: Option<Arc<dyn Validator>>,
    definition: Arc<Definition>,
}

/// Who the producer is to the server.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Identity {
    pub producer: ProducerId,
    pub epoch: ProducerEpoch,
}

/// What a producer's handle and the core share.
pub(crate) struct ProducerShared {
    /// Names it to the core.
    pub key: u64,
    pub topic: Arc<TopicState>,
    pub options: ProducerOptions,
    pub mailbox: Arc<Mailbox>,
    pub journal: Option<Arc<Journal>>,
    /// Buffers of metadata, and of inline data: kept apart, for they grow to
    /// different sizes.
    pub metadata_buffers: Arc<FreeList>,
    pub inline_buffers: Arc<FreeList>,
    pub refusals: Arc<Refusals>,
    /// What full topics have refused, for the next flush to report.
    pub losses: Arc<Losses>,
    /// Written by the core when the producer was opened.
    pub identity: RwLock<Identity>,
    pub budget: Budget,
    copies: CopyMemory,
    /// A part of the driver's memory, held for as long as the producer lives.
    _share: Reservation,
    validator: Option<Arc<dyn Validator>>,
    /// What holds instead once the topic was altered.
    altered: RwLock<Option<Arc<Altered>>>,
    serializer: Option<Arc<dyn Serializer>>,
    /// Whether nobody waits for events to be stored: something else will come
    /// of them, that says as much.
    quiet: AtomicBool,
    /// Guards the gathering; held to add one event, or for the core to take batches.
    queue: Mutex<Queue>,
}

impl ProducerShared {
    pub fn new(
        topic: Arc<TopicState>,
        options: ProducerOptions,
        mailbox: Arc<Mailbox>,
        journal: Option<Arc<Journal>>,
        share: Reservation,
        seed: u64,
        copies: CopyMemory,
    ) -> Result<Self, ClientError> {
        let share_bytes = share.bytes();
        let validator = topic.definition.validator().build(&*topic.plugins)?;
        let serializer = topic.serializer()?.clone();
        let selector = match topic.definition.part_of() {
            // The producer of all partitions has chosen.
            Some(of) => Box::new(Only(of.index)),
            None => {
                let selector = topic.definition.partition_selector();
                selector.build(&*topic.plugins, seed)?
            }
        };
        Ok(Self {
            key: mailbox.next_key(),
            queue: Mutex::new(Queue {
                partitions: Vec::new(),
                selector,
                notified: false,
                in_flight: 0,
                failure: None,
            }),
            budget: Budget::new(
                "the producer's budget_bytes",
                match planted(Fault::NoBudget) {
                    true => u64::MAX,
                    // The rest is for what waits for the threads.
                    false if options.threads > 0 => share_bytes - share_bytes / 4,
                    false => share_bytes,
                },
            ),
            copies,
            _share: share,
            validator: (!validator.accepts_all()).then_some(validator),
            altered: RwLock::default(),
            serializer: (!serializer.is_identity()).then_some(serializer),
            quiet: AtomicBool::new(false),
            topic,
            options,
            mailbox,
            journal,
            metadata_buffers: Arc::new(FreeList::new(share_bytes / 2)),
            inline_buffers: Arc::new(FreeList::new(share_bytes / 2)),
            refusals: Arc::default(),
            losses: Arc::default(),
            identity: RwLock::default(),
        })
    }

    pub fn identity(&self) -> Identity {
        *self.identity.read().expect("no holder panics here")
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("no holder panics here")
    }

    /// Adds an event of metadata alone: the hot path.
    #[inline]
    pub fn push_metadata(&self, metadata: &[u8]) -> Result<PushFuture, ClientError> {
        let mut serialized = Vec::new();
        let checked = self.check(metadata, &mut serialized)?;
        let parts = EventParts {
            metadata: checked.metadata,
            ..EventParts::default()
        };
        let input = SelectorInput {
            metadata,
            ..SelectorInput::default()
        };
        let at_budget = self.options.at_budget;
        self.enqueue(
            &parts,
            (Vec::new(), None),
            input,
            (checked.steps, at_budget),
        )
    }

    /// Adds an event; at the budget it does what `at_budget` says.
    pub fn push(&self, event: Event<'_>, at_budget: AtBudget) -> Result<PushFuture, ClientError> {
        let mut serialized = Vec::new();
        let checked = self.check(event.metadata, &mut serialized)?;
        self.push_checked(&event, checked, &self.lent(&event), at_budget)
    }

    /// What a push does at the budget, unless it is told otherwise.
    pub fn at_budget(&self) -> AtBudget {
        self.options.at_budget
    }

    /// What the data of an event is now, if its producer is to notice a change.
    pub fn lent(&self, event: &Event<'_>) -> Vec<Arc<Lent>> {
        match self.options.check_borrowed && !planted(Fault::NoSeal) {
            true => Lent::of(event),
            false => Vec::new(),
        }
    }

    /// Adds an event whose metadata is checked already, as given, and whose
    /// data was `lent`, if that is known.
    pub fn push_checked(
        &self,
        event: &Event<'_>,
        checked: Checked<'_>,
        lent: &[Arc<Lent>],
        at_budget: AtBudget,
    ) -> Result<PushFuture, ClientError> {
        let headers = (!event.headers.is_empty()).then(|| Headers::bytes_of(event.headers));
        let data_bytes = event.data_bytes();
        let external = data_bytes > u64::from(self.options.inline_bytes_max);
        // Many short pieces are better one than each where it lies.
        let each = data_bytes / event.data.len().max(1) as u64;
        let copied = !event.copied.is_empty() || each <= u64::from(self.options.copied_bytes_max);
        let inline: Vec<&[u8]> = match !external && copied {
            true => {
                let owned = event.data.iter().map(|piece| &piece[..]);
                owned.chain(event.copied.iter().copied()).collect()
            }
            false => Vec::new(),
        };
        let parts = EventParts {
            metadata: checked.metadata,
            inline: &inline,
            shared: match external || copied {
                true => &[],
                false => &event.data,
            },
            external_bytes: external.then_some(data_bytes),
            key: event.key,
            headers: headers.as_deref(),
            producer_time: event.producer_time.unwrap_or(0),
            tombstone: event.tombstone,
        };
        let mut pieces = Vec::new();
        let mut reservation = None;
        if external {
            let pieces_of_event = event.data.iter().enumerate();
            pieces = pieces_of_event
                .filter(|(_, bytes)| !bytes.is_empty())
                .map(|(at, bytes)| Piece {
                    bytes: bytes.clone(),
                    lent: lent.get(at).cloned(),
                })
                .collect();
            if pieces.len() > PIECES_MAX {
                return Err(ClientError::Invalid(format!(
                    "data in {} pieces; the limit is {PIECES_MAX}",
                    pieces.len()
                )));
            }
            if !event.copied.is_empty() {
                // Before it is copied, so that copies are within the budget. Not
                // under the lock: others push meanwhile.
                reservation = Some(self.reserve_or_wait(cost_of(&parts), at_budget)?);
                pieces.push(Piece {
                    bytes: self.copy(event.copied),
                    lent: None,
                });
            }
        }
        let input = SelectorInput {
            key: event.key,
            requested: event.partition,
            metadata: event.metadata,
        };
        let held = (pieces, reservation);
        self.enqueue(&parts, held, input, (checked.steps, at_budget))
    }

    /// Validates and serializes metadata, into `out` unless it stays as it is.
    pub fn check<'a>(
        &self,
        metadata: &'a [u8],
        out: &'a mut Vec<u8>,
    ) -> Result<Checked<'a>, ClientError> {
        let altered = match self.topic.alterations() {
            0 => None,
            alterations => Some(self.altered(alterations)?),
        };
        let (validator, definition) = match &altered {
            None => (&self.validator, &self.topic.definition),
            Some(altered) => (&altered.validator, &*altered.definition),
        };
        let mut steps = 0;
        if let Some(validator) = validator {
            let mut budget = Steps::of_event(metadata.len());
            let result = validator.validate_within(metadata, &mut budget);
            result.map_err(|error| {
                self.suspect();
                ClientError::invalid(error)
            })?;
            if definition.validate_on_server() {
                steps = budget.taken();
            }
        }
        let serialized = match &self.serializer {
            None => metadata,
            Some(serializer) => {
                serializer
                    .serialize(metadata, out)
                    .map_err(ClientError::invalid)?;
                out
            }
        };
        definition
            .check_metadata_bytes(serialized.len())
            .map_err(|reply| {
                self.suspect();
                ClientError::Invalid(reply.message)
            })?;
        Ok(Checked {
            metadata: serialized,
            steps,
        })
    }

    /// An event is refused, perhaps by a rule that has been altered: the next
    /// one may pass.
    fn suspect(&self) {
        // Once until it was looked at, however many events are refused.
        if self.topic.suspect() {
            self.mailbox.send(Command::LookAtTopics);
        }
    }

    /// What holds since the topic was altered for the last time.
    #[cold]
    fn altered(&self, alterations: u32) -> Result<Arc<Altered>, ClientError> {
        let known = self.altered.read().expect("no holder panics here").clone();
        if let Some(known) = known.filter(|known| known.alterations == alterations) {
            return Ok(known);
        }
        let definition = self.topic.altered().expect("it was altered");
        // Not under the lock: a plugin may be in need of others.
        let validator = definition.validator().build(&*self.topic.plugins)?;
        let altered = Arc::new(Altered {
            alterations,
            validator: (!validator.accepts_all()).then_some(validator),
            definition,
        });
        *self.altered.write().expect("no holder panics here") = Some(altered.clone());
        Ok(altered)
    }

    /// Adds an event to its batch. `reserved` is all that it costs, if somebody
    /// has reserved that already.
    fn enqueue(
        &self,
        parts: &EventParts<'_>,
        (pieces, reserved): (Vec<Piece>, Option<Reservation>),
        input: SelectorInput<'_>,
        (steps, at_budget): (u64, AtBudget),
    ) -> Result<PushFuture, ClientError> {
        trace::passes!("appended to its partition's open batch");
        let inline = inline_bytes(parts);
        let external = parts.external_bytes.unwrap_or(0);
        let cost = cost_of(parts);

        let mut queue = self.lock();
        if let Some(failure) = &queue.failure {
            return Err(failure.clone());
        }
        let partition = queue.selector.select(input, self.topic.partition_count())?;
        let place = (partition - self.topic.first) as usize;
        if queue.partitions.len() <= place {
            queue
                .partitions
                .resize_with(place + 1, PartitionQueue::default);
        }
        let lane = &mut queue.partitions[place];
        let mut notify = false;
        if let Some(open) = &lane.open
            && !open.fits(&self.options, inline, external, pieces.len(), steps)
        {
            lane.close_open();
            notify = lane.in_flight < self.options.batches_in_flight_max;
        }
        let space = lane.open.as_ref().map_or(0, |open| open.space);
        let mut extra = reserved;
        if extra.is_none() && space < cost {
            match self.reserve(cost - space) {
                Ok(reservation) => extra = Some(reservation),
                Err(_) => {
                    let reservation;
                    (queue, reservation) = self.wait_for_space(queue, cost, at_budget)?;
                    extra = Some(reservation);
                }
            }
        }
        let lane = &mut queue.partitions[place];
        let (index, promise, full) = match &mut lane.open {
            Some(open) => {
                if let Some(extra) = extra {
                    open.space += extra.bytes();
                    open.reservation.merge(extra);
                }
                add(open, parts, pieces, cost);
                open.steps += steps;
                let full = open.is_full(&self.options);
                (open.builder.event_count() - 1, open.promise.clone(), full)
            }
            None => {
                let reservation = extra.expect("a new batch has no space yet");
                let promise = BatchPromise::new(
                    PartitionIndex(partition),
                    self.topic.clone(),
                    self.mailbox.clone(),
                    self.refusals.clone(),
                );
                let mut open = Gathering {
                    builder: BatchBuilder::with_buffers(
                        self.metadata_buffers.take(),
                        self.inline_buffers.take(),
                    ),
                    promise: promise.clone(),
                    pieces: Vec::new(),
                    space: reservation.bytes(),
                    reservation,
                    steps,
                    seen: None,
                };
                add(&mut open, parts, pieces, cost);
                let full = open.is_full(&self.options);
                lane.last = Some(promise.clone());
                lane.open = Some(open);
                notify |= match self.options.batch.linger {
                    Linger::Adaptive => lane.in_flight < self.adaptive_in_flight(),
                    Linger::Wait(_) => true,
                    Linger::UntilFull => false,
                };
                (0, promise, full)
            }
        };
        let batch_bytes = lane.open.as_ref().map_or(0, |open| open.builder.bytes());
        if full {
            lane.close_open();
            notify |= lane.in_flight < self.options.batches_in_flight_max;
        }
        let is_behind = index == 0 && lane.closed.len() >= BACKLOG;
        match notify {
            true if external == 0 => self.notify_or_send(queue, batch_bytes),
            notify => self.notify(queue, notify),
        }
        if is_behind {
            std::thread::yield_now();
        }
        Ok(PushFuture {
            batch: promise,
            index,
        })
    }

    /// Whether acknowledgements may wait for what else comes.
    pub fn is_quiet(&self) -> bool {
        self.quiet.load(Ordering::Relaxed)
    }

    /// From now on they may, or not.
    pub fn set_quiet(&self, is_quiet: bool) {
        // A hint: nothing is ordered by it.
        self.quiet.store(is_quiet, Ordering::Relaxed);
    }

    fn adaptive_in_flight(&self) -> usize {
        ADAPTIVE_IN_FLIGHT.min(self.options.batches_in_flight_max)
    }

    /// Has what was just put into a batch of `bytes` sent: by this thread if
    /// little is under way. Behind others it is not in a hurry, and a thread of
    /// its own sends while this one goes on.
    fn notify_or_send(&self, mut queue: MutexGuard<'_, Queue>, bytes: usize) {
        if queue.in_flight > INLINE_SEND_BEHIND_MAX
            || queue.notified
            || bytes > INLINE_SEND_BYTES_MAX
        {
            return self.notify(queue, true);
        }
        queue.notified = true;
        drop(queue);
        let send = InlineSend::Events {
            producer: self.key,
            is_quiet: self.is_quiet(),
        };
        if !self.mailbox.send_inline(send) {
            self.mailbox.send(Command::ProducerReady(self.key));
        }
    }

    fn notify(&self, mut queue: MutexGuard<'_, Queue>, notify: bool) {
        if !notify || queue.notified {
            return;
        }
        queue.notified = true;
        drop(queue);
        self.mailbox.send(Command::ProducerReady(self.key));
    }

    fn reserve(&self, bytes: u64) -> Result<Reservation, memory::BudgetError> {
        let step = RESERVE_STEP_BYTES.min(self.budget.limit() / 64);
        if bytes < step
            && let Ok(reservation) = self.budget.try_reserve(step)
        {
            return Ok(reservation);
        }
        self.budget.try_reserve(bytes)
    }

    /// A copy of `pieces`, as one; what it takes of a budget is reserved.
    pub fn copy(&self, pieces: &[&[u8]]) -> Bytes {
        let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
        match bytes <= self.options.inline_bytes_max as usize {
            // It is copied again, into the batch.
            true => Bytes::from(pieces.concat()),
            false => self
                .copies
                .copy(&self.topic.liveness(&self.mailbox), pieces),
        }
    }

    /// Reserves all that an event costs, or does what the policy says.
    fn reserve_or_wait(&self, cost: u64, at_budget: AtBudget) -> Result<Reservation, ClientError> {
        if let Ok(reservation) = self.budget.try_reserve(cost) {
            return Ok(reservation);
        }
        let (queue, reservation) = self.wait_for_space(self.lock(), cost, at_budget)?;
        drop(queue);
        Ok(reservation)
    }

    /// The budget is full: sends what gathers, and waits for space if that is
    /// the policy. All open batches are closed when it returns.
    fn wait_for_space<'a>(
        &'a self,
        mut queue: MutexGuard<'a, Queue>,
        cost: u64,
        at_budget: AtBudget,
    ) -> Result<(MutexGuard<'a, Queue>, Reservation), ClientError> {
        for lane in &mut queue.partitions {
            lane.close_open();
        }
        self.notify(queue, true);
        let reservation = match at_budget {
            AtBudget::Fail => self.budget.try_reserve(cost)?,
            AtBudget::Block(timeout) => {
                let full = |error| ClientError::Timeout {
                    what: format!(
                        "space for an event of {}: {error}; {}{}",
                        self.topic.name,
                        self.topic.liveness(&self.mailbox).describe_now(),
                        self.refusals.describe_any()
                    ),
                };
                self.reserve_by(cost, Deadline::after(timeout))
                    .map_err(full)?
            }
        };
        let mut queue = self.lock();
        if let Some(failure) = &queue.failure {
            return Err(failure.clone());
        }
        // Another thread may have opened a batch meanwhile; this event begins
        // another one, so that its reservation is a batch's whole one.
        for lane in &mut queue.partitions {
            lane.close_open();
        }
        Ok((queue, reservation))
    }

    /// Waits for space; where there is no thread, by driving the client.
    fn reserve_by(
        &self,
        cost: u64,
        deadline: Deadline,
    ) -> Result<Reservation, memory::BudgetError> {
        if !self.mailbox.is_driven_by_callers() {
            return self.budget.reserve(cost, deadline);
        }
        let mut reserved = self.budget.try_reserve(cost);
        // Whether it came to be is seen in what is reserved.
        let _ = self.mailbox.drive(deadline, || {
            if reserved.is_err() {
                reserved = self.budget.try_reserve(cost);
            }
            reserved.is_ok()
        });
        reserved
    }

    /// Closes what gathers; the future resolves when everything is acknowledged.
    pub fn flush(&self) -> FlushFuture {
        self.flush_of(self.close_batches())
    }

    /// [`ProducerShared::flush`] for somebody who goes on: what is sent by
    /// itself as soon as others are acknowledged is not hurried.
    pub fn begin_flush(&self) -> FlushFuture {
        let is_sent = matches!(self.options.batch.linger, Linger::Adaptive);
        if !is_sent {
            return self.flush();
        }
        let mut queue = self.lock();
        let last = queue.partitions.iter_mut();
        let last = last.filter_map(PartitionQueue::unacknowledged).collect();
        drop(queue);
        self.flush_of(last)
    }

    /// The flush that is over when these batches are.
    pub fn flush_of(&self, last: Vec<Arc<BatchPromise>>) -> FlushFuture {
        let kept = OnceLock::new();
        // Not the producer: a flush that is kept does not keep its memory.
        let (journal, losses) = (self.journal.clone(), self.losses.clone());
        FlushFuture {
            last,
            // A caller that asks this flush again gets the same.
            finish: Arc::new(move || {
                let outcome = kept.get_or_init(|| {
                    let synced = journal.as_ref().map_or(Ok(()), |journal| journal.sync());
                    synced.and_then(|()| losses.take())
                });
                outcome.clone()
            }),
        }
    }

    /// Closes what gathers, and gives the promises of all batches that are
    /// not acknowledged, or have failed: one a partition, for they resolve in order.
    pub fn close_batches(&self) -> Vec<Arc<BatchPromise>> {
        let mut queue = self.lock();
        let mut last = Vec::new();
        let mut notify = false;
        for lane in &mut queue.partitions {
            lane.close_open();
            notify |= !lane.closed.is_empty();
            last.extend(lane.unacknowledged());
        }
        self.notify(queue, notify);
        last
    }

    /// Why nothing is taken any more, if nothing is.
    pub fn failure(&self) -> Option<ClientError> {
        self.lock().failure.clone()
    }

    /// A promise for the producer's threads: see [`BatchPromise::of_threads`].
    pub fn promise_of_threads(&self, deferred: Option<Deferred>) -> Arc<BatchPromise> {
        BatchPromise::of_threads(
            deferred,
            self.topic.clone(),
            self.mailbox.clone(),
            self.refusals.clone(),
        )
    }

    /// Nothing is taken from now on; what is queued fails, with `error`.
    /// Returns the promises to resolve, outside of the lock.
    pub fn fail(&self, error: &ClientError) -> Vec<Arc<BatchPromise>> {
        let mut queue = self.lock();
        queue.failure.get_or_insert_with(|| error.clone());
        let mut failed: Vec<Gathering> = Vec::new();
        for lane in &mut queue.partitions {
            lane.close_open();
            failed.extend(lane.closed.drain(..));
        }
        drop(queue);
        // The events' memory is the user's again, whose code this may call.
        failed.into_iter().map(|batch| batch.promise).collect()
    }

    /// Whether everything that was pushed was taken and acknowledged.
    pub fn is_drained(&self) -> bool {
        self.lock()
            .partitions
            .iter()
            .all(|lane| lane.open.is_none() && lane.closed.is_empty() && lane.in_flight == 0)
    }

    /// For the core: `count` batches of a partition are under way no more.
    pub fn acknowledged(&self, partition: u32) {
        let mut queue = self.lock();
        queue.in_flight -= 1;
        queue.partitions[(partition - self.topic.first) as usize].in_flight -= 1;
    }

    /// For the core: the next batch that may be sent, and until when others
    /// linger. `looked` says that this is the first look since a notification.
    pub fn take(&self, now: Duration, take: &mut Take) {
        self.take_from(self.lock(), now, take);
    }

    /// [`ProducerShared::take`], unless somebody has the queue; false then.
    pub fn try_take(&self, now: Duration, take: &mut Take) -> bool {
        match self.queue.try_lock() {
            Ok(queue) => {
                self.take_from(queue, now, take);
                true
            }
            Err(_) => false,
        }
    }

    fn take_from(&self, mut queue: MutexGuard<'_, Queue>, now: Duration, take: &mut Take) {
        let queue = &mut *queue;
        queue.notified = false;
        take.linger_until = None;
        let count = queue.partitions.len();
        for step in 0..count {
            let index = (take.next + step) % count;
            let lane = &mut queue.partitions[index];
            if lane.in_flight >= self.options.batches_in_flight_max {
                continue;
            }
            let batch = match lane.closed.pop_front() {
                Some(batch) => Some(batch),
                None => self.take_open(lane, now, &mut take.linger_until),
            };
            if let Some(batch) = batch {
                lane.in_flight += 1;
                queue.in_flight += 1;
                lane.last_taken = Some(batch.promise.clone());
                take.next = index + 1;
                take.batch = Some((self.topic.first + index as u32, batch));
                return;
            }
        }
        take.batch = None;
    }

    fn take_open(
        &self,
        lane: &mut PartitionQueue,
        now: Duration,
        linger_until: &mut Option<Duration>,
    ) -> Option<Gathering> {
        let open = lane.open.as_mut()?;
        let due = match self.options.batch.linger {
            Linger::Adaptive => lane.in_flight < self.adaptive_in_flight(),
            Linger::UntilFull => false,
            Linger::Wait(linger) => {
                let until = open.seen.get_or_insert(now).saturating_add(linger);
                if until > now {
                    *linger_until = Some(linger_until.map_or(until, |other| other.min(until)));
                }
                until <= now
            }
        };
        if due { lane.open.take() } else { None }
    }
}

/// The selector of a topic that is one partition of a spread one.
struct Only(u32);

impl PartitionSelector for Only {
    fn select(&mut self, _: SelectorInput<'_>, _: u32) -> Result<u32, SelectorError> {
        Ok(self.0)
    }
}

/// Where [`ProducerShared::take`] goes on, and what it found.
#[derive(Default)]
pub(crate) struct Take {
    next: usize,
    pub batch: Option<(u32, Gathering)>,
    pub linger_until: Option<Duration>,
}

/// Bytes of an event that travel in the batch.
fn inline_bytes(parts: &EventParts<'_>) -> usize {
    parts.metadata.len()
        + parts.key.map_or(0, <[u8]>::len)
        + parts.headers.map_or(0, <[u8]>::len)
        + parts.inline.iter().map(|piece| piece.len()).sum::<usize>()
        + parts.shared.iter().map(Bytes::len).sum::<usize>()
}

/// What an event takes of the budget.
fn cost_of(parts: &EventParts<'_>) -> u64 {
    inline_bytes(parts) as u64 + parts.external_bytes.unwrap_or(0) + EVENT_OVERHEAD_BYTES
}

fn add(open: &mut Gathering, parts: &EventParts<'_>, pieces: Vec<Piece>, cost: u64) {
    open.space -= cost;
    open.builder.push(*parts);
    open.pieces.extend(pieces);
}
