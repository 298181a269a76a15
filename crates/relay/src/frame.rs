//! Frames: what passes on a connection of a tunnel. The bytes are `docs/format/relay.md`.

use crate::proof::PROOF_BYTES;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::fmt;

/// Bytes before the payload of a frame.
pub const HEADER_BYTES: usize = 12;
/// The most bytes of a stream in one frame.
pub const DATA_BYTES_MAX: usize = 64 << 10;
/// The longest payload once both sides know each other.
pub const PAYLOAD_BYTES_MAX: usize = 8 + DATA_BYTES_MAX;
/// The longest payload before.
pub const HELLO_BYTES_MAX: usize = 4 << 10;
/// The longest name of a target.
pub const NAME_BYTES_MAX: usize = 64;
/// The most targets of one side.
pub const TARGETS_MAX: usize = 32;
/// This version of the protocol.
pub const VERSION: u16 = 1;

/// One of a session's streams: the side that joined opens even ones, the other one odd ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u32);

/// What passes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the fields say it")]
pub enum Frame {
    /// Who joins, or comes again: the first frame of a connection.
    Hello(Hello),
    /// The answer of who offers.
    Welcome(Welcome),
    /// The other answer.
    Refused(Refusal),
    /// A connection to a target.
    Open { stream: StreamId, name: String },
    /// Bytes of a stream, from `offset` on.
    Data {
        stream: StreamId,
        offset: u64,
        bytes: Bytes,
    },
    /// Of what the other side sends: all before `received` has come, and all before `limit` may.
    Credit {
        stream: StreamId,
        received: u64,
        limit: u64,
    },
    /// No more bytes come from `offset` on.
    Close { stream: StreamId, offset: u64 },
    /// The stream ends without an order.
    Reset { stream: StreamId, reason: Reason },
    /// To be answered at once, on the same connection.
    Ping(u64),
    /// The answer.
    Pong(u64),
    /// The most that the receiver may send from now on, bytes a second; 0 is without a limit.
    Rate(u64),
    /// The session ends.
    Goodbye(Reason),
}

/// The kind of a Hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// With the code.
    Join,
    /// With the session's credential.
    Attach,
}

/// Who joins, or comes again.
#[derive(Clone, PartialEq, Eq)]
pub struct Hello {
    /// With what.
    pub purpose: Purpose,
    /// The session, of who comes again.
    pub session: [u8; 16],
    /// That it may.
    pub proof: [u8; PROOF_BYTES],
    /// What is asked for.
    pub terms: Terms,
    /// Names that the sender lets the other side open.
    pub targets: Vec<String>,
}

/// What both sides keep to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Terms {
    /// From who joins to who offers, bytes a second; 0 is without a limit.
    pub rate_up: u64,
    /// The other way.
    pub rate_down: u64,
    /// Connections at once.
    pub stripes: u8,
}

/// The answer to a Hello that is taken.
#[derive(Clone, PartialEq, Eq)]
pub struct Welcome {
    /// The session.
    pub session: [u8; 16],
    /// That it is the offer that answers.
    pub proof: [u8; PROOF_BYTES],
    /// The session's secret, to who joins; zeros to who comes again.
    pub secret: [u8; 32],
    /// What counts.
    pub terms: Terms,
    /// For how long the offer lasts.
    pub lasts_seconds: u32,
    /// Names that the sender lets the other side open.
    pub targets: Vec<String>,
}

impl fmt::Debug for Hello {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = f.debug_struct("Hello");
        all.field("purpose", &self.purpose)
            .field("terms", &self.terms);
        all.field("targets", &self.targets).finish_non_exhaustive()
    }
}

impl fmt::Debug for Welcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = f.debug_struct("Welcome");
        all.field("terms", &self.terms)
            .field("lasts_seconds", &self.lasts_seconds);
        all.field("targets", &self.targets).finish_non_exhaustive()
    }
}

/// Names of a code of the protocol, with what they mean to people.
macro_rules! codes {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $code:literal, $text:literal;)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name { $($(#[$doc])* $variant = $code),* }

        impl $name {
            /// All of them, for the page and for tests.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            fn from_code(code: u16) -> Option<Self> {
                match code { $($code => Some(Self::$variant),)* _ => None }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$variant => $text),* })
            }
        }
    };
}

