//! Why there is no credential, or why one does not count.

use std::fmt;

/// See the module. Never has a part of a credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// The library is not there, or is not what it should be.
    NoLibrary(String),
    /// The daemon of this host does not answer.
    NoDaemon(String),
    /// It was good once.
    Expired,
    /// It was made in this host's future: clocks differ.
    Rewound,
    /// It was presented here before.
    Replayed,
    /// It was made in another realm than this host is in.
    OtherRealm,
    /// Whatever else is wrong with it, in the library's words.
    Refused(String),
}

impl Error {
    /// Whether another try may go better: nothing was said about the credential.
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::NoLibrary(_) | Self::NoDaemon(_))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLibrary(why) => write!(
                f,
                "MUNGE's library cannot be used (install libmunge2, on Red Hat munge-libs): {why}"
            ),
            Self::NoDaemon(why) => write!(
                f,
                "MUNGE's daemon of this host does not answer (is munged running?): {why}"
            ),
            Self::Expired => f.write_str("the MUNGE credential has expired"),
            Self::Rewound => f.write_str(
                "the MUNGE credential was made in the future: the clocks of both hosts differ",
            ),
            Self::Replayed => f.write_str("the MUNGE credential was presented before"),
            Self::OtherRealm => f.write_str("the MUNGE credential is of another realm"),
            Self::Refused(why) => write!(
                f,
                "the MUNGE credential does not count (do both hosts have the same key?): {why}"
            ),
        }
    }
}

impl std::error::Error for Error {}
