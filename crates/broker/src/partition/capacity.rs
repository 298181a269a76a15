//! What becomes of a batch for which there is no room, because the consumers
//! that the topic waits for are behind. What the policies mean is on the page
//! `docs/concept/back-pressure.md`.
//!
//! Dropping the oldest is the storage's work (`log::Retention::discards`). The
//! rest is decided here, before a batch is appended or its data is fetched.

use super::store::Store;
use crate::ctx::Ctx;
use log::StorageState;
use log::producers::Verdict;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use topic::{Overflow, Retention};
use wire::batch::Header;
use wire::{ErrorCode, ErrorReply, Offset, ProducerEpoch, ProducerId, Sequence};

/// How soon a producer tries again that is to wait, and not in the wait queue.
pub(super) const BLOCKED_RETRY_MS: u32 = 100;
/// In how many pieces a backlog is measured: bytes are known so exactly.
const PIECES: u64 = 64;
/// Of so many producers it is known what was dropped. One that is forgotten
/// is told what is expected of it, and numbers its events anew.
const PRODUCERS_MAX: usize = 4096;
/// Stretches of a producer's events that were dropped, with others between them.
const STRETCHES_MAX: usize = 8;
/// How often the log says that a partition drops.
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// What a partition does with batches for which it has no room.
#[derive(Debug, Default)]
pub(crate) struct Capacity {
    policy: Overflow,
    bound: Retention,
    /// The position that everybody has reached who is waited for, if somebody is.
    waited_from: Option<Offset>,
    /// Measured where a bound is held against it.
    backlog: Backlog,
    /// Events and bytes of batches that are admitted and wait for their data.
    reserved: (u64, u64),
    dropped: Dropped,
    /// Batches that came while there was no room.
    beyond: u64,
    pub drops: Drops,
    reported_at: Option<Duration>,
}

/// Events that were not kept, since the server began.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Drops {
    /// Refused; the producer may have pushed them again.
    pub refused: u64,
    /// Dropped on arrival.
    pub dropped: u64,
    /// Dropped after they were stored, and not acknowledged by all.
    pub discarded: u64,
}

/// What lies above the position that everybody has reached.
#[derive(Debug, Default)]
struct Backlog {
    from: Offset,
    /// Pieces in order: where each ends, and its bytes.
    pieces: VecDeque<(Offset, u64)>,
    bytes: u64,
}

impl Backlog {
    /// What is there was not seen coming: its bytes are taken to be spread evenly.
    fn restart(&mut self, from: Offset, state: &StorageState) {
        *self = Self {
            from,
            ..Self::default()
        };
        let all = state.end.0.saturating_sub(state.first.0);
        let above = state.end.0.saturating_sub(from.max(state.first).0);
        if above == 0 {
            return;
        }
        let count = above.min(PIECES);
        let bytes = (u128::from(state.bytes) * u128::from(above) / u128::from(all)) as u64;
        for piece in 1..=count {
            let end = state.end.0 - above + above * piece / count;
            let part = bytes * piece / count - bytes * (piece - 1) / count;
            self.pieces.push_back((Offset(end), part));
        }
        self.bytes = bytes;
    }

    fn appended(&mut self, end: Offset, bytes: u64, bound: Option<u64>) {
        let grain = bound.unwrap_or(u64::MAX) / PIECES;
        self.bytes += bytes;
        match self.pieces.back_mut() {
            Some(last) if last.1.saturating_add(bytes) <= grain => {
                *last = (end, last.1 + bytes);
            }
            _ => self.pieces.push_back((end, bytes)),
        }
    }

    /// Everything below `from` is acknowledged, or gone.
    fn advance(&mut self, from: Offset) {
        self.from = self.from.max(from);
        while let Some((end, bytes)) = self.pieces.front()
            && *end <= self.from
        {
            self.bytes -= bytes;
            self.pieces.pop_front();
        }
    }

