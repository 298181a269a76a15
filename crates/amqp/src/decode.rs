//! What is wrong with bytes.

use crate::error::{Failure, ReplyCode};
use crate::id::MethodId;
use std::fmt;

/// What is wrong with bytes that should be a frame. Offsets count from the start of the frame's payload.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the fields say it")]
pub enum DecodeError {
    /// There is no such kind of frame.
    Kind(u8),
    /// The frame does not end with 0xCE.
    End(u8),
    /// The frame would be longer than it may be.
    FrameTooLong { bytes: u64, max: u32 },
    /// A heartbeat has a payload, or a channel.
    Heartbeat { channel: u16, bytes: u32 },
    /// A field goes beyond the end.
    Short {
        at: usize,
        needed: usize,
        had: usize,
    },
    /// There are bytes after the last field.
    Extra { at: usize, had: usize },
    /// A short string is no UTF-8.
    Text { at: usize },
    /// There is no such type of field.
    FieldType { at: usize, kind: u8 },
    /// Tables or arrays are nested too deeply.
    Depth { at: usize, max: usize },
    /// A table is too long.
    TableTooLong { at: usize, bytes: usize, max: usize },
    /// A content header has properties that the class does not have.
    PropertyFlags(u16),
    /// A content header has a weight.
    Weight(u16),
    /// There is no such method.
    Method(MethodId),
}

impl DecodeError {
    /// The code that the peer gets.
    pub const fn code(&self) -> ReplyCode {
        match self {
            Self::Kind(_) | Self::End(_) | Self::FrameTooLong { .. } | Self::Heartbeat { .. } => {
                ReplyCode::FrameError
            }
            Self::Method(_) => ReplyCode::NotImplemented,
            _ => ReplyCode::SyntaxError,
        }
    }

    /// As a failure of the connection.
    pub fn failure(&self, method: Option<MethodId>) -> Failure {
        Failure {
            code: self.code(),
            text: self.to_string(),
            method,
        }
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind(kind) => write!(f, "there is no frame of type {kind}"),
            Self::End(end) => write!(f, "a frame ends with {end:#04x}, not with 0xce"),
            Self::FrameTooLong { bytes, max } => {
                write!(f, "a frame of {bytes} bytes, and frame_max is {max}")
            }
            Self::Heartbeat { channel, bytes } => {
                write!(f, "a heartbeat of {bytes} bytes on channel {channel}")
            }
            Self::Short { at, needed, had } => {
                write!(
                    f,
                    "a field at {at} needs {needed} bytes, and {had} are left"
                )
            }
            Self::Extra { at, had } => write!(f, "{had} bytes after the last field, at {at}"),
            Self::Text { at } => write!(f, "the short string at {at} is no UTF-8"),
            Self::FieldType { at, kind } => {
                write!(
                    f,
                    "the field at {at} has type {kind:#04x}, which is not known"
                )
            }
            Self::Depth { at, max } => write!(f, "tables at {at} are deeper than {max}"),
            Self::TableTooLong { at, bytes, max } => {
                write!(
                    f,
                    "the table at {at} has {bytes} bytes, and {max} are the most"
                )
            }
            Self::PropertyFlags(flags) => write!(f, "property flags {flags:#06x} are not known"),
            Self::Weight(weight) => write!(f, "a content header of weight {weight}, not 0"),
            Self::Method(id) => {
                write!(f, "there is no method {} of class {}", id.method, id.class)
            }
        }
    }
}

impl std::error::Error for DecodeError {}
