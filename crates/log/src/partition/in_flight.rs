//! Writes to logs that are under way, in the order of what they write.

use std::collections::VecDeque;
use wire::Offset;

/// A write to a log that is not known to be done, or comes behind one that is not.
pub(super) struct Write {
    number: u64,
    /// Base offset of the segment.
    pub(super) segment: Offset,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) first: Offset,
    pub(super) next: Offset,
    /// Bytes of log and data that it adds.
    pub(super) bytes: u64,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Pending,
    Done,
    /// There was no space.
    Refused,
}

/// Where in the log a write goes, and what it adds to it.
pub(super) struct Extent {
    /// Base offset of the segment.
    pub(super) segment: Offset,
    pub(super) start: u64,
    pub(super) end: u64,
    /// The offset behind what is written.
    pub(super) next: Offset,
    /// Bytes of log and data.
    pub(super) bytes: u64,
}

/// The writes under way. They may be carried out in any order; what is written
/// ends before the first that is not done.
#[derive(Default)]
pub(super) struct InFlight {
    /// Oldest first, numbered one after the other.
    writes: VecDeque<Write>,
    next: u64,
}

impl InFlight {
    pub(super) fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// A write behind all others begins. `written` is the end of what is written
    /// if there is no other. Returns its number.
    pub(super) fn begin(&mut self, extent: Extent, written: Offset) -> u64 {
        let number = self.next;
        self.next += 1;
        let before = self.writes.back();
        self.writes.push_back(Write {
            number,
            segment: extent.segment,
            start: extent.start,
            end: extent.end,
            first: before.map_or(written, |before| before.next),
            next: extent.next,
            bytes: extent.bytes,
            state: State::Pending,
        });
        number
    }

    /// Whether this write is still one of them: those that were taken back are not.
    pub(super) fn knows(&self, number: u64) -> bool {
        self.writes
            .front()
            .is_some_and(|front| front.number <= number)
    }

    /// A write was carried out, or found no space.
    pub(super) fn finished(&mut self, number: u64, is_done: bool) {
        let Some(front) = self.writes.front() else {
            return;
        };
        let at = (number - front.number) as usize;
        self.writes[at].state = match is_done {
            true => State::Done,
            false => State::Refused,
        };
    }

    /// The oldest write, if it is done: what it wrote is whole, with all before it.
    pub(super) fn pop_done(&mut self) -> Option<Write> {
        let front = self.writes.front()?;
        match front.state {
            State::Done => self.writes.pop_front(),
            State::Pending | State::Refused => None,
        }
    }

    /// The write `number`, once all before it are done and none behind it is under way.
    pub(super) fn first_refused(&self, number: u64) -> Option<&Write> {
        let is_quiet = self
            .writes
            .iter()
            .all(|write| write.state != State::Pending);
        self.writes
            .front()
            .filter(|front| is_quiet && front.number == number)
    }

    /// They are taken back.
    pub(super) fn clear(&mut self) {
        self.writes.clear();
    }
}
