//! A topic that goes from one node of its cluster to another, with its events, its cursors, groups, queues and producers.
//!
//! ```text
//!  Copying ──little is left──► Yielding ──the node that has it serves it no more──► Finishing: the rest, and the ledger ──► HandingOver ──► over
//!     └──────────────────────────────── whatever fails: the topic stays where it is ────────────────────────────────┘
//! ```
//!
//! All is copied twice over the network, to the mover and from it. Between the yielding and its answer producers and consumers
//! wait, and go on by themselves then.

use crate::flow::Flow;
use crate::lane::{Lane, Shared, fetch_bytes};
use crate::link::{Stop, event_bytes};
use crate::setup::{Pair, at_copy, at_source};
use crate::trouble::{LinkError, Trouble, trouble};
use bytes::Bytes;
use client::{
    AdoptLedger, Driver, MirrorOpened, NodeId, Offset, PartitionIndex, Pending, ProducerState,
    TopicYielded,
};
use net::Bucket;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What is fetched and not stored at most, bytes, unless one event is larger.
pub const MOVE_HELD_BYTES: u64 = 64 << 20;
/// So little may be left, bytes, when the topic is yielded: it is copied while everybody waits.
const LEFT_BYTES_MAX: u64 = 2 << 20;
/// For so long everybody may wait.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// How often it is looked how fast it goes.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// When as much has been left for so long, a topic is yielded of which more is left, if that is copied in this time;
const STANDS_AFTER: Duration = Duration::from_secs(3);
const PAUSE_ACCEPTED: Duration = Duration::from_secs(5);
/// and after so long the move is given up.
const HOPELESS_AFTER: Duration = Duration::from_secs(60);
/// How much of the ledger is sent at once, bytes.
const LEDGER_BYTES: usize = 512 << 10;
/// How often it is reported what is left.
const REPORT_EVERY: Duration = Duration::from_millis(500);
/// Producers of a partition that are sent at once, and the bytes of one at most: eight batches.
const PRODUCERS_MAX: usize = 1024;
const PRODUCER_BYTES: usize = 192;
/// The number under which copies are sent: of one connection, which opens them once.
const OPENING: u64 = 1;

/// A topic that has moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    /// Events that were copied.
    pub events: u64,
    /// Their bytes, as they are stored.
    pub bytes: u64,
    /// For how long nobody could read or write it.
    pub paused: Duration,
}

/// Moves a topic to a node of its cluster. `source` and `target` are drivers of the same cluster, and of the topic's namespace, that
/// nobody else uses, with the right to administer it: of the mover's connections the topic is served to nobody else meanwhile.
/// `report` hears now and then how many events are left to be copied. Blocks.
///
/// # Errors
/// The topic is where it was then, and what was copied is there for the next try, as long as both nodes run: a node that takes no
/// topics, a topic of steps, data that cannot be read, a connection that is lost.
pub fn move_topic(
    (source, target): (&Driver, &Driver),
    name: &str,
    to: NodeId,
    report: impl FnMut(u64),
) -> Result<Moved, LinkError> {
    move_by(&Machines, (source, target), name, to, report)
}

/// [`move_topic`], by another clock than the machine's, and by drivers that a simulation runs while the mover waits.
///
/// # Errors
/// As there.
#[cfg(feature = "testing")]
pub fn move_topic_by(
    time: &dyn Time,
    drivers: (&Driver, &Driver),
    name: &str,
    to: NodeId,
) -> Result<Moved, LinkError> {
    move_by(time, drivers, name, to, |_| {})
}

fn move_by(
    time: &dyn Time,
    (source, target): (&Driver, &Driver),
    name: &str,
    to: NodeId,
    report: impl FnMut(u64),
) -> Result<Moved, LinkError> {
    let mut mover = Mover::begin(time, (source, target), name, to, report).map_err(ended)?;
    let moved = mover.run();
    if moved.is_err() {
        mover.lanes.iter().for_each(Lane::cancel);
        // It is served again as soon as its node sees the end of the connection.
        let _ = source.close(Duration::ZERO);
    }
    moved.map_err(ended)
}

