//! A segment: its header, and the names of its files. The layout is `docs/format/log.md`.

use crate::producers::ProducerTable;
use bytes::Bytes;
use std::path::{Path, PathBuf};
use wire::batch::{Header, LocalStamp, STAMP_BYTES, Stamp};
use wire::checksum::crc32c;
use wire::codec::DecodeError;
use wire::{Incarnation, Offset, PartitionIndex, TopicId};

/// Bytes of the header at the start of a segment's log.
pub const SEGMENT_HEADER_BYTES: u64 = 128;
const MAGIC: u32 = u32::from_le_bytes(*b"TWsg");
/// Names of files of removed segments that may be written again.
pub(crate) const SPARE_PREFIX: &str = "spare-";

/// What a segment's log starts with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Random; the batches of this segment carry it, those left over in a
    /// recycled file another one.
    pub salt: u64,
    pub topic: TopicId,
    pub partition: PartitionIndex,
    /// The partition's life in which the segment was begun.
    pub incarnation: Incarnation,
    /// The offset of the segment's first event.
    pub base_offset: Offset,
    /// Base offset of the segment before; its own if it is the first ever.
    pub previous_base: Offset,
    /// The oldest segment whose data file this segment's batches may refer to.
    pub data_since: Offset,
    /// When the segment was begun, nanoseconds since 1970.
    pub created: u64,
}

impl SegmentHeader {
    /// The header as bytes.
    pub fn to_bytes(self) -> [u8; SEGMENT_HEADER_BYTES as usize] {
        let mut out = [0; SEGMENT_HEADER_BYTES as usize];
        out[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        out[8..10].copy_from_slice(&crate::fixed::VERSION.to_le_bytes());
        out[10..12].copy_from_slice(&(SEGMENT_HEADER_BYTES as u16).to_le_bytes());
        // 12..16 are feature bits, none so far.
        out[16..24].copy_from_slice(&self.salt.to_le_bytes());
        out[24..28].copy_from_slice(&self.partition.0.to_le_bytes());
        // 28..32 are reserved and zero.
        out[32..48].copy_from_slice(&self.topic.0.to_le_bytes());
        out[48..56].copy_from_slice(&self.incarnation.0.to_le_bytes());
        out[56..64].copy_from_slice(&self.base_offset.0.to_le_bytes());
        out[64..72].copy_from_slice(&self.previous_base.0.to_le_bytes());
        out[72..80].copy_from_slice(&self.data_since.0.to_le_bytes());
        out[80..88].copy_from_slice(&self.created.to_le_bytes());
        // 88..128 are reserved and zero.
        let crc = crc32c(&out[8..]);
        out[4..8].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads and checks the header that `bytes` starts with.
    pub fn read(bytes: &[u8]) -> Result<Self, DecodeError> {
        const WHAT: &str = "segment header";
        let bytes = crate::fixed::checked(WHAT, bytes, SEGMENT_HEADER_BYTES as usize, MAGIC)?;
        let word = |at| crate::fixed::u64_at(bytes, at);
        crate::fixed::zero(WHAT, bytes, 28..32)?;
        crate::fixed::zero(WHAT, bytes, 88..128)?;
        Ok(Self {
            salt: word(16),
            partition: PartitionIndex(crate::fixed::u32_at(bytes, 24)),
            topic: TopicId(u128::from(word(32)) | u128::from(word(40)) << 64),
            incarnation: Incarnation(word(48)),
            base_offset: Offset(word(56)),
            previous_base: Offset(word(64)),
            data_since: Offset(word(72)),
            created: word(80),
        })
    }
}

/// The files of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SegmentFile {
    /// Batches.
    Log,
    /// External data.
    Data,
    /// Where batches lie; can be made again.
    Index,
}

impl SegmentFile {
    const ALL: [(Self, &'static str); 3] = [
        (Self::Log, "log"),
        (Self::Data, "data"),
        (Self::Index, "index"),
    ];

    /// Where this file of the segment at `base` is.
    pub fn path(self, directory: &Path, base: Offset) -> PathBuf {
        let suffix = Self::ALL[self as usize].1;
        directory.join(format!("{:020}.{suffix}", base.0))
    }

    /// Which file of which segment has this name.
    pub fn of_name(name: &str) -> Option<(Self, Offset)> {
        let (base, suffix) = name.split_once('.')?;
        let (file, _) = Self::ALL.into_iter().find(|(_, known)| *known == suffix)?;
        if base.len() != 20 || !base.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        Some((file, Offset(base.parse().ok()?)))
    }
}

/// What a segment's log starts with: its header and the producers' state.
pub(crate) fn segment_start(header: &SegmentHeader, producers: &ProducerTable) -> Vec<Bytes> {
    let mut snapshot = producers.snapshot(header.topic).to_vec();
    let (_, header_crc) =
        Header::read(&snapshot[STAMP_BYTES..]).expect("the snapshot was just made");
    let stamp = Stamp {
        batch_bytes: snapshot.len() as u64,
        base_offset: header.base_offset,
        append_time: header.created,
        header_crc,
        ..Stamp::default()
    };
    stamp.write(&mut snapshot);
    let local = LocalStamp {
        segment_salt: header.salt,
        ..LocalStamp::default()
    };
    local.write(&mut snapshot);
    vec![
        Bytes::copy_from_slice(&header.to_bytes()),
        Bytes::from(snapshot),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_back_and_every_flipped_bit_is_noticed() {
        let header = SegmentHeader {
            salt: 0x0123_4567_89ab_cdef,
            topic: TopicId(7 << 100 | 9),
            partition: PartitionIndex(3),
            incarnation: Incarnation(2),
            base_offset: Offset(1000),
            previous_base: Offset(900),
            data_since: Offset(800),
            created: 1_700_000_000_000_000_000,
        };
        let bytes = header.to_bytes();
        assert_eq!(SegmentHeader::read(&bytes), Ok(header));
        assert!(SegmentHeader::read(&bytes[..127]).is_err());
        for bit in 0..bytes.len() * 8 {
            let mut bytes = bytes;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(SegmentHeader::read(&bytes).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn names_sort_like_offsets_and_foreign_names_are_none() {
        let path = SegmentFile::Data.path(Path::new("x"), Offset(42));
        assert_eq!(path, Path::new("x/00000000000000000042.data"));
        let name = path.file_name().unwrap().to_str().unwrap();
        assert_eq!(
            SegmentFile::of_name(name),
            Some((SegmentFile::Data, Offset(42)))
        );
        for name in ["42.log", "checkpoint", "+0000000000000000042.log", "a.b"] {
            assert_eq!(SegmentFile::of_name(name), None, "{name}");
        }
    }
}
