//! Following the batches of a segment: which are good, where the log ends,
//! what is damage.

use super::*;
use wire::codec::DecodeError;

/// Bytes that are searched for stamps at once.
const SCAN_BYTES: usize = 1 << 20;

impl Walk<'_> {
    /// Follows one segment's batches. Says whether the log may go on in the next.
    pub(super) fn walk_segment(&mut self, at: usize, tail: &mut Tail) -> Result<bool, DiskError> {
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
                    position += stamp.shared.batch_bytes;
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

    pub(super) fn judge(
        &mut self,
        at: usize,
        window: &mut Window<'_>,
        position: u64,
        verify: bool,
    ) -> Result<Judged, DiskError> {
        let (stamp, header) = match look_at(window, position, self.segments[at].salt)? {
            Look::Batch(stamp, header) if stamp.shared.base_offset == self.offset => {
                (stamp, header)
            }
            Look::OtherVersion(error) => return Err(self.other_version(at, position, &error)),
            Look::Batch(..) | Look::Short(_) => return Ok(Judged::Bad { batch_bytes: None }),
            Look::Bad { batch_bytes } => return Ok(Judged::Bad { batch_bytes }),
        };
        let left = self.segments[at].log_bytes.saturating_sub(position);
        if stamp.shared.batch_bytes > left {
            return Ok(Judged::Hollow(stamp, header));
        }
        if !verify && header.kind != BatchKind::Snapshot {
            return Ok(Judged::Good(stamp, header));
        }
        let bytes = window.bytes(position, stamp.shared.batch_bytes as usize)?;
        let Ok(batch) = Batch::read(bytes, Verify::Sections) else {
            return Ok(Judged::Hollow(stamp, header));
        };
        if header.kind == BatchKind::Snapshot {
            match self.producers.restore(batch.metadata_section()) {
                Ok(()) => {}
                Err(error) if error.is_of_another_version() => {
                    return Err(self.other_version(at, position, &error));
                }
                Err(_) => return Ok(Judged::Hollow(stamp, header)),
            }
        }
        if verify {
            self.report.verified_bytes += stamp.shared.batch_bytes;
            if stamp.shared.data_bytes > 0 {
                let Ok(columns) = batch.columns() else {
                    return Ok(Judged::Hollow(stamp, header));
                };
                let block_bytes = header.block_bytes();
                if !self.data.verify(&stamp, &columns.external, block_bytes)? {
                    return Ok(Judged::Hollow(stamp, header));
                }
                self.report.verified_bytes += stamp.shared.data_bytes;
            }
        }
        Ok(Judged::Good(stamp, header))
    }

    /// Another version's batch is in this segment: nothing of it is touched.
    fn other_version(&self, at: usize, position: u64, error: &DecodeError) -> DiskError {
        let path = SegmentFile::Log.path(&self.open.directory, self.segments[at].base);
        DiskError::refused(&path, format!("batch at {position}: {error}"))
    }

    fn accept(
        &mut self,
        at: usize,
        position: u64,
        stamp: &DiskStamp,
        header: &Header,
        verify: bool,
    ) {
        self.producers
            .appended(header, self.offset, stamp.shared.append_time);
        let data_end = stamp
            .local
            .data_position
            .saturating_add(stamp.shared.data_bytes);
        let data_base = stamp.local.data_segment;
        let segment = &mut self.segments[at];
        segment
            .index
            .add(self.offset, position, self.settings.index_bytes);
        segment.last_append_time = segment.last_append_time.max(stamp.shared.append_time);
        segment.proven = segment.proven.max(stamp.local.synced_bytes);
        segment.snapshot |= header.kind == BatchKind::Snapshot;
        if stamp.shared.data_bytes > 0 {
            if verify {
                self.unproven_data
                    .push((data_base, stamp.local.data_position..data_end));
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
                if stamp.shared.base_offset >= offset && stamp.local.synced_bytes > durable.position
                {
                    durable = Durable {
                        position: stamp.local.synced_bytes,
                        end: Some(stamp.shared.base_offset),
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
    pub(super) fn durable_before(&mut self, at: usize) -> Result<bool, DiskError> {
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
                any |= stamp.shared.base_offset >= base && stamp.local.synced_bytes > 0;
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
            && position + stamp.shared.batch_bytes
                <= durable.position.min(self.segments[at].log_bytes)
        {
            // Its retry must not be taken for new: it has an offset, and a gap.
            self.producers
                .appended(header, self.offset, stamp.shared.append_time);
            let end = self.offset.plus(header.offset_count());
            self.gap(self.offset, end, GapReason::Damaged);
            self.offset = end;
            return Ok(Some(position + stamp.shared.batch_bytes));
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
                let fits = stamp.shared.base_offset >= offset
                    && limit.is_none_or(|limit| stamp.shared.base_offset < limit);
                candidates.extend(fits.then_some((start, stamp.shared.base_offset)));
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
}

/// Shows every stamp of this salt from `from` on, until `each` has enough.
fn scan(
    window: &mut Window<'_>,
    from: u64,
    mut each: impl FnMut(u64, &DiskStamp) -> bool,
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
