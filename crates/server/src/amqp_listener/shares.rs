//! Memory that all queues of the listener have together, and what one of them takes of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of ready messages that a queue has here, while there is enough for all.
const WINDOW_BYTES: u64 = 8 << 20;
/// And if there are very many.
const WINDOW_BYTES_MIN: u64 = 64 << 10;
/// Bytes of ready messages of all queues, about.
const WINDOWS_BYTES_MAX: u64 = 512 << 20;
/// Bytes of messages that channels have and that are kept here, so that a requeue costs nothing: of one queue.
const KEPT_BYTES_MAX: u64 = 32 << 20;
/// Of all queues.
const KEPT_OF_ALL_BYTES_MAX: u64 = 256 << 20;

/// What all queues have together.
#[derive(Debug, Clone, Default)]
pub(super) struct Shares(Arc<Taken>);

#[derive(Debug, Default)]
struct Taken {
    /// Queues that have messages ready here, or want to.
    windows: AtomicU64,
    kept_bytes: AtomicU64,
}

impl Shares {
    /// What one queue has of it: nothing yet.
    pub fn share(&self) -> Share {
        Share {
            of: self.clone(),
            has_window: false,
            kept_bytes: 0,
        }
    }
}

/// See the module. What it has is given back when it is dropped.
#[derive(Debug)]
pub(super) struct Share {
    of: Shares,
    has_window: bool,
    kept_bytes: u64,
}

impl Share {
    /// How many bytes of ready messages the queue may have here, which wants some or none.
    pub fn window(&mut self, is_wanted: bool) -> u64 {
        let windows = &self.of.0.windows;
        match (self.has_window, is_wanted) {
            (false, true) => drop(windows.fetch_add(1, Ordering::Relaxed)),
            (true, false) => drop(windows.fetch_sub(1, Ordering::Relaxed)),
            _ => {}
        }
        self.has_window = is_wanted;
        let count = windows.load(Ordering::Relaxed).max(1);
        (WINDOWS_BYTES_MAX / count).clamp(WINDOW_BYTES_MIN, WINDOW_BYTES)
    }

    /// Whether a message that a channel gets is kept as well.
    pub fn keep(&mut self, bytes: u64) -> bool {
        let of_all = &self.of.0.kept_bytes;
        let is_kept = self.kept_bytes + bytes <= KEPT_BYTES_MAX
            && of_all.load(Ordering::Relaxed) + bytes <= KEPT_OF_ALL_BYTES_MAX;
        if is_kept {
            self.kept_bytes += bytes;
            of_all.fetch_add(bytes, Ordering::Relaxed);
        }
        is_kept
    }

    /// One that was kept is not any more.
    pub fn give_up(&mut self, bytes: u64) {
        let bytes = bytes.min(self.kept_bytes);
        self.kept_bytes -= bytes;
        self.of.0.kept_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.window(false);
        self.give_up(self.kept_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_queues_have_little_each_and_have_it_back() {
        let shares = Shares::default();
        let mut first = shares.share();
        assert_eq!(first.window(true), WINDOW_BYTES);
        let mut others: Vec<_> = (0..9999).map(|_| shares.share()).collect();
        for other in &mut others {
            other.window(true);
        }
        assert_eq!(first.window(true), WINDOW_BYTES_MIN);
        drop(others);
        assert_eq!(first.window(true), WINDOW_BYTES);
    }

    #[test]
    fn what_is_kept_is_bounded_for_one_queue_and_for_all() {
        let shares = Shares::default();
        let mut queues: Vec<_> = (0..9).map(|_| shares.share()).collect();
        for queue in &mut queues[..8] {
            assert!(queue.keep(KEPT_BYTES_MAX));
            assert!(!queue.keep(1));
        }
        assert!(!queues[8].keep(1), "the others have all");
        queues[0].give_up(1);
        assert!(queues[8].keep(1));
        queues.truncate(1);
        assert_eq!(
            shares.0.kept_bytes.load(Ordering::Relaxed),
            KEPT_BYTES_MAX - 1
        );
    }
}
