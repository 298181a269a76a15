//! What a topic is: the part that is stored with it and the same for everybody.

mod parse;
mod write;

use crate::overflow::{Overflow, RETRY_AFTER_MS_MAX};
use crate::placement::Placement;
use crate::plugin::PluginRef;
use crate::selector::SelectorKind;
use crate::serializer::SerializerKind;
use crate::spread::{PartOf, Spread};
use crate::validator::ValidatorKind;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Map;
use std::fmt;
use wire::batch::{BLOCK_BYTES_DEFAULT, DATA_ALIGNMENT};
use wire::frame::HEAD_BYTES_MAX;
use wire::{Durability, ErrorCode, ErrorReply, TopicId};

/// The version of definitions that this code reads and writes.
pub const DEFINITION_VERSION: u64 = 1;
/// The longest definition, as JSON. It travels in the head of a frame, beside
/// the topic's name and the storage of its partitions.
pub const DEFINITION_BYTES_MAX: usize = 256 << 10;
/// How long an event's metadata may be unless the topic says otherwise.
pub const METADATA_BYTES_MAX_DEFAULT: u32 = 1 << 20;
/// How long a topic may let metadata become.
pub const METADATA_BYTES_MAX_LIMIT: u32 = 64 << 20;
/// The most partitions of a topic.
pub const PARTITIONS_MAX: usize = 4096;
/// Bytes of data that one checksum covers, unless the topic says otherwise.
pub const DATA_BLOCK_BYTES_DEFAULT: u32 = BLOCK_BYTES_DEFAULT;
/// The smallest block: the batch format has none below.
pub const DATA_BLOCK_BYTES_MIN: u32 = 512;
/// The largest block: data is aligned so that blocks of no more than this
/// begin and end with pages.
pub const DATA_BLOCK_BYTES_MAX: u32 = DATA_ALIGNMENT as u32;

/// The partition of pinned steps' records, of a topic of steps that has one ...
pub const PINNED_RECORDS: u32 = 1;
/// ... and that of their parts.
pub const PINNED_PARTS: u32 = 2;

/// How many consumers a topic may name in `keep_until_acknowledged`.
pub const KEEPERS_MAX: usize = 64;

/// The keys that may be changed while a topic is in use.
const ALTERABLE: [&str; 7] = [
    "validator",
    "retention",
    "keep_until_acknowledged",
    "overflow",
    "metadata_bytes_max",
    MIRROR_OF,
    SPREAD,
];

/// The key of a spread topic's partitions, which are only ever added.
const SPREAD: &str = "spread";

/// The key that makes a topic a mirror. It is never altered to anything but null.
const MIRROR_OF: &str = "mirror_of";

const _: () = assert!(DEFINITION_BYTES_MAX <= HEAD_BYTES_MAX as usize / 4);
const _: () = assert!(METADATA_BYTES_MAX_DEFAULT <= METADATA_BYTES_MAX_LIMIT);
const _: () = assert!(DATA_BLOCK_BYTES_MAX as u64 == DATA_ALIGNMENT);
const _: () = assert!(
    DATA_BLOCK_BYTES_MIN <= DATA_BLOCK_BYTES_DEFAULT
        && DATA_BLOCK_BYTES_DEFAULT <= DATA_BLOCK_BYTES_MAX
);

// Least and greatest values of settings, in the type that JSON is read as.
// Definitions are written in TOML too, whose integers end at i64::MAX.
const RETENTION_RANGE: (u64, u64) = (1, i64::MAX as u64);
const RETRY_AFTER_MS_RANGE: (u64, u64) = (1, RETRY_AFTER_MS_MAX as u64);
const ONE_IN_RANGE: (u64, u64) = (1, u32::MAX as u64);
const METADATA_BYTES_MAX_RANGE: (u64, u64) = (1, METADATA_BYTES_MAX_LIMIT as u64);
const DATA_BLOCK_BYTES_RANGE: (u64, u64) =
    (DATA_BLOCK_BYTES_MIN as u64, DATA_BLOCK_BYTES_MAX as u64);

