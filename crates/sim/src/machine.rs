//! The server's machine: a disk that forgets and fails, and the node on it,
//! executed in one thread. Disk operations and jobs complete later, in an
//! order that the seed chooses.

use crate::planted::Planted;
use crate::random::Random;
use crate::trace::{Trace, Violation};
use crate::wired::{Rung, Wired};
use crate::witness::Witness;
use broker::node::{Input, Job, JobId, LinkId, Now, Output, StorageId};
use broker::{Fault, Limits, Node, NodeOptions};
use log::testing::{FaultyDisk, Survival};
use log::{Disk, DiskError, DiskKind, MemoryKind, Operation, OperationToken, Outcome, StorageKind};
use net::testing::sim::{Sim, SimNet};
use net::{LinkEvent, LinkOptions, Listener, Transport};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use wire::{DirectoryId, ServerInstance};

/// Where the server listens.
pub const ADDRESS: &str = "sim://server";
/// What clients present.
pub const TOKEN: [u8; 32] = [0x5a; 32];
/// The data directory's id.
pub const DIRECTORY: DirectoryId = DirectoryId(0x7a1);
const UNIX_NS: u64 = 1_700_000_000_000_000_000;

/// How the machine is made.
#[derive(Debug, Clone)]
pub struct MachinePlan {
    /// The node's bounds.
    pub limits: Limits,
    /// Configuration of the internal partition.
    pub internal_config: String,
    /// How long a disk operation that syncs takes, nanoseconds.
    pub sync_ns: Range<u64>,
    /// How long others take.
    pub operation_ns: Range<u64>,
    /// One operation in so many that do not sync is done at once.
    pub inline_one_in: u64,
    /// A fault that is planted into the node.
    pub fault: Option<Fault>,
    /// A fault that is planted anywhere.
    pub planted: Option<Planted>,
}

/// The machine.
pub struct Machine {
    pub disk: Arc<FaultyDisk>,
    plan: MachinePlan,
    kinds: Vec<Arc<dyn StorageKind>>,
    transport: Sim,
    random: Random,
    trace: Trace,
    running: Option<Running>,
    boot: u64,
    runs: u64,
    last_link: u64,
    /// Who listens, if somebody does.
    pub witness: Option<Witness>,
    /// The process is stopped until then.
    stopped_until: u64,
}

struct Running {
    node: Node,
    listener: Box<dyn Listener>,
    rung: Rung,
    links: BTreeMap<LinkId, Wired>,
    operations: Vec<Pending>,
    jobs: Vec<(u64, JobId, Job)>,
    drained: bool,
}

struct Pending {
    due: u64,
    storage: StorageId,
    token: OperationToken,
    operation: Operation,
}

impl Machine {
    /// A machine with an empty disk, not running.
    pub fn new(net: &SimNet, plan: MachinePlan, mut random: Random, trace: Trace) -> Self {
        let disk = Arc::new(FaultyDisk::new());
        disk.execute(Operation::CreateDirectory {
            path: PathBuf::from("/data"),
        })
        .expect("an empty disk takes a directory");
        disk.execute(Operation::SyncDirectory {
            path: PathBuf::from("/"),
        })
        .expect("an empty disk can be synced");
        let kinds: Vec<Arc<dyn StorageKind>> = vec![
            Arc::new(DiskKind::seeded(disk.clone(), random.number())),
            Arc::new(MemoryKind),
        ];
        Self {
            disk,
            plan,
            kinds,
            transport: net.transport(LinkOptions::default()),
            random,
            trace,
            running: None,
            boot: 1,
            runs: 0,
            last_link: 0,
            witness: None,
            stopped_until: 0,
        }
    }

    /// The node, if it runs.
    pub fn node(&self) -> Option<&Node> {
        self.running.as_ref().map(|running| &running.node)
    }

    /// Why the server should be started anew, if it should.
    pub fn failure(&self) -> Option<String> {
        self.node()?.failure()
    }

