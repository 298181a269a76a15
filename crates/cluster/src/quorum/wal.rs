//! Writes the log: one write and one sync at a time, and what comes meanwhile gathers for the next.
//! Also puts a new file in the place of the old one when a snapshot makes it shorter.

use super::entry::Entry;
use super::frame::{FileHeader, HardState, Records};
use super::id::Identity;
use super::recovery::{OpenFile, Recovered, head, log_path, new_path};
use super::store::Store;
use crate::faults::{Fault, planted};
use crate::random::Random;
use bytes::Bytes;
use log::{DiskError, DiskErrorKind, FileId, Operation, Outcome};
use std::path::PathBuf;
use std::time::Duration;

/// How long a write that found no space waits until it is tried again.
const FULL_RETRY: Duration = Duration::from_secs(1);

/// A part of the log that is made durable as one, named by a number that only grows: the number of
/// the library's `Ready`.
pub(crate) type Part = u64;

/// The one operation that is under way, or what comes next. The drawing is in the README.
#[derive(Debug)]
enum Phase {
    Idle,
    Writing(Frame),
    /// A write found no space; the same bytes are written again then.
    Waiting(Frame, Duration),
    Syncing(Frame),
    Creating(Rotation),
    Filling(Rotation, FileId),
    SyncingNew(Rotation, FileId),
    Renaming(Rotation, FileId),
    SyncingDirectory(Rotation, FileId),
    ClosingOld(OpenFile),
    RemovingOld(u64),
    /// A new file found no space: it is closed,
    ClosingNew(Rotation, FileId),
    /// and removed.
    RemovingNew(Rotation),
}

#[derive(Debug, Clone)]
struct Frame {
    bytes: Bytes,
    part: Part,
}

#[derive(Debug)]
struct Rotation {
    header: FileHeader,
    head: Bytes,
    part: Part,
    why: Rotate,
    /// What would have been written to the old file, if this does not succeed.
    held_back: Records,
}

/// Why a new file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rotate {
    /// A snapshot was taken here; the old file would do as well.
    Compact,
    /// A snapshot came in the place of a log that is too old; the old file is of no use.
    Restore,
}

/// The log's writer.
#[derive(Debug)]
pub(crate) struct Wal {
    directory: PathBuf,
    identity: Identity,
    file: OpenFile,
    /// The number of the last frame in the file.
    frame: u64,
    gathered: Records,
    /// The last part that was gathered.
    part: Part,
    rotate: Option<Rotate>,
    /// Before this time no new file is tried.
    rotate_at: Duration,
    phase: Phase,
    /// The operation that is out.
    out: Option<u64>,
    token: u64,
    durable: Part,
    /// The last write found no space.
    full: bool,
}

impl Wal {
    pub(crate) fn new(recovered: &Recovered) -> Self {
        Self {
            directory: recovered.directory.clone(),
            identity: recovered.identity,
            file: recovered.file,
            frame: 1,
            gathered: Records::default(),
            part: 0,
            rotate: None,
            rotate_at: Duration::ZERO,
            phase: Phase::Idle,
            out: None,
            token: 0,
            durable: 0,
            full: false,
        }
    }

    /// Records of a part, to be written behind all that was gathered before.
    pub(crate) fn gather(&mut self, records: &Records, part: Part) {
        self.gathered.append(records);
        self.part = part;
    }

    /// The store has a new snapshot: a new file is to begin with it.
    pub(crate) fn rotate(&mut self, why: Rotate, part: Part) {
        if self.rotate != Some(Rotate::Restore) {
            self.rotate = Some(why);
        }
        if why == Rotate::Restore {
            // What was gathered belongs to the log that is replaced.
            self.gathered = Records::default();
            self.part = part;
        }
    }

    /// All parts up to this one are durable.
    pub(crate) fn durable(&self) -> Part {
        self.durable
    }

    /// The last part that was to be made durable.
    pub(crate) fn gathered(&self) -> Part {
        self.part
    }

    /// Whether the last write found no space.
    pub(crate) fn is_full(&self) -> bool {
        self.full
    }

    /// Bytes that are not written yet.
    pub(crate) fn unwritten(&self) -> usize {
        let under_way = match &self.phase {
            Phase::Writing(frame) | Phase::Waiting(frame, _) => frame.bytes.len(),
            _ => 0,
        };
        under_way + self.gathered.len()
    }

    /// The next operation, if none is out.
    pub(crate) fn poll(&mut self, now: Duration, store: &Store) -> Option<(u64, Operation)> {
        if self.out.is_some() {
            return None;
        }
        self.begin(now, store);
        let operation = self.operation()?;
        self.token += 1;
        self.out = Some(self.token);
        Some((self.token, operation))
    }

    /// Decides what is next, if nothing is under way.
    fn begin(&mut self, now: Duration, store: &Store) {
        if let Phase::Waiting(frame, until) = &self.phase
            && *until <= now
        {
            self.phase = Phase::Writing(frame.clone());
        }
        if !matches!(self.phase, Phase::Idle) {
            return;
        }
        if let Some(why) = self.rotate {
            if self.rotate_at <= now {
                self.rotate = None;
                self.phase = Phase::Creating(self.rotation(why, store));
                return;
            }
            if why == Rotate::Restore {
                // The old file cannot take what follows the snapshot.
                return;
            }
        }
        if !self.gathered.is_empty() {
            let records = std::mem::take(&mut self.gathered);
            let mut bytes = Vec::new();
            records.frame(self.file.salt, self.frame + 1, &mut bytes);
            self.phase = Phase::Writing(Frame {
                bytes: bytes.into(),
                part: self.part,
            });
        }
    }

