//! What can be chosen, with the defaults in one place.

use crate::error::ClientError;
use crate::event::EventInfo;
use crate::when::When;
use bytes::Bytes;
use memory::Target;
use net::{Inproc, LinkOptions, Proxies, Tcp, Tls, Transports, Trust, Unix};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use topic::{GroupOptions, NoPlugins, Plugins};
use wire::message::Start;
use wire::record::Gap;
use wire::view::DataView;
use wire::{DirectoryId, Durability, PartitionIndex};

/// Where the server is.
#[derive(Debug, Clone)]
pub enum Endpoint {
    /// In the group file that the server wrote; see `docs/format/group-file.md`.
    GroupFile(PathBuf),
    /// At an address of one of the driver's transports.
    Address {
        /// For example `tcp://127.0.0.1:7000`, `unix:///run/thalweg.sock` or `inproc://name`. Over TLS,
        /// `tls://host:7000?sha256=HEX` or `?ca=FILE` says which certificate to trust.
        address: String,
        /// The token to present; none where the transport proves who one is.
        token: Option<Bytes>,
        /// The data directory that is expected there; any, if none is given.
        directory: Option<DirectoryId>,
    },
}

impl Endpoint {
    /// At `address`, without a token, whichever server answers.
    pub fn address(address: impl Into<String>) -> Self {
        Self::Address {
            address: address.into(),
            token: None,
            directory: None,
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GroupFile(path) => write!(f, "group file {}", path.display()),
            Self::Address { address, .. } => f.write_str(address),
        }
    }
}

/// Who drives a driver's network.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Progress {
    /// A thread of the driver's own, and in its place, while the network is
    /// quiet, whichever thread waits. Callbacks come on that thread.
    #[default]
    Thread,
    /// The caller: by [`crate::Driver::progress`], whenever
    /// [`crate::Driver::descriptor`] is readable, and by every call that
    /// waits. There is no thread; callbacks come on those that drive.
    Caller,
}

/// How long the first connection may take if nothing else is asked for.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// What a pull without a deadline reports to [`DriverOptions::on_waiting`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Waiting {
    /// Which consumer waits, in words.
    pub consumer: String,
    /// For how long it was kept from events, up to now.
    pub since: Duration,
    /// What keeps events from it; `None` when it goes on.
    pub reason: Option<ClientError>,
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (consumer, seconds) = (&self.consumer, self.since.as_secs_f64());
        match &self.reason {
            Some(reason) => write!(f, "{consumer} has waited for {seconds:.0} s: {reason}"),
            None => write!(f, "{consumer} goes on, after {seconds:.0} s"),
        }
    }
}

/// What [`DriverOptions::on_credential`] hears: the credential is over soon, or is over.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CredentialEnds {
    /// The file that it was read from.
    pub path: PathBuf,
    /// How long it is good from now on; zero if it is over. The connection ends a minute after that.
    pub left: Duration,
    /// What the server calls it, and when it expires; never its secret.
    pub message: String,
}

impl fmt::Display for CredentialEnds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, message) = (self.path.display(), &self.message);
        write!(
            f,
            "{path}: {message}; put a new one into this file, and it is taken up"
        )
    }
}

/// Hears that a credential ends.
pub type OnCredential = dyn Fn(&CredentialEnds) + Send + Sync;

/// Called for each gap.
pub type GapCallback = dyn Fn(PartitionIndex, &Gap) + Send + Sync;

/// Hears what pulls without a deadline wait for.
pub type OnWaiting = dyn Fn(&Waiting) + Send + Sync;

