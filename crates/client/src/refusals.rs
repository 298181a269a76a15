//! What the server has against batches that are sent again and again.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use wire::ErrorReply;

/// Of one producer, the last refusal of each partition that has stored
/// nothing since. Written by the core, read by a thread that gives up waiting.
#[derive(Default)]
pub(crate) struct Refusals {
    last: Mutex<BTreeMap<u32, ErrorReply>>,
}

impl Refusals {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, ErrorReply>> {
        self.last.lock().expect("no holder panics here")
    }

    /// A batch was refused, and is to be sent again.
    pub fn note(&self, partition: u32, error: ErrorReply) {
        self.lock().insert(partition, error);
    }

    /// A batch was stored.
    pub fn forget(&self, partition: u32) {
        self.lock().remove(&partition);
    }

    /// Why no batch of `partition` is stored for now.
    pub fn standing(&self, partition: u32) -> Option<ErrorReply> {
        self.lock().get(&partition).cloned()
    }

    /// What a wait for `partition` adds to its error.
    pub fn describe(&self, partition: u32) -> String {
        match self.lock().get(&partition) {
            None => String::new(),
            Some(error) => format!("; the server refuses for now: {error}"),
        }
    }

    /// What a wait for any partition adds to its error.
    pub fn describe_any(&self) -> String {
        match self.lock().values().next() {
            None => String::new(),
            Some(error) => format!("; the server refuses for now: {error}"),
        }
    }
}
