//! One partition of a link at work: its [`Flow`], and the calls that are under way for it.

use crate::flow::{Flow, FlowError, Found};
use crate::setup::{Pair, at_copy, at_source};
use crate::trouble::{Trouble, trouble};
use bytes::Bytes;
use client::{
    ClientError, CopiedBatch, DataWanted, FetchRequest, FetchedBatches, Offset, PartitionIndex,
    Pending, Segment, Target,
};
use net::Bucket;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::batch::{Batch, Verify};
use wire::message::Produced;
use wire::record::GapReason;
use wire::{ErrorCode, TopicId};

/// How much is fetched at once, at most and at least.
const FETCH_BYTES_MAX: u64 = 8 << 20;
const FETCH_BYTES_MIN: u64 = 64 << 10;
/// How much large data is read at once: little enough to come within the time of a request on a slow
/// line.
const READ_BYTES: u64 = 16 << 20;
/// How long the source waits for the first event of a fetch.
const FETCH_WAIT: Duration = Duration::from_secs(10);
/// Batches that are sent and not stored, of one partition.
const SENT_MAX: usize = 1024;
/// As [`SENT_MAX`], as long as one of them has data that the server fetches: it holds no more of
/// those behind it (`arrivals_max`).
const SENT_WITH_DATA_MAX: usize = 48;
/// The most data that a batch may say it has, which no memory holds.
const DATA_BYTES_MAX: u64 = 1 << 42;
/// How long a batch may be under way: as long as its data takes on a slow line. A cut ends it sooner.
const APPEND_TIMEOUT: Duration = Duration::from_secs(24 * 3600);
/// With nothing stored for so long, the copy is slow or away.
const AWAY_AFTER: Duration = Duration::from_secs(10);

/// Called when something has come.
pub(crate) type Wake = Arc<dyn Fn() + Send + Sync>;

/// What all lanes of a link share.
pub(crate) struct Shared {
    pub wake: Wake,
    pub rate: Bucket,
    /// When the rate lets something pass again.
    pub rate_at: Option<Instant>,
    /// Bytes that are fetched and not stored, and how many of these at most.
    pub held: u64,
    pub held_max: u64,
    /// The last number under which a mirror was opened.
    pub opening: u64,
    /// How much one lane fetches at once.
    pub fetch_bytes: u64,
    /// Whether a batch whose data the source cannot read is left out.
    pub skips_damaged: bool,
    /// What could not be read once.
    pub unreadable: BTreeSet<(TopicId, PartitionIndex, Offset)>,
    /// Of the bytes that are held, large data.
    pub held_data: u64,
    pub events: u64,
    pub bytes: u64,
    pub skipped: u64,
}

/// Large data of the piece that is next.
enum Data {
    Unknown,
    Reading(Reading),
    Here(Vec<Bytes>),
}

/// Large data on its way from the source, some pieces at a time.
struct Reading {
    /// Of all.
    bytes: u64,
    /// What is asked for next.
    rest: VecDeque<Vec<DataWanted>>,
    here: Vec<Bytes>,
    pending: Pending<Vec<Target>>,
}

/// A batch that was sent.
struct Sent {
    pending: Pending<Produced>,
    bytes: u64,
    data_bytes: u64,
    events: u64,
    offsets: u64,
    time: u64,
}

/// See the module.
pub(crate) struct Lane {
    pub partition: PartitionIndex,
    pub flow: Flow,
    /// The number under which its mirror was opened: what was sent under an earlier one is not taken any more.
    opening: u64,
    fetch: Option<Pending<FetchedBatches>>,
    data: Data,
    sent: VecDeque<Sent>,
    /// When the copy has stored something last, or was sent something while nothing was under way.
    stored_at: Instant,
    /// When the source took the newest event that is durable at the copy; 0 if that is not known.
    pub newest: u64,
    /// How far the source is visible, as was heard last.
    pub committed: Offset,
}

impl Lane {
    pub fn new(partition: PartitionIndex, flow: Flow, committed: Offset, opening: u64) -> Self {
        Self {
            partition,
            flow,
            opening,
            fetch: None,
            data: Data::Unknown,
            sent: VecDeque::new(),
            stored_at: Instant::now(),
            newest: 0,
            committed,
        }
    }

