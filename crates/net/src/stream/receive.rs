//! What a stream link receives: frames out of a stream of bytes, payloads
//! straight into their final memory.

use crate::contract::{BulkToken, NetError, Received};
use crate::regions::{Range, RegionError, Regions, check_chunk};
use bytes::Bytes;
use memory::{Buffer, Pool, copies};
use std::io::{self, IoSliceMut};
use wire::codec::{Codec, DecodeError};
use wire::frame::{FRAME_HEADER_BYTES, FrameHeader, FrameKind};
use wire::message::{BulkData, BulkRead, BulkStatus, BulkWrite};

use super::reads::Reads;
use crate::byte_stream::ByteStream;

/// The buffer for headers, heads and small frames.
const BUFFER_BYTES: usize = 64 * 1024;

/// The most bytes that a stream may have given before there is a link.
pub(crate) const FIRST_BYTES_MAX: usize = BUFFER_BYTES;

/// The most bytes of a payload that one system call is asked for.
const READ_BYTES_MAX: usize = 1 << 20;

/// A payload from here on is large: what comes behind it is read with care
/// not to take bytes of the next payload into the buffer.
const LARGE_BYTES: u64 = BUFFER_BYTES as u64;

/// What a client of TLS begins with.
const TLS_HANDSHAKE: u8 = 0x16;

/// Something arrived.
#[derive(Debug)]
pub(super) enum Arrived {
    Message(Received),
    /// The other side wants bytes of an exposed region.
    ReadRequest(u64, BulkRead),
    /// Bytes for a read of ours.
    ReadDone(BulkToken, Buffer, Vec<u32>),
    /// A read of ours failed.
    ReadFailed(BulkToken, NetError),
    /// A frame that needs nothing more: a write into a region, say.
    Nothing,
}

/// What the frames are about, besides themselves.
pub(super) struct Places<'a> {
    pub regions: &'a mut Regions,
    pub reads: &'a mut Reads,
    pub pool: &'a Pool,
    pub payload_bytes_max: u64,
    pub first_payload_bytes_max: u64,
}

/// What goes on in the stream.
#[derive(Debug)]
enum State {
    /// The next byte is the first of a frame.
    Frame,
    /// A head that is too long for the buffer is read into memory of its own.
    LongHead {
        header: [u8; FRAME_HEADER_BYTES],
        head: Vec<u8>,
        filled: usize,
    },
    /// A payload is read to where it belongs.
    Payload {
        place: Place,
        bytes: u64,
        filled: u64,
    },
}

/// Where a payload belongs.
#[derive(Debug)]
enum Place {
    Message(Box<Received>),
    Read {
        id: u64,
        checksums: Vec<u32>,
    },
    Lent {
        key: u64,
        offset: usize,
    },
    /// Nobody wants it any more.
    Nowhere,
}

/// The receiving half of a stream link.
#[derive(Debug)]
pub(super) struct Inbox {
    buffer: Box<[u8]>,
    /// What is in the buffer and not yet used: `buffer[start..end]`.
    start: usize,
    end: usize,
    state: State,
    /// Bytes of the stream used so far, for errors.
    position: u64,
    /// Length of header and head of the last frame: the next one's are
    /// expected to be as long.
    front_bytes: usize,
    /// Whether the last frame was large.
    was_large: bool,
}

/// How far one read went.
#[derive(Debug, Clone, Copy)]
pub(super) struct Taken {
    /// 0 is the end of the stream.
    pub bytes: usize,
    /// The stream gave less than it was asked for: it is empty.
    pub emptied: bool,
}

impl Inbox {
    pub(super) fn new() -> Self {
        Self {
            buffer: vec![0; BUFFER_BYTES].into(),
            start: 0,
            end: 0,
            state: State::Frame,
            position: 0,
            front_bytes: FRAME_HEADER_BYTES,
            was_large: false,
        }
    }

    /// The stream has given these bytes already, [`FIRST_BYTES_MAX`] at most, and nothing else.
    pub(super) fn begin_with(&mut self, first: &[u8]) {
        self.buffer[..first.len()].copy_from_slice(first);
        self.end = first.len();
    }

