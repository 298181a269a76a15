//! What a partition remembers of its producers, so that a retry is known.

use std::collections::{HashMap, VecDeque};
use wire::batch::{BatchKind, Header, SealedBatch, state_batch};
use wire::codec::{Codec, DecodeError, Reader, Write};
use wire::record::{ProducerState, SequenceRange};
use wire::{Offset, ProducerEpoch, ProducerId, Sequence, TopicId};

/// So many of a producer's last batches are known again when they are sent
/// again. A client has at most this many in flight at one partition.
pub const BATCHES_REMEMBERED: usize = 8;

/// Whether a batch may be appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It continues the producer's sequence (or is the producer's first here).
    New,
    /// It was stored before, from this offset on.
    Duplicate {
        /// The offset of its first event.
        base_offset: Offset,
    },
    /// It leaves a hole: an earlier batch has not arrived.
    OutOfSequence {
        /// The sequence number expected.
        expected: Sequence,
    },
    /// It is older than everything remembered, or overlaps a stored batch in
    /// part, or its producer was not seen for so long that it was forgotten.
    Unknown {
        /// The sequence number expected.
        expected: Sequence,
    },
    /// A greater epoch of the producer has appended.
    Fenced {
        /// The greatest epoch seen.
        epoch: ProducerEpoch,
    },
}

/// How much is remembered. What is beyond is forgotten, the producers first
/// that were silent longest; a forgotten producer that goes on gets
/// [`Verdict::Unknown`], never a second copy of what it sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProducerLimits {
    /// How many producers.
    pub count_max: usize,
    /// For how long after the last batch, nanoseconds.
    pub silence_ns_max: u64,
}

/// The producers of one partition.
#[derive(Debug, Clone)]
pub struct ProducerTable {
    producers: HashMap<ProducerId, Producer>,
    limits: ProducerLimits,
}

#[derive(Debug, Clone)]
struct Producer {
    epoch: ProducerEpoch,
    last_time: u64,
    /// The sequence number of the next new batch.
    next: Sequence,
    /// The newest is last.
    batches: VecDeque<SequenceRange>,
}

impl Producer {
    /// The sequence number of the next batch, if it is of this epoch or a greater one.
    fn expected(&self, epoch: ProducerEpoch) -> Sequence {
        match epoch == self.epoch {
            true => self.next,
            false => Sequence(0),
        }
    }
}

impl ProducerTable {
    /// Remembers nobody yet.
    pub fn new(limits: ProducerLimits) -> Self {
        Self {
            producers: HashMap::new(),
            limits,
        }
    }

    /// What is to be done with a batch of this header. Producer 0 is nobody:
    /// its batches are always new.
    pub fn check(&self, header: &Header) -> Verdict {
        trace::passes!("its sequence number is checked");
        let (first, count) = (header.first_sequence, header.event_count);
        if header.producer == ProducerId(0) {
            return Verdict::New;
        }
        let Some(producer) = self.producers.get(&header.producer) else {
            return match first {
                Sequence(0) => Verdict::New,
                _ => Verdict::Unknown {
                    expected: Sequence(0),
                },
            };
        };
        if header.epoch < producer.epoch {
            return Verdict::Fenced {
                epoch: producer.epoch,
            };
        }
        let expected = producer.expected(header.epoch);
        if first == expected {
            return Verdict::New;
        }
        if first > expected {
            return Verdict::OutOfSequence { expected };
        }
        let stored = producer.batches.iter();
        match stored
            .rev()
            .find(|range| range.first == first && range.count == count)
        {
            Some(range) => Verdict::Duplicate {
                base_offset: range.base_offset,
            },
            None => Verdict::Unknown { expected },
        }
    }

    /// The sequence number that is expected next of a producer in this epoch. `None` if a
    /// greater epoch of it has appended, or it is producer 0.
    pub fn next_sequence(&self, id: ProducerId, epoch: ProducerEpoch) -> Option<Sequence> {
        match self.producers.get(&id) {
            _ if id == ProducerId(0) => None,
            Some(producer) if epoch < producer.epoch => None,
            Some(producer) => Some(producer.expected(epoch)),
            None => Some(Sequence(0)),
        }
    }

    /// A batch was appended at `base_offset`.
    pub fn appended(&mut self, header: &Header, base_offset: Offset, time: u64) {
        if header.producer == ProducerId(0) || header.kind != BatchKind::Events {
            return;
        }
        let producer = self
            .producers
            .entry(header.producer)
            .or_insert_with(|| Producer {
                epoch: header.epoch,
                last_time: time,
                next: Sequence(0),
                batches: VecDeque::with_capacity(BATCHES_REMEMBERED),
            });
        if header.epoch > producer.epoch {
            producer.epoch = header.epoch;
            producer.batches.clear();
        }
        if producer.batches.len() == BATCHES_REMEMBERED {
            producer.batches.pop_front();
        }
        producer.last_time = time;
        producer.next = Sequence(header.first_sequence.0 + u64::from(header.event_count));
        producer.batches.push_back(SequenceRange {
            first: header.first_sequence,
            count: header.event_count,
            base_offset,
        });
        if self.producers.len() > self.limits.count_max {
            self.forget_the_most_silent();
        }
    }

