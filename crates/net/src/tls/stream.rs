//! TLS over a socket, as a stream of bytes for frames.

use super::records::{HANDSHAKE_BYTES_MAX, Incoming, Outgoing, Places, Plain, READ_BYTES_MAX};
use super::session::{Act, RECORD_OVERHEAD, RECORD_PAYLOAD_BYTES, Session, Step};
use super::trust::Trust;
use crate::byte_stream::ByteStream;
use crate::readiness::{Notify, Readiness};
use crate::socket::{Socket, SocketBytes};
use crate::stream::KEPT_BYTES_MIN;
use bytes::Bytes;
use rustls::Error;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::RawFd;
use wire::codec::Codec;
use wire::frame::{FRAME_MAGIC, FrameHeader, FrameKind};
use wire::{ErrorCode, ErrorReply};

/// What is encrypted before the system is given it: a few records, which stay in the cache.
const WRITE_BYTES_MAX: usize = 8 * RECORD_PAYLOAD_BYTES;

/// The first byte of a record of a handshake, of an alert.
const HANDSHAKE: u8 = 0x16;
const ALERT: u8 = 0x15;

/// How far a connection is. The drawing is in the crate's README.
#[derive(Debug)]
enum State {
    /// The socket connects.
    Connecting,
    /// Nothing has come of the other side, whose first byte says what it speaks.
    Unheard,
    /// The sides agree on keys, and the client verifies the server.
    Handshake,
    /// Bytes go both ways.
    Open,
    /// The other side says no more; it may still be written to.
    PeerClosed,
    /// The other side is gone, or sent what is no TLS: nothing more is read.
    Broken(io::ErrorKind, String),
}

/// What is to be said of a server that is not taken.
pub(super) struct Expected {
    pub trust: Trust,
    pub name: String,
}

/// See the module.
pub(super) struct TlsBytes<S> {
    socket: SocketBytes<S>,
    session: Session,
    state: State,
    /// Of a client.
    expected: Option<Expected>,
    incoming: Incoming,
    outgoing: Outgoing,
    plain: Plain,
    /// Short pieces that are gathered into a record. Empty between calls.
    gathered: Vec<u8>,
}

impl<S: Socket> TlsBytes<S> {
    /// TLS over `socket`, which may still connect; `expected` is a client's.
    pub(super) fn new(socket: S, session: Session, expected: Option<Expected>) -> Self {
        Self {
            socket: SocketBytes(socket),
            session,
            state: State::Connecting,
            expected,
            incoming: Incoming::default(),
            outgoing: Outgoing::default(),
            plain: Plain::default(),
            gathered: Vec::new(),
        }
    }

    /// Goes one step; what is decrypted waits until it is asked for.
    fn step(&mut self, act: Act<'_>) -> Result<Step, Error> {
        let plain = &mut self.plain;
        let keep = |bytes: &[u8]| plain.push(bytes);
        self.session
            .step(act, &mut self.incoming, &mut self.outgoing, keep)
    }

    /// Does `act`, once the records that have come are used.
    fn act(&mut self, act: Act<'_>) -> io::Result<()> {
        loop {
            match self.step(act) {
                Ok(Step::Moved) => {}
                Ok(Step::PeerClosed) => self.peer_closed(),
                Ok(Step::Open) => return Ok(()),
                Ok(Step::Blocked) => return Err(io::ErrorKind::WouldBlock.into()),
                Ok(Step::Closed) => return Err(io::ErrorKind::BrokenPipe.into()),
                Err(error) => return Err(self.broken(&error)),
            }
        }
    }

    fn peer_closed(&mut self) {
        if !matches!(self.state, State::Broken(..)) {
            self.state = State::PeerClosed;
        }
    }

    /// Moves the handshake on, as far as that goes.
    fn shake(&mut self) -> io::Result<()> {
        loop {
            match self.step(Act::Nothing) {
                Ok(Step::Moved) => continue,
                Ok(Step::Open) => {
                    self.state = State::Open;
                    return self.send();
                }
                Ok(Step::Blocked) => {}
                Ok(Step::PeerClosed | Step::Closed) => return Err(self.ended()),
                Err(error) => {
                    let error = self.broken(&error);
                    self.socket.finish();
                    return Err(error);
                }
            }
            self.send()?;
            if self.fill(HANDSHAKE_BYTES_MAX)? == 0 {
                return Err(self.ended());
            }
            if matches!(self.state, State::Unheard) {
                self.check_first_byte()?;
                self.state = State::Handshake;
            }
        }
    }

