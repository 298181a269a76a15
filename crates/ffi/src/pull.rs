//! Pulls that are begun and not waited for, in the order in which they were.
//!
//! Events go to the pulls in the order of the pulls, whoever waits for which:
//! one thread at a time takes an event for the first of them. A pull that is
//! given up leaves its event to the next.

use crate::driver::Connection;
use crate::error::{Code, Failure};
use client::{ConsumedEvent, Patience, Pulled};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

/// How long a wait may go without a look: news that a wait misses for want of
/// a notification is seen then.
const LOOK_EVERY: Duration = Duration::from_secs(1);

type Callback = Box<dyn FnOnce() + Send>;

/// What has become of a pull.
enum Outcome {
    Event(Box<Numbered>),
    Failure(Failure),
    Taken,
}

/// An event, and how many the consumer gave before it.
struct Numbered {
    number: u64,
    event: ConsumedEvent,
}

/// One pull.
pub struct Pull {
    /// Guards what became of it. Taken within the queue's lock, never around it.
    state: Mutex<State>,
    pulls: Weak<Pulls>,
}

#[derive(Default)]
struct State {
    outcome: Option<Outcome>,
    callback: Option<Callback>,
}

/// The pulls of one consumer.
pub struct Pulls {
    consumer: Arc<client::Consumer>,
    connection: Arc<Connection>,
    queue: Mutex<Queue>,
    /// Signalled when a pull was served, and when there may be an event.
    changed: Condvar,
    /// How many are in the queue or to spare: 0 lets a plain pull go directly.
    count: AtomicUsize,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Arc<Pull>>,
    /// Events of pulls that were given up, by their numbers: in whatever order
    /// that happens, they are handed out in theirs.
    spare: BTreeMap<u64, ConsumedEvent>,
    /// Events that the consumer gave.
    taken: u64,
    /// A thread takes an event.
    is_serving: bool,
    /// Counts the consumer's news.
    news: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no holder panics here")
}

impl Pulls {
    pub fn new(consumer: Arc<client::Consumer>, connection: Arc<Connection>) -> Arc<Self> {
        Arc::new(Self {
            consumer,
            connection,
            queue: Mutex::default(),
            changed: Condvar::new(),
            count: AtomicUsize::new(0),
        })
    }

    fn count(&self, queue: &Queue) {
        let count = queue.waiting.len() + queue.spare.len();
        self.count.store(count, Ordering::Relaxed);
    }

    /// Whether a plain pull may go directly to the consumer.
    pub fn is_idle(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Begins a pull.
    pub fn begin(self: &Arc<Self>) -> Arc<Pull> {
        let pull = Arc::new(Pull {
            state: Mutex::default(),
            pulls: Arc::downgrade(self),
        });
        let mut queue = lock(&self.queue);
        queue.waiting.push_back(pull.clone());
        self.count(&queue);
        pull
    }

    /// The consumer may have something new to say.
    pub fn news(self: &Arc<Self>) {
        let mut queue = lock(&self.queue);
        queue.news += 1;
        // Whoever has a callback does not wait, so this thread serves.
        let is_awaited = queue
            .waiting
            .iter()
            .any(|pull| lock(&pull.state).callback.is_some());
        drop(queue);
        self.changed.notify_all();
        if is_awaited {
            self.serve();
        }
    }

    /// Gives the events that are there to the pulls that wait.
    fn serve(&self) {
        let mut queue = lock(&self.queue);
        while !queue.waiting.is_empty() && !queue.is_serving {
            let news = queue.news;
            let taken;
            (queue, taken) = self.take(queue);
            let was_there = taken.is_some();
            if let Some(outcome) = taken {
                queue = self.give(queue, outcome);
            }
            if !was_there && queue.news == news {
                return;
            }
        }
    }

    /// Looks for the next event, with the queue unlocked.
    fn take<'a>(
        &'a self,
        mut queue: MutexGuard<'a, Queue>,
    ) -> (MutexGuard<'a, Queue>, Option<Outcome>) {
        if let Some((number, event)) = queue.spare.pop_first() {
            let spare = Numbered { number, event };
            return (queue, Some(Outcome::Event(Box::new(spare))));
        }
        queue.is_serving = true;
        drop(queue);
        // A future waits: while the server is away it is not resolved.
        let patience = Patience::within(None);
        let pulled = self.consumer.pull_look(1, &patience, Duration::ZERO);
        let mut queue = lock(&self.queue);
        queue.is_serving = false;
        let outcome = match pulled {
            Ok(Pulled::Events(events)) => events.into_iter().next().map(|event| {
                let number = queue.taken;
                queue.taken += 1;
                Outcome::Event(Box::new(Numbered { number, event }))
            }),
            Ok(Pulled::Nothing | Pulled::NotYet) => None,
            Err(error) => Some(Outcome::Failure(error.into())),
        };
        (queue, outcome)
    }

