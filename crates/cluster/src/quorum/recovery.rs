//! The beginning of a log, and what is found of one when a voter starts. Runs blocking, once.
//!
//! What was found is always written anew, into the next file. So whatever is believed is synced
//! by this run: a process that was killed may have left writes in the page cache that no sync
//! covered, and one whose sync failed may have left some that no sync will ever cover.

use super::entry::Entry;
use super::frame::{FILE_HEADER_BYTES, FRAME_HEADER_BYTES};
use super::frame::{FileHeader, FrameHeader, HardState, Record, Records};
use super::id::{DirectoryId, Identity, VoterId};
use super::membership::Membership;
use super::requests::Requests;
use super::snapshot::{Snapshot, Stored};
use crate::faults::{Fault, planted};
use crate::random::Random;
use bytes::Bytes;
use log::{Disk, DiskError, DiskErrorKind, FileId, Operation, Outcome};
use std::collections::VecDeque;
use std::fmt;
use std::path::{Path, PathBuf};
use wire::codec::DecodeError;

/// Bytes that are read at once.
const READ_BYTES: usize = 4 << 20;

/// What a voter found of its log, with the file that it goes on in.
#[derive(Debug)]
pub struct Recovered {
    pub(crate) identity: Identity,
    pub(crate) directory: PathBuf,
    pub(crate) hard_state: HardState,
    pub(crate) snapshot: Option<Stored>,
    pub(crate) entries: VecDeque<Entry>,
    pub(crate) file: OpenFile,
    /// How many bytes of a write that was never synced were cut off, and where.
    cut: Option<(PathBuf, u64, u64)>,
}

impl Recovered {
    /// Whose log it is.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// What a crash left of a write that was never synced: the file, where it began, and how many
    /// bytes were left out. For the log.
    pub fn cut(&self) -> Option<(&Path, u64, u64)> {
        let cut = self.cut.as_ref();
        cut.map(|(path, position, bytes)| (path.as_path(), *position, *bytes))
    }
}

/// The file that is appended to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OpenFile {
    pub(crate) id: FileId,
    pub(crate) number: u64,
    pub(crate) salt: u64,
    pub(crate) end: u64,
}

/// Why a log cannot be opened or begun.
#[derive(Debug)]
pub enum RecoveryError {
    /// There is none: the voter has not been founded and has not joined.
    None(PathBuf),
    /// There is one already.
    Exists(PathBuf),
    /// It is another's.
    Other {
        /// The file.
        path: PathBuf,
        /// Whose log is to be opened.
        expected: Box<Identity>,
        /// Whose it is.
        found: Box<Identity>,
    },
    /// It is not what was written. Nothing was changed.
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where, bytes.
        position: u64,
        /// What is wrong there.
        why: String,
    },
    /// Another version wrote it. Nothing was changed.
    Version(PathBuf, DecodeError),
    /// The disk failed.
    Disk(DiskError),
}

impl fmt::Display for RecoveryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None(path) => write!(
                f,
                "{} has no log of a quorum: found a cluster with it, or join one",
                path.display()
            ),
            Self::Exists(path) => write!(
                f,
                "{} is the log of a quorum already: it is opened, not founded again",
                path.display()
            ),
            Self::Other {
                path,
                expected,
                found,
            } => write!(
                f,
                "{} is the log of {found}, not of {expected}: use that one's directory, or an \
                 empty one under a new id",
                path.display()
            ),
            Self::Damaged {
                path,
                position,
                why,
            } => write!(
                f,
                "{} is damaged at byte {position}: {why}. It is left as it is. Remove this voter \
                 from the quorum, and add a new one with an empty directory",
                path.display()
            ),
            Self::Version(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Disk(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for RecoveryError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Disk(error) => Some(error),
            Self::Version(_, error) => Some(error),
            _ => None,
        }
    }
}

impl From<DiskError> for RecoveryError {
    fn from(error: DiskError) -> Self {
        Self::Disk(error)
    }
}

type Found<T> = Result<T, RecoveryError>;

