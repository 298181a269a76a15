//! Why a call of the client fails.

use memory::BudgetError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use topic::{PluginError, SelectorError};
use wire::{DirectoryId, ErrorCode, ErrorReply};

/// A variant for each thing that a caller would do differently.
///
/// It can be cloned, because one failure may be the end of many futures.
#[derive(Debug, Clone)]
pub enum ClientError {
    /// The time given has passed. Waiting again may succeed.
    Timeout {
        /// What was waited for: the peer, the partition, the bytes
        /// outstanding and the last sign of life.
        what: String,
    },
    /// The handle, or the driver that it belongs to, is closed.
    Closed,
    /// The server refuses; its code and its words.
    Server(ErrorReply),
    /// What the caller gave cannot be right.
    Invalid(String),
    /// The topic has no such partition, or none at all; in words.
    UnknownPartition(String),
    /// The topic needs a plugin that this client cannot have.
    Plugin(PluginError),
    /// A budget is full and its policy is to fail.
    Budget(BudgetError),
    /// Another server than the expected one answers: a stale or foreign group file.
    WrongServer {
        /// Where it answers.
        address: String,
        /// The data directory that was expected.
        expected: DirectoryId,
        /// The data directory that it has, if it said so.
        found: Option<DirectoryId>,
        /// More about it, in words.
        reason: String,
    },
    /// No server answers, or a consumer's subscription does not stand yet. Of a
    /// pull: it says nothing of what there is, and the next one goes on.
    Unreachable {
        /// Where, or the path of the group file.
        address: String,
        /// Why.
        reason: String,
    },
    /// The server was started anew, and gives out nothing of a queue, or keeps a
    /// group's partitions, until members of before have come back or are gone.
    /// It says nothing of what there is, and the next pull goes on.
    Recovering {
        /// Which consumer.
        what: String,
        /// How long that takes from now, at most.
        left: Duration,
    },
    /// Bytes arrived that fail their checksum.
    Damaged {
        /// Which bytes, and how they differ.
        what: String,
    },
    /// Memory that was lent to a push was changed before it was sent. The event
    /// is not stored, and its producer has failed.
    DataChanged {
        /// Of which event.
        event: String,
    },
    /// The handle belongs to the process that this one was forked from: what
    /// became of it is known there.
    Forked,
    /// It was given up in time, by the caller.
    Cancelled,
    /// The operating system says no.
    Io {
        /// What was tried.
        what: String,
        /// Why not.
        source: Arc<std::io::Error>,
    },
}

impl ClientError {
    /// The server's code, if it was the server that refused.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Server(reply) => Some(reply.code),
            _ => None,
        }
    }

    /// Whether the same call may succeed later without anything being changed.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Timeout { .. }
            | Self::Budget(_)
            | Self::Unreachable { .. }
            | Self::Recovering { .. } => true,
            Self::Server(reply) => reply.retryable,
            _ => false,
        }
    }

    /// Whether this is a deadline that has passed.
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::Timeout { .. })
    }

    pub(crate) fn io(what: impl Into<String>, source: std::io::Error) -> Self {
        Self::Io {
            what: what.into(),
            source: Arc::new(source),
        }
    }

    /// The thread that drove has panicked.
    pub(crate) fn panicked() -> Self {
        Self::io(
            "the client's network has ended",
            std::io::Error::other("what drives it panicked, which is a bug of the client's"),
        )
    }

    pub(crate) fn damaged(error: impl fmt::Display) -> Self {
        Self::Damaged {
            what: error.to_string(),
        }
    }

    pub(crate) fn invalid(reason: impl fmt::Display) -> Self {
        Self::Invalid(reason.to_string())
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout { what } => write!(f, "timed out waiting for {what}"),
            Self::Closed => f.write_str("closed"),
            Self::Server(reply) => write!(f, "the server refuses: {reply}"),
            Self::Invalid(reason) | Self::UnknownPartition(reason) => f.write_str(reason),
            Self::Plugin(error) => error.fmt(f),
            Self::Budget(error) => error.fmt(f),
            Self::WrongServer {
                address,
                expected,
                found,
                reason,
            } => {
                write!(
                    f,
                    "the server at {address} is not the one of data directory {expected}"
                )?;
                if let Some(found) = found {
                    write!(f, " but of {found}")?;
                }
                if !reason.is_empty() {
                    write!(f, ": {reason}")?;
                }
                Ok(())
            }
            Self::Unreachable { address, reason } => {
                write!(f, "no server is reached at {address}: {reason}")
            }
            Self::Recovering { what, left } => write!(
                f,
                "{what} recovers: the server was started anew and waits for members of before, \
                 for {:.1} s more at most",
                left.as_secs_f64()
            ),
            Self::Damaged { what } => write!(f, "damaged: {what}"),
            Self::DataChanged { event } => write!(
                f,
                "data that was borrowed was changed before it was sent, of {event}: let the push \
                 copy it, or leave it as it is until the push's future is resolved"
            ),
            Self::Forked => f.write_str("the handle belongs to the parent of this forked process"),
            Self::Cancelled => f.write_str("cancelled"),
            Self::Io { what, source } => write!(f, "{what}: {source}"),
        }
    }
}

impl std::error::Error for ClientError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Server(reply) => Some(reply),
            Self::Plugin(error) => Some(error),
            Self::Budget(error) => Some(error),
            Self::Io { source, .. } => Some(&**source),
            _ => None,
        }
    }
}

impl From<SelectorError> for ClientError {
    fn from(error: SelectorError) -> Self {
        match error {
            SelectorError::NoPartitions | SelectorError::OutOfRange { .. } => {
                Self::UnknownPartition(error.to_string())
            }
            SelectorError::PartitionRequired | SelectorError::Refused(_) => Self::invalid(error),
        }
    }
}

impl From<BudgetError> for ClientError {
    fn from(error: BudgetError) -> Self {
        Self::Budget(error)
    }
}

impl From<PluginError> for ClientError {
    fn from(error: PluginError) -> Self {
        Self::Plugin(error)
    }
}

impl From<ErrorReply> for ClientError {
    fn from(reply: ErrorReply) -> Self {
        Self::Server(reply)
    }
}
