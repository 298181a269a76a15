//! How far the end of a node has come.

use crate::refusal::{Refused, draining};

/// How far the end has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Drain {
    /// Not begun.
    #[default]
    No,
    /// Nothing new is taken; what was taken is being finished.
    Finishing,
    /// Partitions close.
    ClosingPartitions,
    /// The table's log and the ledger close.
    ClosingInternal,
    /// All is closed.
    Done,
}

impl Drain {
    pub fn is_begun(self) -> bool {
        self > Self::No
    }

    /// Refuses what is not begun any more.
    pub fn refuse_begun(self) -> Result<(), Refused> {
        match self.is_begun() {
            true => Err(draining()),
            false => Ok(()),
        }
    }

    /// Refuses what is done until the ledger is about to close: cursors move.
    pub fn refuse_closing(self) -> Result<(), Refused> {
        match self > Self::Finishing {
            true => Err(draining()),
            false => Ok(()),
        }
    }
}
