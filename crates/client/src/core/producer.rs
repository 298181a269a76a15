//! Batches on their way: taken from the queues, sealed, sent in order, kept
//! until they are acknowledged, sent again after a reconnect.
//!
//! What keeps a partition's sequence free of holes: a producer whose batch is
//! refused for good, or not acknowledged within its `ack_timeout`, has failed.
//! All its unacknowledged batches fail with the same error and nothing is
//! taken any more; a new producer is to be opened. So no batch is ever stored
//! behind one that was given up. A batch that a full topic drops is no hole: the
//! server has its numbers for used.

use super::retry;
use super::wire_session::{Request, Route, Timer, Wire};
use crate::batch_queue::{Gathering, Identity, ProducerShared, Take};
use crate::error::ClientError;
use crate::event::Piece;
use crate::faults::{Fault, planted};
use crate::future::{BatchPromise, Stored};
use crate::journal::JournalRecord;
use crate::mailbox::Counters;
use crate::promise::{Promise, Reply};
use crate::topic_state::TopicState;
use bytes::Bytes;
use memory::Reservation;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use wire::batch::{Header, Origin, STAMP_BYTES};
use wire::checksum::crc32c_append;
use wire::codec::Codec;
use wire::message::{Method, OpenProducer, Produce, Produced, ProducerOpened, Region};
use wire::{ErrorCode, ErrorReply, PartitionIndex, ProducerId, Sequence};

/// How often a batch may be found out of sequence, or damaged on its way,
/// without any progress in between.
const REPAIRS_MAX: u32 = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Waiting for a connection, or for the answer to OpenProducer.
    Opening,
    Open,
    Failed,
}

/// A batch that was sealed and is not acknowledged.
struct SentBatch {
    /// Head, metadata, inline data.
    payload: Vec<Bytes>,
    payload_bytes: u64,
    /// Large data, sent from where it lies.
    pieces: Vec<Piece>,
    /// Where the pieces can be reached while the request is under way.
    regions: Vec<Region>,
    /// The request's id on the present connection; none while it is not sent.
    request: Option<u64>,
    was_sent: bool,
    /// The server has taken it for one that leaves a hole: it is sent again
    /// when everything before it is stored.
    must_be_first: bool,
    /// The ack, or that a full topic dropped it, while an earlier batch's is missing.
    outcome: Option<Result<Produced, ErrorReply>>,
    identity: Identity,
    first_sequence: Sequence,
    count: u32,
    promise: Arc<BatchPromise>,
    taken_at: Duration,
    _reservation: Reservation,
}

impl SentBatch {
    fn seal(
        producer: &ProducerShared,
        identity: Identity,
        first_sequence: Sequence,
        mut gathering: Gathering,
        now: Duration,
    ) -> Self {
        trace::passes!("sealed: sections and checksums");
        gathering.reservation.shrink_to(gathering.used_bytes());
        let origin = Origin {
            topic: producer.topic.id,
            producer: identity.producer,
            epoch: identity.epoch,
            first_sequence,
        };
        let block_bytes = producer.topic.definition.data_block_bytes();
        let sealed = gathering.builder.seal(origin, block_bytes);
        let payload_bytes = sealed.bytes() as u64;
        let mut payload = vec![Bytes::from(sealed.head)];
        let metadata = producer.metadata_buffers.lend(sealed.metadata);
        let inline = producer.inline_buffers.lend(sealed.inline);
        let sections = [metadata].into_iter().chain(sealed.shared).chain([inline]);
        payload.extend(sections.filter(|piece| !piece.is_empty()));
        Self {
            payload,
            payload_bytes,
            pieces: gathering.pieces,
            regions: Vec::new(),
            request: None,
            was_sent: false,
            must_be_first: false,
            outcome: None,
            identity,
            first_sequence,
            count: sealed.event_count,
            promise: gathering.promise,
            taken_at: now,
            _reservation: gathering.reservation,
        }
    }

