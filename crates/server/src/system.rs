//! The operating system as what an executor runs on: links by a reactor, disk operations
//! inline or on disk threads, time by the clock; and the loop that waits for all of these.

use crate::access_files::Believed;
use crate::audit_trail::AuditTrail;
use crate::certificates::Certificates;
use crate::descriptors::Descriptors;
use crate::disk_threads::{DiskThreads, Done, Task};
use crate::environment::Environment;
use crate::examine_threads::ExamineThreads;
use crate::exchange::Peers;
use crate::executor::Executor;
use crate::server_log::ServerLog;
use broker::node::{Input, Job, JobId, JobResult, Now, StorageId};
use broker::{AuditRecord, Line};
use log::{Disk, DiskError, Operation, OperationToken, Outcome};
use memory::Pool;
use net::{
    BulkToken, Capabilities, LinkId, Listener, Message, NetError, Peer, Reactor, ReactorEvent,
    RegionRead, RegionWrite, StripesFrom,
};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use wire::NodeId;
use wire::table::TableMessage;

/// How often the clock of the day is looked at, for each look costs time: what is set there
/// counts by then.
const DAY_CLOCK: Duration = Duration::from_millis(10);
/// How long an end may take beyond what the node was given for its drain:
/// closing partitions is up to the disk.
const CLOSING: Duration = Duration::from_secs(5);
/// How often memory that lies idle is looked for.
const IDLE_MEMORY: Duration = Duration::from_secs(10);
/// How often the data directory is looked at: what its file system has left, and whose tokens are
/// taken. A token that was revoked is none within 5 s.
const LOOK_AT_DIRECTORY: Duration = Duration::from_secs(4);

/// A request that a server shuts down. Made by anybody, who then wakes the reactor.
#[derive(Debug, Default)]
pub struct ShutdownRequest {
    /// One of the constants; grows only.
    how: AtomicU8,
    drain_timeout_ms: AtomicU64,
}

impl ShutdownRequest {
    const NONE: u8 = 0;
    const DRAIN: u8 = 1;
    const KILL: u8 = 2;

    /// Finish what was taken, within `timeout`, and end.
    pub fn drain(&self, timeout: Duration) {
        let timeout_ms = timeout.as_millis().min(u64::MAX.into()) as u64;
        self.drain_timeout_ms.store(timeout_ms, Ordering::Relaxed);
        // Release: the thread that sees the request sees its timeout.
        self.how.fetch_max(Self::DRAIN, Ordering::Release);
    }

    /// End at once, as if the process had died.
    pub fn kill(&self) {
        self.how.fetch_max(Self::KILL, Ordering::Release);
    }

    /// Whether it was made.
    pub fn is_asked(&self) -> bool {
        self.how() != Self::NONE
    }

    fn how(&self) -> u8 {
        self.how.load(Ordering::Acquire)
    }
}

/// How a server ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// Everything is closed cleanly.
    Drained,
    /// Everything is closed, but this had failed before, and was not closed cleanly.
    Unclean {
        /// What failed, and why.
        why: String,
    },
    /// It was asked to end at once.
    Killed,
    /// Not everything could be closed within this time.
    TimedOut {
        /// How long was waited.
        waited: Duration,
    },
}

/// What a system is made of.
pub struct Parts {
    /// Drives the listeners.
    pub reactor: Reactor,
    /// Where connections come from.
    pub listeners: Vec<Box<dyn Listener>>,
    /// Carries out operations that do not wait.
    pub disk: Arc<dyn Disk>,
    /// Carry out the others.
    pub threads: DiskThreads,
    /// Look at credentials of others.
    pub examine: ExamineThreads,
    /// Where the data directory is.
    pub directory: PathBuf,
    /// Whom the node believes, of those files.
    pub access: Believed,
    /// Where buffers come from; what it keeps and nobody needs is given back.
    pub pool: Pool,
    /// Where lines for the operator go.
    pub log: ServerLog,
    /// What ends it.
    pub shutdown: Arc<ShutdownRequest>,
    /// The moment from which the node counts time.
    pub started: Instant,
    /// Which descriptors connections may have.
    pub descriptors: Descriptors,
    /// What listeners of TLS show, if there are any.
    pub certificates: Option<Arc<Mutex<Certificates>>>,
    /// Where records of the audit trail go.
    pub audit: AuditTrail,
    /// The way to the other nodes of the process, if there are any.
    pub peers: Option<Peers>,
}

/// See the module.
pub struct System {
    reactor: Reactor,
    threads: DiskThreads,
    examine: ExamineThreads,
    /// Looks under way: without one nobody is asked, for there is a lock.
    examining: usize,
    disk: Arc<dyn Disk>,
    /// Empty between calls; its memory is reused.
    done: Vec<Done>,
    clock: Clock,
    descriptors: Descriptors,
    log: ServerLog,
    shutdown: Arc<ShutdownRequest>,
    pool: Pool,
    /// When memory that lies idle is given back.
    give_back_at: Duration,
    /// Where the data directory is.
    directory: PathBuf,
    /// Whom the node believes.
    access: Believed,
    /// When the directory is looked at next; `None` while a disk thread does.
    look_at_directory_at: Option<Duration>,
    /// Looked at with the directory.
    certificates: Option<Arc<Mutex<Certificates>>>,
    audit: AuditTrail,
    peers: Option<Peers>,
}

