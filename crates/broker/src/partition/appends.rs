//! Batches on their way into a partition: admitted, waiting for room, for external data or for
//! those before them, appended, acknowledged.
//!
//! ```text
//!            no room                room               data stored
//!  produce ----------> Waiting ------------> Transferring ---------> Ready --> appended --> acknowledged
//!     |                                           ^                    ^
//!     +---- room, external data ------------------+                    |
//!     +---- room, behind another one of its producer ------------------+
//!     +---- room, and its turn ------------------------------------------> appended
//! ```

use super::acks::{Ack, Acks};
use super::capacity::{BLOCKED_RETRY_MS, Capacity};
use super::incoming::{LINK, ProduceCall, ValidBatch, Wanted};
use super::store::Store;
use super::transfer::Transfers;
use super::wait_queue::{WaitQueue, Waiting};
use crate::answer::Answer;
use crate::ctx::Ctx;
use crate::effects::Effect;
use crate::faults::Fault;
use crate::flow::Asks;
use crate::ids::{LinkId, OWN_LINK, Opening, RequestId, TransferId};
use crate::refusal::{Refused, fenced, out_of_sequence, refuse};
use log::producers::Verdict;
use log::{Append, DataPlace, StorageError};
use memory::Buffer;
use net::{BulkToken, NetError};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use topic::Overflow;
use wire::batch::Header;
use wire::message::Produced;
use wire::record::Gap;
use wire::{Durability, ErrorCode, ErrorReply, Offset, ProducerEpoch, ProducerId, Sequence};

/// How soon a producer asks again that has waited already.
const WAITED_RETRY_MS: u32 = 1;

/// A batch that waits: for room, for its external data, or behind one that does.
struct PendingAppend {
    caller: RequestId,
    batch: ValidBatch,
    stage: Stage,
}

/// How far a [`PendingAppend`] has come.
#[derive(Debug, PartialEq, Eq)]
enum Stage {
    /// There is no room for it yet.
    Waiting(Waiting),
    /// Its external data is on its way.
    Transferring(TransferId),
    /// It can be appended when its turn comes.
    Ready(Option<DataPlace>),
}

impl PendingAppend {
    fn is_waiting(&self) -> bool {
        matches!(self.stage, Stage::Waiting(_))
    }
}

/// When a batch is to be appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Admission {
    /// It is the next of its producer.
    Now,
    /// After those of its producer that wait.
    Later,
    /// It is there already, as one that waits: it was sent again.
    InPlaceOf(usize),
    /// It was appended before.
    Duplicate(Offset),
}

/// Who may write a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Writer {
    /// Every producer that may write the topic.
    #[default]
    Anybody,
    /// The link of a mirror alone, on the connection on which it is open.
    Link(Option<Opening>),
    /// Nobody, as long as its topic is on its way to another node.
    Nobody,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Appends {
    pub capacity: Capacity,
    /// Who writes.
    pub writer: Writer,
    /// By producer, in the order of their sequence numbers.
    pending: BTreeMap<ProducerId, VecDeque<PendingAppend>>,
    wait_queue: WaitQueue,
    transfers: Transfers,
    acks: Acks,
}

/// Where a producer's first batch that waits for room is among those pending.
fn first_waiting(queue: Option<&VecDeque<PendingAppend>>) -> Option<usize> {
    queue?.iter().position(PendingAppend::is_waiting)
}

impl Appends {
    /// Nothing is under way.
    pub fn new(writer: Writer) -> Self {
        Self {
            writer,
            ..Self::default()
        }
    }

    /// Batches that are stored and not acknowledged.
    pub fn unacknowledged(&self) -> usize {
        self.acks.len()
    }

    pub fn transfer_count(&self) -> usize {
        self.transfers.len()
    }

    /// Whether external data is fetched from a connection.
    pub fn fetches_from(&self, link: LinkId) -> bool {
        self.transfers.fetch_from(link)
    }

    /// The sequence number that is expected next of a producer.
    pub fn next_sequence(
        &self,
        producer: ProducerId,
        epoch: ProducerEpoch,
        store: &Store,
    ) -> Option<Sequence> {
        let next = store.storage.next_sequence(producer, epoch)?;
        Some(self.capacity.expected(producer, epoch, next))
    }

