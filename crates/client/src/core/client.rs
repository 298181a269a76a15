//! A client's core: what it has at each node, and which of them is asked for what.
//!
//! ```text
//!   commands of the API ──► by topic, or by the key of what was opened ──► NodeCore
//!                                                                            │ "not leader", and who is
//!   that call, or that topic with all that was opened of it ◄────────────────┘
//!        └──► NodeCore of that node, made if it is a new one
//! ```

use super::connection::Connection;
use super::elsewhere::{Elsewhere, HOPS_MAX, Hint, What};
use super::io::{Input, Output};
use super::node::NodeCore;
use super::opening::Opening;
use crate::copies::CopyMemory;
use crate::driving::InlineSend;
use crate::error::ClientError;
use crate::faults::{Fault, planted};
use crate::mailbox::{Command, Mailbox};
use crate::options::{DriverOptions, Endpoint};
use crate::promise::Promise;
use net::Link;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use wire::{SessionId, TopicId};

/// One of the nodes that a client has to do with, in the order in which it has met them: 0 is the one that its endpoint names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct NodeIndex(pub usize);

/// The node that the endpoint names.
pub const FIRST_NODE: NodeIndex = NodeIndex(0);

/// The present connections of a client.
pub trait Links {
    /// The one to a node, if there is one.
    fn link(&mut self, node: NodeIndex) -> Option<&mut dyn Link>;
}

/// Those of a client that knows of one node.
impl Links for Option<&mut dyn Link> {
    fn link(&mut self, node: NodeIndex) -> Option<&mut dyn Link> {
        match self {
            Some(link) if node == FIRST_NODE => Some(&mut **link),
            _ => None,
        }
    }
}

/// A topic goes from node to node so often within this time; then it stays for as long, and what is refused there is tried
/// again in its own time.
const MOVES_INTERVAL: Duration = Duration::from_millis(100);

/// How many nodes a client has to do with at most: no answer makes it connect without end.
const NODES_MAX: usize = 4096;

/// How often a topic has moved since then.
struct Moves {
    since: Duration,
    count: u8,
}

