//! The disk of the operating system.

use crate::disk::{Disk, DiskError, DiskErrorKind, FileId, Operation, Outcome};
use ::memory::{Buffer, Pool};
use bytes::Bytes;
use rustix::fs::FallocateFlags;
use rustix::io::{Errno, ReadWriteFlags};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

/// Slices that one `pwritev` takes (`UIO_MAXIOV`).
const SLICES_MAX: usize = 1024;
/// Buffers that lie ready for reading.
const POOL_KEPT_BYTES: usize = 32 << 20;

/// Files of the operating system, by plain system calls.
pub struct OsDisk {
    /// Guards the table of open files; held for a look-up only.
    files: RwLock<HashMap<FileId, Arc<OpenFile>>>,
    /// Gives ids; nothing is ordered by it.
    next_file: AtomicU64,
    pool: Pool,
}

struct OpenFile {
    file: File,
    path: PathBuf,
}

impl Default for OsDisk {
    fn default() -> Self {
        Self::new()
    }
}

impl OsDisk {
    /// A disk with a pool of its own for what is read.
    pub fn new() -> Self {
        Self::with_pool(Pool::new(POOL_KEPT_BYTES))
    }

    /// A disk that reads into buffers of `pool`.
    pub fn with_pool(pool: Pool) -> Self {
        Self {
            files: RwLock::default(),
            next_file: AtomicU64::new(1),
            pool,
        }
    }

    fn keep(&self, file: File, path: PathBuf) -> Outcome {
        let id = FileId(self.next_file.fetch_add(1, Ordering::Relaxed));
        let open = Arc::new(OpenFile { file, path });
        self.files
            .write()
            .expect("no user of the table panics in it")
            .insert(id, open);
        Outcome::File(id)
    }

    fn file(&self, id: FileId) -> io::Result<Arc<OpenFile>> {
        let files = self
            .files
            .read()
            .expect("no user of the table panics in it");
        let found = files.get(&id).cloned();
        found.ok_or_else(|| io::Error::other(format!("file {} is not open", id.0)))
    }

    fn perform(&self, operation: &Operation) -> io::Result<Outcome> {
        match operation {
            Operation::Create { path } => {
                let mut options = OpenOptions::new();
                let file = options.read(true).write(true).create_new(true).open(path)?;
                return Ok(self.keep(file, path.clone()));
            }
            Operation::Open { path } => {
                let file = OpenOptions::new().read(true).write(true).open(path)?;
                return Ok(self.keep(file, path.clone()));
            }
            Operation::Close { file } => {
                let mut files = self
                    .files
                    .write()
                    .expect("no user of the table panics in it");
                files.remove(file);
            }
            Operation::Write {
                file,
                position,
                bytes,
            } => write_all(&self.file(*file)?.file, *position, bytes)?,
            Operation::Read {
                file,
                position,
                bytes,
            } => {
                let mut buffer = self.pool.take(*bytes);
                let had = read_up_to(&self.file(*file)?.file, *position, &mut buffer)?;
                buffer.truncate(had);
                return Ok(Outcome::Bytes(buffer));
            }
            Operation::Allocate { file, bytes } => allocate(&self.file(*file)?.file, *bytes)?,
            Operation::SetLength { file, bytes } => self.file(*file)?.file.set_len(*bytes)?,
            Operation::Length { file } => {
                return Ok(Outcome::Length(self.file(*file)?.file.metadata()?.len()));
            }
            Operation::SyncData { file } => self.file(*file)?.file.sync_data()?,
            Operation::SyncDirectory { path } => File::open(path)?.sync_all()?,
            Operation::CreateDirectory { path } => match std::fs::create_dir(path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
                other => other?,
            },
            Operation::List { path } => return Ok(Outcome::Names(list(path)?)),
            Operation::Rename { from, to } => std::fs::rename(from, to)?,
            Operation::Remove { path } => std::fs::remove_file(path)?,
            Operation::RemoveDirectory { path } => std::fs::remove_dir(path)?,
        }
        Ok(Outcome::Done)
    }

    /// What was tried, for a message.
    fn attempt(&self, operation: &Operation) -> String {
        let path = |file: &FileId| match self.file(*file) {
            Ok(open) => open.path.display().to_string(),
            Err(_) => format!("file {}", file.0),
        };
        operation.describe(path)
    }

    fn error(&self, operation: &Operation, source: io::Error) -> DiskError {
        DiskError {
            kind: kind_of(&source),
            attempt: self.attempt(operation),
            source,
        }
    }
}

fn kind_of(error: &io::Error) -> DiskErrorKind {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOSPC | Errno::DQUOT) => DiskErrorKind::Full,
        Some(Errno::NOENT) => DiskErrorKind::NotFound,
        Some(Errno::EXIST) => DiskErrorKind::Exists,
        _ => DiskErrorKind::Failed,
    }
}