    /// Takes a batch of a producer.
    pub fn produce(
        &mut self,
        call: ProduceCall,
        store: &mut Store,
        ctx: &mut Ctx,
    ) -> Result<(), Refused> {
        trace::passes!("admitted, made to wait, or refused");
        let batch = &call.batch;
        self.check_writer(batch, store, ctx)?;
        self.capacity.check_dropped(&batch.header)?;
        let admission = self.admission(batch, store, ctx)?;
        if let Admission::Duplicate(base_offset) = admission {
            self.acknowledge_duplicate(call.caller, batch, base_offset, store, ctx);
            return Ok(());
        }
        if !self.has_room(admission, batch, store, ctx)? {
            return self.wait(call, admission, store, ctx);
        }
        let ProduceCall {
            caller,
            batch,
            wanted,
            ..
        } = call;
        if admission == Admission::Now && wanted.layout.is_none() {
            return self.append(caller, batch, None, store, ctx);
        }
        let stage = self.begin(caller.link, &batch, wanted, store, ctx)?;
        self.enqueue(caller, admission, batch, stage, store, ctx);
        Ok(())
    }

    /// A mirror has what its source has, and nothing else: whatever is appended passes here.
    fn check_writer(&self, batch: &ValidBatch, store: &Store, ctx: &Ctx) -> Result<(), Refused> {
        match (self.writer, &batch.copied) {
            (Writer::Anybody, None) | (Writer::Link(_), Some(_)) => Ok(()),
            (Writer::Link(_), None) if ctx.planted(Fault::MirrorWritable) => Ok(()),
            (Writer::Link(_), None) => Err(refuse(
                ErrorCode::InvalidTopic,
                format!(
                    "{} is a mirror: its link alone writes it, until it is promoted (thalweg relay promote)",
                    store.name
                ),
            )),
            (Writer::Nobody, _) => Err(ErrorReply::retryable(
                ErrorCode::NotLeader,
                BLOCKED_RETRY_MS,
                format!("{} goes to another node", store.name),
            )),
            (Writer::Anybody, Some(_)) => Err(refuse(
                ErrorCode::InvalidTopic,
                format!("{} is no mirror, or was promoted", store.name),
            )),
        }
    }

    /// Whether a batch may be appended, as far as its sequence numbers go. Those of a mirror's
    /// source are its offsets: what is there says which is next.
    fn check(&self, batch: &ValidBatch, store: &Store) -> Verdict {
        let header = &batch.header;
        let Some(copied) = &batch.copied else {
            let verdict = store.storage.check(header);
            return self.capacity.verdict(header, verdict);
        };
        let (at, end) = (copied.at, store.storage.state().end);
        let behind = at.0.saturating_add(header.offset_count());
        match at == end {
            true => Verdict::New,
            false if behind <= end.0 => Verdict::Duplicate { base_offset: at },
            false => Verdict::OutOfSequence {
                expected: Sequence(end.0),
            },
        }
    }

    /// Whether a producer's batch is here already, be it that it waits for room.
    pub fn has_already(&self, header: &Header, store: &Store) -> bool {
        let waiting = self.pending.get(&header.producer).into_iter().flatten();
        let waits = waiting.map(|one| &one.batch.header).any(|waiting| {
            waiting.first_sequence == header.first_sequence && waiting.epoch == header.epoch
        });
        waits || matches!(store.storage.check(header), Verdict::Duplicate { .. })
    }

    /// What the storage says of a batch, and whether it has to wait for others of its producer.
    fn admission(
        &mut self,
        batch: &ValidBatch,
        store: &mut Store,
        ctx: &mut Ctx,
    ) -> Result<Admission, Refused> {
        let header = &batch.header;
        self.end_older_epoch(header, store, ctx)?;
        let queue = self.pending.get(&header.producer);
        if let Some((queue, tail)) = queue.and_then(|queue| Some((queue, queue.back()?))) {
            return self.admission_behind(batch, queue, &tail.batch, store, ctx);
        }
        match self.check(batch, store) {
            Verdict::New => Ok(Admission::Now),
            Verdict::Duplicate { .. } if ctx.planted(Fault::NoDeduplication) => Ok(Admission::Now),
            Verdict::Duplicate { base_offset } => Ok(Admission::Duplicate(base_offset)),
            Verdict::OutOfSequence { expected } | Verdict::Unknown { expected } => {
                Err(out_of_sequence(header, expected))
            }
            Verdict::Fenced { epoch } if !ctx.planted(Fault::NoFencing) => {
                Err(fenced(epoch, header.epoch))
            }
            Verdict::Fenced { .. } => Ok(Admission::Now),
        }
    }

