//! One partition on its way, as plain state: what is fetched next, what is to be appended in which
//! order, how far the copy is durable, and how far the source may forget.
//!
//! ```text
//!  source ──fetched──► queue ──next_piece──► sent ──stored──► durable ──acknowledgement──► source
//!             fetch_at ─┘                      └─ lost: the copy is asked where it is (a new Flow)
//! ```

use crate::faults::{Fault, planted};
use bytes::Bytes;
use std::collections::VecDeque;
use wire::batch::{Batch, SKIPPED_OFFSETS_MAX, Stamp, Verify, skipped_batch};
use wire::codec::DecodeError;
use wire::record::{Gap, GapReason, Position};
use wire::{Incarnation, Offset, TopicId};

/// More events than that are missing nowhere: who says so is damaged.
const SKIPPED_MAX: u64 = 1 << 40;

/// What is appended to the copy at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// The first offset.
    pub base: Offset,
    /// The offset behind the last.
    pub end: Offset,
    /// When the source took it; 0 of what it has lost.
    pub time: u64,
    /// The batch, stamped.
    pub batch: Bytes,
    /// How many events it has.
    pub events: u64,
}

/// Why a partition cannot go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FlowError {
    /// Bytes that are no batch.
    Damaged(String),
    /// The source has other events than the copy under some offsets.
    Diverged(String),
}

/// What was fetched of the source: some batches, or what is missing from where it was asked on.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// Batches in order; the first may begin before what was asked for.
    pub batches: Vec<Bytes>,
    /// What is missing.
    pub gap: Option<Gap>,
    /// Where to go on, if anything was found.
    pub next: Option<Position>,
}

/// See the module.
#[derive(Debug)]
pub struct Flow {
    topic: TopicId,
    life: Incarnation,
    fetch_at: Offset,
    queue: VecDeque<Piece>,
    /// Ends of what was sent and is not stored, in order.
    sent: VecDeque<Offset>,
    durable: Offset,
    acknowledged: Option<Position>,
}

impl Flow {
    /// Goes on where the copy is. `life` is that in which its last event was read, `acknowledged`
    /// what the source knows of the copy.
    pub fn new(
        topic: TopicId,
        (life, next): (Incarnation, Offset),
        durable: Offset,
        acknowledged: Option<Position>,
    ) -> Self {
        Self {
            topic,
            life,
            fetch_at: next,
            queue: VecDeque::new(),
            sent: VecDeque::new(),
            durable,
            acknowledged,
        }
    }

    /// What is to be fetched next.
    pub fn fetch_at(&self) -> Position {
        Position {
            incarnation: self.life,
            offset: self.fetch_at,
        }
    }

    /// Below this, the copy is durable.
    pub fn durable(&self) -> Offset {
        self.durable
    }

    /// Bytes of what waits to be appended.
    pub fn queued_bytes(&self) -> u64 {
        self.queue
            .iter()
            .map(|piece| piece.batch.len() as u64)
            .sum()
    }

    /// Something was fetched from where [`Flow::fetch_at`] was.
    ///
    /// # Errors
    /// If it cannot follow what the copy has.
    pub fn fetched(&mut self, found: Found) -> Result<(), FlowError> {
        for batch in found.batches {
            self.push_batch(batch)?;
        }
        let (Some(gap), Some(next)) = (found.gap, found.next) else {
            return Ok(());
        };
        if next.incarnation != self.life {
            if next.offset < self.fetch_at && !planted(Fault::AnyLife) {
                return Err(FlowError::Diverged(format!(
                    "the source has lost its events from {} on ({:?}), of which the copy has those before {}",
                    next.offset, gap.reason, self.fetch_at
                )));
            }
            self.life = next.incarnation;
        }
        self.skip(next.offset, gap.reason, gap.time)
    }

