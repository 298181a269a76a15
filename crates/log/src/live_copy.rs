//! A copy of a partition's directory, made while the partition may be in use.
//!
//! Nobody is asked to hold still. What makes the copy one that can be opened is the order in which the
//! files are read: whatever says that something is durable is read before that which it speaks of. So the
//! checkpoint comes first; then the logs, the newest segment first, and each from its end to its start, for
//! stamps speak of what lies before them; then the data files, which are durable before a log that is
//! names them. What is appended meanwhile is in the copy or is not, as after a crash. Files that retention
//! removes meanwhile, and that are written again as others, show by the checkpoint: `first` moves before
//! any file goes. So it is read again at the end, and what lies before the `first` of then is left out.

use crate::blocking::Blocking;
use crate::checkpoint::{CHECKPOINT_NAME, Checkpoint, SLOT_BYTES, SLOT_DISTANCE};
use crate::disk::{Disk, DiskError, DiskErrorKind};
use crate::recovery::read_checkpoint;
use crate::segment::{SEGMENT_HEADER_BYTES, SegmentFile, SegmentHeader};
use crate::storage::StorageError;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use wire::{Durability, Offset};

/// Bytes that are read and written at once.
const PIECE_BYTES: u64 = 1 << 20;
/// How often a partition is copied of which nothing is left when its copy is done.
const PASSES_MAX: u32 = 16;
/// What stands for the boot in a copy that ends the partition's life: the boot of no machine.
const BOOT_OF_COPIES: &str = "a copy";

/// What a copy is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyFor {
    /// Another history: opened, the copy ends the partition's life where it ends and begins another, so
    /// that no offset of a life names two events, and a position behind that end, which somebody may
    /// have, leads to the new life.
    AnotherHistory {
        /// Up to where the copy, when it is opened, knows what was removed: see [`removed_from`]. What was
        /// removed from there on is reported when it is opened.
        removed_since: Offset,
    },
    /// The same history, for records that say themselves what they belong to.
    SameHistory,
}

/// The first offset before the last removal, up to where removals have been recorded by the server that has the
/// partition; `None` if no partition is there. Blocks.
///
/// # Errors
/// If it cannot be read, or another version wrote it.
pub fn removed_from(disk: &dyn Disk, directory: &Path) -> Result<Option<Offset>, StorageError> {
    let known = read_checkpoint(Blocking(disk), directory);
    let known = known.map_err(|error| StorageError::from(&error))?;
    Ok(known.map(|known| known.removed_from))
}

/// Copies a partition of the storage kind `disk` from one directory into another, which is made. Blocks.
/// The copy holds all that was appended before the call, and some of what is appended during it.
/// Gives the bytes that were copied; `None` if no partition is there, or not yet, or no longer.
///
/// # Errors
/// If something cannot be read or written, if a log is missing that the checkpoint speaks of, which is damage or
/// a partition that is just being removed, or if retention removes segments faster than they are copied.
pub fn copy_live(
    disk: &dyn Disk,
    from: &Path,
    to: &Path,
    copy_for: CopyFor,
) -> Result<Option<u64>, StorageError> {
    let mut copy = LiveCopy {
        disk: Blocking(disk),
        from,
        to,
        copied_bytes: 0,
        logs: BTreeMap::new(),
    };
    match copy
        .run(copy_for)
        .map_err(|error| StorageError::from(&error))?
    {
        Ran::Copied => Ok(Some(copy.copied_bytes)),
        Ran::Absent => Ok(None),
        Ran::Overtaken => Err(StorageError::Failed(format!(
            "{}: segments are removed faster than they are copied, {PASSES_MAX} times",
            from.display()
        ))),
        Ran::Lacks(log) => Err(StorageError::Failed(format!(
            "{} is missing, or is no log: the checkpoint beside it says that it is there",
            log.display()
        ))),
    }
}

/// What became of a copy.
enum Ran {
    Copied,
    /// There is no partition.
    Absent,
    /// Nothing that was copied is left, each time.
    Overtaken,
    /// Nothing has been removed, and yet this log is not there.
    Lacks(PathBuf),
}

struct LiveCopy<'a> {
    disk: Blocking<'a>,
    from: &'a Path,
    to: &'a Path,
    copied_bytes: u64,
    /// Segments that were there when a pass began, and whether their logs are copied.
    logs: BTreeMap<Offset, Log>,
}

