//! A storage driven on the calling thread.

use crate::disk::{DIRECT_ALIGNMENT, Disk, Operation};
use crate::storage::*;
use bytes::Bytes;
use memory::Buffer;
use std::collections::VecDeque;
use std::sync::Arc;
use wire::batch::{
    Batch, BatchBuilder, EventParts, ExternalLayout, Header, Origin, STAMP_BYTES, Verify,
};
use wire::checksum::{block_checksums, crc32c};
use wire::view::Segment;
use wire::{Durability, Offset};

const DIRECT: usize = DIRECT_ALIGNMENT as usize;

/// A storage and the disk that its operations are carried out on, at once and in order.
pub struct Driven {
    /// The storage that is driven.
    pub storage: Box<dyn Storage>,
    disk: Option<Arc<dyn Disk>>,
    events: VecDeque<StorageEvent>,
    next_token: u64,
}

/// What a test event is made of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventSpec {
    /// The metadata.
    pub metadata: Vec<u8>,
    /// The data, in the batch or outside.
    pub data: Vec<u8>,
    /// Whether the data lies outside the batch.
    pub external: bool,
}

/// A batch of these events, as it comes from a producer.
pub fn make_batch(origin: Origin, events: &[EventSpec], block_bytes: u32) -> Vec<u8> {
    let mut builder = BatchBuilder::default();
    for event in events {
        let data = [event.data.as_slice()];
        builder.push(EventParts {
            metadata: &event.metadata,
            inline: if event.external { &[] } else { &data },
            external_bytes: event.external.then_some(event.data.len() as u64),
            ..EventParts::default()
        });
    }
    builder.seal(origin, block_bytes).to_vec()
}

impl Driven {
    /// Drives `storage` on `disk`; `None` for one that asks for no operations.
    pub fn new(storage: Box<dyn Storage>, disk: Option<Arc<dyn Disk>>) -> Self {
        Self {
            storage,
            disk,
            events: VecDeque::new(),
            next_token: 0,
        }
    }

    /// Carries out what is asked for until nothing more is.
    pub fn settle(&mut self) {
        loop {
            while let Some(event) = self.storage.poll_event() {
                self.events.push_back(event);
            }
            let Some((token, operation)) = self.storage.poll_operation() else {
                break;
            };
            let disk = self
                .disk
                .as_ref()
                .expect("a storage with operations has a disk");
            let result = disk.execute(operation);
            self.storage.complete(token, result);
        }
    }

    /// The next operation, not carried out.
    pub fn poll_operation(&mut self) -> Option<(OperationToken, Operation)> {
        self.storage.poll_operation()
    }

    /// What happened since the last call.
    pub fn take_events(&mut self) -> Vec<StorageEvent> {
        self.settle();
        std::mem::take(&mut self.events).into()
    }

    /// Appends a batch of these events and carries out all that follows.
    ///
    /// # Errors
    /// What the storage says, of the data or of the append.
    pub fn append(
        &mut self,
        origin: Origin,
        events: &[EventSpec],
        durability: Durability,
        append_time: u64,
    ) -> Result<Offset, StorageError> {
        let batch = make_batch(origin, events, 512);
        let (header, header_crc) =
            Header::read(&batch[STAMP_BYTES..]).expect("the batch was just made");
        let place = self.store_external(events, 512, durability)?;
        let offset = self.storage.append(Append {
            batch: Buffer::copy_of(&batch),
            header,
            header_crc,
            place,
            durability,
            append_time,
            now: append_time,
            leader_epoch: 0,
        });
        self.settle();
        offset
    }

