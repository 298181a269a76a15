//! The commands and their arguments.

use crate::connection::{Connection, seconds};
use crate::settings::SettingsArgs;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use topic::Placement;

pub use crate::commands::bench::BenchCommand;
pub use crate::commands::doctor::DoctorArgs;
pub use crate::commands::gateway::GatewayArgs;
pub use crate::commands::launch::LaunchCommand;
pub use crate::commands::nodes::NodesCommand;
pub use crate::commands::pair::PairCommand;
pub use crate::commands::relay::RelayCommand;
pub use crate::commands::serve::ServeArgs;
pub use crate::commands::token::TokenCommand;
pub use crate::commands::up::UpArgs;
pub use crate::commands::workload::WorkloadCommand;

/// Persistent event streaming for high-performance computing and experimental science.
#[derive(Debug, Parser)]
#[command(name = "thalweg", version, about, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a server on a data directory
    ///
    /// Prints one line with the addresses when it is ready, and writes the group file. SIGTERM or
    /// SIGINT drains it: it finishes what it has taken, refuses the rest and closes its data; one
    /// that waits for other servers of its cluster ends, and says for which it waited. A second
    /// signal ends it at once. SIGHUP, SIGUSR1 and SIGUSR2 are reported on standard error and do
    /// nothing else: a server outlives the terminal that it was started from. A service manager
    /// that sets NOTIFY_SOCKET is notified when it serves and when it drains.
    Serve(ServeArgs),
    /// Start the servers of a cluster, on this host or on several
    ///
    /// Returns when all are ready, and leaves them running; logs are in `logs` of the shared directory. Servers that run already
    /// are left as they are. If one of those that are started ends before all are ready, the time is over, or Ctrl-C
    /// comes, those that were started end again.
    Up(UpArgs),
    /// End the servers of a cluster: each is drained, and waited for as long as for an answer
    ///
    /// They are found by the group file. Exits with 1 if one was not reached, and with 4 if one has not ended in time.
    Down(DownArgs),
    /// Start one server for `thalweg up`
    #[command(subcommand, hide = true)]
    Launch(LaunchCommand),
    /// Show the settings that a server would have, or an example of a file with them
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Create, list, describe and delete topics, and add partitions
    #[command(subcommand)]
    Topic(TopicCommand),
    /// Streams of steps: make, list, show, print, follow and replay them
    #[command(subcommand)]
    Steps(StepsCommand),
    /// Append events to a topic
    ///
    /// Without --data, each line of standard input is the metadata of one event. Ends when the
    /// server has acknowledged everything.
    Produce(ProduceArgs),
    /// Read events of a topic, as lines of JSON
    ///
    /// Without --follow it ends at what was the end of the topic when it began. Each event is
    /// acknowledged once its line is written. Ctrl-C ends it cleanly.
    Consume(ConsumeArgs),
    /// Print the last events of a topic, and leave no cursor
    ///
    /// While it runs it reads under the name tail-PID.
    Tail(TailArgs),
    /// Show the newest arrays of a topic as pictures, in a browser on this machine
    ///
    /// Serves one page on loopback and prints its address, with a token that nobody else knows.
    /// While a page is open, and at most five times a second, it reads the newest event; what
    /// comes in between is not read, but counted. Arrays are what `push_array` makes: numbers of
    /// one dimension (a line), of two, or of three of which the last is red, green and blue. Leaves
    /// no cursor. Ctrl-C ends it.
    View(ViewArgs),
    /// Say why a consumer gets nothing, in one sentence, and what to do next
    ///
    /// Without NAME it is about the topic: whether it has events, and whether producers can write.
    Why(WhyArgs),
    /// Say why somebody may not do something, and what would help
    ///
    /// Asks the server as the holder of a token, or as whoever runs it. Exits with 1 if it is not
    /// allowed.
    WhyNot(WhyNotArgs),
    /// Show how far every consumer, group and queue of a topic is behind
    Lag(LagArgs),
    /// Show what a topic has lost, and why
    Gaps(GapsArgs),
    /// List, move and delete the cursors of consumers
    #[command(subcommand)]
    Cursor(CursorCommand),
    /// List and describe the groups of a topic: who owns which partition, and the lag
    #[command(subcommand)]
    Group(GroupCommand),
    /// List and describe the queues of a topic, and look after their dead letters
    #[command(subcommand)]
    Queue(QueueCommand),
    /// Show the state of a server
    Status(StatusArgs),
    /// The nodes of a cluster, and which of them get topics
    #[command(subcommand)]
    Nodes(NodesCommand),
    /// Tokens: credentials of members of a project, within limits
    #[command(subcommand)]
    Token(TokenCommand),
    /// Certificates for services and for other sites, by a one-time code
    #[command(subcommand)]
    Pair(PairCommand),
    /// Take connections for many servers on one port, and start those servers on request
    ///
    /// Connections say by name (SNI) whom they mean. Requests are those of S3M's streaming interface.
    /// Prints one line with the addresses when it is ready. SIGTERM or SIGINT ends it, and its
    /// instances with it, unless --leave-instances is given; a second signal ends it at once.
    Gateway(GatewayArgs),
    /// Connect two sites: one outgoing TLS connection, targets by name, a one-time code
    #[command(subcommand)]
    Relay(RelayCommand),
    /// Compare what producers were promised with what is stored
    ///
    /// Reads every batch of the topics and verifies it, and compares producers' journals, gap
    /// records and cursors with it. Exits with 3 if anything is lost, doubled or unexplained.
    Audit(AuditArgs),
    /// Copy a data directory, also while a server has it, into one that a server can start on
    ///
    /// The copy holds every event that was stored when the backup began, and some that came during it. It
    /// is opened once, and what it holds is printed. It has an id and a token of its own; starting a server on
    /// it is the restore. Topics in memory are in it without their events. The server is not asked and goes
    /// on meanwhile; none may start on the directory during the backup.
    Backup(BackupArgs),
    /// Measure the event path beside the limits of the machine
    ///
    /// Starts a server of its own, on a directory of its own.
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Run the published streaming experiments, and count what came
    ///
    /// A scenario says who sends what to whom; producers and consumers are processes of this host.
    #[command(subcommand)]
    Workload(WorkloadCommand),
    /// Say what this host offers, measured, and how a client here would reach a server
    ///
    /// For each ENDPOINT it tries what a client would try, in its order, and says what would be used, and why; of
    /// a thalweg:// URL, each step to its server, and what its token lets do.
    Doctor(DoctorArgs),
    /// Print completions for a shell
    Completions(CompletionsArgs),
    /// Write manual pages
    Man(ManArgs),
}

