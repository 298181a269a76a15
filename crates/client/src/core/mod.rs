//! The client as a plain state machine: inputs with the time go in, messages
//! go to the link that is handed in, and the rest comes out as [`Output`]s.
//!
//! What drives it (the runtime's thread, or a simulation) does this: on
//! every input call [`ClientCore::handle`] with the present link, then carry
//! out [`ClientCore::poll_output`] until there is none, and call again no
//! later than [`ClientCore::next_timer`]. After calls of the API it is to be
//! handed [`Input::Wake`]. It has no clock, thread, socket or randomness of
//! its own and keeps everything in ordered maps, so that the same inputs give
//! the same outputs.
//!
//! - `connection`: which server, how to reach it, when it is lost.
//! - `credential`: what is presented of who one is, and presented anew.
//! - `calls`: requests of the API and their answers.
//! - `commands`, `messages`: from the API and from the server, to the part concerned.
//! - `producer`: batches taken from the queues, sent, kept until acknowledged.
//! - `consumer`: subscriptions, credit.
//! - `cursors`: acknowledgements of a consumer, sent and held.
//! - `group`: what a group's member owns.
//! - `membership`: one membership of a group or queue, kept through lost connections.
//! - `queue`: events under leases, settlements.
//! - `retry`: when what was refused for now is tried again.
//! - `stripes`: when a session opens one more connection.
//! - `topics`: partitions that are added to topics in use.

mod calls;
mod commands;
mod connection;
mod consumer;
mod credential;
mod cursors;
mod group;
mod io;
mod membership;
mod messages;
mod opening;
mod producer;
mod queue;
mod retry;
mod stripes;
mod topics;
mod wire_session;

use crate::copies::CopyMemory;
use crate::driving::InlineSend;
use crate::error::ClientError;
use crate::mailbox::{Command, Mailbox, Seek};
use crate::options::{DriverOptions, Endpoint};
use crate::promise::{Promise, Reply};
use calls::Calls;
use connection::Connection;
use consumer::ConsumerCore;
pub use io::{Input, Output, RenewedCredential, StripeDial};
use net::Link;
pub(crate) use opening::Opening;
use producer::{Fed, ProducerCore};
use queue::QueueCore;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use topics::Topics;
use wire::SessionId;
use wire_session::{Context, Silence, Timer, Wire};

/// How many batches are sent inline at most.
const INLINE_BATCHES_MAX: u32 = 2;

/// The client as a state machine. See the module.
pub struct ClientCore {
    context: Context,
    connection: Connection,
    calls: Calls,
    producers: BTreeMap<u64, ProducerCore>,
    /// Producers that may have something to take or to send: all others are
    /// left alone, so that an event costs the same beside many of them.
    awake: BTreeSet<u64>,
    /// Producers that wait for credit, the one that waits longest first.
    starved: VecDeque<u64>,
    consumers: BTreeMap<u64, ConsumerCore>,
    queues: BTreeMap<u64, QueueCore>,
    /// Queues whose settlements go with whatever is sent, for as long as the
    /// core looks at them now and then.
    quiet: BTreeSet<u64>,
    alarms: BTreeMap<u64, Promise>,
    topics: Topics,
    /// Memory that producers copy to; what of it lies idle is given back with heartbeats.
    copies: CopyMemory,
    outputs: VecDeque<Output>,
    commands: Vec<Command>,
    /// Resolved when the first connection stands, or cannot be made.
    connected: Option<Promise>,
    started: bool,
    ended: bool,
}

impl ClientCore {
    /// A core that connects to `endpoint` as soon as it is woken.
    ///
    /// `session` is the client's session id, and seeds what little chance it needs.
    pub(crate) fn new(
        endpoint: Endpoint,
        options: &DriverOptions,
        session: SessionId,
        mailbox: Arc<Mailbox>,
        copies: CopyMemory,
        connected: Promise,
    ) -> Self {
        Self {
            context: Context {
                now: Duration::ZERO,
                mailbox,
                timers: BTreeSet::new(),
                session: None,
                again: false,
                has_sent: false,
                is_behind: false,
                is_stale: false,
            },
            connection: Connection::new(endpoint, options, session),
            calls: Calls::default(),
            producers: BTreeMap::new(),
            awake: BTreeSet::new(),
            starved: VecDeque::new(),
            consumers: BTreeMap::new(),
            queues: BTreeMap::new(),
            quiet: BTreeSet::new(),
            alarms: BTreeMap::new(),
            topics: Topics::default(),
            copies,
            outputs: VecDeque::new(),
            commands: Vec::new(),
            connected: Some(connected),
            started: false,
            ended: false,
        }
    }

