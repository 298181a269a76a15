//! `unix://path`: the default on one host.

use crate::address;
use crate::contract::*;
use crate::options::LinkOptions;
use crate::socket::{Socket, SocketBytes};
use crate::stream::StreamLink;
use crate::unix_socket::UnixSocket;
use rustix::net::sockopt;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, RawFd};
use std::path::Path;

const SCHEME: &str = "unix";

/// Unix sockets. Addresses are `unix://path`; the socket is its user's alone
/// (mode 0600), and the kernel vouches for who is at the other end.
#[derive(Debug, Default)]
pub struct Unix {
    options: LinkOptions,
}

impl Unix {
    /// Unix sockets whose links have these options.
    pub fn new(options: LinkOptions) -> Self {
        Self { options }
    }
}

impl Transport for Unix {
    fn scheme(&self) -> &'static str {
        SCHEME
    }

    fn listen(&self, address: &str) -> Result<Box<dyn Listener>, NetError> {
        let path = Path::new(address::rest(SCHEME, address)?);
        Ok(Box::new(UnixListening {
            socket: UnixSocket::bind(path)?,
            options: self.options.clone(),
        }))
    }

    fn connect(&self, address: &str) -> Result<Box<dyn Link>, NetError> {
        let path = address::rest(SCHEME, address)?;
        let stream = UnixSocket::connect(path, address)?;
        let peer = UnixSocket::peer(&stream, address)?;
        link(stream, peer, &self.options)
    }
}

fn link(
    stream: mio::net::UnixStream,
    peer: Peer,
    options: &LinkOptions,
) -> Result<Box<dyn Link>, NetError> {
    // Larger than the default, so that a chunk goes in one piece. The system
    // may give less; that costs speed only.
    let bytes = options.socket_buffer_bytes;
    sockopt::set_socket_send_buffer_size(stream.as_fd(), bytes)
        .map_err(|error| NetError::System(format!("{}: {error}", peer.address)))?;
    let link = StreamLink::new(SocketBytes(stream), peer, options.clone());
    Ok(Box::new(link))
}

struct UnixListening {
    socket: UnixSocket,
    options: LinkOptions,
}

impl Listener for UnixListening {
    fn address(&self) -> String {
        format!("{SCHEME}://{}", self.socket.path().display())
    }

    fn accept(&mut self) -> Result<Option<Box<dyn Link>>, NetError> {
        while let Some(stream) = self.socket.accept()? {
            let peer = self.socket.client(&stream, SCHEME);
            // If it fails, it is gone again before we looked at it.
            if let Ok(link) = peer.and_then(|peer| link(stream, peer, &self.options)) {
                return Ok(Some(link));
            }
        }
        Ok(None)
    }

    fn readiness(&mut self) -> Readiness<'_> {
        self.socket.readiness()
    }

    fn attach(&mut self, _notify: Notify) {}

    fn descriptor(&self) -> Option<RawFd> {
        Some(self.socket.descriptor())
    }
}

impl Socket for mio::net::UnixStream {
    fn is_connected(&mut self) -> io::Result<bool> {
        // Connecting to a unix socket does not take time: it is done or failed.
        Ok(true)
    }

    fn shut(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}
