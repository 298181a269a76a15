//! A storage of one's own: partitions are served from memory. Everything that
//! happens to them is appended to a plain file, counts as durable once it is
//! synced there, and is done again when they are opened.
//!
//! It shows what a storage is: state that changes with each call, operations
//! that others carry out, events that report what became of calls. What is in
//! memory is a [`log::MemoryLog`], driven by this one. As an example it leaves
//! out what a storage for long runs needs: the file never gets shorter, and a
//! record that is damaged counts as the torn end of the file.

use bytes::Bytes;
use log::producers::Verdict;
use log::*;
use memory::Buffer;
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use wire::batch::{Batch, ExternalLayout, Header, Survey, Verify};
use wire::checksum::crc32c;
use wire::codec::{Codec, Reader};
use wire::record::GapReason;
use wire::view::Segment;
use wire::{Durability, Offset, ProducerEpoch, ProducerId, Sequence};

const FILE: &str = "journal";
/// Bytes before a record: its length and its checksum.
const PREFIX_BYTES: usize = 12;

/// The storage kind `journaled`.
pub struct JournaledKind {
    disk: Arc<dyn Disk>,
}

impl JournaledKind {
    /// Partitions on this disk.
    pub fn new(disk: Arc<dyn Disk>) -> Self {
        Self { disk }
    }

    fn done(&self, operation: Operation) -> Result<Outcome, StorageError> {
        let failed = |error: DiskError| StorageError::Failed(error.to_string());
        self.disk.execute(operation).map_err(failed)
    }

    fn file(&self, operation: Operation) -> Result<FileId, StorageError> {
        match self.done(operation)? {
            Outcome::File(file) => Ok(file),
            other => unreachable!("opening gives a file, not {other:?}"),
        }
    }

    fn create(&self, directory: &Path) -> Result<FileId, StorageError> {
        let path = directory.to_owned();
        self.done(Operation::CreateDirectory { path })?;
        let path = directory.join(FILE);
        let file = self.file(Operation::Create { path })?;
        // The names of the file and of the directory must last, too.
        for path in directory.ancestors().take(2) {
            let path = path.to_owned();
            self.done(Operation::SyncDirectory { path })?;
        }
        Ok(file)
    }

    fn read_all(&self, file: FileId) -> Result<Buffer, StorageError> {
        let bytes = match self.done(Operation::Length { file })? {
            Outcome::Length(bytes) => bytes as usize,
            other => unreachable!("asking the length gives it, not {other:?}"),
        };
        let position = 0;
        match self.done(Operation::Read {
            file,
            position,
            bytes,
        })? {
            Outcome::Bytes(bytes) => Ok(bytes),
            other => unreachable!("reading gives bytes, not {other:?}"),
        }
    }
}

impl StorageKind for JournaledKind {
    fn name(&self) -> &'static str {
        "journaled"
    }

    fn check(&self, config: &str) -> Result<(), String> {
        MemoryKind.check(config)
    }

    fn durability_max(&self) -> Durability {
        Durability::Synced
    }

    fn open(&self, open: OpenPartition) -> Result<(Box<dyn Storage>, Recovery), StorageError> {
        let path = open.directory.join(FILE);
        let (file, journal) = if open.create {
            (self.create(&open.directory)?, Buffer::copy_of(&[]))
        } else {
            let file = self.file(Operation::Open { path })?;
            (file, self.read_all(file)?)
        };
        // Always a new one: what memory has lost is read from the file.
        let (inner, _) = MemoryKind.open(OpenPartition {
            create: true,
            ..open
        })?;
        let mut storage = Journaled {
            inner,
            file,
            position: 0,
            gathering: Vec::new(),
            step: Step::Idle,
            synced: Offset(0),
            places: BTreeMap::new(),
            events: VecDeque::new(),
            closing: false,
            failure: None,
        };
        let mut report = Recovery::default();
        let mut rest = &journal[..];
        while let Some((record, behind)) = Record::read(rest) {
            storage.replay(record)?;
            storage.position += (rest.len() - behind.len()) as u64;
            rest = behind;
        }
        let state = storage.inner.state();
        storage.synced = state.end;
        report.event_count = state.end.0 - state.first.0;
        report.verified_bytes = storage.position;
        report.cut_bytes = rest.len() as u64;
        if !rest.is_empty() {
            let bytes = storage.position;
            self.done(Operation::SetLength { file, bytes })?;
            self.done(Operation::SyncData { file })?;
        }
        Ok((Box::new(storage), report))
    }

    fn remove(&self, directory: &Path) -> Result<(), StorageError> {
        for operation in [
            Operation::Remove {
                path: directory.join(FILE),
            },
            Operation::RemoveDirectory {
                path: directory.to_owned(),
            },
        ] {
            match self.disk.execute(operation) {
                Err(error) if error.kind == DiskErrorKind::NotFound => {}
                other => drop(other.map_err(|error| StorageError::Failed(error.to_string()))?),
            }
        }
        Ok(())
    }
}

