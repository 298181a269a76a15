//! What all sessions of a process may hold together.
//!
//! Who takes from a pool leaves as much free as they have then: one alone has half of it, `n` who grow together have a part of
//! `n + 1` each, and who comes when others have taken what they can has half of what is left. Nothing is taken back.

use crate::faults::{Fault, planted};
use crate::receiving::WINDOW_BYTES;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

/// What the sessions of a process hold at most, by default.
const PROCESS_BYTES: u64 = 2 << 30;

/// What several sessions hold together. Copies are the same.
#[derive(Debug, Clone)]
pub struct Memory {
    /// The first window of each stream, counted in streams.
    streams: Arc<Pool>,
    /// What windows have grown by.
    windows: Arc<Pool>,
    /// Bytes that wait to be sent, or to be heard of.
    sends: Arc<Pool>,
}

#[derive(Debug)]
struct Pool {
    most: u64,
    /// Above `most` only by what each stream may always hold. Any session adds to it and takes away what it had added.
    used: AtomicU64,
}

/// A session's part of a pool. What it has goes back when it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    pool: Arc<Pool>,
    own: u64,
}

/// A session's parts.
#[derive(Debug)]
pub(crate) struct Shares {
    pub streams: Share,
    pub windows: Share,
    pub sends: Share,
}

impl Memory {
    /// So many bytes: half of them for the first windows of streams, a quarter for windows that grow, and a quarter for what is sent.
    pub fn of(bytes: u64) -> Self {
        Self {
            streams: Pool::of(bytes / 2 / WINDOW_BYTES),
            windows: Pool::of(bytes / 4),
            sends: Pool::of(bytes / 4),
        }
    }

    /// That of this process.
    pub fn of_process() -> Self {
        static PROCESS: LazyLock<Memory> = LazyLock::new(|| Memory::of(PROCESS_BYTES));
        PROCESS.clone()
    }

    pub(crate) fn shares(&self) -> Shares {
        let share = |pool: &Arc<Pool>| Share {
            pool: pool.clone(),
            own: 0,
        };
        Shares {
            streams: share(&self.streams),
            windows: share(&self.windows),
            sends: share(&self.sends),
        }
    }
}

impl Pool {
    fn of(most: u64) -> Arc<Self> {
        let used = AtomicU64::new(0);
        Arc::new(Self { most, used })
    }
}

impl Share {
    /// What may be taken now. Others may be quicker.
    pub(crate) fn spare(&self) -> u64 {
        if planted(Fault::OwnMemory) {
            return (self.pool.most / 2).saturating_sub(self.own);
        }
        let used = self.pool.used.load(Ordering::Relaxed);
        let free = self.pool.most.saturating_sub(used);
        free.saturating_sub(self.own) / 2
    }

    /// Takes so much, or less, or nothing. Gives what was taken.
    pub(crate) fn take(&mut self, bytes: u64) -> u64 {
        let bytes = bytes.min(self.spare());
        let most = match planted(Fault::OwnMemory) {
            true => u64::MAX,
            false => self.pool.most,
        };
        let fits = |used: u64| used.checked_add(bytes).filter(|used| *used <= most);
        let (set, get) = (Ordering::Relaxed, Ordering::Relaxed);
        match self.pool.used.fetch_update(set, get, fits) {
            Ok(_) => {
                self.own += bytes;
                bytes
            }
            // Others were quicker.
            Err(_) => 0,
        }
    }

    /// Has so much more whatever others have: what a stream may always hold.
    pub(crate) fn hold(&mut self, bytes: u64) {
        self.own += bytes;
        self.pool.used.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Gives so much back.
    pub(crate) fn give(&mut self, bytes: u64) {
        self.own -= bytes;
        self.pool.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.give(self.own);
    }
}

#[cfg(test)]
impl Share {
    /// What it has.
    pub(crate) fn own(&self) -> u64 {
        self.own
    }
}

#[cfg(test)]
impl Memory {
    /// Enough for streams and their windows, and so little for what is sent.
    pub(crate) fn short(sends: u64) -> Self {
        Self {
            sends: Pool::of(sends),
            ..Self::of(2 << 30)
        }
    }

    /// What is used of streams, windows and what is sent.
    pub(crate) fn used(&self) -> [u64; 3] {
        [&self.streams, &self.windows, &self.sends].map(|pool| pool.used.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults;

    fn share(memory: &Memory) -> Share {
        memory.shares().windows
    }

    #[test]
    fn one_alone_has_half_and_each_of_many_leaves_as_much_as_it_has() {
        let memory = Memory::of(4000);
        let mut alone = share(&memory);
        let taken: u64 = (0..20).map(|_| alone.take(77)).sum();
        assert_eq!((taken, alone.own()), (500, 500));
        drop(alone);
        let all = || {
            let mut many: Vec<Share> = (0..9).map(|_| share(&memory)).collect();
            for turn in 0..9000 {
                many[turn % 9].take(1);
            }
            let own: Vec<u64> = many.iter().map(Share::own).collect();
            (own.iter().sum::<u64>(), own)
        };
        let (sum, own) = all();
        assert!(sum <= 900 && own.iter().all(|own| *own >= 95), "{own:?}");
        assert_eq!(memory.used(), [0; 3]);
        assert!(
            faults::with(Fault::OwnMemory, all).0 > 1000,
            "it is not missed"
        );
    }
}
