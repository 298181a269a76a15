//! Files read and written on the calling thread, for opening a partition.

use crate::disk::{Disk, DiskError, DiskErrorKind, FileId, Operation, Outcome};
use ::memory::Buffer;
use bytes::Bytes;
use std::path::{Path, PathBuf};

/// Least bytes that a [`Window`] reads at once.
const WINDOW_BYTES: usize = 256 << 10;

/// A disk, with one method an operation.
#[derive(Clone, Copy)]
pub(crate) struct Blocking<'a>(pub(crate) &'a dyn Disk);

type Done<T> = Result<T, DiskError>;

impl Blocking<'_> {
    pub(crate) fn open(self, path: PathBuf) -> Done<FileId> {
        self.file(Operation::Open { path })
    }

    pub(crate) fn create(self, path: PathBuf) -> Done<FileId> {
        self.file(Operation::Create { path })
    }

    fn file(self, operation: Operation) -> Done<FileId> {
        match self.0.execute(operation)? {
            Outcome::File(file) => Ok(file),
            other => unreachable!("opening gives a file, not {other:?}"),
        }
    }

    pub(crate) fn read(self, file: FileId, position: u64, bytes: usize) -> Done<Buffer> {
        let read = Operation::Read {
            file,
            position,
            bytes,
        };
        match self.0.execute(read)? {
            Outcome::Bytes(buffer) => Ok(buffer),
            other => unreachable!("reading gives bytes, not {other:?}"),
        }
    }

    pub(crate) fn length(self, file: FileId) -> Done<u64> {
        match self.0.execute(Operation::Length { file })? {
            Outcome::Length(bytes) => Ok(bytes),
            other => unreachable!("asking the length gives it, not {other:?}"),
        }
    }

    pub(crate) fn list(self, path: &Path) -> Done<Vec<String>> {
        let path = path.to_owned();
        match self.0.execute(Operation::List { path })? {
            Outcome::Names(names) => Ok(names),
            other => unreachable!("listing gives names, not {other:?}"),
        }
    }

    pub(crate) fn write(self, file: FileId, position: u64, bytes: Bytes) -> Done<()> {
        let bytes = vec![bytes];
        self.done(Operation::Write {
            file,
            position,
            bytes,
        })
    }

    pub(crate) fn set_length(self, file: FileId, bytes: u64) -> Done<()> {
        self.done(Operation::SetLength { file, bytes })
    }

    pub(crate) fn sync(self, file: FileId) -> Done<()> {
        self.done(Operation::SyncData { file })
    }

    pub(crate) fn sync_directory(self, path: &Path) -> Done<()> {
        let path = path.to_owned();
        self.done(Operation::SyncDirectory { path })
    }

    pub(crate) fn create_directory(self, path: &Path) -> Done<()> {
        let path = path.to_owned();
        self.done(Operation::CreateDirectory { path })
    }

    pub(crate) fn close(self, file: FileId) -> Done<()> {
        self.done(Operation::Close { file })
    }

    /// Removes a file; that it is not there is no error.
    pub(crate) fn remove(self, path: PathBuf) -> Done<()> {
        missing_is_fine(self.done(Operation::Remove { path }))
    }

    /// Removes an empty directory; that it is not there is no error.
    pub(crate) fn remove_directory(self, path: PathBuf) -> Done<()> {
        missing_is_fine(self.done(Operation::RemoveDirectory { path }))
    }

    fn done(self, operation: Operation) -> Done<()> {
        self.0.execute(operation).map(|_| ())
    }
}

fn missing_is_fine(result: Done<()>) -> Done<()> {
    match result {
        Err(error) if error.kind == DiskErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// A file read front to back in large pieces, looked at in small ones.
pub(crate) struct Window<'a> {
    disk: Blocking<'a>,
    file: FileId,
    start: u64,
    bytes: Buffer,
    /// Bytes read from the disk so far.
    pub(crate) read_bytes: u64,
}

impl<'a> Window<'a> {
    pub(crate) fn new(disk: Blocking<'a>, file: FileId) -> Self {
        Self {
            disk,
            file,
            start: 0,
            bytes: Buffer::zeroed(0),
            read_bytes: 0,
        }
    }

    /// Forgets what was read, so that it is read anew.
    pub(crate) fn forget(&mut self) {
        self.bytes.truncate(0);
    }

    /// `count` bytes from `position` on; fewer at the end of the file only.
    pub(crate) fn bytes(&mut self, position: u64, count: usize) -> Done<&[u8]> {
        let held = self.start..self.start + self.bytes.len() as u64;
        if !held.contains(&position) || position + count as u64 > held.end {
            self.bytes = self
                .disk
                .read(self.file, position, count.max(WINDOW_BYTES))?;
            self.read_bytes += self.bytes.len() as u64;
            self.start = position;
        }
        let from = (position - self.start) as usize;
        let to = (from + count).min(self.bytes.len());
        Ok(&self.bytes[from..to])
    }
}
