//! The chunk: a piece of a session's bytes on one of its connections, where a session has several. The layout is
//! `docs/format/wire-stripes.md`.

use crate::checksum::crc32c;

/// Bytes of a chunk's header.
pub const CHUNK_HEADER_BYTES: usize = 16;
/// The most bytes of the stream in one chunk.
pub const CHUNK_BYTES_MAX: usize = 128 * 1024;
/// The byte at 13 of every header.
pub const CHUNK_MAGIC: u8 = 0x8a;
/// A chunk may be numbered so far ahead of the one that is due: more than any sockets hold.
pub const CHUNKS_AHEAD_MAX: u64 = 1 << 32;

/// A flag: since its chunk before this one the sender has had bytes that none of its connections took.
pub const CHUNK_LIMITED: u8 = 1;
/// A flag: the sender sends no chunk of this number and none behind it. It has no bytes, and is the last on each connection.
pub const CHUNK_END: u8 = 2;

/// What a chunk says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkHeader {
    /// Which chunk of its direction it is, counted from 0.
    pub sequence: u64,
    /// Bytes of the stream that follow.
    pub bytes: u32,
    /// [`CHUNK_LIMITED`], [`CHUNK_END`].
    pub flags: u8,
}

impl ChunkHeader {
    /// Its bytes.
    pub fn to_bytes(&self) -> [u8; CHUNK_HEADER_BYTES] {
        let mut bytes = [0; CHUNK_HEADER_BYTES];
        bytes[..8].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[12] = self.flags;
        bytes[13] = CHUNK_MAGIC;
        let check = crc32c(&bytes[..14]) as u16;
        bytes[14..].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    /// Of its bytes.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn read(bytes: &[u8; CHUNK_HEADER_BYTES]) -> Result<Self, String> {
        let (number, rest) = bytes.split_first_chunk::<8>().expect("of 16 bytes");
        let (length, rest) = rest.split_first_chunk::<4>().expect("of 8 bytes");
        let [flags, magic, check @ ..] = rest else {
            unreachable!("4 bytes are left");
        };
        if *magic != CHUNK_MAGIC {
            return Err(format!(
                "a chunk with {magic:#04x} at 13, expected {CHUNK_MAGIC:#04x}"
            ));
        }
        let found = crc32c(&bytes[..14]) as u16;
        if found.to_le_bytes() != *check {
            return Err(format!(
                "a chunk whose header's checksum is {found:#06x}, and not what it says"
            ));
        }
        let header = Self {
            sequence: u64::from_le_bytes(*number),
            bytes: u32::from_le_bytes(*length),
            flags: *flags,
        };
        if header.flags & !(CHUNK_LIMITED | CHUNK_END) != 0 {
            return Err(format!(
                "chunk {} with unknown flags {flags:#04x}",
                header.sequence
            ));
        }
        let is_end = header.flags & CHUNK_END != 0;
        if header.bytes as usize > CHUNK_BYTES_MAX || (header.bytes == 0) != is_end {
            return Err(format!(
                "chunk {} of {} bytes; it has 1 to {CHUNK_BYTES_MAX}, and at the end none",
                header.sequence, header.bytes
            ));
        }
        Ok(header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_what_was_written_and_nothing_else_is_one() {
        let header = ChunkHeader {
            sequence: 7,
            bytes: CHUNK_BYTES_MAX as u32,
            flags: CHUNK_LIMITED,
        };
        let bytes = header.to_bytes();
        assert_eq!(ChunkHeader::read(&bytes), Ok(header));
        for at in 0..CHUNK_HEADER_BYTES {
            for bit in 0..8 {
                let mut other = bytes;
                other[at] ^= 1 << bit;
                assert!(ChunkHeader::read(&other).is_err(), "bit {bit} of byte {at}");
            }
        }
    }

    #[test]
    fn a_header_with_a_good_checksum_is_still_held_to_the_bounds() {
        let refused = |header: ChunkHeader| ChunkHeader::read(&header.to_bytes()).unwrap_err();
        let header = |bytes, flags| ChunkHeader {
            sequence: 1,
            bytes,
            flags,
        };
        assert!(refused(header(0, 0)).contains("0 bytes"));
        assert!(refused(header(1, CHUNK_END)).contains("at the end none"));
        assert!(refused(header(CHUNK_BYTES_MAX as u32 + 1, 0)).contains("131073"));
        assert!(refused(header(1, 4)).contains("flags"));
    }
}
