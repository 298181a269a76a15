//! A partition on disk, as a state machine.
//!
//! Its parts are files of their own, each with its share of the state:
//! [`append`] writes batches and rolls segments, [`commit`] makes them
//! durable, [`data`] takes external data, [`read`] finds and verifies,
//! [`retain`] removes, [`idle`] closes what is not used, [`segment_size`] says when a segment is enough,
//! [`tail`] and [`data_tail`] keep what was just appended for
//! those who read along, [`undo`] takes back what found no space. Here is what they share,
//! and the dispatch of completions.

mod append;
mod checkpoints;
mod commit;
mod data;
mod data_tail;
mod directory_sync;
mod files;
mod group_commit;
mod idle;
mod in_flight;
mod log_position;
mod purpose;
mod read;
mod removal;
mod reservation;
mod retain;
mod segment_size;
mod segments;
mod space;
mod tail;
mod tails;
mod undo;

pub(crate) use tails::Tails;

use crate::checkpoint::{CHECKPOINT_NAME, Checkpoint};
use crate::disk::{DiskError, Operation, Outcome};
use crate::index::SparseIndex;
use crate::producers::{ProducerTable, Verdict};
use crate::recovery::Recovered;
use crate::salts::Salts;
use crate::segment::{SegmentFile, SegmentHeader};
use crate::settings::DiskSettings;
use crate::storage::*;
use bytes::Bytes;
use files::{Files, Idle, THIS_FILE};
use in_flight::InFlight;
use purpose::{FileNumber, Purpose};
use read::Compared;
use segments::{DataFile, Segment};
use std::collections::{BTreeMap, VecDeque};
use wire::batch::{ExternalLayout, Header};
use wire::record::{GapReason, ProducerState};
use wire::view::Segment as DataSegment;
use wire::{Durability, Incarnation, Offset, ProducerEpoch, ProducerId, Sequence};

/// A partition on disk. Made by [`crate::DiskKind`].
pub struct DiskLog {
    settings: DiskSettings,
    open: OpenPartition,
    incarnation: Incarnation,
    salts: Salts,
    files: Files,
    events: VecDeque<StorageEvent>,
    /// Oldest first; the last takes appends.
    segments: VecDeque<Segment>,
    data_files: BTreeMap<Offset, DataFile>,
    producers: ProducerTable,
    /// Bytes of all files but the last segment's.
    older_bytes: u64,
    first: Offset,
    end: Offset,
    written: Offset,
    synced: Offset,
    failure: Option<String>,
    closing: bool,
    closed: bool,
    now: u64,
    in_flight: InFlight,
    allocate_bytes: u64,
    places: BTreeMap<DataPlace, reservation::Reservation>,
    next_place: u64,
    /// Bytes of data for which places were reserved, ever.
    data_bytes: u64,
    /// What `data_bytes` was when data near the end was read last.
    data_read_at: Option<u64>,
    commit: group_commit::Commit,
    directory: directory_sync::DirectorySync,
    checkpoint: checkpoints::Checkpoints,
    undo: Option<space::Undo>,
    space: space::Space,
    idle: Idle,
    reads: read::Reads,
    retain: removal::Retain,
    tail: tail::Tail,
    data_tail: data_tail::DataTail,
}

