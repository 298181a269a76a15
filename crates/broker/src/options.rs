//! What a node is opened with, and what its start found.

use crate::certificates::ClientCertificates;
use crate::examine::{Examiner, NoOthers};
use crate::faults::Planted;
use crate::ids::LEADER;
use crate::nodes::Nodes;
use log::{Disk, DiskError, OpenPartition, Recovery, Storage, StorageError, StorageKind};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use wire::{DirectoryId, NodeId, ServerInstance};

/// Which part a node has in its table of topics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TableRole {
    /// It is alone: nobody follows, and nothing is kept for anybody.
    #[default]
    Alone,
    /// It leads a table that others may follow: node 0.
    Leads,
    /// It follows the table of node 0, and is this node of it. Never 0, and never the id of another
    /// data directory.
    Follows(NodeId),
}

impl TableRole {
    /// The node that it is in the table.
    pub fn node(self) -> NodeId {
        match self {
            Self::Alone | Self::Leads => LEADER,
            Self::Follows(node) => node,
        }
    }
}

/// Opens partitions that do not depend on each other, each with its kind of storage, and
/// returns what came of them in the same order. Blocks.
pub type OpenPartitions = fn(Vec<(Arc<dyn StorageKind>, OpenPartition)>) -> Vec<OpenedPartition>;

/// What opening a partition came to.
pub type OpenedPartition = Result<(Box<dyn Storage>, Recovery), StorageError>;

/// Opens one partition after the other, on the calling thread.
pub fn open_in_turn(
    partitions: Vec<(Arc<dyn StorageKind>, OpenPartition)>,
) -> Vec<OpenedPartition> {
    let opened = partitions.into_iter().map(|(kind, open)| kind.open(open));
    opened.collect()
}

/// What a node is opened with.
#[derive(Clone)]
pub struct NodeOptions {
    /// The data directory, which exists and is locked by the caller. The node
    /// owns `internal`, `ledgers`, `partitions`, `topics`, `lost+found`, `start.json` and
    /// `used-tokens.json` in it.
    pub directory: PathBuf,
    /// Carries out the operations of the start; later ones are outputs.
    pub disk: Arc<dyn Disk>,
    /// The kinds of storage that topics may name. `disk` must be among them:
    /// the table's log and the ledger are of that kind.
    pub kinds: Vec<Arc<dyn StorageKind>>,
    /// How the start opens the partitions of topics: side by side where there are threads.
    pub open_partitions: OpenPartitions,
    /// Configuration of the storage of the table's log and of the ledger, as JSON.
    pub internal_config: String,
    /// Whether it is alone, leads, or follows.
    pub role: TableRole,
    /// The nodes of its table.
    pub nodes: Arc<Nodes>,
    /// Bounds.
    pub limits: Limits,
    /// The data directory's permanent id.
    pub directory_id: DirectoryId,
    /// This run of the server.
    pub instance: ServerInstance,
    /// What clients present to get in.
    pub token: [u8; 32],
    /// Whose tokens of projects are taken, and which are not.
    pub trust: Arc<access::Trust>,
    /// By which certificates clients are let in; without, by none.
    pub certificates: Option<ClientCertificates>,
    /// Who may do what, and how much.
    pub rules: Arc<access::Rules>,
    /// Looks at credentials of others.
    pub examiner: Arc<dyn Examiner>,
    /// The user whose processes need no token where the kernel vouches for them.
    pub owner_uid: Option<u32>,
    /// Identity of this boot of the machine.
    pub boot_id: String,
    /// The server's version, for people.
    pub server_version: String,
    /// Where buffers come from.
    pub pool: memory::Pool,
    /// Where ids come from: random, and never the same for two runs.
    pub seed: u128,
    /// Whether the operator accepts what was lost so far: a start that would be refused because
    /// the table does not know what is there goes on with what can be rebuilt.
    pub accept_loss: bool,
    /// What the executor adds to, and the status has.
    pub counters: Arc<crate::counters::Counters>,
    /// Faults that tests plant.
    #[cfg(any(test, feature = "testing"))]
    pub fault: Option<crate::faults::Fault>,
}

impl NodeOptions {
    /// Options for the data directory at `directory`, with default bounds.
    /// Identities, token and seed are zero: the caller sets them.
    pub fn new(directory: PathBuf, disk: Arc<dyn Disk>, kinds: Vec<Arc<dyn StorageKind>>) -> Self {
        Self {
            directory,
            disk,
            kinds,
            open_partitions: open_in_turn,
            internal_config: String::new(),
            role: TableRole::Alone,
            nodes: Arc::default(),
            limits: Limits::default(),
            directory_id: DirectoryId::default(),
            instance: ServerInstance::default(),
            token: [0; 32],
            trust: Arc::default(),
            certificates: None,
            rules: Arc::default(),
            examiner: Arc::new(NoOthers),
            owner_uid: None,
            boot_id: String::new(),
            server_version: String::new(),
            pool: memory::Pool::new(64 << 20),
            seed: 0,
            accept_loss: false,
            counters: Arc::default(),
            #[cfg(any(test, feature = "testing"))]
            fault: None,
        }
    }
}

impl NodeOptions {
    /// The fault that a test has planted.
    pub(crate) fn planted(&self) -> Planted {
        #[cfg(any(test, feature = "testing"))]
        return Planted::of(self.fault);
        #[cfg(not(any(test, feature = "testing")))]
        Planted::default()
    }
}

