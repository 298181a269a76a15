//! Options as JSON: what can be said, and what it means. A key that nobody
//! knows is refused, by a message that lists those that are known.

use crate::boundary::optional_text;
use crate::error::Failure;
use bytes::Bytes;
use client::{
    AtBudget, BatchPolicy, ConsumerOptions, DataMode, DriverOptions, GroupMember, Incarnation,
    JobEnd, Linger, Offset, Ordering, PartitionIndex, PartitionStorage, Position, ProducerOptions,
    QueueConsumerOptions, QueueOptions, ReadEnd, ReadOptions, RequesterOptions, Start, When,
};
use fabric::{Shm, ShmOptions};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::ffi::c_char;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Reads options; NULL and empty text are the defaults.
pub fn read<T: DeserializeOwned + Default>(what: &str, json: *const c_char) -> Result<T, Failure> {
    match optional_text(what, json)?.map(str::trim) {
        None | Some("") => Ok(T::default()),
        Some(json) => {
            serde_json::from_str(json).map_err(|error| Failure::invalid(format!("{what}: {error}")))
        }
    }
}

pub fn milliseconds(given: Option<u64>, default: Duration) -> Duration {
    given.map_or(default, Duration::from_millis)
}

/// Who drives a client's network.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Progress {
    /// A thread of the library's.
    #[default]
    Thread,
    /// The caller, by `thalweg_driver_progress` and in calls that block.
    Caller,
}

/// Options of `thalweg_driver_connect` and `thalweg_driver_embedded`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Driver {
    client_name: Option<String>,
    namespace: String,
    connect_timeout_ms: Option<u64>,
    request_timeout_ms: Option<u64>,
    /// For ever, if it is not given.
    reconnect_timeout_ms: Option<u64>,
    memory_bytes_max: Option<u64>,
    progress: Progress,
    /// How long to look before sleeping, where a processor can be spared for it.
    spin_us: u64,
    /// How many connections there may be.
    stripes: Option<u8>,
    /// A file with a token, as `thalweg token new` makes it, or with what another issuer has made.
    credential: Option<PathBuf>,
    /// For an address: the group file's token, in hexadecimal.
    pub token: Option<String>,
    /// For an embedded server: the settings of `thalweg serve`.
    pub settings: Map<String, Value>,
}

impl Driver {
    pub fn to_client(&self) -> DriverOptions {
        let mut options = DriverOptions {
            plugins: Arc::new(plugin::Loader::from_environment()),
            spin: Duration::from_micros(self.spin_us),
            ..DriverOptions::default()
        };
        // Where shared memory cannot be had, the unix socket beneath it carries on.
        let shared_memory = Shm::new(ShmOptions::default());
        options.transports = Arc::new((*options.transports).clone().with(shared_memory));
        if let Some(name) = &self.client_name {
            options.client_name.clone_from(name);
        }
        options.namespace.clone_from(&self.namespace);
        if self.credential.is_some() {
            options.credential.clone_from(&self.credential);
        }
        options.connect_timeout = self.connect_timeout_ms.map(Duration::from_millis);
        options.request_timeout = milliseconds(self.request_timeout_ms, options.request_timeout);
        options.reconnect_timeout = self.reconnect_timeout_ms.map(Duration::from_millis);
        options.progress = match self.progress {
            Progress::Thread => client::Progress::Thread,
            Progress::Caller => client::Progress::Caller,
        };
        options.memory_bytes_max = self.memory_bytes_max.unwrap_or(options.memory_bytes_max);
        options.stripes = self.stripes.unwrap_or(options.stripes);
        options
    }

    pub fn token(&self) -> Result<Option<Bytes>, Failure> {
        let Some(token) = &self.token else {
            return Ok(None);
        };
        let refuse = || Failure::invalid("token: expected an even number of hexadecimal digits");
        if !token.is_ascii() || token.len() % 2 != 0 {
            return Err(refuse());
        }
        (0..token.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&token[at..at + 2], 16).map_err(|_| refuse()))
            .collect::<Result<Vec<u8>, _>>()
            .map(|bytes| Some(bytes.into()))
    }

    /// The server's settings as text: a list has one for each entry.
    pub fn settings(&self) -> Vec<(String, Vec<String>)> {
        let text = |value: &Value| match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        self.settings
            .iter()
            .map(|(key, value)| {
                let texts = match value {
                    Value::Array(entries) => entries.iter().map(text).collect(),
                    one => vec![text(one)],
                };
                (key.clone(), texts)
            })
            .collect()
    }
}

