//! A partition in memory: batches and chunks of data are kept as they came,
//! uncopied. It survives nothing.

use crate::disk::{DiskError, Operation, Outcome};
use crate::producers::{ProducerLimits, ProducerTable, Verdict};
use crate::settings::parse_config;
use crate::storage::*;
use ::memory::Packer;
use bytes::Bytes;
use serde::Deserialize;
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use wire::batch::{Batch, BatchKind, Columns, ExternalLayout, Header, Stamp, Verify};
use wire::checksum::{combine_blocks, crc32c, crc32c_append};
use wire::codec::Codec;
use wire::record::{Gap, GapReason, ProducerState};
use wire::view::Segment;
use wire::{Durability, Incarnation, Offset, ProducerEpoch, ProducerId, Sequence};

/// Configuration of the storage kind `memory`, as JSON in the topic's
/// definition. Unknown keys are refused.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MemorySettings {
    /// Most bytes that a partition holds, metadata and data. Beyond it a
    /// retention by bytes or count drops the oldest batches; without one an
    /// append is refused, for good if nothing will ever make room for it. One
    /// batch larger than this is let in alone. At least 1; default 1 GiB.
    pub bytes_max: u64,
    /// How many producers are remembered. Default 4096.
    pub producers_max: usize,
    /// For how long a silent producer is remembered, seconds. Default 7 days.
    pub producer_silence_seconds_max: u64,
}

impl Default for MemorySettings {
    fn default() -> Self {
        Self {
            bytes_max: 1 << 30,
            producers_max: 4096,
            producer_silence_seconds_max: 7 * 24 * 3600,
        }
    }
}

/// The storage kind `memory`.
#[derive(Debug, Clone, Copy, Default)]
pub struct MemoryKind;

impl StorageKind for MemoryKind {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn check(&self, config: &str) -> Result<(), String> {
        let settings: MemorySettings = parse_config("memory", config)?;
        for (name, value) in [
            ("bytes_max", settings.bytes_max),
            ("producers_max", settings.producers_max as u64),
        ] {
            if value == 0 {
                return Err(format!("memory storage: {name} is 0, at least 1 is needed"));
            }
        }
        Ok(())
    }

    fn durability_max(&self) -> Durability {
        Durability::Memory
    }

    fn open(&self, open: OpenPartition) -> Result<(Box<dyn Storage>, Recovery), StorageError> {
        let settings = parse_config("memory", &open.config).map_err(StorageError::Invalid)?;
        let mut report = Recovery::default();
        let mut incarnation = open.incarnation;
        if !open.create {
            // How far the lost life had come is not known: an empty gap says
            // that it ended.
            report.gaps.push(Gap {
                incarnation,
                first: Offset(0),
                end: Offset(0),
                reason: GapReason::MemoryLost,
                time: open.unix_ns,
            });
            report.ended = Some((incarnation, Offset(0)));
            incarnation = Incarnation(incarnation.0 + 1);
        }
        let log = MemoryLog::new(settings, incarnation, open.retention, open.unix_ns);
        Ok((Box::new(log), report))
    }

    fn remove(&self, _directory: &Path) -> Result<(), StorageError> {
        Ok(())
    }
}

/// A partition in memory. Every call is answered at once.
pub struct MemoryLog {
    settings: MemorySettings,
    incarnation: Incarnation,
    retention: Retention,
    /// What retention spares.
    keep_from: Offset,
    batches: VecDeque<Stored>,
    places: BTreeMap<DataPlace, Place>,
    next_place: u64,
    producers: ProducerTable,
    first: Offset,
    end: Offset,
    /// What batches and reserved places take.
    bytes: u64,
    /// The part of `bytes` that no batch names yet.
    reserved: u64,
    removed: Option<Gap>,
    now: u64,
    closing: bool,
    /// Something was refused, and nothing has left since.
    full: bool,
    events: VecDeque<StorageEvent>,
    packer: Packer,
}

