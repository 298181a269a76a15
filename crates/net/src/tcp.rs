//! `tcp://host:port`.

use crate::address;
use crate::contract::*;
use crate::options::LinkOptions;
use crate::stream::{ByteStream, StreamLink};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsRawFd, RawFd};

const SCHEME: &str = "tcp";

/// TCP. Addresses are `tcp://host:port`; port 0 lets the system choose.
///
/// A host that is a name is looked up by the system, which may take its time,
/// when the address is used; its IPv4 addresses are preferred.
#[derive(Debug, Default)]
pub struct Tcp {
    options: LinkOptions,
}

impl Tcp {
    /// TCP whose links have these options.
    pub fn new(options: LinkOptions) -> Self {
        Self { options }
    }
}

fn resolve(address: &str) -> Result<SocketAddr, NetError> {
    let rest = address::rest(SCHEME, address)?;
    let found = rest
        .to_socket_addrs()
        .map_err(|error| NetError::Address(format!("{address}: {error}")))?;
    found
        .min_by_key(|found| found.is_ipv6())
        .ok_or_else(|| NetError::Address(format!("{address}: the name has no address")))
}

impl Transport for Tcp {
    fn scheme(&self) -> &'static str {
        SCHEME
    }

    fn listen(&self, address: &str) -> Result<Box<dyn Listener>, NetError> {
        let resolved = resolve(address)?;
        let listener = mio::net::TcpListener::bind(resolved)
            .map_err(|error| NetError::Address(format!("listening at {address}: {error}")))?;
        let bound = listener
            .local_addr()
            .map_err(|error| NetError::System(format!("listening at {address}: {error}")))?;
        Ok(Box::new(TcpDoor {
            listener,
            address: format!("{SCHEME}://{bound}"),
            options: self.options.clone(),
        }))
    }

    fn connect(&self, address: &str) -> Result<Box<dyn Link>, NetError> {
        let stream = mio::net::TcpStream::connect(resolve(address)?)
            .map_err(|error| NetError::Refused(format!("connecting to {address}: {error}")))?;
        Ok(link(stream, address.to_owned(), &self.options))
    }
}

fn link(stream: mio::net::TcpStream, address: String, options: &LinkOptions) -> Box<dyn Link> {
    let peer = Peer {
        address,
        ..Peer::default()
    };
    Box::new(StreamLink::new(TcpBytes { stream }, peer, options.clone()))
}

struct TcpDoor {
    listener: mio::net::TcpListener,
    address: String,
    options: LinkOptions,
}

impl Listener for TcpDoor {
    fn address(&self) -> String {
        self.address.clone()
    }

    fn accept(&mut self) -> Result<Option<Box<dyn Link>>, NetError> {
        loop {
            match self.listener.accept() {
                Ok((stream, from)) => {
                    let address = format!("{SCHEME}://{from}");
                    return Ok(Some(link(stream, address, &self.options)));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    let text = format!("accepting at {}: {error}", self.address);
                    return Err(NetError::System(text));
                }
            }
        }
    }

    fn readiness(&mut self) -> Readiness<'_> {
        Readiness::Source(&mut self.listener)
    }

    fn attach(&mut self, _bell: Bell) {}

    fn descriptor(&self) -> Option<RawFd> {
        Some(self.listener.as_raw_fd())
    }
}

/// Whether accepting failed for a connection that is gone already, so that
/// the next one can be taken.
pub(crate) fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::Interrupted
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
    )
}

struct TcpBytes {
    stream: mio::net::TcpStream,
}

impl ByteStream for TcpBytes {
    fn is_connected(&mut self) -> io::Result<bool> {
        if let Some(error) = self.stream.take_error()? {
            return Err(error);
        }
        match self.stream.peer_addr() {
            Ok(_) => {
                // Frames are written whole; none shall wait for an answer to the last.
                self.stream.set_nodelay(true)?;
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn read_vectored(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.stream.read_vectored(into)
    }

    fn write_vectored(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        self.stream.write_vectored(from)
    }

    fn finish(&mut self) {
        finish(&mut self.stream, |stream| stream.shutdown(Shutdown::Write));
    }

    fn readiness(&mut self) -> Readiness<'_> {
        Readiness::Source(&mut self.stream)
    }

    fn attach(&mut self, _bell: Bell) {}

    fn descriptors(&self) -> Vec<RawFd> {
        vec![self.stream.as_raw_fd()]
    }
}

/// Ends the writing half and throws away what has arrived: a socket that is
/// closed over unread bytes resets the connection, and with it may go what
/// was just written.
pub(crate) fn finish<S: Read>(stream: &mut S, shutdown: impl FnOnce(&S) -> io::Result<()>) {
    // A connection that is gone already needs no end.
    let _ = shutdown(stream);
    let mut scratch = [0; 16 * 1024];
    for _ in 0..64 {
        match stream.read(&mut scratch) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
    }
}
