//! A driver's connection in one process: the mailbox, the runtime's thread,
//! the memory that producers and consumers share.

use crate::batch_queue::ProducerShared;
use crate::clock::Clock;
use crate::copies::CopyMemory;
use crate::core::ClientCore;
use crate::driving::{Simulated, SimulatedWait};
use crate::error::ClientError;
use crate::mailbox::{CallRequest, Command, Mailbox};
use crate::options::{DriverOptions, Endpoint, Progress};
use crate::promise::{Pending, Promise, Reply};
use crate::queue::QueueFeed;
use crate::runtime::{CallerRuns, DriverLock, Runtime};
use crate::threads::Threads;
use bytes::Bytes;
use memory::thread::JoinHandle;
use memory::{Budget, Deadline, Reservation, Target};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use std::time::{Duration, Instant};
use wire::message::Method;
use wire::{SessionId, TopicId};

/// The least share of the driver's memory that a producer or consumer has,
/// however small that memory is.
const SHARE_BYTES_MIN: u64 = 64 << 10;

/// The most that it has beyond the bound.
const SHARE_BYTES_LEAST_MAX: u64 = 1 << 20;

/// The longest body of a request, its memory regions aside: what a frame's head has
/// space for besides.
const BODY_BYTES_MAX: usize = wire::frame::HEAD_BYTES_MAX as usize - (64 << 10);

/// Bytes of what a call is for that errors have, if that is a name without end.
const WHAT_BYTES_MAX: usize = 200;

fn shortened(what: &str) -> &str {
    let mut end = what.len().min(WHAT_BYTES_MAX);
    while !what.is_char_boundary(end) {
        end -= 1;
    }
    &what[..end]
}

/// What a process has of a driver.
pub(crate) struct Session {
    id: SessionId,
    pub mailbox: Arc<Mailbox>,
    memory: Budget,
    /// For data that producers copy.
    pub copies: CopyMemory,
    /// Every producer, to be drained at close.
    producers: Mutex<Vec<(Weak<ProducerShared>, Weak<Threads>)>>,
    /// Every consumer of a queue, whose settlements are waited for at close.
    queues: Mutex<Vec<Weak<QueueFeed>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// By which threads that wait drive, where the client has one of its own.
    driver_lock: Option<Arc<DriverLock>>,
    /// What callers drive, where there is no thread.
    caller_runs: Option<Arc<CallerRuns>>,
    /// By what threads wait in a simulation.
    simulated: OnceLock<Arc<Simulated>>,
}

/// What is asked of the server, by a call.
pub(crate) struct Call {
    pub timeout: Duration,
    /// As [`CallRequest::grace`].
    pub grace: Duration,
    pub method: Method,
    pub topic: TopicId,
    pub body: Vec<u8>,
    pub targets: Vec<Target>,
    /// As [`CallRequest::behind`].
    pub behind: Vec<u8>,
    /// As [`CallRequest::payload`].
    pub payload: Vec<Bytes>,
    /// As [`CallRequest::exposed`].
    pub exposed: Vec<Bytes>,
    pub what: String,
}

impl Session {
    /// Connects, on a thread of its own.
    pub fn connect(endpoint: &Endpoint, options: &DriverOptions) -> Result<Self, ClientError> {
        let mut id = [0; 16];
        getrandom::fill(&mut id).map_err(|error| {
            ClientError::io("choosing a session id", std::io::Error::other(error))
        })?;
        let epoch = Instant::now();
        let session_id = SessionId(u128::from_le_bytes(id));
        let (mut session, core, connected) =
            Self::without_thread(endpoint, options, session_id, Clock::since(epoch));
        let runtime = Runtime::new(core, &session.mailbox, options, epoch)?;
        match options.progress {
            Progress::Thread => {
                let (driver, thread) = DriverLock::start(runtime, &session.mailbox)?;
                let driving: Weak<DriverLock> = Arc::downgrade(&driver);
                session.mailbox.set_driving(driving);
                session.driver_lock = Some(driver);
                *session.thread.lock().expect("no holder panics here") = Some(thread);
            }
            Progress::Caller => {
                let caller_runs = Arc::new(CallerRuns::new(runtime));
                let driving: Weak<CallerRuns> = Arc::downgrade(&caller_runs);
                session.mailbox.set_driving(driving);
                session.caller_runs = Some(caller_runs);
            }
        }
        let what = format!("a connection to {endpoint}");
        Pending::new(connected, what, options.connect_within(), |_| Ok(())).wait()?;
        Ok(session)
    }

