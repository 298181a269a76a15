//! Who decides on what is recorded: the table of topics, partitions, producers and consumers, and
//! the ledger of cursors, gaps and settlements.

mod claims;
mod following;
mod leader;
mod leading;
mod record_log;
mod registering;
mod single;
mod snapshot;
#[cfg(any(test, feature = "testing"))]
pub mod suite;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod window;

pub(crate) use following::Following;
pub use leader::{TableLeader, TableLog};
pub(crate) use leading::Leading;
pub(crate) use record_log::{Damage, RecordLog};
pub(crate) use single::Single;

use crate::coordinator::table::Table;
pub use crate::ids::LEADER;
use crate::ids::{LEDGER_STORAGE, LinkId, Now, StorageId, TABLE_STORAGE};
use crate::options::NodeError;
use crate::refusal::refuse;
use log::{Disk, DiskError, Operation, OperationToken, Outcome};
use std::fmt;
use std::time::Duration;
use wire::record::Record;
use wire::table::{Register, Registered, TableMessage};
use wire::{Durability, ErrorCode, ErrorReply, NodeId, Offset, TopicId};

/// Which log a record is written to. Each orders its own commands; between the two there is no
/// order but that of who waits for whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Home {
    /// What is to be agreed on wherever partitions are: which topics, partitions, producers,
    /// consumers and members there are. Seldom written, always synced.
    Table,
    /// What belongs to the partitions of one owner, and changes as fast as their events: cursors,
    /// gaps, what became of a queue's events.
    Ledger,
}

impl Home {
    /// Each of them, in the order in which they are replayed.
    pub const ALL: [Self; 2] = [Self::Table, Self::Ledger];

    /// Where records of this type are.
    pub fn of(record: &Record) -> Self {
        match record {
            Record::Topic(_)
            | Record::TopicDeleted(_)
            | Record::Partition(_)
            | Record::Producer(_)
            | Record::Consumer(_)
            | Record::ConsumerDeleted(_)
            | Record::Member(_)
            | Record::Assignment(_)
            | Record::Table(_)
            | Record::Followed(_)
            | Record::Proposed(_)
            | Record::Placed(_)
            | Record::Node(_)
            | Record::Moving(_) => Self::Table,
            Record::Cursor(_)
            | Record::Gap(_)
            | Record::Settled(_)
            | Record::Returned(_)
            | Record::Rejected(_)
            | Record::Adopted(_) => Self::Ledger,
        }
    }

    /// Its directory in the data directory, and its name for people.
    pub fn directory(self) -> &'static str {
        match self {
            Self::Table => "internal",
            Self::Ledger => "ledgers/0",
        }
    }

    /// The topic of its batches. Never that of a user: ids are random.
    pub(crate) fn topic(self) -> TopicId {
        match self {
            Self::Table => TopicId(1),
            Self::Ledger => TopicId(2),
        }
    }

    /// Its storage, as the executor knows it.
    pub(crate) fn storage(self) -> StorageId {
        match self {
            Self::Table => TABLE_STORAGE,
            Self::Ledger => LEDGER_STORAGE,
        }
    }

    /// The one whose storage this is.
    pub(crate) fn of_storage(storage: StorageId) -> Option<Self> {
        Self::ALL.into_iter().find(|home| home.storage() == storage)
    }

    /// What is in it, as a part of a sentence.
    pub(crate) fn content(self) -> &'static str {
        match self {
            Self::Table => "topics, named producers, groups, queues and their members",
            Self::Ledger => "cursors, gaps and what queues have settled",
        }
    }
}

impl fmt::Display for Home {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Table => "the table's log (`internal`)",
            Self::Ledger => "the ledger (`ledgers/0`)",
        })
    }
}

/// Names a command between [`Controller::submit`] and its completion; chosen
/// by its submitter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommandToken(pub u64);

/// A change of the table or of the ledger. All of it takes effect or none.
///
/// Ids, times and resulting positions were chosen before it was submitted, so
/// that it means the same wherever and whenever it is applied. Its bytes are
/// those of its records, in one batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// Where all of its records are written.
    pub home: Home,
    /// The records, applied in order.
    pub records: Vec<Record>,
    /// What they are to survive before they are applied.
    pub durability: Durability,
}

/// Why a command was not carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ControlError {
    /// Another node decides.
    NotLeader {
        /// Its address, if known; else empty.
        hint: String,
    },
    /// The node that decides is not followed, for this reason. Nothing has changed.
    Apart(String),
    /// This node ends before it is known whether the node that decides has carried it out: it may
    /// be in the table, now or later.
    Unknown(String),
    /// The node that decides has refused it. Nothing has changed.
    Refused(ErrorReply),
    /// There is no space for it. Nothing has changed.
    Full(Home, String),
    /// The log failed. Whether the command survives is unknown until the node is opened again.
    Failed(Home, String),
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLeader { hint } if hint.is_empty() => f.write_str("another node decides"),
            Self::NotLeader { hint } => write!(f, "the node at {hint} decides"),
            Self::Apart(reason) | Self::Unknown(reason) => f.write_str(reason),
            Self::Refused(error) => write!(f, "{error}"),
            Self::Full(home, reason) => write!(f, "{home} has no space: {reason}"),
            Self::Failed(home, reason) => write!(f, "{home} failed: {reason}"),
        }
    }
}

/// Whether a copy has all that its leader had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CatchingUp {
    /// It has.
    Done,
    /// It will.
    UnderWay,
    /// It will not on this link, for this reason.
    Never(String),
}

