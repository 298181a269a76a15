//! Large data of a dead letter, on its way from one partition's storage to
//! another's: read, checked and written chunk by chunk, one at a time.

use crate::ctx::Ctx;
use crate::effects::{Copied, Effect, ReadFor};
use crate::faults::Fault;
use crate::ids::{OWN_LINK, RequestId, SharedId, StorageId};
use crate::partition::Partitions;
use crate::partition::incoming::ValidBatch;
use crate::partition::store::Reading;
use crate::refusal::refuse;
use bytes::Bytes;
use log::{DataPlace, EventData, StorageError};
use std::collections::BTreeMap;
use wire::batch::ExternalLayout;
use wire::checksum::block_checksums;
use wire::frame::BULK_CHUNK_BYTES;
use wire::view::Segment;
use wire::{ErrorCode, ErrorReply, Offset, PartitionIndex, Sequence};

/// A dead letter that is being written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Letter {
    /// The event.
    pub at: Offset,
    pub sequence: Sequence,
    /// Names its append, once it is on its way.
    pub append: Option<u64>,
}

/// A dead letter whose data is being copied.
struct LetterData {
    source: StorageId,
    target: StorageId,
    place: DataPlace,
    /// Where the data begins within the place.
    start: u64,
    /// The data, once it was found.
    data: Option<EventData>,
    /// How much of it was read.
    at: u64,
    checksums: Vec<u32>,
    batch: ValidBatch,
}

/// Dead letters on their way.
#[derive(Default)]
pub(crate) struct Letters {
    /// Of which queue and partition each is, by its append.
    appends: BTreeMap<u64, (SharedId, PartitionIndex)>,
    /// Those of them whose data is being copied first.
    copies: BTreeMap<u64, LetterData>,
}

impl Letters {
    /// A dead letter is to be appended. Returns what names its append.
    pub(super) fn begin(
        &mut self,
        queue: SharedId,
        partition: PartitionIndex,
        ctx: &mut Ctx,
    ) -> u64 {
        let append = ctx.next_id();
        self.appends.insert(append, (queue, partition));
        append
    }

    /// An append is over: of which queue and partition it was.
    pub fn end(&mut self, append: u64) -> Option<(SharedId, PartitionIndex)> {
        self.appends.remove(&append)
    }

    /// Begins to copy the data of the event at `at` for a dead letter, which
    /// is appended behind it.
    pub(super) fn copy_data(
        &mut self,
        append: u64,
        (source, at): (StorageId, Offset),
        target: StorageId,
        (batch, layout): (ValidBatch, &ExternalLayout),
        partitions: &mut Partitions,
        ctx: &mut Ctx,
    ) -> Result<(), ErrorReply> {
        let Some(partition) = partitions.get_mut(&target) else {
            return Err(refuse(
                ErrorCode::UnknownPartition,
                "the partition for dead letters is closed",
            ));
        };
        let reserved = partition.store.storage.reserve(layout);
        partition.store.touch(ctx);
        let place = reserved.map_err(|error| partition.store.refusal(&error))?;
        let letter = LetterData {
            source,
            target,
            place,
            start: layout.events.first().map_or(0, |(_, start, _)| *start),
            data: None,
            at: 0,
            checksums: Vec::new(),
            batch,
        };
        self.copies.insert(append, letter);
        if let Some(partition) = partitions.get_mut(&source) {
            let reading = Reading::For(ReadFor::LetterOpen { append });
            partition.store.open_event(reading, at, ctx);
        }
        Ok(())
    }

    /// A dead letter's data was found.
    pub fn data_opened(
        &mut self,
        append: u64,
        data: Result<EventData, StorageError>,
        partitions: &mut Partitions,
        ctx: &mut Ctx,
    ) {
        match data {
            Ok(data) => {
                if let Some(letter) = self.copies.get_mut(&append) {
                    letter.data = Some(data);
                    letter.copy_chunk(append, partitions, ctx);
                }
            }
            Err(error) => self.not_read(append, &error, partitions, ctx),
        }
    }

    /// The data of a dead letter's event could not be read. What is damaged will not be whole when it is tried again.
    fn not_read(
        &mut self,
        append: u64,
        error: &StorageError,
        partitions: &mut Partitions,
        ctx: &mut Ctx,
    ) {
        let is_damaged = matches!(error, StorageError::Damaged(_));
        if !is_damaged || ctx.planted(Fault::LetterNeedsData) {
            self.give_up(append, &error.to_string(), partitions, ctx);
            return;
        }
        self.abandon(append, partitions, ctx);
        let lost = Effect::LetterDataLost(append, error.to_string());
        ctx.effects.push_back(lost);
    }