/// What a batch takes beside its bytes: its entry in a queue that grows by doubling, and
/// the owner of its memory.
const BATCH_BYTES: u64 = (size_of::<Stored>() * 3 / 2 + Packer::PIECE_BYTES) as u64;
/// What external data takes beside its bytes: the directory of its chunks, and for each
/// block its checksum.
const DATA_BYTES: u64 = 640;
const CHECKSUM_BYTES: u64 = 4;
/// What is no longer than this is copied where it would take much more than it is long.
const PACKED_BYTES_MAX: usize = 16 << 10;
/// How much of small batches is held at least: as one piece of memory.
const CHUNK_BYTES: usize = 256 << 10;

/// Whether so many bytes are worth a copy that takes less than `memory_bytes`.
fn wastes(bytes: usize, memory_bytes: usize) -> bool {
    bytes <= PACKED_BYTES_MAX && memory_bytes - bytes > bytes / 4
}

struct Stored {
    base_offset: Offset,
    next: Offset,
    /// When it was appended here, nanoseconds since 1970.
    arrived: u64,
    header: Header,
    batch: Bytes,
    data: Option<Arc<Data>>,
    bytes: u64,
}

/// External data of one batch.
#[derive(Debug, Default)]
struct Data {
    /// Chunks in order of their position.
    chunks: BTreeMap<u64, Bytes>,
    checksums: Vec<u32>,
}

impl Data {
    /// What a disk's stamp says of the same data: the checksum of the table of block checksums.
    fn table_crc(&self) -> u32 {
        let blocks = self.checksums.iter();
        blocks.fold(0, |crc, block| crc32c_append(crc, &block.to_le_bytes()))
    }
}

struct Place {
    layout: ExternalLayout,
    data: Data,
    ready: bool,
}

/// What [`EventData::handle`] holds.
struct Opened {
    bytes: u64,
    place: DataAt,
}

enum DataAt {
    Inline(Bytes),
    External {
        data: Arc<Data>,
        position: u64,
        first_block: usize,
        block_bytes: u32,
    },
}

impl MemoryLog {
    fn new(
        settings: MemorySettings,
        incarnation: Incarnation,
        retention: Retention,
        now: u64,
    ) -> Self {
        let limits = ProducerLimits {
            count_max: settings.producers_max.max(1),
            silence_ns_max: settings
                .producer_silence_seconds_max
                .saturating_mul(1_000_000_000),
        };
        Self {
            settings,
            incarnation,
            retention,
            keep_from: Offset(u64::MAX),
            batches: VecDeque::new(),
            places: BTreeMap::new(),
            next_place: 0,
            producers: ProducerTable::new(limits),
            first: Offset(0),
            end: Offset(0),
            bytes: 0,
            reserved: 0,
            removed: None,
            now,
            closing: false,
            full: false,
            events: VecDeque::new(),
            packer: Packer::new(CHUNK_BYTES),
        }
    }

    /// Whether `bytes` more are let in of a batch whose data, reserved
    /// before, takes `own` bytes.
    fn has_room(&self, bytes: u64, own: u64) -> bool {
        self.bytes == own || self.bytes.saturating_add(bytes) <= self.settings.bytes_max
    }

    /// What is held of batches.
    fn kept(&self) -> u64 {
        self.bytes - self.reserved
    }

    /// Makes room for `bytes` more of a batch whose data, reserved before,
    /// takes `own` bytes.
    fn make_room(&mut self, bytes: u64, own: u64) -> Result<(), StorageError> {
        let made = self.try_to_make_room(bytes, own);
        match &made {
            Ok(()) => self.has_space(),
            // Who is refused again is no news.
            Err(_) if self.full => {}
            Err(error) => {
                self.full = true;
                self.events.push_back(StorageEvent::Full(error.to_string()));
            }
        }
        made
    }

    /// Something was let in, or has left.
    fn has_space(&mut self) {
        if std::mem::take(&mut self.full) {
            self.events.push_back(StorageEvent::HasSpace);
        }
    }

