//! The table as it is sent to followers that are too far behind for the window.

use super::Home;
use crate::coordinator::table::Table;
use wire::Codec;
use wire::record::Record;
use wire::table::{PIECE_BYTES_MAX, Piece};

/// A table at an index, cut into pieces once: all followers that need it share it, whenever each of
/// them has come so far.
pub(super) struct Snapshot {
    index: u64,
    /// At least one.
    pieces: Vec<Vec<Record>>,
}

impl Snapshot {
    /// What of a table its log says.
    pub fn of(table: &Table, index: u64) -> Self {
        let mut pieces = vec![Vec::new()];
        let mut sum = 0;
        for record in table.records().filter(|it| Home::of(it) == Home::Table) {
            let bytes = record.to_bytes().len();
            sum += bytes;
            match pieces.last_mut() {
                Some(piece) if sum <= PIECE_BYTES_MAX || piece.is_empty() => piece.push(record),
                _ => {
                    sum = bytes;
                    pieces.push(vec![record]);
                }
            }
        }
        Self { index, pieces }
    }

    /// How far the table had come.
    pub fn index(&self) -> u64 {
        self.index
    }

    /// The piece of this number, as a message.
    pub fn piece(&self, number: usize) -> Piece {
        Piece {
            index: self.index,
            is_last: number + 1 >= self.pieces.len(),
            records: self.pieces.get(number).cloned().unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::TopicId;
    use wire::record::TopicRecord;

    fn table(count: u128, bytes: usize) -> Table {
        let mut table = Table::default();
        for id in 1..=count {
            table.apply(Record::Topic(TopicRecord {
                namespace: String::new(),
                name: id.to_string(),
                topic: TopicId(id),
                definition: "x".repeat(bytes),
            }));
        }
        table
    }

    fn pieces(table: &Table) -> Vec<Piece> {
        let snapshot = Snapshot::of(table, 7);
        let mut pieces: Vec<Piece> = Vec::new();
        while pieces.last().is_none_or(|piece| !piece.is_last) {
            pieces.push(snapshot.piece(pieces.len()));
        }
        pieces
    }

    #[test]
    fn the_pieces_are_the_table_and_each_has_a_bound() {
        for (count, bytes) in [(0, 0), (1, 3 << 20), (10, 600 << 10), (20, 300 << 10)] {
            let table = table(count, bytes);
            let mut copy = Table::default();
            let pieces = pieces(&table);
            for piece in pieces {
                assert_eq!(piece.index, 7);
                let lengths = piece.records.iter().map(|it| it.to_bytes().len());
                let sum: usize = lengths.sum();
                assert!(sum <= PIECE_BYTES_MAX || piece.records.len() == 1, "{sum}");
                piece.records.into_iter().for_each(|it| copy.apply(it));
            }
            assert_eq!(copy, table, "{count} of {bytes}");
        }
    }
}