    /// Of a producer whose batches `queue` wait, the last one `tail`.
    fn admission_behind(
        &self,
        batch: &ValidBatch,
        queue: &VecDeque<PendingAppend>,
        tail: &ValidBatch,
        store: &Store,
        ctx: &Ctx,
    ) -> Result<Admission, Refused> {
        let header = &batch.header;
        let first = header.first_sequence;
        let same = queue.iter().position(|waiting| {
            let waiting = &waiting.batch.header;
            waiting.first_sequence == first && waiting.event_count == header.event_count
        });
        if let Some(index) = same {
            return Ok(Admission::InPlaceOf(index));
        }
        if self.capacity.follows(header, tail.next()) {
            let held = queue.len();
            if held < ctx.options.limits.arrivals_max {
                return Ok(Admission::Later);
            }
            if self.wait_queue.is_empty() {
                return Err(ErrorReply::retryable(
                    ErrorCode::LimitExceeded,
                    100,
                    format!(
                        "{}: {held} batches of producer {} wait already (arrivals_max)",
                        store.name, header.producer
                    ),
                ));
            }
            // To be sent when its turn has come, which may take long.
            return Err(out_of_sequence(header, first));
        }
        match self.check(batch, store) {
            Verdict::Duplicate { base_offset } => Ok(Admission::Duplicate(base_offset)),
            _ => Err(out_of_sequence(header, tail.next())),
        }
    }

    /// A producer's batches of an older epoch are not waited for; one of an older
    /// epoch than those that wait is refused.
    fn end_older_epoch(
        &mut self,
        header: &Header,
        store: &mut Store,
        ctx: &mut Ctx,
    ) -> Result<(), Refused> {
        let queue = self.pending.get(&header.producer);
        let Some(epoch) = queue.and_then(|queue| Some(queue.back()?.batch.header.epoch)) else {
            return Ok(());
        };
        if header.epoch < epoch {
            return Err(fenced(epoch, header.epoch));
        }
        if header.epoch > epoch {
            self.fence(header.producer, header.epoch, store, ctx);
        }
        Ok(())
    }

    /// A producer has a new epoch: what waits of an older one is refused, so that it is never
    /// appended behind the new one's first batch.
    pub fn fence(
        &mut self,
        producer: ProducerId,
        epoch: ProducerEpoch,
        store: &mut Store,
        ctx: &mut Ctx,
    ) {
        for pending in self.pending.remove(&producer).unwrap_or_default() {
            let error = fenced(epoch, pending.batch.header.epoch);
            self.give_up(pending, Some(error), store, ctx);
        }
    }

    /// A link begins on a connection: what it has sent before and is not appended is refused, so
    /// that nothing of an earlier session comes between.
    pub fn open_for_link(&mut self, opening: Opening, store: &mut Store, ctx: &mut Ctx) {
        self.writer = Writer::Link(Some(opening));
        for pending in self.pending.remove(&LINK).unwrap_or_default() {
            let error = ErrorReply::retryable(
                ErrorCode::ProducerFenced,
                0,
                format!("{}: its link has begun anew", store.name),
            );
            self.give_up(pending, Some(error), store, ctx);
        }
    }

    /// Whether there is room for a batch now. If not, it is to wait.
    fn has_room(
        &mut self,
        admission: Admission,
        batch: &ValidBatch,
        store: &Store,
        ctx: &mut Ctx,
    ) -> Result<bool, Refused> {
        let header = &batch.header;
        if self.is_behind_waiting(admission, header.producer) {
            return Ok(false);
        }
        match admission {
            // It was admitted when it came first.
            Admission::InPlaceOf(_) => Ok(true),
            // Its link keeps what is behind it at the source, and drops nothing.
            _ if batch.copied.is_some() => self.has_room_for_copy(batch, store),
            _ if !self.wait_queue.is_empty() => Ok(false),
            _ => self
                .capacity
                .admit(header, batch.bytes_stored(), store, ctx),
        }
    }