    /// Lets the server read the large data; one region a piece.
    fn expose(&mut self, wire: &mut Wire<'_>) -> Vec<Region> {
        self.was_sent = true;
        if let Some(link) = wire.link() {
            self.regions = self
                .pieces
                .iter()
                .map(|piece| match &piece.lent {
                    None => link.expose(piece.bytes.clone()),
                    Some(lent) => link.expose_sealed(piece.bytes.clone(), lent.seal.clone()),
                })
                .collect();
        }
        self.regions.clone()
    }

    /// That somebody changed large data which he had lent, if that was found
    /// when it was sent.
    fn changed(&self) -> Option<ClientError> {
        let lent = self.pieces.iter().filter_map(|piece| piece.lent.as_ref());
        lent.into_iter().find_map(|lent| lent.changed())
    }

    /// The request is answered, or of no interest any more.
    fn unsend(&mut self, wire: &mut Wire<'_>) {
        let Some(id) = self.request.take() else {
            return;
        };
        wire.end_route(id);
        wire.return_produce_credit(self.payload_bytes);
        if let Some(link) = wire.link() {
            for region in &self.regions {
                link.withdraw(region);
            }
        }
        self.regions.clear();
    }

    /// Gives the batch another first sequence number.
    fn renumber(&mut self, first_sequence: Sequence) {
        let mut head = self.payload[0].to_vec();
        let (header, _) =
            Header::read(&head[STAMP_BYTES..]).expect("the header was written by this process");
        let header = Header {
            first_sequence,
            ..header
        };
        header.write(&mut head[STAMP_BYTES..]);
        self.payload[0] = head.into();
        self.first_sequence = first_sequence;
    }

    /// Bytes of the batch and its large data.
    fn bytes(&self) -> u64 {
        let pieces: u64 = self
            .pieces
            .iter()
            .map(|piece| piece.bytes.len() as u64)
            .sum();
        self.payload_bytes + pieces
    }

    /// The checksum that the journal keeps: of metadata, inline data and
    /// large data, one behind the other.
    fn checksum(&self) -> u32 {
        let sections = self.payload[1..]
            .iter()
            .chain(self.pieces.iter().map(|piece| &piece.bytes));
        sections.fold(0, |crc, bytes| crc32c_append(crc, bytes))
    }
}

/// One partition's batches under way.
#[derive(Default)]
struct PartitionFlow {
    /// The sequence number of the next event.
    next_sequence: u64,
    /// In order; the first are sent, the last perhaps not yet.
    in_flight: VecDeque<SentBatch>,
    /// Nothing is sent before this.
    retry_at: Option<Duration>,
    /// Repairs since the last progress.
    repairs: u32,
    /// The server knows the producer in this partition. Until it does, one
    /// batch at a time is sent: whatever comes first is taken as the first,
    /// so a second one must not overtake a first that is refused.
    is_known: bool,
    /// How often batches were refused, and none stored since: only the first
    /// is sent meanwhile, to find out whether that has changed.
    refused: u32,
}

/// What credit that came back was to a producer.
pub(super) enum Fed {
    /// It waits no longer.
    Enough,
    /// It has sent something, and waits for more.
    Partly,
    /// It was too little.
    Nothing,
}

pub(super) struct ProducerCore {
    shared: Arc<ProducerShared>,
    state: State,
    /// OpenProducer was sent and not answered.
    asked: bool,
    /// Resolved when the producer is open for the first time.
    promise: Option<Promise>,
    open_timeout: Duration,
    open_deadline: Duration,
    partitions: BTreeMap<u32, PartitionFlow>,
    take: Take,
    /// There may be batches to take.
    dirty: bool,
    /// There may be batches to send.
    unsent: bool,
    /// It waits for credit, behind those that have waited longer.
    starved: bool,
    /// There was too little credit for what it has to send.
    is_short: bool,
    /// A batch was sent since somebody looked.
    has_sent: bool,
    /// When [`ProducerCore::timer`] is to be called next.
    armed: Option<Duration>,
}

impl ProducerCore {
    pub fn new(
        wire: &mut Wire<'_>,
        shared: Arc<ProducerShared>,
        timeout: Duration,
        promise: Promise,
    ) -> Self {
        let mut core = Self {
            open_timeout: timeout,
            open_deadline: wire.now().saturating_add(timeout),
            shared,
            state: State::Opening,
            asked: false,
            promise: Some(promise),
            partitions: BTreeMap::new(),
            take: Take::default(),
            dirty: false,
            unsent: false,
            starved: false,
            is_short: false,
            has_sent: false,
            armed: None,
        };
        core.arm(wire, core.open_deadline);
        core.connected(wire);
        core
    }

