//! Between the threads that call the API and the one that runs the core:
//! commands one way, signs of life and counts the other.

use crate::clock::Clock;
use crate::completion::Resolver;
use crate::driving::{Driving, InlineSend, PassiveWaiter};
use crate::error::ClientError;
use crate::options::OnWaiting;
use crate::promise::{Answerer, Promise, Slot};
use bytes::Bytes;
use memory::{Deadline, Target};
use net::Notify;
use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::Duration;
use wire::message::{Lease, Method};
use wire::record::Position;
use wire::{PartitionIndex, TopicId};

/// A call as the API hands it over.
pub(crate) struct CallRequest {
    pub method: Method,
    pub topic: TopicId,
    /// The request's own fields, encoded.
    pub body: Vec<u8>,
    /// For [`Method::ReadData`]: memory to lend, whose regions follow the body.
    pub targets: Vec<Target>,
    /// What follows those regions, encoded.
    pub behind: Vec<u8>,
    /// For [`Method::AppendMirrored`]: the batch, and data to expose, whose regions follow the body.
    pub payload: Vec<Bytes>,
    pub exposed: Vec<Bytes>,
    pub timeout: Duration,
    /// How long before that the server is to have answered, if only to say what keeps it.
    pub grace: Duration,
    /// What is asked for, for errors.
    pub what: String,
    pub promise: Promise,
}

/// Whose seek a call is. Those of one partition are sent one behind the
/// answer to the other, so that one that is tried again does not undo a later one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seek {
    pub consumer: u64,
    pub partition: PartitionIndex,
}

/// What the API wants of the core.
pub(crate) enum Command {
    Call(CallRequest),
    /// A producer or consumer is opened: `opening` is a [`crate::core::Opening`].
    /// What is opened sends through the mailbox, which so lies below it and
    /// carries it without knowing it.
    Open {
        opening: Box<dyn Any + Send>,
        timeout: Duration,
        promise: Promise,
    },
    /// Nobody wants the answer to this call any more.
    Cancel(Arc<Slot>),
    /// A topic may have been altered: they are looked at soon.
    LookAtTopics,
    /// The producer has batches to look at.
    ProducerReady(u64),
    /// The producer's handle is gone and everything was flushed, or given up.
    CloseProducer(u64),
    /// That much of a partition's batches was taken by the consumer.
    Consumed {
        consumer: u64,
        partition: PartitionIndex,
        bytes: u64,
    },
    /// Reads a partition again from here, for a seek or after damage.
    Resubscribe {
        consumer: u64,
        partition: PartitionIndex,
        position: Position,
        promise: Option<Promise>,
    },
    /// The consumer has acknowledgements to send, when the interval is over.
    Acknowledge {
        consumer: u64,
    },
    /// Somebody waits until all acknowledgements are durable.
    FlushAcknowledgements {
        consumer: u64,
        timeout: Duration,
        promise: Promise,
    },
    /// A consumer's seek of a partition, which was counted among those that
    /// hold its acknowledgements.
    Seek {
        seek: Seek,
        call: CallRequest,
    },
    CloseConsumer(u64),
    /// The program has finished with partitions that its group takes away.
    Release {
        consumer: u64,
        partitions: Vec<PartitionIndex>,
    },
    /// The program is back at its group, and was notified that its member had left.
    RejoinGroup(u64),
    /// A queue's consumer has settlements to send.
    Settle(u64),
    /// A queue's consumer has settlements that nobody hurries for: they are to
    /// be looked at within a millisecond, and from then on until there are none.
    WatchSettlements(u64),
    /// A lease is to last as long as a new one.
    ExtendLease {
        queue: u64,
        lease: Lease,
        promise: Promise,
    },
    /// The program is back at its queue, and was notified that its member had left.
    RejoinQueue(u64),
    /// The consumer takes nothing new after that time, and leaves after that.
    WindDownQueue {
        queue: u64,
        stop_after: Duration,
        leave_after: Duration,
    },
    /// The consumer settles what is to be settled, and leaves.
    CloseQueue {
        queue: u64,
        timeout: Duration,
        promise: Option<Promise>,
    },
    /// The promise is to be resolved when all that was settled is durable.
    FlushQueue {
        queue: u64,
        promise: Promise,
    },
    /// The promise is to be resolved after that time.
    Alarm {
        after: Duration,
        promise: Promise,
    },
    /// A description of the topic with more partitions was seen.
    TopicGrew(TopicId),
    /// Close the connection and end.
    Close,
}

