//! The servers of a cluster with their voters and nodes, in one thread, under a virtual clock and one seed. Servers and nodes
//! lose their power, disks are full, links are cut, and messages take their time. After each step the tables are compared.

use super::{Input, Member, Output};
use crate::quorum::{ClusterId, Identity, Settings, VoterId, found, recover};
use crate::random::Random;
use crate::table::TableVoter;
use ::log::testing::{FaultyDisk, Survival};
use ::log::{Disk, Operation};
use broker::controller::{
    CatchingUp, Command, CommandToken, ControlError, Controller, Home, LEADER, testing,
};
use broker::node::Now;
use broker::table::Table;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;
use wire::codec::Codec;
use wire::record::{Endpoints, Labels, Record, TopicRecord};
use wire::table::{Register, Registered, TableMessage};
use wire::{DirectoryId, Durability, ErrorReply, NodeId, TopicId};

const DIRECTORY: &str = "/data";
/// How long a change waits for a leader.
const PATIENCE: Duration = Duration::from_secs(5);
const MS: u64 = 1000;
/// How long things go wrong.
const CHAOS_US: u64 = 20_000 * MS;
/// How long it may take until all is well once nothing goes wrong any more.
const QUIET_US: u64 = 60_000 * MS;
/// Names that all nodes want.
const WANTED: u64 = 40;

enum Event {
    /// By the link of that epoch.
    Message {
        from: DirectoryId,
        to: DirectoryId,
        epoch: u64,
        bytes: Bytes,
    },
    /// An end of a link hears that it is gone, or stands.
    Down {
        of: DirectoryId,
        to: DirectoryId,
    },
    Dial {
        one: DirectoryId,
        other: DirectoryId,
    },
    Disk {
        of: DirectoryId,
        life: u64,
        token: u64,
    },
    Timer {
        of: DirectoryId,
        life: u64,
    },
    Start {
        of: DirectoryId,
    },
    /// There is space on its disk again.
    Space {
        of: DirectoryId,
    },
    /// Something for a node, which takes its time to look at it.
    AtNode {
        node: NodeId,
        life: u64,
        what: ForNode,
    },
    /// A node's own timer.
    Look {
        node: NodeId,
    },
    Submit,
    Mishap,
}

enum ForNode {
    Linked(u64),
    Cut,
    Message(TableMessage),
}

struct Server {
    voter: Option<Identity>,
    disk: FaultyDisk,
    /// None: it is down.
    member: Option<Member>,
    life: u64,
    operation: Option<Operation>,
    timer_at: Option<u64>,
    nodes: Vec<NodeId>,
}

/// A link between two servers. Each end has heard that it stands, or that it does not.
#[derive(Default)]
struct Link {
    epoch: u64,
    /// Of the one with the smaller id, and of the other.
    is_up: [bool; 2],
    /// It is gone, though an end may not have heard that.
    is_broken: bool,
    /// It does not come to stand again.
    is_cut: bool,
    /// When the last message comes that is on its way.
    last: u64,
}

struct Follower {
    disk: Arc<FaultyDisk>,
    controller: Box<dyn Controller>,
    /// The link that it has heard of last.
    link: u64,
    /// Whether its server has a link for it.
    is_linked: bool,
    life: u64,
    /// When it looks at the last thing that it was sent.
    last: u64,
    /// What it was asked for and has not answered, by token.
    pending: BTreeMap<u64, TopicId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Done,
    Refused,
    /// Its node lost its power before it answered.
    Unknown,
}

/// What happened in a run, in numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) done: u64,
    pub(super) refused: u64,
    pub(super) unknown: u64,
    pub(super) leaders: u64,
    pub(super) losses: u64,
    pub(super) full: u64,
    pub(super) hash: u64,
}

