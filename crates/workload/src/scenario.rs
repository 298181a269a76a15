//! A scenario: what is run, with how many, how often.

use crate::architecture::Architecture;
use crate::disruption::{self, Disruption, Target};
use crate::document::{Fields, ScenarioError, Text, number_of};
use crate::faults::{Fault, planted};
use crate::pace::{Loop, Rate};
use crate::pattern::Pattern;
use crate::settings::{Confirms, QueueKind, Settings, queue_of};
use crate::shape::Shape;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;

/// The most producers, or consumers, of a run.
pub const MEMBERS_MAX: u64 = 1024;

/// The most messages of a run: sequences, products with percentages and times fit 64 bits.
pub const MESSAGES_MAX: u64 = 1 << 40;

/// The field of `basic.qos` has 16 bits.
const AMQP_PREFETCH_MAX: u64 = u16::MAX as u64;

/// Who carries the messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// Thalweg's own protocol.
    Thalweg,
    /// AMQP 0-9-1, of any server.
    Amqp,
    /// Kafka's protocol.
    Kafka,
    /// Redis streams.
    Redis,
}

impl Backend {
    const WORDS: [(&'static str, Self); 4] = [
        ("thalweg", Self::Thalweg),
        ("amqp", Self::Amqp),
        ("kafka", Self::Kafka),
        ("redis", Self::Redis),
    ];
}

/// Where a backend is. It may hold a password, so `Debug` does not show it, and no result has it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Url(pub String);

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Url(…)")
    }
}

/// How many producers there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Producers {
    /// As many as consumers.
    AsConsumers,
    /// This many, with any number of consumers.
    Count(u64),
}

/// How much is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Amount {
    /// Messages, of all producers together.
    Messages(Vec<UpTo>),
    /// As much as goes in these seconds.
    Seconds(u64),
}

/// A count for runs with few consumers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpTo {
    /// For runs with up to this many.
    pub consumers: u64,
    /// Messages in all.
    pub messages: u64,
}

/// One run of a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Producers.
    pub producers: u64,
    /// Consumers.
    pub consumers: u64,
    /// Which repetition, from 0.
    pub repetition: u64,
}

/// What is run. Made by [`Scenario::from_toml`] or [`crate::Published::read`], both of which check it.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// Its name, in results.
    pub name: String,
    /// Who carries messages.
    pub backend: Backend,
    /// Where it is. The runner starts one if there is none.
    pub url: Option<Url>,
    /// Whether connections are encrypted.
    pub tls: bool,
    /// What stands between.
    pub architecture: Architecture,
    /// Who gets which message.
    pub pattern: Pattern,
    /// What messages look like.
    pub shape: Shape,
    /// Numbers of consumers; each is a run.
    pub consumers: Vec<u64>,
    /// Numbers of producers.
    pub producers: Producers,
    /// How much is sent.
    pub amount: Amount,
    /// How fast.
    pub rate: Rate,
    /// What a producer waits for.
    pub pacing: Loop,
    /// What the backend is asked for.
    pub settings: Settings,
    /// What is done to it on purpose.
    pub disruptions: Vec<Disruption>,
    /// How often each run is made. The published figures are means of 3.
    pub repeat: u64,
    /// Where the bytes of messages come from.
    pub seed: u64,
    /// Clients of a process. Published is 1.
    pub pack: u64,
    /// After so many seconds in which nothing comes a run is over.
    pub idle_seconds: u64,
}

/// Values that cannot be together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Conflict {
    /// Which value is to be changed.
    pub(crate) part: Part,
    pub(crate) found: String,
    pub(crate) expected: String,
}

/// A value that conflicts with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Loop,
    WorkloadRate,
    Messages,
    Queues,
    Faults,
    Prefetch,
    QueueKind,
}

impl Part {
    /// Its key in a file of ours.
    fn key(self) -> &'static str {
        match self {
            Self::Loop => "loop",
            Self::WorkloadRate => "workload.rate_bytes_per_second",
            Self::Messages => "messages",
            Self::Queues => "settings.queues",
            Self::Faults => "faults",
            Self::Prefetch => "settings.prefetch",
            Self::QueueKind => "settings.queue",
        }
    }
}

const KEYS: [&str; 19] = [
    "name",
    "backend",
    "url",
    "tls",
    "architecture",
    "pattern",
    "workload",
    "consumers",
    "producers",
    "messages",
    "seconds",
    "rate",
    "loop",
    "settings",
    "faults",
    "repeat",
    "seed",
    "pack",
    "idle_seconds",
];