#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Show each setting of a server with its value, its unit and where it comes from
    ///
    /// Takes what `thalweg serve` takes, and shows what it would make of it: of flags, environment,
    /// configuration file and defaults.
    Show(ConfigShowArgs),
    /// Print a configuration file with every setting, its help and its default, all commented out
    Example,
}

#[derive(Debug, Args)]
pub struct ConfigShowArgs {
    #[command(flatten)]
    pub settings: SettingsArgs,
    /// Print JSON, one setting a line
    #[arg(long)]
    pub json: bool,
}

/// What every command of a client takes.
#[derive(Debug, Args)]
pub struct Client {
    #[command(flatten)]
    pub connection: Connection,
    /// Print JSON, one value a line
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct DownArgs {
    #[command(flatten)]
    pub client: Client,
}

#[derive(Debug, Subcommand)]
pub enum TopicCommand {
    /// Make a topic
    Create(TopicCreateArgs),
    /// List topics
    ///
    /// Without those that come with another one: TOPIC.dead of its queues, and TOPIC.replies of requests.
    #[command(visible_alias = "ls")]
    List(TopicListArgs),
    /// Show a topic, its definition and its partitions
    #[command(visible_alias = "show")]
    Describe(TopicNameArgs),
    /// Delete a topic with all of its events and cursors
    ///
    /// Asks before it does, unless --yes is given; where it can't ask, it needs that.
    #[command(visible_alias = "rm")]
    Delete(TopicDeleteArgs),
    /// Add partitions to a topic
    AddPartitions(AddPartitionsArgs),
    /// Change the definition of a topic that is in use
    Alter(TopicAlterArgs),
    /// Move a topic to another node of its cluster, while it is in use
    ///
    /// Its events, cursors, groups, queues and named producers go along. Producers and consumers go on by themselves; they wait while
    /// the last events are copied, for some ten milliseconds. Events pass through this command: let it run near the
    /// servers. If it ends early, the topic is where it was, and the next one goes on from there.
    Place(TopicPlaceArgs),
}

/// How partitions are stored.
#[derive(Debug, Args)]
pub struct Storage {
    /// How many partitions
    #[arg(short, long, value_name = "COUNT", default_value_t = 1)]
    pub partitions: u32,
    /// How they are stored: disk or memory
    #[arg(short, long, value_name = "KIND", default_value = "disk")]
    pub storage: String,
    /// Configuration of the storage, as JSON
    #[arg(long, value_name = "JSON", default_value = "")]
    pub storage_config: String,
}

#[derive(Debug, Args)]
pub struct TopicCreateArgs {
    /// The topic's name
    pub name: String,
    #[command(flatten)]
    pub storage: Storage,
    /// The topic's definition, as JSON; see docs/reference/topic-definition.md
    #[arg(long, value_name = "JSON", conflicts_with = "definition_file")]
    pub definition: Option<String>,
    /// A file with the topic's definition
    #[arg(long, value_name = "FILE")]
    pub definition_file: Option<PathBuf>,
    /// What is checked of metadata: its type, or JSON with its settings
    #[arg(long, value_name = "TYPE|JSON")]
    pub validator: Option<String>,
    /// Who chooses an event's partition: its type, or JSON with its settings
    #[arg(long, value_name = "TYPE|JSON")]
    pub partition_selector: Option<String>,
    /// How metadata travels: its type, or JSON with its settings
    #[arg(long, value_name = "TYPE|JSON")]
    pub serializer: Option<String>,
    /// What an acknowledgement survives: memory, written or synced [default: the strongest there is]
    #[arg(long, value_name = "LEVEL")]
    pub durability: Option<String>,
    /// What is kept at most: the topic's size, an age or both, as in 40GB,7d; or JSON with bytes, total_bytes,
    /// age, count [default: everything]
    #[arg(long, value_name = "TEXT|JSON")]
    pub retention: Option<String>,
    /// For how long events are kept at most, as in 7d; the same as an age in --retention
    #[arg(long, value_name = "AGE")]
    pub keep: Option<String>,
    /// Spread the partitions over the nodes: each is a topic by itself, NAME/INDEX, and programs see one
    #[arg(long, conflicts_with = "beside")]
    pub spread: bool,
    /// Make it on servers of the cluster with these labels, as rank=1, host=node7, or the operator's own, with commas between
    #[arg(long, value_name = "LABEL=VALUE", conflicts_with = "beside")]
    pub on: Option<Placement>,
    /// Make it on the shard of this topic [default: the name says which]
    #[arg(long, value_name = "TOPIC")]
    pub beside: Option<String>,
    /// Nothing fails if the topic is there already; its definition stays as it is
    #[arg(long, visible_alias = "exist-ok")]
    pub if_missing: bool,
    #[command(flatten)]
    pub client: Client,
}

#[derive(Debug, Args)]
pub struct TopicListArgs {
    /// List the topics of dead letters and of replies, too
    #[arg(short, long)]
    pub all: bool,
    #[command(flatten)]
    pub client: Client,
}

#[derive(Debug, Args)]
pub struct TopicNameArgs {
    /// The topic's name
    pub name: String,
    #[command(flatten)]
    pub client: Client,
}

#[derive(Debug, Args)]
pub struct TopicDeleteArgs {
    /// The topic's name
    pub name: String,
    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,
    #[command(flatten)]
    pub client: Client,
}

#[derive(Debug, Args)]
pub struct TopicPlaceArgs {
    /// The topic's name; of a spread topic, that of one of its partitions, as in events/2
    pub name: String,
    /// The node that it goes to, by its number (thalweg nodes list)
    #[arg(short, long, value_name = "NODE")]
    pub node: u32,
    #[command(flatten)]
    pub client: Client,
}

#[derive(Debug, Args)]
pub struct AddPartitionsArgs {
    /// The topic's name
    pub name: String,
    #[command(flatten)]
    pub storage: Storage,
    /// Make them on servers of the cluster with these labels, as rank=1; for a topic that is spread
    #[arg(long, value_name = "LABEL=VALUE")]
    pub on: Option<Placement>,
    #[command(flatten)]
    pub client: Client,
}

#[derive(Debug, Args)]
pub struct TopicAlterArgs {
    /// The topic's name
    pub name: String,
    /// What is checked of metadata: its type, or JSON with its settings
    #[arg(long, value_name = "TYPE|JSON")]
    pub validator: Option<String>,
    /// What is kept at most, in place of all limits before: the topic's size, an age or both, as in
    /// 40GB,7d; or JSON with bytes, total_bytes, age, count; {} is everything
    #[arg(long, value_name = "TEXT|JSON")]
    pub retention: Option<String>,
    /// For how long events are kept at most, as in 7d; alone, other limits stay
    #[arg(long, value_name = "AGE")]
    pub keep: Option<String>,
    /// What these consumers have not acknowledged is kept; an empty list is nobody
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub keep_until_acknowledged: Option<Vec<String>>,
    /// What happens when those consumers are behind and the retention would be exceeded: its type, or
    /// JSON with its settings
    #[arg(long, value_name = "TYPE|JSON")]
    pub overflow: Option<String>,
    /// Longest metadata of an event
    #[arg(long, value_name = "BYTES")]
    pub metadata_bytes_max: Option<u64>,
    #[command(flatten)]
    pub client: Client,
}

#[derive(Debug, Subcommand)]
pub enum StepsCommand {
    /// Make a stream: a topic of kind steps
    ///
    /// Partition 0 is for records of steps, the others for the data of ranks.
    Create(StepsCreateArgs),
    /// List the runs of a stream, and how each is: open, closed, or broken and why
    #[command(visible_alias = "ls")]
    List(StepsListArgs),
    /// Show the variables and attributes of a step
    #[command(visible_alias = "describe")]
    Show(StepsShowArgs),
    /// Print a variable, or a box of it, as text: a row of the last dimension on a line
    ///
    /// Only what is selected is read, a piece after the other. Where nobody put an element it is 0,
    /// and a note on standard error says how many there are.
    Cat(StepsCatArgs),
    /// Follow steps as they are committed, a line each, to the end of the run
    ///
    /// Begins with the run that is open, or with the next one. Exits with 1 if the run broke. While
    /// it runs it is a reader of the stream as any other: writers that wait for readers see it. Without
    /// --name it leaves no position. Ctrl-C ends it cleanly.
    Tail(StepsTailArgs),
    /// Record a run into a directory in the Zarr format, version 3, which xarray and others open
    ///
    /// An array for each variable, with the step as its first dimension, and the numbers of the steps as
    /// the coordinate `step`. A run that is being written is followed to its end, for which the recorder
    /// is a reader as any other. Ctrl-C ends it cleanly, behind a whole step. Exits with 1 if the run broke.
    Record(StepsRecordArgs),
    /// Write a stored run into a stream once more, as a run of its own with the same blocks
    ///
    /// Acts for all ranks of the writer. Steps are numbered anew, from 0. Ctrl-C ends it behind the
    /// step that is being written; the run is left unclosed then, and becomes broken.
    Replay(StepsReplayArgs),
}

#[derive(Debug, Args)]
pub struct StepsCreateArgs {
    /// The stream's name
    pub name: String,
    /// How many partitions for the data of ranks: as many as disks shall share
    #[arg(short, long, value_name = "COUNT", default_value_t = 1)]
    pub parts: u32,
    /// How they are stored: disk or memory
    #[arg(short, long, value_name = "KIND", default_value = "disk")]
    pub storage: String,
    /// Configuration of the storage, as JSON
    #[arg(long, value_name = "JSON", default_value = "")]
    pub storage_config: String,
    /// What a committed step survives: memory, written or synced [default: the strongest that the storage can give]
    #[arg(long, value_name = "LEVEL")]
    pub durability: Option<wire::Durability>,
    /// What is kept at most: the stream's size, an age or both, as in 40GB,7d; or JSON with bytes, total_bytes,
    /// age, count [default: everything]
    #[arg(long, value_name = "TEXT|JSON")]
    pub retention: Option<String>,
    /// For how long steps are kept at most, as in 7d; the same as an age in --retention
    #[arg(long, value_name = "AGE")]
    pub keep: Option<String>,
    /// Nothing fails if the stream is there already; its definition stays as it is
    #[arg(long, visible_alias = "exist-ok")]
    pub if_missing: bool,
    #[command(flatten)]
    pub client: Client,
}

#[derive(Debug, Args)]
pub struct StepsListArgs {
    /// The stream
    pub stream: String,
    #[command(flatten)]
    pub client: Client,
}

/// Which step of a stream.
#[derive(Debug, Args)]
pub struct ChosenStep {
    /// The run [default: the newest with a step]
    #[arg(short, long, value_name = "NUMBER")]
    pub run: Option<u64>,
    /// The step of the run [default: the newest]
    #[arg(long, value_name = "NUMBER")]
    pub step: Option<u64>,
}

#[derive(Debug, Args)]
pub struct StepsShowArgs {
    /// The stream
    pub stream: String,
    #[command(flatten)]
    pub chosen: ChosenStep,
    #[command(flatten)]
    pub client: Client,
}

#[derive(Debug, Args)]
pub struct StepsCatArgs {
    /// The stream
    pub stream: String,
    /// The variable
    pub variable: String,
    #[command(flatten)]
    pub chosen: ChosenStep,
    /// What to print along each dimension, as NumPy slices: 0:10,5:6 or :,3,::2 or -1,:
    #[arg(
        short = 'b',
        long = "box",
        value_name = "SLICES",
        allow_hyphen_values = true
    )]
    pub box_: Option<String>,
    /// Only this block, as it was put; --box counts from its beginning
    #[arg(long, value_name = "NUMBER")]
    pub block: Option<u64>,
    /// Write the bytes as they are stored, in row-major order
    #[arg(long, conflicts_with = "json")]
    pub raw: bool,
    #[command(flatten)]
    pub client: Client,
}

