//! The newest external data, kept in memory while somebody reads along: what was
//! just written is not read back, nor verified again.
//!
//! What is kept is the memory that a chunk was written from, shared, not a copy.
//! It is found by its place in the data file, which a reader learns from a batch
//! that was appended, behind its data; whatever is not here is read from the file.

use bytes::Bytes;
use memory::{Budget, Reservation};
use std::collections::BTreeMap;
use wire::Offset;

/// Most bytes that all partitions of a kind keep together.
pub(crate) const DATA_TAILS_BYTES_MAX: u64 = 64 << 20;

/// For how long a chunk is kept if nothing follows.
const KEPT_NS_MAX: u64 = 1_000_000_000;

/// The newest chunks of a partition's data.
pub(super) struct DataTail {
    /// Shared by all partitions of the kind.
    budget: Budget,
    bytes_max: u64,
    /// By data file and position, which is the order in which places were
    /// reserved: the first is the oldest.
    kept: BTreeMap<(Offset, u64), Kept>,
    bytes: u64,
    /// How much was reserved when somebody last read near the end.
    read_at: Option<u64>,
    last_add: u64,
}

struct Kept {
    chunk: Bytes,
    reservation: Reservation,
}

impl DataTail {
    pub(super) fn new(budget: Budget, bytes_max: u64) -> Self {
        Self {
            budget,
            bytes_max,
            kept: BTreeMap::new(),
            bytes: 0,
            read_at: None,
            last_add: 0,
        }
    }

    /// Somebody reads so far behind the end; `reserved` is how much has been, ever.
    /// Who is too far behind would never find anything here.
    pub(super) fn is_read(&mut self, behind: u64, reserved: u64) {
        if behind <= self.bytes_max.saturating_mul(2) {
            self.read_at = Some(reserved);
        }
    }