    /// A session whose core somebody else runs.
    pub fn without_thread(
        endpoint: &Endpoint,
        options: &DriverOptions,
        id: SessionId,
        clock: Clock,
    ) -> (Self, ClientCore, Promise) {
        let mailbox = Mailbox::new(clock);
        if let Some(on_waiting) = &options.on_waiting {
            mailbox.set_on_waiting(on_waiting.clone());
        }
        let connected = Promise::new(&mailbox);
        let copies = CopyMemory::new(&options.transports);
        let core = ClientCore::new(
            endpoint.clone(),
            options,
            id,
            mailbox.clone(),
            copies.clone(),
            connected.clone(),
        );
        let session = Self {
            id,
            mailbox,
            memory: Budget::new("the driver's memory_bytes_max", options.memory_bytes_max),
            copies,
            producers: Mutex::default(),
            queues: Mutex::default(),
            thread: Mutex::default(),
            driver_lock: None,
            caller_runs: None,
            simulated: OnceLock::new(),
        };
        (session, core, connected)
    }

    /// Threads wait by this, in a simulation.
    pub fn waits_by(&self, wait: Arc<dyn SimulatedWait>) {
        let simulated = self.simulated.get_or_init(|| Arc::new(Simulated(wait)));
        let driving: Weak<Simulated> = Arc::downgrade(simulated);
        self.mailbox.set_driving(driving);
    }

    /// A share of the driver's memory: what is wanted, or a quarter of what is
    /// left if that is less. Where little is left it is a 512th of all, be it
    /// there or not: many producers and consumers are no error.
    pub fn share(&self, wanted: u64) -> Reservation {
        let least = (self.memory.limit() / 512).clamp(SHARE_BYTES_MIN, SHARE_BYTES_LEAST_MAX);
        self.memory.take(|left| wanted.min(least.max(left / 4)))
    }

    /// What a producer's random choices begin with: chance, or in a
    /// simulation what stands for it.
    pub fn seed(&self) -> u64 {
        (self.id.0 ^ (self.id.0 >> 64)) as u64 ^ self.mailbox.next_key().rotate_left(32)
    }

    /// Names the client across its connections.
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// What the ids of a group's or queue's member are made from, alike.
    pub fn member_seed(&self) -> u128 {
        self.id.0 ^ u128::from(self.mailbox.next_key()) << 64
    }

    pub fn register(&self, producer: &Arc<ProducerShared>, threads: Option<&Arc<Threads>>) {
        let mut producers = self.producers.lock().expect("no holder panics here");
        producers.retain(|(producer, _)| producer.strong_count() > 0);
        let threads = threads.map_or_else(Weak::new, Arc::downgrade);
        producers.push((Arc::downgrade(producer), threads));
    }

    pub fn register_queue(&self, queue: &Arc<QueueFeed>) {
        let mut queues = self.queues.lock().expect("no holder panics here");
        queues.retain(|queue| queue.strong_count() > 0);
        queues.push(Arc::downgrade(queue));
    }

    #[allow(clippy::too_many_arguments)]
    pub fn begin_call<T>(
        &self,
        timeout: Duration,
        method: Method,
        topic: TopicId,
        body: Vec<u8>,
        targets: Vec<Target>,
        what: String,
        convert: impl FnOnce(Reply) -> Result<T, ClientError> + Send + 'static,
    ) -> Pending<T> {
        let call = Call {
            timeout,
            grace: Duration::ZERO,
            method,
            topic,
            body,
            targets,
            behind: Vec::new(),
            payload: Vec::new(),
            exposed: Vec::new(),
            what,
        };
        self.begin(call, convert)
    }

