//! One event's data: opened once, then read in parts, every block verified.

use super::jobs::{DataAt, DataJob, OpenJob, OpenedBatch, OpenedEvent, PlannedRead};
use super::openings::Wanted;
use super::*;
use crate::external::table_from_bytes;
use std::any::Any;
use std::sync::Arc;
use wire::batch::{Batch, Verify};
use wire::checksum::{block_checksums, combine_blocks, crc32c};

/// Most bytes of data read at once.
const PIECE_BYTES_MAX: u64 = 4 << 20;
/// Most places of data read at once.
const PLACES_MAX: usize = 64;
/// Parts that lie no further apart than this are read in one go.
const APART_BYTES_MAX: u64 = 16 << 10;

impl DiskLog {
    pub(in crate::partition) fn start_open(&mut self, token: ReadToken, offset: Offset) {
        if offset < self.first || offset >= self.written {
            let error = StorageError::OutOfRange {
                offset,
                first: self.first,
                end: self.written,
            };
            return self.opened((token, offset), Err(error));
        }
        let last = self.opened_last(offset);
        let last = last.or_else(|| self.opened_in_tail(offset));
        if last.is_none() {
            let last = self.reads.opened.as_ref();
            let expected = last.map(|last| last.batch.header.offset_count());
            if !self.reads.openings.begin((token, offset), expected) {
                return;
            }
        }
        let job = OpenJob {
            token,
            finder: self.finder(offset),
            batch: last,
        };
        self.start(Job::Open(job));
    }

    /// The batch of an event, if it is the one that was opened last.
    fn opened_last(&self, offset: Offset) -> Option<OpenedBatch> {
        let last = self.reads.opened.as_ref()?;
        last.contains(offset).then(|| last.clone())
    }

    /// The batch of an event that was just appended, verified before that.
    fn opened_in_tail(&self, offset: Offset) -> Option<OpenedBatch> {
        let batch = Batch::read(self.tail.batch_of(offset)?, Verify::Headers).ok()?;
        Some(OpenedBatch {
            stamp: DiskStamp::of(batch.bytes())?,
            columns: Arc::new(batch.columns().ok()?),
            batch: Arc::new(batch),
            table: None,
        })
    }

    pub(super) fn opened(&mut self, event: Wanted, data: Result<EventData, StorageError>) {
        let (token, _) = event;
        self.events
            .push_back(StorageEvent::EventOpened { token, data });
        // What is of another batch after all waits for the first of that.
        for (token, offset) in self.reads.openings.end(event) {
            self.start_open(token, offset);
        }
    }

    /// Opens events for which there was no room.
    pub(super) fn open_more(&mut self) {
        while let Some((token, offset)) = self.reads.openings.next() {
            self.start_open(token, offset);
        }
    }

    pub(super) fn step_open(&mut self, mut job: OpenJob, bytes: Option<Result<Bytes, DiskError>>) {
        let event = job.event();
        let bytes = match bytes.transpose() {
            Ok(bytes) => bytes,
            // Its file may have been removed before it was opened.
            Err(_) if job.finder.offset < self.first => return self.out_of_range(job),
            Err(error) => return self.opened(event, Err(StorageError::from(&error))),
        };
        if let Some(found) = job.batch.take() {
            return self.step_table(job, found, bytes);
        }
        if let Some(bytes) = bytes {
            job.finder.take(bytes);
        }
        match self.find(&mut job.finder) {
            Find::Need { position, bytes } => {
                job.finder.need(position, bytes);
                self.submit_find(job.finder.at.segment, Job::Open(job), position, bytes);
            }
            Find::Lost { .. } if job.finder.offset < self.first => self.out_of_range(job),
            Find::Lost { first, end } => {
                let text = format!("event {} is lost with {first} to {end}", job.finder.offset);
                self.opened(event, Err(StorageError::Damaged(text)));
            }
            Find::Beyond => self.out_of_range(job),
            Find::OtherVersion(error) => self.opened(event, Err(error)),
            Find::Here(_, header) if !header.has_events() => self.out_of_range(job),
            Find::Here(stamp, header) => {
                // Another event of its batch was ahead of it.
                if let Some(found) = self.opened_last(job.finder.offset) {
                    return self.step_table(job, found, None);
                }
                let base = stamp.shared.base_offset;
                let offsets = base..base.plus(header.offset_count());
                if self.reads.openings.found(event, offsets) {
                    return;
                }
                let position = job.finder.at.position;
                let batch_bytes = stamp.shared.batch_bytes;
                let Some(bytes) = job.finder.window.slice(position, batch_bytes) else {
                    job.finder.need(position, batch_bytes);
                    let base = job.finder.at.segment;
                    return self.submit_find(base, Job::Open(job), position, batch_bytes);
                };
                let read = Batch::read(bytes, Verify::Sections);
                let read = read.and_then(|batch| Ok((batch.columns()?, batch)));
                match read {
                    Ok((columns, batch)) => {
                        let found = OpenedBatch {
                            stamp,
                            batch: Arc::new(batch),
                            columns: Arc::new(columns),
                            table: None,
                        };
                        self.step_table(job, found, None);
                    }
                    Err(error) => {
                        let text = format!("batch of event {}: {error}", job.finder.offset);
                        self.opened(event, Err(StorageError::Damaged(text)));
                    }
                }
            }
        }
    }

