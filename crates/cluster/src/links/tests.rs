//! Links over real sockets of this host, all in the test's own thread.

mod certificates;
mod crossing;
mod endings;
mod messages;
mod refusals;
mod stranger;

use super::*;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A test that hangs fails after this.
const WATCHDOG: Duration = Duration::from_secs(120);
/// How long one of several is waited for before the next has its turn.
const TURN: Duration = Duration::from_millis(1);

const CLUSTER: ClusterId = ClusterId(0xc1);

/// Settings of tests: nothing is over by time alone.
fn patient() -> LinkSettings {
    LinkSettings {
        heartbeat: Duration::from_millis(20),
        silence_max: 4 * WATCHDOG,
        handshake_max: 4 * WATCHDOG,
        redial_min: Duration::from_millis(1),
        redial_max: Duration::from_millis(20),
        ..LinkSettings::default()
    }
}

/// The same, where silence is soon noticed: by many heartbeats, as a host with much to do gives both ends their turns unevenly.
fn hasty() -> LinkSettings {
    LinkSettings {
        silence_max: Duration::from_secs(1),
        ..patient()
    }
}

/// A server.
struct Node {
    links: PeerLinks,
    id: PeerId,
    events: Vec<PeerEvent>,
}

fn config(id: u128, security: &Security, settings: LinkSettings) -> LinksConfig {
    let scheme = match security {
        Security::Tls { .. } => "tls",
        Security::Plain => "tcp",
    };
    LinksConfig {
        cluster: CLUSTER,
        own: PeerId(id),
        listen: format!("{scheme}://127.0.0.1:0"),
        security: security.clone(),
        settings,
        seed: id as u64,
    }
}

impl Node {
    fn of(config: &LinksConfig) -> Self {
        Self {
            links: PeerLinks::open(config).unwrap(),
            id: config.own,
            events: Vec::new(),
        }
    }

    fn new(id: u128, security: &Security, settings: LinkSettings) -> Self {
        Self::of(&config(id, security, settings))
    }

    fn plain(id: u128) -> Self {
        Self::new(id, &Security::Plain, patient())
    }

    /// Has it dial these, and nobody else.
    fn dials(&mut self, peers: &[(PeerId, &str)]) {
        let peers = peers.iter();
        let peers: BTreeMap<_, _> = peers
            .map(|(id, address)| (*id, vec![address.to_string()]))
            .collect();
        self.links.set_peers(&peers);
    }

    fn dials_node(&mut self, other: &Node) {
        self.dials(&[(other.id, other.links.address())]);
    }

    fn poll(&mut self, timeout: Duration) {
        let events = self.links.poll(Some(timeout)).unwrap();
        self.events.extend(events);
    }

    fn is_up(&self, peer: PeerId) -> bool {
        let status = self.links.status();
        let mut of_it = status.iter().filter(|status| status.peer == peer);
        of_it.any(|status| matches!(status.state, PeerState::Up { .. }))
    }

    fn why(&self, peer: PeerId) -> String {
        let status = self.links.status().into_iter();
        let mut of_it = status.filter(|status| status.peer == peer);
        of_it.find_map(|status| status.why).unwrap_or_default()
    }

    fn count(&self, which: impl Fn(&PeerEvent) -> bool) -> usize {
        self.events.iter().filter(|event| which(event)).count()
    }

    fn ups(&self) -> usize {
        self.count(|event| matches!(event, PeerEvent::Up(_)))
    }

    fn downs(&self) -> Vec<&Ended> {
        let downs = self.events.iter().filter_map(|event| match event {
            PeerEvent::Down(_, ended) => Some(ended),
            _ => None,
        });
        downs.collect()
    }

    fn refused(&self) -> Vec<&Ended> {
        let refused = self.events.iter().filter_map(|event| match event {
            PeerEvent::Refused { ended, .. } => Some(ended),
            _ => None,
        });
        refused.collect()
    }

    fn messages(&self) -> Vec<&Bytes> {
        let messages = self.events.iter().filter_map(|event| match event {
            PeerEvent::Message(_, bytes) => Some(bytes),
            _ => None,
        });
        messages.collect()
    }
}

/// The reason that this end gave.
fn here(ended: &Ended) -> Option<Reason> {
    match ended {
        Ended::Here(goodbye) => Some(goodbye.reason),
        Ended::There(_) | Ended::Lost(_) => None,
    }
}

/// The reason that the other end gave.
fn there(ended: &Ended) -> Option<Reason> {
    match ended {
        Ended::There(goodbye) => Some(goodbye.reason),
        Ended::Here(_) | Ended::Lost(_) => None,
    }
}

/// Polls one after the other until `done`.
fn until(nodes: &mut [&mut Node], what: &str, mut done: impl FnMut(&mut [&mut Node]) -> bool) {
    let began = Instant::now();
    while !done(nodes) {
        for node in nodes.iter_mut() {
            node.poll(TURN);
        }
        let seen: Vec<_> = nodes
            .iter()
            .map(|node| (&node.events, node.links.status()))
            .collect();
        assert!(
            began.elapsed() < WATCHDOG,
            "waiting until {what}: {seen:#?}"
        );
    }
}

/// Two that are linked, which `one` has dialled.
fn linked(one: &mut Node, other: &mut Node) {
    one.dials_node(other);
    until(&mut [one, other], "the link stands", |nodes| {
        nodes[0].is_up(nodes[1].id) && nodes[1].is_up(nodes[0].id)
    });
}
