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
    let mut blocks = checksums.into_iter();
    let whole = bytes / u64::from(block_bytes);
    let rest = bytes % u64::from(block_bytes);
    let mut crc = 0;
    if whole < APPENDED_MIN {
        for block in blocks.by_ref().take(whole as usize) {
            crc = crc32c_combine(crc, block, u64::from(block_bytes));
        }
    } else {
        let append = Appended::new(block_bytes);
        for block in blocks.by_ref().take(whole as usize) {
            crc = append.to(crc) ^ block;
        }
    }
    match blocks.next() {
        Some(block) if rest > 0 => crc32c_combine(crc, block, rest),
        _ => crc,
    }
}

/// From so many blocks on a table is worth its making.
const APPENDED_MIN: u64 = 32;

/// What a checksum becomes when so many bytes are appended, apart from these
/// bytes' own checksum: a linear map, as four tables of 256 words.
struct Appended([[u32; 256]; 4]);

impl Appended {
    fn new(bytes: u32) -> Self {
        let mut tables = [[0; 256]; 4];
        for (index, table) in tables.iter_mut().enumerate() {
            for bit in 0..8 {
                let image = crc32c_combine(1 << (index * 8 + bit), 0, u64::from(bytes));
                for value in 0..1 << bit {
                    table[value | 1 << bit] = table[value] ^ image;
                }
            }
        }
        Self(tables)
    }

    fn to(&self, crc: u32) -> u32 {
        let [a, b, c, d] = crc.to_le_bytes().map(usize::from);
        self.0[0][a] ^ self.0[1][b] ^ self.0[2][c] ^ self.0[3][d]
    }
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
        for block_bytes in [1, 4, 512, 4096, 20_000] {
            let blocks = block_checksums(&bytes, block_bytes);
            assert_eq!(
                combine_blocks(blocks, block_bytes, bytes.len() as u64),
                crc32c(&bytes)
            );
        }
        assert_eq!(combine_blocks([], 4096, 0), crc32c(&[]));
    }
}
