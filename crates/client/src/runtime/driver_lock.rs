//! The lock of a runtime that has a thread: who drives the core.
//!
//! A thread of the program that waits for something drives the core itself, if
//! nobody does (caller-driven polling): what comes over the network then wakes the
//! thread that waits for it, and not one that wakes that thread in turn. A thread
//! that pushes while nothing is under way sends the event itself (inline send).
//! The client's own thread drives whatever nobody waits for; while a caller
//! drives and waits, it does not watch the network. Nobody waits for the lock:
//! a thread that finds the core driven waits passively for what the one that
//! drives reports. The states are drawn in the crate's README.

use super::{Leftover, Runtime};
use crate::callbacks::{Callback, Defer, DrivesFor, become_clients_thread, call_back};
use crate::driving::{Driving, InlineSend, PassiveWaiter};
use crate::error::ClientError;
use crate::mailbox::Mailbox;
use memory::Deadline;
use memory::fork::ClosedInChild;
use memory::thread::JoinHandle;
use net::{Poller, PollerHandle};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread::ThreadId;
use std::time::Duration;

/// How soon after one caller the next one drives, where a program does nothing
/// but ask and wait.
const SOON: Duration = Duration::from_micros(200);

/// After so many on end the busy mode begins.
const STREAK_MIN: u32 = 16;

/// How often the client's thread looks in the busy mode.
const BUSY_LOOK: Duration = Duration::from_millis(1);

/// Who drives the core of a client with a thread.
pub(crate) struct DriverLock {
    mailbox: Arc<Mailbox>,
    /// Never held while driving.
    state: Mutex<State>,
    /// Arms and wakes the client's thread.
    thread_waker: PollerHandle,
    /// The client's own thread, on which callbacks come.
    thread: OnceLock<ThreadId>,
    /// Callbacks of users that callers came upon while they drove: they are
    /// called by the thread, before anything that it comes upon itself.
    callbacks: Mutex<Vec<Callback>>,
}

/// Who drives.
enum Driver {
    /// Nobody: the first to come takes the runtime.
    Idle(Box<Runtime>),
    /// The client's thread, or a caller in its place. `thread_waits`: the
    /// client's thread found it so, and sleeps until it is woken.
    Driven { thread_waits: bool },
    /// A caller drives, and the client's thread could not go on: the client ends
    /// when the caller leaves.
    Orphaned(ClientError),
    /// The core has ended.
    Ended,
}

/// Whether the network wakes the client's thread.
#[derive(PartialEq, Eq)]
enum Network {
    Armed,
    /// A caller waits for the network, or was the last to do so and left the
    /// thread to look by itself.
    Disarmed,
}

/// How the client's thread shares the driving with callers.
enum Mode {
    /// Callers leave nothing behind: what there is wakes the thread. So many drove
    /// on end, each soon after the one before and for little, the last of them then.
    Normal { streak: u32, last: Duration },
    /// The program does nothing but ask and wait. The thread looks every
    /// [`BUSY_LOOK`], whatever happens, so that callers may leave a little
    /// behind, and the network disarmed.
    Busy,
}

impl Mode {
    const NORMAL: Self = Self::Normal {
        streak: 0,
        last: Duration::ZERO,
    };

    fn is_busy(&self) -> bool {
        matches!(self, Self::Busy)
    }

    /// A caller has driven until `now`, for little if `was_short`. Whether the
    /// busy mode begins, for which the thread has to be woken.
    fn count(&mut self, was_short: bool, now: impl FnOnce() -> Duration) -> bool {
        match self {
            _ if !was_short => {
                *self = Self::NORMAL;
                false
            }
            Self::Busy => false,
            Self::Normal { streak, last } => {
                let now = now();
                let is_soon = now.saturating_sub(*last) <= SOON;
                *last = now;
                *streak = if is_soon { *streak + 1 } else { 0 };
                let begins = *streak >= STREAK_MIN;
                if begins {
                    *self = Self::Busy;
                }
                begins
            }
        }
    }
}

struct State {
    driver: Driver,
    network: Network,
    mode: Mode,
    /// When the thread looks by itself, at the latest.
    looks_at: Option<Duration>,
    /// A caller drove since the thread did last.
    is_shared: bool,
    /// Threads that wait while another one drives.
    passive_waiters: u32,
}

impl State {
    /// Takes the runtime, if nobody drives.
    fn begin_driving(&mut self) -> Option<Box<Runtime>> {
        let driven = Driver::Driven {
            thread_waits: false,
        };
        match std::mem::replace(&mut self.driver, driven) {
            Driver::Idle(runtime) => Some(runtime),
            other => {
                self.driver = other;
                None
            }
        }
    }