    /// The first byte says what the other side speaks. Who speaks our protocol without TLS is
    /// told so in it, and served nothing.
    fn check_first_byte(&mut self) -> io::Result<()> {
        let text = match (self.incoming.first(), self.session.is_client()) {
            (Some(HANDSHAKE | ALERT), _) => return Ok(()),
            (Some(FRAME_MAGIC), true) => {
                "it speaks without TLS there: the same address as tcp://".to_owned()
            }
            (Some(FRAME_MAGIC), false) => {
                self.refuse_plaintext();
                "it speaks without TLS".to_owned()
            }
            (first, _) => format!(
                "what it speaks is no TLS: its first byte is {:#04x}",
                first.unwrap_or_default()
            ),
        };
        self.socket.finish();
        Err(io::Error::new(io::ErrorKind::InvalidData, text))
    }

    fn refuse_plaintext(&mut self) {
        let text = "this address is encrypted: connect to it as tls://HOST:PORT, or by the group \
                    file";
        let head = ErrorReply::fatal(ErrorCode::Unsupported, text).to_bytes();
        let header = FrameHeader {
            kind: FrameKind::ErrorReply,
            flags: 0,
            head_bytes: u32::try_from(head.len()).expect("a sentence is short"),
            payload_bytes: 0,
            id: 0,
        };
        let header = header.to_bytes(&head);
        // It is for people; where it does not go through at once they see a closed connection.
        let _ = self
            .socket
            .write_vectored(&[IoSlice::new(&header), IoSlice::new(&head)]);
    }

    /// The other side went in the handshake.
    fn ended(&self) -> io::Error {
        let text = match self.session.is_client() {
            true => {
                "it ended the connection before TLS was agreed on: it may speak without TLS there \
                 (the same address as tcp://)"
            }
            false => "it ended the connection before TLS was agreed on",
        };
        io::Error::new(io::ErrorKind::UnexpectedEof, text)
    }

    /// Tells the other side that this is the end, and says why.
    fn broken(&mut self, error: &Error) -> io::Error {
        let text = self.describe(error);
        self.state = State::Broken(io::ErrorKind::InvalidData, text.clone());
        // What is queued, up to the alert. No step after it: the machine would take what is wrong
        // once more.
        loop {
            let before = self.outgoing.len();
            let moved = matches!(self.step(Act::Nothing), Ok(Step::Moved));
            if !moved || is_alert(&self.outgoing.bytes()[before..]) {
                break;
            }
        }
        let _ = self.send();
        io::Error::new(io::ErrorKind::InvalidData, text)
    }

    fn describe(&self, error: &Error) -> String {
        match (error, &self.expected) {
            (Error::InvalidCertificate(error), Some(expected)) => {
                expected.trust.explain(error, &expected.name)
            }
            (Error::AlertReceived(alert), _) => format!("ended TLS with the alert {alert:?}"),
            (Error::NoApplicationProtocol, _) => {
                "speaks another protocol in TLS than thalweg/1".to_owned()
            }
            (error, _) => format!("sent what TLS does not take: {error}"),
        }
    }

    /// Decrypts a record that has come, or reads once. Puts into `places` what they have space
    /// for; to be called when nothing that is decrypted waits.
    fn receive(&mut self, places: &mut Places<'_, '_>) -> io::Result<()> {
        let plain = &mut self.plain;
        let put = |bytes: &[u8]| {
            let done = places.put(bytes);
            plain.push(&bytes[done..]);
        };
        let step = self
            .session
            .step(Act::Nothing, &mut self.incoming, &mut self.outgoing, put);
        match step {
            Ok(Step::Moved) => {
                // An answer of TLS itself; what the system does not take goes with the next write.
                let _ = self.send();
            }
            Ok(Step::PeerClosed | Step::Closed) => self.peer_closed(),
            Ok(Step::Open | Step::Blocked) => {
                if self.fill(READ_BYTES_MAX)? == 0 {
                    let text = "the connection was cut: TLS has an end, which did not come";
                    self.state = State::Broken(io::ErrorKind::UnexpectedEof, text.to_owned());
                }
            }
            Err(error) => {
                self.broken(&error);
            }
        }
        Ok(())
    }

    /// Reads once. 0 is the end of the stream.
    fn fill(&mut self, bytes_max: usize) -> io::Result<usize> {
        let socket = &mut self.socket;
        self.incoming.fill(bytes_max, |space| {
            socket.read_vectored(&mut [IoSliceMut::new(space)])
        })
    }

    /// Has the system take what is to be sent; an error of kind `WouldBlock` where it does not take all.
    fn send(&mut self) -> io::Result<()> {
        while self.outgoing.len() > 0 {
            let bytes = self.outgoing.bytes();
            let sent = self.socket.write_vectored(&[IoSlice::new(bytes)])?;
            self.outgoing.sent(sent);
        }
        Ok(())
    }

