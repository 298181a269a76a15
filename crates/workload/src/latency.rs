//! Distributions of times, in bounded memory.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// The longest time that is distinguished from longer ones: an hour.
pub const LATENCY_NS_MAX: u64 = 3_600_000_000_000;

/// Decimal digits that a percentile keeps: one is wrong by a thousandth at most.
pub const DIGITS: u8 = 3;

/// A distribution of times in nanoseconds: at most about 300 KiB, whatever is recorded. Count, sum, least and most
/// are exact.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct Latency {
    histogram: Histogram<u64>,
    sum_ns: u128,
    least_ns: u64,
    most_ns: u64,
}

/// A distribution as JSON: the values that occur, each with how often.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    counts: Vec<(u64, u64)>,
    /// Split, for JSON's readers take 64 bits at most.
    sum_ns: (u64, u64),
    least_ns: u64,
    most_ns: u64,
}

impl From<Latency> for Written {
    fn from(latency: Latency) -> Self {
        let counts = latency
            .histogram
            .iter_recorded()
            .map(|value| (value.value_iterated_to(), value.count_at_value()));
        Self {
            counts: counts.collect(),
            sum_ns: ((latency.sum_ns >> 64) as u64, latency.sum_ns as u64),
            least_ns: latency.least_ns,
            most_ns: latency.most_ns,
        }
    }
}

impl TryFrom<Written> for Latency {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        let mut latency = Self::new();
        let mut total = 0_u64;
        for &(value, count) in &written.counts {
            total = total
                .checked_add(count)
                .ok_or("more times than 64 bits count")?;
            latency.histogram.saturating_record_n(value, count);
        }
        latency.sum_ns = u128::from(written.sum_ns.0) << 64 | u128::from(written.sum_ns.1);
        latency.least_ns = written.least_ns;
        latency.most_ns = written.most_ns;
        Ok(latency)
    }
}

impl Default for Latency {
    fn default() -> Self {
        Self::new()
    }
}

/// The percentiles of a distribution, as results state them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Percentiles {
    /// How many times there are.
    pub count: u64,
    /// The least.
    pub least_ns: u64,
    /// The mean.
    pub mean_ns: f64,
    /// The median.
    pub p50_ns: u64,
    /// Nine of ten are not longer.
    pub p90_ns: u64,
    /// 99 of 100.
    pub p99_ns: u64,
    /// 999 of 1000.
    pub p999_ns: u64,
    /// The longest.
    pub most_ns: u64,
    /// The distribution: a time, and which part is not longer.
    pub cdf: Vec<(u64, f64)>,
}

impl Latency {
    /// Without any.
    pub fn new() -> Self {
        Self {
            histogram: Histogram::new_with_bounds(1, LATENCY_NS_MAX, DIGITS)
                .expect("these bounds are allowed"),
            sum_ns: 0,
            least_ns: u64::MAX,
            most_ns: 0,
        }
    }

