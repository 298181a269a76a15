//! A disk on which something can be tried: what is changed stays in memory.

use crate::disk::{Disk, DiskError, DiskErrorKind, FileId, Operation, Outcome};
use ::memory::Buffer;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Reads what is on another disk, and keeps every change to itself.
///
/// A file that is changed is copied into memory whole: for opening a partition whose size is
/// bounded, to see what that would do. Nothing that is written survives the value, and nothing
/// of the other disk is changed.
pub struct DryRun {
    disk: Arc<dyn Disk>,
    /// Guards all that was changed; held for the length of an operation.
    changed: Mutex<Changed>,
}

#[derive(Default)]
struct Changed {
    /// Files that differ from the disk's; `None` was removed.
    files: BTreeMap<PathBuf, Option<Vec<u8>>>,
    directories: BTreeSet<PathBuf>,
    open: BTreeMap<FileId, Open>,
    last_file: u64,
}

#[derive(Clone)]
struct Open {
    path: PathBuf,
    /// The file on the disk, as long as it was not changed.
    on_disk: Option<FileId>,
}

impl DryRun {
    /// A dry run on `disk`.
    pub fn new(disk: Arc<dyn Disk>) -> Self {
        Self {
            disk,
            changed: Mutex::default(),
        }
    }

    /// All bytes of a file of the disk.
    fn whole(&self, path: &Path) -> Result<Vec<u8>, DiskError> {
        let path = path.to_owned();
        let Outcome::File(file) = self.disk.execute(Operation::Open { path })? else {
            unreachable!("opening gives a file");
        };
        let Outcome::Length(bytes) = self.disk.execute(Operation::Length { file })? else {
            unreachable!("asking the length gives it");
        };
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let read = Operation::Read {
            file,
            position: 0,
            bytes,
        };
        let Outcome::Bytes(read) = self.disk.execute(read)? else {
            unreachable!("reading gives bytes");
        };
        self.disk.execute(Operation::Close { file })?;
        Ok(read.to_vec())
    }

    /// The content of a file that is about to be changed.
    fn content<'a>(
        &self,
        changed: &'a mut Changed,
        path: &Path,
    ) -> Result<&'a mut Vec<u8>, DiskError> {
        if !changed.files.contains_key(path) {
            let bytes = self.whole(path)?;
            changed.files.insert(path.to_owned(), Some(bytes));
        }
        let content = changed.files.get_mut(path).and_then(Option::as_mut);
        content.ok_or_else(|| refusal(DiskErrorKind::NotFound, path))
    }

    fn open(&self, changed: &mut Changed, path: &Path) -> Result<Outcome, DiskError> {
        let on_disk = match changed.files.get(path) {
            Some(Some(_)) => None,
            Some(None) => return Err(refusal(DiskErrorKind::NotFound, path)),
            None => {
                let path = path.to_owned();
                match self.disk.execute(Operation::Open { path })? {
                    Outcome::File(file) => Some(file),
                    other => unreachable!("opening gives a file, not {other:?}"),
                }
            }
        };
        changed.last_file += 1;
        let id = FileId(changed.last_file);
        let path = path.to_owned();
        changed.open.insert(id, Open { path, on_disk });
        Ok(Outcome::File(id))
    }

    fn list(&self, changed: &Changed, path: &Path) -> Result<Outcome, DiskError> {
        let listed = self.disk.execute(Operation::List {
            path: path.to_owned(),
        });
        let mut names: BTreeSet<String> = match listed {
            Ok(Outcome::Names(names)) => names.into_iter().collect(),
            Ok(other) => unreachable!("listing gives names, not {other:?}"),
            Err(error)
                if error.kind == DiskErrorKind::NotFound && changed.directories.contains(path) =>
            {
                BTreeSet::new()
            }
            Err(error) => return Err(error),
        };
        for (file, content) in &changed.files {
            let name = file.file_name().and_then(|name| name.to_str());
            if let Some(name) = name.filter(|_| file.parent() == Some(path)) {
                match content {
                    Some(_) => names.insert(name.to_owned()),
                    None => names.remove(name),
                };
            }
        }
        Ok(Outcome::Names(names.into_iter().collect()))
    }
}

