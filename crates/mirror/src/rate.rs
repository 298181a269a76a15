//! A token bucket: so many bytes a second, in bursts of a tenth of that.

use std::time::{Duration, Instant};

/// See the module. Without a limit everything passes.
#[derive(Debug)]
pub struct Rate {
    bytes_per_second: Option<u64>,
    /// Bytes that may pass; below 0 after one that was larger than the burst.
    tokens: f64,
    at: Instant,
}

impl Rate {
    /// A bucket that is full.
    pub fn new(bytes_per_second: Option<u64>, now: Instant) -> Self {
        let mut rate = Self {
            bytes_per_second,
            tokens: 0.0,
            at: now,
        };
        rate.tokens = rate.burst();
        rate
    }

    fn burst(&self) -> f64 {
        self.bytes_per_second.map_or(0.0, |rate| rate as f64 / 10.0)
    }

    /// Takes so many bytes, or says when to ask again.
    pub fn take(&mut self, bytes: u64, now: Instant) -> Result<(), Duration> {
        let Some(rate) = self.bytes_per_second else {
            return Ok(());
        };
        let rate = rate as f64;
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.tokens = (self.tokens + passed * rate).min(self.burst());
        self.at = now;
        // What is larger than the burst passes alone, and is paid for behind it.
        if self.tokens <= 0.0 {
            return Err(Duration::from_secs_f64((1.0 - self.tokens) / rate));
        }
        self.tokens -= bytes as f64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_takes_what_the_rate_says() {
        let start = Instant::now();
        let mut rate = Rate::new(Some(1000), start);
        let (mut passed, mut now) = (0, start);
        while now < start + Duration::from_secs(10) {
            match rate.take(70, now) {
                Ok(()) => passed += 70,
                Err(wait) => now += wait,
            }
        }
        assert!((9_800..=10_300).contains(&passed), "{passed}");
        assert_eq!(Rate::new(None, start).take(u64::MAX, start), Ok(()));
    }
}
