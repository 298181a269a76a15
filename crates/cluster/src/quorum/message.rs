//! Messages between voters, as bytes. The format is docs/format/quorum.md.

use super::entry::{ENTRY_BYTES_MIN, Entry};
use super::id::{DirectoryId, Identity, VoterId};
use super::settings::{CHUNK_BYTES_MAX, MESSAGE_BYTES_MAX, SNAPSHOT_BYTES_MAX};
use raft::eraftpb::{self, MessageType};
use wire::codec::{Codec, DecodeError, Reader, Write};

const VERSION: u8 = 1;
/// The greatest context of a message of the library, which writes short words there.
const CONTEXT_BYTES_MAX: usize = 64;

/// A message, and who sends it to whom.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Envelope {
    /// Of the sender.
    pub(crate) from: Identity,
    pub(crate) to: VoterId,
    pub(crate) body: Body,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Body {
    /// One of the library's, which never has a snapshot.
    Raft(Box<eraftpb::Message>),
    /// A piece of a snapshot.
    Chunk(Chunk),
    /// How much of a snapshot has come.
    Received(Received),
    /// The voter of this directory is no member any more, or another is in its place.
    Gone(DirectoryId),
}

/// A piece of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) transfer: Transfer,
    /// Where the bytes begin in it.
    pub(crate) offset: u64,
    pub(crate) bytes: Vec<u8>,
}

/// Which snapshot is sent, by the leader of which term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Transfer {
    /// The leader's term.
    pub(crate) term: u64,
    /// The snapshot's last entry.
    pub(crate) index: u64,
    /// The snapshot's bytes.
    pub(crate) total: u64,
}

/// How much of a snapshot has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) transfer: Transfer,
    /// Where the next piece is to begin.
    pub(crate) next: u64,
}

/// The messages that voters send each other, by their byte. None that is a proposal: a client asks
/// the leader itself. And no snapshot: that goes in chunks, and the receiver puts it together.
const TYPES: [(u8, MessageType); 9] = [
    (1, MessageType::MsgAppend),
    (2, MessageType::MsgAppendResponse),
    (3, MessageType::MsgRequestVote),
    (4, MessageType::MsgRequestVoteResponse),
    (5, MessageType::MsgHeartbeat),
    (6, MessageType::MsgHeartbeatResponse),
    (7, MessageType::MsgTimeoutNow),
    (8, MessageType::MsgRequestPreVote),
    (9, MessageType::MsgRequestPreVoteResponse),
];

/// Whether it is a message that leaves a voter at all.
pub(crate) fn travels(kind: MessageType) -> bool {
    TYPES.iter().any(|(_, one)| *one == kind)
}

/// Who a message says it is from, if it is one that this code may read. Nothing else of it is looked at.
pub fn sender(bytes: &[u8]) -> Option<Identity> {
    let mut from = Reader::new("message between voters", bytes);
    let version = from.u8().ok()?;
    let _kind_and_reserved = (from.u8().ok()?, from.u16().ok()?);
    let sender = Identity::decode(&mut from).ok()?;
    (version == VERSION).then_some(sender)
}

