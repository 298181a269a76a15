//! What projects have stored, as it was counted last.

use std::collections::BTreeMap;
use std::time::Duration;

/// How often it is counted anew what is stored.
const COUNT_AGAIN: Duration = Duration::from_secs(1);
/// The same at the bound, where somebody waits.
const COUNT_AGAIN_AT_BOUND: Duration = Duration::from_millis(100);

/// What a project has stored, as it was counted last.
#[derive(Debug, Clone, Copy)]
struct Stored {
    bytes: u64,
    /// What came since.
    since: u64,
    at: Duration,
}

impl Stored {
    /// With so many bytes more, which are somebody's word.
    fn with(&self, more: u64) -> u64 {
        self.bytes.saturating_add(self.since).saturating_add(more)
    }
}

/// What is known of what projects have stored.
#[derive(Debug, Default)]
pub(crate) struct StoredBytes(BTreeMap<String, Stored>);

impl StoredBytes {
    /// Whether so many bytes more are within the bound; they are counted if so. `count` counts what is
    /// stored, which takes a while where there are many partitions.
    pub fn take(
        &mut self,
        project: &str,
        more: u64,
        most: u64,
        now: Duration,
        count: impl FnOnce() -> u64,
    ) -> bool {
        let known = self.0.get(project).copied();
        let known = known.filter(|known| {
            let at_bound = known.with(more) > most;
            let lasts = if at_bound {
                COUNT_AGAIN_AT_BOUND
            } else {
                COUNT_AGAIN
            };
            now < known.at + lasts
        });
        let mut stored = known.unwrap_or_else(|| Stored {
            bytes: count(),
            since: 0,
            at: now,
        });
        let fits = stored.with(more) <= most;
        stored.since += if fits { more } else { 0 };
        self.0.insert(project.to_owned(), stored);
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_counted_now_and_then_and_sooner_at_the_bound() {
        let mut stored = StoredBytes::default();
        let second = Duration::from_secs(1);
        assert!(stored.take("p", 10, 100, second, || 80));
        // What came since counts without a look.
        let nobody_looks = || panic!("it is counted already");
        assert!(stored.take("p", 10, 100, second, nobody_looks));
        assert!(!stored.take("p", 10, 100, second, nobody_looks));
        // At the bound there is a look soon: somebody has made room.
        let soon = second + COUNT_AGAIN_AT_BOUND;
        assert!(stored.take("p", 10, 100, soon, || 20));
        assert!(stored.take("p", 10, 100, soon, nobody_looks));
        assert!(stored.take("p", 10, 100, soon + COUNT_AGAIN, || 90));
        // Each project by itself.
        assert!(stored.take("q", 10, 100, soon, || 0));
    }
}
