//! A client's part at one node: what goes on over one connection.

mod commands;
mod messages;

use super::calls::{Call, Calls};
use super::connection::Connection;
use super::consumer::ConsumerCore;
use super::elsewhere::{Elsewhere, Hint};
use super::io::{Input, Output};
use super::producer::{Fed, ProducerCore};
use super::queue::QueueCore;
use super::topics::{self, Topics, Watched};
use super::wire_session::{Context, Route, Silence, Timer, Wire};
use crate::copies::CopyMemory;
use crate::driving::InlineSend;
use crate::error::ClientError;
use crate::faults::{Fault, planted};
use crate::mailbox::{Command, Liveness, Mailbox, Seek};
use crate::promise::{Promise, Reply};
use net::Link;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use wire::{DirectoryId, TopicId};

/// How many batches are sent inline at most.
const INLINE_BATCHES_MAX: u32 = 2;

/// How long a node is away before another one is asked where its topics are: less than it takes to start one again, as a rule, and more
/// than a connection that is lost and made anew.
const LOOK_FIRST: Duration = Duration::from_secs(1);

/// What a client has at one node: the connection to it, and the producers, consumers and calls of topics that are there.
pub(super) struct NodeCore {
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
    /// Resolved when the first connection stands, or cannot be made.
    connected: Option<Promise>,
    started: bool,
    ended: bool,
    /// When the first node was asked last for what is here, for this node was away.
    asked_first_at: Option<Duration>,
    /// When another node was asked last where the topics are that are here, while this one is away, and how long it is until the
    /// next time.
    looked: Option<(Duration, Duration)>,
}

/// A topic on its way to another node, with all that a client does with it.
pub(super) struct Leaving {
    topic: TopicId,
    watched: Watched,
    calls: Vec<Call>,
    producers: BTreeMap<u64, ProducerCore>,
    consumers: BTreeMap<u64, ConsumerCore>,
    queues: BTreeMap<u64, QueueCore>,
    quiet: BTreeSet<u64>,
    timers: BTreeSet<(Duration, Timer)>,
}

/// Takes out what is so.
fn take_if<T>(all: &mut BTreeMap<u64, T>, is_so: impl Fn(&T) -> bool) -> BTreeMap<u64, T> {
    let (taken, stays) = std::mem::take(all)
        .into_iter()
        .partition(|(_, one)| is_so(one));
    *all = stays;
    taken
}

impl Leaving {
    /// The keys of what was opened.
    pub fn keys(&self) -> impl Iterator<Item = u64> {
        let keys = self.producers.keys().chain(self.consumers.keys());
        keys.chain(self.queues.keys()).copied()
    }
}

impl NodeCore {
    /// A core that connects as soon as it is woken.
    pub fn new(
        connection: Connection,
        (mailbox, liveness): (Arc<Mailbox>, Arc<Liveness>),
        copies: CopyMemory,
        connected: Option<Promise>,
    ) -> Self {
        Self {
            context: Context::new(mailbox, liveness),
            connection,
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
            connected,
            started: false,
            ended: false,
            asked_first_at: None,
            looked: None,
        }
    }

    /// Takes an input; [`NodeCore::run`] is to follow. `link` is the present connection's, if there is one.
    pub fn take(&mut self, now: Duration, input: Input, mut link: Option<&mut dyn Link>) {
        debug_assert!(now >= self.context.now);
        self.context.now = now;
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
    }

    /// Does what the API asked for, what is due, and sends what can be sent.
    pub fn run(&mut self, commands: &mut Vec<Command>, mut link: Option<&mut dyn Link>) {
        if self.ended {
            return;
        }
        self.do_commands(commands, &mut link);
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
    }

    /// Whether it is to be called at this time.
    pub fn is_due(&self, now: Duration) -> bool {
        !self.started || self.next_timer().is_some_and(|at| at <= now)
    }

