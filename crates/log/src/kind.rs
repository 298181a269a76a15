//! The storage kind `disk`: makes, opens and removes partitions.

use crate::blocking::Blocking;
use crate::checkpoint::{CHECKPOINT_NAME, Checkpoint, SLOT_BYTES, SLOT_DISTANCE};
use crate::disk::{Disk, DiskError, DiskErrorKind, Operation};
use crate::partition::{DiskLog, Tails};
use crate::producers::ProducerTable;
use crate::recovery::{FoundSegment, Recovered, read_checkpoint, recover};
use crate::salts::{Salts, splitmix};
use crate::segment::{SEGMENT_HEADER_BYTES, SegmentFile, SegmentHeader, segment_start};
use crate::settings::DiskSettings;
use crate::storage::*;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use wire::{Durability, Offset};

/// Partitions on a [`Disk`].
#[derive(Clone)]
pub struct DiskKind {
    disk: Arc<dyn Disk>,
    salts: Salts,
    tails: Tails,
}

impl DiskKind {
    /// Partitions on `disk`.
    pub fn new(disk: Arc<dyn Disk>) -> Self {
        Self::with_salts(disk, Salts::Random)
    }

    /// Partitions whose files are the same bytes in every run.
    pub fn seeded(disk: Arc<dyn Disk>, seed: u64) -> Self {
        let salts = Salts::Seeded(Arc::new(AtomicU64::new(splitmix(seed))));
        Self::with_salts(disk, salts)
    }

    fn with_salts(disk: Arc<dyn Disk>, salts: Salts) -> Self {
        Self {
            disk,
            salts,
            tails: Tails::default(),
        }
    }

    /// Opens or makes a partition; as [`StorageKind::open`], unboxed.
    pub fn open_log(&self, open: OpenPartition) -> Result<(DiskLog, Recovery), StorageError> {
        let settings = DiskSettings::parse(&open.config).map_err(StorageError::Invalid)?;
        let disk = Blocking(self.disk.as_ref());
        let mut recovered = match open.create {
            true => self.create(disk, &open, &settings)?,
            false => recover(disk, &open, &settings)?,
        };
        let report = recovered.report.clone();
        self.begin(disk, &open, &mut recovered)
            .map_err(|error| StorageError::from(&error))?;
        let log = DiskLog::new(
            settings,
            open,
            recovered,
            self.salts.clone(),
            self.tails.clone(),
        );
        Ok((log, report))
    }

    fn create(
        &self,
        disk: Blocking<'_>,
        open: &OpenPartition,
        settings: &DiskSettings,
    ) -> Result<Recovered, StorageError> {
        let made = self.create_directory(disk, open);
        if !made.map_err(|error| StorageError::from(&error))? {
            let path = open.directory.display();
            return Err(StorageError::Invalid(format!("{path} exists already")));
        }
        let checkpoint = Checkpoint {
            sequence: 0,
            clean: false,
            durability: open.durability,
            incarnation: open.incarnation,
            first: Offset(0),
            removed_from: Offset(0),
            removed_reason: None,
            segment: Offset(0),
            salt: 0,
            position: 0,
            end: Offset(0),
            time: open.unix_ns,
            boot_id: open.boot_id.clone(),
        };
        Ok(Recovered {
            segments: Vec::new(),
            data_files: BTreeMap::new(),
            producers: ProducerTable::new(settings.producer_limits()),
            first: Offset(0),
            end: Offset(0),
            incarnation: open.incarnation,
            checkpoint,
            begin_segment: true,
            report: Recovery::default(),
        })
    }

    /// Makes the directory; `false` if a partition is there already. What a
    /// crash left of one whose making was not completed is removed.
    fn create_directory(
        &self,
        disk: Blocking<'_>,
        open: &OpenPartition,
    ) -> Result<bool, DiskError> {
        match disk.list(&open.directory) {
            Err(error) if error.kind == DiskErrorKind::NotFound => {}
            Err(error) => return Err(error),
            Ok(names) => {
                if !self.is_unfinished(disk, open, &names)? {
                    return Ok(false);
                }
                for name in names {
                    disk.remove(open.directory.join(name))?;
                }
            }
        }
        disk.create_directory(&open.directory)?;
        if let Some(parent) = open.directory.parent() {
            disk.sync_directory(parent)?;
        }
        Ok(true)
    }