    /// Where the stream is, for the error of a stream that ends.
    pub(super) fn describe_end(&self) -> String {
        let at = self.position;
        match &self.state {
            State::Frame if self.start == self.end => format!("after {at} bytes, between frames"),
            State::Frame => format!(
                "after {} bytes, {} bytes into the frame at {at}",
                at + (self.end - self.start) as u64,
                self.end - self.start
            ),
            State::LongHead { head, filled, .. } => format!(
                "after {at} bytes: a head needs {} bytes, had {filled}",
                head.len()
            ),
            State::Payload { bytes, filled, .. } => {
                format!("after {at} bytes: a payload needs {bytes} bytes, had {filled}")
            }
        }
    }

    /// The receiving half of a link that has given its bytes away.
    pub(super) fn gone() -> Self {
        Self {
            buffer: Box::default(),
            ..Self::new()
        }
    }

    /// Whether nothing has arrived.
    pub(super) fn is_at_start(&self) -> bool {
        matches!(self.state, State::Frame) && self.position == 0 && self.start == self.end
    }

    /// Whether one frame has arrived, without a payload, and no other one begins.
    pub(super) fn is_behind_first(&self) -> bool {
        matches!(self.state, State::Frame) && self.position == self.front_bytes as u64
    }

    /// Gives away the bytes that have arrived and nothing has come of: they are no frames.
    pub(super) fn take_ahead(&mut self) -> Vec<u8> {
        let ahead = self.buffer[self.start..self.end].to_vec();
        (self.start, self.end) = (0, 0);
        ahead
    }

    /// Bytes that have arrived and nothing has come of.
    pub(super) fn untaken_bytes(&self) -> usize {
        self.end - self.start
    }

    /// The next thing out of the bytes that have arrived; `None` needs more
    /// of them. An error says what is wrong, and where in the stream.
    pub(super) fn next(&mut self, places: &mut Places<'_>) -> Result<Option<Arrived>, String> {
        loop {
            match &mut self.state {
                State::Frame => {
                    let at = self.position;
                    let begun = self.begin_frame(places).map_err(|problem| {
                        format!("frame at byte {at} of the stream: {problem}")
                    })?;
                    if !begun {
                        return Ok(None);
                    }
                }
                State::LongHead {
                    header,
                    head,
                    filled,
                } => {
                    let step = (head.len() - *filled).min(self.end - self.start);
                    let from = &self.buffer[self.start..self.start + step];
                    head[*filled..*filled + step].copy_from_slice(from);
                    *filled += step;
                    self.start += step;
                    self.position += step as u64;
                    if *filled < head.len() {
                        return Ok(None);
                    }
                    let (header, head) = (*header, Bytes::from(std::mem::take(head)));
                    let at = self.position;
                    self.begin_payload(&header, head, places)
                        .map_err(|problem| {
                            format!("frame whose head ends at byte {at} of the stream: {problem}")
                        })?;
                }
                State::Payload {
                    place,
                    bytes,
                    filled,
                } => {
                    let step = (*bytes - *filled).min((self.end - self.start) as u64) as usize;
                    if step > 0 {
                        let from = &self.buffer[self.start..self.start + step];
                        if let Some(into) = place.memory(*filled as usize, step, places) {
                            copies::copy(from, into);
                            place.report(*filled as usize, step, places);
                        }
                        *filled += step as u64;
                        self.start += step;
                        self.position += step as u64;
                    }
                    if *filled < *bytes {
                        return Ok(None);
                    }
                    let place = std::mem::replace(place, Place::Nowhere);
                    self.state = State::Frame;
                    return Ok(Some(place.complete(places)));
                }
            }
        }
    }

    /// Takes header and head of the next frame; false if they are not there yet.
    fn begin_frame(&mut self, places: &mut Places<'_>) -> Result<bool, String> {
        let had = &self.buffer[self.start..self.end];
        if self.position == 0 && had.first() == Some(&TLS_HANDSHAKE) {
            return Err("it is a handshake of TLS, and this address is without".to_owned());
        }
        let Some(header) = had.first_chunk::<FRAME_HEADER_BYTES>() else {
            // Bytes that no frame begins with are refused before 32 of them came.
            return match had.first() {
                Some(first) if *first != wire::frame::FRAME_MAGIC => {
                    Err(format!("first byte is {first:#04x}"))
                }
                _ => Ok(false),
            };
        };
        let parsed = FrameHeader::read(header).map_err(|error| error.to_string())?;
        let limit = match self.position {
            0 => places.first_payload_bytes_max,
            _ => u64::MAX,
        };
        let limit = limit.min(places.payload_bytes_max);
        if parsed.payload_bytes > limit {
            return Err(format!(
                "a payload of {} bytes; the limit is {limit}",
                parsed.payload_bytes
            ));
        }
        let header = *header;
        let head_bytes = parsed.head_bytes as usize;
        self.front_bytes = FRAME_HEADER_BYTES + head_bytes;
        self.was_large = parsed.payload_bytes >= LARGE_BYTES;
        if self.front_bytes > BUFFER_BYTES {
            self.state = State::LongHead {
                header,
                head: vec![0; head_bytes],
                filled: 0,
            };
            self.use_bytes(FRAME_HEADER_BYTES);
            return Ok(true);
        }
        let Some(head) = had.get(FRAME_HEADER_BYTES..self.front_bytes) else {
            return Ok(false);
        };
        let head = Bytes::copy_from_slice(head);
        self.use_bytes(self.front_bytes);
        self.begin_payload(&header, head, places)?;
        Ok(true)
    }

