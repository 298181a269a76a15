//! Frames of a link between two servers. The format is docs/format/peer.md.

use crate::faults::{Fault, planted};
use bytes::Bytes;
use wire::checksum::crc32c;
use wire::codec::{DecodeError, Problem, Reader, Write};

/// Bytes before a frame's body.
pub(super) const HEADER_BYTES: usize = 20;
const MAGIC: u32 = u32::from_le_bytes(*b"TWpl");
const WHAT: &str = "frame of a peer link";
/// What the body gets first, where the header promises more.
const FIRST_BYTES: usize = 4 << 10;

const _: () = assert!(HEADER_BYTES == 4 + 4 + 2 + 2 + 4 + 4);

/// What a frame is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Hello = 1,
    Message = 2,
    Heartbeat = 3,
    Goodbye = 4,
}

/// A frame that has come whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: Kind,
    pub(super) body: Bytes,
}

/// The header of a frame with this body, which is to follow it.
///
/// # Panics
/// For a body whose length is no u32: its sender has a lower bound.
pub(super) fn header(kind: Kind, body: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(HEADER_BYTES);
    out.put_u32(MAGIC);
    out.put_u32(0);
    out.put_u16(kind as u16);
    out.put_u16(0);
    out.put_u32(u32::try_from(body.len()).expect("its sender has a lower bound"));
    out.put_u32(crc32c(body));
    let crc = crc32c(&out[8..]);
    out[4..8].copy_from_slice(&crc.to_le_bytes());
    Bytes::from(out)
}

/// A header that was read.
#[derive(Debug, Clone, Copy)]
struct Header {
    kind: Kind,
    length: usize,
    crc: u32,
}

impl Header {
    fn decode(bytes: &[u8; HEADER_BYTES], body_bytes_max: usize) -> Result<Self, DecodeError> {
        let mut from = Reader::new(WHAT, bytes);
        let magic = from.u32()?;
        if magic != MAGIC {
            return Err(DecodeError::value(WHAT, 0, "magic", magic.into()));
        }
        let (stored, computed) = (from.u32()?, crc32c(&bytes[8..]));
        if stored != computed && !planted(Fault::CrcNotChecked) {
            return Err(DecodeError::checksum(WHAT, 4, computed, stored));
        }
        let kind = match from.u16()? {
            1 => Kind::Hello,
            2 => Kind::Message,
            3 => Kind::Heartbeat,
            4 => Kind::Goodbye,
            other => return Err(DecodeError::newer(WHAT, 8, "kind", other.into())),
        };
        let reserved = from.u16()?;
        if reserved != 0 {
            return Err(DecodeError::newer(WHAT, 10, "reserved", reserved.into()));
        }
        let length = from.u32()?;
        match usize::try_from(length).ok() {
            Some(length) if length <= body_bytes_max => Ok(Self {
                kind,
                length,
                crc: from.u32()?,
            }),
            _ => Err(DecodeError::value(WHAT, 12, "length", length.into())),
        }
    }
}

/// Puts frames together from bytes as they come.
///
/// Call [`Decoder::push`] until it has taken all bytes. After an error nothing more can be read of the stream.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    header: [u8; HEADER_BYTES],
    header_bytes: usize,
    /// The frame whose header is whole, and what has come of its body.
    frame: Option<(Header, Vec<u8>)>,
}

