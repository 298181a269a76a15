//! A link over a stream of bytes: frames, and regions emulated by frames.
//!
//! The layout of frames is `docs/format/wire.md`.

mod reads;
mod receive;
mod send;

use crate::bundle::Bundle;
use crate::byte_stream::{ByteStream, Carrier};
use crate::contract::*;
use crate::options::LinkOptions;
use crate::regions::{Range, Regions, check_chunk, place_in};
use crate::seal::Seal;
use crate::stripes::{Striped, StripesFrom};
use bytes::Bytes;
use memory::Target;
use reads::Reads;
pub(crate) use receive::FIRST_BYTES_MAX;
use receive::{Arrived, Inbox, Places};
pub use send::KEPT_BYTES_MIN;
use send::{Frame, FrameLabel, Outbox};
use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use wire::codec::Codec;
use wire::frame::FrameKind;
use wire::message::{BulkWrite, Region};

/// Bytes that one call of `poll` moves before others have their turn.
const TURN_BYTES: u64 = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Connecting,
    Up,
    Down,
}

/// One connection over a stream of bytes.
pub struct StreamLink<S> {
    /// `None` when the link is down. Before what is queued, so that it goes
    /// first: it may refer to memory that is kept there.
    stream: Option<S>,
    phase: Phase,
    capabilities: Capabilities,
    peer: Peer,
    options: LinkOptions,
    outbox: Outbox,
    inbox: Inbox,
    regions: Regions,
    reads: Reads,
    /// What is to be reported before anything else is done.
    events: VecDeque<LinkEvent>,
    /// Whether a read, or a write, may move something.
    ready: SourceReady,
    /// A write has failed: nothing more is written, but what the other side
    /// said before it went is still read.
    write_error: Option<String>,
    is_due: bool,
    /// Nothing reports what is ready: every poll has to look.
    by_notify: bool,
}

impl<S: ByteStream> StreamLink<S> {
    /// A link over `stream`, whose other side is `peer`.
    pub fn new(mut stream: S, peer: Peer, options: LinkOptions) -> Self {
        let by_notify = matches!(stream.readiness(), Readiness::Notify);
        let stripes = stream.stripes();
        Self {
            stream: Some(stream),
            phase: Phase::Connecting,
            capabilities: Capabilities {
                payload_bytes_max: options.payload_bytes_max,
                one_sided: false,
                ordered: true,
                memory_kinds: vec![0],
                stripes,
                bytes_alone: false,
            },
            peer,
            options,
            outbox: Outbox::default(),
            inbox: Inbox::new(),
            regions: Regions::default(),
            reads: Reads::default(),
            events: VecDeque::new(),
            ready: SourceReady {
                read_closed: false,
                ..SourceReady::ALL
            },
            write_error: None,
            is_due: false,
            by_notify,
        }
    }

    /// A link over a stream that stands, of which these bytes have been read: up, and said to be.
    pub(crate) fn heard(stream: S, peer: Peer, options: LinkOptions, first: &[u8]) -> Self {
        let mut link = Self::new(stream, peer, options);
        link.phase = Phase::Up;
        link.inbox.begin_with(first);
        link
    }

    /// The link is dead: answers what is open, then says why.
    fn fail(&mut self, error: NetError) {
        if self.phase == Phase::Down {
            return;
        }
        self.phase = Phase::Down;
        self.stream = None;
        self.is_due = false;
        for token in self.outbox.clear() {
            self.answer_write(token, Err(error.clone()));
        }
        for token in self.reads.clear() {
            self.answer_read(token, error.clone());
        }
        self.events.push_back(LinkEvent::Down(error));
    }

    fn answer_read(&mut self, token: BulkToken, error: NetError) {
        let result = Err(error);
        self.answer(LinkEvent::ReadDone { token, result });
    }

    fn answer_write(&mut self, token: BulkToken, result: Result<(), NetError>) {
        self.answer(LinkEvent::WriteDone { token, result });
    }

    /// Queues an answer, before the end of the link if that waits to be reported.
    fn answer(&mut self, event: LinkEvent) {
        let at = match self.events.back() {
            Some(LinkEvent::Down(_)) => self.events.len() - 1,
            _ => self.events.len(),
        };
        self.events.insert(at, event);
    }

    fn ask_waiting_reads(&mut self) {
        while let Some(request) = self.reads.next_request() {
            self.outbox.push(request, Lane::Control);
        }
    }