    /// Stores the external data of `events`, in two chunks an event; `None` if there is none.
    ///
    /// # Errors
    /// What the storage says.
    pub fn store_external(
        &mut self,
        events: &[EventSpec],
        block_bytes: u32,
        durability: Durability,
    ) -> Result<Option<DataPlace>, StorageError> {
        let external = events
            .iter()
            .enumerate()
            .filter(|(_, event)| event.external);
        let lengths = external.map(|(index, event)| (index as u32, event.data.len() as u64));
        let layout = ExternalLayout::new(lengths, block_bytes).expect("test data is small");
        if layout.events.is_empty() {
            return Ok(None);
        }
        let place = self.storage.reserve(&layout)?;
        let mut checksums = Vec::new();
        for (index, position, _) in &layout.events {
            let data = &events[*index as usize].data;
            checksums.extend(block_checksums(data, block_bytes));
            // Large data is cut between blocks, as the broker does.
            let half = match data.len() / 2 {
                half if half >= DIRECT => half / DIRECT * DIRECT,
                half => half,
            };
            for (start, part) in [(0, &data[..half]), (half, &data[half..])] {
                let bytes = Bytes::copy_from_slice(part);
                self.storage
                    .write_data(place, position + start as u64, bytes);
            }
        }
        self.storage.seal_data(place, checksums, durability);
        self.settle();
        let mut outcome = None;
        self.events.retain(|event| match event {
            StorageEvent::DataReady { place: ready } if *ready == place => {
                outcome = Some(Ok(Some(place)));
                false
            }
            StorageEvent::DataFailed {
                place: failed,
                error,
            } if *failed == place => {
                outcome = Some(Err(error.clone()));
                false
            }
            _ => true,
        });
        outcome.unwrap_or_else(|| Err(StorageError::Failed("nothing became of the data".into())))
    }

    /// Reads batches. What the storage has at hand is what it then says.
    ///
    /// # Errors
    /// What the storage says.
    pub fn read(&mut self, read: ReadBatches) -> Result<Found, StorageError> {
        let token = self.token();
        let at_hand = self.storage.read_at_hand(&read);
        self.storage.read(token, read);
        self.settle();
        let found = |event: &StorageEvent| matches!(event, StorageEvent::Read { token: other, .. } if *other == token);
        match self.take_one(found) {
            Some(StorageEvent::Read { found, .. }) => {
                assert!(at_hand.is_none_or(|at_hand| found == Ok(at_hand)));
                found
            }
            _ => panic!("reading from {} was not answered", read.from),
        }
    }

    /// An event's data, all of it, opened and read; checked against its checksum.
    ///
    /// # Errors
    /// What the storage says.
    pub fn read_data(&mut self, offset: Offset) -> Result<Vec<u8>, StorageError> {
        let data = self.open_event(offset)?;
        let all = Segment {
            offset: 0,
            bytes: data.bytes,
        };
        let bytes = self.read_parts(&data, vec![all])?.concat();
        assert_eq!(
            bytes.len() as u64,
            data.bytes,
            "length of the data of event {offset}"
        );
        assert_eq!(
            crc32c(&bytes),
            data.crc,
            "checksum of the data of event {offset}"
        );
        Ok(bytes)
    }

    /// Opens an event.
    ///
    /// # Errors
    /// What the storage says.
    pub fn open_event(&mut self, offset: Offset) -> Result<EventData, StorageError> {
        let token = self.token();
        self.storage.open_event(token, offset);
        self.settle();
        let found = |event: &StorageEvent| matches!(event, StorageEvent::EventOpened { token: other, .. } if *other == token);
        match self.take_one(found) {
            Some(StorageEvent::EventOpened { data, .. }) => data,
            _ => panic!("opening event {offset} was not answered"),
        }
    }

    /// Reads parts of an event's data.
    ///
    /// # Errors
    /// What the storage says.
    pub fn read_parts(
        &mut self,
        data: &EventData,
        parts: Vec<Segment>,
    ) -> Result<Vec<Bytes>, StorageError> {
        let token = self.token();
        self.storage.read_data(token, data, parts);
        self.data_read(token)
    }

    /// Reads parts of an event's data that is to be compared as a whole.
    ///
    /// # Errors
    /// What the storage says.
    pub fn read_parts_to_compare(
        &mut self,
        data: &EventData,
        parts: Vec<Segment>,
    ) -> Result<Vec<Bytes>, StorageError> {
        let token = self.token();
        self.storage.read_data_to_compare(token, data, parts);
        self.data_read(token)
    }

