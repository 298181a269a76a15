//! Removing what is not to be kept: whole segments, the oldest first.

use super::removal::Leaving;
use super::*;
use wire::record::Gap;

/// Spares of a stream that has stopped stay for this long, if they take more
/// than the limit and one segment allow.
const SPARES_UNUSED_NS: u64 = 1_000_000_000;

impl DiskLog {
    /// Removes the segments that end at or before `offset`; never the last.
    pub(super) fn remove_segments_before(&mut self, offset: Offset, reason: GapReason) {
        if self.failure.is_some() || self.closing {
            return;
        }
        let from = self.first;
        while self.segments.len() > 1
            && self.segments[1].base <= offset
            && self.oldest_may_go()
            && self.undo.is_none()
        {
            let segment = self.segments.pop_front().expect("there is more than one");
            let end = self.segments[0].base;
            let header = segment.header;
            let gap = Gap {
                incarnation: header.map_or(self.incarnation, |header| header.incarnation),
                first: segment.base,
                end,
                reason,
                time: self.now,
            };
            self.first = self.first.max(end);
            self.retain.leaving.push(Leaving {
                log: segment.log,
                base: segment.base,
                data_since: segment.data_since(),
                durable: segment.durable,
                bytes: segment.length(),
                gap,
            });
        }
        if self.first > from {
            self.retain.removed_from = from;
            self.retain.removed_reason = Some(reason);
            self.tail.remove_before(self.first);
            self.checkpoint.want();
            self.recount_bytes();
            self.forget_unsynced();
            self.progress();
        }
    }

    pub(super) fn apply_retention(&mut self) {
        let keep = self.open.retention;
        let (mut remove_to, mut discard_to) = (None, None);
        // What lies there to be written again counts as well.
        let spares = self.retain.spare_bytes + self.retain.data_spare_bytes;
        let mut bytes = self.stored_bytes() + spares;
        for (segment, next) in self.segments.iter().zip(self.segments.iter().skip(1)) {
            let data = self
                .data_files
                .get(&segment.base)
                .map_or(0, |data| data.end);
            let own = segment.end + data;
            bytes = bytes.saturating_sub(own);
            let too_many_bytes = keep
                .bytes
                .is_some_and(|most| bytes + own > most && self.leaves_enough(most, own, bytes));
            let too_many = keep
                .count
                .is_some_and(|most| self.end.0 - next.base.0 >= most);
            let too_old = keep
                .age_ns
                .is_some_and(|age| next_created(segment, next).saturating_add(age) < self.now);
            let is_kept = next.base > self.retain.keep_from;
            let spared = is_kept && !(keep.discards && (too_many_bytes || too_many));
            if !(too_many_bytes || too_many || too_old) || spared {
                break;
            }
            match is_kept {
                true => discard_to = Some(next.base),
                false => remove_to = Some(next.base),
            }
        }
        if let Some(offset) = remove_to {
            self.remove_segments_before(offset, GapReason::Retention);
        }
        if let Some(offset) = discard_to {
            self.remove_segments_before(offset, GapReason::Discarded);
        }
    }

    /// Whether a limit of `most` bytes may take a segment of `own` bytes that `behind`
    /// bytes of files follow. A segment that was begun under a higher limit, or under
    /// none, may be all that there is: it stays until what follows it is as much as the
    /// limit keeps. Without space on the disk it goes, for otherwise nothing would be
    /// taken any more.
    fn leaves_enough(&self, most: u64, own: u64, behind: u64) -> bool {
        if self.space.is_none() || self.space.none_for_data {
            return true;
        }
        // Files that go, or are there to be written again, hold nothing that is kept.
        let first = self.segments.front().map_or(self.end, |first| first.base);
        let leaving: u64 = self
            .data_files
            .range(..first)
            .map(|(_, data)| data.end)
            .sum();
        let spares = self.retain.spare_bytes + self.retain.data_spare_bytes;
        let least = match own > segment_size::longest_for(most) {
            true => most,
            false => most / 2,
        };
        behind.saturating_sub(spares + leaving) >= least
    }

