//! How the driver of a connection learns that there is something to do.

use std::sync::Arc;

/// Notifies the driver of a link, from any thread, that it is to be polled.
pub type Notify = Arc<dyn Fn() + Send + Sync>;

/// What the operating system says of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceReady {
    /// There may be something to read.
    pub readable: bool,
    /// There may be space to write.
    pub writable: bool,
    /// The other side writes no more: what is there now is all that comes.
    pub read_closed: bool,
}

impl SourceReady {
    /// Anything may have happened: look.
    pub const ALL: Self = Self {
        readable: true,
        writable: true,
        read_closed: true,
    };
}

/// How the driver of a link learns that it is to be polled.
pub enum Readiness<'a> {
    /// By the operating system: register this, edge-triggered, for reading,
    /// and for writing while [`crate::Link::wants_to_write`].
    Source(&'a mut dyn mio::event::Source),
    /// By a call: see [`crate::Link::attach`].
    Notify,
}
