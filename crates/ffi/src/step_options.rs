//! Options of streams of steps, as JSON.

use crate::error::Failure;
use crate::options::{Storage, milliseconds};
use client::{Definition, Durability, Incarnation, Offset, Position};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::time::Duration;
use step::{
    Distribution, Keep, Preload, ReaderOptions, Run, StepStart, StreamOptions, WhenFull,
    WriterOptions,
};

/// How a stream is made.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Create {
    partitions: Option<u32>,
    storage: Option<Storage>,
    durability: Option<String>,
    retention: Option<Map<String, Value>>,
    /// Whether one that is there is opened as it is.
    pub exist_ok: bool,
}

impl Create {
    pub fn to_stream(&self) -> Result<StreamOptions, Failure> {
        let mut options = StreamOptions::default();
        options.parts = self.partitions.unwrap_or(options.parts);
        if let Some(storage) = &self.storage {
            let storage = storage.to_client();
            (options.storage, options.storage_config) = (storage.kind, storage.config);
        }
        options.durability = durability(self.durability.as_deref())?;
        if let Some(retention) = &self.retention {
            let definition = json!({ "retention": retention }).to_string();
            let definition = Definition::from_json(&definition)
                .map_err(|error| Failure::invalid(error.to_string()))?;
            options.retention = definition.retention();
        }
        Ok(options)
    }
}

fn durability(name: Option<&str>) -> Result<Option<Durability>, Failure> {
    let level = name.map(str::parse).transpose();
    level.map_err(|error| Failure::invalid(format!("durability: {error}")))
}

/// How much a writer keeps that says no number.
const HELD_BYTES_DEFAULT: u64 = 1 << 30;

/// What becomes of a step that does not fit.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Full {
    #[default]
    Block,
    Discard,
}

/// Where the data of steps is until readers want it.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum KeptAt {
    #[default]
    Server,
    Writer,
}

/// Which groups of readers are given a step.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Given {
    #[default]
    All,
    RoundRobin,
    OnDemand,
}

impl Given {
    fn to_step(self) -> Distribution {
        match self {
            Self::All => Distribution::All,
            Self::RoundRobin => Distribution::RoundRobin,
            Self::OnDemand => Distribution::OnDemand,
        }
    }
}

/// Options of `thalweg_step_writer_open`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Writer {
    writer: Option<String>,
    rank: u32,
    ranks: Option<u32>,
    queue_steps: u32,
    queue_bytes: u64,
    when_full: Full,
    distribution: Given,
    readers: u32,
    session_timeout_ms: Option<u64>,
    open_timeout_ms: Option<u64>,
    timeout_ms: Option<u64>,
    close_timeout_ms: Option<u64>,
    kept_bytes_max: Option<usize>,
    keep: KeptAt,
    held_bytes_max: Option<u64>,
    partitions: Option<u32>,
    storage: Option<Storage>,
    durability: Option<String>,
    retention: Option<Map<String, Value>>,
}

impl Writer {
    /// How the rank writes, and how its stream is made.
    pub fn into_writer(self) -> Result<(WriterOptions, StreamOptions), Failure> {
        let default = WriterOptions::default();
        let writer = WriterOptions {
            name: self.writer.unwrap_or(default.name),
            rank: self.rank,
            ranks: self.ranks.unwrap_or(default.ranks),
            queue_steps: self.queue_steps,
            queue_bytes: self.queue_bytes,
            when_full: match self.when_full {
                Full::Block => WhenFull::Block,
                Full::Discard => WhenFull::Discard,
            },
            distribution: self.distribution.to_step(),
            readers_min: self.readers,
            session_timeout: milliseconds(self.session_timeout_ms, default.session_timeout),
            open_timeout: milliseconds(self.open_timeout_ms, default.open_timeout),
            timeout: milliseconds(self.timeout_ms, default.timeout),
            close_timeout: milliseconds(self.close_timeout_ms, default.close_timeout),
            durability: durability(self.durability.as_deref())?,
            kept_bytes_max: self.kept_bytes_max.unwrap_or(default.kept_bytes_max),
            keep: match self.keep {
                KeptAt::Server => Keep::Server,
                KeptAt::Writer => Keep::Writer {
                    bytes_max: self.held_bytes_max.unwrap_or(HELD_BYTES_DEFAULT),
                },
            },
        };
        let stream = Create {
            partitions: self.partitions,
            storage: self.storage,
            durability: self.durability,
            retention: self.retention,
            exist_ok: true,
        };
        Ok((writer, stream.to_stream()?))
    }
}

