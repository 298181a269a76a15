//! Where batches lie in a segment's log, sparsely. The file's layout is `docs/format/log.md`.

use wire::Offset;

/// Some batches' first offsets and positions, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SparseIndex {
    entries: Vec<(Offset, u64)>,
}

impl SparseIndex {
    /// A batch begins here. Kept if the last entry is `distance` bytes before.
    pub(crate) fn add(&mut self, offset: Offset, position: u64, distance: u64) {
        match self.entries.last() {
            Some((last, at)) if *last >= offset || position < at + distance => {}
            _ => self.entries.push((offset, position)),
        }
    }

    /// The last entry at or before `offset`.
    pub(crate) fn floor(&self, offset: Offset) -> Option<(Offset, u64)> {
        let after = self.entries.partition_point(|(first, _)| *first <= offset);
        self.entries[..after].last().copied()
    }

    /// Forgets what begins at or behind `offset`.
    pub(crate) fn truncate(&mut self, offset: Offset) {
        let keep = self.entries.partition_point(|(first, _)| *first < offset);
        self.entries.truncate(keep);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_keep_their_distance_and_are_found() {
        let mut index = SparseIndex::default();
        for i in 0..100 {
            index.add(Offset(i * 2), 128 + i * 10, 95);
        }
        assert_eq!(index.floor(Offset(0)), Some((Offset(0), 128)));
        assert_eq!(index.floor(Offset(19)), Some((Offset(0), 128)));
        assert_eq!(index.floor(Offset(20)), Some((Offset(20), 228)));
        assert_eq!(index.floor(Offset(u64::MAX)), Some((Offset(180), 1028)));
        index.truncate(Offset(20));
        assert_eq!(index.floor(Offset(500)), Some((Offset(0), 128)));
    }
}
