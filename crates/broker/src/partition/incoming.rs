//! Batches come in: each is checked against its topic and partition, before the partition is
//! asked for it.

use super::store::Store;
use crate::coordinator::served_topic::Topic;
use crate::ctx::Ctx;
use crate::faults::Fault;
use crate::ids::RequestId;
use crate::refusal::{Refused, refuse};
use crate::verified::{Verified, VerifiedCopy, damaged};
use memory::Buffer;
use topic::TopicKind;
use wire::batch::{Batch, BatchKind, Columns, ExternalLayout, Header, STAMP_BYTES, Verify};
use wire::message::{AppendMirrored, Produce, Region};
use wire::record::Gap;
use wire::step::{Part, PartData};
use wire::{Codec, Durability, ErrorCode, Offset, ProducerEpoch, ProducerId, Sequence, TopicId};

/// A batch that was checked.
pub(crate) struct ValidBatch {
    pub bytes: Buffer,
    /// Its own; of one of a mirror's source it says where it belongs among the others: its
    /// sequence numbers are its offsets, its producer is the link.
    pub header: Header,
    /// What its source has stamped, if it is of a mirror.
    pub copied: Option<Copied>,
    pub header_crc: u32,
    pub durability: Durability,
    /// Bytes of its external data.
    pub external_bytes: u64,
}

/// What the source of a mirror says of a batch, and what is kept of it.
pub(crate) struct Copied {
    /// Where it belongs.
    pub at: Offset,
    pub append_time: u64,
    pub leader_epoch: u32,
    /// Checksum of the checksums of its external data.
    pub data_crc: u32,
    /// The header that is stored: the source's, of this topic.
    pub stored: Header,
    /// What was lost at the source, if the batch stands for that.
    pub gap: Option<Gap>,
}

/// Whose batches a mirror's are as far as their order goes.
pub(super) const LINK: ProducerId = ProducerId(u128::MAX);

/// External data of a batch, which has not been asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub layout: Option<ExternalLayout>,
    pub regions: Vec<Region>,
}

/// A producer's call with a batch that was checked.
pub(crate) struct ProduceCall {
    pub caller: RequestId,
    /// What the connection was granted of unanswered bytes.
    pub credit: u64,
    pub batch: ValidBatch,
    pub wanted: Wanted,
}

impl ValidBatch {
    /// A batch that was built here, as one that was checked, and where its external data goes.
    pub fn own(batch: &[u8], durability: Durability) -> (Self, ExternalLayout) {
        let batch = Batch::read(Buffer::copy_of(batch), Verify::Headers);
        let batch = batch.expect("it was sealed just now");
        let layout = batch.columns().expect("it was sealed just now").external;
        let batch = Self {
            external_bytes: layout.events.iter().map(|(_, _, bytes)| bytes).sum(),
            header: batch.header,
            header_crc: batch.header_crc,
            bytes: batch.into_bytes(),
            copied: None,
            durability,
        };
        (batch, layout)
    }

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

    /// Checks everything that can be said of a batch in its topic and partition without knowing
    /// what came before.
    pub fn check(
        id: TopicId,
        topic: &Topic,
        store: &Store,
        produce: Produce,
        verified: Verified,
        ctx: &Ctx,
    ) -> Result<(Self, Wanted), Refused> {
        trace::passes!("checked against its topic");
        let durability = check_durability(store, &produce)?;
        let Verified { batch, survey } = verified;
        let header = batch.header;
        if header.topic != id {
            return Err(refuse(
                ErrorCode::InvalidEvent,
                format!("the batch is of topic {}, not {id}", header.topic),
            ));
        }
        topic
            .definition
            .check_metadata_bytes(survey.metadata_bytes_max as usize)?;
        if let Some(metadata_check) = &topic.metadata_check {
            let columns =
                Columns::read(&header, batch.columns_section()).map_err(|error| damaged(&error))?;
            let is_unbounded = ctx.planted(Fault::NoBatchBudget);
            metadata_check.check(&columns.events, batch.metadata_section(), is_unbounded)?;
        }
        if topic.definition.kind() == TopicKind::Steps {
            check_parts(&header, &batch, store)?;
        }
        let external_bytes = check_external(topic, &header, survey.external.as_ref(), &produce)?;
        let checked = Self {
            header,
            header_crc: batch.header_crc,
            bytes: batch.into_bytes(),
            copied: None,
            durability,
            external_bytes,
        };
        let wanted = Wanted {
            layout: survey.external,
            regions: produce.regions,
        };
        Ok((checked, wanted))
    }

