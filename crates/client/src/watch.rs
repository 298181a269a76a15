//! A client with a thread: the thread drives, unless somebody waits who can.
//!
//! Whoever waits for something of a client whose runtime is idle stands in for
//! its thread: what comes over the network then wakes the one who waits for
//! it, and not a thread that wakes him. Whoever pushes while nothing is under
//! way posts the event himself. The thread stands by meanwhile, and drives
//! whatever nobody waits for. Nobody waits for the runtime: who finds that
//! another one has it leaves his part to that one.

use crate::callbacks::{Callback, Defer, DrivesFor, become_clients_thread, call_back};
use crate::driving::{Bystander, Driving, Post};
use crate::error::ClientError;
use crate::mailbox::Mailbox;
use crate::runtime::{Left, Runtime};
use memory::Deadline;
use memory::fork::ClosedInChild;
use memory::thread::JoinHandle;
use net::{Relief, Standby};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread::ThreadId;
use std::time::Duration;

/// How soon after one stand-in the next one comes, where a program does
/// nothing but ask and wait.
const SOON: Duration = Duration::from_micros(200);

/// After so many on end the thread is attentive.
const STREAK_MIN: u32 = 16;

/// How often an attentive thread looks up.
const ATTENTION: Duration = Duration::from_millis(1);

/// Who has the runtime of a client with a thread.
pub(crate) struct Watch {
    mailbox: Arc<Mailbox>,
    /// Guards who drives; never held while driving.
    state: Mutex<State>,
    relief: Relief,
    /// The client's own thread, on which callbacks come.
    thread: OnceLock<ThreadId>,
    /// Callbacks of users that stand-ins came upon: they are called by the
    /// thread, before anything that it comes upon itself.
    callbacks: Mutex<Vec<Callback>>,
}

struct State {
    /// Whoever drives has it.
    runtime: Option<Box<Runtime>>,
    has_ended: bool,
    /// Why the thread could not go on, while somebody stood in.
    failure: Option<ClientError>,
    /// Whether the thread does not look at the network.
    is_relieved: bool,
    /// When the thread looks up by itself, at the latest.
    looks_up_at: Option<Duration>,
    /// The thread had something to do and somebody else drove: whoever does
    /// calls it afterwards.
    is_turned_away: bool,
    /// Somebody stood in since the thread drove last.
    is_shared: bool,
    /// The thread looks up within [`ATTENTION`], whatever happens: whoever
    /// stands in may leave a little behind, and the thread relieved.
    is_attentive: bool,
    /// So many stood in on end, each soon after the one before and for little,
    /// the last of them then.
    streak: u32,
    stood_in_at: Duration,
    /// Threads that wait while another one drives.
    bystanders: u32,
}

impl State {
    /// Somebody has stood in, for little if `was_short`. Whether the thread
    /// begins to be attentive, of which it has to be told.
    fn count(&mut self, was_short: bool, runtime: &Runtime) -> bool {
        if !was_short {
            (self.streak, self.is_attentive) = (0, false);
            return false;
        }
        if self.is_attentive {
            return false;
        }
        let now = runtime.now();
        let is_soon = now.saturating_sub(self.stood_in_at) <= SOON;
        self.stood_in_at = now;
        self.streak = if is_soon { self.streak + 1 } else { 0 };
        self.is_attentive = self.streak >= STREAK_MIN;
        self.is_attentive
    }
}

