//! What one thread at a time has, where having it may mean to be in a function
//! of the user's, for as long as that takes.

use crate::error::ClientError;
use memory::Deadline;
use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::ThreadId;

/// The puller of a consumer: the thread that pulls has it.
///
/// Where nothing of the user's is called it is a lock, held for a short time.
/// Else the thread that has it takes it out, so that others can wait for it with a
/// deadline, and the same thread is refused it: a selector that pulls would
/// wait for itself.
pub(crate) struct Exclusive<T> {
    calls_user: bool,
    slot: Mutex<Slot<T>>,
    back: Condvar,
}

enum Slot<T> {
    Here(T),
    /// This thread has it.
    Taken(ThreadId),
    /// It is no more.
    Gone,
}

/// Why a thread does not get it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The thread has it already, and is in a function of the user's.
    InCallback,
    /// Another one had it all the time.
    Timeout,
    Gone,
}

impl Refused {
    /// What a call says that cannot do without.
    pub fn error(&self, call: &str, consumer: &str) -> ClientError {
        match self {
            Self::InCallback => ClientError::Invalid(format!(
                "{call} of consumer {consumer} was called within its own selector, allocator or \
                 serializer, which is called by a pull: that one would wait for itself; do it when \
                 the pull has returned, or with another consumer"
            )),
            Self::Timeout => ClientError::Timeout {
                what: format!(
                    "consumer {consumer}, which another thread is pulling from, in a function of \
                     the program's"
                ),
            },
            Self::Gone => ClientError::Closed,
        }
    }
}

impl<T> Exclusive<T> {
    /// `calls_user`: having it may mean to call something of the user's.
    pub fn new(value: T, calls_user: bool) -> Self {
        Self {
            calls_user,
            slot: Mutex::new(Slot::Here(value)),
            back: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Slot<T>> {
        // A serializer may panic under it: nothing is half done then.
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for it until `deadline`.
    #[inline]
    pub fn have(&self, deadline: Deadline) -> Result<Having<'_, T>, Refused> {
        let slot = self.lock();
        match (&*slot, self.calls_user) {
            (Slot::Here(_), false) => Ok(Having {
                of: self,
                how: How::Locked(slot),
            }),
            _ => self.take_out(slot, deadline),
        }
    }

    fn take_out<'a>(
        &'a self,
        mut slot: MutexGuard<'a, Slot<T>>,
        deadline: Deadline,
    ) -> Result<Having<'a, T>, Refused> {
        let me = std::thread::current().id();
        loop {
            match &*slot {
                Slot::Here(_) => break,
                Slot::Gone => return Err(Refused::Gone),
                Slot::Taken(by) if *by == me => return Err(Refused::InCallback),
                Slot::Taken(_) => match deadline.wait(&self.back, slot) {
                    Ok(again) => slot = again,
                    Err(_) => return Err(Refused::Timeout),
                },
            }
        }
        match std::mem::replace(&mut *slot, Slot::Taken(me)) {
            Slot::Here(value) => Ok(Having {
                of: self,
                how: How::Taken(Some(value)),
            }),
            Slot::Taken(_) | Slot::Gone => Err(Refused::Gone),
        }
    }

    /// Whether this thread has it, and so is in a function of the user's.
    pub fn is_had_here(&self) -> bool {
        self.calls_user
            && matches!(&*self.lock(), Slot::Taken(by) if *by == std::thread::current().id())
    }

    /// Does something with it that calls nothing of the user's, if nobody has it.
    pub fn try_with<R>(&self, act: impl FnOnce(&mut T) -> R) -> Option<R> {
        let mut slot = match self.slot.try_lock() {
            Ok(slot) => slot,
            Err(TryLockError::Poisoned(slot)) => slot.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        match &mut *slot {
            Slot::Here(value) => Some(act(value)),
            Slot::Taken(_) | Slot::Gone => None,
        }
    }

    /// Drops it: now, or when the thread that has it gives it back.
    pub fn end(&self) {
        let was = std::mem::replace(&mut *self.lock(), Slot::Gone);
        self.back.notify_all();
        drop(was);
    }
}

/// It, had by this thread.
pub(crate) struct Having<'a, T> {
    of: &'a Exclusive<T>,
    how: How<'a, T>,
}

