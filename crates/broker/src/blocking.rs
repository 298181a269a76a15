//! What a node does on the calling thread while it is being opened.

use crate::options::NodeError;
use log::{Disk, Operation, Outcome, Storage, StorageEvent};
use std::path::Path;

/// Carries out a storage's operations on the calling thread.
pub(crate) struct Blocking<'a> {
    pub disk: &'a dyn Disk,
}

impl Blocking<'_> {
    /// Drives a storage until an event is the one wanted. `None` if it stops before.
    pub fn wait<T>(
        &self,
        storage: &mut dyn Storage,
        mut wanted: impl FnMut(StorageEvent) -> Option<T>,
    ) -> Option<T> {
        loop {
            while let Some(event) = storage.poll_event() {
                if let Some(found) = wanted(event) {
                    return Some(found);
                }
            }
            let (token, operation) = storage.poll_operation()?;
            storage.complete(token, self.disk.execute(operation));
        }
    }
}

/// The names in a directory.
pub(crate) fn list(disk: &dyn Disk, path: &Path) -> Result<Vec<String>, NodeError> {
    let path = path.to_owned();
    match disk.execute(Operation::List { path })? {
        Outcome::Names(names) => Ok(names),
        _ => Ok(Vec::new()),
    }
}

/// Makes a directory that survives a power loss.
pub(crate) fn make_directory(disk: &dyn Disk, parent: &Path, name: &str) -> Result<(), NodeError> {
    disk.execute(Operation::CreateDirectory {
        path: parent.join(name),
    })?;
    disk.execute(Operation::SyncDirectory {
        path: parent.to_owned(),
    })?;
    Ok(())
}
