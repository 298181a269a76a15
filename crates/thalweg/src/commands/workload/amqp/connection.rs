//! A client's side of AMQP 0-9-1: one socket, which one thread uses and waits for.
//!
//! ```text
//!  connect ──► open a channel ──► call (waits for its answer), send, publish ──► close
//!                                   │
//!                                   └──► next: what the server says by itself
//! ```
//!
//! Nothing is sent later than it is said, and nothing is read that nobody waits for: a consumer that does not read is
//! not sent more than sockets hold, and times of messages are those at which they are handled. There are no heartbeats,
//! so that a member which is stopped on purpose is not taken for dead.

use super::super::server_url::reach;
use super::stream::{Received, Stream, is_nothing_yet};
use super::url::AmqpUrl;
use crate::failure::{Code, Failure};
use ::amqp::{
    ContentHeader, FRAME_END, FRAME_OVERHEAD, Frame, Method, PROTOCOL_HEADER, RawProperties,
    ShortString, Table, Value, basic, channel, connection_methods,
};
use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::time::{Duration, Instant};
use workload::MESSAGE_BYTES_MAX;

/// How long it may take to connect and to log in.
const CONNECT: Duration = Duration::from_secs(10);
/// How long the server may take to answer a request.
const REQUEST: Duration = Duration::from_secs(30);
/// How long the server may take nothing of what is sent to it.
const WRITE: Duration = Duration::from_secs(60);
/// How often it is looked for what has come while the server takes nothing.
const LOOK: Duration = Duration::from_millis(5);
/// Bytes that have come and are not looked at, above which nothing more is read while something is written.
const UNREAD_BYTES_MAX: usize = 64 << 20;
/// The largest frames that are taken; a server that has no limit gets this one.
const FRAME_MAX: u32 = 1 << 20;
/// What the server says before anything is negotiated: RabbitMQ's limit.
const FIRST_FRAME_MAX: u32 = 128 << 10;
/// A body as long as is reserved at once. A longer one grows as it comes.
const RESERVED_BYTES_MAX: u64 = 8 << 20;

/// What the server says by itself.
#[derive(Debug)]
pub enum Event {
    /// A message for a consumer.
    Delivery(Delivery),
    /// What became of messages that were published.
    Confirm {
        /// Which, counted from 1.
        tag: u64,
        /// Whether of all before it too.
        multiple: bool,
        /// Whether they are taken.
        is_taken: bool,
    },
}

/// A message.
#[derive(Debug)]
pub struct Delivery {
    pub tag: u64,
    pub is_redelivered: bool,
    pub body: Bytes,
}

/// A message that comes: its header, then its body in frames.
#[derive(Debug)]
struct Partial {
    channel: u16,
    deliver: basic::Deliver,
    /// Bytes of the body, once the header is there.
    bytes: Option<u64>,
    body: BytesMut,
}

/// What a frame was.
enum Taken {
    Nothing,
    Event(Event),
    Answer(u16, Method),
}

/// Where a message goes.
#[derive(Debug, Clone)]
pub struct Route {
    pub exchange: ShortString,
    pub key: ShortString,
}

/// The connection.
#[derive(Debug)]
pub struct Connection {
    stream: Stream,
    /// Without a password.
    name: String,
    frame_max: u32,
    input: BytesMut,
    partial: Option<Partial>,
    /// What came while an answer was waited for.
    events: VecDeque<Event>,
    /// Why the server takes no messages, if it says so.
    blocked: Option<String>,
    /// Whether the user knows of that.
    has_told: bool,
    head: BytesMut,
    /// Whether it can say goodbye.
    is_open: bool,
    /// Whether nobody wants messages any more.
    is_closing: bool,
}

impl Connection {
    /// Connects and logs in.
    pub fn connect(url: &AmqpUrl) -> Result<Self, Failure> {
        let name = url.to_string();
        let until = Instant::now() + CONNECT;
        let socket = reach(&(url.host.clone(), url.port), until)
            .map_err(|error| Failure::new(Code::NoServer, &name, format!("no server: {error}")))?;
        let set = || {
            socket.set_nodelay(true)?;
            socket.set_write_timeout(Some(LOOK))
        };
        set().map_err(|error| Failure::new(Code::Failure, &name, error))?;
        let mut connection = Self {
            stream: Stream::open(socket, url, until)?,
            name,
            frame_max: FIRST_FRAME_MAX,
            input: BytesMut::new(),
            partial: None,
            events: VecDeque::new(),
            blocked: None,
            has_told: false,
            head: BytesMut::new(),
            is_open: false,
            is_closing: false,
        };
        connection.log_in(url, until)?;
        connection.is_open = true;
        Ok(connection)
    }

