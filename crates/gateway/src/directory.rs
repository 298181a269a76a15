//! The gateway's directory. Its files are in the README.

use crate::error::GatewayError;
use crate::faults::{Fault, planted};
use crate::files;
use crate::names::InstanceName;
use crate::record::Record;
use memory::LockedFile;
use std::fs::{OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const INSTANCES: &str = "instances";
const ARCHIVE: &str = "archive";
const RECORD: &str = "record.json";
const RECORD_BYTES_MAX: u64 = 64 << 10;

/// The gateway's directory, which one gateway has at a time.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    _lock: LockedFile,
}

/// The folder of an instance.
pub fn folder_of(root: &Path, instance: &InstanceName) -> PathBuf {
    let project = root.join(INSTANCES).join(instance.project());
    project.join(instance.name())
}

impl Directory {
    /// Opens the directory, and makes what is missing of it.
    ///
    /// # Errors
    /// [`GatewayError::Locked`] if another gateway has it.
    pub fn open(path: &Path) -> Result<Self, GatewayError> {
        files::make_private(path)?;
        let path = path.canonicalize();
        let path = path.map_err(GatewayError::file("finding the directory".to_owned()))?;
        for folder in [INSTANCES, ARCHIVE] {
            files::make_private(&path.join(folder))?;
        }
        let name = path.join("lock");
        let attempt = || format!("locking {}", name.display());
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&name)
            .map_err(GatewayError::file(attempt()))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self {
                path,
                _lock: LockedFile::new(lock),
            }),
            Err(TryLockError::WouldBlock) => Err(GatewayError::Locked(path)),
            Err(TryLockError::Error(error)) => Err(GatewayError::file(attempt())(error)),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder of an instance.
    pub fn folder(&self, instance: &InstanceName) -> PathBuf {
        folder_of(&self.path, instance)
    }

    /// What is known of all instances, and what could not be read.
    ///
    /// # Errors
    /// If a folder cannot be listed.
    pub fn records(&self) -> Result<(Vec<Record>, Vec<String>), GatewayError> {
        let (mut records, mut strange) = (Vec::new(), Vec::new());
        for project in folders(&self.path.join(INSTANCES))? {
            for folder in folders(&project)? {
                match read(&folder) {
                    Ok(Some(record)) if self.folder(&record.instance()) == folder => {
                        records.push(record);
                    }
                    Ok(Some(_)) => strange.push(format!(
                        "{}: its record is another instance's",
                        folder.display()
                    )),
                    // Its making was cut short, before anybody was told of it.
                    Ok(None) => drop(std::fs::remove_dir(&folder)),
                    Err(error) => strange.push(error.to_string()),
                }
            }
        }
        Ok((records, strange))
    }

    /// Keeps what is known of an instance, durably.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn keep(&self, record: &Record) -> Result<(), GatewayError> {
        let folder = self.folder(&record.instance());
        if !folder.is_dir() {
            files::make_private(&folder)?;
            let project = folder.parent().unwrap_or(&self.path);
            for made in [&folder, project] {
                let synced = files::sync_parent(made);
                synced.map_err(GatewayError::file(format!(
                    "syncing above {}",
                    made.display()
                )))?;
            }
        }
        files::write(&folder.join(RECORD), record.to_json().as_bytes())
    }

    /// Moves all files of an instance into `archive`, under its name and the time. Nothing is removed.
    ///
    /// # Errors
    /// If it cannot be moved.
    pub fn archive(&self, instance: &InstanceName, now: u64) -> Result<PathBuf, GatewayError> {
        let from = self.folder(instance);
        let base = format!("{}.{}.{now}", instance.project(), instance.name());
        let free = |count: u32| {
            let path = self.path.join(ARCHIVE).join(format!("{base}.{count}"));
            (!path.exists()).then_some(path)
        };
        let to = (0..).find_map(free).expect("one of all numbers is free");
        let moved = match planted(Fault::RemoveAtOnce) {
            true => std::fs::remove_dir_all(&from),
            false => std::fs::rename(&from, &to),
        };
        let synced = moved
            .and_then(|()| files::sync_parent(&to))
            .and_then(|()| files::sync_parent(&from));
        synced.map_err(GatewayError::file(format!(
            "moving {} to {}",
            from.display(),
            to.display()
        )))?;
        Ok(to)
    }
}

fn read(folder: &Path) -> Result<Option<Record>, GatewayError> {
    let path = folder.join(RECORD);
    let Some(text) = files::read_if_there(&path, RECORD_BYTES_MAX)? else {
        return Ok(None);
    };
    let record = Record::parse(&text);
    record
        .map(Some)
        .map_err(|why| GatewayError::Content(path, why))
}

fn folders(path: &Path) -> Result<Vec<PathBuf>, GatewayError> {
    let list = || -> std::io::Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(path)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                found.push(entry.path());
            }
        }
        found.sort();
        Ok(found)
    };
    list().map_err(GatewayError::file(format!("listing {}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults;
    use crate::record::Resources;

    fn record(name: &str) -> Record {
        let name = InstanceName::new("stf008", name).unwrap();
        Record::new(&name, "rabbitmq", Resources::default(), 1000)
    }

    #[test]
    fn one_gateway_has_a_directory_and_the_next_knows_what_it_knew() {
        let parent = tempfile::tempdir().unwrap();
        let directory = Directory::open(parent.path()).unwrap();
        let locked = Directory::open(parent.path());
        assert!(matches!(locked, Err(GatewayError::Locked(_))));
        directory.keep(&record("a")).unwrap();
        directory.keep(&record("b")).unwrap();
        drop(directory);
        let directory = Directory::open(parent.path()).unwrap();
        // Amid the making of one, and one that is damaged.
        std::fs::create_dir(directory.path().join("instances/stf008/c")).unwrap();
        std::fs::create_dir(directory.path().join("instances/stf008/d")).unwrap();
        std::fs::write(directory.path().join("instances/stf008/d/record.json"), "{").unwrap();
        let (records, strange) = directory.records().unwrap();
        assert_eq!(records, [record("a"), record("b")]);
        assert_eq!(strange.len(), 1);
        assert!(strange[0].contains("stf008/d/record.json"), "{strange:?}");
    }

    #[test]
    fn what_is_archived_is_moved_whole_and_its_name_is_free_again() {
        let parent = tempfile::tempdir().unwrap();
        let directory = Directory::open(parent.path()).unwrap();
        let round = || {
            directory.keep(&record("a")).unwrap();
            let folder = directory.folder(&record("a").instance());
            std::fs::write(folder.join("event"), "7").unwrap();
            let to = directory.archive(&record("a").instance(), 5).unwrap();
            assert!(!folder.exists());
            std::fs::read_to_string(to.join("event")).ok()
        };
        assert_eq!(round().as_deref(), Some("7"));
        assert_eq!(round().as_deref(), Some("7"));
        assert_eq!(faults::with(Fault::RemoveAtOnce, round), None);
    }
}
