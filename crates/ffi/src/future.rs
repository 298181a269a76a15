//! `thalweg_future`: what becomes of a push, a flush, a pull, a settlement or a call.

use crate::boundary::*;
use crate::driver::Connection;
use crate::error::{Code, Failure};
use crate::event::Event;
use crate::loan::Loan;
use crate::pull::Pull;
use client::{
    Answered, ConsumedEvent, EventId, FlushFuture, Gathered, Pending, PushFuture, SettleFuture,
    Target,
};
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

/// A flush ends with its producer's `ack_timeout` at the latest.
const FOR_EVER: Duration = Duration::from_secs(u32::MAX as u64);

/// `thalweg_future`. A handle of its own, so that a callback may free it while
/// the function that calls the callback still uses what is behind it.
pub struct Future(Arc<Inner>);

struct Inner {
    kind: Kind,
    connection: Arc<Connection>,
    has_callback: AtomicBool,
}

enum Kind {
    Push(Push),
    Flush(FlushFuture, Vec<Arc<Loan>>),
    Pull(Arc<Pull>),
    Settlement(SettleFuture),
    Read(Read, Arc<Loan>),
    Extension(Call<()>),
    Reply(Call<EventId>, Option<Arc<Loan>>),
    Request(Call<ConsumedEvent>, Option<Arc<Loan>>),
    Broadcast(Call<Gathered>, Option<Arc<Loan>>),
}

struct Push {
    future: PushFuture,
    loan: Option<Arc<Loan>>,
    producer: Weak<client::Producer>,
    /// Batches wait to be full: who waits for the future wants them sent.
    lingers: bool,
}

/// A call, whose answer is kept until it is asked for.
struct Call<T> {
    /// Asked without the lock: who waits, or is called back, may ask again.
    answered: Answered,
    answer: Mutex<Answer<T>>,
}

enum Answer<T> {
    Pending(Box<Pending<T>>),
    /// None once it was taken.
    There(Option<T>),
    Failed(Failure),
}

/// What is asked of a call, whatever its answer is.
trait Called {
    fn answered(&self) -> &Answered;

    /// What became of it, if that is known.
    fn look(&self) -> Option<Result<(), Failure>>;
}

impl<T> Call<T> {
    fn new(pending: Pending<T>) -> Self {
        Self {
            answered: pending.answered(),
            answer: Mutex::new(Answer::Pending(Box::new(pending))),
        }
    }

    fn answer(&self) -> MutexGuard<'_, Answer<T>> {
        self.answer.lock().expect("no holder panics here")
    }

    /// Looks at the answer, which is there and is no failure.
    fn with<U>(&self, look: impl FnOnce(&mut Option<T>) -> U) -> Result<U, Failure> {
        self.look().ok_or_else(not_done)??;
        match &mut *self.answer() {
            Answer::There(answer) => Ok(look(answer)),
            _ => Err(not_done()),
        }
    }
}

impl<T> Called for Call<T> {
    fn answered(&self) -> &Answered {
        &self.answered
    }

    fn look(&self) -> Option<Result<(), Failure>> {
        let mut answer = self.answer();
        if let Answer::Pending(pending) = &mut *answer {
            *answer = match pending.try_get()? {
                Ok(value) => Answer::There(Some(value)),
                Err(error) => Answer::Failed(error.into()),
            };
        }
        Some(match &*answer {
            Answer::Failed(failure) => Err(failure.clone()),
            _ => Ok(()),
        })
    }
}

/// A read of data, into memory that goes back with the answer.
struct Read(Call<Vec<Target>>);

impl Called for Read {
    fn answered(&self) -> &Answered {
        &self.0.answered
    }

    fn look(&self) -> Option<Result<(), Failure>> {
        let result = self.0.look()?;
        let targets = self.0.with(Option::take);
        // The memory goes back here, and with it may come a callback.
        drop(targets);
        Some(result)
    }
}

impl Drop for Future {
    fn drop(&mut self) {
        if let Kind::Pull(pull) = &self.0.kind {
            pull.abandon();
        }
    }
}