    fn try_to_make_room(&mut self, bytes: u64, own: u64) -> Result<(), StorageError> {
        if self.has_room(bytes, own) {
            return Ok(());
        }
        self.apply_retention();
        if self.has_room(bytes, own) {
            return Ok(());
        }
        let most = self.settings.bytes_max;
        // Who asked to keep the newest gets them kept, be it fewer than asked.
        let keeps_newest = self.retention.bytes.is_some() || self.retention.count.is_some();
        let coming = self.reserved.saturating_add(bytes);
        if keeps_newest && (coming <= most || self.reserved == own) {
            let left = most.saturating_sub(coming);
            // A sixteenth more, for each time costs a gap record.
            self.remove_beyond(left - left / 16);
            if self.has_room(bytes, own) {
                return Ok(());
            }
        }
        let text = format!(
            "{bytes} bytes asked of a memory partition: {} of {most} bytes (bytes_max) are held",
            self.bytes
        );
        // What is on its way may be given up, or be dropped once it is there,
        // and what is kept may grow too old.
        let kept = self.kept();
        let may_pass = keeps_newest
            || kept == 0
            || kept.saturating_add(own).saturating_add(bytes) <= most
            || self.retention.age_ns.is_some()
            || self.keep_from < self.end;
        Err(match may_pass {
            true => StorageError::Full(text),
            false => {
                StorageError::Exhausted(format!("{text}, and no retention will make room for more"))
            }
        })
    }

    fn place_failed(&mut self, place: DataPlace, why: &str) {
        self.abandon(place);
        let error = StorageError::Invalid(format!("place {} {why}", place.0));
        self.events
            .push_back(StorageEvent::DataFailed { place, error });
    }

    fn remove(&mut self, remove_to: Offset, reason: GapReason) {
        let from = self.first;
        while let Some(oldest) = self.batches.front()
            && oldest.next <= remove_to
        {
            self.bytes -= oldest.bytes;
            self.first = oldest.next;
            self.batches.pop_front();
        }
        if self.batches.capacity() > 4 * self.batches.len() + 64 {
            self.batches.shrink_to(2 * self.batches.len());
        }
        if self.first > from {
            let gap = Gap {
                incarnation: self.incarnation,
                first: from,
                end: self.first,
                reason,
                time: self.now,
            };
            self.has_space();
            self.removed = Some(gap);
            self.events.push_back(StorageEvent::Lost(gap));
            self.events.push_back(StorageEvent::Progress);
        }
    }

    /// Drops the oldest batches until at most `most` bytes are held of all.
    fn remove_beyond(&mut self, most: u64) {
        let mut bytes = self.kept();
        let mut remove_to = self.first;
        for stored in &self.batches {
            let is_spared = stored.next > self.keep_from && !self.retention.discards;
            if bytes <= most || is_spared {
                break;
            }
            bytes -= stored.bytes;
            remove_to = stored.next;
        }
        self.let_go(remove_to);
    }

    /// Removes what retention drops; what was to be kept is discarded.
    fn let_go(&mut self, remove_to: Offset) {
        self.remove(remove_to.min(self.keep_from), GapReason::Retention);
        self.remove(remove_to, GapReason::Discarded);
    }

    /// Drops what is not to be kept. The newest batch goes by its age alone:
    /// it may be larger than all that is to be kept.
    fn apply_retention(&mut self) {
        let keep = self.retention;
        let mut bytes = self.kept();
        let mut remove_to = self.first;
        for stored in &self.batches {
            let newest = stored.next == self.end;
            let too_many_bytes = !newest && keep.bytes.is_some_and(|most| bytes > most);
            let too_many = !newest
                && keep
                    .count
                    .is_some_and(|most| self.end.0 - stored.next.0 >= most);
            let too_old = keep
                .age_ns
                .is_some_and(|age| stored.arrived.saturating_add(age) < self.now);
            let is_spared =
                stored.next > self.keep_from && !(keep.discards && (too_many_bytes || too_many));
            if !(too_many_bytes || too_many || too_old) || is_spared {
                break;
            }
            bytes -= stored.bytes;
            remove_to = stored.next;
        }
        self.let_go(remove_to);
    }

