//! An event of a queue, in the hands of the program that is to handle it.

use super::held::Held;
use super::leases::QueueFeed;
use super::settlement::{How, SettleFuture, lease_expired};
use crate::error::ClientError;
use crate::event::{ConsumedEvent, ReplyData};
use crate::faults::{Fault, planted};
use crate::mailbox::Command;
use crate::promise::{Answered, Pending, Promise, Reply, What};
use crate::replier::Replier;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use wire::codec::Codec;
use wire::message::LeasesExtended;
use wire::{EventId, LeaseId};

/// Replies to larger requests are settled at once.
const QUIET_BYTES_MAX: u64 = 64 << 10;

/// An event that is this consumer's alone while its lease lasts. It is to be
/// settled once: acknowledged, returned, or rejected. One that is dropped
/// without is returned at once, and the delivery counts.
pub struct QueueEvent {
    event: ConsumedEvent,
    feed: Arc<QueueFeed>,
    /// The consumer's: an event that outlives it is not to wait, when it is
    /// dropped, for replies that are on their way.
    replier: Weak<Replier>,
    lease: LeaseId,
    deliveries: u32,
    /// Only ever set; nothing is ordered by it.
    is_settled: AtomicBool,
    generation: u64,
}

impl QueueEvent {
    pub(super) fn new(
        event: ConsumedEvent,
        feed: Arc<QueueFeed>,
        replier: Weak<Replier>,
        held: Held,
    ) -> Self {
        Self {
            event,
            feed,
            replier,
            lease: held.lease,
            deliveries: held.deliveries,
            is_settled: AtomicBool::new(false),
            generation: memory::fork::generation(),
        }
    }

    /// How often the event was delivered, with this time. A crash of the
    /// server may lose the count of deliveries that were under way.
    pub fn deliveries(&self) -> u32 {
        self.deliveries
    }

    /// The lease that the event is under.
    pub fn lease(&self) -> LeaseId {
        self.lease
    }

    /// The event is handled: once this is durable it is never delivered again.
    ///
    /// Never blocks. What is settled at about the same time travels together.
    pub fn acknowledge(&self) -> SettleFuture {
        self.settle(How::acknowledge())
    }

    /// The event is to be delivered again after `delay`, here or elsewhere.
    /// Once it was delivered as often as the queue allows, it goes to the
    /// dead-letter topic instead.
    pub fn return_to_queue(&self, delay: Duration) -> SettleFuture {
        self.settle(How::return_after(delay, ""))
    }

    /// As [`QueueEvent::return_to_queue`], and says why, for the dead letter
    /// that the event may become. The first 1024 bytes of `reason` are kept.
    pub fn return_because(&self, delay: Duration, reason: &str) -> SettleFuture {
        self.settle(How::return_after(delay, reason))
    }

    /// The event cannot be handled: it goes to the dead-letter topic. The
    /// first 1024 bytes of `reason` are kept.
    pub fn reject(&self, reason: &str) -> SettleFuture {
        self.settle(How::reject(reason))
    }