/// A topic's definition. It was checked when it was made: a program that holds one
/// holds a good one.
///
/// ```
/// use topic::{Definition, Retention, SelectorKind};
///
/// let definition = Definition::builder()
///     .partition_selector(SelectorKind::KeyHash)
///     .retention(Retention { bytes: Some(1 << 30), ..Retention::default() })
///     .build()?;
/// assert_eq!(Definition::from_json(&definition.to_json())?, definition);
/// # Ok::<(), topic::DefinitionError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Definition {
    validator: ValidatorKind,
    partition_selector: SelectorKind,
    serializer: SerializerKind,
    durability: Option<Durability>,
    retention: Retention,
    keep_until_acknowledged: Vec<String>,
    overflow: Overflow,
    metadata_bytes_max: u32,
    data_block_bytes: u32,
    validate_on_server: bool,
    kind: TopicKind,
    pins: bool,
    mirror_of: Option<MirrorOf>,
    spread: Option<Spread>,
    part_of: Option<PartOf>,
    placement: Placement,
}

/// What a mirror is a copy of. Nobody but its link writes it, until this is taken away from the
/// definition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MirrorOf {
    /// The source topic's name, for people.
    pub topic: String,
    /// Its id, in hexadecimal: another one is another topic.
    pub id: String,
    /// The name of the link that writes the copy.
    pub link: String,
}

/// What a topic keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TopicKind {
    /// Events, each by itself.
    #[default]
    Events,
    /// Steps: records in partition 0, which refer to parts in the others. Written by ranks of a
    /// program, seen whole.
    Steps,
}

impl TopicKind {
    /// The word for it in a definition.
    pub fn name(self) -> &'static str {
        match self {
            Self::Events => "events",
            Self::Steps => "steps",
        }
    }
}

/// How much is kept, of each partition or of all together: what exceeds any of the
/// limits is dropped, oldest first. Without a limit everything is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Retention {
    /// Bytes stored of a partition, data included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Bytes stored of the topic, data included. Each partition has an equal share,
    /// rounded down; partitions that are added make the shares smaller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_bytes: Option<u64>,
    /// Age since the append, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_ms: Option<u64>,
    /// Number of events of a partition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
}

impl Retention {
    /// Whether nothing is ever dropped.
    pub fn keeps_all(&self) -> bool {
        *self == Self::default()
    }

    /// What holds for each partition of a topic that has so many.
    pub fn of_partition(self, partitions: usize) -> Self {
        let share = self
            .total_bytes
            .map(|total| (total / partitions.max(1) as u64).max(1));
        Self {
            bytes: self.bytes.into_iter().chain(share).min(),
            total_bytes: None,
            ..self
        }
    }

    /// Whether the bytes have a bound.
    fn bounds_bytes(&self) -> bool {
        self.bytes.or(self.total_bytes).is_some()
    }
}

impl Definition {
    /// Begins a definition with all defaults.
    pub fn builder() -> DefinitionBuilder {
        DefinitionBuilder {
            definition: Self::default(),
        }
    }

    /// Reads and checks a definition. What is left out has its default.
    ///
    /// # Errors
    /// The first key that is unknown, missing, doubled or has a bad value.
    pub fn from_json(text: &str) -> Result<Self, DefinitionError> {
        parse::text(text)?.build()
    }

    /// The definition with `changes` made to it: a JSON object of the keys
    /// that may change while the topic is in use, each with its new value, or
    /// null for its default.
    ///
    /// # Errors
    /// A key that may not change, or a bad value.
    pub fn altered(&self, changes: &str) -> Result<Self, DefinitionError> {
        let changes = parse::object(changes)?;
        let mut members = parse::object(&self.to_json())?;
        for (key, value) in changes {
            if !ALTERABLE.contains(&key.as_str()) {
                let reason = format!(
                    "cannot be changed while the topic exists; {} can",
                    ALTERABLE.join(", ")
                );
                return Err(DefinitionError::new(&key, reason));
            }
            if key == MIRROR_OF && !value.is_null() {
                let reason = "is null if it is changed: a mirror becomes a topic of its own, and no topic a mirror";
                return Err(DefinitionError::new(&key, reason));
            }
            match value {
                serde_json::Value::Null => members.remove(&key),
                value => members.insert(key, value),
            };
        }
        let altered = parse::members(&members)?.build()?;
        let continues = match (&altered.spread, &self.spread) {
            (Some(now), Some(before)) => now.continues(before),
            (now, before) => now == before,
        };
        if !continues {
            let reason = "is changed by partitions that are added to those of a spread topic alone";
            return Err(DefinitionError::new(SPREAD, reason));
        }
        Ok(altered)
    }