    fn now(&self, now: u64) -> Now {
        Now {
            monotonic: Duration::from_nanos(now),
            unix_ns: UNIX_NS + now,
        }
    }

    /// Starts the server. False if the disk did not let it.
    pub fn start(&mut self, now: u64) -> bool {
        assert!(self.running.is_none(), "one server at a time");
        self.runs += 1;
        let options = NodeOptions {
            directory: PathBuf::from("/data"),
            disk: self.disk.clone(),
            kinds: self.kinds.clone(),
            open_partitions: broker::open_in_turn,
            internal_config: self.plan.internal_config.clone(),
            limits: self.plan.limits.clone(),
            directory_id: DIRECTORY,
            instance: ServerInstance(u128::from(self.runs)),
            token: TOKEN,
            owner_uid: None,
            boot_id: format!("boot-{}", self.boot),
            server_version: "simulated".to_owned(),
            pool: memory::Pool::new(16 << 20),
            seed: u128::from(self.random.number()) << 64 | u128::from(self.runs),
            accept_loss: false,
            fault: self.plan.fault,
        };
        match Node::open(options, self.now(now)) {
            Ok((node, report)) => {
                self.trace
                    .say(now, || format!("server: started {report:?}"));
                if let Some(witness) = &mut self.witness {
                    witness.started(now);
                }
                let mut listener = self
                    .transport
                    .listen(ADDRESS)
                    .expect("the server before has let go of the address");
                let rung = Rung::new();
                listener.attach(rung.bell());
                self.running = Some(Running {
                    node,
                    listener,
                    rung,
                    links: BTreeMap::new(),
                    operations: Vec::new(),
                    jobs: Vec::new(),
                    drained: false,
                });
                true
            }
            Err(error) => {
                self.trace
                    .say(now, || format!("server: not started: {error}"));
                false
            }
        }
    }

    /// The server's process dies; the page cache survives.
    pub fn kill(&mut self, now: u64) {
        self.trace.say(now, || "server: killed".to_owned());
        self.end_process(now);
        self.disk.kill();
    }

    /// The server's process is stopped until then, as by SIGSTOP.
    pub fn stop(&mut self, until: u64) {
        self.stopped_until = until;
    }

    /// The machine loses power: what was not synced survives in part, or not.
    pub fn lose_power(&mut self, now: u64, survival: Survival) {
        self.trace
            .say(now, || format!("server: power lost, {survival:?} survives"));
        self.end_process(now);
        self.disk.power_loss(survival);
        self.boot += 1;
    }

    /// What the disk had not done yet is done, or half done, or never.
    fn end_process(&mut self, now: u64) {
        self.stopped_until = 0;
        let Some(running) = self.running.take() else {
            return;
        };
        if let Some(witness) = &mut self.witness {
            witness.crashed(now);
        }
        for pending in running.operations {
            match self.random.below(3) {
                0 => {}
                1 => {
                    let part = self.random.below(5000);
                    self.disk.execute_in_part(&pending.operation, part);
                }
                _ => drop(self.disk.execute(pending.operation)),
            }
        }
    }

    /// Asks the server to end; see [`Machine::is_drained`].
    pub fn drain(&mut self, now: u64) {
        self.trace.say(now, || "server: drains".to_owned());
        self.handle(now, Input::Drain);
    }

    /// Whether the server has ended after it was asked to; it is gone then.
    pub fn is_drained(&mut self, now: u64) -> bool {
        match &self.running {
            Some(running) if running.drained => {
                self.running = None;
                if let Some(witness) = &mut self.witness {
                    witness.crashed(now);
                }
                self.disk.kill();
                true
            }
            Some(_) => false,
            None => true,
        }
    }

    /// When something happens by itself, if nothing else does.
    pub fn next_event(&self) -> Option<u64> {
        let running = self.running.as_ref()?;
        if self.stopped_until > 0 {
            return Some(self.stopped_until);
        }
        let timer = running
            .node
            .next_timer()
            .map(|at| at.as_nanos().min(u128::from(u64::MAX)) as u64);
        let operations = running.operations.iter().map(|pending| pending.due);
        let jobs = running.jobs.iter().map(|(due, _, _)| *due);
        operations.chain(jobs).chain(timer).min()
    }