    /// Undoes every append from `from` on.
    pub fn retract(&mut self, from: Offset) {
        for producer in self.producers.values_mut() {
            while let Some(range) = producer.batches.back()
                && range.base_offset >= from
            {
                producer.next = range.first;
                producer.batches.pop_back();
            }
        }
        self.producers
            .retain(|_, producer| producer.next > Sequence(0) || !producer.batches.is_empty());
    }

    /// Forgets who was silent for too long.
    pub fn expire(&mut self, unix_ns: u64) {
        let silence_max = self.limits.silence_ns_max;
        self.producers
            .retain(|_, producer| unix_ns.saturating_sub(producer.last_time) <= silence_max);
    }

    /// An eighth goes at once, so that finding them costs little per producer.
    fn forget_the_most_silent(&mut self) {
        let mut by_silence: Vec<(u64, ProducerId)> = self
            .producers
            .iter()
            .map(|(id, producer)| (producer.last_time, *id))
            .collect();
        by_silence.sort_unstable();
        let keep = self.limits.count_max - self.limits.count_max / 8;
        let excess = by_silence.len().saturating_sub(keep.max(1));
        for (_, id) in &by_silence[..excess] {
            self.producers.remove(id);
        }
    }

    /// How many are remembered.
    pub fn len(&self) -> usize {
        self.producers.len()
    }

    /// Whether nobody is remembered.
    pub fn is_empty(&self) -> bool {
        self.producers.is_empty()
    }

    /// What is remembered of each, ascending by producer.
    pub fn states(&self) -> Vec<ProducerState> {
        let producers = self.producers.iter();
        let mut states: Vec<ProducerState> = producers
            .map(|(id, producer)| producer.state(*id))
            .collect();
        states.sort_unstable_by_key(|state| state.producer);
        states
    }

    /// Remembers of these what is said here, in place of what was remembered.
    pub fn adopt(&mut self, states: Vec<ProducerState>) {
        for state in states {
            let producer = Producer::of_state(state.clone());
            self.producers.insert(state.producer, producer);
        }
        if self.producers.len() > self.limits.count_max {
            self.forget_the_most_silent();
        }
    }

    /// The batch that a segment begins with.
    pub(crate) fn snapshot(&self, topic: TopicId) -> SealedBatch {
        let states = self.states();
        let mut body = Vec::new();
        body.put_u16(SNAPSHOT_TYPE);
        body.put_u16(SNAPSHOT_VERSION);
        states.encode(&mut body);
        state_batch(BatchKind::Snapshot, topic, &body)
    }

    /// Takes over what [`Self::snapshot`] wrote, the batch's metadata.
    pub(crate) fn restore(&mut self, body: &[u8]) -> Result<(), DecodeError> {
        let mut from = Reader::new("producer snapshot", body);
        let (kind, version) = (from.u16()?, from.u16()?);
        // Its bytes were verified.
        if kind != SNAPSHOT_TYPE {
            let found = u64::from(kind);
            return Err(DecodeError::newer("producer snapshot", 0, "type", found));
        }
        if version != SNAPSHOT_VERSION {
            let found = u64::from(version);
            let own = u64::from(SNAPSHOT_VERSION);
            return Err(DecodeError::version(
                "producer snapshot",
                2,
                "version",
                found,
                own,
            ));
        }
        let states = Vec::<ProducerState>::decode(&mut from)?;
        self.producers = states
            .into_iter()
            .map(|state| (state.producer, Producer::of_state(state)))
            .collect();
        Ok(())
    }
}

const SNAPSHOT_TYPE: u16 = 1;
const SNAPSHOT_VERSION: u16 = 1;

impl Producer {
    fn state(&self, producer: ProducerId) -> ProducerState {
        let mut batches: Vec<SequenceRange> = self.batches.iter().copied().collect();
        if batches.is_empty() {
            // Undone appends may leave nothing but the next number: a range
            // of no events says it.
            batches.push(SequenceRange {
                first: self.next,
                count: 0,
                base_offset: Offset(0),
            });
        }
        ProducerState {
            producer,
            epoch: self.epoch,
            last_time: self.last_time,
            batches,
        }
    }

