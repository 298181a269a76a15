//! Which offsets are settled.

use std::collections::BTreeMap;
use std::fmt;
use wire::Offset;

/// Offsets that share an entry of the map.
const CHUNK: u64 = 4096;
const WORDS: usize = (CHUNK / 64) as usize;

/// A set of offsets that fills up from below: everything under one offset,
/// and above it some here and there. Costs a bit an offset at worst, up to
/// the greatest one, and an entry for 4096 offsets that are all there.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct OffsetSet {
    below: u64,
    /// By offset / [`CHUNK`]; never empty ones, and none under `below`.
    above: BTreeMap<u64, Chunk>,
}

#[derive(Clone, PartialEq, Eq)]
enum Chunk {
    Full,
    Some(Box<[u64; WORDS]>),
}

impl Chunk {
    fn word(&self, index: usize) -> u64 {
        match self {
            Self::Full => u64::MAX,
            Self::Some(words) => words[index],
        }
    }

    fn count(&self) -> u64 {
        match self {
            Self::Full => CHUNK,
            Self::Some(words) => words.iter().map(|word| u64::from(word.count_ones())).sum(),
        }
    }
}

impl OffsetSet {
    /// Everything before `offset`.
    pub fn until(offset: Offset) -> Self {
        Self {
            below: offset.0,
            above: BTreeMap::new(),
        }
    }

    /// The first offset that is not in the set.
    pub fn first_missing(&self) -> Offset {
        Offset(self.below)
    }

    /// How many are in the set above [`OffsetSet::first_missing`].
    pub fn count_above(&self) -> u64 {
        self.above.values().map(Chunk::count).sum()
    }

    /// Whether it is in the set.
    pub fn contains(&self, offset: Offset) -> bool {
        let at = offset.0;
        at < self.below
            || self
                .above
                .get(&(at / CHUNK))
                .is_some_and(|chunk| chunk.word(word_of(at)) & bit_of(at) != 0)
    }

    /// Adds offsets from `first` to before `end`.
    pub fn insert(&mut self, first: Offset, end: Offset) {
        let mut at = first.0.max(self.below);
        while at < end.0 {
            let chunk_end = (at / CHUNK + 1) * CHUNK;
            let to = end.0.min(chunk_end);
            self.insert_within(at, to);
            at = to;
        }
        self.absorb();
    }

    /// Adds offsets of one chunk.
    fn insert_within(&mut self, from: u64, to: u64) {
        let index = from / CHUNK;
        if to - from == CHUNK {
            self.above.insert(index, Chunk::Full);
            return;
        }
        let chunk = self
            .above
            .entry(index)
            .or_insert_with(|| Chunk::Some(Box::new([0; WORDS])));
        let Chunk::Some(words) = chunk else {
            return;
        };
        let mut at = from;
        while at < to {
            let word_end = (at / 64 + 1) * 64;
            let upto = to.min(word_end);
            let count = upto - at;
            let ones = if count == 64 {
                u64::MAX
            } else {
                ((1 << count) - 1) << (at % 64)
            };
            words[word_of(at)] |= ones;
            at = upto;
        }
        if words.iter().all(|word| *word == u64::MAX) {
            *chunk = Chunk::Full;
        }
    }

    /// Moves `below` up over what is there.
    fn absorb(&mut self) {
        self.below = self.next_missing(Offset(self.below)).0;
        while let Some(entry) = self.above.first_entry()
            && (entry.key() + 1) * CHUNK <= self.below
        {
            entry.remove();
        }
        // What lies under `below` in its own chunk is not told twice.
        if let Some(Chunk::Some(words)) = self.above.get_mut(&(self.below / CHUNK)) {
            let last = word_of(self.below);
            words[..last].fill(0);
            words[last] &= !(bit_of(self.below) - 1);
            if words.iter().all(|word| *word == 0) {
                self.above.remove(&(self.below / CHUNK));
            }
        }
    }

    /// The first offset from `from` on that is not in the set.
    pub fn next_missing(&self, from: Offset) -> Offset {
        let mut at = from.0.max(self.below);
        loop {
            let Some(chunk) = self.above.get(&(at / CHUNK)) else {
                return Offset(at);
            };
            match self.scan(chunk, at, |word| !word) {
                Some(found) => return Offset(found),
                None => at = (at / CHUNK + 1) * CHUNK,
            }
        }
    }

