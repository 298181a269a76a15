//! Numbers that look random and follow from a seed.

use std::ops::Range;

/// A sequence of numbers (splitmix64): small, and good enough to choose by.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Self {
        let mut random = Self(seed.wrapping_mul(0xd134_2543_de82_ef95) ^ 0x7a1c_0de5);
        random.number();
        random
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.number() % bound.max(1)
    }

    /// A number of the range.
    pub fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.below(range.end.saturating_sub(range.start))
    }

    /// True once in `chance` times; never if that is 0.
    pub fn one_in(&mut self, chance: u64) -> bool {
        chance > 0 && self.below(chance) == 0
    }

    /// One of some.
    pub fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize].clone()
    }

    /// Another sequence, that goes its own way.
    pub fn fork(&mut self) -> Self {
        Self::new(self.number())
    }
}