/// What became of a log.
#[derive(Debug, Clone, Copy)]
enum Log {
    /// It went, or became another segment's, while it was copied.
    Gone,
    Copied(SegmentHeader),
    /// It is copied as it is.
    CopiedDamaged,
}

impl Log {
    fn is_copied(self) -> bool {
        !matches!(self, Self::Gone)
    }

    /// The oldest segment whose data file it may refer to.
    fn data_since(self) -> Offset {
        match self {
            Self::Copied(header) => header.data_since,
            Self::Gone | Self::CopiedDamaged => Offset(0),
        }
    }
}

impl LiveCopy<'_> {
    fn run(&mut self, copy_for: CopyFor) -> Result<Ran, DiskError> {
        let Some(mut known) = self.checkpoint()? else {
            return Ok(Ran::Absent);
        };
        self.disk.create_directory(self.to)?;
        let mut stood_still = false;
        for _ in 0..PASSES_MAX {
            self.pass(&known)?;
            let Some(now) = self.checkpoint()? else {
                return Ok(Ran::Absent);
            };
            let copied = self.keep(&known, &now)?;
            if let Some(checkpoint) = copied {
                self.write_checkpoint(checkpoint, copy_for)?;
                self.disk.sync_directory(self.to)?;
                return Ok(Ran::Copied);
            }
            // Files that retention removes go when a later checkpoint is durable.
            let stands_still = now == known;
            if stands_still && stood_still {
                return Ok(Ran::Lacks(self.lacking(&known)));
            }
            stood_still = stands_still;
            known = now;
        }
        Ok(Ran::Overtaken)
    }

    /// The log for want of which the copy cannot be used.
    fn lacking(&self, known: &Checkpoint) -> PathBuf {
        let has = |base| self.logs.get(&base).is_some_and(|log| log.is_copied());
        let lacking = match has(known.first) {
            true => known.segment,
            false => known.first,
        };
        SegmentFile::Log.path(self.from, lacking)
    }

    fn checkpoint(&self) -> Result<Option<Checkpoint>, DiskError> {
        read_checkpoint(self.disk, self.from)
    }

    /// Copies what is there. What goes meanwhile is not copied, or is copied in part, and shows later.
    fn pass(&mut self, known: &Checkpoint) -> Result<(), DiskError> {
        let names = if_there(self.disk.list(self.from))?.unwrap_or_default();
        let logs = bases(&names, SegmentFile::Log).split_off(&known.first);
        self.logs.clear();
        for base in logs.iter().rev() {
            let log = self.copy_log(*base)?;
            self.logs.insert(*base, log);
        }
        // Again: a batch may name a data file that was made since.
        let names = if_there(self.disk.list(self.from))?.unwrap_or_default();
        let copied = self.logs.values().filter(|log| log.is_copied());
        let since = copied.map(|log| log.data_since()).min();
        let data = bases(&names, SegmentFile::Data).split_off(&since.unwrap_or(Offset(0)));
        for base in data.iter().rev() {
            self.copy_file(&SegmentFile::Data.path(self.from, *base))?;
        }
        // Those of sealed segments; what is missing is made again by reading.
        let indexes = bases(&names, SegmentFile::Index);
        for base in indexes.range(known.first..known.segment.max(known.first)) {
            self.copy_file(&SegmentFile::Index.path(self.from, *base))?;
        }
        Ok(())
    }

    /// Removes from the copy what has left the partition meanwhile: segments before the `first` of now,
    /// whose files may have become others'. Gives the checkpoint of what is left; `None` if that is
    /// nothing, or lacks something that was durable.
    fn keep(
        &mut self,
        known: &Checkpoint,
        now: &Checkpoint,
    ) -> Result<Option<Checkpoint>, DiskError> {
        let left = self.logs.range(now.first..);
        // Behind one that is not copied nothing can be used.
        let kept: BTreeMap<Offset, Log> = left
            .take_while(|(_, log)| log.is_copied())
            .map(|(base, log)| (*base, *log))
            .collect();
        let mut checkpoint = Checkpoint {
            first: now.first,
            removed_from: now.removed_from,
            removed_reason: now.removed_reason,
            ..known.clone()
        };
        let Some((oldest, log)) = kept.first_key_value() else {
            return Ok(None);
        };
        if known.segment < *oldest {
            let Log::Copied(header) = log else {
                return Ok(None);
            };
            // All that was known to be durable has left: no more is known than that this one begins.
            checkpoint.segment = *oldest;
            checkpoint.salt = header.salt;
            checkpoint.position = 0;
            checkpoint.end = *oldest;
        } else if !kept.contains_key(&known.segment) {
            return Ok(None);
        }
        let since = kept.values().map(|log| log.data_since()).min();
        for name in self.disk.list(self.to)? {
            let stays = match SegmentFile::of_name(&name) {
                Some((SegmentFile::Data, base)) => since.is_some_and(|since| base >= since),
                Some((_, base)) => kept.contains_key(&base),
                None => true,
            };
            if !stays {
                self.disk.remove(self.to.join(name))?;
            }
        }
        Ok(Some(checkpoint))
    }

    fn copy_log(&mut self, base: Offset) -> Result<Log, DiskError> {
        let path = SegmentFile::Log.path(self.from, base);
        let Some(file) = if_there(self.disk.open(path.clone()))? else {
            return Ok(Log::Gone);
        };
        let first = self.copy_pieces(file, &path)?;
        let after = self.disk.read(file, 0, SEGMENT_HEADER_BYTES as usize)?;
        self.disk.close(file)?;
        // The header is the first that is written when the file becomes another segment's: while it
        // is this one's, all that was read is.
        if !first.starts_with(&after) {
            return Ok(Log::Gone);
        }
        Ok(match SegmentHeader::read(&after) {
            Ok(header) if header.base_offset == base => Log::Copied(header),
            // Of the segment that the file was before: this one is only just begun.
            Ok(_) => Log::Gone,
            Err(_) => Log::CopiedDamaged,
        })
    }

    /// Copies a file under its name; `None` if it is not there.
    fn copy_file(&mut self, path: &Path) -> Result<Option<()>, DiskError> {
        let Some(file) = if_there(self.disk.open(path.to_owned()))? else {
            return Ok(None);
        };
        self.copy_pieces(file, path)?;
        self.disk.close(file)?;
        Ok(Some(()))
    }

    /// Copies an open file, its end first. Gives the first piece, which is read last.
    fn copy_pieces(&mut self, file: crate::disk::FileId, path: &Path) -> Result<Bytes, DiskError> {
        let to = self.target(path);
        self.disk.remove(to.clone())?;
        let target = self.disk.create(to)?;
        let length = self.disk.length(file)?;
        let mut first = Bytes::new();
        for piece in (0..length.div_ceil(PIECE_BYTES)).rev() {
            let position = piece * PIECE_BYTES;
            let bytes = (length - position).min(PIECE_BYTES) as usize;
            first = self.disk.read(file, position, bytes)?.freeze();
            // What was allocated and not written yet stays a hole.
            if first.iter().any(|byte| *byte != 0) {
                self.disk.write(target, position, first.clone())?;
                self.copied_bytes += first.len() as u64;
            }
        }
        self.disk.set_length(target, length)?;
        self.disk.sync(target)?;
        self.disk.close(target)?;
        Ok(first)
    }

    fn target(&self, path: &Path) -> PathBuf {
        self.to.join(path.file_name().expect("a file has a name"))
    }

    /// The checkpoint of the copy is of a partition that was not closed.
    fn write_checkpoint(&self, known: Checkpoint, copy_for: CopyFor) -> Result<(), DiskError> {
        let mut checkpoint = Checkpoint {
            clean: false,
            ..known
        };
        if let CopyFor::AnotherHistory { removed_since } = copy_for {
            checkpoint.removed_from = checkpoint.removed_from.min(removed_since);
            // As after a power loss of a topic that promised less than to survive one.
            checkpoint.durability = Durability::Written;
            checkpoint.boot_id = BOOT_OF_COPIES.to_owned();
        }
        let file = self.disk.create(self.to.join(CHECKPOINT_NAME))?;
        let other = (checkpoint.sequence + 1) % 2 * SLOT_DISTANCE;
        let empty = Bytes::from_static(&[0; SLOT_BYTES]);
        self.disk.write(file, other, empty)?;
        let bytes = Bytes::copy_from_slice(&checkpoint.to_bytes());
        self.disk.write(file, checkpoint.slot_position(), bytes)?;
        self.disk.sync(file)?;
        self.disk.close(file)
    }
}

/// Of which segments there are such files.
fn bases(names: &[String], file: SegmentFile) -> BTreeSet<Offset> {
    let found = names.iter().filter_map(|name| SegmentFile::of_name(name));
    let found = found.filter(|(found, _)| *found == file);
    found.map(|(_, base)| base).collect()
}

fn if_there<T>(result: Result<T, DiskError>) -> Result<Option<T>, DiskError> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind == DiskErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
