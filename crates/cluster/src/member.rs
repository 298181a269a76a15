//! One server's part in a cluster: its voter, if it has one, and the way of its nodes to the voter that leads the table.

mod frame;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod world;

use crate::faults::{Fault, planted};
use crate::quorum::{Change, Refused, RequestId, VoterId, sender};
use crate::table::{self, TableVoter};
use ::log::{DiskError, Operation, Outcome};
use broker::node::LinkId;
use bytes::Bytes;
use frame::{Attachment, Frame};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::time::Duration;
use wire::record::NodeState;
use wire::table::{Register, Registered, TableMessage};
use wire::{DirectoryId, ErrorCode, ErrorReply, NodeId};

/// After so long a node asks again for somebody to follow.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(50);
/// So long a server has to answer a node that asks.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// So long it has to answer a shard that registers: that is decided first. Who does not lead says so at once.
const REGISTER_WITHIN: Duration = Duration::from_secs(30);
/// A node that does not follow for so long is away: no new topics are made on it. Longer than a server takes to start again.
const AWAY_AFTER: Duration = Duration::from_secs(5);
/// How often the voter that leads looks which nodes do not follow.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Nodes that follow this server's voter at once, as many as the table has.
const FOLLOWERS_MAX: usize = 4096;

/// Something that happened.
#[derive(Debug)]
pub enum Input {
    /// A link to another server stands, new. What was on its way before is lost.
    Up(DirectoryId),
    /// It is gone.
    Down(DirectoryId),
    /// A message came by it.
    Message(DirectoryId, Bytes),
    /// A node of this server runs, or is being opened: it wants to follow the table.
    NodeUp(NodeId),
    /// It has ended.
    NodeDown(NodeId),
    /// A shard of this server asks which node it is. Asked until it is answered by [`Output::Registered`].
    Register(Register),
    /// What it has for the node that leads the table, by the link of this number. Dropped if that is not its link any more.
    Node(NodeId, u64, TableMessage),
    /// An operation of [`Output::Disk`] was carried out.
    DiskDone {
        /// Which.
        token: u64,
        /// What came of it.
        result: Result<Outcome, DiskError>,
    },
    /// A voter is to change. Answered by [`Output::Changed`].
    Change {
        /// Its id; the same whenever it is tried again.
        request: RequestId,
        /// What is to change.
        change: Change,
    },
    /// Another voter is to lead, if it can.
    Transfer(VoterId),
    /// The servers that vote, as is known from elsewhere: for a server without a voter of its own.
    Voters(Vec<DirectoryId>),
    /// The time of [`Member::next_timer`] has come.
    Timer,
}

/// Something to be done. In order.
#[derive(Debug)]
pub enum Output {
    /// A message to another server, if its link stands.
    Send(DirectoryId, Bytes),
    /// The link of a node of this server to the one that leads the table stands, new, and has this number.
    NodeLinked(NodeId, u64),
    /// It is gone, and what was on its way.
    NodeCut(NodeId),
    /// A message for a node of this server, of the one that leads.
    Node(NodeId, TableMessage),
    /// Which node the shard with this data directory is: it is decided. Or why it is none.
    Registered(DirectoryId, Result<Registered, ErrorReply>),
    /// An operation on the disk of the voter. One at a time is out; answered by [`Input::DiskDone`].
    Disk {
        /// To be given back.
        token: u64,
        /// What to do.
        operation: Operation,
    },
    /// Another server sent what is no message: the link is to be cut, for this reason.
    Cut(DirectoryId, String),
    /// What became of a change of voters.
    Changed {
        /// Which.
        request: RequestId,
        /// How.
        result: Result<u64, Refused>,
    },
    /// This server's voter was removed, and does nothing any more.
    Removed,
    /// This server's voter failed, and does nothing until it is opened again.
    Failed(String),
}

/// Where a node of this server stands. The drawing is in the README.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// It asks again at this time.
    Seeking { at: Duration },
    /// It has asked this server, which is to answer by then.
    Asked {
        server: DirectoryId,
        number: u64,
        until: Duration,
    },
    /// It follows this server.
    Led { server: DirectoryId, number: u64 },
}

impl Way {
    /// When something is to be done about it.
    fn due(&self) -> Option<Duration> {
        match self {
            Self::Seeking { at } => Some(*at),
            Self::Asked { until, .. } => Some(*until),
            Self::Led { .. } => None,
        }
    }
}

