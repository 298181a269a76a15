//! Memory of the caller's, lent to the client for the time of a transfer.
//!
//! A future says that memory is the caller's again, and that must be true at
//! the level of the machine: the client may have told what became of an event
//! while a link still holds a part of it. So the last owner that is dropped
//! ends the loan, wherever that happens, and a future resolves after that.

use crate::boundary::{ThalwegBytes, UserPointer};
use crate::driver::Connection;
use crate::error::Failure;
use bytes::Bytes;
use std::ffi::c_void;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// A function of the user's that is told, and what it is told with.
#[derive(Clone, Copy)]
pub struct Release {
    pub call: extern "C" fn(*mut c_void),
    pub context: UserPointer,
}

impl Release {
    fn call(self) {
        (self.call)(self.context.0);
    }
}

/// Memory that is lent as one.
pub struct Loan {
    /// Guards what was said; `ended` is signalled when the loan has ended.
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    has_ended: bool,
    /// What was lent was taken: from now on the caller is told.
    is_armed: bool,
    release: Option<Release>,
    callbacks: Vec<Box<dyn FnOnce() + Send>>,
}

/// Ends the loan when nobody holds it any more.
struct Hold(Arc<Loan>);

impl Drop for Hold {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.has_ended = true;
        let release = state.release.filter(|_| state.is_armed);
        let callbacks = std::mem::take(&mut state.callbacks);
        drop(state);
        self.0.ended.notify_all();
        if let Some(release) = release {
            release.call();
        }
        callbacks.into_iter().for_each(client::call_back);
    }
}

/// Memory that is read.
struct Lent {
    bytes: ThalwegBytes,
    _hold: Arc<Hold>,
}

/// Memory that is written to.
pub struct LentTarget {
    base: *mut u8,
    size: usize,
    _hold: Arc<Hold>,
}

// SAFETY: plain memory that the caller leaves alone while it is lent, which is
// the contract of whoever lends it.
unsafe impl Send for Lent {}
// SAFETY: shared use reads only.
unsafe impl Sync for Lent {}
// SAFETY: as for `Lent`.
unsafe impl Send for LentTarget {}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `Loan::readable` was told of memory that is there and stays
        // as it is until the hold is dropped.
        unsafe { std::slice::from_raw_parts(self.bytes.base.cast(), self.bytes.size) }
    }
}

impl AsMut<[u8]> for LentTarget {
    fn as_mut(&mut self) -> &mut [u8] {
        if self.size == 0 {
            return &mut [];
        }
        // SAFETY: `Loan::writable` was told of memory that is there and nobody
        // else's until the hold is dropped.
        unsafe { std::slice::from_raw_parts_mut(self.base, self.size) }
    }
}