#[derive(Debug, Args)]
pub struct StepsTailArgs {
    /// The stream
    pub stream: String,
    /// The reader's name, by which its position is kept: it goes on there
    #[arg(short, long)]
    pub name: Option<String>,
    /// Begin with this run, and not with the one that is open
    #[arg(short, long, value_name = "NUMBER", conflicts_with = "name")]
    pub run: Option<u64>,
    #[command(flatten)]
    pub client: Client,
}

#[derive(Debug, Args)]
pub struct StepsRecordArgs {
    /// The stream
    pub stream: String,
    /// The directory, which is made; one that is there must be empty
    pub out: PathBuf,
    /// The run [default: the newest, or the next one if there is none]
    #[arg(short, long, value_name = "NUMBER")]
    pub run: Option<u64>,
    #[command(flatten)]
    pub client: Client,
}

#[derive(Debug, Args)]
pub struct StepsReplayArgs {
    /// The stream
    pub stream: String,
    /// The stream to write into, which is there
    pub into: String,
    /// The run [default: the newest with a step]
    #[arg(short, long, value_name = "NUMBER")]
    pub run: Option<u64>,
    /// How fast: 1x as it was written, 10x, 0.5x, max for as fast as it goes, or step for a step at each line
    /// of standard input, of which Enter makes one
    #[arg(long, value_name = "RATE", default_value = "1x", value_parser = rate)]
    pub rate: Rate,
    /// Name of the writer [default: replay-PID]
    #[arg(long, value_name = "NAME")]
    pub writer: Option<String>,
    #[command(flatten)]
    pub client: Client,
}