    /// Appends from `end` on were undone.
    fn retract(&mut self, end: Offset) {
        while let Some((last, bytes)) = self.pieces.back()
            && *last > end
        {
            self.bytes -= bytes;
            self.pieces.pop_back();
        }
    }
}

/// Which sequence numbers belong to batches that were dropped: they are not
/// missing, and a batch that comes again is dropped again.
#[derive(Debug, Default)]
struct Dropped {
    producers: BTreeMap<ProducerId, Stretches>,
}

#[derive(Debug)]
struct Stretches {
    epoch: ProducerEpoch,
    /// From and to; ascending, none touches the next.
    stretches: VecDeque<(Sequence, Sequence)>,
}

impl Dropped {
    fn of(&self, producer: ProducerId, epoch: ProducerEpoch) -> Option<&Stretches> {
        let known = self.producers.get(&producer)?;
        (known.epoch == epoch).then_some(known)
    }

    fn note(&mut self, header: &Header) {
        let is_new = !self.producers.contains_key(&header.producer);
        if is_new && self.producers.len() >= PRODUCERS_MAX {
            self.producers.pop_first();
        }
        let known = self.producers.entry(header.producer);
        let known = known.or_insert_with(|| Stretches {
            epoch: header.epoch,
            stretches: VecDeque::new(),
        });
        if known.epoch != header.epoch {
            known.epoch = header.epoch;
            known.stretches.clear();
        }
        let (from, to) = range(header);
        match known.stretches.back_mut() {
            Some(last) if last.1 == from => last.1 = to,
            _ => known.stretches.push_back((from, to)),
        }
        if known.stretches.len() > STRETCHES_MAX {
            known.stretches.pop_front();
        }
    }

    /// Whether the batch was dropped before.
    fn has(&self, header: &Header) -> bool {
        let (from, to) = range(header);
        let known = self.of(header.producer, header.epoch);
        known.is_some_and(|known| {
            let mut stretches = known.stretches.iter();
            stretches.any(|stretch| stretch.0 <= from && to <= stretch.1)
        })
    }

    /// The number that is expected where `next` is, as far as storage goes.
    fn behind(&self, producer: ProducerId, epoch: ProducerEpoch, next: Sequence) -> Sequence {
        let Some(known) = self.of(producer, epoch) else {
            return next;
        };
        let mut stretches = known.stretches.iter();
        let over = stretches.find(|stretch| stretch.0 <= next && next < stretch.1);
        over.map_or(next, |stretch| stretch.1)
    }
}

fn range(header: &Header) -> (Sequence, Sequence) {
    let first = header.first_sequence;
    let count = u64::from(header.event_count);
    (first, Sequence(first.0.saturating_add(count)))
}

impl Capacity {
    /// What holds from now on, and where everybody is who is waited for, if
    /// somebody is.
    pub fn set(
        &mut self,
        policy: Overflow,
        bound: Retention,
        waited_from: Option<Offset>,
        state: &StorageState,
    ) {
        self.waited_from = waited_from;
        let keep_from = waited_from.unwrap_or(state.end);
        let is_new = (policy, bound) != (self.policy, self.bound);
        (self.policy, self.bound) = (policy, bound);
        if policy == Overflow::Grow {
            self.backlog = Backlog::default();
        } else if is_new || keep_from < self.backlog.from {
            self.backlog.restart(keep_from, state);
        } else {
            self.backlog.advance(keep_from);
        }
    }

    /// A batch was appended.
    pub fn appended(&mut self, end: Offset, bytes: u64) {
        if self.policy != Overflow::Grow {
            self.backlog.appended(end, bytes, self.bound.bytes);
        }
    }

    /// Appends from `end` on were undone.
    pub fn retract(&mut self, end: Offset) {
        self.backlog.retract(end);
    }

    pub fn policy(&self) -> Overflow {
        self.policy
    }