    /// When the oldest sealed segment will be too old.
    pub(super) fn next_retention(&self) -> Option<u64> {
        let age = self.open.retention.age_ns?;
        let (oldest, next) = (self.segments.front()?, self.segments.get(1)?);
        if next.base > self.retain.keep_from {
            return None;
        }
        Some(
            next_created(oldest, next)
                .saturating_add(age)
                .saturating_add(1),
        )
    }

    /// Removes the files of segments that a durable checkpoint has left behind.
    pub(super) fn advance_removal(&mut self) {
        let gone = std::mem::take(&mut self.retain.leaving_data);
        for data in gone {
            self.remove_data_file(data);
        }
        if self.retain.leaving.is_empty() {
            return;
        }
        let durable_first = self.checkpoint.durable_first();
        let (gone, left): (Vec<Leaving>, Vec<Leaving>) = std::mem::take(&mut self.retain.leaving)
            .into_iter()
            .partition(|leaving| leaving.gap.end <= durable_first);
        self.retain.leaving = left;
        if gone.is_empty() {
            return;
        }
        for leaving in gone {
            self.events.push_back(StorageEvent::Lost(leaving.gap));
            self.remove_log(&leaving);
            if leaving.durable {
                let index = SegmentFile::Index.path(&self.open.directory, leaving.base);
                self.remove_path(index);
            }
        }
        self.remove_data_files();
        self.recount_bytes();
    }

    fn remove_log(&mut self, leaving: &Leaving) {
        let Some(entry) = self.files.get(leaving.log) else {
            return;
        };
        let path = entry.path.clone();
        // A reader must not find a later segment's batches in it.
        let recycle = self.retain.spares.len() + self.retain.sparing < self.settings.recycle_count
            && self.spares_may_hold(leaving.bytes)
            && !self.files.in_use(leaving.log);
        self.files.retire(leaving.log);
        if !recycle {
            return self.remove_path(path);
        }
        let to = self.retain.spare_path(&self.open.directory);
        self.retain.removing += 1;
        self.retain.sparing += 1;
        self.retain.spare_bytes += leaving.bytes;
        let purpose = Purpose::Spared(to.clone(), leaving.bytes);
        let rename = Operation::Rename { from: path, to };
        self.files.submit(rename, purpose);
    }

    /// From where on segments that stay refer to data files.
    pub(super) fn data_referred(&self) -> Offset {
        let since = self.segments.iter().map(Segment::data_since);
        let oldest = self.segments.front().map(|oldest| oldest.base);
        since.chain(oldest).min().unwrap_or_default()
    }

    /// Whether all that is kept is what those have not done with whom the topic names.
    pub(super) fn keeps_unfinished_only(&self) -> bool {
        let keep = self.open.retention;
        let limits = [keep.bytes, keep.age_ns, keep.count];
        self.retain.keep_from < Offset(u64::MAX) && limits.iter().all(Option::is_none)
    }

    /// Removes data files to which no segment refers any more.
    fn remove_data_files(&mut self) {
        // A crash may bring back those that are leaving.
        let leaving = self.retain.leaving.iter();
        let leaving = leaving.map(|leaving| leaving.data_since.min(leaving.base));
        let referred = leaving.chain([self.data_referred()]).min();
        let reserved: Vec<Offset> = self.places.values().map(|place| place.base).collect();
        let unused = self.data_files.range(..referred.unwrap_or_default());
        let unused = unused.filter(|(base, _)| !reserved.contains(base));
        let unused: Vec<Offset> = unused.map(|(base, _)| *base).collect();
        for base in unused {
            let data = self.data_files.remove(&base).expect("just seen");
            self.data_tail.forget(base, 0, u64::MAX);
            self.remove_data_file(data);
        }
    }

