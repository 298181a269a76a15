//! What users of links give and get.

use super::hello::Goodbye;
use super::settings::{LinkSettings, PeerId};
use crate::quorum::ClusterId;
use bytes::Bytes;
use net::NetError;
use std::fmt;
use std::time::Duration;

/// How links are protected, and who may have one.
#[derive(Clone)]
pub enum Security {
    /// TLS 1.3, where both ends show a certificate of this authority. All of it is PEM.
    ///
    /// The certificates are to be good for clients (no extended key usage, or one with
    /// `clientAuth`), as each server is one, and the authority is to sign for this cluster alone. Which server
    /// the holder is one of the names for hosts in them says: [`certificate_name`](super::certificate_name).
    Tls {
        /// The certificate of the cluster's own authority; several while one replaces another.
        authority: Vec<u8>,
        /// This server's certificate, and those between it and the authority.
        chain: Vec<u8>,
        /// The private key of this server's certificate.
        key: Vec<u8>,
    },
    /// No protection: everybody on this host may be a peer. For loopback addresses alone.
    Plain,
}

impl fmt::Debug for Security {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A private key goes into no log.
        f.write_str(match self {
            Self::Tls { .. } => "Tls",
            Self::Plain => "Plain",
        })
    }
}

/// What [`PeerLinks`](super::PeerLinks) needs to begin.
#[derive(Debug, Clone)]
pub struct LinksConfig {
    /// The cluster of this server. Servers of others are refused.
    pub cluster: ClusterId,
    /// This server.
    pub own: PeerId,
    /// Where to listen: `tls://HOST:PORT`, or `tcp://HOST:PORT` with [`Security::Plain`]. Port 0 lets the
    /// system choose.
    pub listen: String,
    /// Who may have a link.
    pub security: Security,
    /// The bounds.
    pub settings: LinkSettings,
    /// Waits between attempts follow from it.
    pub seed: u64,
}

/// What came of links.
#[derive(Debug)]
pub enum PeerEvent {
    /// A link with this peer stands: messages may be sent.
    Up(PeerId),
    /// The link is gone, and all that was on its way.
    Down(PeerId, Ended),
    /// The next message of this peer.
    Message(PeerId, Bytes),
    /// A connection that somebody made from this address has ended before it was a link.
    Refused {
        /// Where it came from.
        address: String,
        /// Why it ended.
        ended: Ended,
    },
    /// The system gave no connection to the listener, which tries again.
    AcceptFailed(NetError),
}

/// Why a connection has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// By the network, or by the other end without a reason.
    Lost(String),
    /// By this end, which has told the other one if that could be.
    Here(Goodbye),
    /// By the other end, which said why.
    There(Goodbye),
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(why) => f.write_str(why),
            Self::Here(goodbye) => write!(f, "{goodbye}"),
            Self::There(goodbye) => write!(f, "the other end says: {goodbye}"),
        }
    }
}

/// Why a message was not queued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotSent {
    /// No link with the peer stands.
    Down(PeerId),
    /// Too much waits for the peer already. It may take the message when it has taken some of that.
    Full {
        /// What waits.
        queued_bytes: u64,
        /// The bound.
        queue_bytes_max: u64,
    },
    /// No link carries a message of this length.
    TooLong {
        /// The message's.
        bytes: usize,
        /// The bound.
        message_bytes_max: usize,
    },
}

impl fmt::Display for NotSent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Down(peer) => write!(f, "no link with {peer} stands"),
            Self::Full {
                queued_bytes,
                queue_bytes_max,
            } => write!(
                f,
                "{queued_bytes} bytes wait for the peer, and {queue_bytes_max} may"
            ),
            Self::TooLong {
                bytes,
                message_bytes_max,
            } => write!(
                f,
                "a message of {bytes} bytes: links carry {message_bytes_max} at most"
            ),
        }
    }
}

impl std::error::Error for NotSent {}

/// How it stands with one peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerStatus {
    /// The peer.
    pub peer: PeerId,
    /// Where it is dialled; nowhere if it is not listed.
    pub addresses: Vec<String>,
    /// The link, or how far the way to one is.
    pub state: PeerState,
    /// Attempts that failed since a link stood.
    pub failures: u32,
    /// Why the last attempt failed or the last link ended; none while a link stands.
    pub why: Option<String>,
}

/// How far a link is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerState {
    /// It stands.
    Up {
        /// The other end.
        address: String,
        /// What waits to be sent.
        queued_bytes: u64,
    },
    /// This address is being dialled.
    Dialling {
        /// As it was given.
        address: String,
    },
    /// Nothing is done before this time has passed; until the peer itself dials, if it is not listed.
    Waiting {
        /// How long from now.
        after: Duration,
    },
}
