//! What is in a message: a stamp of 32 bytes, and bytes from a seed.

use crate::chance::{Chance, mix};
use crate::faults::{Fault, planted};
use std::fmt;

/// Bytes of the stamp, with which each message begins.
pub const STAMP_BYTES: usize = 32;

/// Who sent a message, which one it is, and when. All that is counted is counted from it.
///
/// | bytes | what |
/// | --- | --- |
/// | 0..8 | run |
/// | 8..12 | producer, from 0 |
/// | 12..16 | attempt: 0, and one more each time that its producer sends it again; in a reply which consumer answers |
/// | 16..24 | sequence, from 0, dense for each producer |
/// | 24..32 | send time: nanoseconds of the clock that all members have |
///
/// All are little endian. The attempt is what tells a message that its producer sent again from one that the
/// backend delivered again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// The run, so that what an earlier one left behind is not counted.
    pub run: u64,
    /// The producer.
    pub producer: u32,
    /// How often it was sent before.
    pub attempt: u32,
    /// Which of the producer's messages it is.
    pub sequence: u64,
    /// When it was sent.
    pub sent_ns: u64,
}

impl Stamp {
    /// That of a reply, in which the attempt says who answers: a consumer where all consumers answer each message, 0
    /// where one of them does.
    #[must_use]
    pub fn of_reply(self, consumer: u32) -> Self {
        Self {
            attempt: consumer,
            ..self
        }
    }

    /// As bytes.
    pub fn to_bytes(self) -> [u8; STAMP_BYTES] {
        let mut bytes = [0; STAMP_BYTES];
        bytes[..8].copy_from_slice(&self.run.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.producer.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.attempt.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[24..].copy_from_slice(&self.sent_ns.to_le_bytes());
        bytes
    }

    /// From the first bytes of a message.
    ///
    /// # Errors
    /// If there are too few.
    pub fn of(message: &[u8]) -> Result<Self, Damaged> {
        let Some(bytes) = message.first_chunk::<STAMP_BYTES>() else {
            return Err(Damaged::Short {
                bytes: message.len(),
            });
        };
        let word = |at: usize| {
            u64::from_le_bytes(
                *bytes[at..]
                    .first_chunk()
                    .expect("each of the four words lies within the stamp"),
            )
        };
        let identity = word(8);
        Ok(Self {
            run: word(0),
            producer: identity as u32,
            attempt: (identity >> 32) as u32,
            sequence: word(16),
            sent_ns: word(24),
        })
    }
}

/// Why a message is not as it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damaged {
    /// It is shorter than a stamp.
    Short {
        /// Its bytes.
        bytes: usize,
    },
    /// It has another size than its workload's messages.
    Size {
        /// Its bytes.
        bytes: usize,
        /// Those of the workload.
        expected: usize,
    },
    /// A byte behind the stamp differs.
    Byte {
        /// Where, from the message's beginning.
        at: usize,
    },
}

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short { bytes } => {
                write!(
                    f,
                    "a message of {bytes} bytes, expected at least {STAMP_BYTES}"
                )
            }
            Self::Size { bytes, expected } => {
                write!(f, "a message of {bytes} bytes, expected {expected}")
            }
            Self::Byte { at } => write!(f, "byte {at} of a message is not as it was sent"),
        }
    }
}

impl std::error::Error for Damaged {}

/// The bytes that all messages of a run are cut from. Producers and consumers make the same from the same seed.
///
/// A message's bytes begin somewhere in the pool, which its producer and sequence decide, and go round at its end:
/// two pieces, ready for a vectored write. So no two messages in a row are alike, which a backend that compresses
/// or compares could profit from, and none is made while the clock runs.
#[derive(Debug)]
pub struct Payload {
    seed: u64,
    pool: Vec<u8>,
}

impl Payload {
    /// For messages of `message_bytes`.
    ///
    /// # Panics
    /// If a stamp has no room in them: scenarios with such messages are refused.
    pub fn new(seed: u64, message_bytes: usize) -> Self {
        let bytes = message_bytes
            .checked_sub(STAMP_BYTES)
            .expect("a scenario's messages have room for a stamp");
        let mut chance = Chance(seed);
        let mut pool = Vec::with_capacity(bytes.next_multiple_of(8));
        while pool.len() < bytes {
            pool.extend_from_slice(&chance.next().to_le_bytes());
        }
        pool.truncate(bytes);
        Self { seed, pool }
    }

    /// Bytes of a message.
    pub fn message_bytes(&self) -> usize {
        self.pool.len() + STAMP_BYTES
    }

    /// What follows the stamp: two pieces, the second of which may be empty.
    pub fn rest(&self, producer: u32, sequence: u64) -> (&[u8], &[u8]) {
        let at = self.begin(producer, sequence);
        (&self.pool[at..], &self.pool[..at])
    }

    fn begin(&self, producer: u32, sequence: u64) -> usize {
        if self.pool.is_empty() {
            return 0;
        }
        let sequence = if planted(Fault::SameBytes) {
            0
        } else {
            sequence
        };
        let which = mix(self.seed ^ mix(u64::from(producer) + 1)).wrapping_add(mix(sequence + 1));
        (mix(which) % self.pool.len() as u64) as usize
    }

