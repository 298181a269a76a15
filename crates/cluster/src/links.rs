//! The links by which the servers of a cluster talk to each other: at most one with each peer, of whole messages
//! in order. See the README for its states, and docs/format/peer.md for its bytes.

mod connection;
mod frame;
mod hello;
mod interface;
mod names;
mod peer;
mod security;
mod settings;
#[cfg(test)]
mod tests;

pub use hello::{Goodbye, Reason};
pub use interface::{Ended, LinksConfig, NotSent, PeerEvent, PeerState, PeerStatus, Security};
pub use settings::{LinkSettings, MESSAGE_COST_BYTES, PeerId, certificate_name};

use crate::quorum::ClusterId;
use crate::random::Random;
use bytes::Bytes;
use connection::{Check, Clock, Connection, Phase, Side};
use frame::{Frame, Kind};
use hello::{GREETING_BYTES_MAX, Greeting, Hello};
use names::Names;
use net::{LinkEvent, LinkId, Message, NetError, Reactor, ReactorEvent, Waker};
use peer::{Arrival, Dial, Peer};
use security::Protected;
use std::collections::BTreeMap;
use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// What one look at the sockets takes before timers are looked at.
const STEPS_MAX: usize = 256;
/// [`PeerLinks::poll`] returns when it has so many events, or messages of so many bytes. What was read with the last
/// of them comes with it: one long message, or 64 KiB of short ones.
const EVENTS_MAX: usize = 1_024;
const EVENT_BYTES_MAX: usize = 4 << 20;
/// When timers are looked at if there is none.
const IDLE: Duration = Duration::from_secs(3_600);

/// The links of one server with the other servers of its cluster.
///
/// Of one thread. Use it so: call [`PeerLinks::poll`] again and again and do what its events ask for; [`PeerLinks::send`]
/// and [`PeerLinks::set_peers`] between that, at any time. Another thread wakes it by [`PeerLinks::waker`]. Nothing is
/// sent, received or dialled but in `poll`, and nothing there waits for the network or for names; a link whose
/// owner does not poll for the time of a silence is taken for gone by its peer.
///
/// A message that was sent arrives once or not at all, and none arrives without those before it on the same
/// link. What was on its way when a link ended is lost.
pub struct PeerLinks {
    reactor: Reactor,
    protected: Protected,
    names: Names,
    address: String,
    cluster: ClusterId,
    own: PeerId,
    settings: LinkSettings,
    random: Random,
    /// What this process is known by in this run.
    run: u64,
    /// Links that have ended in this run.
    ended: u64,
    connections: BTreeMap<LinkId, Connection>,
    peers: BTreeMap<PeerId, Peer>,
    clock: Clock,
    /// When timers are to be looked at.
    timers_at: Instant,
    events: Vec<PeerEvent>,
    event_bytes: usize,
    is_woken: bool,
}

impl PeerLinks {
    /// Listens, and dials nobody yet. The name of a host to listen at is looked up, which may take its time.
    ///
    /// # Errors
    /// [`NetError::Address`] says what is wrong with the configuration; [`NetError::System`] what the system lacks.
    pub fn open(config: &LinksConfig) -> Result<Self, NetError> {
        config.settings.check().map_err(NetError::Address)?;
        let protected = Protected::new(&config.security, config.own)?;
        let listener = protected.listen(&config.listen)?;
        let address = listener.address();
        let mut reactor = Reactor::new()?;
        reactor.add_listener(listener)?;
        let now = Instant::now();
        Ok(Self {
            names: Names::new(reactor.waker()),
            reactor,
            protected,
            address,
            cluster: config.cluster,
            own: config.own,
            settings: config.settings,
            random: Random::new(config.seed),
            // Its keys are the system's random bytes: no two processes have the same.
            run: RandomState::new().build_hasher().finish(),
            ended: 0,
            connections: BTreeMap::new(),
            peers: BTreeMap::new(),
            clock: Clock::new(now, config.settings.heartbeat),
            timers_at: now,
            events: Vec::new(),
            event_bytes: 0,
            is_woken: false,
        })
    }

    /// Where it listens, with the port that the system chose for port 0.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The cluster of this server, which was not known when it began to listen. To be called before the first
    /// [`PeerLinks::poll`].
    pub fn set_cluster(&mut self, cluster: ClusterId) {
        self.cluster = cluster;
    }

