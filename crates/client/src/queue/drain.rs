//! Draining a queue: its events, until the server says that nothing is left.
//!
//! Only the server knows what others hold and what is delayed. So when nothing
//! has come for a moment the server is asked where the queue stands
//! ([`Method::DescribeConsumers`](wire::message::Method)), and asked again once the
//! idle time has passed. While events come nothing is asked.

use super::{Open, QueueConsumer, QueueEvent};
use crate::error::ClientError;
use crate::faults::{Fault, planted};
use crate::promise::Pending;
use crate::standing::Patience;
use memory::Deadline;
use std::sync::Arc;
use std::time::Duration;
use wire::message::{ConsumerDescription, ConsumerPartition, TopicDescription};
use wire::record::{ConsumerKind, Position};
use wire::{ErrorCode, ErrorReply, Incarnation, PartitionIndex};

/// How long nothing has come before the server is asked, at least.
const ASK_AFTER_MIN: Duration = Duration::from_millis(20);
/// As [`ASK_AFTER_MIN`], at most.
const ASK_AFTER_MAX: Duration = Duration::from_millis(250);
/// How often the server is asked while something is left, at most.
const ASK_EVERY_MIN: Duration = Duration::from_millis(100);
/// As [`ASK_EVERY_MIN`], at least.
const ASK_EVERY_MAX: Duration = Duration::from_secs(1);

/// What [`Drain::next`] gives.
#[derive(Debug)]
pub enum Drained {
    /// The next event.
    Event(QueueEvent),
    /// No event came within the time, and it is not known that nothing is left.
    Waiting,
    /// Nothing of the queue was left, for as long as the idle time; or the
    /// program is about to end ([`QueueConsumer::wind_down`]).
    Done,
}

/// How far one loop is in draining a queue: see [`QueueConsumer::drain`], which is
/// made of it. For callers with a way of waiting of their own.
pub struct Drain {
    idle: Duration,
    asked: Option<Asked>,
    /// When the server is asked next, on the client's clock.
    ask_at: Option<Duration>,
    /// Nothing was left in the answer that came then.
    empty: Option<Empty>,
}

/// A question that is under way.
enum Asked {
    Queue(Pending<Vec<ConsumerDescription>>),
    /// Why a partition has no state.
    Topic(Pending<TopicDescription>),
}

/// An answer in which nothing was left.
struct Empty {
    since: Duration,
    /// Where the partitions ended: what came and went meanwhile has moved them.
    ends: Vec<(PartitionIndex, Position)>,
}

/// What an answer says.
enum Left {
    Nothing(Vec<(PartitionIndex, Position)>),
    Something,
    /// A partition is not served: what is left in it is not known.
    Unknown,
}

impl QueueConsumer {
    /// Events until nothing of the queue is left: ends when the server says that
    /// nothing is ready, leased (to anybody, this consumer included), delayed or
    /// on its way to the dead-letter topic, and that held for `idle`. Ends too
    /// when the program is about to end ([`QueueConsumer::wind_down`]).
    ///
    /// It goes on through lost connections and restarts of the server, for as
    /// long as they take. An event that this consumer was given and has not
    /// settled counts as leased: a loop that never settles what it was given
    /// goes on until the lease expires, the event comes again, and in the end
    /// is a dead letter (`deliveries_max`). Events that are pushed later than
    /// the end are not waited for.
    ///
    /// The server is asked when nothing has come for a moment (`idle` / 4, from
    /// 20 to 250 ms), and then once or twice in `idle`; not while events come.
    ///
    /// # Errors
    /// As [`QueueConsumer::pull`], but for a server that is away only once that has
    /// lasted for the driver's reconnect timeout, if there is one; and
    /// [`wire::ErrorCode::StorageFailed`] if a partition failed, in which nobody
    /// knows what is left. The iterator can be used further after an error.
    pub fn drain(
        &self,
        idle: Duration,
    ) -> impl Iterator<Item = Result<QueueEvent, ClientError>> + use<'_> {
        let mut drain = Drain::new(idle);
        std::iter::from_fn(move || {
            loop {
                match drain.next(self, None) {
                    Ok(Drained::Event(event)) => return Some(Ok(event)),
                    Ok(Drained::Waiting) => {}
                    Ok(Drained::Done) => return None,
                    Err(error) => return Some(Err(error)),
                }
            }
        })
    }
}

impl Drain {
    /// Ends when nothing was left for `idle`.
    pub fn new(idle: Duration) -> Self {
        Self {
            idle,
            asked: None,
            ask_at: None,
            empty: None,
        }
    }

    /// The next event of `consumer`, within `timeout` (`None`: without a limit).
    ///
    /// # Errors
    /// As [`QueueConsumer::drain`].
    pub fn next(
        &mut self,
        consumer: &QueueConsumer,
        timeout: Option<Duration>,
    ) -> Result<Drained, ClientError> {
        let open = consumer.open()?;
        let deadline = Deadline::within(timeout);
        loop {
            let seen = open.news();
            if let Some(event) = open.try_pull(deadline)? {
                // From here on nothing is known of what is left.
                *self = Self::new(self.idle);
                return Ok(Drained::Event(event));
            }
            if open.is_stopped() {
                return Ok(Drained::Done);
            }
            open.health()?;
            if self.look(consumer, &open)? {
                return Ok(Drained::Done);
            }
            let until = match self.due_in(consumer) {
                Some(due) if due < deadline.left() => Deadline::after(due),
                _ => deadline,
            };
            // What it waits for is reported, now and then.
            let until = open.wait_until(&Patience::within(None), until);
            let is_news = open.wait(seen, until);
            if !is_news && planted(Fault::NoneIsDrained) {
                return Ok(Drained::Done);
            }
            if !is_news && deadline.has_passed() {
                return Ok(Drained::Waiting);
            }
        }
    }