    /// The definition as JSON: all keys in a fixed order, except limits that
    /// are not set.
    pub fn to_json(&self) -> String {
        // Keys are strings and numbers are integers all the way down, apart
        // from the schema, which was read from JSON.
        serde_json::to_string(self).expect("a definition is JSON")
    }

    /// What is checked of metadata.
    pub fn validator(&self) -> &ValidatorKind {
        &self.validator
    }

    /// Who chooses the partition of an event.
    pub fn partition_selector(&self) -> &SelectorKind {
        &self.partition_selector
    }

    /// How metadata travels.
    pub fn serializer(&self) -> &SerializerKind {
        &self.serializer
    }

    /// What an ack survives; `None` is the strongest that each partition's
    /// storage can give.
    pub fn durability(&self) -> Option<Durability> {
        self.durability
    }

    /// How much of each partition is kept.
    pub fn retention(&self) -> Retention {
        self.retention
    }

    /// Names of consumers: nothing that one of them has not acknowledged is
    /// dropped by retention. Without any limit of retention, what all of them
    /// have acknowledged is dropped.
    pub fn keep_until_acknowledged(&self) -> &[String] {
        &self.keep_until_acknowledged
    }

    /// What happens when the consumers of [`Definition::keep_until_acknowledged`]
    /// are so far behind that the retention's limits would be exceeded.
    pub fn overflow(&self) -> Overflow {
        self.overflow
    }

    /// The longest metadata of an event, in bytes as serialized.
    pub fn metadata_bytes_max(&self) -> u32 {
        self.metadata_bytes_max
    }

    /// Bytes of data that one checksum covers; a power of two.
    pub fn data_block_bytes(&self) -> u32 {
        self.data_block_bytes
    }

    /// Whether the server checks metadata too, not only the clients.
    pub fn validate_on_server(&self) -> bool {
        self.validate_on_server
    }

    /// What the topic keeps.
    pub fn kind(&self) -> TopicKind {
        self.kind
    }

    /// Whether steps can be pinned, so that retention leaves them: then partition 1 is for their
    /// records and partition 2 for their parts.
    pub fn pins(&self) -> bool {
        self.pins
    }

    /// The first partition of a topic of steps to which ranks write: those before have records, and
    /// what is pinned.
    pub fn first_parts(&self) -> u32 {
        match self.pins {
            true => PINNED_PARTS + 1,
            false => 1,
        }
    }

    /// What it is a copy of, if it is a mirror.
    pub fn mirror_of(&self) -> Option<&MirrorOf> {
        self.mirror_of.as_ref()
    }

    /// The partitions, if they are spread over nodes: each is a topic by itself ([`Definition::of_part`]), and this one has none.
    pub fn spread(&self) -> Option<&Spread> {
        self.spread.as_ref()
    }

    /// The same, with its partitions spread over nodes.
    ///
    /// # Errors
    /// What cannot be spread: steps and mirrors.
    pub fn with_spread(&self, spread: Spread) -> Result<Self, DefinitionError> {
        let definition = self.clone();
        DefinitionBuilder { definition }.spread(spread).build()
    }

    /// Which partition of a spread topic it is, if it is one.
    pub fn part_of(&self) -> Option<&PartOf> {
        self.part_of.as_ref()
    }

    /// On which nodes it is made; of a spread topic those of its partitions too, for which nothing else was said.
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// The same, made on nodes that have these labels.
    pub fn with_placement(&self, placement: Placement) -> Self {
        Self {
            placement,
            ..self.clone()
        }
    }

    /// The same on whichever nodes: of a topic that goes with another one, wherever that is.
    pub fn anywhere(&self) -> Self {
        Self {
            placement: Placement::default(),
            spread: self.spread.as_ref().map(Spread::anywhere),
            ..self.clone()
        }
    }

