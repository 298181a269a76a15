//! Ids, from a seed: the same inputs give the same run.

/// A sequence of 128-bit ids (two SplitMix64 streams side by side).
#[derive(Debug)]
pub(crate) struct Random {
    high: u64,
    low: u64,
}

impl Random {
    pub fn new(seed: u128) -> Self {
        Self {
            high: (seed >> 64) as u64,
            low: seed as u64,
        }
    }

    /// The next id; never 0, which means "none" everywhere.
    pub fn id(&mut self) -> u128 {
        let id = u128::from(mix(&mut self.high)) << 64 | u128::from(mix(&mut self.low));
        id.max(1)
    }
}

fn mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
