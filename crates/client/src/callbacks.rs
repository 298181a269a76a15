//! Calling the program back.
//!
//! A thread of the program that drives the core in place of the client's own
//! may hold locks that the program's callbacks take. So it calls none: it
//! defers them to the client's own thread.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A callback of the program's.
pub(crate) type Callback = Box<dyn FnOnce() + Send>;

/// A client with a thread of its own, which calls callbacks that were deferred.
pub(crate) trait Defer: Send + Sync {
    fn defer(&self, callback: Callback);
}

thread_local! {
    /// The client in place of whose thread this one drives.
    static DRIVES_FOR: RefCell<Option<Arc<dyn Defer>>> = const { RefCell::new(None) };
}

thread_local! {
    /// Whether this is a client's own thread.
    static IS_CLIENTS: Cell<bool> = const { Cell::new(false) };
}

/// This thread is a client's own from now on.
pub(crate) fn become_clients_thread() {
    IS_CLIENTS.set(true);
}

/// Whether this thread drives a client, or could not if it wanted to, for it
/// is that client's own.
pub(crate) fn drives() -> bool {
    IS_CLIENTS.get() || DRIVES_FOR.with_borrow(Option::is_some)
}

/// While it lives, this thread drives in place of a client's own.
pub(crate) struct DrivesFor {
    before: Option<Arc<dyn Defer>>,
}

impl DrivesFor {
    pub fn begin(client: Arc<dyn Defer>) -> Self {
        Self {
            before: DRIVES_FOR.replace(Some(client)),
        }
    }
}

impl Drop for DrivesFor {
    fn drop(&mut self) {
        DRIVES_FOR.set(self.before.take());
    }
}

/// Calls a callback of the user's; on the client's thread, if this one drives
/// in its place: the user may hold locks here that the callback takes.
///
/// A panic in it is the user's alone: the panic hook has reported it, and the
/// thread has others to serve.
pub fn call_back(callback: impl FnOnce() + Send + 'static) {
    let client = DRIVES_FOR.with_borrow(Clone::clone);
    match client {
        Some(client) => client.defer(Box::new(callback)),
        None => call_here(callback),
    }
}

/// Calls a callback on this thread: one of ours, that takes no lock of the
/// user's and does not wait. If it is the user's after all, it goes on by
/// [`call_back`].
pub(crate) fn call_here(callback: impl FnOnce()) {
    drop(catch_unwind(AssertUnwindSafe(callback)));
}
