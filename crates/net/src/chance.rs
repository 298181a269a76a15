//! Chance for tests, from a seed that a failure prints.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

/// Numbers from a seed (splitmix64).
pub(crate) struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`; 0 below 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.next() as u8
    }
}

/// Runs `act` for each seed of `usual`, or from `THALWEG_SEED` on for `THALWEG_FUZZ_SECONDS`; a failure names its seed.
pub(crate) fn inputs(usual: Range<u64>, mut act: impl FnMut(&mut Chance)) {
    let number = |name: &str| Some(std::env::var(name).ok()?.parse::<u64>().expect("a number"));
    let seconds = number("THALWEG_FUZZ_SECONDS").map(Duration::from_secs);
    let first = number("THALWEG_SEED").unwrap_or(usual.start);
    let began = Instant::now();
    let mut seed = first;
    loop {
        let is_over = match seconds {
            Some(seconds) => began.elapsed() >= seconds,
            None => seed - first >= usual.end - usual.start,
        };
        if is_over {
            break;
        }
        let done = catch_unwind(AssertUnwindSafe(|| act(&mut Chance(seed))));
        if let Err(panic) = done {
            eprintln!("again with THALWEG_SEED={seed}");
            resume_unwind(panic);
        }
        seed += 1;
    }
    println!("{} inputs", seed - first);
}