    /// Removes a data file, or keeps it to be written again: to free and to
    /// allocate as much as data may have costs the file system more than
    /// writing it.
    fn remove_data_file(&mut self, data: DataFile) {
        // One that is being read or synced could not be written again: it waits.
        if self.files.in_use(data.file) && !self.closing {
            return self.retain.leaving_data.push(data);
        }
        let Some(entry) = self.files.get(data.file) else {
            return;
        };
        let path = entry.path.clone();
        // A fast stream fills several before the next ones leave, several at a
        // time. No more is held so than retention lets the partition keep, but
        // one file in any case; and what a few large events have left is not
        // worth holding.
        let held = self.retain.data_spare_bytes.saturating_add(data.length);
        let first = self.retain.data_spares.len() + self.retain.sparing_data == 0;
        let recycle = self.settings.recycle_count > 0
            && (first || held <= self.settings.recycle_bytes_max.min(self.stored_bytes()))
            && data.length <= self.settings.segment_bytes.saturating_mul(2)
            && self.spares_may_hold(data.length)
            && !self.files.in_use(data.file);
        self.files.retire(data.file);
        if !recycle {
            return self.remove_path(path);
        }
        let to = self.retain.spare_path(&self.open.directory);
        self.retain.removing += 1;
        self.retain.sparing_data += 1;
        self.retain.data_spare_bytes = held;
        let purpose = Purpose::DataSpared(to.clone(), data.length);
        let rename = Operation::Rename { from: path, to };
        self.files.submit(rename, purpose);
    }

    /// How many bytes of files may lie there to be written again: with a limit
    /// of bytes about one segment, whose last batch may have made it longer.
    pub(super) fn spare_bytes_max(&self) -> u64 {
        match self.open.retention.bytes {
            Some(_) => self.segment_bytes().saturating_mul(3) / 2,
            None => u64::MAX,
        }
    }

    fn spares_may_hold(&self, bytes: u64) -> bool {
        let held = self.retain.spare_bytes + self.retain.data_spare_bytes;
        held.saturating_add(bytes) <= self.spare_bytes_max()
    }

    /// Whether files to be written again are all that makes files take more than
    /// the limit and one segment.
    fn spares_exceed(&self) -> bool {
        let spares = self.retain.spare_bytes + self.retain.data_spare_bytes;
        let (Some(limit), true) = (self.open.retention.bytes, spares > 0) else {
            return false;
        };
        let active = self.segments.back();
        let data = active.and_then(|active| self.data_files.get(&active.base));
        let active = active.map_or(0, Segment::length) + data.map_or(0, |data| data.length);
        self.older_bytes + active + spares > limit.saturating_add(self.segment_bytes())
    }

    /// A stream that has stopped has no use for files to be written again.
    pub(super) fn trim_spares(&mut self) {
        let active = self.segments.back();
        let is_quiet = active.is_none_or(|active| active.last_append_time <= self.retain.ticked_at);
        if is_quiet && self.spares_exceed() {
            self.remove_spares(0);
        }
        self.retain.ticked_at = self.now;
    }

    /// When [`DiskLog::trim_spares`] may have something to do.
    pub(super) fn next_trim(&self) -> Option<u64> {
        let last = self.segments.back()?.last_append_time;
        let from = last.max(self.retain.ticked_at);
        self.spares_exceed()
            .then(|| from.saturating_add(SPARES_UNUSED_NS))
    }

    pub(super) fn take_spare(&mut self) -> Option<std::path::PathBuf> {
        self.retain.take_spare()
    }

    /// What is only kept to be faster goes, until at most `most` bytes are left of it.
    pub(super) fn remove_spares(&mut self, most: u64) {
        while self.retain.spare_bytes + self.retain.data_spare_bytes > most {
            let data = self.retain.take_data_spare().map(|(path, _)| path);
            let Some(path) = data.or_else(|| self.retain.take_spare()) else {
                return;
            };
            self.remove_path(path);
        }
    }

    fn remove_path(&mut self, path: std::path::PathBuf) {
        self.retain.removing += 1;
        self.files
            .submit(Operation::Remove { path }, Purpose::Removed);
    }

