//! The end of the interpreter: what daemon threads do then, and which failures
//! the program has seen.

use client::ClientError;
use pyo3::prelude::*;
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Failures that are remembered: those of so many producers and consumers.
const TOLD_MAX: usize = 1024;

/// Whether everything is being closed.
static IS_OVER: AtomicBool = AtomicBool::new(false);

/// Failures that the program has seen, as hashes of their texts. Held for a look
/// with the GIL held, so that no fork finds it locked.
static TOLD: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());

fn key(error: &ClientError) -> u64 {
    let mut hasher = DefaultHasher::new();
    error.to_string().hash(&mut hasher);
    hasher.finish()
}

/// The program sees this failure: at the end it is not told again.
pub fn note_told(_: Python<'_>, error: &ClientError) {
    let mut told = TOLD.lock().expect("no holder panics here");
    if told.len() < TOLD_MAX {
        told.insert(key(error));
    }
}

/// A daemon thread whose consumer is closed because the interpreter ends has
/// nobody to tell: it stays where it is until the process is gone, as any thread
/// does that wants the GIL then.
pub fn park_if_over(py: Python<'_>, error: &ClientError) {
    if !matches!(error, ClientError::Closed) || !IS_OVER.load(Ordering::Relaxed) {
        return;
    }
    let is_daemon = || -> PyResult<bool> {
        let thread = py.import("threading")?.call_method0("current_thread")?;
        thread.getattr("daemon")?.is_truthy()
    };
    if is_daemon().unwrap_or(false) {
        py.detach(|| {
            loop {
                std::thread::park();
            }
        });
    }
}

/// Whether the program has seen this failure.
pub fn was_told(_: Python<'_>, error: &ClientError) -> bool {
    TOLD.lock()
        .expect("no holder panics here")
        .contains(&key(error))
}

/// Everything is being closed from now on.
pub fn begin() {
    IS_OVER.store(true, Ordering::Relaxed);
}