codes! {
    /// Why somebody may not come in.
    Refusal {
        /// The proof is not that of the code.
        Wrong = 1, "the code is wrong, or somebody between here and there ends TLS (a proxy that inspects it)";
        /// The code was used.
        Used = 2, "the code was used before: it is good once. Ask for another offer";
        /// The code's time is over.
        Expired = 3, "the code has expired: it is good for 10 minutes. Ask for another offer";
        /// Too many wrong codes came.
        Guessed = 4, "too many wrong codes came, so that none is taken any more. Ask for another offer";
        /// The session is none of this offer.
        Unknown = 5, "the offer does not know this session: it was started anew. Ask for its code";
        /// The offer's time is over.
        Over = 6, "the offer is over";
        /// The peer's version is another one.
        Version = 7, "the other side speaks another version of the protocol";
        /// Too many connections of the session.
        Full = 8, "the session has all of its connections";
    }
}

codes! {
    /// Why a stream, or a session, ends.
    Reason {
        /// The program at the other side ended its connection without an order.
        Program = 1, "the program at the other side reset the connection";
        /// No target of that name.
        NoTarget = 2, "the other side has no target of that name";
        /// The target does not take connections.
        Unreachable = 3, "the target does not take the connection";
        /// The two sites do not hear each other.
        Cut = 4, "the connection between the sites is cut";
        /// There are too many streams.
        Full = 5, "there are too many connections at once";
        /// Not known, or no longer.
        Gone = 6, "the other side does not know the stream any more";
        /// A side ends the session.
        Leaves = 7, "the other side has ended the relay";
        /// The offer's time is over.
        Over = 8, "the offer is over";
        /// The other side broke the protocol.
        Protocol = 9, "the other side does not keep to the protocol";
    }
}

/// What is wrong with bytes that should be a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FrameError {
    /// The payload would be longer than it may be here.
    TooLong {
        /// Its kind.
        kind: u8,
        /// Bytes that it would have.
        bytes: u32,
        /// Bytes that it may have.
        max: usize,
    },
    /// There is no such kind.
    Kind(u8),
    /// The payload is not what its kind has.
    Malformed {
        /// Its kind.
        kind: u8,
        /// What is wrong with it.
        what: &'static str,
    },
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { kind, bytes, max } => {
                write!(
                    f,
                    "a frame of kind {kind} says {bytes} bytes, and {max} are the most"
                )
            }
            Self::Kind(kind) => write!(f, "there is no frame of kind {kind}"),
            Self::Malformed { kind, what } => write!(f, "a frame of kind {kind}: {what}"),
        }
    }
}

impl std::error::Error for FrameError {}

const HELLO: u8 = 1;
const WELCOME: u8 = 2;
const REFUSED: u8 = 3;
const OPEN: u8 = 16;
const DATA: u8 = 17;
const CREDIT: u8 = 18;
const CLOSE: u8 = 19;
const RESET: u8 = 20;
const PING: u8 = 21;
const PONG: u8 = 22;
const RATE: u8 = 23;
const GOODBYE: u8 = 24;

impl Frame {
    /// Appends its bytes.
    pub fn encode(&self, out: &mut BytesMut) {
        let start = out.len();
        out.put_bytes(0, HEADER_BYTES);
        let (kind, stream) = self.put_payload(out);
        let bytes = u32::try_from(out.len() - start - HEADER_BYTES).expect("payloads are short");
        let mut header = &mut out[start..start + HEADER_BYTES];
        header.put_u32_le(bytes);
        header.put_u8(kind);
        header.put_bytes(0, 3);
        header.put_u32_le(stream.0);
    }

