//! Bounded reads: what a topic has now, and then the end.

use crate::consumer::{Consumer, last_of};
use crate::error::ClientError;
use crate::event::{ConsumedEvent, EventInfo};
use crate::faults::{Fault, planted};
use crate::options::{ConsumerOptions, DataAllocator, DataMode};
use crate::promise::Pending;
use crate::topic_handle::TopicHandle;
use crate::when::When;
use memory::Deadline;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use wire::message::{PartitionDescription, Start, TopicDescription};
use wire::record::{Gap, GapReason, Position};
use wire::view::DataView;
use wire::{ErrorCode, ErrorReply, Incarnation, Offset, PartitionIndex};

/// Where a bounded read ends. Never behind what is visible when it begins.
#[derive(Debug, Clone, Default)]
pub enum ReadEnd {
    /// Behind what is visible when it begins.
    #[default]
    Now,
    /// In each of these partitions before this position; in others as `Now`.
    /// Incarnation 0 is the one that the partition is in.
    Before(Vec<(PartitionIndex, Position)>),
    /// Before the first event that the server appended at this time or later,
    /// nanoseconds since 1970.
    Time(u64),
}

/// What a bounded read can choose.
#[derive(Clone)]
pub struct ReadOptions {
    /// The partitions to read. If none are given, all that the topic has.
    pub partitions: Option<Vec<u32>>,
    /// Where to begin; there is no cursor. Default: at the first event.
    pub start: When,
    /// Where to end. Default: behind what is visible now.
    pub end: ReadEnd,
    /// Which data is wanted. Default all.
    pub data: DataMode,
    /// As [`ConsumerOptions::allocator`].
    pub allocator: Option<Arc<DataAllocator>>,
    /// As [`ConsumerOptions::credit_bytes`].
    pub credit_bytes: u64,
}

impl Default for ReadOptions {
    fn default() -> Self {
        let consumer = ConsumerOptions::default();
        Self {
            partitions: None,
            start: Start::Beginning.into(),
            end: ReadEnd::Now,
            data: consumer.data,
            allocator: consumer.allocator,
            credit_bytes: consumer.credit_bytes,
        }
    }
}

impl fmt::Debug for ReadOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadOptions")
            .field("partitions", &self.partitions)
            .field("start", &self.start)
            .field("end", &self.end)
            .field("data", &self.data)
            .field("allocator", &self.allocator.is_some())
            .field("credit_bytes", &self.credit_bytes)
            .finish()
    }
}

/// What [`Reader::next_batch`] gives.
#[derive(Debug)]
pub enum Read {
    /// Events, at least one.
    Events(Vec<ConsumedEvent>),
    /// None came within the time; there may be more.
    Waiting,
    /// Every partition has come to its end.
    End,
}

/// How far a read of some partitions is from where it ends in each.
///
/// For a program that reads with a [`Consumer`] of its own: gaps are noted
/// before the events that came with them are looked at.
#[derive(Debug)]
pub struct Bounds {
    /// Partitions that have not come to their end.
    ends: BTreeMap<PartitionIndex, End>,
    /// Events that were appended then or later are not wanted.
    time: Option<u64>,
}

#[derive(Debug)]
struct End {
    position: Position,
    /// A later incarnation has what was recovered of this one, under the same offsets.
    carried: bool,
}

impl End {
    /// Whether `position` lies before the end.
    fn is_behind(&self, position: Position) -> bool {
        match position.incarnation > self.position.incarnation {
            true => self.carried && position.offset < self.position.offset,
            false => position < self.position,
        }
    }
}

impl Bounds {
    /// Ends before these positions.
    pub fn new(ends: impl IntoIterator<Item = (PartitionIndex, Position)>) -> Self {
        let ends = ends.into_iter().filter(|(_, end)| end.offset > Offset(0));
        let ends = ends.map(|(partition, position)| {
            let end = End {
                position,
                carried: false,
            };
            (partition, end)
        });
        Self {
            ends: ends.collect(),
            time: None,
        }
    }