    /// Applies the retention when a sixteenth more than it allows is held:
    /// each time costs a gap record, and a tick may be far.
    fn apply_retention_if_due(&mut self) {
        let beyond = |most: u64| most.saturating_add(most / 16);
        let keep = self.retention;
        let held = self.end.0 - self.first.0;
        if keep.bytes.is_some_and(|most| self.kept() > beyond(most))
            || keep.count.is_some_and(|most| held > beyond(most))
        {
            self.apply_retention();
        }
    }

    /// Index of the batch that holds `offset`, or of the first behind it.
    fn batch_of(&self, offset: Offset) -> usize {
        self.batches.partition_point(|stored| stored.next <= offset)
    }

    fn find(&self, read: ReadBatches) -> Result<Found, StorageError> {
        if let Some(gap) = self.removed
            && read.from < self.first
        {
            let first = gap.first.min(read.from);
            return Ok(Found::Gap(Gap { first, ..gap }));
        }
        if read.from > self.end {
            return Err(StorageError::OutOfRange {
                offset: read.from,
                first: self.first,
                end: self.end,
            });
        }
        let (mut batches, mut bytes, mut next) = (Vec::new(), 0, read.from);
        for stored in self.batches.iter().skip(self.batch_of(read.from)) {
            let length = match read.inline_data {
                true => stored.batch.len(),
                false => stored.header.prefix_bytes() as usize,
            };
            let full = !batches.is_empty() && bytes + length as u64 > read.bytes_max;
            if stored.base_offset >= read.end || full {
                break;
            }
            if stored.header.kind == BatchKind::Skipped {
                match batches.is_empty() {
                    true => return Ok(Found::Gap(self.skipped(stored))),
                    false => break,
                }
            }
            bytes += length as u64;
            next = stored.next;
            if stored.header.offset_count() > 0 {
                batches.push(stored.batch.slice(..length));
            }
        }
        Ok(match batches.is_empty() {
            true => Found::Nothing,
            false => Found::Batches { batches, next },
        })
    }

    /// The gap that a batch of skipped offsets stands for.
    fn skipped(&self, stored: &Stored) -> Gap {
        let batch = Batch::read(stored.batch.clone(), Verify::Headers).ok();
        let recorded =
            batch.and_then(|batch| Gap::from_bytes("skipped", batch.metadata_section()).ok());
        Gap {
            incarnation: self.incarnation,
            first: stored.base_offset,
            end: stored.next,
            reason: recorded.map_or(GapReason::Damaged, |gap| gap.reason),
            time: recorded.map_or(self.now, |gap| gap.time),
        }
    }

    fn open(&self, offset: Offset) -> Result<EventData, StorageError> {
        let out_of_range = || StorageError::OutOfRange {
            offset,
            first: self.first,
            end: self.end,
        };
        let stored = self.batches.get(self.batch_of(offset));
        let stored =
            stored.filter(|stored| stored.base_offset <= offset && stored.header.has_events());
        let stored = stored.ok_or_else(out_of_range)?;
        let damaged = |error: wire::DecodeError| StorageError::Damaged(error.to_string());
        let batch = Batch::read(stored.batch.clone(), Verify::Headers).map_err(damaged)?;
        let columns: Columns = batch.columns().map_err(damaged)?;
        let delta = offset.0 - stored.base_offset.0;
        let mut events = columns.events.iter().enumerate();
        let event = events.find(|(_, event)| u64::from(event.offset_delta) == delta);
        let (index, event) = event.ok_or_else(out_of_range)?;
        let (place, crc) = match &stored.data {
            Some(data) if event.external => {
                let block_bytes = stored.header.block_bytes();
                let blocks = |bytes: u64| bytes.div_ceil(u64::from(block_bytes)) as usize;
                let before = columns.events[..index]
                    .iter()
                    .filter(|event| event.external);
                let first_block: usize = before.map(|event| blocks(event.data_bytes)).sum();
                let own = &data.checksums[first_block..first_block + blocks(event.data_bytes)];
                let crc = combine_blocks(own, block_bytes, event.data_bytes);
                let place = DataAt::External {
                    data: data.clone(),
                    position: event.data_start,
                    first_block,
                    block_bytes,
                };
                (place, crc)
            }
            _ => {
                let start = batch.inline_range().map_or(0, |range| range.start);
                let start = start + event.data_start as usize;
                let data = stored.batch.slice(start..start + event.data_bytes as usize);
                let crc = crc32c(&data);
                (DataAt::Inline(data), crc)
            }
        };
        let bytes = event.data_bytes;
        let handle = Arc::new(Opened { bytes, place });
        Ok(EventData { handle, bytes, crc })
    }