    /// The definition of a partition of a spread topic with this one, which has the id `topic`. A limit of the whole topic is
    /// divided among the partitions that there are.
    pub fn of_part(&self, topic: TopicId, index: u32) -> Self {
        let partitions = self.spread.as_ref().map_or(1, Spread::count);
        let making = self.spread.as_ref();
        let making = making.and_then(|spread| spread.makings().nth(index as usize));
        let own = making.map(|making| making.placement);
        let own = own.filter(|placement| !placement.is_anywhere());
        Self {
            placement: own.unwrap_or(&self.placement).clone(),
            retention: self.retention.of_partition(partitions as usize),
            spread: None,
            part_of: Some(PartOf {
                topic: topic.to_string(),
                index,
            }),
            ..self.clone()
        }
    }

    /// What is to be changed of a partition's definition, as [`Definition::altered`] takes it, so that it is of this one.
    pub fn changes_to_part(&self, topic: TopicId, index: u32) -> String {
        let part = self.of_part(topic, index).to_json();
        let members: Map<String, serde_json::Value> =
            serde_json::from_str(&part).expect("a definition is a JSON object");
        let changes = ALTERABLE
            .iter()
            .filter(|key| ![MIRROR_OF, SPREAD].contains(*key));
        let changes = changes.map(|key| {
            let value = members.get(*key).cloned().unwrap_or_default();
            ((*key).to_owned(), value)
        });
        serde_json::Value::Object(changes.collect()).to_string()
    }

    /// The definition of a mirror of a topic with this one. Who is waited for at the source is not
    /// waited for at the copy, whose nodes are others.
    ///
    /// # Errors
    /// A topic of steps, whose streams write it themselves, or one that is spread, or a partition of one.
    pub fn mirrored(&self, of: MirrorOf) -> Result<Self, DefinitionError> {
        let mut definition = self.clone();
        definition.keep_until_acknowledged = Vec::new();
        definition.overflow = Overflow::Grow;
        definition.placement = Placement::default();
        DefinitionBuilder { definition }.mirror_of(of).build()
    }

    /// The plugins that a client of the topic needs, each with its key.
    pub fn plugins(&self) -> impl Iterator<Item = (&'static str, &PluginRef)> {
        [
            ("validator", self.validator.plugin()),
            ("partition_selector", self.partition_selector.plugin()),
            ("serializer", self.serializer.plugin()),
        ]
        .into_iter()
        .filter_map(|(key, plugin)| Some((key, plugin?)))
    }

    /// Refuses a number of partitions that the partition selector has no use
    /// for. A topic may have none yet.
    ///
    /// # Errors
    /// Names both numbers.
    pub fn check_partition_count(&self, count: u32) -> Result<(), DefinitionError> {
        if self.part_of.is_some() {
            return match count {
                0 | 1 => Ok(()),
                _ => Err(DefinitionError::new(
                    "part_of",
                    "a partition of a spread topic is one partition",
                )),
            };
        }
        let count = match &self.spread {
            None => count,
            Some(spread) if count == 0 => spread.count(),
            Some(_) => {
                let reason = "the partitions of a spread topic are topics by themselves";
                return Err(DefinitionError::new(SPREAD, reason));
            }
        };
        match self.partition_selector.partition_count() {
            Some(ranges) if count != ranges && count != 0 => Err(DefinitionError::new(
                "partition_selector.boundaries",
                format!(
                    "{} boundaries are for {ranges} partitions; the topic would have {count}",
                    ranges + 1
                ),
            )),
            _ if self.kind == TopicKind::Steps && count == 1 => Err(DefinitionError::new(
                "kind",
                "steps need two partitions or more: one for records, the others for parts",
            )),
            _ if self.pins && count != 0 && count <= self.first_parts() => {
                Err(DefinitionError::new(
                    "pins",
                    "pinned steps need four partitions or more: one for records, two for what is pinned, the others for parts",
                ))
            }
            _ => Ok(()),
        }
    }

    /// Refuses metadata that is longer than the topic allows.
    ///
    /// # Errors
    /// Names the length and the limit; travels as [`ErrorCode::LimitExceeded`].
    pub fn check_metadata_bytes(&self, bytes: usize) -> Result<(), ErrorReply> {
        let bytes_max = self.metadata_bytes_max;
        if bytes <= bytes_max as usize {
            return Ok(());
        }
        let message =
            format!("metadata of {bytes} bytes; the topic's metadata_bytes_max is {bytes_max}");
        Err(ErrorReply::fatal(ErrorCode::LimitExceeded, message))
    }
}

