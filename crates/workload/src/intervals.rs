//! Sets of sequence numbers, as intervals, in bounded memory.

use crate::faults::{Fault, planted};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a number was to a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inserted {
    /// It was not in it.
    New,
    /// It was in it already.
    Repeat,
    /// It lies where the set has closed gaps to stay small: either may be true.
    Unsure,
}

/// A set of sequence numbers.
///
/// It keeps at most so many intervals as it was made for. One more, and the lowest gap is closed: its numbers count
/// as received, [`Intervals::assumed`] says how many they were, and from then on losses and repeats are lower bounds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct Intervals {
    /// From the first number of an interval to the number after its last. No two touch.
    ends: BTreeMap<u64, u64>,
    count: u64,
    most: usize,
    assumed: u64,
    /// Below it gaps were closed.
    floor: u64,
}

/// A set as JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    intervals: Vec<(u64, u64)>,
    most: usize,
    assumed: u64,
    floor: u64,
}

impl From<Intervals> for Written {
    fn from(set: Intervals) -> Self {
        Self {
            intervals: set.ends.into_iter().collect(),
            most: set.most,
            assumed: set.assumed,
            floor: set.floor,
        }
    }
}

impl TryFrom<Written> for Intervals {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        let is_growing = written.intervals.is_sorted_by(|one, next| one.1 < next.0);
        let wrong = written.intervals.iter().find(|(start, end)| start >= end);
        if let (false, _) | (_, Some(_)) = (is_growing, wrong) {
            return Err("intervals of sequence numbers that touch or do not grow".to_owned());
        }
        Ok(Self {
            count: written
                .intervals
                .iter()
                .map(|(start, end)| end - start)
                .sum(),
            ends: written.intervals.into_iter().collect(),
            most: written.most.max(1),
            assumed: written.assumed,
            floor: written.floor,
        })
    }
}

impl Intervals {
    /// An empty set of at most so many intervals, and at least one.
    pub fn new(most: usize) -> Self {
        Self {
            ends: BTreeMap::new(),
            count: 0,
            most: most.max(1),
            assumed: 0,
            floor: 0,
        }
    }

    /// The set of all numbers below `end`.
    pub fn below(end: u64, most: usize) -> Self {
        let mut set = Self::new(most);
        set.add(0, end);
        set
    }

    /// How many numbers are in it, with those that are assumed.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// How many of them are assumed, at most.
    pub fn assumed(&self) -> u64 {
        self.assumed
    }

    /// Whether a number is in it.
    pub fn contains(&self, number: u64) -> bool {
        let before = self.ends.range(..=number).next_back();
        before.is_some_and(|(_, &end)| number < end)
    }

    /// Whether nobody knows if a number is in it.
    pub fn is_unsure(&self, number: u64) -> bool {
        number < self.floor && self.contains(number)
    }

    /// Puts a number in. The largest number, which has no end after it, is refused as a repeat.
    pub fn insert(&mut self, number: u64) -> Inserted {
        if self.is_unsure(number) {
            return Inserted::Unsure;
        }
        if number == u64::MAX || (self.contains(number) && !planted(Fault::RepeatIsNew)) {
            return Inserted::Repeat;
        }
        self.add(number, number + 1);
        self.shrink();
        Inserted::New
    }

    /// Puts in all numbers from `start` to before `end`.
    fn add(&mut self, start: u64, end: u64) {
        let (mut low, mut high) = (start, end);
        let reach = if planted(Fault::JoinAcrossGap) { 1 } else { 0 };
        // Intervals that overlap or touch, from the last one: intervals before the first that ends too early do not.
        while let Some((&first, &last)) = self.ends.range(..=high.saturating_add(reach)).next_back()
        {
            if last.saturating_add(reach) < low {
                break;
            }
            self.ends.remove(&first);
            self.count -= last - first;
            low = low.min(first);
            high = high.max(last);
        }
        if low < high {
            self.ends.insert(low, high);
            self.count += high - low;
        }
    }

    /// Closes the lowest gaps until there are few enough intervals.
    fn shrink(&mut self) {
        while self.ends.len() > self.most {
            let mut lowest = self.ends.iter();
            let (Some((_, &end)), Some((&next, &next_end))) = (lowest.next(), lowest.next()) else {
                return;
            };
            self.assumed += next - end;
            self.floor = self.floor.max(next_end);
            self.add(end, next);
        }
    }

    /// Puts in all numbers of another set. The bound of the union is that of both together.
    pub fn unite(&mut self, other: &Self) {
        self.most = self.most.saturating_add(other.most);
        for (&start, &end) in &other.ends {
            self.add(start, end);
        }
        self.assumed = self.assumed.saturating_add(other.assumed);
        self.floor = self.floor.max(other.floor);
        self.shrink();
    }

