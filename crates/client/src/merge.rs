//! Which partition's turn it is where events of all partitions are merged by
//! the time of their appending.
//!
//! Of what has arrived, the batch with the least time comes next, unless a
//! partition has nothing here: what comes of it may be older. So a batch is held
//! back until every partition has something, or has failed, or it was here for
//! as long as the program lets it. That time is counted in ticks, which run
//! while something is held.

use std::time::Duration;

/// Ticks that a batch waits at most, one more than those that make up the time:
/// the first of them may have begun long before.
const TICKS_HELD: u64 = 5;

/// What is merged, and how long it may be held back.
#[derive(Debug)]
pub(crate) struct Merge {
    wait: Duration,
    tick: u64,
    is_ticking: bool,
}

/// What is first of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Head {
    /// When it was appended; 0 for a gap, which has no time and waits for nothing.
    pub append_time: u64,
    pub partition: u32,
    /// The tick in which it arrived.
    pub tick: u64,
}

/// Whose turn it is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Of(u32),
    /// Something is held back. `begin`: ticks are to be begun.
    Held {
        begin: bool,
    },
    Nobody,
}

impl Merge {
    pub fn new(wait: Duration) -> Self {
        Self {
            wait,
            tick: 0,
            is_ticking: false,
        }
    }

    /// How long a tick lasts.
    pub fn tick_length(&self) -> Duration {
        self.wait / (TICKS_HELD as u32 - 1)
    }

    /// The tick that it is.
    pub fn now(&self) -> u64 {
        self.tick
    }

    /// Whose turn it is, of what is first of each partition; `is_awaited` says
    /// whether there is a partition of which nothing has arrived.
    pub fn turn(&mut self, heads: impl Iterator<Item = Head>, is_awaited: bool) -> Turn {
        let Some(first) = heads.min() else {
            return Turn::Nobody;
        };
        let was_held = self.tick >= first.tick + TICKS_HELD;
        if !is_awaited || first.append_time == 0 || was_held || self.wait.is_zero() {
            return Turn::Of(first.partition);
        }
        let begin = !std::mem::replace(&mut self.is_ticking, true);
        Turn::Held { begin }
    }

    /// A tick has passed.
    pub fn ticked(&mut self) {
        self.tick += 1;
        self.is_ticking = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(partition: u32, append_time: u64, tick: u64) -> Head {
        Head {
            append_time,
            partition,
            tick,
        }
    }

    #[test]
    fn the_oldest_comes_first_where_every_partition_has_something() {
        let mut merge = Merge::new(Duration::from_secs(1));
        let heads = [head(0, 30, 0), head(1, 10, 0), head(2, 10, 0)];
        assert_eq!(merge.turn(heads.into_iter(), false), Turn::Of(1));
        assert_eq!(merge.turn([].into_iter(), true), Turn::Nobody);
    }

    #[test]
    fn a_silent_partition_is_waited_for_and_then_passed_over() {
        let mut merge = Merge::new(Duration::from_secs(1));
        assert_eq!(merge.tick_length(), Duration::from_millis(250));
        let heads = || [head(0, 30, 0)].into_iter();
        assert_eq!(merge.turn(heads(), true), Turn::Held { begin: true });
        assert_eq!(merge.turn(heads(), true), Turn::Held { begin: false });
        for _ in 0..4 {
            merge.ticked();
            assert_eq!(merge.turn(heads(), true), Turn::Held { begin: true });
        }
        merge.ticked();
        assert_eq!(merge.turn(heads(), true), Turn::Of(0));
        // What arrived later is held as long.
        let later = [head(0, 31, merge.now())];
        assert_eq!(
            merge.turn(later.into_iter(), true),
            Turn::Held { begin: true }
        );
    }

    #[test]
    fn gaps_wait_for_nothing() {
        let mut merge = Merge::new(Duration::from_secs(1));
        let heads = [head(0, 30, 0), head(1, 0, 0)];
        assert_eq!(merge.turn(heads.into_iter(), true), Turn::Of(1));
    }
}