    fn pieces(
        data: &EventData,
        segments: &[Segment],
        verify: bool,
    ) -> Result<Vec<Bytes>, StorageError> {
        let handle = data.handle.downcast_ref::<Opened>();
        let handle =
            handle.ok_or_else(|| StorageError::Invalid("an event of another storage".into()))?;
        let mut pieces = Vec::new();
        // Blocks that were checked last: many segments may lie in one.
        let mut checked = 0..0;
        for segment in segments {
            let (from, count) = (segment.offset, segment.bytes);
            let end = from.checked_add(count).filter(|end| *end <= handle.bytes);
            let end = end.ok_or_else(|| {
                let all = handle.bytes;
                StorageError::Invalid(format!("{count} bytes at {from} of data of {all} bytes"))
            })?;
            match &handle.place {
                DataAt::Inline(bytes) => pieces.push(bytes.slice(from as usize..end as usize)),
                DataAt::External {
                    data,
                    position,
                    first_block,
                    block_bytes,
                } if count > 0 => {
                    let block_bytes = u64::from(*block_bytes);
                    let blocks = match verify {
                        true => from / block_bytes..end.div_ceil(block_bytes),
                        false => 0..0,
                    };
                    for block in blocks {
                        if checked.contains(&block) {
                            continue;
                        }
                        let start = block * block_bytes;
                        let stop = (start + block_bytes).min(handle.bytes);
                        let mut crc = 0;
                        data.each(position + start, position + stop, |piece| {
                            crc = crc32c_append(crc, &piece);
                        });
                        if crc != data.checksums[first_block + block as usize] {
                            return Err(StorageError::Damaged(format!(
                                "block at {start} of an event's data fails its checksum"
                            )));
                        }
                        checked = match block == checked.end {
                            true => checked.start..block + 1,
                            false => block..block + 1,
                        };
                    }
                    data.each(position + from, position + end, |piece| pieces.push(piece));
                }
                DataAt::External { .. } => {}
            }
        }
        Ok(pieces)
    }
}

impl Data {
    fn bytes(&self) -> u64 {
        self.chunks.values().map(|chunk| chunk.len() as u64).sum()
    }

    /// Shows the pieces of chunks between two positions.
    fn each(&self, from: u64, end: u64, mut each: impl FnMut(Bytes)) {
        if end <= from {
            return;
        }
        let before = self.chunks.range(..=from).next_back();
        let behind = self.chunks.range(from + 1..end);
        for (start, chunk) in before.into_iter().chain(behind) {
            let cut_from = from.saturating_sub(*start).min(chunk.len() as u64);
            let cut_end = end.saturating_sub(*start).min(chunk.len() as u64);
            if cut_from < cut_end {
                each(chunk.slice(cut_from as usize..cut_end as usize));
            }
        }
    }
}

impl Storage for MemoryLog {
    fn durability_max(&self) -> Durability {
        Durability::Memory
    }

    fn state(&self) -> StorageState {
        StorageState {
            incarnation: self.incarnation,
            first: self.first,
            end: self.end,
            written: self.first,
            synced: self.first,
            bytes: self.bytes,
            failure: None,
        }
    }

    fn check(&self, header: &Header) -> Verdict {
        self.producers.check(header)
    }

    fn next_sequence(&self, producer: ProducerId, epoch: ProducerEpoch) -> Option<Sequence> {
        self.producers.next_sequence(producer, epoch)
    }