/// How partitions are stored: a kind, or a kind with its configuration.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum Storage {
    Kind(String),
    Configured(Configured),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Configured {
    kind: String,
    #[serde(default)]
    config: Map<String, Value>,
}

impl Storage {
    pub fn to_client(&self) -> PartitionStorage {
        let (kind, config) = match self {
            Self::Kind(kind) => (kind, String::new()),
            Self::Configured(Configured { kind, config }) if config.is_empty() => {
                (kind, String::new())
            }
            Self::Configured(Configured { kind, config }) => {
                (kind, Value::Object(config.clone()).to_string())
            }
        };
        PartitionStorage {
            kind: kind.clone(),
            config,
        }
    }
}

/// Takes the key `exist_ok` out of a topic's `options`: whether a topic of the name that
/// is there already is opened as it is.
pub fn exist_ok(options: &mut Map<String, Value>) -> Result<bool, Failure> {
    match options.remove("exist_ok") {
        None => Ok(false),
        Some(Value::Bool(exist_ok)) => Ok(exist_ok),
        Some(other) => Err(Failure::invalid(format!(
            "exist_ok is true or false, not {other}"
        ))),
    }
}

/// How many partitions, and how they are stored.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Partitions {
    partitions: Option<usize>,
    storage: Option<Storages>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Storages {
    Each(Vec<Storage>),
    All(Storage),
}

impl Partitions {
    /// Takes the two keys out of `options`, of which the rest is somebody else's.
    pub fn taken_from(options: &mut Map<String, Value>) -> Result<Self, Failure> {
        let mut own = Map::new();
        for key in ["partitions", "storage"] {
            own.extend(options.remove(key).map(|value| (key.to_owned(), value)));
        }
        serde_json::from_value(Value::Object(own)).map_err(|error| {
            Failure::invalid(format!(
                "partitions is a number; storage is a kind, {{\"kind\", \"config\"}}, or a list of \
                 such: {error}"
            ))
        })
    }

    pub fn to_client(&self) -> Result<Vec<PartitionStorage>, Failure> {
        let disk = PartitionStorage {
            kind: "disk".to_owned(),
            config: String::new(),
        };
        let count = self.partitions.unwrap_or(1);
        client::check_partition_count(count)
            .map_err(|error| Failure::invalid(error.to_string()))?;
        match &self.storage {
            None => Ok(vec![disk; count]),
            Some(Storages::All(storage)) => Ok(vec![storage.to_client(); count]),
            Some(Storages::Each(list))
                if self.partitions.is_none_or(|count| count == list.len()) =>
            {
                Ok(list.iter().map(Storage::to_client).collect())
            }
            Some(Storages::Each(list)) => Err(Failure::invalid(format!(
                "{count} partitions, but storage for {} is given",
                list.len()
            ))),
        }
    }
}

/// When a batch is sent.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Batch {
    Count(u32),
    Word(String),
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Full {
    #[default]
    Block,
    Fail,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum InOrder {
    #[default]
    Strict,
    Loose,
}

/// Options of `thalweg_producer_open`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Producer {
    name: Option<String>,
    batch: Option<Batch>,
    batch_bytes: Option<u32>,
    linger_ms: Option<f64>,
    batches_in_flight: Option<usize>,
    budget_bytes: Option<u64>,
    at_budget: Full,
    block_timeout_ms: Option<u64>,
    durability: Option<String>,
    journal: Option<PathBuf>,
    inline_bytes_max: Option<u32>,
    ack_timeout_ms: Option<u64>,
    threads: Option<usize>,
    ordering: InOrder,
    check_borrowed: bool,
}