enum How<'a, T> {
    Locked(MutexGuard<'a, Slot<T>>),
    Taken(Option<T>),
}

impl<T> Deref for Having<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        match &self.how {
            How::Taken(Some(value)) => value,
            How::Locked(slot) => match &**slot {
                Slot::Here(value) => value,
                Slot::Taken(_) | Slot::Gone => unreachable!("it was here when it was locked"),
            },
            How::Taken(None) => unreachable!("it is given back when this is dropped"),
        }
    }
}

impl<T> DerefMut for Having<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        match &mut self.how {
            How::Taken(Some(value)) => value,
            How::Locked(slot) => match &mut **slot {
                Slot::Here(value) => value,
                Slot::Taken(_) | Slot::Gone => unreachable!("it was here when it was locked"),
            },
            How::Taken(None) => unreachable!("it is given back when this is dropped"),
        }
    }
}

impl<T> Drop for Having<'_, T> {
    fn drop(&mut self) {
        let How::Taken(value) = &mut self.how else {
            return;
        };
        let Some(value) = value.take() else {
            return;
        };
        let mut slot = self.of.lock();
        let ended = match &*slot {
            Slot::Gone => Some(value),
            Slot::Taken(_) | Slot::Here(_) => {
                *slot = Slot::Here(value);
                None
            }
        };
        drop(slot);
        self.of.back.notify_one();
        // Not under the lock: its end may call much.
        drop(ended);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn the_same_thread_is_refused_and_another_one_waits_for_its_deadline() {
        let exclusive = Arc::new(Exclusive::new(7, true));
        let mut had = exclusive.have(Deadline::NEVER).expect("it is here");
        *had += 1;
        let again = exclusive.have(Deadline::NEVER).err();
        assert_eq!(again, Some(Refused::InCallback));
        assert_eq!(exclusive.try_with(|value| *value), None);
        let (send, receive) = channel();
        let other = exclusive.clone();
        let thread = std::thread::spawn(move || {
            let early = other.have(Deadline::after(Duration::ZERO)).err();
            send.send(early).unwrap();
            *other.have(Deadline::NEVER).expect("it is given back")
        });
        assert_eq!(receive.recv().unwrap(), Some(Refused::Timeout));
        drop(had);
        assert_eq!(thread.join().unwrap(), 8);
        assert_eq!(exclusive.try_with(|value| *value), Some(8));
    }

    #[test]
    fn it_ends_with_whoever_has_it() {
        let value = Arc::new(());
        let exclusive = Exclusive::new(value.clone(), true);
        let had = exclusive.have(Deadline::NEVER).expect("it is here");
        exclusive.end();
        assert_eq!(Arc::strong_count(&value), 2);
        drop(had);
        assert_eq!(Arc::strong_count(&value), 1);
        assert_eq!(exclusive.have(Deadline::NEVER).err(), Some(Refused::Gone));
    }

    #[test]
    fn where_nothing_is_called_it_is_a_lock() {
        let exclusive = Exclusive::new(7, false);
        let had = exclusive.have(Deadline::NEVER).expect("it is here");
        assert_eq!(exclusive.try_with(|value| *value), None);
        drop(had);
        assert_eq!(exclusive.try_with(|value| *value), Some(7));
    }

    #[test]
    fn a_panic_of_the_user_gives_it_back() {
        let exclusive = Exclusive::new(7, true);
        let call = std::panic::AssertUnwindSafe(|| {
            let _had = exclusive.have(Deadline::NEVER).ok();
            panic!("a selector's");
        });
        assert!(std::panic::catch_unwind(call).is_err());
        assert!(exclusive.have(Deadline::NEVER).is_ok());
    }
}
