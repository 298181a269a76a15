//! How much a segment holds, and when the next one is begun. Only whole segments are
//! removed, so that a segment is a part of what a limit of retention allows.

use super::*;

/// The length of segments where little is kept: beginning one and removing one
/// costs a few operations of the file system, whatever it holds.
const SHORT_SEGMENT_BYTES: u64 = 16 << 20;

/// A segment is this part of what a limit of retention allows: so much more
/// than the limit may be there.
const PARTS: u64 = 8;
/// No limit makes a segment shorter than this, in bytes, events and time:
/// beginning and removing it would cost more than its events.
const SEGMENT_BYTES_MIN: u64 = 64 << 10;
const SEGMENT_EVENTS_MIN: u64 = 64;
const SEGMENT_AGE_NS_MIN: u64 = 1_000_000_000;
/// A backlog that retention must spare is held in at most about so many
/// segments, however small the limit is.
const SEGMENTS_HELD: u64 = 256;

impl DiskLog {
    /// How long a segment is to be. What leaves as soon as those have done with it
    /// whom the topic names leaves in pieces of a part of what there is, so that their
    /// files are written again while they are still in memory.
    pub(super) fn segment_bytes(&self) -> u64 {
        let most = self.settings.segment_bytes;
        if self.keeps_unfinished_only() {
            return (self.stored_bytes() / 4).clamp(SHORT_SEGMENT_BYTES.min(most), most);
        }
        match self.open.retention.bytes {
            Some(limit) => part(limit, self.stored_bytes(), SEGMENT_BYTES_MIN).min(most),
            None => most,
        }
    }

    /// How many events a segment is to hold.
    fn segment_events(&self) -> u64 {
        let held = self.end.0 - self.first.0;
        let limit = self.open.retention.count;
        limit.map_or(u64::MAX, |limit| part(limit, held, SEGMENT_EVENTS_MIN))
    }

    /// When the segment that takes appends has taken them for long enough;
    /// `None` if there is no limit by age, or no event in it.
    fn active_due(&self) -> Option<u64> {
        let age = self.open.retention.age_ns?;
        let active = self.segments.back()?;
        // Nor while nothing of it may leave.
        if self.end <= active.base || self.retain.keep_from <= active.base {
            return None;
        }
        let oldest = self.segments.front().map_or(0, |segment| segment.created());
        let held = self.now.saturating_sub(oldest);
        let most = part(age, held, SEGMENT_AGE_NS_MIN);
        Some(active.first_append_time.saturating_add(most))
    }

    pub(super) fn roll_if_full(&mut self, batch_bytes: u64, data: Option<Offset>) {
        let segment_bytes = self.segment_bytes();
        let end = self.end;
        let active = self.active();
        let base = active.base;
        let log_end = active.end;
        let data_end = self.data_files.get(&base).map_or(0, |data| data.end);
        let full = log_end + data_end >= segment_bytes || log_end + batch_bytes > segment_bytes;
        // A segment holds at least one event, so that each has a base offset of its own.
        if end > base && (full || self.active_is_enough()) {
            self.roll(data);
        }
    }

    /// Whether the active segment has as many events as one is to hold, or
    /// has taken them for long enough.
    fn active_is_enough(&self) -> bool {
        let keep = self.open.retention;
        if keep.count.is_none() && keep.age_ns.is_none() {
            return false;
        }
        let base = self.segments.back().map_or(self.end, |active| active.base);
        self.end.0 - base.0 >= self.segment_events()
            || self.active_due().is_some_and(|due| due < self.now)
    }

    /// Begins the next segment if the active one holds what a new limit, or
    /// the time that has passed, makes too much of one.
    pub(super) fn roll_if_due(&mut self) {
        if self.may_roll() {
            self.roll_if_full(0, None);
        }
    }

    /// A limit has changed: files that were made longer than a segment now is give
    /// that back, by being followed by the next. Whether it is.
    pub(super) fn roll_if_too_long(&mut self) -> bool {
        let segment_bytes = self.segment_bytes();
        let is_long = self.segments.back().is_some_and(|active| {
            let data = self.data_files.get(&active.base);
            let bytes = active.length() + data.map_or(0, |data| data.end);
            active.base < self.end && bytes > segment_bytes
        });
        // Where there is no space, too: what the sealed segment gives back may be
        // all there is to get. Should its successor find none, it is taken back.
        let rolls = is_long && self.refusal().is_none() && self.undo.is_none();
        if rolls {
            self.roll(None);
        }
        rolls
    }

    /// When [`DiskLog::roll_if_due`] has something to do next.
    pub(super) fn next_roll(&self) -> Option<u64> {
        let due = self.active_due().filter(|_| self.may_roll())?;
        Some(due.saturating_add(1))
    }

    /// Whether nothing is in the way of beginning a segment while no batch is appended.
    fn may_roll(&self) -> bool {
        self.refusal().is_none() && self.undo.is_none() && !self.space.is_none()
    }
}

/// No segment that was begun under a limit of so many bytes is longer, but for one with
/// a large batch: appends that end it may take it beyond its part.
pub(super) fn longest_for(limit: u64) -> u64 {
    2 * part(limit, 0, SEGMENT_BYTES_MIN)
}

/// What of `limit` a segment is to hold, where `held` is there.
fn part(limit: u64, held: u64, least: u64) -> u64 {
    (limit / PARTS).max(held / SEGMENTS_HELD).max(least)
}
