//! Events, as they are pushed and as they are consumed.

use crate::error::ClientError;
use bytes::Bytes;
use memory::Target;
use net::Seal;
use std::fmt;
use std::sync::Arc;
use wire::batch::{Batch, Columns, EventRef, Headers};
use wire::codec::Codec;
use wire::{EventId, Incarnation, Offset, PartitionIndex};

/// An event's data: owned handles, sent from where they lie, one behind the other.
pub type Data = Vec<Bytes>;

/// A piece of an event's large data, on its way.
pub(crate) struct Piece {
    pub bytes: Bytes,
    /// What it was when it was pushed, if somebody may change it.
    pub lent: Option<Arc<Lent>>,
}

/// What a piece of data was when it was pushed.
#[derive(Debug)]
pub(crate) struct Lent {
    pub seal: Arc<Seal>,
    /// The event, for errors.
    event: String,
}

/// Metadata of an event that an error shows, bytes.
const SHOWN_BYTES_MAX: usize = 100;

impl Lent {
    /// Of all data of an event that is sent from where it lies, as it is now.
    pub fn of(event: &Event<'_>) -> Vec<Arc<Self>> {
        let shown = &event.metadata[..event.metadata.len().min(SHOWN_BYTES_MAX)];
        let bytes = event.data_bytes();
        let lend = |piece: &Bytes| {
            Arc::new(Self {
                seal: Arc::new(Seal::of(piece)),
                event: format!(
                    "an event of {bytes} bytes of data with the metadata {}",
                    String::from_utf8_lossy(shown)
                ),
            })
        };
        event.data.iter().map(lend).collect()
    }

    /// That it was changed, if it was found to be.
    pub fn changed(&self) -> Option<ClientError> {
        self.seal.is_broken().then(|| ClientError::DataChanged {
            event: self.event.clone(),
        })
    }
}

/// An event to be pushed.
#[derive(Debug, Clone, Default)]
pub struct Event<'a> {
    /// The metadata, as the topic's validator wants it. Copied.
    pub metadata: &'a [u8],
    /// The data. Short data is copied into the batch; longer data is sent
    /// from where it lies and kept alive until it is acknowledged.
    pub data: Data,
    /// More data, behind `data`, that is copied before the push returns, into
    /// memory that is used again: what is the caller's to change afterwards.
    pub copied: &'a [&'a [u8]],
    /// The key; none differs from empty.
    pub key: Option<&'a [u8]>,
    /// Pairs of a name and a value.
    pub headers: &'a [(&'a str, &'a [u8])],
    /// The producer's own time, nanoseconds since 1970.
    pub producer_time: Option<u64>,
    /// The partition, where the topic's selector leaves the choice.
    pub partition: Option<u32>,
    /// Whether the event deletes its key.
    pub tombstone: bool,
}

impl<'a> Event<'a> {
    /// An event of metadata alone.
    pub fn new(metadata: &'a [u8]) -> Self {
        Self {
            metadata,
            ..Self::default()
        }
    }

    /// The same with data.
    pub fn with_data(mut self, data: impl Into<Bytes>) -> Self {
        self.data.push(data.into());
        self
    }

    /// Length of the data, all pieces together.
    pub(crate) fn data_bytes(&self) -> u64 {
        let owned: usize = self.data.iter().map(Bytes::len).sum();
        let copied: usize = self.copied.iter().map(|piece| piece.len()).sum();
        (owned + copied) as u64
    }
}

/// The data of a reply, as that of an [`Event`].
#[derive(Debug, Clone, Default)]
pub struct ReplyData<'a> {
    /// As [`Event::data`].
    pub data: Data,
    /// As [`Event::copied`].
    pub copied: &'a [&'a [u8]],
}

impl<'a> From<Event<'a>> for ReplyData<'a> {
    fn from(event: Event<'a>) -> Self {
        Self {
            data: event.data,
            copied: event.copied,
        }
    }
}

impl From<Data> for ReplyData<'_> {
    fn from(data: Data) -> Self {
        Self { data, copied: &[] }
    }
}

/// A batch that has arrived and been verified.
pub(crate) struct DeliveredBatch {
    pub partition: PartitionIndex,
    pub incarnation: Incarnation,
    pub base_offset: Offset,
    pub append_time: u64,
    pub batch: Batch<Bytes>,
    pub columns: Columns,
    /// Metadata of each event, where the topic's serializer changes bytes.
    pub deserialized: Option<Vec<Bytes>>,
}

impl DeliveredBatch {
    pub fn event(&self, index: u32) -> &EventRef {
        &self.columns.events[index as usize]
    }

    pub fn id(&self, index: u32) -> EventId {
        EventId {
            partition: self.partition,
            incarnation: self.incarnation,
            offset: self
                .base_offset
                .plus(u64::from(self.event(index).offset_delta)),
        }
    }

    /// The offset behind the batch.
    pub fn next_offset(&self) -> Offset {
        self.base_offset.plus(self.batch.header.offset_count())
    }

    pub fn metadata(&self, index: u32) -> &[u8] {
        if let Some(deserialized) = &self.deserialized {
            return &deserialized[index as usize];
        }
        let event = self.event(index);
        let start = event.metadata_start as usize;
        &self.batch.metadata_section()[start..start + event.metadata_bytes as usize]
    }

    fn metadata_bytes(&self, index: u32) -> Bytes {
        if let Some(deserialized) = &self.deserialized {
            return deserialized[index as usize].clone();
        }
        let event = self.event(index);
        let start = self.batch.metadata_range().start + event.metadata_start as usize;
        self.batch
            .bytes()
            .slice(start..start + event.metadata_bytes as usize)
    }