/// How fast a run is replayed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rate {
    /// So many times as fast as it was written.
    Times(f64),
    /// As fast as it goes.
    Max,
    /// A step for each line of standard input.
    Step,
}

fn rate(text: &str) -> Result<Rate, String> {
    if text == "max" {
        return Ok(Rate::Max);
    }
    if text == "step" {
        return Ok(Rate::Step);
    }
    let times = text.strip_suffix('x').unwrap_or(text).parse::<f64>();
    match times {
        Ok(times) if times > 0.0 && times.is_finite() => Ok(Rate::Times(times)),
        _ => Err("must be a factor such as 1x or 10x, or max, or step".to_owned()),
    }
}

/// What standard input is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Input {
    /// Each line is the metadata of an event
    Lines,
    /// Each line is an event as JSON, with the fields that `consume` prints
    Events,
    /// All of it, whatever bytes it has, is the metadata of one event
    Whole,
}

#[derive(Debug, Args)]
pub struct ProduceArgs {
    /// The topic
    pub topic: String,
    /// What standard input is
    #[arg(short, long, value_enum, default_value_t = Input::Lines, conflicts_with = "data")]
    pub input: Input,
    /// Make one event of each file, with the file as data (`-` is standard input)
    #[arg(short, long, value_name = "FILE", num_args = 1..)]
    pub data: Vec<PathBuf>,
    /// The metadata of the files of --data: one for all, or one each
    /// [default: {"file": NAME, "bytes": LENGTH}]
    #[arg(short, long, value_name = "TEXT", requires = "data")]
    pub metadata: Vec<String>,
    /// The key of every event
    #[arg(short, long)]
    pub key: Option<String>,
    /// The partition of every event
    #[arg(short, long, value_name = "INDEX")]
    pub partition: Option<u32>,
    /// A name for the producer: it keeps its identity and fences its predecessor
    #[arg(long)]
    pub name: Option<String>,
    /// What an acknowledgement is to survive, if more than the topic promises
    #[arg(long, value_name = "LEVEL")]
    pub durability: Option<String>,
    /// A file to append a record of every acknowledged batch to, for `audit`
    #[arg(long, value_name = "FILE")]
    pub journal: Option<PathBuf>,
    /// The most events in a batch
    #[arg(long, value_name = "COUNT")]
    pub batch_count: Option<u32>,
    /// The most bytes in a batch
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 20)]
    pub batch_bytes: u32,
    /// How long a batch waits for more events, milliseconds [default: until the last is stored]
    #[arg(long, value_name = "MS")]
    pub linger_ms: Option<u32>,
    /// Print a line of JSON for each event with its id
    #[arg(long)]
    pub ids: bool,
    #[command(flatten)]
    pub client: Client,
}

