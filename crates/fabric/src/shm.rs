//! `shm://path`: shared memory, agreed on over the unix socket at `path`.

use crate::pool::Pool;
use crate::stream::ShmBytes;
use memory::Allocation;
use net::{
    KEPT_BYTES_MIN, Link, LinkOptions, Listener, NetError, Notify, Peer, Readiness, StreamLink,
    Transport, UnixSocket,
};
use std::fmt;
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::Arc;

const SCHEME: &str = "shm";

/// Where lines for people go.
pub type Report = Arc<dyn Fn(&str) + Send + Sync>;

/// What can be chosen of shared memory.
#[derive(Clone)]
pub struct ShmOptions {
    /// As for every transport.
    pub links: LinkOptions,
    /// Size of the ring that this side writes; a multiple of 4096. Both
    /// rings of a connection are allocated at once and for its whole life.
    /// Default 1 MiB.
    pub ring_bytes: usize,
    /// Whether clients that offer shared memory get it. If not, they are
    /// served over the socket. Default yes.
    pub is_on: bool,
    /// Pieces of this length and longer are not copied into the ring: the
    /// accepting side reads them out of the connecting one's memory, where
    /// the system lets it. At least [`net::KEPT_BYTES_MIN`]. Default 128 KiB.
    pub refer_bytes_min: usize,
    /// The most memory that buffers which are sent without a copy may take, in
    /// this process. It is taken as it is needed; 0 is none. Default 1 GiB.
    pub pool_bytes_max: usize,
    /// Called with a line when a connection has to do without shared memory.
    /// Default: nobody.
    pub report: Report,
}

impl Default for ShmOptions {
    fn default() -> Self {
        Self {
            links: LinkOptions::default(),
            ring_bytes: 1 << 20,
            is_on: true,
            refer_bytes_min: 128 << 10,
            pool_bytes_max: 1 << 30,
            report: Arc::new(|_| {}),
        }
    }
}

impl fmt::Debug for ShmOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShmOptions")
            .field("links", &self.links)
            .field("ring_bytes", &self.ring_bytes)
            .field("is_on", &self.is_on)
            .field("refer_bytes_min", &self.refer_bytes_min)
            .field("pool_bytes_max", &self.pool_bytes_max)
            .finish_non_exhaustive()
    }
}

/// Shared memory between processes of one host. Addresses are `shm://path`,
/// where `path` is that of a unix socket, its user's alone, as of `unix://`.
///
/// The two sides exchange memory over the socket and use it when each has
/// read back what the other put there; else the socket carries everything,
/// and a line says why. A listener takes clients of `unix://` as well.
#[derive(Debug)]
pub struct Shm {
    options: Arc<ShmOptions>,
    pool: Arc<Pool>,
}

impl Default for Shm {
    fn default() -> Self {
        Self::new(ShmOptions::default())
    }
}

impl Shm {
    /// Shared memory with these options.
    ///
    /// # Panics
    /// If a size is out of its bounds.
    pub fn new(options: ShmOptions) -> Self {
        assert!(
            options.refer_bytes_min >= KEPT_BYTES_MIN,
            "pieces of less than {KEPT_BYTES_MIN} bytes are always copied"
        );
        let ring_bytes = options.ring_bytes;
        assert!(
            ring_bytes >= 4096 && ring_bytes.is_multiple_of(4096) && ring_bytes <= 128 << 20,
            "a ring of {ring_bytes} bytes: a multiple of 4096 up to 128 MiB it has to be"
        );
        Self {
            pool: Arc::new(Pool::new(options.pool_bytes_max)),
            options: Arc::new(options),
        }
    }
}

fn path(address: &str) -> Result<&str, NetError> {
    let path = address.strip_prefix("shm://");
    path.ok_or_else(|| NetError::Address(format!("{address:?} is no address of {SCHEME}://")))
}

fn link(stream: ShmBytes, peer: Peer, options: &ShmOptions) -> Box<dyn Link> {
    Box::new(StreamLink::new(stream, peer, options.links.clone()))
}

impl Transport for Shm {
    fn scheme(&self) -> &'static str {
        SCHEME
    }

    fn listen(&self, address: &str) -> Result<Box<dyn Listener>, NetError> {
        Ok(Box::new(ShmListening {
            socket: UnixSocket::bind(Path::new(path(address)?))?,
            options: self.options.clone(),
        }))
    }

    fn allocate(&self, bytes: usize) -> Option<Allocation> {
        self.pool.take(bytes)
    }

    fn connect(&self, address: &str) -> Result<Box<dyn Link>, NetError> {
        let socket = UnixSocket::connect(path(address)?, address)?;
        let peer = UnixSocket::peer(&socket, address)?;
        let stream = ShmBytes::connecting(socket, peer.pid, self.options.clone(), &self.pool);
        Ok(link(stream, peer, &self.options))
    }
}

struct ShmListening {
    socket: UnixSocket,
    options: Arc<ShmOptions>,
}

impl Listener for ShmListening {
    fn address(&self) -> String {
        format!("{SCHEME}://{}", self.socket.path().display())
    }

    fn accept(&mut self) -> Result<Option<Box<dyn Link>>, NetError> {
        while let Some(socket) = self.socket.accept()? {
            // If it fails, it is gone again before we looked at it.
            if let Ok(peer) = self.socket.client(&socket, SCHEME) {
                let stream = ShmBytes::accepting(socket, peer.pid, self.options.clone());
                return Ok(Some(link(stream, peer, &self.options)));
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