/// The client as a state machine. See [`crate::core`].
pub struct ClientCore {
    now: Duration,
    mailbox: Arc<Mailbox>,
    copies: CopyMemory,
    nodes: Vec<NodeCore>,
    /// What was asked of each node and is not done yet.
    asked: Vec<Vec<Command>>,
    /// Topics that are not at the first node.
    topics: BTreeMap<TopicId, NodeIndex>,
    /// Producers, consumers and queues of such topics, by their keys.
    keys: BTreeMap<u64, NodeIndex>,
    moves: BTreeMap<TopicId, Moves>,
    commands: Vec<Command>,
    ended: bool,
    /// What ends with the last node's connection.
    says_ended: bool,
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
        let known = (mailbox.clone(), mailbox.liveness.clone());
        let connection = Connection::new(endpoint, options, session);
        let first = NodeCore::new(connection, known, copies.clone(), Some(connected));
        Self {
            now: Duration::ZERO,
            mailbox,
            copies,
            nodes: vec![first],
            asked: vec![Vec::new()],
            topics: BTreeMap::new(),
            keys: BTreeMap::new(),
            moves: BTreeMap::new(),
            commands: Vec::new(),
            ended: false,
            says_ended: false,
        }
    }

    /// Takes an input, of the connection to `node`. `now` counts from any fixed moment and never goes back; `links` has
    /// the present connections.
    pub fn handle(&mut self, now: Duration, node: NodeIndex, input: Input, links: &mut dyn Links) {
        debug_assert!(now >= self.now);
        self.now = now;
        self.set_time(now);
        if self.ended {
            return;
        }
        self.nodes[node.0].take(now, input, links.link(node));
        self.go_on(links);
        let mut commands = std::mem::take(&mut self.commands);
        self.mailbox.take(&mut commands);
        for command in commands.drain(..) {
            self.ask(command, links);
        }
        self.commands = commands;
        if self.ended {
            return;
        }
        self.run(node, links);
        for other in (0..self.nodes.len()).filter(|other| *other != node.0) {
            if !self.asked[other].is_empty() || self.nodes[other].is_due(now) {
                let other = NodeIndex(other);
                self.nodes[other.0].take(now, Input::Wake, links.link(other));
                self.run(other, links);
            }
        }
        // Of the others nothing depends but what is there.
        if let Some(error) = self.nodes[FIRST_NODE.0].hopeless() {
            self.end(&error, links);
        }
    }

    fn run(&mut self, node: NodeIndex, links: &mut dyn Links) {
        self.nodes[node.0].run(&mut self.asked[node.0], links.link(node));
    }

    /// Says what time it is to what uses the API, in a simulation: there is
    /// no other clock. An input says so as well.
    pub fn set_time(&self, now: Duration) {
        self.mailbox.clock().set(now);
    }

    /// Whether the API was used since the last input, as callbacks do: an
    /// [`Input::Wake`] is to follow.
    pub fn has_commands(&self) -> bool {
        !self.ended && self.mailbox.has_commands()
    }

    /// The next thing to do, and for which node's connection.
    pub fn poll_output(&mut self) -> Option<(NodeIndex, Output)> {
        let nodes = self.nodes.iter_mut().enumerate();
        let mut outputs = nodes.filter_map(|(at, node)| Some((NodeIndex(at), node.poll_output()?)));
        let output = outputs.next();
        output.or_else(|| {
            let ended = std::mem::take(&mut self.says_ended);
            ended.then_some((FIRST_NODE, Output::Ended))
        })
    }

    /// When the core wants to be called again, whatever happens.
    pub fn next_timer(&self) -> Option<Duration> {
        match self.ended {
            true => None,
            false => self.nodes.iter().filter_map(NodeCore::next_timer).min(),
        }
    }

    /// Whether there is more to do at once.
    pub(crate) fn has_more(&self) -> bool {
        self.nodes.iter().any(NodeCore::has_more)
    }

    /// How many connections to the first node were tried.
    pub fn attempt(&self) -> u64 {
        self.nodes[FIRST_NODE.0].attempt()
    }

    /// How many nodes the client has to do with.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// The node by whose connection this is sent.
    pub(crate) fn node_of_inline(&self, what: InlineSend) -> NodeIndex {
        match what {
            InlineSend::Events { producer: key, .. } | InlineSend::Settlements(key) => {
                self.place_of_key(key)
            }
        }
    }

    /// Sends what was gathered, and does nothing else: no plugin and no
    /// callback of a user's is waited for. `link` is the one to [`ClientCore::node_of_inline`]. False if it is to be
    /// reported by a command after all, for there is more to do.
    pub(crate) fn send_inline(
        &mut self,
        now: Duration,
        link: &mut dyn Link,
        what: InlineSend,
    ) -> bool {
        debug_assert!(now >= self.now);
        if self.ended {
            return false;
        }
        let node = self.node_of_inline(what);
        self.nodes[node.0].send_inline(now, link, what)
    }

    /// Ends everything with `error`, because nobody can drive the core any
    /// more: nothing that waits for it is to wait for ever.
    pub(crate) fn abandon(&mut self, error: &ClientError) {
        // It may have been on its way there when it was interrupted.
        self.nodes.iter_mut().for_each(NodeCore::may_end_again);
        self.ended = false;
        self.end(error, &mut None);
    }

    fn end(&mut self, error: &ClientError, links: &mut dyn Links) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        for (at, node) in self.nodes.iter_mut().enumerate() {
            node.end(error, links.link(NodeIndex(at)));
        }
        self.mailbox.end(error.clone());
        // What was asked of nodes and not begun is refused as what was not taken yet.
        for command in self.asked.iter_mut().flat_map(std::mem::take) {
            self.mailbox.send(command);
        }
        self.says_ended = true;
    }

    fn place_of_key(&self, key: u64) -> NodeIndex {
        self.keys.get(&key).copied().unwrap_or(FIRST_NODE)
    }

    fn place_of_topic(&self, topic: TopicId) -> NodeIndex {
        self.topics.get(&topic).copied().unwrap_or(FIRST_NODE)
    }

    /// Hands a command to the node that it is for.
    fn ask(&mut self, command: Command, links: &mut dyn Links) {
        if self.ended {
            return self.mailbox.send(command);
        }
        let node = match &command {
            Command::Call(call) => self.place_of_topic(call.topic),
            Command::Open { opening, .. } => {
                let (topic, key) = Opening::place_of(opening.as_ref());
                let node = self.place_of_topic(topic);
                if node != FIRST_NODE {
                    let nodes = &self.nodes;
                    self.keys.retain(|key, node| nodes[node.0].has(*key));
                    self.keys.insert(key, node);
                }
                node
            }
            Command::TopicGrew(topic) => self.place_of_topic(*topic),
            Command::ProducerReady(key)
            | Command::CloseProducer(key)
            | Command::CloseConsumer(key)
            | Command::RejoinGroup(key)
            | Command::Settle(key)
            | Command::WatchSettlements(key)
            | Command::RejoinQueue(key)
            | Command::Consumed { consumer: key, .. }
            | Command::Resubscribe { consumer: key, .. }
            | Command::Acknowledge { consumer: key }
            | Command::FlushAcknowledgements { consumer: key, .. }
            | Command::Release { consumer: key, .. }
            | Command::ExtendLease { queue: key, .. }
            | Command::WindDownQueue { queue: key, .. }
            | Command::CloseQueue { queue: key, .. }
            | Command::FlushQueue { queue: key, .. } => self.place_of_key(*key),
            Command::Seek { seek, .. } => self.place_of_key(seek.consumer),
            Command::Alarm { .. } => FIRST_NODE,
            Command::LookAtTopics => {
                for asked in &mut self.asked[1..] {
                    asked.push(Command::LookAtTopics);
                }
                FIRST_NODE
            }
            Command::Cancel(slot) => {
                for asked in &mut self.asked[1..] {
                    asked.push(Command::Cancel(slot.clone()));
                }
                FIRST_NODE
            }
            Command::Close => return self.end(&ClientError::Closed, links),
        };
        self.asked[node.0].push(command);
    }

    /// Takes to other nodes what is there, as answers have said.
    fn go_on(&mut self, links: &mut dyn Links) {
        for at in 0..self.nodes.len() {
            let from = NodeIndex(at);
            for topic in self.nodes[at].take_described() {
                let place = self.place_of_topic(topic);
                if place != from && self.may_move(topic) {
                    self.move_topic(topic, place, from, links);
                }
            }
            for Elsewhere { what, hint } in self.nodes[at].take_elsewhere() {
                let Some(to) = self.node_of(from, hint).filter(|to| *to != from) else {
                    continue;
                };
                match what {
                    What::Call(key) => {
                        let call = self.nodes[at].leave_call(key, links.link(from));
                        self.nodes[to.0].adopt_calls(call, self.now, links.link(to));
                    }
                    What::Topic(topic) => self.topic_is_at(topic, from, to, links),
                }
            }
        }
    }

    /// The node of a hint that came from another one.
    fn node_of(&mut self, from: NodeIndex, hint: Hint) -> Option<NodeIndex> {
        let mut known = self.nodes.iter_mut().enumerate();
        let known = known.find(|(_, node)| node.directory() == Some(hint.directory));
        if let Some((at, node)) = known {
            if NodeIndex(at) != FIRST_NODE {
                node.is_at(hint.address);
            }
            return Some(NodeIndex(at));
        }
        if self.nodes.len() >= NODES_MAX {
            return None;
        }
        let connection = self.nodes[from.0].branch(&hint)?;
        let liveness = Arc::new(self.mailbox.liveness.of_another());
        let known = (self.mailbox.clone(), liveness);
        let node = NodeCore::new(connection, known, self.copies.clone(), None);
        self.nodes.push(node);
        self.asked.push(Vec::new());
        Some(NodeIndex(self.nodes.len() - 1))
    }

    /// A node refuses what is about a topic, for another one has it.
    fn topic_is_at(
        &mut self,
        topic: TopicId,
        from: NodeIndex,
        to: NodeIndex,
        links: &mut dyn Links,
    ) {
        let place = self.place_of_topic(topic);
        if place != from {
            // It has moved since that was asked for: what says so is behind, and what is left there goes after it.
            self.move_topic(topic, from, place, links);
        } else if self.may_move(topic) {
            self.move_topic(topic, from, to, links);
        }
    }

    /// All that was opened of a topic, and the calls about it, go from one node to another.
    fn move_topic(
        &mut self,
        topic: TopicId,
        from: NodeIndex,
        to: NodeIndex,
        links: &mut dyn Links,
    ) {
        let leaving = self.nodes[from.0].leave_topic(topic, links.link(from));
        for key in leaving.keys() {
            match to {
                FIRST_NODE => self.keys.remove(&key),
                to => self.keys.insert(key, to),
            };
        }
        match to {
            FIRST_NODE => self.topics.remove(&topic),
            to => self.topics.insert(topic, to),
        };
        self.nodes[to.0].adopt_topic(leaving, self.now, links.link(to));
    }

    fn may_move(&mut self, topic: TopicId) -> bool {
        let now = self.now;
        self.moves
            .retain(|_, moves| now < moves.since + MOVES_INTERVAL);
        let moves = self.moves.entry(topic).or_insert(Moves {
            since: now,
            count: 0,
        });
        moves.count = moves.count.saturating_add(1);
        moves.count <= HOPS_MAX || planted(Fault::EndlessHops)
    }
}