    /// The event is not there, or not any more.
    fn out_of_range(&mut self, job: OpenJob) {
        let error = StorageError::OutOfRange {
            offset: job.finder.offset,
            first: self.first,
            end: self.written,
        };
        self.opened(job.event(), Err(error));
    }

    /// The batch is known; its table of block checksums may have to be read.
    fn step_table(&mut self, mut job: OpenJob, mut found: OpenedBatch, table: Option<Bytes>) {
        let event = job.event();
        let external = &found.columns.external;
        let DiskStamp { shared, local } = found.stamp;
        if external.block_count > 0 && found.table.is_none() {
            let Some(data) = self.data_files.get(&local.data_segment) else {
                let text = format!("data of event {}: its file is missing", job.finder.offset);
                return self.opened(event, Err(StorageError::Damaged(text)));
            };
            let (file, table_bytes) = (data.file, external.block_count * 4);
            let position = local.data_position + external.table_position;
            let at_hand = || {
                let end = position + table_bytes;
                let pieces = self.data_tail.find(local.data_segment, position, end);
                pieces.and_then(|mut pieces| pieces.pop().filter(|_| pieces.is_empty()))
            };
            let Some(bytes) = table.or_else(at_hand) else {
                job.batch = Some(found);
                return self.submit_read(Job::Open(job), file, position, table_bytes);
            };
            if crc32c(&bytes) != shared.data_crc || bytes.len() as u64 != table_bytes {
                let text = format!(
                    "block checksums of event {}: crc {:08x}, the stamp says {:08x}",
                    job.finder.offset,
                    crc32c(&bytes),
                    shared.data_crc
                );
                return self.opened(event, Err(StorageError::Damaged(text)));
            }
            found.table = Some(Arc::new(table_from_bytes(&bytes)));
        }
        let data = self.event_data(&found, job.finder.offset);
        self.reads.opened = Some(found);
        self.opened(event, data);
    }

    fn event_data(&self, found: &OpenedBatch, offset: Offset) -> Result<EventData, StorageError> {
        let DiskStamp { shared, local } = found.stamp;
        let delta = offset.0 - shared.base_offset.0;
        let mut events = found.columns.events.iter().enumerate();
        let event = events.find(|(_, event)| u64::from(event.offset_delta) == delta);
        let Some((index, event)) = event else {
            let text = format!("event {offset} is not in its batch");
            return Err(StorageError::Damaged(text));
        };
        let bytes = event.data_bytes;
        if !event.external {
            let inline = found.batch.inline_range();
            let start = inline.map_or(0, |range| range.start) + event.data_start as usize;
            let data = found.batch.bytes().slice(start..start + bytes as usize);
            let crc = crc32c(&data);
            let place = DataAt::Inline(data);
            return Ok(EventData {
                handle: Arc::new(OpenedEvent { place }),
                bytes,
                crc,
            });
        }
        let block_bytes = found.batch.header.block_bytes();
        let blocks = |bytes: u64| bytes.div_ceil(u64::from(block_bytes)) as usize;
        let before = found.columns.events[..index]
            .iter()
            .filter(|event| event.external);
        let first_block: usize = before.map(|event| blocks(event.data_bytes)).sum();
        let table = found.table.clone().unwrap_or_default();
        let own = &table[first_block..first_block + blocks(bytes)];
        let crc = combine_blocks(own, block_bytes, bytes);
        let file = self.data_files.get(&local.data_segment);
        let entry = file.and_then(|data| Some((data.file, self.files.get(data.file)?)));
        let Some((file, entry)) = entry else {
            let text = format!("data of event {offset}: its file is missing");
            return Err(StorageError::Damaged(text));
        };
        let place = DataAt::External {
            base: local.data_segment,
            file,
            _pin: entry.pin.clone(),
            position: local.data_position + event.data_start,
            bytes,
            block_bytes,
            table,
            first_block,
        };
        Ok(EventData {
            handle: Arc::new(OpenedEvent { place }),
            bytes,
            crc,
        })
    }