/// Orders commands and makes them durable.
///
/// It is driven like a storage: after [`Controller::submit`] and [`Controller::complete`] comes
/// [`Controller::advance`], then its operations and completions are polled until there are none.
///
/// Obligations of an implementation, for the commands of each [`Home`] by themselves:
/// - commands are applied to the table in the order of their submission;
/// - a command is applied when it survives what it says that it is to survive, and
///   so do all before it; it is completed after that;
/// - every command is completed once, in the order of submission;
/// - one that is refused takes with it all that were submitted before that can
///   be seen: a submitter builds on what is under way.
pub trait Controller: Send {
    /// The table, with what the ledger says of it, as the completed commands left them.
    fn table(&self) -> &Table;

    /// What is done from now on is done at this time.
    fn set_time(&mut self, now: Now);

    /// Takes a command. Answered by [`Controller::poll_completion`].
    fn submit(&mut self, token: CommandToken, command: Command);

    /// Submits a command that changes nothing. When it is completed, the table here has all that was decided anywhere
    /// before it was submitted.
    fn submit_barrier(&mut self, token: CommandToken) {
        let nothing = Command {
            home: Home::Table,
            records: Vec::new(),
            durability: Durability::Synced,
        };
        self.submit(token, nothing);
    }

    /// What became of a command.
    fn poll_completion(&mut self) -> Option<(CommandToken, Result<(), ControlError>)>;

    /// Goes on after anything that may have changed how far its logs have come.
    fn advance(&mut self);

    /// The next operation on the disk that a log needs. Answered by [`Controller::complete`].
    fn poll_operation(&mut self) -> Option<(StorageId, OperationToken, Operation)>;

    /// An operation of one of its logs was carried out.
    fn complete(
        &mut self,
        storage: StorageId,
        token: OperationToken,
        result: Result<Outcome, DiskError>,
    );

    /// The number of the next record.
    fn end(&self, home: Home) -> Offset;

    /// Why commands of this home are not carried out any more, if so.
    fn failure(&self, home: Home) -> Option<String>;

    /// Whether nothing is under way.
    fn is_idle(&self) -> bool;

    /// The node is to end: what waits for another node waits no longer than that is there.
    fn drain(&mut self) {}

    /// Closes the logs, behind all that is under way.
    fn close(&mut self);

    /// Whether the logs have closed cleanly.
    fn is_closed(&self) -> bool;

    /// A link to another node of the table stands, new, or is gone. What was on its way is lost.
    fn linked(&mut self, peer: NodeId, is_up: bool) {
        let _ = (peer, is_up);
    }

    /// A message of another node came on its link. [`Controller::advance`] is to be called.
    fn take_message(&mut self, from: NodeId, message: TableMessage) {
        let _ = (from, message);
    }

    /// The next message for another node, to be sent on its link. Polled when [`Controller::advance`] was called.
    fn poll_message(&mut self) -> Option<(NodeId, TableMessage)> {
        None
    }

    /// A server asks on this link which node it is. Answered by [`Controller::poll_registered`], when that is decided.
    ///
    /// # Errors
    /// Where no nodes register: another one leads.
    fn register(&mut self, link: LinkId, register: Register) -> Result<(), ErrorReply> {
        let _ = (link, register);
        let hint = String::new();
        Err(undecided(&ControlError::NotLeader { hint }))
    }

    /// The next answer to a server that has registered, and its link. Polled as messages are.
    fn poll_registered(&mut self) -> Option<(LinkId, Result<Registered, ErrorReply>)> {
        None
    }

    /// When [`Controller::advance`] is to be called at the latest, by the clock of [`Controller::set_time`].
    fn next_timer(&self) -> Option<Duration> {
        None
    }

    /// How far it has come with what the node that leads had decided when its link came to stand.
    fn catching_up(&self) -> CatchingUp {
        CatchingUp::Done
    }

    /// Replays its ledger, if that was not done before it was made. Blocks.
    fn replay_ledger(&mut self, disk: &dyn Disk) -> Result<(), NodeError> {
        let _ = disk;
        Ok(())
    }

    /// Something that the operator is to hear.
    fn poll_notice(&mut self) -> Option<String> {
        None
    }
}

/// Whether a record is one that a node may propose: the others are the controllers' own.
fn is_of_clients(record: &Record) -> bool {
    match record {
        Record::Table(_) | Record::Followed(_) | Record::Proposed(_) => false,
        other => Home::of(other) == Home::Table,
    }
}

/// A command was not carried out: the error for its caller.
pub(crate) fn undecided(error: &ControlError) -> ErrorReply {
    match error {
        ControlError::NotLeader { hint } => ErrorReply {
            leader_hint: hint.clone(),
            ..ErrorReply::retryable(ErrorCode::NotLeader, 100, error.to_string())
        },
        ControlError::Apart(reason) => {
            ErrorReply::retryable(ErrorCode::NotLeader, 1000, reason.clone())
        }
        // As where a caller's time is over: it may have been done.
        ControlError::Unknown(reason) => refuse(ErrorCode::DeadlinePassed, reason.clone()),
        ControlError::Refused(error) => error.clone(),
        ControlError::Full(..) => {
            ErrorReply::retryable(ErrorCode::StorageFull, 1000, error.to_string())
        }
        ControlError::Failed(..) => refuse(ErrorCode::StorageFailed, error.to_string()),
    }
}
