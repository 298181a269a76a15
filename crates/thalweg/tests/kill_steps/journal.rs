//! What a process has done and was told, as lines on its standard output: what is in the pipe outlives its writer.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What the lines of a journal begin with: others are the test harness's.
pub const MARK: &str = "@ ";

/// Who says something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Role {
    /// A rank that writes.
    Write,
    /// A rank of the group that is given every step.
    Read,
    /// A rank of the group that is given the newest one.
    Live,
    /// The test itself, with a reader of its own.
    Audit,
}

/// A process. `life` counts all processes of a run of the test from 1; the test itself is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Who {
    pub role: Role,
    pub rank: u32,
    pub life: u64,
}

/// What a reader finds in a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// Which life of each rank says that it has written.
    pub lives: Vec<u64>,
    /// What the bytes of each rank's blocks come to: see `content::Block::digest`.
    pub digests: Vec<u64>,
    /// The attribute that rank 0 sets in every third step.
    pub last: i64,
}

/// One line. Offsets are those of records in partition 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Said {
    /// A writer is in a run; `next` is the step that it begins with.
    Opened { run: u64, next: u64 },
    /// It is about to end a step: from now on readers may see it.
    Ending { run: u64, step: u64 },
    /// `end_step` has said that its part is accepted.
    Accepted { run: u64, step: u64 },
    /// `end_step` has said that the step is committed.
    Committed { run: u64, step: u64, offset: u64 },
    /// `close` has come to its end: all its steps are committed.
    Closed { run: u64 },
    /// A call has said that the run is over for it.
    Ended { run: u64, why: String },
    /// A reader has attached.
    Attached,
    /// It was given a step, for which it asked at that time.
    Given {
        asked: u64,
        run: u64,
        step: u64,
        offset: u64,
    },
    /// It has read that step.
    Seen {
        run: u64,
        step: u64,
        offset: u64,
        content: Content,
    },
    /// It is done with the step, and about to say so.
    Releasing { offset: u64 },
    /// It was told that this is noted; it had begun to say so at that time.
    Released { began: u64, offset: u64 },
    /// It was told that a run is over.
    RunOver { run: u64, broken: bool, offset: u64 },
    /// It was told that another life of it has its place.
    Replaced { why: String },
    /// The process is gone. Said by the test.
    Gone,
    /// The server was killed. Said by the test.
    ServerKilled,
}

/// A line, with its time on the clock that all processes of the machine share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub at: u64,
    pub who: Who,
    pub said: Said,
}

impl Entry {
    pub fn now(who: Who, said: Said) -> Self {
        let at = now();
        Self { at, who, said }
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = serde_json::to_string(self).expect("an entry is JSON");
        write!(f, "{MARK}{line}")
    }
}

/// Nanoseconds, of the same beginning for all processes.
pub fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