    /// Ends where these partitions end now.
    pub fn now<'a>(partitions: impl IntoIterator<Item = &'a PartitionDescription>) -> Self {
        Self::new(
            partitions
                .into_iter()
                .map(|one| (one.partition, visible(one))),
        )
    }

    /// Whether an event lies before the end of its partition. One that does not
    /// ends its partition.
    pub fn admits(&mut self, event: &ConsumedEvent) -> bool {
        let id = event.id();
        let Some(end) = self.ends.get(&id.partition) else {
            return false;
        };
        let position = Position {
            incarnation: id.incarnation,
            offset: id.offset,
        };
        let is_early = self.time.is_none_or(|time| event.append_time() < time);
        let admits = is_early && end.is_behind(position);
        if !admits {
            self.ends.remove(&id.partition);
        }
        admits
    }

    /// The same choice of data, which is not asked about events that a batch has
    /// behind the end.
    fn within(&self, data: DataMode) -> DataMode {
        let DataMode::Select(select) = data else {
            return data;
        };
        let ends = self.ends.iter();
        let ends: BTreeMap<_, _> = ends.map(|(index, end)| (*index, end.position)).collect();
        let time = self.time;
        DataMode::Select(Arc::new(move |event: &EventInfo<'_>| {
            let id = event.id();
            let end = ends.get(&id.partition);
            let is_late = time.is_some_and(|time| event.append_time() >= time);
            let is_behind =
                end.is_some_and(|end| id.incarnation == end.incarnation && id.offset >= end.offset);
            match is_late || is_behind {
                true => Ok(DataView::none()),
                false => select(event),
            }
        }))
    }

    /// What was lost of a partition may move its end.
    pub fn note_gap(&mut self, partition: PartitionIndex, gap: &Gap) {
        let Some(end) = self.ends.get_mut(&partition) else {
            return;
        };
        if gap.incarnation != end.position.incarnation && !end.carried {
            return;
        }
        match gap.reason {
            // The next incarnation has what is before the gap, under the same offsets.
            GapReason::PowerLoss => {
                end.carried = true;
                end.position.offset = end.position.offset.min(gap.first);
            }
            GapReason::MemoryLost => end.carried = false,
            GapReason::Retention | GapReason::Damaged | GapReason::Discarded => {}
        }
    }

    /// Whether every partition has come to its end. `position` is the next event
    /// that a pull gives ([`Consumer::position`]).
    pub fn is_reached(&mut self, position: impl Fn(PartitionIndex) -> Option<Position>) -> bool {
        self.ends.retain(|partition, end| {
            let position = position(*partition);
            position.is_none_or(|position| end.is_behind(position))
        });
        self.ends.is_empty()
    }
}

fn visible(partition: &PartitionDescription) -> Position {
    Position {
        incarnation: partition.incarnation,
        offset: partition.watermarks.committed,
    }
}

/// Reads what a topic had when the read began, and ends. It has no name and no
/// cursor: nothing is acknowledged, and nobody else is concerned.
///
/// Goes on through lost connections and restarts of the server. Gaps are
/// reported as by a [`Consumer`]; what retention, damage or a lost memory
/// partition took does not keep the read from its end. Can be used from several
/// threads, which share the events. A forked child reads with one of its own.
#[derive(Debug)]
pub struct Reader {
    consumer: Consumer,
    /// Held by the thread that takes events, never while waiting.
    bounds: Mutex<Bounds>,
    /// The process that it belongs to.
    generation: u64,
}

impl TopicHandle {
    /// Reads what the topic has now, or a part of that, and ends: where each
    /// partition ends is asked of the server at the beginning. Without a name
    /// and a cursor.
    ///
    /// # Errors
    /// As any call; [`ClientError::UnknownPartition`] or [`ClientError::Invalid`]
    /// for partitions and positions that can't be; [`ErrorCode::StorageFailed`]
    /// if what a partition has is not known.
    pub fn read(&self, options: ReadOptions) -> Result<Reader, ClientError> {
        self.begin_read(options).wait()
    }

