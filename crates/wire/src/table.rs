//! What the nodes of one table tell each other: the one that leads it, and those that follow.
//!
//! The page is `docs/format/table.md`. A link between two nodes carries these in order, and its two
//! ends know of each other when it is gone.

use crate::codec::{Codec, DecodeError, Reader, Write, record};
use crate::error::ErrorReply;
use crate::id::*;
use crate::record::{Endpoints, Labels, Record};

/// Pieces of a snapshot and lists of entries are about as long at most. What is longer by itself goes alone.
pub const PIECE_BYTES_MAX: usize = 1 << 20;

/// The longest message that is taken.
pub const MESSAGE_BYTES_MAX: usize = 128 << 20;

/// In place of a proposal's number: a registration is refused. Proposals are numbered from 1.
pub const REGISTRATION: u64 = 0;

/// Of every message, of which this is the first version.
const VERSION: u16 = 1;

record! {
    /// A follower begins. The first message on a link.
    pub struct Follow {
        pub node: NodeId,
        /// The table of which it has a copy; 0 if it has none.
        pub table: TableId,
        /// How far its copy has come.
        pub index: u64,
        /// How many refusals it has seen.
        pub refusals: u64,
    }
}

record! {
    /// A follower asks for a change of the table.
    pub struct Propose {
        /// Its count of proposals, from one run to the next. The same one again is the same proposal.
        pub number: u64,
        /// How many refusals it had seen when it proposed this: what it builds on.
        pub refusals: u64,
        /// All of them take effect, or none.
        pub records: Vec<Record>,
    }
}

record! {
    /// So many more pieces and lists of entries a follower has recorded.
    pub struct Took {
        pub count: u32,
    }
}

record! {
    /// A leader's answer to [`Follow`].
    pub struct Leads {
        pub table: TableId,
        /// Of the last change of the table, or the follower's own where that is later.
        pub index: u64,
        /// The last proposal of this follower that the leader knows.
        pub proposed: u64,
    }
}

record! {
    /// A leader does not lead this follower, or not any more, until it follows on another link.
    pub struct Unled {
        /// Why, for people.
        pub reason: String,
    }
}

record! {
    /// A part of the whole table.
    pub struct Piece {
        /// The index of the table that all pieces make up.
        pub index: u64,
        pub is_last: bool,
        pub records: Vec<Record>,
    }
}

record! {
    /// A change of the table that is decided.
    pub struct Entry {
        /// The table's index with it.
        pub index: u64,
        pub records: Vec<Record>,
    }
}

record! {
    /// Changes of the table, in their order.
    pub struct Entries {
        /// The index before the first of them.
        pub after: u64,
        pub entries: Vec<Entry>,
    }
}

record! {
    /// A proposal is refused, and with it all that its follower has proposed behind it and will
    /// propose before it has seen this; or a [`Register`] is.
    pub struct Refused {
        /// The proposal; [`REGISTRATION`] is none, but a registration.
        pub number: u64,
        pub error: ErrorReply,
    }
}

record! {
    /// A server asks which node it is, before it follows: its node's data directory is new, or has
    /// another address now.
    pub struct Register {
        pub directory: DirectoryId,
        /// Where clients reach it.
        pub endpoints: Endpoints,
        pub labels: Labels,
        /// Which shard of its server it is.
        pub shard: u32,
    }
}

record! {
    /// A leader's answer to [`Register`]: it is decided, and no other data directory is this node.
    #[derive(Copy)]
    pub struct Registered {
        pub node: NodeId,
        /// Which of the node's registrations it was. A greater one is of a later start.
        pub epoch: u64,
    }
}

/// A message between two nodes of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TableMessage {
    /// A follower begins.
    Follow(Follow),
    /// A follower asks for a change.
    Propose(Propose),
    /// A follower has recorded what came.
    Took(Took),
    /// A leader leads.
    Leads(Leads),
    /// A leader does not lead.
    Unled(Unled),
    /// A part of the whole table.
    Piece(Piece),
    /// Changes of the table.
    Entries(Entries),
    /// A proposal or a registration is refused.
    Refused(Refused),
    /// A server asks which node it is.
    Register(Register),
    /// A server is this node.
    Registered(Registered),
}

impl TableMessage {
    /// Reads a message that is all of `bytes`.
    ///
    /// # Errors
    /// If it is none, of a version that this code does not know, or too long.
    pub fn read(bytes: &[u8]) -> Result<Self, DecodeError> {
        const WHAT: &str = "message about the table";
        if bytes.len() > MESSAGE_BYTES_MAX {
            return Err(DecodeError::value(WHAT, 0, "bytes", bytes.len() as u64));
        }
        let mut from = Reader::new(WHAT, bytes);
        let message = Self::decode(&mut from)?;
        match from.rest() {
            [] => Ok(message),
            rest => Err(from.refuse("bytes behind the message", rest.len() as u64)),
        }
    }
}

impl Codec for TableMessage {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut tag = |kind: u16| {
            out.put_u16(kind);
            out.put_u16(VERSION);
        };
        match self {
            Self::Follow(_) => tag(1),
            Self::Propose(_) => tag(2),
            Self::Took(_) => tag(3),
            Self::Leads(_) => tag(4),
            Self::Unled(_) => tag(5),
            Self::Piece(_) => tag(6),
            Self::Entries(_) => tag(7),
            Self::Refused(_) => tag(8),
            Self::Register(_) => tag(9),
            Self::Registered(_) => tag(10),
        }
        match self {
            Self::Follow(message) => message.encode(out),
            Self::Propose(message) => message.encode(out),
            Self::Took(message) => message.encode(out),
            Self::Leads(message) => message.encode(out),
            Self::Unled(message) => message.encode(out),
            Self::Piece(message) => message.encode(out),
            Self::Entries(message) => message.encode(out),
            Self::Refused(message) => message.encode(out),
            Self::Register(message) => message.encode(out),
            Self::Registered(message) => message.encode(out),
        }
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        const WHAT: &str = "message about the table";
        let kind = from.u16()?;
        let version = from.u16()?;
        if version != VERSION {
            let (found, own) = (version.into(), VERSION.into());
            return Err(DecodeError::version(WHAT, 2, "version", found, own));
        }
        Ok(match kind {
            1 => Self::Follow(Codec::decode(from)?),
            2 => Self::Propose(Codec::decode(from)?),
            3 => Self::Took(Codec::decode(from)?),
            4 => Self::Leads(Codec::decode(from)?),
            5 => Self::Unled(Codec::decode(from)?),
            6 => Self::Piece(Codec::decode(from)?),
            7 => Self::Entries(Codec::decode(from)?),
            8 => Self::Refused(Codec::decode(from)?),
            9 => Self::Register(Codec::decode(from)?),
            10 => Self::Registered(Codec::decode(from)?),
            other => return Err(DecodeError::newer(WHAT, 0, "type", other.into())),
        })
    }
}