    /// Takes an input. `now` counts from any fixed moment and never goes
    /// back; `link` is the present connection's, if there is one.
    pub fn handle(&mut self, now: Duration, input: Input, mut link: Option<&mut dyn Link>) {
        debug_assert!(now >= self.context.now);
        self.context.now = now;
        self.set_time(now);
        self.context.again = false;
        self.context.has_sent = false;
        self.context.is_behind = false;
        if self.ended {
            return;
        }
        if !std::mem::replace(&mut self.started, true) {
            self.connection.start(&mut self.context, &mut self.outputs);
        }
        match input {
            Input::Wake => {}
            Input::GroupFile(result) => {
                self.connection
                    .group_file(&mut self.context, result, &mut self.outputs);
            }
            Input::Credential(result) => {
                let mut wire = Wire::new(&mut self.context, reborrow(&mut link));
                let outputs = &mut self.outputs;
                self.connection.credential_read(&mut wire, result, outputs);
            }
            Input::LinkUp { attempt } => {
                if let Some(link) = &mut link {
                    let outputs = &mut self.outputs;
                    self.connection
                        .link_up(&mut self.context, attempt, *link, outputs);
                }
            }
            Input::LinkDown { attempt, reason } => {
                if self.connection.is_present(attempt) {
                    self.lose(reason.to_string(), &mut link);
                }
            }
            Input::Stripe { attempt, result } => {
                if self.connection.is_present(attempt) {
                    self.connection.stripe_opened(&mut self.context, &result);
                }
            }
            Input::Message { attempt, message } => {
                if self.connection.is_present(attempt) {
                    self.message(message, &mut link);
                }
            }
        }
        self.take_commands(&mut link);
        self.run_timers(&mut link);
        if std::mem::take(&mut self.context.is_stale) {
            let mut wire = Wire::new(&mut self.context, reborrow(&mut link));
            self.topics.look_up(&mut wire);
        }
        self.pump(&mut link);
        if std::mem::take(&mut self.context.has_sent) {
            self.settle_along(&mut link);
        }
        self.queues.retain(|_, queue| !queue.is_over());
        let queues = &self.queues;
        self.quiet
            .retain(|key| queues.get(key).is_some_and(QueueCore::is_watching));
        self.give_up_if_hopeless();
    }

    /// Says what time it is to what uses the API, in a simulation: there is
    /// no other clock. An input says so as well.
    pub fn set_time(&self, now: Duration) {
        self.context.mailbox.clock().set(now);
    }

    /// Whether the API was used since the last input, as callbacks do: an
    /// [`Input::Wake`] is to follow.
    pub fn has_commands(&self) -> bool {
        !self.ended && self.context.mailbox.has_commands()
    }

    /// Sends what was gathered, and does nothing else: no plugin and no
    /// callback of a user's is waited for. False if it is to be reported by a
    /// command after all, for there is more to do.
    pub(crate) fn send_inline(
        &mut self,
        now: Duration,
        link: &mut dyn Link,
        what: InlineSend,
    ) -> bool {
        debug_assert!(now >= self.context.now);
        if self.ended || !self.started {
            return false;
        }
        self.context.now = now;
        self.context.has_sent = false;
        self.context.is_behind = link.untaken_bytes().is_some_and(|bytes| bytes > 0);
        let sent = match what {
            InlineSend::Events { producer, .. } => self.send_events(link, producer),
            InlineSend::Settlements(queue) => {
                let mut wire = Wire::new(&mut self.context, Some(link));
                let core = self.queues.get_mut(&queue);
                core.map(|core| core.settle(&mut wire)).is_some()
            }
        };
        if std::mem::take(&mut self.context.has_sent) {
            self.settle_along(&mut Some(link));
        }
        sent
    }