    /// Resolves the first pull.
    fn give<'a>(
        &'a self,
        mut queue: MutexGuard<'a, Queue>,
        outcome: Outcome,
    ) -> MutexGuard<'a, Queue> {
        let callback = match (queue.waiting.pop_front(), outcome) {
            (Some(pull), outcome) => pull.resolve(outcome),
            (None, Outcome::Event(taken)) => {
                queue.spare.insert(taken.number, taken.event);
                None
            }
            // It comes again with the next pull.
            (None, _) => None,
        };
        self.count(&queue);
        self.changed.notify_all();
        match callback {
            None => queue,
            Some(callback) => {
                drop(queue);
                callback();
                lock(&self.queue)
            }
        }
    }

    /// Takes events of pulls that were given up, for a pull of many; none
    /// where they are of pulls that were begun before.
    pub fn take_spare(&self, max: usize) -> Vec<ConsumedEvent> {
        let mut queue = lock(&self.queue);
        if !queue.waiting.is_empty() {
            return Vec::new();
        }
        let spare = std::iter::from_fn(|| queue.spare.pop_first());
        let taken = spare.take(max).map(|(_, event)| event).collect();
        self.count(&queue);
        taken
    }

    /// The consumer ends: nobody is served any more.
    pub fn end(&self) {
        let mut queue = lock(&self.queue);
        let waiting = std::mem::take(&mut queue.waiting);
        queue.spare.clear();
        self.count(&queue);
        drop(queue);
        for pull in waiting {
            let failure = Failure::new(Code::Closed, "the consumer is closed");
            if let Some(callback) = pull.resolve(Outcome::Failure(failure)) {
                callback();
            }
        }
        self.changed.notify_all();
    }
}

impl Pull {
    /// Returns the callback, to be called without a lock held.
    fn resolve(&self, outcome: Outcome) -> Option<Callback> {
        let mut state = lock(&self.state);
        state.outcome.get_or_insert(outcome);
        state.callback.take()
    }

    fn peek(&self) -> Option<Result<(), Failure>> {
        lock(&self.state)
            .outcome
            .as_ref()
            .map(|outcome| match outcome {
                Outcome::Failure(failure) => Err(failure.clone()),
                Outcome::Event(_) | Outcome::Taken => Ok(()),
            })
    }

    /// What became of it, if that is known; looks for an event first.
    pub fn result(&self) -> Option<Result<(), Failure>> {
        if let Some(result) = self.peek() {
            return Some(result);
        }
        match self.pulls.upgrade() {
            Some(pulls) => pulls.serve(),
            None => return Some(Err(Failure::new(Code::Closed, "the consumer is closed"))),
        }
        self.peek()
    }

    /// Takes the event, once.
    pub fn take(&self) -> Option<ConsumedEvent> {
        self.take_numbered().map(|taken| taken.event)
    }

    fn take_numbered(&self) -> Option<Numbered> {
        let mut state = lock(&self.state);
        match state.outcome.replace(Outcome::Taken) {
            Some(Outcome::Event(event)) => Some(*event),
            other => {
                state.outcome = other;
                None
            }
        }
    }

    /// Waits for an event.
    pub fn wait(&self, until: Option<Instant>) -> Result<(), Failure> {
        let timed_out = || Failure::new(Code::Timeout, "timed out waiting for an event");
        loop {
            let Some(pulls) = self.pulls.upgrade() else {
                return Err(Failure::new(Code::Closed, "the consumer is closed"));
            };
            let news = lock(&pulls.queue).news;
            if let Some(result) = self.result() {
                return result;
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(timed_out());
            }
            let wait = left.map_or(LOOK_EVERY, |left| left.min(LOOK_EVERY));
            let changed = || lock(&pulls.queue).news != news || self.peek().is_some();
            let limit = Instant::now() + wait;
            if pulls.connection.drive(Some(limit), changed).is_some() {
                continue;
            }
            let queue = lock(&pulls.queue);
            let seen = |queue: &mut Queue| queue.news == news && self.peek().is_none();
            let _ = pulls
                .changed
                .wait_timeout_while(queue, wait, seen)
                .expect("no holder panics here");
        }
    }

    /// Calls `callback` when it is resolved, at once if it is.
    pub fn on_done(&self, callback: Callback) {
        let mut state = lock(&self.state);
        if state.outcome.is_some() {
            drop(state);
            return callback();
        }
        state.callback = Some(callback);
        drop(state);
        // It may be there already.
        if let Some(pulls) = self.pulls.upgrade() {
            pulls.serve();
        }
    }

    /// Gives it up: it is resolved, and what it would have got is the next pull's.
    pub fn cancel(&self) {
        let Some(pulls) = self.pulls.upgrade() else {
            return;
        };
        let mut queue = lock(&pulls.queue);
        queue.waiting.retain(|pull| !std::ptr::eq(&**pull, self));
        pulls.count(&queue);
        drop(queue);
        let failure = Failure::new(Code::Cancelled, "the pull was cancelled");
        let callback = self.resolve(Outcome::Failure(failure));
        pulls.changed.notify_all();
        pulls.connection.client.wake();
        if let Some(callback) = callback {
            callback();
        }
    }

    /// Nobody will ask any more: an event that nobody took is the next pull's.
    pub fn abandon(&self) {
        self.cancel();
        let (Some(taken), Some(pulls)) = (self.take_numbered(), self.pulls.upgrade()) else {
            return;
        };
        let mut queue = lock(&pulls.queue);
        queue.spare.insert(taken.number, taken.event);
        pulls.count(&queue);
        drop(queue);
        // There is something for whoever waits, or has a callback.
        pulls.news();
        pulls.connection.client.wake();
    }
}