    /// The topic that it is of.
    pub fn topic(&self) -> &TopicState {
        &self.shared.topic
    }

    fn arm(&mut self, wire: &mut Wire<'_>, at: Duration) {
        if self.armed.is_none_or(|armed| at < armed) {
            self.armed = Some(at);
            wire.context.arm(at, Timer::Producer(self.shared.key));
        }
    }

    /// There is a connection: the producer is opened, or taken up again.
    pub fn connected(&mut self, wire: &mut Wire<'_>) {
        if self.state == State::Failed || !wire.is_up() {
            return;
        }
        self.state = State::Opening;
        if std::mem::replace(&mut self.asked, true) {
            return;
        }
        let identity = self.identity();
        let open = OpenProducer {
            name: self.shared.options.name.clone().unwrap_or_default(),
            resume: identity.producer,
            resume_epoch: identity.epoch,
        };
        let request = Request {
            method: Method::OpenProducer,
            topic: self.shared.topic.id,
            leader_epoch: 0,
            remaining: self.shared.options.ack_timeout,
            body: &open.to_bytes(),
            payload: Vec::new(),
            is_quiet: false,
        };
        let route = Route::OpenProducer {
            producer: self.shared.key,
        };
        wire.request(route, request);
    }

    fn identity(&self) -> Identity {
        self.shared.identity()
    }

    pub fn disconnected(&mut self, wire: &mut Wire<'_>) {
        if self.state == State::Open {
            self.state = State::Opening;
        }
        self.asked = false;
        self.starved = false;
        for flow in self.partitions.values_mut() {
            flow.retry_at = None;
            flow.is_known = false;
            if planted(Fault::NoEnd) {
                continue;
            }
            for batch in &mut flow.in_flight {
                batch.unsend(wire);
            }
        }
        self.unsent = true;
    }

    /// The answer to OpenProducer.
    pub fn opened(&mut self, wire: &mut Wire<'_>, outcome: Result<Reply, ErrorReply>) {
        self.asked = false;
        if self.state != State::Opening {
            return;
        }
        let opened = match outcome {
            Ok(reply) => ProducerOpened::from_bytes("producer opened", &reply.head)
                .map_err(|error| ErrorReply::fatal(ErrorCode::Malformed, error.to_string())),
            Err(error) => Err(error),
        };
        let opened = match opened {
            Ok(opened) => opened,
            Err(error) if error.retryable => {
                let at = wire.now() + retry::BATCH.after(&error);
                self.armed = None;
                return self.arm(wire, at);
            }
            Err(error) => return self.fail(wire, &ClientError::Server(error)),
        };
        *self.shared.identity.write().expect("no holder panics here") = Identity {
            producer: opened.producer,
            epoch: opened.epoch,
        };
        self.state = State::Open;
        for (partition, next) in opened.next {
            self.partitions
                .entry(partition.0)
                .or_default()
                .resume_at(next);
        }
        self.unsent = true;
        self.dirty = true;
        if let Some(promise) = self.promise.take() {
            promise.resolve(Ok(Reply::default()));
        }
    }

    /// The queue has something to take.
    pub fn notified(&mut self) {
        self.dirty = true;
    }

    /// Whether [`ProducerCore::pump`] may have something to do.
    pub fn is_awake(&self) -> bool {
        self.dirty || self.unsent && !self.starved
    }

    /// Whether it begins to wait for credit: it has something to send, and
    /// could.
    pub fn starve(&mut self) -> bool {
        let begins = self.is_short && !self.starved;
        self.starved |= begins;
        begins
    }

    /// Its turn among those that wait for credit has come.
    pub fn feed(&mut self, wire: &mut Wire<'_>) -> Fed {
        self.has_sent = false;
        self.send_all(wire, true);
        self.starved = self.is_short;
        match (self.starved, self.has_sent) {
            (false, _) => Fed::Enough,
            (true, true) => Fed::Partly,
            (true, false) => Fed::Nothing,
        }
    }

