//! Drives a node: takes what has happened, hands it to the node, and carries out what the
//! node puts out. One thread; one input at a time. What it runs on is its [`Environment`];
//! the order of things is decided here, and is the same in the simulation.

use crate::amqp_listener::{AmqpListener, Out, SESSIONS_FROM};
use crate::environment::Environment;
use crate::rare_line::RareLine;
use crate::strangers::Strangers;
use broker::node::{
    Input, LINK_QUEUED_BYTES_HIGH, LINK_QUEUED_BYTES_LOW, LinkId, Node, Now, Output, StorageId,
};
use broker::{Counters, Line};
use log::{DiskError, OperationToken, Outcome};
use net::{LinkEvent, ListenerId, Message, NetError, ReactorEvent};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use wire::Codec;
use wire::codec::Reader;
use wire::frame::FrameKind;
use wire::message::RequestHead;

/// How many outputs are gathered at most before they are sent.
const OUTBOX_MAX: usize = 1024;
/// So many deliveries of a turn are written before acknowledgements. Writing
/// one wakes who waits for the event; few are no delay for the producer
/// that is to hear of it after them, but the readers of a popular topic were.
const DELIVERIES_FIRST: usize = 4;
/// How often it is looked whether links above the high watermark have sent what waited:
/// links without a socket do not say when their other end takes.
const WATERMARK_WAIT: Duration = Duration::from_millis(1);
/// So many things that the listener of AMQP puts out are carried out before others have their turn: what is dropped of a
/// long queue would be one act else.
const AMQP_OUTS_MAX: usize = 1024;
/// How long a connection may take to stand. The node gives as much for a Hello.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A client of AMQP for which no more waits than this is delivered to again.
const AMQP_QUEUED_BYTES_LOW: u64 = 256 << 10;
/// How often the final flush is tried.
const FINAL_TURNS: u32 = 1000;

/// See the module.
pub struct Executor<E> {
    node: Node,
    environment: E,
    counters: Arc<Counters>,
    /// The time of the node's last input.
    now: Now,
    /// Links that the node knows.
    links: BTreeSet<net::LinkId>,
    /// Links of which the node knows that more than the high watermark waits to be sent.
    above_watermark: BTreeSet<net::LinkId>,
    /// Links of which the node has had no Hello.
    strangers: Strangers,
    /// Links that do not stand yet, as in a handshake of TLS, or with nothing said at a shared port, and until when they
    /// may. Ids count up, so that the first is the oldest.
    connecting: BTreeMap<net::LinkId, Duration>,
    /// Lines about connections that were dropped or could not be taken.
    dropped: RareLine,
    not_taken: RareLine,
    /// Clients of AMQP, if they are listened for.
    amqp: Option<AmqpListener>,
    /// Their links that are up.
    amqp_links: BTreeSet<net::LinkId>,
    /// Those of them that more waits for than is to.
    amqp_queued: BTreeMap<net::LinkId, u64>,
    /// Whether what the listener puts out is being carried out.
    amqp_runs: bool,
    /// Network outputs of this turn, sent at its end.
    outbox: Vec<Output>,
    /// Operations that were done at once, not yet reported to the node.
    inline: VecDeque<(StorageId, OperationToken, Result<Outcome, DiskError>)>,
    /// Empty between calls; its memory is reused.
    done: Vec<Input>,
    draining: bool,
    drained: bool,
}

impl<E: Environment> Executor<E> {
    /// An executor of an opened node, of whose start the outputs are carried out. At each
    /// listener `pending_connections_max` clients may not have said who they are. It adds to
    /// `counters`, which are those of the node's options.
    pub fn new(
        node: Node,
        mut environment: E,
        pending_connections_max: usize,
        counters: Arc<Counters>,
    ) -> Self {
        let now = environment.now();
        let mut executor = Self {
            counters,
            node,
            environment,
            now,
            links: BTreeSet::new(),
            above_watermark: BTreeSet::new(),
            strangers: Strangers::new(pending_connections_max),
            connecting: BTreeMap::new(),
            dropped: RareLine::default(),
            not_taken: RareLine::default(),
            amqp: None,
            amqp_links: BTreeSet::new(),
            amqp_queued: BTreeMap::new(),
            amqp_runs: false,
            outbox: Vec::new(),
            inline: VecDeque::new(),
            done: Vec::new(),
            draining: false,
            drained: false,
        };
        executor.carry_out_all();
        executor
    }