/// Which nodes follow, as the voter that leads has seen.
struct Watch {
    seen: BTreeMap<NodeId, Duration>,
    /// When it looks again.
    next: Duration,
}

/// What a shard is answered by a server that does not lead: it asks another one.
fn not_led() -> ErrorReply {
    ErrorReply::retryable(
        ErrorCode::NotLeader,
        0,
        "this server does not lead the table",
    )
}

/// See the module. Plain state: what happens is given to [`Member::handle`], whereupon [`Member::poll_output`] is asked
/// until it gives nothing more.
pub struct Member {
    own: DirectoryId,
    voter: Option<TableVoter>,
    /// The servers that vote, for one without a voter.
    voters: Vec<DirectoryId>,
    /// Servers whose links stand.
    up: BTreeSet<DirectoryId>,
    nodes: BTreeMap<NodeId, Way>,
    /// Shards of this server that ask which node they are, by their data directories; none is ever `Led`.
    registering: BTreeMap<DirectoryId, (Register, Way)>,
    /// Shards that ask this server's voter, each with its server and the number that it asked with.
    registrants: BTreeMap<LinkId, (DirectoryId, u64)>,
    last_registrant: u64,
    /// Nodes that follow this server's voter, each with its server and the number that it asked with last.
    followers: BTreeMap<NodeId, (DirectoryId, u64)>,
    /// While this server's voter leads: when each node of the table was seen to follow last, and when to look again.
    watched: Option<Watch>,
    /// The server that was last said to lead.
    hint: Option<DirectoryId>,
    /// The servers of voters, as their messages have said.
    heard: BTreeMap<DirectoryId, VoterId>,
    /// Whom a node asks that has no hint: one voter after the other.
    turn: usize,
    last_number: u64,
    outputs: VecDeque<Output>,
    now: Duration,
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Member")
            .field("own", &self.own)
            .field("voter", &self.voter)
            .field("up", &self.up)
            .field("nodes", &self.nodes)
            .field("followers", &self.followers)
            .finish_non_exhaustive()
    }
}

impl Member {
    /// A server with this data directory, that votes or does not. `first_number` is greater than any number of attachments
    /// in a former life: the time of now, in nanoseconds since 1970, will do.
    pub fn new(
        own: DirectoryId,
        voter: Option<TableVoter>,
        first_number: u64,
        now: Duration,
    ) -> Self {
        let mut member = Self {
            own,
            voter,
            voters: Vec::new(),
            up: BTreeSet::new(),
            nodes: BTreeMap::new(),
            registering: BTreeMap::new(),
            registrants: BTreeMap::new(),
            last_registrant: 0,
            followers: BTreeMap::new(),
            watched: None,
            hint: None,
            heard: BTreeMap::new(),
            turn: 0,
            last_number: first_number,
            outputs: VecDeque::new(),
            now,
        };
        member.go_on();
        member
    }

    /// This server's voter.
    pub fn voter(&self) -> Option<&TableVoter> {
        self.voter.as_ref()
    }