    /// Whether a directory holds no more than a partition whose making was
    /// not completed: the first checkpoint comes last.
    fn is_unfinished(
        &self,
        disk: Blocking<'_>,
        open: &OpenPartition,
        names: &[String],
    ) -> Result<bool, DiskError> {
        if read_checkpoint(disk, &open.directory)?.is_some() {
            return Ok(false);
        }
        let first_log = SegmentFile::Log.path(&open.directory, Offset(0));
        for name in names {
            let path = open.directory.join(name);
            if name == CHECKPOINT_NAME {
                continue;
            }
            if path != first_log {
                return Ok(false);
            }
            let file = disk.open(path)?;
            let length = disk.length(file)?;
            disk.close(file)?;
            if length > self.empty_segment_bytes(open) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Length of a segment's log that holds no events, of nobody's.
    fn empty_segment_bytes(&self, open: &OpenPartition) -> u64 {
        let limits = DiskSettings::default().producer_limits();
        let snapshot = ProducerTable::new(limits).snapshot(open.topic);
        SEGMENT_HEADER_BYTES + snapshot.bytes() as u64
    }

    /// Makes what was recovered ready for appending: a segment that takes
    /// them, and a checkpoint that says where they begin.
    fn begin(
        &self,
        disk: Blocking<'_>,
        open: &OpenPartition,
        recovered: &mut Recovered,
    ) -> Result<(), DiskError> {
        if recovered.begin_segment {
            self.begin_segment(disk, open, recovered)?;
        }
        let active = recovered
            .segments
            .last()
            .expect("a segment was found or begun");
        let checkpoint = &mut recovered.checkpoint;
        checkpoint.sequence += 1;
        checkpoint.segment = active.base;
        checkpoint.salt = active.salt;
        checkpoint.position = active.log_end;
        checkpoint.end = recovered.end;
        let path = open.directory.join(CHECKPOINT_NAME);
        let file = match disk.open(path.clone()) {
            Ok(file) => file,
            Err(error) if error.kind == DiskErrorKind::NotFound => {
                let file = disk.create(path)?;
                // A slot that was never written may need space when there is none.
                let other = (checkpoint.sequence + 1) % 2 * SLOT_DISTANCE;
                disk.write(file, other, Bytes::from_static(&[0; SLOT_BYTES]))?;
                file
            }
            Err(error) => return Err(error),
        };
        let bytes = Bytes::copy_from_slice(&checkpoint.to_bytes());
        disk.write(file, checkpoint.slot_position(), bytes)?;
        disk.sync(file)?;
        disk.close(file)?;
        disk.sync_directory(&open.directory)
    }

    fn begin_segment(
        &self,
        disk: Blocking<'_>,
        open: &OpenPartition,
        recovered: &mut Recovered,
    ) -> Result<(), DiskError> {
        let base = recovered.end;
        // A segment without events would have the same name; nothing is in it.
        while recovered
            .segments
            .last()
            .is_some_and(|last| last.base >= base)
        {
            let empty = recovered.segments.pop().expect("just seen");
            disk.remove(SegmentFile::Log.path(&open.directory, empty.base))?;
            disk.remove(SegmentFile::Data.path(&open.directory, empty.base))?;
            recovered.data_files.remove(&empty.base);
            disk.sync_directory(&open.directory)?;
        }
        let header = SegmentHeader {
            salt: self.salts.next(),
            topic: open.topic,
            partition: open.partition,
            incarnation: recovered.incarnation,
            base_offset: base,
            previous_base: recovered.segments.last().map_or(base, |last| last.base),
            data_since: base,
            created: open.unix_ns,
        };
        let path = SegmentFile::Log.path(&open.directory, base);
        let file = disk.create(path)?;
        let bytes = segment_start(&header, &recovered.producers);
        let log_end: usize = bytes.iter().map(Bytes::len).sum();
        self.disk.execute(Operation::Write {
            file,
            position: 0,
            bytes,
        })?;
        disk.sync(file)?;
        disk.close(file)?;
        disk.sync_directory(&open.directory)?;
        recovered
            .segments
            .push(FoundSegment::begun(header, log_end as u64));
        Ok(())
    }
}

impl StorageKind for DiskKind {
    fn name(&self) -> &'static str {
        "disk"
    }

    fn check(&self, config: &str) -> Result<(), String> {
        DiskSettings::check_new(config)
    }

    fn durability_max(&self) -> Durability {
        Durability::Synced
    }

    fn open(&self, open: OpenPartition) -> Result<(Box<dyn Storage>, Recovery), StorageError> {
        let (log, report) = self.open_log(open)?;
        Ok((Box::new(log), report))
    }

    fn remove(&self, directory: &Path) -> Result<(), StorageError> {
        let disk = Blocking(self.disk.as_ref());
        let remove = || {
            let names = match disk.list(directory) {
                Err(error) if error.kind == DiskErrorKind::NotFound => return Ok(()),
                other => other?,
            };
            for name in names {
                disk.remove(directory.join(name))?;
            }
            disk.remove_directory(directory.to_owned())?;
            match directory.parent() {
                Some(parent) => disk.sync_directory(parent),
                None => Ok(()),
            }
        };
        remove().map_err(|error: DiskError| StorageError::from(&error))
    }
}
