//! A producer's threads: they validate and serialize what is pushed, so that
//! the thread that pushes only copies.
//!
//! A push becomes a job with a number. With [`Ordering::Strict`] what the
//! threads are done with waits until all before it are in their batches; one
//! thread at a time puts what is ready there, in the order of the numbers.
//! With [`Ordering::Loose`] each thread does so by itself. Jobs have a budget
//! of their own, a part of the producer's: a thread that waits for space in the
//! producer's budget so never waits for what only threads can free.

use crate::batch_queue::{Checked, ProducerShared};
use crate::error::ClientError;
use crate::event::{Data, Event, Lent};
use crate::future::{
    BatchPromise, CANCELLED, Deferred, FlushFuture, PUTTING, PushFuture, Stored, when_all,
};
use crate::losses::is_drop;
use crate::options::{AtBudget, Ordering};
use memory::{Budget, Deadline, Reservation};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// What a job costs besides its bytes.
const JOB_OVERHEAD_BYTES: u64 = 256;

/// What the threads of one producer share.
pub(crate) struct Threads {
    ordering: Ordering,
    budget: Budget,
    state: Mutex<State>,
    /// Signalled when there is a job, or there will be no more.
    work: Condvar,
}

/// Locked for moments only: not while a plugin runs, nor while a thread waits
/// for space.
#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    /// The number of the next job.
    next: u64,
    /// Strict: jobs that are done with, by number, whose turn has not come.
    ready: BTreeMap<u64, Done>,
    /// Strict: whether a thread is putting what is ready into batches.
    putting: bool,
    /// All jobs below this number are in their batches, or have failed.
    passed: u64,
    /// Loose: those above that are, too.
    passed_beyond: BTreeSet<u64>,
    /// Flushes, by the number that must be passed first.
    flushes: VecDeque<(u64, Arc<BatchPromise>)>,
    closed: bool,
}

/// An event on its way through the threads.
struct Job {
    number: u64,
    metadata: Vec<u8>,
    data: Data,
    lent: Vec<Arc<Lent>>,
    key: Option<Vec<u8>>,
    headers: Vec<(String, Vec<u8>)>,
    producer_time: Option<u64>,
    partition: Option<u32>,
    tombstone: bool,
    promise: Arc<BatchPromise>,
    _reservation: Reservation,
}

/// A job with its serialized metadata, or why it is refused.
struct Done {
    job: Job,
    /// And the steps that judging it took.
    serialized: Result<(Serialized, u64), ClientError>,
}

enum Serialized {
    AsItIs,
    To(Vec<u8>),
}

impl Threads {
    /// Starts the threads of a producer. `budget_bytes` is what jobs may hold.
    pub fn start(
        producer: &Arc<ProducerShared>,
        budget_bytes: u64,
    ) -> Result<Arc<Self>, ClientError> {
        let threads = Arc::new(Self {
            ordering: producer.options.ordering,
            budget: Budget::new("the part of budget_bytes for threads", budget_bytes),
            state: Mutex::default(),
            work: Condvar::new(),
        });
        for index in 0..producer.options.threads {
            let (own, producer) = (threads.clone(), producer.clone());
            let name = format!("thalweg-push-{index}");
            let started = memory::thread::spawn(&name, move || own.run(&producer));
            if let Err(error) = started {
                threads.close();
                return Err(ClientError::io("starting a thread of a producer", error));
            }
        }
        Ok(threads)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics here")
    }