    /// Takes a time.
    pub fn record(&mut self, ns: u64) {
        self.histogram.saturating_record(ns.min(LATENCY_NS_MAX));
        self.sum_ns += u128::from(ns);
        self.least_ns = self.least_ns.min(ns);
        self.most_ns = self.most_ns.max(ns);
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Adds another's.
    pub fn add(&mut self, other: &Self) {
        self.histogram
            .add(&other.histogram)
            .expect("all have the same bounds");
        self.sum_ns += other.sum_ns;
        self.least_ns = self.least_ns.min(other.least_ns);
        self.most_ns = self.most_ns.max(other.most_ns);
    }

    /// The time that this part of all does not exceed.
    pub fn quantile(&self, part: f64) -> u64 {
        let value = self.histogram.value_at_quantile(part);
        value.clamp(self.least_ns.min(self.most_ns), self.most_ns)
    }

    /// What results state, if there is anything.
    pub fn percentiles(&self) -> Option<Percentiles> {
        if self.count() == 0 {
            return None;
        }
        let hundredths = (0..=99).map(|part| f64::from(part) / 100.0);
        let mut cdf: Vec<(u64, f64)> = Vec::new();
        for part in hundredths.chain([0.995, 0.999, 0.9999, 1.0]) {
            let ns = self.quantile(part);
            match cdf.last_mut() {
                Some(last) if last.0 == ns => last.1 = part,
                _ => cdf.push((ns, part)),
            }
        }
        Some(Percentiles {
            count: self.count(),
            least_ns: self.least_ns,
            mean_ns: self.sum_ns as f64 / self.count() as f64,
            p50_ns: self.quantile(0.5),
            p90_ns: self.quantile(0.9),
            p99_ns: self.quantile(0.99),
            p999_ns: self.quantile(0.999),
            most_ns: self.most_ns,
            cdf,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chance::{Chance, seeds};

    fn times(chance: &mut Chance) -> Vec<u64> {
        let count = 1 + chance.below(500);
        let scale = 1 + chance.below(40);
        (0..count)
            .map(|_| 1 + (chance.next() >> (20 + scale % 40)) % LATENCY_NS_MAX)
            .collect()
    }

    /// The value at a rank of the sorted list.
    fn slowly(sorted: &[u64], part: f64) -> u64 {
        let rank = (part * sorted.len() as f64).ceil().max(1.0) as usize;
        sorted[rank.min(sorted.len()) - 1]
    }

    #[test]
    fn percentiles_are_those_of_a_sorted_list_to_a_thousandth() {
        for seed in seeds(100) {
            let mut chance = Chance(seed);
            let mut times = times(&mut chance);
            let mut parts = [Latency::new(), Latency::new(), Latency::new()];
            for &time in &times {
                parts[chance.below(3) as usize].record(time);
            }
            // Merged from several processes, by way of text.
            let mut all = Latency::new();
            for part in parts {
                let text = serde_json::to_string(&part).unwrap();
                let read: Latency = serde_json::from_str(&text).unwrap();
                assert_eq!(read, part, "seed {seed}");
                all.add(&read);
            }
            times.sort_unstable();
            let found = all.percentiles().unwrap();
            let exact = times.iter().map(|&time| u128::from(time)).sum::<u128>() as f64;
            assert_eq!(found.mean_ns, exact / times.len() as f64, "seed {seed}");
            assert_eq!(found.least_ns, times[0]);
            assert_eq!(found.most_ns, times[times.len() - 1]);
            assert_eq!(found.count, times.len() as u64);
            let stated = [
                (found.p50_ns, 0.5),
                (found.p90_ns, 0.9),
                (found.p99_ns, 0.99),
                (found.p999_ns, 0.999),
            ];
            for (ns, part) in stated.into_iter().chain(found.cdf.iter().copied()) {
                let slow = slowly(&times, part);
                let error = ns.abs_diff(slow) as f64;
                assert!(
                    error <= 1.0 + slow as f64 / 1000.0,
                    "seed {seed}: {part}: {ns}, {slow}"
                );
            }
            assert!(
                found
                    .cdf
                    .is_sorted_by(|one, next| one.0 < next.0 && one.1 < next.1)
            );
            assert_eq!(found.cdf.last().map(|last| last.1), Some(1.0));
        }
    }

    #[test]
    fn nothing_has_no_percentiles() {
        assert_eq!(Latency::new().percentiles(), None);
        let text = serde_json::to_string(&Latency::new()).unwrap();
        assert_eq!(
            serde_json::from_str::<Latency>(&text).unwrap(),
            Latency::new()
        );
    }

    #[test]
    fn times_of_no_clock_are_bounded() {
        let mut latency = Latency::new();
        latency.record(0);
        latency.record(u64::MAX);
        assert_eq!(latency.count(), 2);
        assert_eq!(latency.percentiles().unwrap().most_ns, u64::MAX);
    }
}
