//! What can be set, and the bounds that cannot.

use std::time::Duration;

/// The greatest payload of one request, bytes.
pub const PAYLOAD_BYTES_MAX: usize = 4 << 20;
/// The greatest snapshot with all that belongs to it, bytes.
pub const SNAPSHOT_BYTES_MAX: usize = 64 << 20;
/// The greatest piece of a snapshot in a message, bytes.
pub const CHUNK_BYTES_MAX: usize = 1 << 20;
/// Entries of a message to a follower together, bytes; one larger entry goes alone.
pub const MESSAGE_ENTRIES_BYTES: u64 = 1 << 20;
/// The greatest message, bytes: one message's entries, or one payload, and what is around them.
pub const MESSAGE_BYTES_MAX: usize = PAYLOAD_BYTES_MAX + (1 << 20) + 4096;
/// Messages with entries that may be on the way to a follower.
pub(crate) const IN_FLIGHT_MAX: usize = 16;
/// Entries of a leader that are not committed, bytes together.
pub(crate) const UNCOMMITTED_BYTES_MAX: u64 = 16 << 20;
/// Requests of a leader that are not answered.
pub(crate) const WAITING_MAX: usize = 4096;
/// Bytes that wait for the disk before a follower takes no more entries.
pub(crate) const UNWRITTEN_BYTES_MAX: usize = 32 << 20;
/// Messages that wait for the disk, …
pub(crate) const HELD_MAX: usize = 4096;
/// … and their bytes. Beyond either the oldest are dropped that the library sends again.
pub(crate) const HELD_BYTES_MAX: usize = 32 << 20;
/// Voters and learners together.
pub(crate) const MEMBERS_MAX: usize = 16;

const _: () = assert!(UNCOMMITTED_BYTES_MAX as usize >= PAYLOAD_BYTES_MAX);
const _: () = assert!(MESSAGE_BYTES_MAX > PAYLOAD_BYTES_MAX + MESSAGE_ENTRIES_BYTES as usize);
const _: () = assert!(MESSAGE_BYTES_MAX > CHUNK_BYTES_MAX + 4096);

/// How a quorum behaves. The defaults are meant to be kept; tests make them small.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The unit of the times below.
    pub tick: Duration,
    /// A leader says that it is there every so many ticks.
    pub heartbeat_ticks: usize,
    /// A follower that hears of no leader for so many ticks at least asks for votes.
    pub election_ticks_min: usize,
    /// … and for so many at most; drawn anew for each wait.
    pub election_ticks_max: usize,
    /// A snapshot is taken when so many entries were applied since the one before,
    pub snapshot_entries: u64,
    /// or so many bytes.
    pub snapshot_bytes: usize,
    /// Entries that are kept in memory although a snapshot has them, for followers that lag.
    pub trailing_entries: u64,
    /// For how long a request is tried again under its id at most: from when it is proposed first
    /// until it arrives for the last time. The same for every voter of a cluster, as it decides what
    /// is applied.
    pub retry_deadline: Duration,
    /// Requests whose ids are remembered at most. No more than that are taken in a retry deadline
    /// and a quarter. The same for every voter of a cluster.
    pub requests_max: usize,
    /// A snapshot is sent in pieces of so many bytes, at most [`CHUNK_BYTES_MAX`].
    pub chunk_bytes: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            tick: Duration::from_millis(100),
            heartbeat_ticks: 1,
            election_ticks_min: 5,
            election_ticks_max: 10,
            snapshot_entries: 10_000,
            snapshot_bytes: 8 << 20,
            trailing_entries: 1000,
            retry_deadline: Duration::from_secs(30),
            requests_max: 65_536,
            chunk_bytes: CHUNK_BYTES_MAX,
        }
    }
}

impl Settings {
    /// Refuses what cannot work.
    ///
    /// # Errors
    /// A sentence that says what and why.
    pub fn validate(&self) -> Result<(), String> {
        let refuse = |what: String| Err(what);
        if self.tick.is_zero() || self.heartbeat_ticks == 0 {
            return refuse("a tick and a heartbeat must last longer than nothing".to_owned());
        }
        let (min, max) = (self.election_ticks_min, self.election_ticks_max);
        if min <= self.heartbeat_ticks || max <= min {
            return refuse(format!(
                "elections after {min} to {max} ticks: must be more than one heartbeat ({} \
                 ticks), and a range, or all voters begin at once",
                self.heartbeat_ticks
            ));
        }
        if self.requests_max == 0 || self.requests_max > REQUESTS_MAX {
            return refuse(format!(
                "{} requests to remember: must be 1 to {REQUESTS_MAX}, as snapshots have them",
                self.requests_max
            ));
        }
        if self.chunk_bytes == 0 || self.chunk_bytes > CHUNK_BYTES_MAX {
            let bytes = self.chunk_bytes;
            return refuse(format!(
                "pieces of {bytes} bytes: must be 1 to {CHUNK_BYTES_MAX}"
            ));
        }
        Ok(())
    }
}

/// Requests that a snapshot may list.
pub(crate) const REQUESTS_MAX: usize = 1 << 19;
const _: () = assert!(REQUESTS_MAX * 32 + MEMBERS_MAX * 32 < SNAPSHOT_BYTES_MAX / 2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid_and_nonsense_is_not() {
        Settings::default().validate().unwrap();
        let at_once = Settings {
            election_ticks_max: 5,
            ..Settings::default()
        };
        assert!(at_once.validate().unwrap_err().contains("all voters begin"));
        let none = Settings {
            requests_max: 0,
            ..Settings::default()
        };
        assert!(none.validate().unwrap_err().contains("to remember"));
    }
}