#[derive(Debug, Args)]
pub struct ConsumeArgs {
    /// The topic
    pub topic: String,
    /// The consumer's name, to which its cursors belong
    #[arg(short, long)]
    pub name: String,
    /// Read these partitions only
    #[arg(short, long, value_name = "INDEX", value_delimiter = ',')]
    pub partition: Vec<u32>,
    /// Where to begin: beginning, latest, an offset, -10 for the last ten events of each partition, a
    /// time such as 2026-01-31, "2026-01-31 14:00" or 2026-01-31T14:00:00Z, or so long ago as -90s, -15m,
    /// -2h, -7d [default: at the cursor, or at the beginning without one]
    #[arg(long, value_name = "WHERE", allow_hyphen_values = true)]
    pub start: Option<String>,
    /// Write each event's data to a file in this directory: PARTITION-INCARNATION-OFFSET.data
    #[arg(short, long, value_name = "DIR", conflicts_with = "data_base64")]
    pub data_dir: Option<PathBuf>,
    /// Print each event's data in base64
    #[arg(long)]
    pub data_base64: bool,
    /// Read only these bytes of each event's data; nothing else travels
    #[arg(long, value_name = "OFFSET:LENGTH", value_parser = data_range)]
    pub data_range: Option<DataRange>,
    /// Print only the metadata of each event, as it is, and a line break
    #[arg(long)]
    pub plain: bool,
    /// End after this many events
    #[arg(short, long, value_name = "COUNT")]
    pub max: Option<u64>,
    /// Go on when the end is reached, until Ctrl-C
    #[arg(short, long)]
    pub follow: bool,
    /// How long the server may be away, seconds; then fail [default: for ever, and notes]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub reconnect_timeout: Option<f64>,
    /// Leave the cursors where they are
    #[arg(long)]
    pub no_ack: bool,
    #[command(flatten)]
    pub client: Client,
}