    fn log_in(&mut self, url: &AmqpUrl, until: Instant) -> Result<(), Failure> {
        self.write(&mut [IoSlice::new(&PROTOCOL_HEADER)])?;
        let Method::ConnectionStart(start) = self.answer(0, until, "connection.start")? else {
            return Err(self.strange("something else than connection.start"));
        };
        let mechanisms = String::from_utf8_lossy(&start.mechanisms).into_owned();
        if !mechanisms.split(' ').any(|one| one == "PLAIN") {
            return Err(self.strange(&format!("the mechanisms {mechanisms}, and not PLAIN")));
        }
        let capabilities = Table::of([
            ("publisher_confirms", Value::Bool(true)),
            ("basic.nack", Value::Bool(true)),
            ("connection.blocked", Value::Bool(true)),
            ("consumer_cancel_notify", Value::Bool(true)),
            ("authentication_failure_close", Value::Bool(true)),
        ]);
        let response = format!("\0{}\0{}", url.user, url.password);
        let start_ok = connection_methods::StartOk {
            client_properties: Table::of([
                ("product", Value::text("thalweg workload")),
                ("version", Value::text(env!("CARGO_PKG_VERSION"))),
                ("capabilities", Value::Table(capabilities)),
            ]),
            mechanism: short("PLAIN"),
            response: response.into_bytes().into(),
            locale: short("en_US"),
        };
        self.send(0, start_ok)?;
        let Method::ConnectionTune(tune) = self.answer(0, until, "the login")? else {
            return Err(self.strange("something else than connection.tune"));
        };
        self.frame_max = match tune.frame_max {
            0 => FRAME_MAX,
            bytes => bytes.min(FRAME_MAX),
        };
        if self.frame_max <= FRAME_OVERHEAD {
            return Err(self.strange("frames without room for anything"));
        }
        let tune_ok = connection_methods::TuneOk {
            channel_max: tune.channel_max,
            frame_max: self.frame_max,
            heartbeat: 0,
        };
        self.send(0, tune_ok)?;
        let virtual_host = ShortString::try_from(&*url.virtual_host);
        let virtual_host = virtual_host
            .map_err(|error| Failure::usage(&self.name, format!("the virtual host has {error}")))?;
        self.send(0, connection_methods::Open { virtual_host })?;
        match self.answer(0, until, "the virtual host")? {
            Method::ConnectionOpenOk(_) => Ok(()),
            _ => Err(self.strange("something else than connection.open-ok")),
        }
    }

    /// Opens a channel.
    pub fn open_channel(&mut self, channel: u16) -> Result<(), Failure> {
        self.call(channel, channel::Open {}).map(|_| ())
    }

    /// Sends a request and waits for its answer. What else comes is kept for [`Connection::next`].
    pub fn call(&mut self, channel: u16, method: impl Into<Method>) -> Result<Method, Failure> {
        let method = method.into();
        let what = Method::name_of(method.id()).unwrap_or("a request");
        self.send(channel, method)?;
        self.answer(channel, Instant::now() + REQUEST, what)
    }

    /// Sends what has no answer.
    pub fn send(&mut self, channel: u16, method: impl Into<Method>) -> Result<(), Failure> {
        let mut head = std::mem::take(&mut self.head);
        head.clear();
        let method = method.into();
        Frame::Method { channel, method }.encode(&mut head);
        let written = self.write(&mut [IoSlice::new(&head)]);
        self.head = head;
        written
    }

