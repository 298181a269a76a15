//! What is asked of MUNGE, and what it answers.

use crate::error::Error;

/// The longest payload that is put into a credential, or taken out of one.
pub const PAYLOAD_BYTES_MAX: usize = 1024;
/// The longest text of a credential: more than one with such a payload has.
pub const TEXT_BYTES_MAX: usize = 8 << 10;

/// What a client puts into a credential for a server: the SHA-256 of the certificate that the server has shown it. So
/// it counts at no other server, whatever that one is given.
pub fn bound_to(certificate: &[u8; 32]) -> Vec<u8> {
    [&b"thalweg-munge-1\0"[..], certificate].concat()
}

/// The hosts whose daemons have the same key.
pub trait Realm: Send + Sync {
    /// A credential of the user of this process, with this payload of at most [`PAYLOAD_BYTES_MAX`]: one word of
    /// ASCII. Blocks until the daemon of this host answers.
    ///
    /// # Errors
    /// If there is no library, or the daemon does not answer.
    fn encode(&self, payload: &[u8]) -> Result<String, Error>;

    /// Who has made a credential. A daemon does this once for each credential. Blocks until the daemon of this host
    /// answers.
    ///
    /// # Errors
    /// If it does not count, or that could not be found out.
    fn decode(&self, text: &str) -> Result<Vouched, Error>;
}

/// What a credential says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vouched {
    /// What its maker has put into it.
    pub payload: Vec<u8>,
    /// The user who has made it.
    pub uid: u32,
    /// That user's group.
    pub gid: u32,
    /// When it was made, by the clock of the host where that was, seconds since 1970.
    pub made_at: u64,
    /// For how long it is good from then on, seconds.
    pub lasts: u32,
}
