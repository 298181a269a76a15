//! Drives a node: links by a reactor, disk operations inline or on disk
//! threads, time by the clock. One thread; one input at a time.

use crate::descriptors::Descriptors;
use crate::disk_threads::{DiskThreads, Done, Task};
use crate::rare_line::RareLine;
use crate::strangers::Strangers;
use broker::node::{
    Input, LINK_QUEUED_BYTES_HIGH, LINK_QUEUED_BYTES_LOW, LinkId, Node, Now, Output, StorageId,
};
use log::{Disk, DiskError, Operation, OperationToken, Outcome};
use memory::Pool;
use net::{LinkEvent, Listener, ListenerId, NetError, Reactor, ReactorEvent};
use std::collections::{BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use wire::frame::FrameKind;

/// How long inputs are taken before what they led to is sent: many frames
/// then cost one system call, and none waits noticeably longer.
const TURN: Duration = Duration::from_micros(500);
/// How often the clock of the day is looked at: what is set there counts by then.
const DAY_CLOCK: Duration = Duration::from_millis(10);
/// How many outputs are gathered at most before they are sent.
const OUTBOX_MAX: usize = 1024;
/// So many deliveries of a turn are written before acknowledgements. Writing
/// one wakes whoever waits for the event; few are no delay for the producer
/// that is to hear of it after them, but the readers of a popular topic were.
const DELIVERIES_FIRST: usize = 4;
/// How long an end may take beyond what the node was given for its drain:
/// closing partitions is up to the disk.
const CLOSING: Duration = Duration::from_secs(5);
/// How often it is looked whether crowded links have sent what waited.
const CROWDED_WAIT: Duration = Duration::from_millis(1);
/// How often memory that lies idle is looked for.
const IDLE_MEMORY: Duration = Duration::from_secs(10);
/// How often the file system of the data directory is looked at.
const LOOK_AT_FILE_SYSTEM: Duration = Duration::from_secs(10);
/// How often farewells are tried to be sent at the end.
const FAREWELL_TURNS: u32 = 1000;

/// Where lines for the operator go.
pub type Report = Arc<dyn Fn(&str) + Send + Sync>;

/// What others want of the executor. Written by anybody, then its waker rung.
#[derive(Debug, Default)]
pub struct Wish {
    /// One of the constants; grows only.
    what: AtomicU8,
    drain_timeout_ms: AtomicU64,
}

impl Wish {
    const RUN: u8 = 0;
    const DRAIN: u8 = 1;
    const KILL: u8 = 2;

    /// Finish what was taken, within `timeout`, and end.
    pub fn drain(&self, timeout: Duration) {
        let timeout_ms = timeout.as_millis().min(u64::MAX.into()) as u64;
        self.drain_timeout_ms.store(timeout_ms, Ordering::Relaxed);
        // Release: whoever sees the wish sees its timeout.
        self.what.fetch_max(Self::DRAIN, Ordering::Release);
    }

    /// End at once, as if the process had died.
    pub fn kill(&self) {
        self.what.fetch_max(Self::KILL, Ordering::Release);
    }
}

/// How an executor ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// Everything is closed cleanly.
    Drained,
    /// Everything is closed, but this had failed before, and was not closed cleanly.
    Unclean {
        /// What failed, and why.
        why: String,
    },
    /// It was told to end at once.
    Killed,
    /// Not everything could be closed within this time.
    TimedOut {
        /// How long was waited.
        waited: Duration,
    },
}

