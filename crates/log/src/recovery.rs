//! Opening a partition: what is there, up to where it holds, what is lost.
//!
//! The rules, and why they are right, are in `docs/format/log.md`, "Recovery".

mod settle;
mod walk;

use crate::blocking::{Blocking, Window};
use crate::checkpoint::{CHECKPOINT_NAME, Checkpoint, SLOT_DISTANCE, boot_id_bytes};
use crate::disk::{DiskError, DiskErrorKind, FileId};
use crate::external::ExternalReader;
use crate::index::SparseIndex;
use crate::look::{DiskStamp, Look, look_at, stamps};
use crate::producers::ProducerTable;
use crate::segment::{SEGMENT_HEADER_BYTES, SegmentFile, SegmentHeader};
use crate::settings::DiskSettings;
use crate::storage::{OpenPartition, Recovery, StorageError};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use wire::batch::{Batch, BatchKind, Header, STAMP_BYTES, Verify};
use wire::record::{Gap, GapReason};
use wire::{Durability, Incarnation, Offset};

/// What is read of a segment's start: its header, were it a later version's, and a stamp.
const SEGMENT_START_BYTES: usize = 4096;

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
    Good(DiskStamp, Header),
    /// The batch is there, its sections or data are not.
    Hollow(DiskStamp, Header),
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
    let checkpoint = read_checkpoint(disk, &open.directory).map_err(failed)?;
    let mut walk = Walk::new(disk, open, settings, checkpoint);
    walk.find_segments(&names).map_err(failed)?;
    let tail = walk.run().map_err(failed)?;
    walk.settle(&names, tail).map_err(failed)
}

