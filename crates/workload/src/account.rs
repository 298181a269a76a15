//! What came: losses, repeats and order, from stamps alone.

use crate::intervals::{Inserted, Intervals};
use crate::payload::Stamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The most intervals of one consumer's account, all producers together, of one attempt.
pub const INTERVALS_MAX: usize = 1 << 20;

/// Attempts that are told apart. Later ones count as the last of them.
pub const ATTEMPTS_MAX: u32 = 4;

/// What a message was to an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// It had not come before.
    New,
    /// It had.
    Repeat,
    /// The account has closed gaps there and cannot say.
    Unsure,
    /// It is of another run, or of a producer that this one does not have.
    Foreign,
}

/// What a consumer got of one producer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stream {
    /// Sequences by attempt.
    attempts: BTreeMap<u32, Intervals>,
    deliveries: u64,
    out_of_order: u64,
    /// The highest sequence that came.
    highest: Option<u64>,
}

/// What a consumer got, or several that share a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Account {
    run: u64,
    producers: u64,
    streams: BTreeMap<u32, Stream>,
    foreign: u64,
    damaged: u64,
    flagged: u64,
}

/// Counts of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    /// Messages of this run that came, each time that they came.
    pub deliveries: u64,
    /// Messages, each once.
    pub distinct: u64,
    /// Deliveries of what had come before: `redelivered` and `resent` together.
    pub duplicates: u64,
    /// Of these, what its producer sent once and the backend delivered again.
    pub redelivered: u64,
    /// Of these, what its producer sent again.
    pub resent: u64,
    /// Deliveries that the backend itself marked as repeated. Some of them may be the first that came.
    pub flagged: u64,
    /// First deliveries that came after a later message of their producer, at the same consumer.
    pub out_of_order: u64,
    /// Messages that the backend had taken and that did not come.
    pub lost: u64,
    /// Messages that the backend had taken and that came to nobody whose figures there are, while those of some consumer
    /// of the shared stream are missing: it may have had them. Then none counts as lost. In a broadcast what a consumer
    /// that did not last until the end would have got.
    pub unaccounted: u64,
    /// Messages that were sent and not taken, and did not come.
    pub refused: u64,
    /// Messages of another run.
    pub foreign: u64,
    /// Messages that are not as they were sent.
    pub damaged: u64,
    /// Sequences that are assumed to have come. If there are some, `lost` and `duplicates` are lower bounds.
    pub assumed: u64,
}

impl Counts {
    /// Adds those of another consumer of a broadcast, who gets everything too.
    pub(crate) fn add(&mut self, other: &Self) {
        self.deliveries += other.deliveries;
        self.distinct += other.distinct;
        self.duplicates += other.duplicates;
        self.redelivered += other.redelivered;
        self.resent += other.resent;
        self.flagged += other.flagged;
        self.out_of_order += other.out_of_order;
        self.lost += other.lost;
        self.unaccounted += other.unaccounted;
        self.refused += other.refused;
        self.foreign += other.foreign;
        self.damaged += other.damaged;
        self.assumed += other.assumed;
    }
}

/// What one producer sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentBy<'a> {
    /// Which.
    pub producer: u64,
    /// Messages that it sent, each once: sequences below this.
    pub sent: u64,
    /// Sequences that the backend has taken.
    pub confirmed: &'a Intervals,
}

impl Account {
    /// Of a run with so many producers.
    pub fn new(run: u64, producers: u64) -> Self {
        Self {
            run,
            producers,
            streams: BTreeMap::new(),
            foreign: 0,
            damaged: 0,
            flagged: 0,
        }
    }

    /// Takes a message. `is_flagged` is what the backend says of it.
    pub fn take(&mut self, stamp: Stamp, is_flagged: bool) -> Taken {
        let is_foreign = stamp.run != self.run || u64::from(stamp.producer) >= self.producers;
        if is_foreign || stamp.sequence == u64::MAX {
            self.foreign += 1;
            return Taken::Foreign;
        }
        self.flagged += u64::from(is_flagged);
        let most = INTERVALS_MAX / self.producers.max(1) as usize;
        let stream = self
            .streams
            .entry(stamp.producer)
            .or_insert_with(|| Stream {
                attempts: BTreeMap::new(),
                deliveries: 0,
                out_of_order: 0,
                highest: None,
            });
        stream.take(stamp, most)
    }

