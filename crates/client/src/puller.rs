//! The callers' side of a consumer: arrivals become verified events, and the
//! wanted data is read, one transfer a batch.

use crate::error::ClientError;
use crate::event::{ConsumedData, ConsumedEvent, DeliveredBatch, EventInfo};
use crate::faults::{Fault, planted};
use crate::feed::{Arrival, ConsumerShared};
use crate::mailbox::Command;
use crate::options::DataMode;
use crate::promise::Pending;
use memory::{Buffer, Target, copies};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use wire::checksum::crc32c;
use wire::message::{DataRead, DataWanted};
use wire::record::{Gap, GapReason, Position};
use wire::view::DataView;
use wire::{ErrorCode, Offset, PartitionIndex};

/// Batches whose data is read ahead of the one that is handed out.
const READ_AHEAD: usize = 2;

/// A batch whose events are handed out.
struct Ready {
    batch: Arc<DeliveredBatch>,
    next: u32,
    /// The event behind the last that is handed out.
    end: u32,
    /// Events before it were delivered or acknowledged already.
    floor: Offset,
    /// Data of each event, where it is not simply inline in the batch.
    data: Option<Vec<ConsumedData>>,
}

/// A batch that is to be begun.
struct Waiting {
    batch: Arc<DeliveredBatch>,
    /// Events before it are of no interest.
    floor: Offset,
    /// Whether each event's data is read alone: some of it is damaged, and it
    /// is to be found out which.
    one_by_one: bool,
}

/// Selections of a batch, in the order in which they are read.
struct Selected {
    /// The event, and how many bytes of it.
    events: Vec<(u32, u64)>,
    /// One target for each, or one for all of them.
    is_pooled: bool,
}

/// What a read of data gives: checksums, and the memory filled.
type ReadBack = (DataRead, Vec<Target>);

/// A batch that was begun.
struct Begun {
    ready: Ready,
    /// Data that is on its way.
    reading: Option<(Selected, Pending<ReadBack>)>,
    one_by_one: bool,
}

/// What a consumer hands out next. One thread at a time uses it.
pub(crate) struct Puller {
    shared: Arc<ConsumerShared>,
    read: Box<ReadData>,
    current: Option<Ready>,
    begun: VecDeque<Begun>,
    /// Taken, and to be begun before what is taken next: failed to be begun
    /// or read, or the rest of a batch whose events are read one by one.
    again: VecDeque<Waiting>,
    /// For each partition, the next event to be handed out, as far as batches
    /// that were taken say.
    positions: BTreeMap<u32, Position>,
    /// Partitions that crossed into another life that kept these offsets.
    carried: BTreeMap<u32, Offset>,
    /// Gaps that were met and not yet told.
    pub gaps: Vec<(PartitionIndex, Gap)>,
}

/// Begins a read of data into targets.
pub(crate) type ReadData = dyn Fn(Vec<DataWanted>, Vec<Target>) -> Pending<ReadBack> + Send + Sync;

impl Puller {
    pub fn new(shared: Arc<ConsumerShared>, read: Box<ReadData>) -> Self {
        Self {
            shared,
            read,
            current: None,
            begun: VecDeque::new(),
            again: VecDeque::new(),
            positions: BTreeMap::new(),
            carried: BTreeMap::new(),
            gaps: Vec::new(),
        }
    }

    /// The next event, if it is there.
    pub fn next(&mut self) -> Result<Option<ConsumedEvent>, ClientError> {
        loop {
            if let Some(ready) = &mut self.current {
                if let Some(event) = ready.next() {
                    return Ok(Some(event));
                }
                self.current = None;
            }
            self.read_ahead()?;
            let Some(first) = self.begun.front_mut() else {
                return Ok(None);
            };
            if let Some((_, pending)) = &mut first.reading {
                let Some(outcome) = pending.try_get() else {
                    return Ok(None);
                };
                let begun = self.begun.pop_front().expect("looked at above");
                let (selected, _) = begun.reading.expect("looked at above");
                let mut ready = begun.ready;
                match outcome.and_then(|outcome| ready.fill(selected, outcome)) {
                    Ok(()) => self.current = Some(ready),
                    Err(error) => self.not_read(ready, begun.one_by_one, error)?,
                }
            } else {
                self.current = self.begun.pop_front().map(|begun| begun.ready);
            }
        }
    }