    /// Goes on as far as it can. Says whether anything was done.
    pub fn advance(
        &mut self,
        pair: &Pair,
        shared: &mut Shared,
        is_ending: bool,
    ) -> Result<bool, Trouble> {
        let mut advanced = self.take_stored(pair, shared)?;
        if is_ending {
            return Ok(advanced);
        }
        advanced |= self.take_fetched(pair, shared)?;
        while self.send(pair, shared)? {
            advanced = true;
        }
        if self.fetch.is_none() && shared.held < shared.held_max {
            let fetch = pair.source.begin_fetch_stored(FetchRequest {
                partition: self.partition,
                from: self.flow.fetch_at(),
                bytes_max: shared.fetch_bytes,
                wait_max: FETCH_WAIT,
                inline_data: true,
            });
            notify(&fetch, shared);
            self.fetch = Some(fetch);
            advanced = true;
        }
        Ok(advanced)
    }

    /// Gives back what it holds of the link's bytes.
    pub fn give_back(&self, shared: &mut Shared) {
        let next = match &self.data {
            Data::Unknown => 0,
            Data::Reading(reading) => reading.bytes,
            Data::Here(data) => data.iter().map(|piece| piece.len() as u64).sum(),
        };
        let sent = self.sent.iter();
        let data: u64 = next + sent.clone().map(|sent| sent.data_bytes).sum::<u64>();
        let batches = self.flow.queued_bytes() + sent.map(|sent| sent.bytes).sum::<u64>();
        shared.held = shared.held.saturating_sub(data + batches);
        shared.held_data = shared.held_data.saturating_sub(data);
    }

    /// Gives up what is under way: the next session begins with what the copy has.
    pub fn cancel(&self) {
        if let Some(fetch) = &self.fetch {
            fetch.cancel();
        }
        if let Data::Reading(reading) = &self.data {
            reading.pending.cancel();
        }
        // The newest first: what was not sent yet is not to be, in the place of what is given up.
        for sent in self.sent.iter().rev() {
            sent.pending.cancel();
        }
    }

    /// For how long the copy has stored nothing of what it was sent, if that is long.
    pub fn waits_for_copy(&self) -> Option<Duration> {
        let waits = self.stored_at.elapsed();
        (!self.sent.is_empty() && waits > AWAY_AFTER).then_some(waits)
    }

    /// Whether everything that was sent is stored.
    pub fn is_settled(&self) -> bool {
        self.sent.is_empty()
    }

    fn take_stored(&mut self, pair: &Pair, shared: &mut Shared) -> Result<bool, Trouble> {
        let mut advanced = false;
        while let Some(sent) = self.sent.front_mut() {
            let Some(outcome) = sent.pending.try_get() else {
                break;
            };
            outcome.map_err(|error| match error {
                // It is longer than the copy takes: so it will be the next time.
                ClientError::Invalid(text) => {
                    Trouble::refused(format!("{}: {text}", at_copy(pair)))
                }
                error => trouble(&at_copy(pair), error),
            })?;
            let sent = self.sent.pop_front().expect("it is there");
            shared.held -= sent.bytes + sent.data_bytes;
            shared.held_data -= sent.data_bytes;
            shared.events += sent.events;
            shared.bytes += sent.bytes + sent.data_bytes;
            match sent.events {
                0 => shared.skipped += sent.offsets,
                _ => self.newest = sent.time,
            }
            self.flow.stored();
            self.stored_at = Instant::now();
            advanced = true;
        }
        Ok(advanced)
    }

    fn take_fetched(&mut self, pair: &Pair, shared: &mut Shared) -> Result<bool, Trouble> {
        let Some(outcome) = self.fetch.as_mut().and_then(Pending::try_get) else {
            return Ok(false);
        };
        self.fetch = None;
        let fetched = outcome.map_err(|error| trouble(&at_source(pair), error))?;
        self.committed = fetched.watermarks.committed;
        let bytes: usize = fetched.batches().iter().map(Bytes::len).sum();
        shared.held += bytes as u64;
        let before = self.flow.queued_bytes();
        let found = Found {
            batches: fetched.batches().to_vec(),
            gap: fetched.gaps.first().copied(),
            next: fetched.next,
        };
        let followed = self.flow.fetched(found);
        followed.map_err(|error| match error {
            FlowError::Damaged(text) => Trouble::Again(format!("{}: {text}", at_source(pair))),
            FlowError::Diverged(text) => Trouble::refused(format!(
                "{}/{}: {text}; promote the copy (thalweg relay promote), or delete it and begin anew",
                at_copy(pair),
                self.partition
            )),
        })?;
        // What is there already is not queued, what is missing is.
        shared.held = shared.held - bytes as u64 + (self.flow.queued_bytes() - before);
        Ok(true)
    }

