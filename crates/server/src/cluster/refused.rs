//! Why a server does not take part in a cluster.

use super::rank_file::{Membership, RankFile};
use super::shared::Published;
use crate::error::ServerError;
use cluster::{ClusterId, DirectoryId};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Why a rendezvous ended without a decision.
#[derive(Debug)]
pub enum Refused {
    /// There cannot be such a server; why, in words.
    Arrival(String),
    /// Others have not come in time.
    Waiting(Box<Waiting>),
    /// The waiting was ended before its time was over.
    Interrupted(Box<Waiting>),
    /// What is in the directory cannot be right together.
    Contradiction(Box<Contradiction>),
    /// A file cannot be read or written.
    File(ServerError),
}

/// Who had not come at the deadline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// How long was waited.
    pub waited: Duration,
    /// The cluster that the directory is for, if there is one already.
    pub cluster: Option<ClusterId>,
    /// Where the record of the cluster is looked for.
    pub record: PathBuf,
    /// Who is waited for.
    pub ranks: Vec<Missing>,
    /// What came of the record, if this server has tried to publish it.
    pub published: Option<Published>,
}

/// A rank that is waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// Which.
    pub rank: u32,
    /// Where its file is looked for.
    pub path: PathBuf,
    /// What there is.
    pub why: Absence,
}

/// What there is of a rank that is waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(
    missing_docs,
    reason = "each variant has its line; the names of its fields say the rest"
)]
pub enum Absence {
    /// No file.
    NoFile,
    /// A file that does not say that its writer has read this server's: it may be of an earlier job.
    Silent { host: String, pid: u32 },
    /// A file that cannot be read.
    Unreadable(String),
    /// A file of a server that is no member of the cluster yet.
    NoMember,
    /// A file of a member, of a cluster whose record is not there yet.
    NoRecord,
}

/// What cannot be right together. Each names the files.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(
    missing_docs,
    reason = "each variant has its line; the names of its fields say the rest"
)]
pub enum Contradiction {
    /// The setting that founders must have in common differs.
    Settings {
        path: PathBuf,
        what: &'static str,
        here: String,
        there: String,
    },
    /// Another process has replaced this server's file: it has the same rank.
    SameRank {
        path: PathBuf,
        rank: u32,
        host: String,
        pid: u32,
        directory: DirectoryId,
    },
    /// The server whose file this one has replaced runs: it has the rank.
    RankInUse {
        path: PathBuf,
        rank: u32,
        host: String,
        pid: u32,
        directory: DirectoryId,
    },
    /// Two ranks have one data directory.
    SameDirectory {
        path: PathBuf,
        rank: u32,
        directory: DirectoryId,
    },
    /// This server's data directory is of one cluster, and the directory of the rendezvous for another.
    TwoClusters {
        path: PathBuf,
        here: ClusterId,
        there: ClusterId,
    },
    /// A file says that this server's data directory is a member, and that directory knows nothing of it.
    LostLog {
        path: PathBuf,
        directory: DirectoryId,
        cluster: ClusterId,
    },
    /// A file is not what was written, or of another version.
    Unreadable { path: PathBuf, why: String },
}

impl Contradiction {
    /// Of a file of this server's own data directory, which has no log of that cluster.
    pub(super) fn lost_log(path: PathBuf, file: &RankFile, member: Membership) -> Self {
        Self::LostLog {
            path,
            directory: file.directory,
            cluster: member.cluster,
        }
    }
}

impl From<Waiting> for Refused {
    fn from(waiting: Waiting) -> Self {
        Self::Waiting(Box::new(waiting))
    }
}

impl From<Contradiction> for Refused {
    fn from(contradiction: Contradiction) -> Self {
        Self::Contradiction(Box::new(contradiction))
    }
}

