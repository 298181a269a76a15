//! Values of ranges of offsets.

use std::collections::BTreeMap;
use wire::Offset;

/// A map from offsets to values, in which neighbours of equal value are one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeMap<V> {
    /// By first offset: behind the last one, and the value.
    ranges: BTreeMap<Offset, (Offset, V)>,
}

impl<V> Default for RangeMap<V> {
    fn default() -> Self {
        Self {
            ranges: BTreeMap::new(),
        }
    }
}

impl<V: Clone + PartialEq> RangeMap<V> {
    /// Whether it has no range.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// How many ranges there are.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// The value of an offset.
    pub fn get(&self, offset: Offset) -> Option<&V> {
        let (_, (end, value)) = self.ranges.range(..=offset).next_back()?;
        (offset < *end).then_some(value)
    }

    /// All ranges in order: first, behind the last one, value.
    pub fn iter(&self) -> impl Iterator<Item = (Offset, Offset, &V)> {
        self.ranges
            .iter()
            .map(|(first, (end, value))| (*first, *end, value))
    }

    /// The first range: first, behind the last one, value.
    pub fn first(&self) -> Option<(Offset, Offset, &V)> {
        self.iter().next()
    }

    /// The range that an offset is in, as far as it goes.
    pub fn around(&self, offset: Offset) -> Option<(Offset, Offset, &V)> {
        let (first, (end, value)) = self.ranges.range(..=offset).next_back()?;
        (offset < *end).then_some((*first, *end, value))
    }

    /// The last range that begins before `offset`.
    pub fn before(&self, offset: Offset) -> Option<(Offset, Offset, &V)> {
        let (first, (end, value)) = self.ranges.range(..offset).next_back()?;
        Some((*first, *end, value))
    }

    /// The first range that begins at `offset` or behind.
    pub fn from(&self, offset: Offset) -> Option<(Offset, Offset, &V)> {
        let (first, (end, value)) = self.ranges.range(offset..).next()?;
        Some((*first, *end, value))
    }

    /// The parts of ranges that lie in `first..end`, in order.
    pub fn within(&self, first: Offset, end: Offset) -> impl Iterator<Item = (Offset, Offset, &V)> {
        let before = self.ranges.range(..first).next_back();
        let before = before.filter(move |(_, (until, _))| *until > first);
        let from = before.map_or(first, |(start, _)| *start);
        self.ranges
            .range(from..end.max(from))
            .map(move |(start, (until, value))| ((*start).max(first), (*until).min(end), value))
            .filter(|(start, until, _)| start < until)
    }

    /// Takes `first..end` out, and returns what was there, in order.
    pub fn remove(&mut self, first: Offset, end: Offset) -> Vec<(Offset, Offset, V)> {
        let taken: Vec<_> = self
            .within(first, end)
            .map(|(start, until, value)| (start, until, value.clone()))
            .collect();
        for (start, until, _) in &taken {
            let (&at, _) = self
                .ranges
                .range(..=*start)
                .next_back()
                .expect("the part is of a range that begins there or before");
            let (whole_end, value) = self.ranges.remove(&at).expect("it was just found");
            if at < *start {
                self.ranges.insert(at, (*start, value.clone()));
            }
            if whole_end > *until {
                self.ranges.insert(*until, (whole_end, value));
            }
        }
        taken
    }

    /// Gives `first..end` a value, whatever was there.
    pub fn insert(&mut self, mut first: Offset, mut end: Offset, value: V) {
        if first >= end {
            return;
        }
        self.remove(first, end);
        if let Some((&start, (until, before))) = self.ranges.range(..first).next_back()
            && *until == first
            && *before == value
        {
            first = start;
        }
        if let Some((until, after)) = self.ranges.get(&end)
            && *after == value
        {
            let until = *until;
            self.ranges.remove(&end);
            end = until;
        }
        self.ranges.insert(first, (end, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_map_that_it_says() {
        let mut state = 7u64;
        let mut number = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % below
        };
        for round in 0..300 {
            let mut map = RangeMap::default();
            let mut model = [None; 40];
            for _ in 0..30 {
                let first = number(40);
                let end = (first + number(12)).min(40);
                if number(3) == 0 {
                    let removed = map.remove(Offset(first), Offset(end));
                    let removed: Vec<_> = removed
                        .into_iter()
                        .flat_map(|(first, end, value)| (first.0..end.0).map(move |at| (at, value)))
                        .collect();
                    let expected: Vec<_> = (first..end)
                        .filter_map(|at| Some((at, model[at as usize].take()?)))
                        .collect();
                    assert_eq!(removed, expected, "round {round}");
                } else {
                    let value = number(3);
                    map.insert(Offset(first), Offset(end), value);
                    model[first as usize..end as usize].fill(Some(value));
                }
                for (at, value) in model.iter().enumerate() {
                    assert_eq!(map.get(Offset(at as u64)), value.as_ref(), "round {round}");
                }
                let touching = map
                    .iter()
                    .zip(map.iter().skip(1))
                    .any(|((_, end, value), (first, _, next))| end == first && value == next);
                assert!(!touching, "round {round}: {map:?}");
                let (from, to) = (number(40), number(40));
                let parts: Vec<_> = map
                    .within(Offset(from), Offset(to))
                    .flat_map(|(first, end, value)| (first.0..end.0).map(move |at| (at, *value)))
                    .collect();
                let expected: Vec<_> = (from..to)
                    .filter_map(|at| Some((at, model[at as usize]?)))
                    .collect();
                assert_eq!(parts, expected, "round {round}: {map:?}");
            }
        }
    }
}