    fn producers(&self) -> Vec<ProducerState> {
        self.producers.states()
    }

    fn adopt_producers(&mut self, states: Vec<ProducerState>) {
        self.producers.adopt(states);
    }

    fn reserve(&mut self, layout: &ExternalLayout) -> Result<DataPlace, StorageError> {
        self.make_room(layout.table_position, 0)?;
        self.bytes += layout.table_position;
        self.reserved += layout.table_position;
        self.next_place += 1;
        let place = DataPlace(self.next_place);
        let reserved = Place {
            layout: layout.clone(),
            data: Data::default(),
            ready: false,
        };
        self.places.insert(place, reserved);
        Ok(place)
    }

    fn write_data(&mut self, place: DataPlace, position: u64, bytes: Bytes) {
        let count = bytes.len() as u64;
        let Some(found) = self.places.get_mut(&place).filter(|found| !found.ready) else {
            return self.place_failed(place, "takes no data");
        };
        let end = position.checked_add(count);
        if end.is_none_or(|end| end > found.layout.table_position) {
            return self.place_failed(place, "is smaller than what is written to it");
        }
        let bytes = match wastes(bytes.len(), bytes.len().next_multiple_of(4096)) {
            true => self.packer.pack(&bytes),
            false => bytes,
        };
        found.data.chunks.insert(position, bytes);
        self.events.push_back(StorageEvent::DataWritten {
            place,
            bytes: count,
        });
    }

    fn seal_data(&mut self, place: DataPlace, checksums: Vec<u32>, _durability: Durability) {
        let Some(found) = self.places.get_mut(&place) else {
            return self.place_failed(place, "takes no data");
        };
        if checksums.len() as u64 != found.layout.block_count {
            return self.place_failed(place, "has another number of blocks");
        }
        for (_, position, bytes) in &found.layout.events {
            let mut had = 0;
            found.data.each(*position, position + bytes, |piece| {
                had += piece.len() as u64
            });
            if had != *bytes {
                return self.place_failed(place, "was sealed before all of its data was written");
            }
        }
        found.data.checksums = checksums;
        found.ready = true;
        self.events.push_back(StorageEvent::DataReady { place });
    }

    fn abandon(&mut self, place: DataPlace) {
        if let Some(found) = self.places.remove(&place) {
            self.bytes -= found.layout.table_position;
            self.reserved -= found.layout.table_position;
            self.has_space();
        }
    }

    fn append(&mut self, append: Append) -> Result<Offset, StorageError> {
        if self.closing {
            return Err(StorageError::Invalid(
                "the partition is being closed".into(),
            ));
        }
        let mut batch_bytes = append.batch.len() as u64 + BATCH_BYTES;
        let data = match append.place {
            None => None,
            Some(place) => {
                let ready = self.places.get(&place).is_some_and(|found| found.ready);
                if !ready {
                    let text = format!("place {} does not hold its data yet", place.0);
                    return Err(StorageError::Invalid(text));
                }
                Some(place)
            }
        };
        if let Some(place) = data {
            let blocks = self.places[&place].layout.block_count;
            batch_bytes += DATA_BYTES + CHECKSUM_BYTES * blocks;
        }
        let own = data.map_or(0, |place| self.places[&place].layout.table_position);
        self.make_room(batch_bytes, own)?;
        let data = data.and_then(|place| self.places.remove(&place));
        // What was reserved has holes, which take nothing here.
        let reserved = data.as_ref().map_or(0, |found| found.layout.table_position);
        let data_bytes = data.as_ref().map_or(0, |found| found.data.bytes());
        self.reserved -= reserved;
        self.bytes -= reserved;
        let base_offset = self.end;
        let mut batch = append.batch;
        let stamp = Stamp {
            batch_bytes: batch.len() as u64,
            base_offset,
            append_time: append.append_time,
            leader_epoch: append.leader_epoch,
            header_crc: append.header_crc,
            data_bytes: data.as_ref().map_or(0, |found| found.layout.total_bytes),
            data_crc: data.as_ref().map_or(0, |found| found.data.table_crc()),
            ..Stamp::default()
        };
        stamp.write(&mut batch);
        self.now = self.now.max(append.now);
        // Small ones lie side by side, for alone each takes whole pages.
        let batch = match wastes(batch.len(), batch.memory_bytes()) {
            true => self.packer.pack(&batch),
            false => {
                batch.give_back_unused();
                batch.freeze()
            }
        };
        self.bytes += batch_bytes + data_bytes;
        self.producers
            .appended(&append.header, base_offset, append.now);
        self.end = base_offset.plus(append.header.offset_count());
        self.batches.push_back(Stored {
            base_offset,
            next: self.end,
            arrived: append.now,
            header: append.header,
            batch,
            data: data.map(|found| Arc::new(found.data)),
            bytes: batch_bytes + data_bytes,
        });
        self.events.push_back(StorageEvent::Progress);
        self.apply_retention_if_due();
        Ok(base_offset)
    }