/// See the module.
pub struct Executor {
    node: Node,
    reactor: Reactor,
    threads: DiskThreads,
    disk: Arc<dyn Disk>,
    pool: Pool,
    /// When memory that lies idle is given back.
    give_back_at: Instant,
    report: Report,
    wish: Arc<Wish>,
    started: Instant,
    /// What the clock of the day said at that moment, as it goes now: looked
    /// at now and then, for each look costs time.
    started_unix_ns: u64,
    /// When it is looked at again.
    look_at_day_at: Duration,
    /// When the node was told the time last.
    told: Duration,
    /// Links that the node knows.
    links: BTreeSet<net::LinkId>,
    /// Links of which the node was told that too much waits to be sent.
    crowded: BTreeSet<net::LinkId>,
    /// Links of which the node has had no Hello.
    strangers: Strangers,
    descriptors: Descriptors,
    /// Lines about connections that were dropped or could not be taken.
    dropped: RareLine,
    not_taken: RareLine,
    /// What is to be told to the network at the end of the turn.
    outbox: Vec<Output>,
    /// Operations that were done inline, not yet told.
    inline: VecDeque<(StorageId, OperationToken, Result<Outcome, DiskError>)>,
    done: Vec<Done>,
    draining: Option<Draining>,
    drained: bool,
    /// Where the data directory is.
    directory: PathBuf,
    /// When its file system is looked at next; `None` while a disk thread does.
    look_at_file_system_at: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
struct Draining {
    since: Instant,
    timeout: Duration,
}

/// What an executor is made of.
pub struct Parts {
    /// The node, opened.
    pub node: Node,
    /// Drives the listeners.
    pub reactor: Reactor,
    /// Where connections come from.
    pub listeners: Vec<Box<dyn Listener>>,
    /// Carries out operations that do not wait.
    pub disk: Arc<dyn Disk>,
    /// Carry out the others.
    pub threads: DiskThreads,
    /// Where the data directory is.
    pub directory: PathBuf,
    /// Where buffers come from; what it keeps and nobody needs is given back.
    pub pool: Pool,
    /// Where lines for the operator go.
    pub report: Report,
    /// What others want.
    pub wish: Arc<Wish>,
    /// The moment from which the node counts time.
    pub started: Instant,
    /// How many clients at one listener may not have said who they are.
    pub pending_connections_max: usize,
    /// Which descriptors connections may have.
    pub descriptors: Descriptors,
}

/// The time since `started`, and since 1970.
pub fn now(started: Instant) -> Now {
    let unix = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Now {
        monotonic: started.elapsed(),
        unix_ns: unix.as_nanos().min(u64::MAX.into()) as u64,
    }
}

impl Executor {
    /// Takes the parts together.
    pub fn new(parts: Parts) -> Result<Self, NetError> {
        let mut reactor = parts.reactor;
        for listener in parts.listeners {
            reactor.add_listener(listener)?;
        }
        Ok(Self {
            node: parts.node,
            reactor,
            threads: parts.threads,
            disk: parts.disk,
            pool: parts.pool,
            give_back_at: Instant::now() + IDLE_MEMORY,
            report: parts.report,
            wish: parts.wish,
            started: parts.started,
            started_unix_ns: 0,
            look_at_day_at: Duration::ZERO,
            told: Duration::ZERO,
            links: BTreeSet::new(),
            crowded: BTreeSet::new(),
            strangers: Strangers::new(parts.pending_connections_max),
            descriptors: parts.descriptors,
            dropped: RareLine::default(),
            not_taken: RareLine::default(),
            outbox: Vec::new(),
            inline: VecDeque::new(),
            done: Vec::new(),
            draining: None,
            drained: false,
            directory: parts.directory,
            look_at_file_system_at: Some(Instant::now()),
        })
    }

