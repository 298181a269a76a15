//! CRC32C (Castagnoli), the one checksum of every Thalweg format.

use crc_fast::{CrcAlgorithm, Digest};
use std::sync::OnceLock;

/// The checksum of `bytes`.
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// The checksum of the bytes that `crc` covers followed by `bytes`.
#[inline]
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    let state = u64::from(!crc);
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, state);
    digest.update(bytes);
    digest.finalize() as u32
}

/// The checksum of A followed by B, from their checksums and the length of B.
///
/// Costs a few nanoseconds where that length is a power of two, as blocks'
/// lengths are: an event of gigabytes has millions of blocks.
#[inline]
pub fn crc32c_combine(crc_a: u32, crc_b: u32, b_bytes: u64) -> u32 {
    let mut crc = crc_a;
    let mut left = b_bytes;
    while left != 0 {
        crc = zeros(left.trailing_zeros()).append_to(crc);
        left &= left - 1;
    }
    crc ^ crc_b
}

/// What 2^n zero bytes, appended, make of a checksum. That is linear over the
/// bits of the checksum, so that four look-ups give it, one for each byte.
struct Zeros([[u32; 256]; 4]);

impl Zeros {
    #[inline]
    fn append_to(&self, crc: u32) -> u32 {
        let [a, b, c, d] = crc.to_le_bytes().map(usize::from);
        self.0[0][a] ^ self.0[1][b] ^ self.0[2][c] ^ self.0[3][d]
    }

    /// From what they make of each single bit.
    fn of_bits(bit: impl Fn(u32) -> u32) -> Self {
        let mut table = [[0; 256]; 4];
        for (place, entries) in table.iter_mut().enumerate() {
            for value in 1..256usize {
                // The lowest bit's, and what is known of the others.
                let lowest = value.trailing_zeros() + 8 * place as u32;
                entries[value] = bit(1 << lowest) ^ entries[value & (value - 1)];
            }
        }
        Self(table)
    }
}

/// 2^`log2` zero bytes; made at their first use.
fn zeros(log2: u32) -> &'static Zeros {
    static TABLES: [OnceLock<Box<Zeros>>; 64] = [const { OnceLock::new() }; 64];
    TABLES[log2 as usize].get_or_init(|| {
        Box::new(match log2 {
            // What a byte of zero adds by itself taken off again.
            0 => Zeros::of_bits(|crc| crc32c_append(crc, &[0]) ^ crc32c(&[0])),
            _ => {
                let half = zeros(log2 - 1);
                Zeros::of_bits(|crc| half.append_to(half.append_to(crc)))
            }
        })
    })
}

/// The checksums of the blocks of `bytes`; the last block may be short.
pub fn block_checksums(bytes: &[u8], block_bytes: u32) -> impl Iterator<Item = u32> + '_ {
    bytes.chunks(block_bytes as usize).map(crc32c)
}

/// The checksum of a whole event's data, derived from its blocks' checksums.
///
/// `bytes` is the length of the data; every block but the last has
/// `block_bytes`. Empty data has checksum 0.
pub fn combine_blocks(checksums: &[u32], block_bytes: u32, bytes: u64) -> u32 {
    const LANES: usize = 4;
    let whole = usize::try_from(bytes / u64::from(block_bytes)).unwrap_or(usize::MAX);
    let (whole, rest) = checksums.split_at(whole.min(checksums.len()));
    // Each step waits for the one before it. Those of four runs of blocks do
    // not wait for one another: an event of gigabytes has millions of blocks.
    let run = whole.len() / LANES;
    let mut crcs = [0; LANES];
    let block = u64::from(block_bytes);
    // Looked for once, and not for each block.
    let zeros = block
        .is_power_of_two()
        .then(|| zeros(block.trailing_zeros()));
    let combine = |crc: u32, next: u32| match zeros {
        Some(zeros) => zeros.append_to(crc) ^ next,
        None => crc32c_combine(crc, next, block),
    };
    for at in 0..run {
        for (lane, crc) in crcs.iter_mut().enumerate() {
            *crc = combine(*crc, whole[lane * run + at]);
        }
    }
    let run_bytes = run as u64 * block;
    let joined = crcs
        .into_iter()
        .reduce(|before, crc| crc32c_combine(before, crc, run_bytes));
    let mut crc = joined.expect("there are lanes");
    for of_block in &whole[run * LANES..] {
        crc = crc32c_combine(crc, *of_block, block);
    }
    match rest.first() {
        Some(last) => crc32c_combine(crc, *last, bytes % block),
        None => crc,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crc_fast::checksum_combine;

    #[test]
    fn appending_is_the_checksum_of_both() {
        let bytes: Vec<u8> = (0..5_000u32).map(|i| ((i * 31) >> 3) as u8).collect();
        for cut in [0, 1, 15, 16, 17, 255, 256, 1023, 4096, 5000] {
            let (a, b) = bytes.split_at(cut);
            assert_eq!(crc32c_append(crc32c(a), b), crc32c(&bytes));
        }
        assert_eq!(crc32c_append(0, b"123456789"), 0xe306_9283);
    }

    #[test]
    fn known_value() {
        // RFC 3720, B.4: 32 bytes of zeros.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
    }

    #[test]
    fn combination_is_the_checksum_of_both() {
        let bytes: Vec<u8> = (0..70_000u32).map(|i| ((i * 31) >> 3) as u8).collect();
        for cut in [
            0, 1, 2, 3, 7, 512, 4096, 4097, 65_535, 65_536, 69_999, 70_000,
        ] {
            let (a, b) = bytes.split_at(cut);
            assert_eq!(
                crc32c_combine(crc32c(a), crc32c(b), b.len() as u64),
                crc32c(&bytes)
            );
        }
        // Lengths that no test can hold, against the library's own arithmetic.
        for b_bytes in [1 << 33, (5 << 30) + 4097, u64::MAX >> 1] {
            let (a, b) = (0x1234_5678, 0x9abc_def0);
            let expected = checksum_combine(CrcAlgorithm::Crc32Iscsi, a, b, b_bytes);
            assert_eq!(
                u64::from(crc32c_combine(a as u32, b as u32, b_bytes)),
                expected
            );
        }
    }

    #[test]
    fn blocks_combine_to_the_whole() {
        let bytes: Vec<u8> = (0..10_001u32).map(|i| (i * 7) as u8).collect();
        for block_bytes in [1, 4, 512, 4096, 20_000] {
            let blocks: Vec<u32> = block_checksums(&bytes, block_bytes).collect();
            assert_eq!(
                combine_blocks(&blocks, block_bytes, bytes.len() as u64),
                crc32c(&bytes)
            );
        }
        assert_eq!(combine_blocks(&[], 4096, 0), crc32c(&[]));
    }
}
