//! A TCP connection that is read through a buffer, and whose waits end where they have to.

use crate::link::{Wait, Wire, nonsense};
use rustix::net::{RecvFlags, SendFlags, recv, send, sockopt};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// For how long the rest of a message may be waited for in all, and what it has to bring for more.
const STALL: Duration = Duration::from_secs(60);
const BYTES_PER_SECOND_MIN: u64 = 64 << 10;
/// Bytes of answers that may wait for space in the socket.
const UNSENT_MAX: usize = 4096;
/// When a connection that says nothing is asked whether it is there: then, and so often.
const ALIVE: [Duration; 2] = [Duration::from_secs(30), Duration::from_secs(10)];
/// How many such questions may stay without an answer.
const ALIVE_TRIES: u32 = 3;
/// How long a read of the final flush waits, so that it is noticed when nobody waits for it any more.
const FINAL_LOOK: Duration = Duration::from_millis(100);

/// See the module.
pub(crate) struct Stream {
    socket: TcpStream,
    buffer: Box<[u8]>,
    /// What is in the buffer and was not read.
    start: usize,
    end: usize,
    wait: Wait,
    /// How much longer the rest of a message is waited for.
    patience: Duration,
    /// The timeout that the socket has.
    timeout: Option<Duration>,
    /// Of answers, what the socket had no space for.
    unsent: Vec<u8>,
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
            patience: STALL,
            timeout: None,
            unsent: Vec::new(),
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
            Wait::Rest if self.patience.is_zero() => return Err(late(self.wait)),
            // In whole seconds, so that it changes seldom.
            Wait::Rest => Some(Duration::from_secs(self.patience.as_secs() + 1)),
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
        let began = (self.wait == Wait::Rest).then(Instant::now);
        let read = match into {
            Some(into) => self.socket.read(into),
            None => self.socket.read(&mut self.buffer),
        };
        if let (Some(began), Ok(count)) = (began, &read) {
            let earned = Duration::from_micros(*count as u64 * 1_000_000 / BYTES_PER_SECOND_MIN);
            self.patience = (self.patience + earned).min(STALL);
            self.patience = self.patience.saturating_sub(began.elapsed());
        }
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

    /// Sends a few bytes without a wait. What the socket has no space for is sent with the next ones, or has to
    /// be taken by [`Stream::take_unsent`].
    ///
    /// # Errors
    /// If the other side asks, and does not read.
    pub fn send_at_once(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.unsent.extend_from_slice(bytes);
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match send(&self.socket, &self.unsent, flags) {
            Ok(count) => drop(self.unsent.drain(..count)),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        match self.unsent.len() > UNSENT_MAX {
            true => Err(nonsense("it asks, and reads no answer".to_owned())),
            false => Ok(()),
        }
    }

    /// What has to be sent before anything else.
    pub fn take_unsent(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.unsent)
    }

    /// Ends what is sent, and reads on until the other side ends as well, or `goes_on` says no: a socket that is
    /// closed before, and hears something then, drops what it has not sent yet. Whether the other side
    /// has ended, and so has read everything.
    pub fn final_flush(&mut self, goes_on: impl Fn() -> bool) -> bool {
        // One that has ended already is not connected any more; what came of it is still read.
        let _ = self.socket.shutdown(Shutdown::Write);
        while goes_on() {
            self.wait = Wait::Until(Instant::now() + FINAL_LOOK);
            match self.receive(None) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {}
                Err(_) => return false,
            }
        }
        false
    }
}

fn late(wait: Wait) -> io::Error {
    let text = match wait {
        Wait::Until(_) => "its handshake takes too long",
        Wait::Message | Wait::Rest => {
            "it has stopped in the middle of a message, or brings it too slowly"
        }
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
        if wait == Wait::Rest && self.wait != Wait::Rest {
            self.patience = STALL;
        }
        self.wait = wait;
    }
}
