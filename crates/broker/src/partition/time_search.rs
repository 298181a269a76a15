//! Where in a partition a time lies.

use log::{Found, ReadBatches, StorageError};
use wire::Offset;
use wire::batch::{Batch, Verify};

/// A search for the first batch that was taken at a time or later, by halves:
/// about 30 batches are read of a billion events. It supposes that times
/// ascend; where the server's clock was put back it finds one of the places.
#[derive(Debug)]
pub(crate) struct TimeSearch {
    time: u64,
    /// What lies before was taken earlier.
    low: Offset,
    /// What lies here or behind was taken at the time or later, or after the
    /// search began.
    high: Offset,
    /// Where the next batch is read, and what it says of all from there on:
    /// the middle, or behind a gap that the middle lies in.
    probe: (Offset, Offset),
}

impl TimeSearch {
    /// A search among the events from `first` to before `visible`.
    pub fn new(first: Offset, visible: Offset, time: u64) -> Self {
        let mut search = Self {
            time,
            low: first,
            high: visible.max(first),
            probe: (first, first),
        };
        search.halve();
        search
    }

    fn halve(&mut self) {
        let middle = Offset(self.low.0 + (self.high.0 - self.low.0) / 2);
        self.probe = (middle, middle);
    }

    /// What is to be read next; nothing once it is found.
    pub fn next_read(&self) -> Option<ReadBatches> {
        (self.low < self.high).then_some(ReadBatches {
            from: self.probe.0,
            end: self.high,
            bytes_max: 1,
            inline_data: false,
        })
    }

    /// Takes what was read.
    pub fn read(&mut self, found: Result<Found, StorageError>) -> Result<(), StorageError> {
        let (from, since) = self.probe;
        match found? {
            Found::Batches { batches, next } => {
                let stamp = batches
                    .first()
                    .and_then(|bytes| Batch::read(bytes.as_ref(), Verify::Headers).ok())
                    .and_then(|batch| batch.stamp)
                    .ok_or_else(|| StorageError::Damaged(format!("no batch at {from}")))?;
                if stamp.append_time < self.time {
                    self.low = next.max(Offset(from.0 + 1)).min(self.high);
                } else {
                    self.high = stamp.base_offset.min(since).max(self.low);
                }
            }
            Found::Gap(gap) if gap.end < self.high && gap.end > from => {
                self.probe = (gap.end, since);
                return Ok(());
            }
            Found::Gap(_) | Found::Nothing => self.high = since,
        }
        self.halve();
        Ok(())
    }

    /// The place, when nothing is to be read any more.
    pub fn found(&self) -> Offset {
        self.low
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::batch::{BatchBuilder, EventParts, Origin, Stamp};
    use wire::record::{Gap, GapReason};
    use wire::{Incarnation, ProducerEpoch, ProducerId, Sequence, TopicId};

    /// Batches by first offset: behind the last one, and the time; what lies
    /// between them is gone.
    fn answer(batches: &[(u64, u64, u64)], read: &ReadBatches) -> Found {
        let Some((first, end, time)) = batches.iter().find(|(_, end, _)| *end > read.from.0) else {
            return Found::Nothing;
        };
        if *first > read.from.0 {
            return Found::Gap(Gap {
                incarnation: Incarnation(1),
                first: read.from,
                end: Offset(*first),
                reason: GapReason::Retention,
                time: 0,
            });
        }
        let mut builder = BatchBuilder::default();
        (*first..*end).for_each(|_| builder.push(EventParts::default()));
        let origin = Origin {
            topic: TopicId(1),
            producer: ProducerId(1),
            epoch: ProducerEpoch(0),
            first_sequence: Sequence(0),
        };
        let mut bytes = builder.seal(origin, 4096).to_vec();
        let batch = Batch::read(bytes.as_slice(), Verify::Headers).unwrap();
        let stamp = Stamp {
            batch_bytes: batch.header.batch_bytes(),
            header_crc: batch.header_crc,
            base_offset: Offset(*first),
            append_time: *time,
            ..Stamp::default()
        };
        stamp.write(&mut bytes);
        Found::Batches {
            batches: vec![bytes.into()],
            next: Offset(*end),
        }
    }

    #[test]
    fn the_first_batch_of_a_time_is_found() {
        let partitions: [&[(u64, u64, u64)]; 6] = [
            &[],
            &[(0, 1, 10)],
            &[(0, 5, 10), (5, 6, 20), (6, 100, 20), (100, 101, 30)],
            &[(7, 9, 10), (9, 12, 20)],
            &[(0, 5, 10), (20, 25, 20), (60, 65, 30), (90, 91, 40)],
            &[
                (0, 1, 10),
                (1, 1000, 20),
                (5000, 5001, 20),
                (9000, 9999, 30),
            ],
        ];
        for batches in partitions {
            let first = batches.first().map_or(0, |batch| batch.0);
            let visible = batches.last().map_or(0, |batch| batch.1);
            for time in (0..=45).step_by(5) {
                let mut search = TimeSearch::new(Offset(first), Offset(visible), time);
                let mut reads = 0;
                while let Some(read) = search.next_read() {
                    reads += 1;
                    assert!(reads < 60, "{batches:?} {time}");
                    search.read(Ok(answer(batches, &read))).unwrap();
                }
                let found = search.found().0;
                // Whoever reads on from there gets what was taken then or
                // later, and nothing else.
                let got: Vec<_> = batches.iter().filter(|batch| batch.1 > found).collect();
                let wanted: Vec<_> = batches.iter().filter(|batch| batch.2 >= time).collect();
                assert_eq!(got, wanted, "{time} found at {found}");
                let whole = batches
                    .iter()
                    .all(|batch| found <= batch.0 || found >= batch.1);
                assert!(whole, "{time} found at {found}");
            }
        }
    }
}