    /// Writes a whole message into `buffer`, in place of what was there.
    pub fn write(&self, stamp: Stamp, buffer: &mut Vec<u8>) {
        let (first, second) = self.rest(stamp.producer, stamp.sequence);
        buffer.clear();
        buffer.reserve(self.message_bytes());
        buffer.extend_from_slice(&stamp.to_bytes());
        buffer.extend_from_slice(first);
        buffer.extend_from_slice(second);
    }

    /// The stamp of a message, if the message is as it was sent.
    ///
    /// # Errors
    /// If it has another size, or another byte.
    pub fn check(&self, message: &[u8]) -> Result<Stamp, Damaged> {
        let stamp = Stamp::of(message)?;
        if message.len() != self.message_bytes() {
            return Err(Damaged::Size {
                bytes: message.len(),
                expected: self.message_bytes(),
            });
        }
        let (first, second) = self.rest(stamp.producer, stamp.sequence);
        let rest = &message[STAMP_BYTES..];
        let (begin, end) = rest.split_at(first.len());
        if begin == first && end == second {
            return Ok(stamp);
        }
        let sent = first.iter().chain(second);
        let at = rest.iter().zip(sent).position(|(came, sent)| came != sent);
        Err(Damaged::Byte {
            at: STAMP_BYTES + at.expect("one of the pieces differs"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chance::seeds;
    use crate::faults;

    fn stamp(chance: &mut Chance) -> Stamp {
        Stamp {
            run: chance.next(),
            producer: chance.next() as u32,
            attempt: chance.below(3) as u32,
            sequence: chance.next() >> 1,
            sent_ns: chance.next(),
        }
    }

    /// The bytes of a message one by one, as the page at `Stamp` says.
    fn slowly(seed: u64, bytes: usize, stamp: Stamp) -> Vec<u8> {
        let mut message = Vec::new();
        for shift in (0..64).step_by(8) {
            message.push((stamp.run >> shift) as u8);
        }
        for shift in (0..32).step_by(8) {
            message.push((stamp.producer >> shift) as u8);
        }
        for shift in (0..32).step_by(8) {
            message.push((stamp.attempt >> shift) as u8);
        }
        for word in [stamp.sequence, stamp.sent_ns] {
            for shift in (0..64).step_by(8) {
                message.push((word >> shift) as u8);
            }
        }
        let mut chance = Chance(seed);
        let pool: Vec<u8> = (0..bytes.div_ceil(8))
            .flat_map(|_| chance.next().to_le_bytes())
            .take(bytes - STAMP_BYTES)
            .collect();
        let payload = Payload::new(seed, bytes);
        let at = payload.begin(stamp.producer, stamp.sequence);
        for index in 0..pool.len() {
            message.push(pool[(at + index) % pool.len()]);
        }
        message
    }

    #[test]
    fn a_message_is_its_stamp_and_bytes_from_the_seed() {
        for seed in seeds(200) {
            let mut chance = Chance(seed);
            let bytes = STAMP_BYTES + chance.below(300) as usize;
            let stamp = stamp(&mut chance);
            let payload = Payload::new(seed, bytes);
            let mut message = vec![9; 1000];
            payload.write(stamp, &mut message);
            assert_eq!(message, slowly(seed, bytes, stamp), "seed {seed}");
            assert_eq!(Payload::new(seed, bytes).check(&message), Ok(stamp));
        }
    }

    #[test]
    fn any_other_byte_is_noticed() {
        let payload = Payload::new(5, 100);
        let mut message = Vec::new();
        payload.write(stamp(&mut Chance(1)), &mut message);
        for at in STAMP_BYTES..100 {
            message[at] ^= 1;
            assert_eq!(payload.check(&message), Err(Damaged::Byte { at }));
            message[at] ^= 1;
        }
        message.push(0);
        let size = Damaged::Size {
            bytes: 101,
            expected: 100,
        };
        assert_eq!(payload.check(&message), Err(size));
        assert_eq!(Stamp::of(&[0; 31]), Err(Damaged::Short { bytes: 31 }));
    }

    #[test]
    fn messages_in_a_row_differ() {
        let payload = Payload::new(7, 16_000);
        let differ = || {
            let begins: std::collections::BTreeSet<usize> = (0..100)
                .map(|sequence| payload.begin(0, sequence))
                .collect();
            begins.len() > 90
        };
        assert!(differ());
        assert!(!faults::with(Fault::SameBytes, differ));
    }

    /// What seeds give does not change from one release to the next: runs are compared.
    #[test]
    fn a_seed_gives_what_it_always_gave() {
        let payload = Payload::new(7, 48);
        let mut message = Vec::new();
        let stamp = Stamp {
            run: 1,
            producer: 2,
            attempt: 0,
            sequence: 3,
            sent_ns: 4,
        };
        payload.write(stamp, &mut message);
        let text: String = message.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(text, include_str!("golden/message.txt").trim());
    }
}
