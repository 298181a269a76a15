//! The wanted data of events that have arrived: the selector says which bytes,
//! the allocator where they go, and one transfer a batch brings them.

use crate::error::ClientError;
use crate::event::{ConsumedData, ConsumedEvent, DeliveredBatch, EventInfo};
use crate::options::{DataAllocator, DataMode};
use crate::promise::Pending;
use crate::received_checksums::ReadBack;
use crate::topic_handle::TopicHandle;
use crate::topic_state::TopicState;
use bytes::Bytes;
use memory::{Buffer, Pool, Target, copies};
use std::sync::Arc;
use wire::Offset;
use wire::message::DataWanted;
use wire::record::Position;
use wire::view::DataView;

/// Memory of reads of data, as far as it is kept for reuse: space for four of
/// 25 MiB, of which one is handed out and two are read ahead.
const POOL_KEPT_BYTES_MAX: usize = 128 << 20;

/// Begins a read of data into targets.
type ReadData = dyn Fn(Vec<DataWanted>, Vec<Target>) -> Pending<ReadBack> + Send + Sync;

/// A batch whose events are handed out.
pub(crate) struct Ready {
    pub batch: Arc<DeliveredBatch>,
    pub next: u32,
    /// The event behind the last that is handed out.
    pub end: u32,
    /// Events before it are of no interest.
    pub floor: Offset,
    /// Data of each event, where it is not simply inline in the batch.
    pub data: Option<Vec<ConsumedData>>,
}

/// Selections of a batch, in the order in which they are read.
struct Selected {
    /// The event, and how many bytes of it.
    events: Vec<(u32, u64)>,
    /// One target for each, or one for all of them.
    is_pooled: bool,
}

/// Data of a batch that is on its way.
pub(crate) struct Reading {
    selected: Selected,
    pending: Pending<ReadBack>,
}

/// Reads data for one consumer.
pub(crate) struct DataReader {
    topic: Arc<TopicState>,
    mode: DataMode,
    allocator: Option<Arc<DataAllocator>>,
    pool: Pool,
    read: Box<ReadData>,
    /// Notified when data has come.
    on_read: Arc<dyn Fn() + Send + Sync>,
}

impl DataReader {
    pub fn new(
        topic: &TopicHandle,
        mode: DataMode,
        allocator: Option<Arc<DataAllocator>>,
        on_read: Arc<dyn Fn() + Send + Sync>,
    ) -> Self {
        let (driver, state) = (topic.driver.clone(), topic.state.clone());
        Self {
            topic: topic.state.clone(),
            mode,
            allocator,
            pool: Pool::new(POOL_KEPT_BYTES_MAX),
            read: Box::new(move |wanted, into| driver.begin_read_data(&state, wanted, into)),
            on_read,
        }
    }

    /// Whether nothing of the user's is called to read data: it can be begun
    /// on any thread.
    pub fn reads_by_itself(&self) -> bool {
        let is_chosen_here = matches!(self.mode, DataMode::All) && self.allocator.is_none();
        let serializer = self.topic.serializer();
        is_chosen_here && serializer.is_ok_and(|serializer| serializer.is_identity())
    }

    /// Whether something of the user's, or a plugin, is called to read events.
    pub fn calls_user(&self) -> bool {
        let selects = matches!(self.mode, DataMode::Select(_)) || self.allocator.is_some();
        let serializer = self.topic.serializer();
        selects || !serializer.is_ok_and(|serializer| serializer.is_identity())
    }