    /// Why nothing will come of its connection any more, if that is so.
    pub fn hopeless(&self) -> Option<ClientError> {
        self.connection.hopeless(&self.context)
    }

    /// Nothing may come of its connection: what waits here then learns why. The node is tried all the same, for it may be
    /// started later.
    pub fn give_up_if_hopeless(&mut self) {
        if self.context.liveness.lost().is_none()
            && let Some(error) = self.hopeless()
        {
            self.context.liveness.lose(error);
            self.notify_if_lost();
        }
    }

    /// Has the program's pulls see that the node is lost, if it is.
    fn notify_if_lost(&self) {
        if self.context.liveness.lost().is_none() {
            return;
        }
        for consumer in self.consumers.values() {
            consumer.notify();
        }
        for queue in self.queues.values() {
            queue.notify();
        }
    }

    /// Whether its connection stands.
    pub fn is_up(&self) -> bool {
        self.context.session.is_some()
    }

    /// Whether the first node is to be asked now for what is here: this node is away, and the first one was not asked for
    /// as long as it is waited for.
    pub fn asks_first(&mut self) -> bool {
        let now = self.context.now;
        let patience = self.connection.patience();
        let last = self.asked_first_at;
        let asks = last.is_none_or(|at| now >= at.saturating_add(patience))
            && self.connection.is_away(&self.context);
        if asks {
            self.asked_first_at = Some(now);
        }
        asks
    }

    /// Whether another node is to be asked now where the topics are that are here: this one is away, for a second, and then for
    /// twice as long each time. They stay, unless they are at another place.
    pub fn looks_elsewhere(&mut self) -> bool {
        if self.is_up() {
            self.looked = None;
            return false;
        }
        let now = self.context.now;
        let first = (self.connection.down_since(), LOOK_FIRST);
        let (last, wait) = self.looked.unwrap_or(first);
        if now < last.saturating_add(wait) {
            return false;
        }
        let wait = (2 * wait).min(self.connection.patience().max(LOOK_FIRST));
        self.looked = Some((now, wait));
        self.context
            .arm(now.saturating_add(wait), Timer::Connection);
        true
    }

