//! Who is who.

use std::fmt;
pub use wire::DirectoryId;
use wire::codec::{Codec, DecodeError, Reader, Write};

/// A voter of the quorum. Never 0, and never given twice in a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VoterId(pub u64);

/// A request, chosen at random by its caller; tried again under the same id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u128);

/// A cluster, from its founding to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterId(pub u128);

/// Whose log this is. What belongs to another is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The cluster.
    pub cluster: ClusterId,
    /// The voter.
    pub voter: VoterId,
    /// Its data directory, whose id is lost with it.
    pub directory: DirectoryId,
}

impl fmt::Display for VoterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "voter {}", self.0)
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "request {:032x}", self.0)
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} of cluster {:032x} in directory {:032x}",
            self.voter, self.cluster.0, self.directory.0
        )
    }
}

impl Codec for Identity {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_u128(self.cluster.0);
        out.put_u128(self.directory.0);
        out.put_u64(self.voter.0);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            cluster: ClusterId(from.u128()?),
            directory: DirectoryId(from.u128()?),
            voter: voter(from)?,
        })
    }
}

/// Reads a voter's id, which is not 0.
pub(crate) fn voter(from: &mut Reader<'_>) -> Result<VoterId, DecodeError> {
    match from.u64()? {
        0 => Err(from.refuse("voter", 0)),
        id => Ok(VoterId(id)),
    }
}