impl Decoder {
    /// Takes bytes up to the end of a frame, which it returns, or all of them. A body has
    /// `body_bytes_max` bytes at most; memory for it is taken as its bytes come.
    pub(super) fn push(
        &mut self,
        bytes: &mut &[u8],
        body_bytes_max: usize,
    ) -> Result<Option<Frame>, DecodeError> {
        if self.frame.is_none() {
            let piece = take(bytes, HEADER_BYTES - self.header_bytes);
            let end = self.header_bytes + piece.len();
            self.header[self.header_bytes..end].copy_from_slice(piece);
            self.header_bytes = end;
            self.check_beginning()?;
            if end < HEADER_BYTES {
                return Ok(None);
            }
            let header = Header::decode(&self.header, body_bytes_max)?;
            self.frame = Some((header, Vec::new()));
        }
        let Some((header, body)) = &mut self.frame else {
            return Ok(None);
        };
        let piece = take(bytes, header.length - body.len());
        let needed = body.len() + piece.len();
        if needed > body.capacity() {
            // Twice what has come, so that it is moved seldom, and never what is only promised.
            let space = needed.max(2 * body.len()).max(FIRST_BYTES);
            body.reserve_exact(space.min(header.length) - body.len());
        }
        body.extend_from_slice(piece);
        if body.len() < header.length {
            return Ok(None);
        }
        let (header, body) = self.frame.take().expect("it was there a line before");
        self.header_bytes = 0;
        let computed = crc32c(&body);
        if computed != header.crc && !planted(Fault::CrcNotChecked) {
            return Err(DecodeError::checksum(WHAT, 16, computed, header.crc));
        }
        Ok(Some(Frame {
            kind: header.kind,
            body: Bytes::from(body),
        }))
    }

    /// Bytes that belong to another protocol are known by the first of them: more may never come.
    fn check_beginning(&self) -> Result<(), DecodeError> {
        let came = &self.header[..self.header_bytes.min(4)];
        match MAGIC.to_le_bytes().starts_with(came) {
            true => Ok(()),
            false => {
                let mut found = [0; 8];
                found[..came.len()].copy_from_slice(came);
                let found = u64::from_le_bytes(found);
                Err(DecodeError::value(WHAT, 0, "magic", found))
            }
        }
    }

    /// Whether a frame has begun and is not whole, and how long its body is, as far as that is known.
    pub(super) fn begun(&self) -> Option<usize> {
        match &self.frame {
            Some((header, _)) => Some(header.length),
            None if self.header_bytes > 0 => Some(0),
            None => None,
        }
    }

    /// Memory that a frame which is not whole has.
    #[cfg(test)]
    pub(super) fn memory_bytes(&self) -> usize {
        self.frame.as_ref().map_or(0, |(_, body)| body.capacity())
    }
}

/// Takes the first bytes, `most` of them at most.
fn take<'a>(bytes: &mut &'a [u8], most: usize) -> &'a [u8] {
    let (piece, rest) = bytes.split_at(most.min(bytes.len()));
    *bytes = rest;
    piece
}