    /// Replies to a request, and acknowledges it when the reply is stored: then
    /// the answer is there, the reply's id in `TOPIC.replies`. The first reply
    /// of a consumer waits for the producer that writes them, and any one for
    /// space, while too much is not stored yet. A callback cannot wait: see
    /// [`QueueEvent::begin_replying`].
    ///
    /// # Errors
    /// [`ClientError::Invalid`] if the event is no request, and those of
    /// [`crate::Producer::push`]: the event is not settled then. The answer is
    /// an error if the reply was not stored (the event is returned), or the
    /// lease had expired.
    pub fn reply<'a>(
        &self,
        metadata: &[u8],
        data: impl Into<ReplyData<'a>>,
    ) -> Result<Pending<EventId>, ClientError> {
        self.push_reply(metadata, data.into(), true)
    }

    /// [`QueueEvent::reply`], which does not wait for space.
    ///
    /// # Errors
    /// [`ClientError::Budget`] where that would.
    pub fn try_reply<'a>(
        &self,
        metadata: &[u8],
        data: impl Into<ReplyData<'a>>,
    ) -> Result<Pending<EventId>, ClientError> {
        self.push_reply(metadata, data.into(), false)
    }

    /// Has made what the first reply waits for: gives a future of when that is
    /// over, or `None` if no reply waits for it any more.
    pub fn begin_replying(&self) -> Option<Answered> {
        self.replier.upgrade()?.begin()
    }

    fn push_reply(
        &self,
        metadata: &[u8],
        data: ReplyData<'_>,
        waits: bool,
    ) -> Result<Pending<EventId>, ClientError> {
        if self.is_foreign() {
            return Err(ClientError::Forked);
        }
        let replier = self.replier.upgrade().ok_or(ClientError::Closed)?;
        // A large one may be all that the member is given at once.
        let is_small = self.event.data_bytes_total() <= QUIET_BYTES_MAX;
        let is_quiet = is_small && self.feed.has_plenty() && !replier.is_awaited();
        let stored = replier.reply(&self.event, metadata, data, waits, is_quiet)?;
        self.is_settled.store(true, Ordering::Relaxed);
        let feed = self.feed.clone();
        let (id, lease) = (self.event.id(), self.lease);
        let promise = Promise::new(&feed.mailbox);
        promise.note_waiting(replier.awaited());
        let what = What::Reply(id, feed.title.clone());
        let timeout = feed.options.session_timeout.saturating_mul(2);
        feed.begin_reply();
        if planted(Fault::SettleEarly) {
            feed.settle(id, lease, How::acknowledge().urgently());
        }
        let (outcome, reply) = (stored.clone(), stored.clone());
        let answer = Pending::new(promise.clone(), what, timeout, move |_| {
            reply.try_get().unwrap_or(Err(ClientError::Closed))
        });
        // Ours: nobody's thread is woken for it.
        stored.on_done_here(Box::new(move || {
            let outcome = outcome.try_get().unwrap_or(Err(ClientError::Closed));
            if let Err(error) = outcome {
                let reason = error.to_string();
                feed.settle(
                    id,
                    lease,
                    How::return_after(Duration::ZERO, &reason).urgently(),
                );
                feed.end_reply();
                return promise.resolve(Err(error));
            }
            let how = match is_quiet && feed.has_plenty() {
                true => How::acknowledge_quietly(),
                false => How::acknowledge().urgently(),
            };
            let settled = feed.settle(id, lease, how);
            feed.end_reply();
            let result = settled.clone();
            settled.on_done_here(Box::new(move || {
                let result = result.try_get().unwrap_or(Err(ClientError::Closed));
                promise.resolve(result.map(|()| Reply::default()));
            }));
        }));
        Ok(answer)
    }

    fn settle(&self, how: How<'_>) -> SettleFuture {
        let id = self.event.id();
        self.is_settled.store(true, Ordering::Relaxed);
        match self.is_foreign() {
            true => SettleFuture::foreign(id, self.lease, &self.feed.title),
            false => self.feed.settle(id, self.lease, how),
        }
    }

    /// Lets the lease last as long as a new one, from now. Consumers with
    /// [`super::QueueConsumerOptions::renew`] do so by themselves.
    ///
    /// # Errors
    /// [`ClientError::Server`] with [`wire::ErrorCode::LeaseExpired`].
    pub fn extend(&self) -> Pending<()> {
        if self.is_foreign() {
            return Pending::failed(ClientError::Forked);
        }
        let feed = &self.feed;
        let (id, lease) = (self.event.id(), self.lease);
        let Some(held) = feed.lease_of(id, lease) else {
            return Pending::failed(lease_expired(&feed.title, id, lease));
        };
        let promise = Promise::new(&feed.mailbox);
        feed.mailbox.send(Command::ExtendLease {
            queue: feed.key,
            lease: held,
            promise: promise.clone(),
        });
        let title = feed.title.clone();
        let what = format!("the lease of event {id} of {title} to be extended");
        let timeout = feed.options.session_timeout;
        Pending::new(promise, what, timeout, move |reply| {
            let extended = LeasesExtended::from_bytes("leases extended", &reply.head)
                .map_err(ClientError::damaged)?;
            match extended.expired.is_empty() {
                true => Ok(()),
                false => Err(lease_expired(&title, id, lease)),
            }
        })
    }

    /// Whether it was settled through this handle.
    pub fn is_settled(&self) -> bool {
        self.is_settled.load(Ordering::Relaxed)
    }

    fn is_foreign(&self) -> bool {
        self.generation != memory::fork::generation()
    }
}

impl Deref for QueueEvent {
    type Target = ConsumedEvent;
    fn deref(&self) -> &ConsumedEvent {
        &self.event
    }
}

impl DerefMut for QueueEvent {
    fn deref_mut(&mut self) -> &mut ConsumedEvent {
        &mut self.event
    }
}

impl Drop for QueueEvent {
    fn drop(&mut self) {
        // In a forked child it is the parent's to settle.
        if !self.is_settled() && !self.is_foreign() {
            self.settle(How::return_after(Duration::ZERO, ""));
        }
    }
}

impl fmt::Debug for QueueEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueEvent")
            .field("event", &self.event)
            .field("lease", &self.lease)
            .field("deliveries", &self.deliveries)
            .finish()
    }
}