/// What happened to a partition.
enum Record {
    Append {
        append_time: u64,
        leader_epoch: u32,
        /// Unstamped: appending it again stamps it alike.
        batch: Bytes,
        data: Option<PlaceData>,
    },
    Removed {
        before: Offset,
        reason: GapReason,
    },
}

/// External data of a place, to be written with its batch.
#[derive(Default, Clone)]
struct PlaceData {
    chunks: Vec<(u64, Bytes)>,
    checksums: Vec<u32>,
}

impl Record {
    /// Its bytes: length and checksum of what follows, and that.
    fn write(&self, to: &mut Vec<u8>) {
        let begin = to.len();
        to.extend_from_slice(&[0; PREFIX_BYTES]);
        match self {
            Self::Append {
                append_time,
                leader_epoch,
                batch,
                data,
            } => {
                to.push(1);
                append_time.encode(to);
                leader_epoch.encode(to);
                (batch.len() as u64).encode(to);
                to.extend_from_slice(batch);
                let data = data.as_ref();
                let chunks = data.map_or(&[][..], |data| &data.chunks);
                let checksums = data.map_or(&[][..], |data| &data.checksums);
                to.push(u8::from(data.is_some()));
                (chunks.len() as u64).encode(to);
                for (position, chunk) in chunks {
                    position.encode(to);
                    (chunk.len() as u64).encode(to);
                    to.extend_from_slice(chunk);
                }
                (checksums.len() as u64).encode(to);
                checksums.iter().for_each(|checksum| checksum.encode(to));
            }
            Self::Removed { before, reason } => {
                to.push(2);
                before.0.encode(to);
                reason.encode(to);
            }
        }
        let body = &to[begin + PREFIX_BYTES..];
        let (bytes, crc) = (body.len() as u64, crc32c(body));
        to[begin..begin + 8].copy_from_slice(&bytes.to_le_bytes());
        to[begin + 8..begin + 12].copy_from_slice(&crc.to_le_bytes());
    }

    /// The first record of `bytes`, and what is behind it. `None` at the end,
    /// whether it is clean or torn.
    fn read(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (length, rest) = bytes.split_first_chunk::<8>()?;
        let (crc, rest) = rest.split_first_chunk::<4>()?;
        let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
        let (body, rest) = rest.split_at_checked(length)?;
        if crc32c(body) != u32::from_le_bytes(*crc) {
            return None;
        }
        Some((Self::parse(&mut Reader::new("journal", body)).ok()?, rest))
    }

    fn parse(from: &mut Reader<'_>) -> Result<Self, wire::DecodeError> {
        if from.u8()? == 2 {
            return Ok(Self::Removed {
                before: Offset(from.u64()?),
                reason: GapReason::decode(from)?,
            });
        }
        let (append_time, leader_epoch) = (from.u64()?, from.u32()?);
        let bytes = from.u64()? as usize;
        let batch = Bytes::copy_from_slice(from.bytes(bytes)?);
        let has_data = from.u8()? == 1;
        let mut data = PlaceData::default();
        for _ in 0..from.u64()? {
            let (position, bytes) = (from.u64()?, from.u64()? as usize);
            let chunk = Bytes::copy_from_slice(from.bytes(bytes)?);
            data.chunks.push((position, chunk));
        }
        for _ in 0..from.u64()? {
            data.checksums.push(from.u32()?);
        }
        Ok(Self::Append {
            append_time,
            leader_epoch,
            batch,
            data: has_data.then_some(data),
        })
    }
}

