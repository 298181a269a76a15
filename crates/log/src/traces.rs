//! What a partition's directory tells of itself, without it being opened.

use crate::blocking::Blocking;
use crate::checkpoint::{CHECKPOINT_NAME, Checkpoint, SLOT_DISTANCE};
use crate::disk::{Disk, DiskError};
use crate::producers::ProducerTable;
use crate::segment::SPARE_PREFIX;
use crate::segment::{SEGMENT_HEADER_BYTES, SegmentFile, SegmentHeader};
use crate::settings::DiskSettings;
use std::path::Path;
use wire::{Incarnation, Offset, PartitionIndex, TopicId};

/// Bytes that are looked through at once.
const PIECE_BYTES: usize = 1 << 20;

/// What a directory of the storage kind `disk` tells of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traces {
    /// Whose it is, by the first segment header that can be read.
    pub partition: Option<(TopicId, PartitionIndex)>,
    /// The latest life that anything in it tells of.
    pub incarnation: Incarnation,
    /// Whether it may hold events, or may have held some: `false` is certain.
    pub holds_events: bool,
}

impl Traces {
    /// Looks at the files of `directory` and changes none. Blocks.
    ///
    /// # Errors
    /// If the directory or a file of it cannot be read.
    pub fn of(disk: &dyn Disk, directory: &Path) -> Result<Self, DiskError> {
        let disk = Blocking(disk);
        let mut traces = Self {
            partition: None,
            incarnation: Incarnation(1),
            holds_events: false,
        };
        for name in disk.list(directory)? {
            if name == CHECKPOINT_NAME {
                traces.take_checkpoint(&read(disk, &directory.join(name))?);
                continue;
            }
            match SegmentFile::of_name(&name) {
                Some((SegmentFile::Log, base)) => {
                    traces.take_log(disk, &directory.join(name), base)?;
                }
                Some((SegmentFile::Index, _)) => {}
                // Data and spare files come with events; what is of nobody's is not judged.
                Some((SegmentFile::Data, _)) => traces.holds_events = true,
                None => traces.holds_events |= name.starts_with(SPARE_PREFIX),
            }
        }
        Ok(traces)
    }

    fn take_checkpoint(&mut self, bytes: &[u8]) {
        self.holds_events |= Checkpoint::of_another_version(bytes).is_some();
        if let Some(known) = Checkpoint::newest(bytes) {
            self.incarnation = self.incarnation.max(known.incarnation);
            self.holds_events |= known.end > Offset(0);
        }
    }

    fn take_log(&mut self, disk: Blocking<'_>, path: &Path, base: Offset) -> Result<(), DiskError> {
        let file = disk.open(path.to_owned())?;
        let start = disk.read(file, 0, SEGMENT_HEADER_BYTES as usize)?;
        let mut position = 0;
        if let Ok(header) = SegmentHeader::read(&start) {
            self.incarnation = self.incarnation.max(header.incarnation);
            self.partition
                .get_or_insert((header.topic, header.partition));
            // Behind the header lies a snapshot of no producers, in a segment without events.
            let limits = DiskSettings::default().producer_limits();
            let snapshot = ProducerTable::new(limits).snapshot(header.topic);
            position = SEGMENT_HEADER_BYTES + snapshot.bytes() as u64;
        }
        self.holds_events |= base > Offset(0);
        while !self.holds_events {
            let piece = disk.read(file, position, PIECE_BYTES)?;
            if piece.is_empty() {
                break;
            }
            self.holds_events |= piece.iter().any(|byte| *byte != 0);
            position += piece.len() as u64;
        }
        disk.close(file)
    }
}

/// As much of a checkpoint file as is ever used.
fn read(disk: Blocking<'_>, path: &Path) -> Result<::memory::Buffer, DiskError> {
    let file = disk.open(path.to_owned())?;
    let bytes = disk.read(file, 0, 2 * SLOT_DISTANCE as usize)?;
    disk.close(file)?;
    Ok(bytes)
}
