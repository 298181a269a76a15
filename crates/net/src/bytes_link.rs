//! A link of bytes, for protocols of others: no frames, lanes or regions.

use crate::byte_stream::ByteStream;
use crate::contract::*;
use crate::options::{Carries, LinkOptions};
use crate::stream::{FIRST_BYTES_MAX, StreamLink};
use bytes::Bytes;
use memory::{Buffer, Target};
use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::RawFd;
use wire::frame::FrameKind;
use wire::message::Region;

/// Bytes that one call of `poll` moves before others have their turn.
const TURN_BYTES: usize = 1 << 20;
/// Bytes that one system call is asked for.
const READ_BYTES: usize = FIRST_BYTES_MAX;
/// Pieces that one system call is given.
const WRITE_PIECES: usize = 64;

/// A link over a stream: of frames, of bytes alone, or of what its other side begins with, as the options say.
pub(crate) fn link_over<S: ByteStream + 'static>(
    stream: S,
    peer: Peer,
    options: &LinkOptions,
) -> Box<dyn Link> {
    match options.carries {
        Carries::Frames => Box::new(StreamLink::new(stream, peer, options.clone())),
        Carries::Bytes | Carries::BytesThatBeginWith(_) => {
            Box::new(BytesLink::new(stream, peer, options.clone()))
        }
    }
}

/// ```text
/// Connecting ──► Up ──────────────► Down
///      │          ▲                  ▲
///      └► Unheard ┼► Framed ─ taken ─┘   (any of them goes Down by an error)
/// ```
#[derive(Debug)]
enum Phase {
    Connecting,
    /// The connection stands, and the other side has said nothing: its first byte says what the link carries.
    Unheard {
        bytes_begin_with: u8,
    },
    Up,
    /// It carries frames, and these are the first bytes of them: it waits to be taken by [`Link::framed`].
    Framed(Buffer),
    Down,
}

/// One connection that carries bytes and nothing else.
///
/// What arrives is the payload of messages, whose other parts mean nothing; of a message that is sent the payload
/// is written. Regions there are none. While the link is held ([`Link::hold`]) nothing is read, and the other side comes
/// to a halt by the flow control of its transport.
struct BytesLink<S> {
    /// `None` when the link is down.
    stream: Option<S>,
    phase: Phase,
    capabilities: Capabilities,
    peer: Peer,
    options: LinkOptions,
    out: VecDeque<Bytes>,
    out_bytes: u64,
    /// What is to be reported before anything else is done.
    events: VecDeque<LinkEvent>,
    ready: SourceReady,
    held: bool,
    is_due: bool,
}

impl<S: ByteStream> BytesLink<S> {
    fn new(stream: S, peer: Peer, options: LinkOptions) -> Self {
        Self {
            stream: Some(stream),
            phase: Phase::Connecting,
            capabilities: Capabilities {
                payload_bytes_max: options.payload_bytes_max,
                one_sided: false,
                ordered: true,
                memory_kinds: vec![0],
                stripes: None,
                bytes_alone: true,
            },
            peer,
            options,
            out: VecDeque::new(),
            out_bytes: 0,
            events: VecDeque::new(),
            ready: SourceReady {
                read_closed: false,
                ..SourceReady::ALL
            },
            held: false,
            is_due: false,
        }
    }

    fn fail(&mut self, error: NetError) {
        if self.is_down() {
            return;
        }
        self.phase = Phase::Down;
        self.stream = None;
        self.is_due = false;
        self.out.clear();
        self.out_bytes = 0;
        self.events.push_back(LinkEvent::Down(error));
    }

    fn fail_as(&mut self, error: &io::Error) {
        let text = format!("{} {error}", self.peer.address);
        self.fail(match error.kind() {
            io::ErrorKind::InvalidData => NetError::Protocol(text),
            _ => NetError::Closed(text),
        });
    }

