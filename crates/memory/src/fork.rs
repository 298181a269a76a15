//! What survives `fork()`: nothing but the knowledge that it happened.
//!
//! In the child, threads of the parent are gone and their locks may be held
//! for ever. So whatever owns threads or sockets lives in a [`ForkSlot`]: a
//! child finds its slot stale and makes anew, without locking or dropping
//! what the parent made.

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Once};

/// How often this process line has forked. Written only by the handler in a
/// fresh child, which has one thread.
static GENERATION: AtomicU64 = AtomicU64::new(0);

extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// The generation of this process: greater in a child than in its parent.
pub fn generation() -> u64 {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        // SAFETY: `pthread_atfork` may be called at any time; the handler only
        // increments an atomic, which is async-signal-safe, and is never unloaded
        // before the process ends because it is in the same object as its users.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
    GENERATION.load(Ordering::Relaxed)
}

/// A value of which every process has its own.
pub struct ForkSlot<T> {
    entry: AtomicPtr<Entry<T>>,
}

struct Entry<T> {
    generation: u64,
    value: Arc<T>,
}

impl<T> Default for ForkSlot<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> ForkSlot<T> {
    /// An empty slot.
    pub const fn new() -> Self {
        Self {
            entry: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// This process's value, if it has one.
    pub fn get(&self) -> Option<Arc<T>> {
        let entry = self.entry.load(Ordering::Acquire);
        if entry.is_null() {
            return None;
        }
        // SAFETY: a non-null entry was leaked by `get_or_make` and is freed
        // only by `drop`, which has the slot for itself.
        let entry = unsafe { &*entry };
        (entry.generation == generation()).then(|| entry.value.clone())
    }

    /// This process's value, made by `make` if it has none. A value of the
    /// parent is left as it is, neither locked nor dropped.
    pub fn get_or_make<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<Arc<T>, E> {
        if let Some(value) = self.get() {
            return Ok(value);
        }
        let stale = self.entry.load(Ordering::Acquire);
        let value = Arc::new(make()?);
        let fresh = Box::new(Entry {
            generation: generation(),
            value: value.clone(),
        });
        let fresh = Box::into_raw(fresh);
        match self
            .entry
            .compare_exchange(stale, fresh, Ordering::AcqRel, Ordering::Acquire)
        {
            Ok(_) => Ok(value),
            Err(_) => {
                // Another thread of this process was faster; take its value.
                // SAFETY: `fresh` came from `Box::into_raw` above and was not shared.
                drop(unsafe { Box::from_raw(fresh) });
                Ok(self.get().expect("whoever replaced the slot filled it"))
            }
        }
    }
}

impl<T> Drop for ForkSlot<T> {
    fn drop(&mut self) {
        let entry = *self.entry.get_mut();
        if entry.is_null() {
            return;
        }
        // SAFETY: as in `get`; `&mut self` says that nobody else looks.
        let stale = unsafe { (*entry).generation != generation() };
        if !stale {
            // SAFETY: it came from `Box::into_raw` and is dropped once.
            drop(unsafe { Box::from_raw(entry) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_makes_its_own() {
        let slot = ForkSlot::<String>::new();
        assert!(slot.get().is_none());
        let value = slot
            .get_or_make(|| Ok::<_, ()>("parent".to_owned()))
            .unwrap();
        assert!(Arc::ptr_eq(&value, &slot.get().unwrap()));
        // SAFETY: the child only reads atomics, allocates a little and leaves by `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let empty = slot.get().is_none();
            let own = slot
                .get_or_make(|| Ok::<_, ()>("child".to_owned()))
                .unwrap();
            // SAFETY: ends the child without running the parent's destructors.
            unsafe { libc::_exit(if empty && *own == "child" { 7 } else { 1 }) };
        }
        let mut status = 0;
        // SAFETY: waits for the child made above.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(libc::WEXITSTATUS(status), 7);
        assert_eq!(*slot.get().unwrap(), "parent");
    }
}
