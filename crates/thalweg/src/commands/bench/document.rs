//! JSON documents of an exact length, and how fast they can be checked.

use crate::failure::{Code, Failure};
use clap::ValueEnum;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use topic::{NoPlugins, ValidatorKind};

/// All documents that take turns, together.
const SEVERAL_BYTES: usize = 4 << 20;

/// What metadata looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Document {
    /// A JSON object of many members: short names, numbers, truth values
    Numbers,
    /// A JSON object of few members, whose values are long texts
    Text,
}

impl Document {
    /// For people and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Numbers => "numbers",
            Self::Text => "text",
        }
    }

    /// A document of `bytes`, different for every seed.
    pub fn write(self, bytes: usize, seed: usize) -> Result<Vec<u8>, Failure> {
        let mut text = String::from("{");
        // What is left becomes one text, whose name and quotes need space.
        let end = bytes.saturating_sub(64);
        for index in 0.. {
            if text.len() >= end {
                break;
            }
            let value = (seed * 7919 + index * 104_729) % 100_000;
            let member = match (self, index % 4) {
                (Self::Numbers, 0) => format!("\"motor_{index}\":{value},"),
                (Self::Numbers, 1) => format!("\"angle_{index}\":-{value}.0625,"),
                (Self::Numbers, 2) => format!("\"ok_{index}\":{},", value.is_multiple_of(2)),
                (Self::Numbers, _) => format!("\"range_{index}\":[{value},1.5e-3,null],"),
                (Self::Text, _) => format!("\"note_{index}\":\"{}{value}\",", "lorem ".repeat(33)),
            };
            // A long text may be too long for a short document.
            if text.len() + member.len() > end {
                break;
            }
            text.push_str(&member);
        }
        let used = text.len() + "\"rest\":\"\"}".len();
        let Some(rest) = bytes.checked_sub(used) else {
            let what = format!("a document has {used} bytes at least");
            return Err(Failure::new(Code::Usage, "bench", what));
        };
        text.push_str(&format!("\"rest\":\"{}\"}}", "x".repeat(rest)));
        Ok(text.into_bytes())
    }

    /// The documents that events take turns with: so many that no processor
    /// knows by heart which way their branches go.
    pub fn several(self, bytes: usize) -> Result<Vec<Vec<u8>>, Failure> {
        let count = (SEVERAL_BYTES / bytes.max(1)).clamp(16, 4096);
        (0..count).map(|seed| self.write(bytes, seed)).collect()
    }

    /// Bytes that the validator `json` alone checks in a second on a core, in
    /// one thread and the very documents that are pushed. The thread's own
    /// time counts: others may have the core meanwhile.
    pub fn checked_bytes_per_s(self, bytes: usize) -> Result<f64, Failure> {
        let documents = self.several(bytes)?;
        let failed = |error: String| Failure::new(Code::Failure, "the validator", error);
        let validator = ValidatorKind::Json
            .build(&NoPlugins)
            .map_err(|error| failed(error.to_string()))?;
        let (began, mut checked) = (on_core(), 0);
        while on_core() - began < Duration::from_millis(100) {
            for document in &documents {
                let document = std::hint::black_box(document);
                let result = validator.validate(document);
                result.map_err(|error| failed(error.to_string()))?;
                checked += document.len();
            }
        }
        Ok(checked as f64 / (on_core() - began).as_secs_f64())
    }
}

/// Time that this thread has had on a core.
fn on_core() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_json_of_the_length_that_was_asked_for() {
        for document in [Document::Numbers, Document::Text] {
            for bytes in [80, 800, 1000, 4096] {
                let texts = document.several(bytes).unwrap();
                assert!(texts.iter().all(|text| text.len() == bytes));
                for text in &texts {
                    topic::check_json(text).unwrap();
                }
            }
            assert_ne!(
                document.write(1000, 1).unwrap(),
                document.write(1000, 2).unwrap()
            );
            document.write(3, 1).unwrap_err();
        }
    }
}
