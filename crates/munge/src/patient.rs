//! A realm that is asked for so long and no longer.

use crate::error::Error;
use crate::library::Library;
use crate::realm::{Realm, Vouched};
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// How long a daemon may take.
pub const DAEMON: Duration = Duration::from_secs(3);
/// What is asked at once, that included for which nobody waits any more.
const RUNNING_MAX: usize = 16;

/// Asks a realm on threads of its own, which a daemon that does not answer keeps: so many at most. Copies share them.
#[derive(Clone)]
pub struct Patient {
    realm: Arc<dyn Realm>,
    running: Arc<AtomicUsize>,
}

impl fmt::Debug for Patient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Patient").finish_non_exhaustive()
    }
}

impl Patient {
    /// Asks this realm.
    pub fn of(realm: Arc<dyn Realm>) -> Self {
        Self {
            realm,
            running: Arc::default(),
        }
    }

    /// Asks the daemon that listens at `socket`, or where the library thinks.
    pub fn at(socket: Option<&Path>) -> Self {
        Self::of(Arc::new(socket.map_or_else(Library::new, Library::at)))
    }

    /// As [`Realm::encode`]. Blocks for `wait` at most.
    ///
    /// # Errors
    /// Those, and [`Error::NoDaemon`] if there is no answer by then, or too much is asked already.
    pub fn encode(&self, payload: Vec<u8>, wait: Duration) -> Result<String, Error> {
        self.ask(wait, move |realm| realm.encode(&payload))
    }

    /// As [`Realm::decode`]. Blocks for `wait` at most.
    ///
    /// # Errors
    /// As [`Patient::encode`].
    pub fn decode(&self, text: String, wait: Duration) -> Result<Vouched, Error> {
        self.ask(wait, move |realm| realm.decode(&text))
    }

    fn ask<T: Send + 'static>(
        &self,
        wait: Duration,
        ask: impl FnOnce(&dyn Realm) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let running = Running::one_more(&self.running);
        let running = running
            .ok_or_else(|| Error::NoDaemon(format!("{RUNNING_MAX} others wait for it already")))?;
        let (answer, came) = mpsc::sync_channel(1);
        let realm = self.realm.clone();
        let main = move || {
            let answered = ask(&*realm);
            drop(running);
            let _ = answer.send(answered);
        };
        let thread = memory::thread::spawn("thalweg-munge", main);
        thread.map_err(|error| Error::NoDaemon(format!("there is no thread for it: {error}")))?;
        let late = || Error::NoDaemon(format!("there is no answer within {wait:?}"));
        came.recv_timeout(wait).unwrap_or_else(|_| Err(late()))
    }
}

/// Something that is asked; ends when it is dropped.
struct Running(Arc<AtomicUsize>);

impl Running {
    fn one_more(count: &Arc<AtomicUsize>) -> Option<Self> {
        let running = Self(count.clone());
        let before = count.fetch_add(1, Ordering::AcqRel);
        (before < RUNNING_MAX).then_some(running)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// A daemon that answers while a test lets it.
    struct Hangs(Arc<Mutex<()>>);

    impl Realm for Hangs {
        fn encode(&self, _: &[u8]) -> Result<String, Error> {
            let _lets = self.0.lock();
            Ok("MUNGE:x:".to_owned())
        }

        fn decode(&self, _: &str) -> Result<Vouched, Error> {
            let _lets = self.0.lock();
            Err(Error::Expired)
        }
    }

    #[test]
    fn a_daemon_that_hangs_keeps_so_many_threads_and_nobody_who_asks() {
        let lets = Arc::<Mutex<()>>::default();
        let patient = Patient::of(Arc::new(Hangs(lets.clone())));
        let held = lets.lock().unwrap();
        for number in 0..3 * RUNNING_MAX {
            let error = patient.encode(Vec::new(), Duration::ZERO).unwrap_err();
            assert!(error.is_unknown(), "{error}");
            let is_full = error.to_string().contains("16 others");
            assert_eq!(is_full, number >= RUNNING_MAX, "{number}: {error}");
        }
        drop(held);
        // Those that hung end, and it goes on.
        while patient.encode(Vec::new(), DAEMON).is_err() {
            std::thread::yield_now();
        }
        let expired = patient.decode(String::new(), DAEMON);
        assert_eq!(expired, Err(Error::Expired));
    }
}
