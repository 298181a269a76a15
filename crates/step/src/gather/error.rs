//! What can't be gathered.

use crate::selection::SelectionError;
use std::fmt;

/// Why a selection can't be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GatherError {
    /// The variable does not have what was selected.
    Selection(SelectionError),
    /// The table says what cannot be: its writer was wrong, or wanted harm.
    Table {
        /// Name of the variable.
        variable: String,
        /// What is wrong with its blocks.
        reason: &'static str,
        /// The block, if one is to blame.
        block: Option<usize>,
    },
    /// The variable is text, which has no place in an array of bytes.
    Text {
        /// Name of the variable.
        variable: String,
    },
    /// Memory of another length than the plan's.
    Length {
        /// Name of the variable.
        variable: String,
        /// Which memory: a sentence's subject.
        what: &'static str,
        /// How long it has to be.
        needed: u64,
        /// How long it is.
        had: u64,
    },
}

impl fmt::Display for GatherError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Selection(error) => error.fmt(f),
            Self::Table {
                variable,
                reason,
                block: None,
            } => write!(f, "table of variable {variable:?}: {reason}"),
            Self::Table {
                variable,
                reason,
                block: Some(block),
            } => write!(f, "table of variable {variable:?}, block {block}: {reason}"),
            Self::Text { variable } => {
                write!(f, "variable {variable:?} is text: read it as a value")
            }
            Self::Length {
                variable,
                what,
                needed,
                had,
            } => write!(
                f,
                "variable {variable:?}: {what} has {had} bytes, and needs {needed}"
            ),
        }
    }
}

impl std::error::Error for GatherError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Selection(error) => Some(error),
            _ => None,
        }
    }
}

impl From<SelectionError> for GatherError {
    fn from(error: SelectionError) -> Self {
        Self::Selection(error)
    }
}