/// Part of an event's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataRange {
    /// The first byte.
    pub offset: u64,
    /// How many.
    pub bytes: u64,
}

fn data_range(text: &str) -> Result<DataRange, String> {
    let parse = || {
        let (offset, bytes) = text.split_once(':')?;
        Some(DataRange {
            offset: offset.parse().ok()?,
            bytes: bytes.parse().ok()?,
        })
    };
    parse().ok_or_else(|| "must be OFFSET:LENGTH, in bytes".to_owned())
}

#[derive(Debug, Args)]
pub struct TailArgs {
    /// The topic
    pub topic: String,
    /// How many of the last events of each partition
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 10)]
    pub count: u64,
    /// Go on when the end is reached, until Ctrl-C
    #[arg(short, long)]
    pub follow: bool,
    /// Read these partitions only
    #[arg(short, long, value_name = "INDEX", value_delimiter = ',')]
    pub partition: Vec<u32>,
    /// Print only the metadata of each event, as it is, and a line break
    #[arg(long)]
    pub plain: bool,
    /// Print each event's data in base64
    #[arg(long)]
    pub data_base64: bool,
    /// How long the server may be away, seconds; then fail [default: for ever, and notes]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub reconnect_timeout: Option<f64>,
    #[command(flatten)]
    pub client: Client,
}

