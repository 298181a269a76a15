//! How far a link is, for people and monitors.

use std::time::Duration;

/// What a link does at the moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkState {
    /// It asks both servers what there is.
    Opening,
    /// It copies, or waits for events.
    Copying,
    /// It waits for something that keeps it, in words.
    Waiting(String),
}

/// How far the copies are behind their sources.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lag {
    /// Events that are visible at the source and not durable at the copy.
    pub events: u64,
    /// About how many bytes that is, by the mean of what the source has.
    pub bytes: u64,
    /// How old the newest durable event of a copy that is behind is, at most.
    pub age: Duration,
}

/// A look at a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// What it does.
    pub state: LinkState,
    /// Events that this process has copied.
    pub events: u64,
    /// Their bytes, data included.
    pub bytes: u64,
    /// Bytes a second, since the last look.
    pub rate: u64,
    /// Events that the sources had lost before they came over.
    pub skipped: u64,
    /// How often it had to begin anew.
    pub cuts: u64,
    /// How far it is behind; `None` until both servers have said where they are.
    pub lag: Option<Lag>,
    /// What a person should know, once.
    pub notes: Vec<String>,
}
