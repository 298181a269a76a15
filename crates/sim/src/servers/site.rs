//! A server of the cluster: a machine with a node, and its part in the table, which is `cluster::member::Member`: its voter,
//! if it has one, and the way of its node to the voter that leads.
//!
//! ```text
//!  Down ──start──► Registering ──it is node N, decided──► Opening ──► Running
//!   ▲                   │   the node takes over what was decided │       │
//!   └───────────────────┴──── killed, power lost, not opened ────┴───────┘
//! ```

use super::wires::Heard;
use crate::fiber::{self, Fiber};
use crate::ground::time;
use crate::machine::{Machine, MachinePlan, Server};
use crate::mailbox::Mailbox;
use crate::random::Random;
use crate::trace::{Trace, Violation};
use broker::node::Now;
use broker::{
    Counters, FromLeader, Node, NodeError, Nodes, PeerInput, StartReport, TableRole, Upstream,
};
use bytes::Bytes;
use cluster::member::{Input, Member, Output};
use cluster::quorum::{ClusterId, Identity, Settings, VoterId, found, recover};
use cluster::table::TableVoter;
use log::testing::Survival;
use log::{Disk, Operation};
use net::testing::sim::SimNet;
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use wire::record::{Endpoints, Labels};
use wire::table::{Register, Registered, TableMessage};
use wire::{DirectoryId, NodeId};

/// The voter's log.
const QUORUM: &str = "/data/quorum";

/// The data directory of a server.
pub fn directory_of(site: usize) -> DirectoryId {
    DirectoryId(0xd0 + site as u128)
}

/// Where a server listens for clients.
pub fn address_of(site: usize) -> String {
    format!("sim://machine-{site}")
}

/// A cluster, as it was founded.
#[derive(Debug, Clone)]
pub struct Founding {
    pub cluster: ClusterId,
    pub voters: Vec<(VoterId, DirectoryId)>,
    /// Its servers have voters and no nodes.
    pub is_of_voters_alone: bool,
}

impl Founding {
    /// The cluster of the simulation, in which the first servers vote.
    pub fn of(voters: usize) -> Self {
        let voters = (0..voters).map(|place| (VoterId(1 + place as u64), directory_of(place)));
        Self {
            cluster: ClusterId(0xc1),
            voters: voters.collect(),
            is_of_voters_alone: false,
        }
    }

    /// Another one, that was to have the last voter of this one too, and two servers from this place on.
    pub fn again(&self, place: usize) -> Self {
        let last = *self.voters.last().expect("somebody votes");
        let others = (0..2).map(|other| {
            let VoterId(voter) = last.0;
            (
                VoterId(voter + 1 + other),
                directory_of(place + other as usize),
            )
        });
        Self {
            cluster: ClusterId(0xc2),
            voters: std::iter::once(last).chain(others).collect(),
            is_of_voters_alone: true,
        }
    }

    /// The voter with this data directory, if it has one.
    fn voter(&self, directory: DirectoryId) -> Option<Identity> {
        let (voter, _) = self.voters.iter().find(|(_, it)| *it == directory)?;
        Some(Identity {
            cluster: self.cluster,
            voter: *voter,
            directory,
        })
    }
}

/// What opening a node came to.
type Opened = Result<(Node, StartReport), NodeError>;

/// A node that is being opened, and waits for the one that leads now and then.
struct Opening {
    fiber: Fiber,
    opened: Arc<Mutex<Option<Opened>>>,
    counters: Arc<Counters>,
}

/// How far the process is.
enum Stage {
    Down,
    Registering,
    Opening(Box<Opening>),
    Running,
}

/// An operation of the voter's disk.
struct Pending {
    due: u64,
    token: u64,
    operation: Operation,
    /// Whether it may record a vote: the term has grown since the one before.
    of_term: bool,
}

/// At which operation of its voter a server loses its power, before that is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailsAt {
    /// The next one of a new term.
    Vote,
    /// The next one.
    Any,
}

/// See the module.
pub struct Site {
    pub machine: Machine,
    place: usize,
    voter: Option<Identity>,
    founding: Founding,
    plan: MachinePlan,
    stage: Stage,
    member: Option<Member>,
    /// What the member has not looked at.
    inbox: VecDeque<Input>,
    operation: Option<Pending>,
    /// The term of the voter at its last operation.
    term: u64,
    /// At which operation the power goes, if it is to.
    fails_at: Option<FailsAt>,
    /// Which node of the table the machine's is, once that is known.
    pub node: Option<NodeId>,
    /// What it was answered when it registered, to be looked at.
    pub registered: Option<Registered>,
    /// Messages for other servers.
    sends: VecDeque<(usize, Bytes)>,
    /// Why it is to be started anew.
    failure: Option<String>,
    stopped_until: u64,
    /// When the member was told the time last.
    ticked_at: Option<u64>,
    starts: u64,
    random: Random,
    trace: Trace,
}

