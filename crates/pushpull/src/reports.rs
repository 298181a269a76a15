//! Lines about connections, so many in a time: who connects again and again fills no log.

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Lines in [`WINDOW`] at most.
const LINES_MAX: u32 = 20;
const WINDOW: Duration = Duration::from_secs(10);

/// Passes lines on, 20 in 10 s at most; how many were left out is said with the next one.
#[derive(Debug)]
pub struct Reports {
    say: fn(&str),
    /// Guards the count, and is not held while a line is said: that may take its time.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    began: Option<Instant>,
    said: u32,
    left_out: u64,
}

impl Reports {
    /// Lines go to `say`.
    pub fn new(say: fn(&str)) -> Self {
        Self {
            say,
            state: Mutex::default(),
        }
    }

    /// Says a line, or counts it.
    pub fn line(&self, text: &str) {
        self.line_at(Instant::now(), text);
    }

    pub(crate) fn line_at(&self, now: Instant, text: &str) {
        let Some(left_out) = self.state().count(now) else {
            return;
        };
        if left_out > 0 {
            (self.say)(&format!("{left_out} more lines were left out"));
        }
        (self.say)(text);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics here")
    }
}

impl State {
    /// Counts a line. How many were left out before it, or `None` if it is left out too.
    fn count(&mut self, now: Instant) -> Option<u64> {
        let is_over = |began: Instant| now.saturating_duration_since(began) >= WINDOW;
        let mut left_out = 0;
        if self.began.is_none_or(is_over) {
            left_out = self.left_out;
            *self = Self {
                began: Some(now),
                ..Self::default()
            };
        }
        if self.said == LINES_MAX {
            self.left_out += 1;
            return None;
        }
        self.said += 1;
        Some(left_out)
    }
}
