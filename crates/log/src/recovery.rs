//! Opening a partition: what is there, up to where it holds, what is lost.
//!
//! The rules, and why they are right, are in `docs/format/log.md`, "Recovery".

use crate::blocking::{Blocking, Window};
use crate::checkpoint::{CHECKPOINT_NAME, Checkpoint, SLOT_BYTES, SLOT_DISTANCE, boot_id_bytes};
use crate::disk::{DiskError, DiskErrorKind, FileId};
use crate::external::ExternalReader;
use crate::index::SparseIndex;
use crate::look::{LOOK_BYTES, Look, look, stamps};
use crate::producers::ProducerTable;
use crate::segment::{SEGMENT_HEADER_BYTES, SegmentFile, SegmentHeader};
use crate::settings::DiskSettings;
use crate::storage::{OpenPartition, Recovery, StorageError};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use wire::batch::{Batch, BatchKind, Header, STAMP_BYTES, Stamp, Verify};
use wire::record::{Gap, GapReason};
use wire::{Durability, Incarnation, Offset};

/// Bytes that are searched for stamps at once.
const SCAN_BYTES: usize = 1 << 20;
/// Bytes that are written again at once.
const REWRITE_BYTES: usize = 1 << 20;

/// A segment that recovery found.
#[derive(Debug)]
pub(crate) struct FoundSegment {
    pub(crate) base: Offset,
    /// `None` if the header is damaged; batches are still found by `salt`.
    pub(crate) header: Option<SegmentHeader>,
    pub(crate) salt: u64,
    /// Where the log's batches end. For segments that were not walked: its length.
    pub(crate) log_end: u64,
    /// The log file's length.
    pub(crate) log_bytes: u64,
    /// Where external data ends, as far as batches refer to it.
    pub(crate) data_end: u64,
    pub(crate) index: SparseIndex,
    pub(crate) last_append_time: u64,
    /// Whether its snapshot of the producers is good, if it was walked.
    snapshot: bool,
    /// Up to where stamps say that the log was synced.
    proven: u64,
    /// Whether a stamp says that some of it was synced, if anyone looked.
    any_synced: Option<bool>,
}

/// A partition as it was found, and made sound.
pub(crate) struct Recovered {
    /// Oldest first; the last one takes appends, unless `begin_segment`.
    pub(crate) segments: Vec<FoundSegment>,
    /// Data files and their lengths, by base offset.
    pub(crate) data_files: BTreeMap<Offset, u64>,
    pub(crate) producers: ProducerTable,
    pub(crate) first: Offset,
    pub(crate) end: Offset,
    pub(crate) incarnation: Incarnation,
    pub(crate) checkpoint: Checkpoint,
    /// The last segment cannot be continued: its life has ended, or offsets
    /// behind it are lost.
    pub(crate) begin_segment: bool,
    pub(crate) report: Recovery,
}

/// Up to where a segment's log is known to have been durable.
#[derive(Clone, Copy)]
struct Durable {
    position: u64,
    /// The next offset there, as far as anything tells.
    end: Option<Offset>,
}

/// What is at a place where a batch was expected.
enum Judged {
    Good(Stamp, Header),
    /// The batch is there, its sections or data are not.
    Hollow(Stamp, Header),
    Bad {
        batch_bytes: Option<u64>,
    },
}

struct Walk<'a> {
    disk: Blocking<'a>,
    open: &'a OpenPartition,
    settings: &'a DiskSettings,
    checkpoint: Option<Checkpoint>,
    segments: Vec<FoundSegment>,
    data: ExternalReader<'a>,
    producers: ProducerTable,
    offset: Offset,
    /// External data behind what was proven durable: (data file, range).
    unproven_data: Vec<(Offset, Range<u64>)>,
    report: Recovery,
}

/// Recovers the partition in a directory that exists.
pub(crate) fn recover(
    disk: Blocking<'_>,
    open: &OpenPartition,
    settings: &DiskSettings,
) -> Result<Recovered, StorageError> {
    let failed = |error: DiskError| StorageError::from(&error);
    let names = disk.list(&open.directory).map_err(failed)?;
    let checkpoint = read_checkpoint(disk, open).map_err(failed)?;
    let mut walk = Walk::new(disk, open, settings, checkpoint);
    walk.find_segments(&names).map_err(failed)?;
    let tail = walk.run().map_err(failed)?;
    walk.settle(&names, tail).map_err(failed)
}

