//! What comes to a consumer, and the replies that come to a producer.
//!
//! A partition that came from another member may have messages which that one had. Kafka does not say which: all that were
//! in it by then are flagged.

use super::super::backend::{Delivery, Source};
use super::sink::Sending;
use super::{CONNECT, SILENCE, failed};
use crate::failure::{Code, Failure};
use bytes::Bytes;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance};
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode as Why;
use rdkafka::{ClientConfig, ClientContext, Message, Offset, TopicPartitionList};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use workload::{STAMP_BYTES, Stamp};

/// Messages that are taken at once.
const BATCH_MAX: usize = 256;
/// How long a member may wait for a partition of its own.
const JOIN: Duration = Duration::from_secs(60);
/// How long it may take to commit the last and to leave a group. A member that does not is one until its session ends.
const LEAVE: Duration = Duration::from_secs(5);
/// How often a member looks whether something is so.
const LOOK: Duration = Duration::from_millis(20);

/// What a consumer reads.
pub struct Reading {
    pub name: String,
    pub topic: String,
    /// The partition, if no group says which.
    pub only: Option<i32>,
    /// Whether what is acknowledged is committed. Else the client commits by itself, or nobody wants it.
    pub is_committed: bool,
    /// The most that is unacknowledged. 0 is no bound.
    pub prefetch: u64,
    /// Where replies go.
    pub answers: Option<Sending>,
}

/// The partitions that a member has. Calls of the client write it, on the thread that polls.
#[derive(Default)]
struct Assigned {
    /// Up to where messages are flagged, once that is known.
    partitions: Mutex<BTreeMap<i32, Option<i64>>>,
}

impl Assigned {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<i32, Option<i64>>> {
        self.partitions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientContext for Assigned {}

impl ConsumerContext for Assigned {
    fn post_rebalance(&self, _: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        let mut partitions = self.lock();
        match rebalance {
            Rebalance::Assign(list) => {
                for one in list.elements() {
                    partitions.entry(one.partition()).or_insert(None);
                }
            }
            Rebalance::Revoke(list) => {
                for one in list.elements() {
                    partitions.remove(&one.partition());
                }
            }
            // It joins again.
            Rebalance::Error(_) => {}
        }
    }
}

/// A message that came and is not acknowledged.
#[derive(Debug, Clone, Copy)]
struct Handled {
    partition: i32,
    offset: i64,
}

/// A consumer.
pub struct Incoming {
    /// As long as its process: to drop it waits for brokers, which may be gone.
    consumer: &'static BaseConsumer<Assigned>,
    reading: Reading,
    came: Vec<Delivery>,
    handled: VecDeque<Handled>,
    /// What is wrong, and for how long nothing has come since.
    trouble: Option<(KafkaError, Duration)>,
    has_told: bool,
}

impl Incoming {
    /// Begins to consume, and waits until there is something to consume from.
    pub fn start(config: &ClientConfig, reading: Reading) -> Result<Self, Failure> {
        let about = |what: &str, error: &KafkaError| failed(&reading.name, what, error);
        let consumer: Result<BaseConsumer<Assigned>, KafkaError> =
            config.create_with_context(Assigned::default());
        let consumer = consumer.map_err(|error| about("a consumer", &error))?;
        let consumer: &'static BaseConsumer<Assigned> = Box::leak(Box::new(consumer));
        let topic = &reading.topic;
        let there = consumer.fetch_metadata(Some(topic), CONNECT);
        there.map_err(|error| about(topic, &error))?;
        let begun = match reading.only {
            Some(partition) => {
                let mut list = TopicPartitionList::new();
                let added = list.add_partition_offset(topic, partition, Offset::Beginning);
                // Nobody else has it.
                consumer.context().lock().insert(partition, Some(0));
                added.and_then(|()| consumer.assign(&list))
            }
            None => consumer.subscribe(&[topic]),
        };
        begun.map_err(|error| about(topic, &error))?;
        let mut incoming = Self {
            consumer,
            reading,
            came: Vec::new(),
            handled: VecDeque::new(),
            trouble: None,
            has_told: false,
        };
        incoming.join()?;
        Ok(incoming)
    }

    fn join(&mut self) -> Result<(), Failure> {
        let mut waited = Duration::ZERO;
        while self.consumer.context().lock().is_empty() {
            if waited >= JOIN {
                let seconds = JOIN.as_secs();
                let what = format!("the group has given this member no partition in {seconds} s");
                return Err(Failure::new(Code::Timeout, &self.reading.name, what));
            }
            self.poll(LOOK)?;
            waited += LOOK;
        }
        self.look_at_new()
    }

    /// Learns of partitions that are new here how many messages others may have had.
    fn look_at_new(&mut self) -> Result<(), Failure> {
        let new: Vec<i32> = {
            let partitions = self.consumer.context().lock();
            let new = partitions.iter().filter(|(_, flagged)| flagged.is_none());
            new.map(|(partition, _)| *partition).collect()
        };
        for partition in new {
            let topic = &self.reading.topic;
            let found = self.consumer.fetch_watermarks(topic, partition, SILENCE);
            let (_, high) = found.map_err(|error| failed(&self.reading.name, topic, &error))?;
            if let Some(flagged) = self.consumer.context().lock().get_mut(&partition) {
                *flagged = Some(high);
            }
        }
        Ok(())
    }