/// What the file is doing. Whatever happens meanwhile gathers, and goes with
/// the next write: one sync covers all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Idle,
    /// Up to this offset, as all that follow.
    Writing(Offset),
    Written(Offset),
    Syncing(Offset),
    Closing,
    Closed,
}

/// A partition of the kind `journaled`.
struct Journaled {
    inner: Box<dyn Storage>,
    file: FileId,
    /// Where the next write goes.
    position: u64,
    /// Records that are not written yet.
    gathering: Vec<u8>,
    step: Step,
    /// Below this, everything is in the file and synced.
    synced: Offset,
    places: BTreeMap<DataPlace, PlaceData>,
    events: VecDeque<StorageEvent>,
    closing: bool,
    failure: Option<String>,
}

impl Journaled {
    /// Does again what a record says.
    fn replay(&mut self, record: Record) -> Result<(), StorageError> {
        let damaged = |error: wire::DecodeError| StorageError::Damaged(error.to_string());
        match record {
            Record::Removed { before, reason } => self.inner.remove_before(before, reason),
            Record::Append {
                append_time,
                leader_epoch,
                batch,
                data,
            } => {
                let read = Batch::read(batch.clone(), Verify::Sections).map_err(damaged)?;
                let header = read.header;
                let survey = Survey::read(&header, read.columns_section()).map_err(damaged)?;
                let mut place = None;
                if let (Some(layout), Some(data)) = (&survey.external, data) {
                    let reserved = self.inner.reserve(layout)?;
                    for (position, chunk) in data.chunks {
                        self.inner.write_data(reserved, position, chunk);
                    }
                    let level = Durability::Memory;
                    self.inner.seal_data(reserved, data.checksums, level);
                    place = Some(reserved);
                }
                self.inner.append(Append {
                    batch: Buffer::copy_of(&batch),
                    header,
                    header_crc: read.header_crc,
                    place,
                    durability: Durability::Memory,
                    append_time,
                    // The journal does not know better.
                    now: append_time,
                    leader_epoch,
                })?;
            }
        }
        // Nobody waits for what became of it.
        while self.inner.poll_event().is_some() {}
        Ok(())
    }

    /// Takes over what the inner storage reports. What it has lost must not come
    /// back with the next opening.
    fn drain(&mut self) {
        while let Some(event) = self.inner.poll_event() {
            match event {
                StorageEvent::Closed => self.closing = true,
                StorageEvent::Lost(gap) => {
                    let (before, reason) = (gap.end, gap.reason);
                    Record::Removed { before, reason }.write(&mut self.gathering);
                    self.events.push_back(event);
                }
                other => self.events.push_back(other),
            }
        }
    }

    fn fail(&mut self, error: &DiskError) {
        // What is in the file is not known any more.
        self.failure.get_or_insert_with(|| error.to_string());
        self.gathering.clear();
        self.step = Step::Idle;
        self.events.push_back(StorageEvent::Progress);
    }
}

impl Storage for Journaled {
    fn durability_max(&self) -> Durability {
        Durability::Synced
    }

    fn state(&self) -> StorageState {
        StorageState {
            written: self.synced,
            synced: self.synced,
            failure: self.failure.clone(),
            ..self.inner.state()
        }
    }

    fn check(&self, header: &Header) -> Verdict {
        self.inner.check(header)
    }

    fn next_sequence(&self, producer: ProducerId, epoch: ProducerEpoch) -> Option<Sequence> {
        self.inner.next_sequence(producer, epoch)
    }

    fn reserve(&mut self, layout: &ExternalLayout) -> Result<DataPlace, StorageError> {
        let place = self.inner.reserve(layout)?;
        self.places.insert(place, PlaceData::default());
        Ok(place)
    }

    fn write_data(&mut self, place: DataPlace, position: u64, bytes: Bytes) {
        if let Some(data) = self.places.get_mut(&place) {
            data.chunks.push((position, bytes.clone()));
        }
        self.inner.write_data(place, position, bytes);
        self.drain();
    }