impl Disk for DryRun {
    fn execute(&self, operation: Operation) -> Result<Outcome, DiskError> {
        let mut changed = self.changed.lock().expect("no holder panics");
        let changed = &mut *changed;
        let file = |changed: &Changed, file: FileId| {
            let open = changed.open.get(&file).cloned();
            open.ok_or_else(|| refusal(DiskErrorKind::Failed, Path::new("a file that is closed")))
        };
        match operation {
            Operation::Create { path } => {
                let there = match changed.files.get(&path) {
                    Some(content) => content.is_some(),
                    None => self.whole(&path).is_ok(),
                };
                if there {
                    return Err(refusal(DiskErrorKind::Exists, &path));
                }
                changed.files.insert(path.clone(), Some(Vec::new()));
                return self.open(changed, &path);
            }
            Operation::Open { path } => return self.open(changed, &path),
            Operation::Close { file } => {
                if let Some(file) = changed.open.remove(&file).and_then(|open| open.on_disk) {
                    self.disk.execute(Operation::Close { file })?;
                }
            }
            Operation::Write {
                file: id,
                position,
                bytes,
            }
            | Operation::WriteDirect {
                file: id,
                position,
                bytes,
            } => {
                let open = file(changed, id)?;
                let content = self.content(changed, &open.path)?;
                let bytes = bytes.concat();
                let start = position as usize;
                if content.len() < start + bytes.len() {
                    content.resize(start + bytes.len(), 0);
                }
                content[start..start + bytes.len()].copy_from_slice(&bytes);
            }
            Operation::SetLength { file: id, bytes } => {
                let open = file(changed, id)?;
                self.content(changed, &open.path)?.resize(bytes as usize, 0);
            }
            Operation::Read {
                file: id,
                position,
                bytes,
            } => {
                let places = vec![(position, bytes)];
                return self.read(changed, file(changed, id)?, places);
            }
            Operation::ReadPlaces { file: id, places } => {
                return self.read(changed, file(changed, id)?, places);
            }
            Operation::Length { file: id } => {
                let open = file(changed, id)?;
                if let Some(content) = changed.files.get(&open.path) {
                    let bytes = content.as_ref().map_or(0, Vec::len);
                    return Ok(Outcome::Length(bytes as u64));
                }
                let file = open.on_disk.expect("what is not changed is on the disk");
                return self.disk.execute(Operation::Length { file });
            }
            Operation::CreateDirectory { path } => {
                changed.directories.insert(path);
            }
            Operation::List { path } => return self.list(changed, &path),
            Operation::Rename { from, to } => {
                let content = std::mem::take(self.content(changed, &from)?);
                changed.files.insert(from, None);
                changed.files.insert(to, Some(content));
            }
            Operation::Remove { path } => {
                self.content(changed, &path)?;
                changed.files.insert(path, None);
            }
            // Room is there, and nothing has to survive anything.
            Operation::Allocate { .. }
            | Operation::SyncData { .. }
            | Operation::SyncDirectory { .. }
            | Operation::RemoveDirectory { .. } => {}
        }
        Ok(Outcome::Done)
    }
}

impl DryRun {
    fn read(
        &self,
        changed: &Changed,
        open: Open,
        places: Vec<(u64, usize)>,
    ) -> Result<Outcome, DiskError> {
        let Some(content) = changed.files.get(&open.path) else {
            let file = open.on_disk.expect("what is not changed is on the disk");
            return self.disk.execute(Operation::ReadPlaces { file, places });
        };
        let content = content.as_deref().unwrap_or_default();
        let mut read = Vec::new();
        for (position, bytes) in places {
            let from = (position as usize).min(content.len());
            let to = from.saturating_add(bytes).min(content.len());
            read.extend_from_slice(&content[from..to]);
            if to - from < bytes {
                break;
            }
        }
        Ok(Outcome::Bytes(Buffer::copy_of(&read)))
    }
}

fn refusal(kind: DiskErrorKind, path: &Path) -> DiskError {
    DiskError {
        kind,
        attempt: format!("trying with {}", path.display()),
        source: match kind {
            DiskErrorKind::NotFound => io::ErrorKind::NotFound.into(),
            DiskErrorKind::Exists => io::ErrorKind::AlreadyExists.into(),
            _ => io::Error::other("this cannot be tried"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocking::Blocking;
    use crate::os_disk::OsDisk;
    use bytes::Bytes;

    #[test]
    fn changes_are_seen_through_it_and_never_reach_the_disk() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        std::fs::write(path("kept"), "kept").unwrap();
        std::fs::write(path("gone"), "gone").unwrap();
        let dry = DryRun::new(Arc::new(OsDisk::new()));
        let disk = Blocking(&dry);
        let file = disk.open(path("kept")).unwrap();
        assert_eq!(&disk.read(file, 1, 10).unwrap()[..], b"ept");
        disk.write(file, 4, Bytes::from_static(b"more")).unwrap();
        assert_eq!(&disk.read(file, 0, 10).unwrap()[..], b"keptmore");
        disk.set_length(file, 2).unwrap();
        assert_eq!(disk.length(file).unwrap(), 2);
        disk.remove(path("gone")).unwrap();
        assert!(disk.open(path("gone")).is_err());
        assert!(disk.create(path("kept")).is_err());
        let made = disk.create(path("made")).unwrap();
        disk.write(made, 2, Bytes::from_static(b"x")).unwrap();
        let from = path("made");
        let to = path("named");
        dry.execute(Operation::Rename { from, to }).unwrap();
        assert_eq!(disk.list(directory.path()).unwrap(), ["kept", "named"]);
        let named = disk.open(path("named")).unwrap();
        assert_eq!(&disk.read(named, 0, 9).unwrap()[..], b"\0\0x");
        disk.create_directory(&path("inner")).unwrap();
        assert!(disk.list(&path("inner")).unwrap().is_empty());
        let real = Blocking(dry.disk.as_ref());
        assert_eq!(real.list(directory.path()).unwrap(), ["gone", "kept"]);
        assert_eq!(std::fs::read(path("kept")).unwrap(), b"kept");
    }
}
