//! Appending: batches go to the active segment's log; a full one is followed by the next.

use super::in_flight::Extent;
use super::log_position::LogPosition;
use super::*;
use crate::segment::{SEGMENT_HEADER_BYTES, segment_start};
use wire::batch::{HEADER_BYTES, LocalStamp, STAMP_BYTES, Stamp};

/// A step of preallocation that was used up in less than this made the log
/// wait more often than it should: the next one is twice as long.
const ALLOCATION_LASTS_NS: u64 = 1_000_000_000;

impl DiskLog {
    pub(super) fn append_batch(&mut self, append: Append) -> Result<Offset, StorageError> {
        trace::passes!("gets its offset and its stamp");
        if let Some(refusal) = self.refusal() {
            return Err(refusal);
        }
        let batch_bytes = append.batch.len() as u64;
        if let Some(full) = self.no_space(batch_bytes) {
            return Err(full);
        }
        if append.header.batch_bytes() != batch_bytes
            || batch_bytes < (STAMP_BYTES + HEADER_BYTES) as u64
        {
            return Err(StorageError::Invalid(format!(
                "a batch of {batch_bytes} bytes whose header says {}",
                append.header.batch_bytes()
            )));
        }
        let place = match append.place {
            Some(place) => Some(self.take_ready(place, append.durability)?),
            None => None,
        };
        self.now = self.now.max(append.now);
        self.roll_if_full(batch_bytes, place.as_ref().map(|place| place.base));
        let base_offset = self.end;
        let topic_base = self.active().base;
        let active = self
            .segments
            .back_mut()
            .expect("there is always a segment that takes appends");
        let mut stamp = Stamp {
            batch_bytes,
            base_offset,
            append_time: append.append_time,
            leader_epoch: append.leader_epoch,
            header_crc: append.header_crc,
            ..Stamp::default()
        };
        let mut local = LocalStamp {
            segment_salt: active.salt,
            // That its start is synced says nothing of those before it.
            synced_bytes: if active.synced > active.start.max(SEGMENT_HEADER_BYTES) {
                active.synced
            } else {
                0
            },
            ..LocalStamp::default()
        };
        let mut bytes = batch_bytes;
        if let Some(place) = place {
            local.data_segment = place.base;
            local.data_position = place.position;
            stamp.data_bytes = place.layout.total_bytes;
            stamp.data_crc = place.data_crc;
            bytes += place.layout.total_bytes;
            if !place.synced {
                self.commit.data_unsynced.insert(place.base);
            }
        }
        let mut batch = append.batch;
        stamp.write(&mut batch);
        local.write(&mut batch);
        let at = LogPosition {
            segment: topic_base,
            position: active.end,
            offset: base_offset,
        };
        active
            .index
            .add(base_offset, active.end, self.settings.index_bytes);
        if active.base == base_offset {
            active.first_append_time = append.now;
        }
        active.last_append_time = active.last_append_time.max(append.now);
        self.producers
            .appended(&append.header, base_offset, append.now);
        let next = base_offset.plus(append.header.offset_count());
        self.end = next;
        let batch = self.tail.append(at, &append.header, batch, self.now);
        self.commit.sync_all = false;
        self.write_log(topic_base, vec![batch], next, bytes);
        if append.durability == Durability::Synced {
            self.commit.wanted = next;
        }
        self.allocate_ahead();
        Ok(base_offset)
    }

    /// Writes to the end of the active segment's log.
    fn write_log(&mut self, segment: Offset, pieces: Vec<Bytes>, next: Offset, bytes: u64) {
        let log_bytes: usize = pieces.iter().map(Bytes::len).sum();
        let active = self.active();
        let start = active.end;
        active.end += log_bytes as u64;
        let (end, log) = (active.end, active.log);
        let extent = Extent {
            segment,
            start,
            end,
            next,
            bytes,
        };
        let number = self.in_flight.begin(extent, self.written);
        let write = Operation::Write {
            file: THIS_FILE,
            position: start,
            bytes: pieces,
        };
        self.files.submit_to(log, write, Purpose::Batch(number));
    }

    /// Begins the next segment. `data` is where its first batch's data lies.
    pub(super) fn roll(&mut self, data: Option<Offset>) {
        let base = self.end;
        let previous_base = self.active().base;
        let reserved = self
            .places
            .values()
            .map(|place| place.base)
            .chain(data)
            .min();
        let header = SegmentHeader {
            salt: self.salts.next(),
            topic: self.open.topic,
            partition: self.open.partition,
            incarnation: self.incarnation,
            base_offset: base,
            previous_base,
            data_since: reserved.unwrap_or(base).min(base),
            created: self.now,
        };
        let path = SegmentFile::Log.path(&self.open.directory, base);
        let spare = self.take_spare();
        let log = self.files.add_new(path, spare);
        self.segments.push_back(Segment {
            base,
            header: Some(header),
            salt: header.salt,
            log,
            start: 0,
            end: 0,
            written: 0,
            synced: 0,
            allocated: 0,
            allocating: false,
            durable: false,
            index: SparseIndex::default(),
            index_known: true,
            first_append_time: self.now,
            last_append_time: self.now,
        });
        self.recount_bytes();
        let pieces = segment_start(&header, &self.producers);
        self.write_log(base, pieces, base, 0);
        let active = self.active();
        active.start = active.end;
    }

    pub(super) fn batch_written(&mut self, number: u64, result: Result<Outcome, DiskError>) {
        if !self.in_flight.knows(number) {
            return;
        }
        let is_done = match result {
            Ok(_) => true,
            Err(error) if error.kind == crate::disk::DiskErrorKind::Full => {
                self.begin_undo(number, &error);
                false
            }
            Err(error) => return self.fail(&error),
        };
        self.in_flight.finished(number, is_done);
        while let Some(done) = self.in_flight.pop_done() {
            if let Some(segment) = self.segment(done.segment) {
                segment.written = done.end;
            }
            self.commit.unsynced_bytes += done.bytes;
            if done.next > self.written {
                self.written = done.next;
                self.progress();
            }
        }
    }

    /// Lengthens the active segment's file before it is needed.
    fn allocate_ahead(&mut self) {
        let (min, max) = (
            self.settings.allocate_bytes_min,
            self.settings.allocate_bytes_max,
        );
        let segment_bytes = self.segment_bytes();
        if max == 0 {
            return;
        }
        let (now, step) = (self.now, self.allocate_bytes);
        let active = self.active();
        if active.allocating
            || active.end + step / 2 <= active.allocated
            || active.allocated >= segment_bytes
        {
            return;
        }
        active.allocating = true;
        let bytes = (active.end.max(active.allocated) + step).min(segment_bytes.max(active.end));
        active.allocated = bytes;
        let (log, base) = (active.log, active.base);
        let lasted = now.saturating_sub(self.space.last_allocation);
        self.allocate_bytes = match lasted < ALLOCATION_LASTS_NS {
            true => (step * 2).min(max),
            false => (step / 2).max(min),
        };
        self.space.last_allocation = now;
        let allocate = Operation::Allocate {
            file: THIS_FILE,
            bytes,
        };
        self.files
            .submit_to(log, allocate, Purpose::Allocated(base));
    }

    /// Whether it succeeded matters to speed only: a write that finds no
    /// space says so itself.
    pub(super) fn allocated(&mut self, base: Offset, result: Result<Outcome, DiskError>) {
        if let Some(segment) = self.segment(base) {
            segment.allocating = false;
            if result.is_err() {
                segment.allocated = u64::MAX;
            }
        }
    }
}
