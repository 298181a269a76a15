//! Why a relay does not begin, or ends.

use crate::frame::{Reason, Refusal};
use std::fmt;

/// Why a relay does not begin, or ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RelayError {
    /// What was asked for cannot be right.
    Usage(String),
    /// The operating system refuses.
    System(String),
    /// The other side can't be reached.
    Unreachable(String),
    /// The meeting place is reached, and no offer of this code waits there.
    NobodyWaits(String),
    /// It is no relay, or breaks the protocol.
    Protocol(String),
    /// Nobody may come in, or this one may not.
    Refused(Refusal),
    /// Who answers does not have the code.
    Impostor,
    /// The session is over.
    Over(Reason),
}

impl fmt::Display for RelayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text)
            | Self::System(text)
            | Self::Unreachable(text)
            | Self::NobodyWaits(text)
            | Self::Protocol(text) => {
                f.write_str(text)
            }
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Impostor => f.write_str(
                "who answers there does not have the code: it is another host than the one that offers, or somebody \
                 between here and there ends TLS (a proxy that inspects it)",
            ),
            Self::Over(reason) => reason.fmt(f),
        }
    }
}

impl std::error::Error for RelayError {}