/// What a driver can choose.
#[derive(Clone)]
pub struct DriverOptions {
    /// A name for the server's log and status. Default: program and process id.
    pub client_name: String,
    /// The namespace of all names; empty is the default one, or, with a credential, the project
    /// that it is for.
    pub namespace: String,
    /// A file with a token, as `thalweg token new` makes it: who the client is, whatever else
    /// could prove that. It is read for each connection, and before the token expires, so that
    /// another one in its place goes on. Default: the one that the environment variable
    /// `THALWEG_CREDENTIAL` names; none without it, or where the endpoint has a token.
    pub credential: Option<PathBuf>,
    /// Hears from the server that the credential ends: a minute before, and again at its end.
    /// Called on the thread that drives the network. Default: nobody.
    pub on_credential: Option<Arc<OnCredential>>,
    /// How long the first connection may take. If it is given, a group file that
    /// is not there yet is waited for as long. Default: 10 s, and a group file
    /// that is not there is an error at once.
    pub connect_timeout: Option<Duration>,
    /// How long a lost server may be away before pulls, drains and bounded reads
    /// fail with [`crate::ClientError::Unreachable`], whatever time they were given;
    /// the next one goes on once the server is back. Default: for ever.
    pub reconnect_timeout: Option<Duration>,
    /// Hears of consumers that are kept from events while somebody pulls without
    /// a deadline: every 10 s, and once when they go on. Called on the thread
    /// that pulls. Default: nobody.
    pub on_waiting: Option<Arc<OnWaiting>>,
    /// How long the server may take over a request. Default 120 s.
    pub request_timeout: Duration,
    /// How addresses are reached. Default: TCP, TLS, unix sockets and in-process. Over TLS, where
    /// the address does not say whom to trust, the authorities in the file that the environment
    /// variable `THALWEG_TLS_CA` names are; without it nobody is. Over TLS, servers are reached
    /// through the proxy that `HTTPS_PROXY` names, but those of `NO_PROXY` and of this host.
    pub transports: Arc<Transports>,
    /// Bytes that producers and consumers hold together at most. Each has a
    /// share for as long as it lives: what it wants, or a quarter of what is left.
    /// Where they are so many that this is less than a 512th of all (64 KiB
    /// to 1 MiB), each further one has that, beyond the bound. Default 512 MiB.
    pub memory_bytes_max: u64,
    /// Who drives the network. Default: a thread.
    pub progress: Progress,
    /// Where plugins of topics come from. Default: nowhere.
    pub plugins: Arc<dyn Plugins>,
    /// How long the client's thread looks, on its processor, for what the
    /// server sent before it sleeps. Of use where a
    /// processor is free for it; as long as looking finds nothing, it is done
    /// more and more rarely. Default zero: not at all.
    pub spin: Duration,
    /// How many connections to the server the client may have at most, 1 to 16, which carry its bytes together: for a
    /// long line on which one connection does not reach the rate of the line. They are opened one at a time, while one
    /// more makes it faster. Over `tcp://` and `tls://` alone: an address of another transport is refused with more than
    /// one, and what a group file leads to on this host has one. Default 1; `?stripes=N` behind an address or in a
    /// `thalweg://` URL says it too.
    pub stripes: u8,
    /// Opens all of them at once: for tests, which have no long line.
    #[doc(hidden)]
    pub stripes_at_once: bool,
}

impl DriverOptions {
    /// How long the first connection may take.
    pub(crate) fn connect_within(&self) -> Duration {
        self.connect_timeout.unwrap_or(CONNECT_TIMEOUT)
    }
}

/// The variable that names a file of authorities to trust over TLS.
const TLS_CA_VARIABLE: &str = "THALWEG_TLS_CA";

/// The variable that names the file of a credential.
const CREDENTIAL_VARIABLE: &str = "THALWEG_CREDENTIAL";

/// The file that a variable of the environment names; empty is none.
fn named_by(variable: &str) -> Option<PathBuf> {
    let path = std::env::var_os(variable).filter(|path| !path.is_empty())?;
    Some(path.into())
}

fn tls(links: LinkOptions) -> Tls {
    let tls = Tls::new(links).through(Proxies::from_environment());
    match named_by(TLS_CA_VARIABLE) {
        Some(path) => tls.trusting(Trust::Authorities(path)),
        None => tls,
    }
}

impl Default for DriverOptions {
    fn default() -> Self {
        let program = std::env::args_os().next().unwrap_or_default();
        let program = std::path::Path::new(&program)
            .file_name()
            .map_or_else(|| "client".into(), |name| name.to_string_lossy());
        let links = LinkOptions::default();
        let transports = Transports::new()
            .with(Unix::new(links.clone()))
            .with(Tcp::new(links.clone()))
            .with(tls(links.clone()))
            .with(Inproc::new(links));
        Self {
            client_name: topic::fit_client_name(&format!("{program}:{}", std::process::id())),
            namespace: String::new(),
            credential: named_by(CREDENTIAL_VARIABLE),
            on_credential: None,
            connect_timeout: None,
            reconnect_timeout: None,
            on_waiting: None,
            request_timeout: Duration::from_secs(120),
            transports: Arc::new(transports),
            memory_bytes_max: 512 << 20,
            progress: Progress::Thread,
            plugins: Arc::new(NoPlugins),
            spin: Duration::ZERO,
            stripes: 1,
            stripes_at_once: false,
        }
    }
}

