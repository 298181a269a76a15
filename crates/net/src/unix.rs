//! `unix://path`: the default on one host.

use crate::address;
use crate::contract::*;
use crate::options::LinkOptions;
use crate::stream::{ByteStream, StreamLink};
use crate::tcp::{finish, is_of_one_connection};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::net::sockopt;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

const SCHEME: &str = "unix";

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;

/// How often, and how long apart, the lock of a directory is tried.
const LOCK_TRIES: u32 = 100;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

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
        let path = PathBuf::from(address::rest(SCHEME, address)?);
        let socket = bind_alone(&path)?;
        let inode = std::fs::symlink_metadata(&path)
            .map(|file| (file.dev(), file.ino()))
            .map_err(|error| failed(&path, "looking at the socket just made", error))?;
        let listener = std::os::unix::net::UnixListener::from(socket);
        Ok(Box::new(UnixDoor {
            listener: mio::net::UnixListener::from_std(listener),
            path,
            inode,
            process: std::process::id(),
            options: self.options.clone(),
        }))
    }

    fn connect(&self, address: &str) -> Result<Box<dyn Link>, NetError> {
        let path = address::rest(SCHEME, address)?;
        let stream = mio::net::UnixStream::connect(path).map_err(|error| {
            let text = match error.kind() {
                io::ErrorKind::WouldBlock => {
                    format!("connecting to {address}: {BACKLOG} others wait there already")
                }
                _ => format!("connecting to {address}: {error}"),
            };
            NetError::Refused(text)
        })?;
        link(stream, address.to_owned(), &self.options)
    }
}

fn failed(path: &Path, doing: &str, error: impl std::fmt::Display) -> NetError {
    NetError::Address(format!("unix://{}: {doing}: {error}", path.display()))
}

/// Binds and listens at `path`. A socket that a dead server left there is
/// replaced; a living server's, or any other file, is not.
fn bind_alone(path: &Path) -> Result<OwnedFd, NetError> {
    let address = SocketAddrUnix::new(path)
        .map_err(|error| failed(path, "the path of a socket has at most 107 bytes", error))?;
    // Of two servers that find the same dead socket only one may replace it:
    // the other would remove its new one. So this is done under a lock of the
    // directory.
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(directory, flags, Mode::empty())
        .map_err(|error| failed(path, "opening its directory", error))?;
    lock(path, &directory)?;

    let socket = new_socket(path)?;
    match rustix::net::bind(&socket, &address) {
        Ok(()) => {}
        Err(rustix::io::Errno::ADDRINUSE) => {
            remove_dead_socket(path, &address)?;
            rustix::net::bind(&socket, &address)
                .map_err(|error| failed(path, "binding again", error))?;
        }
        Err(error) => return Err(failed(path, "binding", error)),
    }
    rustix::net::listen(&socket, BACKLOG).map_err(|error| failed(path, "listening", error))?;
    Ok(socket)
}

/// Locks the directory, as others do for the moment of a `bind_alone`.
fn lock(path: &Path, directory: &OwnedFd) -> Result<(), NetError> {
    for _ in 0..LOCK_TRIES {
        match rustix::fs::flock(directory, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => std::thread::sleep(LOCK_PAUSE),
            Err(error) => return Err(failed(path, "locking its directory", error)),
            Ok(()) => return Ok(()),
        }
    }
    let waited = LOCK_PAUSE * LOCK_TRIES;
    let text = format!("somebody held it for {waited:?}");
    Err(failed(path, "locking its directory", text))
}

fn new_socket(path: &Path) -> Result<OwnedFd, NetError> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .map_err(|error| failed(path, "making a socket", error))?;
    // Linux gives the file of a bound socket the mode of the socket itself,
    // so there is no moment in which others could connect.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)
        .map_err(|error| failed(path, "restricting the socket to its user", error))?;
    Ok(socket)
}

fn remove_dead_socket(path: &Path, address: &SocketAddrUnix) -> Result<(), NetError> {
    let file = std::fs::symlink_metadata(path)
        .map_err(|error| failed(path, "looking at what is there", error))?;
    if !file.file_type().is_socket() {
        return Err(failed(path, "binding", "a file that is no socket is there"));
    }
    let probe = new_socket(path)?;
    match rustix::net::connect(&probe, address) {
        Err(rustix::io::Errno::CONNREFUSED) => {}
        Ok(()) | Err(rustix::io::Errno::AGAIN) => {
            return Err(failed(path, "binding", "a server answers there"));
        }
        Err(error) => return Err(failed(path, "asking who is there", error)),
    }
    std::fs::remove_file(path).map_err(|error| failed(path, "removing a dead socket", error))
}

fn link(
    stream: mio::net::UnixStream,
    address: String,
    options: &LinkOptions,
) -> Result<Box<dyn Link>, NetError> {
    let system = |error| NetError::System(format!("{address}: {error}"));
    let credentials = sockopt::socket_peercred(stream.as_fd()).map_err(system)?;
    // Larger than the default, so that a chunk goes in one piece. The system
    // may give less; that costs speed only.
    let bytes = options.socket_buffer_bytes;
    sockopt::set_socket_send_buffer_size(stream.as_fd(), bytes).map_err(system)?;
    let pid = credentials.pid.as_raw_pid() as u32;
    let peer = Peer {
        uid: Some(credentials.uid.as_raw()),
        pid: Some(pid),
        in_process: pid == std::process::id(),
        address,
    };
    let link = StreamLink::new(UnixBytes { stream }, peer, options.clone());
    Ok(Box::new(link))
}

struct UnixDoor {
    listener: mio::net::UnixListener,
    path: PathBuf,
    /// Device and inode of our socket, to remove no other.
    inode: (u64, u64),
    /// A forked child that drops its copy must not take the socket away.
    process: u32,
    options: LinkOptions,
}

impl Listener for UnixDoor {
    fn address(&self) -> String {
        format!("{SCHEME}://{}", self.path.display())
    }

    fn accept(&mut self) -> Result<Option<Box<dyn Link>>, NetError> {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    // Clients have no address of their own; their process says who they are.
                    let pid = sockopt::socket_peercred(stream.as_fd())
                        .map_or(0, |credentials| credentials.pid.as_raw_pid());
                    let address = format!("{} (process {pid})", self.address());
                    match link(stream, address, &self.options) {
                        Ok(link) => return Ok(Some(link)),
                        // Gone again before we looked at it.
                        Err(_) => continue,
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    let text = format!("accepting at {}: {error}", self.address());
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

impl Drop for UnixDoor {
    fn drop(&mut self) {
        let ours = std::fs::symlink_metadata(&self.path)
            .is_ok_and(|file| (file.dev(), file.ino()) == self.inode);
        if ours && self.process == std::process::id() {
            // If it cannot be removed, the next server finds it dead.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

struct UnixBytes {
    stream: mio::net::UnixStream,
}

impl ByteStream for UnixBytes {
    fn is_connected(&mut self) -> io::Result<bool> {
        // Connecting to a unix socket does not take time: it is done or failed.
        Ok(true)
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

    fn descriptor(&self) -> Option<RawFd> {
        Some(self.stream.as_raw_fd())
    }
}
