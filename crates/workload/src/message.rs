//! What the runner and its processes say to each other: one JSON object a line.

use crate::disruption::Disruption;
use crate::journal::{Did, Had};
use crate::plan::{Assignment, Member};
use crate::report::Report;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The longest line, in bytes. A report of the most intervals that an account keeps fits.
pub const LINE_BYTES_MAX: usize = 256 << 20;

/// To a process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToProcess {
    /// Its work: it connects its members, and reports each that is ready.
    Assign(Assignment),
    /// All are ready: producers send. Schedules count from this time, in nanoseconds of the clock that all members have.
    Go(u64),
    /// One of its members waits between messages for some time. Other disruptions come from outside of the process.
    Slow(Disruption),
    /// Producers send no more.
    StopProducers,
    /// All members send their reports and end.
    Finish,
    /// The run has failed: nobody waits for reports.
    Abort(String),
}

/// From a process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromProcess {
    /// The first line: which process this is.
    Hello {
        /// Its number in the plan.
        process: u64,
        /// Its number in the operating system, for disruptions.
        pid: u32,
    },
    /// A member is connected, and a consumer consumes.
    Ready(Member),
    /// Messages that a consumer has received so far and that were [`crate::Taken::New`].
    Received {
        /// Which consumer.
        consumer: u64,
        /// So many.
        messages: u64,
        /// Deliveries of what had come before, here or, as the backend says, elsewhere.
        repeats: u64,
    },
    /// A producer has sent all, and has the answers that it waits for.
    Sent {
        /// Which producer.
        producer: u64,
        /// Messages that the backend has taken.
        messages: u64,
    },
    /// What a consumer has that keeps a journal, before it acknowledges that.
    Had {
        /// Which consumer.
        consumer: u64,
        /// What.
        had: Had,
    },
    /// What a producer did that keeps a journal.
    Did {
        /// Which producer.
        producer: u64,
        /// What.
        did: Did,
    },
    /// The backend has refused a message of a producer, for the first time.
    Refused {
        /// Whose.
        member: Member,
        /// Why, as the backend says it.
        why: String,
    },
    /// What the process has used of processors since go, user and system, in nanoseconds: before any report.
    Used(u64),
    /// A member's figures.
    Report(Report),
    /// A member cannot go on.
    Failed {
        /// Who.
        member: Member,
        /// Why.
        why: String,
        /// Its figures until then.
        report: Option<Report>,
    },
}

/// Why a line is no message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LineError {
    /// It is too long.
    Long {
        /// Its bytes.
        bytes: usize,
    },
    /// It is something else.
    Other {
        /// What the decoder says.
        why: String,
    },
}

impl fmt::Display for LineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Long { bytes } => {
                write!(
                    f,
                    "a line of {bytes} bytes, at most {LINE_BYTES_MAX} are read"
                )
            }
            Self::Other { why } => write!(f, "a line that is no message: {why}"),
        }
    }
}

impl std::error::Error for LineError {}

/// A message as a line, with its end.
pub fn to_line<T: Serialize>(message: &T) -> String {
    let mut line = serde_json::to_string(message).expect("messages have text keys alone");
    line.push('\n');
    line
}

/// A message from a line, with or without its end.
///
/// # Errors
/// If it is too long or something else.
pub fn from_line<T: DeserializeOwned>(line: &str) -> Result<T, LineError> {
    from_bounded(line, LINE_BYTES_MAX)
}

fn from_bounded<T: DeserializeOwned>(line: &str, bytes_max: usize) -> Result<T, LineError> {
    if line.len() > bytes_max {
        return Err(LineError::Long { bytes: line.len() });
    }
    serde_json::from_str(line).map_err(|error| LineError::Other {
        why: error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_too_long_is_refused_unread() {
        let line = to_line(&ToProcess::Go(5));
        assert_eq!(from_bounded(&line, line.len()), Ok(ToProcess::Go(5)));
        let error = from_bounded::<ToProcess>(&line, line.len() - 1).unwrap_err();
        assert_eq!(error, LineError::Long { bytes: line.len() });
    }
}