    fn put_payload(&self, out: &mut BytesMut) -> (u8, StreamId) {
        let none = StreamId(0);
        match self {
            Self::Hello(hello) => {
                hello.put(out);
                (HELLO, none)
            }
            Self::Welcome(welcome) => {
                welcome.put(out);
                (WELCOME, none)
            }
            Self::Refused(refusal) => {
                out.put_u16_le(*refusal as u16);
                (REFUSED, none)
            }
            Self::Open { stream, name } => {
                out.put_slice(name.as_bytes());
                (OPEN, *stream)
            }
            Self::Data {
                stream,
                offset,
                bytes,
            } => {
                out.put_u64_le(*offset);
                out.put_slice(bytes);
                (DATA, *stream)
            }
            Self::Credit {
                stream,
                received,
                limit,
            } => {
                out.put_u64_le(*received);
                out.put_u64_le(*limit);
                (CREDIT, *stream)
            }
            Self::Close { stream, offset } => {
                out.put_u64_le(*offset);
                (CLOSE, *stream)
            }
            Self::Reset { stream, reason } => {
                out.put_u16_le(*reason as u16);
                (RESET, *stream)
            }
            Self::Ping(token) => {
                out.put_u64_le(*token);
                (PING, none)
            }
            Self::Pong(token) => {
                out.put_u64_le(*token);
                (PONG, none)
            }
            Self::Rate(rate) => {
                out.put_u64_le(*rate);
                (RATE, none)
            }
            Self::Goodbye(reason) => {
                out.put_u16_le(*reason as u16);
                (GOODBYE, none)
            }
        }
    }

    /// Takes the next frame from the front of `input`; `None` if it has not come whole.
    ///
    /// # Errors
    /// [`FrameError`] for what is no frame, as soon as its header is there: nothing is kept for a payload of more
    /// than `max` bytes.
    pub fn decode(input: &mut BytesMut, max: usize) -> Result<Option<Self>, FrameError> {
        let Some(mut header) = input.get(..HEADER_BYTES) else {
            return Ok(None);
        };
        let (bytes, kind) = (header.get_u32_le(), header.get_u8());
        let zeros = [header.get_u8(), header.get_u8(), header.get_u8()];
        let stream = StreamId(header.get_u32_le());
        let max = max.min(longest(kind)?);
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        if length > max {
            return Err(FrameError::TooLong { kind, bytes, max });
        }
        let malformed = |what| FrameError::Malformed { kind, what };
        if zeros != [0; 3] {
            return Err(malformed("a reserved byte is not 0"));
        }
        if !matches!(kind, OPEN..=RESET) && stream.0 != 0 {
            return Err(malformed("it names a stream"));
        }
        if input.len() < HEADER_BYTES + length {
            return Ok(None);
        }
        input.advance(HEADER_BYTES);
        let payload = input.split_to(length).freeze();
        Self::read(kind, stream, payload)
            .map(Some)
            .map_err(malformed)
    }

    fn read(kind: u8, stream: StreamId, payload: Bytes) -> Result<Self, &'static str> {
        let mut payload = Payload(payload);
        let frame = match kind {
            HELLO => Self::Hello(Hello::read(&mut payload)?),
            WELCOME => Self::Welcome(Welcome::read(&mut payload)?),
            REFUSED => {
                Self::Refused(Refusal::from_code(payload.u16()?).ok_or("its code is not known")?)
            }
            OPEN => Self::Open {
                stream,
                name: name(payload.rest())?,
            },
            DATA => {
                let offset = payload.u64()?;
                let bytes = payload.rest();
                if bytes.is_empty() {
                    return Err("it has no bytes");
                }
                if offset
                    .checked_add(bytes.len() as u64)
                    .is_none_or(|end| end > OFFSET_MAX)
                {
                    return Err("its offset is too great");
                }
                Self::Data {
                    stream,
                    offset,
                    bytes,
                }
            }
            CREDIT => Self::Credit {
                stream,
                received: payload.offset()?,
                limit: payload.offset()?,
            },
            CLOSE => Self::Close {
                stream,
                offset: payload.offset()?,
            },
            RESET => Self::Reset {
                stream,
                reason: reason(payload.u16()?)?,
            },
            PING => Self::Ping(payload.u64()?),
            PONG => Self::Pong(payload.u64()?),
            RATE => Self::Rate(payload.u64()?),
            _ => Self::Goodbye(reason(payload.u16()?)?),
        };
        match payload.0.is_empty() {
            true => Ok(frame),
            false => Err("it has more bytes than its kind"),
        }
    }
}

/// The greatest offset in a stream: sums of two do not overflow.
const OFFSET_MAX: u64 = 1 << 62;

/// The longest payload of a kind.
fn longest(kind: u8) -> Result<usize, FrameError> {
    match kind {
        HELLO | WELCOME => Ok(HELLO_BYTES_MAX),
        REFUSED | RESET | GOODBYE => Ok(2),
        OPEN => Ok(NAME_BYTES_MAX),
        DATA => Ok(PAYLOAD_BYTES_MAX),
        CREDIT => Ok(16),
        CLOSE | PING | PONG | RATE => Ok(8),
        kind => Err(FrameError::Kind(kind)),
    }
}

