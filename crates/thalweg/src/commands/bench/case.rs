//! What is measured, as the command line says it.

use super::document::Document;
use super::job::{Load, Pieces};
use crate::failure::Failure;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use wire::Durability;

/// What a topic is taken to hold that keeps what is not settled, while members work.
const UNSETTLED_BYTES: u64 = 1 << 30;

/// What clients do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// From the clients to the server, to the last acknowledgement.
    Produce,
    /// From the server's history to the clients.
    Consume,
    /// Both at once: consumers tail live producers.
    Pipeline,
    /// One event at a time, from one process through the server to another.
    Latency,
    /// From the server to the members of a queue, each event acknowledged.
    Queue,
    /// Requests to the members of a queue, and their replies.
    Request,
    /// From one client to all others, whose replies are gathered.
    Broadcast,
}

impl Work {
    /// For people and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Produce => "produce",
            Self::Consume => "consume",
            Self::Pipeline => "pipeline",
            Self::Latency => "latency",
            Self::Queue => "queue",
            Self::Request => "request",
            Self::Broadcast => "broadcast",
        }
    }

    /// Whether single events, requests or broadcasts are what is looked at.
    pub fn is_about_delays(self) -> bool {
        matches!(self, Self::Latency | Self::Request)
    }
}

/// Sets of cases that others have published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Preset {
    /// Batches of 1,000, a flush every 10,000 events, a million events of
    /// warm-up, then a million of 256 B to 4 KB without data, and a thousandth as many of 1 KB
    /// with 10 MB of data
    MofkaPaper,
}

/// How events look, how many there are, and how they travel.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Benchmark")]
pub struct LoadArgs {
    /// Bytes of metadata of an event
    #[arg(
        long,
        value_name = "BYTES",
        default_value_t = 1000,
        alias = "event-bytes"
    )]
    pub metadata_bytes: usize,
    /// Bytes of data of an event
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    pub data_bytes: usize,
    /// Producers have their data in ordinary memory, not where the transport sends it with fewest
    /// copies
    #[arg(long)]
    pub data_anywhere: bool,
    /// Events in a repetition, over all clients [default: 1000000; for latency and request 20000,
    /// for broadcast 20]
    #[arg(long, value_name = "COUNT")]
    pub events: Option<u64>,
    /// Events that are moved before the measured ones in every repetition
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    pub warmup: u64,
    /// Client processes on each side; partitions are assigned to them in turn
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    pub clients: usize,
    /// Topics
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    pub topics: usize,
    /// Partitions of each topic
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    pub partitions: u32,
    /// How a partition is stored: disk or memory
    #[arg(long, value_name = "KIND", default_value = "disk")]
    pub storage: String,
    /// What an acknowledgement survives [default: the strongest that the storage can give]
    #[arg(long, value_name = "LEVEL")]
    pub durability: Option<Durability>,
    /// What a topic keeps: older events leave, and their memory or files are used again for newer
    /// ones. With a warm-up of several times this, a stream in its steady state is measured, and
    /// without, one that fills fresh memory. What a queue has not settled stays in any case
    /// [default: everything]
    #[arg(long, value_name = "BYTES")]
    pub retention_bytes: Option<u64>,
    /// queue, request: the topic keeps what is not settled, and nothing else: the files of what
    /// is are written again
    #[arg(long, conflicts_with = "retention_bytes")]
    pub keep_unsettled: bool,
    /// queue --live: producers wait while so many bytes are not settled, and the files of what is
    /// settled are written again. With a warm-up of several times this, a queue in its steady
    /// state is measured
    #[arg(long, value_name = "BYTES", requires = "live",
          conflicts_with_all = ["retention_bytes", "keep_unsettled"])]
    pub backlog_bytes: Option<u64>,
    /// The most bytes in a batch
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 20)]
    pub batch_bytes: u32,
    /// The most events in a batch [default: no limit]
    #[arg(long, value_name = "COUNT")]
    pub batch_count: Option<u32>,
    /// How long a batch that is not full waits, microseconds [default: while one is under way]
    #[arg(long, value_name = "MICROSECONDS")]
    pub linger_us: Option<u64>,
    /// Wait for all acknowledgements after so many events of a client [default: at the end]
    #[arg(long, value_name = "COUNT")]
    pub flush_every: Option<u64>,
    /// Events for one partition before the next has its turn
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    pub burst: u64,
    /// Consumers select pieces of the data of so many bytes
    #[arg(long, value_name = "BYTES", requires = "piece_every")]
    pub piece_bytes: Option<u64>,
    /// From the start of one selected piece to the start of the next
    #[arg(long, value_name = "BYTES", requires = "piece_bytes")]
    pub piece_every: Option<u64>,
    /// Metadata are JSON documents [default: bytes without a meaning]
    #[arg(long, value_enum, value_name = "KIND")]
    pub document: Option<Document>,
    /// Topics check that metadata is JSON; how fast that goes by itself is measured beside it
    #[arg(long, requires = "document")]
    pub check: bool,
    /// queue: producers push while the members work, instead of before
    #[arg(long)]
    pub live: bool,
    /// queue, request: events that a member has unsettled at most
    #[arg(long, value_name = "COUNT", default_value_t = 256)]
    pub prefetch: u32,
    /// request, broadcast: how many of a client are under way at once
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    pub in_flight: usize,
    /// A published set of cases, in place of sizes, counts and batches
    #[arg(long, value_enum)]
    pub preset: Option<Preset>,
    /// Factor on the counts of a preset
    #[arg(
        long,
        value_name = "FACTOR",
        default_value_t = 1.0,
        requires = "preset"
    )]
    pub scale: f64,
}

