//! External data: a place is reserved, filled chunk by chunk, sealed with its
//! block checksums, and then named by a batch.

use super::reservation::{Reservation, Stage};
use super::*;
use crate::disk::{DIRECT_ALIGNMENT, DiskErrorKind};
use crate::external::table_to_bytes;
use wire::checksum::crc32c;

/// Reservations at least this large get their space in one go.
const ALLOCATE_BYTES_MIN: u64 = 256 << 10;
/// Data files in which a reader may be near the end.
const NEWEST_FILES: usize = 8;

impl DiskLog {
    /// Gives a place up. What it took of the file is taken again if nothing
    /// lies behind it: else clients that try again on a full disk would fill
    /// what little there is.
    pub(super) fn release_place(&mut self, place: DataPlace) {
        let Some(found) = self.places.get_mut(&place) else {
            return;
        };
        if found.outstanding > 0 {
            found.stage = Stage::Gone;
            return;
        }
        let (base, start) = (found.base, found.position);
        let end = start + found.layout.total_bytes;
        self.data_tail.forget(base, start, end);
        self.places.remove(&place);
        if let Some(data) = self.data_files.get_mut(&base)
            && data.end == end
        {
            data.end = start;
            self.recount_bytes();
        }
    }

    pub(super) fn reserve_place(
        &mut self,
        layout: &ExternalLayout,
    ) -> Result<DataPlace, StorageError> {
        if let Some(refusal) = self.refusal() {
            return Err(refusal);
        }
        if let Some(full) = self.no_space(0) {
            return Err(full);
        }
        let segment_bytes = self.segment_bytes();
        let base = self.active().base;
        if !self.data_files.contains_key(&base) {
            let path = SegmentFile::Data.path(&self.open.directory, base);
            let (spare, length) = self.retain.take_data_spare().unzip();
            let file = self.files.add_new(path, spare);
            let data = DataFile {
                file,
                end: 0,
                length: length.unwrap_or(0),
                made: u64::MAX,
                sync_waiting: Vec::new(),
                sync_running: false,
            };
            self.data_files.insert(base, data);
        }
        let data = self.data_files.get_mut(&base).expect("it was just made");
        let position = data.end;
        let end = position.checked_add(layout.total_bytes);
        let end = end.filter(|end| *end <= i64::MAX as u64);
        let Some(end) = end else {
            return Err(StorageError::Invalid(format!(
                "{} bytes of data do not fit into a file",
                layout.total_bytes
            )));
        };
        data.end = end;
        let file = data.file;
        if end > data.length && layout.total_bytes >= ALLOCATE_BYTES_MIN {
            // More than is needed now, for it holds up whatever is being
            // written to the file; but no more than there is already.
            let ahead = end.min(self.settings.allocate_bytes_max);
            data.length = (end + ahead).min(segment_bytes.max(end));
            let allocate = Operation::Allocate {
                file: THIS_FILE,
                bytes: data.length,
            };
            self.files.submit_to(file, allocate, Purpose::Ignored);
        }
        data.length = data.length.max(end);
        self.next_place += 1;
        let place = DataPlace(self.next_place);
        let reserved = Reservation {
            base,
            position,
            layout: layout.clone(),
            data_crc: 0,
            synced: false,
            direct: self.writes_directly(layout),
            outstanding: 0,
            written_bytes: 0,
            stage: Stage::Filling,
        };
        self.places.insert(place, reserved);
        self.data_bytes += layout.total_bytes;
        Ok(place)
    }

    /// Whether this data is better written past the page cache. Who reads
    /// along, which whoever has read near the end is taken to do until a
    /// segment more has come, finds in the page cache what went through it.
    fn writes_directly(&self, layout: &ExternalLayout) -> bool {
        let read_along = self
            .data_read_at
            .is_some_and(|at| self.data_bytes - at < self.settings.segment_bytes);
        self.open.durability == Durability::Synced
            && layout.total_bytes >= self.settings.direct_bytes_min
            && !read_along
    }

    /// Somebody reads data up to `end` in this file.
    pub(super) fn data_is_read(&mut self, base: Offset, end: u64) {
        // Of who is far behind no more is of interest.
        let newest = self.data_files.iter().rev().take(NEWEST_FILES);
        let behind = newest.take_while(|(of, _)| **of >= base);
        let (count, bytes) = behind.fold((0, 0), |(count, bytes), (_, data)| {
            (count + 1, bytes + data.end)
        });
        if count < NEWEST_FILES {
            let behind = bytes.saturating_sub(end);
            self.data_tail.is_read(behind, self.data_bytes);
        }
        if count <= 2 {
            self.data_read_at = Some(self.data_bytes);
        }
    }

    /// A place's data file and where it begins in it, if it takes data.
    fn filling(&mut self, place: DataPlace) -> Option<(FileNumber, &mut Reservation)> {
        let found = self.places.get_mut(&place)?;
        let file = self.data_files.get(&found.base)?.file;
        (found.stage == Stage::Filling).then_some((file, found))
    }

    pub(super) fn write_chunk(&mut self, place: DataPlace, position: u64, bytes: Bytes) {
        let count = bytes.len() as u64;
        let closed = self.closed;
        let Some((file, found)) = self.filling(place).filter(|_| !closed) else {
            return self.place_invalid(place, "takes no data");
        };
        if position
            .checked_add(count)
            .is_none_or(|end| end > found.layout.table_position)
        {
            return self.place_invalid(place, "is smaller than what is written to it");
        }
        found.outstanding += 1;
        let padding = found.padding(position, count);
        let (base, at) = (found.base, found.position + position);
        let write = found.write(position, bytes.clone(), padding);
        self.data_tail
            .add(base, at, bytes, self.data_bytes, self.now);
        self.files
            .submit_to(file, write, Purpose::DataChunk(place, count));
    }

