//! All that was applied up to an index.

use super::membership::Membership;
use super::requests::Requests;
use super::settings::SNAPSHOT_BYTES_MAX;
use bytes::Bytes;
use raft::eraftpb;
use wire::codec::{Codec, DecodeError, Reader, Write};

/// All that was applied up to an index. The format is docs/format/quorum.md.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Snapshot {
    pub(crate) index: u64,
    pub(crate) term: u64,
    pub(crate) members: Membership,
    pub(crate) requests: Requests,
    /// The state machine's own.
    pub(crate) state: Bytes,
}

impl Codec for Snapshot {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.index);
        out.put_u64(self.term);
        self.members.encode(out);
        self.requests.encode(out);
        out.put_sized(&self.state);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let index = from.u64()?;
        let term = from.u64()?;
        if index == 0 || term == 0 {
            return Err(from.refuse("index or term", 0));
        }
        let members = Membership::decode(from)?;
        let requests = Requests::decode(from)?;
        let state = from.sized()?;
        if state.len() > SNAPSHOT_BYTES_MAX {
            return Err(from.refuse("state bytes", state.len() as u64));
        }
        Ok(Self {
            index,
            term,
            members,
            requests,
            state: Bytes::copy_from_slice(state),
        })
    }
}

/// A snapshot in its one binary form, and what the library asks of it.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub(crate) index: u64,
    pub(crate) term: u64,
    pub(crate) members: Membership,
    pub(crate) bytes: Bytes,
}

impl Stored {
    pub(crate) fn of(snapshot: &Snapshot) -> Self {
        Self {
            index: snapshot.index,
            term: snapshot.term,
            members: snapshot.members.clone(),
            bytes: snapshot.to_bytes().into(),
        }
    }

    /// The library's snapshot, which carries our bytes.
    pub(crate) fn to_raft(&self) -> eraftpb::Snapshot {
        let mut snapshot = eraftpb::Snapshot::default();
        snapshot.data = self.bytes.clone();
        let metadata = snapshot.mut_metadata();
        metadata.index = self.index;
        metadata.term = self.term;
        metadata.set_conf_state(self.members.conf_state());
        snapshot
    }
}
