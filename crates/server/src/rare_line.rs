//! Lines about what may happen thousands of times a second, counted by what happened.

use std::time::Duration;

/// How often the line is written at most.
const APART: Duration = Duration::from_secs(10);

/// Counts what happened since the line was written last.
#[derive(Debug, Default)]
pub struct RareLine {
    written: Option<Duration>,
    count: u64,
}

impl RareLine {
    /// It has happened once more, at `now`, a time since any fixed moment. How often it has
    /// happened since the last line, if the next one is due.
    pub fn due(&mut self, now: Duration) -> Option<u64> {
        self.count += 1;
        let early = self.written.is_some_and(|written| now < written + APART);
        if early {
            return None;
        }
        self.written = Some(now);
        Some(std::mem::take(&mut self.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_told_at_once_and_the_others_together() {
        let mut line = RareLine::default();
        let now = Duration::ZERO;
        assert_eq!(line.due(now), Some(1));
        for _ in 0..5 {
            assert_eq!(line.due(now + APART / 2), None);
        }
        assert_eq!(line.due(now + APART), Some(6));
        assert_eq!(line.due(now + APART), None);
    }
}