    /// The data of a batch could not be read. What another try cannot help is
    /// dealt with here: a consumer does not stand still before it.
    fn not_read(
        &mut self,
        ready: Ready,
        one_by_one: bool,
        error: ClientError,
    ) -> Result<(), ClientError> {
        // What was begun behind it keeps its place behind it.
        for begun in std::mem::take(&mut self.begun).into_iter().rev() {
            self.again
                .push_front(begun.ready.into_waiting(begun.one_by_one));
        }
        match error.code() {
            // The batch is gone since it was delivered: what became of it, and
            // whether it is there in a later life, the server tells.
            Some(ErrorCode::WrongIncarnation | ErrorCode::OffsetOutOfRange) => {
                let partition = ready.batch.partition;
                let Some(position) = ready.position() else {
                    return Ok(());
                };
                self.restart(partition.0, position);
                self.resubscribe(partition, position);
                Ok(())
            }
            Some(ErrorCode::Damaged) if one_by_one => {
                let (Some(first), Some(last)) = (ready.skip(), ready.end.checked_sub(1)) else {
                    return Ok(());
                };
                let now = SystemTime::now().duration_since(UNIX_EPOCH);
                let gap = Gap {
                    incarnation: ready.batch.incarnation,
                    first: ready.batch.id(first).offset,
                    end: ready.batch.id(last).offset.plus(1),
                    reason: GapReason::Damaged,
                    time: now.unwrap_or_default().as_nanos() as u64,
                };
                self.gaps.push((ready.batch.partition, gap));
                Ok(())
            }
            Some(ErrorCode::Damaged) => {
                self.put_back(ready.into_waiting(true));
                Ok(())
            }
            _ => {
                self.put_back(ready.into_waiting(one_by_one));
                Err(error)
            }
        }
    }

    /// Puts a batch that was begun in front of what waits, where its rest may be.
    fn put_back(&mut self, waiting: Waiting) {
        match self.again.front_mut() {
            Some(rest) if Arc::ptr_eq(&rest.batch, &waiting.batch) => *rest = waiting,
            _ => self.again.push_front(waiting),
        }
    }

    fn read_ahead(&mut self) -> Result<(), ClientError> {
        while self.begun.len() < READ_AHEAD {
            let waiting = match self.again.pop_front() {
                Some(again) => again,
                None => match self.take()? {
                    Some(taken) => taken,
                    None => return Ok(()),
                },
            };
            match self.begin(&waiting) {
                Ok((begun, rest)) => {
                    self.begun.push_back(begun);
                    if let Some(floor) = rest {
                        self.again.push_front(Waiting { floor, ..waiting });
                    }
                }
                Err(error) => {
                    self.again.push_front(waiting);
                    // What was begun before it comes first.
                    return if self.begun.is_empty() {
                        Err(error)
                    } else {
                        Ok(())
                    };
                }
            }
        }
        Ok(())
    }

    /// The next batch that has arrived, verified, and the offset before which
    /// its events are of no interest.
    fn take(&mut self) -> Result<Option<Waiting>, ClientError> {
        // A gap is told when all events before it were given, not when reading
        // ahead comes upon it.
        while let Some((partition, begins_at, arrival)) = self.shared.take(self.begun.is_empty()) {
            if let Some(position) = begins_at {
                self.positions.insert(partition, position);
            }
            match arrival {
                Arrival::Gap { gap, next } => self.gap(partition, gap, next),
                Arrival::Batch { incarnation, bytes } => {
                    let index = PartitionIndex(partition);
                    let batch = DeliveredBatch::read(&self.shared.topic, index, incarnation, bytes);
                    let batch = match batch {
                        Ok(batch) => batch,
                        Err(error) => {
                            self.read_again(partition);
                            return Err(error);
                        }
                    };
                    let position = self.positions.get(&partition);
                    let floor = match position {
                        _ if planted(Fault::NoFloor) => Offset(0),
                        Some(position) if position.incarnation == incarnation => position.offset,
                        _ => self.carried.get(&partition).copied().unwrap_or(Offset(0)),
                    };
                    let next = Position {
                        incarnation,
                        offset: batch.next_offset(),
                    };
                    self.positions.insert(partition, next);
                    self.carried.remove(&partition);
                    return Ok(Some(Waiting {
                        batch: Arc::new(batch),
                        floor,
                        one_by_one: false,
                    }));
                }
            }
        }
        Ok(None)
    }

    /// A batch was damaged on its way: it is delivered again.
    fn read_again(&mut self, partition: u32) {
        let position = self.positions.get(&partition).copied();
        let Some(position) = position.or_else(|| self.shared.begun(partition)) else {
            return;
        };
        self.shared.restart(partition);
        self.resubscribe(PartitionIndex(partition), position);
    }

    fn resubscribe(&self, partition: PartitionIndex, position: Position) {
        self.shared.mailbox.send(Command::Resubscribe {
            consumer: self.shared.key,
            partition,
            position,
            promise: None,
        });
    }

