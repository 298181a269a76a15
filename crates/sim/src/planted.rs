//! Faults that are planted to see whether they are found: tests of the tests.

use broker::Fault;

/// A planted fault, and where it sits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    /// In the node.
    Broker(Fault),
    /// In a client.
    Client(client::Fault),
    /// In a server's part in a cluster.
    Cluster(cluster::Fault),
    /// In what readers of steps put together.
    Step(step::Fault),
    /// Syncs of files are not carried out, and said to be.
    NoSync,
    /// Syncs of directories are not carried out, and said to be.
    NoDirectorySync,
    /// External data is synced behind the log that refers to it, or never.
    NoDataSync,
}

impl Planted {
    /// The node's, if it is one of its.
    pub(crate) fn broker(self) -> Option<Fault> {
        match self {
            Self::Broker(fault) => Some(fault),
            _ => None,
        }
    }

    /// That of steps, if it is one of theirs.
    pub(crate) fn step(self) -> Option<step::Fault> {
        match self {
            Self::Step(fault) => Some(fault),
            _ => None,
        }
    }

    /// That of a server's part in a cluster, if it is one of its.
    pub(crate) fn cluster(self) -> Option<cluster::Fault> {
        match self {
            Self::Cluster(fault) => Some(fault),
            _ => None,
        }
    }

    /// The client's, if it is one of its.
    pub(crate) fn client(self) -> Option<client::Fault> {
        match self {
            Self::Client(fault) => Some(fault),
            _ => None,
        }
    }
}