/// The way of a node that is being opened to the one that leads.
struct Joining {
    mailbox: Mailbox,
    began: u64,
}

impl Upstream for Joining {
    fn now(&mut self) -> Now {
        time(fiber::now().unwrap_or(self.began))
    }

    fn send(&mut self, message: TableMessage) {
        self.mailbox.say(message);
    }

    fn receive(&mut self, within: Duration) -> FromLeader {
        let Some(began) = fiber::now() else {
            return FromLeader::Gone;
        };
        let until = began.saturating_add(within.as_nanos() as u64);
        loop {
            match self.mailbox.hear() {
                Some(PeerInput::Message(_, message)) => return FromLeader::Message(message),
                Some(PeerInput::Up(_)) => return FromLeader::Linked,
                Some(PeerInput::Down(_)) => return FromLeader::Cut,
                Some(PeerInput::Register(..)) => unreachable!("nobody registers here"),
                None => {}
            }
            let Some(now) = fiber::now() else {
                return FromLeader::Gone;
            };
            if now >= until {
                return FromLeader::Nothing;
            }
            if !fiber::sleep(until - now) {
                return FromLeader::Gone;
            }
        }
    }

    fn is_linked(&self) -> bool {
        false
    }
}

/// Voters as they are in a cluster, with a log that is made shorter often.
fn settings() -> Settings {
    Settings {
        snapshot_entries: 25,
        trailing_entries: 5,
        ..Settings::default()
    }
}

impl Site {
    /// A server of a cluster. It does not run.
    pub fn new(
        (place, founding): (usize, &Founding),
        net: &SimNet,
        plan: MachinePlan,
        mut random: Random,
        trace: Trace,
    ) -> Self {
        let server = Server {
            name: format!("machine-{place}"),
            address: address_of(place),
            directory: directory_of(place),
        };
        let machine = Machine::of(server, net, plan.clone(), random.fork(), trace.clone());
        let voter = founding.voter(directory_of(place));
        if let Some(identity) = voter {
            let path = Path::new(QUORUM);
            let disk = machine.disk.as_ref();
            for operation in [
                Operation::CreateDirectory { path: path.into() },
                Operation::SyncDirectory {
                    path: "/data".into(),
                },
            ] {
                disk.execute(operation).expect("the disk is empty");
            }
            let founders = &founding.voters;
            found(disk, path, identity, founders, random.number()).expect("the disk is empty");
        }
        Self {
            machine,
            place,
            voter,
            founding: founding.clone(),
            plan,
            stage: Stage::Down,
            member: None,
            inbox: VecDeque::new(),
            operation: None,
            term: 0,
            fails_at: None,
            node: None,
            registered: None,
            sends: VecDeque::new(),
            failure: None,
            stopped_until: 0,
            ticked_at: None,
            starts: 0,
            random,
            trace,
        }
    }

    fn say(&self, now: u64, line: impl FnOnce() -> String) {
        let name = &self.machine.server.name;
        self.trace.say(now, || format!("{name}: {}", line()));
    }

    /// Its voter, if that runs.
    pub fn voter(&self) -> Option<&TableVoter> {
        self.member.as_ref()?.voter()
    }

    /// Starts the process. False if the disk did not let it.
    pub fn start(&mut self, now: u64) -> bool {
        self.starts += 1;
        let at = Duration::from_nanos(now);
        let seed = self.random.number();
        let voter = self.voter.map(|identity| {
            let disk = self.machine.disk.as_ref();
            let recovered = recover(disk, Path::new(QUORUM), identity);
            let recovered = recovered.map_err(|error| error.to_string())?;
            let mut voter = TableVoter::open(recovered, settings(), at, seed)?;
            voter.plant(self.plan.fault);
            Ok::<_, String>(voter)
        });
        let voter = match voter.transpose() {
            Ok(voter) => voter,
            Err(error) => {
                self.say(now, || format!("the voter is not opened: {error}"));
                return false;
            }
        };
        self.say(now, || "the process starts".to_owned());
        // Greater than any of a run before.
        let first_number = now + self.starts;
        let own = directory_of(self.place);
        self.member = Some(Member::new(own, voter, first_number, at));
        self.machine.mailbox = Mailbox::default();
        self.stage = Stage::Registering;
        if self.founding.is_of_voters_alone {
            return true;
        }
        let voters = self.founding.voters.iter().map(|(_, it)| *it);
        self.inbox.push_back(Input::Voters(voters.collect()));
        let host = ("host".to_owned(), self.machine.server.name.clone());
        self.inbox.push_back(Input::Register(Register {
            directory: own,
            endpoints: Endpoints(vec![self.machine.server.address.clone()]),
            labels: Labels(BTreeMap::from([host])),
            shard: 0,
        }));
        true
    }

