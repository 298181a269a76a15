//! Batches that wait: for their external data, or for those before them.

use crate::faults::Fault;
use crate::ids::{Asker, StorageId, TransferId};
use crate::node::Node;
use crate::partition::incoming::Incoming;
use crate::partition::wait_queue::InLine;
use crate::refusal::{Refused, refuse};
use log::DataPlace;
use log::producers::Verdict;
use std::collections::VecDeque;
use wire::batch::{ExternalLayout, Header};
use wire::message::Region;
use wire::{ErrorCode, ErrorReply, Offset, ProducerEpoch, ProducerId, Sequence};

/// A batch that waits: for room, for its external data, or behind one that does.
pub(crate) struct Arrival {
    pub asker: Asker,
    pub batch: Incoming,
    pub stage: ArrivalStage,
}

/// How far an [`Arrival`] has come.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ArrivalStage {
    /// There is no room for it yet; see [`crate::partition::wait_queue::Line`].
    InLine(InLine),
    /// Its external data is on its way.
    Transferring(TransferId),
    /// It can be appended when its turn comes.
    Ready(Option<DataPlace>),
}

/// When a batch is to be appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It is the next of its producer.
    Now,
    /// After those of its producer that wait for external data.
    Later,
    /// It is there already, as one that waits: it was sent again.
    InPlaceOf(usize),
    /// It was appended before.
    Duplicate(Offset),
}

impl Node {
    /// What the storage says of a batch, and whether it has to wait.
    pub(crate) fn verdict(
        &mut self,
        storage: StorageId,
        incoming: &Incoming,
    ) -> Result<Turn, Refused> {
        let planted = self.ctx.planted(Fault::NoDeduplication);
        let held_max = self.ctx.options.limits.arrivals_max;
        let Some(partition) = self.partitions.get_mut(&storage) else {
            return Err(refuse(ErrorCode::UnknownPartition, "the partition is gone"));
        };
        let header = &incoming.header;
        let queue = partition.arrivals.get(&header.producer);
        let tail = queue.and_then(|queue| queue.back()).map(|tail| &tail.batch);
        if let Some(tail) = tail {
            if header.epoch < tail.header.epoch {
                return Err(fenced(tail.header.epoch, header.epoch));
            }
            if header.epoch > tail.header.epoch {
                // A new life of the producer: the old one's batches are not waited for.
                let queue = partition
                    .arrivals
                    .remove(&header.producer)
                    .unwrap_or_default();
                for arrival in queue {
                    let error = fenced(header.epoch, arrival.batch.header.epoch);
                    self.give_up_arrival(storage, arrival, Some(error));
                }
                return self.verdict(storage, incoming);
            }
            let first = header.first_sequence;
            let same = queue.and_then(|queue| {
                queue.iter().position(|waiting| {
                    let waiting = &waiting.batch.header;
                    waiting.first_sequence == first && waiting.event_count == header.event_count
                })
            });
            if let Some(index) = same {
                return Ok(Turn::InPlaceOf(index));
            }
            if partition.room.follows(header, tail.next()) {
                let held = queue.map_or(0, VecDeque::len);
                if held >= held_max && partition.room.line.is_empty() {
                    return Err(ErrorReply::retryable(
                        ErrorCode::LimitExceeded,
                        100,
                        format!("{held} batches of the producer wait already (arrivals_max)"),
                    ));
                }
                if held >= held_max {
                    // To be sent when its turn has come, which may take long.
                    return Err(out_of_sequence(header, first));
                }
                return Ok(Turn::Later);
            }
            let expected = tail.next();
            return match partition.check(header) {
                Verdict::Duplicate { base_offset } => Ok(Turn::Duplicate(base_offset)),
                _ => Err(out_of_sequence(header, expected)),
            };
        }
        match partition.check(header) {
            Verdict::New => Ok(Turn::Now),
            Verdict::Duplicate { .. } if planted => Ok(Turn::Now),
            Verdict::Duplicate { base_offset } => Ok(Turn::Duplicate(base_offset)),
            Verdict::OutOfSequence { expected } | Verdict::Unknown { expected } => {
                Err(out_of_sequence(header, expected))
            }
            Verdict::Fenced { epoch } if !self.ctx.planted(Fault::NoFencing) => {
                Err(fenced(epoch, header.epoch))
            }
            Verdict::Fenced { .. } => Ok(Turn::Now),
        }
    }