    /// The same, which serves clients of AMQP where the environment listens for them.
    pub fn with_amqp(mut self, listener: AmqpListener) -> Self {
        self.amqp = Some(listener);
        self
    }

    /// The node.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// What it runs on.
    pub fn environment(&self) -> &E {
        &self.environment
    }

    /// What it runs on, to be waited with, or changed.
    pub fn environment_mut(&mut self) -> &mut E {
        &mut self.environment
    }

    /// Ends it, closing nothing. What the node still wanted done is dropped.
    pub fn into_environment(self) -> E {
        self.environment
    }

    /// Whether a drain has begun, by a signal or by a client's request.
    pub fn is_draining(&self) -> bool {
        self.draining
    }

    /// Whether the node has closed everything after [`Input::Drain`].
    pub fn is_drained(&self) -> bool {
        self.drained
    }

    /// How long after `now`, a time of the environment, it is to be called again at the
    /// latest, though nothing happens. `None` is for ever.
    pub fn wait_within(&self, now: Duration) -> Option<Duration> {
        let timer = self.node.next_timer().into_iter();
        if self.amqp.as_ref().is_some_and(AmqpListener::is_behind) {
            return Some(Duration::ZERO);
        }
        let amqp = self.amqp.as_ref().and_then(AmqpListener::timeout);
        let timer = timer.chain(self.connecting.values().next().copied());
        let timer = timer.chain(amqp).min();
        let timer = timer.map(|at| at.saturating_sub(now));
        match self.above_watermark.is_empty() && self.amqp_queued.is_empty() {
            true => timer,
            false => Some(timer.map_or(WATERMARK_WAIT, |left| left.min(WATERMARK_WAIT))),
        }
    }

    /// Takes everything that has happened, and sends what came of it. False if nothing had
    /// happened.
    pub fn turn(&mut self) -> bool {
        let mut moved = false;
        loop {
            self.now = self.environment.now();
            let began = self.now.monotonic;
            self.drop_late(began);
            let mut idle = false;
            while !self.is_turn_over(began) && self.outbox.len() < OUTBOX_MAX {
                let Some(event) = self.environment.next_event() else {
                    idle = true;
                    break;
                };
                moved = true;
                self.take(event);
            }
            moved |= self.take_done();
            // Deferred work waits until others have what they wait for.
            let behind = self.node.is_behind() && idle && !self.outbox.is_empty();
            let timer = self.node.next_timer().filter(|_| !behind);
            if timer.is_some_and(|at| at <= self.now.monotonic) {
                moved = true;
                self.handle(Input::Timer);
            }
            moved |= self.look_at_amqp();
            self.report_below_watermark();
            if idle && self.outbox.is_empty() {
                return moved;
            }
            moved |= !self.outbox.is_empty();
            self.send();
            let ended = self.environment.now().monotonic;
            self.counters.turn.add(ended - began);
            // While there is always more, requests of others must be seen.
            if self.drained || self.environment.interrupts() {
                return moved;
            }
        }
    }

    fn is_turn_over(&mut self, began: Duration) -> bool {
        self.environment.is_turn_over(began, self.now.monotonic)
    }

    /// Hands an input to the node, and carries out what follows, but for what is sent: that
    /// is done at the end of the next turn.
    pub fn handle(&mut self, input: Input) {
        self.now = self.environment.now();
        self.node.handle(self.now, input);
        self.carry_out_all();
        self.run_amqp();
    }

    /// Has the listener of AMQP see what time has brought. Whether it did something.
    fn look_at_amqp(&mut self) -> bool {
        let Some(amqp) = &mut self.amqp else {
            return false;
        };
        let mut moved = false;
        for (id, before) in std::mem::take(&mut self.amqp_queued) {
            match self.environment.queued_bytes(id) {
                Some(bytes) if bytes > AMQP_QUEUED_BYTES_LOW => {
                    if bytes < before {
                        amqp.moved(self.now, id);
                    }
                    self.amqp_queued.insert(id, bytes);
                }
                Some(bytes) => {
                    moved = true;
                    amqp.queued(self.now, id, bytes);
                }
                None => {}
            }
        }
        if amqp.timeout().is_some_and(|at| at <= self.now.monotonic) {
            moved = true;
            amqp.handle_timeout(self.now);
        }
        moved |= amqp.is_behind();
        self.run_amqp();
        moved
    }

