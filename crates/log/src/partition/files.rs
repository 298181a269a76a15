//! The open files of a partition, and the operations under way.

use super::purpose::{FileNumber, Purpose};
use crate::disk::{DiskError, FileId, Operation};
use crate::storage::OperationToken;
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

/// Stands for the file in operations that are made before it is open.
pub(super) const THIS_FILE: FileId = FileId(u64::MAX);

pub(super) struct FileEntry {
    pub(super) path: PathBuf,
    slot: Slot,
    /// Whether it is to be made when it is opened.
    create: bool,
    /// Whether its name is new, until it is opened.
    named: bool,
    /// A file to be renamed to this one instead of making it.
    spare: Option<PathBuf>,
    /// Operations on it that are under way.
    in_use: u32,
    /// Held by whoever may still read from it; shared beyond this entry, the
    /// file stays open.
    pub(super) pin: Arc<()>,
    /// Not open longer than it is used or pinned.
    retired: bool,
    last_used: u64,
}

enum Slot {
    Closed,
    Opening(Vec<(Operation, Purpose)>),
    Open(FileId),
}

/// Operations to be carried out, and what each is for.
pub(super) struct Files {
    entries: BTreeMap<FileNumber, FileEntry>,
    /// How many are open.
    open_count: usize,
    next: u64,
    uses: u64,
    queue: VecDeque<(OperationToken, Operation)>,
    /// By token; free places are listed in `free`.
    purposes: Vec<Option<(Purpose, Option<FileNumber>)>>,
    free: Vec<usize>,
}

/// Since when the files have not been used, as far as ticks have seen.
#[derive(Default)]
pub(super) struct Idle {
    /// [`Files::uses`] at the last look.
    pub uses: u64,
    /// The time of that look.
    pub since: u64,
}

impl Files {
    pub(super) fn new() -> Self {
        Self {
            entries: BTreeMap::new(),
            open_count: 0,
            next: 0,
            uses: 0,
            queue: VecDeque::new(),
            purposes: Vec::new(),
            free: Vec::new(),
        }
    }

    /// A file that exists.
    pub(super) fn add(&mut self, path: PathBuf) -> FileNumber {
        self.insert(path, false, None)
    }

    /// A file that is made when it is first used, of `spare` if given.
    pub(super) fn add_new(&mut self, path: PathBuf, spare: Option<PathBuf>) -> FileNumber {
        self.insert(path, true, spare)
    }

    /// A file to be made whose name may be lost.
    pub(super) fn add_fleeting(&mut self, path: PathBuf) -> FileNumber {
        let file = self.insert(path, true, None);
        self.entries.get_mut(&file).expect("just inserted").named = false;
        file
    }

    fn insert(&mut self, path: PathBuf, create: bool, spare: Option<PathBuf>) -> FileNumber {
        self.next += 1;
        let entry = FileEntry {
            path,
            slot: Slot::Closed,
            create,
            named: create,
            spare,
            in_use: 0,
            pin: Arc::new(()),
            retired: false,
            last_used: 0,
        };
        self.entries.insert(FileNumber(self.next), entry);
        FileNumber(self.next)
    }

    pub(super) fn get(&self, file: FileNumber) -> Option<&FileEntry> {
        self.entries.get(&file)
    }

    /// Whether it was made already, or need not be.
    pub(super) fn exists(&self, file: FileNumber) -> bool {
        self.entries.get(&file).is_some_and(|entry| !entry.create)
    }

    pub(super) fn in_use(&self, file: FileNumber) -> bool {
        self.entries.get(&file).is_some_and(|entry| {
            entry.in_use > 0
                || Arc::strong_count(&entry.pin) > 1
                || matches!(entry.slot, Slot::Opening(_))
        })
    }

    /// An operation on no open file.
    pub(super) fn submit(&mut self, operation: Operation, purpose: Purpose) {
        self.push(operation, purpose, None);
    }

    /// An operation on [`THIS_FILE`], which is opened or made if need be.
    ///
    /// # Panics
    /// If the file was forgotten.
    pub(super) fn submit_to(&mut self, file: FileNumber, operation: Operation, purpose: Purpose) {
        self.uses += 1;
        let entry = self
            .entries
            .get_mut(&file)
            .expect("files are forgotten after their last use");
        entry.last_used = self.uses;
        match &mut entry.slot {
            Slot::Open(id) => {
                entry.in_use += 1;
                let operation = operation.with_file(*id);
                self.push(operation, purpose, Some(file));
            }
            Slot::Opening(waiting) => waiting.push((operation, purpose)),
            Slot::Closed => {
                entry.slot = Slot::Opening(vec![(operation, purpose)]);
                self.begin_opening(file);
            }
        }
    }

    fn begin_opening(&mut self, file: FileNumber) {
        let entry = &self.entries[&file];
        let path = entry.path.clone();
        match &entry.spare {
            Some(spare) => {
                let from = spare.clone();
                let rename = Operation::Rename { from, to: path };
                self.push(rename, Purpose::Recycled(file), None);
            }
            None if entry.create => {
                self.push(Operation::Create { path }, Purpose::Opened(file), None)
            }
            None => self.push(Operation::Open { path }, Purpose::Opened(file), None),
        }
    }