/// Begins the log of one of those who found a cluster. Each of them is given the same founders.
///
/// `salt` is any random number. What is written is synced when this returns.
///
/// # Errors
/// If there is a log already, or the disk fails.
///
/// # Panics
/// If the identity is not that of a founder.
pub fn found(
    disk: &dyn Disk,
    directory: &Path,
    identity: Identity,
    founders: &[(VoterId, DirectoryId)],
    salt: u64,
) -> Found<()> {
    assert!(
        founders.contains(&(identity.voter, identity.directory)),
        "{identity} is not a founder"
    );
    // An index that a newcomer's empty log cannot have, so that it begins with the members.
    let snapshot = Stored::of(&Snapshot {
        index: 1,
        term: 1,
        members: Membership::founders(founders),
        requests: Requests::default(),
        state: Bytes::new(),
    });
    let state = HardState {
        term: 1,
        vote: 0,
        commit: 1,
    };
    begin(disk, directory, identity, salt, Some(&snapshot), state)
}

/// Begins the empty log of a voter that the members will add.
///
/// # Errors
/// If there is a log already, or the disk fails.
pub fn join(disk: &dyn Disk, directory: &Path, identity: Identity, salt: u64) -> Found<()> {
    begin(disk, directory, identity, salt, None, HardState::default())
}

fn begin(
    disk: &dyn Disk,
    directory: &Path,
    identity: Identity,
    salt: u64,
    snapshot: Option<&Stored>,
    state: HardState,
) -> Found<()> {
    if let Some(number) = numbers(disk, directory, ".log")?.last() {
        return Err(RecoveryError::Exists(log_path(directory, *number)));
    }
    let header = FileHeader {
        identity,
        number: 1,
        salt,
    };
    let head = head(&header, snapshot, &state, std::iter::empty());
    let file = write_file(disk, directory, &header, head)?;
    disk.execute(Operation::Close { file: file.id })?;
    Ok(())
}

/// Finds the log of `identity` in `directory`, and writes it anew.
///
/// A write that was under way when the voter ended is left out if it is not whole; it was never
/// synced, so nothing depends on it. [`Recovered::cut`] says so.
///
/// # Errors
/// See [`RecoveryError`].
pub fn recover(disk: &dyn Disk, directory: &Path, identity: Identity) -> Found<Recovered> {
    let logs = numbers(disk, directory, ".log")?;
    let Some(&number) = logs.last() else {
        return Err(RecoveryError::None(directory.to_owned()));
    };
    let path = log_path(directory, number);
    let bytes = read_all(disk, &path)?;
    let header = FileHeader::decode(&bytes).map_err(|error| refused(&path, 0, error))?;
    if header.identity != identity {
        return Err(RecoveryError::Other {
            path,
            expected: Box::new(identity),
            found: Box::new(header.identity),
        });
    }
    if header.number != number {
        let why = format!("its header says that it is number {}", header.number);
        return Err(damaged(&path, 0, why));
    }
    let mut found = Replay::default();
    let cut = found.read(&path, &header, &bytes)?;
    found.check(&path, bytes.len())?;
    let next = FileHeader {
        number: number + 1,
        salt: Random::new(header.salt ^ number).number(),
        identity,
    };
    let entries = found.entries.iter();
    let head = head(&next, found.snapshot.as_ref(), &found.hard_state, entries);
    let file = write_file(disk, directory, &next, head)?;
    for old in logs {
        let path = log_path(directory, old);
        disk.execute(Operation::Remove { path })?;
    }
    Ok(Recovered {
        identity,
        directory: directory.to_owned(),
        hard_state: found.hard_state,
        snapshot: found.snapshot,
        entries: found.entries,
        file,
        cut: cut.map(|(position, bytes)| (path, position, bytes)),
    })
}

/// A log as its records make it.
#[derive(Debug, Default)]
struct Replay {
    hard_state: HardState,
    snapshot: Option<Stored>,
    entries: VecDeque<Entry>,
}

impl Replay {
    fn base(&self) -> u64 {
        self.snapshot.as_ref().map_or(0, |one| one.index)
    }

    fn end(&self) -> u64 {
        self.base() + self.entries.len() as u64
    }