    pub(super) fn seal_place(
        &mut self,
        place: DataPlace,
        checksums: &[u32],
        durability: Durability,
    ) {
        let closed = self.closed;
        let Some((file, found)) = self.filling(place).filter(|_| !closed) else {
            return self.place_invalid(place, "takes no data");
        };
        if checksums.len() as u64 != found.layout.block_count {
            return self.place_invalid(place, "has another number of blocks");
        }
        found.stage = Stage::Sealed(durability);
        found.outstanding += 1;
        let table = Bytes::from(table_to_bytes(checksums));
        found.data_crc = crc32c(&table);
        let padding = table.len().next_multiple_of(DIRECT_ALIGNMENT as usize) - table.len();
        let (base, at) = (found.base, found.position + found.layout.table_position);
        let write = found.write(found.layout.table_position, table.clone(), padding);
        self.data_tail
            .add(base, at, table, self.data_bytes, self.now);
        self.files.submit_to(file, write, Purpose::DataTable(place));
    }

    fn place_invalid(&mut self, place: DataPlace, why: &str) {
        self.release_place(place);
        let error = StorageError::Invalid(format!("place {} {why}", place.0));
        self.events
            .push_back(StorageEvent::DataFailed { place, error });
    }

    pub(super) fn chunk_written(
        &mut self,
        place: DataPlace,
        bytes: u64,
        result: Result<Outcome, DiskError>,
    ) {
        if !self.write_settled(place, result) {
            return;
        }
        if let Some(found) = self.places.get_mut(&place) {
            found.written_bytes += bytes;
            self.events
                .push_back(StorageEvent::DataWritten { place, bytes });
        }
        self.place_filled(place);
    }

    pub(super) fn table_written(&mut self, place: DataPlace, result: Result<Outcome, DiskError>) {
        if self.write_settled(place, result) {
            self.place_filled(place);
        }
    }

    fn write_settled(&mut self, place: DataPlace, result: Result<Outcome, DiskError>) -> bool {
        let Some(found) = self.places.get_mut(&place) else {
            return false;
        };
        found.outstanding -= 1;
        if found.is_gone() {
            self.release_place(place);
            return false;
        }
        let Err(error) = result else {
            self.data_found_space(Ok(()));
            return true;
        };
        // No batch names this place, and none will: what is in it does not
        // matter, so the partition goes on.
        self.release_place(place);
        let error = match error.kind {
            DiskErrorKind::Full => {
                self.remove_spares(0);
                self.data_found_space(Err(&error));
                StorageError::Full(error.to_string())
            }
            _ => StorageError::Failed(error.to_string()),
        };
        self.events
            .push_back(StorageEvent::DataFailed { place, error });
        false
    }

    fn place_filled(&mut self, place: DataPlace) {
        let Some(found) = self.places.get_mut(&place) else {
            return;
        };
        let Stage::Sealed(durability) = found.stage else {
            return;
        };
        if found.outstanding > 0 {
            return;
        }
        let data_bytes: u64 = found.layout.events.iter().map(|(_, _, bytes)| bytes).sum();
        if found.written_bytes < data_bytes {
            return self.place_invalid(place, "was sealed before all of its data was written");
        }
        if durability < Durability::Synced {
            found.stage = Stage::Ready;
            self.events.push_back(StorageEvent::DataReady { place });
            return;
        }
        found.stage = Stage::Syncing;
        let base = found.base;
        if let Some(data) = self.data_files.get_mut(&base) {
            data.sync_waiting.push(place);
            self.commit.data_waiting.insert(base);
        }
    }

    /// Syncs the data of sealed places, those of one file together.
    pub(super) fn advance_data_syncs(&mut self) {
        if self.commit.data_waiting.is_empty() {
            return;
        }
        for base in std::mem::take(&mut self.commit.data_waiting) {
            let Some((made, running)) = self
                .data_files
                .get(&base)
                .map(|data| (data.made, data.sync_running))
            else {
                continue;
            };
            if self.failure.is_some() || running || !self.directory_is_synced(made) {
                self.commit.data_waiting.insert(base);
                continue;
            }
            let data = self.data_files.get_mut(&base).expect("just seen");
            data.sync_running = true;
            let places = std::mem::take(&mut data.sync_waiting);
            let sync = Operation::SyncData { file: THIS_FILE };
            let purpose = Purpose::DataSynced(base, places);
            self.files.submit_to(data.file, sync, purpose);
        }
    }

    pub(super) fn places_synced(
        &mut self,
        base: Offset,
        places: Vec<DataPlace>,
        result: Result<Outcome, DiskError>,
    ) {
        if let Some(data) = self.data_files.get_mut(&base) {
            data.sync_running = false;
        }
        if let Err(error) = result {
            return self.fail(&error);
        }
        for place in places {
            if let Some(found) = self.places.get_mut(&place)
                && found.stage == Stage::Syncing
            {
                found.stage = Stage::Ready;
                found.synced = true;
                self.events.push_back(StorageEvent::DataReady { place });
            }
        }
    }

    /// Takes a ready place for the batch that names it.
    pub(super) fn take_ready(
        &mut self,
        place: DataPlace,
        durability: Durability,
    ) -> Result<Reservation, StorageError> {
        let ready = self.places.get(&place).is_some_and(|found| {
            found.stage == Stage::Ready && (found.synced || durability < Durability::Synced)
        });
        if !ready {
            return Err(StorageError::Invalid(format!(
                "place {} does not hold its data at {durability} yet",
                place.0
            )));
        }
        Ok(self.places.remove(&place).expect("just seen"))
    }
}