    /// Where in each of these partitions (`None`: in all) `when` is now: for a cursor
    /// that is to be moved there. A time is the first event of the batch that the server
    /// took then or later, or the end. Blocks; asks the server for each partition if
    /// `when` is a time.
    ///
    /// # Errors
    /// As [`TopicHandle::read`]; [`ClientError::Invalid`] for a cursor, which is of a consumer.
    pub fn positions(
        &self,
        when: When,
        partitions: Option<Vec<u32>>,
    ) -> Result<Vec<(PartitionIndex, Position)>, ClientError> {
        let described = self.refresh()?;
        let chosen = chosen(&described, &partitions)?;
        let last = match when {
            When::Last(count) => last_of(&described.partitions, count),
            When::Start(_) => Vec::new(),
        };
        let mut positions = Vec::new();
        for (index, partition) in chosen {
            let at = |offset| Position {
                incarnation: partition.incarnation,
                offset,
            };
            let position = match when {
                When::Last(_) => last
                    .iter()
                    .find(|(known, _)| *known == index)
                    .map_or(at(partition.first), |(_, position)| *position),
                When::Start(Start::Beginning) => at(partition.first),
                When::Start(Start::Latest) => at(partition.watermarks.committed),
                When::Start(Start::At(position)) => match position.incarnation {
                    Incarnation(0) => at(position.offset),
                    _ => position,
                },
                When::Start(Start::Time(time)) => {
                    let found = self.first_since(index, time)?;
                    found.unwrap_or(at(partition.watermarks.committed))
                }
                When::Start(Start::Cursor | Start::CursorOrLatest) => {
                    let reason = "a cursor is a consumer's, and no place in a topic";
                    return Err(ClientError::Invalid(reason.to_owned()));
                }
            };
            positions.push((index, position));
        }
        Ok(positions)
    }

    /// The first event that is there and was appended at this time or later.
    fn first_since(
        &self,
        partition: PartitionIndex,
        time: u64,
    ) -> Result<Option<Position>, ClientError> {
        let reader = self.read(ReadOptions {
            partitions: Some(vec![partition.0]),
            start: Start::Time(time).into(),
            data: DataMode::None,
            // One batch tells.
            credit_bytes: 1,
            ..ReadOptions::default()
        })?;
        let first = reader.events().next().transpose()?;
        Ok(first.map(|event| Position {
            incarnation: event.id().incarnation,
            offset: event.id().offset,
        }))
    }

    /// [`TopicHandle::read`], not waited for.
    pub fn begin_read(&self, options: ReadOptions) -> Pending<Reader> {
        Reader::begin(self, options)
    }
}

impl Reader {
    pub(crate) fn begin(topic: &TopicHandle, options: ReadOptions) -> Pending<Self> {
        let session = match topic.driver.session() {
            Ok(session) => session,
            Err(error) => return Pending::failed(error),
        };
        let cursors = [Start::Cursor, Start::CursorOrLatest].map(When::from);
        if cursors.contains(&options.start) {
            let reason = "a read has no cursor to begin at";
            return Pending::failed(ClientError::Invalid(reason.to_owned()));
        }
        let timeout = topic.driver.request_timeout();
        let described = topic.begin_refresh();
        let topic = topic.clone();
        described.and_then(&session.mailbox, timeout, move |described| {
            let bounds =
                described.and_then(|described| Ok((bounds(&described, &options)?, described)));
            let (bounds, described) = match bounds {
                Ok(bounds) => bounds,
                Err(error) => return Pending::failed(error),
            };
            let (start, starts) = match options.start {
                When::Start(start) => (start, Vec::new()),
                When::Last(count) => (Start::Beginning, last_of(&described.partitions, count)),
            };
            let options = ConsumerOptions {
                partitions: Some(bounds.ends.keys().map(|one| one.0).collect()),
                data: bounds.within(options.data),
                allocator: options.allocator,
                credit_bytes: options.credit_bytes,
                ..ConsumerOptions::default()
            };
            let consumer = Consumer::begin_anonymous(&topic, options, start, starts);
            consumer.then(move |consumer| {
                Ok(Self {
                    consumer,
                    bounds: Mutex::new(bounds),
                    generation: memory::fork::generation(),
                })
            })
        })
    }

    fn bounds(&self) -> MutexGuard<'_, Bounds> {
        // A selector may panic under it: nothing is half done then.
        self.bounds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Events that are there, at most `max`; waits up to `timeout` (`None`:
    /// without a limit; 0 only looks) for the first.
    ///
    /// # Errors
    /// As [`Consumer::pull`], but for a server that is away only once that has
    /// lasted for the driver's reconnect timeout, if there is one; and
    /// [`ClientError::Forked`] in a forked child. It can be called again after
    /// an error.
    pub fn next_batch(&self, max: usize, timeout: Option<Duration>) -> Result<Read, ClientError> {
        if self.generation != memory::fork::generation() {
            return Err(ClientError::Forked);
        }
        let deadline = Deadline::within(timeout);
        loop {
            let seen = self.consumer.news()?;
            let mut bounds = self.bounds();
            let events = self.consumer.take_ready(max, |partition, gap| {
                if !planted(Fault::LostEnd) {
                    bounds.note_gap(partition, gap);
                }
            })?;
            let was_any = !events.is_empty();
            let events: Vec<_> = events
                .into_iter()
                .filter(|event| bounds.admits(event))
                .collect();
            if !events.is_empty() {
                return Ok(Read::Events(events));
            }
            if bounds.is_reached(|partition| self.consumer.position(partition)) {
                return Ok(Read::End);
            }
            drop(bounds);
            self.consumer.standing()?;
            if !was_any && !self.consumer.wait_for_news(seen, deadline)? {
                return Ok(Read::Waiting);
            }
        }
    }

    /// Events until the end.
    pub fn events(&self) -> impl Iterator<Item = Result<ConsumedEvent, ClientError>> + use<'_> {
        std::iter::from_fn(move || {
            loop {
                match self.next_batch(1, None) {
                    Ok(Read::Events(mut events)) => return events.pop().map(Ok),
                    Ok(Read::Waiting) => {}
                    Ok(Read::End) => return None,
                    Err(error) => return Some(Err(error)),
                }
            }
        })
    }