    /// What could not be removed is removed when the partition is opened.
    pub(super) fn removed(&mut self, _result: Result<Outcome, DiskError>) {
        self.retain.removing -= 1;
    }

    pub(super) fn spared(
        &mut self,
        spare: (std::path::PathBuf, u64),
        result: Result<Outcome, DiskError>,
    ) {
        self.retain.removing -= 1;
        self.retain.sparing -= 1;
        match result {
            Ok(_) => self.retain.spares.push(spare),
            Err(_) => self.retain.spare_bytes -= spare.1,
        }
    }

    pub(super) fn data_spared(
        &mut self,
        spare: (std::path::PathBuf, u64),
        result: Result<Outcome, DiskError>,
    ) {
        self.retain.removing -= 1;
        self.retain.sparing_data -= 1;
        match result {
            Ok(_) => self.retain.data_spares.push(spare),
            Err(_) => self.retain.data_spare_bytes -= spare.1,
        }
    }

    /// A segment will not be written to again: it gives back what was
    /// allocated beyond its end, and its index is kept.
    pub(super) fn segment_sealed(&mut self, at: usize) {
        let segment = &mut self.segments[at];
        if segment.allocated > segment.end {
            segment.allocated = segment.end;
            let set_length = Operation::SetLength {
                file: THIS_FILE,
                bytes: segment.end,
            };
            self.files
                .submit_to(segment.log, set_length, Purpose::Ignored);
        }
        let base = segment.base;
        if let Some(data) = self.data_files.get_mut(&base)
            && data.length > data.end
        {
            data.length = data.end;
            let set_length = Operation::SetLength {
                file: THIS_FILE,
                bytes: data.end,
            };
            self.files
                .submit_to(data.file, set_length, Purpose::Ignored);
        }
        self.write_index(at);
        self.close_idle_files();
    }

    /// Writes down where a sealed segment's batches lie. Whether that
    /// succeeds matters to the speed of the first reading only.
    fn write_index(&mut self, at: usize) {
        let segment = &self.segments[at];
        if segment.index.is_empty() {
            return;
        }
        let bytes = Bytes::from(segment.index.to_bytes(segment.salt));
        let path = SegmentFile::Index.path(&self.open.directory, segment.base);
        let file = self.files.add_fleeting(path);
        let write = Operation::Write {
            file: THIS_FILE,
            position: 0,
            bytes: vec![bytes],
        };
        self.files.submit_to(file, write, Purpose::Ignored);
        self.files.retire(file);
    }

    /// Closes the files of older segments that were used longest ago.
    pub(super) fn close_idle_files(&mut self) {
        let most = self.settings.open_segments_max;
        // The checkpoint's and the last segment's files are not counted.
        if self.files.open_count() <= most + 3 {
            return;
        }
        let older = self.segments.len().saturating_sub(1);
        let mut open: Vec<(u64, FileNumber)> = self
            .segments
            .iter()
            .take(older)
            .map(|segment| segment.log)
            .chain(self.data_files.values().rev().skip(1).map(|data| data.file))
            .filter(|file| self.files.is_open(*file))
            .map(|file| (self.files.last_used(file), file))
            .collect();
        open.sort_unstable();
        let excess = open.len().saturating_sub(most);
        for (_, file) in &open[..excess] {
            self.files.close_idle(*file);
            // With thousands of segments their indexes would add up.
            let mut older = self.segments.iter_mut().rev().skip(1);
            if let Some(segment) = older.find(|segment| segment.log == *file && segment.durable) {
                segment.index = SparseIndex::default();
                segment.index_known = false;
            }
        }
    }
}

/// When the last event of `segment` was appended, as far as is known: at the
/// latest when the next segment was begun.
fn next_created(segment: &Segment, next: &Segment) -> u64 {
    match next.header {
        Some(header) if header.created > 0 => header.created,
        _ => segment.last_append_time,
    }
}
