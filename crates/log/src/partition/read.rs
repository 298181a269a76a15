//! Finding and verifying batches, without waiting for the disk: each reading
//! is a job that is stepped when its bytes arrive.

mod batches;
mod event;
mod jobs;
mod openings;

use super::log_position::LogPosition;
use super::*;
use crate::index::INDEX_BYTES_MAX;
use crate::look::{DiskStamp, LOOK_BYTES, Look, look, stamps};
use jobs::{BatchesJob, Find, Finder, Job, OpenJob, Window};
pub(super) use jobs::{Compared, Reads};
use wire::batch::STAMP_BYTES;
use wire::record::Gap;

/// Least bytes read at once when batches are looked for.
const WINDOW_BYTES: u64 = 64 << 10;
/// Most bytes read at once when batches are read one after the other.
const WINDOW_BYTES_MAX: u64 = 4 << 20;
/// Bytes that are searched at once behind damage.
const SCAN_BYTES: u64 = 1 << 20;
/// Where readers left off, so many of them, newest last.
const HINTS_MAX: usize = 64;
/// Damaged places that were announced once are not announced again, so many of them.
const DAMAGE_MAX: usize = 1024;

impl DiskLog {
    fn finder(&self, offset: Offset) -> Finder {
        Finder {
            offset,
            at: self.nearest(offset),
            window: Window::default(),
            scanning: false,
            scan_from: 0,
            needed: 0,
            window_bytes: WINDOW_BYTES,
            file_end: u64::MAX,
        }
    }

    /// The nearest known place at or before `offset`.
    fn nearest(&self, offset: Offset) -> LogPosition {
        let segment = &self.segments[self.segment_of(offset)];
        let hint = self
            .reads
            .hints
            .iter()
            .rev()
            .find(|hint| hint.offset == offset);
        if let Some(hint) = hint
            && hint.segment == segment.base
        {
            return *hint;
        }
        let (offset, position) = segment
            .index
            .floor(offset)
            .unwrap_or((segment.base, crate::segment::SEGMENT_HEADER_BYTES));
        LogPosition {
            segment: segment.base,
            position,
            offset,
        }
    }

    fn hint(&mut self, place: LogPosition) {
        if self.reads.hints.len() == HINTS_MAX {
            self.reads.hints.pop_front();
        }
        self.reads.hints.push_back(place);
    }

    /// The written end of a segment's log, and the offset where the next begins.
    fn bounds(&self, base: Offset) -> Option<(u64, Offset)> {
        let at = self.segment_index(base)?;
        let limit = self
            .segments
            .get(at + 1)
            .map_or(self.written, |next| next.base);
        Some((self.segments[at].written, limit.min(self.written)))
    }

    fn find(&mut self, finder: &mut Finder) -> Find {
        loop {
            let Some((end, limit)) = self.bounds(finder.at.segment) else {
                // It was removed meanwhile.
                return Find::Lost {
                    first: finder.offset,
                    end: self.first,
                };
            };
            if finder.at.offset >= limit {
                if finder.offset >= self.written || limit >= self.written {
                    return Find::Beyond;
                }
                finder.at = self.nearest(finder.at.offset.max(limit));
                finder.window = Window::default();
                finder.file_end = u64::MAX;
                continue;
            }
            let end = end.min(finder.file_end);
            if finder.scanning {
                match self.scan_on(finder, end, limit) {
                    Some(found) => return found,
                    None => continue,
                }
            }
            let position = finder.at.position;
            let distance = self.settings.index_bytes;
            let segment = self.segment(finder.at.segment).expect("it was just seen");
            let salt = segment.salt;
            let left = end.saturating_sub(position);
            let bytes = finder.window.from(position);
            match look(bytes, salt) {
                Look::Short(needed) if (bytes.len() as u64) < left.min(needed as u64) => {
                    let bytes = finder.window_bytes.max(needed as u64).min(left);
                    return Find::Need { position, bytes };
                }
                Look::Batch(stamp, header)
                    if stamp.shared.base_offset == finder.at.offset
                        && stamp.shared.batch_bytes <= left =>
                {
                    let next = finder.at.offset.plus(header.offset_count());
                    if next > finder.offset {
                        return Find::Here(stamp, header);
                    }
                    segment.index.add(finder.at.offset, position, distance);
                    finder.at.position += stamp.shared.batch_bytes;
                    finder.at.offset = next;
                }
                Look::OtherVersion(error) => {
                    let path = SegmentFile::Log.path(&self.open.directory, finder.at.segment);
                    let text = format!("batch at {position} of {}: {error}", path.display());
                    return Find::OtherVersion(StorageError::Refused(text));
                }
                Look::Bad {
                    batch_bytes: Some(bytes),
                } => {
                    finder.scanning = true;
                    finder.scan_from = position.saturating_add(bytes);
                }
                _ => {
                    finder.scanning = true;
                    finder.scan_from = position + 1;
                }
            }
        }
    }

    /// Searches for the next good batch behind damage at `finder.at`.
    fn scan_on(&mut self, finder: &mut Finder, end: u64, limit: Offset) -> Option<Find> {
        let salt = self
            .segment(finder.at.segment)
            .map_or(0, |segment| segment.salt);
        let from = finder.scan_from;
        let left = end.saturating_sub(from);
        let bytes = finder.window.from(from);
        if (bytes.len() as u64) < left.min(LOOK_BYTES as u64) {
            return Some(Find::Need {
                position: from,
                bytes: SCAN_BYTES.min(left),
            });
        }
        let lost_from = finder.at.offset;
        let found = stamps(bytes, salt).find(|(at, stamp)| {
            let fits = stamp.shared.base_offset >= lost_from && stamp.shared.base_offset < limit;
            fits && !matches!(look(&bytes[*at..], salt), Look::Bad { .. })
        });
        let (position, offset) = match found {
            Some((at, stamp)) => (from + at as u64, stamp.shared.base_offset),
            None if (bytes.len() as u64) < left => {
                // A stamp across the boundary is seen in the next piece.
                finder.scan_from += (bytes.len() - STAMP_BYTES + 1) as u64;
                finder.window = Window::default();
                return None;
            }
            // Nothing more in this segment.
            None => (end, limit),
        };
        finder.scanning = false;
        self.damaged(lost_from, offset);
        finder.at.position = position;
        finder.at.offset = offset;
        (offset > finder.offset).then_some(Find::Lost {
            first: lost_from,
            end: offset,
        })
    }

