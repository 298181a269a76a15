//! Which events are being opened, and who waits for their batches.

use crate::storage::ReadToken;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use wire::Offset;

/// So many events are opened at once: enough that disk threads have something to do,
/// few enough that it costs little if they turn out to be of one batch.
const OPENINGS_MAX: usize = 8;
/// So far behind an event that is being opened, others wait for its batch, as
/// long as it is not known how many events batches have.
const BEHIND_MAX: u64 = 4096;

/// An event that is to be opened.
pub(super) type Wanted = (ReadToken, Offset);

/// Events are opened one by one; those of one batch are to read and verify it
/// once, those of several are not to wait for each other. Of which batch an event
/// is, is not known before that is found: until then it waits for the event before
/// it if both are, by the length of the batch that was opened last, of the same.
#[derive(Default)]
pub(super) struct Openings {
    under_way: BTreeMap<Offset, Opening>,
    /// Events that are opened when there is room.
    later: VecDeque<Wanted>,
}

struct Opening {
    token: ReadToken,
    /// The offsets of its batch, once it is found.
    batch: Option<Range<Offset>>,
    /// Events that are most likely of the same batch.
    waiting: Vec<Wanted>,
}

impl Openings {
    /// Whether this event is to be opened now; if not it waits. `expected` is how
    /// many offsets its batch most likely has, if that is known.
    pub(super) fn begin(&mut self, (token, offset): Wanted, expected: Option<u64>) -> bool {
        let expected = expected.unwrap_or(BEHIND_MAX).max(1);
        let before = self.under_way.range(..=offset).next_back();
        let before = before
            .filter(|(first, opening)| opening.batch.is_none() && offset.0 - first.0 < expected);
        let first = self.reading(offset).or(before.map(|(first, _)| *first));
        if let Some(first) = first {
            self.wait_for(first, [(token, offset)]);
            return false;
        }
        if self.under_way.len() >= OPENINGS_MAX {
            self.later.push_back((token, offset));
            return false;
        }
        let opening = Opening {
            token,
            batch: None,
            waiting: Vec::new(),
        };
        self.under_way.insert(offset, opening);
        true
    }

    /// Its batch has these offsets. Whether another event's opening reads it
    /// already: then this one waits for that, together with all that waited for it.
    pub(super) fn found(&mut self, (token, offset): Wanted, batch: Range<Offset>) -> bool {
        if !self.is_under_way((token, offset)) {
            return false;
        }
        match self.reading(offset) {
            Some(other) if other != offset => {
                let waiting = self.end((token, offset));
                self.wait_for(other, [(token, offset)].into_iter().chain(waiting));
                true
            }
            _ => {
                let own = self.under_way.get_mut(&offset);
                own.expect("just seen").batch = Some(batch);
                false
            }
        }
    }

    /// The event that is opened from the batch of `offset`, if that is known.
    fn reading(&self, offset: Offset) -> Option<Offset> {
        let mut openings = self.under_way.iter();
        let is_of = |batch: &Range<Offset>| batch.contains(&offset);
        let found = openings.find(|(_, opening)| opening.batch.as_ref().is_some_and(is_of));
        found.map(|(first, _)| *first)
    }

    fn wait_for(&mut self, first: Offset, events: impl IntoIterator<Item = Wanted>) {
        let opening = self.under_way.get_mut(&first).expect("just seen");
        opening.waiting.extend(events);
    }

    /// This event is opened, or could not be: who waited for it.
    pub(super) fn end(&mut self, (token, offset): Wanted) -> Vec<Wanted> {
        if !self.is_under_way((token, offset)) {
            return Vec::new();
        }
        let opening = self.under_way.remove(&offset);
        opening.map_or_else(Vec::new, |opening| opening.waiting)
    }

    /// The next event for which there is room now.
    pub(super) fn next(&mut self) -> Option<Wanted> {
        match self.under_way.len() < OPENINGS_MAX {
            true => self.later.pop_front(),
            false => None,
        }
    }

    fn is_under_way(&self, (token, offset): Wanted) -> bool {
        let opening = self.under_way.get(&offset);
        opening.is_some_and(|opening| opening.token == token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(offset: u64) -> Wanted {
        (ReadToken(1000 + offset), Offset(offset))
    }

    fn events<const COUNT: usize>(offsets: [u64; COUNT]) -> Vec<Wanted> {
        offsets.map(event).into()
    }

    #[test]
    fn an_event_waits_for_the_one_before_it_in_its_batch() {
        let mut openings = Openings::default();
        for first in [50, 10] {
            assert!(openings.begin(event(first), Some(10)));
        }
        for waits in [10, 19, 50, 59] {
            assert!(!openings.begin(event(waits), Some(10)));
        }
        for apart in [9, 20, 60] {
            assert!(openings.begin(event(apart), Some(10)));
        }
        assert_eq!(openings.end(event(10)), events([10, 19]));
        assert_eq!(openings.end(event(50)), events([50, 59]));
        assert_eq!(openings.end(event(50)), []);
    }

    #[test]
    fn as_long_as_no_length_is_known_all_wait_that_may_be_of_the_batch() {
        let mut openings = Openings::default();
        assert!(openings.begin(event(0), None));
        assert!(!openings.begin(event(BEHIND_MAX - 1), None));
        assert!(openings.begin(event(BEHIND_MAX), None));
    }

    #[test]
    fn somebody_else_at_the_same_offset_is_not_taken_for_it() {
        let mut openings = Openings::default();
        let (_, offset) = event(3);
        assert!(openings.begin(event(3), None));
        assert!(!openings.begin(event(4), None));
        assert_eq!(openings.end((ReadToken(7), offset)), []);
        assert!(!openings.found((ReadToken(7), offset), offset..offset.plus(1)));
        assert_eq!(openings.end(event(3)), events([4]));
    }

    #[test]
    fn events_that_turn_out_to_be_of_one_batch_wait_for_the_first_that_reads_it() {
        let mut openings = Openings::default();
        for offset in [2, 5, 9] {
            assert!(openings.begin(event(offset), Some(1)));
        }
        assert!(!openings.begin(event(2), Some(1)));
        let batch = Offset(1)..Offset(8);
        assert!(!openings.found(event(5), batch.clone()));
        // Also when it looks again.
        assert!(!openings.found(event(5), batch.clone()));
        assert!(!openings.found(event(9), Offset(8)..Offset(10)));
        assert!(openings.found(event(2), batch));
        // From then on it is known who is of it.
        for (of_it, waits) in [(1, true), (7, true), (8, true), (10, false)] {
            assert_eq!(!openings.begin(event(of_it), None), waits, "{of_it}");
        }
        assert_eq!(openings.end(event(5)), events([2, 2, 1, 7]));
        assert_eq!(openings.end(event(9)), events([8]));
    }

    #[test]
    fn what_finds_no_room_comes_in_its_turn() {
        let mut openings = Openings::default();
        let most = OPENINGS_MAX as u64;
        for offset in 0..most + 2 {
            assert_eq!(openings.begin(event(offset), Some(1)), offset < most);
        }
        assert_eq!(openings.next(), None);
        openings.end(event(3));
        assert_eq!(openings.next(), Some(event(most)));
        assert!(openings.begin(event(most), Some(1)));
        assert_eq!(openings.next(), None);
        openings.end(event(0));
        openings.end(event(1));
        assert_eq!(openings.next(), Some(event(most + 1)));
        assert_eq!(openings.next(), None);
    }
}
