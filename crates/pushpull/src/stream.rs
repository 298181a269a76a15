//! A TCP connection that is read through a buffer, and whose waits end where they have to.

use crate::link::{Wait, Wire, nonsense};
use rustix::net::{RecvFlags, SendFlags, recv, send, sockopt};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// For how long the rest of a message may keep silent.
const STALL: Duration = Duration::from_secs(60);
/// When a connection that says nothing is asked whether it is there: then, and so often.
const ALIVE: [Duration; 2] = [Duration::from_secs(30), Duration::from_secs(10)];
/// How many such questions may stay without an answer.
const ALIVE_TRIES: u32 = 3;
/// For how long the other side may take to see the end of what was sent to it.
const FINAL_FLUSH: Duration = Duration::from_secs(1);

/// See the module.
pub(crate) struct Stream {
    socket: TcpStream,
    buffer: Box<[u8]>,
    /// What is in the buffer and was not read.
    start: usize,
    end: usize,
    wait: Wait,
    /// The timeout that the socket has.
    timeout: Option<Duration>,
}

impl Stream {
    /// A connection that is new.
    pub fn new(socket: TcpStream, buffer_bytes: usize) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        sockopt::set_socket_keepalive(&socket, true)?;
        sockopt::set_tcp_keepidle(&socket, ALIVE[0])?;
        sockopt::set_tcp_keepintvl(&socket, ALIVE[1])?;
        sockopt::set_tcp_keepcnt(&socket, ALIVE_TRIES)?;
        Ok(Self {
            socket,
            buffer: vec![0; buffer_bytes].into(),
            start: 0,
            end: 0,
            wait: Wait::Message,
            timeout: None,
        })
    }

    /// The socket, for what is sent.
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Sets how long the next read waits.
    fn set_timeout(&mut self) -> io::Result<()> {
        let timeout = match self.wait {
            Wait::Message => None,
            Wait::Rest => Some(STALL),
            Wait::Until(until) => {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(late(self.wait));
                }
                Some(left)
            }
        };
        if timeout != self.timeout {
            self.socket.set_read_timeout(timeout)?;
            self.timeout = timeout;
        }
        Ok(())
    }

    fn receive(&mut self, into: Option<&mut [u8]>) -> io::Result<usize> {
        self.set_timeout()?;
        let read = match into {
            Some(into) => self.socket.read(into),
            None => self.socket.read(&mut self.buffer),
        };
        read.map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => late(self.wait),
            _ => error,
        })
    }

    /// What has come, without a wait.
    ///
    /// # Errors
    /// If the other side says no more, or more than the buffer has space for.
    pub fn arrived(&mut self) -> io::Result<&[u8]> {
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        if self.end == self.buffer.len() {
            return Err(nonsense("it says too much".to_owned()));
        }
        let space = &mut self.buffer[self.end..];
        match recv(&self.socket, space, RecvFlags::DONTWAIT) {
            Ok((0, _)) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok((count, _)) => self.end += count,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(&self.buffer[..self.end])
    }

    /// Forgets so many bytes of what [`Stream::arrived`] gave.
    pub fn consume(&mut self, bytes: usize) {
        self.start = (self.start + bytes).min(self.end);
    }

    /// Sends a few bytes without a wait.
    ///
    /// # Errors
    /// If the other side does not read.
    pub fn send_at_once(&self, bytes: &[u8]) -> io::Result<()> {
        let sent = send(
            &self.socket,
            bytes,
            SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
        );
        match sent {
            Ok(count) if count == bytes.len() => Ok(()),
            Ok(_) | Err(rustix::io::Errno::AGAIN) => {
                Err(nonsense("it asks, and reads no answer".to_owned()))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Ends what is sent, and waits a moment until the other side has seen it: a socket that is closed
    /// with something unread in it drops what it has not sent yet.
    pub fn final_flush(&mut self) {
        if self.socket.shutdown(Shutdown::Write).is_err() {
            return;
        }
        self.wait = Wait::Until(Instant::now() + FINAL_FLUSH);
        (self.start, self.end) = (0, 0);
        while self.receive(None).is_ok_and(|count| count > 0) {}
    }
}

fn late(wait: Wait) -> io::Error {
    let text = match wait {
        Wait::Until(_) => "its handshake takes too long",
        Wait::Message | Wait::Rest => "it has stopped in the middle of a message",
    };
    nonsense(text.to_owned())
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.start == self.end {
            if into.len() >= self.buffer.len() {
                return self.receive(Some(into));
            }
            (self.start, self.end) = (0, 0);
            self.end = self.receive(None)?;
        }
        let count = into.len().min(self.end - self.start);
        into[..count].copy_from_slice(&self.buffer[self.start..self.start + count]);
        self.start += count;
        Ok(count)
    }
}

impl Write for Stream {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.socket.write(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

impl Wire for Stream {
    fn waits(&mut self, wait: Wait) {
        self.wait = wait;
    }
}
