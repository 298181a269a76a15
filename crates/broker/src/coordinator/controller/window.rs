//! The latest entries of a table, for those who follow it.

use std::collections::VecDeque;
use wire::Codec;
use wire::table::{Entry, PIECE_BYTES_MAX};

/// Bytes of entries that are kept. A follower that is further behind gets the whole table.
const BYTES_MAX: usize = 8 << 20;

/// See the module.
pub(super) struct Window {
    /// The index before the first entry.
    after: u64,
    /// Each with its bytes.
    entries: VecDeque<(Entry, usize)>,
    bytes: usize,
    /// The index of the table, which may be behind that of the last entry.
    end: u64,
    numbers: Numbers,
}

/// What the numbers are that entries have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Numbers {
    /// Records are counted. A copy has come to the end of an entry, or is of another table.
    OfRecords,
    /// Places in a log that has entries of other kinds, too: a copy may have come to any.
    OfPlaces,
}

impl Window {
    /// Behind a table that has come so far.
    pub fn new(after: u64, numbers: Numbers) -> Self {
        Self {
            after,
            entries: VecDeque::new(),
            bytes: 0,
            end: after,
            numbers,
        }
    }

    /// How far the table has come.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// The index of the last change of the table that is known.
    pub fn last(&self) -> u64 {
        let last = self.entries.back();
        last.map_or(self.after, |(entry, _)| entry.index)
    }

    /// Whether its numbers are places in a log that several lead in turn.
    pub fn counts_places(&self) -> bool {
        self.numbers == Numbers::OfPlaces
    }

    /// The table has come to this index, with nothing new.
    pub fn pass(&mut self, index: u64) {
        self.end = self.end.max(index);
    }

    pub fn push(&mut self, entry: Entry) {
        let bytes = entry.to_bytes().len();
        self.bytes += bytes;
        self.end = entry.index;
        self.entries.push_back((entry, bytes));
        while self.bytes > BYTES_MAX
            && let Some((entry, bytes)) = self.entries.pop_front()
        {
            self.after = entry.index;
            self.bytes -= bytes;
        }
    }

    /// Whether all is here that came behind this index.
    pub fn has(&self, index: u64) -> bool {
        self.place_behind(index).is_some()
    }

    /// The entries behind this index, as many as a message takes. Empty if there is none.
    pub fn behind(&self, index: u64) -> Vec<Entry> {
        let Some(place) = self.place_behind(index) else {
            return Vec::new();
        };
        let mut sum = 0;
        let taken = self.entries.range(place..).take_while(|(_, bytes)| {
            sum += bytes;
            sum <= PIECE_BYTES_MAX || sum == *bytes
        });
        taken.map(|(entry, _)| entry.clone()).collect()
    }

    fn place_behind(&self, index: u64) -> Option<usize> {
        if index == self.after {
            return Some(0);
        }
        let found = self
            .entries
            .binary_search_by_key(&index, |(entry, _)| entry.index);
        match found {
            Ok(place) => Some(place + 1),
            Err(place) => {
                let is_within = (self.after..=self.end).contains(&index);
                (is_within && self.numbers == Numbers::OfPlaces).then_some(place)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::record::{Record, TopicRecord};
    use wire::{TableId, TopicId};

    fn entry(index: u64, bytes: usize) -> Entry {
        let topic = TopicRecord {
            namespace: String::new(),
            name: "t".into(),
            topic: TopicId(1),
            definition: "x".repeat(bytes),
        };
        Entry {
            index,
            records: vec![Record::Topic(topic), Record::Table(TableId(1))],
        }
    }

    #[test]
    fn what_is_behind_an_index_is_there_or_known_not_to_be() {
        let mut window = Window::new(10, Numbers::OfRecords);
        assert_eq!(window.end(), 10);
        assert!(window.has(10) && window.behind(10).is_empty());
        for index in [12, 14, 20] {
            window.push(entry(index, 5));
        }
        let indices = |window: &Window, index| -> Vec<u64> {
            let behind = window.behind(index);
            behind.into_iter().map(|entry| entry.index).collect()
        };
        assert_eq!(indices(&window, 10), [12, 14, 20]);
        assert_eq!(indices(&window, 14), [20]);
        assert!(indices(&window, 20).is_empty());
        // A snapshot in the log lies there, or it is of another table.
        for index in [0, 11, 16, 21] {
            assert!(!window.has(index), "{index}");
        }
    }

    #[test]
    fn a_place_between_entries_is_one_where_a_copy_may_be() {
        let mut window = Window::new(10, Numbers::OfPlaces);
        window.push(entry(14, 5));
        window.pass(16);
        window.push(entry(20, 5));
        window.pass(22);
        // What was passed before is behind.
        window.pass(21);
        assert_eq!((window.end(), window.last()), (22, 20));
        let indices = |index| -> Vec<u64> {
            let behind = window.behind(index);
            behind.into_iter().map(|entry| entry.index).collect()
        };
        for (index, entries) in [(10, vec![14, 20]), (13, vec![14, 20]), (14, vec![20])] {
            assert_eq!(indices(index), entries, "{index}");
        }
        for index in [20, 21, 22] {
            assert!(window.has(index) && indices(index).is_empty(), "{index}");
        }
        assert!(!window.has(9) && !window.has(23));
    }

    #[test]
    fn a_message_and_the_window_have_a_bound() {
        let mut window = Window::new(0, Numbers::OfRecords);
        for index in 1..=20 {
            window.push(entry(index, 600 << 10));
        }
        assert!(!window.has(0));
        assert_eq!(window.end(), 20);
        let first = (1..20).find(|index| window.has(*index)).unwrap();
        assert!(window.bytes <= BYTES_MAX && 20 - first >= 8, "{first}");
        // One that is longer than a message usually is goes alone.
        assert_eq!(window.behind(first).len(), 1);
        window.push(entry(21, 3 << 20));
        assert_eq!(window.behind(20).len(), 1);
    }
}
