//! The operating system's files, behind one small trait.

use ::memory::Buffer;
use bytes::Bytes;
use std::fmt;
use std::path::PathBuf;

/// What [`Operation::WriteDirect`] is aligned to where it is to be more than a
/// plain write: no device in use asks for more.
pub const DIRECT_ALIGNMENT: u64 = 4096;

/// An open file of a [`Disk`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u64);

/// Something to do with files; positions and lengths are in bytes. It owns what it needs, so that it can be done
/// now, on another thread, or by a ring of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(
    missing_docs,
    reason = "each variant has its line; the names of its fields say the rest"
)]
pub enum Operation {
    /// Makes and opens a file that must not exist → [`Outcome::File`].
    Create { path: PathBuf },
    /// Opens a file that must exist, for reading and writing → [`Outcome::File`].
    Open { path: PathBuf },
    /// Forgets an open file.
    Close { file: FileId },
    /// Writes all of `bytes` at `position`, one piece behind the other.
    Write {
        file: FileId,
        position: u64,
        bytes: Vec<Bytes>,
    },
    /// As `Write`, and promises no more; but it may go to the device at once,
    /// past what keeps files in memory: for bytes that nobody is about to
    /// read. Whoever cannot do so, for these bytes or at all, writes as `Write`
    /// does. Places and lengths that are multiples of [`DIRECT_ALIGNMENT`] can
    /// be written so by most.
    WriteDirect {
        file: FileId,
        position: u64,
        bytes: Vec<Bytes>,
    },
    /// Reads up to `bytes`; fewer only at the end of the file → [`Outcome::Bytes`].
    Read {
        file: FileId,
        position: u64,
        bytes: usize,
    },
    /// Reads several places of a file into one piece of memory, one behind the
    /// other; it ends where one of them meets the end of the file →
    /// [`Outcome::Bytes`].
    ReadPlaces {
        file: FileId,
        /// Where and how many bytes, each.
        places: Vec<(u64, usize)>,
    },
    /// Makes room up to `bytes`, which becomes the file's length if it was shorter.
    Allocate { file: FileId, bytes: u64 },
    /// Sets the file's length.
    SetLength { file: FileId, bytes: u64 },
    /// The file's length → [`Outcome::Length`].
    Length { file: FileId },
    /// Makes the file's content and length survive a power loss.
    SyncData { file: FileId },
    /// Makes the names in a directory survive a power loss.
    SyncDirectory { path: PathBuf },
    /// Makes a directory whose parent exists; it may exist itself.
    CreateDirectory { path: PathBuf },
    /// The names in a directory, sorted → [`Outcome::Names`].
    List { path: PathBuf },
    /// Gives a file another name, replacing what had it.
    Rename { from: PathBuf, to: PathBuf },
    /// Removes a file.
    Remove { path: PathBuf },
    /// Removes an empty directory.
    RemoveDirectory { path: PathBuf },
}

impl Operation {
    /// Whether it should be kept off a thread that others wait for. What does
    /// not block copies to or from the page cache, or changes memory only.
    pub fn blocks(&self) -> bool {
        !matches!(
            self,
            Self::Write { .. } | Self::Close { .. } | Self::Length { .. }
        )
    }

    /// Whether it needs a descriptor that is not open yet, if only for a moment.
    pub fn opens(&self) -> bool {
        matches!(
            self,
            Self::Create { .. }
                | Self::Open { .. }
                | Self::SyncDirectory { .. }
                | Self::List { .. }
        )
    }

    /// The same operation on `file`, if it is one on an open file.
    pub fn with_file(mut self, id: FileId) -> Self {
        match &mut self {
            Self::Close { file }
            | Self::Write { file, .. }
            | Self::WriteDirect { file, .. }
            | Self::Read { file, .. }
            | Self::ReadPlaces { file, .. }
            | Self::Allocate { file, .. }
            | Self::SetLength { file, .. }
            | Self::Length { file }
            | Self::SyncData { file } => *file = id,
            _ => {}
        }
        self
    }

