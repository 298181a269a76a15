//! Events of batches that were read: records, and parts.

use bytes::Bytes;
use wire::batch::{Batch, Verify};
use wire::{Offset, ProducerEpoch, ProducerId};

/// An event of a batch that was read.
pub(super) struct Event {
    pub offset: Offset,
    pub time: u64,
    pub producer: ProducerId,
    pub epoch: ProducerEpoch,
    pub metadata: Bytes,
    pub inline: Bytes,
    pub data_bytes: u64,
}

/// The events of a batch.
pub(super) fn events_of(bytes: Bytes) -> Result<Vec<Event>, wire::DecodeError> {
    let batch = Batch::read(bytes, Verify::Headers)?;
    let columns = batch.columns()?;
    let stamp = batch.stamp;
    let base = stamp.map_or(Offset(0), |stamp| stamp.base_offset);
    let time = stamp.map_or(0, |stamp| stamp.append_time);
    let metadata = batch.metadata_range();
    let inline = batch.inline_range();
    let bytes = batch.bytes();
    let events = columns.events.iter().map(|event| {
        let start = metadata.start + event.metadata_start as usize;
        let data = inline
            .as_ref()
            .filter(|_| !event.external && event.data_bytes > 0);
        let data = data.map_or_else(Bytes::new, |inline| {
            let start = inline.start + event.data_start as usize;
            bytes.slice(start..start + event.data_bytes as usize)
        });
        Event {
            offset: base.plus(event.offset_delta.into()),
            time,
            producer: batch.header.producer,
            epoch: batch.header.epoch,
            metadata: bytes.slice(start..start + event.metadata_bytes as usize),
            inline: data,
            data_bytes: event.data_bytes,
        }
    });
    Ok(events.collect())
}
