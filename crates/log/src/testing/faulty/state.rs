//! What a disk holds: seen, durable, and on the way between the two.

use super::{Refusal, Survival};
use crate::disk::{FileId, Operation, Outcome};
use crate::salts::splitmix;
use bytes::Bytes;
use memory::Buffer;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Debug, Clone, Default)]
pub(super) struct State {
    /// Names as programs see them.
    names: Names,
    /// Names that survive.
    durable_names: Names,
    /// Changes of names that no sync has covered, in order.
    pending_names: Vec<NameChange>,
    files: BTreeMap<u64, File>,
    open: BTreeMap<FileId, u64>,
    next: u64,
}

type Names = BTreeMap<PathBuf, Node>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Node {
    File(u64),
    Directory,
}

#[derive(Debug, Clone)]
enum NameChange {
    Add(PathBuf, Node),
    Remove(PathBuf),
    Rename(PathBuf, PathBuf),
}

/// Contents are shared with forks until they change.
#[derive(Debug, Clone, Default)]
struct File {
    seen: Arc<Vec<u8>>,
    durable: Arc<Vec<u8>>,
    pending: Vec<Pending>,
}

#[derive(Debug, Clone)]
struct Pending {
    change: Change,
    /// A failed sync has covered it: later ones do not.
    doomed: bool,
}

#[derive(Debug, Clone)]
enum Change {
    Write(u64, Bytes),
    Length(u64),
}

fn apply(change: &Change, bytes: &mut Vec<u8>) {
    match change {
        Change::Write(position, new) => {
            let start = *position as usize;
            let end = start + new.len();
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            bytes[start..end].copy_from_slice(new);
        }
        Change::Length(length) => bytes.resize(*length as usize, 0),
    }
}

fn apply_name(change: &NameChange, names: &mut Names) {
    match change {
        NameChange::Add(path, node) => {
            names.insert(path.clone(), *node);
        }
        NameChange::Remove(path) => {
            names.remove(path);
        }
        NameChange::Rename(from, to) => {
            if let Some(node) = names.remove(from) {
                names.insert(to.clone(), node);
            }
            // What is in a directory goes with it.
            let within: Vec<PathBuf> = names
                .keys()
                .filter(|name| name.starts_with(from))
                .cloned()
                .collect();
            for name in within {
                if let (Some(node), Ok(rest)) = (names.remove(&name), name.strip_prefix(from)) {
                    names.insert(to.join(rest), node);
                }
            }
        }
    }
}

impl NameChange {
    fn is_in(&self, directory: &Path) -> bool {
        let (Self::Add(path, _) | Self::Remove(path) | Self::Rename(path, _)) = self;
        path.parent() == Some(directory)
    }
}

impl File {
    fn change(&mut self, change: Change) {
        apply(&change, Arc::make_mut(&mut self.seen));
        self.pending.push(Pending {
            change,
            doomed: false,
        });
    }

    fn sync(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let durable = Arc::make_mut(&mut self.durable);
        for pending in self.pending.drain(..).filter(|pending| !pending.doomed) {
            apply(&pending.change, durable);
        }
    }
}

impl State {
    fn is_directory(&self, path: &Path) -> bool {
        path == Path::new("/") || self.names.get(path) == Some(&Node::Directory)
    }

    fn change_name(&mut self, change: NameChange) {
        apply_name(&change, &mut self.names);
        self.pending_names.push(change);
    }

    fn open_file(&mut self, file: u64) -> Outcome {
        self.next += 1;
        self.open.insert(FileId(self.next), file);
        Outcome::File(FileId(self.next))
    }

    fn file(&mut self, id: FileId) -> Result<&mut File, Refusal> {
        let file = self.open.get(&id).ok_or(Refusal::NotOpen)?;
        self.files.get_mut(file).ok_or(Refusal::NotOpen)
    }

    pub(super) fn write(&mut self, id: FileId, position: u64, bytes: Bytes) -> Result<(), Refusal> {
        self.file(id)?.change(Change::Write(position, bytes));
        Ok(())
    }