    /// Whether there is room for a batch of a mirror's source. If not, its link asks again.
    fn has_room_for_copy(&mut self, batch: &ValidBatch, store: &Store) -> Result<bool, Refused> {
        let (header, bytes) = (&batch.header, batch.bytes_stored());
        if matches!(
            self.capacity.policy(),
            Overflow::Grow | Overflow::DropOldest
        ) || self.capacity.has_room(header, bytes, &store.state())
        {
            return Ok(true);
        }
        let error = self.capacity.no_room(store, BLOCKED_RETRY_MS);
        Err(ErrorReply::retryable(
            ErrorCode::StorageFull,
            BLOCKED_RETRY_MS,
            error.message,
        ))
    }

    /// Whether a batch has to stay behind one that waits for room: an earlier one
    /// of its producer, or itself, sent before.
    fn is_behind_waiting(&self, admission: Admission, producer: ProducerId) -> bool {
        let Some(first) = first_waiting(self.pending.get(&producer)) else {
            return false;
        };
        match admission {
            Admission::InPlaceOf(index) => first <= index,
            Admission::Now | Admission::Later | Admission::Duplicate(_) => true,
        }
    }

    /// A batch waits for room, unless too much does of its connection.
    fn wait(
        &mut self,
        call: ProduceCall,
        admission: Admission,
        store: &mut Store,
        ctx: &mut Ctx,
    ) -> Result<(), Refused> {
        let ProduceCall {
            caller,
            credit,
            batch,
            wanted,
        } = call;
        let header = batch.header;
        let is_behind = self.is_behind_waiting(admission, header.producer);
        let is_new = !matches!(admission, Admission::InPlaceOf(_));
        if is_new && !WaitQueue::takes(caller.link, header.batch_bytes(), credit, ctx) {
            return Err(match is_behind {
                true => out_of_sequence(&header, header.first_sequence),
                false => self.capacity.no_room(store, BLOCKED_RETRY_MS),
            });
        }
        if !is_behind {
            self.wait_queue.producers.push_back(header.producer);
        }
        let queue = &mut self.wait_queue;
        let waiting = queue.enter(store.id, caller.link, &batch, wanted, ctx);
        self.enqueue(
            caller,
            admission,
            batch,
            Stage::Waiting(waiting),
            store,
            ctx,
        );
        Ok(())
    }

    /// There is room for a batch: what it waits for now.
    fn begin(
        &mut self,
        link: LinkId,
        batch: &ValidBatch,
        wanted: Wanted,
        store: &mut Store,
        ctx: &mut Ctx,
    ) -> Result<Stage, Refused> {
        let Some(layout) = wanted.layout else {
            return Ok(Stage::Ready(None));
        };
        let transfers = &mut self.transfers;
        let transfer = transfers.begin(link, batch, layout, wanted.regions, store, ctx)?;
        Ok(Stage::Transferring(transfer))
    }

    /// Puts a batch into the queue of its producer, where it waits for its
    /// external data or for those before it.
    fn enqueue(
        &mut self,
        caller: RequestId,
        admission: Admission,
        batch: ValidBatch,
        stage: Stage,
        store: &mut Store,
        ctx: &mut Ctx,
    ) {
        let producer = batch.header.producer;
        if !matches!(stage, Stage::Waiting(_)) {
            self.capacity.reserve(batch.size());
        }
        let pending = PendingAppend {
            caller,
            batch,
            stage,
        };
        let queue = self.pending.entry(producer).or_default();
        if let Admission::InPlaceOf(index) = admission
            && let Some(waiting) = queue.get_mut(index)
        {
            let old = std::mem::replace(waiting, pending);
            let error = ErrorReply::retryable(ErrorCode::Cancelled, 0, "the batch was sent again");
            self.give_up(old, Some(error), store, ctx);
        } else {
            queue.push_back(pending);
        }
        self.append_ready(producer, store, ctx);
    }

