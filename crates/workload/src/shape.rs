//! What messages look like: the published workloads, and others.

use crate::document::{Fields, ScenarioError};
use crate::payload::STAMP_BYTES;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The largest message, in bytes: that of AMQP in practice.
pub const MESSAGE_BYTES_MAX: u64 = 512 << 20;

/// A workload: the size of messages and the rate that its instrument has. All numbers are decimal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    /// Its name.
    pub name: String,
    /// Bytes of a message.
    pub message_bytes: u64,
    /// How many of the instrument's events are in a message.
    pub events_per_message: u64,
    /// Bytes a second that the instrument makes, of all producers together.
    pub rate_bytes_per_second: Option<u64>,
}

impl Shape {
    /// GRETA's events through Deleria: eight of 2,000 bytes in a message, 32 Gb/s.
    pub fn dstream() -> Self {
        Self {
            name: "dstream".to_owned(),
            message_bytes: 16_000,
            events_per_message: 8,
            rate_bytes_per_second: Some(4_000_000_000),
        }
    }

    /// LCLS's files: 1,000,000 bytes and the 21 that the published simulator adds to them, 30 Gb/s.
    pub fn lstream() -> Self {
        Self {
            name: "lstream".to_owned(),
            message_bytes: 1_000_021,
            events_per_message: 1,
            rate_bytes_per_second: Some(3_750_000_000),
        }
    }

    /// Messages of 4,000,000 bytes, 25 Gb/s.
    pub fn generic() -> Self {
        Self {
            name: "generic".to_owned(),
            message_bytes: 4_000_000,
            events_per_message: 1,
            rate_bytes_per_second: Some(3_125_000_000),
        }
    }

    /// A workload by its name, or a table of one's own.
    pub(crate) fn read(fields: &mut Fields) -> Result<Self, ScenarioError> {
        const KEY: &str = "workload";
        let expected =
            "one of \"dstream\", \"lstream\", \"generic\", or a table with message_bytes";
        match fields.value(KEY) {
            None => Err(fields.missing(KEY, expected)),
            Some(Value::String(name)) => match name.as_str() {
                "dstream" => Ok(Self::dstream()),
                "lstream" => Ok(Self::lstream()),
                "generic" => Ok(Self::generic()),
                _ => Err(fields.wrong(KEY, &Value::String(name), expected)),
            },
            Some(table @ Value::Object(_)) => Self::own(fields.inside(KEY, table)?),
            Some(other) => Err(fields.wrong(KEY, &other, expected)),
        }
    }

    fn own(mut fields: Fields) -> Result<Self, ScenarioError> {
        let bytes = STAMP_BYTES as u64..=MESSAGE_BYTES_MAX;
        let message_bytes = fields
            .number("message_bytes", bytes.clone())?
            .ok_or_else(|| fields.missing("message_bytes", &crate::document::whole(&bytes)))?;
        let shape = Self {
            name: fields.text("name")?.unwrap_or_else(|| "own".to_owned()),
            message_bytes,
            events_per_message: fields
                .number("events_per_message", 1..=1_000_000)?
                .unwrap_or(1),
            rate_bytes_per_second: fields.number("rate_bytes_per_second", 1..=u64::MAX)?,
        };
        fields.end(&[
            "name",
            "message_bytes",
            "events_per_message",
            "rate_bytes_per_second",
        ])?;
        Ok(shape)
    }
}