    /// Publishes a message that is given in pieces, without a copy of them.
    pub fn publish(
        &mut self,
        channel: u16,
        route: &Route,
        properties: &RawProperties,
        pieces: [&[u8]; 3],
    ) -> Result<(), Failure> {
        let mut head = std::mem::take(&mut self.head);
        head.clear();
        let method = basic::Publish {
            exchange: route.exchange.clone(),
            routing_key: route.key.clone(),
            mandatory: false,
            immediate: false,
        };
        let method = method.into();
        Frame::Method { channel, method }.encode(&mut head);
        let mut left: usize = pieces.iter().map(|piece| piece.len()).sum();
        let header = ContentHeader {
            class: basic::Publish::ID.class,
            body_bytes: left as u64,
            properties: properties.clone(),
        };
        Frame::Header { channel, header }.encode(&mut head);
        let most = (self.frame_max - FRAME_OVERHEAD) as usize;
        let mut pieces = pieces.into_iter();
        let mut piece: &[u8] = &[];
        let mut written = Ok(());
        while left > 0 && written.is_ok() {
            let mut of_frame = left.min(most);
            left -= of_frame;
            head.extend_from_slice(&body_head(channel, of_frame as u32));
            let mut parts = vec![IoSlice::new(&head)];
            while of_frame > 0 {
                if piece.is_empty() {
                    piece = pieces.next().expect("the frames have what the pieces have");
                }
                let (part, rest) = piece.split_at(piece.len().min(of_frame));
                of_frame -= part.len();
                parts.push(IoSlice::new(part));
                piece = rest;
            }
            parts.push(IoSlice::new(&[FRAME_END]));
            written = self.write(&mut parts);
            drop(parts);
            head.clear();
        }
        self.head = head;
        written
    }

    /// What the server says next; waits this long for it.
    pub fn next(&mut self, wait: Duration) -> Result<Option<Event>, Failure> {
        let mut until = None;
        loop {
            if let Some(event) = self.read_next()? {
                return Ok(Some(event));
            }
            // Part of a message may have come: no more than twice the time is spent on it.
            if until.is_some_and(|until| Instant::now() >= until) || !self.fill(wait)? {
                return Ok(None);
            }
            if !wait.is_zero() {
                until.get_or_insert_with(|| Instant::now() + wait);
            }
        }
    }

    /// What the server has said, of what has been read already.
    pub fn read_next(&mut self) -> Result<Option<Event>, Failure> {
        if let Some(event) = self.events.pop_front() {
            return Ok(Some(event));
        }
        while let Some(frame) = self.frame()? {
            match self.take(frame)? {
                Taken::Nothing => {}
                Taken::Event(event) => return Ok(Some(event)),
                Taken::Answer(_, method) => {
                    return Err(self.strange(&format!("{method:?}, which nobody has asked for")));
                }
            }
        }
        Ok(None)
    }

    /// Says goodbye, and waits until the server has done all that it was asked for.
    pub fn close(&mut self) -> Result<(), Failure> {
        self.is_open = false;
        self.is_closing = true;
        self.send(0, goodbye())?;
        match self.answer(0, Instant::now() + REQUEST, "connection.close")? {
            Method::ConnectionCloseOk(_) => Ok(()),
            _ => Err(self.strange("something else than connection.close-ok")),
        }
    }

    /// Waits for the answer to what was asked on a channel.
    fn answer(&mut self, channel: u16, until: Instant, what: &str) -> Result<Method, Failure> {
        loop {
            while let Some(frame) = self.frame()? {
                match self.take(frame)? {
                    Taken::Nothing => {}
                    // Without a prefetch there may be any number of them.
                    Taken::Event(_) if self.is_closing => {}
                    Taken::Event(event) => self.events.push_back(event),
                    Taken::Answer(of, method) if of == channel => return Ok(method),
                    Taken::Answer(of, method) => {
                        return Err(self.strange(&format!("{method:?} on channel {of}")));
                    }
                }
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let what = format!("the server does not answer: {what}");
                return Err(Failure::new(Code::Timeout, &self.name, what));
            }
            self.fill(left)?;
        }
    }

    /// The next frame of what was read.
    fn frame(&mut self) -> Result<Option<Frame>, Failure> {
        let decoded = Frame::decode(&mut self.input, self.frame_max);
        decoded.map_err(|error| {
            let what = format!("what the server says is no AMQP 0-9-1: {error}");
            Failure::new(Code::Failure, &self.name, what)
        })
    }

