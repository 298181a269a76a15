//! The newest batches, kept in memory while somebody reads along: he is given
//! what was appended, not what would be read back.
//!
//! What is kept is the memory that the batch came in and was written from,
//! shared, not a copy. It is given out only once it is written, and it is never
//! a promise: whatever is not here is read from the log.

use super::log_position::LogPosition;
use crate::storage::{Found, ReadBatches};
use bytes::Bytes;
use memory::{Budget, Buffer, Reservation};
use std::collections::VecDeque;
use wire::Offset;
use wire::batch::Header;

/// Most bytes that all partitions of a kind keep together.
pub(crate) const TAILS_BYTES_MAX: u64 = 64 << 20;

/// For how long a batch is kept if nothing is appended behind it.
const KEPT_NS_MAX: u64 = 1_000_000_000;

/// The newest batches, one behind the other, up to the end of the partition.
pub(super) struct Tail {
    /// Shared by all partitions of the kind.
    budget: Budget,
    bytes_max: u64,
    kept: VecDeque<Kept>,
    /// Memory that they take.
    bytes: u64,
    /// Bytes that were appended, ever, and how many these were when somebody
    /// last read along.
    appended: u64,
    read_at: Option<u64>,
    last_append: u64,
}

struct Kept {
    at: LogPosition,
    next: Offset,
    batch: Bytes,
    /// How much of it is there for who wants no inline data.
    prefix_bytes: usize,
    has_events: bool,
    reservation: Reservation,
}

impl Tail {
    pub(super) fn new(budget: Budget, bytes_max: u64) -> Self {
        Self {
            budget,
            bytes_max,
            kept: VecDeque::new(),
            bytes: 0,
            appended: 0,
            read_at: None,
            last_append: 0,
        }
    }

    /// Takes note of an appended batch, and keeps it if somebody reads along:
    /// otherwise its memory is needed again at once, while it is in the cache.
    pub(super) fn append(
        &mut self,
        at: LogPosition,
        header: &Header,
        batch: Buffer,
        now: u64,
    ) -> Bytes {
        let memory_bytes = batch.memory_bytes() as u64;
        let batch = batch.freeze();
        self.appended += batch.len() as u64;
        self.last_append = now;
        // What takes offsets and has no events is no batch to a reader: it is given a gap, by
        // the log.
        let is_hole = header.offset_count() > 0 && !header.has_events();
        match self.reserve(memory_bytes) {
            Some(reservation) if !is_hole => {
                trace::passes!("kept in memory for readers");
                self.bytes += reservation.bytes();
                self.kept.push_back(Kept {
                    at,
                    next: at.offset.plus(header.offset_count()),
                    prefix_bytes: header.prefix_bytes() as usize,
                    has_events: header.offset_count() > 0,
                    batch: batch.clone(),
                    reservation,
                });
            }
            _ => self.clear(),
        }
        batch
    }

    /// Makes room for so many bytes; the oldest go for it.
    fn reserve(&mut self, bytes: u64) -> Option<Reservation> {
        let read_at = self.read_at?;
        if bytes > self.bytes_max || self.appended - read_at > self.bytes_max {
            return None;
        }
        while self.bytes + bytes > self.bytes_max {
            self.drop_oldest();
        }
        loop {
            if let Ok(reservation) = self.budget.try_reserve(bytes) {
                return Some(reservation);
            }
            if self.kept.is_empty() {
                return None;
            }
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some(oldest) = self.kept.pop_front() {
            self.bytes -= oldest.reservation.bytes();
        }
    }

    /// Somebody has read up to the end, or from here.
    pub(super) fn is_read(&mut self) {
        self.read_at = Some(self.appended);
    }

    /// The batch that holds `offset`, if it is here.
    fn index_of(&self, offset: Offset) -> Option<usize> {
        let first = self.kept.front()?.at.offset;
        let index = self.kept.partition_point(|kept| kept.next <= offset);
        (first <= offset && index < self.kept.len()).then_some(index)
    }

    /// The batch that holds `offset`, as it is stored.
    pub(super) fn batch_of(&self, offset: Offset) -> Option<Bytes> {
        self.index_of(offset)
            .map(|index| self.kept[index].batch.clone())
    }

    /// What a reading finds here below `end`; `None` if it does not begin
    /// here. With it comes where the reader goes on, if that is known.
    pub(super) fn find(
        &self,
        read: &ReadBatches,
        end: Offset,
    ) -> Option<(Found, Option<LogPosition>)> {
        let from = self.index_of(read.from)?;
        let (mut batches, mut bytes, mut next) = (Vec::new(), 0, read.from);
        let mut behind = None;
        for kept in self.kept.range(from..) {
            let length = match read.inline_data {
                true => kept.batch.len(),
                false => kept.prefix_bytes,
            };
            let full = !batches.is_empty() && bytes + length as u64 > read.bytes_max;
            if kept.at.offset >= end || full {
                behind = Some(kept.at);
                break;
            }
            bytes += length as u64;
            next = kept.next;
            if kept.has_events {
                batches.push(kept.batch.slice(..length));
            }
        }
        let found = match batches.is_empty() {
            true => Found::Nothing,
            false => Found::Batches { batches, next },
        };
        Some((found, behind))
    }

    /// What was appended from `from` on is taken back.
    pub(super) fn retract(&mut self, from: Offset) {
        while self.kept.back().is_some_and(|newest| newest.next > from) {
            if let Some(newest) = self.kept.pop_back() {
                self.bytes -= newest.reservation.bytes();
            }
        }
    }

    /// Nothing before `first` is there any more.
    pub(super) fn remove_before(&mut self, first: Offset) {
        while self.kept.front().is_some_and(|oldest| oldest.next <= first) {
            self.drop_oldest();
        }
    }

    /// Lets go of what has lain for long enough.
    pub(super) fn tick(&mut self, now: u64) {
        if self.next_tick().is_some_and(|at| at <= now) {
            self.clear();
        }
    }

    pub(super) fn next_tick(&self) -> Option<u64> {
        (!self.kept.is_empty()).then(|| self.last_append.saturating_add(KEPT_NS_MAX))
    }

    pub(super) fn clear(&mut self) {
        self.kept.clear();
        self.bytes = 0;
    }
}