    /// Runs until it is drained or killed.
    pub fn run(mut self) -> Result<End, NetError> {
        self.look_at_clocks();
        // The start may have left outputs.
        self.pump();
        loop {
            self.turn();
            if self.drained {
                self.farewell();
                return Ok(match self.node.unclean() {
                    Some(why) => End::Unclean {
                        why: why.to_owned(),
                    },
                    None => End::Drained,
                });
            }
            match self.wish.what.load(Ordering::Acquire) {
                Wish::KILL => return Ok(End::Killed),
                Wish::DRAIN if self.draining.is_none() => {
                    let timeout_ms = self.wish.drain_timeout_ms.load(Ordering::Relaxed);
                    self.draining = Some(Draining {
                        since: Instant::now(),
                        timeout: Duration::from_millis(timeout_ms) + CLOSING,
                    });
                    self.handle(Input::Drain);
                    continue;
                }
                _ => {}
            }
            let now = Instant::now();
            let elapsed = now - self.started;
            let timer = self.node.next_timer();
            let mut timeout = timer.map(|at| at.saturating_sub(elapsed));
            if let Some(draining) = self.draining {
                let waited = draining.since.elapsed();
                if waited >= draining.timeout {
                    return Ok(End::TimedOut { waited });
                }
                let left = draining.timeout - waited;
                timeout = Some(timeout.map_or(left, |timer| timer.min(left)));
            }
            if !self.crowded.is_empty() {
                // Links without a socket do not say when their other end takes.
                timeout = Some(timeout.map_or(CROWDED_WAIT, |at| at.min(CROWDED_WAIT)));
            }
            if let Some(left) = self.give_back_idle_memory(now) {
                timeout = Some(timeout.map_or(left, |at| at.min(left)));
            }
            if let Some(left) = self.look_at_file_system(now) {
                timeout = Some(timeout.map_or(left, |at| at.min(left)));
            }
            self.reactor.wait(timeout)?;
        }
    }

    /// Gives back what lies idle if it is time. Says in how long to come
    /// again; a server without idle memory need not be woken.
    fn give_back_idle_memory(&mut self, now: Instant) -> Option<Duration> {
        if now >= self.give_back_at {
            self.pool.give_back_idle();
            self.give_back_at = now + IDLE_MEMORY;
        }
        (self.pool.kept_bytes() > 0).then(|| self.give_back_at - now)
    }

    /// Has a disk thread look at the file system if it is time: that may block.
    /// Says in how long to come again.
    fn look_at_file_system(&mut self, now: Instant) -> Option<Duration> {
        let at = self.look_at_file_system_at?;
        if now < at {
            return Some(at - now);
        }
        self.look_at_file_system_at = None;
        let path = self.directory.clone();
        self.threads.submit(Task::FileSystem(path));
        None
    }

    /// Takes everything that has happened, and sends what came of it.
    fn turn(&mut self) {
        loop {
            let began = self.look_at_clocks();
            let mut idle = false;
            while self.told - began < TURN && self.outbox.len() < OUTBOX_MAX {
                let Some(event) = self.reactor.next() else {
                    idle = true;
                    break;
                };
                self.take(event);
            }
            self.take_done();
            // What was put off waits until others have what they wait for.
            let behind = self.node.is_behind() && idle && !self.outbox.is_empty();
            let timer = self.node.next_timer().filter(|_| !behind);
            if timer.is_some_and(|at| at <= self.told) {
                self.handle(Input::Timer);
            }
            self.tell_relieved();
            if idle && self.outbox.is_empty() {
                return;
            }
            self.send();
            // While there is always more, the wishes of others must be seen.
            if self.drained || self.wish.what.load(Ordering::Acquire) != Wish::RUN {
                return;
            }
        }
    }

    fn take(&mut self, event: ReactorEvent) {
        match event {
            // The link says `Up` or `Down` itself.
            ReactorEvent::Accepted { listener, link } => self.stranger_came(listener, link),
            ReactorEvent::AcceptFailed { error, .. } => self.accept_failed(&error),
            ReactorEvent::Woken => self.take_done(),
            ReactorEvent::Link { link, event } => self.take_link_event(link, event),
        }
    }

    /// Somebody connected, who may say nothing for a while: of those there are
    /// not too many, and the disk keeps its descriptors.
    fn stranger_came(&mut self, listener: ListenerId, link: net::LinkId) {
        if let Some(oldest) = self.strangers.came(listener, link) {
            self.drop_stranger(
                oldest,
                "pending_connections_max say nothing at its address already",
            );
        }
        let excess = self.descriptors.connection_came();
        self.drop_dispensable(excess, Some(link));
    }

    /// The listener goes on when a link is removed. Somebody who says nothing
    /// is let go for that, for it is descriptors that lack most of the time.
    fn accept_failed(&mut self, error: &NetError) {
        if let Some(count) = self.not_taken.due(Instant::now()) {
            let limit = self.descriptors.describe();
            (self.report)(&format!(
                "connections could not be taken, {count} since the last such line: {error}; {limit}"
            ));
        }
        let excess = self.descriptors.none_left();
        self.drop_dispensable(excess, None);
    }

