//! What a session has carried.

use std::time::Duration;

/// Numbers of a session, since it began.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Account {
    /// Bytes of streams that were sent to the other side, again ones too.
    pub bytes_out: u64,
    /// Bytes of streams that came and were taken by their programs.
    pub bytes_in: u64,
    /// Bytes of streams that came, again ones too.
    pub wire_in: u64,
    /// Streams that were opened, by either side.
    pub streams: u64,
    /// Streams that are open.
    pub open: u64,
    /// Streams that were one too many.
    pub refused: u64,
    /// Connections that were lost.
    pub cuts: u64,
    /// Connections that there are.
    pub stripes: u64,
    /// Segments that TCP of this host sent again, on all connections, where the system tells (Linux). Of one that is
    /// gone, as of half a second before.
    pub retransmits: u64,
    /// There and back.
    pub rtt: Option<Duration>,
}