    fn send_events(&mut self, link: &mut dyn Link, producer: u64) -> bool {
        let mut wire = Wire::new(&mut self.context, Some(link));
        let Some(core) = self.producers.get_mut(&producer) else {
            return false;
        };
        // Those that wait for credit come first.
        if !self.starved.is_empty() {
            return false;
        }
        let sent = core.send_inline(&mut wire, INLINE_BATCHES_MAX);
        if core.starve() {
            self.starved.push_back(producer);
        }
        if core.is_awake() {
            self.awake.insert(producer);
        }
        sent
    }

    /// Sends settlements that nobody hurries for, with what is sent anyway.
    fn settle_along(&mut self, link: &mut Option<&mut dyn Link>) {
        let mut wire = Wire::new(&mut self.context, reborrow(link));
        for key in &self.quiet {
            if let Some(queue) = self.queues.get_mut(key) {
                queue.settle_along(&mut wire);
            }
        }
    }

    /// The next thing to do.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When the core wants to be called again, whatever happens.
    pub fn next_timer(&self) -> Option<Duration> {
        if self.context.again {
            return Some(self.context.now);
        }
        self.context.timers.first().map(|(at, _)| *at)
    }

    /// Whether there is more to do at once.
    pub(crate) fn has_more(&self) -> bool {
        self.context.again
    }

    /// How many connections were tried.
    pub fn attempt(&self) -> u64 {
        self.connection.attempt()
    }

    /// A consumer's seek is answered: what was acknowledged behind it may go.
    fn sought(&mut self, seek: Seek, link: &mut Option<&mut dyn Link>) {
        let mut wire = Wire::new(&mut self.context, reborrow(link));
        if let Some(core) = self.consumers.get_mut(&seek.consumer) {
            core.cursors.sought(&mut wire, seek.partition);
        }
    }

    /// The server said welcome: everything is taken up where it was.
    fn connected(&mut self, link: &mut dyn Link) {
        if let Some(promise) = self.connected.take() {
            promise.resolve(Ok(Reply::default()));
        }
        let mut wire = Wire::new(&mut self.context, Some(link));
        self.calls.connected(&mut wire);
        for producer in self.producers.values_mut() {
            producer.connected(&mut wire);
        }
        self.awake.extend(self.producers.keys());
        for consumer in self.consumers.values_mut() {
            consumer.connected(&mut wire);
        }
        for queue in self.queues.values_mut() {
            queue.connected(&mut wire);
        }
    }

    /// The present connection is of no use any more, and we say so.
    fn disconnect(&mut self, reason: String, link: &mut Option<&mut dyn Link>) {
        self.outputs.push_back(Output::Disconnect {
            attempt: self.connection.attempt(),
            reason: reason.clone(),
        });
        self.lose(reason, link);
    }

    fn lose(&mut self, reason: String, link: &mut Option<&mut dyn Link>) {
        self.context.session = None;
        let mut wire = Wire::new(&mut self.context, reborrow(link));
        self.calls.disconnected(&mut wire, &reason);
        for producer in self.producers.values_mut() {
            producer.disconnected(&mut wire);
        }
        self.awake.extend(self.producers.keys());
        self.starved.clear();
        for consumer in self.consumers.values_mut() {
            consumer.disconnected(&mut wire);
        }
        for queue in self.queues.values_mut() {
            queue.disconnected(&mut wire);
        }
        self.connection
            .lost(&mut self.context, reason, &mut self.outputs);
    }