/// The time since a moment, and that of the day.
struct Clock {
    started: Instant,
    /// What the clock of the day said at that moment, as it goes now.
    started_unix_ns: u64,
    /// When it is looked at again.
    look_at_day_at: Duration,
}

impl Clock {
    fn now(&mut self) -> Now {
        let monotonic = self.started.elapsed();
        if monotonic >= self.look_at_day_at {
            let now = now(self.started);
            let since_ns = now.monotonic.as_nanos() as u64;
            self.started_unix_ns = now.unix_ns.saturating_sub(since_ns);
            self.look_at_day_at = now.monotonic + DAY_CLOCK;
        }
        let since_ns = monotonic.as_nanos() as u64;
        Now {
            monotonic,
            unix_ns: self.started_unix_ns.saturating_add(since_ns),
        }
    }
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

impl System {
    /// Takes the parts together.
    pub fn new(parts: Parts) -> Result<Self, NetError> {
        let mut reactor = parts.reactor;
        for listener in parts.listeners {
            reactor.add_listener(listener)?;
        }
        Ok(Self {
            reactor,
            threads: parts.threads,
            examine: parts.examine,
            examining: 0,
            disk: parts.disk,
            done: Vec::new(),
            clock: Clock {
                started: parts.started,
                started_unix_ns: 0,
                look_at_day_at: Duration::ZERO,
            },
            descriptors: parts.descriptors,
            log: parts.log,
            shutdown: parts.shutdown,
            pool: parts.pool,
            give_back_at: parts.started.elapsed() + IDLE_MEMORY,
            directory: parts.directory,
            access: parts.access,
            look_at_directory_at: Some(Duration::ZERO),
            certificates: parts.certificates,
            audit: parts.audit,
            peers: parts.peers,
        })
    }

    /// Gives back what lies idle if it is time. Says in how long to come
    /// again; a server without idle memory need not be woken.
    fn give_back_idle_memory(&mut self, now: Duration) -> Option<Duration> {
        if now >= self.give_back_at {
            self.pool.give_back_idle();
            self.give_back_at = now + IDLE_MEMORY;
        }
        (self.pool.kept_bytes() > 0).then(|| self.give_back_at - now)
    }

    /// Has a disk thread look at the directory if it is time: that may block.
    /// Says in how long to come again.
    fn look_at_directory(&mut self, now: Duration) -> Option<Duration> {
        let at = self.look_at_directory_at?;
        if now < at {
            return Some(at - now);
        }
        self.look_at_directory_at = None;
        let path = self.directory.clone();
        let access = self.access.files().clone();
        self.threads.submit(Task::Look { path, access });
        if let Some(certificates) = self.certificates.clone() {
            self.threads.submit(Task::Certificates(certificates));
        }
        None
    }
}

impl Environment for System {
    fn now(&mut self) -> Now {
        self.clock.now()
    }

    fn interrupts(&self) -> bool {
        self.shutdown.how() != ShutdownRequest::NONE
    }

    fn next_event(&mut self) -> Option<ReactorEvent> {
        self.reactor.next()
    }

    fn take_done(&mut self, inputs: &mut Vec<Input>) {
        if let Some(peers) = &self.peers {
            peers.take(inputs);
        }
        if self.examining > 0 {
            let examined = self.examine.take_done();
            self.examining -= examined.len();
            inputs.extend(examined.into_iter().map(|(job, examined)| {
                let result = JobResult::Examined(Box::new(examined));
                Input::JobDone { job, result }
            }));
        }
        self.threads.take_done(&mut self.done);
        for done in self.done.drain(..) {
            match done {
                Done::Operation {
                    storage,
                    token,
                    result,
                } => inputs.push(Input::DiskDone {
                    storage,
                    token,
                    result,
                }),
                Done::Certificates(Ok(None)) => {}
                Done::Certificates(Ok(Some(what))) => self.log.write(&Line::info(what)),
                Done::Certificates(Err(what)) => self.log.write(&Line::warning(what)),
                Done::Job { job, result } => inputs.push(Input::JobDone { job, result }),
                Done::Looked { space, found } => {
                    let again = self.clock.now().monotonic + LOOK_AT_DIRECTORY;
                    self.look_at_directory_at = Some(again);
                    self.log.flush();
                    inputs.extend(space.map(Input::FileSystem));
                    inputs.extend(self.access.changed(*found, &self.log));
                }
            }
        }
    }

    fn execute(&mut self, operation: Operation) -> Result<Result<Outcome, DiskError>, Operation> {
        match operation {
            operation if !operation.blocks() => Ok(self.disk.execute(operation)),
            read @ (Operation::Read { .. } | Operation::ReadPlaces { .. }) => {
                self.disk.execute_without_waiting(read)
            }
            operation => Err(operation),
        }
    }