/// What the error means, where the bytes are of a protocol that is known.
pub(super) fn explain(error: &DecodeError) -> String {
    const TLS_HANDSHAKE: u64 = 0x16;
    const OF_CLIENTS: u64 = wire::frame::FRAME_MAGIC as u64;
    let first = match error.problem {
        Problem::Value {
            field: "magic",
            found,
        } => found & 0xff,
        _ => return error.to_string(),
    };
    match first {
        TLS_HANDSHAKE => format!("{error}: the other end speaks TLS, and this one does not"),
        OF_CLIENTS => format!("{error}: the other end speaks the protocol of clients"),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::with;
    use crate::random::Random;

    fn bytes_of(kind: Kind, body: &[u8]) -> Vec<u8> {
        let mut bytes = header(kind, body).to_vec();
        bytes.extend_from_slice(body);
        bytes
    }

    fn all(
        bytes: &[u8],
        pieces: &mut dyn FnMut(usize) -> usize,
    ) -> Result<Vec<Frame>, DecodeError> {
        let mut decoder = Decoder::default();
        let (mut rest, mut frames) = (bytes, Vec::new());
        while !rest.is_empty() {
            let (mut piece, behind) = rest.split_at(pieces(rest.len()).clamp(1, rest.len()));
            rest = behind;
            while !piece.is_empty() {
                frames.extend(decoder.push(&mut piece, 1 << 20)?);
            }
        }
        match decoder.begun() {
            Some(_) => Err(DecodeError::value(WHAT, 0, "end", 0)),
            None => Ok(frames),
        }
    }

    #[test]
    fn frames_come_whole_in_whatever_pieces_their_bytes_come() {
        let mut random = Random::new(7);
        let bodies: Vec<Vec<u8>> = [0, 1, 19, 20, 4_095, 4_097, 100_000]
            .iter()
            .map(|length| (0..*length).map(|_| random.number() as u8).collect())
            .collect();
        let bytes: Vec<u8> = bodies
            .iter()
            .flat_map(|body| bytes_of(Kind::Message, body))
            .collect();
        let mut sizes: Vec<Box<dyn FnMut(usize) -> usize>> = vec![
            Box::new(|_| 1),
            Box::new(|all| all),
            Box::new(|_| 20),
            Box::new(move |_| random.within(1, 9_000) as usize),
        ];
        for size in &mut sizes {
            let frames = all(&bytes, size).unwrap();
            let found: Vec<&[u8]> = frames.iter().map(|frame| &frame.body[..]).collect();
            assert_eq!(
                found,
                bodies.iter().map(|body| &body[..]).collect::<Vec<_>>()
            );
        }
    }

    /// Every kind with a body; each cut short, and with each bit turned.
    #[test]
    fn no_frame_that_is_cut_or_changed_is_taken() {
        for kind in [Kind::Hello, Kind::Message, Kind::Heartbeat, Kind::Goodbye] {
            let bytes = bytes_of(kind, b"seventeen octets.");
            for end in 1..bytes.len() {
                assert!(
                    all(&bytes[..end], &mut |all| all).is_err(),
                    "{kind:?} to {end}"
                );
            }
            for bit in 0..bytes.len() * 8 {
                let mut changed = bytes.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                assert!(all(&changed, &mut |all| all).is_err(), "{kind:?} bit {bit}");
            }
        }
    }

    #[test]
    fn a_checksum_that_nobody_checks_is_noticed() {
        let mut bytes = bytes_of(Kind::Message, b"body");
        *bytes.last_mut().unwrap() ^= 1;
        assert!(all(&bytes, &mut |all| all).is_err());
        assert!(with(Fault::CrcNotChecked, || all(&bytes, &mut |all| all)).is_ok());
    }

    #[test]
    fn any_bytes_give_a_frame_or_an_error_and_never_a_panic() {
        let mut random = Random::new(1);
        for _ in 0..20_000 {
            let mut bytes: Vec<u8> = (0..random.below(64))
                .map(|_| random.number() as u8)
                .collect();
            if random.one_in(2) && bytes.len() >= HEADER_BYTES {
                bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
                let crc = crc32c(&bytes[8..HEADER_BYTES]);
                bytes[4..8].copy_from_slice(&crc.to_le_bytes());
            }
            let _ = all(&bytes, &mut |_| random.within(1, 64) as usize);
        }
    }

    #[test]
    fn memory_is_taken_for_what_came_and_not_for_what_was_promised() {
        let body = vec![7; 1 << 20];
        let bytes = bytes_of(Kind::Message, &body);
        let mut decoder = Decoder::default();
        let mut came = 0;
        for piece in bytes.chunks(1_000) {
            let mut piece = piece;
            let frame = decoder.push(&mut piece, 1 << 20).unwrap();
            came += 1_000;
            assert!(frame.is_some() || decoder.memory_bytes() <= (2 * came).max(FIRST_BYTES));
        }
    }

    #[test]
    fn a_length_beyond_the_bound_ends_it_before_a_byte_of_the_body() {
        let mut bytes = header(Kind::Message, b"").to_vec();
        bytes[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
        let crc = crc32c(&bytes[8..]);
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        let error = all(&bytes, &mut |all| all).unwrap_err();
        assert!(error.to_string().contains("length"), "{error}");
    }

    #[test]
    fn another_protocol_is_known_by_its_first_byte_and_named() {
        for (byte, words) in [
            (0x16, "speaks TLS"),
            (0x89, "protocol of clients"),
            (b'G', "magic"),
        ] {
            let error = all(&[byte], &mut |all| all).unwrap_err();
            assert!(explain(&error).contains(words), "{}", explain(&error));
        }
    }
}