/// One case.
#[derive(Debug, Clone)]
pub struct Case {
    pub work: Work,
    pub load: LoadArgs,
    /// Events in a repetition.
    pub events: u64,
}

impl Case {
    /// Checks what cannot be right.
    pub fn new(work: Work, load: LoadArgs) -> Result<Self, Failure> {
        let wrong = |what: &str| Err(Failure::usage("bench", what));
        let events = load.events.unwrap_or(match work {
            Work::Latency | Work::Request => 20_000,
            Work::Broadcast => 20,
            _ => 1_000_000,
        });
        let counts = [
            events,
            load.clients as u64,
            load.topics as u64,
            load.partitions.into(),
            load.burst,
            load.flush_every.unwrap_or(1),
            load.batch_count.unwrap_or(1).into(),
            load.prefetch.into(),
            load.in_flight as u64,
        ];
        if counts.contains(&0) {
            return wrong("counts begin at 1");
        }
        if load.metadata_bytes == 0 && load.data_bytes == 0 {
            return wrong("an event has to have some bytes");
        }
        let stamped = matches!(work, Work::Pipeline | Work::Latency);
        if stamped && load.metadata_bytes < 8 {
            return wrong("to tell delays, events need 8 bytes of metadata");
        }
        if work == Work::Latency && load.clients * load.topics * load.partitions as usize > 1 {
            return wrong("latency is measured with one sender, one receiver and one partition");
        }
        if work == Work::Latency && load.data_bytes > 0 {
            return wrong("latency is measured with metadata alone");
        }
        let is_shared = matches!(work, Work::Queue | Work::Request | Work::Broadcast);
        if is_shared && load.topics > 1 {
            return wrong("queues, requests and broadcasts are measured with one topic");
        }
        if work == Work::Broadcast && load.partitions > 1 {
            return wrong("broadcasts are measured with one partition");
        }
        let is_filled = work == Work::Queue && !load.live;
        if (is_filled || work == Work::Broadcast) && load.warmup > 0 {
            return wrong("what lies ready, and broadcasts, are measured without a warm-up");
        }
        if 0 < load.warmup && load.warmup < load.clients as u64 && work == Work::Queue {
            return wrong("every client needs an event of the warm-up");
        }
        let is_settled = matches!(work, Work::Queue | Work::Request);
        if load.keep_unsettled && !is_settled {
            return wrong("--keep-unsettled is for queues and requests");
        }
        if work != Work::Queue && load.live {
            return wrong("--live is for queues");
        }
        if is_shared && load.piece_bytes.is_some() {
            return wrong("pieces are selected by independent consumers");
        }
        let (piece, every) = (load.piece_bytes, load.piece_every);
        if piece == Some(0) || piece.zip(every).is_some_and(|(piece, every)| every < piece) {
            return wrong("pieces have bytes and do not overlap");
        }
        if load.retention_bytes.is_some() && work == Work::Consume {
            return wrong("history is measured of topics that keep everything");
        }
        if let Some(document) = load.document {
            if stamped {
                return wrong("documents have no space for the time of their push");
            }
            document.write(load.metadata_bytes, 0)?;
        }
        let lanes = load.topics as u64 * u64::from(load.partitions);
        let pushing = match work {
            Work::Broadcast => 1,
            _ => load.clients as u64,
        };
        if events < lanes.max(pushing) {
            return wrong("every client and every partition needs an event");
        }
        Ok(Self { work, load, events })
    }

