//! What happened in a run: lines, if they are wanted, and a hash of all of it.

use std::fmt::Write as _;

/// A run's trace.
#[derive(Default)]
pub(super) struct Trace {
    /// None if nobody wants them: nothing is formatted then.
    lines: Option<Vec<String>>,
    hash: u64,
}

/// Something that must never happen, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Violation(pub(super) String);

impl Trace {
    pub(super) fn kept() -> Self {
        Self {
            lines: Some(Vec::new()),
            hash: 0,
        }
    }

    /// Something happened at `now`, microseconds.
    pub(super) fn say(&mut self, now: u64, line: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            let mut text = String::new();
            let _ = write!(text, "{:9.3} ms ", now as f64 / 1000.0);
            text += &line();
            lines.push(text);
        }
    }

    /// Goes into the hash.
    pub(super) fn note(&mut self, numbers: &[u64]) {
        for number in numbers {
            self.hash = (self.hash ^ number)
                .wrapping_mul(0x0000_0100_0000_01b3)
                .rotate_left(23);
        }
    }

    pub(super) fn hash(&self) -> u64 {
        self.hash
    }

    pub(super) fn lines(self) -> Vec<String> {
        self.lines.unwrap_or_default()
    }
}
