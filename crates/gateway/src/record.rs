//! What is known of an instance, as a file. Holds no secret.

use crate::names::InstanceName;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The version of the form.
const FORMAT: u32 = 1;
/// How long an instance lives, and again from each extension on.
pub const LIFE_SECONDS: u64 = 7 * 24 * 3600;

/// What an instance may use, as it was asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Resources {
    /// Processors.
    pub cpus: u32,
    /// Memory, GiB.
    #[serde(rename = "ram-gbs")]
    pub ram_gbs: u32,
    /// Asked for; an instance is one server all the same.
    pub nodes: u32,
    /// The longest message, bytes; 0 is what a server takes by itself.
    #[serde(rename = "max-msg-size")]
    pub message_bytes_max: u64,
}

impl Default for Resources {
    fn default() -> Self {
        Self {
            cpus: 1,
            ram_gbs: 1,
            nodes: 1,
            message_bytes_max: 0,
        }
    }
}

/// A process, so that another one with its number is not taken for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// When the kernel says that it began.
    pub began: u64,
}

/// What is known of an instance. Times are seconds since 1970.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    format: u32,
    project: String,
    name: String,
    /// Under which path it was asked for: `rabbitmq` or `thalweg`.
    pub kind: String,
    /// What it may use.
    pub resources: Resources,
    /// When it was made.
    pub provisioned_at: u64,
    /// When its life was counted anew.
    pub extended_at: u64,
    /// When it is over.
    pub expires_at: u64,
    /// It was deleted, or its time was over: its files are to be moved aside.
    pub removed: bool,
    /// It has served once, and the command for that was called.
    pub announced: bool,
    /// It is to run, unless nobody needs it.
    pub runs: bool,
    /// Its process, if there was one.
    pub process: Option<Process>,
    /// By which certificates its server is known, SHA-256.
    pub certificates: Vec<String>,
}

impl Record {
    /// Of an instance that is made now.
    pub fn new(name: &InstanceName, kind: &str, resources: Resources, now: u64) -> Self {
        Self {
            format: FORMAT,
            project: name.project().to_owned(),
            name: name.name().to_owned(),
            kind: kind.to_owned(),
            resources,
            provisioned_at: now,
            extended_at: now,
            expires_at: now + LIFE_SECONDS,
            removed: false,
            announced: false,
            runs: true,
            process: None,
            certificates: Vec::new(),
        }
    }

    /// Reads the form.
    ///
    /// # Errors
    /// Says what it is not.
    pub fn parse(text: &str) -> Result<Self, String> {
        let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        match value.get("format").and_then(Value::as_u64) {
            Some(format) if format == u64::from(FORMAT) => {}
            Some(format) => {
                return Err(format!(
                    "it is of format {format}, and this is {FORMAT}: a later version wrote it"
                ));
            }
            None => return Err("it is no record of an instance: it has no format".to_owned()),
        }
        let record: Self = serde_json::from_value(value).map_err(|error| error.to_string())?;
        InstanceName::new(&record.project, &record.name)?;
        Ok(record)
    }

    /// The form.
    pub fn to_json(&self) -> String {
        let text = serde_json::to_string_pretty(self);
        text.expect("texts and numbers become JSON") + "\n"
    }

    /// Which instance it is of.
    pub fn instance(&self) -> InstanceName {
        let name = InstanceName::new(&self.project, &self.name);
        name.expect("checked when it was made or read")
    }

    /// Counts its life anew.
    pub fn extend(&mut self, now: u64) {
        self.extended_at = now;
        self.expires_at = now + LIFE_SECONDS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written_and_nothing_else_is_one() {
        let name = InstanceName::new("stf008", "run42").unwrap();
        let mut record = Record::new(&name, "rabbitmq", Resources::default(), 1000);
        record.process = Some(Process { pid: 7, began: 99 });
        let text = record.to_json();
        assert_eq!(Record::parse(&text), Ok(record));
        for (text, why) in [
            ("", "EOF"),
            ("{}", "no format"),
            (
                &text.replace("\"format\": 1", "\"format\": 2"),
                "later version",
            ),
            (&text.replace("run42", "../x"), "is not a name"),
        ] {
            let error = Record::parse(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
