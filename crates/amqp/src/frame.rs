//! Frames: type, channel, size, payload, 0xCE.

use crate::decode::DecodeError;
use crate::faults::{Fault, planted};
use crate::method::Method;
use crate::properties::RawProperties;
use bytes::{Buf, BufMut, Bytes, BytesMut};

/// What a client sends first, and the answer to any other header.
pub const PROTOCOL_HEADER: [u8; 8] = *b"AMQP\0\0\x09\x01";
/// The last octet of every frame.
pub const FRAME_END: u8 = 0xce;
/// Bytes of a frame beside its payload. They count for frame_max.
pub const FRAME_OVERHEAD: u32 = 8;
/// The least frame_max, and the limit before it is negotiated. RabbitMQ has it, for a token must fit into
/// `connection.start-ok`; the standard says 4096.
pub const FRAME_MIN: u32 = 8192;
/// Bytes before the payload.
pub(crate) const HEAD_BYTES: usize = 7;

/// The types of frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "their names say it")]
pub enum FrameKind {
    Method = 1,
    Header = 2,
    Body = 3,
    Heartbeat = 8,
}

/// What a frame begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) kind: FrameKind,
    pub(crate) channel: u16,
    pub(crate) bytes: u32,
}

impl Head {
    /// Reads and checks it: no more is believed of a frame than these bytes, and they are bounded by `frame_max`.
    pub(crate) fn decode(bytes: [u8; HEAD_BYTES], frame_max: u32) -> Result<Self, DecodeError> {
        let [kind, channel_high, channel_low, size @ ..] = bytes;
        let head = Self {
            kind: match kind {
                1 => FrameKind::Method,
                2 => FrameKind::Header,
                3 => FrameKind::Body,
                8 => FrameKind::Heartbeat,
                kind => return Err(DecodeError::Kind(kind)),
            },
            channel: u16::from_be_bytes([channel_high, channel_low]),
            bytes: u32::from_be_bytes(size),
        };
        let all = u64::from(head.bytes) + u64::from(FRAME_OVERHEAD);
        if all > u64::from(frame_max) && !planted(Fault::AnySize) {
            return Err(DecodeError::FrameTooLong {
                bytes: all,
                max: frame_max,
            });
        }
        if head.kind == FrameKind::Heartbeat && (head.channel != 0 || head.bytes != 0) {
            return Err(DecodeError::Heartbeat {
                channel: head.channel,
                bytes: head.bytes,
            });
        }
        Ok(head)
    }
}

/// Checks the last octet of a frame.
pub(crate) fn check_end(octet: u8) -> Result<(), DecodeError> {
    match octet {
        FRAME_END => Ok(()),
        _ if planted(Fault::AnyEnd) => Ok(()),
        octet => Err(DecodeError::End(octet)),
    }
}

/// The header of a content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContentHeader {
    /// The class of the method before: 60, as `basic` alone has content.
    pub class: u16,
    /// Bytes of the body, in as many frames as it takes.
    pub body_bytes: u64,
    /// Properties of the message.
    pub properties: RawProperties,
}

impl ContentHeader {
    /// The header of a frame's payload.
    ///
    /// # Errors
    /// If it is none.
    pub fn decode(mut payload: Bytes) -> Result<Self, DecodeError> {
        if payload.len() < 14 {
            return Err(DecodeError::Short {
                at: 0,
                needed: 14,
                had: payload.len(),
            });
        }
        let (class, weight) = (payload.get_u16(), payload.get_u16());
        let body_bytes = payload.get_u64();
        if weight != 0 {
            return Err(DecodeError::Weight(weight));
        }
        Ok(Self {
            class,
            body_bytes,
            properties: RawProperties::of_header(payload)?,
        })
    }

    fn encode(&self, out: &mut BytesMut) {
        out.put_u16(self.class);
        out.put_u16(0);
        out.put_u64(self.body_bytes);
        out.put_slice(self.properties.as_bytes());
    }
}

/// A frame.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Frame {
    Method { channel: u16, method: Method },
    Header { channel: u16, header: ContentHeader },
    Body { channel: u16, bytes: Bytes },
    Heartbeat,
}

impl Frame {
    /// Takes the next frame off the front of `bytes`, if it is whole.
    ///
    /// # Errors
    /// If there is none, or one of more than `frame_max` bytes. An error is final: where the next frame begins is not
    /// known.
    pub fn decode(bytes: &mut BytesMut, frame_max: u32) -> Result<Option<Self>, DecodeError> {
        let Some(head) = bytes.first_chunk::<HEAD_BYTES>() else {
            return Ok(None);
        };
        let head = Head::decode(*head, frame_max)?;
        let payload = usize::try_from(head.bytes).expect("usize has 32 bits at least");
        let Some(&end) = bytes.get(HEAD_BYTES + payload) else {
            return Ok(None);
        };
        check_end(end)?;
        bytes.advance(HEAD_BYTES);
        let payload = bytes.split_to(payload).freeze();
        bytes.advance(1);
        Self::of(head, payload).map(Some)
    }

    fn of(head: Head, payload: Bytes) -> Result<Self, DecodeError> {
        let channel = head.channel;
        Ok(match head.kind {
            FrameKind::Method => Self::Method {
                channel,
                method: Method::decode(payload)?,
            },
            FrameKind::Header => Self::Header {
                channel,
                header: ContentHeader::decode(payload)?,
            },
            FrameKind::Body => Self::Body {
                channel,
                bytes: payload,
            },
            FrameKind::Heartbeat => Self::Heartbeat,
        })
    }

    /// Appends its bytes.
    ///
    /// # Panics
    /// If its payload has 4 GiB or more.
    pub fn encode(&self, out: &mut BytesMut) {
        match self {
            Self::Method { channel, method } => put_method(*channel, method, out),
            Self::Header { channel, header } => {
                put(FrameKind::Header, *channel, out, |out| header.encode(out));
            }
            Self::Body { channel, bytes } => {
                put(FrameKind::Body, *channel, out, |out| out.put_slice(bytes));
            }
            Self::Heartbeat => put(FrameKind::Heartbeat, 0, out, |_| {}),
        }
    }
}

/// Appends the frame of a method.
pub(crate) fn put_method(channel: u16, method: &Method, out: &mut BytesMut) {
    put(FrameKind::Method, channel, out, |out| method.encode(out));
}

fn put(kind: FrameKind, channel: u16, out: &mut BytesMut, payload: impl FnOnce(&mut BytesMut)) {
    out.put_u8(kind as u8);
    out.put_u16(channel);
    let size_at = out.len();
    out.put_u32(0);
    payload(out);
    let bytes = u32::try_from(out.len() - size_at - 4).expect("no payload has 4 GiB");
    out[size_at..size_at + 4].copy_from_slice(&bytes.to_be_bytes());
    out.put_u8(FRAME_END);
}