impl DiskLog {
    /// Takes over what recovery found. The last segment takes appends.
    pub(crate) fn new(
        settings: DiskSettings,
        open: OpenPartition,
        recovered: Recovered,
        salts: Salts,
        tails: Tails,
    ) -> Self {
        let mut files = Files::new();
        let directory = &open.directory;
        let referred: BTreeMap<Offset, u64> = recovered
            .segments
            .iter()
            .map(|found| (found.base, found.data_end))
            .collect();
        let segments: VecDeque<Segment> = recovered
            .segments
            .into_iter()
            .map(|found| Segment {
                base: found.base,
                header: found.header,
                salt: found.salt,
                log: files.add(SegmentFile::Log.path(directory, found.base)),
                start: 0,
                end: found.log_end,
                written: found.log_end,
                synced: found.log_end,
                allocated: found.log_bytes,
                allocating: false,
                durable: true,
                index_known: !found.index.is_empty(),
                index: found.index,
                first_append_time: found
                    .header
                    .map_or(found.last_append_time, |header| header.created),
                last_append_time: found.last_append_time,
            })
            .collect();
        let mut data_files = BTreeMap::new();
        for (base, bytes) in recovered.data_files {
            let file = files.add(SegmentFile::Data.path(directory, base));
            let bytes = bytes.max(referred.get(&base).copied().unwrap_or(0));
            let data = DataFile {
                file,
                // Whatever an abandoned reservation left is not written over.
                end: bytes.next_multiple_of(wire::batch::DATA_ALIGNMENT),
                length: bytes.next_multiple_of(wire::batch::DATA_ALIGNMENT),
                made: 0,
                sync_waiting: Vec::new(),
                sync_running: false,
            };
            data_files.insert(base, data);
        }
        let checkpoint_file = files.add(directory.join(CHECKPOINT_NAME));
        let retain = removal::Retain::new(&recovered.checkpoint);
        let mut log = Self {
            incarnation: recovered.incarnation,
            salts,
            files,
            events: VecDeque::new(),
            segments,
            data_files,
            producers: recovered.producers,
            older_bytes: 0,
            first: recovered.first,
            end: recovered.end,
            written: recovered.end,
            synced: recovered.end,
            failure: None,
            closing: false,
            closed: false,
            now: open.unix_ns,
            in_flight: InFlight::default(),
            allocate_bytes: settings.allocate_bytes_min,
            places: BTreeMap::new(),
            next_place: 0,
            data_bytes: 0,
            data_read_at: None,
            commit: group_commit::Commit::default(),
            directory: directory_sync::DirectorySync::default(),
            checkpoint: checkpoints::Checkpoints::new(checkpoint_file, recovered.checkpoint),
            undo: None,
            space: space::Space::default(),
            idle: Idle::default(),
            reads: read::Reads::default(),
            retain,
            tail: tail::Tail::new(tails.batches, settings.tail_bytes_max),
            data_tail: data_tail::DataTail::new(tails.data, settings.data_tail_bytes_max),
            settings,
            open,
        };
        if let Some(active) = log.segments.back_mut() {
            active.durable = false;
        }
        log.recount_bytes();
        log
    }

    /// Counts what does not change with each append.
    fn recount_bytes(&mut self) {
        let Some(active) = self.segments.back() else {
            return;
        };
        let older = self.segments.iter().rev().skip(1);
        let logs = older.map(|segment| segment.end);
        let base = active.base;
        let older = self.data_files.iter().filter(|(of, _)| **of != base);
        let data = older.map(|(_, data)| data.end);
        self.older_bytes = logs.chain(data).sum();
    }

    fn stored_bytes(&self) -> u64 {
        let active = self.segments.back();
        let log = active.map_or(0, |active| active.end);
        let data = active.and_then(|active| self.data_files.get(&active.base));
        self.older_bytes + log + data.map_or(0, |data| data.end)
    }

    fn active(&mut self) -> &mut Segment {
        self.segments
            .back_mut()
            .expect("there is always a segment that takes appends")
    }

    fn segment_index(&self, base: Offset) -> Option<usize> {
        let at = self.segments.partition_point(|segment| segment.base < base);
        (self.segments.get(at)?.base == base).then_some(at)
    }

    fn segment(&mut self, base: Offset) -> Option<&mut Segment> {
        let at = self.segment_index(base)?;
        self.segments.get_mut(at)
    }

    /// Index of the segment whose offsets include `offset`.
    fn segment_of(&self, offset: Offset) -> usize {
        let after = self
            .segments
            .partition_point(|segment| segment.base <= offset);
        after.saturating_sub(1)
    }

    fn progress(&mut self) {
        if !matches!(self.events.back(), Some(StorageEvent::Progress)) {
            self.events.push_back(StorageEvent::Progress);
        }
    }