impl Watch {
    /// Starts the thread.
    pub fn start(
        runtime: Runtime,
        mailbox: &Arc<Mailbox>,
    ) -> Result<(Arc<Self>, JoinHandle<()>), ClientError> {
        let system = |error| {
            let error = std::io::Error::other(error);
            ClientError::io("making the client's thread", error)
        };
        let standby = runtime.standby().map_err(system)?;
        let descriptors = standby.descriptors().into_iter();
        // What a forked child closes. The thread has it beside what it waits on,
        // for it may end long before whoever else shares the watch.
        let closed_in_child: Vec<_> = descriptors.map(ClosedInChild::new).collect();
        let watch = Arc::new(Self {
            mailbox: mailbox.clone(),
            state: Mutex::new(State {
                runtime: Some(Box::new(runtime)),
                has_ended: false,
                failure: None,
                is_relieved: false,
                // It looks up at once.
                looks_up_at: Some(Duration::ZERO),
                is_turned_away: false,
                is_shared: false,
                is_attentive: false,
                streak: 0,
                stood_in_at: Duration::ZERO,
                bystanders: 0,
            }),
            relief: standby.relief(),
            thread: OnceLock::new(),
            callbacks: Mutex::default(),
        });
        let own = watch.clone();
        let run = move || {
            let mut standby = standby;
            own.run(&mut standby);
            drop(closed_in_child);
        };
        let thread = memory::thread::spawn("thalweg-client", run)
            .map_err(|error| ClientError::io("starting the client's thread", error))?;
        Ok((watch, thread))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics here")
    }

    fn run(&self, standby: &mut Standby) {
        let _ = self.thread.set(std::thread::current().id());
        become_clients_thread();
        while let Some(wait) = self.look_up() {
            if let Err(error) = standby.wait(wait) {
                return self.give_up(ClientError::io(
                    "waiting for the network",
                    std::io::Error::other(error),
                ));
            }
        }
    }

    /// Does what there is to do, unless somebody stands in, and says how long
    /// to wait then. `None` when the client has ended.
    fn look_up(&self) -> Option<Option<Duration>> {
        self.call_deferred();
        let mut state = self.lock();
        if state.has_ended {
            return None;
        }
        let Some(mut runtime) = state.runtime.take() else {
            if !state.is_attentive {
                state.is_turned_away = true;
                return Some(None);
            }
            // It is back soon enough for whatever is left behind.
            state.looks_up_at = Some(self.mailbox.clock().now() + ATTENTION);
            return Some(Some(ATTENTION));
        };
        // What is waited for elsewhere is not to be looked for here.
        let is_shared = std::mem::take(&mut state.is_shared);
        let spins = !is_shared;
        state.is_attentive &= is_shared;
        drop(state);
        self.call_deferred();
        let Some(timer) = runtime.attend(spins) else {
            self.lock().has_ended = true;
            return None;
        };
        let now = runtime.now();
        let mut state = self.lock();
        let attention = state.is_attentive.then(|| now + ATTENTION);
        let looks_up_at = [timer, attention].into_iter().flatten().min();
        state.looks_up_at = looks_up_at;
        state.runtime = Some(runtime);
        // Somebody left it so.
        let is_relieved = std::mem::take(&mut state.is_relieved);
        if is_relieved && self.relief.release().is_err() {
            state.is_relieved = true;
            return Some(Some(Duration::ZERO));
        }
        Some(looks_up_at.map(|at| at.saturating_sub(now)))
    }

    /// The thread cannot go on. Should somebody stand in, the client ends
    /// when he leaves.
    fn give_up(&self, error: ClientError) {
        let mut state = self.lock();
        state.has_ended = true;
        match state.runtime.take() {
            Some(mut runtime) => {
                drop(state);
                runtime.abandon(error);
            }
            None => state.failure = Some(error),
        }
    }

    fn call_deferred(&self) {
        loop {
            let mut deferred = self.callbacks.lock().expect("no holder panics here");
            let callbacks = std::mem::take(&mut *deferred);
            drop(deferred);
            if callbacks.is_empty() {
                return;
            }
            callbacks.into_iter().for_each(call_back);
        }
    }

    fn put_off(&self, callback: Callback) {
        let mut callbacks = self.callbacks.lock().expect("no holder panics here");
        callbacks.push(callback);
        let is_first = callbacks.len() == 1;
        drop(callbacks);
        if is_first {
            self.relief.call();
        }
    }

