//! Turns of keys, for queues that are ordered by key.

use super::RangeMap;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use wire::Offset;

/// So many events of a partition may wait for a turn of their key. At the
/// bound nothing further is read: what is held back stays in the log.
pub const PARKED_MAX: usize = 10_000;

/// Which event of each key has its turn: the first that is not settled, of
/// those that were read. Keys are told apart by 64-bit hashes; two keys that
/// share one wait for each other without need.
#[derive(Debug, Clone, Default)]
pub struct KeyOrder {
    /// The unsettled events that were read and have a key, and their keys.
    keys: BTreeMap<Offset, u64>,
    by_key: HashMap<u64, BTreeSet<Offset>>,
    /// What waits for its turn, with how often it was delivered.
    parked: BTreeMap<Offset, u32>,
    /// What an earlier run of the server gave out, and this one has not read:
    /// until it is settled, or read, what lies behind it can't be judged.
    unknown: RangeMap<()>,
}

/// Whether an event may be given out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// It may.
    Now,
    /// An earlier one of its key is not settled: it waits aside.
    Parked,
    /// It has to be looked at again later.
    Later,
}

impl KeyOrder {
    /// These were given out, and their keys are not known.
    pub fn unknown(&mut self, first: Offset, end: Offset) {
        self.unknown.insert(first, end, ());
    }

    /// An event is about to be given out.
    pub fn offer(&mut self, at: Offset, deliveries: u32, key: Option<u64>) -> Turn {
        self.unknown.remove(at, at.plus(1));
        let Some(key) = key else {
            return Turn::Now;
        };
        if self.unknown.first().is_some_and(|(first, ..)| first < at) {
            return Turn::Later;
        }
        self.keys.insert(at, key);
        let same = self.by_key.entry(key).or_default();
        same.insert(at);
        if same.first() == Some(&at) {
            return Turn::Now;
        }
        self.parked.insert(at, deliveries);
        Turn::Parked
    }

    /// Whether so many wait that nothing further is to be read.
    pub fn is_full(&self) -> bool {
        self.parked.len() >= PARKED_MAX
    }

    /// How many wait.
    pub fn parked_count(&self) -> u64 {
        self.parked.len() as u64
    }

    /// Events are settled. Returns those that waited for it and have their
    /// turn now, with how often they were delivered.
    pub fn settled(&mut self, first: Offset, end: Offset) -> Vec<(Offset, u32)> {
        self.unknown.remove(first, end);
        let gone = self.keys.range(first..end.max(first));
        let gone: Vec<_> = gone.map(|(at, key)| (*at, *key)).collect();
        let mut turns = Vec::new();
        for (at, key) in gone {
            self.keys.remove(&at);
            self.parked.remove(&at);
            let Some(same) = self.by_key.get_mut(&key) else {
                continue;
            };
            same.remove(&at);
            match same.first() {
                None => {
                    self.by_key.remove(&key);
                }
                Some(next) => {
                    if let Some(deliveries) = self.parked.remove(next) {
                        turns.push((*next, deliveries));
                    }
                }
            }
        }
        turns
    }
}
