//! What of a voter's log is durable, found from the writes and syncs themselves: the voter is not
//! asked.

use crate::quorum::{
    FILE_HEADER_BYTES, FRAME_HEADER_BYTES, FileHeader, FrameHeader, Record, Recovered,
};
use log::{FileId, Operation, Outcome};
use std::collections::BTreeMap;

/// A log as its records make it: terms by index, and the hard state.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Log {
    /// The last index that a snapshot has.
    pub(super) base: u64,
    pub(super) terms: BTreeMap<u64, u64>,
    pub(super) term: u64,
    pub(super) vote: u64,
    commit: u64,
}

impl Log {
    fn apply(&mut self, record: &Record) {
        match record {
            Record::Entry(entry) => {
                self.terms.split_off(&entry.index);
                self.terms.insert(entry.index, entry.term);
            }
            Record::HardState(state) => {
                (self.term, self.vote, self.commit) = (state.term, state.vote, state.commit);
            }
            Record::Snapshot(snapshot) => {
                self.base = snapshot.index;
                self.terms.clear();
            }
        }
    }

    /// Whether it has this entry, or a snapshot with it.
    pub(super) fn has(&self, index: u64, term: u64) -> bool {
        index <= self.base || self.terms.get(&index) == Some(&term)
    }

    pub(super) fn of(recovered: &Recovered) -> Self {
        let (base, state) = recovered.outline();
        Self {
            base,
            terms: recovered.entry_terms().collect(),
            term: state.term,
            vote: state.vote,
            commit: state.commit,
        }
    }
}

/// One file, and what of it no sync has covered.
#[derive(Debug, Clone, Default)]
struct File {
    salt: u64,
    synced: Log,
    unsynced: Vec<Record>,
}

impl File {
    fn written(&self) -> Log {
        let mut log = self.synced.clone();
        self.unsynced.iter().for_each(|record| log.apply(record));
        log
    }
}

/// Listens to one voter's operations.
#[derive(Debug, Default)]
pub(super) struct DiskWitness {
    files: BTreeMap<FileId, File>,
    /// The file that is the log, durably.
    current: Option<FileId>,
    /// A file that has its name, and no sync of the directory has covered that.
    renamed: Option<FileId>,
    /// The file that was made last.
    newest: Option<FileId>,
}

impl DiskWitness {
    /// An operation was carried out.
    pub(super) fn done(&mut self, operation: &Operation, outcome: &Outcome) {
        match (operation, outcome) {
            (Operation::Create { .. }, Outcome::File(file)) => {
                self.files.insert(*file, File::default());
                self.newest = Some(*file);
            }
            (Operation::Write { file, bytes, .. }, _) => {
                let file = self.files.entry(*file).or_default();
                let bytes = bytes.concat();
                let mut rest = &bytes[..];
                if let Ok(header) = FileHeader::decode(rest) {
                    file.salt = header.salt;
                    rest = &rest[FILE_HEADER_BYTES..];
                }
                let frame = FrameHeader::decode(file.salt, rest).expect("a frame is written");
                let body = frame.body(&rest[FRAME_HEADER_BYTES..]);
                let records = frame.records(body.expect("it is whole"));
                file.unsynced.extend(records.expect("of records"));
            }
            (Operation::SyncData { file }, _) => {
                if let Some(file) = self.files.get_mut(file) {
                    for record in std::mem::take(&mut file.unsynced) {
                        file.synced.apply(&record);
                    }
                }
            }
            (Operation::Rename { .. }, _) => self.renamed = self.newest,
            (Operation::SyncDirectory { .. }, _) => {
                if let Some(file) = self.renamed.take() {
                    self.current = Some(file);
                }
            }
            _ => {}
        }
    }

    /// What is durable.
    pub(super) fn durable(&self) -> Option<&Log> {
        Some(&self.files.get(&self.current?)?.synced)
    }

    /// What may be found after a crash: what was durable, with or without what was written since.
    fn candidates(&self) -> Vec<Log> {
        let files = [self.current, self.renamed, self.newest];
        let files = files.into_iter().flatten();
        files
            .filter_map(|file| self.files.get(&file))
            .flat_map(|file| [file.synced.clone(), file.written()])
            .collect()
    }

    /// The voter was opened again with this; says what is wrong with it. From now on it is durable.
    pub(super) fn recovered(&mut self, recovered: &Recovered) -> Result<(), String> {
        let found = Log::of(recovered);
        let before = self.durable().cloned();
        let candidates = self.candidates();
        let file = File {
            salt: recovered.salt(),
            synced: found.clone(),
            unsynced: Vec::new(),
        };
        let id = recovered.file_id();
        *self = Self {
            files: BTreeMap::from([(id, file)]),
            current: Some(id),
            renamed: None,
            newest: None,
        };
        match before {
            Some(before) if !candidates.contains(&found) => Err(format!(
                "opened with a log that was never there: found {found:?}, durable was {before:?}"
            )),
            _ => Ok(()),
        }
    }
}