impl fmt::Debug for DriverOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DriverOptions")
            .field("client_name", &self.client_name)
            .field("namespace", &self.namespace)
            .field("credential", &self.credential)
            .field("connect_timeout", &self.connect_timeout)
            .field("reconnect_timeout", &self.reconnect_timeout)
            .field("request_timeout", &self.request_timeout)
            .field("memory_bytes_max", &self.memory_bytes_max)
            .field("progress", &self.progress)
            .field("stripes", &self.stripes)
            .finish_non_exhaustive()
    }
}

/// When a batch that gathers events is closed and sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchPolicy {
    /// The most events in a batch; none is no limit.
    pub count_max: Option<u32>,
    /// The most bytes of metadata, keys, headers and inline data; one event
    /// larger than this makes a batch of its own. Default 1 MiB.
    pub bytes_max: u32,
    /// How long a batch that is not full waits. Default adaptive.
    pub linger: Linger,
}

impl Default for BatchPolicy {
    fn default() -> Self {
        Self {
            count_max: None,
            bytes_max: 1 << 20,
            linger: Linger::Adaptive,
        }
    }
}

/// How long a batch that is not full waits for more events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Linger {
    /// Until the batch before it is acknowledged: none waits while the
    /// partition is idle, and batches grow with the load.
    Adaptive,
    /// This long.
    Wait(Duration),
    /// For ever: only size, count, a flush or a full budget send it.
    UntilFull,
}

/// What a push does when the producer's budget is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtBudget {
    /// Waits this long for space.
    Block(Duration),
    /// Fails with [`crate::ClientError::Budget`].
    Fail,
}

/// What a producer can choose.
#[derive(Debug, Clone)]
pub struct ProducerOptions {
    /// A name, under which the producer keeps its identity across restarts of
    /// its program and fences its predecessor. Default none.
    pub name: Option<String>,
    /// How batches form.
    pub batch: BatchPolicy,
    /// Batches of one partition that are sent and not acknowledged. Default 4.
    pub batches_in_flight_max: usize,
    /// Bytes held until they are acknowledged, owned and borrowed; one larger
    /// event is let in alone. Default 64 MiB, less if the driver's memory is used up.
    pub budget_bytes: u64,
    /// What happens at that bound. Default: block for 120 s.
    pub at_budget: AtBudget,
    /// What an ack must mean, if more than the topic promises.
    pub durability: Option<Durability>,
    /// A file to which every acknowledged batch is appended; see `docs/format/journal.md`.
    pub journal: Option<PathBuf>,
    /// Data up to this length travels in the batch; longer data is sent from
    /// where it lies. Default 64 KiB.
    pub inline_bytes_max: u32,
    /// Of data that travels in the batch, pieces up to this length are copied
    /// when they are pushed; longer ones become a part of the batch where they
    /// lie, and are kept until they are acknowledged. Default 4 KiB.
    pub copied_bytes_max: u32,
    /// Whether data that is sent from where it lies is compared, when it is
    /// sent, with what it was when it was pushed: its checksum is computed twice,
    /// first by the push. A change is [`crate::ClientError::DataChanged`], and the
    /// event is not stored. Default no.
    pub check_borrowed: bool,
    /// How long an ack may take, after which the outcome is unknown and the
    /// producer has failed. Opening the producer takes no longer either, or as
    /// long as [`DriverOptions::request_timeout`], if that is less. Default 120 s.
    pub ack_timeout: Duration,
    /// Threads of the producer's that validate and serialize. Default 0:
    /// the thread that pushes does, and the push itself returns a refusal. With
    /// threads a push copies the metadata and returns, and its future has the refusal.
    /// Worth it where a schema or a plugin takes longer than a thread's wake-up,
    /// some 20 us. A quarter of the budget is for what waits for them.
    pub threads: usize,
    /// In which order events leave the threads. Default strict.
    pub ordering: Ordering,
}