    /// How many of its numbers another set does not have.
    pub fn count_without(&self, other: &Self) -> u64 {
        let both: u64 = self
            .ends
            .iter()
            .map(|(&start, &end)| other.count_within(start, end))
            .sum();
        self.count - both
    }

    /// How many of its numbers are from `start` to before `end`.
    fn count_within(&self, start: u64, end: u64) -> u64 {
        let before = self.ends.range(..start).next_back();
        let inside = self.ends.range(start..end);
        let within = |(&first, &last): (&u64, &u64)| last.min(end).saturating_sub(first.max(start));
        before.into_iter().chain(inside).map(within).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chance::{Chance, seeds};
    use crate::faults;
    use std::collections::BTreeSet;

    /// Numbers below `end`, each some times or never, in an order that is nearly theirs.
    fn numbers(chance: &mut Chance, end: u64) -> Vec<u64> {
        let mut numbers: Vec<(u64, u64)> = Vec::new();
        for number in 0..end {
            for _ in 0..chance.below(3) {
                numbers.push((number + chance.below(20), number));
            }
        }
        numbers.sort_unstable();
        numbers.into_iter().map(|(_, number)| number).collect()
    }

    fn agrees(seed: u64) -> bool {
        let mut chance = Chance(seed);
        let mut set = Intervals::new(usize::MAX);
        let mut model = BTreeSet::new();
        let end = 1 + chance.below(200);
        for number in numbers(&mut chance, end) {
            let inserted = match model.insert(number) {
                true => Inserted::New,
                false => Inserted::Repeat,
            };
            if set.insert(number) != inserted || set.count() != model.len() as u64 {
                return false;
            }
        }
        (0..=end).all(|number| set.contains(number) == model.contains(&number))
    }

    #[test]
    fn a_set_is_what_a_slow_one_is() {
        for seed in seeds(300) {
            assert!(agrees(seed), "seed {seed}");
        }
        for fault in [Fault::RepeatIsNew, Fault::JoinAcrossGap] {
            let is_missed = faults::with(fault, || (0..20).all(agrees));
            assert!(!is_missed, "{fault:?}");
        }
    }

    #[test]
    fn union_and_difference_are_what_slow_ones_are() {
        for seed in seeds(300) {
            let mut chance = Chance(seed);
            let end = 1 + chance.below(200);
            let lists = [numbers(&mut chance, end), numbers(&mut chance, end)];
            let [one, other] = lists.each_ref().map(|list| {
                let mut set = Intervals::new(usize::MAX);
                for &number in list {
                    set.insert(number);
                }
                set
            });
            let [slow_one, slow_other] =
                lists.map(|list| list.into_iter().collect::<BTreeSet<u64>>());
            let without = slow_one.difference(&slow_other).count() as u64;
            assert_eq!(one.count_without(&other), without, "seed {seed}");
            let mut both = one.clone();
            both.unite(&other);
            let slow_both: BTreeSet<u64> = slow_one.union(&slow_other).copied().collect();
            assert_eq!(both.count(), slow_both.len() as u64, "seed {seed}");
            let text = serde_json::to_string(&both).unwrap();
            assert_eq!(serde_json::from_str::<Intervals>(&text).unwrap(), both);
        }
    }

    #[test]
    fn a_small_set_says_what_it_assumes_and_never_too_much() {
        for seed in seeds(300) {
            let mut chance = Chance(seed);
            let most = 1 + chance.below(8) as usize;
            let mut set = Intervals::new(most);
            let mut model = BTreeSet::new();
            for number in numbers(&mut chance, 200) {
                let is_new = model.insert(number);
                match set.insert(number) {
                    Inserted::New => assert!(is_new, "seed {seed}"),
                    Inserted::Repeat => assert!(!is_new, "seed {seed}"),
                    Inserted::Unsure => {}
                }
                assert!(set.ends.len() <= most, "seed {seed}");
                assert!(set.count() >= model.len() as u64, "seed {seed}");
                assert!(set.count() - set.assumed() <= model.len() as u64);
            }
        }
    }

    #[test]
    fn texts_that_are_no_set_are_refused() {
        for intervals in ["[[3,3]]", "[[3,1]]", "[[5,6],[1,2]]", "[[1,3],[3,4]]"] {
            let text =
                format!("{{\"intervals\":{intervals},\"most\":9,\"assumed\":0,\"floor\":0}}");
            assert!(serde_json::from_str::<Intervals>(&text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_largest_number_does_not_overflow() {
        let mut set = Intervals::new(4);
        assert_eq!(set.insert(u64::MAX), Inserted::Repeat);
        assert_eq!(set.insert(u64::MAX - 1), Inserted::New);
        assert_eq!(set.count(), 1);
    }
}