    /// [`Session::begin_call`], of a call that is there already.
    pub fn begin<T>(
        &self,
        call: Call,
        convert: impl FnOnce(Reply) -> Result<T, ClientError> + Send + 'static,
    ) -> Pending<T> {
        let Call {
            timeout,
            grace,
            method,
            topic,
            body,
            targets,
            behind,
            payload,
            exposed,
            what,
        } = call;
        if body.len() + behind.len() > BODY_BYTES_MAX {
            return Pending::failed(ClientError::Invalid(format!(
                "asking for {} takes {} bytes; a request has {BODY_BYTES_MAX} at most",
                shortened(&what),
                body.len() + behind.len()
            )));
        }
        let promise = Promise::new(&self.mailbox);
        let pending = Pending::new(promise.clone(), what.clone(), timeout, convert);
        self.mailbox.send(Command::Call(CallRequest {
            method,
            topic,
            body,
            targets,
            behind,
            payload,
            exposed,
            timeout,
            grace,
            what,
            promise,
        }));
        pending
    }

    /// Waits until every producer is drained, and then until everything that
    /// was settled is durable: replies settle when they are stored. A handle that
    /// its owner closes meanwhile, or has closed, is done: its futures, and the
    /// owner's own `close`, say what came of the rest.
    pub fn drain(&self, timeout: Duration) -> Result<(), ClientError> {
        let deadline = Deadline::after(timeout);
        let producers: Vec<_> = self
            .producers
            .lock()
            .expect("no holder panics here")
            .iter()
            .filter_map(|(producer, threads)| Some((producer.upgrade()?, threads.upgrade())))
            .collect();
        // All are sent before one is waited for.
        let flush = |(producer, threads): &(Arc<ProducerShared>, Option<Arc<Threads>>)| {
            match threads {
                // Threads that have ended have put everything into batches.
                None => producer.flush(),
                Some(threads) => threads.flush(producer),
            }
        };
        let flushes: Vec<_> = producers.iter().map(flush).collect();
        let mut result = Ok(());
        for flush in flushes {
            result = result.and(self.unless_given_up(flush.wait(deadline.left())));
        }
        let queues = std::mem::take(&mut *self.queues.lock().expect("no holder panics here"));
        let queues: Vec<_> = queues.iter().filter_map(Weak::upgrade).collect();
        let flushes = queues.iter().map(|queue| queue.begin_flush(timeout));
        for mut flush in flushes.collect::<Vec<_>>() {
            let flushed = flush.wait_for(Some(deadline.left())).unwrap_or_else(|| {
                let what = "what was settled to be durable".to_owned();
                Err(ClientError::Timeout { what })
            });
            result = result.and(self.unless_given_up(flushed));
        }
        result
    }

    /// While the driver is open, a handle is closed by its owner alone.
    fn unless_given_up(&self, outcome: Result<(), ClientError>) -> Result<(), ClientError> {
        match outcome {
            Err(ClientError::Closed) if self.mailbox.ended().is_none() => Ok(()),
            outcome => outcome,
        }
    }

    /// Ends the connection and the thread.
    pub fn close(&self) {
        self.mailbox.send(Command::Close);
        self.join();
    }

    /// What callers drive.
    ///
    /// # Errors
    /// [`ClientError::Invalid`] if a thread does.
    pub fn caller_runs(&self) -> Result<&CallerRuns, ClientError> {
        self.caller_runs.as_deref().ok_or_else(|| {
            ClientError::Invalid(
                "the driver has a thread of its own: progress is not caller".into(),
            )
        })
    }

    fn join(&self) {
        if let Some(caller_runs) = &self.caller_runs {
            return caller_runs.finish();
        }
        let thread = self.thread.lock().expect("no holder panics here").take();
        // A callback on the runtime's own thread may drop the last handle.
        if let Some(thread) = thread
            && !thread.is_current()
        {
            let _ = thread.join();
        }
    }
}

/// Closes the runtime, wherever the last handle goes.
impl Drop for Session {
    fn drop(&mut self) {
        self.close();
    }
}
