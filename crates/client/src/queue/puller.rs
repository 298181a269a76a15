//! The callers' side of a queue's consumer: arrivals become verified events
//! that are still this member's.

use super::feed::QueueShared;
use super::held::Held;
use super::settlement::How;
use crate::data_reader::{DataReader, Ready};
use crate::error::ClientError;
use crate::event::{ConsumedEvent, DeliveredBatch};
use crate::read_ahead::{Next, ReadAhead, Waiting};
use std::sync::Arc;
use std::time::Duration;
use wire::{EventId, Offset};

/// So many events are handed out before the core can have its turn.
const AT_ONCE: usize = 64;

/// What a queue's consumer hands out next. One thread at a time uses it.
pub(super) struct QueuePuller {
    shared: Arc<QueueShared>,
    ahead: ReadAhead,
}

impl QueuePuller {
    pub fn new(shared: Arc<QueueShared>, reader: DataReader) -> Self {
        Self {
            shared,
            ahead: ReadAhead::new(reader),
        }
    }

    /// Hands out events of the batch that is begun, at most so many: all at
    /// once, as far as the core may be kept waiting.
    pub fn ready(&mut self, max: usize, mut hand_out: impl FnMut((ConsumedEvent, Held))) {
        let mut seeing = self.shared.see();
        for _ in 0..max.min(AT_ONCE) {
            let Some(event) = self.ahead.ready() else {
                return;
            };
            if let Some(held) = seeing.see(event.id()) {
                hand_out((event, held));
            }
        }
    }

    /// The next event, if it is there, and the lease that it is under.
    pub fn next(&mut self) -> Result<Option<(ConsumedEvent, Held)>, ClientError> {
        loop {
            let shared = &self.shared;
            match self.ahead.next(|_| take(shared))? {
                Next::Event(event) => {
                    if let Some(held) = shared.see().see(event.id()) {
                        return Ok(Some((event, held)));
                    }
                }
                Next::Nothing => {
                    shared.see_none();
                    return Ok(None);
                }
                // What became of them, the server tells.
                Next::Gone(ready) => shared.settle_unseen(rest(&ready), How::give_back()),
                Next::Damaged(ready) => {
                    let how = How::reject("the event's data is damaged where it is stored");
                    shared.settle_unseen(rest(&ready), how);
                }
            }
        }
    }
}

/// The next batch that has arrived, verified.
fn take(shared: &QueueShared) -> Result<Option<Waiting>, ClientError> {
    let Some(leased) = shared.take() else {
        return Ok(None);
    };
    let batch = DeliveredBatch::read(
        &shared.topic,
        leased.partition,
        leased.incarnation,
        leased.bytes,
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
            shared.settle_unseen(ids, How::return_after(Duration::ZERO, &reason));
            Err(error)
        }
    }
}

/// The events of a batch that were not handed out.
fn rest(ready: &Ready) -> impl Iterator<Item = EventId> {
    (ready.next..ready.end).map(|index| ready.batch.id(index))
}
