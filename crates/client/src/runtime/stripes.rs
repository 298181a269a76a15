//! Opens a further connection of a session, and has it join the first one.
//!
//! ```text
//!  connect ──Up, the same certificate──► Hello with the session's key ──Welcome of the same server──► joins
//!     └── whatever else comes: closed, and the core is told why
//! ```

use crate::core::StripeDial;
use net::{LinkEvent, LinkId, Message, Reactor, StripesFrom, Transports};
use wire::ErrorReply;
use wire::codec::Codec;
use wire::frame::FrameKind;
use wire::message::{FEATURE_STRIPES, Welcome};

/// The further connection that is being opened: one at a time.
#[derive(Default)]
pub(super) struct StripeDialer {
    opening: Option<Opening>,
}

struct Opening {
    link: LinkId,
    /// The connection that it is to join.
    main: LinkId,
    attempt: u64,
    dial: StripeDial,
}

/// What came of one, for the core.
pub(super) struct Opened {
    pub attempt: u64,
    pub result: Result<(), String>,
}

impl StripeDialer {
    /// Whether this link is the one that is being opened.
    pub fn is(&self, link: LinkId) -> bool {
        self.opening.as_ref().is_some_and(|one| one.link == link)
    }

    /// Begins to open one for `main`.
    pub fn open(
        &mut self,
        (attempt, main): (u64, LinkId),
        dial: StripeDial,
        transports: &Transports,
        reactor: &mut Reactor,
    ) -> Option<Opened> {
        self.give_up(reactor);
        let link = transports.connect_as(&dial.address, dial.certificate.as_deref());
        match link.and_then(|link| reactor.add_link(link)) {
            Ok(link) => {
                self.opening = Some(Opening {
                    link,
                    main,
                    attempt,
                    dial,
                });
                None
            }
            Err(reason) => Some(Opened {
                attempt,
                result: Err(reason.to_string()),
            }),
        }
    }

    /// Something came of it.
    pub fn take(&mut self, event: LinkEvent, reactor: &mut Reactor) -> Option<Opened> {
        let opening = self.opening.as_ref()?;
        let result = match event {
            LinkEvent::Up => match opening.greet(reactor) {
                Ok(()) => return None,
                Err(reason) => Err(reason),
            },
            LinkEvent::Message(message) => match message.kind {
                FrameKind::Welcome => opening.welcomed(&message.head),
                FrameKind::ErrorReply => Err(ErrorReply::from_bytes("error", &message.head)
                    .map_or_else(|error| error.to_string(), |error| error.to_string())),
                other => Err(format!("the server answers with a {other:?} frame")),
            },
            LinkEvent::Down(reason) => Err(reason.to_string()),
            LinkEvent::ReadDone { .. } | LinkEvent::WriteDone { .. } => return None,
        };
        let attempt = opening.attempt;
        let result = result.and_then(|()| {
            let (main, link) = (opening.main, opening.link);
            match reactor.join(main, link, StripesFrom::Received) {
                true => Ok(()),
                false => Err("the connection that it was to join is gone".to_owned()),
            }
        });
        match result {
            Ok(()) => self.opening = None,
            Err(_) => self.give_up(reactor),
        }
        Some(Opened { attempt, result })
    }

    /// Closes the one that is being opened.
    pub fn give_up(&mut self, reactor: &mut Reactor) {
        if let Some(opening) = self.opening.take() {
            reactor.remove_link(opening.link);
        }
    }
}

impl Opening {
    /// The connection stands: shows the key, if it is to the server of the first one.
    fn greet(&self, reactor: &mut Reactor) -> Result<(), String> {
        let shown = |link| {
            let peer = reactor.peek(link).map(net::Link::peer);
            peer.and_then(|peer| peer.certificates.first().cloned())
        };
        if shown(self.main) != shown(self.link) {
            let why = "the server shows another certificate than on the first connection";
            return Err(why.to_owned());
        }
        let hello = Message::control(FrameKind::Hello, 0, self.dial.hello.clone());
        if let Some(link) = reactor.link(self.link) {
            link.send(hello);
        }
        Ok(())
    }

    /// The server says that it has joined.
    fn welcomed(&self, head: &[u8]) -> Result<(), String> {
        let welcome = Welcome::from_bytes("welcome", head).map_err(|error| error.to_string())?;
        if welcome.instance != self.dial.instance || welcome.features & FEATURE_STRIPES == 0 {
            return Err("another server answers there than on the first connection".to_owned());
        }
        Ok(())
    }
}