fn write_all(file: &File, position: u64, bytes: &[Bytes]) -> io::Result<()> {
    if let [one] = bytes {
        return file.write_all_at(one, position);
    }
    let mut position = position;
    for pieces in bytes.chunks(SLICES_MAX) {
        let mut slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
        let mut left = slices.as_mut_slice();
        IoSlice::advance_slices(&mut left, 0);
        while !left.is_empty() {
            match rustix::io::pwritev(file, left, position) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    position += count as u64;
                    IoSlice::advance_slices(&mut left, count);
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

/// Fills `buffer`; stops early at the end of the file only.
fn read_up_to(file: &File, position: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let mut had = 0;
    while had < buffer.len() {
        match file.read_at(&mut buffer[had..], position + had as u64) {
            Ok(0) => break,
            Ok(count) => had += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(had)
}

fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes) {
        Ok(()) => Ok(()),
        // Some file systems cannot: the length is all that is needed.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) if file.metadata()?.len() < bytes => {
            file.set_len(bytes)
        }
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn list(path: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(path)? {
        // Names that are not UTF-8 are none of ours.
        if let Ok(name) = entry?.file_name().into_string() {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

impl Disk for OsDisk {
    fn execute(&self, operation: Operation) -> Result<Outcome, DiskError> {
        self.perform(&operation)
            .map_err(|source| self.error(&operation, source))
    }

    fn execute_without_waiting(
        &self,
        operation: Operation,
    ) -> Result<Result<Outcome, DiskError>, Operation> {
        let Operation::Read {
            file,
            position,
            bytes,
        } = operation
        else {
            return Err(operation);
        };
        let Ok(open) = self.file(file) else {
            return Err(operation);
        };
        let mut buffer: Buffer = self.pool.take(bytes);
        let mut had = 0;
        // A short count means the end of the file or of what is cached: the
        // next call tells which.
        while had < bytes {
            let mut slice = [IoSliceMut::new(&mut buffer[had..])];
            let at = position + had as u64;
            match rustix::io::preadv2(&open.file, &mut slice, at, ReadWriteFlags::NOWAIT) {
                Ok(0) => break,
                Ok(count) => had += count,
                Err(_) => return Err(operation),
            }
        }
        buffer.truncate(had);
        Ok(Ok(Outcome::Bytes(buffer)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(disk: &OsDisk, path: PathBuf) -> FileId {
        match disk.execute(Operation::Create { path }).unwrap() {
            Outcome::File(file) => file,
            other => panic!("{other:?}"),
        }
    }

    fn read(disk: &OsDisk, file: FileId, position: u64, bytes: usize) -> Buffer {
        let read = Operation::Read {
            file,
            position,
            bytes,
        };
        let outcome = match disk.execute_without_waiting(read) {
            Ok(outcome) => outcome,
            Err(read) => disk.execute(read),
        };
        match outcome.unwrap() {
            Outcome::Bytes(buffer) => buffer,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn pieces_are_written_one_behind_the_other_and_read_up_to_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let disk = OsDisk::new();
        let file = open(&disk, directory.path().join("a"));
        let mut bytes: Vec<Bytes> = (0..3000u32)
            .map(|i| Bytes::copy_from_slice(&i.to_le_bytes()))
            .collect();
        bytes.insert(1, Bytes::new());
        let write = Operation::Write {
            file,
            position: 5,
            bytes: bytes.clone(),
        };
        disk.execute(write).unwrap();
        let all = bytes.concat();
        assert_eq!(&read(&disk, file, 5, 100_000)[..], &all[..]);
        assert_eq!(&read(&disk, file, 9, 4)[..], &1u32.to_le_bytes());
        assert!(read(&disk, file, 1 << 30, 10).is_empty());
        disk.execute(Operation::SyncData { file }).unwrap();
    }

    #[test]
    fn errors_have_a_kind_and_name_the_path() {
        let directory = tempfile::tempdir().unwrap();
        let disk = OsDisk::new();
        let path = directory.path().join("a");
        let error = disk
            .execute(Operation::Open { path: path.clone() })
            .unwrap_err();
        assert_eq!(error.kind, DiskErrorKind::NotFound);
        assert!(error.to_string().contains(path.to_str().unwrap()));
        open(&disk, path.clone());
        let error = disk.execute(Operation::Create { path }).unwrap_err();
        assert_eq!(error.kind, DiskErrorKind::Exists);
        let path = directory.path().to_owned();
        match disk.execute(Operation::List { path }).unwrap() {
            Outcome::Names(names) => assert_eq!(names, ["a"]),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_full_device_is_told_from_a_broken_one() {
        let disk = OsDisk::new();
        let path = PathBuf::from("/dev/full");
        let Ok(Outcome::File(file)) = disk.execute(Operation::Open { path }) else {
            return; // Not everywhere is there such a device.
        };
        let write = Operation::Write {
            file,
            position: 0,
            bytes: vec![Bytes::from_static(b"x")],
        };
        assert_eq!(disk.execute(write).unwrap_err().kind, DiskErrorKind::Full);
    }

    #[test]
    fn allocation_lengthens_and_never_shortens() {
        let directory = tempfile::tempdir().unwrap();
        let disk = OsDisk::new();
        let file = open(&disk, directory.path().join("a"));
        for bytes in [10_000, 100] {
            disk.execute(Operation::Allocate { file, bytes }).unwrap();
            match disk.execute(Operation::Length { file }).unwrap() {
                Outcome::Length(length) => assert_eq!(length, 10_000),
                other => panic!("{other:?}"),
            }
        }
    }
}
