//! Settlements: how events are settled, what goes in one request, and what
//! becomes of it: one shared promise a request, an event's place in it.

use super::LeaseSet;
use super::lease_set::is_next;
use crate::callbacks::{Callback, call_back};
use crate::completion::Completion;
use crate::error::ClientError;
use crate::mailbox::{Command, Mailbox};
use crate::topic_state::TopicState;
use memory::Deadline;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;
use wire::message::{Lease, SettleAs, Settlement};
use wire::{ErrorCode, ErrorReply, EventId, LeaseId};

/// The most of a reason that travels.
const REASON_BYTES_MAX: usize = 1024;
/// A request is closed at so many bytes of settlements: it is to fit in a head.
const REQUEST_BYTES_MAX: usize = 256 << 10;
/// What a settlement takes of it, apart from its reason.
const SETTLEMENT_BYTES: usize = 64;

/// How an event is settled.
#[derive(Debug, Clone, Copy)]
pub(crate) struct How<'a> {
    pub how: SettleAs,
    pub delay_ms: u32,
    pub reason: &'a str,
    /// Whether nobody hurries for it.
    pub is_quiet: bool,
    /// Whether it waits for nothing to go with.
    pub is_urgent: bool,
}

impl<'a> How<'a> {
    pub fn acknowledge() -> Self {
        Self::of(SettleAs::Acknowledge, "")
    }

    /// Handled, and nobody hurries for that to be durable.
    pub fn acknowledge_quietly() -> Self {
        Self {
            is_quiet: true,
            ..Self::acknowledge()
        }
    }

    /// The same, at once: somebody waits for it.
    pub fn urgently(self) -> Self {
        Self {
            is_urgent: true,
            ..self
        }
    }

    pub fn give_back() -> Self {
        Self::of(SettleAs::GiveBack, "")
    }

    pub fn reject(reason: &'a str) -> Self {
        Self::of(SettleAs::Reject, reason)
    }

    pub fn return_after(delay: Duration, reason: &'a str) -> Self {
        Self {
            delay_ms: delay.as_millis().min(u128::from(u32::MAX)) as u32,
            ..Self::of(SettleAs::Return, reason)
        }
    }

    fn of(how: SettleAs, reason: &'a str) -> Self {
        Self {
            how,
            delay_ms: 0,
            reason: clip(reason),
            is_quiet: false,
            is_urgent: false,
        }
    }

    /// What it takes of a request.
    fn bytes(&self) -> usize {
        SETTLEMENT_BYTES + self.reason.len()
    }
}

/// Settlements that go in one request.
pub(crate) struct Gathered {
    pub settlements: Vec<Settlement>,
    pub batch: Arc<SettleBatch>,
    /// Whether nobody hurries for it to be durable.
    pub is_quiet: bool,
    /// How long the program had events in hand since the request before.
    pub worked_us: u32,
    bytes: usize,
}

impl Gathered {
    pub fn new(
        mailbox: &Arc<Mailbox>,
        topic: &Arc<TopicState>,
        (key, queue): (u64, &Arc<str>),
    ) -> Self {
        Self {
            settlements: Vec::new(),
            batch: SettleBatch::of(Arc::downgrade(mailbox), Some(topic.clone()), (key, queue)),
            is_quiet: true,
            worked_us: 0,
            bytes: 0,
        }
    }

    /// Whether another settlement would be too much for one request.
    pub fn is_full(&self, how: &How<'_>) -> bool {
        self.bytes + how.bytes() > REQUEST_BYTES_MAX
    }

    /// Adds the settlement of what is under a lease; to the last one, if it
    /// goes on where that ends.
    pub fn push(&mut self, lease: Lease, how: How<'_>) {
        let settlement = Settlement {
            lease,
            how: how.how,
            delay_ms: how.delay_ms,
            reason: how.reason.to_owned(),
        };
        self.is_quiet &= how.is_quiet;
        match self.settlements.last_mut() {
            Some(last) if continues(last, &settlement) => last.lease.end = lease.end,
            _ => {
                self.bytes += how.bytes();
                self.settlements.push(settlement);
            }
        }
    }