impl Future {
    fn new(kind: Kind, connection: Arc<Connection>) -> Self {
        Self(Arc::new(Inner {
            kind,
            connection,
            has_callback: AtomicBool::new(false),
        }))
    }

    pub fn push(
        future: PushFuture,
        loan: Option<Arc<Loan>>,
        producer: &Arc<client::Producer>,
        lingers: bool,
        connection: Arc<Connection>,
    ) -> Self {
        let push = Push {
            future,
            loan,
            producer: Arc::downgrade(producer),
            lingers,
        };
        Self::new(Kind::Push(push), connection)
    }

    pub fn flush(future: FlushFuture, loans: Vec<Arc<Loan>>, connection: Arc<Connection>) -> Self {
        Self::new(Kind::Flush(future, loans), connection)
    }

    pub fn pull(pull: Arc<Pull>, connection: Arc<Connection>) -> Self {
        Self::new(Kind::Pull(pull), connection)
    }

    /// Of a reply of a consumer, which resolves to its id.
    pub fn stored(
        future: PushFuture,
        loan: Option<Arc<Loan>>,
        connection: Arc<Connection>,
    ) -> Self {
        let push = Push {
            future,
            loan,
            producer: Weak::new(),
            lingers: false,
        };
        Self::new(Kind::Push(push), connection)
    }

    pub fn settlement(future: SettleFuture, connection: Arc<Connection>) -> Self {
        Self::new(Kind::Settlement(future), connection)
    }

    pub fn extension(pending: Pending<()>, connection: Arc<Connection>) -> Self {
        Self::new(Kind::Extension(Call::new(pending)), connection)
    }

    pub fn reply(
        pending: Pending<EventId>,
        loan: Option<Arc<Loan>>,
        connection: Arc<Connection>,
    ) -> Self {
        Self::new(Kind::Reply(Call::new(pending), loan), connection)
    }

    pub fn request(
        pending: Pending<ConsumedEvent>,
        loan: Option<Arc<Loan>>,
        connection: Arc<Connection>,
    ) -> Self {
        Self::new(Kind::Request(Call::new(pending), loan), connection)
    }

    pub fn broadcast(
        pending: Pending<Gathered>,
        loan: Option<Arc<Loan>>,
        connection: Arc<Connection>,
    ) -> Self {
        Self::new(Kind::Broadcast(Call::new(pending), loan), connection)
    }

    pub fn read(
        pending: Pending<Vec<Target>>,
        loan: Arc<Loan>,
        connection: Arc<Connection>,
    ) -> Self {
        Self::new(Kind::Read(Read(Call::new(pending)), loan), connection)
    }

    /// Who did not reply to a broadcast; `None` behind the last.
    pub fn missing(&self, index: usize) -> Result<Option<String>, Failure> {
        let Kind::Broadcast(call, _) = &self.0.kind else {
            return Err(Failure::invalid("only a broadcast has somebody missing"));
        };
        self.0.result().ok_or_else(not_done)??;
        call.with(|gathered| {
            let missing = gathered.as_ref().map(|gathered| &gathered.missing);
            missing.and_then(|missing| missing.get(index).cloned())
        })
    }
}

impl Kind {
    /// What is a call to the server, and the memory that is lent for it.
    fn call(&self) -> Option<(&dyn Called, Option<&Arc<Loan>>)> {
        match self {
            Self::Push(_) | Self::Flush(..) | Self::Pull(_) | Self::Settlement(_) => None,
            Self::Read(read, loan) => Some((read, Some(loan))),
            Self::Extension(call) => Some((call, None)),
            Self::Reply(call, loan) => Some((call, loan.as_ref())),
            Self::Request(call, loan) => Some((call, loan.as_ref())),
            Self::Broadcast(call, loan) => Some((call, loan.as_ref())),
        }
    }
}

