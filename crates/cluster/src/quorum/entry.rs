//! One entry of the log, as we write it. The library's own form (protobuf) is never written or
//! read; what we need of an entry travels through it in `context` and `data`.

use super::id::RequestId;
use super::membership::Change;
use super::settings::PAYLOAD_BYTES_MAX;
use bytes::Bytes;
use raft::eraftpb;
use wire::codec::{Codec, DecodeError, Reader, Write};

/// One entry. The format is docs/format/quorum.md.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) index: u64,
    pub(crate) term: u64,
    pub(crate) content: Content,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Content {
    /// Nothing: the first entry of a leader.
    Blank,
    /// Something for the state machine.
    Command(Command),
    /// Another member.
    Change { request: RequestId, change: Change },
}

/// Something for the state machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Command {
    pub(crate) request: RequestId,
    /// When the leader took it, ms of the cluster's time.
    pub(crate) taken: u64,
    pub(crate) payload: Bytes,
}

/// The least bytes of an entry.
pub(crate) const ENTRY_BYTES_MIN: usize = 8 + 8 + 1;

impl Codec for Entry {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.index);
        out.put_u64(self.term);
        match &self.content {
            Content::Blank => out.put_u8(0),
            Content::Command(command) => {
                out.put_u8(1);
                out.put_u128(command.request.0);
                out.put_u64(command.taken);
                out.put_sized(&command.payload);
            }
            Content::Change { request, change } => {
                out.put_u8(2);
                out.put_u128(request.0);
                change.encode(out);
            }
        }
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let index = from.u64()?;
        let term = from.u64()?;
        if index == 0 || term == 0 {
            return Err(from.refuse("index or term", 0));
        }
        let content = match from.u8()? {
            0 => Content::Blank,
            1 => {
                let request = RequestId(from.u128()?);
                let taken = from.u64()?;
                let payload = from.sized()?;
                if payload.len() > PAYLOAD_BYTES_MAX {
                    return Err(from.refuse("payload bytes", payload.len() as u64));
                }
                let payload = Bytes::copy_from_slice(payload);
                Content::Command(Command {
                    request,
                    taken,
                    payload,
                })
            }
            2 => Content::Change {
                request: RequestId(from.u128()?),
                change: Change::decode(from)?,
            },
            other => return Err(from.refuse("entry kind", other.into())),
        };
        Ok(Self {
            index,
            term,
            content,
        })
    }
}

impl Entry {
    /// The library's entry. What it would parse of a change of members stays empty: it parses that
    /// only when the change is proposed.
    pub(crate) fn to_raft(&self) -> eraftpb::Entry {
        let mut entry = eraftpb::Entry::default();
        entry.index = self.index;
        entry.term = self.term;
        match &self.content {
            Content::Blank => {}
            Content::Command(command) => {
                let mut context = Vec::with_capacity(24);
                context.put_u128(command.request.0);
                context.put_u64(command.taken);
                entry.context = context.into();
                entry.data = command.payload.clone();
            }
            Content::Change { request, change } => {
                entry.set_entry_type(eraftpb::EntryType::EntryConfChangeV2);
                entry.context = change_context(*request, change).into();
            }
        }
        entry
    }

    /// Ours of the library's.
    ///
    /// # Panics
    /// If it was made neither by [`Entry::to_raft`] nor by a proposal of ours.
    pub(crate) fn of_raft(entry: &eraftpb::Entry) -> Self {
        let content = match entry.get_entry_type() {
            eraftpb::EntryType::EntryNormal if entry.context.is_empty() => Content::Blank,
            eraftpb::EntryType::EntryNormal => {
                let mut context = Reader::new("command", &entry.context);
                Content::Command(Command {
                    request: RequestId(context.u128().expect("its request's id")),
                    taken: context.u64().expect("when it was taken"),
                    payload: entry.data.clone(),
                })
            }
            _ => {
                let mut context = Reader::new("change of members", &entry.context);
                let request = RequestId(context.u128().expect("its request's id"));
                let change = Change::decode(&mut context).expect("a change that was encoded");
                Content::Change { request, change }
            }
        };
        Self {
            index: entry.index,
            term: entry.term,
            content,
        }
    }
}

/// What says of a change of members all that we need.
pub(crate) fn change_context(request: RequestId, change: &Change) -> Vec<u8> {
    let mut context = Vec::new();
    context.put_u128(request.0);
    change.encode(&mut context);
    context
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quorum::id::{DirectoryId, VoterId};

    fn each_kind() -> Vec<Entry> {
        let request = RequestId(0x0102_0304);
        let change = Change::Add {
            voter: VoterId(4),
            directory: DirectoryId(44),
        };
        let contents = [
            Content::Blank,
            Content::Command(Command {
                request,
                taken: 5000,
                payload: Bytes::from_static(b"payload"),
            }),
            Content::Change { request, change },
        ];
        let entries = contents.into_iter().enumerate().map(|(at, content)| Entry {
            index: at as u64 + 1,
            term: 3,
            content,
        });
        entries.collect()
    }

    #[test]
    fn an_entry_is_the_same_behind_bytes_and_behind_the_library() {
        for entry in each_kind() {
            let bytes = entry.to_bytes();
            assert_eq!(Entry::from_bytes("entry", &bytes).unwrap(), entry);
            assert_eq!(Entry::of_raft(&entry.to_raft()), entry);
            for end in 0..bytes.len() {
                assert!(Entry::from_bytes("entry", &bytes[..end]).is_err());
            }
        }
    }
}
