//! The answer to a call that is under way.

use crate::callbacks::{Callback, call_back};
use crate::completion::{Completion, Resolver};
use crate::error::ClientError;
use bytes::Bytes;
use memory::{Deadline, Target};
use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::task::{Context, Poll};
use std::time::Duration;
use wire::EventId;

/// Time beyond a call's own deadline after which a waiter stops believing
/// that the runtime thread will answer.
const GRACE: Duration = Duration::from_secs(5);

/// A [`Resolver`] that hears when an answer is not wanted any more.
pub(crate) trait Answerer: Resolver {
    /// Nobody wants the answer in `slot` any more.
    fn cancel(&self, slot: Arc<Slot>);
}

/// What the server sent back, in parts.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    pub head: Bytes,
    pub payload: Bytes,
    /// Memory that the call lent, filled.
    pub targets: Vec<Target>,
}

impl Reply {
    /// What a message of kind `Reply` says. An answer too long for a head is
    /// the payload behind an empty one.
    pub fn of(message: net::Received) -> Self {
        let payload = message.payload.freeze();
        let (head, payload) = match message.head.is_empty() {
            true => (payload, Bytes::new()),
            false => (message.head, payload),
        };
        Self {
            head,
            payload,
            targets: Vec::new(),
        }
    }
}

/// The side of the thread that is to answer: it is put into its [`Slot`] once. If the
/// last one is dropped without an answer, by a panic for instance, that is an
/// error for the caller that waits.
pub(crate) struct Promise(Arc<Slot>);

/// Where a [`Reply`] is put once.
pub(crate) struct Slot {
    /// How many [`Promise`]s there are of it.
    promises: AtomicUsize,
    completion: Completion<State>,
    /// By which it will be resolved; none of what is resolved already.
    answerer: Option<Weak<dyn Answerer>>,
    /// Where it is noted that the program waits for it.
    awaited: OnceLock<Arc<AtomicBool>>,
}

#[derive(Default)]
struct State {
    reply: Option<Result<Reply, ClientError>>,
    taken: bool,
}

impl Promise {
    /// One that what is behind `answerer` will resolve.
    pub fn new<A: Answerer + 'static>(answerer: &Arc<A>) -> Self {
        let answerer: Weak<A> = Arc::downgrade(answerer);
        Self::of(Some(answerer))
    }

    fn of(answerer: Option<Weak<dyn Answerer>>) -> Self {
        Self(Arc::new(Slot {
            promises: AtomicUsize::new(1),
            completion: Completion::new(State::default()),
            answerer,
            awaited: OnceLock::new(),
        }))
    }

    /// Where its answer will be.
    pub fn slot(&self) -> &Arc<Slot> {
        &self.0
    }
}

impl Deref for Promise {
    type Target = Slot;

    fn deref(&self) -> &Slot {
        &self.0
    }
}

impl Clone for Promise {
    fn clone(&self) -> Self {
        // As an `Arc`'s count: one is there, so it cannot be at 0 meanwhile.
        self.promises.fetch_add(1, Ordering::Relaxed);
        Self(self.0.clone())
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        // What the others of it did is seen by the last one.
        if self.promises.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.break_off();
        }
    }
}

impl Slot {
    /// Nobody is left who could answer, because of a panic. Who is forgotten
    /// otherwise has been answered, or nobody waits for it.
    fn break_off(&self) {
        // In a child nobody waits for it, and its lock may be held for ever.
        if !std::thread::panicking()
            || self.completion.is_foreign()
            || self.completion.lock().is_there()
        {
            return;
        }
        let ended = self.answerer().and_then(|answerer| answerer.ended());
        self.resolve(Err(ended.unwrap_or_else(ClientError::panicked)));
    }

    fn answerer(&self) -> Option<Arc<dyn Answerer>> {
        self.answerer.as_ref()?.upgrade()
    }

    /// Has it noted there if the program waits for it, before it is there.
    pub fn note_waiting(&self, at: Arc<AtomicBool>) {
        // There is one place.
        let _ = self.awaited.set(at);
    }