#[derive(Debug, Args)]
pub struct ViewArgs {
    /// The topic
    pub topic: String,
    /// The port of the page on 127.0.0.1 [default: one that is free]
    #[arg(
        long,
        value_name = "PORT",
        default_value_t = 0,
        hide_default_value = true
    )]
    pub port: u16,
    #[command(flatten)]
    pub client: Client,
}

#[derive(Debug, Args)]
pub struct WhyArgs {
    /// The topic
    pub topic: String,
    /// The consumer, group or queue that gets nothing
    pub name: Option<String>,
    #[command(flatten)]
    pub client: Client,
}

#[derive(Debug, Args)]
pub struct WhyNotArgs {
    /// What is to be done: read, write, manage or admin
    pub verb: access::Verb,
    /// A topic of the namespace, or NAMESPACE/TOPIC; without one, the server
    pub name: Option<String>,
    /// A file with a token, to ask as its holder
    #[arg(long = "as", value_name = "FILE")]
    pub holder: Option<PathBuf>,
    #[command(flatten)]
    pub client: Client,
}

#[derive(Debug, Args)]
pub struct LagArgs {
    /// The topic
    pub topic: String,
    #[command(flatten)]
    pub client: Client,
}

#[derive(Debug, Args)]
pub struct GapsArgs {
    /// The topic
    pub topic: String,
    #[command(flatten)]
    pub client: Client,
}

#[derive(Debug, Subcommand)]
pub enum CursorCommand {
    /// Show where consumers stand
    #[command(visible_alias = "ls")]
    List(CursorListArgs),
    /// Move a consumer's cursors, be it backwards
    Seek(CursorSeekArgs),
    /// Forget a consumer's cursors
    #[command(visible_alias = "rm")]
    Delete(CursorDeleteArgs),
}

#[derive(Debug, Args)]
pub struct CursorListArgs {
    /// The topic
    pub topic: String,
    /// Only this consumer
    #[arg(short, long)]
    pub name: Option<String>,
    #[command(flatten)]
    pub client: Client,
}

#[derive(Debug, Args)]
pub struct CursorSeekArgs {
    /// The topic
    pub topic: String,
    /// The consumer
    #[arg(short, long)]
    pub name: String,
    /// Where to: beginning, latest, an offset, -10 for ten events before the end of each partition, a time
    /// such as "2026-01-31 14:00" or 2026-01-31T14:00:00Z, or so long ago as -90s, -15m, -2h, -7d
    #[arg(long, value_name = "WHERE", allow_hyphen_values = true)]
    pub to: String,
    /// Only these partitions
    #[arg(short, long, value_name = "INDEX", value_delimiter = ',')]
    pub partition: Vec<u32>,
    #[command(flatten)]
    pub client: Client,
}