    /// Whether a caller may leave a little behind.
    fn may_leave_some(&self) -> bool {
        self.mode.is_busy() && self.passive_waiters == 0
    }
}

impl DriverLock {
    /// Starts the thread.
    pub fn start(
        runtime: Runtime,
        mailbox: &Arc<Mailbox>,
    ) -> Result<(Arc<Self>, JoinHandle<()>), ClientError> {
        let system = |error| {
            let error = std::io::Error::other(error);
            ClientError::io("making the client's thread", error)
        };
        let poller = runtime.poller().map_err(system)?;
        let descriptors = poller.descriptors().into_iter();
        // What a forked child closes. The thread has it beside what it waits on,
        // for it may end long before others that share the lock.
        let closed_in_child: Vec<_> = descriptors.map(ClosedInChild::new).collect();
        let driver = Arc::new(Self {
            mailbox: mailbox.clone(),
            state: Mutex::new(State {
                driver: Driver::Idle(Box::new(runtime)),
                network: Network::Armed,
                mode: Mode::NORMAL,
                // It looks at once.
                looks_at: Some(Duration::ZERO),
                is_shared: false,
                passive_waiters: 0,
            }),
            thread_waker: poller.handle(),
            thread: OnceLock::new(),
            callbacks: Mutex::default(),
        });
        let own = driver.clone();
        let run = move || {
            let mut poller = poller;
            own.run(&mut poller);
            drop(closed_in_child);
        };
        let thread = memory::thread::spawn("thalweg-client", run)
            .map_err(|error| ClientError::io("starting the client's thread", error))?;
        Ok((driver, thread))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics here")
    }

    fn run(&self, poller: &mut Poller) {
        let _ = self.thread.set(std::thread::current().id());
        become_clients_thread();
        while let Some(wait) = self.look() {
            if let Err(error) = poller.wait(wait) {
                return self.give_up(ClientError::io(
                    "waiting for the network",
                    std::io::Error::other(error),
                ));
            }
        }
    }

    /// Does what there is to do, unless a caller drives, and returns how long
    /// the thread is to wait then. `None` when the client has ended.
    fn look(&self) -> Option<Option<Duration>> {
        self.call_deferred();
        let mut state = self.lock();
        let is_busy = state.mode.is_busy();
        match &mut state.driver {
            Driver::Idle(_) => {}
            Driver::Driven { .. } if is_busy => {
                // It is back soon enough for whatever is left behind.
                state.looks_at = Some(self.mailbox.clock().now() + BUSY_LOOK);
                return Some(Some(BUSY_LOOK));
            }
            Driver::Driven { thread_waits } => {
                *thread_waits = true;
                return Some(None);
            }
            Driver::Orphaned(_) | Driver::Ended => return None,
        }
        let mut runtime = state.begin_driving().expect("nobody drives");
        // What is waited for elsewhere is not to be looked for here.
        let is_shared = std::mem::take(&mut state.is_shared);
        if !is_shared && is_busy {
            state.mode = Mode::NORMAL;
        }
        drop(state);
        self.call_deferred();
        let Some(timer) = runtime.drive_until_idle(!is_shared) else {
            self.lock().driver = Driver::Ended;
            return None;
        };
        let now = runtime.now();
        let mut state = self.lock();
        let busy_look = state.mode.is_busy().then(|| now + BUSY_LOOK);
        let looks_at = [timer, busy_look].into_iter().flatten().min();
        state.looks_at = looks_at;
        state.driver = Driver::Idle(runtime);
        // A caller left it so.
        if state.network == Network::Disarmed {
            if self.thread_waker.arm().is_err() {
                return Some(Some(Duration::ZERO));
            }
            state.network = Network::Armed;
        }
        Some(looks_at.map(|at| at.saturating_sub(now)))
    }