    /// The program waits for it from now on.
    fn note_awaited(&self) {
        if let Some(awaited) = self.awaited.get() {
            // A hint: nothing is ordered by it.
            awaited.store(true, Ordering::Relaxed);
        }
    }

    /// Puts the answer; a second one is dropped.
    pub fn resolve(&self, reply: Result<Reply, ClientError>) {
        let mut state = self.completion.lock();
        if state.is_there() {
            return;
        }
        state.reply = Some(reply);
        let waiters = state.take_waiters();
        drop(state);
        self.completion.notify(waiters, self.answerer().as_deref());
    }

    /// Calls `callback`, which is one of ours, on whichever thread resolves it, when
    /// there is an answer; at once if there is one.
    pub fn on_done(&self, callback: Box<dyn FnOnce() + Send>) {
        if let Err(callback) = self.on_resolved(callback) {
            callback();
        }
    }

    /// [`Promise::on_done`] for the program's.
    fn on_done_awaited(&self, callback: Callback) {
        if let Err(callback) = self.on_resolved(callback) {
            return callback();
        }
        self.note_awaited();
    }

    /// Calls `callback` when an answer comes; gives it back if there is one.
    fn on_resolved(&self, callback: Callback) -> Result<(), Callback> {
        self.completion.on_done(0, callback, State::is_there)
    }

    /// Takes the answer, if it is there.
    pub fn try_take(&self) -> Option<Result<Reply, ClientError>> {
        if self.completion.is_foreign() {
            return Some(Err(ClientError::Forked));
        }
        let mut state = self.completion.lock();
        let reply = state.reply.take();
        state.taken |= reply.is_some();
        reply
    }

    fn wait(&self, timeout: Duration) -> Option<Result<Reply, ClientError>> {
        self.wait_until_there(timeout);
        self.try_take()
    }

    /// Waits until there is an answer, be it taken by now; false if `timeout`
    /// passes before.
    fn wait_until_there(&self, timeout: Duration) -> bool {
        if self.completion.is_foreign() {
            return true;
        }
        let deadline = Deadline::after(timeout);
        let is_there = || self.completion.lock().is_there();
        if self.awaited.get().is_some() && !is_there() {
            self.note_awaited();
        }
        let answerer = self.answerer();
        self.completion
            .wait(deadline, answerer.as_deref(), is_there, State::is_there)
    }

    fn cancel(self: &Arc<Self>) {
        if let Some(answerer) = self.answerer() {
            answerer.cancel(self.clone());
        }
    }
}

impl State {
    fn is_there(&self) -> bool {
        self.taken || self.reply.is_some()
    }
}

/// Whether the answer of a [`Pending`] is there, for those who do not take it.
#[derive(Clone)]
pub struct Answered {
    slot: Arc<Slot>,
}

impl Answered {
    /// The future of a promise with this slot.
    pub(crate) fn of(slot: Arc<Slot>) -> Self {
        Self { slot }
    }

    /// Waits until the answer is there; false if `timeout` passes before.
    pub fn wait(&self, timeout: Duration) -> bool {
        self.slot.wait_until_there(timeout)
    }

    /// As [`Pending::on_done`].
    pub fn on_done(&self, callback: Box<dyn FnOnce() + Send>) {
        self.slot
            .on_done_awaited(Box::new(move || call_back(callback)));
    }

    /// As [`Pending::cancel`].
    pub fn cancel(&self) {
        self.slot.cancel();
    }
}

/// What an answer is of, for errors: made into text when somebody reads it.
#[derive(Debug, Clone)]
pub(crate) enum What {
    /// A call.
    Call(String),
    /// What many have in common.
    Shared(Arc<str>),
    /// The reply to an event of a consumer and its topic.
    Reply(EventId, Arc<str>),
}

impl From<String> for What {
    fn from(text: String) -> Self {
        Self::Call(text)
    }
}

impl From<&str> for What {
    fn from(text: &str) -> Self {
        Self::Call(text.to_owned())
    }
}

impl From<Arc<str>> for What {
    fn from(text: Arc<str>) -> Self {
        Self::Shared(text)
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(text) => f.write_str(text),
            Self::Shared(text) => f.write_str(text),
            Self::Reply(id, title) => write!(f, "the reply to event {id} of {title}"),
        }
    }
}

