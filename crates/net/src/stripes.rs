//! Where chunks begin, and how a link of several connections fares.

/// From where on bytes are chunks: behind the last frame that was not in one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StripesFrom {
    /// There was none, on either side: all bytes of the connection are of chunks.
    Beginning,
    /// This side has queued it: what is queued leaves as it is. The other side may have sent one frame, and nothing
    /// behind it.
    Sent,
    /// This side has received it: what has come behind it is of chunks, and so is all that is queued.
    Received,
}

/// How a link of several connections fares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Striped {
    /// How many connections there are.
    pub connections: usize,
    /// Whether this side, or the other one, had bytes that none of them took.
    pub is_limited: bool,
    /// Bytes that went either way, from the beginning.
    pub moved_bytes: u64,
}