    fn connect(&mut self) {
        let Some(stream) = &mut self.stream else {
            return;
        };
        match stream.is_connected() {
            Ok(false) => {}
            Ok(true) => {
                self.peer.certificates = stream.certificates();
                self.phase = match self.options.carries {
                    Carries::BytesThatBeginWith(first) => Phase::Unheard {
                        bytes_begin_with: first,
                    },
                    Carries::Bytes | Carries::Frames => {
                        self.events.push_back(LinkEvent::Up);
                        Phase::Up
                    }
                };
            }
            Err(error) => {
                let text = format!("connecting to {}: {error}", self.peer.address);
                self.fail(NetError::Refused(text));
            }
        }
    }

    /// Writes once, if that may move something. Returns how many bytes moved.
    fn write_some(&mut self) -> usize {
        let Some(stream) = &mut self.stream else {
            return 0;
        };
        if !self.ready.writable || self.out.is_empty() && stream.held_bytes() == 0 {
            return 0;
        }
        let pieces = self.out.iter().take(WRITE_PIECES);
        let slices: Vec<IoSlice<'_>> = pieces.map(|piece| IoSlice::new(piece)).collect();
        match stream.write_vectored(&slices) {
            Ok(written) => {
                self.wrote(written);
                written
            }
            Err(error) => {
                self.stopped(&error, |ready| &mut ready.writable);
                0
            }
        }
    }

    fn wrote(&mut self, mut written: usize) {
        self.out_bytes -= written as u64;
        while written > 0
            && let Some(first) = self.out.front_mut()
        {
            let taken = written.min(first.len());
            written -= taken;
            match taken == first.len() {
                true => drop(self.out.pop_front()),
                false => drop(first.split_to(taken)),
            }
        }
    }

    /// A call moved nothing.
    fn stopped(&mut self, error: &io::Error, way: fn(&mut SourceReady) -> &mut bool) {
        match error.kind() {
            io::ErrorKind::WouldBlock => *way(&mut self.ready) = false,
            io::ErrorKind::Interrupted => self.is_due = true,
            _ => self.fail_as(error),
        }
    }

    /// Reads once, if that may move something. Returns how many bytes moved.
    fn read_some(&mut self) -> usize {
        if !self.ready.readable || self.held {
            return 0;
        }
        let Some(stream) = &mut self.stream else {
            return 0;
        };
        let mut payload = self.options.pool.take(READ_BYTES);
        match stream.read_vectored(&mut [IoSliceMut::new(&mut payload)]) {
            Ok(0) => {
                let text = format!("{} closed the connection", self.peer.address);
                self.fail(NetError::Closed(text));
                0
            }
            Ok(read) => {
                let cost = usize::try_from(stream.cost_bytes()).unwrap_or(usize::MAX);
                payload.truncate(read);
                self.took(payload);
                read.saturating_add(cost)
            }
            Err(error) => {
                self.stopped(&error, |ready| &mut ready.readable);
                0
            }
        }
    }

    /// Bytes have come; the first ones may say what they are.
    fn took(&mut self, payload: Buffer) {
        if let Phase::Unheard { bytes_begin_with } = self.phase {
            self.events.push_back(LinkEvent::Up);
            if payload.first() != Some(&bytes_begin_with) {
                self.capabilities.bytes_alone = false;
                self.phase = Phase::Framed(payload);
                return;
            }
            self.phase = Phase::Up;
        }
        self.events.push_back(LinkEvent::Message(Received {
            kind: FrameKind::Request,
            flags: 0,
            id: 0,
            head: Bytes::new(),
            payload,
        }));
    }

    fn is_down(&self) -> bool {
        matches!(self.phase, Phase::Down)
    }

    fn is_up(&self) -> bool {
        matches!(self.phase, Phase::Up)
    }

    fn no_regions() -> NetError {
        NetError::Region("a link of bytes has no regions".to_owned())
    }
}

