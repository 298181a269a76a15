//! Dead letters: read, written to the dead-letter topic, settled behind that.
//!
//! A queue's partition writes one at a time, in the order of the sequence
//! numbers that their records gave them, as an idempotent producer of its
//! own. So one that was written before a crash is known when it comes again.

use super::core::{Lent, QueueCore, RETRY_AFTER};
use super::letter_data::Letter;
use super::partition::Dead;
use super::staging::Staged;
use crate::coordinator::served_topic::Slot;
use crate::ctx::Ctx;
use crate::effects::ReadFor;
use crate::faults::Fault;
use crate::ids::{OWN_LINK, RequestId, StorageId};
use crate::partition::incoming::ValidBatch;
use crate::partition::store::Reading;
use crate::refusal::fenced;
use bytes::Bytes;
use log::producers::Verdict;
use log::{Found, ReadBatches, StorageError};
use wire::batch::{BatchBuilder, EventParts, ExternalLayout, Headers, Origin};
use wire::{
    Codec, ErrorReply, Incarnation, Offset, PartitionIndex, ProducerEpoch, ProducerId, Sequence,
    TopicId,
};

/// Where a dead letter comes from.
struct Origins<'a> {
    topic: &'a str,
    queue: &'a str,
    partition: PartitionIndex,
    incarnation: Incarnation,
    at: Offset,
}

/// The dead letters of a queue; which one each partition writes is with the partition.
#[derive(Debug, Default)]
pub(super) struct DeadLetters {
    /// Whether the operator was told that they can't be written.
    failed: bool,
}

impl DeadLetters {
    /// Begins with the next dead letter of each partition that has some.
    pub fn write(queue: &mut QueueCore, lent: &mut Lent<'_>) {
        if lent.is_draining {
            return;
        }
        let now = lent.ctx.now.monotonic;
        for (index, shelf) in &mut queue.partitions {
            if shelf.letter.is_some() || shelf.letter_at > now {
                continue;
            }
            let Some((at, dead)) = shelf.state.next_dead_letter() else {
                continue;
            };
            shelf.letter = Some(Letter {
                at,
                sequence: dead.sequence.unwrap_or(Sequence(0)),
                append: None,
            });
            let read = ReadBatches {
                from: at,
                end: at.plus(1),
                bytes_max: 1,
                inline_data: true,
            };
            let reading = Reading::For(ReadFor::DeadLetter {
                id: queue.id,
                partition: *index,
            });
            if let Some(partition) = lent.partitions.get_mut(&shelf.storage) {
                partition.store.read_batches(reading, read, lent.ctx);
            }
        }
    }