    fn use_bytes(&mut self, count: usize) {
        self.start += count;
        self.position += count as u64;
    }

    /// Header and head are there: checks them and finds the payload's place.
    fn begin_payload(
        &mut self,
        header: &[u8; FRAME_HEADER_BYTES],
        head: Bytes,
        places: &mut Places<'_>,
    ) -> Result<(), String> {
        let text = |error: DecodeError| error.to_string();
        FrameHeader::verify(header, &head).map_err(text)?;
        let header = FrameHeader::read(header).map_err(text)?;
        self.state = State::Payload {
            place: Place::of(&header, head, places)?,
            bytes: header.payload_bytes,
            filled: 0,
        };
        Ok(())
    }

    /// Reads from the stream, once: into the payload's place if one is under
    /// way, and what comes behind it into the buffer.
    pub(super) fn read(
        &mut self,
        stream: &mut impl ByteStream,
        places: &mut Places<'_>,
    ) -> io::Result<Taken> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        // Behind a large payload another one is likely. Its first bytes must
        // not end up in the buffer, so no more is taken than its front.
        let ahead = if self.was_large {
            self.front_bytes.min(BUFFER_BYTES)
        } else {
            BUFFER_BYTES
        };
        match &mut self.state {
            State::Frame => {
                let until = ahead.max(self.missing_front());
                let asked = &mut self.buffer[self.end..until];
                let asked_bytes = asked.len();
                let bytes = stream.read_vectored(&mut [IoSliceMut::new(asked)])?;
                self.end += bytes;
                Ok(Taken {
                    bytes,
                    emptied: bytes < asked_bytes,
                })
            }
            State::LongHead { head, filled, .. } => {
                let asked = &mut head[*filled..];
                let asked_bytes = asked.len();
                let bytes = stream.read_vectored(&mut [IoSliceMut::new(asked)])?;
                *filled += bytes;
                self.position += bytes as u64;
                Ok(Taken {
                    bytes,
                    emptied: bytes < asked_bytes,
                })
            }
            State::Payload {
                place,
                bytes,
                filled,
            } => {
                let left = *bytes - *filled;
                let step = left.min(READ_BYTES_MAX as u64) as usize;
                let Some(into) = place.memory(*filled as usize, step, places) else {
                    let step = step.min(BUFFER_BYTES);
                    let asked = &mut self.buffer[..step];
                    let taken = stream.read_vectored(&mut [IoSliceMut::new(asked)])?;
                    *filled += taken as u64;
                    self.position += taken as u64;
                    return Ok(Taken {
                        bytes: taken,
                        emptied: taken < step,
                    });
                };
                let ahead = if step as u64 == left { ahead } else { 0 };
                let mut slices = [
                    IoSliceMut::new(into),
                    IoSliceMut::new(&mut self.buffer[..ahead]),
                ];
                let taken = stream.read_vectored(&mut slices)?;
                let payload = taken.min(step);
                place.report(*filled as usize, payload, places);
                *filled += payload as u64;
                self.position += payload as u64;
                self.end = taken - payload;
                Ok(Taken {
                    bytes: taken,
                    emptied: taken < step + ahead,
                })
            }
        }
    }

    /// Length of the next frame's header and head, as far as it is known.
    fn missing_front(&self) -> usize {
        let had = &self.buffer[self.start..self.end];
        had.first_chunk::<FRAME_HEADER_BYTES>()
            .map_or(FRAME_HEADER_BYTES, |_| self.front_bytes)
    }
}