    /// Takes the gaps that were met so far, as [`Consumer::take_gaps`].
    pub fn take_gaps(&self) -> Vec<(PartitionIndex, Gap)> {
        self.consumer.take_gaps()
    }

    /// As [`Consumer::on_ready`].
    pub fn on_ready(&self, callback: Box<dyn Fn() + Send + Sync>) {
        self.consumer.on_ready(callback);
    }

    /// What is read.
    pub fn topic(&self) -> &TopicHandle {
        self.consumer.topic()
    }
}

/// The partitions that are meant: all without a choice.
fn chosen<'a>(
    topic: &'a TopicDescription,
    partitions: &Option<Vec<u32>>,
) -> Result<BTreeMap<PartitionIndex, &'a PartitionDescription>, ClientError> {
    let Some(partitions) = partitions else {
        let all = topic.partitions.iter();
        return Ok(all.map(|one| (one.partition, one)).collect());
    };
    let found = partitions.iter().map(|index| {
        let found = topic.partitions.get(*index as usize);
        let found = found.ok_or_else(|| out_of_range(topic, *index))?;
        Ok((found.partition, found))
    });
    found.collect()
}

/// Where a read ends.
fn bounds(topic: &TopicDescription, options: &ReadOptions) -> Result<Bounds, ClientError> {
    let chosen = chosen(topic, &options.partitions)?;
    for partition in chosen.values() {
        // What is visible of it is not known.
        if !partition.failure.is_empty() && partition.watermarks.committed == Offset(0) {
            return Err(ClientError::Server(ErrorReply::fatal(
                ErrorCode::StorageFailed,
                format!(
                    "what {}/{} has is not known: its storage failed: {}",
                    topic.name, partition.partition, partition.failure
                ),
            )));
        }
    }
    let mut bounds = Bounds::now(chosen.values().copied());
    match &options.end {
        ReadEnd::Now => {}
        ReadEnd::Time(time) => bounds.time = Some(*time),
        ReadEnd::Before(ends) => {
            for (index, end) in ends {
                let Some(partition) = chosen.get(index) else {
                    return Err(match topic.partitions.get(index.0 as usize) {
                        None => out_of_range(topic, index.0),
                        Some(_) => ClientError::Invalid(format!(
                            "an end is given for partition {index}, which is not read"
                        )),
                    });
                };
                let end = match end.incarnation {
                    Incarnation(0) => Position {
                        incarnation: partition.incarnation,
                        ..*end
                    },
                    _ => *end,
                };
                match end.offset {
                    Offset(0) => drop(bounds.ends.remove(index)),
                    _ => {
                        if let Some(known) = bounds.ends.get_mut(index) {
                            known.position = known.position.min(end);
                        }
                    }
                }
            }
        }
    }
    if options.start == When::Last(0) {
        bounds.ends.clear();
    }
    // A partition that ends before the start has nothing to be read; the server
    // would refuse to begin behind what it has.
    if let When::Start(Start::At(start)) = options.start {
        bounds.ends.retain(|index, end| {
            let start = match start.incarnation {
                Incarnation(0) => Position {
                    incarnation: chosen[index].incarnation,
                    ..start
                },
                _ => start,
            };
            end.is_behind(start)
        });
    }
    Ok(bounds)
}

fn out_of_range(topic: &TopicDescription, index: u32) -> ClientError {
    let count = topic.partitions.len();
    ClientError::UnknownPartition(format!(
        "partition {index} is out of range: {} has {count}, counted from 0",
        topic.name
    ))
}