    /// Lets so many go of those who say nothing, the newest last.
    fn drop_dispensable(&mut self, count: u64, newest: Option<net::LinkId>) {
        for _ in 0..count {
            let Some(dispensable) = self.strangers.most_dispensable(newest) else {
                return;
            };
            let limit = self.descriptors.describe();
            self.drop_stranger(dispensable, &limit);
        }
    }

    fn drop_stranger(&mut self, id: net::LinkId, why: &str) {
        self.strangers.left(id);
        let Some(link) = self.reactor.remove_link(id) else {
            return;
        };
        if let Some(count) = self.dropped.due(Instant::now()) {
            (self.report)(&format!(
                "connections without a Hello were dropped, {count} since the last such line, the \
                 last from {}: {why}",
                link.peer().address
            ));
        }
        drop(link);
        self.crowded.remove(&id);
        if self.links.remove(&id) {
            self.handle(Input::LinkDown {
                link: LinkId(id.0),
                reason: NetError::Closed(why.to_owned()),
            });
        }
    }

    fn take_link_event(&mut self, id: net::LinkId, event: LinkEvent) {
        let link = LinkId(id.0);
        let input = match event {
            LinkEvent::Up => {
                let Some(up) = self.reactor.peek(id) else {
                    return;
                };
                let (peer, capabilities) = (up.peer().clone(), up.capabilities().clone());
                self.links.insert(id);
                Input::LinkUp {
                    link,
                    peer,
                    capabilities,
                }
            }
            LinkEvent::Message(message) => Input::Message { link, message },
            LinkEvent::ReadDone { token, result } => Input::ReadDone {
                link,
                token,
                result,
            },
            LinkEvent::WriteDone { token, result } => Input::WriteDone {
                link,
                token,
                result,
            },
            LinkEvent::Down(reason) => {
                self.reactor.remove_link(id);
                self.strangers.left(id);
                // A link that never stood is nothing to the node.
                if !self.links.remove(&id) {
                    return;
                }
                Input::LinkDown { link, reason }
            }
        };
        self.handle(input);
        if self.strangers.contains(id) && self.node.knows_client(link) {
            self.strangers.left(id);
        }
    }

    fn take_done(&mut self) {
        let mut done = std::mem::take(&mut self.done);
        self.threads.take_done(&mut done);
        for done in done.drain(..) {
            let input = match done {
                Done::Operation {
                    storage,
                    token,
                    result,
                } => Input::DiskDone {
                    storage,
                    token,
                    result,
                },
                Done::Job { job, result } => Input::JobDone { job, result },
                Done::FileSystem(space) => {
                    self.look_at_file_system_at = Some(Instant::now() + LOOK_AT_FILE_SYSTEM);
                    match space {
                        Some(space) => Input::FileSystem(space),
                        None => continue,
                    }
                }
            };
            self.handle(input);
        }
        self.done = done;
    }

    fn handle(&mut self, input: Input) {
        let now = self.now();
        self.node.handle(now, input);
        self.pump();
    }

    /// Follows the clock of the day. Returns the time since the start.
    fn look_at_clocks(&mut self) -> Duration {
        let monotonic = self.started.elapsed();
        if monotonic >= self.look_at_day_at {
            let now = now(self.started);
            let since_ns = now.monotonic.as_nanos() as u64;
            self.started_unix_ns = now.unix_ns.saturating_sub(since_ns);
            self.look_at_day_at = now.monotonic + DAY_CLOCK;
        }
        self.told = monotonic;
        monotonic
    }

    /// The time for the node.
    fn now(&mut self) -> Now {
        self.told = self.started.elapsed();
        self.time()
    }

    /// The time that it was told last.
    fn time(&self) -> Now {
        let since_ns = self.told.as_nanos() as u64;
        Now {
            monotonic: self.told,
            unix_ns: self.started_unix_ns.saturating_add(since_ns),
        }
    }

