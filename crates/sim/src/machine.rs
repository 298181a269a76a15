//! The server's machine: a disk that forgets and fails, and on it the node, driven by the
//! server's own executor in one thread.

use crate::ground::{self, Ground};
use crate::leaders::Leaders;
use crate::mailbox::Mailbox;
use crate::planted::Planted;
use crate::random::Random;
use crate::trace::{Trace, Violation};
use crate::witness::Witness;
use broker::node::Input;
use broker::{
    Counters, Fault, Limits, Node, NodeError, NodeOptions, Nodes, StartReport, TableRole,
};
use log::testing::{FaultyDisk, Survival};
use log::{Disk, DiskKind, MemoryKind, Operation, StorageKind};
use net::LinkOptions;
use net::Transport;
use net::testing::sim::{Sim, SimNet};
use server::executor::Executor;
use std::cell::RefCell;
use std::ops::Range;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use wire::{DirectoryId, ServerInstance};

/// Where the server of runs that have one listens.
pub const ADDRESS: &str = "sim://server";
/// What clients present.
pub const TOKEN: [u8; 32] = [0x5a; 32];
/// Its data directory's id.
pub const DIRECTORY: DirectoryId = DirectoryId(0x7a1);
/// Clients that may not have said who they are.
const PENDING_CONNECTIONS_MAX: usize = 64;

/// How the machine is made.
#[derive(Debug, Clone)]
pub struct MachinePlan {
    /// The node's bounds.
    pub limits: Limits,
    /// Configuration of the table's log and of the ledger.
    pub internal_config: String,
    /// How long a disk operation that syncs takes, nanoseconds.
    pub sync_ns: Range<u64>,
    /// How long others take.
    pub operation_ns: Range<u64>,
    /// One operation in so many that do not sync is done at once.
    pub inline_one_in: u64,
    /// One look at the events in so many ends the executor's turn, as the time does on a
    /// real machine: what was gathered by then is sent.
    pub turn_ends_one_in: u64,
    /// A fault that is planted into the node.
    pub fault: Option<Fault>,
    /// A fault that is planted anywhere.
    pub planted: Option<Planted>,
}

/// Which server a machine has.
#[derive(Debug, Clone)]
pub struct Server {
    /// For the trace.
    pub name: String,
    /// Where it listens.
    pub address: String,
    /// Its data directory's id.
    pub directory: DirectoryId,
}

/// The server of runs that have one.
impl Default for Server {
    fn default() -> Self {
        Self {
            name: "server".to_owned(),
            address: ADDRESS.to_owned(),
            directory: DIRECTORY,
        }
    }
}

/// The machine.
pub struct Machine {
    pub server: Server,
    pub disk: Arc<FaultyDisk>,
    plan: MachinePlan,
    kinds: Vec<Arc<dyn StorageKind>>,
    transport: Sim,
    random: Random,
    trace: Trace,
    running: Option<Executor<Ground>>,
    boot: u64,
    runs: u64,
    /// Who listens, if somebody does.
    pub witness: Rc<RefCell<Option<Witness>>>,
    leaders: Rc<RefCell<Leaders>>,
    /// What its node has of the one that leads the table, if it follows.
    pub mailbox: Mailbox,
    /// Whether its starts accept the loss of what they miss.
    pub accepts_loss: bool,
    /// The process is stopped until then.
    stopped_until: u64,
}

impl Machine {
    /// A machine with an empty disk, not running.
    pub fn new(net: &SimNet, plan: MachinePlan, random: Random, trace: Trace) -> Self {
        Self::of(Server::default(), net, plan, random, trace)
    }