/// The published simulator's consumers end after 30 s without a message.
pub(crate) const IDLE_SECONDS: u64 = 30;

impl Scenario {
    /// From a file of ours.
    ///
    /// # Errors
    /// If a key is missing, unknown, or has a value that cannot be, alone or with others.
    pub fn from_toml(text: Text<'_>) -> Result<Self, ScenarioError> {
        let mut fields = Fields::of_toml(text)?;
        let shape = Shape::read(&mut fields)?;
        let pattern = fields
            .word("pattern", &Pattern::WORDS)?
            .ok_or_else(|| fields.missing("pattern", "a pattern, as in \"work sharing\""))?;
        let pacing = Loop::read(&mut fields)?;
        let rate = match pacing {
            Loop::Open => Rate::read(&mut fields)?,
            Loop::Closed | Loop::Share(_) => without_rate(&mut fields)?,
        };
        let scenario = Self {
            name: fields.text("name")?.unwrap_or_else(|| shape.name.clone()),
            backend: fields
                .word("backend", &Backend::WORDS)?
                .unwrap_or(Backend::Thalweg),
            url: fields.text("url")?.map(Url),
            tls: fields
                .word("tls", &[("yes", true), ("no", false)])?
                .unwrap_or(false),
            architecture: Architecture::read(&mut fields)?,
            pattern,
            consumers: consumers(&mut fields)?,
            producers: producers(&mut fields, pattern)?,
            amount: amount(&mut fields)?,
            rate,
            pacing,
            settings: Settings::read(&mut fields, &shape)?,
            shape,
            disruptions: disruptions(&mut fields)?,
            repeat: fields.number("repeat", 1..=1000)?.unwrap_or(3),
            seed: fields.number("seed", 0..=u64::MAX)?.unwrap_or(1),
            pack: fields.number("pack", 1..=MEMBERS_MAX)?.unwrap_or(1),
            idle_seconds: fields
                .number("idle_seconds", 1..=3600)?
                .unwrap_or(IDLE_SECONDS),
        };
        scenario.check().map_err(|conflict| {
            fields.error(conflict.part.key(), &conflict.found, &conflict.expected)
        })?;
        fields.end(&KEYS)?;
        Ok(scenario)
    }

    /// What fields cannot say alone.
    pub(crate) fn check(&self) -> Result<(), Conflict> {
        let has_answers = self.pattern.has_replies() || self.settings.confirms != Confirms::None;
        if self.pacing == Loop::Closed && !has_answers {
            return Err(Conflict {
                part: Part::Loop,
                found: "\"closed\" in a pattern without replies, with no confirms".to_owned(),
                expected: "something to wait for: settings.confirms, or a pattern with replies"
                    .to_owned(),
            });
        }
        if self.rate == Rate::Enforced && self.shape.rate_bytes_per_second.is_none() {
            return Err(Conflict {
                part: Part::WorkloadRate,
                found: "nothing".to_owned(),
                expected: "a rate, for one is to be enforced".to_owned(),
            });
        }
        if self.backend == Backend::Amqp {
            self.check_amqp()?;
        }
        for &consumers in &self.consumers {
            let producers = self.producers_of(consumers);
            self.check_messages(producers, consumers)?;
            self.check_queues(producers, consumers)?;
            self.check_disruptions(producers, consumers)?;
        }
        Ok(())
    }

    /// What AMQP 0-9-1 and its servers cannot do.
    fn check_amqp(&self) -> Result<(), Conflict> {
        let settings = &self.settings;
        if settings.prefetch > AMQP_PREFETCH_MAX {
            return Err(Conflict {
                part: Part::Prefetch,
                found: settings.prefetch.to_string(),
                expected: format!("at most {AMQP_PREFETCH_MAX} with AMQP, or 0 for no bound"),
            });
        }
        let refuse = |found: &str, expected: &str| {
            Err(Conflict {
                part: Part::QueueKind,
                found: found.to_owned(),
                expected: expected.to_owned(),
            })
        };
        match settings.queue {
            QueueKind::Stream => refuse(
                "\"stream\" with AMQP",
                "\"classic\" or \"quorum\": a stream gives each message to all of its consumers, and cannot be exclusive",
            ),
            QueueKind::Quorum if self.pattern.is_broadcast() => refuse(
                "\"quorum\" in a broadcast with AMQP",
                "\"classic\": consumers of a broadcast have exclusive queues, and a quorum queue cannot be exclusive",
            ),
            QueueKind::Quorum if !settings.durable_queues => refuse(
                "\"quorum\" with durable_queues = \"no\" with AMQP",
                "\"classic\", or durable_queues = \"yes\": quorum queues are durable",
            ),
            QueueKind::Classic | QueueKind::Quorum => Ok(()),
        }
    }

