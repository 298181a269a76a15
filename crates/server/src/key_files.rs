//! Reads the files of issuers' keys, each on a thread of its own: a file system that hangs holds up nothing else.

use issuers::KeysFound;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// How long a file that is begun to be read is waited for. What takes longer comes with a later look.
const PATIENCE: Duration = Duration::from_millis(500);
/// The most files that are being read.
const READING_MAX: usize = 64;

/// See the module.
#[derive(Clone)]
pub(crate) struct KeyFiles {
    read: fn(&Path) -> KeysFound,
    shared: Arc<Shared>,
}

impl Default for KeyFiles {
    fn default() -> Self {
        let read = KeysFound::at;
        let shared = Arc::default();
        Self { read, shared }
    }
}

impl fmt::Debug for KeyFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyFiles").finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Something was found.
    found: Condvar,
}

#[derive(Default)]
struct State {
    /// Those that were asked for last.
    asked: BTreeSet<PathBuf>,
    /// Those that a thread reads.
    reading: BTreeSet<PathBuf>,
    found: BTreeMap<PathBuf, KeysFound>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics here")
    }

    fn came(&self, path: PathBuf, found: KeysFound) {
        let mut state = self.state();
        state.reading.remove(&path);
        state.found.insert(path, found);
        self.found.notify_all();
    }
}

impl KeyFiles {
    /// Reads these files, or, if it is not known which, those of the last time.
    pub fn look(&self, paths: Option<BTreeSet<PathBuf>>) -> BTreeMap<PathBuf, KeysFound> {
        let mut state = self.shared.state();
        if let Some(paths) = paths {
            state.asked = paths;
        }
        let asked = state.asked.clone();
        state.found.retain(|path, _| asked.contains(path));
        let mut begun = BTreeSet::new();
        for path in &asked {
            let is_known = state.found.contains_key(path) || state.reading.contains(path);
            if !is_known && state.reading.len() < READING_MAX {
                state.reading.insert(path.clone());
                begun.insert(path.clone());
            }
        }
        drop(state);
        for path in &begun {
            self.begin(path.clone());
        }
        let deadline = Instant::now() + PATIENCE;
        let mut state = self.shared.state();
        while begun.iter().any(|path| state.reading.contains(path)) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.shared.found.wait_timeout(state, left);
            state = waited.expect("no holder panics here").0;
        }
        let take = |path: PathBuf| {
            let found = state.found.remove(&path);
            let late = || KeysFound::Unread("its file system does not answer".to_owned());
            (path, found.unwrap_or_else(late))
        };
        asked.into_iter().map(take).collect()
    }

    fn begin(&self, path: PathBuf) {
        let (read, shared, own) = (self.read, self.shared.clone(), path.clone());
        let main = move || {
            let found = read(&own);
            shared.came(own, found);
        };
        if let Err(error) = memory::thread::spawn("thalweg-keys", main) {
            self.shared.came(path, KeysFound::Unread(error.to_string()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use issuers::Keys;

    /// Whoever reads a file of this name waits for the test.
    static HANGS: Mutex<()> = Mutex::new(());

    #[test]
    fn a_file_that_hangs_is_waited_for_once_and_holds_up_no_other() {
        let read = |path: &Path| {
            if path.ends_with("hangs") {
                drop(HANGS.lock());
            }
            KeysFound::There(Keys::default())
        };
        let files = KeyFiles {
            read,
            shared: Arc::default(),
        };
        let paths: BTreeSet<PathBuf> = ["hangs", "there"].map(PathBuf::from).into();
        let hangs = HANGS.lock().unwrap();
        for _ in 0..3 {
            let found = files.look(Some(paths.clone()));
            let [(_, hangs), (_, there)] = [0, 1].map(|at| found.iter().nth(at).unwrap());
            assert!(matches!(hangs, KeysFound::Unread(why) if why.contains("does not answer")));
            assert_eq!(*there, KeysFound::There(Keys::default()));
            assert_eq!(files.shared.state().reading.len(), 1, "one thread waits");
        }
        drop(hangs);
        while !files.shared.state().reading.is_empty() {
            std::thread::yield_now();
        }
        // What came late is taken, of the files that were asked for before.
        let found = files.look(None);
        assert_eq!(found.len(), 2);
        let is_there = |found: &KeysFound| matches!(found, KeysFound::There(_));
        assert!(found.values().all(is_there));
        assert!(files.look(Some(BTreeSet::new())).is_empty());
        assert!(files.shared.state().found.is_empty());
    }
}
