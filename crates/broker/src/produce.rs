//! Batches come in: checked once, appended, answered when they are as durable
//! as was asked.

use crate::faults::Fault;
use crate::node::{Asker, Node, StorageId};
use crate::partition::storage_error;
use crate::session::{Refused, malformed, refuse};
use crate::transfer::TransferId;
use log::producers::Verdict;
use log::{Append, DataPlace, StorageState};
use memory::Buffer;
use std::collections::VecDeque;
use wire::batch::{Batch, BatchKind, Columns, ExternalLayout, Header, Survey, Verify};
use wire::codec::Reader;
use wire::message::{Produce, Produced, RequestHead};
use wire::{Codec, DecodeError, Durability, ErrorCode, ErrorReply, Incarnation, Offset, Sequence};

/// A batch that waits for its external data, or behind one that does.
pub(crate) struct Arrival {
    pub asker: Asker,
    pub batch: Incoming,
    pub stage: ArrivalStage,
}

/// How far an [`Arrival`] has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ArrivalStage {
    /// Its external data is on its way.
    Transferring(TransferId),
    /// It can be appended when its turn comes.
    Ready(Option<DataPlace>),
}

/// A batch that was checked.
pub(crate) struct Incoming {
    pub bytes: Buffer,
    pub header: Header,
    pub header_crc: u32,
    pub durability: Durability,
}

impl Incoming {
    /// The sequence number of the batch that follows.
    fn next(&self) -> Sequence {
        Sequence(
            self.header
                .first_sequence
                .0
                .saturating_add(u64::from(self.header.event_count)),
        )
    }
}

/// An answer that waits for durability.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ack {
    pub asker: Asker,
    /// The batch's offsets.
    pub base_offset: Offset,
    pub end: Offset,
    pub append_time: u64,
    pub duplicate: bool,
}

/// Answers that wait, by the durability that was asked for, in the order of
/// their offsets.
#[derive(Debug, Default)]
pub(crate) struct Acks {
    levels: [VecDeque<Ack>; 3],
}

const LEVELS: [Durability; 3] = [Durability::Memory, Durability::Written, Durability::Synced];

impl Acks {
    fn push(&mut self, level: Durability, ack: Ack) {
        self.levels[level as usize].push_back(ack);
    }

    /// The next answer that may be given.
    pub fn pop_reached(&mut self, state: &StorageState) -> Option<Ack> {
        for (queue, level) in self.levels.iter_mut().zip(LEVELS) {
            if queue
                .front()
                .is_some_and(|ack| ack.end <= state.reached(level))
            {
                return queue.pop_front();
            }
        }
        None
    }

    /// What waits for offsets from `from` on: the storage undid it.
    pub fn take_from(&mut self, from: Offset) -> Vec<Ack> {
        let mut taken = Vec::new();
        for queue in &mut self.levels {
            let (undone, kept) = std::mem::take(queue)
                .into_iter()
                .partition(|ack| ack.end > from);
            *queue = kept;
            taken.extend::<VecDeque<Ack>>(undone);
        }
        taken
    }

    /// Everything that waits, which is given up.
    pub fn take_all(&mut self) -> Vec<Ack> {
        self.levels.iter_mut().flat_map(std::mem::take).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.levels.iter().all(VecDeque::is_empty)
    }
}

impl Node {
    pub(crate) fn produce(
        &mut self,
        asker: Asker,
        head: &RequestHead,
        from: &mut Reader<'_>,
        payload: Buffer,
    ) -> Result<(), Refused> {
        let produce = Produce::decode(from).map_err(malformed)?;
        self.refuse_if_draining()?;
        let storage = self.storage_of(asker, head.topic, produce.partition)?;
        let (incoming, external) = self.check_batch(head, &produce, storage, payload)?;
        self.check_epoch(&incoming.header)?;
        let verdict = self.verdict(storage, &incoming)?;
        match verdict {
            Turn::Duplicate(base_offset) => {
                self.acknowledge_duplicate(asker, storage, &incoming, base_offset);
                Ok(())
            }
            Turn::Now if external.is_none() => self.append(asker, storage, incoming, None),
            turn => self.arrive(asker, storage, turn, incoming, external, produce.regions),
        }
    }