impl Producer {
    pub fn to_client(&self) -> Result<ProducerOptions, Failure> {
        let default = ProducerOptions::default();
        let durability = self.durability.as_deref().map(str::parse).transpose();
        let AtBudget::Block(block) = default.at_budget else {
            unreachable!("the default is to block");
        };
        Ok(ProducerOptions {
            name: self.name.clone(),
            batch: self.batch()?,
            batches_in_flight_max: self
                .batches_in_flight
                .unwrap_or(default.batches_in_flight_max),
            budget_bytes: self.budget_bytes.unwrap_or(default.budget_bytes),
            at_budget: match self.at_budget {
                Full::Block => AtBudget::Block(milliseconds(self.block_timeout_ms, block)),
                Full::Fail => AtBudget::Fail,
            },
            durability: durability.map_err(Failure::invalid)?,
            journal: self.journal.clone(),
            inline_bytes_max: self.inline_bytes_max.unwrap_or(default.inline_bytes_max),
            // As the header promises.
            copied_bytes_max: u32::MAX,
            ack_timeout: milliseconds(self.ack_timeout_ms, default.ack_timeout),
            threads: self.threads.unwrap_or(default.threads),
            ordering: match self.ordering {
                InOrder::Strict => Ordering::Strict,
                InOrder::Loose => Ordering::Loose,
            },
            check_borrowed: self.check_borrowed,
        })
    }

    fn batch(&self) -> Result<BatchPolicy, Failure> {
        let mut policy = BatchPolicy::default();
        policy.bytes_max = self.batch_bytes.unwrap_or(policy.bytes_max);
        let linger = match self.linger_ms {
            None => None,
            Some(linger) => match Duration::try_from_secs_f64(linger / 1000.0) {
                Ok(linger) => Some(Linger::Wait(linger)),
                Err(_) => return Err(Failure::invalid(format!("linger_ms: {linger} is no time"))),
            },
        };
        match &self.batch {
            None => policy.linger = linger.unwrap_or(policy.linger),
            Some(Batch::Word(word)) if word == "adaptive" => {
                policy.linger = linger.unwrap_or(Linger::Adaptive);
            }
            Some(Batch::Count(count)) if *count > 0 => {
                policy.count_max = Some(*count);
                policy.linger = linger.unwrap_or(Linger::UntilFull);
            }
            Some(_) => {
                return Err(Failure::invalid(
                    "batch is \"adaptive\" or a number of events from 1",
                ));
            }
        }
        Ok(policy)
    }
}

/// Where a consumer begins.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Begin {
    /// As [`When::parse`] reads it.
    Text(String),
    /// In the incarnation that each partition is in.
    Offset(u64),
    /// Negative: so many events before the end of each partition.
    BeforeEnd(i64),
    Position(PositionFields),
    Time(TimeField),
}

impl Begin {
    fn to_client(&self) -> Result<When, Failure> {
        let at = |incarnation, offset| {
            Start::At(Position {
                incarnation: Incarnation(incarnation),
                offset: Offset(offset),
            })
        };
        Ok(match self {
            Self::Offset(offset) => at(0, *offset).into(),
            Self::BeforeEnd(count) => When::Last(count.unsigned_abs()),
            Self::Position(position) => at(position.incarnation, position.offset).into(),
            Self::Time(time) => Start::Time(time.time_ns).into(),
            Self::Text(text) => {
                When::parse(text).map_err(|reason| Failure::invalid(format!("start: {reason}")))?
            }
        })
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PositionFields {
    incarnation: u64,
    offset: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TimeField {
    time_ns: u64,
}

/// Options of `thalweg_consumer_open`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Consumer {
    partitions: Option<Vec<u32>>,
    start: Option<Begin>,
    data: Option<String>,
    inline_along: bool,
    credit_bytes: Option<u64>,
    acknowledge_interval_ms: Option<u64>,
    merge_wait_ms: Option<u64>,
    latest: bool,
}

impl Consumer {
    /// All but the callbacks.
    pub fn to_client(&self) -> Result<ConsumerOptions, Failure> {
        let default = match self.latest {
            true => ConsumerOptions::newest(),
            false => ConsumerOptions::default(),
        };
        let start = self.start.as_ref().map(Begin::to_client).transpose()?;
        let start = start.unwrap_or(default.start);
        let data = data_mode(self.data.as_deref())?;
        Ok(ConsumerOptions {
            partitions: self.partitions.clone(),
            start,
            data,
            allocator: None,
            inline_along: self.inline_along,
            credit_bytes: self.credit_bytes.unwrap_or(default.credit_bytes),
            acknowledge_interval: milliseconds(
                self.acknowledge_interval_ms,
                default.acknowledge_interval,
            ),
            merge_wait: self.merge_wait_ms.map(Duration::from_millis),
            latest: self.latest,
            ..default
        })
    }
}

/// Options of `thalweg_reader_open`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Read {
    partitions: Option<Vec<u32>>,
    start: Option<Begin>,
    end: Option<ReadUntil>,
    data: Option<String>,
    credit_bytes: Option<u64>,
}

/// Where a read ends.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum ReadUntil {
    Word(String),
    /// In each partition, in the incarnation that it is in.
    Offset(u64),
    Time(TimeField),
    Positions(Vec<EndFields>),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EndFields {
    partition: u32,
    #[serde(default)]
    incarnation: u64,
    offset: u64,
}

/// Before this offset, in the incarnation that the partition is in.
pub fn end(partition: u32, offset: u64) -> (PartitionIndex, Position) {
    let position = Position {
        incarnation: Incarnation(0),
        offset: Offset(offset),
    };
    (PartitionIndex(partition), position)
}

impl Read {
    /// Where it ends in each partition, if that is an offset.
    pub fn end_offset(&self) -> Option<u64> {
        match &self.end {
            Some(ReadUntil::Offset(offset)) => Some(*offset),
            _ => None,
        }
    }