/// In which order a producer's threads put events into batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ordering {
    /// In the order of pushing, in each partition, as without threads.
    #[default]
    Strict,
    /// As they are done: one that takes long holds nobody up.
    Loose,
}

impl Default for ProducerOptions {
    fn default() -> Self {
        Self {
            name: None,
            batch: BatchPolicy::default(),
            batches_in_flight_max: 4,
            budget_bytes: 64 << 20,
            at_budget: AtBudget::Block(Duration::from_secs(120)),
            durability: None,
            journal: None,
            inline_bytes_max: 64 << 10,
            copied_bytes_max: 4 << 10,
            check_borrowed: false,
            ack_timeout: Duration::from_secs(120),
            threads: 0,
            ordering: Ordering::Strict,
        }
    }
}

/// Chooses the part of an event's data that is wanted. Called by a pull, one
/// event after the other: a pull or a seek of the same consumer is refused in it.
pub type DataSelector = dyn Fn(&EventInfo<'_>) -> Result<DataView, String> + Send + Sync;
/// Says where the selected data goes; its length must be the view's. As with
/// [`DataSelector`], the same consumer is refused in it.
pub type DataAllocator = dyn Fn(&EventInfo<'_>, &DataView) -> Result<Target, String> + Send + Sync;

/// Which data of events a consumer gets.
#[derive(Clone, Default)]
pub enum DataMode {
    /// None; no data travels.
    None,
    /// All of it.
    #[default]
    All,
    /// What the selector chooses, and nothing else travels.
    Select(Arc<DataSelector>),
}

impl fmt::Debug for DataMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::All => "All",
            Self::Select(_) => "Select",
        })
    }
}

/// Called with partitions of a group that came or are to go.
pub type PartitionsCallback = dyn Fn(&[PartitionIndex]) + Send + Sync;

/// What a member of a group can choose.
///
/// The callbacks come on the thread that pulls, before anything else that the
/// pull gives: of a program that does not pull, partitions that are to go are
/// taken away after the revoke timeout.
#[derive(Clone)]
pub struct GroupMember {
    /// Options of the group, if its name is new; else they are as they were set then.
    pub group: GroupOptions,
    /// An instance name: a program that comes back under the same one within
    /// the session timeout takes over the partitions of its predecessor, which
    /// is fenced. Default none.
    pub instance: Option<String>,
    /// How long the server may hear nothing of this client before its
    /// partitions go to others. Default 10 s.
    pub session_timeout: Duration,
    /// How long the program may stay away from its consumer; then the
    /// consumer leaves, and the next pull fails once with
    /// [`wire::ErrorCode::MemberFenced`]. Noticed within a quarter more than
    /// that. Default: for ever.
    pub processing_timeout: Option<Duration>,
    /// Partitions came. Their events follow.
    pub on_assigned: Option<Arc<PartitionsCallback>>,
    /// Partitions are to go: what is finished is to be acknowledged now. When
    /// the callback returns, acknowledgements are sent and the partitions
    /// released. Events of theirs that were not pulled are dropped.
    pub on_revoking: Option<Arc<PartitionsCallback>>,
    /// Partitions are gone already: the member was away for too long, or did
    /// not release them in time. What is acknowledged of them is refused.
    pub on_lost: Option<Arc<PartitionsCallback>>,
}

impl Default for GroupMember {
    fn default() -> Self {
        Self {
            group: GroupOptions::default(),
            instance: None,
            session_timeout: Duration::from_secs(10),
            processing_timeout: None,
            on_assigned: None,
            on_revoking: None,
            on_lost: None,
        }
    }
}

impl fmt::Debug for GroupMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupMember")
            .field("group", &self.group)
            .field("instance", &self.instance)
            .field("session_timeout", &self.session_timeout)
            .field("processing_timeout", &self.processing_timeout)
            .finish_non_exhaustive()
    }
}