    /// Takes a frame. What ends the connection is an error.
    fn take(&mut self, frame: Frame) -> Result<Taken, Failure> {
        let (channel, method) = match frame {
            Frame::Heartbeat => return Ok(Taken::Nothing),
            Frame::Header { channel, header } => return self.header(channel, &header),
            Frame::Body { channel, bytes } => return self.body(channel, bytes),
            Frame::Method { channel, method } => (channel, method),
        };
        Ok(match method {
            Method::ConnectionClose(close) => {
                self.is_open = false;
                // What the server says is why; whether it hears the answer changes nothing.
                let _ = self.send(0, connection_methods::CloseOk {});
                return Err(self.closed(close.reply_code, &close.reply_text));
            }
            Method::ChannelClose(close) => {
                let _ = self.send(channel, channel::CloseOk {});
                return Err(self.closed(close.reply_code, &close.reply_text));
            }
            Method::ConnectionBlocked(blocked) => {
                // It may last, and nothing fails by it before the run has waited for long enough.
                if !self.has_told {
                    self.has_told = true;
                    let (name, reason) = (&self.name, &blocked.reason);
                    eprintln!("note: {name}: the server takes no messages for now: {reason}");
                }
                self.blocked = Some(blocked.reason.to_string());
                Taken::Nothing
            }
            Method::ConnectionUnblocked(_) => {
                self.blocked = None;
                Taken::Nothing
            }
            Method::BasicDeliver(deliver) if self.partial.is_none() => {
                self.partial = Some(Partial {
                    channel,
                    deliver,
                    bytes: None,
                    body: BytesMut::new(),
                });
                Taken::Nothing
            }
            Method::BasicAck(ack) => Taken::Event(Event::Confirm {
                tag: ack.delivery_tag,
                multiple: ack.multiple,
                is_taken: true,
            }),
            Method::BasicNack(nack) => Taken::Event(Event::Confirm {
                tag: nack.delivery_tag,
                multiple: nack.multiple,
                is_taken: false,
            }),
            Method::BasicCancel(_) => {
                let what = "the server has ended a consumer: its queue is gone";
                return Err(Failure::new(Code::Failure, &self.name, what));
            }
            Method::BasicDeliver(_) | Method::BasicReturn(_) => {
                return Err(self.strange("a message where none is due"));
            }
            answer => Taken::Answer(channel, answer),
        })
    }

    fn header(&mut self, channel: u16, header: &ContentHeader) -> Result<Taken, Failure> {
        let bytes = header.body_bytes;
        if bytes > MESSAGE_BYTES_MAX {
            return Err(self.strange(&format!("a message of {bytes} bytes")));
        }
        match &mut self.partial {
            Some(partial) if partial.channel == channel && partial.bytes.is_none() => {
                partial.bytes = Some(bytes);
                Ok(match bytes {
                    0 => self.deliver(Bytes::new()),
                    _ => Taken::Nothing,
                })
            }
            _ => Err(self.strange("a header without its message")),
        }
    }

    fn body(&mut self, channel: u16, bytes: Bytes) -> Result<Taken, Failure> {
        let partial = self.partial.as_mut();
        let Some(partial) = partial.filter(|partial| partial.channel == channel) else {
            return Err(self.strange("a body without its message"));
        };
        let Some(wanted) = partial.bytes else {
            return Err(self.strange("a body without its header"));
        };
        let has = (partial.body.len() + bytes.len()) as u64;
        if has > wanted {
            return Err(self.strange("a body that is longer than its header says"));
        }
        if has < wanted {
            if partial.body.is_empty() {
                partial
                    .body
                    .reserve(wanted.min(RESERVED_BYTES_MAX) as usize);
            }
            partial.body.extend_from_slice(&bytes);
            return Ok(Taken::Nothing);
        }
        if partial.body.is_empty() {
            // Of one frame, as most are: no copy.
            return Ok(self.deliver(bytes));
        }
        partial.body.extend_from_slice(&bytes);
        let body = std::mem::take(&mut partial.body).freeze();
        Ok(self.deliver(body))
    }

    /// The message that has come, whose body is this.
    fn deliver(&mut self, body: Bytes) -> Taken {
        let partial = self.partial.take().expect("a message is coming");
        Taken::Event(Event::Delivery(Delivery {
            tag: partial.deliver.delivery_tag,
            is_redelivered: partial.deliver.redelivered,
            body,
        }))
    }