/// The bounds of a node, each with a name that its errors use.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Silence after which a sign of life is asked for; twice that is death.
    pub heartbeat: Duration,
    /// How long a connection may take for its `Hello`.
    pub hello_timeout: Duration,
    /// How long before the end of its credential a client is told that it is near.
    pub credential_warning: Duration,
    /// For how long a connection goes on whose credential is over.
    pub credential_grace: Duration,
    /// Bytes on their way to storage: payloads of unanswered produce calls
    /// and external data. Nothing else takes from it, so that calls,
    /// acknowledgements and cursors go on when it is used up.
    pub data_bytes_max: u64,
    /// The most produce credit of one connection; less when many share
    /// `data_bytes_max`.
    pub produce_credit_bytes_max: u64,
    /// The longest payload of one frame, and so the longest batch.
    pub payload_bytes_max: u64,
    /// Chunks of one batch's external data that are under way at once.
    pub transfer_chunks_max: usize,
    /// Batches of one producer and partition that wait for external data, or
    /// behind one that does.
    pub arrivals_max: usize,
    /// Bytes that one reading of a subscription asks of the storage.
    pub read_bytes_max: u64,
    /// Bytes of one reply to a fetch.
    pub fetch_bytes_max: u64,
    /// Bytes of `ReadData` calls under way on one connection.
    pub read_data_bytes_max: u64,
    /// External data on its way to storage, of all connections together, and as
    /// much selected data on its way out. Beyond it each connection has one
    /// chunk under way, so that nobody waits for one that has stopped.
    pub flow_bytes_max: u64,
    /// Unanswered requests of one connection.
    pub requests_max: usize,
    /// Subscriptions and memberships of one connection.
    pub subscriptions_max: usize,
    /// Connections.
    pub sessions_max: usize,
    /// Topics.
    pub topics_max: usize,
    /// Partitions of one topic.
    pub partitions_max: usize,
    /// Consumers with a cursor, groups and queues, of one topic.
    pub consumers_max: usize,
    /// Members of one group or queue.
    pub members_max: usize,
    /// Producers with a name, of one topic.
    pub named_producers_max: usize,
    /// Bytes of the table's log, and of the ledger, after which what it adds up to is written
    /// anew and what came before is dropped.
    pub internal_bytes_max: u64,
    /// How long a change of the table waits for a leader that is not to be reached.
    pub leader_timeout: Duration,
    /// How long a drain waits for what was taken, before it gives up on it.
    pub drain_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        const MIB: u64 = 1 << 20;
        Self {
            heartbeat: Duration::from_secs(10),
            hello_timeout: Duration::from_secs(10),
            credential_warning: Duration::from_secs(60),
            credential_grace: Duration::from_secs(60),
            data_bytes_max: 256 * MIB,
            produce_credit_bytes_max: 16 * MIB,
            payload_bytes_max: 128 * MIB,
            transfer_chunks_max: 4,
            arrivals_max: 64,
            read_bytes_max: MIB,
            fetch_bytes_max: 16 * MIB,
            read_data_bytes_max: 8 * MIB,
            flow_bytes_max: 16 * MIB,
            requests_max: 16_384,
            subscriptions_max: 16_384,
            sessions_max: 4096,
            topics_max: 10_000,
            partitions_max: topic::PARTITIONS_MAX,
            consumers_max: 100_000,
            members_max: 4096,
            named_producers_max: 100_000,
            internal_bytes_max: 16 * MIB,
            leader_timeout: Duration::from_secs(5),
            drain_timeout: Duration::from_secs(10),
        }
    }
}

/// What the start of a node found.
#[derive(Debug, Clone, Default)]
pub struct StartReport {
    /// Topics that there are.
    pub topic_count: usize,
    /// Partitions that serve.
    pub partition_count: usize,
    /// Partitions that do not, each with the reason.
    pub failed: Vec<String>,
    /// Bytes that recovery verified.
    pub verified_bytes: u64,
    /// Bytes of unsynced tails that were cut off.
    pub cut_bytes: u64,
    /// What an operator should know: losses, leftovers removed.
    pub lines: Vec<String>,
}

/// Why a node cannot start.
#[derive(Debug)]
pub enum NodeError {
    /// The options cannot be right.
    Invalid(String),
    /// The table's log or the ledger cannot be opened or replayed.
    Internal {
        /// What was tried.
        attempt: String,
        /// Why it failed.
        source: StorageError,
    },
    /// The table's log or the ledger holds a record that this version cannot read.
    Record(String),
    /// The table or the ledger does not know what is there. Nothing was changed.
    Loss(String),
    /// The data directory cannot be read.
    Disk(DiskError),
    /// It was interrupted while it read the table from the one that leads.
    Interrupted,
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(text) | Self::Record(text) | Self::Loss(text) => f.write_str(text),
            Self::Internal { attempt, source } => write!(f, "{attempt}: {source}"),
            Self::Disk(error) => write!(f, "{error}"),
            Self::Interrupted => f.write_str("interrupted while the table was read"),
        }
    }
}

impl std::error::Error for NodeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Internal { source, .. } => Some(source),
            Self::Disk(error) => Some(error),
            Self::Invalid(_) | Self::Record(_) | Self::Loss(_) | Self::Interrupted => None,
        }
    }
}

impl From<DiskError> for NodeError {
    fn from(error: DiskError) -> Self {
        Self::Disk(error)
    }
}