impl Inner {
    /// What became of it, if that is known and all memory is the caller's again.
    fn result(&self) -> Option<Result<(), Failure>> {
        match &self.kind {
            Kind::Push(push) => {
                let result = push.future.try_get()?;
                let is_free = push.loan.as_ref().is_none_or(|loan| loan.has_ended());
                is_free.then(|| result.map(drop).map_err(Failure::from))
            }
            Kind::Flush(future, loans) => {
                let result = future.try_get()?;
                let is_free = loans.iter().all(|loan| loan.has_ended());
                is_free.then(|| result.map_err(Failure::from))
            }
            Kind::Pull(pull) => pull.result(),
            Kind::Settlement(future) => Some(future.try_get()?.map_err(Failure::from)),
            call => {
                let (call, loan) = call.call().expect("all others are calls");
                let result = call.look()?;
                loan.is_none_or(|loan| loan.has_ended()).then_some(result)
            }
        }
    }

    /// Waits for what became of it; [`Code::Timeout`] when `until` has passed,
    /// and it may be waited for again.
    fn wait(&self, until: Option<Instant>) -> Result<(), Failure> {
        if let Some(result) = self.result() {
            return result;
        }
        let left = || until.map(|until| until.saturating_duration_since(Instant::now()));
        let free = |loan: &Arc<Loan>| match loan.wait(&self.connection, until) {
            true => Ok(()),
            false => Err(Failure::new(
                Code::Timeout,
                "timed out waiting for the transport to let go of lent memory",
            )),
        };
        match &self.kind {
            Kind::Push(push) => {
                if push.lingers
                    && let Some(producer) = push.producer.upgrade()
                {
                    // Sends what gathers; nobody waits for this one.
                    drop(producer.flush_future());
                }
                let result = push.future.wait(left());
                if push.future.try_get().is_none() {
                    return result.map(drop).map_err(Failure::from);
                }
                push.loan.as_ref().map_or(Ok(()), free)?;
                result.map(drop).map_err(Failure::from)
            }
            Kind::Flush(future, loans) => {
                let result = future.wait(left().unwrap_or(FOR_EVER));
                if future.try_get().is_none() {
                    return result.map_err(Failure::from);
                }
                loans.iter().try_for_each(free)?;
                result.map_err(Failure::from)
            }
            Kind::Pull(pull) => pull.wait(until),
            Kind::Settlement(future) => Ok(future.wait(left())?),
            call => {
                let (call, loan) = call.call().expect("all others are calls");
                call.answered().wait(left().unwrap_or(FOR_EVER));
                let timed_out = || Failure::new(Code::Timeout, "timed out waiting for an answer");
                let result = call.look().ok_or_else(timed_out)?;
                loan.map_or(Ok(()), free)?;
                result
            }
        }
    }

    /// Gives it up, where it can be.
    fn cancel(&self) {
        match &self.kind {
            Kind::Push(push) => {
                if let Some(producer) = push.producer.upgrade() {
                    producer.cancel(&push.future);
                }
            }
            Kind::Pull(pull) => pull.cancel(),
            Kind::Read(read, _) => read.answered().cancel(),
            // What was said cannot be unsaid, and nobody has to wait for it.
            _ => {}
        }
    }

    fn on_done(self: &Arc<Self>, callback: Box<dyn FnOnce() + Send>) {
        match &self.kind {
            Kind::Push(push) => {
                let loan = push.loan.clone();
                push.future.on_done(Box::new(move || match loan {
                    Some(loan) => loan.on_end(callback),
                    None => callback(),
                }));
            }
            Kind::Flush(future, loans) => {
                let loans = loans.clone();
                future.on_done(Box::new(move || all_ended(loans, callback)));
            }
            Kind::Pull(pull) => pull.on_done(callback),
            Kind::Settlement(future) => future.on_done(callback),
            call => {
                let (call, _) = call.call().expect("all others are calls");
                let weak = Arc::downgrade(self);
                call.answered().on_done(Box::new(move || {
                    let inner = weak.upgrade();
                    let Some((call, loan)) = inner.as_ref().and_then(|inner| inner.kind.call())
                    else {
                        return callback();
                    };
                    // Memory that is read into goes back with this.
                    call.look();
                    match loan {
                        Some(loan) => loan.on_end(callback),
                        None => callback(),
                    }
                }));
            }
        }
    }
}

