//! Why a server does not start or run.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// What is wrong with settings.
#[derive(Debug)]
#[allow(
    missing_docs,
    reason = "each variant has its line; the names of its fields say the rest"
)]
pub enum ConfigError {
    /// The file cannot be read.
    Read(io::Error),
    /// The text is no TOML.
    Syntax(String),
    /// No setting has this key.
    UnknownKey {
        key: String,
        /// The known key that looks most like it, if one does.
        nearest: Option<&'static str>,
        /// All known keys.
        known: Vec<&'static str>,
    },
    /// The value cannot be right.
    Value { key: String, why: String },
    /// Something in a file.
    File {
        path: PathBuf,
        why: Box<ConfigError>,
    },
    /// Something in an environment variable.
    Environment { name: String, why: Box<ConfigError> },
}

impl ConfigError {
    /// Of a key that is none of `known`.
    pub(crate) fn unknown_key(key: &str, known: Vec<&'static str>) -> Self {
        let distance = |known: &str| edit_distance(key, known);
        let nearest = known.iter().copied().min_by_key(|known| distance(known));
        // A third of the letters may differ; beyond that it is a guess.
        let nearest = nearest.filter(|known| distance(known) * 3 <= known.len().max(3));
        Self::UnknownKey {
            key: key.to_owned(),
            nearest,
            known,
        }
    }
}

/// How many letters must be changed, put in or taken out to make `a` into `b`.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, letter) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, other) in b.iter().enumerate() {
            let change = diagonal + usize::from(letter != *other);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(error) => write!(f, "{error}"),
            Self::Syntax(text) => f.write_str(text.trim_end()),
            Self::UnknownKey {
                key,
                nearest: Some(nearest),
                ..
            } => {
                write!(f, "unknown key `{key}`; did you mean `{nearest}`?")
            }
            Self::UnknownKey {
                key,
                nearest: None,
                known,
            } => {
                write!(
                    f,
                    "unknown key `{key}`; the keys are `{}`",
                    known.join("`, `")
                )
            }
            Self::Value { key, why } => write!(f, "{key}: {why}"),
            Self::File { path, why } => write!(f, "{}: {why}", path.display()),
            Self::Environment { name, why } => write!(f, "{name}: {why}"),
        }
    }
}

impl std::error::Error for ConfigError {}

/// Why a server does not start, or did not end well.
#[derive(Debug)]
#[allow(
    missing_docs,
    reason = "each variant has its line; the names of its fields say the rest"
)]
pub enum ServerError {
    /// The settings are refused.
    Config(ConfigError),
    /// Another server has the data directory.
    Locked {
        directory: PathBuf,
        /// Who has it, as far as its record says.
        owner: String,
    },
    /// A server on another host had the data directory and did not end cleanly;
    /// whether it is dead cannot be seen from here.
    LockedElsewhere {
        directory: PathBuf,
        /// Who has it.
        owner: String,
    },
    /// The directory is not one of ours, or what is in it cannot be understood.
    Directory { directory: PathBuf, why: String },
    /// Something was tried with a file.
    File {
        /// What was tried, with the path: "writing /x/token".
        attempt: String,
        /// What the operating system said.
        source: io::Error,
    },
    /// An address cannot be listened at.
    Listen {
        address: String,
        source: net::NetError,
    },
    /// A kind of storage has no name, or one that is taken.
    StorageName(&'static str),
    /// The node cannot start: the data in the directory is not usable.
    Node(String),
    /// The start was interrupted while it waited for other servers: for which, in words.
    Interrupted(String),
    /// The operating system refuses a thread or an event queue.
    System(io::Error),
    /// It was drained, but something had failed that could then not be closed cleanly.
    Unclean(String),
    /// Not everything could be closed in the time given.
    DrainTimeout {
        /// How long was waited, milliseconds.
        waited_ms: u64,
    },
}

impl ServerError {
    /// For `map_err` on file operations.
    pub(crate) fn file(attempt: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let attempt = attempt.into();
        move |source| Self::File { attempt, source }
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => write!(f, "{error}"),
            Self::Locked { directory, owner } => {
                write!(
                    f,
                    "{}: another server has this directory: {owner}",
                    directory.display()
                )
            }
            Self::LockedElsewhere { directory, owner } => write!(
                f,
                "{}: a server on another host has this directory and did not end cleanly: {owner}; \
                 if it is certainly dead, --take-over takes the directory",
                directory.display()
            ),
            Self::Directory { directory, why } => write!(f, "{}: {why}", directory.display()),
            Self::File { attempt, source } => write!(f, "{attempt}: {source}"),
            Self::Listen { address, source } => write!(f, "listening at {address}: {source}"),
            Self::StorageName("") => f.write_str("a kind of storage has no name"),
            Self::StorageName(name) => write!(f, "there are two kinds of storage named {name:?}"),
            Self::Node(why) => f.write_str(why),
            Self::Interrupted(waiting) => write!(
                f,
                "its start was ended while it waited for other servers of the cluster: {waiting}"
            ),
            Self::System(error) => write!(f, "{error}"),
            Self::Unclean(why) => {
                write!(
                    f,
                    "not everything was closed cleanly: {why}; the next start recovers what is there"
                )
            }
            Self::DrainTimeout { waited_ms } => {
                write!(
                    f,
                    "not everything could be closed within {waited_ms} ms; the next start recovers it"
                )
            }
        }
    }
}

impl std::error::Error for ServerError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Config(error) => Some(error),
            Self::File { source, .. } | Self::System(source) => Some(source),
            Self::Listen { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl From<ConfigError> for ServerError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

#[cfg(test)]
mod tests {
    use super::edit_distance;

    #[test]
    fn edit_distance_counts_letters() {
        assert_eq!(edit_distance("", "abc"), 3);
        assert_eq!(edit_distance("kitten", "sitting"), 3);
        assert_eq!(edit_distance("listen", "listen"), 0);
    }
}