    /// Takes an event over.
    pub fn push(
        &self,
        producer: &ProducerShared,
        event: &Event<'_>,
        at_budget: AtBudget,
    ) -> Result<PushFuture, ClientError> {
        if let Some(failure) = producer.failure() {
            return Err(failure);
        }
        let headers = event.headers.iter();
        let header_bytes: usize = headers.map(|(name, value)| name.len() + value.len()).sum();
        let key_bytes = event.key.map_or(0, <[u8]>::len);
        let bytes = event.metadata.len() + header_bytes + key_bytes;
        let cost = bytes as u64 + event.data_bytes() + JOB_OVERHEAD_BYTES;
        let reservation = match at_budget {
            AtBudget::Fail => self.budget.try_reserve(cost)?,
            AtBudget::Block(timeout) => {
                let full = |error: memory::BudgetError| ClientError::Timeout {
                    what: format!("space for an event of {}: {error}", producer.topic.name),
                };
                let reserved = self.budget.reserve(cost, Deadline::after(timeout));
                reserved.map_err(full)?
            }
        };
        let promise = producer.promise_of_threads(Some(Deferred::new(producer.key)));
        let mut data = event.data.clone();
        if !event.copied.is_empty() {
            data.push(producer.copy(event.copied));
        }
        let owned = |(name, value): &(&str, &[u8])| (name.to_string(), value.to_vec());
        let mut job = Job {
            number: 0,
            metadata: event.metadata.to_vec(),
            data,
            lent: producer.lent(event),
            key: event.key.map(<[u8]>::to_vec),
            headers: event.headers.iter().map(owned).collect(),
            producer_time: event.producer_time,
            partition: event.partition,
            tombstone: event.tombstone,
            promise: promise.clone(),
            _reservation: reservation,
        };
        let mut state = self.lock();
        if state.closed {
            return Err(ClientError::Closed);
        }
        job.number = state.next;
        state.next += 1;
        state.jobs.push_back(job);
        drop(state);
        self.work.notify_one();
        Ok(PushFuture {
            batch: promise,
            index: 0,
        })
    }

    /// Resolves when everything that was pushed before is acknowledged. Batches
    /// that gather then are closed.
    pub fn flush(&self, producer: &Arc<ProducerShared>) -> FlushFuture {
        let promise = producer.promise_of_threads(None);
        let mut state = self.lock();
        let number = state.next;
        if state.passed == number {
            drop(state);
            flush_queue(producer, promise.clone());
        } else {
            state.flushes.push_back((number, promise.clone()));
        }
        producer.flush_of(vec![promise])
    }

    /// Takes an event back: before it is in a batch, or out of that. False if
    /// it is too late, or a thread is just putting it there.
    pub fn cancel(&self, producer: &ProducerShared, future: &PushFuture) -> bool {
        let promise = &future.batch;
        if promise.partition().is_some() {
            return producer.cancel(future);
        }
        let ours = |deferred: &&Deferred| deferred.producer == producer.key;
        let Some(deferred) = promise.deferred().filter(ours) else {
            return false;
        };
        if !deferred.take(CANCELLED) {
            return deferred.put.get().is_some_and(|put| producer.cancel(put));
        }
        // Its job goes its way, empty: others may wait for its turn.
        let is_it = |job: &Job| Arc::ptr_eq(&job.promise, promise);
        let mut state = self.lock();
        let waiting = state.jobs.iter_mut().find(|job| is_it(job));
        let data = match waiting {
            Some(job) => std::mem::take(&mut job.data),
            None => {
                let mut ready = state.ready.values_mut().map(|done| &mut done.job);
                let job = ready.find(|job| is_it(job));
                job.map(|job| std::mem::take(&mut job.data))
                    .unwrap_or_default()
            }
        };
        drop(state);
        // The event's memory is the user's again, whose code this may call.
        drop(data);
        promise.resolve(Err(ClientError::Cancelled));
        true
    }

    /// Whether no job is under way.
    pub fn is_drained(&self) -> bool {
        let state = self.lock();
        state.passed == state.next
    }

    /// The threads end once they are done with what they have.
    pub fn close(&self) {
        self.lock().closed = true;
        self.work.notify_all();
    }

    fn run(&self, producer: &Arc<ProducerShared>) {
        loop {
            let mut state = self.lock();
            let job = loop {
                match state.jobs.pop_front() {
                    Some(job) => break job,
                    None if state.closed => return,
                    None => state = self.work.wait(state).expect("no holder panics here"),
                }
            };
            drop(state);
            let mut out = Vec::new();
            // They promise not to panic; if one does, its event is refused
            // and the others are not kept waiting.
            let checked = catch_unwind(AssertUnwindSafe(|| {
                let checked = producer.check(&job.metadata, &mut out)?;
                let is_as_it_is = std::ptr::eq(checked.metadata, &raw const job.metadata[..]);
                Ok((is_as_it_is, checked.steps))
            }));
            let serialized = match checked {
                Ok(Ok((true, steps))) => Ok((Serialized::AsItIs, steps)),
                Ok(Ok((false, steps))) => Ok((Serialized::To(out), steps)),
                Ok(Err(error)) => Err(error),
                Err(_) => Err(ClientError::Invalid(
                    "the topic's validator or serializer panicked".to_owned(),
                )),
            };
            let done = Done { job, serialized };
            match self.ordering {
                Ordering::Loose => {
                    let number = done.job.number;
                    put(producer, done);
                    self.passed(producer, self.lock(), number);
                }
                Ordering::Strict => self.put_in_order(producer, done),
            }
        }
    }

