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
use wire::message::Method;
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

/// So long the other servers of a cluster have to answer, where the first one does not.
const OTHERS_WITHIN: Duration = Duration::from_secs(5);

/// How many nodes a client has to do with at most: no answer makes it connect without end.
const NODES_MAX: usize = 1024;

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
    /// The node that is asked for what has no place: the one that the endpoint names, or another of its cluster while that one is
    /// away.
    first: NodeIndex,
    /// Until when others of the cluster that were begun to be reached may answer.
    others_until: Option<Duration>,
    /// What was asked of each node and is not done yet.
    asked: Vec<Vec<Command>>,
    /// Topics that are not at `first`.
    topics: BTreeMap<TopicId, NodeIndex>,
    /// Producers, consumers and queues that are not at [`FIRST_NODE`], by their keys.
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
            first: FIRST_NODE,
            others_until: None,
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
        trace::passes!("by the node that it is from");
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
        // What was asked for before the end is begun before it; the rest is refused once the mailbox has ended.
        let close = commands
            .iter()
            .position(|command| matches!(command, Command::Close));
        let late = close.map(|at| commands.split_off(at));
        for command in commands.drain(..) {
            self.ask(command);
        }
        self.commands = commands;
        self.run(node, links);
        self.look_for_another(links);
        for other in (0..self.nodes.len()).filter(|other| *other != node.0) {
            if !self.asked[other].is_empty() || self.nodes[other].is_due(now) {
                let other = NodeIndex(other);
                self.nodes[other.0].take(now, Input::Wake, links.link(other));
                self.run(other, links);
            }
        }
        if let Some(late) = late {
            self.end(&ClientError::Closed, links);
            for command in late {
                self.mailbox.send(command);
            }
            return;
        }
        // Of the others nothing depends but what is there.
        if let Some(error) = self.nodes[self.first.0].hopeless()
            && self.others_until.is_none_or(|until| now >= until)
        {
            self.end(&error, links);
        }
    }

    /// The node that is asked for what has no place is away: another one of its cluster takes that over, as soon as it is
    /// reached. What was opened stays where it is.
    fn look_for_another(&mut self, links: &mut dyn Links) {
        let before = self.first;
        if !self.nodes[before.0].has_failed() {
            return;
        }
        for hint in self.nodes[FIRST_NODE.0].others() {
            if self.known(&hint).is_none() && self.nodes.len() < NODES_MAX {
                self.others_until = Some(self.now + OTHERS_WITHIN);
                let connection = self.nodes[FIRST_NODE.0].branch_to(&hint);
                self.add(connection);
            }
        }
        let Some(first) = self.nodes.iter().position(NodeCore::is_up).map(NodeIndex) else {
            return;
        };
        // What was asked of it and is not begun goes along.
        self.nodes[before.0].take(self.now, Input::Wake, links.link(before));
        self.nodes[before.0].run(&mut self.asked[before.0], links.link(before));
        for topic in self.nodes[before.0].topics().into_keys() {
            self.topics.entry(topic).or_insert(before);
        }
        self.first = first;
        self.move_calls(TopicId(0), before, first, links);
        let connected = self.nodes[before.0].leave_connected();
        self.nodes[first.0].adopt_connected(connected);
    }

    fn run(&mut self, node: NodeIndex, links: &mut dyn Links) {
        self.nodes[node.0].run(&mut self.asked[node.0], links.link(node));
        if node != self.first {
            if self.nodes[self.first.0].is_up() {
                if self.nodes[node.0].looks_elsewhere() {
                    self.look_elsewhere(node, links);
                }
                if self.nodes[node.0].asks_first() {
                    self.ask_first(node, links);
                }
            }
            self.nodes[node.0].give_up_if_hopeless();
        }
    }

    /// A node is away: the first one is asked whether what is opened there is at another place by now. It goes there when it says so.
    fn look_elsewhere(&mut self, from: NodeIndex, links: &mut dyn Links) {
        let first = self.first;
        for (topic, name) in self.nodes[from.0].topics() {
            self.nodes[first.0].look_for(self.now, topic, &name, links.link(first));
        }
    }

    /// A node is away for long: the first one may know of another that does by now what waits there, or answer for it. It names
    /// the same one as long as nothing is known, and the calls wait there as before. What is opened stays:
    /// [`ClientCore::look_elsewhere`] asks for it by its name.
    fn ask_first(&mut self, from: NodeIndex, links: &mut dyn Links) {
        let first = self.first;
        let opened = self.nodes[from.0].topics();
        let topics = self.topics.iter().filter(|(_, at)| **at == from);
        let topics: Vec<TopicId> = topics.map(|(topic, _)| *topic).collect();
        for topic in topics {
            if opened.contains_key(&topic) {
                self.move_calls(topic, from, first, links);
            } else if self.may_move(topic) {
                self.move_topic(topic, from, first, links);
            }
        }
        self.move_calls(TopicId(0), from, first, links);
    }

    /// Takes the calls about a topic, or about none, to another node.
    fn move_calls(
        &mut self,
        topic: TopicId,
        from: NodeIndex,
        to: NodeIndex,
        links: &mut dyn Links,
    ) {
        let calls = self.nodes[from.0].leave_calls(topic, links.link(from));
        self.nodes[to.0].adopt_calls(calls, self.now, links.link(to));
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
        trace::passes!("by the node that has its topic");
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
        self.topics.get(&topic).copied().unwrap_or(self.first)
    }

    /// Hands a command to the node that it is for.
    fn ask(&mut self, command: Command) {
        let node = match &command {
            // It is about the server that the endpoint names, whichever is asked for the rest.
            Command::Call(call) if call.method == Method::Shutdown => FIRST_NODE,
            Command::Call(call) => self.place_of_topic(call.topic),
            Command::Open { opening, .. } => {
                let (topic, key) = Opening::place_of(opening.as_ref());
                let node = self.place_of_topic(topic);
                if node != FIRST_NODE {
                    // One that was asked for a moment ago is begun when its node is called.
                    let (nodes, asked) = (&self.nodes, &self.asked);
                    self.keys
                        .retain(|key, node| !asked[node.0].is_empty() || nodes[node.0].has(*key));
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
            Command::Close => unreachable!("nothing is asked of a node behind it"),
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
                match what {
                    What::Call(key) => {
                        let Some(to) = self.node_of(from, hint) else {
                            continue;
                        };
                        let call = self.nodes[at].leave_call(key, links.link(from));
                        self.nodes[to.0].adopt_calls(call, self.now, links.link(to));
                    }
                    What::Topic(topic) => self.topic_is_at(topic, from, hint, links),
                }
            }
        }
    }

    /// The node that a hint of `from` names, if that is another one.
    fn node_of(&mut self, from: NodeIndex, hint: Hint) -> Option<NodeIndex> {
        if let Some(at) = self.known(&hint) {
            if at != FIRST_NODE && at != from {
                self.nodes[at.0].is_at(hint.address);
            }
            return Some(at).filter(|at| *at != from);
        }
        if self.nodes.len() >= NODES_MAX {
            return None;
        }
        let connection = self.nodes[from.0].branch(&hint)?;
        Some(self.add(connection))
    }

    /// The node of a hint, if the client has to do with it.
    fn known(&self, hint: &Hint) -> Option<NodeIndex> {
        let mut known = self.nodes.iter();
        let at = known.position(|node| node.directory() == Some(hint.directory));
        at.map(NodeIndex)
    }

    /// One more node.
    fn add(&mut self, connection: Connection) -> NodeIndex {
        let liveness = Arc::new(self.mailbox.liveness.of_another());
        let known = (self.mailbox.clone(), liveness);
        let node = NodeCore::new(connection, known, self.copies.clone(), None);
        self.nodes.push(node);
        self.asked.push(Vec::new());
        NodeIndex(self.nodes.len() - 1)
    }

    /// A node refuses what is about a topic, for the one that the hint names has it.
    fn topic_is_at(&mut self, topic: TopicId, from: NodeIndex, hint: Hint, links: &mut dyn Links) {
        let place = self.place_of_topic(topic);
        if place != from {
            // It has moved since that was asked for: what says so is behind, and what is left there goes after it.
            self.move_topic(topic, from, place, links);
            // Unless its place is away, and the answer to where it is names another one.
            if !self.nodes[place.0].is_up()
                && self.known(&hint) != Some(place)
                && self.may_move(topic)
                && let Some(to) = self.node_of(from, hint)
            {
                self.move_topic(topic, place, to, links);
            }
        // First, so that a topic that nodes send to and fro makes no nodes.
        } else if self.may_move(topic)
            && let Some(to) = self.node_of(from, hint)
        {
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
        match to == self.first {
            true => self.topics.remove(&topic),
            false => self.topics.insert(topic, to),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use wire::DirectoryId;

    /// A client that has dialled its first node.
    fn client() -> ClientCore {
        let options = DriverOptions::default();
        let mailbox = Mailbox::new(Clock::simulated());
        let connected = Promise::new(&mailbox);
        let copies = CopyMemory::new(&options.transports);
        let endpoint = Endpoint::address("sim://first");
        let mut core =
            ClientCore::new(endpoint, &options, SessionId(7), mailbox, copies, connected);
        core.handle(Duration::ZERO, FIRST_NODE, Input::Wake, &mut None);
        core
    }

    fn hint(of: u128) -> Hint {
        Hint {
            address: format!("sim://{of}"),
            directory: DirectoryId(of),
        }
    }

    #[test]
    fn a_topic_that_nodes_send_to_and_fro_makes_no_more_nodes_than_it_may_move() {
        let mut core = client();
        let topic = TopicId(5);
        for of in 1..20 {
            let place = core.place_of_topic(topic);
            core.topic_is_at(topic, place, hint(of), &mut None);
            core.handle(Duration::ZERO, FIRST_NODE, Input::Wake, &mut None);
        }
        assert_eq!(core.node_count(), 1 + usize::from(HOPS_MAX));
    }

    #[test]
    fn a_node_that_names_itself_is_no_other_node() {
        let mut core = client();
        let another = core.node_of(FIRST_NODE, hint(1));
        assert_eq!(another, Some(NodeIndex(1)));
        assert_eq!(core.node_of(FIRST_NODE, hint(1)), another);
        assert_eq!(core.node_of(NodeIndex(1), hint(1)), None);
    }
}