    /// All but the callbacks, and an end that is an offset.
    pub fn to_client(&self) -> Result<ReadOptions, Failure> {
        let default = ReadOptions::default();
        let start = self.start.as_ref().map(Begin::to_client).transpose()?;
        let end = match &self.end {
            None | Some(ReadUntil::Offset(_)) => ReadEnd::Now,
            Some(ReadUntil::Word(word)) if word == "now" => ReadEnd::Now,
            Some(ReadUntil::Word(text))
                if let Ok(When::Start(Start::Time(time))) = When::parse(text) =>
            {
                ReadEnd::Time(time)
            }
            Some(ReadUntil::Word(other)) => {
                return Err(Failure::invalid(format!(
                    "end is now, an offset, a time (-15m, 2026-11-23), {{\"time_ns\"}} or a list of {{\"partition\", \
                     \"incarnation\", \"offset\"}}, not {other:?}"
                )));
            }
            Some(ReadUntil::Time(time)) => ReadEnd::Time(time.time_ns),
            Some(ReadUntil::Positions(ends)) => ReadEnd::Before(
                ends.iter()
                    .map(|one| {
                        let (partition, position) = end(one.partition, one.offset);
                        let incarnation = Incarnation(one.incarnation);
                        (
                            partition,
                            Position {
                                incarnation,
                                ..position
                            },
                        )
                    })
                    .collect(),
            ),
        };
        Ok(ReadOptions {
            partitions: self.partitions.clone(),
            start: start.unwrap_or(default.start),
            end,
            data: data_mode(self.data.as_deref())?,
            credit_bytes: self.credit_bytes.unwrap_or(default.credit_bytes),
            ..default
        })
    }
}

/// Which data is wanted.
fn data_mode(data: Option<&str>) -> Result<DataMode, Failure> {
    match data {
        None | Some("all") => Ok(DataMode::All),
        Some("none") => Ok(DataMode::None),
        Some(other) => Err(Failure::invalid(format!(
            "data is all or none, not {other:?}; a selector chooses parts"
        ))),
    }
}

/// Where a new group or queue begins.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum New {
    #[default]
    Beginning,
    Latest,
}

impl New {
    fn to_client(self) -> Start {
        match self {
            Self::Beginning => Start::Beginning,
            Self::Latest => Start::Latest,
        }
    }
}

/// Options of `thalweg_group_join`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Group {
    start: New,
    instance: Option<String>,
    session_timeout_ms: Option<u64>,
    processing_timeout_ms: Option<u64>,
    revoke_timeout_ms: Option<u64>,
    data: Option<String>,
    credit_bytes: Option<u64>,
    acknowledge_interval_ms: Option<u64>,
}