    /// Puts a batch into the queue of its producer, where it waits for its
    /// external data or for those before it.
    pub(crate) fn arrive(
        &mut self,
        asker: Asker,
        storage: StorageId,
        turn: Turn,
        incoming: Incoming,
        external: Option<ExternalLayout>,
        regions: Vec<Region>,
    ) -> Result<(), Refused> {
        let stage = self.begin_arrival(asker, storage, &incoming, external, regions)?;
        self.queue_arrival(asker, storage, turn, incoming, stage);
        Ok(())
    }

    /// A batch is to be stored: what it waits for now.
    pub(crate) fn begin_arrival(
        &mut self,
        asker: Asker,
        storage: StorageId,
        incoming: &Incoming,
        external: Option<ExternalLayout>,
        regions: Vec<Region>,
    ) -> Result<ArrivalStage, Refused> {
        let Some(layout) = external else {
            return Ok(ArrivalStage::Ready(None));
        };
        let transfer = self.begin_transfer(asker.link, storage, incoming, layout, regions)?;
        Ok(ArrivalStage::Transferring(transfer))
    }

    /// Puts a batch into the queue of its producer.
    pub(crate) fn queue_arrival(
        &mut self,
        asker: Asker,
        storage: StorageId,
        turn: Turn,
        incoming: Incoming,
        stage: ArrivalStage,
    ) {
        let producer = incoming.header.producer;
        let Some(partition) = self.partitions.get_mut(&storage) else {
            return;
        };
        if !matches!(stage, ArrivalStage::InLine(_)) {
            partition.room.coming(incoming.size());
        }
        let arrival = Arrival {
            asker,
            batch: incoming,
            stage,
        };
        let queue = partition.arrivals.entry(producer).or_default();
        if let Turn::InPlaceOf(index) = turn
            && let Some(waiting) = queue.get_mut(index)
        {
            let old = std::mem::replace(waiting, arrival);
            let error = ErrorReply::retryable(ErrorCode::Cancelled, 0, "the batch was sent again");
            self.give_up_arrival(storage, old, Some(error));
        } else {
            queue.push_back(arrival);
        }
        self.append_arrivals(storage, producer);
    }

    /// Appends what has its turn and all of its data.
    pub(crate) fn append_arrivals(&mut self, storage: StorageId, producer: ProducerId) {
        loop {
            let Some(partition) = self.partitions.get_mut(&storage) else {
                return;
            };
            let Some(queue) = partition.arrivals.get_mut(&producer) else {
                return;
            };
            let ready = |arrival: &Arrival| matches!(arrival.stage, ArrivalStage::Ready(_));
            let next = queue
                .front()
                .is_some_and(ready)
                .then(|| queue.pop_front())
                .flatten();
            if queue.is_empty() {
                partition.arrivals.remove(&producer);
            }
            let Some(Arrival {
                asker,
                batch,
                stage: ArrivalStage::Ready(place),
            }) = next
            else {
                return;
            };
            partition.room.came(batch.size());
            let result = match partition.check(&batch.header) {
                Verdict::New => self.append(asker, storage, batch, place),
                verdict => {
                    if let Some(place) = place {
                        partition.storage.abandon(place);
                    }
                    match verdict {
                        Verdict::Duplicate { base_offset } => {
                            self.acknowledge_duplicate(asker, storage, &batch, base_offset);
                            Ok(())
                        }
                        Verdict::Fenced { epoch } => Err(fenced(epoch, batch.header.epoch)),
                        Verdict::OutOfSequence { expected } | Verdict::Unknown { expected } => {
                            Err(out_of_sequence(&batch.header, expected))
                        }
                        Verdict::New => Ok(()),
                    }
                }
            };
            if let Err(error) = result {
                self.refuse_request(asker, error);
                self.give_up_misplaced(storage);
            }
        }
    }

