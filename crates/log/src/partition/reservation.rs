//! A place in a data file, from its reservation to the batch that names it.

use super::files::THIS_FILE;
use crate::disk::{DIRECT_ALIGNMENT, Operation};
use bytes::Bytes;
use wire::batch::ExternalLayout;
use wire::{Durability, Offset};

/// A reserved place, until its batch is appended.
#[derive(Debug, Clone)]
pub(super) struct Reservation {
    /// Base offset of the segment whose data file it is in.
    pub(super) base: Offset,
    pub(super) position: u64,
    pub(super) layout: ExternalLayout,
    pub(super) data_crc: u32,
    /// Whether all of it is known to be durable.
    pub(super) synced: bool,
    /// Whether it is written past the page cache.
    pub(super) direct: bool,
    /// Writes under way.
    pub(super) outstanding: usize,
    /// Bytes of data that were written.
    pub(super) written_bytes: u64,
    pub(super) stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Filling,
    Sealed(Durability),
    Syncing,
    Ready,
    /// Given up, while writes to it are under way.
    Gone,
}

impl Reservation {
    pub(super) fn is_gone(&self) -> bool {
        self.stage == Stage::Gone
    }

    /// How much lies between the end of these bytes and the next place that a
    /// direct write may begin at, if nothing else belongs there.
    pub(super) fn padding(&self, position: u64, count: u64) -> usize {
        let end = position + count;
        let events = &self.layout.events;
        let last = events.partition_point(|(_, start, _)| *start <= position);
        let ends = last
            .checked_sub(1)
            .is_some_and(|last| events[last].1 + events[last].2 == end);
        match ends {
            true => (end.next_multiple_of(DIRECT_ALIGNMENT) - end) as usize,
            false => 0,
        }
    }

    /// Writes `bytes` at `position` of the place, and zeros behind them if
    /// that lets them be written directly.
    pub(super) fn write(&self, position: u64, bytes: Bytes, padding: usize) -> Operation {
        const ZEROS: &[u8] = &[0; DIRECT_ALIGNMENT as usize];
        let position = self.position + position;
        let whole = (bytes.len() + padding) as u64;
        let aligned =
            position.is_multiple_of(DIRECT_ALIGNMENT) && whole.is_multiple_of(DIRECT_ALIGNMENT);
        let mut bytes = vec![bytes];
        if !self.direct || !aligned {
            return Operation::Write {
                file: THIS_FILE,
                position,
                bytes,
            };
        }
        if padding > 0 {
            bytes.push(Bytes::from_static(&ZEROS[..padding]));
        }
        Operation::WriteDirect {
            file: THIS_FILE,
            position,
            bytes,
        }
    }
}