impl Group {
    /// All but the callbacks.
    pub fn to_client(&self) -> Result<(GroupMember, ConsumerOptions), Failure> {
        let (member, default) = (GroupMember::default(), ConsumerOptions::default());
        let mut group = member.group.clone();
        group.revoke_timeout_ms = self.revoke_timeout_ms.unwrap_or(group.revoke_timeout_ms);
        let member = GroupMember {
            group,
            instance: self.instance.clone(),
            session_timeout: milliseconds(self.session_timeout_ms, member.session_timeout),
            processing_timeout: self.processing_timeout_ms.map(Duration::from_millis),
            ..member
        };
        let options = ConsumerOptions {
            start: self.start.to_client().into(),
            data: data_mode(self.data.as_deref())?,
            credit_bytes: self.credit_bytes.unwrap_or(default.credit_bytes),
            acknowledge_interval: milliseconds(
                self.acknowledge_interval_ms,
                default.acknowledge_interval,
            ),
            ..default
        };
        Ok((member, options))
    }
}

/// When the batch job ends.
#[derive(Debug, Default, Deserialize)]
#[serde(untagged)]
enum End {
    /// What the environment tells.
    #[default]
    Environment,
    /// Seconds since 1970.
    Seconds(f64),
    /// `true`: what the environment tells; `false`: it does not matter.
    Matters(bool),
}

impl End {
    fn to_client(&self, wind_down_ms: Option<u64>) -> Result<Option<JobEnd>, Failure> {
        let end = match self {
            Self::Environment | Self::Matters(true) => JobEnd::from_environment(),
            Self::Matters(false) => None,
            Self::Seconds(seconds) => {
                let since = Duration::try_from_secs_f64(*seconds).ok();
                let at = since.and_then(|since| SystemTime::UNIX_EPOCH.checked_add(since));
                let refuse = || Failure::invalid(format!("job_end: {seconds} is no time"));
                Some(JobEnd::at(at.ok_or_else(refuse)?))
            }
        };
        Ok(end.map(|end| JobEnd {
            wind_down: milliseconds(wind_down_ms, end.wind_down),
            ..end
        }))
    }
}

/// Options of `thalweg_queue_open`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Queue {
    lease_ms: Option<u64>,
    deliveries_max: Option<u32>,
    dead_letter_topic: String,
    ordered_by_key: bool,
    start: New,
    instance: Option<String>,
    session_timeout_ms: Option<u64>,
    processing_timeout_ms: Option<u64>,
    prefetch: Option<u32>,
    prefetch_bytes: Option<u64>,
    data: Option<String>,
    renew: bool,
    job_end: End,
    wind_down_ms: Option<u64>,
}

impl Queue {
    /// All but the callbacks.
    pub fn to_client(&self) -> Result<QueueConsumerOptions, Failure> {
        let default = QueueConsumerOptions::default();
        Ok(QueueConsumerOptions {
            queue: QueueOptions {
                lease_ms: self.lease_ms.unwrap_or(default.queue.lease_ms),
                deliveries_max: self.deliveries_max.unwrap_or(default.queue.deliveries_max),
                dead_letter_topic: self.dead_letter_topic.clone(),
                ordered_by_key: self.ordered_by_key,
            },
            start: self.start.to_client(),
            instance: self.instance.clone(),
            session_timeout: milliseconds(self.session_timeout_ms, default.session_timeout),
            processing_timeout: self.processing_timeout_ms.map(Duration::from_millis),
            prefetch_events: self.prefetch.unwrap_or(default.prefetch_events),
            prefetch_bytes: self.prefetch_bytes.unwrap_or(default.prefetch_bytes),
            data: data_mode(self.data.as_deref())?,
            renew: self.renew,
            job_end: self.job_end.to_client(self.wind_down_ms)?,
            ..default
        })
    }
}

/// Options of `thalweg_requester_open`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Requester {
    data: Option<String>,
    budget_bytes: Option<u64>,
    at_budget: Full,
    block_timeout_ms: Option<u64>,
    durability: Option<String>,
    inline_bytes_max: Option<u32>,
}

