//! Full storage, told to the operator: of partitions, and of the file system below them.

use crate::controller::Controller;
use crate::ids::{PartitionKey, StorageId};
use crate::io::FileSystemSpace;
use crate::node::Node;
use serde_json::{Value, json};
use std::time::Duration;

/// A partition that goes back and forth is reported once in this time.
const REPORT_EVERY: Duration = Duration::from_secs(30);
/// From how full a file system on the operator is warned, in hundredths.
const WARN_AT: u128 = 90;
/// Below how full the next warning is for another time.
const WARN_AGAIN_BELOW: u128 = 85;

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
    /// Since when storage is full, milliseconds since 1970, and why; null if it is not.
    pub fn status(&self) -> Value {
        self.full.as_ref().map_or(
            Value::Null,
            |full| json!({"since_ms": full.since_unix_ns / 1_000_000, "reason": full.why}),
        )
    }

    /// What the operator is to be told now.
    fn line(&mut self, now: Duration, name: impl FnOnce() -> String) -> Option<String> {
        match (&self.full, self.told) {
            (Some(full), false) if self.told_at.is_none_or(|at| now >= at + REPORT_EVERY) => {
                self.told = true;
                self.told_at = Some(now);
                Some(format!(
                    "{}: storage is full, events are refused until there is room: {}",
                    name(),
                    full.why
                ))
            }
            (None, true) => {
                self.told = false;
                Some(format!("{}: storage has room again", name()))
            }
            _ => None,
        }
    }
}

/// The file system below the data directory.
#[derive(Debug, Default)]
pub(crate) struct Below {
    space: Option<FileSystemSpace>,
    warned: bool,
}

impl Below {
    /// It was looked at: what the operator is to be told of that.
    fn seen(&mut self, space: FileSystemSpace) -> Option<String> {
        self.space = Some(space);
        let total = u128::from(space.total_bytes);
        let used = total.saturating_sub(space.free_bytes.into());
        if used * 100 < total * WARN_AGAIN_BELOW {
            self.warned = false;
        }
        let warn = total > 0 && used * 100 >= total * WARN_AT && !self.warned;
        warn.then(|| {
            self.warned = true;
            format!(
                "the file system of the data directory is {} % full: {} of {} bytes are free; \
                 lower the retention of topics, delete some, or give it more space",
                used * 100 / total,
                space.free_bytes,
                space.total_bytes
            )
        })
    }

    pub fn status(&self) -> Value {
        self.space.map_or(
            Value::Null,
            |space| json!({"free_bytes": space.free_bytes, "total_bytes": space.total_bytes}),
        )
    }
}

impl Node {
    pub(crate) fn file_system_seen(&mut self, space: FileSystemSpace) {
        if let Some(line) = self.below.seen(space) {
            self.ctx.report(line);
        }
    }

    /// A storage takes no events for now.
    pub(crate) fn storage_is_full(&mut self, id: StorageId, why: String) {
        let since_unix_ns = self.ctx.now.unix_ns;
        if let Some(partition) = self.partitions.get_mut(&id) {
            let full = &mut partition.space.full;
            let since_unix_ns = full
                .as_ref()
                .map_or(since_unix_ns, |full| full.since_unix_ns);
            *full = Some(Full { since_unix_ns, why });
            self.report_space(id);
        }
    }

    /// It takes events again.
    pub(crate) fn storage_has_space(&mut self, id: StorageId) {
        if let Some(partition) = self.partitions.get_mut(&id) {
            partition.space.full = None;
            self.report_space(id);
        }
    }

    /// Tells the operator whether a partition's storage is full, if there is news.
    pub(crate) fn report_space(&mut self, id: StorageId) {
        let now = self.ctx.now.monotonic;
        let Some(partition) = self.partitions.get_mut(&id) else {
            return;
        };
        let PartitionKey {
            topic,
            partition: index,
        } = partition.key;
        let table = self.controller.table();
        let name = || match table.topic(topic) {
            None => format!("partition {index} of topic {topic}"),
            Some(entry) => format!("{}/{index}", entry.record.name),
        };
        if let Some(line) = partition.space.line(now, name) {
            self.ctx.report(line);
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
            lines.extend(space.line(Duration::from_secs(second), || "t/0".to_owned()));
            space.full = None;
            lines.extend(space.line(Duration::from_secs(second), || "t/0".to_owned()));
        }
        assert_eq!(lines.len(), 6, "{lines:?}");
        assert!(lines[0].starts_with("t/0: storage is full"), "{lines:?}");
        assert!(lines[1].starts_with("t/0: storage has room"), "{lines:?}");
        // What stays full is reported, if late.
        space.full = full();
        let line = |space: &mut PartitionSpace, second| {
            space.line(Duration::from_secs(second), || "t/0".to_owned())
        };
        assert_eq!(line(&mut space, 70), None);
        assert!(line(&mut space, 90).is_some());
        assert_eq!(line(&mut space, 200), None);
    }

    #[test]
    fn a_file_system_is_warned_of_once_until_it_has_room() {
        let mut below = Below::default();
        let mut seen = |free_bytes| {
            below.seen(FileSystemSpace {
                free_bytes,
                total_bytes: 1000,
            })
        };
        assert_eq!(seen(101), None);
        let line = seen(100).unwrap();
        assert!(line.contains("90 % full: 100 of 1000 bytes"), "{line}");
        for free in [0, 110, 150] {
            assert_eq!(seen(free), None);
        }
        assert_eq!(seen(151), None);
        assert!(seen(50).is_some());
        assert_eq!(below.status()["free_bytes"], 50);
        // One that says nothing of itself is no full one.
        let nothing = FileSystemSpace {
            free_bytes: 0,
            total_bytes: 0,
        };
        assert_eq!(Below::default().seen(nothing), None);
    }
}
