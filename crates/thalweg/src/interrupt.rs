//! Signals: what ends a command, and what does not end a server.

use crate::failure::{About, Failure};
use rustix::process::{Signal, parent_process_death_signal};
use server::{DrainHandle, Interruption};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// Whether a signal that comes again is somebody who cannot wait. One that the system sends for the end of who started
/// this process is none: that comes once for each thread of theirs (`forget_original_parent` of Linux).
#[derive(Clone, Copy)]
struct Impatience {
    is_tied: bool,
}

impl Impatience {
    /// As the calling thread was tied, which has to be the first one of the process.
    fn of_process() -> Result<Self, Failure> {
        let sent = parent_process_death_signal().map_err(io::Error::from);
        Ok(Self {
            is_tied: sent.about("the end of who started it")? == Some(Signal::TERM),
        })
    }

    fn is(self, signal: i32) -> bool {
        !(self.is_tied && signal == SIGTERM)
    }
}

/// Calls `asked` once, on another thread, when the user wants an end. A
/// second signal ends the process at once, with the code that shells expect; where the process is tied to who started it, SIGTERM does not.
/// To be called on the first thread.
pub fn on_interrupt(asked: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    let mut asked = Some(asked);
    let impatience = Impatience::of_process()?;
    watch(&[SIGINT, SIGTERM], move |signal| match asked.take() {
        Some(asked) => asked(),
        None if impatience.is(signal) => std::process::exit(128 + signal),
        None => {}
    })
}

/// Calls `asked` on another thread whenever the user, or a launcher, wants an end. No signal ends the process.
pub fn on_every_interrupt(mut asked: impl FnMut() + Send + 'static) -> Result<(), Failure> {
    watch(&[SIGINT, SIGTERM], move |_| asked())
}

/// Lets signals drain a server from before it starts: the first SIGINT or
/// SIGTERM drains it, or ends its start where that waits for other servers; a second one ends the process at once; where the process is tied to who started it, a second
/// SIGTERM does not.
///
/// SIGHUP, SIGUSR1 and SIGUSR2 are reported in a line and do nothing more, so
/// that a terminal that goes away does not end a server without a drain.
#[derive(Clone)]
pub struct DrainOnSignal {
    /// Held for a moment only, by the thread of the signals and by the one that starts the server.
    state: Arc<Mutex<State>>,
    impatience: Impatience,
    start: Interruption,
}

#[derive(Default)]
struct State {
    is_asked: bool,
    server: Option<(DrainHandle, Duration)>,
}

impl DrainOnSignal {
    /// Takes the signals from now on; to be called on the first thread of the process. A drain that is asked for before
    /// [`DrainOnSignal::server_runs`] begins then.
    pub fn install() -> Result<Self, Failure> {
        let taken = Self {
            state: Arc::default(),
            impatience: Impatience::of_process()?,
            start: Interruption::default(),
        };
        let told = taken.clone();
        let signals = [SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2];
        watch(&signals, move |signal| told.take(signal))?;
        Ok(taken)
    }

    /// What ends a start that waits for other servers, when a signal has come.
    pub fn start(&self) -> &Interruption {
        &self.start
    }

    /// The server to drain, and how long that may take.
    pub fn server_runs(&self, server: DrainHandle, timeout: Duration) {
        let mut state = self.state();
        if state.is_asked {
            server.drain(timeout);
        }
        state.server = Some((server, timeout));
    }

    fn take(&self, signal: i32) {
        let ignored = match signal {
            SIGHUP => "SIGHUP",
            SIGUSR1 => "SIGUSR1",
            SIGUSR2 => "SIGUSR2",
            _ => "",
        };
        if !ignored.is_empty() {
            crate::output::report(&format!(
                "{ignored} is ignored; SIGTERM or SIGINT drains the server and ends it"
            ));
            return;
        }
        let mut state = self.state();
        if std::mem::replace(&mut state.is_asked, true) {
            if self.impatience.is(signal) {
                std::process::exit(128 + signal);
            }
            return;
        }
        match &state.server {
            Some((server, timeout)) => server.drain(*timeout),
            None => {
                crate::output::report(
                    "the server ends when its start is done, or waits for other servers; a second signal ends it at once",
                );
                self.start.interrupt();
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }
}

/// Calls `take` with each of the signals that comes, on a thread of its own.
fn watch(signals: &[i32], mut take: impl FnMut(i32) + Send + 'static) -> Result<(), Failure> {
    let mut signals = Signals::new(signals).about("signals")?;
    let spawned: io::Result<_> = std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || signals.forever().for_each(&mut take));
    spawned.map(drop).about("signals")
}