impl Envelope {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        out.put_u8(VERSION);
        out.put_u8(match &self.body {
            Body::Raft(_) => 1,
            Body::Chunk(_) => 2,
            Body::Received(_) => 3,
            Body::Gone(_) => 4,
        });
        out.put_u16(0);
        self.from.encode(&mut out);
        out.put_u64(self.to.0);
        match &self.body {
            Body::Raft(message) => encode_raft(message, &mut out),
            Body::Chunk(chunk) => {
                chunk.transfer.encode(&mut out);
                out.put_u64(chunk.offset);
                out.put_sized(&chunk.bytes);
            }
            Body::Received(received) => {
                received.transfer.encode(&mut out);
                out.put_u64(received.next);
            }
            Body::Gone(directory) => out.put_u128(directory.0),
        }
        out
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        const WHAT: &str = "message between voters";
        let mut from = Reader::new(WHAT, bytes);
        if bytes.len() > MESSAGE_BYTES_MAX {
            return Err(from.refuse("message bytes", bytes.len() as u64));
        }
        let version = from.u8()?;
        if version != VERSION {
            return Err(from.refuse("version", version.into()));
        }
        let kind = from.u8()?;
        let reserved = from.u16()?;
        if reserved != 0 {
            return Err(from.refuse("reserved", reserved.into()));
        }
        let sender = Identity::decode(&mut from)?;
        let to = super::id::voter(&mut from)?;
        let body = match kind {
            1 => Body::Raft(Box::new(decode_raft(&mut from, sender.voter, to)?)),
            2 => {
                let transfer = Transfer::decode(&mut from)?;
                let offset = from.u64()?;
                let bytes = from.sized()?;
                let count = bytes.len() as u64;
                let end = offset.saturating_add(count);
                if bytes.is_empty() || bytes.len() > CHUNK_BYTES_MAX || end > transfer.total {
                    return Err(from.refuse("chunk bytes", count));
                }
                let bytes = bytes.to_vec();
                Body::Chunk(Chunk {
                    transfer,
                    offset,
                    bytes,
                })
            }
            3 => Body::Received(Received {
                transfer: Transfer::decode(&mut from)?,
                next: from.u64()?,
            }),
            4 => Body::Gone(DirectoryId(from.u128()?)),
            other => return Err(from.refuse("message kind", other.into())),
        };
        match from.rest().len() {
            0 => Ok(Self {
                from: sender,
                to,
                body,
            }),
            left => Err(from.refuse("bytes behind the message", left as u64)),
        }
    }
}

impl Codec for Transfer {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.term);
        out.put_u64(self.index);
        out.put_u64(self.total);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let transfer = Self {
            term: from.u64()?,
            index: from.u64()?,
            total: from.u64()?,
        };
        if transfer.term == 0 || transfer.index == 0 {
            return Err(from.refuse("index or term", 0));
        }
        match transfer.total {
            total if total == 0 || total > SNAPSHOT_BYTES_MAX as u64 => {
                Err(from.refuse("snapshot bytes", total))
            }
            _ => Ok(transfer),
        }
    }
}

fn encode_raft(message: &eraftpb::Message, out: &mut Vec<u8>) {
    let types = TYPES.iter();
    let kind = message.get_msg_type();
    let byte = types.clone().find(|(_, one)| *one == kind);
    out.put_u8(byte.expect("a message that travels").0);
    out.put_u8(message.reject.into());
    for number in [
        message.term,
        message.log_term,
        message.index,
        message.commit,
        message.commit_term,
        message.reject_hint,
    ] {
        out.put_u64(number);
    }
    out.put_sized(&message.context);
    out.put_u32(message.entries.len() as u32);
    for entry in message.entries.iter() {
        Entry::of_raft(entry).encode(out);
    }
}

fn decode_raft(
    from: &mut Reader<'_>,
    sender: VoterId,
    to: VoterId,
) -> Result<eraftpb::Message, DecodeError> {
    let byte = from.u8()?;
    let kind = TYPES.iter().find(|(one, _)| *one == byte);
    let Some((_, kind)) = kind else {
        return Err(from.refuse("message type", byte.into()));
    };
    let mut message = eraftpb::Message::default();
    message.set_msg_type(*kind);
    message.from = sender.0;
    message.to = to.0;
    message.reject = match from.u8()? {
        0 => false,
        1 => true,
        other => return Err(from.refuse("reject", other.into())),
    };
    message.term = from.u64()?;
    if message.term == 0 {
        // The library takes such a message for one of its own.
        return Err(from.refuse("term", 0));
    }
    message.log_term = from.u64()?;
    message.index = from.u64()?;
    message.commit = from.u64()?;
    message.commit_term = from.u64()?;
    message.reject_hint = from.u64()?;
    let context = from.sized()?;
    if context.len() > CONTEXT_BYTES_MAX {
        return Err(from.refuse("context bytes", context.len() as u64));
    }
    message.context = bytes::Bytes::copy_from_slice(context);
    let count = from.count(ENTRY_BYTES_MIN)?;
    let mut entries = Vec::with_capacity(count);
    // Entries follow the one that the message names, and terms do not fall.
    let (mut index, mut term) = (message.index, message.log_term);
    for _ in 0..count {
        let entry = Entry::decode(from)?;
        if Some(entry.index) != index.checked_add(1) {
            return Err(from.refuse("entry's index", entry.index));
        }
        if entry.term < term || entry.term > message.term {
            return Err(from.refuse("entry's term", entry.term));
        }
        (index, term) = (entry.index, entry.term);
        entries.push(entry.to_raft());
    }
    message.set_entries(entries.into());
    Ok(message)
}