/// The newest checkpoint of the partition in a directory, which may be in use: `None` if there is none.
pub(crate) fn read_checkpoint(
    disk: Blocking<'_>,
    directory: &Path,
) -> Result<Option<Checkpoint>, DiskError> {
    let path = directory.join(CHECKPOINT_NAME);
    let file = match disk.open(path.clone()) {
        Ok(file) => file,
        Err(error) if error.kind == DiskErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    // A later version's slots may be longer, as far as the distance between them.
    let read = || disk.read(file, 0, 2 * SLOT_DISTANCE as usize);
    let mut bytes = read()?;
    if !Checkpoint::is_whole(&bytes) {
        // A crash may have torn a slot, or one is just being written: then the other slot is
        // the one before it. A bit that flipped on the way here must not make an older one count.
        bytes = read()?;
    }
    disk.close(file)?;
    if let Some(other) = Checkpoint::of_another_version(&bytes) {
        return Err(DiskError::refused(&path, other.to_string()));
    }
    Ok(Checkpoint::newest(&bytes))
}

/// Where the log ends.
struct Tail {
    /// The segment that holds the end; `None` if there is none.
    segment: Option<usize>,
    /// Whether offsets are lost right before the end.
    jumped: bool,
    /// Whether nothing tells how many: durable bytes are gone up to the end of the log, and
    /// events may have followed them.
    uncounted: bool,
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
        let mut removed = Vec::new();
        for name in names {
            if let Some((SegmentFile::Log, base)) = SegmentFile::of_name(name) {
                let found = self.find_segment(base)?;
                match base >= first {
                    true => self.segments.extend(found),
                    false => removed.extend(found),
                }
            }
        }
        let is_its = self
            .checkpoint
            .as_ref()
            .map(|known| self.is_its_segment(known));
        let is_anothers = match is_its {
            Some(Some(is_its)) => !is_its,
            // It would have them removed, and nothing shows that it is this partition's.
            Some(None) => !removed.is_empty(),
            None => false,
        };
        if is_anothers {
            self.checkpoint = None;
            removed.append(&mut self.segments);
            self.segments = removed;
        }
        Ok(())
    }

    /// Whether the segment that the checkpoint speaks of is the one it means; `None` if it is
    /// missing. Without a readable header it is taken for that.
    fn is_its_segment(&self, known: &Checkpoint) -> Option<bool> {
        let mut segments = self.segments.iter();
        let found = segments.find(|found| found.base == known.segment)?;
        Some(found.salt == known.salt)
    }

    fn find_segment(&mut self, base: Offset) -> Result<Option<FoundSegment>, DiskError> {
        let path = SegmentFile::Log.path(&self.open.directory, base);
        let file = self.disk.open(path.clone())?;
        let mut bytes = self.disk.read(file, 0, SEGMENT_START_BYTES)?;
        let mut read = SegmentHeader::read(&bytes);
        if read.is_err() {
            // A bit that flipped on the way here must not make it another's.
            bytes = self.disk.read(file, 0, SEGMENT_START_BYTES)?;
            read = SegmentHeader::read(&bytes);
        }
        let log_bytes = self.disk.length(file)?;
        self.disk.close(file)?;
        let header_is_bad = read.is_err();
        let header = match read {
            Ok(header)
                if header.topic != self.open.topic || header.partition != self.open.partition =>
            {
                return Err(DiskError::refused(
                    &path,
                    format!(
                        "it is of partition {} of topic {}, not of partition {} of topic {}: \
                         the files of two partitions were exchanged",
                        header.partition, header.topic, self.open.partition, self.open.topic
                    ),
                ));
            }
            // That of the segment that the file held before it was recycled is no header.
            Ok(header) => Some(header).filter(|header| header.base_offset == base),
            Err(error) if error.is_of_another_version() => {
                return Err(DiskError::refused(&path, error.to_string()));
            }
            Err(_) => None,
        };
        // Behind a damaged header the first stamp tells the salt, if it is
        // one of this segment: a recycled file's has another base offset.
        let salt_of_stamp = || {
            let stamp = DiskStamp::of(bytes.get(SEGMENT_HEADER_BYTES as usize..)?)?;
            (stamp.shared.base_offset == base).then_some(stamp.local.segment_salt)
        };
        let salt_of_checkpoint = || {
            let known = self.checkpoint.as_ref()?;
            (known.segment == base).then_some(known.salt)
        };
        let salt = header.map(|header| header.salt);
        let Some(salt) = salt.or_else(salt_of_checkpoint).or_else(salt_of_stamp) else {
            // Without a salt nothing in it can be told from what a recycled
            // file held before: it counts as missing.
            if header_is_bad && bytes.iter().any(|byte| *byte != 0) {
                self.report.cut_bytes += log_bytes;
            }
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
            uncounted: false,
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
        let known = self.checkpoint.as_ref().filter(|known| !known.clean);
        tail.uncounted = known.is_some_and(|known| {
            let last = tail.segment.map(|at| self.segments[at].base);
            let is_missing = last.is_none_or(|last| last < known.segment);
            // The first checkpoint may be durable before anything else is, and nothing was
            // acknowledged then: a power loss may leave it alone.
            let was_there = known.sequence > 1 || self.is_same_boot();
            (tail.jumped || is_missing) && was_there
        });
        Ok(tail)
    }

    /// Whether the machine has run since the checkpoint was written.
    fn is_same_boot(&self) -> bool {
        let known = self.checkpoint.as_ref();
        known.is_some_and(|known| known.boot_id.as_bytes() == boot_id_bytes(&self.open.boot_id))
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
            && stamp.shared.base_offset == self.offset
        {
            position += stamp.shared.batch_bytes;
            self.offset = self.offset.plus(header.offset_count());
        }
        self.disk.close(file)
    }

    fn open_log(&self, at: usize) -> Result<FileId, DiskError> {
        let path = SegmentFile::Log.path(&self.open.directory, self.segments[at].base);
        self.disk.open(path)
    }
}

impl From<&DiskError> for StorageError {
    fn from(error: &DiskError) -> Self {
        match error.kind {
            DiskErrorKind::Full => Self::Full(error.to_string()),
            DiskErrorKind::Refused => Self::Refused(error.to_string()),
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