    fn check_messages(&self, producers: u64, consumers: u64) -> Result<(), Conflict> {
        let Some(messages) = self.messages_of(consumers) else {
            return Ok(());
        };
        let (each, least) = (messages / producers, self.least_each());
        if each >= least {
            return Ok(());
        }
        Err(Conflict {
            part: Part::Messages,
            found: format!("{messages} messages for {producers} producers, {each} for each"),
            expected: format!(
                "at least {least} for each: a producer sends whole batches of confirms"
            ),
        })
    }

    fn check_queues(&self, producers: u64, consumers: u64) -> Result<(), Conflict> {
        let queues = self.settings.queues;
        let is_used =
            |count: u64, queue| (0..count).any(|one| queue_of(one, count, queues) == queue);
        let is_lonely = |queue| is_used(producers, queue) && !is_used(consumers, queue);
        if self.pattern.is_broadcast() || !(0..queues).any(is_lonely) {
            return Ok(());
        }
        Err(Conflict {
            part: Part::Queues,
            found: format!("{queues} for {producers} producers and {consumers} consumers"),
            expected: "no queue that is written and not read".to_owned(),
        })
    }

    fn check_disruptions(&self, producers: u64, consumers: u64) -> Result<(), Conflict> {
        let is_there = |disruption: &&Disruption| match disruption.target {
            Target::Producer(index) => index < producers,
            Target::Consumer(index) => index < consumers,
            Target::Server | Target::Line => true,
            Target::Proxy => self.architecture != Architecture::Direct,
        };
        match self.disruptions.iter().find(|one| !is_there(one)) {
            None => Ok(()),
            Some(disruption) => Err(Conflict {
                part: Part::Faults,
                found: format!(
                    "\"{disruption}\" with {producers} producers and {consumers} consumers"
                ),
                expected: "one that is there in each run".to_owned(),
            }),
        }
    }

    /// The fewest messages of a producer of which any is sent.
    pub(crate) fn least_each(&self) -> u64 {
        match (self.rate, self.settings.confirms) {
            (Rate::Published, Confirms::Batch(count)) => count,
            _ => 1,
        }
    }

    /// The producers beside so many consumers.
    pub fn producers_of(&self, consumers: u64) -> u64 {
        match self.producers {
            Producers::AsConsumers => consumers,
            Producers::Count(count) => count,
        }
    }

    /// The messages in all beside so many consumers, if they are counted.
    pub fn messages_of(&self, consumers: u64) -> Option<u64> {
        let Amount::Messages(counts) = &self.amount else {
            return None;
        };
        let count = counts.iter().find(|count| consumers <= count.consumers);
        count.map(|count| count.messages)
    }

    /// What one of `count` producers sends of `messages`.
    pub(crate) fn messages_each(&self, messages: u64, index: u64, count: u64) -> u64 {
        let each = messages / count;
        match self.rate {
            Rate::Published if !planted(Fault::SendRemainder) => each - each % self.least_each(),
            _ => each + u64::from(index < messages % count),
        }
    }

    /// The messages that producers of a run send in all, if they are counted: without what is below whole batches.
    pub fn wanted(&self, run: Run) -> Option<u64> {
        let messages = self.messages_of(run.consumers)?;
        let each = |producer| self.messages_each(messages, producer, run.producers);
        Some((0..run.producers).map(each).sum())
    }

    /// All runs: for each number of consumers, each repetition.
    pub fn runs(&self) -> Vec<Run> {
        let of = |&consumers: &u64| {
            let producers = self.producers_of(consumers);
            (0..self.repeat).map(move |repetition| Run {
                producers,
                consumers,
                repetition,
            })
        };
        self.consumers.iter().flat_map(of).collect()
    }
}

/// A loop that waits has no rate beside it.
fn without_rate(fields: &mut Fields) -> Result<Rate, ScenarioError> {
    match fields.value("rate") {
        None => Ok(Rate::Unlimited),
        Some(Value::String(word)) if word == "unlimited" => Ok(Rate::Unlimited),
        Some(other) => Err(fields.wrong(
            "rate",
            &other,
            "\"unlimited\" or nothing, for the loop says when messages are sent",
        )),
    }
}