    /// Uses what has arrived. False if more bytes are needed for anything to come of it.
    fn take_arrived(&mut self) -> bool {
        let mut places = Places {
            regions: &mut self.regions,
            reads: &mut self.reads,
            pool: &self.options.pool,
            payload_bytes_max: self.options.payload_bytes_max,
            first_payload_bytes_max: self.options.first_payload_bytes_max,
        };
        match self.inbox.next(&mut places) {
            Ok(None) => return false,
            Ok(Some(Arrived::Nothing)) => {}
            Ok(Some(Arrived::Message(received))) => {
                self.events.push_back(LinkEvent::Message(received));
            }
            Ok(Some(Arrived::ReadDone(token, buffer, checksums))) => {
                let result = Ok((buffer, checksums));
                self.events.push_back(LinkEvent::ReadDone { token, result });
            }
            Ok(Some(Arrived::ReadFailed(token, error))) => self.answer_read(token, error),
            Ok(Some(Arrived::ReadRequest(id, read))) => self.serve(id, &read),
            Err(problem) => self.fail(NetError::Protocol(format!(
                "{} sent what is no frame: {problem}",
                self.peer.address
            ))),
        }
        self.ask_waiting_reads();
        true
    }

    /// Answers a read of the other side.
    fn serve(&mut self, id: u64, read: &wire::message::BulkRead) {
        let range = Range {
            key: &read.key,
            offset: read.offset,
            bytes: u64::from(read.bytes),
        };
        let problem = match self.regions.exposed(range) {
            Ok(exposed) => return self.outbox.push_data(id, exposed, read.block_bytes),
            Err(error) => error.to_string(),
        };
        self.outbox
            .push(Frame::refusing(id, problem), Lane::Control);
    }

    /// Writes once, if that may move something. Returns how many bytes moved.
    fn write_some(&mut self) -> u64 {
        if !self.ready.writable || self.write_error.is_some() {
            return 0;
        }
        let Some(stream) = &mut self.stream else {
            return 0;
        };
        if self.outbox.is_empty() && stream.held_bytes() == 0 {
            return 0;
        }
        let written = match self.outbox.write(stream) {
            Ok(written) => written,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.ready.writable = false;
                return 0;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                self.is_due = true;
                return 0;
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                self.fail_protocol(&error);
                return 0;
            }
            Err(error) => {
                self.write_error = Some(error.to_string());
                self.ready.readable = true;
                return 0;
            }
        };
        self.ready.writable = !written.full;
        self.settle();
        self.reads.served(self.outbox.take_answered());
        written.bytes
    }

    /// Lets go of what was written and is needed no more, and reports it.
    fn settle(&mut self) {
        if !self.outbox.is_settled()
            && let Some(stream) = &mut self.stream
            && let Some(bytes) = stream.settled_bytes()
        {
            self.outbox.settle(bytes);
        }
        while let Some(token) = self.outbox.next_written() {
            self.answer_write(token, Ok(()));
        }
    }

    fn fail_protocol(&mut self, problem: &io::Error) {
        let text = format!(
            "{} {problem}, {}",
            self.peer.address,
            self.inbox.describe_end()
        );
        self.fail(NetError::Protocol(text));
    }

    /// Reads once, if that may move something. Returns how many bytes moved.
    fn read_some(&mut self) -> u64 {
        if !self.ready.readable {
            return 0;
        }
        let Some(stream) = &mut self.stream else {
            return 0;
        };
        let mut places = Places {
            regions: &mut self.regions,
            reads: &mut self.reads,
            pool: &self.options.pool,
            payload_bytes_max: self.options.payload_bytes_max,
            first_payload_bytes_max: self.options.first_payload_bytes_max,
        };
        match self.inbox.read(stream, &mut places) {
            Ok(taken) if taken.bytes == 0 => {
                let error = self.closed("closed the connection");
                self.fail(error);
                0
            }
            Ok(taken) => {
                // The end of the stream is only seen by a read of its own.
                self.ready.readable = !taken.emptied || self.ready.read_closed || stream.has_more();
                taken.bytes as u64 + stream.cost_bytes()
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.ready.readable = false;
                if let Some(problem) = self.write_error.take() {
                    let error = self.closed(&format!("takes no more: {problem}"));
                    self.fail(error);
                }
                0
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                self.is_due = true;
                0
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                self.fail_protocol(&error);
                0
            }
            Err(error) => {
                let error = self.closed(&format!("is gone: {error}"));
                self.fail(error);
                0
            }
        }
    }

    fn closed(&self, how: &str) -> NetError {
        NetError::Closed(format!(
            "{} {how}, {}",
            self.peer.address,
            self.inbox.describe_end()
        ))
    }

    /// Takes the step from connecting to up, if it is time.
    fn connect(&mut self) {
        let Some(stream) = &mut self.stream else {
            return;
        };
        match stream.is_connected() {
            Ok(false) => {}
            Ok(true) => {
                self.peer.certificates = stream.certificates();
                self.phase = Phase::Up;
                self.events.push_back(LinkEvent::Up);
            }
            Err(error) => {
                let text = format!("connecting to {}: {error}", self.peer.address);
                self.fail(NetError::Refused(text));
            }
        }
    }
}

