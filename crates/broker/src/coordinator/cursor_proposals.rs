//! Cursors on their way into the table.

use crate::coordinator::commands::{CursorKey, Moved};
use crate::coordinator::table::Table;
use std::collections::BTreeMap;
use wire::record::Position;
use wire::{PartitionIndex, TopicId};

/// Cursor moves that are on their way into the table. An acknowledgement is
/// compared with these, so that two on their way at once never go back.
#[derive(Debug, Default)]
pub(crate) struct CursorProposals {
    moves: BTreeMap<CursorKey, (Option<Position>, usize)>,
}

impl CursorProposals {
    pub fn is_empty(&self) -> bool {
        self.moves.is_empty()
    }

    /// Where a consumer stands, or will when what is under way is done.
    pub fn position(&self, key: &CursorKey, table: &Table) -> Option<Position> {
        if let Some((position, _)) = self.moves.get(key) {
            return *position;
        }
        table
            .topic(key.0)?
            .cursors
            .get(&key.1)?
            .get(&key.2)
            .copied()
    }

    /// The partitions in which a cursor of this name is on its way.
    pub fn partitions(&self, topic: TopicId, consumer: &str) -> Vec<PartitionIndex> {
        let keys = self.moves.keys();
        let named = keys.filter(|(id, name, _)| *id == topic && name == consumer);
        named.map(|(_, _, partition)| *partition).collect()
    }

    pub fn begin(&mut self, key: CursorKey, position: Option<Position>) {
        let entry = self.moves.entry(key).or_insert((position, 0));
        entry.0 = position;
        entry.1 += 1;
    }

    /// Whether a cursor of this name is on its way.
    pub fn names(&self, topic: TopicId, consumer: &str) -> bool {
        let from = (topic, consumer.to_owned(), PartitionIndex(0));
        let next = self.moves.range(from..).next();
        next.is_some_and(|((id, name, _), _)| *id == topic && name == consumer)
    }

    pub fn end(&mut self, moved: &Moved) {
        for key in &moved.0 {
            if let Some(entry) = self.moves.get_mut(key) {
                entry.1 -= 1;
                if entry.1 == 0 {
                    self.moves.remove(key);
                }
            }
        }
    }
}
