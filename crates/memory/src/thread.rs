//! Threads that a fork at any moment does no harm to.
//!
//! Each thread of `std::thread` takes a lock of the standard library's when it
//! ends. A fork at that moment leaves the lock held in the child, for ever, and
//! no thread that the child starts can end any more: a join of one waits
//! for ever. `std` offers no way around it. So what a child may do starts its
//! threads here, by `pthread_create` alone.
//!
//! And no thread is started here while the process forks: glibc (2.36) frees
//! the thread-local memory of a stack that it uses again before it notes that
//! it has, and a child that is forked in between frees it once more.

use crate::fork;
use std::any::Any;
use std::cell::UnsafeCell;
use std::ffi::{CString, c_void};
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

/// As large as the standard library's threads have it.
const STACK_BYTES: usize = 2 << 20;

/// The kernel's limit on a thread's name, without the end.
const NAME_BYTES_MAX: usize = 15;

type Outcome<T> = Arc<Mutex<Option<std::thread::Result<T>>>>;
type Main = Box<dyn FnOnce() + Send>;

/// A thread that can be waited for. Dropped, it goes on by itself.
pub struct JoinHandle<T> {
    /// `None` once it was joined.
    native: Option<libc::pthread_t>,
    /// What the thread has come to; it drops its share as the last thing.
    outcome: Outcome<T>,
}

/// Runs `main` on a new thread. The system knows its name, of which the first
/// 15 bytes count.
///
/// # Errors
/// The system gives no thread; then `main` is dropped here.
pub fn spawn<T: Send + 'static>(
    name: &str,
    main: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let outcome = Outcome::<T>::default();
    let own = outcome.clone();
    let name = thread_name(name);
    let main: Main = Box::new(move || {
        if let Some(name) = name {
            // SAFETY: the name ends with a zero, and the thread is this one.
            unsafe { libc::pthread_setname_np(libc::pthread_self(), name.as_ptr()) };
        }
        let came_to = catch_unwind(AssertUnwindSafe(main));
        *own.lock().expect("no holder panics here") = Some(came_to);
    });
    let native = create(main)?;
    Ok(JoinHandle {
        native: Some(native),
        outcome,
    })
}

fn thread_name(name: &str) -> Option<CString> {
    let cut = NAME_BYTES_MAX.min(name.len());
    CString::new(&name.as_bytes()[..cut]).ok()
}

fn create(main: Main) -> io::Result<libc::pthread_t> {
    let check = |status: i32| match status {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    };
    let main = Box::into_raw(Box::new(main));
    let _no_fork = CREATING.hold();
    let mut native = 0;
    let mut attributes = std::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
    // SAFETY: the attributes are initialized before they are used, and destroyed
    // once; `start` takes the box that it is given, once.
    let created = unsafe {
        check(libc::pthread_attr_init(attributes.as_mut_ptr())).and_then(|()| {
            let created = check(libc::pthread_attr_setstacksize(
                attributes.as_mut_ptr(),
                STACK_BYTES,
            ))
            .and_then(|()| {
                check(libc::pthread_create(
                    &mut native,
                    attributes.as_ptr(),
                    start,
                    main.cast(),
                ))
            });
            libc::pthread_attr_destroy(attributes.as_mut_ptr());
            created
        })
    };
    if let Err(error) = created {
        // SAFETY: it came from `Box::into_raw`, and no thread was given it.
        drop(unsafe { Box::from_raw(main) });
        return Err(error);
    }
    Ok(native)
}

/// Held while a thread is created, and during a fork by the thread that forks.
static CREATING: Creating = Creating(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));