    /// Takes the next message if it comes in this time. Returns whether one has.
    fn poll(&mut self, wait: Duration) -> Result<bool, Failure> {
        let Some(polled) = self.consumer.poll(wait) else {
            return self.miss(wait).map(|()| false);
        };
        let message = match polled {
            Ok(message) => message,
            Err(error) => {
                let is_fatal = error.rdkafka_error_code() == Some(Why::Fatal)
                    || matches!(error, KafkaError::MessageConsumptionFatal(_));
                if is_fatal {
                    return Err(failed(&self.reading.name, "what is to come", &error));
                }
                // It may pass.
                self.trouble.get_or_insert((error, Duration::ZERO));
                return Ok(false);
            }
        };
        let handled = Handled {
            partition: message.partition(),
            offset: message.offset(),
        };
        let bytes = Bytes::copy_from_slice(message.payload().unwrap_or_default());
        drop(message);
        self.trouble = None;
        let is_known = |known: &BTreeMap<i32, Option<i64>>| known.get(&handled.partition).copied();
        let mut flagged = is_known(&self.consumer.context().lock());
        if flagged == Some(None) {
            self.look_at_new()?;
            flagged = is_known(&self.consumer.context().lock());
        }
        let flagged_to = flagged.flatten().unwrap_or(0);
        self.handled.push_back(handled);
        self.came.push(Delivery {
            message: bytes,
            is_flagged: handled.offset < flagged_to,
        });
        Ok(true)
    }

    /// Nothing has come. Where something is wrong for long, the brokers are asked whether it still is.
    fn miss(&mut self, wait: Duration) -> Result<(), Failure> {
        let Some((error, waited)) = &mut self.trouble else {
            return Ok(());
        };
        *waited += wait;
        if *waited < SILENCE {
            return Ok(());
        }
        match self.consumer.fetch_metadata(None, CONNECT) {
            Ok(_) => {
                self.trouble = None;
                Ok(())
            }
            Err(_) => {
                let what = format!("brokers do not answer for {} s: {error}", SILENCE.as_secs());
                Err(Failure::new(Code::Timeout, &self.reading.name, what))
            }
        }
    }

    fn room(&self) -> usize {
        match self.reading.prefetch as usize {
            0 => BATCH_MAX,
            most => most.saturating_sub(self.handled.len()).min(BATCH_MAX),
        }
    }

    /// Commits what is handled of partitions that are still here: of others it is not this member's to say.
    fn commit(&mut self, count: usize) -> Result<(), Failure> {
        let count = count.min(self.handled.len());
        let mut last = BTreeMap::new();
        for handled in self.handled.drain(..count) {
            last.insert(handled.partition, handled.offset + 1);
        }
        if !self.reading.is_committed {
            return Ok(());
        }
        {
            let here = self.consumer.context().lock();
            last.retain(|partition, _| here.contains_key(partition));
        }
        if last.is_empty() {
            return Ok(());
        }
        let mut list = TopicPartitionList::new();
        for (partition, offset) in last {
            let added =
                list.add_partition_offset(&self.reading.topic, partition, Offset::Offset(offset));
            added.map_err(|error| failed(&self.reading.name, "an offset", &error))?;
        }
        match self.consumer.commit(&list, CommitMode::Async) {
            Ok(()) => Ok(()),
            // A group that changes: what is not committed comes again, to whom it belongs then.
            Err(error) if is_of_group(&error) => Ok(()),
            Err(error) => Err(failed(&self.reading.name, "an offset", &error)),
        }
    }

    /// Leaves the group, so that it is empty when it is removed. That waits for the answers to commits too.
    fn leave(&self) {
        if self.consumer.close_queue().is_err() {
            return;
        }
        let mut waited = Duration::ZERO;
        while !self.consumer.closed() && waited < LEAVE {
            // Its answers are those of a client that ends.
            let _ = self.consumer.poll(LOOK);
            waited += LOOK;
        }
    }

    /// Says once that a reply was not taken. It is missed where it does not come.
    fn tell(&mut self) {
        let Some(answers) = &self.reading.answers else {
            return;
        };
        if let (_, Some(why)) = answers.reported(Duration::ZERO)
            && !std::mem::replace(&mut self.has_told, true)
        {
            let name = &self.reading.name;
            eprintln!("note: {name}: the broker does not take a reply: {why}");
        }
    }
}

fn is_of_group(error: &KafkaError) -> bool {
    matches!(
        error.rdkafka_error_code(),
        Some(
            Why::IllegalGeneration
                | Why::UnknownMemberId
                | Why::RebalanceInProgress
                | Why::NotCoordinator
                | Why::CoordinatorLoadInProgress
                | Why::NoOffset
                | Why::AssignmentLost
        )
    )
}

impl Source for Incoming {
    fn receive(&mut self, wait: Duration) -> Result<Vec<Delivery>, Failure> {
        self.tell();
        let room = self.room();
        if room == 0 {
            // Nothing more is taken before something is acknowledged.
            std::thread::sleep(wait);
            return Ok(Vec::new());
        }
        let mut wait = wait;
        while self.came.len() < room && self.poll(wait)? {
            wait = Duration::ZERO;
        }
        Ok(std::mem::take(&mut self.came))
    }

    fn reply(&mut self, stamp: Stamp, message: Bytes) -> Result<(), Failure> {
        let Some(answers) = &self.reading.answers else {
            return Ok(());
        };
        let mut reply = Vec::with_capacity(message.len());
        reply.extend_from_slice(&stamp.to_bytes());
        reply.extend_from_slice(&message[STAMP_BYTES..]);
        answers.send(stamp.sequence, stamp.producer.into(), &reply)
    }

    fn acknowledge(&mut self, count: usize) -> Result<(), Failure> {
        self.commit(count)
    }

    fn finish(&mut self) -> Result<(), Failure> {
        self.commit(usize::MAX)?;
        let flushed = self.reading.answers.as_ref().map_or(Ok(()), Sending::flush);
        self.tell();
        self.leave();
        flushed
    }
}
