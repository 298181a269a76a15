//! Repetitions of one run together, and one architecture beside another.

use crate::result::RunResult;
use crate::window::Spread;
use serde::{Deserialize, Serialize};

/// What repetitions of a run have in common. The published figures are means of three.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Summary {
    /// Repetitions.
    pub runs: u64,
    /// Messages a second by wall time.
    pub wall: Option<Spread>,
    /// Messages a second as published.
    pub sum_of_windows: Option<Spread>,
    /// Medians of the time to the reply.
    pub rtt_p50_ns: Option<Spread>,
    /// Messages that were lost, of all repetitions.
    pub lost: u64,
    /// Deliveries of what had come before, of all repetitions.
    pub duplicates: u64,
}

impl Summary {
    /// Of the results of one run, repetition by repetition.
    pub fn of(results: &[RunResult]) -> Self {
        let spread = |value: fn(&RunResult) -> Option<f64>| {
            let values: Vec<f64> = results.iter().filter_map(value).collect();
            Spread::of(&values)
        };
        let sum = |value: fn(&RunResult) -> u64| results.iter().map(value).sum();
        Self {
            runs: results.len() as u64,
            wall: spread(|one| one.wall.map(|wall| wall.messages_per_second)),
            sum_of_windows: spread(|one| one.sum_of_windows.map(|sum| sum.messages_per_second)),
            rtt_p50_ns: spread(|one| one.rtt.as_ref().map(|rtt| rtt.p50_ns as f64)),
            lost: sum(|one| one.received.lost),
            duplicates: sum(|one| one.received.duplicates),
        }
    }

    /// How many times slower this is than `direct`, by the means of wall rates: above 1 is overhead.
    pub fn overhead(&self, direct: &Self) -> Option<f64> {
        let (ours, theirs) = (self.wall?.mean, direct.wall?.mean);
        (ours > 0.0).then(|| theirs / ours)
    }
}
