//! What a backend is asked for: confirms, acknowledgements, queues.

use crate::document::{Fields, ScenarioError, number_of};
use crate::shape::Shape;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How a producer learns that its messages are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Confirms {
    /// Not at all.
    None,
    /// By one message at a time: the next one waits for it.
    Each,
    /// One by one, while others are sent.
    Async,
    /// By this many at a time.
    Batch(u64),
}

/// How a consumer acknowledges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Acks {
    /// By receiving.
    Automatic,
    /// Each message.
    Each,
    /// Each so many messages, all of them at once.
    Every(u64),
}

/// The kinds of queues that RabbitMQ has. Other backends have one kind and say so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QueueKind {
    /// One node's.
    Classic,
    /// Replicated.
    Quorum,
    /// A log.
    Stream,
}

impl QueueKind {
    pub(crate) const WORDS: [(&'static str, Self); 3] = [
        ("classic", Self::Classic),
        ("quorum", Self::Quorum),
        ("stream", Self::Stream),
    ];
}

/// What becomes of a message for a full queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Overflow {
    /// The oldest message is dropped.
    DropHead,
    /// It is refused.
    RejectPublish,
    /// The oldest message goes to a queue of its own.
    DeadLetter,
}

impl Overflow {
    pub(crate) const WORDS: [(&'static str, Self); 3] = [
        ("drop-head", Self::DropHead),
        ("reject-publish", Self::RejectPublish),
        ("dead-letter", Self::DeadLetter),
    ];
}

/// The settings of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Of producers.
    pub confirms: Confirms,
    /// Of consumers.
    pub acks: Acks,
    /// The most messages that a consumer has and did not acknowledge. 0 is no bound.
    pub prefetch: u64,
    /// Queues of a shared stream. In a broadcast each consumer has its own.
    pub queues: u64,
    /// Whether messages survive a restart.
    pub durable_messages: bool,
    /// Whether queues do.
    pub durable_queues: bool,
    /// The kind of queues.
    pub queue: QueueKind,
    /// The most messages of a queue.
    pub queue_messages_max: u64,
    /// What happens at that bound.
    pub overflow: Overflow,
}

/// The queue of one of `count` producers or consumers: the published simulator's division.
pub fn queue_of(index: u64, count: u64, queues: u64) -> u64 {
    index * queues / count.max(1)
}

/// The most messages of each of the settings that count some.
pub(crate) const COUNT_MAX: u64 = 1 << 24;

/// The most queues.
pub(crate) const QUEUES_MAX: u64 = 1024;

const KEYS: [&str; 9] = [
    "confirms",
    "acks",
    "prefetch",
    "queues",
    "durable_messages",
    "durable_queues",
    "queue",
    "queue_messages_max",
    "overflow",
];

impl Settings {
    /// Those of the study across facilities, for its workload of this name: 64 of everything and two queues;
    /// for the generic one 16, and one queue.
    pub fn published(shape: &Shape) -> Self {
        let (count, queues) = match shape.name.as_str() {
            "generic" => (16, 1),
            _ => (64, 2),
        };
        Self {
            confirms: Confirms::Batch(count),
            acks: Acks::Every(count),
            prefetch: count,
            queues,
            durable_messages: false,
            durable_queues: false,
            queue: QueueKind::Classic,
            queue_messages_max: 131_072,
            overflow: Overflow::RejectPublish,
        }
    }

    /// The table `settings`: what it leaves out is as published.
    pub(crate) fn read(fields: &mut Fields, shape: &Shape) -> Result<Self, ScenarioError> {
        let usual = Self::published(shape);
        let Some(mut table) = fields.table("settings")? else {
            return Ok(usual);
        };
        let yes = [("yes", true), ("no", false)];
        let settings = Self {
            confirms: confirms(&mut table)?.unwrap_or(usual.confirms),
            acks: acks(&mut table)?.unwrap_or(usual.acks),
            prefetch: table
                .number("prefetch", 0..=COUNT_MAX)?
                .unwrap_or(usual.prefetch),
            queues: table
                .number("queues", 1..=QUEUES_MAX)?
                .unwrap_or(usual.queues),
            durable_messages: table
                .word("durable_messages", &yes)?
                .unwrap_or(usual.durable_messages),
            durable_queues: table
                .word("durable_queues", &yes)?
                .unwrap_or(usual.durable_queues),
            queue: table
                .word("queue", &QueueKind::WORDS)?
                .unwrap_or(usual.queue),
            queue_messages_max: table
                .number("queue_messages_max", 1..=u64::MAX)?
                .unwrap_or(usual.queue_messages_max),
            overflow: table
                .word("overflow", &Overflow::WORDS)?
                .unwrap_or(usual.overflow),
        };
        table.end(&KEYS)?;
        Ok(settings)
    }
}

fn confirms(fields: &mut Fields) -> Result<Option<Confirms>, ScenarioError> {
    let words = [
        ("none", Confirms::None),
        ("each", Confirms::Each),
        ("async", Confirms::Async),
    ];
    word_or_count(fields, "confirms", &words, ("batch", Confirms::Batch))
}

fn acks(fields: &mut Fields) -> Result<Option<Acks>, ScenarioError> {
    let words = [("automatic", Acks::Automatic), ("each", Acks::Each)];
    word_or_count(fields, "acks", &words, ("every", Acks::Every))
}

/// A word, or a table with one count in it.
fn word_or_count<T: Copy>(
    fields: &mut Fields,
    key: &str,
    words: &[(&str, T)],
    (counted, of_count): (&str, fn(u64) -> T),
) -> Result<Option<T>, ScenarioError> {
    let Some(value) = fields.value(key) else {
        return Ok(None);
    };
    let word = words.iter().find(|(word, _)| value.as_str() == Some(word));
    let count = || match &value {
        Value::Object(table) if table.len() == 1 => {
            number_of(table.get(counted)?, &(1..=COUNT_MAX))
        }
        _ => None,
    };
    match word
        .map(|&(_, meant)| meant)
        .or_else(|| count().map(of_count))
    {
        Some(meant) => Ok(Some(meant)),
        None => {
            let words = crate::document::one_of(words.iter().map(|&(word, _)| word));
            let expected = format!("{words}, or {{ {counted} = 64 }} with 1 to {COUNT_MAX}");
            Err(fields.wrong(key, &value, &expected))
        }
    }
}