    /// Sends the next piece, if it may be.
    fn send(&mut self, pair: &Pair, shared: &mut Shared) -> Result<bool, Trouble> {
        let has_data = self.sent.iter().any(|sent| sent.data_bytes > 0);
        let most = match has_data || !matches!(self.data, Data::Unknown) {
            true => SENT_WITH_DATA_MAX,
            false => SENT_MAX,
        };
        if self.sent.len() >= most || self.flow.front().is_none() {
            return Ok(false);
        }
        let Some(data) = self.read_data(pair, shared)? else {
            return Ok(false);
        };
        let data_bytes: u64 = data.iter().map(|piece| piece.len() as u64).sum();
        let front = self.flow.front().expect("it was seen above");
        let bytes = front.batch.len() as u64;
        if let Some(at) = shared.rate.opens(Instant::now()) {
            self.data = Data::Here(data);
            shared.rate_at = Some(shared.rate_at.map_or(at, |known| known.min(at)));
            return Ok(false);
        }
        shared.rate.take((bytes + data_bytes) as usize);
        self.data = Data::Unknown;
        let piece = self.flow.next_piece().expect("it was seen above");
        let copied = CopiedBatch {
            partition: self.partition,
            opening: self.opening,
            batch: piece.batch,
            data,
        };
        let pending = pair.copy.begin_append_mirrored(copied, APPEND_TIMEOUT);
        notify(&pending, shared);
        if self.sent.is_empty() {
            self.stored_at = Instant::now();
        }
        self.sent.push_back(Sent {
            pending,
            bytes,
            data_bytes,
            events: piece.events,
            offsets: piece.end.0 - piece.base.0,
            time: piece.time,
        });
        Ok(true)
    }

    /// The large data of the next piece, once it is here.
    fn read_data(
        &mut self,
        pair: &Pair,
        shared: &mut Shared,
    ) -> Result<Option<Vec<Bytes>>, Trouble> {
        match std::mem::replace(&mut self.data, Data::Unknown) {
            Data::Here(data) => return Ok(Some(data)),
            Data::Reading(reading) => return self.read_on(reading, pair, shared),
            Data::Unknown => {}
        }
        let mut rest = self.wanted()?;
        let lengths = rest.iter().flatten().map(|one| one.segments[0].bytes);
        let bytes: u64 = lengths.sum();
        let Some(first) = rest.pop_front() else {
            return Ok(Some(Vec::new()));
        };
        // What is larger than all that may be held is held alone.
        if shared.held_data > 0 && shared.held + bytes > shared.held_max {
            return Ok(None);
        }
        let pending = read(pair, shared, &first)?;
        shared.held += bytes;
        shared.held_data += bytes;
        self.data = Data::Reading(Reading {
            bytes,
            rest,
            here: Vec::new(),
            pending,
        });
        Ok(None)
    }

    /// Takes what has come of large data, and asks for what is next of it.
    fn read_on(
        &mut self,
        mut reading: Reading,
        pair: &Pair,
        shared: &mut Shared,
    ) -> Result<Option<Vec<Bytes>>, Trouble> {
        let targets = match reading.pending.try_get() {
            None => {
                self.data = Data::Reading(reading);
                return Ok(None);
            }
            Some(Err(error)) if is_damaged(&error) => {
                shared.held -= reading.bytes;
                shared.held_data -= reading.bytes;
                return self.damaged(pair, shared, &error);
            }
            // Retention was quicker: what is fetched anew says so.
            Some(Err(error)) if error.code() == Some(ErrorCode::OffsetOutOfRange) => {
                return Err(Trouble::Again(format!("{}: {error}", at_source(pair))));
            }
            Some(outcome) => outcome.map_err(|error| trouble(&at_source(pair), error))?,
        };
        let data = targets.into_iter().map(Target::into_owner::<Vec<u8>>);
        reading.here.extend(data.map(Bytes::from));
        let Some(next) = reading.rest.pop_front() else {
            return Ok(Some(reading.here));
        };
        reading.pending = read(pair, shared, &next)?;
        self.data = Data::Reading(reading);
        Ok(None)
    }

