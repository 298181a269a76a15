//! Requests and replies: a request is an event that says where its reply
//! goes, a reply an event under that key. The headers are on the page
//! `docs/concept/sharing.md`.

mod gather;
mod options;

pub use gather::{Gather, Gathered};
pub use options::RequesterOptions;

use crate::consumer::Consumer;
use crate::error::ClientError;
use crate::event::{ConsumedEvent, Event};
use crate::faults::{Fault, planted};
use crate::mailbox::{Command, Mailbox};
use crate::options::ConsumerOptions;
use crate::producer::Producer;
use crate::promise::{Pending, Promise, Reply};
use crate::replier::{
    CORRELATION_HEADER, REPLIER_HEADER, REPLY_HEADER, replies_definition, replies_of,
};
use crate::topic_handle::TopicHandle;
use crate::topic_state::TopicState;
use bytes::Bytes;
use gather::{Answer, Slot};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;
use wire::message::Start;

/// Sends requests to a topic, whose workers are members of a queue, and gets
/// their replies. Many may be under way; can be used from several threads.
///
/// Replies come over the topic `TOPIC.replies`, which is made if it is
/// missing, and are found again after a lost connection. Not usable in a
/// forked child, where its replies would be the parent's.
pub struct Requester {
    inner: Arc<Inner>,
    topic: TopicHandle,
    producer: Producer,
    address: String,
    /// What requests and broadcasts wait for, for errors.
    reply: Arc<str>,
    replies: Arc<str>,
    generation: u64,
}

impl TopicHandle {
    /// Opens a requester: requests are events of this topic, replies come over
    /// `TOPIC.replies`, which is made if it is missing.
    ///
    /// # Errors
    /// As any call.
    pub fn requester(&self, options: RequesterOptions) -> Result<Requester, ClientError> {
        self.begin_requester(options).wait()
    }

    /// [`TopicHandle::requester`], not waited for.
    pub fn begin_requester(&self, options: RequesterOptions) -> Pending<Requester> {
        Requester::begin(self, options)
    }
}

struct Inner {
    replies: Consumer,
    /// Of the requests.
    topic: Arc<TopicState>,
    mailbox: Arc<Mailbox>,
    /// Guards who waits for which reply; held for a look-up.
    waiting: Mutex<Waiting>,
    /// Whether a thread takes replies, and whether it is to look again.
    is_taking: AtomicBool,
    look_again: AtomicBool,
}

#[derive(Default)]
struct Waiting {
    requests: BTreeMap<u64, Request>,
    last: u64,
    /// When the alarms are due that are set: each is earlier than those that
    /// were set before it.
    alarms: BTreeSet<Duration>,
    /// Why replies can't be read any more.
    failed: Option<ClientError>,
}

/// A request that is under way.
struct Request {
    /// On the client's clock.
    deadline: Duration,
    promise: Promise,
    slot: Slot,
    what: Arc<str>,
    /// How long after its beginning the deadline is.
    patience: Duration,
    /// Whether it is a broadcast.
    is_broadcast: bool,
}

impl Requester {
    pub(crate) fn begin(topic: &TopicHandle, options: RequesterOptions) -> Pending<Self> {
        if let Err(error) = options.check(&topic.state) {
            return Pending::failed(error);
        }
        let session = match topic.driver.session() {
            Ok(session) => session,
            Err(error) => return Pending::failed(error),
        };
        let (mailbox, timeout) = (session.mailbox.clone(), topic.driver.request_timeout());
        let address = format!("{:032x}", session.id().0);
        let name = replies_of(topic);
        let definition = match replies_definition(topic) {
            Ok(definition) => definition,
            Err(error) => return Pending::failed(error),
        };
        // Several requesters of one client share its address, not their numbers.
        let first = mailbox.next_key() << 32;
        let made = topic.begin_companion(&name, &definition);
        let driver = topic.driver.clone();
        let opened = made.and_then(&mailbox, timeout, move |made| match made {
            Ok(()) => driver.begin_open_topic(&name),
            Err(error) => Pending::failed(error),
        });
        let key = Bytes::from(address.clone());
        let (data, consumer) = (options.data, format!("requester-{address}"));
        let replies = opened.and_then(&mailbox, timeout, move |replies| match replies {
            Ok(replies) => {
                let options = ConsumerOptions {
                    start: Start::Latest.into(),
                    key: Some(key),
                    data,
                    ..ConsumerOptions::default()
                };
                replies.begin_consumer(&consumer, options)
            }
            Err(error) => Pending::failed(error),
        });
        let (topic, outer) = (topic.clone(), mailbox.clone());
        replies.and_then(&mailbox, timeout, move |replies| match replies {
            Err(error) => Pending::failed(error),
            Ok(replies) => {
                let opened = topic.begin_producer(options.producer);
                opened.then(move |producer| {
                    // The reply says that the request was stored.
                    producer.set_quiet(true);
                    let inner = Inner::new(replies, topic.state.clone(), outer, first);
                    let title = topic.name();
                    Ok(Self {
                        inner,
                        reply: format!("the reply to a request to {title}").into(),
                        replies: format!("replies to a broadcast to {title}").into(),
                        topic,
                        producer,
                        address,
                        generation: memory::fork::generation(),
                    })
                })
            }
        })
    }

