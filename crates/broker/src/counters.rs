//! What a server counts: anybody reads it at any time, and nobody waits for that. The status has
//! all of it; what each means is on its page, `docs/reference/status.md`.

use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to it.
    pub fn add(&self, count: u64) {
        // Relaxed, as everything here: a counter says nothing of other memory.
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// What it has come to.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Up to which power of two of microseconds durations are told apart: half a minute.
const BUCKETS: usize = 26;

/// How long something took, each time: how often it was shorter than 1 us, 2 us, 4 us and so on.
#[derive(Debug, Default)]
pub struct Histogram {
    sum_us: Counter,
    buckets: [Counter; BUCKETS],
}

impl Histogram {
    /// It took so long once more.
    pub fn add(&self, took: Duration) {
        let us = took.as_micros() as u64;
        // The length of a number in bits is the first power of two above it.
        let bucket = (u64::BITS - us.leading_zeros()) as usize;
        self.buckets[bucket.min(BUCKETS - 1)].add(1);
        self.sum_us.add(us);
    }

    /// How often.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(Counter::get).sum()
    }

    fn status(&self) -> Value {
        let mut counts: Vec<u64> = self.buckets.iter().map(Counter::get).collect();
        while counts.last() == Some(&0) {
            counts.pop();
        }
        json!({"count": counts.iter().sum::<u64>(), "sum_us": self.sum_us.get(), "below": counts})
    }
}

/// See the module. Counted by the executor: it sees all that goes into a node and comes out.
#[derive(Debug, Default)]
#[allow(missing_docs)] // The page has their meanings.
pub struct Counters {
    pub connections_begun: Counter,
    pub connections_ended: Counter,
    pub messages_received: Counter,
    pub messages_sent: Counter,
    pub payload_bytes_received: Counter,
    pub payload_bytes_sent: Counter,
    pub errors_sent: Counter,
    pub connections_refused: Counter,
    pub requests_denied: Counter,
    pub audit_records: Counter,
    pub audit_records_lost: Counter,
    pub disk_operations: Counter,
    pub turn: Histogram,
    pub disk_thread: Histogram,
    pub sync: Histogram,
}

impl Counters {
    /// All of it as it is now, as in the status.
    pub fn status(&self) -> Value {
        json!({
            "connections_begun": self.connections_begun.get(),
            "connections_ended": self.connections_ended.get(),
            "messages_received": self.messages_received.get(),
            "messages_sent": self.messages_sent.get(),
            "payload_bytes_received": self.payload_bytes_received.get(),
            "payload_bytes_sent": self.payload_bytes_sent.get(),
            "errors_sent": self.errors_sent.get(),
            "connections_refused": self.connections_refused.get(),
            "requests_denied": self.requests_denied.get(),
            "audit_records": self.audit_records.get(),
            "audit_records_lost": self.audit_records_lost.get(),
            "disk_operations": self.disk_operations.get(),
            "turn": self.turn.status(),
            "disk_thread": self.disk_thread.status(),
            "sync": self.sync.status(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_told_apart_by_powers_of_two() {
        let histogram = Histogram::default();
        for us in [0, 1, 2, 3, 4, 1000] {
            histogram.add(Duration::from_micros(us));
        }
        histogram.add(Duration::from_secs(3600));
        let status = histogram.status();
        assert_eq!(status["count"], 7);
        let below = status["below"].as_array().unwrap();
        assert_eq!(below[..4], [json!(1), json!(1), json!(2), json!(1)]);
        assert_eq!((&below[10], below.len()), (&json!(1), BUCKETS));
        assert_eq!(Histogram::default().status()["below"], json!([]));
    }
}
