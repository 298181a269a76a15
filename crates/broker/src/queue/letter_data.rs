//! Large data of a dead letter, on its way from one partition's storage to
//! another's: read, checked and written chunk by chunk, one at a time.

use crate::effects::ReadFor;
use crate::faults::Fault;
use crate::ids::{Asker, OWN_LINK, StorageId};
use crate::node::Node;
use crate::partition::incoming::ValidBatch;
use crate::partition::store::Reading;
use crate::refusal::refuse;
use bytes::Bytes;
use log::{DataPlace, EventData, StorageError};
use wire::batch::ExternalLayout;
use wire::checksum::block_checksums;
use wire::frame::BULK_CHUNK_BYTES;
use wire::view::Segment;
use wire::{ErrorCode, ErrorReply, Offset};

/// A dead letter whose data is being copied.
pub(crate) struct LetterData {
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
    incoming: ValidBatch,
}

impl Node {
    /// Begins to copy the data of the event at `at` for a dead letter, which
    /// is appended behind it.
    pub(super) fn copy_letter_data(
        &mut self,
        append: u64,
        (source, at): (StorageId, Offset),
        target: StorageId,
        incoming: ValidBatch,
        layout: &ExternalLayout,
    ) -> Result<(), ErrorReply> {
        let Some(partition) = self.partitions.get_mut(&target) else {
            return Err(refuse(
                ErrorCode::UnknownPartition,
                "the partition for dead letters is closed",
            ));
        };
        let reserved = partition.store.storage.reserve(layout);
        partition.store.touch(&mut self.ctx);
        let place = reserved.map_err(|error| partition.store.refusal(&error))?;
        let letter = LetterData {
            source,
            target,
            place,
            start: layout.events.first().map_or(0, |(_, start, _)| *start),
            data: None,
            at: 0,
            checksums: Vec::new(),
            incoming,
        };
        self.letter_data.insert(append, letter);
        if let Some(partition) = self.partitions.get_mut(&source) {
            let reading = Reading::For(ReadFor::LetterOpen { append });
            partition.store.open_event(reading, at, &mut self.ctx);
        }
        Ok(())
    }

    /// A dead letter's data was found.
    pub(crate) fn letter_opened(&mut self, append: u64, data: Result<EventData, StorageError>) {
        match data {
            Ok(data) => {
                if let Some(letter) = self.letter_data.get_mut(&append) {
                    letter.data = Some(data);
                    self.copy_letter_chunk(append);
                }
            }
            Err(error) => self.letter_not_read(append, &error),
        }
    }

    /// The data of a dead letter's event could not be read. What is damaged will not be whole when it is tried again.
    fn letter_not_read(&mut self, append: u64, error: &StorageError) {
        if !matches!(error, StorageError::Damaged(_)) || self.ctx.planted(Fault::LetterNeedsData) {
            self.give_up_letter(append, &error.to_string());
            return;
        }
        self.abandon_letter(append);
        self.letter_data_lost(append, &error.to_string());
    }

    /// Reads the next chunk; behind the last one the place is sealed.
    fn copy_letter_chunk(&mut self, append: u64) {
        let Some(letter) = self.letter_data.get_mut(&append) else {
            return;
        };
        let Some(data) = &letter.data else {
            return;
        };
        let left = data.bytes - letter.at;
        if left == 0 {
            let checksums = std::mem::take(&mut letter.checksums);
            let (place, durability) = (letter.place, letter.incoming.durability);
            let target = letter.target;
            if let Some(partition) = self.partitions.get_mut(&target) {
                let storage = &mut partition.store.storage;
                storage.seal_data(place, checksums, durability);
                self.ctx.dirty.partitions.insert(target);
            }
            return;
        }
        // Whole blocks, so that their checksums can be taken chunk by chunk.
        let block = u64::from(letter.incoming.header.block_bytes());
        let chunk = (BULK_CHUNK_BYTES as u64 / block).max(1) * block;
        let segment = Segment {
            offset: letter.at,
            bytes: left.min(chunk),
        };
        let source = letter.source;
        if let Some(partition) = self.partitions.get_mut(&source) {
            let reading = Reading::For(ReadFor::LetterData { append });
            let store = &mut partition.store;
            store.read_data(reading, data, vec![segment], &mut self.ctx);
        }
    }