/// What ends a move: nothing is waited for that would take long.
fn ended(trouble: Trouble) -> LinkError {
    let why = match trouble {
        Trouble::Over(error) => error.to_string(),
        Trouble::Again(why) => why,
        Trouble::Stopped => "it was stopped".to_owned(),
    };
    LinkError::Refused(format!("it was not moved: {why}"))
}

/// By which clock a mover goes, and how it waits.
pub trait Time {
    /// What time it is.
    fn now(&self) -> Instant;

    /// Waits for news, no longer than this.
    fn wait(&self, news: &Stop, longest: Duration);
}

/// The machine's.
struct Machines;

impl Time for Machines {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn wait(&self, news: &Stop, longest: Duration) {
        news.wait(longest);
    }
}

struct Mover<'a, R> {
    time: &'a dyn Time,
    pair: Pair,
    to: NodeId,
    lanes: Vec<Lane>,
    shared: Shared,
    /// Wakes the mover when something has come.
    waker: Stop,
    report: R,
    reported_at: Instant,
}

impl<'a, R: FnMut(u64)> Mover<'a, R> {
    fn begin(
        time: &'a dyn Time,
        (source, target): (&Driver, &Driver),
        name: &str,
        to: NodeId,
        report: R,
    ) -> Result<Self, Trouble> {
        let what = format!("topic {name}");
        let at = |error| trouble(&what, error);
        let source = source.open_topic_itself(name).map_err(at)?;
        let described = source.refresh().map_err(at)?;
        source.begin_move(to).wait().map_err(at)?;
        let copy = target.topic_as_described(described.clone()).map_err(at)?;
        let pair = Pair {
            source,
            copy,
            copy_described: described.clone(),
            described,
        };
        let received: MirrorOpened = pair
            .copy
            .begin_receive(OPENING)
            .wait()
            .map_err(|error| trouble(&at_copy(&pair), error))?;
        let mut lanes = Vec::new();
        for (described, at) in pair.described.partitions.iter().zip(&received.partitions) {
            let flow = Flow::new(
                pair.source.id(),
                (described.incarnation, at.next),
                at.durable,
                None,
            );
            let committed = described.watermarks.committed;
            lanes.push(Lane::new(at.partition, flow, committed, OPENING));
        }
        if lanes.len() != pair.described.partitions.len() {
            return Err(Trouble::refused(format!(
                "{what} has other partitions by now"
            )));
        }
        let waker = Stop::default();
        let woken = waker.clone();
        let fetch = fetch_bytes(MOVE_HELD_BYTES, lanes.len());
        Ok(Self {
            time,
            pair,
            to,
            lanes,
            shared: Shared {
                wake: Arc::new(move || woken.wake()),
                rate: Bucket::new(None, time.now()),
                rate_at: None,
                held: 0,
                held_max: MOVE_HELD_BYTES,
                opening: OPENING,
                fetch_bytes: fetch,
                skips_damaged: false,
                unreadable: BTreeSet::new(),
                held_data: 0,
                events: 0,
                bytes: 0,
                skipped: 0,
            },
            waker,
            report,
            reported_at: time.now(),
        })
    }

