//! Selected data of several events, cut into chunks that go out by one write each.

use crate::ids::{RequestId, StorageId};
use bytes::Bytes;
use log::EventData;
use net::BulkToken;
use std::collections::BTreeMap;
use wire::checksum::crc32c_combine;
use wire::frame::BULK_CHUNK_BYTES;
use wire::message::{DataWanted, Region};
use wire::view::Segment;

/// A `ReadData` call under way.
pub(crate) struct ReadDataCall {
    pub caller: RequestId,
    pub events: Vec<SelectedEvent>,
    pub into: Vec<Region>,
    /// Events that are looked up or still to be.
    pub unopened: usize,
    /// Where the next chunk begins: in which event, segment and region.
    pub next: Place,
    /// Chunks under way, by their numbers in the order of the cutting.
    pub chunks: BTreeMap<usize, Chunk>,
    pub next_chunk: usize,
    pub bytes_under_way: u64,
    pub starved: bool,
}

/// The wanted part of one event's data.
pub(crate) struct SelectedEvent {
    pub wanted: DataWanted,
    pub storage: StorageId,
    pub data: Option<EventData>,
    /// Whether all of the data is wanted, from its first byte to its last.
    pub is_whole: bool,
    /// Checksums of the parts of the selection in order, unless the whole
    /// event is wanted, whose checksum is known.
    pub parts: Vec<(u32, u64)>,
}

/// How far the cutting into chunks has come.
#[derive(Debug, Default)]
pub(crate) struct Place {
    pub event: usize,
    pub segment: usize,
    pub segment_offset: u64,
    pub region: usize,
    pub region_offset: u64,
}

/// Bytes that go out by one write.
pub(crate) struct Chunk {
    pub region: usize,
    pub region_offset: u64,
    pub bytes: u64,
    pub parts: Vec<Part>,
    /// Parts that are not read yet.
    pub unread: usize,
    pub token: Option<BulkToken>,
}

/// What a chunk takes from one event.
pub(crate) struct Part {
    pub event: usize,
    /// The number of the event's part, for its checksum.
    pub index: usize,
    pub segments: Vec<Segment>,
    pub pieces: Vec<Bytes>,
}

impl SelectedEvent {
    /// The event's data was looked up.
    pub fn opened(&mut self, data: EventData) {
        let mut end = 0u64;
        let in_order = self.wanted.segments.iter().all(|segment| {
            let follows = segment.offset == end;
            end = end.saturating_add(segment.bytes);
            follows
        });
        self.is_whole = in_order && end == data.bytes;
        self.data = Some(data);
    }

    /// The checksum of the selected bytes.
    pub fn checksum(&self) -> u32 {
        match &self.data {
            Some(data) if self.is_whole => data.crc,
            _ => self
                .parts
                .iter()
                .fold(0, |crc, (part, bytes)| crc32c_combine(crc, *part, *bytes)),
        }
    }
}

impl ReadDataCall {
    /// Whether everything is cut; not so, perhaps, where nothing is wanted of
    /// the last events.
    pub fn is_cut(&self) -> bool {
        self.events.get(self.next.event).is_none_or(|event| {
            self.next.event + 1 == self.events.len()
                && self.next.segment >= event.wanted.segments.len()
        })
    }

    /// The next chunk: within one region, from as many events as fit.
    pub fn cut(&mut self) -> Option<Chunk> {
        while self.next.region_offset >= self.into.get(self.next.region)?.bytes {
            self.next.region += 1;
            self.next.region_offset = 0;
        }
        let room = self.into[self.next.region].bytes - self.next.region_offset;
        let mut left = room.min(BULK_CHUNK_BYTES as u64);
        let mut chunk = Chunk {
            region: self.next.region,
            region_offset: self.next.region_offset,
            bytes: 0,
            parts: Vec::new(),
            unread: 0,
            token: None,
        };
        while left > 0 && self.next.event < self.events.len() {
            let segments = self.take_segments(&mut left);
            if !segments.is_empty() {
                chunk.bytes += segments.iter().map(|segment| segment.bytes).sum::<u64>();
                let parts = &mut self.events[self.next.event].parts;
                parts.push((0, 0));
                chunk.parts.push(Part {
                    event: self.next.event,
                    index: parts.len() - 1,
                    segments,
                    pieces: Vec::new(),
                });
            }
            if left > 0 {
                self.next.event += 1;
                self.next.segment = 0;
                self.next.segment_offset = 0;
            }
        }
        self.next.region_offset += chunk.bytes;
        chunk.unread = chunk.parts.len();
        (chunk.unread > 0).then_some(chunk)
    }

    /// Takes up to `left` bytes of the present event's selection.
    fn take_segments(&mut self, left: &mut u64) -> Vec<Segment> {
        let mut taken = Vec::new();
        let wanted = &self.events[self.next.event].wanted.segments;
        while *left > 0
            && let Some(segment) = wanted.get(self.next.segment)
        {
            let offset = segment.offset + self.next.segment_offset;
            let rest = segment.bytes - self.next.segment_offset;
            let mut bytes = rest.min(*left);
            // Stored blocks are verified whole: ending at a multiple of any
            // block's length, no block is read for two chunks.
            let align = BULK_CHUNK_BYTES as u64;
            let boundary = (offset / align + 1) * align;
            let cut_at_boundary = bytes < rest && offset + bytes > boundary && taken.is_empty();
            if cut_at_boundary {
                bytes = boundary - offset;
                *left = bytes;
            }
            if bytes > 0 {
                taken.push(Segment { offset, bytes });
            }
            *left -= bytes;
            if bytes == rest {
                self.next.segment += 1;
                self.next.segment_offset = 0;
            } else {
                self.next.segment_offset += bytes;
            }
        }
        taken
    }
}
