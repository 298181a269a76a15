//! Further connections of a session: when one is opened. Plain state, which is given the time.
//!
//! ```text
//!              limited                          joined
//!  Watching ────────────► Opening ───────────────────────► Measuring
//!      ▲                     │ not within 10 s, or refused     │ a second later: does the rate rise by 5 %?
//!      │                     ▼                                 │
//!      └── 30 s, and twice Resting ◄───────────────────── no ──┤
//!      │   as long each time it could not be opened            │
//!      └───────────────────────────────────────────────── yes ─┘
//! ```

use super::io::{Output, StripeDial};
use net::{Link, Striped};
use std::time::Duration;

/// How often it is looked whether one more would be of use.
pub(super) const LOOK: Duration = Duration::from_secs(1);
/// How long one may take to be opened.
const OPEN_WITHIN: Duration = Duration::from_secs(10);
/// For how long none is opened after one that did not help.
const REST: Duration = Duration::from_secs(30);
/// And at most after those that could not be opened.
const REST_MAX: Duration = Duration::from_secs(600);

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Open,
    GiveUp,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    Watching,
    /// One is being opened; so many bytes a second went before.
    Opening {
        since: Duration,
        rate: f64,
    },
    /// One was added.
    Measuring {
        since: Duration,
        rate: f64,
    },
    Resting {
        until: Duration,
    },
}

/// When one more connection is opened.
#[derive(Debug)]
struct Growth {
    most: usize,
    /// Whether all are opened one behind the other, limited or not.
    at_once: bool,
    state: State,
    /// When it was looked last, and the bytes that had gone by then.
    last: (Duration, u64),
    /// Those that could not be opened, one behind the other.
    failures: u32,
}

impl Growth {
    fn new(now: Duration, most: usize, at_once: bool) -> Self {
        Self {
            most,
            at_once,
            state: State::Watching,
            last: (now, 0),
            failures: 0,
        }
    }

    /// Time has passed, and this was seen since the last time.
    fn look(&mut self, now: Duration, seen: Striped) -> Option<Act> {
        let (then, before) = std::mem::replace(&mut self.last, (now, seen.moved_bytes));
        let seconds = now.saturating_sub(then).as_secs_f64().max(1e-3);
        let rate = seen.moved_bytes.saturating_sub(before) as f64 / seconds;
        let is_limited = seen.is_limited || self.at_once;
        match self.state {
            State::Opening { since, .. } if now >= since + OPEN_WITHIN => {
                self.failed(now);
                return Some(Act::GiveUp);
            }
            State::Measuring { since, .. } if now < since + LOOK && !self.at_once => return None,
            // What one more connection brings, it brings at once or not at all.
            State::Measuring { rate: before, .. } if rate <= before * 1.05 && !self.at_once => {
                self.state = State::Resting { until: now + REST };
                return None;
            }
            State::Resting { until } if now < until => return None,
            State::Opening { .. } => return None,
            State::Watching | State::Measuring { .. } | State::Resting { .. } => {
                self.state = State::Watching;
            }
        }
        if !is_limited || seen.connections >= self.most {
            return None;
        }
        self.state = State::Opening { since: now, rate };
        Some(Act::Open)
    }

    /// The one that was to be opened has joined.
    fn joined(&mut self, now: Duration) {
        if let State::Opening { rate, .. } = self.state {
            self.failures = 0;
            self.state = State::Measuring { since: now, rate };
        }
    }

    /// The one that was to be opened could not be.
    fn failed(&mut self, now: Duration) {
        let rest = REST.saturating_mul(1 << self.failures.min(5)).min(REST_MAX);
        self.failures = self.failures.saturating_add(1);
        self.state = State::Resting { until: now + rest };
    }
}

/// The further connections of the present session.
pub(super) struct Stripes {
    growth: Growth,
    dial: StripeDial,
}

impl Stripes {
    /// A session that may have `most` connections, each further one opened so.
    pub fn new(now: Duration, most: u8, at_once: bool, dial: StripeDial) -> Self {
        Self {
            growth: Growth::new(now, most.into(), at_once),
            dial,
        }
    }

    /// Time has passed: opens one more, if it would be of use. Says how many there are.
    pub fn look(
        &mut self,
        now: Duration,
        attempt: u64,
        link: &mut dyn Link,
    ) -> (Option<usize>, Option<Output>) {
        let Some(seen) = link.stripes() else {
            return (None, None);
        };
        let output = self.growth.look(now, seen).map(|act| match act {
            Act::Open => Output::OpenStripe {
                attempt,
                dial: self.dial.clone(),
            },
            Act::GiveUp => Output::DropStripe,
        });
        (Some(seen.connections), output)
    }

    /// What came of the one that was to be opened.
    pub fn opened(&mut self, now: Duration, result: &Result<(), String>) {
        match result {
            Ok(()) => self.growth.joined(now),
            Err(_) => self.growth.failed(now),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn seen(connections: usize, is_limited: bool, moved_bytes: u64) -> Striped {
        Striped {
            connections,
            is_limited,
            moved_bytes,
        }
    }

    #[test]
    fn a_session_that_is_not_limited_has_one_connection() {
        let mut growth = Growth::new(at(0), 8, false);
        for second in 1..100 {
            assert_eq!(growth.look(at(second), seen(1, false, second << 30)), None);
        }
    }

    #[test]
    fn one_is_added_at_a_time_while_the_rate_rises_and_no_more_than_asked_for() {
        let mut growth = Growth::new(at(0), 3, false);
        let (mut moved, mut connections, mut opened) = (0, 1, 0);
        for second in 1..60 {
            moved += 100 * connections as u64;
            if growth.look(at(second), seen(connections, true, moved)) == Some(Act::Open) {
                opened += 1;
                assert_eq!(
                    growth.look(at(second), seen(connections, true, moved)),
                    None
                );
                connections += 1;
                growth.joined(at(second));
            }
        }
        assert_eq!((connections, opened), (3, 2));
    }

    #[test]
    fn one_that_does_not_help_is_the_last_for_a_while() {
        let mut growth = Growth::new(at(0), 8, false);
        assert_eq!(growth.look(at(1), seen(1, true, 1000)), Some(Act::Open));
        growth.joined(at(1));
        assert_eq!(growth.look(at(2), seen(2, true, 2040)), None);
        for second in 3..32 {
            assert_eq!(growth.look(at(second), seen(2, true, 1000 * second)), None);
        }
        assert_eq!(growth.look(at(32), seen(2, true, 32000)), Some(Act::Open));
    }

    #[test]
    fn what_cannot_be_opened_is_tried_more_and_more_rarely() {
        let mut growth = Growth::new(at(0), 8, false);
        let mut tries = Vec::new();
        for second in 1..2000 {
            if growth.look(at(second), seen(1, true, 0)) == Some(Act::Open) {
                growth.failed(at(second));
                tries.push(second);
            }
        }
        assert_eq!(tries, [1, 31, 91, 211, 451, 931, 1531]);
        // One that nothing is heard of is given up.
        let mut growth = Growth::new(at(0), 8, false);
        assert_eq!(growth.look(at(1), seen(1, true, 0)), Some(Act::Open));
        let acts: Vec<_> = (2..12)
            .filter_map(|s| growth.look(at(s), seen(1, true, 0)))
            .collect();
        assert_eq!(acts, [Act::GiveUp]);
    }
}