    /// Sends what can be sent, if there is credit for others than those that
    /// wait for it.
    fn send_all(&mut self, wire: &mut Wire<'_>, has_credit: bool) {
        self.is_short = false;
        if !self.unsent || self.state != State::Open || !wire.is_up() {
            return;
        }
        if !has_credit {
            self.is_short = true;
            return;
        }
        self.unsent = false;
        let partitions: Vec<u32> = self.partitions.keys().copied().collect();
        for partition in partitions {
            self.unsent |= !self.send(wire, partition);
        }
        self.is_short = self.unsent;
    }

    /// Takes and sends up to `batches`, if nobody has to be waited for, of those
    /// who may have the queue. False if there may be more.
    pub fn send_inline(&mut self, wire: &mut Wire<'_>, batches: u32) -> bool {
        self.notified();
        for _ in 0..=batches {
            match self.pump_by(wire, true, ProducerShared::try_take) {
                Some(true) => {}
                Some(false) => return true,
                None => return false,
            }
        }
        false
    }

    /// Takes and sends at most one batch, and sends what could not be sent
    /// before, unless others wait for credit. True if there may be more at once.
    pub fn pump(&mut self, wire: &mut Wire<'_>, has_credit: bool) -> bool {
        let take = |shared: &ProducerShared, now, take: &mut Take| {
            shared.take(now, take);
            true
        };
        self.pump_by(wire, has_credit, take).unwrap_or(true)
    }

    /// [`ProducerCore::pump`], with batches from `take`; `None` if that had to
    /// wait.
    fn pump_by(
        &mut self,
        wire: &mut Wire<'_>,
        has_credit: bool,
        take: impl FnOnce(&ProducerShared, Duration, &mut Take) -> bool,
    ) -> Option<bool> {
        if !self.starved {
            self.send_all(wire, has_credit);
        }
        // Nothing is sealed before the producer has an identity to seal with.
        if !self.dirty || self.state == State::Failed || self.identity().producer == ProducerId(0) {
            return Some(false);
        }
        if !take(&self.shared, wire.now(), &mut self.take) {
            return None;
        }
        if let Some(until) = self.take.linger_until {
            self.arm(wire, until);
        }
        let Some((partition, gathering)) = self.take.batch.take() else {
            self.dirty = false;
            return Some(false);
        };
        trace::passes!("its batch is taken, and gets its sequence number");
        let flow = self.partitions.entry(partition).or_default();
        let batch = SentBatch::seal(
            &self.shared,
            self.shared.identity(),
            Sequence(flow.next_sequence),
            gathering,
            wire.now(),
        );
        flow.next_sequence += u64::from(batch.count);
        let deadline = batch
            .taken_at
            .saturating_add(self.shared.options.ack_timeout);
        flow.in_flight.push_back(batch);
        self.arm(wire, deadline);
        if self.state == State::Open && wire.is_up() && has_credit && !self.starved {
            self.unsent |= !self.send(wire, partition);
            self.is_short = self.unsent;
        } else {
            self.unsent = true;
            self.is_short = self.state == State::Open && wire.is_up();
        }
        Some(true)
    }