    /// Appends what has its turn and all of its data.
    fn append_ready(&mut self, producer: ProducerId, store: &mut Store, ctx: &mut Ctx) {
        while let Some((pending, place)) = self.take_ready(producer) {
            let PendingAppend { caller, batch, .. } = pending;
            self.capacity.release(batch.size());
            let verdict = self.check(&batch, store);
            if verdict != Verdict::New
                && let Some(place) = place
            {
                store.storage.abandon(place);
            }
            let result = match verdict {
                Verdict::New => self.append(caller, batch, place, store, ctx),
                Verdict::Duplicate { base_offset } => {
                    self.acknowledge_duplicate(caller, &batch, base_offset, store, ctx);
                    Ok(())
                }
                Verdict::Fenced { epoch } => Err(fenced(epoch, batch.header.epoch)),
                Verdict::OutOfSequence { expected } | Verdict::Unknown { expected } => {
                    Err(out_of_sequence(&batch.header, expected))
                }
            };
            if let Err(error) = result {
                ctx.refuse(caller, error);
                self.give_up_misplaced(store, ctx);
            }
        }
    }

    /// The next batch of a producer, if it can be appended.
    fn take_ready(&mut self, producer: ProducerId) -> Option<(PendingAppend, Option<DataPlace>)> {
        let queue = self.pending.get_mut(&producer)?;
        let Stage::Ready(place) = queue.front()?.stage else {
            return None;
        };
        let pending = queue.pop_front()?;
        if queue.is_empty() {
            self.pending.remove(&producer);
        }
        Some((pending, place))
    }

    /// Appends a batch, which is acknowledged when it is as durable as it asks for.
    pub fn append(
        &mut self,
        caller: RequestId,
        batch: ValidBatch,
        place: Option<DataPlace>,
        store: &mut Store,
        ctx: &mut Ctx,
    ) -> Result<(), Refused> {
        let writer = self.check_writer(&batch, store, ctx);
        if let Err(error) = writer {
            if let Some(place) = place {
                store.storage.abandon(place);
            }
            return Err(error);
        }
        let (count, bytes) = batch.size();
        let level = batch.durability;
        let (header, append_time, leader_epoch) = match &batch.copied {
            None => (batch.header, ctx.now.unix_ns, store.leader_epoch),
            Some(copied) => (copied.stored, copied.append_time, copied.leader_epoch),
        };
        let appended = store.storage.append(Append {
            batch: batch.bytes,
            header,
            header_crc: batch.header_crc,
            place,
            durability: level,
            append_time,
            now: ctx.now.unix_ns,
            leader_epoch,
        });
        let base_offset = match appended {
            Ok(offset) => offset,
            Err(error) => {
                if let Some(place) = place {
                    store.storage.abandon(place);
                }
                store.touch(ctx);
                return Err(store.refusal(&error));
            }
        };
        let end = base_offset.plus(count);
        let gap = batch.copied.and_then(|copied| copied.gap).map(|gap| {
            Box::new(Gap {
                incarnation: store.state().incarnation,
                first: base_offset,
                end,
                ..gap
            })
        });
        self.capacity.appended(end, bytes);
        let ack = Ack {
            caller,
            base_offset,
            end,
            append_time,
            duplicate: false,
            gap,
        };
        self.acks.push(level, ack);
        // What has to be written is written at once, and takes effect when that is done.
        let is_written = store.hand_out(ctx);
        let is_early = store.visible_at == Durability::Memory || ctx.planted(Fault::AckEarly);
        if !is_written || is_early {
            store.touch(ctx);
        }
        Ok(())
    }

    /// A retry gets the offsets that its first try got, once those are as
    /// durable as is asked now.
    pub fn acknowledge_duplicate(
        &mut self,
        caller: RequestId,
        batch: &ValidBatch,
        base_offset: Offset,
        store: &Store,
        ctx: &mut Ctx,
    ) {
        let ack = Ack {
            caller,
            base_offset,
            end: base_offset.plus(batch.header.offset_count()),
            // The time is in the batch's stamp, which is not read for this.
            append_time: 0,
            gap: None,
            duplicate: true,
        };
        self.acks.push(batch.durability, ack);
        store.touch(ctx);
    }