    fn start_operation(&mut self, storage: StorageId, token: OperationToken, operation: Operation) {
        self.threads.submit(Task::Operation {
            storage,
            token,
            operation,
        });
    }

    fn start_job(&mut self, job: JobId, work: Job) {
        match work {
            // It may take seconds, for which no disk thread is to wait.
            Job::Examine {
                presented,
                look,
                awaited,
                ..
            } => {
                self.examining += 1;
                self.examine.submit(job, look, presented, awaited);
            }
            work => self.threads.submit(Task::Job { job, work }),
        }
    }

    fn peer(&self, link: LinkId) -> Option<(&Peer, &Capabilities)> {
        let link = self.reactor.peek(link)?;
        Some((link.peer(), link.capabilities()))
    }

    fn remove_link(&mut self, link: LinkId) -> Option<Peer> {
        let link = self.reactor.remove_link(link)?;
        Some(link.peer().clone())
    }

    fn send(&mut self, link: LinkId, message: Message) -> Option<u64> {
        let link = self.reactor.link(link)?;
        link.send(message);
        Some(link.queued_bytes())
    }

    fn read(&mut self, link: LinkId, token: BulkToken, read: RegionRead) {
        if let Some(link) = self.reactor.link(link) {
            link.read(token, read);
        }
    }

    fn write(&mut self, link: LinkId, token: BulkToken, write: RegionWrite) {
        if let Some(link) = self.reactor.link(link) {
            link.write(token, write);
        }
    }

    fn stripe(&mut self, link: LinkId) {
        self.reactor.stripe(link, StripesFrom::Sent);
    }

    fn join(&mut self, link: LinkId, stripe: LinkId, welcome: Message) -> bool {
        if let Some(stripe) = self.reactor.link(stripe) {
            stripe.send(welcome);
        }
        self.reactor.join(link, stripe, StripesFrom::Sent)
    }

    fn begin(&mut self, link: LinkId) -> Option<bool> {
        let heard = self.reactor.peek(link)?;
        if heard.capabilities().bytes_alone {
            return Some(crate::address::is_encrypted(&heard.peer().address));
        }
        self.reactor.frame(link);
        None
    }

    fn hold(&mut self, link: LinkId, held: bool) {
        if let Some(link) = self.reactor.link(link) {
            link.hold(held);
        }
    }

    fn close(&mut self, link: LinkId, reason: &str) {
        if let Some(link) = self.reactor.link(link) {
            link.close(reason);
        }
    }

    fn queued_bytes(&self, link: LinkId) -> Option<u64> {
        self.reactor.peek(link).map(|link| link.queued_bytes())
    }

    fn serve_first(&mut self, link: LinkId) {
        self.reactor.link(link);
    }

    fn connection_came(&mut self) -> u64 {
        self.descriptors.connection_came()
    }

    fn connection_failed(&mut self) -> u64 {
        self.descriptors.none_left()
    }

    fn describe_limit(&self) -> String {
        self.descriptors.describe()
    }

    fn report(&mut self, line: &Line) {
        self.log.write(line);
    }

    fn audit(&mut self, record: AuditRecord) {
        self.audit.bring(record);
    }

    fn send_to_node(&mut self, node: NodeId, message: TableMessage) {
        if let Some(peers) = &self.peers {
            peers.send(node, message);
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Draining {
    since: Instant,
    timeout: Duration,
}

/// Runs an executor until it is drained or killed. Calls `drain_begins` when a drain begins,
/// by a signal or by a client's request.
pub fn run(mut executor: Executor<System>, drain_begins: impl FnOnce()) -> Result<End, NetError> {
    let mut drain_begins = Some(drain_begins);
    let mut draining: Option<Draining> = None;
    loop {
        executor.turn();
        if executor.is_draining()
            && let Some(begins) = drain_begins.take()
        {
            begins();
        }
        if executor.is_drained() {
            executor.flush_finally();
            return Ok(match executor.node().unclean() {
                Some(why) => End::Unclean {
                    why: why.to_owned(),
                },
                None => End::Drained,
            });
        }
        let shutdown = &executor.environment().shutdown;
        match shutdown.how() {
            ShutdownRequest::KILL => return Ok(End::Killed),
            ShutdownRequest::DRAIN if draining.is_none() => {
                let timeout_ms = shutdown.drain_timeout_ms.load(Ordering::Relaxed);
                draining = Some(Draining {
                    since: Instant::now(),
                    timeout: Duration::from_millis(timeout_ms) + CLOSING,
                });
                executor.handle(Input::Drain);
                continue;
            }
            _ => {}
        }
        let now = executor.environment().clock.started.elapsed();
        let left = match draining {
            Some(Draining { since, timeout }) => {
                let waited = since.elapsed();
                if waited >= timeout {
                    return Ok(End::TimedOut { waited });
                }
                Some(timeout - waited)
            }
            None => None,
        };
        let within = executor.wait_within(now);
        let system = executor.environment_mut();
        let idle = system.give_back_idle_memory(now);
        let space = system.look_at_directory(now);
        let timeouts = [within, left, idle, space];
        system.reactor.wait(timeouts.into_iter().flatten().min())?;
    }
}