    /// Another certificate of this server and its key, in PEM, for connections from now on. Links that stand go on. Does
    /// nothing without TLS.
    ///
    /// # Errors
    /// [`NetError::Address`] if it would not count at peers; the old one is kept.
    pub fn renew(&mut self, chain: &[u8], key: &[u8]) -> Result<(), NetError> {
        self.protected.renew(chain, key, self.own)
    }

    /// Makes [`PeerLinks::poll`] return, from any thread.
    pub fn waker(&self) -> Waker {
        self.reactor.waker()
    }

    /// When [`PeerLinks::poll`] is to be called again at the latest, for what only time brings. It keeps that itself
    /// while it waits.
    pub fn deadline(&self) -> Instant {
        self.timers_at
    }

    /// Whether an address may be one of a peer, by its form.
    ///
    /// # Errors
    /// [`NetError::Address`] that says what is wrong with it.
    pub fn check_address(&self, address: &str) -> Result<(), NetError> {
        self.protected.host_and_port(address).map(drop)
    }

    /// Whom to dial, and at which addresses, in place of those before. Links that stand go on, also with peers that are
    /// not among them any more ([`PeerLinks::end`] ends one), and peers that are not among them may dial this server.
    pub fn set_peers(&mut self, peers: &BTreeMap<PeerId, Vec<String>>) {
        let now = Instant::now();
        for id in peers.keys().filter(|id| **id != self.own) {
            self.peers.entry(*id).or_insert_with(|| Peer::new(now));
        }
        let mut given_up = Vec::new();
        for (id, peer) in &mut self.peers {
            let addresses = peers.get(id).map_or(&[][..], Vec::as_slice);
            given_up.extend(peer.set_addresses(addresses, now));
        }
        self.peers
            .retain(|_, peer| peer.is_listed() || peer.standing.is_some());
        for link in given_up {
            self.remove(link);
        }
        self.timers_at = now;
    }

    /// How it stands with each peer that is listed or has a link.
    pub fn status(&self) -> Vec<PeerStatus> {
        let now = Instant::now();
        let status = |(id, peer): (&PeerId, &Peer)| PeerStatus {
            peer: *id,
            addresses: peer.addresses().to_vec(),
            state: self.state(peer, now),
            failures: peer.failures,
            why: peer.why.clone(),
        };
        self.peers.iter().map(status).collect()
    }

    fn state(&self, peer: &Peer, now: Instant) -> PeerState {
        if let Some(standing) = peer.standing {
            let connection = self.connections.get(&standing.link);
            return PeerState::Up {
                address: connection.map_or_else(String::new, |one| one.address.clone()),
                queued_bytes: self.waiting_bytes(standing.link),
            };
        }
        match &peer.dial {
            Dial::Waiting { until } => PeerState::Waiting {
                after: until.saturating_duration_since(now),
            },
            Dial::Naming { address }
            | Dial::Opening { address, .. }
            | Dial::Greeted { address, .. } => PeerState::Dialling {
                address: address.clone(),
            },
        }
    }

    /// Queues a message for a peer. It is sent by [`PeerLinks::poll`], from where it lies.
    ///
    /// # Errors
    /// [`NotSent`]; the link goes on.
    pub fn send(&mut self, to: PeerId, message: Bytes) -> Result<(), NotSent> {
        let standing = self.peers.get(&to).and_then(|peer| peer.standing);
        let link = standing.ok_or(NotSent::Down(to))?.link;
        let (bytes, message_bytes_max) = (message.len(), self.settings.message_bytes_max);
        if bytes > message_bytes_max {
            return Err(NotSent::TooLong {
                bytes,
                message_bytes_max,
            });
        }
        let waiting = self.waiting_bytes(link);
        let connection = self.connections.get_mut(&link).ok_or(NotSent::Down(to))?;
        let (queued_bytes, queue_bytes_max) = (
            connection.cost_bytes(waiting),
            self.settings.queue_bytes_max,
        );
        if queued_bytes + bytes as u64 + MESSAGE_COST_BYTES > queue_bytes_max {
            return Err(NotSent::Full {
                queued_bytes,
                queue_bytes_max,
            });
        }
        self.say(link, Kind::Message, message);
        Ok(())
    }