    /// Applies a record, or says why it cannot follow those before.
    fn apply(&mut self, record: Record) -> Result<(), String> {
        match record {
            Record::Snapshot(snapshot) => {
                self.entries.clear();
                self.snapshot = Some(Stored::of(&snapshot));
            }
            Record::HardState(state) if state.term < self.hard_state.term => {
                let before = self.hard_state.term;
                return Err(format!("term {} follows term {before}", state.term));
            }
            Record::HardState(state) => self.hard_state = state,
            Record::Entry(entry) => {
                let (base, end) = (self.base(), self.end());
                if entry.index <= base || entry.index > end + 1 {
                    return Err(format!(
                        "entry {} follows a log of {} to {end}",
                        entry.index,
                        base + 1
                    ));
                }
                if planted(Fault::SuffixKept) && entry.index <= end {
                    return Ok(());
                }
                self.entries.truncate((entry.index - base - 1) as usize);
                self.entries.push_back(entry);
            }
        }
        Ok(())
    }

    /// Reads all frames. Returns where, and how long, what a crash left of the last write is.
    fn read(
        &mut self,
        path: &Path,
        header: &FileHeader,
        bytes: &[u8],
    ) -> Found<Option<(u64, u64)>> {
        let mut position = FILE_HEADER_BYTES;
        for number in 1.. {
            // A file is renamed when its first frame is whole.
            if position == bytes.len() && number > 1 {
                break;
            }
            let rest = &bytes[position..];
            let frame = FrameHeader::decode(header.salt, rest);
            let whole = frame.clone().and_then(|frame| {
                let body = frame.body(&rest[FRAME_HEADER_BYTES..])?;
                Ok((frame, body))
            });
            let (frame, body) = match whole {
                Ok((frame, body)) if frame.number == number => (frame, body),
                Ok((frame, _)) => {
                    let why = format!("frame {} stands where {number} must", frame.number);
                    return Err(damaged(path, position as u64, why));
                }
                Err(error) if error.is_of_another_version() => {
                    return Err(RecoveryError::Version(path.to_owned(), error));
                }
                Err(error) => {
                    // Each write is synced before the next begins. So if there is a later one,
                    // this one was whole once.
                    if number == 1 || later_frame(header.salt, number, rest) {
                        return Err(damaged(path, position as u64, error.to_string()));
                    }
                    if planted(Fault::TornTailKept)
                        && let Ok(frame) = frame
                    {
                        self.take_torn(&frame, &rest[FRAME_HEADER_BYTES..]);
                    }
                    return Ok(Some((position as u64, rest.len() as u64)));
                }
            };
            let body_position = (position + FRAME_HEADER_BYTES) as u64;
            let records = frame.records(body);
            for record in records.map_err(|error| refused(path, body_position, error))? {
                let applied = self.apply(record);
                applied.map_err(|why| damaged(path, position as u64, why))?;
            }
            position += FRAME_HEADER_BYTES + frame.body_bytes;
        }
        Ok(None)
    }

    /// The planted fault: a write that is not whole is taken for one that is.
    fn take_torn(&mut self, frame: &FrameHeader, bytes: &[u8]) {
        let mut body = bytes.to_vec();
        body.resize(frame.body_bytes, 0);
        for record in frame.records_until_error(&body).0 {
            if self.apply(record).is_err() {
                return;
            }
        }
    }

    /// What was synced must all be there.
    fn check(&self, path: &Path, bytes: usize) -> Found<()> {
        let (commit, base, end) = (self.hard_state.commit, self.base(), self.end());
        if planted(Fault::TornTailKept) || (base..=end).contains(&commit) {
            return Ok(());
        }
        let why = format!("{commit} entries are known to be committed, the log is {base} to {end}");
        Err(damaged(path, bytes as u64, why))
    }
}

/// Whether a frame of a greater number begins somewhere in `bytes`.
fn later_frame(salt: u64, number: u64, bytes: &[u8]) -> bool {
    (1..bytes.len())
        .any(|at| FrameHeader::decode(salt, &bytes[at..]).is_ok_and(|frame| frame.number > number))
}

fn damaged(path: &Path, position: u64, why: String) -> RecoveryError {
    RecoveryError::Damaged {
        path: path.to_owned(),
        position,
        why,
    }
}

