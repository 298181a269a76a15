//! Producers whose batches wait for room, where the topic says that producers are to wait:
//! each batch is admitted as soon as there is room, one of each producer in turn. External
//! data is not fetched before that.

use super::incoming::{ValidBatch, Wanted};
use crate::ctx::Ctx;
use crate::ids::{LinkId, StorageId};
use crate::timers::Timer;
use std::collections::VecDeque;
use std::time::Duration;
use wire::ProducerId;

/// A batch waits for so long at most, then its producer gets the reason, and asks
/// again: it can report it should its patience end.
const REPORT_AFTER: Duration = Duration::from_secs(5);
/// What waits may be this part of a connection's credit: the rest is
/// for producers of other topics.
const CREDIT_SHARE: u64 = 2;

/// A batch that waits for room.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub wanted: Wanted,
    /// When its producer gets the reason why it still waits.
    pub report_at: Duration,
}

/// Producers that have batches waiting, in the order in which these are admitted.
#[derive(Debug, Default)]
pub(crate) struct WaitQueue {
    pub producers: VecDeque<ProducerId>,
    timer_at: Option<Duration>,
}

impl WaitQueue {
    pub fn is_empty(&self) -> bool {
        self.producers.is_empty()
    }

    /// Whether so many bytes more may wait of a connection. One batch always may.
    pub fn takes(link: LinkId, bytes: u64, credit: u64, ctx: &Ctx) -> bool {
        let held = ctx.waiting_bytes.get(&link).copied().unwrap_or(0);
        held == 0 || held.saturating_add(bytes) <= credit / CREDIT_SHARE
    }

    /// A batch of the connection waits from now on.
    pub fn enter(
        &mut self,
        storage: StorageId,
        link: LinkId,
        batch: &ValidBatch,
        wanted: Wanted,
        ctx: &mut Ctx,
    ) -> Waiting {
        *ctx.waiting_bytes.entry(link).or_default() += batch.header.batch_bytes();
        let report_at = ctx.now.monotonic + REPORT_AFTER;
        self.arm(storage, report_at, ctx);
        Waiting { wanted, report_at }
    }

    /// A batch of the connection waits no more.
    pub fn leave(link: LinkId, batch: &ValidBatch, ctx: &mut Ctx) {
        if let Some(held) = ctx.waiting_bytes.get_mut(&link) {
            *held = held.saturating_sub(batch.header.batch_bytes());
            if *held == 0 {
                ctx.waiting_bytes.remove(&link);
            }
        }
    }

    /// The timer that was armed has come.
    pub fn timer_came(&mut self) {
        self.timer_at = None;
    }

    pub fn arm(&mut self, storage: StorageId, at: Duration, ctx: &mut Ctx) {
        if self.timer_at.is_none_or(|armed| at < armed) {
            self.timer_at = Some(at);
            ctx.timers.insert(at, Timer::Waiting(storage));
        }
    }
}
