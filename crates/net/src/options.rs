//! What can be set of every transport of this crate.

use memory::Pool;

/// Settings of links, the same for all that a transport makes.
#[derive(Debug, Clone)]
pub struct LinkOptions {
    /// The longest payload that is taken; a longer one ends the link.
    pub payload_bytes_max: u64,
    /// The same of the first frame of each side: who sends it is not known yet.
    pub first_payload_bytes_max: u64,
    /// Where the memory of received payloads comes from and returns to.
    pub pool: Pool,
    /// Size of the send and of the receive buffer of a unix socket. TCP sizes
    /// its own, to the delay of the path.
    pub socket_buffer_bytes: usize,
    /// What links of TCP and TLS carry.
    pub carries: Carries,
}

/// What a link carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carries {
    /// Frames of ours.
    Frames,
    /// Bytes alone, of a protocol of others: what arrives is the payload of messages, and of a message that is sent the
    /// payload is written.
    Bytes,
    /// Bytes alone if the other side's first one is this, frames otherwise. The link is up when that byte has come, so
    /// it is for the side that accepts; if it is one of frames, [`crate::Link::framed`] gives the link to go on with.
    BytesThatBeginWith(u8),
}

impl Default for LinkOptions {
    fn default() -> Self {
        Self {
            payload_bytes_max: 128 << 20,
            first_payload_bytes_max: u64::MAX,
            pool: Pool::new(64 << 20),
            socket_buffer_bytes: 1 << 20,
            carries: Carries::Frames,
        }
    }
}