    fn seal_data(&mut self, place: DataPlace, checksums: Vec<u32>, durability: Durability) {
        if let Some(data) = self.places.get_mut(&place) {
            data.checksums.clone_from(&checksums);
        }
        // Data goes to the file in its batch's record, so it need not be
        // there before.
        self.inner.seal_data(place, checksums, durability);
        self.drain();
    }

    fn abandon(&mut self, place: DataPlace) {
        self.places.remove(&place);
        self.inner.abandon(place);
    }

    fn append(&mut self, append: Append) -> Result<Offset, StorageError> {
        if let Some(failure) = &self.failure {
            return Err(StorageError::Failed(failure.clone()));
        }
        let place = append.place;
        let record = Record::Append {
            append_time: append.append_time,
            leader_epoch: append.leader_epoch,
            batch: Bytes::copy_from_slice(&append.batch),
            data: place.and_then(|place| self.places.get(&place).cloned()),
        };
        let offset = self.inner.append(append)?;
        record.write(&mut self.gathering);
        if let Some(place) = place {
            self.places.remove(&place);
        }
        self.drain();
        Ok(offset)
    }

    fn read(&mut self, token: ReadToken, read: ReadBatches) {
        self.inner.read(token, read);
        self.drain();
    }

    fn open_event(&mut self, token: ReadToken, offset: Offset) {
        self.inner.open_event(token, offset);
        self.drain();
    }

    fn read_data(&mut self, token: ReadToken, data: &EventData, segments: Vec<Segment>) {
        self.inner.read_data(token, data, segments);
        self.drain();
    }

    fn read_data_to_compare(&mut self, token: ReadToken, data: &EventData, segments: Vec<Segment>) {
        self.inner.read_data_to_compare(token, data, segments);
        self.drain();
    }

    fn remove_before(&mut self, offset: Offset, gap: GapReason) {
        self.inner.remove_before(offset, gap);
        self.drain();
    }

    fn set_retention(&mut self, retention: Retention, keep_from: Offset) {
        self.inner.set_retention(retention, keep_from);
        self.drain();
    }

    fn tick(&mut self, unix_ns: u64) {
        self.inner.tick(unix_ns);
        self.drain();
    }

    fn next_tick(&self) -> Option<u64> {
        self.inner.next_tick()
    }

    fn close(&mut self) {
        self.inner.close();
        self.drain();
    }

    fn poll_operation(&mut self) -> Option<(OperationToken, Operation)> {
        let file = self.file;
        let operation = match self.step {
            Step::Idle if !self.gathering.is_empty() && self.failure.is_none() => {
                self.step = Step::Writing(self.inner.state().end);
                let bytes = Bytes::from(std::mem::take(&mut self.gathering));
                let position = self.position;
                self.position += bytes.len() as u64;
                Operation::Write {
                    file,
                    position,
                    bytes: vec![bytes],
                }
            }
            Step::Written(end) => {
                self.step = Step::Syncing(end);
                Operation::SyncData { file }
            }
            Step::Idle if self.closing => {
                self.step = Step::Closing;
                Operation::Close { file }
            }
            _ => return None,
        };
        Some((OperationToken(0), operation))
    }

    fn complete(&mut self, _: OperationToken, result: Result<Outcome, DiskError>) {
        match (self.step, result) {
            // A file that does not close has all its bytes synced already.
            (Step::Closing, _) => {
                self.step = Step::Closed;
                self.events.push_back(StorageEvent::Closed);
            }
            (_, Err(error)) => self.fail(&error),
            (Step::Writing(end), Ok(_)) => self.step = Step::Written(end),
            (Step::Syncing(end), Ok(_)) => {
                self.step = Step::Idle;
                self.synced = end;
                self.events.push_back(StorageEvent::Progress);
            }
            (Step::Idle | Step::Written(_) | Step::Closed, Ok(_)) => {
                unreachable!("nothing was asked for")
            }
        }
    }

    fn poll_event(&mut self) -> Option<StorageEvent> {
        self.events.pop_front()
    }
}
