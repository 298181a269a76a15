//! The callers' side of a consumer: arrivals become verified events, in the
//! order of each partition.

use crate::data_reader::{DataReader, Ready};
use crate::error::ClientError;
use crate::event::{ConsumedEvent, DeliveredBatch};
use crate::faults::{Fault, planted};
use crate::feed::{Arrival, ConsumerShared, Wanted};
use crate::mailbox::Command;
use crate::read_ahead::{Next, ReadAhead, Waiting};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use wire::record::{Gap, GapReason, Position};
use wire::{Offset, PartitionIndex};

/// What a consumer hands out next. One thread at a time uses it.
pub(crate) struct Puller {
    arrivals: Arrivals,
    ahead: ReadAhead,
    /// What went wrong when nobody had asked.
    failure: Option<ClientError>,
}

/// What has arrived, as batches and gaps in the order of each partition.
struct Arrivals {
    shared: Arc<ConsumerShared>,
    /// For each partition, the next event to be handed out, as far as batches
    /// that were taken say.
    positions: BTreeMap<u32, Position>,
    /// Partitions that crossed into another life that kept these offsets.
    carried: BTreeMap<u32, Offset>,
    /// Gaps that were met and not yet told.
    gaps: Vec<(PartitionIndex, Gap)>,
}

impl Puller {
    pub fn new(shared: Arc<ConsumerShared>, reader: DataReader) -> Self {
        Self {
            arrivals: Arrivals {
                shared,
                positions: BTreeMap::new(),
                carried: BTreeMap::new(),
                gaps: Vec::new(),
            },
            ahead: ReadAhead::new(reader),
            failure: None,
        }
    }

    /// Data that did not come along has arrived: begins to read it. For
    /// whoever takes in what arrives; nothing of the user's is called.
    pub fn begin_early(&mut self) {
        if self.failure.is_none() {
            let arrivals = &mut self.arrivals;
            let begun = self.ahead.begin_early(|wanted| arrivals.take(wanted));
            self.failure = begun.err();
        }
    }

    /// The next event, if it is there.
    pub fn next(&mut self) -> Result<Option<ConsumedEvent>, ClientError> {
        if let Some(event) = self.ahead.ready() {
            return Ok(Some(event));
        }
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        loop {
            let arrivals = &mut self.arrivals;
            match self.ahead.next(|wanted| arrivals.take(wanted))? {
                Next::Event(event) => return Ok(Some(event)),
                Next::Nothing => return Ok(None),
                // What became of them, and whether they are there in a later
                // life, the server tells.
                Next::Gone(ready) => {
                    let partition = ready.batch.partition;
                    if let Some(position) = ready.position() {
                        self.restart(partition.0, position);
                        self.arrivals.resubscribe(partition, position);
                    }
                }
                Next::Damaged(ready) => self.arrivals.damaged(&ready),
            }
        }
    }

    /// Takes the gaps that were met.
    pub fn take_gaps(&mut self) -> Vec<(PartitionIndex, Gap)> {
        std::mem::take(&mut self.arrivals.gaps)
    }

    /// The next event of a partition to be handed out, if that is known.
    pub fn position(&self, partition: u32) -> Option<Position> {
        let index = PartitionIndex(partition);
        let taken = self
            .ahead
            .taken()
            .filter(|(batch, _)| batch.partition == index)
            .find_map(|(batch, next)| {
                Some(Position {
                    incarnation: batch.incarnation,
                    offset: next?,
                })
            });
        taken
            .or_else(|| self.arrivals.shared.begun(partition))
            .or_else(|| self.arrivals.positions.get(&partition).copied())
    }

    /// Forgets what was taken of a partition that is this member's no more.
    pub fn forget(&mut self, partition: PartitionIndex) {
        self.ahead.retain(|batch| batch.partition != partition);
        self.arrivals.carried.remove(&partition.0);
        self.arrivals.positions.remove(&partition.0);
    }

    /// Forgets what was taken of a partition: it is read again from `position`.
    pub fn restart(&mut self, partition: u32, position: Position) {
        let index = PartitionIndex(partition);
        self.ahead.retain(|batch| batch.partition != index);
        self.arrivals.carried.remove(&partition);
        self.arrivals.positions.insert(partition, position);
        self.arrivals.shared.restart(partition);
    }
}

impl Arrivals {
    /// The one event of `ready` is passed over, and told as a gap.
    fn damaged(&mut self, ready: &Ready) {
        let (Some(first), Some(last)) = (ready.skip(), ready.end.checked_sub(1)) else {
            return;
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let gap = Gap {
            incarnation: ready.batch.incarnation,
            first: ready.batch.id(first).offset,
            end: ready.batch.id(last).offset.plus(1),
            reason: GapReason::Damaged,
            time: now.unwrap_or_default().as_nanos() as u64,
        };
        self.gaps.push((ready.batch.partition, gap));
    }

    /// The next batch that has arrived, verified, and the offset before which
    /// its events are of no interest.
    fn take(&mut self, wanted: Wanted) -> Result<Option<Waiting>, ClientError> {
        while let Some((partition, begins_at, arrival)) = self.shared.take(wanted) {
            if let Some(position) = begins_at {
                self.positions.insert(partition, position);
            }
            match arrival {
                Arrival::Gap { gap, next } => self.gap(partition, gap, next),
                Arrival::Batch {
                    incarnation, bytes, ..
                } => {
                    let index = PartitionIndex(partition);
                    let batch = DeliveredBatch::read(&self.shared.topic, index, incarnation, bytes);
                    let batch = match batch {
                        Ok(batch) => batch,
                        Err(error) => {
                            self.read_again(partition);
                            return Err(error);
                        }
                    };
                    let position = self.positions.get(&partition);
                    let floor = match position {
                        _ if planted(Fault::NoFloor) => Offset(0),
                        Some(position) if position.incarnation == incarnation => position.offset,
                        _ => self.carried.get(&partition).copied().unwrap_or(Offset(0)),
                    };
                    let next = Position {
                        incarnation,
                        offset: batch.next_offset(),
                    };
                    self.positions.insert(partition, next);
                    self.carried.remove(&partition);
                    return Ok(Some(Waiting::new(batch, floor)));
                }
            }
        }
        Ok(None)
    }

    /// A batch was damaged on its way: it is delivered again.
    fn read_again(&mut self, partition: u32) {
        let position = self.positions.get(&partition).copied();
        let Some(position) = position.or_else(|| self.shared.begun(partition)) else {
            return;
        };
        self.shared.restart(partition);
        self.resubscribe(PartitionIndex(partition), position);
    }

    fn resubscribe(&self, partition: PartitionIndex, position: Position) {
        self.shared.mailbox.send(Command::Resubscribe {
            consumer: self.shared.key,
            partition,
            position,
            promise: None,
        });
    }

    fn gap(&mut self, partition: u32, gap: Gap, next: Position) {
        let position = self.positions.get(&partition).copied();
        if gap.reason == GapReason::PowerLoss {
            // The next life kept what was recovered, under the same offsets.
            let offset = position.map_or(gap.first, |position| position.offset);
            self.carried.insert(partition, offset.min(gap.first));
        }
        self.positions.insert(partition, next);
        self.gaps.push((PartitionIndex(partition), gap));
    }
}