    fn data_read(&mut self, token: ReadToken) -> Result<Vec<Bytes>, StorageError> {
        self.settle();
        let found = |event: &StorageEvent| matches!(event, StorageEvent::DataRead { token: other, .. } if *other == token);
        match self.take_one(found) {
            Some(StorageEvent::DataRead { pieces, .. }) => pieces,
            _ => panic!("reading data was not answered"),
        }
    }

    /// Every event from the first to `end`, with its offset, and the gaps between.
    ///
    /// # Errors
    /// What the storage says.
    pub fn read_all(&mut self, end: Offset, bytes_max: u64) -> Result<Contents, StorageError> {
        self.read_most(end, bytes_max, Offset(0))
    }

    /// Like [`Self::read_all`], but external data only of events from
    /// `data_from` on; of others it is left empty.
    ///
    /// # Errors
    /// What the storage says.
    pub fn read_most(
        &mut self,
        end: Offset,
        bytes_max: u64,
        data_from: Offset,
    ) -> Result<Contents, StorageError> {
        let mut contents = Contents::default();
        let mut from = self.storage.state().first;
        while from < end {
            let read = ReadBatches {
                from,
                end,
                bytes_max,
                inline_data: true,
            };
            match self.read(read)? {
                Found::Nothing => break,
                Found::Gap(gap) => {
                    assert!(
                        gap.end > from,
                        "a gap that leads nowhere: {gap:?} at {from}"
                    );
                    contents.gaps.push((gap.first, gap.end));
                    from = gap.end;
                }
                Found::Batches { batches, next } => {
                    assert!(next > from, "batches that lead nowhere: {next} at {from}");
                    for bytes in batches {
                        self.take_batch(bytes, data_from, &mut contents)?;
                    }
                    from = next;
                }
            }
        }
        Ok(contents)
    }

    fn take_batch(
        &mut self,
        bytes: Bytes,
        data_from: Offset,
        contents: &mut Contents,
    ) -> Result<(), StorageError> {
        let batch = Batch::read(bytes, Verify::Sections).expect("what is read verifies");
        let stamp = batch.stamp.expect("what is read is stamped");
        let columns = batch.columns().expect("what is read decodes");
        let inline = batch.inline_section().expect("inline data was asked for");
        for event in &columns.events {
            let offset = stamp.base_offset.plus(u64::from(event.offset_delta));
            let start = event.metadata_start as usize;
            let metadata = &batch.metadata_section()[start..start + event.metadata_bytes as usize];
            let data = match event.external {
                false => {
                    let start = event.data_start as usize;
                    Ok(inline[start..start + event.data_bytes as usize].to_vec())
                }
                true if offset < data_from => Ok(Vec::new()),
                true => self.read_data(offset),
            };
            let data = match data {
                Ok(data) => data,
                Err(StorageError::Damaged(_)) => {
                    contents.damaged.push(offset);
                    continue;
                }
                Err(error) => return Err(error),
            };
            let event = EventSpec {
                metadata: metadata.to_vec(),
                data,
                external: event.external,
            };
            contents.events.push((offset, event));
        }
        Ok(())
    }

    fn token(&mut self) -> ReadToken {
        self.next_token += 1;
        ReadToken(self.next_token)
    }

    fn take_one(&mut self, is: impl Fn(&StorageEvent) -> bool) -> Option<StorageEvent> {
        let at = self.events.iter().position(is)?;
        self.events.remove(at)
    }
}

/// What a storage holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Contents {
    /// Every event with its offset.
    pub events: Vec<(Offset, EventSpec)>,
    /// Offsets that hold none: first, and behind the last.
    pub gaps: Vec<(Offset, Offset)>,
    /// Events whose data fails its checksum.
    pub damaged: Vec<Offset>,
}