    /// Takes the node's outputs until there is none, and with them those of
    /// the operations that are done at once.
    fn pump(&mut self) {
        loop {
            while let Some(output) = self.node.poll_output() {
                self.carry_out(output);
            }
            let Some((storage, token, result)) = self.inline.pop_front() else {
                return;
            };
            let input = Input::DiskDone {
                storage,
                token,
                result,
            };
            // What was done meanwhile is no wait: the time is that of its cause.
            self.node.handle(self.time(), input);
        }
    }

    fn carry_out(&mut self, output: Output) {
        match output {
            Output::Disk {
                storage,
                token,
                operation,
            } => self.start(storage, token, operation),
            Output::Job { job, work } => self.threads.submit(Task::Job { job, work }),
            Output::Report(line) => (self.report)(&line),
            Output::Drained => self.drained = true,
            network => self.outbox.push(network),
        }
    }

    fn start(&mut self, storage: StorageId, token: OperationToken, operation: Operation) {
        let result = match operation {
            operation if !operation.blocks() => Ok(self.disk.execute(operation)),
            read @ (Operation::Read { .. } | Operation::ReadPlaces { .. }) => {
                self.disk.execute_without_waiting(read)
            }
            operation => Err(operation),
        };
        match result {
            Ok(result) => self.inline.push_back((storage, token, result)),
            Err(operation) => self.threads.submit(Task::Operation {
                storage,
                token,
                operation,
            }),
        }
    }

    /// Tells the node of links that have sent enough of what waited.
    fn tell_relieved(&mut self) {
        if self.crowded.is_empty() {
            return;
        }
        for id in std::mem::take(&mut self.crowded) {
            let Some(bytes) = self.reactor.peek(id).map(|link| link.queued_bytes()) else {
                continue;
            };
            if bytes > LINK_QUEUED_BYTES_LOW {
                self.crowded.insert(id);
                continue;
            }
            let link = LinkId(id.0);
            self.handle(Input::LinkQueued { link, bytes });
        }
    }

    /// Hands the outbox to the links. Their turn, in which many messages
    /// leave with one system call, comes with the next look at the reactor.
    fn send(&mut self) {
        self.put_deliveries_first();
        let mut crowded = Vec::new();
        for output in self.outbox.drain(..) {
            let id = match &output {
                Output::Send { link, .. }
                | Output::Read { link, .. }
                | Output::Write { link, .. }
                | Output::Close { link, .. } => net::LinkId(link.0),
                _ => unreachable!("only network outputs are put into the outbox"),
            };
            // What is for a dead link is dropped: its end has been or will be told.
            let Some(link) = self.reactor.link(id) else {
                continue;
            };
            match output {
                Output::Send { message, .. } => {
                    link.send(message);
                    let bytes = link.queued_bytes();
                    if bytes > LINK_QUEUED_BYTES_HIGH && self.crowded.insert(id) {
                        crowded.push((LinkId(id.0), bytes));
                    }
                }
                Output::Read { token, read, .. } => link.read(token, read),
                Output::Write { token, write, .. } => link.write(token, write),
                Output::Close { reason, .. } => link.close(&reason),
                _ => unreachable!("only network outputs are put into the outbox"),
            }
        }
        for (link, bytes) in crowded {
            self.handle(Input::LinkQueued { link, bytes });
        }
    }

    /// Links have their turns in the order in which they are asked for: what is
    /// sent on one link stays in order, whichever link comes first.
    fn put_deliveries_first(&mut self) {
        let deliveries = self.outbox.iter().filter_map(|output| match output {
            Output::Send { link, message } if message.kind == FrameKind::Deliver => Some(link),
            _ => None,
        });
        for link in deliveries.take(DELIVERIES_FIRST) {
            self.reactor.link(net::LinkId(link.0));
        }
    }

    /// Lets the links say what they were given to say, as far as that goes
    /// without waiting.
    fn farewell(&mut self) {
        self.send();
        for _ in 0..FAREWELL_TURNS {
            if self.reactor.next().is_none() {
                return;
            }
        }
    }
}