    /// Asks this node whether it has a topic that is opened at another one, which is away, or where that is.
    pub fn look_for(
        &mut self,
        now: Duration,
        topic: TopicId,
        name: &str,
        mut link: Option<&mut dyn Link>,
    ) {
        self.context.now = now;
        let mut wire = Wire::new(&mut self.context, reborrow(&mut link));
        if wire.is_up() {
            topics::describe(&mut wire, topic, name);
        }
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
        trace::passes!("by its producer");
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

    /// The other servers of the cluster, as far as a group file has said.
    pub fn others(&self) -> Vec<Hint> {
        self.connection.others()
    }

    /// A connection to another server of the cluster that its group file names.
    pub fn branch_to(&self, other: &Hint) -> Connection {
        self.connection.branch(other)
    }

    /// Whether no address of its server could be reached since the last connection, or from the beginning on.
    pub fn has_failed(&self) -> bool {
        self.connection.has_failed()
    }

    /// The topics with something that was opened, and their names.
    pub fn topics(&self) -> BTreeMap<TopicId, Arc<str>> {
        let producers = self.producers.values().map(ProducerCore::topic);
        let consumers = self.consumers.values().map(ConsumerCore::topic);
        let queues = self.queues.values().map(QueueCore::topic);
        let all = producers.chain(consumers).chain(queues);
        all.map(|topic| (topic.id, topic.name.clone())).collect()
    }

    /// Takes out who waits for the client's first connection.
    pub fn leave_connected(&mut self) -> Option<Promise> {
        self.connected.take()
    }

    /// Who waits for the client's first connection waits for this node's.
    pub fn adopt_connected(&mut self, connected: Option<Promise>) {
        match connected {
            Some(promise) if self.is_up() => promise.resolve(Ok(Reply::default())),
            connected => self.connected = connected,
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
        let looks_at = self.context.now.saturating_add(LOOK_FIRST);
        self.context.arm(looks_at, Timer::Connection);
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
                    self.notify_if_lost();
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

    /// Takes out what is elsewhere, as answers said since the last look.
    pub fn take_elsewhere(&mut self) -> Vec<Elsewhere> {
        let said = std::mem::take(&mut self.context.elsewhere);
        let dialled = self.connection.dialled();
        let seen = said.into_iter().map(|one| Elsewhere {
            what: one.what,
            hint: one.hint.seen_from(dialled),
        });
        seen.collect()
    }

    /// Takes out the topics that this node has described since the last look: they are here.
    pub fn take_described(&mut self) -> Vec<TopicId> {
        std::mem::take(&mut self.context.described)
    }

    /// Its data directory, once that is known.
    pub fn directory(&self) -> Option<DirectoryId> {
        self.connection.directory()
    }

    /// It is said to be at this address.
    pub fn is_at(&mut self, address: String) {
        self.connection.is_at(address);
    }

    /// A connection to another node of which this one says where it is. `None` if it is not to be gone to.
    pub fn branch(&self, hint: &Hint) -> Option<Connection> {
        self.connection
            .leads_to(hint)
            .then(|| self.connection.branch(hint))
    }

    /// Whether there is a producer, consumer or queue of this key.
    pub fn has(&self, key: u64) -> bool {
        self.producers.contains_key(&key)
            || self.consumers.contains_key(&key)
            || self.queues.contains_key(&key)
    }

    /// Takes out a call that is done by another node.
    pub fn leave_call(&mut self, key: u64, mut link: Option<&mut dyn Link>) -> Option<Call> {
        let mut wire = Wire::leaving(&mut self.context, reborrow(&mut link));
        self.calls.leave(&mut wire, key)
    }

    /// Takes out the calls that are about no topic by its id, but for those that must not be asked twice.
    pub fn leave_calls(&mut self, topic: TopicId, mut link: Option<&mut dyn Link>) -> Vec<Call> {
        let mut wire = Wire::leaving(&mut self.context, reborrow(&mut link));
        self.calls.leave_topic(&mut wire, topic)
    }

    /// Takes over calls of another node's.
    pub fn adopt_calls(
        &mut self,
        calls: impl IntoIterator<Item = Call>,
        now: Duration,
        mut link: Option<&mut dyn Link>,
    ) {
        self.context.now = now;
        let mut wire = Wire::new(&mut self.context, reborrow(&mut link));
        for call in calls {
            self.calls.adopt(&mut wire, call);
        }
        self.context.again = true;
    }

    /// Takes out all that was opened of a topic, and the calls about it.
    pub fn leave_topic(&mut self, topic: TopicId, mut link: Option<&mut dyn Link>) -> Leaving {
        let mut wire = Wire::leaving(&mut self.context, reborrow(&mut link));
        let calls = self.calls.leave_topic(&mut wire, topic);
        let mut producers = take_if(&mut self.producers, |core| core.topic().id == topic);
        let mut consumers = take_if(&mut self.consumers, |core| core.topic().id == topic);
        let mut queues = take_if(&mut self.queues, |core| core.topic().id == topic);
        for producer in producers.values_mut() {
            if !planted(Fault::LeavesBehind) {
                producer.disconnected(&mut wire);
            }
        }
        for consumer in consumers.values_mut() {
            consumer.disconnected(&mut wire);
        }
        for queue in queues.values_mut() {
            queue.disconnected(&mut wire);
        }
        // The topic may come back while this connection stands: then no answer to what was asked before counts.
        wire.end_routes(|route| match route {
            Route::Topic { topic: asked } => asked == topic,
            route => route.key().is_some_and(|key| {
                producers.contains_key(&key)
                    || consumers.contains_key(&key)
                    || queues.contains_key(&key)
            }),
        });
        self.awake.retain(|key| !producers.contains_key(key));
        self.starved.retain(|key| !producers.contains_key(key));
        let quiet = std::mem::take(&mut self.quiet);
        let (quiet, stays) = quiet.iter().partition(|key| queues.contains_key(*key));
        self.quiet = stays;
        let goes_along = |timer: &(Duration, Timer)| match &timer.1 {
            Timer::Producer(key) => producers.contains_key(key),
            Timer::Consumer(key) => consumers.contains_key(key),
            Timer::Queue(key) => queues.contains_key(key),
            _ => false,
        };
        let timers = std::mem::take(&mut self.context.timers);
        let (timers, stay) = timers.into_iter().partition(goes_along);
        self.context.timers = stay;
        Leaving {
            topic,
            watched: self.topics.leave(topic),
            calls,
            producers,
            consumers,
            queues,
            quiet,
            timers,
        }
    }

    /// Takes over all that was opened of a topic at another node.
    pub fn adopt_topic(&mut self, topic: Leaving, now: Duration, mut link: Option<&mut dyn Link>) {
        self.context.now = now;
        self.context.timers.extend(topic.timers);
        let mut wire = Wire::new(&mut self.context, reborrow(&mut link));
        for call in topic.calls {
            self.calls.adopt(&mut wire, call);
        }
        self.topics.adopt(&mut wire, topic.topic, topic.watched);
        let node = wire.context.place();
        let producers = topic.producers.values().map(ProducerCore::topic);
        let consumers = topic.consumers.values().map(ConsumerCore::topic);
        let queues = topic.queues.values().map(QueueCore::topic);
        let opened = producers.chain(consumers).chain(queues);
        opened.for_each(|topic| topic.is_at(node.clone()));
        for (key, mut producer) in topic.producers {
            producer.connected(&mut wire);
            self.producers.insert(key, producer);
            self.awake.insert(key);
        }
        for (key, mut consumer) in topic.consumers {
            consumer.connected(&mut wire);
            self.consumers.insert(key, consumer);
        }
        for (key, mut queue) in topic.queues {
            queue.connected(&mut wire);
            self.queues.insert(key, queue);
        }
        self.quiet.extend(topic.quiet);
        self.notify_if_lost();
        // What they have to send is looked at once the node is called.
        self.context.again = true;
    }

    /// It was interrupted, and is to end all the same.
    pub fn may_end_again(&mut self) {
        self.ended = false;
    }

    /// Ends everything with `error`, and the connection.
    pub fn end(&mut self, error: &ClientError, mut link: Option<&mut dyn Link>) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let mut wire = Wire::new(&mut self.context, reborrow(&mut link));
        for consumer in std::mem::take(&mut self.consumers).values_mut() {
            match error {
                ClientError::Closed => consumer.close(&mut wire),
                _ => consumer.fail(&mut wire, error),
            }
        }
        for queue in std::mem::take(&mut self.queues).values_mut() {
            queue.end(&mut wire, error);
        }
        for producer in std::mem::take(&mut self.producers).values_mut() {
            producer.fail(&mut wire, error);
        }
        self.calls.fail_all(&mut wire, error);
        for promise in std::mem::take(&mut self.alarms).into_values() {
            promise.resolve(Err(error.clone()));
        }
        if let Some(promise) = self.connected.take() {
            promise.resolve(Err(error.clone()));
        }
        self.context.session = None;
        self.context.timers.clear();
        self.context.again = false;
        self.context.liveness.disconnected();
        self.outputs.push_back(Output::Disconnect {
            attempt: self.connection.attempt(),
            reason: "the client closes".to_owned(),
        });
    }
}

fn reborrow<'a>(link: &'a mut Option<&mut dyn Link>) -> Option<&'a mut dyn Link> {
    match link {
        Some(link) => Some(&mut **link),
        None => None,
    }
}