    /// Takes note of a chunk that is being written, and keeps it if somebody
    /// reads along: otherwise its memory is needed again at once.
    pub(super) fn add(
        &mut self,
        base: Offset,
        position: u64,
        chunk: Bytes,
        reserved: u64,
        now: u64,
    ) {
        let bytes = chunk.len() as u64;
        self.last_add = now;
        let read_along = self
            .read_at
            .is_some_and(|at| reserved - at <= self.bytes_max);
        if !read_along {
            return self.clear();
        }
        if bytes > self.bytes_max {
            return;
        }
        while self.bytes + bytes > self.bytes_max {
            self.drop_oldest();
        }
        let reservation = loop {
            if let Ok(reservation) = self.budget.try_reserve(bytes) {
                break reservation;
            }
            if self.kept.is_empty() {
                return;
            }
            self.drop_oldest();
        };
        self.bytes += bytes;
        let kept = Kept { chunk, reservation };
        if let Some(before) = self.kept.insert((base, position), kept) {
            self.bytes -= before.reservation.bytes();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some((_, oldest)) = self.kept.pop_first() {
            self.bytes -= oldest.reservation.bytes();
        }
    }

    /// The bytes from `start` to `end` of a data file, if all of them are here.
    pub(super) fn find(&self, base: Offset, start: u64, end: u64) -> Option<Vec<Bytes>> {
        let mut pieces = Vec::new();
        let mut at = start;
        while at < end {
            let before = self.kept.range((base, 0)..=(base, at)).next_back();
            let ((_, position), kept) = before?;
            let from = usize::try_from(at - position).ok()?;
            let to = kept.chunk.len().min((end - position) as usize);
            if from >= to {
                return None;
            }
            pieces.push(kept.chunk.slice(from..to));
            at = position + to as u64;
        }
        Some(pieces)
    }

    /// What lies there in a data file is not what it was, or is to be written anew.
    pub(super) fn forget(&mut self, base: Offset, start: u64, end: u64) {
        while let Some((key, _)) = self.kept.range((base, start)..(base, end)).next() {
            let key = *key;
            if let Some(gone) = self.kept.remove(&key) {
                self.bytes -= gone.reservation.bytes();
            }
        }
    }

    /// Lets go of what has lain for long enough.
    pub(super) fn tick(&mut self, now: u64) {
        if self.next_tick().is_some_and(|at| at <= now) {
            self.clear();
        }
    }

    pub(super) fn next_tick(&self) -> Option<u64> {
        (!self.kept.is_empty()).then(|| self.last_add.saturating_add(KEPT_NS_MAX))
    }

    pub(super) fn clear(&mut self) {
        self.kept.clear();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Offset = Offset(7);

    fn tail(bytes_max: u64) -> DataTail {
        let mut tail = DataTail::new(Budget::new("tails_bytes_max", 1000), bytes_max);
        tail.is_read(0, 0);
        tail
    }

    fn add(tail: &mut DataTail, position: u64, bytes: &'static [u8]) {
        tail.add(BASE, position, Bytes::from_static(bytes), 0, 5);
    }

    fn found(tail: &DataTail, start: u64, end: u64) -> Option<Vec<u8>> {
        let pieces = tail.find(BASE, start, end)?;
        Some(pieces.concat())
    }

    #[test]
    fn what_is_here_whole_is_found_wherever_chunks_end() {
        let mut tail = tail(100);
        add(&mut tail, 10, b"abcd");
        add(&mut tail, 14, b"efgh");
        add(&mut tail, 20, b"xy");
        assert_eq!(found(&tail, 10, 18).unwrap(), b"abcdefgh");
        assert_eq!(found(&tail, 12, 15).unwrap(), b"cde");
        assert_eq!(found(&tail, 16, 16).unwrap(), b"");
        for (start, end) in [(9, 11), (17, 21), (18, 19), (20, 23)] {
            assert_eq!(found(&tail, start, end), None, "{start} to {end}");
        }
        assert!(tail.find(Offset(8), 10, 12).is_none());
    }

    #[test]
    fn the_oldest_go_for_the_newest_and_nothing_is_kept_for_nobody() {
        let mut tail = tail(8);
        for (position, chunk) in [(0, b"aaaa"), (4, b"bbbb"), (8, b"cccc")] {
            add(&mut tail, position, chunk);
        }
        assert_eq!(found(&tail, 0, 4), None);
        assert_eq!(found(&tail, 4, 12).unwrap(), b"bbbbcccc");
        // More was reserved since somebody read than is kept.
        tail.add(BASE, 12, Bytes::from_static(b"dddd"), 9, 5);
        assert_eq!((found(&tail, 4, 8), tail.bytes), (None, 0));
        // Whoever lags behind finds nothing here, and is no reason to keep any.
        tail.is_read(17, 9);
        tail.add(BASE, 12, Bytes::from_static(b"dddd"), 9, 5);
        assert_eq!(tail.bytes, 0);
    }

    #[test]
    fn a_place_that_is_written_anew_gives_what_was_written_last() {
        let mut tail = tail(100);
        add(&mut tail, 0, b"aaaa");
        add(&mut tail, 4, b"bbbb");
        add(&mut tail, 8, b"cccc");
        tail.forget(BASE, 0, 8);
        add(&mut tail, 0, b"dd");
        assert_eq!(found(&tail, 0, 4), None);
        assert_eq!(found(&tail, 0, 2).unwrap(), b"dd");
        assert_eq!(found(&tail, 8, 12).unwrap(), b"cccc");
        add(&mut tail, 0, b"ee");
        assert_eq!(
            (found(&tail, 0, 2).unwrap(), tail.bytes),
            (b"ee".to_vec(), 6)
        );
        let at = tail.next_tick().unwrap();
        tail.tick(at - 1);
        assert!(found(&tail, 0, 2).is_some());
        tail.tick(at);
        assert_eq!(
            tail.budget.try_reserve(1000).map(|all| all.bytes()).ok(),
            Some(1000)
        );
    }
}