    /// Acknowledges what has become as durable as was asked.
    pub fn acknowledge(&mut self, store: &Store, ctx: &mut Ctx) {
        let mut state = store.state();
        if ctx.planted(Fault::AckEarly) {
            (state.synced, state.written) = (state.end, state.end);
        }
        while let Some(ack) = self.acks.pop_reached(&state) {
            trace::passes!("as durable as was asked: acknowledged");
            // It is not undone any more: queues may count on it.
            if let Some(gap) = ack.gap {
                ctx.effects
                    .push_back(Effect::Lost(store.key, gap.incarnation, *gap));
            }
            if ack.caller.link == OWN_LINK {
                ctx.effects
                    .push_back(Effect::OwnAppend(ack.caller.id, Ok(())));
                continue;
            }
            let produced = Produced {
                incarnation: state.incarnation,
                base_offset: ack.base_offset,
                append_time: ack.append_time,
                duplicate: ack.duplicate,
            };
            ctx.answer(ack.caller, Answer::Produced(produced));
        }
    }

    /// The storage undid what was appended from `from` on.
    pub fn undone(&mut self, from: Offset, error: &StorageError, store: &mut Store, ctx: &mut Ctx) {
        self.capacity.retract(from);
        let refusal = store.refusal(error);
        for ack in self.acks.take_from(from) {
            ctx.refuse(ack.caller, refusal.clone());
        }
        self.give_up_misplaced(store, ctx);
        store.touch(ctx);
    }

    /// Admits batches for which there is room by now.
    pub fn advance_waiting(&mut self, store: &mut Store, ctx: &mut Ctx) {
        while let Some(producer) = self.wait_queue.producers.front().copied() {
            let Some(index) = first_waiting(self.pending.get(&producer)) else {
                self.wait_queue.producers.pop_front();
                continue;
            };
            let batch = &self.pending[&producer][index].batch;
            let (header, bytes) = (batch.header, batch.bytes_stored());
            let is_blocking = self.capacity.policy() == Overflow::Block;
            if is_blocking && !self.capacity.has_room(&header, bytes, &store.state()) {
                return;
            }
            // The policy may have been altered meanwhile.
            match self.capacity.admit(&header, bytes, store, ctx) {
                Ok(_) => self.admit_waiting(producer, index, store, ctx),
                Err(error) => self.refuse_from(producer, index, error, store, ctx),
            }
        }
    }

    /// Begins what a batch has waited for.
    fn admit_waiting(
        &mut self,
        producer: ProducerId,
        index: usize,
        store: &mut Store,
        ctx: &mut Ctx,
    ) {
        let queue = self.pending.get_mut(&producer);
        let Some(pending) = queue.and_then(|queue| queue.remove(index)) else {
            return;
        };
        self.wait_queue.producers.pop_front();
        let PendingAppend {
            caller,
            batch,
            stage: Stage::Waiting(Waiting { wanted, .. }),
        } = pending
        else {
            return;
        };
        WaitQueue::leave(caller.link, &batch, ctx);
        store.touch(ctx);
        let begun = self.begin(caller.link, &batch, wanted, store, ctx);
        let queue = self.pending.entry(producer).or_default();
        match begun {
            Ok(stage) => {
                self.capacity.reserve(batch.size());
                let pending = PendingAppend {
                    caller,
                    batch,
                    stage,
                };
                queue.insert(index, pending);
                if queue.iter().any(PendingAppend::is_waiting) {
                    self.wait_queue.producers.push_back(producer);
                }
                self.append_ready(producer, store, ctx);
            }
            Err(error) => {
                ctx.refuse(caller, error);
                self.give_up_from(producer, index, store, ctx);
            }
        }
    }