    /// Chooses the data of a batch's events and begins to read it; `None` if
    /// there is nothing to read.
    pub fn begin(&self, ready: &mut Ready) -> Result<Option<Reading>, ClientError> {
        trace::passes!("what is wanted of its data is selected");
        let floor = ready.floor;
        let is_simple = match self.mode {
            DataMode::None => true,
            DataMode::All => {
                ready.batch.columns.external.events.is_empty() && self.allocator.is_none()
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
            if let Some(inline) = ready.batch.inline(index) {
                data[index as usize] = self.pick(&inline, &view, target);
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
        let is_pooled = self.allocator.is_none();
        if is_pooled {
            let bytes: u64 = selected.iter().map(|(_, bytes)| bytes).sum();
            let bytes = usize::try_from(bytes).map_err(ClientError::invalid)?;
            targets.push(self.pool.take(bytes).into());
        }
        let pending = (self.read)(wanted, targets);
        let on_read = self.on_read.clone();
        // An answer that is there already is looked at when its turn comes.
        pending.on_news(Box::new(move || on_read()));
        let selected = Selected {
            events: selected,
            is_pooled,
        };
        Ok(Some(Reading { selected, pending }))
    }

    /// What is wanted of data that came along.
    fn pick(&self, inline: &Bytes, view: &DataView, target: Option<Target>) -> ConsumedData {
        let gather = |mut into: &mut [u8]| {
            for part in view.gather(inline) {
                let (now, rest) = into.split_at_mut(part.len());
                copies::copy(part, now);
                into = rest;
            }
        };
        if let Some(mut target) = target {
            gather(target.as_mut());
            return ConsumedData::Target(target);
        }
        if let [part] = view.segments() {
            let end = part.offset + part.bytes;
            return ConsumedData::Shared(inline.slice(part.offset as usize..end as usize));
        }
        let mut buffer = self.pool.take(view.bytes() as usize);
        gather(&mut buffer);
        ConsumedData::Shared(buffer.freeze())
    }

    /// What is wanted of an event, and where it goes, if the user says so.
    fn choose(
        &self,
        info: &EventInfo<'_>,
    ) -> Result<Option<(DataView, Option<Target>)>, ClientError> {
        let refuse = |what: &str, reason: String| {
            let topic = &self.topic.name;
            ClientError::Invalid(format!("the {what} for {topic}/{}: {reason}", info.id()))
        };
        let view = match &self.mode {
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
        let Some(allocator) = &self.allocator else {
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
}

impl Reading {
    /// How much it reads.
    pub fn bytes(&self) -> u64 {
        self.selected.events.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Whether the data of `ready` has come; it is with its events then.
    pub fn try_finish(&mut self, ready: &mut Ready) -> Option<Result<(), ClientError>> {
        let outcome = self.pending.try_get()?;
        let selected = Selected {
            events: std::mem::take(&mut self.selected.events),
            is_pooled: self.selected.is_pooled,
        };
        Some(outcome.and_then(|read| ready.fill(selected, read)))
    }
}

impl Ready {
    /// The next event that is handed out.
    pub fn next(&mut self) -> Option<ConsumedEvent> {
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
    pub fn skip(&self) -> Option<u32> {
        if self.floor <= self.batch.base_offset {
            return (self.next < self.end).then_some(self.next);
        }
        (self.next..self.end).find(|index| self.batch.id(*index).offset >= self.floor)
    }

    /// Where that is.
    pub fn position(&self) -> Option<Position> {
        Some(Position {
            incarnation: self.batch.incarnation,
            offset: self.batch.id(self.skip()?).offset,
        })
    }

    /// Takes the data that was read, once it is found to be what was stored.
    fn fill(&mut self, selected: Selected, mut read: ReadBack) -> Result<(), ClientError> {
        read.verify().map_err(|wrong| {
            let (index, _) = selected.events[wrong.selection];
            let (partition, id) = (self.batch.partition, self.batch.id(index));
            ClientError::Damaged {
                what: format!("data of partition {partition}: event {id}: {wrong}"),
            }
        })?;
        let data = self.data.as_mut().expect("made when the read was begun");
        let mut targets = read.targets.into_iter();
        if selected.is_pooled {
            let target = targets.next();
            let buffer: Buffer = target.expect("a read gives its memory back").into_owner();
            let bytes = buffer.freeze();
            let mut at = 0;
            for (index, length) in selected.events {
                let part = bytes.slice(at..at + length as usize);
                at += length as usize;
                data[index as usize] = ConsumedData::Shared(part);
            }
            return Ok(());
        }
        for ((index, _), target) in selected.events.into_iter().zip(targets) {
            data[index as usize] = ConsumedData::Target(target);
        }
        Ok(())
    }
}
