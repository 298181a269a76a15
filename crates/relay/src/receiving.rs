//! One direction of a stream, as its receiver keeps it: in order, within what was granted.

use crate::faults::{Fault, planted};
use bytes::{Bytes, BytesMut};
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// What a stream may send before the first Credit, and the least that is ever granted.
pub(crate) const WINDOW_BYTES: u64 = 256 << 10;
/// The most that is granted to one stream.
pub(crate) const WINDOW_BYTES_MAX: u64 = 64 << 20;
/// The most pieces that wait for one before them.
const EARLY_MAX: usize = 16 << 10;
/// Pieces below this that come before their turn are copied.
const EARLY_COPIED_BYTES: usize = 16 << 10;
/// Pieces below this are copied together: what they came in has many of them.
const SMALL_BYTES: usize = 4 << 10;

/// What the reader finds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Bytes(Bytes),
    Nothing,
    End,
}

/// The receiver's half.
#[derive(Debug)]
pub(crate) struct Receiving {
    /// All before it has come.
    received: u64,
    /// All before it was taken by the reader.
    taken: u64,
    /// All before it was granted.
    limit: u64,
    window: u64,
    chunks: VecDeque<Bytes>,
    small: BytesMut,
    /// What came before its turn, by offset.
    early: BTreeMap<u64, Bytes>,
    early_bytes: u64,
    end: Option<u64>,
    /// The reader has found the end.
    is_found: bool,
    /// When the last grant was.
    granted_at: Instant,
    /// What the last Credit said.
    said: u64,
    is_credit_due: bool,
}

impl Receiving {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            received: 0,
            taken: 0,
            limit: WINDOW_BYTES,
            window: WINDOW_BYTES,
            chunks: VecDeque::new(),
            small: BytesMut::new(),
            early: BTreeMap::new(),
            early_bytes: 0,
            end: None,
            is_found: false,
            granted_at: now,
            said: 0,
            is_credit_due: false,
        }
    }

    /// Bytes have come.
    ///
    /// # Errors
    /// What of the protocol they break.
    pub(crate) fn data(&mut self, offset: u64, mut bytes: Bytes) -> Result<(), &'static str> {
        let end = offset + bytes.len() as u64;
        if end > self.limit && !planted(Fault::IgnoredCredit) {
            return Err("more bytes of a stream than were granted");
        }
        if self.end.is_some_and(|last| end > last) {
            return Err("bytes behind the end of a stream");
        }
        if end <= self.received {
            // Sent again, and there already: its sender does not know.
            self.is_credit_due = true;
            return Ok(());
        }
        if offset > self.received {
            self.early_bytes += bytes.len() as u64;
            // A piece holds the block that it came in, which may have little else.
            let kept = match bytes.len() < EARLY_COPIED_BYTES {
                true => Bytes::copy_from_slice(&bytes),
                false => bytes,
            };
            let before = self.early.insert(offset, kept);
            self.early_bytes -= before.map_or(0, |before| before.len() as u64);
            let is_full = self.early.len() > EARLY_MAX || self.early_bytes > 2 * self.window;
            return if is_full {
                Err("too many pieces before their turn")
            } else {
                Ok(())
            };
        }
        let _ = bytes.split_to((self.received - offset) as usize);
        self.append(bytes);
        while let Some(entry) = self.early.first_entry() {
            if *entry.key() > self.received {
                break;
            }
            let (offset, mut bytes) = entry.remove_entry();
            self.early_bytes -= bytes.len() as u64;
            if offset + bytes.len() as u64 > self.received {
                let _ = bytes.split_to((self.received - offset) as usize);
                self.append(bytes);
            }
        }
        self.note_end();
        Ok(())
    }

    fn append(&mut self, bytes: Bytes) {
        self.received += bytes.len() as u64;
        if bytes.len() < SMALL_BYTES {
            self.small.extend_from_slice(&bytes);
            return;
        }
        if !self.small.is_empty() {
            self.chunks.push_back(self.small.split().freeze());
        }
        self.chunks.push_back(bytes);
    }

    /// The end is at `offset`.
    ///
    /// # Errors
    /// What of the protocol that breaks.
    pub(crate) fn close(&mut self, offset: u64) -> Result<(), &'static str> {
        let is_other = self.end.is_some_and(|end| end != offset);
        let is_before = offset < self.received
            || self
                .early
                .iter()
                .any(|(at, bytes)| at + bytes.len() as u64 > offset);
        if is_other || is_before || offset > self.limit {
            return Err("an end of a stream where it can't be");
        }
        self.end = Some(offset);
        self.note_end();
        Ok(())
    }

    fn note_end(&mut self) {
        // The sender keeps what it sent until it knows.
        self.is_credit_due |= self.end == Some(self.received);
    }

    /// Takes the next bytes.
    pub(crate) fn take(&mut self) -> Found {
        let bytes = match self.chunks.pop_front() {
            Some(bytes) => bytes,
            None if !self.small.is_empty() => self.small.split().freeze(),
            None if self.is_whole() => {
                self.is_found = true;
                return Found::End;
            }
            None => return Found::Nothing,
        };
        self.taken += bytes.len() as u64;
        let is_low = self.taken + self.window - self.limit >= self.window / 4;
        self.is_credit_due |= is_low && self.end.is_none();
        Found::Bytes(bytes)
    }

    /// Whether the reader finds something.
    pub(crate) fn is_readable(&self) -> bool {
        !self.chunks.is_empty() || !self.small.is_empty() || self.end == Some(self.received)
    }

    /// Whether all came.
    pub(crate) fn is_whole(&self) -> bool {
        self.end == Some(self.received)
    }

    /// Whether its reader has found the end.
    pub(crate) fn is_done(&self) -> bool {
        self.is_found
    }

    pub(crate) fn is_credit_due(&self) -> bool {
        self.is_credit_due
    }

    /// Whether something has come that no Credit said.
    pub(crate) fn has_unsaid(&self) -> bool {
        self.received > self.said
    }

    /// A Credit is to be said, whatever was said before.
    pub(crate) fn say_again(&mut self) {
        self.is_credit_due = true;
    }

    /// What a Credit says now: (received, limit). The window grows by up to `spare` bytes, to `most` at most, while the
    /// reader takes it all faster than a grant takes to arrive. How much it grew comes third.
    pub(crate) fn credit(
        &mut self,
        now: Instant,
        rtt: Duration,
        most: u64,
        spare: u64,
    ) -> (u64, u64, u64) {
        self.is_credit_due = false;
        let mut grown = 0;
        let is_used = self.taken + self.window > self.limit;
        if is_used && self.end.is_none() {
            let most = most.clamp(WINDOW_BYTES, WINDOW_BYTES_MAX);
            let is_fast = now.saturating_duration_since(self.granted_at) < rtt * 2;
            if is_fast && self.window < most {
                grown = self.window.min(most - self.window).min(spare);
                self.window += grown;
            }
            self.granted_at = now;
            self.limit = self.taken + self.window;
        }
        let is_end = self.end == Some(self.received);
        self.said = self.received + u64::from(is_end);
        (self.said, self.limit, grown)
    }

    /// By how much its window has grown.
    pub(crate) fn grown(&self) -> u64 {
        self.window - WINDOW_BYTES
    }
}
