//! Selected data of several events, cut into chunks that go out by one write each.

use crate::ids::{RequestId, StorageId};
use bytes::Bytes;
use log::EventData;
use net::BulkToken;
use std::collections::BTreeMap;
use wire::checksum::crc32c_combine;
use wire::frame::BULK_CHUNK_BYTES;
use wire::message::{DataWanted, Region};
use wire::view::{Segment, StridedSegment};

/// A chunk has no more pieces than this, however short they are: each takes some memory of its own
/// until it is gathered.
const CHUNK_PIECES_MAX: usize = 8192;

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
    /// What is wanted in place of the segments, if there is any. A piece of it is worked out when
    /// it is cut.
    pub strided: Vec<StridedSegment>,
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
    /// Which piece of the segment.
    pub piece: u64,
    /// Where in that piece.
    pub piece_offset: u64,
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
        self.is_whole = self.strided.is_empty() && in_order && end == data.bytes;
        self.data = Some(data);
    }

    /// How many bytes are wanted, and in how many pieces; `None` if those are no numbers.
    pub fn extent(&self) -> Option<(u64, u64)> {
        let bytes = |sum: u64, bytes: Option<u64>| sum.checked_add(bytes?);
        let mut segments = self.wanted.segments.iter();
        let of_list = segments.try_fold(0, |sum, segment| bytes(sum, Some(segment.bytes)))?;
        let mut strided = self.strided.iter();
        let all = strided.try_fold(of_list, |sum, segment| bytes(sum, segment.total_bytes()))?;
        let listed = self.wanted.segments.len() as u64;
        let mut strided = self.strided.iter();
        let pieces = strided.try_fold(listed, |sum, segment| {
            sum.checked_add(segment.piece_count()?)
        })?;
        Some((all, pieces))
    }

    /// Whether all that is wanted lies within so many bytes.
    pub fn fits(&self, data_bytes: u64) -> bool {
        let is_within = |end: Option<u64>| end.is_some_and(|end| end <= data_bytes);
        let mut segments = self.wanted.segments.iter();
        segments.all(|segment| is_within(segment.offset.checked_add(segment.bytes)))
            && self.strided.iter().all(|segment| is_within(segment.end()))
    }

    fn segment_count(&self) -> usize {
        match self.strided.is_empty() {
            true => self.wanted.segments.len(),
            false => self.strided.len(),
        }
    }

    /// A piece of a segment that there is, and whether it is the last one; `None` if the segment
    /// has no bytes.
    fn piece(&self, segment: usize, piece: u64) -> Option<(Segment, bool)> {
        let found = match self.strided.get(segment) {
            None => (self.wanted.segments[segment], true),
            Some(strided) => {
                let count = strided.piece_count().filter(|count| *count > 0)?;
                (strided.piece(piece), piece + 1 == count)
            }
        };
        (found.0.bytes > 0).then_some(found)
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
            self.next.event + 1 == self.events.len() && self.next.segment >= event.segment_count()
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
        let mut pieces_left = CHUNK_PIECES_MAX;
        while left > 0 && pieces_left > 0 && self.next.event < self.events.len() {
            let segments = self.take_segments(&mut left, pieces_left);
            pieces_left -= segments.len();
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
            if left > 0 && pieces_left > 0 {
                self.next.event += 1;
                self.next.segment = 0;
            }
        }
        self.next.region_offset += chunk.bytes;
        chunk.unread = chunk.parts.len();
        (chunk.unread > 0).then_some(chunk)
    }

    /// Takes up to `left` bytes of the present event's selection, in so many pieces at most.
    fn take_segments(&mut self, left: &mut u64, pieces_max: usize) -> Vec<Segment> {
        let mut taken = Vec::new();
        let (event, next) = (&self.events[self.next.event], &mut self.next);
        while *left > 0 && taken.len() < pieces_max && next.segment < event.segment_count() {
            let Some((piece, is_last)) = event.piece(next.segment, next.piece) else {
                next.segment += 1;
                continue;
            };
            let offset = piece.offset + next.piece_offset;
            let rest = piece.bytes - next.piece_offset;
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
            taken.push(Segment { offset, bytes });
            *left -= bytes;
            if bytes < rest {
                next.piece_offset += bytes;
                continue;
            }
            next.piece_offset = 0;
            (next.segment, next.piece) = match is_last {
                true => (next.segment + 1, 0),
                false => (next.segment, next.piece + 1),
            };
        }
        taken
    }
}

impl Chunk {
    /// Takes the last piece from where the one before it lies: a planted fault.
    pub fn spoil(&mut self) {
        let last = self.parts.last_mut().map(|part| &mut part.segments[..]);
        if let Some([.., before, last]) = last {
            last.offset = before.offset;
        }
    }
}