    /// When [`Drain::next`] is to be called again although the consumer has no
    /// news ([`QueueConsumer::on_ready`]): to ask the server.
    pub fn due_in(&self, consumer: &QueueConsumer) -> Option<Duration> {
        let open = consumer.slot.get()?;
        let now = open.mailbox().clock().now();
        Some(self.ask_at?.saturating_sub(now))
    }

    /// Asks, and looks at the answer. True once nothing was left for the idle time.
    fn look(&mut self, consumer: &QueueConsumer, open: &Open) -> Result<bool, ClientError> {
        let now = open.mailbox().clock().now();
        let Some(asked) = &mut self.asked else {
            self.ask_if_due(consumer, open, now);
            return Ok(false);
        };
        let left = match asked {
            Asked::Queue(pending) => match pending.try_get() {
                None => return Ok(false),
                Some(answer) => answer.map(|found| left(&found)),
            },
            Asked::Topic(pending) => match pending.try_get() {
                None => return Ok(false),
                Some(answer) => answer.and_then(|topic| failed(&topic)),
            },
        };
        self.asked = None;
        let interval = (self.idle / 2).clamp(ASK_EVERY_MIN, ASK_EVERY_MAX);
        match left {
            Ok(Left::Nothing(ends)) => {
                let known = self.empty.take().filter(|empty| empty.ends == ends);
                let since = known.map_or(now, |empty| empty.since);
                if now.saturating_sub(since) >= self.idle {
                    return Ok(true);
                }
                self.empty = Some(Empty { since, ends });
                self.ask_at = Some(since.saturating_add(self.idle));
            }
            Ok(Left::Something) => {
                self.empty = None;
                self.ask_at = Some(now + interval);
            }
            Ok(Left::Unknown) => {
                self.empty = None;
                self.wait_for(Asked::Topic(consumer.topic.begin_refresh()), open);
            }
            // The server is away, or too busy to say: nothing follows from it.
            Err(error) if is_passing(&error) => {
                self.empty = None;
                self.ask_at = Some(now + interval);
            }
            Err(error) => {
                self.empty = None;
                self.ask_at = Some(now + interval);
                return Err(error);
            }
        }
        Ok(false)
    }

    fn ask_if_due(&mut self, consumer: &QueueConsumer, open: &Open, now: Duration) {
        let after = (self.idle / 4).clamp(ASK_AFTER_MIN, ASK_AFTER_MAX);
        let ask_at = *self.ask_at.get_or_insert(now + after);
        if ask_at <= now {
            self.ask_at = None;
            let asked = consumer.topic.begin_describe_consumers(&consumer.name);
            self.wait_for(Asked::Queue(asked), open);
        }
    }

    fn wait_for(&mut self, asked: Asked, open: &Open) {
        // A queue has a partition.
        let feed = open.first().map(|one| Arc::downgrade(&one.feed));
        let notify = Box::new(move || {
            if let Some(feed) = feed.and_then(|feed| feed.upgrade()) {
                feed.notify();
            }
        });
        match &asked {
            Asked::Queue(pending) => pending.on_answer(notify),
            Asked::Topic(pending) => pending.on_answer(notify),
        }
        self.asked = Some(asked);
    }
}

/// What is left of the queue, as the server describes it.
fn left(found: &[ConsumerDescription]) -> Left {
    let queue = found.iter().find(|one| one.kind == ConsumerKind::Queue);
    let Some(queue) = queue else {
        return Left::Unknown;
    };
    // A partition that the queue does not serve (yet) has no incarnation.
    let is_unknown = |one: &ConsumerPartition| one.position.incarnation == Incarnation(0);
    if queue.partitions.iter().any(is_unknown) {
        return Left::Unknown;
    }
    let unsettled = |one: &ConsumerPartition| {
        let behind = one.end.0.saturating_sub(one.position.offset.0);
        behind.saturating_sub(one.settled)
    };
    if queue.partitions.iter().any(|one| unsettled(one) > 0) {
        return Left::Something;
    }
    let end = |one: &ConsumerPartition| {
        let end = Position {
            incarnation: one.position.incarnation,
            offset: one.end,
        };
        (one.partition, end)
    };
    Left::Nothing(queue.partitions.iter().map(end).collect())
}

/// Fails if a partition of the topic failed; otherwise it is served soon.
fn failed(topic: &TopicDescription) -> Result<Left, ClientError> {
    let mut partitions = topic.partitions.iter();
    match partitions.find(|partition| !partition.failure.is_empty()) {
        None => Ok(Left::Something),
        Some(failed) => Err(ClientError::Server(ErrorReply::fatal(
            ErrorCode::StorageFailed,
            format!(
                "what is left of {}/{} is not known: its storage failed: {}",
                topic.name, failed.partition, failed.failure
            ),
        ))),
    }
}

/// Whether the same question may well be answered later.
fn is_passing(error: &ClientError) -> bool {
    match error {
        ClientError::Unreachable { .. } | ClientError::Timeout { .. } | ClientError::Cancelled => {
            true
        }
        ClientError::Server(reply) => reply.retryable,
        _ => false,
    }
}