    /// Takes nothing more until reopened: the state on disk is unknown.
    fn fail(&mut self, error: &DiskError) {
        if self.failure.is_some() {
            return;
        }
        self.failure = Some(error.to_string());
        self.undo = None;
        self.tail.clear();
        self.data_tail.clear();
        let places = std::mem::take(&mut self.places);
        for (place, _) in places.into_iter().filter(|(_, place)| !place.is_gone()) {
            let error = StorageError::Failed(error.to_string());
            self.events
                .push_back(StorageEvent::DataFailed { place, error });
        }
        self.progress();
    }

    fn refusal(&self) -> Option<StorageError> {
        if let Some(failure) = &self.failure {
            return Some(StorageError::Failed(failure.clone()));
        }
        self.closing
            .then(|| StorageError::Invalid("the partition is being closed".into()))
    }

    fn dispatch(&mut self, purpose: Purpose, result: Result<Outcome, DiskError>) {
        match purpose {
            Purpose::Ignored => {}
            Purpose::Recycled(file) => self.files.recycled(file, result.is_ok()),
            Purpose::Opened(file) => self.file_opened(file, result),
            Purpose::Batch(number) => self.batch_written(number, result),
            Purpose::Allocated(base) => self.allocated(base, result),
            Purpose::Probed => self.probed(result),
            Purpose::DataChunk(place, bytes) => self.chunk_written(place, bytes, result),
            Purpose::DataTable(place) => self.table_written(place, result),
            Purpose::DataSynced(base, places) => self.places_synced(base, places, result),
            Purpose::DirectorySynced(changes) => self.directory_synced(changes, result),
            Purpose::CommitData => self.commit_data_synced(result),
            Purpose::CommitLog => self.commit_log_synced(result),
            Purpose::CheckpointWritten => self.checkpoint_written(result),
            Purpose::CheckpointSynced => self.checkpoint_synced(result),
            Purpose::Read(job) => self.read_done(job, result),
            Purpose::Index(base, job) => self.index_read(base, job, result),
            Purpose::Removed => self.removed(result),
            Purpose::Spared(path, length) => self.spared((path, length), result),
            Purpose::DataSpared(path, length) => self.data_spared((path, length), result),
            Purpose::UndoStep => self.undo_step_done(result),
        }
    }

    fn file_opened(&mut self, file: FileNumber, result: Result<Outcome, DiskError>) {
        let result = result.map(|outcome| match outcome {
            Outcome::File(id) => id,
            other => unreachable!("opening gives a file, not {other:?}"),
        });
        match self.files.opened(file, result) {
            Ok(false) => {}
            Ok(true) => {
                let made = self.directory.changed();
                if let Some(data) = self.data_files.values_mut().find(|data| data.file == file) {
                    data.made = made;
                }
            }
            Err((waiting, error)) => {
                for purpose in waiting {
                    self.dispatch(purpose, Err(error.share()));
                }
            }
        }
    }

    /// What may have become possible.
    fn advance(&mut self) {
        if self.closed {
            return;
        }
        self.advance_undo();
        self.advance_commit();
        self.advance_data_syncs();
        self.advance_checkpoint();
        self.advance_removal();
        if self.closing && !self.closed {
            self.advance_close();
        }
    }

    fn advance_close(&mut self) {
        if self.failure.is_none() {
            let durable = self
                .segments
                .back()
                .is_none_or(|active| active.synced == active.end);
            if !durable || !self.in_flight.is_empty() || self.undo.is_some() {
                return;
            }
            if !self.checkpoint.closed_cleanly() {
                return self.write_checkpoint();
            }
        }
        // Whatever is still under way belongs to readers or to nobody.
        self.closed = true;
        self.tail.clear();
        self.data_tail.clear();
        self.files.retire_all();
        self.events.push_back(StorageEvent::Closed);
    }
}

impl Storage for DiskLog {
    fn durability_max(&self) -> Durability {
        Durability::Synced
    }

    fn state(&self) -> StorageState {
        StorageState {
            incarnation: self.incarnation,
            first: self.first,
            end: self.end,
            written: self.written,
            synced: self.synced,
            bytes: self.stored_bytes(),
            failure: self.failure.clone(),
        }
    }