    pub(super) fn perform(&mut self, operation: &Operation) -> Result<Outcome, Refusal> {
        match operation {
            Operation::Create { path } => {
                if self.names.contains_key(path) {
                    return Err(Refusal::Exists);
                }
                if !path
                    .parent()
                    .is_some_and(|parent| self.is_directory(parent))
                {
                    return Err(Refusal::NotFound);
                }
                self.next += 1;
                let file = self.next;
                self.files.insert(file, File::default());
                self.change_name(NameChange::Add(path.clone(), Node::File(file)));
                return Ok(self.open_file(file));
            }
            Operation::Open { path } => match self.names.get(path) {
                Some(Node::File(file)) => {
                    let file = *file;
                    return Ok(self.open_file(file));
                }
                _ => return Err(Refusal::NotFound),
            },
            Operation::Close { file } => {
                self.open.remove(file).ok_or(Refusal::NotOpen)?;
            }
            Operation::Write {
                file,
                position,
                bytes,
            }
            | Operation::WriteDirect {
                file,
                position,
                bytes,
            } => self.write(*file, *position, Bytes::from(bytes.concat()))?,
            Operation::Read {
                file,
                position,
                bytes,
            } => {
                let seen = &self.file(*file)?.seen;
                let read = place(seen, *position, *bytes);
                return Ok(Outcome::Bytes(Buffer::copy_of(read)));
            }
            Operation::ReadPlaces { file, places } => {
                let seen = &self.file(*file)?.seen;
                let mut read = Vec::new();
                for (position, bytes) in places {
                    let piece = place(seen, *position, *bytes);
                    read.extend_from_slice(piece);
                    if piece.len() < *bytes {
                        break;
                    }
                }
                return Ok(Outcome::Bytes(Buffer::copy_of(&read)));
            }
            Operation::Allocate { file, bytes } => {
                let file = self.file(*file)?;
                if (file.seen.len() as u64) < *bytes {
                    file.change(Change::Length(*bytes));
                }
            }
            Operation::SetLength { file, bytes } => {
                self.file(*file)?.change(Change::Length(*bytes))
            }
            Operation::Length { file } => {
                return Ok(Outcome::Length(self.file(*file)?.seen.len() as u64));
            }
            Operation::SyncData { file } => self.file(*file)?.sync(),
            Operation::SyncDirectory { path } => self.sync_directory(path)?,
            Operation::CreateDirectory { path } => self.create_directory(path)?,
            Operation::List { path } => return self.list(path),
            Operation::Rename { from, to } => {
                if !self.names.contains_key(from) {
                    return Err(Refusal::NotFound);
                }
                self.change_name(NameChange::Rename(from.clone(), to.clone()));
            }
            Operation::Remove { path } => match self.names.get(path) {
                Some(Node::File(_)) => self.change_name(NameChange::Remove(path.clone())),
                _ => return Err(Refusal::NotFound),
            },
            Operation::RemoveDirectory { path } => {
                if !self.is_directory(path) {
                    return Err(Refusal::NotFound);
                }
                if self.names.keys().any(|name| name.parent() == Some(path)) {
                    return Err(Refusal::NotEmpty);
                }
                self.change_name(NameChange::Remove(path.clone()));
            }
        }
        Ok(Outcome::Done)
    }

    fn sync_directory(&mut self, path: &Path) -> Result<(), Refusal> {
        if !self.is_directory(path) {
            return Err(Refusal::NotFound);
        }
        let durable_names = &mut self.durable_names;
        self.pending_names.retain(|change| {
            let covered = change.is_in(path);
            if covered {
                apply_name(change, durable_names);
            }
            !covered
        });
        Ok(())
    }

    fn create_directory(&mut self, path: &Path) -> Result<(), Refusal> {
        if self.is_directory(path) {
            return Ok(());
        }
        if self.names.contains_key(path) {
            return Err(Refusal::Exists);
        }
        if !path
            .parent()
            .is_some_and(|parent| self.is_directory(parent))
        {
            return Err(Refusal::NotFound);
        }
        self.change_name(NameChange::Add(path.to_owned(), Node::Directory));
        Ok(())
    }

    fn list(&self, path: &Path) -> Result<Outcome, Refusal> {
        if !self.is_directory(path) {
            return Err(Refusal::NotFound);
        }
        let within = self.names.keys().filter(|name| name.parent() == Some(path));
        let name = |path: &PathBuf| Some(path.file_name()?.to_str()?.to_owned());
        Ok(Outcome::Names(within.filter_map(name).collect()))
    }

    /// Makes later syncs not cover what is pending.
    pub(super) fn doom(&mut self, id: FileId) {
        if let Ok(file) = self.file(id) {
            for pending in &mut file.pending {
                pending.doomed = true;
            }
        }
    }

    pub(super) fn close_all(&mut self) {
        self.open.clear();
    }

