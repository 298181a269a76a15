//! A client's side of Redis: one socket, which one thread uses and waits for.
//!
//! Commands are written one after the other without a wait, and answers come in their order. The thread looks for an
//! answer without a wait, or for some time, and finds the rest of it later: with a window of messages on their way this is
//! most of what a producer does.

use super::super::server_url::reach;
use super::resp::{Reader, RespError, Value, encode};
use super::url::RedisUrl;
use crate::failure::{Code, Failure};
use rustix::net::{RecvFlags, recv};
use std::io::{self, IoSlice, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// How long it may take to connect and to log in.
const CONNECT: Duration = Duration::from_secs(10);
/// How long the server may say nothing while an answer is due, or take nothing of what is sent to it.
pub const SILENCE: Duration = Duration::from_secs(30);
/// How long one wait of these is: a member that was stopped on purpose does not take that for the server's silence.
const LOOK: Duration = Duration::from_millis(500);
/// Bytes that are read at once.
const READ_BYTES: usize = 256 << 10;
/// What is longer is written from where it lies.
const COPIED_BYTES_MAX: usize = 32 << 10;
/// What an answer has beside a message.
const PART_BYTES_LEAST: u64 = 1 << 20;

/// The connection.
#[derive(Debug)]
pub struct Connection {
    socket: TcpStream,
    /// Without a password.
    name: String,
    reader: Reader,
    scratch: Box<[u8]>,
    /// The timeout of reading that the socket has.
    wait: Option<Duration>,
    /// Commands that are not written yet.
    output: Vec<u8>,
}

impl Connection {
    /// Connects and logs in.
    pub fn connect(url: &RedisUrl, message_bytes: u64) -> Result<Self, Failure> {
        let name = url.to_string();
        let until = Instant::now() + CONNECT;
        let socket = reach(&url.place, until)
            .map_err(|error| Failure::new(Code::NoServer, &name, format!("no server: {error}")))?;
        let set = || {
            socket.set_nodelay(true)?;
            socket.set_write_timeout(Some(LOOK))
        };
        set().map_err(|error| Failure::new(Code::Failure, &name, error))?;
        let mut connection = Self {
            socket,
            name,
            reader: Reader::new(message_bytes.max(PART_BYTES_LEAST)),
            scratch: vec![0; READ_BYTES].into(),
            wait: None,
            output: Vec::new(),
        };
        connection.log_in(url)?;
        Ok(connection)
    }

    fn log_in(&mut self, url: &RedisUrl) -> Result<(), Failure> {
        if let Some(credentials) = &url.credentials {
            let password = credentials.password.as_bytes();
            match &credentials.user {
                Some(user) => self.put(&[b"AUTH", user.as_bytes(), password]),
                None => self.put(&[b"AUTH", password]),
            }
            self.done("AUTH", CONNECT)?;
        }
        if url.database != 0 {
            self.put(&[b"SELECT", url.database.to_string().as_bytes()]);
            self.done("SELECT", CONNECT)?;
        }
        // A server that wants a password says so, and one that is none does too.
        self.put(&[b"PING"]);
        self.done("PING", CONNECT).map(|_| ())
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sends a command and waits for its answer. No other answer may be due.
    pub fn call(&mut self, parts: &[&[u8]]) -> Result<Value, Failure> {
        self.put(parts);
        self.done(&String::from_utf8_lossy(parts[0]), SILENCE)
    }

    fn done(&mut self, what: &str, silence: Duration) -> Result<Value, Failure> {
        self.flush()?;
        match self.due(what, silence)? {
            Value::Error(why) => Err(self.refused(what, &why)),
            value => Ok(value),
        }
    }

    /// Adds a command to what is to be written.
    pub fn put(&mut self, parts: &[&[u8]]) {
        encode(&mut self.output, parts);
    }

    /// Adds the last part of a command in pieces, and its line end. `head` is all before it.
    pub fn put_message(&mut self, head: &[u8], pieces: [&[u8]; 3]) -> Result<(), Failure> {
        self.output.extend_from_slice(head);
        let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
        super::resp::length(&mut self.output, bytes);
        if bytes <= COPIED_BYTES_MAX {
            for piece in pieces.iter().chain([&&b"\r\n"[..]]) {
                self.output.extend_from_slice(piece);
            }
            return Ok(());
        }
        let [first, second, third] = pieces.map(IoSlice::new);
        let mut output = std::mem::take(&mut self.output);
        let mut parts = [
            IoSlice::new(&output),
            first,
            second,
            third,
            IoSlice::new(b"\r\n"),
        ];
        let written = self.write(&mut parts);
        output.clear();
        self.output = output;
        written
    }

    /// Bytes of commands that are not written yet.
    pub fn unwritten(&self) -> usize {
        self.output.len()
    }

    /// Writes all commands.
    pub fn flush(&mut self) -> Result<(), Failure> {
        if self.output.is_empty() {
            return Ok(());
        }
        let mut output = std::mem::take(&mut self.output);
        let written = self.write(&mut [IoSlice::new(&output)]);
        output.clear();
        self.output = output;
        written
    }

    /// The next answer, if it has come; waits this long for it.
    pub fn answer(&mut self, wait: Duration) -> Result<Option<Value>, Failure> {
        let mut until = None;
        loop {
            if let Some(value) = self.next()? {
                return Ok(Some(value));
            }
            // Part of it may have come: no more than twice the time is spent on it.
            if until.is_some_and(|until| Instant::now() >= until) || !self.fill(wait)? {
                return Ok(None);
            }
            if !wait.is_zero() {
                until.get_or_insert_with(|| Instant::now() + wait);
            }
        }
    }

    /// The next answer, which is due.
    pub fn due(&mut self, what: &str, silence: Duration) -> Result<Value, Failure> {
        let mut waited = Duration::ZERO;
        loop {
            if let Some(value) = self.next()? {
                return Ok(value);
            }
            match self.fill(LOOK)? {
                true => waited = Duration::ZERO,
                false => waited += LOOK,
            }
            if waited >= silence {
                return Err(self.silent(what, silence));
            }
        }
    }

    fn next(&mut self) -> Result<Option<Value>, Failure> {
        self.reader.next().map_err(|error| self.strange(&error))
    }

    /// Reads what is there; waits this long if nothing is. Returns whether something has come.
    fn fill(&mut self, wait: Duration) -> Result<bool, Failure> {
        let flags = match wait.is_zero() {
            true => RecvFlags::DONTWAIT,
            false => {
                // What is shorter is none for the socket.
                let wait = wait.max(Duration::from_micros(1));
                if self.wait != Some(wait) {
                    let set = self.socket.set_read_timeout(Some(wait));
                    set.map_err(|error| self.lost(&error))?;
                    self.wait = Some(wait);
                }
                RecvFlags::empty()
            }
        };
        match recv(&self.socket, &mut *self.scratch, flags).map_err(io::Error::from) {
            Ok((0, _)) => {
                let what = "the server has closed the connection without a word; is this its address for Redis?";
                Err(Failure::new(Code::Failure, &self.name, what))
            }
            Ok((bytes, _)) => {
                self.reader.take(&self.scratch[..bytes]);
                Ok(true)
            }
            Err(error) if is_nothing_yet(&error) => Ok(false),
            Err(error) => Err(self.lost(&error)),
        }
    }

    /// Writes all of it. Answers wait in the server: it goes on reading, for they are short.
    fn write(&mut self, mut parts: &mut [IoSlice<'_>]) -> Result<(), Failure> {
        IoSlice::advance_slices(&mut parts, 0);
        let mut waited = Duration::ZERO;
        while !parts.is_empty() {
            match self.socket.write_vectored(parts) {
                Ok(written) => {
                    IoSlice::advance_slices(&mut parts, written);
                    waited = Duration::ZERO;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_nothing_yet(&error) => {
                    waited += LOOK;
                    if waited >= SILENCE {
                        let what = format!("the server takes nothing for {} s", SILENCE.as_secs());
                        return Err(Failure::new(Code::Timeout, &self.name, what));
                    }
                }
                Err(error) => return Err(self.why_lost(&error)),
            }
        }
        Ok(())
    }

    /// Why a connection is lost that cannot be written to: the server may have said it.
    fn why_lost(&mut self, error: &io::Error) -> Failure {
        while let Ok(true) = self.fill(Duration::ZERO) {}
        while let Ok(Some(value)) = self.reader.next() {
            if let Value::Error(why) = value {
                return Failure::new(Code::Failure, &self.name, format!("the server ends: {why}"));
            }
        }
        self.lost(error)
    }

    fn lost(&self, error: &io::Error) -> Failure {
        let what = format!("the connection is lost: {error}");
        Failure::new(Code::Failure, &self.name, what)
    }

    fn strange(&self, error: &RespError) -> Failure {
        let what = format!("what the server says is not the protocol of Redis: {error}");
        Failure::new(Code::Failure, &self.name, what)
    }

    /// Of an answer that has something else in it than it should.
    pub fn unexpected(&self, what: &str) -> Failure {
        let what = format!("{what} has another answer than Redis gives");
        Failure::new(Code::Failure, &self.name, what)
    }

    /// Of a server that says nothing although an answer is due.
    pub fn silent(&self, what: &str, silence: Duration) -> Failure {
        let what = format!(
            "the server does not answer for {} s: {what}",
            silence.as_secs()
        );
        Failure::new(Code::Timeout, &self.name, what)
    }

    /// Of a server that does not do what it was asked for.
    pub fn refused(&self, what: &str, why: &str) -> Failure {
        let what = format!("the server refuses {what}: {why}");
        Failure::new(Code::Failure, &self.name, what)
    }
}

fn is_nothing_yet(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}