    /// What it does, for a message; `path` names open files.
    pub fn describe(&self, path: impl Fn(&FileId) -> String) -> String {
        match self {
            Self::Create { path } => format!("creating {}", path.display()),
            Self::Open { path } => format!("opening {}", path.display()),
            Self::Close { file } => format!("closing {}", path(file)),
            Self::Write {
                file,
                position,
                bytes,
            }
            | Self::WriteDirect {
                file,
                position,
                bytes,
            } => {
                let count: usize = bytes.iter().map(Bytes::len).sum();
                format!("writing {count} bytes at {position} of {}", path(file))
            }
            Self::Read {
                file,
                position,
                bytes,
            } => format!("reading {bytes} bytes at {position} of {}", path(file)),
            Self::ReadPlaces { file, places } => {
                let bytes: usize = places.iter().map(|(_, bytes)| bytes).sum();
                let (count, path) = (places.len(), path(file));
                format!("reading {bytes} bytes at {count} places of {path}")
            }
            Self::Allocate { file, bytes } => format!("allocating {bytes} bytes of {}", path(file)),
            Self::SetLength { file, bytes } => format!("setting {} to {bytes} bytes", path(file)),
            Self::Length { file } => format!("asking the length of {}", path(file)),
            Self::SyncData { file } => format!("syncing {}", path(file)),
            Self::SyncDirectory { path } => format!("syncing directory {}", path.display()),
            Self::CreateDirectory { path } => format!("creating directory {}", path.display()),
            Self::List { path } => format!("listing {}", path.display()),
            Self::Rename { from, to } => {
                format!("renaming {} to {}", from.display(), to.display())
            }
            Self::Remove { path } => format!("removing {}", path.display()),
            Self::RemoveDirectory { path } => format!("removing directory {}", path.display()),
        }
    }
}

/// What an [`Operation`] gave.
#[derive(Debug)]
pub enum Outcome {
    /// It is done.
    Done,
    /// The opened file.
    File(FileId),
    /// What was read.
    Bytes(Buffer),
    /// A length.
    Length(u64),
    /// Names of directory entries, sorted.
    Names(Vec<String>),
}

/// Why an [`Operation`] failed, as far as a caller would act on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskErrorKind {
    /// No such file or directory.
    NotFound,
    /// The name is taken.
    Exists,
    /// No space left, or a quota is used up.
    Full,
    /// What is there is not to be touched: a later version wrote it, or it is another
    /// partition's. Made by whoever reads what a disk gave, never by a disk.
    Refused,
    /// Anything else: the bytes' state is unknown.
    Failed,
}

/// A failed [`Operation`].
#[derive(Debug)]
pub struct DiskError {
    /// What a caller can do about it.
    pub kind: DiskErrorKind,
    /// What was tried, with path and numbers: "writing 4096 bytes at 8192 of x/0.log".
    pub attempt: String,
    /// What the operating system said.
    pub source: std::io::Error,
}

impl fmt::Display for DiskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.attempt, self.source)
    }
}

/// What Linux says where the process, or the machine, has no descriptors left.
const NO_DESCRIPTORS: [Option<i32>; 2] = [
    Some(rustix::io::Errno::MFILE.raw_os_error()),
    Some(rustix::io::Errno::NFILE.raw_os_error()),
];

impl DiskError {
    /// What was read of `path` is not to be touched, and why.
    pub(crate) fn refused(path: &std::path::Path, why: impl Into<String>) -> Self {
        Self {
            kind: DiskErrorKind::Refused,
            attempt: format!("reading {}", path.display()),
            source: std::io::Error::other(why.into()),
        }
    }

    /// Whether descriptors lack. Nothing was done then, and the same operation
    /// succeeds when some were closed: who carries out operations tries again.
    pub fn lacks_descriptors(&self) -> bool {
        NO_DESCRIPTORS.contains(&self.source.raw_os_error())
    }

    /// The same error for another who waited for the same thing.
    pub fn share(&self) -> Self {
        let source = match self.source.raw_os_error() {
            Some(code) => std::io::Error::from_raw_os_error(code),
            None => std::io::Error::new(self.source.kind(), self.source.to_string()),
        };
        Self {
            kind: self.kind,
            attempt: self.attempt.clone(),
            source,
        }
    }
}

impl std::error::Error for DiskError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Carries out [`Operation`]s.
///
/// Obligations of an implementation:
/// - an operation that succeeded is seen by every later one, whoever asks;
/// - after a successful `SyncData` the file's bytes and length survive a power
///   loss, after a successful `SyncDirectory` the names in it do; nothing else
///   is promised to survive, in any order;
/// - a `Write` either succeeds with every byte or fails; after a failure any
///   part may have been written;
/// - where descriptors lack, an operation that [opens](Operation::opens) does nothing and says so
///   ([`DiskError::lacks_descriptors`]);
/// - a failed sync is reported to whoever asked for it, once; what it covered
///   may be lost although later syncs succeed.
pub trait Disk: Send + Sync {
    /// Carries out `operation` on the calling thread.
    fn execute(&self, operation: Operation) -> Result<Outcome, DiskError>;

    /// Carries out a `Read` or `ReadPlaces` if that takes no waiting for a device; gives the
    /// operation back if it would, or if this disk cannot know.
    fn execute_without_waiting(
        &self,
        operation: Operation,
    ) -> Result<Result<Outcome, DiskError>, Operation> {
        Err(operation)
    }
}
