//! A client with a thread: the thread drives, unless somebody waits who can.
//!
//! Whoever waits for something of a client whose runtime is idle stands in for
//! its thread: what comes over the network then wakes the one who waits for
//! it, and not a thread that wakes him. Whoever pushes while nothing is under
//! way posts the event himself. The thread stands by meanwhile, and drives
//! whatever nobody waits for. Nobody waits for the runtime: who finds that
//! another one has it leaves his part to that one.

use crate::error::ClientError;
use crate::mailbox::{Mailbox, Post};
use crate::runtime::{Left, Runtime};
use memory::Deadline;
use memory::fork::ClosedInChild;
use memory::thread::JoinHandle;
use net::{Relief, Standby};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard};

use std::time::Duration;

/// How soon after one stand-in the next one comes, where a program does
/// nothing but ask and wait.
const SOON: Duration = Duration::from_micros(200);

/// After so many on end the thread is attentive.
const STREAK_MIN: u32 = 16;

/// How often an attentive thread looks up.
const ATTENTION: Duration = Duration::from_millis(1);

type Callback = Box<dyn FnOnce() + Send>;

/// Who has the runtime of a client with a thread.
pub(crate) struct Watch {
    mailbox: Arc<Mailbox>,
    /// Guards who drives; never held while driving.
    state: Mutex<State>,
    relief: Relief,
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

/// One who waits for what another thread brings: while there is one, whoever
/// stands in leaves nothing behind.
pub(crate) struct Bystander(Option<Arc<Watch>>);

impl Bystander {
    /// One whom nobody has to know of.
    pub fn unknown() -> Self {
        Self(None)
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        if let Some(watch) = &self.0 {
            watch.lock().bystanders -= 1;
        }
    }
}

thread_local! {
    /// For whose thread this one stands in.
    static STANDS_IN_FOR: RefCell<Option<Arc<Watch>>> = const { RefCell::new(None) };
}

thread_local! {
    /// Whether this is a client's own thread.
    static IS_CLIENTS: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread drives a client, or could not if it wanted to, for it
/// is that client's own.
pub(crate) fn drives() -> bool {
    IS_CLIENTS.get() || STANDS_IN_FOR.with_borrow(Option::is_some)
}

/// While it lives, this thread stands in for another one.
struct StandIn {
    before: Option<Arc<Watch>>,
}

impl StandIn {
    fn begin(watch: &Arc<Watch>) -> Self {
        Self {
            before: STANDS_IN_FOR.replace(Some(watch.clone())),
        }
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        STANDS_IN_FOR.set(self.before.take());
    }
}

/// Calls a callback of the user's; on the client's thread, if this one stands
/// in for it: the user may hold locks here that the callback takes.
///
/// A panic in it is the user's alone: the panic hook has told of it, and the
/// thread has others to serve.
pub fn call_back(callback: impl FnOnce() + Send + 'static) {
    let watch = STANDS_IN_FOR.with_borrow(Clone::clone);
    match watch {
        Some(watch) => watch.defer(Box::new(callback)),
        None => call_here(callback),
    }
}

/// Calls a callback on this thread: one of ours, that takes no lock of the
/// user's and does not wait. If it is the user's after all, it goes on by
/// [`call_back`].
pub(crate) fn call_here(callback: impl FnOnce()) {
    drop(catch_unwind(AssertUnwindSafe(callback)));
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
        self.mailbox.set_thread();
        IS_CLIENTS.set(true);
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

    fn defer(&self, callback: Callback) {
        let mut callbacks = self.callbacks.lock().expect("no holder panics here");
        callbacks.push(callback);
        let is_first = callbacks.len() == 1;
        drop(callbacks);
        if is_first {
            self.relief.call();
        }
    }

    /// Somebody rings: who drives hears it. If that is nobody, and the thread
    /// was left relieved, it is called.
    pub fn heed(&self) {
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
    pub fn stand_in(
        self: &Arc<Self>,
        deadline: Deadline,
        mut done: impl FnMut() -> bool,
    ) -> Result<bool, Bystander> {
        // In a callback, what is waited for can come of nothing but its end.
        if deadline.has_passed() || !self.mailbox.can_wait() {
            return Err(Bystander::unknown());
        }
        let mut state = self.lock();
        let Some(mut runtime) = state.runtime.take() else {
            state.bystanders += 1;
            return Err(Bystander(Some(self.clone())));
        };
        let may_leave_some = state.is_attentive && state.bystanders == 0;
        drop(state);
        let stands_in = StandIn::begin(self);
        let relieve = || {
            let mut state = self.lock();
            if !state.is_relieved && self.relief.relieve().is_ok() {
                state.is_relieved = true;
            }
        };
        let left = runtime.stand_in(deadline, &mut done, relieve, may_leave_some);
        drop(stands_in);
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
    pub fn post(self: &Arc<Self>, what: Post) -> bool {
        let Some(mut runtime) = self.lock().runtime.take() else {
            return false;
        };
        let stands_in = StandIn::begin(self);
        let (posted, mut left) = runtime.post(what);
        drop(stands_in);
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
