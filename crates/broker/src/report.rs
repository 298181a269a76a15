//! Lines for the server's log.

use std::panic::Location;

/// How much an operator should care.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Something is as it should be.
    Info,
    /// Something is not.
    Warning,
}

/// A line for the server's log: what an operator should know.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // Fields whose names say it.
pub struct Line {
    pub severity: Severity,
    pub text: String,
    /// Where in the code it is made. Lines of one place are of one kind.
    pub source: &'static Location<'static>,
}

impl Line {
    /// A line of the caller's.
    #[track_caller]
    pub fn info(text: String) -> Self {
        Self {
            severity: Severity::Info,
            text,
            source: Location::caller(),
        }
    }

    /// A line of the caller's.
    #[track_caller]
    pub fn warning(text: String) -> Self {
        Self {
            severity: Severity::Warning,
            ..Self::info(text)
        }
    }
}