    fn of_state(state: ProducerState) -> Self {
        let next = state.batches.last().map_or(0, |range| {
            range.first.0.saturating_add(u64::from(range.count))
        });
        let mut batches = VecDeque::from(state.batches);
        batches.retain(|range| range.count > 0);
        let excess = batches.len().saturating_sub(BATCHES_REMEMBERED);
        batches.drain(..excess);
        Self {
            epoch: state.epoch,
            last_time: state.last_time,
            next: Sequence(next),
            batches,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::batch::{BatchBuilder, EventParts, Origin, STAMP_BYTES};

    const LIMITS: ProducerLimits = ProducerLimits {
        count_max: 16,
        silence_ns_max: 1000,
    };

    fn header(producer: u128, epoch: u32, first: u64, count: u32) -> Header {
        let mut builder = BatchBuilder::default();
        for _ in 0..count {
            builder.push(EventParts::default());
        }
        let origin = Origin {
            topic: TopicId(1),
            producer: ProducerId(producer),
            epoch: ProducerEpoch(epoch),
            first_sequence: Sequence(first),
        };
        let batch = builder.seal(origin, 4096).to_vec();
        Header::read(&batch[STAMP_BYTES..]).unwrap().0
    }

    #[test]
    fn a_retry_is_known_and_a_hole_is_refused() {
        let mut table = ProducerTable::new(LIMITS);
        for i in 0..10 {
            let next = header(1, 0, i * 3, 3);
            assert_eq!(table.check(&next), Verdict::New);
            table.appended(&next, Offset(100 + i * 3), i);
        }
        let again = |first, count| table.check(&header(1, 0, first, count));
        let expected = Sequence(30);
        assert_eq!(
            again(27, 3),
            Verdict::Duplicate {
                base_offset: Offset(127)
            }
        );
        assert_eq!(
            again(6, 3),
            Verdict::Duplicate {
                base_offset: Offset(106)
            }
        );
        assert_eq!(again(3, 3), Verdict::Unknown { expected }, "forgotten");
        assert_eq!(again(27, 2), Verdict::Unknown { expected }, "in part");
        assert_eq!(again(33, 3), Verdict::OutOfSequence { expected });
        assert_eq!(again(30, 1), Verdict::New);
    }

    #[test]
    fn a_greater_epoch_starts_at_zero_and_fences_the_smaller() {
        let mut table = ProducerTable::new(LIMITS);
        table.appended(&header(1, 3, 0, 5), Offset(0), 0);
        let expected = Sequence(0);
        assert_eq!(
            table.check(&header(1, 4, 5, 1)),
            Verdict::OutOfSequence { expected }
        );
        assert_eq!(table.check(&header(1, 4, 0, 1)), Verdict::New);
        table.appended(&header(1, 4, 0, 1), Offset(5), 0);
        let epoch = ProducerEpoch(4);
        assert_eq!(table.check(&header(1, 3, 5, 1)), Verdict::Fenced { epoch });
    }

    #[test]
    fn the_next_sequence_is_the_one_that_would_be_appended() {
        let mut table = ProducerTable::new(LIMITS);
        table.appended(&header(1, 3, 0, 5), Offset(0), 0);
        let next = |id, epoch| table.next_sequence(ProducerId(id), ProducerEpoch(epoch));
        assert_eq!(next(1, 3), Some(Sequence(5)));
        assert_eq!(next(1, 4), Some(Sequence(0)));
        assert_eq!(next(2, 0), Some(Sequence(0)));
        for (id, epoch) in [(1, 3), (1, 4), (2, 0)] {
            let first = next(id, epoch).unwrap().0;
            let verdict = table.check(&header(id, epoch, first, 1));
            assert_eq!(verdict, Verdict::New, "{id} {epoch}");
        }
        // An ended epoch and nobody have none.
        assert_eq!((next(1, 2), next(0, 0)), (None, None));
    }

    #[test]
    fn the_forgotten_are_refused_and_never_doubled() {
        let mut table = ProducerTable::new(LIMITS);
        for producer in 1..=17 {
            table.appended(&header(producer, 0, 0, 2), Offset(0), producer as u64);
        }
        assert!(table.len() <= LIMITS.count_max);
        let expected = Sequence(0);
        assert_eq!(
            table.check(&header(1, 0, 2, 1)),
            Verdict::Unknown { expected }
        );
        assert_eq!(table.check(&header(17, 0, 2, 1)), Verdict::New);
        table.expire(1018);
        assert!(table.is_empty());
    }

    #[test]
    fn undone_appends_are_new_again() {
        let mut table = ProducerTable::new(LIMITS);
        for i in 0..20u64 {
            table.appended(&header(1, 0, i, 1), Offset(i), 0);
        }
        table.appended(&header(2, 0, 0, 1), Offset(20), 0);
        table.retract(Offset(5));
        assert_eq!(table.check(&header(2, 0, 0, 1)), Verdict::New);
        assert_eq!(table.len(), 1);
        // Only the last eight are remembered; the first of these is next.
        assert_eq!(table.check(&header(1, 0, 12, 1)), Verdict::New);
    }

    #[test]
    fn a_snapshot_restores_all_of_it() {
        let mut table = ProducerTable::new(LIMITS);
        for i in 0..12u64 {
            table.appended(&header(1, 2, i, 1), Offset(i), 7);
        }
        table.appended(&header(2, 0, 0, 1), Offset(12), 8);
        let batch = table.snapshot(TopicId(1)).to_vec();
        let batch = wire::batch::Batch::read(batch, wire::batch::Verify::Sections).unwrap();
        let mut restored = ProducerTable::new(LIMITS);
        restored.restore(batch.metadata_section()).unwrap();
        let sections = |table: &ProducerTable| table.snapshot(TopicId(1)).to_vec();
        assert_eq!(sections(&restored), sections(&table));
        assert!(restored.restore(&[1, 2, 3]).is_err());
    }
}