/// Where a reader begins.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Start {
    Named(Named),
    Run(AtRun),
    At(AtRecord),
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Named {
    Cursor,
    Oldest,
    Newest,
    Next,
    Open,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AtRun {
    run: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AtRecord {
    incarnation: u64,
    offset: u64,
}

/// Options of `thalweg_step_reader_open`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Reader {
    name: Option<String>,
    distribution: Given,
    group: Option<String>,
    rank: u32,
    ranks: Option<u32>,
    start: Option<Value>,
    latest: bool,
    session_timeout_ms: Option<u64>,
    open_timeout_ms: Option<u64>,
    stream_timeout_ms: u64,
    preload: Option<Ahead>,
    preload_bytes_max: Option<u64>,
}

/// What is read of each step before it is asked for.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Ahead {
    All,
    Nothing,
}

impl Reader {
    /// How long to wait for a stream that is not there.
    pub fn stream_timeout(&self) -> Duration {
        Duration::from_millis(self.stream_timeout_ms)
    }

    pub fn to_reader(&self) -> Result<ReaderOptions, Failure> {
        let default = ReaderOptions::default();
        Ok(ReaderOptions {
            name: self.name.clone().unwrap_or(default.name),
            distribution: self.distribution.to_step(),
            group: self.group.clone(),
            rank: self.rank,
            ranks: self.ranks.unwrap_or(default.ranks),
            start: self.start()?,
            latest: self.latest,
            session_timeout: milliseconds(self.session_timeout_ms, default.session_timeout),
            open_timeout: milliseconds(self.open_timeout_ms, default.open_timeout),
            preload: match self.preload {
                Some(Ahead::All) => Preload::All,
                Some(Ahead::Nothing) | None => Preload::Nothing,
            },
            preload_bytes_max: self.preload_bytes_max.unwrap_or(default.preload_bytes_max),
        })
    }

    fn start(&self) -> Result<StepStart, Failure> {
        let Some(given) = &self.start else {
            return Ok(StepStart::Cursor);
        };
        let start = serde_json::from_value(given.clone()).map_err(|_| {
            Failure::invalid(format!(
                "start is \"cursor\", \"oldest\", \"newest\", \"next\", \"open\", {{\"run\"}} or \
                 {{\"incarnation\", \"offset\"}}, not {given}"
            ))
        })?;
        Ok(match start {
            Start::Named(Named::Cursor) => StepStart::Cursor,
            Start::Named(Named::Oldest) => StepStart::Oldest,
            Start::Named(Named::Newest) => StepStart::Newest,
            Start::Named(Named::Next) => StepStart::Next,
            Start::Named(Named::Open) => StepStart::OpenRun,
            Start::Run(AtRun { run }) => StepStart::Run(Run(run)),
            Start::At(AtRecord {
                incarnation,
                offset,
            }) => StepStart::At(Position {
                incarnation: Incarnation(incarnation),
                offset: Offset(offset),
            }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(json: &str) -> Result<StepStart, Failure> {
        let reader: Reader = serde_json::from_str(json).unwrap();
        Ok(reader.to_reader()?.start)
    }

    #[test]
    fn where_a_reader_begins() {
        let begins = [
            ("{}", StepStart::Cursor),
            (r#"{"start": "newest"}"#, StepStart::Newest),
            (r#"{"start": "open"}"#, StepStart::OpenRun),
            (r#"{"start": {"run": 3}}"#, StepStart::Run(Run(3))),
            (
                r#"{"start": {"incarnation": 1, "offset": 7}}"#,
                StepStart::At(Position {
                    incarnation: Incarnation(1),
                    offset: Offset(7),
                }),
            ),
        ];
        for (json, expected) in begins {
            assert_eq!(start(json).unwrap(), expected, "{json}");
        }
        for json in [
            r#"{"start": "last"}"#,
            r#"{"start": {"run": -1}}"#,
            r#"{"start": {"run": 1, "offset": 7}}"#,
            r#"{"start": 7}"#,
        ] {
            let refusal = format!("{:?}", start(json).unwrap_err());
            assert!(refusal.contains("start is"), "{refusal}");
        }
    }

    #[test]
    fn how_a_stream_is_made() {
        let json = r#"{"partitions": 3, "storage": "memory", "durability": "memory",
                       "retention": {"count": 5}, "rank": 1, "ranks": 2, "when_full": "discard",
                       "keep": "writer", "held_bytes_max": 7}"#;
        let writer: Writer = serde_json::from_str(json).unwrap();
        let (writer, stream) = writer.into_writer().unwrap();
        assert_eq!((writer.rank, writer.ranks, stream.parts), (1, 2, 3));
        assert_eq!(stream.storage, "memory");
        assert_eq!(writer.durability, Some(Durability::Memory));
        assert_eq!(writer.when_full, WhenFull::Discard);
        assert_eq!(writer.keep, Keep::Writer { bytes_max: 7 });
        assert_ne!(stream.retention, StreamOptions::default().retention);
        for json in [
            r#"{"durability": "some"}"#,
            r#"{"retention": {"colour": 1}}"#,
        ] {
            let create: Create = serde_json::from_str(json).unwrap();
            let refused = create.to_stream().unwrap_err();
            assert_eq!(refused.code, 3, "{json}");
        }
    }
}
