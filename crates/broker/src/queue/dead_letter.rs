//! Dead letters: read, written to the dead-letter topic, settled behind that.
//!
//! A queue's partition writes one at a time, in the order of the sequence
//! numbers that their records gave them, as an idempotent producer of its
//! own. So one that was written before a crash is known when it comes again.

use super::live::RETRY_AFTER;
use super::partition::Dead;
use super::staging::Staged;
use crate::controller::Controller;
use crate::effects::ReadFor;
use crate::faults::Fault;
use crate::ids::{Asker, OWN_LINK, SharedId, StorageId};
use crate::node::Node;
use crate::partition::incoming::ValidBatch;
use crate::partition::store::Reading;
use crate::served_topic::Slot;
use bytes::Bytes;
use log::producers::Verdict;
use log::{Found, ReadBatches, StorageError};
use memory::Buffer;
use wire::batch::{Batch, BatchBuilder, EventParts, Headers, Origin, Verify};
use wire::{
    Codec, ErrorReply, Incarnation, Offset, PartitionIndex, ProducerEpoch, ProducerId, Sequence,
    TopicId,
};

/// A dead letter that is being written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Letter {
    /// The event.
    pub at: Offset,
    sequence: Sequence,
    /// Names its append, once it is on its way.
    append: Option<u64>,
}

/// Where a dead letter comes from.
struct Origins<'a> {
    topic: &'a str,
    queue: &'a str,
    partition: PartitionIndex,
    incarnation: Incarnation,
    at: Offset,
}