    /// A chunk of a dead letter's data was read.
    pub(crate) fn letter_read(&mut self, append: u64, pieces: Result<Vec<Bytes>, StorageError>) {
        let pieces = match pieces {
            Ok(pieces) => pieces,
            Err(error) => return self.letter_not_read(append, &error),
        };
        let Some(letter) = self.letter_data.get_mut(&append) else {
            return;
        };
        let chunk = Bytes::from(pieces.concat());
        let block_bytes = letter.incoming.header.block_bytes();
        letter
            .checksums
            .extend(block_checksums(&chunk, block_bytes));
        let position = letter.start + letter.at;
        letter.at += chunk.len() as u64;
        let target = letter.target;
        if let Some(partition) = self.partitions.get_mut(&target) {
            partition
                .store
                .storage
                .write_data(letter.place, position, chunk);
            self.ctx.dirty.partitions.insert(target);
        }
    }

    fn letter_of(&self, storage: StorageId, place: DataPlace) -> Option<u64> {
        let mut letters = self.letter_data.iter();
        letters
            .find(|(_, letter)| letter.target == storage && letter.place == place)
            .map(|(append, _)| *append)
    }

    /// A chunk of a dead letter's data was written.
    pub(crate) fn letter_chunk_written(&mut self, storage: StorageId, place: DataPlace) {
        if let Some(append) = self.letter_of(storage, place) {
            self.copy_letter_chunk(append);
        }
    }

    /// A dead letter's data is all there: it is appended.
    pub(crate) fn letter_data_ready(&mut self, storage: StorageId, place: DataPlace) {
        let Some(append) = self.letter_of(storage, place) else {
            return;
        };
        if let Some(letter) = self.letter_data.remove(&append) {
            let asker = Asker {
                link: OWN_LINK,
                id: append,
            };
            let appended = self.at(storage, |partition, ctx| {
                partition.append(asker, letter.incoming, Some(place), ctx)
            });
            if let Some(Err(error)) = appended {
                self.own_append_refused(append, &error);
            }
        }
    }

    /// A dead letter's data could not be stored; its place is abandoned.
    pub(crate) fn letter_data_failed(
        &mut self,
        storage: StorageId,
        place: DataPlace,
        error: &ErrorReply,
    ) {
        if let Some(append) = self.letter_of(storage, place) {
            self.letter_data.remove(&append);
            self.own_append_refused(append, error);
        }
    }

    fn give_up_letter(&mut self, append: u64, error: &str) {
        if self.abandon_letter(append) {
            self.own_append_refused(append, &refuse(ErrorCode::StorageFailed, error));
        }
    }

    /// Gives back the place of a dead letter's data. False if there is no such letter.
    fn abandon_letter(&mut self, append: u64) -> bool {
        let Some(letter) = self.letter_data.remove(&append) else {
            return false;
        };
        if let Some(partition) = self.partitions.get_mut(&letter.target) {
            partition.store.storage.abandon(letter.place);
            self.ctx.dirty.partitions.insert(letter.target);
        }
        true
    }

    /// A partition is gone, or takes nothing more.
    pub(crate) fn fail_letters(&mut self, storage: StorageId, error: &ErrorReply) {
        let letters = self.letter_data.iter();
        let lost = letters.filter(|(_, l)| l.target == storage || l.source == storage);
        let lost: Vec<u64> = lost.map(|(append, _)| *append).collect();
        for append in lost {
            self.give_up_letter(append, &error.message);
        }
    }
}
