//! What a partition remembers of its producers, so that a retry is known.

use wire::{Offset, ProducerEpoch, Sequence};

/// Whether a batch may be appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It continues the producer's sequence (or is the producer's first here).
    New,
    /// It was stored before, from this offset on.
    Duplicate {
        /// The offset of its first event.
        base_offset: Offset,
    },
    /// It leaves a hole: an earlier batch has not arrived.
    OutOfSequence {
        /// The sequence number expected.
        expected: Sequence,
    },
    /// It is older than everything remembered, or overlaps a stored batch in part.
    Unknown {
        /// The sequence number expected.
        expected: Sequence,
    },
    /// A greater epoch of the producer has appended.
    Fenced {
        /// The greatest epoch seen.
        epoch: ProducerEpoch,
    },
}