    fn blob(&self, place: Option<(u32, u32)>) -> Option<&[u8]> {
        place.map(|(start, bytes)| {
            &self.batch.columns_section()[start as usize..(start + bytes) as usize]
        })
    }

    fn headers(&self, index: u32) -> Headers {
        self.blob(self.event(index).headers)
            .and_then(|encoded| Headers::from_bytes("event headers", encoded).ok())
            .unwrap_or_default()
    }

    fn header(&self, index: u32, name: &str) -> Option<&[u8]> {
        Headers::find(self.blob(self.event(index).headers)?, name)
    }

    /// Inline data of an event, if the batch brought it along.
    pub fn inline(&self, index: u32) -> Option<Bytes> {
        let event = self.event(index);
        if event.external {
            return None;
        }
        let start = self.batch.inline_range()?.start + event.data_start as usize;
        Some(
            self.batch
                .bytes()
                .slice(start..start + event.data_bytes as usize),
        )
    }
}

/// What a data selector and an allocator can see of an event.
#[derive(Clone, Copy)]
pub struct EventInfo<'a> {
    pub(crate) batch: &'a DeliveredBatch,
    pub(crate) index: u32,
}

impl<'a> EventInfo<'a> {
    /// Where the event is.
    pub fn id(&self) -> EventId {
        self.batch.id(self.index)
    }

    /// The metadata.
    pub fn metadata(&self) -> &'a [u8] {
        self.batch.metadata(self.index)
    }

    /// The key; `None` is null.
    pub fn key(&self) -> Option<&'a [u8]> {
        self.batch.blob(self.batch.event(self.index).key)
    }

    /// The headers.
    pub fn headers(&self) -> Vec<(String, Bytes)> {
        self.batch.headers(self.index).0
    }

    /// The producer's time, nanoseconds since 1970.
    pub fn producer_time(&self) -> Option<u64> {
        self.batch.event(self.index).producer_time
    }

    /// When the broker took the event, nanoseconds since 1970.
    pub fn append_time(&self) -> u64 {
        self.batch.append_time
    }

    /// Length of the event's whole data.
    pub fn data_bytes_total(&self) -> u64 {
        self.batch.event(self.index).data_bytes
    }
}

/// The data that came with an event.
#[derive(Debug, Clone)]
pub enum EventDataRef<'a> {
    /// None was wanted, or there is none.
    None,
    /// In memory of the client's, which the handle keeps alive.
    Inline(Bytes),
    /// In the memory that the allocator gave; take it with
    /// [`ConsumedEvent::take_target`].
    Allocated(&'a Target),
}

/// Where the wanted data of a consumed event is.
pub(crate) enum ConsumedData {
    None,
    Shared(Bytes),
    Target(Target),
}

/// An event that was pulled. It keeps its batch in memory.
pub struct ConsumedEvent {
    pub(crate) batch: Arc<DeliveredBatch>,
    pub(crate) index: u32,
    pub(crate) data: ConsumedData,
}

impl ConsumedEvent {
    fn info(&self) -> EventInfo<'_> {
        EventInfo {
            batch: &self.batch,
            index: self.index,
        }
    }

    /// Where the event is.
    pub fn id(&self) -> EventId {
        self.batch.id(self.index)
    }

    /// The metadata.
    pub fn metadata(&self) -> &[u8] {
        self.batch.metadata(self.index)
    }

    /// The metadata as a handle of its own, without a copy.
    pub fn metadata_bytes(&self) -> Bytes {
        self.batch.metadata_bytes(self.index)
    }

    /// The key; `None` is null.
    pub fn key(&self) -> Option<&[u8]> {
        self.info().key()
    }

    /// The value of the first header of this name.
    pub(crate) fn header(&self, name: &str) -> Option<&[u8]> {
        self.batch.header(self.index, name)
    }

    /// The headers, pairs of a name and a value.
    pub fn headers(&self) -> Vec<(String, Bytes)> {
        self.info().headers()
    }

    /// The producer's time, nanoseconds since 1970.
    pub fn producer_time(&self) -> Option<u64> {
        self.info().producer_time()
    }

    /// When the broker took the event, nanoseconds since 1970.
    pub fn append_time(&self) -> u64 {
        self.batch.append_time
    }

    /// Whether the event deletes its key.
    pub fn tombstone(&self) -> bool {
        self.batch.event(self.index).tombstone
    }

    /// Length of the event's whole data, wanted or not.
    pub fn data_bytes_total(&self) -> u64 {
        self.info().data_bytes_total()
    }

    /// The data that came along.
    pub fn data(&self) -> EventDataRef<'_> {
        match &self.data {
            ConsumedData::None => EventDataRef::None,
            ConsumedData::Shared(bytes) => EventDataRef::Inline(bytes.clone()),
            ConsumedData::Target(target) => EventDataRef::Allocated(target),
        }
    }

    /// Takes the memory that the allocator gave, now filled.
    pub fn take_target(&mut self) -> Option<Target> {
        match std::mem::replace(&mut self.data, ConsumedData::None) {
            ConsumedData::Target(target) => Some(target),
            other => {
                self.data = other;
                None
            }
        }
    }

    /// Takes the data as a handle; empty if there is none, or if it is in
    /// memory of the allocator's.
    pub fn take_data(&mut self) -> Bytes {
        match std::mem::replace(&mut self.data, ConsumedData::None) {
            ConsumedData::Shared(bytes) => bytes,
            other => {
                self.data = other;
                Bytes::new()
            }
        }
    }
}

impl fmt::Debug for ConsumedEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsumedEvent")
            .field("id", &self.id())
            .field("metadata_bytes", &self.metadata().len())
            .field("data_bytes_total", &self.data_bytes_total())
            .finish()
    }
}