pub(super) struct World {
    now: u64,
    queue: BTreeMap<(u64, u64), Event>,
    events: u64,
    random: Random,
    servers: BTreeMap<DirectoryId, Server>,
    links: BTreeMap<(DirectoryId, DirectoryId), Link>,
    nodes: BTreeMap<NodeId, Follower>,
    last_token: u64,
    /// What was asked of each topic, in order, and what came of it.
    asked: BTreeMap<TopicId, Vec<(u64, Option<Outcome>)>>,
    /// Shards that ask which node they are; and what each was answered last.
    asking: BTreeSet<DirectoryId>,
    registered: BTreeMap<DirectoryId, Registered>,
    /// What the table of each place was first.
    seen: BTreeMap<u64, u64>,
    /// Who led the table last.
    led_by: Option<DirectoryId>,
    quiet: bool,
    /// What those who lead do wrong.
    fault: Option<broker::Fault>,
    counts: Counts,
}

/// What of a table is the same on all that have come as far.
fn content(table: &Table) -> Vec<Record> {
    let is_of_copy = |it: &Record| matches!(it, Record::Followed(_)) || Home::of(it) != Home::Table;
    table.records().filter(|it| !is_of_copy(it)).collect()
}

fn hash(table: &Table) -> u64 {
    let mut hasher = DefaultHasher::new();
    content(table).to_bytes().hash(&mut hasher);
    hasher.finish()
}

fn settings() -> Settings {
    Settings {
        snapshot_entries: 25,
        trailing_entries: 5,
        ..Settings::default()
    }
}

impl World {
    /// Three servers that vote and two that do not. All but the last have a node, and the last has two.
    pub(super) fn new(seed: u64, fault: Option<broker::Fault>) -> Self {
        let mut world = Self {
            now: 0,
            queue: BTreeMap::new(),
            events: 0,
            random: Random::new(seed),
            servers: BTreeMap::new(),
            links: BTreeMap::new(),
            nodes: BTreeMap::new(),
            last_token: 0,
            asked: BTreeMap::new(),
            asking: BTreeSet::new(),
            registered: BTreeMap::new(),
            seen: BTreeMap::new(),
            led_by: None,
            quiet: false,
            fault,
            counts: Counts::default(),
        };
        let founders = [1, 2, 3].map(|id| (VoterId(id), DirectoryId(u128::from(id))));
        for number in 1..=5 {
            let own = DirectoryId(number);
            let founder = founders.iter().find(|(_, directory)| *directory == own);
            let voter = founder.map(|(voter, directory)| Identity {
                cluster: ClusterId(0xc1),
                voter: *voter,
                directory: *directory,
            });
            let disk = FaultyDisk::new();
            for operation in [
                Operation::CreateDirectory {
                    path: DIRECTORY.into(),
                },
                Operation::SyncDirectory { path: "/".into() },
            ] {
                disk.execute(operation)
                    .expect("an empty disk takes a directory");
            }
            if let Some(identity) = voter {
                let salt = world.random.number();
                found(&disk, DIRECTORY.as_ref(), identity, &founders, salt).expect("it is empty");
            }
            let last = if number == 5 { 6 } else { number as u32 };
            let nodes: Vec<NodeId> = (number as u32..=last).map(NodeId).collect();
            for node in &nodes {
                let disk = testing::new_disk();
                let controller = testing::following(&disk, true, *node, PATIENCE);
                let follower = Follower {
                    disk,
                    controller,
                    link: 0,
                    is_linked: false,
                    life: 0,
                    last: 0,
                    pending: BTreeMap::new(),
                };
                world.nodes.insert(*node, follower);
                world.at(0, Event::Look { node: *node });
            }
            for other in 1..number {
                let other = DirectoryId(other);
                world.links.insert((other, own), Link::default());
                world.at(
                    0,
                    Event::Dial {
                        one: other,
                        other: own,
                    },
                );
            }
            let server = Server {
                voter,
                disk,
                member: None,
                life: 0,
                operation: None,
                timer_at: None,
                nodes,
            };
            world.servers.insert(own, server);
            world.at(0, Event::Start { of: own });
        }
        world.at(500 * MS, Event::Submit);
        world.at(3_000 * MS, Event::Mishap);
        world
    }

    fn at(&mut self, time: u64, event: Event) {
        self.events += 1;
        self.queue.insert((time.max(self.now), self.events), event);
    }