    /// The thread cannot go on. Should a caller drive, the client ends when that
    /// one leaves.
    fn give_up(&self, error: ClientError) {
        let mut state = self.lock();
        match std::mem::replace(&mut state.driver, Driver::Ended) {
            Driver::Idle(mut runtime) => {
                drop(state);
                runtime.abandon(&error);
            }
            Driver::Driven { .. } => state.driver = Driver::Orphaned(error),
            Driver::Orphaned(_) | Driver::Ended => {}
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

    /// A caller has driven, and leaves that behind. `wake`: the thread is to be
    /// woken in any case.
    fn give_back(
        &self,
        mut state: MutexGuard<'_, State>,
        mut runtime: Box<Runtime>,
        left: Leftover,
        mut wake: bool,
    ) {
        let orphaned = match std::mem::replace(&mut state.driver, Driver::Ended) {
            Driver::Driven { thread_waits } => {
                wake |= thread_waits;
                None
            }
            Driver::Orphaned(error) => Some(error),
            Driver::Idle(_) | Driver::Ended => unreachable!("a caller drives"),
        };
        if matches!(left, Leftover::Ended) || orphaned.is_some() {
            drop(state);
            if let Some(error) = orphaned {
                runtime.abandon(&error);
            }
            self.thread_waker.wake();
            return;
        }
        let timer = runtime.next_timer();
        let looks_at = state.looks_at;
        wake |= matches!(left, Leftover::Something);
        // A thread that began to wait meanwhile is to be notified of all.
        let is_little = matches!(left, Leftover::Little) && state.passive_waiters == 0;
        wake |= matches!(left, Leftover::Little) && !is_little;
        wake |= timer.is_some_and(|timer| looks_at.is_none_or(|at| timer < at));
        if wake {
            state.looks_at = Some(Duration::ZERO);
        }
        state.is_shared = true;
        state.driver = Driver::Idle(runtime);
        // Under the lock, so that it does not undo what the next one does.
        if !is_little && state.network == Network::Disarmed {
            state.network = Network::Armed;
            // It was registered and is open, so this does not fail; if it did,
            // the thread would still be woken.
            wake |= self.thread_waker.arm().is_err();
        }
        drop(state);
        if wake {
            self.thread_waker.wake();
        }
    }
}

impl Defer for DriverLock {
    fn defer(&self, callback: Callback) {
        let mut callbacks = self.callbacks.lock().expect("no holder panics here");
        callbacks.push(callback);
        let is_first = callbacks.len() == 1;
        drop(callbacks);
        if is_first {
            self.thread_waker.wake();
        }
    }
}

impl Driving for DriverLock {
    fn is_by_callers(&self) -> bool {
        false
    }

    fn can_wait(&self) -> bool {
        // Before the thread has begun there is nothing to wait for.
        let own = self.thread.get();
        own.is_some_and(|thread| *thread != std::thread::current().id())
    }

    fn leave(&self) {
        self.lock().passive_waiters -= 1;
    }

    /// A caller that drives hears it by the reactor's waker. If nobody drives,
    /// and the network was left disarmed, the thread is woken.
    fn wake(&self) {
        let state = self.lock();
        let is_left = matches!(state.driver, Driver::Idle(_)) && state.network == Network::Disarmed;
        drop(state);
        if is_left {
            self.thread_waker.wake();
        }
    }

    fn drive(
        self: Arc<Self>,
        deadline: Deadline,
        done: &mut dyn FnMut() -> bool,
    ) -> Result<bool, PassiveWaiter> {
        // In a callback, what is waited for can come of nothing but its end.
        if deadline.has_passed() || !self.can_wait() {
            return Err(PassiveWaiter::uncounted());
        }
        let mut state = self.lock();
        let Some(mut runtime) = state.begin_driving() else {
            state.passive_waiters += 1;
            drop(state);
            return Err(PassiveWaiter::counted(self));
        };
        let may_leave_some = state.may_leave_some();
        drop(state);
        let drives = DrivesFor::begin(self.clone());
        let disarm = || {
            let mut state = self.lock();
            if state.network == Network::Armed && self.thread_waker.disarm().is_ok() {
                state.network = Network::Disarmed;
            }
        };
        let left = runtime.drive_for_caller(deadline, done, disarm, may_leave_some);
        drop(drives);
        let is_done = done();
        let has_ended = matches!(left, Leftover::Ended);
        let was_short = runtime.was_short();
        let mut state = self.lock();
        let busy_begins = state.mode.count(was_short, || runtime.now());
        self.give_back(state, runtime, left, busy_begins);
        match is_done || !has_ended {
            true => Ok(is_done),
            false => Err(PassiveWaiter::uncounted()),
        }
    }

    fn send_inline(self: Arc<Self>, what: InlineSend) -> bool {
        trace::passes!("who pushes drives the core, if nobody does");
        let Some(mut runtime) = self.lock().begin_driving() else {
            return false;
        };
        let drives = DrivesFor::begin(self.clone());
        let (sent, mut left) = runtime.send_inline(what);
        drop(drives);
        let state = self.lock();
        if state.may_leave_some() {
            left = match left {
                Leftover::Something => Leftover::Little,
                // The thread that sent this waits for what comes of it, or none does.
                Leftover::Nothing if state.network == Network::Disarmed && what.is_quiet() => {
                    Leftover::Little
                }
                left => left,
            };
        }
        self.give_back(state, runtime, left, false);
        sent
    }
}
