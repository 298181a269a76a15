//! The other end of a connection, which says whatever a test wants.

use super::super::frame::{Decoder, Frame, Kind, header};
use super::super::hello::{Goodbye, Greeting, Hello};
use super::certificates::Holder;
use super::{CLUSTER, Node, PeerId, TURN, WATCHDOG};
use net::{
    Carries, LinkEvent, LinkId, LinkOptions, Message, Reactor, ReactorEvent, Tcp, Tls, Transport,
    Trust,
};
use std::time::{Duration, Instant};

pub(super) struct Stranger {
    reactor: Reactor,
    link: LinkId,
    decoder: Decoder,
    pub(super) is_up: bool,
    pub(super) frames: Vec<Frame>,
    pub(super) is_down: bool,
}

impl Stranger {
    /// Connects to a node, by the node's own scheme.
    pub(super) fn to(node: &Node, certificate: Option<&Holder>) -> Self {
        Self::at(node.links.address(), certificate)
    }

    pub(super) fn at(address: &str, certificate: Option<&Holder>) -> Self {
        let options = LinkOptions {
            carries: Carries::Bytes,
            ..LinkOptions::default()
        };
        let transport: Box<dyn Transport> = match address.starts_with("tls") {
            true => Box::new(Tls::new(options).trusting(Trust::ByOtherProof)),
            false => Box::new(Tcp::new(options)),
        };
        let pem = certificate.map(|one| format!("{}{}", one.chain, one.key));
        let pem = pem.as_ref().map(|pem| pem.as_bytes());
        let mut reactor = Reactor::new().unwrap();
        let link = transport.connect_as(address, pem).unwrap();
        let link = reactor.add_link(link).unwrap();
        Self {
            reactor,
            link,
            decoder: Decoder::default(),
            is_up: false,
            frames: Vec::new(),
            is_down: false,
        }
    }

    pub(super) fn poll(&mut self) {
        while let Some(event) = self.reactor.next() {
            match event {
                ReactorEvent::Link { event, .. } => self.take(event),
                other => panic!("{other:?}"),
            }
        }
        self.reactor.wait(Some(Duration::ZERO)).unwrap();
    }

    fn take(&mut self, event: LinkEvent) {
        match event {
            LinkEvent::Up => self.is_up = true,
            LinkEvent::Message(received) => {
                let mut bytes = &received.payload[..];
                while !bytes.is_empty() {
                    let frame = self.decoder.push(&mut bytes, 1 << 20);
                    self.frames.extend(frame.unwrap());
                }
            }
            LinkEvent::Down(_) => self.is_down = true,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn say(&mut self, bytes: Vec<u8>) {
        let link = self.reactor.link(self.link).unwrap();
        link.send(Message::bytes(vec![bytes.into()]));
        self.poll();
    }

    /// Says it, and leaves unread what has come.
    pub(super) fn say_unread(&mut self, bytes: &[u8]) {
        self.reactor.link(self.link).unwrap().hold(true);
        self.say(bytes.to_vec());
    }

    pub(super) fn say_frame(&mut self, kind: Kind, body: &[u8]) {
        self.say([&header(kind, body)[..], body].concat());
    }

    /// Says the hello of this peer, and is linked.
    pub(super) fn greets(&mut self, node: &mut Node, own: PeerId) {
        let hello = Hello {
            cluster: CLUSTER,
            from: own,
            to: node.id,
            greeting: Greeting { run: 1, ended: 0 },
        };
        self.until(node, "it is connected", |stranger, _| stranger.is_up);
        self.say_frame(Kind::Hello, &hello.to_bytes());
        self.until(node, "its hello is answered", |stranger, node| {
            !stranger.frames.is_empty() && node.is_up(own)
        });
    }

    /// What the node has said last, if it has said goodbye.
    pub(super) fn goodbye(&self) -> Option<Goodbye> {
        let frame = self.frames.last().filter(|one| one.kind == Kind::Goodbye)?;
        Some(Goodbye::from_bytes(&frame.body).unwrap())
    }

    pub(super) fn until(
        &mut self,
        node: &mut Node,
        what: &str,
        mut done: impl FnMut(&Self, &Node) -> bool,
    ) {
        let began = Instant::now();
        while !done(self, node) {
            node.poll(TURN);
            self.poll();
            let seen = (&node.events, &self.frames);
            assert!(
                began.elapsed() < WATCHDOG,
                "waiting until {what}: {seen:#?}"
            );
        }
    }

    /// Polls both until the node has said why it ends the connection.
    pub(super) fn hears_why(&mut self, node: &mut Node) -> Goodbye {
        self.until(node, "the node says goodbye", |stranger, _| {
            stranger.goodbye().is_some()
        });
        self.goodbye().unwrap()
    }
}
