//! Taking an event back before its batch is sent.

use super::{EVENT_OVERHEAD_BYTES, Gathering, ProducerShared};
use crate::event::Piece;
use crate::future::{PushFuture, Stored};
use std::sync::Arc;

impl ProducerShared {
    /// Takes an event back, if the core has not taken its batch. False if it
    /// is too late, or was done before.
    pub fn cancel(&self, future: &PushFuture) -> bool {
        let batch = &future.batch;
        // What a producer's threads have is in no batch of a partition yet.
        let Some(partition) = batch.partition() else {
            return false;
        };
        let mut queue = self.lock();
        let Some(lane) = queue.partitions.get_mut(partition.0 as usize) else {
            return false;
        };
        let is_open = |open: &Gathering| Arc::ptr_eq(&open.promise, batch);
        if lane.open.as_ref().is_some_and(is_open) {
            // Nothing is added any more: indices in the batch are given away.
            lane.close_open();
        }
        let Some(at) = lane.closed.iter().position(is_open) else {
            return false;
        };
        let Some(place) = batch.place(future.index) else {
            return false;
        };
        let pieces = lane.closed[at].remove(place);
        let cancelled = batch.cancel(future.index);
        let mut emptied = None;
        if lane.closed[at].builder.event_count() == 0 {
            emptied = lane.closed.remove(at);
        }
        // What is flushed is flushed when its last batch is: an empty one is
        // over when the one before it is.
        let before = match at.checked_sub(1) {
            Some(before) => Some(lane.closed[before].promise.clone()),
            None => lane.last_taken.clone().filter(|_| lane.in_flight > 0),
        };
        self.notify(queue, true);
        // The event's memory is the user's again, whose code this may call.
        drop(pieces);
        if let Some(emptied) = emptied {
            let promise = emptied.promise.clone();
            drop(emptied);
            match before {
                None => promise.resolve(Ok(Stored::nowhere())),
                Some(before) => {
                    let outcome = before.clone();
                    before.on_outcome(Box::new(move || {
                        let outcome = outcome.outcome().cloned();
                        promise.resolve(outcome.unwrap_or(Ok(Stored::nowhere())));
                    }));
                }
            }
        }
        batch.notify_cancelled(cancelled);
        true
    }
}

impl Gathering {
    /// Removes an event; its large data is returned.
    fn remove(&mut self, place: u32) -> Vec<Piece> {
        let builder = std::mem::take(&mut self.builder);
        let bytes_before = builder.bytes();
        let external;
        (self.builder, external) = builder.without(place);
        let bytes = (bytes_before - self.builder.bytes()) as u64;
        self.space += bytes + (external.end - external.start) + EVENT_OVERHEAD_BYTES;
        let mut at = 0;
        let removed = self.pieces.extract_if(.., |piece| {
            let start = at;
            at += piece.bytes.len() as u64;
            // A piece is of one event, and none is empty.
            external.contains(&start)
        });
        removed.collect()
    }
}