    pub(in crate::partition) fn start_read_data(
        &mut self,
        token: ReadToken,
        data: &EventData,
        segments: &[DataSegment],
        compared: Compared,
    ) {
        let outside = segments.iter().find(|segment| {
            let end = segment.offset.checked_add(segment.bytes);
            end.is_none_or(|end| end > data.bytes)
        });
        let refuse = |text: String| StorageEvent::DataRead {
            token,
            pieces: Err(StorageError::Invalid(text)),
        };
        if let Some(segment) = outside {
            let (from, count, all) = (segment.offset, segment.bytes, data.bytes);
            let text = format!("{count} bytes at {from} of data of {all} bytes");
            return self.events.push_back(refuse(text));
        }
        let handle: Arc<dyn Any + Send + Sync> = data.handle.clone();
        let Ok(handle) = handle.downcast::<OpenedEvent>() else {
            return self
                .events
                .push_back(refuse("an event of another storage".into()));
        };
        let mut job = DataJob {
            token,
            reads: VecDeque::new(),
            reading: 0,
            pieces: Vec::new(),
            handle,
        };
        match &job.handle.place {
            DataAt::Inline(bytes) => {
                let part = |segment: &DataSegment| {
                    let start = segment.offset as usize;
                    bytes.slice(start..start + segment.bytes as usize)
                };
                job.pieces = segments.iter().map(part).collect();
            }
            DataAt::External {
                base,
                block_bytes,
                position,
                bytes,
                ..
            } => {
                self.data_is_read(*base, position + bytes);
                let at_hand = match compared {
                    Compared::ByReader => self.data_at_hand(*base, *position, segments),
                    Compared::No => None,
                };
                match at_hand {
                    Some(pieces) => job.pieces = pieces,
                    None => job.reads = plan(segments, u64::from(*block_bytes), *bytes).into(),
                }
            }
        }
        self.step_data(job, None);
    }

    /// Segments of an event's data that begins at `position`, if all of it lies in
    /// memory since it came.
    fn data_at_hand(
        &self,
        base: Offset,
        position: u64,
        segments: &[DataSegment],
    ) -> Option<Vec<Bytes>> {
        let mut pieces = Vec::new();
        for segment in segments {
            let start = position + segment.offset;
            let found = self.data_tail.find(base, start, start + segment.bytes)?;
            pieces.extend(found);
        }
        Some(pieces)
    }

    pub(super) fn step_data(&mut self, mut job: DataJob, bytes: Option<Result<Bytes, DiskError>>) {
        let token = job.token;
        if let Some(result) = bytes {
            let taken = result.map_err(|error| StorageError::from(&error));
            let taken = taken.and_then(|bytes| job.take(&bytes));
            if let Err(error) = taken {
                let pieces = Err(error);
                return self
                    .events
                    .push_back(StorageEvent::DataRead { token, pieces });
            }
        }
        let Some((file, read)) = job.next_read() else {
            let pieces = Ok(job.pieces);
            return self
                .events
                .push_back(StorageEvent::DataRead { token, pieces });
        };
        self.submit_read_of(Job::Data(job), file, read);
    }
}

impl DataJob {
    pub(super) fn failed(self, error: StorageError) -> StorageEvent {
        StorageEvent::DataRead {
            token: self.token,
            pieces: Err(error),
        }
    }

    /// The next reading, of several places if they are short, and its file.
    fn next_read(&mut self) -> Option<(FileNumber, Operation)> {
        let DataAt::External { file, position, .. } = &self.handle.place else {
            return None;
        };
        let mut bytes = 0;
        let together = self.reads.iter().take(PLACES_MAX).take_while(|read| {
            let is_first = bytes == 0;
            bytes += read.end - read.start;
            is_first || bytes <= PIECE_BYTES_MAX
        });
        let place = |read: &PlannedRead| (position + read.start, (read.end - read.start) as usize);
        let places: Vec<(u64, usize)> = together.map(place).collect();
        self.reading = places.len();
        let read = match places[..] {
            [] => return None,
            [(position, bytes)] => Operation::Read {
                file: THIS_FILE,
                position,
                bytes,
            },
            _ => Operation::ReadPlaces {
                file: THIS_FILE,
                places,
            },
        };
        Some((*file, read))
    }