    fn gap(&mut self, partition: u32, gap: Gap, next: Position) {
        let position = self.positions.get(&partition).copied();
        if gap.reason == GapReason::PowerLoss {
            // The next life kept what was recovered, under the same offsets.
            let offset = position.map_or(gap.first, |position| position.offset);
            self.carried.insert(partition, offset.min(gap.first));
        }
        self.positions.insert(partition, next);
        self.gaps.push((PartitionIndex(partition), gap));
    }

    /// Begins a batch, or its first event alone; then it tells where the rest begins.
    fn begin(&self, waiting: &Waiting) -> Result<(Begun, Option<Offset>), ClientError> {
        let count = waiting.batch.columns.events.len() as u32;
        let mut ready = Ready {
            batch: waiting.batch.clone(),
            next: 0,
            end: count,
            floor: waiting.floor,
            data: None,
        };
        let mut rest = None;
        if waiting.one_by_one {
            ready.next = ready.skip().unwrap_or(count);
            ready.end = (ready.next + 1).min(count);
            rest = (ready.end < count).then(|| ready.batch.id(ready.end).offset);
        }
        let reading = self.choose_data(&mut ready)?;
        let begun = Begun {
            ready,
            reading,
            one_by_one: waiting.one_by_one,
        };
        Ok((begun, rest))
    }

    /// Chooses the data of a batch's events and begins to read it.
    fn choose_data(
        &self,
        ready: &mut Ready,
    ) -> Result<Option<(Selected, Pending<ReadBack>)>, ClientError> {
        let floor = ready.floor;
        let options = &self.shared.options;
        let is_simple = match options.data {
            DataMode::None => true,
            DataMode::All => {
                ready.batch.columns.external.events.is_empty() && options.allocator.is_none()
            }
            DataMode::Select(_) => false,
        };
        if is_simple {
            return Ok(None);
        }
        let mut data: Vec<ConsumedData> = (0..ready.end).map(|_| ConsumedData::None).collect();
        let mut wanted = Vec::new();
        let mut targets = Vec::new();
        let mut selected = Vec::new();
        for index in ready.next..ready.end {
            let id = ready.batch.id(index);
            if id.offset < floor || ready.batch.event(index).data_bytes == 0 {
                continue;
            }
            let info = EventInfo {
                batch: &ready.batch,
                index,
            };
            let Some((view, target)) = self.choose(&info)? else {
                continue;
            };
            if let (DataMode::All, Some(inline)) = (&options.data, ready.batch.inline(index)) {
                data[index as usize] = match target {
                    None => ConsumedData::Shared(inline),
                    Some(mut target) => {
                        copies::copy(&inline, target.as_mut());
                        ConsumedData::Target(target)
                    }
                };
                continue;
            }
            selected.push((index, view.bytes()));
            targets.extend(target);
            wanted.push(DataWanted {
                partition: id.partition,
                incarnation: id.incarnation,
                offset: id.offset,
                segments: view.segments().to_vec(),
            });
        }
        ready.data = Some(data);
        if wanted.is_empty() {
            return Ok(None);
        }
        let is_pooled = options.allocator.is_none();
        if is_pooled {
            let bytes: u64 = selected.iter().map(|(_, bytes)| bytes).sum();
            let bytes = usize::try_from(bytes).map_err(ClientError::invalid)?;
            targets.push(self.shared.pool.take(bytes).into());
        }
        let pending = (self.read)(wanted, targets);
        let shared = Arc::downgrade(&self.shared);
        pending.on_done(Box::new(move || {
            if let Some(shared) = shared.upgrade() {
                shared.notify();
            }
        }));
        let selected = Selected {
            events: selected,
            is_pooled,
        };
        Ok(Some((selected, pending)))
    }

    /// What is wanted of an event, and where it goes, if the user says so.
    fn choose(
        &self,
        info: &EventInfo<'_>,
    ) -> Result<Option<(DataView, Option<Target>)>, ClientError> {
        let options = &self.shared.options;
        let refuse = |what: &str, reason: String| {
            let topic = &self.shared.topic.name;
            ClientError::Invalid(format!("the {what} for {topic}/{}: {reason}", info.id()))
        };
        let view = match &options.data {
            DataMode::None => return Ok(None),
            DataMode::All => DataView::whole(info.data_bytes_total()),
            DataMode::Select(selector) => {
                selector(info).map_err(|reason| refuse("data selector", reason))?
            }
        };
        if view.is_empty() {
            return Ok(None);
        }
        let reach = view.segments().iter().map(|part| part.offset + part.bytes);
        let reach = reach.max().unwrap_or(0);
        if reach > info.data_bytes_total() {
            return Err(refuse(
                "data selector",
                format!(
                    "its view reaches to byte {reach} of {}",
                    info.data_bytes_total()
                ),
            ));
        }
        let Some(allocator) = &options.allocator else {
            return Ok(Some((view, None)));
        };
        let target = allocator(info, &view).map_err(|reason| refuse("data allocator", reason))?;
        if target.len() as u64 != view.bytes() {
            return Err(refuse(
                "data allocator",
                format!("it gave {} bytes for {}", target.len(), view.bytes()),
            ));
        }
        Ok(Some((view, Some(target))))
    }

