//! What both ends of a connection say first, and what they say last. The format is docs/format/peer.md.

use super::settings::PeerId;
use crate::faults::{Fault, planted};
use crate::quorum::ClusterId;
use std::fmt;
use wire::codec::{DecodeError, Reader, Write};

/// The most bytes of a frame before a link stands.
pub(super) const GREETING_BYTES_MAX: usize = 1 << 10;
const VERSION: u16 = 1;
const TEXT_BYTES_MAX: usize = 512;

const _: () = assert!(TEXT_BYTES_MAX + 2 + 2 + 4 <= GREETING_BYTES_MAX);

/// Which connection of a server it is, among those that it makes with the same peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Greeting {
    /// A number of the sender's process, another one after each start.
    pub(super) run: u64,
    /// How many of its links have ended in this run.
    pub(super) ended: u64,
}

impl Greeting {
    /// Whether its sender knew, when it said this, that the link on which it had said `other` is
    /// over: it has started again, or seen a link end.
    pub(super) fn is_after(self, other: Self) -> bool {
        self.run != other.run || self.ended > other.ended
    }
}

/// What both ends say first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) cluster: ClusterId,
    pub(super) from: PeerId,
    pub(super) to: PeerId,
    pub(super) greeting: Greeting,
}

impl Hello {
    pub(super) fn to_bytes(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(72);
        out.put_u16(VERSION);
        out.put(&[0; 6]);
        out.put_u128(self.cluster.0);
        out.put_u128(self.from.0);
        out.put_u128(self.to.0);
        out.put_u64(self.greeting.run);
        out.put_u64(self.greeting.ended);
        out
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        const WHAT: &str = "hello of a peer link";
        let mut from = Reader::new(WHAT, bytes);
        let version = from.u16()?;
        if version != VERSION {
            let (found, own) = (version.into(), VERSION.into());
            return Err(DecodeError::version(WHAT, 0, "version", found, own));
        }
        if from.bytes(6)? != [0; 6] {
            return Err(DecodeError::newer(WHAT, 2, "reserved", 1));
        }
        let hello = Self {
            cluster: ClusterId(from.u128()?),
            from: PeerId(from.u128()?),
            to: PeerId(from.u128()?),
            greeting: Greeting {
                run: from.u64()?,
                ended: from.u64()?,
            },
        };
        match from.rest().len() {
            0 => Ok(hello),
            more => Err(from.refuse("bytes behind it", more as u64)),
        }
    }

    /// Why a server of this cluster and id does not go on with who said this.
    pub(super) fn refuse(&self, cluster: ClusterId, own: PeerId) -> Option<Goodbye> {
        if self.cluster != cluster && !planted(Fault::ClusterNotChecked) {
            return Some(Goodbye::of(
                Reason::Cluster,
                format!(
                    "it is of cluster {:032x}, this server of cluster {:032x}",
                    self.cluster.0, cluster.0
                ),
            ));
        }
        if self.from == own {
            return Some(Goodbye::of(
                Reason::Oneself,
                format!(
                    "both ends are {own}: it is the same server, or one with a copy of its data directory"
                ),
            ));
        }
        if self.to != own {
            return Some(Goodbye::of(
                Reason::Peer,
                format!("it wants {}, and this is {own}", self.to),
            ));
        }
        None
    }
}

/// Why one end ends a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The other end shows no certificate that counts.
    Certificate,
    /// The other end speaks a version that this one does not.
    Version,
    /// The other end is of another cluster.
    Cluster,
    /// The other end is not the server that was dialled, or wants another one than it has reached.
    Peer,
    /// The other end has the id of this one.
    Oneself,
    /// A link with the other end stands already.
    Stands,
    /// Both ends dialled: the connection that the one with the smaller id made goes on.
    Crossed,
    /// There are too many connections or links.
    TooMany,
    /// The connection has not come to a link in time.
    Late,
    /// Nothing has come for too long.
    Silent,
    /// The other end has taken nothing for too long, and something waits for it.
    Stuck,
    /// A frame has not come whole in its time.
    Slow,
    /// What came is no frame, or one that must not come now.
    Damaged,
    /// The other end has made a new connection since.
    Replaced,
    /// The server wants it so.
    Asked,
    /// One that a later version has.
    Other(u16),
}

/// All reasons of this version, in the order of their numbers, from 1.
const REASONS: [Reason; 15] = [
    Reason::Certificate,
    Reason::Version,
    Reason::Cluster,
    Reason::Peer,
    Reason::Oneself,
    Reason::Stands,
    Reason::Crossed,
    Reason::TooMany,
    Reason::Late,
    Reason::Silent,
    Reason::Stuck,
    Reason::Slow,
    Reason::Damaged,
    Reason::Replaced,
    Reason::Asked,
];

impl Reason {
    fn number(self) -> u16 {
        match self {
            Self::Other(number) => number,
            known => {
                let index = REASONS.iter().position(|one| *one == known);
                index.map_or(0, |index| index as u16 + 1)
            }
        }
    }

    fn of(number: u16) -> Self {
        let known = REASONS.get(usize::from(number).wrapping_sub(1));
        known.copied().unwrap_or(Self::Other(number))
    }
}

/// The last frame of a connection: why its sender ends it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Goodbye {
    /// For programs.
    pub reason: Reason,
    /// For people.
    pub text: String,
}