    /// Reads what is there; waits this long if nothing is. Returns whether something has come.
    fn fill(&mut self, wait: Duration) -> Result<bool, Failure> {
        match self.stream.receive(wait, &mut self.input) {
            Ok(Received::End) => {
                self.is_open = false;
                let what = "the server has closed the connection without a word; is this its address for AMQP 0-9-1, \
                            and may this user come in?";
                Err(Failure::new(Code::Failure, &self.name, what))
            }
            Ok(Received::Something) => Ok(true),
            Ok(Received::Nothing) => Ok(false),
            Err(error) => Err(self.lost(&error)),
        }
    }

    /// Writes all of it. Takes what comes meanwhile, so that neither side waits for the other.
    fn write(&mut self, mut parts: &mut [IoSlice<'_>]) -> Result<(), Failure> {
        IoSlice::advance_slices(&mut parts, 0);
        let mut since = None;
        while !parts.is_empty() || self.stream.has_unsent() {
            match self.stream.send(&mut parts) {
                Ok(()) => since = None,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_nothing_yet(&error) => {
                    let now = Instant::now();
                    if now.duration_since(*since.get_or_insert(now)) > WRITE {
                        return Err(self.not_taken());
                    }
                    if self.input.len() < UNREAD_BYTES_MAX {
                        self.fill(Duration::ZERO)?;
                    }
                }
                Err(error) => return Err(self.why_lost(&error)),
            }
        }
        Ok(())
    }

    /// Why the server takes nothing.
    fn not_taken(&mut self) -> Failure {
        self.is_open = false;
        let seconds = WRITE.as_secs();
        let what = match &self.blocked {
            Some(reason) => {
                format!("the server takes no messages for {seconds} s, and says why: {reason}")
            }
            None => format!("the server takes nothing for {seconds} s"),
        };
        Failure::new(Code::Timeout, &self.name, what)
    }

    /// Why so many messages are not confirmed.
    pub fn unconfirmed(&self, messages: usize) -> Failure {
        let what = match &self.blocked {
            Some(reason) => format!(
                "{messages} messages are not confirmed: the server takes none, and says why: {reason}"
            ),
            None => format!("{messages} messages are not confirmed"),
        };
        Failure::new(Code::Timeout, &self.name, what)
    }

    /// Why a connection is lost that cannot be written to: the server may have said it.
    fn why_lost(&mut self, error: &io::Error) -> Failure {
        if self.is_open {
            self.is_open = false;
            while let Ok(true) = self.fill(Duration::ZERO) {}
            while let Ok(Some(frame)) = self.frame() {
                if let Err(said) = self.take(frame) {
                    return said;
                }
            }
        }
        self.lost(error)
    }

    fn lost(&mut self, error: &io::Error) -> Failure {
        self.is_open = false;
        Failure::new(
            Code::Failure,
            &self.name,
            format!("the connection is lost: {error}"),
        )
    }

    fn closed(&self, code: u16, text: &str) -> Failure {
        let what = format!("the server refuses: {code} {text}");
        Failure::new(Code::Failure, &self.name, what)
    }

    fn strange(&self, what: &str) -> Failure {
        let what = format!("the server says what no client understands: {what}");
        Failure::new(Code::Failure, &self.name, what)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // A member that is in the middle of something says goodbye and does not wait for an answer: the server logs no
        // client that vanished.
        if self.is_open {
            let mut bytes = BytesMut::new();
            let (channel, method) = (0, goodbye().into());
            Frame::Method { channel, method }.encode(&mut bytes);
            self.stream.say_goodbye(&bytes);
        }
    }
}

fn goodbye() -> connection_methods::Close {
    connection_methods::Close {
        reply_code: 200,
        reply_text: short("bye"),
        class_id: 0,
        method_id: 0,
    }
}

/// A short string of a text that is known to be short.
pub fn short(text: &str) -> ShortString {
    ShortString::try_from(text).expect("names of a run have less than 255 bytes")
}

/// What the frame of a body begins with.
fn body_head(channel: u16, bytes: u32) -> [u8; 7] {
    let ([c0, c1], [b0, b1, b2, b3]) = (channel.to_be_bytes(), bytes.to_be_bytes());
    [::amqp::FrameKind::Body as u8, c0, c1, b0, b1, b2, b3]
}

#[cfg(test)]
mod tests;