/// How often things happened; for tests and for `status`.
#[derive(Debug, Default)]
pub struct Counters {
    /// Messages sent.
    pub frames_sent: AtomicU64,
    /// Messages received.
    pub frames_received: AtomicU64,
    /// Heartbeats among the messages sent.
    pub heartbeats_sent: AtomicU64,
    /// Times that a command woke the driving thread.
    pub wakeups: AtomicU64,
    /// Batches sent, again ones included.
    pub batches_sent: AtomicU64,
    /// Batches acknowledged.
    pub batches_acknowledged: AtomicU64,
    /// Batches delivered.
    pub batches_delivered: AtomicU64,
    /// Connections that were established.
    pub connections: AtomicU64,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64) {
        // A count: nothing is ordered by it.
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// What is known of the peer, for error messages.
pub(crate) struct Liveness {
    clock: Arc<Clock>,
    state: Mutex<LivenessState>,
    /// Nanoseconds on the core's clock; 0 is never. Written by the core alone.
    heard_ns: AtomicU64,
}

#[derive(Default)]
struct LivenessState {
    address: String,
    connected: bool,
    /// Features of the server that was reached last.
    features: u64,
    /// Set while the server has been away for longer than the user will wait.
    lost: Option<ClientError>,
    /// How many connections the session has, where it may have several, and why the last further one was not opened.
    stripes: (usize, Option<String>),
}

impl Liveness {
    fn new(clock: Arc<Clock>) -> Self {
        Self {
            clock,
            state: Mutex::default(),
            heard_ns: AtomicU64::new(0),
        }
    }

    /// What is known of another node, by the same clock: nothing yet.
    pub fn of_another(&self) -> Self {
        Self::new(self.clock.clone())
    }

    fn lock(&self) -> MutexGuard<'_, LivenessState> {
        self.state.lock().expect("no holder panics here")
    }

    pub fn connected(&self, address: &str, features: u64) {
        let mut state = self.lock();
        state.features = features;
        state.address = address.to_owned();
        state.connected = true;
        state.lost = None;
        state.stripes = (0, None);
    }

    pub fn stripes(&self, count: usize) {
        self.lock().stripes.0 = count;
    }

    pub fn stripe_failed(&self, reason: &str) {
        self.lock().stripes.1 = Some(reason.to_owned());
    }

    /// How many connections the present session has; 0 where it has one and no other was asked for.
    pub fn stripe_count(&self) -> usize {
        self.lock().stripes.0
    }

    /// Where the server was reached last; empty if it never was.
    pub fn address(&self) -> String {
        self.lock().address.clone()
    }

    /// The features of the server that was reached last.
    pub fn features(&self) -> u64 {
        self.lock().features
    }

    /// How long nothing was heard, at `now` on the core's clock.
    pub fn silence(&self, now: Duration) -> Duration {
        let heard = self.heard_ns.load(Ordering::Relaxed);
        now.saturating_sub(Duration::from_nanos(heard))
    }

    pub fn disconnected(&self) {
        self.lock().connected = false;
    }

    pub fn lose(&self, error: ClientError) {
        self.lock().lost = Some(error);
    }

    pub fn lost(&self) -> Option<ClientError> {
        self.lock().lost.clone()
    }

    pub fn heard(&self, now: Duration) {
        self.heard_ns
            .store(now.as_nanos().max(1) as u64, Ordering::Relaxed);
    }

    /// Who was heard of when, at `now` on the core's clock.
    pub fn describe(&self, now: Duration) -> String {
        let state = self.lock();
        let heard = self.heard_ns.load(Ordering::Relaxed);
        let lost = state.lost.as_ref();
        let lost = lost.map_or_else(String::new, |error| format!(": {error}"));
        if heard == 0 || state.address.is_empty() {
            return format!("no server has answered yet{lost}");
        }
        let silence = now.saturating_sub(Duration::from_nanos(heard));
        let standing = if state.connected {
            "connected"
        } else {
            "not connected"
        };
        let stripes = match &state.stripes {
            (0, _) => String::new(),
            (count, None) => format!(", by {count} connections"),
            (count, Some(why)) => {
                format!(", by {count} connections; a further one could not be opened: {why}")
            }
        };
        format!(
            "{standing} to {}, last sign of life {:.1} s ago{stripes}{lost}",
            state.address,
            silence.as_secs_f64()
        )
    }

    /// The time on the core's clock.
    pub fn now(&self) -> Duration {
        self.clock.now()
    }

    /// [`Liveness::describe`] for callers' threads.
    pub fn describe_now(&self) -> String {
        self.describe(self.clock.now())
    }
}

