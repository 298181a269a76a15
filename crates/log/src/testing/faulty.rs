//! A disk in memory that forgets what was not synced, and fails as told.
//!
//! It keeps, for each file, what programs see (the page cache) and what would
//! survive a power loss, with the writes between the two in order; the same
//! for names in directories. A power loss keeps what was synced and any part
//! of the rest: writes and names survive one without the other, in any
//! choice, torn at any byte.

mod state;

use crate::disk::{Disk, DiskError, DiskErrorKind, FileId, Operation, Outcome};
use bytes::Bytes;
use state::State;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

/// How one operation goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It fails, nothing of it is done. A sync that fails so also makes the
    /// disk forget that what it covered was still to be written: later syncs
    /// do not cover it, as on Linux.
    Error,
    /// A write fails after so many bytes.
    Short(u64),
    /// There is no space left, after so many bytes of a write.
    Full(u64),
    /// A sync says that it is done, and does nothing.
    Lie,
    /// It is done, then a bit of what it wrote (or of the synced file) is
    /// flipped on the medium; which one, follows from this number. A read
    /// gives a flipped bit, once.
    Flip(u64),
    /// The machine or the process stops here, after so many bytes of a write.
    /// Every later operation fails, until [`FaultyDisk::kill`] or
    /// [`FaultyDisk::power_loss`].
    Stop(u64),
}

/// What survives a power loss besides what was synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Survival {
    /// Nothing.
    Nothing,
    /// All of it.
    All,
    /// Of each file only what was written last, and all names.
    Last,
    /// Names, no content.
    Names,
    /// What was written to files whose name ends so, and all names.
    Files(&'static str),
    /// Any part, chosen by this seed; some writes are torn.
    Some(u64),
}

/// An operation that was asked for, by its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Traced {
    /// Its name: `write`, `sync data`, ….
    pub what: &'static str,
    /// The file or directory.
    pub path: PathBuf,
    /// Where in the file, bytes.
    pub position: u64,
    /// The length of what was written, read or allocated.
    pub bytes: u64,
}

/// The disk. Operations are counted from 0.
#[derive(Debug)]
pub struct FaultyDisk {
    /// Guards everything; held for the length of an operation.
    inner: Mutex<Inner>,
}

#[derive(Debug, Clone, Default)]
struct Inner {
    state: State,
    faults: BTreeMap<u64, Fault>,
    trace: Vec<Traced>,
    stopped: bool,
    /// How many bytes fit.
    space: Option<u64>,
    flipped: Vec<(PathBuf, u64)>,
}

impl Default for FaultyDisk {
    fn default() -> Self {
        Self::new()
    }
}

impl FaultyDisk {
    /// An empty disk with a root directory `/`.
    pub fn new() -> Self {
        Self {
            inner: Mutex::default(),
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no user of the disk panics in it")
    }

    /// Another disk with the same content, to be tried things on. Planned
    /// faults are not taken over.
    pub fn fork(&self) -> Self {
        let mut copy = self.inner().clone();
        copy.faults.clear();
        Self {
            inner: Mutex::new(copy),
        }
    }

    /// Lets the operation of this number go wrong.
    pub fn fail_at(&self, operation: u64, fault: Fault) {
        self.inner().faults.insert(operation, fault);
    }

    /// Forgets the faults that are planned and have not come.
    pub fn clear_faults(&self) {
        self.inner().faults.clear();
    }

    /// How many operations have been asked for.
    pub fn operation_count(&self) -> u64 {
        self.inner().trace.len() as u64
    }

    /// The operations that have been asked for.
    pub fn trace(&self) -> Vec<Traced> {
        self.inner().trace.clone()
    }

    /// Whether a fault stopped the machine.
    pub fn is_stopped(&self) -> bool {
        self.inner().stopped
    }

    /// Limits the sum of the files' lengths; writes beyond find no space.
    pub fn set_space(&self, bytes: Option<u64>) {
        self.inner().space = bytes;
    }

    /// The process dies: its files are closed, what it wrote stays.
    pub fn kill(&self) {
        let mut inner = self.inner();
        inner.state.close_all();
        inner.stopped = false;
        inner.faults.clear();
    }

    /// The machine loses power and starts again.
    pub fn power_loss(&self, survival: Survival) {
        let mut inner = self.inner();
        inner.state.close_all();
        inner.state.lose_power(survival);
        inner.stopped = false;
        inner.faults.clear();
    }

    /// Flips a bit of a file, on the medium and in the cache.
    ///
    /// # Panics
    /// If the file is not there or is shorter.
    pub fn flip_bit(&self, path: &Path, bit: u64) {
        let mut inner = self.inner();
        assert!(
            inner.state.flip(path, bit),
            "{} has no bit {bit}",
            path.display()
        );
        inner.flipped.push((path.to_owned(), bit));
    }

    /// The bits that were flipped: file, and bit in it.
    pub fn flipped(&self) -> Vec<(PathBuf, u64)> {
        self.inner().flipped.clone()
    }

    /// What a file holds, as programs see it; `None` if there is none.
    pub fn content(&self, path: &Path) -> Option<Vec<u8>> {
        self.inner().state.content(path)
    }

    /// The path of an open file.
    pub fn path_of(&self, file: FileId) -> Option<PathBuf> {
        self.inner().state.path_of(file)
    }

    /// The paths of all open files, each as often as it is open.
    pub fn open_paths(&self) -> Vec<PathBuf> {
        self.inner().state.open_paths()
    }

    /// All files, as programs see them.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.inner().state.paths()
    }