    /// A new file with all that there is now. It has all parts that were gathered.
    fn rotation(&mut self, why: Rotate, store: &Store) -> Rotation {
        let number = self.file.number + 1;
        let header = FileHeader {
            identity: self.identity,
            number,
            salt: Random::new(self.file.salt ^ number).number(),
        };
        let index = store.snapshot_index();
        let entries: Vec<_> = store.behind(index).map(Entry::of_raft).collect();
        let state: &HardState = &store.hard_state;
        Rotation {
            header,
            head: head(&header, store.snapshot_stored(), state, entries.iter()),
            part: self.part,
            why,
            held_back: std::mem::take(&mut self.gathered),
        }
    }

    fn operation(&self) -> Option<Operation> {
        let write = |file, position, bytes: &Bytes| Operation::Write {
            file,
            position,
            bytes: vec![bytes.clone()],
        };
        let new = |rotation: &Rotation| new_path(&self.directory, rotation.header.number);
        Some(match &self.phase {
            Phase::Idle | Phase::Waiting(..) => return None,
            Phase::Writing(frame) => write(self.file.id, self.file.end, &frame.bytes),
            Phase::Syncing(_) => Operation::SyncData { file: self.file.id },
            Phase::Creating(rotation) => Operation::Create {
                path: new(rotation),
            },
            Phase::Filling(rotation, file) => write(*file, 0, &rotation.head),
            Phase::SyncingNew(_, file) => Operation::SyncData { file: *file },
            Phase::Renaming(rotation, _) => Operation::Rename {
                from: new(rotation),
                to: log_path(&self.directory, rotation.header.number),
            },
            Phase::SyncingDirectory(..) => Operation::SyncDirectory {
                path: self.directory.clone(),
            },
            Phase::ClosingOld(old) => Operation::Close { file: old.id },
            Phase::RemovingOld(number) => Operation::Remove {
                path: log_path(&self.directory, *number),
            },
            Phase::ClosingNew(_, file) => Operation::Close { file: *file },
            Phase::RemovingNew(rotation) => Operation::Remove {
                path: new(rotation),
            },
        })
    }

    /// What became of the operation that was out.
    ///
    /// # Errors
    /// If what is on the disk is not known any more: nothing may be believed that was not durable.
    pub(crate) fn done(
        &mut self,
        now: Duration,
        token: u64,
        result: Result<Outcome, DiskError>,
    ) -> Result<(), DiskError> {
        if self.out != Some(token) {
            return Ok(());
        }
        self.out = None;
        let phase = std::mem::replace(&mut self.phase, Phase::Idle);
        let result = match (&phase, result) {
            (Phase::Syncing(_), Err(_)) if planted(Fault::SyncFailureIgnored) => Ok(Outcome::Done),
            (_, result) => result,
        };
        self.phase = match result {
            Ok(outcome) => self.after(phase, outcome),
            Err(error) => self.after_error(now, phase, error)?,
        };
        Ok(())
    }

    fn after(&mut self, phase: Phase, outcome: Outcome) -> Phase {
        match phase {
            Phase::Writing(frame) => {
                self.full = false;
                Phase::Syncing(frame)
            }
            Phase::Syncing(frame) => {
                self.frame += 1;
                self.file.end += frame.bytes.len() as u64;
                self.durable = frame.part;
                Phase::Idle
            }
            Phase::Creating(rotation) => match outcome {
                Outcome::File(file) => Phase::Filling(rotation, file),
                other => unreachable!("creating gives a file, not {other:?}"),
            },
            Phase::Filling(rotation, file) => Phase::SyncingNew(rotation, file),
            Phase::SyncingNew(rotation, file) => Phase::Renaming(rotation, file),
            Phase::Renaming(rotation, file) => Phase::SyncingDirectory(rotation, file),
            Phase::SyncingDirectory(rotation, file) => {
                self.durable = rotation.part;
                let new = OpenFile {
                    id: file,
                    number: rotation.header.number,
                    salt: rotation.header.salt,
                    end: rotation.head.len() as u64,
                };
                self.frame = 1;
                Phase::ClosingOld(std::mem::replace(&mut self.file, new))
            }
            Phase::ClosingOld(old) => Phase::RemovingOld(old.number),
            Phase::RemovingOld(_) => Phase::Idle,
            Phase::ClosingNew(rotation, _) => Phase::RemovingNew(rotation),
            Phase::RemovingNew(rotation) => self.old_file(rotation),
            Phase::Idle | Phase::Waiting(..) => unreachable!("no operation was out"),
        }
    }

    /// The new file found no space. What it was to have goes to the old one, if that is of use.
    fn old_file(&mut self, rotation: Rotation) -> Phase {
        if rotation.why == Rotate::Compact {
            let later = std::mem::take(&mut self.gathered);
            self.gathered = rotation.held_back;
            self.gathered.append(&later);
        }
        self.rotate = Some(self.rotate.unwrap_or(rotation.why));
        Phase::Idle
    }

    fn after_error(
        &mut self,
        now: Duration,
        phase: Phase,
        error: DiskError,
    ) -> Result<Phase, DiskError> {
        let full = error.kind == DiskErrorKind::Full;
        match phase {
            Phase::Writing(frame) if full => {
                self.full = true;
                Ok(Phase::Waiting(frame, now + FULL_RETRY))
            }
            Phase::Creating(rotation) if full => {
                self.rotate_at = now + FULL_RETRY;
                Ok(self.old_file(rotation))
            }
            Phase::Filling(rotation, file) if full => {
                self.rotate_at = now + FULL_RETRY;
                Ok(Phase::ClosingNew(rotation, file))
            }
            // The old file is of no use and does no harm: recovery takes the greatest number.
            Phase::ClosingOld(_) | Phase::RemovingOld(_) => Ok(Phase::Idle),
            _ => Err(error),
        }
    }
}
