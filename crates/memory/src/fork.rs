//! What survives `fork()`: nothing but the knowledge that it happened.
//!
//! In the child, threads of the parent are gone and their locks may be held
//! for ever. So whatever owns threads or sockets lives in a [`ForkSlot`]: a
//! child finds its slot stale and makes anew, without locking or dropping
//! what the parent made.

use crate::thread;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Once};

/// How often this process line has forked. Written only by the handler in a
/// fresh child, which has one thread.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// Descriptors that a child closes. Written by the owner of a descriptor, read
/// by the handler in a fresh child.
static CLOSED_IN_CHILD: [Registered; DESCRIPTORS_MAX] = [const {
    Registered {
        descriptor: AtomicI32::new(FREE),
        file: AtomicU64::new(0),
    }
}; DESCRIPTORS_MAX];

/// A descriptor that a child closes.
struct Registered {
    /// Its number, or one of the two below.
    descriptor: AtomicI32,
    /// What was open under that number, see [`file_of`].
    file: AtomicU64,
}

const FREE: i32 = -1;
/// Its owner has the entry and has not written all of it.
const TAKEN: i32 = -2;

/// Distinguishes open files: the inode and the device that it is of.
/// Sockets, pipes and shared memory each have an inode of their own; event and
/// polling descriptors share one.
fn file_of(descriptor: i32) -> Option<u64> {
    let mut status = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `fstat` fills the status if it succeeds, and is async-signal-safe.
    let status = unsafe {
        if libc::fstat(descriptor, status.as_mut_ptr()) != 0 {
            return None;
        }
        status.assume_init()
    };
    Some(status.st_ino ^ status.st_dev.rotate_left(32))
}

/// Descriptors beyond this stay open in children.
const DESCRIPTORS_MAX: usize = 1024;

extern "C" fn in_child() {
    thread::unlock_after_fork();
    GENERATION.fetch_add(1, Ordering::Relaxed);
    for entry in &CLOSED_IN_CHILD {
        let descriptor = entry.descriptor.swap(FREE, Ordering::Relaxed);
        // An owner may have closed it a moment before the fork, and the number may
        // be a stranger's by now.
        if descriptor >= 0 && file_of(descriptor) == Some(entry.file.load(Ordering::Relaxed)) {
            // SAFETY: the descriptor belongs to an object of the parent, which
            // says by its `ClosedInChild` that nobody uses or drops it in a
            // child; `close` is async-signal-safe.
            unsafe { libc::close(descriptor) };
        }
    }
}

/// As long as it lives, a descriptor is closed in every child right after the
/// fork, by its number: so that a connection ends with its process, although
/// a child lives on.
///
/// The caller that makes one promises that the descriptor's owner is neither used nor
/// dropped in a child, which is what a [`ForkSlot`] sees to, and drops this
/// before it closes the descriptor.
#[derive(Debug)]
pub struct ClosedInChild {
    place: Option<usize>,
    generation: u64,
}

impl ClosedInChild {
    /// Registers `descriptor`.
    pub fn new(descriptor: i32) -> Self {
        let generation = generation();
        let take = |entry: &Registered| {
            let (descriptor, relaxed) = (&entry.descriptor, Ordering::Relaxed);
            descriptor
                .compare_exchange(FREE, TAKEN, relaxed, relaxed)
                .is_ok()
        };
        let place = file_of(descriptor).and_then(|file| {
            let place = CLOSED_IN_CHILD.iter().position(take)?;
            let entry = &CLOSED_IN_CHILD[place];
            entry.file.store(file, Ordering::Relaxed);
            // Release: a thread that forks and sees the number sees the file.
            entry.descriptor.store(descriptor, Ordering::Release);
            Some(place)
        });
        Self { place, generation }
    }
}

impl Drop for ClosedInChild {
    fn drop(&mut self) {
        // In a child the place was emptied, and may be somebody else's by now.
        if let Some(place) = self.place
            && self.generation == generation()
        {
            CLOSED_IN_CHILD[place]
                .descriptor
                .store(FREE, Ordering::Relaxed);
        }
    }
}