    /// Refuses those that have waited long: there is still no room.
    pub fn report_waiting(&mut self, store: &mut Store, ctx: &mut Ctx) {
        let now = ctx.now.monotonic;
        self.wait_queue.timer_came();
        let report_at = |queue: &VecDeque<PendingAppend>| -> Option<Duration> {
            let times = queue.iter().filter_map(|pending| match &pending.stage {
                Stage::Waiting(waiting) => Some(waiting.report_at),
                _ => None,
            });
            times.min()
        };
        let queues = self.pending.iter();
        let times = queues.filter_map(|(producer, queue)| Some((*producer, report_at(queue)?)));
        let (due, later): (Vec<_>, Vec<_>) = times.partition(|(_, at)| *at <= now);
        for (producer, _) in due {
            let refusal = self.capacity.no_room(store, WAITED_RETRY_MS);
            if let Some(index) = first_waiting(self.pending.get(&producer)) {
                self.refuse_from(producer, index, refusal, store, ctx);
            }
        }
        if let Some(at) = later.into_iter().map(|(_, at)| at).min() {
            self.wait_queue.arm(store.id, at, ctx);
        }
    }

    /// Nothing that waits for room is admitted any more.
    pub fn end_waiting(&mut self, error: &ErrorReply, store: &mut Store, ctx: &mut Ctx) {
        while let Some(producer) = self.wait_queue.producers.pop_front() {
            if let Some(index) = first_waiting(self.pending.get(&producer)) {
                self.refuse_from(producer, index, error.clone(), store, ctx);
            }
        }
    }

    /// Nobody waits for a produce call any more. What was appended stays;
    /// what still waits goes, with what waits behind it.
    pub fn forget(
        &mut self,
        caller: RequestId,
        producer: ProducerId,
        store: &mut Store,
        ctx: &mut Ctx,
    ) {
        let queue = self.pending.get(&producer);
        let index = queue.and_then(|queue| queue.iter().position(|one| one.caller == caller));
        if let Some(index) = index {
            self.give_up_from(producer, index, store, ctx);
        }
    }

    /// Answers everything that waits for the partition to take events.
    pub fn fail(&mut self, error: &ErrorReply, store: &mut Store, ctx: &mut Ctx) {
        for ack in self.acks.take_all() {
            ctx.refuse(ack.caller, error.clone());
        }
        let failed = Effect::Failed(store.id, error.clone());
        ctx.effects.push_back(failed);
        for pending in std::mem::take(&mut self.pending).into_values().flatten() {
            self.give_up(pending, Some(error.clone()), store, ctx);
        }
    }

    /// Refuses a batch that waits, and gives up those behind it.
    fn refuse_from(
        &mut self,
        producer: ProducerId,
        index: usize,
        error: ErrorReply,
        store: &mut Store,
        ctx: &mut Ctx,
    ) {
        let queue = self.pending.get(&producer);
        if let Some(pending) = queue.and_then(|queue| queue.get(index)) {
            ctx.refuse(pending.caller, error);
            self.give_up_from(producer, index, store, ctx);
        }
    }

    /// Gives up what waits behind a batch that is not stored after all: it
    /// would be refused when its turn comes, and until then keep the one that
    /// is sent again from its place.
    fn give_up_misplaced(&mut self, store: &mut Store, ctx: &mut Ctx) {
        let is_misplaced = |queue: &VecDeque<PendingAppend>| {
            let front = queue.front().map(|front| &front.batch);
            front.is_some_and(|front| {
                matches!(self.check(front, store), Verdict::OutOfSequence { .. })
            })
        };
        let queues = self.pending.iter();
        let misplaced = queues.filter(|(_, queue)| is_misplaced(queue));
        let misplaced: Vec<ProducerId> = misplaced.map(|(producer, _)| *producer).collect();
        for producer in misplaced {
            self.give_up_from(producer, 0, store, ctx);
        }
    }

    /// Gives up a producer's waiting batches from `index` on.
    fn give_up_from(
        &mut self,
        producer: ProducerId,
        index: usize,
        store: &mut Store,
        ctx: &mut Ctx,
    ) {
        let Some(queue) = self.pending.get_mut(&producer) else {
            return;
        };
        let given_up = queue.split_off(index);
        if queue.is_empty() {
            self.pending.remove(&producer);
        }
        for pending in given_up {
            let header = pending.batch.header;
            let error = ErrorReply::retryable(
                ErrorCode::OutOfSequence,
                0,
                format!(
                    "the batch of sequence {} waited behind one that was given up",
                    header.first_sequence
                ),
            );
            self.give_up(pending, Some(error), store, ctx);
        }
    }