impl fmt::Display for Goodbye {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Goodbye {
    pub(super) fn of(reason: Reason, text: impl Into<String>) -> Self {
        let mut text = text.into();
        let mut end = text.len().min(TEXT_BYTES_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        Self { reason, text }
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(8 + self.text.len());
        out.put_u16(self.reason.number());
        out.put_u16(0);
        out.put_sized(self.text.as_bytes());
        out
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        const WHAT: &str = "goodbye of a peer link";
        let mut from = Reader::new(WHAT, bytes);
        let reason = from.u16()?;
        if reason == 0 {
            return Err(from.refuse("reason", 0));
        }
        let reserved = from.u16()?;
        if reserved != 0 {
            return Err(DecodeError::newer(WHAT, 2, "reserved", reserved.into()));
        }
        let text = from.text()?;
        if text.len() > TEXT_BYTES_MAX {
            return Err(from.refuse("text bytes", text.len() as u64));
        }
        // It goes to logs and terminals.
        let text = text.replace(char::is_control, "\u{fffd}");
        match from.rest().len() {
            0 => Ok(Self {
                reason: Reason::of(reason),
                text,
            }),
            more => Err(from.refuse("bytes behind it", more as u64)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::with;
    use crate::random::Random;

    fn hello() -> Hello {
        Hello {
            cluster: ClusterId(1),
            from: PeerId(2),
            to: PeerId(3),
            greeting: Greeting { run: 4, ended: 5 },
        }
    }

    /// The bytes of docs/format/peer.md, version 1: they may never change.
    #[test]
    fn the_bytes_are_those_of_the_format() {
        let bytes = hello().to_bytes();
        let mut expected = vec![1, 0, 0, 0, 0, 0, 0, 0];
        for number in [1u128, 2, 3] {
            expected.extend(number.to_le_bytes());
        }
        expected.extend([4, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes, expected);
        let goodbye = Goodbye::of(Reason::Cluster, "no");
        assert_eq!(goodbye.to_bytes(), [3, 0, 0, 0, 2, 0, 0, 0, b'n', b'o']);
        let frame = super::super::frame::header(super::super::frame::Kind::Goodbye, b"no");
        let expected = "54 57 70 6c 7f 30 f5 a0 04 00 00 00 02 00 00 00 18 6f f3 ba";
        let found: Vec<String> = frame.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(found.join(" "), expected);
    }

    #[test]
    fn what_was_said_is_read() {
        assert_eq!(Hello::from_bytes(&hello().to_bytes()), Ok(hello()));
        for reason in REASONS.into_iter().chain([Reason::Other(900)]) {
            let goodbye = Goodbye::of(reason, "because");
            assert_eq!(Goodbye::from_bytes(&goodbye.to_bytes()), Ok(goodbye));
        }
        let long = Goodbye::of(Reason::Asked, "é".repeat(400));
        assert_eq!(long.text.len(), TEXT_BYTES_MAX);
        let ugly = Goodbye::of(Reason::Asked, "a\x1b[2Jb\n");
        let read = Goodbye::from_bytes(&ugly.to_bytes()).unwrap();
        assert_eq!(read.text, "a\u{fffd}[2Jb\u{fffd}");
    }

    #[test]
    fn what_is_cut_or_longer_or_of_another_version_is_an_error() {
        let bytes = hello().to_bytes();
        for end in 0..bytes.len() {
            assert!(Hello::from_bytes(&bytes[..end]).is_err(), "{end}");
        }
        assert!(Hello::from_bytes(&[&bytes[..], &[0]].concat()).is_err());
        for bit in 0..8 * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let error = Hello::from_bytes(&changed).unwrap_err();
            assert!(error.is_of_another_version(), "bit {bit}: {error}");
        }
        let bytes = Goodbye::of(Reason::Asked, "because").to_bytes();
        for end in 0..bytes.len() {
            assert!(Goodbye::from_bytes(&bytes[..end]).is_err(), "{end}");
        }
    }

    #[test]
    fn any_bytes_give_a_value_or_an_error_and_never_a_panic() {
        let mut random = Random::new(3);
        for _ in 0..20_000 {
            let bytes: Vec<u8> = (0..random.below(90))
                .map(|_| random.number() as u8)
                .collect();
            let _ = (Hello::from_bytes(&bytes), Goodbye::from_bytes(&bytes));
            let (mut hello, mut goodbye) = (
                hello().to_bytes(),
                Goodbye::of(Reason::Asked, "because").to_bytes(),
            );
            for bytes in [&mut hello, &mut goodbye] {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] = random.number() as u8;
            }
            let _ = (Hello::from_bytes(&hello), Goodbye::from_bytes(&goodbye));
        }
    }

    #[test]
    fn another_cluster_another_peer_and_oneself_are_refused() {
        let reason = |cluster, own| {
            let goodbye = hello().refuse(ClusterId(cluster), PeerId(own));
            goodbye.map(|goodbye| goodbye.reason)
        };
        assert_eq!(reason(1, 3), None);
        assert_eq!(reason(9, 3), Some(Reason::Cluster));
        assert_eq!(reason(1, 9), Some(Reason::Peer));
        assert_eq!(reason(1, 2), Some(Reason::Oneself));
        let unchecked = with(Fault::ClusterNotChecked, || reason(9, 3));
        assert_eq!(unchecked, None);
    }
}