impl Place {
    fn of(header: &FrameHeader, head: Bytes, places: &mut Places<'_>) -> Result<Self, String> {
        let text = |error: DecodeError| error.to_string();
        let payload_bytes = header.payload_bytes;
        let refuse_payload = || match payload_bytes {
            0 => Ok(()),
            bytes => Err(format!("{:?} with a payload of {bytes} bytes", header.kind)),
        };
        match header.kind {
            FrameKind::BulkRead => {
                refuse_payload()?;
                let read = BulkRead::from_bytes("bulk read", &head).map_err(text)?;
                places.reads.check_request(&read)?;
                Ok(Self::received(header, head, Buffer::empty()))
            }
            FrameKind::BulkStatus => {
                refuse_payload()?;
                BulkStatus::from_bytes("bulk status", &head).map_err(text)?;
                Ok(Self::received(header, head, Buffer::empty()))
            }
            FrameKind::BulkData => {
                let BulkData { checksums } =
                    BulkData::from_bytes("bulk data", &head).map_err(text)?;
                places
                    .reads
                    .check_answer(header.id, payload_bytes, checksums.len())?;
                Ok(Self::Read {
                    id: header.id,
                    checksums,
                })
            }
            FrameKind::BulkWrite => {
                let BulkWrite { key, offset } =
                    BulkWrite::from_bytes("bulk write", &head).map_err(text)?;
                check_chunk("write", payload_bytes)?;
                let range = Range {
                    key: &key,
                    offset,
                    bytes: payload_bytes,
                };
                match places.regions.check_lent(range) {
                    Ok(key) => Ok(Self::Lent {
                        key,
                        offset: offset as usize,
                    }),
                    // Reclaimed while the bytes were on their way.
                    Err(RegionError::Gone) => Ok(Self::Nowhere),
                    Err(RegionError::Invalid(problem)) => Err(format!("a write: {problem}")),
                }
            }
            _ => {
                let payload = match payload_bytes {
                    0 => Buffer::empty(),
                    bytes => places.pool.take(bytes as usize),
                };
                Ok(Self::received(header, head, payload))
            }
        }
    }

    fn received(header: &FrameHeader, head: Bytes, payload: Buffer) -> Self {
        Self::Message(Box::new(Received {
            kind: header.kind,
            flags: header.flags,
            id: header.id,
            head,
            payload,
        }))
    }

    /// The memory of `bytes` bytes of the payload from `at` on; `None` if
    /// nobody wants them.
    fn memory<'a>(
        &'a mut self,
        at: usize,
        bytes: usize,
        places: &'a mut Places<'_>,
    ) -> Option<&'a mut [u8]> {
        match self {
            Self::Message(received) => Some(&mut received.payload[at..at + bytes]),
            Self::Read { id, .. } => Some(&mut places.reads.memory(*id)?[at..at + bytes]),
            Self::Lent { key, offset } => {
                let from = *offset + at;
                places.regions.lent(*key, from..from + bytes)
            }
            Self::Nowhere => None,
        }
    }

    /// So many bytes were put there from `at` on.
    fn report(&self, at: usize, bytes: usize, places: &mut Places<'_>) {
        if let Self::Lent { key, offset } = self
            && bytes > 0
        {
            let from = offset + at;
            places.regions.received(*key, from..from + bytes);
        }
    }

    /// The payload is complete.
    fn complete(self, places: &mut Places<'_>) -> Arrived {
        trace::passes!("read from the socket");
        match self {
            Self::Message(received) => match received.kind {
                FrameKind::BulkRead => {
                    let read = BulkRead::from_bytes("bulk read", &received.head);
                    let read = read.expect("decoded when the head arrived");
                    Arrived::ReadRequest(received.id, read)
                }
                FrameKind::BulkStatus => {
                    let status = BulkStatus::from_bytes("bulk status", &received.head);
                    let status = status.expect("decoded when the head arrived");
                    match status.error.and_then(|error| {
                        let (token, _) = places.reads.finish(received.id)?;
                        Some((token, NetError::Region(error.message)))
                    }) {
                        Some((token, error)) => Arrived::ReadFailed(token, error),
                        None => Arrived::Nothing,
                    }
                }
                _ => Arrived::Message(*received),
            },
            Self::Read { id, checksums } => match places.reads.finish(id) {
                Some((token, buffer)) => Arrived::ReadDone(token, buffer, checksums),
                None => Arrived::Nothing,
            },
            Self::Lent { .. } | Self::Nowhere => Arrived::Nothing,
        }
    }
}