impl From<ServerError> for Refused {
    fn from(error: ServerError) -> Self {
        Self::File(error)
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Arrival(why) => f.write_str(why),
            Self::Waiting(waiting) | Self::Interrupted(waiting) => write!(f, "{waiting}"),
            Self::Contradiction(contradiction) => write!(f, "{contradiction}"),
            Self::File(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for Refused {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::File(error) => Some(error),
            _ => None,
        }
    }
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.waited.as_secs();
        match (&self.cluster, &self.published) {
            (None, Some(Published::Begun { marker, by })) => {
                return write!(
                    f,
                    "after {seconds} s process {by} had not written {}: if that process is dead, remove {}",
                    self.record.display(),
                    marker.display()
                );
            }
            (None, Some(Published::Exists)) => {
                return write!(
                    f,
                    "after {seconds} s {}, which another server has written, was not seen here: the file system shows it \
                     late, so wait longer",
                    self.record.display()
                );
            }
            _ => {}
        }
        write!(f, "after {seconds} s ")?;
        match &self.cluster {
            Some(_) => f.write_str("no member of the cluster had come")?,
            None => f.write_str("not all founders of the cluster had come")?,
        }
        for (at, missing) in self.ranks.iter().enumerate() {
            let separator = if at == 0 { ": " } else { "; " };
            let (rank, path) = (missing.rank, missing.path.display());
            write!(f, "{separator}rank {rank}, {path}, {}", missing.why)?;
        }
        match &self.cluster {
            Some(cluster) => write!(
                f,
                ". {} says that the directory is for cluster {:032x}: start the servers that have its data \
                 directories, or, if those are gone, give the new servers another --cluster directory",
                self.record.display(),
                cluster.0
            ),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Absence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFile => f.write_str("has no file"),
            Self::Silent { host, pid } => write!(
                f,
                "was written by process {pid} on {host}, which has not seen this server: it is of an earlier start, or does not run"
            ),
            Self::Unreadable(why) => write!(f, "cannot be read: {why}"),
            Self::NoMember => f.write_str("is of a server that is no member yet"),
            Self::NoRecord => f.write_str("is of a member of a cluster that has no record yet"),
        }
    }
}

impl fmt::Display for Contradiction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Settings {
                path,
                what,
                here,
                there,
            } => write!(
                f,
                "{what} is {here} here and {there} in {}: start all servers with the same settings, and other clusters \
                 with another --cluster directory",
                path.display()
            ),
            Self::SameRank {
                path,
                rank,
                host,
                pid,
                directory,
            } => write!(
                f,
                "rank {rank} is started twice: process {pid} on {host}, with data directory {directory}, has replaced {}",
                path.display()
            ),
            Self::RankInUse {
                path,
                rank,
                host,
                pid,
                directory,
            } => write!(
                f,
                "rank {rank} is in use: process {pid} on {host}, with data directory {directory}, runs, and {} is its \
                 file. Give this server a --rank that nobody has; or end that one first, and take its node out with \
                 `thalweg nodes remove` if it is not to come back",
                path.display()
            ),
            Self::SameDirectory {
                path,
                rank,
                directory,
            } => write!(
                f,
                "rank {rank} has the data directory of this server, {directory}, as {} says: one of them is a copy; each \
                 server needs a data directory of its own",
                path.display()
            ),
            Self::TwoClusters { path, here, there } => write!(
                f,
                "the data directory of this server is of cluster {:032x}, and {} is of cluster {:032x}: give --cluster \
                 the directory of the server's own cluster, or the server another data directory",
                here.0,
                path.display(),
                there.0
            ),
            Self::LostLog {
                path,
                directory,
                cluster,
            } => write!(
                f,
                "{} says that data directory {directory} is a member of cluster {:032x}, and it has nothing of that \
                 cluster: it was restored or emptied. Start this server with a new data directory",
                path.display(),
                cluster.0
            ),
            Self::Unreadable { path, why } => write!(
                f,
                "{} cannot be read: {why}. If no other server uses it, remove it",
                path.display()
            ),
        }
    }
}