    /// Sends a request; the answer is the reply, an event of `TOPIC.replies`.
    /// `event` may have headers, but not those of requests.
    ///
    /// # Errors
    /// Those of [`Producer::push`]; [`ClientError::Forked`]; that of the storage
    /// of replies, if it has failed: then another requester is to be opened once
    /// the server serves it again, and all that was under way has this answer. The answer is
    /// [`ClientError::Timeout`] when no reply came within `deadline`: one that
    /// comes later is dropped. Whether the request was handled is not known then.
    pub fn request(
        &self,
        event: Event<'_>,
        deadline: Duration,
    ) -> Result<Pending<ConsumedEvent>, ClientError> {
        let what = &self.reply;
        let slot = Slot::default();
        let (promise, _) = self.send(event, deadline, what, slot.clone(), false)?;
        Ok(Pending::new(promise, what.clone(), deadline, move |_| {
            let reply = slot.lock().expect("no holder panics here").replies.pop();
            Ok(reply.ok_or(ClientError::Closed)?.1)
        }))
    }

    /// Asks all consumers of the topic that are live now, and gathers what
    /// they reply: each client of an independent consumer once, a group or
    /// queue once. The answer is there when `gather` says so, or at the
    /// deadline, and says who is missing.
    ///
    /// # Errors
    /// Those of [`Requester::request`]. The answer is [`ClientError::Timeout`]
    /// if the server did not say in time who was asked.
    pub fn broadcast(
        &self,
        event: Event<'_>,
        gather: Gather,
        deadline: Duration,
    ) -> Result<Pending<Gathered>, ClientError> {
        let what = &self.replies;
        let slot: Slot = Arc::new(Mutex::new(Answer::gathering(gather)));
        let (promise, number) = self.send(event, deadline, what, slot.clone(), true)?;
        // Both are on their way at once: who is live when the request comes is asked.
        let (inner, answer) = (Arc::downgrade(&self.inner), slot.clone());
        let live = self.topic.begin_describe_consumers("");
        live.hand_to(move |live| {
            let Some(inner) = inner.upgrade() else {
                return;
            };
            match live {
                Ok(consumers) => inner.changed(number, &answer, |answer| {
                    answer.asked(gather::addressed(&consumers));
                }),
                Err(error) => inner.end(number, Err(error)),
            }
        });
        Ok(Pending::new(promise, what.clone(), deadline, move |_| {
            let answer = std::mem::take(&mut *slot.lock().expect("no holder panics here"));
            Ok(answer.into_gathered())
        }))
    }

    fn send(
        &self,
        event: Event<'_>,
        deadline: Duration,
        what: &Arc<str>,
        slot: Slot,
        is_broadcast: bool,
    ) -> Result<(Promise, u64), ClientError> {
        if self.generation != memory::fork::generation() {
            return Err(ClientError::Forked);
        }
        let promise = Promise::new(&self.inner.mailbox);
        let ends = self
            .inner
            .mailbox
            .clock()
            .now()
            .checked_add(deadline)
            .ok_or_else(|| ClientError::Invalid("the deadline is beyond all time".to_owned()))?;
        let request = Request {
            deadline: ends,
            promise: promise.clone(),
            slot: slot.clone(),
            what: what.clone(),
            patience: deadline,
            is_broadcast,
        };
        let number = Inner::begin(&self.inner, request)?;
        let correlation = correlation_of(number);
        let own = [
            (REPLY_HEADER, self.address.as_bytes()),
            (CORRELATION_HEADER, &correlation[..]),
        ];
        let headers = match event.headers.is_empty() {
            true => Cow::Borrowed(&own[..]),
            false => Cow::Owned([event.headers, &own[..]].concat()),
        };
        let event = Event {
            headers: &headers,
            ..event
        };
        let pushed = match self.producer.push(event) {
            Ok(pushed) => pushed,
            Err(error) => {
                self.inner.end(number, Err(error.clone()));
                return Err(error);
            }
        };
        let (inner, stored) = (Arc::downgrade(&self.inner), pushed.clone());
        // Ours: nobody's thread is woken for it.
        pushed.on_done_here(Box::new(move || {
            let Some(inner) = inner.upgrade() else {
                return;
            };
            match stored.try_get() {
                // A request that was not stored has no reply.
                Some(Err(error)) => inner.end(number, Err(error)),
                // Perhaps nobody is there, or nobody is waited for.
                _ if is_broadcast => inner.changed(number, &slot, Answer::stored),
                _ => {}
            }
        }));
        Ok((promise, number))
    }