type Convert<T> = Box<dyn FnOnce(Reply) -> Result<T, ClientError> + Send>;

/// An answer that will come: of a call that was begun and not waited for.
///
/// The call has a deadline of its own, after which it resolves to
/// [`ClientError::Timeout`].
pub struct Pending<T> {
    slot: Arc<Slot>,
    convert: Option<Convert<T>>,
    what: What,
    timeout: Duration,
}

impl<T> Pending<T> {
    pub(crate) fn new(
        promise: Promise,
        what: impl Into<What>,
        timeout: Duration,
        convert: impl FnOnce(Reply) -> Result<T, ClientError> + Send + 'static,
    ) -> Self {
        Self {
            slot: promise.slot().clone(),
            convert: Some(Box::new(convert)),
            what: what.into(),
            timeout,
        }
    }

    /// One that has failed already.
    pub(crate) fn failed(error: ClientError) -> Self {
        let promise = Promise::of(None);
        promise.resolve(Err(error));
        Self::new(promise, "", Duration::ZERO, |_| Err(ClientError::Closed))
    }

    /// The same answer, made into something else.
    pub(crate) fn then<U>(
        mut self,
        next: impl FnOnce(T) -> Result<U, ClientError> + Send + 'static,
    ) -> Pending<U>
    where
        T: 'static,
    {
        let convert = self.convert.take().expect("not taken yet");
        Pending {
            slot: self.slot,
            convert: Some(Box::new(move |reply| next(convert(reply)?))),
            what: self.what,
            timeout: self.timeout,
        }
    }

    /// One whose answer is there.
    pub(crate) fn ready(value: T) -> Self
    where
        T: Send + 'static,
    {
        let promise = Promise::of(None);
        promise.resolve(Ok(Reply::default()));
        Self::new(promise, "", Duration::ZERO, |_| Ok(value))
    }

    /// What `next` begins with the answer to this, be it an error, as one
    /// call of both. `next` runs on the runtime's thread and must not wait.
    pub(crate) fn and_then<U: Send + 'static, A: Answerer + 'static>(
        self,
        answerer: &Arc<A>,
        timeout: Duration,
        next: impl FnOnce(Result<T, ClientError>) -> Pending<U> + Send + 'static,
    ) -> Pending<U>
    where
        T: 'static,
    {
        let outer = Promise::new(answerer);
        let what = self.what.clone();
        let slot = Arc::new(Mutex::new(None));
        let (resolved, put) = (outer.clone(), slot.clone());
        self.hand_to(move |outcome| {
            next(outcome).hand_to(move |outcome| {
                *put.lock().expect("no holder panics here") = Some(outcome);
                resolved.resolve(Ok(Reply::default()));
            });
        });
        Pending::new(outer, what, timeout, move |_| {
            let result = slot.lock().expect("no holder panics here").take();
            result.unwrap_or(Err(ClientError::Closed))
        })
    }