    pub(super) fn lose_power(&mut self, survival: Survival) {
        let mut random = Random(match survival {
            Survival::Some(seed) => seed,
            _ => 0,
        });
        // Some losses take nearly all, some nearly nothing.
        let keep_of_16 = random.below(17);
        let mut names = std::mem::take(&mut self.durable_names);
        for change in std::mem::take(&mut self.pending_names) {
            let survives = match survival {
                Survival::Nothing => false,
                Survival::Some(_) => random.below(16) < keep_of_16,
                _ => true,
            };
            if survives {
                apply_name(&change, &mut names);
            }
        }
        // What was in a directory that is gone is gone with it.
        let known = names.clone();
        names.retain(|path, _| {
            let parent = path.parent().unwrap_or(Path::new("/"));
            parent == Path::new("/") || known.contains_key(parent)
        });
        let paths: BTreeMap<u64, PathBuf> = self
            .names
            .iter()
            .chain(&names)
            .filter_map(|(path, node)| match node {
                Node::File(file) => Some((*file, path.clone())),
                Node::Directory => None,
            })
            .collect();
        for (id, file) in &mut self.files {
            let pending = std::mem::take(&mut file.pending);
            let last = pending.len().saturating_sub(1);
            for (index, pending) in pending.into_iter().enumerate() {
                let change = match survival {
                    Survival::Nothing | Survival::Names => None,
                    Survival::All => (!pending.doomed).then_some(pending.change),
                    Survival::Last => (index == last).then_some(pending.change),
                    Survival::Files(ending) => {
                        let path = paths.get(id).and_then(|path| path.to_str());
                        let matching = path.is_some_and(|path| path.ends_with(ending));
                        (matching && !pending.doomed).then_some(pending.change)
                    }
                    Survival::Some(_) => {
                        (random.below(16) < keep_of_16).then(|| torn(pending.change, &mut random))
                    }
                };
                if let Some(change) = change {
                    apply(&change, Arc::make_mut(&mut file.durable));
                }
            }
            file.seen = file.durable.clone();
        }
        let linked: Vec<u64> = names
            .values()
            .filter_map(|node| match node {
                Node::File(file) => Some(*file),
                Node::Directory => None,
            })
            .collect();
        self.files.retain(|file, _| linked.contains(file));
        self.names = names.clone();
        self.durable_names = names;
    }

    pub(super) fn flip(&mut self, path: &Path, bit: u64) -> bool {
        let Some(Node::File(file)) = self.names.get(path) else {
            return false;
        };
        let Some(file) = self.files.get_mut(file) else {
            return false;
        };
        let (byte, mask) = ((bit / 8) as usize, 1 << (bit % 8));
        let Some(seen) = Arc::make_mut(&mut file.seen).get_mut(byte) else {
            return false;
        };
        *seen ^= mask;
        let flipped = *seen;
        if let Some(durable) = Arc::make_mut(&mut file.durable).get_mut(byte) {
            *durable ^= mask;
        }
        // What is still to be written carries the flipped bit as well.
        let change = Change::Write(byte as u64, Bytes::copy_from_slice(&[flipped]));
        let covered = |pending: &Pending| match &pending.change {
            Change::Write(position, bytes) => {
                (*position..*position + bytes.len() as u64).contains(&(byte as u64))
            }
            Change::Length(_) => false,
        };
        if file.pending.iter().any(covered) {
            file.pending.push(Pending {
                change,
                doomed: false,
            });
        }
        true
    }

    pub(super) fn content(&self, path: &Path) -> Option<Vec<u8>> {
        match self.names.get(path)? {
            Node::File(file) => Some(self.files.get(file)?.seen.to_vec()),
            Node::Directory => None,
        }
    }

    pub(super) fn paths(&self) -> Vec<PathBuf> {
        let files = self
            .names
            .iter()
            .filter(|(_, node)| matches!(node, Node::File(_)));
        files.map(|(path, _)| path.clone()).collect()
    }

    pub(super) fn path_of(&self, id: FileId) -> Option<PathBuf> {
        let file = Node::File(*self.open.get(&id)?);
        let mut names = self.names.iter();
        names
            .find(|(_, node)| **node == file)
            .map(|(path, _)| path.clone())
    }

    pub(super) fn open_paths(&self) -> Vec<PathBuf> {
        self.open
            .keys()
            .filter_map(|id| self.path_of(*id))
            .collect()
    }

    pub(super) fn length(&self, id: FileId) -> Option<u64> {
        let file = self.open.get(&id)?;
        Some(self.files.get(file)?.seen.len() as u64)
    }

    /// The sum of the lengths of all files that have a name.
    pub(super) fn used(&self) -> u64 {
        let of = |node: &Node| match node {
            Node::File(file) => self
                .files
                .get(file)
                .map_or(0, |file| file.seen.len() as u64),
            Node::Directory => 0,
        };
        self.names.values().map(of).sum()
    }
}

/// A quarter of the writes that survive do so in part.
fn torn(change: Change, random: &mut Random) -> Change {
    let Change::Write(position, bytes) = &change else {
        return change;
    };
    if bytes.len() < 2 || random.below(4) > 0 {
        return change;
    }
    let at = 1 + random.below(bytes.len() as u64 - 1);
    match random.below(2) {
        0 => Change::Write(*position, bytes.slice(..at as usize)),
        _ => Change::Write(position + at, bytes.slice(at as usize..)),
    }
}

/// Numbers that look random and follow from a seed.
#[derive(Debug, Clone)]
pub(super) struct Random(pub(super) u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        splitmix(self.0) % bound
    }
}

/// So many bytes from there, fewer if there are no more.
fn place(seen: &[u8], position: u64, bytes: usize) -> &[u8] {
    let start = (position as usize).min(seen.len());
    &seen[start..start.saturating_add(bytes).min(seen.len())]
}