    fn read(&mut self, token: ReadToken, read: ReadBatches) {
        let found = self.find(read);
        self.events.push_back(StorageEvent::Read { token, found });
    }

    fn read_at_hand(&mut self, read: &ReadBatches) -> Option<Found> {
        self.find(*read).ok()
    }

    fn open_event(&mut self, token: ReadToken, offset: Offset) {
        let data = self.open(offset);
        self.events
            .push_back(StorageEvent::EventOpened { token, data });
    }

    fn read_data(&mut self, token: ReadToken, data: &EventData, segments: Vec<Segment>) {
        let pieces = Self::pieces(data, &segments, true);
        self.events
            .push_back(StorageEvent::DataRead { token, pieces });
    }

    fn read_data_to_compare(&mut self, token: ReadToken, data: &EventData, segments: Vec<Segment>) {
        let pieces = Self::pieces(data, &segments, false);
        self.events
            .push_back(StorageEvent::DataRead { token, pieces });
    }

    fn remove_before(&mut self, offset: Offset, gap: GapReason) {
        self.remove(offset, gap);
    }

    fn set_retention(&mut self, retention: Retention, keep_from: Offset) {
        (self.retention, self.keep_from) = (retention, keep_from);
        self.apply_retention();
    }

    fn tick(&mut self, unix_ns: u64) {
        self.now = self.now.max(unix_ns);
        self.producers.expire(self.now);
        self.apply_retention();
    }

    fn next_tick(&self) -> Option<u64> {
        let oldest = self.batches.front()?;
        if oldest.next > self.keep_from {
            return None;
        }
        Some(
            oldest
                .arrived
                .saturating_add(self.retention.age_ns?)
                .saturating_add(1),
        )
    }

    fn close(&mut self) {
        if !self.closing {
            self.closing = true;
            self.events.push_back(StorageEvent::Closed);
        }
    }

    fn poll_operation(&mut self) -> Option<(OperationToken, Operation)> {
        None
    }

    fn complete(&mut self, token: OperationToken, _result: Result<Outcome, DiskError>) {
        unreachable!(
            "a memory partition asks for no operation, not for {}",
            token.0
        );
    }

    fn poll_event(&mut self) -> Option<StorageEvent> {
        self.events.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_that_holds_nothing_is_refused() {
        let check = |config: &str| MemoryKind.check(config);
        assert_eq!(check(""), Ok(()));
        assert_eq!(check(r#"{"bytes_max": 1}"#), Ok(()));
        assert_eq!(
            check(r#"{"bytes_max": 0}"#),
            Err("memory storage: bytes_max is 0, at least 1 is needed".to_owned())
        );
        let refusal = check(r#"{"producers_max": 0}"#).unwrap_err();
        assert!(refusal.contains("producers_max is 0"), "{refusal}");
        for wrong in ["-1", "1.5", "18446744073709551616", "NaN", "1e999"] {
            assert!(check(&format!(r#"{{"bytes_max": {wrong}}}"#)).is_err());
        }
    }
}