    /// Sends what can be sent of a partition. False if the connection's credit
    /// is used up; whatever else a batch waits for, this producer hears of it:
    /// an answer to the batch before it, a timer, a connection.
    fn send(&mut self, wire: &mut Wire<'_>, partition: u32) -> bool {
        let Some(flow) = self.partitions.get_mut(&partition) else {
            return true;
        };
        if flow.retry_at.is_some_and(|at| at > wire.now()) {
            return true;
        }
        flow.retry_at = None;
        let one_by_one = !flow.is_known || flow.refused > 0;
        for (place, batch) in flow.in_flight.iter_mut().enumerate() {
            if batch.request.is_some() || batch.outcome.is_some() {
                continue;
            }
            if batch.was_sent && planted(Fault::NewSequence) {
                batch.renumber(Sequence(flow.next_sequence));
                flow.next_sequence += u64::from(batch.count);
            }
            if place > 0 && (one_by_one || batch.must_be_first) {
                return true;
            }
            // Found while a connection lasted that was lost since.
            if let Some(changed) = batch.changed() {
                self.fail(wire, &changed);
                return true;
            }
            if let Some(max) = wire.exceeds_payload_max(batch.payload_bytes) {
                let error = ClientError::Invalid(format!(
                    "a batch of {} bytes for {}/{partition}: the server takes {max} at once",
                    batch.payload_bytes, self.shared.topic.name
                ));
                self.fail(wire, &error);
                return true;
            }
            if !wire.take_produce_credit(batch.payload_bytes) {
                return false;
            }
            let (durability, leader_epoch) = self.shared.topic.leadership(partition);
            let produce = Produce {
                partition: PartitionIndex(partition),
                durability: self.shared.options.durability.unwrap_or(durability),
                regions: batch.expose(wire),
            };
            let deadline = batch
                .taken_at
                .saturating_add(self.shared.options.ack_timeout);
            // What is not taken yet is the answer to the one before, as a rule.
            let is_first = place == usize::from(wire.context.is_behind) || place == 0;
            let request = Request {
                method: Method::Produce,
                topic: self.shared.topic.id,
                leader_epoch,
                remaining: deadline.saturating_sub(wire.now()),
                body: &produce.to_bytes(),
                payload: batch.payload.clone(),
                is_quiet: is_first && self.shared.is_quiet(),
            };
            let route = Route::Produce {
                producer: self.shared.key,
                partition,
            };
            batch.request = Some(wire.request(route, request));
            self.has_sent = true;
            Counters::add(&wire.context.mailbox.counters.batches_sent);
        }
        true
    }

    /// The answer to a Produce.
    pub fn produced(
        &mut self,
        wire: &mut Wire<'_>,
        partition: u32,
        id: u64,
        outcome: Result<Reply, ErrorReply>,
    ) {
        trace::passes!("stored: its batch leaves those under way");
        let Some(flow) = self.partitions.get_mut(&partition) else {
            return;
        };
        let Some(place) = flow
            .in_flight
            .iter()
            .position(|batch| batch.request == Some(id))
        else {
            return;
        };
        // Space came free for others.
        self.unsent = true;
        let batch = &mut flow.in_flight[place];
        batch.unsend(wire);
        let produced = match outcome {
            Ok(reply) => Produced::from_bytes("produced", &reply.head)
                .map_err(|error| ErrorReply::fatal(ErrorCode::Malformed, error.to_string())),
            Err(error) => Err(error),
        };
        match produced {
            Ok(produced) => {
                batch.outcome = Some(Ok(produced));
                flow.repairs = 0;
                flow.is_known = true;
                if std::mem::take(&mut flow.refused) > 0 {
                    self.shared.refusals.forget(partition);
                }
                self.resolve(wire, partition);
            }
            Err(error) => self.refused(wire, partition, place, error),
        }
    }

    /// Resolves the batches at the front that are stored.
    fn resolve(&mut self, wire: &mut Wire<'_>, partition: u32) {
        let flow = self.partitions.entry(partition).or_default();
        let mut done: Vec<(Arc<BatchPromise>, Result<Stored, ClientError>)> = Vec::new();
        let mut journal_error = None;
        while let Some(produced) = flow
            .in_flight
            .front()
            .and_then(|batch| batch.outcome.clone())
        {
            let batch = flow.in_flight.pop_front().expect("looked at above");
            let produced = match produced {
                Ok(produced) => produced,
                Err(error) => {
                    self.shared.acknowledged(partition);
                    self.shared.losses.note(batch.count, &error);
                    done.push((batch.promise.clone(), Err(ClientError::Server(error))));
                    continue;
                }
            };
            if let Some(journal) = &self.shared.journal {
                let record = JournalRecord {
                    topic: self.shared.topic.id,
                    partition: PartitionIndex(partition),
                    incarnation: produced.incarnation,
                    first: produced.base_offset,
                    count: batch.count,
                    checksum: batch.checksum(),
                    producer: batch.identity.producer,
                    epoch: batch.identity.epoch,
                    first_sequence: batch.first_sequence,
                    append_time: produced.append_time,
                    duplicate: produced.duplicate,
                };
                if let Err(error) = journal.append(&record) {
                    batch.promise.resolve(Err(error.clone()));
                    journal_error = Some(error);
                    break;
                }
            }
            Counters::add(&wire.context.mailbox.counters.batches_acknowledged);
            self.shared.acknowledged(partition);
            let stored = Stored {
                partition: PartitionIndex(partition),
                incarnation: produced.incarnation,
                base_offset: produced.base_offset,
            };
            // Gives the budget back before anybody is notified, so that who was
            // notified finds space.
            done.push((batch.promise.clone(), Ok(stored)));
        }
        self.dirty = true;
        for (promise, outcome) in done {
            promise.resolve(outcome);
        }
        if let Some(error) = journal_error {
            self.fail(wire, &error);
        }
    }

