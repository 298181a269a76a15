//! Lines for the operator; of what may happen thousands of times a second, few.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Where lines for the operator go. Copies are the same.
#[derive(Clone)]
pub struct Report(Arc<dyn Fn(&str) + Send + Sync>);

impl Report {
    /// To whoever takes a line.
    pub fn new(write: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(write))
    }

    /// One line.
    pub fn line(&self, text: impl AsRef<str>) {
        (self.0)(text.as_ref());
    }
}

impl fmt::Debug for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Report")
    }
}

/// How often a line about a stranger is written at most.
const APART: Duration = Duration::from_secs(10);

/// A line about strangers: the first is told at once, and how many came since with the next one.
#[derive(Debug, Default)]
pub struct RareLine {
    /// When it was written last, and how often it was not since. Locked for a look.
    state: Mutex<(Option<Instant>, u64)>,
}

impl RareLine {
    /// It has happened once more; how often since the last line, if the next one is due.
    pub fn due(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock().expect("no holder panics");
        state.1 += 1;
        if state.0.is_some_and(|written| now < written + APART) {
            return None;
        }
        state.0 = Some(now);
        Some(std::mem::take(&mut state.1))
    }

    /// Writes what `text` says, if the line is due.
    pub fn write(&self, report: &Report, text: impl FnOnce() -> String) {
        match self.due(Instant::now()) {
            None => {}
            Some(1) => report.line(text()),
            Some(count) => report.line(format!("{} ({count} times since the last line)", text())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_told_at_once_and_the_others_together() {
        let line = RareLine::default();
        let now = Instant::now();
        assert_eq!(line.due(now), Some(1));
        assert_eq!(line.due(now + APART / 2), None);
        assert_eq!(line.due(now + APART), Some(2));
    }
}