    /// Gives up what waits behind a batch that is not stored after all: it
    /// would be refused when its turn comes, and until then keep the one that
    /// is sent again from its place.
    pub(crate) fn give_up_misplaced(&mut self, storage: StorageId) {
        let Some(partition) = self.partitions.get(&storage) else {
            return;
        };
        let is_misplaced = |queue: &VecDeque<Arrival>| {
            let front = queue.front().map(|front| &front.batch.header);
            front.is_some_and(|front| {
                let verdict = partition.check(front);
                matches!(verdict, Verdict::OutOfSequence { .. })
            })
        };
        let misplaced: Vec<ProducerId> = partition
            .arrivals
            .iter()
            .filter(|(_, queue)| is_misplaced(queue))
            .map(|(producer, _)| *producer)
            .collect();
        for producer in misplaced {
            self.give_up_arrivals_from(storage, producer, 0);
        }
    }

    /// Gives up a batch that was waiting, and its data.
    pub(crate) fn give_up_arrival(
        &mut self,
        storage: StorageId,
        arrival: Arrival,
        error: Option<ErrorReply>,
    ) {
        let is_coming = !matches!(arrival.stage, ArrivalStage::InLine(_));
        if is_coming && let Some(partition) = self.partitions.get_mut(&storage) {
            partition.room.came(arrival.batch.size());
            // What it leaves free may be somebody's who waits.
            self.ctx.dirty.partitions.insert(storage);
        }
        match arrival.stage {
            ArrivalStage::InLine(_) => self.left_line(storage, arrival.asker.link, &arrival.batch),
            ArrivalStage::Transferring(transfer) => self.abandon_transfer(transfer),
            ArrivalStage::Ready(Some(place)) => {
                if let Some(partition) = self.partitions.get_mut(&storage) {
                    partition.storage.abandon(place);
                    self.ctx.dirty.partitions.insert(storage);
                }
            }
            ArrivalStage::Ready(None) => {}
        }
        if let Some(error) = error {
            self.refuse_request(arrival.asker, error);
        }
    }

    /// Nobody waits for a produce call any more. What was appended stays;
    /// what still waits for data goes, with what waits behind it.
    pub(crate) fn forget_produce(&mut self, asker: Asker) {
        let found = self.partitions.iter().find_map(|(id, partition)| {
            partition.arrivals.iter().find_map(|(producer, queue)| {
                let index = queue.iter().position(|arrival| arrival.asker == asker)?;
                Some((*id, *producer, index))
            })
        });
        if let Some((storage, producer, index)) = found {
            self.give_up_arrivals_from(storage, producer, index);
        }
    }

    /// Gives up a producer's waiting batches from `index` on.
    pub(crate) fn give_up_arrivals_from(
        &mut self,
        storage: StorageId,
        producer: ProducerId,
        index: usize,
    ) {
        let Some(partition) = self.partitions.get_mut(&storage) else {
            return;
        };
        let Some(queue) = partition.arrivals.get_mut(&producer) else {
            return;
        };
        let given_up = queue.split_off(index);
        if queue.is_empty() {
            partition.arrivals.remove(&producer);
        }
        for arrival in given_up {
            let header = arrival.batch.header;
            let error = ErrorReply::retryable(
                ErrorCode::OutOfSequence,
                0,
                format!(
                    "the batch of sequence {} waited behind one that was given up",
                    header.first_sequence
                ),
            );
            self.give_up_arrival(storage, arrival, Some(error));
        }
    }
}

pub(crate) fn out_of_sequence(header: &Header, expected: Sequence) -> ErrorReply {
    ErrorReply::retryable(
        ErrorCode::OutOfSequence,
        0,
        format!(
            "producer {}: sequence {} came, {expected} is expected",
            header.producer, header.first_sequence
        ),
    )
}

pub(crate) fn fenced(current: ProducerEpoch, epoch: ProducerEpoch) -> ErrorReply {
    refuse(
        ErrorCode::ProducerFenced,
        format!("epoch {epoch} of the producer was ended by epoch {current}"),
    )
}
