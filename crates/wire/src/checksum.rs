//! CRC32C (Castagnoli), the one checksum of every Thalweg format.

/// The checksum of `bytes`.
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// The checksum of the bytes that `crc` covers followed by `bytes`.
#[inline]
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc, bytes)
}

/// The checksum of A followed by B, from their checksums and the length of B.
#[inline]
pub fn crc32c_combine(crc_a: u32, crc_b: u32, b_bytes: u64) -> u32 {
    crc32c::crc32c_combine(crc_a, crc_b, b_bytes as usize)
}

/// The checksums of the blocks of `bytes`; the last block may be short.
pub fn block_checksums(bytes: &[u8], block_bytes: u32) -> impl Iterator<Item = u32> + '_ {
    bytes.chunks(block_bytes as usize).map(crc32c)
}

/// The checksum of a whole event's data, derived from its blocks' checksums.
///
/// `bytes` is the length of the data; every block but the last has
/// `block_bytes`. Empty data has checksum 0.
pub fn combine_blocks(
    checksums: impl IntoIterator<Item = u32>,
    block_bytes: u32,
    bytes: u64,
) -> u32 {
    let mut crc = 0;
    let mut left = bytes;
    for block in checksums {
        let length = left.min(u64::from(block_bytes));
        crc = crc32c_combine(crc, block, length);
        left -= length;
    }
    crc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_value() {
        // RFC 3720, B.4: 32 bytes of zeros.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
    }

    #[test]
    fn blocks_combine_to_the_whole() {
        let bytes: Vec<u8> = (0..10_001u32).map(|i| (i * 7) as u8).collect();
        for block_bytes in [1, 4, 4096, 20_000] {
            let blocks = block_checksums(&bytes, block_bytes);
            assert_eq!(
                combine_blocks(blocks, block_bytes, bytes.len() as u64),
                crc32c(&bytes)
            );
        }
        assert_eq!(combine_blocks([], 4096, 0), crc32c(&[]));
    }
}
