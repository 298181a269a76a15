//! Addresses: `zmq-pull://HOST:PORT`, `zmq-push://…`, `sp-pull://…`, `sp-push://…`.

use std::fmt;
use std::str::FromStr;

/// What is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// ZeroMQ's, ZMTP 3.
    Zmtp,
    /// That of nanomsg and nng, SP.
    Sp,
}

/// What a socket of ours is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// It takes messages.
    Pull,
    /// It sends them.
    Push,
}

/// An address of either.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// What is spoken there.
    pub protocol: Protocol,
    /// What the socket here is.
    pub side: Side,
    /// `HOST:PORT`.
    pub authority: String,
}

impl Endpoint {
    const SCHEMES: [(&'static str, Protocol, Side); 4] = [
        ("zmq-pull", Protocol::Zmtp, Side::Pull),
        ("zmq-push", Protocol::Zmtp, Side::Push),
        ("sp-pull", Protocol::Sp, Side::Pull),
        ("sp-push", Protocol::Sp, Side::Push),
    ];
}

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = || {
            format!(
                "{text:?} is no address here: it is zmq-pull://HOST:PORT, zmq-push://, sp-pull:// \
                 or sp-push://"
            )
        };
        let (scheme, rest) = text.split_once("://").ok_or_else(refuse)?;
        let known = Self::SCHEMES.iter().find(|(name, ..)| *name == scheme);
        let (_, protocol, side) = known.ok_or_else(refuse)?;
        let (host, port) = rest.rsplit_once(':').ok_or_else(refuse)?;
        if host.is_empty() || port.parse::<u16>().is_err() {
            return Err(refuse());
        }
        Ok(Self {
            protocol: *protocol,
            side: *side,
            authority: rest.to_owned(),
        })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = Self::SCHEMES.iter();
        let mut known =
            known.filter(|(_, protocol, side)| (*protocol, *side) == (self.protocol, self.side));
        let scheme = known.next().map_or("", |(name, ..)| name);
        write!(f, "{scheme}://{}", self.authority)
    }
}
