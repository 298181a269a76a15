//! A connection for a greeting and what the server says to it: no driver, and nothing that comes again.

use crate::failure::{Code, Failure};
use bytes::Bytes;
use net::{LinkEvent, LinkId, Message, Proxies, Reactor, ReactorEvent, Received, Tls, Trust};
use net::{NetError, Transport};
use std::time::{Duration, Instant};
use wire::codec::Codec;
use wire::frame::FrameKind;
use wire::message::{FEATURES, Hello, PROTOCOL_VERSION, Role};
use wire::{ErrorReply, SessionId};

/// How long the way there may take, and the answer.
const TIMEOUT: Duration = Duration::from_secs(15);

/// A connection to a server that has been verified, or shown a certificate that is to be.
pub struct Greeting {
    reactor: Reactor,
    link: LinkId,
    address: String,
    deadline: Instant,
}

impl Greeting {
    /// Connects, trusting so, and showing this where the server asks.
    pub fn connect(
        address: &str,
        trust: Option<Trust>,
        certificate: Option<&[u8]>,
    ) -> Result<Self, Failure> {
        let system = |error: NetError| Failure::new(Code::Failure, address, error);
        let tls = Tls::default().through(Proxies::from_environment());
        let tls = match trust {
            Some(trust) => tls.trusting(trust),
            None => tls,
        };
        let link = tls.connect_as(address, certificate);
        let link = link.map_err(|error| Failure::usage(address, error))?;
        let mut reactor = Reactor::new().map_err(system)?;
        let link = reactor.add_link(link).map_err(system)?;
        let mut greeting = Self {
            reactor,
            link,
            address: address.to_owned(),
            deadline: Instant::now() + TIMEOUT,
        };
        match greeting.next()? {
            LinkEvent::Up => Ok(greeting),
            _ => Err(greeting.failed(Code::Failure, "it says something before it stands")),
        }
    }

    /// The certificates that the server has shown, its own first.
    pub fn server(&mut self) -> Vec<Bytes> {
        let link = self.reactor.link(self.link);
        link.map(|link| link.peer().certificates.clone())
            .unwrap_or_default()
    }

    /// Says Hello.
    pub fn hello(&mut self, mechanism: &str, proof: Vec<u8>) {
        let hello = Hello {
            version_min: PROTOCOL_VERSION,
            version_max: PROTOCOL_VERSION,
            features_required: 0,
            features_optional: FEATURES,
            namespace: String::new(),
            mechanism: mechanism.to_owned(),
            proof: proof.into(),
            session: SessionId(0),
            role: Role::Control,
            directory: Default::default(),
            trace: 0,
            client_name: format!("thalweg pair {}", std::process::id()),
            stripes: Default::default(),
        };
        self.say(FrameKind::Hello, hello.to_bytes());
    }

    /// Says something.
    pub fn say(&mut self, kind: FrameKind, head: Vec<u8>) {
        if let Some(link) = self.reactor.link(self.link) {
            link.send(Message::control(kind, 0, head));
        }
    }

    /// The next of what the server says that is of this kind. An error that it says is one.
    pub fn hear(&mut self, kind: FrameKind) -> Result<Received, Failure> {
        loop {
            let LinkEvent::Message(message) = self.next()? else {
                continue;
            };
            match message.kind {
                found if found == kind => return Ok(message),
                FrameKind::ErrorReply => {
                    let error = ErrorReply::from_bytes("error", &message.head);
                    let why = match error {
                        Ok(error) => error.to_string(),
                        Err(error) => error.to_string(),
                    };
                    return Err(self.failed(Code::Failure, &why));
                }
                _ => {}
            }
        }
    }

    /// Why it does not go on.
    pub fn failed(&self, code: Code, why: &str) -> Failure {
        Failure::new(code, &self.address, why)
    }

    fn next(&mut self) -> Result<LinkEvent, Failure> {
        loop {
            match self.reactor.next() {
                Some(ReactorEvent::Link { event, .. }) => match event {
                    LinkEvent::Down(reason) => {
                        return Err(self.failed(Code::NoServer, &reason.to_string()));
                    }
                    event => return Ok(event),
                },
                Some(_) => {}
                None => {
                    let left = self.deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Err(self.failed(Code::Timeout, "it does not answer in time"));
                    }
                    let waited = self.reactor.wait(Some(left));
                    waited.map_err(|error| self.failed(Code::Failure, &error.to_string()))?;
                }
            }
        }
    }
}