    /// Announces damage, once.
    fn damaged(&mut self, first: Offset, end: Offset) {
        if first >= end
            || self.reads.damage.len() >= DAMAGE_MAX
            || !self.reads.damage.insert((first, end))
        {
            return;
        }
        let gap = self.gap(first, end, GapReason::Damaged);
        self.events.push_back(StorageEvent::Lost(gap));
    }

    fn gap(&self, first: Offset, end: Offset, reason: GapReason) -> Gap {
        let at = self.segment_of(first);
        let header = self.segments[at].header;
        Gap {
            incarnation: header.map_or(self.incarnation, |header| header.incarnation),
            first,
            end,
            reason,
            time: self.now,
        }
    }

    fn keep_job(&mut self, job: Job) -> u64 {
        self.reads.next += 1;
        self.reads.jobs.insert(self.reads.next, job);
        self.reads.next
    }

    fn submit_read(&mut self, job: Job, file: FileNumber, position: u64, bytes: u64) {
        let read = Operation::Read {
            file: THIS_FILE,
            position,
            bytes: bytes as usize,
        };
        self.submit_read_of(job, file, read);
    }

    fn submit_read_of(&mut self, job: Job, file: FileNumber, read: Operation) {
        if self.closed || self.files.get(file).is_none() {
            return self.give_up(job);
        }
        let id = self.keep_job(job);
        self.files.submit_to(file, read, Purpose::Read(id));
    }

    /// Answers a job whose files are closed.
    fn give_up(&mut self, job: Job) {
        let error = StorageError::Invalid("the partition was closed".into());
        let event = match job {
            Job::Batches(job) => job.failed(error),
            Job::Open(job) => return self.opened(job.event(), Err(error)),
            Job::Data(job) => job.failed(error),
        };
        self.events.push_back(event);
    }

    /// Reads from the log of a finder's segment.
    fn submit_find(&mut self, base: Offset, job: Job, position: u64, bytes: u64) {
        let log = self.segment(base).map(|segment| segment.log);
        let log = log.expect("the finder has just looked at this segment");
        self.submit_read(job, log, position, bytes);
    }

    pub(super) fn read_done(&mut self, id: u64, result: Result<Outcome, DiskError>) {
        let job = self
            .reads
            .jobs
            .remove(&id)
            .expect("a job is kept while it reads");
        let bytes = result.map(|outcome| match outcome {
            Outcome::Bytes(buffer) => buffer.freeze(),
            other => unreachable!("reading gives bytes, not {other:?}"),
        });
        self.step(job, Some(bytes));
        self.open_more();
        self.close_idle_files();
    }

    /// Steps a new job; first its segment's index is read, if that is not known.
    fn start(&mut self, job: Job) {
        let base = match &job {
            Job::Batches(job) => job.finder.at.segment,
            Job::Open(job) => job.finder.at.segment,
            Job::Data(_) => return self.step(job, None),
        };
        let unknown = self
            .segment(base)
            .is_some_and(|segment| !segment.index_known);
        if !unknown || self.closed {
            return self.step(job, None);
        }
        let id = self.keep_job(job);
        let path = SegmentFile::Index.path(&self.open.directory, base);
        let file = self.files.add(path);
        let read = Operation::Read {
            file: THIS_FILE,
            position: 0,
            bytes: INDEX_BYTES_MAX,
        };
        self.files.submit_to(file, read, Purpose::Index(base, id));
        self.files.retire(file);
    }

    fn step(&mut self, job: Job, bytes: Option<Result<Bytes, DiskError>>) {
        match job {
            Job::Batches(job) => self.step_batches(job, bytes),
            Job::Open(job) => self.step_open(job, bytes),
            Job::Data(job) => self.step_data(job, bytes),
        }
    }

    /// Without an index, or with a bad one, batches are found by their headers.
    pub(super) fn index_read(&mut self, base: Offset, id: u64, result: Result<Outcome, DiskError>) {
        if let Some(segment) = self.segment(base) {
            segment.index_known = true;
            if let Ok(Outcome::Bytes(bytes)) = result
                && segment.index.is_empty()
                && let Ok(index) = SparseIndex::read(&bytes, segment.salt)
            {
                segment.index = index;
            }
        }
        let mut job = self
            .reads
            .jobs
            .remove(&id)
            .expect("a job is kept while it reads");
        if let Job::Batches(BatchesJob { finder, .. }) | Job::Open(OpenJob { finder, .. }) =
            &mut job
            && finder.offset >= self.first
        {
            finder.at = self.nearest(finder.offset);
        }
        self.step(job, None);
        self.open_more();
    }

    /// The gap that `offset` is in because it was removed.
    fn removed_gap(&self, offset: Offset) -> Option<Gap> {
        (offset < self.first).then(|| {
            let reason = self.retain.removed_reason.unwrap_or(GapReason::Retention);
            let first = self.retain.removed_from.min(offset);
            self.gap(first, self.first, reason)
        })
    }
}