impl<S: ByteStream + 'static> Link for BytesLink<S> {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn peer(&self) -> &Peer {
        &self.peer
    }

    fn send(&mut self, message: Message) {
        if self.is_down() {
            return;
        }
        for piece in message.payload.into_iter().filter(|one| !one.is_empty()) {
            self.out_bytes += piece.len() as u64;
            self.out.push_back(piece);
        }
    }

    fn expose(&mut self, _bytes: Bytes) -> Region {
        unreachable!("a link of bytes has no regions")
    }

    fn withdraw(&mut self, _region: &Region) {}

    fn lend(&mut self, _target: Target) -> Region {
        unreachable!("a link of bytes has no regions")
    }

    fn reclaim(&mut self, _region: &Region) -> Option<Target> {
        None
    }

    fn read(&mut self, token: BulkToken, _read: RegionRead) {
        let result = Err(Self::no_regions());
        self.events.push_back(LinkEvent::ReadDone { token, result });
    }

    fn write(&mut self, token: BulkToken, _write: RegionWrite) {
        let result = Err(Self::no_regions());
        self.events
            .push_back(LinkEvent::WriteDone { token, result });
    }

    fn cancel(&mut self, _token: BulkToken) {}

    fn queued_bytes(&self) -> u64 {
        self.out_bytes
    }

    fn hold(&mut self, held: bool) {
        self.held = held;
    }

    fn poll(&mut self) -> Option<LinkEvent> {
        self.is_due = false;
        let mut moved = 0usize;
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            match self.phase {
                Phase::Down | Phase::Framed(_) => return None,
                Phase::Connecting => {
                    self.connect();
                    if matches!(self.phase, Phase::Connecting) {
                        return None;
                    }
                    continue;
                }
                Phase::Unheard { .. } | Phase::Up => {}
            }
            if moved >= TURN_BYTES {
                self.is_due = true;
                return None;
            }
            let step = self.write_some() + self.read_some();
            if step == 0 && self.events.is_empty() {
                return None;
            }
            moved += step;
        }
    }

    fn is_due(&self) -> bool {
        self.is_due
    }

    fn source_ready(&mut self, ready: SourceReady) {
        let ready = match &mut self.stream {
            Some(stream) => stream.source_ready(ready),
            None => ready,
        };
        self.ready.readable |= ready.readable || ready.read_closed;
        self.ready.writable |= ready.writable;
    }

    fn wants_to_write(&self) -> bool {
        match self.phase {
            Phase::Connecting => true,
            Phase::Unheard { .. } | Phase::Up | Phase::Framed(_) => {
                let reports = |stream: &S| stream.reports_writable();
                !self.ready.writable && !self.stream.as_ref().is_some_and(reports)
            }
            Phase::Down => false,
        }
    }

    fn descriptors(&self) -> Vec<RawFd> {
        let stream = self.stream.as_ref();
        stream.map_or_else(Vec::new, ByteStream::descriptors)
    }

    fn readiness(&mut self) -> Readiness<'_> {
        match &mut self.stream {
            Some(stream) => stream.readiness(),
            None => Readiness::Notify,
        }
    }

    fn attach(&mut self, notify: Notify) {
        match &mut self.stream {
            Some(stream) => stream.attach(notify),
            None => notify(),
        }
    }

    fn framed(&mut self) -> Option<Box<dyn Link>> {
        if !matches!(self.phase, Phase::Framed(_)) {
            return None;
        }
        let stream = self.stream.take()?;
        let Phase::Framed(first) = std::mem::replace(&mut self.phase, Phase::Down) else {
            return None;
        };
        let (peer, options) = (self.peer.clone(), self.options.clone());
        Some(Box::new(StreamLink::heard(stream, peer, options, &first)))
    }

    fn close(&mut self, reason: &str) {
        while self.is_up() && self.write_some() > 0 {}
        if let Some(stream) = &mut self.stream {
            stream.finish();
        }
        self.fail(NetError::Closed(reason.to_owned()));
    }
}