    /// The answers to all of these in their order, or the first error among them, when all are there.
    pub(crate) fn all<A: Answerer + 'static>(
        all: Vec<Self>,
        answerer: &Arc<A>,
        what: impl Into<What>,
        timeout: Duration,
    ) -> Pending<Vec<T>>
    where
        T: Send + 'static,
    {
        if all.is_empty() {
            return Pending::ready(Vec::new());
        }
        let outer = Promise::new(answerer);
        let left = Arc::new(AtomicUsize::new(all.len()));
        let answers = all.iter().map(|_| None).collect::<Vec<_>>();
        let answers = Arc::new(Mutex::new(answers));
        for (place, one) in all.into_iter().enumerate() {
            let (left, answers, outer) = (left.clone(), answers.clone(), outer.clone());
            one.hand_to(move |answer| {
                answers.lock().expect("no holder panics here")[place] = Some(answer);
                // What the others put is seen by the last one.
                if left.fetch_sub(1, Ordering::AcqRel) == 1 {
                    outer.resolve(Ok(Reply::default()));
                }
            });
        }
        Pending::new(outer, what, timeout, move |_| {
            let answers = std::mem::take(&mut *answers.lock().expect("no holder panics here"));
            let answers = answers.into_iter();
            answers
                .map(|one| one.unwrap_or(Err(ClientError::Closed)))
                .collect()
        })
    }

    /// [`Pending::all`], of what is done or not.
    pub(crate) fn all_done<A: Answerer + 'static>(
        mut all: Vec<Pending<()>>,
        answerer: &Arc<A>,
        what: impl Into<What>,
        timeout: Duration,
    ) -> Pending<()> {
        match all.len() {
            1 => all.remove(0),
            _ => Pending::all(all, answerer, what, timeout).then(|_| Ok(())),
        }
    }

    /// Hands the answer to `take`, which is one of ours, on whichever thread
    /// resolves it, when it is there; at once if it is.
    pub(crate) fn hand_to(mut self, take: impl FnOnce(Result<T, ClientError>) + Send + 'static)
    where
        T: 'static,
    {
        let slot = self.slot.clone();
        slot.on_done(Box::new(move || {
            let answer = self.try_get();
            take(answer.unwrap_or(Err(ClientError::Closed)));
        }));
    }

    fn finish(&mut self, reply: Result<Reply, ClientError>) -> Result<T, ClientError> {
        match self.convert.take() {
            Some(convert) => convert(reply?),
            None => Err(ClientError::Closed),
        }
    }

    /// Gives the call up, if it is one to the server: it resolves to
    /// [`ClientError::Cancelled`] soon, unless its answer is there before, and
    /// all memory that was lent for it is free then. The server may have done
    /// what it was asked for, or do so yet. Never blocks.
    pub fn cancel(&self) {
        self.slot.cancel();
    }

    /// The future of the answer, which lives on when it was taken.
    pub fn answered(&self) -> Answered {
        Answered::of(self.slot.clone())
    }

    /// The answer, if it is there. It can be taken once.
    pub fn try_get(&mut self) -> Option<Result<T, ClientError>> {
        let reply = self.slot.try_take()?;
        Some(self.finish(reply))
    }

    /// Calls `callback` once when the answer is there, on the runtime's thread.
    pub fn on_done(&self, callback: Box<dyn FnOnce() + Send>) {
        self.slot
            .on_done_awaited(Box::new(move || call_back(callback)));
    }

    /// Calls `callback`, which is one of ours, when the answer comes, on
    /// whichever thread resolves it; never if it is there. So it is not called from
    /// here, and locks may be held.
    pub(crate) fn on_news(&self, callback: Callback) {
        drop(self.slot.on_resolved(callback));
    }

    /// Calls `callback`, which is one of ours, when the answer is there, on
    /// whichever thread reports it; at once if it is there.
    pub(crate) fn on_answer(&self, callback: Callback) {
        self.slot.on_done(callback);
    }

    /// Waits for the answer up to `timeout` (`None`: the call's deadline), and
    /// gives `None` when that has passed: it may be waited for again.
    pub fn wait_for(&mut self, timeout: Option<Duration>) -> Option<Result<T, ClientError>> {
        let timeout = timeout.unwrap_or(self.timeout.saturating_add(GRACE));
        let reply = self.slot.wait(timeout)?;
        Some(self.finish(reply))
    }

    /// Waits for the answer, up to the call's deadline.
    pub fn wait(mut self) -> Result<T, ClientError> {
        match self.slot.wait(self.timeout.saturating_add(GRACE)) {
            Some(reply) => self.finish(reply),
            None => Err(ClientError::Timeout {
                what: format!("{}: the client's own thread does not answer", self.what),
            }),
        }
    }
}

impl<T> Future for Pending<T> {
    type Output = Result<T, ClientError>;

    fn poll(mut self: std::pin::Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(reply) = self.slot.try_take() {
            return Poll::Ready(self.finish(reply));
        }
        self.slot.note_awaited();
        match self.slot.completion.poll_alone(context, State::is_there) {
            Poll::Ready(()) => match self.slot.try_take() {
                Some(reply) => Poll::Ready(self.finish(reply)),
                // It was taken before.
                None => Poll::Ready(Err(ClientError::Closed)),
            },
            Poll::Pending => Poll::Pending,
        }
    }
}
