//! What a [`ClientError`] is in Python. The classes are Python code, in
//! `thalweg.exceptions`, because each has two bases.

use client::ClientError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use std::time::Duration;
use wire::{ErrorCode, ErrorReply};

/// An instance of the class of `thalweg.exceptions` that is called `class`.
pub fn new(py: Python<'_>, class: &str, message: String) -> PyErr {
    match instance(py, class, message) {
        Ok(value) => PyErr::from_value(value),
        Err(error) => error,
    }
}

fn instance<'py>(py: Python<'py>, class: &str, message: String) -> PyResult<Bound<'py, PyAny>> {
    static EXCEPTIONS: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    EXCEPTIONS
        .get_or_try_init(py, || {
            py.import("thalweg.exceptions")
                .map(|module| module.unbind())
        })?
        .bind(py)
        .getattr(class)?
        .call1((message,))
}

/// The exception that says the same as `error`.
pub fn raise(py: Python<'_>, error: ClientError) -> PyErr {
    let class = match &error {
        ClientError::Server(reply) => return from_server(py, reply),
        ClientError::Timeout { .. } => "Timeout",
        // Nothing that Python gives up is waited for.
        ClientError::Closed | ClientError::Cancelled => "Closed",
        ClientError::Invalid(_) => "InvalidArgument",
        ClientError::UnknownPartition(_) => "UnknownPartition",
        ClientError::Plugin(_) => "PluginError",
        ClientError::Budget(_) => "BudgetExceeded",
        ClientError::WrongServer { .. } => "WrongServer",
        ClientError::Unreachable { .. } => "Unreachable",
        ClientError::Recovering { left, .. } => return recovering(py, &error, *left),
        ClientError::Damaged { .. } => "Damaged",
        ClientError::DataChanged { .. } => "DataChanged",
        ClientError::Forked => "Forked",
        ClientError::Io { .. } => "StorageError",
    };
    new(py, class, error.to_string())
}

fn recovering(py: Python<'_>, error: &ClientError, left: Duration) -> PyErr {
    let made = instance(py, "Recovering", error.to_string()).and_then(|value| {
        value.setattr("retry_after", left.as_secs_f64())?;
        Ok(PyErr::from_value(value))
    });
    made.unwrap_or_else(|error| error)
}

/// The same for an error of a push, whose one argument is the event.
pub fn raise_push(py: Python<'_>, error: ClientError) -> PyErr {
    match error {
        ClientError::Invalid(reason) => new(py, "InvalidEvent", reason),
        other => raise(py, other),
    }
}

fn from_server(py: Python<'_>, reply: &ErrorReply) -> PyErr {
    raise_server(py, class_of(reply.code), reply)
}

/// What the server says, as an exception of this class.
pub fn raise_server(py: Python<'_>, class: &str, reply: &ErrorReply) -> PyErr {
    let made = instance(py, class, reply.to_string()).and_then(|value| {
        value.setattr("code", reply.code.name())?;
        value.setattr("retryable", reply.retryable)?;
        let seconds = f64::from(reply.retry_after_ms) / 1000.0;
        value.setattr("retry_after", (seconds > 0.0).then_some(seconds))?;
        Ok(PyErr::from_value(value))
    });
    made.unwrap_or_else(|error| error)
}

fn class_of(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::NotAuthenticated | ErrorCode::NotAuthorized | ErrorCode::CredentialExpired => {
            "NotAllowed"
        }
        ErrorCode::WrongServer => "WrongServer",
        ErrorCode::DeadlinePassed => "Timeout",
        ErrorCode::UnknownTopic => "UnknownTopic",
        ErrorCode::TopicExists => "TopicExists",
        ErrorCode::InvalidTopic | ErrorCode::InvalidStorage => "InvalidTopic",
        ErrorCode::UnknownPartition | ErrorCode::NoPartitions => "UnknownPartition",
        ErrorCode::InvalidEvent | ErrorCode::LimitExceeded => "InvalidEvent",
        ErrorCode::ProducerFenced => "ProducerFenced",
        ErrorCode::MemberFenced => "MemberFenced",
        ErrorCode::LeaseExpired => "LeaseExpired",
        ErrorCode::InvalidConsumer => "InvalidArgument",
        ErrorCode::InvalidDurability | ErrorCode::InvalidSelection => "InvalidArgument",
        ErrorCode::OffsetOutOfRange | ErrorCode::WrongIncarnation => "OutOfRange",
        ErrorCode::ChecksumMismatch | ErrorCode::Damaged => "Damaged",
        ErrorCode::StorageFull | ErrorCode::StorageFailed => "StorageError",
        ErrorCode::TopicFull => "TopicFull",
        ErrorCode::EventDropped => "EventDropped",
        ErrorCode::Internal
        | ErrorCode::Malformed
        | ErrorCode::Unsupported
        | ErrorCode::Draining
        | ErrorCode::Cancelled
        | ErrorCode::NotLeader
        | ErrorCode::OutOfSequence
        | ErrorCode::ProducerExpired
        | ErrorCode::CursorBackwards
        | ErrorCode::UnknownConsumer => "ServerError",
        ErrorCode::RunEnded => "RunBroken",
        ErrorCode::GroupIncomplete => "GroupIncomplete",
    }
}