impl Default for Definition {
    fn default() -> Self {
        Self {
            validator: ValidatorKind::None,
            partition_selector: SelectorKind::RoundRobin,
            serializer: SerializerKind::Json,
            durability: None,
            retention: Retention::default(),
            keep_until_acknowledged: Vec::new(),
            overflow: Overflow::Grow,
            metadata_bytes_max: METADATA_BYTES_MAX_DEFAULT,
            data_block_bytes: DATA_BLOCK_BYTES_DEFAULT,
            validate_on_server: false,
            kind: TopicKind::Events,
            pins: false,
            mirror_of: None,
            spread: None,
            part_of: None,
            placement: Placement::default(),
        }
    }
}

/// Makes a [`Definition`]; see its methods for what the settings mean.
#[derive(Debug, Clone)]
pub struct DefinitionBuilder {
    definition: Definition,
}

impl DefinitionBuilder {
    /// What is checked of metadata; nothing by default.
    pub fn validator(mut self, validator: ValidatorKind) -> Self {
        self.definition.validator = validator;
        self
    }

    /// Who chooses the partition of an event; round robin by default.
    pub fn partition_selector(mut self, selector: SelectorKind) -> Self {
        self.definition.partition_selector = selector;
        self
    }

    /// How metadata travels; as JSON text by default.
    pub fn serializer(mut self, serializer: SerializerKind) -> Self {
        self.definition.serializer = serializer;
        self
    }

    /// What an ack survives; the strongest that the storage can give by default.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.definition.durability = Some(durability);
        self
    }

    /// How much of each partition is kept; everything by default.
    pub fn retention(mut self, retention: Retention) -> Self {
        self.definition.retention = retention;
        self
    }

    /// Which consumers must have acknowledged an event before it may be
    /// dropped; none by default.
    pub fn keep_until_acknowledged(mut self, consumers: Vec<String>) -> Self {
        self.definition.keep_until_acknowledged = consumers;
        self
    }

    /// What happens when there is no space; [`Overflow::Grow`] by default.
    /// Others need a retention by bytes or count, and consumers to wait for.
    pub fn overflow(mut self, overflow: Overflow) -> Self {
        self.definition.overflow = overflow;
        self
    }

    /// The longest metadata, [`METADATA_BYTES_MAX_DEFAULT`] by default.
    pub fn metadata_bytes_max(mut self, bytes: u32) -> Self {
        self.definition.metadata_bytes_max = bytes;
        self
    }

    /// Bytes that one checksum covers, [`DATA_BLOCK_BYTES_DEFAULT`] by default.
    pub fn data_block_bytes(mut self, bytes: u32) -> Self {
        self.definition.data_block_bytes = bytes;
        self
    }

    /// Whether the server checks metadata too; not by default.
    pub fn validate_on_server(mut self, yes: bool) -> Self {
        self.definition.validate_on_server = yes;
        self
    }

    /// What the topic keeps; events by default. A topic of steps has no validator, serializer,
    /// partition selector, overflow and names to wait for: its streams have their own.
    pub fn kind(mut self, kind: TopicKind) -> Self {
        self.definition.kind = kind;
        self
    }

    /// Whether steps can be pinned; not by default. For topics of steps, and takes two partitions
    /// of its own.
    pub fn pins(mut self, yes: bool) -> Self {
        self.definition.pins = yes;
        self
    }

    /// What it is a copy of; nothing by default.
    pub fn mirror_of(mut self, of: MirrorOf) -> Self {
        self.definition.mirror_of = Some(of);
        self
    }

    /// The partitions, each of which is a topic by itself on a node of its own; none by default. Not for steps and mirrors.
    pub fn spread(mut self, spread: Spread) -> Self {
        self.definition.spread = Some(spread);
        self
    }

    /// On which nodes of a cluster it is made; on any by default.
    pub fn placement(mut self, placement: Placement) -> Self {
        self.definition.placement = placement;
        self
    }

    /// Which partition of a spread topic it is; none by default.
    pub(crate) fn part_of(mut self, of: PartOf) -> Self {
        self.definition.part_of = Some(of);
        self
    }

    /// The definition.
    ///
    /// # Errors
    /// The first setting that is out of its range.
    pub fn build(self) -> Result<Definition, DefinitionError> {
        let mut definition = self.definition;
        check_mirror(&definition)?;
        check_spread(&definition)?;
        if definition.kind == TopicKind::Steps {
            settle_steps(&mut definition)?;
        } else if definition.pins {
            return Err(DefinitionError::new("pins", "is for topics of steps"));
        }
        let Retention {
            bytes,
            total_bytes,
            age_ms,
            count,
        } = definition.retention;
        for (key, limit) in [
            ("retention.bytes", bytes),
            ("retention.total_bytes", total_bytes),
            ("retention.age_ms", age_ms),
            ("retention.count", count),
        ] {
            if let Some(limit) = limit {
                check_range(key, RETENTION_RANGE, limit)?;
            }
        }
        check_keepers(&definition.keep_until_acknowledged)?;
        check_overflow(&definition)?;
        let bytes = definition.metadata_bytes_max.into();
        check_range("metadata_bytes_max", METADATA_BYTES_MAX_RANGE, bytes)?;
        let bytes = definition.data_block_bytes.into();
        check_range("data_block_bytes", DATA_BLOCK_BYTES_RANGE, bytes)?;
        if !bytes.is_power_of_two() {
            let reason = format!("expected a power of two, found {bytes}");
            return Err(DefinitionError::new("data_block_bytes", reason));
        }
        if definition.validate_on_server
            && let Some((key, plugin)) = definition
                .plugins()
                .find(|(key, _)| *key != "partition_selector")
        {
            let reason = format!(
                "the server has no plugins, and {key} is the plugin {:?}",
                plugin.name()
            );
            return Err(DefinitionError::new("validate_on_server", reason));
        }
        let bytes = definition.to_json().len();
        if bytes > DEFINITION_BYTES_MAX {
            return Err(DefinitionError::too_long(bytes));
        }
        Ok(definition)
    }
}