    /// Checks everything that can be said without knowing what came before.
    fn check_batch(
        &self,
        head: &RequestHead,
        produce: &Produce,
        storage: StorageId,
        payload: Buffer,
    ) -> Result<(Incoming, Option<ExternalLayout>), Refused> {
        let (Some(topic), Some(partition)) =
            (self.topics.get(&head.topic), self.partitions.get(&storage))
        else {
            return Err(crate::topics::unknown_topic(head.topic));
        };
        if let Some(failure) = &partition.failure {
            return Err(refuse(
                ErrorCode::StorageFailed,
                format!("partition {} failed: {failure}", produce.partition),
            ));
        }
        let durability = produce.durability.max(partition.durability);
        let most = partition.storage.durability_max();
        if durability > most {
            return Err(refuse(
                ErrorCode::InvalidDurability,
                format!(
                    "{durability} is asked for, partition {} can give {most}",
                    produce.partition
                ),
            ));
        }
        let verify = match self.planted(Fault::NoChecksum) {
            true => Verify::Headers,
            false => Verify::Sections,
        };
        let had = payload.len() as u64;
        let batch = Batch::read(payload, verify).map_err(|error| damaged(&error))?;
        let invalid = |what: String| Err(refuse(ErrorCode::InvalidEvent, what));
        let header = batch.header;
        if batch.stamp.is_some() || header.kind != BatchKind::Events || header.batch_bytes() != had
        {
            return invalid(format!(
                "the payload of {had} bytes is no unstamped batch of events of {} bytes",
                header.batch_bytes()
            ));
        }
        if header.topic != head.topic {
            return invalid(format!(
                "the batch is of topic {}, not {}",
                header.topic, head.topic
            ));
        }
        if header.offset_count() != u64::from(header.event_count) || header.group.0 != 0 {
            return Err(refuse(
                ErrorCode::Unsupported,
                "batches with holes and transactions are not supported",
            ));
        }
        let survey =
            Survey::read(&header, batch.columns_section()).map_err(|error| damaged(&error))?;
        topic
            .definition
            .check_metadata_bytes(survey.metadata_bytes_max as usize)?;
        if let Some(validator) = &topic.validator {
            let columns =
                Columns::read(&header, batch.columns_section()).map_err(|error| damaged(&error))?;
            let metadata = batch.metadata_section();
            for (index, event) in columns.events.iter().enumerate() {
                let start = event.metadata_start as usize;
                validator
                    .validate(&metadata[start..start + event.metadata_bytes as usize])
                    .map_err(|error| {
                        refuse(error.code(), format!("event {index} of the batch: {error}"))
                    })?;
            }
        }
        let wanted = survey.external.iter().flat_map(|layout| &layout.events);
        let wanted = wanted.map(|(_, _, bytes)| bytes).sum::<u64>();
        let given = produce
            .regions
            .iter()
            .fold(0u64, |sum, region| sum.saturating_add(region.bytes));
        if wanted != given {
            return invalid(format!(
                "events have {wanted} bytes of external data, the regions {given}"
            ));
        }
        if survey.external.is_some() && header.block_bytes() != topic.definition.data_block_bytes()
        {
            return invalid(format!(
                "blocks are of {} bytes, the topic's data_block_bytes is {}",
                header.block_bytes(),
                topic.definition.data_block_bytes()
            ));
        }
        let incoming = Incoming {
            header,
            header_crc: batch.header_crc,
            bytes: batch.into_bytes(),
            durability,
        };
        Ok((incoming, survey.external))
    }

