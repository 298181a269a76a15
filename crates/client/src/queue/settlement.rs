//! What becomes of settlements: one shared promise a request, an event's place in it.

use super::LeaseSet;
use crate::error::ClientError;
use crate::mailbox::Mailbox;
use crate::watch::{call_back, call_here};
use memory::{Deadline, Signal};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use wire::{ErrorCode, ErrorReply, EventId, LeaseId};

/// What all settlements of one request share.
pub(crate) struct SettleBatch {
    /// Guards the outcome and who is to be told; `done` is signalled after it is set.
    state: Mutex<State>,
    done: Signal,
    generation: u64,
    mailbox: Weak<Mailbox>,
}

#[derive(Default)]
struct State {
    /// What of it had expired, or why nothing is known.
    outcome: Option<Result<LeaseSet, ClientError>>,
    wakers: Vec<Waker>,
    callbacks: Vec<Box<dyn FnOnce() + Send>>,
}

impl SettleBatch {
    pub fn new(mailbox: &Arc<Mailbox>) -> Arc<Self> {
        Self::of(Arc::downgrade(mailbox))
    }

    fn of(mailbox: Weak<Mailbox>) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            done: Signal::new(),
            generation: memory::fork::generation(),
            mailbox,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics here")
    }

    /// Tells all settlements of the request; a second outcome is dropped.
    pub fn resolve(&self, outcome: Result<LeaseSet, ClientError>) {
        let mut state = self.lock();
        if state.outcome.is_some() {
            return;
        }
        state.outcome = Some(outcome);
        let (wakers, callbacks) = (
            std::mem::take(&mut state.wakers),
            std::mem::take(&mut state.callbacks),
        );
        drop(state);
        self.done.tell();
        if let Some(mailbox) = self.mailbox.upgrade() {
            mailbox.nudge();
        }
        for waker in wakers {
            waker.wake();
        }
        for callback in callbacks {
            call_here(callback);
        }
    }
}

/// What becomes of one settlement: it resolves when that is durable. Cheap to clone.
///
/// The error is [`ErrorCode::LeaseExpired`] when the event was not this
/// consumer's any more: it is, or will be, handled by somebody else.
#[derive(Clone)]
pub struct SettleFuture {
    batch: Arc<SettleBatch>,
    id: EventId,
    lease: LeaseId,
    /// The consumer and its topic, for errors.
    queue: Arc<str>,
}

impl SettleFuture {
    pub(super) fn new(
        batch: Arc<SettleBatch>,
        id: EventId,
        lease: LeaseId,
        queue: Arc<str>,
    ) -> Self {
        Self {
            batch,
            id,
            lease,
            queue,
        }
    }

    /// One of an event that is not the consumer's any more.
    pub(super) fn expired(id: EventId, lease: LeaseId, queue: Arc<str>) -> Self {
        let error = lease_expired(&queue, id, lease);
        Self::failed(error, id, lease, queue)
    }

    /// One of an event that is the parent's of this forked process.
    pub(super) fn foreign(id: EventId, lease: LeaseId, queue: Arc<str>) -> Self {
        Self::failed(ClientError::Forked, id, lease, queue)
    }

    fn failed(error: ClientError, id: EventId, lease: LeaseId, queue: Arc<str>) -> Self {
        let batch = SettleBatch::of(Weak::new());
        batch.resolve(Err(error));
        Self::new(batch, id, lease, queue)
    }

    fn lease_expired(&self) -> ClientError {
        lease_expired(&self.queue, self.id, self.lease)
    }

    fn is_foreign(&self) -> bool {
        self.batch.generation != memory::fork::generation()
    }

    fn result(&self, state: &State) -> Option<Result<(), ClientError>> {
        match state.outcome.as_ref()? {
            Err(error) => Some(Err(error.clone())),
            Ok(expired) => Some(match expired.contains(self.lease, self.id) {
                true => Err(self.lease_expired()),
                false => Ok(()),
            }),
        }
    }

    /// The result, if it is there.
    pub fn try_get(&self) -> Option<Result<(), ClientError>> {
        if self.is_foreign() {
            return Some(Err(ClientError::Forked));
        }
        self.result(&self.batch.lock())
    }

    /// Waits for the result; `None` waits for ever.
    ///
    /// # Errors
    /// [`ClientError::Timeout`], after which one may wait again;
    /// [`ClientError::Server`] with [`ErrorCode::LeaseExpired`].
    pub fn wait(&self, timeout: Option<Duration>) -> Result<(), ClientError> {
        if self.is_foreign() {
            return Err(ClientError::Forked);
        }
        let deadline = Deadline::within(timeout);
        let batch = &self.batch;
        let mailbox = batch.mailbox.upgrade();
        let is_there = || batch.lock().outcome.is_some();
        let driven = mailbox.and_then(|mailbox| mailbox.drive(deadline, is_there));
        if driven.is_some() {
            let result = self.result(&batch.lock());
            return result.unwrap_or_else(|| Err(self.timeout()));
        }
        let mut state = batch.lock();
        loop {
            if let Some(result) = self.result(&state) {
                return result;
            }
            state = match batch.done.wait(state, deadline) {
                Ok(state) => state,
                Err(_) => return Err(self.timeout()),
            };
        }
    }

    fn timeout(&self) -> ClientError {
        let mailbox = self.batch.mailbox.upgrade();
        let liveness = mailbox.map(|mailbox| mailbox.liveness.describe_now());
        ClientError::Timeout {
            what: format!(
                "the settlement of event {} by {}; {}",
                self.id,
                self.queue,
                liveness.unwrap_or_default()
            ),
        }
    }

    /// Calls `callback` once when the result is there, on the runtime's thread.
    pub fn on_done(&self, callback: Box<dyn FnOnce() + Send>) {
        self.on_done_here(Box::new(move || call_back(callback)));
    }

    /// [`SettleFuture::on_done`] for a callback of ours, on whichever thread tells.
    pub(crate) fn on_done_here(&self, callback: Box<dyn FnOnce() + Send>) {
        if self.is_foreign() {
            return callback();
        }
        let mut state = self.batch.lock();
        if state.outcome.is_some() {
            drop(state);
            callback();
        } else {
            state.callbacks.push(callback);
        }
    }
}

impl Future for SettleFuture {
    type Output = Result<(), ClientError>;

    fn poll(self: std::pin::Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.is_foreign() {
            return Poll::Ready(Err(ClientError::Forked));
        }
        let mut state = self.batch.lock();
        if let Some(result) = self.result(&state) {
            return Poll::Ready(result);
        }
        let is_known = |waker: &Waker| waker.will_wake(context.waker());
        if !state.wakers.iter().any(is_known) {
            state.wakers.push(context.waker().clone());
        }
        Poll::Pending
    }
}

impl fmt::Debug for SettleFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "SettleFuture({} under {} by {})",
            self.id, self.lease, self.queue
        )
    }
}

/// The error of an event that is not the consumer's any more.
pub(super) fn lease_expired(queue: &str, id: EventId, lease: LeaseId) -> ClientError {
    ClientError::Server(ErrorReply::fatal(
        ErrorCode::LeaseExpired,
        format!("event {id} is not leased to {queue} any more under lease {lease}"),
    ))
}
