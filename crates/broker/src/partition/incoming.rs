//! Batches come in: checked once, appended, answered when they are as durable
//! as was asked.

use crate::faults::Fault;
use crate::ids::{Asker, OWN_LINK, StorageId};
use crate::node::Node;
use crate::partition::acks::Ack;
use crate::partition::appends::Turn;
use crate::partition::wait_queue::Wanted;
use crate::refusal::{Refused, malformed, refuse};
use log::{Append, DataPlace};
use memory::Buffer;
use wire::batch::{Batch, BatchKind, Columns, ExternalLayout, Header, Survey, Verify};
use wire::codec::Reader;
use wire::message::{Produce, Produced, RequestHead};
use wire::{Codec, DecodeError, Durability, ErrorCode, ErrorReply, Incarnation, Offset, Sequence};

/// A batch that was checked.
pub(crate) struct Incoming {
    pub bytes: Buffer,
    pub header: Header,
    pub header_crc: u32,
    pub durability: Durability,
    /// Bytes of its external data.
    pub external_bytes: u64,
}

impl Incoming {
    /// What it takes of a storage, about.
    pub fn bytes_stored(&self) -> u64 {
        self.header
            .batch_bytes()
            .saturating_add(self.external_bytes)
    }

    /// Its events, and what it takes of a storage.
    pub fn size(&self) -> (u64, u64) {
        (self.header.offset_count(), self.bytes_stored())
    }

    /// The sequence number of the batch that follows.
    pub fn next(&self) -> Sequence {
        Sequence(
            self.header
                .first_sequence
                .0
                .saturating_add(u64::from(self.header.event_count)),
        )
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
        self.check_dropped(storage, &incoming)?;
        let turn = self.verdict(storage, &incoming)?;
        if let Turn::Duplicate(base_offset) = turn {
            self.acknowledge_duplicate(asker, storage, &incoming, base_offset);
            return Ok(());
        }
        if !self.may_come(storage, turn, &incoming)? {
            let wanted = Wanted {
                layout: external,
                regions: produce.regions,
            };
            return self.wait_in_line(asker, storage, turn, incoming, wanted);
        }
        match turn {
            Turn::Now if external.is_none() => self.append(asker, storage, incoming, None),
            turn => self.arrive(asker, storage, turn, incoming, external, produce.regions),
        }
    }

    /// Whether a batch is let in now, or has to wait in line.
    fn may_come(
        &mut self,
        storage: StorageId,
        turn: Turn,
        incoming: &Incoming,
    ) -> Result<bool, Refused> {
        let header = &incoming.header;
        if self.is_behind_line(storage, turn, header.producer) {
            return Ok(false);
        }
        match turn {
            // It was let in when it came first.
            Turn::InPlaceOf(_) => Ok(true),
            _ if self.has_line(storage) => Ok(false),
            _ => self.check_room(storage, header, incoming.bytes_stored()),
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
            return Err(crate::describe::unknown_topic(head.topic));
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
        let verify = match self.ctx.planted(Fault::NoChecksum) {
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
        if let Some(judge) = &topic.judge {
            let columns =
                Columns::read(&header, batch.columns_section()).map_err(|error| damaged(&error))?;
            let is_unbounded = self.ctx.planted(Fault::NoBatchBudget);
            judge.check(&columns.events, batch.metadata_section(), is_unbounded)?;
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
            external_bytes: wanted,
        };
        Ok((incoming, survey.external))
    }

    pub(crate) fn append(
        &mut self,
        asker: Asker,
        storage: StorageId,
        incoming: Incoming,
        place: Option<DataPlace>,
    ) -> Result<(), Refused> {
        let append_time = self.ctx.now.unix_ns;
        let Some(partition) = self.partitions.get_mut(&storage) else {
            return Ok(());
        };
        let count = incoming.header.offset_count();
        let bytes = incoming.bytes_stored();
        let level = incoming.durability;
        self.ctx.dirty.partitions.insert(storage);
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
                return Err(self.refusal(storage, &error));
            }
        };
        partition.room.appended(base_offset.plus(count), bytes);
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
    pub(crate) fn acknowledge_duplicate(
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
        self.ctx.dirty.partitions.insert(storage);
    }

    /// Tells the producer that its batch is stored.
    pub(crate) fn acknowledge(&mut self, ack: &Ack, incarnation: Incarnation) {
        if ack.asker.link == OWN_LINK {
            self.own_append_stored(ack.asker.id);
            return;
        }
        let produced = Produced {
            incarnation,
            base_offset: ack.base_offset,
            append_time: ack.append_time,
            duplicate: ack.duplicate,
        };
        self.reply(ack.asker, produced.to_bytes());
    }
}

fn damaged(error: &DecodeError) -> ErrorReply {
    let code = match error.problem {
        wire::codec::Problem::Checksum { .. } => ErrorCode::ChecksumMismatch,
        _ => ErrorCode::InvalidEvent,
    };
    refuse(code, error.to_string())
}