/// What a consumer can choose.
#[derive(Clone)]
pub struct ConsumerOptions {
    /// The partitions to read. If none are given, all of the topic's, also
    /// those that are added later (from their first event on).
    pub partitions: Option<Vec<u32>>,
    /// Where to begin. Default: at the cursor, or at the first event. With
    /// [`When::Last`], partitions that are added later begin with their first event.
    pub start: When,
    /// Which data is wanted. Default all.
    pub data: DataMode,
    /// Where data goes; memory of the client's, if none is given. Data that did
    /// not come along is read into that as soon as its event arrives, for up to
    /// two batches; with an allocator or a selector, which are called on a
    /// thread that pulls, it is begun there.
    pub allocator: Option<Arc<DataAllocator>>,
    /// Whether data that travels with its event comes along although there is a
    /// selector, which then picks from it here: for short data of which most is
    /// wanted, where to ask for it costs more than to bring it. Default no:
    /// nothing travels but what was selected.
    pub inline_along: bool,
    /// Bytes of batches that may wait here, for each partition. Default 16
    /// MiB, less if the driver's memory is used up.
    pub credit_bytes: u64,
    /// How long acknowledgements are gathered before they are sent. Default 50 ms.
    pub acknowledge_interval: Duration,
    /// Makes the consumer a member of a group: the partitions are shared out
    /// among the members, and `partitions` is to be none. `start` is where a
    /// new group begins. Default: it reads for itself alone.
    pub group: Option<GroupMember>,
    /// Only events with this key. Default all.
    pub key: Option<Bytes>,
    /// Hands out the events of all partitions in the order in which the server
    /// appended them, by its clock; of the same time, by partition. An event is
    /// held back while there may be an older one: until every partition has an
    /// event here, or for this long (a quarter more at most) after it arrived.
    /// What arrives later still is handed out at once. Default: partitions take
    /// turns, and nothing is held back. Not for a group's member.
    pub merge_wait: Option<Duration>,
    /// Whether only the newest event of each partition is wanted, as by a viewer: one that has
    /// not been pulled when a newer one arrives is passed over, and counted by
    /// [`crate::Consumer::skipped`]. At most one event of a partition waits here, and its data
    /// is read when it is pulled, if it did not come along. The last event of a topic that is
    /// quiet always comes. `start` says where the count begins; with [`When::Last`] of 1, as in
    /// [`ConsumerOptions::newest`], the event that is the last one now is the first that comes. Acknowledging moves the cursor
    /// past what was skipped. Default no. Not with a group, a key or `merge_wait`.
    pub latest: bool,
}

impl DataMode {
    /// Whether batches are to bring their inline data along. With a selector
    /// they need not: only what it selects travels, unless it is to pick here.
    pub(crate) fn brings_inline_data(&self, inline_along: bool) -> bool {
        match self {
            Self::All => true,
            Self::Select(_) => inline_along,
            Self::None => false,
        }
    }
}

impl ConsumerOptions {
    /// Without anything of the program's: the driving thread may come to drop
    /// them, and the end of a callback may take locks that the program holds
    /// while it waits for the driving thread.
    pub(crate) fn without_callbacks(&self) -> Self {
        Self {
            data: DataMode::None,
            allocator: None,
            group: self.group.clone().map(|member| GroupMember {
                on_assigned: None,
                on_revoking: None,
                on_lost: None,
                ..member
            }),
            ..self.clone()
        }
    }
}

impl Default for ConsumerOptions {
    fn default() -> Self {
        Self {
            partitions: None,
            start: Start::Cursor.into(),
            data: DataMode::All,
            allocator: None,
            inline_along: false,
            credit_bytes: 16 << 20,
            acknowledge_interval: Duration::from_millis(50),
            group: None,
            key: None,
            merge_wait: None,
            latest: false,
        }
    }
}

impl ConsumerOptions {
    /// Of the newest events alone, as for a viewer: [`ConsumerOptions::latest`] is set, and the
    /// event that is the last one now is the first that comes.
    pub fn newest() -> Self {
        Self {
            latest: true,
            start: When::Last(1),
            ..Self::default()
        }
    }
}

impl fmt::Debug for ConsumerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsumerOptions")
            .field("partitions", &self.partitions)
            .field("start", &self.start)
            .field("data", &self.data)
            .field("allocator", &self.allocator.is_some())
            .field("inline_along", &self.inline_along)
            .field("credit_bytes", &self.credit_bytes)
            .field("acknowledge_interval", &self.acknowledge_interval)
            .field("group", &self.group)
            .field("key", &self.key)
            .field("merge_wait", &self.merge_wait)
            .field("latest", &self.latest)
            .finish()
    }
}