    /// Ends the link with a peer, and tells it why. Both go on dialling each other where they are listed.
    pub fn end(&mut self, peer: PeerId, why: &str) {
        let standing = self.peers.get(&peer).and_then(|peer| peer.standing);
        if let Some(standing) = standing {
            self.leave(standing.link, Goodbye::of(Reason::Asked, why));
        }
    }

    /// Ends all, and tells peers why, as far as that goes without waiting.
    pub fn close(mut self, why: &str) {
        let goodbye = Goodbye::of(Reason::Asked, why);
        let links: Vec<LinkId> = self.connections.keys().copied().collect();
        for link in links {
            self.say(link, Kind::Goodbye, goodbye.to_bytes().into());
            self.remove(link);
        }
    }

    /// Sends, receives, dials and takes links for gone, until there are events, [`Waker::wake`] was called, or `timeout` is
    /// over. Returns when it has 1,024 events, or messages of 4 MiB.
    ///
    /// # Errors
    /// [`NetError::System`] if the system cannot wait.
    pub fn poll(&mut self, timeout: Option<Duration>) -> Result<Vec<PeerEvent>, NetError> {
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut has_waited = false;
        loop {
            self.clock.advance(Instant::now());
            self.step();
            // What has come was read before anything is taken for silent.
            let now = Instant::now();
            if now >= self.timers_at {
                self.look_at_timers(now);
            }
            let is_woken = std::mem::take(&mut self.is_woken);
            if is_woken || !self.events.is_empty() {
                self.event_bytes = 0;
                return Ok(std::mem::take(&mut self.events));
            }
            let left = until.map(|until| until.saturating_duration_since(now));
            if has_waited && left == Some(Duration::ZERO) {
                return Ok(Vec::new());
            }
            let timer = self.timers_at.saturating_duration_since(now);
            self.reactor
                .wait(Some(left.map_or(timer, |left| left.min(timer))))?;
            has_waited = true;
        }
    }

    /// Takes what the sockets have.
    fn step(&mut self) {
        for _ in 0..STEPS_MAX {
            if self.events.len() >= EVENTS_MAX || self.event_bytes >= EVENT_BYTES_MAX {
                return;
            }
            let Some(event) = self.reactor.next() else {
                return;
            };
            match event {
                ReactorEvent::Accepted { link, .. } => self.accepted(link),
                ReactorEvent::AcceptFailed { error, .. } => {
                    self.events.push(PeerEvent::AcceptFailed(error));
                }
                ReactorEvent::Woken => {
                    self.is_woken = true;
                    self.take_names();
                }
                ReactorEvent::Link { link, event } => match event {
                    LinkEvent::Up => self.opened(link),
                    LinkEvent::Message(received) => self.received(link, &received.payload),
                    LinkEvent::Down(error) => {
                        self.note_end(link, Ended::Lost(error.to_string()));
                        self.remove(link);
                    }
                    LinkEvent::ReadDone { .. } | LinkEvent::WriteDone { .. } => {
                        unreachable!("links of bytes have no regions")
                    }
                },
            }
        }
    }

    fn waiting_bytes(&self, link: LinkId) -> u64 {
        self.reactor
            .peek(link)
            .map_or(0, |link| link.queued_bytes())
    }

    fn shorten_timer(&mut self, at: Instant) {
        self.timers_at = self.timers_at.min(at);
    }

    /// Drives a connection that begins.
    fn begin(&mut self, link: LinkId, side: Side, address: String) {
        let connection = Connection::new(side, address, self.clock.elapsed());
        self.connections.insert(link, connection);
        self.shorten_timer(Instant::now() + self.settings.heartbeat);
    }

    fn accepted(&mut self, link: LinkId) {
        let address = self
            .reactor
            .peek(link)
            .map(|link| link.peer().address.clone());
        self.begin(link, Side::Accepted, address.unwrap_or_default());
        self.limit_unfinished();
    }

    /// Ends the oldest of too many connections that are no links.
    fn limit_unfinished(&mut self) {
        let is_unfinished = |connection: &Connection| match connection.phase() {
            Phase::Leaving => true,
            Phase::Opening | Phase::Greeting => connection.side == Side::Accepted,
            Phase::Standing(_) => false,
        };
        let unfinished = self
            .connections
            .iter()
            .filter(|(_, one)| is_unfinished(one));
        let unfinished: Vec<_> = unfinished.map(|(link, one)| (one.since(), *link)).collect();
        if unfinished.len() > self.settings.unfinished_max
            && let Some((_, oldest)) = unfinished.into_iter().min()
        {
            let most = self.settings.unfinished_max;
            let text =
                format!("more than {most} connections are not links yet, and this is the oldest");
            self.cut(oldest, Goodbye::of(Reason::TooMany, text));
        }
    }

