//! Options of groups and queues: stored with the consumer's name, and the
//! same for all of its members. What they mean is on the page
//! `docs/concept/sharing.md`.

use crate::spread::{part_name, part_of_name};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::RangeInclusive;
use wire::{ErrorCode, ErrorReply};

/// The longest options, as JSON.
pub const SHARING_OPTIONS_BYTES_MAX: usize = 4096;

/// How long a server may hear nothing of a member before what it holds goes to
/// others, milliseconds: from a tenth of a second to a day.
pub const SESSION_TIMEOUT_MS: RangeInclusive<u32> = 100..=24 * 3600 * 1000;

/// Times may be from a tenth of a second to a month.
const TIME_MS_RANGE: (u64, u64) = (100, 31 * 24 * 3600 * 1000);

/// Options of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GroupOptions {
    /// How long a member has to release a partition that is taken away from
    /// it, milliseconds.
    pub revoke_timeout_ms: u64,
}

impl Default for GroupOptions {
    fn default() -> Self {
        Self {
            revoke_timeout_ms: 30_000,
        }
    }
}

/// Options of a queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QueueOptions {
    /// How long a lease lasts, milliseconds.
    pub lease_ms: u64,
    /// How often an event is delivered at most; when it comes back after
    /// that it goes to the dead-letter topic. 0 is without limit.
    pub deliveries_max: u32,
    /// Where dead letters go; empty is the topic's name with `.dead` behind it.
    pub dead_letter_topic: String,
    /// Whether events of one key are given out one at a time, in order.
    pub ordered_by_key: bool,
}

impl Default for QueueOptions {
    fn default() -> Self {
        Self {
            lease_ms: 30_000,
            deliveries_max: 20,
            dead_letter_topic: String::new(),
            ordered_by_key: false,
        }
    }
}

/// Why options of a group or queue were refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharingError(String);

impl fmt::Display for SharingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SharingError {}

impl From<SharingError> for ErrorReply {
    fn from(error: SharingError) -> Self {
        Self::fatal(ErrorCode::InvalidConsumer, error.0)
    }
}

impl GroupOptions {
    /// Reads and checks options; empty text is the default ones.
    ///
    /// # Errors
    /// What is no JSON, an unknown key, or a value that is out of range.
    pub fn from_json(text: &str) -> Result<Self, SharingError> {
        let options: Self = read(text)?;
        options.check()?;
        Ok(options)
    }

    /// Whether options may be so.
    ///
    /// # Errors
    /// A value that is out of range.
    pub fn check(&self) -> Result<(), SharingError> {
        check_time("revoke_timeout_ms", self.revoke_timeout_ms)
    }

    /// All options as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("options are JSON")
    }
}

impl QueueOptions {
    /// Reads and checks options; empty text is the default ones.
    ///
    /// # Errors
    /// What is no JSON, an unknown key, or a value that is out of range.
    pub fn from_json(text: &str) -> Result<Self, SharingError> {
        let options: Self = read(text)?;
        options.check()?;
        Ok(options)
    }

    /// Whether options may be so.
    ///
    /// # Errors
    /// A value that is out of range, or a name that no topic may have.
    pub fn check(&self) -> Result<(), SharingError> {
        check_time("lease_ms", self.lease_ms)?;
        if !self.dead_letter_topic.is_empty() {
            crate::check_topic_name(&self.dead_letter_topic)
                .map_err(|error| SharingError(format!("dead_letter_topic: {error}")))?;
        }
        Ok(())
    }

    /// All options as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("options are JSON")
    }

    /// The name of the dead-letter topic of a queue on the topic `topic`.
    pub fn dead_letter_topic_of(&self, topic: &str) -> String {
        // Those of a partition of a spread topic go to the same partition of another one, which is on the same node.
        if let Some((topic, index)) = part_of_name(topic) {
            return part_name(&self.dead_letter_topic_of(topic), index);
        }
        match self.dead_letter_topic.as_str() {
            "" => format!("{topic}.dead"),
            name => name.to_owned(),
        }
    }
}

fn read<'a, T: Default + Deserialize<'a>>(text: &'a str) -> Result<T, SharingError> {
    if text.is_empty() {
        return Ok(T::default());
    }
    if text.len() > SHARING_OPTIONS_BYTES_MAX {
        return Err(SharingError(format!(
            "options of {} bytes; the limit is {SHARING_OPTIONS_BYTES_MAX}",
            text.len()
        )));
    }
    serde_json::from_str(text).map_err(|error| SharingError(format!("options: {error}")))
}

fn check_time(key: &str, value: u64) -> Result<(), SharingError> {
    let (least, most) = TIME_MS_RANGE;
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(SharingError(format!(
        "{key} is {value}, not between {least} and {most}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_checked_and_written() {
        assert_eq!(QueueOptions::from_json(""), Ok(QueueOptions::default()));
        let options = QueueOptions::from_json(r#"{"lease_ms":60000,"ordered_by_key":true}"#);
        let options = options.expect("they are good");
        assert!(options.ordered_by_key && options.deliveries_max == 20);
        assert_eq!(
            QueueOptions::from_json(&options.to_json()),
            Ok(options.clone())
        );
        assert_eq!(options.dead_letter_topic_of("runs"), "runs.dead");
        let named = QueueOptions::from_json(r#"{"dead_letter_topic":"graves"}"#);
        let named = named.expect("good");
        assert_eq!(named.dead_letter_topic_of("runs"), "graves");
        assert_eq!(named.dead_letter_topic_of("runs/3"), "graves/3");
        assert_eq!(options.dead_letter_topic_of("runs/3"), "runs.dead/3");
        for (bad, said) in [
            (r#"{"lease_ms":1}"#, "lease_ms is 1"),
            (r#"{"lease":1}"#, "unknown field"),
            (r#"{"dead_letter_topic":"/"}"#, "dead_letter_topic"),
            ("[", "options"),
        ] {
            let error = QueueOptions::from_json(bad).expect_err(bad).to_string();
            assert!(error.contains(said), "{bad}: {error}");
        }
        let error = GroupOptions::from_json(r#"{"revoke_timeout_ms":0}"#);
        assert!(error.is_err());
    }
}
