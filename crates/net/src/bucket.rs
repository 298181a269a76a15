//! A token bucket: so many bytes a second, on average and nearly at any time.

use std::time::{Duration, Instant};

/// What may pass at once after a pause, in time at the full rate.
const BURST: Duration = Duration::from_millis(20);
/// The least burst: one frame of data.
const BURST_BYTES_MIN: f64 = 65_536.0;

/// Tokens of what passes one way. A take may go into debt by one frame, so that over time the
/// rate is exact whatever the sizes of frames are.
#[derive(Debug, Clone)]
pub struct Bucket {
    /// Bytes a second; `None` is without a limit.
    rate: Option<u64>,
    tokens: f64,
    at: Instant,
}

impl Bucket {
    /// A full one.
    pub fn new(rate: Option<u64>, now: Instant) -> Self {
        let mut bucket = Self {
            rate,
            tokens: 0.0,
            at: now,
        };
        bucket.tokens = bucket.burst();
        bucket
    }

    /// Takes another rate from now on.
    pub fn set(&mut self, rate: Option<u64>, now: Instant) {
        self.refill(now);
        self.rate = rate;
        self.tokens = self.tokens.min(self.burst());
    }

    /// Bytes a second.
    pub fn rate(&self) -> Option<u64> {
        self.rate
    }

    /// When something may pass: `None` is now.
    pub fn opens(&mut self, now: Instant) -> Option<Instant> {
        self.refill(now);
        let rate = self.rate? as f64;
        if self.tokens > 0.0 {
            return None;
        }
        // A little more than nothing, so that who waits for it finds it.
        Some(now + Duration::from_secs_f64((1.0 - self.tokens) / rate))
    }

    /// Takes the tokens of what passes.
    pub fn take(&mut self, bytes: usize) {
        if self.rate.is_some() {
            self.tokens -= bytes as f64;
        }
    }

    fn burst(&self) -> f64 {
        let rate = self.rate.unwrap_or_default() as f64;
        (rate * BURST.as_secs_f64()).max(BURST_BYTES_MIN)
    }

    fn refill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.at = self.at.max(now);
        let rate = self.rate.unwrap_or_default() as f64;
        self.tokens = (self.tokens + passed * rate).min(self.burst());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that pass in so long, of a sender that never has too little.
    fn passes(rate: u64, frame: usize, lasts: Duration) -> u64 {
        let start = Instant::now();
        let mut bucket = Bucket::new(Some(rate), start);
        let (mut now, mut sent) = (start, 0);
        while now < start + lasts {
            match bucket.opens(now) {
                Some(later) => now = later,
                None => {
                    bucket.take(frame);
                    sent += frame as u64;
                }
            }
        }
        sent
    }

    #[test]
    fn the_rate_is_kept_whatever_the_sizes() {
        for rate in [100_000, 12_500_000, 1_250_000_000] {
            for frame in [100, 16_384, 65_536] {
                let lasts = Duration::from_secs(if rate > 1_000_000_000 { 1 } else { 30 });
                let sent = passes(rate, frame, lasts) as f64;
                let asked = rate as f64 * lasts.as_secs_f64();
                assert!(
                    (sent / asked - 1.0).abs() < 0.05,
                    "{rate} {frame}: {}",
                    sent / asked
                );
            }
        }
    }

    #[test]
    fn a_pause_saves_no_more_than_a_burst() {
        let start = Instant::now();
        let mut bucket = Bucket::new(Some(1_000_000), start);
        let later = start + Duration::from_secs(3600);
        let mut sent = 0;
        while bucket.opens(later).is_none() {
            bucket.take(1000);
            sent += 1000;
        }
        assert!(sent <= 67_000, "{sent}");
        bucket.set(None, later);
        assert_eq!(bucket.opens(later), None);
        assert_eq!(bucket.rate(), None);
    }
}
