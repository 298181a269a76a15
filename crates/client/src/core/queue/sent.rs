//! What a queue's consumer has asked of the server and has no answer to.

use crate::error::ClientError;
use crate::promise::{Promise, Reply};
use crate::queue::{LeaseSet, SettleBatch};
use std::sync::Arc;
use std::time::Duration;
use wire::message::{Lease, Settle, Settled};
use wire::{ErrorCode, ErrorReply, EventId, Offset};

/// A request of settlements that was sent.
pub(super) struct SentSettle {
    /// Its id on the present connection.
    pub(super) id: Option<u64>,
    pub(super) request: Settle,
    /// Whether nobody hurries for the answer.
    pub(super) is_quiet: bool,
    pub(super) batch: Arc<SettleBatch>,
    /// What of it the server said to be settled when the member came back.
    pub(super) settled: Vec<Lease>,
    pub(super) retry_at: Option<Duration>,
}

/// Leases that are to be extended.
pub(super) struct Extension {
    pub(super) id: Option<u64>,
    pub(super) leases: Vec<Lease>,
    pub(super) sent_at: Duration,
    /// Who asked for it, if it was the program.
    pub(super) promise: Option<Promise>,
}

impl SentSettle {
    pub(super) fn end(self, outcome: Result<Settled, ErrorReply>) {
        self.batch.resolve(match outcome {
            Ok(settled) if settled.expired.is_empty() => Ok(LeaseSet::default()),
            Ok(settled) => Ok(self.refused(Some(settled.expired.into_iter().collect()))),
            Err(error) if error.code == ErrorCode::LeaseExpired => Ok(self.refused(None)),
            Err(error) => Err(ClientError::Server(error)),
        });
    }

    pub(super) fn end_as_expired(self) {
        let message = "the member is none any more";
        self.end(Err(ErrorReply::fatal(ErrorCode::LeaseExpired, message)));
    }

    /// The events of the request that are refused (all, if none are named),
    /// but for those that the server said before to be settled.
    fn refused(&self, named: Option<LeaseSet>) -> LeaseSet {
        let leases = self.request.settlements.iter().map(|one| one.lease);
        let settled: LeaseSet = self.settled.iter().copied().collect();
        if settled.is_empty() {
            return named.unwrap_or_else(|| leases.collect());
        }
        let events = leases.flat_map(|lease| {
            (lease.first.0..lease.end.0).map(move |offset| Lease {
                first: Offset(offset),
                end: Offset(offset).plus(1),
                ..lease
            })
        });
        let is_refused = |event: &Lease| {
            let id = EventId {
                partition: event.partition,
                incarnation: event.incarnation,
                offset: event.first,
            };
            let is_named = |named: &LeaseSet| named.contains(event.lease, id);
            named.as_ref().is_none_or(is_named) && !settled.contains(event.lease, id)
        };
        events.filter(is_refused).collect()
    }
}

impl Extension {
    pub(super) fn end_as_expired(self) {
        let message = "the member is none any more";
        let error = ErrorReply::fatal(ErrorCode::LeaseExpired, message);
        resolve_with(self.promise, Err(ClientError::Server(error)));
    }
}

pub(super) fn resolve_with(promise: Option<Promise>, outcome: Result<Reply, ClientError>) {
    if let Some(promise) = promise {
        promise.resolve(outcome);
    }
}