#[derive(Debug, Args)]
pub struct CursorDeleteArgs {
    /// The topic
    pub topic: String,
    /// The consumer
    #[arg(short, long)]
    pub name: String,
    #[command(flatten)]
    pub client: Client,
}

#[derive(Debug, Subcommand)]
pub enum GroupCommand {
    /// Show the groups of a topic
    #[command(visible_alias = "ls")]
    List(SharedListArgs),
    /// Show a group's options, partitions and members
    #[command(visible_alias = "show")]
    Describe(SharedArgs),
    /// Forget a group without members, with its positions
    #[command(visible_alias = "rm")]
    Delete(SharedArgs),
}

#[derive(Debug, Subcommand)]
pub enum QueueCommand {
    /// Show the queues of a topic
    #[command(visible_alias = "ls")]
    List(SharedListArgs),
    /// Show a queue's options, partitions and members
    #[command(visible_alias = "show")]
    Describe(SharedArgs),
    /// Forget a queue without members, with all that was settled
    #[command(visible_alias = "rm")]
    Delete(SharedArgs),
    /// Work off a queue: print its events as lines of JSON, until nothing of it is left
    ///
    /// Each event is acknowledged once its line is written. Ends when the server says that nothing
    /// of the queue is ready, leased to anybody, delayed or on its way to the dead letters, and
    /// that held for the idle time; an outage does not end it. A queue that is not known is made.
    /// Ctrl-C ends it cleanly.
    Drain(DrainArgs),
    /// Show a queue's dead letters: which event, how often it was delivered, and why it is dead
    Dead(SharedArgs),
    /// Put a queue's dead letters into its topic again, for all consumers of the topic
    Redrive(RedriveArgs),
}

#[derive(Debug, Args)]
pub struct SharedListArgs {
    /// The topic
    pub topic: String,
    #[command(flatten)]
    pub client: Client,
}

#[derive(Debug, Args)]
pub struct SharedArgs {
    /// The topic
    pub topic: String,
    /// The group or queue
    #[arg(short, long)]
    pub name: String,
    #[command(flatten)]
    pub client: Client,
}

#[derive(Debug, Args)]
pub struct DrainArgs {
    /// The topic
    pub topic: String,
    /// The queue
    #[arg(short, long)]
    pub name: String,
    /// For how long nothing has to be left of the queue, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    pub idle: f64,
    /// End after this many events
    #[arg(short, long, value_name = "COUNT")]
    pub max: Option<u64>,
    /// Print only the metadata of each event, as it is, and a line break
    #[arg(long)]
    pub plain: bool,
    /// Print each event's data in base64
    #[arg(long)]
    pub data_base64: bool,
    #[command(flatten)]
    pub client: Client,
}

#[derive(Debug, Args)]
pub struct RedriveArgs {
    /// The topic
    pub topic: String,
    /// The queue
    #[arg(short, long)]
    pub name: String,
    /// At most so many [default: all that are there]
    #[arg(long, value_name = "COUNT")]
    pub max: Option<u64>,
    #[command(flatten)]
    pub client: Client,
}

#[derive(Debug, Args)]
pub struct StatusArgs {
    /// How long to watch what moves, seconds; 0 tells no rates [default: 1, and 0 with --json]
    #[arg(long, value_name = "SECONDS")]
    pub interval: Option<f64>,
    /// Show all that the server says, behind the tables
    #[arg(short, long)]
    pub verbose: bool,
    #[command(flatten)]
    pub client: Client,
}

#[derive(Debug, Args)]
pub struct AuditArgs {
    /// The topics to audit [default: all]
    pub topics: Vec<String>,
    /// Producers' journals, and directories with them
    #[arg(short, long, value_name = "PATH", num_args = 1..)]
    pub journal: Vec<PathBuf>,
    #[command(flatten)]
    pub client: Client,
}

#[derive(Debug, Args)]
pub struct BackupArgs {
    /// The data directory to copy
    pub from: PathBuf,
    /// Where to: a directory that is empty or not there
    pub to: PathBuf,
    /// Print JSON: a line for each topic, and one for the whole
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell
    pub shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub struct ManArgs {
    /// Where to write the pages
    pub directory: PathBuf,
}