    /// [`Machine::new`], with this server.
    pub fn of(
        server: Server,
        net: &SimNet,
        plan: MachinePlan,
        mut random: Random,
        trace: Trace,
    ) -> Self {
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
            server,
            disk,
            plan,
            kinds,
            transport: net.transport(LinkOptions::default()),
            random,
            trace,
            running: None,
            boot: 1,
            runs: 0,
            witness: Rc::default(),
            leaders: Rc::default(),
            mailbox: Mailbox::default(),
            accepts_loss: false,
            stopped_until: 0,
        }
    }

    /// The node, if it runs.
    pub fn node(&self) -> Option<&Node> {
        self.running.as_ref().map(Executor::node)
    }

    /// Why the server should be started anew, if it should.
    pub fn failure(&self) -> Option<String> {
        self.node()?.failure()
    }

    /// Starts the server. False if the disk did not let it.
    pub fn start(&mut self, now: u64) -> bool {
        let options = self.options(TableRole::Alone, Arc::default());
        let counters = options.counters.clone();
        let opened = Node::open(options, ground::time(now));
        self.opened(now, opened, counters)
    }

    /// What the next run's node is opened with.
    pub fn options(&mut self, role: TableRole, nodes: Arc<Nodes>) -> NodeOptions {
        assert!(self.running.is_none(), "one server at a time");
        self.runs += 1;
        NodeOptions {
            directory: PathBuf::from("/data"),
            disk: self.disk.clone(),
            kinds: self.kinds.clone(),
            open_partitions: broker::open_in_turn,
            internal_config: self.plan.internal_config.clone(),
            role,
            nodes,
            limits: self.plan.limits.clone(),
            directory_id: self.server.directory,
            instance: ServerInstance(u128::from(self.runs)),
            token: TOKEN,
            certificates: None,
            rules: Arc::default(),
            examiner: Arc::new(broker::NoOthers),
            trust: Arc::default(),
            owner_uid: None,
            boot_id: format!("boot-{}", self.boot),
            server_version: "simulated".to_owned(),
            pool: memory::Pool::new(16 << 20),
            seed: u128::from(self.random.number()) << 64 | u128::from(self.runs),
            accept_loss: self.accepts_loss,
            counters: Arc::default(),
            fault: self.plan.fault,
        }
    }

    /// The node was opened, and serves; or was not. False if it was not.
    pub fn opened(
        &mut self,
        now: u64,
        opened: Result<(Node, StartReport), NodeError>,
        counters: Arc<Counters>,
    ) -> bool {
        let name = &self.server.name;
        match opened {
            Ok((node, report)) => {
                self.trace
                    .say(now, || format!("{name}: started {report:?}"));
                if let Some(witness) = &mut *self.witness.borrow_mut() {
                    witness.started(now);
                }
                let listener = self
                    .transport
                    .listen(&self.server.address)
                    .expect("the server before has let go of the address");
                let ground = Ground::new(
                    name,
                    now,
                    self.runs,
                    self.disk.clone(),
                    self.plan.clone(),
                    listener,
                    self.random.fork(),
                    self.trace.clone(),
                    self.witness.clone(),
                    self.leaders.clone(),
                    self.mailbox.clone(),
                );
                self.running = Some(Executor::new(
                    node,
                    ground,
                    PENDING_CONNECTIONS_MAX,
                    counters,
                ));
                true
            }
            Err(error) => {
                self.trace
                    .say(now, || format!("{name}: not started: {error}"));
                false
            }
        }
    }

    /// The server's process dies; the page cache survives.
    pub fn kill(&mut self, now: u64) {
        let name = &self.server.name;
        self.trace.say(now, || format!("{name}: killed"));
        self.end_process(now);
        self.disk.kill();
    }

    /// The server's process is stopped until then, as by SIGSTOP.
    pub fn stop(&mut self, until: u64) {
        self.stopped_until = until;
    }

    /// The machine loses power: what was not synced survives in part, or not.
    pub fn lose_power(&mut self, now: u64, survival: Survival) {
        let name = &self.server.name;
        self.trace
            .say(now, || format!("{name}: power lost, {survival:?} survives"));
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
        self.leaders.borrow_mut().crashed();
        if let Some(witness) = &mut *self.witness.borrow_mut() {
            witness.crashed(now);
        }
        running.into_environment().crash();
    }

    /// Asks the server to end; see [`Machine::is_drained`].
    pub fn drain(&mut self, now: u64) {
        let name = &self.server.name;
        self.trace.say(now, || format!("{name}: drains"));
        if let Some(running) = &mut self.running {
            running.environment_mut().set_time(now);
            running.handle(Input::Drain);
        }
    }

    /// Whether the server has ended after it was asked to; it is gone then.
    pub fn is_drained(&mut self, now: u64) -> bool {
        match &mut self.running {
            Some(running) if running.is_drained() => {
                running.flush_finally();
                self.running = None;
                self.leaders.borrow_mut().crashed();
                if let Some(witness) = &mut *self.witness.borrow_mut() {
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
    pub fn next_event(&self, now: u64) -> Option<u64> {
        let running = self.running.as_ref()?;
        if self.stopped_until > 0 {
            return Some(self.stopped_until);
        }
        let within = running.wait_within(ground::time(now).monotonic);
        let timer = within.map(|left| {
            let left = left.as_nanos().min(u128::from(u64::MAX)) as u64;
            now.saturating_add(left)
        });
        let done = running.environment().next_done();
        done.into_iter().chain(timer).min()
    }

    /// Does what is due. True if there was something.
    pub fn turn(&mut self, now: u64) -> Result<bool, Violation> {
        if now < self.stopped_until {
            return Ok(false);
        }
        self.stopped_until = 0;
        let Some(running) = &mut self.running else {
            return Ok(false);
        };
        running.environment_mut().set_time(now);
        let moved = running.turn();
        running.environment_mut().violation()?;
        self.leaders.borrow_mut().violation()?;
        match &mut *self.witness.borrow_mut() {
            Some(witness) => witness.violation().map(|()| moved),
            None => Ok(moved),
        }
    }
}
