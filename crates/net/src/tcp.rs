//! `tcp://host:port`.

use crate::address;
use crate::bytes_link::link_over;
use crate::contract::*;
use crate::options::LinkOptions;
use crate::socket::{Socket, SocketBytes, next_connection};
use socket2::SockRef;
use std::io;
use std::net::{Shutdown, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsRawFd, RawFd};

const SCHEME: &str = "tcp";

/// Bytes that wait in the system to be sent for the first time by one of several connections of a link.
const UNSENT_BYTES_MAX: u32 = 256 << 10;

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

/// The address of the host and port `authority`, which `address` names.
pub(crate) fn resolve(address: &str, authority: &str) -> Result<SocketAddr, NetError> {
    let found = authority
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
        let resolved = resolve(address, address::rest(SCHEME, address)?)?;
        let listener = mio::net::TcpListener::bind(resolved)
            .map_err(|error| NetError::Address(format!("listening at {address}: {error}")))?;
        let bound = listener
            .local_addr()
            .map_err(|error| NetError::System(format!("listening at {address}: {error}")))?;
        Ok(Box::new(TcpListening {
            listener,
            address: format!("{SCHEME}://{bound}"),
            options: self.options.clone(),
        }))
    }

    fn check(&self, address: &str) -> Result<(), NetError> {
        let rest = address::rest(SCHEME, address)?;
        let (host, port) = rest.rsplit_once(':').unwrap_or((rest, ""));
        match !host.is_empty() && port.parse::<u16>().is_ok() {
            true => Ok(()),
            false => Err(NetError::Address(format!(
                "{address} is no address of TCP: it is a host and a port, as in \
                 {SCHEME}://127.0.0.1:9000"
            ))),
        }
    }

    fn connect(&self, address: &str) -> Result<Box<dyn Link>, NetError> {
        let stream =
            mio::net::TcpStream::connect(resolve(address, address::rest(SCHEME, address)?)?)
                .map_err(|error| NetError::Refused(format!("connecting to {address}: {error}")))?;
        Ok(link(stream, address.to_owned(), &self.options))
    }
}

fn link(stream: mio::net::TcpStream, address: String, options: &LinkOptions) -> Box<dyn Link> {
    let peer = Peer {
        address,
        ..Peer::default()
    };
    link_over(SocketBytes(stream), peer, options)
}

struct TcpListening {
    listener: mio::net::TcpListener,
    address: String,
    options: LinkOptions,
}

impl Listener for TcpListening {
    fn address(&self) -> String {
        self.address.clone()
    }

    fn accept(&mut self) -> Result<Option<Box<dyn Link>>, NetError> {
        let accepted = next_connection(|| self.listener.accept());
        let accepted = accepted
            .map_err(|error| NetError::System(format!("accepting at {}: {error}", self.address)))?;
        Ok(accepted.map(|(stream, from)| {
            let address = format!("{SCHEME}://{from}");
            link(stream, address, &self.options)
        }))
    }

    fn readiness(&mut self) -> Readiness<'_> {
        Readiness::Source(&mut self.listener)
    }

    fn attach(&mut self, _notify: Notify) {}

    fn descriptor(&self) -> Option<RawFd> {
        Some(self.listener.as_raw_fd())
    }
}

impl Socket for mio::net::TcpStream {
    fn is_connected(&mut self) -> io::Result<bool> {
        if let Some(error) = self.take_error()? {
            return Err(error);
        }
        match self.peer_addr() {
            Ok(_) => {
                // Frames are written whole; none shall wait for an answer to the last.
                self.set_nodelay(true)?;
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn shut(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }

    fn stripes(&self) -> Option<[&'static str; 2]> {
        Some([SCHEME, "tls"])
    }

    fn bundled(&self) {
        // Without it a connection whose window has collapsed keeps more unsent, which the others could have sent.
        let _ = SockRef::from(self).set_tcp_notsent_lowat(UNSENT_BYTES_MAX);
    }

    fn unbundled(&self) {
        let _ = SockRef::from(self).set_tcp_notsent_lowat(u32::MAX);
    }
}