#[cfg(test)]
impl Envelope {
    /// What it says, for a trace.
    pub(crate) fn outline(&self) -> String {
        match &self.body {
            Body::Raft(one) => format!(
                "{:?} term {} index {} log term {} commit {} reject {} {} entries",
                one.get_msg_type(),
                one.term,
                one.index,
                one.log_term,
                one.commit,
                one.reject,
                one.entries.len()
            ),
            Body::Chunk(one) => format!("chunk {:?} at {}", one.transfer, one.offset),
            other => format!("{other:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quorum::entry::{Command, Content};
    use crate::quorum::id::{ClusterId, DirectoryId, RequestId};
    use bytes::Bytes;

    fn each() -> Vec<Envelope> {
        let from = Identity {
            cluster: ClusterId(0xc1),
            voter: VoterId(2),
            directory: DirectoryId(0xd2),
        };
        let transfer = Transfer {
            term: 4,
            index: 9,
            total: 100,
        };
        let mut append = eraftpb::Message::default();
        append.set_msg_type(MessageType::MsgAppend);
        (append.from, append.to, append.term) = (2, 3, 4);
        (append.log_term, append.index, append.commit) = (3, 6, 5);
        let command = Command {
            request: RequestId(77),
            taken: 1000,
            payload: Bytes::from_static(b"abc"),
        };
        let entries = [Content::Blank, Content::Command(command)];
        let entries = (7..).zip(entries).map(|(index, content)| Entry {
            index,
            term: 4,
            content,
        });
        append.set_entries(
            entries
                .map(|entry| entry.to_raft())
                .collect::<Vec<_>>()
                .into(),
        );
        let mut vote = eraftpb::Message::default();
        vote.set_msg_type(MessageType::MsgRequestVoteResponse);
        (vote.from, vote.to, vote.term, vote.reject) = (2, 3, 4, true);
        let bodies = [
            Body::Raft(Box::new(append)),
            Body::Raft(Box::new(vote)),
            Body::Chunk(Chunk {
                transfer,
                offset: 96,
                bytes: b"last".to_vec(),
            }),
            Body::Received(Received { transfer, next: 96 }),
            Body::Gone(DirectoryId(0xd3)),
        ];
        let to = VoterId(3);
        bodies.map(|body| Envelope { from, to, body }).into()
    }

    #[test]
    fn messages_read_as_they_were_written_and_never_shortened() {
        for envelope in each() {
            let bytes = envelope.to_bytes();
            assert_eq!(Envelope::from_bytes(&bytes).unwrap(), envelope);
            for end in 0..bytes.len() {
                assert!(Envelope::from_bytes(&bytes[..end]).is_err());
            }
            let longer = [&bytes[..], &[0]].concat();
            assert!(Envelope::from_bytes(&longer).is_err());
        }
    }

    #[test]
    fn any_bytes_give_a_message_or_an_error() {
        let mut random = crate::random::Random::new(2);
        for round in 0..40_000 {
            let each = each();
            let mut bytes = each[round % each.len()].to_bytes();
            for _ in 0..1 + random.below(4) {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] = random.number() as u8;
            }
            if let Ok(envelope) = Envelope::from_bytes(&bytes) {
                assert_eq!(
                    Envelope::from_bytes(&envelope.to_bytes()).unwrap(),
                    envelope
                );
            }
        }
    }

    #[test]
    fn entries_must_follow_one_another() {
        let mut append = each().remove(0);
        let Body::Raft(message) = &mut append.body else {
            unreachable!("the first is of the library");
        };
        message.index = 5;
        assert!(Envelope::from_bytes(&append.to_bytes()).is_err());
    }

    /// The bytes of docs/format/quorum.md, version 1: they may never change.
    #[test]
    fn golden_bytes() {
        let mut hex = String::new();
        for envelope in each() {
            for byte in envelope.to_bytes() {
                hex += &format!("{byte:02x}");
            }
            hex.push('\n');
        }
        assert_eq!(hex.trim(), include_str!("golden/messages-1.hex").trim());
    }
}