fn check_mirror(definition: &Definition) -> Result<(), DefinitionError> {
    let Some(of) = &definition.mirror_of else {
        return Ok(());
    };
    let refuse = |key: &str, reason: String| Err(DefinitionError::new(key, reason));
    if definition.kind == TopicKind::Steps {
        let reason = "is of a topic of steps, which cannot be mirrored: its records are written by the server that has it";
        return refuse(MIRROR_OF, reason.to_owned());
    }
    if let Err(error) = crate::check_topic_name(&of.topic) {
        return refuse("mirror_of.topic", error.to_string());
    }
    if let Err(error) = crate::check_consumer_name(&of.link) {
        return refuse("mirror_of.link", error.to_string());
    }
    if u128::from_str_radix(&of.id, 16).is_err() {
        return refuse("mirror_of.id", format!("{:?} is no topic's id", of.id));
    }
    Ok(())
}

fn check_spread(definition: &Definition) -> Result<(), DefinitionError> {
    if definition.spread.is_none() && definition.part_of.is_none() {
        return Ok(());
    }
    let refuse = |key: &str, reason: &str| Err(DefinitionError::new(key, reason));
    if definition.kind == TopicKind::Steps {
        return refuse(
            SPREAD,
            "is not for steps: their records and parts are on one node",
        );
    }
    if definition.mirror_of.is_some() {
        return refuse(SPREAD, "is not for mirrors");
    }
    match &definition.part_of {
        Some(_) if definition.spread.is_some() => {
            refuse("part_of", "is of a topic that is not spread itself")
        }
        Some(of) if u128::from_str_radix(&of.topic, 16).is_err() => {
            refuse("part_of.topic", "is no topic's id")
        }
        _ => Ok(()),
    }
}

fn check_keepers(consumers: &[String]) -> Result<(), DefinitionError> {
    let refuse = |reason: String| Err(DefinitionError::new("keep_until_acknowledged", reason));
    if consumers.len() > KEEPERS_MAX {
        let count = consumers.len();
        return refuse(format!("names {count} consumers, at most {KEEPERS_MAX}"));
    }
    for (index, name) in consumers.iter().enumerate() {
        if let Err(error) = crate::check_consumer_name(name) {
            return refuse(error.to_string());
        }
        if consumers[..index].contains(name) {
            return refuse(format!("names {name:?} twice"));
        }
    }
    Ok(())
}

