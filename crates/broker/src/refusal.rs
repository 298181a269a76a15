//! What a request is refused with.

use wire::{DecodeError, ErrorCode, ErrorReply};

/// A refusal to be sent as the answer.
pub(crate) type Refused = ErrorReply;

pub(crate) fn refuse(code: ErrorCode, message: impl Into<String>) -> Refused {
    ErrorReply::fatal(code, message)
}

pub(crate) fn malformed(error: DecodeError) -> Refused {
    refuse(ErrorCode::Malformed, error.to_string())
}