    /// TCP and TLS are done: the other end is asked for its certificate, and the dialling end says hello.
    fn opened(&mut self, link: LinkId) {
        let shown = self.shown(link);
        let now = self.clock.elapsed();
        let Some(connection) = self.connections.get_mut(&link) else {
            return;
        };
        connection.enter(Phase::Greeting, now);
        let side = connection.side;
        if let Some(goodbye) = self.protected.refuse(&shown) {
            return self.leave(link, goodbye);
        }
        if let Side::Dialled(peer) = side {
            self.say_hello(link, peer);
            if let Some(peer) = self.peers.get_mut(&peer) {
                peer.greeted();
            }
        }
    }

    /// The certificates that the other end of a connection has shown.
    fn shown(&self, link: LinkId) -> Vec<Bytes> {
        let link = self.reactor.peek(link);
        link.map_or_else(Vec::new, |link| link.peer().certificates.clone())
    }

    fn say_hello(&mut self, link: LinkId, to: PeerId) {
        let hello = Hello {
            cluster: self.cluster,
            from: self.own,
            to,
            greeting: Greeting {
                run: self.run,
                ended: self.ended,
            },
        };
        self.say(link, Kind::Hello, hello.to_bytes().into());
    }

    /// Queues a frame.
    fn say(&mut self, link: LinkId, kind: Kind, body: Bytes) {
        let header = frame::header(kind, &body);
        let bytes = (header.len() + body.len()) as u64;
        if let Some(connection) = self.connections.get_mut(&link)
            && let Some(link) = self.reactor.link(link)
        {
            link.send(Message::bytes(vec![header, body]));
            connection.queued(bytes, self.clock.elapsed());
        }
    }

    /// Bytes have come.
    fn received(&mut self, link: LinkId, mut bytes: &[u8]) {
        let mut frames = 0;
        while let Some(connection) = self.connections.get_mut(&link) {
            let bytes_max = match connection.phase() {
                Phase::Standing(_) => self.settings.message_bytes_max,
                Phase::Opening | Phase::Greeting => GREETING_BYTES_MAX,
                // It is refused; nothing that it says counts any more.
                Phase::Leaving => return,
            };
            match connection.decoder.push(&mut bytes, bytes_max) {
                Ok(Some(frame)) => {
                    frames += 1;
                    self.take_frame(link, frame);
                }
                Ok(None) => {
                    connection.heard(frames, self.clock.elapsed());
                    return;
                }
                Err(error) => {
                    let goodbye = Goodbye::of(Reason::Damaged, frame::explain(&error));
                    return self.leave(link, goodbye);
                }
            }
        }
    }

    fn take_frame(&mut self, link: LinkId, frame: Frame) {
        let Some(connection) = self.connections.get(&link) else {
            return;
        };
        match (connection.phase(), frame.kind) {
            (Phase::Standing(peer), Kind::Message) => {
                self.event_bytes += frame.body.len();
                self.events.push(PeerEvent::Message(peer, frame.body));
            }
            (Phase::Standing(_), Kind::Heartbeat) => {}
            (Phase::Greeting, Kind::Hello) => self.take_hello(link, &frame.body),
            (Phase::Standing(_) | Phase::Greeting, Kind::Goodbye) => {
                match Goodbye::from_bytes(&frame.body) {
                    Ok(goodbye) => {
                        self.note_end(link, Ended::There(goodbye));
                        self.remove(link);
                    }
                    Err(error) => {
                        self.leave(link, Goodbye::of(Reason::Damaged, error.to_string()));
                    }
                }
            }
            (phase, kind) => {
                let text = format!("a frame {kind:?} must not come now ({phase:?})");
                self.leave(link, Goodbye::of(Reason::Damaged, text));
            }
        }
    }