    /// Carries out an operation of which only the first `bytes` bytes are
    /// done, if it is a write, or nothing, if it is not.
    pub fn execute_in_part(&self, operation: &Operation, bytes: u64) {
        let mut inner = self.inner();
        if let Operation::Write {
            file,
            position,
            bytes: pieces,
        } = operation
        {
            let kept = first_bytes(pieces, bytes);
            // That the file may not be open is the operation's own failure.
            let _ = inner.state.write(*file, *position, kept);
        }
    }
}

fn first_bytes(pieces: &[Bytes], count: u64) -> Bytes {
    let mut all = pieces.concat();
    all.truncate(usize::try_from(count).unwrap_or(usize::MAX));
    Bytes::from(all)
}

/// Why the model cannot do something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refusal {
    NotFound,
    Exists,
    NotOpen,
    NotEmpty,
}

impl Inner {
    fn error(&self, operation: &Operation, kind: DiskErrorKind, text: &str) -> DiskError {
        let name = |file: &FileId| match self.state.path_of(*file) {
            Some(path) => path.display().to_string(),
            None => format!("file {}", file.0),
        };
        DiskError {
            kind,
            attempt: operation.describe(name),
            source: io::Error::other(text.to_owned()),
        }
    }

    fn traced(&self, operation: &Operation) -> Traced {
        let of_file = |file: &FileId| self.state.path_of(*file).unwrap_or_default();
        let mut traced = Traced {
            what: "",
            path: PathBuf::new(),
            position: 0,
            bytes: 0,
        };
        (traced.what, traced.path) = match operation {
            Operation::Create { path } => ("create", path.clone()),
            Operation::Open { path } => ("open", path.clone()),
            Operation::Close { file } => ("close", of_file(file)),
            Operation::Write { file, .. } => ("write", of_file(file)),
            Operation::WriteDirect { file, .. } => ("write direct", of_file(file)),
            Operation::Read { file, .. } | Operation::ReadPlaces { file, .. } => {
                ("read", of_file(file))
            }
            Operation::Allocate { file, .. } => ("allocate", of_file(file)),
            Operation::SetLength { file, .. } => ("set length", of_file(file)),
            Operation::Length { file } => ("length", of_file(file)),
            Operation::SyncData { file } => ("sync data", of_file(file)),
            Operation::SyncDirectory { path } => ("sync directory", path.clone()),
            Operation::CreateDirectory { path } => ("create directory", path.clone()),
            Operation::List { path } => ("list", path.clone()),
            Operation::Rename { to, .. } => ("rename", to.clone()),
            Operation::Remove { path } => ("remove", path.clone()),
            Operation::RemoveDirectory { path } => ("remove directory", path.clone()),
        };
        match operation {
            Operation::Write {
                position, bytes, ..
            }
            | Operation::WriteDirect {
                position, bytes, ..
            } => {
                traced.position = *position;
                traced.bytes = bytes.iter().map(|piece| piece.len() as u64).sum();
            }
            Operation::Read {
                position, bytes, ..
            } => (traced.position, traced.bytes) = (*position, *bytes as u64),
            Operation::ReadPlaces { places, .. } => {
                traced.position = places.first().map_or(0, |(position, _)| *position);
                traced.bytes = places.iter().map(|(_, bytes)| *bytes as u64).sum();
            }
            Operation::Allocate { bytes, .. } | Operation::SetLength { bytes, .. } => {
                traced.bytes = *bytes;
            }
            _ => {}
        }
        traced
    }

