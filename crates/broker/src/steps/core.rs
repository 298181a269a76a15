//! What the parts of a stream have in common: its name, and its records.

use super::held::Held;
use super::lent::Lent;
use super::records::{RETRY_AFTER, Records};
use std::time::Duration;
use wire::{PartitionIndex, TopicId};

/// Bytes of batches that are read at once.
pub(super) const READ_BYTES_MAX: u64 = 4 << 20;
/// The most ranks of a program.
pub(super) const RANKS_MAX: u32 = 1 << 16;
/// The partition of records.
pub(super) const RECORDS: PartitionIndex = PartitionIndex(0);
/// Where records of pinned steps are copied to, of a stream that has a place for them, ...
pub(super) const PINNED_RECORDS: PartitionIndex = PartitionIndex(topic::PINNED_RECORDS);
/// ... and where their parts are.
pub(super) const PINNED_PARTS: PartitionIndex = PartitionIndex(topic::PINNED_PARTS);

/// See the module. A part of the stream is lent it for an act.
pub(super) struct Core {
    pub topic: TopicId,
    /// For people.
    pub name: String,
    pub records: Records,
    pub held: Held,
    /// Whether the stream has a place for pinned steps.
    pub has_pins: bool,
    /// When to go on after a reading has failed.
    pub retry_at: Option<Duration>,
}

impl Core {
    /// Whether a partition has parts of steps.
    pub fn has_parts(&self, index: PartitionIndex) -> bool {
        index != RECORDS && !(self.has_pins && index == PINNED_RECORDS)
    }

    /// Has the stream advanced when the act is over.
    pub fn touch(&self, lent: &mut Lent<'_>) {
        lent.ctx.dirty.streams.insert(self.topic);
    }

    /// Something could not be read, and is tried again.
    pub fn retry(&mut self, error: &str, lent: &mut Lent<'_>) {
        lent.ctx.report(format!(
            "{}: steps cannot be read, and are tried again: {error}",
            self.name
        ));
        self.retry_at = Some(lent.ctx.now.monotonic + RETRY_AFTER);
        self.touch(lent);
    }
}
