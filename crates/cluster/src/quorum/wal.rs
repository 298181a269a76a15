//! Writes the log: one write and one sync at a time, and what comes meanwhile gathers for the next.
//! Also puts a new file in the place of the old one when a snapshot makes it shorter.

use super::entry::Entry;
use super::frame::{FRAME_HEADER_BYTES, FileHeader, HardState, Records};
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
    /// A write found no space; the same records are written again then, or behind a new file.
    Waiting(Frame, Duration),
    Syncing(Frame),
    /// What a write has left that found no space takes space: the old file is cut to what is whole.
    Cutting(Rotation),
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

#[derive(Debug)]
struct Frame {
    records: Records,
    part: Part,
}

impl Frame {
    /// How long it is in the file.
    fn bytes(&self) -> usize {
        FRAME_HEADER_BYTES + self.records.len()
    }
}

#[derive(Debug)]
struct Rotation {
    header: FileHeader,
    head: Bytes,
    /// The hard state in it.
    state: HardState,
    part: Part,
    why: Rotate,
    /// What would have been written to the old file, if this does not succeed.
    held_back: Records,
    /// Whether the new file has nothing of that: the disk is full, and what is behind the snapshot
    /// already takes less space than the old file does.
    is_short: bool,
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
    /// The last hard state that is durable.
    state: HardState,
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
            state: recovered.hard_state,
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
            Phase::Writing(frame) | Phase::Waiting(frame, _) => frame.records.len(),
            Phase::Cutting(rotation)
            | Phase::Creating(rotation)
            | Phase::Filling(rotation, _)
            | Phase::SyncingNew(rotation, _)
            | Phase::Renaming(rotation, _)
            | Phase::SyncingDirectory(rotation, _)
            | Phase::ClosingNew(rotation, _)
            | Phase::RemovingNew(rotation) => rotation.held_back.len(),
            Phase::Idle | Phase::Syncing(_) | Phase::ClosingOld(_) | Phase::RemovingOld(_) => 0,
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
        self.end_waiting(now);
        if !matches!(self.phase, Phase::Idle) {
            return;
        }
        if let Some(why) = self.rotate {
            if self.rotate_at <= now {
                self.rotate = None;
                let rotation = self.rotation(why, store);
                self.phase = match self.full {
                    true => Phase::Cutting(rotation),
                    false => Phase::Creating(rotation),
                };
                return;
            }
            if why == Rotate::Restore {
                // The old file cannot take what follows the snapshot.
                return;
            }
        }
        if !self.gathered.is_empty() {
            self.phase = Phase::Writing(Frame {
                records: std::mem::take(&mut self.gathered),
                part: self.part,
            });
        }
    }

    /// A write that found no space is tried again, or waits behind a new file: a log that a snapshot
    /// makes shorter gives back the space that the write needs.
    fn end_waiting(&mut self, now: Duration) {
        let rotates = self.rotate.filter(|_| self.rotate_at <= now);
        let phase = std::mem::replace(&mut self.phase, Phase::Idle);
        self.phase = match (phase, rotates) {
            // It belongs to the log that is replaced.
            (Phase::Waiting(..), Some(Rotate::Restore)) => Phase::Idle,
            (Phase::Waiting(frame, _), Some(Rotate::Compact)) => {
                self.put_back(frame.records);
                Phase::Idle
            }
            (Phase::Waiting(frame, until), None) if until <= now => Phase::Writing(frame),
            (phase, _) => phase,
        };
    }

    /// Records that are to be written before those that were gathered since.
    fn put_back(&mut self, mut records: Records) {
        records.append(&self.gathered);
        self.gathered = records;
    }

    /// A new file with all that there is now. It has all parts that were gathered; but on a full disk
    /// only those that are durable, so that it is no longer than it must be.
    fn rotation(&mut self, why: Rotate, store: &Store) -> Rotation {
        let number = self.file.number + 1;
        let header = FileHeader {
            identity: self.identity,
            number,
            salt: Random::new(self.file.salt ^ number).number(),
        };
        let index = store.snapshot_index();
        let mut held_back = std::mem::take(&mut self.gathered);
        let first = held_back.first().unwrap_or(u64::MAX);
        let is_short = self.full && why == Rotate::Compact && first > index;
        let (until, state, part) = match is_short {
            false => (u64::MAX, store.hard_state, self.part),
            true => {
                // That so much is committed is known by the snapshot.
                let known = |state: HardState| HardState {
                    commit: state.commit.max(index),
                    ..state
                };
                // What was gathered may begin behind entries that it replaces later on: those are
                // not in the new file.
                let state = held_back.state().unwrap_or(self.state);
                held_back = Records::default();
                for entry in store.behind(first - 1) {
                    held_back.entry(&Entry::of_raft(entry));
                }
                held_back.hard_state(&known(state));
                (first, known(self.state), self.durable)
            }
        };
        let entries = store.behind(index).take_while(|one| one.index < until);
        let entries: Vec<_> = entries.map(Entry::of_raft).collect();
        Rotation {
            header,
            head: head(&header, store.snapshot_stored(), &state, entries.iter()),
            state,
            part,
            why,
            held_back,
            is_short,
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
            Phase::Writing(frame) => {
                let mut bytes = Vec::new();
                let (salt, number) = (self.file.salt, self.frame + 1);
                frame.records.frame(salt, number, &mut bytes);
                write(self.file.id, self.file.end, &bytes.into())
            }
            Phase::Syncing(_) => Operation::SyncData { file: self.file.id },
            Phase::Cutting(_) => Operation::SetLength {
                file: self.file.id,
                bytes: self.file.end,
            },
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
                self.file.end += frame.bytes() as u64;
                self.durable = frame.part;
                self.state = frame.records.state().unwrap_or(self.state);
                Phase::Idle
            }
            Phase::Cutting(rotation) => Phase::Creating(rotation),
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
                self.state = rotation.state;
                if rotation.is_short && self.rotate != Some(Rotate::Restore) {
                    self.put_back(rotation.held_back);
                }
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
            self.put_back(rotation.held_back);
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
            Phase::Cutting(rotation) | Phase::Creating(rotation) if full => {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quorum::entry::Content;
    use crate::quorum::id::{ClusterId, DirectoryId, VoterId};
    use crate::quorum::membership::Membership;
    use crate::quorum::recovery::{found, recover};
    use crate::quorum::snapshot::{Snapshot, Stored};
    use log::Disk;
    use log::testing::{Fault as DiskFault, FaultyDisk, Survival};
    use std::ops::RangeInclusive;
    use std::path::Path;

    const IDENTITY: Identity = Identity {
        cluster: ClusterId(1),
        voter: VoterId(1),
        directory: DirectoryId(1),
    };
    const FOUNDERS: [(VoterId, DirectoryId); 1] = [(IDENTITY.voter, IDENTITY.directory)];

    struct Log {
        disk: FaultyDisk,
        store: Store,
        wal: Wal,
        now: Duration,
    }

    impl Log {
        fn new() -> Self {
            let disk = FaultyDisk::new();
            let directory = Path::new("/");
            found(&disk, directory, IDENTITY, &FOUNDERS, 7).unwrap();
            let recovered = recover(&disk, directory, IDENTITY).unwrap();
            let wal = Wal::new(&recovered);
            let state = recovered.hard_state;
            let entries = recovered.entries.iter().map(Entry::to_raft).collect();
            let store = Store::new(state, recovered.snapshot, entries);
            let now = Duration::from_secs(10);
            Self {
                disk,
                store,
                wal,
                now,
            }
        }

        fn append(&mut self, part: Part, term: u64, indices: RangeInclusive<u64>, commit: u64) {
            let mut records = Records::default();
            let mut entries = Vec::new();
            for index in indices {
                let content = Content::Blank;
                let entry = Entry {
                    index,
                    term,
                    content,
                };
                records.entry(&entry);
                entries.push(entry.to_raft());
            }
            self.store.append(&entries);
            let vote = 0;
            self.store.hard_state = HardState { term, vote, commit };
            records.hard_state(&self.store.hard_state);
            self.wal.gather(&records, part);
        }

        fn compact(&mut self, index: u64) {
            let snapshot = Snapshot {
                index,
                term: 1,
                members: Membership::founders(&FOUNDERS),
                requests: Default::default(),
                state: Bytes::new(),
            };
            self.store.compact(Stored::of(&snapshot), 0);
            self.wal.rotate(Rotate::Compact, self.wal.gathered());
        }

        /// Index and term of each entry that a start finds if the power is lost now.
        fn found(&self) -> Vec<(u64, u64)> {
            let disk = self.disk.fork();
            disk.power_loss(Survival::All);
            let recovered = recover(&disk, Path::new("/"), IDENTITY).unwrap();
            let entries = recovered.entries.iter();
            entries.map(|one| (one.index, one.term)).collect()
        }

        /// Until nothing is left to do. At each step the power may be lost.
        fn run(&mut self) {
            while let Some((token, operation)) = self.wal.poll(self.now, &self.store) {
                let result = self.disk.execute(operation);
                self.wal.done(self.now, token, result).unwrap();
                self.found();
            }
        }
    }

    /// What waits for space when the log is made shorter replaces itself, and knows of less that is
    /// committed than the snapshot does.
    #[test]
    fn what_waits_on_a_full_disk_goes_behind_a_shorter_log() {
        let mut log = Log::new();
        log.append(1, 1, 2..=10, 2);
        log.run();
        let next = log.disk.operation_count();
        log.disk.fail_at(next, DiskFault::Full(20));
        log.append(2, 1, 11..=12, 3);
        log.run();
        assert!(log.wal.is_full());
        log.append(3, 2, 8..=9, 4);
        log.compact(5);
        log.run();
        assert!(!log.wal.is_full());
        assert_eq!((log.wal.durable(), log.wal.unwritten()), (3, 0));
        assert_eq!(log.found(), [(6, 1), (7, 1), (8, 2), (9, 2)]);
        assert_eq!(log.disk.paths().len(), 1);
        log.append(4, 2, 10..=10, 9);
        log.run();
        assert_eq!(log.found().last(), Some(&(10, 2)));
    }
}
