//! The bytes of a connection: as they are, or encrypted. One thread uses them, and waits for as long as it says.

use super::super::tls;
use super::url::{AmqpUrl, Encryption};
use crate::failure::{Code, Failure};
use bytes::BytesMut;
use rustix::net::{RecvFlags, recv};
use rustls::ClientConnection;
use rustls::pki_types::ServerName;
use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Bytes that are read at once.
const READ_BYTES: usize = 256 << 10;

/// What was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// Nothing yet.
    Nothing,
    /// Something, though it may be no whole record of TLS.
    Something,
    /// The server has closed the connection.
    End,
}

/// A socket, and what encrypts it.
#[derive(Debug)]
pub struct Stream {
    socket: TcpStream,
    session: Option<Box<Session>>,
    scratch: Box<[u8]>,
    /// The timeout of reading that the socket has.
    wait: Option<Duration>,
}

/// One side of TLS.
#[derive(Debug)]
struct Session {
    tls: ClientConnection,
    name: String,
    authorities: PathBuf,
}

impl Session {
    fn new(encryption: &Encryption, host: &str) -> Result<Self, String> {
        let authorities = tls::authorities(encryption.authorities.as_deref())?;
        let name = encryption.name.as_deref().unwrap_or(host).to_owned();
        let config = tls::config(&authorities)?;
        let server = ServerName::try_from(name.clone())
            .map_err(|_| format!("{name:?} is no name of a host"))?;
        let tls = ClientConnection::new(config, server).map_err(|error| format!("TLS: {error}"))?;
        Ok(Self {
            tls,
            name,
            authorities,
        })
    }

    /// Takes records, and puts what they carry behind `input`.
    fn take(&mut self, mut records: &[u8], input: &mut BytesMut) -> io::Result<()> {
        while !records.is_empty() {
            self.tls.read_tls(&mut records)?;
            let state = self.tls.process_new_packets().map_err(|error| {
                let why = tls::explain(&error, &self.name, &self.authorities);
                io::Error::new(io::ErrorKind::InvalidData, why)
            })?;
            let at = input.len();
            let bytes = state.plaintext_bytes_to_read();
            input.resize(at + bytes, 0);
            self.tls.reader().read_exact(&mut input[at..])?;
        }
        Ok(())
    }
}

impl Stream {
    /// Over a socket that is connected; encrypted once the server has proved itself.
    pub fn open(socket: TcpStream, url: &AmqpUrl, until: Instant) -> Result<Self, Failure> {
        let session = url.encryption.as_ref();
        let session = session.map(|encryption| Session::new(encryption, &url.host));
        let session = session
            .transpose()
            .map_err(|why| Failure::usage(url.to_string(), why))?;
        let mut stream = Self {
            socket,
            session: session.map(Box::new),
            scratch: vec![0; READ_BYTES].into(),
            wait: None,
        };
        stream.shake_hands(until).map_err(|error| {
            let code = match error.kind() {
                io::ErrorKind::TimedOut => Code::Timeout,
                _ => Code::Failure,
            };
            Failure::new(code, url.to_string(), error)
        })?;
        Ok(stream)
    }

    fn shake_hands(&mut self, until: Instant) -> io::Result<()> {
        let mut nothing = BytesMut::new();
        loop {
            if self.has_unsent() {
                match self.send(&mut &mut [][..]) {
                    Err(error) if !is_nothing_yet(&error) => return Err(error),
                    _ => {}
                }
            }
            let is_done = |session: &Session| !session.tls.is_handshaking();
            if self.session.as_deref().is_none_or(is_done) && !self.has_unsent() {
                return Ok(());
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let what = "the server does not answer: the handshake of TLS";
                return Err(io::Error::new(io::ErrorKind::TimedOut, what));
            }
            // What is not sent yet is sent before anything is waited for.
            let left = match self.has_unsent() {
                true => Duration::ZERO,
                false => left,
            };
            if self.receive(left, &mut nothing)? == Received::End {
                let what = "the server has closed the connection in the handshake of TLS; does it speak TLS 1.3 here?";
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, what));
            }
        }
    }

    /// Puts what is there behind `input`; waits this long if nothing is.
    pub fn receive(&mut self, wait: Duration, input: &mut BytesMut) -> io::Result<Received> {
        let flags = match wait.is_zero() {
            true => RecvFlags::DONTWAIT,
            false => {
                // What is shorter is none for the socket.
                let wait = wait.max(Duration::from_micros(1));
                if self.wait != Some(wait) {
                    self.socket.set_read_timeout(Some(wait))?;
                    self.wait = Some(wait);
                }
                RecvFlags::empty()
            }
        };
        let bytes = match recv(&self.socket, &mut *self.scratch, flags).map_err(io::Error::from) {
            Ok((0, _)) => return Ok(Received::End),
            Ok((bytes, _)) => bytes,
            Err(error) if is_nothing_yet(&error) => return Ok(Received::Nothing),
            Err(error) => return Err(error),
        };
        match &mut self.session {
            None => input.extend_from_slice(&self.scratch[..bytes]),
            Some(session) => session.take(&self.scratch[..bytes], input)?,
        }
        Ok(Received::Something)
    }

    /// Sends some of it, and leaves the rest in `parts`; waits as long as the socket's timeout of writing.
    pub fn send(&mut self, parts: &mut &mut [IoSlice<'_>]) -> io::Result<()> {
        let Some(session) = &mut self.session else {
            let written = self.socket.write_vectored(parts)?;
            IoSlice::advance_slices(parts, written);
            return Ok(());
        };
        if !parts.is_empty() {
            // It takes no more than it may hold.
            let taken = session.tls.writer().write_vectored(parts)?;
            IoSlice::advance_slices(parts, taken);
        }
        match session.tls.wants_write() {
            true => session.tls.write_tls(&mut self.socket).map(drop),
            false => Ok(()),
        }
    }

    /// Whether something was taken to be sent and is not.
    pub fn has_unsent(&self) -> bool {
        self.session
            .as_ref()
            .is_some_and(|session| session.tls.wants_write())
    }

    /// Says that no more comes, and waits for nothing.
    pub fn say_goodbye(&mut self, bytes: &[u8]) {
        // Whether the server hears it changes nothing.
        let mut parts = [IoSlice::new(bytes)];
        let _ = self.send(&mut &mut parts[..]);
        if let Some(session) = &mut self.session {
            session.tls.send_close_notify();
            let _ = session.tls.write_tls(&mut self.socket);
        }
    }
}

/// Whether an error says that there is nothing at the moment.
pub fn is_nothing_yet(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}