    /// Verifies what the planned reads under way gave and takes their parts.
    fn take(&mut self, bytes: &Bytes) -> Result<(), StorageError> {
        let mut at = 0;
        for _ in 0..std::mem::take(&mut self.reading) {
            let read = self.reads.pop_front().expect("what was read was planned");
            let end = (at + (read.end - read.start) as usize).min(bytes.len());
            self.take_one(read, &bytes.slice(at..end))?;
            at = end;
        }
        Ok(())
    }

    fn take_one(&mut self, read: PlannedRead, bytes: &Bytes) -> Result<(), StorageError> {
        let DataAt::External {
            block_bytes,
            table,
            first_block,
            ..
        } = &self.handle.place
        else {
            unreachable!("inline data is not read");
        };
        let first = first_block + read.first_block as usize;
        if bytes.len() as u64 != read.end - read.start {
            return Err(StorageError::Damaged(format!(
                "data ends at {} of the event, {} bytes were to be there",
                read.start + bytes.len() as u64,
                read.end
            )));
        }
        for (index, crc) in block_checksums(bytes, *block_bytes).enumerate() {
            let stored = table[first + index];
            if crc != stored {
                let at = read.start + index as u64 * u64::from(*block_bytes);
                return Err(StorageError::Damaged(format!(
                    "block at {at} of an event's data: crc {crc:08x}, the table says {stored:08x}"
                )));
            }
        }
        for (start, count) in read.parts {
            let from = (start - read.start) as usize;
            self.pieces.push(bytes.slice(from..from + count as usize));
        }
        Ok(())
    }
}

/// Which whole blocks to read for `segments`, in order. Parts that lie behind
/// one another and close together share a read, and its verified blocks.
fn plan(segments: &[DataSegment], block_bytes: u64, bytes: u64) -> Vec<PlannedRead> {
    let piece_bytes_max = PIECE_BYTES_MAX.max(block_bytes);
    let mut reads: Vec<PlannedRead> = Vec::new();
    let wanted = segments.iter().filter(|segment| segment.bytes > 0);
    let parts = wanted.flat_map(|segment| {
        // A long segment is read in pieces that end between blocks.
        let (mut start, end) = (segment.offset, segment.offset + segment.bytes);
        std::iter::from_fn(move || {
            let piece_end = (start / piece_bytes_max + 1)
                .saturating_mul(piece_bytes_max)
                .min(end);
            let part = (start, piece_end - start);
            start = piece_end;
            (part.1 > 0).then_some(part)
        })
    });
    for (start, count) in parts {
        let first_block = start / block_bytes;
        let block_start = first_block * block_bytes;
        let block_end = ((start + count).div_ceil(block_bytes) * block_bytes).min(bytes);
        if let Some(last) = reads.last_mut()
            && block_start >= last.start
            && block_start <= last.end.saturating_add(APART_BYTES_MAX)
            && block_end.max(last.end) - last.start <= piece_bytes_max
        {
            last.end = last.end.max(block_end);
            last.parts.push((start, count));
            continue;
        }
        reads.push(PlannedRead {
            first_block,
            start: block_start,
            end: block_end,
            parts: vec![(start, count)],
        });
    }
    reads
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(offset: u64, bytes: u64) -> DataSegment {
        DataSegment { offset, bytes }
    }

    #[test]
    fn near_parts_share_a_read_of_whole_blocks() {
        let reads = plan(
            &[segment(5, 10), segment(5000, 1), segment(4999, 2)],
            4096,
            1 << 30,
        );
        let parts = vec![(5, 10), (5000, 1), (4999, 2)];
        let expected = PlannedRead {
            first_block: 0,
            start: 0,
            end: 8192,
            parts,
        };
        assert_eq!(reads, [expected]);
    }

    #[test]
    fn far_parts_and_steps_back_are_reads_of_their_own() {
        let reads = plan(
            &[segment(1 << 20, 1), segment(0, 1), segment(1 << 24, 0)],
            4096,
            1 << 30,
        );
        let starts: Vec<_> = reads.iter().map(|read| (read.start, read.end)).collect();
        assert_eq!(starts, [(1 << 20, (1 << 20) + 4096), (0, 4096)]);
    }

    #[test]
    fn long_parts_are_cut_and_the_last_block_may_be_short() {
        let reads = plan(&[segment(1, (9 << 20) - 1)], 4096, 9 << 20);
        let parts: u64 = reads
            .iter()
            .flat_map(|read| &read.parts)
            .map(|(_, count)| count)
            .sum();
        assert_eq!(parts, (9 << 20) - 1);
        assert!(
            reads
                .iter()
                .all(|read| read.end - read.start <= PIECE_BYTES_MAX)
        );
        assert_eq!(plan(&[segment(4097, 2)], 4096, 4099)[0].end, 4099);
    }
}
