//! Signals: what ends a command, and what does not end a server.

use crate::failure::{About, Failure};
use server::DrainHandle;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// Calls `asked` once, on another thread, when the user wants an end. A
/// second signal ends the process at once, with the code that shells expect.
pub fn on_interrupt(asked: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    let mut asked = Some(asked);
    watch(&[SIGINT, SIGTERM], move |signal| match asked.take() {
        Some(asked) => asked(),
        None => std::process::exit(128 + signal),
    })
}

/// Lets signals drain a server from before it starts: the first SIGINT or
/// SIGTERM drains it, a second one ends the process at once.
///
/// SIGHUP, SIGUSR1 and SIGUSR2 are reported in a line and do nothing more, so
/// that a terminal that goes away does not end a server without a drain.
#[derive(Clone, Default)]
pub struct DrainOnSignal {
    /// Held for a moment only, by the thread of the signals and by the one that starts the server.
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    is_asked: bool,
    server: Option<(DrainHandle, Duration)>,
}

impl DrainOnSignal {
    /// Takes the signals from now on. A drain that is asked for before
    /// [`DrainOnSignal::server_runs`] begins then.
    pub fn install() -> Result<Self, Failure> {
        let taken = Self::default();
        let told = taken.clone();
        let signals = [SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2];
        watch(&signals, move |signal| told.take(signal))?;
        Ok(taken)
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
            std::process::exit(128 + signal);
        }
        match &state.server {
            Some((server, timeout)) => server.drain(*timeout),
            None => crate::output::report(
                "the server ends when its start is done; a second signal ends it at once",
            ),
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
