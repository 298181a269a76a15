//! What one client process does in one repetition, and what it reports.
//!
//! Both travel as JSON between the benchmark and its client processes.

use super::document::Document;
use super::meter::Usage;
use client::{BatchPolicy, Linger};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// What a client is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Pushes its share, to the last acknowledgement.
    Produce,
    /// Reads its share from the first event on.
    Consume,
    /// Pushes one event at a time, when the receiver has the one before it.
    Send,
    /// Receives them and tells the sender.
    Receive,
    /// Takes events of a queue that it shares with others, and acknowledges each.
    Settle,
    /// Sends requests and awaits their replies.
    Ask,
    /// Replies to requests, as a member of a queue.
    Reply,
    /// Sends to all who hear, and gathers their replies.
    Broadcast,
    /// Hears a broadcast, and replies.
    Hear,
}

/// Events of one partition that are one client's to move.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Share {
    /// The topic.
    pub topic: String,
    /// Its partition.
    pub partition: u32,
    /// Moved before anything is measured.
    pub warmup: u64,
    /// Moved while it is measured.
    pub events: u64,
}

/// Which parts of an event's data a consumer wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pieces {
    /// Bytes of a piece.
    pub bytes: u64,
    /// From the start of a piece to the start of the next.
    pub every: u64,
}

impl Pieces {
    /// How many pieces fit into `data_bytes`.
    pub fn count(&self, data_bytes: u64) -> u64 {
        match data_bytes < self.bytes {
            true => 0,
            false => (data_bytes - self.bytes) / self.every + 1,
        }
    }
}

/// How events look and travel.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Load {
    pub metadata_bytes: usize,
    pub data_bytes: usize,
    pub batch_bytes: u32,
    pub batch_count: Option<u32>,
    /// Microseconds; none is adaptive.
    pub linger_us: Option<u64>,
    /// Wait for all acknowledgements after so many events.
    pub flush_every: Option<u64>,
    /// Partitions of each topic.
    pub partitions: u32,
    /// Events that go to one partition before the next has its turn.
    pub burst: u64,
    pub pieces: Option<Pieces>,
    /// What metadata is, if not just bytes.
    pub document: Option<Document>,
    /// Whether data lies in ordinary memory.
    pub data_anywhere: bool,
    /// Whether events carry the time of their push, for delays.
    pub stamped: bool,
    /// Events of a queue that a member has unsettled at most.
    pub prefetch: u32,
    /// Requests or broadcasts that are under way at once.
    pub in_flight: usize,
    /// How many push at the same time.
    pub clients: usize,
}

impl Load {
    /// How its producers batch.
    pub fn batch(&self) -> BatchPolicy {
        BatchPolicy {
            count_max: self.batch_count,
            bytes_max: self.batch_bytes,
            linger: match self.linger_us {
                Some(us) => Linger::Wait(Duration::from_micros(us)),
                None => Linger::Adaptive,
            },
        }
    }
}

/// What one client does in one repetition.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Job {
    pub role: Role,
    pub shares: Vec<Share>,
    pub load: Load,
    /// The consumer's name.
    pub name: String,
    /// The socket by which receiver and sender meet.
    pub meeting: Option<PathBuf>,
    /// Events of all clients: members of a queue end when so many are settled.
    pub total: u64,
}

/// What became of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Done {
    pub seconds: f64,
    pub events: u64,
    /// Metadata and data that were moved.
    pub bytes: u64,
    pub usage: Usage,
    pub delays: Option<Delays>,
}

/// Delays of events, nanoseconds.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Delays {
    pub count: u64,
    pub min: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
}

impl Delays {
    /// Of what was measured; none of nothing.
    pub fn of(mut samples: Vec<u64>) -> Option<Self> {
        samples.sort_unstable();
        let last = samples.len().checked_sub(1)?;
        // The sample that so many parts of a thousand are not above.
        let at = |per_mille: usize| samples[(last * per_mille).div_ceil(1000)] as f64;
        Some(Self {
            count: samples.len() as u64,
            min: samples[0] as f64,
            p50: at(500),
            p90: at(900),
            p99: at(990),
            p999: at(999),
            max: samples[last] as f64,
        })
    }
}

