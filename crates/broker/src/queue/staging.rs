//! What was read of a partition for its queue and waits for members with room.

use super::QueuePartition;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;
use wire::batch::{Batch, Columns, Header, STAMP_BYTES, Verify};
use wire::{DecodeError, Offset};

/// Batches that were read and have events that wait, by their first offset.
#[derive(Default)]
pub(crate) struct Staging {
    pub batches: BTreeMap<Offset, Staged>,
    pub bytes: u64,
    /// Events in them that were not given out from here.
    pub events: u64,
    /// Whether a reading is under way.
    pub reading: bool,
    /// A reading that is under way is not wanted any more.
    pub outdated: bool,
    /// When to read again, after a reading failed.
    pub retry_at: Option<Duration>,
    /// What comes next was dropped again: it is not read ahead before something
    /// of this is done with.
    pub is_full: bool,
}

/// A batch that was read.
pub(crate) struct Staged {
    pub batch: Batch<Bytes>,
    pub columns: Columns,
    pub base: Offset,
    /// Behind its last offset.
    pub end: Offset,
    /// Events in it that were not given out from here.
    pub events: u64,
}

impl Staged {
    /// Reads a stored batch, without what a queue has no use for.
    pub fn read(bytes: Bytes) -> Result<Self, DecodeError> {
        let batch = Batch::read(bytes, Verify::Headers)?;
        let columns = batch.columns()?;
        let base = batch.stamp.map_or(Offset(0), |stamp| stamp.base_offset);
        Ok(Self {
            end: base.plus(batch.header.offset_count()),
            events: columns.events.len() as u64,
            batch,
            columns,
            base,
        })
    }

    /// The offset of its event `index`.
    pub fn offset(&self, index: usize) -> Offset {
        let delta = self.columns.events[index].offset_delta;
        self.base.plus(u64::from(delta))
    }

    /// The event at `offset`, or the first behind it.
    pub fn index_from(&self, offset: Offset) -> usize {
        let delta = offset.0.saturating_sub(self.base.0);
        let before = |event: &wire::batch::EventRef| u64::from(event.offset_delta) < delta;
        self.columns.events.partition_point(before)
    }

    /// What an event takes of a member's prefetch.
    pub fn event_bytes(&self, index: usize) -> u64 {
        let event = &self.columns.events[index];
        u64::from(event.metadata_bytes) + event.data_bytes
    }

    /// The hash of an event's key.
    pub fn key(&self, index: usize) -> Option<u64> {
        let (start, bytes) = self.columns.events[index].key?;
        let section = self.batch.columns_section();
        let mut hasher = DefaultHasher::new();
        section[start as usize..(start + bytes) as usize].hash(&mut hasher);
        Some(hasher.finish())
    }

    /// Offsets of it that are no events.
    pub fn holes(&self) -> Vec<(Offset, Offset)> {
        if self.columns.events.len() as u64 == self.end.0 - self.base.0 {
            return Vec::new();
        }
        let mut holes = Vec::new();
        let mut at = self.base;
        for index in 0..self.columns.events.len() {
            let offset = self.offset(index);
            if at < offset {
                holes.push((at, offset));
            }
            at = offset.plus(1);
        }
        if at < self.end {
            holes.push((at, self.end));
        }
        holes
    }

    /// The batch of the events `keep`, or as it is stored if that is all; in
    /// pieces, none of which is a copy where they lie one behind the other.
    pub fn cut(&self, keep: &[u32], inline_data: bool) -> Vec<Bytes> {
        let all = keep.len() == self.columns.events.len();
        let mut pieces = match all {
            true => vec![self.batch.bytes().clone()],
            false => self.batch.cut_pieces(&self.columns, keep),
        };
        if inline_data {
            return pieces;
        }
        let head = Header::read(&pieces[0][STAMP_BYTES..]);
        let mut left = head.map_or(usize::MAX, |(header, _)| header.prefix_bytes() as usize);
        for piece in &mut pieces {
            piece.truncate(left);
            left -= piece.len();
        }
        pieces.retain(|piece| !piece.is_empty());
        pieces
    }
}

impl Staging {
    /// Where the batch is that has `offset`.
    pub fn covering(&self, offset: Offset) -> Option<&Staged> {
        let (_, staged) = self.batches.range(..=offset).next_back()?;
        (offset < staged.end).then_some(staged)
    }

    /// The batches that end behind `offset`, in order.
    pub fn behind(&self, offset: Offset) -> impl Iterator<Item = &Staged> {
        let from = self.covering(offset).map_or(offset, |staged| staged.base);
        self.batches.range(from..).map(|(_, staged)| staged)
    }

    /// Behind the last batch.
    pub fn end(&self) -> Offset {
        let last = self.batches.last_key_value();
        last.map_or(Offset(0), |(_, staged)| staged.end)
    }

    pub fn insert(&mut self, staged: Staged) {
        self.remove(staged.base);
        self.bytes += staged.batch.bytes().len() as u64;
        self.events += staged.events;
        self.batches.insert(staged.base, staged);
    }

    fn remove(&mut self, base: Offset) {
        if let Some(staged) = self.batches.remove(&base) {
            self.bytes -= staged.batch.bytes().len() as u64;
            self.events -= staged.events;
        }
    }

    /// Events of the batch at `base` were given out.
    pub fn given(&mut self, base: Offset, events: u64) {
        if let Some(staged) = self.batches.get_mut(&base) {
            let events = events.min(staged.events);
            staged.events -= events;
            self.events -= events;
        }
    }

    /// Drops batches before `end` of which nothing waits any more.
    pub fn drop_done(&mut self, state: &QueuePartition, end: Offset) {
        let done = self.batches.range(..end);
        let done = done.filter(|(_, staged)| !state.waits_within(staged.base, staged.end));
        let done: Vec<Offset> = done.map(|(base, _)| *base).collect();
        self.is_full &= done.is_empty();
        done.into_iter().for_each(|base| self.remove(base));
    }

    /// Drops batches of which nothing waits now, then what comes last, down to
    /// `bytes_max` or one batch: it is read again. Were the first ones kept,
    /// what was just read would be dropped for them, again and again.
    pub fn bound(&mut self, state: &QueuePartition, bytes_max: u64) {
        if self.bytes > bytes_max {
            self.drop_done(state, Offset(u64::MAX));
        }
        while self.bytes > bytes_max
            && self.batches.len() > 1
            && let Some((base, _)) = self.batches.last_key_value()
        {
            self.remove(*base);
            self.is_full = true;
        }
    }

    /// Drops everything, also what is on its way.
    pub fn clear(&mut self) {
        self.batches.clear();
        self.is_full = false;
        (self.bytes, self.events) = (0, 0);
        self.outdated = self.reading;
    }
}