    /// The cases of a command: one, or those of a preset.
    pub fn all(work: Work, load: &LoadArgs) -> Result<Vec<Self>, Failure> {
        let Some(Preset::MofkaPaper) = load.preset else {
            return Ok(vec![Self::new(work, load.clone())?]);
        };
        if !(load.scale > 0.0 && load.scale <= 1000.0) {
            return Err(Failure::usage(
                "bench",
                "a scale is above 0 and at most 1000",
            ));
        }
        let count = |full: f64| ((full * load.scale).round() as u64).max(load.clients as u64);
        let base = LoadArgs {
            batch_count: Some(1000),
            batch_bytes: 16 << 20,
            flush_every: Some(10_000),
            ..load.clone()
        };
        let mut cases = Vec::new();
        for metadata_bytes in [256, 512, 1024, 2048, 4096] {
            cases.push(LoadArgs {
                metadata_bytes,
                data_bytes: 0,
                warmup: count(1e6),
                events: Some(count(1e6)),
                ..base.clone()
            });
        }
        cases.push(LoadArgs {
            metadata_bytes: 1024,
            data_bytes: 10_000_000,
            warmup: count(1e3) / 10,
            events: Some(count(1e3)),
            ..base
        });
        cases
            .into_iter()
            .map(|load| Self::new(work, load))
            .collect()
    }

    /// Bytes of metadata and data that are kept of a repetition.
    pub fn stored_bytes(&self) -> u64 {
        let load = &self.load;
        let event = (load.metadata_bytes + load.data_bytes) as u64;
        let all = (self.events + load.warmup) * event;
        if load.keep_unsettled && load.live {
            return all.min(UNSETTLED_BYTES);
        }
        let kept = load.retention_bytes.or(load.backlog_bytes);
        all.min(kept.unwrap_or(u64::MAX))
    }

    /// Bytes that are moved while it is measured.
    pub fn measured_bytes(&self) -> u64 {
        let load = &self.load;
        let each = match self.work {
            Work::Broadcast => load.clients as u64,
            _ => 1,
        };
        self.events * each * (load.metadata_bytes + load.data_bytes) as u64
    }

    /// Which parts of the data consumers want.
    pub fn pieces(&self) -> Option<Pieces> {
        let (bytes, every) = self.load.piece_bytes.zip(self.load.piece_every)?;
        Some(Pieces { bytes, every })
    }

    /// What clients are told of it.
    pub fn client_load(&self) -> Load {
        let load = &self.load;
        Load {
            metadata_bytes: load.metadata_bytes,
            data_bytes: load.data_bytes,
            batch_bytes: load.batch_bytes,
            batch_count: load.batch_count,
            linger_us: load.linger_us,
            flush_every: load.flush_every,
            partitions: load.partitions,
            burst: load.burst,
            pieces: self.pieces(),
            document: load.document,
            data_anywhere: load.data_anywhere,
            stamped: matches!(self.work, Work::Pipeline | Work::Latency),
            prefetch: load.prefetch,
            in_flight: load.in_flight,
            clients: load.clients,
        }
    }

