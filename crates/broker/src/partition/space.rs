//! A partition whose storage is full, told to the operator.

use crate::ctx::Ctx;
use serde_json::{Value, json};
use std::time::Duration;

/// A partition that goes back and forth is reported once in this time.
const REPORT_EVERY: Duration = Duration::from_secs(30);
/// Whether a partition's storage takes events for now.
#[derive(Debug, Default)]
pub(crate) struct PartitionSpace {
    full: Option<Full>,
    /// The operator was told that it is full, and not yet that it goes on.
    told: bool,
    told_at: Option<Duration>,
}

#[derive(Debug)]
struct Full {
    since_unix_ns: u64,
    why: String,
}

impl PartitionSpace {
    /// The storage takes no events for now.
    pub fn full(&mut self, why: String, ctx: &Ctx) {
        let full = self.full.as_ref();
        let since_unix_ns = full.map_or(ctx.now.unix_ns, |full| full.since_unix_ns);
        self.full = Some(Full { since_unix_ns, why });
    }

    /// The storage takes events again.
    pub fn has_space(&mut self) {
        self.full = None;
    }

    /// Tells the operator whether the storage of the partition of this name is full, if there
    /// is news.
    pub fn report(&mut self, name: &str, ctx: &mut Ctx) {
        match self.line(ctx.now.monotonic, name) {
            Some(line) if self.full.is_some() => ctx.report(line),
            Some(line) => ctx.inform(line),
            None => {}
        }
    }

    /// Since when storage is full, milliseconds since 1970, and why; null if it is not.
    pub fn status(&self) -> Value {
        self.full.as_ref().map_or(
            Value::Null,
            |full| json!({"since_ms": full.since_unix_ns / 1_000_000, "reason": full.why}),
        )
    }

    /// What the operator is to be told now.
    fn line(&mut self, now: Duration, name: &str) -> Option<String> {
        match (&self.full, self.told) {
            (Some(full), false) if self.told_at.is_none_or(|at| now >= at + REPORT_EVERY) => {
                self.told = true;
                self.told_at = Some(now);
                Some(format!(
                    "{name}: storage is full, events are refused until there is room: {}",
                    full.why
                ))
            }
            (None, true) => {
                self.told = false;
                Some(format!("{name}: storage has room again"))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Option<Full> {
        Some(Full {
            since_unix_ns: 0,
            why: "no space left".to_owned(),
        })
    }

    #[test]
    fn storage_that_goes_back_and_forth_is_told_of_now_and_then() {
        let mut space = PartitionSpace::default();
        let mut lines = Vec::new();
        for second in 0..70 {
            space.full = full();
            lines.extend(space.line(Duration::from_secs(second), "t/0"));
            space.full = None;
            lines.extend(space.line(Duration::from_secs(second), "t/0"));
        }
        assert_eq!(lines.len(), 6, "{lines:?}");
        assert!(lines[0].starts_with("t/0: storage is full"), "{lines:?}");
        assert!(lines[1].starts_with("t/0: storage has room"), "{lines:?}");
        // What stays full is reported, if late.
        space.full = full();
        let line =
            |space: &mut PartitionSpace, second| space.line(Duration::from_secs(second), "t/0");
        assert_eq!(line(&mut space, 70), None);
        assert!(line(&mut space, 90).is_some());
        assert_eq!(line(&mut space, 200), None);
    }
}
