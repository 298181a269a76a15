//! A storage driven on the calling thread, while a node is being opened.

use log::{Disk, Storage, StorageEvent};

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
