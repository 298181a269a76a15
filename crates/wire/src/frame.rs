//! The frame: what a stream transport sends. The layout is `docs/format/wire.md`.

use crate::checksum::{crc32c, crc32c_append};
use crate::codec::{DecodeError, Problem};

/// The first byte of every frame: no TLS record, HTTP request, AMQP header or
/// Kafka request begins with it, so that one port can distinguish them.
pub const FRAME_MAGIC: u8 = 0x89;
/// The version of the frame format.
pub const FRAME_VERSION: u8 = 1;
/// Bytes of a frame's header.
pub const FRAME_HEADER_BYTES: usize = 32;
/// The longest head of a frame. Longer things are payload.
pub const HEAD_BYTES_MAX: u32 = 1 << 20;
/// The most bytes in one frame of a bulk transfer: control frames overtake
/// between them.
pub const BULK_CHUNK_BYTES: usize = 512 * 1024;

/// The flag of a [`FrameKind::Heartbeat`] that answers one, and is not answered.
pub const HEARTBEAT_ANSWER: u8 = 1;

macro_rules! frame_kinds {
    ($($(#[$meta:meta])* $name:ident = $code:literal,)*) => {
        /// What a frame is for.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum FrameKind { $($(#[$meta])* $name = $code,)* }

        impl FrameKind {
            /// The kind of this number, if this version knows it.
            pub fn from_u8(code: u8) -> Option<Self> {
                match code { $($code => Some(Self::$name),)* _ => None }
            }

            /// All kinds, for tables in documentation and for tests.
            pub const ALL: &[Self] = &[$(Self::$name),*];
        }
    };
}

frame_kinds! {
    /// First frame of the side that connects: [`crate::message::Hello`].
    Hello = 1,
    /// Answer to it: [`crate::message::Welcome`].
    Welcome = 2,
    /// Another credential, [`crate::message::Authenticate`]; from the server, how long the present
    /// one is good: [`crate::message::Authenticated`].
    Authenticate = 3,
    /// A call: [`crate::message::RequestHead`] and the request.
    Request = 4,
    /// The call's answer.
    Reply = 5,
    /// The call's failure: [`crate::error::ErrorReply`].
    ErrorReply = 6,
    /// The call with this id is not wanted any more. No answer of its own.
    Cancel = 7,
    /// Batches for a subscription: [`crate::message::Deliver`], the batches as payload.
    Deliver = 8,
    /// More space for a subscription: [`crate::message::Credit`].
    Credit = 9,
    /// A sign of life; the other side answers with one, flagged [`HEARTBEAT_ANSWER`].
    Heartbeat = 10,
    /// The sender closes soon and says why: [`crate::error::ErrorReply`].
    GoAway = 11,
    /// The subscription with this id is over: [`crate::error::ErrorReply`].
    Ended = 12,
    /// What a group's member owns has changed: [`crate::message::Assigned`].
    Assigned = 13,
    /// Events for a queue's member: [`crate::message::Leased`], the batches as payload.
    Leased = 14,
    /// The sender wants bytes of a region: emulation of a one-sided read.
    BulkRead = 32,
    /// The bytes that were wanted, then the checksums of their blocks.
    BulkData = 33,
    /// Bytes for a region: emulation of a one-sided write.
    BulkWrite = 34,
    /// A bulk operation failed, or (for a write) is done: [`crate::error::ErrorReply`] or empty.
    BulkStatus = 35,
}

/// Set in the flags of a request whose answer, if it is a good one, nobody hurries
/// for: it may wait a little for the next frame of its connection.
pub const REQUEST_QUIET: u8 = 1;

/// A frame's header, apart from its fixed fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// What the frame is for.
    pub kind: FrameKind,
    /// Bits whose meaning depends on the kind; 0 where none is defined.
    pub flags: u8,
    /// Length of the head, which follows the header.
    pub head_bytes: u32,
    /// Length of the payload, which follows the head.
    pub payload_bytes: u64,
    /// Which call, subscription or bulk operation.
    pub id: u64,
}

impl FrameHeader {
    /// The header's bytes, with its checksum over the header and `head`.
    pub fn to_bytes(&self, head: &[u8]) -> [u8; FRAME_HEADER_BYTES] {
        debug_assert_eq!(head.len(), self.head_bytes as usize);
        let mut out = [0; FRAME_HEADER_BYTES];
        out[0] = FRAME_MAGIC;
        out[1] = FRAME_VERSION;
        out[2] = self.kind as u8;
        out[3] = self.flags;
        out[4..8].copy_from_slice(&self.head_bytes.to_le_bytes());
        out[8..16].copy_from_slice(&self.payload_bytes.to_le_bytes());
        out[16..24].copy_from_slice(&self.id.to_le_bytes());
        // 24..28 are reserved and zero.
        let crc = crc32c_append(crc32c(&out[..28]), head);
        out[28..32].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads a header, all but its checksum, which also covers the head:
    /// give both to [`FrameHeader::verify`] when the head has arrived.
    pub fn read(bytes: &[u8; FRAME_HEADER_BYTES]) -> Result<Self, DecodeError> {
        const WHAT: &str = "frame header";
        let refuse = |at: usize, field, found: u64| Err(DecodeError::value(WHAT, at, field, found));
        if bytes[0] != FRAME_MAGIC {
            return refuse(0, "first byte", u64::from(bytes[0]));
        }
        if bytes[1] != FRAME_VERSION {
            return refuse(1, "frame version", u64::from(bytes[1]));
        }
        let Some(kind) = FrameKind::from_u8(bytes[2]) else {
            return refuse(2, "frame kind", u64::from(bytes[2]));
        };
        let head_bytes = u32::from_le_bytes(bytes[4..8].try_into().expect("four bytes"));
        if head_bytes > HEAD_BYTES_MAX {
            return refuse(4, "head length", u64::from(head_bytes));
        }
        if bytes[24..28] != [0; 4] {
            return refuse(24, "reserved", 1);
        }
        Ok(Self {
            kind,
            flags: bytes[3],
            head_bytes,
            payload_bytes: u64::from_le_bytes(bytes[8..16].try_into().expect("eight bytes")),
            id: u64::from_le_bytes(bytes[16..24].try_into().expect("eight bytes")),
        })
    }

    /// Checks the checksum over header and head.
    pub fn verify(bytes: &[u8; FRAME_HEADER_BYTES], head: &[u8]) -> Result<(), DecodeError> {
        let computed = crc32c_append(crc32c(&bytes[..28]), head);
        let stored = u32::from_le_bytes(bytes[28..32].try_into().expect("four bytes"));
        if computed == stored {
            return Ok(());
        }
        let problem = Problem::Checksum { computed, stored };
        Err(DecodeError {
            what: "frame header",
            offset: 28,
            problem,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_round_trip_and_every_flipped_bit_is_seen() {
        let head = b"head";
        let header = FrameHeader {
            kind: FrameKind::Request,
            flags: 0,
            head_bytes: 4,
            payload_bytes: 1 << 40,
            id: 77,
        };
        let bytes = header.to_bytes(head);
        assert_eq!(FrameHeader::read(&bytes), Ok(header));
        assert_eq!(FrameHeader::verify(&bytes, head), Ok(()));
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(
                FrameHeader::read(&flipped).is_err()
                    || FrameHeader::verify(&flipped, head).is_err()
            );
        }
        assert!(FrameHeader::verify(&bytes, b"heat").is_err());
    }
}