    /// `call`: the thread is to be called in any case.
    fn put_back(
        &self,
        mut state: MutexGuard<'_, State>,
        mut runtime: Box<Runtime>,
        left: Left,
        mut call: bool,
    ) {
        call |= std::mem::take(&mut state.is_turned_away);
        if matches!(left, Left::Ended) || state.has_ended {
            state.has_ended = true;
            let failure = state.failure.take();
            drop(state);
            if let Some(error) = failure {
                runtime.abandon(error);
            }
            self.relief.call();
            return;
        }
        let timer = runtime.next_timer();
        let looks_up_at = state.looks_up_at;
        call |= matches!(left, Left::Something);
        // Who began to wait meanwhile is to be told of all.
        let is_little = matches!(left, Left::Little) && state.bystanders == 0;
        call |= matches!(left, Left::Little) && !is_little;
        call |= timer.is_some_and(|timer| looks_up_at.is_none_or(|at| timer < at));
        if call {
            state.looks_up_at = Some(Duration::ZERO);
        }
        state.is_shared = true;
        state.runtime = Some(runtime);
        // Under the lock, so that it does not undo what the next one does.
        if !is_little && std::mem::take(&mut state.is_relieved) {
            // It was registered and is open, so this does not fail; if it did,
            // the thread would still be called.
            call |= self.relief.release().is_err();
        }
        drop(state);
        if call {
            self.relief.call();
        }
    }
}

impl Defer for Watch {
    fn defer(&self, callback: Callback) {
        self.put_off(callback);
    }
}

impl Driving for Watch {
    fn is_by_callers(&self) -> bool {
        false
    }

    fn can_wait(&self) -> bool {
        // Before the thread has begun there is nothing to wait for.
        let own = self.thread.get();
        own.is_some_and(|thread| *thread != std::thread::current().id())
    }

    fn leave(&self) {
        self.lock().bystanders -= 1;
    }

    /// Somebody rings: who drives hears it. If that is nobody, and the thread
    /// was left relieved, it is called.
    fn heed(&self) {
        let state = self.lock();
        let is_left = state.runtime.is_some() && state.is_relieved;
        drop(state);
        if is_left {
            self.relief.call();
        }
    }

    /// Drives in the thread's place until `done`, or until `deadline` has
    /// passed: false then. An error if somebody else drives, or the client has
    /// ended: what is waited for is told by whoever did that.
    fn drive(
        self: Arc<Self>,
        deadline: Deadline,
        done: &mut dyn FnMut() -> bool,
    ) -> Result<bool, Bystander> {
        // In a callback, what is waited for can come of nothing but its end.
        if deadline.has_passed() || !self.can_wait() {
            return Err(Bystander::unknown());
        }
        let mut state = self.lock();
        let Some(mut runtime) = state.runtime.take() else {
            state.bystanders += 1;
            drop(state);
            return Err(Bystander::counted(self));
        };
        let may_leave_some = state.is_attentive && state.bystanders == 0;
        drop(state);
        let drives = DrivesFor::begin(self.clone());
        let relieve = || {
            let mut state = self.lock();
            if !state.is_relieved && self.relief.relieve().is_ok() {
                state.is_relieved = true;
            }
        };
        let left = runtime.stand_in(deadline, done, relieve, may_leave_some);
        drop(drives);
        let is_done = done();
        let has_ended = matches!(left, Left::Ended);
        let was_short = runtime.was_short();
        let mut state = self.lock();
        let is_new = state.count(was_short, &runtime);
        self.put_back(state, runtime, left, is_new);
        match is_done || !has_ended {
            true => Ok(is_done),
            false => Err(Bystander::unknown()),
        }
    }

    /// Sends what was gathered, in the thread's place. False if there is more
    /// to do than that, or somebody else drives.
    fn post(self: Arc<Self>, what: Post) -> bool {
        let Some(mut runtime) = self.lock().runtime.take() else {
            return false;
        };
        let drives = DrivesFor::begin(self.clone());
        let (posted, mut left) = runtime.post(what);
        drop(drives);
        let state = self.lock();
        if state.is_attentive && state.bystanders == 0 {
            left = match left {
                Left::Something => Left::Little,
                // Whoever posted this waits for what comes of it, or nobody does.
                Left::Nothing if state.is_relieved && what.is_quiet() => Left::Little,
                left => left,
            };
        }
        self.put_back(state, runtime, left, false);
        posted
    }
}