    fn take_hello(&mut self, link: LinkId, body: &[u8]) {
        let hello = match Hello::from_bytes(body) {
            Ok(hello) => hello,
            Err(error) => {
                let reason = match error.is_of_another_version() {
                    true => Reason::Version,
                    false => Reason::Damaged,
                };
                return self.leave(link, Goodbye::of(reason, error.to_string()));
            }
        };
        if let Some(goodbye) = hello.refuse(self.cluster, self.own) {
            return self.leave(link, goodbye);
        }
        if let Some(goodbye) = self.protected.refuse_as(&self.shown(link), hello.from) {
            return self.leave(link, goodbye);
        }
        match self
            .connections
            .get(&link)
            .map(|connection| connection.side)
        {
            Some(Side::Dialled(peer)) if peer != hello.from => {
                let text = format!("{} answers where {peer} was dialled", hello.from);
                self.leave(link, Goodbye::of(Reason::Peer, text));
            }
            Some(Side::Dialled(_)) => self.stand(link, &hello),
            Some(Side::Accepted) => self.take_arrival(link, &hello),
            None => {}
        }
    }

    /// A peer that may have a link has made a connection.
    fn take_arrival(&mut self, link: LinkId, hello: &Hello) {
        let unlisted = self.peers.values().filter(|peer| !peer.is_listed()).count();
        let arrival = match self.peers.get(&hello.from) {
            Some(peer) => peer.arrival(self.own < hello.from, hello.greeting),
            None if unlisted >= self.settings.unlisted_max => Arrival::Refused(Reason::TooMany),
            None => Arrival::Taken {
                replaces: None,
                given_up: None,
            },
        };
        match arrival {
            Arrival::Taken { replaces, given_up } => {
                if let Some(old) = replaces {
                    let text = format!("{} has made a new connection", hello.from);
                    self.cut(old, Goodbye::of(Reason::Replaced, text));
                }
                if let Some(dialled) = given_up {
                    let text = format!("{} has dialled too, and that connection stays", hello.from);
                    let goodbye = Goodbye::of(Reason::Crossed, text);
                    self.say(dialled, Kind::Goodbye, goodbye.to_bytes().into());
                    self.remove(dialled);
                }
                self.say_hello(link, hello.from);
                self.stand(link, hello);
            }
            Arrival::Refused(reason) => {
                let text = match reason {
                    Reason::Crossed => "both ends have dialled, and the other connection stays",
                    Reason::TooMany => "there are too many links with servers that are not listed",
                    _ => "a link between these two stands already",
                };
                self.leave(link, Goodbye::of(reason, text));
            }
        }
    }

    /// A connection is the link with its peer from here on.
    fn stand(&mut self, link: LinkId, hello: &Hello) {
        let now = Instant::now();
        let peer = self.peers.entry(hello.from);
        peer.or_insert_with(|| Peer::new(now))
            .stood(link, hello.greeting, now);
        if let Some(connection) = self.connections.get_mut(&link) {
            connection.enter(Phase::Standing(hello.from), self.clock.elapsed());
        }
        self.events.push(PeerEvent::Up(hello.from));
    }

    /// Reports the end of a connection, and has its peer dialled again.
    fn note_end(&mut self, link: LinkId, ended: Ended) {
        let Some(connection) = self.connections.get(&link) else {
            return;
        };
        let (now, settings, random) = (Instant::now(), &self.settings, &mut self.random);
        let why = format!("{}: {ended}", connection.address);
        match (connection.phase(), connection.side) {
            (Phase::Leaving, _) => {}
            (Phase::Standing(id), _) => {
                self.ended += 1;
                if let Some(peer) = self.peers.get_mut(&id) {
                    peer.ended(why, now, settings, random);
                    if !peer.is_listed() {
                        self.peers.remove(&id);
                    }
                }
                self.events.push(PeerEvent::Down(id, ended));
            }
            (Phase::Opening | Phase::Greeting, Side::Dialled(id)) => {
                if let Some(peer) = self.peers.get_mut(&id) {
                    peer.failed(why, now, settings, random);
                }
            }
            (Phase::Opening | Phase::Greeting, Side::Accepted) => {
                let address = connection.address.clone();
                self.events.push(PeerEvent::Refused { address, ended });
            }
        }
        // An attempt may be due before the timers would be looked at.
        self.shorten_timer(now);
    }

    /// Ends a connection, says why, and gives the other end the time to read that. A socket that is closed
    /// while bytes come to it takes back what it has sent.
    fn leave(&mut self, link: LinkId, goodbye: Goodbye) {
        self.say(link, Kind::Goodbye, goodbye.to_bytes().into());
        self.note_end(link, Ended::Here(goodbye));
        if let Some(connection) = self.connections.get_mut(&link) {
            connection.enter(Phase::Leaving, self.clock.elapsed());
        }
        self.limit_unfinished();
    }

