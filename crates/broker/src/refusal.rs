//! What a request is refused with.

use wire::batch::Header;
use wire::{DecodeError, ErrorCode, ErrorReply, ProducerEpoch, Sequence, TopicId};

/// A refusal to be sent as the answer.
pub(crate) type Refused = ErrorReply;

pub(crate) fn refuse(code: ErrorCode, message: impl Into<String>) -> Refused {
    ErrorReply::fatal(code, message)
}

/// What is said once the node is to end.
pub(crate) fn draining() -> Refused {
    ErrorReply::retryable(ErrorCode::Draining, 500, "the server is draining")
}

pub(crate) fn malformed(error: DecodeError) -> Refused {
    refuse(ErrorCode::Malformed, error.to_string())
}

pub(crate) fn out_of_sequence(header: &Header, expected: Sequence) -> Refused {
    ErrorReply::retryable(
        ErrorCode::OutOfSequence,
        0,
        format!(
            "producer {}: sequence {} came, {expected} is expected",
            header.producer, header.first_sequence
        ),
    )
}

pub(crate) fn fenced(current: ProducerEpoch, epoch: ProducerEpoch) -> Refused {
    refuse(
        ErrorCode::ProducerFenced,
        format!("epoch {epoch} of the producer was ended by epoch {current}"),
    )
}

pub(crate) fn no_topic(name: &str) -> ErrorReply {
    refuse(
        ErrorCode::UnknownTopic,
        format!("there is no topic {name:?}"),
    )
}

pub(crate) fn unknown_topic(id: TopicId) -> ErrorReply {
    refuse(
        ErrorCode::UnknownTopic,
        format!("there is no topic of id {id}"),
    )
}