/// Shares `topics` with `partitions` each out among `clients`, in a fixed
/// way: partition by partition in turn, or, where there are more clients than
/// partitions, client by client in turn. `whole` gives every client all the
/// events of its partitions; otherwise clients of one partition divide them.
pub fn assign(plan: &Plan<'_>, clients: usize, whole: bool) -> Vec<Vec<Share>> {
    let lanes: Vec<(&str, u32)> = plan
        .topics
        .iter()
        .flat_map(|topic| (0..plan.partitions).map(move |partition| (topic.as_str(), partition)))
        .collect();
    let mut shares = vec![Vec::new(); clients];
    for (lane, (topic, partition)) in lanes.iter().enumerate() {
        let owners: Vec<usize> = match clients <= lanes.len() {
            true => vec![lane % clients],
            false => (lane..clients).step_by(lanes.len()).collect(),
        };
        let (warmup, events) = (
            part(plan.warmup, lane, lanes.len()),
            part(plan.events, lane, lanes.len()),
        );
        for (index, owner) in owners.iter().enumerate() {
            let own = |count| match whole {
                true => count,
                false => part(count, index, owners.len()),
            };
            shares[*owner].push(Share {
                topic: (*topic).to_owned(),
                partition: *partition,
                warmup: own(warmup),
                events: own(events),
            });
        }
    }
    shares
}

/// What is to be shared out.
#[derive(Debug)]
pub struct Plan<'a> {
    pub topics: &'a [String],
    pub partitions: u32,
    pub warmup: u64,
    pub events: u64,
}

/// The `index`-th of `count` parts of `total`, the first ones larger by one.
fn part(total: u64, index: usize, count: usize) -> u64 {
    let (index, count) = (index as u64, count as u64);
    total / count + u64::from(index < total % count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_has_one_producer() {
        let topics = ["a".to_owned(), "b".to_owned()];
        for (partitions, clients) in [(1, 1), (1, 5), (3, 2), (4, 8), (2, 4)] {
            let plan = Plan {
                topics: &topics,
                partitions,
                warmup: 7,
                events: 1003,
            };
            let shares = assign(&plan, clients, false);
            assert_eq!(shares.len(), clients);
            let all = || shares.iter().flatten();
            assert_eq!(all().map(|share| share.events).sum::<u64>(), 1003);
            assert_eq!(all().map(|share| share.warmup).sum::<u64>(), 7);
            assert!(shares.iter().all(|shares| !shares.is_empty()));
        }
    }

    #[test]
    fn consumers_of_one_partition_each_read_all_of_it() {
        let topics = ["a".to_owned()];
        let plan = Plan {
            topics: &topics,
            partitions: 1,
            warmup: 0,
            events: 10,
        };
        let shares = assign(&plan, 3, true);
        assert!(shares.iter().all(|shares| shares[0].events == 10));
    }

    #[test]
    fn percentiles_are_samples() {
        let delays = Delays::of((1..=1000).rev().collect()).unwrap();
        assert_eq!((delays.min, delays.p50, delays.max), (1.0, 501.0, 1000.0));
        assert_eq!((delays.p99, delays.p999), (991.0, 1000.0));
        assert!(Delays::of(Vec::new()).is_none());
    }

    #[test]
    fn pieces_lie_within_the_data() {
        let pieces = Pieces {
            bytes: 4096,
            every: 409_600,
        };
        assert_eq!(pieces.count(4095), 0);
        assert_eq!(pieces.count(4096), 1);
        assert_eq!(pieces.count(409_600 + 4096), 2);
        assert_eq!(pieces.count(10_000_000), 25);
    }
}