    /// The nodes of this server whose links stand.
    pub fn led(&self) -> impl Iterator<Item = NodeId> + '_ {
        let led = self
            .nodes
            .iter()
            .filter(|(_, way)| matches!(way, Way::Led { .. }));
        led.map(|(node, _)| *node)
    }

    /// When [`Input::Timer`] is due.
    pub fn next_timer(&self) -> Option<Duration> {
        let registering = self.registering.values().map(|(_, way)| way);
        let ways = self.nodes.values().chain(registering).filter_map(Way::due);
        let voter = self.voter.as_ref().and_then(TableVoter::next_timer);
        let watch = self.watched.as_ref().map(|watch| watch.next);
        ways.chain(voter).chain(watch).min()
    }

    /// The next thing to do.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Takes something that happened.
    pub fn handle(&mut self, now: Duration, input: Input) {
        self.now = self.now.max(now);
        match input {
            Input::Up(server) => {
                self.lost(server);
                self.up.insert(server);
            }
            Input::Down(server) => {
                self.lost(server);
                self.up.remove(&server);
            }
            Input::Message(server, bytes) => match Frame::read(&bytes) {
                Ok(frame) => self.receive(server, frame),
                Err(error) => self
                    .outputs
                    .push_back(Output::Cut(server, error.to_string())),
            },
            Input::NodeUp(node) => {
                self.leave(node);
                self.nodes.insert(node, Way::Seeking { at: self.now });
            }
            Input::NodeDown(node) => {
                self.leave(node);
                self.nodes.remove(&node);
            }
            Input::Register(register) => {
                let seeking = Way::Seeking { at: self.now };
                self.registering
                    .insert(register.directory, (register, seeking));
            }
            Input::Node(node, number, message) => self.said(node, number, message),
            Input::DiskDone { token, result } => {
                self.give(table::Input::DiskDone { token, result })
            }
            Input::Change { request, change } => match self.voter {
                Some(_) => self.give(table::Input::Change { request, change }),
                None => {
                    let result = Err(Refused::NotLeader { hint: None });
                    self.outputs.push_back(Output::Changed { request, result });
                }
            },
            Input::Transfer(to) => self.give(table::Input::Transfer(to)),
            Input::Voters(voters) => self.voters = voters,
            Input::Timer => self.give(table::Input::Timer),
        }
        self.go_on();
    }

    fn give(&mut self, input: table::Input) {
        if let Some(voter) = &mut self.voter {
            voter.handle(self.now, input);
        }
    }

    fn send(&mut self, server: DirectoryId, frame: &Frame) {
        self.outputs
            .push_back(Output::Send(server, frame.to_bytes()));
    }

    /// Does all that can be done now.
    fn go_on(&mut self) {
        while let Some(output) = self.voter.as_mut().and_then(TableVoter::poll_output) {
            self.take(output);
        }
        self.watch();
        let is_late = |way: &Way| way.due().is_some_and(|due| self.now >= due);
        let late = self.nodes.iter().filter(|(_, way)| is_late(way));
        let late: Vec<NodeId> = late.map(|(node, _)| *node).collect();
        let asking = self.registering.iter().filter(|(_, (_, way))| is_late(way));
        let asking: Vec<DirectoryId> = asking.map(|(directory, _)| *directory).collect();
        for node in late {
            let way = self.nodes.get(&node).copied();
            self.doubt(way);
            self.seek(node);
        }
        for directory in asking {
            let way = self.registering.get(&directory).map(|(_, way)| *way);
            self.doubt(way);
            self.ask(directory);
        }
        while let Some(output) = self.voter.as_mut().and_then(TableVoter::poll_output) {
            self.take(output);
        }
    }

    /// Nobody has answered in time, if it is that: another server may know better.
    fn doubt(&mut self, way: Option<Way>) {
        if let Some(Way::Asked { server, .. }) = way
            && self.hint == Some(server)
        {
            self.hint = None;
        }
    }

    // ---- the end of the nodes of this server

    /// A shard asks which node it is.
    fn ask(&mut self, directory: DirectoryId) {
        let server = self.choose();
        self.last_number += 1;
        let number = self.last_number;
        let Some((register, way)) = self.registering.get_mut(&directory) else {
            return;
        };
        let Some(server) = server else {
            let at = self.now + ASK_AGAIN_AFTER;
            *way = Way::Seeking { at };
            return;
        };
        let until = self.now + REGISTER_WITHIN;
        *way = Way::Asked {
            server,
            number,
            until,
        };
        let register = register.clone();
        match server == self.own {
            true => self.asked(server, number, register),
            false => self.send(server, &Frame::Register { number, register }),
        }
    }

    /// A shard has its answer.
    fn registered(
        &mut self,
        from: DirectoryId,
        number: u64,
        result: Result<Registered, ErrorReply>,
    ) {
        let is_of_it = |way: &Way| matches!(way, Way::Asked { server, number: own, .. } if (*server, *own) == (from, number));
        let mut asked = self.registering.iter_mut();
        let Some((directory, (_, way))) = asked.find(|(_, (_, way))| is_of_it(way)) else {
            // One of before, or of a shard that has its answer.
            return;
        };
        if let Err(error) = &result
            && error.retryable
        {
            let after = Duration::from_millis(error.retry_after_ms.into()).max(ASK_AGAIN_AFTER);
            *way = Way::Seeking {
                at: self.now + after,
            };
            return;
        }
        let directory = *directory;
        self.registering.remove(&directory);
        self.outputs
            .push_back(Output::Registered(directory, result));
    }

    /// A node asks for somebody to follow.
    fn seek(&mut self, node: NodeId) {
        let again = Way::Seeking {
            at: self.now + ASK_AGAIN_AFTER,
        };
        self.nodes.insert(node, again);
        let Some(server) = self.choose() else {
            return;
        };
        self.last_number += 1;
        let number = self.last_number;
        if server == self.own {
            if self.attach(server, Attachment { node, number }) {
                self.nodes.insert(node, Way::Led { server, number });
                self.outputs.push_back(Output::NodeLinked(node, number));
            }
            return;
        }
        let until = self.now + ANSWER_WITHIN;
        self.nodes.insert(
            node,
            Way::Asked {
                server,
                number,
                until,
            },
        );
        self.send(server, &Frame::Attach(Attachment { node, number }));
    }

    /// The server that a node is to ask.
    fn choose(&mut self) -> Option<DirectoryId> {
        if self.voter.as_ref().is_some_and(TableVoter::is_leading) {
            return Some(self.own);
        }
        let known = self.leader().or(self.hint);
        if let Some(known) = known.filter(|it| self.up.contains(it)) {
            return Some(known);
        }
        let voters = self.servers();
        let up: Vec<&DirectoryId> = voters.iter().filter(|it| self.up.contains(it)).collect();
        self.turn = self.turn.wrapping_add(1);
        up.get(self.turn % up.len().max(1)).map(|it| **it)
    }

    /// The server that leads the quorum, as this server's voter has heard.
    fn leader(&self) -> Option<DirectoryId> {
        let voter = self.voter.as_ref().filter(|voter| !voter.is_over())?;
        let (_, leader) = voter.leader();
        let leader = leader?;
        let mut members = voter.members();
        members
            .find(|(id, _)| *id == leader)
            .map(|(_, member)| member.directory)
    }

    /// The servers that vote.
    fn servers(&self) -> BTreeSet<DirectoryId> {
        let members = self.voter.iter().flat_map(TableVoter::members);
        let members = members.map(|(_, member)| member.directory);
        // What it knows is of before if it is over, and nothing if it is new.
        members.chain(self.voters.iter().copied()).collect()
    }

    /// A node of this server has a message for the one that leads.
    fn said(&mut self, node: NodeId, of: u64, message: TableMessage) {
        let Some(Way::Led { server, number }) = self.nodes.get(&node).copied() else {
            // Its link is gone, as it is about to hear.
            return;
        };
        if of != number && !planted(Fault::LinksMixed) {
            return;
        }
        if server == self.own {
            self.give(table::Input::Node {
                from: node,
                message,
            });
            return;
        }
        let attachment = Attachment { node, number };
        self.send(
            server,
            &Frame::Table {
                attachment,
                message,
            },
        );
    }

    /// A node of this server does not follow any more, by its own doing.
    fn leave(&mut self, node: NodeId) {
        if let Some(Way::Led { server, number }) = self.nodes.get(&node).copied() {
            if server == self.own {
                self.detach(node);
            } else {
                // One that asks again says so by its number; of one that has ended this is all that is heard.
                let attachment = Attachment { node, number };
                let leader = DirectoryId(0);
                self.send(server, &Frame::NotLed { attachment, leader });
            }
        }
    }

    /// The link of a node of this server is gone.
    fn cut(&mut self, node: NodeId) {
        let seeking = Way::Seeking {
            at: self.now + ASK_AGAIN_AFTER,
        };
        if let Some(Way::Led { .. }) = self.nodes.insert(node, seeking) {
            self.outputs.push_back(Output::NodeCut(node));
        }
    }

    // ---- the end of the voter

    /// Looks which nodes follow, if this server's voter leads: those that do not for a while are away.
    fn watch(&mut self) {
        let Some(voter) = self.voter.as_ref().filter(|voter| voter.is_leading()) else {
            self.watched = None;
            return;
        };
        let watch = self.watched.get_or_insert(Watch {
            seen: BTreeMap::new(),
            next: self.now,
        });
        if self.now < watch.next {
            return;
        }
        watch.next = self.now + LOOK_EVERY;
        let mut states = Vec::new();
        for record in voter.table().nodes().present() {
            let (node, state) = (record.node, record.state);
            // One that has not followed since this voter leads has all of the time.
            let seen = watch.seen.entry(node).or_insert(self.now);
            if self.followers.contains_key(&node) {
                *seen = self.now;
                if state == NodeState::Away {
                    states.push((node, NodeState::Serving));
                }
            } else if state == NodeState::Serving && self.now >= *seen + AWAY_AFTER {
                states.push((node, NodeState::Away));
            }
        }
        for (node, state) in states {
            self.give(table::Input::SetState(node, state));
        }
    }

    /// A node follows this server's voter, if that leads and the table has the node.
    fn attach(&mut self, server: DirectoryId, attachment: Attachment) -> bool {
        let Attachment { node, number } = attachment;
        let is_known = self.followers.contains_key(&node);
        let leading = self.voter.as_ref().filter(|voter| voter.is_leading());
        // Who has not registered, or was removed, is none of the table's.
        let record = leading.and_then(|voter| voter.table().nodes().get(node));
        if record.is_none_or(|record| record.state == NodeState::Removed)
            || !is_known && self.followers.len() >= FOLLOWERS_MAX
        {
            return false;
        }
        let before = self.followers.insert(node, (server, number));
        if let Some((former, number)) = before.filter(|(former, _)| *former != server) {
            // Two servers have this node: the one that comes later follows, and the other hears that it does not.
            if former == self.own {
                self.cut(node);
            } else {
                let attachment = Attachment { node, number };
                let leader = DirectoryId(0);
                self.send(former, &Frame::NotLed { attachment, leader });
            }
        }
        self.give(table::Input::Linked(node));
        true
    }

    /// A shard asks this server's voter which node it is.
    fn asked(&mut self, server: DirectoryId, number: u64, register: Register) {
        self.last_registrant += 1;
        let registrant = LinkId(self.last_registrant);
        self.registrants.insert(registrant, (server, number));
        if self.voter.as_ref().is_some_and(TableVoter::is_leading) {
            self.give(table::Input::Register(registrant, register));
        } else {
            self.answer(registrant, Err(not_led()));
        }
    }

    fn answer(&mut self, registrant: LinkId, result: Result<Registered, ErrorReply>) {
        match self.registrants.remove(&registrant) {
            Some((server, number)) if server == self.own => self.registered(server, number, result),
            Some((server, number)) => self.send(server, &Frame::Registered { number, result }),
            None => {}
        }
    }

    fn detach(&mut self, node: NodeId) {
        self.followers.remove(&node);
        self.give(table::Input::Linked(node));
    }

    /// This server's voter does not lead any more: the links of all that follow it are over.
    fn resign(&mut self) {
        let registrants: Vec<LinkId> = self.registrants.keys().copied().collect();
        for registrant in registrants {
            self.answer(registrant, Err(not_led()));
        }
        let leader = self.leader().unwrap_or(DirectoryId(0));
        for (node, (server, number)) in std::mem::take(&mut self.followers) {
            if server == self.own {
                self.cut(node);
            } else if !planted(Fault::ResignedSilently) {
                let attachment = Attachment { node, number };
                self.send(server, &Frame::NotLed { attachment, leader });
            }
        }
    }

    // ---- what comes

    /// A link is gone, with all that was on its way.
    fn lost(&mut self, server: DirectoryId) {
        let by_it = |way: &Way| match way {
            Way::Seeking { .. } => false,
            Way::Asked { server: other, .. } | Way::Led { server: other, .. } => *other == server,
        };
        let nodes: Vec<NodeId> = self
            .nodes
            .iter()
            .filter(|(_, it)| by_it(it))
            .map(|(node, _)| *node)
            .collect();
        for node in nodes {
            self.cut(node);
        }
        let now = self.now;
        for (_, way) in self.registering.values_mut().filter(|(_, way)| by_it(way)) {
            *way = Way::Seeking {
                at: now + ASK_AGAIN_AFTER,
            };
        }
        self.registrants.retain(|_, (of, _)| *of != server);
        self.heard.remove(&server);
        let followers = self.followers.iter();
        let followers: Vec<NodeId> = followers
            .filter(|(_, (of, _))| *of == server)
            .map(|(node, _)| *node)
            .collect();
        for node in followers {
            self.detach(node);
        }
    }

    fn receive(&mut self, server: DirectoryId, frame: Frame) {
        match frame {
            Frame::Quorum(bytes) => {
                // A new member knows the others by what they say alone.
                if self.voter.is_some()
                    && let Some(from) = sender(&bytes).filter(|it| it.directory == server)
                {
                    let from = from.voter;
                    self.heard.insert(server, from);
                    self.give(table::Input::Voter { from, bytes });
                }
            }
            Frame::Attach(attachment) => {
                let frame = match self.attach(server, attachment) {
                    true => Frame::Attached(attachment),
                    false => Frame::NotLed {
                        attachment,
                        leader: self.leader().unwrap_or(DirectoryId(0)),
                    },
                };
                self.send(server, &frame);
            }
            Frame::Attached(attachment) => {
                let Attachment { node, number } = attachment;
                match self.nodes.get(&node) {
                    Some(Way::Asked {
                        server: asked,
                        number: own,
                        ..
                    }) if (*asked, *own) == (server, number) => {
                        self.nodes.insert(node, Way::Led { server, number });
                        self.hint = Some(server);
                        self.outputs.push_back(Output::NodeLinked(node, number));
                    }
                    // It came too late: nobody follows by it.
                    _ => {
                        let leader = DirectoryId(0);
                        self.send(server, &Frame::NotLed { attachment, leader });
                    }
                }
            }
            Frame::Register { number, register } => self.asked(server, number, register),
            Frame::Registered { number, result } => self.registered(server, number, result),
            Frame::NotLed { attachment, leader } => self.not_led(server, attachment, leader),
            Frame::Table {
                attachment,
                message,
            } => {
                let Attachment { node, number } = attachment;
                if self.nodes.get(&node) == Some(&Way::Led { server, number }) {
                    self.outputs.push_back(Output::Node(node, message));
                } else if self.followers.get(&node) == Some(&(server, number)) {
                    self.give(table::Input::Node {
                        from: node,
                        message,
                    });
                } else {
                    // Its sender has not heard that it is over, or another server has that node now.
                    let leader = DirectoryId(0);
                    self.send(server, &Frame::NotLed { attachment, leader });
                }
            }
        }
    }

    /// One end of an attachment says that it is over.
    fn not_led(&mut self, server: DirectoryId, attachment: Attachment, leader: DirectoryId) {
        let Attachment { node, number } = attachment;
        if self.followers.get(&node) == Some(&(server, number)) {
            self.detach(node);
            return;
        }
        let is_of_it = match self.nodes.get(&node) {
            Some(
                Way::Asked {
                    server: other,
                    number: own,
                    ..
                }
                | Way::Led {
                    server: other,
                    number: own,
                },
            ) => (*other, *own) == (server, number),
            _ => false,
        };
        if is_of_it {
            self.hint = Some(leader).filter(|it| *it != DirectoryId(0) && *it != server);
            self.cut(node);
        }
    }

    /// The server of a voter.
    fn server_of(&self, voter: VoterId) -> Option<DirectoryId> {
        let mut members = self.voter.as_ref()?.members();
        let member = members.find(|(id, _)| *id == voter);
        let known = member.map(|(_, member)| member.directory);
        known.or_else(|| {
            let mut heard = self.heard.iter();
            heard
                .find(|(_, own)| **own == voter)
                .map(|(server, _)| *server)
        })
    }

    fn take(&mut self, output: table::Output) {
        match output {
            table::Output::Voter { to, bytes } => {
                if let Some(server) = self.server_of(to).filter(|it| self.up.contains(it)) {
                    self.send(server, &Frame::Quorum(bytes));
                }
            }
            table::Output::Node { to, message } => match self.followers.get(&to).copied() {
                Some((server, _)) if server == self.own => {
                    self.outputs.push_back(Output::Node(to, message))
                }
                Some((server, number)) => {
                    let attachment = Attachment { node: to, number };
                    self.send(
                        server,
                        &Frame::Table {
                            attachment,
                            message,
                        },
                    );
                }
                None => {}
            },
            table::Output::Disk { token, operation } => {
                self.outputs.push_back(Output::Disk { token, operation })
            }
            table::Output::Registered(registrant, result) => self.answer(registrant, result),
            table::Output::Leading(false) => self.resign(),
            // Nodes ask before long.
            table::Output::Leading(true) | table::Output::Leader(_) => {}
            table::Output::Changed { request, result } => {
                self.outputs.push_back(Output::Changed { request, result })
            }
            table::Output::Removed => self.outputs.push_back(Output::Removed),
            table::Output::Failed(reason) => self.outputs.push_back(Output::Failed(reason)),
        }
    }
}
