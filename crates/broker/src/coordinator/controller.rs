//! Who decides on the tables: topics, partitions, named producers, cursors, gaps.

mod single;
#[cfg(any(test, feature = "testing"))]
pub mod suite;

pub(crate) use single::{INTERNAL_TOPIC, Single};

use crate::coordinator::table::Table;
use crate::refusal::refuse;
use log::{DiskError, Operation, OperationToken, Outcome};
use std::fmt;
use wire::record::Record;
use wire::{Durability, ErrorCode, ErrorReply, Offset};

/// Names a command between [`Controller::submit`] and its completion; chosen
/// by whoever submits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommandToken(pub u64);

/// A change of the tables. All of it takes effect or none.
///
/// Ids, times and resulting positions were chosen before it was submitted, so
/// that it means the same wherever and whenever it is applied. Its bytes are
/// those of its records, in one batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// The records, applied in order.
    pub records: Vec<Record>,
    /// What they are to survive before they are applied.
    pub durability: Durability,
}

/// Why a command was not carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ControlError {
    /// Another node decides.
    NotLeader {
        /// Its address, if known; else empty.
        hint: String,
    },
    /// There is no space for it. Nothing has changed.
    Full(String),
    /// The log of commands failed. Whether the command survives is unknown
    /// until the node is opened again.
    Failed(String),
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLeader { hint } if hint.is_empty() => f.write_str("another node decides"),
            Self::NotLeader { hint } => write!(f, "the node at {hint} decides"),
            Self::Full(reason) => write!(f, "the internal partition has no space: {reason}"),
            Self::Failed(reason) => write!(f, "the internal partition failed: {reason}"),
        }
    }
}

/// Orders commands and makes them durable.
///
/// It is driven like a storage: after [`Controller::submit`] and [`Controller::complete`] comes
/// [`Controller::advance`], then its operations and completions are polled until there are none.
///
/// Obligations of an implementation:
/// - commands are applied to the table in the order of their submission;
/// - a command is applied when it survives what it says that it is to survive, and
///   so do all before it; it is completed after that;
/// - every command is completed once, in the order of submission;
/// - one that is refused takes with it all that were submitted before that can
///   be seen: whoever submits builds on what is under way.
pub trait Controller: Send {
    /// The tables, as the completed commands left them.
    fn table(&self) -> &Table;

    /// What is written from now on is written at this time, nanoseconds since 1970.
    fn set_time(&mut self, unix_ns: u64);

    /// Takes a command. Answered by [`Controller::poll_completion`].
    fn submit(&mut self, token: CommandToken, command: Command);

    /// What became of a command.
    fn poll_completion(&mut self) -> Option<(CommandToken, Result<(), ControlError>)>;

    /// Goes on after anything that may have changed how far its log has come.
    fn advance(&mut self);

    /// The next operation on the disk that its log needs. Answered by [`Controller::complete`].
    fn poll_operation(&mut self) -> Option<(OperationToken, Operation)>;

    /// An operation was carried out.
    fn complete(&mut self, token: OperationToken, result: Result<Outcome, DiskError>);

    /// The number of the next record.
    fn end(&self) -> Offset;

    /// Why commands are not carried out any more, if so.
    fn failure(&self) -> Option<String>;

    /// Whether nothing is under way.
    fn is_idle(&self) -> bool;

    /// Closes the log, behind all that is under way.
    fn close(&mut self);

    /// Whether the log has closed cleanly.
    fn is_closed(&self) -> bool;
}

/// A command was not carried out: the error for its caller.
pub(crate) fn undecided(error: &ControlError) -> ErrorReply {
    match error {
        ControlError::NotLeader { hint } => ErrorReply {
            leader_hint: hint.clone(),
            ..ErrorReply::retryable(ErrorCode::NotLeader, 100, error.to_string())
        },
        ControlError::Full(_) => {
            ErrorReply::retryable(ErrorCode::StorageFull, 1000, error.to_string())
        }
        ControlError::Failed(_) => refuse(ErrorCode::StorageFailed, error.to_string()),
    }
}