    fn run(&mut self) -> Result<Moved, Trouble> {
        let event_bytes = event_bytes(&self.pair.described).max(1);
        let mut pace = Pace::begin(self.left(), self.copied(), self.time.now());
        while self.left().saturating_mul(event_bytes) > LEFT_BYTES_MAX {
            self.copy()?;
            match pace.look(self.left(), self.copied(), self.time.now()) {
                Outlook::Nearer => {}
                Outlook::NearEnough => break,
                Outlook::Hopeless => {
                    let what = at_source(&self.pair);
                    return Err(Trouble::Again(format!(
                        "{what} is written faster than it is copied: {} events are left, and no fewer for {} s",
                        self.left(),
                        HOPELESS_AFTER.as_secs()
                    )));
                }
            }
        }
        let since = self.time.now();
        let yielded = self.answer(self.pair.source.begin_yield(self.to))?;
        let TopicYielded {
            ends,
            ledger,
            producers,
        } = yielded.map_err(|error| trouble(&at_source(&self.pair), error))?;
        let ends: BTreeMap<PartitionIndex, Offset> = ends.into_iter().collect();
        let indices = self.lanes.iter().map(|lane| lane.partition);
        if !indices.eq(ends.keys().copied()) {
            let what = at_source(&self.pair);
            return Err(Trouble::Again(format!(
                "{what} has other partitions by now"
            )));
        }
        let has_all = |lane: &Lane| {
            let end = ends.get(&lane.partition);
            end.is_none_or(|end| lane.flow.durable() >= *end)
        };
        while !self.lanes.iter().all(has_all) {
            if self.passed(since) > PAUSE_MAX {
                let seconds = PAUSE_MAX.as_secs();
                return Err(Trouble::Again(format!(
                    "the rest was not copied within {seconds} s, in which nobody could use it: it stays where it is. What was copied \
                     counts for the next try"
                )));
            }
            self.copy()?;
        }
        for adopt in pieces(ledger, producers) {
            let adopted = self.pair.copy.begin_adopt(&adopt).wait();
            adopted.map_err(|error| trouble(&at_copy(&self.pair), error))?;
        }
        let handed = self.pair.source.begin_hand_over().wait();
        handed.map_err(|error| trouble(&at_source(&self.pair), error))?;
        Ok(Moved {
            events: self.shared.events,
            bytes: self.shared.bytes,
            paused: self.passed(since),
        })
    }

    fn passed(&self, since: Instant) -> Duration {
        self.time.now().saturating_duration_since(since)
    }

    /// Events that are visible where the topic is, and not durable where it goes.
    fn left(&self) -> u64 {
        let left = |lane: &Lane| lane.committed.0.saturating_sub(lane.flow.durable().0);
        self.lanes.iter().map(left).sum()
    }

    /// Up to where all is durable where the topic goes, of all partitions.
    fn copied(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.flow.durable().0).sum()
    }

    /// Waits for an answer, and copies meanwhile.
    fn answer<T>(
        &mut self,
        mut pending: Pending<T>,
    ) -> Result<Result<T, client::ClientError>, Trouble> {
        crate::lane::notify(&pending, &self.shared);
        loop {
            if let Some(outcome) = pending.try_get() {
                return Ok(outcome);
            }
            self.copy()?;
        }
    }

    /// Goes on as far as it can, or waits for something to come.
    fn copy(&mut self) -> Result<(), Trouble> {
        let mut advanced = false;
        for lane in &mut self.lanes {
            advanced |= lane.advance(&self.pair, &mut self.shared, false)?;
        }
        if self.passed(self.reported_at) >= REPORT_EVERY {
            self.reported_at = self.time.now();
            let left = self.left();
            (self.report)(left);
        }
        if !advanced {
            self.time.wait(&self.waker, REPORT_EVERY);
        }
        Ok(())
    }
}

/// Whether a copy comes nearer to a topic that is being written.
struct Pace {
    /// The least that was left, and since when no less is.
    least: (u64, Instant),
    /// How far it was when that was noted, for the rate.
    before: (u64, Instant),
    /// Events a second.
    rate: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outlook {
    Nearer,
    /// It comes no nearer, and what is left is copied in a time that everybody may wait.
    NearEnough,
    /// It comes no nearer.
    Hopeless,
}

impl Pace {
    fn begin(left: u64, copied: u64, now: Instant) -> Self {
        Self {
            least: (left, now),
            before: (copied, now),
            rate: 0.0,
        }
    }

