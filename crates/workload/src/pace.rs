//! When a producer sends: rates, loops, and the schedule that follows from them.

use crate::document::{Fields, ScenarioError};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How fast producers may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rate {
    /// At the workload's rate: message `n` is due at a time of its own.
    Enforced,
    /// As fast as confirms come back, within a window that slides.
    Unlimited,
    /// As the published simulator does: the rate is stated and not enforced; after each batch a producer waits for
    /// all of its confirms; what is left below a batch is never sent.
    Published,
}

impl Rate {
    const WORDS: [(&'static str, Self); 3] = [
        ("enforced", Self::Enforced),
        ("unlimited", Self::Unlimited),
        ("published", Self::Published),
    ];

    pub(crate) fn read(fields: &mut Fields) -> Result<Self, ScenarioError> {
        Ok(fields
            .word("rate", &Self::WORDS)?
            .unwrap_or(Self::Published))
    }
}

/// What a producer waits for before its next message.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Loop {
    /// For confirms alone, as published. The times are those of a backlog.
    Open,
    /// For the answer to the last message: one is outstanding.
    Closed,
    /// For the time at which the message is due, at this share of the rate that an open loop has reached.
    Share(f64),
}

impl Loop {
    pub(crate) fn read(fields: &mut Fields) -> Result<Self, ScenarioError> {
        const KEY: &str = "loop";
        let expected = "\"open\", \"closed\", or { share = 0.5 } with a share above 0 and up to 1";
        match fields.value(KEY) {
            None => Ok(Self::Open),
            Some(Value::String(word)) if word == "open" => Ok(Self::Open),
            Some(Value::String(word)) if word == "closed" => Ok(Self::Closed),
            Some(table @ Value::Object(_)) => {
                let mut inner = fields.inside(KEY, table)?;
                let value = inner
                    .value("share")
                    .ok_or_else(|| inner.missing("share", expected))?;
                let share = value
                    .as_f64()
                    .filter(|share| *share > 0.0 && *share <= 1.0)
                    .ok_or_else(|| inner.wrong("share", &value, expected))?;
                inner.end(&["share"])?;
                Ok(Self::Share(share))
            }
            Some(other) => Err(fields.wrong(KEY, &other, expected)),
        }
    }
}

/// When each message of one producer is due, in nanoseconds after `go`.
///
/// Times are counted from the schedule and not from the message before, so that a producer that was held up has
/// its later messages due in the past: that is how coordinated omission is accounted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    /// Messages of this producer in `period_ns`.
    messages: u64,
    /// The period of those.
    period_ns: u64,
    /// When the first one is due. Producers do not all send in the same moment.
    first_ns: u64,
}

/// The nanoseconds of a second.
pub(crate) const SECOND_NS: u64 = 1_000_000_000;

/// One producer of several that share a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// Which, from 0.
    pub producer: u64,
    /// Of how many.
    pub producers: u64,
}

impl Schedule {
    /// That of one producer, where all together send `bytes_per_second` in messages of `message_bytes`.
    pub fn of_bytes(bytes_per_second: u64, message_bytes: u64, share: Share) -> Self {
        let period =
            u128::from(message_bytes) * u128::from(share.producers) * u128::from(SECOND_NS);
        Self::of_parts(u128::from(bytes_per_second), period, share)
    }

    /// That of one producer, where all together send this many messages in a second.
    pub fn of_messages(messages_per_second: f64, share: Share) -> Self {
        // Millionths of a message a second: below that a run has no end.
        let millionths = (messages_per_second * 1e6).round().max(1.0) as u128;
        let period = u128::from(share.producers) * u128::from(SECOND_NS) * 1_000_000;
        Self::of_parts(millionths, period, share)
    }

    /// `messages` in `period`, made small enough for 64 bits.
    fn of_parts(messages: u128, period: u128, share: Share) -> Self {
        let shift = (128 - messages.max(period).leading_zeros()).saturating_sub(63);
        let messages = (messages >> shift).max(1) as u64;
        let period_ns = (period >> shift).max(1) as u64;
        let interval = period_ns / messages;
        let first_ns =
            u128::from(interval) * u128::from(share.producer) / u128::from(share.producers.max(1));
        Self {
            messages,
            period_ns,
            first_ns: first_ns as u64,
        }
    }

    /// When a message is due, in nanoseconds after `go`.
    pub fn due_ns(&self, sequence: u64) -> u64 {
        let after =
            u128::from(sequence) * u128::from(self.period_ns) / u128::from(self.messages.max(1));
        u64::try_from(after)
            .unwrap_or(u64::MAX)
            .saturating_add(self.first_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chance::{Chance, seeds};

    #[test]
    fn a_schedule_keeps_its_rate_over_any_count() {
        for seed in seeds(200) {
            let mut chance = Chance(seed);
            let producers = 1 + chance.below(64);
            let share = Share {
                producer: chance.below(producers),
                producers,
            };
            let bytes_per_second = 1 + chance.below(10_000_000_000);
            let message_bytes = 32 + chance.below(5_000_000);
            let schedule = Schedule::of_bytes(bytes_per_second, message_bytes, share);
            let sequence = chance.below(1_000_000);
            let interval = message_bytes as f64 * producers as f64 * 1e9 / bytes_per_second as f64;
            let due = interval * (sequence as f64 + share.producer as f64 / producers as f64);
            let error = (schedule.due_ns(sequence) as f64 - due).abs();
            assert!(
                error <= 2.0 + due * 1e-9,
                "seed {seed}: {error} ns of {due}"
            );
        }
    }

    #[test]
    fn two_producers_send_in_turn() {
        let of = |producer| {
            let share = Share {
                producer,
                producers: 2,
            };
            let schedule = Schedule::of_messages(1000.0, share);
            [schedule.due_ns(0), schedule.due_ns(1)]
        };
        assert_eq!(of(0), [0, 2_000_000]);
        assert_eq!(of(1), [1_000_000, 3_000_000]);
    }

    #[test]
    fn no_rate_divides_by_zero() {
        let share = Share {
            producer: 0,
            producers: 1,
        };
        for rate in [0.0, f64::MIN_POSITIVE, 1e300, f64::INFINITY, f64::NAN] {
            Schedule::of_messages(rate, share).due_ns(u64::MAX);
        }
        Schedule::of_bytes(u64::MAX, u64::MAX, share).due_ns(u64::MAX);
    }
}
