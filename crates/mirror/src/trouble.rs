//! What goes wrong with a link: what it waits for, and what it cannot heal.

use client::ClientError;
use std::fmt;
use wire::ErrorCode;

/// Why a link ended.
#[derive(Debug, Clone)]
pub enum LinkError {
    /// Something that a person has to decide, in words.
    Refused(String),
    /// A server refuses for good, or a call is wrong; and what was asked of whom.
    Client(String, ClientError),
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(text) => f.write_str(text),
            Self::Client(what, error) => write!(f, "{what}: {error}"),
        }
    }
}

impl std::error::Error for LinkError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Refused(_) => None,
            Self::Client(_, error) => Some(error),
        }
    }
}

/// What ends a session of a link.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The link is over.
    Over(Box<LinkError>),
    /// The link waits, asks where the copy is, and goes on.
    Again(String),
    /// The user wants an end.
    Stopped,
}

impl Trouble {
    pub fn refused(text: impl Into<String>) -> Self {
        Self::Over(Box::new(LinkError::Refused(text.into())))
    }
}

/// What an error of a call means for a link. Whatever time, a server that comes back, or a new
/// credential heals is waited for.
pub(crate) fn trouble(what: &str, error: ClientError) -> Trouble {
    let is_final = match &error {
        ClientError::Server(reply) if reply.retryable => false,
        ClientError::Server(reply) => matches!(
            reply.code,
            ErrorCode::UnknownTopic
                | ErrorCode::TopicExists
                | ErrorCode::InvalidTopic
                | ErrorCode::InvalidStorage
                | ErrorCode::UnknownPartition
                | ErrorCode::InvalidEvent
                | ErrorCode::InvalidDurability
                | ErrorCode::NotAuthorized
                | ErrorCode::Unsupported
                | ErrorCode::OffsetOutOfRange
        ),
        ClientError::WrongServer { .. } | ClientError::Plugin(_) => true,
        ClientError::Invalid(_) | ClientError::UnknownPartition(_) => true,
        _ => false,
    };
    match is_final {
        true => Trouble::Over(Box::new(LinkError::Client(what.to_owned(), error))),
        false => Trouble::Again(format!("{what}: {error}")),
    }
}
