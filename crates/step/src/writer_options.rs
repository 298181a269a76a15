//! What a writer can choose, and what its calls give.

use client::{Durability, Position};
use std::time::Duration;
use wire::Step;
use wire::message::{Distribution, WhenFull};

/// How long [`crate::Writer::close`] waits for readers of a stream in memory, if nothing else is said.
pub const CLOSE_TIMEOUT: Duration = Duration::from_secs(60);

/// What a writer can choose. All ranks of a program choose the same.
#[derive(Debug, Clone)]
pub struct WriterOptions {
    /// Name of the writing program: a run that is open is taken up again under the same name
    /// alone. Default `writer`.
    pub name: String,
    /// Which rank of the program this is, from 0.
    pub rank: u32,
    /// How many ranks write.
    pub ranks: u32,
    /// Most committed steps that attached readers have not released; 0, the default, is without a
    /// limit: the topic's retention alone bounds what is kept.
    pub queue_steps: u32,
    /// Most bytes of them; 0, the default, is without a limit.
    pub queue_bytes: u64,
    /// What becomes of a step that does not fit into the queue. Default: its writers wait.
    pub when_full: WhenFull,
    /// How readers are asked to be given steps. It is in the run's record, for them to see, and
    /// binds nobody. Default: all are given each step.
    pub distribution: Distribution,
    /// The first step of a run waits until so many reader groups are attached. Default 0.
    pub readers_min: u32,
    /// How long a rank may be away, its program killed or its network down, before the run is
    /// broken. Default 30 s.
    pub session_timeout: Duration,
    /// How long opening may take, the wait for readers included. Default 10 minutes.
    pub open_timeout: Duration,
    /// How long each wait of [`crate::Writer::end_step`] may take. Default 10 minutes.
    pub timeout: Duration,
    /// How long [`crate::Writer::close`] waits until readers that are attached have released the run's
    /// steps, where these are in the server's memory alone; a stream on disk keeps them, and
    /// nobody is waited for. Default [`CLOSE_TIMEOUT`].
    pub close_timeout: Duration,
    /// What a part must survive, if more than the topic promises.
    pub durability: Option<Durability>,
    /// Bytes of memory kept for the blocks of the next steps. Default 512 MiB.
    pub kept_bytes_max: usize,
    /// Where the data of committed steps is until readers want it. Default: at the server.
    pub keep: Keep,
}

/// Where the data of committed steps is: [`WriterOptions::keep`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Keep {
    /// At the server: it travels when a step is ended.
    #[default]
    Server,
    /// With the rank that wrote it, of a stream in memory: the server has the step's record and table
    /// of blocks, and asks for a part when a reader first reads from it. A part that nobody reads
    /// never travels. It is lost with its rank.
    ///
    /// Memory that was lent is copied when the step is ended. Attached readers keep what they have
    /// not released; steps before are given up, oldest first, when the room is needed, and leave the
    /// stream. A step for which no room can be made waits, or is dropped, as
    /// [`WriterOptions::when_full`] says.
    Writer {
        /// The budget of held parts: most bytes that the rank keeps.
        bytes_max: u64,
    },
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self {
            name: "writer".to_owned(),
            rank: 0,
            ranks: 1,
            queue_steps: 0,
            queue_bytes: 0,
            when_full: WhenFull::Block,
            distribution: Distribution::All,
            readers_min: 0,
            session_timeout: Duration::from_secs(30),
            open_timeout: Duration::from_secs(600),
            timeout: Duration::from_secs(600),
            close_timeout: CLOSE_TIMEOUT,
            durability: None,
            kept_bytes_max: 512 << 20,
            keep: Keep::Server,
        }
    }
}

/// What [`crate::Writer::end_step`] waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Wait {
    /// For nothing but room: what the step has copied is the writer's. Memory that was lent stays
    /// lent until [`crate::Writer::wait`]. An error comes with a later call.
    Begun,
    /// This rank's part is as durable as the topic promises, and memory that was lent is free.
    #[default]
    Accepted,
    /// All ranks' parts are: the step has its record, and readers have it.
    Committed,
}

/// What has become of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepEnded {
    /// Which one.
    pub step: Step,
    /// Why it was dropped; `None` if it is there, or if that is not known yet.
    pub discarded: Option<String>,
    /// Where its record is, in partition 0, if it was waited for.
    pub record: Option<Position>,
}

/// What [`crate::Writer::close`] has left behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Closed {
    /// The stream keeps the run's steps: nobody was waited for.
    Kept,
    /// The readers that were attached have released them.
    Released,
    /// [`WriterOptions::close_timeout`] was over: who has not released which of them, a sentence. They stay in
    /// the server's memory as long as the stream's retention, and that server, keep them.
    Behind(String),
}
