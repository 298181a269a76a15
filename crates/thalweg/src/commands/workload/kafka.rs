//! The backend of Kafka, by librdkafka.
//!
//! ```text
//!  work sharing  producer ──► workload-RUN-messages, a partition for each consumer ──► the group's member that has it
//!  broadcast     producer ──► workload-RUN-messages, one partition ──► consumer C, which commits in a group of its own
//!  reply         consumer ──► workload-RUN-replies, partition P ──► producer P
//! ```
//!
//! A consumer that shares has one partition, and each producer sends to all of them in turn: so messages of a producer come
//! to a consumer in order, which Kafka keeps inside of a partition alone.

mod admin;
mod sink;
mod source;

use super::backend::{Backend, Outgoing, Source};
use super::kafka_url::parse;
use super::server_url::written;
use crate::failure::{Code, Failure};
use admin::Admin;
use rdkafka::ClientConfig;
use rdkafka::error::KafkaError;
use rdkafka::producer::{Producer, ThreadedProducer};
use sink::{Produced, Reports, Sending};
use source::{Incoming, Reading};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use workload::{Acks, Common, Confirms, Member, Pace, Replies, Task};

/// How long brokers may take to say that they are there.
const CONNECT: Duration = Duration::from_secs(10);
/// How long they may take for anything else.
const SILENCE: Duration = Duration::from_secs(30);
/// What a batch of one message has beside it, and the least that a topic takes.
const BATCH_BYTES: (u64, u64) = (64 << 10, 1 << 20);
/// What clients fetch at once, at least.
const FETCH_BYTES: u64 = 50 << 20;

/// Brokers. Each member has a client of its own, as published, and a consumer that replies or a producer that gets replies
/// another one.
pub struct Kafka {
    brokers: String,
    common: Common,
    /// Whether anything may have been made: where no server is, nothing is to be removed. Relaxed: it guards nothing.
    is_reached: AtomicBool,
}

impl Kafka {
    pub fn new(common: &Common) -> Result<Self, Failure> {
        let Some(url) = &common.url else {
            return Err(Failure::usage("url", "there is none"));
        };
        let places = parse(&url.0).map_err(|why| Failure::usage("url", why))?;
        let brokers: Vec<String> = places.iter().map(written).collect();
        Ok(Self {
            brokers: brokers.join(","),
            common: common.clone(),
            is_reached: AtomicBool::new(false),
        })
    }

    /// What the brokers are called.
    fn name(&self) -> String {
        format!("kafka://{}", self.brokers)
    }

    /// The name of the run, and the group of consumers that share.
    fn run(&self) -> String {
        format!("workload-{:016x}", self.common.run)
    }

    fn messages(&self) -> String {
        self.run() + "-messages"
    }

    fn replies(&self) -> String {
        self.run() + "-replies"
    }

    /// Topics and their partitions.
    fn topics(&self) -> Vec<(String, u64)> {
        let common = &self.common;
        let partitions = match common.pattern.is_broadcast() {
            true => 1,
            false => common.consumers,
        };
        let mut topics = vec![(self.messages(), partitions)];
        if common.pattern.has_replies() {
            topics.push((self.replies(), common.producers));
        }
        topics
    }

    /// The group in which a consumer commits.
    fn group(&self, consumer: u64) -> String {
        match self.common.pattern.is_broadcast() {
            true => format!("{}-consumer-{consumer}", self.run()),
            false => self.run(),
        }
    }

    fn groups(&self) -> Vec<String> {
        let mut groups: Vec<String> = (0..self.common.consumers)
            .map(|consumer| self.group(consumer))
            .collect();
        groups.dedup();
        groups
    }

    /// The largest batch of the run.
    fn batch_bytes(&self) -> u64 {
        let (beside, least) = BATCH_BYTES;
        (self.common.message_bytes + beside).max(least)
    }

