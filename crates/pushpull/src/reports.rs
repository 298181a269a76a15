//! Lines about connections, so many in a time: who connects again and again fills no log.

use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Lines in [`WINDOW`] at most.
const LINES_MAX: u32 = 20;
const WINDOW: Duration = Duration::from_secs(10);

/// Passes lines on, 20 in 10 s at most; how many were left out is said with the next one.
#[derive(Debug)]
pub struct Reports {
    say: fn(&str),
    /// Guards the count; held while a line is said, so that lines do not mix.
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
        let mut state = self.state.lock().expect("no holder panics here");
        let is_over = |began: Instant| now.saturating_duration_since(began) >= WINDOW;
        if state.began.is_none_or(is_over) {
            if state.left_out > 0 {
                (self.say)(&format!("{} more lines were left out", state.left_out));
            }
            *state = State {
                began: Some(now),
                ..State::default()
            };
        }
        if state.said == LINES_MAX {
            state.left_out += 1;
            return;
        }
        state.said += 1;
        (self.say)(text);
    }
}