    /// Ends all requests that are under way, as [`Requester::end_requests`]
    /// does, and waits up to `timeout` until those that were sent are stored.
    /// Nothing more can be asked then.
    ///
    /// # Errors
    /// [`ClientError::Timeout`]: what is not stored by then may never be. What
    /// the requests failed with.
    pub fn close(&self, timeout: Duration) -> Result<(), ClientError> {
        self.end_requests();
        self.producer.end(timeout)
    }

    /// Ends all requests that are under way: their answer is
    /// [`ClientError::Closed`]. Dropping the requester does so as well, and then
    /// waits until what was sent is stored, up to the `ack_timeout`.
    pub fn end_requests(&self) {
        if self.generation == memory::fork::generation() {
            self.inner.end_all(&ClientError::Closed);
        }
    }

    /// Where requests go.
    pub fn topic(&self) -> &TopicHandle {
        &self.topic
    }

    /// The address of its replies: the client's session id.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Requests that are under way.
    pub fn waiting(&self) -> usize {
        self.inner.lock().requests.len()
    }
}

impl Drop for Requester {
    fn drop(&mut self) {
        self.end_requests();
    }
}

impl Inner {
    fn new(
        replies: Consumer,
        topic: Arc<TopicState>,
        mailbox: Arc<Mailbox>,
        first: u64,
    ) -> Arc<Self> {
        let inner = Arc::new(Self {
            replies,
            topic,
            mailbox,
            waiting: Mutex::new(Waiting {
                last: first,
                ..Waiting::default()
            }),
            is_taking: AtomicBool::new(false),
            look_again: AtomicBool::new(false),
        });
        let taker = Arc::downgrade(&inner);
        inner.replies.on_arrival(Arc::new(move || {
            if let Some(inner) = Weak::upgrade(&taker) {
                inner.take();
            }
        }));
        inner
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().expect("no holder panics here")
    }

    /// Takes replies that have arrived, on the thread that they arrived on: the one that
    /// waits is woken once. One thread at a time does; reading data may call it
    /// again meanwhile.
    fn take(&self) {
        self.look_again.store(true, Ordering::SeqCst);
        while self.look_again.load(Ordering::SeqCst) && !self.is_taking.swap(true, Ordering::SeqCst)
        {
            self.look_again.store(false, Ordering::SeqCst);
            // What cannot be read now is tried again with the next arrival;
            // who waits for it has a deadline.
            while let Ok(Some(reply)) = self.replies.look() {
                self.arrived(reply);
            }
            if let Some(error) = self.replies.failure() {
                self.lock().failed.get_or_insert_with(|| error.clone());
                self.end_all(&error);
            }
            self.is_taking.store(false, Ordering::SeqCst);
        }
    }

    fn arrived(&self, reply: ConsumedEvent) {
        let number = reply.header(CORRELATION_HEADER).and_then(|text| {
            let text = std::str::from_utf8(text).ok()?;
            u64::from_str_radix(text, 16).ok()
        });
        // Nobody waits for one that is late, or another requester's.
        let Some(number) = number else {
            return;
        };
        let replier = reply.header(REPLIER_HEADER).unwrap_or_default();
        let replier = String::from_utf8_lossy(replier).into_owned();
        let waiting = self.lock();
        let number = match waiting.requests.keys().next() {
            Some(first) if planted(Fault::AnyReply) => *first,
            _ => number,
        };
        let Some(request) = waiting.requests.get(&number) else {
            return;
        };
        let slot = request.slot.clone();
        drop(waiting);
        self.changed(number, &slot, |answer| answer.replied(replier, reply));
    }

    /// Changes what has come of a request, and ends it if that is all.
    fn changed(&self, number: u64, slot: &Slot, change: impl FnOnce(&mut Answer)) {
        let mut answer = slot.lock().expect("no holder panics here");
        change(&mut answer);
        let is_complete = answer.is_complete();
        drop(answer);
        if is_complete {
            self.end(number, Ok(()));
        }
    }