    fn soon(&mut self, event: Event) {
        let delay = self.random.within(50, 3 * MS);
        self.at(self.now + delay, event);
    }

    /// Runs the seed to its end. Says what is wrong.
    pub(super) fn run(&mut self) -> Result<Counts, String> {
        self.run_until(CHAOS_US)?;
        self.quiet = true;
        self.links.values_mut().for_each(|it| it.is_cut = false);
        self.servers.values().for_each(|it| it.disk.set_space(None));
        let down = self.servers.iter().filter(|(_, it)| it.member.is_none());
        let down: Vec<DirectoryId> = down.map(|(id, _)| *id).collect();
        for of in down {
            self.at(self.now, Event::Start { of });
        }
        let end = self.now + QUIET_US;
        while self.now < end {
            self.run_until(self.now + 500 * MS)?;
            if self.is_settled() {
                self.judge()?;
                return Ok(self.counts);
            }
        }
        let servers = self.servers.values().map(|it| format!("{:?}", it.member));
        let nodes = self
            .nodes
            .iter()
            .map(|(id, it)| format!("node {id} waits for {:?}", it.pending));
        let all: Vec<String> = servers.chain(nodes).collect();
        Err(format!(
            "changes are not answered, shards have no node ({:?}), nodes do not catch up, or the tables differ, long after all is well:\n{}",
            self.asking,
            all.join("\n")
        ))
    }

    fn run_until(&mut self, end: u64) -> Result<(), String> {
        while let Some((&(time, number), _)) = self.queue.first_key_value()
            && time <= end
        {
            self.now = time;
            let event = self.queue.remove(&(time, number)).expect("it is the first");
            self.happen(event)?;
        }
        self.now = self.now.max(end);
        Ok(())
    }

    /// All is answered, all have the same, and a node that starts would wait for nothing more.
    fn is_settled(&self) -> bool {
        let voting = self.servers.values().filter(|it| it.voter.is_some());
        let tables = voting.map(|it| {
            it.member
                .as_ref()
                .and_then(Member::voter)
                .map(|it| hash(it.table()))
        });
        let mut all: Vec<Option<u64>> = tables.collect();
        all.extend(
            self.nodes
                .values()
                .map(|it| Some(hash(it.controller.table()))),
        );
        all.dedup();
        all.len() == 1
            && self.asking.is_empty()
            && all[0].is_some()
            && self
                .nodes
                .values()
                .all(|it| it.pending.is_empty() && it.controller.catching_up() == CatchingUp::Done)
    }

    /// Every change is there, or is not, as its node has said; none twice, none out of order.
    fn judge(&mut self) -> Result<(), String> {
        let mut voters = self
            .servers
            .values()
            .filter_map(|it| it.member.as_ref()?.voter());
        let table = voters.next().expect("all run");
        for (topic, asked) in &self.asked {
            let entry = table.table().topic(*topic);
            let found = entry.map(|it| it.record.definition.parse::<u64>().expect("a token"));
            let last = asked.iter().rposition(|(_, it)| *it == Some(Outcome::Done));
            let behind = last.map_or(0, |place| place + 1);
            let mut may = asked[behind..]
                .iter()
                .filter(|(_, it)| *it == Some(Outcome::Unknown));
            let is_last = found == last.map(|place| asked[place].0);
            if !is_last && !may.any(|(token, _)| Some(*token) == found) {
                return Err(format!("{topic} is {found:?}, and was asked {asked:?}"));
            }
        }
        let mut names = BTreeSet::new();
        for (_, entry) in table.table().topics() {
            if !names.insert(entry.record.name.clone()) {
                return Err(format!("{} is there twice", entry.record.name));
            }
        }
        self.counts.hash = hash(table.table());
        Ok(())
    }

