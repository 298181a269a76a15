//! What a consumer's pull takes of its subscriptions: batches and gaps in the
//! order of each partition.

use super::subscriptions::{Arrival, ConsumerFeed};
use crate::data_reader::Ready;
use crate::error::ClientError;
use crate::event::{ConsumedEvent, DeliveredBatch};
use crate::faults::{Fault, planted};
use crate::feed::Wanted;
use crate::fetched::Metadata;
use crate::mailbox::Command;
use crate::puller::{Arrivals, Puller, ReadAhead, Waiting};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use wire::record::{Gap, GapReason, Position};
use wire::{Offset, PartitionIndex};

/// What has arrived, as batches and gaps in the order of each partition.
pub(crate) struct Subscribed {
    feed: Arc<ConsumerFeed>,
    /// For each partition, the next event to be handed out, as far as batches
    /// that were taken say.
    positions: BTreeMap<u32, Position>,
    /// Partitions that crossed into another life that kept these offsets.
    carried: BTreeMap<u32, Offset>,
    /// Gaps that were met and not yet reported.
    gaps: Vec<(PartitionIndex, Gap)>,
}

impl Subscribed {
    pub fn new(feed: Arc<ConsumerFeed>) -> Self {
        Self {
            feed,
            positions: BTreeMap::new(),
            carried: BTreeMap::new(),
            gaps: Vec::new(),
        }
    }
}

impl Puller<Subscribed> {
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
            .or_else(|| self.arrivals.feed.begun(partition))
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
        self.arrivals.restart(partition, position, &mut self.ahead);
    }
}

impl Subscribed {
    fn restart(&mut self, partition: u32, position: Position, ahead: &mut ReadAhead) {
        let index = PartitionIndex(partition);
        ahead.retain(|batch| batch.partition != index);
        self.carried.remove(&partition);
        self.positions.insert(partition, position);
        self.feed.restart(partition);
    }

    /// A batch was damaged on its way: it is delivered again.
    fn read_again(&mut self, partition: u32) {
        let position = self.positions.get(&partition).copied();
        let Some(position) = position.or_else(|| self.feed.begun(partition)) else {
            return;
        };
        self.feed.restart(partition);
        self.resubscribe(PartitionIndex(partition), position);
    }

    fn resubscribe(&self, partition: PartitionIndex, position: Position) {
        self.feed.mailbox.send(Command::Resubscribe {
            consumer: self.feed.key,
            partition,
            position,
            promise: None,
        });
    }

    /// The last event of a batch that ends at `next`: those from `floor` on, the first that has
    /// not been handed out, are passed over.
    fn last_of(&self, next: &Position, floor: Offset) -> Offset {
        let last = Offset(next.offset.0.saturating_sub(1));
        self.feed.skip(last.0.saturating_sub(floor.0));
        last.max(floor)
    }

    fn gap(&mut self, partition: u32, gap: Gap, next: Position) {
        let position = self.positions.get(&partition).copied();
        if let Some(position) = position
            && self.feed.options.latest
            && position.incarnation == gap.incarnation
        {
            // What lies before the loss was passed over: its batch, or that of a newer event.
            // What the next incarnation kept of it, and is read there, is counted there.
            let before = match gap.keeps_what_came_before() {
                true => gap.first.min(next.offset),
                false => gap.first,
            };
            self.feed.skip(before.0.saturating_sub(position.offset.0));
        }
        if gap.reason == GapReason::PowerLoss {
            // The next life kept what was recovered, under the same offsets.
            let offset = position.map_or(gap.first, |position| position.offset);
            self.carried.insert(partition, offset.min(gap.first));
        }
        self.positions.insert(partition, next);
        self.gaps.push((PartitionIndex(partition), gap));
    }
}

impl Arrivals for Subscribed {
    type Taken = ConsumedEvent;

    fn take(&mut self, wanted: Wanted) -> Result<Option<Waiting>, ClientError> {
        while let Some((partition, begins_at, arrival)) = self.feed.take(wanted) {
            if let Some(position) = begins_at {
                self.positions.insert(partition, position);
            }
            match arrival {
                Arrival::Gap { gap, next } => self.gap(partition, gap, next),
                Arrival::Batch {
                    incarnation, bytes, ..
                } => {
                    trace::passes!("its batch is verified, and its columns read");
                    let index = PartitionIndex(partition);
                    let batch = DeliveredBatch::read(
                        &self.feed.topic,
                        index,
                        incarnation,
                        bytes,
                        Metadata::Deserialized,
                    );
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
                    let floor = match self.feed.options.latest {
                        true => self.last_of(&next, floor),
                        false => floor,
                    };
                    return Ok(Some(Waiting::new(batch, floor)));
                }
            }
        }
        Ok(None)
    }

    fn grant(&mut self, event: ConsumedEvent) -> Option<ConsumedEvent> {
        Some(event)
    }

    fn grant_ready(
        &mut self,
        ahead: &mut ReadAhead,
        max: usize,
        mut hand_out: impl FnMut(ConsumedEvent),
    ) {
        let ready = std::iter::from_fn(|| ahead.ready());
        ready.take(max).for_each(&mut hand_out);
    }

    fn gone(&mut self, ready: &Ready, ahead: &mut ReadAhead) {
        // What became of them, and whether they are there in a later
        // incarnation, the server reports.
        let partition = ready.batch.partition;
        if let Some(position) = ready.position() {
            self.restart(partition.0, position, ahead);
            self.resubscribe(partition, position);
        }
    }

    /// The one event of `ready` is passed over, and reported as a gap.
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

    fn take_gaps(&mut self) -> Vec<(PartitionIndex, Gap)> {
        std::mem::take(&mut self.gaps)
    }
}