    fn end_all(&self, error: &ClientError) {
        let mut waiting = self.lock();
        let requests = std::mem::take(&mut waiting.requests);
        waiting.alarms.clear();
        drop(waiting);
        for request in requests.into_values() {
            request.promise.resolve(Err(error.clone()));
        }
    }

    fn end(&self, number: u64, outcome: Result<(), ClientError>) {
        let request = self.lock().requests.remove(&number);
        if let Some(request) = request {
            request.promise.resolve(outcome.map(|()| Reply::default()));
        }
    }

    /// Notes a request, and sees that its deadline is watched.
    fn begin(self: &Arc<Self>, request: Request) -> Result<u64, ClientError> {
        let mut waiting = self.lock();
        if let Some(error) = &waiting.failed {
            return Err(error.clone());
        }
        waiting.last += 1;
        let number = waiting.last;
        let deadline = request.deadline;
        waiting.requests.insert(number, request);
        let is_new = waiting.watch(deadline);
        drop(waiting);
        if is_new {
            self.set_alarm(deadline);
        }
        Ok(number)
    }

    fn set_alarm(self: &Arc<Self>, at: Duration) {
        if planted(Fault::NoDeadline) {
            return;
        }
        let promise = Promise::new(&self.mailbox);
        let (inner, alarm) = (Arc::downgrade(self), promise.clone());
        promise.on_done(Box::new(move || {
            let Some(inner) = inner.upgrade() else {
                return;
            };
            match alarm.try_take() {
                // The client has ended, and with it whatever could come.
                Some(Err(error)) => inner.end_all(&error),
                _ => inner.expire(at),
            }
        }));
        self.mailbox.send(Command::Alarm {
            after: at.saturating_sub(self.mailbox.clock().now()),
            promise,
        });
    }

    /// The alarm for this time is due: ends requests whose deadline has
    /// passed, and sees that the next one is watched.
    fn expire(self: &Arc<Self>, alarm: Duration) {
        let now = self.mailbox.clock().now();
        let mut waiting = self.lock();
        waiting.alarms.remove(&alarm);
        let late = |request: &Request| request.deadline <= now;
        let numbers: Vec<u64> = waiting
            .requests
            .iter()
            .filter(|(_, request)| late(request))
            .map(|(number, _)| *number)
            .collect();
        let ended: Vec<Request> = numbers
            .iter()
            .filter_map(|number| waiting.requests.remove(number))
            .collect();
        let next = waiting.requests.values().map(|one| one.deadline).min();
        let next = next.filter(|next| waiting.watch(*next));
        drop(waiting);
        for request in ended {
            let answer = request.slot.lock().expect("no holder panics here");
            // What came of a broadcast is the answer; it says who is missing.
            let is_answer = request.is_broadcast && answer.is_known();
            drop(answer);
            if is_answer {
                request.promise.resolve(Ok(Reply::default()));
                continue;
            }
            let liveness = self.topic.liveness(&self.mailbox).describe_now();
            let (what, patience) = (&request.what, request.patience.as_secs_f64());
            let what = format!("{what} ({patience:.1} s); {liveness}");
            request.promise.resolve(Err(ClientError::Timeout { what }));
        }
        if let Some(next) = next {
            self.set_alarm(next);
        }
    }
}

impl Waiting {
    /// Notes that an alarm is to be due at `at`; false if one is by then.
    fn watch(&mut self, at: Duration) -> bool {
        let is_watched = self.alarms.first().is_some_and(|alarm| *alarm <= at);
        !is_watched && self.alarms.insert(at)
    }
}

/// The number of a request as its header has it: 16 digits of base 16.
fn correlation_of(number: u64) -> [u8; 16] {
    let digit = |at: usize| b"0123456789abcdef"[(number >> (60 - 4 * at)) as usize & 15];
    std::array::from_fn(digit)
}

impl fmt::Debug for Requester {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Requester({} from {})", self.topic.name(), self.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_correlation_is_read_as_the_number_that_it_was() {
        for number in [0, 1, 0x0123_4567_89ab_cdef, u64::MAX] {
            let text = correlation_of(number);
            assert_eq!(text[..], *format!("{number:016x}").as_bytes());
        }
    }

    #[test]
    fn alarms_do_not_multiply() {
        let at = Duration::from_secs;
        let mut waiting = Waiting::default();
        // One request waits for long, and short ones come and go.
        assert!(waiting.watch(at(1000)));
        for second in 1..=900 {
            assert!(waiting.watch(at(second)));
            assert!(!waiting.watch(at(second + 5)), "an earlier one is due");
            assert_eq!(waiting.alarms.len(), 2);
            waiting.alarms.remove(&at(second));
            assert!(!waiting.watch(at(1000)), "it is set already");
        }
    }
}
