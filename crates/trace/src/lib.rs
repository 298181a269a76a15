//! Marks where an event passes, in debug builds, by `tracing`. See the README.

#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};

/// The target of all marks: a subscriber that is interested in the path of events, and in nothing else, asks for it.
pub const TARGET: &str = "thalweg::path";

#[doc(hidden)]
pub use tracing;

/// Whether anybody in this process has asked for marks. Asked at each of them: `tracing`'s own look at its level takes
/// three times as many instructions in a debug build, which is what budgets are counted in.
static IS_ON: AtomicBool = AtomicBool::new(false);

/// Has marks of this process, of all threads, go to their subscribers of `tracing` from now on.
pub fn turn_on() {
    IS_ON.store(true, Ordering::Relaxed);
}

#[doc(hidden)]
#[inline(always)]
pub fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// An event has come to this file: says in a few words what happens to it here.
///
/// Stands at the beginning of what another file calls with the event, or with the batch or the message that carries it.
/// Once marks are [turned on](turn_on) it emits a `tracing` event of level TRACE with the target [`TARGET`]. In release
/// builds it is nothing at all.
#[macro_export]
macro_rules! passes {
    ($what:literal) => {
        #[cfg(debug_assertions)]
        if $crate::is_on() {
            $crate::tracing::trace!(target: $crate::TARGET, $what);
        }
    };
}