    /// Joins into ranges what was not settled in order.
    pub fn join(&mut self) {
        join(&mut self.settlements);
    }
}

/// What all settlements of one request share.
pub(crate) struct SettleBatch {
    completion: Completion<State>,
    mailbox: Weak<Mailbox>,
    /// Where it is sent to; nothing for one that is never sent.
    topic: Option<Arc<TopicState>>,
    /// The consumer's, to the core.
    key: u64,
    /// The core has it, or was asked to send it. Nothing is ordered by it.
    is_sent: AtomicBool,
    /// The consumer and its topic, for errors.
    queue: Arc<str>,
}

#[derive(Default)]
struct State {
    /// What of it had expired, or why nothing is known.
    outcome: Option<Result<LeaseSet, ClientError>>,
}

impl State {
    fn is_there(&self) -> bool {
        self.outcome.is_some()
    }
}

impl SettleBatch {
    fn of(
        mailbox: Weak<Mailbox>,
        topic: Option<Arc<TopicState>>,
        (key, queue): (u64, &Arc<str>),
    ) -> Arc<Self> {
        Arc::new(Self {
            completion: Completion::new(State::default()),
            mailbox,
            topic,
            key,
            is_sent: AtomicBool::new(false),
            queue: queue.clone(),
        })
    }

    /// It is on its way: nobody has to ask for that.
    pub fn note_sent(&self) {
        self.is_sent.store(true, Ordering::Relaxed);
    }

    /// Somebody waits for it: if it was not sent, the core is notified.
    fn hurry(&self, notify: impl FnOnce(&Mailbox)) {
        if !self.is_sent.load(Ordering::Relaxed)
            && !self.is_sent.swap(true, Ordering::Relaxed)
            && let Some(mailbox) = self.mailbox.upgrade()
        {
            notify(&mailbox);
        }
    }

    /// The same, for who may send it himself.
    fn send_inline(&self) {
        self.hurry(|mailbox| mailbox.send_settlements(self.key));
    }

    /// Resolves all settlements of the request; a second outcome is dropped.
    pub fn resolve(&self, outcome: Result<LeaseSet, ClientError>) {
        let mut state = self.completion.lock();
        if state.is_there() {
            return;
        }
        state.outcome = Some(outcome);
        let waiters = state.take_waiters();
        drop(state);
        let mailbox = self.mailbox.upgrade();
        self.completion.notify(waiters, mailbox.as_deref());
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
}

impl SettleFuture {
    pub(super) fn new(batch: Arc<SettleBatch>, id: EventId, lease: LeaseId) -> Self {
        Self { batch, id, lease }
    }

    /// One of an event that is not the consumer's any more.
    pub(super) fn expired(id: EventId, lease: LeaseId, queue: &Arc<str>) -> Self {
        let error = lease_expired(queue, id, lease);
        Self::failed(error, id, lease, queue)
    }

    /// One of an event that is the parent's of this forked process.
    pub(super) fn foreign(id: EventId, lease: LeaseId, queue: &Arc<str>) -> Self {
        Self::failed(ClientError::Forked, id, lease, queue)
    }

    fn failed(error: ClientError, id: EventId, lease: LeaseId, queue: &Arc<str>) -> Self {
        let batch = SettleBatch::of(Weak::new(), None, (0, queue));
        batch.resolve(Err(error));
        Self::new(batch, id, lease)
    }

    fn lease_expired(&self) -> ClientError {
        lease_expired(&self.batch.queue, self.id, self.lease)
    }

    fn is_foreign(&self) -> bool {
        self.batch.completion.is_foreign()
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
        self.result(&self.batch.completion.lock())
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
        let looks = || {
            // The driving thread takes it from there.
            batch.hurry(|mailbox| mailbox.send(Command::Settle(batch.key)));
            batch.completion.lock().is_there()
        };
        batch
            .completion
            .wait(deadline, mailbox.as_deref(), looks, State::is_there);
        let result = self.result(&batch.completion.lock());
        result.unwrap_or_else(|| Err(self.timeout()))
    }