impl Loan {
    /// A loan of nothing yet. `release` is called once when it has ended,
    /// unless it ends without [`Loan::arm`].
    pub fn new(release: Option<Release>) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                release,
                ..State::default()
            }),
            ended: Condvar::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics here")
    }

    /// Lends memory to be read, in pieces.
    ///
    /// # Safety
    /// Each piece is there and stays as it is until the loan has ended.
    pub unsafe fn readable(
        self: &Arc<Self>,
        pieces: &[ThalwegBytes],
    ) -> Result<Vec<Bytes>, Failure> {
        let hold = Arc::new(Hold(self.clone()));
        let lend = |piece: &ThalwegBytes| {
            // SAFETY: the caller says so. Looked at once, for what can be refused.
            unsafe { piece.as_slice("data") }?;
            Ok(Bytes::from_owner(Lent {
                bytes: *piece,
                _hold: hold.clone(),
            }))
        };
        pieces
            .iter()
            .filter(|piece| piece.size > 0)
            .map(lend)
            .collect()
    }

    /// Lends memory to be written to.
    ///
    /// # Safety
    /// `size` bytes at `base` are there, and nobody else uses them until the
    /// loan has ended.
    pub unsafe fn writable(
        self: &Arc<Self>,
        base: *mut c_void,
        size: usize,
    ) -> Result<LentTarget, Failure> {
        if size > isize::MAX as usize || base.is_null() && size > 0 {
            return Err(Failure::invalid(format!("{size} bytes at NULL")));
        }
        Ok(LentTarget {
            base: base.cast(),
            size,
            _hold: Arc::new(Hold(self.clone())),
        })
    }

    /// What was lent was taken: the end of the loan is told, at once if it
    /// has ended.
    pub fn arm(&self) {
        let mut state = self.lock();
        state.is_armed = true;
        let release = state.release.filter(|_| state.has_ended);
        drop(state);
        if let Some(release) = release {
            release.call();
        }
    }

    pub fn has_ended(&self) -> bool {
        self.lock().has_ended
    }

    /// Calls `callback` when the loan has ended, at once if it has.
    pub fn on_end(&self, callback: Box<dyn FnOnce() + Send>) {
        let mut state = self.lock();
        if state.has_ended {
            drop(state);
            callback();
        } else {
            state.callbacks.push(callback);
        }
    }

    /// Waits until the loan has ended, which whoever lent has seen to: what was lent is being let
    /// go of.
    pub fn wait_to_end(&self, connection: &Connection) {
        // Another thread may drive the network, or it may be over; then this one looks.
        while !self.wait(connection, None) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until the loan has ended; false when `until` has passed.
    pub fn wait(&self, connection: &Connection, until: Option<Instant>) -> bool {
        if self.has_ended() {
            return true;
        }
        if let Some(ended) = connection.drive(until, || self.has_ended()) {
            return ended;
        }
        let mut state = self.lock();
        while !state.has_ended {
            let Some(until) = until else {
                state = self.ended.wait(state).expect("no holder panics here");
                continue;
            };
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self
                .ended
                .wait_timeout(state, left)
                .expect("no holder panics here")
                .0;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    extern "C" fn count(context: *mut c_void) {
        // SAFETY: the tests give a counter that outlives the loan.
        let counter = unsafe { &*context.cast::<AtomicUsize>() };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn counted(counter: &AtomicUsize) -> Option<Release> {
        Some(Release {
            call: count,
            context: UserPointer(std::ptr::from_ref(counter).cast_mut().cast()),
        })
    }

    #[test]
    fn the_last_piece_ends_the_loan() {
        let told = AtomicUsize::new(0);
        let memory = [7u8; 16];
        let loan = Loan::new(counted(&told));
        let pieces = [
            ThalwegBytes::of(&memory[..4]),
            ThalwegBytes::of(&memory[4..]),
        ];
        // SAFETY: `memory` lives to the end of the test.
        let mut lent = unsafe { loan.readable(&pieces) }.unwrap();
        loan.arm();
        let part = lent[1].slice(2..3);
        assert_eq!(&part[..], [7]);
        lent.clear();
        assert!(!loan.has_ended(), "a part of a piece holds all of it");
        drop(part);
        assert!(loan.has_ended());
        assert_eq!(told.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn memory_that_was_not_taken_is_not_told_of() {
        let told = AtomicUsize::new(0);
        let memory = [0u8; 4];
        let loan = Loan::new(counted(&told));
        // SAFETY: `memory` lives to the end of the test.
        drop(unsafe { loan.readable(&[ThalwegBytes::of(&memory)]) });
        assert_eq!(told.load(Ordering::Relaxed), 0);
        loan.arm();
        assert_eq!(told.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn nothing_lent_is_a_loan_that_has_ended() {
        let loan = Loan::new(None);
        // SAFETY: there is no memory.
        let lent = unsafe { loan.readable(&[ThalwegBytes::NONE]) };
        assert!(lent.unwrap().is_empty());
        assert!(loan.has_ended());
        let nowhere = ThalwegBytes {
            base: std::ptr::null(),
            size: 3,
        };
        // SAFETY: it is refused.
        assert!(unsafe { loan.readable(&[nowhere]) }.is_err());
    }
}
