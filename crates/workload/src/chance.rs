//! Chance for payloads and tests: splitmix64, the same on every machine.

/// A stream of numbers from a seed.
#[derive(Debug, Clone)]
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `end`.
    #[cfg(test)]
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// Whether this one of `count` comes.
    #[cfg(test)]
    pub(crate) fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// Spreads the bits of a number.
pub(crate) fn mix(mut number: u64) -> u64 {
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// The seeds of a test: those of `WORKLOAD_SEEDS`, as in `81000..81050`, or the first `count`.
#[cfg(test)]
pub(crate) fn seeds(count: u64) -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("WORKLOAD_SEEDS") else {
        return 0..count;
    };
    let (from, to) = text.split_once("..").expect("WORKLOAD_SEEDS is FROM..TO");
    from.parse().unwrap()..to.parse().unwrap()
}