    /// The process dies; the page cache survives.
    pub fn kill(&mut self, now: u64) {
        self.end(now);
        self.machine.kill(now);
    }

    /// The machine loses its power.
    pub fn lose_power(&mut self, now: u64, survival: Survival) {
        self.end(now);
        self.machine.lose_power(now, survival);
    }

    fn end(&mut self, now: u64) {
        self.stopped_until = 0;
        self.failure = None;
        self.member = None;
        self.inbox.clear();
        self.sends.clear();
        self.machine.mailbox = Mailbox::default();
        if let Some(pending) = self.operation.take() {
            let disk = self.machine.disk.as_ref();
            match self.random.below(3) {
                0 => {}
                1 => {
                    let part = self.random.below(5000);
                    disk.execute_in_part(&pending.operation, part);
                }
                _ => drop(disk.execute(pending.operation)),
            }
        }
        if let Stage::Opening(_) = std::mem::replace(&mut self.stage, Stage::Down) {
            self.say(now, || "its node was being opened".to_owned());
        }
    }

    /// The power is to go while the voter waits for such an operation.
    pub fn fail(&mut self, at: FailsAt) {
        self.fails_at = Some(at);
    }

    /// Whether the power goes now, as it was to.
    pub fn fails(&mut self, now: u64) -> bool {
        let (Some(at), Some(pending)) = (self.fails_at, &self.operation) else {
            return false;
        };
        let fails = pending.due <= now && (at == FailsAt::Any || pending.of_term);
        if fails {
            self.fails_at = None;
        }
        fails
    }

    /// Whether the process runs.
    pub fn runs(&self) -> bool {
        !matches!(self.stage, Stage::Down)
    }

    /// Whether it is of the cluster whose servers have voters alone.
    pub fn is_stranger(&self) -> bool {
        self.founding.is_of_voters_alone
    }

