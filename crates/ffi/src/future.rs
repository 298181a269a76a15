//! `thalweg_future`: what becomes of a push, a flush, a pull or a read.

use crate::boundary::*;
use crate::driver::Connection;
use crate::error::{Code, Failure};
use crate::event::Event;
use crate::loan::Loan;
use crate::pull::Pull;
use client::{Answered, FlushFuture, Pending, PushFuture, Target};
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
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
    Call(Call, Arc<Loan>),
}

struct Push {
    future: PushFuture,
    loan: Option<Arc<Loan>>,
    producer: Weak<client::Producer>,
    /// Batches wait to be full: who waits for the future wants them sent.
    lingers: bool,
}

struct Call {
    /// Asked without the lock: who waits, or is called back, may ask again.
    answered: Answered,
    answer: Mutex<Answer>,
}

enum Answer {
    Pending(Box<Pending<Vec<Target>>>),
    Taken(Result<(), Failure>),
}

impl Call {
    /// Takes the answer, if there is one.
    fn look(&self) -> Option<Result<(), Failure>> {
        let mut answer = self.answer.lock().expect("no holder panics here");
        let targets = match &mut *answer {
            Answer::Taken(result) => return Some(result.clone()),
            Answer::Pending(pending) => pending.try_get()?,
        };
        let (targets, result) = match targets {
            Ok(targets) => (targets, Ok(())),
            Err(error) => (Vec::new(), Err(Failure::from(error))),
        };
        *answer = Answer::Taken(result.clone());
        drop(answer);
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

    pub fn call(
        pending: Pending<Vec<Target>>,
        loan: Arc<Loan>,
        connection: Arc<Connection>,
    ) -> Self {
        let call = Call {
            answered: pending.answered(),
            answer: Mutex::new(Answer::Pending(Box::new(pending))),
        };
        Self::new(Kind::Call(call, loan), connection)
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
            Kind::Call(call, loan) => {
                let result = call.look()?;
                loan.has_ended().then_some(result)
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
            Kind::Call(call, loan) => {
                call.answered.wait(left().unwrap_or(FOR_EVER));
                let result = call.look().ok_or_else(|| {
                    Failure::new(Code::Timeout, "timed out waiting for a read of data")
                })?;
                free(loan)?;
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
            // Nobody has to wait for it.
            Kind::Flush(..) => {}
            Kind::Pull(pull) => pull.cancel(),
            Kind::Call(call, _) => call.answered.cancel(),
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
            Kind::Call(call, _) => {
                let weak = Arc::downgrade(self);
                call.answered.on_done(Box::new(move || {
                    // The memory goes back when the answer is taken.
                    match weak.upgrade().as_deref().map(|inner| &inner.kind) {
                        Some(Kind::Call(call, loan)) => {
                            call.look();
                            loan.on_end(callback);
                        }
                        _ => callback(),
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
        let Kind::Push(push) = &future.kind else {
            return Err(Failure::invalid("only a push resolves to an id"));
        };
        future.result().ok_or_else(not_done)??;
        let stored = push.future.try_get().ok_or_else(not_done)??;
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
        let Kind::Pull(pull) = &given("future", future)?.0.kind else {
            return Err(Failure::invalid("only a pull resolves to an event"));
        };
        let event = given("event", event)?;
        pull.result().ok_or_else(not_done)??;
        let taken = pull
            .take()
            .ok_or_else(|| Failure::invalid("the event was taken already"))?;
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
