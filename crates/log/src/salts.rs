//! Where the salts of segments come from.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where the salts of segments come from.
#[derive(Clone)]
pub(crate) enum Salts {
    Random,
    /// The same ones in every run, for tests.
    Seeded(Arc<AtomicU64>),
}

impl Salts {
    pub(crate) fn next(&self) -> u64 {
        match self {
            // Without randomness of the system nothing else works either.
            Self::Random => getrandom::u64().expect("the system gives random bytes"),
            Self::Seeded(state) => splitmix(state.fetch_add(1, Ordering::Relaxed)),
        }
    }
}

/// Sebastiano Vigna's splitmix64, one step.
pub(crate) fn splitmix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
