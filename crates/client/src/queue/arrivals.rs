//! What a pull from a queue takes of what has arrived: verified events that are
//! still this member's.

use super::held::Held;
use super::leases::QueueFeed;
use super::settlement::How;
use crate::data_reader::Ready;
use crate::error::ClientError;
use crate::event::{ConsumedEvent, DeliveredBatch};
use crate::feed::Wanted;
use crate::fetched::Metadata;
use crate::puller::{Arrivals, ReadAhead, Waiting};
use std::sync::Arc;
use std::time::Duration;
use wire::{EventId, Offset};

/// So many events are handed out before the core can have its turn.
const AT_ONCE: usize = 64;

/// What has arrived under leases.
pub(crate) struct Leased {
    feed: Arc<QueueFeed>,
}

impl Leased {
    pub fn new(feed: Arc<QueueFeed>) -> Self {
        Self { feed }
    }
}

impl Arrivals for Leased {
    /// An event, and the lease that it is under.
    type Taken = (ConsumedEvent, Held);

    fn take(&mut self, _wanted: Wanted) -> Result<Option<Waiting>, ClientError> {
        take(&self.feed)
    }

    fn grant(&mut self, event: ConsumedEvent) -> Option<(ConsumedEvent, Held)> {
        let held = self.feed.see().see(event.id())?;
        Some((event, held))
    }

    fn grant_ready(
        &mut self,
        ahead: &mut ReadAhead,
        max: usize,
        mut hand_out: impl FnMut((ConsumedEvent, Held)),
    ) {
        let mut seeing = self.feed.see();
        for _ in 0..max.min(AT_ONCE) {
            let Some(event) = ahead.ready() else {
                return;
            };
            if let Some(held) = seeing.see(event.id()) {
                hand_out((event, held));
            }
        }
    }

    fn found_none(&mut self) {
        self.feed.see_none();
    }

    fn gone(&mut self, ready: &Ready, _ahead: &mut ReadAhead) {
        // What became of them, the server reports.
        self.feed.settle_unseen(rest(ready), How::give_back());
    }

    fn damaged(&mut self, ready: &Ready) {
        let how = How::reject("the event's data is damaged where it is stored");
        self.feed.settle_unseen(rest(ready), how);
    }
}

/// The next batch that has arrived, verified.
fn take(feed: &QueueFeed) -> Result<Option<Waiting>, ClientError> {
    let Some(leased) = feed.take() else {
        return Ok(None);
    };
    let batch = DeliveredBatch::read(
        &feed.topic,
        leased.partition,
        leased.incarnation,
        leased.bytes,
        Metadata::Deserialized,
    );
    match batch {
        Ok(batch) => Ok(Some(Waiting::new(batch, Offset(0)))),
        Err(error) => {
            // It comes again; what nobody can read ends as dead letters.
            let reason = error.to_string();
            let ids = leased.leases.iter().flat_map(|lease| {
                let offsets = lease.first.0..lease.end.0;
                offsets.map(|offset| EventId {
                    partition: lease.partition,
                    incarnation: lease.incarnation,
                    offset: Offset(offset),
                })
            });
            feed.settle_unseen(ids, How::return_after(Duration::ZERO, &reason));
            Err(error)
        }
    }
}

/// The events of a batch that were not handed out.
fn rest(ready: &Ready) -> impl Iterator<Item = EventId> {
    (ready.next..ready.end).map(|index| ready.batch.id(index))
}
