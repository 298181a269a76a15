//! Copying and checksums: within the second cache, and through memory.

use std::hint::black_box;
use std::time::Instant;
use wire::checksum::crc32c;

/// Two of these lie in any second cache of today.
const HOT_BYTES: usize = 128 << 10;
/// Larger than any cache of today that one core has to itself.
const COLD_BYTES: usize = 256 << 20;
/// What is copied or checked at a time.
const PIECE_BYTES: usize = 64 << 10;
/// What is moved through the cache, for a time that a clock can tell.
const HOT_TOTAL: usize = 2 << 30;

/// Memory that was touched.
fn touched(bytes: usize) -> Vec<u8> {
    vec![7; bytes]
}

fn rate(bytes: usize, work: impl FnOnce()) -> f64 {
    let began = Instant::now();
    work();
    bytes as f64 / began.elapsed().as_secs_f64()
}

/// From one buffer into another, both in the cache.
pub fn copy_hot() -> f64 {
    let (from, mut to) = (touched(HOT_BYTES), touched(HOT_BYTES));
    rate(HOT_TOTAL, || {
        for _ in 0..HOT_TOTAL / HOT_BYTES {
            to.copy_from_slice(black_box(&from));
            black_box(&mut to);
        }
    })
}

/// From memory to memory, both touched before.
pub fn copy_cold() -> f64 {
    let (from, mut to) = (touched(COLD_BYTES), touched(COLD_BYTES));
    rate(COLD_BYTES, || {
        for (from, to) in from.chunks(PIECE_BYTES).zip(to.chunks_mut(PIECE_BYTES)) {
            to.copy_from_slice(black_box(from));
        }
        black_box(&mut to);
    })
}

/// From memory to pages that the kernel has yet to give.
pub fn copy_fresh() -> f64 {
    let from = touched(COLD_BYTES);
    let mut to = Vec::with_capacity(COLD_BYTES);
    rate(COLD_BYTES, || {
        for from in from.chunks(PIECE_BYTES) {
            to.extend_from_slice(black_box(from));
        }
        black_box(&mut to);
    })
}

/// The checksum of what is in the cache.
pub fn crc_hot() -> f64 {
    let from = touched(HOT_BYTES);
    rate(HOT_TOTAL, || {
        for _ in 0..HOT_TOTAL / HOT_BYTES {
            black_box(crc32c(black_box(&from)));
        }
    })
}

/// The checksum of what is in memory.
pub fn crc_cold() -> f64 {
    let from = touched(COLD_BYTES);
    rate(COLD_BYTES, || {
        for from in from.chunks(PIECE_BYTES) {
            black_box(crc32c(black_box(from)));
        }
    })
}

/// Copied from memory to memory, and checked while a piece is in the cache.
pub fn copy_and_crc_cold() -> f64 {
    let (from, mut to) = (touched(COLD_BYTES), touched(COLD_BYTES));
    rate(COLD_BYTES, || {
        for (from, to) in from.chunks(PIECE_BYTES).zip(to.chunks_mut(PIECE_BYTES)) {
            to.copy_from_slice(black_box(from));
            black_box(crc32c(to));
        }
    })
}