    /// A chunk of a dead letter's data was read.
    pub fn data_read(
        &mut self,
        append: u64,
        pieces: Result<Vec<Bytes>, StorageError>,
        partitions: &mut Partitions,
        ctx: &mut Ctx,
    ) {
        let pieces = match pieces {
            Ok(pieces) => pieces,
            Err(error) => return self.not_read(append, &error, partitions, ctx),
        };
        let Some(letter) = self.copies.get_mut(&append) else {
            return;
        };
        let chunk = Bytes::from(pieces.concat());
        let block_bytes = letter.batch.header.block_bytes();
        letter
            .checksums
            .extend(block_checksums(&chunk, block_bytes));
        let position = letter.start + letter.at;
        letter.at += chunk.len() as u64;
        if let Some(partition) = partitions.get_mut(&letter.target) {
            let store = &mut partition.store;
            store.storage.write_data(letter.place, position, chunk);
            store.touch(ctx);
        }
    }

    /// A dead letter's data has come so far in the place that was reserved for it.
    pub fn copied(
        &mut self,
        storage: StorageId,
        place: DataPlace,
        how: Copied,
        partitions: &mut Partitions,
        ctx: &mut Ctx,
    ) {
        let mut copies = self.copies.iter_mut();
        let of_place = |letter: &LetterData| letter.target == storage && letter.place == place;
        let Some((append, letter)) = copies.find(|(_, letter)| of_place(letter)) else {
            return;
        };
        let append = *append;
        match how {
            Copied::Written => letter.copy_chunk(append, partitions, ctx),
            Copied::Ready => self.append(append, partitions, ctx),
            Copied::Failed(error) => {
                self.copies.remove(&append);
                ctx.refuse(own(append), error);
            }
        }
    }

    /// A dead letter's data is all there: it is appended.
    fn append(&mut self, append: u64, partitions: &mut Partitions, ctx: &mut Ctx) {
        if let Some(letter) = self.copies.remove(&append)
            && let Some(partition) = partitions.get_mut(&letter.target)
            && let Err(error) = partition.append(own(append), letter.batch, Some(letter.place), ctx)
        {
            ctx.refuse(own(append), error);
        }
    }

    fn give_up(&mut self, append: u64, error: &str, partitions: &mut Partitions, ctx: &mut Ctx) {
        if self.abandon(append, partitions, ctx) {
            ctx.refuse(own(append), refuse(ErrorCode::StorageFailed, error));
        }
    }

    /// Gives back the place of a dead letter's data. False if there is no such letter.
    fn abandon(&mut self, append: u64, partitions: &mut Partitions, ctx: &mut Ctx) -> bool {
        let Some(letter) = self.copies.remove(&append) else {
            return false;
        };
        if let Some(partition) = partitions.get_mut(&letter.target) {
            partition.store.storage.abandon(letter.place);
            partition.store.touch(ctx);
        }
        true
    }

    /// A partition is gone, or takes nothing more.
    pub fn fail(
        &mut self,
        storage: StorageId,
        error: &ErrorReply,
        partitions: &mut Partitions,
        ctx: &mut Ctx,
    ) {
        let copies = self.copies.iter();
        let lost = copies.filter(|(_, it)| it.target == storage || it.source == storage);
        let lost: Vec<u64> = lost.map(|(append, _)| *append).collect();
        for append in lost {
            self.give_up(append, &error.message, partitions, ctx);
        }
    }
}

impl LetterData {
    /// Reads the next chunk; behind the last one the place is sealed.
    fn copy_chunk(&mut self, append: u64, partitions: &mut Partitions, ctx: &mut Ctx) {
        let Some(data) = &self.data else {
            return;
        };
        let left = data.bytes - self.at;
        if left == 0 {
            let checksums = std::mem::take(&mut self.checksums);
            if let Some(partition) = partitions.get_mut(&self.target) {
                let store = &mut partition.store;
                let durability = self.batch.durability;
                store.storage.seal_data(self.place, checksums, durability);
                store.touch(ctx);
            }
            return;
        }
        // Whole blocks, so that their checksums can be taken chunk by chunk.
        let block = u64::from(self.batch.header.block_bytes());
        let chunk = (BULK_CHUNK_BYTES as u64 / block).max(1) * block;
        let segment = Segment {
            offset: self.at,
            bytes: left.min(chunk),
        };
        if let Some(partition) = partitions.get_mut(&self.source) {
            let reading = Reading::For(ReadFor::LetterData { append });
            partition.store.read_data(reading, data, vec![segment], ctx);
        }
    }
}

fn own(append: u64) -> RequestId {
    RequestId {
        link: OWN_LINK,
        id: append,
    }
}