    fn push_batch(&mut self, bytes: Bytes) -> Result<(), FlowError> {
        let damaged = |error: DecodeError| FlowError::Damaged(error.to_string());
        let batch = Batch::read(bytes.clone(), Verify::Headers).map_err(damaged)?;
        let Some(stamp) = batch.stamp else {
            return Err(FlowError::Damaged("a batch without a stamp".to_owned()));
        };
        let (base, count) = (stamp.base_offset, batch.header.offset_count());
        let end = base.0.checked_add(count).map(Offset);
        let end = end.ok_or_else(|| FlowError::Damaged(format!("a batch at offset {base}")))?;
        if end <= self.fetch_at {
            return Ok(());
        }
        if base < self.fetch_at {
            return Err(FlowError::Diverged(format!(
                "the source has a batch of offsets {base} to {end}, the copy ends within, at {}",
                self.fetch_at
            )));
        }
        self.skip(base, GapReason::Damaged, stamp.append_time)?;
        self.queue.push_back(Piece {
            base,
            end,
            time: stamp.append_time,
            batch: bytes,
            events: u64::from(batch.header.event_count),
        });
        self.fetch_at = end;
        Ok(())
    }

    /// The source has nothing before `end`.
    fn skip(&mut self, end: Offset, reason: GapReason, time: u64) -> Result<(), FlowError> {
        let missing = end.0.saturating_sub(self.fetch_at.0);
        if missing > SKIPPED_MAX {
            return Err(FlowError::Damaged(format!(
                "{missing} events are said to be missing before offset {end}"
            )));
        }
        while self.fetch_at < end {
            let first = self.fetch_at;
            let piece_end = end.min(first.plus(SKIPPED_OFFSETS_MAX));
            let gap = Gap {
                incarnation: self.life,
                first,
                end: piece_end,
                reason,
                time,
            };
            self.fetch_at = piece_end;
            if !planted(Fault::NoGap) {
                self.queue.push_back(Piece {
                    base: first,
                    end: piece_end,
                    time: 0,
                    batch: stamped(self.topic, &gap),
                    events: 0,
                });
            }
        }
        Ok(())
    }

    /// The next piece cannot be read: what is missing takes its place. Gives the length of that.
    pub fn skip_front(&mut self, reason: GapReason) -> u64 {
        let Some(piece) = self.queue.front_mut() else {
            return 0;
        };
        let gap = Gap {
            incarnation: self.life,
            first: piece.base,
            end: piece.end,
            reason,
            time: piece.time,
        };
        piece.batch = stamped(self.topic, &gap);
        piece.events = 0;
        piece.time = 0;
        piece.batch.len() as u64
    }

    /// The next piece that is to be appended.
    pub fn front(&self) -> Option<&Piece> {
        self.queue.front()
    }

    /// Takes the next piece, which is appended now.
    pub fn next_piece(&mut self) -> Option<Piece> {
        let piece = self.queue.pop_front()?;
        self.sent.push_back(piece.end);
        if planted(Fault::AcknowledgeSent) {
            self.durable = piece.end;
        }
        Some(piece)
    }

    /// The oldest piece that was sent is stored, as durably as the copy promises.
    pub fn stored(&mut self) {
        if let Some(end) = self.sent.pop_front() {
            self.durable = self.durable.max(end);
        }
    }

    /// What the source may be told: all before it is durable at the copy.
    pub fn acknowledgement(&self) -> Option<Position> {
        let position = Position {
            incarnation: self.life,
            offset: self.durable,
        };
        let is_news = self.acknowledged.is_none_or(|known| known < position);
        is_news.then_some(position)
    }

    /// The source knows it.
    pub fn acknowledged(&mut self, position: Position) {
        self.acknowledged = Some(position);
    }
}

/// The batch that stands for what the source has lost, stamped as one of the source.
fn stamped(topic: TopicId, gap: &Gap) -> Bytes {
    let mut batch = skipped_batch(topic, gap).to_vec();
    let header = Batch::read(batch.as_slice(), Verify::Headers);
    let header_crc = header.expect("it was made just now").header_crc;
    let stamp = Stamp {
        batch_bytes: batch.len() as u64,
        base_offset: gap.first,
        append_time: gap.time,
        header_crc,
        ..Stamp::default()
    };
    stamp.write(&mut batch);
    batch.into()
}

#[cfg(test)]
#[path = "flow_tests.rs"]
mod tests;
