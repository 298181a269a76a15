//! Reading batches in order.

use super::jobs::BatchesJob;
use super::*;
use wire::batch::{Batch, BatchKind, Verify};
use wire::codec::Codec;

impl DiskLog {
    pub(in crate::partition) fn start_read(&mut self, token: ReadToken, read: ReadBatches) {
        let answer = |found| StorageEvent::Read { token, found };
        if let Some(gap) = self.removed_gap(read.from) {
            return self.events.push_back(answer(Ok(Found::Gap(gap))));
        }
        if read.from > self.end {
            let error = StorageError::OutOfRange {
                offset: read.from,
                first: self.first,
                end: self.end,
            };
            return self.events.push_back(answer(Err(error)));
        }
        if read.from >= read.end.min(self.written) {
            return self.events.push_back(answer(Ok(Found::Nothing)));
        }
        if let Some(found) = self.find_at_hand(&read) {
            return self.events.push_back(answer(Ok(found)));
        }
        let mut finder = self.finder(read.from);
        if finder.at.offset == read.from {
            // Where a reader goes on, the batches wanted begin right there:
            // they are read at once, with some room for the last one's head.
            let most = read.bytes_max.saturating_add(WINDOW_BYTES);
            finder.window_bytes = most.min(WINDOW_BYTES_MAX);
        }
        let job = BatchesJob {
            token,
            read,
            finder,
            batches: Vec::new(),
            bytes: 0,
        };
        self.start(Job::Batches(job));
    }

    /// What was appended lately and is written, if that is what is wanted.
    pub(in crate::partition) fn find_at_hand(&mut self, read: &ReadBatches) -> Option<Found> {
        let end = read.end.min(self.written);
        if read.from < self.first || read.from >= end {
            return None;
        }
        let (found, behind) = self.tail.find(read, end)?;
        trace::passes!("found in memory");
        self.tail.is_read();
        if let Some(place) = behind {
            self.hint(place);
        }
        Some(found)
    }

    pub(super) fn step_batches(
        &mut self,
        mut job: BatchesJob,
        bytes: Option<Result<Bytes, DiskError>>,
    ) {
        match bytes {
            Some(Ok(bytes)) => job.finder.take(bytes),
            // Its file was removed before it was opened: no failure, but a gap.
            Some(Err(_)) if self.segment_index(job.finder.at.segment).is_none() => {}
            Some(Err(error)) => {
                let found = Err(StorageError::from(&error));
                let token = job.token;
                return self.events.push_back(StorageEvent::Read { token, found });
            }
            None => {}
        }
        if let Some(found) = self.gather(&mut job) {
            let token = job.token;
            if let Ok(Found::Batches { next, .. }) = &found {
                if job.finder.at.offset == *next {
                    self.hint(job.finder.at);
                }
                if *next >= self.written {
                    self.tail.is_read();
                }
            }
            return self.events.push_back(StorageEvent::Read { token, found });
        }
        let (position, bytes) = (job.finder.window.start, job.finder.needed);
        let base = job.finder.at.segment;
        self.submit_find(base, Job::Batches(job), position, bytes);
    }

    /// Takes batches from the window; `None` if bytes are needed first.
    fn gather(&mut self, job: &mut BatchesJob) -> Option<Result<Found, StorageError>> {
        loop {
            let more = !job.batches.is_empty();
            let next = job.finder.offset;
            if next >= job.read.end.min(self.written) {
                return Some(Ok(job.found(next)));
            }
            let crosses = more
                && self
                    .bounds(job.finder.at.segment)
                    .is_none_or(|(_, limit)| next >= limit);
            if crosses {
                return Some(Ok(job.found(next)));
            }
            match self.find(&mut job.finder) {
                Find::Here(stamp, header) => {
                    let position = job.finder.at.position;
                    let bytes = match job.read.inline_data {
                        true => stamp.shared.batch_bytes,
                        false => header.prefix_bytes(),
                    };
                    if more && job.bytes + bytes > job.read.bytes_max {
                        return Some(Ok(job.found(next)));
                    }
                    let Some(batch) = job.finder.window.slice(position, bytes) else {
                        if more {
                            return Some(Ok(job.found(next)));
                        }
                        let left = self
                            .bounds(job.finder.at.segment)
                            .map_or(0, |(end, _)| end - position);
                        let window = job.read.bytes_max.min(WINDOW_BYTES_MAX).max(bytes);
                        job.finder.need(position, window.min(left));
                        return None;
                    };
                    if Batch::read(&batch, Verify::Sections).is_err() {
                        if more {
                            return Some(Ok(job.found(next)));
                        }
                        let first = job.finder.at.offset;
                        let end = first.plus(header.offset_count());
                        self.damaged(first, end);
                        let gap = self.gap(first, end, GapReason::Damaged);
                        return Some(Ok(Found::Gap(gap)));
                    }
                    if header.kind == BatchKind::Skipped {
                        return Some(Ok(match more {
                            true => job.found(next),
                            false => Found::Gap(self.skipped(job.finder.at.offset, &batch)),
                        }));
                    }
                    job.bytes += bytes;
                    job.batches.push(batch);
                    job.finder.at.position += stamp.shared.batch_bytes;
                    job.finder.at.offset = job.finder.at.offset.plus(header.offset_count());
                    job.finder.offset = job.finder.at.offset;
                }
                _ if more => return Some(Ok(job.found(next))),
                Find::Need { position, bytes } => {
                    job.finder.need(position, bytes);
                    return None;
                }
                Find::Lost { first, end } => {
                    let reason = match end <= self.first {
                        true => self.retain.removed_reason.unwrap_or(GapReason::Retention),
                        false => GapReason::Damaged,
                    };
                    let gap = self.gap(first, end, reason);
                    return Some(Ok(Found::Gap(gap)));
                }
                Find::OtherVersion(error) => return Some(Err(error)),
                Find::Beyond => return Some(Ok(Found::Nothing)),
            }
        }
    }
}

impl DiskLog {
    /// The gap that a verified batch of skipped offsets stands for, which begins at `first`.
    fn skipped(&self, first: Offset, batch: &Bytes) -> Gap {
        let batch = Batch::read(batch.clone(), Verify::Headers);
        let batch = batch.expect("its sections were verified just now");
        let end = first.plus(batch.header.offset_count());
        let recorded = Gap::from_bytes("skipped", batch.metadata_section()).ok();
        let reason = recorded.map_or(GapReason::Damaged, |gap| gap.reason);
        let time = recorded.map_or(self.now, |gap| gap.time);
        Gap {
            time,
            ..self.gap(first, end, reason)
        }
    }
}

impl BatchesJob {
    pub(super) fn failed(self, error: StorageError) -> StorageEvent {
        StorageEvent::Read {
            token: self.token,
            found: Err(error),
        }
    }

    fn found(&mut self, next: Offset) -> Found {
        if self.batches.is_empty() {
            return Found::Nothing;
        }
        let batches = std::mem::take(&mut self.batches);
        Found::Batches { batches, next }
    }
}
