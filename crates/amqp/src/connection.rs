//! One connection, as its server sees it. The README has the drawing of its states.

mod answers;
mod channel;
mod handshake;

use crate::decode::DecodeError;
use crate::error::{Failure, ReplyCode};
use crate::event::{Ended, Event};
use crate::faults::{Fault, planted};
use crate::field::ShortString;
use crate::frame::{FRAME_MIN, FrameKind};
use crate::id::{MethodId, ids_of};
use crate::method::{Method, connection as methods};
use crate::output::{OUTPUT_BYTES_MAX, Output};
use crate::reader::{FrameReader, Part};
use crate::settings::{Settings, Tuned};
use crate::table::{Table, Value};
use bytes::Bytes;
use channel::Channel;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// How long a client may take from the first byte until its virtual host is open.
pub const HANDSHAKE_WAIT: Duration = Duration::from_secs(10);
/// How long a client that was told of the end may take to agree.
pub const CLOSE_WAIT: Duration = Duration::from_secs(10);
/// How long a connection stays that is not read any more: so that a client sees why, and who guesses passwords
/// waits.
pub const LINGER: Duration = Duration::from_secs(3);
/// Events that wait for the owner. Beyond, `input` reads nothing.
pub const EVENTS_MAX: usize = 1024;
/// Bytes of messages among them: with more, `input` reads nothing either.
const EVENT_BYTES_MAX: u64 = 16 << 20;
/// Requests of one channel that wait for an answer. One more ends the connection with 506.
pub const PENDING_MAX: usize = 1024;

/// Where a connection is.
#[derive(Debug)]
enum State {
    /// So many bytes of the protocol header have come.
    AwaitingHeader([u8; 8], usize),
    /// `connection.start` is sent.
    AwaitingStartOk,
    /// The owner looks at the credentials.
    Authenticating,
    /// `connection.secure` is sent.
    AwaitingSecureOk,
    /// `connection.tune` is sent.
    AwaitingTuneOk,
    /// `connection.open` is due.
    AwaitingOpen,
    /// The owner looks at the virtual host.
    Opening,
    /// Channels may be opened.
    Running,
    /// The client wants to leave, and the owner tidies up.
    Leaving,
    /// The client has left, and closes the line when it has read that it may.
    Left { until: Duration },
    /// `connection.close` is sent. All but the client's agreement is dropped.
    Closing { until: Duration, failure: Failure },
    /// Nothing is read any more, and this is why.
    Lingering { until: Duration, ended: Ended },
    /// It is over.
    Ended,
}

/// A server's side of one connection.
///
/// The owner brings bytes and the time by [`Connection::input`], which says how many it took, and the time alone by
/// [`Connection::handle_timeout`] when [`Connection::timeout`] has come. After each call it takes all of
/// [`Connection::poll_event`] and sends all of [`Connection::poll_output`]. It answers events by the methods that
/// their documentation names, at once or later. A call that comes too late, for the client has gone or the channel
/// has failed, does nothing.
///
/// Times are since any moment, as long as it is always the same.
#[derive(Debug)]
pub struct Connection {
    settings: Arc<Settings>,
    state: State,
    reader: FrameReader,
    output: Output,
    events: VecDeque<Event>,
    /// Of the messages in them.
    event_bytes: u64,
    channels: HashMap<u16, Channel>,
    /// Channels that were opened so far: the incarnation of the last one.
    incarnations: u32,
    /// Bytes of contents under way on all channels.
    assembly_bytes: u64,
    tuned: Tuned,
    client_properties: Table,
    /// The client has sent a new secret, and the owner has not answered.
    is_renewing: bool,
    handshake_until: Duration,
    /// When bytes came last.
    heard: Duration,
    /// When bytes went last.
    sent: Duration,
}

impl Connection {
    /// Of a client that has just connected.
    ///
    /// # Panics
    /// If the settings exclude each other: a frame_max below 8192, or no channel.
    pub fn new(now: Duration, settings: Arc<Settings>) -> Self {
        settings.check();
        let tuned = Tuned {
            channel_max: settings.channel_max,
            frame_max: settings.frame_max,
            heartbeat_seconds: settings.heartbeat_seconds,
        };
        Self {
            settings,
            state: State::AwaitingHeader([0; 8], 0),
            reader: FrameReader::new(FRAME_MIN),
            output: Output::default(),
            events: VecDeque::new(),
            event_bytes: 0,
            channels: HashMap::new(),
            incarnations: 0,
            assembly_bytes: 0,
            tuned,
            client_properties: Table::default(),
            is_renewing: false,
            handshake_until: now + HANDSHAKE_WAIT,
            heard: now,
            sent: now,
        }
    }

