//! What all partitions of a kind keep together for those who read along.

use super::data_tail::DATA_TAILS_BYTES_MAX;
use super::tail::TAILS_BYTES_MAX;
use memory::Budget;

/// Bounds what all partitions of a kind keep for those who read along.
#[derive(Clone)]
pub(crate) struct Tails {
    /// Of their newest batches.
    pub(crate) batches: Budget,
    /// Of their newest external data.
    pub(crate) data: Budget,
}

impl Default for Tails {
    fn default() -> Self {
        Self {
            batches: Budget::new("tails_bytes_max", TAILS_BYTES_MAX),
            data: Budget::new("data_tails_bytes_max", DATA_TAILS_BYTES_MAX),
        }
    }
}