    /// Carries out what the listener of AMQP puts out, as far as others can wait. What comes of that while it is
    /// carried out comes here too.
    fn run_amqp(&mut self) {
        if self.amqp_runs {
            return;
        }
        self.amqp_runs = true;
        // At the end clients are to see all that is said to them.
        let most = match self.draining {
            true => usize::MAX,
            false => AMQP_OUTS_MAX,
        };
        for _ in 0..most {
            let Some(out) = self.amqp.as_mut().and_then(AmqpListener::poll) else {
                break;
            };
            match out {
                Out::Node(input) => self.handle(input),
                Out::Send { client, bytes } => {
                    let message = Message::bytes(vec![bytes]);
                    if let Some(queued) = self.environment.send(client, message)
                        && let Some(amqp) = &mut self.amqp
                    {
                        self.amqp_queued.insert(client, queued);
                        amqp.queued(self.now, client, queued);
                    }
                }
                Out::Hold { client, held } => self.environment.hold(client, held),
                Out::Known { client } => self.strangers.left(client),
                Out::Close { client, reason } => self.environment.close(client, &reason),
                Out::Report(line) => self.environment.report(&line),
            }
        }
        self.amqp_runs = false;
    }

    /// Something has happened to a link of AMQP. False if it is none.
    fn take_amqp_event(&mut self, id: net::LinkId, event: &mut Option<LinkEvent>) -> bool {
        let speaks_amqp = match event {
            Some(LinkEvent::Up) => self.environment.begin(id),
            _ => None,
        };
        if speaks_amqp.is_none() && !self.amqp_links.contains(&id) {
            return false;
        }
        let now = self.environment.now();
        self.now = now;
        let Some(amqp) = &mut self.amqp else {
            return false;
        };
        match event.take() {
            Some(LinkEvent::Up) => {
                self.connecting.remove(&id);
                if let Some((peer, _)) = self.environment.peer(id) {
                    self.counters.connections_begun.add(1);
                    self.amqp_links.insert(id);
                    amqp.connected(now, id, peer.clone(), speaks_amqp == Some(true));
                }
            }
            Some(LinkEvent::Message(message)) => amqp.received(now, id, &message.payload),
            Some(LinkEvent::Down(reason)) => {
                tracing::debug!(link = id.0, %reason, "disconnected");
                self.forget_amqp(id);
            }
            _ => {}
        }
        self.run_amqp();
        true
    }

    fn forget_amqp(&mut self, id: net::LinkId) {
        self.environment.remove_link(id);
        self.strangers.left(id);
        self.amqp_queued.remove(&id);
        if self.amqp_links.remove(&id)
            && let Some(amqp) = &mut self.amqp
        {
            self.counters.connections_ended.add(1);
            amqp.disconnected(self.now, id);
        }
    }

    fn take(&mut self, event: ReactorEvent) {
        match event {
            // The link says `Up` or `Down` itself.
            ReactorEvent::Accepted { listener, link } => {
                self.stranger_came(listener, link);
            }
            ReactorEvent::AcceptFailed { error, .. } => self.accept_failed(&error),
            ReactorEvent::Woken => {
                self.take_done();
            }
            ReactorEvent::Link { link, event } => {
                let mut event = Some(event);
                if !self.take_amqp_event(link, &mut event)
                    && let Some(event) = event
                {
                    self.take_link_event(link, event);
                }
            }
        }
    }

    /// Somebody connected, who may say nothing for a while: of those there are
    /// not too many, and the disk keeps its descriptors.
    fn stranger_came(&mut self, listener: ListenerId, link: net::LinkId) {
        self.connecting
            .insert(link, self.now.monotonic + CONNECT_TIMEOUT);
        if let Some(oldest) = self.strangers.came(listener, link) {
            self.drop_stranger(
                oldest,
                "pending_connections_max say nothing at its address already",
            );
        }
        let excess = self.environment.connection_came();
        self.drop_dispensable(excess, Some(link));
    }

    /// Drops connections whose handshake takes too long: the node, which has a time for a Hello,
    /// knows none of them.
    fn drop_late(&mut self, now: Duration) {
        while let Some((&link, &until)) = self.connecting.first_key_value()
            && until <= now
        {
            self.drop_stranger(
                link,
                "the handshake of TLS did not end in time, or nothing was said",
            );
        }
    }

