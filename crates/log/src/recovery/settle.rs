//! Making what was found what is there: the tail is cut, leftovers are
//! removed, the rest is durable.

use super::*;

/// Bytes that are written again at once.
const REWRITE_BYTES: usize = 1 << 20;

impl Walk<'_> {
    /// Makes what was found what is there: later segments and the tail are
    /// removed for good, the rest is durable.
    pub(super) fn settle(mut self, names: &[String], tail: Tail) -> Result<Recovered, DiskError> {
        let clean = self.checkpoint.as_ref().is_some_and(|known| known.clean) && !tail.jumped;
        let same_boot = self.is_same_boot();
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
        let incarnation = self.next_incarnation(clean, same_boot, tail.uncounted);
        let first = match self.segments.first() {
            Some(oldest) => oldest.base,
            None => end,
        }
        .max(first);
        let (removed_from, removed_reason) = match &self.checkpoint {
            // The oldest segments are lost: what is missing before the first offset from now
            // on was not removed on purpose.
            Some(known) if first > known.first => (known.first, Some(GapReason::Damaged)),
            Some(known) => (known.removed_from, known.removed_reason),
            None => (first, None),
        };
        if let Some(known) = &self.checkpoint
            && let Some(reason) = known.removed_reason
            && !clean
        {
            // Whoever had to record it may have died before it did.
            let gap = Gap {
                incarnation: self.open.incarnation,
                first: known.removed_from,
                end: known.first,
                reason,
                time: self.open.unix_ns,
            };
            self.report.gaps.insert(0, gap);
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
    fn next_incarnation(&mut self, clean: bool, same_boot: bool, uncounted: bool) -> Incarnation {
        let known = self.checkpoint.as_ref();
        let promised = known.map_or(self.open.durability, |known| known.durability);
        let power_loss = !clean && !same_boot && promised < Durability::Synced;
        let lost_all = known.is_none() && self.segments.is_empty();
        let damaged = lost_all || uncounted && !power_loss;
        let mut incarnation = self.incarnation_found();
        if power_loss || damaged {
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
            let reason = match damaged {
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
                None => !name.starts_with(crate::segment::SPARE_PREFIX),
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
