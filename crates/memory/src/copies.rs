//! Copies of event data, counted.
//!
//! Every place that copies data of events from memory to memory does it
//! through here, so that a test can say how often data was copied on its way.
//! Copies between kernel and user are the transports' and not counted.

use std::sync::atomic::{AtomicU64, Ordering};

static BYTES: AtomicU64 = AtomicU64::new(0);

/// Copies `from` to `to` and counts it.
///
/// # Panics
/// If the lengths differ.
#[inline]
pub fn copy(from: &[u8], to: &mut [u8]) {
    to.copy_from_slice(from);
    // A counter: nothing is ordered by it.
    BYTES.fetch_add(from.len() as u64, Ordering::Relaxed);
}

/// Bytes of event data copied by this process so far.
pub fn bytes() -> u64 {
    BYTES.load(Ordering::Relaxed)
}