    fn handle(&mut self, now: u64, input: Input) {
        let at = self.now(now);
        let Some(running) = &mut self.running else {
            return;
        };
        running.node.handle(at, input);
        self.carry_out(now);
    }

    fn carry_out(&mut self, now: u64) {
        let Some(running) = &mut self.running else {
            return;
        };
        let mut at_once = Vec::new();
        while let Some(output) = running.node.poll_output() {
            match output {
                Output::Send { link, message } => {
                    if let Some(witness) = &mut self.witness {
                        witness.sent(now, link, &message);
                    }
                    if let Some(wired) = running.links.get_mut(&link) {
                        wired.ask().send(message);
                    }
                }
                Output::Read { link, token, read } => match running.links.get_mut(&link) {
                    Some(wired) => wired.ask().read(token, read),
                    None => at_once.push(Input::ReadDone {
                        link,
                        token,
                        result: Err(net::NetError::Cancelled),
                    }),
                },
                Output::Write { link, token, write } => match running.links.get_mut(&link) {
                    Some(wired) => wired.ask().write(token, write),
                    None => at_once.push(Input::WriteDone {
                        link,
                        token,
                        result: Err(net::NetError::Cancelled),
                    }),
                },
                Output::Close { link, reason } => {
                    self.trace
                        .say(now, || format!("server: closes {link:?}: {reason}"));
                    if let Some(wired) = running.links.get_mut(&link) {
                        wired.ask().close(&reason);
                    }
                }
                Output::Disk {
                    storage,
                    token,
                    operation,
                } => {
                    let syncs = matches!(
                        operation,
                        Operation::SyncData { .. } | Operation::SyncDirectory { .. }
                    );
                    let delay = match syncs {
                        true => self.random.within(self.plan.sync_ns.clone()),
                        false if self.random.one_in(self.plan.inline_one_in) => 0,
                        false => self.random.within(self.plan.operation_ns.clone()),
                    };
                    running.operations.push(Pending {
                        due: now + delay,
                        storage,
                        token,
                        operation,
                    });
                }
                Output::Job { job, work } => {
                    let delay = self.random.within(self.plan.sync_ns.clone());
                    running.jobs.push((now + delay, job, work));
                }
                Output::Report(line) => self.trace.say(now, || format!("server: {line}")),
                Output::Drained => running.drained = true,
            }
        }
        for input in at_once {
            self.handle(now, input);
        }
    }

    /// Does what is due. True if there was something.
    pub fn turn(&mut self, now: u64) -> Result<bool, Violation> {
        if now < self.stopped_until {
            return Ok(false);
        }
        self.stopped_until = 0;
        let moved = self.run(now)?;
        match &mut self.witness {
            Some(witness) => witness.violation().map(|()| moved),
            None => Ok(moved),
        }
    }

    fn run(&mut self, now: u64) -> Result<bool, Violation> {
        let mut moved = self.accept(now)?;
        let Some(running) = &mut self.running else {
            return Ok(false);
        };
        let rung: Vec<LinkId> = running
            .links
            .iter()
            .filter(|(_, wired)| wired.is_rung())
            .map(|(link, _)| *link)
            .collect();
        for link in rung {
            moved = true;
            self.poll(now, link);
        }
        moved |= self.disk_turn(now);
        let timer = self.node().and_then(Node::next_timer);
        if timer.is_some_and(|at| at <= Duration::from_nanos(now)) {
            moved = true;
            self.handle(now, Input::Timer);
            let again = self.node().and_then(Node::next_timer);
            if again.is_some_and(|at| at <= Duration::from_nanos(now)) && again == timer {
                return Violation::because("the node's timer does not move on");
            }
        }
        Ok(moved)
    }