    /// What all clients have.
    fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        let silence_ms = SILENCE.as_millis().to_string();
        config
            .set("bootstrap.servers", &self.brokers)
            .set(
                "client.id",
                format!("thalweg workload {}", std::process::id()),
            )
            .set("socket.timeout.ms", silence_ms)
            .set("socket.nagle.disable", "true")
            // Topics are made by the command that knows their partitions.
            .set("allow.auto.create.topics", "false")
            .set("message.max.bytes", self.batch_bytes().to_string());
        config
    }

    fn admin(&self) -> Result<Admin, Failure> {
        Admin::connect(&self.config(), self.name())
    }

    /// Sends what is sent to a topic.
    fn produce(
        &self,
        topic: String,
        partitions: u64,
        is_gathered: bool,
    ) -> Result<Sending, Failure> {
        let mut config = self.config();
        match self.common.settings.confirms {
            Confirms::None => config.set("acks", "0"),
            // What is sent again by the client comes once then, and in order.
            _ => config.set("acks", "all").set("enable.idempotence", "true"),
        };
        let linger_ms = match is_gathered {
            true => "5",
            false => "0",
        };
        config
            .set("linger.ms", linger_ms)
            .set("message.timeout.ms", SILENCE.as_millis().to_string());
        let producer = config.create_with_context(Reports::default());
        let producer: ThreadedProducer<Reports> =
            producer.map_err(|error| failed(&self.name(), "a producer", &error))?;
        // Partitions are known before the first message.
        let known = producer.client().fetch_metadata(Some(&topic), CONNECT);
        known.map_err(|error| failed(&self.name(), &topic, &error))?;
        Ok(Sending {
            producer,
            name: self.name(),
            topic,
            partitions,
        })
    }

    /// What a consumer has of a group.
    fn consuming(&self, group: &str) -> ClientConfig {
        let fetched = self.batch_bytes().max(FETCH_BYTES);
        let mut config = self.config();
        config
            .set("group.id", group)
            .set("auto.offset.reset", "earliest")
            .set("enable.auto.commit", "false")
            // The least that brokers permit as they come: so long after its end the partitions of a member go to others.
            .set("session.timeout.ms", "6000")
            // A member hears by this that others come or go.
            .set("heartbeat.interval.ms", "300")
            // Partitions of members that stay are not taken from them.
            .set("partition.assignment.strategy", "cooperative-sticky")
            .set("fetch.message.max.bytes", self.batch_bytes().to_string())
            .set("fetch.max.bytes", fetched.to_string())
            .set("receive.message.max.bytes", (fetched + 4096).to_string())
            // Without it a client that has enough rests for a second.
            .set("fetch.queue.backoff.ms", "10");
        config
    }

    /// Consumes the replies to a producer. Nobody wants to know how far it is.
    fn answers(&self, producer: u64) -> Result<Incoming, Failure> {
        let reading = Reading {
            name: self.name(),
            topic: self.replies(),
            only: Some(producer as i32),
            is_committed: false,
            prefetch: 0,
            answers: None,
        };
        let group = format!("{}-producer-{producer}", self.run());
        Incoming::start(&self.consuming(&group), reading)
    }
}

/// Of brokers that refuse, or do not answer.
fn failed(name: &str, what: &str, error: &KafkaError) -> Failure {
    use rdkafka::types::RDKafkaErrorCode as Why;
    let code = match error.rdkafka_error_code() {
        Some(
            Why::BrokerTransportFailure
            | Why::AllBrokersDown
            | Why::Resolve
            | Why::BrokerNotAvailable,
        ) => Code::NoServer,
        Some(Why::OperationTimedOut | Why::RequestTimedOut | Why::MessageTimedOut) => Code::Timeout,
        _ => Code::Failure,
    };
    Failure::new(code, name, format!("{what}: {error}"))
}

impl Backend for Kafka {
    fn prepare(&self) -> Result<(), Failure> {
        let admin = self.admin()?;
        self.is_reached.store(true, Ordering::Relaxed);
        admin.create(&self.topics(), self.batch_bytes())
    }

    fn remove(&self) -> Result<(), Failure> {
        if !self.is_reached.load(Ordering::Relaxed) {
            return Ok(());
        }
        let admin = self.admin()?;
        admin.delete_topics(&self.topics())?;
        admin.delete_groups(&self.groups())
    }

    fn transport(&self) -> String {
        "kafka".to_owned()
    }

    fn source(&self, task: &Task) -> Result<Box<dyn Source>, Failure> {
        let Member::Consumer(index) = task.member else {
            unreachable!("producers have sinks");
        };
        let answers = match task.replies {
            Replies::None => None,
            Replies::Own | Replies::Shared => {
                Some(self.produce(self.replies(), self.common.producers, false)?)
            }
        };
        let settings = &self.common.settings;
        let is_automatic = settings.acks == Acks::Automatic;
        let mut config = self.consuming(&self.group(index));
        config.set("enable.auto.commit", is_automatic.to_string());
        let reading = Reading {
            name: self.name(),
            topic: self.messages(),
            only: self.common.pattern.is_broadcast().then_some(0),
            is_committed: !is_automatic,
            prefetch: settings.prefetch,
            answers,
        };
        Ok(Box::new(Incoming::start(&config, reading)?))
    }

    fn sink(&self, task: &Task) -> Result<Outgoing, Failure> {
        let Member::Producer(index) = task.member else {
            unreachable!("consumers have sources");
        };
        let (topic, partitions) = self.topics().swap_remove(0);
        // These wait for confirms when they may send no more.
        let is_gathered = match task.pace {
            Some(Pace::Window(count) | Pace::Batches(count)) => count > 1,
            _ => false,
        };
        let replies: Option<Box<dyn Source>> = match task.replies {
            Replies::None => None,
            Replies::Own | Replies::Shared => Some(Box::new(self.answers(index)?)),
        };
        let sending = self.produce(topic, partitions, is_gathered)?;
        Ok(Outgoing {
            sink: Box::new(Produced::new(sending, index)),
            replies,
        })
    }
}