    fn run_timers(&mut self, link: &mut Option<&mut dyn Link>) {
        while let Some(&(at, timer)) = self.context.timers.first() {
            if at > self.context.now || self.ended {
                return;
            }
            self.context.timers.pop_first();
            let mut wire = Wire::new(&mut self.context, reborrow(link));
            match timer {
                Timer::Connection => {
                    let lost = self.connection.timer(&mut self.context, &mut self.outputs);
                    if let Some(reason) = lost {
                        self.disconnect(reason, link);
                    }
                    if self.context.mailbox.liveness.lost().is_some() {
                        for consumer in self.consumers.values() {
                            consumer.notify();
                        }
                        for queue in self.queues.values() {
                            queue.notify();
                        }
                    }
                }
                Timer::Heartbeat => {
                    self.copies.give_back_idle();
                    match wire.look_at_silence() {
                        Silence::Short => {}
                        // Any answer is a sign of life: one that is of use as well.
                        Silence::Long if self.topics.ask(&mut wire) => {}
                        Silence::Long => wire.ask_for_life(),
                        Silence::Dead(reason) => self.disconnect(reason, link),
                    }
                }
                Timer::Refresh => self.topics.refresh(&mut wire),
                Timer::Stripes => {
                    let (context, outputs) = (&mut self.context, &mut self.outputs);
                    if let Some(link) = link {
                        self.connection.look_at_stripes(context, *link, outputs);
                    }
                }
                Timer::Call(key) => {
                    if let Some(seek) = self.calls.expired(&mut wire, key) {
                        self.sought(seek, link);
                    }
                }
                Timer::Producer(key) => {
                    if let Some(producer) = self.producers.get_mut(&key) {
                        producer.timer(&mut wire);
                        self.awake.insert(key);
                    }
                }
                Timer::Consumer(key) => {
                    if let Some(consumer) = self.consumers.get_mut(&key) {
                        consumer.timer(&mut wire);
                    }
                }
                Timer::Alarm(key) => {
                    if let Some(promise) = self.alarms.remove(&key) {
                        promise.resolve(Ok(Reply::default()));
                    }
                }
                Timer::Queue(key) => {
                    if let Some(queue) = self.queues.get_mut(&key) {
                        queue.timer(&mut wire);
                    }
                }
            }
        }
    }

    /// Moves batches from the queues to the link: one a round, so that one is
    /// on its way while the next is sealed.
    fn pump(&mut self, link: &mut Option<&mut dyn Link>) {
        if self.ended {
            return;
        }
        let mut wire = Wire::new(&mut self.context, reborrow(link));
        let mut again = false;
        let producers = &mut self.producers;
        while let Some(key) = self.starved.front() {
            let fed = match producers.get_mut(key) {
                Some(producer) => producer.feed(&mut wire),
                None => Fed::Enough,
            };
            match fed {
                Fed::Enough => drop(self.starved.pop_front()),
                // The others' turn.
                Fed::Partly => self.starved.rotate_left(1),
                Fed::Nothing => break,
            }
        }
        // Those that have more to do stay.
        let mut awake = std::mem::take(&mut self.awake);
        awake.retain(|key| {
            let Some(producer) = producers.get_mut(key) else {
                return false;
            };
            again |= producer.pump(&mut wire, self.starved.is_empty());
            if producer.starve() {
                self.starved.push_back(*key);
            }
            producer.is_awake()
        });
        self.awake = awake;
        self.context.again = again;
    }

    /// Ends everything when the connection says that there is no hope.
    fn give_up_if_hopeless(&mut self) {
        if let Some(error) = self.connection.hopeless(&self.context) {
            self.end(error, &mut None);
        }
    }

    /// Ends everything with `error`, because nobody can drive the core any
    /// more: nothing that waits for it is to wait for ever.
    pub(crate) fn abandon(&mut self, error: ClientError) {
        // It may have been on its way there when it was interrupted.
        self.ended = false;
        self.end(error, &mut None);
    }

    fn end(&mut self, error: ClientError, link: &mut Option<&mut dyn Link>) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let mut wire = Wire::new(&mut self.context, reborrow(link));
        for consumer in std::mem::take(&mut self.consumers).values_mut() {
            match error {
                ClientError::Closed => consumer.close(&mut wire),
                _ => consumer.fail(&mut wire, &error),
            }
        }
        for queue in std::mem::take(&mut self.queues).values_mut() {
            queue.end(&mut wire, &error);
        }
        for producer in std::mem::take(&mut self.producers).values_mut() {
            producer.fail(&mut wire, &error);
        }
        self.calls.fail_all(&mut wire, &error);
        for promise in std::mem::take(&mut self.alarms).into_values() {
            promise.resolve(Err(error.clone()));
        }
        if let Some(promise) = self.connected.take() {
            promise.resolve(Err(error.clone()));
        }
        self.context.session = None;
        self.context.timers.clear();
        self.context.again = false;
        self.context.mailbox.liveness.disconnected();
        self.context.mailbox.end(error);
        self.outputs.push_back(Output::Disconnect {
            attempt: self.connection.attempt(),
            reason: "the client closes".to_owned(),
        });
        self.outputs.push_back(Output::Ended);
    }
}

fn reborrow<'a>(link: &'a mut Option<&mut dyn Link>) -> Option<&'a mut dyn Link> {
    match link {
        Some(link) => Some(&mut **link),
        None => None,
    }
}