    /// A spare file got the name; it is opened next.
    pub(super) fn recycled(&mut self, file: FileNumber, renamed: bool) {
        let Some(entry) = self.entries.get_mut(&file) else {
            return;
        };
        // A spare that cannot be had is replaced by a new file.
        entry.spare = None;
        entry.create = !renamed;
        self.begin_opening(file);
    }

    /// The file was opened (says whether it is new), or its operations cannot
    /// be carried out and are given back.
    pub(super) fn opened(
        &mut self,
        file: FileNumber,
        result: Result<FileId, DiskError>,
    ) -> Result<bool, (Vec<Purpose>, DiskError)> {
        let entry = self
            .entries
            .get_mut(&file)
            .expect("a file that is being opened is kept");
        let waiting = match std::mem::replace(&mut entry.slot, Slot::Closed) {
            Slot::Opening(waiting) => waiting,
            _ => Vec::new(),
        };
        match result {
            Err(error) => {
                if entry.retired {
                    self.entries.remove(&file);
                }
                let purposes = waiting.into_iter().map(|(_, purpose)| purpose);
                Err((purposes.collect(), error))
            }
            Ok(id) => {
                self.open_count += 1;
                entry.slot = Slot::Open(id);
                entry.create = false;
                let new = std::mem::take(&mut entry.named);
                entry.in_use += waiting.len() as u32;
                for (operation, purpose) in waiting {
                    self.push(operation.with_file(id), purpose, Some(file));
                }
                Ok(new)
            }
        }
    }

    /// Closes the file once nobody uses it, and forgets it.
    pub(super) fn retire(&mut self, file: FileNumber) {
        if let Some(entry) = self.entries.get_mut(&file) {
            entry.retired = true;
        }
        self.close_unused(file);
    }

    /// Closes a file that nobody uses; it is opened again when it is needed.
    pub(super) fn close_idle(&mut self, file: FileNumber) {
        let Some(entry) = self.entries.get_mut(&file) else {
            return;
        };
        if entry.in_use == 0
            && Arc::strong_count(&entry.pin) == 1
            && let Slot::Open(id) = entry.slot
        {
            entry.slot = Slot::Closed;
            self.open_count -= 1;
            self.push(Operation::Close { file: id }, Purpose::Ignored, None);
        }
    }

    /// Closes all files that nobody uses.
    pub(super) fn close_all_idle(&mut self) {
        for file in self.entries.keys().copied().collect::<Vec<_>>() {
            self.close_idle(file);
        }
    }

    /// How many operations on files there have been.
    pub(super) fn uses(&self) -> u64 {
        self.uses
    }

    pub(super) fn open_count(&self) -> usize {
        self.open_count
    }

    pub(super) fn is_open(&self, file: FileNumber) -> bool {
        matches!(
            self.entries.get(&file),
            Some(FileEntry {
                slot: Slot::Open(_),
                ..
            })
        )
    }

    pub(super) fn last_used(&self, file: FileNumber) -> u64 {
        self.entries.get(&file).map_or(0, |entry| entry.last_used)
    }

    fn close_unused(&mut self, file: FileNumber) {
        if !self.entries.get(&file).is_some_and(|entry| entry.retired) || self.in_use(file) {
            return;
        }
        let entry = self.entries.remove(&file).expect("just seen");
        if let Slot::Open(id) = entry.slot {
            self.open_count -= 1;
            self.push(Operation::Close { file: id }, Purpose::Ignored, None);
        }
    }

    /// Closes retired files whose last reader has gone.
    pub(super) fn close_retired(&mut self) {
        let retired = self.entries.iter().filter(|(_, entry)| entry.retired);
        for file in retired.map(|(file, _)| *file).collect::<Vec<_>>() {
            self.close_unused(file);
        }
    }

    /// Retires all files.
    pub(super) fn retire_all(&mut self) {
        for file in self.entries.keys().copied().collect::<Vec<_>>() {
            self.retire(file);
        }
    }

    fn push(&mut self, operation: Operation, purpose: Purpose, file: Option<FileNumber>) {
        trace::passes!("what the log asks of the disk waits there");
        let index = self.free.pop().unwrap_or_else(|| {
            self.purposes.push(None);
            self.purposes.len() - 1
        });
        self.purposes[index] = Some((purpose, file));
        self.queue
            .push_back((OperationToken(index as u64), operation));
    }

    pub(super) fn poll(&mut self) -> Option<(OperationToken, Operation)> {
        self.queue.pop_front()
    }

    /// What the completed operation was for.
    ///
    /// # Panics
    /// If no operation of this token is under way.
    pub(super) fn completed(&mut self, token: OperationToken) -> Purpose {
        let index = token.0 as usize;
        let taken = self.purposes.get_mut(index).and_then(Option::take);
        let (purpose, file) = taken.expect("an operation is completed once");
        self.free.push(index);
        if let Some(file) = file
            && let Some(entry) = self.entries.get_mut(&file)
        {
            entry.in_use -= 1;
            if entry.retired {
                self.close_unused(file);
            }
        }
        purpose
    }
}