fn consumers(fields: &mut Fields) -> Result<Vec<u64>, ScenarioError> {
    const KEY: &str = "consumers";
    let within = 1..=MEMBERS_MAX;
    let expected = format!("a number from 1 to {MEMBERS_MAX}, or a list of some that grow");
    let value = fields
        .value(KEY)
        .ok_or_else(|| fields.missing(KEY, &expected))?;
    let list = match &value {
        Value::Array(list) => list.iter().map(|one| number_of(one, &within)).collect(),
        one => number_of(one, &within).map(|one| vec![one]),
    };
    list.filter(|list: &Vec<u64>| !list.is_empty() && list.is_sorted_by(|one, next| one < next))
        .ok_or_else(|| fields.wrong(KEY, &value, &expected))
}

fn producers(fields: &mut Fields, pattern: Pattern) -> Result<Producers, ScenarioError> {
    const KEY: &str = "producers";
    match fields.value(KEY) {
        None if pattern.is_broadcast() => Ok(Producers::Count(1)),
        None => Ok(Producers::AsConsumers),
        Some(Value::String(word)) if word == "as consumers" => Ok(Producers::AsConsumers),
        Some(value) => number_of(&value, &(1..=MEMBERS_MAX))
            .map(Producers::Count)
            .ok_or_else(|| {
                let expected = format!("\"as consumers\" or a number from 1 to {MEMBERS_MAX}");
                fields.wrong(KEY, &value, &expected)
            }),
    }
}

fn amount(fields: &mut Fields) -> Result<Amount, ScenarioError> {
    const KEY: &str = "messages";
    let expected =
        "a number, or a list of { consumers = 8, messages = 128 } whose last one has no consumers";
    let seconds = fields.number("seconds", 1..=86_400)?;
    let value = fields.value(KEY);
    match (seconds, value) {
        (Some(seconds), None) => Ok(Amount::Seconds(seconds)),
        (Some(_), Some(value)) => Err(fields.wrong(KEY, &value, "messages or seconds, not both")),
        (None, None) => Err(fields.missing(KEY, "messages or seconds")),
        (None, Some(Value::Array(list))) if !list.is_empty() => {
            let last = list.len() - 1;
            let read = |(index, value)| up_to(fields, KEY, value, index == last);
            let counts: Vec<UpTo> = list
                .into_iter()
                .enumerate()
                .map(read)
                .collect::<Result<_, _>>()?;
            if !counts.is_sorted_by(|one, next| one.consumers < next.consumers) {
                return Err(fields.error(KEY, "consumers that do not grow", expected));
            }
            Ok(Amount::Messages(counts))
        }
        (None, Some(value)) => number_of(&value, &(1..=MESSAGES_MAX))
            .map(|messages| {
                Amount::Messages(vec![UpTo {
                    consumers: u64::MAX,
                    messages,
                }])
            })
            .ok_or_else(|| fields.wrong(KEY, &value, expected)),
    }
}

fn up_to(at: &Fields, key: &str, value: Value, is_last: bool) -> Result<UpTo, ScenarioError> {
    let mut fields = at.inside(key, value)?;
    let consumers = fields.number("consumers", 1..=MEMBERS_MAX)?;
    let messages = fields
        .number("messages", 1..=MESSAGES_MAX)?
        .ok_or_else(|| fields.missing("messages", "messages in all"))?;
    let consumers = match (consumers, is_last) {
        (Some(consumers), false) => consumers,
        (None, true) => u64::MAX,
        _ => {
            return Err(fields.error(
                "consumers",
                "it in the last entry, or not in another",
                "in all entries but the last one",
            ));
        }
    };
    fields.end(&["consumers", "messages"])?;
    Ok(UpTo {
        consumers,
        messages,
    })
}

fn disruptions(fields: &mut Fields) -> Result<Vec<Disruption>, ScenarioError> {
    const KEY: &str = "faults";
    let list = match fields.value(KEY) {
        None => return Ok(Vec::new()),
        Some(Value::Array(list)) => list,
        Some(other) => return Err(fields.wrong(KEY, &other, "a list of texts")),
    };
    let read = |value: Value| {
        value
            .as_str()
            .and_then(|text| text.parse().ok())
            .ok_or_else(|| fields.wrong(KEY, &value, disruption::EXPECTED))
    };
    list.into_iter().map(read).collect()
}