    /// The next event of a partition to be handed out, if that is known.
    pub fn position(&self, partition: u32) -> Option<Position> {
        let index = PartitionIndex(partition);
        let begun = self.begun.iter().map(|begun| &begun.ready);
        let ready = self
            .current
            .iter()
            .chain(begun)
            .filter(|ready| ready.batch.partition == index)
            .find_map(Ready::position);
        let again = || {
            let waiting = self
                .again
                .iter()
                .find(|again| again.batch.partition == index)?;
            Some(Position {
                incarnation: waiting.batch.incarnation,
                offset: waiting.batch.base_offset.max(waiting.floor),
            })
        };
        ready
            .or_else(again)
            .or_else(|| self.shared.begun(partition))
            .or_else(|| self.positions.get(&partition).copied())
    }

    /// Forgets what was taken of a partition: it is read again from `position`.
    pub fn restart(&mut self, partition: u32, position: Position) {
        let index = PartitionIndex(partition);
        if self
            .current
            .as_ref()
            .is_some_and(|ready| ready.batch.partition == index)
        {
            self.current = None;
        }
        self.begun
            .retain(|begun| begun.ready.batch.partition != index);
        self.again.retain(|again| again.batch.partition != index);
        self.carried.remove(&partition);
        self.positions.insert(partition, position);
        self.shared.restart(partition);
    }
}

impl Ready {
    fn next(&mut self) -> Option<ConsumedEvent> {
        let index = self.skip()?;
        self.next = index + 1;
        let data = match &mut self.data {
            Some(data) => std::mem::replace(&mut data[index as usize], ConsumedData::None),
            None if self.batch.event(index).data_bytes == 0 => ConsumedData::None,
            None => self
                .batch
                .inline(index)
                .map_or(ConsumedData::None, ConsumedData::Shared),
        };
        Some(ConsumedEvent {
            batch: self.batch.clone(),
            index,
            data,
        })
    }

    /// The next event that is of interest.
    fn skip(&self) -> Option<u32> {
        if self.floor <= self.batch.base_offset {
            return (self.next < self.end).then_some(self.next);
        }
        (self.next..self.end).find(|index| self.batch.id(*index).offset >= self.floor)
    }

    /// The batch again, from the first event that was not handed out.
    fn into_waiting(self, one_by_one: bool) -> Waiting {
        let floor = self
            .skip()
            .map_or(self.floor, |index| self.batch.id(index).offset);
        Waiting {
            batch: self.batch,
            floor,
            one_by_one,
        }
    }

    fn position(&self) -> Option<Position> {
        Some(Position {
            incarnation: self.batch.incarnation,
            offset: self.batch.id(self.skip()?).offset,
        })
    }

    /// Takes the data that was read, once it is found to be what was stored.
    fn fill(&mut self, selected: Selected, (read, targets): ReadBack) -> Result<(), ClientError> {
        let damaged = |what: String| ClientError::Damaged {
            what: format!("data of partition {}: {what}", self.batch.partition),
        };
        if read.checksums.len() != selected.events.len() {
            return Err(damaged(format!(
                "{} checksums came for {} events",
                read.checksums.len(),
                selected.events.len()
            )));
        }
        let data = self.data.as_mut().expect("made when the read was begun");
        let check = |index: u32, bytes: &[u8], stored: u32| {
            let computed = crc32c(bytes);
            if computed == stored {
                return Ok(());
            }
            let id = self.batch.id(index);
            Err(damaged(format!(
                "event {id}: crc {computed:08x}, the server says {stored:08x}"
            )))
        };
        if selected.is_pooled {
            let target = targets.into_iter().next();
            let buffer: Buffer = target.expect("a read gives its memory back").into_owner();
            let bytes = buffer.freeze();
            let mut at = 0;
            for ((index, length), stored) in selected.events.into_iter().zip(read.checksums) {
                let part = bytes.slice(at..at + length as usize);
                at += length as usize;
                check(index, &part, stored)?;
                data[index as usize] = ConsumedData::Shared(part);
            }
            return Ok(());
        }
        for (((index, _), stored), mut target) in
            selected.events.into_iter().zip(read.checksums).zip(targets)
        {
            check(index, target.as_mut(), stored)?;
            data[index as usize] = ConsumedData::Target(target);
        }
        Ok(())
    }
}