pub(crate) fn read_checkpoint(
    disk: Blocking<'_>,
    open: &OpenPartition,
) -> Result<Option<Checkpoint>, DiskError> {
    let file = match disk.open(open.directory.join(CHECKPOINT_NAME)) {
        Ok(file) => file,
        Err(error) if error.kind == DiskErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let bytes = disk.read(file, 0, SLOT_DISTANCE as usize + SLOT_BYTES)?;
    disk.close(file)?;
    Ok(Checkpoint::newest(&bytes))
}

/// Where the log ends.
struct Tail {
    /// The segment that holds the end; `None` if there is none.
    segment: Option<usize>,
    /// Whether offsets are lost right before the end.
    jumped: bool,
}

impl<'a> Walk<'a> {
    fn new(
        disk: Blocking<'a>,
        open: &'a OpenPartition,
        settings: &'a DiskSettings,
        checkpoint: Option<Checkpoint>,
    ) -> Self {
        Self {
            disk,
            open,
            settings,
            checkpoint,
            segments: Vec::new(),
            data: ExternalReader::new(disk, open.directory.clone()),
            producers: ProducerTable::new(settings.producer_limits()),
            offset: Offset(0),
            unproven_data: Vec::new(),
            report: Recovery::default(),
        }
    }

    fn find_segments(&mut self, names: &[String]) -> Result<(), DiskError> {
        let first = self
            .checkpoint
            .as_ref()
            .map_or(Offset(0), |known| known.first);
        for name in names {
            match SegmentFile::of_name(name) {
                Some((SegmentFile::Log, base)) if base >= first => {
                    let found = self.find_segment(base)?;
                    self.segments.extend(found);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn find_segment(&self, base: Offset) -> Result<Option<FoundSegment>, DiskError> {
        let path = SegmentFile::Log.path(&self.open.directory, base);
        let file = self.disk.open(path)?;
        let bytes = self
            .disk
            .read(file, 0, SEGMENT_HEADER_BYTES as usize + STAMP_BYTES)?;
        let log_bytes = self.disk.length(file)?;
        self.disk.close(file)?;
        let ours = |header: &SegmentHeader| {
            header.base_offset == base
                && header.topic == self.open.topic
                && header.partition == self.open.partition
        };
        let header = SegmentHeader::read(&bytes).ok().filter(ours);
        // Behind a damaged header the first stamp tells the salt, if it is
        // one of this segment: a recycled file's has another base offset.
        let salt_of_stamp = || {
            let stamp = Stamp::read(bytes.get(SEGMENT_HEADER_BYTES as usize..)?).ok()?;
            (stamp.base_offset == base).then_some(stamp.segment_salt)
        };
        let salt_of_checkpoint = || {
            let known = self.checkpoint.as_ref()?;
            (known.segment == base).then_some(known.salt)
        };
        let salt = header.map(|header| header.salt);
        let Some(salt) = salt.or_else(salt_of_checkpoint).or_else(salt_of_stamp) else {
            // Without a salt nothing in it can be told from what a recycled
            // file held before: it counts as missing.
            return Ok(None);
        };
        Ok(Some(FoundSegment {
            base,
            header,
            salt,
            log_end: log_bytes,
            log_bytes,
            data_end: 0,
            index: SparseIndex::default(),
            last_append_time: header.map_or(0, |header| header.created),
            snapshot: false,
            proven: 0,
            any_synced: None,
        }))
    }

    fn gap(&mut self, first: Offset, end: Offset, reason: GapReason) {
        if first >= end {
            return;
        }
        if let Some(last) = self.report.gaps.last_mut()
            && last.end == first
            && last.reason == reason
        {
            last.end = end;
            return;
        }
        self.report.gaps.push(Gap {
            incarnation: self.incarnation_found(),
            first,
            end,
            reason,
            time: self.open.unix_ns,
        });
    }

    /// The greatest incarnation that anything tells of.
    fn incarnation_found(&self) -> Incarnation {
        let headers = self.segments.iter().filter_map(|segment| segment.header);
        let known = self.checkpoint.as_ref().map(|known| known.incarnation);
        let found = headers.map(|header| header.incarnation).chain(known).max();
        found
            .unwrap_or(self.open.incarnation)
            .max(self.open.incarnation)
    }

    /// Index of the segment that the checkpoint speaks of, or of the first
    /// behind it. Segments before that one are known to be durable whole.
    fn durable_segment(&self) -> usize {
        match &self.checkpoint {
            Some(known) => self
                .segments
                .partition_point(|found| found.base < known.segment),
            None => 0,
        }
    }

    fn run(&mut self) -> Result<Tail, DiskError> {
        let first = self
            .checkpoint
            .as_ref()
            .map_or(Offset(0), |known| known.first);
        let durable = self.durable_segment();
        // The producers' state is what the last durable segment's snapshot
        // says and what was appended since.
        let start = match self.segments.get(durable) {
            Some(found)
                if self
                    .checkpoint
                    .as_ref()
                    .is_none_or(|k| k.segment == found.base) =>
            {
                durable
            }
            _ => durable.saturating_sub(1),
        };
        let start = self.with_snapshot(start)?;
        self.check_older(start)?;
        if let Some(oldest) = self.segments.first() {
            let base = oldest.base;
            // Without any checkpoint nothing tells that offsets before the
            // oldest segment were lost rather than removed.
            if self.checkpoint.is_some() {
                self.gap(first, base, GapReason::Damaged);
            }
            self.offset = self.segments[start].base;
        } else {
            self.offset = first;
        }
        let mut tail = Tail {
            segment: None,
            jumped: false,
        };
        for at in start..self.segments.len() {
            let base = self.segments[at].base;
            if at > start && self.offset < base && !self.durable_before(at)? {
                // It was begun while the segment before was not yet durable,
                // which then lost its end: nothing of it was acknowledged.
                break;
            }
            self.gap(self.offset, base, GapReason::Damaged);
            self.offset = self.offset.max(base);
            tail.segment = Some(at);
            tail.jumped = false;
            let more = self.walk_segment(at, &mut tail)?;
            if !more {
                break;
            }
        }
        if let Some(known) = &self.checkpoint
            && self.offset < known.end
        {
            let end = known.end;
            self.gap(self.offset, end, GapReason::Damaged);
            self.offset = end;
            tail.jumped = true;
        }
        Ok(tail)
    }

    /// The last segment up to `start` whose snapshot of the producers is good.
    fn with_snapshot(&mut self, start: usize) -> Result<usize, DiskError> {
        for at in (0..=start.min(self.segments.len().saturating_sub(1))).rev() {
            if self.segments.is_empty() {
                break;
            }
            let file = self.open_log(at)?;
            let mut window = Window::new(self.disk, file);
            self.offset = self.segments[at].base;
            let judged = self.judge(at, &mut window, SEGMENT_HEADER_BYTES, false)?;
            self.disk.close(file)?;
            if matches!(judged, Judged::Good(_, header) if header.kind == BatchKind::Snapshot) {
                return Ok(at);
            }
        }
        Ok(start)
    }

    /// Before the checkpoint nothing is read, but a missing file shows: each
    /// segment names the one before it.
    fn check_older(&mut self, start: usize) -> Result<(), DiskError> {
        for at in 1..=start {
            let Some(found) = self.segments.get(at) else {
                break;
            };
            let (base, before) = (found.base, self.segments[at - 1].base);
            let expected = found.header.map_or(before, |header| header.previous_base);
            if expected != before {
                self.offset = before;
                self.skip_through(at - 1, base)?;
                self.gap(self.offset, base, GapReason::Damaged);
            }
        }
        Ok(())
    }

    /// Moves `self.offset` to the end of an older segment, by its headers.
    fn skip_through(&mut self, at: usize, limit: Offset) -> Result<(), DiskError> {
        let file = self.open_log(at)?;
        let mut window = Window::new(self.disk, file);
        let mut position = SEGMENT_HEADER_BYTES;
        while self.offset < limit
            && let Look::Batch(stamp, header) =
                look_at(&mut window, position, self.segments[at].salt)?
            && stamp.base_offset == self.offset
        {
            position += stamp.batch_bytes;
            self.offset = self.offset.plus(header.offset_count());
        }
        self.disk.close(file)
    }

    fn open_log(&self, at: usize) -> Result<FileId, DiskError> {
        let path = SegmentFile::Log.path(&self.open.directory, self.segments[at].base);
        self.disk.open(path)
    }

    /// Follows one segment's batches. Says whether the log may go on in the next.
    fn walk_segment(&mut self, at: usize, tail: &mut Tail) -> Result<bool, DiskError> {
        let file = self.open_log(at)?;
        let mut window = Window::new(self.disk, file);
        let walked = self.walk_batches(at, &mut window, tail)?;
        self.disk.close(file)?;
        Ok(walked)
    }

    fn walk_batches(
        &mut self,
        at: usize,
        window: &mut Window<'_>,
        tail: &mut Tail,
    ) -> Result<bool, DiskError> {
        let limit = self.segments.get(at + 1).map(|next| next.base);
        let known = self.checkpoint.clone();
        let known = known.filter(|known| known.segment == self.segments[at].base);
        let verify_from = match &known {
            Some(known) => known.position,
            None if at < self.durable_segment() => u64::MAX,
            None => 0,
        };
        let clean_end = known
            .filter(|known| known.clean)
            .map(|known| known.position);
        let mut position = SEGMENT_HEADER_BYTES;
        loop {
            self.segments[at].log_end = position;
            if limit.is_some_and(|limit| self.offset >= limit) {
                return Ok(true);
            }
            if clean_end.is_some_and(|end| position >= end) {
                return Ok(false);
            }
            let verify = position >= verify_from;
            let mut judged = self.judge(at, window, position, verify)?;
            if !matches!(judged, Judged::Good(..)) {
                // What is cut is gone: a bit that flipped on the way here
                // must not decide that.
                window.forget();
                judged = self.judge(at, window, position, verify)?;
            }
            match judged {
                Judged::Good(stamp, header) => {
                    self.accept(at, position, &stamp, &header, verify);
                    position += stamp.batch_bytes;
                    continue;
                }
                judged => {
                    let durable = self.durable_up_to(at, window, position)?;
                    if position >= durable.position {
                        self.count_cut(at, window, position)?;
                        return Ok(false);
                    }
                    match self.resume(at, window, position, &judged, durable)? {
                        Some(next) => position = next,
                        None => {
                            let end = limit.or(durable.end).unwrap_or(self.offset);
                            self.gap(self.offset, end, GapReason::Damaged);
                            tail.jumped = true;
                            self.offset = self.offset.max(end);
                            return Ok(limit.is_some());
                        }
                    }
                }
            }
        }
    }

    fn judge(
        &mut self,
        at: usize,
        window: &mut Window<'_>,
        position: u64,
        verify: bool,
    ) -> Result<Judged, DiskError> {
        let (stamp, header) = match look_at(window, position, self.segments[at].salt)? {
            Look::Batch(stamp, header) if stamp.base_offset == self.offset => (stamp, header),
            Look::Batch(..) | Look::Short(_) => return Ok(Judged::Bad { batch_bytes: None }),
            Look::Bad { batch_bytes } => return Ok(Judged::Bad { batch_bytes }),
        };
        let left = self.segments[at].log_bytes.saturating_sub(position);
        if stamp.batch_bytes > left {
            return Ok(Judged::Hollow(stamp, header));
        }
        if !verify && header.kind != BatchKind::Snapshot {
            return Ok(Judged::Good(stamp, header));
        }
        let bytes = window.bytes(position, stamp.batch_bytes as usize)?;
        let Ok(batch) = Batch::read(bytes, Verify::Sections) else {
            return Ok(Judged::Hollow(stamp, header));
        };
        if header.kind == BatchKind::Snapshot
            && self.producers.restore(batch.metadata_section()).is_err()
        {
            return Ok(Judged::Hollow(stamp, header));
        }
        if verify {
            self.report.verified_bytes += stamp.batch_bytes;
            if stamp.data_bytes > 0 {
                let Ok(columns) = batch.columns() else {
                    return Ok(Judged::Hollow(stamp, header));
                };
                let block_bytes = header.block_bytes();
                if !self.data.verify(&stamp, &columns.external, block_bytes)? {
                    return Ok(Judged::Hollow(stamp, header));
                }
                self.report.verified_bytes += stamp.data_bytes;
            }
        }
        Ok(Judged::Good(stamp, header))
    }

    fn accept(&mut self, at: usize, position: u64, stamp: &Stamp, header: &Header, verify: bool) {
        self.producers
            .appended(header, self.offset, stamp.append_time);
        let data_end = stamp.data_position.saturating_add(stamp.data_bytes);
        let data_base = stamp.data_segment;
        let segment = &mut self.segments[at];
        segment
            .index
            .add(self.offset, position, self.settings.index_bytes);
        segment.last_append_time = segment.last_append_time.max(stamp.append_time);
        segment.proven = segment.proven.max(stamp.synced_bytes);
        segment.snapshot |= header.kind == BatchKind::Snapshot;
        if stamp.data_bytes > 0 {
            if verify {
                self.unproven_data
                    .push((data_base, stamp.data_position..data_end));
            }
            if let Some(holder) = self
                .segments
                .iter_mut()
                .find(|found| found.base == data_base)
            {
                holder.data_end = holder.data_end.max(data_end);
            }
        }
        self.offset = self.offset.plus(header.offset_count());
    }

    /// Up to where the log of this segment was durable, seen from a place in
    /// it where no good batch is.
    fn durable_up_to(
        &mut self,
        at: usize,
        window: &mut Window<'_>,
        position: u64,
    ) -> Result<Durable, DiskError> {
        let whole = Durable {
            position: u64::MAX,
            end: None,
        };
        if at < self.durable_segment() {
            return Ok(whole);
        }
        for later in at + 1..self.segments.len() {
            if self.durable_before(later)? {
                return Ok(whole);
            }
        }
        let segment = &self.segments[at];
        let mut durable = Durable {
            position: segment.proven,
            end: None,
        };
        if let Some(known) = &self.checkpoint
            && known.segment == segment.base
            && known.position >= durable.position
        {
            durable = Durable {
                position: known.position,
                end: Some(known.end),
            };
        }
        let (salt, offset) = (segment.salt, self.offset);
        scan(
            window,
            position,
            |_, stamp| {
                if stamp.base_offset >= offset && stamp.synced_bytes > durable.position {
                    durable = Durable {
                        position: stamp.synced_bytes,
                        end: Some(stamp.base_offset),
                    };
                }
                true
            },
            salt,
        )?;
        Ok(durable)
    }

    /// Whether all segments before this one are known to be durable: a
    /// segment is synced only after those before it.
    fn durable_before(&mut self, at: usize) -> Result<bool, DiskError> {
        if at <= self.durable_segment() && self.checkpoint.is_some() {
            return Ok(true);
        }
        if let Some(known) = self.segments[at].any_synced {
            return Ok(known);
        }
        let file = self.open_log(at)?;
        let mut window = Window::new(self.disk, file);
        let mut any = false;
        let base = self.segments[at].base;
        scan(
            &mut window,
            SEGMENT_HEADER_BYTES,
            |_, stamp| {
                any |= stamp.base_offset >= base && stamp.synced_bytes > 0;
                !any
            },
            self.segments[at].salt,
        )?;
        self.disk.close(file)?;
        self.segments[at].any_synced = Some(any);
        Ok(any)
    }

    /// Where reading goes on behind a damaged batch, with the gap noted;
    /// `None` if nothing that was durable follows in this segment.
    fn resume(
        &mut self,
        at: usize,
        window: &mut Window<'_>,
        position: u64,
        judged: &Judged,
        durable: Durable,
    ) -> Result<Option<u64>, DiskError> {
        let limit = self.segments.get(at + 1).map(|next| next.base);
        if let Judged::Hollow(stamp, header) = judged
            && position + stamp.batch_bytes <= durable.position.min(self.segments[at].log_bytes)
        {
            // Its retry must not be taken for new: it has an offset, and a gap.
            self.producers
                .appended(header, self.offset, stamp.append_time);
            let end = self.offset.plus(header.offset_count());
            self.gap(self.offset, end, GapReason::Damaged);
            self.offset = end;
            return Ok(Some(position + stamp.batch_bytes));
        }
        let from = match judged {
            Judged::Bad {
                batch_bytes: Some(bytes),
            } => position.saturating_add(*bytes),
            _ => position + 1,
        };
        let (salt, offset) = (self.segments[at].salt, self.offset);
        let mut candidates = Vec::new();
        scan(
            window,
            from,
            |start, stamp| {
                if start > durable.position {
                    return false;
                }
                let fits = stamp.base_offset >= offset
                    && limit.is_none_or(|limit| stamp.base_offset < limit);
                candidates.extend(fits.then_some((start, stamp.base_offset)));
                candidates.len() < 64
            },
            salt,
        )?;
        for (start, base) in candidates {
            if let Look::Batch(..) = look_at(window, start, salt)? {
                self.gap(offset, base, GapReason::Damaged);
                self.offset = base;
                return Ok(Some(start));
            }
        }
        Ok(None)
    }

    /// Counts what lies behind the end and is not zero.
    fn count_cut(
        &mut self,
        at: usize,
        window: &mut Window<'_>,
        position: u64,
    ) -> Result<(), DiskError> {
        let mut from = position;
        let mut end = position;
        loop {
            let bytes = window.bytes(from, SCAN_BYTES)?;
            if bytes.is_empty() {
                break;
            }
            if let Some(last) = bytes.iter().rposition(|byte| *byte != 0) {
                end = from + last as u64 + 1;
            }
            from += bytes.len() as u64;
        }
        self.report.cut_bytes += end - position;
        let behind = self.segments[at + 1..].iter();
        self.report.cut_bytes += behind.map(|later| later.log_bytes).sum::<u64>();
        Ok(())
    }

    /// Makes what was found what is there: later segments and the tail are
    /// removed for good, the rest is durable.
    fn settle(mut self, names: &[String], tail: Tail) -> Result<Recovered, DiskError> {
        let clean = self.checkpoint.as_ref().is_some_and(|known| known.clean) && !tail.jumped;
        let same_boot = self
            .checkpoint
            .as_ref()
            .is_some_and(|known| known.boot_id.as_bytes() == boot_id_bytes(&self.open.boot_id));
        let keep = tail.segment.map_or(0, |at| at + 1);
        let first = self
            .checkpoint
            .as_ref()
            .map_or(Offset(0), |known| known.first);
        self.segments.truncate(keep);
        if !clean {
            self.write_checkpoint_again()?;
        }
        let data_files = self.remove_leftovers(names)?;
        if !clean {
            if same_boot {
                self.write_again()?;
            }
            self.sync_tail(tail.segment)?;
        }
        self.disk.sync_directory(&self.open.directory)?;
        let mut data_lengths = BTreeMap::new();
        for base in data_files {
            let path = SegmentFile::Data.path(&self.open.directory, base);
            let file = self.disk.open(path)?;
            data_lengths.insert(base, self.disk.length(file)?);
            self.disk.close(file)?;
        }
        let end = self.offset;
        let incarnation = self.next_incarnation(clean, same_boot);
        let first = match self.segments.first() {
            Some(oldest) => oldest.base,
            None => end,
        }
        .max(first);
        let (removed_from, removed_reason) = match &self.checkpoint {
            Some(known) => (known.removed_from, known.removed_reason),
            None => (first, None),
        };
        if let Some(reason) = removed_reason
            && !clean
        {
            // Whoever had to record it may have died before it did.
            let known_first = self.checkpoint.as_ref().map_or(first, |known| known.first);
            self.report.gaps.insert(
                0,
                Gap {
                    incarnation: self.open.incarnation,
                    first: removed_from,
                    end: known_first,
                    reason,
                    time: self.open.unix_ns,
                },
            );
        }
        let lost: u64 = self
            .report
            .gaps
            .iter()
            .map(|gap| {
                let within = gap.first.max(first)..gap.end.max(first);
                within.end.0 - within.start.0
            })
            .sum();
        self.report.event_count = (end.0 - first.0).saturating_sub(lost);
        let checkpoint = Checkpoint {
            sequence: self.checkpoint.as_ref().map_or(0, |known| known.sequence),
            clean: false,
            durability: self.open.durability,
            incarnation,
            first,
            removed_from,
            removed_reason,
            segment: Offset(0),
            salt: 0,
            position: 0,
            end,
            time: self.open.unix_ns,
            boot_id: self.open.boot_id.clone(),
        };
        let continued = self.segments.last().and_then(|last| last.header);
        let begin_segment = tail.jumped
            // Whoever opens it next could not tell what producers have sent.
            || self.segments.last().is_some_and(|last| !last.snapshot)
            || continued.is_none_or(|header| header.incarnation != incarnation)
            || self.segments.last().is_some_and(|last| last.base > end);
        Ok(Recovered {
            segments: self.segments,
            data_files: data_lengths,
            producers: self.producers,
            first,
            end,
            incarnation,
            checkpoint,
            begin_segment,
            report: self.report,
        })
    }

    /// The checkpoint that was read may not be on the medium yet; after a
    /// power loss an older one would count, to which files belong that are
    /// about to be removed.
    fn write_checkpoint_again(&self) -> Result<(), DiskError> {
        let Some(known) = &self.checkpoint else {
            return Ok(());
        };
        let file = self.disk.open(self.open.directory.join(CHECKPOINT_NAME))?;
        let bytes = Bytes::copy_from_slice(&known.to_bytes());
        self.disk.write(file, known.slot_position(), bytes)?;
        self.disk.sync(file)?;
        self.disk.close(file)
    }

    /// The life that the partition goes on in: another one if events may be
    /// missing that were acknowledged and that nothing tells of.
    fn next_incarnation(&mut self, clean: bool, same_boot: bool) -> Incarnation {
        let known = self.checkpoint.as_ref();
        let promised = known.map_or(self.open.durability, |known| known.durability);
        let lost_all = known.is_none() && self.segments.is_empty();
        let power_loss = !clean && !same_boot && promised < Durability::Synced;
        let mut incarnation = self.incarnation_found();
        if power_loss || lost_all {
            incarnation = Incarnation(incarnation.0 + 1);
        }
        if incarnation > self.open.incarnation {
            // It may have begun before, and whoever opened it then may have
            // died before that was recorded.
            let newer = |segment: &&FoundSegment| {
                let header = segment.header;
                header.is_some_and(|header| header.incarnation > self.open.incarnation)
            };
            let begun = self.segments.iter().find(newer).map(|segment| segment.base);
            let end = begun.unwrap_or(self.offset);
            let reason = match lost_all {
                true => GapReason::Damaged,
                false => GapReason::PowerLoss,
            };
            // How many events are lost is not known: an empty gap says where.
            self.report.gaps.push(Gap {
                incarnation: self.open.incarnation,
                first: end,
                end,
                reason,
                time: self.open.unix_ns,
            });
            self.report.ended = Some((self.open.incarnation, end));
        }
        incarnation
    }

    /// Removes files that belong to no segment; gives the data files that stay.
    fn remove_leftovers(&mut self, names: &[String]) -> Result<BTreeSet<Offset>, DiskError> {
        let kept: BTreeSet<Offset> = self.segments.iter().map(|segment| segment.base).collect();
        let referred = self
            .segments
            .iter()
            .map(|segment| segment.header.map_or(Offset(0), |header| header.data_since))
            .min();
        let mut data_files = BTreeSet::new();
        for name in names {
            let stays = match SegmentFile::of_name(name) {
                Some((SegmentFile::Data, base)) => {
                    let newest = kept.last().is_some_and(|last| base <= *last);
                    let stays = newest && referred.is_some_and(|since| base >= since);
                    if stays {
                        data_files.insert(base);
                    }
                    stays
                }
                Some((SegmentFile::Log, base)) => kept.contains(&base),
                // What the last one's index says may have been cut.
                Some((SegmentFile::Index, base)) => {
                    kept.contains(&base) && kept.last() != Some(&base)
                }
                None => !name.starts_with(crate::kind::SPARE_PREFIX),
            };
            if !stays {
                self.disk.remove(self.open.directory.join(name))?;
            }
        }
        Ok(data_files)
    }

    /// What was written but not synced before the process ended may be gone
    /// from the page cache's list of things to write, if a sync failed then.
    /// Written again, it is on it.
    fn write_again(&mut self) -> Result<(), DiskError> {
        let durable = self.durable_segment();
        for at in durable..self.segments.len() {
            let segment = &self.segments[at];
            let known = self
                .checkpoint
                .as_ref()
                .filter(|known| known.segment == segment.base);
            let from = known.map_or(0, |known| known.position).max(segment.proven);
            if self.segments[at + 1..].iter().any(|later| later.proven > 0) {
                continue;
            }
            let path = SegmentFile::Log.path(&self.open.directory, segment.base);
            self.rewrite(path, from..segment.log_end)?;
        }
        for (base, range) in std::mem::take(&mut self.unproven_data) {
            self.rewrite(SegmentFile::Data.path(&self.open.directory, base), range)?;
        }
        Ok(())
    }

    fn rewrite(&self, path: std::path::PathBuf, range: Range<u64>) -> Result<(), DiskError> {
        let file = self.disk.open(path)?;
        let mut at = range.start;
        while at < range.end {
            let bytes = (range.end - at).min(REWRITE_BYTES as u64) as usize;
            let buffer = self.disk.read(file, at, bytes)?;
            if buffer.is_empty() {
                break;
            }
            let bytes = buffer.freeze();
            let next = at + bytes.len() as u64;
            self.disk.write(file, at, bytes)?;
            at = next;
        }
        self.disk.close(file)
    }

    /// Cuts the tail off and makes the rest durable.
    fn sync_tail(&mut self, last: Option<usize>) -> Result<(), DiskError> {
        let durable = self.durable_segment();
        for at in durable.min(self.segments.len())..self.segments.len() {
            let file = self.open_log(at)?;
            let segment = &mut self.segments[at];
            if Some(at) == last && segment.log_bytes > segment.log_end {
                // Left there, an old batch could one day follow a new one
                // of the same length and be taken for its successor.
                self.disk.set_length(file, segment.log_end)?;
                segment.log_bytes = segment.log_end;
            }
            self.disk.sync(file)?;
            self.disk.close(file)?;
        }
        self.data.sync_all()
    }
}

fn look_at(window: &mut Window<'_>, position: u64, salt: u64) -> Result<Look, DiskError> {
    match look(window.bytes(position, LOOK_BYTES)?, salt) {
        Look::Short(needed) if needed > LOOK_BYTES => {
            Ok(look(window.bytes(position, needed)?, salt))
        }
        seen => Ok(seen),
    }
}

/// Shows every stamp of this salt from `from` on, until `each` has enough.
fn scan(
    window: &mut Window<'_>,
    from: u64,
    mut each: impl FnMut(u64, &Stamp) -> bool,
    salt: u64,
) -> Result<(), DiskError> {
    let mut from = from;
    loop {
        let bytes = window.bytes(from, SCAN_BYTES)?;
        for (at, stamp) in stamps(bytes, salt) {
            if !each(from + at as u64, &stamp) {
                return Ok(());
            }
        }
        if bytes.len() < SCAN_BYTES {
            return Ok(());
        }
        // A stamp across the boundary is seen in the next piece.
        from += (SCAN_BYTES - STAMP_BYTES + 1) as u64;
    }
}

impl From<&DiskError> for StorageError {
    fn from(error: &DiskError) -> Self {
        match error.kind {
            DiskErrorKind::Full => Self::Full(error.to_string()),
            _ => Self::Failed(error.to_string()),
        }
    }
}

impl FoundSegment {
    /// A segment that was just made.
    pub(crate) fn begun(header: SegmentHeader, log_end: u64) -> Self {
        Self {
            base: header.base_offset,
            header: Some(header),
            salt: header.salt,
            log_end,
            log_bytes: log_end,
            data_end: 0,
            index: SparseIndex::default(),
            last_append_time: header.created,
            snapshot: true,
            proven: 0,
            any_synced: None,
        }
    }
}
