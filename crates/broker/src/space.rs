//! The file system below the data directory: when it is nearly full, the operator is warned.

use crate::io::FileSystemSpace;
use serde_json::{Value, json};

/// From how full a file system on the operator is warned, in hundredths.
const WARN_AT: u128 = 90;
/// Below how full the next warning is for another time.
const WARN_AGAIN_BELOW: u128 = 85;

/// The file system below the data directory.
#[derive(Debug, Default)]
pub(crate) struct Below {
    space: Option<FileSystemSpace>,
    warned: bool,
}

impl Below {
    /// It was looked at: what the operator is to be told of that.
    pub fn seen(&mut self, space: FileSystemSpace) -> Option<String> {
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

#[cfg(test)]
mod tests {
    use super::*;

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