/// What the API's handles and the core share.
pub(crate) struct Mailbox {
    /// Guards the commands; held for a push or a swap.
    commands: Mutex<Vec<Command>>,
    /// Whether there are any. Written under the lock; read without, by a thread that
    /// drives, who looks far more often than there are.
    has_some: AtomicBool,
    /// True while the driving thread may be asleep. Set by it before it
    /// looks at the commands a last time; taken by the thread that wakes it.
    asleep: AtomicBool,
    waker: OnceLock<Notify>,
    /// Who drives the core; nobody where a simulation does. The session owns it.
    driving: OnceLock<Weak<dyn Driving>>,
    next_key: AtomicU64,
    /// Hears what pulls without a deadline wait for. The user's.
    on_waiting: OnceLock<Arc<OnWaiting>>,
    /// Set when the core has ended; nothing is answered any more.
    ended: OnceLock<ClientError>,
    /// Of the node that the endpoint names.
    pub liveness: Arc<Liveness>,
    pub counters: Arc<Counters>,
}

impl Mailbox {
    pub fn new(clock: Clock) -> Arc<Self> {
        Arc::new(Self {
            commands: Mutex::default(),
            has_some: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            waker: OnceLock::new(),
            driving: OnceLock::new(),
            next_key: AtomicU64::new(1),
            on_waiting: OnceLock::new(),
            ended: OnceLock::new(),
            liveness: Arc::new(Liveness::new(Arc::new(clock))),
            counters: Arc::default(),
        })
    }

    /// The clock of the core, which callers' threads read as well.
    pub fn clock(&self) -> &Clock {
        &self.liveness.clock
    }

    /// Who hears what pulls without a deadline wait for.
    pub fn set_on_waiting(&self, on_waiting: Arc<OnWaiting>) {
        // There is one of a session.
        let _ = self.on_waiting.set(on_waiting);
    }

    pub fn on_waiting(&self) -> Option<&Arc<OnWaiting>> {
        self.on_waiting.get()
    }

    /// A number for a producer or consumer, for the core's maps.
    pub fn next_key(&self) -> u64 {
        self.next_key.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether the calling thread may wait for the core: not in a callback on
    /// the runtime's own thread, and not where a simulation drives the core.
    pub fn can_wait(&self) -> bool {
        self.driving().is_some_and(|driving| driving.can_wait())
    }

    /// Who drives the core from now on.
    pub fn set_driving(&self, driving: Weak<dyn Driving>) {
        // There is one of a session.
        let _ = self.driving.set(driving);
    }

    fn driving(&self) -> Option<Arc<dyn Driving>> {
        self.driving.get()?.upgrade()
    }

    /// Whether callers alone drive the core: there is no thread for it.
    pub fn is_driven_by_callers(&self) -> bool {
        self.driving()
            .is_some_and(|driving| driving.is_by_callers())
    }

    /// Waits for `done` by driving; false if `deadline` passes before. An error
    /// if another thread drives: that one reports it, and is to know for how long
    /// somebody waits.
    pub fn drive(
        &self,
        deadline: Deadline,
        mut done: impl FnMut() -> bool,
    ) -> Result<bool, PassiveWaiter> {
        match self.driving() {
            Some(driving) => driving.drive(deadline, &mut done),
            None => Err(PassiveWaiter::uncounted()),
        }
    }

    /// Something was reported that somebody may wait for. Where that was not by
    /// the driving thread, who waits may be the one who drives, and asleep.
    pub fn notify(&self) {
        // Either this sees that he sleeps, or he, who looks again after he has
        // said so, what was reported.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::SeqCst) {
            self.wake();
        }
    }

    /// Sends what was gathered at once, on this thread; false if it is to be
    /// asked for by a command.
    pub fn send_inline(&self, what: InlineSend) -> bool {
        self.driving()
            .is_some_and(|driving| driving.send_inline(what))
    }