/// A lock of the C library's, for a child may unlock what its parent has locked.
struct Creating(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: the functions of the C library are all that touches it.
unsafe impl Sync for Creating {}

struct NoFork;

impl Creating {
    fn hold(&self) -> NoFork {
        // The handlers of a fork are there from now on.
        fork::generation();
        lock_before_fork();
        NoFork
    }
}

impl Drop for NoFork {
    fn drop(&mut self) {
        unlock_after_fork();
    }
}

/// By the thread that forks, before it does.
pub(crate) extern "C" fn lock_before_fork() {
    // SAFETY: the lock is initialized, and no thread takes it twice.
    unsafe { libc::pthread_mutex_lock(CREATING.0.get()) };
}

/// By the thread that forked, in the parent and in the child.
pub(crate) extern "C" fn unlock_after_fork() {
    // SAFETY: the thread that unlocks has locked, or is its copy in a child.
    unsafe { libc::pthread_mutex_unlock(CREATING.0.get()) };
}

extern "C" fn start(main: *mut c_void) -> *mut c_void {
    // SAFETY: `create` gave the box to this thread alone.
    let main = unsafe { Box::from_raw(main.cast::<Main>()) };
    // It lets no panic through.
    main();
    std::ptr::null_mut()
}

impl<T> JoinHandle<T> {
    /// Waits until the thread has ended.
    ///
    /// # Errors
    /// What it panicked with.
    pub fn join(mut self) -> std::thread::Result<T> {
        if let Some(native) = self.native.take() {
            // SAFETY: the thread is neither joined nor detached.
            let status = unsafe { libc::pthread_join(native, std::ptr::null_mut()) };
            if status != 0 {
                let error = io::Error::from_raw_os_error(status);
                return Err(Box::new(format!("joining a thread: {error}")) as Box<dyn Any + Send>);
            }
        }
        let outcome = self.outcome.lock().expect("no holder panics here").take();
        outcome.expect("a thread that has ended has come to something")
    }

    /// Whether it is the thread that asks, which can't wait for itself.
    pub fn is_current(&self) -> bool {
        // SAFETY: both threads are alive: this one runs, the other is not joined.
        self.native
            .is_some_and(|native| unsafe { libc::pthread_equal(native, libc::pthread_self()) } != 0)
    }

    /// Whether the thread has done what it was to do; it may be about to end.
    pub fn is_finished(&self) -> bool {
        Arc::strong_count(&self.outcome) == 1
    }
}

impl<T> Drop for JoinHandle<T> {
    fn drop(&mut self) {
        if let Some(native) = self.native.take() {
            // SAFETY: the thread is neither joined nor detached.
            unsafe { libc::pthread_detach(native) };
        }
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_to_what_it_returns() {
        let thread = spawn("a name that is longer than the kernel takes", || {
            let own = std::fs::read_to_string("/proc/thread-self/comm").unwrap();
            (own, 7)
        });
        let (name, number) = thread.unwrap().join().unwrap();
        assert_eq!((name.as_str(), number), ("a name that is \n", 7));
    }

    #[test]
    fn a_panic_is_what_it_comes_to() {
        let thread = spawn("panics", || -> u8 { panic!("on purpose") });
        let panic = thread.unwrap().join().unwrap_err();
        assert_eq!(panic.downcast_ref(), Some(&"on purpose"));
    }

    #[test]
    fn a_thread_that_nobody_joins_goes_on() {
        let (send, receive) = std::sync::mpsc::channel();
        drop(spawn("goes on", move || send.send(1)).unwrap());
        assert_eq!(receive.recv(), Ok(1));
    }

    /// With threads of the standard library the child hangs in some thousands
    /// of forks: one of the parent's that ends holds a lock.
    #[test]
    fn threads_of_a_child_end_whatever_the_parents_do_at_the_fork() {
        let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let seen = done.clone();
        let ends = spawn("ends", move || {
            while !seen.load(std::sync::atomic::Ordering::Relaxed) {
                spawn("short", || ()).unwrap().join().unwrap();
            }
        });
        for _ in 0..200 {
            // SAFETY: the child starts and joins a thread, and leaves by `_exit`.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let joined = spawn("child", || 1).unwrap().join().unwrap();
                // SAFETY: ends the child without running the parent's destructors.
                unsafe { libc::_exit(joined) };
            }
            let mut status = 0;
            // SAFETY: waits for the child made above.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert_eq!(libc::WEXITSTATUS(status), 1);
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        ends.unwrap().join().unwrap();
    }
}