    /// Events and bytes that somebody is waited for. Where no bound is held
    /// against them, the bytes are taken to be spread evenly over the events.
    pub fn waiting(&self, state: &StorageState) -> (u64, u64) {
        if self.policy == Overflow::Grow {
            let mut backlog = Backlog::default();
            backlog.restart(self.waited_from.unwrap_or(state.end), state);
            let above = state.end.0.saturating_sub(backlog.from.max(state.first).0);
            return (above, backlog.bytes);
        }
        let from = self.backlog.from.max(state.first);
        (state.end.0.saturating_sub(from.0), self.backlog.bytes)
    }

    /// What the storage says of a batch, who does not know what was dropped.
    pub fn verdict(&self, header: &Header, said: Verdict) -> Verdict {
        let first = header.first_sequence;
        match said {
            Verdict::OutOfSequence { expected } | Verdict::Unknown { expected }
                if expected < first && self.follows(header, expected) =>
            {
                Verdict::New
            }
            said => said,
        }
    }

    /// Whether a batch comes next where `expected` was.
    pub fn follows(&self, header: &Header, expected: Sequence) -> bool {
        self.expected(header.producer, header.epoch, expected) == header.first_sequence
    }

    /// The next sequence number of a producer, where the storage expects `next`.
    pub fn expected(&self, producer: ProducerId, epoch: ProducerEpoch, next: Sequence) -> Sequence {
        self.dropped.behind(producer, epoch, next)
    }

    /// What a producer is told whose batch has no room.
    fn refusal(&self, text: String, blocked_retry_ms: u32) -> ErrorReply {
        match self.policy {
            Overflow::Block => {
                ErrorReply::retryable(ErrorCode::StorageFull, blocked_retry_ms, text)
            }
            Overflow::Reject { retry_after_ms } => {
                ErrorReply::retryable(ErrorCode::TopicFull, retry_after_ms, text)
            }
            _ => ErrorReply::fatal(ErrorCode::EventDropped, text),
        }
    }

    /// A batch is admitted, and waits for what is to be stored with it.
    pub fn reserve(&mut self, (events, bytes): (u64, u64)) {
        self.reserved.0 += events;
        self.reserved.1 += bytes;
    }

    /// One that was admitted is appended, or given up.
    pub fn release(&mut self, (events, bytes): (u64, u64)) {
        self.reserved.0 -= events;
        self.reserved.1 -= bytes;
    }

    /// Whether a batch, of so many bytes, has its place beside those that are
    /// admitted and wait to be appended.
    pub fn has_room(&mut self, header: &Header, bytes: u64, state: &StorageState) -> bool {
        self.backlog.advance(state.first);
        let count = state.end.0.saturating_sub(self.backlog.from.0) + self.reserved.0;
        let held = self.backlog.bytes + self.reserved.1;
        // One that is larger than the bound is admitted alone.
        if count == 0 {
            return true;
        }
        let fits = |most: Option<u64>, sum: u64| most.is_none_or(|most| sum <= most);
        fits(self.bound.count, count + header.offset_count())
            && fits(self.bound.bytes, held.saturating_add(bytes))
    }

    /// A batch that was dropped, and comes again because its producer has not
    /// heard of it, is dropped again.
    pub fn check_dropped(&self, header: &Header) -> Result<(), ErrorReply> {
        if !self.dropped.has(header) {
            return Ok(());
        }
        let text = "the events came again after they were dropped".to_owned();
        Err(match self.policy {
            // Their place is gone, whatever the topic has been altered to.
            Overflow::Block => ErrorReply::fatal(ErrorCode::EventDropped, text),
            _ => self.refusal(text, BLOCKED_RETRY_MS),
        })
    }

