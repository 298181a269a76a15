//! Why a gateway does not start, or cannot do something.

use std::fmt;
use std::path::PathBuf;

/// Why a gateway does not start, or cannot do something.
#[derive(Debug)]
pub enum GatewayError {
    /// An option cannot be right; which, and why.
    Option(&'static str, String),
    /// Another gateway has the directory.
    Locked(PathBuf),
    /// A file or folder: what was attempted, and why it failed.
    File {
        /// What was attempted, with the path.
        attempt: String,
        /// Why it failed.
        source: std::io::Error,
    },
    /// A file does not hold what it should.
    Content(PathBuf, String),
    /// The operating system or a library refuses.
    System(String, std::io::Error),
}

impl GatewayError {
    /// Makes an error of the system one about this attempt.
    pub(crate) fn file(attempt: String) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::File { attempt, source }
    }
}

impl fmt::Display for GatewayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Option(option, why) => write!(f, "{option}: {why}"),
            Self::Locked(path) => write!(f, "{}: another gateway has it", path.display()),
            Self::File { attempt, source } => write!(f, "{attempt}: {source}"),
            Self::Content(path, why) => write!(f, "{}: {why}", path.display()),
            Self::System(what, source) => write!(f, "{what}: {source}"),
        }
    }
}

impl std::error::Error for GatewayError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::File { source, .. } | Self::System(_, source) => Some(source),
            Self::Option(..) | Self::Locked(_) | Self::Content(..) => None,
        }
    }
}