    /// The event of a dead letter was read.
    pub fn letter_read(
        &mut self,
        index: PartitionIndex,
        found: Result<Found, StorageError>,
        queue: &mut QueueCore,
        lent: &mut Lent<'_>,
    ) {
        let Some(shelf) = queue.partitions.get_mut(&index) else {
            return;
        };
        let Some(letter) = shelf.letter else {
            return;
        };
        let at = letter.at;
        if shelf.state.dead(at).is_none() {
            // It was lost meanwhile.
            shelf.letter = None;
            queue.touch(lent.ctx);
            return;
        }
        let written = match found {
            Ok(Found::Batches { batches, .. }) => match batches.into_iter().next() {
                Some(bytes) => append_letter(index, letter, bytes, queue, lent),
                None => Ok(()),
            },
            // Retention was faster: there is nothing to be kept any more.
            Ok(Found::Gap(_) | Found::Nothing) => {
                shelf.letter = None;
                shelf.state.lost(at, at.plus(1), &mut queue.loads);
                queue.touch(lent.ctx);
                return;
            }
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = written {
            self.letter_failed(index, &error, queue, lent.ctx);
        }
    }

    /// A dead letter is as durable as its topic promises.
    pub fn letter_stored(
        &mut self,
        index: PartitionIndex,
        append: u64,
        queue: &mut QueueCore,
        ctx: &mut Ctx,
    ) {
        if let Some(shelf) = queue.partitions.get_mut(&index)
            && let Some(letter) = shelf.letter.take_if(|letter| letter.append == Some(append))
        {
            shelf.state.dead_letter_written(letter.at);
            shelf.data_lost = None;
            self.failed = false;
        }
        queue.touch(ctx);
    }

    /// The data of a dead letter's event is damaged where it is stored, and stays so: the letter goes without,
    /// and says so.
    pub fn letter_data_lost(
        index: PartitionIndex,
        why: &str,
        queue: &mut QueueCore,
        ctx: &mut Ctx,
    ) {
        let Some(shelf) = queue.partitions.get_mut(&index) else {
            return;
        };
        if let Some(letter) = shelf.letter.take() {
            shelf.data_lost = Some((letter.at, why.to_owned()));
            ctx.report(format!(
                "queue {:?} of topic {}: the dead letter of event {} of partition {index} goes without its data: {why}",
                queue.consumer, queue.topic, letter.at
            ));
        }
        queue.touch(ctx);
    }

    /// A dead letter can't be written now. Its event stays, and is tried again.
    pub fn letter_failed(
        &mut self,
        index: PartitionIndex,
        error: &str,
        queue: &mut QueueCore,
        ctx: &mut Ctx,
    ) {
        if let Some(shelf) = queue.partitions.get_mut(&index) {
            shelf.letter = None;
            shelf.letter_at = ctx.now.monotonic + RETRY_AFTER;
        }
        // The next one that fails is no news, until one is written.
        if !std::mem::replace(&mut self.failed, true) {
            ctx.report(format!(
                "queue {:?} of topic {} cannot write its dead letters, and tries again: {error}",
                queue.consumer, queue.topic
            ));
        }
        queue.touch(ctx);
    }
}

/// Appends a dead letter, unless it is there already.
fn append_letter(
    index: PartitionIndex,
    letter: Letter,
    bytes: Bytes,
    queue: &mut QueueCore,
    lent: &mut Lent<'_>,
) -> Result<(), String> {
    let producer = producer_of(queue, index);
    let Some(shelf) = queue.partitions.get_mut(&index) else {
        return Ok(());
    };
    let Some(dead) = shelf.state.dead(letter.at) else {
        return Ok(());
    };
    let Some(entry) = lent.commands.table().topic(queue.topic) else {
        return Ok(());
    };
    let name = &entry.record.name;
    let target = queue.options.dead_letter_topic_of(name);
    let (topic, storage) = target_of(&entry.record.namespace, &target, lent)?;
    let partition = lent.partitions.get(&storage);
    let partition = partition.ok_or_else(|| format!("topic {target:?} is gone"))?;
    if let Some(failure) = &partition.store.failure {
        return Err(format!("topic {target:?}: {failure}"));
    }
    let durability = partition.store.durability;
    let origins = Origins {
        topic: name,
        queue: &queue.consumer,
        partition: index,
        incarnation: shelf.state.incarnation(),
        at: letter.at,
    };
    let origin = Origin {
        topic,
        producer,
        epoch: ProducerEpoch(0),
        first_sequence: letter.sequence,
    };
    let staged = Staged::read(bytes).map_err(|error| error.to_string())?;
    let served = lent.topics.get(topic);
    let block_bytes = served.map_or(wire::batch::BLOCK_BYTES_DEFAULT, |topic| {
        topic.definition.data_block_bytes()
    });
    let lost = shelf.data_lost.as_ref();
    let lost = lost.filter(|(at, _)| *at == letter.at);
    let lost = lost.map(|(_, why)| why.as_str());
    let Some(batch) = dead_batch(&staged, &origins, dead, lost, origin, block_bytes) else {
        return Err(format!("event {} is not in its batch", letter.at));
    };
    let (batch, layout) = ValidBatch::own(&batch, durability);
    let source = (shelf.storage, letter.at);
    let append = lent.letters.begin(queue.id, index, lent.ctx);
    shelf.letter = Some(Letter {
        append: Some(append),
        ..letter
    });
    let appended = match lent.ctx.planted(Fault::DropDeadLetter) {
        true => {
            lent.ctx.stored(append);
            Ok(())
        }
        false => store_letter(append, batch, storage, (source, &layout), lent),
    };
    appended.map_err(|error| {
        lent.letters.end(append);
        format!("topic {target:?}: {}", error.message)
    })
}

/// Stores a dead letter, unless it is stored already; its data is copied from `source`.
fn store_letter(
    append: u64,
    batch: ValidBatch,
    storage: StorageId,
    (source, layout): ((StorageId, Offset), &ExternalLayout),
    lent: &mut Lent<'_>,
) -> Result<(), ErrorReply> {
    let ctx = &mut *lent.ctx;
    let Some(partition) = lent.partitions.get_mut(&storage) else {
        return Ok(());
    };
    let caller = RequestId {
        link: OWN_LINK,
        id: append,
    };
    match partition.store.storage.check(&batch.header) {
        Verdict::Duplicate { base_offset } => {
            partition.acknowledge_duplicate(caller, &batch, base_offset, ctx);
            Ok(())
        }
        // Older than what is remembered: it was written, for they are
        // written in order.
        Verdict::Unknown { expected } if expected > batch.header.first_sequence => {
            ctx.stored(append);
            Ok(())
        }
        // Those before were written elsewhere: the topic was made anew.
        Verdict::New | Verdict::Unknown { .. } | Verdict::OutOfSequence { .. } => {
            match layout.events.is_empty() {
                true => partition.append(caller, batch, None, ctx),
                false => {
                    let letters = &mut lent.letters;
                    letters.copy_data(
                        append,
                        source,
                        storage,
                        (batch, layout),
                        lent.partitions,
                        ctx,
                    )
                }
            }
        }
        Verdict::Fenced { epoch } => Err(fenced(epoch, ProducerEpoch(0))),
    }
}

/// Where dead letters go: always the first partition, so that one that is
/// tried again is known.
fn target_of(namespace: &str, name: &str, lent: &Lent<'_>) -> Result<(TopicId, StorageId), String> {
    let entry = lent.commands.table().named(namespace, name);
    let entry = entry.ok_or_else(|| format!("topic {name:?} does not exist"))?;
    let (topic, home, own) = (entry.record.topic, entry.home(), lent.ctx.node());
    if home != own {
        return Err(format!(
            "topic {name:?} is on node {home}, and has to be on this one: thalweg topic place {name} --node {own}"
        ));
    }
    let slots = lent.topics.get(topic).map(|topic| &topic.partitions);
    match slots.and_then(|slots| slots.first()) {
        Some(Slot::Open(storage)) => Ok((topic, *storage)),
        Some(Slot::Failed(reason)) => Err(format!("topic {name:?}: {reason}")),
        None => Err(format!("topic {name:?} has no partition")),
    }
}

/// Who writes the dead letters of a queue's partition. Another queue of the same name is somebody
/// else, for it counts its dead letters from the beginning.
fn producer_of(queue: &QueueCore, partition: PartitionIndex) -> ProducerId {
    // FNV-1a of 128 bits: the same wherever and whenever it is computed.
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    let parts: [&[u8]; 5] = [
        b"dead letters",
        &queue.topic.0.to_le_bytes(),
        &partition.0.to_le_bytes(),
        &queue.consumer_id.0.to_le_bytes(),
        queue.consumer.as_bytes(),
    ];
    let bytes = parts.into_iter().flatten();
    let hash = bytes.fold(BASIS, |hash, byte| {
        (hash ^ u128::from(*byte)).wrapping_mul(PRIME)
    });
    ProducerId(hash.max(1))
}

/// An event as a dead letter: a batch of its own.
fn dead_batch(
    staged: &Staged,
    origins: &Origins<'_>,
    dead: &Dead,
    data_lost: Option<&str>,
    origin: Origin,
    block_bytes: u32,
) -> Option<Vec<u8>> {
    let index = staged.index_from(origins.at);
    let event = staged.columns.events.get(index)?;
    if staged.offset(index) != origins.at {
        return None;
    }
    let batch = &staged.batch;
    let section = batch.columns_section();
    let blob = |place: Option<(u32, u32)>| {
        place.map(|(start, bytes)| &section[start as usize..(start + bytes) as usize])
    };
    let mut said = vec![
        ("thalweg.topic", origins.topic.to_owned()),
        ("thalweg.partition", origins.partition.to_string()),
        ("thalweg.incarnation", origins.incarnation.to_string()),
        ("thalweg.offset", origins.at.to_string()),
        ("thalweg.queue", origins.queue.to_owned()),
        ("thalweg.deliveries", dead.deliveries.to_string()),
        ("thalweg.reason", dead.reason.clone()),
    ];
    said.extend(data_lost.map(|why| ("thalweg.data_lost", why.to_owned())));
    let own = blob(event.headers);
    let own = own.and_then(|bytes| Headers::from_bytes("headers", bytes).ok());
    let mut headers = own.unwrap_or_default();
    // What is said of an earlier death is not said twice.
    headers
        .0
        .retain(|(name, _)| !said.iter().any(|(known, _)| known == name));
    let said = said
        .into_iter()
        .map(|(name, value)| (name.to_owned(), Bytes::from(value)));
    headers.0.extend(said);
    let start = event.metadata_start as usize;
    let metadata = &batch.metadata_section()[start..start + event.metadata_bytes as usize];
    let inline = batch
        .inline_section()
        .filter(|_| !event.external && data_lost.is_none());
    let inline = inline.map(|inline| {
        let start = event.data_start as usize;
        &inline[start..start + event.data_bytes as usize]
    });
    let pieces: Vec<&[u8]> = inline
        .filter(|bytes| !bytes.is_empty())
        .into_iter()
        .collect();
    let mut builder = BatchBuilder::default();
    builder.push(EventParts {
        metadata,
        inline: &pieces,
        shared: &[],
        external_bytes: (event.external && data_lost.is_none()).then_some(event.data_bytes),
        key: blob(event.key),
        headers: Some(&headers.to_bytes()),
        producer_time: event.producer_time.unwrap_or(0),
        tombstone: event.tombstone,
    });
    Some(builder.seal(origin, block_bytes).to_vec())
}