impl Requester {
    pub fn to_client(&self) -> Result<RequesterOptions, Failure> {
        let producer = Producer {
            budget_bytes: self.budget_bytes,
            at_budget: self.at_budget,
            block_timeout_ms: self.block_timeout_ms,
            durability: self.durability.clone(),
            inline_bytes_max: self.inline_bytes_max,
            ..Producer::default()
        };
        Ok(RequesterOptions {
            producer: producer.to_client()?,
            data: data_mode(self.data.as_deref())?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;
    use std::ffi::CString;

    fn refusal<T: DeserializeOwned + Default>(json: &str) -> String {
        let json = CString::new(json).unwrap();
        let read: Result<T, Failure> = read("options", json.as_ptr());
        match read {
            Ok(_) => panic!("{json:?} is taken"),
            Err(failure) => format!("{failure:?}"),
        }
    }

    #[test]
    fn an_unknown_key_is_refused_with_those_that_are_known() {
        for said in [
            refusal::<Driver>(r#"{"colour": 1}"#),
            refusal::<Producer>(r#"{"colour": 1}"#),
            refusal::<Consumer>(r#"{"colour": 1}"#),
            refusal::<Group>(r#"{"colour": 1}"#),
            refusal::<Queue>(r#"{"colour": 1}"#),
            refusal::<Requester>(r#"{"colour": 1}"#),
        ] {
            assert!(
                said.contains("unknown field `colour`, expected one of"),
                "{said}"
            );
        }
        assert!(refusal::<Driver>("{").contains("line 1"));
    }

    /// What options say with one key of this value; an error if they cannot be read.
    fn with<T: DeserializeOwned + Default, C>(
        key: &str,
        value: &str,
        to_client: impl Fn(&T) -> Result<C, Failure>,
    ) -> Result<(), Failure> {
        let json = CString::new(format!(r#"{{"{key}": {value}}}"#)).unwrap();
        let options: T = read("options", json.as_ptr())?;
        to_client(&options).map(drop)
    }

    /// Every option that is a number, with what makes options of it alone, and
    /// the largest number that it can be.
    #[test]
    fn numbers_that_cannot_be() {
        type Given = fn(&str, &str) -> Result<(), Failure>;
        let driver: Given = |key, value| with(key, value, |it: &Driver| Ok(it.to_client()));
        let producer: Given = |key, value| with(key, value, Producer::to_client);
        let consumer: Given = |key, value| with(key, value, Consumer::to_client);
        let group: Given = |key, value| with(key, value, Group::to_client);
        let queue: Given = |key, value| with(key, value, Queue::to_client);
        let requester: Given = |key, value| with(key, value, Requester::to_client);
        let partitions: Given = |key, value| with(key, value, Partitions::to_client);
        let (count, bytes) = (u64::from(u32::MAX), u64::MAX);
        let options: &[(Given, &[&str], u64)] = &[
            (driver, &["connect_timeout_ms", "request_timeout_ms"], bytes),
            (driver, &["memory_bytes_max", "spin_us"], bytes),
            (driver, &["stripes"], u8::MAX.into()),
            (
                producer,
                &["batch", "batch_bytes", "inline_bytes_max"],
                count,
            ),
            (producer, &["batches_in_flight", "budget_bytes"], bytes),
            (producer, &["block_timeout_ms", "ack_timeout_ms"], bytes),
            (producer, &["threads"], bytes),
            (consumer, &["credit_bytes"], bytes),
            (
                consumer,
                &["acknowledge_interval_ms", "merge_wait_ms"],
                bytes,
            ),
            (
                group,
                &["session_timeout_ms", "processing_timeout_ms"],
                bytes,
            ),
            (group, &["revoke_timeout_ms", "credit_bytes"], bytes),
            (group, &["acknowledge_interval_ms"], bytes),
            (queue, &["lease_ms", "session_timeout_ms"], bytes),
            (queue, &["processing_timeout_ms", "prefetch_bytes"], bytes),
            (queue, &["wind_down_ms"], bytes),
            (queue, &["deliveries_max", "prefetch"], count),
            (requester, &["budget_bytes", "block_timeout_ms"], bytes),
            (requester, &["inline_bytes_max"], count),
            (partitions, &["partitions"], 4096),
        ];
        for (given, keys, most) in options {
            for key in *keys {
                for value in [1, 1 << 31, 1 << 32, 1 << 63, u64::MAX] {
                    let taken = given(key, &value.to_string());
                    assert_eq!(taken.is_ok(), value <= *most, "{key}: {value}: {taken:?}");
                }
                for value in [
                    "-1",
                    "0.5",
                    "NaN",
                    "Infinity",
                    "1e999",
                    "18446744073709551616",
                ] {
                    let refusal = given(key, value).expect_err(key);
                    assert_eq!(refusal.code, Code::InvalidArgument as i32, "{refusal:?}");
                }
            }
        }
        // An offset, or, negative, so many events before the end.
        for value in ["0", "-1", "-9223372036854775808", "18446744073709551615"] {
            assert!(consumer("start", value).is_ok(), "start: {value}");
        }
        for value in [
            "0.5",
            "NaN",
            "1e999",
            "18446744073709551616",
            "-9223372036854775809",
        ] {
            assert!(consumer("start", value).is_err(), "start: {value}");
        }
        // Numbers of milliseconds and seconds that need not be whole.
        for (given, key) in [(producer, "linger_ms"), (queue, "job_end")] {
            for value in ["0", "0.5", "2147483648", "4294967296"] {
                assert!(given(key, value).is_ok(), "{key}: {value}");
            }
            for value in ["-1", "NaN", "Infinity", "1e999", "1e300"] {
                assert!(given(key, value).is_err(), "{key}: {value}");
            }
        }
    }

    #[test]
    fn nothing_said_is_the_default() {
        for json in [std::ptr::null(), c"".as_ptr(), c"{}".as_ptr()] {
            let options: Producer = read("options", json).unwrap();
            let options = options.to_client().unwrap();
            assert_eq!(options.batch, BatchPolicy::default());
            assert_eq!(options.ack_timeout, ProducerOptions::default().ack_timeout);
        }
    }

    #[test]
    fn batches() {
        let policy = |json: &str| {
            let options: Producer = serde_json::from_str(json).unwrap();
            options.batch()
        };
        assert_eq!(policy(r#"{"batch": 7}"#).unwrap().linger, Linger::UntilFull);
        assert_eq!(policy(r#"{"batch": 7}"#).unwrap().count_max, Some(7));
        let waits = policy(r#"{"batch": "adaptive", "linger_ms": 0.5}"#).unwrap();
        assert_eq!(waits.linger, Linger::Wait(Duration::from_micros(500)));
        assert!(policy(r#"{"batch": 0}"#).is_err());
        assert!(policy(r#"{"batch": "huge"}"#).is_err());
        assert!(policy(r#"{"linger_ms": -1}"#).is_err());
    }

    #[test]
    fn the_end_of_a_job() {
        let end = |json: &str| {
            let options: Queue = serde_json::from_str(json).unwrap();
            options.to_client().map(|options| options.job_end)
        };
        assert_eq!(end(r#"{"job_end": false}"#).unwrap(), None);
        let given = end(r#"{"job_end": 1700000000.5, "wind_down_ms": 5000}"#);
        let expected = JobEnd {
            at: SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_500),
            wind_down: Duration::from_secs(5),
        };
        assert_eq!(given.unwrap(), Some(expected));
        assert_eq!(end("{}").unwrap(), JobEnd::from_environment());
        assert!(end(r#"{"job_end": -1}"#).is_err());
        assert!(serde_json::from_str::<Queue>(r#"{"job_end": "soon"}"#).is_err());
    }

    #[test]
    fn partitions_and_their_storage() {
        let storage = |json: &str| {
            let options: Partitions = serde_json::from_str(json).unwrap();
            options.to_client()
        };
        assert_eq!(storage("{}").unwrap()[0].kind, "disk");
        assert_eq!(
            storage(r#"{"partitions": 3, "storage": "memory"}"#)
                .unwrap()
                .len(),
            3
        );
        let two = storage(r#"{"storage": ["memory", {"kind": "disk", "config": {"a": 1}}]}"#);
        assert_eq!(two.unwrap()[1].config, r#"{"a":1}"#);
        assert!(storage(r#"{"partitions": 3, "storage": ["memory"]}"#).is_err());
        for count in [4097, 1 << 31, 1 << 32, i64::MAX] {
            let json = format!(r#"{{"partitions": {count}}}"#);
            let refusal = storage(&json).unwrap_err();
            assert!(format!("{refusal:?}").contains("4096"), "{refusal:?}");
        }
    }

    #[test]
    fn tokens() {
        let token = |text: &str| {
            let driver = Driver {
                token: Some(text.to_owned()),
                ..Driver::default()
            };
            driver.token()
        };
        assert_eq!(token("00ff").unwrap().unwrap()[..], [0, 255]);
        assert!(token("0").is_err());
        assert!(token("zz").is_err());
    }
}
