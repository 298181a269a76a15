//! Why a call for steps fails.

use crate::dtype::DTypeError;
use crate::staging::PutError;
use client::ClientError;
use std::fmt;
use wire::{ErrorCode, Run};

/// A variant for each thing that a caller would do differently. It can be cloned, because one
/// failure may be the end of a writer or reader, which says so again.
#[derive(Debug, Clone)]
pub enum StepError {
    /// What the connection, the server or the topic says. A timeout may be tried again.
    Client(ClientError),
    /// The run is over for its writer. To go on, open another one.
    RunEnded {
        /// Which one.
        run: Run,
        /// Why: which rank is gone, who has taken its place, that it was closed.
        reason: String,
    },
    /// Another life of the reader has its place.
    Replaced(String),
    /// The reader's group is no more, because another of its ranks is gone. Its program begins
    /// anew, at the position of its name.
    Incomplete(String),
    /// What the caller gave cannot be right, or the call cannot be made now.
    Invalid(String),
    /// The step, or the run, is not there, or no more: retention has taken it.
    Gone(String),
    /// What was stored cannot be read.
    Damaged(String),
}

impl StepError {
    /// Whether a deadline has passed: the same call may be made again.
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::Client(error) if error.is_timeout())
    }

    /// The server's code, if it was the server that refused.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Client(error) => error.code(),
            Self::RunEnded { .. } => Some(ErrorCode::RunEnded),
            Self::Replaced(_) => Some(ErrorCode::MemberFenced),
            Self::Incomplete(_) => Some(ErrorCode::GroupIncomplete),
            Self::Gone(_) => Some(ErrorCode::OffsetOutOfRange),
            Self::Invalid(_) | Self::Damaged(_) => None,
        }
    }

    pub(crate) fn invalid(reason: impl fmt::Display) -> Self {
        Self::Invalid(reason.to_string())
    }

    pub(crate) fn damaged(what: impl fmt::Display) -> Self {
        Self::Damaged(what.to_string())
    }
}

impl fmt::Display for StepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(error) => error.fmt(f),
            Self::RunEnded { run, reason } if reason.is_empty() => {
                write!(f, "run {run} has been closed")
            }
            Self::RunEnded { run, reason } => write!(f, "run {run} has ended: {reason}"),
            Self::Replaced(what)
            | Self::Incomplete(what)
            | Self::Invalid(what)
            | Self::Gone(what) => f.write_str(what),
            Self::Damaged(what) => write!(f, "damaged: {what}"),
        }
    }
}

impl std::error::Error for StepError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Client(error) => Some(error),
            _ => None,
        }
    }
}

impl From<ClientError> for StepError {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

impl From<DTypeError> for StepError {
    fn from(error: DTypeError) -> Self {
        Self::invalid(error)
    }
}

impl From<PutError> for StepError {
    fn from(error: PutError) -> Self {
        Self::invalid(error)
    }
}
