//! The disk of the operating system.

use crate::disk::{DIRECT_ALIGNMENT, Disk, DiskError, DiskErrorKind, FileId, Operation, Outcome};
use ::memory::Pool;
use bytes::Bytes;
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::{Errno, ReadWriteFlags};
use std::collections::HashMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, RwLock};

/// Slices that one `pwritev` takes (`UIO_MAXIOV`).
const SLICES_MAX: usize = 1024;
/// Buffers that lie ready for reading.
const POOL_KEPT_BYTES: usize = 32 << 20;
/// The most bytes that are copied to where a direct write can take them from.
const REALIGNED_BYTES_MAX: usize = 1 << 20;

/// Files of the operating system, by plain system calls. What it makes is for its owner alone:
/// files have the mode 0600, directories 0700.
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
    /// The same file, past the page cache, once that was asked for; `None` if
    /// the file system has refused.
    direct: OnceLock<Option<File>>,
    /// Whether a direct write was refused. Set only; nothing is ordered by it.
    direct_refused: AtomicBool,
}

impl OpenFile {
    /// The file for direct writes, if there is one.
    fn direct(&self) -> Option<&File> {
        if self.direct_refused.load(Ordering::Relaxed) {
            return None;
        }
        let open = || {
            // By its descriptor: the name may be another file's by now.
            let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            let flags = OFlags::WRONLY | OFlags::DIRECT | OFlags::CLOEXEC;
            rustix::fs::open(path, flags, Mode::empty()).ok()
        };
        self.direct.get_or_init(|| open().map(File::from)).as_ref()
    }
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
        let open = Arc::new(OpenFile {
            file,
            path,
            direct: OnceLock::new(),
            direct_refused: AtomicBool::new(false),
        });
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
                options.read(true).write(true).create_new(true).mode(0o600);
                let file = options.open(path)?;
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
            Operation::WriteDirect {
                file,
                position,
                bytes,
            } => {
                let open = self.file(*file)?;
                if !self.write_direct(&open, *position, bytes)? {
                    write_all(&open.file, *position, bytes)?;
                }
            }
            Operation::Read {
                file,
                position,
                bytes,
            } => {
                let open = self.file(*file)?;
                return self.read_places(&[(*position, *bytes)], |position, buffer| {
                    read_up_to(&open.file, position, buffer)
                });
            }
            Operation::ReadPlaces { file, places } => {
                let open = self.file(*file)?;
                return self.read_places(places, |position, buffer| {
                    read_up_to(&open.file, position, buffer)
                });
            }
            Operation::Allocate { file, bytes } => allocate(&self.file(*file)?.file, *bytes)?,
            Operation::SetLength { file, bytes } => self.file(*file)?.file.set_len(*bytes)?,
            Operation::Length { file } => {
                return Ok(Outcome::Length(self.file(*file)?.file.metadata()?.len()));
            }
            Operation::SyncData { file } => self.file(*file)?.file.sync_data()?,
            Operation::SyncDirectory { path } => File::open(path)?.sync_all()?,
            Operation::CreateDirectory { path } => match DirBuilder::new().mode(0o700).create(path)
            {
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

    /// Reads places one behind the other, each by `read`, which says how many
    /// bytes it has had. The first that has fewer than it should is the last.
    fn read_places<E>(
        &self,
        places: &[(u64, usize)],
        read: impl Fn(u64, &mut [u8]) -> Result<usize, E>,
    ) -> Result<Outcome, E> {
        let mut buffer = self.pool.take(places.iter().map(|(_, bytes)| bytes).sum());
        let mut had = 0;
        for (position, bytes) in places {
            let count = read(*position, &mut buffer[had..had + bytes])?;
            had += count;
            if count < *bytes {
                break;
            }
        }
        buffer.truncate(had);
        Ok(Outcome::Bytes(buffer))
    }

    /// Writes past the page cache. False if that cannot be done here: nothing
    /// is known then of what was written.
    fn write_direct(&self, open: &OpenFile, position: u64, bytes: &[Bytes]) -> io::Result<bool> {
        let total: usize = bytes.iter().map(Bytes::len).sum();
        let aligned = position | total as u64;
        if !aligned.is_multiple_of(DIRECT_ALIGNMENT) {
            return Ok(false);
        }
        // What lies right is written from where it is, the rest from a copy.
        let right =
            |piece: &&Bytes| (piece.as_ptr().addr() as u64).is_multiple_of(DIRECT_ALIGNMENT);
        let first = bytes.first().filter(right);
        let kept = first.map_or(0, |first| {
            first.len() - first.len() % DIRECT_ALIGNMENT as usize
        });
        if total - kept > REALIGNED_BYTES_MAX {
            return Ok(false);
        }
        let Some(file) = open.direct() else {
            return Ok(false);
        };
        let mut rest = self.pool.take(total - kept);
        let (mut at, mut skip) = (0, kept);
        for piece in bytes {
            let skipped = skip.min(piece.len());
            skip -= skipped;
            let piece = &piece[skipped..];
            rest[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        }
        let kept = first.map_or(&[][..], |first| &first[..kept]);
        let written = write_slices(
            file,
            position,
            &mut [IoSlice::new(kept), IoSlice::new(&rest)],
        );
        match written {
            Ok(()) => Ok(true),
            Err(error) if is_refusal(&error) => {
                open.direct_refused.store(true, Ordering::Relaxed);
                Ok(false)
            }
            Err(error) => Err(error),
        }
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
    trace::passes!("written to the page cache");
    if let [one] = bytes {
        return file.write_all_at(one, position);
    }
    let mut position = position;
    for pieces in bytes.chunks(SLICES_MAX) {
        let mut slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
        write_slices(file, position, &mut slices)?;
        position += pieces.iter().map(|piece| piece.len() as u64).sum::<u64>();
    }
    Ok(())
}

fn write_slices(file: &File, position: u64, slices: &mut [IoSlice<'_>]) -> io::Result<()> {
    let (mut position, mut left) = (position, slices);
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
    Ok(())
}

/// Whether a file system says so that it does not write directly, or not from
/// such places.
fn is_refusal(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(code, Some(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS))
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

/// Fills `buffer` if that takes no waiting; stops early at the end of the file only.
fn read_what_is_cached(file: &File, position: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
    let mut had = 0;
    // A short count means the end of the file or of what is cached: the next
    // call tells which.
    while had < buffer.len() {
        let mut slice = [IoSliceMut::new(&mut buffer[had..])];
        let at = position + had as u64;
        match rustix::io::preadv2(file, &mut slice, at, ReadWriteFlags::NOWAIT)? {
            0 => break,
            count => had += count,
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
        let one;
        let (file, places) = match &operation {
            Operation::Read {
                file,
                position,
                bytes,
            } => {
                one = [(*position, *bytes)];
                (*file, &one[..])
            }
            Operation::ReadPlaces { file, places } => (*file, &places[..]),
            _ => return Err(operation),
        };
        let Ok(open) = self.file(file) else {
            return Err(operation);
        };
        let outcome = self.read_places(places, |position, buffer| {
            read_what_is_cached(&open.file, position, buffer)
        });
        match outcome {
            Ok(outcome) => Ok(Ok(outcome)),
            Err(_) => Err(operation),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::memory::Buffer;

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

    /// Bytes whose memory begins `behind` a place that direct writes may use.
    fn placed(behind: usize, bytes: Vec<u8>) -> Bytes {
        let mut buffer = Buffer::zeroed(behind + bytes.len());
        buffer[behind..].copy_from_slice(&bytes);
        buffer.freeze().slice(behind..)
    }

    #[test]
    fn what_is_written_directly_is_read_whatever_its_pieces_are_aligned_to() {
        const BLOCK: usize = DIRECT_ALIGNMENT as usize;
        let numbered = |count: usize| (0..count).map(|i| (i * 7 / 3) as u8).collect::<Vec<u8>>();
        let pieces = |bytes: &[u8], behind: usize, lengths: &[usize]| {
            let mut from = 0;
            let mut piece = |length: &usize| {
                from += length;
                placed(behind, bytes[from - length..from].to_vec())
            };
            lengths.iter().map(&mut piece).collect::<Vec<_>>()
        };
        // Not every directory is on a file system that can.
        for directory in [tempfile::tempdir(), tempfile::tempdir_in("/dev/shm")] {
            let Ok(directory) = directory else {
                continue;
            };
            let disk = OsDisk::new();
            let file = open(&disk, directory.path().join("a"));
            let mut expected = vec![0; 0];
            for (position, behind, lengths) in [
                (0, 0, &[4 * BLOCK][..]),
                (4 * BLOCK, 0, &[BLOCK + 100, BLOCK - 100]),
                (6 * BLOCK, 8, &[2 * BLOCK]),
                (8 * BLOCK, 0, &[10, 0, 30, BLOCK - 40]),
                // Not aligned at all, and larger than what is copied for it.
                (9 * BLOCK + 5, 3, &[70, 1]),
                (10 * BLOCK, 1, &[2 * REALIGNED_BYTES_MAX]),
                // Over what plain writes have left in the page cache.
                (9 * BLOCK, 0, &[BLOCK]),
            ] {
                let bytes = numbered(lengths.iter().sum());
                let end = position + bytes.len();
                expected.resize(expected.len().max(end), 0);
                expected[position..end].copy_from_slice(&bytes);
                let write = Operation::WriteDirect {
                    file,
                    position: position as u64,
                    bytes: pieces(&bytes, behind, lengths),
                };
                assert!(write.blocks());
                disk.execute(write).unwrap();
                assert!(read(&disk, file, 0, 1 << 30)[..] == expected[..]);
            }
            disk.execute(Operation::SyncData { file }).unwrap();
            assert!(read(&disk, file, 0, 1 << 30)[..] == expected[..]);
        }
    }

    #[test]
    fn what_cannot_be_written_directly_is_written_all_the_same() {
        let disk = OsDisk::new();
        let path = PathBuf::from("/dev/null");
        let Ok(Outcome::File(file)) = disk.execute(Operation::Open { path }) else {
            return; // Not everywhere is there such a device.
        };
        let open = disk.file(file).unwrap();
        open.direct.set(None).unwrap();
        let bytes = vec![placed(0, vec![1; DIRECT_ALIGNMENT as usize])];
        assert!(!disk.write_direct(&open, 0, &bytes).unwrap());
        let position = 0;
        let write = Operation::WriteDirect {
            file,
            position,
            bytes,
        };
        disk.execute(write).unwrap();
        assert!(is_refusal(&Errno::INVAL.into()) && !is_refusal(&Errno::IO.into()));
    }

    #[test]
    fn places_are_read_one_behind_the_other_until_the_file_ends() {
        let directory = tempfile::tempdir().unwrap();
        let disk = OsDisk::new();
        let file = open(&disk, directory.path().join("a"));
        let bytes: Vec<u8> = (0..10_000).map(|i| (i / 7) as u8).collect();
        let write = Operation::Write {
            file,
            position: 0,
            bytes: vec![Bytes::from(bytes.clone())],
        };
        disk.execute(write).unwrap();
        for (places, expected) in [
            (
                vec![(5000, 100), (0, 7), (9000, 1000)],
                [&bytes[5000..5100], &bytes[..7], &bytes[9000..]].concat(),
            ),
            (vec![(9990, 20), (0, 7)], bytes[9990..].to_vec()),
            (vec![], vec![]),
        ] {
            let read = || Operation::ReadPlaces {
                file,
                places: places.clone(),
            };
            for outcome in [
                disk.execute(read()),
                disk.execute_without_waiting(read())
                    .unwrap_or_else(|read| disk.execute(read)),
            ] {
                match outcome.unwrap() {
                    Outcome::Bytes(buffer) => assert_eq!(buffer[..], expected[..]),
                    other => panic!("{other:?}"),
                }
            }
        }
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
