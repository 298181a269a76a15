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
}

impl Window {
    /// Behind a table that has come so far.
    pub fn new(after: u64) -> Self {
        Self {
            after,
            entries: VecDeque::new(),
            bytes: 0,
        }
    }

    /// How far the table has come.
    pub fn end(&self) -> u64 {
        let last = self.entries.back();
        last.map_or(self.after, |(entry, _)| entry.index)
    }

    pub fn push(&mut self, entry: Entry) {
        let bytes = entry.to_bytes().len();
        self.bytes += bytes;
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
        found.ok().map(|place| place + 1)
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
        let mut window = Window::new(10);
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
    fn a_message_and_the_window_have_a_bound() {
        let mut window = Window::new(0);
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
