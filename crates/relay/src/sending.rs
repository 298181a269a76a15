//! One direction of a stream, as its sender keeps it: what waits, what is on its way, what has arrived.

use crate::faults::{Fault, planted};
use crate::frame::{Frame, StreamId};
use bytes::Bytes;
use std::collections::VecDeque;

/// The most that waits of one stream; who has more to send waits.
pub(crate) const QUEUED_BYTES_MAX: usize = 512 << 10;
/// The most that is kept of one stream until it has arrived, whatever the other side grants.
pub(crate) const KEPT_BYTES_MAX: u64 = 64 << 20;

/// A piece that was sent and may have to be sent again.
#[derive(Debug)]
struct Piece {
    offset: u64,
    bytes: Bytes,
    /// The connection that it went by.
    stripe: u8,
}

/// How far the end of this direction is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// More may come.
    Open,
    /// No more comes; that is not said yet.
    Asked,
    /// It was said, by this connection.
    Said(u8),
    /// The other side has all, and knows that it is all.
    Known,
}

/// The sender's half.
#[derive(Debug)]
pub(crate) struct Sending {
    queue: VecDeque<Bytes>,
    queued: usize,
    /// Pieces to be sent again, the first one first.
    again: VecDeque<Piece>,
    /// On their way, in the order of offsets but for what was sent again.
    kept: VecDeque<Piece>,
    /// The first byte that was never sent.
    next: u64,
    /// All before it has arrived.
    arrived: u64,
    /// All before it may be sent.
    limit: u64,
    end: End,
    /// The end was said, at least once.
    was_said: bool,
}

impl Sending {
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            queue: VecDeque::new(),
            queued: 0,
            again: VecDeque::new(),
            kept: VecDeque::new(),
            next: 0,
            arrived: 0,
            limit,
            end: End::Open,
            was_said: false,
        }
    }

    /// Bytes that may be given now.
    pub(crate) fn room(&self) -> usize {
        match self.end {
            End::Open => QUEUED_BYTES_MAX.saturating_sub(self.queued),
            _ => 0,
        }
    }

    pub(crate) fn push(&mut self, bytes: Bytes) {
        self.queued += bytes.len();
        self.queue.push_back(bytes);
    }

    /// No more is given.
    pub(crate) fn finish(&mut self) {
        if self.end == End::Open {
            self.end = End::Asked;
        }
    }

    /// Bytes that wait.
    pub(crate) fn queued(&self) -> usize {
        self.queued
    }

    /// Bytes that wait, of a stream of which the other side takes some.
    pub(crate) fn flowing(&self) -> usize {
        match self.is_granted() || planted(Fault::CountsBlocked) {
            true => self.queued,
            false => 0,
        }
    }

    /// Bytes that are here: those that wait, and those that may have to be sent again.
    pub(crate) fn held(&self) -> u64 {
        self.queued as u64 + (self.next - self.arrived)
    }

    fn is_granted(&self) -> bool {
        self.next < self.limit && self.next - self.arrived < KEPT_BYTES_MAX
    }

    /// Whether something may be sent now.
    pub(crate) fn is_ready(&self) -> bool {
        let has_room = self.is_granted();
        !self.again.is_empty() || !self.queue.is_empty() && has_room || self.says_end()
    }

    fn says_end(&self) -> bool {
        self.end == End::Asked && self.queue.is_empty()
    }

    /// The next frame, with at most `max` bytes, to go by `stripe`, and how many bytes of data it has.
    pub(crate) fn next(&mut self, stream: StreamId, stripe: u8, max: usize) -> Option<Frame> {
        if let Some(piece) = self.again.pop_front() {
            let Piece { offset, bytes, .. } = piece;
            self.kept.push_back(Piece {
                offset,
                bytes: bytes.clone(),
                stripe,
            });
            return Some(Frame::Data {
                stream,
                offset,
                bytes,
            });
        }
        if self.says_end() {
            self.end = End::Said(stripe);
            self.was_said = true;
            return Some(Frame::Close {
                stream,
                offset: self.next,
            });
        }
        let granted = self.limit.saturating_sub(self.next);
        let unkept = KEPT_BYTES_MAX.saturating_sub(self.next - self.arrived);
        let max = granted.min(unkept).min(max as u64) as usize;
        let front = self.queue.front_mut().filter(|_| max > 0)?;
        let bytes = match front.len() > max {
            true => front.split_to(max),
            false => self.queue.pop_front().expect("it was looked at"),
        };
        self.queued -= bytes.len();
        let offset = self.next;
        self.next += bytes.len() as u64;
        self.kept.push_back(Piece {
            offset,
            bytes: bytes.clone(),
            stripe,
        });
        Some(Frame::Data {
            stream,
            offset,
            bytes,
        })
    }

    /// The other side has all before `received`, and takes all before `limit`. `false` if it can't have it.
    pub(crate) fn credit(&mut self, received: u64, limit: u64) -> bool {
        let is_end = self.was_said && received == self.next + 1;
        if received > self.next && !is_end {
            return false;
        }
        if is_end {
            self.end = End::Known;
        }
        self.limit = self.limit.max(limit);
        self.arrived = self.arrived.max(received.min(self.next));
        let arrived = self.arrived;
        let is_there = |piece: &Piece| piece.offset + piece.bytes.len() as u64 <= arrived;
        // What was sent again stands behind what was sent later.
        while self.kept.front().is_some_and(is_there) {
            self.kept.pop_front();
        }
        if self.kept.len() > 64 && self.kept.iter().filter(|piece| is_there(piece)).count() > 64 {
            self.kept.retain(|piece| !is_there(piece));
        }
        self.again.retain(|piece| !is_there(piece));
        true
    }

    /// What went by `stripe` may be lost: it is sent again.
    pub(crate) fn lost(&mut self, stripe: u8) {
        let (lost, kept) = std::mem::take(&mut self.kept)
            .into_iter()
            .partition::<VecDeque<_>, _>(|piece| piece.stripe == stripe);
        self.kept = kept;
        let arrived = self.arrived;
        let missing = lost
            .into_iter()
            .filter(|piece| piece.offset + piece.bytes.len() as u64 > arrived);
        self.again.extend(missing);
        self.again
            .make_contiguous()
            .sort_by_key(|piece| piece.offset);
        if self.end == End::Said(stripe) {
            self.end = End::Asked;
        }
    }

    /// Whether the other side has all, and knows that it is all.
    pub(crate) fn is_done(&self) -> bool {
        self.end == End::Known
    }

    /// The other side has forgotten the stream, as it does when it has all. `false` if it can't have.
    pub(crate) fn settle(&mut self) -> bool {
        if self.was_said {
            self.end = End::Known;
            self.arrived = self.next;
            self.again.clear();
            self.kept.clear();
        }
        self.was_said
    }
}