    /// Sends a queue's settlements: at once, if nobody else drives.
    pub fn send_settlements(&self, queue: u64) {
        if !self.send_inline(InlineSend::Settlements(queue)) {
            self.send(Command::Settle(queue));
        }
    }

    /// Wakes the thread that drives, or is to drive.
    pub fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker();
        }
        if let Some(driving) = self.driving() {
            driving.wake();
        }
    }

    pub fn set_waker(&self, waker: Notify) {
        // A second one would be of a second runtime, which nobody makes.
        let _ = self.waker.set(waker);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Command>> {
        self.commands.lock().expect("no holder panics here")
    }

    /// Queues a command and wakes the runtime if it sleeps.
    pub fn send(&self, command: Command) {
        let mut commands = self.lock();
        if let Some(error) = self.ended.get() {
            drop(commands);
            refuse(command, error);
            return;
        }
        commands.push(command);
        // Before `asleep` is looked at, as he who sleeps does it the other way round.
        self.has_some.store(true, Ordering::SeqCst);
        drop(commands);
        if self.asleep.swap(false, Ordering::SeqCst) {
            Counters::add(&self.counters.wakeups);
            self.wake();
        }
    }

    /// Whether there are commands to be taken.
    pub fn has_commands(&self) -> bool {
        self.has_some.load(Ordering::SeqCst)
    }

    /// Takes all commands.
    pub fn take(&self, into: &mut Vec<Command>) {
        debug_assert!(into.is_empty());
        if !self.has_commands() {
            return;
        }
        let mut commands = self.lock();
        self.has_some.store(false, Ordering::SeqCst);
        std::mem::swap(&mut *commands, into);
    }

    /// The driving thread is about to sleep, and looks a last time at what it
    /// waits for after this. False if there is something to do.
    pub fn fall_asleep(&self) -> bool {
        self.asleep.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if !self.has_commands() {
            return true;
        }
        self.asleep.store(false, Ordering::SeqCst);
        false
    }

    pub fn wake_up(&self) {
        self.asleep.store(false, Ordering::SeqCst);
    }

    /// Nothing is answered from now on, and what was asked is refused.
    pub fn end(&self, error: ClientError) {
        let mut commands = self.lock();
        let _ = self.ended.set(error.clone());
        let waiting = std::mem::take(&mut *commands);
        self.has_some.store(false, Ordering::SeqCst);
        drop(commands);
        for command in waiting {
            refuse(command, &error);
        }
    }

    pub fn ended(&self) -> Option<&ClientError> {
        self.ended.get()
    }
}

impl Resolver for Mailbox {
    fn drive(
        &self,
        deadline: Deadline,
        done: &mut dyn FnMut() -> bool,
    ) -> Result<bool, PassiveWaiter> {
        Self::drive(self, deadline, done)
    }

    fn notify(&self) {
        Self::notify(self);
    }

    fn ended(&self) -> Option<ClientError> {
        self.ended.get().cloned()
    }
}

impl Answerer for Mailbox {
    fn cancel(&self, slot: Arc<Slot>) {
        self.send(Command::Cancel(slot));
    }
}

fn refuse(command: Command, error: &ClientError) {
    let promise = match command {
        Command::Call(call) | Command::Seek { call, .. } => Some(call.promise),
        Command::Open { promise, .. }
        | Command::FlushAcknowledgements { promise, .. }
        | Command::ExtendLease { promise, .. }
        | Command::FlushQueue { promise, .. }
        | Command::Alarm { promise, .. } => Some(promise),
        Command::Resubscribe { promise, .. } | Command::CloseQueue { promise, .. } => promise,
        Command::Settle(_)
        | Command::WatchSettlements(_)
        | Command::RejoinQueue(_)
        | Command::WindDownQueue { .. }
        | Command::RejoinGroup(_)
        | Command::Release { .. } => None,
        Command::Cancel(slot) => {
            slot.resolve(Err(error.clone()));
            None
        }
        Command::Acknowledge { .. }
        | Command::LookAtTopics
        | Command::ProducerReady(_)
        | Command::CloseProducer(_)
        | Command::Consumed { .. }
        | Command::CloseConsumer(_)
        | Command::TopicGrew(_)
        | Command::Close => None,
    };
    if let Some(promise) = promise {
        promise.resolve(Err(error.clone()));
    }
}