    /// The source has a batch, and cannot read its large data any more.
    fn damaged(
        &mut self,
        pair: &Pair,
        shared: &mut Shared,
        error: &ClientError,
    ) -> Result<Option<Vec<Bytes>>, Trouble> {
        let Some(piece) = self.flow.front() else {
            return Ok(None);
        };
        // Once may have been the way here.
        let which = (pair.source.id(), self.partition, piece.base);
        if shared.unreadable.insert(which) {
            return Err(Trouble::Again(format!("{}: {error}", at_source(pair))));
        }
        if !shared.skips_damaged {
            return Err(Trouble::refused(format!(
                "{}/{}: offsets {} to {} cannot be read: {error}; with --skip-damaged they are a gap of the copy",
                at_source(pair),
                self.partition,
                piece.base,
                piece.end
            )));
        }
        let length = piece.batch.len() as u64;
        let instead = self.flow.skip_front(GapReason::Damaged);
        shared.held = shared.held - length + instead;
        Ok(Some(Vec::new()))
    }

    /// The external data of the next piece: whole events in order, in what is read at once.
    fn wanted(&self) -> Result<VecDeque<Vec<DataWanted>>, Trouble> {
        let Some(piece) = self.flow.front().filter(|piece| piece.events > 0) else {
            return Ok(VecDeque::new());
        };
        let columns = Batch::read(piece.batch.as_ref(), Verify::Headers)
            .and_then(|batch| batch.columns())
            .map_err(|error| Trouble::Again(error.to_string()))?;
        let incarnation = self.flow.fetch_at().incarnation;
        let external = columns.events.iter().filter(|event| event.external);
        let lengths = external.clone().map(|event| event.data_bytes);
        let all = lengths.fold(0, u64::saturating_add);
        if all > DATA_BYTES_MAX {
            return Err(Trouble::refused(format!(
                "partition {}: the events at offset {} say that they have {all} bytes of data",
                self.partition, piece.base
            )));
        }
        let (mut reads, mut last, mut room) = (VecDeque::new(), Vec::new(), READ_BYTES);
        for event in external {
            let mut offset = 0;
            while offset < event.data_bytes {
                let bytes = room.min(event.data_bytes - offset);
                last.push(DataWanted {
                    partition: self.partition,
                    incarnation,
                    offset: piece.base.plus(u64::from(event.offset_delta)),
                    segments: vec![Segment { offset, bytes }],
                });
                offset += bytes;
                room -= bytes;
                if room == 0 {
                    reads.push_back(std::mem::take(&mut last));
                    room = READ_BYTES;
                }
            }
        }
        if !last.is_empty() {
            reads.push_back(last);
        }
        Ok(reads)
    }
}

/// Whether what is stored, or what came of it, fails its checksum.
fn is_damaged(error: &ClientError) -> bool {
    let is_stored = error.code() == Some(ErrorCode::Damaged);
    is_stored || matches!(error, ClientError::Damaged { .. })
}

/// How much each of so many lanes fetches at once, so that all together hold half of what may be held.
pub(crate) fn fetch_bytes(held_max: u64, lanes: usize) -> u64 {
    (held_max / 2 / lanes.max(1) as u64).clamp(FETCH_BYTES_MIN, FETCH_BYTES_MAX)
}

/// Asks the source for data.
fn read(
    pair: &Pair,
    shared: &Shared,
    wanted: &[DataWanted],
) -> Result<Pending<Vec<Target>>, Trouble> {
    let mut into = Vec::with_capacity(wanted.len());
    for one in wanted {
        // The length is the source's word.
        let bytes = one.segments[0].bytes as usize;
        let mut memory = Vec::new();
        if memory.try_reserve_exact(bytes).is_err() {
            return Err(Trouble::Again(format!(
                "{}/{} at {}: there is no memory for {bytes} bytes more of its data",
                at_source(pair),
                one.partition,
                one.offset
            )));
        }
        memory.resize(bytes, 0u8);
        into.push(Target::new(memory));
    }
    let pending = pair.source.begin_read_data(wanted, into);
    notify(&pending, shared);
    Ok(pending)
}

/// Has the link look again when an answer is there.
pub(crate) fn notify<T>(pending: &Pending<T>, shared: &Shared) {
    let wake = shared.wake.clone();
    pending.on_done(Box::new(move || wake()));
}