    /// A batch was not taken: it is sent again, or the producer has failed.
    fn refused(&mut self, wire: &mut Wire<'_>, partition: u32, place: usize, error: ErrorReply) {
        let flow = self
            .partitions
            .get_mut(&partition)
            .expect("found by the caller");
        // The link did not send it, so that the server could not read it.
        if let Some(changed) = flow.in_flight[place].changed() {
            return self.fail(wire, &changed);
        }
        let again = match error.code {
            // The topic is full, and these events are gone: the server counts
            // their sequence numbers as used, and those behind them go on.
            ErrorCode::TopicFull | ErrorCode::EventDropped => {
                flow.in_flight[place].outcome = Some(Err(error));
                flow.repairs = 0;
                flow.is_known = true;
                return self.resolve(wire, partition);
            }
            ErrorCode::OutOfSequence => {
                // An earlier batch is not stored, be it refused or slower: this
                // one waits for it.
                if place > 0 {
                    flow.in_flight[place].must_be_first = true;
                    return;
                }
                flow.repairs += 1;
                if flow.repairs > REPAIRS_MAX {
                    return self.fail(wire, &ClientError::Server(error));
                }
                // What the server knows of this producer is asked anew.
                let wait = retry::BATCH.after(&error);
                self.rewind(wire, partition, wait);
                self.connected(wire);
                return;
            }
            ErrorCode::ChecksumMismatch => {
                flow.repairs += 1;
                flow.repairs <= REPAIRS_MAX
            }
            ErrorCode::DeadlinePassed | ErrorCode::Cancelled | ErrorCode::Draining => true,
            ErrorCode::ProducerFenced | ErrorCode::ProducerExpired => false,
            _ => error.retryable,
        };
        if !again {
            return self.fail(wire, &ClientError::Server(error));
        }
        wire.context.is_stale |= error.code == ErrorCode::NotLeader;
        let wait = retry::BATCH.after_refusals(&error, flow.refused);
        flow.refused = flow.refused.saturating_add(1);
        self.shared.refusals.note(partition, error);
        self.rewind(wire, partition, wait);
    }

    /// Everything that is not acknowledged is sent again, in order, after a while.
    /// Answers that still come to what was sent are of no interest: a batch
    /// that was stored is known as a duplicate when it comes again.
    fn rewind(&mut self, wire: &mut Wire<'_>, partition: u32, wait: Duration) {
        let at = wire.now() + wait;
        let flow = self.partitions.entry(partition).or_default();
        for batch in &mut flow.in_flight {
            batch.unsend(wire);
        }
        flow.retry_at = Some(at);
        self.unsent = true;
        self.arm(wire, at);
    }