    /// The listener goes on when a link is removed. Somebody who says nothing
    /// is let go for that, for it is descriptors that lack most of the time.
    fn accept_failed(&mut self, error: &NetError) {
        let now = self.environment.now().monotonic;
        if let Some(count) = self.not_taken.due(now) {
            let limit = self.environment.describe_limit();
            self.environment.report(&Line::warning(format!(
                "connections could not be taken, {count} since the last such line: {error}; {limit}"
            )));
        }
        let excess = self.environment.connection_failed();
        self.drop_dispensable(excess, None);
    }

    /// Lets so many go of those who say nothing, the newest last.
    fn drop_dispensable(&mut self, count: u64, newest: Option<net::LinkId>) {
        for _ in 0..count {
            let Some(dispensable) = self.strangers.most_dispensable(newest) else {
                return;
            };
            let limit = self.environment.describe_limit();
            self.drop_stranger(dispensable, &limit);
        }
    }

    fn drop_stranger(&mut self, id: net::LinkId, why: &str) {
        self.strangers.left(id);
        self.connecting.remove(&id);
        let Some(peer) = self.environment.remove_link(id) else {
            return;
        };
        if self.amqp_links.contains(&id) {
            self.forget_amqp(id);
            self.run_amqp();
        }
        let now = self.environment.now().monotonic;
        if let Some(count) = self.dropped.due(now) {
            self.environment.report(&Line::warning(format!(
                "connections without a Hello were dropped, {count} since the last such line, the \
                 last from {}: {why}",
                peer.address
            )));
        }
        self.above_watermark.remove(&id);
        if self.links.remove(&id) {
            self.counters.connections_ended.add(1);
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
                self.connecting.remove(&id);
                let Some((peer, capabilities)) = self.environment.peer(id) else {
                    return;
                };
                let (peer, capabilities) = (peer.clone(), capabilities.clone());
                tracing::debug!(link = id.0, address = %peer.address, "connected");
                self.counters.connections_begun.add(1);
                self.links.insert(id);
                Input::LinkUp {
                    link,
                    peer,
                    capabilities,
                }
            }
            LinkEvent::Message(message) => {
                trace::passes!("handed to the node");
                let bytes = message.payload.len() as u64;
                tracing::trace!(
                    link = id.0,
                    request = message.id,
                    bytes,
                    "received {}",
                    in_words(message.kind, &message.head)
                );
                self.counters.messages_received.add(1);
                self.counters.payload_bytes_received.add(bytes);
                Input::Message { link, message }
            }
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
                self.environment.remove_link(id);
                self.strangers.left(id);
                self.connecting.remove(&id);
                self.above_watermark.remove(&id);
                // A link that never stood is nothing to the node.
                if !self.links.remove(&id) {
                    tracing::debug!(link = id.0, %reason, "did not connect");
                    return;
                }
                tracing::debug!(link = id.0, %reason, "disconnected");
                self.counters.connections_ended.add(1);
                Input::LinkDown { link, reason }
            }
        };
        self.handle(input);
        if self.strangers.contains(id) && self.node.knows_client(link) {
            self.strangers.left(id);
        }
    }

    fn take_done(&mut self) -> bool {
        let mut done = std::mem::take(&mut self.done);
        self.environment.take_done(&mut done);
        let moved = !done.is_empty();
        for input in done.drain(..) {
            self.handle(input);
        }
        self.done = done;
        moved
    }

    /// Takes the node's outputs until there is none, and with them those of
    /// the operations that are done at once.
    fn carry_out_all(&mut self) {
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
            self.node.handle(self.now, input);
        }
    }

    fn carry_out(&mut self, output: Output) {
        match output {
            Output::Disk {
                storage,
                token,
                operation,
            } => {
                self.counters.disk_operations.add(1);
                match self.environment.execute(operation) {
                    Ok(result) => self.inline.push_back((storage, token, result)),
                    Err(operation) => self.environment.start_operation(storage, token, operation),
                }
            }
            Output::Job { job, work } => self.environment.start_job(job, work),
            Output::Report(line) => self.environment.report(&line),
            Output::Audit(record) => self.environment.audit(*record),
            Output::Client { link, output } => {
                if let Some(amqp) = &mut self.amqp {
                    amqp.said(self.now, link, *output);
                }
            }
            Output::Close { link, reason } if link.0 >= SESSIONS_FROM => {
                if let Some(amqp) = &mut self.amqp {
                    amqp.ended(self.now, link, &reason);
                }
            }
            Output::Write { link, token, write } if link.0 >= SESSIONS_FROM => {
                if let Some(amqp) = &mut self.amqp {
                    amqp.wrote(self.now, link, token, write);
                }
            }
            Output::Peer { node, message } => self.environment.send_to_node(node, message),
            // Shards of one server are a fixed list: none registers.
            Output::Registered { .. } => {}
            Output::Draining => self.draining = true,
            Output::Drained => self.drained = true,
            Output::Join {
                link,
                stripe,
                welcome,
            } => self.join(net::LinkId(link.0), net::LinkId(stripe.0), welcome),
            network => {
                if let Output::Send { link, message } = &network {
                    let link = net::LinkId(link.0);
                    self.environment.observe_output(link, message);
                }
                self.outbox.push(network);
            }
        }
    }

    /// A connection becomes a part of another one.
    fn join(&mut self, link: net::LinkId, stripe: net::LinkId, welcome: Message) {
        self.strangers.left(stripe);
        self.above_watermark.remove(&stripe);
        if self.links.remove(&stripe) {
            self.counters.connections_ended.add(1);
        }
        // Where it fails the stripe is gone, and its client sees that.
        let joined = self.environment.join(link, stripe, welcome);
        tracing::debug!(link = link.0, stripe = stripe.0, joined, "carries chunks");
    }

    /// Reports to the node the links that have fallen to the low watermark.
    fn report_below_watermark(&mut self) {
        if self.above_watermark.is_empty() {
            return;
        }
        for id in std::mem::take(&mut self.above_watermark) {
            let Some(bytes) = self.environment.queued_bytes(id) else {
                continue;
            };
            if bytes > LINK_QUEUED_BYTES_LOW {
                self.above_watermark.insert(id);
                continue;
            }
            let link = LinkId(id.0);
            self.handle(Input::LinkQueued { link, bytes });
        }
    }

    /// Hands the outbox to the links. Their turn, in which many messages
    /// leave with one system call, comes with the next look at the events.
    fn send(&mut self) {
        self.put_deliveries_first();
        let mut above = Vec::new();
        for output in self.outbox.drain(..) {
            let environment = &mut self.environment;
            // What is for a dead link is dropped: its end has been or will be reported.
            match output {
                Output::Send { link, message } => {
                    let id = net::LinkId(link.0);
                    let bytes = message.payload_bytes();
                    tracing::trace!(
                        link = id.0,
                        request = message.id,
                        bytes,
                        "sends {:?}",
                        message.kind
                    );
                    self.counters.messages_sent.add(1);
                    self.counters.payload_bytes_sent.add(bytes);
                    if message.kind == FrameKind::ErrorReply {
                        self.counters.errors_sent.add(1);
                    }
                    let queued = environment.send(id, message);
                    if let Some(bytes) = queued.filter(|bytes| *bytes > LINK_QUEUED_BYTES_HIGH)
                        && self.above_watermark.insert(id)
                    {
                        above.push((link, bytes));
                    }
                }
                Output::Read { link, token, read } => {
                    environment.read(net::LinkId(link.0), token, read);
                }
                Output::Write { link, token, write } => {
                    environment.write(net::LinkId(link.0), token, write);
                }
                Output::Stripe { link } => environment.stripe(net::LinkId(link.0)),
                Output::Close { link, reason } => environment.close(net::LinkId(link.0), &reason),
                _ => unreachable!("only network outputs are put into the outbox"),
            }
        }
        for (link, bytes) in above {
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
            self.environment.serve_first(net::LinkId(link.0));
        }
    }

    /// Lets the links send what they were given, as far as that goes without waiting.
    pub fn flush_finally(&mut self) {
        self.send();
        for _ in 0..FINAL_TURNS {
            if self.environment.next_event().is_none() {
                return;
            }
        }
    }
}

/// A message that came, in words: of a request, what is asked for.
fn in_words(kind: FrameKind, head: &[u8]) -> String {
    match kind {
        FrameKind::Request => match RequestHead::decode(&mut Reader::new("request", head)) {
            Ok(head) => format!("{kind:?} {:?} of topic {}", head.method, head.topic),
            Err(error) => format!("{kind:?} that is none: {error}"),
        },
        _ => format!("{kind:?}"),
    }
}