    /// Takes over a batch of a mirror's source. What its topic asks of events was asked there.
    ///
    /// `source` is the topic that the mirror is of.
    pub fn copy(
        (id, source): (TopicId, TopicId),
        topic: &Topic,
        store: &Store,
        append: AppendMirrored,
        verified: VerifiedCopy,
    ) -> Result<(Self, Wanted), Refused> {
        let produce = Produce {
            partition: append.partition,
            durability: append.durability,
            regions: append.regions,
        };
        let durability = check_durability(store, &produce)?;
        let VerifiedCopy {
            batch,
            stamp,
            survey,
        } = verified;
        let header = batch.header;
        if header.topic != source {
            return Err(refuse(
                ErrorCode::InvalidTopic,
                format!(
                    "{} is a mirror of topic {source}, the batch is of {}: the source is another topic now",
                    store.name, header.topic
                ),
            ));
        }
        let gap = match header.kind {
            BatchKind::Skipped => {
                let gap = Gap::from_bytes("skipped", batch.metadata_section());
                Some(gap.map_err(|error| damaged(&error))?)
            }
            _ => None,
        };
        let layout = survey.and_then(|survey| survey.external);
        let external_bytes = check_external(topic, &header, layout.as_ref(), &produce)?;
        let stored = Header {
            topic: id,
            ..header
        };
        let mut bytes = batch.into_bytes();
        stored.write(&mut bytes[STAMP_BYTES..]);
        let (_, header_crc) =
            Header::read(&bytes[STAMP_BYTES..]).map_err(|error| damaged(&error))?;
        let copied = Copied {
            at: stamp.base_offset,
            append_time: stamp.append_time,
            leader_epoch: stamp.leader_epoch,
            data_crc: stamp.data_crc,
            stored,
            gap,
        };
        let header = Header {
            producer: LINK,
            epoch: ProducerEpoch(0),
            first_sequence: Sequence(stamp.base_offset.0),
            event_count: header.offset_count() as u32,
            ..header
        };
        let copy = Self {
            header,
            header_crc,
            bytes,
            copied: Some(copied),
            durability,
            external_bytes,
        };
        let wanted = Wanted {
            layout,
            regions: produce.regions,
        };
        Ok((copy, wanted))
    }
}

/// How durable a batch is to be before it is acknowledged, if the partition can do that.
fn check_durability(store: &Store, produce: &Produce) -> Result<Durability, Refused> {
    if let Some(failure) = &store.failure {
        return Err(refuse(
            ErrorCode::StorageFailed,
            format!("partition {} failed: {failure}", produce.partition),
        ));
    }
    let durability = produce.durability.max(store.durability);
    let most = store.storage.durability_max();
    if durability > most {
        return Err(refuse(
            ErrorCode::InvalidDurability,
            format!(
                "{durability} is asked for, partition {} can give {most}",
                produce.partition
            ),
        ));
    }
    Ok(durability)
}

/// The bytes of a batch's external data, if its regions have as many.
fn check_external(
    topic: &Topic,
    header: &Header,
    layout: Option<&ExternalLayout>,
    produce: &Produce,
) -> Result<u64, Refused> {
    let wanted = layout.into_iter().flat_map(|layout| &layout.events);
    let wanted = wanted.map(|(_, _, bytes)| bytes).sum::<u64>();
    let given = produce
        .regions
        .iter()
        .fold(0u64, |sum, region| sum.saturating_add(region.bytes));
    if wanted != given {
        return Err(refuse(
            ErrorCode::InvalidEvent,
            format!("events have {wanted} bytes of external data, the regions {given}"),
        ));
    }
    if layout.is_some() && header.block_bytes() != topic.definition.data_block_bytes() {
        return Err(refuse(
            ErrorCode::InvalidEvent,
            format!(
                "blocks are of {} bytes, the topic's data_block_bytes is {}",
                header.block_bytes(),
                topic.definition.data_block_bytes()
            ),
        ));
    }
    Ok(wanted)
}

/// Refuses what is no part of a step, where parts are: nobody could tell its rank later.
fn check_parts(header: &Header, batch: &Batch<Buffer>, store: &Store) -> Result<(), Refused> {
    let is_memory = store.storage.durability_max() == Durability::Memory;
    let columns =
        Columns::read(header, batch.columns_section()).map_err(|error| damaged(&error))?;
    let section = batch.metadata_section();
    for (index, event) in columns.events.iter().enumerate() {
        let start = event.metadata_start as usize;
        let metadata = &section[start..start + event.metadata_bytes as usize];
        let part = Part::read(metadata, event.data_bytes).map_err(|error| {
            refuse(
                ErrorCode::InvalidEvent,
                format!("event {index} of the batch is no part of a step: {error}"),
            )
        })?;
        // What is acknowledged survives what the stream survives.
        if matches!(part.data, PartData::Held(_)) && !is_memory {
            return Err(refuse(
                ErrorCode::InvalidDurability,
                format!(
                    "{}: the data of a part stays at its writer in a stream in memory alone",
                    store.name
                ),
            ));
        }
    }
    Ok(())
}