fn reason(code: u16) -> Result<Reason, &'static str> {
    Reason::from_code(code).ok_or("its reason is not known")
}

/// Whether a text may name a target: letters, digits, `.`, `_` and `-`.
pub fn is_name(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    !text.is_empty() && text.len() <= NAME_BYTES_MAX && text.bytes().all(is_letter)
}

fn name(bytes: Bytes) -> Result<String, &'static str> {
    let text = std::str::from_utf8(&bytes)
        .ok()
        .filter(|text| is_name(text));
    text.map(str::to_owned).ok_or("it has no name of a target")
}

impl Terms {
    fn put(self, out: &mut BytesMut) {
        out.put_u64_le(self.rate_up);
        out.put_u64_le(self.rate_down);
        out.put_u8(self.stripes);
    }

    fn read(payload: &mut Payload) -> Result<Self, &'static str> {
        Ok(Self {
            rate_up: payload.u64()?,
            rate_down: payload.u64()?,
            stripes: payload.u8()?,
        })
    }
}

impl Hello {
    fn put(&self, out: &mut BytesMut) {
        out.put_u16_le(VERSION);
        out.put_u8(match self.purpose {
            Purpose::Join => 1,
            Purpose::Attach => 2,
        });
        out.put_slice(&self.session);
        out.put_slice(&self.proof);
        self.terms.put(out);
        put_names(&self.targets, out);
    }

    fn read(payload: &mut Payload) -> Result<Self, &'static str> {
        if payload.u16()? != VERSION {
            return Err("it is of another version");
        }
        let purpose = match payload.u8()? {
            1 => Purpose::Join,
            2 => Purpose::Attach,
            _ => return Err("its purpose is not known"),
        };
        Ok(Self {
            purpose,
            session: payload.array()?,
            proof: payload.array()?,
            terms: Terms::read(payload)?,
            targets: payload.names()?,
        })
    }
}

impl Welcome {
    fn put(&self, out: &mut BytesMut) {
        out.put_u16_le(VERSION);
        out.put_slice(&self.session);
        out.put_slice(&self.proof);
        out.put_slice(&self.secret);
        self.terms.put(out);
        out.put_u32_le(self.lasts_seconds);
        put_names(&self.targets, out);
    }

    fn read(payload: &mut Payload) -> Result<Self, &'static str> {
        if payload.u16()? != VERSION {
            return Err("it is of another version");
        }
        Ok(Self {
            session: payload.array()?,
            proof: payload.array()?,
            secret: payload.array()?,
            terms: Terms::read(payload)?,
            lasts_seconds: u32::from_le_bytes(payload.array()?),
            targets: payload.names()?,
        })
    }
}

fn put_names(names: &[String], out: &mut BytesMut) {
    out.put_u8(u8::try_from(names.len()).expect("targets are few"));
    for name in names {
        out.put_u8(u8::try_from(name.len()).expect("names are short"));
        out.put_slice(name.as_bytes());
    }
}

/// What is left of a payload.
struct Payload(Bytes);

impl Payload {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], &'static str> {
        let array = self
            .0
            .first_chunk::<N>()
            .copied()
            .ok_or("it is too short")?;
        self.0.advance(N);
        Ok(array)
    }

    fn u8(&mut self) -> Result<u8, &'static str> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Result<u16, &'static str> {
        self.array().map(u16::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, &'static str> {
        self.array().map(u64::from_le_bytes)
    }

    fn offset(&mut self) -> Result<u64, &'static str> {
        match self.u64()? {
            offset if offset <= OFFSET_MAX => Ok(offset),
            _ => Err("its offset is too great"),
        }
    }

    fn names(&mut self) -> Result<Vec<String>, &'static str> {
        let count = usize::from(self.u8()?);
        if count > TARGETS_MAX {
            return Err("it has too many names");
        }
        let mut names = Vec::new();
        for _ in 0..count {
            let length = usize::from(self.u8()?);
            if self.0.len() < length {
                return Err("it is too short");
            }
            names.push(name(self.0.split_to(length))?);
        }
        Ok(names)
    }

    fn rest(&mut self) -> Bytes {
        std::mem::take(&mut self.0)
    }
}

#[cfg(test)]
pub(crate) mod tests;