    /// Gives up a batch that was waiting, and its data.
    fn give_up(
        &mut self,
        pending: PendingAppend,
        error: Option<ErrorReply>,
        store: &mut Store,
        ctx: &mut Ctx,
    ) {
        let PendingAppend {
            caller,
            batch,
            stage,
        } = pending;
        if !matches!(stage, Stage::Waiting(_)) {
            self.capacity.release(batch.size());
        }
        match stage {
            Stage::Waiting(_) => WaitQueue::leave(caller.link, &batch, ctx),
            Stage::Transferring(transfer) => self.transfers.abandon(transfer, store, ctx),
            Stage::Ready(Some(place)) => store.storage.abandon(place),
            Stage::Ready(None) => {}
        }
        // What it leaves free may be for one that waits.
        store.touch(ctx);
        if let Some(error) = error {
            ctx.refuse(caller, error);
        }
    }

    /// Lets a transfer go on that waited for the budget. Says whether it did.
    pub fn feed_transfer(&mut self, id: TransferId, store: &mut Store, ctx: &mut Ctx) -> bool {
        self.transfers.feed(id, Asks::InTurn, store, ctx)
    }

    /// A chunk of external data has come, or cannot be had.
    pub fn chunk_arrived(
        &mut self,
        id: TransferId,
        token: BulkToken,
        result: Result<(Buffer, Vec<u32>), NetError>,
        store: &mut Store,
        ctx: &mut Ctx,
    ) {
        let transfers = &mut self.transfers;
        if let Err(error) = transfers.chunk_arrived(id, token, result, store, ctx) {
            self.fail_transfer(id, error, store, ctx);
        }
    }

    /// Whether a place was reserved for a batch of a producer, and not by another object.
    pub fn fills(&self, place: DataPlace) -> bool {
        self.transfers.fills(place)
    }

    pub fn chunk_written(
        &mut self,
        place: DataPlace,
        bytes: u64,
        store: &mut Store,
        ctx: &mut Ctx,
    ) {
        self.transfers.chunk_written(place, bytes, store, ctx);
    }

    /// External data is in its place: the batch may follow when it has its turn.
    pub fn data_ready(&mut self, place: DataPlace, store: &mut Store, ctx: &mut Ctx) {
        let Some((id, producer, same)) = self.transfers.ready(place, store, ctx) else {
            return;
        };
        if let Err(error) = same {
            store.storage.abandon(place);
            let mut queue = self.pending.get(&producer).into_iter().flatten();
            if let Some(index) = queue.position(|pending| pending.stage == Stage::Transferring(id))
            {
                self.refuse_from(producer, index, error, store, ctx);
            }
            return;
        }
        let mut queue = self.pending.get_mut(&producer).into_iter().flatten();
        match queue.find(|pending| pending.stage == Stage::Transferring(id)) {
            Some(pending) => {
                pending.stage = Stage::Ready(Some(place));
                self.append_ready(producer, store, ctx);
            }
            None => store.storage.abandon(place),
        }
    }

    /// External data could not be stored.
    pub fn data_failed(
        &mut self,
        place: DataPlace,
        error: &StorageError,
        store: &mut Store,
        ctx: &mut Ctx,
    ) {
        if let Some(id) = self.transfers.lose_place(place) {
            let refusal = store.refusal(error);
            self.fail_transfer(id, refusal, store, ctx);
        }
    }

    /// Gives up a transfer, its batch, and those that wait behind it.
    fn fail_transfer(
        &mut self,
        id: TransferId,
        error: ErrorReply,
        store: &mut Store,
        ctx: &mut Ctx,
    ) {
        let Some(producer) = self.transfers.producer(id) else {
            return;
        };
        let mut queue = self.pending.get(&producer).into_iter().flatten();
        match queue.position(|pending| pending.stage == Stage::Transferring(id)) {
            Some(index) => self.refuse_from(producer, index, error, store, ctx),
            None => self.transfers.abandon(id, store, ctx),
        }
    }
}