    /// What the storage says of a batch, and whether it has to wait.
    fn verdict(&mut self, storage: StorageId, incoming: &Incoming) -> Result<Turn, Refused> {
        let planted = self.planted(Fault::NoDeduplication);
        let held_max = self.options.limits.arrivals_max;
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
            if first == tail.next() {
                let held = queue.map_or(0, VecDeque::len);
                if held >= held_max {
                    return Err(ErrorReply::retryable(
                        ErrorCode::LimitExceeded,
                        100,
                        format!("{held} batches of the producer wait already (arrivals_max)"),
                    ));
                }
                return Ok(Turn::Later);
            }
            let expected = tail.next();
            return match partition.storage.check(header) {
                Verdict::Duplicate { base_offset } => Ok(Turn::Duplicate(base_offset)),
                _ => Err(out_of_sequence(header, expected)),
            };
        }
        match partition.storage.check(header) {
            Verdict::New => Ok(Turn::Now),
            Verdict::Duplicate { .. } if planted => Ok(Turn::Now),
            Verdict::Duplicate { base_offset } => Ok(Turn::Duplicate(base_offset)),
            Verdict::OutOfSequence { expected } | Verdict::Unknown { expected } => {
                Err(out_of_sequence(header, expected))
            }
            Verdict::Fenced { epoch } if !self.planted(Fault::NoFencing) => {
                Err(fenced(epoch, header.epoch))
            }
            Verdict::Fenced { .. } => Ok(Turn::Now),
        }
    }

    /// Puts a batch into the queue of its producer, where it waits for its
    /// external data or for those before it.
    fn arrive(
        &mut self,
        asker: Asker,
        storage: StorageId,
        turn: Turn,
        incoming: Incoming,
        external: Option<ExternalLayout>,
        regions: Vec<wire::message::Region>,
    ) -> Result<(), Refused> {
        let producer = incoming.header.producer;
        let stage = match external {
            None => ArrivalStage::Ready(None),
            Some(layout) => {
                let transfer =
                    self.begin_transfer(asker.link, storage, &incoming, layout, regions)?;
                ArrivalStage::Transferring(transfer)
            }
        };
        let Some(partition) = self.partitions.get_mut(&storage) else {
            return Ok(());
        };
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
        Ok(())
    }

    /// Appends what has its turn and all of its data.
    pub(crate) fn append_arrivals(&mut self, storage: StorageId, producer: wire::ProducerId) {
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
            let result = match partition.storage.check(&batch.header) {
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
            }
        }
    }

    fn append(
        &mut self,
        asker: Asker,
        storage: StorageId,
        incoming: Incoming,
        place: Option<DataPlace>,
    ) -> Result<(), Refused> {
        let append_time = self.now.unix_ns;
        let Some(partition) = self.partitions.get_mut(&storage) else {
            return Ok(());
        };
        let count = incoming.header.offset_count();
        let level = incoming.durability;
        self.touched.insert(storage);
        let appended = partition.storage.append(Append {
            batch: incoming.bytes,
            header: incoming.header,
            header_crc: incoming.header_crc,
            place,
            durability: level,
            append_time,
            leader_epoch: 1,
        });
        let base_offset = match appended {
            Ok(offset) => offset,
            Err(error) => {
                if let Some(place) = place {
                    partition.storage.abandon(place);
                }
                return Err(storage_error(&error));
            }
        };
        let ack = Ack {
            asker,
            base_offset,
            end: base_offset.plus(count),
            append_time,
            duplicate: false,
        };
        partition.acks.push(level, ack);
        Ok(())
    }

    /// A retry gets the offsets that its first try got, once those are as
    /// durable as is asked now.
    fn acknowledge_duplicate(
        &mut self,
        asker: Asker,
        storage: StorageId,
        incoming: &Incoming,
        base_offset: Offset,
    ) {
        let Some(partition) = self.partitions.get_mut(&storage) else {
            return;
        };
        let ack = Ack {
            asker,
            base_offset,
            end: base_offset.plus(incoming.header.offset_count()),
            // The time is in the batch's stamp, which is not read for this.
            append_time: 0,
            duplicate: true,
        };
        partition.acks.push(incoming.durability, ack);
        self.touched.insert(storage);
    }

    /// Tells the producer that its batch is stored.
    pub(crate) fn acknowledge(&mut self, ack: &Ack, incarnation: Incarnation) {
        let produced = Produced {
            incarnation,
            base_offset: ack.base_offset,
            append_time: ack.append_time,
            duplicate: ack.duplicate,
        };
        self.reply(ack.asker, produced.to_bytes());
    }

    /// Gives up a batch that was waiting, and its data.
    pub(crate) fn give_up_arrival(
        &mut self,
        storage: StorageId,
        arrival: Arrival,
        error: Option<ErrorReply>,
    ) {
        match arrival.stage {
            ArrivalStage::Transferring(transfer) => self.abandon_transfer(transfer),
            ArrivalStage::Ready(Some(place)) => {
                if let Some(partition) = self.partitions.get_mut(&storage) {
                    partition.storage.abandon(place);
                    self.touched.insert(storage);
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
        producer: wire::ProducerId,
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

/// When a batch is to be appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// It is the next of its producer.
    Now,
    /// After those of its producer that wait for external data.
    Later,
    /// It is there already, as one that waits: it was sent again.
    InPlaceOf(usize),
    /// It was appended before.
    Duplicate(Offset),
}

fn damaged(error: &DecodeError) -> ErrorReply {
    let code = match error.problem {
        wire::codec::Problem::Checksum { .. } => ErrorCode::ChecksumMismatch,
        _ => ErrorCode::InvalidEvent,
    };
    refuse(code, error.to_string())
}

fn out_of_sequence(header: &Header, expected: Sequence) -> ErrorReply {
    ErrorReply::retryable(
        ErrorCode::OutOfSequence,
        0,
        format!(
            "producer {}: sequence {} came, {expected} is expected",
            header.producer, header.first_sequence
        ),
    )
}

pub(crate) fn fenced(current: wire::ProducerEpoch, epoch: wire::ProducerEpoch) -> ErrorReply {
    refuse(
        ErrorCode::ProducerFenced,
        format!("epoch {epoch} of the producer was ended by epoch {current}"),
    )
}