/// Forking in tests.
#[cfg(any(test, feature = "testing"))]
pub mod testing {
    /// Runs `child` in a forked child, which ends with its result as exit
    /// status and without running anything of the parent's, and waits for it.
    /// `None` if it died of a signal.
    pub fn fork_and_run(child: impl FnOnce() -> u8) -> Option<u8> {
        // SAFETY: the child runs on in a copy of this thread alone; what it may
        // use of the parent is what this module is about, and it leaves by `_exit`.
        let id = unsafe { libc::fork() };
        assert!(id >= 0, "fork: {}", std::io::Error::last_os_error());
        if id == 0 {
            let run = std::panic::AssertUnwindSafe(child);
            let status = std::panic::catch_unwind(run).unwrap_or(101);
            // SAFETY: ends the child without running the parent's destructors.
            unsafe { libc::_exit(status.into()) };
        }
        let mut status = 0;
        // SAFETY: waits for the child made above.
        let waited = unsafe { libc::waitpid(id, &mut status, 0) };
        assert_eq!(waited, id);
        libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status) as u8)
    }
}

/// The generation of this process: greater in a child than in its parent.
#[inline]
pub fn generation() -> u64 {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        let (before, in_parent) = (thread::lock_before_fork, thread::unlock_after_fork);
        // SAFETY: `pthread_atfork` may be called at any time; the handlers only
        // take a lock that is held briefly, let go of it and change an atomic, and
        // are never unloaded before the process ends because they are in the same
        // object as their users.
        unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
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
        self.entry().map(|entry| entry.value.clone())
    }

    /// As [`ForkSlot::get`], without counting another user of the value: for
    /// paths on which two atomic operations are worth saving.
    #[inline]
    pub fn get_ref(&self) -> Option<&T> {
        self.entry().map(|entry| &*entry.value)
    }

    #[inline]
    fn entry(&self) -> Option<&Entry<T>> {
        let entry = self.entry.load(Ordering::Acquire);
        if entry.is_null() {
            return None;
        }
        // SAFETY: a non-null entry was leaked by `get_or_make` and is freed
        // only by `drop`, which has the slot for itself: it outlives `&self`.
        let entry = unsafe { &*entry };
        (entry.generation == generation()).then_some(entry)
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
                Ok(self
                    .get()
                    .expect("the thread that replaced the slot filled it"))
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
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    /// Whether a child finds `descriptor` open.
    fn is_open_in_a_child(descriptor: i32) -> bool {
        // SAFETY: the child asks for a status and leaves by `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let is_open = file_of(descriptor).is_some();
            // SAFETY: ends the child without running the parent's destructors.
            unsafe { libc::_exit(is_open.into()) };
        }
        let mut status = 0;
        // SAFETY: waits for the child made above.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        libc::WEXITSTATUS(status) == 1
    }

    /// A program's pipe was closed so in its child, when a connection had ended a
    /// moment before the fork.
    #[test]
    fn a_child_closes_what_was_registered_and_not_what_has_its_number_now() {
        let (ours, other) = UnixStream::pair().unwrap();
        let descriptor = ours.as_raw_fd();
        let registered = ClosedInChild::new(descriptor);
        assert!(!is_open_in_a_child(descriptor));
        // Closed by the owner, who has not said so yet; a stranger gets the number.
        drop(ours);
        let duplicate = || {
            // SAFETY: takes the first free number from `descriptor` on.
            unsafe { libc::fcntl(other.as_raw_fd(), libc::F_DUPFD, descriptor) }
        };
        // Another test may have it for a while.
        loop {
            let number = duplicate();
            assert!(number >= 0);
            if number == descriptor {
                break;
            }
            // SAFETY: it was made above and is closed once.
            unsafe { libc::close(number) };
        }
        assert!(is_open_in_a_child(descriptor));
        drop(registered);
        // SAFETY: it was made above and is closed once.
        unsafe { libc::close(descriptor) };
    }

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