    fn look(&mut self, left: u64, copied: u64, now: Instant) -> Outlook {
        let (before, at) = self.before;
        let passed = now.saturating_duration_since(at);
        if passed >= LOOK_EVERY {
            self.rate = copied.saturating_sub(before) as f64 / passed.as_secs_f64();
            self.before = (copied, now);
        }
        // A tenth less is nearer.
        if left < self.least.0 - self.least.0 / 10 {
            self.least = (left, now);
        }
        let stands = now.saturating_duration_since(self.least.1);
        if stands >= STANDS_AFTER && left as f64 <= self.rate * PAUSE_ACCEPTED.as_secs_f64() {
            Outlook::NearEnough
        } else if stands >= HOPELESS_AFTER {
            Outlook::Hopeless
        } else {
            Outlook::Nearer
        }
    }
}

/// What is known of a topic, in parts of a convenient length: one at least, also if there is nothing.
fn pieces(
    records: Vec<Bytes>,
    producers: Vec<(PartitionIndex, Vec<ProducerState>)>,
) -> Vec<AdoptLedger> {
    let mut pieces = vec![AdoptLedger {
        is_first: true,
        records: Vec::new(),
        producers: Vec::new(),
    }];
    let mut bytes = 0;
    let mut next = |pieces: &mut Vec<AdoptLedger>, more: usize| {
        if bytes + more > LEDGER_BYTES && bytes > 0 {
            pieces.push(AdoptLedger {
                is_first: false,
                records: Vec::new(),
                producers: Vec::new(),
            });
            bytes = 0;
        }
        bytes += more;
        pieces.len() - 1
    };
    for record in records {
        let at = next(&mut pieces, record.len());
        pieces[at].records.push(record);
    }
    for (partition, states) in producers {
        for states in states.chunks(PRODUCERS_MAX) {
            let at = next(&mut pieces, states.len() * PRODUCER_BYTES);
            pieces[at].producers.push((partition, states.to_vec()));
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_sent_in_parts_and_nothing_as_well() {
        let none = pieces(Vec::new(), Vec::new());
        assert_eq!((none.len(), none[0].is_first), (1, true));
        let record = Bytes::from(vec![1; LEDGER_BYTES / 2]);
        let all = pieces(vec![record; 5], Vec::new());
        let lengths: Vec<usize> = all.iter().map(|piece| piece.records.len()).collect();
        assert_eq!(lengths, [2, 2, 1]);
        assert!(all.iter().skip(1).all(|piece| !piece.is_first));
        let long = Bytes::from(vec![1; LEDGER_BYTES + 1]);
        assert_eq!(pieces(vec![long; 2], Vec::new()).len(), 2);
        let state = ProducerState {
            producer: client::ProducerId(1),
            epoch: client::ProducerEpoch(0),
            last_time: 0,
            batches: Vec::new(),
        };
        let many = vec![state; 3 * PRODUCERS_MAX + 1];
        let all = pieces(Vec::new(), vec![(PartitionIndex(2), many.clone())]);
        let sent = all.into_iter().flat_map(|piece| piece.producers);
        let sent: Vec<_> = sent.flat_map(|(_, states)| states).collect();
        assert_eq!(sent, many);
    }

    #[test]
    fn a_topic_that_is_written_as_fast_as_it_is_copied_is_yielded_when_the_rest_is_little() {
        let mut pace = Pace::begin(1000, 0, Instant::now());
        let start = pace.least.1;
        let mut look = |seconds: u64, left: u64, copied: u64| {
            pace.look(left, copied, start + Duration::from_secs(seconds))
        };
        // It comes nearer, however slowly.
        for second in 1..100 {
            let left = (1000.0 * 0.95f64.powi(second as i32)) as u64 + 500;
            if second < 5 {
                assert_eq!(look(second, left, second * 10), Outlook::Nearer);
            }
        }
        // A hundred a second, and as much is left for three seconds.
        assert_eq!(look(5, 600, 140), Outlook::Nearer);
        assert_eq!(look(6, 600, 240), Outlook::Nearer);
        assert_eq!(look(7, 600, 340), Outlook::Nearer);
        assert_eq!(
            look(8, 600, 440),
            Outlook::Nearer,
            "six seconds are too long"
        );
        assert_eq!(look(9, 490, 540), Outlook::Nearer);
        assert_eq!(look(12, 480, 840), Outlook::NearEnough);
        // One that is never near.
        assert_eq!(look(60, 5000, 841), Outlook::Nearer);
        assert_eq!(look(70, 5000, 842), Outlook::Hopeless);
    }
}
