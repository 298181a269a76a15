//! Batches that have arrived, verified and taken apart.

use crate::error::ClientError;
use crate::event::{ConsumedData, ConsumedEvent, DeliveredBatch};
use crate::topic_state::TopicState;
use bytes::Bytes;
use std::sync::Arc;
use wire::batch::{Batch, BatchKind, Verify};
use wire::codec::Codec;
use wire::message::{Fetched, Watermarks};
use wire::record::{Gap, Position};
use wire::{Incarnation, Offset, PartitionIndex};

/// What is made of the metadata of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Metadata {
    /// What the topic's serializer makes of it.
    Deserialized,
    /// It stays as it is stored, for who passes it on.
    Stored,
}

impl DeliveredBatch {
    /// Verifies every section of a stamped batch of events and reads its columns.
    pub fn read(
        topic: &TopicState,
        partition: PartitionIndex,
        incarnation: Incarnation,
        bytes: Bytes,
        metadata: Metadata,
    ) -> Result<Self, ClientError> {
        let place = |error: &dyn std::fmt::Display| ClientError::Damaged {
            what: format!("a batch of {}/{partition}: {error}", topic.name),
        };
        let batch = Batch::read(bytes, Verify::Sections).map_err(|error| place(&error))?;
        let stamp = batch.stamp.ok_or_else(|| place(&"it has no stamp"))?;
        if batch.header.topic != topic.id {
            return Err(place(&format!("it is of topic {}", batch.header.topic)));
        }
        let columns = batch.columns().map_err(|error| place(&error))?;
        let mut delivered = Self {
            partition,
            incarnation,
            base_offset: stamp.base_offset,
            append_time: stamp.append_time,
            batch,
            columns,
            deserialized: None,
        };
        if metadata == Metadata::Stored {
            return Ok(delivered);
        }
        let serializer = topic.serializer()?;
        if !serializer.is_identity() {
            let count = delivered.columns.events.len() as u32;
            let deserialize = |index| {
                let metadata = serializer.deserialize(delivered.metadata(index));
                metadata
                    .map(|metadata| Bytes::copy_from_slice(&metadata))
                    .map_err(|error| place(&error))
            };
            let deserialized = (0..count).map(deserialize).collect::<Result<_, _>>()?;
            delivered.deserialized = Some(deserialized);
        }
        Ok(delivered)
    }
}

/// What a fetch found.
pub struct FetchedBatches {
    /// The partition's life.
    pub incarnation: Incarnation,
    /// How far the partition has come.
    pub watermarks: Watermarks,
    /// What is missing in between, in order.
    pub gaps: Vec<Gap>,
    /// Where to go on; `None` if nothing was found.
    pub next: Option<Position>,
    batches: Vec<Arc<DeliveredBatch>>,
    bytes: Vec<Bytes>,
    from: Offset,
}

impl FetchedBatches {
    pub(crate) fn new(
        topic: &TopicState,
        partition: PartitionIndex,
        fetched: Fetched,
        payload: Bytes,
        metadata: Metadata,
    ) -> Result<Self, ClientError> {
        let mut found = Self {
            incarnation: fetched.incarnation,
            watermarks: fetched.watermarks,
            gaps: Vec::new(),
            next: None,
            batches: Vec::new(),
            bytes: Vec::new(),
            from: Offset(0),
        };
        let mut at = 0usize;
        for length in fetched.batch_bytes {
            let end = usize::try_from(length)
                .ok()
                .and_then(|length| at.checked_add(length))
                .filter(|end| *end <= payload.len())
                .ok_or_else(|| ClientError::Damaged {
                    what: format!("batches of {}/{partition} exceed their payload", topic.name),
                })?;
            let bytes = payload.slice(at..end);
            at = end;
            let batch =
                Batch::read(bytes.clone(), Verify::Headers).map_err(ClientError::damaged)?;
            let offset = match batch.header.kind {
                BatchKind::Gap => {
                    let batch =
                        Batch::read(bytes, Verify::Sections).map_err(ClientError::damaged)?;
                    let gap = Gap::from_bytes("gap", batch.metadata_section())
                        .map_err(ClientError::damaged)?;
                    found.gaps.push(gap);
                    // Behind the end of a life the next one is read, from
                    // where the batch says.
                    match (gap.incarnation == found.incarnation, batch.stamp) {
                        (false, Some(stamp)) => stamp.base_offset,
                        _ => gap.end,
                    }
                }
                BatchKind::Events => {
                    let incarnation = found.incarnation;
                    let batch = DeliveredBatch::read(
                        topic,
                        partition,
                        incarnation,
                        bytes.clone(),
                        metadata,
                    )?;
                    let next = batch.next_offset();
                    found.batches.push(Arc::new(batch));
                    found.bytes.push(bytes);
                    next
                }
                _ => continue,
            };
            found.next = Some(Position {
                incarnation: found.incarnation,
                offset,
            });
        }
        Ok(found)
    }

    /// Leaves out events before `from`: the first batch may begin earlier.
    pub fn starting_at(mut self, from: Offset) -> Self {
        self.from = from;
        self
    }

    /// The verified batches, as they are stored.
    pub fn batches(&self) -> &[Bytes] {
        &self.bytes
    }

    /// The events, in order; inline data comes along if it was asked for,
    /// other data is read with [`crate::TopicHandle::read_data`].
    pub fn events(&self) -> impl Iterator<Item = ConsumedEvent> + '_ {
        self.batches.iter().flat_map(move |batch| {
            (0..batch.columns.events.len() as u32)
                .filter(|index| batch.id(*index).offset >= self.from)
                .map(|index| ConsumedEvent {
                    batch: batch.clone(),
                    index,
                    data: match batch.event(index).data_bytes {
                        0 => ConsumedData::None,
                        _ => batch
                            .inline(index)
                            .map_or(ConsumedData::None, ConsumedData::Shared),
                    },
                })
        })
    }
}

impl std::fmt::Debug for FetchedBatches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FetchedBatches")
            .field("incarnation", &self.incarnation)
            .field("batches", &self.batches.len())
            .field("gaps", &self.gaps)
            .field("next", &self.next)
            .finish()
    }
}