    /// The first offset from `from` on that is in the set and not below
    /// [`OffsetSet::first_missing`].
    fn next_present(&self, from: u64) -> Option<u64> {
        let from = from.max(self.below);
        self.above.range(from / CHUNK..).find_map(|(index, chunk)| {
            let at = from.max(index * CHUNK);
            self.scan(chunk, at, |word| word)
        })
    }

    /// The first offset from `at` on, in the chunk, whose bit `of` sets.
    fn scan(&self, chunk: &Chunk, at: u64, of: impl Fn(u64) -> u64) -> Option<u64> {
        let base = at / CHUNK * CHUNK;
        let first = word_of(at);
        (first..WORDS).find_map(|index| {
            let mut word = of(chunk.word(index));
            if index == first {
                word &= !(bit_of(at) - 1);
            }
            let bit = u64::from(word.trailing_zeros());
            (word != 0).then_some(base + index as u64 * 64 + bit)
        })
    }

    /// The ranges above [`OffsetSet::first_missing`], in order: first, and
    /// behind the last one.
    pub fn ranges_above(&self) -> impl Iterator<Item = (Offset, Offset)> + '_ {
        let mut at = self.below;
        std::iter::from_fn(move || {
            let first = self.next_present(at)?;
            let end = self.next_missing(Offset(first));
            at = end.0;
            Some((Offset(first), end))
        })
    }

    /// The ranges that are missing from `from` to before `end`, in order.
    pub fn missing(
        &self,
        from: Offset,
        end: Offset,
    ) -> impl Iterator<Item = (Offset, Offset)> + '_ {
        let mut at = from;
        std::iter::from_fn(move || {
            let first = self.next_missing(at);
            if first >= end {
                return None;
            }
            let next = self.next_present(first.0).map_or(end, Offset).min(end);
            at = next;
            Some((first, next))
        })
    }
}

impl fmt::Debug for OffsetSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "..{}", self.below)?;
        self.ranges_above()
            .try_for_each(|(first, end)| write!(f, ", {first}..{end}"))
    }
}

fn word_of(offset: u64) -> usize {
    (offset % CHUNK / 64) as usize
}

fn bit_of(offset: u64) -> u64 {
    1 << (offset % 64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// A generator of numbers that are the same every time.
    fn numbers(mut state: u64) -> impl FnMut(u64) -> u64 {
        move |below| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        }
    }

    #[test]
    fn it_is_the_set_that_it_says() {
        for seed in 1..200 {
            let mut number = numbers(seed);
            let most = 3 * CHUNK;
            let mut set = OffsetSet::until(Offset(number(100)));
            let mut model: BTreeSet<u64> = (0..set.first_missing().0).collect();
            for _ in 0..40 {
                let first = number(most);
                let longest = [1, 2, 70, CHUNK + 10][number(4) as usize];
                let end = (first + 1 + number(longest)).min(most);
                set.insert(Offset(first), Offset(end));
                model.extend(first..end);
                let missing = (0..).find(|at| !model.contains(at)).unwrap();
                assert_eq!(set.first_missing(), Offset(missing), "seed {seed}");
                let above = model.range(missing..).count() as u64;
                assert_eq!(set.count_above(), above, "seed {seed}");
            }
            let told: Vec<u64> = set
                .ranges_above()
                .flat_map(|(first, end)| first.0..end.0)
                .collect();
            let above: Vec<u64> = model.range(set.below..).copied().collect();
            assert_eq!(told, above, "seed {seed}");
            let (from, end) = (number(most), number(most));
            let missing: Vec<u64> = set
                .missing(Offset(from), Offset(end))
                .flat_map(|(first, end)| first.0..end.0)
                .collect();
            let expected: Vec<u64> = (from..end).filter(|at| !model.contains(at)).collect();
            assert_eq!(missing, expected, "seed {seed}, {from}..{end}");
            // The same set is equal, whatever it was made of.
            let mut again = OffsetSet::until(set.first_missing());
            set.ranges_above()
                .for_each(|(first, end)| again.insert(first, end));
            assert_eq!(again, set, "seed {seed}");
        }
    }

    #[test]
    fn every_second_of_ten_million_fits_in_two_megabytes() {
        let mut set = OffsetSet::default();
        for at in 0..5_000_000 {
            set.insert(Offset(at * 2 + 1), Offset(at * 2 + 2));
        }
        assert_eq!(set.count_above(), 5_000_000);
        let bytes = set.above.len() * (size_of::<Chunk>() + 8 + WORDS * 8);
        assert!(bytes < 2_000_000, "{bytes}");
    }
}