fn check_overflow(definition: &Definition) -> Result<(), DefinitionError> {
    let overflow = definition.overflow;
    if let Overflow::Reject { retry_after_ms } = overflow {
        let key = "overflow.retry_after_ms";
        check_range(key, RETRY_AFTER_MS_RANGE, retry_after_ms.into())?;
    }
    let retention = definition.retention;
    let needs = match overflow {
        Overflow::Grow => return Ok(()),
        _ if !retention.bounds_bytes() && retention.count.is_none() => {
            "a bound: retention.bytes, retention.total_bytes or retention.count"
        }
        _ if definition.keep_until_acknowledged.is_empty() => {
            "consumers to wait for: keep_until_acknowledged"
        }
        _ => return Ok(()),
    };
    let reason = format!("{:?} needs {needs}", overflow.name());
    Err(DefinitionError::new("overflow", reason))
}

/// Of a topic of steps it is known what its events are, where they go and when they leave: nobody
/// chooses that.
fn settle_steps(definition: &mut Definition) -> Result<(), DefinitionError> {
    let default = Definition::default();
    let selectors = [&default.partition_selector, &SelectorKind::Explicit];
    let serializers = [&default.serializer, &SerializerKind::Raw];
    let chosen = [
        ("validator", definition.validator != default.validator),
        (
            "partition_selector",
            !selectors.contains(&&definition.partition_selector),
        ),
        ("serializer", !serializers.contains(&&definition.serializer)),
        ("overflow", definition.overflow != default.overflow),
        (
            "keep_until_acknowledged",
            !definition.keep_until_acknowledged.is_empty(),
        ),
    ];
    if let Some((key, _)) = chosen.iter().find(|(_, is_chosen)| *is_chosen) {
        return Err(DefinitionError::new(
            *key,
            "is not to be chosen for a topic of steps",
        ));
    }
    definition.partition_selector = SelectorKind::Explicit;
    definition.serializer = SerializerKind::Raw;
    Ok(())
}

fn check_range(key: &str, (min, max): (u64, u64), found: u64) -> Result<(), DefinitionError> {
    if (min..=max).contains(&found) {
        return Ok(());
    }
    let reason = format!("expected an integer from {min} to {max}, found {found}");
    Err(DefinitionError::new(key, reason))
}

/// Why a definition is refused: the key, and what is wrong there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefinitionError {
    key: String,
    reason: String,
}

/// Whether a topic may have so many partitions: what is asked for at once is
/// refused with this before a list of them is made.
///
/// # Errors
/// Names both numbers.
pub fn check_partition_count(count: usize) -> Result<(), DefinitionError> {
    match count <= PARTITIONS_MAX {
        true => Ok(()),
        false => Err(DefinitionError::new(
            "partitions",
            format!("{count} partitions; a topic has {PARTITIONS_MAX} at most"),
        )),
    }
}

impl DefinitionError {
    pub(crate) fn new(key: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            reason: reason.into(),
        }
    }

    fn too_long(bytes: usize) -> Self {
        Self::new(
            "",
            format!("it has {bytes} bytes of JSON; the limit is {DEFINITION_BYTES_MAX}"),
        )
    }

    /// The key, with those around it: `retention.bytes`. Empty if the whole
    /// is wrong.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// What is wrong with it.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// The code under which the error travels.
    pub fn code(&self) -> ErrorCode {
        ErrorCode::InvalidTopic
    }
}

impl fmt::Display for DefinitionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("topic definition: ")?;
        if !self.key.is_empty() {
            write!(f, "key {:?}: ", self.key)?;
        }
        f.write_str(&self.reason)
    }
}

impl std::error::Error for DefinitionError {}

/// For definitions inside other files, like a server's configuration.
impl<'de> Deserialize<'de> for Definition {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let members = Map::deserialize(deserializer)?;
        parse::members(&members)
            .and_then(DefinitionBuilder::build)
            .map_err(serde::de::Error::custom)
    }
}

/// What to say about a type that nobody knows.
fn unknown_type(found: &str, known: &[&str]) -> String {
    format!("unknown type {found:?}; known: {}", known.join(", "))
}
