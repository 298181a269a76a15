//! What goes into a quorum, and what comes out.
//!
//! What a user may rely on, besides what each item says (`quorum/tests/promises.rs`):
//!
//! - **Order of proposals.** The log has the requests that one leader takes in the order of the
//!   calls of [`Quorum::handle`](super::Quorum::handle), payloads and changes of members alike. So
//!   it has those that one voter takes in different terms, if it has them at all. A request that is
//!   tried again is where its first entry is that was decided, which may be that of an earlier try.
//! - **Refused at once.** [`Refused::NotLeader`], [`Refused::Full`] and [`Refused::TooLarge`] are put
//!   out by the same call of `handle` as the request came with. Nothing came of this try; but an
//!   earlier one that was answered [`Refused::Unknown`] may still be applied.
//! - **Applied before answered.** `Ok` to a payload is put out behind the [`Output::Apply`] of its
//!   index, or behind an [`Output::Restore`] that has it. That is also true of a follower, which
//!   answers `Ok` to what it has applied already.
//! - **Answered once.** Each `Propose` and `ChangeVoters` has one [`Output::Answer`]. A leader that is
//!   none any more answers [`Refused::Unknown`] to all that is open before it puts out
//!   [`Output::Leader`], [`Output::Removed`] or [`Output::Failed`]. Such a request may be applied
//!   later, and is not answered again then; what was applied before was answered `Ok`.
//! - **A new leader** may not have applied all that was decided before it: [`Output::LeaderReady`]
//!   says when it has. That a voter leads, as far as it knows, does not say that no other leads in a
//!   later term: only an answer `Ok` does, for what was decided up to there.

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
    /// is proposed. If a request of that id was taken before, that counts, whatever its payload was.
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
    /// Another is to lead, if it can. Not answered; [`Output::Leader`] says who leads. Meanwhile requests
    /// are answered [`Refused::NotLeader`]. If it does not come to that within the least election
    /// time, this voter takes requests again, and says nothing.
    TransferLeader {
        /// Who.
        to: VoterId,
    },
    /// The state machine as it was behind the entry of that index: the answer to
    /// [`Output::TakeSnapshot`].
    Snapshot {
        /// The index that was asked for.
        index: u64,
        /// What [`Output::Restore`] will give. With what the quorum adds, up to 32 bytes for each
        /// request that it remembers, at most
        /// [`SNAPSHOT_BYTES_MAX`](super::SNAPSHOT_BYTES_MAX): else the voter fails.
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
    /// The state machine is to be as this snapshot has it: first of all when a voter is opened, and
    /// whenever a follower lags too far. A snapshot that was asked for before is not wanted any more.
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
    /// Another leads, or none is known. If this voter leads, it takes requests from now on; see
    /// [`Output::LeaderReady`] for what it has applied.
    Leader {
        /// The term.
        term: u64,
        /// Who leads in it.
        leader: Option<VoterId>,
    },
    /// This voter leads, and everything that was decided in earlier terms was put out before this, by
    /// `Apply` or `Restore`; what is put out from now on is of its own term. Once a term, behind its
    /// `Leader`, unless leadership is lost before.
    LeaderReady {
        /// The term.
        term: u64,
    },
    /// This voter was removed. It does nothing any more.
    Removed,
    /// This voter failed, and does nothing until it is opened again.
    Failed(String),
}

/// Why a request was not applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// This voter does not lead, or is about to let another lead.
    NotLeader {
        /// Who does or will, as far as is known.
        hint: Option<VoterId>,
    },
    /// This voter does not lead any more. The request may be applied or not: ask again under the
    /// same id.
    Unknown,
    /// There is no space, on the disk or in one of the bounds. Nothing came of this try: ask again
    /// later.
    Full,
    /// The payload has more than [`PAYLOAD_BYTES_MAX`].
    TooLarge,
    /// Such a change of members cannot be made, or not now. Put out at once, or when the change is
    /// decided and those before it do not allow it.
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
