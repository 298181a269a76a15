//! Who is who, and the bounds of links.

use std::fmt;
use std::time::Duration;
use wire::DirectoryId;

/// A server of a cluster: the id of its data directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u128);

impl From<DirectoryId> for PeerId {
    fn from(directory: DirectoryId) -> Self {
        Self(directory.0)
    }
}

impl fmt::Display for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "server {:032x}", self.0)
    }
}

/// The bounds of links. The defaults are for servers; tests have others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkSettings {
    /// A link on which nothing else was sent for so long sends a heartbeat.
    pub heartbeat: Duration,
    /// A link is gone if nothing came for so long, or the other end took nothing of what waits for it.
    pub silence_max: Duration,
    /// How long a connection has for TCP, TLS and hello, and to go when it was refused.
    pub handshake_max: Duration,
    /// Connections that were accepted and have no link yet, and those that were refused and have
    /// not gone. One more ends the oldest of them.
    pub unfinished_max: usize,
    /// What a peer is waited for before the second attempt. Each further one doubles it.
    pub redial_min: Duration,
    /// The most that a peer is waited for between two attempts.
    pub redial_max: Duration,
    /// The longest message.
    pub message_bytes_max: usize,
    /// What waits to be sent to one peer, with [`MESSAGE_COST_BYTES`] for each message.
    pub queue_bytes_max: u64,
    /// Links with servers that are not among those to be dialled.
    pub unlisted_max: usize,
}

/// The name that the certificate of a server has, beside those of its host.
pub fn certificate_name(server: PeerId) -> String {
    // A domain that nobody has (RFC 2606).
    format!("{:032x}.peer.invalid", server.0)
}

/// What a message that waits counts beside its bytes.
pub const MESSAGE_COST_BYTES: u64 = 256;

/// What a frame may take a second for, beside the time that silence has.
pub(super) const FRAME_BYTES_PER_SECOND_MIN: u64 = 256 << 10;

impl Default for LinkSettings {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_millis(500),
            silence_max: Duration::from_secs(3),
            handshake_max: Duration::from_secs(5),
            unfinished_max: 64,
            redial_min: Duration::from_millis(100),
            redial_max: Duration::from_secs(2),
            message_bytes_max: wire::table::MESSAGE_BYTES_MAX + (64 << 10),
            queue_bytes_max: 192 << 20,
            unlisted_max: 4_096,
        }
    }
}

impl LinkSettings {
    /// What is wrong with them.
    pub(super) fn check(&self) -> Result<(), String> {
        let longest = self.message_bytes_max as u64 + 2 * MESSAGE_COST_BYTES;
        let rules = [
            (
                self.heartbeat > Duration::ZERO && self.silence_max >= 2 * self.heartbeat,
                "silence is to last two heartbeats at least",
            ),
            (
                self.handshake_max > Duration::ZERO && self.unfinished_max > 0,
                "a handshake needs time, and space for one",
            ),
            (
                self.redial_min > Duration::ZERO && self.redial_max >= self.redial_min,
                "the wait between attempts is to have a least, and a greatest not below it",
            ),
            (
                u32::try_from(self.message_bytes_max).is_ok() && self.queue_bytes_max >= longest,
                "the queue is to have space for the longest message, whose length is a u32",
            ),
        ];
        match rules.iter().find(|(holds, _)| !holds) {
            Some((_, rule)) => Err(format!("settings of peer links: {rule}")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_contradict_themselves_are_refused() {
        let good = LinkSettings::default();
        assert_eq!(good.check(), Ok(()));
        let second = Duration::from_secs(1);
        for (bad, rule) in [
            (
                LinkSettings {
                    heartbeat: 2 * second,
                    ..good
                },
                "two heartbeats",
            ),
            (
                LinkSettings {
                    unfinished_max: 0,
                    ..good
                },
                "space for one",
            ),
            (
                LinkSettings {
                    redial_max: second / 100,
                    ..good
                },
                "not below it",
            ),
            (
                LinkSettings {
                    queue_bytes_max: 128 << 20,
                    ..good
                },
                "the longest message",
            ),
        ] {
            let error = bad.check().unwrap_err();
            assert!(error.contains(rule), "{error}");
        }
    }
}
