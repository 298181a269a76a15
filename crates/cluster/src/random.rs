//! Numbers that look random and follow from a seed.

/// A sequence of numbers (splitmix64): small, and good enough to choose by.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    /// The sequence of a seed.
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Self(seed.wrapping_mul(0xd134_2543_de82_ef95) ^ 0x7a1c_0de5);
        random.number();
        random
    }

    /// Any number.
    pub(crate) fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number of `least..=greatest`.
    pub(crate) fn within(&mut self, least: u64, greatest: u64) -> u64 {
        least + self.number() % (greatest - least + 1)
    }
}

#[cfg(test)]
impl Random {
    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.number() % bound.max(1)
    }

    /// True once in `chance` times; never if that is 0.
    pub(crate) fn one_in(&mut self, chance: u64) -> bool {
        chance > 0 && self.below(chance) == 0
    }

    /// One of some.
    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> Option<T> {
        (!of.is_empty()).then(|| of[self.below(of.len() as u64) as usize])
    }
}
