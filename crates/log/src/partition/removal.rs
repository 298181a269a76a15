//! What has been removed, and what is about to be; removed files that may be written again.

use super::purpose::FileNumber;
use super::segments::DataFile;
use crate::checkpoint::Checkpoint;
use std::path::{Path, PathBuf};
use wire::Offset;
use wire::record::{Gap, GapReason};

/// What has been removed, and what is about to be.
pub(super) struct Retain {
    /// `first` before the last removal.
    pub(super) removed_from: Offset,
    pub(super) removed_reason: Option<GapReason>,
    /// What retention spares.
    pub(super) keep_from: Offset,
    /// Segments that readers no longer see. Their files go when a checkpoint
    /// that begins behind them is durable, so that they are never missed.
    pub(super) leaving: Vec<Leaving>,
    /// Logs that may be written again, and their lengths; and names for more.
    pub(super) spares: Vec<(PathBuf, u64)>,
    pub(super) next_spare: u64,
    /// How many get a spare's name just now, and the length of these and of
    /// those that have it.
    pub(super) sparing: usize,
    pub(super) spare_bytes: u64,
    /// Data files that may be written again, and their lengths.
    pub(super) data_spares: Vec<(PathBuf, u64)>,
    /// How many get a spare's name just now, and the length of these and of
    /// those that have it.
    pub(super) sparing_data: usize,
    pub(super) data_spare_bytes: u64,
    /// When `trim_spares` looked last.
    pub(super) ticked_at: u64,
    /// Data files to which no segment refers, and that are still read or synced.
    pub(super) leaving_data: Vec<DataFile>,
    /// Removals under way.
    pub(super) removing: usize,
}

pub(super) struct Leaving {
    pub(super) log: FileNumber,
    pub(super) base: Offset,
    pub(super) data_since: Offset,
    /// Whether all of it was synced; then it has an index, too.
    pub(super) durable: bool,
    /// How long its log is.
    pub(super) bytes: u64,
    pub(super) gap: Gap,
}

impl Retain {
    pub(super) fn new(checkpoint: &Checkpoint) -> Self {
        Self {
            removed_from: checkpoint.removed_from,
            removed_reason: checkpoint.removed_reason,
            keep_from: Offset(u64::MAX),
            leaving: Vec::new(),
            spares: Vec::new(),
            next_spare: 0,
            sparing: 0,
            spare_bytes: 0,
            data_spares: Vec::new(),
            sparing_data: 0,
            data_spare_bytes: 0,
            ticked_at: 0,
            leaving_data: Vec::new(),
            removing: 0,
        }
    }

    /// Whether segments that were never synced whole wait for a checkpoint behind
    /// them.
    pub(super) fn leaves_unsynced(&self) -> bool {
        self.leaving.iter().any(|leaving| !leaving.durable)
    }

    pub(super) fn take_spare(&mut self) -> Option<PathBuf> {
        let (path, bytes) = self.spares.pop()?;
        self.spare_bytes -= bytes;
        Some(path)
    }

    pub(super) fn take_data_spare(&mut self) -> Option<(PathBuf, u64)> {
        let spare = self.data_spares.pop()?;
        self.data_spare_bytes -= spare.1;
        Some(spare)
    }

    /// A name that no file has.
    pub(super) fn spare_path(&mut self, directory: &Path) -> PathBuf {
        let name = format!("{}{}", crate::segment::SPARE_PREFIX, self.next_spare);
        self.next_spare += 1;
        directory.join(name)
    }
}