    /// How many client processes it needs.
    pub fn processes(&self) -> usize {
        match self.work {
            Work::Produce | Work::Consume => self.load.clients,
            Work::Queue if !self.load.live => self.load.clients,
            Work::Pipeline | Work::Latency | Work::Queue | Work::Request => 2 * self.load.clients,
            Work::Broadcast => 1 + self.load.clients,
        }
    }

    /// The durability, for people and in JSON.
    pub fn durability(&self) -> String {
        let level = self.load.durability;
        level.map_or("strongest".to_owned(), |level| level.to_string())
    }

    /// Its settings, as `docs/reference/bench-json.md` has them.
    pub fn json(&self) -> Value {
        let load = &self.load;
        json!({
            "work": self.work.name(),
            "storage": load.storage,
            "durability": self.durability(),
            "metadata_bytes": load.metadata_bytes,
            "data_bytes": load.data_bytes,
            "data_anywhere": load.data_anywhere,
            "events": self.events,
            "warmup": load.warmup,
            "clients": load.clients,
            "topics": load.topics,
            "partitions": load.partitions,
            "retention_bytes": load.retention_bytes,
            "keep_unsettled": load.keep_unsettled,
            "backlog_bytes": load.backlog_bytes,
            "batch_bytes": load.batch_bytes,
            "batch_count": load.batch_count,
            "linger_us": load.linger_us,
            "flush_every": load.flush_every,
            "burst": load.burst,
            "piece_bytes": load.piece_bytes,
            "piece_every": load.piece_every,
            "document": load.document.map(Document::name),
            "check": load.check,
            "live": load.live,
            "prefetch": load.prefetch,
            "in_flight": load.in_flight,
        })
    }

    /// Its settings in a line.
    pub fn title(&self) -> String {
        let load = &self.load;
        let mut title = format!(
            "{} {} x {} B",
            self.work.name(),
            self.events,
            load.metadata_bytes
        );
        if load.data_bytes > 0 {
            title.push_str(&format!(" + {} B of data", load.data_bytes));
            if load.data_anywhere {
                title.push_str(" from anywhere");
            }
        }
        if let Some(pieces) = self.pieces() {
            title.push_str(&format!(
                ", {} B of every {} selected",
                pieces.bytes, pieces.every
            ));
        }
        if let Some(document) = load.document {
            let checked = if load.check { ", checked" } else { "" };
            title.push_str(&format!(", JSON of {}{checked}", document.name()));
        }
        title.push_str(&format!(
            ", {} storage, {}",
            load.storage,
            self.durability()
        ));
        for (count, name) in [
            (load.clients, "clients"),
            (load.topics, "topics"),
            (load.partitions as usize, "partitions"),
        ] {
            if count > 1 {
                title.push_str(&format!(", {count} {name}"));
            }
        }
        match self.work {
            Work::Queue if load.live => title.push_str(", pushed meanwhile"),
            Work::Request | Work::Broadcast => {
                title.push_str(&format!(", {} in flight", load.in_flight));
            }
            _ => {}
        }
        if matches!(self.work, Work::Queue | Work::Request) {
            title.push_str(&format!(", prefetch {}", load.prefetch));
        }
        if let Some(bytes) = load.retention_bytes {
            title.push_str(&format!(", {} MiB kept", bytes >> 20));
        }
        if load.keep_unsettled {
            title.push_str(", what is unsettled kept");
        }
        if let Some(bytes) = load.backlog_bytes {
            title.push_str(&format!(", {} MiB unsettled at most", bytes >> 20));
        }
        if load.warmup > 0 {
            title.push_str(&format!(", after {} more", load.warmup));
        }
        title
    }
}