/// Calls `callback` when the last of the loans has ended.
fn all_ended(mut loans: Vec<Arc<Loan>>, callback: Box<dyn FnOnce() + Send>) {
    match loans.pop() {
        None => callback(),
        Some(loan) => loan.on_end(Box::new(move || all_ended(loans, callback))),
    }
}

/// What is behind a handle that a callback may free.
fn inner(future: *mut Future) -> Result<Arc<Inner>, Failure> {
    // SAFETY: the header asks for NULL or a future that is not freed yet; the
    // reference ends here, before any callback is called.
    let future = unsafe { future.as_ref() };
    Ok(given("future", future)?.0.clone())
}

fn not_done() -> Failure {
    Failure::new(Code::Timeout, "the future is not resolved yet")
}

/// Waits for a future.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_future_wait(
    future: Option<&Future>,
    timeout_ms: i64,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let until = limit(timeout_ms).map(|timeout| Instant::now() + timeout);
        given("future", future)?.0.wait(until)
    })
}

/// Whether a future is resolved.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_future_done(future: Option<&Future>) -> i32 {
    let mut done = false;
    quietly(|| done = future.is_some_and(|future| future.0.result().is_some()));
    i32::from(done)
}

/// The id of the event that was pushed.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_future_id(
    future: Option<&Future>,
    id: Out<'_, ThalwegEventId>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let future = &given("future", future)?.0;
        let stored = match &future.kind {
            Kind::Push(push) => {
                future.result().ok_or_else(not_done)??;
                push.future.try_get().ok_or_else(not_done)??
            }
            Kind::Reply(call, _) => {
                future.result().ok_or_else(not_done)??;
                call.with(|id| *id)?.ok_or_else(not_done)?
            }
            _ => return Err(Failure::invalid("only a push or a reply resolves to an id")),
        };
        given("id", id)?.write(stored.into());
        Ok(())
    })
}

/// Takes the event that was pulled.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_future_event(
    future: Option<&Future>,
    event: Out<'_, *mut Event>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let future = &given("future", future)?.0;
        let event = given("event", event)?;
        let taken = match &future.kind {
            Kind::Pull(pull) => {
                pull.result().ok_or_else(not_done)??;
                pull.take()
            }
            Kind::Request(call, _) => {
                future.result().ok_or_else(not_done)??;
                call.with(Option::take)?
            }
            Kind::Broadcast(call, _) => {
                future.result().ok_or_else(not_done)??;
                let next = call.with(|gathered| {
                    let replies = gathered.as_mut().map(|gathered| &mut gathered.replies);
                    replies
                        .filter(|replies| !replies.is_empty())
                        .map(|replies| replies.remove(0).1)
                })?;
                let next = next.map_or(std::ptr::null_mut(), |next| give(Event::new(next)));
                event.write(next);
                return Ok(());
            }
            _ => {
                return Err(Failure::invalid(
                    "only a pull, a request or a broadcast resolves to an event",
                ));
            }
        };
        let taken = taken.ok_or_else(|| Failure::invalid("the event was taken already"))?;
        event.write(give(Event::new(taken)));
        Ok(())
    })
}

/// Has a function called when a future is resolved.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_future_on_done(
    future: *mut Future,
    callback: Option<extern "C" fn(*mut c_void)>,
    context: *mut c_void,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let future = inner(future)?;
        let callback = given("callback", callback)?;
        if future.has_callback.swap(true, Ordering::Relaxed) {
            return Err(Failure::invalid("a future has one callback"));
        }
        let context = UserPointer(context);
        future.on_done(Box::new(move || {
            // The whole of it, so that it is `Send`.
            let context = context;
            callback(context.0);
        }));
        Ok(())
    })
}

/// Gives up what a future stands for, if it is not too late.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_future_cancel(future: *mut Future, error: ErrorOut<'_>) -> i32 {
    guard(error, || {
        inner(future)?.cancel();
        Ok(())
    })
}

/// Frees a future, resolved or not.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_future_free(future: Option<Box<Future>>) {
    quietly(|| drop(future));
}
