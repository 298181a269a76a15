//! What somebody who reads has seen, and where that leads him.

use client::{Gap, GapReason, Position};
use std::collections::BTreeMap;
use wire::{Incarnation, Offset};

/// Somebody who reads: a consumer in one life.
#[derive(Debug, Clone)]
pub struct Reader {
    /// For messages.
    pub name: String,
    /// Whose cursor it goes by.
    pub consumer: String,
    next: BTreeMap<u32, Position>,
    pub(super) gaps: BTreeMap<u32, Vec<Gap>>,
    /// What was read: partition, then life and offset.
    pub seen: BTreeMap<u32, BTreeMap<Position, usize>>,
}

impl Reader {
    /// A reader that has read nothing.
    pub fn new(consumer: &str, name: String) -> Self {
        Self {
            name,
            consumer: consumer.to_owned(),
            next: BTreeMap::new(),
            gaps: BTreeMap::new(),
            seen: BTreeMap::new(),
        }
    }

    /// Where it goes on.
    pub fn next(&self, partition: u32) -> Option<Position> {
        self.next.get(&partition).copied()
    }

    /// It begins, or was sent, there.
    pub fn goes_to(&mut self, partition: u32, position: Position) {
        self.next.insert(partition, position);
    }

    /// Where it stands in life `to` of a partition, by the gaps it was told.
    pub fn stands(&self, partition: u32, to: Incarnation) -> Option<Position> {
        self.led_to(partition, self.next(partition)?, to)
    }

    /// Where gaps lead from `from` to life `to`; none if one is not told.
    pub(super) fn led_to(
        &self,
        partition: u32,
        from: Position,
        to: Incarnation,
    ) -> Option<Position> {
        let gaps = self.gaps.get(&partition).map_or(&[][..], Vec::as_slice);
        let mut position = from;
        while position.incarnation < to {
            let gap = gaps.iter().find(|gap| {
                gap.incarnation == position.incarnation
                    && matches!(gap.reason, GapReason::MemoryLost | GapReason::PowerLoss)
            })?;
            // What retention dropped in that life stays dropped in the next.
            let reached = self.over_gaps(partition, position).offset;
            position = Position {
                incarnation: Incarnation(position.incarnation.0 + 1),
                offset: match gap.reason {
                    GapReason::PowerLoss => reached.min(gap.first),
                    _ => Offset(0),
                },
            };
        }
        Some(self.over_gaps(partition, position))
    }

    /// Where `from` leads by the gaps that were told: over what was dropped.
    fn over_gaps(&self, partition: u32, from: Position) -> Position {
        let mut position = from;
        let gaps = self.gaps.get(&partition).map_or(&[][..], Vec::as_slice);
        while let Some(gap) = gaps.iter().find(|gap| {
            gap.incarnation == position.incarnation
                && gap.first <= position.offset
                && position.offset < gap.end
        }) {
            position.offset = gap.end;
        }
        position
    }
}
