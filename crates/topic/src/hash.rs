//! The hash of a key: XXH64 with seed 0.
//!
//! Which partition a key goes to must be the same for every client, language
//! and release, so the function is written out here and tested against
//! published and independently computed values. FNV-1a would be shorter, but
//! its lowest bit is the parity of the keys' lowest bits: with two partitions
//! all even 64-bit run numbers would meet in one of them.

const PRIME_1: u64 = 0x9E37_79B1_85EB_CA87;
const PRIME_2: u64 = 0xC2B2_AE3D_27D4_EB4F;
const PRIME_3: u64 = 0x1656_67B1_9E37_79F9;
const PRIME_4: u64 = 0x85EB_CA77_C2B2_AE63;
const PRIME_5: u64 = 0x27D4_EB2F_1656_67C5;

/// XXH64 of the key with seed 0, as in the [specification]. A key's partition
/// is this modulo the number of partitions.
///
/// [specification]: https://github.com/Cyan4973/xxHash/blob/v0.8.3/doc/xxhash_spec.md#xxh64-algorithm-description
pub fn key_hash(key: &[u8]) -> u64 {
    let (stripes, mut rest) = key.as_chunks::<32>();
    // "Step 1. Initialize internal accumulators", "Step 2. Process stripes",
    // "Step 3. Accumulator convergence".
    let mut hash = if stripes.is_empty() {
        PRIME_5
    } else {
        let mut lanes = [
            PRIME_1.wrapping_add(PRIME_2),
            PRIME_2,
            0,
            0u64.wrapping_sub(PRIME_1),
        ];
        for stripe in stripes {
            for (lane, input) in lanes.iter_mut().zip(stripe.as_chunks::<8>().0) {
                *lane = round(*lane, u64::from_le_bytes(*input));
            }
        }
        let mut hash = lanes[0]
            .rotate_left(1)
            .wrapping_add(lanes[1].rotate_left(7))
            .wrapping_add(lanes[2].rotate_left(12))
            .wrapping_add(lanes[3].rotate_left(18));
        for lane in lanes {
            hash = (hash ^ round(0, lane))
                .wrapping_mul(PRIME_1)
                .wrapping_add(PRIME_4);
        }
        hash
    };
    // "Step 4. Add input length".
    hash = hash.wrapping_add(key.len() as u64);
    // "Step 5. Consume remaining input".
    while let Some((input, after)) = rest.split_first_chunk::<8>() {
        hash = (hash ^ round(0, u64::from_le_bytes(*input)))
            .rotate_left(27)
            .wrapping_mul(PRIME_1)
            .wrapping_add(PRIME_4);
        rest = after;
    }
    if let Some((input, after)) = rest.split_first_chunk::<4>() {
        hash = (hash ^ u64::from(u32::from_le_bytes(*input)).wrapping_mul(PRIME_1))
            .rotate_left(23)
            .wrapping_mul(PRIME_2)
            .wrapping_add(PRIME_3);
        rest = after;
    }
    for byte in rest {
        hash = (hash ^ u64::from(*byte).wrapping_mul(PRIME_5))
            .rotate_left(11)
            .wrapping_mul(PRIME_1);
    }
    // "Step 6. Final mix (avalanche)".
    hash = (hash ^ (hash >> 33)).wrapping_mul(PRIME_2);
    hash = (hash ^ (hash >> 29)).wrapping_mul(PRIME_3);
    hash ^ (hash >> 32)
}

fn round(lane: u64, input: u64) -> u64 {
    lane.wrapping_add(input.wrapping_mul(PRIME_2))
        .rotate_left(31)
        .wrapping_mul(PRIME_1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_values() {
        let cases: [(&[u8], u64); 4] = [
            (b"", 0xef46_db37_51d8_e999),
            (b"a", 0xd24e_c4f1_a98c_6e5b),
            (b"abc", 0x44bc_2cf5_ad77_0999),
            (
                b"Nobody inspects the spammish repetition",
                0xfbce_a83c_8a37_8bf1,
            ),
        ];
        for (key, hash) in cases {
            assert_eq!(key_hash(key), hash, "{key:?}");
        }
    }

    /// Values of the reference implementation (xxHash 0.8, through its Python
    /// package) at every length around which the algorithm takes another way.
    #[test]
    fn values_of_the_reference_implementation() {
        let data: Vec<u8> = (0..101u32).map(|i| (i * 131 + 7) as u8).collect();
        let cases = [
            (3, 0xbed4_3740_ee63_32bb_u64),
            (4, 0xfa21_2ae4_4b3b_b23d),
            (7, 0x2744_460d_d675_d2c0),
            (8, 0x994b_676b_71ce_94dd),
            (12, 0xb92f_588c_e720_786e),
            (31, 0x6711_d55e_306b_5d8f),
            (32, 0x07f7_b8e3_bc5d_6e25),
            (33, 0x09f8_5eeb_4e1c_be9f),
            (63, 0xb7c9_968c_066c_b6a5),
            (64, 0x50d4_159a_0411_632e),
            (100, 0x9dda_da11_d3dc_2d8f),
        ];
        for (length, hash) in cases {
            assert_eq!(key_hash(&data[..length]), hash, "{length} bytes");
        }
        // Every length from 0 to 101, as the hash of all their hashes.
        let all: Vec<u8> = (0..=101)
            .flat_map(|length| key_hash(&data[..length]).to_le_bytes())
            .collect();
        assert_eq!(key_hash(&all), 0x9b36_c5a1_6a36_2e94);
    }
}
