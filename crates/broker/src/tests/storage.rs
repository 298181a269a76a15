//! A storage for tests of the node alone: batches in a shared list, durable
//! when its one kind of operation is carried out.

use bytes::Bytes;
use log::producers::Verdict;
use log::*;
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use wire::batch::{Batch, ExternalLayout, Header, Stamp, Verify};
use wire::checksum::crc32c;
use wire::record::{Gap, GapReason};
use wire::view::Segment;
use wire::{Durability, Incarnation, Offset, ProducerEpoch, ProducerId, Sequence};

/// What survives: a partition's batches by path.
#[derive(Default, Clone)]
pub struct Shelf(pub Arc<Mutex<BTreeMap<PathBuf, Kept>>>);

#[derive(Default, Clone)]
pub struct Kept {
    batches: Vec<(Offset, Offset, Bytes, Vec<Bytes>)>,
    synced: Offset,
    lives: u64,
}

pub struct TestKind {
    pub name: &'static str,
    pub shelf: Shelf,
    pub max: Durability,
    pub fail_open: Arc<Mutex<Option<u32>>>,
}

impl StorageKind for TestKind {
    fn name(&self) -> &'static str {
        self.name
    }
    fn check(&self, config: &str) -> Result<(), String> {
        match config {
            "" => Ok(()),
            other => Err(format!("{other:?} is not empty")),
        }
    }
    fn durability_max(&self) -> Durability {
        self.max
    }
    fn open(&self, open: OpenPartition) -> Result<(Box<dyn Storage>, Recovery), StorageError> {
        if *self.fail_open.lock().unwrap() == Some(open.partition.0) && open.topic.0 != 1 {
            return Err(StorageError::Failed("told to fail".into()));
        }
        let mut shelf = self.shelf.0.lock().unwrap();
        let mut recovery = Recovery::default();
        if self.max == Durability::Memory {
            let old = shelf.insert(open.directory.clone(), Kept::default());
            let kept = shelf.get_mut(&open.directory).unwrap();
            kept.lives = old.map_or(0, |old| old.lives) + 1;
        } else if open.create {
            assert!(!shelf.contains_key(&open.directory));
            shelf.insert(open.directory.clone(), Kept::default());
        }
        let Some(kept) = shelf.get_mut(&open.directory) else {
            return Err(StorageError::Failed("not there".into()));
        };
        let synced = kept.synced;
        kept.batches.retain(|(_, end, ..)| *end <= synced);
        let mut incarnation = open.incarnation;
        if self.max == Durability::Memory && !open.create {
            recovery.ended = Some((incarnation, Offset(0)));
            incarnation = Incarnation(incarnation.0 + 1);
        }
        let end = kept.batches.last().map_or(Offset(0), |batch| batch.1);
        let mut storage = TestStorage {
            path: open.directory,
            shelf: self.shelf.clone(),
            max: self.max,
            incarnation,
            end,
            synced: end,
            events: VecDeque::new(),
            operations: VecDeque::new(),
            waiting: BTreeMap::new(),
            next: 0,
            places: BTreeMap::new(),
            producers: BTreeMap::new(),
            closing: false,
        };
        for (base, _, bytes, _) in &kept.batches {
            let batch = Batch::read(bytes.as_ref(), Verify::Headers).unwrap();
            storage.learn(&batch.header, *base);
        }
        Ok((Box::new(storage), recovery))
    }
    fn remove(&self, directory: &Path) -> Result<(), StorageError> {
        self.shelf.0.lock().unwrap().remove(directory);
        Ok(())
    }
}

pub struct TestStorage {
    path: PathBuf,
    shelf: Shelf,
    max: Durability,
    incarnation: Incarnation,
    end: Offset,
    synced: Offset,
    events: VecDeque<StorageEvent>,
    operations: VecDeque<(OperationToken, Operation)>,
    waiting: BTreeMap<OperationToken, Then>,
    next: u64,
    places: BTreeMap<DataPlace, (Vec<u8>, ExternalLayout)>,
    producers: BTreeMap<ProducerId, Known>,
    closing: bool,
}