    fn timeout(&self) -> ClientError {
        let mailbox = self.batch.mailbox.upgrade();
        let node = mailbox.zip(self.batch.topic.as_ref());
        let liveness = node.map(|(mailbox, topic)| topic.liveness(&mailbox).describe_now());
        ClientError::Timeout {
            what: format!(
                "the settlement of event {} by {}; {}",
                self.id,
                self.batch.queue,
                liveness.unwrap_or_default()
            ),
        }
    }

    /// Calls `callback` once when the result is there, on the runtime's thread.
    pub fn on_done(&self, callback: Box<dyn FnOnce() + Send>) {
        self.on_done_here(Box::new(move || call_back(callback)));
        self.batch.send_inline();
    }

    /// [`SettleFuture::on_done`] for a callback of ours, on whichever thread resolves it.
    pub(crate) fn on_done_here(&self, callback: Callback) {
        let completion = &self.batch.completion;
        if let Err(callback) = completion.on_done(0, callback, State::is_there) {
            callback();
        }
    }
}

impl Future for SettleFuture {
    type Output = Result<(), ClientError>;

    fn poll(self: std::pin::Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.is_foreign() {
            return Poll::Ready(Err(ClientError::Forked));
        }
        let completion = &self.batch.completion;
        if completion.poll(context, State::is_there).is_pending() {
            self.batch.send_inline();
            return Poll::Pending;
        }
        let result = self.result(&completion.lock());
        Poll::Ready(result.expect("polled to be there"))
    }
}

impl fmt::Debug for SettleFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "SettleFuture({} under {} by {})",
            self.id, self.lease, self.batch.queue
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

fn continues(last: &Settlement, next: &Settlement) -> bool {
    is_next(&last.lease, &next.lease)
        && last.how == next.how
        && last.delay_ms == next.delay_ms
        && is_same(&last.reason, &next.reason)
}

/// Whether two reasons are the same. Nearly all are empty, and to compare no
/// bytes by `memcmp` costs 300 ns on processors that read them under a mask:
/// their address is none, and the fault has to be suppressed.
fn is_same(last: &str, next: &str) -> bool {
    last.len() == next.len() && (last.is_empty() || last == next)
}

/// Puts settlements of different events in order, and joins what is one range.
fn join(settlements: &mut Vec<Settlement>) {
    let place = |one: &Settlement| (one.lease.partition, one.lease.incarnation, one.lease.first);
    if !settlements.is_sorted_by_key(place) {
        settlements.sort_by_key(place);
    }
    settlements.dedup_by(|next, last| {
        let joined = continues(last, next);
        if joined {
            last.lease.end = next.lease.end;
        }
        joined
    });
}

fn clip(reason: &str) -> &str {
    let mut end = reason.len().min(REASON_BYTES_MAX);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    &reason[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::{Incarnation, Offset, PartitionIndex};

    fn settlement(offset: u64, lease: u64, how: SettleAs) -> Settlement {
        Settlement {
            lease: Lease {
                partition: PartitionIndex(0),
                incarnation: Incarnation(1),
                first: Offset(offset),
                end: Offset(offset + 1),
                lease: LeaseId(lease),
                deliveries: 1,
            },
            how,
            delay_ms: 0,
            reason: String::new(),
        }
    }

    #[test]
    fn settlements_in_any_order_become_ranges_of_one_lease_and_one_kind() {
        use SettleAs::*;
        let mut settlements: Vec<_> = [4, 2, 3, 1, 0]
            .map(|at| settlement(at, 7, Acknowledge))
            .into();
        settlements.push(settlement(5, 8, Acknowledge));
        settlements.push(settlement(6, 8, Reject));
        settlements.push(settlement(8, 8, Reject));
        join(&mut settlements);
        let ranges: Vec<_> = settlements
            .iter()
            .map(|one| (one.lease.first.0, one.lease.end.0, one.how))
            .collect();
        assert_eq!(
            ranges,
            [
                (0, 5, Acknowledge),
                (5, 6, Acknowledge),
                (6, 7, Reject),
                (8, 9, Reject)
            ]
        );
    }

    #[test]
    fn a_long_reason_is_cut_between_characters() {
        let reason = "é".repeat(600);
        assert_eq!(clip(&reason).len(), 1024);
        assert_eq!(clip("short"), "short");
    }
}