    /// Takes bytes of the client, and says how many.
    ///
    /// It takes fewer than there are while events or output wait, or the owner has a login or a virtual host to
    /// answer: the owner does so, and brings the rest again. It brings the rest from time to time while it cannot do
    /// so, too: a client that is held up then does not count as silent.
    pub fn input(&mut self, now: Duration, bytes: &[u8]) -> usize {
        if !bytes.is_empty() {
            self.heard = now;
        }
        let mut rest = bytes;
        while self.is_ready() {
            if !self.step(now, &mut rest) {
                break;
            }
        }
        if self.is_deaf() {
            rest = &[];
        }
        bytes.len() - rest.len()
    }

    /// The owner holds this client up, and takes none of its bytes for that long: it is not silent.
    pub fn held_up(&mut self, now: Duration) {
        self.heard = now;
    }

    /// What is next for the owner.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        if let Event::Publish(publish) = &event {
            self.event_bytes -= publish.content.bytes();
        }
        Some(event)
    }

    /// The next bytes to send.
    pub fn poll_output(&mut self, now: Duration) -> Option<Bytes> {
        let bytes = self.output.take()?;
        self.sent = now;
        Some(bytes)
    }

    /// Bytes that wait to be sent. Deliveries are the owner's to bound.
    pub fn output_bytes(&self) -> usize {
        self.output.bytes()
    }

    /// Bytes of contents that have not come whole.
    pub const fn assembly_bytes(&self) -> u64 {
        self.assembly_bytes
    }

    /// Whether it is over.
    pub const fn is_ended(&self) -> bool {
        matches!(self.state, State::Ended)
    }

    /// What both sides agreed on, or what is offered until they have.
    pub const fn tuned(&self) -> Tuned {
        self.tuned
    }

    /// What the client said of itself.
    pub const fn client_properties(&self) -> &Table {
        &self.client_properties
    }

    /// When to call [`Connection::handle_timeout`], at the latest.
    pub fn timeout(&self) -> Option<Duration> {
        match &self.state {
            State::Running => {
                let interval = self.interval()?;
                Some((self.sent + interval / 2).min(self.heard + 2 * interval))
            }
            State::Leaving | State::Ended => None,
            State::Left { until }
            | State::Closing { until, .. }
            | State::Lingering { until, .. } => Some(*until),
            _ => Some(self.handshake_until),
        }
    }

    /// Does what is due at this time: heartbeats, and the end of clients that take too long.
    pub fn handle_timeout(&mut self, now: Duration) {
        match &self.state {
            State::Running => self.beat(now),
            State::Leaving | State::Ended => {}
            State::Left { until } if now >= *until => self.end(Ended::ByClient),
            State::Closing { until, failure } if now >= *until => {
                let ended = Ended::Failed(failure.clone());
                self.end(ended);
            }
            State::Lingering { until, ended } if now >= *until => {
                let ended = ended.clone();
                self.end(ended);
            }
            State::Left { .. } | State::Closing { .. } | State::Lingering { .. } => {}
            _ if now >= self.handshake_until => self.end(Ended::Late),
            _ => {}
        }
    }

    /// RabbitMQ sends after half an interval without output, and gives a client up after two without input.
    fn beat(&mut self, now: Duration) {
        let Some(interval) = self.interval() else {
            return;
        };
        if now >= self.heard + 2 * interval && !planted(Fault::Patient) {
            self.end(Ended::Silent);
        } else if now >= self.sent + interval / 2 && !planted(Fault::Mute) {
            // Output that waits says as much as a heartbeat, once it goes.
            if self.output.bytes() == 0 {
                self.output.heartbeat();
            }
            self.sent = now;
        }
    }

    fn interval(&self) -> Option<Duration> {
        match self.tuned.heartbeat_seconds {
            0 => None,
            seconds => Some(Duration::from_secs(seconds.into())),
        }
    }

    /// Whether the next frame may be looked at.
    fn is_ready(&self) -> bool {
        let has_room = self.events.len() < EVENTS_MAX
            && self.event_bytes < EVENT_BYTES_MAX
            && self.output.bytes() < OUTPUT_BYTES_MAX;
        let is_asked = matches!(self.state, State::Authenticating | State::Opening);
        !self.is_deaf() && !is_asked && (has_room || planted(Fault::Endless))
    }

    const fn is_deaf(&self) -> bool {
        matches!(self.state, State::Lingering { .. } | State::Ended)
    }

    /// Whether only channel 0 matters any more.
    const fn is_going(&self) -> bool {
        matches!(
            self.state,
            State::Closing { .. } | State::Leaving | State::Left { .. }
        )
    }

    /// Reads one part of a frame; `false` if it takes more bytes.
    fn step(&mut self, now: Duration, rest: &mut &[u8]) -> bool {
        if let State::AwaitingHeader(header, have) = &mut self.state {
            let taken = rest.len().min(8 - *have);
            header[*have..*have + taken].copy_from_slice(&rest[..taken]);
            *have += taken;
            *rest = &rest[taken..];
            if *have < 8 {
                return false;
            }
            let header = *header;
            self.start(now, header);
            return true;
        }
        match self.reader.next(rest) {
            Ok(None) => return false,
            Ok(Some(part)) => self.part(now, part),
            Err(error) => self.lose(now, &error),
        }
        true
    }

    fn part(&mut self, now: Duration, part: Part<'_>) {
        let number = part.channel();
        let done = match part {
            Part::Heartbeat => Ok(()),
            Part::Payload(head, payload) if number == 0 => match head.kind {
                FrameKind::Method => self.connection_method(payload),
                _ => Err(on_channel_0()),
            },
            // What comes beside channel 0 is dropped while the connection closes. Threads of a client do not wait for
            // each other: frames can follow its own connection.close.
            _ if self.is_going() => Ok(()),
            Part::BodyStart(_) if number == 0 => Err(on_channel_0()),
            _ if !matches!(self.state, State::Running) => Err(Failure::new(
                ReplyCode::ChannelError,
                "a channel is used, and the connection is not open",
            )),
            Part::Payload(head, payload) => match head.kind {
                FrameKind::Method => self.channel_method(number, payload),
                _ => self.content_header(number, payload),
            },
            Part::BodyStart(head) => self.body_start(number, head.bytes),
            Part::Body { bytes, .. } => self.body(number, bytes),
            Part::BodyEnd { .. } => {
                self.body_end(number);
                Ok(())
            }
        };
        if let Err(failure) = done {
            self.fail_on(now, number, failure);
        }
    }

    /// Fails what a failure on a channel ends.
    fn fail_on(&mut self, now: Duration, number: u16, failure: Failure) {
        let is_hard = failure.code.is_hard() || planted(Fault::SoftIsHard);
        match self.channels.get(&number) {
            Some(channel) if !is_hard => self.close_channel(channel.key(number), failure),
            _ => self.close_hard(now, failure),
        }
    }

    /// Tells the client that the connection ends, and waits for it to agree.
    fn close_hard(&mut self, now: Duration, failure: Failure) {
        if matches!(self.state, State::Closing { .. } | State::Left { .. }) {
            return;
        }
        self.tell(&failure);
        let until = now + CLOSE_WAIT;
        self.state = State::Closing { until, failure };
    }

    /// Ends after bytes that are no frame. Where the next one begins is not known, so that nothing more is read.
    fn lose(&mut self, now: Duration, error: &DecodeError) {
        let failure = match &self.state {
            State::Closing { failure, .. } => failure.clone(),
            State::Left { .. } => return self.end(Ended::ByClient),
            _ => {
                let failure = error.failure(None);
                self.tell(&failure);
                failure
            }
        };
        self.linger(now, Ended::Failed(failure));
    }

    fn tell(&mut self, failure: &Failure) {
        let id = failure.method.unwrap_or_default();
        let close = methods::Close {
            reply_code: failure.code.number(),
            reply_text: ShortString::truncated(&failure.to_string()),
            class_id: id.class,
            method_id: id.method,
        };
        self.output.method(0, &close.into());
        self.forget_channels();
        self.events.push_back(Event::Failed(failure.clone()));
    }

    fn linger(&mut self, now: Duration, ended: Ended) {
        let until = now + LINGER;
        self.state = State::Lingering { until, ended };
    }

    fn end(&mut self, ended: Ended) {
        self.forget_channels();
        self.state = State::Ended;
        self.events.push_back(Event::Ended(ended));
    }

    fn forget_channels(&mut self) {
        self.channels.clear();
        self.assembly_bytes = 0;
    }

    /// Checks what always holds.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        let held: u64 = self.channels.values().map(Channel::assembly_bytes).sum();
        assert_eq!(held, self.assembly_bytes, "bytes of contents are counted");
        assert!(held <= self.settings.assembly_bytes_max);
        assert!(self.channels.len() <= usize::from(self.tuned.channel_max));
        let is_running = matches!(self.state, State::Running);
        assert!(
            is_running || self.channels.is_empty(),
            "channels need a connection"
        );
        // The step that reaches the bound adds a few events at most.
        assert!(self.events.len() < EVENTS_MAX + 16);
    }

    /// Whether the client knows an extension.
    fn client_can(&self, capability: &str) -> bool {
        match self.client_properties.get("capabilities") {
            Some(Value::Table(capabilities)) => capabilities.is_true(capability),
            _ => false,
        }
    }
}

fn on_channel_0() -> Failure {
    Failure::new(ReplyCode::UnexpectedFrame, "content on channel 0")
}

/// The method of a payload; the failure of a malformed one names it.
fn decode(payload: Bytes) -> Result<Method, Failure> {
    let id = ids_of(&payload);
    Method::decode(payload).map_err(|error| error.failure(id))
}

/// The failure of a method that may not come here.
fn invalid(id: MethodId, why: &str) -> Failure {
    let name = Method::name_of(id).unwrap_or("a method");
    Failure::new(ReplyCode::CommandInvalid, format!("{name} {why}")).of(id)
}