/// A producer's epoch, and its batches: first sequence, count, offset.
type Known = (ProducerEpoch, Vec<(Sequence, u32, Offset)>);

enum Then {
    Synced(Offset),
    Event(StorageEvent),
}

impl TestStorage {
    fn later(&mut self, then: Then) {
        self.next += 1;
        let token = OperationToken(self.next);
        self.waiting.insert(token, then);
        let path = self.path.clone();
        self.operations
            .push_back((token, Operation::SyncDirectory { path }));
    }

    fn learn(&mut self, header: &Header, base: Offset) {
        let entry = self
            .producers
            .entry(header.producer)
            .or_insert((header.epoch, Vec::new()));
        if header.epoch > entry.0 {
            *entry = (header.epoch, Vec::new());
        }
        entry
            .1
            .push((header.first_sequence, header.event_count, base));
    }

    fn kept(&self) -> Kept {
        self.shelf.0.lock().unwrap()[&self.path].clone()
    }
}

impl Storage for TestStorage {
    fn durability_max(&self) -> Durability {
        self.max
    }
    fn state(&self) -> StorageState {
        let memory = self.max == Durability::Memory;
        StorageState {
            incarnation: self.incarnation,
            first: Offset(0),
            end: self.end,
            written: if memory { Offset(0) } else { self.end },
            synced: if memory { Offset(0) } else { self.synced },
            bytes: self.end.0 * 100,
            failure: None,
        }
    }
    fn check(&self, header: &Header) -> Verdict {
        let Some((epoch, batches)) = self.producers.get(&header.producer) else {
            return Verdict::New;
        };
        if header.epoch < *epoch {
            return Verdict::Fenced { epoch: *epoch };
        }
        if header.epoch > *epoch {
            return Verdict::New;
        }
        let last = batches.last().unwrap();
        let expected = Sequence(last.0.0 + u64::from(last.1));
        let same = batches
            .iter()
            .find(|batch| batch.0 == header.first_sequence);
        if let Some(same) = same {
            return Verdict::Duplicate {
                base_offset: same.2,
            };
        }
        match header.first_sequence == expected {
            true => Verdict::New,
            false => Verdict::OutOfSequence { expected },
        }
    }
    fn reserve(&mut self, layout: &ExternalLayout) -> Result<DataPlace, StorageError> {
        self.next += 1;
        let place = DataPlace(self.next);
        self.places.insert(
            place,
            (vec![0; layout.total_bytes as usize], layout.clone()),
        );
        Ok(place)
    }
    fn write_data(&mut self, place: DataPlace, position: u64, bytes: Bytes) {
        if let Some((data, _)) = self.places.get_mut(&place) {
            data[position as usize..position as usize + bytes.len()].copy_from_slice(&bytes);
        }
        let bytes = bytes.len() as u64;
        self.later(Then::Event(StorageEvent::DataWritten { place, bytes }));
    }
    fn seal_data(&mut self, place: DataPlace, checksums: Vec<u32>, _: Durability) {
        let (data, layout) = &self.places[&place];
        let mut expected = Vec::new();
        for (_, position, bytes) in &layout.events {
            let data = &data[*position as usize..(*position + *bytes) as usize];
            expected.extend(wire::checksum::block_checksums(data, 4096));
        }
        assert_eq!(checksums, expected);
        self.later(Then::Event(StorageEvent::DataReady { place }));
    }
    fn abandon(&mut self, place: DataPlace) {
        self.places.remove(&place);
    }
    fn append(&mut self, append: Append) -> Result<Offset, StorageError> {
        assert_eq!(self.check(&append.header), Verdict::New);
        let base = self.end;
        let mut batch = append.batch;
        let stamp = Stamp {
            batch_bytes: append.header.batch_bytes(),
            base_offset: base,
            append_time: append.append_time,
            header_crc: append.header_crc,
            ..Stamp::default()
        };
        stamp.write(&mut batch);
        self.end = base.plus(append.header.offset_count());
        self.learn(&append.header, base);
        let data = append
            .place
            .map(|place| self.places.remove(&place).unwrap());
        let bytes = batch.freeze();
        let columns = Batch::read(bytes.as_ref(), Verify::Sections)
            .unwrap()
            .columns()
            .unwrap();
        let inline = Batch::read(bytes.as_ref(), Verify::Sections).unwrap();
        let inline = inline.inline_section().unwrap();
        let data = columns.events.iter().map(|event| {
            let range = event.data_start as usize..(event.data_start + event.data_bytes) as usize;
            match (event.external, &data) {
                (true, Some((data, _))) => Bytes::copy_from_slice(&data[range]),
                _ => Bytes::copy_from_slice(&inline[range]),
            }
        });
        let data = data.collect();
        let mut shelf = self.shelf.0.lock().unwrap();
        let kept = shelf.get_mut(&self.path).unwrap();
        kept.batches.push((base, self.end, bytes, data));
        drop(shelf);
        if self.max > Durability::Memory {
            self.later(Then::Synced(self.end));
        }
        Ok(base)
    }
    fn read(&mut self, token: ReadToken, read: ReadBatches) {
        let mut batches = Vec::new();
        let mut sum = 0;
        let mut next = read.from;
        for (base, end, bytes, _) in self.kept().batches {
            if end <= read.from || base >= read.end {
                continue;
            }
            if !batches.is_empty() && sum + bytes.len() as u64 > read.bytes_max {
                break;
            }
            sum += bytes.len() as u64;
            batches.push(bytes);
            next = end;
        }
        let found = match batches.is_empty() {
            true => Found::Nothing,
            false => Found::Batches { batches, next },
        };
        self.later(Then::Event(StorageEvent::Read {
            token,
            found: Ok(found),
        }));
    }
    fn open_event(&mut self, token: ReadToken, offset: Offset) {
        let kept = self.kept();
        let batch = kept
            .batches
            .iter()
            .find(|batch| batch.0 <= offset && offset < batch.1);
        let data = batch
            .map(|batch| batch.3[(offset.0 - batch.0.0) as usize].clone())
            .unwrap();
        let data = EventData {
            bytes: data.len() as u64,
            crc: crc32c(&data),
            handle: Arc::new(data),
        };
        self.later(Then::Event(StorageEvent::EventOpened {
            token,
            data: Ok(data),
        }));
    }
    fn read_data(&mut self, token: ReadToken, data: &EventData, segments: Vec<Segment>) {
        let data = data.handle.downcast_ref::<Bytes>().unwrap();
        let pieces = segments
            .iter()
            .map(|s| data.slice(s.offset as usize..(s.offset + s.bytes) as usize));
        let pieces = Ok(pieces.collect());
        self.later(Then::Event(StorageEvent::DataRead { token, pieces }));
    }
    fn remove_before(&mut self, offset: Offset, reason: GapReason) {
        let mut shelf = self.shelf.0.lock().unwrap();
        let kept = shelf.get_mut(&self.path).unwrap();
        kept.batches.retain(|batch| batch.1 > offset);
        self.events.push_back(StorageEvent::Lost(Gap {
            incarnation: self.incarnation,
            first: Offset(0),
            end: offset,
            reason,
            time: 0,
        }));
    }
    fn tick(&mut self, _: u64) {}
    fn next_tick(&self) -> Option<u64> {
        None
    }
    fn close(&mut self) {
        self.closing = true;
        self.later(Then::Event(StorageEvent::Closed));
    }
    fn poll_operation(&mut self) -> Option<(OperationToken, Operation)> {
        self.operations.pop_front()
    }
    fn complete(&mut self, token: OperationToken, _: Result<Outcome, DiskError>) {
        match self.waiting.remove(&token) {
            Some(Then::Synced(end)) => {
                self.synced = self.synced.max(end);
                self.shelf
                    .0
                    .lock()
                    .unwrap()
                    .get_mut(&self.path)
                    .unwrap()
                    .synced = self.synced;
                self.events.push_back(StorageEvent::Progress);
            }
            Some(Then::Event(event)) => self.events.push_back(event),
            None => panic!("unknown operation"),
        }
    }
    fn poll_event(&mut self) -> Option<StorageEvent> {
        self.events.pop_front()
    }
}