    /// Leaves a job for its turn, and puts all whose turn has come into
    /// batches, unless another thread is at it: that one looks again.
    fn put_in_order(&self, producer: &Arc<ProducerShared>, done: Done) {
        let mut state = self.lock();
        state.ready.insert(done.job.number, done);
        if state.putting {
            return;
        }
        state.putting = true;
        loop {
            let number = state.passed;
            let Some(done) = state.ready.remove(&number) else {
                state.putting = false;
                return;
            };
            drop(state);
            put(producer, done);
            self.passed(producer, self.lock(), number);
            state = self.lock();
        }
    }

    /// A job is in its batch: flushes that waited for it go on.
    fn passed(
        &self,
        producer: &Arc<ProducerShared>,
        mut state: MutexGuard<'_, State>,
        number: u64,
    ) {
        state.passed_beyond.insert(number);
        loop {
            let passed = state.passed;
            if !state.passed_beyond.remove(&passed) {
                break;
            }
            state.passed += 1;
        }
        let mut flushes = Vec::new();
        while let Some((until, _)) = state.flushes.front()
            && *until <= state.passed
        {
            flushes.extend(state.flushes.pop_front());
        }
        drop(state);
        for (_, promise) in flushes {
            flush_queue(producer, promise);
        }
    }
}

/// Puts an event into its batch. Its promise is resolved when that is.
fn put(producer: &ProducerShared, done: Done) {
    let Done { job, serialized } = done;
    let deferred = job.promise.deferred().expect("a job is of one event");
    if !deferred.take(PUTTING) {
        return;
    }
    let headers: Vec<(&str, &[u8])> = job
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_slice()))
        .collect();
    let event = Event {
        metadata: &job.metadata,
        data: job.data,
        copied: &[],
        key: job.key.as_deref(),
        headers: &headers,
        producer_time: job.producer_time,
        partition: job.partition,
        tombstone: job.tombstone,
    };
    let pushed = serialized.and_then(|(serialized, steps)| {
        let metadata = match &serialized {
            Serialized::AsItIs => &job.metadata[..],
            Serialized::To(bytes) => bytes,
        };
        let checked = Checked { metadata, steps };
        producer.push_checked(&event, checked, &job.lent, producer.at_budget())
    });
    let promise = job.promise;
    match pushed {
        Err(error) => promise.resolve(Err(error)),
        Ok(future) => {
            let known = future.clone();
            if let Some(deferred) = promise.deferred() {
                // Put once, by the thread that has taken it.
                let _ = deferred.put.set(future.clone());
            }
            let resolved = Box::new(move || {
                let outcome = known.try_get().expect("called when it is known");
                promise.resolve(outcome.map(|id| Stored {
                    partition: id.partition,
                    incarnation: id.incarnation,
                    base_offset: id.offset,
                }));
            });
            future.batch.on_done(future.index, resolved);
        }
    }
}

/// Closes what gathers; the promise is resolved when all of it is acknowledged.
fn flush_queue(producer: &Arc<ProducerShared>, promise: Arc<BatchPromise>) {
    let last = producer.close_batches();
    let batches = last.clone();
    let resolve = move || {
        let failed = last.iter().find_map(|batch| match batch.outcome() {
            Some(Err(error)) if !is_drop(error) => Some(error.clone()),
            _ => None,
        });
        promise.resolve(match failed {
            Some(error) => Err(error),
            None => Ok(Stored::nowhere()),
        });
    };
    when_all(&batches, Box::new(resolve));
}