    /// Why it does not serve, if it does not.
    pub fn unserving(&self) -> Option<&'static str> {
        match self.stage {
            _ if self.is_stranger() => None,
            Stage::Down => Some("is down"),
            Stage::Registering => Some("asks which node it is"),
            Stage::Opening(_) => Some("has a node that is being opened"),
            Stage::Running => None,
        }
    }

    /// Why the server should be started anew, if it should.
    pub fn failure(&self) -> Option<String> {
        self.failure.clone().or_else(|| self.machine.failure())
    }

    /// The process is stopped until then, as by SIGSTOP.
    pub fn stop(&mut self, until: u64) {
        self.stopped_until = until;
        self.machine.stop(until);
    }

    /// It hears something of another server.
    pub fn hear(&mut self, of: usize, heard: Heard) {
        if self.member.is_none() {
            return;
        }
        let of = directory_of(of);
        self.inbox.push_back(match heard {
            Heard::Up => Input::Up(of),
            Heard::Down => Input::Down(of),
            Heard::Message(bytes) => Input::Message(of, bytes),
        });
    }

    /// The next message for another server.
    pub fn poll_send(&mut self) -> Option<(usize, Bytes)> {
        self.sends.pop_front()
    }

    /// When something happens by itself.
    pub fn next_event(&self, now: u64) -> Option<u64> {
        if self.stopped_until > now {
            return self.runs().then_some(self.stopped_until);
        }
        let timer = self.member.as_ref().and_then(Member::next_timer);
        let timer = timer.map(|at| at.as_nanos().min(u128::from(u64::MAX)) as u64);
        let least = now + u64::from(self.ticked_at == Some(now));
        let timer = timer.map(|at| at.max(least));
        let done = self.operation.as_ref().map(|pending| pending.due);
        let opening = match &self.stage {
            Stage::Opening(opening) => opening.fiber.wake_at(),
            _ => None,
        };
        let machine = self.machine.next_event(now);
        let all = [timer, done, opening, machine];
        all.into_iter().flatten().min()
    }

    /// Does what is due. True if there was something.
    pub fn turn(&mut self, now: u64) -> Result<bool, Violation> {
        if now < self.stopped_until {
            return Ok(false);
        }
        let mut moved = self.turn_member(now)?;
        moved |= self.turn_opening(now);
        moved |= self.machine.turn(now)?;
        while let Some((link, message)) = self.machine.mailbox.said() {
            moved = true;
            if let Some(node) = self.node {
                self.inbox.push_back(Input::Node(node, link, message));
            }
        }
        Ok(moved)
    }

    fn turn_member(&mut self, now: u64) -> Result<bool, Violation> {
        let mut moved = false;
        let at = Duration::from_nanos(now);
        if let Some(pending) = self.operation.take_if(|pending| pending.due <= now) {
            let result = self.machine.disk.execute(pending.operation);
            let token = pending.token;
            self.inbox.push_back(Input::DiskDone { token, result });
        }
        loop {
            let Some(member) = &mut self.member else {
                return Ok(moved);
            };
            let is_due = member.next_timer().is_some_and(|due| due <= at);
            let input = match self.inbox.pop_front() {
                Some(input) => input,
                // Once at a time.
                None if is_due && self.ticked_at != Some(now) => {
                    self.ticked_at = Some(now);
                    Input::Timer
                }
                None => return Ok(moved),
            };
            moved = true;
            member.handle(at, input);
            while let Some(output) = self.member.as_mut().and_then(Member::poll_output) {
                self.carry_out(now, output)?;
            }
        }
    }

    fn carry_out(&mut self, now: u64, output: Output) -> Result<(), Violation> {
        match output {
            Output::Send(to, bytes) => {
                let to = (to.0 - directory_of(0).0) as usize;
                self.sends.push_back((to, bytes));
            }
            Output::NodeLinked(_, link) => self.machine.mailbox.linked(link),
            Output::NodeCut(_) => self.machine.mailbox.cut(),
            Output::Node(_, message) => self.machine.mailbox.came(message),
            Output::Registered(_, Ok(registered)) => {
                self.say(now, || format!("it is {registered:?}"));
                self.node = Some(registered.node);
                self.registered = Some(registered);
                self.inbox.push_back(Input::NodeUp(registered.node));
                self.open(now, registered.node);
            }
            Output::Registered(_, Err(error)) => {
                return Violation::because(format!(
                    "{} is refused by the table: {error}",
                    self.machine.server.name
                ));
            }
            Output::Disk { token, operation } => {
                let takes = self.random.within(self.plan.sync_ns.clone());
                let term = self.voter().map_or(0, |voter| voter.leader().0);
                let before = std::mem::replace(&mut self.term, term);
                self.operation = Some(Pending {
                    due: now + takes,
                    token,
                    operation,
                    of_term: term > before,
                });
            }
            Output::Cut(from, why) => {
                return Violation::because(format!(
                    "{} cannot read what {from} says: {why}",
                    self.machine.server.name
                ));
            }
            Output::Failed(reason) => {
                self.say(now, || format!("its voter has failed: {reason}"));
                self.failure = Some(reason);
            }
            Output::Removed | Output::Changed { .. } => {
                unreachable!("no voter is changed")
            }
        }
        Ok(())
    }

    fn open(&mut self, now: u64, node: NodeId) {
        let nodes = Arc::new(Nodes::of_table());
        let options = self.machine.options(TableRole::Follows(node), nodes);
        let counters = options.counters.clone();
        let opened = Arc::<Mutex<Option<Opened>>>::default();
        let (result, mailbox) = (opened.clone(), self.machine.mailbox.clone());
        let fiber = Fiber::start(move || {
            let began = fiber::now().unwrap_or(now);
            let mut joining = Joining { mailbox, began };
            let opened = Node::open_led(options, time(began), &mut joining);
            *result.lock().expect("no holder panics") = Some(opened);
        });
        self.stage = Stage::Opening(Box::new(Opening {
            fiber,
            opened,
            counters,
        }));
    }

    fn turn_opening(&mut self, now: u64) -> bool {
        let Stage::Opening(opening) = &self.stage else {
            return false;
        };
        let fiber = &opening.fiber;
        let is_due = fiber.wake_at().is_some_and(|at| at <= now);
        if !is_due && !self.machine.mailbox.is_full() && !fiber.has_ended() {
            return false;
        }
        fiber.resume(now);
        if !fiber.has_ended() {
            return true;
        }
        if let Some(panic) = fiber.panic() {
            panic!("opening a node: {panic}");
        }
        let Stage::Opening(opening) = std::mem::replace(&mut self.stage, Stage::Running) else {
            unreachable!("looked at above");
        };
        let opened = opening.opened.lock().expect("no holder panics").take();
        let opened =
            opened.expect("a fiber that has ended without a panic has opened a node, or not");
        if !self.machine.opened(now, opened, opening.counters.clone()) {
            self.failure = Some("its node was not opened".to_owned());
            self.stage = Stage::Registering;
        }
        true
    }
}
