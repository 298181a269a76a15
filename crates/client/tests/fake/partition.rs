//! A partition of the fake server: its events, and which of them are known.

use bytes::Bytes;
use std::collections::BTreeMap;
use wire::batch::{Batch, Stamp, Verify};
use wire::message::*;
use wire::record::{Gap, GapReason};
use wire::*;

/// One event as the fake server keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEvent {
    pub metadata: Vec<u8>,
    pub data: Vec<u8>,
    pub sequence: u64,
}

#[derive(Default)]
pub struct FakePartition {
    pub incarnation: u64,
    pub batches: Vec<(u64, Bytes)>,
    pub events: Vec<StoredEvent>,
    /// Producer: next sequence, and (first, base offset) of its batches.
    pub producers: BTreeMap<ProducerId, (u64, Vec<(u64, u64)>)>,
    pub duplicates: u64,
    pub gap: Option<Gap>,
}

impl FakePartition {
    /// It is lost with its events; a new life begins.
    pub fn lose(&mut self) {
        let end = Offset(self.events.len() as u64);
        let old = self.incarnation;
        *self = Self {
            incarnation: old + 1,
            gap: Some(Gap {
                incarnation: Incarnation(old),
                first: end,
                end,
                reason: GapReason::MemoryLost,
                time: 1,
            }),
            ..Self::default()
        };
    }

    /// Its host loses power: a new life begins with the first `kept` batches.
    pub fn lose_power(&mut self, kept: usize) {
        self.batches.truncate(kept);
        let end = self.batches.last().map_or(0, |(base, batch)| {
            let read = Batch::read(batch.clone(), Verify::Headers).unwrap();
            base + read.header.offset_count()
        });
        self.events.truncate(end as usize);
        self.producers.clear();
        self.gap = Some(Gap {
            incarnation: Incarnation(self.incarnation),
            first: Offset(end),
            end: Offset(end),
            reason: GapReason::PowerLoss,
            time: 1,
        });
        self.incarnation += 1;
    }

    /// Stores a batch with its large data, or knows it again.
    pub fn append(
        &mut self,
        batch: &[u8],
        external: &[u8],
        append_time: u64,
    ) -> Result<Produced, ErrorReply> {
        let mut bytes = batch.to_vec();
        let batch = Batch::read(&bytes[..], Verify::Sections).unwrap();
        assert!(batch.stamp.is_none());
        let header = batch.header;
        let first = header.first_sequence.0;
        let count = u64::from(header.event_count);
        let produced = |base_offset, incarnation, duplicate| Produced {
            incarnation: Incarnation(incarnation),
            base_offset: Offset(base_offset),
            append_time,
            duplicate,
        };
        let incarnation = self.incarnation;
        if let Some((next, batches)) = self.producers.get(&header.producer) {
            if let Some((_, base)) = batches.iter().find(|(other, _)| *other == first) {
                self.duplicates += 1;
                return Ok(produced(*base, incarnation, true));
            }
            if *next != first {
                return Err(ErrorReply::fatal(
                    ErrorCode::OutOfSequence,
                    format!("expected {next}, got {first}"),
                ));
            }
        }
        let base = self.events.len() as u64;
        let columns = batch.columns().unwrap();
        let mut taken = 0usize;
        for (index, event) in columns.events.iter().enumerate() {
            let start = event.metadata_start as usize;
            let metadata =
                batch.metadata_section()[start..start + event.metadata_bytes as usize].to_vec();
            let length = event.data_bytes as usize;
            let data = if event.external {
                taken += length;
                external[taken - length..taken].to_vec()
            } else {
                let start = event.data_start as usize;
                batch.inline_section().unwrap()[start..start + length].to_vec()
            };
            self.events.push(StoredEvent {
                metadata,
                data,
                sequence: first + index as u64,
            });
        }
        assert_eq!(taken, external.len());
        let stamp = Stamp {
            batch_bytes: bytes.len() as u64,
            base_offset: Offset(base),
            append_time,
            header_crc: batch.header_crc,
            data_bytes: external.len() as u64,
            ..Stamp::default()
        };
        stamp.write(&mut bytes);
        self.batches.push((base, bytes.into()));
        let entry = self.producers.entry(header.producer).or_default();
        entry.0 = first + count;
        entry.1.push((first, base));
        Ok(produced(base, incarnation, false))
    }
}

pub fn marks(partition: &FakePartition) -> Watermarks {
    let end = Offset(partition.events.len() as u64);
    Watermarks {
        end,
        durable: end,
        committed: end,
    }
}
