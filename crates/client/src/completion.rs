//! What completes once, and who waits for it: threads, tasks and callbacks.
//!
//! A [`Completion`] is the one mechanism under the answers of calls
//! ([`crate::promise`]), the outcomes of batches ([`crate::future`]) and of
//! settlements. What they wait for is their own state behind its lock.

use crate::callbacks::{Callback, call_here};
use crate::driving::PassiveWaiter;
use crate::error::ClientError;
use memory::{Deadline, Signal};
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

/// Where what completes things is reached: the mailbox of a client's core.
pub(crate) trait Resolver: Send + Sync {
    /// Waits for `done` by driving; see [`crate::driving::Driving::drive`].
    fn drive(
        &self,
        deadline: Deadline,
        done: &mut dyn FnMut() -> bool,
    ) -> Result<bool, PassiveWaiter>;

    /// Something completed, for which the thread that drives may wait.
    fn notify(&self);

    /// Why nothing completes any more, if that is so.
    fn ended(&self) -> Option<ClientError>;
}

/// Something that completes once. `S` says whether it has, and with what.
pub(crate) struct Completion<S> {
    /// Guards the state and who is to be notified; `done` is signalled after
    /// the state has changed.
    guarded: Mutex<Guarded<S>>,
    done: Signal,
    /// The process that made it: in a forked child nobody completes it, and its
    /// lock may be held for ever.
    generation: u64,
}

/// What the lock of a [`Completion`] guards.
pub(crate) struct Guarded<S> {
    state: S,
    waiters: Waiters,
}

/// Who is to be notified.
#[derive(Default)]
pub(crate) struct Waiters {
    /// The first one apart: most have no other, and need no memory for it.
    waker: Option<Waker>,
    wakers: Vec<Waker>,
    /// Each with the part that it is about.
    callbacks: Vec<(u32, Callback)>,
}

impl Waiters {
    fn run(self) {
        for waker in self.waker.into_iter().chain(self.wakers) {
            waker.wake();
        }
        for (_, callback) in self.callbacks {
            call_here(callback);
        }
    }

    fn add(&mut self, waker: &Waker) {
        let mut known = self.waker.iter().chain(&self.wakers);
        if known.any(|known| known.will_wake(waker)) {
            return;
        }
        match &self.waker {
            None => self.waker = Some(waker.clone()),
            Some(_) => self.wakers.push(waker.clone()),
        }
    }
}

impl<S> Guarded<S> {
    /// Takes everybody who waits for anything.
    pub fn take_waiters(&mut self) -> Waiters {
        std::mem::take(&mut self.waiters)
    }

    /// Takes those who wait for this part, and the tasks, which look again.
    pub fn take_waiters_of(&mut self, part: u32) -> Waiters {
        let is_of_it = |(of, _): &mut (u32, _)| *of == part;
        let callbacks = self.waiters.callbacks.extract_if(.., is_of_it).collect();
        Waiters {
            waker: self.waiters.waker.take(),
            wakers: std::mem::take(&mut self.waiters.wakers),
            callbacks,
        }
    }
}

impl<S> Deref for Guarded<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.state
    }
}

impl<S> DerefMut for Guarded<S> {
    fn deref_mut(&mut self) -> &mut S {
        &mut self.state
    }
}

impl<S> Completion<S> {
    pub fn new(state: S) -> Self {
        Self {
            guarded: Mutex::new(Guarded {
                state,
                waiters: Waiters::default(),
            }),
            done: Signal::new(),
            generation: memory::fork::generation(),
        }
    }

    pub fn lock(&self) -> MutexGuard<'_, Guarded<S>> {
        self.guarded.lock().expect("no holder panics here")
    }

    /// Whether it is of the process that this one was forked from.
    pub fn is_foreign(&self) -> bool {
        self.generation != memory::fork::generation()
    }

    /// Notifies those that were taken after the state has changed; not under the lock.
    pub fn notify(&self, waiters: Waiters, resolver: Option<&(impl Resolver + ?Sized)>) {
        self.done.notify();
        if let Some(resolver) = resolver {
            resolver.notify();
        }
        waiters.run();
    }

    /// Waits by driving, or until another thread has completed it: false if
    /// `deadline` passes before. `looks` is asked without the lock while this
    /// thread drives, and once before it sleeps.
    pub fn wait(
        &self,
        deadline: Deadline,
        resolver: Option<&(impl Resolver + ?Sized)>,
        mut looks: impl FnMut() -> bool,
        is_done: impl Fn(&S) -> bool,
    ) -> bool {
        let driven = resolver.map(|resolver| resolver.drive(deadline, &mut looks));
        let _passive = match driven {
            Some(Ok(is_done)) => return is_done,
            Some(Err(passive)) => Some(passive),
            None => None,
        };
        if looks() {
            return true;
        }
        let mut guarded = self.lock();
        while !is_done(&guarded.state) {
            guarded = match self.done.wait(guarded, deadline) {
                Ok(guarded) => guarded,
                Err(_) => return false,
            };
        }
        true
    }

    /// Calls `callback`, which is one of ours, on whichever thread completes
    /// it; gives it back if it is complete, and in a forked child.
    pub fn on_done(
        &self,
        part: u32,
        callback: Callback,
        is_done: impl Fn(&S) -> bool,
    ) -> Result<(), Callback> {
        if self.is_foreign() {
            return Err(callback);
        }
        let mut guarded = self.lock();
        if is_done(&guarded.state) {
            return Err(callback);
        }
        guarded.waiters.callbacks.push((part, callback));
        Ok(())
    }

    /// Has the task woken when it completes, besides others that wait; ready if
    /// it is complete, and in a forked child.
    pub fn poll(&self, context: &Context<'_>, is_done: impl Fn(&S) -> bool) -> Poll<()> {
        self.poll_by(context, is_done, Waiters::add)
    }

    /// As [`Completion::poll`], where one task alone waits.
    pub fn poll_alone(&self, context: &Context<'_>, is_done: impl Fn(&S) -> bool) -> Poll<()> {
        self.poll_by(context, is_done, |waiters, waker| {
            waiters.waker = Some(waker.clone());
        })
    }

    fn poll_by(
        &self,
        context: &Context<'_>,
        is_done: impl Fn(&S) -> bool,
        add: impl FnOnce(&mut Waiters, &Waker),
    ) -> Poll<()> {
        if self.is_foreign() {
            return Poll::Ready(());
        }
        let mut guarded = self.lock();
        if is_done(&guarded.state) {
            return Poll::Ready(());
        }
        add(&mut guarded.waiters, context.waker());
        Poll::Pending
    }
}
