//! Where a batch lies in the log.

use wire::Offset;

/// A place in a segment's log where the batch of this offset begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LogPosition {
    pub(super) segment: Offset,
    pub(super) position: u64,
    pub(super) offset: Offset,
}