    /// Counts a message that is not as it was sent.
    pub fn take_damaged(&mut self) {
        self.damaged += 1;
    }

    /// Adds what another consumer of a shared stream got: what both have came twice.
    pub fn unite(&mut self, other: &Self) {
        self.foreign += other.foreign;
        self.damaged += other.damaged;
        self.flagged += other.flagged;
        for (&producer, theirs) in &other.streams {
            match self.streams.get_mut(&producer) {
                Some(ours) => ours.unite(theirs),
                None => {
                    self.streams.insert(producer, theirs.clone());
                }
            }
        }
    }

    /// The counts, against what producers sent. Of a producer that is not named, nothing counts as lost.
    pub fn counts(&self, sent: &[SentBy<'_>]) -> Counts {
        let mut counts = Counts {
            foreign: self.foreign,
            damaged: self.damaged,
            flagged: self.flagged,
            ..Counts::default()
        };
        for stream in self.streams.values() {
            let all = stream.all();
            let of_attempts: u64 = stream.attempts.values().map(Intervals::count).sum();
            counts.deliveries += stream.deliveries;
            counts.distinct += all.count();
            counts.redelivered += stream.deliveries.saturating_sub(of_attempts);
            counts.resent += of_attempts.saturating_sub(all.count());
            counts.out_of_order += stream.out_of_order;
            counts.assumed += all.assumed();
        }
        counts.duplicates = counts.redelivered + counts.resent;
        let nothing = Intervals::new(1);
        for one in sent {
            let stream = u32::try_from(one.producer)
                .ok()
                .and_then(|producer| self.streams.get(&producer));
            let came = stream.map_or_else(|| nothing.clone(), Stream::all);
            let not_come = Intervals::below(one.sent, 1).count_without(&came);
            let lost = one.confirmed.count_without(&came);
            counts.lost += lost;
            counts.refused += not_come.saturating_sub(lost);
        }
        counts
    }
}

impl Stream {
    fn take(&mut self, stamp: Stamp, most: usize) -> Taken {
        let sequence = stamp.sequence;
        self.deliveries += 1;
        let is_repeat = self.attempts.values().any(|set| set.contains(sequence));
        let is_unsure = self.attempts.values().any(|set| set.is_unsure(sequence));
        let attempt = stamp.attempt.min(ATTEMPTS_MAX - 1);
        let set = self
            .attempts
            .entry(attempt)
            .or_insert_with(|| Intervals::new(most));
        let inserted = set.insert(sequence);
        match (is_unsure || inserted == Inserted::Unsure, is_repeat) {
            (true, _) => Taken::Unsure,
            (false, true) => Taken::Repeat,
            (false, false) => {
                let is_late = self.highest.is_some_and(|highest| sequence < highest);
                self.out_of_order += u64::from(is_late);
                self.highest = self.highest.max(Some(sequence));
                Taken::New
            }
        }
    }

    /// Sequences of any attempt.
    fn all(&self) -> Intervals {
        let mut sets = self.attempts.values();
        let mut all = sets
            .next()
            .map_or_else(|| Intervals::new(1), Intervals::clone);
        for set in sets {
            all.unite(set);
        }
        all
    }

    fn unite(&mut self, other: &Self) {
        self.deliveries += other.deliveries;
        self.out_of_order += other.out_of_order;
        self.highest = self.highest.max(other.highest);
        for (&attempt, theirs) in &other.attempts {
            match self.attempts.get_mut(&attempt) {
                Some(ours) => ours.unite(theirs),
                None => {
                    self.attempts.insert(attempt, theirs.clone());
                }
            }
        }
    }
}
