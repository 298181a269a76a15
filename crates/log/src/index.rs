//! Where batches lie in a segment's log, sparsely. The file's layout is `docs/format/log.md`.

use crate::fixed::{VERSION, checked_header, u64_at};
use wire::Offset;
use wire::checksum::crc32c;
use wire::codec::DecodeError;

/// Bytes before the entries.
const HEADER_BYTES: usize = 32;
const ENTRY_BYTES: usize = 16;
/// Bytes of the largest file that is read: of what lies beyond, batches are
/// found by their headers.
pub(crate) const INDEX_BYTES_MAX: usize = 1 << 20;
const MAGIC: u32 = u32::from_le_bytes(*b"TWix");

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

    /// The file's bytes.
    pub(crate) fn to_bytes(&self, salt: u64) -> Vec<u8> {
        let count = self
            .entries
            .len()
            .min((INDEX_BYTES_MAX - HEADER_BYTES) / ENTRY_BYTES);
        let mut out = vec![0; HEADER_BYTES];
        out[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        out[8..10].copy_from_slice(&VERSION.to_le_bytes());
        out[10..12].copy_from_slice(&(HEADER_BYTES as u16).to_le_bytes());
        out[16..24].copy_from_slice(&salt.to_le_bytes());
        out[24..32].copy_from_slice(&(count as u64).to_le_bytes());
        for (offset, position) in &self.entries[..count] {
            out.extend_from_slice(&offset.0.to_le_bytes());
            out.extend_from_slice(&position.to_le_bytes());
        }
        let crc = crc32c(&out[8..]);
        out[4..8].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads a file's bytes, if they are the index of the segment of this salt.
    pub(crate) fn read(bytes: &[u8], salt: u64) -> Result<Self, DecodeError> {
        const WHAT: &str = "segment index";
        let all = |bytes: &[u8]| {
            let count = usize::try_from(u64_at(bytes, 24)).ok()?;
            count.checked_mul(ENTRY_BYTES)?.checked_add(HEADER_BYTES)
        };
        let bytes = checked_header(WHAT, bytes, HEADER_BYTES, MAGIC, all)?;
        if u64_at(bytes, 16) != salt {
            return Err(DecodeError::value(WHAT, 16, "salt", u64_at(bytes, 16)));
        }
        let entries = bytes[HEADER_BYTES..].chunks_exact(ENTRY_BYTES);
        let entries = entries.map(|entry| (Offset(u64_at(entry, 0)), u64_at(entry, 8)));
        Ok(Self {
            entries: entries.collect(),
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
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
    fn a_file_is_read_back_and_every_flipped_bit_is_noticed() {
        let mut index = SparseIndex::default();
        for i in 0..10 {
            index.add(Offset(i * 2), 128 + i * 10, 1);
        }
        let bytes = index.to_bytes(77);
        assert_eq!(SparseIndex::read(&bytes, 77), Ok(index));
        assert!(SparseIndex::read(&bytes, 78).is_err());
        for length in 0..bytes.len() {
            assert!(SparseIndex::read(&bytes[..length], 77).is_err(), "{length}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(SparseIndex::read(&bytes, 77).is_err(), "bit {bit}");
        }
    }

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