    fn check(&self, header: &Header) -> Verdict {
        self.producers.check(header)
    }

    fn next_sequence(&self, producer: ProducerId, epoch: ProducerEpoch) -> Option<Sequence> {
        self.producers.next_sequence(producer, epoch)
    }

    fn producers(&self) -> Vec<ProducerState> {
        self.producers.states()
    }

    fn adopt_producers(&mut self, states: Vec<ProducerState>) {
        self.producers.adopt(states);
    }

    fn reserve(&mut self, layout: &ExternalLayout) -> Result<DataPlace, StorageError> {
        self.reserve_place(layout)
    }

    fn write_data(&mut self, place: DataPlace, position: u64, bytes: Bytes) {
        self.write_chunk(place, position, bytes);
    }

    fn seal_data(&mut self, place: DataPlace, checksums: Vec<u32>, durability: Durability) {
        self.seal_place(place, &checksums, durability);
        self.advance();
    }

    fn abandon(&mut self, place: DataPlace) {
        self.release_place(place);
    }

    fn append(&mut self, append: Append) -> Result<Offset, StorageError> {
        self.append_batch(append)
    }

    fn read(&mut self, token: ReadToken, read: ReadBatches) {
        self.start_read(token, read);
    }

    fn read_at_hand(&mut self, read: &ReadBatches) -> Option<Found> {
        self.find_at_hand(read)
    }

    fn open_event(&mut self, token: ReadToken, offset: Offset) {
        self.start_open(token, offset);
    }

    fn read_data(&mut self, token: ReadToken, data: &EventData, segments: Vec<DataSegment>) {
        self.start_read_data(token, data, &segments, Compared::No);
    }

    fn read_data_to_compare(
        &mut self,
        token: ReadToken,
        data: &EventData,
        segments: Vec<DataSegment>,
    ) {
        self.start_read_data(token, data, &segments, Compared::ByReader);
    }

    fn remove_before(&mut self, offset: Offset, gap: GapReason) {
        self.remove_segments_before(offset, gap);
        self.advance();
    }

    fn set_retention(&mut self, retention: Retention, keep_from: Offset) {
        let is_new = self.open.retention != retention;
        self.open.retention = retention;
        self.retain.keep_from = keep_from;
        self.remove_spares(self.spare_bytes_max());
        self.roll_if_due();
        if is_new {
            self.roll_if_too_long();
        }
        self.apply_retention();
        self.advance();
    }

    fn tick(&mut self, unix_ns: u64) {
        self.now = self.now.max(unix_ns);
        self.producers.expire(self.now);
        self.tail.tick(self.now);
        self.data_tail.tick(self.now);
        self.files.close_retired();
        self.trim_spares();
        self.probe_if_due();
        self.checkpoint.want_again(self.now);
        self.roll_if_due();
        self.apply_retention();
        self.close_files_if_idle();
        self.advance();
    }

    fn next_tick(&self) -> Option<u64> {
        let tails = [self.tail.next_tick(), self.data_tail.next_tick()];
        let tails = tails.into_iter().flatten();
        let retention = [self.next_retention(), self.next_roll(), self.next_trim()];
        let probe = self.space.next_probe().filter(|_| self.failure.is_none());
        let checkpoint = self
            .checkpoint
            .next_try()
            .filter(|_| self.failure.is_none());
        let others = tails.chain(probe).chain(checkpoint).chain(self.next_idle());
        retention.into_iter().flatten().chain(others).min()
    }

    fn close(&mut self) {
        if !self.closing {
            self.closing = true;
            self.advance();
        }
    }

    fn poll_operation(&mut self) -> Option<(OperationToken, Operation)> {
        self.files.poll()
    }

    fn complete(&mut self, token: OperationToken, result: Result<Outcome, DiskError>) {
        trace::passes!("what was asked for is done");
        let purpose = self.files.completed(token);
        self.dispatch(purpose, result);
        self.advance();
    }

    fn poll_event(&mut self) -> Option<StorageEvent> {
        self.events.pop_front()
    }
}