    fn happen(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Message {
                from,
                to,
                epoch,
                bytes,
            } => {
                let link = self.link(from, to);
                if link.epoch == epoch && !link.is_broken && link.is_up[end(to, from)] {
                    self.give(to, Input::Message(from, bytes))?;
                }
            }
            Event::Down { of, to } => {
                let link = self.link(of, to);
                if link.is_broken && std::mem::take(&mut link.is_up[end(of, to)]) {
                    self.give(of, Input::Down(to))?;
                }
            }
            Event::Dial { one, other } => {
                self.at(self.now + 100 * MS, Event::Dial { one, other });
                let both_run = [one, other]
                    .iter()
                    .all(|it| self.servers[it].member.is_some());
                let link = self.link(one, other);
                if both_run && !link.is_cut && link.is_up == [false, false] {
                    link.epoch += 1;
                    link.is_broken = false;
                    link.is_up = [true, true];
                    self.give(one, Input::Up(other))?;
                    self.give(other, Input::Up(one))?;
                }
            }
            Event::Disk { of, life, token } => {
                let server = self.server(of);
                if server.life == life
                    && let Some(operation) = server.operation.take()
                {
                    let result = server.disk.execute(operation);
                    self.give(of, Input::DiskDone { token, result })?;
                }
            }
            Event::Timer { of, life } => {
                let now = self.now;
                let server = self.server(of);
                if server.life == life && server.timer_at == Some(now) {
                    server.timer_at = None;
                    self.give(of, Input::Timer)?;
                }
            }
            Event::Start { of } => self.start(of)?,
            Event::Space { of } => self.servers[&of].disk.set_space(None),
            Event::AtNode { node, life, what } => {
                let follower = self.nodes.get_mut(&node).expect("it is one");
                if follower.life == life {
                    match what {
                        ForNode::Linked(link) => {
                            follower.link = link;
                            follower.controller.linked(LEADER, true);
                        }
                        ForNode::Cut => follower.controller.linked(LEADER, false),
                        ForNode::Message(message) => {
                            follower.controller.take_message(LEADER, message)
                        }
                    }
                    self.go_on(node)?;
                }
            }
            Event::Look { node } => {
                self.at(self.now + 100 * MS, Event::Look { node });
                self.go_on(node)?;
            }
            Event::Submit => self.submit()?,
            Event::Mishap => self.mishap()?,
        }
        Ok(())
    }

    fn server(&mut self, of: DirectoryId) -> &mut Server {
        self.servers.get_mut(&of).expect("it is one of them")
    }

    fn link(&mut self, one: DirectoryId, other: DirectoryId) -> &mut Link {
        let pair = (one.min(other), one.max(other));
        self.links.get_mut(&pair).expect("it is one of them")
    }

    fn home(&self, node: NodeId) -> DirectoryId {
        let mut servers = self.servers.iter();
        let home = servers.find(|(_, it)| it.nodes.contains(&node));
        *home.expect("it has one").0
    }

    fn start(&mut self, of: DirectoryId) -> Result<(), String> {
        let (now, seed) = (self.now, self.random.number());
        let fault = self.fault;
        let server = self.server(of);
        if server.member.is_some() {
            return Ok(());
        }
        server.life += 1;
        // A start without space is refused, which its caller sees.
        server.disk.set_space(None);
        let now = Duration::from_micros(now);
        let voter = match server.voter {
            None => None,
            Some(identity) => {
                let recovered = recover(&server.disk, DIRECTORY.as_ref(), identity)
                    .map_err(|it| it.to_string())?;
                let mut voter = TableVoter::open(recovered, settings(), now, seed)?;
                voter.plant(fault);
                Some(voter)
            }
        };
        server.member = Some(Member::new(of, voter, server.life << 32, now));
        let nodes = server.nodes.clone();
        self.give(of, Input::Voters([1, 2, 3].map(DirectoryId).to_vec()))?;
        for node in nodes {
            self.give(of, Input::NodeUp(node))?;
            // Which it is in this test is known; the shard's id is another thing.
            let directory = DirectoryId(100 + u128::from(node.0));
            self.asking.insert(directory);
            self.give(
                of,
                Input::Register(Register {
                    directory,
                    endpoints: Endpoints(vec![format!("tcp://h:{}", self.now)]),
                    labels: Labels::default(),
                    shard: 0,
                }),
            )?;
        }
        Ok(())
    }

    fn give(&mut self, to: DirectoryId, input: Input) -> Result<(), String> {
        let now = Duration::from_micros(self.now);
        if let Some(member) = &mut self.server(to).member {
            member.handle(now, input);
        }
        self.pump(to)
    }

    /// A shard is the node that it was, in a later epoch, and no other is.
    fn is_registered(
        &mut self,
        directory: DirectoryId,
        result: Result<Registered, ErrorReply>,
    ) -> Result<(), String> {
        if !self.asking.remove(&directory) {
            return Err(format!("{directory} was answered twice"));
        }
        let registered = result.map_err(|error| error.to_string())?;
        let before = self.registered.insert(directory, registered);
        if before.is_some_and(|it| it.node != registered.node || it.epoch >= registered.epoch) {
            return Err(format!("{directory} was {before:?}, and is {registered:?}"));
        }
        let mut others = self.registered.iter();
        match others.find(|(other, it)| **other != directory && it.node == registered.node) {
            Some((other, _)) => Err(format!(
                "{directory} and {other} are both {}",
                registered.node
            )),
            None => Ok(()),
        }
    }

    /// A node of a server that runs does all that it can.
    fn go_on(&mut self, node: NodeId) -> Result<(), String> {
        let home = self.home(node);
        if self.servers[&home].member.is_none() {
            return Ok(());
        }
        let messages = self.drive(node)?;
        let link = self.nodes[&node].link;
        for message in messages {
            self.give(home, Input::Node(node, link, message))?;
        }
        Ok(())
    }

    /// A node gets something, in order. Now and then it is at something else for long.
    fn at_node(&mut self, node: NodeId, what: ForNode) {
        let delay = match self.random.one_in(50) {
            true => self.random.within(50 * MS, 400 * MS),
            false => self.random.within(0, 300),
        };
        let now = self.now;
        let follower = self.nodes.get_mut(&node).expect("it is one");
        follower.last = follower.last.max(now + delay);
        let (at, life) = (follower.last, follower.life);
        self.at(at, Event::AtNode { node, life, what });
    }

    /// Does what a server wants, and looks at its table.
    fn pump(&mut self, of: DirectoryId) -> Result<(), String> {
        while let Some(output) = self
            .server(of)
            .member
            .as_mut()
            .and_then(Member::poll_output)
        {
            match output {
                Output::Send(to, bytes) => {
                    let delay = self.random.within(50, 3 * MS);
                    let now = self.now;
                    let link = self.link(of, to);
                    if link.is_up[end(of, to)] && !link.is_broken {
                        link.last = link.last.max(now + delay);
                        let (at, epoch) = (link.last, link.epoch);
                        self.at(
                            at,
                            Event::Message {
                                from: of,
                                to,
                                epoch,
                                bytes,
                            },
                        );
                    }
                }
                Output::NodeLinked(node, link) => {
                    let follower = self.nodes.get_mut(&node).expect("it is one");
                    if std::mem::replace(&mut follower.is_linked, true) {
                        return Err(format!("node {node} has two links"));
                    }
                    self.at_node(node, ForNode::Linked(link));
                }
                Output::NodeCut(node) => {
                    let follower = self.nodes.get_mut(&node).expect("it is one");
                    if !std::mem::take(&mut follower.is_linked) {
                        return Err(format!("node {node} has lost a link that it has not"));
                    }
                    self.at_node(node, ForNode::Cut);
                }
                Output::Node(node, message) => self.at_node(node, ForNode::Message(message)),
                Output::Disk { token, operation } => {
                    let server = self.server(of);
                    server.operation = Some(operation);
                    let life = server.life;
                    self.soon(Event::Disk { of, life, token });
                }
                Output::Registered(directory, result) => self.is_registered(directory, result)?,
                Output::Cut(from, why) => return Err(format!("{of} cannot read {from}: {why}")),
                Output::Changed { request, .. } => {
                    return Err(format!("nobody has asked for {request}"));
                }
                Output::Removed => return Err(format!("the voter of {of} was removed")),
                Output::Failed(reason) => {
                    return Err(format!("the voter of {of} has failed: {reason}"));
                }
            }
        }
        let now = self.now;
        let server = self.server(of);
        let life = server.life;
        let Some(member) = &server.member else {
            return Ok(());
        };
        let due = member.next_timer().map(|it| it.as_micros() as u64);
        let is_leading = member.voter().is_some_and(TableVoter::is_leading);
        let found = member.voter().map(|it| (it.applied(), hash(it.table())));
        if let Some(due) = due.map(|it| it.max(now + 1))
            && server.timer_at.is_none_or(|at| at != due)
        {
            server.timer_at = Some(due);
            self.at(due, Event::Timer { of, life });
        }
        if is_leading && self.led_by.replace(of) != Some(of) {
            self.counts.leaders += 1;
        }
        if let Some((place, found)) = found
            && *self.seen.entry(place).or_insert(found) != found
        {
            return Err(format!("at {place} the table of {of} is another one"));
        }
        Ok(())
    }

    /// Has a node's controller do all that it can. Gives what it has for the one that leads.
    fn drive(&mut self, node: NodeId) -> Result<Vec<TableMessage>, String> {
        let now = self.now;
        let follower = self.nodes.get_mut(&node).expect("it is one");
        let controller = follower.controller.as_mut();
        controller.set_time(Now {
            monotonic: Duration::from_micros(now),
            unix_ns: 1_700_000_000_000_000_000 + now * 1000,
        });
        controller.advance();
        while let Some((storage, token, operation)) = controller.poll_operation() {
            let result = follower.disk.execute(operation);
            controller.complete(storage, token, result);
            controller.advance();
        }
        let mut messages = Vec::new();
        while let Some((_, message)) = controller.poll_message() {
            messages.push(message);
        }
        let mut before = 0;
        while let Some((CommandToken(token), result)) = controller.poll_completion() {
            if token < before {
                return Err(format!("node {node} has completed {token} behind {before}"));
            }
            before = token;
            let topic = follower
                .pending
                .remove(&token)
                .ok_or("it was completed twice")?;
            let outcome = match result {
                Ok(()) => Outcome::Done,
                Err(ControlError::Refused(_) | ControlError::Apart(_)) => Outcome::Refused,
                Err(error) => return Err(format!("{token} at node {node}: {error}")),
            };
            match outcome {
                Outcome::Done => self.counts.done += 1,
                _ => self.counts.refused += 1,
            }
            set(&mut self.asked, topic, token, outcome);
        }
        if let Some(notice) = follower.controller.poll_notice()
            && (notice.contains("nothing of either") || notice.contains("has lost"))
        {
            return Err(format!("node {node}: {notice}"));
        }
        Ok(messages)
    }

    fn submit(&mut self) -> Result<(), String> {
        if self.quiet {
            return Ok(());
        }
        let delay = self.random.within(MS, 60 * MS);
        self.at(self.now + delay, Event::Submit);
        let ids: Vec<NodeId> = self.nodes.keys().copied().collect();
        let node = self.random.pick(&ids).expect("there are some");
        if self.servers[&self.home(node)].member.is_none() {
            return Ok(());
        }
        self.last_token += 1;
        let token = self.last_token;
        let (topic, name) = match self.random.one_in(6) {
            true => (
                1000 + token,
                format!("wanted {}", self.random.below(WANTED)),
            ),
            false => {
                let own = u64::from(node.0) * 10 + self.random.below(3);
                (own, format!("topic {own}"))
            }
        };
        let topic = TopicId(topic.into());
        let records = vec![Record::Topic(TopicRecord {
            namespace: String::new(),
            name,
            topic,
            definition: token.to_string(),
        })];
        self.asked.entry(topic).or_default().push((token, None));
        let follower = self.nodes.get_mut(&node).expect("it is one");
        follower.pending.insert(token, topic);
        let command = Command {
            home: Home::Table,
            records,
            durability: Durability::Synced,
        };
        follower.controller.submit(CommandToken(token), command);
        self.go_on(node)
    }

    fn mishap(&mut self) -> Result<(), String> {
        if self.quiet {
            return Ok(());
        }
        let delay = self.random.within(100 * MS, 1_500 * MS);
        self.at(self.now + delay, Event::Mishap);
        let ids: Vec<DirectoryId> = self.servers.keys().copied().collect();
        let one = self.random.pick(&ids).expect("there are some");
        let other = self.random.pick(&ids).expect("there are some");
        match self.random.below(10) {
            0 => {
                let to = VoterId(self.random.within(1, 3));
                self.give(one, Input::Transfer(to))?;
            }
            1 | 2 => {
                let survival = match self.random.one_in(2) {
                    true => Survival::Nothing,
                    false => Survival::Some(self.random.number()),
                };
                self.lose_power(one, survival);
            }
            3 => {
                if let Some(leads) = self.led_by {
                    self.lose_power(leads, Survival::Nothing);
                }
            }
            4..=6 if one != other => {
                let lasts = self.random.one_in(2);
                self.cut(one, other);
                self.link(one, other).is_cut = lasts;
            }
            7 => self.links.values_mut().for_each(|it| it.is_cut = false),
            8 => {
                // All have little space at once: none that could lead has more.
                for server in self.servers.values() {
                    let files = server.disk.paths();
                    let lengths = files.iter().filter_map(|path| server.disk.content(path));
                    let used: usize = lengths.map(|it| it.len()).sum();
                    server.disk.set_space(Some(used as u64));
                }
                self.counts.full += 1;
                for of in ids {
                    let delay = self.random.within(100 * MS, 3_000 * MS);
                    self.at(self.now + delay, Event::Space { of });
                }
            }
            9 => {
                // A node starts again, and its server goes on.
                let ids: Vec<NodeId> = self.nodes.keys().copied().collect();
                let node = self.random.pick(&ids).expect("there are some");
                let home = self.home(node);
                if self.servers[&home].member.is_some() {
                    self.restart_node(node);
                    self.give(home, Input::NodeUp(node))?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The link between two servers is gone, as both will hear.
    fn cut(&mut self, one: DirectoryId, other: DirectoryId) {
        self.link(one, other).is_broken = true;
        self.soon(Event::Down { of: one, to: other });
        self.soon(Event::Down { of: other, to: one });
    }

    /// A server loses its power, with all that it has.
    fn lose_power(&mut self, of: DirectoryId, survival: Survival) {
        let server = self.server(of);
        if server.member.take().is_none() {
            return;
        }
        server.operation = None;
        server.timer_at = None;
        server.life += 1;
        server.disk.power_loss(survival);
        for node in server.nodes.clone() {
            self.restart_node(node);
            self.asking.remove(&DirectoryId(100 + u128::from(node.0)));
        }
        self.counts.losses += 1;
        let others: Vec<DirectoryId> = self
            .servers
            .keys()
            .copied()
            .filter(|it| *it != of)
            .collect();
        for other in others {
            self.link(of, other).is_broken = true;
            self.link(of, other).is_up[end(of, other)] = false;
            self.soon(Event::Down { of: other, to: of });
        }
        let delay = self.random.within(MS, 4_000 * MS);
        self.at(self.now + delay, Event::Start { of });
    }

    /// A node loses its power, and starts again.
    fn restart_node(&mut self, node: NodeId) {
        let follower = self.nodes.get_mut(&node).expect("it is one");
        follower.is_linked = false;
        follower.link = 0;
        follower.life += 1;
        follower.disk.power_loss(Survival::Nothing);
        follower.controller = testing::following(&follower.disk, false, node, PATIENCE);
        for (token, topic) in std::mem::take(&mut follower.pending) {
            self.counts.unknown += 1;
            set(&mut self.asked, topic, token, Outcome::Unknown);
        }
    }
}

/// Which end of its link with another server this one has.
fn end(of: DirectoryId, other: DirectoryId) -> usize {
    usize::from(of > other)
}

fn set(
    asked: &mut BTreeMap<TopicId, Vec<(u64, Option<Outcome>)>>,
    topic: TopicId,
    token: u64,
    outcome: Outcome,
) {
    let of_topic = asked.entry(topic).or_default();
    for (_, own) in of_topic.iter_mut().filter(|(other, _)| *other == token) {
        *own = Some(outcome);
    }
}