    /// Time has passed.
    pub fn timer(&mut self, wire: &mut Wire<'_>) {
        let now = wire.now();
        if self.armed.is_none_or(|armed| armed > now) {
            return;
        }
        self.armed = None;
        if self.state == State::Failed {
            return;
        }
        if self.promise.is_some() {
            if now >= self.open_deadline {
                let what = format!(
                    "a producer of {} to be opened ({:.1} s); {}",
                    self.shared.topic.name,
                    self.open_timeout.as_secs_f64(),
                    wire.context.liveness.describe(now)
                );
                return self.fail(wire, &ClientError::Timeout { what });
            }
            self.arm(wire, self.open_deadline);
        }
        if self.state == State::Opening {
            self.connected(wire);
        }
        let ack_timeout = self.shared.options.ack_timeout;
        let mut next: Option<Duration> = None;
        for (partition, flow) in &self.partitions {
            if planted(Fault::NoEnd) {
                continue;
            }
            if let Some(front) = flow.in_flight.front() {
                let deadline = front.taken_at.saturating_add(ack_timeout);
                if deadline <= now {
                    let error = self.ack_timeout(wire, *partition, flow);
                    return self.fail(wire, &error);
                }
                next = Some(next.map_or(deadline, |other| other.min(deadline)));
            }
            if let Some(at) = flow.retry_at.filter(|at| *at > now) {
                next = Some(next.map_or(at, |other| other.min(at)));
            }
        }
        if let Some(next) = next {
            self.arm(wire, next);
        }
        // Retries that are due, and batches that have lingered.
        self.unsent = true;
        self.dirty = true;
    }

    fn ack_timeout(&self, wire: &Wire<'_>, partition: u32, flow: &PartitionFlow) -> ClientError {
        let batches = flow.in_flight.len();
        let events: u64 = flow
            .in_flight
            .iter()
            .map(|batch| u64::from(batch.count))
            .sum();
        let bytes: u64 = flow.in_flight.iter().map(SentBatch::bytes).sum();
        let sent = flow.in_flight.front().is_some_and(|batch| batch.was_sent);
        let fate = match sent {
            true => "whether they were stored is not known",
            false => "they were not sent",
        };
        let name = &self.shared.topic.name;
        let waited = self.shared.options.ack_timeout.as_secs_f64();
        // Who has space to make is not sought among those who are slow.
        if let Some(reply) = self.shared.refusals.standing(partition)
            && reply.code == ErrorCode::StorageFull
        {
            let message = format!(
                "{}; {events} events in {batches} batches ({bytes} bytes) of {name}/{partition} \
                 were not acknowledged for {waited:.1} s; {fate}, and the producer takes nothing \
                 more",
                reply.message
            );
            return ClientError::Server(ErrorReply { message, ..reply });
        }
        ClientError::Timeout {
            what: format!(
                "the acknowledgement of {events} events in {batches} batches ({bytes} bytes) of \
                 {name}/{partition} for {waited:.1} s; {}{}; {fate}, and the producer takes \
                 nothing more",
                wire.context.liveness.describe(wire.now()),
                self.shared.refusals.describe(partition),
            ),
        }
    }

    /// The producer ends: everything that is not acknowledged fails.
    pub fn fail(&mut self, wire: &mut Wire<'_>, error: &ClientError) {
        self.state = State::Failed;
        if let Some(promise) = self.promise.take() {
            promise.resolve(Err(error.clone()));
        }
        // Their memory goes back once all is refused: its owner may push when it comes.
        let mut in_flight = Vec::new();
        for flow in std::mem::take(&mut self.partitions).values_mut() {
            in_flight.extend(flow.in_flight.drain(..));
        }
        for batch in &mut in_flight {
            batch.unsend(wire);
        }
        let sent = in_flight.iter().map(|batch| batch.promise.clone());
        let mut promises: Vec<_> = sent.collect();
        promises.extend(self.shared.fail(error));
        for promise in promises {
            promise.resolve(Err(error.clone()));
        }
    }
}

impl PartitionFlow {
    /// The server expects this sequence number next. Where that is less than
    /// what was acknowledged, the partition has lost events (and says so in a
    /// gap); what is unacknowledged cannot be there, and is numbered anew.
    fn resume_at(&mut self, next: Sequence) {
        self.is_known = true;
        let first = self
            .in_flight
            .front()
            .map_or(self.next_sequence, |batch| batch.first_sequence.0);
        if next.0 < first {
            self.next_sequence = next.0;
            for batch in &mut self.in_flight {
                batch.renumber(Sequence(self.next_sequence));
                self.next_sequence += u64::from(batch.count);
            }
        }
        // Nothing was sent yet: a named producer goes on where its last life ended.
        if self.in_flight.is_empty() {
            self.next_sequence = next.0;
        }
    }
}