    /// Decides whether a new batch is admitted. If it is not, and is to wait,
    /// the answer is false.
    pub fn admit(
        &mut self,
        header: &Header,
        bytes: u64,
        store: &Store,
        ctx: &mut Ctx,
    ) -> Result<bool, ErrorReply> {
        if matches!(self.policy, Overflow::Grow | Overflow::DropOldest)
            || self.has_room(header, bytes, &store.state())
        {
            return Ok(true);
        }
        if let Overflow::Sample { one_in } = self.policy {
            self.beyond += 1;
            if (self.beyond - 1).is_multiple_of(u64::from(one_in.get())) {
                return Ok(true);
            }
        }
        match self.policy {
            Overflow::Block => {
                self.report(store, ctx);
                return Ok(false);
            }
            Overflow::Reject { .. } => self.drops.refused += header.offset_count(),
            _ => self.drops.dropped += header.offset_count(),
        }
        self.dropped.note(header);
        self.report(store, ctx);
        Err(self.no_room(store, BLOCKED_RETRY_MS))
    }

    /// Says in the log, now and then, that a partition is full.
    fn report(&mut self, store: &Store, ctx: &mut Ctx) {
        let now = ctx.now.monotonic;
        if self.reported_at.is_none_or(|at| now >= at + REPORT_EVERY) {
            self.reported_at = Some(now);
            ctx.report(self.no_room(store, 0).message);
        }
    }

    /// What a producer is told whose batch has no room.
    pub fn no_room(&self, store: &Store, blocked_retry_ms: u32) -> ErrorReply {
        let (waiting, held) = self.waiting(&store.state());
        let text = format!(
            "{}: {waiting} events of about {held} bytes are not acknowledged, the topic keeps {} (overflow: {})",
            store.name,
            bound_in_words(self.bound),
            self.policy.name()
        );
        self.refusal(text, blocked_retry_ms)
    }
}

fn bound_in_words(bound: Retention) -> String {
    match (bound.bytes, bound.count) {
        (Some(bytes), Some(count)) => format!("{bytes} bytes and {count} events"),
        (Some(bytes), None) => format!("{bytes} bytes"),
        (None, Some(count)) => format!("{count} events"),
        (None, None) => "everything".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Incarnation;

    fn state(first: u64, end: u64, bytes: u64) -> StorageState {
        StorageState {
            incarnation: Incarnation(1),
            first: Offset(first),
            end: Offset(end),
            written: Offset(end),
            synced: Offset(end),
            bytes,
            failure: None,
        }
    }

    #[test]
    fn a_backlog_is_what_was_appended_and_not_passed() {
        let mut backlog = Backlog::default();
        for batch in 1..=1000 {
            backlog.appended(Offset(batch * 10), 100, Some(100_000));
        }
        assert_eq!(backlog.bytes, 100_000);
        assert!(
            backlog.pieces.len() as u64 <= PIECES + 3,
            "{}",
            backlog.pieces.len()
        );
        // Exact to a piece, and never too little.
        for passed in (0..=10_000).step_by(37) {
            backlog.advance(Offset(passed));
            let left = (10_000 - passed) * 10;
            assert!(backlog.bytes >= left, "{} at {passed}", backlog.bytes);
            assert!(backlog.bytes <= left + 100_000 / PIECES + 100);
        }
        backlog.advance(Offset(10_000));
        assert_eq!((backlog.bytes, backlog.pieces.len()), (0, 0));
    }

    #[test]
    fn what_was_there_before_is_taken_to_be_even() {
        let mut backlog = Backlog::default();
        backlog.restart(Offset(600), &state(100, 1100, 5000));
        assert_eq!(backlog.bytes, 2500);
        backlog.advance(Offset(850));
        assert!((1250..=1300).contains(&backlog.bytes), "{}", backlog.bytes);
        backlog.restart(Offset(7), &state(7, 7, 0));
        assert_eq!(backlog.bytes, 0);
        backlog.restart(Offset(0), &state(0, 3, 3));
        backlog.retract(Offset(1));
        assert_eq!(backlog.bytes, 1);
    }
}
