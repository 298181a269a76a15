//! Programs that wait, in a simulation of one thread: each has a thread, of which one at a time runs, and only when the
//! simulation says so. A seed's run is the same each time.

use client::SimulatedWait;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

/// After so much more simulated time no deadline is left.
const LATER: Duration = Duration::from_secs(1 << 32);

thread_local! {
    static CURRENT: RefCell<Option<Arc<Shared>>> = const { RefCell::new(None) };
}

/// A program on a thread of its own. Killed when dropped.
pub struct Fiber {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Whose turn it is: the program's, or the simulation's.
    is_running: bool,
    has_ended: bool,
    is_killed: bool,
    now: Duration,
    /// When it is to run at the latest.
    wake_at: Duration,
    /// Whether it waits for its client, too.
    waits: bool,
    panic: Option<String>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }

    fn until<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        is_running: bool,
    ) -> MutexGuard<'a, State> {
        let other = |state: &mut State| state.is_running != is_running;
        let state = self.changed.wait_while(state, other);
        state.expect("no holder panics")
    }

    /// Gives the turn to the simulation. False when the program is killed.
    fn pause(&self, at_most: Duration, waits: bool) -> bool {
        let mut state = self.lock();
        if state.is_killed {
            return false;
        }
        state.wake_at = state.now.saturating_add(at_most);
        state.waits = waits;
        state.is_running = false;
        self.changed.notify_all();
        let state = self.until(state, true);
        memory::testing::say_time(state.now);
        !state.is_killed
    }
}

impl Fiber {
    /// A program that will run when it is resumed.
    pub fn start(program: impl FnOnce() + Send + 'static) -> Self {
        let shared = Arc::<Shared>::default();
        let own = shared.clone();
        let thread = std::thread::spawn(move || {
            let state = own.until(own.lock(), true);
            memory::testing::say_time(state.now);
            drop(state);
            CURRENT.set(Some(own.clone()));
            let outcome = catch_unwind(AssertUnwindSafe(program));
            let mut state = own.lock();
            state.panic = outcome.err().map(|panic| {
                let text = panic.downcast_ref::<String>().cloned();
                text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
                    .unwrap_or_default()
            });
            state.has_ended = true;
            state.is_running = false;
            own.changed.notify_all();
        });
        Self {
            shared,
            thread: Some(thread),
        }
    }

    /// Lets it run until it waits.
    pub fn resume(&self, now: u64) {
        let mut state = self.shared.lock();
        if state.has_ended {
            return;
        }
        if !state.is_killed {
            state.now = Duration::from_nanos(now);
        }
        state.is_running = true;
        self.shared.changed.notify_all();
        drop(self.shared.until(state, false));
    }

    /// When it wants to run, if nothing comes for it before; `None` when it has ended.
    pub fn wake_at(&self) -> Option<u64> {
        let state = self.shared.lock();
        let at = u64::try_from(state.wake_at.as_nanos()).unwrap_or(u64::MAX);
        (!state.has_ended).then_some(at)
    }

    /// Whether it waits for something of its client.
    pub fn waits(&self) -> bool {
        self.shared.lock().waits
    }

    pub fn has_ended(&self) -> bool {
        self.shared.lock().has_ended
    }

    /// With what it has panicked.
    pub fn panic(&self) -> Option<String> {
        self.shared.lock().panic.clone()
    }

    /// Its client is gone: every call fails, and nothing is said any more.
    pub fn kill(&mut self) {
        {
            let mut state = self.shared.lock();
            state.is_killed = true;
            state.now = state.now.saturating_add(LATER);
        }
        while !self.has_ended() {
            self.resume(0);
        }
        if let Some(thread) = self.thread.take() {
            // What it has panicked with is kept.
            let _ = thread.join();
        }
    }
}

impl Drop for Fiber {
    fn drop(&mut self) {
        self.kill();
    }
}

fn current() -> Option<Arc<Shared>> {
    CURRENT.with_borrow(Clone::clone)
}

/// The program on this thread does nothing for so long. False when it is killed.
pub fn sleep(ns: u64) -> bool {
    current().is_some_and(|shared| shared.pause(Duration::from_nanos(ns), false))
}

/// What time it is for the program on this thread; `None` if it is killed: what it does then nobody sees.
pub fn now() -> Option<u64> {
    let shared = current()?;
    let state = shared.lock();
    (!state.is_killed).then_some(state.now.as_nanos() as u64)
}

/// How clients of fibers wait.
pub struct FiberWait;

impl SimulatedWait for FiberWait {
    fn go_on(&self, at_most: Duration) -> bool {
        current().is_some_and(|shared| shared.pause(at_most, true))
    }
}
