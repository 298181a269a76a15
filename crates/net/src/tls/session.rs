//! One side of TLS, without a socket: records in, bytes and records out.

use super::records::{Incoming, Outgoing};
use bytes::Bytes;
use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};
use rustls::{ClientConfig, Error, ServerConfig};
use std::sync::Arc;

/// The name of our protocol in the handshake.
pub(super) const ALPN: &[u8] = b"thalweg/1";
/// The most bytes that one record carries.
pub(super) const RECORD_PAYLOAD_BYTES: usize = 16 << 10;
/// What a record is longer than what it carries: header, kind, tag.
pub(super) const RECORD_OVERHEAD: usize = 5 + 1 + 16;

/// One side of a connection.
pub(super) enum Session {
    Client(UnbufferedClientConnection),
    Server(UnbufferedServerConnection),
}

/// What is to be done once bytes can be sent.
#[derive(Debug, Clone, Copy)]
pub(super) enum Act<'a> {
    Nothing,
    /// Encrypt these.
    Encrypt(&'a [u8]),
    /// Say that no more comes.
    Close,
}

/// What a step came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Something was done; there may be more to do.
    Moved,
    /// The handshake needs more of the other side's bytes.
    Blocked,
    /// The handshake is done, what has come is used, and the act was done.
    Open,
    /// The other side said that no more comes.
    PeerClosed,
    /// Both sides have said so.
    Closed,
}

impl Session {
    /// Of a client that expects a server of this name.
    pub(super) fn client(
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> Result<Self, Error> {
        UnbufferedClientConnection::new(config, name).map(Self::Client)
    }

    /// Of a server.
    pub(super) fn server(config: Arc<ServerConfig>) -> Result<Self, Error> {
        UnbufferedServerConnection::new(config).map(Self::Server)
    }

    /// What the other side has shown of itself, its own certificate first.
    pub(super) fn peer_certificates(&self) -> Vec<Bytes> {
        let shown = match self {
            Self::Client(side) => side.peer_certificates(),
            Self::Server(side) => side.peer_certificates(),
        };
        let shown = shown.unwrap_or_default().iter();
        shown.map(|one| Bytes::copy_from_slice(one)).collect()
    }

    pub(super) fn is_client(&self) -> bool {
        matches!(self, Self::Client(_))
    }

    /// Goes one step: uses records of `incoming`, hands what they carry to `plain`, puts what is
    /// to be sent into `outgoing`.
    pub(super) fn step(
        &mut self,
        act: Act<'_>,
        incoming: &mut Incoming,
        outgoing: &mut Outgoing,
        plain: impl FnMut(&[u8]),
    ) -> Result<Step, Error> {
        let (used, step) = match self {
            Self::Client(side) => advance(
                side.process_tls_records(incoming.bytes()),
                act,
                outgoing,
                plain,
            ),
            Self::Server(side) => advance(
                side.process_tls_records(incoming.bytes()),
                act,
                outgoing,
                plain,
            ),
        };
        incoming.discard(used);
        step
    }
}

fn advance<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    act: Act<'_>,
    outgoing: &mut Outgoing,
    mut plain: impl FnMut(&[u8]),
) -> (usize, Result<Step, Error>) {
    let mut used = status.discard;
    let step = match status.state {
        Err(error) => Err(error),
        Ok(ConnectionState::ReadTraffic(mut traffic)) => loop {
            match traffic.next_record() {
                None => break Ok(Step::Moved),
                Some(Err(error)) => break Err(error),
                Some(Ok(record)) => {
                    used += record.discard;
                    plain(record.payload);
                }
            }
        },
        Ok(ConnectionState::EncodeTlsData(mut message)) => {
            let encoded = match message.encode(outgoing.space(0)) {
                Err(EncodeError::InsufficientSize(needed)) => {
                    message.encode(outgoing.space(needed.required_size))
                }
                encoded => encoded,
            };
            encoded
                .map(|bytes| {
                    outgoing.add(bytes);
                    Step::Moved
                })
                .map_err(|error| Error::General(error.to_string()))
        }
        // What is in `outgoing` goes before anything that comes later.
        Ok(ConnectionState::TransmitTlsData(message)) => {
            message.done();
            Ok(Step::Moved)
        }
        Ok(ConnectionState::BlockedHandshake) => Ok(Step::Blocked),
        Ok(ConnectionState::PeerClosed) => Ok(Step::PeerClosed),
        Ok(ConnectionState::Closed) => Ok(Step::Closed),
        Ok(ConnectionState::WriteTraffic(mut traffic)) => {
            let mut write = |bytes: usize| {
                let space = outgoing.space(bytes);
                match act {
                    Act::Nothing => Ok(0),
                    Act::Encrypt(plain) => traffic.encrypt(plain, space),
                    Act::Close => traffic.queue_close_notify(space),
                }
            };
            let written = match write(act.bytes()) {
                Err(EncryptError::InsufficientSize(needed)) => write(needed.required_size),
                written => written,
            };
            written
                .map(|bytes| {
                    outgoing.add(bytes);
                    Step::Open
                })
                .map_err(|error| Error::General(error.to_string()))
        }
        Ok(_) => Err(Error::General(
            "early data, which nobody offered".to_owned(),
        )),
    };
    (used, step)
}

impl Act<'_> {
    /// How long what it makes is, most of the time.
    fn bytes(self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Encrypt(plain) => {
                plain.len() + plain.len().div_ceil(RECORD_PAYLOAD_BYTES) * RECORD_OVERHEAD
            }
            Self::Close => 64,
        }
    }
}
