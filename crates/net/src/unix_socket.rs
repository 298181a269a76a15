//! The socket that a server of this host listens at: its user's alone, and
//! replaced only when it is dead.

use crate::contract::*;
use crate::socket::next_connection;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::net::sockopt;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;

/// How often, and how long apart, the lock of a directory is tried.
const LOCK_TRIES: u32 = 100;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// A bound socket (mode 0600) that takes connections. Its file goes with it.
#[derive(Debug)]
pub struct UnixSocket {
    listener: mio::net::UnixListener,
    path: PathBuf,
    /// Device and inode of our socket, to remove no other.
    inode: (u64, u64),
    /// A forked child that drops its copy must not take the socket away.
    process: u32,
}

impl UnixSocket {
    /// Binds and listens at `path`. A socket that a dead server left there is
    /// replaced; a living server's, or any other file, is not.
    ///
    /// # Errors
    /// [`NetError::Address`], saying what is in the way.
    pub fn bind(path: &Path) -> Result<Self, NetError> {
        let socket = bind_alone(path)?;
        let inode = std::fs::symlink_metadata(path)
            .map(|file| (file.dev(), file.ino()))
            .map_err(|error| failed(path, "looking at the socket just made", error))?;
        let listener = std::os::unix::net::UnixListener::from(socket);
        Ok(Self {
            listener: mio::net::UnixListener::from_std(listener),
            path: path.to_owned(),
            inode,
            process: std::process::id(),
        })
    }

    /// Whether a server could listen at `path`, as far as what is there says: nothing, or a
    /// socket that a dead server left. Changes nothing; never waits.
    ///
    /// # Errors
    /// [`NetError::Address`], saying what is in the way.
    pub fn probe(path: &Path) -> Result<(), NetError> {
        let address = socket_address(path)?;
        match std::fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            _ => refuse_living(path, &address),
        }
    }

    /// Connects to the socket at `path`; never waits.
    ///
    /// # Errors
    /// [`NetError::Refused`] if nobody answers there, naming `address`.
    pub fn connect(path: &str, address: &str) -> Result<mio::net::UnixStream, NetError> {
        mio::net::UnixStream::connect(path).map_err(|error| {
            let text = match error.kind() {
                io::ErrorKind::WouldBlock => {
                    format!("connecting to {address}: {BACKLOG} others wait there already")
                }
                _ => format!("connecting to {address}: {error}"),
            };
            NetError::Refused(text)
        })
    }

    /// Where it listens.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The next connection, if one waits.
    ///
    /// # Errors
    /// As [`Listener::accept`].
    pub fn accept(&mut self) -> Result<Option<mio::net::UnixStream>, NetError> {
        let accepted = next_connection(|| self.listener.accept());
        let accepted = accepted.map_err(|error| {
            NetError::System(format!("accepting at {}: {error}", self.path.display()))
        })?;
        Ok(accepted.map(|(stream, _)| stream))
    }

    /// As [`Listener::readiness`].
    pub fn readiness(&mut self) -> Readiness<'_> {
        Readiness::Source(&mut self.listener)
    }

    /// As [`Listener::descriptor`].
    pub fn descriptor(&self) -> RawFd {
        self.listener.as_raw_fd()
    }

    /// Who is at the other end of `stream`, as the kernel knows it.
    ///
    /// # Errors
    /// If the connection is gone.
    pub fn peer(stream: &mio::net::UnixStream, address: &str) -> Result<Peer, NetError> {
        let credentials = sockopt::socket_peercred(stream.as_fd())
            .map_err(|error| NetError::System(format!("{address}: {error}")))?;
        let pid = credentials.pid.as_raw_pid() as u32;
        Ok(Peer {
            address: address.to_owned(),
            uid: Some(credentials.uid.as_raw()),
            pid: Some(pid),
            in_process: pid == std::process::id(),
            certificates: Vec::new(),
        })
    }

    /// As [`UnixSocket::peer`] for a connection that was taken here. Clients
    /// have no address of their own; their process says who they are.
    ///
    /// # Errors
    /// If the connection is gone.
    pub fn client(&self, stream: &mio::net::UnixStream, scheme: &str) -> Result<Peer, NetError> {
        let mut peer = Self::peer(stream, "")?;
        let pid = peer.pid.unwrap_or(0);
        peer.address = format!("{scheme}://{} (process {pid})", self.path.display());
        Ok(peer)
    }
}

impl Drop for UnixSocket {
    fn drop(&mut self) {
        let ours = std::fs::symlink_metadata(&self.path)
            .is_ok_and(|file| (file.dev(), file.ino()) == self.inode);
        if ours && self.process == std::process::id() {
            // If it cannot be removed, the next server finds it dead.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn failed(path: &Path, doing: &str, error: impl std::fmt::Display) -> NetError {
    NetError::Address(format!("socket {}: {doing}: {error}", path.display()))
}

/// Binds and listens at `path`. A socket that a dead server left there is
/// replaced; a living server's, or any other file, is not.
fn bind_alone(path: &Path) -> Result<OwnedFd, NetError> {
    let address = socket_address(path)?;
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
            refuse_living(path, &address)?;
            std::fs::remove_file(path)
                .map_err(|error| failed(path, "removing a dead socket", error))?;
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

fn socket_address(path: &Path) -> Result<SocketAddrUnix, NetError> {
    SocketAddrUnix::new(path)
        .map_err(|error| failed(path, "the path of a socket has at most 107 bytes", error))
}

/// Refuses what is there if it is no socket, or one at which a server listens: such a server has
/// taken the connection, or has no place for it.
fn refuse_living(path: &Path, address: &SocketAddrUnix) -> Result<(), NetError> {
    let file = std::fs::symlink_metadata(path)
        .map_err(|error| failed(path, "looking at what is there", error))?;
    if !file.file_type().is_socket() {
        return Err(failed(path, "binding", "a file that is no socket is there"));
    }
    let probe = new_socket(path)?;
    match rustix::net::connect(&probe, address) {
        Err(rustix::io::Errno::CONNREFUSED) => Ok(()),
        Ok(()) | Err(rustix::io::Errno::AGAIN) => {
            Err(failed(path, "binding", "a server answers there"))
        }
        Err(error) => Err(failed(path, "asking who is there", error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_says_what_a_bind_would_meet_and_waits_for_nobody() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        UnixSocket::probe(&path).unwrap();
        // One that takes no connection, and has no place for another to wait.
        let listener = new_socket(&path).unwrap();
        let address = socket_address(&path).unwrap();
        rustix::net::bind(&listener, &address).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let waiting = std::iter::from_fn(|| {
            let socket = new_socket(&path).unwrap();
            rustix::net::connect(&socket, &address)
                .ok()
                .map(|()| socket)
        });
        let waiting: Vec<OwnedFd> = waiting.collect();
        let refused = UnixSocket::probe(&path).unwrap_err().to_string();
        assert!(refused.contains("a server answers there"), "{refused}");
        // A dead one.
        drop((waiting, listener));
        UnixSocket::probe(&path).unwrap();
        assert!(path.exists());
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "thesis").unwrap();
        let refused = UnixSocket::probe(&path).unwrap_err().to_string();
        assert!(refused.contains("no socket"), "{refused}");
    }
}
