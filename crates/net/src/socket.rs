//! What all sockets of the system have in common.

use crate::byte_stream::ByteStream;
use crate::readiness::{Notify, Readiness};
use rustix::net::{SendAncillaryBuffer, SendFlags};
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::os::fd::{AsFd, AsRawFd, RawFd};

/// Writes to a connected socket as [`io::Write::write_vectored`] does, but a peer that is
/// gone is an error and no signal: in a C or C++ program SIGPIPE would end the process.
pub fn write_to_socket(socket: impl AsFd, from: &[IoSlice<'_>]) -> io::Result<usize> {
    let mut control = SendAncillaryBuffer::default();
    Ok(rustix::net::sendmsg(
        socket,
        from,
        &mut control,
        SendFlags::NOSIGNAL,
    )?)
}

/// A connected socket, or one that is being connected.
pub(crate) trait Socket: Read + mio::event::Source + AsFd + AsRawFd + Send {
    /// As [`ByteStream::is_connected`].
    fn is_connected(&mut self) -> io::Result<bool>;

    /// Ends the writing half.
    fn shut(&self) -> io::Result<()>;

    /// As [`ByteStream::stripes`], without TLS and with it.
    fn stripes(&self) -> Option<[&'static str; 2]> {
        None
    }

    /// As [`ByteStream::bundled`].
    fn bundled(&self) {}

    /// As [`ByteStream::unbundled`].
    fn unbundled(&self) {}
}

/// Reads that empty a socket that ends: of one that carries chunks, what waits for its turn there may fill the
/// system's buffer.
const DRAINED_READS: usize = 512;

/// A socket's bytes.
pub(crate) struct SocketBytes<S>(pub S);

impl<S: Socket> ByteStream for SocketBytes<S> {
    fn is_connected(&mut self) -> io::Result<bool> {
        self.0.is_connected()
    }

    fn read_vectored(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.0.read_vectored(into)
    }

    fn write_vectored(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        write_to_socket(&self.0, from)
    }

    /// Ends the writing half and throws away what has arrived: a socket that
    /// is closed over unread bytes resets the connection, and with it may go
    /// what was just written.
    fn finish(&mut self) {
        // A connection that is gone already needs no end.
        let _ = self.0.shut();
        let mut scratch = [0; 16 * 1024];
        for _ in 0..DRAINED_READS {
            match self.0.read(&mut scratch) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
    }

    fn readiness(&mut self) -> Readiness<'_> {
        Readiness::Source(&mut self.0)
    }

    fn attach(&mut self, _notify: Notify) {}

    fn descriptors(&self) -> Vec<RawFd> {
        vec![self.0.as_raw_fd()]
    }

    fn stripes(&self) -> Option<&'static str> {
        self.0.stripes().map(|[plain, _]| plain)
    }

    fn bundled(&mut self) {
        self.0.bundled();
    }

    fn unbundled(&mut self) {
        self.0.unbundled();
    }
}

/// Takes the next connection that `accept` gives, if one waits; passes over
/// those that are gone already.
pub(crate) fn next_connection<T>(accept: impl Fn() -> io::Result<T>) -> io::Result<Option<T>> {
    loop {
        match accept() {
            Ok(connection) => return Ok(Some(connection)),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock => return Ok(None),
                io::ErrorKind::Interrupted
                | io::ErrorKind::ConnectionAborted
                | io::ErrorKind::ConnectionReset => {}
                _ => return Err(error),
            },
        }
    }
}
