//! Chance for tests, from a seed that a failure prints.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Numbers from a seed.
pub struct Chance(u64);

impl Chance {
    /// The next number (splitmix64).
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`; 0 below 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    /// Any byte.
    pub fn byte(&mut self) -> u8 {
        self.next() as u8
    }
}

/// Runs `act` for each seed, or for those of `GATEWAY_SEEDS=FROM..TO`; a failure names its seed.
pub fn seeds(usual: Range<u64>, mut act: impl FnMut(&mut Chance)) {
    let asked = std::env::var("GATEWAY_SEEDS").ok().and_then(|text| {
        let (from, to) = text.split_once("..")?;
        Some(from.parse().ok()?..to.parse().ok()?)
    });
    for seed in asked.unwrap_or(usual) {
        let done = catch_unwind(AssertUnwindSafe(|| act(&mut Chance(seed))));
        if let Err(panic) = done {
            eprintln!("seed {seed}: GATEWAY_SEEDS={seed}..{}", seed + 1);
            resume_unwind(panic);
        }
    }
}