impl<S: ByteStream + 'static> Link for StreamLink<S> {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn peer(&self) -> &Peer {
        &self.peer
    }

    fn send(&mut self, message: Message) {
        message.check();
        if self.phase == Phase::Down {
            return;
        }
        let label = FrameLabel {
            kind: message.kind,
            flags: message.flags,
            id: message.id,
        };
        let frame = Frame::new(label, message.head, message.payload);
        self.outbox.push(frame, message.lane);
    }

    fn expose(&mut self, bytes: Bytes) -> Region {
        self.regions.expose(bytes, None)
    }

    fn expose_sealed(&mut self, bytes: Bytes, seal: Arc<Seal>) -> Region {
        self.regions.expose(bytes, Some(seal))
    }

    fn withdraw(&mut self, region: &Region) {
        self.regions.withdraw(region);
    }

    fn lend(&mut self, target: Target) -> Region {
        self.regions.lend(target)
    }

    fn reclaim(&mut self, region: &Region) -> Option<Target> {
        self.regions.reclaim(region)
    }

    fn read(&mut self, token: BulkToken, read: RegionRead) {
        if self.phase == Phase::Down {
            return self.answer_dead(|link, error| link.answer_read(token, error));
        }
        let started = place_in(&read.region, read.offset, read.into.len())
            .and_then(|offset| self.reads.start(token, offset, read));
        match started {
            Ok(()) => self.ask_waiting_reads(),
            Err(problem) => self.answer_read(token, NetError::Region(problem)),
        }
    }

    fn write(&mut self, token: BulkToken, write: RegionWrite) {
        if self.phase == Phase::Down {
            return self.answer_dead(|link, error| link.answer_write(token, Err(error)));
        }
        let bytes = write.pieces.iter().map(Bytes::len).sum();
        let placed = check_chunk("write", bytes as u64)
            .and_then(|()| place_in(&write.region, write.offset, bytes));
        let offset = match placed {
            Ok(offset) => offset,
            Err(problem) => return self.answer_write(token, Err(NetError::Region(problem))),
        };
        let key = write.region.key;
        let label = FrameLabel {
            kind: FrameKind::BulkWrite,
            flags: 0,
            id: token.0,
        };
        let head = BulkWrite { key, offset }.to_bytes();
        let frame = Frame::new(label, head.into(), write.pieces);
        self.outbox.push(frame.of_write(token), Lane::Bulk);
    }

    fn cancel(&mut self, token: BulkToken) {
        if self.reads.cancel(token) {
            self.answer_read(token, NetError::Cancelled);
        } else if self.outbox.cancel(token) {
            self.answer_write(token, Err(NetError::Cancelled));
        }
    }

    fn queued_bytes(&self) -> u64 {
        self.outbox.queued_bytes()
    }

    fn poll(&mut self) -> Option<LinkEvent> {
        self.is_due = false;
        self.ready.readable |= self.by_notify;
        self.ready.writable |= self.by_notify;
        self.settle();
        let mut moved = 0;
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            match self.phase {
                Phase::Down => return None,
                Phase::Connecting => {
                    self.connect();
                    if self.phase == Phase::Connecting {
                        return None;
                    }
                    continue;
                }
                Phase::Up => {}
            }
            if self.take_arrived() {
                continue;
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

    fn flush(&mut self) -> bool {
        while self.phase == Phase::Up && self.write_some() > 0 {}
        self.phase == Phase::Up
            && self.outbox.is_empty()
            && self
                .stream
                .as_ref()
                .is_some_and(|stream| stream.held_bytes() == 0)
            && self.write_error.is_none()
            && self.events.is_empty()
    }

    fn is_due(&self) -> bool {
        self.is_due
    }

    fn untaken_bytes(&self) -> Option<usize> {
        let is_read = !self.ready.readable && self.events.is_empty() && self.phase == Phase::Up;
        is_read.then(|| self.inbox.untaken_bytes())
    }

    fn wants_to_write(&self) -> bool {
        match self.phase {
            Phase::Connecting => true,
            Phase::Up => {
                let reported = self
                    .stream
                    .as_ref()
                    .is_some_and(ByteStream::reports_writable);
                !self.ready.writable && !reported
            }
            Phase::Down => false,
        }
    }

    fn source_ready(&mut self, ready: SourceReady) {
        let ready = match &mut self.stream {
            Some(stream) => stream.source_ready(ready),
            None => ready,
        };
        self.ready.readable |= ready.readable || ready.read_closed;
        self.ready.writable |= ready.writable;
        self.ready.read_closed |= ready.read_closed;
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

    fn look(&mut self) -> Option<bool> {
        let wants_to_write = !self.ready.writable;
        let stirs = self.stream.as_mut()?.look(wants_to_write)?;
        if stirs {
            self.ready.readable = true;
            self.ready.writable = true;
        }
        Some(stirs)
    }

    fn rest(&mut self) -> bool {
        let wants_to_write = !self.ready.writable;
        let Some(stream) = &mut self.stream else {
            return true;
        };
        let rests = stream.rest(wants_to_write);
        if !rests {
            self.ready.readable = true;
            self.ready.writable = true;
        }
        rests
    }

    fn descriptors(&self) -> Vec<RawFd> {
        let stream = self.stream.as_ref();
        stream.map_or_else(Vec::new, ByteStream::descriptors)
    }

    fn close(&mut self, reason: &str) {
        for token in self.outbox.clear_bulk() {
            let error = NetError::Closed(reason.to_owned());
            self.answer_write(token, Err(error));
        }
        while self.phase == Phase::Up && self.write_some() > 0 {}
        if let Some(stream) = &mut self.stream {
            stream.finish();
        }
        self.fail(NetError::Closed(reason.to_owned()));
    }

    fn striped(&mut self, from: StripesFrom) -> Option<Box<dyn Link>> {
        self.capabilities.stripes?;
        let first = self.carrier_of(from, Outbox::is_within_frame)?;
        let bundle = match Bundle::new(first) {
            Ok(bundle) => bundle,
            Err(error) => {
                let text = format!("{}: making a bundle of it: {error}", self.peer.address);
                self.fail(NetError::System(text));
                return None;
            }
        };
        Some(Box::new(StreamLink {
            stream: Some(bundle),
            phase: std::mem::replace(&mut self.phase, Phase::Down),
            capabilities: Capabilities {
                stripes: None,
                ..self.capabilities.clone()
            },
            peer: self.peer.clone(),
            options: self.options.clone(),
            outbox: std::mem::take(&mut self.outbox),
            inbox: std::mem::replace(&mut self.inbox, Inbox::gone()),
            regions: std::mem::take(&mut self.regions),
            reads: std::mem::take(&mut self.reads),
            events: std::mem::take(&mut self.events),
            ready: SourceReady {
                read_closed: false,
                ..SourceReady::ALL
            },
            write_error: self.write_error.take(),
            is_due: true,
            by_notify: self.by_notify,
        }))
    }

    fn carrier(&mut self, from: StripesFrom) -> Option<Carrier> {
        self.capabilities.stripes?;
        let carrier = self.carrier_of(from, |outbox| !outbox.is_empty())?;
        self.phase = Phase::Down;
        Some(carrier)
    }

    fn join(&mut self, carrier: Carrier) -> bool {
        let Some(stream) = self.stream.as_mut().filter(|_| self.phase != Phase::Down) else {
            return false;
        };
        let has_joined = stream.join(carrier).is_ok();
        self.ready.readable |= has_joined;
        self.ready.writable |= has_joined;
        has_joined
    }

    fn stripes(&mut self) -> Option<Striped> {
        self.stream.as_mut()?.striped()
    }
}

impl<S: ByteStream + 'static> StreamLink<S> {
    /// Gives up the stream, which is one of chunks from here on: with what leaves before them, and what has come of
    /// them. `None`, and the link is down, if something has come or begun to leave that must not have.
    fn carrier_of(
        &mut self,
        from: StripesFrom,
        is_ahead: impl FnOnce(&Outbox) -> bool,
    ) -> Option<Carrier> {
        let is_begun = from != StripesFrom::Beginning;
        if self.phase == Phase::Down || is_begun && self.phase != Phase::Up {
            return None;
        }
        let is_silent = self.inbox.is_behind_first();
        let parts = match from {
            StripesFrom::Beginning if self.outbox.is_empty() && self.inbox.is_at_start() => {
                Some((Vec::new(), Vec::new()))
            }
            StripesFrom::Sent if is_silent && self.inbox.untaken_bytes() == 0 => {
                self.outbox.take_control().map(|held| (held, Vec::new()))
            }
            StripesFrom::Received if is_silent && !is_ahead(&self.outbox) => {
                Some((Vec::new(), self.inbox.take_ahead()))
            }
            StripesFrom::Beginning | StripesFrom::Sent | StripesFrom::Received => None,
        };
        let Some((held, ahead)) = parts else {
            let why = "asked for several connections, and one side did not wait until they were agreed on";
            let error = NetError::Protocol(format!("{} {why}", self.peer.address));
            self.fail(error);
            return None;
        };
        let stream = Box::new(self.stream.take()?);
        Some(Carrier {
            stream,
            held,
            ahead,
        })
    }

    /// Answers an operation that was asked of a dead link.
    fn answer_dead(&mut self, answer: impl FnOnce(&mut Self, NetError)) {
        answer(
            self,
            NetError::Closed(format!("{} is down", self.peer.address)),
        );
    }
}

#[cfg(test)]
mod tests;