    /// Ends a connection at once, and says why as far as that goes.
    fn cut(&mut self, link: LinkId, goodbye: Goodbye) {
        self.say(link, Kind::Goodbye, goodbye.to_bytes().into());
        self.note_end(link, Ended::Here(goodbye));
        self.remove(link);
    }

    fn remove(&mut self, link: LinkId) {
        self.connections.remove(&link);
        if let Some(mut link) = self.reactor.remove_link(link) {
            link.close("the peer link has ended");
        }
    }

    fn look_at_timers(&mut self, now: Instant) {
        self.timers_at = now + IDLE;
        let links: Vec<LinkId> = self.connections.keys().copied().collect();
        for link in links {
            self.check(link, now);
        }
        let due = |(id, peer): (&PeerId, &mut Peer)| peer.dial(now).map(|address| (*id, address));
        let due: Vec<_> = self.peers.iter_mut().filter_map(due).collect();
        for (peer, address) in due {
            self.dial(peer, address);
        }
        let dials = self.peers.values().filter_map(Peer::dials_at).min();
        if let Some(next) = dials {
            self.shorten_timer(next);
        }
    }

    fn check(&mut self, link: LinkId, now: Instant) {
        let waiting = self.waiting_bytes(link);
        let Some(connection) = self.connections.get_mut(&link) else {
            return;
        };
        let heartbeat = self.settings.heartbeat;
        match connection.check(self.clock.elapsed(), waiting, &self.settings) {
            // The clock counts no more than a heartbeat for one step.
            Check::Well(again) => self.shorten_timer(now + again.min(heartbeat)),
            Check::Heartbeat => {
                self.say(link, Kind::Heartbeat, Bytes::new());
                self.shorten_timer(now + heartbeat);
            }
            Check::Over(goodbye) => self.cut(link, goodbye),
        }
    }

    /// Begins an attempt, for which the peer waits now.
    fn dial(&mut self, peer: PeerId, address: String) {
        let host_and_port = match self.protected.host_and_port(&address) {
            Ok(host_and_port) => host_and_port,
            Err(error) => return self.dial_failed(peer, error.to_string()),
        };
        if let Ok(to) = host_and_port.parse() {
            return self.connect(peer, address, to);
        }
        if let Err(why) = self.names.ask(peer, host_and_port) {
            self.dial_failed(peer, format!("{address}: {why}"));
        }
    }

    /// Names were looked up, for attempts that may have been given up meanwhile.
    fn take_names(&mut self) {
        while let Some(named) = self.names.found() {
            let dial = self.peers.get(&named.peer).map(|peer| &peer.dial);
            let Some(Dial::Naming { address }) = dial else {
                continue;
            };
            let address = address.clone();
            match (self.protected.host_and_port(&address), named.found) {
                (Ok(asked), Ok(to)) if asked == named.host_and_port => {
                    self.connect(named.peer, address, to);
                }
                (Ok(asked), Err(why)) if asked == named.host_and_port => {
                    self.dial_failed(named.peer, format!("{address}: {why}"));
                }
                _ => self.dial_failed(named.peer, format!("{address}: another name was looked up")),
            }
        }
    }

    fn connect(&mut self, peer: PeerId, address: String, to: SocketAddr) {
        let link = self.protected.connect(to);
        match link.and_then(|link| self.reactor.add_link(link)) {
            Ok(link) => {
                self.begin(link, Side::Dialled(peer), address.clone());
                if let Some(peer) = self.peers.get_mut(&peer) {
                    peer.opening(address, link);
                }
            }
            Err(error) => self.dial_failed(peer, format!("{address}: {error}")),
        }
    }

    fn dial_failed(&mut self, peer: PeerId, why: String) {
        let now = Instant::now();
        if let Some(peer) = self.peers.get_mut(&peer) {
            peer.failed(why, now, &self.settings, &mut self.random);
        }
        self.shorten_timer(now);
    }
}

impl fmt::Debug for PeerLinks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerLinks")
            .field("address", &self.address)
            .field("own", &self.own)
            .field("connections", &self.connections.len())
            .finish_non_exhaustive()
    }
}
