//! Errors as they travel: a stable code, what to do about it, and a sentence.

use crate::codec::{Codec, DecodeError, Reader, Write, record};
use std::fmt;

macro_rules! error_codes {
    ($($(#[$meta:meta])* $name:ident = $code:literal, $text:literal;)*) => {
        /// What went wrong at the other side. Codes are stable: one that is
        /// removed is never used again.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u16)]
        pub enum ErrorCode { $($(#[$meta])* $name = $code,)* }

        impl ErrorCode {
            /// The code of this number, if this version knows it.
            pub fn from_u16(code: u16) -> Option<Self> {
                match code { $($code => Some(Self::$name),)* _ => None }
            }

            /// The code in words, as used in output.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// All codes, for tables in documentation and for tests.
            pub const ALL: &[Self] = &[$(Self::$name),*];
        }
    };
}

error_codes! {
    /// A bug at the other side, or a code that this version does not know.
    Internal = 1, "internal error";
    /// The frame or message cannot be decoded.
    Malformed = 2, "malformed message";
    /// The version or a required feature is not supported.
    Unsupported = 3, "not supported";
    /// The presented token or identity is not accepted.
    NotAuthenticated = 4, "not authenticated";
    /// The identity may not do this.
    NotAuthorized = 5, "not authorized";
    /// The server that was expected is another one: a stale or foreign group file.
    WrongServer = 6, "wrong server";
    /// The time that the request gave has passed.
    DeadlinePassed = 7, "deadline passed";
    /// A limit of the server or the topic is exceeded; the message names it.
    LimitExceeded = 8, "limit exceeded";
    /// The server is draining and takes nothing new.
    Draining = 9, "server is draining";
    /// Cancelled at the caller's request.
    Cancelled = 10, "cancelled";
    /// The credential was good, and its time is over: another one is to be presented.
    CredentialExpired = 11, "credential expired";

    /// No topic of that name or id.
    UnknownTopic = 20, "unknown topic";
    /// A topic of that name exists already.
    TopicExists = 21, "topic exists";
    /// The definition is refused; the message says why.
    InvalidTopic = 22, "invalid topic definition";
    /// The partition index is out of range.
    UnknownPartition = 23, "unknown partition";
    /// The topic has no partition yet.
    NoPartitions = 24, "topic has no partitions";
    /// The storage kind is not known, or cannot give the topic's durability.
    InvalidStorage = 25, "invalid storage";
    /// Another leader, or an epoch that has passed.
    NotLeader = 26, "not leader";

    /// The event or batch is refused; the message says why.
    InvalidEvent = 40, "invalid event";
    /// A checksum differs: bytes were damaged on the way.
    ChecksumMismatch = 41, "checksum mismatch";
    /// Sequence numbers of a producer leave a hole.
    OutOfSequence = 42, "out of sequence";
    /// A newer life of the producer exists.
    ProducerFenced = 43, "producer fenced";
    /// The producer was not seen for so long that its state is gone.
    ProducerExpired = 44, "producer state expired";
    /// Less durability asked for than the topic promises, or more than storage can give.
    InvalidDurability = 45, "invalid durability";
    /// The topic is full and refuses events for now; the producer goes on, and may push them again.
    TopicFull = 46, "topic is full";
    /// The topic is full, and its policy dropped the events.
    EventDropped = 47, "events dropped";

    /// The offset is not in the partition.
    OffsetOutOfRange = 60, "offset out of range";
    /// The incarnation is not the partition's.
    WrongIncarnation = 61, "wrong incarnation";
    /// Stored bytes fail their checksum.
    Damaged = 62, "damaged";
    /// The selected bytes are outside the event's data.
    InvalidSelection = 63, "invalid selection";
    /// An acknowledgement that would move a cursor back; a rewind is explicit.
    CursorBackwards = 64, "cursor would move back";
    /// No consumer of that name has a cursor there.
    UnknownConsumer = 65, "unknown consumer";
    /// The consumer's name is of another kind, or its options are refused; the message says why.
    InvalidConsumer = 66, "invalid consumer";
    /// Who asks is no member of the group or queue any more, or does not own the partition.
    MemberFenced = 67, "member fenced";
    /// The lease has expired, or was given up.
    LeaseExpired = 68, "lease expired";

    /// The run of steps is over: closed, broken, or taken over by another life of its program.
    RunEnded = 70, "run has ended";
    /// A group of readers has lost a rank, and is no more: its program begins anew, from the cursor.
    GroupIncomplete = 71, "group is incomplete";

    /// The storage is full.
    StorageFull = 80, "storage is full";
    /// The storage failed; the partition takes nothing until it is reopened.
    StorageFailed = 81, "storage failed";
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Codec for ErrorCode {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_u16(*self as u16);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        // A code from a later version is an error all the same.
        Ok(Self::from_u16(from.u16()?).unwrap_or(Self::Internal))
    }
}

record! {
    /// The body of an error reply.
    pub struct ErrorReply {
        /// What went wrong.
        pub code: ErrorCode,
        /// Whether the same request may succeed later.
        pub retryable: bool,
        /// When to try again, milliseconds from now; 0 is no hint.
        pub retry_after_ms: u32,
        /// Where the leader is, if the answerer knows; empty if not. `ADDRESS#DIRECTORY`: an address for a transport of the
        /// one that this came by (empty: the asker may know it), and the data directory of that server, 32 hexadecimal digits.
        pub leader_hint: String,
        /// One sentence that names the thing and the numbers.
        pub message: String,
    }
}

impl ErrorReply {
    /// An error that another try does not help.
    pub fn fatal(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            retryable: false,
            retry_after_ms: 0,
            leader_hint: String::new(),
            message: message.into(),
        }
    }

    /// An error that may pass.
    pub fn retryable(code: ErrorCode, retry_after_ms: u32, message: impl Into<String>) -> Self {
        Self {
            retryable: true,
            retry_after_ms,
            ..Self::fatal(code, message)
        }
    }
}

impl fmt::Display for ErrorReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)?;
        match (self.code, self.retry_after_ms) {
            (ErrorCode::TopicFull, 1..) => {
                write!(f, "; try again after {} ms", self.retry_after_ms)
            }
            _ => Ok(()),
        }
    }
}

impl std::error::Error for ErrorReply {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_distinct_and_known() {
        for code in ErrorCode::ALL {
            assert_eq!(ErrorCode::from_u16(*code as u16), Some(*code));
        }
    }
}
