//! What goes into a quorum, and what comes out.

use super::id::{RequestId, VoterId};
use super::membership::Change;
use super::settings::PAYLOAD_BYTES_MAX;
use bytes::Bytes;
use log::{DiskError, Operation, Outcome};
use std::fmt;

/// Something that happened.
#[derive(Debug)]
pub enum Input {
    /// Another voter sent a message.
    Message {
        /// Who, as the connection says. It must be who the message says it is from.
        from: VoterId,
        /// As [`Output::Send`] gave it.
        bytes: Bytes,
    },
    /// The payload is to be applied. Answered by [`Output::Answer`], once for each time that it
    /// is proposed.
    Propose {
        /// Its id; the same whenever it is tried again.
        request: RequestId,
        /// At most [`PAYLOAD_BYTES_MAX`].
        payload: Bytes,
    },
    /// An operation of [`Output::Disk`] was carried out.
    DiskDone {
        /// Which.
        token: u64,
        /// What came of it.
        result: Result<Outcome, DiskError>,
    },
    /// A member is to change. Answered by [`Output::Answer`]: `Ok` when the change is made, and most
    /// of those who vote behind it know that durably. A member that was removed may be switched off then.
    /// Only the leader answers `Ok`.
    ChangeVoters {
        /// Its id; the same whenever it is tried again.
        request: RequestId,
        /// What is to change.
        change: Change,
    },
    /// Another is to lead, if it can. Not answered; [`Output::Leader`] says who leads.
    TransferLeader {
        /// Who.
        to: VoterId,
    },
    /// The state machine as it was behind the entry of that index: the answer to
    /// [`Output::TakeSnapshot`].
    Snapshot {
        /// The index that was asked for.
        index: u64,
        /// What [`Output::Restore`] will give.
        bytes: Bytes,
    },
    /// The time of [`Quorum::next_timer`](super::Quorum::next_timer) has come.
    Timer,
}

/// Something to be done. In order.
#[derive(Debug)]
pub enum Output {
    /// A message to another voter. It may be lost, doubled or late.
    Send {
        /// To whom.
        to: VoterId,
        /// The message.
        bytes: Bytes,
    },
    /// An operation on the disk. One at a time is out; answered by [`Input::DiskDone`].
    Disk {
        /// To be given back.
        token: u64,
        /// What to do.
        operation: Operation,
    },
    /// The payload is decided: apply it. In order of the index, each once until this voter is
    /// opened again; then from its snapshot on.
    Apply {
        /// Its place in the log. Not every index has one.
        index: u64,
        /// The term of the leader that took it.
        term: u64,
        /// What was proposed.
        payload: Bytes,
    },
    /// The state machine is to be as this snapshot has it.
    Restore {
        /// The last index that it has.
        index: u64,
        /// What [`Input::Snapshot`] once gave; nothing in a cluster that was just founded.
        bytes: Bytes,
    },
    /// A snapshot of the state machine is wanted, as it is with all that was applied before this.
    /// Answered by [`Input::Snapshot`], at any later time.
    TakeSnapshot {
        /// The last index that was decided.
        upto: u64,
    },
    /// What became of a request.
    Answer {
        /// Which.
        request: RequestId,
        /// Where it was applied.
        result: Result<u64, Refused>,
    },
    /// Another leads, or none is known.
    Leader {
        /// The term.
        term: u64,
        /// Who leads in it.
        leader: Option<VoterId>,
    },
    /// This voter was removed. It does nothing any more.
    Removed,
    /// This voter failed, and does nothing until it is opened again.
    Failed(String),
}

/// Why a request was not applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// This voter does not lead.
    NotLeader {
        /// Who does, as far as is known.
        hint: Option<VoterId>,
    },
    /// This voter does not lead any more. The request may be applied or not: ask again under the
    /// same id.
    Unknown,
    /// There is no space, on the disk or in one of the bounds. Nothing was done: ask again later.
    Full,
    /// The payload has more than [`PAYLOAD_BYTES_MAX`].
    TooLarge,
    /// Such a change of members cannot be made, or not now.
    Change(&'static str),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLeader { hint: None } => f.write_str("no leader is known; ask again"),
            Self::NotLeader { hint: Some(hint) } => write!(f, "{hint} leads; ask it"),
            Self::Unknown => f.write_str(
                "leadership was lost, it may be applied or not; ask again under the same id",
            ),
            Self::Full => f.write_str("there is no space for it now; ask again later"),
            Self::TooLarge => {
                write!(f, "it has more than {PAYLOAD_BYTES_MAX} bytes")
            }
            Self::Change(why) => write!(f, "the members stay as they are: {why}"),
        }
    }
}

impl std::error::Error for Refused {}