impl Node {
    /// Begins with the next dead letter of each partition that has some.
    pub(super) fn write_dead_letters(&mut self, id: SharedId) {
        if self.drain.is_begun() {
            return;
        }
        let now = self.ctx.now.monotonic;
        let Some(queue) = self.queues.get_mut(&id) else {
            return;
        };
        let mut readings = Vec::new();
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
            readings.push((shelf.storage, *index, at));
        }
        for (storage, partition, at) in readings {
            let read = ReadBatches {
                from: at,
                end: at.plus(1),
                bytes_max: 1,
                inline_data: true,
            };
            let reading = Reading::For(ReadFor::DeadLetter { id, partition });
            if let Some(partition) = self.partitions.get_mut(&storage) {
                partition.store.read_batches(reading, read, &mut self.ctx);
            }
        }
    }

    /// The event of a dead letter was read.
    pub(crate) fn dead_letter_read(
        &mut self,
        id: SharedId,
        index: PartitionIndex,
        found: Result<Found, StorageError>,
    ) {
        let Some(queue) = self.queues.get_mut(&id) else {
            return;
        };
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
            self.touch_queue(id);
            return;
        }
        let written = match found {
            Ok(Found::Batches { batches, .. }) => match batches.into_iter().next() {
                Some(bytes) => self.append_dead_letter(id, index, letter, bytes),
                None => Ok(()),
            },
            // Retention was faster: there is nothing to be kept any more.
            Ok(Found::Gap(_) | Found::Nothing) => {
                shelf.letter = None;
                shelf.state.lost(at, at.plus(1), &mut queue.loads);
                self.touch_queue(id);
                return;
            }
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = written {
            self.dead_letter_failed(id, index, &error);
        }
    }

    /// Appends a dead letter, unless it is there already.
    fn append_dead_letter(
        &mut self,
        id: SharedId,
        index: PartitionIndex,
        letter: Letter,
        bytes: Bytes,
    ) -> Result<(), String> {
        let Some(queue) = self.queues.get(&id) else {
            return Ok(());
        };
        let Some(shelf) = queue.partitions.get(&index) else {
            return Ok(());
        };
        let Some(dead) = shelf.state.dead(letter.at).cloned() else {
            return Ok(());
        };
        let Some(entry) = self.controller.table().topic(queue.topic) else {
            return Ok(());
        };
        let name = &entry.record.name;
        let target = queue.options.dead_letter_topic_of(name);
        let (topic, storage) = self.dead_letter_partition(&entry.record.namespace, &target)?;
        let origins = Origins {
            topic: name,
            queue: &queue.consumer,
            partition: index,
            incarnation: shelf.state.incarnation(),
            at: letter.at,
        };
        let producer = producer_of(queue.topic, &queue.consumer, index);
        let origin = Origin {
            topic,
            producer,
            epoch: ProducerEpoch(0),
            first_sequence: letter.sequence,
        };
        let staged = Staged::read(bytes).map_err(|error| error.to_string())?;
        let block_bytes = self
            .topics
            .get(&topic)
            .map(|topic| topic.definition.data_block_bytes());
        let block_bytes = block_bytes.unwrap_or(wire::batch::BLOCK_BYTES_DEFAULT);
        let lost = shelf.data_lost.as_ref();
        let lost = lost.filter(|(at, _)| *at == letter.at);
        let lost = lost.map(|(_, why)| why.as_str());
        let Some(batch) = dead_batch(&staged, &origins, &dead, lost, origin, block_bytes) else {
            return Err(format!("event {} is not in its batch", letter.at));
        };
        let batch = Batch::read(Buffer::copy_of(&batch), Verify::Headers);
        let batch = batch.expect("it was sealed just now");
        let Some(partition) = self.partitions.get(&storage) else {
            return Err(format!("topic {target:?} is gone"));
        };
        if let Some(failure) = &partition.store.failure {
            return Err(format!("topic {target:?}: {failure}"));
        }
        let durability = partition.store.durability;
        let layout = batch.columns().expect("it was sealed just now").external;
        let source = (shelf.storage, letter.at);
        let verdict = partition.store.storage.check(&batch.header);
        let append = self.ctx.next_id();
        if let Some(shelf) = self
            .queues
            .get_mut(&id)
            .and_then(|queue| queue.partitions.get_mut(&index))
        {
            shelf.letter = Some(Letter {
                append: Some(append),
                ..letter
            });
        }
        self.letters.insert(append, (id, index));
        let asker = Asker {
            link: OWN_LINK,
            id: append,
        };
        if self.ctx.planted(Fault::DropDeadLetter) {
            self.own_append_stored(append);
            return Ok(());
        }
        let external_bytes = layout.events.iter().map(|(_, _, bytes)| bytes).sum();
        let incoming = ValidBatch {
            external_bytes,
            header: batch.header,
            header_crc: batch.header_crc,
            bytes: batch.into_bytes(),
            durability,
        };
        let appended = match verdict {
            Verdict::Duplicate { base_offset } => {
                self.at(storage, |partition, ctx| {
                    partition.acknowledge_duplicate(asker, &incoming, base_offset, ctx);
                });
                Ok(())
            }
            // Older than what is remembered: it was written, for they are
            // written in order.
            Verdict::Unknown { expected } if expected > letter.sequence => {
                self.own_append_stored(append);
                Ok(())
            }
            // Those before were written elsewhere: the topic was made anew.
            Verdict::New | Verdict::Unknown { .. } | Verdict::OutOfSequence { .. } => {
                match layout.events.is_empty() {
                    true => self
                        .at(storage, |partition, ctx| {
                            partition.append(asker, incoming, None, ctx)
                        })
                        .unwrap_or(Ok(())),
                    false => self.copy_letter_data(append, source, storage, incoming, &layout),
                }
            }
            Verdict::Fenced { epoch } => Err(crate::refusal::fenced(epoch, ProducerEpoch(0))),
        };
        appended.map_err(|error| {
            self.letters.remove(&append);
            format!("topic {target:?}: {}", error.message)
        })
    }

    /// Where dead letters go: always the first partition, so that one that is
    /// tried again is known.
    fn dead_letter_partition(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<(TopicId, StorageId), String> {
        let entry = self.controller.table().named(namespace, name);
        let entry = entry.ok_or_else(|| format!("topic {name:?} does not exist"))?;
        let topic = entry.record.topic;
        let slots = self.topics.get(&topic).map(|topic| &topic.partitions);
        match slots.and_then(|slots| slots.first()) {
            Some(Slot::Open(storage)) => Ok((topic, *storage)),
            Some(Slot::Failed(reason)) => Err(format!("topic {name:?}: {reason}")),
            None => Err(format!("topic {name:?} has no partition")),
        }
    }

    /// What the server appended itself is as durable as its topic promises.
    pub(crate) fn own_append_stored(&mut self, append: u64) {
        let Some((id, index)) = self.letters.remove(&append) else {
            return;
        };
        let Some(queue) = self.queues.get_mut(&id) else {
            return;
        };
        if let Some(shelf) = queue.partitions.get_mut(&index)
            && let Some(letter) = shelf.letter.take_if(|letter| letter.append == Some(append))
        {
            shelf.state.dead_letter_written(letter.at);
            shelf.data_lost = None;
            queue.letters_failed = false;
        }
        self.touch_queue(id);
    }

    /// What the server appended itself was refused.
    pub(crate) fn own_append_refused(&mut self, append: u64, error: &ErrorReply) {
        if let Some((id, index)) = self.letters.remove(&append) {
            self.dead_letter_failed(id, index, &error.message);
        }
    }

    /// The data of a dead letter's event is damaged where it is stored, and stays so: the letter goes without,
    /// and says so.
    pub(super) fn letter_data_lost(&mut self, append: u64, why: &str) {
        let Some((id, index)) = self.letters.remove(&append) else {
            return;
        };
        let Some(queue) = self.queues.get_mut(&id) else {
            return;
        };
        let Some(shelf) = queue.partitions.get_mut(&index) else {
            return;
        };
        if let Some(letter) = shelf.letter.take() {
            shelf.data_lost = Some((letter.at, why.to_owned()));
            let line = format!(
                "queue {:?} of topic {}: the dead letter of event {} of partition {index} goes without its data: {why}",
                queue.consumer, queue.topic, letter.at
            );
            self.ctx.report(line);
        }
        self.touch_queue(id);
    }

    /// A dead letter can't be written now. Its event stays, and is tried again.
    fn dead_letter_failed(&mut self, id: SharedId, index: PartitionIndex, error: &str) {
        let now = self.ctx.now.monotonic;
        let Some(queue) = self.queues.get_mut(&id) else {
            return;
        };
        if let Some(shelf) = queue.partitions.get_mut(&index) {
            shelf.letter = None;
            shelf.letter_at = now + RETRY_AFTER;
        }
        // Once, until one is written.
        if !std::mem::replace(&mut queue.letters_failed, true) {
            let line = format!(
                "queue {:?} of topic {} cannot write its dead letters, and tries again: {error}",
                queue.consumer, queue.topic
            );
            self.ctx.report(line);
        }
        self.touch_queue(id);
    }
}

/// Who writes the dead letters of a queue's partition.
fn producer_of(topic: TopicId, consumer: &str, partition: PartitionIndex) -> ProducerId {
    // FNV-1a of 128 bits: the same wherever and whenever it is computed.
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    let parts: [&[u8]; 4] = [
        b"dead letters",
        &topic.0.to_le_bytes(),
        &partition.0.to_le_bytes(),
        consumer.as_bytes(),
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