fn refused(path: &Path, position: u64, error: DecodeError) -> RecoveryError {
    match error.is_of_another_version() {
        true => RecoveryError::Version(path.to_owned(), error),
        false => damaged(path, position + error.offset as u64, error.to_string()),
    }
}

/// The content that a file begins with: its header, and one frame of all that there is.
pub(crate) fn head<'a>(
    header: &FileHeader,
    snapshot: Option<&Stored>,
    state: &HardState,
    entries: impl Iterator<Item = &'a Entry>,
) -> Bytes {
    let mut records = Records::default();
    if let Some(snapshot) = snapshot {
        records.snapshot(&snapshot.bytes);
    }
    records.hard_state(state);
    for entry in entries {
        records.entry(entry);
    }
    let mut bytes = Vec::new();
    header.encode(&mut bytes);
    records.frame(header.salt, 1, &mut bytes);
    bytes.into()
}

pub(crate) fn log_path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("quorum-{number}.log"))
}

/// The name of a file that is not whole yet.
pub(crate) fn new_path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("quorum-{number}.new"))
}

/// The numbers of files with this ending, sorted.
fn numbers(disk: &dyn Disk, directory: &Path, ending: &str) -> Found<Vec<u64>> {
    let path = directory.to_owned();
    let Outcome::Names(names) = disk.execute(Operation::List { path })? else {
        unreachable!("listing gives names");
    };
    let number = |name: &String| {
        let name = name.strip_prefix("quorum-")?.strip_suffix(ending)?;
        name.parse().ok()
    };
    let mut numbers: Vec<u64> = names.iter().filter_map(number).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

fn read_all(disk: &dyn Disk, path: &Path) -> Found<Vec<u8>> {
    let path = path.to_owned();
    let Outcome::File(file) = disk.execute(Operation::Open { path })? else {
        unreachable!("opening gives a file");
    };
    let mut all = Vec::new();
    loop {
        let read = Operation::Read {
            file,
            position: all.len() as u64,
            bytes: READ_BYTES,
        };
        let Outcome::Bytes(bytes) = disk.execute(read)? else {
            unreachable!("reading gives bytes");
        };
        if bytes.is_empty() {
            break;
        }
        all.extend_from_slice(&bytes);
    }
    disk.execute(Operation::Close { file })?;
    Ok(all)
}

/// Writes a file of its own name only once it is whole and synced.
fn write_file(
    disk: &dyn Disk,
    directory: &Path,
    header: &FileHeader,
    head: Bytes,
) -> Found<OpenFile> {
    // What an attempt before left.
    for number in numbers(disk, directory, ".new")? {
        let path = new_path(directory, number);
        disk.execute(Operation::Remove { path })?;
    }
    let path = new_path(directory, header.number);
    let Outcome::File(file) = disk.execute(Operation::Create { path: path.clone() })? else {
        unreachable!("creating gives a file");
    };
    let end = head.len() as u64;
    let written = || {
        disk.execute(Operation::Write {
            file,
            position: 0,
            bytes: vec![head],
        })?;
        if !planted(Fault::RecoveredNotSynced) {
            disk.execute(Operation::SyncData { file })?;
        }
        disk.execute(Operation::Rename {
            from: path.clone(),
            to: log_path(directory, header.number),
        })?;
        let path = directory.to_owned();
        disk.execute(Operation::SyncDirectory { path })
    };
    if let Err(error) = written() {
        // The file is of no use, and may take the space that lacks.
        let _ = disk.execute(Operation::Close { file });
        if error.kind == DiskErrorKind::Full {
            let _ = disk.execute(Operation::Remove { path });
        }
        return Err(error.into());
    }
    Ok(OpenFile {
        id: file,
        number: header.number,
        salt: header.salt,
        end,
    })
}

#[cfg(test)]
impl Recovered {
    /// The last index of the snapshot, and the hard state.
    pub(crate) fn outline(&self) -> (u64, HardState) {
        let base = self.snapshot.as_ref().map_or(0, |one| one.index);
        (base, self.hard_state)
    }

    pub(crate) fn entry_terms(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.entries.iter().map(|entry| (entry.index, entry.term))
    }

    pub(crate) fn salt(&self) -> u64 {
        self.file.salt
    }

    pub(crate) fn file_id(&self) -> FileId {
        self.file.id
    }
}