    /// Encrypts pieces of `from`, from the one at `index` and `offset` on, up to the most that is
    /// encrypted at once. Returns how many bytes that were.
    fn encrypt(&mut self, from: &[IoSlice<'_>], at: &mut At) -> io::Result<usize> {
        let before = at.taken;
        while self.outgoing.len() < WRITE_BYTES_MAX
            && let Some(slice) = from.get(at.index)
        {
            let piece = &slice[at.offset..];
            let step = match piece.len() {
                // As for other streams: what is short is copied, what is long is read where it lies.
                0..KEPT_BYTES_MIN => {
                    let step = piece.len().min(RECORD_PAYLOAD_BYTES - self.gathered.len());
                    self.gathered.extend_from_slice(&piece[..step]);
                    if self.gathered.len() == RECORD_PAYLOAD_BYTES {
                        self.encrypt_gathered()?;
                    }
                    step
                }
                length => {
                    self.encrypt_gathered()?;
                    let step = length.min(WRITE_BYTES_MAX);
                    self.act(Act::Encrypt(&piece[..step]))?;
                    step
                }
            };
            at.advance(step, slice.len());
        }
        self.encrypt_gathered()?;
        Ok(at.taken - before)
    }

    fn encrypt_gathered(&mut self) -> io::Result<()> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        let mut gathered = std::mem::take(&mut self.gathered);
        let done = self.act(Act::Encrypt(&gathered));
        gathered.clear();
        self.gathered = gathered;
        done
    }
}

/// Whether a record of ours is an alert: as it is, or encrypted, when nothing else is as short.
fn is_alert(record: &[u8]) -> bool {
    record.first() == Some(&ALERT) || record.len() == RECORD_OVERHEAD + 2
}

/// A place in slices.
#[derive(Debug, Default)]
struct At {
    index: usize,
    offset: usize,
    taken: usize,
}

impl At {
    /// Moves on by `step` in a slice of `length` bytes.
    fn advance(&mut self, step: usize, length: usize) {
        self.taken += step;
        self.offset += step;
        if self.offset == length {
            self.index += 1;
            self.offset = 0;
        }
    }
}

impl<S: Socket> ByteStream for TlsBytes<S> {
    fn is_connected(&mut self) -> io::Result<bool> {
        if matches!(self.state, State::Connecting) {
            if !self.socket.is_connected()? {
                return Ok(false);
            }
            self.state = State::Unheard;
        }
        let moved = match self.state {
            State::Unheard | State::Handshake => self.shake(),
            // What ends the handshake may be on its way still.
            _ => self.send(),
        };
        match moved {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn certificates(&self) -> Vec<Bytes> {
        self.session.peer_certificates()
    }

    fn read_vectored(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut places = Places::new(into);
        loop {
            self.plain.take(&mut places);
            if places.are_full() {
                return Ok(places.filled);
            }
            match &self.state {
                // What came before is used first; `has_more` says that there is this to be seen.
                State::Broken(..) | State::PeerClosed if places.filled > 0 => {
                    return Ok(places.filled);
                }
                State::Broken(kind, text) => return Err(io::Error::new(*kind, text.clone())),
                State::PeerClosed => return Ok(0),
                State::Connecting | State::Unheard | State::Handshake | State::Open => {}
            }
            match self.receive(&mut places) {
                Err(_) if places.filled > 0 => return Ok(places.filled),
                received => received?,
            }
        }
    }

    fn write_vectored(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        if let State::Broken(kind, text) = &self.state {
            return Err(io::Error::new(*kind, text.clone()));
        }
        self.send()?;
        let mut at = At::default();
        loop {
            if self.encrypt(from, &mut at)? == 0 {
                return Ok(at.taken);
            }
            match self.send() {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(at.taken),
                Err(error) => return Err(error),
            }
        }
    }

    fn finish(&mut self) {
        if matches!(self.state, State::Open | State::PeerClosed) {
            // A connection that is gone already needs no end.
            let _ = self.act(Act::Close);
            let _ = self.send();
        }
        self.socket.finish();
    }

    fn readiness(&mut self) -> Readiness<'_> {
        self.socket.readiness()
    }

    fn attach(&mut self, notify: Notify) {
        self.socket.attach(notify);
    }

    fn descriptors(&self) -> Vec<RawFd> {
        self.socket.descriptors()
    }

    fn held_bytes(&self) -> usize {
        self.outgoing.len()
    }

    fn stripes(&self) -> Option<&'static str> {
        self.socket.0.stripes().map(|[_, encrypted]| encrypted)
    }

    fn bundled(&mut self) {
        self.socket.bundled();
    }

    fn unbundled(&mut self) {
        self.socket.unbundled();
    }

    fn has_more(&self) -> bool {
        matches!(self.state, State::PeerClosed | State::Broken(..))
    }
}

#[cfg(test)]
mod fuzz;