    fn execute(&mut self, operation: &Operation) -> Result<Outcome, DiskError> {
        let number = self.trace.len() as u64;
        let traced = self.traced(operation);
        self.trace.push(traced);
        if self.stopped {
            return Err(self.error(operation, DiskErrorKind::Failed, "the machine has stopped"));
        }
        let fault = self.faults.remove(&number);
        match fault {
            None => self.perform(operation),
            Some(Fault::Flip(which)) => self.perform_and_flip(operation, which),
            Some(Fault::Lie) if is_sync(operation) => Ok(Outcome::Done),
            Some(Fault::Lie) => self.perform(operation),
            Some(Fault::Error) => {
                if let Operation::SyncData { file } = operation {
                    self.state.doom(*file);
                }
                Err(self.error(operation, DiskErrorKind::Failed, "input/output error"))
            }
            Some(Fault::Short(bytes)) => {
                self.write_in_part(operation, bytes);
                Err(self.error(operation, DiskErrorKind::Failed, "input/output error"))
            }
            Some(Fault::Full(bytes)) => {
                self.write_in_part(operation, bytes);
                Err(self.error(operation, DiskErrorKind::Full, "no space left on device"))
            }
            Some(Fault::Stop(bytes)) => {
                self.write_in_part(operation, bytes);
                self.stopped = true;
                Err(self.error(operation, DiskErrorKind::Failed, "the machine has stopped"))
            }
        }
    }

    fn write_in_part(&mut self, operation: &Operation, count: u64) {
        if let Operation::Write {
            file,
            position,
            bytes,
        }
        | Operation::WriteDirect {
            file,
            position,
            bytes,
        } = operation
        {
            let kept = first_bytes(bytes, count);
            if !kept.is_empty() {
                // That the file may not be open is the operation's own failure.
                let _ = self.state.write(*file, *position, kept);
            }
        }
    }

    fn perform_and_flip(
        &mut self,
        operation: &Operation,
        which: u64,
    ) -> Result<Outcome, DiskError> {
        let mut outcome = self.perform(operation)?;
        if let Outcome::Bytes(buffer) = &mut outcome {
            if !buffer.is_empty() {
                let bit = which % (buffer.len() as u64 * 8);
                buffer[(bit / 8) as usize] ^= 1 << (bit % 8);
            }
            return Ok(outcome);
        }
        let range = match operation {
            Operation::Write {
                file,
                position,
                bytes,
            }
            | Operation::WriteDirect {
                file,
                position,
                bytes,
            } => {
                let count: usize = bytes.iter().map(Bytes::len).sum();
                Some((*file, *position, count as u64))
            }
            Operation::SyncData { file } => Some((*file, 0, self.state.length(*file).unwrap_or(0))),
            _ => None,
        };
        if let Some((file, start, count)) = range
            && count > 0
            && let Some(path) = self.state.path_of(file)
        {
            let bit = start * 8 + which % (count * 8);
            if self.state.flip(&path, bit) {
                self.flipped.push((path, bit));
            }
        }
        Ok(outcome)
    }

    fn perform(&mut self, operation: &Operation) -> Result<Outcome, DiskError> {
        if let Some(full) = self.no_space(operation) {
            self.write_in_part(operation, full);
            return Err(self.error(operation, DiskErrorKind::Full, "no space left on device"));
        }
        self.state
            .perform(operation)
            .map_err(|refusal| match refusal {
                Refusal::NotFound => self.error(operation, DiskErrorKind::NotFound, "no such file"),
                Refusal::Exists => self.error(operation, DiskErrorKind::Exists, "file exists"),
                Refusal::NotOpen => {
                    self.error(operation, DiskErrorKind::Failed, "file is not open")
                }
                Refusal::NotEmpty => self.error(operation, DiskErrorKind::Failed, "not empty"),
            })
    }

    /// If the operation needs more space than there is: how many bytes of it fit.
    fn no_space(&self, operation: &Operation) -> Option<u64> {
        let space = self.space?;
        let (file, position, end) = match operation {
            Operation::Write {
                file,
                position,
                bytes,
            }
            | Operation::WriteDirect {
                file,
                position,
                bytes,
            } => {
                let count: usize = bytes.iter().map(Bytes::len).sum();
                (*file, *position, position + count as u64)
            }
            Operation::Allocate { file, bytes } => (*file, *bytes, *bytes),
            _ => return None,
        };
        let length = self.state.length(file)?;
        let used = self.state.used();
        let free = space.saturating_sub(used);
        (end > length && end - length > free).then(|| (length + free).saturating_sub(position))
    }
}

fn is_sync(operation: &Operation) -> bool {
    matches!(
        operation,
        Operation::SyncData { .. } | Operation::SyncDirectory { .. }
    )
}

impl Disk for FaultyDisk {
    fn execute(&self, operation: Operation) -> Result<Outcome, DiskError> {
        self.inner().execute(&operation)
    }
}

#[cfg(test)]
mod tests;