    fn accept(&mut self, now: u64) -> Result<bool, Violation> {
        let Some(running) = &mut self.running else {
            return Ok(false);
        };
        if !running.rung.take() {
            return Ok(false);
        }
        let mut arrived = Vec::new();
        loop {
            match running.listener.accept() {
                Ok(Some(link)) => arrived.push(link),
                Ok(None) => break,
                Err(error) => return Violation::because(format!("accepting fails: {error}")),
            }
        }
        let moved = !arrived.is_empty();
        for link in arrived {
            self.last_link += 1;
            let id = LinkId(self.last_link);
            let wired = Wired::new(link);
            self.trace.say(now, || {
                format!("server: accepts {} as {id:?}", wired.link.peer().address)
            });
            if let Some(running) = &mut self.running {
                running.links.insert(id, wired);
            }
        }
        Ok(moved)
    }

    fn poll(&mut self, now: u64, id: LinkId) {
        loop {
            let wired = self
                .running
                .as_mut()
                .and_then(|running| running.links.get_mut(&id));
            let Some(wired) = wired else {
                return;
            };
            let Some(event) = wired.link.poll() else {
                return;
            };
            let input = match event {
                LinkEvent::Up => Input::LinkUp {
                    link: id,
                    peer: wired.link.peer().clone(),
                    capabilities: wired.link.capabilities().clone(),
                },
                LinkEvent::Message(message) => {
                    if let Some(witness) = &mut self.witness {
                        witness.received(now, id, &message);
                    }
                    Input::Message { link: id, message }
                }
                LinkEvent::ReadDone { token, result } => Input::ReadDone {
                    link: id,
                    token,
                    result,
                },
                LinkEvent::WriteDone { token, result } => Input::WriteDone {
                    link: id,
                    token,
                    result,
                },
                LinkEvent::Down(reason) => {
                    self.trace
                        .say(now, || format!("server: {id:?} is down: {reason}"));
                    if let Some(running) = &mut self.running {
                        running.links.remove(&id);
                    }
                    Input::LinkDown { link: id, reason }
                }
            };
            self.handle(now, input);
        }
    }

    /// Carries out an operation, unless a planted fault skips it.
    fn execute(&self, operation: Operation) -> Result<Outcome, DiskError> {
        let skipped = match (&operation, self.plan.planted) {
            (Operation::SyncData { .. }, Some(Planted::NoSync)) => true,
            (Operation::SyncDirectory { .. }, Some(Planted::NoDirectorySync)) => true,
            (Operation::SyncData { file }, Some(Planted::NoDataSync)) => {
                let path = self.disk.path_of(*file);
                path.is_some_and(|path| path.extension().is_some_and(|ending| ending == "data"))
            }
            _ => false,
        };
        match skipped {
            true => Ok(Outcome::Done),
            false => self.disk.execute(operation),
        }
    }

    /// Completes the disk operations and jobs that are due, in order of time.
    fn disk_turn(&mut self, now: u64) -> bool {
        let mut moved = false;
        loop {
            let Some(running) = &mut self.running else {
                return moved;
            };
            let due = running
                .operations
                .iter()
                .enumerate()
                .filter(|(_, pending)| pending.due <= now)
                .min_by_key(|(index, pending)| (pending.due, *index))
                .map(|(index, _)| index);
            if let Some(index) = due {
                let pending = running.operations.remove(index);
                let result = self.execute(pending.operation);
                self.trace.say(now, || match &result {
                    Ok(_) => format!("disk: {:?}", self.disk.trace().pop()),
                    Err(error) => format!("disk: {error}"),
                });
                let input = Input::DiskDone {
                    storage: pending.storage,
                    token: pending.token,
                    result,
                };
                self.handle(now, input);
                moved = true;
                continue;
            }
            let due = running.jobs.iter().position(|(due, _, _)| *due <= now);
            let Some(index) = due else {
                return moved;
            };
            let (_, job, work) = running.jobs.remove(index);
            let result = work.run();
            self.handle(now, Input::JobDone { job, result });
            moved = true;
        }
    }
}
