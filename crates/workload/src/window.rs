//! From the first message to the last: the throughputs.

use crate::pace::SECOND_NS;
use serde::{Deserialize, Serialize};

/// When somebody sent or received, and how much.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// The first and the last time, in nanoseconds of the clock that all members have.
    pub span_ns: Option<(u64, u64)>,
    /// Messages, each time that they came.
    pub messages: u64,
    /// The longest time between two of them.
    pub silence_ns: u64,
}

impl Window {
    /// Takes a message.
    pub fn record(&mut self, now_ns: u64) {
        let (first, last) = self.span_ns.unwrap_or((now_ns, now_ns));
        self.silence_ns = self.silence_ns.max(now_ns.saturating_sub(last));
        self.span_ns = Some((first.min(now_ns), last.max(now_ns)));
        self.messages += 1;
    }

    /// Messages a second of its own window, as the published simulator computes it. A single message has no window.
    pub fn rate(&self) -> Option<f64> {
        let (first, last) = self.span_ns?;
        per_second(self.messages, last - first)
    }
}

/// Messages a second, if there is time between.
pub(crate) fn per_second(messages: u64, ns: u64) -> Option<f64> {
    (ns > 0).then(|| messages as f64 * SECOND_NS as f64 / ns as f64)
}

/// A throughput in the units that readers want.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Throughput {
    /// Messages a second.
    pub messages_per_second: f64,
    /// The instrument's events a second.
    pub events_per_second: f64,
    /// Bytes a second.
    pub bytes_per_second: f64,
}

/// How the consumers of a run compare.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spread {
    /// The least of them.
    pub least: f64,
    /// The middle one, or the mean of two.
    pub median: f64,
    /// The mean.
    pub mean: f64,
    /// The most.
    pub most: f64,
    /// The standard deviation of all.
    pub deviation: f64,
}

impl Spread {
    /// Of some values, if there are any.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (&least, &most) = (sorted.first()?, sorted.last()?);
        let count = sorted.len() as f64;
        let mean = sorted.iter().sum::<f64>() / count;
        let squares: f64 = sorted.iter().map(|value| (value - mean).powi(2)).sum();
        let middle = sorted.len() / 2;
        let median = match sorted.len() % 2 {
            0 => f64::midpoint(sorted[middle - 1], sorted[middle]),
            _ => sorted[middle],
        };
        Some(Self {
            least,
            median,
            mean,
            most,
            deviation: (squares / count).sqrt(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chance::{Chance, seeds};

    #[test]
    fn a_window_is_what_a_list_of_times_gives() {
        for seed in seeds(200) {
            let mut chance = Chance(seed);
            let mut now = chance.below(1_000_000);
            let mut times = Vec::new();
            let mut window = Window::default();
            for _ in 0..=chance.below(20) {
                now += chance.below(1_000_000);
                window.record(now);
                times.push(now);
            }
            let span = times[times.len() - 1] - times[0];
            let slow = (span > 0).then(|| times.len() as f64 / (span as f64 / 1e9));
            match (window.rate(), slow) {
                (Some(rate), Some(slow)) => assert!((rate / slow - 1.0).abs() < 1e-12),
                (rate, slow) => assert_eq!(rate, slow, "seed {seed}"),
            }
            let silence = times.windows(2).map(|two| two[1] - two[0]).max();
            assert_eq!(window.silence_ns, silence.unwrap_or(0), "seed {seed}");
        }
    }

    #[test]
    fn a_spread_is_that_of_its_values() {
        let spread = Spread::of(&[4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!((spread.least, spread.median, spread.most), (1.0, 2.5, 4.0));
        assert_eq!((spread.mean, spread.deviation), (2.5, 1.25_f64.sqrt()));
        assert_eq!(Spread::of(&[]), None);
    }
}
